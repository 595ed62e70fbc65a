"""Likelihoods of several processes a row: against quadrature in all of them, differences, and limits."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import logsumexp, softmax

from inducing.errors import ParameterError, ShapeError
from inducing.model import likelihoods
from inducing.model.likelihoods import (
    Gaussian,
    LearnedNoise,
    LearnedScaleT,
    Logistic,
    SeveralLikelihood,
    Softmax,
    StudentT,
)

R = np.random.default_rng(0)
N = 7
EVERY: list[tuple[SeveralLikelihood, int, np.ndarray]] = [
    (LearnedNoise(), 2, R.normal(size=N)),
    (LearnedScaleT(4.0), 2, 2.0 * R.normal(size=N)),
    (Softmax(2), 2, R.integers(0, 2, N).astype(float)),
    (Softmax(3), 3, R.integers(0, 3, N).astype(float)),
]
IDS = ["noise", "scale", "two", "three"]
MEANS, VARIANCES = 1.5 * R.normal(size=(N, 3)), R.uniform(0.05, 1.5, (N, 3))


def log_density(likelihood: SeveralLikelihood, y: float, f: np.ndarray) -> np.ndarray:
    """For f (…, c), from SciPy."""
    if isinstance(likelihood, LearnedNoise):
        return stats.norm.logpdf(y, f[..., 0], np.exp(0.5 * f[..., 1]))
    if isinstance(likelihood, LearnedScaleT):
        return stats.t.logpdf(y, likelihood.df, f[..., 0], np.exp(0.5 * f[..., 1]))
    return f[..., int(y)] - logsumexp(f, axis=-1)


def product_rule(c: int, mean: np.ndarray, var: np.ndarray, nodes: int = 90) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Hermite in every direction."""
    t, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()
    f = np.stack(np.meshgrid(*(mean[j] + np.sqrt(var[j]) * t for j in range(c)), indexing="ij"), axis=-1)
    weight = np.ones(())
    for _ in range(c):
        weight = np.multiply.outer(weight, w)
    return f, weight


@pytest.mark.parametrize(("likelihood", "c", "y"), EVERY, ids=IDS)
def test_expectation_by_quadrature_in_all_directions(
    likelihood: SeveralLikelihood, c: int, y: np.ndarray
) -> None:
    got = likelihood.expected(y, MEANS[:, :c], VARIANCES[:, :c])
    assert likelihood.n_processes(y) == c
    for i in range(N):
        f, weight = product_rule(c, MEANS[i], VARIANCES[i])
        values = log_density(likelihood, y[i], f)
        tolerance = 2e-4 if isinstance(likelihood, LearnedScaleT) else 2e-7  # of the product rule
        assert_allclose(got.value[i], np.sum(weight * values), atol=tolerance, rtol=tolerance)
        if not isinstance(likelihood, LearnedScaleT):
            predictive = np.log(np.sum(weight * np.exp(values)))
            got_predictive = likelihood.log_predictive(
                y[i : i + 1], MEANS[i : i + 1, :c], VARIANCES[i : i + 1, :c]
            )
            assert_allclose(got_predictive, predictive, atol=1e-4)


@pytest.mark.parametrize(("likelihood", "c", "y"), EVERY, ids=IDS)
def test_derivatives_by_differences(likelihood: SeveralLikelihood, c: int, y: np.ndarray) -> None:
    means, variances, h = MEANS[:, :c], VARIANCES[:, :c], 1e-4
    got = likelihood.expected(y, means, variances)
    for j in range(c):
        step = np.zeros(c)
        step[j] = h
        down, up = (likelihood.expected(y, means + s * step, variances).value for s in (-1, 1))
        assert_allclose((up - down) / (2 * h), got.q[:, j], rtol=1e-6, atol=1e-6)
        down, up = (likelihood.expected(y, means, variances + s * step).value for s in (-1, 1))
        assert_allclose((up - down) / h, got.r[:, j], rtol=1e-5, atol=1e-5)
    for name, part in likelihood.parameter_gradient(y, means, variances).items():
        value = likelihood.parameters[name]
        down, up = (
            likelihood.with_parameters({name: value + s * h}).expected(y, means, variances).value
            for s in (-1, 1)
        )
        assert_allclose(part, (up - down) / (2 * h), rtol=1e-6, atol=1e-7)


