"""The base class of likelihoods: log p(y|f), its averages over f ~ N(mean, var), and their derivatives."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import Generator

from ...errors import LabelError, NonFiniteError, ParameterError, ShapeError
from ...numerics.arrays import Array, asarray_like, is_foreign, namespace, require_numbers, to_numpy
from ...numerics.linalg import row_dots
from ...numerics.quadrature import ROUNDED, Feature, Tilted, WeightedNodes, nodes, tilted_by_quadrature
from ...numerics.ranked import crps_by_quadrature
from ...numerics.workers import row_slices
from ..kernels.base import positive
from ..parameters import Parametrised

LARGEST = 1e50  # |y|, |mean|, √var and scales, at most: ratios of their squares must not overflow
SHAPES = 1e-9, 1e12  # the range of shape parameters
DIMENSIONS = {"scale": 1, "variance": 2, "noise": 2}  # the powers of f's units that parameters have
STEEP = 500.0  # log of the largest rate; larger ones count as this
FARTHEST = 30.0  # |f| of the likeliest constant f, at most
SCORED = 256  # rows scored at once
ROUNDS = 200  # doublings and halvings of an interval in search of a quantile, at most

Function = Callable[[Array, Array], Any]  # of y and f that broadcast


@dataclass(frozen=True)
class Likelihood(Parametrised):
    """p(y|f) of one observation given the latent f at its input.

    A subclass defines `log_density`. With `log_density_slopes` and `_feature`, the place where it bends,
    averages need few nodes; without, they subdivide between `_landmarks`. Parameters are positive unless
    `bounds` has their range. `kind` is the number of the compiled form for online learning and EP in `loops`.
    """

    kind: ClassVar[int | None] = None
    columns: ClassVar[int] = 1  # of y, at most: the observation and further numbers of the row
    defaults: ClassVar[tuple[float, ...]] = ()  # of the further numbers
    held: ClassVar[tuple[str, ...]] = ()  # parameters that are not learned by default
    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {}  # of parameters that have another range
    log_concave: ClassVar[bool] = False  # in f, so that r ≤ 0 at every power
    located: ClassVar[bool] = False  # whether y lies about f, in its units
    widest: ClassVar[float] = 1e4  # the largest variance of f that is learned, over that of y if located
    centred: ClassVar[bool] = False  # whether the mean of y is the mean of f, whatever its variance

    def __post_init__(self) -> None:
        for name in self.names:
            object.__setattr__(self, name, self._checked(name, getattr(self, name)))

    def __str__(self) -> str:  # four digits are enough for people
        return re.sub(r"\d+\.\d{4,}(e[+-]?\d+)?", lambda number: f"{float(number[0]):.4g}", repr(self))

    def _checked(self, name: str, value: object) -> float:
        """Return the value of a parameter as a float. Raise if it is not in its range."""
        if name in DIMENSIONS:
            return scale(name, value, DIMENSIONS[name])
        low, high = self.bounds.get(name, SHAPES)
        return within(name, value, low, min(high, SHAPES[1]))

    @property
    def theta(self) -> np.ndarray:
        """The parameters as compiled functions take them, in the order of the fields."""
        return np.array([getattr(self, f.name) for f in fields(self)] or [0.0], dtype=float)

    @property
    def unconstrained(self) -> tuple[str, ...]:
        """The parameters that may be any real number."""
        return tuple(name for name in self.names if self.bounds.get(name) == (-np.inf, np.inf))

    def in_units(self, factor: float) -> Self:
        """Return the likelihood of factor · y, which is unchanged where f is not in the units of y."""
        names = [name for name in self.names if name in DIMENSIONS and self.located]
        return replace(self, **{name: getattr(self, name) * factor ** DIMENSIONS[name] for name in names})

    def likeliest(self, y: np.ndarray, weights: np.ndarray) -> float:
        """Return the constant f under which all of y, (n,) or (n, columns), is likeliest."""
        from scipy.optimize import minimize_scalar

        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y

        def cost(f: float) -> float:
            return -float(weights @ self.log_density(y, np.full(len(y), f)))

        return float(minimize_scalar(cost, bounds=(-FARTHEST, FARTHEST), method="bounded").x)

    def log_density(self, y: Array, f: Array) -> Array:
        """Return log p(y|f) for arrays that broadcast; y may have one more axis, its `columns`."""
        return self.log_density_slopes(y, f)[0]

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        """Return log p(y|f) and its first and second derivative in f."""
        raise NotImplementedError

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        """Return the derivatives of log p(y|f) in the parameters."""
        if self.names:
            raise NotImplementedError
        return {}

    def split(self, y: Array, f: Array) -> list[Array]:
        """Return f, y and the further numbers of the rows, as arrays that broadcast."""
        y, f = one_namespace(y, f)
        if self.columns == 1 or y.ndim <= max(f.ndim, 1):
            return [f, y, *self.defaults]
        self._check_columns(y)
        given = [y[..., j] for j in range(y.shape[-1])]
        return [f, *given, *self.defaults[len(given) - 1 :]]

    def check(self, y: Array, *, processes: bool = False) -> Array:
        """Return y as floats. Raise, naming the first bad row, if this likelihood has no such observations.

        y is (n,), or has up to `columns` columns; with `processes` each column is y of another process.
        """
        require_numbers(y, "y")
        if not is_foreign(y):
            try:
                y = np.asarray(y, dtype=float)
            except (TypeError, ValueError) as error:
                raise LabelError(f"y must hold numbers: {error}") from error
        xp = namespace(y)
        message = "y holds NaN or infinity, first in row {row}; remove such rows"
        refuse(y, ~xp.isfinite(y), message, NonFiniteError)
        message = f"y must not exceed {LARGEST:g}, but row {{row}} has {{value:g}}; change its units"
        refuse(y, xp.abs(y) > LARGEST, message)
        if self.columns == 1 or y.ndim <= 1 or processes:
            self._check_rows(y)
        else:
            self._check_columns(y)
            self._check_rows(*(y[..., j] for j in range(y.shape[-1])))
        return y

    def _check_columns(self, y: Array) -> None:
        """Raise if y has more columns than this likelihood takes."""
        if y.shape[-1] > self.columns:
            raise ShapeError(f"y has {y.shape[-1]} columns, but {type(self).__name__} takes {self.columns}")

    def _check_rows(self, y: Array, *further: Array) -> None:
        """Raise if a row is no observation of this likelihood."""

    def tilted(self, y: Array, mean: Array, var: Array, power: float = 1.0) -> Tilted:
        """Return L = log⟨p(y|f)^power⟩, or L = ⟨log p(y|f)⟩ for power = 0, q = ∂L/∂mean and r = ∂²L/∂mean²,
        in the common shape of y, mean and var. For power = 0, r = 2 ∂L/∂var as well.
        """
        y, mean, var, shape = self._rows(y, mean, var)
        with np.errstate(all="ignore"):  # branches that are not taken may overflow
            parts = self._tilted(y, mean, var, checked_power(power))
        return Tilted(*(namespace(mean).reshape(part, shape) for part in parts))

    def log_average(self, y: Array, mean: Array, var: Array, power: float = 1.0) -> Array:
        """Return log⟨p(y|f)^power⟩ under f ~ N(mean, var)."""
        return self.tilted(y, mean, var, power).log_average

    def expected_log(self, y: Array, mean: Array, var: Array) -> Array:
        """Return ⟨log p(y|f)⟩ under f ~ N(mean, var)."""
        return self.tilted(y, mean, var, 0.0).log_average

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        """Return the log density of y where f ~ N(mean, var)."""
        return self.tilted(y, mean, var).log_average

    def derivatives(self, y: Array, mean: Array, var: Array, power: float = 1.0) -> tuple[Array, Array]:
        """Return q and r: the first and second derivative of `tilted`'s L in the mean. [004 eq. 2.42]"""
        return self.tilted(y, mean, var, power)[1:]

    def parameter_gradient(self, y: Array, mean: Array, var: Array, power: float = 1.0) -> dict[str, Array]:
        """Return the derivatives of `tilted`'s L in the parameters, with mean and var held. (n,) each

        They are power ⟨∂log p/∂θ⟩ under the tilted density, or ⟨∂log p/∂θ⟩ for power = 0.
        """
        y, mean, var, shape = self._rows(y, mean, var)
        if not self.names:
            return {}
        with np.errstate(all="ignore"):  # branches that are not taken may overflow
            parts = self.gradient_on_nodes(y, mean, var, checked_power(power))
        return {name: namespace(mean).reshape(part, shape) for name, part in parts.items()}

    def value_and_gradient(
        self, y: Array, mean: Array, var: Array, power: float = 1.0
    ) -> tuple[Array, dict[str, Array]]:
        """Return `tilted`'s L and `parameter_gradient`. (n,) each"""
        return self.log_average(y, mean, var, power), self.parameter_gradient(y, mean, var, power)

    def _tilted(self, y: Array, mean: Array, var: Array, power: float) -> tuple[Array, ...]:
        """Compute `tilted` for checked rows: y (n,) or (n, columns), mean and var (n,)."""
        if self._feature(y[:0], power) is None:
            return tilted_by_quadrature(self.log_density, y, mean, var, self._landmarks(y), power)
        xp = namespace(mean)
        value, q, r = (xp.zeros_like(mean) for _ in range(3))
        for part in self.nodes_of(y, mean, var, power, self.log_density_slopes):
            value[part.rows], q[part.rows], r[part.rows] = moments(part, var[part.rows], power)
        return value, q, r

    def gradient_on_nodes(self, y: Array, mean: Array, var: Array, power: float) -> dict[str, Array]:
        """Compute `parameter_gradient` for checked rows, by quadrature if there is no closed form."""

        def functions(y: Array, f: Array) -> list[Array]:
            gradient = self.log_density_gradient(y, f)
            return [gradient[name] for name in self.names]

        averages = self._averages(y, mean, var, power, functions, len(self.names))
        return {name: (power or 1.0) * part for name, part in zip(self.names, averages)}

    def _averages(
        self, y: Array, mean: Array, var: Array, power: float, functions: Function, count: int
    ) -> list[Array]:
        """Return averages of `count` functions(y, f) under the tilted density, or N(mean, var) at power 0."""

        def with_density(y: Array, f: Array) -> tuple[Array, ...]:
            return self.log_density(y, f), *functions(y, f)

        totals = [namespace(mean).zeros_like(mean) for _ in range(count)]
        for part in self.nodes_of(y, mean, var, power, with_density):
            for total, value in zip(totals, part.values[1:]):
                total[part.rows] = row_dots(part.weight, value + 0.0 * part.t)
        return totals

    def nodes_of(
        self, y: Array, mean: Array, var: Array, power: float, functions: Function
    ) -> Iterator[WeightedNodes]:
        """Yield nodes and weights for groups of rows, and functions(y, f) on them; see `quadrature.nodes`."""
        feature = self._feature(y, power)
        assert feature is not None
        wide = y[:, None]  # (n, 1) or (n, 1, columns)
        values, density = (lambda rows, f, g=g: g(wide[rows], f) for g in (functions, self.log_density))
        return nodes(values, density, mean, var, feature, power)

    def _feature(self, y: Array, power: float) -> Feature | None:
        """Return where power · log p(y|f) bends, and on what scale, for the quadrature; None if unknown."""
        return None

    def _landmarks(self, y: Array) -> Array | None:
        """Return values of f (n, l) between which p(y|f) is smooth, or None if none are known."""
        return None

    def _columns_of(self, y: Array) -> list[Array]:
        """Return y and the further numbers of rows y (n,) or (n, columns). (n,) each"""
        first = y[:, 0] if y.ndim > 1 else y
        return [part + 0.0 * first for part in self.split(y, first)[1:]]

    def _rows(self, y: Array, mean: Array, var: Array) -> tuple[Array, Array, Array, tuple[int, ...]]:
        """Return y (n,) or (n, columns), mean and var (n,), checked, in one namespace; and their shape."""
        y = self.check(y, processes=self.columns == 1 or np.ndim(y) <= max(np.ndim(mean), np.ndim(var), 1))
        y, mean, var = one_namespace(y, mean, var)
        xp = namespace(mean)
        several = self.columns > 1 and y.ndim > max(mean.ndim, var.ndim, 1)
        last = y.shape[-1:] if several else ()
        try:
            shape = np.broadcast_shapes(y.shape[: y.ndim - several], mean.shape, var.shape)
        except ValueError as error:
            shapes = [tuple(v.shape) for v in (y, mean, var)]
            raise ShapeError(f"y, mean and variance have shapes {shapes}, which do not fit") from error
        y = xp.reshape(xp.broadcast_to(y, (*shape, *last)), (-1, *last))
        mean, var = (xp.reshape(xp.broadcast_to(v, shape), (-1,)) for v in (mean, var))
        if not xp.all((xp.abs(mean) <= LARGEST) & (var <= LARGEST**2) & (var > 0.0)):
            raise ParameterError(
                "the mean must be finite and the variance of f positive and finite, their sizes no more than "
                f"{LARGEST:g} and {LARGEST**2:g}"
            )
        return y, mean, xp.maximum(var, LARGEST**-2), shape

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        """Return mean and variance of y, given the further numbers of the rows, if any. (n,) each"""
        raise ParameterError(f"{self} does not say what mean and variance y has; ask about f instead")

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        """Draw y for each f."""
        raise ParameterError(f"{self} does not say how to draw y; draw f instead")

    def cumulative(self, y: Array, mean: Array, var: Array) -> np.ndarray:
        """Return the probability of y or less where f ~ N(mean, var)."""
        y, mean, var, shape = self._rows(*(to_numpy(v) for v in (y, mean, var)))
        return np.clip(self._cumulative(y, mean, var), 0.0, 1.0).reshape(shape)

    def _cumulative(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        if self._feature(y[:0], 0.0) is None:
            raise ParameterError(f"{self} does not say how y is distributed; ask about f instead")
        return self._averages(y, mean, var, 0.0, lambda y, f: [self._conditional(*self.split(y, f))], 1)[0]

    def _conditional(self, f: np.ndarray, y: np.ndarray, *further: np.ndarray) -> np.ndarray:
        """Return the probability of y or less, given f."""
        raise NotImplementedError

    def crps(self, y: Array, mean: Array, var: Array) -> np.ndarray:
        """Return the continuous ranked probability score: ∫ (P(Y ≤ x) - 1{y ≤ x})² dx, f ~ N(mean, var)."""
        y, mean, var, shape = self._rows(*(to_numpy(v) for v in (y, mean, var)))
        return self._crps(y, mean, var).reshape(shape)

    def _crps(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        """Compute `crps` by quadrature in x, y = `_observed(x)`, for any number of processes."""
        first, further = (y[:, 0], y[:, 1:]) if y.ndim > 1 else (y, None)
        f, parts = mean if mean.ndim == 1 else mean[:, 0], []
        for s in row_slices(len(y), SCORED):
            own = None if further is None else further[s]

            def below(x: np.ndarray, s: slice = s, own: Array | None = own) -> np.ndarray:
                k = x.shape[1]
                y = self._observed(x).ravel()
                y = y if own is None else np.column_stack([y, np.repeat(own, k, axis=0)])
                F = self._cumulative(y, np.repeat(mean[s], k, axis=0), np.repeat(var[s], k, axis=0))
                return np.clip(F, 0.0, 1.0).reshape(x.shape)

            half = [self._quantile(np.full(len(f[s]), p), mean[s], var[s], own) for p in (0.25, 0.75)]
            scale = self._unobserved(half[1])[0] - self._unobserved(half[0])[0]
            at = self._unobserved(first[s])[0]
            slope = lambda x: self._unobserved(self._observed(x))[1]  # noqa: E731
            scale = np.clip(scale, 1.0 / LARGEST, LARGEST if self.located else 1.0)  # of the slope, too
            parts.append(crps_by_quadrature(below, slope, at, f[s], scale))
        return np.concatenate([*parts, np.empty(0)])

    @staticmethod
    def probability_of(quantile: Array) -> np.ndarray:
        """Return probabilities as floats. Raise if there are none, or one is not between 0 and 1."""
        p = np.asarray(to_numpy(quantile), dtype=float)
        if p.size == 0 or not np.all((p > 0.0) & (p < 1.0)):
            raise ParameterError(f"the probability of a quantile must lie between 0 and 1, but is {quantile}")
        return p

    def quantile(self, p: Array, mean: Array, var: Array, further: Array | None = None) -> np.ndarray:
        """Return the quantile of y at probability p; p, mean and var broadcast."""
        p, mean, var = self.probability_of(p), *(np.asarray(to_numpy(v), dtype=float) for v in (mean, var))
        shape = np.broadcast_shapes(p.shape, mean.shape, var.shape)
        p, mean, var = (np.broadcast_to(v, shape).ravel() for v in (p, mean, var))
        if further is not None:
            further = np.broadcast_to(to_numpy(further), (*shape, self.columns - 1)[: len(shape) + 1])
            further = further.reshape(len(p), -1)
        return self._quantile(p, mean, var, further).reshape(shape)

    def _quantile(self, p: Array, mean: np.ndarray, var: np.ndarray, further: Array | None) -> np.ndarray:
        """Compute `quantile` by halving an interval of x, y = `_observed(x)`."""

        def below(x: np.ndarray) -> np.ndarray:
            y = self._observed(x)
            y = y if further is None else np.column_stack([y, further])
            return self._cumulative(y, mean, var) < p

        step = 1.0 + np.sqrt(var)
        low, high = mean - step, mean + step
        for _ in range(ROUNDS):
            under, over = below(high), ~below(low)
            if not np.any(under | over):
                break
            step = 2.0 * step
            low, high = np.where(over, low - step, low), np.where(under, high + step, high)
        for _ in range(ROUNDS):
            middle = 0.5 * (low + high)
            under = below(middle)
            low, high = np.where(under, middle, low), np.where(under, high, middle)
            if np.all(high - low <= 1e-12 * (1.0 + np.abs(middle))):
                break
        return self._observed(high)

    def _observed(self, x: np.ndarray) -> np.ndarray:
        """Map all real numbers to observations, increasing, about as the inverse link maps f."""
        return x

    def _unobserved(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the x of which y is `_observed`, and dy/dx there."""
        return y, np.ones_like(y)


def moments(part: WeightedNodes, var: Array, power: float) -> tuple[Array, Array, Array]:
    """Return L, q and r of some rows.

    q = (E f - mean)/var and r = (Var f - var)/var². Where p hardly bends over √var these cancel, and with
    l = log p they are q = a E l' and r = a E l'' + a² Var l'. For a = 0 likewise q = E t l/√var and r =
    E (t² - 1) l/var with t = (f - mean)/√var, or E l' and E l''.
    """
    xp, weight, scale = namespace(var), part.weight, namespace(var).sqrt(var)
    value, slope, bend = part.values[:3]
    first, second = row_dots(weight, slope), row_dots(weight, bend)
    bends = (power or 1.0) * var * row_dots(weight, xp.abs(bend)) > 1e-2
    if power == 0.0:
        average = row_dots(weight, value)
        bends = bends & (xp.abs(average) < ROUNDED)
        weighted = weight * (value - average[:, None])
        centre, spread = row_dots(weighted, part.t), row_dots(weighted, part.t**2 - 1.0)
        return average, xp.where(bends, centre / scale, first), xp.where(bends, spread / var, second)
    apart = slope - first[:, None]
    second = power * second
    straight = second + power * power * row_dots(weight * apart, apart)
    centre = row_dots(weight, part.t)
    apart = part.t - centre[:, None]
    spread = row_dots(weight * apart, apart) - 1.0
    r = xp.where(bends, spread / var, straight)
    rounded = xp.abs(part.log_mass) > ROUNDED  # weights are all rounding there: r as of a Gaussian p
    r = xp.where(rounded, second / (1.0 + var * xp.maximum(-second, 0.0)), r)
    return part.log_mass, xp.where(bends, centre / scale, power * first), r


def refuse(y: Array, bad: Array, message: str, error: type[Exception] = LabelError) -> None:
    """Raise the error if a row is `bad`, its number and y in place of {row} and {value} in the message."""
    if namespace(bad).any(bad):
        first = np.argwhere(to_numpy(bad))[0]
        raise error(message.format(row=first[0] if len(first) else 0, value=to_numpy(y)[tuple(first)]))


def checked_power(power: float) -> float:
    """Return `power` as a float. Raise if it is not zero or positive."""
    value = number("power", power)
    if not 0.0 <= value < np.inf:
        raise ParameterError(f"the power of a site must be zero or positive, but is {power}")
    return value


def number(name: str, value: object) -> float:
    """Return `value` as a float. Raise if it is no number."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be a number, but is {value!r}") from error


def within(name: str, value: object, low: float, high: float) -> float:
    """Return `value` as a float. Raise if it does not lie between `low` and `high`."""
    value = number(name, value)
    if not low < value < high:
        raise ParameterError(f"{name} must lie between {low:g} and {high:g}, but is {value:g}")
    return value


def scale(name: str, value: object, power: int = 1) -> float:
    """Return `value` as a positive float. Raise if it is not between 1/LARGEST**power and LARGEST**power."""
    return positive(name, value, scalar=True, most=LARGEST**power)


def one_namespace(*values: Array) -> list[Array]:
    """Return `values` as float arrays in the namespace and on the device of the first non-NumPy array."""
    foreign = [v for v in values if is_foreign(v)]
    if foreign:
        return [v if is_foreign(v) else asarray_like(v, foreign[0]) for v in values]
    return [np.asarray(v, dtype=float) for v in values]


def exp(x: Array) -> Array:
    """Return exp x, but at most exp STEEP."""
    return namespace(x).exp(namespace(x).minimum(x, STEEP))
