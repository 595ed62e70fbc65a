"""Likelihoods of f plus Gaussian noise, observed or censored, and of the log variance of an error."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from ...metrics import crps_losses
from ...numerics.arrays import Array, is_numpy, namespace
from ...numerics.quadrature import Feature, WeightedNodes, equal_steps
from ...numerics.special import LOG_2PI, special
from .base import Likelihood, exp, moments, one_namespace, refuse
from .classes import Probit

WIDTHS = 0.5, 1.0, 2.0, 4.0, 8.0, 16.0  # upper ends of classes of √var that share their steps
LOG_VARIANCE_STEP = 0.6  # in f, at most: averages are then right to 1e-11
ENTRIES_AT_ONCE = 1 << 15  # rows × nodes


@dataclass(frozen=True)
class GaussianNoise(Likelihood):
    """f + Gaussian noise of this variance."""

    located: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("variance",)
    log_concave: ClassVar[bool] = True

    variance: float = 1.0

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        f, y = self.split(y, f)[:2]
        e = y - f
        value = -0.5 * (LOG_2PI + np.log(self.variance) + e * e / self.variance)
        return value, e / self.variance, 0.0 * e - 1.0 / self.variance

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        f, y = self.split(y, f)[:2]
        return {"variance": 0.5 * ((y - f) ** 2 / self.variance - 1.0) / self.variance}

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        """Use that p^a is N(y; f, variance/a) up to a constant."""
        e, log_noise = y - mean, LOG_2PI + np.log(self.variance)
        if power == 0.0:
            value = -0.5 * (log_noise + (e * e + var) / self.variance)
            return value, e / self.variance, 0.0 * e - 1.0 / self.variance
        total = self.variance / power + var
        constant = 0.5 * ((1.0 - power) * log_noise - np.log(power) - LOG_2PI)
        return constant - 0.5 * (namespace(mean).log(total) + e * e / total), e / total, -1.0 / total

    def gradient_on_nodes(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        e, noise = y - mean, self.variance
        if power == 0.0:
            return {"variance": 0.5 * ((e * e + var) / noise - 1.0) / noise}
        total = noise + power * var
        return {"variance": 0.5 * ((1.0 - power) / noise + (power * e * e / total - 1.0) / total)}

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        mean, var = one_namespace(mean, var)
        return mean, var + self.variance

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        return rng.normal(f, np.sqrt(self.variance))

    def _cumulative(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        return special(np).ndtr((y - mean) / np.sqrt(var + self.variance))

    def _quantile(self, p: Array, mean: np.ndarray, var: np.ndarray, further: Array | None) -> np.ndarray:
        return mean + np.sqrt(var + self.variance) * special(np).ndtri(p)

    def _crps(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        return crps_losses(self._columns_of(y)[0] - mean, var + self.variance)


@dataclass(frozen=True)
class Gaussian(GaussianNoise):
    """y = f + noise of this variance. [004 eq. 5.3]"""

    kind: ClassVar[int | None] = 0


@dataclass(frozen=True)
class CensoredGaussian(GaussianNoise):
    """f + Gaussian noise of this variance, known in some rows only to lie beyond y.

    y is (n,), or (n, 2) with a second column: 0 where it was observed, 1 where it is y or more (censored on
    the right), -1 where it is y or less. Predictions are of the uncensored value.
    """

    columns: ClassVar[int] = 2
    defaults: ClassVar[tuple[float, ...]] = (0.0,)

    @property
    def _beyond(self) -> Probit:
        """The likelihood of a censored row, whose label is its side and whose process is f - y."""
        return Probit(self.variance)

    def _check_rows(self, y: Array, *further: Array) -> None:
        for side in further:
            message = "the second column of y must be -1, 0 or 1, but row {row} has {value:g}"
            refuse(side, side != namespace(side).sign(side), message)

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        seen = super().log_density_slopes(y, f)
        f, y, side = self.split(y, f)
        censored = side + 0.0 * seen[0] != 0.0
        beyond = self._beyond.log_density_slopes(side, f - y)
        return tuple(namespace(f).where(censored, late, own) for late, own in zip(beyond, seen))

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        seen = super().log_density_gradient(y, f)["variance"]
        f, y, side = self.split(y, f)
        beyond = self._beyond.log_density_gradient(side, f - y)["noise"]
        return {"variance": namespace(seen).where(side + 0.0 * seen != 0.0, beyond, seen)}

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        y, side = self._columns_of(y)
        parts, rows = super()._tilted(y, mean, var, power), namespace(side).nonzero(side)[0]
        if rows.shape[0]:
            beyond = self._beyond._tilted(side[rows], (mean - y)[rows], var[rows], power)
            for part, other in zip(parts, beyond):
                part[rows] = other
        return parts

    def gradient_on_nodes(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        y, side = self._columns_of(y)
        gradient = super().gradient_on_nodes(y, mean, var, power)
        rows = namespace(side).nonzero(side)[0]
        if rows.shape[0]:
            beyond = self._beyond.gradient_on_nodes(side[rows], (mean - y)[rows], var[rows], power)
            gradient["variance"][rows] = beyond["noise"]
        return gradient

    def _cumulative(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        return super()._cumulative(self._columns_of(y)[0], mean, var)


@dataclass(frozen=True)
class LogVariance(Likelihood):
    """A Gaussian error y with variance known + exp(f); y is (n,), or (n, 2) with the known part."""

    columns: ClassVar[int] = 2
    defaults: ClassVar[tuple[float, ...]] = (0.0,)
    widest: ClassVar[float] = 25.0  # errors that the known part explains would make it infinite

    def _check_rows(self, y: Array, *further: Array) -> None:
        for known in further:
            refuse(known, known < 0.0, "a variance must not be negative, but row {row} has {value:g}")

    def _of_ratio(self, ratio: Array) -> tuple[Array, Array, Array]:
        """Return log p of ρ = y² at variance 1, and -2 times its first and second derivative in log ρ."""
        return -0.5 * (LOG_2PI + ratio), ratio, ratio

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        """Compute log p and its slopes from t = known + exp(f), the share p = exp(f)/t, and ρ = y²/t."""
        f, y, known = self.split(y, f)
        xp, part = namespace(f, y), exp(f)
        total = known + part
        p = part / total
        value, pull, bend = self._of_ratio(y * y / total)
        slope = 0.5 * p * (pull - 1.0)
        return value - 0.5 * xp.log(total), slope, 0.5 * p * ((1.0 - p) * (pull - 1.0) - p * bend)

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        """Average over equal steps, for power = 0 and √var up to 16: log p has no singularity within π of the
        real line, so steps of h standard deviations sd have an error of about exp(-2π²/(h sd)).
        """
        if power > 0.0 or not is_numpy(mean):
            return super()._tilted(y, mean, var, power)
        parts, left = np.empty((3, len(mean))), np.ones(len(mean), dtype=bool)
        for most in WIDTHS:
            t, weight = equal_steps(most, LOG_VARIANCE_STEP / most)
            some = np.flatnonzero(left & (var <= most**2))
            for rows in np.array_split(some, len(some) * len(t) // ENTRIES_AT_ONCE + 1):
                f = mean[rows, None] + np.sqrt(var[rows, None]) * t  # (k, len(t))
                values = self.log_density_slopes(y[rows, None], f)
                at, weights = np.broadcast_to(t, f.shape), np.broadcast_to(weight, f.shape)
                nodes = WeightedNodes(rows, at, weights, mean[rows], values)
                parts[:, rows] = moments(nodes, var[rows], power)
            left[some] = False
        if np.any(left):
            parts[:, left] = super()._tilted(y[left], mean[left], var[left], power)
        return tuple(parts)

    def _feature(self, y: Array, power: float) -> Feature:
        y, known = self._columns_of(y)
        xp = namespace(y)
        return Feature(xp.log(xp.maximum(xp.maximum(y * y, known), 1e-100)), 1.3, left=1.0)
