"""`Judged`: calibration, surprising rows and reports of a fitted model, and its partial dependence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr
from sklearn.utils.validation import check_is_fitted

from ..errors import ParameterError
from ..inference.left_out import LeftOut
from ..learning.diagnosis import MOST_OUTLIERS, Diagnosis, diagnosis_of, outliers_of, piled_targets, relevance
from ..learning.stages import Fit
from ..metrics import Calibration
from ..model.likelihoods import Binomial, Likelihood, NegativeBinomial, Poisson
from ..model.posterior import Posterior, predict_together
from ..model.problem import Problem
from ..numerics.arrays import Array, to_numpy
from ..numerics.linalg import solve_lower

LEVELS = np.linspace(0.05, 0.95, 19)  # of intervals
SURPRISES = 10  # rows that are listed
BINS = 10  # of a class's probabilities, for calibration
AVERAGED, VALUES = 200, 41  # rows that a partial dependence averages over, and values it is taken at
DRAWS = 100  # of the classes' processes, for standard deviations
Surprises = tuple[tuple[int, float, float, float], ...]  # number of the row, y, mean, standard deviation


@dataclass(frozen=True, eq=False)
class PartialDependence:
    """The average of f over rows with one column set to each of some values, with the model's own std."""

    values: Any  # (k,) numbers, or the levels of a category
    mean: np.ndarray  # (k,), (k, p) of several outputs, (k, classes) of probabilities
    std: np.ndarray


class Judged:
    """Mixin of the estimators: calibration, surprising rows, partial dependence and relevance of inputs."""

    def calibration(self: Any, X: Any = None, y: Any = None) -> Calibration:
        """Return promised and observed shares (`levels`, `observed`) and the PIT of each row, on rows X, y;
        for a regressor by default on the training rows, each left out.
        """
        check_is_fitted(self)
        if hasattr(self, "classes_"):
            return _of_classes(self, X, y)
        if X is None or y is None:
            left = self._left_out()
            pit = ndtr(left.error / left.std)
        else:
            new = self.predict_distribution(X)
            if new.mean.ndim > 1:
                raise ParameterError(f"calibration needs one target, and there are {new.mean.shape[1]}")
            pit = new.cdf(y)
            if isinstance(
                new.likelihood, Poisson | NegativeBinomial | Binomial
            ):  # the middle of a step of the cdf
                pit = pit - 0.5 * new.pdf(y)
        inside = np.abs(2.0 * pit - 1.0)
        return Calibration(LEVELS, np.mean(inside[:, None] <= LEVELS, axis=0), pit)

    def surprises(self: Any, X: Any = None, y: Any = None) -> Surprises:
        """Return the ten rows with the largest errors in standard deviations, largest first, for one target:
        number of the row, y, mean and standard deviation; by default of the training rows, each left out.
        """
        if X is None or y is None:
            return most_surprising(self._left_out(), self._rows[2])
        mean, std = self.predict(X, return_std=True)
        if mean.ndim > 1:
            raise ParameterError(f"surprising rows need one target, and there are {mean.shape[1]}")
        error = np.asarray(y, dtype=float) - mean
        return most_surprising(LeftOut(mean, std**2, error, error), np.ones(len(mean)))

    def partial_dependence(self: Any, column: Any, X: Any = None, values: Any = None) -> PartialDependence:
        """Return the average of f over rows in which a column, by name or number, has each of some `values`.

        The average is linear in f, so its variance is the mean of the rows' joint covariance; for classes the
        probabilities are averaged, over draws of f for the standard deviations. The rows are those of X, by
        default the training rows or the places of the basis, 200 at most. The values are by default the
        levels of a category, or 41 in the middle 98 % of the column.
        """
        require_one_model(self, "Partial dependences")
        rows = self._background(X)
        columns, given, shown = _moved(self, column, rows, values)
        averages = []
        for value in given:
            moved = rows.copy()
            moved[:, columns] = value
            averages.append(self._average(moved))
        return PartialDependence(shown, *map(np.array, zip(*averages)))

    @property
    def relevance_(self: Any) -> np.ndarray:
        """One over the shortest lengthscale of each input in its units; 0 where the model ignores it. (d,)"""
        require_one_model(self, "Relevances")
        post = self.posteriors_[0] if hasattr(self, "posteriors_") else self.posterior_
        return (relevance(self._kernel, post.basis) / self.x_scale_)[: self.n_features_in_]

    def _left_out(self: Any) -> LeftOut:
        """Return `loo_` of one target with Gaussian noise; raise if the model has no such predictions."""
        if not hasattr(type(self), "loo_"):
            raise ParameterError(f"a {type(self).__name__} does not keep its rows; pass X and y")
        left = self.loo_
        if left.mean.ndim > 1 or (self.likelihood_ is not None and self.noise_posterior_ is None):
            raise ParameterError("leaving rows out needs one target with Gaussian noise; pass X and y")
        return left

    def _background(self: Any, X: Any) -> np.ndarray:
        """Return rows to average over: of X, of the training rows, or the places of the basis. (n, d)"""
        if X is not None:
            rows = np.asarray(self._validated(X, reset=False), dtype=float)
        elif getattr(self, "_rows", None) is not None:
            rows = np.asarray(self._rows[0], dtype=float)
        else:
            post = self.posteriors_[0] if hasattr(self, "classes_") else self.posterior_
            places = to_numpy(post.basis.centers)
            rows = places * self.x_scale_ + self.x_mean_
        rows = rows[:, : self.n_features_in_]
        return rows[np.unique(np.linspace(0, len(rows) - 1, AVERAGED).astype(int))]

    def _average(self: Any, rows: np.ndarray) -> tuple[Any, Any]:
        """Return mean and std of the average over rows of f, or for a classifier of the probabilities."""
        if hasattr(self, "classes_"):
            Xs, rng = self._in_model_units(rows), np.random.default_rng(0)
            f = np.stack([post.sample(Xs, DRAWS, rng) for post in self.posteriors_], axis=-1)
            flat = f.reshape(-1, f.shape[-1])  # (draws · n, c)
            p = self.likelihood_.probabilities(flat, np.full_like(flat, 1e-300))
            p = p.reshape(DRAWS, len(rows), -1).mean(axis=1)
            known = predict_together(self.posteriors_, Xs)  # the average without the noise of draws
            return self.likelihood_.probabilities(*known).mean(axis=0), p.std(axis=0, ddof=1)
        post, Xs = self.posterior_, self._in_model_units(rows)
        plain = type(post) is Posterior and post.conditional == "exact" and not np.ndim(self.y_scale_)
        if plain and len(post):
            variance = _variance_of_average(post, Xs) * self.y_scale_**2
            return self._in_user_units(self._mean(Xs)).mean(), np.sqrt(max(variance, 0.0))
        mean, covariance = self._joint(rows, True)
        if covariance.ndim == 4:  # coregionalised outputs
            covariance = np.diagonal(covariance.mean(axis=(0, 2)))
        else:
            covariance = covariance.mean(axis=(0, 1))
        return mean.mean(axis=0), np.sqrt(np.maximum(covariance, 0.0))


