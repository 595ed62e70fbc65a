"""Small cases of problems, posteriors, distributions and rows of the table: nothing, one, what is said."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import inducing as ig
from inducing.errors import NoiseError, ParameterError, ShapeError
from inducing.model import likelihoods as L
from inducing.model.distributions import Distribution, OutputDistributions
from inducing.model.posterior import kl_divergence, prior
from inducing.model.problem import as_noise
from inducing.model.table import Approximation, evidence_correction
from inducing.numerics.arrays import LARGEST_NUMBER

rng = np.random.default_rng(8)
X = rng.uniform(-2, 2, (30, 1))
Y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(30)


@pytest.mark.parametrize(("keeps", "said"), [("blocks", "blocks of R"), ("neighbours", "R along neighbours")])
def test_rows_that_need_power_one_say_what_they_keep(keeps: str, said: str) -> None:
    with pytest.raises(ParameterError, match=f"'mine' keeps {said}, which needs power 1, not 0.5"):
        Approximation("mine", 0.5, keeps, "exact")  # type: ignore[arg-type]


def test_what_sites_take_off_the_evidence() -> None:
    R, noise = np.array([0.3, 2.0, 1e-4]), np.array([0.1, 0.7, 3.0])
    assert_allclose(evidence_correction(0.0, R, noise)[0], 0.5 * R / noise, rtol=1e-14)
    assert_allclose(evidence_correction(0.25, R, noise)[0], 1.5 * np.log1p(R / noise / 4), rtol=1e-12)
    assert_allclose(evidence_correction(1.0, R, noise)[0], 0.0)
    for power in (0.0, 0.25, 1.0):
        _, by_R, by_noise = evidence_correction(power, R, noise)
        for got, moved in ((by_R, (R, 0.0 * R)), (by_noise, (0.0 * R, noise))):
            up, down = (
                evidence_correction(power, R + s * moved[0], noise + s * moved[1])[0] for s in (1e-5, -1e-5)
            )
            assert_allclose(got * (moved[0] + moved[1]), (up - down) / 2e-5, rtol=1e-7, atol=1e-10)


def test_noise_is_one_number_or_one_for_each_row() -> None:
    for wrong in ([0.1], [0.1] * 29, np.full((30, 1), 0.1), np.full((1, 30), 0.1)):
        with pytest.raises(ShapeError, match=r"noise must be one variance or one per row \(30\)"):
            as_noise(wrong, X)
    one, is_one = as_noise(0.1, X)
    each, is_each = as_noise([0.1] * 30, X)
    assert is_one and not is_each
    assert_allclose(one, np.full(30, 0.1))
    assert_allclose(each, np.full(30, 0.1))


@pytest.mark.parametrize("least", [1.0 / LARGEST_NUMBER, 0.3])
def test_noise_that_is_too_large_is_named(least: float) -> None:
    with pytest.raises(NoiseError, match=r"but 1e\+71 was given"):
        as_noise([least, 1e71, *[1.0] * 28], X)
    with pytest.raises(NoiseError, match=r"but -2 was given"):
        as_noise([least, -2.0, *[1.0] * 28], X)


def test_distributions_take_a_number_a_row_or_several() -> None:
    rng = np.random.default_rng(8)
    mean, var = np.array([0.3, -1.0, 2.0]), np.array([0.4, 0.1, 1.0])
    each = Distribution(L.Gaussian(0.2), mean, var)
    exact = stats.norm(mean[:, None], np.sqrt(var + 0.2)[:, None])
    assert_allclose(each.cdf(0.5), exact.cdf(0.5)[:, 0])
    assert_allclose(each.cdf([0.5, 0.1, 3.0]), np.diag(exact.cdf([0.5, 0.1, 3.0])))
    assert_allclose(each.cdf([[0.5, 0.1]]), exact.cdf([[0.5, 0.1]]))
    several = rng.normal(size=(3, 2))
    assert_allclose(each.cdf(several), exact.cdf(several))
    for wrong in ([0.5], [0.5, 0.1], np.zeros((2, 3)), np.zeros((3, 1, 1))):
        with pytest.raises(ShapeError, match="y must be a number"):
            each.cdf(wrong)


def test_one_draw_is_made_unless_more_are_asked_for() -> None:
    one = Distribution(L.Gaussian(0.2), np.zeros(3), np.ones(3))
    assert one.sample(rng=0).shape == (3, 1)
    assert OutputDistributions((one, one)).sample(rng=0).shape == (3, 2, 1)


def test_processes_without_functions_do_not_differ() -> None:
    assert kl_divergence(prior(ig.kernels.RBF()), prior(ig.kernels.RBF())) == 0.0


@pytest.mark.parametrize("shift", [1e-12, 1e-9, 1e-7, 1e-6, 1e-5])
def test_bases_that_all_but_coincide_need_no_warning(shift: float) -> None:
    """Each is well apart in itself; the union of both is singular, to rounding of Bessel functions."""
    kernel, at = ig.kernels.Matern(1.0, 1.0, 20.0), np.linspace(-2.0, 2.0, 7)[:, None]
    first, second = (
        ig.condition(kernel, ig.bases.Points(places), "vfe", 0.1, X, Y, jitter=0.0)
        for places in (at, at + shift)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert abs(kl_divergence(first, second)) < 1e-6


def test_compiled_predictors_of_slopes_and_levels_in_the_units_of_the_user() -> None:
    """Against the exact process, which this is with a function at every row."""
    rng = np.random.default_rng(8)
    rows, y = np.column_stack([rng.uniform(-2, 2, 9), np.tile([0.0, 1.0, 2.5], 3)]), rng.normal(size=9)
    slopes, scales = np.array([0.5, 0.3, 1.1, 0.8, 0.6]), np.array([0.9, 2.0, 1.5, 1.2, 1.7])
    kernel = ig.kernels.Levels(
        ig.kernels.Linear(slopes) + ig.kernels.RBF(scales, 1.3), [(1, 0.0), (1, 1.0), (1, 2.5)]
    )

    def k(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        A, B = (
            np.column_stack([C, *(np.interp(C[:, 1], [0.0, 1.0, 2.5], one) for one in np.eye(3))])
            for C in (A, B)
        )
        squares = np.sum(((A[:, None] - B) / scales) ** 2, axis=2)
        return (A * slopes) @ B.T + 1.3 * np.exp(-0.5 * squares)

    post = ig.condition(kernel, ig.bases.Points(rows), "vfe", 0.2, rows, y, jitter=0.0)
    x_mean, x_scale = np.array([0.7, -2.0]), np.array([1.9, 0.6])
    predictor = post.compile().in_units(x_mean=x_mean, x_scale=x_scale, y_mean=4.0, y_scale=3.0, noise=0.1)
    inverse = np.linalg.inv(k(rows, rows) + 0.2 * np.eye(9))
    for z in ([0.3, 1.0], [-1.1, 0.4], [2.5, 1.9], [0.0, 3.0], [-0.8, -1.0]):
        at = np.array([z])
        across = k(at, rows)
        mean, variance = predictor(at[0] * x_scale + x_mean)
        assert_allclose(mean, 4.0 + 3.0 * (across @ inverse @ y)[0], rtol=1e-6)
        assert_allclose(variance, 9.0 * (0.1 + (k(at, at) - across @ inverse @ across.T)[0, 0]), rtol=1e-6)
