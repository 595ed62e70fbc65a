"""Sets of neighbours that each row is conditioned on: a search inside blocks, and a check of given sets."""

import numpy as np

from ..errors import ParameterError, ShapeError
from ..model.kernels.distances import squared_distances
from ..numerics.arrays import Given, to_numpy, worth_compiling
from ..numerics.workers import run_over

SEED = 0  # of the order of the rows
MOST_ROWS = 1 << 14  # of a block, whose prior covariance takes 2 GiB then
FEW_ROWS = 1024  # of a block, about, into which sets of rows without common neighbours are joined


def find_neighbours(Z: np.ndarray, blocks: list[np.ndarray], n_neighbours: int) -> np.ndarray:
    """Return for each row of Z the `n_neighbours` nearest of the earlier rows of its block, nearest first, -1
    where there are no more. (n, n_neighbours)

    Earlier refers to a random order that follows from the rows of the block and a fixed seed; the numbers of
    the rows matter only among equal rows.
    """
    sets = np.full((len(Z), n_neighbours), -1)
    # depends on the number of rows alone, so that it is the same wherever a block is
    shuffled = [np.random.default_rng(SEED).permutation(len(rows)) for rows in blocks]
    ordered = [rows[np.lexsort(Z[rows].T[::-1])][order] for rows, order in zip(blocks, shuffled)]

    def step(_: None, rows: np.ndarray) -> None:
        N = _nearest_earlier(squared_distances(Z[rows], Z[rows]), n_neighbours)
        sets[rows] = np.where(N < 0, -1, rows[N])

    if n_neighbours:
        run_over(ordered, lambda: None, step, parallel=worth_compiling(len(Z) * n_neighbours))
    return sets


def _nearest_earlier(S: np.ndarray, q: int) -> np.ndarray:
    """Return the columns j < i of the q least entries in row i of S, of equals the first; -1: none. (b, q)"""
    b = len(S)
    N = np.full((b, q), -1)
    if worth_compiling(S.size):
        from .neighbour_loops import nearest_earlier

        nearest_earlier(S, N)
        return N
    S = np.where(np.tri(b, k=-1, dtype=bool), S, np.inf)
    order = np.argsort(S, axis=1, kind="stable")[:, :q]
    N[:, : order.shape[1]] = np.where(np.isinf(np.take_along_axis(S, order, axis=1)), -1, order)
    return N


def as_sets(neighbours: Given, n: int) -> np.ndarray:
    """Return given sets as integers (n, q), neighbours first, then -1; raise on duplicates and circles."""
    sets = to_numpy(neighbours)
    if sets.ndim != 2 or len(sets) != n or sets.dtype.kind not in "iu":
        raise ShapeError(
            f"neighbours must be a number, or row numbers of shape ({n}, q), -1 for none, but has shape "
            f"{sets.shape} of {sets.dtype}"
        )
    sets = np.sort(sets.astype(np.int64), axis=1)[:, ::-1]
    own = np.flatnonzero(np.any(sets == np.arange(n)[:, None], axis=1))
    if sets.size and (sets.min() < -1 or sets.max() >= n):
        raise ParameterError(
            f"neighbours are row numbers from 0 to {n - 1}, or -1 for none, but hold {sets.min()} to "
            f"{sets.max()}"
        )
    twice = np.flatnonzero(np.any((np.diff(sets, axis=1) == 0) & (sets[:, 1:] >= 0), axis=1))
    for rows, what in ((own, "itself"), (twice, "another row twice")):
        if len(rows):
            raise ParameterError(f"row {rows[0]} has {what} among its neighbours; leave it out")
    if _components(sets, "strong")[0] < n:
        raise ParameterError(
            "neighbours have a circle: a row may look only at rows that come before it in some order of the "
            "rows"
        )
    return np.ascontiguousarray(sets)


def blocks_of(sets: np.ndarray) -> list[np.ndarray]:
    """Return blocks of rows that are linked by neighbours, directly or through others; small ones joined."""
    count, labels = _components(sets, "weak")
    sizes = np.bincount(labels, minlength=count)
    if sizes.max() > MOST_ROWS:
        raise ParameterError(
            f"{sizes.max()} rows are linked by their neighbours, but at most {MOST_ROWS} can be; choose the "
            "neighbours of a row inside a block of rows"
        )
    together = np.cumsum(sizes) // FEW_ROWS
    order = np.argsort(together[labels], kind="stable")
    return np.split(order, np.flatnonzero(np.diff(together[labels][order])) + 1)


def _components(sets: np.ndarray, connection: str) -> tuple[int, np.ndarray]:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n, there = len(sets), sets >= 0
    edges = np.nonzero(there)[0], sets[there]
    graph = coo_array((np.ones(len(edges[0])), edges), shape=(n, n)).tocsr()
    return connected_components(graph, directed=True, connection=connection)
