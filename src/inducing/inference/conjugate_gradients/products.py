"""Products K(Z, X) V with a kernel matrix that is never kept: in blocks, by a dual tree, by the fast Gauss
transform.

Each is a value that knows the kernel and X, and is called with V: `product(V)` is K(X, X) V and `product(V,
Z)` is K(Z, X) V. The tree and the Gauss transform err, by no more than `tolerance` of the prior variance
times Σ|v|, at every row:

    |(K v)_i - product(v)_i| ≤ tolerance · k(0) · Σ_j |v_j|

Blocks cost n² whatever the kernel. A tree drops what is farther than some lengthscales, and pays where these
are short; the Gauss transform expands about a few centres, and pays where they are long. `choose` counts the
work of each. [002, Fast approximate solution of linear systems]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ...errors import ParameterError, ShapeError
from ...model.kernels.base import Kernel
from ...model.kernels.stationary import RBF, Matern12, Matern32, Matern52, Stationary
from ...numerics.arrays import SMALL, Array, is_numpy, zeros_like_rows
from ...numerics.workers import DEVICE_BYTES, chunk_rows, cores, row_slices, run_over

PROFILES: dict[type[Kernel], int] = {
    RBF: 0,
    Matern12: 1,
    Matern32: 2,
    Matern52: 3,
}  # what the tree's compiled loops know
LEAF = 32  # points in a leaf of the tree
MOST_CLUSTERS = 1024  # of the Gauss transform
MOST_TERMS, MOST_DEGREE = 1 << 16, 150  # of one expansion
SAMPLE = 256  # queries, or leaves, that costs are estimated from


class Product(Protocol):
    """K(Z, X) V for one kernel and one X; within tolerance · variance · Σ|v| of it."""

    @property
    def kernel(self) -> Kernel: ...

    @property
    def X(self) -> Array: ...

    @property
    def tolerance(self) -> float: ...

    def __call__(self, V: Array, Z: Array | None = None) -> Array: ...


def _columns(V: Array, n: int) -> Array:
    if V.ndim not in (1, 2) or V.shape[0] != n:
        raise ShapeError(
            f"V has shape {tuple(V.shape)}, but the kernel matrix has {n} columns; give one entry or row "
            "for each"
        )
    return V[:, None] if V.ndim == 1 else V


@dataclass(frozen=True, eq=False)
class Blocked:
    """Block by block, for any kernel, on the CPU or a GPU; exact. With Z = X each block below the diagonal
    serves twice, and a matrix of no more than one block is kept.
    """

    kernel: Kernel
    X: Array  # (n, d)

    @property
    def tolerance(self) -> float:
        return 0.0

    @property
    def cost(self) -> float:
        """Nanoseconds of one core for K(X, X) v."""
        return (ENTRY if isinstance(self.kernel, RBF) else 2.0 * ENTRY) * 0.5 * float(self.X.shape[0]) ** 2

    def __call__(self, V: Array, Z: Array | None = None) -> Array:
        """K(Z, X) V; Z = X if not given. Memory O(n p) on each core."""
        columns = _columns(V, self.X.shape[0])
        if not is_numpy(self.X):
            out = self._in_slabs(columns, self.X if Z is None else Z)
        else:
            columns = np.ascontiguousarray(columns)
            out = self._symmetric(columns) if Z is None else self._rectangular(columns, Z)
        return out[:, 0] if V.ndim == 1 else out

    @cached_property
    def _matrix(self) -> np.ndarray:
        return self.kernel(self.X, self.X)

    def _symmetric(self, V: np.ndarray) -> np.ndarray:
        X, n = self.X, len(self.X)
        if n <= side(self.kernel):
            return self._matrix @ V

        def start() -> tuple[np.ndarray, np.ndarray]:
            return np.zeros_like(V), np.empty(side(self.kernel) ** 2, dtype=X.dtype)

        def step(state: tuple[np.ndarray, np.ndarray], pair: tuple[slice, slice]) -> None:
            out, space = state
            i, j = pair
            K = self.kernel(X[i], X[i] if i == j else X[j], _shaped(space, i, j))
            out[i] += K @ V[j]
            if i != j:
                out[j] += K.T @ V[i]

        parts = run_over(block_pairs(self.kernel, n), start, step, parallel=n * n >= SMALL)
        return sum((out for out, _ in parts[1:]), parts[0][0])

    def _rectangular(self, V: np.ndarray, Z: np.ndarray) -> np.ndarray:
        X, out = self.X, np.zeros((len(Z), V.shape[1]))
        rows, columns = row_slices(len(Z), side(self.kernel)), row_slices(len(X), side(self.kernel))
        if (
            len(rows) < 4 * cores()
        ):  # few queries: the columns are shared out, each worker with sums of its own
            tasks = [(i, j) for j in columns for i in rows]
        else:
            tasks = [(i, j) for i in rows for j in columns]

        def start() -> tuple[np.ndarray, np.ndarray]:
            return np.zeros_like(out), np.empty(side(self.kernel) ** 2, dtype=X.dtype)

        def step(state: tuple[np.ndarray, np.ndarray], pair: tuple[slice, slice]) -> None:
            i, j = pair
            state[0][i] += self.kernel(Z[i], X[j], _shaped(state[1], i, j)) @ V[j]

        for part, _ in run_over(tasks, start, step, parallel=len(Z) * len(X) >= SMALL):
            out += part
        return out

    def _in_slabs(self, V: Array, Z: Array) -> Array:
        """On a GPU: as many rows at a time as the device's budget allows."""
        out = zeros_like_rows((Z.shape[0], V.shape[1]), self.X)
        rows = max(1, min(Z.shape[0], DEVICE_BYTES // (self.X.dtype.itemsize * self.X.shape[0])))
        for s in row_slices(Z.shape[0], rows):
            out[s] = self.kernel(Z[s], self.X) @ V
        return out


def side(kernel: Kernel) -> int:
    """Rows and columns of a block on the CPU: enough that what a call costs does not show, and few where a
    kernel needs several passes, which should find the block in cache.
    """
    return 1024 if isinstance(kernel, RBF) else 512


def block_pairs(kernel: Kernel, n: int) -> list[tuple[slice, slice]]:
    """The blocks of K(X, X) on and below its diagonal."""
    slices = row_slices(n, side(kernel))
    return [(i, j) for a, i in enumerate(slices) for j in slices[: a + 1]]


def _shaped(space: np.ndarray, i: slice, j: slice) -> np.ndarray:
    shape = i.stop - i.start, j.stop - j.start
    return space[: shape[0] * shape[1]].reshape(shape)


@dataclass(frozen=True, eq=False)
class _Nodes:
    """A k-d tree over points in lengthscales, node by node; children of node i are 2i + 1 and 2i + 2."""

    order: np.ndarray  # (n,): the rows in the order of the leaves
    start: np.ndarray  # (nodes,)
    stop: np.ndarray
    leaf: np.ndarray
    low: np.ndarray  # (nodes, d)
    high: np.ndarray
    Xt: np.ndarray  # (d, n), in that order

    @staticmethod
    def of(X: np.ndarray) -> _Nodes:
        from sklearn.neighbors import KDTree

        _, order, nodes, bounds = (np.asarray(part) for part in KDTree(X, leaf_size=LEAF).get_arrays())
        start, stop = nodes["idx_start"].astype(np.int64), nodes["idx_end"].astype(np.int64)
        leaf = nodes["is_leaf"].astype(bool)
        return _Nodes(
            order.astype(np.int64),
            start,
            stop,
            leaf,
            bounds[0].copy(),
            bounds[1].copy(),
            np.ascontiguousarray(X[order].T),
        )

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.start, self.stop, self.leaf, self.low, self.high, self.Xt

    def tops(self, count: int) -> range:
        """The nodes of one level: `count` of them or more, if the tree is deep enough."""
        levels = len(self.start).bit_length()
        level = min(levels - 1, max(0, (count - 1).bit_length()))
        return range(2**level - 1, 2 ** (level + 1) - 1)


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
        _check_approximate("tree", self.kernel, tuple(PROFILES), self.X, self.tolerance)

    @cached_property
    def _nodes(self) -> _Nodes:
        return _Nodes.of(_scaled(self.kernel, self.X))

    @cached_property
    def cost(self) -> float:
        """Nanoseconds of one core for K(X, X) v, from the boxes and points that some leaves look at."""
        from .trees import dual

        visit: Any = dual  # compiled
        nodes, looked = self._nodes, np.zeros(2, dtype=np.int64)
        leaves = np.flatnonzero(nodes.leaf)
        some = leaves[:: max(1, len(leaves) // (SAMPLE // 4))]
        none = np.empty((0, len(self.X)))
        for top in some:
            visit(
                top,
                *nodes.arrays,
                *nodes.arrays,
                none,
                np.empty((0, 0)),
                self.tolerance,
                PROFILES[type(self.kernel)],
                np.empty((0, 0)),
                none,
                looked,
            )
        share = len(leaves) / len(some)
        return share * (BOX * looked[0] + (PAIR + COORDINATE * nodes.Xt.shape[0]) * looked[1])

    def __call__(self, V: np.ndarray, Z: np.ndarray | None = None) -> np.ndarray:
        """K(Z, X) V within the tolerance. Memory O((n + t) p)."""
        from .trees import dual, hand_down, node_sums

        visit: Any = dual  # compiled
        nodes = self._nodes
        at = nodes if Z is None else _Nodes.of(_scaled(self.kernel, Z))
        Vt = np.ascontiguousarray(_columns(V, len(self.X))[nodes.order].T)  # (p, n)
        sums = np.empty((len(nodes.start), Vt.shape[0]))
        node_sums(nodes.start, nodes.stop, nodes.leaf, Vt, sums)
        shared, out = np.zeros((len(at.start), Vt.shape[0])), np.zeros((Vt.shape[0], len(at.order)))

        def step(looked: np.ndarray, top: int) -> None:
            visit(
                top,
                *at.arrays,
                *nodes.arrays,
                Vt,
                sums,
                self.tolerance,
                PROFILES[type(self.kernel)],
                shared,
                out,
                looked,
            )

        tops = list(at.tops(16 * cores()))
        run_over(
            tops, lambda: np.zeros(2, dtype=np.int64), step, parallel=len(self.X) * len(at.order) >= SMALL
        )
        hand_down(at.start, at.stop, at.leaf, shared, out)
        result = np.empty((len(at.order), Vt.shape[0]))
        result[at.order] = self.kernel.variance * out.T  # type: ignore[attr-defined]
        return result[:, 0] if V.ndim == 1 else result


@dataclass(frozen=True, eq=False)
class _Clusters:
    """Centres for expansions: which one each row belongs to, and how far its rows lie from it."""

    owner: np.ndarray  # (n,)
    centres: np.ndarray  # (K, d)
    radii: np.ndarray  # (K,)

    @staticmethod
    def of(X: np.ndarray, owner: np.ndarray) -> _Clusters:
        """About the middle of each cluster's box, which halves the radius about its first point at best."""
        count = int(owner.max()) + 1
        low, high = np.full((count, X.shape[1]), np.inf), np.full((count, X.shape[1]), -np.inf)
        np.minimum.at(low, owner, X)
        np.maximum.at(high, owner, X)
        centres = 0.5 * (low + high)
        radii = np.zeros(count)
        np.maximum.at(radii, owner, np.linalg.norm(X - centres[owner], axis=1))
        return _Clusters(owner, centres, radii)

    def reach(self, Y: np.ndarray, tolerance: float) -> np.ndarray:
        """How far from each centre queries are looked at: beyond radius + √(-2 log ε) all is below ε. (K,)"""
        low, high = Y.min(axis=0), Y.max(axis=0)
        corner = np.maximum(np.abs(self.centres - low), np.abs(self.centres - high))
        farthest = (1.0 + 1e-12) * np.linalg.norm(corner, axis=1)  # and not less by rounding
        return np.minimum(self.radii + math.sqrt(-2.0 * math.log(tolerance)), farthest)

    def degrees(self, reach: np.ndarray, tolerance: float) -> np.ndarray:
        """The least p for each cluster that keeps its expansion within tolerance. (K,)"""
        degrees, open_ = np.ones(len(self.radii), dtype=np.int64), np.ones(len(self.radii), dtype=bool)
        for p in range(1, MOST_DEGREE):
            open_ &= truncation(p, self.radii, reach) > tolerance
            if not open_.any():
                break
            degrees[open_] = p + 1
        return degrees


def truncation(p: int, radius: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """The greatest error of exp(-|x - y|²/2) expanded about c to total degree p - 1, a = |x - c| ≤ radius, b
    = |y - c| ≤ reach.

    exp(u·w) less its first p terms is at most (ab)^p/p! exp(ab), so the error is (ab)^p/p! exp(-(a - b)²/2).
    In a alone that is greatest at (b + √(b² + 4p))/2, and likewise in b; both cannot be there, so one lies at
    its limit. [Raykar et al. 2005]
    """
    best = np.zeros_like(radius)
    pairs = (
        (radius, np.minimum(reach, 0.5 * (radius + np.sqrt(radius**2 + 4.0 * p)))),
        (np.minimum(radius, 0.5 * (reach + np.sqrt(reach**2 + 4.0 * p))), reach),
    )
    for a, b in pairs:
        some = (a > 0) & (b > 0)
        log = p * np.log(np.where(some, a * b, 1.0)) - math.lgamma(p + 1.0) - 0.5 * (a - b) ** 2
        best = np.maximum(best, np.where(some, np.exp(np.minimum(log, 1.0)), 0.0))
    return best


def _terms(d: int, degrees: np.ndarray) -> np.ndarray:
    """How many monomials of d inputs have a total degree below each."""
    table = np.array([0.0] + [float(math.comb(d + p - 1, d)) for p in range(1, int(degrees.max()) + 1)])
    return table[degrees]


@dataclass(frozen=True, eq=False)
class Gauss:
    """The improved fast Gauss transform, for the RBF kernel. [Yang, Duraiswami, Davis 2005], [Raykar et al.
    2005]

        exp(-|x - y|²/2) = exp(-|x - c|²/2) exp(-|y - c|²/2) Σ_α (x - c)^α (y - c)^α / α!

    Farthest-point clusters give centres c; sums over a cluster's rows are taken once for each α of total
    degree below p, and each query adds up the clusters within reach. How many clusters, and which p for each,
    follow from the tolerance.
    """

    kernel: Kernel
    X: np.ndarray  # (n, d)
    tolerance: float

    def __post_init__(self) -> None:
        _check_approximate("Gauss transform", self.kernel, (RBF,), self.X, self.tolerance)

    @cached_property
    def _scaled_X(self) -> np.ndarray:
        return np.ascontiguousarray(_scaled(self.kernel, self.X))

    @cached_property
    def _plan(self) -> tuple[_Clusters, float]:
        """The number of clusters, of 1, 2, 4, ..., that costs least, and that cost."""
        from .gauss_transform import farthest_points

        X, n, d = self._scaled_X, len(self.X), self._scaled_X.shape[1]
        most = max(1, min(MOST_CLUSTERS, n // 4))
        owner, snapshots = np.zeros(n, dtype=np.int64), np.zeros((most.bit_length(), n), dtype=np.int64)
        taken = farthest_points(X, most, owner, np.empty(n), snapshots)
        best: tuple[_Clusters, float] | None = None
        some = X[:: max(1, n // SAMPLE)]
        for snapshot in snapshots[: taken.bit_length()]:
            clusters = _Clusters.of(X, snapshot)
            reach = clusters.reach(X, self.tolerance)
            degrees = clusters.degrees(reach, self.tolerance)
            terms = _terms(d, degrees)
            if degrees.max() == MOST_DEGREE or terms.max() > MOST_TERMS:
                continue
            distances = np.linalg.norm(some[:, None, :] - clusters.centres, axis=2)  # (some, K)
            each = POINT + STEP * d * degrees + TERM * terms  # (K,)
            cost = n * (
                np.mean(each[clusters.owner]) + np.mean((distances <= reach) @ each) + CENTRE * len(terms)
            )
            if best is None or cost < best[1]:
                best = clusters, cost
        if best is None:
            raise ParameterError(
                f"the Gauss transform needs more than {MOST_TERMS} terms for a tolerance of "
                f"{self.tolerance:g} in {d} "
                "dimensions with this lengthscale; use the tree or blocks"
            )
        return best

    @property
    def cost(self) -> float:
        """Nanoseconds of one core for K(X, X) v; infinite where it would need too many terms."""
        try:
            return self._plan[1]
        except ParameterError:
            return math.inf

    def __call__(self, V: np.ndarray, Z: np.ndarray | None = None) -> np.ndarray:
        """K(Z, X) V within the tolerance. Memory O(clusters · terms · p) on each core."""
        from .gauss_transform import evaluate, gather, heads_and_factors

        clusters, X = self._plan[0], self._scaled_X
        Y = X if Z is None else np.ascontiguousarray(_scaled(self.kernel, Z))
        columns = np.ascontiguousarray(_columns(V, len(X)))
        reach = clusters.reach(Y, self.tolerance)
        degrees = clusters.degrees(reach, self.tolerance)
        heads, factors, _ = heads_and_factors(X.shape[1], int(degrees.max()))
        shape = (len(degrees), columns.shape[1], len(factors))

        def start() -> tuple[np.ndarray, np.ndarray]:
            return np.zeros(shape), np.empty(len(factors))

        def collect(state: tuple[np.ndarray, np.ndarray], s: slice) -> None:
            gather(X, clusters.owner, columns, s.start, s.stop, clusters.centres, degrees, heads, *state)

        parallel = len(X) * len(factors) >= SMALL
        parts = run_over(row_slices(len(X), -(-len(X) // cores())), start, collect, parallel=parallel)
        C = sum((part[0] for part in parts[1:]), parts[0][0]) * (self.kernel.variance * factors)  # type: ignore[attr-defined]
        out = np.zeros((len(Y), columns.shape[1]))

        def spread(scratch: np.ndarray, s: slice) -> None:
            evaluate(Y, s.start, s.stop, clusters.centres, reach, degrees, heads, C, scratch, out)

        tasks = row_slices(len(Y), chunk_rows(len(Y), len(factors), Y))
        run_over(tasks, lambda: np.empty(len(factors)), spread, parallel=parallel)
        return out[:, 0] if V.ndim == 1 else out


# Nanoseconds on one core of a server of 2023, for one column of V; only their ratios matter.
ENTRY = 3.4  # a kernel entry of a block, used twice
PAIR, COORDINATE = 4.5, 1.5  # a pair of points in two leaves, and each of its coordinates
BOX = 60.0  # a pair of boxes
TERM, STEP, POINT = (
    1.0,
    8.0,
    30.0,
)  # a term of an expansion; its degree, for each coordinate; that there is one
CENTRE = 3.0  # a centre looked at


def choose(kernel: Kernel, X: Array, tolerance: float = 0.0) -> Product:
    """The product of least cost for K(X, X) v within the tolerance; exact, and in blocks, for a tolerance of
    0.

    Costs are counted, not guessed from the lengthscale: n²/2 entries for blocks; the boxes and points that a
    sample of leaves look at for the tree; the terms and centres of the best plan for the Gauss transform.
    Other kernels and a GPU's arrays go in blocks.
    """
    blocks = Blocked(kernel, X)
    if tolerance == 0.0 or not is_numpy(X) or type(kernel) not in PROFILES:
        return blocks
    rivals: list[Any] = [blocks, Tree(kernel, X, tolerance)]
    if isinstance(kernel, RBF):
        rivals.append(Gauss(kernel, X, tolerance))
    return min(rivals, key=lambda product: product.cost)


def _scaled(kernel: Kernel, X: np.ndarray) -> np.ndarray:
    assert isinstance(kernel, Stationary)
    return kernel.scaled(X)


def _check_approximate(
    what: str, kernel: Kernel, kernels: tuple[type[Kernel], ...], X: Any, tolerance: float
) -> None:
    if type(kernel) not in kernels:
        names = ", ".join(k.__name__ for k in kernels)
        raise ParameterError(
            f"the {what} is for {names} kernels, not for {type(kernel).__name__}; use blocks"
        )
    if not is_numpy(X):
        raise ParameterError(f"the {what} runs on NumPy arrays, not on {type(X).__name__}; use blocks")
    if not 0.0 < tolerance < 1.0:
        raise ParameterError(
            f"the {what}'s tolerance must lie between 0 and 1, but is {tolerance}; use blocks for none"
        )
