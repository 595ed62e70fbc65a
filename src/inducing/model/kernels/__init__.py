"""Covariance functions. `k(X, Z)` is the matrix, `k.diag(X)` its diagonal; `+` and `*` compose."""

from collections.abc import Mapping
from typing import Any

from ...errors import ParameterError
from ..parameters import made, read_spec
from .base import Kernel
from .composite import Composite, Product, Sum
from .dot import Constant, Linear, Polynomial
from .periodic import Periodic, Trigonometric
from .projected import Projected
from .sphere import Sphere
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
    "Sphere",
    "Sum",
    "Trigonometric",
    "coregionalised",
    "from_spec",
]

_STATIONARY: tuple[type[Kernel], ...] = (RBF, Matern12, Matern32, Matern52, RationalQuadratic)
_LEAVES = (*_STATIONARY, Polynomial, Linear, Periodic, Constant, Trigonometric, Sphere)
BY_NAME: dict[str, type[Kernel]] = {kind.__name__.lower(): kind for kind in _LEAVES}
# kernels whose last input is the number of a component
_OF_VECTORS: dict[str, type[Kernel]] = {kind.__name__.lower(): kind for kind in KINDS}
_COMPOSITES: dict[str, type[Kernel]] = {"sum": Sum, "product": Product, "projected": Projected}


def from_spec(spec: Mapping[str, Any]) -> Kernel:
    """The kernel that `kernel.spec()` described."""
    kind, values = read_spec("kernel", spec, BY_NAME | _OF_VECTORS | _COMPOSITES)
    if kind is Projected:
        values["kernel"] = from_spec(values.get("kernel", {}))
    if issubclass(kind, Composite):
        if not isinstance(values.get("parts"), list | tuple):
            parts = values.get("parts")
            raise ParameterError(f"the spec of a {kind.__name__} needs a list of parts, not {parts!r}")
        values["parts"] = tuple(from_spec(part) for part in values["parts"])
    return made(kind, values)
