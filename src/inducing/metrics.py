"""Metrics of predictions: how large their errors are, and how honest their error bars.

Every metric takes one output: observed targets `y`, predicted `mean` and, where needed, the predicted
variance `var` of a new *observation* (latent variance plus noise), each of shape (n,).
"""

from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import EmptyDataError, NonFiniteError, ParameterError, ShapeError

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Baseline:
    """The trivial predictor: a Gaussian with the mean and variance of the training targets at every input."""

    mean: float
    variance: float

    @classmethod
    def of(cls, y_train: "ArrayLike | Baseline") -> "Baseline":
        if isinstance(y_train, Baseline):
            return y_train
        y = _vector("y_train", y_train)
        return cls(float(np.mean(y)), float(np.var(y)))


def smse(y: ArrayLike, mean: ArrayLike, y_train: "ArrayLike | Baseline") -> float:
    """Standardised mean squared error: mean (y - mean)² / mean (y - ȳ_train)²; the `Baseline` has 1."""
    y, mean = _aligned(y, mean)
    spread = float(np.mean((y - Baseline.of(y_train).mean) ** 2))
    if spread == 0.0:
        raise ParameterError("SMSE is undefined: every y equals the training mean; use targets that vary.")
    return float(np.mean((y - mean) ** 2)) / spread


def nlpd(y: ArrayLike, mean: ArrayLike, var: ArrayLike) -> float:
    """Mean negative log predictive density: mean ½ [log 2π var + (y - mean)² / var], in nats per row."""
    y, mean, var = _aligned(y, mean, var)
    return float(np.mean(log_losses(y - mean, var)))


def log_losses(error: Vector, var: Vector) -> Vector:
    """-log N(error; 0, var) of each row. (n,)"""
    return 0.5 * (np.log(2 * np.pi * var) + error**2 / var)


def crps(y: ArrayLike, mean: ArrayLike, var: ArrayLike) -> float:
    """Mean continuous ranked probability score of Gaussians, ∫ (F(x) - 1{y ≤ x})² dx in the units of y;
    for other distributions call `model.predict_distribution(X).crps(y)`.
    """
    y, mean, var = _aligned(y, mean, var)
    return float(np.mean(crps_losses(y - mean, var)))


def crps_losses(error: Vector, var: Vector) -> Vector:
    """σ [z (2Φ(z) - 1) + 2φ(z) - 1/√π] of each row, z = error/σ. (n,) [Gneiting, Raftery 2007 eq. 21]"""
    from scipy.special import ndtr

    scale = np.sqrt(var)
    z = error / scale
    density = np.exp(-0.5 * z * z) * np.sqrt(2.0 / np.pi)
    return scale * (z * (2.0 * ndtr(z) - 1.0) + density - 1.0 / np.sqrt(np.pi))


def interval_score(y: ArrayLike, low: ArrayLike, high: ArrayLike, level: float = 0.9) -> float:
    """Mean interval score: the width plus 2/(1 - level) times the distance of y from the interval."""
    y, low, high = (_vector(name, v) for name, v in (("y", y), ("low", low), ("high", high)))
    if not len(y) == len(low) == len(high):
        raise ShapeError(f"y and the ends must have one length; got {len(y)}, {len(low)}, {len(high)}.")
    if not 0.0 < level < 1.0:
        raise ParameterError(f"A coverage level must lie strictly between 0 and 1; got {level:g}.")
    outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return float(np.mean(high - low + 2.0 / (1.0 - level) * outside))


def neg_crps(estimator: Any, X: Any, y: Any) -> float:
    """Minus the mean CRPS of an estimator with `predict_distribution`, for scikit-learn's scoring=."""
    return -float(np.mean(estimator.predict_distribution(X).crps(y)))


def neg_log_density(estimator: Any, X: Any, y: Any) -> float:
    """Minus the mean negative log density, so that more is better, for scikit-learn's scoring=."""
    return float(np.mean(estimator.predict_distribution(X).log_density(y)))


def msll(y: ArrayLike, mean: ArrayLike, var: ArrayLike, y_train: "ArrayLike | Baseline") -> float:
    """Mean standardised log loss: `nlpd` minus that of the `Baseline`; lower is better."""
    baseline = Baseline.of(y_train)
    if not baseline.variance > 0:
        raise ParameterError(f"MSLL needs a positive variance of y_train; got {baseline.variance:g}.")
    n = len(_vector("y", y))
    return nlpd(y, mean, var) - nlpd(y, np.full(n, baseline.mean), np.full(n, baseline.variance))


def coverage(y: ArrayLike, mean: ArrayLike, var: ArrayLike, level: float = 0.95) -> float:
    """Return the share of rows inside a central interval: |y - mean| ≤ z √var with z = Φ⁻¹((1 + level)/2)."""
    return float(calibration(y, mean, var, [level]).observed[0])


