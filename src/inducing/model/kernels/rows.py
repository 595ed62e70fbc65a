"""Kernel values of rows that come one by one or in blocks, without checks; where they are compiled, a value
does not depend on the rows that come with it, to the last bit.
"""

from collections.abc import Callable
from functools import reduce

import numpy as np

from .base import Kernel, leaves_of
from .composite import Product, Sum
from .stationary import PROFILES, Stationary

Meet = Callable[[np.ndarray, np.ndarray, bool], np.ndarray]  # of X (b, d) with Z (m, d): (b, m) or (b, m + b)


class RowKernel:
    """A kernel that meets checked rows of floats: compiled where it is one of `PROFILES`, part by part where
    it is a sum or product, else called as any kernel is. `compiled` says whether all of it is.
    """

    def __init__(self, kernel: Kernel, d: int) -> None:
        self.kernel, self._meet, self.compiled = kernel, _meet(kernel, d), _is_compiled(kernel)
        same = all(isinstance(leaf, Stationary) for leaf in leaves_of(kernel))  # everywhere
        self._diag = np.asarray(kernel.diagonal(np.zeros((1, d))), dtype=float) if same else None

    def cross(self, x: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """k(x, Z) of a row (1, d). (m,)"""
        return self._meet(x, Z, False)[0]

    def rows(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """The kernel of rows X (b, d) with Z (m, d) and, in the last columns, rows before them. (b, m + b)"""
        return self._meet(X, Z, True)

    def diag(self, x: np.ndarray) -> np.ndarray:
        """k(x, x). (1,)"""
        return np.asarray(self.kernel.diagonal(x), dtype=float) if self._diag is None else self._diag


def _is_compiled(kernel: Kernel) -> bool:
    if type(kernel) is Sum or type(kernel) is Product:
        return all(map(_is_compiled, kernel.parts))
    return type(kernel) in PROFILES


def _meet(kernel: Kernel, d: int) -> Meet:
    if type(kernel) is Sum or type(kernel) is Product:
        parts = [_meet(part, d) for part in kernel.parts]
        return lambda X, Z, earlier: reduce(kernel.join, [part(X, Z, earlier) for part in parts])
    if type(kernel) not in PROFILES:
        return lambda X, Z, earlier: kernel.covariances(X, np.concatenate([Z, X]) if earlier else Z)
    from .triangle_loops import rows_with

    assert isinstance(kernel, Stationary)
    columns = None if kernel.columns is None else list(kernel.columns)
    scales = 1.0 / np.asarray(kernel.scales(np.zeros((1, d if columns is None else len(columns)))))
    form = kernel.in_loops

    def meet(X: np.ndarray, Z: np.ndarray, earlier: bool) -> np.ndarray:
        if columns is not None:
            X, Z = np.ascontiguousarray(X[:, columns]), np.ascontiguousarray(Z[:, columns])
        K = np.zeros((len(X), len(Z) + len(X) * earlier))
        rows_with(X, Z, scales, form, K)
        return K

    return meet
