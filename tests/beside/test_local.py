"""Subsets of data by nearest neighbours: where the rest is screened off, and where it is not. [002, Subset of
Data]
"""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import inducing as ig
import oracle
import oracle_beside as dense
from inducing import errors
from inducing.beside.local import neighbours

KERNEL = ig.kernels.RBF([0.5, 2.0], 1.7)
K0 = oracle.bind(oracle.rbf, lengthscale=np.array([0.5, 2.0]), variance=1.7)

rng = np.random.default_rng(2)
X = rng.uniform(-2, 2, (80, 2))
XS = rng.uniform(-2, 2, (12, 2))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.standard_normal(80)
Y2 = np.stack([Y, np.cos(X[:, 1])], axis=1)
NOISES = rng.uniform(0.02, 0.4, 80)


@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
def test_exact_gp_on_the_nearest_rows(y: Any) -> None:
    """Nearest in lengthscales: the kernel's own notion of near."""
    found = neighbours(KERNEL, NOISES, X, y + 0.4, size=9, mean=ig.means.Constant(0.4)).predict(XS)
    for i, x in enumerate(XS):
        rows = np.argsort(np.sum(((X - x) / [0.5, 2.0]) ** 2, axis=1))[:9]
        mean, cov = dense.exact(K0, NOISES[rows], X[rows], y[rows], x[None])
        assert_allclose(found.mean[i], mean[0] + 0.4, rtol=1e-9)
        assert_allclose(found.variance[i], cov[0, 0], rtol=1e-9)


def test_all_rows_are_the_exact_gp() -> None:
    mean, cov = dense.exact(K0, NOISES, X, Y, XS)
    found = neighbours(KERNEL, NOISES, X, Y, size=80).predict(XS)
    assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-10)
    assert_allclose(found.variance, np.diag(cov), rtol=1e-8)


def test_compiled_queries(capfd: pytest.CaptureFixture[str]) -> None:
    local: Any = ig.local.neighbours(ig.kernels.Matern32(0.7, 1.3), 0.1, X, Y, size=5)
    for got, want in zip(local.compile().many(XS), local.predict(XS), strict=True):
        assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    assert "illegal value" not in "".join(capfd.readouterr())  # BLAS knows no matrix without columns


def test_screening() -> None:
    """A Markov kernel without noise depends on the two neighbours alone; the smooth RBF, or noise, on more.
    [Stein 2002]
    """
    grid = np.arange(30.0)[:, None]
    y, queries = np.sin(grid[:, 0]), np.array([[3.4], [11.5], [20.2]])

    def excess(kernel: Any, noise: float) -> float:
        """By how much two neighbours leave more variance than all rows."""
        exact = ig.condition(kernel, None, "exact", noise, grid, y).predict(queries)
        return float(
            np.max(neighbours(kernel, noise, grid, y, size=2).predict(queries).variance / exact.variance - 1)
        )

    assert abs(excess(ig.kernels.Matern12(5.0), 1e-10)) < 1e-6
    assert excess(ig.kernels.Matern12(5.0), 0.3) > 0.1
    assert excess(ig.kernels.RBF(5.0), 1e-4) > 0.5


def test_neighbours_change_and_the_mean_jumps() -> None:
    predictor = neighbours(ig.kernels.RBF(1.0), 0.1, np.array([[0.0], [1.0]]), np.array([0.0, 1.0]), size=1)
    before, after = predictor.predict(np.array([[0.5 - 1e-9], [0.5 + 1e-9]])).mean
    assert_array_equal(predictor.rows(np.array([[0.4], [0.6]])), [[0], [1]])
    assert before == 0.0 and after == pytest.approx(np.exp(-0.125) / 1.1)


def test_zero_weight_rows_are_not_neighbours() -> None:
    weights = np.where(X[:, 0] > 0, 1.0, 0.0)
    kept = neighbours(KERNEL, 0.1, X[weights > 0], Y[weights > 0], size=5).predict(XS)
    assert_allclose(
        neighbours(KERNEL, 0.1, X, Y, size=5, weights=weights).predict(XS).mean, kept.mean, rtol=1e-12
    )


def test_joint_covariance() -> None:
    """Each query's variance is its own, and all rows give the exact GP's."""
    predictor = neighbours(KERNEL, NOISES, X, Y, size=9)
    joint = predictor.covariance(np.concatenate([XS, XS]))
    assert_allclose(np.diag(joint)[: len(XS)], predictor.predict(XS).variance, rtol=1e-10)
    assert np.linalg.eigvalsh(joint)[0] > -1e-10
    _, cov = dense.exact(K0, NOISES, X, Y, XS)
    assert_allclose(neighbours(KERNEL, NOISES, X, Y, size=80).covariance(XS), cov, rtol=1e-8, atol=1e-10)


def test_refusals() -> None:
    for size in (0, 81):
        with pytest.raises(errors.ParameterError, match=rf"number of rows \(80\), but is {size}"):
            neighbours(KERNEL, 0.1, X, Y, size=size)
    predictor = neighbours(KERNEL, 0.1, X, Y)
    with pytest.raises(errors.ShapeError, match="X has 1 columns"):
        predictor.predict(XS[:, :1])
    assert predictor.log_evidence is None and len(predictor.basis) == 0
