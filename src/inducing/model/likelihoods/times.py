"""Likelihoods of positive times, some of them censored: exponential, gamma, Weibull."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from ...numerics.arrays import Array, namespace
from ...numerics.quadrature import Feature
from ...numerics.special import special, stirling, upper_gamma
from .base import STEEP, Likelihood, exp, one_namespace, refuse


@dataclass(frozen=True)
class Times(Likelihood):
    """Positive times with scale exp(f). y is (n,), or (n, 2) with a second column that is 1 if the time is y
    or more (censored on the right), else 0. Predictions are of the time itself.
    """

    columns: ClassVar[int] = 2
    defaults: ClassVar[tuple[float, ...]] = (0.0,)
    log_concave: ClassVar[bool] = True

    def _check_rows(self, y: Array, *further: Array) -> None:
        refuse(y, y <= 0.0, "times must be positive, but row {row} has {value:g}")
        for censored in further:
            message = "the second column of y must be 0 (seen) or 1 (censored), but row {row} has {value:g}"
            refuse(censored, censored * (1.0 - censored) != 0.0, message)

    def _logs(self, y: Array, f: Array) -> tuple[Any, Array, Array]:
        """Return the namespace, log y - f, and where y is censored."""
        f, y, censored = self.split(y, f)
        xp = namespace(f, y)
        w = xp.log(y) - f
        return xp, w, censored + 0.0 * w != 0.0

    def _observed(self, x: np.ndarray) -> np.ndarray:
        return exp(np.maximum(x, -STEEP))

    def _unobserved(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.log(y), y


@dataclass(frozen=True)
class PowerHazard(Times):
    """Times that exceed y with probability exp(-(y/exp(f))^k), k being the shape, if there is one, or 1."""

    @property
    def _k(self) -> float:
        return getattr(self, "shape", 1.0)

    def _slopes(self, y: Array, mean: Array, var: Array | float) -> tuple[Array, Array, Array]:
        """Return ⟨log p(y|f)⟩ under f ~ N(mean, var), and two derivatives in the mean."""
        xp, w, censored = self._logs(y, mean)
        k = self._k
        hazard = exp(k * w + 0.5 * k * k * var)  # cumulative
        seen = xp.where(censored, 0.0 * w, 1.0)
        value = seen * (k * w + float(np.log(k)) - xp.log(self.split(y, mean)[1])) - hazard
        return value, k * (hazard - seen), -k * k * hazard

    def _gradient(self, y: Array, mean: Array, var: Array | float) -> dict[str, Array]:
        """Return the derivative of ⟨log p(y|f)⟩ in the shape."""
        xp, w, censored = self._logs(y, mean)
        k = self._k
        hazard = exp(k * w + 0.5 * k * k * var)
        return {"shape": xp.where(censored, 0.0 * w, 1.0 / k + w) - (w + k * var) * hazard}

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        return self._slopes(y, f, 0.0)

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        return self._gradient(y, f, 0.0)

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        return super()._tilted(y, mean, var, power) if power > 0.0 else self._slopes(y, mean, var)

    def gradient_on_nodes(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        if power > 0.0:
            return super().gradient_on_nodes(y, mean, var, power)
        return self._gradient(y, mean, var)

    def _feature(self, y: Array, power: float) -> Feature:
        y, censored = self._columns_of(y)
        xp, a, k = namespace(y), power or 1.0, self._k
        seen = a * (1.0 - censored)
        centre = xp.log(y) - xp.log((seen + 0.5) / a) / k
        return Feature(centre, 1.3 / k, 1.0 / (k * xp.sqrt(seen + 0.5)), left=1.0 / k)

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        mean, var = one_namespace(mean, var)
        first, second = (float(special(np).gamma(1.0 + i / self._k)) for i in (1, 2))
        scale = exp(mean + 0.5 * var)
        return scale * first, scale * (scale * (second * exp(var) - first**2))

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        return exp(np.asarray(f, dtype=float)) * rng.weibull(self._k, np.shape(f))

    def _conditional(self, f: np.ndarray, y: np.ndarray, *further: np.ndarray) -> np.ndarray:
        return -np.expm1(-exp(self._k * (np.log(y) - f)))


@dataclass(frozen=True)
class Exponential(PowerHazard):
    """Exponential times with mean exp(f)."""


@dataclass(frozen=True)
class Weibull(PowerHazard):
    """Weibull times with this shape and scale exp(f)."""

    names: ClassVar[tuple[str, ...]] = ("shape",)

    shape: float = 1.0


@dataclass(frozen=True)
class Gamma(Times):
    """Gamma distributed times with this shape and mean exp(f)."""

    names: ClassVar[tuple[str, ...]] = ("shape",)

    shape: float = 1.0

    @property
    def _constant(self) -> float:
        """log k + k log k - k - log Γ(k + 1), k the shape."""
        return float(stirling(np.array(self.shape)) + np.log(self.shape))

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        xp, w, censored = self._logs(y, f)
        w, k, log_time = xp.minimum(w, STEEP), self.shape, xp.log(self.split(y, f)[1])
        rise = xp.expm1(w)
        value, slope, bend = self._constant - log_time + k * (w - rise), k * rise, -k * (1.0 + rise)
        if not xp.any(censored):
            return value, slope, bend
        rate = k * (1.0 + rise)
        beyond = _late(k, w)
        return (
            xp.where(censored, beyond[0] - rate, value),
            xp.where(censored, beyond[1] + rate, slope),
            xp.where(censored, beyond[2] - rate, bend),
        )

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        xp, w, censored = self._logs(y, f)
        w = xp.minimum(w, STEEP)
        seen = float(np.log(self.shape) - special(np).digamma(self.shape)) + w - xp.expm1(w)
        if not xp.any(censored):
            return {"shape": seen}
        return {"shape": xp.where(censored, _late_gradient(self.shape, w) - xp.exp(w), seen)}

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        """Treat observed rows apart from censored ones, which take much longer."""
        xp, k = namespace(mean), self.shape
        time, censored = self._columns_of(y)
        rows = xp.nonzero(censored)[0]
        if power > 0.0:
            parts = super()._tilted(time, mean, var, power)
            late = super()._tilted(y[rows], mean[rows], var[rows], power) if rows.shape[0] else ()
        else:
            w = xp.log(time) - mean
            rate = exp(w + 0.5 * var)
            parts = self._constant - xp.log(time) + k * (w + 1.0 - rate), k * (rate - 1.0), -k * rate
            rate = k * rate[rows]
            smooth = self._late_averages(y[rows], mean[rows], var[rows]) if rows.shape[0] else ()
            late = tuple(part + sign * rate for part, sign in zip(smooth, (-1.0, 1.0, -1.0)))
        for part, other in zip(parts, late):
            part[rows] = other
        return parts

    def _late_averages(self, y: Array, mean: Array, var: Array) -> list[Array]:
        """Return the average of `_late`'s value, which grows as a logarithm does, and of its derivatives."""

        def functions(y: Array, f: Array) -> tuple[Array, ...]:
            return _late(self.shape, namespace(f).minimum(self._logs(y, f)[1], STEEP))

        return self._averages(y, mean, var, 0.0, functions, 3)

    def gradient_on_nodes(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        xp, k = namespace(mean), self.shape
        time, censored = self._columns_of(y)
        rows = xp.nonzero(censored)[0]
        if power > 0.0:
            total = super().gradient_on_nodes(time, mean, var, power)["shape"]
            if rows.shape[0]:
                total[rows] = super().gradient_on_nodes(y[rows], mean[rows], var[rows], power)["shape"]
            return {"shape": total}
        w = xp.log(time) - mean
        rate = exp(w + 0.5 * var)
        total = float(np.log(k) + 1.0 - special(np).digamma(k)) + w - rate
        if rows.shape[0]:

            def functions(y: Array, f: Array) -> list[Array]:
                return [_late_gradient(k, xp.minimum(self._logs(y, f)[1], STEEP))]

            late = self._averages(y[rows], mean[rows], var[rows], 0.0, functions, 1)[0]
            total[rows] = late - rate[rows]
        return {"shape": total}

    def _feature(self, y: Array, power: float) -> Feature:
        y, censored = self._columns_of(y)
        xp, k = namespace(y), (power or 1.0) * self.shape
        wall = 1.0 / xp.sqrt(k * (1.0 - censored) + 0.5 + censored * max(k, 0.5))
        return Feature(xp.log(y * ((k + 0.0 * y) / (k + 0.5))), 1.3, wall, left=1.0 if power else np.inf)

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        mean, var = one_namespace(mean, var)
        scale = exp(mean + 0.5 * var)
        return scale, scale * (scale * (exp(var) * (1.0 + 1.0 / self.shape) - 1.0))

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        return exp(np.asarray(f, dtype=float)) * rng.gamma(self.shape, 1.0 / self.shape, np.shape(f))

    def _conditional(self, f: np.ndarray, y: np.ndarray, *further: np.ndarray) -> np.ndarray:
        return special(np).gammainc(self.shape, self.shape * exp(np.log(y) - f))


def _late(k: float, w: Array) -> tuple[Array, Array, Array]:
    """Return log Q(k, x) + x, x = k e^w, for the tail Q of a gamma variable, and two derivatives in -w."""
    x = k * namespace(w).exp(w)
    value, rest = upper_gamma(k, x)
    return value, rest, x - (x + rest) * (k + rest)


def _late_gradient(k: float, w: Array) -> Array:
    """Return the derivative of the same in k, which has no closed form, by differences of sixth order."""
    step = 1e-3 * k
    pairs = ((1, 0.75), (2, -0.15), (3, 1.0 / 60.0))
    return sum(c * (_late(k + i * step, w)[0] - _late(k - i * step, w)[0]) for i, c in pairs) / step
