"""Passes over blocks of rows (PITC, neighbours), for any kernel and arrays; evidence.py has the formulas.

The factor of a block's D = R + Σ is dense (`Whole`), or sparse along neighbours (neighbours.py).
"""

from dataclasses import dataclass

import numpy as np

from ..model.kernels.base import Gradients, Kernel, add_gradients
from ..model.problem import Problem
from ..numerics import linalg as la
from ..numerics.arrays import Array, is_numpy, namespace, zeros_like_rows
from ..numerics.linalg import times_lower
from . import sums
from .neighbours import Conditionals
from .sums import Back, BlockAdjoints, Group, Held, Work, copied, scratch_copy


@dataclass(frozen=True, eq=False)
class Whole:
    """Dense factor of a block's D = LLᵀ: the matrix T = L⁻¹, with D⁻¹ = TᵀT."""

    K: Array  # (b, b)
    Linv: Array  # (b, b)

    @staticmethod
    def of(P: Problem, Phi: Array, rows: np.ndarray) -> "Whole":
        """Factorise D of one block of the problem."""
        X = P.X[rows]
        K = P.kernel.covariances(X, X)
        D = la.add_outer(K.copy() if is_numpy(K) else K + 0.0, Phi, -1.0)
        return Whole(K, la.inverse_lower(la.cholesky(la.plus_diagonal(D, P.added_noise(rows)))))

    @property
    def log_det(self) -> Array:
        return -la.log_det_from_factor(self.Linv)

    @property
    def numbers(self) -> int:
        """The count of numbers to keep."""
        return 2 * len(self.Linv) ** 2

    def whitened(self, A: Array, out: Array | None = None) -> Array:
        """Return T A, in `out` where it is given. A (b, m)"""
        return la.lower_times(self.Linv, scratch_copy(A, out))

    def precision_times(self, A: Array) -> Array:
        return self.Linv.T @ (self.Linv @ A)

    @property
    def precision_diagonal(self) -> Array:
        return namespace(self.Linv).sum(self.Linv * self.Linv, axis=0)

    def bars(self, s: Work, p: int, Phi: Array, E: Array, PhiB: Array, out: Array | None) -> BlockAdjoints:
        """Return the gradients from Φᵀ, e and ΦᵀLB⁻ᵀ, which S may overwrite: G_D = ½ (VVᵀ - p(D⁻¹ - SSᵀ))."""
        V = self.Linv.T @ (self.Linv @ E)
        S = la.lower_times(self.Linv, la.lower_times(self.Linv, PhiB), transposed=True)
        GD = la.add_gram(zeros_like_rows(self.Linv.shape, PhiB), self.Linv, -p)
        GD = 0.5 * la.from_lower(la.add_outer(la.add_outer(GD, S, p), la.contiguous(V)))
        return BlockAdjoints(V, S, GD, 2.0 * (GD @ Phi))

    def kernel_gradient(self, kernel: Kernel, X: Array, GD: Array) -> Gradients:
        """Return the gradient in the kernel's parameters through K of the rows X; GD may be overwritten."""
        return kernel.pullback(X, X, GD, self.K)[0]


BlockFactor = Whole | Conditionals  # of D of one block


def factor_of_block(P: Problem, held: Held, Phi: Array, group: Group, i: int, s: Work) -> BlockFactor:
    """Return the factor of D of block i of a group, or of a batch of blocks: along neighbours, or dense."""
    if group.batch is not None:
        return Conditionals.of_batch(P, Phi, group)
    rows = group.rows[group.parts[i]]
    return (
        Whole.of(P, Phi, rows) if P.sets is None else Conditionals.of(P, Phi, rows, s, held, group.first + i)
    )


def features_of(P: Problem, held: Held, Linv: Array, s: Work, group: Group) -> Array:
    """Return Φ of the rows of a group, shared or computed; it must not be written to. (c, m)"""
    shared, c, m = held.shared, len(group.rows), len(P.basis)
    if shared is not None and group.first in shared.Phi:
        return shared.Phi[group.first]
    keep = shared is not None and sums.SharedBlocks.has_room(P.n, c, m)
    K = P.basis.cross(P.kernel, P.X[group.rows], None if keep else s.buffer(0, c))
    Phi = group.only(times_lower(K, Linv, transposed=True))
    if shared is not None and keep:
        shared.Phi[group.first] = Phi
    return Phi


