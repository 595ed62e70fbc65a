"""The passes over rows as compiled loops, for stationary kernels, in tiles of rows that stay in cache.

evidence.py has the formulas, and passes.py the same passes for any kernel. Here squared distances s of rows
and basis functions are a product of features and coefficients (kernels/distances.py), and Kfu is a profile of
s, or a sum or product of such parts (forms.py), so that kernels differ in numbers alone. One call does a
range of rows without the interpreter's lock.
"""

from math import sqrt

import numpy as np

from ..model.kernels.distances import NEAR_CENTRE
from ..model.kernels.stationary import LINEAR
from ..model.kernels.triangle_loops import fill, times_slope, to_values, total
from ..numerics.compiled_blas import ROUTINES, add_cross, add_gram, handed, product, times_lower
from ..numerics.compiling import FAST, Numbers, compiled, helper, pointed
from ..numerics.kinds import Addresses, Flag, Given1, Given2, Int, Out1, Out2, Out3, Real, signature, tuple_of
from ..numerics.triangles import add, copy, dot

_jit = helper(fastmath=FAST)
_pointed = pointed(signature("void", "voidptr"), fastmath=FAST)
Frame = tuple_of(Out2, Out2, Flag)  # centre, scale of each part; whether each function has widths of its own
# vᵀ, Pᵀ, constants, coefficients; largest |v|² (infinite where differences are quicker), profile, factor
# (1 where it is in the constants) and shape: all by part; whether parts are multiplied
FormType = tuple_of(Out3, Out3, Out2, Out3, Out2, Flag)
KernelType = tuple_of(Int, Real, Real)  # profile, variance, shape
BasisType = tuple_of(Addresses, Frame, FormType, KernelType)  # BLAS, frame, form; the kernel, if it is one
RowsType = tuple_of(Given2, Given2, Given1, Given1, Out2)  # X, Y, noise, weight, Kfu where it is kept
Space = tuple_of(Out3, Out3)  # buffers for a tile of rows, four or more, and its features by part
# by part: Wᵀ[features] (m, q); Σ_ij W_ij u_i², Σ K̄∘K and its derivative in the shape (d + 2,)
Totals = tuple_of(Out3, Out2)
SitesType, GivenSites = tuple_of(Out1, Flag), tuple_of(Given1, Flag)  # τ, and whether it is given
ResidualType = tuple_of(Out1, Flag)  # R, and whether it is known
PairType = tuple_of(Given2, Given2)  # T, αᵀ
MatricesType = tuple_of(Given2, Given2, Given2, Given2)  # Luu⁻¹, B⁻¹ or LB⁻¹, wᵀ, αᵀ
# a squared distance below the square of this times |u|² + |v|² is taken by differences
NEAR_ZERO = 1e-3
_call_fill, _to_fill = handed(tuple_of(BasisType, Out2, Flag, Out2, Out3, Out2))
_kinds = BasisType, Out2, Real, Out2, Out2, Out2, Out3, tuple_of(Out2, Out2), Totals
_call_finish, _to_finish = handed(tuple_of(*_kinds))
FILL, FINISH = len(ROUTINES), len(ROUTINES) + 1  # places of `fill_at` and `finish_at` among the addresses
FilledPlain, FilledType = tuple_of(Out2, Out2, Out1), tuple_of(Out2, Out2, Out1, Out1)


@_jit
def features(X: np.ndarray, centre: np.ndarray, scale: np.ndarray, wide: bool, A: np.ndarray) -> None:
    """Fill A with [u, u², 1], or [u, -½|u|², 1] if not wide, of rows u = (x - centre) scale."""
    n, d = X.shape
    for i in range(n):
        s = 0.0
        for k in range(d):
            u = (X[i, k] - centre[k]) * scale[k]
            A[i, k] = u
            s += u * u
        if wide:
            for k in range(d):
                A[i, d + k] = A[i, k] * A[i, k]
        else:
            A[i, d] = -0.5 * s
        A[i, A.shape[1] - 1] = 1.0


