"""Likelihoods of classes: two, or several in an order."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from ...errors import ParameterError
from ...numerics.arrays import Array, asarray_like, namespace
from ...numerics.quadrature import Feature
from ...numerics.special import LOG_2PI, log_sigmoid, mills, special
from .base import LARGEST, Likelihood, number, one_namespace, refuse, scale, within


def given_one(log_odds: np.ndarray) -> np.ndarray:
    """The probability that each of some labels is the only positive one, given that one is. (n, c)"""
    odds = np.exp(log_odds - np.max(log_odds, axis=1, keepdims=True))
    return odds / np.sum(odds, axis=1, keepdims=True)


@dataclass(frozen=True)
class Binary(Likelihood):
    """Two classes, labels -1 and +1, with p(y|f) = p(+1|yf)."""

    def _check_rows(self, y: Array, *further: Array) -> None:
        refuse(y, namespace(y).abs(y) != 1.0, "labels must be -1 or +1, but row {row} has {value:g}")

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        value, q, r = super()._tilted(namespace(y).ones_like(y), y * mean, var, power)
        return value, y * q, r

    def gradient_on_nodes(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        return super().gradient_on_nodes(namespace(y).ones_like(y), y * mean, var, power)

    def probability(self, mean: Array, var: Array) -> Array:
        """⟨p(+1|f)⟩, the probability of the positive class. [004 eq. 5.8]"""
        value = self.log_average(1.0, mean, var)
        return namespace(value).exp(value)

    def probabilities(self, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        """The probability of every class, given f of the second of two or of each of many. (n, classes)

        Many classes have independent labels, class c against the rest with p_c = ⟨p(+1|f_c)⟩, conditioned on
        exactly one of them being positive: P(c) ∝ p_c Π_{j≠c} (1 - p_j) ∝ p_c/(1 - p_c). Scaled to a sum of
        one instead, as is common, the p_c are too flat: ten classes with one at .97 and nine at .03 would
        leave it .78, where this leaves it .99.
        """
        value = self.log_average(1.0, mean, var)
        if value.shape[1] == 1:
            p = np.exp(value)
            return np.hstack([1.0 - p, p])
        return given_one(value - self.log_average(-1.0, mean, var))

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        """Mean and variance of the label."""
        label = 2.0 * self.probability(mean, var) - 1.0
        return label, 1.0 - label * label

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        p = np.exp(self.log_density(1.0, f))
        return np.where(rng.uniform(size=p.shape) < p, 1.0, -1.0)

    def _cumulative(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        return np.where(y < 0.0, self.probability(-mean, var), 1.0)

    def _quantile(self, p: Array, mean: np.ndarray, var: np.ndarray, further: Array | None) -> np.ndarray:
        return np.where(p <= self.probability(-mean, var), -1.0, 1.0)

    def _crps(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        """The square of the other label's probability, integrated over the distance 2 from -1 to 1."""
        return 2.0 * self.probability(y * -mean, var) ** 2


