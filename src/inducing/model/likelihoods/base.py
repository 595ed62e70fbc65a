"""What every likelihood is: log p(y|f), and its averages over f ~ N(mean, var) with their derivatives in the mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from ...errors import LabelError, NonFiniteError, ParameterError, ShapeError, UnknownNameError
from ...numerics.arrays import Array, asarray_like, is_foreign, namespace, to_numpy
from ...numerics.quadrature import Feature, Nodes, Tilted, nodes
from ...numerics.subdivision import tilted_by_quadrature

LARGEST = 1e150  # of any number in y: its square must be a number, too


@dataclass(frozen=True)
class Likelihood:
    """p(y|f) of one observation given the latent f at its input.

    A likelihood gives `log_density`; with it `log_density_slopes` and `_feature`, where it bends, averages are
    taken on few nodes, else by subdivision between its `_landmarks`. Its parameters are positive but for those
    in `bounds`. One that is compiled for the inner loops of online learning and EP names its `kind` in `loops`
    and its parameters `theta`.
    """

    kind: ClassVar[int | None] = None
    columns: ClassVar[int] = 1  # of y: the observation itself and the further numbers a row may have
    defaults: ClassVar[tuple[float, ...]] = ()  # of the further numbers
    names: ClassVar[tuple[str, ...]] = ()  # of the parameters that evidence can learn
    held: ClassVar[tuple[str, ...]] = ()  # of those among them that it does not learn unless asked to
    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {}  # of the parameters that are not simply positive
    log_concave: ClassVar[bool] = False  # in f, so that r ≤ 0 at every power
    located: ClassVar[bool] = False  # whether f is where y lies, in the units of y

    # parameters

    @property
    def theta(self) -> np.ndarray:
        """The parameters as the compiled functions take them."""
        return np.array([getattr(self, f.name) for f in fields(self)] or [0.0], dtype=float)

    @property
    def parameters(self) -> dict[str, float]:
        """The continuous parameters by name."""
        return {name: getattr(self, name) for name in self.names}

    @property
    def unconstrained(self) -> tuple[str, ...]:
        """The parameters that may be any real number."""
        return tuple(name for name in self.names if self.bounds.get(name) == (-np.inf, np.inf))

    def with_parameters(self, values: Mapping[str, float]) -> Self:
        """The same likelihood with other parameter values."""
        unknown = set(values) - set(self.names)
        if unknown:
            raise UnknownNameError(
                f"{type(self).__name__} has no parameter {sorted(unknown)}; it has {list(self.names)}"
            )
        return replace(self, **values)

    def spec(self) -> dict[str, Any]:
        """A plain description that `likelihoods.from_spec` reads back."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"name": type(self).__name__} | {
            key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
        }

    # densities

    def log_density(self, y: Array, f: Array) -> Array:
        """log p(y|f), for arrays that broadcast; y may have a last axis more, its `columns`."""
        raise NotImplementedError

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        """log p(y|f) and its first and second derivative in f."""
        raise NotImplementedError

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        """The derivatives of log p(y|f) in the parameters."""
        if self.names:
            raise NotImplementedError
        return {}

    def split(self, y: Array, f: Array) -> list[Array]:
        """f, y and the further numbers of the rows, as arrays that broadcast."""
        y, f = (v if is_foreign(v) else np.asarray(v, dtype=float) for v in (y, f))
        if self.columns > 1 and y.ndim > max(f.ndim, 1):
            if y.shape[-1] > self.columns:
                raise ShapeError(
                    f"y has {y.shape[-1]} columns, but {type(self).__name__} knows {self.columns}"
                )
            given = [y[..., j] for j in range(y.shape[-1])]
            return [f, *given, *self.defaults[len(given) - 1 :]]
        return [f, y, *self.defaults]

    def check(self, y: Array, *, processes: bool = False) -> Array:
        """y as floats this likelihood knows; raises an error that names the first row it does not.

        y is (n,), or has the `columns` of this likelihood; with `processes` each column is y of another process.
        """
        if not is_foreign(y):
            try:
                y = np.asarray(y, dtype=float)
            except (TypeError, ValueError) as error:
                raise LabelError(f"y must hold numbers: {error}") from error
        xp = namespace(y)
        refuse(
            y,
            ~xp.isfinite(y),
            "y holds NaN or infinity, first in row {row}; remove such rows",
            NonFiniteError,
        )
        refuse(
            y,
            xp.abs(y) > LARGEST,
            f"y must not exceed {LARGEST:g}, but row {{row}} has {{value:g}}; rescale it",
        )
        several = self.columns > 1 and y.ndim > 1 and not processes
        if several and y.shape[-1] > self.columns:
            raise ShapeError(f"y has {y.shape[-1]} columns, but {type(self).__name__} knows {self.columns}")
        self._check_rows(*([y[..., j] for j in range(y.shape[-1])] if several else [y]))
        return y

    def _check_rows(self, y: Array, *further: Array) -> None:
        """Raise if a row is none this likelihood knows."""

    # averages

    def tilted(self, y: Array, mean: Array, var: Array, power: float = 1.0) -> Tilted:
        """L = log⟨p(y|f)^power⟩, or L = ⟨log p(y|f)⟩ for power = 0, q = ∂L/∂mean and r = ∂²L/∂mean², each in
        the common shape of y, mean and var. For power = 0, r = 2 ∂L/∂var as well.
        """
        y, mean, var, shape = self._rows(y, mean, var)
        parts = self._tilted(y, mean, var, checked_power(power))
        return Tilted(*(namespace(mean).reshape(part, shape) for part in parts))

    def log_average(self, y: Array, mean: Array, var: Array, power: float = 1.0) -> Array:
        """log⟨p(y|f)^power⟩ under f ~ N(mean, var)."""
        return self.tilted(y, mean, var, power).log_average

    def expected_log(self, y: Array, mean: Array, var: Array) -> Array:
        """⟨log p(y|f)⟩ under f ~ N(mean, var)."""
        return self.tilted(y, mean, var, 0.0).log_average

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        """The log density of y where f ~ N(mean, var)."""
        return self.tilted(y, mean, var).log_average

    def derivatives(self, y: Array, mean: Array, var: Array, power: float = 1.0) -> tuple[Array, Array]:
        """q and r: the first and second derivative of `tilted`'s value in the mean. [004 eq. 2.42]"""
        return self.tilted(y, mean, var, power)[1:]

    def parameter_gradient(self, y: Array, mean: Array, var: Array, power: float = 1.0) -> dict[str, Array]:
        """The derivatives of `tilted`'s value in the parameters, with mean and var held: power ⟨∂log p/∂θ⟩ under
        the tilted density, or ⟨∂log p/∂θ⟩ for power = 0. (n,) each
        """
        y, mean, var, shape = self._rows(y, mean, var)
        if not self.names:
            return {}
        gradient = self._parameter_gradient(y, mean, var, checked_power(power))
        return {
            name: namespace(mean).reshape(part, (*shape, *part.shape[1:])) for name, part in gradient.items()
        }

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        """The same for rows y (n,) or (n, columns), mean and var (n,)."""
        if self._feature(y, power) is None:
            return tilted_by_quadrature(self.log_density, y, mean, var, self._landmarks(y), power)
        xp = namespace(mean)
        value, q, r = (xp.zeros_like(mean) for _ in range(3))
        for part in self._nodes(y, mean, var, power, self.log_density_slopes):
            value[part.rows], q[part.rows], r[part.rows] = _moments(part, var[part.rows], power)
        return value, q, r

    def _parameter_gradient(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        xp, names = namespace(mean), list(self.names)

        def functions(y: Array, f: Array) -> tuple[Array, ...]:
            gradient = self.log_density_gradient(y, f)
            return self.log_density(y, f), *(gradient[name] for name in names)

        totals = {name: xp.zeros_like(mean) for name in names}
        for part in self._nodes(y, mean, var, power, functions):
            for name, slope in zip(names, part.values[1:]):
                totals[name][part.rows] = (power or 1.0) * xp.sum(part.weight * slope, axis=1)
        return totals

    def _nodes(self, y: Array, mean: Array, var: Array, power: float, functions: Any) -> Any:
        """Nodes and weights of every row, and functions(y, f) on them; see `quadrature.nodes`."""
        feature = self._feature(y, power)
        assert feature is not None
        wide = y[:, None]  # (n, 1) or (n, 1, columns)
        return nodes(
            lambda rows, f: functions(wide[rows], f),
            lambda rows, f: self.log_density(wide[rows], f),
            mean,
            var,
            feature,
            power,
        )

    def _feature(self, y: Array, power: float) -> Feature | None:
        """Where a·log p(y|f) bends and on which scale, as the quadrature asks it."""
        return None

    def _landmarks(self, y: Array) -> Array | None:
        """Values of f (n, l) between which p(y|f) is smooth on the scale of their distance."""
        return None

    def _rows(self, y: Array, mean: Array, var: Array) -> tuple[Array, Array, Array, tuple[int, ...]]:
        """y (n,) or (n, columns), mean and var (n,), checked, in one namespace, and the shape they came in."""
        y, mean, var = one_namespace(self.check(y, processes=True), mean, var)
        xp = namespace(mean)
        several = self.columns > 1 and y.ndim > max(mean.ndim, var.ndim, 1)
        try:
            shape = np.broadcast_shapes(y.shape[:-1] if several else y.shape, mean.shape, var.shape)
        except ValueError as error:
            shapes = [tuple(v.shape) for v in (y, mean, var)]
            raise ShapeError(
                f"y, mean and variance have shapes {shapes}, which do not go together"
            ) from error
        self.check(y, processes=not several)
        mean, var = (xp.reshape(xp.broadcast_to(v, shape), (-1,)) for v in (mean, var))
        if several:
            y = xp.reshape(xp.broadcast_to(y, (*shape, y.shape[-1])), (-1, y.shape[-1]))
        else:
            y = xp.reshape(xp.broadcast_to(y, shape), (-1,))
        if not (xp.all(xp.isfinite(mean)) and xp.all(xp.isfinite(var)) and xp.all(var > 0)):
            raise ParameterError("the mean must be finite and the variance of f positive and finite")
        return y, mean, var, shape

    # observations

    def predict(self, mean: Array, var: Array) -> tuple[Array, Array]:
        """Mean and variance of y."""
        raise ParameterError(f"{self} does not say what mean and variance y has; ask about f instead")

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A draw of y for each f."""
        raise ParameterError(f"{self} does not say how to draw y; draw f instead")


def _moments(part: Nodes, var: Array, power: float) -> tuple[Array, Array, Array]:
    """L, q and r of some rows.

    q = (E f - mean)/var and r = (Var f - var)/var²; but where p hardly bends over √var these are small
    differences, and q = a E l' and r = a E l'' + a² Var l', l = log p, are not.
    """
    xp, weight = namespace(var), part.weight
    value, slope, bend = part.values
    first, second = xp.sum(weight * slope, axis=1), xp.sum(weight * bend, axis=1)
    if power == 0.0:
        return xp.sum(weight * value, axis=1), first, second
    apart = slope - first[:, None]
    second = power * second + power * power * xp.sum(weight * apart * apart, axis=1)
    centre = xp.sum(weight * part.t, axis=1)
    apart = part.t - centre[:, None]
    spread = xp.sum(weight * apart * apart, axis=1)
    bends = power * var * xp.sum(weight * xp.abs(bend), axis=1) > 1e-2
    q = xp.where(bends, centre / xp.sqrt(var), power * first)
    return part.log_mass, q, xp.where(bends, (spread - 1.0) / var, second)


def refuse(
    y: Array, bad: Array, message: str, error: type[Exception] = LabelError, values: Array | None = None
) -> None:
    """Raise if a row is `bad`: the message with its number and value."""
    if not namespace(bad).any(bad):
        return
    first = np.argwhere(to_numpy(bad))[0]
    value = to_numpy(y if values is None else values)[tuple(first)]
    raise error(message.format(row=first[0] if len(first) else 0, value=value))


def checked_power(power: float) -> float:
    """`power` as a float, zero or positive; raises otherwise."""
    value = number("power", power)
    if not 0.0 <= value < np.inf:
        raise ParameterError(f"the power of a site must be zero or positive, but is {power}")
    return value


def number(name: str, value: Any) -> float:
    """`value` as a float; raises if it is none."""
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be a number, but is {value!r}") from error


def one_namespace(*values: Array) -> list[Array]:
    """`values` as float arrays in the namespace and on the device of the first that is no NumPy array."""
    foreign = [v for v in values if is_foreign(v)]
    if foreign:
        return [v if is_foreign(v) else asarray_like(v, foreign[0]) for v in values]
    return [np.asarray(v, dtype=float) for v in values]
