"""The compiled steps of sparse expectation propagation: sweeps in which the basis changes, and sweeps in
which it does not.

In whitened coordinates u = Lv, v ~ N(w, S), the site of a row is exp(b g - ½ λ g²) in one number g = πᵀv.
Taking it out of the process, and putting it into what is left, are rank-one updates. [004 eqs 4.18, 4.36]

    without    S + λ/(1 - λs) Sπ πᵀS,   w + (λ πᵀw - b)/(1 - λs) Sπ,   s = πᵀSπ
    with       S - λ/(1 + λs) Sπ πᵀS,   w - (λ πᵀw - b)/(1 + λs) Sπ
"""

from __future__ import annotations

from math import inf, isfinite, sqrt

import numba
import numpy as np

from ..model.likelihoods.loops import tilt
from .online_loops import (
    FAILED,
    PROJECTED,
    REPLACED,
    State,
    absorb,
    add,
    dot,
    gain,
    look,
    rank_one,
    rank_one_upper,
    solve_backward,
)

_jit = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"})

TINY = 1e-12  # the least share of a variance that a site may leave, or that taking it out may come from


@_jit
def site(q: float, r: float, mean: float, variance: float) -> tuple[float, float]:
    """λ = -r/(1 + rσ²) and b = λa, a = mean - q/r, without dividing by r. [004 eq. 4.18]"""
    left = max(1.0 + r * variance, TINY)
    return -r / left, (q - r * mean) / left


@_jit
def moved(lam: float, b: float, new_lam: float, new_b: float, variance: float) -> float:
    """How far a site moved, in units of the row's own spread."""
    return max(abs(new_lam - lam) * variance, abs(new_b - b) * sqrt(variance))


# Sweeps in which the basis changes, on top of the online steps. The projections of all rows turn with every
# function that
# is replaced: T (M, m₀ + r) collects the turns while r rows are read. Its first m₀ columns say where each
# coordinate before
# them has gone, for all other rows; the rest are the projections of the r rows themselves.


@_jit
def take_out(state: State, pi: np.ndarray, lam: np.ndarray, b: np.ndarray, scored: bool) -> bool:
    """Every process without one row's sites; False, and nothing done, where one would be left improper. [004
    eq. 4.36]
    """
    m = state.size[0]
    exact = state.N.shape[1] > 0
    for c in range(len(lam)):
        state.variance[c] = 1.0 - lam[c] * gain(state.A[c], pi, state.a[c], state.s[c], m)
        if not state.variance[c] > TINY:
            return False
    if exact:
        solve_backward(state.U, pi, state.e, m)
    for c in range(len(lam)):
        left, s, t = state.variance[c], state.s[c], state.t[c]
        v = lam[c] / left
        step = (lam[c] * dot(pi, state.w[c, 0], m) - b[c]) / left
        rank_one(state.A[c], s, state.a[c], v / (1.0 + sqrt(1.0 / left)), m)
        add(step, s, state.w[c, 0], m)
        if scored:
            solve_backward(state.U, s, t, m)
            add(step, t, state.alpha[c, 0], m)
            for j in range(m):
                state.CQ[c, j] += v * t[j] * t[j]
        if exact:
            rank_one_upper(state.N[c], -lam[c], state.e, m)
    return True


@_jit
def visit(
    state: State,
    T: np.ndarray,
    own: int,
    pi: np.ndarray,
    lam: np.ndarray,
    b: np.ndarray,
    kss: float,
    again: bool,
    scored: bool,
) -> float:
    """Take the row's old sites out and look at what is left; returns γ, or -1 where the row must stay as it
    is.

    pi (m₀,) is its projection before the r rows; where it is now goes into column `own` of T.
    """
    m, start = state.size[0], len(pi)
    if again:
        for j in range(m):
            state.phi[j] = dot(T[j], pi, start)
            T[j, own] = state.phi[j]
        if not take_out(state, state.phi, lam, b, scored):
            return -1.0
    return look(state, kss, scored)


@_jit
def settle(
    state: State,
    T: np.ndarray,
    own: int,
    lam: np.ndarray,
    b: np.ndarray,
    gamma: float,
    kss: float,
    rate: float,
    capacity: int,
    tolerance: float,
    scored: bool,
    place: int,
    before: np.ndarray,  # (M,), work
) -> int:
    """The row just looked at, with q and r in the state, gets its new sites and perhaps a basis function.
    [004 §4.6]

    `place` is its column in the kernel rows.
    """
    m = state.size[0]
    for c in range(len(lam)):
        variance = state.variance[c]
        new_lam, new_b = site(state.q[c, 0], state.r[c], state.mean[c, 0], variance)
        if not (isfinite(new_lam) and isfinite(new_b)):
            return FAILED
        lam[c] += rate * (new_lam - lam[c])
        b[c] += rate * (new_b - b[c])
        left = 1.0 + lam[c] * variance  # q and r of the damped site
        state.r[c] = -lam[c] / left
        state.q[c, 0] = (b[c] - lam[c] * state.mean[c, 0]) / left
    for j in range(m):
        T[j, own] = state.phi[j]
    state.places[m] = place  # moves to where the row goes in, if it does
    before[: m + 1] = state.places[: m + 1]
    done = absorb(state, gamma, kss, capacity, tolerance, True, scored)
    if done > PROJECTED:
        T[m, own] = sqrt(gamma)
    if done == REPLACED:
        i = 0
        while state.places[i] == before[i]:
            i += 1
        turn_rows(T, i, m, state.cosine, state.sine)
    return done


