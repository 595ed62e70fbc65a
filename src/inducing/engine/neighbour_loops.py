"""Compiled loops over rows and their neighbours, for neighbours.py and neighbour_sets.py."""

from math import inf, sqrt

import numpy as np

from ..model.kernels.triangle_loops import fill, squared_distances, to_values
from ..numerics.compiled_blas import add_outer
from ..numerics.compiling import FAST, compiled, helper
from ..numerics.kinds import Addresses, Given2, signature
from ..numerics.triangles import add, dot

PANEL = 128  # columns at a time, which for the rows of a block fit a core's own cache

_jit = compiled(fastmath=FAST)


@helper(fastmath=FAST)
def residuals(
    at: np.ndarray,
    near: np.ndarray,
    P: np.ndarray,
    kernel: tuple[int, float, float],
    k: int,
    space: tuple[np.ndarray, np.ndarray],
) -> None:
    """Fill the upper triangle of space[1] with R of k neighbours and a row. near (g, k + 1), P (k + 1, m)"""
    R, U = space
    for j in range(k + 1):
        row = R[j, : j + 1]
        squared_distances(near, 0, near[:, j], row)
        to_values(kernel, row)
    if P.shape[1]:
        add_outer(at, P, -1.0, R)  # rows of P and R beyond k are not read
    for j in range(k + 1):
        for a in range(j, k + 1):
            U[j, a] = R[a, j]


@helper(fastmath=FAST)
def _condition(U: np.ndarray, k: int, noise: np.ndarray, coef: np.ndarray) -> float:
    """Add the noise (k + 1,) to R of k neighbours and a row, given by its upper triangle U, which becomes the
    Cholesky factor; put b into coef (k,) and return d.
    """
    for j in range(k + 1):
        row, least = U[j], noise[j]
        row[j] += least
        for t in range(0, j - j % 4, 4):
            u0, u1, u2, u3 = U[t], U[t + 1], U[t + 2], U[t + 3]
            x0, x1, x2, x3 = u0[j], u1[j], u2[j], u3[j]
            for a in range(j, k + 1):
                row[a] -= (x0 * u0[a] + x1 * u1[a]) + (x2 * u2[a] + x3 * u3[a])
        for t in range(j - j % 4, j):
            u, x = U[t], U[t, j]
            for a in range(j, k + 1):
                row[a] -= x * u[a]
        root = sqrt(max(row[j], least))
        inverse = 1.0 / root
        for a in range(j + 1, k + 1):
            row[a] *= inverse
        row[j] = root
    for j in range(k):
        coef[j] = U[j, k]
    for j in range(k - 1, -1, -1):
        row, s = U[j], coef[j]
        for a in range(j + 1, k):
            s -= row[a] * coef[a]
        coef[j] = s / row[j]
    return U[k, k] * U[k, k]


@helper(fastmath=FAST)
def add_multiples(
    row: np.ndarray, N: np.ndarray, c: np.ndarray, step: int, sign: float, A: np.ndarray, lo: int
) -> None:
    """row += sign Σ_j c[j step] A[N_j], four neighbours at a time, of the columns of A from lo on."""
    q, hi = len(N), lo + len(row)
    whole = q - q % 4
    for j in range(0, whole, 4):
        c0, c1, c2, c3 = c[j * step], c[(j + 1) * step], c[(j + 2) * step], c[(j + 3) * step]
        c0, c1, c2, c3 = sign * c0, sign * c1, sign * c2, sign * c3
        a0, a1 = A[N[j], lo:hi], A[N[j + 1], lo:hi]
        a2, a3 = A[N[j + 2], lo:hi], A[N[j + 3], lo:hi]
        for k in range(len(row)):
            row[k] += (c0 * a0[k] + c1 * a1[k]) + (c2 * a2[k] + c3 * a3[k])
    for j in range(whole, q):
        add(sign * c[j * step], A[N[j], lo:hi], row, len(row))


@_jit
def gather(N: np.ndarray, C: np.ndarray, A: np.ndarray, sign: float, out: np.ndarray) -> None:
    """out_i += sign Σ_j C_ij A[N_ij]."""
    for lo in range(0, A.shape[1], PANEL):
        hi = min(lo + PANEL, A.shape[1])
        for i in range(len(N)):
            add_multiples(out[i, lo:hi], N[i], C[i], 1, sign, A, lo)


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
                    add(c, a, row, hi - lo)


@helper()
def _sort_in(s: float, number: int, least: np.ndarray, near: np.ndarray) -> None:
    """Insert s, less than the last, into the sorted distances `least`, and its number into `near`."""
    at = len(least) - 1
    while at > 0 and s < least[at - 1]:
        least[at], near[at] = least[at - 1], near[at - 1]
        at -= 1
    least[at], near[at] = s, number


@_jit
def nearest_earlier(S: np.ndarray, N: np.ndarray) -> None:
    """Fill N (b, q), -1 at first, with the columns j < i of the least entries in each row i of S."""
    least = np.empty(N.shape[1])
    for i in range(len(S)):
        fill(least, inf)
        for j in range(i):
            if S[i, j] < least[-1]:
                _sort_in(S[i, j], j, least, N[i])


