"""Compiled loops of the improved fast Gauss transform (Numba). Inputs are in units of the lengthscale.

Monomials of a total degree below p come in order of degree. Those of degree k + 1 are those of degree k times
each input in turn, without repeats: input i multiplies the monomials from heads[k, i] on, which hold no input
before i.
"""

import math

import numpy as np

from ...numerics.compiling import FAST, compiled, helper


def heads_and_factors(d: int, degree: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each input begins to multiply (degrees, d), 1/α! of monomials, how many are below each degree."""
    exponents = [np.zeros((1, d), dtype=int)]
    heads, begin, below = np.zeros((max(degree - 1, 1), d), dtype=np.int64), 0, [0, 1]
    first = np.zeros(d, dtype=int)  # of the last degree: the first monomial without any input before i
    for k in range(degree - 1):
        last, parts = exponents[-1], []
        heads[k] = begin + first
        at, fresh = 0, np.zeros(d, dtype=int)
        for i in range(d):
            part = last[first[i] :].copy()
            part[:, i] += 1
            fresh[i] = at
            at += len(part)
            parts.append(part)
        begin += len(last)
        first = fresh
        exponents.append(np.concatenate(parts))
        below.append(begin + len(exponents[-1]))
    alpha = np.concatenate(exponents)
    return heads, np.exp(-np.sum(_LOG_FACTORIALS[alpha], axis=1)), np.array(below)


_LOG_FACTORIALS = np.array([math.lgamma(i + 1.0) for i in range(200)])


@compiled()
def farthest_points(
    X: np.ndarray, most: int, owner: np.ndarray, nearest: np.ndarray, snapshots: np.ndarray
) -> int:
    """Choose centres: each time the point farthest from those taken. O(n most d)

    owner is each point's centre and nearest the squared distance to it; snapshots keeps owner at 1, 2, 4, ...
    centres. How many were taken: fewer than `most` where no distance is left. [Gonzalez 1985]
    """
    n, d = X.shape
    at, kept = 0, 0
    for i in range(n):
        nearest[i] = np.inf
    for k in range(most):
        far, next_at = -1.0, 0
        for i in range(n):
            s = 0.0
            for j in range(d):
                t = X[i, j] - X[at, j]
                s += t * t
            if s < nearest[i]:
                nearest[i], owner[i] = s, k
            if nearest[i] > far:
                far, next_at = nearest[i], i
        at = next_at
        if k + 1 == 1 << kept:
            snapshots[kept, :] = owner
            kept += 1
        if far == 0.0:
            return k + 1
    return most


@helper(fastmath=FAST)
def monomials(u: np.ndarray, degree: int, heads: np.ndarray, out: np.ndarray) -> int:
    """Fill out with out[0] times each monomial of u of a degree below `degree`; returns how many."""
    end = 1
    for k in range(degree - 1):
        at = end
        for i in range(len(u)):
            head, x = heads[k, i], u[i]
            for j in range(end - head):
                out[at + j] = x * out[head + j]
            at += end - head
        end = at
    return end


@compiled(fastmath=FAST)
def gather(
    X: np.ndarray,
    owner: np.ndarray,
    V: np.ndarray,
    first: int,
    last: int,
    centres: np.ndarray,
    degrees: np.ndarray,
    heads: np.ndarray,
    C: np.ndarray,
    scratch: np.ndarray,
) -> None:
    """C[k, c] += Σ_j v_jc exp(-|u|²/2) u^α, u = x_j - centre_k, first ≤ j < last. C (clusters, p, terms)"""
    d = X.shape[1]
    u = np.empty(d)
    for j in range(first, last):
        k, s = owner[j], 0.0
        for i in range(d):
            u[i] = X[j, i] - centres[k, i]
            s += u[i] * u[i]
        scratch[0] = np.exp(-0.5 * s)
        count = monomials(u, degrees[k], heads, scratch)
        for c in range(V.shape[1]):
            v, row = V[j, c], C[k, c]
            for t in range(count):
                row[t] += v * scratch[t]


@compiled(fastmath=FAST)
def evaluate(
    Y: np.ndarray,
    first: int,
    last: int,
    centres: np.ndarray,
    reach: np.ndarray,
    degrees: np.ndarray,
    heads: np.ndarray,
    C: np.ndarray,
    scratch: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[i, c] += Σ_k exp(-|w|²/2) Σ_α C[k, c, α] w^α, w = y_i - centre_k, over clusters within reach_k."""
    d = Y.shape[1]
    w = np.empty(d)
    for i in range(first, last):
        for k in range(len(centres)):
            s = 0.0
            for j in range(d):
                w[j] = Y[i, j] - centres[k, j]
                s += w[j] * w[j]
            if s > reach[k] * reach[k]:
                continue
            scratch[0] = np.exp(-0.5 * s)
            count = monomials(w, degrees[k], heads, scratch)
            for c in range(C.shape[1]):
                row, total = C[k, c], 0.0
                for t in range(count):
                    total += row[t] * scratch[t]
                out[i, c] += total
