"""Likelihoods of f plus noise with heavy tails: each is a mixture of Gaussians of different scales.

`safe_site(y, mean, var)` is (τ, ν) of the site from a variational update of the scale at f ~ N(mean, var).
Its τ is never negative, so it can stand in where the likelihood's own site has a negative one.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from ...numerics.arrays import Array, namespace
from ...numerics.quadrature import ENTRIES, FAR, Feature
from ...numerics.ranked import crps_of_gaussians
from ...numerics.special import LOG_2PI, log_sigmoid, mills, special, stirling
from ...numerics.workers import row_slices
from .base import LARGEST, Likelihood, exp, one_namespace
from .noise import LogVariance

FEWEST_DF = 0.5  # from which `mixture` serves: with fewer its weights reach too far


@dataclass(frozen=True)
class Kinked(Likelihood):
    """exp(constant - up·(y - f)) where y is above f, exp(constant - down·(f - y)) where it is below."""

    located: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("scale",)
    log_concave: ClassVar[bool] = True

    scale: float = 1.0

    @property
    def rates(self) -> tuple[float, float, float]:
        """The numbers constant, up and down."""
        raise NotImplementedError

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        """Return log p and its slopes, but 0 for the second derivative -∞ at f = y."""
        f, y = self.split(y, f)
        constant, up, down = self.rates
        e = y - f
        slope = namespace(e).where(e > 0.0, up + 0.0 * e, -down)
        return constant - slope * e, slope, 0.0 * e

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        return _kinked(y, mean, var, power, *self.rates)[:3]

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        f, y = self.split(y, f)
        xp = namespace(f, y)
        return self._gradient(xp.maximum(y - f, 0.0), xp.maximum(f - y, 0.0))

    def gradient_on_nodes(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        above, below = _kinked(y, mean, var, power, *self.rates)[3:5]
        return {name: (power or 1.0) * part for name, part in self._gradient(above, below).items()}

    def _gradient(self, above: Array, below: Array) -> dict[str, Array]:
        """Return the derivatives of log p in the parameters from max(y - f, 0) and max(f - y, 0)."""
        _, up, down = self.rates
        return {"scale": (up * above + down * below - 1.0) / self.scale}

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        """Return mean and variance of y; the noise is a difference of exponential variables."""
        mean, var = one_namespace(mean, var)
        _, up, down = self.rates
        return mean + (1.0 / up - 1.0 / down), var + 1.0 / up**2 + 1.0 / down**2

    def safe_site(self, y: Array, mean: Array, var: Array) -> tuple[Array, Array]:
        """Return the site, by -log p = (up + down)/2 |e| + (up - down)/2 e: a Laplace density and a slope."""
        y, mean, var, _ = self._rows(y, mean, var)
        _, up, down = self.rates
        tau = 0.5 * (up + down) / namespace(mean).sqrt((y - mean) ** 2 + var)
        return tau, tau * y + 0.5 * (up - down)

    def _cumulative(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        constant, up, down = self.rates
        value, _, _, _, _, P, M = _kinked(y, mean, var, 1.0, *self.rates)
        density = np.exp(value)
        return special(np).ndtr((y - mean) / np.sqrt(var)) - density * (P / up - M / down)


@dataclass(frozen=True)
class Laplace(Kinked):
    """exp(-|y - f|/scale)/(2 scale): noise with heavier tails than a Gaussian's."""

    kind: ClassVar[int | None] = 4

    @property
    def rates(self) -> tuple[float, float, float]:
        return -float(np.log(2.0 * self.scale)), 1.0 / self.scale, 1.0 / self.scale

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        return rng.laplace(f, self.scale)


