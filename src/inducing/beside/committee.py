"""Committees: an exact GP on each block of the data, and rules that combine their predictions. [003 §7, §8]

The Bayesian committee machine is PITC with the queries as its basis, so its predictions depend on which
queries come together (transduction, [003 Definition 9]). The other rules combine the experts' predictions of
each query on its own.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import ConditionalError, ParameterError
from ..inference.exact import exact_posterior
from ..inference.regression import problem_of
from ..inference.selection import kmeans, nearest
from ..model.bases import Basis, Points
from ..model.kernels.base import Kernel
from ..model.means import Mean
from ..model.posterior import Marginals, Posterior
from ..model.problem import DEFAULT_JITTER, as_blocks, as_inputs, queries_like, subset
from ..model.table import PITC
from ..numerics import linalg as la
from ..numerics.arrays import Array, is_numpy, namespace, to_numpy, zeros_like_rows
from ..numerics.workers import cores, row_slices, single_threaded_blas, using
from ..sources.distributed import current_client, results, sent
from .nystrom import check_gaussian

EXPERT_ROWS = 512  # rows of an expert if k-means makes the blocks
LEAST_OF_PRIOR = 2.0**-48  # the least variance of an expert, as a share of the prior's
QUERIES_TOGETHER = 512  # queries that the BCM takes together

Mapper = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # like `map`


@dataclass(frozen=True)
class Rule:
    """A rule that adds up the experts' precisions, in units of the prior's: Π = Σ β_b Π_b + (1 - Σ β_b), the
    last term only if `corrected`.
    """

    name: str
    weight: Callable[[Array, int], Array | float]  # β_b (t,) from an expert's Π_b (t,), the number of experts
    corrected: bool = True
    joint: bool = False  # for all queries of a chunk together


def whole(precision: Array, experts: int) -> float:
    return 1.0


def share(precision: Array, experts: int) -> float:
    return 1.0 / experts


def entropy_gain(precision: Array, experts: int) -> Array:
    """Return ½ log k(x, x)/σ_b²: how much the expert learned about f(x), 0 far from its data."""
    return 0.5 * namespace(precision).log(precision)


BCM = Rule("bcm", whole, joint=True)  # [Tresp 2000]
RBCM = Rule("rbcm", entropy_gain)  # [Deisenroth, Ng 2015]
GPOE = Rule("gpoe", share)  # [Cao, Fleet 2014], with the weights that fall back to the prior
POE = Rule("poe", whole, corrected=False)  # counts the prior once for each expert, so many are overconfident

RULES = {rule.name: rule for rule in (BCM, RBCM, GPOE, POE)}


def as_mapper(mapper: Any) -> Mapper:
    """Return a function as it is; make a mapper of a Dask client, or by "dask" of the current one."""
    if callable(mapper):
        return mapper
    if type(mapper).__module__.partition(".")[0] == "distributed":
        return OnWorkers(mapper)
    if mapper == "dask":
        return OnWorkers(current_client())
    raise ParameterError(f"mapper must be a function such as map, a Dask client or 'dask', but is {mapper!r}")


def suited(mapper: Mapper, like: Array) -> Mapper:
    """Return the mapper for work on arrays like this one: `map` on a GPU, which needs no threads."""
    return map if mapper is in_threads and not is_numpy(like) else mapper


def in_threads(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """Map on all cores, a few results ahead of the caller, while BLAS runs single-threaded."""
    with single_threaded_blas(), ThreadPoolExecutor(cores()) as pool:
        ahead: deque[Future[Any]] = deque()
        for item in items:
            ahead.append(pool.submit(function, item))
            if len(ahead) > 2 * cores():
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


@dataclass(frozen=True, eq=False)
class OnWorkers:
    """A `map` by the workers of a Dask client, each call on one thread; function and items are sent once."""

    client: Any
    sent: WeakKeyDictionary[Any, Any] = field(default_factory=WeakKeyDictionary, repr=False)

    def __call__(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        question = sent(self.client, function)
        tasks = (self.client.submit(_answer, question, self._place(item), pure=False) for item in items)
        return results(self.client, tasks)

    def _place(self, item: Any) -> Any:
        """Send an item to the workers, unless it is there already."""
        if getattr(type(item), "__weakrefoffset__", 0) == 0:  # a tuple, say, cannot be a weak key
            return sent(self.client, item)
        if item not in self.sent:
            self.sent[item] = sent(self.client, item)
        return self.sent[item]


def _answer(question: Any, item: Any) -> Any:
    with using(threads=1):
        return question.values[0](item.values[0])


@dataclass(frozen=True, eq=False)
class Committee:
    """Experts on disjoint blocks, each the exact posterior of its own data.

    `mapper(function, experts)` is `map` in threads, or by the workers of a cluster, where each expert is sent
    once.
    """

    experts: tuple[Posterior, ...]
    rule: Rule
    jitter: float = DEFAULT_JITTER
    chunk: int = QUERIES_TOGETHER
    mapper: Mapper = in_threads

    @property
    def log_evidence(self) -> float:
        """Σ log p(y_b), the objective for hyperparameters that all experts share."""
        return float(sum(expert.log_evidence or 0.0 for expert in self.experts))

    @property
    def kernel(self) -> Kernel:
        return self.experts[0].kernel

    @property
    def basis(self) -> None:
        """None: a committee has no basis; `on` makes the process on one."""

    def on(self, basis: Basis) -> Posterior:
        """Return the process with blocks independent given u: PITC's, BCM's if u = f(queries). [003 eq. 26]

        With V_b = L_b⁻¹K_bu Luu⁻ᵀ, where L_b factors K_b + Σ_b, an expert's precision of Luu⁻¹u is
        (I - V_bᵀV_b)⁻¹ = I + V_bᵀ(I - V_bV_bᵀ)⁻¹V_b; the prior's I is counted once. [Tresp 2000]
        """
        first, what = self.experts[0], "the prior covariance of the queries"
        L, jitter = la.cholesky_escalating(basis.gram(self.kernel), self.jitter, what=what)
        G, b = 0.0 * L, zeros_like_rows((len(basis), first.w.shape[1]), L)
        for precision, information in self._ask(partial(_opinion, basis=basis, Linv=la.inverse_lower(L))):
            G = G + precision
            b = b + information
        _, _, LBinv, w = la.information_factors(G, b)
        A, m0 = la.contiguous(LBinv.T), first.mean_function
        return Posterior(self.kernel, basis, L, w, A, m0, jitter=jitter, one_output=first.one_output)

    def predict(self, X: Any) -> Marginals:
        """Return mean and variance of each f(x); under the BCM they depend on the other rows of a `chunk`."""
        X = self._queries(X)
        first = self.experts[0]
        mean = zeros_like_rows((X.shape[0],) if first.one_output else (X.shape[0], first.w.shape[1]), X)
        variance = zeros_like_rows((X.shape[0],), X)
        together = self.rule.joint and self.chunk > 1
        for s in row_slices(X.shape[0], self.chunk if together else QUERIES_TOGETHER):
            mean[s], variance[s] = self.on(Points(X[s])).predict(X[s]) if together else self._alone(X[s])
        return Marginals(mean, variance)

    def covariance(self, X: Any) -> Array:
        """Return the joint covariance of f(X), all rows together; `predict` takes `chunk` rows at a time."""
        X = self._queries(X)
        if not self.rule.joint:
            raise ConditionalError(f"{self.rule.name!r} takes each query alone, not jointly; use 'bcm'")
        return self.on(Points(X)).covariance(X)

    def _alone(self, X: Array) -> Marginals:
        """Predict each query on its own, by the rule."""
        first = self.experts[0]
        total, weights = 0.0 * X[:, 0], 0.0 * X[:, 0]
        mean = zeros_like_rows((X.shape[0], first.w.shape[1]), X)
        for precision, opinion in self._ask(partial(_marginal_opinion, X=X)):
            weight = self.rule.weight(precision, len(self.experts))
            total = total + weight * precision
            weights = weights + weight
            mean = mean + (weight * precision)[:, None] * opinion
        if self.rule.corrected:
            total = total + (1.0 - weights)
        return Marginals(first.with_prior_mean(X, mean / total[:, None]), self.kernel.diagonal(X) / total)

    def _ask(self, question: Callable[[Posterior], Any]) -> Iterable[Any]:
        """Apply a function to every expert; the results come in the experts' order."""
        return suited(self.mapper, self.experts[0].L)(question, self.experts)

    def _queries(self, X: Any) -> Array:
        return queries_like(X, self.experts[0].basis.centers)


