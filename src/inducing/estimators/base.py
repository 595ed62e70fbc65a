"""Base classes of the estimators: checks of input, units, seeds, model files and predictions in batches."""

import warnings
from copy import copy
from dataclasses import astuple
from functools import partial
from inspect import signature
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import package
from ..errors import ModelFileError, ParameterError, RenamedWarning, ShapeError
from ..files.models import save
from ..files.records import Arrays, Plain, array, expect, number_or_array, posterior_from, posterior_record
from ..learning.settings import LogNormal
from ..model import kernels, likelihoods, means
from ..model.kernels.base import Kernel
from ..model.posterior import Posterior
from ..numerics.arrays import LARGEST_TARGET, Array, require_finite, require_numbers, to_numpy
from ..sources.arrays import as_source, is_parted
from ..sources.dask_collections import is_dask, predict_dask
from ..sources.encoding import as_frame, is_frame
from ..sources.parquet import is_paths, reading, table_files
from ..sources.source import Layout, Part, Source
from ..sources.table_encoder import TableEncoder
from .columns import Kinds
from .judging import Judged
from .preparation import ONLY_NUMBERS, Scaling, named, per_output
from .watching import CallbackSupport

RENAMED = "renamed"  # default of a parameter under its old name: it was not given
TRANSIENT = "verbose progress device checkpoint encoder capacity n_basis".split()  # parameters not in files
# parameters that older files do not have
LATER = "full_iter approximation n_inducing class_weight validation_fraction ard likelihood".split()
LATER += "neighbours max_file_size objective time_budget half_life on_drift relearn".split()
LATER += "categorical allow_unseen missing outputs rank guide".split()


class Rated:
    """Mixin, ahead of scikit-learn's, whose `score` refuses targets and weights with masked entries."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return scikit-learn's score of these rows: R², or of a classifier the share of right labels."""
        for name, values in (("y", y), ("sample_weight", sample_weight)):
            require_numbers(values, name, text=True)
        return super().score(X, y, sample_weight)  # type: ignore[misc]


class Inputs(BaseEstimator, CallbackSupport):
    """Base of all estimators: checks of input, and the conversion of X to the model's units."""

    n_iter_: int
    n_features_in_: int
    x_mean_: np.ndarray  # (d,)
    x_scale_: np.ndarray
    encoder_: TableEncoder | None = None
    kinds_: Kinds = ONLY_NUMBERS  # of the columns: numbers, categories, with gaps

    def _features(self, X: Any, reset: bool) -> Any:
        """Return the encoded features of a data frame, as a frame with their names; other input as it is.
        A frame of plain numbers with other columns than in `fit` is left to scikit-learn's checks.
        """
        if reset:
            self.__dict__.pop("encoder_", None)
        if not is_frame(X) or not (reset or self.encoder_ is not None):
            return X
        if reset:
            given = getattr(self, "encoder", None)
            encoder = TableEncoder() if given is None else clone(given)
            unseen = encoder.allow_unseen or getattr(self, "allow_unseen", False)
            rules = {"missing": getattr(self, "missing", "refuse"), "allow_unseen": unseen}
            self.encoder_ = encoder.set_params(**rules).fit(X)
        assert self.encoder_ is not None
        if self.encoder_.plain and as_frame(X).columns != list(self.encoder_.inputs):
            return X
        pd = package("pandas")
        return pd.DataFrame(self.encoder_.transform(X), columns=self.encoder_.get_feature_names_out())

    def _take_layout(self, layout: Layout) -> None:
        """Set the number and names of features, and the encoder, from the layout of a source."""
        self.n_features_in_, self.encoder_ = layout.n_features, layout.encoder
        self.__dict__.pop("feature_names_in_", None)
        if layout.feature_names is not None:
            self.feature_names_in_ = np.array(layout.feature_names, dtype=object)

    def _validated(self, X: Any, y: Any = "no_validation", *, reset: bool, **options: Any) -> Any:
        """Return X, or X and y, after scikit-learn's checks of shapes, names and types, with this package's
        errors. NaN and infinity in X are not looked for here, but once where the numbers are used.
        """
        if hasattr(X, "tocsr"):
            raise ShapeError("X is a sparse matrix, and sparse input is not supported; pass X.toarray()")
        if isinstance(X, dict) or hasattr(X, "collect"):  # a lazy frame
            raise ShapeError(f"X is a {type(X).__name__}; pass a data frame that holds its rows, or an array")
        if isinstance(X, Source) or isinstance(y, Source):
            raise ShapeError("X and y must be arrays here; only `fit` and `predict` take a source as X")
        X = self._features(X, reset)
        require_numbers(X, "X")
        if not isinstance(y, str | None):
            require_numbers(y, "y", text=not options.get("y_numeric", False))
        try:
            options |= {"dtype": np.float64, "ensure_all_finite": False}
            checked = validate_data(self, X, y, reset=reset, **options)
        except (ValueError, OverflowError) as error:
            raise named(error) from error
        if isinstance(checked, tuple) and checked[1].dtype.kind == "f":
            require_finite(checked[1], "y", LARGEST_TARGET)
        return checked

    def _in_model_units(self, X: np.ndarray) -> Array:
        X = X if self.kinds_ is ONLY_NUMBERS or X.shape[1] != self.n_features_in_ else self.kinds_.inputs(X)
        return (X - self.x_mean_) / self.x_scale_

    @property
    def kernel_(self: Any) -> Kernel:
        """The learned kernel, with lengthscales and periods in the units of X and the variance of the
        standardised targets. The kernel of `posterior_` is for standardised inputs.
        """
        scale, mean = (self.span_, self.low_) if hasattr(self, "span_") else (self.x_scale_, self.x_mean_)
        return kernels.in_units(self._kernel, 1.0 / scale, -mean / scale)

    def _queries(self, X: Any) -> np.ndarray:
        """Check the rows of X and return them in the model's units."""
        check_is_fitted(self)
        return self._in_model_units(self._validated(X, reset=False))

    def _source(self, X: Any) -> Source:
        """Return rows in parts to predict at as a source; raise if it has another number of columns."""
        source: Source
        if is_paths(X) and self.encoder_ is not None:
            source = reading(table_files(X, self.encoder_.marks)[0], self.encoder_, None)
        else:
            names = getattr(self, "feature_names_in_", None)
            source = as_source(X, columns=None if names is None else list(names)).without_targets()
        if source.n_features != (d := self.n_features_in_):
            raise ShapeError(f"X has {source.n_features} columns, but the model was fitted to {d}")
        return source.with_gaps() if getattr(self, "missing", "refuse") == "use" else source


