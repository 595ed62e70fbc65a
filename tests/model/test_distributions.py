"""Predictive distributions: ranked probability scores of every likelihood against quadrature from SciPy's
conditional distributions, and what one value answers.
"""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import beta, expit, softmax

import inducing as ig
from inducing.errors import LabelError, ParameterError, ShapeError
from inducing.model import likelihoods as L
from inducing.model.distributions import ClassDistribution, Distribution, OutputDistributions

T = np.linspace(-7.0, 7.0, 281)
WEIGHTS = np.exp(-0.5 * T * T) / np.sum(np.exp(-0.5 * T * T))
MEAN, VAR = 0.4, 0.3
F = MEAN + np.sqrt(VAR) * T  # nodes of f

Conditional = Callable[[np.ndarray, np.ndarray], np.ndarray]


def asymmetric(x: np.ndarray, f: np.ndarray, scale: float, level: float) -> np.ndarray:
    e = (x - f) / scale
    low, high = np.exp(np.minimum((1 - level) * e, 0)), np.exp(np.minimum(-level * e, 0))
    return np.where(e < 0, level * low, 1 - (1 - level) * high)


REAL: dict[L.Likelihood, Conditional] = {
    L.Gaussian(0.2): lambda x, f: stats.norm.cdf(x, f, np.sqrt(0.2)),
    L.CensoredGaussian(0.2): lambda x, f: stats.norm.cdf(x, f, np.sqrt(0.2)),
    L.Laplace(0.3): lambda x, f: stats.laplace.cdf(x, f, 0.3),
    L.AsymmetricLaplace(0.2, 0.2): lambda x, f: asymmetric(x, f, 0.2, 0.2),
    L.StudentT(3.0, 0.2): lambda x, f: stats.t.cdf(x, 3.0, f, 0.2),
    L.Contaminated(0.04, 0.1, 25.0): lambda x, f: (
        0.9 * stats.norm.cdf(x, f, 0.2) + 0.1 * stats.norm.cdf(x, f, 1.0)
    ),
    L.Exponential(): lambda x, f: stats.expon.cdf(x, scale=np.exp(f)),
    L.Gamma(2.5): lambda x, f: stats.gamma.cdf(x, 2.5, scale=np.exp(f) / 2.5),
    L.Weibull(1.7): lambda x, f: stats.weibull_min.cdf(x, 1.7, scale=np.exp(f)),
    L.Beta(6.0): lambda x, f: stats.beta.cdf(x, 6.0 * expit(f), 6.0 * expit(-f)),
}
COUNTED: dict[L.Likelihood, Conditional] = {
    L.Poisson(): lambda x, f: stats.poisson.cdf(x, np.exp(f)),
    L.NegativeBinomial(2.0): lambda x, f: stats.nbinom.cdf(x, 2.0, 2.0 / (2.0 + np.exp(f))),
    L.Ordinal(-0.5, (0.7, 0.8), 0.5): lambda x, f: stats.norm.cdf(
        np.array([-0.5, 0.2, 1.0, np.inf])[np.minimum(x.astype(int), 3)], f, np.sqrt(0.5)
    ),
}
BINARY = (L.Probit(0.7), L.Logistic(), L.Step(0.1))


def reference(cdf: Conditional, y: float, low: float, high: float) -> float:
    """∫ (F(x) - 1{y ≤ x})² dx by the trapezoidal rule on either side of y."""
    total = 0.0
    for end, above in ((low, False), (high, True)):
        x = y + (end - y) * np.linspace(0.0, 1.0, 4001) ** 3
        values = cdf(x[:, None], F) @ WEIGHTS
        total += abs(float(np.trapezoid((1.0 - values if above else values) ** 2, x)))
    return total


@pytest.mark.parametrize("likelihood", REAL, ids=lambda k: type(k).__name__)
def test_crps_of_real_numbers_against_quadrature(likelihood: L.Likelihood) -> None:
    positive = isinstance(likelihood, L.Exponential | L.Gamma | L.Weibull | L.Beta)
    low, high = (
        (1e-12, 1.0 - 1e-12 if isinstance(likelihood, L.Beta) else 300.0) if positive else (-60.0, 60.0)
    )
    for y in (0.3, 0.9) if isinstance(likelihood, L.Beta) else (0.3, 2.5):
        expected = reference(REAL[likelihood], y, low, high)
        assert_allclose(likelihood.crps(y, MEAN, VAR), expected, rtol=3e-5)


@pytest.mark.parametrize("likelihood", COUNTED, ids=lambda k: type(k).__name__)
def test_crps_of_counts_is_a_sum(likelihood: L.Likelihood) -> None:
    k = np.arange(4.0) if isinstance(likelihood, L.Ordinal) else np.arange(400.0)
    values = COUNTED[likelihood](k[:, None], F) @ WEIGHTS
    for y in (0.0, 3.0):
        assert_allclose(likelihood.crps(y, MEAN, VAR), np.sum((values - (y <= k)) ** 2), rtol=1e-8)


