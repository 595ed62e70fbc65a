"""Sobol indices: closed forms against plain averages, known functions within their error bars."""

import numpy as np
import pytest

import inducing as ig
from inducing.inference import sensitivity

BOX = np.full(3, -np.pi), np.full(3, np.pi)


def ishigami(X):
    return np.sin(X[:, 0]) + 7 * np.sin(X[:, 1]) ** 2 + 0.1 * X[:, 2] ** 4 * np.sin(X[:, 0])


def truth():
    """First order and total indices of the Ishigami function. [Ishigami and Homma 1990]"""
    first = np.array([0.5 * (1 + 0.1 * np.pi**4 / 5) ** 2, 49 / 8, 0.0])
    both = 0.01 * np.pi**8 * (1 / 18 - 1 / 50)
    whole = first.sum() + both
    return first / whole, (first + both * np.array([1.0, 0.0, 1.0])) / whole


@pytest.mark.parametrize("multiscale", [False, True])
def test_closed_form_is_the_average_over_functions(multiscale):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 2, (40, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 0] * X[:, 1]
    basis = ig.bases.Points(X[:9])
    if multiscale:
        basis = ig.bases.Multiscale(X[:9], rng.uniform(0.9, 1.5, (9, 2)))
    post = ig.condition(ig.kernels.RBF([0.9, 1.1], 1.5), basis, "vfe", 0.05, X, y)
    found = ig.sobol_indices(post, [-1, -1], [2, 2], size=2)
    # D_S by plain averages: the mean function's products, and the covariance between points that share inputs
    A, B = rng.uniform(-1, 2, (2, 4000, 2))
    mean = post.predict(A).mean

    def joint(C):
        """E over pairs of rows of A and C."""
        rows = np.stack([A, C], axis=1)[:1500]
        return np.mean([post.covariance(pair)[0, 1] for pair in rows]) + np.mean(mean * post.predict(C).mean)

    none, whole = joint(B), joint(A)
    for k in range(2):
        shared, rest = B.copy(), A.copy()
        shared[:, k], rest[:, k] = A[:, k], B[:, k]
        assert found.first[k] == pytest.approx((joint(shared) - none) / (whole - none), abs=0.06)
        assert found.total[k] == pytest.approx(1 - (joint(rest) - none) / (whole - none), abs=0.06)


@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_indices_of_a_known_function(kernel):
    X = np.random.default_rng(1).uniform(*BOX, (300, 3))
    model = ig.SparseGPRegressor(kernel, approximation="exact", random_state=0).fit(X, ishigami(X))
    found = model.sobol_indices(*BOX)
    for value, std, true in zip((found.first, found.total), (found.first_std, found.total_std), truth()):
        assert np.all(np.abs(value - true) < 3 * std + 0.02)
    assert np.all(model.sobol_indices().first < 1.0)  # a box from the data's own moments


@pytest.mark.parametrize("t", [0.3, 1.0, 7.0])
def test_the_correlation_of_two_places(t: float) -> None:
    nodes, weights = np.polynomial.legendre.leggauss(80)
    u, weights = 0.5 * t * (nodes + 1.0), 0.5 * weights
    expected = weights @ np.exp(-0.5 * (u[:, None] - u) ** 2) @ weights
    assert sensitivity._correlation(t) == pytest.approx(expected, rel=1e-12)


def test_slices_draw_from_a_product_of_gaussians():
    """N(0, I) times exp(-|z - 1|²/2) is N(1/2, I/2)."""
    rng = np.random.default_rng(0)
    drawn = sensitivity._elliptical_slices(lambda z: -0.5 * float(np.sum((z - 1.0) ** 2)), 3, 1500, rng)
    assert np.mean(drawn, axis=0) == pytest.approx(0.5, abs=0.1)
    assert np.cov(np.transpose(drawn)) == pytest.approx(0.5 * np.eye(3), abs=0.1)


def test_likely_parameters_spread_as_their_evidence_does():
    """A kernel of ten parameters has eight different draws: none has all the weight."""
    X = np.random.default_rng(1).uniform(-2, 2, (60, 3))
    k = ig.kernels.RBF([1.0, 1.0, 1.0], 4.0)
    for i in range(3):
        k = k + ig.kernels.Matern52(2.0, 0.1, columns=(i,))
    post = ig.condition(k, None, "exact", 0.01, X, ig.prior(k).sample(X, 1, 3)[0])
    found = sensitivity.likely_parameters(post, 8, 0)
    assert len({own.log_evidence for own in found}) == 8
    assert all(own.log_evidence > post.log_evidence - 15.0 for own in found)


def test_likely_parameters_are_drawn_about_laplace_s_approximation(monkeypatch):
    """With one direction of its spread after the other as the draws: these make up its covariance, and the
    weight of each is the posterior's density over the approximation's.
    """
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (40, 1))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(40)
    start = np.log([0.8, 1.1, 0.09])

    def evidence(logs):
        length, variance, noise = np.exp(logs)
        A = variance * np.exp(-0.5 * ((X - X.T) / length) ** 2) + noise * np.eye(40)
        return -0.5 * (y @ np.linalg.solve(A, y) + np.linalg.slogdet(2.0 * np.pi * A)[1])

    def directions(log_weight, d, count, generator):
        weights.extend(log_weight(z) for z in np.eye(d))
        return list(np.eye(d))

    weights = []
    monkeypatch.setattr(sensitivity, "_elliptical_slices", directions)
    post = ig.condition(ig.kernels.RBF(0.8, 1.1), None, "exact", 0.09, X, y)
    found = sensitivity.likely_parameters(post, 3)
    drawn = np.array(
        [[own.kernel.lengthscale, own.kernel.variance, np.unique(own.added)[0]] for own in found], dtype=float
    )
    away = np.log(drawn) - start
    h, E = 1e-3, 1e-3 * np.eye(3)
    H = [
        [sum(s * t * evidence(start + s * a + t * b) for s in (1, -1) for t in (1, -1)) for b in E] for a in E
    ]
    values, vectors = np.linalg.eigh(-np.array(H) / (4.0 * h**2))
    expected = vectors @ np.diag(1.0 / (np.maximum(values, 0.0) + 1.5**-2)) @ vectors.T
    np.testing.assert_allclose(away.T @ away, expected, rtol=1e-3, atol=1e-5)
    for weight, step in zip(weights, away, strict=True):
        assert weight == pytest.approx(
            evidence(start + step) - 0.5 * np.sum(step**2) / 1.5**2 + 0.5, abs=1e-4
        )


def test_the_slopes_of_a_mean_count():
    """Of f = 2 x₁ + x₂ and next to nothing else the shares are 4/5 and 1/5; the closed form knows no mean."""
    X = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    mean = ig.means.Linear([2.0, 1.0], 0.3)
    post = ig.condition(
        ig.kernels.RBF(1.0, 1e-8), ig.bases.Points(X[:4]), "vfe", 0.1, X, X @ [2.0, 1.0] + 0.3, mean=mean
    )
    found = ig.sobol_indices(post, [-1, -1], [1, 1], size=2)
    np.testing.assert_allclose([found.first, found.total], [[0.8, 0.2]] * 2, atol=0.02)
