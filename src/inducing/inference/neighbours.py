"""The row that keeps R along nearest neighbours: its sets of rows, and its predictor, which needs the
data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..engine.neighbour_sets import MOST_ROWS, SEED, as_sets, blocks_of, find_neighbours
from ..engine.neighbours import Conditionals, add_gathered, conditionals, dense
from ..errors import ParameterError
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.means import Zero
from ..model.posterior import Marginals, Posterior, draws, warn_if_negative
from ..model.problem import Problem, as_blocks, queries_like
from ..numerics.arrays import SMALL, Array, is_numpy, namespace, to_numpy, zeros_like_rows
from ..numerics.linalg import (
    add_outer,
    cholesky,
    contiguous,
    from_lower,
    plus_diagonal,
    row_squares,
    solve_lower,
)
from ..numerics.workers import blas_for, row_slices, run_over
from . import selection

BLOCK_ROWS = 1024  # at most in a block that neighbours are looked for in
UNION_ROWS = 1024  # at most that queries looked at together may have as neighbours, if one alone has no more
FEATURE_BYTES = 1 << 27  # up to which the features of all rows are kept for queries


def with_neighbours(P: Problem) -> Problem:
    """The problem with the sets that its row of the table asks for: given, or found in blocks of near rows.

    Where every row may look at all others of its block, the block is kept as a whole.
    """
    neighbours = P.row.neighbours
    if np.ndim(neighbours) > 0:
        return _with_given(P, neighbours)
    if isinstance(neighbours, bool) or not isinstance(neighbours, int | np.integer) or neighbours < 0:
        raise ParameterError(
            f"neighbours must be a whole number from 0 on, or row numbers, not {neighbours!r}"
        )
    Z, blocks = coordinates(P.kernel, P.X), None if P.labels is None else as_blocks(P.labels, P.n)
    if blocks is None:
        blocks = [np.arange(P.n)] if neighbours >= P.n - 1 else clusters(Z)
    longest = max(map(len, blocks))
    if neighbours >= longest - 1:
        return replace(P, blocks=blocks, sets=None)
    if longest > MOST_ROWS:
        raise ParameterError(
            f"a block has {longest} rows, but neighbours are looked for in blocks of at most {MOST_ROWS}; "
            "give smaller blocks, or leave blocks= out"
        )
    return replace(P, blocks=blocks, sets=find_neighbours(Z, blocks, int(neighbours)))


def _with_given(P: Problem, neighbours: Any) -> Problem:
    """The problem with given sets, in the numbers of the data as given; rows not used are not there."""
    if P.labels is not None:
        raise ParameterError("blocks= says where to look for neighbours: leave it out, or give their number")
    sets = as_sets(neighbours, P.n_given)
    if P.kept is not None:
        numbers = np.full(P.n_given + 1, -1)  # the last one is for none
        numbers[P.kept] = np.arange(P.n)
        sets = np.sort(numbers[sets[P.kept]], axis=1)[:, ::-1]
    return replace(P, sets=sets, blocks=blocks_of(sets))


def coordinates(kernel: Kernel, X: Array) -> np.ndarray:
    """X as the kernel measures distances: columns over lengthscales; X where it measures none. (n, g)"""
    Z = to_numpy(kernel.scaled(X))
    return np.ascontiguousarray(Z if Z.shape[1] else to_numpy(X))


def clusters(Z: np.ndarray) -> list[np.ndarray]:
    """Near rows as blocks of at most BLOCK_ROWS, by k-means with a fixed seed, whatever the rows' order."""
    order, blocks = np.lexsort(Z.T[::-1]), []
    todo = [order]
    while todo:
        rows = todo.pop()
        if len(rows) <= BLOCK_ROWS:
            blocks.append(np.sort(rows))
            continue
        count = -(-3 * len(rows) // (2 * BLOCK_ROWS))
        labels = selection.nearest(Z[rows], selection.kmeans(Z[rows], count, SEED))
        parts = [rows[part] for part in as_blocks(labels, len(rows))]
        todo += parts if len(parts) > 1 else np.array_split(rows, count)  # more equal rows than fit a block
    return blocks


def near_queries(Z: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """The rows of Z in groups of at most `most` near ones: halves along the widest column, repeatedly."""
    todo = [np.arange(len(Z))] if len(Z) else []
    while todo:
        rows = todo.pop()
        if len(rows) <= most:
            yield rows
            continue
        column = Z[rows, np.argmax(np.var(Z[rows], axis=0))]
        order = rows[np.argsort(column, kind="stable")]
        todo += [order[: len(rows) // 2], order[len(rows) // 2 :]]


@dataclass(frozen=True, eq=False)
class Near:
    """Some queries, and the training rows that are neighbours of one of them."""

    queries: np.ndarray  # (t,), their numbers
    rows: np.ndarray  # (c,), the numbers of the training rows
    Phi: Array  # (c + t, m), features of these rows, then of the queries
    given: Conditionals  # the queries given their neighbours


class NeighboursPredictor:
    """The posterior of w, with each query correlated to the residuals of its nearest training rows.

    With N the n_neighbours rows nearest to a query (of all rows, not only earlier ones), b = A⁻¹c with A = (R
    + Σ)_NN and c = R_N*, and the residuals e = y - Φᵀw,

        f* = φᵀw + bᵀe_N + r,   r ~ N(0, R_** - cᵀb)
        cov(f, f') = (R_xx' - bᵀR_Nx' - b'ᵀR_N'x + bᵀ(R + Σ)_NN' b') + gᵀB⁻¹g',   g = φ - Φ_N b

    `posterior` is the Posterior of w, a process of its own that knows no neighbours.
    """

    def __init__(self, post: Posterior, problem: Problem, n_neighbours: int) -> None:
        self.posterior, self._problem, self.n_neighbours = post, problem, n_neighbours

    @staticmethod
    def of(post: Posterior, problem: Problem) -> NeighboursPredictor:
        """With as many neighbours as the problem's rows have; where those are all others, with all rows."""
        count, n = problem.row.n_neighbours, problem.n
        return NeighboursPredictor(post, problem, n if count >= n - 1 else count)

    @property
    def log_evidence(self) -> float | None:
        return self.posterior.log_evidence

    @property
    def kernel(self) -> Kernel:
        return self.posterior.kernel

    @property
    def basis(self) -> Basis:
        return self.posterior.basis

    @property
    def sets(self) -> np.ndarray | None:
        """The rows that each training row looks at, -1 for none, in the numbers of the data as given: what
        `condition(..., neighbours=sets)` takes. None where blocks are kept as a whole. (n, n_neighbours)
        """
        P = self._problem
        if P.sets is None or P.kept is None:
            return P.sets
        sets = np.full((P.n_given, P.sets.shape[1]), -1)
        sets[P.kept] = np.where(P.sets < 0, -1, P.kept[P.sets])
        return sets

    def rows(self, X: Any) -> np.ndarray:
        """The numbers of each query's neighbours among the rows of positive weight. (t, n_neighbours)"""
        return self._nearest(coordinates(self.kernel, queries_like(X, self._problem.X)))

    def predict(self, X: Any) -> Marginals:
        """Mean and variance of each f(x) on its own, some near queries at a time; `covariance` is joint."""
        X = queries_like(X, self._problem.X)
        mean, variance = zeros_like_rows((X.shape[0], self._problem.p), X), zeros_like_rows((X.shape[0],), X)

        def step(_: None, near: Near) -> None:
            mean[near.queries] = self._mean(near)
            g = near.given.times(near.Phi)
            variance[near.queries] = near.given.cond_var + row_squares(g @ self.posterior.A)

        self._over(X, step)
        warn_if_negative(variance)
        return Marginals(self._with_prior_mean(X, mean), variance)

    def mean(self, X: Any) -> Array:
        """The mean alone. (t,) or (t, p)"""
        X = queries_like(X, self._problem.X)
        mean = zeros_like_rows((X.shape[0], self._problem.p), X)

        def step(_: None, near: Near) -> None:
            mean[near.queries] = self._mean(near)

        self._over(X, step)
        return self._with_prior_mean(X, mean)

    def covariance(self, X: Any) -> Array:
        """Joint covariance of f(X). (t, t)"""
        X = queries_like(X, self._problem.X)
        P, t = self._problem, X.shape[0]
        N, coef = np.zeros((t, self.n_neighbours), dtype=int), zeros_like_rows((t, self.n_neighbours), X)

        def step(_: None, near: Near) -> None:
            N[near.queries], coef[near.queries] = near.rows[near.given.N], near.given.coef

        self._over(X, step)
        rows, places = np.unique(N, return_inverse=True)
        b = dense(places.reshape(N.shape), coef, len(rows))  # (t, c)
        Phi, Phi_N, XN = self.posterior.features(X), self._features(rows), P.X[rows]
        half = (Phi - b @ Phi_N) @ self.posterior.A
        through = b @ (P.kernel(XN, X) - Phi_N @ Phi.T)
        joint = (
            P.kernel(X, X) - Phi @ Phi.T - through - through.T + half @ half.T + (b * self._noise[rows]) @ b.T
        )
        for s in row_slices(len(rows), UNION_ROWS):
            joint = joint + b @ (P.kernel(XN, XN[s]) - Phi_N @ Phi_N[s].T) @ b[:, s].T
        return 0.5 * (joint + joint.T)

    def sample(self, X: Any, size: int = 1, rng: np.random.Generator | int | None = None) -> np.ndarray:
        """Draws of f(X) from the joint. (size, t) or (size, t, p)"""
        return draws(self.mean(X), self.covariance(X), size, rng)

    def gradient(self, X: Any) -> Array:
        """d mean / d x at each row, its neighbours held. (t, d) or (t, d, p)"""
        X = queries_like(X, self._problem.X)
        P, post = self._problem, self.posterior
        slopes = zeros_like_rows((*X.shape, P.p), X)

        def step(_: None, near: Near) -> None:
            x, N, c = X[near.queries], near.given.N, len(near.rows)
            for o in range(P.p):  # the mean is k_uᵀα + (k_N - Φ_Nᵀφ)ᵀβ with β = A⁻¹e_N
                beta = self._solved(near, o)
                inside = add_gathered(0.0 * near.Phi[c:], N, beta, near.Phi)  # Φ_N β
                weights = post.coefficients[:, o] - solve_lower(post.L, inside.T, transposed=True).T  # (t, m)
                slope = post.mean_function.input_gradient(x, o) + post.basis.input_gradient(
                    P.kernel, x, weights
                )
                slopes[near.queries, :, o] = (
                    slope + P.kernel.pullback(P.X[near.rows], x, dense(N, beta, c).T)[1]
                )

        self._over(X, step)
        return slopes[:, :, 0] if P.one_output else slopes

    @cached_property
    def _noise(self) -> Array:
        """The variance of each row's noise, a weight w counting as w rows. (n,)"""
        return self._problem.noise / self._problem.weight(slice(None))

    @cached_property
    def _residuals(self) -> Array:
        """e = y - Φᵀw of the training rows. (n, p)"""
        P = self._problem
        fitted = replace(self.posterior, mean_function=Zero()).mean(P.X)
        return P.Y - (fitted[:, None] if P.one_output else fitted)

    @cached_property
    def _kept(self) -> Array | None:
        """The features of all training rows, where there is room. (n, m)"""
        X = self._problem.X
        small = X.shape[0] * len(self.basis) * X.dtype.itemsize <= FEATURE_BYTES
        return self.posterior.features(X) if small else None

    def _features(self, rows: np.ndarray) -> Array:
        return self.posterior.features(self._problem.X[rows]) if self._kept is None else self._kept[rows]

    @cached_property
    def _tree(self) -> Any:
        from sklearn.neighbors import NearestNeighbors

        return NearestNeighbors().fit(coordinates(self.kernel, self._problem.X))

    @cached_property
    def _L(self) -> Array:
        """The factor of R + Σ of all rows, where all are neighbours of every query. (n, n)"""
        P = self._problem
        Phi = self._features(np.arange(P.n))
        return cholesky(plus_diagonal(from_lower(add_outer(P.kernel(P.X, P.X), Phi, -1.0)), self._noise))

    def _nearest(self, Z: np.ndarray) -> np.ndarray:
        n, q = self._problem.n, self.n_neighbours
        if q in (0, n) or not len(Z):
            return np.tile(np.arange(q), (len(Z), 1))
        return self._tree.kneighbors(Z, q, return_distance=False)

    def _over(self, X: Array, step: Callable[[None, Near], None]) -> None:
        """`step` over groups of near queries, on all cores."""
        Z, q = coordinates(self.kernel, X), self.n_neighbours
        numbers, _ = self._nearest(Z), (self._kept, self._residuals)  # made once, before the threads ask
        groups = list(near_queries(Z, max(1, UNION_ROWS // max(q, 1))))
        if q == self._problem.n:
            _ = self._L
        parallel = is_numpy(X) and X.shape[0] * len(self.basis) >= SMALL
        near = self._given_all if q == self._problem.n else self._given

        def one(_: None, queries: np.ndarray) -> None:
            step(None, near(X, queries, numbers[queries]))

        with blas_for(len(self.basis)):
            run_over(groups, lambda: None, one, parallel=parallel)

    def _given(self, X: Array, queries: np.ndarray, numbers: np.ndarray) -> Near:
        """Near queries given their neighbours, by the covariance of all of them together."""
        xp, P = namespace(X), self._problem
        rows, places = np.unique(numbers, return_inverse=True)
        both = xp.concat([P.X[rows], X[queries]], axis=0)
        Phi = xp.concat([self._features(rows), self.posterior.features(X[queries])], axis=0)
        own = len(rows) + np.arange(len(queries))
        noise = xp.concat([self._noise[rows], zeros_like_rows((len(queries),), X)])
        R = add_outer(P.kernel(both, both), Phi, -1.0)
        return Near(queries, rows, Phi, conditionals(R, own, places.reshape(numbers.shape), noise))

    def _given_all(self, X: Array, queries: np.ndarray, numbers: np.ndarray) -> Near:
        """Queries given all training rows."""
        P, rows, x = self._problem, np.arange(self._problem.n), X[queries]
        Phi = namespace(X).concat([self._features(rows), self.posterior.features(x)], axis=0)
        Phi_N, phi = Phi[: P.n], Phi[P.n :]
        half = solve_lower(self._L, P.kernel(P.X, x) - Phi_N @ phi.T)  # (n, t)
        coef = contiguous(solve_lower(self._L, half, transposed=True).T)
        cond_var = P.kernel.diag(x) - row_squares(phi) - row_squares(half.T)
        own = P.n + np.arange(len(queries))
        return Near(queries, rows, Phi, Conditionals(own, numbers, coef, cond_var, self._L[None]))

    def _mean(self, near: Near) -> Array:
        """φᵀw + bᵀe_N. (t, p)"""
        fitted = near.Phi[near.given.rows] @ self.posterior.w
        return add_gathered(fitted, near.given.N, near.given.coef, self._residuals[near.rows])

    def _solved(self, near: Near, output: int) -> Array:
        """A⁻¹e_N of one output, for each query. (t, n_neighbours)"""
        e = self._residuals[near.rows, output]
        if self.n_neighbours < self._problem.n:
            return near.given.solve(contiguous(e[near.given.N]))
        beta = solve_lower(self._L, solve_lower(self._L, e), transposed=True)
        return beta[near.given.N]

    def _with_prior_mean(self, X: Array, out: Array) -> Array:
        m0 = self.posterior.mean_function(X)
        out += m0 if m0.ndim == 2 else m0[:, None]
        return out[:, 0] if self._problem.one_output else out