def test_crps_of_successes_large_counts_and_labels() -> None:
    k = np.arange(9.0)
    values = stats.binom.cdf(k[:, None], 8, expit(F)) @ WEIGHTS
    score = L.Binomial().crps(np.array([[3.0, 8.0]]), np.array([MEAN]), np.array([VAR]))
    assert_allclose(score, np.sum((values - (k >= 3)) ** 2), rtol=1e-8)
    k = np.arange(60_000.0)  # in blocks
    f = 9.0 + 0.1 * T
    values = stats.poisson.cdf(k[:, None], np.exp(f)) @ WEIGHTS
    assert_allclose(L.Poisson().crps(8500.0, 9.0, 0.01), np.sum((values - (k >= 8500)) ** 2), rtol=1e-4)
    for likelihood in BINARY:
        p = float(likelihood.probability(MEAN, VAR))
        assert_allclose(likelihood.crps(np.array([1.0, -1.0]), MEAN, VAR), [2 * (1 - p) ** 2, 2 * p**2])


def test_crps_of_several_processes() -> None:
    means, variances = np.array([[0.4, -1.0]]), np.array([[0.3, 0.5]])
    g = means[0, 1] + np.sqrt(variances[0, 1]) * T[:, None]

    def noisy(x: np.ndarray, _: np.ndarray) -> np.ndarray:
        wide = np.sqrt(variances[0, 0] + np.exp(g.T))
        return stats.norm.cdf(x, means[0, 0], wide)

    def robust(x: np.ndarray, f: np.ndarray) -> np.ndarray:
        scales = np.exp(0.5 * g[::8])
        parts = stats.t.cdf(x[..., None], 4.0, f[:, None], scales.T)
        return parts @ (WEIGHTS[::8] / WEIGHTS[::8].sum())

    for y in (0.1, 2.0):
        score = L.LearnedNoise().crps(np.array([y]), means, variances)
        assert_allclose(score, reference(noisy, y, -60.0, 60.0), rtol=3e-5)
    x = np.concatenate([np.linspace(-25, 0.5, 400), np.linspace(0.5, 25, 400)])
    values = robust(x[:, None], F) @ WEIGHTS
    expected = np.trapezoid(values[:400] ** 2, x[:400]) + np.trapezoid((1 - values[400:]) ** 2, x[400:])
    assert_allclose(L.LearnedScaleT(4.0).crps(np.array([0.5]), means, variances), expected, rtol=3e-3)
    rng = np.random.default_rng(0)
    f = np.array([0.3, -0.2, 0.5]) + np.sqrt([0.2, 0.4, 0.1]) * rng.standard_normal((200_000, 3))
    below = np.cumsum(softmax(f, axis=1).mean(axis=0))
    score = L.Softmax(3).crps(np.array([1.0]), np.array([[0.3, -0.2, 0.5]]), np.array([[0.2, 0.4, 0.1]]))
    assert_allclose(score, below[0] ** 2 + (1 - below[1]) ** 2, rtol=1e-2)


def test_far_and_narrow_scores_are_distances() -> None:
    """Far from a narrow distribution the score is the distance; at its own place it is small."""
    for likelihood in (L.StudentT(4.0, 1e-6), L.Laplace(1e-6), L.AsymmetricLaplace(1e-6, 0.3)):
        assert_allclose(likelihood.crps(100.0, 0.0, 1e-12), 100.0, rtol=1e-5)
        assert 0.0 < float(likelihood.crps(0.0, 0.0, 1e-12)) < 1e-5


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12, 1e30])
def test_scores_of_any_scale(scale: float) -> None:
    """Where f is next to known, by the formulas of Laplace's and of Student's t with 4 degrees of freedom."""
    z, df = 0.7, 4.0
    flat = z + np.exp(-z) - 0.75
    pull = 2.0 * stats.t.pdf(z, df) * (df + z * z) / (df - 1.0)
    spread = 2.0 * np.sqrt(df) / (df - 1.0) * beta(0.5, df - 0.5) / beta(0.5, 0.5 * df) ** 2
    heavy = z * (2.0 * stats.t.cdf(z, df) - 1.0) + pull - spread
    for likelihood, expected in ((L.Laplace(scale), flat), (L.StudentT(df, scale), heavy)):
        assert_allclose(likelihood.crps(z * scale, 0.0, 1e-14 * scale**2), expected * scale, rtol=1e-9)


def test_next_to_no_degrees_of_freedom_leave_a_half_on_either_side() -> None:
    likelihood = L.StudentT(2e-9, 0.3)
    assert_allclose(likelihood.cumulative(np.array([-1e3, 0.2, 50.0]), 0.4, 1.0), 0.5, atol=1e-7)


