"""Densities as squares of a process against quadrature, dense algebra from the thesis, and exact averages. [004 §5.3]"""

import itertools
import json

import mpmath as mp
import numpy as np
import pandas as pd
import pytest
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.special import gammaln
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import inducing as ig
from inducing import squared
from inducing.errors import (
    EmptyDataError,
    InducingError,
    LabelError,
    NonFiniteError,
    ParameterError,
    ShapeError,
    UnknownNameError,
)
from inducing.experiments import reproduce
from inducing.kernels import Matern12, Trigonometric
from inducing.likelihoods import Squared
from inducing.squared import Fourier, OrnsteinUhlenbeck, estimate

RNG = np.random.default_rng(0)


def mixture(n, d=1, seed=0):
    """Two heaps in d dimensions, in units of no unit box."""
    rng = np.random.default_rng(seed)
    first = rng.random(n) < 0.4
    return np.where(first[:, None], rng.normal(-1.0, 0.8, (n, d)), rng.normal(3.0, 0.6, (n, d))) * 5.0 + 100.0


def waves(X, order):
    """The orthonormal functions of [004 eq. 5.28] and their tensor products. (n, D)"""
    out = np.ones((len(X), 1))
    for x in X.T:
        angle = 2.0 * np.pi * np.outer(x, np.arange(1, order + 1))
        one = np.hstack([np.ones((len(x), 1)), np.sqrt(2.0) * np.cos(angle), np.sqrt(2.0) * np.sin(angle)])
        out = (out[:, :, None] * one[:, None, :]).reshape(len(X), -1)
    return out


def in_panels(function, edges, nodes=12):
    """∫ function by Gauss-Legendre between neighbouring edges."""
    x, w = leggauss(nodes)
    half = 0.5 * np.diff(edges)
    points = edges[:-1, None] + half[:, None] * (x + 1.0)
    return float(np.sum(half[:, None] * w * function(points.ravel()).reshape(points.shape)))


# The likelihood.


