"""Kernels of the scaled distance s = Σ (x - z)² / ℓ²: RBF, Matérn, rational quadratic."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from ..backend import Array, asarray_like, is_numpy, namespace, worth_compiling, zeros_like_rows
from ..errors import ShapeError
from ..linalg import row_squares
from .base import Gradients, Kernel, positive


def squared_distances(
    X: Array, Z: Array, out: Array | None = None, *, constant: float = 0.0, factor: float = 1.0
) -> Array:
    """constant + factor Σ_k (x_k - z_k)² for every pair. (n, m)

    By differences: nothing cancels, however far the data lie from the origin.
    """
    if is_numpy(X) and worth_compiling(X.shape[0] * Z.shape[0]):
        from .._fused import affine_squared_distances

        if out is None:
            out = np.empty((X.shape[0], Z.shape[0]), dtype=X.dtype)
        affine_squared_distances(X, np.ascontiguousarray(Z.T), constant, factor, out)
        return out
    s = zeros_like_rows((X.shape[0], Z.shape[0]), X) + constant
    for k in range(X.shape[1]):
        difference = X[:, k, None] - Z[None, :, k]
        s += factor * difference * difference
    return s


FEW = 1 << 12  # entries of a matrix that takes no time either way
NEAR = 2.0**12  # squared distances from the centre up to which one product gives exponents to 1e-12


def gaussian_exponents(X: Array, Z: Array, constant: float, out: Array | None = None) -> Array:
    """constant - ½ Σ_k (x_k - z_k)² for every pair. (n, m)

    As one product, [x, -½|x|², 1] [z; 1; constant - ½|z|²] about the centre of Z, five times faster than differences; its
    rounding error is that of |x|² + |z|², so on the CPU inputs that lie far out, and small matrices, go by differences.
    """
    xp = namespace(X)
    if is_numpy(X) and X.shape[0] * Z.shape[0] < FEW:
        return squared_distances(X, Z, out, constant=constant, factor=-0.5)
    centre = xp.mean(Z, axis=0)
    Xc, Zc = X - centre, Z - centre
    x2, z2 = row_squares(Xc), row_squares(Zc)
    if is_numpy(X) and x2.max(initial=0.0) + z2.max(initial=0.0) > NEAR:
        return squared_distances(X, Z, out, constant=constant, factor=-0.5)
    left = xp.concat([Xc, -0.5 * x2[:, None], xp.ones_like(x2)[:, None]], axis=1)
    right = xp.concat([Zc, xp.ones_like(z2)[:, None], constant - 0.5 * z2[:, None]], axis=1)
    E = xp.matmul(left, right.T, out=out) if out is not None else left @ right.T
    if X is Z and is_numpy(E):
        np.fill_diagonal(E, constant)
    return E


@dataclass(frozen=True, eq=False)
class Stationary(Kernel):
    """variance · g(s) with s = Σ_k (x_k - z_k)² / ℓ_k². A scalar lengthscale is shared by all inputs.

    A kernel of this family only says what g is (`_profile`) and W = -2 dK/ds (`_slope`). Everything else follows:
    dK/dz_k = W (x_k - z_k)/ℓ_k² and dK/dℓ_k = W (x_k - z_k)²/ℓ_k³, so a gradient needs only WᵀX and the sums of W.
    """

    names: ClassVar[tuple[str, ...]] = ("lengthscale", "variance")

    lengthscale: Any = 1.0
    variance: Any = 1.0
    _: KW_ONLY
    columns: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in self.names:
            object.__setattr__(self, name, positive(name, getattr(self, name), scalar=name != "lengthscale"))
        self._check_columns()

    def _profile(self, s: Array) -> Array:
        """variance · g(s), overwriting s where that saves memory."""
        raise NotImplementedError

    def _slope(self, s: Array, K: Array) -> Array:
        """W = -2 dK/ds. (n, m)"""
        raise NotImplementedError

    def _needs_distances(self) -> bool:
        """Whether `_slope` looks at s; the RBF's does not."""
        return True

    def scales(self, X: Array) -> Array:
        """The lengthscale of each input, on X's device. (d,)"""
        scales = np.full(X.shape[1], self.lengthscale) if np.ndim(self.lengthscale) == 0 else self.lengthscale
        if len(scales) != X.shape[1]:
            raise ShapeError(f"the kernel has {len(scales)} lengthscales, but the inputs have {X.shape[1]} columns")
        return asarray_like(scales, X)

    def scaled(self, X: Array) -> Array:
        """X as the kernel measures it: its columns over their lengthscales. (n, d)"""
        X = self._select(X)
        return X / self.scales(X)

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        scales = self.scales(X)
        return self._profile(squared_distances(X / scales, Z / scales, out))

    def _diag(self, X: Array) -> Array:
        return asarray_like(self.variance, X) * namespace(X).ones_like(X[:, 0])

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        xp, scales = namespace(X), self.scales(X)
        centre = xp.mean(Z, axis=0) if Z.shape[0] else 0.0
        X, Z = (X - centre) / scales, (Z - centre) / scales
        s = squared_distances(X, Z) if self._needs_distances() else None
        if K is None:
            K = self._profile(xp.asarray(s, copy=True) if s is not None else squared_distances(X, Z))
        gradients = self._profile_gradients(s, K, Kbar)
        if s is not None:
            gradients["variance"] = _total(Kbar, K) / self.variance
        W = _multiply(Kbar, self._slope(s, K))
        WX, columns, WX2 = _moments(W, X)
        Zbar = WX - columns * Z  # in units of the lengthscale
        per_scale = WX2 - xp.sum(Z * (WX + Zbar), axis=0)  # Σ W (x - z)²/ℓ²
        gradients["lengthscale"] = (xp.sum(per_scale) if np.ndim(self.lengthscale) == 0 else per_scale) / (
            scales[0] if np.ndim(self.lengthscale) == 0 else scales
        )
        if s is None:  # W = K̄∘K
            gradients["variance"] = xp.sum(columns) / self.variance
        return gradients, Zbar / scales

    def _profile_gradients(self, s: Array, K: Array, Kbar: Array) -> Gradients:
        """dJ/d(parameters of g) other than lengthscale and variance."""
        return {}

    def _diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        xp = namespace(X)
        zero = 0.0 * xp.sum(kbar)
        gradients = dict.fromkeys(self.names, zero)
        gradients["variance"] = xp.sum(kbar)
        if np.ndim(self.lengthscale) > 0:
            gradients["lengthscale"] = zero * self.scales(X)
        return gradients


