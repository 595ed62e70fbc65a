"""Kernel values of rows that come one by one or in blocks, without checks. A compiled value is the same, to
the last bit, whatever rows come with it.
"""

from collections.abc import Callable
from functools import reduce

import numpy as np

from .base import Kernel, leaves_of
from .composite import Composite, leaves
from .stationary import PROFILES, Stationary

# of X (b, d), Z (m, d) and whether earlier rows of X count: k(X, Z) (b, m), or (b, m + b) with those rows
RowValues = Callable[[np.ndarray, np.ndarray, bool], np.ndarray]


class RowKernel:
    """A kernel of checked rows of floats: compiled if it is one of `PROFILES`, part by part if it is a sum or
    product, else evaluated as it is. `compiled` says whether all of it is compiled.
    """

    def __init__(self, kernel: Kernel, d: int) -> None:
        self.kernel, self._values = kernel, _values(kernel, d)
        self.compiled = all(type(part) in PROFILES for _, part in leaves(kernel))
        same = all(isinstance(leaf, Stationary) for leaf in leaves_of(kernel))  # everywhere
        self._diag = np.asarray(kernel.diagonal(np.zeros((1, d))), dtype=float) if same else None

    def cross(self, x: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Return k(x, Z) of a row x (1, d). (m,)"""
        return self._values(x, Z, False)[0]

    def rows(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Return k(X, Z) and, in the last columns, k of each row of X with the rows before it. (b, m + b)"""
        return self._values(X, Z, True)

    def diag(self, x: np.ndarray) -> np.ndarray:
        """Return k(x, x). (1,)"""
        return np.asarray(self.kernel.diagonal(x), dtype=float) if self._diag is None else self._diag


def _values(kernel: Kernel, d: int) -> RowValues:
    if isinstance(kernel, Composite):
        parts = [_values(part, d) for part in kernel.parts]
        return lambda X, Z, earlier: reduce(kernel.join, [part(X, Z, earlier) for part in parts])
    if type(kernel) not in PROFILES:
        return lambda X, Z, earlier: kernel.covariances(X, np.concatenate([Z, X]) if earlier else Z)
    from .triangle_loops import rows_with

    assert isinstance(kernel, Stationary)
    columns = None if kernel.columns is None else list(kernel.columns)
    scales = 1.0 / np.asarray(kernel.scales(np.zeros((1, d if columns is None else len(columns)))))
    form = kernel.in_loops

    def values(X: np.ndarray, Z: np.ndarray, earlier: bool) -> np.ndarray:
        if columns is not None:
            X, Z = np.ascontiguousarray(X[:, columns]), np.ascontiguousarray(Z[:, columns])
        K = np.zeros((len(X), len(Z) + len(X) * earlier))
        rows_with(X, Z, scales, form, K)
        return K

    return values
