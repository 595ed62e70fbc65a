"""The compiled steps of a sweep over sites on a basis that stays.

In whitened coordinates u = Lv, v ~ N(w, S), the site of a row is exp(ν g - ½ τ g²) in one number g = πᵀv.
Taking it out of the process, and putting it into what is left, are rank-one updates. [004 eqs 4.18, 4.36]

    without    S + τ/(1 - τs) Sπ πᵀS,   w + (τ πᵀw - ν)/(1 - τs) Sπ,   s = πᵀSπ
    with       S - τ/(1 + τs) Sπ πᵀS,   w - (τ πᵀw - ν)/(1 + τs) Sπ

A block of rows with directions D (r, m) sees the process only through H = DSDᵀ and μ = Dw; what its visits
did comes back as S - GᵀWG and w + Gᵀz with G = DS. So rows are visited one after the other, and yet all work
on m-by-m matrices is in products of matrices. Directions from `old` on are those of the old sites, where they
are not the same.
"""

from __future__ import annotations

from math import inf, isfinite, sqrt
from typing import NamedTuple

import numba
import numpy as np

from ..model.likelihoods.loops import tilt
from ..numerics.loops import FAST
from ..numerics.triangles import add, dot

_jit = numba.njit(nogil=True, cache=True, forceinline=True, fastmath=FAST)

LEAST_SHARE = 1e-12  # of a variance that a site may leave, or that taking it out may come from


class Visits(NamedTuple):
    """What the rows of a block see of the process, what their visits did to it, and the row at hand."""

    H: np.ndarray  # (r, r): DSDᵀ
    mu: np.ndarray  # (r,): Dw
    W: np.ndarray  # (r, r), zero at first
    z: np.ndarray  # (r,), zero at first
    c: np.ndarray  # (r,): Sπ = Gᵀc where `marginal` was asked last
    seen: np.ndarray  # (4,): mean and variance of g there, then those of the cavity


class RowSites(NamedTuple):
    """Rows, and the sites that change. (rows,) each"""

    tau: np.ndarray
    nu: np.ndarray
    gamma: np.ndarray  # what the basis leaves of k(x, x)
    prior: np.ndarray  # mean
    y: np.ndarray


@_jit
def visits(G: np.ndarray, D: np.ndarray, w: np.ndarray) -> Visits:
    """A block with directions D, G = DS, before its first visit."""
    r = len(D)
    return Visits(np.dot(G, D.T), np.dot(D, w), np.zeros((r, r)), np.zeros(r), np.empty(r), np.empty(4))


@_jit
def site(q: float, r: float, mean: float, variance: float) -> tuple[float, float]:
    """τ = -r/(1 + rσ²) and ν = τa, a = mean - q/r, without dividing by r. [004 eq. 4.18]"""
    left = max(1.0 + r * variance, LEAST_SHARE)
    return -r / left, (q - r * mean) / left


@_jit
def moved(tau: float, nu: float, new_tau: float, new_nu: float, variance: float) -> float:
    """How far a site moved, in units of the row's own spread."""
    return max(abs(new_tau - tau) * variance, abs(new_nu - nu) * sqrt(variance))


@_jit
def marginal(v: Visits, i: int) -> tuple[float, float]:
    """Mean and variance of πᵢᵀv as the process is now; v.c says where that is."""
    r = len(v.mu)
    for j in range(r):
        v.c[j] = -dot(v.W[j], v.H[i], r)
    v.c[i] += 1.0
    return v.mu[i] + dot(v.H[i], v.z, r), dot(v.H[i], v.c, r)


@_jit
def add_site(v: Visits, mean: float, s: float, tau: float, nu: float) -> None:
    """Put exp(ν g - ½ τ g²) into the process; g, of this mean and variance s, is what `marginal` found."""
    left, r = 1.0 + tau * s, len(v.z)
    add((nu - tau * mean) / left, v.c, v.z, r)
    for j in range(r):
        add(tau / left * v.c[j], v.c, v.W[j], r)


@_jit
def visit_in_block(v: Visits, rows: RowSites, i: int, old: int, share: float) -> bool:
    """Find the cavity of row i: v.seen gets g, then the cavity. False where that is improper."""
    before = 1.0 / (1.0 + share * rows.tau[i] * rows.gamma[i])
    tau, nu = before * rows.tau[i], before * rows.nu[i]
    if old > 0:
        mean, s = marginal(v, old + i)
        if not 1.0 - tau * s > LEAST_SHARE:
            return False
        add_site(v, mean, s, -tau, -nu)
        tau, nu = 0.0, 0.0
    mean, s = marginal(v, i)
    left = 1.0 - tau * s
    v.seen[0], v.seen[1], v.seen[2], v.seen[3] = mean, s, (mean - nu * s) / left, max(s / left, 0.0)
    return left > LEAST_SHARE


