"""`Observing`: predictions of y under any likelihood: means, intervals, draws, left-out rows, sensitivity."""

from functools import cached_property
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..errors import ParameterError
from ..files.records import Arrays, Plain, array, expect, posterior_record
from ..inference.left_out import Jackknife, LeftOut, left_out_of, upper_quantile
from ..inference.pic import PICPredictor
from ..inference.sensitivity import Sobol, sobol_indices
from ..learning.diagnosis import Diagnosis
from ..model import likelihoods
from ..model.distributions import AnyDistribution, Observations, checked_level
from ..model.likelihoods import Gaussian, Likelihood
from ..model.paths import Paths
from ..model.posterior import Posterior
from ..model.problem import Problem, scatter
from ..numerics.arrays import to_numpy
from .base import Estimator, Regression, generator
from .guide import refuse_guided
from .judging import require_one_model
from .predictive import Predictive, distribution_of, noise_process
from .preparation import fitted_problem, per_output
from .reasons import Reasons


class Observing(Predictive, Reasons, Regression, Estimator):
    """Base of a regressor whose observations have Gaussian noise, another likelihood, or learned noise."""

    noise_posterior_: Posterior | None  # of the log variance of the noise, where that is learned
    _likelihood: Likelihood | None  # in the model's units; None is Gaussian noise
    _rows: Any  # X, y and weights of the fit, None for coregionalised outputs, sources and loaded models
    _long: Any  # the same for coregionalised outputs, with a column for the output
    models_: list[Any] | None = None  # one for each of independent outputs

    @property
    def likelihood_(self) -> Any:
        """The likelihood, its parameters in the units of y; None is Gaussian noise of variance `noise_`. For
        independent outputs a list with one for each.
        """
        if self.models_ is not None:
            return [m.likelihood_ for m in self.models_]
        return None if self._likelihood is None else self._likelihood.in_units(self.y_scale_)

    @property
    def observations_(self) -> Observations:
        """The distribution of new observations, in units of the standardised data."""
        if isinstance(self.posterior_, PICPredictor) or np.ndim(self.y_scale_) > 0:
            raise ParameterError("the distribution of y needs one target, and not approximation='pic'")
        likelihood = self._likelihood
        if likelihood is None:
            likelihood = Gaussian(self._new_noise() / self.y_scale_**2)
        second = () if self.noise_posterior_ is None else (self.noise_posterior_,)
        return Observations(likelihood, (self.posterior_, *second))

    def _distribution(self, Xs: Any, further: Any = None) -> AnyDistribution:
        """Return the distribution of a new observation at each row in the model's units."""
        if self._likelihood is not None:
            return self.observations_.at(Xs, further, self.y_mean_, self.y_scale_)
        mean, variance = (to_numpy(a) for a in self._ask("predict", Xs))
        noise = np.ravel(self._new_noise() / np.square(self.y_scale_))
        each = [Gaussian(float(v)) for v in np.broadcast_to(noise, np.size(self.y_scale_))]
        variance = self._scattered(np.maximum(variance, 0.0), Xs)
        return distribution_of(each, mean, variance, self.y_mean_, self.y_scale_)

    def predict_interval(
        self, X: Any, level: float = 0.9, conformal: str | None = None, further: Any = None
    ) -> np.ndarray:
        """Return the ends of an interval that holds a new observation with probability `level`. (n, 2)

        By default the ends are quantiles of the model, and as right as it is. conformal="jackknife+" uses the
        leave-one-out errors of the training rows instead, and "split" those of the rows given to `calibrate`:
        "split" then covers a share `level` of rows like these whatever their distribution.
        """
        checked_level(level)
        if conformal is None:
            return self.predict_distribution(X, further).interval(level)
        if conformal == "split":
            if not hasattr(self, "scores_"):
                raise ParameterError("conformal='split' needs rows not fitted to: call calibrate(X, y)")
            y = self.predict_distribution(X, further)
            reach = float(upper_quantile(self.scores_, level)) * y.std
            return np.stack([y.mean - reach, y.mean + reach], axis=1)
        if conformal != "jackknife+":
            raise ParameterError(f"conformal must be None, 'jackknife+' or 'split', not {conformal!r}")
        if self.models_ is not None:
            return np.stack([m.predict_interval(X, level, conformal) for m in self.models_], axis=1)
        Xs = to_numpy(self._queries(X))
        return self._jackknife.interval(Xs, level) * self.y_scale_ + self.y_mean_

    def calibrate(self, X: Any, y: Any) -> Self:
        """Set `scores_` for conformal="split": errors of rows that were not fitted to, in units of their
        predicted standard deviations.
        """
        mean, std = self.predict(X, return_std=True)
        y = np.asarray(y, dtype=float)
        if mean.ndim != 1 or y.shape != mean.shape:
            raise ParameterError(f"calibrate takes one target for each of {len(mean)} rows, not {y.shape}")
        self.scores_ = np.sort(np.abs(y - mean) / std)
        return self

    @property
    def loo_(self) -> LeftOut:
        """Leave-one-out predictions of the fitted rows, in their order and in the units of y: `mean`, `std`,
        `log_density`. Kernel and basis are held, nothing is fitted again.
        """
        P = self._problem
        left = left_out_of(P)
        if self.noise_posterior_ is not None:
            mean, variance = (to_numpy(a) for a in self.noise_posterior_.predict(P.X))
            left = left.with_noise(to_numpy(P.noise), np.exp(mean + 0.5 * variance))
        of_y = self._likelihood is None or self._likelihood.located
        scale = self.y_scale_ if of_y else 1.0
        return LeftOut(
            left.mean * scale + (self.y_mean_ if of_y else 0.0),
            per_output(left.variance, scale),
            left.log_density - float(np.mean(np.log(scale))),
            left.error * scale,
        )

    @cached_property
    def _jackknife(self) -> Jackknife:
        return Jackknife.of(self._problem)

    @property
    def _problem(self) -> Problem:
        check_is_fitted(self)
        likelihood = self._likelihood if self.noise_posterior_ is None else None  # f had Gaussian noise then
        return fitted_problem(self, getattr(self, "_rows", None), likelihood, getattr(self, "_centres", None))

    def paths(self, size: int = 1, random_state: Any = 0) -> Paths:
        """Draw whole functions f, to be called at any X: values (size, n), `gradient` (size, n, d)."""
        check_is_fitted(self)
        require_one_model(self, "Whole functions")
        refuse_guided(self, "there are no paths of")
        if not isinstance(self.posterior_, Posterior):
            needs = "a model that needs its rows at every query"
            raise ParameterError(f"there are no whole functions of {needs}; fit 'fitc'")
        units = self.x_mean_, self.x_scale_, self.y_mean_, self.y_scale_
        return self.posterior_.paths(size, generator(random_state)).in_units(*units)

    def sobol_indices(self, low: Any = None, high: Any = None, random_state: Any = 0) -> Sobol:
        """Return the share of the variance of f due to each input alone (`first`) and with others (`total`),
        with standard deviations, for inputs uniform from `low` to `high`; by default uniform with the mean
        and standard deviation of the training rows.
        """
        check_is_fitted(self)
        require_one_model(self, "Sobol indices")
        refuse_guided(self, "there are no Sobol indices of")
        ends = [
            np.full(self.n_features_in_, side) if given is None else self._in_model_units(np.ravel(given))
            for given, side in ((low, -np.sqrt(3.0)), (high, np.sqrt(3.0)))
        ]
        process = self.posterior_ if isinstance(self.posterior_, Posterior) else self.paths()
        return sobol_indices(process, *ends, rng=generator(random_state))

    def _marginals(self, X: np.ndarray, return_std: bool, latent: bool) -> Any:
        Xs = self._in_model_units(X)
        if return_std and not latent:
            y = self._distribution(Xs)
            return y.mean, y.std
        if not latent and self._likelihood is not None and not self._likelihood.centred:
            return self._distribution(Xs).mean
        if not return_std:
            return self._in_user_units(self._mean(Xs))
        mean, variance = (to_numpy(a) for a in self._ask("predict", Xs))
        variance = np.maximum(variance, 0.0)  # `predict` has warned if any was far below
        mean = self._in_user_units(mean)
        if self.kinds_.output is not None:
            return mean, np.sqrt(variance).reshape(mean.shape) * self.y_scale_
        return mean, np.sqrt(per_output(variance, self.y_scale_))

    def _scattered(self, variance: np.ndarray, Xs: Any) -> np.ndarray:
        """Return the variances of f at uncertain inputs, from those of its average over them. (n,)"""
        return variance + to_numpy(scatter(self._kernel, Xs)) if self.kinds_.way == "variances" else variance

    def _joint(self, X: np.ndarray, latent: bool) -> tuple[np.ndarray, np.ndarray]:
        likelihood = self._likelihood
        if likelihood is None or latent:
            return super()._joint(X, latent)
        if not likelihood.located:
            raise ParameterError(f"y has no joint covariance under {likelihood}; pass latent=True")
        covariance = super()._joint(X, True)[1]
        y, rows = self._distribution(self._in_model_units(X)), np.arange(len(X))
        covariance[rows, rows] = y.std**2
        return y.mean, covariance

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, latent: bool = False, further: Any = None
    ) -> np.ndarray:
        """Draw new observations at X, or f(X) with latent=True, jointly. (n, s) or (n, p, s)"""
        if self.models_ is not None:
            seeds = np.random.default_rng(random_state).integers(2**31, size=len(self.models_))
            each = [m.sample_y(X, n_samples, int(s), latent, further) for m, s in zip(self.models_, seeds)]
            return np.stack(each, axis=1)
        rng = generator(random_state)
        if self._likelihood is not None and not latent:
            draws = self.observations_.sample(self._queries(X), n_samples, rng, further)
            return draws.T * self.y_scale_ + self.y_mean_
        check_is_fitted(self)
        mean, covariance = self._joint(self._validated(X, reset=False), latent)

        def draw(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
            return rng.multivariate_normal(mean, covariance, n_samples, check_valid="ignore", method="eigh").T

        if mean.ndim == 1 or covariance.ndim == 4:
            size = mean.size
            return draw(mean.ravel(), covariance.reshape(size, size)).reshape(*mean.shape, n_samples)
        return np.stack([draw(mean[:, q], covariance[:, :, q]) for q in range(mean.shape[1])], axis=1)

    def _observing_record(self) -> tuple[Plain, Arrays]:
        """Return the record of likelihood, learned noise, report, number of rows and conformal scores."""
        check_is_fitted(self)
        report: Any = getattr(self, "report_", None)
        plain: Plain = {"likelihood": None if self._likelihood is None else self._likelihood.spec()}
        plain["report"] = report.to_json() if isinstance(report, Diagnosis) else report
        plain["n_rows"] = getattr(self, "n_rows_", None)
        own = {"scores": self.scores_} if hasattr(self, "scores_") else {}
        if self.noise_posterior_ is None:
            return plain, own
        second, arrays = posterior_record(self.noise_posterior_)
        own |= {f"noise.{name}": a for name, a in arrays.items()}
        return plain | {"noise_posterior": second}, own

    def _restore_observing(self, plain: Plain, arrays: Arrays) -> None:
        """Set the attributes that `_observing_record` recorded; older files have fewer."""
        spec, report = plain.get("likelihood"), plain.get("report")
        if report is not None:
            self.report_ = Diagnosis.from_json(report) if isinstance(report, dict) else str(report)
        if plain.get("n_rows") is not None:
            self.n_rows_ = int(plain["n_rows"])
        self._likelihood = None if spec is None else likelihoods.from_spec(spec)
        self.noise_posterior_ = noise_process(plain, arrays, self._likelihood)
        if "scores" in arrays:
            self.scores_ = array(arrays, "scores", 1)
            expect(bool(np.all(np.diff(self.scores_) >= 0)), "scores", self.scores_)
