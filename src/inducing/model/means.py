"""Prior means m(x): zero, a constant, linear, or a given field; parameters may be any real numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..errors import ParameterError, ShapeError
from ..numerics import arrays
from ..numerics.arrays import Array, Given, asarray_like, namespace, zeros_like_rows
from .kernels.base import Gradients, numbers
from .parameters import Parametrised, made, read_spec


def _real(name: str, value: Given, most: int) -> float | np.ndarray:
    """Return `value` as a float or an array of at most `most` dimensions. Raise if it is not finite."""
    arrays.require_numbers(value, name, text=True)
    array = numbers(name, value)
    if array.ndim > most or array.size == 0:
        raise ParameterError(f"{name} needs entries in at most {most} dimensions, not shape {array.shape}")
    return float(array) if array.ndim == 0 else array


@dataclass(frozen=True, eq=False)
class Mean(Parametrised):
    """A prior mean: `m(X)` is (n,), for all outputs alike, or (n, p); `pullback` turns dJ/dm(X) into
    dJ/dparameters, summed over outputs that share a mean.
    """

    def __call__(self, X: Array) -> Array:
        raise NotImplementedError

    def pullback(self, X: Array, vbar: Array) -> Gradients:
        """Return dJ/dparameters from vbar = dJ/dm(X), (n,) or (n, p)."""
        return {}

    def input_gradient(self, X: Array, output: int) -> Array:
        """Return dm/dx of one output at each row. (n, d)"""
        return zeros_like_rows((X.shape[0], X.shape[1]), X)


@dataclass(frozen=True, eq=False)
class Zero(Mean):
    """m(x) = 0."""

    def __call__(self, X: Array) -> Array:
        return zeros_like_rows((X.shape[0],), X)


@dataclass(frozen=True, eq=False)
class Constant(Mean):
    """m(x) = value, a number or one per output (p,)."""

    names: ClassVar[tuple[str, ...]] = ("value",)

    value: Any = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _real("value", self.value, 1))

    def __call__(self, X: Array) -> Array:
        return zeros_like_rows((X.shape[0], *np.shape(self.value)), X) + asarray_like(self.value, X)

    def pullback(self, X: Array, vbar: Array) -> Gradients:
        total = namespace(X).sum(arrays.as_columns(vbar), axis=0)
        return {"value": _over_outputs("value", total, self.value)}


@dataclass(frozen=True, eq=False)
class Linear(Mean):
    """m(x) = weights'x + bias; weights (d,) or (d, p), bias a number or (p,)."""

    names: ClassVar[tuple[str, ...]] = ("weights", "bias")

    weights: Any
    bias: Any = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _real("weights", self.weights, 2))
        object.__setattr__(self, "bias", _real("bias", self.bias, 1))
        weights, bias = np.shape(self.weights), np.shape(self.bias)
        if len(weights) == 0:
            raise ParameterError(f"weights must hold one number per input, but is the number {self.weights}")
        if bias and weights[1:] != bias:
            raise ParameterError(f"bias has shape {bias}, but weights {weights}; they differ in the outputs")

    def __call__(self, X: Array) -> Array:
        if X.shape[1] != len(self.weights):
            raise ShapeError(f"weights has {len(self.weights)} rows, but X has {X.shape[1]} columns")
        return X @ asarray_like(self.weights, X) + asarray_like(self.bias, X)

    def input_gradient(self, X: Array, output: int) -> Array:
        weights = self.weights if np.ndim(self.weights) == 1 else self.weights[:, output]
        return super().input_gradient(X, output) + asarray_like(weights, X)

    def pullback(self, X: Array, vbar: Array) -> Gradients:
        V = arrays.as_columns(vbar)  # (n, p)
        outputs = self.weights[0]  # in the shape of one input's weights
        return {
            "weights": _over_outputs("weights", X.T @ V, outputs),
            "bias": _over_outputs("bias", namespace(X).sum(V, axis=0), self.bias),
        }


@dataclass(frozen=True, eq=False)
class Field(Mean):
    """m(x, i): component i of a thin-plate spline through known values (N, p) at positions (N, d).

    It is given, not learned, such as a forecast of the wind; `fields.stack` makes its inputs. [004 §5.4.4]
    """

    positions: Any
    values: Any

    def __post_init__(self) -> None:
        for name in ("positions", "values"):
            object.__setattr__(self, name, _real(name, getattr(self, name), 2))
        positions, values = np.shape(self.positions), np.shape(self.values)
        if len(positions) != 2 or len(values) != 2 or positions[0] != values[0]:
            raise ShapeError(f"positions {positions} and values {values} must be (N, d) and (N, p)")

    @cached_property
    def _spline(self) -> Callable[[np.ndarray], np.ndarray]:
        from scipy.interpolate import RBFInterpolator

        try:
            return RBFInterpolator(self.positions, self.values, kernel="thin_plate_spline")
        except (ValueError, np.linalg.LinAlgError) as error:
            n = len(self.positions)
            raise ParameterError(f"no spline goes through these {n} positions: {error}") from error

    def __call__(self, X: Array) -> Array:
        d, p = np.shape(self.positions)[1], np.shape(self.values)[1]
        if X.shape[1] != d + 1:
            raise ShapeError(f"a Field over {d} coordinates needs {d + 1} input columns, not {X.shape[1]}")
        rows = arrays.to_numpy(X)
        component = rows[:, -1].astype(int)
        if np.any(component != rows[:, -1]) or np.any((component < 0) | (component >= p)):
            raise ParameterError(f"the last column must be a component, 0 to {p - 1}; use fields.stack")
        if len(rows) == 0:
            return zeros_like_rows((0,), X)
        return asarray_like(self._spline(rows[:, :-1])[np.arange(len(rows)), component], X)

    def input_gradient(self, X: Array, output: int) -> Array:
        """Return dm/dx by central differences, 0 in the column of the component. (n, d + 1)"""
        rows, slopes = arrays.to_numpy(X), np.zeros(X.shape)
        h = 1e-5 * np.ptp(self.positions, axis=0)
        for k, step in enumerate(h):
            at = np.zeros(X.shape[1])
            at[k] = step
            slopes[:, k] = (self(rows + at) - self(rows - at)) / (2.0 * step)
        return asarray_like(slopes, X)


def _over_outputs(name: str, gradient: Array, value: Given) -> Array:
    """Return a gradient (..., p) in its parameter's shape: summed over outputs that share one value."""
    if np.ndim(value) == 0:
        return namespace(gradient).sum(gradient, axis=-1)
    if gradient.shape[-1] != len(value):
        raise ShapeError(f"{name} is for {len(value)} outputs, but there are {gradient.shape[-1]}")
    return gradient


BY_NAME: dict[str, type[Mean]] = {kind.__name__.lower(): kind for kind in (Zero, Constant, Linear, Field)}


def from_spec(spec: Mapping[str, Any]) -> Mean:
    """Make the mean that `mean.spec()` described."""
    return made(*read_spec("mean", spec, BY_NAME))
