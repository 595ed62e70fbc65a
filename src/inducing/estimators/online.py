"""`OnlineGPRegressor`: regression from a stream, each row read once, under scikit-learn's contract."""

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ..errors import (
    FactorisationError,
    InducingWarning,
    LabelError,
    ModelFileError,
    ParameterError,
    ShapeError,
    UnknownNameError,
)
from ..files.records import Arrays, Plain
from ..inference import selection
from ..inference.carrying import carried
from ..inference.online import Seen, update
from ..inference.regression import log_evidence
from ..learning.fitting_ep import fit_expectation_propagation
from ..model import means
from ..model.bases import Points
from ..model.distributions import AnyDistribution
from ..model.kernels import with_periods
from ..model.kernels.base import Kernel
from ..model.likelihoods import BY_NAME, Binary, Gaussian, Laplace, Likelihood, Poisson, StudentT
from ..model.means import Mean, Zero
from ..model.posterior import Posterior, prior
from ..model.problem import as_inputs
from ..numerics.arrays import FAR_OFF, LARGEST_TARGET, require_finite
from ..progress import Line
from ..streams.feeding import all_or_nothing, most_informative_rows
from ..streams.memory import FEWEST_REMEMBERED, Memory
from .base import RENAMED, Estimator, Regression, Sized, generator
from .predictive import Predictive, distribution_of
from .preparation import LEARNING_BASIS, Data, bulk, per_output
from .regressor import SparseGPRegressor
from .streaming import Streaming, times_of

LIKELIHOOD_NAMES = "gaussian", "laplace", "studentt", "poisson"  # whose scale, if any, can be learned
MEMORY_ROWS = 1000  # half-life of the memory where only drift calls for it
UNITS = Gaussian, Laplace, StudentT  # what they have is in units of y


class Forecast(NamedTuple):
    """The prediction of each row just before it was read; NaN for the rows of the warm-up."""

    mean: np.ndarray  # (n,) or (n, p), of y
    std: np.ndarray
    log_density: np.ndarray  # (n,): of y under the whole predictive distribution