def _moments(W: Array, X: Array) -> tuple[Array, Array, Array]:
    """WᵀX (m, d), Wᵀ1 (m, 1) and Σ_ij W_ij x_ik² (d,).

    Sums of rows are cheap on the CPU, where columns of a narrow product cost; on a GPU every pass over W costs most.
    """
    xp = namespace(W)
    one = xp.ones_like(X[:, :1])
    if is_numpy(W):
        moments = W.T @ np.concatenate([X, one], axis=1)
        return moments[:, :-1], moments[:, -1:], (W @ np.ones(W.shape[1])) @ (X * X)
    moments, d = W.T @ xp.concat([X, one, X * X], axis=1), X.shape[1]
    return moments[:, :d], moments[:, d : d + 1], xp.sum(moments[:, d + 1 :], axis=0)


def _total(A: Array, B: Array) -> Array:
    """Σ A∘B."""
    if is_numpy(A):
        return np.vdot(A, B)
    return namespace(A).sum(A * B)


def _multiply(A: Array, B: Array) -> Array:
    """A∘B, in A's memory."""
    A *= B
    return A


@dataclass(frozen=True, eq=False)
class RBF(Stationary):
    """variance · exp(-s/2), the squared exponential."""

    def _profile(self, s: Array) -> Array:
        return self.variance * namespace(s).exp(-0.5 * s)

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        scales = self.scales(X)
        scaled = Z / scales
        E = gaussian_exponents(scaled if X is Z else X / scales, scaled, float(np.log(self.variance)), out)
        return namespace(E).exp(E, out=E)

    def _slope(self, s: Array, K: Array) -> Array:
        return K

    def _needs_distances(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class Matern12(Stationary):
    """variance · exp(-√s), the Ornstein-Uhlenbeck kernel. Not differentiable where inputs coincide; 0 is used there."""

    def _profile(self, s: Array) -> Array:
        xp = namespace(s)
        return self.variance * xp.exp(-xp.sqrt(s))

    def _slope(self, s: Array, K: Array) -> Array:
        xp = namespace(s)
        r = xp.sqrt(s)
        apart = r > 1e-7  # nearer than that, points coincide to rounding
        return xp.where(apart, K / xp.where(apart, r, xp.ones_like(r)), xp.zeros_like(r))


@dataclass(frozen=True, eq=False)
class Matern32(Stationary):
    """variance · (1 + √(3s)) exp(-√(3s))."""

    def _profile(self, s: Array) -> Array:
        xp = namespace(s)
        r = xp.sqrt(3.0 * s)
        return self.variance * (1.0 + r) * xp.exp(-r)

    def _slope(self, s: Array, K: Array) -> Array:
        xp = namespace(s)
        return 3.0 * self.variance * xp.exp(-xp.sqrt(3.0 * s))


@dataclass(frozen=True, eq=False)
class Matern52(Stationary):
    """variance · (1 + √(5s) + 5s/3) exp(-√(5s))."""

    def _profile(self, s: Array) -> Array:
        xp = namespace(s)
        r = xp.sqrt(5.0 * s)
        return self.variance * (1.0 + r + r * r / 3.0) * xp.exp(-r)

    def _slope(self, s: Array, K: Array) -> Array:
        xp = namespace(s)
        r = xp.sqrt(5.0 * s)
        return self.variance * (5.0 / 3.0) * (1.0 + r) * xp.exp(-r)


@dataclass(frozen=True, eq=False)
class RationalQuadratic(Stationary):
    """variance · (1 + s/(2a))^(-a): a mixture of RBFs whose shape parameter a is called `shape`."""

    names: ClassVar[tuple[str, ...]] = ("lengthscale", "variance", "shape")

    shape: Any = 1.0

    def _profile(self, s: Array) -> Array:
        xp = namespace(s)
        return self.variance * xp.exp(-self.shape * xp.log1p(s / (2.0 * self.shape)))

    def _slope(self, s: Array, K: Array) -> Array:
        return K / (1.0 + s / (2.0 * self.shape))

    def _profile_gradients(self, s: Array, K: Array, Kbar: Array) -> Gradients:
        xp = namespace(s)
        t = s / (2.0 * self.shape)
        dlogK = t / (1.0 + t) - xp.log1p(t)
        return {"shape": xp.sum(Kbar * K * dlogK)}
