"""`Outputs`: the base of a regressor of several outputs, with inputs that may have categories and gaps."""

import time
from copy import copy
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from ..errors import EmptyDataError, ModelFileError, NonFiniteError, ParameterError, require_one_of
from ..files.models import require_fitting
from ..files.records import Arrays, Plain, array, expect, number_or_array
from ..inference.left_out import LeftOut, left_out_of
from ..inference.neighbours import NeighboursPredictor
from ..learning.outofcore import survey
from ..model.distributions import AnyDistribution, OutputDistributions
from ..model.posterior import Posterior
from ..numerics.arrays import Array, is_numpy, placed, to_numpy
from ..sources.moments import known_columns
from ..sources.source import Part, Source
from .columns import GAUSSIAN_ROWS, Kinds, deviations, kinds_of
from .observing import Observing
from .preparation import checked_weights, fitted_problem, per_output

OUTPUTS = ("shared", "independent", "coregionalised")
OF_COLUMNS = ("encoder_", "feature_names_in_")
# fitted attributes that only a model of its own has
OF_ONE_MODEL = "_likelihood _rows _long _entries _centres _jackknife kinds_ fit_result_ noise_of_f_".split()
OF_ONE_MODEL += "scores_ metadata_".split()


def long_rows(X: np.ndarray, Y: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
    """Return a row (x, output) for each entry of Y (n, p) that is not NaN, or for each of Y = p outputs, and
    the places of these entries in Y.ravel(). (N, d + 1), (N,)
    """
    p = Y if isinstance(Y, int) else Y.shape[1]
    entries = np.arange(len(X) * p) if isinstance(Y, int) else np.flatnonzero(~np.isnan(Y.ravel()))
    return np.column_stack([X[entries // p], entries % p]), entries


@dataclass(frozen=True)
class Prepared:
    """A change of a source's parts from X to the kernel's inputs, on request without rows that have gaps."""

    kinds: Kinds
    drops: bool

    def __call__(self, part: Part) -> Part:
        if self.drops:
            rows = ~np.isnan(part.X).any(axis=1)
            part = replace(part, X=part.X[rows], y=None if part.y is None else part.y[rows])
        return replace(part, X=self.kinds.inputs(part.X))


@dataclass(frozen=True)
class Long:
    """A change of a source's parts to one row for each measured output."""

    drops = True  # tells the source that its number of rows changes

    def __call__(self, part: Part) -> Part:
        X, entries = long_rows(part.X, part.Y)
        return replace(part, X=X, y=part.Y.ravel()[entries])


def require_complete(some: bool, gaps: np.ndarray, names: Any) -> None:
    """Raise unless some rows have no gaps; `gaps` (d,) are how many each column has, and `names` theirs."""
    if not some:
        most = int(np.argmax(gaps))
        name = most if names is None else names[most]
        text = (
            f"every row has a gap; use missing='use', or leave out column {name}, which has {gaps[most]:.0f}"
        )
        raise EmptyDataError(text)


def prepared_source(model: Any, source: Source) -> tuple[Source, Any]:
    """Return the source of the kernel's inputs; for coregionalised outputs with a row for each measured entry
    of y, and also centre, scale and number of entries of each output. It sets `kinds_` of the estimator.
    """
    d, model.kinds_, model.n_gaps_ = source.n_features, Kinds(allow_unseen=model.allow_unseen), 0
    outputs = getattr(model, "outputs", "shared")
    long = outputs == "coregionalised" and not source.one_output
    if outputs == "independent":
        raise ParameterError("outputs='independent' needs all rows in memory; give X and y as arrays")
    model.encoder_ = source.layout.encoder
    coded = model.categorical is not None or (model.encoder_ is not None and model.encoder_.category_levels)
    if not (long or coded or source.layout.gaps):
        return source, None
    incomplete, of_X, of_Y = known_columns(source)
    rows, model.n_gaps_ = incomplete.n, round(incomplete.n * float(incomplete.mean[0]))
    empty = [j for j, column in enumerate((*of_X, *of_Y)) if column.n == 0]
    if empty:
        raise EmptyDataError(f"column {empty[0]} of X and y has no values; leave it out")
    if model.missing == "drop":
        gaps_of_each = rows - np.array([column.n for column in of_X])
        require_complete(model.n_gaps_ < rows, gaps_of_each, source.layout.feature_names)
    highest = [float(column.high[0]) for column in of_X] + [len(of_Y) - 1.0] * long
    gaps = [column.n < rows for column in of_X] + [False] * long
    layout = source.layout
    if long:
        one = replace(layout, n_outputs=1, one_output=True, target_names=None)
        layout = replace(one, n_features=d + 1, feature_names=None)
        source = source.changed(Long(), layout)
    sample = survey(source, GAUSSIAN_ROWS).sample.X
    model.kinds_ = kinds_of(model, sample, d if long else None, None, (np.array(gaps), np.array(highest)))
    width = model.kinds_.inputs(sample[:1]).shape[1]
    layout = replace(layout, n_features=width, feature_names=None, gaps=False)
    center, scale = map(np.concatenate, zip(*(column.center_and_scale() for column in of_Y)))
    model.n_rows_ = rows - (model.n_gaps_ if model.missing == "drop" else 0)
    source = source.changed(Prepared(model.kinds_, model.missing == "drop" and model.n_gaps_ > 0), layout)
    return source, (center, scale, np.array([column.n for column in of_Y])) if long else None


class Outputs(Observing):
    """Base of a regressor of several outputs, and of inputs with categories, gaps and uncertain entries."""

    n_gaps_: int = 0  # rows of the fit with gaps, used or dropped
    report_: Any
    choice_: Any

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        latent: bool = False,
        further: Any = None,
        x_std: Any = None,
    ) -> Any:
        """Return the mean at each row of X, (n,) or (n, p); on request with standard deviations of the same
        shape, or with the joint covariance (n, n), (n, n, p), or (n, p, n, p) of coregionalised outputs, of
        new observations, or with latent=True of the function f itself. `further` (n,) are the likelihood's
        other data of the rows, such as exposures or trials, and `x_std` the standard deviations of the
        entries of X.
        """
        if self.models_ is not None:
            each = [m.predict(X, return_std, return_cov, latent, further, x_std) for m in self.models_]
            if not (return_std or return_cov):
                return np.stack(each, axis=-1)
            return tuple(np.stack(part, axis=-1) for part in zip(*each, strict=True))
        if x_std is None and further is None:
            return super().predict(X, return_std, return_cov, latent)
        if x_std is None:
            if latent or return_cov:
                raise ParameterError("`further` is about observations of y; leave out latent and return_cov")
            y = self.predict_distribution(X, further)
            return (y.mean, y.std) if return_std else y.mean
        if further is not None or (return_std and return_cov):
            raise ParameterError("x_std goes with one of return_std and return_cov, and not with further")
        X = self._validated(X, reset=False)
        X = np.hstack([X, deviations(x_std, X)])
        return self._joint(X, latent) if return_cov else self._marginals(X, return_std, latent)

    def predict_distribution(self, X: Any, further: Any = None, x_std: Any = None) -> AnyDistribution:
        """Return the marginal distribution of a new observation at each row of X: mean, std, pdf, cdf,
        quantile, interval, sample, log_density and crps, in the user's units; of several outputs (n, p).
        """
        if self.models_ is not None:
            return OutputDistributions(tuple(m.predict_distribution(X, further, x_std) for m in self.models_))
        if x_std is None:
            return self._distribution(self._queries(X), further)
        X = self._validated(X, reset=False)
        return self._distribution(self._in_model_units(np.hstack([X, deviations(x_std, X)])), further)

    @property
    def loo_(self: Any) -> LeftOut:
        """Leave-one-out predictions of the fitted rows, in their order and in the units of y: `mean`, `std`,
        `log_density`; of coregionalised outputs (n, p), each entry predicted by all others, NaN where nothing
        was measured, and so of independent ones. Kernel and basis are held, nothing is fitted again.
        """
        if self.models_ is not None:
            return self._stacked_left_out([m.loo_ for m in self.models_])
        if self.kinds_.output is None or getattr(self, "_long", None) is None:
            return super().loo_
        left, kept = left_out_of(fitted_problem(self, self._long, None, self._centres)), self._long[2] > 0
        shape, q = self._entries[1], self._long[0][kept, self.kinds_.output].astype(int)
        scale, at = self.y_scale_[q], self._entries[0][kept]

        def table(values: np.ndarray) -> np.ndarray:
            out = np.full(shape, np.nan)
            out.ravel()[at] = values
            return out

        mean, error = left.mean.reshape(-1) * scale + self.y_mean_[q], left.error.reshape(-1) * scale
        density = left.log_density - np.log(scale)
        return LeftOut(*map(table, (mean, left.variance * scale**2, density, error)))

    def _stacked_left_out(self: Any, each: list[LeftOut]) -> LeftOut:
        """Return left-out predictions of independent outputs as one table, NaN where a model had no row."""
        tables = {f.name: np.full(self._used.shape, np.nan) for f in fields(LeftOut)}
        for (name, table), (q, left) in product(tables.items(), enumerate(each)):
            table[self._used[:, q], q] = getattr(left, name)
        return LeftOut(**tables)

    def _with_gaps(self: Any, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Check X and y and return them, with NaN in y (n, p) if `outputs` takes it as not measured."""
        require_one_of("outputs", self.outputs, OUTPUTS)
        gaps = np.zeros(0, dtype=bool)
        if self.outputs != "shared" and np.ndim(y) == 2:
            y = np.array(y, dtype=float)
            gaps = np.isnan(y)
            if np.any(gaps.all(axis=0)):
                raise EmptyDataError(f"output {gaps.all(axis=0).argmax()} was never measured; leave it out")
            y[gaps] = 0.0
        try:
            X, y = self._validated(X, y, reset=True, multi_output=True, y_numeric=True)
        except NonFiniteError as error:
            several = np.ndim(y) == 2 and self.likelihood is None and self.outputs == "shared"
            hint = " outputs='coregionalised' takes NaN for entries not measured." if several else ""
            raise NonFiniteError(f"{error}{hint}") from error
        if gaps.size and gaps.any():
            y[gaps] = np.nan
        return X, y

    def _prepared(
        self: Any, X: np.ndarray, y: np.ndarray, weights: np.ndarray, std: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the kernel's inputs, the targets and the weights of the rows of a fit; set `kinds_`."""
        incomplete, d = np.isnan(X).any(axis=1), X.shape[1]
        self.n_gaps_ = int(np.count_nonzero(incomplete))
        std = None if std is None else deviations(std, X)
        if self.missing == "drop" and self.n_gaps_:
            names = getattr(self, "feature_names_in_", None)
            require_complete(self.n_gaps_ < len(X), np.isnan(X).sum(axis=0), names)
            X, y, weights = X[~incomplete], y[~incomplete], weights[~incomplete]
            std = None if std is None else std[~incomplete]
        self.n_rows_ = len(X)
        output = d if self.outputs == "coregionalised" and y.ndim == 2 else None
        if output is not None:
            X, entries = long_rows(X, y)
            self._entries = entries, y.shape
            weights = weights[entries // y.shape[1]]
            std = None if std is None else np.pad(std[entries // y.shape[1]], ((0, 0), (0, 1)))
            y = y.ravel()[entries]
        self.kinds_ = kinds_of(self, X, output, std)
        return self.kinds_.inputs(X, std) if self.missing == "use" or std is not None else X, y, weights

    def _fit_each(self: Any, X: Any, y: Any, sample_weight: Any, x_std: Any) -> Any:
        """Fit a model to each output, on the rows where it was measured, in its share of the time left."""
        began, budget = time.monotonic(), self.time_budget
        self._settled()  # raises if a parameter is none
        X, y = self._with_gaps(X, y)
        weights = checked_weights(sample_weight, X)
        std = None if x_std is None else deviations(x_std, X)
        levels, models = getattr(self.encoder_, "category_levels", {}), []
        categorical = list(levels) if self.categorical is None and levels else self.categorical
        for q, target in enumerate(y.T):
            rows = ~np.isnan(target)
            model: Any = clone(self).set_params(outputs="shared", categorical=categorical)
            if budget:
                left = max(began + budget - time.monotonic(), 0.0)
                model.time_budget = left / (y.shape[1] - q)
            own = None if std is None else std[rows]
            models.append(model.fit(X[rows], target[rows], weights[rows], x_std=own))
            model.time_budget = budget
            vars(model).update({name: vars(self)[name] for name in OF_COLUMNS if name in vars(self)})
        complete = ~np.isnan(X).any(axis=1) | (self.missing != "drop")
        used = ~np.isnan(y) & (complete & (weights > 0))[:, None]
        self._gathered(models)._used = used
        require_fitting(self)
        return self

    @property
    def kernel_(self: Any) -> Any:
        """The learned kernel in the units of X; for independent outputs a list with one for each."""
        return super().kernel_ if self.models_ is None else [m.kernel_ for m in self.models_]

    def _gathered(self: Any, models: list[Any]) -> Any:
        """Set the fitted attributes from the models of independent outputs, and drop those of one model."""
        for name in OF_ONE_MODEL:
            self.__dict__.pop(name, None)
        self.models_, self._kernel = models, models[0]._kernel
        self.posterior_ = [m.posterior_ for m in models]
        self.choice_ = [getattr(m, "choice_", None) for m in models]
        self.noise_posterior_ = [m.noise_posterior_ for m in models]
        self.x_mean_, self.x_scale_ = [m.x_mean_ for m in models], [m.x_scale_ for m in models]
        self.n_rows_, self.n_gaps_ = (
            max(getattr(m, name, 0) for m in models) for name in ("n_rows_", "n_gaps_")
        )
        noise = [None if m.noise_ is None else float(m.noise_) for m in models]
        self.noise_ = noise if any(v is None for v in noise) else np.array(noise)
        self.y_mean_ = np.array([m.y_mean_ for m in models])
        self.y_scale_ = np.array([m.y_scale_ for m in models])
        self.log_evidence_ = float(sum(m.log_evidence_ for m in models))
        self.basis_size_ = sum(m.basis_size_ for m in models)
        self.n_iter_ = sum(m.n_iter_ for m in models)
        self.approximation_ = models[0].approximation_
        reports = [f"output {q}: {getattr(m, 'report_', '')}" for q, m in enumerate(models)]
        self.report_ = "\n".join(reports)
        return self

    def _in_model_units(self: Any, X: np.ndarray) -> Array:
        d, kinds = self.n_features_in_, self.kinds_
        if kinds.plain and X.shape[-1] == d:
            return placed((X - self.x_mean_) / self.x_scale_, self.device)
        std = X[:, d:] if X.shape[1] > d else None
        X = X[:, :d]
        if kinds.output is not None:
            p = kinds.codes[kinds.output]
            X = long_rows(X, p)[0]
            std = None if std is None else np.pad(np.repeat(std, p, axis=0), ((0, 0), (0, 1)))
        X = kinds.inputs(X, std)
        return placed((X - self.x_mean_) / self.x_scale_, self.device)

    def _in_user_units(self, mean: np.ndarray) -> np.ndarray:
        mean = mean if self.kinds_.output is None else mean.reshape(-1, len(self.y_scale_))
        return super()._in_user_units(mean)

    def _joint(self, X: np.ndarray, latent: bool) -> tuple[np.ndarray, np.ndarray]:
        if self.kinds_.output is None and self.kinds_.way != "variances":
            return super()._joint(X, latent)
        Xs = self._in_model_units(X)
        covariance = to_numpy(self._ask("covariance", Xs)).copy()
        rows = np.arange(len(covariance))
        if not latent:
            covariance[rows, rows] = self._scattered(covariance[rows, rows], Xs)
        mean, noise = self._in_user_units(self._mean(Xs)), 0.0 if latent else self._new_noise()
        if self.kinds_.output is None:
            covariance = per_output(covariance, self.y_scale_)
            covariance[rows, rows] += noise
            return mean, covariance
        n, p = mean.shape
        scale = np.tile(self.y_scale_, n)
        covariance *= np.outer(scale, scale)
        covariance[rows, rows] += np.tile(noise + np.zeros(p), n)
        return mean, covariance.reshape(n, p, n, p)

    def to_record(self) -> tuple[Plain, Arrays]:
        if self.models_ is None:
            return super().to_record()
        records = [model.to_record() for model in self.models_]
        named = {f"{q}.{name}": a for q, (_, arrays) in enumerate(records) for name, a in arrays.items()}
        return {"models": [plain | {"metadata": {}} for plain, _ in records]}, named

    @classmethod
    def from_record(cls, plain: Plain, arrays: Arrays) -> Self:
        if "models" not in plain:
            return super().from_record(plain, arrays)
        models = []
        for q, own in enumerate(plain["models"]):
            part = {name.removeprefix(f"{q}."): a for name, a in arrays.items() if name.startswith(f"{q}.")}
            models.append(cls.from_record(own, part))
        model: Any = copy(models[0])._gathered(models)
        model.outputs, model.metadata_ = "independent", plain["metadata"]
        return model

    def _saved_posterior(self) -> Posterior:
        post = getattr(self, "posterior_", None)
        if isinstance(post, NeighboursPredictor):
            return post.posterior
        if post is not None and not isinstance(post, Posterior):
            why = f"approximation={self.approximation_!r} needs its training data at every query"
            raise ModelFileError(f"{why}, which its file would not hold; fit 'pitc' or 'fitc' to save")
        return super()._saved_posterior()

    def _more_to_record(self) -> tuple[Plain, Arrays]:
        noise = {} if self.noise_ is None or np.isinf(self.noise_).any() else {"noise": self.noise_}
        near = isinstance(self.posterior_, NeighboursPredictor)
        of_rows, rows = self.posterior_.rows_record() if near else ({}, {})
        plain, arrays = self._observing_record()
        own = {"log_evidence_of_y": self.log_evidence_, "chosen": self.approximation_}
        return plain | of_rows | own, arrays | noise | rows

    def _restore(self, plain: Plain, arrays: Arrays, posterior: Posterior) -> None:
        self.approximation_ = str(plain.get("chosen", self.approximation))
        near = self.approximation_ == "neighbours"
        self.posterior_ = NeighboursPredictor.from_record(plain, arrays, posterior) if near else posterior
        self.noise_ = None
        self.log_evidence_ = float(plain["log_evidence_of_y"])
        self._restore_observing(plain, arrays)
        if "noise" in arrays:
            noise = array(arrays, "noise")
            expect(noise.shape == np.shape(self.y_scale_) and bool(np.all(noise > 0)), "noise", noise)
            self.noise_ = number_or_array(noise)


def in_rows(posterior: Any) -> Any:
    """Return a posterior in NumPy with its arrays C-ordered, as a file gives it back; others unchanged."""
    if isinstance(posterior, NeighboursPredictor):
        inner = in_rows(posterior.posterior)
        return NeighboursPredictor(inner, posterior.data, posterior.n_neighbours, posterior.sets)
    return posterior.to_numpy() if isinstance(posterior, Posterior) and is_numpy(posterior.L) else posterior
