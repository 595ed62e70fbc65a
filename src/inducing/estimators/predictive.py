"""Whole predictive distributions in the user's units, and the questions that one answers."""

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
        """The distribution of a new observation at each row of X: mean, std, pdf, cdf, quantile, interval,
        sample, log_density and crps, in the user's units; `further` are numbers of the rows that the
        likelihood takes, such as exposures.
        """
        raise NotImplementedError

    def predict_quantiles(
        self, X: Any, quantiles: Any = (0.05, 0.5, 0.95), further: Any = None
    ) -> np.ndarray:
        """The values that a new observation stays below with these probabilities. (n, k), or (n,) of one"""
        return self.predict_distribution(X, further).quantile(quantiles)

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """The log density of observations y, (n,) or with the further numbers of the rows (n, 2). (n,)"""
        return self.predict_distribution(X).log_density(y)


class PredictiveClasses:
    """Mixin of classifiers."""

    classes_: np.ndarray

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class at the rows of X. (n, classes)"""
        raise NotImplementedError

    def predict_distribution(self, X: Any) -> ClassDistribution:
        """The distribution of the label at each row of X: probabilities, log_density and, in the order of the
        labels, quantile, crps and the rest.
        """
        return ClassDistribution(self.classes_, self.predict_proba(X))


def distribution_of(
    likelihoods: Sequence[Likelihood], mean: np.ndarray, variance: np.ndarray, center: Any, scale: Any
) -> AnyDistribution:
    """The distribution of y from mean and variance of f in the model's units, by a likelihood for each
    output; `center` and `scale` are numbers, or (p,).
    """
    variance = np.maximum(variance, LEAST_VARIANCE)  # the core has warned of any below rounding
    if np.ndim(scale) == 0:
        return Distribution(likelihoods[0], mean, variance, center, scale)
    mean = mean.reshape(-1, len(scale))
    variance = np.broadcast_to(variance.reshape(len(mean), -1), mean.shape)
    columns = zip(likelihoods, mean.T, variance.T, center, scale, strict=True)
    return OutputDistributions(tuple(Distribution(*column) for column in columns))


def nameless(model: Any) -> Any:
    """A copy of a model that takes features as an array, without the names of their columns."""
    light = copy(model)
    for name in ("feature_names_in_", "encoder_"):
        vars(light).pop(name, None)
    return light


def noise_process(plain: Plain, arrays: Arrays, likelihood: Likelihood | None) -> Posterior | None:
    """The process of learned noise in a record; raise if it is not there, or does not fit the likelihood."""
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
