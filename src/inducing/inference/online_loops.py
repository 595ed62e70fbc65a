"""Compiled steps of sparse online learning: preallocated square roots in whitened coordinates, O(m²) a row.

With K = LLᵀ the Gram matrix of the m basis functions and u = Lv, the process is v ~ N(w, AAᵀ), as in
`Posterior`. What 004 writes with (α, C, Q) becomes, with φ = L⁻¹k_u(x) and γ = k(x, x) - |φ|²:

    a row          σ² = γ + |a|², a = Aᵀφ; s = A a                                    [004 eqs 2.46, 3.29]
    its update     A += κ s aᵀ, κ = rη/(1 + √(1 + rη|a|²)); w += qη s                 η = 1 on the grown basis
    growing        L gains the row (φ, √γ), A the row and column of the identity      [004 eqs 3.5, C.6]
    removing       rotate v so that only its last coordinate needs the function to go,
                   then condition on that coordinate being 0                         [004 eqs 3.18-3.22, C.8]

Only rotations, reflections and forward substitutions act on L and A, so both stay exact factors up to
rounding. A new row of L comes from the kernel, not from the older rows and their errors, and is rotated only
when an older function goes: at most m times. So L never drifts from K, however long the stream, and K need
not be factorised again, which would disturb A.

Rows next to each other, as in a sorted stream, have a K that is singular to rounding. So a little is added to
its diagonal (`nuggets.nugget`): a row counts as f(x) plus an independent variable of variance ν k(x, x),
ν = ε (8 + m). In this process, of covariance k + νδ, γ ≥ ν k(x, x) is accurate to a tenth, where otherwise it
would be a difference of numbers 1e8 times as large and might be negative. It costs less than noise of
variance ν k(x, x) would.
"""

from __future__ import annotations

from math import isfinite, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from ..model.likelihoods.loops import tilt
from ..numerics import nuggets
from ..numerics.blas import addresses
from ..numerics.compiled_blas import add_gram, factorise, times_lower
from ..numerics.compiling import FAST, by_address, compiled, helper
from ..numerics.nuggets import FINEST
from ..numerics.triangles import (
    add,
    copy,
    delete_column,
    dot,
    drop_last,
    gain,
    rank_one,
    rank_one_upper,
    remove_symmetric,
    solve,
    turn_rows,
)
from ..numerics.workers import ROW_WORK

_jit = helper(fastmath=FAST)

PROJECTED, GREW, REPLACED, FAILED = 0, 1, 2, -1
COARSE_TOLERANCE = 1e-7  # a tolerance from here on asks for a small basis, a smaller one for accuracy
FLOOR = 1e-16  # the least value of what is positive but for rounding, such as 1 + rσ²

nugget, beyond_rounding = _jit(nuggets.nugget), _jit(nuggets.beyond_rounding)


@by_address
class State(NamedTuple):
    """c processes with p outputs each on one basis of size[0] functions; arrays have room for M.

    α, CQ, Q and N are the terms of the scores, kept up to date only if functions may be removed; α and CQ
    only for the processes whose scores count.
    """

    at: np.ndarray  # addresses of BLAS functions
    size: np.ndarray  # (3,): m, then the first process whose scores count and the one after the last
    places: np.ndarray  # (M,): column of each basis function in the block's kernel rows
    U: np.ndarray  # (M, M): Lᵀ
    A: np.ndarray  # (c, M, M)
    w: np.ndarray  # (c, p, M)
    alpha: np.ndarray  # (c, p, M)
    CQ: np.ndarray  # (c, M): diagonal of C + Q
    Q: np.ndarray  # (M,): diagonal of Q = K⁻¹
    N: np.ndarray  # (c, M, M), for the exact score, or (c, 0, 0): -S = P'ΛP of [004 eqs 3.24, 4.30]
    k: np.ndarray  # (M,): k_u(x); this and all below is of the current row
    phi: np.ndarray  # (M,): φ
    e: np.ndarray  # (M,): ê = Qk [004 eq. 3.3], or after a removal the coefficients of the removed function
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


@by_address
class GrowthRule(NamedTuple):
    """The rule by which the basis may change."""

    capacity: int
    tolerance: float  # share of k(x, x): a row with a smaller γ projects
    grow: bool  # False: every row projects
    scored: bool  # whether a basis function may have to go
    margin: float  # a function goes for a new one if its removal costs less than margin · the new one's


@by_address
class StreamRows(NamedTuple):
    """A block of rows for c processes with p outputs each."""

    K: np.ndarray  # (b, m) or (b, m + b): kernel with the basis and, where that may grow, with these rows
    kss: np.ndarray  # (b,)
    prior: np.ndarray  # (b, c, p): prior means
    y: np.ndarray  # (b, c, p)


