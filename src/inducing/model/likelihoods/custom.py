"""Likelihoods given as a function, and the square of f."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import ParameterError, ShapeError
from ...numerics.arrays import Array, asarray_like, is_foreign, namespace, to_numpy
from .base import Likelihood, refuse


@dataclass(frozen=True)
class Custom(Likelihood):
    """Any p(y|f), given as function(y, f) -> log p(y|f) on arrays that broadcast; averages are by quadrature.

    `landmarks(y)` may name values of f (n, l) where p(y|f) peaks or bends more sharply than the prior of f;
    without them a peak much narrower than the prior can be overlooked.
    """

    function: Callable[[Array, Array], Array]
    landmarks: Callable[[Array], Array] | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ParameterError(f"Custom needs a function(y, f) giving log p(y|f), not {self.function!r}")

    def log_density(self, y: Array, f: Array) -> Array:
        f, y = self.split(y, f)
        value = self.function(y, f)
        value = value if is_foreign(value) else np.asarray(value, dtype=float)
        shape = np.broadcast_shapes(y.shape, f.shape)
        if tuple(value.shape) != shape:
            raise ShapeError(
                f"the log density of arrays with shape {shape} came back with shape {tuple(value.shape)}"
            )
        return value

    def _landmarks(self, y: Array) -> Array | None:
        if self.landmarks is None:
            return None
        return asarray_like(self.landmarks(y), y).reshape((y.shape[0], -1))

    def spec(self) -> dict[str, Any]:
        raise ParameterError(
            "a Custom likelihood is a function and has no plain description; save its parameters yourself"
        )


@dataclass(frozen=True)
class Squared(Likelihood):
    """f^2y for an input seen y times, where f² is a density up to its mass; y need not be whole. [004 §5.3]

    q = 2 mean/(mean² + var) and r = 2(var - mean²)/(mean² + var)² at y = 1: a mean of 0 stays 0, and r > 0
    about it.
    """

    kind: ClassVar[int | None] = 7

    def _check_rows(self, y: Array, *further: Array) -> None:
        refuse(
            y, y <= 0, "y is how often an input was seen and must be positive, but row {row} has {value:g}"
        )

    def log_density(self, y: Array, f: Array) -> Array:
        f, y = self.split(y, f)
        xp = namespace(f, y)
        with np.errstate(divide="ignore"):
            return 2.0 * y * xp.log(xp.abs(f))

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        from .loops import tilt_rows

        assert power > 0.0 and self.kind is not None
        out = np.empty((3, mean.shape[0]))
        tilt_rows(self.kind, self.theta, power * to_numpy(y), to_numpy(mean), to_numpy(var), out)
        return tuple(asarray_like(part, mean) for part in out)
