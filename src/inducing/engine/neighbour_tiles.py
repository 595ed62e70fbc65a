"""The passes along neighbours as compiled loops, for stationary kernels: one call does a block of rows.

neighbours.py has the formulas. R is needed only for pairs of a row and its neighbour, or of two neighbours of
a row: a fifth of a block's triangle with 20 neighbours. `find_pairs` numbers them; R and dJ/dD are vectors
over them. The small factors of LANES rows are computed side by side: the first q rows of a row's factor are
its neighbours, the last one is the row itself. A missing neighbour is a row of the identity, with the entries
PAIR_ZERO and PAIR_ONE.

With MΦ, Me and d̄, u of neighbours.py, Φ̄ = w vᵀ - Mᵀ(2d̄ MΦᵀ + UΦᵀ + p/d MΦᵀB⁻¹) - UᵀMΦᵀ is one scatter.
"""

from math import log, sqrt

import numpy as np

from ..model.kernels.triangle_loops import fill, times_slope, to_values, total
from ..numerics.compiled_blas import add_cross, add_gram, add_symmetric, times_lower
from ..numerics.compiling import FAST, Numbers, compiled, helper
from ..numerics.kinds import Given1, Given2, Int, Out1, Out2, Real, signature, tuple_of
from ..numerics.lanes import LANES, factorise_lanes, solve_lanes
from ..numerics.triangles import add, dot
from .neighbour_loops import add_multiples
from .tiles import BasisType, MatricesType, Out3, Totals, copied, fill_tile, finish

_jit = helper(fastmath=FAST)
PAIR_ZERO, PAIR_ONE = 0, 1  # the numbers that stand for the entries 0 and 1 instead of a pair
Places1, Places2 = "Array(int32, 1, 'C')", "Array(int32, 2, 'C')"
Numbers2 = "Array(uint32, 2, 'C')"
NearRows = tuple_of(Given2, Given2, Given1, Given2)  # X, Y, noise over weight, inputs in lengthscales
# places in a block of rows and of their neighbours (c, q), the row's own for none; numbers of the pairs of
# LANES rows; both rows of each pair
PairsType = tuple_of(Places1, Places2, Numbers2, Numbers2)
NearFactors = tuple_of(Out2, Out2, Out1, Out2)  # factors of LANES rows each, b (b, q), d (b,), space for four
# space for three numbers of each pair, for two of each value (2b, p), and 0 for each row, in whole groups
NearSpace = tuple_of(Out2, Out2, Out1)
NearFilled = tuple_of(Out2, Out1, Out1)  # V, the diagonal of G_D, moments of the kernel between rows


