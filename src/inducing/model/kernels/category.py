"""A kernel of categories: levels of a column, numbered, whose covariances are learned one by one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import ParameterError
from ...numerics.arrays import Array, asarray_like, is_numpy, namespace, zeros_like_rows
from .base import Gradients, Kernel, leaves_of, numbers
from .dot import positive_integer

MOST_LEVELS = 10_000  # B has their square
COORDINATES = 16  # of a level, at most, where distances are measured


@dataclass(frozen=True, eq=False)
class Category(Kernel):
    """B[c, c'] for levels c and c' in one column of codes 0, 1, …: B = WWᵀ + diag κ. [Bonilla et al. 2008]

    W (levels, rank) are any numbers, κ (levels,) positive; both are learned. Without them each level starts
    with variance 1, half of which all share. On a column with the number of an output, times a kernel of the
    inputs, it is the intrinsic model of coregionalisation. A code outside is a level that was not seen: with
    `allow_unseen` it has the mean variance and no covariance with any other level.
    """

    names: ClassVar[tuple[str, ...]] = ("W", "kappa")
    per_input_names: ClassVar[tuple[str, ...]] = ("kappa",)

    column: int
    levels: int
    rank: int = 1
    W: Any = None
    kappa: Any = None
    allow_unseen: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", positive_integer("levels", self.levels, MOST_LEVELS))
        object.__setattr__(self, "rank", positive_integer("rank", self.rank, self.levels))
        shapes = {"W": (self.levels, self.rank), "kappa": (self.levels,)}
        starts = {"W": start_weights(self.levels, self.rank), "kappa": np.full(self.levels, 0.5)}
        for name, shape in shapes.items():
            given = getattr(self, name)
            value = numbers(name, starts[name] if given is None else given)
            if value.shape != shape:
                raise ParameterError(f"{name} must hold {shape} numbers, but has shape {value.shape}")
            object.__setattr__(self, name, value)
        super().__post_init__()

    def _check_columns(self) -> None:
        column = self.column
        if not isinstance(column, int | np.integer) or isinstance(column, bool) or column < 0:
            raise ParameterError(f"column must be the number of a column from 0 on, but is {column!r}")

    @property
    def columns(self) -> tuple[int, ...]:
        """The one column it looks at."""
        return (int(self.column),)

    @property
    def unconstrained(self) -> tuple[str, ...]:
        return ("W",)

    @property
    def B(self) -> np.ndarray:
        """The covariance of the levels. (levels, levels)"""
        return self.W @ self.W.T + np.diag(self.kappa)

    def scaled(self, X: Array) -> Array:
        """Coordinates of the levels, the largest, with squared distances 2(1 - correlation). (n, g)"""
        codes = self._codes(self._select(X))
        root = np.sqrt(np.diag(self.B))
        values, vectors = np.linalg.eigh(self.B / np.outer(root, root))
        E = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1][:, :COORDINATES]  # (levels, g)
        return asarray_like(np.concatenate([E, 0.0 * E[:1]]), X)[codes]

    def _codes(self, X: Array) -> Array:
        """The level of each row, `levels` for one that was not seen. (n,) of ints"""
        xp, codes = namespace(X), X[:, 0]
        odd = codes != xp.round(codes)
        if bool(xp.any(odd)):
            row = int(xp.argmax(xp.astype(odd, xp.int64)))
            raise ParameterError(
                f"column {self.column} holds {float(codes[row]):g} in row {row}, but a category needs whole "
                "numbers; encode its levels as 0, 1, …"
            )
        unseen = (codes < 0) | (codes >= self.levels)
        if not self.allow_unseen and bool(xp.any(unseen)):
            row = int(xp.argmax(xp.astype(unseen, xp.int64)))
            raise ParameterError(
                f"column {self.column} holds level {float(codes[row]):g} in row {row}, but the levels known "
                f"are 0 to {self.levels - 1}; allow_unseen=True predicts it from what is known of all levels"
            )
        return xp.astype(xp.where(unseen, self.levels + 0.0 * codes, codes), xp.int64)

    def _same_unseen(self, X: Array, Z: Array, left: Array, right: Array) -> Array | None:
        """1 where two rows are of one level that was not seen, or None where there are none. (n, m)"""
        xp = namespace(X)
        if not bool(xp.any(left == self.levels)) or not bool(xp.any(right == self.levels)):
            return None
        both = (left == self.levels)[:, None] & (X == Z.T)
        return both * xp.ones_like(X)

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        left, right = self._codes(X), self._codes(Z)
        padded = asarray_like(np.pad(self.B, (0, 1)), X)  # with a level that was not seen
        rows = padded[:, right]  # (levels + 1, m)
        K = np.take(rows, left, axis=0, out=out, mode="clip") if is_numpy(X) else rows[left]
        same = self._same_unseen(X, Z, left, right)
        return K if same is None else K + float(np.mean(np.diag(self.B))) * same

    def _diag(self, X: Array) -> Array:
        variances = np.diag(self.B)
        return asarray_like(np.append(variances, np.mean(variances)), X)[self._codes(X)]

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        xp, left, right = namespace(X), self._codes(X), self._codes(Z)
        by_row = self._summed(left, Kbar)  # (levels + 1, m)
        Bbar = self._summed(right, by_row.T).T[: self.levels, : self.levels]
        same = self._same_unseen(X, Z, left, right)
        extra = 0.0 if same is None else xp.sum(Kbar * same) / self.levels
        W = asarray_like(self.W, X)
        diagonal = xp.linalg.diagonal(Bbar) + extra  # `extra` adds to the whole diagonal of B
        gradients = {"W": (Bbar + Bbar.T) @ W + 2.0 * extra * W, "kappa": diagonal}
        return gradients, zeros_like_rows((Z.shape[0], 1), Z)

    def _diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        totals = self._summed(self._codes(X), kbar[:, None])[:, 0]
        level = totals[: self.levels] + totals[-1] / self.levels
        W = asarray_like(self.W, X)
        return {"W": 2.0 * level[:, None] * W, "kappa": level}

    def _summed(self, codes: Array, A: Array) -> Array:
        """The rows of A added up by level. (levels + 1, m)"""
        xp = namespace(A)
        if not is_numpy(A):
            numbers = xp.arange(self.levels + 1, device=A.device)
            return xp.astype(numbers[:, None] == codes[None, :], A.dtype) @ A
        total = np.zeros((self.levels + 1, A.shape[1]))
        if len(codes):
            order = np.argsort(codes, kind="stable")
            first = np.flatnonzero(np.diff(codes[order], prepend=-1))
            total[codes[order[first]]] = np.add.reduceat(A[order], first, axis=0)
        return total


def start_weights(levels: int, rank: int) -> np.ndarray:
    """Weights that all levels share, and smaller waves over their numbers, which break the tie. (L, rank)"""
    waves = np.cos(np.pi * np.outer(np.arange(levels) + 0.5, np.arange(rank)) / levels)
    return np.sqrt(0.5) * waves * np.where(np.arange(rank) == 0, 1.0, 0.3)


def categories_of(kernel: Kernel) -> Iterator[Category]:
    """The kernels of categories inside a kernel."""
    return (leaf for leaf in leaves_of(kernel) if isinstance(leaf, Category))


def code_columns(kernel: Kernel) -> list[int]:
    """The columns that hold codes of categories, which are no places to move in."""
    return sorted({int(part.column) for part in categories_of(kernel)})
