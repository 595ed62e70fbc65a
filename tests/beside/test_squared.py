"""Densities as squares of a process against quadrature, dense algebra from the thesis, and exact averages.
[004 §5.3]
"""

import itertools

import mpmath as mp
import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss
from numpy.testing import assert_allclose
from scipy.special import gammaln

import inducing as ig
from inducing.beside import squared
from inducing.beside.squared import Fourier, OrnsteinUhlenbeck, estimate
from inducing.errors import LabelError, ParameterError, ShapeError
from inducing.model.kernels import Matern12, Trigonometric
from inducing.model.likelihoods import Squared
from oracle_density import in_panels, waves

RNG = np.random.default_rng(0)


# The likelihood.


def test_f_squared_is_as_in_the_thesis():
    rng = np.random.default_rng(100)
    mean, var = rng.normal(size=20), rng.random(20) + 0.1
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
    ("mean", "var"),
    [(0.0, 0.7), (1e-7, 1.0), (0.4, 0.5), (-3.0, 0.2), (9.9, 1.0), (-10.1, 1.0), (50.0, 0.01)],
)
def test_powers_of_f_squared(times, mean, var):
    """Against 30 digits of the confluent hypergeometric function and its derivatives."""
    with mp.workdps(40):
        m, v, w = mp.mpf(mean), mp.mpf(var), mp.mpf(times)

        def log_average(x):
            return (
                w * mp.log(2 * v)
                + mp.loggamma(w + 0.5)
                - mp.loggamma(0.5)
                + mp.log(mp.hyp1f1(-w, 0.5, -x * x / (2 * v)))
            )

        h = mp.mpf(10) ** -9 * mp.sqrt(v)
        up, middle, down = log_average(m + h), log_average(m), log_average(m - h)
        expected = [float(middle), float((up - down) / (2 * h)), float((up + down - 2 * middle) / h**2)]
    found = [float(part) for part in Squared().tilted(times, mean, var)]
    assert_allclose(found, expected, rtol=2e-11, atol=1e-13)


def test_the_first_site_of_a_zero_mean_is_negative_and_changes_no_mean():
    kernel = Trigonometric(3, variance=0.4)
    post = ig.expectation_propagation(kernel, Squared(), [[0.3]], [1.0], sweeps=1)
    variance = 7 * 0.4
    assert_allclose(post.sites.tau, -2 / (3 * variance))  # r = 2/σ², so -r/(1 + rσ²)
    assert_allclose(post.predict(np.array([[0.3], [0.9]])).mean, 0.0, atol=1e-15)
    assert_allclose(post.predict(np.array([[0.3]])).variance, 3 * variance)  # of f² N(0, σ²)


def test_rows_are_seen_a_positive_number_of_times():
    with pytest.raises(LabelError, match="row 1 has 0"):
        Squared().check([1.0, 0.0])
    assert ig.likelihoods.from_spec(Squared().spec()) == Squared()


# The two families.


@pytest.mark.parametrize(("order", "d"), [(1, 1), (5, 1), (2, 2), (1, 3)])
def test_the_trigonometric_kernel_is_idempotent(order, d):
    """∫K(x, z)K(z, y)dz = K(x, y), K(x, x) = (2 order + 1)^d; a grid integrates trigonometric polynomials
    exactly.
    """
    rng = np.random.default_rng(101)
    kernel, axis = Trigonometric(order), np.arange(4 * order + 2) / (4 * order + 2)
    grid = np.stack(np.meshgrid(*[axis] * d), axis=-1).reshape(-1, d)
    X, Y = rng.random((2, 6, d))
    assert_allclose(
        kernel(X, grid) @ kernel(grid, Y) / len(grid), kernel(X, Y), atol=1e-12 * (2 * order + 1) ** d
    )
    assert_allclose(kernel(X, Y), waves(X, order) @ waves(Y, order).T, atol=1e-12 * (2 * order + 1) ** d)
    assert_allclose(kernel.diag(X), (2 * order + 1) ** d)


