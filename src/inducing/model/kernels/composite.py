"""Sums and products of kernels. Each part selects its own columns; parameters have paths: "0.lengthscale"."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, iadd, imul, mul
from typing import Any, Self

import numpy as np

from ...errors import ParameterError
from ...numerics.arrays import Array, is_numpy, namespace
from .base import Gradients, Kernel, by_path


def products_without_each(factors: Sequence[Array]) -> list[Array]:
    """Return Π_{j≠i} factor_j for every i, without division, so that factors may be zero."""
    if len(factors) == 2:  # the usual case, without copies
        return [factors[1], factors[0]]
    left: list[Any] = [1.0]
    for factor in factors[:-1]:
        left.append(left[-1] * factor)
    right: Any = 1.0
    others = []
    for factor, before in zip(reversed(factors), reversed(left)):
        others.append(before * right)
        right = right * factor
    return others[::-1]


@dataclass(frozen=True, eq=False)
class Composite(Kernel):
    """The base of sums and products. Parts of the same class are flattened: (a + b) + c has three parts."""

    join = staticmethod(add)  # of the matrices, or variances, of two parts
    join_in_place = staticmethod(iadd)

    parts: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        flat: list[Kernel] = []
        for part in self.parts:
            if not isinstance(part, Kernel):
                raise ParameterError(f"a {type(self).__name__} is made of kernels, not {part!r}")
            flat.extend(part.parts if isinstance(part, type(self)) else [part])
        if not flat:
            raise ParameterError(f"a {type(self).__name__} needs at least one kernel, but got none")
        object.__setattr__(self, "parts", tuple(flat))

    @property
    def parameters(self) -> dict[str, Any]:
        return by_path([part.parameters for part in self.parts])

    @property
    def unconstrained(self) -> tuple[str, ...]:
        return tuple(f"{i}.{name}" for i, part in enumerate(self.parts) for name in part.unconstrained)

    def _replaced(self, values: Mapping[str, Any]) -> Self:
        changes: list[dict[str, Any]] = [{} for _ in self.parts]
        for path, value in values.items():
            i, name = path.split(".", 1)
            changes[int(i)][name] = value
        return replace(self, parts=tuple(part.with_parameters(c) for part, c in zip(self.parts, changes)))

    def scaled(self, X: Array) -> Array:
        return namespace(X).concat([part.scaled(X) for part in self.parts], axis=1)

    @property
    def uncertain(self) -> bool:
        return any(part.uncertain for part in self.parts)

    def point_diag(self, X: Array) -> Array:
        return reduce(self.join, [part.point_diag(X) for part in self.parts])

    def point_diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        kbars = self._kbars([part.point_diag(X) for part in self.parts], kbar)
        return by_path([part.point_diag_pullback(X, kb) for part, kb in zip(self.parts, kbars)])

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        K = self.parts[0].covariances(X, Z, out)
        for part in self.parts[1:]:
            other = part.covariances(X, Z)
            K = self.join_in_place(K, other) if is_numpy(K) else self.join(K, other)
        return K

    def _diag(self, X: Array) -> Array:
        return reduce(self.join, [part.diagonal(X) for part in self.parts])

    def _diag_pullback(self, X: Array, kbar: Array) -> Gradients:
        kbars = self._kbars([part.diagonal(X) for part in self.parts], kbar)
        return by_path([part.diag_pullback(X, kb) for part, kb in zip(self.parts, kbars)])

    def _kbars(self, parts: list[Array], kbar: Array) -> list[Array]:
        """Return dJ/d(variance of each part) from kbar, that in the whole."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Sum(Composite):
    """k₁ + k₂ + …: f is a sum of independent functions."""

    def triangle(self, X: Array, out: Array | None = None, rows: slice | None = None) -> Array:
        if not is_numpy(X):
            return super().triangle(X, out, rows)
        K = self.parts[0].triangle(X, out, rows)
        first, last, _ = (rows or slice(None)).indices(len(X))
        own = np.empty(K.shape)  # of which only rows of the lower triangle are written, and read
        for part in self.parts[1:]:
            with np.errstate(all="ignore"):  # above the diagonal both may hold anything
                K[first:last, :last] += part.triangle(X, own, rows)[first:last, :last]
        return K

    def triangle_pullback(self, X: Array, Kbar: Array, rows: slice | None = None) -> Gradients:
        return by_path([part.triangle_pullback(X, Kbar, rows) for part in self.parts])

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        # a part may overwrite its Kbar, so each but the last has a copy of its own
        results = [part.pullback(X, Z, 1.0 * Kbar) for part in self.parts[:-1]]
        results.append(self.parts[-1].pullback(X, Z, Kbar))
        return _gathered(results)

    def _kbars(self, parts: list[Array], kbar: Array) -> list[Array]:
        return [kbar for _ in parts]


@dataclass(frozen=True, eq=False)
class Product(Composite):
    """k₁ k₂ …: rows are alike only if they are in every part."""

    join = staticmethod(mul)
    join_in_place = staticmethod(imul)

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        Ks = [part.covariances(X, Z) for part in self.parts]  # (n, m) each
        results = [
            part.pullback(X, Z, Kbar * others, Kpart)
            for part, others, Kpart in zip(self.parts, products_without_each(Ks), Ks)
        ]
        return _gathered(results)

    def _kbars(self, parts: list[Array], kbar: Array) -> list[Array]:
        return [kbar * others for others in products_without_each(parts)]


def leaves(kernel: Kernel, path: str = "") -> Iterator[tuple[str, Kernel]]:
    """Yield what a kernel's sums and products are made of, with the paths of their parameters: 0., 1.0."""
    if not isinstance(kernel, Composite):
        yield path, kernel
        return
    for i, part in enumerate(kernel.parts):
        yield from leaves(part, f"{path}{i}.")


def _gathered(results: list[tuple[Gradients, Array]]) -> tuple[Gradients, Array]:
    """Return the parts' gradients by path, and the sum of their Zbar."""
    return by_path([gradients for gradients, _ in results]), reduce(add, [Zbar for _, Zbar in results])