@_jit
def settle_in_block(
    v: Visits, rows: RowSites, i: int, old: int, q: float, r: float, share: float, rate: float
) -> float:
    """Give row i, just visited, its new site; returns how far that moved, or -1 if q or r is not finite."""
    tau, nu, gamma = rows.tau, rows.nu, rows.gamma[i]
    variance = gamma + v.seen[3]
    new_tau, new_nu = site(q, r, v.seen[2], variance)
    if not (isfinite(new_tau) and isfinite(new_nu)):
        return -1.0
    new_tau = tau[i] + rate * (new_tau - tau[i])
    new_nu = nu[i] + rate * (new_nu - nu[i])
    change = moved(tau[i], nu[i], new_tau, new_nu, variance / (1.0 + new_tau * variance))
    before, after = 1.0 / (1.0 + share * tau[i] * gamma), 1.0 / (1.0 + share * new_tau * gamma)
    out_tau, out_nu = (before * tau[i], before * nu[i]) if old == 0 else (0.0, 0.0)
    add_site(v, v.seen[0], v.seen[1], after * new_tau - out_tau, after * new_nu - out_nu)
    tau[i], nu[i] = new_tau, new_nu
    return change


@_jit
def weaken(v: Visits, rows: RowSites, i: int, share: float) -> None:
    """Weaken the site of a row without a proper cavity (other sites have τ < 0): its variance doubles."""
    tau, nu, gamma = rows.tau, rows.nu, rows.gamma[i]
    before = 1.0 / (1.0 + share * tau[i] * gamma)
    given_up = 0.5 / (before * tau[i] * v.seen[1])
    add_site(v, v.seen[0], v.seen[1], -given_up * before * tau[i], -given_up * before * nu[i])
    rest = (1.0 - given_up) * before
    after = 1.0 / (1.0 - share * rest * tau[i] * gamma)
    tau[i], nu[i] = rest * after * tau[i], rest * after * nu[i]


@_jit
def sweep_block(
    v: Visits, rows: RowSites, old: int, share: float, kind: int, theta: np.ndarray, rate: float
) -> tuple[int, float]:
    """Visit the rows of a block; returns how many were done, less if one failed, and the largest move."""
    largest = 0.0
    for i in range(len(rows.y)):
        if not visit_in_block(v, rows, i, old, share):
            largest = inf
            if old == 0:
                weaken(v, rows, i, share)
            continue
        mean, variance = rows.prior[i] + v.seen[2], rows.gamma[i] + v.seen[3]
        _, q, r = tilt(kind, theta, rows.y[i], mean, variance)
        change = settle_in_block(v, rows, i, old, q, r, share, rate)
        if change < 0.0:
            return i, largest
        largest = max(largest, change)
    return len(rows.y), largest


@_jit
def sweep_rows(
    S: np.ndarray,  # (m, m): changes
    w: np.ndarray,  # (m,): changes
    Phi: np.ndarray,  # (rows, m)
    Pi: np.ndarray,  # (rows, m): directions of the old sites, or (0, m) where these are Φ
    rows: RowSites,  # tau and nu change
    share: float,
    kind: int,
    theta: np.ndarray,
    rate: float,
    together: int,
) -> tuple[int, float]:
    """Visit rows in blocks; returns how many were done, less if one failed, and the largest move."""
    n, m = Phi.shape
    largest = 0.0
    for low in range(0, n, together):
        high = min(low + together, n)
        old = high - low if len(Pi) > 0 else 0
        D = np.empty((high - low + old, m))
        D[: high - low] = Phi[low:high]
        if old > 0:
            D[old:] = Pi[low:high]
        G = np.dot(D, S)
        v, s = visits(G, D, w), slice(low, high)
        block = RowSites(rows.tau[s], rows.nu[s], rows.gamma[s], rows.prior[s], rows.y[s])
        done, move = sweep_block(v, block, old, share, kind, theta, rate)
        if done < high - low:
            return low + done, largest
        largest = max(largest, move)
        S -= np.dot(G.T, np.dot(v.W, G))
        w += np.dot(v.z, G)
    return n, largest