@pytest.mark.parametrize(("order", "d"), [(3, 1), (2, 2), (1, 3)])
def test_the_grid_is_an_orthogonal_basis_of_the_whole_space(order, d):
    rng = np.random.default_rng(102)
    prior = Fourier(order, d)
    Z = prior.basis().Z
    assert len(Z) == prior.functions == (2 * order + 1) ** d
    kernel, X = prior.kernel(0.5), rng.random((30, d))
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

    assert_allclose(
        in_panels(integrand, np.linspace(x - 20.0, x + 20.0, 801)), np.exp(-0.5 * 0.3**2), rtol=1e-10
    )


@pytest.mark.parametrize("scale", [0.05, 0.7])
def test_overlap_of_exponentials(scale):
    kernel, Z = Matern12(scale, variance=1.7), np.array([[0.0], [0.2], [0.21], [0.9]])
    total, G = squared.overlap(kernel, Z)
    assert_allclose(total, 1.7)
    edges = np.unique(np.concatenate([np.linspace(0.0, 1.0, 101), Z[:, 0]]))
    for i, j in itertools.product(range(4), repeat=2):
        product = in_panels(
            lambda x, i=i, j=j: kernel(Z[[i]], x[:, None])[0] * kernel(Z[[j]], x[:, None])[0], edges
        )
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
    """d/dλ log [λᴺ Z_λ E_λ Π f²] = N/λ - ½∫E f², by finite differences; so it is 0 at λ = 2N/D, D = 3. [004
    eqs 5.16, 5.23]
    """
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
    """E Π f(xᵢ)²/∫f² over directions of (ξ₁, ξ₂, ξ₃): over a sphere by an exact rule, for every λ."""
    product = lambda xi: np.prod((xi @ waves(THREE, 1).T) ** 2, axis=1)  # noqa: E731
    height, w = leggauss(8)
    angle = 2 * np.pi * np.arange(16) / 16
    radius = np.sqrt(1 - height**2)
    circle = [np.outer(radius, np.cos(angle)), np.outer(radius, np.sin(angle)), np.outer(height, np.ones(16))]
    expected = np.log(np.repeat(w, 16) @ product(np.stack(circle, axis=-1).reshape(-1, 3)) / 32)
    for lam in (0.0, 0.7, 20.0):
        assert_allclose(Fourier(1).log_evidence(np.log(average(product, lam)), lam, 3), expected, rtol=1e-12)


def dense_ep(X, order, lam, sweeps):
    """Expectation propagation over the coefficients themselves, inverting at every row: mean, covariance, log
    E_λ Π f².
    """
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
    """f and -f both count, and the process has one of them; others, that change their sign, matter little
    here.
    """
    X = np.random.default_rng(0).random((20, 1))
    product = lambda xi: np.prod((xi @ waves(X, 1).T) ** 2, axis=1)  # noqa: E731
    exact = Fourier(1).log_evidence(np.log(average(product, 0.0, nodes=24)), 0.0, 20)
    found = estimate(Fourier(1), X)
    assert abs(found.log_evidence - (exact - np.log(2))) < 0.05


def test_mass_is_the_integral():
    for prior, options in ((Fourier(3), {}), (OrnsteinUhlenbeck(0.1), {"hold": True})):
        X = np.clip(0.4 + 0.1 * np.random.default_rng(4).normal(size=(80, 1)), 0.0, 1.0)
        found = next(squared.sweeps(prior, X, **options))
        edges = np.unique(
            np.concatenate([np.linspace(0, 1, 41), found.posterior.basis.parameters["Z"][:, 0]])
        )
        total = in_panels(lambda x, post=found.posterior: squared.moments(post, x[:, None])[0], edges)
        assert_allclose(found.mass, total, rtol=1e-10)


def test_moments_of_a_square():
    rng = np.random.default_rng(103)
    found = next(squared.sweeps(Fourier(2), rng.random((30, 1))))
    grid = rng.random((10, 1))
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
