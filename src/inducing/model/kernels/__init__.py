"""Covariance functions. `k(X, Z)` is the matrix, `k.diag(X)` its diagonal; `+` and `*` compose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ...errors import InducingError, ParameterError, UnknownNameError
from .base import Kernel
from .composite import Product, Sum
from .dot import Constant, Linear, Polynomial
from .periodic import Periodic, Trigonometric
from .projected import Projected
from .stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic
from .vector import KINDS, CurlFree, DivergenceFree, Independent, Shared, coregionalised

__all__ = [
    "BY_NAME",
    "RBF",
    "Constant",
    "CurlFree",
    "DivergenceFree",
    "Independent",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "Polynomial",
    "Product",
    "Projected",
    "RationalQuadratic",
    "Shared",
    "Sum",
    "Trigonometric",
    "coregionalised",
    "from_spec",
]

_LEAVES: tuple[type[Kernel], ...] = (
    RBF,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    Polynomial,
    Linear,
    Periodic,
    Constant,
    Trigonometric,
)
BY_NAME: dict[str, type[Kernel]] = {kind.__name__.lower(): kind for kind in _LEAVES}
_OF_VECTORS = {kind.__name__.lower(): kind for kind in KINDS}  # whose last input is the number of a component
_COMPOSITES: dict[str, type[Kernel]] = {"sum": Sum, "product": Product, "projected": Projected}


def from_spec(spec: Mapping[str, Any]) -> Kernel:
    """The kernel that `kernel.spec()` described. Reads plain data only, so a spec from a stranger is safe to
    open.
    """
    if not isinstance(spec, Mapping) or not isinstance(spec.get("name"), str):
        raise ParameterError(f"a kernel's spec must be a dictionary with a name, not {spec!r}")
    name, values = spec["name"].lower(), {key: value for key, value in spec.items() if key != "name"}
    kind = BY_NAME.get(name) or _OF_VECTORS.get(name) or _COMPOSITES.get(name)
    if kind is None:
        listed = ", ".join([*BY_NAME, *_OF_VECTORS, *_COMPOSITES])
        raise UnknownNameError(f"there is no kernel {spec['name']!r}; known are {listed}")
    known = [field.name for field in fields(kind)]
    unknown = [key for key in values if key not in known]
    if unknown:
        raise UnknownNameError(f"{kind.__name__} has no parameter {unknown}; it has {known}")
    if "kernel" in known:
        values["kernel"] = from_spec(values.get("kernel", {}))
    if "parts" in known:
        if not isinstance(values.get("parts"), list | tuple):
            raise ParameterError(
                f"the spec of a {kind.__name__} needs a list of parts, not {values.get('parts')!r}"
            )
        values["parts"] = tuple(from_spec(part) for part in values["parts"])
    try:
        return kind(**values)
    except InducingError:
        raise
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{kind.__name__} cannot be made from {values}: {error}") from error