def test_known_noise_is_the_usual_likelihood() -> None:
    rng = np.random.default_rng(100)
    y, means = rng.normal(size=N), np.column_stack([rng.normal(size=N), np.full(N, np.log(0.3))])
    variances = np.column_stack([rng.uniform(0.1, 2.0, N), np.full(N, 1e-14)])
    for several, one in ((LearnedNoise(), Gaussian(0.3)), (LearnedScaleT(3.0), StudentT(3.0, np.sqrt(0.3)))):
        got = several.expected(y, means, variances)
        expected = one.tilted(y, means[:, 0], variances[:, 0], 0.0)
        for a, b in zip((got.value, got.q[:, 0], got.r[:, 0]), expected, strict=True):
            assert_allclose(a, b, rtol=1e-7, atol=1e-9)
        assert_allclose(
            several.log_predictive(y, means, variances),
            one.log_predictive(y, means[:, 0], variances[:, 0]),
            rtol=1e-6,
        )


def test_two_classes_are_the_logistic_of_a_difference() -> None:
    rng = np.random.default_rng(101)
    means, variances = rng.normal(size=(N, 2)), rng.uniform(0.1, 4.0, (N, 2))
    difference = means[:, 1] - means[:, 0], variances.sum(axis=1)
    got = Softmax(2).expected(np.ones(N), means, variances)
    expected = Logistic().tilted(1.0, *difference, 0.0)
    assert_allclose(got.value, expected.log_average, atol=1e-8)
    assert_allclose(got.q[:, 1], expected.q, atol=1e-8)
    assert_allclose(got.r, np.repeat(expected.r[:, None], 2, axis=1), atol=1e-7)
    assert_allclose(
        Softmax(2).probabilities(means, variances)[:, 1], Logistic().probability(*difference), atol=1e-8
    )


def test_the_logistic_of_a_difference_to_nine_digits() -> None:
    difference = np.array([0.7]), np.array([1.0])
    got = Softmax(2).expected(np.zeros(1), np.array([[0.3, -0.4]]), np.array([[0.5, 0.5]]))
    value, q, r = Logistic().tilted(1.0, *difference, 0.0)
    assert_allclose(got.value, value, rtol=0.0, atol=2e-9)
    assert_allclose(got.q[0], [q[0], -q[0]], rtol=0.0, atol=2e-9)
    assert_allclose(got.r[0], [r[0], r[0]], rtol=0.0, atol=2e-9)


@pytest.mark.parametrize("scale", [30.0, 300.0, 1e6])
def test_wide_processes_leave_the_larger_of_two(scale: float) -> None:
    """The probability of a class tends to Φ, and ⟨log Σ exp f⟩ to the mean of the larger."""
    means, variances = scale * np.array([[0.4, -0.8]]), scale**2 * np.array([[1.0, 0.44]])
    share, density = stats.norm.cdf(1.0), stats.norm.pdf(1.0)  # the difference has mean and root 1.2 scale
    got = Softmax(2).expected(np.zeros(1), means, variances)
    assert_allclose(Softmax(2).probabilities(means, variances), [[share, 1.0 - share]], atol=2e-3)
    assert_allclose(got.q, [[1.0 - share, share - 1.0]], atol=2e-3)
    assert_allclose(got.value / scale, -1.2 * (density - (1.0 - share)), atol=4e-3)


def test_two_degrees_of_freedom_have_no_variance() -> None:
    means, variances = np.array([[0.3, -0.4]]), np.array([[0.2, 0.1]])
    mean, variance = LearnedScaleT(2.0).predict(means, variances)
    assert mean[0] == 0.3
    assert np.isposinf(variance[0])


