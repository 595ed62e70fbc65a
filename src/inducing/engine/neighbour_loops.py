"""The loops over rows and their neighbours, compiled; neighbours.py has the formulas, neighbour_sets.py
the search.
"""

from __future__ import annotations

from math import sqrt

import numba
import numpy as np

from ..numerics.loops import FAST

LANES = 8  # rows whose small factors are made side by side

_jit = numba.njit(nogil=True, cache=True, fastmath=FAST)


@numba.njit(nogil=True, inline="always")
def _below(D: np.ndarray, i: int, j: int) -> float:
    """D_ij of a symmetric matrix whose lower triangle is read."""
    return D[i, j] if i >= j else D[j, i]


@_jit
def factorise(
    R: np.ndarray,
    rows: np.ndarray,
    N: np.ndarray,
    noise: np.ndarray,
    factor: np.ndarray,
    coef: np.ndarray,
    cond_var: np.ndarray,
) -> None:
    """Upper U with UᵀU = R + Σ at the neighbours and, last, at the row itself: the column above the corner is
    U⁻ᵀc, and the corner d; then b. LANES rows at a time, side by side, which vector instructions do together.

    Each pivot is the variance of a row given others, so none lies below that row's noise but by rounding.
    Where there is no neighbour, U has a row of the identity.
    """
    q = N.shape[1]
    least, x = np.empty((q + 1, LANES)), np.empty((q, LANES))
    for g in range(len(factor)):
        U = factor[g]
        for lane in range(LANES):
            i = min(g * LANES + lane, len(N) - 1)  # the last lanes may do the last row again
            own = rows[i]
            for j in range(q + 1):
                at = N[i, j] if j < q else own
                there = j == q or at != own
                least[j, lane] = noise[at] if there else 0.0
                start = _start(j, q)
                for a in range(j, q):
                    other = N[i, a]
                    U[start + a, lane] = _below(R, at, other) if there and other != own else 0.0
                U[start + q, lane] = _below(R, at, own) if there else 0.0
                U[start + j, lane] = U[start + j, lane] + noise[at] if there else 1.0
        for j in range(q + 1):
            start = _start(j, q)
            for t in range(j):
                above = _start(t, q)
                for a in range(j, q + 1):
                    for lane in range(LANES):
                        U[start + a, lane] -= U[above + j, lane] * U[above + a, lane]
            for lane in range(LANES):
                U[start + j, lane] = max(U[start + j, lane], least[j, lane])
            if j < q:
                for lane in range(LANES):
                    U[start + j, lane] = sqrt(U[start + j, lane])
                for a in range(j + 1, q + 1):
                    for lane in range(LANES):
                        U[start + a, lane] /= U[start + j, lane]
        for j in range(q):
            for lane in range(LANES):
                x[j, lane] = U[_start(j, q) + q, lane]
        _solve_upper(U, x)
        for lane in range(min(LANES, len(N) - g * LANES)):
            i = g * LANES + lane
            cond_var[i] = U[_start(q, q) + q, lane]
            for j in range(q):
                coef[i, j] = x[j, lane]


@numba.njit(nogil=True, inline="always")
def _start(j: int, q: int) -> int:
    """Where row j of a packed upper triangle of q + 1 rows would have its column 0."""
    return j * q - (j * (j - 1)) // 2


@numba.njit(nogil=True, fastmath=FAST)
def _solve_upper(U: np.ndarray, x: np.ndarray) -> None:
    """U⁻¹x, in x, without the last row and column of U. x (q, LANES)"""
    q = len(x)
    for j in range(q - 1, -1, -1):
        start = _start(j, q)
        for a in range(j + 1, q):
            for lane in range(LANES):
                x[j, lane] -= U[start + a, lane] * x[a, lane]
        for lane in range(LANES):
            x[j, lane] /= U[start + j, lane]


