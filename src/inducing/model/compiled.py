"""A posterior as a few arrays, from which exported files, pages and a compiled function predict."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from math import comb
from typing import Self

import numpy as np

from ..errors import ParameterError
from ..numerics.arrays import Array, to_numpy
from ..numerics.compiling import FAST, compiled, helper
from ..numerics.triangles import add, dot
from .bases import Basis, Multiscale
from .kernels.base import Kernel, per_input
from .kernels.changed import OfFeatures
from .kernels.composite import Product, Sum
from .kernels.dot import Constant as ConstantKernel
from .kernels.dot import Linear as LinearKernel
from .kernels.dot import Polynomial
from .kernels.stationary import LINEAR, PROFILES, RationalQuadratic, Stationary
from .kernels.triangle_loops import to_values
from .means import Constant, Linear, Mean, Zero

RATIONAL = PROFILES[RationalQuadratic]
LEAF_KINDS: dict[type[Kernel], int] = {**PROFILES, LinearKernel: LINEAR, Polynomial: LINEAR}


@dataclass(frozen=True, eq=False)
class Leaf:
    """A factor of a kernel: g(Σ_k p_k (x_k - v_k)²) of variance 1, or Σ_k p_k (x_k - o_k)(v_k - o_k)."""

    kind: int  # the number of the profile g in `PROFILES`, or LINEAR
    columns: np.ndarray  # (c,)
    precisions: np.ndarray  # p (c, 1), or (c, m) where each function has its own
    shape: float = 1.0  # of the rational quadratic


KernelTerm = tuple[float, tuple[Leaf, ...]]


@dataclass(frozen=True, eq=False)
class Functions:
    """Basis functions k_j(x) = k(x, v_j), where k is a sum of terms: a variance times a product of leaves.

    Leaves see x and features of it: hats, max(0, min((x_k - a)/(b - a), (c - x_k)/(c - b))), or warps,
    asinh((x_k - a)/(b - a)), where c = b.
    """

    centers: np.ndarray  # v (d + L, m)
    origin: np.ndarray  # o (d + L,), the zero of linear leaves
    terms: tuple[KernelTerm, ...]
    hats: np.ndarray = field(default_factory=lambda: np.zeros((0, 4)))  # k, a, b, c of each feature

    def in_units(self, x_mean: np.ndarray, x_scale: np.ndarray) -> Self:
        """Return functions of x that equal these of (x - x_mean)/x_scale. (d,) each"""
        of = self.hats[:, 0].astype(int)
        corners = self.hats[:, 1:] * x_scale[of, None] + x_mean[of, None]
        x_mean, x_scale = np.append(x_mean, 0.0 * of), np.append(x_scale, 0.0 * of + 1.0)

        def scaled(leaf: Leaf) -> Leaf:
            return replace(leaf, precisions=leaf.precisions / x_scale[leaf.columns, None] ** 2)

        terms = tuple((variance, tuple(map(scaled, leaves))) for variance, leaves in self.terms)
        centers = self.centers * x_scale[:, None] + x_mean[:, None]
        return type(self)(centers, self.origin * x_scale + x_mean, terms, np.column_stack([of, corners]))


@dataclass(frozen=True, eq=False)
class Folded:
    """A posterior whose kernel is made of RBF, Matérn, rational quadratic and dot product kernels.

    mean = bias + slopeᵀx + Σ_j α_j k_j(x), and variance = floor + share k(x, x) - |T k(x)|², or floor +
    |T k(x)|² of a degenerate process, whose share is 0.
    """

    functions: Functions
    alpha: np.ndarray  # (m,)
    T: np.ndarray  # (m, m), lower
    bias: float
    slope: np.ndarray  # (d,)
    share: float
    floor: float = 0.0

    @classmethod
    def of(
        cls, kernel: Kernel, basis: Basis, mean: Mean, alpha: Array, T: Array, *, degenerate: bool
    ) -> Self:
        """Fold the process of mean m0 + k_u(x)ᵀα and variance k(x, x) - |T k_u(x)|², or |T k_u(x)|²."""
        terms: list[KernelTerm]
        seen = list[OfFeatures]()
        if isinstance(basis, Multiscale):
            assert isinstance(kernel, Stationary)
            centers, widths, _ = function_shapes(kernel, basis)
            leaf = Leaf(LEAF_KINDS[type(kernel)], np.arange(centers.shape[1]), 1.0 / widths.T**2)
            terms = [(float(kernel.variance), (leaf,))]
        else:
            centers = to_numpy(basis.Z)
            terms = _terms(kernel, centers, seen)
        slope, bias = _affine(mean, centers.shape[1])
        at_hats = [to_numpy(own.changed(centers))[:, centers.shape[1] :] for own in seen]
        centers = np.ascontiguousarray(np.hstack([centers, *at_hats]).T)
        all_hats = np.vstack([np.zeros((0, 4)), *(own.hats for own in seen)])
        functions = Functions(centers, np.zeros(len(centers)), tuple(terms), all_hats)
        own, share = heights(kernel, basis), 0.0 if degenerate else 1.0
        root = np.ascontiguousarray(to_numpy(T) * own, dtype=float)
        return cls(functions, to_numpy(alpha) * own, root, bias, slope, share)

    def in_units(
        self,
        *,
        x_mean: float | np.ndarray = 0.0,
        x_scale: float | np.ndarray = 1.0,
        y_mean: float = 0.0,
        y_scale: float = 1.0,
        noise: float = 0.0,
    ) -> Self:
        """Return the process of x and y, if this is of (x - x_mean)/x_scale and (y - y_mean)/y_scale; `noise`
        is added to this one's variance.
        """
        d = len(self.slope)
        x_mean, x_scale = (np.array(np.broadcast_to(a, d), dtype=float) for a in (x_mean, x_scale))
        slope = self.slope * y_scale / x_scale
        return replace(
            self,
            functions=self.functions.in_units(x_mean, x_scale),
            alpha=self.alpha * y_scale,
            T=self.T * y_scale,
            bias=float(y_mean + y_scale * self.bias - slope @ x_mean),
            slope=slope,
            share=float(self.share * y_scale**2),
            floor=float((self.floor + noise) * y_scale**2),
        )


@dataclass(frozen=True, eq=False)
class CompiledPredictor(Folded):
    """A predictor of single points: `predictor(x)` is (mean, variance) of f at x, float64 (d,), unchecked."""

    _function: Callable[..., tuple[float, float]] = field(init=False, repr=False)
    _arguments: tuple[np.ndarray, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        f, numbers = self.functions, [self.bias, self.floor, self.share, len(self.functions.terms)]
        numbers += [len(f.hats), *self.slope, *f.origin, *f.hats.ravel()]
        for variance, leaves in f.terms:
            numbers += [variance, len(leaves)]
            for leaf in leaves:
                numbers += [leaf.kind, leaf.shape, leaf.precisions.shape[1], len(leaf.columns)]
                numbers += [*leaf.columns, *leaf.precisions.ravel()]
        # few arrays, because each argument adds 0.2 µs to a call
        arguments = np.vstack([f.centers, self.alpha]), self.T, np.array(numbers, dtype=float)
        object.__setattr__(self, "_arguments", arguments)
        object.__setattr__(self, "_function", predict_one.ready())
        self(np.zeros(len(self.slope)))  # compile, or load what was compiled before

    def __call__(self, x: np.ndarray) -> tuple[float, float]:
        return self._function(x, *self._arguments)


def function_shapes(kernel: Stationary, basis: Basis) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return centres (m, d), widths (m, d) and heights (m,) of the functions k_u(x)."""
    if not isinstance(basis, Multiscale):
        centers = to_numpy(basis.Z)
        widths = np.broadcast_to(to_numpy(kernel.scales(centers)), centers.shape)
        return centers, widths, np.full(len(basis), kernel.variance)
    centers, widths = to_numpy(basis.centers), to_numpy(basis.widths)
    scales = to_numpy(kernel.scales(centers))
    ratios = np.sqrt(scales * np.sqrt(2 * widths**2 - scales**2)) / widths
    return centers, widths, kernel.variance * np.prod(ratios, axis=1)


