"""The algebra of one evaluation of a small exact GP, compiled: one call without the interpreter lock, so that
several cores can share the climbs of many small problems.
"""

import numpy as np

from ..numerics.compiled_blas import LAUUM, SYRK, TRANSPOSED, UPPER, call_at, factorise, lower_times
from ..numerics.compiling import compiled


@compiled("f8(i8[::1], f8[:, ::1], f8[:, ::1])")
def weigh(at: np.ndarray, K: np.ndarray, alpha: np.ndarray) -> float:
    """Turn the lower triangle of K + Σ into that of 2K̄ = ααᵀ - p(K + Σ)⁻¹, and Y (n, p) into α = (K + Σ)⁻¹Y.
    Return yᵀα + p log|K + Σ|, summed over outputs; NaN if there is no Cholesky factor.
    """
    n, p = alpha.shape
    value = p * factorise(at, K)
    if value != value:
        return value
    lower_times(at, K, alpha, False)
    for i in range(n):
        for j in range(p):
            value += alpha[i, j] * alpha[i, j]
    lower_times(at, K, alpha, True)
    call_at(at[LAUUM], (UPPER, n, K, n, np.zeros(1, dtype=np.int32)))
    call_at(at[SYRK], (UPPER, TRANSPOSED, n, p, 1.0, alpha, p, -float(p), K, n))
    return value