@_jit
def turn_rows(T: np.ndarray, i: int, m: int, cosine: np.ndarray, sine: np.ndarray) -> None:
    """Turn coordinates (j, j + 1) for j = i, …, m - 1 as the last removal did, and leave the last one out."""
    for j in range(i, m):
        c, s, upper, lower = cosine[j], sine[j], T[j], T[j + 1]
        for h in range(T.shape[1]):
            one, two = upper[h], lower[h]
            upper[h] = c * one + s * two
            lower[h] = c * two - s * one
    T[m] = 0.0


@_jit
def sweep_and_grow(
    state: State,
    T: np.ndarray,  # (M, m₀ + r)
    column: int,  # of T, for the first of these rows
    Pi: np.ndarray,  # (rows, m₀)
    lam: np.ndarray,  # (rows, c)
    b: np.ndarray,  # (rows, c)
    K: np.ndarray,  # (rows, m + rows): kernel with the basis before these rows, and with them
    kss: np.ndarray,  # (rows,)
    prior: np.ndarray,  # (rows,): prior mean
    y: np.ndarray,  # (rows, c)
    kind: int,
    theta: np.ndarray,
    rate: float,
    capacity: int,
    tolerance: float,
    again: bool,
    scored: bool,
    changes: np.ndarray,  # (1,): gains the changes of the basis
    before: np.ndarray,  # (M,), work
) -> int:
    """The rows of a block in order; returns how many were done, short of all where one failed."""
    fresh = K.shape[1] - len(K)
    for i in range(len(K)):
        for j in range(state.size[0]):
            state.k[j] = K[i, state.places[j]]
        gamma = visit(state, T, column + i, Pi[i], lam[i], b[i], kss[i], again, scored)
        if gamma < 0.0:
            continue
        for c in range(len(state.A)):
            _, state.q[c, 0], state.r[c] = tilt(
                kind, theta, y[i, c], prior[i] + state.mean[c, 0], state.variance[c]
            )
        done = settle(
            state,
            T,
            column + i,
            lam[i],
            b[i],
            gamma,
            kss[i],
            rate,
            capacity,
            tolerance,
            scored,
            fresh + i,
            before,
        )
        if done == FAILED:
            return i
        if done > PROJECTED:
            changes[0] += 1
    return len(K)


# Sweeps on a basis that stays. A block of rows with directions D (r, m) sees the process only through H =
# DSDᵀ and μ = Dw;
# what its visits did comes back as S - GᵀWG and w + Gᵀz with G = DS. So rows are visited one after the other,
# and yet all
# work on m-by-m matrices is in products of matrices. Directions old..old+rows are those of the old sites, if
# not the same.


@_jit
def point(
    H: np.ndarray, mu: np.ndarray, W: np.ndarray, z: np.ndarray, i: int, c: np.ndarray
) -> tuple[float, float]:
    """Mean and variance of πᵢᵀv as the process is now; c says where it is: Sπᵢ = Gᵀc."""
    r = len(mu)
    for j in range(r):
        c[j] = -dot(W[j], H[i], r)
    c[i] += 1.0
    return mu[i] + dot(H[i], z, r), dot(H[i], c, r)


@_jit
def add_site(
    W: np.ndarray, z: np.ndarray, c: np.ndarray, mean: float, s: float, lam: float, b: float
) -> None:
    """Put exp(b g - ½ λ g²) into the process, g being where `point` just was."""
    left, r = 1.0 + lam * s, len(z)
    add((b - lam * mean) / left, c, z, r)
    for j in range(r):
        add(lam / left * c[j], c, W[j], r)


@_jit
def visit_in_block(
    H: np.ndarray,
    mu: np.ndarray,
    W: np.ndarray,
    z: np.ndarray,
    i: int,
    old: int,
    lam: float,
    b: float,
    c: np.ndarray,
    seen: np.ndarray,
) -> bool:
    """The cavity of row i, whose site on πᵀv is (λ, b): `seen` gets g's mean and variance, then those of the
    cavity.
    """
    if old != i:
        mean, s = point(H, mu, W, z, old, c)
        if not 1.0 - lam * s > TINY:
            return False
        add_site(W, z, c, mean, s, -lam, -b)
        lam, b = 0.0, 0.0
    mean, s = point(H, mu, W, z, i, c)
    left = 1.0 - lam * s
    seen[0], seen[1], seen[2], seen[3] = mean, s, (mean - b * s) / left, max(s / left, 0.0)
    return left > TINY


