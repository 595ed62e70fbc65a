"""The compiled steps of sparse online learning: square roots in whitened coordinates, preallocated, O(m²) a row.

With K = LLᵀ the Gram matrix of the m basis functions and u = Lv, the process is v ~ N(w, AAᵀ), as in `Posterior`. What 004
writes with (α, C, Q) becomes, with φ = L⁻¹k_u(x) and γ = k(x, x) - |φ|²:

    a row          σ² = γ + |a|², a = Aᵀφ; s = A a                                     [004 eqs 2.46, 3.29]
    its update     A += κ s aᵀ, κ = rη/(1 + √(1 + rη|a|²)); w += qη s                   η = 1 on the grown basis
    growing        L gains the row (φ, √γ), A the row and column of the identity        [004 eqs 3.5, C.6]
    removing       rotate v so that only its last coordinate needs the function to go,
                   then condition on that coordinate being 0                           [004 eqs 3.18-3.22, C.8]

Only rotations, reflections and forward substitutions act on L and A, so both stay factors of what they should be. A new row
of L comes from the kernel, not from the errors of the old rows, and turns only when an older function goes: at most m times in
its life. So L never drifts from K, however long the stream; to factorise K again would only upset A.
"""

from __future__ import annotations

from math import isfinite, log, sqrt
from typing import NamedTuple

import numba
import numpy as np

from ._likelihoods import tilt

_jit = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"})

PROJECTED, GREW, REPLACED, FAILED = 0, 1, 2, -1
ROUNDING = 4e-15  # of a kernel's value, with room to spare
TINY = 1e-16  # what rounding can leave of 1 + rσ², the share of the variance that an observation keeps


class State(NamedTuple):
    """c processes with p outputs each on one basis of size[0] functions; arrays have room for M. Rows of U are rows of Lᵀ."""

    size: np.ndarray  # (1,)
    places: np.ndarray  # (M,): column of each basis function in the block's kernel rows
    U: np.ndarray  # (M, M), upper
    A: np.ndarray  # (c, M, M)
    w: np.ndarray  # (c, p, M)
    alpha: np.ndarray  # (c, p, M): α, and below what else the scores need, kept only where a basis function may have to go
    CQ: np.ndarray  # (c, M): diagonal of C + Q
    Q: np.ndarray  # (M,): diagonal of Q = K⁻¹
    N: np.ndarray  # (c, M, M): -S = P'ΛP of [004 eqs 3.24, 4.30], kept for the exact score alone, or (c, 0, 0)
    k: np.ndarray  # (M,), from here on the row at hand: k_u(x)
    phi: np.ndarray  # (M,): φ
    e: np.ndarray  # (M,): ê = Qk, or after a removal the coefficients of what went on what stays [004 eq. 3.3]
    a: np.ndarray  # (c, M)
    s: np.ndarray  # (c, M)
    t: np.ndarray  # (c, M): (C + Q)k = L⁻ᵀs
    mean: np.ndarray  # (c, p)
    variance: np.ndarray  # (c,)
    q: np.ndarray  # (c, p)
    r: np.ndarray  # (c,)
    x: np.ndarray  # (M,), work
    cosine: np.ndarray  # (M,): the rotations of the last removal
    sine: np.ndarray  # (M,)


def allocate(room: int, processes: int, outputs: int, exact: bool) -> State:
    """A state with room for so many basis functions and none in it."""
    M, c, p = (room + 3) // 4 * 4, processes, outputs
    z = np.zeros
    return State(
        z(1, dtype=np.int64), z(M, dtype=np.int64), np.eye(M), z((c, M, M)), z((c, p, M)), z((c, p, M)), z((c, M)), z(M),
        z((c, M, M) if exact else (c, 0, 0)), z(M), z(M), z(M), z((c, M)), z((c, M)), z((c, M)), z((c, p)), z(c), z((c, p)),
        z(c), z(M), z(M), z(M),
    )  # fmt: skip