@_jit
def solve(rows: np.ndarray, N: np.ndarray, factor: np.ndarray, B: np.ndarray) -> None:
    """A⁻¹ b of each row by the factor of `factorise`, in B; 0 where there is no neighbour."""
    q = N.shape[1]
    x = np.empty((q, LANES))
    for g in range(len(factor)):
        U = factor[g]
        for lane in range(LANES):
            i = min(g * LANES + lane, len(N) - 1)
            for j in range(q):
                x[j, lane] = B[i, j] if N[i, j] != rows[i] else 0.0
        for j in range(q):
            start = _start(j, q)
            for lane in range(LANES):
                x[j, lane] /= U[start + j, lane]
            for a in range(j + 1, q):
                for lane in range(LANES):
                    x[a, lane] -= U[start + a, lane] * x[j, lane]
        _solve_upper(U, x)
        for lane in range(min(LANES, len(N) - g * LANES)):
            for j in range(q):
                B[g * LANES + lane, j] = x[j, lane]


@_jit
def gather(N: np.ndarray, C: np.ndarray, A: np.ndarray, sign: float, out: np.ndarray) -> None:
    """out_i += sign Σ_j C_ij A[N_ij], four neighbours at a time."""
    q, m = N.shape[1], A.shape[1]
    whole = q - q % 4
    for i in range(len(N)):
        row = out[i]
        for j in range(0, whole, 4):
            c0, c1, c2, c3 = sign * C[i, j], sign * C[i, j + 1], sign * C[i, j + 2], sign * C[i, j + 3]
            a0, a1, a2, a3 = A[N[i, j]], A[N[i, j + 1]], A[N[i, j + 2]], A[N[i, j + 3]]
            for k in range(m):
                row[k] += (c0 * a0[k] + c1 * a1[k]) + (c2 * a2[k] + c3 * a3[k])
        for j in range(whole, q):
            c, a = sign * C[i, j], A[N[i, j]]
            for k in range(m):
                row[k] += c * a[k]


@_jit
def scatter(N: np.ndarray, C: np.ndarray, A: np.ndarray, sign: float, out: np.ndarray) -> None:
    """out[N_ij] += sign C_ij A_i."""
    for i in range(len(N)):
        a = A[i]
        for j in range(N.shape[1]):
            c, row = sign * C[i, j], out[N[i, j]]
            if c != 0.0:
                for k in range(len(a)):
                    row[k] += c * a[k]


@_jit
def dots(N: np.ndarray, A: np.ndarray, B: np.ndarray, out: np.ndarray) -> None:
    """out_ij = A_i · B[N_ij]."""
    for i in range(len(N)):
        a = A[i]
        for j in range(N.shape[1]):
            b, s = B[N[i, j]], 0.0
            for k in range(len(a)):
                s += a[k] * b[k]
            out[i, j] = s


@_jit
def add_rank_two(N: np.ndarray, coef: np.ndarray, dbar: np.ndarray, u: np.ndarray, G: np.ndarray) -> None:
    """The lower triangle of G + Gᵀ less its diagonal, G += Σ_i d̄ mmᵀ + ½(muᵀ + umᵀ), m = e_i - b and u at
    the rows of N.
    """
    for i in range(len(N)):
        d = dbar[i]
        G[i, i] += d
        for j in range(N.shape[1]):
            at, m, v = N[i, j], -coef[i, j], 0.5 * u[i, j]
            if at == i:
                break
            w = d * m + v
            G[max(at, i), min(at, i)] += 2.0 * w
            G[at, at] += m * (w + v)
            for a in range(j):
                other = N[i, a]
                G[max(at, other), min(at, other)] += m * u[i, a] - 2.0 * w * coef[i, a]


@_jit
def nearest_earlier(S: np.ndarray, N: np.ndarray) -> None:
    """The columns j < i of the q least entries in each row i of S (b, b), least first and of equals the
    first; -1 where there are no more. N (b, q)
    """
    q = N.shape[1]
    least = np.empty(q)
    for i in range(len(S)):
        count = 0
        for j in range(i):
            s = S[i, j]
            if count == q and not s < least[q - 1]:
                continue
            at = count if count < q else q - 1
            while at > 0 and s < least[at - 1]:
                least[at], N[i, at] = least[at - 1], N[i, at - 1]
                at -= 1
            least[at], N[i, at] = s, j
            count = min(count + 1, q)
        for j in range(count, q):
            N[i, j] = -1
