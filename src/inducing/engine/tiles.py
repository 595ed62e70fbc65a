"""The passes over rows as compiled loops, for stationary kernels: a few hundred rows stay in cache.

What is computed is in evidence.py, for any kernel in passes.py; here squared distances s of rows and basis
functions are a product of features and coefficients (kernels/distances.py), Kfu is a profile of s, and
kernels differ in its number alone. One call does a range of rows, and holds neither the interpreter nor its
lock.
"""

from math import sqrt

import numpy as np

from ..model.kernels.distances import NEAR_CENTRE
from ..model.kernels.triangle_loops import fill, times_slope, to_values
from ..numerics.compiled_blas import add_cross, add_gram, product, times_lower
from ..numerics.compiling import FAST, Numbers, compiled, helper
from ..numerics.kinds import Addresses, Flag, Given1, Given2, Int, Out1, Out2, Out3, Real, signature, tuple_of
from ..numerics.triangles import add, dot

_jit = helper(fastmath=FAST)
Frame = tuple_of(Out1, Out1, Flag)  # centre, scale, whether each function has widths of its own
# v, P, constants, coefficients, largest |v|²; the profile and its factor: 1 where it is in the constants
FormType = tuple_of(Out2, Out2, Out1, Out2, Real, Int, Real)
BasisType = tuple_of(Addresses, Frame, FormType, Real)  # BLAS, frame, form and k(x, x)
RowsType = tuple_of(Given2, Given2, Given1, Given1, Out2)  # X, Y, noise, weight, Kfu where it is kept
Space = tuple_of(Out3, Out2)  # four buffers of a tile of rows, and their features
Totals = tuple_of(Out2, Out1)  # Wᵀ[features] (m, q); Σ_ij W_ij u_i² and Σ K̄∘K (d + 1,)
SitesType, GivenSites = tuple_of(Out1, Flag), tuple_of(Given1, Flag)  # τ, and whether it is given
ResidualType = tuple_of(Out1, Flag)  # R, and whether it is known
PairType = tuple_of(Given2, Given2)  # T, αᵀ
MatricesType = tuple_of(Given2, Given2, Given2, Given2)  # Luu⁻¹, B⁻¹ or LB⁻¹, wᵀ, αᵀ
# a squared distance below the square of this times |u|² + |v|² is taken by differences
NEAR_ZERO = 1e-3
FilledPlain, FilledType = tuple_of(Out2, Out2, Out1), tuple_of(Out2, Out2, Out1, Out1)


@_jit
def features(X: np.ndarray, centre: np.ndarray, scale: np.ndarray, wide: bool, A: np.ndarray) -> None:
    """[u, u², 1], or [u, -½|u|², 1] if not wide, of rows u = (x - centre) scale."""
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
def distance(u: np.ndarray, v: np.ndarray, P: np.ndarray) -> float:
    """Σ_k P_k (u_k - v_k)²."""
    s = 0.0
    for k in range(len(v)):
        t = u[k] - v[k]
        s += P[k] * t * t
    return s


@_jit
def distances(at: np.ndarray, A: np.ndarray, form: Numbers, out: np.ndarray) -> None:
    """s_ij = Σ_k P_jk (u_ik - v_jk)² + constants_j: a product of features; by differences where that would
    cancel, far out and, for a profile with a root of s, near 0.
    """
    v, P, constants, coefficients, reach, profile, _ = form
    largest = 0.0
    for i in range(len(A)):
        s = 0.0
        for k in range(v.shape[1]):
            s += A[i, k] * A[i, k]
        largest = max(largest, s)
    near = NEAR_ZERO * NEAR_ZERO * (largest + reach) * (largest + reach)
    if largest + reach > NEAR_CENTRE:
        for i in range(len(out)):
            fill(out[i], -1.0)  # all of them
    else:
        product(at, A, coefficients, out)
        if profile == 0:
            return
    for i in range(len(out)):
        row, count = out[i], 0
        for j in range(len(row)):
            count += row[j] < near
        if count > 0:
            for j in range(len(row)):
                if row[j] < near:
                    row[j] = distance(A[i], v[j], P[j]) + constants[j]


@_jit
def cross(at: np.ndarray, A: np.ndarray, form: Numbers, out: np.ndarray) -> None:
    """Kfu of some rows, from their features."""
    distances(at, A, form, out)
    for i in range(len(out)):
        to_values(form[5], form[6], out[i])


