"""Averages of p(y|f)^a and of log p(y|f) of every likelihood: against Gauss-Legendre on thousands of nodes,
against differences, and against each other.
"""

from typing import Any

import numpy as np
import pytest
from likelihood_cases import CASES, IDS, POWERS, Case, rows
from numpy.testing import assert_allclose

from inducing.model.likelihoods import (
    AsymmetricLaplace,
    Contaminated,
    Custom,
    Gaussian,
    Laplace,
    Logistic,
    Probit,
    Squared,
    StudentT,
)

GRID = [(0.3, 0.5), (-2.0, 1e-3), (1.5, 9.0), (-4.0, 0.8), (0.9, 40.0)]
NODES, WEIGHTS = np.polynomial.legendre.leggauss(30)


def reference(case: Case, mean: float, var: float, power: float) -> tuple[float, float, float]:
    """L, q and r from the moments of N(mean, var) p^a, or from those of N(mean, var) with log p."""
    scale = np.sqrt(var)
    near = np.concatenate([b + s * 10.0 ** np.arange(-14, 3, 0.25) for b in case.bends for s in (-1, 1)])
    reach = scale * (18.0 if power == 0.0 else 38.0)  # where f grows as exp f, var counts √var beyond 10
    edges = np.unique(np.concatenate([mean + reach * np.linspace(-1, 1, 153), case.bends, near]))
    edges = edges[np.abs(edges - mean) <= reach]
    half, middle = 0.5 * np.diff(edges)[:, None], 0.5 * (edges[1:] + edges[:-1])[:, None]
    f, weight = (middle + half * NODES).ravel(), (half * WEIGHTS).ravel()
    t = (f - mean) / scale
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        value = case.log_density(f)
        prior = weight * np.exp(-0.5 * t * t) / (scale * np.sqrt(2 * np.pi))
        if power == 0.0:
            value = np.where(prior > 0, value, 0.0)
            average = prior @ value
            return average, prior @ (t * value) / scale, prior @ ((t * t - 1) * (value - average)) / var
        g = power * value - 0.5 * t * t
        top = np.max(g)
        density = weight * np.exp(g - top)
    mass = density.sum()
    centre = density @ t / mass
    spread = density @ (t - centre) ** 2 / mass
    log_mass = top + np.log(mass) - np.log(scale) - 0.5 * np.log(2 * np.pi)
    return log_mass, centre / scale, (spread - 1) / var


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_averages(case: Case, power: float) -> None:
    """In units of the spread of f."""
    expected = np.array([reference(case, m, v, power) for m, v in GRID]).T
    mean, var = np.array(GRID).T
    got = case.likelihood.tilted(rows(case.y, len(mean)), mean, var, power)
    for part, target, unit in zip(got, expected, (1.0, np.sqrt(var), var), strict=True):
        assert_allclose(part * unit, target * unit, rtol=2e-9, atol=2e-9)


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_derivatives_by_differences(case: Case, power: float) -> None:
    """q and r in the mean, and at power 0 r in the variance."""
    likelihood, h = case.likelihood, 1e-3
    mean, var = np.array([-0.9, 0.2, 1.7]), np.array([0.4, 1.0, 2.5])
    y = rows(case.y, 3)
    down, here, up = (likelihood.log_average(y, mean + step, var, power) for step in (-h, 0.0, h))
    q, r = likelihood.derivatives(y, mean, var, power)
    assert_allclose((up - down) / (2 * h), q, atol=2e-5, rtol=1e-5)
    assert_allclose((up - 2 * here + down) / h**2, r, atol=1e-4, rtol=1e-4)
    if power == 0.0:
        down, up = (likelihood.expected_log(y, mean, var + step) for step in (-h, h))
        assert_allclose((up - down) / h, r, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_parameter_gradient_by_differences(case: Case, power: float) -> None:
    likelihood, y = case.likelihood, rows(case.y, 4)
    mean, var = np.array([-0.9, 0.2, 1.7, 0.5]), np.array([0.4, 1.0, 2.5, 0.01])
    gradient = likelihood.parameter_gradient(y, mean, var, power)
    assert tuple(gradient) == likelihood.names
    for name, value in likelihood.parameters.items():
        h = 1e-4 * abs(value)
        moved = (likelihood.with_parameters({name: value + step}) for step in (-h, h))
        down, up = (other.log_average(y, mean, var, power) for other in moved)
        assert_allclose(gradient[name], (up - down) / (2 * h), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_gradient_of_the_density_by_differences(case: Case) -> None:
    likelihood, y, f = case.likelihood, rows(case.y, 4), np.array([-1.31, 0.12, 0.93, 2.4])
    try:
        gradient = likelihood.log_density_gradient(y, f)
    except NotImplementedError:
        assert likelihood.names in ((), ("flip",))
        return
    for name, value in likelihood.parameters.items():
        h = 1e-4 * abs(value)
        down, up = (likelihood.with_parameters({name: value + s}).log_density(y, f) for s in (-h, h))
        assert_allclose(gradient[name], (up - down) / (2 * h), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_density_and_its_slopes(case: Case) -> None:
    f, h = np.array([-1.31, 0.12, 0.93, 2.4]), 1e-4
    y = rows(case.y, 4)
    assert_allclose(case.likelihood.log_density(y, f), case.log_density(f), rtol=1e-11, atol=1e-12)
    try:
        value, slope, bend = case.likelihood.log_density_slopes(y, f)
    except NotImplementedError:
        assert isinstance(case.likelihood, Squared) or case.likelihood.names == ("flip",)
        return
    down, here, up = (case.log_density(f + step) for step in (-h, 0.0, h))
    assert_allclose(value, here, rtol=1e-11, atol=1e-12)
    assert_allclose(slope, (up - down) / (2 * h), rtol=1e-6, atol=1e-6)
    assert_allclose(bend, (up - 2 * here + down) / h**2, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_power_zero_is_the_limit_and_jensen_holds(case: Case) -> None:
    """L_a/a → ⟨log p⟩, which is no more than log⟨p⟩."""
    mean, var = np.array([-0.9, 0.2, 0.7]), np.array([0.1, 0.2, 0.4])
    y, a = rows(case.y, 3), 1e-5
    expected = case.likelihood.expected_log(y, mean, var)
    assert_allclose(case.likelihood.log_average(y, mean, var, a) / a, expected, rtol=1e-3, atol=1e-3)
    assert np.all(expected <= case.likelihood.log_predictive(y, mean, var) + 1e-12)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_concavity_is_as_declared(case: Case) -> None:
    mean, var = np.repeat(np.linspace(-6.0, 6.0, 25), 3), np.tile([1e-3, 1.0, 20.0], 25)
    y = rows(case.y, len(mean))
    for power in POWERS:
        r = case.likelihood.tilted(y, mean, var, power).r
        assert not case.likelihood.log_concave or np.all(r * var <= 1e-9)
        assert power == 0.0 or np.all(1.0 + var * r > 0.0)


@pytest.mark.parametrize("power", [0.05, 0.5, 1.0, 3.0])
def test_gaussian_powers_are_gaussian(power: float) -> None:
    """N(y; f, σ²)^a = N(y; f, σ²/a) (2πσ²)^(-a/2) (2πσ²/a)^½."""
    y, mean, var, noise = np.array([0.3, -2.0]), np.array([1.0, 0.1]), np.array([0.2, 3.0]), 0.7
    whole = Gaussian(noise / power).tilted(y, mean, var)
    constant = -0.5 * power * np.log(2 * np.pi * noise) + 0.5 * np.log(2 * np.pi * noise / power)
    got = Gaussian(noise).tilted(y, mean, var, power)
    assert_allclose(got.log_average, whole.log_average + constant, rtol=1e-13)
    assert_allclose(got[1:], whole[1:], rtol=1e-13)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_logistic_over_sixteen_decades_of_variance(power: float) -> None:
    """The rule of thirty or so nodes, against panels that are cut until two rules agree."""
    mean, var = (v.ravel() for v in np.meshgrid(np.linspace(-12.0, 12.0, 9), 10.0 ** np.arange(-8, 9)))
    bends = np.array([-30.0, -8.0, -2.0, 0.0, 2.0, 8.0, 30.0])
    general = Custom(Logistic().log_density, lambda y: np.tile(bends, (len(y), 1)))
    y = np.ones(len(mean))
    got, expected = Logistic().tilted(y, mean, var, power), general.tilted(y, mean, var, power)
    for a, b, unit in zip(got, expected, (1.0, np.sqrt(var), var), strict=True):
        assert_allclose(a * unit, b * unit, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_custom_functions_have_powers(case: Case) -> None:
    """The same averages from log p alone, cut between landmarks."""

    def function(_: np.ndarray, f: np.ndarray) -> np.ndarray:
        y = np.asarray(case.y, dtype=float)
        return case.likelihood.log_density(np.broadcast_to(y, (*f.shape, *y.shape)), f)

    density = Custom(function, lambda y: np.tile(case.bends, (len(y), 1)))
    mean, var = np.array([0.3, -1.0]), np.array([0.5, 2.0])
    for power in POWERS:
        got = density.tilted(np.zeros(2), mean, var, power)
        for a, b in zip(got, case.likelihood.tilted(rows(case.y, 2), mean, var, power), strict=True):
            assert_allclose(a, b, rtol=2e-8, atol=2e-8)


@pytest.mark.parametrize(
    "likelihood",
    [StudentT(3.0, 0.4), Laplace(0.3), AsymmetricLaplace(0.3, 0.9), Contaminated(0.2, 0.1, 30.0)],
)
def test_safe_sites(likelihood: Any) -> None:
    """The site of the scale mixture is positive, is tangent to log p where f is known, and never pulls less
    than exactly at the fixed point of a known f.
    """
    y, mean = np.array([1.0, -3.0, 40.0, 0.2]), np.array([0.7, 0.1, 0.2, 0.1])
    tau, nu = likelihood.safe_site(y, mean, np.full(4, 1e-12))
    assert np.all(tau > 0)
    assert_allclose(nu - tau * mean, likelihood.log_density_slopes(y, mean)[1], rtol=1e-6)
    wide, _ = likelihood.safe_site(y, mean, np.full(4, 2.0))
    assert np.all((wide > 0) & (wide <= tau))
    assert not hasattr(Probit(), "safe_site")
