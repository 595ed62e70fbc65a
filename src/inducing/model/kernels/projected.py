"""A kernel that sees a linear projection of the inputs: few directions, learned with the rest. [001 §5]"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np

from ...errors import ParameterError, ShapeError
from ...numerics.arrays import Array, asarray_like, is_numpy
from ...numerics.workers import row_slices
from .base import Gradients, Kernel, leaves_of
from .stationary import Stationary

SQUARE = 32  # rows of one small kernel matrix, of which only the diagonal is wanted


@dataclass(frozen=True, eq=False)
class Projected(Kernel):
    """k(Wx, Wz) for a kernel k of g inputs and a matrix W (g, d), whose entries are any real numbers.

    The parameters are "matrix" and, by path, those of k: "0.lengthscale". Scaling a row of W and the
    lengthscale that goes with it changes nothing, so hold one of the two when both could move: fit(...,
    fixed=["kernel.0.lengthscale"]).
    """

    kernel: Kernel
    matrix: Any
    _: KW_ONLY
    columns: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise ParameterError(f"Projected needs a kernel of the projected inputs, not {self.kernel!r}")
        try:
            matrix = np.array(self.matrix, dtype=float)
        except (TypeError, ValueError) as error:
            raise ParameterError(f"matrix must hold numbers: {error}") from error
        if matrix.ndim != 2 or matrix.size == 0:
            raise ParameterError(f"matrix must have two dimensions (directions, inputs), not {matrix.shape}")
        if not np.all(np.isfinite(matrix)):
            raise ParameterError("matrix holds NaN or infinity; every entry must be finite")
        object.__setattr__(self, "matrix", matrix)
        self._check_columns()

    @property
    def parts(self) -> tuple[Kernel]:
        """The kernel inside, where paths look for it."""
        return (self.kernel,)

    @property
    def parameters(self) -> dict[str, Any]:
        inside = {f"0.{name}": value for name, value in self.kernel.parameters.items()}
        return {"matrix": self.matrix} | inside

    @property
    def unconstrained(self) -> tuple[str, ...]:
        return ("matrix", *(f"0.{name}" for name in self.kernel.unconstrained))

    def _replaced(self, values: Mapping[str, Any]) -> Self:
        inner = {name.removeprefix("0."): value for name, value in values.items() if name != "matrix"}
        kernel = self.kernel.with_parameters(inner)
        return replace(self, kernel=kernel, matrix=values.get("matrix", self.matrix))

    def project(self, X: Array) -> Array:
        """WX, a row for each input. (n, g)"""
        if X.shape[1] != self.matrix.shape[1]:
            raise ShapeError(f"the matrix projects {self.matrix.shape[1]} inputs, but there are {X.shape[1]}")
        return X @ asarray_like(self.matrix, X).T

    def scaled(self, X: Array) -> Array:
        return self.kernel.scaled(self.project(self._select(X)))

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        P = self.project(X)
        return self.kernel.covariances(P, P if X is Z else self.project(Z), out)

    def _diag(self, X: Array) -> Array:
        return self.kernel.diagonal(self.project(X))

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        """dJ/dW = PX̄ᵀX + PZ̄ᵀZ with the projections PX, PZ; k is symmetric, so PX̄ is PZ̄ of the transpose."""
        PX, PZ = self.project(X), self.project(Z)
        KbarT = Kbar.T.copy() if is_numpy(Kbar) else 1.0 * Kbar.T  # either may be overwritten
        PXbar = self.kernel.pullback(PZ, PX, KbarT, None if K is None else K.T)[1]  # (n, g)
        gradients, PZbar = self.kernel.pullback(PX, PZ, Kbar, K)
        return self._by_path(gradients, PXbar.T @ X + PZbar.T @ Z), PZbar @ asarray_like(self.matrix, X)

    def _diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        P = self.project(X)
        Wbar: Any
        if all(isinstance(leaf, Stationary) for leaf in leaves_of(self.kernel)):
            Wbar = 0.0 * asarray_like(self.matrix, X)  # k(x, x) is the same everywhere
        else:  # d k(x, x)/dx is twice the derivative in the second input
            Wbar = 0.0
            for s in row_slices(len(P), SQUARE):
                Kbar = 2.0 * kbar[s] * asarray_like(np.eye(len(P[s])), X)  # (b, b)
                Wbar = Wbar + self.kernel.pullback(P[s], P[s], Kbar)[1].T @ X[s]
        return self._by_path(self.kernel.diag_pullback(P, kbar), Wbar)

    @staticmethod
    def _by_path(gradients: Gradients, Wbar: Array) -> Gradients:
        return {"matrix": Wbar} | {f"0.{name}": value for name, value in gradients.items()}