class Sized:
    """Mixin of estimators with a parameter `n_inducing`, which may still be given under its old name."""

    n_inducing: Any
    _old_name: ClassVar[str] = "capacity"

    @property
    def _size(self) -> Any:
        """The largest number of basis functions; None is no limit."""
        old = getattr(self, self._old_name)
        if isinstance(old, str) and old == RENAMED:
            return self.n_inducing
        text = f"{self._old_name} is now n_inducing: pass n_inducing={old!r}"
        warnings.warn(text, RenamedWarning, stacklevel=4)
        return old


class Estimator(Judged, Inputs):
    """Base of the Gaussian processes: units of y, model files, and pages about a model."""

    _units: ClassVar[tuple[str, ...]] = ("x_mean", "x_scale")  # attributes that a file holds as arrays
    basis_size_: int
    feature_names_in_: np.ndarray
    y_mean_: Any  # a number, or (p,)
    y_scale_: Any

    def _set_units(self, scaling: Scaling, one_output: bool) -> None:
        self.x_mean_, self.x_scale_ = scaling.x_mean, scaling.x_scale
        of_y = scaling.y_mean, scaling.y_scale
        self.y_mean_, self.y_scale_ = (float(v[0]) if one_output else v for v in of_y)

    def _in_user_units(self, mean: np.ndarray) -> np.ndarray:
        return mean * self.y_scale_ + self.y_mean_

    def save(
        self, path: str | Path, metadata: Plain | None = None, precision: str = "double", full: bool = False
    ) -> int:
        """Write the fitted model to a file for `inducing.load` and return the size of the file in bytes.

        `metadata` is any dictionary that JSON can hold. A "neighbours" model needs its training rows at every
        query, so they are in the file, in `precision` "double" or "single". What loading can recompute is
        left out; full=True keeps it, for a loaded model that agrees to the last bit.
        """
        return save(self, path, metadata, precision, full)

    def explain(self, path: str | Path, X: Any = None, y: Any = None) -> int:
        """Write one HTML page to explore the model in a browser and return its size in bytes: slices with
        bands, draws, a map, relevance, and the calibration and surprises of left-out rows or of a table X, y.
        """
        from .explaining import explain

        return explain(self, path, X, y)

    def _repr_html_inner(self) -> str:
        from .explaining import card

        return super()._repr_html_inner() + card(self)

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        """Return no table: scikit-learn's would compute properties such as `loo_`, or fail where they do."""
        return {}

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        shown = super()._repr_mimebundle_(**options)
        return shown | ({"text/html": self._repr_html_inner()} if "text/html" in shown else {})

    def to_record(self) -> tuple[Plain, Arrays]:
        """Return the record of the fitted model: plain data for JSON, and arrays by name."""
        plain, arrays = posterior_record(self._saved_posterior())
        parameters = {}
        for name in _saved_names(type(self)):
            value = self._size if name == "n_inducing" and isinstance(self, Sized) else getattr(self, name)
            if name == "inducing" and not isinstance(value, str | None):
                arrays[name] = value
            else:
                parameters[name] = _as_plain(name, value)
        names = getattr(self, "feature_names_in_", None)
        plain |= {
            "parameters": parameters,
            "n_iterations": int(self.n_iter_),
            "feature_names": None if names is None else [str(name) for name in names],
            "encoder": None if self.encoder_ is None else self.encoder_.to_json(),
        }
        arrays |= {name: getattr(self, f"{name}_") for name in self._units}
        kinds, of_kinds = self.kinds_.record()
        plain |= {"kinds": kinds, "n_features": int(self.n_features_in_)}
        more, more_arrays = self._more_to_record()
        return plain | more, arrays | of_kinds | more_arrays

    @classmethod
    def from_record(cls, plain: Plain, arrays: Arrays) -> Self:
        """Make the estimator from a record; raise if its parts do not fit together."""
        posterior = posterior_from(plain, arrays)
        model = cls(**_parameters_from(cls, plain["parameters"], arrays))
        d, p = posterior.basis.centers.shape[1], posterior.w.shape[1]
        kinds, one_output = plain.get("kinds") or {}, posterior.one_output
        if kinds.get("output") is not None:  # the column of an output's number
            p, one_output = int(kinds["codes"][str(kinds["output"])]), False
        for name in cls._units:
            value, shape = array(arrays, name), () if one_output else (p,)
            expect(value.shape == (shape if name.startswith("y") else (d,)), name, value)
            expect(name in ("x_mean", "y_mean", "low") or bool(np.all(value > 0)), name, value)
            setattr(model, f"{name}_", number_or_array(value))
        model.kinds_ = Kinds.from_record(plain.get("kinds"), arrays, d)
        names, d = plain["feature_names"], int(plain.get("n_features", d))
        if names is not None:
            names = list(names)
            if len(set(names)) != d or len(names) != d or not all(isinstance(name, str) for name in names):
                raise ModelFileError(f"it names {len(set(names))} features for {d} inputs")
            model.feature_names_in_ = np.array(names, dtype=object)
        if plain.get("encoder") is not None:
            model.encoder_ = TableEncoder.from_json(plain["encoder"])
            given = list(model.encoder_.get_feature_names_out())
            if len(given) != d or names not in (None, given):
                raise ModelFileError(f"its columns do not give {d} inputs")
        if not isinstance(plain["metadata"], dict):
            raise ModelFileError("its metadata are not a dictionary")
        model._kernel, model.basis_size_ = posterior.kernel, len(posterior)
        model.n_features_in_, model.n_iter_ = d, int(plain["n_iterations"])
        model.metadata_ = plain["metadata"]
        model._restore(plain, arrays, posterior)
        return model

    def _saved_posterior(self) -> Posterior:
        """Return the posterior that a file holds; raise if the model cannot be saved."""
        if not hasattr(self, "_kernel"):
            raise ParameterError(f"this {type(self).__name__} is not fitted; call fit before save")
        return self.posterior_  # type: ignore[attr-defined]

    def _more_to_record(self) -> tuple[Plain, Arrays]:
        """Return what a record holds beside posterior, units and parameters."""
        raise NotImplementedError

    def _restore(self, plain: Plain, arrays: Arrays, posterior: Posterior) -> None:
        """Set the posterior, and the attributes that `_more_to_record` recorded."""
        raise NotImplementedError


