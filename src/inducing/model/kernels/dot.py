"""Kernels of the inner product x'z, with finite-dimensional feature spaces: linear, polynomial, constant."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ...errors import ParameterError
from ...numerics.arrays import Array, is_numpy, namespace, zeros_like_rows
from .base import Gradients, Kernel, as_parameter, per_input


def positive_integer(name: str, value: object, most: int = 100_000) -> int:
    """Return `value` as an int. Raise if it is not a whole number from 1 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        raise ParameterError(f"{name} must be a whole number of at least 1, at most {most}, but is {value!r}")
    return int(value)


@dataclass(frozen=True, eq=False)
class Linear(Kernel):
    """Σ_k variance_k x_k z_k: a Bayesian linear model through the origin; inputs may share one variance."""

    names: ClassVar[tuple[str, ...]] = ("variance",)
    per_input_names: ClassVar[tuple[str, ...]] = ("variance",)

    variance: Any = 1.0
    columns: tuple[int, ...] | None = field(default=None, kw_only=True)

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        return _product(X, (Z * per_input("variance", self.variance, X)).T, out)

    def _diag(self, X: Array) -> Array:
        return (X * X) @ per_input("variance", self.variance, X)

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        return self.from_moments(Z, Kbar.T @ X)

    def from_moments(self, Z: Array, KX: Array) -> tuple[Gradients, Array]:
        """Return dJ/dparameters and dJ/dZ from KX = K̄ᵀX. (m, d)"""
        gradient = namespace(Z).sum(KX * Z, axis=0)  # (d,)
        Zbar = KX * per_input("variance", self.variance, Z)
        return {"variance": as_parameter(gradient, self.variance)}, Zbar

    def _diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        return {"variance": as_parameter(kbar @ (X * X), self.variance)}


@dataclass(frozen=True, eq=False)
class Polynomial(Kernel):
    """variance · (1 + x'z / (d · scale))^degree, d the number of inputs. [004 eq. 5.1]

    The feature space has C(d + degree, degree) dimensions, degree + 1 for one input; no basis need have more.
    """

    names: ClassVar[tuple[str, ...]] = ("scale", "variance")

    degree: int
    scale: Any = 1.0
    variance: Any = 1.0
    columns: tuple[int, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", positive_integer("degree", self.degree))
        super().__post_init__()

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        K = _product(X, Z.T / (X.shape[1] * self.scale), out)
        K += 1.0
        K **= self.degree
        K *= self.variance
        return K

    def _diag(self, X: Array) -> Array:
        squares = namespace(X).sum(X * X, axis=1)
        return self.variance * (1.0 + squares / (X.shape[1] * self.scale)) ** self.degree

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        xp, unit = namespace(X), X.shape[1] * self.scale
        T = 1.0 + X @ (Z.T / unit)  # (n, m)
        P = Kbar * T ** (self.degree - 1)
        Zbar = (self.degree * self.variance / unit) * (P.T @ X)  # (m, d)
        return {"scale": -xp.sum(Zbar * Z) / self.scale, "variance": xp.sum(P * T)}, Zbar

    def _diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        xp = namespace(X)
        t = xp.sum(X * X, axis=1) / (X.shape[1] * self.scale)
        p = kbar * (1.0 + t) ** (self.degree - 1)
        scale = -(self.degree * self.variance / self.scale) * xp.sum(p * t)
        return {"scale": scale, "variance": xp.sum(p * (1.0 + t))}


@dataclass(frozen=True, eq=False)
class Constant(Kernel):
    """variance, for any inputs: an unknown offset, or the weight of another kernel in a product."""

    names: ClassVar[tuple[str, ...]] = ("variance",)

    variance: Any = 1.0
    columns: tuple[int, ...] | None = field(default=None, kw_only=True)

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        if out is not None and is_numpy(out):
            out[...] = self.variance
            return out
        return zeros_like_rows((X.shape[0], Z.shape[0]), X) + self.variance

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        return {"variance": namespace(X).sum(Kbar)}, zeros_like_rows((Z.shape[0], Z.shape[1]), Z)


def _product(A: Array, B: Array, out: Array | None) -> Array:
    """Return A B, on the CPU in `out`."""
    return np.matmul(A, B, out=out) if is_numpy(A) else A @ B