@dataclass(frozen=True)
class AsymmetricLaplace(Kinked):
    """level(1 - level)/scale · exp(-ρ((y - f)/scale)), ρ(e) being level·e above 0 and (level - 1)·e below, so
    that f is the quantile of y at this level.
    """

    names: ClassVar[tuple[str, ...]] = ("scale", "level")
    held: ClassVar[tuple[str, ...]] = ("level",)
    bounds: ClassVar[dict[str, tuple[float, float]]] = {"level": (0.0, 1.0)}

    level: float = 0.5

    @property
    def rates(self) -> tuple[float, float, float]:
        level, unit = self.level, 1.0 / self.scale
        return float(np.log(level * (1.0 - level) * unit)), level * unit, (1.0 - level) * unit

    def _gradient(self, above: Array, below: Array) -> dict[str, Array]:
        level = 1.0 / self.level - 1.0 / (1.0 - self.level) - (above - below) / self.scale
        return super()._gradient(above, below) | {"level": level}

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        _, up, down = self.rates
        return f + rng.exponential(1.0 / up, np.shape(f)) - rng.exponential(1.0 / down, np.shape(f))


def _kinked(
    y: Array, mean: Array, var: Array, power: float, constant: float, up: float, down: float
) -> tuple[Array, ...]:
    """Return L, q, r, ⟨max(y - f, 0)⟩, ⟨max(f - y, 0)⟩, and the shares P and M of f < y and of f > y.

    With u = mean - y the parts average to t = exp(κ²v/2 ± κu) Φ(∓u/√v - κ√v), κ = a·up and a·down. Then
    q = Pκ₁ - Mκ₂ and r = PM(κ₁ + κ₂)² - (κ₁ + κ₂) N(u; 0, v)/(t₁ + t₂). Where v ≫ 1/κ² these cancel; the
    moments of the two cut Gaussians do not.
    """
    xp = namespace(mean)
    s, u = xp.sqrt(var), mean - y
    z = u / s
    log_phi = -0.5 * (xp.clip(z, -LARGEST, LARGEST) ** 2 + LOG_2PI)
    if power == 0.0:
        phi, P, M = xp.exp(log_phi), special(xp).ndtr(-z), special(xp).ndtr(z)
        above, below = s * phi - u * P, s * phi + u * M
        value = constant - up * above - down * below
        return value, up * P - down * M, -(up + down) * phi / s, above, below, P, M
    up, down = power * up, power * down
    logs, hazards, rests = [], [], []
    for rate, side in ((up, -z), (down, z)):
        x = side - rate * s
        log_cdf, h, rest = mills(x)
        near = log_phi - xp.log(xp.maximum(h, 1e-300))  # log t where the square of x cancels
        logs.append(xp.where(x < 0.0, near, log_cdf + rate * s * (0.5 * rate * s - side)))
        hazards.append(h)
        rests.append(rest)
    total = xp.logaddexp(*logs)
    P, M = (xp.exp(part - total) for part in logs)
    density = xp.exp(log_phi - total) / s
    kept = 1.0 - P * hazards[0] * rests[0] - M * hazards[1] * rests[1] + P * M * (rests[0] + rests[1]) ** 2
    above, below = P * s * rests[0], M * s * rests[1]
    wide = s * (up + down) > 20.0
    q = xp.where(wide, (below - above - u) / var, P * up - M * down)
    r = xp.where(wide, (xp.maximum(kept, 0.0) - 1.0) / var, P * M * (up + down) ** 2 - (up + down) * density)
    return power * constant + total, q, r, above, below, P, M