def first_blocks(P: Problem, Linv: Array, held: Held, s: Work, group: Group) -> None:
    """Add what `passes.first_pass` sums over a group of blocks."""
    rows, c = group.rows, len(group.rows)
    Phi = features_of(P, held, Linv, s, group)
    H, Y = copied(Phi, s.buffer(1, c)), copied(group.only(P.Y[rows]))
    for i, part in enumerate(group.parts):
        block = factor_of_block(P, held, Phi[part], group, i, s)
        share = sums.count(part) / P.n  # of the memory for kept blocks
        room = share * (sums.BLOCK_BYTES if group.batch is None else sums.BATCH_BYTES)
        if held.blocks is not None and block.numbers * P.X.dtype.itemsize <= room:
            held.blocks[group.first + i] = block
        H[part], Y[part] = block.whitened(Phi[part], H[part]), block.whitened(Y[part])
        s.log_D = s.log_D + block.log_det
    s.add_rows(H, Y)
    s.log_D = s.log_D + sums.log_copies(P, rows[group.kept])


def second_blocks(P: Problem, back: Back, held: Held, noise_bar: Array, s: Work, group: Group) -> None:
    """Add what `passes.second_pass` sums over a group of blocks: Φ̄ = w vᵀ - pB⁻¹ΦD⁻¹ - 2ΦG_D."""
    p, rows, c = P.p, group.rows, len(group.rows)
    X = P.X[rows]
    xp = namespace(X)
    if held.shared is not None:
        K, Phi = None, features_of(P, held, back.Linv, s, group)
    else:
        K = P.basis.cross(P.kernel, X, s.buffer(0, c))
        Phi = group.only(times_lower(scratch_copy(K, s.buffer(1, c)), back.Linv, transposed=True))
    S = times_lower(copied(Phi, s.buffer(2, c)), back.LBinv, transposed=True)
    E = group.only(P.Y[rows]) - Phi @ back.w
    V, GPhi, diagonal = copied(E), copied(Phi, s.buffer(3, c)), zeros_like_rows((c,), X)
    for i, part in enumerate(group.parts):
        block = _block(P, held, Phi[part], group, i, s)
        V[part], S[part], GD, GPhi[part] = block.bars(s, p, Phi[part], E[part], S[part], GPhi[part])
        diagonal[part] = xp.linalg.diagonal(GD).reshape(-1)
        bars = GD if held.shared is None else held.shared.added("D", group.first + i, GD, P.n)
        if bars is not None:
            add_gradients(s.kernel, block.kernel_gradient(P.kernel, X[part], bars))
    s.residual = s.residual + xp.sum(E * V)
    S = times_lower(S, back.LBinv)  # D⁻¹ΦᵀB⁻¹
    own = rows[group.kept]
    weight, noise = P.weight(own), P.noise[own]
    extra = 0.5 * p * (weight - 1.0) / noise if P.weights is not None else 0.0
    noise_bar[own] = diagonal[group.kept] / weight - extra
    S *= -p
    S -= GPhi
    s.G = la.add_symmetric_product(s.G, S, Phi)
    add_gradients(s.mean, P.mean.pullback(X, V[:, 0] if P.one_output else V))
    Kbar: Array | None = la.add_product(times_lower(S, back.Linv), V, back.alpha.T)
    if held.shared is not None:
        Kbar = held.shared.added("K", group.first, Kbar, P.n)
    if Kbar is not None:
        sums.finish_cross(P, s, X, P.basis.cross(P.kernel, X, s.buffer(0, c)) if K is None else K, Kbar)


def residual_blocks(P: Problem, back: Back, held: Held, s: Work, group: Group) -> None:
    """Add Σ |Te|² over the blocks of a group."""
    Phi = features_of(P, held, back.Linv, s, group)
    E = group.only(P.Y[group.rows]) - Phi @ back.w
    for i, part in enumerate(group.parts):
        E[part] = _block(P, held, Phi[part], group, i, s).whitened(E[part])
    s.residual = s.residual + namespace(E).sum(E * E)


def leave_out_blocks(
    P: Problem, back: Back, held: Held, V: Array, precision: Array, s: Work, group: Group
) -> None:
    """Fill C⁻¹y and the diagonal of C⁻¹ = D⁻¹ - D⁻¹ΦᵀB⁻¹ΦD⁻¹, C = Q + D, at the rows of a group."""
    rows = group.rows
    Phi = features_of(P, held, back.Linv, s, group)
    E = group.only(P.Y[rows]) - Phi @ back.w
    for i, part in enumerate(group.parts):
        block, own = _block(P, held, Phi[part], group, i, s), rows[part][group.kept]
        S = block.precision_times(times_lower(copied(Phi[part]), back.LBinv, transposed=True))
        V[own] = block.precision_times(E[part])[group.kept]
        precision[own] = (block.precision_diagonal - la.row_squares(S))[group.kept]


def _block(P: Problem, held: Held, Phi: Array, group: Group, i: int, s: Work) -> BlockFactor:
    """Return the factor of block i of a group, kept or computed again."""
    kept = (held.blocks or {}).get(group.first + i)
    return kept or factor_of_block(P, held, Phi, group, i, s)
