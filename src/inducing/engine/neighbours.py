"""D of a block of rows along nearest neighbours: a Vecchia approximation of the residuals R = K - Q.

Row i looks at a set N of at most q other rows, without circles. With A = (R + Σ)_NN, c = R_Ni and m = e_i - b

    b = A⁻¹c     d = R_ii + σᵢ² - cᵀb     mᵀ(y - Φᵀw) ~ N(0, d), independent of the other rows

so D⁻¹ = Mᵀ diag(1/d) M with the rows m of M, and T = M/√d: TΦᵀ is in the place of D^-½Φᵀ, and Ty of D^-½y.
With e = y - Φᵀw of p outputs, G_D = dJ/dD has rank two for each row:

    d̄ = ½ (|Me|²/d + p |LB⁻¹ΦMᵀ|²/d - p)/d     u = A⁻¹(e_N (Me)ᵀ + p Φ_NᵀB⁻¹ΦMᵀ)/d, of row i
    G_D = ½ (MᵀW + WᵀM),  W = diag(d̄)M + U     2G_DΦᵀ = Mᵀ(2d̄ MΦᵀ + UΦᵀ) + Uᵀ MΦᵀ

where u, scattered to the rows of N, are the rows of U. Products with M and U cost qm for a row: compiled
loops do them on NumPy arrays, elsewhere dense matrices of the block's size. A weight w makes the noise σ²/w.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model.kernels.base import Gradients, Kernel
from ..model.kernels.stationary import PROFILES, Stationary
from ..model.problem import Problem
from ..numerics.arrays import Array, asarray_like, is_numpy, namespace, worth_compiling, zeros_like_rows
from ..numerics.blas import addresses
from ..numerics.linalg import add_outer, from_lower, plus_diagonal, row_squares
from .block_factors import BlockAdjoints
from .sums import Work, copied


@dataclass(frozen=True, eq=False)
class Conditionals:
    """Rows given their neighbours: coefficients b and variance d of each, and the factor they came from."""

    rows: np.ndarray  # (c,), the places of the rows in the block
    N: np.ndarray  # (c, n_neighbours), those of their neighbours; at the end a row's own stands for none
    coef: Array  # (c, n_neighbours), b
    cond_var: Array  # (c,), d
    factor: Array  # (c, n_neighbours, n_neighbours), A; where compiled its factor, see `factorise`
    compiled: bool = False

    @staticmethod
    def of(P: Problem, Phi: Array, rows: np.ndarray, s: Work) -> Conditionals:
        """All rows of one block of the problem."""
        assert P.sets is not None
        own, sets, noise = np.arange(len(rows)), P.sets[rows], P.noise[rows] / P.weight(rows)
        place = np.empty(P.n, dtype=np.int64)
        place[rows] = own
        R = add_outer(P.kernel.triangle(P.X[rows], s.square(len(rows))), Phi, -1.0)
        return conditionals(R, own, np.where(sets < 0, own[:, None], place[sets]), noise)

    @property
    def log_det(self) -> Array:
        xp = namespace(self.cond_var)
        return xp.sum(xp.log(self.cond_var))

    @property
    def numbers(self) -> int:
        return sum(int(np.prod(a.shape)) for a in (self.N, self.coef, self.cond_var, self.factor))

    def times(self, A: Array, out: Array | None = None) -> Array:
        """M A, of A at all rows of the block. (c, m)"""
        own = A[self.rows] if len(self.rows) < len(A) else copied(A, out)
        return add_gathered(own, self.N, self.coef, A, -1.0)

    def back(self, A: Array, out: Array | None = None) -> Array:
        """MᵀA, where these are all rows of the block. (b, m)"""
        return add_scattered(copied(A, out), self.N, self.coef, A, -1.0)

    def whitened(self, A: Array, out: Array | None = None) -> Array:
        MA = self.times(A, out)
        MA /= namespace(A).sqrt(self.cond_var)[:, None]
        return MA

    def precision_times(self, A: Array) -> Array:
        return self.back(self.times(A) / self.cond_var[:, None])

    @property
    def precision_diagonal(self) -> Array:
        inverse = 1.0 / self.cond_var[:, None]
        return add_scattered(copied(inverse), self.N, self.coef * self.coef, inverse)[:, 0]

    def bars(self, s: Work, p: int, Phi: Array, E: Array, PhiB: Array, out: Array | None) -> BlockAdjoints:
        N, d, b = self.N, self.cond_var, len(self.rows)
        ME, MB, MPhi = self.times(E), self.times(PhiB, s.buffer(4, b)), self.times(Phi, s.buffer(5, b))
        dbar = 0.5 * ((row_squares(ME) + p * row_squares(MB)) / d - p) / d
        u = self.solve(sampled(N, ME, E) + p * sampled(N, MB, PhiB)) / d[:, None]
        x = add_gathered(scaled(2.0 * dbar, MPhi, PhiB), N, u, Phi)
        GPhi = self._back_both(x, u, MPhi, out)
        V, S = self.back(ME / d[:, None]), self.back(scaled(1.0 / d, MB, MB), PhiB)
        return BlockAdjoints(V, S, self._rank_two(dbar, u, s.square(b)), GPhi)

    def _back_both(self, A: Array, u: Array, B: Array, out: Array | None) -> Array:
        """MᵀA + UᵀB. (b, m)"""
        if self.compiled:
            from .neighbour_loops import scatter_both

            total = copied(A, out)
            scatter_both(self.N, -self.coef, A, u, B, total)
            return total
        return add_scattered(self.back(A, out), self.N, u, B)

    def solve(self, B: Array) -> Array:
        """A⁻¹ times a vector for each row; 0 where there is no neighbour. (c, n_neighbours)"""
        if self.compiled:
            from .neighbour_loops import solve

            solve(self.rows, self.N, self.factor, B)
            return B
        B = B * _there(self.rows, self.N, B)
        return namespace(B).linalg.solve(self.factor, B[:, :, None])[:, :, 0]

    def _rank_two(self, dbar: Array, u: Array, out: np.ndarray | None) -> Array:
        """G_D = Σ d̄ mmᵀ + ½(muᵀ + umᵀ), what is above the diagonal added to what is below. (b, b)"""
        xp, b = namespace(u), len(self.rows)
        if self.compiled:
            from .neighbour_loops import add_rank_two

            assert out is not None
            add_rank_two(self.N, self.coef, dbar, u, out)
            return out
        M = asarray_like(np.eye(b), u) - dense(self.N, self.coef, b)
        half = M.T @ (dbar[:, None] * M + dense(self.N, u, b))
        return xp.tril(half) + xp.tril(half.T, k=-1)

    def kernel_gradient(self, kernel: Kernel, X: Array, GD: Array) -> Gradients:
        return kernel.triangle_pullback(X, GD)


def conditionals(R: Array, rows: np.ndarray, N: np.ndarray, noise: Array) -> Conditionals:
    """Rows of a block given their neighbours, from the lower triangle of R (b, b) and the rows' noise (b,).

    A query has no noise. A conditional variance below the noise, as only rounding makes one, is the noise.
    """
    xp, (c, q) = namespace(R), N.shape
    if is_numpy(R) and worth_compiling(R.size):
        from .neighbour_loops import factorise

        coef, cond_var, factor = np.empty((c, q)), np.empty(c), np.empty((c, q * (q + 1) // 2))
        factorise(R, rows, N, np.ascontiguousarray(noise), factor, coef, cond_var)
        return Conditionals(rows, N, coef, cond_var, factor, compiled=True)
    D, there = plus_diagonal(from_lower(R), noise), _there(rows, N, R)
    A = D[N[:, :, None], N[:, None, :]] * there[:, :, None] * there[:, None, :]
    A = A + (1.0 - there)[:, :, None] * asarray_like(np.eye(q), D)
    cross = D[N, rows[:, None]] * there
    coef = xp.linalg.solve(A, cross[:, :, None])[:, :, 0]
    cond_var = D[rows, rows] - xp.sum(cross * coef, axis=1)
    return Conditionals(rows, N, coef, xp.maximum(cond_var, noise[rows]), A)


def conditionals_by_pairs(
    kernel: Stationary, X: np.ndarray, Phi: np.ndarray, rows: np.ndarray, N: np.ndarray, noise: np.ndarray
) -> Conditionals:
    """As `conditionals`, from inputs X (b, d) and features (b, m): R is taken between a row's neighbours and
    nowhere else, which is less work where rows share few of them.
    """
    from .neighbour_loops import factorise_near

    c, q = N.shape
    coef, cond_var, factor = np.empty((c, q)), np.empty(c), np.empty((c, q * (q + 1) // 2))
    Z, form = np.ascontiguousarray(kernel.scaled(X)), (PROFILES[type(kernel)], float(kernel.variance))
    factorise_near(addresses(), Z, Phi, form, rows, N, noise, factor, coef, cond_var)
    return Conditionals(rows, N, coef, cond_var, factor, compiled=True)


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

        out = np.zeros(N.shape)
        dots(N, A, B, out)
        return out
    return (A @ B.T)[np.arange(len(N))[:, None], N]


def scaled(a: Array, A: Array, out: Array) -> Array:
    """diag(a) A, in `out` on the CPU."""
    return np.multiply(a[:, None], A, out=out) if is_numpy(A) else a[:, None] * A


def dense(N: np.ndarray, C: Array, columns: int) -> Array:
    """The matrix itself. (c, columns)"""
    out = zeros_like_rows((len(N), columns), C)
    out[np.arange(len(N))[:, None], N] = C
    return out


def _there(rows: np.ndarray, N: np.ndarray, like: Array) -> Array:
    """1 where a row has a neighbour, 0 where its own place stands for none. (c, q)"""
    return asarray_like(N != rows[:, None], like)
