"""Likelihoods of counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...numerics.arrays import Array, namespace
from ...numerics.quadrature import Feature
from ...numerics.special import LOG_2PI, special
from .base import Likelihood, refuse

MOST = 2.0**53  # counts beyond are not told from their neighbours
STEEP = 700.0  # log of the largest rate


def check_counts(y: Array) -> None:
    """Raise if a row is no count."""
    xp = namespace(y)
    refuse(
        y, (y < 0) | (y != xp.floor(y)), "counts must be whole numbers from 0 on, but row {row} has {value:g}"
    )
    refuse(
        y,
        y > MOST,
        "counts must not exceed 2^53, but row {row} has {value:g}; use a likelihood of real numbers",
    )


@dataclass(frozen=True)
class Poisson(Likelihood):
    """Counts with rate exposure · exp(f); y is the count, or count and exposure. (n,) or (n, 2)"""

    kind: ClassVar[int | None] = 6
    columns: ClassVar[int] = 2
    defaults: ClassVar[tuple[float, ...]] = (1.0,)
    log_concave: ClassVar[bool] = True

    def _check_rows(self, y: Array, *further: Array) -> None:
        check_counts(y)
        for exposure in further:
            refuse(exposure, exposure <= 0.0, "an exposure must be positive, but row {row} has {value:g}")

    def log_density(self, y: Array, f: Array) -> Array:
        return self.log_density_slopes(y, f)[0]

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        """y (x - e^x + 1) and what is left at x = 0, the f whose rate is y: no large numbers cancel."""
        f, y, exposure = self.split(y, f)
        xp = namespace(f, y)
        largest = xp.where(y > 0.0, y, 1.0)
        x = f - xp.log(largest / exposure)
        x = xp.where(x < STEEP, x, STEEP)
        rise = xp.expm1(x)
        value = xp.where(y > 0.0, y * (x - rise), -(1.0 + rise)) + _at_its_rate(y)
        rate = largest * (1.0 + rise)
        return value, y - rate, -rate

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        if power > 0.0:
            return super()._tilted(y, mean, var, power)
        _, y, exposure = self.split(y, mean)
        xp = namespace(mean)
        at = mean + xp.log(exposure + xp.zeros_like(mean))
        at_rate = at + 0.5 * var
        rate = xp.exp(xp.where(at_rate < STEEP, at_rate, STEEP))
        return y * at - rate - special(xp).gammaln(y + 1.0), y - rate, -rate

    def _feature(self, y: Array, power: float) -> Feature:
        _, y, exposure = self.split(y, y[..., 0] if y.ndim > 1 else y)
        xp, a = namespace(y), power or 1.0
        return Feature(xp.log((a * y + 0.5) / (a * exposure)), 1.3, 1.0 / xp.sqrt(a * y + 0.5), right=1.0)

    def predict(self, mean: Array, var: Array) -> tuple[Array, Array]:
        rate = np.exp(np.add(mean, 0.5 * np.asarray(var)))
        return rate, rate + rate * rate * np.expm1(var)

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.poisson(np.exp(f)).astype(float)


def _at_its_rate(y: Array) -> Array:
    """log p(y) of a Poisson count at the rate y: y log y - y - log y!, by Stirling's series where that cancels."""
    xp = namespace(y)
    few = xp.where(y < 100.0, y, 1.0)
    small = xp.where(few > 0.0, few * xp.log(xp.where(few > 0.0, few, 1.0)) - few, 0.0) - special(xp).gammaln(
        few + 1.0
    )
    many = xp.where(y < 100.0, 100.0, y)
    w = 1.0 / (many * many)
    large = -0.5 * (LOG_2PI + xp.log(many)) - (1.0 / 12.0 - w * (1.0 / 360.0 - w * (1.0 / 1260.0))) / many
    return xp.where(y < 100.0, small, large)
