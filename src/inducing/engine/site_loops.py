"""The compiled steps of a sweep over sites on a fixed basis.

In whitened coordinates u = Lv, v ~ N(w, S), the site of a row is exp(ν g - ½ τ g²) in one number g = πᵀv.
Taking it out of the process, and putting it into what is left, are rank-one updates. [004 eqs 4.18, 4.36]

    without    S + τ/(1 - τs) Sπ πᵀS,   w + (τ πᵀw - ν)/(1 - τs) Sπ,   s = πᵀSπ
    with       S - τ/(1 + τs) Sπ πᵀS,   w - (τ πᵀw - ν)/(1 + τs) Sπ

A block of rows with directions D (r, m) needs of the process only H = DSDᵀ and μ = Dw, and changes it to
S - GᵀWG and w + Gᵀz with G = DS. So rows are visited one after the other, and yet all work on m-by-m matrices
is in products of matrices. If the old sites have other directions, these are the rows of D from `old` on.
"""

from math import inf, isfinite, sqrt
from typing import Any, NamedTuple

import numpy as np

from ..model.likelihoods.loops import tilt
from ..numerics.blas import addresses
from ..numerics.compiled_blas import add_cross, product
from ..numerics.compiling import FAST, compiled, helper
from ..numerics.triangles import add, dot

_jit = helper(fastmath=FAST)

LEAST_SHARE = 1e-12  # the least ratio of a variance with a site to that without it


class Visits(NamedTuple):
    """State of visits to a block: what rows need of the process, their changes to it, the current row."""

    H: np.ndarray  # (r, r): DSDᵀ
    mu: np.ndarray  # (r,): Dw
    W: np.ndarray  # (r, r), zero at first
    z: np.ndarray  # (r,), zero at first
    c: np.ndarray  # (r,): Sπ = Gᵀc of the row of the last `marginal`
    seen: np.ndarray  # (4,): mean and variance of g in that row, then those of the cavity


class RowSites(NamedTuple):
    """Rows, and the sites that change. (rows,) each"""

    tau: np.ndarray
    nu: np.ndarray
    gamma: np.ndarray  # what the basis leaves of k(x, x)
    prior: np.ndarray  # the prior mean
    y: np.ndarray


@_jit
def visits(at: np.ndarray, G: np.ndarray, D: np.ndarray, w: np.ndarray) -> Visits:
    """Return a block with directions D and G = DS before its first visit."""
    r, m = D.shape
    H, mu = np.zeros((r, r)), np.empty(r)
    if m > 0:
        product(at, G, D, H)
    for i in range(r):
        mu[i] = dot(D[i], w, m)
    return Visits(H, mu, np.zeros((r, r)), np.zeros(r), np.empty(r), np.empty(4))


@_jit
def site(q: float, r: float, mean: float, variance: float) -> tuple[float, float]:
    """Return τ = -r/(1 + rσ²) and ν = τa, a = mean - q/r, without dividing by r. [004 eq. 4.18]"""
    left = max(1.0 + r * variance, LEAST_SHARE)
    return -r / left, (q - r * mean) / left


@_jit
def moved(tau: float, nu: float, new_tau: float, new_nu: float, variance: float) -> float:
    """Return the distance a site moved, in units of the row's own spread."""
    return max(abs(new_tau - tau) * variance, abs(new_nu - nu) * sqrt(variance))


@_jit
def marginal(v: Visits, i: int) -> tuple[float, float]:
    """Return mean and variance of πᵢᵀv as the process is now; fill v.c for `add_site`."""
    r = len(v.mu)
    for j in range(r):
        v.c[j] = -dot(v.W[j], v.H[i], r)
    v.c[i] += 1.0
    return v.mu[i] + dot(v.H[i], v.z, r), dot(v.H[i], v.c, r)


@_jit
def add_site(v: Visits, mean: float, s: float, tau: float, nu: float) -> None:
    """Put exp(ν g - ½ τ g²) into the process, after `marginal` returned g's mean and variance s."""
    left, r = 1.0 + tau * s, len(v.z)
    add((nu - tau * mean) / left, v.c, v.z, r)
    for j in range(r):
        add(tau / left * v.c[j], v.c, v.W[j], r)


