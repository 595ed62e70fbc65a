"""Likelihoods at the edges: sharp shares, narrow classes, probabilities of all that can be, ranges."""

import itertools
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from likelihood_cases import CASES, IDS, Case, refined, rows
from numpy.testing import assert_allclose
from scipy.special import betaln, digamma, expit, log_expit, log_ndtr, logit, logsumexp, softmax

from inducing.errors import LabelError, ParameterError
from inducing.model import likelihoods as L

REACH = np.geomspace(1e-4, 1e4, 41)
REACH = np.concatenate([-REACH[::-1], [0.0], REACH])


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("precision", "y"), [(1e4, 0.3), (300.0, 0.99), (300.0, 0.02), (0.5, 0.3)])
def test_shares_of_any_precision(precision: float, y: float, power: float) -> None:
    """A density of f that is as narrow as a hundredth, under wide priors about it and beside it."""
    at, likelihood = float(logit(y)), L.Beta(precision)

    def log_density(f: np.ndarray) -> np.ndarray:
        a, b = precision * expit(f), precision * expit(-f)
        return (a - 1.0) * np.log(y) + (b - 1.0) * np.log1p(-y) - betaln(a, b)

    for mean in (-8.0, -1.0, at, at + 0.3):
        for var in (1e-2, 1.0, 25.0):
            scale = np.sqrt(var)
            edges = np.unique([*(mean + scale * REACH), *(at + REACH)])
            edges = edges[(np.abs(edges - mean) <= 100 * scale) & (np.abs(edges) < 500)]
            f, log_weight = refined(
                lambda f, mean=mean, scale=scale: power * log_density(f) - 0.5 * ((f - mean) / scale) ** 2,
                edges,
            )
            mass, t = logsumexp(log_weight), (f - mean) / scale
            weight = np.exp(log_weight - mass)
            centre = weight @ t
            spread = weight @ (t - centre) ** 2
            got = likelihood.tilted(y, mean, var, power)
            expected = mass - 0.5 * np.log(2 * np.pi * var), centre / scale, (spread - 1.0) / var
            for part, target, unit in zip(got, expected, (1.0, scale, var), strict=True):
                assert_allclose(part * unit, target * unit, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9, 1e-12])
def test_narrow_classes(gap: float) -> None:
    """log(Φ(b) - Φ(a)) and its slopes, in 40 digits, where a and b all but coincide."""
    likelihood = L.Ordinal(0.3, (gap, 2.0), 0.5)
    with mp.workdps(40):

        def log_p(f: mp.mpf, noise: float) -> mp.mpf:
            a, b = ((end - f) / mp.sqrt(noise) for end in (mp.mpf(0.3), mp.mpf(0.3) + mp.mpf(gap)))
            return mp.log(mp.ncdf(b) - mp.ncdf(a))

        for f in (-2.0, 0.3, 1.1, 2.5):
            with np.errstate(all="ignore"):  # in branches that are not taken
                known = likelihood.log_density_slopes(np.array(1.0), np.array(f))
            for got, noise in ((known, 0.5), (likelihood.tilted(1.0, f, 0.75), 1.25)):
                expected = [float(mp.diff(lambda x, n=noise: log_p(x, n), mp.mpf(f), k)) for k in range(3)]
                assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
                assert_allclose(got[0], expected[0], rtol=1e-9)


def test_the_likeliest_rate() -> None:
    y, weights = np.array([3.0, 0.0, 5.0, 2.0]), np.array([1.0, 2.0, 0.5, 1.5])
    expected = np.log(weights @ y / np.sum(weights))
    for given in (y, y[:, None]):
        assert_allclose(L.Poisson().likeliest(given, weights), expected, atol=1e-4)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_no_probability_exceeds_one(case: Case) -> None:
    """Of observations up to the largest of their kind, under f known well and hardly."""
    if isinstance(case.likelihood, L.Squared):
        return
    first = {L.Beta: 1 - 1e-15, L.Ordinal: 3.0}.get(type(case.likelihood), 1e9)
    first = 1.0 if isinstance(case.likelihood, L.Probit | L.Logistic | L.Step) else first
    y: Any = first if isinstance(case.y, float) else (first, case.y[1])
    if isinstance(case.likelihood, L.Binomial):
        y = case.y[1], case.y[1]
    mean, var = (part.ravel() for part in np.meshgrid(np.linspace(-3.0, 3.0, 61), [1e-4, 0.1, 1.0, 4.0]))
    p = case.likelihood.cumulative(rows(y, len(mean)), mean, var)
    assert np.all(p <= 1.0)
    assert isinstance(case.likelihood, L.Beta) or np.all(p > 1.0 - 1e-6)


@pytest.mark.parametrize(
    "likelihood", [L.Step(0.2), L.Contaminated(), L.AsymmetricLaplace()], ids=lambda k: type(k).__name__
)
def test_parameters_go_up_to_their_bounds(likelihood: Any) -> None:
    for name, (low, high) in likelihood.bounds.items():
        for end, inward in ((low, 1.0), (high, -1.0)):
            if np.isfinite(end):
                assert likelihood.with_parameters({name: end + 1e-6 * inward})
                with pytest.raises(ParameterError, match=name):
                    likelihood.with_parameters({name: end - 1e-6 * inward})


@pytest.mark.parametrize("y", [0.0, 1.0])
def test_nothing_and_all_are_no_shares(y: float) -> None:
    with pytest.raises(LabelError, match=f"row 1 has {y:g}; move it inside"):
        L.Beta().check([0.4, y])