class Regression:
    """Mixin of the regressors: predictions in the user's units, for rows in memory or in parts."""

    posterior_: Any
    noise_: Any

    def predict(
        self: Any, X: Any, return_std: bool = False, return_cov: bool = False, latent: bool = False
    ) -> Any:
        """Return the mean at each row of X, (n,) or (n, p); on request with standard deviations of the same
        shape, or with the joint covariance (n, n) or (n, n, p), of new observations, or with latent=True of
        the function f itself.
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ParameterError("return_std and return_cov were both given; ask for one of them")
        if is_parted(X):
            return self._predict_parts(X, return_std, return_cov, latent)
        X = self._validated(X, reset=False)
        return self._joint(X, latent) if return_cov else self._marginals(X, return_std, latent)

    def light(self) -> Self:
        """Return a copy without what only the fit needs, small enough to send to other processes."""
        light = copy(self)
        for name in ("progress", "fit_result_", "report_", "_rows", "_long", "_jackknife"):
            vars(light).pop(name, None)
        return light

    def _predict_parts(self: Any, X: Any, return_std: bool, return_cov: bool, latent: bool) -> Any:
        if return_cov:
            raise ParameterError("rows that come in parts have no joint covariance; pass some as one array")
        if is_dask(X):
            ask = partial(predict_rows, model=self.light(), return_std=return_std, latent=latent)
            return predict_dask(ask, X, getattr(self, "feature_names_in_", None), self.n_features_in_)
        parts = list(self._source(X).map(predict_rows, self.light(), return_std, latent))
        return tuple(map(np.concatenate, zip(*parts, strict=True))) if return_std else np.concatenate(parts)

    def _marginals(self, X: np.ndarray, return_std: bool, latent: bool) -> Any:
        """Return the mean, on request with standard deviations, at rows that were checked."""
        raise NotImplementedError

    def _joint(self: Any, X: np.ndarray, latent: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the joint covariance at rows that were checked."""
        noise, Xs = 0.0 if latent else self._new_noise(), self._in_model_units(X)
        covariance = per_output(to_numpy(self._ask("covariance", Xs)), self.y_scale_)  # (n, n) or (n, n, p)
        rows = np.arange(len(covariance))
        covariance[rows, rows] += noise
        return self._in_user_units(self._mean(Xs)), covariance

    def _mean(self, Xs: Array) -> np.ndarray:
        alone = hasattr(self.posterior_, "mean")  # without the variance, which costs far more
        return to_numpy(self.posterior_.mean(Xs) if alone else self._ask("predict", Xs)[0])

    def _ask(self, what: str, Xs: Array) -> Any:
        """Return the posterior's `predict` or `covariance` at rows in the model's units."""
        return getattr(self.posterior_, what)(Xs)

    def _new_noise(self) -> Any:
        """Return the noise variance of a new observation, a number or (p,); raise if it is not known."""
        raise NotImplementedError


