"""The inducing variables u: values of f at points, or inner products of f with Gaussians of any width.

Both are linear functionals of f, so R = K - Q stays positive semi-definite, and every row of the table takes
either kind. A basis gives Kuu and Kfu for a kernel, and carries gradients back through both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from ..errors import NonFiniteError, ParameterError, ShapeError, WidthError
from ..numerics.arrays import Array, as_floats, asarray_like, is_foreign, is_numpy, namespace, to_numpy
from .kernels.base import Gradients, Kernel, as_parameter
from .kernels.distances import Exponents
from .kernels.stationary import RBF
from .parameters import Parametrised

MANY_WIDTHS = 64  # multiscale functions from which compiled loops make their Gram matrix

BothGradients = tuple[Gradients, Gradients]  # of the kernel and of the basis


def _matrix(name: str, value: Array) -> Array:
    """Return `value` as an (m, d) array of floats. Raise if it is none, or not finite."""
    array = value if is_foreign(value) else as_floats(value, name)
    if array.ndim != 2:
        raise ShapeError(f"{name} must have two dimensions (m, d), but has shape {tuple(array.shape)}")
    if not bool(namespace(array).all(namespace(array).isfinite(array))):
        raise NonFiniteError(f"{name} holds NaN or infinity; every entry must be finite")
    return array


@dataclass(frozen=True, eq=False)
class _Functions(Parametrised):
    """The base of both kinds: parameters are arrays (m, d) with a row for each basis function."""

    def __post_init__(self) -> None:
        for name, value in self.parameters.items():
            object.__setattr__(self, name, _matrix(name, value))

    def __len__(self) -> int:
        return getattr(self, self.names[0]).shape[0]

    def __getitem__(self, keep: slice | np.ndarray) -> Self:
        return replace(self, **{name: value[keep] for name, value in self.parameters.items()})

    def on(self, X: Array) -> Self:
        """Return this basis with X's namespace, dtype and device."""
        return replace(self, **{name: asarray_like(value, X) for name, value in self.parameters.items()})


@dataclass(frozen=True, eq=False)
class Points(_Functions):
    """u = f(Z): basis functions k(z, ·). Works with any kernel. [001], [003 §2]"""

    names: ClassVar[tuple[str, ...]] = ("Z",)

    Z: Array  # (m, d)

    @property
    def centers(self) -> Array:
        """Z, under the name that `Multiscale` has for it. (m, d)"""
        return self.Z

    def check(self, kernel: Kernel) -> None:
        """Accept any kernel."""

    def gram(self, kernel: Kernel) -> Array:
        """Return Kuu. (m, m)"""
        return kernel.covariances(self.Z, self.Z)

    def cross(self, kernel: Kernel, X: Array, out: Array | None = None) -> Array:
        """Return Kfu. (n, m)"""
        return kernel.covariances(X, self.Z, out)

    def gram_pullback(self, kernel: Kernel, Kbar: Array, K: Array | None = None) -> BothGradients:
        """Return the gradients of kernel and basis from a symmetric Kbar = dJ/dKuu (m, m)."""
        gradients, Zbar = kernel.pullback(self.Z, self.Z, Kbar, K)
        return gradients, {"Z": 2.0 * Zbar}  # both inputs of the kernel move, and Kbar is symmetric

    def cross_pullback(self, kernel: Kernel, X: Array, Kbar: Array, K: Array | None = None) -> BothGradients:
        """Return the gradients of kernel and basis from Kbar = dJ/dKfu (n, m), which may be overwritten."""
        gradients, Zbar = kernel.pullback(X, self.Z, Kbar, K)
        return gradients, {"Z": Zbar}

    def input_gradient(self, kernel: Kernel, X: Array, weights: Array) -> Array:
        """Return d/dx Σ_j weights_j k_j(x) at each row of X, weights being (m,), or (n, m) by row. (n, d)"""
        return kernel.pullback(self.Z, X, (weights + 0.0 * kernel.covariances(X, self.Z)).T)[1]


