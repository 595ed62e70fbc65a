"""Local subsets of data: an exact GP on the rows nearest to each query. [002, Subset of Data]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ConditionalError, ParameterError
from ..inference.exact import exact_posterior
from ..inference.regression import problem_of
from ..model.kernels.base import Kernel
from ..model.kernels.stationary import Stationary
from ..model.means import Mean
from ..model.posterior import Marginals
from ..model.problem import Problem, queries_like, subset
from ..numerics.arrays import Array, to_numpy, zeros_like_rows
from .mappers import Mapper, as_mapper, in_threads
from .residuals import check_gaussian


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The exact GP on the `size` training rows nearest to each query, in lengthscales if the kernel has them.

    Where a screening effect operates (Matérn kernels of little noise, queries among the data) the rest of the
    data add little [Stein 2002]. The price: O(size³) for each query, a mean that jumps where the neighbours
    change, and no joint distribution, because two queries have two different processes.
    """

    problem: Problem
    size: int
    tree: Any  # sklearn's NearestNeighbors
    mapper: Mapper = in_threads

    @property
    def log_evidence(self) -> None:
        """There is none: no two queries share a model."""

    @property
    def kernel(self) -> Kernel:
        return self.problem.kernel

    @property
    def basis(self) -> None:
        """There is none; `rows` gives each query's neighbours."""

    def rows(self, X: Any) -> np.ndarray:
        """The numbers of each query's neighbours among rows of positive weight, nearest first. (t, size)"""
        X = queries_like(X, self.problem.X)
        return self.tree.kneighbors(_in_lengthscales(self.kernel, X), self.size, return_distance=False)

    def predict(self, X: Any) -> Marginals:
        """Mean and variance of each f(x) given its neighbours."""
        X = queries_like(X, self.problem.X)
        P = self.problem
        mean, variance = zeros_like_rows((X.shape[0], P.p), X), zeros_like_rows((X.shape[0],), X)

        def one(query: tuple[int, np.ndarray]) -> tuple[int, Marginals]:
            i, rows = query
            return i, exact_posterior(subset(P, np.sort(rows))).predict(X[i : i + 1])

        for i, marginals in self.mapper(one, enumerate(self.rows(X))):
            mean[i], variance[i] = marginals.mean[0], marginals.variance[0]
        return Marginals(mean[:, 0] if P.one_output else mean, variance)

    def covariance(self, X: Any) -> Array:
        """Raise: each query has a process of its own."""
        raise ConditionalError(
            "each query has a process of its own: there is no joint covariance; use 'sod' for one process"
        )


def neighbours(
    kernel: Kernel,
    noise: Any,
    X: Any,
    y: Any,
    *,
    size: int = 50,
    mean: Mean | None = None,
    weights: Any = None,
    mapper: Any = in_threads,
) -> Neighbours:
    """Local subsets of `size` rows; `mapper` as for `committee.condition`, all else as for `condition`."""
    from sklearn.neighbors import NearestNeighbors

    P = problem_of(kernel, None, "exact", noise, X, y, mean=mean, weights=weights)
    check_gaussian(P, "local")
    if not 1 <= size <= P.n:
        raise ParameterError(f"size must lie between 1 and the number of rows ({P.n}), but is {size}")
    return Neighbours(P, size, NearestNeighbors().fit(_in_lengthscales(kernel, P.X)), as_mapper(mapper))


def _in_lengthscales(kernel: Kernel, X: Array) -> np.ndarray:
    """X in lengthscales, where the kernel is stationary."""
    return to_numpy(kernel.scaled(X) if isinstance(kernel, Stationary) else X)
