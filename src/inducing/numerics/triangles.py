"""Compiled steps on the factors L and A of online learning and expectation propagation, without allocation.

Matrices have room for M functions, of which the first m are in use; U is Lᵀ. BLAS, by address, sees each
C-ordered matrix as its own transpose (`compiled_blas`).
"""

from math import sqrt

import numpy as np

from .compiled_blas import GEMV, GER, LOWER, PLAIN, ROT, SYR, SYR2, TRANSPOSED, TRSV, call_at
from .compiling import FAST, helper

_jit = helper(fastmath=FAST)


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
def copy(x: np.ndarray, y: np.ndarray, n: int) -> None:
    """y = x; y may begin one place before x in the same array."""
    for i in range(n):
        y[i] = x[i]


@_jit
def solve(at: np.ndarray, U: np.ndarray, b: np.ndarray, x: np.ndarray, m: int, backward: bool) -> None:
    """x = L⁻¹b, or backward x = L⁻ᵀb."""
    copy(b, x, m)
    call_at(at[TRSV], (LOWER, TRANSPOSED if backward else PLAIN, PLAIN, m, U, U.shape[1], x, 1))


@_jit
def times(at: np.ndarray, A: np.ndarray, x: np.ndarray, y: np.ndarray, m: int, transposed: bool) -> None:
    """y = A x, or y = Aᵀx."""
    call_at(at[GEMV], (PLAIN if transposed else TRANSPOSED, m, m, 1.0, A, A.shape[1], x, 1, 0.0, y, 1))


@_jit
def gain(at: np.ndarray, A: np.ndarray, phi: np.ndarray, a: np.ndarray, s: np.ndarray, m: int) -> float:
    """a = Aᵀφ, s = A a; return |a|² = φᵀAAᵀφ."""
    times(at, A, phi, a, m, True)
    times(at, A, a, s, m, False)
    return dot(a, a, m)


@_jit
def rank_one(at: np.ndarray, A: np.ndarray, s: np.ndarray, a: np.ndarray, kappa: float, m: int) -> None:
    """A += κ s aᵀ."""
    call_at(at[GER], (m, m, kappa, a, 1, s, 1, A, A.shape[1]))


@_jit
def rank_one_upper(at: np.ndarray, N: np.ndarray, t: float, e: np.ndarray, m: int) -> None:
    """The upper triangle of N += t e eᵀ."""
    call_at(at[SYR], (LOWER, m, t, e, 1, N, N.shape[1]))


@_jit
def turn(at: np.ndarray, upper: np.ndarray, lower: np.ndarray, c: float, s: float, n: int) -> None:
    """Rotate two rows by the angle with cosine c and sine s."""
    call_at(at[ROT], (n, upper, 1, lower, 1, c, s))


@_jit
def turn_rows(
    at: np.ndarray, A: np.ndarray, i: int, n: int, cosine: np.ndarray, sine: np.ndarray, wide: int
) -> None:
    """Rotate rows (j, j + 1) of A for j = i, …, n - 2, one after the other."""
    for j in range(i, n - 1):
        turn(at, A[j], A[j + 1], cosine[j], sine[j], wide)


@_jit
def delete_column(
    at: np.ndarray, U: np.ndarray, n: int, i: int, cosine: np.ndarray, sine: np.ndarray, x: np.ndarray
) -> float:
    """Take column i out of U (n, n) and rotate rows back to a triangle, the column to (x, ℓ); return ℓ."""
    for j in range(i):
        x[j] = U[j, i]
        copy(U[j, i + 1 :], U[j, i:], n - 1 - i)
    length = U[i, i]
    for j in range(i, n - 1):  # row j holds what is left of row i, from column j + 1 on, then the next row's
        upper, lower = U[j, j + 1 :], U[j + 1, j + 1 :]
        diagonal = sqrt(upper[0] * upper[0] + lower[0] * lower[0])
        cosine[j], sine[j] = upper[0] / diagonal, lower[0] / diagonal
        turn(at, upper, lower, cosine[j], sine[j], n - j - 1)
        copy(upper, U[j, j:], n - j - 1)
        x[j] = cosine[j] * length
        length = -sine[j] * length
    for j in range(n - 1):
        U[j, n - 1] = 0.0
    U[n - 1, n - 1] = 1.0
    return length


@_jit
def drop_last(at: np.ndarray, A: np.ndarray, w: np.ndarray, z: np.ndarray, work: np.ndarray, n: int) -> float:
    """Condition v ~ N(w, AAᵀ) on its last coordinate being 0 and leave it out; return its variance |a|².

    With a the last row of A, a reflection H takes a to |a| e_n; A H without its last row and column is the
    new factor. Fill z with A a, the covariance of the others with the last coordinate.
    """
    m = n - 1
    last = A[m]
    square = dot(last, last, n)
    norm, pivot = sqrt(square), last[m]
    shift = norm if pivot >= 0.0 else -norm
    times(at, A, last, z, n, False)
    for j in range(m):  # H = I - β h hᵀ with h = a + shift e_n
        work[j] = z[j] + shift * A[j, m]
    rank_one(at, A, work, last, -1.0 / (norm * (norm + abs(pivot))), m)
    for j in range(n):
        A[j, m] = 0.0
        A[m, j] = 0.0
    for o in range(len(w)):
        add(-w[o, m] / square, z, w[o], m)
        w[o, m] = 0.0
    return square


@_jit
def remove_symmetric(at: np.ndarray, N: np.ndarray, e: np.ndarray, n: int, i: int, row: np.ndarray) -> None:
    """Remove row and column i of N, carried over by e: N + e nᵀ + n eᵀ + nᵢ e eᵀ, upper. [004 eq. 4.30]"""
    own, m = N[i, i], n - 1
    for j in range(m):
        row[j] = (N[j, i] if j < i else N[i, j + 1]) + 0.5 * own * e[j]
    for j in range(m):
        k = max(i, j)
        copy(N[j if j < i else j + 1, k + 1 :], N[j, k:], m - k)
    call_at(at[SYR2], (LOWER, m, 1.0, e, 1, row, 1, N, N.shape[1]))