def predict_rows(
    rows: Part | np.ndarray, model: Regression, return_std: bool = False, latent: bool = False
) -> Any:
    """Predict at a part of a source, or at rows of an array, without checking them again."""
    return model._marginals(rows.X if isinstance(rows, Part) else rows, return_std, latent)


def generator(random_state: Any) -> np.random.Generator:
    """Return the random generator of a scikit-learn `random_state`."""
    try:
        return np.random.default_rng(check_random_state(random_state).randint(2**31))
    except ValueError as error:
        raise ParameterError(f"random_state must be a seed from 0 on, not {random_state!r}") from error


def is_default(given: Any, default: Any) -> bool:
    """Return whether a parameter is at its default: the same text, number or list, perhaps another object,
    as after pickling.
    """
    if isinstance(given, list | tuple):
        return isinstance(default, tuple) and tuple(given) == default
    return given is default or (isinstance(given, str | Integral) and given == default)


def _saved_names(kind: type[Estimator]) -> list[str]:
    """Return the names of the constructor's parameters that a file holds."""
    return [name for name in signature(kind).parameters if name not in TRANSIENT]


def _as_plain(name: str, value: Any) -> Any:
    """Return a constructor's parameter as JSON, or None where it has no meaning without the data."""
    if name == "random_state":
        return value if isinstance(value, int) else None
    if name == "noise" and np.ndim(value) > 0:  # one per row would be training data
        return None
    if name == "priors":
        return {key: astuple(prior) for key, prior in (value or {}).items()} or None
    if name == "bounds" and value is not None:
        return np.asarray(value, dtype=float).tolist()
    if name == "fixed" or (name == "categorical" and value is not None):
        return list(value)
    return value.spec() if hasattr(value, "spec") else value


def _parameters_from(kind: type[Estimator], saved: Plain, arrays: Arrays) -> dict[str, Any]:
    """Return a constructor's parameters, read back from what `_as_plain` made of them."""
    readers = {"kernel": kernels.from_spec, "mean": means.from_spec, "likelihood": likelihoods.from_spec}
    parameters: dict[str, Any] = {}
    if "capacity" in saved and (saved.get("method") is not None or "n_inducing" not in saved):
        saved = saved | {"n_inducing": saved["capacity"]}  # its name in older files
    for name in _saved_names(kind):
        if name == "inducing" and name not in saved:
            parameters[name] = array(arrays, name, 2)
        elif name == "priors":
            priors = saved[name] or {}
            parameters[name] = {key: LogNormal(*values) for key, values in priors.items()} or None
        elif name in saved or name not in LATER:
            value: Any = saved[name]
            value = readers[name](value) if name in readers and isinstance(value, dict) else value
            parameters[name] = tuple(value) if name == "fixed" else value
    return parameters