def _opinion(expert: Posterior, basis: Basis, Linv: Array) -> tuple[Array, Array]:
    """Return an expert's precision of Luu⁻¹u beyond the prior's, and precision times mean. (m, m), (m, p)"""
    assert isinstance(expert.basis, Points)
    Phi = la.times_lower(la.contiguous(basis.cross(expert.kernel, expert.basis.Z)), Linv, transposed=True)
    V = la.contiguous(la.solve_lower(expert.L, Phi))  # (b, m)
    C = la.cholesky(la.from_lower(la.add_outer(la.identity(expert.L), V, -1.0)))
    W = la.contiguous(la.solve_lower(C, V))
    return la.gram(W), W.T @ la.solve_lower(C, expert.w)


def _marginal_opinion(expert: Posterior, X: Array) -> tuple[Array, Array]:
    """Return an expert's precision of each f(x) over the prior's (t,), its mean less the prior's (t, p)."""
    assert isinstance(expert.basis, Points)
    V = la.solve_lower(expert.L, expert.kernel.covariances(expert.basis.Z, X))  # (b, t)
    xp, prior = namespace(V), expert.kernel.diagonal(X)
    left = xp.maximum(prior - xp.sum(V * V, axis=0), LEAST_OF_PRIOR * prior)  # 0 at a row without noise
    return prior / left, V.T @ expert.w


