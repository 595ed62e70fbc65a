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

import numba
import numpy as np

from ..model.likelihoods.loops import tilt
from ..numerics.triangles import add, dot

_jit = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"})

LEAST_SHARE = 1e-12  # of a variance that a site may leave, or that taking it out may come from


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
    """Find the cavity of row i, whose site on πᵀv is (λ, b): `seen` gets mean and variance of g, then of the
    cavity; False where that is improper.
    """
    if old != i:
        mean, s = point(H, mu, W, z, old, c)
        if not 1.0 - lam * s > LEAST_SHARE:
            return False
        add_site(W, z, c, mean, s, -lam, -b)
        lam, b = 0.0, 0.0
    mean, s = point(H, mu, W, z, i, c)
    left = 1.0 - lam * s
    seen[0], seen[1], seen[2], seen[3] = mean, s, (mean - b * s) / left, max(s / left, 0.0)
    return left > LEAST_SHARE


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
    """Give row i, just visited, its new site; returns how far that moved, or -1 if q or r is not finite."""
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
    """Take away as much of the site of a row without a proper cavity (other sites have λ < 0) as doubles its
    variance.
    """
    before = 1.0 / (1.0 + share * lam[i] * gamma)
    given_up = 0.5 / (before * lam[i] * seen[1])
    add_site(W, z, c, seen[0], seen[1], -given_up * before * lam[i], -given_up * before * b[i])
    rest = (1.0 - given_up) * before
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
    """Visit the rows of a block in order; returns how many were done, short of all where one failed, and the
    largest move of a site.
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
    """Visit rows block by block; returns how many were done, short of all where one failed, and the largest
    move of a site.
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
