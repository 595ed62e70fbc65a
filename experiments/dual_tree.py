"""K(Z, X) V by a dual tree, which drops far pairs of points; it pays where lengthscales are short.

Inputs are in units of the lengthscale; `profile` is the number of the kernel's g in `stationary.PROFILES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp, sqrt
from typing import NamedTuple

import numpy as np

from inducing.inference.conjugate_gradients.products import checked_columns
from inducing.model.kernels.base import Kernel
from inducing.model.kernels.stationary import PROFILES
from inducing.numerics.arrays import SMALL
from inducing.numerics.compiling import FAST, compiled, helper
from inducing.numerics.exponential import EXACT, exponential
from inducing.numerics.workers import cores, run_over

from .fast_products import check_approximate, in_lengthscales

LEAF = 32  # points in a leaf
SAMPLED_LEAVES = 64  # that costs are estimated from
PAIR, COORDINATE, BOX = 4.5, 1.5, 60.0  # costs of a pair of points, of each coordinate, of a pair of boxes


class TreeNodes(NamedTuple):
    """A k-d tree over points in lengthscales, node by node; children of node i are 2i + 1 and 2i + 2."""

    order: np.ndarray  # (n,): the rows in the order of the leaves
    start: np.ndarray  # (nodes,)
    stop: np.ndarray
    leaf: np.ndarray
    low: np.ndarray  # (nodes, d)
    high: np.ndarray
    Xt: np.ndarray  # (d, n), in that order

    @staticmethod
    def of(X: np.ndarray) -> TreeNodes:
        from sklearn.neighbors import KDTree

        _, order, nodes, bounds = (np.asarray(part) for part in KDTree(X, leaf_size=LEAF).get_arrays())
        start, stop = nodes["idx_start"].astype(np.int64), nodes["idx_end"].astype(np.int64)
        leaf, low, high = nodes["is_leaf"].astype(bool), bounds[0].copy(), bounds[1].copy()
        order, Xt = order.astype(np.int64), np.ascontiguousarray(X[order].T)
        return TreeNodes(order, start, stop, leaf, low, high, Xt)

    def tops(self, count: int) -> list[int]:
        """The nodes of one level: `count` of them or more, if the tree is deep enough."""
        levels = len(self.start).bit_length()
        level = min(levels - 1, max(0, (count - 1).bit_length()))
        return list(range(2**level - 1, 2 ** (level + 1) - 1))


@helper()
def profile_value(s: float, profile: float) -> float:
    """The RBF kernel (0), or Matérn ½, 3/2 or 5/2 (1, 2, 3), of variance 1 at the squared distance s."""
    if profile == 0:
        return exp(-0.5 * s)
    if profile == 1:
        return exp(-sqrt(s))
    if profile == 2:
        r = sqrt(3.0 * s)
        return (1.0 + r) * exp(-r)
    r = sqrt(5.0 * s)
    return (1.0 + r + r * r / 3.0) * exp(-r)


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


@dataclass(frozen=True, eq=False)
class Tree:
    """A dual tree over X and the queries, for kernels that fall with the distance (RBF, Matérn). [Gray 2004]

    Two boxes between which the kernel is nearly constant need one number for all their pairs; boxes farther
    apart than the kernel reaches need none. What is near is summed point by point.
    """

    kernel: Kernel
    X: np.ndarray  # (n, d)
    tolerance: float

    def __post_init__(self) -> None:
        check_approximate("tree", self, tuple(PROFILES))

    @cached_property
    def _nodes(self) -> TreeNodes:
        return TreeNodes.of(in_lengthscales(self.kernel, self.X))

    @cached_property
    def cost(self) -> float:
        """Nanoseconds of one core for K(X, X) v, from the boxes and points that some leaves look at."""
        nodes, looked = self._nodes, np.zeros(2, dtype=np.int64)
        leaves = np.flatnonzero(nodes.leaf)
        some = leaves[:: max(1, len(leaves) // SAMPLED_LEAVES)]
        none, nothing = np.empty((0, len(self.X))), np.empty((0, 0))
        for top in some:
            dual(top, nodes, nodes, none, nothing, self.tolerance, self._profile, nothing, none, looked)
        share = len(leaves) / len(some)
        return share * (BOX * looked[0] + (PAIR + COORDINATE * nodes.Xt.shape[0]) * looked[1])

    def __call__(self, V: np.ndarray, Z: np.ndarray | None = None) -> np.ndarray:
        """K(Z, X) V within the tolerance. Memory O((n + t) p)."""
        nodes = self._nodes
        at = nodes if Z is None else TreeNodes.of(in_lengthscales(self.kernel, Z))
        Vt = np.ascontiguousarray(checked_columns(V, len(self.X))[nodes.order].T)  # (p, n)
        sums = np.empty((len(nodes.start), Vt.shape[0]))
        node_sums(nodes, Vt, sums)
        shared, out = np.zeros((len(at.start), Vt.shape[0])), np.zeros((Vt.shape[0], len(at.order)))

        def step(looked: np.ndarray, top: int) -> None:
            dual(top, at, nodes, Vt, sums, self.tolerance, self._profile, shared, out, looked)

        parallel = len(self.X) * len(at.order) >= SMALL
        run_over(at.tops(16 * cores()), lambda: np.zeros(2, dtype=np.int64), step, parallel=parallel)
        hand_down(at, shared, out)
        result = np.empty((len(at.order), Vt.shape[0]))
        result[at.order] = self.kernel.variance * out.T  # type: ignore[attr-defined]
        return result[:, 0] if V.ndim == 1 else result

    @property
    def _profile(self) -> int:
        return PROFILES[type(self.kernel)]