def require_one_model(model: Any, what: str) -> None:
    """Raise if a model is not fitted, or has a model for each of independent outputs."""
    check_is_fitted(model)
    if getattr(model, "models_", None) is not None:
        raise ParameterError(f"{what} need one model; take those of each of `models_`")


def _variance_of_average(post: Posterior, X: Array) -> float:
    """Return the variance of the average of f over rows, from their average features."""
    phi = solve_lower(post.L, post.basis.cross(post.kernel, X).mean(0)[:, None])  # (m, 1)
    unsure = 0.0 if post.A is None else float(((post.A.T @ phi) ** 2).sum())
    return float(post.kernel.covariances(X, X).mean() - (phi**2).sum()) + unsure


def report_of(model: Any, result: Fit, P: Problem, rows: Any, y: np.ndarray | None = None) -> Any:
    """Return the `Diagnosis` of a regressor's fit to `rows` rows, whose targets are y where they are in
    memory; plain text if the noise is not Gaussian.
    """
    if not isinstance(result.noise, Likelihood):
        report = diagnosis_of(result, P, noise_of_f=model.noise_of_f_).shifted(model.nats_of_units(rows))
        varying = np.ptp(to_numpy(P.X)[:, : model.n_features_in_], axis=0) > 0
        report = replace(report, inputs=int(np.count_nonzero(varying)))
        return report if y is None or y.ndim > 1 else replace(report, piled=piled_targets(y))
    basis = f"- {model.basis_size_} basis functions give {int(np.sum(rows))} rows a log evidence of "
    basis += f"{model.log_evidence_:.6g} under {model.likelihood_}; held-out rows show whether more help."
    more = [] if result.converged else ["- The optimiser was still gaining: more iterations may help."]
    return "\n".join([basis, *more, *(f"- At a bound: {name}." for name in result.at_bounds)])


def with_left_out(model: Any, report: Any, weights: np.ndarray) -> Any:
    """Return the report with results of leaving rows out in turn, for models that can do so."""
    try:
        left = model.loo_
    except ParameterError:  # noise was learned jointly, or a likelihood along neighbours
        return report
    if not isinstance(report, Diagnosis):
        density = f"a log density of {np.mean(left.log_density):.4g} on average"
        return f"- Left out in turn, rows have {density} given the others.\n{report}"
    rows, told = (
        np.flatnonzero(weights > 0),
        dict(explained=tuple(left.explained.tolist()), inside=left.inside),
    )
    if left.mean.ndim == 1:
        told["surprises"] = most_surprising(left, weights)
        told["outliers"] = tuple(rows[outliers_of(left)[:MOST_OUTLIERS]].tolist())
    return replace(report, **told)


def most_surprising(left: LeftOut, weights: np.ndarray) -> Surprises:
    """Return `Judged.surprises` from predictions of the rows whose weight is positive."""
    rows, y = np.flatnonzero(weights > 0), left.mean + left.error
    worst = np.argsort(-np.abs(left.error) / left.std, kind="stable")[:SURPRISES]
    return tuple((int(rows[i]), float(y[i]), float(left.mean[i]), float(left.std[i])) for i in worst)


def _of_classes(model: Any, X: Any, y: Any) -> Calibration:
    """Return the calibration of a classifier: mean probability and share of each class, in ten bins."""
    if X is None or y is None:
        raise ParameterError("a classifier does not keep its rows; pass X and y")
    p, y = model.predict_proba(X), np.asarray(y)
    promised, observed = [], []
    for c, label in enumerate(model.classes_):
        bins = np.array_split(np.argsort(p[:, c], kind="stable"), min(BINS, max(1, len(p) // 10)))
        promised.append([p[rows, c].mean() for rows in bins])
        observed.append([np.mean(y[rows] == label) for rows in bins])
    return Calibration(np.array(promised), np.array(observed))


def _moved(model: Any, column: Any, rows: np.ndarray, values: Any) -> tuple[Sequence[int], Any, Any]:
    """Return the features that a column has become, the values they get in turn, and names for these."""
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
