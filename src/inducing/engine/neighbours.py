"""D of a block of rows along nearest neighbours: a Vecchia approximation of the residuals R = K - Q.

Row i looks at a set N of at most q other rows, without circles. With A = (R + Σ)_NN, c = R_Ni and m = e_i - b

    b = A⁻¹c     d = R_ii + σᵢ² - cᵀb     mᵀ(y - Φᵀw) ~ N(0, d), independent of the other rows

so D⁻¹ = Mᵀ diag(1/d) M with the rows m of M, and T = M/√d: h = Tφ is in the place of φ/√D, and t = Ty of y/√D. With
e = y - Φᵀw of p outputs, G_D = dJ/dD has rank two for each row:

    d̄ = ½ (|Me|²/d + p |LB⁻¹ΦMᵀ|²/d - p)/d     u = A⁻¹(e_N (Me)ᵀ + p Φ_NᵀB⁻¹ΦMᵀ)/d, of row i
    G_D = ½ (MᵀW + WᵀM),  W = diag(d̄)M + U     2G_DΦᵀ = Mᵀ(2d̄ MΦᵀ + UΦᵀ) + Uᵀ MΦᵀ

where u, scattered to the rows of N, are the rows of U. Products with M and U cost qm for a row; on NumPy arrays compiled
loops do them, elsewhere dense matrices of the block's size. A weight w counts as noise σ²/w.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..model.problem import Problem
from ..numerics.arrays import Array, asarray_like, is_numpy, namespace, worth_compiling, zeros_like_rows
from ..numerics.linalg import from_lower, row_squares
from .block_factors import Bars, covariance_of_block


@dataclass(frozen=True, eq=False)
class Conditionals:
    """Rows given their neighbours: the coefficients b and the variance d of each, and the factor behind them."""

    rows: np.ndarray  # (c,), the places of the rows in the block
    N: (
        np.ndarray
    )  # (c, n_neighbours), those of their neighbours, from the first on; a row's own stands for none
    coef: Array  # (c, n_neighbours), b
    cond_var: Array  # (c,), d
    factor: (
        Array  # (c, n_neighbours, n_neighbours), A; in compiled loops its Cholesky factor, bordered by c's
    )
    K: Array | None = None  # (b, b), of the block

    @staticmethod
    def of(P: Problem, Phi: Array, rows: np.ndarray) -> Conditionals:
        """All rows of one block of the problem."""
        assert P.sets is not None
        K, D = covariance_of_block(P, Phi, rows)
        own, sets = np.arange(len(rows)), P.sets[rows]
        N = np.where(sets < 0, own[:, None], np.searchsorted(rows, sets))
        return replace(conditionals(D, own, N, P.noise[rows] / P.weight(rows)), K=K)

    @property
    def log_det(self) -> Array:
        xp = namespace(self.cond_var)
        return xp.sum(xp.log(self.cond_var))

    @property
    def numbers(self) -> int:
        parts = self.N, self.coef, self.cond_var, self.factor, self.K
        return sum(int(np.prod(a.shape)) for a in parts if a is not None)

    def times(self, A: Array) -> Array:
        """M A, of A at all rows of the block. (c, m)"""
        return add_gathered(A[self.rows], self.N, self.coef, A, -1.0)  # A[...] is a copy

    def back(self, A: Array) -> Array:
        """MᵀA, where these are all rows of the block. (b, m)"""
        return add_scattered(namespace(A).asarray(A, copy=True), self.N, self.coef, A, -1.0)

    def whitened(self, A: Array) -> Array:
        MA = self.times(A)
        MA /= namespace(A).sqrt(self.cond_var)[:, None]
        return MA

    def bars(self, p: int, Phi: Array, E: Array, PhiB: Array) -> Bars:
        N, d = self.N, self.cond_var[:, None]
        ME, MB, MPhi = self.times(E), self.times(PhiB), self.times(Phi)
        dbar = 0.5 * ((row_squares(ME) + p * row_squares(MB)) / self.cond_var - p) / self.cond_var
        u = self.solve(sampled(N, ME, E) + p * sampled(N, MB, PhiB)) / d
        x = add_gathered((2.0 * dbar)[:, None] * MPhi, N, u, Phi)
        GPhi = add_scattered(self.back(x), N, u, MPhi)
        ME /= d
        MB /= d
        return Bars(self.back(ME), self.back(MB), self._rank_two(dbar, u), GPhi)

    def solve(self, B: Array) -> Array:
        """A⁻¹ times a vector for each row; 0 where there is no neighbour. (c, n_neighbours)"""
        if self.factor.shape[1] > self.N.shape[1]:
            from .neighbour_loops import solve

            solve(self.rows, self.N, self.factor, B)
            return B
        B = B * _there(self.rows, self.N, B)
        return namespace(B).linalg.solve(self.factor, B[:, :, None])[:, :, 0]

    def _rank_two(self, dbar: Array, u: Array) -> Array:
        """G_D = Σ d̄ mmᵀ + ½(muᵀ + umᵀ). (b, b)"""
        b = len(self.rows)
        if is_numpy(u) and worth_compiling(b * b):
            from .neighbour_loops import add_rank_two

            GD = np.zeros((b, b))
            add_rank_two(self.N, self.coef, dbar, u, GD)
            return from_lower(GD)
        M = asarray_like(np.eye(b), u) - dense(self.N, self.coef, b)
        half = M.T @ (dbar[:, None] * M + dense(self.N, u, b))
        return 0.5 * (half + half.T)


def conditionals(D: Array, rows: np.ndarray, N: np.ndarray, floor: Array) -> Conditionals:
    """Rows of a block given their neighbours, from the lower triangle of D (b, b); `floor` (b,) is the noise of each
    row of the block, below which no conditional variance lies but by rounding.
    """
    xp, (c, q) = namespace(D), N.shape
    if is_numpy(D) and worth_compiling(D.size):
        from .neighbour_loops import factorise

        coef, cond_var, factor = np.zeros((c, q)), np.empty(c), np.zeros((c, q + 1, q + 1))
        factorise(D, rows, N, np.ascontiguousarray(floor), factor, coef, cond_var)
        return Conditionals(rows, N, coef, cond_var, factor)
    D, there = from_lower(D), _there(rows, N, D)
    A = D[N[:, :, None], N[:, None, :]] * there[:, :, None] * there[:, None, :]
    A = A + (1.0 - there)[:, :, None] * asarray_like(np.eye(q), D)
    cross = D[N, rows[:, None]] * there
    coef = xp.linalg.solve(A, cross[:, :, None])[:, :, 0]
    cond_var = D[rows, rows] - xp.sum(cross * coef, axis=1)
    return Conditionals(rows, N, coef, xp.maximum(cond_var, floor[rows]), A)


# Products with a sparse matrix that has the entries C (c, q) in the columns N of its rows.


def add_gathered(out: Array, N: np.ndarray, C: Array, A: Array, sign: float = 1.0) -> Array:
    """out_i + sign Σ_j C_ij A[N_ij], in out's memory on the CPU. out (c, m), A (b, m)"""
    if is_numpy(A) and worth_compiling(N.size * A.shape[1]):
        from .neighbour_loops import gather

        gather(N, C, A, sign, out)
        return out
    return out + sign * (dense(N, C, A.shape[0]) @ A)


