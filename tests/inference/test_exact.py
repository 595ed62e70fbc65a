import numpy as np
import pytest

import inducing as ig
from inducing.inference.exact_loops import weigh
from inducing.numerics.blas import addresses


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("n", [1, 2, 99, 100, 101, 193, 208, 401, 512])
def test_one_call_inverts_and_weighs_as_numpy_does(n: int, p: int) -> None:
    rng = np.random.default_rng(n)
    A = rng.standard_normal((n, n))
    S, Y = A @ A.T + n * np.eye(n), rng.standard_normal((n, p))
    K, alpha = np.where(np.tri(n, dtype=bool), S, np.nan), Y.copy()  # only the lower triangle is read
    value, solved = weigh(addresses(), K, alpha), np.linalg.solve(S, Y)
    Kbar = solved @ solved.T - p * np.linalg.inv(S)
    assert value == pytest.approx(np.sum(Y * solved) + p * np.linalg.slogdet(S)[1], rel=1e-12)
    np.testing.assert_allclose(alpha, solved, rtol=1e-10, atol=1e-13 * np.abs(solved).max())
    np.testing.assert_allclose(np.tril(K), np.tril(Kbar), rtol=1e-9, atol=1e-12 * np.abs(Kbar).max())


def test_a_matrix_without_a_factor_gives_nan() -> None:
    assert np.isnan(weigh(addresses(), -np.eye(3), np.ones((3, 1))))


def test_small_and_large_problems_take_different_ways_to_the_same_numbers() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 2))
    Y = np.sin(X) + 0.1 * rng.standard_normal(X.shape)
    kernel = ig.kernels.Matern32([0.7, 1.3], 1.2) + ig.kernels.Linear(0.3)
    for n in (512, 513):
        K = kernel(X[:n], X[:n]) + 0.04 * np.eye(n)
        alpha, inverse = np.linalg.solve(K, Y[:n]), np.linalg.inv(K)
        value, gradient = ig.log_evidence_and_gradient(kernel, None, "exact", 0.04, X[:n], Y[:n])
        log_det = 2.0 * np.sum(np.log(np.diagonal(np.linalg.cholesky(K))))
        assert value == pytest.approx(
            -0.5 * np.sum(Y[:n] * alpha) - log_det - n * np.log(2 * np.pi), rel=1e-11
        )
        assert gradient["noise"] == pytest.approx(
            0.5 * (np.sum(alpha**2) - 2.0 * np.trace(inverse)), rel=1e-9
        )
        Kbar = 0.5 * (alpha @ alpha.T - 2.0 * inverse)
        assert gradient["kernel.1.variance"] == pytest.approx(np.sum(Kbar * (X[:n] @ X[:n].T)), rel=1e-9)


def test_too_little_noise_is_said_by_small_problems_too() -> None:
    X = np.zeros((20, 1))
    with pytest.raises(ig.errors.FactorisationError, match="nearly alike"):
        ig.log_evidence_and_gradient(ig.kernels.RBF(1.0), None, "exact", 1e-30, X, np.arange(20.0))
