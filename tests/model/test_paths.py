"""Whole functions drawn from a process: their moments, values on the basis, gradients and maxima."""

import numpy as np
import pytest

import inducing as ig
from inducing.model import paths as drawing
from inducing.model.kernels.waves import waves

K = ig.kernels
KERNELS = {
    "rbf": K.RBF([1.0, 1.5], 1.3),
    "matern12": K.Matern12([1.0, 2.0], 0.7),
    "matern32": K.Matern32(1.2, 1.0),
    "matern52": K.Matern52(1.2, 2.0),
    "rational quadratic": K.RationalQuadratic(1.0, 1.0, 1.3),
    "rbf + linear": K.RBF(1.0) + K.Linear([0.5, 0.2]),
    "periodic · rbf": K.Periodic(1.0, 2.5, 1.2, columns=[0]) * K.RBF(2.0, columns=[1]),
    "rbf · matern + constant": K.RBF(1.0) * K.Matern32(2.0) + K.Constant(0.5),
    "levels + matern52 + linear": K.Levels(K.Matern32([1.5, 2.0, 0.6, 0.8, 0.7]), [[0, -2], [0, 0], [0, 1.5]])
    + K.Matern52(1.0, 0.3, columns=[1])
    + K.Linear(0.1),
    "warped": K.Warped(K.Matern32([1.5, 2.0], columns=[0, 2]), [[1, 0.3, 0.4]]),
    "projected": K.Projected(K.RBF(1.0), [[1.0, 0.5]]),
}
DRAWS = 4000


def _data(n=60):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(n), rng.uniform(-3, 3, (12, 2))


def _posterior(kernel, row):
    X, y, Xs = _data()
    basis = None if row == "exact" else ig.bases.Points(X[:12])
    return ig.condition(kernel, basis, row, 0.05, X, y, mean=ig.means.Constant(0.4)), Xs


def _agree(post, Xs, paths, scale):
    """Means and covariances of the draws are those of the process, up to both kinds of sampling error."""
    values = paths(Xs)
    mean, covariance = post.predict(Xs).mean, post.covariance(Xs)
    std = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(values.mean(axis=0) - mean) < 5.0 * std / np.sqrt(len(values)) + 1e-3 * scale)
    error = np.cov(values.T) - covariance
    random = 5.0 * np.sqrt((np.outer(std, std) ** 2 + covariance**2) / len(values))
    assert np.all(np.abs(error) < random + 0.08 * scale)  # 1/√2048 is 0.022


@pytest.mark.parametrize("row", ["exact", "fitc", "sor"])
@pytest.mark.parametrize("name", KERNELS)
def test_moments_are_those_of_the_process(name, row):
    post, Xs = _posterior(KERNELS[name], row)
    scale = float(np.max(KERNELS[name].diag(Xs))) if row != "sor" else 1e-3
    _agree(post, Xs, post.paths(DRAWS, 1), scale)


def test_a_multiscale_basis_is_met_by_its_own_functionals():
    X, y, Xs = _data()
    widths = np.random.default_rng(3).uniform(0.9, 1.7, (12, 2)) * [1.0, 1.5]
    kernel = K.RBF([1.0, 1.5], 1.3)
    post = ig.condition(kernel, ig.bases.Multiscale(X[:12], widths), "vfe", 0.05, X, y)
    _agree(post, Xs, post.paths(DRAWS, 1, features=8192), 1.3)


def test_waves_on_gaussians_have_their_covariance_with_f():
    """Of widths other than the lengthscales, neither of them 1."""
    X, _, _ = _data()
    kernel = K.RBF([0.6, 1.7], 1.3)
    widths = np.random.default_rng(3).uniform(0.8, 1.9, (12, 2)) * [0.6, 1.7]
    basis = ig.bases.Multiscale(X[:12], widths)
    prior = waves(kernel, 2, 1 << 16, np.random.default_rng(0))
    found = drawing._on_basis(prior, kernel, basis) @ prior(X).T
    np.testing.assert_allclose(found, basis.cross(kernel, X).T, rtol=0, atol=0.003)


def test_draws_of_few_features_are_exact_on_the_basis():
    post, _ = _posterior(KERNELS["rbf"], "fitc")
    Z, paths = post.basis.Z, post.paths(DRAWS, 2, features=8)
    values, covariance = paths(Z), post.covariance(Z)
    std = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(values.mean(axis=0) - post.predict(Z).mean) < 5.0 * std / np.sqrt(DRAWS))
    assert np.all(np.abs(values.std(axis=0) / std - 1.0) < 5.0 / np.sqrt(2 * DRAWS) + 1e-3)