@dataclass(frozen=True)
class Probit(Binary):
    """Φ(y f/√noise): the sign of f after Gaussian noise of this variance. [004 eqs 5.6-5.9]"""

    kind: ClassVar[int | None] = 1
    names: ClassVar[tuple[str, ...]] = ("noise",)
    held: ClassVar[tuple[str, ...]] = ("noise",)  # it and the variance of f are one parameter
    log_concave: ClassVar[bool] = True

    noise: float = 1.0

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

    def value_and_gradient(
        self, y: Array, mean: Array, var: Array, power: float = 1.0
    ) -> tuple[Array, dict[str, Array]]:
        """Only mean/√noise and var/noise count, so the derivative in the noise follows from those in them."""
        value, q, r = self.tilted(y, mean, var, power)
        curve = r if power == 0.0 else r + q * q  # 2 ∂L/∂var
        return value, {"noise": -0.5 * (mean * q + var * curve) / self.noise}

    def gradient_on_nodes(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        return self.value_and_gradient(y, mean, var, power)[1]

    def _feature(self, y: Array, power: float) -> Feature:
        """The place where p(1|f) bends; it is steep on the left."""
        unit = np.sqrt(self.noise)
        return Feature(0.0, 2.8 * unit, left=1.5 * unit if power else np.inf, fine=0.8)


@dataclass(frozen=True)
class Step(Binary):
    """1 - flip where y agrees with the sign of f, else flip, the share of wrong labels. [004 §2.6]"""

    kind: ClassVar[int | None] = 2
    names: ClassVar[tuple[str, ...]] = ("flip",)
    held: ClassVar[tuple[str, ...]] = ("flip",)
    bounds: ClassVar[dict[str, tuple[float, float]]] = {"flip": (0.0, 0.5)}

    flip: float = 0.0

    def __post_init__(self) -> None:
        value = number("flip", self.flip)
        if not 0.0 <= value < 0.5:
            raise ParameterError(f"flip, the share of wrong labels, must lie in [0, 0.5), but is {self.flip}")
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

    def gradient_on_nodes(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        """p^a of either side, differentiated."""
        xp = namespace(mean)
        z, ndtr = y * mean / xp.sqrt(var), special(xp).ndtr
        right, wrong = self._sides(power)
        if self.flip == 0.0:  # the derivative of flip^a there is 1 or infinite
            return {"flip": ndtr(-z) / ndtr(z) - 1.0 if power == 1.0 else xp.full_like(z, np.inf)}
        if power == 0.0:
            return {"flip": ndtr(-z) / self.flip - ndtr(z) / (1.0 - self.flip)}
        value = right * ndtr(z) + wrong * ndtr(-z)
        return {"flip": power * (wrong / self.flip * ndtr(-z) - right / (1.0 - self.flip) * ndtr(z)) / value}

    def _sides(self, power: float) -> tuple[float, float]:
        """p^a, or log p for a = 0, where the label is right and where it is wrong."""
        if power > 0.0:
            return (1.0 - self.flip) ** power, self.flip**power
        if self.flip == 0.0:
            raise ParameterError("log p of a Step without flips has no average; use flip > 0 or a power")
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
        return xp.minimum(z, 0.0) - xp.log1p(xp.exp(-xp.abs(z)))

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        f, y = self.split(y, f)
        value, p, slack = log_sigmoid(y * f)
        return value, y * slack, -p * slack

    def _feature(self, y: Array, power: float) -> Feature:
        return Feature(0.0, np.pi)


@dataclass(frozen=True)
class Ordinal(Likelihood):
    """Classes 0, 1, …, c - 1 in an order: the number of thresholds that f lies above after Gaussian noise.

    The first of the c - 1 thresholds is `threshold`, and the others follow in `gaps` (c - 2,).
    """

    held: ClassVar[tuple[str, ...]] = ("noise",)  # it and the variance of f are one parameter
    bounds: ClassVar[dict[str, tuple[float, float]]] = {"threshold": (-np.inf, np.inf)}
    log_concave: ClassVar[bool] = True

    threshold: float = 0.0
    gaps: tuple[float, ...] = (1.0,)
    noise: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", within("threshold", self.threshold, -LARGEST, LARGEST))
        gaps = tuple(scale("gaps", gap) for gap in np.atleast_1d(np.asarray(self.gaps, dtype=object)))
        object.__setattr__(self, "gaps", gaps)
        object.__setattr__(self, "noise", scale("noise", self.noise, 2))
        object.__setattr__(self, "names", tuple(self.parameters))

    @property
    def parameters(self) -> dict[str, float]:
        gaps = {f"gap{i}": gap for i, gap in enumerate(self.gaps, 1)}
        return {"threshold": self.threshold, **gaps, "noise": self.noise}

    def _replaced(self, values: Mapping[str, float]) -> "Ordinal":
        threshold, *gaps, noise = (self.parameters | dict(values)).values()
        return Ordinal(threshold, tuple(gaps), noise)

    @property
    def thresholds(self) -> np.ndarray:
        """Between the classes. (c - 1,)"""
        return self.threshold + np.concatenate([[0.0], np.cumsum(self.gaps)])

    def _check_rows(self, y: Array, *further: Array) -> None:
        check_classes(y, len(self.gaps) + 1)

    def _ends(self, y: Array) -> tuple[Array, Array, Array]:
        """The thresholds below and above each class, ±LARGEST where there is none, and their distance."""
        ends = asarray_like(np.concatenate([[-LARGEST], self.thresholds, [LARGEST]]), y)
        widths = asarray_like(np.concatenate([[2.0 * LARGEST], self.gaps, [2.0 * LARGEST]]), y)
        index = y.astype(int) if hasattr(y, "astype") else y.long()
        return ends[index], ends[index + 1], widths[index]

    def _parts(self, y: Array, f: Array, noise: Array | float) -> tuple[Array, ...]:
        """log p; where the thresholds a and b are from f in units of √noise, and how far the nearer is away;
        their distance; and the density over p at either.

        p = Φ(b) - Φ(a) is taken where Φ is not close to 1, from log Φ(low) - log Φ(high), which is a product
        of differences beside a ratio of hazards.
        """
        xp, unit = namespace(f), noise**0.5
        a, b, width = self._ends(y)
        a, b, width = (a - f) / unit, (b - f) / unit, width / unit + 0.0 * f
        flip = a + b > 0.0
        low, high = xp.where(flip, -b, a), xp.where(flip, -a, b)
        log_low, hazard_low, _ = mills(low)
        log_high, hazard_high, _ = mills(high)

        ratio = xp.maximum(hazard_high, 1e-300) / xp.maximum(hazard_low, 1e-300)
        tilt = 0.5 * width * (low + high) + xp.log(ratio)
        tilt = xp.minimum(xp.where(high < 0.0, tilt, log_low - log_high), -1e-300)
        inside = -xp.expm1(tilt)
        at_high, at_low = hazard_high / inside, hazard_low * xp.exp(tilt) / inside
        value = log_high + xp.log(inside)
        return value, a, b, -high, width, xp.where(flip, at_high, at_low), xp.where(flip, at_low, at_high)

    def _slopes(self, y: Array, f: Array, noise: Array | float) -> tuple[Array, Array, Array]:
        """p of a narrow class is a Gaussian density; far from it the part inside is exponential."""
        xp, unit = namespace(f), noise**0.5
        value, a, b, away, width, at_a, at_b = self._parts(y, f, noise)
        middle = 0.5 * (a + b)
        narrow = width * (1.0 + xp.abs(middle)) < 1e-5
        value = xp.where(narrow, xp.log(width) - 0.5 * (middle * middle + LOG_2PI), value)
        slope = xp.where(narrow, middle, at_a - at_b)
        bend = a * at_a - b * at_b - (at_a - at_b) ** 2
        bend = xp.where(narrow, -1.0, xp.where(away > 1e4, -1.0 + 1.0 / away**2, bend))
        return value, slope / unit, xp.minimum(bend, 0.0) / noise

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        f, y = self.split(y, f)
        return self._slopes(y, f, self.noise)

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        if power != 1.0:
            return super()._tilted(y, mean, var, power)
        return self._slopes(y, mean, self.noise + var)

    def _ends_gradient(self, y: Array, f: Array, noise: Array | float) -> list[Array]:
        """The derivatives of log p in the thresholds below and above, and in the noise."""
        _, a, b, _, _, at_a, at_b = self._parts(y, f, noise)
        return [-at_a / noise**0.5, at_b / noise**0.5, 0.5 * (a * at_a - b * at_b) / noise]

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        f, y = self.split(y, f)
        return self._gradient(y, *self._ends_gradient(y, f, self.noise))

    def gradient_on_nodes(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        if power == 1.0:
            return self._gradient(y, *self._ends_gradient(y, mean, self.noise + var))
        parts = self._averages(y, mean, var, power, lambda y, f: self._ends_gradient(y, f, self.noise), 3)
        return self._gradient(y, *((power or 1.0) * part for part in parts))

    def _gradient(self, y: Array, below: Array, above: Array, noise: Array) -> dict[str, Array]:
        """A gap moves every threshold above it: those below class y > gap and above class y ≥ gap."""
        numbers = range(1, len(self.gaps) + 1)
        gaps = {f"gap{i}": below * (y > float(i)) + above * (y >= float(i)) for i in numbers}
        return {"threshold": below + above, **gaps, "noise": noise}

    def _feature(self, y: Array, power: float) -> Feature:
        xp, unit = namespace(y), float(np.sqrt(self.noise))
        low, high, _ = self._ends(y)
        first, last = low <= -LARGEST, high >= LARGEST
        centre = xp.where(first, high, xp.where(last, low, 0.5 * (low + high)))
        wide = (~first) & (~last) & (high - low > 2.0 * unit)
        steep = xp.where(wide | (power > 0.0), 1.5 * unit + 0.0 * y, np.inf)
        left, right = (xp.where(open_ended, np.inf, steep) for open_ended in (first, last))
        return Feature(centre, 2.8 * unit, left=left, right=right)

    def probabilities(self, mean: Array, var: Array) -> Array:
        """The probability of every class. (n, c)"""
        mean, var = one_namespace(mean, var)
        classes = asarray_like(np.arange(len(self.gaps) + 2), mean)
        value = self.log_average(classes, mean[..., None], var[..., None])
        return namespace(value).exp(value)

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        """Mean and variance of the number of the class."""
        return class_moments(self.probabilities(mean, var))

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        seen = rng.normal(f, np.sqrt(self.noise))
        return np.searchsorted(self.thresholds, seen).astype(float)

    def _cumulative(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        return special(np).ndtr((self._ends(y)[1] - mean) / np.sqrt(self.noise + var))

    def _quantile(self, p: Array, mean: np.ndarray, var: np.ndarray, further: Array | None) -> np.ndarray:
        z = (self.thresholds - mean[:, None]) / np.sqrt(self.noise + var)[:, None]
        return np.sum(special(np).ndtr(z) < p[:, None], axis=1).astype(float)

    def _crps(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        return ranked_score(self.probabilities(mean, var), y)


def check_classes(y: Array, last: int) -> None:
    """Raise if a row is no class 0, 1, …, last."""
    wrong = (y < 0) | (y > last) | (y != namespace(y).floor(y))
    refuse(y, wrong, f"classes must be whole numbers from 0 to {last}, but row {{row}} has {{value:g}}")


def class_moments(p: Array) -> tuple[Array, Array]:
    """Mean and variance of the number of a class with probabilities p (…, c)."""
    xp, classes = namespace(p), asarray_like(np.arange(p.shape[-1]), p)
    average = xp.sum(p * classes, axis=-1)
    return average, xp.sum(p * (classes - average[..., None]) ** 2, axis=-1)


def ranked_score(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The ranked probability score of classes y = 0, 1, … with probabilities p (n, c). (n,)"""
    return np.sum((np.cumsum(p, axis=1) - (y[:, None] <= np.arange(p.shape[1])))[:, :-1] ** 2, axis=1)
