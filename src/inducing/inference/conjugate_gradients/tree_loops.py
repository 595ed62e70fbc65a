"""Compiled loops of the dual tree: pairs of boxes that need nothing, one number, or all pairs of points.

Inputs are in units of the lengthscale; `profile` is the number of the kernel's g in `stationary.PROFILES`.
"""

import numpy as np

from ...numerics.compiling import FAST, compiled, helper
from ...numerics.exponential import EXACT, exponential
from ...numerics.loops import profile_value
from .tree import TreeNodes


@helper(fastmath=EXACT)
def profiles(s: np.ndarray, count: int, profile: int, r: np.ndarray) -> None:
    """g of the first `count` squared distances, in place; r is scratch, for the Matérn kernels."""
    if profile == 0:
        for j in range(count):
            s[j] = exponential(-0.5 * s[j])
        return
    factor = 1.0 if profile == 1 else 3.0 if profile == 2 else 5.0
    for j in range(count):
        r[j] = np.sqrt(factor * s[j])
        s[j] = exponential(-r[j])
    if profile == 2:
        for j in range(count):
            s[j] *= 1.0 + r[j]
    elif profile == 3:
        for j in range(count):
            s[j] *= 1.0 + r[j] * (1.0 + r[j] / 3.0)


@helper(fastmath=FAST)
def box_distances(at: TreeNodes, q: int, nodes: TreeNodes, r: int) -> tuple[float, float]:
    """The least and the greatest squared distance between points of two boxes."""
    least, greatest = 0.0, 0.0
    for k in range(at.low.shape[1]):
        gap = max(nodes.low[r, k] - at.high[q, k], at.low[q, k] - nodes.high[r, k])
        if gap > 0.0:
            least += gap * gap
        span = max(nodes.high[r, k] - at.low[q, k], at.high[q, k] - nodes.low[r, k])
        greatest += span * span
    return least, greatest


@compiled()
def node_sums(nodes: TreeNodes, Vt: np.ndarray, sums: np.ndarray) -> None:
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


@helper(fastmath=FAST)
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


@helper(fastmath=FAST)
def add_leaves(
    at: TreeNodes,
    q: int,
    nodes: TreeNodes,
    r: int,
    Vt: np.ndarray,
    profile: int,
    out: np.ndarray,
    s: np.ndarray,
    scratch: np.ndarray,
) -> None:
    """out[:, i] += Σ_j g(|y_i - x_j|²) v_j over two leaves; s and scratch have room for all pairs."""
    first, last, count = at.start[q], at.stop[q], nodes.stop[r] - nodes.start[r]
    for i in range(first, last):
        squared_distances(at.Xt, i, nodes.Xt, nodes.start[r], count, s, (i - first) * count)
    profiles(s, (last - first) * count, profile, scratch)
    for c in range(Vt.shape[0]):
        for i in range(first, last):
            begin, total = (i - first) * count, 0.0
            for j in range(count):
                total += s[begin + j] * Vt[c, nodes.start[r] + j]
            out[c, i] += total


@compiled()
def dual(
    top: int,
    at: TreeNodes,
    nodes: TreeNodes,
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
    s, scratch = np.empty(most), np.empty(most)
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
                add_leaves(at, q, nodes, r, Vt, profile, out, s, scratch)
            continue
        if nodes.leaf[r] or (not at.leaf[q] and queries >= points):
            stack[depth, 0], stack[depth, 1] = 2 * q + 1, r
            stack[depth + 1, 0], stack[depth + 1, 1] = 2 * q + 2, r
        else:
            stack[depth, 0], stack[depth, 1] = q, 2 * r + 1
            stack[depth + 1, 0], stack[depth + 1, 1] = q, 2 * r + 2
        depth += 2


@compiled()
def hand_down(at: TreeNodes, shared: np.ndarray, out: np.ndarray) -> None:
    """Give what whole nodes are owed to their points: out (p, t) += shared of every ancestor."""
    for i in range(len(at.start)):
        for c in range(shared.shape[1]):
            if at.leaf[i]:
                for j in range(at.start[i], at.stop[i]):
                    out[c, j] += shared[i, c]
            else:
                shared[2 * i + 1, c] += shared[i, c]
                shared[2 * i + 2, c] += shared[i, c]
