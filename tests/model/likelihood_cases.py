"""Every likelihood with parameters and observations, and its log density from SciPy or from a textbook."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.special import comb, expit, gammaincc, gammaln, log_expit, logsumexp

from inducing.model.likelihoods import (
    AsymmetricLaplace,
    Beta,
    Binomial,
    CensoredGaussian,
    Contaminated,
    Exponential,
    Gamma,
    Gaussian,
    Laplace,
    Likelihood,
    Logistic,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Probit,
    Squared,
    Step,
    StudentT,
    Weibull,
)


class Case(NamedTuple):
    likelihood: Likelihood
    y: float | tuple[float, float]  # one observation, or it and a further number
    log_density: Callable[[np.ndarray], np.ndarray]  # of f
    bends: tuple[float, ...]  # values of f where it is not smooth on the scale of f's spread


def asymmetric(e: np.ndarray, scale: float, level: float) -> np.ndarray:
    return np.log(level * (1 - level) / scale) - e * np.where(e > 0, level, level - 1) / scale


def contaminated(e: np.ndarray, variance: float, share: float, inflation: float) -> np.ndarray:
    narrow = np.log1p(-share) + stats.norm.logpdf(e, 0, np.sqrt(variance))
    wide = np.log(share) + stats.norm.logpdf(e, 0, np.sqrt(inflation * variance))
    return np.logaddexp(narrow, wide)


def between(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """log(Φ(high) - Φ(low))"""
    flip = low + high > 0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    logs = stats.norm.logcdf(np.stack([high, low]))
    return logsumexp(logs, axis=0, b=np.array([[1.0], [-1.0]]).reshape(2, *[1] * (logs.ndim - 1)))


def negative_binomial(y: int, shape: float, z: np.ndarray) -> np.ndarray:
    """z = log(mean/shape)"""
    ways = gammaln(y + shape) - gammaln(shape) - gammaln(y + 1)
    return ways + y * log_expit(z) + shape * log_expit(-z)


def binomial(y: int, trials: int, f: np.ndarray) -> np.ndarray:
    return np.log(comb(trials, y)) + y * log_expit(f) + (trials - y) * log_expit(-f)


def weibull(y: float, shape: float, f: np.ndarray, censored: bool) -> np.ndarray:
    survivors = -((y * np.exp(-f)) ** shape)
    return survivors if censored else survivors + np.log(shape / y) + shape * (np.log(y) - f)


def gamma(y: float, shape: float, f: np.ndarray) -> np.ndarray:
    rate = shape * np.exp(-f)
    return shape * (np.log(shape) - f) + (shape - 1) * np.log(y) - rate * y - gammaln(shape)


def log_upper_gamma(a: float, x: np.ndarray) -> np.ndarray:
    """log Q(a, x), from its asymptotic series where it underflows."""
    far = np.maximum(x, 60.0)
    series, term = np.zeros_like(far), np.ones_like(far)
    for i in range(1, 25):
        series, term = series + term, term * (a - i) / far
    tail = (a - 1) * np.log(far) - far - gammaln(a) + np.log(series)
    return np.where(x > 60.0, tail, np.log(gammaincc(a, np.minimum(x, 60.0))))


def beta(y: float, f: np.ndarray, precision: float) -> np.ndarray:
    return stats.beta.logpdf(y, expit(f) * precision, expit(-f) * precision)


CASES: list[Case] = [
    Case(Gaussian(0.3), 1.2, lambda f: stats.norm.logpdf(1.2, f, np.sqrt(0.3)), (1.2,)),
    Case(CensoredGaussian(0.3), 0.4, lambda f: stats.norm.logpdf(0.4, f, np.sqrt(0.3)), (0.4,)),
    Case(CensoredGaussian(0.3), (0.4, 1.0), lambda f: stats.norm.logsf(0.4, f, np.sqrt(0.3)), (0.4,)),
    Case(CensoredGaussian(0.3), (0.4, -1.0), lambda f: stats.norm.logcdf(0.4, f, np.sqrt(0.3)), (0.4,)),
    Case(Laplace(0.4), 1.2, lambda f: stats.laplace.logpdf(1.2, f, 0.4), (1.2,)),
    Case(AsymmetricLaplace(0.3, 0.8), 0.7, lambda f: asymmetric(0.7 - f, 0.3, 0.8), (0.7,)),
    Case(StudentT(3.0, 0.2), 1.2, lambda f: stats.t.logpdf(1.2, 3.0, f, 0.2), (1.2,)),
    Case(StudentT(40.0, 0.5), -2.0, lambda f: stats.t.logpdf(-2.0, 40.0, f, 0.5), (-2.0,)),
    Case(Contaminated(0.1, 0.1, 25.0), 1.0, lambda f: contaminated(1.0 - f, 0.1, 0.1, 25.0), (1.0,)),
    Case(Probit(0.7), -1.0, lambda f: stats.norm.logcdf(-f / np.sqrt(0.7)), (0.0,)),
    Case(Step(0.05), 1.0, lambda f: np.where(f > 0, np.log(0.95), np.log(0.05)), (0.0,)),
    Case(Logistic(), 1.0, log_expit, (0.0,)),
    Case(
        Ordinal(-0.5, (0.8, 2.0), 0.3), 0.0, lambda f: stats.norm.logcdf((-0.5 - f) / np.sqrt(0.3)), (-0.5,)
    ),
    Case(
        Ordinal(-0.5, (0.8, 2.0), 0.3),
        2.0,
        lambda f: between((0.3 - f) / np.sqrt(0.3), (2.3 - f) / np.sqrt(0.3)),
        (0.3, 2.3),
    ),
    Case(Ordinal(-0.5, (0.8, 2.0), 0.3), 3.0, lambda f: stats.norm.logsf((2.3 - f) / np.sqrt(0.3)), (2.3,)),
    Case(Poisson(), 3.0, lambda f: 3 * f - np.exp(f) - gammaln(4), (1.0,)),
    Case(Poisson(), (2.0, 7.5), lambda f: 2 * (f + np.log(7.5)) - 7.5 * np.exp(f) - np.log(2), (-2.0,)),
    Case(Poisson(), (0.0, 0.3), lambda f: -0.3 * np.exp(f), (1.0,)),
    Case(
        NegativeBinomial(1.7), (4.0, 2.5), lambda f: negative_binomial(4, 1.7, f + np.log(2.5 / 1.7)), (0.5,)
    ),
    Case(NegativeBinomial(20.0), 0.0, lambda f: negative_binomial(0, 20.0, f - np.log(20.0)), (0.0,)),
    Case(Binomial(), (3.0, 11.0), lambda f: binomial(3, 11, f), (-1.0,)),
    Case(Binomial(), (9.0, 9.0), lambda f: binomial(9, 9, f), (2.0,)),
    Case(Exponential(), 2.2, lambda f: weibull(2.2, 1.0, f, False), (0.8,)),
    Case(Exponential(), (2.2, 1.0), lambda f: weibull(2.2, 1.0, f, True), (0.8,)),
    Case(Gamma(2.5), 1.4, lambda f: gamma(1.4, 2.5, f), (0.3,)),
    Case(Gamma(2.5), (1.4, 1.0), lambda f: log_upper_gamma(2.5, 2.5 * 1.4 * np.exp(-f)), (0.3,)),
    Case(Weibull(1.8), 0.6, lambda f: weibull(0.6, 1.8, f, False), (-0.5,)),
    Case(Weibull(1.8), (0.6, 1.0), lambda f: weibull(0.6, 1.8, f, True), (-0.5,)),
    Case(Beta(6.0), 0.3, lambda f: beta(0.3, f, 6.0), (-0.8,)),
    Case(Squared(), 1.5, lambda f: 3.0 * np.log(np.abs(f)), (0.0,)),
]
IDS = [f"{type(case.likelihood).__name__}{i}" for i, case in enumerate(CASES)]
POWERS = (0.0, 0.5, 1.0)


def rows(y: float | tuple[float, float], n: int) -> np.ndarray:
    """The observation n times. (n,) or (n, 2)"""
    return np.tile(np.asarray(y, dtype=float), (n, 1) if isinstance(y, tuple) else n)


def refined(logs: Callable[[np.ndarray], np.ndarray], edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and log weights of panels that are halved until each agrees with its halves."""
    low, high = edges[:-1], edges[1:]
    nodes, weights = np.polynomial.legendre.leggauss(32)

    def panels(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        half = 0.5 * (high - low)[:, None]
        f = low[:, None] + half * (1.0 + nodes)
        with np.errstate(divide="ignore"):  # of halves without a length
            return f, logs(f) + np.log(half * weights)

    for _ in range(20):
        middle = 0.5 * (low + high)
        parts = [panels(*ends)[1] for ends in ((low, high), (low, middle), (middle, high))]
        top = max(np.max(part) for part in parts)
        whole, first, second = (np.sum(np.exp(part - top), axis=1) for part in parts)
        rough = np.abs(first + second - whole) > 1e-14 * np.sum(first + second)
        rough &= (low < middle) & (middle < high)
        if not np.any(rough):
            break
        low, high = (
            np.concatenate([low[~rough], low[rough], middle[rough]]),
            np.concatenate([high[~rough], middle[rough], high[rough]]),
        )
    f, log_weight = panels(low, high)
    return f.ravel(), log_weight.ravel()
