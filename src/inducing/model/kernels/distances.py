"""Squared distances between two sets of rows, and the logarithm of a matrix of Gaussians as one product."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...numerics.arrays import Array, holds, is_numpy, is_torch, namespace, worth_compiling
from ...numerics.linalg import row_squares
from ...numerics.workers import interruptible

FAR_OUT = 2.0**20  # squared distances from the centre up to which moments give gradients to 1e-10
MIDDLE_ROWS = 512  # rows that the centre is the median of
BY_DIFFERENCES = 1 << 12  # entries of a matrix below which differences cost no more than a product
NEAR_CENTRE = 2.0**12  # squared distances from the centre up to which one product gives exponents to 1e-12


def squared_distances(
    X: Array,
    Z: Array,
    out: Array | None = None,
    *,
    scale: Array | None = None,
    constant: float = 0.0,
    factor: float = 1.0,
) -> Array:
    """Return constant + factor Σ_k ((x_k - z_k) scale_k)² for every pair, or of batches of rows. (..., n, m)

    It takes differences of rows, so nothing cancels, however far the data lie from the origin, and an entry
    depends on its two rows alone.
    """
    if is_numpy(X) and X.ndim == 2 and worth_compiling(X.shape[0] * Z.shape[0]):
        from ...numerics.loops import affine_squared_distances

        if scale is None:
            scale = np.ones(X.shape[1], dtype=X.dtype)
        if out is None:
            out = np.empty((X.shape[0], Z.shape[0]), dtype=X.dtype)
        Zt = np.ascontiguousarray(Z.T)
        for rows in interruptible(len(X), Zt.size):
            affine_squared_distances(X[rows], Zt, scale, constant, factor, out[rows])
        return out
    s = namespace(X).zeros((*X.shape[:-1], Z.shape[-2]), dtype=X.dtype, device=X.device)
    if constant:
        s += constant
    fused = is_torch(s)
    for k in range(X.shape[-1]):
        difference = X[..., :, None, k] - Z[..., None, :, k]
        if scale is not None:
            difference *= scale[k]
        if fused:
            s.addcmul_(difference, difference, value=factor)
        else:
            difference *= difference if factor == 1.0 else factor * difference
            s += difference
    return s


def middle(Z: Array) -> Array:
    """Return the median of some rows, input by input, which a few rows far out do not move. (d,)"""
    if not Z.shape[0]:
        return namespace(Z).sum(Z, axis=0)
    some = Z[:: max(1, Z.shape[0] // MIDDLE_ROWS)]
    return namespace(Z).sort(some, axis=0)[some.shape[0] // 2]


def longest(squares: Array) -> Array | float:
    """Return the largest of the rows' squared lengths, 0 if there are no rows."""
    return namespace(squares).max(squares) if squares.shape[0] else 0.0


def within_reach(limit: float, U: Array, other: Array | float = 0.0) -> bool:
    """Return whether the largest squared length of a row, plus `other`, is at most the limit."""
    return holds(longest(row_squares(U)) + other <= limit)


@dataclass(frozen=True, eq=False)
class Exponents:
    """The logarithms of Gaussians at Z: constants_j - ½ Σ_k P_jk (u_k - v_jk)² with u = (x - centre) scale.

    They are a product, [u, u², 1] [vP; -½P; constants - ½ Σ v²P], or where all P are one, [u, -½|u|², 1]
    [v; 1; constants - ½|v|²], which is five times faster than differences. Its rounding error is that of
    |u|² + |v|², so differences of x and z serve rows far out, and on the CPU small matrices and those that
    need all digits.
    """

    centre: Array  # (d,)
    scale: Array  # (d,)
    Z: Array  # (m, d)
    v: Array  # (m, d)
    P: Array | None  # (m, d), at most 1; None if all are 1
    constants: Array | float  # (m,)

    @staticmethod
    def of(Z: Array, lengths: Array, constants: Array | float) -> Exponents:
        """Make those of Gaussians at Z with widths `lengths`, (d,) for all of them alike, or (m, d)."""
        xp = namespace(Z)
        alike = lengths.ndim == 1
        scale = 1.0 / (lengths if alike else xp.min(lengths, axis=0))
        centre = middle(Z)
        P = None if alike else 1.0 / (lengths * scale) ** 2
        return Exponents(centre, scale, Z, (Z - centre) * scale, P, constants)

    def within(self, X: Array) -> Array:
        """Return u of each row. (n, d)"""
        return (X - self.centre) * self.scale

    @cached_property
    def coefficients(self) -> Array:
        """The right factor of the product. (m, d + 2), or (m, 2d + 1) if widths differ"""
        xp, v, P = namespace(self.v), self.v, self.P
        if P is None:
            level = self.constants - 0.5 * row_squares(v)
            right = xp.concat([v, xp.ones_like(v[:, :1]), level[:, None]], axis=1)
            # products on a GPU are quicker with rows of an even length in this order
            return right.T.contiguous().T if is_torch(right) and v.shape[1] % 2 == 0 else right
        level = self.constants - 0.5 * xp.sum(v * v * P, axis=1)
        return xp.concat([v * P, -0.5 * P, level[:, None]], axis=1)

    @cached_property
    def reach(self) -> Array | float:
        """The largest |v|²."""
        return longest(row_squares(self.v))

    def features(self, U: Array, lengths: Array) -> Array:
        """Return the left factor: [u, -½|u|², 1] with `lengths` |u|², or [u, u², 1] if widths differ."""
        xp = namespace(U)
        squares = -0.5 * lengths[:, None] if self.P is None else U * U
        return xp.concat([U, squares, xp.ones_like(U[:, :1])], axis=1)

    def matrix(self, X: Array, out: Array | None = None, *, digits: bool = False) -> Array:
        """Return the logarithm of every pair; `digits` asks for differences on the CPU. (n, m)"""
        U, xp = self.v if X is self.Z else self.within(X), namespace(X)
        if is_numpy(U) and (digits or U.shape[0] * self.v.shape[0] < BY_DIFFERENCES):
            return self._by_differences(X, out)
        lengths = row_squares(U)
        if not holds(longest(lengths) + self.reach <= NEAR_CENTRE):
            return self._by_differences(X, out)
        left, right = self.features(U, lengths), self.coefficients
        return xp.matmul(left, right.T, out=out) if out is not None else left @ right.T

    def _by_differences(self, X: Array, out: Array | None) -> Array:
        if self.P is None and np.ndim(self.constants) == 0:
            constant = float(self.constants)
            return squared_distances(X, self.Z, out, scale=self.scale, constant=constant, factor=-0.5)
        if out is None:
            out = namespace(X).empty((X.shape[0], self.Z.shape[0]), dtype=X.dtype, device=X.device)
        out[...] = self.constants
        for k in range(X.shape[1]):
            difference = (X[:, k, None] - self.Z[None, :, k]) * self.scale[k]
            difference *= difference
            difference *= -0.5 if self.P is None else -0.5 * self.P[:, k]
            out += difference
        return out
