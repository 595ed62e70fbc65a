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


@numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"})
def predict_one(x: np.ndarray, table: np.ndarray, T: np.ndarray, head: np.ndarray) -> tuple[float, float]:
    """(mean, variance) at one point; see compiled.CompiledPredictor for what the arrays hold."""
    m, d = table.shape[0], len(x)
    mean, profile = head[0], head[3]
    for k in range(d):
        mean += head[4 + k] * x[k]
    ku = np.empty(m)
    for j in range(m):
        s = 0.0
        for k in range(d):
            t = x[k] - table[j, k]
            s += table[j, d + k] * t * t
        if profile == 0:
            g = np.exp(-0.5 * s)
        elif profile == 1:
            g = np.exp(-np.sqrt(s))
        elif profile == 2:
            r = np.sqrt(3.0 * s)
            g = (1.0 + r) * np.exp(-r)
        else:
            r = np.sqrt(5.0 * s)
            g = (1.0 + r + r * r / 3.0) * np.exp(-r)
        ku[j] = table[j, 2 * d] * g
        mean += table[j, 2 * d + 1] * ku[j]
    squares = 0.0
    for i in range(m):
        t = 0.0
        for j in range(i + 1):
            t += T[i, j] * ku[j]
        squares += t * t
    return mean, head[1] + head[2] * squares
