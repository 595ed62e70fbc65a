"""Products of kernel matrices that are never stored: `product(V)` is K(X, X) V, `product(V, Z)` K(Z, X) V."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from ...errors import ShapeError
from ...model.kernels.base import Kernel
from ...model.kernels.stationary import RBF
from ...numerics.arrays import SMALL, Array, as_columns, is_numpy, zeros_like_rows
from ...numerics.workers import DEVICE_BYTES, cores, row_slices, run_over


class KernelProduct(Protocol):
    """The interface of products K(Z, X) V; Z = X if not given."""

    def __call__(self, V: Array, Z: Array | None = None) -> Array: ...


@dataclass(frozen=True, eq=False)
class Blocked:
    """The exact product block by block, for any kernel, on the CPU or a GPU. With Z = X on the CPU each block
    below the diagonal is used twice, and a matrix of a single block is kept.
    """

    kernel: Kernel
    X: Array  # (n, d)

    def __call__(self, V: Array, Z: Array | None = None) -> Array:
        """Return K(Z, X) V; Z = X if not given. Memory O(n p) on each core."""
        columns = checked_columns(V, self.X.shape[0])
        if is_numpy(self.X):
            out = self._in_blocks(np.ascontiguousarray(columns), Z)
        else:
            out = self._in_slabs(columns, self.X if Z is None else Z)
        return out[:, 0] if V.ndim == 1 else out

    @cached_property
    def _matrix(self) -> np.ndarray:
        return self.kernel(self.X, self.X)

    def _in_blocks(self, V: np.ndarray, Z: np.ndarray | None) -> np.ndarray:
        X, length, symmetric = self.X, side(self.kernel), Z is None
        rows = X if Z is None else Z
        if symmetric and len(X) <= length:
            return self._matrix @ V
        if symmetric:
            tasks = block_pairs(self.kernel, len(X))
        else:
            above, across = row_slices(len(rows), length), row_slices(len(X), length)
            tasks = [(i, j) for i in above for j in across]
            if len(above) < 4 * cores():  # few queries: share out the columns among the cores
                tasks = [(i, j) for j in across for i in above]

        def start() -> tuple[np.ndarray, np.ndarray]:
            return np.zeros((len(rows), V.shape[1])), np.empty(length**2, dtype=X.dtype)

        def step(state: tuple[np.ndarray, np.ndarray], pair: tuple[slice, slice]) -> None:
            out, space = state
            i, j = pair
            shape = i.stop - i.start, j.stop - j.start
            K = self.kernel(rows[i], X[j], space[: shape[0] * shape[1]].reshape(shape))
            out[i] += K @ V[j]
            if symmetric and i != j:
                out[j] += K.T @ V[i]

        parts = run_over(tasks, start, step, parallel=len(rows) * len(X) >= SMALL)
        return sum((out for out, _ in parts[1:]), parts[0][0])

    def _in_slabs(self, V: Array, Z: Array) -> Array:
        """Multiply on a GPU, as many rows at a time as the device's budget allows."""
        out = zeros_like_rows((Z.shape[0], V.shape[1]), self.X)
        rows = max(1, min(Z.shape[0], DEVICE_BYTES // (self.X.dtype.itemsize * self.X.shape[0])))
        for s in row_slices(Z.shape[0], rows):
            out[s] = self.kernel(Z[s], self.X) @ V
        return out


def side(kernel: Kernel) -> int:
    """Return the rows and columns of a block on the CPU: large enough that the cost of a call does not show,
    smaller for kernels of several passes, so that each finds the block in cache.
    """
    return 1024 if isinstance(kernel, RBF) else 512


def block_pairs(kernel: Kernel, n: int) -> list[tuple[slice, slice]]:
    """Return the blocks of K(X, X) on and below its diagonal."""
    slices = row_slices(n, side(kernel))
    return [(i, j) for a, i in enumerate(slices) for j in slices[: a + 1]]


def checked_columns(V: Array, n: int) -> Array:
    """Return V as columns (n, p). Raise if it has not one row for each column of the kernel matrix."""
    if V.ndim not in (1, 2) or V.shape[0] != n:
        raise ShapeError(f"V has shape {tuple(V.shape)}, but the kernel matrix has {n} columns")
    return as_columns(V)
