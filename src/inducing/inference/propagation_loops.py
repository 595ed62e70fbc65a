"""Compiled steps of expectation propagation while the basis changes, on top of the online steps.

When a basis function is replaced, the projections of all rows rotate. T (M, m₀ + r) collects the rotations
while r rows are read: its first m₀ columns map the coordinates from before these rows, and are applied to
other rows later; the rest are the projections of the r rows. `engine.site_loops` sweeps on a fixed basis.
"""

from math import isfinite, sqrt
from typing import Any, NamedTuple

import numpy as np

from ..engine.site_loops import LEAST_SHARE, site
from ..model.likelihoods.loops import tilt
from ..numerics.compiling import FAST, by_address, compiled, helper
from ..numerics.triangles import add, dot, gain, rank_one, rank_one_upper, solve, turn_rows
from .online_loops import FAILED, PROJECTED, REPLACED, GrowthRule, State, absorb, allocate, look

_jit = helper(fastmath=FAST)


@by_address
class Turns(NamedTuple):
    """The map of coordinates while the basis changes."""

    T: np.ndarray  # (M, m₀ + r)
    column: int  # of T, for the first row of the current block
    changes: np.ndarray  # (1,): how often the basis changed
    before: np.ndarray  # (M,), work space


@by_address
class SiteRows(NamedTuple):
    """A block of rows for c processes, and their sites."""

    Pi: np.ndarray  # (rows, m₀): projections before the r rows
    tau: np.ndarray  # (rows, c): changes
    nu: np.ndarray  # (rows, c): changes
    K: np.ndarray  # (rows, m + rows): kernel with the basis before this block, and with these rows
    kss: np.ndarray  # (rows,)
    prior: np.ndarray  # (rows,): prior mean
    y: np.ndarray  # (rows, c)


@_jit
def take_out(state: State, pi: np.ndarray, tau: np.ndarray, nu: np.ndarray, scored: bool) -> bool:
    """Remove a row's sites from all processes; if one became improper, return False before. [004 eq. 4.36]"""
    m = state.size[0]
    exact = state.N.shape[1] > 0
    for c in range(len(tau)):
        state.variance[c] = 1.0 - tau[c] * gain(state.at, state.A[c], pi, state.a[c], state.s[c], m)
        if not state.variance[c] > LEAST_SHARE:
            return False
    if exact:
        solve(state.at, state.U, pi, state.e, m, True)
    for c in range(len(tau)):
        left, s, t = state.variance[c], state.s[c], state.t[c]
        v = tau[c] / left
        step = (tau[c] * dot(pi, state.w[c, 0], m) - nu[c]) / left
        rank_one(state.at, state.A[c], s, state.a[c], v / (1.0 + sqrt(1.0 / left)), m)
        add(step, s, state.w[c, 0], m)
        if scored:
            solve(state.at, state.U, s, t, m, True)
            add(step, t, state.alpha[c, 0], m)
            for j in range(m):
                state.CQ[c, j] += v * t[j] * t[j]
        if exact:
            rank_one_upper(state.at, state.N[c], -tau[c], state.e, m)
    return True


@_jit
def visit(state: State, turns: Turns, rows: SiteRows, i: int, again: bool, scored: bool) -> float:
    """Remove the old sites of row i and predict it; return γ, or -1 if its sites cannot be removed."""
    m, T, pi = state.size[0], turns.T, rows.Pi[i]
    for j in range(m):
        state.k[j] = rows.K[i, state.places[j]]
    if again:
        for j in range(m):
            state.phi[j] = dot(T[j], pi, len(pi))
            T[j, turns.column + i] = state.phi[j]
        if not take_out(state, state.phi, rows.tau[i], rows.nu[i], scored):
            return -1.0
    return look(state, rows.kss[i], scored)


@_jit
def settle(
    state: State, turns: Turns, rows: SiteRows, i: int, gamma: float, rate: float, rule: GrowthRule
) -> bool:
    """Give row i new sites and perhaps a basis function; return False if they are invalid. [004 §4.6]"""
    m, T, own, tau, nu = state.size[0], turns.T, turns.column + i, rows.tau[i], rows.nu[i]
    for c in range(len(tau)):
        variance = state.variance[c]
        new_tau, new_nu = site(state.q[c, 0], state.r[c], state.mean[c, 0], variance)
        if not (isfinite(new_tau) and isfinite(new_nu)):
            return False
        tau[c] += rate * (new_tau - tau[c])
        nu[c] += rate * (new_nu - nu[c])
        left = 1.0 + tau[c] * variance  # q and r of the damped site
        state.r[c] = -tau[c] / left
        state.q[c, 0] = (nu[c] - tau[c] * state.mean[c, 0]) / left
    for j in range(m):
        T[j, own] = state.phi[j]
    state.places[m] = rows.K.shape[1] - len(rows.K) + i  # moves to where the row goes in, if it does
    for j in range(m + 1):
        turns.before[j] = state.places[j]
    done = absorb(state, gamma, rows.kss[i], rule)
    if done > PROJECTED:
        T[m, own] = sqrt(gamma)
        turns.changes[0] += 1
    if done == REPLACED:
        first = 0
        while state.places[first] == turns.before[first]:
            first += 1
        turn_rows(state.at, T, first, m + 1, state.cosine, state.sine, T.shape[1])  # as the removal did
        T[m] = 0.0
    return done != FAILED


def _usual() -> tuple[Any, ...]:
    turns = Turns(np.zeros((1, 1)), 0, *np.zeros((2, 1), dtype=np.int64))
    one, table = np.zeros(1), np.zeros((1, 1))
    rows, rule = SiteRows(table, table, table, table, one, one, table), GrowthRule(1, 0.0, True, True, 1.0)
    return allocate(1, 1, 1, exact=False), turns, rows, 0, one, one, 1.0, rule, False, 0, 1


@compiled(usual=_usual, fastmath=FAST)
def sweep_and_grow(
    state: State,
    turns: Turns,
    rows: SiteRows,
    likelihood: int,  # its address
    theta: np.ndarray,
    out: np.ndarray,  # (3,), work: see `run` of the stream
    rate: float,
    rule: GrowthRule,
    again: bool,
    first: int,
    stop: int,
) -> int:
    """Visit rows `first` to `stop` of a block in order; return `stop`, or the number of a row that failed."""
    for i in range(first, stop):
        gamma = visit(state, turns, rows, i, again, rule.scored)
        if gamma < 0.0:
            continue
        for c in range(len(state.A)):
            mean, variance = rows.prior[i] + state.mean[c, 0], state.variance[c]
            tilt(likelihood, theta, rows.y[i, c], mean, variance, out)
            state.q[c, 0], state.r[c] = out[1], out[2]
        if not settle(state, turns, rows, i, gamma, rate, rule):
            return i
    return stop
