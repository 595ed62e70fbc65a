"""Compiled loops of the dual-tree product: pairs of boxes that need nothing, one number, or all pairs of
points.

Inputs are in units of the lengthscale; `profile` is the number of the kernel's g in `stationary.PROFILES`.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from ...numerics.loops import FAST, profile_value
from .tree import Nodes

# without reassociation: `exponentials` depends on the order of its additions
EXACT = {"contract", "nsz", "nnan", "ninf"}
LOG2E = 1.4426950408889634
ROUND = 6755399441055744.0  # 1.5·2⁵²: adding it rounds to a whole number, in the last bits
LEAST = -700.0  # exp underflows soon after
# (log 2)^i / i!
C1, C2, C3 = 0.6931471805599453, 0.24022650695910072, 0.05550410866482158
C4, C5, C6 = 0.009618129107628477, 0.0013333558146428443, 0.0001540353039338161
C7, C8, C9 = 1.5252733804059841e-05, 1.3215486790144307e-06, 1.01780860092397e-07
C10, C11, C12 = 7.054911620801121e-09, 4.4455382718708116e-10, 2.5678435993488202e-11


@numba.njit(nogil=True, cache=True, fastmath=EXACT)
def exponentials(t: np.ndarray, t_bits: np.ndarray, z: np.ndarray, z_bits: np.ndarray, count: int) -> None:
    """exp of the first `count` entries of t ≤ 0, in place; z is scratch, bits are the same memory as
    integers.

    exp t = 2^k 2^f: 2^f by its Taylor series for |f| ≤ ½, and k, found by rounding, added to the exponent's
    bits. The compiler turns both loops into vector instructions. Errors are below 3e-16, relative to 1.
    """
    for j in range(count):
        y = max(t[j], LEAST) * LOG2E
        rounded = y + ROUND
        z[j] = rounded
        f = y - (rounded - ROUND)
        f2 = f * f
        f4 = f2 * f2
        low = (1.0 + C1 * f) + f2 * (C2 + C3 * f)
        middle = (C4 + C5 * f) + f2 * (C6 + C7 * f)
        high = (C8 + C9 * f) + f2 * (C10 + C11 * f)
        t[j] = low + f4 * (middle + f4 * (high + C12 * f4))
    for j in range(count):
        t_bits[j] += z_bits[j] << 52


@numba.njit(nogil=True, cache=True, fastmath=EXACT)
def profiles(
    s: np.ndarray,
    s_bits: np.ndarray,
    z: np.ndarray,
    z_bits: np.ndarray,
    count: int,
    profile: int,
    r: np.ndarray,
) -> None:
    """g of the first `count` squared distances, in place; r is more scratch, for the Matérn kernels."""
    if profile == 0:
        for j in range(count):
            s[j] *= -0.5
        exponentials(s, s_bits, z, z_bits, count)
        return
    factor = 1.0 if profile == 1 else 3.0 if profile == 2 else 5.0
    for j in range(count):
        r[j] = np.sqrt(factor * s[j])
        s[j] = -r[j]
    exponentials(s, s_bits, z, z_bits, count)
    if profile == 2:
        for j in range(count):
            s[j] *= 1.0 + r[j]
    elif profile == 3:
        for j in range(count):
            s[j] *= 1.0 + r[j] * (1.0 + r[j] / 3.0)


@numba.njit(nogil=True, cache=True, fastmath=FAST)
def box_distances(at: Nodes, q: int, nodes: Nodes, r: int) -> tuple[float, float]:
    """The least and the greatest squared distance between points of two boxes."""
    least, greatest = 0.0, 0.0
    for k in range(at.low.shape[1]):
        gap = max(nodes.low[r, k] - at.high[q, k], at.low[q, k] - nodes.high[r, k])
        if gap > 0.0:
            least += gap * gap
        span = max(nodes.high[r, k] - at.low[q, k], at.high[q, k] - nodes.low[r, k])
        greatest += span * span
    return least, greatest


@numba.njit(nogil=True, cache=True)
def node_sums(nodes: Nodes, Vt: np.ndarray, sums: np.ndarray) -> None:
    """Σ v over each node. Vt (p, n), sums (nodes, p)."""
    for i in range(len(nodes.start) - 1, -1, -1):
        for c in range(Vt.shape[0]):
            if nodes.leaf[i]:
                total = 0.0
                for j in range(nodes.start[i], nodes.stop[i]):
                    total += Vt[c, j]
                sums[i, c] = total
            else:
                sums[i, c] = sums[2 * i + 1, c] + sums[2 * i + 2, c]


@numba.njit(nogil=True, cache=True, fastmath=FAST)
def squared_distances(
    Yt: np.ndarray, i: int, Xt: np.ndarray, first: int, count: int, s: np.ndarray, at: int
) -> None:
    """s[at + j] = |y_i - x_{first + j}|² for j < count, two coordinates at a time."""
    d = Xt.shape[0]
    for j in range(count):
        s[at + j] = 0.0
    for k in range(0, d - 1, 2):
        y0, y1 = Yt[k, i], Yt[k + 1, i]
        for j in range(count):
            t0, t1 = y0 - Xt[k, first + j], y1 - Xt[k + 1, first + j]
            s[at + j] += t0 * t0 + t1 * t1
    if d % 2 == 1:
        y0 = Yt[d - 1, i]
        for j in range(count):
            t0 = y0 - Xt[d - 1, first + j]
            s[at + j] += t0 * t0


class Scratch(NamedTuple):
    """Room for all pairs of points of two leaves; bits are the same memory as integers."""

    s: np.ndarray
    s_bits: np.ndarray
    z: np.ndarray
    z_bits: np.ndarray
    r: np.ndarray


@numba.njit(nogil=True, cache=True, fastmath=FAST)
def add_leaves(
    at: Nodes, q: int, nodes: Nodes, r: int, Vt: np.ndarray, profile: int, out: np.ndarray, work: Scratch
) -> None:
    """out[:, i] += Σ_j g(|y_i - x_j|²) v_j over the points of two leaves: all distances, all g, the sums."""
    first, last, count = at.start[q], at.stop[q], nodes.stop[r] - nodes.start[r]
    for i in range(first, last):
        squared_distances(at.Xt, i, nodes.Xt, nodes.start[r], count, work.s, (i - first) * count)
    profiles(work.s, work.s_bits, work.z, work.z_bits, (last - first) * count, profile, work.r)
    for c in range(Vt.shape[0]):
        for i in range(first, last):
            begin, total = (i - first) * count, 0.0
            for j in range(count):
                total += work.s[begin + j] * Vt[c, nodes.start[r] + j]
            out[c, i] += total


@numba.njit(nogil=True, cache=True)
def dual(
    top: int,
    at: Nodes,
    nodes: Nodes,
    Vt: np.ndarray,
    sums: np.ndarray,
    tolerance: float,
    profile: int,
    shared: np.ndarray,
    out: np.ndarray,
    looked: np.ndarray,
) -> None:
    """Add K v at the queries under node `top` of the tree `at` to out (p, t), in tree order.

    Between two boxes g lies in [g(greatest), g(least)]. Where g(least) ≤ tolerance the pair is dropped; where
    half the range is no more than that, the middle stands for all of it; either way each v_j errs by
    tolerance |v_j| at most. Otherwise the larger box is split, and leaves are summed point by point. What a
    whole query node is owed waits in shared (nodes, p). looked counts (pairs of boxes, pairs of points); with
    no columns in Vt nothing else is done.
    """
    p = Vt.shape[0]
    most = (
        np.max((at.stop - at.start)[at.leaf]) * np.max((nodes.stop - nodes.start)[nodes.leaf]) if p > 0 else 0
    )
    s, z = np.empty(most), np.empty(most)
    work = Scratch(s, s.view(np.int64), z, z.view(np.int64), np.empty(most))
    stack = np.empty((512, 2), dtype=np.int64)
    stack[0, 0], stack[0, 1] = top, 0
    depth = 1
    while depth > 0:
        depth -= 1
        q, r = stack[depth, 0], stack[depth, 1]
        least, greatest = box_distances(at, q, nodes, r)
        looked[0] += 1
        above = profile_value(least, profile)
        if above <= tolerance:
            continue
        below = profile_value(greatest, profile)
        if above - below <= 2.0 * tolerance:
            for c in range(p):
                shared[q, c] += 0.5 * (above + below) * sums[r, c]
            continue
        queries, points = at.stop[q] - at.start[q], nodes.stop[r] - nodes.start[r]
        if at.leaf[q] and nodes.leaf[r]:
            looked[1] += queries * points
            if p > 0:
                add_leaves(at, q, nodes, r, Vt, profile, out, work)
            continue
        if nodes.leaf[r] or (not at.leaf[q] and queries >= points):
            stack[depth, 0], stack[depth, 1] = 2 * q + 1, r
            stack[depth + 1, 0], stack[depth + 1, 1] = 2 * q + 2, r
        else:
            stack[depth, 0], stack[depth, 1] = q, 2 * r + 1
            stack[depth + 1, 0], stack[depth + 1, 1] = q, 2 * r + 2
        depth += 2


@numba.njit(nogil=True, cache=True)
def hand_down(at: Nodes, shared: np.ndarray, out: np.ndarray) -> None:
    """Give what whole nodes are owed to their points: out (p, t) += shared of every ancestor."""
    for i in range(len(at.start)):
        for c in range(shared.shape[1]):
            if at.leaf[i]:
                for j in range(at.start[i], at.stop[i]):
                    out[c, j] += shared[i, c]
            else:
                shared[2 * i + 1, c] += shared[i, c]
                shared[2 * i + 2, c] += shared[i, c]
