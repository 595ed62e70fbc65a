"""Compiled inner loops (Numba): no interpreter lock, no allocation, no threads of their own."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"})
def squared_distances(X: np.ndarray, Zt: np.ndarray, out: np.ndarray) -> None:
    """out[i, j] = Σ_k (X[i, k] - Zt[k, j])²."""
    n, d = X.shape
    m = Zt.shape[1]
    for i in range(n):
        row = out[i]
        x = X[i, 0]
        for j in range(m):
            t = x - Zt[0, j]
            row[j] = t * t
        for k in range(1, d):
            x = X[i, k]
            for j in range(m):
                t = x - Zt[k, j]
                row[j] += t * t


@numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"})
def weighted_squares(X: np.ndarray, Vt: np.ndarray, Pt: np.ndarray, out: np.ndarray) -> None:
    """out[i, j] = Σ_k Pt[k, j] (X[i, k] - Vt[k, j])²."""
    n, d = X.shape
    m = Vt.shape[1]
    for i in range(n):
        row = out[i]
        for j in range(m):
            row[j] = 0.0
        for k in range(d):
            x = X[i, k]
            for j in range(m):
                t = x - Vt[k, j]
                row[j] += Pt[k, j] * t * t
