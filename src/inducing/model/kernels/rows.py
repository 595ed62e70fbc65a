"""Kernel values of one row at a time, without the checks and array operations that many rows are worth."""

from collections.abc import Callable
from functools import reduce
from operator import add, mul

import numpy as np

from .base import Kernel
from .composite import Product, Sum
from .stationary import PROFILES, Stationary

Cross = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of a row (1, d) with Z (m, d): (m,)


class RowKernel:
    """A kernel that meets checked rows (1, d) of floats one by one: compiled where it is one of `PROFILES`,
    part by part where it is a sum or product, else called as any kernel is.
    """

    def __init__(self, kernel: Kernel, d: int) -> None:
        self.kernel, self.cross = kernel, _cross(kernel, d)
        self._diag = (
            np.asarray(kernel.diagonal(np.zeros((1, d))), dtype=float) if _is_stationary(kernel) else None
        )

    def diag(self, x: np.ndarray) -> np.ndarray:
        """k(x, x). (1,)"""
        return np.asarray(self.kernel.diagonal(x), dtype=float) if self._diag is None else self._diag


def _is_stationary(kernel: Kernel) -> bool:
    if isinstance(kernel, Sum | Product):
        return all(map(_is_stationary, kernel.parts))
    return isinstance(kernel, Stationary)


def _cross(kernel: Kernel, d: int) -> Cross:
    if type(kernel) is Sum or type(kernel) is Product:
        parts, join = [_cross(part, d) for part in kernel.parts], add if type(kernel) is Sum else mul
        return lambda x, Z: reduce(join, [part(x, Z) for part in parts])
    if type(kernel) not in PROFILES:
        return lambda x, Z: kernel.covariances(x, Z)[0]
    from .triangle_loops import cross_row

    assert isinstance(kernel, Stationary)
    columns = None if kernel.columns is None else list(kernel.columns)
    scales = 1.0 / np.asarray(kernel.scales(np.zeros((1, d if columns is None else len(columns)))))
    profile, variance = PROFILES[type(kernel)], float(kernel.variance)

    def cross(x: np.ndarray, Z: np.ndarray) -> np.ndarray:
        if columns is not None:
            x, Z = x[:, columns], np.ascontiguousarray(Z[:, columns])
        row = np.empty(len(Z))
        cross_row(x[0], Z, scales, profile, variance, row)
        return row

    return cross