@_jit
def distances(at: np.ndarray, A: np.ndarray, form: Numbers, p: int, out: np.ndarray) -> None:
    """Fill `out` with s_ij = Σ_k P_jk (u_ik - v_jk)² + constants_j of a part, or with the values of a linear
    one: by a product of features, or by differences where these are quicker or the product would cancel (far
    out and, for a profile with a root of s, near 0).
    """
    v, P, constants, reach, profile = form[0][p], form[1][p], form[2][p], form[4][p, 0], form[4][p, 1]
    largest = 0.0
    for i in range(len(A)):
        s = 0.0
        for k in range(len(v)):
            s += A[i, k] * A[i, k]
        largest = max(largest, s)
    if profile != LINEAR and largest + reach > NEAR_CENTRE:
        for i in range(len(out)):
            row = out[i]
            copy(constants, row, len(row))
            for k in range(len(v)):
                u, z, w = A[i, k], v[k], P[k]
                if w[0] > 0.0:
                    for j in range(len(row)):
                        row[j] += w[j] * (u - z[j]) * (u - z[j])
        return
    product(at, A, form[3][p], out)
    if profile == 0 or profile > 3:
        return
    near = NEAR_ZERO * NEAR_ZERO * (largest + reach) * (largest + reach)
    for i in range(len(out)):
        row, count = out[i], 0
        for j in range(len(row)):
            count += row[j] < near
        if count > 0:
            for j in range(len(row)):
                if row[j] < near:
                    s = constants[j]
                    for k in range(len(v)):
                        s += P[k, j] * (A[i, k] - v[k, j]) * (A[i, k] - v[k, j])
                    row[j] = s


@_jit
def kernel_of(form: Numbers, p: int) -> tuple[int, float, float]:
    """Return profile, factor and shape of a part."""
    return int(form[4][p, 1]), form[4][p, 2], form[4][p, 3]


@_jit
def fill_tile(
    basis: Numbers, X: np.ndarray, kept: bool, K: np.ndarray, A: np.ndarray, room: np.ndarray
) -> None:
    """Call `fill_at`."""
    _call_fill(basis[0][FILL], (basis, X, kept, K, A, room))


@_pointed
def fill_at(given: Numbers) -> None:
    """Fill A with the features of some rows by part, and unless it is `kept`, K with their Kfu; `room` is for
    the values of one part. Passes call it by address, so that it is compiled once for all.
    """
    basis, X, kept, K, A, room = _to_fill(given)
    at, (centre, scale, wide), form, _ = basis
    for p in range(len(A)):
        own = A[p, : len(X)]
        features(X, centre[p], scale[p], wide, own)
        if kept:
            continue
        to, kernel = K if p == 0 else room, kernel_of(form, p)
        distances(at, own, form, p, to)
        values, all_values = to.reshape(-1), K.reshape(-1)
        if kernel[0] != LINEAR:
            to_values(kernel, values)
        if p > 0 and form[5]:
            for j in range(len(values)):
                all_values[j] *= values[j]
        elif p > 0:
            add(1.0, values, all_values, len(values))


@_jit
def copied(A: np.ndarray, out: np.ndarray) -> None:
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            out[i, j] = A[i, j]


_first = Out1, Given2, Real, Flag, Out1, Space, Out2, Out2


@compiled(signature("void", BasisType, RowsType, *_first), fastmath=FAST)
def first(
    basis: Numbers,
    rows: Numbers,
    root: np.ndarray,
    whitener: np.ndarray,
    share: float,
    uniform: bool,
    R: np.ndarray,
    space: Numbers,
    G: np.ndarray,
    b: np.ndarray,
) -> None:
    """Add ΦΠΦᵀ to G and ΦΠY to b (p, m); if share > 0 subtract φᵀφ from R, k(x, x) at first, and fill `root`
    with √Π; fill Kfu if it has rows. With share = 0 √Π is given, and if `uniform` also in the whitener.
    """
    at = basis[0]
    X, Y, noise, weight, Kfu = rows
    work, A = space
    n, m, tile = X.shape[0], G.shape[0], work.shape[1]
    for lo in range(0, n, tile):
        hi = min(lo + tile, n)
        c = hi - lo
        K = Kfu[lo:hi] if len(Kfu) else work[0, :c]
        Phi = work[1, :c]
        fill_tile(basis, X[lo:hi], False, K, A, Phi)
        copied(K, Phi)
        times_lower(at, Phi, whitener, True)
        for i in range(c):
            row = Phi[i]
            if share > 0.0:
                R[lo + i] -= dot(row, row, m)
                root[lo + i] = sqrt(weight[lo + i] / (share * R[lo + i] + noise[lo + i]))
            if not uniform or share > 0.0:
                t = root[lo + i]
                for j in range(m):
                    row[j] *= t
        add_gram(at, Phi, 1.0, G)
        for o in range(Y.shape[1]):
            total = b[o]
            for i in range(c):
                add(root[lo + i] * Y[lo + i, o], Phi[i], total, m)