@by_address
class Seen(NamedTuple):
    """Predictions of n rows by c processes with p outputs, each made just before its row was read."""

    mean: np.ndarray  # (n, c, p), of the latent f
    variance: np.ndarray  # (n, c)
    log_density: np.ndarray  # (n, c): log⟨p(y|f)⟩, of all outputs together

    @staticmethod
    def nothing(n: int, c: int, p: int) -> Seen:
        """Arrays of NaN, to be written over."""
        return Seen(np.full((n, c, p), np.nan), np.full((n, c), np.nan), np.full((n, c), np.nan))


def allocate(room: int, processes: int, outputs: int, exact: bool) -> State:
    """Make a state with room for `room` basis functions and none in it."""
    M, c, p = room, processes, outputs
    one, each, square, every = (M,), (c, M), (c, M, M), (c, p, M)
    kept = square, every, every, each, one, square if exact else (c, 0, 0)
    row = one, one, one, each, each, each, (c, p), (c,), (c, p), (c,), one, one, one
    whole = np.array([0, 0, c], dtype=np.int64), np.zeros(M, dtype=np.int64)
    return State(addresses(), *whole, np.eye(M), *(np.zeros(shape) for shape in (*kept, *row)))


def row_work(state: State) -> float:
    """Estimate the multiplications that a row takes."""
    c, m = state.A.shape[:2]
    return c * (8.0 * m * m + ROW_WORK)


@_jit
def judges(state: State, c: int) -> bool:
    """Return whether the scores of process c count in removals."""
    return state.size[1] <= c < state.size[2]


@_jit
def look(state: State, kss: float, scored: bool) -> float:
    """Compute φ and each process's a, s, mean, variance at `state.k`, for scores also ê and t; return γ."""
    m, at, U, phi = state.size[0], state.at, state.U, state.phi
    solve(at, U, state.k, phi, m, False)
    nu = nugget(m) * kss
    gamma = max(kss + nu - dot(phi, phi, m), nu)
    if scored:
        solve(at, U, phi, state.e, m, True)
    for c in range(len(state.A)):
        s = state.s[c]
        state.variance[c] = gamma + gain(at, state.A[c], phi, state.a[c], s, m)
        if scored and judges(state, c):
            solve(at, U, s, state.t[c], m, True)
        for o in range(state.w.shape[1]):
            state.mean[c, o] = dot(phi, state.w[c, o], m)
    return gamma


@_jit
def absorb(state: State, gamma: float, kss: float, rule: GrowthRule) -> int:
    """Read the row of the last `look`, with its q and r in the state. [004 §3.6, steps 2-4]

    A row within `tolerance` of the span projects; at a coarse tolerance, so does a row that may be outside
    the span by rounding alone. When the basis is full, scores are taken before the update: if the new
    function would be the one to go, projecting gives the same process for less. Return PROJECTED, GREW, …
    """
    m = state.size[0]
    for c in range(len(state.A)):
        if not (isfinite(state.r[c]) and 1.0 + state.r[c] * state.variance[c] > -1e-10):
            return FAILED
        for o in range(state.w.shape[1]):
            if not isfinite(state.q[c, o]):
                return FAILED
    new = rule.grow and gamma > max(rule.tolerance, FINEST * nugget(m)) * kss
    i = m
    if new and m >= rule.capacity:
        i = least(state, gamma, rule.margin)
        new = i < m
    if new and rule.tolerance >= COARSE_TOLERANCE:
        new = certain(state, gamma, kss, rule.scored)
    if not new:
        project(state, gamma, rule.scored)
        return PROJECTED
    extend(state, gamma, rule.scored)
    if i == m:
        return GREW
    remove(state, i)
    return REPLACED


@_jit
def certain(state: State, gamma: float, kss: float, scored: bool) -> bool:
    """Return whether the row would be outside the span without the nugget, too."""
    m = state.size[0]
    if not scored:
        solve(state.at, state.U, state.phi, state.e, m, True)
    squares, e = 0.0, state.e
    for i in range(m):  # Σ_j e_j² k_jj, with K = UᵀU
        row = state.U[i]
        for j in range(i, m):
            squares += (e[j] * row[j]) * (e[j] * row[j])
    return beyond_rounding(gamma, nugget(m) * kss, squares / kss)


@_jit
def kept(state: State, c: int) -> float:
    """Return 1 + rσ² > 0, the share of the variance at the row's own input that is left after reading it."""
    return max(1.0 + state.r[c] * state.variance[c], FLOOR)


