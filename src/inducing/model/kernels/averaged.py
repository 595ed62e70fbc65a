"""The RBF kernel of inputs known as a mean and a variance, averaged over them in closed form."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ...errors import ParameterError, ShapeError
from ...numerics.arrays import Array, is_numpy, namespace
from .base import Gradients, Kernel, as_parameter, per_input
from .distances import Exponents, squared_distances


@dataclass(frozen=True, eq=False)
class Averaged(Kernel):
    """E k(x, z) under the RBF kernel k with x, z ~ N(mean, variances): the kernel of f averaged over inputs.

    X has twice the columns, first means and then variances, 0 for a known input, and

        k(x, z) = variance Π_k (ℓ²/t)^½ exp(-½ (x - z)²/t),   t = ℓ² + v_x + v_z   [Girard 2004, §3.4]

    An average of f is a linear functional of f, so this is a valid kernel. Basis points of variance v are the
    Gaussians of a `Multiscale` basis with widths √(ℓ² + v); v is not learned. An observation at an uncertain
    x scatters about the average with variance `point_diag` - `diag`, which counts as noise.
    """

    names: ClassVar[tuple[str, ...]] = ("lengthscale", "variance")
    per_input_names: ClassVar[tuple[str, ...]] = ("lengthscale",)
    lengths: ClassVar[tuple[str, ...]] = ("lengthscale",)

    lengthscale: Any = 1.0
    variance: Any = 1.0
    columns: tuple[int, ...] | None = field(default=None, kw_only=True)

    @property
    def uncertain(self) -> bool:
        return True

    def point_diag(self, X: Array) -> Array:
        return self.variance * namespace(X).ones_like(X[:, 0])

    def point_diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        return super()._diag_pullback(self._halves(self._select(X))[0], kbar)

    def scaled(self, X: Array) -> Array:
        """Return the means over the lengthscales, without the variances. (n, d)"""
        mean = self._halves(self._select(X))[0]
        return mean / per_input("lengthscale", self.lengthscale, mean)

    def _select(self, X: Array) -> Array:
        """Return the means of the columns in use, then their variances."""
        half, columns = np.shape(X)[-1] // 2, self.columns
        if np.shape(X)[-1] % 2:
            raise ShapeError(f"Averaged needs a variance of every input, but X has {np.shape(X)[1]} columns")
        if columns is None:
            return super()._select(X)
        if max(columns) >= half:
            raise ShapeError(f"Averaged looks at column {max(columns)}, but there are {half} inputs")
        X = Kernel._select(Averaged(), X)
        return X[:, [*columns, *(half + c for c in columns)]]

    def _halves(self, X: Array) -> tuple[Array, Array]:
        d = X.shape[1] // 2
        if X.shape[0] and bool(namespace(X).any(X[:, d:] < 0.0)):
            raise ParameterError("the second half of X holds variances, but one of them is negative")
        return X[:, :d], X[:, d:]

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        (x, vx), (z, vz), xp = self._halves(X), self._halves(Z), namespace(X)
        scales = per_input("lengthscale", self.lengthscale, x)
        t, height = scales**2 + vx, float(np.log(self.variance)) + xp.sum(xp.log(scales))
        if X is not Z and X.shape[0] and not bool(xp.any(vz > 0.0)):  # a product of features
            form = Exponents.of(x, xp.sqrt(t), height - 0.5 * xp.sum(xp.log(t), axis=1))
            E = form.matrix(z).T
        else:
            known = ~(xp.any(vx > 0.0, axis=0) | xp.any(vz > 0.0, axis=0))  # (d,)
            where = [k for k in range(len(known)) if bool(known[k])]
            height = float(height) - float(xp.sum(xp.log(scales[where])))
            E = squared_distances(
                x[:, where], z[:, where], scale=1.0 / scales[where], constant=height, factor=-0.5
            )
            for k in (k for k in range(len(known)) if not bool(known[k])):
                tau = t[:, k, None] + vz[None, :, k]
                E = E - 0.5 * (xp.log(tau) + (x[:, k, None] - z[None, :, k]) ** 2 / tau)
        return np.exp(E, out=out) if is_numpy(E) else xp.exp(E)

    def _diag(self, X: Array) -> Array:
        x, v = self._halves(X)
        scales = per_input("lengthscale", self.lengthscale, x)
        return self.variance / namespace(X).sqrt(namespace(X).prod(1.0 + 2.0 * v / scales**2, axis=1))

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        (x, vx), (z, vz), xp = self._halves(X), self._halves(Z), namespace(X)
        scales = per_input("lengthscale", self.lengthscale, x)
        W = Kbar * (self._matrix(X, Z, None) if K is None else K)
        lengths, Zbar = [], []
        for k in range(x.shape[1]):
            tau = scales[k] ** 2 + vx[:, k, None] + vz[None, :, k]
            u = (x[:, k, None] - z[None, :, k]) / tau
            Zbar.append(xp.sum(W * u, axis=0))
            lengths.append(xp.sum(W * (1.0 / scales[k] + scales[k] * (u * u - 1.0 / tau))))
        lengthscale = as_parameter(xp.stack(lengths), self.lengthscale)
        means = xp.stack(Zbar, axis=1)
        gradients = {"lengthscale": lengthscale, "variance": xp.sum(W) / self.variance}
        return gradients, xp.concat([means, 0.0 * means], axis=1)

    def _diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        xp, (x, v) = namespace(X), self._halves(X)
        scales, w = per_input("lengthscale", self.lengthscale, x), kbar * self._diag(X)
        lengths = xp.sum(w[:, None] * (1.0 / scales - scales / (scales**2 + 2.0 * v)), axis=0)
        return {"lengthscale": as_parameter(lengths, self.lengthscale), "variance": xp.sum(w) / self.variance}
