"""Sparse kernel PCA: its likelihood in an explicit feature space, its maximum, and kernel PCA as the noise
vanishes.
"""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing import errors

rng = np.random.default_rng(8)
X = rng.standard_normal((40, 2))
XS = rng.standard_normal((7, 2))
KERNEL = ig.kernels.RBF([0.9, 1.2], 1.3)


def log_likelihood(W: Any, noise: float, K: Any) -> float:
    """Σ_j log N(ψ_j | 0, σ²I + ΨWΨᵀ) less the same at W = 0, with ψ the columns of K^½: as many dimensions as
    it takes.
    """
    values, vectors = np.linalg.eigh(K)
    Psi = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T  # (n, n): a column is an input
    C = noise * np.eye(len(K)) + (Psi * W) @ Psi.T
    n = len(K)
    full = n * np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, Psi @ Psi.T))
    return -0.5 * float(full - n * n * np.log(noise) - np.trace(K) / noise)


def spread(found: Any, n: int = 40) -> Any:
    W = np.zeros(n)
    W[found.rows] = found.weights
    return W


@pytest.mark.parametrize("noise", [0.3, 0.1, 0.03])
def test_likelihood_and_its_maximum(noise: float) -> None:
    """In an explicit feature space; at the maximum no weight could change, no zero would grow."""
    found = ig.sparse_kernel_pca(KERNEL, X, noise, max_iterations=5000)
    K, W = KERNEL(X, X), spread(found)
    assert found.converged and 0 < len(found) < 40
    assert found.gains[0] == 0.0 and np.all(np.diff(found.gains) > 0)
    assert found.gains[-1] == pytest.approx(log_likelihood(W, noise, K), rel=1e-8)
    h = 1e-6
    slopes = np.array([(log_likelihood(W + h * e, noise, K) - found.gains[-1]) / h for e in np.eye(40)])
    assert_allclose(slopes[found.rows] * found.weights, 0.0, atol=0.02)
    assert np.max(np.delete(slopes, found.rows)) < 0.1  # of the order of n where a weight is missing
    gone = spread(found)
    gone[found.rows[0]] = 0.0
    assert log_likelihood(gone, noise, K) < found.gains[-1] - 0.1


def test_more_noise_fewer_inputs() -> None:
    sizes = [len(ig.sparse_kernel_pca(KERNEL, X, noise)) for noise in (0.03, 0.1, 0.3, 2.0)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 2 * sizes[2] and sizes[-1] == 0


def test_kernel_pca_as_the_noise_vanishes() -> None:
    """W → I/n: eigenvalues and coordinates of K/n, by its eigenvectors. [004 eqs 3.33, 3.34]"""
    x = np.linspace(-3.0, 3.0, 12)[:, None]
    kernel = ig.kernels.RBF(0.5, 1.3)
    values, U = np.linalg.eigh(kernel(x, x))
    values, U = values[::-1], U[:, ::-1]
    gaps = []
    for noise in (1e-3, 1e-5):
        found = ig.sparse_kernel_pca(kernel, x, noise, tolerance=1e-10, max_iterations=20_000)
        assert len(found) == 12 and found.converged
        at = XS[:, :1]
        coordinates = found(at, 5) * np.sign(np.sum(found(x, 5) * U[:, :5], axis=0))
        expected = kernel(at, x) @ U[:, :5] / np.sqrt(values[:5])
        gaps.append(
            [
                np.max(np.abs(found.weights - 1 / 12)),
                np.max(np.abs(found.values - values / 12)),
                np.max(np.abs(coordinates - expected)),
            ]
        )
    assert np.all(np.array(gaps[1]) < 1e-3) and np.all(np.array(gaps[1]) < 0.1 * np.array(gaps[0]))


def test_components_are_orthonormal_and_carry_the_covariance() -> None:
    found = ig.sparse_kernel_pca(KERNEL, X, 0.05)
    K = KERNEL(found.basis.Z, found.basis.Z)
    assert_allclose(found.coefficients.T @ K @ found.coefficients, np.eye(len(found)), atol=1e-8)
    Z = found(XS)
    Ksu = KERNEL(XS, found.basis.Z)
    assert_allclose((Z * found.values) @ Z.T, (Ksu * found.weights) @ Ksu.T, atol=1e-9)
    assert np.all(np.diff(found.values) <= 0)
    assert_allclose(found(XS, 2), Z[:, :2])


def test_repeated_inputs_are_one_vector() -> None:
    found = ig.sparse_kernel_pca(KERNEL, np.vstack([X, X]), 0.1)
    once = ig.sparse_kernel_pca(KERNEL, X, 0.1)
    assert len(np.unique(found.basis.Z, axis=0)) == len(found)
    assert_allclose(found.values[:3], once.values[:3], rtol=1e-3)  # the same empirical covariance


def test_refusals() -> None:
    with pytest.raises(errors.NoiseError, match="in feature space and must be positive and finite, but is 0"):
        ig.sparse_kernel_pca(KERNEL, X, 0.0)
    with pytest.raises(errors.EmptyDataError, match="no rows"):
        ig.sparse_kernel_pca(KERNEL, X[:0], 0.1)
    with pytest.raises(errors.ShapeError, match="X has 1 columns"):
        ig.sparse_kernel_pca(KERNEL, X, 0.1)(XS[:, :1])
    with pytest.raises(errors.ParameterError, match="components, but 41 were asked for"):
        ig.sparse_kernel_pca(KERNEL, X, 0.1)(XS, 41)
    assert not ig.sparse_kernel_pca(KERNEL, X, 0.1, max_iterations=1).converged
