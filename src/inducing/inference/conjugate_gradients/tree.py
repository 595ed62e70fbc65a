"""K(Z, X) V by a dual tree, which drops far pairs of points; it pays where lengthscales are short."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...model.kernels.base import Kernel
from ...model.kernels.stationary import PROFILES
from ...numerics.arrays import SMALL
from ...numerics.workers import cores, run_over
from .blocked import as_columns, check_approximate, in_lengthscales

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
    def of(X: np.ndarray) -> "TreeNodes":
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
        from .tree_loops import dual

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
        from .tree_loops import dual, hand_down, node_sums

        nodes = self._nodes
        at = nodes if Z is None else TreeNodes.of(in_lengthscales(self.kernel, Z))
        Vt = np.ascontiguousarray(as_columns(V, len(self.X))[nodes.order].T)  # (p, n)
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