@compiled(signature(Int, Places1, Places2, Places1, Places1, Numbers2, Numbers2))
def find_pairs(
    rows: np.ndarray, N: np.ndarray, table: np.ndarray, places: np.ndarray, ids: np.ndarray, pairs: np.ndarray
) -> int:
    """Number the pairs of a block: fill ids (groups, pairs of a row · LANES) with their numbers and `pairs`
    with their rows. `table` is scratch of the size of the block's triangle, `places` (q + 1,). Return the
    count of numbers, of which the first two are PAIR_ZERO and PAIR_ONE.
    """
    b, q = N.shape
    for i in range(len(table)):
        table[i] = -1
    count = 2
    for i in range(len(ids) * LANES):
        out, lane, at = ids[i // LANES], i % LANES, 0
        for a in range(q + 1):
            places[a] = -1
            if i < b and (a == q or N[i, a] != rows[i]):
                places[a] = rows[i] if a == q else N[i, a]
            for j in range(a + 1):
                first, second = places[a], places[j]
                number = PAIR_ONE if a == j else PAIR_ZERO
                if first >= 0 and second >= 0:
                    large = max(first, second)
                    key = large * (large + 1) // 2 + min(first, second)
                    number = table[key]
                    if number < 0:
                        number = table[key] = count
                        pairs[0, count], pairs[1, count] = first, second
                        count += 1
                out[at + lane] = number
                at += LANES
    return count


@_jit
def squared_distance(x: np.ndarray, z: np.ndarray) -> float:
    s = 0.0
    for k in range(len(x)):
        t = x[k] - z[k]
        s += t * t
    return s


@_jit
def residuals_of_pairs(
    Z: np.ndarray, Phi: np.ndarray, kernel: Numbers, pairs: np.ndarray, R: np.ndarray
) -> None:
    """Fill R of each pair under a stationary kernel. Z (b, g) in lengthscales"""
    first, second = pairs[0], pairs[1]
    for t in range(2, len(R)):
        R[t] = squared_distance(Z[first[t]], Z[second[t]])
    to_values(kernel, R)
    whole = 2 + (len(R) - 2) // 4 * 4
    for t in range(2, whole, 4):  # four pairs at a time
        x0, x1, x2, x3 = Phi[first[t]], Phi[first[t + 1]], Phi[first[t + 2]], Phi[first[t + 3]]
        z0, z1, z2, z3 = Phi[second[t]], Phi[second[t + 1]], Phi[second[t + 2]], Phi[second[t + 3]]
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for k in range(len(x0)):
            s0 += x0[k] * z0[k]
            s1 += x1[k] * z1[k]
            s2 += x2[k] * z2[k]
            s3 += x3[k] * z3[k]
        R[t] -= s0
        R[t + 1] -= s1
        R[t + 2] -= s2
        R[t + 3] -= s3
    for t in range(whole, len(R)):
        R[t] -= dot(Phi[first[t]], Phi[second[t]], Phi.shape[1])


@_jit
def condition_rows(R: np.ndarray, noise: np.ndarray, sets: Numbers, factors: Numbers) -> None:
    """Add the noise to R of the pairs, and fill the factors, b and d of the rows."""
    (rows, N, ids, pairs), (Ls, coef, var, lanes) = sets, factors
    (b, q), first, second, x, least = N.shape, pairs[0], pairs[1], lanes[0], lanes[1]
    fill(least, 0.0)
    R[PAIR_ZERO], R[PAIR_ONE] = 0.0, 1.0
    for t in range(2, len(R)):
        if first[t] == second[t]:
            R[t] += noise[first[t]]
    for g in range(len(ids)):
        L, own, lo = Ls[g], ids[g], g * LANES
        for t in range(len(L)):
            L[t] = R[own[t]]
        for i in range(lo, min(lo + LANES, b)):
            for a in range(q):
                least[a * LANES + i - lo] = noise[N[i, a]]
            least[q * LANES + i - lo] = noise[rows[i]]
        factorise_lanes(least, q, L, x)
        for i in range(lo, min(lo + LANES, b)):
            root = 1.0 / L[len(L) - LANES + i - lo]
            var[i] = root * root
            for a in range(q):
                coef[i, a] = x[a * LANES + i - lo]


@compiled(fastmath=FAST)
def solve(Ls: np.ndarray, B: np.ndarray) -> None:
    """Replace each row b of B by A⁻¹b; entries without a neighbour must be 0."""
    c, q = B.shape
    u = np.zeros(q * LANES)
    for lo in range(0, c, LANES):
        some = B[lo : lo + LANES]
        for a in range(q):
            for lane in range(len(some)):
                u[a * LANES + lane] = some[lane, a]
        solve_lanes(Ls[lo // LANES], q, u)
        for a in range(q):
            for lane in range(len(some)):
                some[lane, a] = u[a * LANES + lane]


@_jit
def times_rows(N: np.ndarray, coef: np.ndarray, A: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` with M A: A_i - Σ_j b_ij A[N_ij]."""
    copied(A, out)
    for i in range(len(N)):
        add_multiples(out[i], N[i], coef[i], 1, -1.0, A, 0)


_there = Given2, PairsType, NearFactors, NearSpace, Out3, Out3, Out2, Out2


@compiled(signature(Real, BasisType, NearRows, *_there), fastmath=FAST)
def first_near(
    basis: Numbers,
    rows: Numbers,
    Linv: np.ndarray,
    sets: Numbers,
    factors: Numbers,
    space: Numbers,
    work: np.ndarray,
    A: np.ndarray,
    G: np.ndarray,
    b: np.ndarray,
) -> float:
    """Fill the factors; add ΦD⁻¹Φᵀ to G and ΦD⁻¹Y to b (m, p); return log|D|. If Luu⁻¹ is (0, 0), work[0]
    holds Φ, and the factors alone are filled.
    """
    at, _, _, kernel = basis
    (X, Y, noise, Z), (_, N, _, pairs), (_, coef, var, _) = rows, sets, factors
    c = len(Z)
    Phi, R = work[0, :c], space[0][0]
    if len(Linv):
        fill_tile(basis, X, False, Phi, A, work[1, :c])
        times_lower(at, Phi, Linv, True)
    residuals_of_pairs(Z, Phi, kernel, pairs, R)
    condition_rows(R, noise, sets, factors)
    if not len(Linv):
        return 0.0
    H, t = work[1, :c], space[1][:c]
    times_rows(N, coef, Phi, H)
    times_rows(N, coef, Y, t)
    log_D = 0.0
    for i in range(len(N)):
        log_D += log(var[i])
        root = 1.0 / sqrt(var[i])
        for o in range(Y.shape[1]):
            t[i, o] *= root
        row = H[i]
        for k in range(len(row)):
            row[k] *= root
    add_gram(at, H, 1.0, G)
    add_cross(at, H, t, b)
    return log_D


@_jit
def slopes_of_rows(
    Phi: np.ndarray,
    E: np.ndarray,
    ME: np.ndarray,
    S: np.ndarray,
    N: np.ndarray,
    var: np.ndarray,
    lo: int,
    u: np.ndarray,
) -> None:
    """Fill the lanes of u with (e_N (Me)ᵀ + p Φ_NᵀB⁻¹ΦMᵀ)/d of LANES rows from lo on; S is p MΦᵀB⁻¹/d."""
    q, p = N.shape[1], E.shape[1]
    fill(u, 0.0)
    for i in range(lo, min(lo + LANES, len(N))):
        s = S[i]
        for a in range(q):
            at = N[i, a]
            if at == i:
                break
            u[a * LANES + i - lo] = dot(ME[i], E[at], p) / var[i] + dot(s, Phi[at], len(s))


@_jit
def scatter_row(
    Phi: np.ndarray,
    N: np.ndarray,
    b: np.ndarray,
    u: np.ndarray,
    i: int,
    MPhi: np.ndarray,
    x: np.ndarray,
    T: np.ndarray,
) -> None:
    """Add UΦᵀ of row i to x, then Mᵀx + UᵀMΦᵀ to T; u in steps of LANES."""
    own = T[i]
    add_multiples(x, N, u, LANES, 1.0, Phi, 0)
    add(1.0, x, own, len(x))
    for a in range(len(N)):
        c, d, row = -b[a], u[a * LANES], T[N[a]]
        if c != 0.0 or d != 0.0:
            for k in range(len(x)):
                row[k] += c * x[k] + d * MPhi[k]


@_jit
def add_to_pairs(
    ids: np.ndarray, q: int, m: np.ndarray, u: np.ndarray, dbar: np.ndarray, bars: np.ndarray
) -> None:
    """Add d̄mmᵀ + ½(muᵀ + umᵀ) of LANES rows to their pairs, entries above the diagonal to those below. m and
    u ((q + 1) LANES,)
    """
    at = 0
    for a in range(0, (q + 1) * LANES, LANES):
        for j in range(0, a + LANES, LANES):
            share = 0.5 if a == j else 1.0
            for lane in range(LANES):
                x, y = m[a + lane], m[j + lane]
                bar = x * (2.0 * dbar[lane] * y + u[j + lane]) + u[a + lane] * y
                bars[ids[at + lane]] += share * bar
            at += LANES


@_jit
def carry_back(
    rows: Numbers,
    E: np.ndarray,
    ME: np.ndarray,
    dbar: np.ndarray,
    sets: Numbers,
    factors: Numbers,
    T: np.ndarray,
    bars: np.ndarray,
) -> None:
    """Add Mᵀx + UᵀMΦᵀ to T, with x = X + 2d̄ MΦᵀ + UΦᵀ, which replaces X, and dJ/dD to the pairs' bars.

    rows: Φᵀ, ΦᵀC, MΦᵀ, p MΦᵀE/d and X of a block, where ECᵀ = B⁻¹.
    """
    (Phi, PhiC, MPhi, S, X), (_, N, ids, _), (Ls, coef, var, lanes) = rows, sets, factors
    q, m, u = N.shape[1], lanes[2], lanes[3]
    for g in range(len(ids)):
        lo = g * LANES
        slopes_of_rows(PhiC, E, ME, S, N, var, lo, u)
        solve_lanes(Ls[g], q, u)
        fill(m, 0.0)
        for i in range(lo, min(lo + LANES, len(N))):
            x, a = X[i], MPhi[i]
            add(2.0 * dbar[i], a, x, len(x))
            scatter_row(Phi, N[i], coef[i], u[i - lo :], i, a, x, T)
            m[q * LANES + i - lo] = 1.0
            for j in range(q):
                m[j * LANES + i - lo] = -coef[i, j]
        add_to_pairs(ids[g], q, m, u, dbar[lo : lo + LANES], bars)


@_jit
def back_through_pairs(
    Z: np.ndarray, kernel: Numbers, pairs: np.ndarray, space: np.ndarray, filled: Numbers
) -> None:
    """Fill the diagonal of G_D, and add the moments of the kernel between rows, from dJ/dD of each pair."""
    first, second, bars, s, W, (_, diagonal, own) = pairs[0], pairs[1], space[0], space[1], space[2], filled
    d = Z.shape[1]
    squares = own[:d]
    s[0] = s[1] = 0.0
    for t in range(2, len(bars)):
        s[t] = squared_distance(Z[first[t]], Z[second[t]])
    for t in range(len(s)):
        W[t] = s[t]
    to_values(kernel, W)
    bars[0] = bars[1] = 0.0
    for t in range(len(s)):
        W[t] *= bars[t]
    own[d] += total(W)
    own[d + 1] += times_slope(kernel, s, W)
    for t in range(2, len(bars)):
        x, z, w = Z[first[t]], Z[second[t]], W[t]
        for k in range(d):
            difference = x[k] - z[k]
            squares[k] += w * difference * difference
        if first[t] == second[t]:
            diagonal[first[t]] = bars[t]


_back = MatricesType, PairsType, NearFactors, NearFilled, NearSpace, Out3, Out3, Out2, Totals


@compiled(signature(Real, BasisType, NearRows, *_back), fastmath=FAST)
def second_near(
    basis: Numbers,
    rows: Numbers,
    matrices: Numbers,
    sets: Numbers,
    factors: Numbers,
    filled: Numbers,
    space: Numbers,
    work: np.ndarray,
    A: np.ndarray,
    G: np.ndarray,
    totals: Numbers,
) -> float:
    """Add (Φ̄ - w vᵀ)Φᵀ to G, and to `totals` and the kernel moments between rows; fill V = D⁻¹(Y - Φᵀw)
    and the diagonal of G_D. Return Σ eᵀD⁻¹e.
    """
    at, _, _, kernel = basis
    (X, Y, _, Z), (_, N, _, pairs), (_, coef, var, _) = rows, sets, factors
    (Linv, LBinv, w, alpha), V, (of_pairs, both, dbar) = matrices, filled[0], space
    (b, p), q, residual, bars = Y.shape, N.shape[1], 0.0, of_pairs[0]
    K, Phi, MPhi, S, T = work[0, :b], work[1, :b], work[2, :b], work[3, :b], work[4, :b]
    fill_tile(basis, X, False, K, A, Phi)
    copied(K, Phi)
    times_lower(at, Phi, Linv, True)
    E, ME = both[:b], both[b:]
    for i in range(b):
        for o in range(p):
            E[i, o] = Y[i, o] - dot(Phi[i], w[o], len(G))
    times_rows(N, coef, Phi, MPhi)
    times_rows(N, coef, E, ME)
    copied(MPhi, S)
    times_lower(at, S, LBinv, True)
    for i in range(b):
        square = dot(ME[i], ME[i], p)
        residual += square / var[i]
        dbar[i] = 0.5 * ((square + p * dot(S[i], S[i], len(G))) / var[i] - p) / var[i]
        fill(T[i], 0.0)
        fill(V[i], 0.0)
        row, share = S[i], p / var[i]
        for k in range(len(row)):
            row[k] *= share
    times_lower(at, S, LBinv, False)  # p MΦᵀB⁻¹/d
    for i in range(b):
        for o in range(p):
            t = ME[i, o] / var[i]
            V[i, o] += t
            for j in range(q):
                V[N[i, j], o] -= coef[i, j] * t
    fill(bars, 0.0)
    carry_back((Phi, Phi, MPhi, S, S), E, ME, dbar, sets, factors, T, bars)
    back_through_pairs(Z, kernel, pairs, of_pairs, filled)
    for i in range(b):
        row = T[i]
        for k in range(len(row)):
            row[k] = -row[k]
    add_symmetric(at, T, Phi, G)
    times_lower(at, T, Linv, False)
    finish(basis, T, 1.0, V, alpha, K, A, (S, Phi), totals)
    return residual


# the same functions, compiled for calls from Python
condition = compiled(fastmath=FAST)(condition_rows.py_func)
through_rows = compiled(fastmath=FAST)(carry_back.py_func)
