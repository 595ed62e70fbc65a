"""Compiled steps on the factors L and A of online learning and expectation propagation, without allocation.

Rows of a matrix are taken four at a time. Beyond the m functions in use U = Lᵀ goes on as the identity and A
as zero, up to the next multiple of four; the vectors that go in are filled up with zeros here, so nothing
needs a remainder.
"""

from math import sqrt

import numpy as np

from .compiling import FAST, helper

_jit = helper(fastmath=FAST)


@_jit
def rounded(m: int) -> int:
    return (m + 3) // 4 * 4


@_jit
def filled(x: np.ndarray, m: int) -> int:
    """The next multiple of four after m, up to which x gets zeros."""
    wide = rounded(m)
    for j in range(m, wide):
        x[j] = 0.0
    return wide


@_jit
def dot(x: np.ndarray, y: np.ndarray, n: int) -> float:
    total = 0.0
    for i in range(n):
        total += x[i] * y[i]
    return total


@_jit
def add(t: float, x: np.ndarray, y: np.ndarray, n: int) -> None:
    """y += t x."""
    for i in range(n):
        y[i] += t * x[i]


@_jit
def solve_forward(U: np.ndarray, b: np.ndarray, x: np.ndarray, m: int) -> None:
    """x = U⁻ᵀb = L⁻¹b. Overwrites b."""
    wide = filled(b, m)
    for j in range(0, wide, 4):
        x0 = b[j] / U[j, j]
        x1 = (b[j + 1] - x0 * U[j, j + 1]) / U[j + 1, j + 1]
        x2 = (b[j + 2] - x0 * U[j, j + 2] - x1 * U[j + 1, j + 2]) / U[j + 2, j + 2]
        x3 = (b[j + 3] - x0 * U[j, j + 3] - x1 * U[j + 1, j + 3] - x2 * U[j + 2, j + 3]) / U[j + 3, j + 3]
        x[j], x[j + 1], x[j + 2], x[j + 3] = x0, x1, x2, x3
        k = j + 4
        U0, U1, U2, U3, rest = U[j, k:], U[j + 1, k:], U[j + 2, k:], U[j + 3, k:], b[k:]
        for i in range(wide - j - 4):
            rest[i] -= (x0 * U0[i] + x1 * U1[i]) + (x2 * U2[i] + x3 * U3[i])


@_jit
def solve_backward(U: np.ndarray, b: np.ndarray, x: np.ndarray, m: int) -> None:
    """x = U⁻¹b = L⁻ᵀb."""
    wide = filled(b, m)
    for j in range(wide - 4, -1, -4):
        k = j + 4
        U0, U1, U2, U3, rest = U[j, k:], U[j + 1, k:], U[j + 2, k:], U[j + 3, k:], x[k:]
        t0, t1, t2, t3 = b[j], b[j + 1], b[j + 2], b[j + 3]
        for i in range(wide - j - 4):
            t = rest[i]
            t0 -= U0[i] * t
            t1 -= U1[i] * t
            t2 -= U2[i] * t
            t3 -= U3[i] * t
        x3 = t3 / U[j + 3, j + 3]
        x2 = (t2 - x3 * U[j + 2, j + 3]) / U[j + 2, j + 2]
        x1 = (t1 - x3 * U[j + 1, j + 3] - x2 * U[j + 1, j + 2]) / U[j + 1, j + 1]
        x[j] = (t0 - x3 * U[j, j + 3] - x2 * U[j, j + 2] - x1 * U[j, j + 1]) / U[j, j]
        x[j + 1], x[j + 2], x[j + 3] = x1, x2, x3


@_jit
def times(A: np.ndarray, x: np.ndarray, y: np.ndarray, m: int) -> None:
    """y = A x."""
    wide = filled(x, m)
    for j in range(0, wide, 4):
        A0, A1, A2, A3 = A[j], A[j + 1], A[j + 2], A[j + 3]
        t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
        for i in range(wide):
            t = x[i]
            t0 += A0[i] * t
            t1 += A1[i] * t
            t2 += A2[i] * t
            t3 += A3[i] * t
        y[j], y[j + 1], y[j + 2], y[j + 3] = t0, t1, t2, t3


@_jit
def gain(A: np.ndarray, phi: np.ndarray, a: np.ndarray, s: np.ndarray, m: int) -> float:
    """a = Aᵀφ, s = A a; returns |a|² = φᵀAAᵀφ."""
    wide = filled(phi, m)
    for i in range(wide):
        a[i] = 0.0
    for j in range(0, wide, 4):
        p0, p1, p2, p3 = phi[j], phi[j + 1], phi[j + 2], phi[j + 3]
        A0, A1, A2, A3 = A[j], A[j + 1], A[j + 2], A[j + 3]
        for i in range(wide):
            a[i] += (p0 * A0[i] + p1 * A1[i]) + (p2 * A2[i] + p3 * A3[i])
    times(A, a, s, m)
    return dot(a, a, wide)


@_jit
def rank_one(A: np.ndarray, s: np.ndarray, a: np.ndarray, kappa: float, m: int) -> None:
    """A += κ s aᵀ."""
    wide = filled(a, m)
    filled(s, m)
    for j in range(0, wide, 4):
        A0, A1, A2, A3 = A[j], A[j + 1], A[j + 2], A[j + 3]
        s0, s1, s2, s3 = kappa * s[j], kappa * s[j + 1], kappa * s[j + 2], kappa * s[j + 3]
        for i in range(wide):
            t = a[i]
            A0[i] += s0 * t
            A1[i] += s1 * t
            A2[i] += s2 * t
            A3[i] += s3 * t


