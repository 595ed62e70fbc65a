"""Learned centres: slopes by differences of the dense evidence, and centres that were known. [003 §10.2]"""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_relevance import log_evidence

import inducing as ig
import oracle
from inducing.beside.relevance import Centers
from inducing.beside.relevance_search import LabelSearch, ValueSearch
from inducing.model.likelihoods import Probit

KERNEL = ig.kernels.RBF([0.6, 0.9], 1.7)
K0 = oracle.bind(oracle.rbf, lengthscale=np.array([0.6, 0.9]), variance=1.7)
rng = np.random.default_rng(2)
X = rng.uniform(-2, 2, (60, 2))
Y = np.sin(2 * X[:, 0]) - 0.5 * X[:, 1] + 0.1 * rng.standard_normal(60)
ACTIVE, PRECISIONS = np.array([4, 11, 17, 29]), np.array([0.7, 2.0, 5.0, 1.1])
WIDTHS = np.where(np.arange(120).reshape(60, 2) % 2, 1.0, 1.5)


def problem(kind: str, y: Any) -> Any:
    from inducing.model.problem import make_problem
    from inducing.model.table import SoR

    basis = ig.bases.Points(X) if kind == "points" else ig.bases.Multiscale(X, WIDTHS)
    return make_problem(KERNEL, basis, SoR, 1.0, X, y, jitter=0.0)


@pytest.mark.parametrize("kind", ["points", "multiscale"])
def test_slopes_of_the_dense_evidence(kind: str) -> None:
    rng = np.random.default_rng(100)
    climb = Centers(ValueSearch(problem(kind, Y), 0.05, ACTIVE, PRECISIONS), 1e-6)

    def dense(x: Any) -> float:
        Z, alpha, noise = x[:8].reshape(4, 2), np.exp(x[8:12]), np.exp(x[12])
        functions = (
            oracle.points(K0, Z)
            if kind == "points"
            else oracle.multiscale(Z, WIDTHS[ACTIVE], np.array([0.6, 0.9]), 1.7)
        )
        return log_evidence(alpha, noise, functions.cross(X), Y)

    x = climb.start + 0.05 * rng.standard_normal(13)
    value, gradient = climb.value_and_gradient(x)
    assert value == pytest.approx(dense(x), rel=1e-10)
    slopes = [(dense(x + step) - dense(x - step)) / 2e-5 for step in 1e-5 * np.eye(13)]
    assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-5)


def test_slopes_of_the_evidence_of_labels() -> None:
    rng = np.random.default_rng(101)
    labels = np.where(Y + 0.3 * rng.standard_normal(60) > 0, 1.0, -1.0)
    climb = Centers(LabelSearch(problem("points", labels), labels, Probit(), ACTIVE, PRECISIONS), None)
    x = climb.start + 0.05 * rng.standard_normal(12)
    _, gradient = climb.value_and_gradient(x)
    slopes = []
    for step in 1e-4 * np.eye(12):
        above, below = (climb.value_and_gradient(x + sign * step)[0] for sign in (1, -1))
        slopes.append((above - below) / 2e-4)
    assert_allclose(gradient, slopes, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def bumps() -> Any:
    """Three functions between the training inputs, and the noise they came with."""
    grid = np.linspace(-3.0, 3.0, 41)[:, None]
    centers, weights = np.array([[-1.93], [0.07], [1.78]]), np.array([1.0, -0.8, 1.3])
    y = oracle.rbf(grid, centers, 0.7) @ weights + 0.02 * np.random.default_rng(0).standard_normal(41)
    kernel = ig.kernels.RBF(0.7)
    return (
        grid,
        y,
        centers,
        ig.relevance_vectors(kernel, grid, y),
        ig.relevance_vectors(kernel, grid, y, learn_centers=True),
    )


def test_centres_that_were_known(bumps: Any) -> None:
    X, y, centers, fixed, moved = bumps
    assert len(moved) == 3 and len(fixed) > 4 and moved.converged
    order = np.argsort(moved.basis.Z[:, 0])
    assert_allclose(moved.basis.Z[order], centers, atol=0.02)
    assert np.max(np.abs(X[moved.rows] - moved.basis.Z)) < 1.0 and len(moved.rows) == 3
    assert moved.noise == pytest.approx(0.02**2, rel=0.5)


def test_the_evidence_only_grows_and_is_that_of_the_moved_functions(bumps: Any) -> None:
    X, y, _, fixed, moved = bumps
    assert np.all(np.diff(moved.values) > 0) and moved.log_evidence > fixed.log_evidence + 2.0
    Phi = oracle.rbf(X, moved.basis.Z, 0.7)
    assert_allclose(
        [moved.log_evidence, moved.values[-1]], log_evidence(moved.precisions, moved.noise, Phi, y), rtol=1e-8
    )


def test_functions_of_many_widths_move_as_well() -> None:
    basis = ig.bases.Multiscale(X, WIDTHS)
    fixed, moved = (
        ig.relevance_vectors(KERNEL, X, Y, basis=basis, noise=0.02, learn_centers=learn)
        for learn in (False, True)
    )
    assert moved.log_evidence > fixed.log_evidence + 1.0
    functions = oracle.multiscale(
        moved.basis.centers, WIDTHS[moved.rows], np.array([0.6, 0.9]), 1.7
    )  # widths stay
    assert moved.log_evidence == pytest.approx(
        log_evidence(moved.precisions, 0.02, functions.cross(X), Y), rel=1e-8
    )


def test_noise_that_is_given_stays(bumps: Any) -> None:
    X, y = bumps[:2]
    assert ig.relevance_vectors(ig.kernels.RBF(0.7), X, y, noise=1e-3, learn_centers=True).noise == 1e-3


def test_labels() -> None:
    """Classes that change between the training inputs: fewer functions, or more evidence, or both."""
    x = np.linspace(-3.0, 3.0, 60)[:, None]
    y = np.where(np.cos(1.8 * x[:, 0]) + 0.3 * np.random.default_rng(1).standard_normal(60) > 0, 1.0, -1.0)
    fixed, moved = (
        ig.relevance_vectors(ig.kernels.RBF(0.8), x, y, likelihood=Probit(), learn_centers=learn)
        for learn in (False, True)
    )
    assert moved.log_evidence > fixed.log_evidence and len(moved) <= len(fixed)
    assert np.all(np.diff(moved.values) > 0)
    assert not np.any(np.isin(moved.basis.Z[:, 0], x[:, 0]))