def test_softmax_beats_the_bound() -> None:
    """Below Jensen's and Knowles and Minka's upper bounds of ⟨log Σ exp f⟩, which meet it as var → 0."""
    rng = np.random.default_rng(102)
    for scale in (1e-3, 0.3, 3.0):
        means, variances = rng.normal(size=(5, 4)), scale * rng.uniform(0.5, 1.5, (5, 4))
        average = means[:, 0] - Softmax(4).expected(np.zeros(5), means, variances).value
        tilt = softmax(means, axis=1)
        for _ in range(300):
            tilt = 0.5 * tilt + 0.5 * softmax(means + (0.5 - tilt) * variances, axis=1)
        bound = 0.5 * np.sum(tilt**2 * variances, axis=1) + logsumexp(
            means + (0.5 - tilt) * variances, axis=1
        )
        assert np.all(average <= bound + 1e-9)
        assert np.all(bound - average <= 0.2 * scale**2)


def test_class_probabilities_and_draws() -> None:
    rng = np.random.default_rng(103)
    means, variances = np.array([[0.5, -1.0, 0.2]]), np.array([[0.4, 2.0, 0.01]])
    f = means + np.sqrt(variances) * rng.standard_normal((200_000, 3))
    p = Softmax(3).probabilities(means, variances)[0]
    assert_allclose(softmax(f, axis=1).mean(axis=0), p, atol=0.004)
    drawn = Softmax(3).sample(f, rng)
    assert_allclose([np.mean(drawn == j) for j in range(3)], p, atol=0.005)
    mean, var = Softmax(3).predict(means, variances)
    assert_allclose([mean[0], var[0]], [drawn.mean(), drawn.var()], atol=0.01)


@pytest.mark.parametrize("likelihood", [LearnedNoise(), LearnedScaleT(6.0)])
def test_moments_are_those_of_draws(likelihood: SeveralLikelihood) -> None:
    rng = np.random.default_rng(104)
    means, variances = np.array([[0.3, -0.4]]), np.array([[0.2, 0.1]])
    y = likelihood.sample(means + np.sqrt(variances) * rng.standard_normal((400_000, 2)), rng)
    mean, var = likelihood.predict(means, variances)
    assert_allclose([y.mean(), y.var()], [mean[0], var[0]], atol=0.02)


@pytest.mark.parametrize("classes", [2, 5])
def test_extremes_are_finite(classes: int) -> None:
    for scale, top in itertools.product((1e-60, 1.0, 30.0, 1e6), (0.0, 700.0, 1e49)):
        means = np.zeros((2, classes))
        means[0, 0] = top
        got = Softmax(classes).expected(np.zeros(2), means, np.full((2, classes), scale**2))
        assert all(np.all(np.isfinite(part)) for part in got)
        assert_allclose(got.q.sum(axis=1), 0.0, atol=1e-6)
    for several in (LearnedNoise(), LearnedScaleT(4.0)):
        for scale, top in itertools.product((1e-60, 1.0, 30.0, 1e6), (0.0, 700.0, -700.0, 1e49)):
            got = several.expected(np.zeros(1), np.array([[1.0, top]]), np.full((1, 2), scale**2))
            assert all(np.all(np.isfinite(part)) for part in got)


def test_descriptions_and_refusals() -> None:
    for likelihood, _, _ in EVERY:
        assert likelihoods.from_spec(likelihood.spec()) == likelihood
    with pytest.raises(ShapeError, match=r"\(n, 3\)"):
        Softmax(3).expected(np.zeros(2), np.zeros((2, 2)), np.ones((2, 2)))
    with pytest.raises(ParameterError, match="power 0"):
        LearnedNoise().parameter_gradient(np.zeros(1), np.zeros((1, 2)), np.ones((1, 2)), power=1.0)
