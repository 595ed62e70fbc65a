"""Kernels of codes: levels of a category in a column, and components of vector-valued functions. [004 §5.4]

    k((x, i), (z, j)) = [K(x, z)]_ij

so a matrix kernel K is an ordinary kernel of inputs whose last column is the component; `fields.stack` makes
such inputs. `Independent` and `Category` look at the component alone; times a kernel of the positions they
give independent components and the intrinsic model of coregionalisation, and sums of such products its linear
model:

    Independent([1.0, 2.0]) * RBF(3.0, columns=(0, 1))
    Category(2, levels=2, rank=1) * RBF(3.0, columns=(0, 1))

`CurlFree` and `DivergenceFree` are fields that derive from a potential; their sum is Helmholtz's
decomposition of a wind.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ...errors import ParameterError, ShapeError, require_one_of
from ...numerics.arrays import Array, asarray_like, is_numpy, namespace, zeros_like_rows
from .base import Gradients, Kernel, leaves_of, numbers, positive
from .distances import middle, squared_distances
from .dot import positive_integer

MOST_LEVELS = 10_000  # B has their square
COORDINATES = 16  # of a level in `scaled`, at most


@dataclass(frozen=True, eq=False)
class Category(Kernel):
    """B[c, c'] for levels c and c' in one column of codes 0, 1, …: B = WWᵀ + diag κ. [Bonilla et al. 2008]

    W (levels, rank) holds any numbers, κ (levels,) positive ones; both are learned. By default each level
    starts with variance 1, half of it shared by all. Times a kernel of the inputs, on a column of output
    numbers, it is the intrinsic model of coregionalisation. Any other code is an unseen level: with
    `allow_unseen` it has the mean variance and no covariance with other levels.
    """

    names: ClassVar[tuple[str, ...]] = ("W", "kappa")
    per_input_names: ClassVar[tuple[str, ...]] = ("kappa",)

    column: int
    levels: int
    rank: int = 1
    W: Any = None
    kappa: Any = None
    allow_unseen: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", positive_integer("levels", self.levels, MOST_LEVELS))
        object.__setattr__(self, "rank", positive_integer("rank", self.rank, self.levels))
        starts = {"W": start_weights(self.levels, self.rank), "kappa": np.full(self.levels, 0.5)}
        for name, start in starts.items():
            given = getattr(self, name)
            value = start if given is None else numbers(name, given)
            if value.shape != start.shape:
                raise ParameterError(f"{name} must have shape {start.shape}, but has shape {value.shape}")
            object.__setattr__(self, name, value)
        super().__post_init__()

    def _check_columns(self) -> None:
        column = self.column
        if not isinstance(column, int | np.integer) or isinstance(column, bool) or column < 0:
            raise ParameterError(f"column must be the number of a column from 0 on, but is {column!r}")

    @property
    def columns(self) -> tuple[int, ...]:
        """The one column it looks at."""
        return (int(self.column),)

    @property
    def unconstrained(self) -> tuple[str, ...]:
        return ("W",)

    @property
    def B(self) -> np.ndarray:
        """The covariance of the levels. (levels, levels)"""
        return self.W @ self.W.T + np.diag(self.kappa)

    def scaled(self, X: Array) -> Array:
        """Return the leading coordinates of each level: squared distances are 2(1 - correlation). (n, g)"""
        codes = self._codes(self._select(X))
        root = np.sqrt(np.diag(self.B))
        values, vectors = np.linalg.eigh(self.B / np.outer(root, root))
        E = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1][:, :COORDINATES]  # (levels, g)
        return asarray_like(np.concatenate([E, 0.0 * E[:1]]), X)[codes]

    def _codes(self, X: Array) -> Array:
        """Return the level of each row, `self.levels` for an unseen one. (n,) of ints"""
        xp, codes = namespace(X), X[:, 0]
        odd = codes != xp.round(codes)
        if bool(xp.any(odd)):
            row = int(xp.argmax(xp.astype(odd, xp.int64)))
            raise ParameterError(
                f"column {self.column} holds {float(codes[row]):g} in row {row}, but a category needs whole "
                "numbers; encode its levels as 0, 1, …"
            )
        unseen = (codes < 0) | (codes >= self.levels)
        if not self.allow_unseen and bool(xp.any(unseen)):
            row = int(xp.argmax(xp.astype(unseen, xp.int64)))
            raise ParameterError(
                f"column {self.column} holds level {float(codes[row]):g} in row {row}, but the levels known "
                f"are 0 to {self.levels - 1}; allow_unseen=True predicts it from what is known of all levels"
            )
        return xp.astype(xp.where(unseen, self.levels + 0.0 * codes, codes), xp.int64)

    def _same_unseen(self, X: Array, Z: Array, left: Array, right: Array) -> Array | None:
        """Return 1 where two rows share an unseen level, else 0; None if no two can. (n, m)"""
        xp = namespace(X)
        if not bool(xp.any(left == self.levels)) or not bool(xp.any(right == self.levels)):
            return None
        both = (left == self.levels)[:, None] & (X == Z.T)
        return both * xp.ones_like(X)

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        left, right = self._codes(X), self._codes(Z)
        padded = asarray_like(np.pad(self.B, (0, 1)), X)  # with an unseen level
        rows = padded[:, right]  # (levels + 1, m)
        K = np.take(rows, left, axis=0, out=out, mode="clip") if is_numpy(X) else rows[left]
        same = self._same_unseen(X, Z, left, right)
        return K if same is None else K + float(np.mean(np.diag(self.B))) * same

    def _diag(self, X: Array) -> Array:
        variances = np.diag(self.B)
        return asarray_like(np.append(variances, np.mean(variances)), X)[self._codes(X)]

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        xp, left, right = namespace(X), self._codes(X), self._codes(Z)
        by_row = self._summed(left, Kbar)  # (levels + 1, m)
        Bbar = self._summed(right, by_row.T).T[: self.levels, : self.levels]
        same = self._same_unseen(X, Z, left, right)
        extra = 0.0 if same is None else xp.sum(Kbar * same) / self.levels
        W = asarray_like(self.W, X)
        diagonal = xp.linalg.diagonal(Bbar) + extra  # `extra` adds to the whole diagonal of B
        gradients = {"W": (Bbar + Bbar.T) @ W + 2.0 * extra * W, "kappa": diagonal}
        return gradients, zeros_like_rows((Z.shape[0], 1), Z)

    def _diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        totals = self._summed(self._codes(X), kbar[:, None])[:, 0]
        level = totals[: self.levels] + totals[-1] / self.levels
        W = asarray_like(self.W, X)
        return {"W": 2.0 * level[:, None] * W, "kappa": level}

    def _summed(self, codes: Array, A: Array) -> Array:
        """Add up the rows of A by level. (levels + 1, m)"""
        xp = namespace(A)
        if not is_numpy(A):
            numbers = xp.arange(self.levels + 1, device=A.device)
            return xp.astype(numbers[:, None] == codes[None, :], A.dtype) @ A
        total = np.zeros((self.levels + 1, A.shape[1]))
        if len(codes):
            order = np.argsort(codes, kind="stable")
            first = np.flatnonzero(np.diff(codes[order], prepend=-1))
            total[codes[order[first]]] = np.add.reduceat(A[order], first, axis=0)
        return total


def start_weights(levels: int, rank: int) -> np.ndarray:
    """Return W to start from: a column that all levels share, then smaller waves that differ. (L, rank)"""
    waves = np.cos(np.pi * np.outer(np.arange(levels) + 0.5, np.arange(rank)) / levels)
    return np.sqrt(0.5) * waves * np.where(np.arange(rank) == 0, 1.0, 0.3)


def categories_of(kernel: Kernel) -> Iterator[Category]:
    """Yield the kernels of categories inside a kernel."""
    return (leaf for leaf in leaves_of(kernel) if isinstance(leaf, Category))


def code_columns(kernel: Kernel) -> list[int]:
    """Return the input columns that hold codes of categories."""
    return sorted({int(part.column) for part in categories_of(kernel)})


def one_hot(X: Array, components: int) -> Array:
    """Return the component in the last column of X as a row with a single 1. (n, components)"""
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
    """variance_i [i = j] for components i and j, which are independent."""

    names: ClassVar[tuple[str, ...]] = ("variance",)

    variance: Any
    columns: tuple[int, ...] | None = field(default=None, kw_only=True)

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
    """The kernel of slopes a·∇g of a potential g, whose own kernel is a function of s = |d|², d = (x - z)/ℓ.

    The covariance of a·∇g at x with b·∇g at z, scaled so that `variance` is that of each component, is

        variance [p a·b - t (a·d)(b·d)],   t = -2p',   u = -2t'

    with p = t = u = exp(-s/2) for a potential under the RBF kernel, which is smooth, and with ρ = √(5s)

        p = (1 + ρ) exp(-ρ),   t = 5 exp(-ρ),   u = 25 exp(-ρ)/ρ

    under Matern52: a field as rough as Matern32, like winds. A subclass gives the directions a.
    """

    names: ClassVar[tuple[str, ...]] = ("lengthscale", "variance")

    lengthscale: Any = 1.0
    variance: Any = 1.0
    potential: str = "matern52"  # or "rbf"
    columns: tuple[int, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("potential", self.potential, ("matern52", "rbf"))

    def _directions(self, X: Array) -> Array:
        """Return a of each row. (n, d)"""
        raise NotImplementedError

    def _profile(self, s: Array, slope: bool) -> tuple[Array, Array, Array | None]:
        """Return p, t and, if `slope`, u, each times the variance."""
        xp = namespace(s)
        if self.potential == "rbf":
            p = self.variance * xp.exp(-0.5 * s)
            return p, p, p
        rho = xp.sqrt(5.0 * s)
        e = self.variance * xp.exp(-rho)
        apart = rho > 1e-7  # u is multiplied by (a·d)(b·d), which vanishes faster
        u = None
        if slope:
            u = xp.where(apart, 25.0 * e / xp.where(apart, rho, xp.ones_like(rho)), xp.zeros_like(rho))
        return (1.0 + rho) * e, 5.0 * e, u

    def _pairs(self, X: Array, Z: Array) -> tuple[Array, ...]:
        """Return X and Z over ℓ about one centre, directions a and b, and for every pair a·b, a·d and b·d."""
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
    """A field ∇χ of d components in d dimensions, from a velocity potential: it has no rotation.

    K(x, z) = variance (p I - t d dᵀ), d = (x - z)/lengthscale.
    """

    def _directions(self, X: Array) -> Array:
        return one_hot(X, X.shape[1] - 1)


@dataclass(frozen=True, eq=False)
class DivergenceFree(_Gradient):
    """A field (-∂ψ/∂y, ∂ψ/∂x) in the plane, from a streamfunction: it has no divergence.

    K(x, z) = variance [(p - t dᵀd) I + t d dᵀ], d = (x - z)/lengthscale.
    """

    def _directions(self, X: Array) -> Array:
        if X.shape[1] != 3:
            raise ShapeError(f"DivergenceFree needs two coordinates and a component, not {X.shape[1]} inputs")
        return one_hot(X, 2) @ asarray_like(ROTATION, X)


ROTATION = np.array([[0.0, -1.0], [1.0, 0.0]])  # a row for u = -∂ψ/∂y and one for v = ∂ψ/∂x
