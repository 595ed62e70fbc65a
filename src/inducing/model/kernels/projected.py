"""A kernel that sees a linear projection of the inputs: few directions, learned with the rest. [001 §5]"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import ParameterError, ShapeError
from ...numerics.arrays import Array, asarray_like, is_numpy
from ...numerics.workers import row_slices
from .base import Gradients, OfChanged, by_path, leaves_of, numbers
from .stationary import Stationary

SQUARE = 32  # rows of one small kernel matrix, of which only the diagonal is wanted


@dataclass(frozen=True, eq=False)
class Projected(OfChanged):
    """k(Wx, Wz) for a kernel k of g inputs and a matrix W (g, d), whose entries are any real numbers.

    Scaling a row of W and the lengthscale that goes with it changes nothing, so hold one of the two when both
    could move: fit(..., fixed=["kernel.0.lengthscale"]).
    """

    names: ClassVar[tuple[str, ...]] = ("matrix",)

    matrix: Any
    _: KW_ONLY
    columns: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        matrix = numbers("matrix", self.matrix)
        if matrix.ndim != 2 or matrix.size == 0:
            raise ParameterError(f"matrix must have two dimensions (directions, inputs), not {matrix.shape}")
        object.__setattr__(self, "matrix", matrix)

    def changed(self, X: Array) -> Array:
        """WX, a row for each input. (n, g)"""
        if X.shape[1] != self.matrix.shape[1]:
            raise ShapeError(f"the matrix projects {self.matrix.shape[1]} inputs, but there are {X.shape[1]}")
        return X @ asarray_like(self.matrix, X).T

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        """dJ/dW = PX̄ᵀX + PZ̄ᵀZ with the projections PX, PZ; k is symmetric, so PX̄ is PZ̄ of the transpose."""
        PX, PZ = self.changed(X), self.changed(Z)
        KbarT = Kbar.T.copy() if is_numpy(Kbar) else 1.0 * Kbar.T  # either may be overwritten
        PXbar = self.kernel.pullback(PZ, PX, KbarT, None if K is None else K.T)[1]  # (n, g)
        gradients, PZbar = self.kernel.pullback(PX, PZ, Kbar, K)
        gradients = {"matrix": PXbar.T @ X + PZbar.T @ Z} | by_path([gradients])
        return gradients, PZbar @ asarray_like(self.matrix, X)

    def _diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        P = self.changed(X)
        Wbar: Any
        if all(isinstance(leaf, Stationary) for leaf in leaves_of(self.kernel)):
            Wbar = 0.0 * asarray_like(self.matrix, X)  # k(x, x) is the same everywhere
        else:  # d k(x, x)/dx is twice the derivative in the second input
            Wbar = 0.0
            for s in row_slices(len(P), SQUARE):
                Kbar = 2.0 * kbar[s] * asarray_like(np.eye(len(P[s])), X)  # (b, b)
                Wbar = Wbar + self.kernel.pullback(P[s], P[s], Kbar)[1].T @ X[s]
        return {"matrix": Wbar} | by_path([self.kernel.diag_pullback(P, kbar)])
