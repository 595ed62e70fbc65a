"""Rules that choose the first inducing inputs, at most m of them, from the inputs. `BY_NAME` lists them.

A rule takes (X, m, rng, weights, *, kernel, noise, y); `unused` collects what it ignores:

    X        inputs (n, d)
    m        the most places
    rng      a seed or a generator; the same one gives the same places
    weights  (n,), a row of weight w counts w times, one of weight zero does not exist; None is one for each
    kernel   the prior covariance; "random" and "kmeans" do without
    noise    variance of the noise, a number or (n,); only the rules that look at y use it
    y        targets (n,) or (n, p) less the prior mean; used by "information-gain", "smola-bartlett" and
             "matching-pursuit"

and returns Z (m, d), or the different rows if there are no more than m. The rules with a kernel return rows
in the order chosen. When no row that is left adds anything (the residual variances are rounding), they fill
up with random rows; "novelty", and "variance" with a threshold, return fewer rows instead. The order of rows
does not matter: equal ones are merged, with the average of their targets and the sum of their precisions.

All rules look at s = min(n, max(10000, 20 m)) rows: if there are more, at s of them drawn in proportion to
their weights. Libraries that take long to load are imported when they are first needed.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from ..errors import EmptyDataError, ParameterError, ShapeError, require_count, require_in
from ..model.kernels.base import Kernel
from ..model.problem import as_inputs, as_noise, as_targets
from ..numerics.arrays import Given, Seed, to_numpy
from ..numerics.workers import single_threaded_blas
from ..sources.moments import together
from .pivots import EXHAUSTED, PivotedCholesky, ProjectedPosterior

SelectionRule = Callable[..., np.ndarray]

LOOKED_AT, LOOKED_AT_EACH = 10_000, 20  # the most rows a rule looks at, or this many for each place if more
CACHE = 200  # columns of K that matching pursuit keeps
TRIED_ROWS = 59  # the best of 59 random rows is with probability 0.95 among the best twentieth of all


def random_rows(
    X: ArrayLike, m: int, rng: Seed = None, weights: ArrayLike | None = None, **unused: object
) -> np.ndarray:
    """Draw m different rows without replacement, in proportion to their weights. O(n + s d)"""
    generator = np.random.default_rng(rng)
    X, weights = _candidates(X, m, generator, weights)
    return X if len(X) <= m else X[_draw(len(X), m, generator, weights)]


def kmeans(
    X: ArrayLike, m: int, rng: Seed = None, weights: ArrayLike | None = None, **unused: object
) -> np.ndarray:
    """Take the centres of k-means, at most 20 Lloyd iterations from one k-means++ start. O(n + s m d) each"""
    generator = np.random.default_rng(rng)
    X, weights = _candidates(X, m, generator, weights)
    near = together(X)  # a row far out would cost all others their digits
    X, weights = X[near], weights[near]
    if len(X) <= m:
        return X
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    means = KMeans(m, n_init=1, max_iter=20, random_state=int(generator.integers(2**31)))
    # threads would add the centres up in an order of their own each time
    with single_threaded_blas(), threadpool_limits(1, user_api="openmp"):
        return means.fit(X, sample_weight=weights).cluster_centers_


def greedy_variance(
    X: ArrayLike,
    m: int,
    rng: Seed = None,
    weights: ArrayLike | None = None,
    *,
    kernel: Kernel | None = None,
    threshold: float = 0.0,
    **unused: object,
) -> np.ndarray:
    """Choose each time the row whose f is least known given those chosen: the largest diag(K - Q).

    This is Cholesky of K with pivots [Burt et al. 2020]. It stops before m rows when tr(K - Q) ≤ threshold ·
    tr K, and so can choose m by itself. O(n + s m² + s m d), memory s m. rng matters only if rows are drawn,
    or m exceeds the rank of K.
    """
    require_in("threshold, a share of tr K,", threshold, "[0, 1)")
    generator = np.random.default_rng(rng)
    X, weights = _candidates(X, m, generator, weights)
    K = PivotedCholesky(_needed(kernel, "variance", "kernel"), X, m)
    least = threshold * (weights @ K.diagonal)

    def largest() -> int | None:
        return int(np.argmax(np.where(K.open, K.residual, -1.0))) if weights @ K.residual > least else None

    K.grow(largest)
    return X[K.chosen] if threshold > 0 else K.rows(generator)


def information_gain(
    X: ArrayLike,
    m: int,
    rng: Seed = None,
    weights: ArrayLike | None = None,
    *,
    kernel: Kernel | None = None,
    noise: ArrayLike | None = None,
    y: ArrayLike | None = None,
) -> np.ndarray:
    """Choose each time the row of highest information gain under DTC. [Seeger, Williams, Lawrence 2003]

    The gain of row i is KL(new ‖ old) when i joins the basis and the fit changes at y_i alone: what i
    explains of the other targets is left out, which makes the score O(1). With the posterior N(μ_i, v_i) of
    row i's own projection, s = σ²/r_i for its residual variance r_i, and ξ = 1 / (s + 1 - v_i/σ²), κ = ξ (1 +
    2 s),

        gain = ½ [κ - 2 - log s - log ξ + ξ (κ - 1) (y_i - μ_i)²/σ²]

    summed over outputs. O(n + s m² + s m d), memory s m. rng matters as for `greedy_variance`.
    """
    generator = np.random.default_rng(rng)
    P = _projection("information-gain", kernel, noise, X, y, m, generator, weights)

    def most_informative() -> int:
        squares = np.sum((P.Y - P.mean) ** 2, axis=1)  # (n,)
        at = np.flatnonzero(P.open)
        gains = gain(P.residual[at], P.variance[at], 1.0 / P.precision[at], squares[at], P.Y.shape[1])
        return int(at[np.argmax(gains)])

    P.grow(most_informative)
    return P.rows(generator)


def smola_bartlett(
    X: ArrayLike,
    m: int,
    rng: Seed = None,
    weights: ArrayLike | None = None,
    *,
    kernel: Kernel | None = None,
    noise: ArrayLike | None = None,
    y: ArrayLike | None = None,
    candidates: int = TRIED_ROWS,
) -> np.ndarray:
    """Choose each time the best of 59 random rows, by what it adds to the posterior's maximum.

    [Smola, Bartlett 2001], [003 §4]. That is the decrease of min over α of ½ αᵀ(Kuu + Kuf Σ⁻¹ Kfu)α - αᵀKuf
    Σ⁻¹y, with all of α free again. With M the basis functions, made orthonormal in that quadratic form, a
    candidate k_i decreases it by

        ½ (k_iᵀΣ⁻¹(y - μ) - μ_i)² / (k_ii + k_iᵀΣ⁻¹k_i - |MᵀΣ⁻¹k_i + M_i|²)

    so that 59 candidates take one matrix product. O(n + 59 (s m² + s m d)), memory s m.
    """
    require_count("candidates", candidates)
    generator = np.random.default_rng(rng)
    P = _projection("smola-bartlett", kernel, noise, X, y, m, generator, weights)

    def best_of_some() -> int:
        free = np.flatnonzero(P.open)
        tried = np.sort(generator.choice(free, min(candidates, len(free)), replace=False))
        return int(tried[np.argmax(P.decrease(tried))])

    P.grow(best_of_some)
    return P.rows(generator)


def matching_pursuit(
    X: ArrayLike,
    m: int,
    rng: Seed = None,
    weights: ArrayLike | None = None,
    *,
    kernel: Kernel | None = None,
    noise: ArrayLike | None = None,
    y: ArrayLike | None = None,
    candidates: int = TRIED_ROWS,
    cache: int = CACHE,
) -> np.ndarray:
    """Choose as `smola_bartlett` does, but with only the new entry of α free.

        ½ (k_iᵀΣ⁻¹(y - μ) - μ_i)² / (k_ii + k_iᵀΣ⁻¹k_i)

    A score is then O(n), and columns of K are worth keeping [Keerthi, Chu 2006]: each time 59 fresh rows
    compete with a cache of the 200 best losers so far. O(n + s m² + 259 s m + 59 s m d), memory s (m + 259).
    """
    require_count("candidates", candidates)
    require_count("cache", cache)
    generator = np.random.default_rng(rng)
    P = _projection("matching-pursuit", kernel, noise, X, y, m, generator, weights)
    slots = min(len(P.X), cache + candidates)
    held = np.full(slots, -1)  # the row in each slot
    K, norms = np.zeros((slots, len(P.X))), np.ones(slots)  # columns k_i of K, as rows, and k_ii + k_iᵀΣ⁻¹k_i

    def best_of_fresh_and_cached() -> int | None:
        held[(held >= 0) & ~P.open[held]] = -1
        outside = P.open.copy()
        outside[held[held >= 0]] = False
        empty, others = np.flatnonzero(held < 0), np.flatnonzero(outside)
        empty = empty[: len(others)]
        held[empty] = fresh = np.sort(generator.choice(others, len(empty), replace=False))
        V = P.precision[:, None] * (P.Y - P.mean)  # (n, p)

        def step(sums: tuple[np.ndarray, np.ndarray], s: slice) -> None:
            if len(fresh):
                new = P.kernel.covariances(P.X[s], P.X[fresh])
                sums[1][...] += P.precision[s] @ (new * new)
                K[empty, s] = new.T
            sums[0][...] += K[:, s] @ V[s]

        slope, squares = P.over_rows(lambda: (np.zeros((slots, V.shape[1])), np.zeros(len(fresh))), step)
        norms[empty] = P.diagonal[fresh] + squares
        scores = np.where(held < 0, -1.0, np.sum((slope - P.mean[held]) ** 2, axis=1) / norms)
        order = np.argsort(-scores, kind="stable")
        best = int(held[order[0]])
        if slots < len(P.X):  # the next fresh rows replace the worst
            held[order[slots - candidates + 1 :]] = -1
        return None if best < 0 else best

    P.grow(best_of_fresh_and_cached)
    return P.rows(generator)


def novelty(
    X: ArrayLike,
    m: int,
    rng: Seed = None,
    weights: ArrayLike | None = None,
    *,
    kernel: Kernel | None = None,
    tolerance: float = 1e-6,
    **unused: object,
) -> np.ndarray:
    """Take, in one pass in random order, the rows that are new to those taken before. [004 eq. 3.2]

    A row is new if γ = k(x, x) - k_uᵀKuu⁻¹k_u > tolerance · k(x, x), beyond rounding: in a feature space of
    finite dimension no more rows are new than that. The result has m rows, or fewer if no more are new. O(n +
    s m² + s m d), memory s m. Ignores noise and y, and weights other than zero.
    """
    require_in("tolerance, a share of k(x, x),", tolerance, "[0, 1)")
    generator = np.random.default_rng(rng)
    X, _ = _candidates(X, m, generator, weights)
    X = X[generator.permutation(len(X))]
    K = PivotedCholesky(_needed(kernel, "novelty", "kernel"), X, m)

    def next_new() -> int | None:
        at = K.chosen[-1] + 1 if K.chosen else 0
        new = at + np.flatnonzero(K.residual[at:] > max(tolerance, EXHAUSTED) * K.diagonal[at:])
        return next((i for i in new.tolist() if K.beyond_rounding(i)), None)

    K.grow(next_new)
    return X[K.chosen]


BY_NAME: dict[str, SelectionRule] = {
    "random": random_rows,
    "kmeans": kmeans,
    "variance": greedy_variance,
    "information-gain": information_gain,
    "smola-bartlett": smola_bartlett,
    "matching-pursuit": matching_pursuit,
    "novelty": novelty,
}


def _projection(
    name: str,
    kernel: Kernel | None,
    noise: ArrayLike | None,
    X: ArrayLike,
    y: ArrayLike | None,
    m: int,
    rng: np.random.Generator,
    weights: ArrayLike | None,
) -> ProjectedPosterior:
    """Start a rule that uses y: merge equal rows, with the average of their targets."""
    kernel = _needed(kernel, name, "kernel")
    A = to_numpy(as_inputs(X))
    targets = to_numpy(as_targets(_needed(y, name, "y"), A))
    variance = as_noise(_needed(noise, name, "noise"), A)[0]
    rows, counts = _sample(A, m, rng, weights)
    A, Y, precision = A[rows], targets[rows].reshape(len(rows), -1), counts / variance[rows]
    order, first = _groups(A)
    total = np.add.reduceat(precision[order], first)
    Y = np.add.reduceat((precision[:, None] * Y)[order], first, axis=0) / total[:, None]
    return ProjectedPosterior(kernel, A[order[first]], Y, total, m)


def gain(r: np.ndarray, v: np.ndarray, noise: np.ndarray, squares: np.ndarray, p: int) -> np.ndarray:
    """Return each row's gain by the formula of `information_gain`; `squares` is Σ (y - μ)² over p outputs."""
    s = noise / r
    xi = 1.0 / (s + 1.0 - v / noise)
    kappa = xi * (1.0 + 2.0 * s)
    return 0.5 * (p * (kappa - 2.0 - np.log(s) - np.log(xi)) + xi * (kappa - 1.0) * squares / noise)