def add_scattered(out: Array, N: np.ndarray, C: Array, A: Array, sign: float = 1.0) -> Array:
    """out with sign C_ij A_i added to its rows N_ij, in its memory on the CPU. out (b, m), A (c, m)"""
    if is_numpy(A) and worth_compiling(N.size * A.shape[1]):
        from .neighbour_loops import scatter

        scatter(N, C, A, sign, out)
        return out
    return out + sign * (dense(N, C, out.shape[0]).T @ A)


def sampled(N: np.ndarray, A: Array, B: Array) -> Array:
    """A_i · B[N_ij]. (c, q)"""
    if is_numpy(A) and worth_compiling(N.size * A.shape[1]):
        from .neighbour_loops import dots

        out = np.empty(N.shape)
        dots(N, A, B, out)
        return out
    return (A @ B.T)[np.arange(len(N))[:, None], N]


def dense(N: np.ndarray, C: Array, columns: int) -> Array:
    """The matrix itself. (c, columns)"""
    out = zeros_like_rows((len(N), columns), C)
    out[np.arange(len(N))[:, None], N] = C
    return out


def _there(rows: np.ndarray, N: np.ndarray, like: Array) -> Array:
    """1 where a row has a neighbour, 0 where its own place stands for none. (c, q)"""
    return asarray_like(N != rows[:, None], like)