@dataclass(eq=False, repr=False)
class OnlineGPRegressor(RegressorMixin, Predictive, Regression, Streaming, Sized, Estimator):
    """Sparse Gaussian process regression from a stream: each row is read once, in O(n_inducing²). [004 ch. 3]

    `fit` takes units and hyperparameters from the rows it is given and then reads them once. `partial_fit`
    reads more, from what `fit` left or from nothing: then the first `warmup` rows, in one batch or many, set
    the units and teach the hyperparameters. Until so many have come the rows are kept, and the model starts
    again from all of them whenever their number has doubled, with the kernel as it would start; from then on
    nothing is kept but the model. A batch is never cut in two, and one that cannot be used changes nothing.

    Units are as in `SparseGPRegressor`: `noise`, `likelihood`, predictions and `noise_` in the user's;
    `kernel`, `kernel_`, `mean`, `fixed`, `priors`, `posterior_` and `likelihood_` in those of the
    standardised data.

    Parameters
    ----------
    kernel : a Kernel, or the name of a stationary one with a lengthscale for each input; None is "rbf".
    n_inducing : how many basis functions, at most; None is no limit.
    likelihood : "gaussian", "laplace" and "studentt" (for outliers), whose scale is learned, "poisson" (for
        counts), or one from `inducing.likelihoods`, taken as it is. y is standardised where the likelihood
        knows its units: not for counts.
    noise : variance of the noise to start from, for a likelihood given by name.
    mean : a prior mean from `inducing.means`; None is the average of y, for counts the logarithm of their
        average.
    tolerance, removal_score, order : as for `inducing.update`, there score. order="information" looks at all
        rows of a batch before it reads each.
    optimize : "hyperparameters", or None to take kernel and noise as they start.
    half_life : rows, or units of `time` where `partial_fit` is given that, after which what was read counts
        half; "auto" weighs four of them by what they predict; None forgets nothing. Where something is
        forgotten, a noise level that is learned follows the stream, too.
    on_drift : what an alarm does beside a DriftWarning: nothing ("warn"), what was read counts little
        ("forget") or nothing ("reset"), or little and the model is learned again after 200 rows ("relearn").
    relearn : rows after which kernel, noise and mean are learned again from a memory of 500 rows, those that
        taught most; None is never. What was read is carried over.
    warmup : how many rows `partial_fit` takes units and hyperparameters from.
    learning_rows : how many rows, at most, drawn at random, hyperparameters are learned from.
    max_iter, restarts, jitter, fixed, priors : of the learning, as for `inducing.fit`.
    random_state : seed of the learning.
    verbose : 1 always shows progress; else terminals see it after two seconds.

    Attributes
    ----------
    posterior_ : the Posterior of the standardised data.
    kernel_, likelihood_, basis_size_, n_iter_ (of the learning, at least 1), n_features_in_,
        feature_names_in_ (from data frames), x_mean_, x_scale_, y_mean_, y_scale_.
    noise_ : variance of y about f, a number or one per output; None for counts and likelihoods of your own.
    half_lives_ : the weight of each half-life. n_drifts_, drifts_ : how many alarms, the rows of the last.
    n_rows_ : how many rows were read. warming_up_ : whether units and hyperparameters may still change.
    log_predictive_ : Σ log p(y | rows before), in the units of y, since the units were set.
    """

    kernel: Kernel | str | None = None
    n_inducing: int | None = 100
    _: KW_ONLY
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

    def fit(self, X: Any, y: Any, time: Any = None) -> Self:
        """Learn from X (n, d) and y (n,), or (n, p) under Gaussian noise. Ctrl-C keeps what was read. `time`
        (n,), where half_life is in its units, never falls.
        """
        with all_or_nothing(self):
            X, y = self._checked(X, y, reset=True)
            self.__dict__.pop("metadata_", None)
            self._held = None
            self._begin(X, y, learn=True, time=times_of(time, X), stoppable=True)
        return self

    def partial_fit(self, X: Any, y: Any, time: Any = None) -> Self:
        """Read more rows, once and in order."""
        self.predict_then_fit(X, y, time)
        return self

    def predict_then_fit(self, X: Any, y: Any, time: Any = None) -> Forecast:
        """`partial_fit`, and the prediction of each row just before it was read."""
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
        if not return_std and (latent or type(self.likelihood_) in UNITS):  # f's mean is y's
            return self._in_user_units(self._mean(Xs))
        mean, variance = self.posterior_.predict(Xs)
        mean, std = self._observed(mean, variance, latent)
        return (mean, std) if return_std else mean

    def predict_distribution(self, X: Any, further: Any = None) -> AnyDistribution:
        if further is not None:
            raise ParameterError("a stream has no further numbers of its rows; leave `further` out")
        mean, variance = self.posterior_.predict(self._queries(X))
        each = [self.likelihood_] * np.size(self.y_scale_)
        return distribution_of(each, mean, variance, self.y_mean_, self.y_scale_)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, latent: bool = False) -> np.ndarray:
        """Draws of new observations at X, sharing a draw of f, or of f(X) itself. (n, s) or (n, p, s)"""
        Xs, rng = self._queries(X), generator(random_state)
        f = np.moveaxis(self.posterior_.sample(Xs, n_samples, rng), 0, -1)
        y = f if latent else self.likelihood_.sample(f, rng)
        scale, mean = (v if np.ndim(v) == 0 else v[:, None] for v in (self.y_scale_, self.y_mean_))
        return y * scale + mean

    def query(self, X: Any, n: int = 1) -> np.ndarray:
        """Choose the n rows of X whose y would teach the model most, the best first. (n,) [004 §3.8.1]"""
        check_is_fitted(self)
        if type(self.likelihood_) not in UNITS:
            raise ParameterError(f"the gain of a row without its y is not known for {self.likelihood_}")
        w = self.posterior_.w[:, :1]  # of one output and without a mean, since variance is all
        post = replace(self.posterior_, w=w, one_output=True, mean_function=Zero())
        return most_informative_rows([post], Gaussian(_noise_of(self.likelihood_)), self._queries(X), n)

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
            raise ModelFileError(f"it is a regression with {self.likelihood_}")

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Rows to learn from: numbers, and targets as the likelihood knows them."""
        if not reset and self._are_plain(X, y):
            return X, y
        likelihood = self._start_likelihood()
        several = isinstance(likelihood, Gaussian)
        X, y = self._validated(X, y, reset=reset, multi_output=several, y_numeric=True)
        return as_inputs(X), likelihood.check(y)

    def _are_plain(self, X: Any, y: Any) -> bool:
        """Whether rows are finite arrays just as the model takes them, which is soon seen."""
        right = type(X) is np.ndarray is type(y) and X.dtype == y.dtype == np.float64
        right = (
            right and X.shape[1:] == (self.n_features_in_,) and y.shape == (len(X), *np.shape(self.y_mean_))
        )
        right = right and type(self.likelihood_) in UNITS and not hasattr(self, "feature_names_in_")
        return right and len(X) > 0 and bool(np.isfinite(np.sum(X)) and np.max(np.abs(y)) < LARGEST_TARGET)

    def _start_likelihood(self) -> Likelihood:
        """The likelihood as given, in the units of y."""
        likelihood = self.likelihood
        if isinstance(likelihood, str) and likelihood.lower() in LIKELIHOOD_NAMES:
            return BY_NAME[likelihood.lower()]()
        if not isinstance(likelihood, Likelihood):
            raise UnknownNameError(
                f"likelihood must be one of {', '.join(LIKELIHOOD_NAMES)}, or an object, not {likelihood!r}"
            )
        if isinstance(likelihood, Binary):
            raise LabelError(f"{likelihood} is for classes: use SparseGPClassifier, which reads streams, too")
        if self.noise is not None:
            raise ParameterError(f"noise={self.noise} and {likelihood} both say what it is; give one of them")
        return likelihood

    def _begin(
        self, X: np.ndarray, y: np.ndarray, *, learn: bool, time: Any = None, stoppable: bool = False
    ) -> None:
        if self.optimize not in (None, "hyperparameters"):
            raise UnknownNameError(f"optimize must be 'hyperparameters' or None, not {self.optimize!r}")
        if self._size is not None and (isinstance(self._size, bool) or self._size < 1):
            raise ParameterError(f"n_inducing must be a whole number from 1 on, or None, not {self._size!r}")
        likelihood, given = self._start_likelihood(), not isinstance(self.likelihood, str)
        scaled = type(likelihood) in UNITS
        noise = _noise_of(likelihood) if given and scaled else self.noise
        columns = _start_targets(likelihood, y)
        data, scaling = Data(X, columns, np.ones(len(X)), noise).standardised(self.standardize)
        one, rng = y.ndim == 1, generator(self.random_state)
        self._set_units(scaling, one)
        if not scaled:
            self.y_mean_, self.y_scale_ = 0.0, 1.0
        rows = np.sort(rng.permutation(len(X))[: self.learning_rows])
        start = self._gaussian_start(data[rows], one, given, learn, rng)
        kernel, mean = start.kernel_, start.posterior_.mean_function
        self.n_iter_ = max(1, start.n_iter_)
        if isinstance(likelihood, Gaussian):
            likelihood = Gaussian(float(start.fit_result_.noise))
        else:
            if scaled:
                learned = float(np.sqrt(float(start.fit_result_.noise) / _noise_of(likelihood)))
                likelihood = likelihood.in_units(1.0 / scaling.y_scale[0] if given else learned)
            elif self.mean is None and isinstance(likelihood, Poisson):
                mean = means.Constant(float(np.log(max(np.mean(y), 0.5 / len(y)))))
            if learn and self.optimize is not None:
                targets = (y[rows] - self.y_mean_) / self.y_scale_
                problem = kernel, likelihood, mean, data.X[rows], targets
                kernel, likelihood, mean = self._learn(*problem, given, rng)
        self.kernel_, self.likelihood_, self.n_rows_, self._begun_with = kernel, likelihood, 0, len(X)
        self._adapt_again()
        post = prior(kernel, mean)
        self.posterior_ = post if one else replace(post, w=np.zeros((0, y.shape[1])), one_output=False)
        self._read(X, y, time, stoppable)

    def _gaussian_start(self, data: Data, one: bool, given: bool, learn: bool, rng: Any) -> SparseGPRegressor:
        """Learn kernel and noise by a batch regression on these rows."""
        names = ("mean", "restarts", "max_iter", "jitter", "priors")
        with Line(True if self.verbose else None, "learn") as progress:
            return SparseGPRegressor(
                with_periods(self.kernel, self.x_scale_),
                # nearest to what is learned online: everything that the basis cannot hold is noise
                approximation="vfe",
                n_inducing=min(self._learning_basis(), len(np.unique(data.X, axis=0))),
                basis="points",
                optimize="all" if learn and self.optimize is not None else None,
                recipe="direct",
                noise=data.noise,
                fixed=(*self.fixed, "noise") if given else self.fixed,
                standardize=False,
                random_state=int(rng.integers(2**31)),
                progress=progress,
                **{name: getattr(self, name) for name in names},
            ).fit(data.X, data.Y[:, 0] if one else data.Y)

    def _learn(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        mean: Mean,
        X: np.ndarray,
        y: np.ndarray,
        given: bool,
        rng: Any,
    ) -> tuple[Kernel, Likelihood, Mean]:
        """Learn kernel and mean from a Gaussian start by EP's evidence, the scale by Σ log⟨p(y|f)⟩."""
        free = not given and "noise" not in self.fixed and type(likelihood) in UNITS
        if free:
            likelihood = self._best_scale(prior(kernel, mean), likelihood, X, y)
        try:
            result = fit_expectation_propagation(
                kernel,
                Points(selection.kmeans(X, self._learning_basis(), rng)),
                likelihood,
                X,
                y,
                optimize="hyperparameters",
                mean=mean,
                jitter=self.jitter,
                fixed=[name for name in self.fixed if name != "noise"],
                priors={name: p for name, p in (self.priors or {}).items() if name != "noise"},
                max_iterations=self.max_iter,
                progress=True if self.verbose else None,
                rng=rng,
            )
        except FactorisationError as error:
            text = f"EP learned no kernel under {likelihood} ({error}); this is the one of Gaussian noise"
            warnings.warn(text, InducingWarning, stacklevel=5)
            return kernel, likelihood, mean
        self.n_iter_ += result.n_iterations
        if free:
            likelihood = self._best_scale(prior(result.kernel, result.mean), likelihood, X, y)
        return result.kernel, likelihood, result.mean

    def _learning_basis(self) -> int:
        return LEARNING_BASIS if self._size is None else min(self._size, LEARNING_BASIS)

    def _best_scale(
        self, start: Posterior, likelihood: Likelihood, X: np.ndarray, y: np.ndarray
    ) -> Likelihood:
        from scipy.optimize import minimize_scalar

        def cost(log_factor: float) -> float:
            trial = likelihood.in_units(np.exp(log_factor))
            return -(update(start, trial, X, y, self._size, self.tolerance).log_predictive or 0.0)

        best = minimize_scalar(cost, bounds=(-4.0, 2.0), method="bounded", options={"xatol": 0.05})
        return likelihood.in_units(float(np.exp(best.x)))

    def _adapt_again(self) -> None:
        free = isinstance(self.likelihood, str) and "noise" not in self.fixed
        follows = free and self.half_life is not None and type(self.likelihood_) in UNITS
        if self.relearn is None and self.on_drift != "relearn":
            return self._adapt(follows)
        if self.relearn is not None and (isinstance(self.relearn, bool) or self.relearn < 1):
            raise ParameterError(f"relearn must be a number of rows from 1 on, or None, not {self.relearn!r}")
        d, p = len(self.x_mean_), np.size(self.y_mean_)
        return self._adapt(follows, Memory.empty(self.relearn or MEMORY_ROWS, d, p))

    def _read_on(self, X: np.ndarray, y: np.ndarray, time: np.ndarray | None) -> Forecast:
        done, parts = 0, list[Forecast]()
        while done < len(X) or not parts:
            left = len(X) if self.relearn is None else self.relearn - self.n_rows_ % self.relearn
            rows = slice(done, done + left)
            seen, n = self._read(X[rows], y[rows], None if time is None else time[rows])
            parts.append(self._forecast(Seen(*(part[:n] for part in seen))))
            done += n
            if (self.relearn is not None and n == left) or self._adaptation.to_be_learned:
                self._learn_again()
        return parts[0] if len(parts) == 1 else Forecast(*map(np.concatenate, zip(*parts)))

    def _read(self, X: np.ndarray, y: np.ndarray, time: Any, stoppable: bool = False) -> tuple[Seen, int]:
        ys = ((y - self.y_mean_) / self.y_scale_).reshape(len(y), 1, -1)
        require_finite(ys, "y, in spreads of the first rows,", FAR_OFF)
        (post,), seen, n = self._feed([self.posterior_], self._in_model_units(X), ys, time, stoppable)
        self.posterior_, self.basis_size_ = post, len(post)
        return seen, n

    def _learn_again(self) -> None:
        """Learn kernel, noise and mean from the rows remembered; keep them if that makes these likelier."""
        adaptation, one = self._adaptation, np.ndim(self.y_mean_) == 0
        self._adaptation = replace(adaptation, unlearned=False)
        assert adaptation.memory is not None
        X, y = adaptation.memory.X, adaptation.memory.y
        if len(X) < FEWEST_REMEMBERED:
            return
        given, noise = not isinstance(self.likelihood, str), _noise_of(self.likelihood_)
        data = Data(X, y, np.ones(len(X)), noise if given else 0.1 * float(np.mean(np.var(y, axis=0))))
        start = self._gaussian_start(data, one, given, True, generator(self.random_state))
        learned, mean = start.fit_result_, start.posterior_.mean_function
        here, old = (learned.basis, "vfe"), self.posterior_.mean_function
        if not learned.value > log_evidence(self.kernel_, *here, noise, X, y, mean=old):
            return
        if type(self.likelihood_) in UNITS and not given:
            self.likelihood_ = self.likelihood_.in_units(float(np.sqrt(learned.noise / noise)))
        self._posts = [carried(post, start.kernel_, mean) for post in self._posts or [self.posterior_]]
        (self.posterior_,), self.kernel_ = adaptation.matched(self._posts), start.kernel_

    def _forecast(self, seen: Seen) -> Forecast:
        mean = seen.mean[:, 0] if np.ndim(self.y_mean_) else seen.mean[:, 0, 0]
        log_density = seen.log_density[:, 0] - np.sum(np.log(self.y_scale_))
        return Forecast(*self._observed(mean, seen.variance[:, 0]), log_density)

    def _observed(
        self, mean: np.ndarray, variance: np.ndarray, latent: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of y, or of f, in the user's units, from mean and variance of f."""
        variance = np.maximum(variance, 0.0)  # the core has warned of any below rounding
        if not latent:
            mean, variance = self.likelihood_.predict(mean, variance)
        return self._in_user_units(mean), np.sqrt(per_output(variance, self.y_scale_))

    def _new_noise(self) -> Any:
        if self.noise_ is None:
            raise ParameterError(f"y has no known covariance under {self.likelihood_}; ask with latent=True")
        return self.noise_


def _noise_of(likelihood: Likelihood) -> float:
    """The variance of y about f; where there is none, the square of the scale."""
    variance = float(likelihood.predict(0.0, 0.0)[1])
    return variance if np.isfinite(variance) else likelihood.scale**2  # type: ignore[attr-defined]


def _start_targets(likelihood: Likelihood, y: np.ndarray) -> np.ndarray:
    """The targets of a Gaussian start: without outliers, counts on the scale of f. (n, p)"""
    if isinstance(likelihood, Poisson):
        y = np.log(y + 0.5)
    return bulk(y.reshape(len(y), -1), likelihood)
