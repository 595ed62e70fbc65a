"""Hyperparameters of a stream from some of its rows: by a Gaussian regression, then by EP for others."""

import warnings
from typing import Any

import numpy as np

from ..errors import FactorisationError, InducingWarning
from ..inference import selection
from ..inference.online import update
from ..learning.fitting import fit_expectation_propagation
from ..model.bases import Points
from ..model.kernels.base import Kernel
from ..model.likelihoods import Gaussian, Laplace, Likelihood, Poisson, StudentT
from ..model.means import Mean
from ..model.posterior import Posterior, prior
from ..progress import Line
from .preparation import LEARNING_BASIS, Data, bulk
from .regressor import SparseGPRegressor
from .starting import given_kernel, given_priors

UNITS = Gaussian, Laplace, StudentT  # likelihoods with a scale in the units of y


class Teaching:
    """Mixin of `OnlineGPRegressor`: it learns kernel, noise and mean from rows in the model's units."""

    def _gaussian_start(
        self: Any, data: Data, one: bool, given: bool, learn: bool, rng: Any
    ) -> SparseGPRegressor:
        """Learn kernel and noise by a batch regression on these rows; `given` noise stays."""
        names = ("ard", "mean", "restarts", "max_iter", "jitter")
        with Line(True if self.verbose else None, "learn") as progress:
            return SparseGPRegressor(
                given_kernel(self.kernel, self.x_scale_, self.x_mean_),
                # nearest to learning online: what the basis cannot represent is noise
                approximation="vfe",
                n_inducing=min(self._learning_basis(), len(np.unique(data.X, axis=0))),
                basis="points",
                optimize="all" if learn and self.optimize is not None else None,
                recipe="direct",
                noise=data.noise,
                fixed=(*self.fixed, "noise") if given else self.fixed,
                standardize=False,
                priors=given_priors(self.priors, self.kernel, self.x_scale_),
                random_state=int(rng.integers(2**31)),
                progress=progress,
                **{name: getattr(self, name) for name in names},
            ).fit(data.X, data.Y[:, 0] if one else data.Y)

    def _learn(
        self: Any,
        kernel: Kernel,
        likelihood: Likelihood,
        mean: Mean,
        X: np.ndarray,
        y: np.ndarray,
        given: bool,
        rng: Any,
    ) -> tuple[Kernel, Likelihood, Mean]:
        """Learn kernel and mean by EP's evidence, and a scale that is not `given` by Σ log⟨p(y|f)⟩."""
        free = not given and "noise" not in self.fixed and type(likelihood) in UNITS
        if free:
            likelihood = self._best_scale(prior(kernel, mean), likelihood, X, y)
        priors = given_priors(self.priors, kernel, self.x_scale_)
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
                priors={name: p for name, p in (priors or {}).items() if name != "noise"},
                max_iterations=self.max_iter,
                progress=True if self.verbose else None,
                rng=rng,
            )
        except FactorisationError as error:
            text = f"EP could not learn a kernel under {likelihood} ({error}); it is that of Gaussian noise"
            warnings.warn(text, InducingWarning, stacklevel=5)
            return kernel, likelihood, mean
        self.n_iter_ += result.n_iterations
        if free:
            likelihood = self._best_scale(prior(result.kernel, result.mean), likelihood, X, y)
        return result.kernel, likelihood, result.mean

    def _learning_basis(self: Any) -> int:
        return LEARNING_BASIS if self._size is None else min(self._size, LEARNING_BASIS)

    def _best_scale(
        self: Any, start: Posterior, likelihood: Likelihood, X: np.ndarray, y: np.ndarray
    ) -> Likelihood:
        """Return the likelihood with the scale under which one pass over the rows predicts them best."""
        from scipy.optimize import minimize_scalar

        def cost(log_factor: float) -> float:
            trial = likelihood.in_units(np.exp(log_factor))
            return -(update(start, trial, X, y, self._size, self.tolerance).log_predictive or 0.0)

        best = minimize_scalar(cost, bounds=(-4.0, 2.0), method="bounded", options={"xatol": 0.05})
        return likelihood.in_units(float(np.exp(best.x)))


def noise_of(likelihood: Likelihood) -> float:
    """Return the variance of y about f; where that is infinite, the square of the scale."""
    variance = float(likelihood.predict(0.0, 0.0)[1])
    return variance if np.isfinite(variance) else likelihood.scale**2  # type: ignore[attr-defined]


def start_targets(likelihood: Likelihood, y: np.ndarray) -> np.ndarray:
    """Return targets for the Gaussian regression: without outliers, counts by their logarithm. (n, p)"""
    if isinstance(likelihood, Poisson):
        y = np.log(y + 0.5)
    return bulk(y.reshape(len(y), -1), likelihood)
