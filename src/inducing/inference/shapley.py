"""Shapley values of a process's mean: what each input adds to a row's prediction, relative to a background.

The worth of inputs S is the mean with the row's values in S and a background row's elsewhere, averaged over
the background. For a product over inputs, worth Π_S p Π_{not S} q, the value of input i is an integral over
the share s of inputs that are known,

    φ_i = ∫₀¹ (p_i - q_i) Π_{l≠i} (q_l + s (p_l - q_l)) ds        [Owen 1972]

a polynomial of degree d - 1 that ⌈d/2⌉ Gauss-Legendre nodes integrate exactly: O(m d²) for a row and a
background row, without differences of large numbers. A value is linear in f, so it has a standard deviation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ..errors import ParameterError
from ..model.bases import Multiscale
from ..model.compiled import function_shapes
from ..model.kernels.base import Kernel
from ..model.kernels.composite import Product, Sum, products_without_each
from ..model.kernels.dot import Constant as ConstantKernel
from ..model.kernels.dot import Linear as LinearKernel
from ..model.kernels.stationary import RBF
from ..model.means import Constant, Linear, Zero
from ..model.posterior import Posterior
from ..numerics.arrays import Array, Seed, to_numpy

Groups = Sequence[Sequence[int]]  # the columns of each input
Term = dict[int, list[Kernel]]  # a product of kernels, by the input that they depend on


@dataclass(frozen=True, eq=False)
class Shapley:
    """Shapley values: each input's part in the mean at each row. With `baseline` they add up to the mean."""

    values: np.ndarray  # (n, d), or (n, d, p)
    baseline: np.ndarray | float  # the mean over the background, a number or (p,)
    std: np.ndarray | None = None  # (n, d): the model's own standard deviation of each value
    error: np.ndarray | None = None  # standard error of values that were sampled; None: they are exact
    X: np.ndarray | None = None  # (n, d), the rows
    names: tuple[str, ...] = ()  # of the inputs

    @property
    def predictions(self) -> np.ndarray:
        """The mean at each row. (n,) or (n, p)"""
        return self.baseline + self.values.sum(axis=1)


def shapley_values(
    post: Posterior, X: np.ndarray, background: np.ndarray, groups: Groups, std: bool = False
) -> Shapley | None:
    """Return exact values for kernels that are sums of products over the groups; None for others."""
    terms, mean = product_terms(post.kernel, groups), post.mean_function
    if terms is None or not isinstance(mean, Zero | Constant | Linear):
        return None
    if std and post.conditional == "independent":
        raise ParameterError("FIC's residual is independent at each query, so values have no std; use FITC")
    if isinstance(post.basis, Multiscale):
        terms = terms[:1]  # the kernel is one RBF
    functions = _of_basis(post, terms, groups)
    parts = list(zip(functions(X), functions(background)))  # (g, n, m) and (g, b, m) for each term
    share = np.stack([_shares(parts, i) for i in range(len(X))])  # (n, g, m)
    values = share @ to_numpy(post.coefficients)  # (n, g, p)
    if isinstance(mean, Linear):
        slope = np.asarray(mean.weights, dtype=float).reshape(X.shape[1], -1)
        apart = X - background.mean(axis=0)
        values = values + np.stack([apart[:, list(g)] @ slope[list(g)] for g in groups], axis=1)
    base, whole = to_numpy(post.mean(background)).mean(axis=0), to_numpy(post.mean(X))
    values = values[:, :, 0] if post.one_output else values
    values = values + ((whole - base) - values.sum(axis=1))[:, None] / len(groups)  # of rounding
    return Shapley(values, base, np.sqrt(_variances(post, terms, share, X, background)) if std else None)