@_jit
def visit_in_block(v: Visits, rows: RowSites, i: int, old: int, share: float) -> bool:
    """Fill v.seen with mean and variance of g in row i and of its cavity; return False if it is improper."""
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
    """Give row i, just visited, its new site; return how far that moved, or -1 if the site is not finite."""
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
    """Weaken the site of a row without a proper cavity (other sites have τ < 0): g's variance doubles."""
    tau, nu, gamma = rows.tau, rows.nu, rows.gamma[i]
    before = 1.0 / (1.0 + share * tau[i] * gamma)
    given_up = 0.5 / (before * tau[i] * v.seen[1])
    add_site(v, v.seen[0], v.seen[1], -given_up * before * tau[i], -given_up * before * nu[i])
    rest = (1.0 - given_up) * before
    after = 1.0 / (1.0 - share * rest * tau[i] * gamma)
    tau[i], nu[i] = rest * after * tau[i], rest * after * nu[i]


@_jit
def sweep_block(
    v: Visits, rows: RowSites, old: int, share: float, likelihood: int, theta: np.ndarray, rate: float
) -> tuple[int, float]:
    """Visit the rows of a block; return how many were done, less if one failed, and the largest move."""
    largest, out = 0.0, np.empty(3)
    for i in range(len(rows.y)):
        if not visit_in_block(v, rows, i, old, share):
            largest = inf
            if old == 0:
                weaken(v, rows, i, share)
            continue
        mean, variance = rows.prior[i] + v.seen[2], rows.gamma[i] + v.seen[3]
        tilt(likelihood, theta, rows.y[i], mean, variance, out)
        change = settle_in_block(v, rows, i, old, out[1], out[2], share, rate)
        if change < 0.0:
            return i, largest
        largest = max(largest, change)
    return len(rows.y), largest


def _usual() -> tuple[Any, ...]:
    rows = RowSites(*np.zeros((5, 1)))
    return addresses(), np.eye(1), np.zeros(1), *np.zeros((2, 1, 1)), rows, 1.0, 0, np.zeros(1), 1.0, 1


@compiled(usual=_usual, fastmath=FAST)
def sweep_rows(
    at: np.ndarray,  # BLAS by address
    S: np.ndarray,  # (m, m): changes
    w: np.ndarray,  # (m,): changes
    Phi: np.ndarray,  # (rows, m)
    Pi: np.ndarray,  # (rows, m): directions of the old sites, or (0, m) where these are Φ
    rows: RowSites,  # tau and nu change
    share: float,
    likelihood: int,  # its address
    theta: np.ndarray,
    rate: float,
    together: int,
) -> tuple[int, float]:
    """Visit rows in blocks; return how many were done, less if one failed, and the largest move."""
    n, m = Phi.shape
    largest = 0.0
    for low in range(0, n, together):
        high = min(low + together, n)
        old = high - low if len(Pi) > 0 else 0
        D = np.zeros((high - low + old, m))
        for i in range(high - low):
            add(1.0, Phi[low + i], D[i], m)
            if old > 0:
                add(1.0, Pi[low + i], D[old + i], m)
        G, WG = np.empty(D.shape), np.zeros(D.shape)
        if m > 0:
            product(at, D, S, G)
        v, s = visits(at, G, D, w), slice(low, high)
        block = RowSites(rows.tau[s], rows.nu[s], rows.gamma[s], rows.prior[s], rows.y[s])
        done, move = sweep_block(v, block, old, share, likelihood, theta, rate)
        if done < high - low:
            return low + done, largest
        largest = max(largest, move)
        if m > 0:
            add_cross(at, v.W, G, WG)  # W = Wᵀ
        for i in range(len(D)):
            add(v.z[i], G[i], w, m)
            for j in range(m):
                WG[i, j] = -WG[i, j]
        if m > 0:
            add_cross(at, G, WG, S)
    return n, largest
