"""Covariance functions. `k(X, Z)` is the matrix, `k.diag(X)` its diagonal; `+` and `*` compose."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from ...errors import ParameterError, ShapeError
from ..parameters import made, read_spec
from .averaged import Averaged
from .base import Kernel
from .changed import Levels, OfChanged, OfFeatures, Projected, Warped
from .codes import Category, CurlFree, DivergenceFree, Independent, categories_of, code_columns
from .composite import Composite, Product, Sum, leaves
from .dot import Constant, Linear, Polynomial
from .periodic import Periodic, Sphere, Trigonometric
from .stationary import RBF, Matern, Matern12, Matern32, Matern52, RationalQuadratic
from .waves import spectral_density

AnyKernel = TypeVar("AnyKernel", bound=Kernel)
_LEAVES: tuple[type[Kernel], ...] = (
    *(RBF, Matern12, Matern32, Matern52, RationalQuadratic, Matern),
    *(Polynomial, Linear, Periodic, Constant, Trigonometric, Sphere),
)
BY_NAME: dict[str, type[Kernel]] = {kind.__name__.lower(): kind for kind in _LEAVES}
_OTHERS: tuple[type[Kernel], ...] = (
    *(Independent, CurlFree, DivergenceFree, Category, Averaged),  # of columns with a special meaning
    *(Sum, Product, Projected, Levels, Warped),
)
__all__ = [
    "BY_NAME",
    "Kernel",
    "categories_of",
    "code_columns",
    "from_spec",
    "in_units",
    "leaves",
    "spectral_density",
    "units_of",
    *(kind.__name__ for kind in _LEAVES + _OTHERS),
]


def from_spec(spec: Mapping[str, Any]) -> Kernel:
    """Make the kernel that `kernel.spec()` described."""
    kind, values = read_spec("kernel", spec, BY_NAME | {kind.__name__.lower(): kind for kind in _OTHERS})
    if issubclass(kind, OfChanged):
        values["kernel"] = from_spec(values.get("kernel", {}))
    if issubclass(kind, Composite):
        if not isinstance(values.get("parts"), list | tuple):
            parts = values.get("parts")
            raise ParameterError(f"the spec of a {kind.__name__} needs a list of parts, not {parts!r}")
        values["parts"] = tuple(from_spec(part) for part in values["parts"])
    return made(kind, values)


def units_of(kernel: Kernel, x_scale: np.ndarray) -> dict[str, Any]:
    """Return units of a kernel's parameters, by path, for inputs of these scales (d,): of lengthscales and
    periods the scale of their inputs, of a projection one over it. Parameters without a unit are not listed.
    """
    if isinstance(kernel, Composite):
        parts = enumerate(kernel.parts)
        return {f"{i}.{name}": unit for i, part in parts for name, unit in units_of(part, x_scale).items()}
    if isinstance(kernel, OfFeatures):  # features have no unit
        wider = np.append(x_scale, np.ones(len(kernel.owners)))
        return {f"0.{name}": unit for name, unit in units_of(kernel.kernel, wider).items()}
    scale, columns = np.asarray(x_scale), kernel.columns
    scale = scale[: len(scale) // 2] if kernel.uncertain else scale  # without the variances
    if columns is not None:
        if max(columns) >= len(scale):
            raise ShapeError(f"{kernel} looks at column {max(columns)}, but there are {len(scale)} inputs")
        scale = scale[list(columns)]
    if isinstance(kernel, Projected):
        return {"matrix": 1.0 / scale}
    units = {}
    for name in kernel.lengths:
        value = getattr(kernel, name)
        if np.ndim(value) and np.size(value) > len(scale):
            raise ShapeError(f"the kernel has {np.size(value)} {name}s, but there are {len(scale)} inputs")
        own = scale[: np.size(value)] if np.ndim(value) else scale  # without columns about gaps
        units[name] = float(own[0]) if np.all(own == own[0]) else own
    return units


def in_units(kernel: AnyKernel, x_scale: np.ndarray, x_mean: np.ndarray | float = 0.0) -> AnyKernel:
    """Return the kernel of (x - x_mean)/x_scale that equals this one of x: lengthscales and periods are
    divided by the scale of their input, and features move with the inputs. Kernels of x'z stay as they are.
    """
    values = kernel.parameters
    units = {name: values[name] / unit for name, unit in units_of(kernel, x_scale).items()}
    return cast(AnyKernel, _moved(kernel.with_parameters(units), x_scale, x_mean + np.zeros(len(x_scale))))


def _moved(kernel: Kernel, x_scale: np.ndarray, x_mean: np.ndarray) -> Kernel:
    if isinstance(kernel, Composite):
        return replace(kernel, parts=tuple(_moved(part, x_scale, x_mean) for part in kernel.parts))
    return kernel.in_units(x_mean, x_scale) if isinstance(kernel, OfFeatures) else kernel
