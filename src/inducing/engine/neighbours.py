"""Sparse factor of a block's D along nearest neighbours: a Vecchia approximation of the residuals R = K - Q.

Each row i is conditioned on a set N of at most q other rows, without circles. With A = (R + Σ)_NN, c = R_Ni
and m = e_i - b

    b = A⁻¹c     d = R_ii + σᵢ² - cᵀb     mᵀ(y - Φᵀw) ~ N(0, d), independent of the other rows

so D⁻¹ = Mᵀ diag(1/d) M with the rows m of M, and with T = M/√d, TΦᵀ replaces D^-½Φᵀ and Ty replaces D^-½y.
With e = y - Φᵀw of p outputs, G_D = dJ/dD is a sum of matrices of rank two, one for each row:

    d̄ = ½ (|Me|²/d + p |LB⁻¹ΦMᵀ|²/d - p)/d     u = A⁻¹(e_N (Me)ᵀ + p Φ_NᵀB⁻¹ΦMᵀ)/d, of row i
    G_D = ½ (MᵀW + WᵀM),  W = diag(d̄)M + U     2G_DΦᵀ = Mᵀ(2d̄ MΦᵀ + UΦᵀ) + Uᵀ MΦᵀ

where row i of U has u in the columns N. Compiled loops multiply NumPy arrays by M and U at a cost of qm a
row. Other arrays use dense products of many blocks at once, filled up to one size with rows that count
nothing (`batches_of`). A weight w makes the noise σ²/w.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import FactorisationError
from ..model.kernels.base import Gradients, Kernel
from ..model.kernels.stationary import Stationary
from ..model.problem import Problem
from ..numerics import arrays, batched
from ..numerics.arrays import Array, indices_like, is_numpy, namespace, plain, worth_compiling
from ..numerics.blas import addresses
from ..numerics.lanes import LANES
from ..numerics.linalg import add_outer, from_lower, row_squares
from ..numerics.workers import DEVICE_BYTES, aside, interruptible
from .sums import BlockAdjoints, Group, Held, SharedBlocks, Work, copied

# rows, neighbours, pairs by LANES rows, rows of each pair; factors, b, d and space: see neighbour_tiles.py
PairSets = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
PairFactors = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def too_alike(noise: float) -> FactorisationError:
    """Return the error of rows whose covariance is singular to rounding."""
    why = "the covariance of a row's neighbours is singular to rounding"
    todo = "merge duplicate rows, give more noise, or spread the basis"
    return FactorisationError(f"rows are too nearly alike for noise of {noise:.3g}: {why}; {todo}")


@dataclass(frozen=True, eq=False)
class Conditionals:
    """Conditionals of rows given their neighbours: coefficients b, variance d, and the factor of A."""

    rows: Array  # (c,), the places of the rows in their block
    N: Array  # (c, n_neighbours), places of their neighbours, then the row's own where there are no more
    coef: Array  # (c, n_neighbours), b
    cond_var: Array  # (c,), d
    # of A: (n_neighbours, n_neighbours, c), or as neighbour_tiles.py keeps it
    factor: Array | None = None
    sets: PairSets | None = None  # of compiled loops
    size: int = 0  # the rows of a block, where several are done together
    real: Array | float = 1.0  # (c,), 0 for rows that fill up a block

    @staticmethod
    def of(P: Problem, Phi: Array, rows: np.ndarray, s: Work, held: Held, number: int) -> Conditionals:
        """Return those of all rows of one block, whose R may be in `held.shared` by the block's number."""
        assert P.sets is not None
        own, sets, noise = np.arange(len(rows)), P.sets[rows], P.added_noise(rows)
        place = np.empty(P.n, dtype=np.int64)
        place[rows] = own
        R, b = None if held.shared is None else held.shared.R.get(number), len(rows)
        if R is None:
            keep = held.shared is not None and is_numpy(P.X) and SharedBlocks.has_room(P.n, b, b)
            R = add_outer(P.kernel.triangle(P.X[rows], None if keep else s.square(b)), Phi, -1.0)
            if held.shared is not None and keep:
                held.shared.R[number] = R
        block = conditionals(R, own, np.where(sets < 0, own[:, None], place[sets]), noise)
        Conditionals.require_digits(block.coef, float(noise.min()), P.kernel.diagonal(P.X[rows]))
        return block

    @staticmethod
    def of_batch(P: Problem, Phi: Array, group: Group) -> Conditionals:
        """Return those of all rows of a group from `batches_of`; Φ is 0 for rows that count nothing."""
        assert group.batch is not None
        own, N, real = group.batch
        k, b, rows = group.count, len(group.rows) // group.count, group.rows
        Phis, X = Phi.reshape(k, b, -1), P.X[rows].reshape(k, b, -1)
        R = batched.add_products(P.kernel.grams(X), Phis, namespace(X).matrix_transpose(Phis), -1.0)
        return conditionals(R, own, N, P.added_noise(rows), real)

    @staticmethod
    def require_digits(coef: Array, noise: float, prior: Array) -> None:
        """Raise if b is rounding error: where no noise is below `noise`, |b|² noise ≤ cᵀb ≤ R_ii ≤ k_ii."""
        if len(coef) and not float(row_squares(coef).max()) * noise <= 4.0 * float(prior.max()):
            raise too_alike(noise)

    @property
    def log_det(self) -> Array:
        xp = namespace(self.cond_var)
        return xp.sum(xp.log(self.cond_var))

    @property
    def numbers(self) -> int:
        assert self.factor is not None
        return sum(math.prod(a.shape) for a in (self.N, self.coef, self.cond_var, self.factor))

    def times(self, A: Array, out: Array | None = None) -> Array:
        """Return M A, where A has all rows of the block. (c, m)"""
        own = A[self.rows] if len(self.rows) < len(A) else copied(A, out)
        return add_sparse(own, self.N, self.coef, A, -1.0, size=self.size)

    def back(self, A: Array, out: Array | None = None) -> Array:
        """Return MᵀA, where M has all rows of the block. (b, m)"""
        return add_sparse(copied(A, out), self.N, self.coef, A, -1.0, size=self.size, transposed=True)

    def whitened(self, A: Array, out: Array | None = None) -> Array:
        MA = self.times(A, out)
        MA /= namespace(A).sqrt(self.cond_var)[:, None]
        return MA

    def precision_times(self, A: Array) -> Array:
        return self.back(self.times(A) / self.cond_var[:, None])

    @property
    def precision_diagonal(self) -> Array:
        inverse, squares = 1.0 / self.cond_var[:, None], self.coef * self.coef
        total = add_sparse(copied(inverse), self.N, squares, inverse, size=self.size, transposed=True)
        return total[:, 0]

    def bars(self, s: Work, p: int, Phi: Array, E: Array, PhiB: Array, out: Array | None) -> BlockAdjoints:
        if self.sets is None:
            return self._bars_of_batch(p, Phi, E, PhiB)
        from .neighbour_tiles import through_rows

        (_, _, ids, (first, second)), d, b = self.sets, self.cond_var, len(self.rows)
        ME, MB, MPhi = self.times(E), self.times(PhiB, s.buffer(4, b)), self.times(Phi, s.buffer(5, b))
        dbar, bars = np.zeros(len(ids) * LANES), np.zeros(len(first))
        dbar[:b] = 0.5 * ((row_squares(ME) + p * row_squares(MB)) / d - p) / d
        MB *= (p / d)[:, None]
        X, GPhi, GD = s.buffer(6, b), copied(Phi, out), s.square(b)
        assert X is not None and GD is not None
        X[...] = GPhi[...] = GD[...] = 0.0
        factors = self.factor, self.coef, d, room_for(self.sets)[3]
        through_rows((Phi, PhiB, MPhi, MB, X), E, ME, dbar, self.sets, factors, GPhi, bars)
        GD[np.maximum(first, second)[2:], np.minimum(first, second)[2:]] = bars[2:]
        MB /= p
        return BlockAdjoints(self.back(ME / d[:, None]), self.back(MB, PhiB), GD, GPhi)

    def _bars_of_batch(self, p: int, Phi: Array, E: Array, PhiB: Array) -> BlockAdjoints:
        """Return `bars` by dense products of all blocks at once; G_D is (blocks, b, b)."""
        xp, c, b = namespace(E), len(self.rows), self.size
        turned, d = xp.matrix_transpose, self.cond_var.reshape(-1, b, 1)
        e, S, phi = (A.reshape(c // b, b, -1) for A in (E, PhiB, Phi))
        N = indices_like(self.N, E)
        M = dense(N, -self.coef, b)
        M.reshape(-1, b * b)[:, :: b + 1] += 1.0  # the diagonal of each block
        M = M.reshape(-1, b, b)
        Me, MS, MPhi = M @ e, M @ S, M @ phi
        lengths = row_squares(Me.reshape(c, -1)) + p * row_squares(MS.reshape(c, -1))
        dbar = (0.5 * self.real * (lengths / self.cond_var - p) / self.cond_var).reshape(-1, b, 1)
        every = batched.add_products(Me @ turned(e), MS, turned(S), float(p))
        u = self.solve(xp.take_along_axis(every.reshape(c, b), N, axis=1)) / self.cond_var[:, None]
        U = dense(N, u, b).reshape(-1, b, b)
        GPhi = turned(M) @ batched.add_products(2.0 * dbar * MPhi, U, phi)
        GPhi = batched.add_products(GPhi, turned(U), MPhi)
        V, S = turned(M) @ (Me / d), turned(M) @ (MS / d)
        U += dbar * M
        GD = turned(M) @ U
        return BlockAdjoints(V.reshape(c, -1), S.reshape(c, -1), GD, GPhi.reshape(c, -1))

    def solve(self, B: Array) -> Array:
        """Return A⁻¹b for each row b of B; 0 where there is no neighbour. (c, n_neighbours)"""
        if self.sets is not None:
            from .neighbour_tiles import solve

            B[self.N == self.rows[:, None]] = 0.0
            solve(self.factor, B)
            return B
        half = batched.solve(self.factor, (B * _there(self.rows, self.N, B)).T)
        return batched.solve(self.factor, half, transposed=True).T

    def kernel_gradient(self, kernel: Kernel, X: Array, GD: Array) -> Gradients:
        if self.sets is not None:
            return kernel.triangle_pullback(X, GD)
        return kernel.grams_pullback(X.reshape(-1, self.size, X.shape[1]), GD)


def conditionals(R: Array, rows: Array, N: Array, noise: Array, real: Array | float = 1.0) -> Conditionals:
    """Return the conditionals of rows given their neighbours N, from the lower triangle of a block's R (b, b)
    and its noise (b,), or from R of several blocks (k, b, b) with k b rows, some not `real`.

    A query has no noise. A conditional variance below the noise, a rounding error, is set to the noise.
    """
    xp, (c, q), b = namespace(R), N.shape, R.shape[-1]
    if is_numpy(R) and R.ndim == 2 and worth_compiling(R.size):
        from .neighbour_tiles import condition

        sets, factors = pairs_of(rows, N, b)
        places, values = np.sort(sets[3], axis=0), np.ascontiguousarray(noise)
        aside(condition, c * q**3 / 3, R[places[1], places[0]], values, sets, factors)
        return Conditionals(rows, N, factors[1], factors[2], factors[0], sets)
    first = indices_like(np.arange(c) // b * b if R.ndim == 3 else np.zeros(c, dtype=np.int64), R)
    entries = (from_lower(R) if R.ndim == 2 else R).reshape(-1)
    both = xp.concat([indices_like(N, R), indices_like(rows, R)[:, None]], axis=1).T  # (q + 1, c)
    least = noise[first + both]
    there = xp.concat([_there(rows, N, R).T, xp.ones_like(least[:1])], axis=0)

    def column(j: int) -> Array:
        a = xp.take(entries, ((first + both[j:]) * b + both[j]).reshape(-1)).reshape(q + 1 - j, c)
        a[0] += least[j]
        return a

    L = batched.factorise(column, there, least)
    cond_var = L[q, q] ** 2 * real + (1.0 - real)
    coef = batched.solve(L[:q, :q], L[q, :q], transposed=True).T
    return Conditionals(rows, N, coef, cond_var, L[:q, :q], size=b, real=real)


def batches_of(P: Problem) -> list[Group]:
    """Return groups of blocks of about one size that fit a device's budget. Each block is filled up to the
    longest by copies of its first row, which count nothing.
    """
    assert P.blocks is not None and P.sets is not None
    sizes = np.array([len(rows) for rows in P.blocks])
    place, order, batches, at = np.empty(P.n, dtype=np.int64), np.argsort(-sizes, kind="stable"), [], 0
    place[np.concatenate(P.blocks)] = np.concatenate([np.arange(size) for size in sizes])
    sets = indices_like(P.sets, P.X)
    xp, N = namespace(P.X), indices_like(place, P.X)
    N = namespace(sets).where(sets < 0, N[:, None], N[sets])
    while at < len(order):
        b = int(sizes[order[at]])
        widest = max(len(P.basis), b, P.sets.shape[1] ** 2)
        chosen = order[at : at + max(1, DEVICE_BYTES // (2 * P.X.dtype.itemsize * widest * b))]
        real = np.arange(b) < sizes[chosen][:, None]  # (k, b)
        rows = np.tile([[P.blocks[i][0]] for i in chosen], b)
        rows[real] = np.concatenate([P.blocks[i] for i in chosen])
        own = np.tile(np.arange(b), len(chosen))
        places, numbers, mask = (indices_like(a, P.X) for a in (own, rows.reshape(-1), real.reshape(-1)))
        near = xp.where(mask[:, None], N[numbers], places[:, None])
        batch = places, near, xp.astype(mask, P.X.dtype)
        kept = indices_like(np.flatnonzero(real), P.X)
        batches.append(Group(at, numbers, np.array([0, rows.size]), kept, batch, len(chosen)))
        at += len(chosen)
    return batches


def conditionals_by_pairs(
    kernel: Stationary, X: np.ndarray, Phi: np.ndarray, rows: np.ndarray, N: np.ndarray, noise: np.ndarray
) -> Conditionals:
    """Return `conditionals` from inputs X (b, d) and features Phi (b, m), computing R only for the pairs that
    are needed: less work where rows share few neighbours.
    """
    from .neighbour_tiles import first_near

    (sets, factors), table, cube = pairs_of(rows, N, len(X)), np.empty((0, 0)), np.empty((0, 0, 0))
    form = cube, cube, table, cube, table, False
    basis = addresses(), (table, table, False), form, kernel.in_loops
    data = table, table, plain(noise), plain(kernel.scaled(X))
    arguments = basis, data, table, sets, factors, space_for(sets, 0), plain(Phi)[None], cube, table, table
    aside(first_near, N.size * (N.shape[1] ** 2 + Phi.shape[1]), *arguments)
    return Conditionals(rows, N, factors[1], factors[2], factors[0], sets)


def pairs_of(rows: np.ndarray, N: np.ndarray, b: int) -> tuple[PairSets, PairFactors]:
    """Return the pairs of rows and their neighbours in a block of b, and empty arrays for the factors."""
    from .neighbour_tiles import find_pairs

    (c, q), triangle = N.shape, b * (b + 1) // 2
    own, places, size = rows.astype(np.int32), N.astype(np.int32), (q + 1) * (q + 2) // 2
    ids = np.empty((-(-c // LANES), size * LANES), dtype=np.uint32)
    pairs = np.zeros((2, 2 + min(triangle, c * size)), dtype=np.uint32)
    scratch = np.empty(triangle, dtype=np.int32), np.empty(q + 1, dtype=np.int32)
    count = find_pairs(own, places, *scratch, ids, pairs)
    sets = own, places, ids, np.ascontiguousarray(pairs[:, :count])
    return sets, room_for(sets)


def room_for(sets: PairSets) -> PairFactors:
    """Return empty arrays for the factors of the neighbours' covariances, b and d, and space."""
    (_, N, ids, _), lanes = sets, np.empty((4, (sets[1].shape[1] + 1) * LANES))
    return np.empty(ids.shape), np.empty(N.shape), np.empty(len(N)), lanes


def space_for(sets: PairSets, outputs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return `neighbour_tiles.NearSpace` of a block."""
    _, N, ids, pairs = sets
    return np.empty((3, pairs.shape[1])), np.empty((2 * len(N), outputs)), np.zeros(len(ids) * LANES)


def add_sparse(
    out: Array, N: Array, C: Array, A: Array, sign: float = 1.0, *, size: int = 0, transposed: bool = False
) -> Array:
    """Return out + sign C A, or `transposed` out + sign CᵀA, for the sparse matrix with the entries C (c, q)
    in the columns N of its rows; in out's memory on the CPU. A `size` means several blocks of that many rows.
    """
    if is_numpy(A) and worth_compiling(N.size * A.shape[1]):
        from .neighbour_loops import gather, scatter

        for i in interruptible(len(N), N.shape[1] * A.shape[1]):
            places = N[i].astype(np.int64, copy=False)
            if transposed:
                scatter(places, C[i], A[i], sign, out)
            else:
                gather(places, C[i], A, sign, out[i])
        return out
    rows = len(out if transposed else A)
    if not rows:
        return out
    k = rows // size if size else 1
    blocks = dense(N, C, rows // k).reshape(k, len(N) // k, rows // k)
    blocks = namespace(A).matrix_transpose(blocks) if transposed else blocks
    return out + sign * (blocks @ A.reshape(k, blocks.shape[2], A.shape[1])).reshape(out.shape)


def dense(N: Array, C: Array, columns: int) -> Array:
    """Return the dense matrix with the entries C in the columns N of its rows, 0 elsewhere. (c, columns)"""
    out = arrays.zeros_like_rows((len(N), columns), C)
    out[indices_like(np.arange(len(N)), C)[:, None], indices_like(N, C)] = C
    return out


def _there(rows: Array, N: Array, like: Array) -> Array:
    """Return 1 where a row has a neighbour, 0 where its own place stands for none. (c, q)"""
    return namespace(like).astype(indices_like(N != rows[:, None], like), like.dtype)
