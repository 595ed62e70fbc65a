"""How far a fitted model can be trusted, and what it makes of one input: calibration, partial dependence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from ..errors import ParameterError
from ..inference.left_out import LeftOut
from ..numerics.arrays import to_numpy

LEVELS = np.linspace(0.05, 0.95, 19)  # of intervals
QUANTILES = np.linspace(0.005, 0.995, 199)  # between which a distribution that is not normal is interpolated
SURPRISES = 10  # rows that are listed
BINS = 10  # of probabilities of a class
AVERAGED, VALUES, DRAWS = (
    200,
    41,
    100,
)  # rows a partial dependence averages over, its places, draws of classes


@dataclass(frozen=True, eq=False)
class Calibration:
    """What was promised and what was held: shares of rows in their intervals, or of a class."""

    said: np.ndarray  # (k,) levels of intervals; of classes the mean probabilities in bins (classes, bins)
    seen: np.ndarray  # the share of rows, of the same shape
    pit: np.ndarray | None = (
        None  # (n,) P(y' ≤ y) of each row, uniform from 0 to 1 if all is well; no classes
    )
    error: np.ndarray | None = None  # (n,) z-scores; of classes the log probability of the row's own

    @property
    def gap(self) -> float:
        """The mean distance between what was said and what was seen."""
        return float(np.mean(np.abs(self.said - self.seen)))

    @property
    def distance(self) -> float:
        """The largest distance of the PIT's distribution from the uniform one [Kolmogorov-Smirnov]."""
        if self.pit is None:
            raise ParameterError("classes have no PIT; look at `gap`")
        n, pit = len(self.pit), np.sort(self.pit)
        steps = np.arange(n + 1) / n
        return float(max(np.max(steps[1:] - pit), np.max(pit - steps[:-1])))


@dataclass(frozen=True, eq=False)
class PartialDependence:
    """The average of f over rows in which one column has each of some values, with the model's own std."""

    values: Any  # (k,) numbers, or the levels of a category
    mean: np.ndarray  # (k,), (k, p) of several outputs, (k, classes) of probabilities
    std: np.ndarray


def calibration(model: Any, X: Any = None, y: Any = None) -> Calibration:
    """The calibration of a model on rows X, y; of a regressor by default on rows fitted to, each left out."""
    if hasattr(model, "classes_"):
        return _of_classes(model, X, y)
    if X is None or y is None:
        left = _left_out(model)
        if left.mean.ndim > 1 or (model.likelihood_ is not None and model.noise_posterior_ is None):
            raise ParameterError(
                "calibration by left-out rows needs one target with Gaussian noise; pass X, y"
            )
        z = left.error / left.std
        pit = ndtr(z)
    else:
        mean, std = model.predict(X, return_std=True)
        if mean.ndim > 1:
            raise ParameterError(f"calibration is of one target, and there are {mean.shape[1]}")
        y = np.asarray(y, dtype=float)
        z = (y - mean) / std
        normal = getattr(model, "likelihood_", None) is None
        pit = ndtr(z) if normal else _between(model.predict_quantiles(X, QUANTILES), y)
    inside = np.abs(2.0 * pit - 1.0)
    return Calibration(LEVELS, np.mean(inside[:, None] <= LEVELS, axis=0), pit, z)


def _left_out(model: Any) -> LeftOut:
    if not hasattr(type(model), "loo_"):
        raise ParameterError(f"a {type(model).__name__} does not keep its rows; pass X and y")
    return model.loo_


def surprises(model: Any, X: Any = None, y: Any = None) -> tuple[tuple[int, float, float, float], ...]:
    """The rows that a regressor of one target finds hardest to believe, the least likely first: number of the
    row, y, and its mean and standard deviation; by default rows fitted to, as the others predict them. Empty
    where that is not known.
    """
    try:
        if X is None or y is None:
            left = _left_out(model)
            mean, std, seen = left.mean, left.std, left.mean + left.error
        else:
            mean, std = model.predict(X, return_std=True)
            seen = np.asarray(y, dtype=float)
    except ParameterError:
        return ()
    if mean.ndim > 1 or (X is None and model.likelihood_ is not None and model.noise_posterior_ is None):
        return ()
    worst = np.argsort(-np.abs(seen - mean) / std, kind="stable")[:SURPRISES]
    rows = (
        np.arange(len(mean)) if X is not None else np.flatnonzero(model._rows[2] > 0)
    )  # weightless ones are out
    return tuple((int(rows[i]), float(seen[i]), float(mean[i]), float(std[i])) for i in worst)


def _between(quantiles: np.ndarray, y: np.ndarray) -> np.ndarray:
    """P(y' ≤ y) from quantiles (n, q), the middle of those that y is equal to."""
    low, high = (np.sum(compare(quantiles, y[:, None]), axis=1) for compare in (np.less, np.less_equal))
    return 0.5 * (low + high) / quantiles.shape[1]