def test_two_samples_cannot_be_told_apart():
    """Largest values on a grid, by paths and by exact joint draws: Kolmogorov and Smirnov's distance."""
    from scipy.stats import ks_2samp

    post, _ = _posterior(K.Matern52(1.2, 2.0), "vfe")
    grid = np.stack(np.meshgrid(np.linspace(-3, 3, 8), np.linspace(-3, 3, 8)), axis=-1).reshape(-1, 2)
    ours, theirs = post.paths(1000, 3)(grid).max(axis=1), post.sample(grid, 1000, 4).max(axis=1)
    assert ks_2samp(ours, theirs).pvalue > 1e-3
    assert ks_2samp(ours + 0.2, theirs).pvalue < 1e-3  # such a shift would be seen


@pytest.mark.parametrize(
    "name", ["rbf", "rbf + linear", "matern52", "periodic · rbf", "levels + matern52 + linear"]
)
def test_gradients_against_central_differences(name):
    post, Xs = _posterior(KERNELS[name], "fitc")
    paths = post.paths(3, 5).in_units(0.5, [2.0, 3.0], 1.0, 4.0)
    gradient, h = paths.gradient(Xs), 1e-5
    assert gradient.shape == (3, 12, 2)
    for k, step in enumerate(h * np.eye(2)):
        difference = (paths(Xs + step) - paths(Xs - step)) / (2 * h)
        np.testing.assert_allclose(gradient[:, :, k], difference, atol=1e-6)


def test_several_outputs_have_functions_of_their_own():
    X, y, Xs = _data()
    post = ig.condition(K.RBF(1.0), ig.bases.Points(X[:12]), "fitc", 0.05, X, np.column_stack([y, -2 * y]))
    values = post.paths(DRAWS, 1)(Xs)
    assert values.shape == (DRAWS, 12, 2)
    std = np.sqrt(post.predict(Xs).variance)[:, None]
    assert np.all(np.abs(values.mean(axis=0) - post.predict(Xs).mean) < 5 * std / np.sqrt(DRAWS) + 2e-3)
    residual = values - values.mean(axis=0)
    assert np.abs(np.mean(residual[..., 0] * residual[..., 1])) < 0.05
    assert post.paths(2, 1).gradient(Xs).shape == (2, 12, 2, 2)


def test_maxima_and_levels():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (30, 1))
    y = -((X[:, 0] - 1.0) ** 2) + 0.1 * rng.standard_normal(30)
    post = ig.condition(K.RBF(1.5, 5.0), None, "exact", 0.01, X, y)
    paths = post.paths(20, 0)
    where, values = paths.maxima([-3.0], [3.0])
    assert np.all(np.abs(where[:, 0] - 1.0) < 0.5)
    grid = np.linspace(-3, 3, 121)[:, None]
    assert np.all(values >= paths(grid).max(axis=1) - 1e-9)
    p = ig.probability_of_maximum(post, grid, size=400, rng=1)
    assert p.sum() == pytest.approx(1.0) and abs(float(p @ grid[:, 0]) - 1.0) < 0.2
    np.testing.assert_array_equal(ig.probability_of_maximum(paths, grid) * 20 % 1, 0.0)
    above = ig.probability_above(post, grid, -1.0)
    mean, variance = post.predict(grid)
    draws = np.random.default_rng(2).standard_normal((20000, 121)) * np.sqrt(variance) + mean
    assert np.max(np.abs(above - (draws > -1.0).mean(axis=0))) < 0.02


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda p: p("fic").paths(1), "independent conditional"),
        (lambda p: p("fitc").paths(0), "size must be at least 1"),
        (
            lambda p: ig.prior(
                K.Levels(K.RBF(1.0), [[0, 1.0]]) + K.Levels(K.RBF(1.0), [[1, 1.0]]),
                basis=ig.bases.Points(np.eye(2)),
            ).paths(1),
            "the same features",
        ),
        (
            lambda p: ig.prior(
                K.Warped(K.Warped(K.RBF(1.0), [(0, 0.0, 1.0)]), [(1, 0.0, 1.0)]),
                basis=ig.bases.Points(np.eye(2)),
            ).paths(1),
            "features of features",
        ),
        (lambda p: ig.prior(K.RBF(1.0)).paths(1), "without a basis"),
        (lambda p: p("fitc").paths(1).maxima([0, 0], [0, 1]), "low < high"),
    ],
)
def test_what_has_no_functions_says_so(call, sentence):
    X, y, _ = _data()
    with pytest.raises(ig.errors.InducingError, match=sentence):
        call(lambda row: ig.condition(K.RBF(1.0), ig.bases.Points(X[:5]), row, 0.1, X, y))
    with pytest.raises(ig.errors.ParameterError, match="drawn from a Polynomial"):
        ig.condition(K.Polynomial(2), ig.bases.Points(X[:5]), "fitc", 0.1, X, y).paths(1)
