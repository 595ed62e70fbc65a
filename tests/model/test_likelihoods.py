"""Likelihoods against 30-digit quadrature and closed forms, in their tails, and what they refuse. [004 eqs
2.42, 5.6-5.9]
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.stats import norm

from inducing.errors import (
    ColumnError,
    InducingError,
    LabelError,
    NonFiniteError,
    ParameterError,
    ShapeError,
    UnknownNameError,
)
from inducing.model import likelihoods
from inducing.model.likelihoods import (
    Custom,
    Gaussian,
    Laplace,
    Likelihood,
    Logistic,
    Poisson,
    Probit,
    Step,
    StudentT,
)

EVERY: list[tuple[Likelihood, float]] = [
    (Gaussian(0.3), 1.2),
    (Probit(0.7), -1.0),
    (Step(), 1.0),
    (Step(0.05), -1.0),
    (Logistic(), 1.0),
    (Laplace(0.4), 1.2),
    (StudentT(3.0, 0.2), 1.2),
    (Poisson(), 3.0),
    (Custom(lambda y, f: -0.5 * np.log(2 * np.pi * 0.3) - (y - f) ** 2 / 0.6), 1.2),
]
IDS = [f"{type(kind).__name__}{i}" for i, (kind, _) in enumerate(EVERY)]


def in_mpmath(likelihood: Likelihood, y: float) -> tuple[Callable[[Any], Any], list[Any]]:
    """log p(y|f) in 30 digits, and where it bends."""
    y = mp.mpf(y)
    if isinstance(likelihood, Gaussian):
        v = mp.mpf(likelihood.variance)
        return lambda f: -mp.log(2 * mp.pi * v) / 2 - (y - f) ** 2 / (2 * v), [y]
    if isinstance(likelihood, Probit):
        return lambda f: mp.log(mp.ncdf(y * f / mp.sqrt(mp.mpf(likelihood.noise)))), [mp.mpf(0)]
    if isinstance(likelihood, Step):
        flip = mp.mpf(likelihood.flip)
        return lambda f: mp.log(1 - flip) if y * f > 0 else mp.log(flip) if flip else mp.mpf(-1e6), [
            mp.mpf(0),
            y / 30,
            y / 9,
        ]
    if isinstance(likelihood, Logistic):
        return lambda f: -mp.log(1 + mp.exp(-y * f)), [mp.mpf(i) for i in (-8, -3, 0, 3, 8)]
    if isinstance(likelihood, Laplace):
        b = mp.mpf(likelihood.scale)
        return lambda f: -abs(y - f) / b - mp.log(2 * b), [y + b * i for i in (-60, -15, -4, 0, 4, 15, 60)]
    if isinstance(likelihood, StudentT):
        n, s = mp.mpf(likelihood.df), mp.mpf(likelihood.scale)
        c = mp.loggamma((n + 1) / 2) - mp.loggamma(n / 2) - mp.log(mp.pi * n) / 2 - mp.log(s)
        return lambda f: c - (n + 1) / 2 * mp.log(1 + ((y - f) / s) ** 2 / n), [
            y + s * i for i in (-9, -3, 0, 3, 9)
        ]
    if isinstance(likelihood, Poisson):
        constant, width = mp.loggamma(y + 1), 1 / mp.sqrt(y + 1)
        return lambda f: y * f - mp.exp(f) - constant, [
            mp.log(y + 1) + width * i for i in (-12, -4, 0, 4, 12)
        ]
    return lambda f: -mp.log(2 * mp.pi * mp.mpf("0.3")) / 2 - (y - f) ** 2 / mp.mpf("0.6"), [y]


def reference(likelihood: Likelihood, y: float, mean: float, var: float) -> tuple[float, float, float]:
    """log average, (E f - mean)/var and (Var f - var)/var² by quadrature in 30 digits."""
    with mp.workdps(25):
        logp, bends = in_mpmath(likelihood, y)
        m, v = mp.mpf(mean), mp.mpf(var)
        s = mp.sqrt(v)
        edges = sorted({m + s * i for i in (-70, -35, *range(-16, 17, 4), 35, 70)} | set(bends))
        top = max(logp(f) - (f - m) ** 2 / (2 * v) for f in edges)
        density = cache(lambda f: mp.exp(logp(f) - (f - m) ** 2 / (2 * v) - top))

        def moment(power: int, about: Any) -> Any:
            return mp.quad(lambda f: (f - about) ** power * density(f), edges)

        mass = moment(0, m)
        centre = m + moment(1, m) / mass
        spread = moment(2, centre) / mass
        value = mp.log(mass) + top - mp.log(2 * mp.pi * v) / 2
        return float(value), float((centre - m) / v), float((spread - v) / v**2)


@pytest.mark.parametrize("mean, var", [(0.3, 0.5), (-2.0, 1e-3), (1.5, 9.0), (-4.0, 0.8)])
@pytest.mark.parametrize(("likelihood", "y"), EVERY, ids=IDS)
def test_average_and_derivatives(likelihood: Likelihood, y: float, mean: float, var: float) -> None:
    """In units of the spread of f, to 1e-9; the value to 1e-10."""
    value, q, r = reference(likelihood, y, mean, var)
    assert_allclose(likelihood.log_average(y, mean, var), value, rtol=1e-10, atol=1e-10)
    got_q, got_r = likelihood.derivatives(y, mean, var)
    assert_allclose(got_q * np.sqrt(var), q * np.sqrt(var), rtol=1e-9, atol=1e-9)
    assert_allclose(got_r * var, r * var, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("likelihood", "y"), EVERY, ids=IDS)
def test_against_quadpack(likelihood: Likelihood, y: float) -> None:
    mean, var = 0.4, 1.3

    def integrand(f: float) -> float:
        return float(np.exp(likelihood.log_density(np.array(y), np.array(f)) - 0.5 * (f - mean) ** 2 / var))

    bends = [0.0, y] if y != 0 else [0.0]
    mass = quad(integrand, mean - 10, mean + 10, points=bends, epsabs=1e-13, epsrel=1e-12, limit=200)[0]
    expected = np.log(mass) - 0.5 * np.log(2 * np.pi * var)
    assert_allclose(likelihood.log_average(y, mean, var), expected, rtol=1e-9)


@pytest.mark.parametrize(("likelihood", "y"), EVERY, ids=IDS)
def test_q_and_r_are_derivatives_of_the_average(likelihood: Likelihood, y: float) -> None:
    mean, var, h = np.array([-0.9, 0.2, 1.7]), np.array([0.4, 1.0, 2.5]), 1e-3
    down, here, up = (likelihood.log_average(y, mean + step, var) for step in (-h, 0.0, h))
    q, r = likelihood.derivatives(y, mean, var)
    assert_allclose((up - down) / (2 * h), q, atol=2e-5)
    assert_allclose((up - 2 * here + down) / h**2, r, atol=2e-5)


def landmarks(likelihood: Likelihood, y: np.ndarray) -> np.ndarray:
    if isinstance(likelihood, StudentT):
        return y[:, None] + likelihood.scale * np.array([-32.0, -8.0, -2.0, 0.0, 2.0, 8.0, 32.0])
    return np.log(y + 0.5)[:, None] + np.array([-8.0, -2.0, 0.0, 2.0, 8.0]) / np.sqrt(y + 0.5)[:, None]


@pytest.mark.parametrize(
    "likelihood", [StudentT(1.0, 0.01), StudentT(30.0, 5.0), Poisson()], ids=["narrow", "wide", "counts"]
)
def test_compiled_quadrature_is_the_general_one(likelihood: Likelihood) -> None:
    """Variances from 1e-6 to 1e4, observations up to 1e3 away: the same as by `Custom`, which cuts its panels
    by itself.
    """
    r = np.random.default_rng(0)
    mean, var = r.normal(size=200) * 2, 10 ** r.uniform(-6, 4, 200)
    y = mean + r.standard_cauchy(200) * 10
    if isinstance(likelihood, Poisson):
        y = np.floor(np.exp(mean + r.normal(size=200)))
    general = Custom(likelihood.log_density, lambda y: landmarks(likelihood, y))
    for got, expected, unit in zip(
        likelihood.tilted(y, mean, var), general.tilted(y, mean, var), (1.0, np.sqrt(var), var)
    ):
        assert_allclose(got * unit, expected * unit, rtol=1e-8, atol=1e-9)


def test_counts_far_from_their_rate() -> None:
    """A count of two million where one was expected, with var = 1e-6: Laplace's approximation, off by
    1/count.
    """
    y, mean, var = 2e6, 0.0, 1e-6
    f = 0.0
    for _ in range(100):  # the mode of y f - exp(f) - f²/2var
        f -= (np.exp(f) + f / var - y) / (np.exp(f) + 1 / var)
    q, _ = Poisson().derivatives(y, mean, var)
    assert_allclose(q, f / var, rtol=1e-5)


# tails ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("z", [-1e6, -1e3, -40.0, -8.0, -5.001, -4.999, -1.0, 0.0, 2.0, 8.0, 30.0])
def test_probit_far_out(z: float) -> None:
    """z = y mean/√(noise + var): q and r through the Mills ratio, from z = -1e6, where Φ(z) underflows, to
    30.
    """
    noise, var = 0.25, 2.0  # so that z is as exact as the reference
    scale = np.sqrt(noise + var)
    with mp.workdps(40):
        x = mp.mpf(z)
        if z < -100:  # h = x + 1/(x + 2/(x + …)), whose terms fall off at once here
            h = -x + 1 / (-x + 2 / (-x + 3 / (-x + 4 / -x)))
            log_phi = -x * x / 2 - mp.log(2 * mp.pi) / 2 - mp.log(h)
        else:
            log_phi = mp.log(mp.ncdf(x)) if z < 10 else mp.log1p(-mp.ncdf(-x))
            h = mp.exp(-x * x / 2 - mp.log(2 * mp.pi) / 2 - log_phi)
        expected = float(log_phi), float(h), float(-h * (x + h))
    for y in (-1.0, 1.0):
        value, q, r = Probit(noise).tilted(y, y * z * scale, var)
        assert_allclose(value, expected[0], rtol=1e-13)
        assert_allclose(q * scale * y, expected[1], rtol=1e-12)
        assert_allclose(r * scale**2, expected[2], rtol=1e-12)
        assert 1.0 + r * var > 0.0


def test_step_is_probit_without_noise() -> None:
    mean, var = np.array([-30.0, -3.0, 0.1, 4.0]), np.array([0.2, 1.0, 2.0, 0.5])
    assert_allclose(Step().log_average(1.0, mean, var), log_ndtr(mean / np.sqrt(var)), rtol=1e-13)
    for a, b in zip(Step().tilted(-1.0, mean, var), Probit(1e-12).tilted(-1.0, mean, var), strict=True):
        assert_allclose(a, b, rtol=1e-9)


def test_flipped_labels_stop_pulling() -> None:
    """Far on the wrong side a label is taken for a flipped one: log flip, no pull."""
    value, q, r = Step(0.1).tilted(1.0, -60.0, 1.0)
    assert_allclose([value, q, r], [np.log(0.1), 0.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("mean", [-300.0, -40.0, 40.0, 300.0])
def test_logistic_far_out(mean: float) -> None:
    """⟨1/(1 + e^-f)⟩ → e^(mean + var/2) on the wrong side and 1 - e^(-mean + var/2) on the right one."""
    value, q, r = Logistic().tilted(1.0, mean, 2.0)
    if mean < 0:
        assert_allclose([value, q, r], [mean + 1.0, 1.0, 0.0], rtol=1e-12, atol=1e-12)
    else:
        assert_allclose(value, -np.exp(-mean + 1.0), atol=1e-12)
        assert_allclose([q, r], [np.exp(-mean + 1.0), -np.exp(-mean + 1.0)], rtol=1e-10)


@pytest.mark.parametrize(
    "scale, var", [(1e-4, 1.0), (0.1, 1.0001), (0.1, 0.9999), (1.0, 1.0), (1e3, 1.0), (1.0, 1e-8)]
)
def test_laplace_at_every_ratio_of_widths(scale: float, var: float) -> None:
    """From a kink sharper than the prior by 1e4 to one it cannot see, both sides of where the formula
    changes.
    """
    for mean in (-1.3, 0.2, 2.9):
        value, q, r = reference(Laplace(scale), 0.2, mean, var)
        got = Laplace(scale).tilted(0.2, mean, var)
        assert_allclose(got.log_average, value, rtol=1e-10, atol=1e-12)
        assert_allclose(got.q * np.sqrt(var), q * np.sqrt(var), rtol=1e-8, atol=1e-10)
        assert_allclose(got.r * var, r * var, rtol=1e-8, atol=1e-8)


def test_student_outlier_widens() -> None:
    """Not log-concave: r > 0 for a distant observation, whose pull fades with the distance."""
    q, r = StudentT(3.0, 0.1).derivatives(np.array([1.0, 5.0, 50.0]), 0.0, 0.2)
    assert r[0] < 0 < r[1]
    assert q[0] > q[1] > q[2] > 0


def test_poisson_with_large_counts() -> None:
    """A count of 1e6 pins f to log y, sixty prior standard deviations away."""
    value, q, r = reference(Poisson(), 1e6, 13.0, 1e-3)
    got = Poisson().tilted(1e6, 13.0, 1e-3)
    assert_allclose([got.log_average, got.q, got.r], [value, q, r], rtol=1e-8)


def test_narrow_peak_found_through_landmarks() -> None:
    """A density 1e5 times narrower than the prior, at a y far out: found because its place is named."""
    s = 1e-5
    peak = Custom(Gaussian(s**2).log_density, lambda y: y[:, None] + [-9 * s, 9 * s])
    for got, exact in zip(peak.tilted(3.7, 0.0, 1.0), Gaussian(s**2).tilted(3.7, 0.0, 1.0), strict=True):
        assert_allclose(got, exact, rtol=1e-8)


def test_a_function_with_a_jump() -> None:
    """Subdivision alone finds a jump it knows nothing of."""
    jump = Custom(lambda y, f: np.where(f > 0.12345, np.log(0.9), np.log(0.1)))
    mean, var = 0.4, 0.7
    p = norm.sf(0.12345, mean, np.sqrt(var))
    assert_allclose(jump.log_average(0.0, mean, var), np.log(0.9 * p + 0.1 * (1 - p)), rtol=1e-9)


# shapes, predictions, descriptions --------------------------------------------------------------------------


@given(
    shape=st.sampled_from([(), (1,), (5,), (2, 3)]),
    seed=st.integers(0, 100),
    which=st.integers(0, len(EVERY) - 1),
)
@settings(deadline=None, max_examples=40)
def test_arrays_are_rows_one_by_one(shape: tuple[int, ...], seed: int, which: int) -> None:
    likelihood, y = EVERY[which]
    r = np.random.default_rng(seed)
    mean, var = r.normal(size=shape), r.uniform(0.1, 3.0, shape)
    whole = likelihood.tilted(y, mean, var)
    for part in whole:
        assert part.shape == shape
    for index in np.ndindex(shape):
        single = likelihood.tilted(y, mean[index], var[index])
        assert_allclose([part[index] for part in whole], list(single), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("likelihood", [Probit(0.4), Step(), Step(0.2), Logistic()])
def test_probabilities_of_both_classes(likelihood: Any) -> None:
    mean, var = np.linspace(-9, 9, 13), np.linspace(0.1, 4.0, 13)
    p = likelihood.probability(mean, var)
    assert_allclose(p + np.exp(likelihood.log_average(-1.0, mean, var)), 1.0, rtol=1e-12)
    assert np.all(np.diff(p[:6]) >= 0)
    assert_allclose(likelihood.probability(0.0, 1.0), 0.5)


@pytest.mark.parametrize("likelihood", [Gaussian(0.3), Laplace(0.4), StudentT(5.0, 0.3), Poisson()])
def test_moments_of_an_observation(likelihood: Any) -> None:
    mean, var = 0.3, 0.2
    r = np.random.default_rng(0)
    f = mean + np.sqrt(var) * r.standard_normal(400_000)
    draw = {
        Gaussian: lambda: f + np.sqrt(0.3) * r.standard_normal(len(f)),
        Laplace: lambda: r.laplace(f, 0.4),
        StudentT: lambda: f + 0.3 * r.standard_t(5.0, len(f)),
        Poisson: lambda: r.poisson(np.exp(f)),
    }[type(likelihood)]
    y = draw()
    got_mean, got_var = likelihood.predict(mean, var)
    assert_allclose(got_mean, y.mean(), atol=0.01)
    assert_allclose(got_var, y.var(), rtol=0.03)
    assert likelihood.predict(np.zeros(3), np.ones(3))[1].shape == (3,)


def test_student_without_a_variance() -> None:
    assert StudentT(2.0, 1.0).predict(0.0, 1.0)[1] == np.inf


@pytest.mark.parametrize("likelihood", [kind for kind, _ in EVERY if not isinstance(kind, Custom)])
def test_spec_round_trip(likelihood: Likelihood) -> None:
    spec = json.loads(json.dumps(likelihood.spec()))
    assert likelihoods.from_spec(spec) == likelihood


def test_specs_refused() -> None:
    with pytest.raises(UnknownNameError, match="no likelihood 'Cauchy'"):
        likelihoods.from_spec({"name": "Cauchy"})
    with pytest.raises(UnknownNameError, match="width"):
        likelihoods.from_spec({"name": "Laplace", "width": 2.0})
    with pytest.raises(ParameterError, match="dictionary"):
        likelihoods.from_spec("Laplace")  # type: ignore[arg-type]
    with pytest.raises(ParameterError):
        likelihoods.from_spec({"name": "Gaussian", "variance": "small"})
    with pytest.raises(ParameterError, match="no plain description"):
        EVERY[-1][0].spec()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gaussian(0.0),
        lambda: Gaussian(float("nan")),
        lambda: Probit(-1.0),
        lambda: Step(0.5),
        lambda: Step(-0.1),
        lambda: Step("half"),  # type: ignore[arg-type]
        lambda: Laplace(0.0),
        lambda: StudentT(0.0, 1.0),
        lambda: StudentT(3.0, -1.0),
        lambda: Custom(3.0),  # type: ignore[arg-type]
    ],
)
def test_parameters_refused(make: Callable[[], Likelihood]) -> None:
    with pytest.raises(ParameterError):
        make()


def test_labels_refused_by_row() -> None:
    with pytest.raises(LabelError, match="row 2 has 0"):
        Probit().check([1, -1, 0, 1])
    with pytest.raises(LabelError, match="row 1 has 2.5"):
        Poisson().check([1, 2.5])
    with pytest.raises(LabelError, match="row 0 has -1"):
        Poisson().check([-1, 3])
    with pytest.raises(NonFiniteError, match="row 1"):
        Gaussian(1.0).check([0.0, np.nan])
    with pytest.raises(ColumnError, match="y must hold numbers, but holds text"):
        Logistic().check(["yes", "no"])
    with pytest.raises(InducingError):
        Logistic().log_average(0.3, 0.0, 1.0)


def test_averages_refused() -> None:
    with pytest.raises(ParameterError, match="variance"):
        Probit().log_average(1.0, 0.0, 0.0)
    with pytest.raises(ParameterError, match="mean must be finite"):
        Probit().log_average(1.0, np.inf, 1.0)
    with pytest.raises(ShapeError, match="do not fit"):
        Gaussian(1.0).log_average(np.zeros(3), np.zeros(2), 1.0)
    with pytest.raises(NonFiniteError, match="row 1"):
        Custom(lambda y, f: np.where(y > 0, np.nan, -f * f)).log_average(np.array([-1.0, 1.0]), 0.0, 1.0)
    with pytest.raises(ShapeError, match="came back"):
        Custom(lambda y, f: np.zeros(3)).log_average(0.0, 0.0, 1.0)


def test_impossible_observation() -> None:
    """p(y|f) = 0 everywhere: log 0, and no pretence of a derivative."""
    value, q, r = Custom(lambda y, f: np.full(np.broadcast_shapes(y.shape, f.shape), -np.inf)).tilted(
        0.0, 0.0, 1.0
    )
    assert value == -np.inf
    assert np.isnan(q) and np.isnan(r)


def test_a_step_without_flips_has_a_slope_in_flips() -> None:
    """It is one-sided, and the classifier can hold it."""
    y, mean, var = np.array([1.0, -1.0]), np.array([0.3, -1.0]), np.array([0.5, 2.0])
    slope = likelihoods.Step(0.0).gradient_on_nodes(y, mean, var, 1.0)["flip"]
    less, more = (likelihoods.Step(flip).log_average(y, mean, var) for flip in (0.0, 1e-7))
    np.testing.assert_allclose(slope, (more - less) / 1e-7, rtol=1e-6)
