"""The arrays that describe Kfu to the loops of tiles.py: one stationary kernel, or a sum or product of some.

All parts go through one loop and differ in numbers alone: centre and scale of the inputs, coefficients,
profile, variance and shape. The scale is 0 at inputs that a part does not use. Linear kernels may be terms of
a sum. Sums of products, products of sums and other kernels use array operations instead of these loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..model.bases import Basis, Multiscale
from ..model.kernels.base import Gradients, Kernel, per_input
from ..model.kernels.composite import Composite, Product, Sum
from ..model.kernels.distances import FAR_OUT, Exponents, within_reach
from ..model.kernels.dot import Linear
from ..model.kernels.stationary import LINEAR, PROFILES, RationalQuadratic, Stationary
from ..model.problem import Problem
from ..numerics.blas import addresses
from ..numerics.compiling import pointer

FEW_INPUTS = 2  # up to which differences are quicker than a product of features


@dataclass(frozen=True, eq=False)
class KernelPart:
    """One kernel of a form, with the basis in its own columns."""

    kernel: Any  # stationary or linear
    Z: np.ndarray  # (m, g)
    exponents: Exponents | None  # of a stationary kernel

    @staticmethod
    def of(kernel: Stationary | Linear, basis: Basis) -> KernelPart:
        if isinstance(basis, Multiscale):
            return KernelPart(kernel, basis.centers, basis.exponents(kernel))
        Z = basis.Z if kernel.columns is None else basis.Z[:, list(kernel.columns)]
        return KernelPart(kernel, Z, kernel.exponents(Z) if isinstance(kernel, Stationary) else None)

    def reaches(self, X: np.ndarray) -> bool:
        """Return whether sums of moments keep the gradients' digits; most profiles are 0 at rows far out."""
        e, columns = self.exponents, self.kernel.columns
        if e is None or not isinstance(self.kernel, RationalQuadratic):
            return e is None or within_reach(FAR_OUT, e.v)
        at_most = (max(np.max(X), -np.min(X)) + np.abs(e.centre)) * e.scale  # of |u|, at next to no cost
        if within_reach(FAR_OUT, at_most[None], e.reach):
            return True
        return within_reach(FAR_OUT, e.within(X if columns is None else X[:, list(columns)]), e.reach)

    def placed(self, a: np.ndarray, d: int) -> np.ndarray:
        """Return numbers of the part's columns at their places among d inputs, then what else `a` holds."""
        if self.kernel.columns is None:
            return a
        columns, g = list(self.kernel.columns), self.Z.shape[1]
        out = np.zeros((*a.shape[:-1], d + a.shape[-1] - g))
        out[..., columns], out[..., d:] = a[..., :g], a[..., g:]
        return out

    def arrays(self, d: int) -> tuple[Any, ...]:
        """Return centre, scale, vᵀ, Pᵀ, constants, coefficients and the four numbers of `tiles.FormType`."""
        (m, g), e = self.Z.shape, self.exponents
        if e is None:
            slopes = self.Z * per_input("variance", self.kernel.variance, self.Z)
            coefficients = self.placed(np.concatenate([slopes, np.zeros((m, 2))], axis=1), d)
            scale, none = self.placed(np.ones(g), d), np.zeros((d, m))
            return np.zeros(d), scale, none, none, none[0], coefficients, np.array([0.0, LINEAR, 1.0, 1.0])
        profile, variance, shape = self.kernel.in_loops
        reach = np.inf if g <= FEW_INPUTS else e.reach
        numbers = np.array([reach, profile, 1.0 if profile == 0 else variance, shape])
        constants, P = -2.0 * (e.constants + np.zeros(m)), np.ones((m, g)) if e.P is None else e.P
        centre, scale, v, P, coefficients = (
            self.placed(a, d) for a in (e.centre, e.scale, e.v, P, -2.0 * e.coefficients)
        )
        return centre, scale, v.T, P.T, constants, coefficients, numbers

    def gradients(self, moments: np.ndarray, sums: np.ndarray) -> tuple[Gradients, np.ndarray]:
        """Return dJ/dparameters and dJ/dZ (m, d), from Wᵀ[u, …, 1] (m, d + 2) and sums (d + 2,)."""
        d, e = len(sums) - 2, self.exponents
        if self.kernel.columns is not None:
            own = [*self.kernel.columns, d, d + 1]
            moments, sums = moments[:, own], sums[own]
        given = (self.Z, moments[:, :-2]) if e is None else (e, moments, sums)
        gradients, Zbar = self.kernel.from_moments(*given)
        return gradients, self.placed(Zbar, d)


