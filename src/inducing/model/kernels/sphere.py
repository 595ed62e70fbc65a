"""A kernel of places on a sphere, given by latitude and longitude."""

from dataclasses import KW_ONLY, dataclass
from math import inf, pi
from typing import Any, ClassVar

from ...errors import ParameterError, ShapeError
from ...numerics.arrays import Array, namespace
from .base import Gradients, Kernel
from .stationary import RBF, Matern12, Matern32, Matern52, Stationary

SMOOTHNESSES: dict[float, type[Stationary]] = {0.5: Matern12, 1.5: Matern32, 2.5: Matern52, inf: RBF}
RADIANS = pi / 180.0


@dataclass(frozen=True, eq=False)
class Sphere(Kernel):
    """A Matérn kernel of the chord |p(x) - p(z)| between places x = (latitude, longitude) in degrees, p on
    the unit sphere: definite on the sphere, and the same at both ends of the longitudes.

    `lengthscale` is in radii (0.1 are 637 km on Earth), `smoothness` 0.5, 1.5, 2.5 or infinity. Inputs must
    come in degrees: with an estimator use standardize=False, and `columns` where there are more inputs.
    """

    names: ClassVar[tuple[str, ...]] = ("lengthscale", "variance")

    lengthscale: Any = 1.0
    variance: Any = 1.0
    smoothness: float = 1.5
    _: KW_ONLY
    columns: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.smoothness not in SMOOTHNESSES:
            known = ", ".join(map(str, SMOOTHNESSES))
            raise ParameterError(f"smoothness must be one of {known}, not {self.smoothness!r}")
        super().__post_init__()

    @property
    def _of_points(self) -> Stationary:
        """The kernel of points in space."""
        return SMOOTHNESSES[self.smoothness](self.lengthscale, self.variance)

    def _points(self, X: Array) -> Array:
        """p: places as points of the unit sphere. (n, 3)"""
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