@dataclass(frozen=True)
class StudentT(Likelihood):
    """f + Student's t noise with df degrees of freedom and this scale: far outliers pull less. It is not
    log-concave: far from the mean r > 0, and an observation can widen the process.
    """

    located: ClassVar[bool] = True
    kind: ClassVar[int | None] = 5
    names: ClassVar[tuple[str, ...]] = ("df", "scale")

    df: float = 4.0
    scale: float = 1.0

    @property
    def _constant(self) -> float:
        """log Γ((df + 1)/2) - log Γ(df/2) - log √(π df) - log scale, by the rest of Stirling's formula."""
        half = 0.5 * self.df
        rest = stirling(np.array([half, half + 0.5]))
        log_ratio = (half - 1.0) * np.log1p(0.5 / half) + 0.5 * np.log(half + 0.5) - 0.5 + rest[0] - rest[1]
        return float(log_ratio - 0.5 * np.log(np.pi * self.df) - np.log(self.scale))

    def _error(self, y: Array, f: Array) -> Array:
        """Return (y - f)/scale, clipped so that it can be squared."""
        f, y = self.split(y, f)
        return namespace(f, y).clip((y - f) / self.scale, -LARGEST, LARGEST)

    def log_density(self, y: Array, f: Array) -> Array:
        e = self._error(y, f)
        return self._constant - 0.5 * (self.df + 1.0) * namespace(e).log1p(e * e / self.df)

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        e = self._error(y, f)
        square = e * e
        value = self._constant - 0.5 * (self.df + 1.0) * namespace(e).log1p(square / self.df)
        over = 1.0 / (self.df + square)
        slope = (self.df + 1.0) / self.scale * over * e
        return value, slope, (self.df + 1.0) / self.scale**2 * over * (1.0 - 2.0 * self.df * over)

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        e, df = self._error(y, f), self.df
        square = e * e
        share = (df + 1.0) * square / (df + square)
        constant = 0.5 * float(special(np).digamma(0.5 * df + 0.5) - special(np).digamma(0.5 * df) - 1.0 / df)
        slope = constant - 0.5 * namespace(e).log1p(square / df) + 0.5 * share / df
        return {"df": slope, "scale": (share - 1.0) / self.scale}

    def _feature(self, y: Array, power: float) -> Feature:
        return Feature(y, self.scale * np.sqrt(self.df), self.scale / np.sqrt(power or 1.0))

    def safe_site(self, y: Array, mean: Array, var: Array) -> tuple[Array, Array]:
        """Return the site; the precisions of the mixture are gamma distributed."""
        y, mean, var, _ = self._rows(y, mean, var)
        tau = (self.df + 1.0) / (self.df * self.scale**2 + (y - mean) ** 2 + var)
        return tau, tau * y

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        """Return mean and variance of y; the variance is infinite up to df = 2."""
        mean, var = one_namespace(mean, var)
        return mean, var + (self.scale**2 * self.df / (self.df - 2.0) if self.df > 2.0 else np.inf)

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        return f + self.scale * rng.standard_t(self.df, np.shape(f))

    def mixture(self) -> tuple[np.ndarray, np.ndarray]:
        """Return variances and weights of Gaussians whose mixture this is: the trapezoidal rule in the log of
        their precision, which is gamma distributed. (k,) each
        """
        half = 0.5 * self.df
        low, high = -1.0 - FAR / half, np.log(2.0 + FAR / half)  # where nothing is left of the density
        wide = FAR * max(half**-0.5, 1.0 / half)  # or, for a large df, of a Gaussian of variance 2/df
        low, high = max(low, -wide), min(high, wide)
        x = np.linspace(low, high, int(np.ceil((high - low) / min(0.3, 0.5 * half**-0.5))) + 1)
        weight = np.exp(half * (x - np.expm1(x)))
        return self.scale**2 * np.exp(-x), weight / np.sum(weight)

    def _cumulative(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        if self.df < FEWEST_DF:
            return super()._cumulative(y, mean, var)
        variances, weight = self.mixture()
        below = [
            special(np).ndtr((y - mean)[s, None] / np.sqrt(var[s, None] + variances)) @ weight
            for s in row_slices(len(y), max(ENTRIES[0] // len(weight), 1))
        ]
        return np.concatenate([*below, np.empty(0)])

    def _conditional(self, f: np.ndarray, y: np.ndarray, *further: np.ndarray) -> np.ndarray:
        return special(np).stdtr(self.df, (y - f) / self.scale)


@dataclass(frozen=True)
class LogScaleT(LogVariance):
    """An error with Student's t distribution, df degrees of freedom and squared scale known + exp(f)."""

    names: ClassVar[tuple[str, ...]] = ("df",)

    df: float = 4.0

    def _of_ratio(self, ratio: Array) -> tuple[Array, Array, Array]:
        share = (self.df + 1.0) / (self.df + ratio) * ratio
        value = StudentT(self.df, 1.0).log_density(namespace(ratio).sqrt(ratio), 0.0 * ratio)
        return value, share, share * self.df / (self.df + ratio)

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        f, y, known = self.split(y, f)
        error = y / namespace(f, y).sqrt(known + exp(f))
        return {"df": StudentT(self.df, 1.0).log_density_gradient(error, 0.0 * error)["df"]}


@dataclass(frozen=True)
class Contaminated(Likelihood):
    """f + Gaussian noise of this variance, or `inflation` times that variance in a share of the rows."""

    located: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("variance", "share", "inflation")
    held: ClassVar[tuple[str, ...]] = ("inflation",)
    bounds: ClassVar[dict[str, tuple[float, float]]] = {"share": (0.0, 1.0), "inflation": (1.0, np.inf)}

    variance: float = 1.0
    share: float = 0.05
    inflation: float = 100.0

    def _parts(self, square: Array, var: Array | float) -> tuple[Array, list[tuple[Array, Array]]]:
        """Return log p, and the posterior share and the precision of either Gaussian, widened by var."""
        xp = namespace(square)
        widths = self.variance, self.inflation * self.variance
        a, b = (1.0 / (width + var) + 0.0 * square for width in widths)
        odds = float(np.log(self.share / (1.0 - self.share))) + 0.5 * (xp.log(b / a) + square * (a - b))
        log_one, one, two = log_sigmoid(-odds)
        value = float(np.log1p(-self.share)) - 0.5 * (LOG_2PI - xp.log(a) + square * a) - log_one
        return value, [(one, a), (two, b)]

    def _slopes(self, e: Array, var: Array | float) -> tuple[Array, Array, Array]:
        value, parts = self._parts(e * e, var)
        (one, a), (two, b) = parts
        slope = (one * a + two * b) * e
        return value, slope, one * two * ((a - b) * e) ** 2 - one * a - two * b

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        f, y = self.split(y, f)
        return self._slopes(y - f, 0.0)

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        f, y = self.split(y, f)
        return self._gradient(y - f, 0.0)

    def _gradient(self, e: Array, var: Array | float) -> dict[str, Array]:
        _, parts = self._parts(e * e, var)
        (one, a), (two, b) = parts
        d_one, d_two = (0.5 * part * p * (e * e * p - 1.0) for part, p in parts)  # in their variances
        return {
            "variance": d_one + self.inflation * d_two,
            "share": two / self.share - one / (1.0 - self.share),
            "inflation": self.variance * d_two,
        }

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        return self._slopes(y - mean, var) if power == 1.0 else super()._tilted(y, mean, var, power)

    def gradient_on_nodes(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        if power == 1.0:
            return self._gradient(y - mean, var)
        return super().gradient_on_nodes(y, mean, var, power)

    def _feature(self, y: Array, power: float) -> Feature:
        """Return where log p bends: near e² = 2 variance (log odds + iπ), where the Gaussians cancel."""
        odds = np.log((1.0 - self.share) / self.share) + 0.5 * np.log(self.inflation)
        unit = np.sqrt(2.0 * self.variance / (1.0 - 1.0 / self.inflation))
        cross = unit * np.sqrt(odds + 1j * np.pi)
        peak, width = np.sqrt(self.variance / (power or 1.0)), abs(cross.imag)
        return Feature(y, width, peak, fine=min(1.0, 1.4 * width / (abs(cross.real) + width)))

    def safe_site(self, y: Array, mean: Array, var: Array) -> tuple[Array, Array]:
        """Return the site, from the mean precision of the two Gaussians."""
        y, mean, var, _ = self._rows(y, mean, var)
        _, parts = self._parts((y - mean) ** 2 + var, 0.0)
        tau = sum(share * precision for share, precision in parts)
        return tau, tau * y

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        mean, var = one_namespace(mean, var)
        return mean, var + self.variance * (1.0 + self.share * (self.inflation - 1.0))

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        wide = np.where(rng.uniform(size=np.shape(f)) < self.share, self.inflation, 1.0)
        return rng.normal(f, np.sqrt(wide * self.variance))

    def _cumulative(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        narrow = special(np).ndtr((y - mean) / np.sqrt(var + self.variance))
        wide = special(np).ndtr((y - mean) / np.sqrt(var + self.inflation * self.variance))
        return (1.0 - self.share) * narrow + self.share * wide

    def _crps(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        variances = var[:, None] + self.variance * np.array([1.0, self.inflation])
        return crps_of_gaussians(y - mean, variances, np.array([1.0 - self.share, self.share]))