# Rows of a matrix are taken four at a time. Beyond the m functions in use U goes on as the identity and A as zero, up to the
# next multiple of four; the vectors that go in are filled up with zeros here, so nothing needs a remainder.


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
        U0, U1, U2, U3, rest = U[j, j + 4 :], U[j + 1, j + 4 :], U[j + 2, j + 4 :], U[j + 3, j + 4 :], b[j + 4 :]
        for i in range(wide - j - 4):
            rest[i] -= (x0 * U0[i] + x1 * U1[i]) + (x2 * U2[i] + x3 * U3[i])


@_jit
def solve_backward(U: np.ndarray, b: np.ndarray, x: np.ndarray, m: int) -> None:
    """x = U⁻¹b = L⁻ᵀb."""
    wide = filled(b, m)
    for j in range(wide - 4, -1, -4):
        U0, U1, U2, U3, rest = U[j, j + 4 :], U[j + 1, j + 4 :], U[j + 2, j + 4 :], U[j + 3, j + 4 :], x[j + 4 :]
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
def look(state: State, kss: float, scored: bool) -> float:
    """φ, and of every process a, s, mean and variance at the row whose k_u(x) is in `state.k`; returns γ.

    Where scores are kept, also ê and t.
    """
    m = state.size[0]
    for j in range(m):
        state.x[j] = state.k[j]
    solve_forward(state.U, state.x, state.phi, m)
    gamma = max(kss - dot(state.phi, state.phi, m), 0.0)
    if scored:
        solve_backward(state.U, state.phi, state.e, m)
    for c in range(len(state.A)):
        state.variance[c] = gamma + gain(state.A[c], state.phi, state.a[c], state.s[c], m)
        if scored:
            solve_backward(state.U, state.s[c], state.t[c], m)
        for o in range(state.w.shape[1]):
            state.mean[c, o] = dot(state.phi, state.w[c, o], m)
    return gamma


@_jit
def absorb(state: State, gamma: float, kss: float, capacity: int, tolerance: float, grow: bool, scored: bool) -> int:
    """The row just looked at, with its q and r in the state, becomes part of the process. [004 §3.6, steps 2-4]

    A row within `tolerance` of the span projects. When the basis is full, scores are taken before the update: if the new
    function would be the one to go, projecting gives the same process for less. Returns what was done.
    """
    m = state.size[0]
    for c in range(len(state.A)):
        if not (isfinite(state.r[c]) and 1.0 + state.r[c] * state.variance[c] > -1e-10):
            return FAILED
        for o in range(state.w.shape[1]):
            if not isfinite(state.q[c, o]):
                return FAILED
    if not grow or gamma <= tolerance * kss or not certain(state, gamma, kss, scored):
        project(state, gamma, scored)
        return PROJECTED
    if m < capacity:
        extend(state, gamma, scored)
        return GREW
    i = least(state, gamma)
    if i == m:
        project(state, gamma, scored)
        return PROJECTED
    extend(state, gamma, scored)
    remove(state, i)
    return REPLACED


@_jit
def certain(state: State, gamma: float, kss: float, scored: bool) -> bool:
    """Whether γ = (ê, -1)ᵀK(ê, -1) is more than rounding the kernel's values makes of it, ε k (1 + |ê|²)."""
    m = state.size[0]
    if not scored:
        solve_backward(state.U, state.phi, state.e, m)
    return gamma > ROUNDING * kss * (1.0 + dot(state.e, state.e, m))


@_jit
def kept(state: State, c: int) -> float:
    """1 + rσ² > 0: what the row leaves of the variance at its own input."""
    return max(1.0 + state.r[c] * state.variance[c], TINY)


@_jit
def project(state: State, gamma: float, scored: bool) -> None:
    """The update that leaves the basis as it is. [004 eq. 3.29]"""
    m = state.size[0]
    for c in range(len(state.A)):
        left, eta = kept(state, c), 1.0 / max(1.0 + state.r[c] * gamma, TINY)
        scale = state.r[c] * eta
        rank_one(state.A[c], state.s[c], state.a[c], scale / (1.0 + sqrt(left * eta)), m)
        t = state.t[c]
        for o in range(state.w.shape[1]):
            add(eta * state.q[c, o], state.s[c], state.w[c, o], m)
            if scored:
                add(eta * state.q[c, o], t, state.alpha[c, o], m)
        if scored:
            for j in range(m):
                state.CQ[c, j] += scale * t[j] * t[j]
        if scored and state.N.shape[1] > 0:
            rank_one_upper(state.N[c], -state.r[c] / left, state.e, m)


