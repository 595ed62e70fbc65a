"""Covariance functions. `k(X, Z)` is the matrix, `k.diag(X)` its diagonal; `+` and `*` compose."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...errors import ParameterError
from ..parameters import made, read_spec
from .averaged import Averaged
from .base import Kernel
from .category import Category, categories_of, code_columns
from .composite import Composite, Product, Sum
from .dot import Constant, Linear, Polynomial
from .levels import Levels
from .periodic import Periodic, Trigonometric
from .projected import Projected
from .sphere import Sphere
from .stationary import RBF, Matern, Matern12, Matern32, Matern52, RationalQuadratic
from .vector import CurlFree, DivergenceFree, Independent
from .waves import spectral_density

_STATIONARY: tuple[type[Kernel], ...] = (RBF, Matern12, Matern32, Matern52, RationalQuadratic, Matern)
_LEAVES = (*_STATIONARY, Polynomial, Linear, Periodic, Constant, Trigonometric, Sphere)
BY_NAME: dict[str, type[Kernel]] = {kind.__name__.lower(): kind for kind in _LEAVES}
# kernels whose last input is the number of a component
_VECTORS: tuple[type[Kernel], ...] = (Independent, CurlFree, DivergenceFree)
_OF_VECTORS = {kind.__name__.lower(): kind for kind in _VECTORS}
_OF_COLUMNS: dict[str, type[Kernel]] = {"category": Category, "averaged": Averaged}  # of columns of a kind
_COMPOSITES: dict[str, type[Kernel]] = {
    "sum": Sum,
    "product": Product,
    "projected": Projected,
    "levels": Levels,
}
_KINDS = (Kernel, *_LEAVES, *_OF_VECTORS.values(), *_OF_COLUMNS.values(), *_COMPOSITES.values())
__all__ = [
    "BY_NAME",
    "categories_of",
    "code_columns",
    "from_spec",
    "leaves",
    "spectral_density",
    "with_periods",
    *(kind.__name__ for kind in _KINDS),
]


def from_spec(spec: Mapping[str, Any]) -> Kernel:
    """The kernel that `kernel.spec()` described."""
    kind, values = read_spec("kernel", spec, BY_NAME | _OF_VECTORS | _OF_COLUMNS | _COMPOSITES)
    if kind in (Projected, Levels):
        values["kernel"] = from_spec(values.get("kernel", {}))
    if issubclass(kind, Composite):
        if not isinstance(values.get("parts"), list | tuple):
            parts = values.get("parts")
            raise ParameterError(f"the spec of a {kind.__name__} needs a list of parts, not {parts!r}")
        values["parts"] = tuple(from_spec(part) for part in values["parts"])
    return made(kind, values)


def leaves(spec: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The parts of a kernel's spec that have none themselves, with the paths of their parameters: 0., 1.0."""
    if "parts" not in spec:
        yield path, dict(spec)
    for i, part in enumerate(spec.get("parts", [])):
        yield from leaves(part, f"{path}{i}.")


def with_periods(kernel: Kernel | str | None, x_scale: np.ndarray) -> Kernel | str | None:
    """A kernel whose periods are in the user's units, with those of the model, where an input is divided by
    its scale (d,); what is no kernel as it is.
    """
    if not isinstance(kernel, Kernel):
        return kernel
    periods = {}
    for path, part in leaves(kernel.spec()):
        if "period" in part:
            scale = x_scale if part.get("columns") is None else x_scale[list(part["columns"])]
            scale = scale[0] if np.all(scale == scale[0]) else scale
            periods[f"{path}period"] = np.asarray(part["period"]) / scale
    return kernel.with_parameters(periods) if periods else kernel