def _of_classes(model: Any, X: Any, y: Any) -> Calibration:
    if X is None or y is None:
        raise ParameterError("a classifier does not keep its rows; pass X and y")
    p, y = model.predict_proba(X), np.asarray(y)
    said, seen = [], []
    for c, label in enumerate(model.classes_):
        bins = np.array_split(np.argsort(p[:, c], kind="stable"), min(BINS, max(1, len(p) // 10)))
        said.append([p[rows, c].mean() for rows in bins])
        seen.append([np.mean(y[rows] == label) for rows in bins])
    own = np.sum(np.where(y[:, None] == model.classes_, p, 0.0), axis=1)
    return Calibration(np.array(said), np.array(seen), error=np.log(np.maximum(own, 1e-300)))


def partial_dependence(model: Any, column: Any, X: Any = None, values: Any = None) -> PartialDependence:
    """The average of f over rows of X, all of them with the same value in a column, for each of some values.

    The average is a linear functional of f, so that its variance is the mean of their joint covariance; of
    classes, probabilities are averaged, over draws of f for the standard deviations. Rows are by default
    those fitted to, or the places of the basis, 200 of them at most; values are in the column's middle 98 %.
    """
    rows = background(model, X)
    columns, given, shown = _moved(model, column, rows, values)
    means, stds = [], []
    for value in given:
        moved = rows.copy()
        moved[:, columns] = value
        mean, std = _average(model, moved)
        means.append(mean)
        stds.append(std)
    return PartialDependence(shown, np.array(means), np.array(stds))


def background(model: Any, X: Any = None) -> np.ndarray:
    """Features of rows to average over: of X, of rows fitted to, or the places of the basis. (n, d)"""
    if X is not None:
        rows = np.asarray(model._validated(X, reset=False), dtype=float)
    elif getattr(model, "_rows", None) is not None:
        rows = np.asarray(model._rows[0], dtype=float)
    else:
        post = model.posteriors_[0] if hasattr(model, "classes_") else model.posterior_
        places = to_numpy(next(iter(post.basis.parameters.values())))
        rows = places * model.x_scale_ + model.x_mean_
    rows = rows[:, : model.n_features_in_]
    return rows[np.unique(np.linspace(0, len(rows) - 1, AVERAGED).astype(int))]


def _moved(model: Any, column: Any, rows: np.ndarray, values: Any) -> tuple[Sequence[int], Any, Any]:
    """The features that a column is, what they become one after the other, and what that is called."""
    names = list(map(str, getattr(model, "feature_names_in_", range(model.n_features_in_))))
    encoder = getattr(model, "encoder_", None)
    for own in () if encoder is None else encoder.columns_:
        if own.name == column and own.kind == "category" and not own.codes:
            columns = [names.index(feature) for feature in own.features]
            levels = own.levels if values is None else values
            known = [*own.levels, *(["(other)"] if own.rest else [])]
            return columns, [[float(level == other) for other in known] for level in levels], np.array(levels)
    if isinstance(column, str) and column not in names:
        raise ParameterError(f"there is no column {column!r}, only {', '.join(names[:20])}")
    at = names.index(column) if isinstance(column, str) else int(column)
    if not 0 <= at < len(names):
        raise ParameterError(f"column must be 0 to {len(names) - 1}, but is {column}")
    if values is None:
        seen = np.unique(rows[:, at])
        whole = at in model.kinds_.codes or len(seen) <= 2
        low, high = np.quantile(rows[:, at], [0.01, 0.99])
        values = seen if whole else np.linspace(low, high, VALUES)
    values = np.asarray(values, dtype=float)
    return [at], values, values


def _average(model: Any, rows: np.ndarray) -> tuple[Any, Any]:
    """Mean and standard deviation of the average of f over rows, of classes of their probabilities."""
    if hasattr(model, "classes_"):
        Xs, rng = model._in_model_units(rows), np.random.default_rng(0)
        f = np.stack([post.sample(Xs, DRAWS, rng) for post in model.posteriors_], axis=-1)  # (draws, n, c)
        flat = f.reshape(-1, f.shape[-1])
        p = model.likelihood_.probabilities(flat, np.full_like(flat, 1e-300))
        p = p.reshape(DRAWS, len(rows), -1).mean(axis=1)
        return p.mean(axis=0), p.std(axis=0, ddof=1)
    mean, covariance = model._joint(rows, True)
    if covariance.ndim == 4:  # of outputs that inform each other
        covariance = np.diagonal(covariance.mean(axis=(0, 2)))
    else:
        covariance = covariance.mean(axis=(0, 1))
    return mean.mean(axis=0), np.sqrt(np.maximum(covariance, 0.0))