@compiled(signature("void", BasisType, Given2, Given2, Space, Out2, Out1), fastmath=FAST)
def whiten(
    basis: Numbers, X: np.ndarray, Linv: np.ndarray, space: Numbers, Phi: np.ndarray, R: np.ndarray
) -> None:
    """Fill Φ of rows, and subtract φᵀφ from R, k(x, x) at first."""
    at, (work, A) = basis[0], space
    tile = work.shape[1]
    for lo in range(0, len(X), tile):
        hi = min(lo + tile, len(X))
        part = Phi[lo:hi]
        fill_tile(basis, X[lo:hi], False, part, A, work[0, : hi - lo])
        times_lower(at, part, Linv, True)
        for i in range(hi - lo):
            R[lo + i] -= dot(part[i], part[i], part.shape[1])


@_jit
def finish(
    basis: Numbers,
    S: np.ndarray,
    sign: float,
    V: np.ndarray,
    alpha: np.ndarray,
    K: np.ndarray,
    A: np.ndarray,
    rooms: Numbers,
    totals: Numbers,
) -> None:
    """Call `finish_at`."""
    _call_finish(basis[0][FINISH], (basis, S, sign, V, alpha, K, A, rooms, totals))


@_pointed
def finish_at(given: Numbers) -> None:
    """Turn S into K̄ = sign S + v αᵀ, and add W = -2 K̄∘dK/ds to the sums of each part. W is in S if there is
    one part; `rooms` are for distances and, with several parts, for W.
    """
    basis, S, sign, V, alpha, K, A, rooms, totals = _to_finish(given)
    (c, m), (s, room), (moments, sums) = S.shape, rooms, totals
    at, form, alone, d = basis[0], basis[2], len(A) == 1, sums.shape[1] - 2
    summed = not alone and not form[5]
    for p in range(len(A)):
        own, W, kernel = A[p, :c], S if alone else room, kernel_of(form, p)
        linear = kernel[0] == LINEAR
        if (kernel[0] > 0 or summed) and not linear:
            distances(at, own, form, p, s)
        for i in range(c):
            bar, row, square = S[i], W[i], 0.0
            if p == 0:
                for j in range(m):
                    bar[j] *= sign
                for o in range(len(alpha)):
                    add(V[i, o], alpha[o], bar, m)
            factor = K[i] if alone else bar
            if linear:
                fill(row, 1.0)
            elif not alone:  # K of the part in a sum, of all parts in a product
                copy(s[i] if summed else K[i], row, m)
                if summed:
                    to_values(kernel, row)
            for j in range(m):
                row[j] *= factor[j]
                square += row[j]
            sums[p, d] += square
            if kernel[0] > 0 and not linear:
                sums[p, d + 1] += times_slope(kernel, s[i], row)
                square = total(row)
            for k in range(d):
                sums[p, k] += square * own[i, k] * own[i, k]
        add_cross(at, W, own, moments[p])


_plain = GivenSites, PairType, Real, Flag, FilledPlain, Space, Totals