@_jit
def rank_one_upper(N: np.ndarray, t: float, e: np.ndarray, m: int) -> None:
    """The upper triangle of N += t e eᵀ."""
    for j in range(m):
        add(t * e[j], e[j:], N[j, j:], m - j)


@_jit
def delete_column(
    U: np.ndarray, n: int, i: int, cosine: np.ndarray, sine: np.ndarray, x: np.ndarray
) -> float:
    """Take column i out of U (n, n) and rotate rows back to a triangle, the column to (x, ℓ); returns ℓ."""
    for j in range(i):
        x[j] = U[j, i]
        row = U[j]
        for h in range(i, n - 1):
            row[h] = row[h + 1]
    length = U[i, i]
    for j in range(
        i, n - 1
    ):  # row j holds what is left of row i, from column j + 1 on; row j + 1 is its neighbour
        upper, lower = U[j, j + 1], U[j + 1, j + 1]
        diagonal = sqrt(upper * upper + lower * lower)
        cosine[j], sine[j] = upper / diagonal, lower / diagonal
        turn_left(U[j, j:], U[j + 1, j + 1 :], cosine[j], sine[j], n - j - 1)
        x[j] = cosine[j] * length
        length = -sine[j] * length
    for j in range(n - 1):
        U[j, n - 1] = 0.0
    U[n - 1, n - 1] = 1.0
    return length


@_jit
def turn_left(upper: np.ndarray, lower: np.ndarray, c: float, s: float, n: int) -> None:
    """Rotate upper[1:n+1] and lower[:n]; the first goes one place to the left, the second stays."""
    for h in range(n):
        one, two = upper[h + 1], lower[h]
        upper[h] = c * one + s * two
        lower[h] = c * two - s * one


@_jit
def turn(upper: np.ndarray, lower: np.ndarray, c: float, s: float, n: int) -> None:
    """Rotate two rows."""
    for h in range(n):
        one, two = upper[h], lower[h]
        upper[h] = c * one + s * two
        lower[h] = c * two - s * one


@_jit
def turn_rows(A: np.ndarray, i: int, n: int, cosine: np.ndarray, sine: np.ndarray, wide: int) -> None:
    """Rotate rows (j, j + 1) of A for j = i, …, n - 2, one after the other, three to a pass."""
    j = i
    while j + 3 < n:
        c0, c1, c2, s0, s1, s2 = cosine[j], cosine[j + 1], cosine[j + 2], sine[j], sine[j + 1], sine[j + 2]
        A0, A1, A2, A3 = A[j], A[j + 1], A[j + 2], A[j + 3]
        for h in range(wide):
            one, two = A0[h], A1[h]
            A0[h] = c0 * one + s0 * two
            one, two = c0 * two - s0 * one, A2[h]
            A1[h] = c1 * one + s1 * two
            one, two = c1 * two - s1 * one, A3[h]
            A2[h] = c2 * one + s2 * two
            A3[h] = c2 * two - s2 * one
        j += 3
    while j + 1 < n:
        turn(A[j], A[j + 1], cosine[j], sine[j], wide)
        j += 1


@_jit
def drop_last(A: np.ndarray, w: np.ndarray, z: np.ndarray, work: np.ndarray, n: int) -> float:
    """Condition v ~ N(w, AAᵀ) on its last coordinate being 0 and leave it out; returns its variance |a|².

    With a the last row of A, a reflection H takes a to |a| e_n; A H without its last row and column is the
    new factor. z becomes the covariance of the others with the last coordinate, A a.
    """
    m = n - 1
    last = A[m]
    square = dot(last, last, n)
    norm, pivot = sqrt(square), last[m]
    shift = norm if pivot >= 0.0 else -norm
    times(A, last, z, n)
    for j in range(m):  # H = I - β h hᵀ with h = a + shift e_n
        work[j] = z[j] + shift * A[j, m]
    work[m] = 0.0  # the last row goes, and must not change while it is in use
    rank_one(A, work, last, -1.0 / (norm * (norm + abs(pivot))), n)
    for j in range(n):
        A[j, m] = 0.0
        A[m, j] = 0.0
    for o in range(len(w)):
        add(-w[o, m] / square, z, w[o], m)
        w[o, m] = 0.0
    return square


@_jit
def remove_symmetric(N: np.ndarray, e: np.ndarray, n: int, i: int, row: np.ndarray) -> None:
    """N less row and column i, which e takes over: N + e nᵀ + n eᵀ + nᵢ e eᵀ, upper. [004 eq. 4.30]"""
    own = N[i, i]
    for j in range(n - 1):
        row[j] = (N[j, i] if j < i else N[i, j + 1]) + 0.5 * own * e[j]
    for j in range(n - 1):
        source = N[j] if j < i else N[j + 1]
        target = N[j]
        if j < i:
            for h in range(i, n - 1):
                target[h] = source[h + 1]
        else:
            for h in range(j, n - 1):
                target[h] = source[h + 1]
        add(e[j], row[j:], target[j:], n - 1 - j)
        add(row[j], e[j:], target[j:], n - 1 - j)