def heights(kernel: Kernel, basis: Basis) -> np.ndarray:
    """Return the height of each basis function over the kernel's variance, 1 for points. (m,)"""
    if not isinstance(basis, Multiscale):
        return np.ones(len(basis))
    assert isinstance(kernel, Stationary)
    return function_shapes(kernel, basis)[2] / kernel.variance


def _terms(kernel: Kernel, Z: np.ndarray, seen: list[OfFeatures] | None = None) -> list[KernelTerm]:
    """Return a kernel as a sum of terms, products of sums being multiplied out. Kernels of features are added
    to `seen`; the columns of their features come behind those of x and of earlier kernels.
    """
    if isinstance(kernel, OfFeatures) and seen is not None:
        d, before = Z.shape[1], sum(len(own.owners) for own in seen)
        inside = _terms(kernel.kernel, to_numpy(kernel.changed(Z)))
        seen.append(kernel)

        def behind(leaf: Leaf) -> Leaf:
            return replace(leaf, columns=leaf.columns + before * (leaf.columns >= d))

        return [(variance, tuple(map(behind, leaves))) for variance, leaves in inside]
    if isinstance(kernel, Sum):
        return [term for part in kernel.parts for term in _terms(part, Z, seen)]
    if isinstance(kernel, Product):
        chosen = list(product(*[_terms(part, Z, seen) for part in kernel.parts]))
        return [
            (float(np.prod([variance for variance, _ in terms])), sum((leaves for _, leaves in terms), ()))
            for terms in chosen
        ]
    if type(kernel) is ConstantKernel:
        return [(float(kernel.variance), ())]
    kind = LEAF_KINDS.get(type(kernel))  # a subclass may differ in anything
    if kind is None:
        raise ParameterError(
            "only sums and products of RBF, Matérn, rational quadratic, polynomial, linear and constant "
            f"kernels can be compiled, exported or explained, not {type(kernel).__name__}: use predict, or "
            "fit with one of those, such as kernel='matern52'"
        )
    columns = np.arange(Z.shape[1]) if kernel.columns is None else np.array(kernel.columns)
    if isinstance(kernel, LinearKernel):
        return [(1.0, (Leaf(kind, columns, per_input("variance", kernel.variance, Z[:, columns])[:, None]),))]
    if isinstance(kernel, Polynomial):  # (1 + x'z/unit)^degree, multiplied out
        leaf = Leaf(kind, columns, np.full((len(columns), 1), 1.0 / (len(columns) * kernel.scale)))
        powers = range(kernel.degree + 1)
        return [(float(kernel.variance * comb(kernel.degree, j)), (leaf,) * j) for j in powers]
    assert isinstance(kernel, Stationary)
    precisions = 1.0 / to_numpy(kernel.scales(Z[:, columns]))[:, None] ** 2
    leaf = Leaf(kind, columns, precisions, float(getattr(kernel, "shape", 1.0)))
    return [(float(kernel.variance), (leaf,))]