def partition(X: Any, size: int = EXPERT_ROWS, rng: Any = 0) -> np.ndarray:
    """Label blocks of about `size` rows, found by k-means. (n,)"""
    X = to_numpy(as_inputs(X))
    if size < 1:
        raise ParameterError(f"a block must have at least one row, but size is {size}")
    return nearest(X, kmeans(X, max(1, round(len(X) / size)), rng))


def condition(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    noise: Any,
    X: Any,
    y: Any,
    *,
    mean: Mean | None = None,
    jitter: float = DEFAULT_JITTER,
    blocks: Any = None,
    power: float | None = None,
    weights: Any = None,
    chunk: int = QUERIES_TOGETHER,
    mapper: Any = in_threads,
) -> Committee:
    """Make a committee of the rule `approximation` with an expert for each label in `blocks`.

    Arguments as for `inducing.condition`; the basis is not used, and k-means finds blocks if none are given.
    `chunk` is the number of queries that the BCM takes together: with blocks of b rows about b is fastest.
    O(nb²) here, O(nb) for each query, memory O(nb). `mapper` makes and asks the experts: a function like
    `map`, a Dask client, or "dask" for the current one.
    """
    if power is not None:
        raise ParameterError(f"power is only for 'pep', not for {approximation!r}")
    row = "exact" if blocks is None else PITC
    basis = None if blocks is None else Points(as_inputs(X))
    options: dict[str, Any] = dict(mean=mean, jitter=jitter, blocks=blocks, weights=weights)
    P = problem_of(kernel, basis, row, noise, X, y, **options)
    if chunk < 1:
        raise ParameterError(f"chunk, the number of queries at a time, must be at least 1, but is {chunk}")
    check_gaussian(P, approximation)
    rows = as_blocks(partition(P.X), P.n) if P.blocks is None else P.blocks
    mapper, P = as_mapper(mapper), replace(P, labels=None, blocks=None)
    experts = tuple(suited(mapper, P.X)(exact_posterior, (subset(P, r) for r in rows)))
    return Committee(experts, RULES[approximation], P.jitter, chunk, mapper)