@dataclass(frozen=True, eq=False)
class Multiscale(_Functions):
    """Gaussian basis functions of any diagonal width under an RBF kernel. [000 eqs 10, 13, 15]

    With t² = 2s² - ℓ² and τ² = s_i² + s_j² - ℓ², and each function scaled to Kuu_ii = variance:

        Kfu_ij = variance Π_k (ℓ t_j / s_j²)^½ exp(-½ (x_i - v_j)² / s_j²)
        Kuu_ij = variance Π_k (t_i t_j / τ²)^½ exp(-½ (v_i - v_j)² / τ²)

    Widths s are standard deviations above ℓ/√2; a narrower function is outside the kernel's space [000 Lemma
    3.1]. With s = ℓ the functions are those of Points.
    """

    names: ClassVar[tuple[str, ...]] = ("centers", "widths")

    centers: Array  # (m, d)
    widths: Array  # (m, d)

    def __post_init__(self) -> None:
        super().__post_init__()
        if tuple(self.centers.shape) != tuple(self.widths.shape):
            shapes = f"centers {tuple(self.centers.shape)} and widths {tuple(self.widths.shape)}"
            raise ShapeError(f"{shapes} must have the same shape")

    def check(self, kernel: Kernel) -> None:
        """Raise if the kernel is no plain RBF kernel, or a width is too small for it."""
        if not isinstance(kernel, RBF) or kernel.columns is not None:
            name = type(kernel).__name__
            raise ParameterError(f"a Multiscale basis needs a plain RBF kernel, not {name}; use Points")
        scales = to_numpy(kernel.scales(self.centers))
        widths = to_numpy(self.widths)
        ratio = widths / scales
        if len(self) and not np.all(ratio > np.sqrt(0.5)):
            i, k = np.unravel_index(np.argmin(ratio), ratio.shape)
            raise WidthError(
                f"width {widths[i, k]:.6g} of basis function {i} in input {k} must be above lengthscale/√2 = "
                f"{scales[k] * np.sqrt(0.5):.6g}: widen it or shorten the lengthscale"
            )

    def _t2(self, kernel: RBF) -> tuple[Array, Array]:
        scales = kernel.scales(self.centers)
        return scales, 2.0 * self.widths**2 - scales**2  # (d,), (m, d)

    def gram(self, kernel: Kernel) -> Array:
        assert isinstance(kernel, RBF)
        xp = namespace(self.centers)
        scales, t2 = self._t2(kernel)
        v, s2 = self.centers, self.widths**2
        logs = 0.25 * xp.sum(xp.log(t2), axis=1)  # (m,)
        if is_numpy(v) and len(v) >= MANY_WIDTHS:
            from ..numerics.loops import gaussian_gram

            E, logs = np.empty((len(v), len(v)), dtype=v.dtype), 0.25 * np.sum(np.log(t2 / scales**2), axis=1)
            gaussian_gram(_columns(v / scales), _columns(s2 / scales**2), np.ones_like(scales), logs, E)
            return kernel.variance * np.exp(E, out=E)
        E = logs[:, None] + logs[None, :]
        for k in range(v.shape[1]):
            tau2 = s2[:, k, None] + s2[None, :, k] - scales[k] ** 2
            E = E - 0.5 * (xp.log(tau2) + (v[:, k, None] - v[None, :, k]) ** 2 / tau2)
        return kernel.variance * xp.exp(E)

    def gram_pullback(self, kernel: Kernel, Kbar: Array, K: Array | None = None) -> BothGradients:
        assert isinstance(kernel, RBF)
        xp = namespace(self.centers)
        scales, t2 = self._t2(kernel)
        W = Kbar * (self.gram(kernel) if K is None else K)  # symmetric
        total, rows = xp.sum(W), xp.sum(W, axis=1)[:, None]
        slopes, h = self._gram_slopes(scales, W)
        lengths = -scales * (xp.sum(rows / t2, axis=0) + 2.0 * xp.sum(h, axis=0))
        gradients = _rbf_gradients(kernel, total / kernel.variance, lengths)
        return gradients, {"centers": -2.0 * slopes, "widths": 2.0 * self.widths * (rows / t2 + 2.0 * h)}

    def _gram_slopes(self, scales: Array, W: Array) -> tuple[Array, Array]:
        """Return Σ_j W_ij (v_i - v_j)/τ² and Σ_j W_ij d(log K_ij)/d(τ²) of each input. (m, d) each"""
        xp, v, s2 = namespace(W), self.centers, self.widths**2
        if is_numpy(W) and len(v) >= MANY_WIDTHS:
            from ..numerics.loops import gaussian_gram_pullback

            slopes, h = np.empty_like(_columns(v)), np.empty_like(_columns(v))
            gaussian_gram_pullback(_columns(v), _columns(s2), scales**2, np.ascontiguousarray(W), slopes, h)
            return slopes.T, h.T
        columns: tuple[list[Array], list[Array]] = [], []
        for k in range(v.shape[1]):
            tau2 = s2[:, k, None] + s2[None, :, k] - scales[k] ** 2
            difference = (v[:, k, None] - v[None, :, k]) / tau2
            columns[0].append(xp.sum(W * difference, axis=1))
            columns[1].append(0.5 * xp.sum(W * (difference**2 - 1.0 / tau2), axis=1))
        return xp.stack(columns[0], axis=1), xp.stack(columns[1], axis=1)

    def cross(self, kernel: Kernel, X: Array, out: Array | None = None) -> Array:
        E = self.exponents(kernel).matrix(X, out)
        return namespace(E).exp(E, out=E)

    def exponents(self, kernel: Kernel) -> Exponents:
        """Return the form of log Kfu."""
        assert isinstance(kernel, RBF)
        xp = namespace(self.centers)
        scales, t2 = self._t2(kernel)
        logc = 0.5 * xp.sum(xp.log(scales) + 0.5 * xp.log(t2) - 2.0 * xp.log(self.widths), axis=1)  # (m,)
        return Exponents.of(self.centers, self.widths, logc + float(np.log(kernel.variance)))

    def cross_pullback(self, kernel: Kernel, X: Array, Kbar: Array, K: Array | None = None) -> BothGradients:
        form, W = self.exponents(kernel), Kbar
        W *= self.cross(kernel, X) if K is None else K
        U = form.within(X)
        return self.from_moments(kernel, form, W.T @ form.features(U, U[:, 0]))

    def from_moments(self, kernel: Kernel, form: Exponents, moments: Array) -> BothGradients:
        """Return the gradients of kernel and basis from moments Wᵀ[u, u², 1] (m, 2d + 1), W = K̄∘K."""
        assert isinstance(kernel, RBF)
        xp, v, s = namespace(moments), form.v, self.widths
        scales, t2 = self._t2(kernel)
        d = v.shape[1]
        WU, WU2, columns = moments[:, :d], moments[:, d : 2 * d], moments[:, -1:]
        first = WU - columns * v
        second = (WU2 - v * WU - v * first) / form.scale**2  # Σ_i W (x - v)²
        first = first / form.scale  # Σ_i W (x - v)
        lengths = 0.5 * xp.sum(columns * (1.0 / scales - scales / t2), axis=0)
        gradients = _rbf_gradients(kernel, xp.sum(columns) / kernel.variance, lengths)
        return gradients, {"centers": first / s**2, "widths": columns * (s / t2 - 1.0 / s) + second / s**3}

    def input_gradient(self, kernel: Kernel, X: Array, weights: Array) -> Array:
        K = self.cross(kernel, X) * weights
        xp = namespace(X)
        return K @ (self.centers / self.widths**2) - X * (K @ (1.0 / self.widths**2)) + 0.0 * xp.sum(X)