@_jit
def extend(state: State, gamma: float, scored: bool) -> None:
    """The update that makes the row's own k(x, ·) the last basis function. [004 eqs 2.46, 3.5]"""
    m = state.size[0]
    root = sqrt(gamma)
    for j in range(m):
        state.U[j, m] = state.phi[j]
    state.U[m, m] = root
    if scored:
        for j in range(m):
            state.Q[j] += state.e[j] * state.e[j] / gamma
        state.Q[m] = 1.0 / gamma
    for c in range(len(state.A)):
        A, a, s, r, left = state.A[c], state.a[c], state.s[c], state.r[c], kept(state, c)
        A[m, m], a[m], s[m] = 1.0, root, root
        rank_one(A, s, a, r / (1.0 + sqrt(left)), m + 1)
        for o in range(state.w.shape[1]):
            state.w[c, o, m] = 0.0
            add(state.q[c, o], s, state.w[c, o], m + 1)
        if not scored:
            continue
        t = state.t[c]
        for j in range(m):
            Ck = t[j] - state.e[j]
            state.CQ[c, j] += r * Ck * Ck + state.e[j] * state.e[j] / gamma
            for o in range(state.w.shape[1]):
                state.alpha[c, o, j] += state.q[c, o] * Ck
        state.CQ[c, m] = r + 1.0 / gamma
        for o in range(state.w.shape[1]):
            state.alpha[c, o, m] = state.q[c, o]
        if state.N.shape[1] > 0:
            for j in range(m):
                state.N[c, j, m] = 0.0
            state.N[c, m, m] = -r / left  # [004 eq. 3.25]
    state.size[0] = m + 1


@_jit
def least(state: State, gamma: float) -> int:
    """Which basis function would be the cheapest to remove after a full update, the new one (number m) among them.

    α²/(q + c) [004 eq. 3.26], or with N the whole KL [004 eq. 3.24]; of several processes the dearest counts [004 eq. 5.10].
    """
    m, outputs, exact = state.size[0], state.w.shape[1], state.N.shape[1] > 0
    best, index = 0.0, m
    for c in range(len(state.A)):
        r = state.r[c]
        cost = 0.0
        for o in range(outputs):
            cost += state.q[c, o] ** 2
        cost /= max(1.0 / gamma + r, TINY)
        if exact:
            cost += outputs * (log(max(1.0 + r * gamma, TINY)) - r * gamma / kept(state, c))
        best = max(best, cost) if c > 0 else cost
    for j in range(m):
        e2 = state.e[j] * state.e[j] / gamma
        Q = state.Q[j] + e2
        worst = 0.0
        for c in range(len(state.A)):
            Ck = state.t[c, j] - state.e[j]
            CQ = max(state.CQ[c, j] + state.r[c] * Ck * Ck + e2, TINY * Q)
            cost = 0.0
            for o in range(outputs):
                cost += (state.alpha[c, o, j] + state.q[c, o] * Ck) ** 2
            cost /= CQ
            if exact:
                cost += outputs * (log(CQ / Q) + state.N[c, j, j] / Q)
            worst = max(worst, cost) if c > 0 else cost
        if worst < best:
            best, index = worst, j
    return index


