"""The compiled steps of expectation propagation while the basis changes, on top of the online steps.

The projections of all rows turn with every basis function that is replaced: T (M, m₀ + r) collects the turns
while r rows are read. Its first m₀ columns say where each coordinate before them has gone, for other rows;
the rest are the projections of the r rows. `engine.site_loops` has the sweeps on a basis that stays.
"""

from __future__ import annotations

from math import isfinite, sqrt

import numba
import numpy as np

from ..engine.site_loops import LEAST_SHARE, site
from ..model.likelihoods.loops import tilt
from ..numerics.triangles import add, dot, gain, rank_one, rank_one_upper, solve_backward, turn_rows
from .online_loops import FAILED, PROJECTED, REPLACED, State, absorb, look

_jit = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"})


@_jit
def take_out(state: State, pi: np.ndarray, lam: np.ndarray, b: np.ndarray, scored: bool) -> bool:
    """Take one row's sites out of every process; False, and nothing done, where one would be left improper.
    [004 eq. 4.36]
    """
    m = state.size[0]
    exact = state.N.shape[1] > 0
    for c in range(len(lam)):
        state.variance[c] = 1.0 - lam[c] * gain(state.A[c], pi, state.a[c], state.s[c], m)
        if not state.variance[c] > LEAST_SHARE:
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
    """Take the row's old sites out and look at what is left; returns γ, or -1 where the row must stay.

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
    """Give the row just looked at, with q and r in the state, its new sites and perhaps a basis function.
    [004 §4.6]

    `place` is its column in the kernel rows. Returns what `absorb` did.
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
        turn_rows(T, i, m + 1, state.cosine, state.sine, T.shape[1])  # as the removal did
        T[m] = 0.0
    return done


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
    """Visit the rows of a block in order; returns how many were done, short of all where one failed."""
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
