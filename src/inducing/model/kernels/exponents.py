"""The logarithm of a matrix of Gaussians, as one product of features of the rows and coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...numerics.arrays import Array, is_numpy, namespace, zeros_like_rows
from ...numerics.linalg import row_squares
from .distances import middle, squared_distances, within_reach

BY_DIFFERENCES = 1 << 12  # entries of a matrix that takes no time either way
NEAR_CENTRE = 2.0**12  # squared distances from the centre up to which one product gives exponents to 1e-12


@dataclass(frozen=True, eq=False)
class Exponents:
    """constants_j - ½ Σ_k P_jk (u_k - v_jk)² with u = (x - centre) scale.

    As a product, [u, u², 1] [vP; -½P; constants - ½ Σ v²P], or where all P are one, [u, -½|u|², 1] [v; 1;
    constants - ½|v|²]: five times faster than differences. Its rounding error is that of |u|² + |v|², so on
    the CPU small matrices and those that need all digits go by differences, and everywhere those of rows that
    lie far out: of x and z as they are, for u and v have lost digits there.
    """

    centre: Array  # (d,)
    scale: Array  # (d,)
    Z: Array  # (m, d)
    v: Array  # (m, d)
    P: Array | None  # (m, d), at most one
    constants: Array | float  # (m,)

    @staticmethod
    def of(Z: Array, lengths: Array, constants: Array | float) -> Exponents:
        """Gaussians at Z whose widths are `lengths`: (d,) for all of them alike, or (m, d)."""
        xp = namespace(Z)
        alike = lengths.ndim == 1
        scale = 1.0 / (lengths if alike else xp.min(lengths, axis=0))
        centre = middle(Z)
        P = None if alike else 1.0 / (lengths * scale) ** 2
        return Exponents(centre, scale, Z, (Z - centre) * scale, P, constants)

    def within(self, X: Array) -> Array:
        """u of each row. (n, d)"""
        return (X - self.centre) * self.scale

    @property
    def coefficients(self) -> Array:
        """(m, d + 2), or (m, 2d + 1) with widths of their own."""
        xp, v, P = namespace(self.v), self.v, self.P
        if P is None:
            level = self.constants - 0.5 * row_squares(v)
            return xp.concat([v, xp.ones_like(v[:, :1]), level[:, None]], axis=1)
        level = self.constants - 0.5 * xp.sum(v * v * P, axis=1)
        return xp.concat([v * P, -0.5 * P, level[:, None]], axis=1)

    def features(self, U: Array) -> Array:
        xp = namespace(U)
        squares = -0.5 * row_squares(U)[:, None] if self.P is None else U * U
        return xp.concat([U, squares, xp.ones_like(U[:, :1])], axis=1)

    def matrix(self, X: Array, out: Array | None = None, *, digits: bool = False) -> Array:
        """The exponents of every pair. (n, m)"""
        U, xp = self.within(X), namespace(X)
        exact = is_numpy(U) and (digits or U.shape[0] * self.v.shape[0] < BY_DIFFERENCES)
        if exact or not within_reach(NEAR_CENTRE, U, self.v):
            return self._by_differences(X, out)
        left, right = self.features(U), self.coefficients
        return xp.matmul(left, right.T, out=out) if out is not None else left @ right.T

    def _by_differences(self, X: Array, out: Array | None) -> Array:
        if self.P is None and np.ndim(self.constants) == 0:
            constant = float(self.constants)
            return squared_distances(X, self.Z, out, scale=self.scale, constant=constant, factor=-0.5)
        out = zeros_like_rows((X.shape[0], self.Z.shape[0]), X) if out is None else out
        out[...] = self.constants
        for k in range(X.shape[1]):
            difference = (X[:, k, None] - self.Z[None, :, k]) * self.scale[k]
            difference *= difference
            difference *= -0.5 if self.P is None else -0.5 * self.P[:, k]
            out += difference
        return out
