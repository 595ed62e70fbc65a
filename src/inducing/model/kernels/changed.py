"""Kernels of changed inputs: projections of them [001 §5], or the inputs and features of some columns."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from ...errors import ParameterError, ShapeError
from ...numerics.arrays import Array, Given, asarray_like, is_numpy, namespace
from ...numerics.workers import row_slices
from .base import Gradients, Kernel, by_path, leaves_of, numbers
from .stationary import Stationary

SQUARE = 32  # rows of one small kernel matrix, of which only the diagonal is wanted
OUTERMOST = 1e30  # stands for the neighbour that the first and the last level do not have


@dataclass(frozen=True, eq=False)
class OfChanged(Kernel):
    """k(t(x), t(z)) for a kernel k and a function t of the inputs, `changed`; its own parameters may be any
    real numbers, those of k have paths like "0.lengthscale".
    """

    kernel: Kernel

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise ParameterError(f"a {type(self).__name__} needs a kernel inside, not {self.kernel!r}")
        self._check_columns()

    @property
    def parts(self) -> tuple[Kernel]:
        """The kernel inside, to which the path "0." leads."""
        return (self.kernel,)

    @property
    def parameters(self) -> dict[str, Any]:
        return super().parameters | by_path([self.kernel.parameters])

    @property
    def unconstrained(self) -> tuple[str, ...]:
        return (*self.names, *(f"0.{name}" for name in self.kernel.unconstrained))

    def _replaced(self, values: Mapping[str, Any]) -> Self:
        own = {name: values[name] for name in self.names if name in values}
        inner = {name.removeprefix("0."): value for name, value in values.items() if name not in own}
        return replace(self, kernel=self.kernel.with_parameters(inner), **own)

    def changed(self, X: Array) -> Array:
        """Return t(x) of each row. (n, g)"""
        raise NotImplementedError

    def scaled(self, X: Array) -> Array:
        return self.kernel.scaled(self.changed(self._select(X)))

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        T = self.changed(X)
        return self.kernel.covariances(T, T if X is Z else self.changed(Z), out)

    def _diag(self, X: Array) -> Array:
        return self.kernel.diagonal(self.changed(X))


@dataclass(frozen=True, eq=False)
class Projected(OfChanged):
    """k(Wx, Wz) for a kernel k of g inputs and a matrix W (g, d), whose entries are any real numbers.

    Scaling a row of W together with its lengthscale changes nothing, so hold one of the two in a fit:
    fit(..., fixed=["kernel.0.lengthscale"]).
    """

    names: ClassVar[tuple[str, ...]] = ("matrix",)

    matrix: Any
    columns: tuple[int, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        matrix = numbers("matrix", self.matrix)
        if matrix.ndim != 2 or matrix.size == 0:
            raise ParameterError(f"matrix must have two dimensions (directions, inputs), not {matrix.shape}")
        object.__setattr__(self, "matrix", matrix)

    def changed(self, X: Array) -> Array:
        """Return Wx of each row. (n, g)"""
        if X.shape[1] != self.matrix.shape[1]:
            raise ShapeError(f"the matrix projects {self.matrix.shape[1]} inputs, but there are {X.shape[1]}")
        return X @ asarray_like(self.matrix, X).T

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        """Return dJ/dW = PX̄ᵀX + PZ̄ᵀZ and the rest; PX = XWᵀ, and PX̄ is PZ̄ of the transpose."""
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


class OfFeatures(OfChanged):
    """k([x, h(x)], [z, h(z)]): a kernel k of d inputs and L features, each a function of one input column."""

    spread: float  # of a feature's values, about

    @property
    def owners(self) -> np.ndarray:
        """The input column of each feature. (L,) of int"""
        return self._table[:, 0].astype(int)

    @property
    def hats(self) -> np.ndarray:
        """Column, begin, top, end of each hat; of a warp column, centre, and twice centre + scale. (L, 4)"""
        raise NotImplementedError

    @property
    def _table(self) -> np.ndarray:
        """A row for each feature: column, place and, of a warp, scale. (L, 2 or 3)"""
        raise NotImplementedError

    def in_units(self, x_mean: np.ndarray, x_scale: np.ndarray) -> Self:
        """Return the kernel whose features of (x - x_mean)/x_scale are this kernel's features of x."""
        c, at, scales = self.owners, self._table[:, 1], self._table[:, 2:]
        table = np.column_stack([c, (at - x_mean[c]) / x_scale[c], scales / x_scale[c, None]])
        return type(self)(self.kernel, table)  # type: ignore[call-arg]

    def _of_columns(self, x: Array) -> tuple[Array, Array]:
        """Return features and their slopes from x (n, L), which holds each feature's column. (n, L) each"""
        raise NotImplementedError

    def columns_of(self, d: int) -> np.ndarray:
        """Return 1 where a feature is of an input column, else 0. (L, d)"""
        return np.eye(d)[self.owners]

    def changed(self, X: Array) -> Array:
        return self.features(X)[0]

    def features(self, X: Array) -> tuple[Array, Array]:
        """Return [x, h(x)] of each row (n, d + L), and the slopes of h (n, L)."""
        most = max(self.owners)
        if most >= X.shape[1]:
            name = type(self).__name__
            raise ShapeError(f"{name} looks at column {most}, but X has {X.shape[1]} columns")
        h, slopes = self._of_columns(X[:, list(self.owners)])
        return namespace(X).concat([X, h], axis=1), slopes

    def triangle(self, X: Array, out: Array | None = None, rows: slice | None = None) -> Array:
        return self.kernel.triangle(self.changed(X), out, rows)

    def triangle_pullback(self, X: Array, Kbar: Array, rows: slice | None = None) -> Gradients:
        return by_path([self.kernel.triangle_pullback(self.changed(X), Kbar, rows)])

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        F, slopes = self.features(Z)
        gradients, Fbar = self.kernel.pullback(self.changed(X), F, Kbar, K)
        d = Z.shape[1]
        columns = asarray_like(self.columns_of(d), Z)
        return by_path([gradients]), Fbar[:, :d] + (Fbar[:, d:] * slopes) @ columns

    def _diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        return by_path([self.kernel.diag_pullback(self.changed(X), kbar)])