def nearest(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Return the number of the row of Z nearest to each row of X, in chunks. O(n m d). (n,)"""
    from sklearn.metrics import pairwise_distances_argmin

    with single_threaded_blas():  # scikit-learn's own limit could outlast another thread's
        return pairwise_distances_argmin(X, Z)


def merge_repeats(table: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different rows of a table in lexicographic order, and the weight of each. O(n d log n)"""
    rows, weights = merged_rows(table, weights)
    return table[rows], weights


def merged_rows(table: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number and weight of each different row, its first repeat's number. (k,) each"""
    order, first = _groups(table)
    return order[first], np.add.reduceat(weights[order], first)


def _groups(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows' numbers in lexicographic order, and where in that order each different one begins."""
    order = np.argsort(table[:, 0], kind="stable")
    if np.any(np.diff(table[order, 0]) == 0):  # else the first column decides the order
        order = np.lexsort(table.T[::-1])
    table = table[order]
    new = np.ones(len(table), dtype=bool)
    new[1:] = np.any(table[1:] != table[:-1], axis=1)
    return order, np.flatnonzero(new)


def _candidates(
    X: ArrayLike, m: int, rng: np.random.Generator, weights: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the different rows of positive weight, of a sample if there are many, and their weights."""
    table = to_numpy(as_inputs(X))
    rows, counts = _sample(table, m, rng, weights)
    return merge_repeats(table[rows], counts)


def _sample(
    X: np.ndarray, m: int, rng: np.random.Generator, weights: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of rows of positive weight, a sample if there are many, and their weights."""
    require_count("m, the number of points to choose,", m)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    if weights.shape != (len(X),):
        raise ShapeError(f"weights must have one entry per row ({len(X)}), but have shape {weights.shape}")
    rows = np.flatnonzero(weights > 0)
    if not len(rows):
        raise EmptyDataError("there is no row of positive weight to choose from; at least one is needed")
    most = max(LOOKED_AT, LOOKED_AT_EACH * m)
    if len(rows) > most:
        drawn = _draw(len(rows), most, rng, weights[rows])
        return rows[drawn], np.ones(most)  # the draw has counted the weights
    return rows, weights[rows]


def _draw(n: int, size: int, rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """Draw `size` of n rows without replacement, in proportion to their weights. (size,)"""
    return np.sort(rng.choice(n, size=size, replace=False, p=weights / weights.sum()))


def _needed(value: Given, rule: str, argument: str) -> Given:
    """Return the value of a rule's argument. Raise if it was not given."""
    if value is None:
        raise ParameterError(f"the rule {rule!r} needs {argument}=, which was not given")
    return value
