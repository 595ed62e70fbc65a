"""Prior means m(x): zero, a constant, a plane, a given field. Their parameters are any real numbers, per
output if need be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..errors import InducingError, ParameterError, ShapeError, UnknownNameError
from ..numerics.arrays import Array, asarray_like, namespace, to_numpy, zeros_like_rows

Gradients = dict[str, Array]


def _real(name: str, value: Any, most: int) -> Any:
    """`value` as a float or an array of at most `most` dimensions, checked to be finite."""
    array = np.array(value, dtype=float)  # a copy: nobody can change it later
    if array.ndim > most or array.size == 0:
        raise ParameterError(
            f"{name} must have 1 to {most} dimensions and some entries, but has shape {array.shape}"
        )
    if not np.all(np.isfinite(array)):
        raise ParameterError(f"{name} must be finite, but is {value}")
    return float(array) if array.ndim == 0 else array


@dataclass(frozen=True, eq=False)
class Mean:
    """A prior mean. `m(X)` is (n,), or (n, p) when a parameter has one column per output.

    `pullback` turns vbar = dJ/dm(X) into dJ/dparameters. A mean (n,) may serve p outputs at once: vbar is
    then (n, p), and the outputs' shares are added.
    """

    names: ClassVar[tuple[str, ...]] = ()  # the parameters, in the order of the fields

    def __call__(self, X: Array) -> Array:
        raise NotImplementedError

    def pullback(self, X: Array, vbar: Array) -> Gradients:
        """dJ/dparameters from vbar = dJ/dm(X), (n,) or (n, p)."""
        raise NotImplementedError

    def input_gradient(self, X: Array, output: int) -> Array:
        """dm/dx of one output at each row. (n, d)"""
        return zeros_like_rows((X.shape[0], X.shape[1]), X)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self.names}

    def with_parameters(self, values: Mapping[str, Any]) -> Mean:
        """The same mean with other parameter values."""
        unknown = sorted(set(values) - set(self.names))
        if unknown:
            raise UnknownNameError(
                f"{type(self).__name__} has no parameter {unknown}; it has {list(self.names)}"
            )
        return replace(self, **values)

    def spec(self) -> dict[str, Any]:
        """A plain description that `means.from_spec` reads back."""
        values = {field.name: np.asarray(getattr(self, field.name)).tolist() for field in fields(self)}
        return {"name": type(self).__name__} | values


@dataclass(frozen=True, eq=False)
class Zero(Mean):
    """m(x) = 0."""

    def __call__(self, X: Array) -> Array:
        return zeros_like_rows((X.shape[0],), X)

    def pullback(self, X: Array, vbar: Array) -> Gradients:
        return {}


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
        return {"value": _over_outputs("value", namespace(X).sum(_columns(vbar), axis=0), self.value)}


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
            raise ParameterError(
                f"bias has shape {bias}, but weights has shape {weights}; they differ in the outputs"
            )

    def __call__(self, X: Array) -> Array:
        if X.shape[1] != len(self.weights):
            raise ShapeError(
                f"weights has {len(self.weights)} rows, but the inputs have {X.shape[1]} columns"
            )
        return X @ asarray_like(self.weights, X) + asarray_like(self.bias, X)

    def input_gradient(self, X: Array, output: int) -> Array:
        weights = self.weights if np.ndim(self.weights) == 1 else self.weights[:, output]
        return super().input_gradient(X, output) + asarray_like(weights, X)

    def pullback(self, X: Array, vbar: Array) -> Gradients:
        V = _columns(vbar)  # (n, p)
        outputs = self.weights[0]  # in the shape of one input's weights
        return {
            "weights": _over_outputs("weights", X.T @ V, outputs),
            "bias": _over_outputs("bias", namespace(X).sum(V, axis=0), self.bias),
        }


@dataclass(frozen=True, eq=False)
class Field(Mean):
    """m(x, i): component i of a field known at some positions (N, d), values (N, p), a thin-plate spline
    between them.

    Inputs are (x, i) as `fields.stack` makes them: a forecast of the wind, say, that observations correct.
    [004 §5.4.4] It is given, not learned.
    """

    positions: Any
    values: Any

    def __post_init__(self) -> None:
        for name in ("positions", "values"):
            object.__setattr__(self, name, _real(name, getattr(self, name), 2))
        if (
            np.ndim(self.positions) != 2
            or np.ndim(self.values) != 2
            or len(self.positions) != len(self.values)
        ):
            raise ShapeError(
                f"positions {np.shape(self.positions)} and values {np.shape(self.values)} must be (N, d) "
                "and (N, p)"
            )

    @cached_property
    def _spline(self) -> Any:
        from scipy.interpolate import RBFInterpolator

        try:
            return RBFInterpolator(self.positions, self.values, kernel="thin_plate_spline")
        except (ValueError, np.linalg.LinAlgError) as error:
            raise ParameterError(
                f"no spline goes through these {len(self.positions)} positions: {error}"
            ) from error

    def __call__(self, X: Array) -> Array:
        d, p = np.shape(self.positions)[1], np.shape(self.values)[1]
        if X.shape[1] != d + 1:
            raise ShapeError(
                f"a Field over {d} coordinates needs inputs of {d + 1} columns, but there are {X.shape[1]}"
            )
        rows = to_numpy(X)
        component = rows[:, -1].astype(int)
        if np.any(component != rows[:, -1]) or np.any((component < 0) | (component >= p)):
            raise ParameterError(
                f"the last column must be the number of a component, 0 to {p - 1}; use fields.stack"
            )
        if len(rows) == 0:
            return zeros_like_rows((0,), X)
        return asarray_like(self._spline(rows[:, :-1])[np.arange(len(rows)), component], X)

    def pullback(self, X: Array, vbar: Array) -> Gradients:
        return {}

    def input_gradient(self, X: Array, output: int) -> Array:
        """By central differences; a component has no slope."""
        rows, slopes = to_numpy(X), np.zeros(X.shape)
        h = 1e-5 * np.ptp(self.positions, axis=0)
        for k, step in enumerate(h):
            at = np.zeros(X.shape[1])
            at[k] = step
            slopes[:, k] = (self(rows + at) - self(rows - at)) / (2.0 * step)
        return asarray_like(slopes, X)


def _columns(vbar: Array) -> Array:
    """vbar as (n, p)."""
    return vbar[:, None] if vbar.ndim == 1 else vbar


def _over_outputs(name: str, gradient: Array, value: Any) -> Array:
    """A gradient (..., p) in the shape of its parameter: summed over the outputs that share one value."""
    if np.ndim(value) == 0:
        return namespace(gradient).sum(gradient, axis=-1)
    if gradient.shape[-1] != len(value):
        raise ShapeError(f"{name} is for {len(value)} outputs, but there are {gradient.shape[-1]}")
    return gradient


BY_NAME: dict[str, type[Mean]] = {kind.__name__.lower(): kind for kind in (Zero, Constant, Linear, Field)}


def from_spec(spec: Mapping[str, Any]) -> Mean:
    """The mean that `mean.spec()` described. Reads plain data only."""
    if not isinstance(spec, Mapping) or not isinstance(spec.get("name"), str):
        raise ParameterError(f"a mean's spec must be a dictionary with a name, not {spec!r}")
    kind = BY_NAME.get(spec["name"].lower())
    if kind is None:
        raise UnknownNameError(f"there is no mean {spec['name']!r}; known are {', '.join(BY_NAME)}")
    values = {key: value for key, value in spec.items() if key != "name"}
    known = [field.name for field in fields(kind)]
    unknown = [key for key in values if key not in known]
    if unknown:
        raise UnknownNameError(f"{kind.__name__} has no parameter {unknown}; it has {known}")
    try:
        return kind(**values)
    except InducingError:
        raise
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{kind.__name__} cannot be made from {values}: {error}") from error
