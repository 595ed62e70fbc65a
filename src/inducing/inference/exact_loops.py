"""The algebra of one evaluation of a small exact GP, compiled: one call without the interpreter lock, so that
several cores can share the climbs of many small problems.
"""

from math import log

import numpy as np

from ..numerics.blas import LEAF
from ..numerics.compiled_blas import (
    LAUUM,
    LEFT,
    PLAIN,
    POTRF,
    RIGHT,
    SYRK,
    TRANSPOSED,
    TRMM,
    TRSM,
    TRTRI,
    UPPER,
    call_at,
)
from ..numerics.compiling import compiled, helper

ALIGNED = 8  # rows: blocks have a multiple of them


@helper()
def invert(at: np.ndarray, L: np.ndarray, failed: np.ndarray) -> None:
    """Replace a lower triangular L by L⁻¹: small blocks, then pairs, [A 0; C B]⁻¹ = [A⁻¹ 0; -B⁻¹CA⁻¹ B⁻¹]."""
    n, size = len(L), len(L)
    while size > LEAF:
        size = -(-size // (2 * ALIGNED)) * ALIGNED
    for a in range(0, n, size):
        call_at(at[TRTRI], (UPPER, PLAIN, min(size, n - a), L[a:, a:], n, failed))
    while size < n:
        for a in range(0, n - size, 2 * size):
            b = a + size
            rows, C = min(size, n - b), L[b:, a:]
            call_at(at[TRMM], (LEFT, UPPER, PLAIN, PLAIN, size, rows, -1.0, L[a:, a:], n, C, n))
            call_at(at[TRMM], (RIGHT, UPPER, PLAIN, PLAIN, size, rows, 1.0, L[b:, b:], n, C, n))
        size *= 2


@compiled("f8(i8[::1], f8[:, ::1], f8[:, ::1])")
def weigh(at: np.ndarray, K: np.ndarray, alpha: np.ndarray) -> float:
    """Turn the lower triangle of K + Σ into that of 2K̄ = ααᵀ - p(K + Σ)⁻¹, and Y (n, p) into α = (K + Σ)⁻¹Y.
    Return yᵀα + p log|K + Σ|, summed over outputs; NaN if there is no Cholesky factor.
    """
    n, p = alpha.shape
    failed = np.zeros(1, dtype=np.int32)
    call_at(at[POTRF], (UPPER, n, K, n, failed))
    if failed[0] != 0:
        return np.nan
    value = 0.0
    for i in range(n):
        value += 2.0 * p * log(K[i, i])
    call_at(at[TRSM], (RIGHT, UPPER, PLAIN, PLAIN, p, n, 1.0, K, n, alpha, p))
    for i in range(n):
        for j in range(p):
            value += alpha[i, j] * alpha[i, j]
    call_at(at[TRSM], (RIGHT, UPPER, TRANSPOSED, PLAIN, p, n, 1.0, K, n, alpha, p))
    invert(at, K, failed)
    call_at(at[LAUUM], (UPPER, n, K, n, failed))
    call_at(at[SYRK], (UPPER, TRANSPOSED, n, p, 1.0, alpha, p, -float(p), K, n))
    return value
