"""Sobol indices of a process over a box, which tell which inputs matter, with the process's own error bars.

Let x and x' be uniform over the box and equal in the inputs S only, and D_S = E f(x)f(x') over both and over
the process. The first order index of input k is (D_k - D_∅)/(D_all - D_∅), the total one 1 - (D_others -
D_∅)/(D_all - D_∅). [Oakley, O'Hagan 2004] Under the RBF kernel every D_S is a closed form: with G = ααᵀ + C
and for each input a_j = E g_j(x), M_jl = E g_j(x)g_l(x) of the basis functions, κ = E k(x, x')/k(x, x),

    D_S = variance Π_{k∉S} κ_k + Σ_jl G_jl h_j h_l Π_{k∈S} M_k,jl Π_{k∉S} a_k,j a_k,l

Other kernels, and all error bars, use functions drawn from the process, at points that share inputs. Unknown
parts of f look like interaction, so the process has larger total indices than its mean: the error bars
include that difference, and the errors of waves and of averages over points, of which each group of functions
has its own. For an exact GP of few rows, which cannot show that an input hardly matters, each group has its
own parameters as well, drawn by their evidence (`likely_parameters`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
from scipy.special import erf

from ..errors import FactorisationError, ParameterError
from ..model.bases import Points
from ..model.compiled import function_shapes
from ..model.kernels.base import Kernel
from ..model.kernels.composite import products_without_each
from ..model.kernels.stationary import RBF
from ..model.means import Constant, Mean, Zero
from ..model.paths import Paths, checked_box
from ..model.posterior import Posterior
from ..numerics.arrays import Array, Given, Seed, to_numpy
from .regression import condition, log_evidence, log_evidence_and_gradient

DRAWN, GROUPS = 64, 8  # functions that are drawn, in groups with their own waves, points and parameters
BOX_WAVES = 512  # waves of a function, for each term of the kernel
BOX_POINTS = 1024  # points of the box, a power of two
UNSURE_ROWS = 1000  # up to so many rows, an exact GP's parameters are uncertain enough to be drawn
BROAD = 1.5  # the prior's standard deviation of a parameter's logarithm
CHAIN_STEPS = 4  # steps of the chain of parameters from one draw to the next
LOG_STEP = 1e-3  # difference in a logarithm for the second derivatives of the evidence


@dataclass(frozen=True, eq=False)
class Sobol:
    """Sobol indices and their standard deviations: shares of the variance of f over a box."""

    first: np.ndarray  # (d,), share of each input alone
    total: np.ndarray  # share of each input with all its interactions
    first_std: np.ndarray
    total_std: np.ndarray


def sobol_indices(
    process: Posterior | Paths,
    low: Given,
    high: Given,
    *,
    size: int = DRAWN,
    places: int = BOX_POINTS,
    rng: Seed = 0,
) -> Sobol:
    """Return the Sobol indices of a posterior, or of `Paths`, over the box from `low` to `high`."""
    low, high = checked_box(low, high)
    seeds = np.random.default_rng(rng).integers(1 << 31, size=GROUPS)

    def indices(functions: Callable[[Array], Array], seed: Seed) -> np.ndarray:
        return np.array(_by_functions(functions, low, high, places, seed))  # (2, size, d)

    if isinstance(process, Paths):
        groups = [process]
    else:
        likely = likely_parameters(process, GROUPS, rng)
        count = max(size // GROUPS, 2)
        groups = [post.paths(count, own, features=BOX_WAVES) for post, own in zip(likely, seeds)]
    if groups[0].outputs is not None:
        raise ParameterError("Sobol indices are of one output; fit one output at a time")
    drawn = np.concatenate([indices(paths, own) for paths, own in zip(groups, seeds)], axis=1)
    values, spreads = drawn.mean(axis=1), drawn.std(axis=1, ddof=1)  # (2, d) each
    if isinstance(process, Posterior):  # unknown parts of f look like interaction
        of_mean = np.mean([indices(lambda X: process.mean(X)[None], own)[:, 0] for own in seeds], axis=0)
        spreads = np.hypot(spreads, values - of_mean)
    if _has_closed_form(process):
        values = np.stack(_closed_form(process, low, high))
    return Sobol(*values, *spreads)


def likely_parameters(post: Posterior, count: int, rng: Seed = 0) -> list[Posterior]:
    """Return an exact GP of one noise and few rows with `count` draws of its kernel's parameters and noise,
    from their evidence and a broad prior about the present ones: elliptical slice sampling of the logarithms,
    in the metric of Laplace's approximation. Return any other process itself `count` times.
    """
    if post.A is not None or post.added is None or not 2 <= len(post) <= UNSURE_ROWS or not post.one_output:
        return [post] * count
    noise = np.unique(to_numpy(post.added))
    basis = post.basis
    if not isinstance(basis, Points) or np.ptp(noise) > 1e-12 * noise[0]:
        return [post] * count
    X, mean = to_numpy(basis.Z), post.mean_function
    y = to_numpy(post.L) @ to_numpy(post.w)[:, 0] + to_numpy(mean(X)).reshape(len(X))
    names = [name for name in post.kernel.parameters if name not in post.kernel.unconstrained]
    shapes = [np.shape(post.kernel.parameters[name]) for name in names]
    start = np.concatenate([np.ravel(np.log(post.kernel.parameters[name])) for name in names])
    start = np.append(start, np.log(noise[0]))
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])

    def at(logs: np.ndarray) -> tuple[Kernel, float]:
        parts = np.split(np.exp(logs[:-1]), ends[:-1])
        values = {n: p.reshape(s) if s else float(p[0]) for n, p, s in zip(names, parts, shapes)}
        return post.kernel.with_parameters(values), float(np.exp(logs[-1]))

    def slope(logs: np.ndarray) -> np.ndarray:
        kernel, level = at(logs)
        _, gradient = log_evidence_and_gradient(kernel, basis, "exact", level, X, y, mean=mean)
        own = [np.ravel(gradient[f"kernel.{name}"]) for name in names]
        return np.concatenate([*own, [gradient["noise"]]]) * np.exp(logs)

    steps = LOG_STEP * np.eye(len(start))
    H = np.stack([(slope(start + e) - slope(start - e)) / (2.0 * LOG_STEP) for e in steps])
    values, vectors = np.linalg.eigh(-0.5 * (H + H.T))
    spread = vectors / np.sqrt(np.maximum(values, 0.0) + BROAD**-2)  # of Laplace's approximation

    def beyond(z: np.ndarray) -> float:
        """Return the log posterior at start + spread z less that of Laplace's approximation."""
        away = spread @ z
        evidence = _log_evidence(at(start + away), basis, X, y, mean)
        return evidence - 0.5 * float(np.sum((away / BROAD) ** 2)) + 0.5 * float(z @ z)

    drawn = _elliptical_slices(beyond, len(start), count, np.random.default_rng(rng))
    parameters = [at(start + spread @ z) for z in drawn]
    posts = [condition(k, basis, "exact", level, X, y, mean=mean) for k, level in parameters]
    return [own for own in posts if isinstance(own, Posterior)]


