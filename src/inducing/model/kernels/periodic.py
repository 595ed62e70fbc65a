"""Kernels on circles and spheres: periodic, a finite Fourier series, and of places on a globe."""

from dataclasses import dataclass, field
from functools import reduce
from math import inf, pi, sqrt
from operator import mul
from typing import Any, ClassVar

import numpy as np

from ...errors import ParameterError, ShapeError
from ...numerics.arrays import Array, asarray_like, namespace
from .base import Gradients, Kernel, as_parameter, per_input
from .composite import products_without_each
from .dot import positive_integer
from .stationary import RBF, Matern12, Matern32, Matern52, Stationary

SMOOTHNESSES: dict[float, type[Stationary]] = {0.5: Matern12, 1.5: Matern32, 2.5: Matern52, inf: RBF}
RADIANS = pi / 180.0


@dataclass(frozen=True, eq=False)
class Periodic(Kernel):
    """variance · exp(-2 Σ_k sin²(π (x_k - z_k)/p_k) / ℓ_k²); inputs may share one lengthscale or period.

    With θ = 2πx/p the exponent is -½ |φ(x) - φ(z)|² / ℓ², where φ = (cos θ, sin θ) is a point on a circle for
    each input, so this is an RBF kernel of φ, at the same cost.
    """

    names: ClassVar[tuple[str, ...]] = ("lengthscale", "period", "variance")
    per_input_names: ClassVar[tuple[str, ...]] = ("lengthscale", "period")
    lengths: ClassVar[tuple[str, ...]] = ("period",)  # the lengthscale is one of the circle

    lengthscale: Any = 1.0
    period: Any = 1.0
    variance: Any = 1.0
    columns: tuple[int, ...] | None = field(default=None, kw_only=True)

    def _circle(self, X: Array) -> Array:
        """Return φ of each row: the cosines, then the sines. (n, 2d)"""
        xp, periods = namespace(X), per_input("period", self.period, X)
        theta = (2.0 * pi) * (xp.remainder(X, periods) / periods)  # exact, however far out x lies
        return xp.concat([xp.cos(theta), xp.sin(theta)], axis=1)

    def _rbf(self, X: Array) -> RBF:
        per_input("lengthscale", self.lengthscale, X)  # raises with the number of inputs, not twice that
        shared = np.ndim(self.lengthscale) == 0
        return RBF(self.lengthscale if shared else np.tile(self.lengthscale, 2), self.variance)

    def scaled(self, X: Array) -> Array:
        X = self._select(X)
        return self._rbf(X).scaled(self._circle(X))

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        circle = self._circle(X)
        return self._rbf(X)(circle, circle if Z is X else self._circle(Z), out)

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        xp, d = namespace(X), X.shape[1]
        scales = per_input("lengthscale", self.lengthscale, X)
        periods = per_input("period", self.period, X)
        Cx, Cz = self._circle(X), self._circle(Z)
        W = Kbar * (self._rbf(X)(Cx, Cz) if K is None else K)  # (n, m)
        centre, middle = _middle(Cz), _middle(Z)  # origins about which sums of differences lose fewest digits
        Px, Pz = Cx - centre, Cz - centre
        Pxbar = W @ Pz - xp.sum(W, axis=1)[:, None] * Px  # ℓ² dJ/dφ(x) = Σ_j W (φ(z) - φ(x))
        Pzbar = W.T @ Px - xp.sum(W, axis=0)[:, None] * Pz
        squares = -xp.sum(Px * Pxbar, axis=0) - xp.sum(Pz * Pzbar, axis=0)  # Σ W (φ(x) - φ(z))²
        Xbar = _along_circle(Cx, Pxbar) * (2.0 * pi / periods / scales**2)
        Zbar = _along_circle(Cz, Pzbar) * (2.0 * pi / periods / scales**2)
        # K depends on x/p and z/p only, so p dJ/dp = -Σ x dJ/dx - Σ z dJ/dz, about any origin
        period = -(xp.sum((X - middle) * Xbar, axis=0) + xp.sum((Z - middle) * Zbar, axis=0)) / periods
        gradients = {
            "lengthscale": as_parameter((squares[:d] + squares[d:]) / scales**3, self.lengthscale),
            "period": as_parameter(period, self.period),
            "variance": xp.sum(W) / self.variance,
        }
        return gradients, Zbar


def _along_circle(C: Array, Cbar: Array) -> Array:
    """Return dJ/dθ from dJ/dφ at φ = (cos θ, sin θ). (n, d)"""
    d = C.shape[1] // 2
    return C[:, :d] * Cbar[:, d:] - C[:, d:] * Cbar[:, :d]


def _middle(A: Array) -> Array:
    """Return the mean row, 0 if there are no rows. (d,)"""
    return namespace(A).sum(A, axis=0) / max(A.shape[0], 1)