@compiled(signature("void", BasisType, RowsType, *_plain), fastmath=FAST)
def second_deterministic(
    basis: Numbers,
    rows: Numbers,
    sites: Numbers,
    matrices: Numbers,
    sign: float,
    uniform: bool,
    filled: Numbers,
    space: Numbers,
    totals: Numbers,
) -> None:
    """Run the second pass where R is not in D: fill the mean Kα, V and lengths = |T k_u|²; add to the totals.

    V is τ(Y - mean), or if `given` Y - τ mean, as Y holds ν then; √(pτ) is in T if it is `uniform`.
    """
    at, (tau, given), (T, alpha), (mean, V, lengths) = basis[0], sites, matrices, filled
    X, Y, noise, weight, Kfu = rows
    work, A = space
    n, m, tile, p = X.shape[0], T.shape[0], work.shape[1], Y.shape[1]
    for lo in range(0, n, tile):
        hi = min(lo + tile, n)
        c = hi - lo
        K = Kfu[lo:hi] if len(Kfu) else work[0, :c]
        S = work[1, :c]
        fill_tile(basis, X[lo:hi], len(Kfu) > 0, K, A, S)
        copied(K, S)
        for i in range(c):
            k = K[i]
            for o in range(p):
                s = dot(k, alpha[o], m)
                mean[lo + i, o] = s
                if given:
                    V[lo + i, o] = Y[lo + i, o] - tau[lo + i] * s
                else:
                    V[lo + i, o] = tau[lo + i] * (Y[lo + i, o] - s)
        times_lower(at, S, T, True)
        for i in range(c):
            row = S[i]
            lengths[lo + i] = dot(row, row, m)
            if not uniform:
                t = p * tau[lo + i]
                for j in range(m):
                    row[j] *= t
        times_lower(at, S, T, False)
        finish(basis, S, sign, V[lo:hi], alpha, K, A, (work[2, :c], work[3, :c]), totals)


_second = BasisType, RowsType, SitesType, Real, ResidualType, MatricesType, FilledType, Space, Out2, Totals


@compiled(signature("void", *_second), fastmath=FAST)
def second(
    basis: Numbers,
    rows: Numbers,
    sites: Numbers,
    power: float,
    residual: Numbers,
    matrices: Numbers,
    filled: Numbers,
    space: Numbers,
    G: np.ndarray,
    totals: Numbers,
) -> None:
    """Run the second pass where R is in D: make R of k(x, x) unless it is known; fill τ unless it is given
    (then Y holds ν), the mean φᵀw, V, the spread φᵀB⁻¹φ and r̄ = ½(a|v|²/c - pτ + apτ²s/c), c the row's
    copies; add 2Φ diag(r̄)Φᵀ to G, and to the totals.
    """
    at, (tau, given), (R, known), (Linv, Binv, w, alpha) = basis[0], sites, residual, matrices
    mean, V, spread, rbar = filled
    X, Y, noise, weight, Kfu = rows
    work, A = space
    n, m, tile, p = X.shape[0], G.shape[0], work.shape[1], Y.shape[1]
    for lo in range(0, n, tile):
        hi = min(lo + tile, n)
        c = hi - lo
        K = Kfu[lo:hi] if len(Kfu) else work[0, :c]
        Phi, S, signed = work[1, :c], work[2, :c], work[3, :c]
        fill_tile(basis, X[lo:hi], len(Kfu) > 0, K, A, Phi)
        copied(K, Phi)
        times_lower(at, Phi, Linv, True)
        product(at, Phi, Binv, S)
        top, bottom = 0, c
        for i in range(c):
            phi, row = Phi[i], S[i]
            if not known:
                R[lo + i] -= dot(phi, phi, m)
            if not given:
                tau[lo + i] = weight[lo + i] / (power * R[lo + i] + noise[lo + i])
            precision = tau[lo + i]
            q, square = dot(phi, row, m), 0.0
            spread[lo + i] = q
            for o in range(p):
                s = dot(phi, w[o], m)
                mean[lo + i, o] = s
                v = Y[lo + i, o] - precision * s if given else precision * (Y[lo + i, o] - s)
                V[lo + i, o] = v
                square += v * v
            r = power * (square + p * precision * precision * q) / weight[lo + i] - p * precision
            rbar[lo + i] = 0.5 * r
            t, root = -p * precision, sqrt(abs(r))
            if r >= 0.0:  # rows that are added come first, those that are subtracted last
                to = signed[top]
                top += 1
            else:
                bottom -= 1
                to = signed[bottom]
            for j in range(m):
                row[j] = t * row[j] - r * phi[j]
                to[j] = root * phi[j]
        add_gram(at, signed[:top], 1.0, G)
        add_gram(at, signed[top:], -1.0, G)
        times_lower(at, S, Linv, False)
        finish(basis, S, 1.0, V[lo:hi], alpha, K, A, (signed, Phi), totals)