def test_the_probability_of_a_class_or_one_before_it() -> None:
    """Three processes, by Gauss-Hermite in all directions."""
    x, w = np.polynomial.hermite_e.hermegauss(40)
    mean, var = np.array([0.4, -0.3, 1.1]), np.array([0.5, 0.8, 0.2])
    f = np.stack(np.meshgrid(*(m + np.sqrt(v) * x for m, v in zip(mean, var)), indexing="ij"), axis=-1)
    weight = np.einsum("i,j,k->ijk", w, w, w) / np.sum(w) ** 3
    p = np.einsum("ijk,ijkc->c", weight, softmax(f, axis=-1))
    got = L.Softmax(3).cumulative(np.arange(3.0), np.tile(mean, (3, 1)), np.tile(var, (3, 1)))
    assert_allclose(got, np.cumsum(p), rtol=1e-7)


def average_slope(
    log_density: Any, slope: Any, at: float, unit: float, row: tuple[float, float, float]
) -> float:
    """power ⟨slope⟩ under N(mean, var) p^power, for rows (mean, var, power)."""
    mean, var, power = row
    scale = np.sqrt(var)
    edges = np.unique([*(mean + scale * REACH), *(at + unit * REACH)])
    f, log_weight = refined(
        lambda f: power * log_density(f) - 0.5 * ((f - mean) / scale) ** 2,
        edges[np.abs(edges - mean) <= 100 * scale],
    )
    return power * float(np.exp(log_weight - logsumexp(log_weight)) @ slope(f))


@pytest.mark.parametrize("shape", [0.1, 2.0])
def test_the_slope_in_the_shape_of_counts(shape: float) -> None:
    """To nine digits, for counts that lie far above what is expected."""
    for y, mean, var, power in itertools.product((290.0, 344.0, 379.0), (-0.1, 0.6), (1.4, 2.3), (1.0, 2.0)):

        def log_density(f: np.ndarray, y: float = y) -> np.ndarray:
            z = f - np.log(shape)
            return y * log_expit(z) + shape * log_expit(-z)

        def slope(f: np.ndarray, y: float = y) -> np.ndarray:
            z = f - np.log(shape)
            ways = digamma(y + shape) - digamma(shape)
            return ways + log_expit(-z) + expit(z) - y * expit(-z) / shape

        got = L.NegativeBinomial(shape).parameter_gradient(y, mean, var, power)["shape"]
        expected = average_slope(log_density, slope, float(np.log(y)), 1.0, (mean, var, power))
        assert_allclose(got, expected, rtol=5e-10, atol=5e-10)


@pytest.mark.parametrize("power", [0.3, 2.0])
def test_the_slope_in_the_noise_of_labels(power: float) -> None:
    """Noise of a hundredth, to nine digits."""

    def log_density(f: np.ndarray) -> np.ndarray:
        return log_ndtr(10.0 * f)

    def slope(f: np.ndarray) -> np.ndarray:
        z = 10.0 * f
        return -50.0 * z * np.exp(-0.5 * (z * z + np.log(2 * np.pi)) - log_ndtr(z))

    for mean, var in itertools.product((-1.5, -0.3, 0.0, 0.2, 1.0), (1e-3, 0.01, 0.1, 1.0, 10.0, 100.0)):
        got = L.Probit(0.01).parameter_gradient(1.0, mean, var, power)["noise"]
        expected = average_slope(log_density, slope, 0.0, 0.1, (mean, var, power))
        assert_allclose(got, expected, rtol=5e-10, atol=5e-10)


@pytest.mark.parametrize("power", [0.0, 0.5])
@pytest.mark.parametrize("noise", [1e-4, 0.01])
def test_one_of_many_classes_with_little_noise(noise: float, power: float) -> None:
    """Class 8 of eleven lies between 3.3 and 3.8."""
    likelihood, unit = L.Ordinal(0.2, (0.1, *[0.5] * 8), noise), np.sqrt(noise)
    low, high = 0.2 + 0.1 + 0.5 * 6, 0.2 + 0.1 + 0.5 * 7

    def log_density(f: np.ndarray) -> np.ndarray:
        side = np.where(f > 0.5 * (low + high), 1.0, -1.0)  # on which Φ is small at both ends
        near, far = (log_ndtr(side * (end - f) / unit) for end in (low, high))
        near, far = np.minimum(near, far), np.maximum(near, far)
        return far + np.log1p(-np.exp(near - far))

    for mean, var in itertools.product((2.8, 3.5), (0.01, 1.0, 100.0)):
        scale = np.sqrt(var)
        edges = np.unique([*(mean + scale * REACH), *(low + unit * REACH), *(high + unit * REACH)])
        edges = edges[np.abs(edges - mean) <= 12.0 * scale]

        def logs(f: np.ndarray, mean: float = mean, var: float = var) -> np.ndarray:
            own = -0.5 * ((f - mean) ** 2 / var + np.log(2.0 * np.pi * var))
            return own if power == 0.0 else own + power * log_density(f)

        f, log_weight = refined(logs, edges)
        expected = np.exp(log_weight) @ log_density(f) if power == 0.0 else logsumexp(log_weight)
        assert_allclose(likelihood.tilted(8.0, mean, var, power).log_average, expected, rtol=1e-9)


@pytest.mark.parametrize("power", [1.0, -1.0])
def test_the_noise_of_classes_has_a_square_root_within_range(power: float) -> None:
    assert L.Ordinal(0.0, (1.0,), 1e99**power).noise == 1e99**power
    with pytest.raises(ParameterError, match="noise"):
        L.Ordinal(0.0, (1.0,), 1e101**power)