def sampled_values(
    function: Callable[[np.ndarray], np.ndarray],
    X: np.ndarray,
    background: np.ndarray,
    permutations: int = 8,
    rng: Seed = 0,
) -> Shapley:
    """Estimate the values of any function of X by random orders of the inputs, each with its reverse, equally
    many from every background row. They add up exactly; `error` is the standard error of each.
    """
    rng, (b, d), pairs = np.random.default_rng(rng), background.shape, max(2, -(-permutations // 2))
    values, error = [], []
    orders = np.argsort(rng.random((b, pairs, d)), axis=-1)
    orders = np.stack([orders, orders[..., ::-1]], axis=2).reshape(-1, d)  # (b · 2 pairs, d)
    rank = np.argsort(orders, axis=1)
    start = np.repeat(background, 2 * pairs, axis=0)
    for x in X:
        known = rank[:, None, :] < np.arange(d + 1)[:, None]  # (orders, d + 1, d)
        rows = np.where(known, x, start[:, None, :]).reshape(-1, d)
        f = function(rows)
        steps = np.diff(f.reshape(len(orders), d + 1, *f.shape[1:]), axis=1)
        gains = np.take_along_axis(steps, rank.reshape(*rank.shape, *(1,) * (f.ndim - 1)), axis=1)
        both = gains.reshape(b, pairs, 2, *gains.shape[1:]).mean(axis=2)
        values.append(both.mean(axis=(0, 1)))
        error.append(np.sqrt(np.sum(both.var(axis=1, ddof=1), axis=0) / pairs) / b)
    return Shapley(np.stack(values), function(background).mean(axis=0), error=np.stack(error))


def product_terms(kernel: Kernel, groups: Groups) -> list[Term] | None:
    """Return the kernel as a sum of products over the groups of columns; None if it is no such sum."""
    if isinstance(kernel, Sum | Product):
        parts = [product_terms(part, groups) for part in kernel.parts]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        if isinstance(kernel, Sum):
            return [term for part in known for term in part]
        return [_merged(choice) for choice in product(*known)]
    if isinstance(kernel, ConstantKernel):
        return [{0: [kernel]}]
    columns = getattr(kernel, "columns", None)
    columns = sorted(c for g in groups for c in g) if columns is None else list(columns)
    own = [[i for i, c in enumerate(columns) if c in g] for g in groups]
    seen = [g for g, places in enumerate(own) if places]
    if len(seen) == 1:
        return [{seen[0]: [kernel]}]
    if type(kernel) is RBF:
        lengths = np.broadcast_to(kernel.lengthscale, len(columns))
        parts_of: Term = {
            g: [replace(kernel, lengthscale=lengths[own[g]], variance=1.0, columns=_some(columns, own[g]))]
            for g in seen
        }
        first = parts_of[seen[0]][0]
        return [parts_of | {seen[0]: [first.with_parameters({"variance": kernel.variance})]}]
    if type(kernel) is LinearKernel:
        shares = np.broadcast_to(kernel.variance, len(columns))
        return [{g: [replace(kernel, variance=shares[own[g]], columns=_some(columns, own[g]))]} for g in seen]
    return None


def _some(columns: list[int], places: list[int]) -> tuple[int, ...]:
    return tuple(columns[i] for i in places)


def _merged(terms: Sequence[Term]) -> Term:
    """Multiply products: join their kernels by input."""
    return {g: [k for term in terms for k in term.get(g, [])] for g in sorted({g for t in terms for g in t})}


def _factor(term: Term, g: int, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Return the factor of a product that depends on input g. (n, m)"""
    K = np.ones((len(X), len(Z)))
    for kernel in term.get(g, []):
        K *= kernel.covariances(X, Z)
    return K


def _of_basis(post: Posterior, terms: list[Term], groups: Groups) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Return a function that gives each input's factor of the basis functions. (g, n, m) for each term"""
    basis, kernel = post.basis, post.kernel
    if isinstance(basis, Multiscale):
        assert isinstance(kernel, RBF)
        centers, widths, heights = function_shapes(kernel, basis)

        def gaussians(X: np.ndarray) -> list[np.ndarray]:
            parts = []
            for g in groups:
                scaled = (X[:, None, list(g)] - centers[:, list(g)]) / widths[:, list(g)]
                parts.append(np.exp(-0.5 * np.sum(scaled**2, axis=-1)))
            parts[0] = parts[0] * heights
            return [np.stack(parts)]

        return gaussians
    Z = to_numpy(basis.Z)
    return lambda X: [np.stack([_factor(t, g, X, Z) for g in range(len(groups))]) for t in terms]


def _nodes(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Gauss-Legendre nodes and weights on [0, 1] that are exact to degree d - 1."""
    t, w = np.polynomial.legendre.leggauss(max(1, -(-d // 2)))
    return 0.5 * (1.0 + t), 0.5 * w


def _shares(terms: list[tuple[np.ndarray, np.ndarray]], row: int) -> np.ndarray:
    """Return each basis function's Shapley values at a row, averaged over the background. (g, m)"""
    total = 0.0
    for P, Q in terms:
        step = P[:, row, None, :] - Q  # (g, b, m)
        for s, w in zip(*_nodes(len(P))):
            others = products_without_each(list(Q + s * step)) if len(P) > 1 else [1.0]
            total = total + w * np.stack([np.mean(a * o, axis=0) for a, o in zip(step, others)])
    return np.asarray(total)


def _variances(
    post: Posterior, terms: list[Term], share: np.ndarray, X: np.ndarray, background: np.ndarray
) -> np.ndarray:
    """Return the variance of each value: the prior's less what the data explain. (n, g)"""
    T = post.variance_root
    if T is None:
        known = -np.einsum("ngi,ij,ngj->ng", share, to_numpy(post.C), share)
    else:
        known = np.sum((share @ to_numpy(T).T) ** 2, axis=-1)
    if post.conditional == "deterministic":
        return known
    prior = np.zeros(share.shape[:2])
    for term in terms:
        inside = [_factor(term, g, background, background) for g in range(share.shape[1])]  # (b, b)
        for i, x in enumerate(X):
            across = [_factor(term, g, x[None], background)[0] for g in range(len(inside))]  # (b,)
            alone = [float(_factor(term, g, x[None], x[None])[0, 0]) for g in range(len(inside))]
            prior[i] += _prior_variances(alone, across, inside)
    return np.maximum(prior - known, 0.0)


def _prior_variances(alone: list[float], across: list[Array], inside: list[Array]) -> np.ndarray:
    """Return ∫∫ of the values over both arguments of the kernel, averaged over background pairs. (g,)"""
    total, (nodes, weights) = np.zeros(len(alone)), _nodes(len(alone))
    ends = [a - c[None, :] - c[:, None] + k for a, c, k in zip(alone, across, inside)]
    for s, w in zip(nodes, weights):
        for t, v in zip(nodes, weights):
            mixed = [
                s * t * a
                + s * (1.0 - t) * c[None, :]
                + (1.0 - s) * t * c[:, None]
                + (1.0 - s) * (1.0 - t) * k
                for a, c, k in zip(alone, across, inside)
            ]
            others = products_without_each(mixed) if len(mixed) > 1 else [np.ones_like(inside[0])]
            total += w * v * np.array([np.mean(e * o) for e, o in zip(ends, others)])
    return total