def test_f_squared_is_as_in_the_thesis():
    mean, var = RNG.normal(size=20), RNG.random(20) + 0.1
    value, q, r = Squared().tilted(1.0, mean, var)
    second = mean**2 + var
    assert_allclose(value, np.log(second), rtol=1e-14)
    assert_allclose(q, 2 * mean / second, rtol=1e-14)
    assert_allclose(r, 2 * (var - mean**2) / second**2, rtol=1e-13)
    h = 1e-5  # and they are derivatives of the first
    up, down = Squared().log_average(1.0, mean + h, var), Squared().log_average(1.0, mean - h, var)
    assert_allclose(q, (up - down) / (2 * h), rtol=1e-7, atol=1e-9)
    assert_allclose(r, (up + down - 2 * value) / h**2, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("times", [0.3, 2.0, 2.5, 40.0, 3000.0])
@pytest.mark.parametrize(
    ("mean", "var"), [(0.0, 0.7), (1e-7, 1.0), (0.4, 0.5), (-3.0, 0.2), (9.9, 1.0), (-10.1, 1.0), (50.0, 0.01)]
)
def test_powers_of_f_squared(times, mean, var):
    """Against 30 digits of the confluent hypergeometric function and its derivatives."""
    with mp.workdps(40):
        m, v, w = mp.mpf(mean), mp.mpf(var), mp.mpf(times)

        def log_average(x):
            return w * mp.log(2 * v) + mp.loggamma(w + 0.5) - mp.loggamma(0.5) + mp.log(mp.hyp1f1(-w, 0.5, -x * x / (2 * v)))

        h = mp.mpf(10) ** -9 * mp.sqrt(v)
        up, middle, down = log_average(m + h), log_average(m), log_average(m - h)
        expected = [float(middle), float((up - down) / (2 * h)), float((up + down - 2 * middle) / h**2)]
    found = [float(part) for part in Squared().tilted(times, mean, var)]
    assert_allclose(found, expected, rtol=2e-11, atol=1e-13)


def test_the_first_site_of_a_zero_mean_is_negative_and_changes_no_mean():
    kernel = Trigonometric(3, variance=0.4)
    post = ig.expectation_propagation(kernel, Squared(), [[0.3]], [1.0], sweeps=1)
    variance = 7 * 0.4
    assert_allclose(post.sites.lam, -2 / (3 * variance))  # r = 2/σ², so -r/(1 + rσ²)
    assert_allclose(post.predict(np.array([[0.3], [0.9]])).mean, 0.0, atol=1e-15)
    assert_allclose(post.predict(np.array([[0.3]])).variance, 3 * variance)  # of f² N(0, σ²)


def test_rows_are_seen_a_positive_number_of_times():
    with pytest.raises(LabelError, match="row 1 has 0"):
        Squared().check([1.0, 0.0])
    assert ig.likelihoods.from_spec(Squared().spec()) == Squared()


# The two families.


@pytest.mark.parametrize(("order", "d"), [(1, 1), (5, 1), (2, 2), (1, 3)])
def test_the_trigonometric_kernel_is_idempotent(order, d):
    """∫K(x, z)K(z, y)dz = K(x, y), K(x, x) = (2 order + 1)^d; a grid integrates trigonometric polynomials exactly."""
    kernel, axis = Trigonometric(order), np.arange(4 * order + 2) / (4 * order + 2)
    grid = np.stack(np.meshgrid(*[axis] * d), axis=-1).reshape(-1, d)
    X, Y = RNG.random((2, 6, d))
    assert_allclose(kernel(X, grid) @ kernel(grid, Y) / len(grid), kernel(X, Y), atol=1e-12 * (2 * order + 1) ** d)
    assert_allclose(kernel(X, Y), waves(X, order) @ waves(Y, order).T, atol=1e-12 * (2 * order + 1) ** d)
    assert_allclose(kernel.diag(X), (2 * order + 1) ** d)


@pytest.mark.parametrize(("order", "d"), [(3, 1), (2, 2), (1, 3)])
def test_the_grid_is_an_orthogonal_basis_of_the_whole_space(order, d):
    prior = Fourier(order, d)
    Z = prior.basis().Z
    assert len(Z) == prior.functions == (2 * order + 1) ** d
    kernel, X = prior.kernel(0.5), RNG.random((30, d))
    assert_allclose(kernel(Z, Z), np.eye(len(Z)) * len(Z) / 1.5, atol=1e-12 * len(Z))
    explained = kernel(X, Z) @ kernel(Z, X) * 1.5 / len(Z)
    assert_allclose(np.diag(explained), kernel.diag(X), rtol=1e-12)


@pytest.mark.parametrize("lam", [0.3, 40.0])
def test_the_effective_fourier_prior_inverts_the_operator(lam):
    """Σ_λ(I + λΣ₀) = Σ₀ [004 eq. 5.22], as matrices over a grid, on which integrals are means."""
    prior, grid = Fourier(4), (np.arange(40) / 40)[:, None]
    initial, effective = (prior.kernel(value)(grid, grid) / 40 for value in (0.0, lam))
    assert_allclose(effective @ (np.eye(40) + lam * initial), initial, atol=1e-13)


@pytest.mark.parametrize(("length", "lam"), [(0.3, 2.0), (2.0, 50.0)])
def test_the_effective_ornstein_uhlenbeck_prior_inverts_the_operator(length, lam):
    """∫K_λ(x, z)(-l²∂² + λ)g(z)dz = g(x) for any g: here a Gaussian."""
    kernel, x = OrnsteinUhlenbeck(length).kernel(lam), 0.4

    def integrand(z):
        g = np.exp(-0.5 * (z - 0.7) ** 2)
        return kernel(np.array([[x]]), z[:, None])[0] * (lam * g - length**2 * ((z - 0.7) ** 2 - 1.0) * g)

    assert_allclose(in_panels(integrand, np.linspace(x - 20.0, x + 20.0, 801)), np.exp(-0.5 * 0.3**2), rtol=1e-10)


@pytest.mark.parametrize("scale", [0.05, 0.7])
def test_overlap_of_exponentials(scale):
    kernel, Z = Matern12(scale, variance=1.7), np.array([[0.0], [0.2], [0.21], [0.9]])
    total, G = squared.overlap(kernel, Z)
    assert_allclose(total, 1.7)
    edges = np.unique(np.concatenate([np.linspace(0.0, 1.0, 101), Z[:, 0]]))
    for i, j in itertools.product(range(4), repeat=2):
        product = in_panels(lambda x, i=i, j=j: kernel(Z[[i]], x[:, None])[0] * kernel(Z[[j]], x[:, None])[0], edges)
        assert_allclose(G[i, j], product, rtol=1e-11)
    with pytest.raises(ParameterError, match="closed form"):
        squared.overlap(ig.kernels.RBF(), Z)


# λ. Averages of Π f(xᵢ)² over N(0, 1/(1 + λ)) coefficients are exact by Gauss-Hermite.

THREE = np.array([[0.1], [0.35], [0.8]])


def average(function, lam, nodes=8):
    """E function(ξ) over three coefficients with the prior of order 1, exactly for polynomials."""
    x, w = hermegauss(nodes)
    xi = np.stack(np.meshgrid(x, x, x), axis=-1).reshape(-1, 3) / np.sqrt(1.0 + lam)
    return float(np.einsum("i,j,k->ijk", w, w, w).ravel() @ function(xi) / np.sqrt(2 * np.pi) ** 3)


def test_lambda_is_where_the_integrand_is_largest():
    """d/dλ log [λᴺ Z_λ E_λ Π f²] = N/λ - ½∫E f², by finite differences; so it is 0 at λ = 2N/D, D = 3. [004 eqs 5.16, 5.23]"""
    product = lambda xi: np.prod((xi @ waves(THREE, 1).T) ** 2, axis=1)  # noqa: E731
    n = 3

    def log_integrand(lam):
        return n * np.log(lam) - 1.5 * np.log1p(lam) + np.log(average(product, lam))

    for lam in (0.5, 2.0, 7.0):
        slope = (log_integrand(lam + 1e-5) - log_integrand(lam - 1e-5)) / 2e-5
        mass = average(lambda xi: np.sum(xi**2, axis=1) * product(xi), lam) / average(product, lam)
        assert_allclose(slope, n / lam - 0.5 * mass, atol=1e-8)
        following, c = Fourier(1).next(lam, mass, n)
        assert_allclose(2 * n / following, c**2 * mass)  # of the stretched process
        assert_allclose(following, Fourier(1).settled(n))  # whatever λ was, since the average is exact
    assert abs(log_integrand(2.0 + 1e-5) - log_integrand(2.0 - 1e-5)) < 1e-9
    assert Fourier(1).settled(n) == 2.0


def test_evidence_is_the_average_over_densities():
    """E Π f(xᵢ)²/∫f² over directions of (ξ₁, ξ₂, ξ₃): over a sphere, by an exact rule; the same from every λ."""
    product = lambda xi: np.prod((xi @ waves(THREE, 1).T) ** 2, axis=1)  # noqa: E731
    height, w = leggauss(8)
    angle = 2 * np.pi * np.arange(16) / 16
    radius = np.sqrt(1 - height**2)
    circle = [np.outer(radius, np.cos(angle)), np.outer(radius, np.sin(angle)), np.outer(height, np.ones(16))]
    expected = np.log(np.repeat(w, 16) @ product(np.stack(circle, axis=-1).reshape(-1, 3)) / 32)
    for lam in (0.0, 0.7, 20.0):
        assert_allclose(Fourier(1).log_evidence(np.log(average(product, lam)), lam, 3), expected, rtol=1e-12)


def dense_ep(X, order, lam, sweeps):
    """Expectation propagation over the coefficients themselves, inverting at every row: mean, covariance, log E_λ Π f²."""
    P = waves(X, order)
    n, D = P.shape
    c = np.sqrt(2 * n / lam)
    site, tilt = np.full(n, 2.0 / c**2), np.full(n, 4.0 / c)
    prior = (1.0 + lam) * np.eye(D)
    for _ in range(sweeps):
        for i in range(n):
            others = np.arange(n) != i
            S = np.linalg.inv(prior + (P[others].T * site[others]) @ P[others])
            mean, var = P[i] @ S @ (P[others].T @ tilt[others]), P[i] @ S @ P[i]
            second = mean**2 + var
            m1 = mean + var * 2 * mean / second
            v1 = var + var**2 * 2 * (var - mean**2) / second**2
            site[i], tilt[i] = 1 / v1 - 1 / var, m1 / v1 - mean / var
    S = np.linalg.inv(prior + (P.T * site) @ P)
    xi = S @ (P.T @ tilt)
    g, s = P @ xi, np.sum((P @ S) * P, axis=1)
    var = 1 / (1 / s - site)
    mean = var * (g / s - tilt)
    log_site = 0.5 * (np.log(s / var) + g**2 / s - mean**2 / var)  # of ∫ cavity · site
    value = 0.5 * (np.linalg.slogdet(S)[1] + D * np.log1p(lam) + xi @ np.linalg.solve(S, xi)) + np.sum(
        np.log(mean**2 + var) - log_site
    )
    return xi, S, value


@pytest.mark.parametrize(("d", "order", "n"), [(1, 3, 60), (2, 1, 50)])
def test_sweeps_settle_where_dense_expectation_propagation_does(d, order, n):
    X = np.clip(0.5 + 0.15 * np.random.default_rng(1).normal(size=(n, d)), 0.0, 1.0)
    prior = Fourier(order, d)
    found = estimate(prior, X, convergence=1e-10)
    lam = 2 * n / (2 * order + 1) ** d
    xi, S, value = dense_ep(X, order, lam, 25)
    grid = np.random.default_rng(2).random((40, d))
    P = waves(grid, order)
    mass = xi @ xi + np.trace(S)
    mean, var = P @ xi, np.sum((P @ S) * P, axis=1)
    density, deviation = found.density(grid)
    assert found.converged
    assert_allclose(found.lam, lam, rtol=1e-7)  # at a fixed point (1 + λ)∫E f² = 2N + D
    assert_allclose(found.mass, (2 * order + 1) ** d, rtol=1e-8)
    assert_allclose(mass, found.mass, rtol=1e-7)
    assert_allclose(density, (mean**2 + var) / mass, rtol=1e-6)
    assert_allclose(deviation, np.sqrt(2 * var**2 + 4 * mean**2 * var) / mass, rtol=1e-6)
    half = 0.5 * (2 * order + 1) ** d
    expected = value + n * np.log((1 + lam) / 2) + gammaln(half) - gammaln(n + half)
    assert_allclose(found.log_evidence, expected, rtol=1e-8)


def test_evidence_of_expectation_propagation_is_near_the_exact_one():
    """f and -f both count, and the process has one of them; others, that change their sign, matter little here."""
    X = np.random.default_rng(0).random((20, 1))
    product = lambda xi: np.prod((xi @ waves(X, 1).T) ** 2, axis=1)  # noqa: E731
    exact = Fourier(1).log_evidence(np.log(average(product, 0.0, nodes=24)), 0.0, 20)
    found = estimate(Fourier(1), X)
    assert abs(found.log_evidence - (exact - np.log(2))) < 0.05


def test_mass_is_the_integral():
    for prior, options in ((Fourier(3), {}), (OrnsteinUhlenbeck(0.1), {"hold": True})):
        X = np.clip(0.4 + 0.1 * np.random.default_rng(4).normal(size=(80, 1)), 0.0, 1.0)
        found = next(squared.sweeps(prior, X, **options))
        edges = np.unique(np.concatenate([np.linspace(0, 1, 41), found.posterior.basis.parameters["Z"][:, 0]]))
        total = in_panels(lambda x, post=found.posterior: squared.moments(post, x[:, None])[0], edges)
        assert_allclose(found.mass, total, rtol=1e-10)


def test_moments_of_a_square():
    found = next(squared.sweeps(Fourier(2), RNG.random((30, 1))))
    grid = RNG.random((10, 1))
    mean, var = found.posterior.predict(grid)
    x, w = hermegauss(6)
    f = mean[:, None] + np.sqrt(var)[:, None] * x
    second, fourth = (f**2 @ w, f**4 @ w) / np.sqrt(2 * np.pi)
    value, deviation = squared.moments(found.posterior, grid)
    assert_allclose(value, second, rtol=1e-12)
    assert_allclose(deviation, np.sqrt(fourth - second**2), rtol=1e-10)


def test_left_out_rows_are_as_if_they_had_never_been_seen():
    X = np.clip(0.5 + 0.15 * np.random.default_rng(5).normal(size=(60, 1)), 0.0, 1.0)
    prior = Fourier(2)
    lam = prior.settled(60)
    found = estimate(prior, X, lam=lam, hold=True)
    cavity = squared.left_out(found.posterior, X)
    for i in (0, 7, int(np.argmax(X)), int(np.argmin(X))):
        without = estimate(prior, np.delete(X, i, axis=0), lam=lam, hold=True)
        assert_allclose(cavity[i], squared.moments(without.posterior, X[[i]])[0][0], rtol=0.02)


def test_from_the_prior_the_estimate_is_uniform_and_from_either_start_proper():
    X = np.random.default_rng(6).random((200, 1))
    grid = np.linspace(0, 1, 50)[:, None]
    for options in ({}, {"lam": 0.0, "start": squared.prior_start(np.ones(200)), "damping": 0.5}):
        for found in itertools.islice(squared.sweeps(Fourier(2), X, **options), 4):
            density, deviation = found.density(grid)
            assert np.all(density > 0) and np.all(deviation > 0) and found.mass > 0
    with pytest.raises(ShapeError, match="unit box"):
        next(squared.sweeps(Fourier(2), X + 1.0))


# The estimator.


@pytest.mark.parametrize(("d", "n"), [(1, 400), (2, 200), (3, 150)])
def test_densities_integrate_to_one_and_are_never_negative(d, n):
    model = ig.GPDensity(max_functions=150).fit(mixture(n, d))
    points = 4 * model.order_ + 1  # a grid of more than 4 order points integrates the square of a series exactly
    axis = np.arange(points) / points
    grid = model.low_ + model.span_ * np.stack(np.meshgrid(*[axis] * d), axis=-1).reshape(-1, d)
    density, deviation = model.pdf(grid, return_std=True)
    assert abs(np.mean(density) * np.prod(model.span_) - 1.0) < 1e-9
    assert density.min() > 0 and deviation.min() > 0
    if d == 1:
        low = model.low_[0]
        assert abs(quad(lambda x: model.pdf([[x]])[0], low, low + model.span_[0], limit=200, epsabs=1e-9)[0] - 1.0) < 1e-7


def test_rough_densities_integrate_to_one():
    model = ig.GPDensity("ornstein-uhlenbeck").fit(mixture(120))
    low, span = model.low_[0], model.span_[0]
    edges = np.concatenate([[low], low + span * model.posterior_.basis.Z[:, 0], [low + span]])
    assert abs(in_panels(lambda x: model.pdf(x[:, None]), edges) - 1.0) < 1e-9
    assert model.lengthscale_ in model.scores_ and model.scores_[model.lengthscale_] == max(model.scores_.values())
    drawn = model.sample(500, random_state=0)
    assert drawn.shape == (500, 1) and np.all((drawn >= low) & (drawn <= low + span))


@pytest.fixture(scope="module")
def model():
    return ig.GPDensity().fit(mixture(500))


def test_error_falls_below_a_histograms_and_stays_near_kernel_densitys(model):
    from sklearn.neighbors import KernelDensity

    rng = np.random.default_rng(7)
    X = np.where(rng.random(500) < 0.4, rng.normal(0.3, 0.08, 500), rng.normal(0.7, 0.06, 500)).clip(0, 1)[:, None]
    grid = (np.arange(800) + 0.5) / 800
    normal = lambda mean, std: np.exp(-0.5 * ((grid - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))  # noqa: E731
    truth = 0.4 * normal(0.3, 0.08) + 0.6 * normal(0.7, 0.06)
    error = lambda density: np.sqrt(np.mean((density - truth) ** 2))  # noqa: E731
    fitted = ig.GPDensity(order=5, bounds=(0, 1)).fit(X)
    histogram = min(error(np.histogram(X, b, (0, 1), density=True)[0][(grid * b).astype(int)]) for b in range(4, 60))
    parzen = min(
        error(np.exp(KernelDensity(bandwidth=h).fit(X).score_samples(grid[:, None]))) for h in np.geomspace(0.01, 0.1, 15)
    )
    assert fitted.basis_size_ == 11 and fitted.converged_
    assert error(fitted.pdf(grid[:, None])) < min(histogram, 1.2 * parzen)


def test_the_order_of_a_series_is_found():
    """Draws from f² with f a series of order 2, by rejection."""
    rng = np.random.default_rng(8)
    xi = np.array([1.0, 0.3, -0.2, 0.1, 0.15])  # f > 0
    x = rng.random((20_000, 1))
    density = (waves(x, 2) @ xi) ** 2 / (xi @ xi)
    X = x[rng.random(20_000) * 3.0 < density][:1500]
    assert density.max() < 3.0 and len(X) == 1500
    model = ig.GPDensity(bounds=(0, 1)).fit(X)
    assert model.order_ == 2
    grid = np.linspace(0, 1, 100)[:, None]
    found, deviation = model.pdf(grid, return_std=True)
    truth = (waves(grid, 2) @ xi) ** 2 / (xi @ xi)
    assert np.mean(np.abs(found - truth) < 2 * deviation) > 0.85
    assert np.sqrt(np.mean((found - truth) ** 2)) < 3 * np.sqrt(5 / 1500)  # ISE is about D/N


def test_scores_are_logarithms_and_nothing_lies_beyond_the_box(model):
    X = mixture(50, seed=1)
    assert_allclose(model.score_samples(X), np.log(model.pdf(X)))
    assert_allclose(model.score(X), np.sum(np.log(model.pdf(X))))
    far = np.vstack([model.low_ - 1e-9 * model.span_, model.low_ + 2 * model.span_])
    density, deviation = model.pdf(far, return_std=True)
    assert_array_equal(density, 0.0)
    assert_array_equal(deviation, 0.0)
    assert_array_equal(model.score_samples(far), -np.inf)


def test_units_order_and_weights_of_the_rows(model):
    X, grid = mixture(500), np.linspace(80, 130, 30)[:, None]
    other = ig.GPDensity().fit(X[::-1] * 1000 + 7)
    assert other.order_ == model.order_
    assert_allclose(other.pdf(grid * 1000 + 7) * 1000, model.pdf(grid), rtol=1e-6, atol=1e-12)
    assert_allclose(other.log_evidence_ + 500 * np.log(1000), model.log_evidence_, rtol=1e-8)
    weights = np.random.default_rng(9).integers(0, 4, 500)
    weighted = ig.GPDensity(order=3).fit(X, sample_weight=weights)
    repeated = ig.GPDensity(order=3).fit(np.repeat(X, weights, axis=0))
    assert_array_equal(weighted.pdf(grid), repeated.pdf(grid))
    U, V = (X - weighted.low_) / weighted.span_, (grid - weighted.low_) / weighted.span_
    once, apart = (
        estimate(Fourier(3), U[weights > 0], weights[weights > 0]),
        estimate(Fourier(3), np.repeat(U, weights, axis=0)),
    )
    assert_allclose(once.density(V)[0], apart.density(V)[0], rtol=2e-3)  # one site for f^2w is not quite w sites for f²


def test_bounds_make_a_circle():
    hours = np.random.default_rng(10).normal(0.5, 2.0, (300, 1)) % 24.0
    model = ig.GPDensity(bounds=(0.0, 24.0)).fit(hours)
    assert_allclose(model.pdf([[0.0]]), model.pdf([[24.0]]), rtol=1e-9)
    assert model.pdf([[23.5]]) > 5 * model.pdf([[12.0]])


def test_draws_have_the_density(model):
    X = model.sample(4000, random_state=0)
    grid = np.linspace(0.0, 1.0, 4001)[:, None] * model.span_ + model.low_
    cdf = np.concatenate([[0.0], np.cumsum(0.5 * np.diff(grid[:, 0]) * (model.pdf(grid)[1:] + model.pdf(grid)[:-1]))])
    rank = np.interp(np.sort(X[:, 0]), grid[:, 0], cdf)
    assert np.max(np.abs(rank - (np.arange(4000) + 0.5) / 4000)) < 1.63 / np.sqrt(4000)  # Kolmogorov, at 1 %
    assert_array_equal(X, model.sample(4000, random_state=0))
    assert model.sample(0).shape == (0, 1) and model.sample().shape == (1, 1)
    assert model._bound() > np.max(squared.moments(model.posterior_, np.random.default_rng(0).random((20_000, 1)))[0])
    with pytest.raises(ParameterError, match="n_samples"):
        model.sample(1.5)


def test_cross_validation_and_frames():
    frame = pd.DataFrame(mixture(120, 2), columns=["a", "b"])
    model = ig.GPDensity(order=2).fit(frame)
    assert list(model.feature_names_in_) == ["a", "b"]
    scores = cross_val_score(ig.GPDensity(order=2, padding=0.5), frame, cv=3)
    assert np.all(np.isfinite(scores))


FILED = [{}, {"kernel": "ornstein-uhlenbeck", "lengthscale": 6.0}, {"bounds": [[50.0, 150.0]], "order": 4}]


@pytest.mark.parametrize("options", FILED, ids=str)
def test_files(options, tmp_path):
    X = mixture(80)
    model = ig.GPDensity(**options).fit(X)
    model.save(tmp_path / "density", metadata={"of": "x"})
    again = ig.load(tmp_path / "density")
    assert type(again) is ig.GPDensity and again.get_params() == model.get_params() and again.metadata_ == {"of": "x"}
    for one, two in zip(model.pdf(X, return_std=True), again.pdf(X, return_std=True), strict=True):
        assert_array_equal(one, two)
    assert_array_equal(model.sample(20, random_state=1), again.sample(20, random_state=1))
    known = ["lam_", "mass_", "scores_", "log_evidence_", "n_iter_", "converged_", "basis_size_", "n_features_in_"]
    for name in [*known, "lengthscale_" if "kernel" in options else "order_"]:
        assert getattr(again, name) == getattr(model, name), name
    assert_array_equal(again.fit(X).pdf(X), model.pdf(X))


BAD = {
    "kernel": ({"kernel": "rbf"}, mixture(20), UnknownNameError, "no density kernel 'rbf'"),
    "two inputs": ({"kernel": "ornstein-uhlenbeck"}, mixture(20, 2), ShapeError, "one input, but X has 2"),
    "order": ({"order": 0}, mixture(20), ParameterError, "order"),
    "half an order": ({"order": 1.5}, mixture(20), ParameterError, "order"),
    "lengthscale": ({"kernel": "ornstein-uhlenbeck", "lengthscale": -1.0}, mixture(20), ParameterError, "length"),
    "padding": ({"padding": -0.1}, mixture(20), ParameterError, "padding"),
    "bounds": ({"bounds": (3.0, 1.0)}, mixture(20), ParameterError, "bounds must be 1 pairs"),
    "no bounds": ({"bounds": "wide"}, mixture(20), ParameterError, "bounds must be 1 pairs"),
    "rows beyond": ({"bounds": (0.0, 1.0)}, mixture(20), ParameterError, "outside the bounds"),
    "constant": ({}, np.ones((9, 1)), ParameterError, "column 0 of X is constant"),
    "damping": ({"damping": 2.0}, mixture(20), ParameterError, "damping"),
    "functions": ({"max_functions": 8}, mixture(20, 2), ParameterError, "order 1 has 9 functions"),
    "one row": ({}, np.ones((1, 1)), EmptyDataError, "1 sample"),
    "nan": ({}, np.array([[0.0], [np.nan], [1.0]]), NonFiniteError, "NaN"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "X", "error", "text"), BAD.values(), ids=BAD)
def test_what_is_refused(options, X, error, text):
    with pytest.raises(error, match=text) as caught:
        ig.GPDensity(**options).fit(X)
    assert isinstance(caught.value, InducingError)


def test_a_fit_cut_short_says_so():
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model = ig.GPDensity(order=4, max_iter=1).fit(mixture(100))
    assert not model.converged_ and model.n_iter_ == 1


def too_many_inputs(estimator):
    """Checks on tables of ten inputs and more, where order 1 already has 59049 functions."""
    return dict.fromkeys(("check_dtype_object", "check_sample_weight_equivalence_on_dense_data"), "at least ten inputs")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # 30 rows, 27 functions
@parametrize_with_checks([ig.GPDensity(order=1)], expected_failed_checks=too_many_inputs)
def test_scikit_learns_contract(estimator, check):
    check(estimator)


def test_c12(tmp_path):
    report = reproduce("C12", quick=True, folder=tmp_path)
    assert json.loads((tmp_path / "C12" / "values.json").read_text(encoding="utf-8"))
    assert set(report.pictures) == {"density", "sizes"}
    few = ("with k₀ by evidence",)  # repeats cannot settle it
    assert [claim.text for claim in report.claims if claim.holds is False and not claim.text.startswith(few)] == []
    assert report.values["basis vectors"] == [11] * len(report.values["basis vectors"])
