"""A kernel that sees the levels of columns with few values, beside their numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ParameterError, ShapeError
from ...numerics.arrays import Array, asarray_like, namespace
from .base import Gradients, OfChanged, by_path, numbers

OUTERMOST = 1e30  # beyond the first and the last level nothing changes


@dataclass(frozen=True, eq=False)
class Levels(OfChanged):
    """k([x, h(x)], [z, h(z)]): a kernel k of d inputs and L hats, one for each level of some columns.

    levels (L, 2) are numbers of columns and values there. The hat of a value is 1 there, 0 at the values next
    to it and beyond, and straight between, so that rows at a level see its indicator, and rows between two
    levels a mixture; beyond the outermost nothing changes. With a lengthscale for each hat the levels of a
    column are as far from each other as they need be, in whatever order.
    """

    levels: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        levels = numbers("levels", self.levels)
        if levels.ndim != 2 or levels.shape[1:] != (2,) or not len(levels):
            raise ParameterError(f"levels must be pairs (column, value), not of shape {levels.shape}")
        levels = np.unique(levels, axis=0)
        if np.any(levels[:, 0] < 0) or np.any(levels[:, 0] != np.floor(levels[:, 0])):
            raise ParameterError("levels must name columns from 0 on, by whole numbers")
        object.__setattr__(self, "levels", levels)

    @property
    def owners(self) -> np.ndarray:
        """The column of each level. (L,) of int"""
        return self.levels[:, 0].astype(int)

    def columns_of(self, d: int) -> np.ndarray:
        """1 where a level is of a column. (L, d)"""
        return np.eye(d)[self.owners]

    @property
    def corners(self) -> np.ndarray:
        """Begin, top and end of each hat. (L, 3)"""
        owners, at = self.owners, self.levels[:, 1]
        same = owners[1:] == owners[:-1]
        before = np.concatenate([[-OUTERMOST], np.where(same, at[:-1], -OUTERMOST)])
        after = np.concatenate([np.where(same, at[1:], OUTERMOST), [OUTERMOST]])
        return np.stack([before, at, after], axis=1)

    def changed(self, X: Array) -> Array:
        return self.features(X)[0]

    def features(self, X: Array) -> tuple[Array, Array]:
        """[x, h(x)] of each row (n, d + L), and the slopes of h (n, L)."""
        if max(self.owners) >= X.shape[1]:
            raise ShapeError(f"Levels looks at column {max(self.owners)}, but X has {X.shape[1]} columns")
        xp, owners = namespace(X), self.owners
        low, middle, high = (asarray_like(v, X) for v in self.corners.T)
        x = X[:, list(owners)]
        rising, falling = (x - low) / (middle - low), (high - x) / (high - middle)
        zero = 0.0 * x
        rises, falls = (x > low) & (x < middle), (x >= middle) & (x < high)
        hats = xp.where(rises, rising, xp.where(falls, falling, zero))
        slopes = xp.where(rises, zero + 1.0 / (middle - low), zero)
        slopes = xp.where(falls & (x > middle), zero - 1.0 / (high - middle), slopes)
        return xp.concat([X, hats], axis=1), slopes

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