@pytest.mark.parametrize("likelihood", [L.Gaussian(0.2), L.StudentT(5.0, 0.3), L.Gamma(3.0), L.Poisson()])
def test_a_distribution_agrees_with_itself(likelihood: L.Likelihood) -> None:
    mean, variance = np.array([0.4, -0.3, 1.0]), np.array([0.3, 0.01, 0.1])
    scaled = likelihood.located
    d = Distribution(likelihood, mean, variance, 10.0 if scaled else 0.0, 3.0 if scaled else 1.0)
    p = np.array([0.1, 0.5, 0.9])
    q = d.quantile(p)
    assert q.shape == (3, 3) and len(d) == 3
    assert_allclose(d.quantile(0.5), q[:, 1])
    assert_allclose(d.interval(0.8), q[:, [0, 2]])
    if isinstance(likelihood, L.Poisson):
        assert np.all(d.cdf(q) >= p) and np.all(np.where(q > 0, d.cdf(np.maximum(q - 1, 0)), 0) < p)
    else:
        assert_allclose(d.cdf(q), np.broadcast_to(p, (3, 3)), atol=1e-8)
        h = 1e-4
        assert_allclose((d.cdf(q + h) - d.cdf(q - h)) / (2 * h), d.pdf(q), rtol=1e-5)
    assert_allclose(np.log(d.pdf(q[:, 1])), d.log_density(q[:, 1]))
    draws = d.sample(40_000, rng=1)
    assert_allclose(draws.mean(axis=1), d.mean, atol=5 * np.max(d.std) / 200)
    assert_allclose(draws.std(axis=1), d.std, rtol=0.05)
    y = q[:, 2]
    pairs = np.abs(draws[:, :20_000] - draws[:, 20_000:]).mean(axis=1)
    assert_allclose(d.crps(y), np.abs(draws - y[:, None]).mean(axis=1) - 0.5 * pairs, rtol=0.05)
    with pytest.raises(ShapeError, match="number"):
        d.cdf([1.0, 2.0])


def test_distributions_of_labels_and_of_outputs() -> None:
    p = np.array([[0.2, 0.5, 0.3], [0.7, 0.2, 0.1]])
    d = ClassDistribution(np.array(["a", "b", "c"]), p)
    assert d.quantile(0.5).tolist() == ["b", "a"] and d.quantile([0.1, 0.95]).tolist() == [["a", "c"]] * 2
    assert_allclose(d.log_density(["b", "c"]), np.log([0.5, 0.1]))
    assert_allclose(d.crps(["b", "c"]), [0.2**2 + 0.3**2, 0.7**2 + 0.9**2])
    assert_allclose(d.cdf("b"), [0.7, 0.9])
    with pytest.raises(LabelError, match="not one of"):
        d.log_density(["b", "z"])
    with pytest.raises(ParameterError, match="no mean"):
        d.mean  # noqa: B018
    numbers = ClassDistribution(np.array([0, 1, 5]), p)
    assert_allclose(numbers.mean, [2.0, 0.7])
    draws = numbers.sample(20_000, rng=0)
    assert_allclose(draws.std(axis=1), numbers.std, rtol=0.05)
    each = tuple(Distribution(L.Gaussian(v), np.array([0.0, 1.0]), np.array([0.1, 0.2])) for v in (1.0, 2.0))
    both = OutputDistributions(each)
    y = np.array([[0.1, 0.2], [0.3, 0.4]])
    for name in ("cdf", "pdf", "log_density", "crps"):
        expected = np.stack([getattr(own, name)(y[:, q]) for q, own in enumerate(each)], axis=1)
        assert_allclose(getattr(both, name)(y), expected)
    assert both.mean.shape == both.std.shape == (2, 2) and both.quantile([0.1, 0.9]).shape == (2, 2, 2)
    assert both.interval(0.5).shape == (2, 2, 2) and both.sample(3, rng=0).shape == (2, 2, 3)


def test_metrics_are_those_of_the_distribution() -> None:
    rng = np.random.default_rng(0)
    y, mean, var = rng.standard_normal(50), rng.standard_normal(50), rng.uniform(0.2, 2.0, 50)
    d = Distribution(L.Gaussian(0.1), mean, var - 0.1)
    assert_allclose(ig.metrics.crps(y, mean, var), np.mean(d.crps(y)), rtol=1e-12)
    low, high = d.interval(0.8).T
    outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    assert_allclose(ig.metrics.interval_score(y, low, high, 0.8), np.mean(high - low + 10.0 * outside))
    with pytest.raises(ParameterError, match="between"):
        ig.metrics.interval_score(y, low, high, 1.0)
