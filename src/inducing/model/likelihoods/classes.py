"""Likelihoods of two classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...errors import ParameterError
from ...numerics.arrays import Array, namespace
from ...numerics.quadrature import Feature
from ...numerics.special import mills, special
from ..kernels.base import positive
from .base import Likelihood, number, refuse


@dataclass(frozen=True)
class Binary(Likelihood):
    """Two classes, labels -1 and +1, with p(y|f) = p(+1|yf)."""

    def _check_rows(self, y: Array, *further: Array) -> None:
        refuse(y, namespace(y).abs(y) != 1.0, "labels must be -1 or +1, but row {row} has {value:g}")

    def probability(self, mean: Array, var: Array) -> Array:
        """⟨p(+1|f)⟩, the probability of the positive class. [004 eq. 5.8]"""
        value = self.log_average(1.0, mean, var)
        return namespace(value).exp(value)


@dataclass(frozen=True)
class Probit(Binary):
    """Φ(y f/√noise): the sign of f after Gaussian noise of this variance. [004 eqs 5.6-5.9]"""

    kind: ClassVar[int | None] = 1
    names: ClassVar[tuple[str, ...]] = ("noise",)
    held: ClassVar[tuple[str, ...]] = ("noise",)  # it and the variance of f are one parameter
    log_concave: ClassVar[bool] = True

    noise: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", positive("noise", self.noise, scalar=True))

    def log_density(self, y: Array, f: Array) -> Array:
        f, y = self.split(y, f)
        z = y * f / np.sqrt(self.noise)
        return special(namespace(z)).log_ndtr(z)

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        f, y = self.split(y, f)
        value, h, rest = mills(y * f / np.sqrt(self.noise))
        return value, y * h / np.sqrt(self.noise), -h * rest / self.noise

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        f, y = self.split(y, f)
        z = y * f / np.sqrt(self.noise)
        return {"noise": -0.5 * z * mills(z)[1] / self.noise}

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        """Φ(f/√noise) averages to Φ(z), z = mean/√(noise + var). [004 eqs 5.8-5.9]"""
        if power != 1.0:
            return super()._tilted(y, mean, var, power)
        total = self.noise + var
        scale = namespace(mean).sqrt(total)
        value, h, rest = mills(y * mean / scale)
        return value, y * h / scale, -h * rest / total

    def _parameter_gradient(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        if power != 1.0:
            return super()._parameter_gradient(y, mean, var, power)
        z = y * mean / namespace(mean).sqrt(self.noise + var)
        return {"noise": -0.5 * z * mills(z)[1] / (self.noise + var)}

    def _feature(self, y: Array, power: float) -> Feature:
        return Feature(namespace(y).zeros_like(y), 2.0 * np.sqrt(self.noise))


@dataclass(frozen=True)
class Step(Binary):
    """1 - flip where y agrees with the sign of f, else flip: noiseless classes with a share of wrong labels.
    [004 §2.6]
    """

    kind: ClassVar[int | None] = 2
    names: ClassVar[tuple[str, ...]] = ("flip",)
    held: ClassVar[tuple[str, ...]] = ("flip",)
    bounds: ClassVar[dict[str, tuple[float, float]]] = {"flip": (0.0, 0.5)}

    flip: float = 0.0

    def __post_init__(self) -> None:
        value = number("flip", self.flip)
        if not 0.0 <= value < 0.5:
            raise ParameterError(
                f"flip is the share of wrong labels and must lie in [0, 0.5), but is {self.flip}"
            )
        object.__setattr__(self, "flip", value)

    def log_density(self, y: Array, f: Array) -> Array:
        f, y = self.split(y, f)
        wrong = np.log(self.flip) if self.flip else -np.inf
        return namespace(f, y).where(y * f > 0, np.log1p(-self.flip), wrong)

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        """right Φ(z) + wrong Φ(-z), z = y mean/√var, of p^a or of log p on either side."""
        xp, scale = namespace(mean), namespace(mean).sqrt(var)
        z = y * mean / scale
        if self.flip == 0.0 and power > 0.0:
            value, h, rest = mills(z)
            return value, y * h / scale, -h * rest / var
        right, wrong = self._sides(power)
        ndtr, phi = special(xp).ndtr, xp.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
        value = xp.where(z > 0.0, right - (right - wrong) * ndtr(-z), wrong + (right - wrong) * ndtr(z))
        slope = (right - wrong) * phi
        if power == 0.0:
            return value, y * slope / scale, -z * slope / var
        slope = slope / value
        return xp.log(value), y * slope / scale, -slope * (z + slope) / var

    def _parameter_gradient(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        """p^a of either side, differentiated."""
        xp = namespace(mean)
        if self.flip == 0.0:
            raise ParameterError("a Step without flips has no derivative in flip; begin with flip > 0")
        z, ndtr = y * mean / xp.sqrt(var), special(xp).ndtr
        right, wrong = self._sides(power)
        if power == 0.0:
            return {"flip": ndtr(-z) / self.flip - ndtr(z) / (1.0 - self.flip)}
        value = right * ndtr(z) + wrong * ndtr(-z)
        return {"flip": power * (wrong / self.flip * ndtr(-z) - right / (1.0 - self.flip) * ndtr(z)) / value}

    def _sides(self, power: float) -> tuple[float, float]:
        """p^a, or log p for a = 0, where the label is right and where it is wrong."""
        if power > 0.0:
            return (1.0 - self.flip) ** power, self.flip**power
        if self.flip == 0.0:
            raise ParameterError(
                "the log density of a Step without flips has no average; use flip > 0 or a power"
            )
        return float(np.log1p(-self.flip)), float(np.log(self.flip))


@dataclass(frozen=True)
class Logistic(Binary):
    """1/(1 + exp(-y f))."""

    kind: ClassVar[int | None] = 3
    log_concave: ClassVar[bool] = True

    def log_density(self, y: Array, f: Array) -> Array:
        f, y = self.split(y, f)
        z = y * f
        xp = namespace(z)
        return xp.where(z < 0.0, z, 0.0) - xp.log1p(xp.exp(-xp.abs(z)))

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        f, y = self.split(y, f)
        z = y * f
        xp = namespace(z)
        low = xp.clip(z, -700.0, 0.0)
        below = xp.exp(low)
        e = below * xp.exp(low - z)  # exp(-|z|)
        slack = e / (below * (1.0 + e))  # 1 - p
        return low - xp.log1p(e), y * slack, -slack * (1.0 - slack)

    def _feature(self, y: Array, power: float) -> Feature:
        return Feature(namespace(y).zeros_like(y), np.pi)
