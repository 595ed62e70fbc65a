"""What y will be: means, variances, quantiles and draws of every likelihood."""

import numpy as np
import pytest
from likelihood_cases import CASES, IDS, Case
from numpy.testing import assert_allclose

from inducing.errors import ParameterError
from inducing.model.likelihoods import (
    Binomial,
    Custom,
    Gaussian,
    Likelihood,
    Logistic,
    Ordinal,
    Poisson,
    Squared,
    Step,
    StudentT,
)

MEAN, VAR, SIZE = 0.3, 0.2, 400_000
DRAWN = [case for case in CASES if not isinstance(case.likelihood, Squared)]
DRAWN_IDS = [name for name, case in zip(IDS, CASES) if not isinstance(case.likelihood, Squared)]


def draws(likelihood: Likelihood, further: float | None = None) -> np.ndarray:
    r = np.random.default_rng(0)
    f = MEAN + np.sqrt(VAR) * r.standard_normal(SIZE)
    return likelihood.sample(f, r, None if further is None else np.full(SIZE, further))


@pytest.mark.parametrize("case", DRAWN, ids=DRAWN_IDS)
def test_moments_are_those_of_draws(case: Case) -> None:
    y = draws(case.likelihood)
    mean, var = case.likelihood.predict(MEAN, VAR)
    heavy = isinstance(case.likelihood, StudentT)
    assert_allclose(y.mean(), mean, atol=5 * np.sqrt(var / SIZE))
    assert_allclose(y.var(), var, rtol=0.2 if heavy else 0.03)
    assert case.likelihood.predict(np.zeros(3), np.ones(3))[1].shape == (3,)


@pytest.mark.parametrize("p", [0.02, 0.5, 0.9])
@pytest.mark.parametrize("case", DRAWN, ids=DRAWN_IDS)
def test_quantiles_are_those_of_draws(case: Case, p: float) -> None:
    """A share p of the draws, within four standard errors, lies at the quantile or below; of discrete ones
    it is the first with so many.
    """
    y, quantile = draws(case.likelihood), case.likelihood.quantile(p, MEAN, VAR)
    error = 4 * np.sqrt(p * (1 - p) / SIZE)
    assert np.mean(y <= quantile) >= p - error
    assert np.mean(y < quantile) <= p + error
    stacked = case.likelihood.quantile(np.array([0.1, p]), np.array([[0.0], [MEAN]]), VAR)
    assert stacked.shape == (2, 2)
    assert_allclose(stacked[1, 1], quantile, rtol=1e-10)


@pytest.mark.parametrize("case", DRAWN, ids=DRAWN_IDS)
def test_cumulative_is_that_of_draws(case: Case) -> None:
    y = draws(case.likelihood)
    at = np.quantile(y, 0.7)
    rows = np.array([[at, 1.0]]) if isinstance(case.likelihood, Binomial) else at
    got = case.likelihood.cumulative(rows, MEAN, VAR)
    assert_allclose(got, np.mean(y <= at), atol=4 * np.sqrt(0.25 / SIZE))


def test_further_numbers_of_predictions() -> None:
    for likelihood, further in ((Poisson(), 3.5), (Binomial(), 12.0)):
        y = draws(likelihood, further)
        mean, var = likelihood.predict(MEAN, VAR, further)
        assert_allclose([y.mean(), y.var()], [mean, var], rtol=0.01)
        quantile = likelihood.quantile(0.8, MEAN, VAR, np.array([further]))
        assert np.mean(y <= quantile) >= 0.8 - 0.003 and np.mean(y < quantile) <= 0.8 + 0.003


@pytest.mark.parametrize("df", [0.1, 0.5, 1.0, 4.0, 30.0, 1e6])
def test_distribution_under_student_t_is_an_integral(df: float) -> None:
    """As a mixture of Gaussians, or for few degrees of freedom on nodes, beside SciPy's integral over f."""
    from scipy import integrate, stats

    likelihood = StudentT(df, 0.7)
    for mean, sd, y in ((0.0, 1e-6, 1.0), (0.3, 0.7, -3.0), (0.0, 2.0, -40.0), (0.0, 1e2, 3.0)):

        def below(t: float, mean: float = mean, sd: float = sd, y: float = y) -> float:
            return float(stats.norm.pdf(t) * stats.t.cdf((y - mean - sd * t) / 0.7, df))

        kink = [(y - mean) / sd] if abs(y - mean) < 10.0 * sd else None
        dense = integrate.quad(below, -12.0, 12.0, points=kink, limit=500, epsabs=1e-13)[0]
        assert_allclose(likelihood.cumulative(y, mean, sd**2), dense, rtol=0.0, atol=1e-11)


def test_probabilities_of_classes_sum_to_one() -> None:
    mean, var = np.linspace(-9, 9, 7), np.linspace(0.1, 4.0, 7)
    p = Ordinal(-1.0, (0.5, 3.0), 0.2).probabilities(mean, var)
    assert p.shape == (7, 4)
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    label, spread = Logistic().predict(mean, var)
    assert_allclose(label, 2 * Logistic().probability(mean, var) - 1)
    assert_allclose(spread, 1 - label**2)


def test_no_observation_from_a_function() -> None:
    custom = Custom(lambda y, f: -((y - f) ** 2))
    for ask in (
        lambda: custom.predict(0.0, 1.0),
        lambda: custom.sample(np.zeros(2), np.random.default_rng(0)),
        lambda: custom.quantile(0.5, 0.0, 1.0),
    ):
        with pytest.raises(ParameterError, match="ask about f|draw f"):
            ask()
    assert Gaussian(0.3).log_predictive(1.0, 0.2, 0.5) == Gaussian(0.3).log_average(1.0, 0.2, 0.5)


@pytest.mark.parametrize("trials", [None, 1.0, 7.0])
def test_successes_of_so_many_trials(trials: float | None) -> None:
    """Mean and variance by the laws of total expectation and variance, one trial where none are told."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    p = 1.0 / (1.0 + np.exp(-(0.4 + np.sqrt(0.8) * nodes)))
    weights = weights / weights.sum()
    n, first, second = trials or 1.0, weights @ p, weights @ (p * p)
    further = None if trials is None else np.array([trials])
    mean, var = Binomial().predict(np.array([0.4]), np.array([0.8]), further)
    assert_allclose(mean, n * first, rtol=1e-8)
    assert_allclose(var, n * (first - second) + n * n * (second - first**2), rtol=1e-7)


@pytest.mark.parametrize("flip", [0.1, 0.3])
def test_the_sides_of_a_step(flip: float) -> None:
    assert_allclose(Step(flip)._sides(0.0), [np.log(1.0 - flip), np.log(flip)], rtol=1e-14)
    assert_allclose(Step(flip)._sides(0.5), [np.sqrt(1.0 - flip), np.sqrt(flip)], rtol=1e-14)
