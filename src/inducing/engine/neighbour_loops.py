"""Compiled loops over rows and their neighbours, for neighbours.py and neighbour_sets.py."""

from __future__ import annotations

from math import sqrt

import numba
import numpy as np

from ..numerics.loops import FAST

PANEL = 128  # columns at a time, so that those of a block's rows stay in a core's own cache

_jit = numba.njit(nogil=True, cache=True, fastmath=FAST)


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
    """Upper U with UᵀU = R + Σ at the neighbours and, last, at the row itself; then b and d.

    The last column is U⁻ᵀc, and √d its last entry. Each pivot is the variance of a row given others, so none
    lies below that row's noise but by rounding.
    """
    q = N.shape[1]
    places = np.empty(q + 1, dtype=np.int64)
    for i in range(len(N)):
        U, k = factor[i], _count(rows[i], N[i])
        for j in range(k):
            places[j] = N[i, j]
        places[k] = rows[i]
        for j in range(k + 1):
            at, row = places[j], U[j]
            for a in range(j, k + 1):
                row[a] = R[max(at, places[a]), min(at, places[a])]
            row[j] += noise[at]
            for t in range(0, j - j % 4, 4):
                u0, u1, u2, u3 = U[t], U[t + 1], U[t + 2], U[t + 3]
                x0, x1, x2, x3 = u0[j], u1[j], u2[j], u3[j]
                for a in range(j, k + 1):
                    row[a] -= (x0 * u0[a] + x1 * u1[a]) + (x2 * u2[a] + x3 * u3[a])
            for t in range(j - j % 4, j):
                u, x = U[t], U[t, j]
                for a in range(j, k + 1):
                    row[a] -= x * u[a]
            root = sqrt(max(row[j], noise[at]))
            inverse = 1.0 / root
            for a in range(j + 1, k + 1):
                row[a] *= inverse
            row[j] = root
        cond_var[i] = U[k, k] * U[k, k]
        for j in range(q):
            coef[i, j] = U[j, k] if j < k else 0.0
        _solve_upper(U, coef[i, :k])


@_jit
def solve(rows: np.ndarray, N: np.ndarray, factor: np.ndarray, B: np.ndarray) -> None:
    """A⁻¹b of each row by the factor of `factorise`, in B; 0 where there is no neighbour."""
    for i in range(len(N)):
        U, x, k = factor[i], B[i], _count(rows[i], N[i])
        for j in range(k):
            row = U[j]
            x[j] /= row[j]
            s = x[j]
            for a in range(j + 1, k):
                x[a] -= s * row[a]
        _solve_upper(U, x[:k])
        for j in range(k, len(x)):
            x[j] = 0.0


@numba.njit(nogil=True, inline="always")
def _count(own: int, N: np.ndarray) -> int:
    """How many neighbours a row has."""
    k = 0
    while k < len(N) and N[k] != own:
        k += 1
    return k


@numba.njit(nogil=True, fastmath=FAST)
def _solve_upper(U: np.ndarray, x: np.ndarray) -> None:
    """U⁻¹x, in x, by as much of U as x has entries."""
    for j in range(len(x) - 1, -1, -1):
        row, s = U[j], x[j]
        for a in range(j + 1, len(x)):
            s -= row[a] * x[a]
        x[j] = s / row[j]


@_jit
def gather(N: np.ndarray, C: np.ndarray, A: np.ndarray, sign: float, out: np.ndarray) -> None:
    """out_i += sign Σ_j C_ij A[N_ij], four neighbours at a time."""
    q, m = N.shape[1], A.shape[1]
    whole = q - q % 4
    for lo in range(0, m, PANEL):
        hi = min(lo + PANEL, m)
        for i in range(len(N)):
            row = out[i, lo:hi]
            for j in range(0, whole, 4):
                c0, c1, c2, c3 = sign * C[i, j], sign * C[i, j + 1], sign * C[i, j + 2], sign * C[i, j + 3]
                a0, a1 = A[N[i, j], lo:hi], A[N[i, j + 1], lo:hi]
                a2, a3 = A[N[i, j + 2], lo:hi], A[N[i, j + 3], lo:hi]
                for k in range(hi - lo):
                    row[k] += (c0 * a0[k] + c1 * a1[k]) + (c2 * a2[k] + c3 * a3[k])
            for j in range(whole, q):
                c, a = sign * C[i, j], A[N[i, j], lo:hi]
                for k in range(hi - lo):
                    row[k] += c * a[k]


@_jit
def scatter(N: np.ndarray, C: np.ndarray, A: np.ndarray, sign: float, out: np.ndarray) -> None:
    """out[N_ij] += sign C_ij A_i."""
    m = A.shape[1]
    for lo in range(0, m, PANEL):
        hi = min(lo + PANEL, m)
        for i in range(len(N)):
            a = A[i, lo:hi]
            for j in range(N.shape[1]):
                c, row = sign * C[i, j], out[N[i, j], lo:hi]
                if c != 0.0:
                    for k in range(hi - lo):
                        row[k] += c * a[k]


@_jit
def dots(N: np.ndarray, A: np.ndarray, B: np.ndarray, out: np.ndarray) -> None:
    """out_ij += A_i · B[N_ij]."""
    m = A.shape[1]
    for lo in range(0, m, PANEL):
        hi = min(lo + PANEL, m)
        for i in range(len(N)):
            a = A[i, lo:hi]
            for j in range(N.shape[1]):
                b, s = B[N[i, j], lo:hi], 0.0
                for k in range(hi - lo):
                    s += a[k] * b[k]
                out[i, j] += s


@_jit
def add_rank_two(N: np.ndarray, coef: np.ndarray, dbar: np.ndarray, u: np.ndarray, G: np.ndarray) -> None:
    """Add Σ_i d̄ mmᵀ + ½(muᵀ + umᵀ) to the lower triangle of G, what is above its diagonal to what is below;
    m = e_i - b, and u at the rows of N.
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
    """Columns j < i of the least entries in each row i of S, of equals the first, -1 for none. N (b, q)"""
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
