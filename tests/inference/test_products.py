"""Products with a kernel matrix in blocks against the matrix itself."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
import oracle
from inducing import errors
from inducing.inference.conjugate_gradients import products
from inducing.numerics import workers

VARIANCE = 1.7


def dense(kernel: Any, Z: np.ndarray, X: np.ndarray) -> np.ndarray:
    formula = oracle.rbf if isinstance(kernel, ig.kernels.RBF) else oracle.matern32
    return formula(Z, X, kernel.lengthscale, kernel.variance)


@pytest.mark.parametrize(
    "kernel, n",
    [(ig.kernels.RBF, 1), (ig.kernels.RBF, 700), (ig.kernels.RBF, 2100), (ig.kernels.Matern32, 1100)],
)
@pytest.mark.parametrize("cores", [1, 3])
def test_blocks_are_the_matrix(kernel: Any, n: int, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """n on either side of a block, and of several; fewer queries than a block and more; sums of threads."""
    monkeypatch.setattr(workers, "_process_cores", lambda: cores)
    rng = np.random.default_rng(101)
    k, X, V = kernel([0.4, 0.9], VARIANCE), rng.uniform(size=(n, 2)), rng.standard_normal((n, 3))
    product, K = products.Blocked(k, X), dense(k, X, X)
    assert_allclose(product(V), K @ V, rtol=0, atol=1e-11 * np.abs(V).sum())
    assert_allclose(product(V[:, 0]), K @ V[:, 0], rtol=0, atol=1e-11 * np.abs(V).sum())
    for t in (3, n + 40):
        Z = rng.uniform(size=(t, 2))
        assert_allclose(product(V, Z), dense(k, Z, X) @ V, rtol=0, atol=1e-11 * np.abs(V).sum())


def test_blocks_on_composite_kernels_and_columns() -> None:
    rng = np.random.default_rng(102)
    X, V = rng.uniform(size=(600, 3)), rng.standard_normal((600, 2))
    k = ig.kernels.RBF(0.5, 1.2, columns=(0, 2)) + ig.kernels.Matern32(0.8) * ig.kernels.RBF(2.0)
    assert_allclose(products.Blocked(k, X)(V), k(X, X) @ V, rtol=0, atol=1e-10)


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(errors.ShapeError, match=r"V has shape \(3,\), but the kernel matrix has 500 columns"):
        products.Blocked(ig.kernels.RBF(1.0), np.zeros((500, 6)))(np.ones(3))