def _columns(A: np.ndarray) -> np.ndarray:
    """Return Aᵀ in C order."""
    return np.ascontiguousarray(A.T)


def _rbf_gradients(kernel: RBF, variance: Array, lengths: Array) -> Gradients:
    return {"lengthscale": as_parameter(lengths, kernel.lengthscale), "variance": variance}


Basis = Points | Multiscale


def as_multiscale(kernel: Kernel, basis: Basis) -> Multiscale:
    """Return the same functions as a Multiscale basis; points have the kernel's lengthscale as width."""
    if isinstance(basis, Multiscale):
        return basis
    assert isinstance(kernel, RBF)
    widths = basis.Z * 0.0 + kernel.scales(basis.Z)
    return Multiscale(basis.Z, widths)


def as_points(basis: Basis) -> Points:
    """Return points at the centres of a basis."""
    return basis if isinstance(basis, Points) else Points(basis.centers)


def union(kernel: Kernel, first: Basis, second: Basis) -> tuple[Basis, np.ndarray, np.ndarray]:
    """Return the union of two bases, equal functions once, and the places of each basis' functions in it."""
    if len(first) == 0 or len(second) == 0:
        whole = second if len(first) == 0 else first
        return whole, np.arange(len(first)), np.arange(len(second))
    if isinstance(first, Multiscale) or isinstance(second, Multiscale):
        first, second = as_multiscale(kernel, first), as_multiscale(kernel, second)
    both = [
        np.concatenate([to_numpy(a), to_numpy(b)])
        for a, b in zip(first.parameters.values(), second.parameters.values(), strict=True)
    ]
    _, kept, where = np.unique(np.concatenate(both, axis=1), axis=0, return_index=True, return_inverse=True)
    where = where.reshape(-1)
    basis = type(first)(*(part[kept] for part in both))
    return basis, where[: len(first)], where[len(first) :]


def places(basis: Basis) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the centres of the basis functions, and their widths if they have any. (m, d)"""
    return basis.centers, basis.widths if isinstance(basis, Multiscale) else None
