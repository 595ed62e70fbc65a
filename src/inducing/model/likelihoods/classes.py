"""Likelihoods of two classes, and of several ordered ones."""

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
    """Return the probability of each label to be the only positive one, from their log odds. (n, c)"""
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
        """Return ⟨p(+1|f)⟩, the probability of the positive class. [004 eq. 5.8]"""
        value = self.log_average(1.0, mean, var)
        return namespace(value).exp(value)

    def probabilities(self, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        """Return the probability of each class, given f of the second of two or of all of many. (n, classes)

        Many classes have independent labels, class c against the rest with p_c = ⟨p(+1|f_c)⟩, just one of
        them positive: P(c) ∝ p_c Π_{j≠c} (1 - p_j) ∝ p_c/(1 - p_c). The usual p_c/Σ p_j would be too flat:
        with ten classes, one p_c at .97 and nine at .03, it gives the first .78 where this gives .99.
        """
        value = self.log_average(1.0, mean, var)
        if value.shape[1] == 1:
            p = np.exp(value)
            return np.hstack([1.0 - p, p])
        return given_one(value - self.log_average(-1.0, mean, var))

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        """Return mean and variance of the label."""
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
        """Return the squared probability of the other label, integrated from -1 to 1."""
        return 2.0 * self.probability(y * -mean, var) ** 2


@dataclass(frozen=True)
class Probit(Binary):
    """Φ(y f/√noise): y is the sign of f plus Gaussian noise of this variance. [004 eqs 5.6-5.9]"""

    kind: ClassVar[int | None] = 1
    names: ClassVar[tuple[str, ...]] = ("noise",)
    held: ClassVar[tuple[str, ...]] = ("noise",)  # only its ratio to the variance of f counts
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
        """Use that the average of Φ(f/√noise) is Φ(mean/√(noise + var)). [004 eqs 5.8-5.9]"""
        if power != 1.0:
            return super()._tilted(y, mean, var, power)
        total = self.noise + var
        scale = namespace(mean).sqrt(total)
        value, h, rest = mills(y * mean / scale)
        return value, y * h / scale, -h * rest / total

    def value_and_gradient(
        self, y: Array, mean: Array, var: Array, power: float = 1.0
    ) -> tuple[Array, dict[str, Array]]:
        """Use that L is a function of mean/√noise and var/noise: its other derivatives give that in noise."""
        value, q, r = self.tilted(y, mean, var, power)
        curve = r if power == 0.0 else r + q * q  # 2 ∂L/∂var
        return value, {"noise": -0.5 * (mean * q + var * curve) / self.noise}

    def gradient_on_nodes(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        return self.value_and_gradient(y, mean, var, power)[1]

    def _feature(self, y: Array, power: float) -> Feature:
        """Return where p(1|f) bends; it is steep on the left."""
        unit = np.sqrt(self.noise)
        return Feature(0.0, 2.8 * unit, left=1.5 * unit if power else np.inf, fine=0.8)


@dataclass(frozen=True)
class Step(Binary):
    """1 - flip where y has the sign of f, else flip, which is the share of wrong labels. [004 §2.6]"""

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
        """Use the average right Φ(z) + wrong Φ(-z), z = y mean/√var, where right and wrong are `_sides`."""
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
        """Return the derivative of the average of p^a, or log p, in flip."""
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
        """Return p^a, or log p for a = 0, where the label is right and where it is wrong."""
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
    """Ordered classes 0, 1, …, c - 1: the number of thresholds below f plus Gaussian noise.

    The first of the c - 1 thresholds is `threshold`; `gaps` (c - 2,) are the distances to the next ones.
    """

    held: ClassVar[tuple[str, ...]] = ("noise",)  # only its ratio to the variance of f counts
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
        """The thresholds between the classes. (c - 1,)"""
        return self.threshold + np.concatenate([[0.0], np.cumsum(self.gaps)])

    def _check_rows(self, y: Array, *further: Array) -> None:
        check_classes(y, len(self.gaps) + 1)

    def _ends(self, y: Array) -> tuple[Array, Array, Array]:
        """Return the thresholds below and above each class, ±LARGEST if there is none, and their distance."""
        ends = asarray_like(np.concatenate([[-LARGEST], self.thresholds, [LARGEST]]), y)
        widths = asarray_like(np.concatenate([[2.0 * LARGEST], self.gaps, [2.0 * LARGEST]]), y)
        index = y.astype(int) if hasattr(y, "astype") else y.long()
        return ends[index], ends[index + 1], widths[index]

    def _parts(self, y: Array, f: Array, noise: Array | float) -> tuple[Array, ...]:
        """Return log p; in units of √noise the thresholds a and b less f, the distance of the nearer if f is
        outside, and b - a; and the normal density over p at a and at b.

        p = Φ(b) - Φ(a), in the tail where Φ is not close to 1, comes from log Φ(low) - log Φ(high), which
        differences of squares and a ratio of hazards give without loss of digits.
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
        """Return log p and two derivatives in f, by their limits for narrow classes and for f far away."""
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
        """Return the derivatives of log p in the thresholds below and above, and in the noise."""
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
        """Return the gradient by name: gap i moves the threshold below y if y > i, and above if y ≥ i."""
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
        """Return the probability of every class. (n, c)"""
        mean, var = one_namespace(mean, var)
        classes = asarray_like(np.arange(len(self.gaps) + 2), mean)
        value = self.log_average(classes, mean[..., None], var[..., None])
        return namespace(value).exp(value)

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        """Return mean and variance of the number of the class."""
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
    """Raise if a row is not one of the classes 0, 1, …, last."""
    wrong = (y < 0) | (y > last) | (y != namespace(y).floor(y))
    refuse(y, wrong, f"classes must be whole numbers from 0 to {last}, but row {{row}} has {{value:g}}")


def class_moments(p: Array) -> tuple[Array, Array]:
    """Return mean and variance of the number of a class with probabilities p (…, c)."""
    xp, classes = namespace(p), asarray_like(np.arange(p.shape[-1]), p)
    average = xp.sum(p * classes, axis=-1)
    return average, xp.sum(p * (classes - average[..., None]) ** 2, axis=-1)


def ranked_score(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the ranked probability score of classes y = 0, 1, … with probabilities p (n, c). (n,)"""
    return np.sum((np.cumsum(p, axis=1) - (y[:, None] <= np.arange(p.shape[1])))[:, :-1] ** 2, axis=1)