@helper()
def _longest(edges: np.ndarray) -> int:
    """Return the length of the longest leaf; NumPy's functions would take seconds to compile."""
    most = 0
    for i in range(len(edges) - 1):
        most = max(most, edges[i + 1] - edges[i])
    return most


@compiled(signature("void", Given2, Addresses, Given2, Given2, Given2, "Array(int64, 2, 'C')"), fastmath=FAST)
def nearest_rows(
    Zt: np.ndarray, edges: np.ndarray, low: np.ndarray, high: np.ndarray, Q: np.ndarray, N: np.ndarray
) -> None:
    """Fill N (t, q) with the columns of Zt nearest to each row of Q, nearest first.

    The columns of Zt (g, n) lie leaf after leaf with these `edges`, each leaf between its `low` and `high`.
    """
    least, bound, space = np.empty(N.shape[1]), np.empty(len(low)), np.empty(_longest(edges))
    for i in range(len(Q)):
        _search(Zt, edges, low, high, Q[i], (bound, space, least), N[i])


@helper(fastmath=FAST)
def _search(
    Zt: np.ndarray,
    edges: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    x: np.ndarray,
    space: tuple[np.ndarray, np.ndarray, np.ndarray],
    near: np.ndarray,
) -> None:
    """Fill `near` with the columns of Zt nearest to x: of its own leaf, then of leaves with nearer ones."""
    (leaves, g), first = low.shape, 0
    bound, distances, least = space
    for leaf in range(leaves):
        b = 0.0
        for k in range(g):
            t = max(low[leaf, k] - x[k], x[k] - high[leaf, k], 0.0)
            b += t * t
        bound[leaf] = b
        if b < bound[first]:
            first = leaf
    fill(least, inf)
    _look(Zt, edges, first, x, distances, least, near)
    for leaf in range(leaves):
        if leaf != first and bound[leaf] < least[-1]:
            _look(Zt, edges, leaf, x, distances, least, near)


@_jit
def predict_near(
    at: np.ndarray,
    X: np.ndarray,
    leaves: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    process: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    rows: tuple[np.ndarray, np.ndarray, np.ndarray],
    kernel: tuple[int, float, float],
    q: int,
    out: np.ndarray,
) -> bool:
    """Fill `out` (t, 2) with mean and variance of f at each row of X, without the prior mean. Return False if
    bᵀΣb is beyond 4 prior variances, as only rounding makes it.

    leaves: Zt, edges, low, high of `nearest_rows`; process: a table of v, p, h, α of the basis functions
    (CompiledPredictor), Luu⁻¹, Aᵀ and lengthscales; rows, leaf after leaf: Φ (n, m), residuals and noise.
    """
    (Zt, edges, low, high), (table, Linv, Atrans, scales) = leaves, process
    m, g, (Phi, e, noise) = len(table), len(Zt), rows
    search = np.empty(len(low)), np.empty(_longest(edges)), np.empty(q)
    space = np.zeros((q + 1, q + 1)), np.empty((q + 1, q + 1))
    numbers = np.empty(q, np.int64)
    P, near = np.zeros((q + 1, m)), np.empty((g, q + 1))
    K, z, level = np.empty(m), np.empty(g), np.zeros(q + 1)
    coef = np.empty(q)
    for i in range(len(X)):
        share = 0.0
        for k in range(g):
            z[k] = near[k, q] = X[i, k] / scales[k]
        if q:
            _search(Zt, edges, low, high, z, search, numbers)
        for j in range(q):
            level[j] = noise[numbers[j]]
            for k in range(g):
                near[k, j] = Zt[k, numbers[j]]
            for a in range(m):
                P[j, a] = Phi[numbers[j], a]
        for j in range(m):
            K[j] = 0.0
            for k in range(g):
                t = X[i, k] - table[j, k]
                K[j] += table[j, g + k] * t * t
        to_values((kernel[0], 1.0, kernel[2]), K)
        mean = 0.0
        for j in range(m):
            K[j] *= table[j, 2 * g]
            mean += K[j] * table[j, 2 * g + 1]
            P[q, j] = dot(Linv[j], K, j + 1)
        residuals(at, near, P, kernel, q, space)
        variance = _condition(space[1], q, level, coef)
        for j in range(q):
            mean += coef[j] * e[numbers[j]]
            share += coef[j] * coef[j] * level[j] / kernel[1]
            add(-coef[j], P[j], P[q], m)
        for j in range(m):
            half = dot(Atrans[j], P[q], m)
            variance += half * half
        out[i, 0], out[i, 1] = mean, variance
        if not share <= 4.0:
            return False
    return True


@helper(fastmath=FAST)
def _look(
    Zt: np.ndarray,
    edges: np.ndarray,
    leaf: int,
    x: np.ndarray,
    space: np.ndarray,
    least: np.ndarray,
    near: np.ndarray,
) -> None:
    """Insert those columns of one leaf into `near` that are nearer to x than its last."""
    lo, hi = edges[leaf], edges[leaf + 1]
    s = space[: hi - lo]
    squared_distances(Zt, lo, x, s)
    for j in range(len(s)):
        if s[j] < least[-1]:
            _sort_in(s[j], lo + j, least, near)
