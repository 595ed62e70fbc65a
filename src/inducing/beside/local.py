"""Local subsets of data: an exact GP on the rows nearest to each query. [002, Subset of Data]"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import ParameterError
from ..inference.near_rows import near_queries
from ..inference.neighbours import UNION_ROWS, NeighboursPredictor, coordinates, rows_of
from ..inference.regression import problem_of
from ..model.bases import Points
from ..model.kernels.base import Kernel
from ..model.means import Mean
from ..model.posterior import Marginals, Posterior
from ..model.problem import Problem, queries_like
from ..numerics.arrays import Array, zeros_like_rows
from .mappers import Mapper, as_mapper, in_threads
from .residuals import check_gaussian


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The exact GP on the `size` training rows nearest to each query, in lengthscales if the kernel has them.

    Where a screening effect operates (Matérn kernels of little noise, queries among the data) the rest of the
    data add little [Stein 2002]. The price: O(size³) for each query, and a mean that jumps where neighbours
    change. This is the row "neighbours" of the table without a basis, which would keep what is far, too.
    """

    problem: Problem
    size: int
    mapper: Mapper = in_threads

    @cached_property
    def _predictor(self) -> NeighboursPredictor:
        P = self.problem
        nothing, basis = P.X[:0, :0], Points(P.X[:0])
        empty = Posterior(P.kernel, basis, nothing, P.Y[:0], nothing, P.mean, one_output=P.one_output)
        return NeighboursPredictor(empty, rows_of(empty, P), self.size)

    @property
    def log_evidence(self) -> None:
        """A local model has no evidence: no two queries share one."""

    @property
    def kernel(self) -> Kernel:
        return self.problem.kernel

    @property
    def basis(self) -> None:
        """A local model has no basis; `rows` gives each query's neighbours."""

    def rows(self, X: Any) -> np.ndarray:
        """The numbers of each query's neighbours among rows of positive weight, nearest first. (t, size)"""
        return self._predictor.rows(X)

    def predict(self, X: Any) -> Marginals:
        """Mean and variance of each f(x) given its neighbours."""
        X, p, predictor = queries_like(X, self.problem.X), self.problem.p, self._predictor
        mean, variance = zeros_like_rows((X.shape[0], p), X), zeros_like_rows((X.shape[0],), X)

        def some(group: tuple[int, np.ndarray]) -> tuple[np.ndarray, Marginals]:
            return group[1], predictor.predict(X[group[1]])

        groups = near_queries(coordinates(self.kernel, X), max(1, UNION_ROWS // self.size))
        for queries, marginals in self.mapper(some, enumerate(groups)):
            mean[queries] = marginals.mean[:, None] if self.problem.one_output else marginals.mean
            variance[queries] = marginals.variance
        return Marginals(mean[:, 0] if self.problem.one_output else mean, variance)

    def covariance(self, X: Any) -> Array:
        """Joint covariance of f(X). (t, t)"""
        return self._predictor.covariance(X)


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
    P = problem_of(kernel, None, "exact", noise, X, y, mean=mean, weights=weights)
    check_gaussian(P, "local")
    if not 1 <= size <= P.n:
        raise ParameterError(f"size must lie between 1 and the number of rows ({P.n}), but is {size}")
    return Neighbours(P, size, as_mapper(mapper))