@dataclass(frozen=True)
class Scores:
    """Sums over predicted rows from which the metrics follow; + adds those of other rows."""

    rows: int = 0
    squared: float = 0.0  # Σ (y - mean)²
    squared_trivial: float = 0.0  # the same for the `Baseline`
    loss: float = 0.0  # -Σ log p(y)
    loss_trivial: float = 0.0
    inside: float = 0.0  # rows in the central interval of 95 %

    @staticmethod
    def of(y: ArrayLike, mean: ArrayLike, var: ArrayLike, y_train: "ArrayLike | Baseline") -> "Scores":
        y, mean, var = _aligned(y, mean, var)
        n, trivial = len(y), Baseline.of(y_train)
        loss_trivial = n * nlpd(y, np.full(n, trivial.mean), np.full(n, trivial.variance))
        squared, squared_trivial = np.sum((y - mean) ** 2), np.sum((y - trivial.mean) ** 2)
        loss, inside = n * nlpd(y, mean, var), n * coverage(y, mean, var)
        return Scores(n, float(squared), float(squared_trivial), loss, loss_trivial, inside)

    def __add__(self, other: "Scores") -> "Scores":
        return Scores(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def metrics(self) -> dict[str, float]:
        """Return the metrics under the names that reports show."""
        return {
            "RMSE": float(np.sqrt(self.squared / self.rows)),
            "SMSE": self.squared / self.squared_trivial if self.squared_trivial > 0 else np.nan,
            "MSLL": (self.loss - self.loss_trivial) / self.rows,
            "NLPD": self.loss / self.rows,
            "coverage of 95 %": self.inside / self.rows,
        }


@dataclass(frozen=True, eq=False)
class Calibration:
    """Nominal and observed coverage of central intervals, or predicted probabilities and observed shares of
    classes, in bins; calibrated error bars have observed = levels.
    """

    levels: Vector  # (k,), of classes (c, bins)
    observed: Vector
    pit: Vector | None = None  # (n,) P(y' ≤ y) of each row, uniform if calibrated; None for classes

    @property
    def error(self) -> float:
        """Mean of |observed - levels|: 0 is perfect, 0.5 the worst on an even grid of levels."""
        return float(np.mean(np.abs(self.observed - self.levels)))

    @property
    def distance(self) -> float:
        """The largest distance of the PIT's distribution from the uniform one [Kolmogorov, Smirnov]."""
        if self.pit is None:
            raise ParameterError("there is no PIT of classes; look at their `error`")
        steps, pit = np.arange(len(self.pit) + 1) / len(self.pit), np.sort(self.pit)
        return float(max(np.max(steps[1:] - pit), np.max(pit - steps[:-1])))


def calibration(
    y: ArrayLike, mean: ArrayLike, var: ArrayLike, levels: ArrayLike | None = None
) -> Calibration:
    """Return the observed coverage at each nominal level; by default 0.05, 0.10, …, 0.95."""
    from scipy.special import ndtri

    y, mean, var = _aligned(y, mean, var)
    levels = _vector("levels", np.linspace(0.05, 0.95, 19) if levels is None else levels)
    if np.any((levels <= 0) | (levels >= 1)):
        outside = levels[(levels <= 0) | (levels >= 1)][0]
        raise ParameterError(f"A coverage level must lie strictly between 0 and 1; got {outside:g}.")
    z = np.sort(np.abs(y - mean) / np.sqrt(var))  # (n,)
    inside = np.searchsorted(z, ndtri((1 + levels) / 2), side="right")  # (k,) rows with |z| ≤ the quantile
    return Calibration(levels, inside / len(z))


def _vector(name: str, values: ArrayLike) -> Vector:
    if np.ma.is_masked(values) or np.asarray(values).dtype.kind in "cMm":
        raise ShapeError(f"{name} must hold numbers, without masked entries, dates or complex numbers.")
    v = np.asarray(values, dtype=np.float64)
    if v.ndim != 1:
        raise ShapeError(f"{name} must be one-dimensional, one output at a time; got shape {v.shape}.")
    if len(v) == 0:
        raise EmptyDataError(f"{name} has no rows; pass at least one.")
    if not np.all(np.isfinite(v)):
        bad = np.flatnonzero(~np.isfinite(v))
        count = f"{len(bad)} non-finite value(s)"
        raise NonFiniteError(f"{name} holds {count}, first in row {bad[0]}; remove them.")
    return v


def _aligned(y: ArrayLike, mean: ArrayLike, var: ArrayLike | None = None) -> list[Vector]:
    """Return the arguments as vectors; raise unless they have one length and `var` is positive."""
    arrays = {"y": _vector("y", y), "mean": _vector("mean", mean)}
    if var is not None:
        arrays["var"] = _vector("var", var)
        if not np.all(arrays["var"] > 0):
            worst = int(np.argmin(arrays["var"]))
            value = arrays["var"][worst]
            raise ParameterError(f"row {worst} of var is {value:g}, not positive: add the noise.")
    lengths = {name: len(v) for name, v in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ShapeError(f"y, mean and var must have one length; got {lengths}.")
    return list(arrays.values())
