"""Kernels of vector-valued functions: the number of a component is one more input, the last. [004 §5.4]

    k((x, i), (z, j)) = [K(x, z)]_ij

so a matrix kernel K is an ordinary kernel, and bases, approximations, pruning and files need not know.
`fields.stack` makes such inputs. `Independent` looks at the component alone, and so does `Category`, with
learned covariances; times a kernel of the positions these are independent components and the intrinsic model
of coregionalisation, and sums of such products the linear one:

    Independent([1.0, 2.0]) * RBF(3.0, columns=(0, 1))
    Category(2, levels=2, rank=1) * RBF(3.0, columns=(0, 1))

`CurlFree` and `DivergenceFree` are fields that derive from a potential; their sum is Helmholtz's
decomposition of a wind.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import ParameterError, ShapeError, require_one_of
from ...numerics.arrays import Array, asarray_like, is_numpy, namespace, zeros_like_rows
from .base import Gradients, Kernel, positive
from .distances import middle, squared_distances


def one_hot(X: Array, components: int) -> Array:
    """The component in the last column of X as a row with a single 1. (n, components)"""
    xp = namespace(X)
    numbers = asarray_like(np.arange(components), X)
    E = (X[:, -1:] == numbers[None, :]) * xp.ones_like(X[:, -1:])  # (n, p)
    totals = xp.sum(E, axis=1)
    if not bool(xp.all(totals > 0.0)):
        row = int(xp.argmin(totals))
        raise ParameterError(
            f"the last column of row {row} is {float(X[row, -1]):g}, but it must be the number of a "
            f"component, 0 to {components - 1}; make such inputs with fields.stack"
        )
    return E


@dataclass(frozen=True, eq=False)
class Independent(Kernel):
    """variance_i [i = j] for components i and j: they know nothing of each other."""

    names: ClassVar[tuple[str, ...]] = ("variance",)

    variance: Any
    _: KW_ONLY
    columns: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        variance = positive("variance", self.variance)
        if np.ndim(variance) == 0:
            raise ParameterError(f"variance must hold a number for each component, but is {self.variance}")
        object.__setattr__(self, "variance", variance)
        self._check_columns()

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        x, z = (one_hot(A, len(self.variance)) for A in (X, Z))
        left, right = self._diag(X)[:, None] * x, z.T
        return np.matmul(left, right, out=out) if is_numpy(X) else left @ right

    def _diag(self, X: Array) -> Array:
        return one_hot(X, len(self.variance)) @ asarray_like(self.variance, X)

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        left, right = one_hot(X, len(self.variance)), one_hot(Z, len(self.variance))
        gradient = namespace(X).sum((left.T @ Kbar).T * right, axis=0)
        return {"variance": gradient}, zeros_like_rows((Z.shape[0], Z.shape[1]), Z)

    def _diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        return {"variance": one_hot(X, len(self.variance)).T @ kbar}


@dataclass(frozen=True, eq=False)
class _Gradient(Kernel):
    """a·∇g at x, for a direction a that belongs to the component and a potential g with a kernel of s = |d|²,
    d = (x - z)/ℓ.

    Its covariance with b·∇g at z, scaled so that `variance` is that of each component, is

        variance [p a·b - t (a·d)(b·d)],   t = -2p',   u = -2t'

    with p = t = u = exp(-s/2) for a potential under the RBF kernel, which is smooth, and with ρ = √(5s)

        p = (1 + ρ) exp(-ρ),   t = 5 exp(-ρ),   u = 25 exp(-ρ)/ρ

    under Matern52: a field as rough as Matern32, like winds. A kernel of this family gives the directions.
    """

    names: ClassVar[tuple[str, ...]] = ("lengthscale", "variance")

    lengthscale: Any = 1.0
    variance: Any = 1.0
    potential: str = "matern52"  # or "rbf"
    _: KW_ONLY
    columns: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("potential", self.potential, ("matern52", "rbf"))

    def _directions(self, X: Array) -> Array:
        """a of each row. (n, d)"""
        raise NotImplementedError

    def _profile(self, s: Array, slope: bool) -> tuple[Array, Array, Array | None]:
        """p, t and, if asked for, u, each times the variance."""
        xp = namespace(s)
        if self.potential == "rbf":
            p = self.variance * xp.exp(-0.5 * s)
            return p, p, p
        rho = xp.sqrt(5.0 * s)
        e = self.variance * xp.exp(-rho)
        apart = rho > 1e-7  # u meets (a·d)(b·d), which vanishes faster
        u = None
        if slope:
            u = xp.where(apart, 25.0 * e / xp.where(apart, rho, xp.ones_like(rho)), xp.zeros_like(rho))
        return (1.0 + rho) * e, 5.0 * e, u

    def _pairs(self, X: Array, Z: Array) -> tuple[Array, ...]:
        """Positions in units of ℓ about a common centre, directions, and for every pair a·b, a·d and b·d."""
        xp = namespace(X)
        A, B = self._directions(X), self._directions(Z)
        centre = middle(Z[:, :-1])
        X, Z = (X[:, :-1] - centre) / self.lengthscale, (Z[:, :-1] - centre) / self.lengthscale
        ad = xp.sum(A * X, axis=1)[:, None] - A @ Z.T
        bd = X @ B.T - xp.sum(B * Z, axis=1)[None, :]
        return X, Z, A, B, A @ B.T, ad, bd

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        X, Z, _, _, ab, ad, bd = self._pairs(X, Z)
        p, t, _ = self._profile(squared_distances(X, Z), False)
        K = p * ab
        return np.subtract(K, t * ad * bd, out=out) if is_numpy(K) else K - t * ad * bd

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        xp = namespace(X)
        X, Z, A, B, ab, ad, bd = self._pairs(X, Z)
        s = squared_distances(X, Z)
        p, t, u = self._profile(s, True)
        T, both = Kbar * t, ad * bd
        along = T * ab - Kbar * u * both  # of d in ∂K/∂(z/ℓ); those of a and b are t b·d and t a·d
        Zbar = along.T @ X - xp.sum(along, axis=0)[:, None] * Z
        Zbar = Zbar + (T * bd).T @ A + xp.sum(T * ad, axis=0)[:, None] * B
        gradients = {
            "lengthscale": xp.sum(along * s + 2.0 * T * both) / self.lengthscale,
            "variance": xp.sum(Kbar * p * ab - T * both) / self.variance,
        }
        return gradients, xp.concat([Zbar / self.lengthscale, xp.zeros_like(Zbar[:, :1])], axis=1)


@dataclass(frozen=True, eq=False)
class CurlFree(_Gradient):
    """A field ∇χ of d components in d dimensions, from a velocity potential: it converges and diverges.

    K(x, z) = variance (p I - t d dᵀ), d = (x - z)/lengthscale.
    """

    def _directions(self, X: Array) -> Array:
        return one_hot(X, X.shape[1] - 1)


@dataclass(frozen=True, eq=False)
class DivergenceFree(_Gradient):
    """A field (-∂ψ/∂y, ∂ψ/∂x) in the plane: a wind that only turns, from a streamfunction.

    K(x, z) = variance [(p - t dᵀd) I + t d dᵀ], d = (x - z)/lengthscale.
    """

    def _directions(self, X: Array) -> Array:
        if X.shape[1] != 3:
            raise ShapeError(f"DivergenceFree needs two coordinates and a component, not {X.shape[1]} inputs")
        return one_hot(X, 2) @ asarray_like(ROTATION, X)


ROTATION = np.array([[0.0, -1.0], [1.0, 0.0]])  # a row for u = -∂ψ/∂y and one for v = ∂ψ/∂x
