"""The two parts of a sweep as compiled loops, for a kept Φ: marginals of rows, and sums of their sites."""

from math import sqrt

import numpy as np

from ..numerics.compiled_blas import add_gram, times_lower
from ..numerics.compiling import FAST, compiled
from ..numerics.kinds import Addresses, Given1, Given2, Out1, Out2, signature
from ..numerics.triangles import add, copy, dot


@compiled(signature("void", Addresses, Given2, Given2, Given1, Out2, Out1, Out1), fastmath=FAST)
def marginals(
    at: np.ndarray,
    Phi: np.ndarray,
    LBinv: np.ndarray,
    w: np.ndarray,
    work: np.ndarray,
    mean: np.ndarray,
    spread: np.ndarray,
) -> None:
    """Fill the mean φᵀw and the spread φᵀB⁻¹φ of rows; `work` is room for a tile of them."""
    tile, m = work.shape
    for lo in range(0, len(Phi), tile):
        hi = min(lo + tile, len(Phi))
        S = work[: hi - lo]
        for i in range(hi - lo):
            copy(Phi[lo + i], S[i], m)
            mean[lo + i] = dot(S[i], w, m)
        times_lower(at, S, LBinv, True)
        for i in range(hi - lo):
            spread[lo + i] = dot(S[i], S[i], m)


@compiled(signature("void", Addresses, Given2, Given1, Given1, Out2, Out2, Out1), fastmath=FAST)
def add_sites(
    at: np.ndarray,
    Phi: np.ndarray,
    tau: np.ndarray,
    nu: np.ndarray,
    work: np.ndarray,
    G: np.ndarray,
    b: np.ndarray,
) -> None:
    """Add ΦτΦᵀ to the lower triangle of G and Φν to b, for precisions of either sign."""
    tile, m = work.shape
    for lo in range(0, len(Phi), tile):
        hi = min(lo + tile, len(Phi))
        top, bottom = 0, hi - lo
        for i in range(lo, hi):
            row, root = Phi[i], sqrt(abs(tau[i]))
            add(nu[i], row, b, m)
            if tau[i] >= 0.0:  # rows that are added come first, those that are subtracted last
                to = work[top]
                top += 1
            else:
                bottom -= 1
                to = work[bottom]
            for j in range(m):
                to[j] = root * row[j]
        add_gram(at, work[:top], 1.0, G)
        add_gram(at, work[top : hi - lo], -1.0, G)
