"""Likelihoods of f plus noise: Gaussian, Laplace, Student's t."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...numerics.arrays import Array, namespace
from ...numerics.quadrature import Feature
from ...numerics.special import LOG_2PI, mills, special
from ..kernels.base import positive
from .base import Likelihood


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """y = f + noise of this variance. [004 eq. 5.3]"""

    kind: ClassVar[int | None] = 0
    located: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("variance",)
    log_concave: ClassVar[bool] = True

    variance: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", positive("variance", self.variance, scalar=True))

    def log_density(self, y: Array, f: Array) -> Array:
        f, y = self.split(y, f)
        e = y - f
        return -0.5 * (LOG_2PI + np.log(self.variance) + e * e / self.variance)

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        """p^a is N(y; f, variance/a) up to a constant."""
        xp, e = namespace(mean), y - mean
        log_noise = LOG_2PI + np.log(self.variance)
        if power == 0.0:
            flat = xp.zeros_like(mean)
            return (
                -0.5 * (log_noise + (e * e + var) / self.variance),
                e / self.variance,
                flat - 1 / self.variance,
            )
        total = self.variance / power + var
        constant = 0.5 * ((1.0 - power) * log_noise - np.log(power) - LOG_2PI)
        return constant - 0.5 * (xp.log(total) + e * e / total), e / total, -1.0 / total

    def _parameter_gradient(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        e, noise = y - mean, self.variance
        if power == 0.0:
            return {"variance": 0.5 * ((e * e + var) / noise - 1.0) / noise}
        total = noise + power * var  # times 1/a
        return {"variance": 0.5 * ((1.0 - power) / noise + (power * e * e / total - 1.0) / total)}

    def predict(self, mean: Array, var: Array) -> tuple[Array, Array]:
        return np.asarray(mean), np.asarray(var) + self.variance

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.normal(f, np.sqrt(self.variance))


@dataclass(frozen=True)
class Laplace(Likelihood):
    """exp(-|y - f|/scale)/(2 scale): noise with heavier tails than a Gaussian's."""

    kind: ClassVar[int | None] = 4
    located: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("scale",)
    log_concave: ClassVar[bool] = True

    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive("scale", self.scale, scalar=True))

    def log_density(self, y: Array, f: Array) -> Array:
        f, y = self.split(y, f)
        return -namespace(f, y).abs(y - f) / self.scale - np.log(2.0 * self.scale)

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        constant, rate = -np.log(2.0 * self.scale), 1.0 / self.scale
        return _kinked(y, mean, var, power, constant, rate, rate)[:3]

    def _parameter_gradient(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        rate = 1.0 / self.scale
        below, above = _kinked(y, mean, var, power, 0.0, rate, rate)[3:]
        return {"scale": (power or 1.0) * ((below + above) * rate - 1.0) * rate}

    def safe_site(self, y: Array, mean: Array, var: Array) -> tuple[Array, Array]:
        """τ = ⟨1/variance⟩ where the density is a mixture of Gaussians of exponentially distributed variance, and ν."""
        y, mean, var, _ = self._rows(y, mean, var)
        tau = 1.0 / (self.scale * namespace(mean).sqrt((y - mean) ** 2 + var))
        return tau, tau * y

    def predict(self, mean: Array, var: Array) -> tuple[Array, Array]:
        return np.asarray(mean), np.asarray(var) + 2.0 * self.scale**2

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.laplace(f, self.scale)


def _kinked(
    y: Array, mean: Array, var: Array, power: float, constant: float, up: float, down: float
) -> tuple[Array, ...]:
    """L, q, r, ⟨max(y - f, 0)⟩ and ⟨max(f - y, 0)⟩ of exp(constant - up (y - f)) below y and
    exp(constant - down (f - y)) above.

    With u = mean - y the two sides average to t = exp(κ²v/2 ± κu) Φ(∓u/√v - κ√v), κ = a·up and a·down, with
    shares P and M of the whole, so q = Pκ₁ - Mκ₂ and r = PM(κ₁ + κ₂)² - (κ₁ + κ₂) N(u; 0, v)/(t₁ + t₂). Where v ≫ 1/κ²
    these cancel; the moments of the two cut Gaussians do not.
    """
    xp = namespace(mean)
    s, u = xp.sqrt(var), mean - y
    z = u / s
    log_phi = -0.5 * (z * z + LOG_2PI)
    if power == 0.0:
        ndtr, phi = special(xp).ndtr, xp.exp(log_phi)
        P, M = ndtr(-z), ndtr(z)
        below, above = s * phi - u * P, s * phi + u * M
        return constant - up * below - down * above, up * P - down * M, -(up + down) * phi / s, below, above
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
    wide = s * (up + down) > 20.0
    kept = (
        P * (1.0 - hazards[0] * rests[0])
        + M * (1.0 - hazards[1] * rests[1])
        + P * M * (rests[0] + rests[1]) ** 2
    )
    below, above = P * s * rests[0], M * s * rests[1]
    q = xp.where(wide, (above - below - u) / var, P * up - M * down)
    r = xp.where(wide, (kept - 1.0) / var, P * M * (up + down) ** 2 - (up + down) * density)
    return power * constant + total, q, r, below, above


@dataclass(frozen=True)
class StudentT(Likelihood):
    """Student's t with df degrees of freedom and this scale about f: an outlier's pull fades instead of
    growing.

    Not log-concave: far from the mean r > 0, and an observation can widen the process.
    """

    kind: ClassVar[int | None] = 5
    located: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("df", "scale")

    df: float = 4.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("df", "scale"):
            object.__setattr__(self, name, positive(name, getattr(self, name), scalar=True))

    def log_density(self, y: Array, f: Array) -> Array:
        f, y = self.split(y, f)
        e = (y - f) / self.scale
        return self._constant - 0.5 * (self.df + 1.0) * namespace(e).log1p(e * e / self.df)

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        f, y = self.split(y, f)
        e = (y - f) / self.scale
        square = e * e
        over = (self.df + 1.0) / (self.df + square) / self.scale
        value = self._constant - 0.5 * (self.df + 1.0) * namespace(e).log1p(square / self.df)
        return value, over * e, over * over * (square - self.df) / (self.df + 1.0)

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        from scipy.special import digamma

        f, y = self.split(y, f)
        e = (y - f) / self.scale
        square, df = e * e, self.df
        share = (df + 1.0) * square / (df + square)
        constant = 0.5 * (digamma(0.5 * (df + 1.0)) - digamma(0.5 * df) - 1.0 / df)
        slope = constant - 0.5 * namespace(e).log1p(square / df) + 0.5 * share / df
        return {"df": slope, "scale": (share - 1.0) / self.scale}

    @property
    def _constant(self) -> float:
        from scipy.special import gammaln

        half = 0.5 * self.df
        return float(gammaln(half + 0.5) - gammaln(half) - 0.5 * np.log(np.pi * self.df) - np.log(self.scale))

    def _feature(self, y: Array, power: float) -> Feature:
        return Feature(y, self.scale * np.sqrt(self.df), self.scale / np.sqrt(power or 1.0))

    def safe_site(self, y: Array, mean: Array, var: Array) -> tuple[Array, Array]:
        """τ = ⟨precision⟩ where the density is a mixture of Gaussians of gamma distributed precision, and ν."""
        y, mean, var, _ = self._rows(y, mean, var)
        square = self.scale * self.scale
        tau = (self.df + 1.0) / (self.df * square + (y - mean) ** 2 + var)
        return tau, tau * y

    def predict(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Mean and variance of y; the variance is infinite up to df = 2."""
        noise = self.scale**2 * self.df / (self.df - 2.0) if self.df > 2.0 else np.inf
        return np.asarray(mean), np.asarray(var) + noise

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return f + self.scale * rng.standard_t(self.df, np.shape(f))