@cache
def _addresses(back: bool) -> np.ndarray:
    from .tiles import fill_at, finish_at

    return np.append(addresses(), [pointer(function) for function in (fill_at, finish_at)[: 1 + back]])


@dataclass(frozen=True, eq=False)
class Form:
    """The parts of a kernel with a basis, and their arrays one above the other."""

    parts: tuple[KernelPart, ...]
    frame: tuple[np.ndarray, np.ndarray, bool]
    form: tuple[Any, ...]

    @property
    def features(self) -> tuple[int, int]:
        """The number of parts, and of features that a row has in each."""
        return len(self.parts), self.form[3].shape[2]

    def basis(self, back: bool = False) -> tuple[Any, ...]:
        """Return the first argument of the compiled loops; second passes (`back`) call `finish_at` by it."""
        kernel = self.parts[0].kernel
        own = kernel.in_loops if isinstance(kernel, Stationary) else (LINEAR, 1.0, 1.0)
        return _addresses(back), self.frame, self.form, own

    def totals(self) -> tuple[np.ndarray, np.ndarray]:
        """Return zeros for the sums of the second pass."""
        count, d, m = self.form[0].shape
        return np.zeros((count, m, self.form[3].shape[2])), np.zeros((count, d + 2))

    def gradients(self, P: Problem, moments: np.ndarray, sums: np.ndarray) -> tuple[Gradients, Gradients]:
        """Return gradients of kernel and basis from the sums of the second pass."""
        if isinstance(P.basis, Multiscale):
            assert self.parts[0].exponents is not None
            return P.basis.from_moments(P.kernel, self.parts[0].exponents, moments[0])
        pairs = [part.gradients(*own) for part, *own in zip(self.parts, moments, sums, strict=True)]
        if P.kernel is self.parts[0].kernel:
            return pairs[0][0], {"Z": pairs[0][1]}
        Zbar = {"Z": np.sum([bar for _, bar in pairs], axis=0)}
        return {f"{i}.{k}": g for i, (part, _) in enumerate(pairs) for k, g in part.items()}, Zbar


def leaves_in_loops(kernel: Kernel) -> Sequence[Any]:
    """Return the terms or factors of a kernel, or itself; [] where compiled loops do not know all of them."""
    joined: Sequence[Any] = [kernel]
    if isinstance(kernel, Composite) and type(kernel) in (Sum, Product):
        joined = kernel.parts
    linear = type(kernel) is Sum and len(joined) > 1
    for leaf in joined:
        if type(leaf) not in PROFILES and not (linear and type(leaf) is Linear):  # a subclass may differ
            return []
        if leaf.columns is not None and len(set(leaf.columns)) < len(leaf.columns):
            return []
    return joined


def form_with(P: Problem) -> Form | None:
    """Return the form of a kernel in `leaves_in_loops`; None where sums of moments would lose digits."""
    parts, d = tuple(KernelPart.of(leaf, P.basis) for leaf in leaves_in_loops(P.kernel)), P.X.shape[1]
    if not all(part.reaches(P.X) for part in parts):
        return None
    centre, scale, *arrays = map(_stacked, zip(*(part.arrays(d) for part in parts), strict=True))
    wide, product = isinstance(P.basis, Multiscale), type(P.kernel) is Product
    return Form(parts, (centre, scale, wide), (*arrays, product))


def _stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return arrays stacked as compiled loops take them, a single one without a copy."""
    joined = arrays[0][None] if len(arrays) == 1 else np.stack(arrays)
    return np.ascontiguousarray(joined, dtype=float)
