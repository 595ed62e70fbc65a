"""Mixins of models with whole predictive distributions, in the user's units: quantiles, log densities."""

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from ..errors import ModelFileError
from ..files.records import Arrays, Plain, expect, posterior_from
from ..model.distributions import (
    LEAST_VARIANCE,
    AnyDistribution,
    ClassDistribution,
    Distribution,
    OutputDistributions,
)
from ..model.likelihoods import LearnedNoise, Likelihood
from ..model.posterior import Posterior


class Predictive:
    """Mixin of models that know the distribution of a new observation."""

    def predict_distribution(self, X: Any, further: Any = None) -> Any:
        """Return the distribution of a new observation at each row of X: mean, std, pdf, cdf, quantile,
        interval, sample, log_density and crps, in the user's units; `further` are the likelihood's other data
        of the rows, such as exposures.
        """
        raise NotImplementedError

    def predict_quantiles(
        self, X: Any, quantiles: Any = (0.05, 0.5, 0.95), further: Any = None
    ) -> np.ndarray:
        """Return the quantiles of a new observation at these probabilities. (n, k), or (n,) for one"""
        return self.predict_distribution(X, further).quantile(quantiles)

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """Return the log density of observations y (n,), or (n, 2) with exposures or the like. (n,)"""
        return self.predict_distribution(X).log_density(y)


class PredictiveClasses:
    """Mixin of classifiers: the distribution of the label from its probabilities."""

    classes_: np.ndarray

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class at the rows of X. (n, classes)"""
        raise NotImplementedError

    def predict_distribution(self, X: Any) -> ClassDistribution:
        """Return the distribution of the label at each row of X: probabilities, log_density and, in the order
        of the labels, quantile, crps and the rest.
        """
        return ClassDistribution(self.classes_, self.predict_proba(X))


def distribution_of(
    likelihoods: Sequence[Likelihood], mean: np.ndarray, variance: np.ndarray, center: Any, scale: Any
) -> AnyDistribution:
    """Return the distribution of y from mean and variance of f in the model's units, with a likelihood for
    each output; `center` and `scale` of y are numbers, or (p,).
    """
    variance = np.maximum(variance, LEAST_VARIANCE)  # `predict` has warned if any was far below
    if np.ndim(scale) == 0:
        return Distribution(likelihoods[0], mean, variance, center, scale)
    mean = mean.reshape(-1, len(scale))
    variance = np.broadcast_to(variance.reshape(len(mean), -1), mean.shape)
    columns = zip(likelihoods, mean.T, variance.T, center, scale, strict=True)
    return OutputDistributions(tuple(Distribution(*column) for column in columns))


def nameless(model: Any) -> Any:
    """Return a copy of a model that takes features as an array, without the names of their columns."""
    light = copy(model)
    for name in ("feature_names_in_", "encoder_"):
        vars(light).pop(name, None)
    return light


def noise_process(plain: Plain, arrays: Arrays, likelihood: Likelihood | None) -> Posterior | None:
    """Return the process of learned noise in a record, or None; raise if it does not fit the likelihood."""
    spec = plain.get("noise_posterior")
    if (spec is None) == isinstance(likelihood, LearnedNoise):
        raise ModelFileError("its likelihood and its processes do not fit together")
    if spec is None:
        return None
    own = {name.removeprefix("noise."): a for name, a in arrays.items() if name.startswith("noise.")}
    second = posterior_from(spec, own)
    Z = next(iter(second.basis.parameters.values()))
    d = next(arrays[f"basis.{name}"].shape[1] for name in ("Z", "centers") if f"basis.{name}" in arrays)
    expect(second.one_output and Z.shape[1] == d, "noise.w", second.w)
    return second
