"""Squared distances between two sets of rows."""

import numpy as np

from ...numerics.arrays import Array, holds, is_numpy, is_torch, namespace, worth_compiling, zeros_like_rows
from ...numerics.linalg import row_squares
from ...numerics.workers import interruptible

FAR_OUT = 2.0**20  # squared distances from the centre up to which moments give gradients to 1e-10
MIDDLE_ROWS = 512  # rows whose middle is the centre


def squared_distances(
    X: Array,
    Z: Array,
    out: Array | None = None,
    *,
    scale: Array | None = None,
    constant: float = 0.0,
    factor: float = 1.0,
) -> Array:
    """constant + factor Σ_k ((x_k - z_k) scale_k)² for every pair; of batches of rows, too. (..., n, m)

    By differences of the rows as they are: nothing cancels, however far the data lie from the origin, and no
    row changes what others give.
    """
    if is_numpy(X) and X.ndim == 2 and worth_compiling(X.shape[0] * Z.shape[0]):
        from ...numerics.loops import affine_squared_distances

        if scale is None:
            scale = np.ones(X.shape[1], dtype=X.dtype)
        if out is None:
            out = np.empty((X.shape[0], Z.shape[0]), dtype=X.dtype)
        Zt = np.ascontiguousarray(Z.T)
        for rows in interruptible(len(X), Zt.size):
            affine_squared_distances(X[rows], Zt, scale, constant, factor, out[rows])
        return out
    s = zeros_like_rows((*X.shape[:-1], Z.shape[-2]), X)
    if constant:
        s += constant
    for k in range(X.shape[-1]):
        difference = X[..., :, None, k] - Z[..., None, :, k]
        if scale is not None:
            difference *= scale[k]
        if is_torch(s):
            s.addcmul_(difference, difference, value=factor)
        else:
            difference *= difference if factor == 1.0 else factor * difference
            s += difference
    return s


def middle(Z: Array) -> Array:
    """The median of some rows, input by input, which a few that lie far out do not move. (d,)"""
    some = Z[:: max(1, Z.shape[0] // MIDDLE_ROWS)]
    return (
        namespace(Z).sort(some, axis=0)[some.shape[0] // 2]
        if Z.shape[0]
        else zeros_like_rows((Z.shape[1],), Z)
    )


def within_reach(limit: float, *arrays: Array) -> bool:
    """Whether the largest squared lengths of rows of the arrays add up to no more than the limit."""
    return holds(sum(namespace(U).max(row_squares(U)) for U in arrays if 0 not in U.shape) <= limit)