def _elliptical_slices(
    log_weight: Callable[[np.ndarray], float], d: int, count: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """Draw from N(z; 0, I) exp(log_weight(z)), CHAIN_STEPS apart from 0 on. [Murray, Adams, MacKay 2010]"""
    z, weight, drawn = np.zeros(d), log_weight(np.zeros(d)), []
    for step in range(count * CHAIN_STEPS):
        other, level = generator.standard_normal(d), weight - generator.exponential()
        angle = generator.uniform(0.0, 2.0 * np.pi)
        low, high = angle - 2.0 * np.pi, angle
        while high - low > 1e-9:
            there = z * np.cos(angle) + other * np.sin(angle)
            if (new := log_weight(there)) > level:
                z, weight = there, new
                break
            low, high = (angle, high) if angle < 0.0 else (low, angle)
            angle = generator.uniform(low, high)
        if step % CHAIN_STEPS == CHAIN_STEPS - 1:
            drawn.append(z)
    return drawn


def _log_evidence(at: tuple[Kernel, float], basis: Points, X: np.ndarray, y: np.ndarray, mean: Mean) -> float:
    """Return the log evidence of a kernel and noise, -∞ if their matrix has no factor."""
    try:
        return log_evidence(at[0], basis, "exact", at[1], X, y, mean=mean)
    except (FactorisationError, ParameterError):
        return -np.inf


def _by_functions(
    functions: Callable[[Array], Array], low: Array, high: Array, places: int, rng: Seed
) -> tuple[np.ndarray, np.ndarray]:
    """Return each function's indices, from differences between points that share inputs. [Jansen 1999]"""
    from scipy.stats import qmc

    d = len(low)
    both = qmc.Sobol(2 * d, seed=np.random.default_rng(rng)).random(places)
    A, B = (low + (high - low) * half for half in (both[:, :d], both[:, d:]))
    fA, fB = functions(A), functions(B)  # (size, places)
    variance = np.maximum(np.var(np.concatenate([fA, fB], axis=1), axis=1), np.finfo(float).tiny)
    first, total = np.empty((len(fA), d)), np.empty((len(fA), d))
    for k in range(d):
        mixed = A.copy()
        mixed[:, k] = B[:, k]
        f = functions(mixed)
        first[:, k] = 1.0 - 0.5 * np.mean((fB - f) ** 2, axis=1) / variance
        total[:, k] = 0.5 * np.mean((fA - f) ** 2, axis=1) / variance
    return first, total


def _has_closed_form(process: Posterior | Paths) -> TypeGuard[Posterior]:
    if not isinstance(process, Posterior) or not isinstance(process.mean_function, Zero | Constant):
        return False
    kernel = process.kernel
    return type(kernel) is RBF and kernel.columns is None and process.conditional == "exact"


def _closed_form(post: Posterior, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kernel, d = post.kernel, len(low)
    assert isinstance(kernel, RBF)
    centers, widths, heights = function_shapes(kernel, post.basis)
    scales = to_numpy(kernel.scales(centers))
    alpha = heights * to_numpy(post.alpha)
    G = np.outer(alpha, alpha) + heights[:, None] * to_numpy(post.C) * heights
    inputs = [(centers[:, k], widths[:, k], low[k], high[k]) for k in range(d)]
    ones = [_means(*of_k) for of_k in inputs]  # (m,) each
    pairs = [_products(*of_k) for of_k in inputs]  # (m, m) each
    kappa = np.array([_correlation((high[k] - low[k]) / scales[k]) for k in range(d)])
    singles, apart = products_without_each(ones), products_without_each(list(kappa))
    none = kernel.variance * np.prod(kappa) + _quadratic(G, np.prod(ones, axis=0))
    whole = kernel.variance + np.sum(G * np.prod(pairs, axis=0))
    others = products_without_each(pairs)
    first, total = np.empty(d), np.empty(d)
    for k in range(d):
        alone = kernel.variance * apart[k] + _quadratic(G * pairs[k], singles[k])
        rest = kernel.variance * kappa[k] + _quadratic(G * others[k], ones[k])
        first[k], total[k] = (alone - none) / (whole - none), 1.0 - (rest - none) / (whole - none)
    return first, total


def _means(c: np.ndarray, s: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return E exp(-(x - c)²/(2s²)) for x uniform from low to high. (m,)"""
    unit = s * np.sqrt(2.0)
    return s * np.sqrt(np.pi / 2.0) * (erf((high - c) / unit) - erf((low - c) / unit)) / (high - low)


def _products(c: np.ndarray, s: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return E g_j g_l for x uniform: the product of two Gaussians is one. (m, m)"""
    p = 1.0 / s**2
    width = 1.0 / np.sqrt(p[:, None] + p)
    middle = (p * c + (p * c)[:, None]) * width**2
    apart = np.exp(-0.5 * (c[:, None] - c) ** 2 / (s[:, None] ** 2 + s**2))
    return apart * _means(middle, width, low, high)


def _correlation(t: float) -> float:
    """Return E exp(-(u - v)²/2) for u, v uniform from 0 to t."""
    return 2.0 * (t * np.sqrt(np.pi / 2.0) * erf(t / np.sqrt(2.0)) + np.expm1(-0.5 * t**2)) / t**2


def _quadratic(G: np.ndarray, a: np.ndarray) -> float:
    a = a * np.ones(len(G))  # one number for all where there is no other input
    return float(a @ G @ a)
