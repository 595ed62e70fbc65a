"""Likelihoods given as a function, and the likelihood f²."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import ParameterError, ShapeError
from ...numerics.arrays import Array, asarray_like, is_foreign, namespace, to_numpy
from ...numerics.special import special
from ...numerics.workers import ROW_WORK, interruptible
from .base import Likelihood, refuse


@dataclass(frozen=True)
class Custom(Likelihood):
    """Any p(y|f), given by function(y, f) -> log p(y|f) on arrays that broadcast; averages are by quadrature.

    `landmarks(y)` may give values of f (n, l) where p(y|f) peaks or bends more sharply than the prior of f;
    without them a peak much narrower than the prior can be missed.
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
            raise ShapeError(f"function(y, f) of shape {shape} came back with shape {tuple(value.shape)}")
        return value

    def _landmarks(self, y: Array) -> Array | None:
        if self.landmarks is None:
            return None
        return asarray_like(self.landmarks(y), y).reshape((y.shape[0], -1))

    def spec(self) -> dict[str, Any]:
        raise ParameterError("a Custom likelihood has no plain description; save its parameters yourself")


@dataclass(frozen=True)
class Squared(Likelihood):
    """f^2y for an input seen y times, where f² is an unnormalised density; y need not be whole. [004 §5.3]

    At y = 1, q = 2 mean/(mean² + var) and r = 2(var - mean²)/(mean² + var)²: a mean of 0 stays 0, with r > 0.
    """

    kind: ClassVar[int | None] = 7

    def _check_rows(self, y: Array, *further: Array) -> None:
        refuse(y, y <= 0, "y, how often an input was seen, must be positive, but row {row} has {value:g}")

    def log_density(self, y: Array, f: Array) -> Array:
        f, y = self.split(y, f)
        xp = namespace(f, y)
        with np.errstate(divide="ignore"):
            return 2.0 * y * xp.log(xp.abs(f))

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        from .loops import Asked, tilt_rows

        if power == 0.0:
            return tuple(y * part for part in _expected_log_square(mean, var))
        asked, out = Asked(self), np.empty((len(mean), 3))
        rows = [np.ascontiguousarray(to_numpy(part), dtype=float) for part in (power * y, mean, var)]
        for some in interruptible(len(out), ROW_WORK):
            tilt_rows(asked.at, asked.theta, *(part[some] for part in (*rows, out)))
        return tuple(asarray_like(part, mean) for part in out.T)


def _expected_log_square(mean: Array, var: Array) -> tuple[Array, Array, Array]:
    """Return ⟨log f²⟩ and two derivatives in the mean.

    f²/var is chi-squared with 1 + 2j degrees of freedom, where j is Poisson distributed with mean x =
    mean²/2var, so with the digamma function ψ ⟨log f²⟩ = log 2var + E ψ(j + ½). Far from 0 a series in
    var/mean² replaces it.
    """
    xp = namespace(mean)
    x = 0.5 * mean * mean / var
    far = x > 60.0
    j = asarray_like(np.arange(160.0), mean)
    near = xp.where(far, 0.0, x)[:, None]
    log_weight = j * xp.log(xp.maximum(near, 1e-300)) - near - special(xp).gammaln(j + 1.0)
    weight = xp.exp(log_weight)
    averages = [
        xp.sum(weight * part, axis=1)
        for part in (special(xp).digamma(j + 0.5), 1.0 / (j + 0.5), 1.0 / ((j + 0.5) * (j + 1.5)))
    ]
    value = xp.log(2.0 * var) + averages[0]
    q, r = mean / var * averages[1], (averages[1] - 2.0 * x * averages[2]) / var
    m = xp.where(far, mean, 1.0)
    w, term, sums = xp.where(far, var, 0.0) / (m * m), 1.0, [0.0, 1.0, 1.0]
    for i in range(1, 13):  # Σ (2i - 1)!! (var/mean²)^i
        term = term * (2 * i - 1) * w
        sums = [sums[0] - term / i, sums[1] + term, sums[2] + (2 * i + 1) * term]
    distant = xp.log(m * m) + sums[0], 2.0 / m * sums[1], -2.0 / (m * m) * sums[2]
    value, q, r = (xp.where(far, a, b) for a, b in zip(distant, (value, q, r)))
    return value, q, r
