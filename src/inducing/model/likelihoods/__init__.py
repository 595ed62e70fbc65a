"""Likelihoods p(y|f) of an observation y given the latent f at its input. [004 eq. 2.42]

    L = log⟨p(y|f)^a⟩ or, for a = 0, ⟨log p(y|f)⟩,   q = ∂L/∂mean,   r = ∂²L/∂mean²,   f ~ N(mean, var)

are all that online learning, expectation propagation and variational inference need of a likelihood. A new
one has to define only log p(y|f). `base` is the base class, `loops` has those compiled for one row at a time.
Imports `numerics` and `errors`.
"""

from collections.abc import Mapping
from typing import Any

from ..parameters import made, read_spec
from .base import Likelihood
from .classes import Binary, Logistic, Ordinal, Probit, Step
from .counts import Beta, Binomial, NegativeBinomial, Poisson
from .custom import Custom, Squared
from .noise import CensoredGaussian, Gaussian, LogVariance
from .outliers import AsymmetricLaplace, Contaminated, Laplace, LogScaleT, StudentT
from .several import Expected, LearnedNoise, LearnedScaleT, SeveralLikelihood, Softmax
from .times import Exponential, Gamma, Weibull

_NAMED: tuple[type[Likelihood], ...] = (
    *(Gaussian, CensoredGaussian, Laplace, AsymmetricLaplace, StudentT, Contaminated),
    *(Probit, Step, Logistic, Ordinal),
    *(Poisson, NegativeBinomial, Binomial, Squared),
    *(Exponential, Gamma, Weibull, Beta),
    *(LearnedNoise, LearnedScaleT, Softmax),
)
BY_NAME: dict[str, type[Likelihood]] = {kind.__name__.lower(): kind for kind in _NAMED}
_OTHERS = Binary, Custom, Expected, Likelihood, LogScaleT, LogVariance, SeveralLikelihood
__all__ = ["BY_NAME", "from_spec", *(kind.__name__ for kind in (*_NAMED, *_OTHERS))]


def from_spec(spec: Mapping[str, Any]) -> Likelihood:
    """Make the likelihood that `likelihood.spec()` described, from plain data."""
    return made(*read_spec("likelihood", spec, BY_NAME))
