"""Squared distances between two sets of rows."""

from __future__ import annotations

import numpy as np

from ...numerics.arrays import Array, is_numpy, worth_compiling, zeros_like_rows


def squared_distances(
    X: Array, Z: Array, out: Array | None = None, *, constant: float = 0.0, factor: float = 1.0
) -> Array:
    """constant + factor Σ_k (x_k - z_k)² for every pair. (n, m)

    By differences: nothing cancels, however far the data lie from the origin.
    """
    if is_numpy(X) and worth_compiling(X.shape[0] * Z.shape[0]):
        from ...numerics.loops import affine_squared_distances

        if out is None:
            out = np.empty((X.shape[0], Z.shape[0]), dtype=X.dtype)
        affine_squared_distances(X, np.ascontiguousarray(Z.T), constant, factor, out)
        return out
    s = zeros_like_rows((X.shape[0], Z.shape[0]), X) + constant
    for k in range(X.shape[1]):
        difference = X[:, k, None] - Z[None, :, k]
        s += factor * difference * difference
    return s
