"""Likelihoods of counts (Poisson, negative binomial, binomial) and of shares (Beta)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from ...errors import LabelError
from ...numerics.arrays import Array, namespace
from ...numerics.quadrature import Feature
from ...numerics.ranked import FAR_QUANTILE, crps_of_counts
from ...numerics.special import log_sigmoid, special, stirling
from .base import STEEP, Likelihood, exp, one_namespace, refuse
from .classes import Logistic

MOST = 1e12  # of counts: beyond it too few digits are left for small shares of many


@dataclass(frozen=True)
class Counted(Likelihood):
    """Counts; a second column of y holds the number of trials or the exposure."""

    columns: ClassVar[int] = 2
    log_concave: ClassVar[bool] = True

    def _crps(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        """Compute `crps` as a sum over counts. (n,)"""
        further = y[:, 1:] if y.ndim > 1 else None
        most = self.quantile(FAR_QUANTILE, mean, var, further)

        def below(k: np.ndarray) -> np.ndarray:
            counts = np.broadcast_to(k, (len(y), len(k)))
            if further is not None:  # there cannot be more successes than trials
                counts = np.minimum(counts, further) if isinstance(self, Binomial) else counts
                counts = np.stack([counts, np.broadcast_to(further, counts.shape)], axis=-1)
            return self.cumulative(counts, mean[:, None], var[:, None])

        return crps_of_counts(below, y[:, 0] if y.ndim > 1 else y, most)


@dataclass(frozen=True)
class Counts(Counted):
    """Counts with mean exposure · exp(f); y is the count, or count and exposure. (n,) or (n, 2)"""

    defaults: ClassVar[tuple[float, ...]] = (1.0,)

    def _check_rows(self, y: Array, *further: Array) -> None:
        check_counts(y)
        for exposure in further:
            refuse(exposure, exposure <= 0.0, "an exposure must be positive, but row {row} has {value:g}")

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        mean, var, exposure = one_namespace(mean, var, 1.0 if further is None else further)
        rate = exposure * exp(mean + 0.5 * var)
        return rate, rate + self._excess(rate, var)

    def _excess(self, rate: Array, var: Array) -> Array:
        """Return the variance of y beyond that of a Poisson count of this rate."""
        return rate * (rate * namespace(var).expm1(namespace(var).minimum(var, STEEP)))

    def _observed(self, x: np.ndarray) -> np.ndarray:
        return np.floor(np.minimum(exp(x), MOST))


def check_counts(y: Array) -> None:
    """Raise if a row is no count."""
    wrong = (y < 0) | (y != namespace(y).floor(y))
    refuse(y, wrong, "counts must be whole numbers from 0 on, but row {row} has {value:g}")
    message = f"counts must not exceed {MOST:g}, but row {{row}} has {{value:g}}; model them as real numbers"
    refuse(y, y > MOST, message)


@dataclass(frozen=True)
class Poisson(Counts):
    """Counts with rate exposure · exp(f); y is the count, or count and exposure. (n,) or (n, 2)"""

    kind: ClassVar[int | None] = 6

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        """Take log p as y (x - e^x + 1) plus its value at x = 0, where the rate is y: nothing cancels."""
        f, y, exposure = self.split(y, f)
        xp = namespace(f, y)
        unit = xp.maximum(y, 1.0)
        x = xp.minimum(f - xp.log(unit / exposure), STEEP)
        rise = xp.expm1(x)
        rate = unit * (1.0 + rise)
        return y * x - unit * rise - (unit - y) + stirling(y), y - rate, -rate

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        if power > 0.0:
            return super()._tilted(y, mean, var, power)
        y, exposure = self._columns_of(y)
        at = mean + namespace(mean).log(exposure)
        rate = exp(at + 0.5 * var)
        return y * at - rate - special(namespace(mean)).gammaln(y + 1.0), y - rate, -rate

    def _feature(self, y: Array, power: float) -> Feature:
        y, exposure = self._columns_of(y)
        xp, a = namespace(y), power or 1.0
        return Feature(xp.log((a * y + 0.5) / (a * exposure)), 1.3, 1.0 / xp.sqrt(a * y + 0.5), right=1.0)

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        return rng.poisson(_rate(f, further)).astype(float)

    def _conditional(self, f: np.ndarray, y: np.ndarray, *further: np.ndarray) -> np.ndarray:
        return special(np).pdtr(y, exp(f) * further[0])


@dataclass(frozen=True)
class NegativeBinomial(Counts):
    """Counts with mean μ = exposure · exp(f) and variance μ + μ²/shape; y as in `Poisson`."""

    names: ClassVar[tuple[str, ...]] = ("shape",)

    shape: float = 1.0

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        f, y, exposure = self.split(y, f)
        xp, k = namespace(f, y), self.shape
        z = f + xp.log(exposure / k + 0.0 * f)
        value, slope, bend = _successes(y, k + 0.0 * y, z)
        constant = stirling(k + 0.0 * y) + stirling(y) - stirling(y + k) + xp.log(k / (y + k))
        return value + constant, slope, bend

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        f, y, exposure = self.split(y, f)
        xp, k = namespace(f, y), self.shape
        log_share, share, _ = log_sigmoid(-f - xp.log(exposure / k + 0.0 * f))  # k/(k + μ)
        digamma = special(xp).digamma
        return {"shape": digamma(y + k) - digamma(k + 0.0 * y) + log_share + 1.0 - (y + k) / k * share}

    def _feature(self, y: Array, power: float) -> Feature:
        y, exposure = self._columns_of(y)
        return _successes_feature(y, self.shape + 0.0 * y, namespace(y).log(self.shape / exposure), power)

    def _excess(self, rate: Array, var: Array) -> Array:
        xp = namespace(var)
        return super()._excess(rate, var) + rate * (rate * exp(var)) / self.shape + 0.0 * xp.abs(rate)

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        rate = rng.gamma(self.shape, _rate(f, further) / self.shape)
        return rng.poisson(np.minimum(rate, 1e18)).astype(float)

    def _conditional(self, f: np.ndarray, y: np.ndarray, *further: np.ndarray) -> np.ndarray:
        share = log_sigmoid(np.log(self.shape / further[0]) - f)[1]
        return np.where(y < 0.0, 0.0, special(np).betainc(self.shape, np.maximum(y, 0.0) + 1.0, share))


@dataclass(frozen=True)
class Binomial(Counted):
    """Successes among trials, each with probability 1/(1 + exp(-f)); y is successes and trials. (n, 2)"""

    def _check_rows(self, y: Array, *further: Array) -> None:
        if not further:
            raise LabelError("y needs two columns, successes and trials")
        (trials,) = further
        check_counts(y)
        check_counts(trials)
        message = "there cannot be more successes than trials, but row {row} has {value:g} successes"
        refuse(y, y > trials, message)
        refuse(trials, trials < 1.0, "there must be one trial or more, but row {row} has {value:g}")

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        f, y, trials = self.split(y, f)
        value, slope, bend = _successes(y, trials - y, f)
        return value + stirling(y) + stirling(trials - y) - stirling(trials), slope, bend

    def _feature(self, y: Array, power: float) -> Feature:
        y, trials = self._columns_of(y)
        return _successes_feature(y, trials - y, 0.0 * y, power)

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        """Return mean and variance of the successes, in one trial unless `further` holds their number."""
        mean, var, trials = one_namespace(mean, var, 1.0 if further is None else further)
        xp, p = namespace(mean), Logistic()
        first, second = (xp.exp(p.log_average(1.0, mean, var, power)) for power in (1.0, 2.0))
        return trials * first, trials * (first - second) + trials**2 * xp.maximum(second - first**2, 0.0)

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        trials = 1 if further is None else np.asarray(further).reshape(np.shape(f)).astype(int)
        return rng.binomial(trials, log_sigmoid(np.asarray(f, dtype=float))[1]).astype(float)

    def _conditional(self, f: np.ndarray, y: np.ndarray, *further: np.ndarray) -> np.ndarray:
        left = np.maximum(further[0] - y, 0.0)
        inside = special(np).betainc(np.maximum(left, 1.0), np.maximum(y, 0.0) + 1.0, log_sigmoid(-f)[1])
        return np.where(y < 0.0, 0.0, np.where(left == 0.0, 1.0, inside))

    def _quantile(self, p: Array, mean: np.ndarray, var: np.ndarray, further: Array | None) -> np.ndarray:
        """Compute `quantile` by halving the interval of successes."""
        trials = np.ones(len(p)) if further is None else further[:, 0]
        low, high = np.full(len(p), -1.0), trials.copy()
        while np.any(high - low > 1.0):
            middle = np.floor(0.5 * (low + high))
            below = self._cumulative(np.column_stack([np.maximum(middle, 0.0), trials]), mean, var) < p
            low, high = np.where(below, middle, low), np.where(below | (middle < 0.0), high, middle)
        return high


@dataclass(frozen=True)
class Beta(Likelihood):
    """Beta distributed shares with mean μ = 1/(1 + exp(-f)) and variance μ(1 - μ)/(1 + precision)."""

    names: ClassVar[tuple[str, ...]] = ("precision",)

    precision: float = 10.0

    def _check_rows(self, y: Array, *further: Array) -> None:
        wrong = (y <= 0.0) | (y >= 1.0)
        refuse(y, wrong, "shares must lie between 0 and 1, but row {row} has {value:g}; move it inside")

    def log_density(self, y: Array, f: Array) -> Array:
        """Take log p as -φ KL(μ || y) plus values of S(x) = x log x - x - log Γ(x + 1): nothing cancels."""
        f, y = self.split(y, f)
        xp, phi = namespace(f, y), self.precision
        log_mu, mu, nu = log_sigmoid(f)
        log_nu = log_mu - f
        distance = mu * (log_mu - xp.log(y)) + nu * (log_nu - xp.log1p(-y))
        rest = stirling(mu * phi) + stirling(nu * phi) + log_mu + log_nu - xp.log(y) - xp.log1p(-y)
        return rest - phi * distance + float(np.log(phi) - stirling(np.array(phi)))

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        f, y = self.split(y, f)
        xp, phi = namespace(f, y), self.precision
        _, mu, nu = log_sigmoid(f)
        functions, d = special(xp), phi * mu * nu
        digamma = functions.digamma
        pull = digamma(nu * phi + 1.0) - digamma(mu * phi + 1.0) + xp.log(y) - xp.log1p(-y)
        bend = functions.polygamma(1, nu * phi + 1.0) + functions.polygamma(1, mu * phi + 1.0)
        slope = d * pull + nu - mu
        return self.log_density(y, f), slope, d * (nu - mu) * pull - d * d * bend - 2.0 * mu * nu

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        f, y = self.split(y, f)
        xp, phi = namespace(f, y), self.precision
        _, mu, nu = log_sigmoid(f)
        digamma = special(xp).digamma
        logs = mu * (xp.log(y) - digamma(mu * phi + 1.0)) + nu * (xp.log1p(-y) - digamma(nu * phi + 1.0))
        return {"precision": logs + float(special(np).digamma(phi + 1.0) + 1.0 / phi)}

    def _feature(self, y: Array, power: float) -> Feature:
        if power == 0.0:
            return Feature(0.0, np.pi, fine=1.0 / (1.0 + 0.4 * np.log1p(self.precision)))
        xp, a = namespace(y), power
        one, other = 1.0 / (1.0 - xp.log(y)), 1.0 / (1.0 - xp.log1p(-y))
        centre = xp.log((y * self.precision + one) / ((1.0 - y) * self.precision + other))
        bend = -self.log_density_slopes(y, centre)[2] if y.shape[0] else y
        return Feature(centre, 1.5, 1.0 / xp.sqrt(xp.maximum(a * bend, 0.04)), left=1.0, right=1.0)

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        mean, var = one_namespace(mean, var)
        xp, p = namespace(mean), Logistic()
        first, second = (xp.exp(p.log_average(1.0, mean, var, power)) for power in (1.0, 2.0))
        spread = xp.maximum(second - first**2, 0.0)
        return first, spread + (first - second) / (1.0 + self.precision)

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        _, mu, nu = log_sigmoid(np.asarray(f, dtype=float))
        return rng.beta(np.maximum(mu * self.precision, 1e-300), np.maximum(nu * self.precision, 1e-300))

    def _conditional(self, f: np.ndarray, y: np.ndarray, *further: np.ndarray) -> np.ndarray:
        _, mu, nu = log_sigmoid(f)
        a, b = (np.maximum(part * self.precision, 1e-300) for part in (mu, nu))
        return special(np).betainc(a, b, y)

    def _observed(self, x: np.ndarray) -> np.ndarray:
        return np.clip(log_sigmoid(x)[1], 1e-300, 1.0 - 1e-16)

    def _unobserved(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.log(y) - np.log1p(-y), y * (1.0 - y)


def _successes(y: Array, k: Array, z: Array) -> tuple[Array, Array, Array]:
    """Return y log(σ(z)/s) + k log(σ(-z)/(1 - s)) with s = y/(y + k), and two derivatives in z.

    σ(z) = 1/(1 + exp(-z)). It is taken about s₀ = (y + ½)/(y + k + 1), not 0 or 1: with σ(z₀) = s₀ and x =
    z - z₀, log(σ(z)/s₀) = -log(1 + (1 - s₀)(e^-x - 1)) and log(σ(-z)/(1 - s₀)) = -log(1 + s₀(e^x - 1)).
    """
    xp, total = namespace(z), y + k
    here, there = (y + 0.5) / (total + 1.0), (k + 0.5) / (total + 1.0)
    x = z - xp.log((y + 0.5) / (k + 0.5))
    down, up = xp.minimum(-x, STEEP), xp.minimum(x, STEEP)
    value = -y * (xp.log1p(there * xp.expm1(down)) - (x + down))
    value = value - k * (xp.log1p(here * xp.expm1(up)) + (x - up))
    shift = sum(part * (xp.log1p(0.5 / xp.maximum(part, 1e-300)) - xp.log1p(1.0 / total)) for part in (y, k))
    _, p, q = log_sigmoid(z)
    return value + shift, y * q - k * p, -total * p * q


def _successes_feature(y: Array, k: Array, zero: Array, power: float) -> Feature:
    """Return the bend of `_successes` at z = f - zero, steep on the sides where y or k is not small."""
    if power == 0.0:
        return Feature(zero, np.pi)
    xp, y, k = namespace(y), power * y, power * k
    left, right = (xp.where(part < 1.0, np.inf, 1.0 + 0.0 * y) for part in (y, k))
    y, k = y + 0.5, k + 0.5
    return Feature(zero + xp.log(y / k), 1.5, xp.sqrt((y + k) / (y * k)), left, right)


def _rate(f: np.ndarray, exposure: np.ndarray | None) -> np.ndarray:
    """Return the rate exposure · exp(f), at most 1e18, which counts can be drawn from."""
    f = np.asarray(f, dtype=float)
    rate = exp(f) if exposure is None else exp(f) * np.asarray(exposure, dtype=float).reshape(np.shape(f))
    return np.minimum(rate, 1e18)
