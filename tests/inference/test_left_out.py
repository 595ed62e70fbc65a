"""Leaving out one row in closed form against refits without it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import inducing as ig
import oracle
import oracle_neighbours as dense
from inducing.inference.left_out import Jackknife, LeftOut, exact_left_out_of, left_out_of
from inducing.inference.regression import approximation_of, problem_of


def _problem(outputs=1):
    rng = np.random.default_rng(4)
    X = rng.uniform(-2, 2, (25, 2))
    Y = np.sin(2 * X[:, :1]) * np.arange(1, outputs + 1) + 0.2 * rng.standard_normal((25, outputs))
    return X, Y[:, 0] if outputs == 1 else Y, ig.bases.Points(X[:6] + 0.1)


@pytest.mark.parametrize("approximation", ["exact", "sor", "dtc", "vfe", "fitc", "fic", "pep"])
@pytest.mark.parametrize("kind", ["plain", "noise by row", "weights", "mean", "two outputs"])
def test_equals_a_refit_without_the_row(approximation, kind):
    X, y, Z = _problem(2 if kind == "two outputs" else 1)
    rng = np.random.default_rng(5)
    noise = rng.uniform(0.05, 0.2, 25) if kind == "noise by row" else 0.1
    weights = rng.uniform(0.5, 3.0, 25) if kind == "weights" else None
    options = {"mean": ig.means.Constant(0.7)} if kind == "mean" else {}
    options |= {"power": 0.4} if approximation == "pep" else {}
    options |= {"jitter": 1e-10}
    kernel = ig.kernels.Matern52(0.9, 1.3)
    left = ig.leave_one_out(kernel, Z, approximation, noise, X, y, weights=weights, **options)
    for i in (0, 7, 24):
        rest = np.arange(25) != i
        some = noise if np.ndim(noise) == 0 else noise[rest]
        w = None if weights is None else weights[rest]
        post = ig.condition(kernel, Z, approximation, some, X[rest], y[rest], weights=w, **options)
        mean, variance = post.predict(X[i : i + 1])
        of_y = variance[0] + (noise if np.ndim(noise) == 0 else noise[i])
        assert left.mean[i] == pytest.approx(mean[0], rel=1e-9, abs=1e-9)
        assert left.variance[i] == pytest.approx(of_y, rel=1e-9)
        square = np.mean((y[i] - mean[0]) ** 2)
        assert left.log_density[i] == pytest.approx(
            -0.5 * (np.log(2 * np.pi * of_y) + square / of_y), rel=1e-7
        )
    np.testing.assert_allclose(left.std**2, left.variance)


@pytest.mark.parametrize(("n", "last"), [(25, 1), (25, 9), (25, 25), (1200, 800)])
@pytest.mark.parametrize("kind", ["plain", "noise by row", "weights", "mean", "two outputs"])
def test_the_last_rows_alone_are_left_out_as_with_all(kind, n, last):
    """Of 1,200 rows factors are inverted by halves, in parts of longer rows."""
    rng = np.random.default_rng(6)
    X = rng.uniform(-2, 2, (n, 2))
    Y = np.sin(2 * X[:, :1]) * [1.0, 2.0] + 0.2 * rng.standard_normal((n, 2))
    y = Y if kind == "two outputs" else Y[:, 0]
    noise = rng.uniform(0.05, 0.2, n) if kind == "noise by row" else 0.1
    options = {"mean": ig.means.Constant(0.7)} if kind == "mean" else {}
    options |= {"weights": rng.uniform(0.5, 3.0, n)} if kind == "weights" else {}
    P = problem_of(ig.kernels.Matern52(0.9, 1.3), None, "exact", noise, X, y, **options)
    every, some = left_out_of(P), exact_left_out_of(P, last)
    for name in ("mean", "variance", "log_density", "error"):
        assert_allclose(getattr(some, name), getattr(every, name)[-last:], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_along_neighbours_rows_are_left_out_of_the_joint(weighted):
    X, y, Z = _problem()
    rng = np.random.default_rng(6)
    weights = rng.uniform(0.5, 3.0, 25) if weighted else None
    kernel, sets = ig.kernels.Matern32(0.9, 1.3), dense.earlier(X, rng.permutation(25), 5)
    noise = rng.uniform(0.05, 0.2, 25)
    options = {"weights": weights, "jitter": 0.0}
    left = ig.leave_one_out(kernel, Z, "neighbours", noise, X, y, neighbours=sets, **options)
    k = oracle.bind(oracle.matern32, lengthscale=0.9, variance=1.3)
    Q = oracle.q_matrix(oracle.points(k, Z.Z), X, X)
    own = noise / (1.0 if weights is None else weights)
    C = Q + np.linalg.inv(dense.residual_precision(k(X, X) - Q, own, sets)[0])
    precision = np.linalg.inv(C)
    np.testing.assert_allclose(left.mean, y - (precision @ y) / np.diag(precision), rtol=1e-8)
    np.testing.assert_allclose(left.variance, 1 / np.diag(precision) - own + noise, rtol=1e-8)
    whole = ig.leave_one_out(kernel, Z, "neighbours", noise, X, y, neighbours=24, **options)
    exact = ig.leave_one_out(kernel, Z, "exact", noise, X, y, weights=weights)
    np.testing.assert_allclose(whole.mean, exact.mean, rtol=1e-8)
    np.testing.assert_allclose(whole.variance, exact.variance, rtol=1e-8)


def test_in_blocks_rows_are_those_of_pic_without_them():
    X, y, Z = _problem()
    kernel, blocks = ig.kernels.RBF(0.9, 1.3), np.arange(25) // 5
    left = ig.leave_one_out(kernel, Z, "pitc", 0.1, X, y, blocks=blocks)
    rest = np.arange(25) != 7
    pic = ig.condition(kernel, Z, "pic", 0.1, X[rest], y[rest], blocks=blocks[rest])
    mean, variance = pic.predict(X[7:8], blocks=blocks[7:8])
    assert left.mean[7] == pytest.approx(mean[0], rel=1e-8)
    assert left.variance[7] == pytest.approx(variance[0] + 0.1, rel=1e-8)


@pytest.mark.parametrize("approximation", ["sor", "vfe", "fitc"])
@pytest.mark.parametrize("name", ["probit", "poisson", "studentt"])
def test_rows_are_left_out_with_the_other_sites_held(approximation, name):
    X, y, Z = _problem()
    labels, likelihood = np.where(y > 0, 1.0, -1.0), ig.likelihoods.BY_NAME[name]()
    labels = {"poisson": np.round(np.exp(y)), "studentt": y}.get(name, labels)
    kernel, k = ig.kernels.RBF(0.9, 1.3), oracle.bind(oracle.rbf, lengthscale=0.9, variance=1.3)
    left = ig.leave_one_out(kernel, Z, approximation, likelihood, X, labels, jitter=0.0)
    sites = ig.condition(kernel, Z, approximation, likelihood, X, labels, jitter=0.0).sites
    Q = oracle.q_matrix(oracle.points(k, Z.Z), X, X)
    R = np.diag(k(X, X) - Q) * (approximation != "sor")
    for i in (0, 7, 24):
        tau, nu = (np.where(np.arange(25) == i, 0.0, part) for part in (sites.tau, sites.nu))
        S = np.linalg.solve(np.eye(25) + Q * tau, Q)
        assert left.mean[i] == pytest.approx((S @ nu)[i], rel=1e-9, abs=1e-9)
        assert left.variance[i] == pytest.approx(S[i, i] + R[i], rel=1e-9)
        expected = likelihood.log_average(labels[i], left.mean[i], left.variance[i])
        assert left.log_density[i] == pytest.approx(float(expected), rel=1e-12)
    with pytest.raises(ig.errors.ParameterError, match="needs a basis and no neighbours"):
        ig.leave_one_out(kernel, None, "exact", likelihood, X, labels)


@pytest.mark.parametrize("noise", [0.1, ig.likelihoods.Probit(), ig.likelihoods.Poisson()])
@pytest.mark.parametrize("row", ["vfe", "fitc", "pep"])
def test_over_a_source_as_in_memory(row, noise):
    X, y, Z = _problem()
    if not isinstance(noise, float):
        y = np.where(y > 0, 1.0, -1.0) if isinstance(noise, ig.likelihoods.Probit) else np.round(np.exp(y))
    options = {"power": 0.5} if row == "pep" else {}
    kernel, source = ig.kernels.RBF(0.9, 1.3), ig.as_source((X, y), chunk_rows=7)
    ours = ig.leave_one_out(kernel, Z, row, noise, source, **options)
    theirs = ig.leave_one_out(kernel, Z, row, noise, X, y, **options)
    for name in ("mean", "variance", "log_density", "error"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-6, atol=1e-8)
    with pytest.raises(ig.errors.ParameterError, match="over a source has no 'pitc'"):
        ig.leave_one_out(kernel, Z, "pitc", 0.1, ig.as_source((X, y)))


@pytest.mark.parametrize("row", ["exact", "vfe", "fitc", "sor"])
def test_the_jackknife_is_that_of_refits(row):
    X, y, Z = _problem()
    kernel, Xs = ig.kernels.Matern52(0.9, 1.3), np.random.default_rng(8).uniform(-2, 2, (6, 2))
    P = problem_of(kernel, Z, approximation_of(row), 0.1, X, y)
    found = Jackknife.of(P).interval(Xs, 0.8)
    left = ig.leave_one_out(kernel, Z, row, 0.1, X, y)
    std = np.sqrt(ig.condition(kernel, Z, row, 0.1, X, y).predict(Xs).variance + 0.1)
    low, high = [], []
    for i in range(25):
        rest = np.arange(25) != i
        mean = ig.condition(kernel, Z, row, 0.1, X[rest], y[rest]).predict(Xs).mean
        reach = std * abs(y[i] - left.mean[i]) / left.std[i]
        low.append(mean - reach)
        high.append(mean + reach)
    # of 25 and a new one, 21 are ⌈.8 · 26⌉
    np.testing.assert_allclose(found[:, 1], np.sort(high, axis=0)[20], rtol=1e-6)
    np.testing.assert_allclose(found[:, 0], np.sort(low, axis=0)[4], rtol=1e-6)
    assert np.all(np.isinf(Jackknife.of(P).interval(Xs, 0.99)))  # 25 rows cannot promise that


def test_another_noise_never_leaves_a_negative_variance() -> None:
    """Rows that are alike, along few neighbours: their precision may exceed that of the noise."""
    left = LeftOut(np.zeros(3), np.array([0.5, 0.02, 0.006]), np.zeros(3), np.array([0.1, 0.2, 0.3]))
    found = left.with_noise(np.full(3, 0.01), np.array([0.3, 0.001, 0.002]))
    assert_allclose(found.variance, [0.79, 0.011, 0.002])
    assert_allclose(found.log_density, stats.norm.logpdf([0.1, 0.2, 0.3], scale=np.sqrt(found.variance)))