def _checked(name: str, given: Given, wanted: str, count: int) -> np.ndarray:
    """Return sorted distinct rows of `count` numbers, a column first. Raise if `given` holds no such rows."""
    table = numbers(name, given)
    if table.ndim != 2 or table.shape[1:] != (count,) or not len(table):
        raise ParameterError(f"{name} must be {wanted}, not of shape {table.shape}")
    if np.any(table[:, 0] < 0) or np.any(table[:, 0] != np.floor(table[:, 0])):
        raise ParameterError(f"{name} must name columns from 0 on, by whole numbers")
    return np.unique(table, axis=0)


@dataclass(frozen=True, eq=False)
class Levels(OfFeatures):
    """k([x, h(x)], [z, h(z)]): a kernel k of d inputs and L hats, one for each level of some columns.

    Each row of levels (L, 2) is a column and a value in it. A hat is 1 at its value, 0 at the values next to
    it and beyond, and linear between, so that a row at a level sees its indicator, and a row between two a
    mixture; beyond the outermost levels hats stay constant. With a lengthscale for each hat, the levels of a
    column can be any distance apart, in any order.
    """

    levels: Any
    spread = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "levels", _checked("levels", self.levels, "pairs (column, value)", 2))

    @property
    def _table(self) -> np.ndarray:
        return self.levels

    @property
    def hats(self) -> np.ndarray:
        owners, at = self.owners, self.levels[:, 1]
        same = owners[1:] == owners[:-1]
        before = np.concatenate([[-OUTERMOST], np.where(same, at[:-1], -OUTERMOST)])
        after = np.concatenate([np.where(same, at[1:], OUTERMOST), [OUTERMOST]])
        return np.stack([owners, before, at, after], axis=1)

    def _of_columns(self, x: Array) -> tuple[Array, Array]:
        xp = namespace(x)
        low, middle, high = (asarray_like(v, x) for v in self.hats[:, 1:].T)
        rising, falling = (x - low) / (middle - low), (high - x) / (high - middle)
        zero = 0.0 * x
        rises, falls = (x > low) & (x < middle), (x >= middle) & (x < high)
        slopes = xp.where(rises, zero + 1.0 / (middle - low), zero)
        slopes = xp.where(falls & (x > middle), zero - 1.0 / (high - middle), slopes)
        return xp.where(rises, rising, xp.where(falls, falling, zero)), slopes


@dataclass(frozen=True, eq=False)
class Warped(OfFeatures):
    """k([x, h(x)], [z, h(z)]): a kernel k of d inputs and L warps, h(x) = asinh((x_k - centre)/scale) each.

    Each row of warps (L, 3) is a column, a centre and a scale. A warp is linear near its centre and grows
    like a logarithm far from it, so that the few far values of a column with long tails are as near to each
    other as the many at its centre. Usually k looks at the warp instead of the column: of three inputs,
    Warped(Matern32(lengthscale, columns=(0, 3)), [(1, 5.0, 2.0)]) sees the first and the warp of the second.
    """

    warps: Any
    spread = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        warps = _checked("warps", self.warps, "triples (column, centre, scale)", 3)
        if not np.all(warps[:, 2] > 0):
            raise ParameterError(f"the scale of a warp must be positive, not {warps[:, 2].min():g}")
        object.__setattr__(self, "warps", warps)

    @property
    def _table(self) -> np.ndarray:
        return self.warps

    @property
    def hats(self) -> np.ndarray:
        owners, centre, scale = self.warps.T
        return np.stack([owners, centre, centre + scale, centre + scale], axis=1)

    def _of_columns(self, x: Array) -> tuple[Array, Array]:
        xp, (centre, scale) = namespace(x), (asarray_like(v, x) for v in self.warps[:, 1:].T)
        t = (x - centre) / scale
        return xp.asinh(t), 1.0 / (scale * xp.sqrt(1.0 + t * t))
