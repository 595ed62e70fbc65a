"""The base class of kernels: the matrix, the diagonal, and how a gradient flows back through both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import NonFiniteError, ParameterError, ShapeError
from ...numerics import arrays
from ...numerics.arrays import Array, Given, is_numpy, namespace, require_numbers, zeros_like_rows
from ...numerics.linalg import cholesky, plus_diagonal
from ...numerics.workers import row_slices, run_over
from ..parameters import Parametrised

Gradients = dict[str, Array]

TRIANGLE = 128  # rows of a strip of a triangle
SEVERAL_THREADS = 512  # rows from which a triangle is computed in strips by several threads


@dataclass(frozen=True, eq=False)
class Kernel(Parametrised):
    """A covariance function k(x, z), whose parameters are positive unless `unconstrained` lists them.

    `k(X, Z)` is the matrix, `k.diag(X)` its diagonal at Z = X. `pullback` turns dJ/dK into dJ/dparameters and
    dJ/dZ; kernels are symmetric, so dJ/dX is dJ/dZ of the transpose. `columns` restricts a kernel to some of
    the inputs. A subclass defines `_matrix` and `_pullback`, and also `_diag` and `_diag_pullback`, unless
    k(x, x) is its parameter `variance` times `_height`.
    """

    per_input_names: ClassVar[tuple[str, ...]] = ()  # parameters that may have a value per input
    lengths: ClassVar[tuple[str, ...]] = ()  # those of them in the unit of their input

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in self.unconstrained:
                value = positive(name, getattr(self, name), scalar=name not in self.per_input_names)
                object.__setattr__(self, name, value)
        self._check_columns()

    def __call__(self, X: Array, Z: Array, out: Array | None = None) -> Array:
        checked = _checked(X)
        return self.covariances(checked, checked if Z is X else _checked(Z), out)

    def diag(self, X: Array) -> Array:
        """Return k(x, x) of each row. (n,)"""
        return self.diagonal(_checked(X))

    def covariances(self, X: Array, Z: Array, out: Array | None = None) -> Array:
        """Return k(X, Z) without checking the inputs again, in `out` where possible. (n, m)"""
        selected = self._select(X)
        return self._matrix(selected, selected if Z is X else self._select(Z), out)

    def diagonal(self, X: Array) -> Array:
        """Return k(x, x) of each row without checking the inputs again. (n,)"""
        return self._diag(self._select(X))

    def scaled(self, X: Array) -> Array:
        """Return X in the coordinates in which the kernel measures distances; by default none. (n, g)"""
        return self._select(X)[:, :0]

    def pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None = None) -> tuple[Gradients, Array]:
        """Return dJ/dparameters and dJ/dZ (m, d) from Kbar = dJ/dK (n, m), overwriting it; K saves work."""
        selected = self._select(X)
        gradients, Zbar = self._pullback(selected, selected if Z is X else self._select(Z), Kbar, K)
        if self.columns is not None:
            full = zeros_like_rows((Z.shape[0], Z.shape[1]), Z)
            for i, column in enumerate(self.columns):
                full[:, column] += Zbar[:, i]
            Zbar = full
        return gradients, Zbar

    def triangle(self, X: Array, out: Array | None = None, rows: slice | None = None) -> Array:
        """Return the lower triangle of k(X, X), or `rows` of it; the other entries mean nothing. (n, n)"""
        first, last, _ = (rows or slice(None)).indices(X.shape[0])
        if not is_numpy(X) or last - first == len(X) <= TRIANGLE:
            return self(X, X, out)
        K = np.empty((len(X), len(X))) if out is None else out
        for s in row_slices(last - first, TRIANGLE):
            stop = first + s.stop
            K[first + s.start : stop, :stop] = self(X[first + s.start : stop], X[:stop])
        return K

    def triangle_pullback(self, X: Array, Kbar: Array, rows: slice | None = None) -> Gradients:
        """Return dJ/dparameters from Kbar = dJ/d(lower triangle), which stays as it is. Above its diagonal a
        NumPy Kbar is not read; an array of another kind must be zero there.
        """
        first, last, _ = (rows or slice(None)).indices(X.shape[0])
        total: Gradients = {}
        for s in row_slices(last - first, TRIANGLE if is_numpy(X) else X.shape[0]):
            start, stop = first + s.start, first + s.stop
            own = Kbar[start:stop, :stop]
            own = np.tril(own, start) if is_numpy(X) else 1.0 * own  # which `pullback` may overwrite
            add_gradients(total, self.pullback(X[start:stop], X[:stop], own)[0])
        return total

    def grams(self, X: Array) -> Array:
        """Return k(X, X) of each of several sets of rows. X (k, b, d), result (k, b, b)"""
        return namespace(X).stack([self(rows, rows) for rows in X])

    def grams_pullback(self, X: Array, Kbar: Array) -> Gradients:
        """Return dJ/dparameters from Kbar = dJ/dK of `grams` (k, b, b), which may be overwritten."""
        total: Gradients = {}
        for rows, bar in zip(X, Kbar, strict=True):
            add_gradients(total, self.pullback(rows, rows, bar)[0])
        return total

    def diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        """Return dJ/dparameters from kbar = dJ/d diag (n,)."""
        return self._diag_pullback(self._select(X), kbar)

    @property
    def columns(self) -> tuple[int, ...] | None:
        """The input columns it looks at; None means all of them."""
        return None

    @property
    def uncertain(self) -> bool:
        """Whether inputs come with variances, so that `point_diag` exceeds `diag`."""
        return False

    def point_diag(self, X: Array) -> Array:
        """Return the prior variance of f at the true inputs, which X may know imprecisely. (n,)"""
        return self.diagonal(X)

    def point_diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        """Return dJ/dparameters from kbar = dJ/d point_diag (n,)."""
        return self.diag_pullback(X, kbar)

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        raise NotImplementedError

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        raise NotImplementedError

    def _height(self, d: int) -> float:
        """Return k(x, x)/variance for inputs with d columns."""
        return 1.0

    def _diag(self, X: Array) -> Array:
        height = float(self.parameters["variance"] * self._height(X.shape[1]))
        return namespace(X).full_like(X[:, 0], height)

    def _diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        gradients = {
            name: zeros_like_rows(np.shape(value), X)
            for name, value in self.parameters.items()
            if name != "variance"
        }
        return gradients | {"variance": namespace(X).sum(kbar) * self._height(X.shape[1])}

    @property
    def unconstrained(self) -> tuple[str, ...]:
        """The parameters that may be any real number; all others are positive."""
        return ()

    def __add__(self, other: Kernel) -> Kernel:
        from .composite import Sum

        return Sum((self, other))

    def __mul__(self, other: Kernel) -> Kernel:
        from .composite import Product

        return Product((self, other))

    def _check_columns(self) -> None:
        """Normalise `columns`, if the kernel has it, to a tuple of ints. Raise if these number no columns."""
        if self.columns is None:
            return
        given, chosen = self.columns, tuple(self.columns)
        if not chosen or any(int(c) != c or c < 0 for c in chosen):
            raise ParameterError(f"columns must be one or more column numbers from 0 on, but is {given}")
        object.__setattr__(self, "columns", tuple(int(c) for c in chosen))

    def _select(self, X: Array) -> Array:
        if X.ndim != 2:
            raise ShapeError(f"inputs must have two dimensions (rows, columns), not shape {tuple(X.shape)}")
        if self.columns is None:
            return X
        if max(self.columns) >= X.shape[1]:
            last, name = max(self.columns), type(self).__name__
            raise ShapeError(f"{name} looks at column {last}, but the inputs have {X.shape[1]} columns")
        return X[:, list(self.columns)]


def by_path(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the values of a kernel's parts, under paths like "0.lengthscale"."""
    return {f"{i}.{name}": value for i, part in enumerate(parts) for name, value in part.items()}


