"""Search for the rows nearest to each query, and compiled predictions of single queries from them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine.neighbours import Conditionals, too_alike
from ..errors import ParameterError
from ..model.compiled import Folded, function_shapes
from ..model.kernels.stationary import PROFILES, Stationary
from ..model.posterior import Posterior
from ..numerics.arrays import Array, to_numpy, worth_compiling
from ..numerics.blas import addresses
from ..numerics.linalg import inverse_lower
from ..numerics.workers import interruptible, row_slices, run_over, single_threaded_blas

LEAF_ROWS = 256  # the most rows of a leaf
DEEP = 24  # from so many coordinates on, boxes around leaves exclude too little
QUERIES = 1024  # queries that a thread searches for at a time


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows for predictions: inputs, residuals e = y - Φᵀw, and the variance of the noise."""

    X: Array  # (n, d)
    residuals: Array  # (n, p)
    noise: Array  # (n,), divided by the weight of the row

    def __len__(self) -> int:
        return self.X.shape[0]


@dataclass(frozen=True, eq=False)
class Near:
    """A group of queries, and the training rows that are neighbours of at least one of them."""

    queries: np.ndarray  # (t,), their numbers
    rows: np.ndarray  # (c,), the numbers of the training rows
    Phi: Array  # (c + t, m), features of these rows, then of the queries
    given: Conditionals  # the queries given their neighbours
    size: int = 0  # rows for each query if queries share none, else 0


@dataclass(frozen=True, eq=False)
class Leaves:
    """A partition of rows into leaves of near rows, each with its bounding box."""

    numbers: np.ndarray  # (n,), of the rows, leaf after leaf
    Zt: np.ndarray  # (g, n), their coordinates
    edges: np.ndarray  # (l + 1,), where each leaf begins in `numbers`
    low: np.ndarray  # (l, g), corners of the boxes
    high: np.ndarray

    @staticmethod
    def of(Z: np.ndarray) -> "Leaves":
        Z, groups = np.asarray(Z, dtype=np.float64), list(near_queries(Z, LEAF_ROWS))
        numbers, edges = np.concatenate(groups), np.cumsum([0, *map(len, groups)])
        low, high = (np.array([f(Z[rows], axis=0) for rows in groups]) for f in (np.min, np.max))
        return Leaves(numbers, np.ascontiguousarray(Z[numbers].T), edges, low, high)

    def kneighbors(self, Q: np.ndarray, count: int) -> np.ndarray:
        """Return the numbers of the `count` rows nearest to each query, nearest first. (t, count)"""
        from ..engine.neighbour_loops import nearest_rows

        N = np.empty((len(Q), count), dtype=np.int64)

        def step(_: None, some: slice) -> None:
            nearest_rows(self.Zt, self.edges, self.low, self.high, Q[some], N[some])

        some = min(QUERIES, interruptible(len(Q), self.Zt.size)[0].stop) if len(Q) else QUERIES
        run_over(row_slices(len(Q), some), lambda: None, step, parallel=len(Q) > QUERIES)
        return self.numbers[N]


class CompiledNear:
    """A compiled predictor: `predictor(x)` is (mean, variance) of f at one point x, a float64 array (d,),
    given its nearest rows; `predictor.many(X)` has those of rows (t, d), in two arrays. Nothing is checked.
    """

    def __init__(self, post: Posterior, data: Rows, Phi: np.ndarray, count: int) -> None:
        from ..engine.neighbour_loops import predict_near

        kernel, A = post.kernel, post.A
        if type(kernel) not in PROFILES or kernel.columns is not None:  # type: ignore[attr-defined]
            raise ParameterError(
                "only RBF, Matérn and rational quadratic kernels of all inputs are compiled along "
                f"neighbours, not {kernel}; use predict"
            )
        assert isinstance(kernel, Stationary) and A is not None
        Linv = inverse_lower(post.L)
        self._plain = Folded.of(kernel, post.basis, post.mean_function, post.alpha, Linv, degenerate=False)
        centers, widths, heights = function_shapes(kernel, post.basis)
        table = np.column_stack([centers, 1.0 / widths**2, heights, to_numpy(post.alpha)])
        tree = Leaves.of(np.ascontiguousarray(kernel.scaled(data.X)))
        rows = (Phi[tree.numbers], data.residuals[tree.numbers, 0], np.array(data.noise)[tree.numbers])
        self._count, self._function = count, predict_near.ready()
        self._arguments = (
            (tree.Zt, tree.edges, tree.low, tree.high),
            (table, np.ascontiguousarray(Linv), np.ascontiguousarray(A.T), np.array(kernel.scales(data.X))),
            rows,
            kernel.in_loops,
        )
        m = len(table)
        self._work = data.X.size + 3.0 * m * m + (m + count) * count**2
        self.many(data.X[:1])  # compile, or load what was compiled before

    def many(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of f at each row. (t,) each"""
        out = np.empty((len(X), 2))
        for some in [slice(None)] if len(X) == 1 else interruptible(len(X), self._work):
            if not self._function(addresses(), X[some], *self._arguments, self._count, out[some]):
                raise too_alike(float(self._arguments[2][2].min()))
        return out[:, 0] + (self._plain.bias + X @ self._plain.slope), out[:, 1]

    def __call__(self, x: np.ndarray) -> tuple[float, float]:
        mean, variance = self.many(x[None])
        return float(mean[0]), float(variance[0])


class NearestRows:
    """A search for the rows nearest to each query among those with coordinates Z (n, g)."""

    def __init__(self, Z: np.ndarray) -> None:
        self.Z = Z
        self._leaves: Leaves | None = None
        self._plain: Any = None

    def __call__(self, Q: np.ndarray, count: int) -> np.ndarray:
        """Return the numbers of the `count` nearest rows, nearest first. (t, count)"""
        n, g = self.Z.shape
        if count == 0 or not len(Q):
            return np.empty((len(Q), count), dtype=np.int64)
        if not worth_compiling(n * len(Q)):
            squares = np.sum((Q[:, None] - self.Z) ** 2, axis=2)  # (t, n)
            return np.argsort(squares, axis=1, kind="stable")[:, :count]
        if g < DEEP:
            if self._leaves is None:
                self._leaves = Leaves.of(self.Z)
            return self._leaves.kneighbors(np.ascontiguousarray(Q, dtype=np.float64), count)
        if self._plain is None:
            from sklearn.neighbors import NearestNeighbors

            self._plain = NearestNeighbors(algorithm="brute").fit(self.Z)
        with single_threaded_blas():  # scikit-learn's own limit could outlast another thread's
            return self._plain.kneighbors(Q, count, return_distance=False)


def near_queries(Z: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Yield the rows of Z in groups of at most `most` near rows, by halving along the widest column."""
    todo = [np.arange(len(Z))] if len(Z) else []
    while todo:
        rows = todo.pop()
        if len(rows) <= most:
            yield rows
            continue
        column = Z[rows, np.argmax(np.var(Z[rows], axis=0))]
        order = rows[np.argsort(column, kind="stable")]
        todo += [order[: len(rows) // 2], order[len(rows) // 2 :]]