@_jit
def settle_in_block(
    W: np.ndarray,
    z: np.ndarray,
    c: np.ndarray,
    seen: np.ndarray,
    same: bool,
    i: int,
    lam: np.ndarray,
    b: np.ndarray,
    q: float,
    r: float,
    gamma: float,
    share: float,
    rate: float,
) -> float:
    """Row i, just visited, gets its new site; returns how far that moved, or -1 where q or r is not finite."""
    variance = gamma + seen[3]
    new_lam, new_b = site(q, r, seen[2], variance)
    if not (isfinite(new_lam) and isfinite(new_b)):
        return -1.0
    new_lam = lam[i] + rate * (new_lam - lam[i])
    new_b = b[i] + rate * (new_b - b[i])
    change = moved(lam[i], b[i], new_lam, new_b, variance / (1.0 + new_lam * variance))
    before, after = 1.0 / (1.0 + share * lam[i] * gamma), 1.0 / (1.0 + share * new_lam * gamma)
    out_lam, out_b = (before * lam[i], before * b[i]) if same else (0.0, 0.0)
    add_site(W, z, c, seen[0], seen[1], after * new_lam - out_lam, after * new_b - out_b)
    lam[i], b[i] = new_lam, new_b
    return change


@_jit
def weaken(
    W: np.ndarray,
    z: np.ndarray,
    c: np.ndarray,
    seen: np.ndarray,
    i: int,
    lam: np.ndarray,
    b: np.ndarray,
    gamma: float,
    share: float,
) -> None:
    """A row that has no proper cavity, since other sites have λ < 0, gives up so much of its own as doubles
    its variance.
    """
    before = 1.0 / (1.0 + share * lam[i] * gamma)
    part = 0.5 / (before * lam[i] * seen[1])
    add_site(W, z, c, seen[0], seen[1], -part * before * lam[i], -part * before * b[i])
    rest = (1.0 - part) * before
    after = 1.0 / (1.0 - share * rest * lam[i] * gamma)
    lam[i], b[i] = rest * after * lam[i], rest * after * b[i]


@_jit
def sweep_block(
    H: np.ndarray,  # (r, r)
    mu: np.ndarray,  # (r,)
    W: np.ndarray,  # (r, r), zero
    z: np.ndarray,  # (r,), zero
    lam: np.ndarray,  # (rows,)
    b: np.ndarray,  # (rows,)
    gamma: np.ndarray,  # (rows,)
    prior: np.ndarray,  # (rows,)
    y: np.ndarray,  # (rows,)
    old: int,  # where the directions of the old sites begin
    share: float,
    kind: int,
    theta: np.ndarray,
    rate: float,
    c: np.ndarray,  # (r,), work
    seen: np.ndarray,  # (4,), work
) -> tuple[int, float]:
    """The rows of a block in order; how many were done, short of all where one failed, and the largest move
    of a site.
    """
    largest = 0.0
    for i in range(len(y)):
        before = 1.0 / (1.0 + share * lam[i] * gamma[i])
        if not visit_in_block(H, mu, W, z, i, old + i, before * lam[i], before * b[i], c, seen):
            largest = inf
            if old == 0:
                weaken(W, z, c, seen, i, lam, b, gamma[i], share)
            continue
        _, q, r = tilt(kind, theta, y[i], prior[i] + seen[2], gamma[i] + seen[3])
        change = settle_in_block(W, z, c, seen, old == 0, i, lam, b, q, r, gamma[i], share, rate)
        if change < 0.0:
            return i, largest
        largest = max(largest, change)
    return len(y), largest


@_jit
def sweep_rows(
    S: np.ndarray,  # (m, m): changes
    w: np.ndarray,  # (m,): changes
    Phi: np.ndarray,  # (rows, m)
    Pi: np.ndarray,  # (rows, m): directions of the old sites, or (0, m) where these are Φ
    lam: np.ndarray,  # (rows,): changes, as does b
    b: np.ndarray,
    gamma: np.ndarray,
    prior: np.ndarray,
    y: np.ndarray,
    share: float,
    kind: int,
    theta: np.ndarray,
    rate: float,
    block: int,
) -> tuple[int, float]:
    """Block after block of rows; how many were done, short of all where one failed, and the largest move of a
    site.
    """
    n, m = Phi.shape
    largest, seen = 0.0, np.empty(4)
    for low in range(0, n, block):
        high = min(low + block, n)
        old = high - low if len(Pi) > 0 else 0
        D = np.empty((high - low + old, m))
        D[: high - low] = Phi[low:high]
        if old > 0:
            D[old:] = Pi[low:high]
        G = np.dot(D, S)
        H, mu = np.dot(G, D.T), np.dot(D, w)
        W, z, c = np.zeros(H.shape), np.zeros(len(D)), np.empty(len(D))
        rows = slice(low, high)
        done, move = sweep_block(
            H,
            mu,
            W,
            z,
            lam[rows],
            b[rows],
            gamma[rows],
            prior[rows],
            y[rows],
            old,
            share,
            kind,
            theta,
            rate,
            c,
            seen,
        )
        if done < high - low:
            return low + done, largest
        largest = max(largest, move)
        S -= np.dot(G.T, np.dot(W, G))
        w += np.dot(z, G)
    return n, largest