@_jit
def fill_tile(
    at: np.ndarray, X: np.ndarray, frame: Numbers, form: Numbers, kept: bool, K: np.ndarray, A: np.ndarray
) -> None:
    """Fill A with the features of some rows, and K with their Kfu unless it was kept."""
    centre, scale, wide = frame
    features(X, centre, scale, wide, A)
    if not kept:
        cross(at, A, form, K)


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
    """Add ΦΠΦᵀ to G and ΦΠY to b (p, m); fill R where share > 0, and Kfu where it has room. With share = 0
    root is √Π, and is in the whitener, too, where it is uniform.
    """
    at, frame, form, prior = basis
    X, Y, noise, weight, Kfu = rows
    work, A = space
    n, m, tile = X.shape[0], G.shape[0], work.shape[1]
    for lo in range(0, n, tile):
        hi = min(lo + tile, n)
        c = hi - lo
        K = Kfu[lo:hi] if len(Kfu) else work[0, :c]
        Phi = work[1, :c]
        fill_tile(at, X[lo:hi], frame, form, False, K, A[:c])
        copied(K, Phi)
        times_lower(at, Phi, whitener, True)
        for i in range(c):
            row = Phi[i]
            if share > 0.0:
                R[lo + i] = prior - dot(row, row, m)
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


@compiled(signature("void", BasisType, Given2, Given2, Out2, Out2, Out1), fastmath=FAST)
def whiten(
    basis: Numbers, X: np.ndarray, Linv: np.ndarray, A: np.ndarray, Phi: np.ndarray, R: np.ndarray
) -> None:
    """Fill Φ and R = k(x, x) - φᵀφ of rows; A is room for the features of a tile of them."""
    at, frame, form, prior = basis
    tile = A.shape[0]
    for lo in range(0, len(X), tile):
        hi = min(lo + tile, len(X))
        part = Phi[lo:hi]
        fill_tile(at, X[lo:hi], frame, form, False, part, A[: hi - lo])
        times_lower(at, part, Linv, True)
        for i in range(hi - lo):
            R[lo + i] = prior - dot(part[i], part[i], part.shape[1])


@_jit
def finish(
    at: np.ndarray,
    S: np.ndarray,
    sign: float,
    V: np.ndarray,
    alpha: np.ndarray,
    K: np.ndarray,
    A: np.ndarray,
    form: Numbers,
    s: np.ndarray,
    totals: Numbers,
) -> None:
    """K̄ = sign S + v αᵀ; add to the sums W = -2 K̄∘dK/ds, which is made in S, with s as room for distances."""
    c, m = S.shape
    profile, (moments, sums) = form[5], totals
    d = len(sums) - 1
    if profile > 0:
        distances(at, A, form, s)
    for i in range(c):
        row, k = S[i], K[i]
        for j in range(m):
            row[j] *= sign
        for o in range(len(alpha)):
            add(V[i, o], alpha[o], row, m)
        total = 0.0
        for j in range(m):
            row[j] *= k[j]
            total += row[j]
        sums[d] += total
        if profile > 0:
            times_slope(profile, s[i], row)
            total = 0.0
            for j in range(m):
                total += row[j]
        for k_ in range(d):
            sums[k_] += total * A[i, k_] * A[i, k_]
    add_cross(at, S, A, moments)


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
    """The second pass where R is not in D: fill the mean Kα, V and lengths = |T k_u|², and add to the totals.

    V is τ(Y - mean), or Y - τ mean where Y holds ν, given; √(pτ) is in T where it is uniform.
    """
    at, frame, form, prior = basis
    (tau, given), (T, alpha), (mean, V, lengths) = sites, matrices, filled
    X, Y, noise, weight, Kfu = rows
    work, A = space
    n, m, tile, p = X.shape[0], T.shape[0], work.shape[1], Y.shape[1]
    for lo in range(0, n, tile):
        hi = min(lo + tile, n)
        c = hi - lo
        K = Kfu[lo:hi] if len(Kfu) else work[0, :c]
        fill_tile(at, X[lo:hi], frame, form, len(Kfu) > 0, K, A[:c])
        S = work[1, :c]
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
        finish(at, S, sign, V[lo:hi], alpha, K, A[:c], form, work[2, :c], totals)


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
    """The second pass where R is in D: fill R unless it is known, τ unless it is given (then Y holds ν), the
    mean φᵀw, V, the spread φᵀB⁻¹φ and r̄ = ½(a|v|²/c - pτ + apτ²s/c), c the row's copies; add 2Φ diag(r̄)Φᵀ
    to G, and to the totals.
    """
    at, frame, form, prior = basis
    (tau, given), (R, known), (Linv, Binv, w, alpha) = sites, residual, matrices
    mean, V, spread, rbar = filled
    X, Y, noise, weight, Kfu = rows
    work, A = space
    n, m, tile, p = X.shape[0], G.shape[0], work.shape[1], Y.shape[1]
    for lo in range(0, n, tile):
        hi = min(lo + tile, n)
        c = hi - lo
        K = Kfu[lo:hi] if len(Kfu) else work[0, :c]
        fill_tile(at, X[lo:hi], frame, form, len(Kfu) > 0, K, A[:c])
        Phi, S, signed = work[1, :c], work[2, :c], work[3, :c]
        copied(K, Phi)
        times_lower(at, Phi, Linv, True)
        product(at, Phi, Binv, S)
        top, bottom = 0, c
        for i in range(c):
            phi, row = Phi[i], S[i]
            if not known:
                R[lo + i] = prior - dot(phi, phi, m)
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
        finish(at, S, 1.0, V[lo:hi], alpha, K, A[:c], form, signed, totals)
