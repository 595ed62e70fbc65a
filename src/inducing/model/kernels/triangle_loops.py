"""Compiled loops for the lower triangle of k(X, X) and its derivatives, of stationary kernels: inputs come by
columns (d, n), in lengthscales; `profile` is the number of g in `stationary.PROFILES`.
"""

from math import sqrt

import numpy as np

from ...numerics.compiling import FAST, compiled, helper
from ...numerics.exponential import EXACT, exponential


@helper(fastmath=FAST)
def squared_distances(Xt: np.ndarray, i: int, s: np.ndarray) -> None:
    """Of row i to the first rows, as many as s has entries."""
    for j in range(len(s)):
        s[j] = 0.0
    for k in range(len(Xt)):
        column, x = Xt[k], Xt[k, i]
        for j in range(len(s)):
            t = x - column[j]
            s[j] += t * t


@helper(fastmath=EXACT)
def profiles(profile: int, variance: float, s: np.ndarray, K: np.ndarray, W: np.ndarray) -> None:
    """K = variance g(s) and W = -2 dK/ds."""
    if profile == 0:
        for j in range(len(s)):
            e = variance * exponential(-0.5 * s[j])
            W[j] = e
            K[j] = e
    elif profile == 1:
        for j in range(len(s)):
            r = sqrt(s[j])
            e = variance * exponential(-r)
            W[j] = e / r if r > 1e-7 else 0.0  # nearer than that, points coincide to rounding
            K[j] = e
    elif profile == 2:
        for j in range(len(s)):
            r = sqrt(3.0 * s[j])
            e = variance * exponential(-r)
            W[j] = 3.0 * e
            K[j] = (1.0 + r) * e
    else:
        for j in range(len(s)):
            r = sqrt(5.0 * s[j])
            e = variance * exponential(-r)
            W[j] = (5.0 / 3.0) * (1.0 + r) * e
            K[j] = (1.0 + r + r * r / 3.0) * e


@compiled(fastmath=FAST)
def triangle(Xt: np.ndarray, profile: int, variance: float, first: int, last: int, K: np.ndarray) -> None:
    """Rows `first` to `last` of the lower triangle of k(X, X)."""
    s, W = np.empty(last), np.empty(last)
    for i in range(first, last):
        squared_distances(Xt, i, s[: i + 1])
        profiles(profile, variance, s[: i + 1], K[i, : i + 1], W[: i + 1])


@compiled(fastmath=FAST)
def triangle_pullback(
    Xt: np.ndarray,
    profile: int,
    variance: float,
    first: int,
    last: int,
    Kbar: np.ndarray,
    squares: np.ndarray,
) -> float:
    """Σ K̄∘K over those rows of the lower triangle; adds Σ K̄∘W (x_k - z_k)² to squares (d,)."""
    total = 0.0
    s, K, W = np.empty(last), np.empty(last), np.empty(last)
    for i in range(first, last):
        c, bar = i + 1, Kbar[i]
        squared_distances(Xt, i, s[:c])
        profiles(profile, variance, s[:c], K[:c], W[:c])
        for j in range(c):
            total += bar[j] * K[j]
            W[j] *= bar[j]
        for k in range(len(Xt)):
            column, x, square = Xt[k], Xt[k, i], 0.0
            for j in range(c):
                t = x - column[j]
                square += W[j] * t * t
            squares[k] += square
    return total
