"""Compiled loops for the lower triangle of k(X, X) of stationary kernels, and for its derivatives.

Inputs are over the lengthscales and transposed (d, n); a kernel is the number of its profile g in
`stationary.PROFILES`, its variance and its shape.
"""

from math import sqrt

import numpy as np

from ...numerics.compiling import FAST, Numbers, compiled, helper
from ...numerics.exponential import EXACT, exponential, log_one_plus


@helper()
def fill(x: np.ndarray, value: float) -> None:
    for j in range(len(x)):
        x[j] = value


@helper(fastmath=FAST)
def squared_distances(Xt: np.ndarray, first: int, x: np.ndarray, s: np.ndarray) -> None:
    """Fill s with the squared distances of x (d,) to len(s) rows from `first` on; four inputs at a time."""
    fill(s, 0.0)
    d, last = len(Xt), first + len(s)
    for k in range(0, d - d % 4, 4):
        z0, z1 = Xt[k, first:last], Xt[k + 1, first:last]
        z2, z3 = Xt[k + 2, first:last], Xt[k + 3, first:last]
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        for j in range(len(s)):
            t0, t1, t2, t3 = x0 - z0[j], x1 - z1[j], x2 - z2[j], x3 - z3[j]
            s[j] += (t0 * t0 + t1 * t1) + (t2 * t2 + t3 * t3)
    for k in range(d - d % 4, d):
        z0, x0 = Xt[k, first:last], x[k]
        for j in range(len(s)):
            t0 = x0 - z0[j]
            s[j] += t0 * t0


@helper(fastmath=EXACT)
def to_values(kernel: Numbers, s: np.ndarray) -> None:
    """Turn s into variance g(s), in place, as only loops over a single array are vectorised."""
    profile, variance, shape = kernel
    rate, linear, quadratic = -1.0, 0.0, 0.0  # of (1 + r (linear + quadratic r)) exp(rate r)
    if profile == 0:
        rate = -0.5
    elif profile == 4:
        rate, unit = -shape, 0.5 / shape
        for j in range(len(s)):
            s[j] = log_one_plus(unit * s[j])
    else:
        order = 2.0 * profile - 1.0
        linear, quadratic = variance * (profile > 1), variance / 3.0 * (profile == 3)
        for j in range(len(s)):
            s[j] = sqrt(order * s[j])
    for j in range(len(s)):
        r = s[j]
        s[j] = (variance + r * (linear + quadratic * r)) * exponential(rate * r)


@compiled(fastmath=EXACT)
def rows_with(X: np.ndarray, Z: np.ndarray, scales: np.ndarray, kernel: Numbers, K: np.ndarray) -> None:
    """Set K[i, j] = k(x_i, z_j) for rows of X (b, d) and Z (m, d) and, if K is (b, m + b), k(x_i, x_j) for
    the rows j before i; scales (d,) are 1/lengthscale. An entry does not depend on the rows beside it.
    """
    m = len(Z)
    for i in range(len(X)):
        earlier = i if K.shape[1] > m else 0
        row = K[i, : m + earlier]
        for j in range(len(row)):
            z = Z[j] if j < m else X[j - m]
            s = 0.0
            for k in range(len(scales)):
                t = (X[i, k] - z[k]) * scales[k]
                s += t * t
            row[j] = s
        to_values(kernel, row)


@helper(fastmath=FAST)
def total(x: np.ndarray) -> float:
    """Return Σ x."""
    s = 0.0
    for j in range(len(x)):
        s += x[j]
    return s


@helper(fastmath=EXACT)
def times_slope(kernel: Numbers, s: np.ndarray, W: np.ndarray) -> float:
    """Multiply W by -2 d(log g)/ds, overwriting s, and return Σ W d(log g)/dshape, W as it came."""
    profile, _, shape = kernel
    if profile == 4:
        unit = 0.5 / shape
        for j in range(len(s)):
            t, w = unit * s[j], W[j]
            share = 1.0 / (1.0 + t)
            W[j] = w * share
            s[j] = w * (t * share - log_one_plus(t))
        return total(s)
    order = 2.0 * profile - 1.0  # (a + b r)/(c + e r + f r²) is 1/r, 3/(1 + r), 5(1 + r)/(3 + 3r + r²)
    a, b, c, e, f, least = order, 0.0, 1.0, 1.0, 0.0, -1.0
    if profile == 1:
        c, least = 0.0, 1e-7  # nearer than that, points coincide to rounding
    elif profile == 3:
        b, c, e, f = 5.0, 3.0, 3.0, 1.0
    if profile > 0:
        for j in range(len(s)):
            r = sqrt(order * s[j])
            W[j] *= (a + b * r if r > least else 0.0) / max(c + r * (e + f * r), 1e-100)
    return 0.0


@helper(fastmath=FAST)
def fill_triangle(Xt: np.ndarray, kernel: Numbers, first: int, last: int, K: np.ndarray) -> None:
    """Fill rows `first` to `last` of the lower triangle of k(X, X)."""
    for i in range(first, last):
        row = K[i, : i + 1]
        squared_distances(Xt, 0, Xt[:, i], row)
        to_values(kernel, row)


@helper(fastmath=FAST)
def add_triangle(
    Xt: np.ndarray,
    kernel: Numbers,
    first: int,
    last: int,
    Kbar: np.ndarray,
    space: np.ndarray,
    sums: np.ndarray,
) -> None:
    """Add to sums (d + 2,), from rows `first` to `last` of the lower triangle: Σ K̄∘W (x_k - z_k)² with
    W = -2 dK/ds, Σ K̄∘K, and the derivative of that in the shape. `space` is for two rows.
    """
    d, s_all, W_all = len(Xt), space[0], space[1]
    squares = sums[:d]
    for i in range(first, last):
        c, bar = i + 1, Kbar[i]
        s, W = s_all[:c], W_all[:c]
        squared_distances(Xt, 0, Xt[:, i], s)
        for j in range(c):
            W[j] = s[j]
        to_values(kernel, W)
        for j in range(c):
            W[j] *= bar[j]
        sums[d] += total(W)
        sums[d + 1] += times_slope(kernel, s, W)
        for k in range(0, d - d % 4, 4):
            z0, z1, z2, z3, q0, q1, q2, q3 = Xt[k], Xt[k + 1], Xt[k + 2], Xt[k + 3], 0.0, 0.0, 0.0, 0.0
            x0, x1, x2, x3 = z0[i], z1[i], z2[i], z3[i]
            for j in range(c):
                t0, t1, t2, t3 = x0 - z0[j], x1 - z1[j], x2 - z2[j], x3 - z3[j]
                q0 += W[j] * t0 * t0
                q1 += W[j] * t1 * t1
                q2 += W[j] * t2 * t2
                q3 += W[j] * t3 * t3
            squares[k] += q0
            squares[k + 1] += q1
            squares[k + 2] += q2
            squares[k + 3] += q3
        for k in range(d - d % 4, d):
            column, x, square = Xt[k], Xt[k, i], 0.0
            for j in range(c):
                t = x - column[j]
                square += W[j] * t * t
            squares[k] += square


# the same bodies for Python to call
triangle = compiled(fastmath=FAST)(fill_triangle.py_func)
triangle_pullback = compiled(fastmath=FAST)(add_triangle.py_func)
