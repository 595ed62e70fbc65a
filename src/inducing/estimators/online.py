"""`OnlineGPRegressor`: regression from a stream, each row read once, under scikit-learn's contract."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from math import isfinite
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ..errors import LabelError, ModelFileError, ParameterError, ShapeError, require_count, require_one_of
from ..files.records import Arrays, Plain
from ..inference.online import Seen
from ..inference.online_start import carried
from ..inference.propagation import expects
from ..inference.regression import log_evidence
from ..model import means
from ..model.distributions import AnyDistribution
from ..model.kernels.base import Kernel
from ..model.likelihoods import BY_NAME, Binary, Gaussian, Likelihood, Poisson
from ..model.means import Mean, Zero
from ..model.posterior import Posterior, prior
from ..model.problem import as_inputs
from ..numerics.arrays import FAR_OFF, LARGEST_TARGET, require_finite, some_rows
from ..streams.feeding import Reading, all_or_nothing, most_informative_rows
from ..streams.memory import FEWEST_REMEMBERED, Memory
from .base import RENAMED, Estimator, Rated, Regression, Sized, generator
from .predictive import Predictive, distribution_of
from .preparation import Data, per_output
from .reasons import Reasons
from .streaming import Streaming, times_of
from .teaching import UNITS, Teaching, noise_of, start_targets
from .watching import with_callbacks

LIKELIHOOD_NAMES = "gaussian", "laplace", "studentt", "poisson"  # their scale, if any, is learned
MEMORY_ROWS = 1000  # half-life of the memory for on_drift="relearn" without `relearn`


class Forecast(NamedTuple):
    """Predictions of rows, each made just before its row was read; NaN for the rows of the warm-up."""

    mean: np.ndarray  # (n,) or (n, p), of y
    std: np.ndarray
    log_density: np.ndarray  # (n,): of y under the whole predictive distribution


@dataclass(eq=False, repr=False)
class OnlineGPRegressor(
    Rated, RegressorMixin, Predictive, Reasons, Regression, Streaming, Teaching, Sized, Estimator
):
    """Sparse Gaussian process regression from a stream: each row is read once, in O(n_inducing²). [004 ch. 3]

    `fit` takes units and hyperparameters from its rows and then reads them once. `partial_fit` reads more
    rows, after `fit` or without it: then the first `warmup` rows, in one batch or many, set the units and
    teach the hyperparameters. These rows are kept until all have come, and whenever their number has doubled
    the model starts again from all of them with the starting kernel; after the warm-up no rows are kept. A
    batch is never split, and one that cannot be used changes nothing.

    Units are as in `SparseGPRegressor`: the user's for `noise`, `likelihood`, predictions, `noise_` and all
    lengthscales; those of the standardised data for `mean`, `posterior_` and `likelihood_`.

    Parameters
    ----------
    kernel : a Kernel, or the name of a stationary one with a lengthscale for each input, or with ard=False
        one for all; None is "rbf".
    n_inducing : how many basis functions, at most; None is no limit.
    likelihood : "gaussian", "laplace" and "studentt" (for outliers), whose scale is learned, "poisson" (for
        counts), or an object from `inducing.likelihoods`, used unchanged. y is standardised for the first
        three, not for counts.
    noise : variance of the noise to start from, for a likelihood given by name.
    mean : a prior mean from `inducing.means`; None is the average of y, for counts the logarithm of their
        average.
    tolerance, removal_score, order : as for `inducing.update`, which calls the second `score`.
        order="information" looks at all rows of a batch before it reads each.
    optimize : "hyperparameters", or None to keep the starting kernel and noise.
    half_life : rows, or units of `time` if `partial_fit` gets times, after which a row counts half; "auto"
        weighs 50, 400 and infinity by how well they predict; None forgets nothing. With forgetting, a learned
        noise level follows the stream, too.
    on_drift : what an alarm does beside a DriftWarning: nothing ("warn"), give earlier rows little weight
        ("forget") or none ("reset"), or little and learn the model again after 200 rows ("relearn").
    relearn : learn kernel, noise and mean again every so many rows, from a memory of 500 informative rows;
        None is never. The new model keeps what was read.
    warmup : how many rows set the units and teach the hyperparameters in `partial_fit`.
    learning_rows : how many rows, at most, drawn at random, hyperparameters are learned from.
    max_iter, restarts, jitter, fixed, priors : of the learning, as for `inducing.fit`.
    random_state : seed of the learning. verbose : 1 always shows progress, else after two seconds.

    Attributes
    ----------
    posterior_ : the Posterior of the standardised data.
    kernel_, likelihood_, basis_size_, n_iter_ (of the learning, at least 1), n_features_in_,
        feature_names_in_ (from data frames), x_mean_, x_scale_, y_mean_, y_scale_.
    noise_ : variance of y about f, a number or one per output; None for counts and likelihoods of your own.
    half_lives_ : the weight of each half-life. n_drifts_, drifts_ : how many alarms, the rows of recent ones.
    n_rows_ : how many rows were read. warming_up_ : whether units and hyperparameters may still change.
    log_predictive_ : Σ log p(y | rows before), in the units of y, since the units were set.
    """

    kernel: Kernel | str | None = None
    n_inducing: int | None = 100
    _: KW_ONLY
    ard: bool = True
    likelihood: Likelihood | str = "gaussian"
    noise: float | None = None
    mean: Mean | None = None
    tolerance: float = 1e-6
    removal_score: str = "mean"
    order: str = "given"
    optimize: str | None = "hyperparameters"
    half_life: float | str | None = None
    on_drift: str = "warn"
    relearn: int | None = None
    warmup: int = 500
    learning_rows: int = 1000
    max_iter: int = 100
    restarts: int = 0
    jitter: float = 1e-8
    fixed: Any = ()
    priors: Any = None
    standardize: bool = True
    random_state: Any = None
    verbose: int = 0
    capacity: Any = RENAMED

    _units = ("x_mean", "x_scale", "y_mean", "y_scale")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        name = str(self.likelihood).lower()
        tags.target_tags.multi_output = isinstance(self.likelihood, Gaussian) or name == "gaussian"
        return tags

    @with_callbacks
    def fit(self, X: Any, y: Any, time: Any = None) -> Self:
        """Learn from X (n, d) and y (n,), or (n, p) under Gaussian noise. `time` (n,), in the units of
        half_life, must not decrease. Ctrl-C keeps what was read.
        """
        with all_or_nothing(self):
            X, y = self._checked(X, y, reset=True)
            self.__dict__.pop("metadata_", None)
            self._held = None
            self._begin(X, y, learn=True, time=times_of(time, X), stoppable=True)
        return self

    def partial_fit(self, X: Any, y: Any, time: Any = None) -> Self:
        """Read more rows, once and in order."""
        if time is not None or self._read_one(X, y) is None:
            self.predict_then_fit(X, y, time)
        return self

    def predict_then_fit(self, X: Any, y: Any, time: Any = None) -> Forecast:
        """Read more rows as `partial_fit` does, and return the prediction of each just before it was read."""
        seen = None if time is not None else self._read_one(X, y)
        if seen is not None:
            return self._forecast(seen, [(slice(None), self.likelihood_)])
        with all_or_nothing(self):
            fresh = not hasattr(self, "posterior_")
            X, y = self._checked(X, y, reset=fresh)
            time = times_of(time, X)
            if fresh:
                self._held, self._begun_with = (X[:0], y[:0]), 0
            elif y.shape[1:] != np.shape(self.y_mean_):
                raise ShapeError(f"y has shape {y.shape}, but the model {np.size(self.y_mean_)} output(s)")
            if self._held is None:
                return self._read_on(X, y, time)
            self._warm_up(X, y, time)
            return Forecast(np.full_like(y, np.nan), np.full_like(y, np.nan), np.full(len(y), np.nan))

    def _marginals(self, X: np.ndarray, return_std: bool, latent: bool) -> Any:
        Xs = self._in_model_units(X)
        if not return_std and (latent or type(self.likelihood_) in UNITS):  # then y has the mean of f
            return self._in_user_units(self._mean(Xs))
        mean, variance = self.posterior_.predict(Xs)
        mean, std = self._observed(mean, variance, None if latent else self.likelihood_)
        return (mean, std) if return_std else mean

    def mean_at(self, row: Any) -> Any:
        """Return the mean of y at one row, a sequence of numbers; the same as `predict`, but faster."""
        X = np.array([row], dtype=float)
        f = None
        if self._live is not None and type(self.likelihood_) in UNITS and X.shape == (1, self.n_features_in_):
            f = self._mean_at(self._in_model_units(X)) if isfinite(X.sum()) else None
        if f is None:
            return self.predict(X)[0]
        return self._in_user_units(f[0] if np.ndim(self.y_mean_) else f[0, 0])

    def predict_distribution(self, X: Any, further: Any = None) -> AnyDistribution:
        if further is not None:
            raise ParameterError("a stream model does not take `further`; leave it out")
        mean, variance = self.posterior_.predict(self._queries(X))
        each = [self.likelihood_] * np.size(self.y_scale_)
        return distribution_of(each, mean, variance, self.y_mean_, self.y_scale_)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, latent: bool = False) -> np.ndarray:
        """Draw new observations at X, or f(X) with latent=True, jointly. (n, s) or (n, p, s)"""
        Xs, rng = self._queries(X), generator(random_state)
        f = np.moveaxis(self.posterior_.sample(Xs, n_samples, rng), 0, -1)
        y = f if latent else self.likelihood_.sample(f, rng)
        scale, mean = (v if np.ndim(v) == 0 else v[:, None] for v in (self.y_scale_, self.y_mean_))
        return y * scale + mean

    def query(self, X: Any, n: int = 1) -> np.ndarray:
        """Choose the n rows of X whose y would teach the model most, the best first. (n,) [004 §3.8.1]"""
        check_is_fitted(self)
        if type(self.likelihood_) not in UNITS:
            raise ParameterError(f"under {self.likelihood_} a row without its y has no known gain")
        w = self.posterior_.w[:, :1]  # one output and no mean suffice, since only variances count
        post = replace(self.posterior_, w=w, one_output=True, mean_function=Zero())
        return most_informative_rows([post], Gaussian(noise_of(self.likelihood_)), self._queries(X), n)

    @property
    def posterior_(self) -> Posterior:  # type: ignore[override]
        self.settle()
        return self._posterior if self._standing is None else self._standing.matched[0]

    @posterior_.setter
    def posterior_(self, posterior: Posterior) -> None:
        self._live, self._standing, self._posterior = None, None, posterior

    @property
    def noise_(self) -> Any:
        if type(self.likelihood_) not in UNITS:
            return None
        return float(self.likelihood_.predict(0.0, 0.0)[1]) * np.square(self.y_scale_)

    @property
    def log_predictive_(self) -> float:
        # the densities of y and of y / y_scale differ by the factor y_scale for each observation
        shift = self.n_rows_ * float(np.sum(np.log(self.y_scale_)))
        return float(self.posterior_.log_predictive or 0.0) - shift

    def _more_to_record(self) -> tuple[Plain, Arrays]:
        return self._stream_record()

    def _restore(self, plain: Plain, arrays: Arrays, posterior: Posterior) -> None:
        self.posterior_ = posterior
        self._restore_stream(plain, arrays, np.shape(self.y_mean_), posterior)
        if isinstance(self.likelihood_, Binary):
            raise ModelFileError(f"its likelihood {self.likelihood_} is not for regression")

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Check rows to learn from and return them as numbers, with targets that the likelihood accepts."""
        if not reset and self._are_plain(X, y):
            return X, y
        likelihood = self._start_likelihood()
        several = isinstance(likelihood, Gaussian)
        X, y = self._validated(X, y, reset=reset, multi_output=several, y_numeric=True)
        return as_inputs(X), likelihood.check(y)

    def _are_plain(self, X: Any, y: Any) -> bool:
        """Return whether rows are finite arrays in the model's form: a check that costs little."""
        if not (type(X) is np.ndarray is type(y) and X.dtype == y.dtype == np.float64):
            return False
        if X.shape[1:] != (self.n_features_in_,) or y.shape != (len(X), *np.shape(self.y_mean_)):
            return False
        if type(self.likelihood_) not in UNITS or hasattr(self, "feature_names_in_") or len(X) == 0:
            return False
        return isfinite(X.sum()) and bool(np.abs(y).max() < LARGEST_TARGET)

    def _start_likelihood(self) -> Likelihood:
        """Return the likelihood given, in the units of y; raise if it is not one for regression."""
        likelihood = self.likelihood
        if not isinstance(likelihood, Likelihood):
            name = likelihood.lower() if isinstance(likelihood, str) else likelihood
            require_one_of("likelihood", name, LIKELIHOOD_NAMES, " or an object")
            return BY_NAME[name]()
        if isinstance(likelihood, Binary):
            raise LabelError(f"{likelihood} is for classes: use SparseGPClassifier, which reads streams, too")
        if self.noise is not None:
            raise ParameterError(f"noise={self.noise} and {likelihood} both set the noise; give one of them")
        return likelihood

    def _begin(
        self, X: np.ndarray, y: np.ndarray, *, learn: bool, time: Any = None, stoppable: bool = False
    ) -> None:
        require_one_of("optimize", self.optimize, ("hyperparameters", None))
        if self._size is not None:
            require_count("n_inducing", self._size)
        likelihood, given = self._start_likelihood(), not isinstance(self.likelihood, str)
        expects("online", learn and self.optimize is not None and not isinstance(likelihood, Gaussian))
        scaled = type(likelihood) in UNITS
        noise = noise_of(likelihood) if given and scaled else self.noise
        columns = start_targets(likelihood, y)
        data, scaling = Data(X, columns, np.ones(len(X)), noise).standardised(self.standardize)
        one, rng = y.ndim == 1, generator(self.random_state)
        self._set_units(scaling, one)
        if not scaled:
            self.y_mean_, self.y_scale_ = 0.0, 1.0
        rows = some_rows(len(X), self.learning_rows, rng)
        start = self._gaussian_start(data[rows], one, given, learn, rng)
        kernel, mean = start.posterior_.kernel, start.posterior_.mean_function
        self.n_iter_ = max(1, start.n_iter_)
        if isinstance(likelihood, Gaussian):
            likelihood = Gaussian(float(start.fit_result_.noise))
        else:
            if scaled:
                learned = float(np.sqrt(float(start.fit_result_.noise) / noise_of(likelihood)))
                likelihood = likelihood.in_units(1.0 / scaling.y_scale[0] if given else learned)
            elif self.mean is None and isinstance(likelihood, Poisson):
                mean = means.Constant(float(np.log(max(np.mean(y), 0.5 / len(y)))))
            if learn and self.optimize is not None:
                targets = (y[rows] - self.y_mean_) / self.y_scale_
                problem = kernel, likelihood, mean, data.X[rows], targets
                kernel, likelihood, mean = self._learn(*problem, given, rng)
        self._kernel, self.likelihood_, self.n_rows_, self._begun_with = kernel, likelihood, 0, len(X)
        self._adapt_again()
        post = prior(kernel, mean)
        self.posterior_ = post if one else replace(post, w=np.zeros((0, y.shape[1])), one_output=False)
        self._read(X, y, time, stoppable)

    def _adapt_again(self) -> None:
        free, memory = isinstance(self.likelihood, str) and "noise" not in self.fixed, None
        if self.relearn is not None:
            require_count("relearn", self.relearn)
        if self.relearn is not None or self.on_drift == "relearn":
            memory = Memory.empty(self.relearn or MEMORY_ROWS, len(self.x_mean_), np.size(self.y_mean_))
        self._adapt(free and self.half_life is not None and type(self.likelihood_) in UNITS, memory)

    def _read_on(self, X: np.ndarray, y: np.ndarray, time: np.ndarray | None) -> Forecast:
        done, parts = 0, list[Forecast]()
        while done < len(X) or not parts:
            left = len(X) if self.relearn is None else self.relearn - self.n_rows_ % self.relearn
            rows = slice(done, done + left)
            reading = self._read(X[rows], y[rows], None if time is None else time[rows])
            seen = Seen(*(part[: reading.n] for part in reading.seen))
            parts.append(self._forecast(seen, reading.under))
            done += reading.n
            if (self.relearn is not None and reading.n == left) or self._adaptation.to_be_learned:
                self._learn_again()
        return parts[0] if len(parts) == 1 else Forecast(*map(np.concatenate, zip(*parts)))

    def _read(self, X: np.ndarray, y: np.ndarray, time: Any, stoppable: bool = False) -> Reading:
        ys = ((y - self.y_mean_) / self.y_scale_).reshape(len(y), 1, -1)
        require_finite(ys, "y, in spreads of the first rows,", FAR_OFF)
        posts = [] if self._standing is not None else [self.posterior_]
        reading = self._feed(posts, self._in_model_units(X), ys, time, stoppable)
        self.basis_size_ = len(reading.posts[0])
        return reading

    def _read_one(self, X: Any, y: Any) -> Seen | None:
        """Read a single row and return its prediction; if more is due, do nothing and return None."""
        one = getattr(X, "shape", ())[:1] == (1,)
        if not one or self._live is None or self._held is not None or not self._are_plain(X, y):
            return None
        ys = ((y - self.y_mean_) / self.y_scale_).reshape(1, 1, -1)
        if self.relearn is not None and (self.n_rows_ + 1) % self.relearn == 0:
            return None
        return self._read_row(self._in_model_units(X), ys) if np.abs(ys).max() < FAR_OFF else None

    def _learn_again(self) -> None:
        """Learn kernel, noise and mean from the rows in memory; keep them if these rows are likelier so."""
        adaptation, one = self._adaptation, np.ndim(self.y_mean_) == 0
        self._adaptation = replace(adaptation, unlearned=False)
        assert adaptation.memory is not None
        X, y = adaptation.memory.X, adaptation.memory.y
        if len(X) < FEWEST_REMEMBERED:
            return
        given, noise = not isinstance(self.likelihood, str), noise_of(self.likelihood_)
        data = Data(X, y, np.ones(len(X)), noise if given else 0.1 * float(np.mean(np.var(y, axis=0))))
        start = self._gaussian_start(data, one, given, True, generator(self.random_state))
        learned, mean, kernel = start.fit_result_, start.posterior_.mean_function, start.posterior_.kernel
        old = self.posterior_.mean_function
        if not learned.value > log_evidence(self._kernel, learned.basis, "vfe", noise, X, y, mean=old):
            return
        if type(self.likelihood_) in UNITS and not given:
            self.likelihood_ = self.likelihood_.in_units(float(np.sqrt(learned.noise / noise)))
        assert self._posts is not None
        self._posts = [carried(post, kernel, mean) for post in self._posts]
        self._kernel = kernel

    def _forecast(self, seen: Seen, under: Sequence[tuple[Any, Likelihood]]) -> Forecast:
        """Return the predictions of rows in units of y, with the likelihoods `under` which they were read."""
        mean = seen.mean[:, 0] if np.ndim(self.y_mean_) else seen.mean[:, 0, 0]
        means, stds = np.empty_like(mean), np.empty_like(mean)
        for rows, likelihood in under:
            means[rows], stds[rows] = self._observed(mean[rows], seen.variance[rows, 0], likelihood)
        return Forecast(means, stds, seen.log_density[:, 0] - np.sum(np.log(self.y_scale_)))

    def _observed(
        self, mean: np.ndarray, variance: np.ndarray, likelihood: Likelihood | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of y under a likelihood, or of f without one, in the user's
        units, from mean and variance of f.
        """
        variance = np.maximum(variance, 0.0)  # `predict` has warned if any was far below
        if likelihood is not None:
            mean, variance = likelihood.predict(mean, variance)
        return self._in_user_units(mean), np.sqrt(per_output(variance, self.y_scale_))

    def _new_noise(self) -> Any:
        if self.noise_ is None:
            raise ParameterError(f"y has no known covariance under {self.likelihood_}; ask with latent=True")
        return self.noise_
