"""The compiled steps of a sweep over sites on a basis that stays.

In whitened coordinates u = Lv, v ~ N(w, S), the site of a row is exp(b g - ½ λ g²) in one number g = πᵀv.
Taking it out of the process, and putting it into what is left, are rank-one updates. [004 eqs 4.18, 4.36]

    without    S + λ/(1 - λs) Sπ πᵀS,   w + (λ πᵀw - b)/(1 - λs) Sπ,   s = πᵀSπ
    with       S - λ/(1 + λs) Sπ πᵀS,   w - (λ πᵀw - b)/(1 + λs) Sπ

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
from ..numerics.triangles import add, dot

_jit = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"})

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

    lam: np.ndarray
    b: np.ndarray
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
    """λ = -r/(1 + rσ²) and b = λa, a = mean - q/r, without dividing by r. [004 eq. 4.18]"""
    left = max(1.0 + r * variance, LEAST_SHARE)
    return -r / left, (q - r * mean) / left


@_jit
def moved(lam: float, b: float, new_lam: float, new_b: float, variance: float) -> float:
    """How far a site moved, in units of the row's own spread."""
    return max(abs(new_lam - lam) * variance, abs(new_b - b) * sqrt(variance))


@_jit
def marginal(v: Visits, i: int) -> tuple[float, float]:
    """Mean and variance of πᵢᵀv as the process is now; v.c says where that is."""
    r = len(v.mu)
    for j in range(r):
        v.c[j] = -dot(v.W[j], v.H[i], r)
    v.c[i] += 1.0
    return v.mu[i] + dot(v.H[i], v.z, r), dot(v.H[i], v.c, r)


@_jit
def add_site(v: Visits, mean: float, s: float, lam: float, b: float) -> None:
    """Put exp(b g - ½ λ g²) into the process, where g, of this mean and variance s, is where `marginal`
    was.
    """
    left, r = 1.0 + lam * s, len(v.z)
    add((b - lam * mean) / left, v.c, v.z, r)
    for j in range(r):
        add(lam / left * v.c[j], v.c, v.W[j], r)


@_jit
def visit_in_block(v: Visits, rows: RowSites, i: int, old: int, share: float) -> bool:
    """Find the cavity of row i: v.seen gets g, then the cavity. False where that is improper."""
    before = 1.0 / (1.0 + share * rows.lam[i] * rows.gamma[i])
    lam, b = before * rows.lam[i], before * rows.b[i]
    if old > 0:
        mean, s = marginal(v, old + i)
        if not 1.0 - lam * s > LEAST_SHARE:
            return False
        add_site(v, mean, s, -lam, -b)
        lam, b = 0.0, 0.0
    mean, s = marginal(v, i)
    left = 1.0 - lam * s
    v.seen[0], v.seen[1], v.seen[2], v.seen[3] = mean, s, (mean - b * s) / left, max(s / left, 0.0)
    return left > LEAST_SHARE


@_jit
def settle_in_block(
    v: Visits, rows: RowSites, i: int, old: int, q: float, r: float, share: float, rate: float
) -> float:
    """Give row i, just visited, its new site; returns how far that moved, or -1 if q or r is not finite."""
    lam, b, gamma = rows.lam, rows.b, rows.gamma[i]
    variance = gamma + v.seen[3]
    new_lam, new_b = site(q, r, v.seen[2], variance)
    if not (isfinite(new_lam) and isfinite(new_b)):
        return -1.0
    new_lam = lam[i] + rate * (new_lam - lam[i])
    new_b = b[i] + rate * (new_b - b[i])
    change = moved(lam[i], b[i], new_lam, new_b, variance / (1.0 + new_lam * variance))
    before, after = 1.0 / (1.0 + share * lam[i] * gamma), 1.0 / (1.0 + share * new_lam * gamma)
    out_lam, out_b = (before * lam[i], before * b[i]) if old == 0 else (0.0, 0.0)
    add_site(v, v.seen[0], v.seen[1], after * new_lam - out_lam, after * new_b - out_b)
    lam[i], b[i] = new_lam, new_b
    return change


@_jit
def weaken(v: Visits, rows: RowSites, i: int, share: float) -> None:
    """Weaken the site of a row without a proper cavity (other sites have λ < 0): its variance doubles."""
    lam, b, gamma = rows.lam, rows.b, rows.gamma[i]
    before = 1.0 / (1.0 + share * lam[i] * gamma)
    given_up = 0.5 / (before * lam[i] * v.seen[1])
    add_site(v, v.seen[0], v.seen[1], -given_up * before * lam[i], -given_up * before * b[i])
    rest = (1.0 - given_up) * before
    after = 1.0 / (1.0 - share * rest * lam[i] * gamma)
    lam[i], b[i] = rest * after * lam[i], rest * after * b[i]


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
    rows: RowSites,  # lam and b change
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
        block = RowSites(rows.lam[s], rows.b[s], rows.gamma[s], rows.prior[s], rows.y[s])
        done, move = sweep_block(v, block, old, share, kind, theta, rate)
        if done < high - low:
            return low + done, largest
        largest = max(largest, move)
        S -= np.dot(G.T, np.dot(v.W, G))
        w += np.dot(v.z, G)
    return n, largest