def numbers(name: str, value: Given) -> np.ndarray:
    """Return a copy of `value` as an array of floats. Raise if it holds anything but finite numbers."""
    try:
        array = np.array(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must hold numbers: {error}") from error
    if not np.all(np.isfinite(array)):
        raise ParameterError(f"{name} holds NaN or infinity; every entry must be finite")
    return array


def _checked(X: Given) -> Array:
    """Return X as finite floats; arrays of other libraries stay as they are, unchecked."""
    if isinstance(X, list | tuple):
        X = np.asarray(X)
    if is_numpy(X) and (X.dtype.kind != "f" or type(X) is not np.ndarray):
        require_numbers(X, "X")
        X = X.astype(float)
    if is_numpy(X):
        arrays.require_finite(X, "X")
    return X


def leaves_of(kernel: Kernel) -> Iterator[Kernel]:
    """Yield the kernels without parts that a kernel is made of."""
    parts = getattr(kernel, "parts", None)
    if parts is None:
        yield kernel
    for part in parts or ():
        yield from leaves_of(part)


def gram_factor(kernel: Kernel, X: Array, added: Array) -> Array:
    """Return the Cholesky factor of k(X, X) + diag(added). (n, n)"""
    return cholesky(gram(kernel, X, added), overwrite=True)


def gram(kernel: Kernel, X: Array, added: Array) -> Array:
    """Return k(X, X) + diag(added); on the CPU its lower triangle, above which anything stands. (n, n)"""
    n = X.shape[0]
    if not is_numpy(X):
        return plus_diagonal(kernel.covariances(X, X), added)
    if n < SEVERAL_THREADS:
        K = kernel.triangle(X)
    else:
        K = np.empty((n, n))

        def fill(_: None, rows: slice) -> None:
            kernel.triangle(X, K, rows)

        run_over(strips(n), lambda: None, fill, parallel=True)
    K[np.diag_indices(n)] += added
    return K


def strips(n: int) -> list[slice]:
    """Split the rows of a triangle into strips that are computed together; a small one stays whole."""
    return row_slices(n, TRIANGLE if n >= SEVERAL_THREADS else max(n, 1))


def add_gradients(total: Gradients, part: Gradients) -> None:
    """Add the gradients of `part` to those in `total`, in place."""
    for name, gradient in part.items():
        total[name] = total[name] + gradient if name in total else gradient


def positive(name: str, value: Given, *, scalar: bool = False, most: float = arrays.LARGEST_NUMBER) -> Given:
    """Return `value` as a float or, unless `scalar`, a 1-d array. Raise if it is not positive and finite, or
    not between 1/most and most.
    """
    try:
        require_numbers(value, name)
        array = np.array(value, dtype=float)
    except NonFiniteError as error:
        raise ParameterError(str(error)) from error
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be a number, but is {' '.join(repr(value).split())}") from error
    if array.ndim > (0 if scalar else 1) or array.size == 0:
        allowed = "one number" if scalar else "a number or one number per input"
        raise ParameterError(f"{name} must be {allowed}, not an array of shape {array.shape}")
    low, high = float(array.min()), float(array.max())
    if not 0.0 < low <= high < np.inf:
        raise ParameterError(f"{name} must be positive and finite, but is {value}")
    if not 1.0 / most <= low <= high <= most:
        raise ParameterError(f"{name} must lie between {1.0 / most:g} and {most:g}, but is {value}")
    return float(array) if array.ndim == 0 else array


def per_input(name: str, value: float | np.ndarray, X: Array) -> Array:
    """Return one number per input on X's device, from one number or one per input. (d,)"""
    d = X.shape[1]
    if np.ndim(value) > 0 and np.size(value) != d:
        raise ShapeError(f"the kernel has {np.size(value)} {name}s, but the inputs have {d} columns")
    return arrays.asarray_like(np.full(d, value), X)


def as_parameter(gradient: Array, value: float | np.ndarray) -> Array:
    """Return a gradient per input (d,) in the parameter's shape: summed if all inputs share one value."""
    return namespace(gradient).sum(gradient) if np.ndim(value) == 0 else gradient
