"""Compiled loops for the lower triangle of k(X, X) and its derivatives, of stationary kernels: inputs come by
columns (d, n), in lengthscales; `profile` is the number of g in `stationary.PROFILES`.
"""

from math import sqrt

import numpy as np

from ...numerics.compiling import FAST, compiled, helper
from ...numerics.exponential import EXACT, exponential


@helper()
def fill(x: np.ndarray, value: float) -> None:
    for j in range(len(x)):
        x[j] = value


@helper(fastmath=FAST)
def squared_distances(Xt: np.ndarray, i: int, s: np.ndarray) -> None:
    """Fill s with the squared distances of row i to rows 0 to len(s) - 1."""
    fill(s, 0.0)
    for k in range(len(Xt)):
        column, x = Xt[k], Xt[k, i]
        for j in range(len(s)):
            t = x - column[j]
            s[j] += t * t


@helper(fastmath=EXACT)
def to_values(profile: int, variance: float, s: np.ndarray) -> None:
    """s becomes variance g(s): in place, for what may be another array is not vectorised."""
    if profile == 0:
        for j in range(len(s)):
            s[j] = variance * exponential(-0.5 * s[j])
    elif profile == 1:
        for j in range(len(s)):
            s[j] = variance * exponential(-sqrt(s[j]))
    elif profile == 2:
        for j in range(len(s)):
            r = sqrt(3.0 * s[j])
            s[j] = variance * (1.0 + r) * exponential(-r)
    else:
        for j in range(len(s)):
            r = sqrt(5.0 * s[j])
            s[j] = variance * (1.0 + r + r * r / 3.0) * exponential(-r)


@helper(fastmath=EXACT)
def times_slope(profile: int, s: np.ndarray, W: np.ndarray) -> None:
    """Multiply W by -2 d(log g)/ds: K becomes -2 dK/ds."""
    if profile == 1:
        for j in range(len(s)):
            r = sqrt(s[j])
            W[j] = W[j] / r if r > 1e-7 else 0.0  # nearer than that, points coincide to rounding
    elif profile == 2:
        for j in range(len(s)):
            W[j] *= 3.0 / (1.0 + sqrt(3.0 * s[j]))
    elif profile == 3:
        for j in range(len(s)):
            r = sqrt(5.0 * s[j])
            W[j] *= 5.0 * (1.0 + r) / (3.0 + 3.0 * r + r * r)


@helper(fastmath=FAST)
def fill_triangle(
    Xt: np.ndarray, profile: int, variance: float, first: int, last: int, K: np.ndarray
) -> None:
    """Rows `first` to `last` of the lower triangle of k(X, X)."""
    for i in range(first, last):
        row = K[i, : i + 1]
        squared_distances(Xt, i, row)
        to_values(profile, variance, row)


@helper(fastmath=FAST)
def add_triangle(
    Xt: np.ndarray,
    profile: int,
    variance: float,
    first: int,
    last: int,
    Kbar: np.ndarray,
    squares: np.ndarray,
) -> float:
    """Σ K̄∘K over those rows of the lower triangle; adds Σ K̄∘W (x_k - z_k)² to squares, W = -2 dK/ds."""
    total, s_all, W_all = 0.0, np.empty(last), np.empty(last)
    for i in range(first, last):
        c, bar = i + 1, Kbar[i]
        s, W = s_all[:c], W_all[:c]
        squared_distances(Xt, i, s)
        for j in range(c):
            W[j] = s[j]
        to_values(profile, variance, W)
        for j in range(c):
            W[j] *= bar[j]
            total += W[j]
        times_slope(profile, s, W)
        for k in range(len(Xt)):
            column, x, square = Xt[k], Xt[k, i], 0.0
            for j in range(c):
                t = x - column[j]
                square += W[j] * t * t
            squares[k] += square
    return total


# the same bodies for Python to call
triangle = compiled(fastmath=FAST)(fill_triangle.py_func)
triangle_pullback = compiled(fastmath=FAST)(add_triangle.py_func)
