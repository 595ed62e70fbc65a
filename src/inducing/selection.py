"""Choosing where the basis starts: rules that pick at most m places from the inputs. `BY_NAME` lists them.

A rule takes (X, m, rng, weights): X (n, d), rng a seed or a generator, weights (n,) that count a row several times (one
of weight zero is not there). It returns Z (m, d), or the different rows where there are no more than m. The same rng
gives the same Z. scikit-learn is imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import EmptyDataError, ParameterError, ShapeError
from .problem import as_inputs

Rule = Callable[..., np.ndarray]

MOST_ROWS, ROWS_EACH = 10_000, 20  # k-means looks at no more rows than this, or than this many for each centre


def random_rows(X: Any, m: int, rng: Any = None, weights: Any = None) -> np.ndarray:
    """m different rows, drawn without replacement in proportion to their weights. O(n + s d), s as for `kmeans`."""
    generator = np.random.default_rng(rng)
    X, weights = _candidates(X, m, generator, weights)
    return X if len(X) <= m else X[_draw(len(X), m, generator, weights)]


def kmeans(X: Any, m: int, rng: Any = None, weights: Any = None) -> np.ndarray:
    """The centres of k-means, at most 20 Lloyd iterations from one k-means++ start.

    O(n + s m d) per iteration with s = min(n, max(10000, 20 m)): beyond that many rows the centres come from s of them,
    drawn in proportion to their weights.
    """
    generator = np.random.default_rng(rng)
    X, weights = _candidates(X, m, generator, weights)
    if len(X) <= m:
        return X
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    means = KMeans(m, n_init=1, max_iter=20, random_state=int(generator.integers(2**31)))
    with threadpool_limits(1):  # threads would add the centres up in an order of their own each time
        return means.fit(X, sample_weight=weights).cluster_centers_


def nearest(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """The number of the row of Z nearest to each row of X, in chunks. O(n m d). (n,)"""
    from sklearn.metrics import pairwise_distances_argmin

    return pairwise_distances_argmin(X, Z)


def merge_repeats(table: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different rows of a table in lexicographic order, and the total weight of each. O(n d log n)

    The order is the rows' own, and does not change with their units.
    """
    order = np.argsort(table[:, 0], kind="stable")
    if np.any(np.diff(table[order, 0]) == 0):  # else the first column has settled it
        order = np.lexsort(table.T[::-1])
    table = table[order]
    new = np.ones(len(table), dtype=bool)
    new[1:] = np.any(table[1:] != table[:-1], axis=1)
    return table[new], np.add.reduceat(weights[order], np.flatnonzero(new))


def _candidates(X: Any, m: int, rng: np.random.Generator, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """The different rows of positive weight, of a sample where there are many, and their weights."""
    X = as_inputs(X)
    if isinstance(m, bool) or not isinstance(m, int | np.integer) or m < 1:
        raise ParameterError(f"the number of points to choose must be a whole number of at least 1, but is {m!r}")
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    if weights.shape != (len(X),):
        raise ShapeError(f"weights must have one entry per row ({len(X)}), but have shape {weights.shape}")
    if not np.all(weights > 0):
        X, weights = X[weights > 0], weights[weights > 0]
    if not len(X):
        raise EmptyDataError("there is no row of positive weight to choose from; at least one is needed")
    most = max(MOST_ROWS, ROWS_EACH * m)
    if len(X) > most:
        X, weights = X[_draw(len(X), most, rng, weights)], np.ones(most)  # the draw has counted the weights
    return merge_repeats(X, weights)


def _draw(n: int, size: int, rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """`size` of n rows without replacement, in proportion to their weights. (size,)"""
    return np.sort(rng.choice(n, size=size, replace=False, p=weights / weights.sum()))


BY_NAME: dict[str, Rule] = {"random": random_rows, "kmeans": kmeans}