@_jit
def delete_column(U: np.ndarray, n: int, i: int, cosine: np.ndarray, sine: np.ndarray, x: np.ndarray) -> float:
    """Take column i out of U (n, n) and rotate its rows back to a triangle of n - 1.

    Rotation j turns rows (j, j + 1). The same rotations take the column that went to (x, ℓ); returns ℓ.
    """
    for j in range(i):
        x[j] = U[j, i]
        row = U[j]
        for h in range(i, n - 1):
            row[h] = row[h + 1]
    length = U[i, i]
    for j in range(i, n - 1):  # row j holds what is left of row i, from column j + 1 on; row j + 1 is its neighbour
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
    """Rotate rows (j, j + 1) of A for j = i, …, n - 2 one after the other, three rotations to a pass while they last."""
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
    """Condition v ~ N(w, AAᵀ) on its last coordinate being 0, and leave that coordinate out; returns its variance |a|².

    With a the last row of A, a reflection H takes a to |a| e_n; A H without its last row and column is the new factor. z
    becomes the covariance of the others with the last coordinate, A a.
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
def remove(state: State, i: int) -> None:
    """The closest process without basis function i. [004 eqs 3.19, 3.21, 3.22]"""
    n = state.size[0]
    m = n - 1
    exact = state.N.shape[1] > 0
    for j in range(i, m):
        state.places[j] = state.places[j + 1]
    length = delete_column(state.U, n, i, state.cosine, state.sine, state.x)
    if exact:
        solve_backward(state.U, state.x, state.e, m)
        for j in range(i, m):
            state.Q[j] = state.Q[j + 1]
        for j in range(m):
            state.Q[j] = max(state.Q[j] - (state.e[j] / length) ** 2, TINY)
    for c in range(len(state.A)):
        A, w, z, column = state.A[c], state.w[c], state.s[c], state.t[c]
        turn_rows(A, i, n, state.cosine, state.sine, rounded(n))
        for j in range(i, m):
            for o in range(len(w)):
                one, two = w[o, j], w[o, j + 1]
                w[o, j] = state.cosine[j] * one + state.sine[j] * two
                w[o, j + 1] = state.cosine[j] * two - state.sine[j] * one
        square = drop_last(A, w, z, column, n)
        for j in range(m):
            z[j] = (z[j] - state.x[j] * square / length) / length
        solve_backward(state.U, z, column, m)  # a column of C + Q: L⁻ᵀ(z - x|a|²/ℓ)/ℓ
        CQ = square / (length * length)
        for o in range(len(w)):
            a = state.alpha[c, o]
            coefficient = a[i] / CQ
            for j in range(i, m):
                a[j] = a[j + 1]
            add(-coefficient, column, a, m)
        diagonal = state.CQ[c]
        for j in range(i, m):
            diagonal[j] = diagonal[j + 1]
        for j in range(m):
            diagonal[j] = max(diagonal[j] - column[j] * column[j] / CQ, TINY)
        if exact:
            remove_symmetric(state.N[c], state.e, n, i, z)
    state.size[0] = m


@_jit
def remove_symmetric(N: np.ndarray, e: np.ndarray, n: int, i: int, row: np.ndarray) -> None:
    """N without its row and column i, which e takes over: N + e nᵀ + n eᵀ + nᵢ e eᵀ. Upper triangles. [004 eq. 4.30]"""
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


@_jit
def run(
    state: State,
    K: np.ndarray,  # (b, columns): kernel rows
    kss: np.ndarray,  # (b,)
    prior: np.ndarray,  # (b, c, p): prior means
    y: np.ndarray,  # (b, c, p)
    kind: int,
    theta: np.ndarray,
    total: np.ndarray,  # (c,): gains Σ log⟨p(y|f)⟩
    events: np.ndarray,  # (3,): gains how many rows projected, grew the basis, replaced a function of it
    capacity: int,
    tolerance: float,
    grow: bool,
    scored: bool,
    fresh: int,
) -> int:
    """Rows of a block in order; returns how many went in, short of b where one failed. Row i is kernel column fresh + i."""
    for i in range(len(K)):
        for j in range(state.size[0]):
            state.k[j] = K[i, state.places[j]]
        gamma = look(state, kss[i], scored)
        for c in range(len(state.A)):
            for o in range(state.w.shape[1]):
                value, state.q[c, o], state.r[c] = tilt(
                    kind, theta, y[i, c, o], prior[i, c, o] + state.mean[c, o], state.variance[c]
                )
                total[c] += value
        done = absorb(state, gamma, kss[i], capacity, tolerance, grow, scored)
        if done == FAILED:
            return i
        events[done] += 1
        if done != PROJECTED:
            state.places[state.size[0] - 1] = fresh + i
    return len(K)