@_jit
def project(state: State, gamma: float, scored: bool) -> None:
    """Read the row and leave the basis as it is. [004 eq. 3.29]"""
    m = state.size[0]
    for c in range(len(state.A)):
        left, eta = kept(state, c), 1.0 / max(1.0 + state.r[c] * gamma, FLOOR)
        scale = state.r[c] * eta
        rank_one(state.at, state.A[c], state.s[c], state.a[c], scale / (1.0 + sqrt(left * eta)), m)
        t, judged = state.t[c], scored and judges(state, c)
        for o in range(state.w.shape[1]):
            add(eta * state.q[c, o], state.s[c], state.w[c, o], m)
            if judged:
                add(eta * state.q[c, o], t, state.alpha[c, o], m)
        if judged:
            diagonal = state.CQ[c]
            for j in range(m):
                diagonal[j] += scale * t[j] * t[j]
        if judged and state.N.shape[1] > 0:
            rank_one_upper(state.at, state.N[c], -state.r[c] / left, state.e, m)


@_jit
def extend(state: State, gamma: float, scored: bool) -> None:
    """Read the row and make its own k(x, ·) the last basis function. [004 eqs 2.46, 3.5]"""
    m, U, phi, Q, e = state.size[0], state.U, state.phi, state.Q, state.e
    root = sqrt(gamma)
    for j in range(m):
        U[j, m] = phi[j]
    U[m, m] = root
    if scored:
        for j in range(m):
            Q[j] += e[j] * e[j] / gamma
        Q[m] = 1.0 / gamma
    for c in range(len(state.A)):
        A, a, s, r, left = state.A[c], state.a[c], state.s[c], state.r[c], kept(state, c)
        A[m, m], a[m], s[m] = 1.0, root, root
        rank_one(state.at, A, s, a, r / (1.0 + sqrt(left)), m + 1)
        for o in range(state.w.shape[1]):
            state.w[c, o, m] = 0.0
            add(state.q[c, o], s, state.w[c, o], m + 1)
        if not scored or not judges(state, c):
            continue
        t, diagonal, N = state.t[c], state.CQ[c], state.N[c]
        for j in range(m):
            Ck = t[j] - e[j]
            diagonal[j] += r * Ck * Ck + e[j] * e[j] / gamma
        diagonal[m] = r + 1.0 / gamma
        for o in range(state.w.shape[1]):
            alpha, q = state.alpha[c, o], state.q[c, o]
            for j in range(m):
                alpha[j] += q * (t[j] - e[j])
            alpha[m] = q
        if len(N) > 0:
            for j in range(m):
                N[j, m] = 0.0
            N[m, m] = -r / left  # [004 eq. 3.25]
    state.size[0] = m + 1


@_jit
def least(state: State, gamma: float, margin: float) -> int:
    """Return the basis function, by number, that costs least to remove after a full update; m is the new one.

    It costs α²/(q + c) [004 eq. 3.26], or with N the whole KL [004 eq. 3.24]; the largest cost among the
    processes counts [004 eq. 5.10]. `model.removal` has the same in NumPy.
    """
    m, outputs, exact = state.size[0], state.w.shape[1], state.N.shape[1] > 0
    best, index, first, last = 0.0, m, state.size[1], state.size[2]
    e, t, q, CQs, alpha = state.e, state.t, state.q, state.CQ, state.alpha
    for c in range(first, last):
        r = state.r[c]
        cost = 0.0
        for o in range(outputs):
            cost += q[c, o] * q[c, o]
        cost /= max(1.0 / gamma + r, FLOOR)
        if exact:
            cost += outputs * (log(max(1.0 + r * gamma, FLOOR)) - r * gamma / kept(state, c))
        best = max(best, cost) if c > first else cost
    best *= margin
    for j in range(m):
        e2 = e[j] * e[j] / gamma
        Q = state.Q[j] + e2
        worst = 0.0
        for c in range(first, last):
            Ck = t[c, j] - e[j]
            CQ = max(CQs[c, j] + state.r[c] * Ck * Ck + e2, FLOOR * Q)
            cost = 0.0
            for o in range(outputs):
                a = alpha[c, o, j] + q[c, o] * Ck
                cost += a * a
            cost /= CQ
            if exact:
                cost += outputs * (log(CQ / Q) + state.N[c, j, j] / Q)
            worst = max(worst, cost) if c > first else cost
        if worst < best:
            best, index = worst, j
    return index