def _affine(mean: Mean, d: int) -> tuple[np.ndarray, float]:
    """Return slope and bias of a prior mean. Raise if it is not linear."""
    if isinstance(mean, Zero):
        return np.zeros(d), 0.0
    if isinstance(mean, Constant):
        return np.zeros(d), float(np.ravel(mean.value)[0])
    if isinstance(mean, Linear):
        return np.asarray(mean.weights, dtype=float).reshape(d), float(np.ravel(mean.bias)[0])
    raise ParameterError(f"a prior mean {type(mean).__name__} cannot be compiled; use predict")


@helper()
def _leaf_values(
    x: np.ndarray, table: np.ndarray, origin: np.ndarray, leaf: np.ndarray, s: np.ndarray
) -> float:
    """Fill s (m,) with a leaf between x and each centre, and return it between x and x."""
    m, kind, shape, each, c = len(s), leaf[0], leaf[1], int(leaf[2]), int(leaf[3])
    own = 0.0
    for j in range(m):
        s[j] = 0.0
    for i in range(c):
        k = int(leaf[4 + i])
        here, z, p = x[k], table[k], leaf[4 + c + i * each :]
        if kind == LINEAR:
            t = p[0] * (here - origin[k])
            own += t * (here - origin[k])
            for j in range(m):
                s[j] += t * (z[j] - origin[k])
        elif each == 1:
            for j in range(m):
                s[j] += p[0] * (here - z[j]) * (here - z[j])
        else:
            for j in range(m):
                s[j] += p[j] * (here - z[j]) * (here - z[j])
    if kind == LINEAR:
        return own
    to_values((int(kind), 1.0, shape), s)
    return 1.0


@compiled(fastmath=FAST)
def predict_one(x: np.ndarray, table: np.ndarray, T: np.ndarray, form: np.ndarray) -> tuple[float, float]:
    """Return (mean, variance) at one point from the arrays that `CompiledPredictor` makes."""
    m, d, L, mean, whole = table.shape[1], len(x), int(form[4]), form[0], 0.0
    for k in range(d):
        mean += form[5 + k] * x[k]
    origin, at = form[5 + d : 5 + 2 * d + L], 5 + 2 * d + L
    if L > 0:
        given, x = x, np.empty(d + L)
        for k in range(d):
            x[k] = given[k]
        for k in range(d, d + L):
            v, a, b, c = given[int(form[at])], form[at + 1], form[at + 2], form[at + 3]
            if b == c:
                x[k] = np.arcsinh((v - a) / (b - a))
            else:
                x[k] = max(0.0, min((v - a) / (b - a), (c - v) / (c - b)))
            at += 4
    ku, product, s = np.zeros(m), np.empty(m), np.empty(m)
    for _ in range(int(form[3])):
        own, leaves = form[at], int(form[at + 1])
        at += 2
        for j in range(m):
            product[j] = own
        for _ in range(leaves):
            own *= _leaf_values(x, table, origin, form[at:], s)
            at += 4 + int(form[at + 3]) * (1 + int(form[at + 2]))
            for j in range(m):
                product[j] *= s[j]
        whole += own
        add(1.0, product, ku, m)
    squares = 0.0
    for i in range(m):
        t = dot(T[i], ku, i + 1)
        squares += t * t
        mean += table[d + L, i] * ku[i]
    if form[2] == 0.0:
        return mean, form[1] + squares
    return mean, form[1] + form[2] * whole - squares
