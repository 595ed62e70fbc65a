"""The row "neighbours" of the table, which keeps R along nearest neighbours: its sets and its predictor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..engine.compiled_passes import expects, in_batches
from ..engine.neighbour_sets import MOST_ROWS, SEED, as_sets, blocks_of, find_neighbours
from ..engine.neighbours import Conditionals, add_sparse, conditionals, conditionals_by_pairs, dense
from ..engine.parts import Parted, Setting
from ..errors import ModelFileError, ParameterError
from ..files.models import save
from ..files.records import ROWS_PREFIX, Arrays, Plain, array, expect, posterior_from, posterior_record
from ..model.kernels.base import Kernel
from ..model.kernels.stationary import PROFILES, Stationary
from ..model.means import Zero
from ..model.posterior import Marginals, Posterior, draws, warn_if_negative
from ..model.problem import Problem, above_rounding, as_blocks, queries_like
from ..numerics import batched as small
from ..numerics.arrays import (
    LARGEST_NUMBER,
    SMALL,
    Array,
    indices_like,
    is_numpy,
    namespace,
    to_numpy,
    worth_compiling,
    zeros_like_rows,
)
from ..numerics.linalg import (
    add_outer,
    cholesky,
    contiguous,
    from_lower,
    plus_diagonal,
    row_squares,
    solve_lower,
)
from ..numerics.workers import DEVICE_BYTES, blas_for, row_slices, run_over
from ..sources.source import Part
from . import selection
from .near_rows import CompiledNear, Near, NearestRows, Rows, near_queries
from .pic import Corrected

BLOCK_ROWS = 1024  # the most rows of a block in which neighbours are searched for
UNION_ROWS = 1024  # the most neighbours, all together, of a group of queries that is not one query alone
NEAR_QUERIES = 128  # the most queries in a group when the kernel is computed for pairs of neighbours only
FEATURE_BYTES = 1 << 30  # the most memory for the features of all training rows


def with_neighbours(P: Problem) -> Problem:
    """Return the problem with each row's set of neighbours, as given or searched for in blocks of near rows.

    If every row may depend on all others of its block, the block is kept as a whole.
    """
    neighbours, _ = P.row.neighbours, expects(P, surely=True)
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
    return in_batches(replace(P, blocks=blocks, sets=find_neighbours(Z, blocks, int(neighbours))))


def _with_given(P: Problem, neighbours: Array) -> Problem:
    """Return the problem with the sets given, renumbered without the rows that the problem leaves out."""
    if P.labels is not None:
        raise ParameterError("blocks= says where to look for neighbours: leave it out, or give their number")
    sets = as_sets(neighbours, P.n_given)
    if P.kept is not None:
        numbers = np.full(P.n_given + 1, -1)  # the last is the target of -1, no neighbour
        numbers[P.kept] = np.arange(P.n)
        sets = np.sort(numbers[sets[P.kept]], axis=1)[:, ::-1]
    return in_batches(replace(P, sets=sets, blocks=blocks_of(sets)))


def coordinates(kernel: Kernel, X: Array) -> np.ndarray:
    """Return X as the kernel measures distances, divided by lengthscales; else X itself. (n, g)"""
    Z = to_numpy(kernel.scaled(X))
    return np.ascontiguousarray(Z if Z.shape[1] else to_numpy(X))


def clusters(Z: np.ndarray) -> list[np.ndarray]:
    """Group near rows into blocks of at most BLOCK_ROWS by k-means, whatever the order of the rows."""
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


def rows_of(post: Posterior, P: Problem) -> Rows:
    """Return the training rows of a problem with Gaussian noise, and their residuals y - Φᵀw."""
    fitted = replace(post, mean_function=Zero()).mean(P.X)
    residuals = P.Y - (fitted[:, None] if post.one_output else fitted)
    return Rows(P.X, residuals, P.noise / P.weight(slice(None)))


def _rows_of_part(part: Part, setting: Setting, post: Posterior) -> Rows:
    if not len(part.X):
        return Rows(part.X, part.Y, part.X[:, 0])
    rows = rows_of(post, replace(setting, search=None).on(part))
    return Rows(*(to_numpy(a) for a in (rows.X, rows.residuals, rows.noise)))


def _given_sets(P: Problem) -> np.ndarray | None:
    """Return the sets of a problem, with rows numbered as in the data given."""
    if P.sets is None or P.kept is None:
        return P.sets
    sets = np.full((P.n_given, P.sets.shape[1]), -1)
    sets[P.kept] = np.where(P.sets < 0, -1, P.kept[P.sets])
    return sets


class NeighboursPredictor(Corrected):
    """A predictor that corrects the posterior of w by the residuals of each query's nearest training rows.

    With N the n_neighbours rows nearest to a query (of all rows, not only earlier ones), b = A⁻¹c with A = (R
    + Σ)_NN and c = R_N*, and the residuals e = y - Φᵀw,

        f* = φᵀw + bᵀe_N + r,   r ~ N(0, R_** - cᵀb)
        cov(f, f') = (R_xx' - bᵀR_Nx' - b'ᵀR_N'x + bᵀ(R + Σ)_NN' b') + gᵀB⁻¹g',   g = φ - Φ_N b

    `posterior` is the Posterior of w alone, without neighbours.
    """

    def __init__(
        self, post: Posterior, data: Rows, n_neighbours: int, sets: np.ndarray | None = None
    ) -> None:
        noise = above_rounding(data.noise, post.kernel, data.X)
        self.posterior, self.data, self.n_neighbours = post, replace(data, noise=noise), n_neighbours
        self._least = float(noise.min())
        # the neighbours of each training row, as `condition(..., neighbours=sets)` takes them: numbers in the
        # data given, -1 for none; None if blocks are kept as a whole, or the predictor is from a file
        self.sets = sets

    @staticmethod
    def of(post: Posterior, problem: Problem) -> NeighboursPredictor:
        """Make the predictor of a problem, with as many neighbours for each query as its rows have."""
        count, n = problem.row.n_neighbours, problem.n
        return NeighboursPredictor(
            post, rows_of(post, problem), n if count >= n - 1 else count, _given_sets(problem)
        )

    @staticmethod
    def over(post: Posterior, P: Parted) -> NeighboursPredictor:
        """Make the predictor on a source's rows, which are read once and kept in memory, part after part."""
        parts = [part for part in P.source.map(_rows_of_part, P.setting, post) if len(part)]
        names = ("X", "residuals", "noise")
        rows = Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
        count, n = P.row.n_neighbours, len(rows)
        return NeighboursPredictor(post, rows, n if count >= n - 1 else count)

    @property
    def _p(self) -> int:
        return self.data.residuals.shape[1]

    def save(
        self, path: str | Path, metadata: dict[str, Any] | None = None, precision: str = "double"
    ) -> int:
        """Write the predictor with its training rows, in double or single precision, to a file for
        `inducing.load`, and return the file's size in bytes.
        """
        return save(self, path, metadata, precision)

    def to_record(self) -> tuple[Plain, Arrays]:
        """Describe the predictor: the record of its posterior, and the training rows."""
        plain, arrays = posterior_record(self.posterior)
        more, rows = self.rows_record()
        return plain | more, arrays | rows

    def rows_record(self) -> tuple[Plain, Arrays]:
        """Describe what the predictor has beside its posterior."""
        X, residuals, noise = (to_numpy(a) for a in (self.data.X, self.data.residuals, self.data.noise))
        noise = noise[0] if np.all(noise == noise[0]) else noise
        arrays = {"X": X, "residuals": residuals, "noise": noise}
        return {"n_neighbours": self.n_neighbours}, {ROWS_PREFIX + name: a for name, a in arrays.items()}

    @classmethod
    def from_record(
        cls, plain: Plain, arrays: Arrays, posterior: Posterior | None = None
    ) -> NeighboursPredictor:
        """Make the predictor of a record; raise if its parts do not fit together."""
        post = posterior_from(plain, arrays) if posterior is None else posterior
        X, residuals = (array(arrays, ROWS_PREFIX + name, 2) for name in ("X", "residuals"))
        noise, count, n = array(arrays, ROWS_PREFIX + "noise"), plain["n_neighbours"], len(X)
        d = post.basis.centers.shape[1]
        expect(X.shape[1] == d and n > 0, "rows.X", X)
        expect(residuals.shape == (n, post.w.shape[1]), "rows.residuals", residuals)
        expect(noise.shape in ((), (n,)) and bool(np.all(noise >= 1.0 / LARGEST_NUMBER)), "rows.noise", noise)
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= n:
            raise ModelFileError(f"it has {count!r} neighbours for {n} rows")
        return cls(post, Rows(X, residuals, np.broadcast_to(noise, (n,))), count)

    def beside(self, other: NeighboursPredictor) -> NeighboursPredictor:
        """Share the search and the features of another predictor of the same kernel, basis and inputs."""
        for name in ("_search", "_kept"):
            vars(self)[name] = getattr(other, name)
        return self

    def compile(self) -> CompiledNear:
        """Return a predictor of single queries in microseconds: `near.compile()(x)` is (mean, variance),
        `near.compile().many(X)` that of rows. The features of all training rows stay in memory.
        """
        n, q, one = len(self.data), self.n_neighbours, self.posterior.one_output
        if not is_numpy(self.data.X) or self._kept is None or q == n or not one:
            raise ParameterError(
                f"a model of {self._p} outputs with {q} of {n} rows as neighbours cannot be compiled: that "
                "needs one output, NumPy arrays, fewer neighbours than rows, and the features of all rows "
                f"within {FEATURE_BYTES >> 20} MB; use predict"
            )
        return CompiledNear(self.posterior, self.data, self._kept, q)

    def rows(self, X: Array) -> np.ndarray:
        """Return each query's neighbours, as numbers among the rows of positive weight. (t, n_neighbours)"""
        return self._nearest(coordinates(self.kernel, queries_like(X, self.data.X)))

    def predict(self, X: Array) -> Marginals:
        """Return mean and variance of each f(x) on its own; `covariance` is joint."""
        X = queries_like(X, self.data.X)
        mean, variance = zeros_like_rows((X.shape[0], self._p), X), zeros_like_rows((X.shape[0],), X)

        def step(_: None, near: Near) -> None:
            mean[near.queries] = self._mean(near)
            g = near.given.times(near.Phi)
            variance[near.queries] = near.given.cond_var + row_squares(g @ self.posterior.A)

        self._over(X, step, batched=True)
        warn_if_negative(variance)
        return Marginals(self.posterior.with_prior_mean(X, mean), variance)

    def mean(self, X: Array) -> Array:
        """Return the mean alone. (t,) or (t, p)"""
        X = queries_like(X, self.data.X)
        mean = zeros_like_rows((X.shape[0], self._p), X)

        def step(_: None, near: Near) -> None:
            mean[near.queries] = self._mean(near)

        self._over(X, step, batched=True)
        return self.posterior.with_prior_mean(X, mean)

    def covariance(self, X: Array) -> Array:
        """Return the joint covariance of f(X). (t, t)"""
        X = queries_like(X, self.data.X)
        kernel, t = self.kernel, X.shape[0]
        N, coef = np.zeros((t, self.n_neighbours), dtype=int), zeros_like_rows((t, self.n_neighbours), X)

        def step(_: None, near: Near) -> None:
            N[near.queries], coef[near.queries] = near.rows[near.given.N], near.given.coef

        self._over(X, step)
        rows, places = np.unique(N, return_inverse=True)
        b = dense(places.reshape(N.shape), coef, len(rows))  # (t, c)
        Phi, Phi_N, XN = self.posterior.features(X), self._features(rows), self.data.X[rows]
        half = (Phi - b @ Phi_N) @ self.posterior.A
        through = b @ (kernel.covariances(XN, X) - Phi_N @ Phi.T)
        joint = kernel.covariances(X, X) - Phi @ Phi.T - through - through.T
        joint = joint + half @ half.T + (b * self.data.noise[rows]) @ b.T
        for s in row_slices(len(rows), UNION_ROWS):
            joint = joint + b @ (kernel.covariances(XN, XN[s]) - Phi_N @ Phi_N[s].T) @ b[:, s].T
        return 0.5 * (joint + joint.T)

    def sample(self, X: Array, size: int = 1, rng: np.random.Generator | int | None = None) -> np.ndarray:
        """Draw from the joint distribution of f(X). (size, t) or (size, t, p)"""
        return draws(self.mean(X), self.covariance(X), size, rng)

    def gradient(self, X: Array) -> Array:
        """Return d mean / d x at each row, with its neighbours held fixed. (t, d) or (t, d, p)"""
        X = queries_like(X, self.data.X)
        kernel, post = self.kernel, self.posterior
        slopes = zeros_like_rows((*X.shape, self._p), X)

        def step(_: None, near: Near) -> None:
            x, N, c = X[near.queries], near.given.N, len(near.rows)
            for o in range(self._p):  # the mean is k_uᵀα + (k_N - Φ_Nᵀφ)ᵀβ with β = A⁻¹e_N
                beta = self._solved(near, o)
                inside = add_sparse(0.0 * near.Phi[c:], N, beta, near.Phi)  # Φ_N β
                weights = post.coefficients[:, o] - solve_lower(post.L, inside.T, transposed=True).T  # (t, m)
                slope = post.mean_function.input_gradient(x, o) + post.basis.input_gradient(
                    kernel, x, weights
                )
                slopes[near.queries, :, o] = (
                    slope + kernel.pullback(self.data.X[near.rows], x, dense(N, beta, c).T)[1]
                )

        self._over(X, step)
        return slopes[:, :, 0] if post.one_output else slopes

    @cached_property
    def _kept(self) -> Array | None:
        """The features of all training rows, None if they need more memory than FEATURE_BYTES. (n, m)"""
        X = self.data.X
        small = X.shape[0] * len(self.basis) * X.dtype.itemsize <= FEATURE_BYTES
        return self.posterior.features(X) if small else None

    def _features(self, rows: np.ndarray) -> Array:
        return self.posterior.features(self.data.X[rows]) if self._kept is None else self._kept[rows]

    @cached_property
    def _search(self) -> NearestRows:
        return NearestRows(coordinates(self.kernel, self.data.X))

    @cached_property
    def _L(self) -> Array:
        """The factor of R + Σ of all rows, for queries whose neighbours are all rows. (n, n)"""
        X = self.data.X
        R = add_outer(self.kernel.covariances(X, X), self._features(np.arange(len(self.data))), -1.0)
        return cholesky(plus_diagonal(from_lower(R), self.data.noise))

    def _nearest(self, Z: np.ndarray) -> np.ndarray:
        n, q = len(self.data), self.n_neighbours
        if q in (0, n) or not len(Z):
            return np.tile(np.arange(q), (len(Z), 1))
        return self._search(Z, q)

    def _over(self, X: Array, step: Callable[[None, Near], None], *, batched: bool = False) -> None:
        """Run `step` over groups of near queries on all cores; if `batched`, a GPU takes as many as fit."""
        Z, q = coordinates(self.kernel, X), self.n_neighbours
        numbers, _ = self._nearest(Z), self._kept  # made once, before threads use it

        def sound(near: Near) -> None:
            near.given.require_digits(near.given.coef, self._least, self.kernel.diagonal(X[near.queries]))
            step(None, near)

        if batched and not is_numpy(X) and 0 < q < len(self.data) and isinstance(self.kernel, Stationary):
            widest = (q + 1) * (q + 1 + len(self.basis) + X.shape[1])
            for s in row_slices(X.shape[0], max(1, DEVICE_BYTES // (2 * X.dtype.itemsize * widest))):
                sound(self._given_each(X, np.arange(s.start, s.stop), numbers[s]))
            return
        most = NEAR_QUERIES if self._by_pairs(X) else max(1, UNION_ROWS // max(q, 1))
        groups = list(near_queries(Z, most))
        if q == len(self.data):
            _ = self._L
        parallel = is_numpy(X) and X.shape[0] * max(q, len(self.basis)) >= SMALL
        near = self._given_all if q == len(self.data) else self._given

        def one(_: None, queries: np.ndarray) -> None:
            sound(near(X, queries, numbers[queries]))

        with blas_for(len(self.basis)):
            run_over(groups, lambda: None, one, parallel=parallel)

    def _by_pairs(self, X: Array) -> bool:
        """Return whether compiled loops compute the kernel for pairs of a query's neighbours only."""
        work = max(self.n_neighbours, len(self.basis)) * len(self.data)
        return is_numpy(X) and type(self.kernel) in PROFILES and worth_compiling(work)

    def _given(self, X: Array, queries: np.ndarray, numbers: np.ndarray) -> Near:
        """Return near queries given their neighbours, by one covariance of all of these together."""
        xp, kernel = namespace(X), self.kernel
        rows, places = np.unique(numbers, return_inverse=True)
        both = xp.concat([self.data.X[rows], X[queries]], axis=0)
        Phi = xp.concat([self._features(rows), self.posterior.features(X[queries])], axis=0)
        own, N = len(rows) + np.arange(len(queries)), places.reshape(numbers.shape)
        noise = xp.concat([self.data.noise[rows], zeros_like_rows((len(queries),), X)])
        if self._by_pairs(X):
            assert isinstance(kernel, Stationary)
            return Near(queries, rows, Phi, conditionals_by_pairs(kernel, both, Phi, own, N, noise))
        R = add_outer(kernel.covariances(both, both), Phi, -1.0)
        return Near(queries, rows, Phi, conditionals(R, own, N, noise))

    def _given_each(self, X: Array, queries: np.ndarray, numbers: np.ndarray) -> Near:
        """Return queries given their neighbours, by a small covariance for each query, all at once; the last
        row of each is the query, which has a placeholder in `Near.rows`.
        """
        xp, (t, q) = namespace(X), numbers.shape
        rows = indices_like(np.concatenate([numbers, numbers[:, :1]], axis=1).reshape(-1), X)
        both, noise = self.data.X[rows].reshape(t, q + 1, -1), self.data.noise[rows].reshape(t, q + 1)
        Phi = self._features(rows).reshape(t, q + 1, -1)
        both[:, q], Phi[:, q], noise[:, q] = X[queries], self.posterior.features(X[queries]), 0.0
        R = small.add_products(self.kernel.grams(both), Phi, xp.matrix_transpose(Phi), -1.0)
        R.reshape(t, -1)[:, :: q + 2] += noise
        L = small.factorise(lambda j: R[:, j:, j].T, xp.ones_like(noise.T), noise.T)
        coef = small.solve(L[:q, :q], L[q, :q], transposed=True).T
        own, N = (q + 1) * np.arange(t) + q, np.tile(np.arange(q), (t, 1))
        given = Conditionals(indices_like(own, X), N, coef, L[q, q] ** 2, L[:q, :q], size=q + 1)
        return Near(queries, rows, Phi.reshape(t * (q + 1), -1), given, q + 1)

    def _given_all(self, X: Array, queries: np.ndarray, numbers: np.ndarray) -> Near:
        """Return queries given all training rows."""
        n, rows, x = len(self.data), np.arange(len(self.data)), X[queries]
        Phi = namespace(X).concat([self._features(rows), self.posterior.features(x)], axis=0)
        Phi_N, phi = Phi[:n], Phi[n:]
        half = solve_lower(self._L, self.kernel.covariances(self.data.X, x) - Phi_N @ phi.T)  # (n, t)
        coef = contiguous(solve_lower(self._L, half, transposed=True).T)
        cond_var = self.kernel.diagonal(x) - row_squares(phi) - row_squares(half.T)
        own = n + np.arange(len(queries))
        return Near(queries, rows, Phi, Conditionals(own, numbers, coef, cond_var, self._L[None]))

    def _mean(self, near: Near) -> Array:
        """Return φᵀw + bᵀe_N. (t, p)"""
        fitted = near.Phi[near.given.rows] @ self.posterior.w
        given = near.given
        return add_sparse(fitted, given.N, given.coef, self.data.residuals[near.rows], size=near.size)

    def _solved(self, near: Near, output: int) -> Array:
        """Return A⁻¹e_N of one output, for each query. (t, n_neighbours)"""
        e = self.data.residuals[near.rows, output]
        if self.n_neighbours < len(self.data):
            return near.given.solve(contiguous(e[near.given.N]))
        beta = solve_lower(self._L, solve_lower(self._L, e), transposed=True)
        return beta[near.given.N]
