"""Nuggets: small shares of k(x, x) on the diagonal of a Gram matrix, against rounding in its factor."""

from contextlib import suppress

import numpy as np

from ..errors import FactorisationError
from .linalg import EPSILON, cholesky, plus_diagonal, solve_lower

FINEST = 10.0  # nuggets: the smallest share of k(x, x) that rounding leaves a meaning


def nugget(m: int) -> float:
    """Return the share of k(x, x) that the diagonal gets against rounding at a function after m others.

    A factor built function by function is that of K + E, where rounding makes E: |E|₂ was 0.13 ε m k(x, x) at
    most, up to m = 2000. With more than that on the diagonal the factor's matrix stays above K, and
    k_uᵀ(LLᵀ)⁻¹k_u below k(x, x) at every x: γ cannot be negative, whatever the order of the functions.
    """
    return EPSILON * (8 + m)


def beyond_rounding(gamma: float, nu: float, squares: float) -> bool:
    """Return whether at most half of γ, what the basis leaves of k(x, x), is due to the nuggets N: in
    γ = (ê, -1)ᵀ(K + N)(ê, -1), ê = (K + N)⁻¹k_u, they add ν(1 + Σ ê_j² k_jj/k(x, x)). `squares` is that sum.
    """
    return gamma > 2.0 * nu * (1.0 + squares)


def with_nugget(K: np.ndarray) -> np.ndarray:
    """Return K with the nugget of each function on its diagonal."""
    return plus_diagonal(K, EPSILON * (8 + np.arange(len(K))) * np.diagonal(K))


def independent_rows(K: np.ndarray, span: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of K that are, by more than a share `span` of their diagonal, independent of those
    before them, and the lower factor of K at these rows. [004 eq. C.6]
    """
    m = len(K)
    with suppress(FactorisationError):
        L = cholesky(K)
        if np.all(np.diag(L) ** 2 > span * np.diag(K)):
            return np.arange(m), L
    kept: list[int] = []
    L = np.zeros((m, m))
    for j in range(m):
        h = len(kept)
        phi = solve_lower(L[:h, :h], K[kept, j])
        gamma = K[j, j] - phi @ phi
        if gamma > span * K[j, j]:
            L[h, :h], L[h, h] = phi, np.sqrt(gamma)
            kept.append(j)
    return np.array(kept, dtype=int), np.ascontiguousarray(L[: len(kept), : len(kept)])