@_jit
def remove(state: State, i: int) -> None:
    """Make the process the closest one without basis function i. [004 eqs 3.19, 3.21, 3.22]"""
    n = state.size[0]
    m = n - 1
    at, U, Q, e, x, cosine, sine = state.at, state.U, state.Q, state.e, state.x, state.cosine, state.sine
    exact = state.N.shape[1] > 0
    copy(state.places[i + 1 :], state.places[i:], m - i)
    length = delete_column(at, U, n, i, cosine, sine, x)
    if exact:
        solve(at, U, x, e, m, True)
        copy(Q[i + 1 :], Q[i:], m - i)
        for j in range(m):
            share = e[j] / length
            Q[j] = max(Q[j] - share * share, FLOOR)
    for c in range(len(state.A)):
        A, w, z, column = state.A[c], state.w[c], state.s[c], state.t[c]
        turn_rows(at, A, i, n, cosine, sine, n)
        for j in range(i, m):
            for o in range(len(w)):
                one, two = w[o, j], w[o, j + 1]
                w[o, j] = cosine[j] * one + sine[j] * two
                w[o, j + 1] = cosine[j] * two - sine[j] * one
        square = drop_last(at, A, w, z, column, n)
        if not judges(state, c):
            continue
        for j in range(m):
            z[j] = (z[j] - x[j] * square / length) / length
        solve(at, U, z, column, m, True)  # a column of C + Q: L⁻ᵀ(z - x|a|²/ℓ)/ℓ
        CQ = square / (length * length)
        for o in range(len(w)):
            a = state.alpha[c, o]
            coefficient = a[i] / CQ
            copy(a[i + 1 :], a[i:], m - i)
            add(-coefficient, column, a, m)
        diagonal = state.CQ[c]
        copy(diagonal[i + 1 :], diagonal[i:], m - i)
        for j in range(m):
            diagonal[j] = max(diagonal[j] - column[j] * column[j] / CQ, FLOOR)
        if exact:
            remove_symmetric(at, state.N[c], e, n, i, z)
    state.size[0] = m


def _usual() -> tuple[Any, ...]:
    rows = StreamRows(np.zeros((1, 1)), np.zeros(1), *np.zeros((2, 1, 1, 1)))
    rule, events = GrowthRule(1, 0.0, True, True, 1.0), np.zeros(3, dtype=np.int64)
    given = allocate(1, 1, 1, exact=False), rows, 0, np.zeros(1), np.zeros(3)
    return *given, Seen.nothing(1, 1, 1), events, rule, 0, 1


@compiled(usual=_usual, fastmath=FAST)
def run(
    state: State,
    rows: StreamRows,
    likelihood: int,  # its address
    theta: np.ndarray,
    out: np.ndarray,
    seen: Seen,
    events: np.ndarray,
    rule: GrowthRule,
    first: int,
    stop: int,
) -> int:
    """Read rows `first` to `stop` of a block in order; return `stop`, or the number of a row that failed.

    events (3,) counts the rows that projected, grew the basis, or replaced a function of it. out (3,) is work
    space: an array made here would let Numba count references, and keep those to arrays of tuples by address.
    """
    fresh = rows.K.shape[1] - len(rows.K)  # the column of row 0
    k, places = state.k, state.places
    for i in range(first, stop):
        row = rows.K[i]
        for j in range(state.size[0]):
            k[j] = row[places[j]]
        gamma = look(state, rows.kss[i], rule.scored)
        for c in range(len(state.A)):
            variance, total = state.variance[c], 0.0
            for o in range(state.w.shape[1]):
                mean = rows.prior[i, c, o] + state.mean[c, o]
                tilt(likelihood, theta, rows.y[i, c, o], mean, variance, out)
                state.q[c, o], state.r[c] = out[1], out[2]
                seen.mean[i, c, o] = mean
                total += out[0]
            seen.variance[i, c], seen.log_density[i, c] = variance, total
        done = absorb(state, gamma, rows.kss[i], rule)
        if done == FAILED:
            return i
        events[done] += 1
        if done != PROJECTED:
            places[state.size[0] - 1] = fresh + i
    return stop


@compiled(fastmath=FAST)
def remove_one(state: State, i: int) -> None:
    """Remove basis function i."""
    remove(state, i)


@compiled(fastmath=FAST)
def discount(state: State, c: int, rho: float, G: np.ndarray, A: np.ndarray) -> bool:
    """Discount the sites of process c to the share ρ: A ← A R⁻ᵀ with RRᵀ = G = ρI + (1 - ρ)AᵀA, then
    w ← w - (1 - ρ)AAᵀw. G and A (m, m) are work space. If G has no factor, change nothing and return False.
    """
    m = state.size[0]
    for i in range(m):
        copy(state.A[c, i], A[i], m)
        for j in range(m):
            G[i, j] = 0.0
    add_gram(state.at, A, 1.0 - rho, G)
    for i in range(m):
        G[i, i] += rho
    if not isfinite(factorise(state.at, G)):
        return False
    times_lower(state.at, A, G, True)
    for i in range(m):
        copy(A[i], state.A[c, i], m)
    for o in range(state.w.shape[1]):
        gain(state.at, state.A[c], state.w[c, o], state.a[c], state.s[c], m)
        add(rho - 1.0, state.s[c], state.w[c, o], m)
    return True