@dataclass(frozen=True, eq=False)
class Trigonometric(Kernel):
    """variance · Π_k D(x_k - z_k) of period 1, with D(r) = 1 + 2 Σ_{n=1}^{order} cos 2πnr. [004 eq. 5.29]

    D(r) = cos(2π order r) + sin(2π order r) cot(πr), with D(0) = 2 order + 1 (the thesis has the cosine's
    sign wrong). It is computed as φ(x)'φ(z) with the 2 order + 1 orthonormal functions φ = (1, √2 cos 2πnx,
    √2 sin 2πnx) of [004 eq. 5.28], without a division and with one matrix product per input.
    """

    names: ClassVar[tuple[str, ...]] = ("variance",)

    order: int
    variance: Any = 1.0
    columns: tuple[int, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", positive_integer("order", self.order))
        super().__post_init__()

    def _waves(self, x: Array) -> tuple[Array, Array]:
        """Return φ and dφ/dx of one column x (n,). (n, 2 order + 1) each"""
        xp = namespace(x)
        w = asarray_like(2.0 * pi * np.arange(1, self.order + 1), x)  # (order,)
        theta = xp.remainder(x, xp.ones_like(x))[:, None] * w  # (n, order)
        cos, sin, one = sqrt(2.0) * xp.cos(theta), sqrt(2.0) * xp.sin(theta), xp.ones_like(x)[:, None]
        return xp.concat([one, cos, sin], axis=1), xp.concat([0.0 * one, -w * sin, w * cos], axis=1)

    def _factors(self, X: Array, Z: Array) -> list[Array]:
        """Return D(x_k - z_k) of every input k. (n, m) each"""
        return [self._waves(X[:, k])[0] @ self._waves(Z[:, k])[0].T for k in range(X.shape[1])]

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        return self.variance * reduce(mul, self._factors(X, Z))

    def _height(self, d: int) -> float:
        return (2.0 * self.order + 1.0) ** d

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        xp = namespace(X)
        factors = self._factors(X, Z)
        others = products_without_each(factors)
        Zbar = []
        for k in range(X.shape[1]):
            Px, (_, dPz) = self._waves(X[:, k])[0], self._waves(Z[:, k])
            Zbar.append(self.variance * xp.sum(((Kbar * others[k]).T @ Px) * dPz, axis=1))  # (m,)
        return {"variance": xp.sum(Kbar * factors[0] * others[0])}, xp.stack(Zbar, axis=1)


@dataclass(frozen=True, eq=False)
class Sphere(Kernel):
    """A Matérn kernel of the chord |p(x) - p(z)| between points p of the unit sphere at places x = (latitude,
    longitude) in degrees, so that longitudes -180 and 180 are the same.

    `lengthscale` is in radii (0.1 are 637 km on Earth), `smoothness` 0.5, 1.5, 2.5 or infinity. Inputs must
    come in degrees: with an estimator use standardize=False, and `columns` where there are more inputs.
    """

    names: ClassVar[tuple[str, ...]] = ("lengthscale", "variance")

    lengthscale: Any = 1.0
    variance: Any = 1.0
    smoothness: float = 1.5
    columns: tuple[int, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.smoothness not in SMOOTHNESSES:
            known = ", ".join(map(str, SMOOTHNESSES))
            raise ParameterError(f"smoothness must be one of {known}, not {self.smoothness!r}")
        super().__post_init__()

    @property
    def _of_points(self) -> Stationary:
        """The Matérn kernel of points in space."""
        return SMOOTHNESSES[self.smoothness](self.lengthscale, self.variance)

    def _points(self, X: Array) -> Array:
        """Return p(x) of each row. (n, 3)"""
        if X.shape[1] != 2:
            raise ShapeError(f"Sphere needs latitude and longitude, not {X.shape[1]} columns; use columns=")
        xp, place = namespace(X), RADIANS * X
        level = xp.cos(place[:, 0])
        turn = place[:, 1]
        return xp.stack([level * xp.cos(turn), level * xp.sin(turn), xp.sin(place[:, 0])], axis=1)

    def scaled(self, X: Array) -> Array:
        return self._of_points.scaled(self._points(self._select(X)))

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        points = self._points(X)
        return self._of_points.covariances(points, points if Z is X else self._points(Z), out)

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        xp, p = namespace(X), self._points(Z)
        gradients, bar = self._of_points.pullback(self._points(X), p, Kbar, K)  # (m, 3)
        place = RADIANS * Z
        sine, cosine = xp.sin(place[:, 1]), xp.cos(place[:, 1])
        up = xp.stack([-p[:, 2] * cosine, -p[:, 2] * sine, xp.cos(place[:, 0])], axis=1)  # dp/dlatitude
        latitude = xp.sum(bar * up, axis=1)
        longitude = bar[:, 1] * p[:, 0] - bar[:, 0] * p[:, 1]
        return gradients, RADIANS * xp.stack([latitude, longitude], axis=1)
