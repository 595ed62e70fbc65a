"""Factors of D = R + Σ within a block of rows, and gradients through them; neighbours.py has a sparse one."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..model.kernels.base import Gradients, Kernel
from ..model.problem import Problem
from ..numerics import linalg as la
from ..numerics.arrays import Array, is_numpy, namespace, zeros_like_rows
from .sums import Work, scratch_copy


class BlockAdjoints(NamedTuple):
    """Gradients that a block of b rows hands to the second pass."""

    V: Array  # (b, p), D⁻¹e
    S: Array  # (b, m), D⁻¹ΦᵀLB⁻ᵀ
    GD: Array  # (b, b), dJ/dD; what is above the diagonal may be added to what is below
    GPhi: Array  # (b, m), 2 G_D Φᵀ


@dataclass(frozen=True, eq=False)
class Whole:
    """D = LLᵀ of a block as a whole, by a matrix T = L⁻¹ with D⁻¹ = TᵀT."""

    K: Array  # (b, b)
    Linv: Array  # (b, b)

    @staticmethod
    def of(P: Problem, Phi: Array, rows: np.ndarray) -> "Whole":
        """D of one block of the problem."""
        X = P.X[rows]
        K = P.kernel.covariances(X, X)
        D = la.add_outer(K.copy() if is_numpy(K) else K + 0.0, Phi, -1.0)
        return Whole(K, la.cholesky_and_inverse(la.plus_diagonal(D, P.added_noise(rows)))[1])

    @property
    def log_det(self) -> Array:
        return -la.log_det_from_factor(self.Linv)

    @property
    def numbers(self) -> int:
        """The numbers that keeping it takes."""
        return 2 * len(self.Linv) ** 2

    def whitened(self, A: Array, out: Array | None = None) -> Array:
        """T A, in `out` where it is given. A (b, m)"""
        return la.lower_times(self.Linv, scratch_copy(A, out))

    def precision_times(self, A: Array) -> Array:
        return self.Linv.T @ (self.Linv @ A)

    @property
    def precision_diagonal(self) -> Array:
        return namespace(self.Linv).sum(self.Linv * self.Linv, axis=0)

    def bars(self, s: Work, p: int, Phi: Array, E: Array, PhiB: Array, out: Array | None) -> BlockAdjoints:
        """The gradients of p outputs from Φᵀ, e and ΦᵀLB⁻ᵀ, where S may be: G_D = ½ (VVᵀ - p(D⁻¹ - SSᵀ))."""
        V = self.Linv.T @ (self.Linv @ E)
        S = la.lower_times(self.Linv, la.lower_times(self.Linv, PhiB), transposed=True)
        GD = la.add_gram(zeros_like_rows(self.Linv.shape, PhiB), self.Linv, -p)
        GD = 0.5 * la.from_lower(la.add_outer(la.add_outer(GD, S, p), la.contiguous(V)))
        return BlockAdjoints(V, S, GD, 2.0 * (GD @ Phi))

    def kernel_gradient(self, kernel: Kernel, X: Array, GD: Array) -> Gradients:
        """The gradient of the kernel's parameters through K of the rows X; GD may be overwritten."""
        return kernel.pullback(X, X, GD, self.K)[0]
