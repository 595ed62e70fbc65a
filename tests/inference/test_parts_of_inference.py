"""The small parts of inference, each by itself: defaults, units, queries far out, fields, blocks of rows."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing.inference import fields, neighbours, selection
from inducing.inference.conjugate_gradients import predictor as iterative
from inducing.inference.conjugate_gradients.predictor import Solver
from inducing.inference.mixtures import Mixtures
from inducing.inference.online_start import carried
from inducing.inference.regression import problem_of
from inducing.inference.shapley import sampled_values
from inducing.model.kernels import DivergenceFree
from inducing.model.likelihoods import Gaussian

RNG = np.random.default_rng(4)
X = RNG.uniform(-2.0, 2.0, (60, 2))
Y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * RNG.standard_normal(60)
XS = RNG.uniform(-2.0, 2.0, (9, 2))
KERNEL, NOISE = ig.kernels.RBF([0.6, 0.9], 1.3), 0.02


def test_conjugate_gradients_are_those_of_the_documentation_by_default() -> None:
    assert Solver() == Solver(tolerance=1e-6, rank=100, probes=16, max_iterations=1000, rng=0)
    system = iterative.System.of(problem_of(KERNEL, None, "cg", NOISE, X, Y), Solver(rank=3))
    Z, targets = system.probes()
    assert Z.shape == (60, 16)
    assert_allclose(targets, 1e-4 * np.sqrt(np.sum(Z**2, axis=0)), rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_means_by_conjugate_gradients_have_their_digits_in_any_unit(unit: float) -> None:
    """Within the tolerance times the root mean square of y, a number of which is zero."""
    y = unit * np.where(np.arange(60) == 7, 0.0, Y)
    post = iterative.predictor_of(problem_of(KERNEL, None, "cg", NOISE, X, y), Solver(rank=5))
    exact = KERNEL(XS, X) @ np.linalg.solve(KERNEL(X, X) + NOISE * np.eye(60), y)
    rms = np.sqrt(np.mean(y**2))
    assert_allclose(post.predict(XS)[0], exact, rtol=0, atol=1e-6 * rms)
    assert np.max(post.solution.residuals) <= 1e-6 * np.sqrt(NOISE / 1.3) * rms


def test_shapley_values_are_sampled_from_eight_orders_by_default() -> None:
    rows = []

    def function(A: np.ndarray) -> np.ndarray:
        rows.append(len(A))
        return A[:, 0] * A[:, 1]

    found = sampled_values(function, X[:2], X[10:13])
    assert rows == [3 * 8 * 3, 3 * 8 * 3, 3]  # background rows, orders, and inputs known: none, one, both
    assert_allclose(found.predictions, X[:2, 0] * X[:2, 1], rtol=1e-12)


def test_the_covariance_of_queries_far_from_all_is_the_prior() -> None:
    post: Any = ig.condition(KERNEL, ig.bases.Points(X[:8]), "pic", NOISE, X, Y, blocks=np.arange(60) // 20)
    far = np.array([[500.0, 0.0], [500.3, 0.0], [900.0, 0.0]])
    apart = KERNEL(far, far)
    apart[2, :2] = apart[:2, 2] = 0.0
    assert_allclose(post.covariance(far, blocks=np.array([0, 0, 1])), apart, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [1, 3])
def test_the_evidence_of_a_field_of_gaussian_nodes(n: int) -> None:
    """Mixtures of one component are Gaussian data: log N(centres; 0, K + spread)."""
    rng = np.random.default_rng(n)
    nodes, centres = rng.normal(size=(n, 2)), rng.normal(size=(n, 1, 2))
    t = Mixtures.of(np.ones((n, 1)), centres, np.broadcast_to(0.3 * np.eye(2), (n, 1, 2, 2)))
    kernel = DivergenceFree(1.5, 2.0)
    post = fields.expectation_propagation(kernel, t, nodes, jitter=1e-12)
    stacked = fields.stack(nodes, 2)
    A, y = kernel(stacked, stacked) + 0.3 * np.eye(2 * n), centres.ravel()
    expected = -0.5 * (y @ np.linalg.solve(A, y) + np.linalg.slogdet(2.0 * np.pi * A)[1])
    assert post.log_evidence == pytest.approx(expected, rel=1e-8)
    read = fields.update(ig.prior(kernel), t, nodes)
    assert read.log_predictive == pytest.approx(expected, rel=1e-8)
    again = fields.update(ig.prior(kernel), t[:1], nodes[:1])
    again = fields.update(again, t[1:], nodes[1:]) if n > 1 else again
    assert again.log_predictive == pytest.approx(expected, rel=1e-8)
    assert_allclose(again.mean(stacked), read.mean(stacked), atol=1e-7)


def test_blocks_of_rows_on_a_grid_do_not_depend_on_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows share each coordinate, and k-means looks at some of them."""
    monkeypatch.setattr(neighbours, "BLOCK_ROWS", 16)
    monkeypatch.setattr(selection, "LOOKED_AT", 40)
    monkeypatch.setattr(selection, "LOOKED_AT_EACH", 2)
    grid = np.stack(np.meshgrid(np.arange(12.0), np.arange(9.0)), axis=-1).reshape(-1, 2)
    moved = np.random.default_rng(0).permutation(len(grid))
    own, other = neighbours.clusters(grid), neighbours.clusters(grid[moved])
    assert {tuple(block) for block in own} == {tuple(np.sort(moved[block])) for block in other}


@pytest.mark.parametrize("count", [57, 58, 59])
def test_as_many_neighbours_as_asked_for_or_all_rows(count: int) -> None:
    rows = ig.as_source(X, Y, chunk_rows=60)
    args = KERNEL, ig.bases.Points(X[:4]), "neighbours", NOISE
    far: Any = ig.condition(*args, rows, neighbours=count)
    here: Any = ig.condition(*args, X, Y, neighbours=count)
    assert far.n_neighbours == here.n_neighbours == (60 if count == 59 else count)
    mean = far.predict(XS)[0]
    assert_allclose(mean, here.predict(XS)[0], rtol=1e-9)
    assert ("_L" in vars(far)) == ("_L" in vars(here)) == (count == 59)  # the factor of all rows


def test_what_little_was_learned_is_carried_over() -> None:
    """Of noise a hundred billion times the prior's variance the sites are 1e-11 of it, and large targets."""
    start = ig.prior(KERNEL)
    old = ig.update(start, Gaussian(1e11), X[:6], 1e11 * Y[:6], capacity=None, tolerance=1e-9)
    expected = KERNEL(XS, X[:6]) @ Y[:6]
    assert_allclose(old.predict(XS)[0], expected, rtol=1e-6, atol=1e-6)
    same = carried(old, KERNEL, old.mean_function)
    assert_allclose(same.predict(XS)[0], expected, rtol=1e-4, atol=1e-4)
    kernel = ig.kernels.RBF([0.5, 1.2], 0.7)
    other = carried(old, kernel, old.mean_function)
    assert_allclose(other.predict(XS)[0], kernel(XS, X[:6]) @ Y[:6], rtol=1e-3, atol=1e-3)
