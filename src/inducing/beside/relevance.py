"""The relevance vector machine: a degenerate process whose prior precisions are learned. [Tipping 2001]

    f(x) = φ(x)ᵀw,   w ~ N(0, A⁻¹),   A = diag(α),   φ_j(x) = k_j(x), a basis function at each training input
    k_RVM(x, x') = φ(x)ᵀA⁻¹φ(x')                                          [003 §10.2, eq. 33, Remark 15]

(eq. 33 prints A in place of A⁻¹.) Most α grow without bound, which removes their functions; those that stay
are the relevance vectors.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..errors import ConditionalError, ParameterError, ShapeError
from ..inference.pic import Corrected
from ..learning.ascent import Rules, climb_from
from ..model.bases import Basis, Points, as_multiscale
from ..model.kernels.base import Kernel
from ..model.kernels.stationary import Stationary
from ..model.likelihoods import Binary, Likelihood, Logistic, Probit
from ..model.means import Mean
from ..model.posterior import Marginals, Posterior
from ..model.problem import Problem, as_inputs, as_queries, make_problem
from ..model.table import Sites, SoR
from ..numerics.arrays import Array, asarray_like, to_numpy
from ..numerics.linalg import row_dots, row_squares
from ..numerics.workers import chunk_rows, row_slices, single_threaded_blas
from ..progress import Bars
from . import relevance_search
from .nystrom import query_chunks
from .relevance_search import AnySearch, LabelSearch, ValueSearch, log_evidence_of, process_of, together

FIRST_NOISE = 0.1  # the first noise variance if it is learned, as a share of y's mean square
NOISE_FLOOR = 1e-8  # the least noise variance, as a share of the same
NO_VARIANCE = 1e-12  # the least variance of f
TURNS, LAST_TURN = 20, 1e-3  # the most turns of moving centres and searching, and the gain that ends them
CLIMB_ITERATIONS = 100  # of one climb
ALIKE = 1e-6  # functions whose correlation is less than this from one are merged
LARGEST_RISE = 10.0  # the most by which a logarithm may rise in one climb


@dataclass(frozen=True, eq=False)
class RelevanceVectors(Corrected):
    """The machine after learning; `posterior` is its process, whitened by L = A^½ so that w ~ N(0, I).

    Its variance falls to zero away from the relevance vectors, where no function reaches. With `augment` each
    query adds a function of its own, k(x*, ·), through which f(x*) has the variance ρ = `prior_variance` [003
    §8.1, §10.2], [Rasmussen, Quiñonero-Candela 2005]. Its whitened feature at training row i is r_i = √ρ
    k(x_i, x*)/k(x*, x*), and with Λ = 1/σ², ν = Λy, a = LB⁻¹φ*, h = LB⁻¹ΦΛr, s = 1 + rᵀΛr - |h|², e = rᵀ(ν -
    ΛΦᵀw),

        mean = φ*ᵀw + (√ρ - aᵀh) e/s,   variance = |a|² + (√ρ - aᵀh)²/s

    at O(nm) for each query. For labels, Λ and ν are τ and ν of their sites, which stay as learned.
    """

    posterior: Posterior
    rows: np.ndarray  # (m,), numbers of the relevance vectors among the training rows, or in the basis given
    precisions: np.ndarray  # (m,), α
    noise: float | None  # None if y are labels
    values: np.ndarray  # (steps + 1,), the log evidence before the first step and after each
    converged: bool
    problem: Problem
    prior_variance: float  # ρ
    augment: bool = False
    likelihood: Likelihood | None = None  # of labels
    sites: Sites | None = None  # of the likelihood in each row

    def __len__(self) -> int:
        return len(self.posterior)

    def predict(self, X: Any) -> Marginals:
        """Return mean and variance of each f(x), as arrays of X's library; `augment` adds its function."""
        queries = as_queries(X, self.problem.X.shape[1])
        X = to_numpy(queries)
        mean, variance = self.posterior.predict(X)
        for s in query_chunks(len(X), len(self)) if self.augment else ():
            shift, variance[s] = self._bordered(X[s])
            mean[s] += shift
        return Marginals(asarray_like(mean, queries), asarray_like(variance, queries))

    def predict_proba(self, X: Any) -> Array:
        """Return ⟨p(y|f)⟩ of the labels -1 and +1, nearer to ½ the less sure f is. (t, 2) [004 eq. 5.8]"""
        if not isinstance(self.likelihood, Binary):
            raise ConditionalError("this machine learned values, not labels; give it a likelihood of labels")
        mean, variance = self.predict(X)
        p = self.likelihood.probability(to_numpy(mean), np.maximum(to_numpy(variance), NO_VARIANCE))
        return asarray_like(np.stack([1.0 - p, p], axis=1), mean)

    def jointly(self, X: Any) -> Posterior:
        """Return the process with a function at every query: queries are dependent. [003 Definition 9]"""
        X = to_numpy(as_queries(X, self.problem.X.shape[1]))
        queries = Points(X) if isinstance(self.basis, Points) else as_multiscale(self.kernel, Points(X))
        precisions = np.concatenate([self.precisions, self.kernel.diagonal(X) ** 2 / self.prior_variance])
        return process_of(self.problem, together(self.basis, queries), precisions, *self._rows())

    def covariance(self, X: Any) -> Array:
        """Return the joint covariance of f(X); with `augment`, `jointly`'s, whose diagonal is another."""
        queries = as_queries(X, self.problem.X.shape[1])
        X = to_numpy(queries)
        return asarray_like((self.jointly(X) if self.augment else self.posterior).covariance(X), queries)

    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return precisions τ and shifts ν of the training rows' sites. (n,) each"""
        if self.sites is not None:
            return self.sites.tau, self.sites.nu
        assert self.noise is not None
        return np.full(self.problem.n, 1.0 / self.noise), self.problem.Y[:, 0] / self.noise

    def _bordered(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the change of the mean (t,), and the variance (t,), with the queries' own functions."""
        post, P = self.posterior, self.problem
        prior = self.kernel.diagonal(X)
        scale = np.where(prior > 0, math.sqrt(self.prior_variance) / np.where(prior > 0, prior, 1.0), 0.0)
        G, S, E = np.zeros((len(post), len(X))), np.zeros(len(X)), np.zeros(len(X))
        tau, nu = self._rows()
        for s in row_slices(P.n, chunk_rows(P.n, max(len(X), len(post)), P.X)):
            Phi = post.features(P.X[s])  # (rows, m)
            R = self.kernel.covariances(P.X[s], X) * scale  # (rows, t)
            weighted = tau[s, None] * R
            G += Phi.T @ weighted
            S += np.sum(weighted * R, axis=0)
            E += R.T @ nu[s] - weighted.T @ (Phi @ post.w[:, 0])
        A = post.A
        assert A is not None
        a, h = post.features(X) @ A, G.T @ A  # (t, m)
        lead = scale * prior - row_dots(a, h)
        gain = lead / (1.0 + S - row_squares(h))
        return gain * E, row_squares(a) + gain * lead


def relevance_vectors(
    kernel: Kernel,
    X: Any,
    y: Any,
    *,
    noise: Any = None,
    likelihood: Likelihood | None = None,
    basis: Basis | None = None,
    learn_centers: bool = False,
    mean: Mean | None = None,
    augment: bool = False,
    prior_variance: float | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
) -> RelevanceVectors:
    """Learn the precisions by maximising the evidence, one function at a time. [Tipping, Faul 2003]

    Candidates are the kernel's functions at the training inputs, or those of a `basis`; `noise` is the noise
    variance, learned where it is None. Every step adds, changes or removes the function that raises the log
    evidence most, until none raises it by `tolerance`. O(nM) for each function added of M candidates, O(m²M)
    for each step, memory O(mM). `prior_variance` is that of a query's own function when augmented, the mean
    square of y about the prior mean where it is None.

    With a `likelihood`, Probit() or Logistic(), y are labels -1 and +1, and the evidence is that of
    expectation propagation: O(nmM) for each step. `prior_variance` is then the mean of f² over the training
    inputs where it is None. With `learn_centers` the centres of the functions in the model maximise the
    evidence, together with precisions and noise, in turns with the search among these functions and the
    candidates [003 §10.2]; `rows` says where each one began.
    """
    X = to_numpy(as_inputs(X))
    first = np.sort(np.unique(X, axis=0, return_index=True)[1])  # equal inputs have one function
    y = to_numpy(y) if likelihood is None else _labels(likelihood, y, noise)
    candidates = Points(X[first]) if basis is None else basis
    P = make_problem(kernel, candidates, SoR, 1.0 if noise is None else noise, X, y, mean=mean, jitter=0.0)
    power = float(np.mean(P.Y**2))
    _check(P, power, likelihood, prior_variance)
    floor = NOISE_FLOOR * power if noise is None and likelihood is None else None

    def begin(P: Problem, noise: float, active: np.ndarray, precisions: np.ndarray) -> AnySearch:
        if likelihood is not None:
            return LabelSearch(P, y, likelihood, active, precisions)
        return ValueSearch(P, noise, active, precisions)

    nothing = np.zeros(0, dtype=int), np.zeros(0)
    search = begin(P, FIRST_NOISE * power if noise is None else float(noise), *nothing)
    origin, values = np.arange(len(P.basis)), [search.value()]
    with single_threaded_blas():  # many small products
        converged = _maximise(search, values, tolerance, max_iterations, floor)
        for turn in range(TURNS if learn_centers and len(search.active) else 0):
            before = values[-1]
            moved = move_centers(search, floor)
            origin = np.concatenate([origin[search.active[moved.stayed]], np.arange(len(P.basis))])
            wider = replace(P, basis=together(moved.basis, P.basis))
            search = begin(wider, moved.noise, np.arange(len(moved.basis)), moved.precisions)
            if search.value() > before:
                values.append(search.value())
            converged = _maximise(search, values, tolerance, max_iterations, floor)
            if values[-1] - before < LAST_TURN:
                break
            converged = converged and turn + 1 < TURNS
    tau, nu = search.rows()
    post = process_of(P, search.P.basis[search.active], search.precisions, tau, nu)
    if prior_variance is None:
        prior_variance = power if likelihood is None else _mean_square(post, P) or 1.0
    evidence = search.value() if likelihood is not None else log_evidence_of(P, post, search.noise)
    return RelevanceVectors(
        posterior=replace(post, log_evidence=evidence),
        rows=(first if basis is None else np.arange(len(basis)))[origin[search.active]],
        precisions=search.precisions,
        noise=search.noise if likelihood is None else None,
        values=np.array(values),
        converged=converged,
        problem=P,
        prior_variance=prior_variance,
        augment=augment,
        likelihood=likelihood,
        sites=None if likelihood is None else Sites(tau, nu, None, 1.0, converged=converged, projected=True),
    )


def _labels(likelihood: Likelihood, y: Any, noise: Any) -> np.ndarray:
    """Return y as labels. Raise if the likelihood is not one of labels, or noise is given beside it."""
    if not isinstance(likelihood, Probit | Logistic):
        raise ParameterError(f"labels need the likelihood Probit() or Logistic(), not {likelihood}")
    if noise is not None:
        raise ParameterError(f"labels have no noise variance, but noise is {noise}; give Probit(noise=...)")
    return likelihood.check(to_numpy(y))


def _check(P: Problem, power: float, likelihood: Likelihood | None, prior_variance: float | None) -> None:
    """Raise if there are several outputs or noises, nothing to learn from, or no proper prior variance."""
    if not P.one_output:
        raise ShapeError(f"relevance vectors take one output, but y has {P.p}; learn each output by itself")
    if not P.one_noise:
        raise ShapeError(f"relevance vectors take one noise variance, but noise has shape {P.noise.shape}")
    if power == 0.0 and likelihood is None:
        raise ParameterError("y equals its prior mean in every row: nothing to learn precisions from")
    if prior_variance is not None and not 0.0 < prior_variance < math.inf:
        raise ParameterError(f"prior_variance must be positive and finite, but is {prior_variance:g}")


def _maximise(
    search: AnySearch, values: list[float], tolerance: float, max_iterations: int, floor: float | None
) -> bool:
    """Step, and learn the noise down to `floor`, until no step gains `tolerance`; return if that was so."""
    with Bars() as bars:
        for _ in range(max_iterations):
            gain = search.step(tolerance)
            if floor is not None and isinstance(search, ValueSearch):
                gain = max(gain, search.learn_noise(floor))
            if gain < tolerance:
                return True
            values.append(search.value())
            bars.show("steps", f"{len(search.active)} functions, log evidence {values[-1]:.4f}")
    return False


def _mean_square(post: Posterior, P: Problem) -> float:
    """Return the mean square of f about its prior mean over the training inputs."""
    mean, variance = post.predict(P.X)
    return float(np.mean((mean - P.mean(P.X)) ** 2 + variance))


# Centres that leave the training inputs, by the gradient of the evidence [003 §10.2]


class Moved(NamedTuple):
    """The result of a climb: functions, precisions, noise."""

    basis: Basis
    precisions: np.ndarray
    stayed: np.ndarray  # which of the functions before they are: one where several merged
    noise: float


def move_centers(search: AnySearch, floor: float | None) -> Moved:
    """Move all functions of the model at once, with their precisions and, given a floor, the noise."""
    climb = Centers(search, floor)
    basis, precisions, noise = climb.unpack(climb_from([climb.start], climb, Rules(CLIMB_ITERATIONS)).x)
    return Moved(*merged(search.P, basis, precisions), noise)


def merged(P: Problem, basis: Basis, precisions: np.ndarray) -> tuple[Basis, np.ndarray, np.ndarray]:
    """Merge functions that are alike, adding their variances; also return which of them stay."""
    K = basis.gram(P.kernel)
    scale = np.sqrt(np.diag(K))
    alike = K > (1.0 - ALIKE) * scale[:, None] * scale
    variances, stay = 1.0 / precisions, np.zeros(len(basis), dtype=bool)
    for i in np.argsort(precisions):  # the widest first
        first = np.flatnonzero(alike[i] & stay)
        if len(first):
            variances[first[0]] += variances[i]
        else:
            stay[i] = True
    return basis[stay], 1.0 / variances[stay], np.flatnonzero(stay)


class Centers:
    """The objective of a climb: -(log evidence)/n in centres, log precisions and log noise.

    With K (n, m) the functions at the rows, Σ = (A + KᵀΛK)⁻¹ and μ = ΣKᵀν the covariance and mean of their
    weights, and v = ν - ΛKμ, the slopes of the log evidence are

        ∂/∂K = vμᵀ - ΛKΣ,   ∂/∂log α = ½ (1 - αΣ_jj - αμ_j²),   ∂/∂log σ² = ½ σ² Σ_i (v_i² - τ + τ² k_iᵀΣk_i)

    Labels have the τ and ν of their sites; at the fixed point of expectation propagation the slopes are those
    with the sites held.
    """

    def __init__(self, search: AnySearch, floor: float | None) -> None:
        P = search.P
        self.search, self.P, self.basis = search, P, P.basis[search.active]
        self.name, self.noise = next(iter(self.basis.parameters)), search.noise
        centers = self.basis.parameters[self.name]  # (m, d)
        self.shape = centers.shape
        logs = [np.log(search.precisions)] + ([] if floor is None else [np.array([math.log(self.noise)])])
        self.start = np.concatenate([centers.ravel(), *logs])
        low, high = P.X.min(axis=0), P.X.max(axis=0)
        width = high - low + 1e-12
        plain = isinstance(P.kernel, Stationary) and P.kernel.columns is None
        spread = P.kernel.scales(P.X) if plain else 0.25 * width  # type: ignore[attr-defined]
        self.units = np.concatenate([np.tile(spread, len(centers)), np.ones(sum(map(len, logs)))])
        self.bounds = [*zip(low - width, high + width, strict=True)] * len(centers)
        power = relevance_search.LARGEST_VARIANCE * float(np.mean(P.Y**2))
        least = np.broadcast_to(search.least, len(P.basis))[search.active]
        widest = relevance_search.peaks(P)[search.active] ** 2 / power  # or two centres that merge run away
        least = np.where(least > 0, least, widest)
        self.bounds += [*zip(np.log(least), logs[0] + LARGEST_RISE, strict=True)]
        if floor is not None:
            self.bounds.append((min(math.log(floor), logs[1][0]), logs[1][0] + LARGEST_RISE))
        self.bounds = [(min(a, x), max(b, x)) for (a, b), x in zip(self.bounds, self.start, strict=True)]
        self.scale, self.size = 1.0 / P.n, len(centers)
        self.sites = search.rows()

    def unpack(self, x: np.ndarray) -> tuple[Basis, np.ndarray, float]:
        """Functions, precisions and noise."""
        centers, logs = np.split(x, [self.shape[0] * self.shape[1]])
        m = self.shape[0]
        noise = math.exp(logs[m]) if len(logs) > m else self.noise
        return self.basis.with_parameters({self.name: centers.reshape(self.shape)}), np.exp(logs[:m]), noise

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        basis, precisions, noise = self.unpack(x)
        P, m, search = self.P, self.shape[0], self.search
        if isinstance(search, LabelSearch):
            seen = search.labels, search.likelihood, self.sites
            tau, nu, value = relevance_search.propagate(P, basis, precisions, *seen)
            self.sites = tau, nu
            post = process_of(P, basis, precisions, tau, nu)
        else:
            tau, nu = np.full(P.n, 1.0 / noise), P.Y[:, 0] / noise
            post = process_of(P, basis, precisions, tau, nu)
            value = log_evidence_of(P, post, noise)
        assert post.A is not None
        half = post.A / np.sqrt(precisions)[:, None]
        Sigma, mu = half @ half.T, post.w[:, 0] / np.sqrt(precisions)
        slope, noise_slope = np.zeros(self.shape), 0.0
        for s in row_slices(P.n, chunk_rows(P.n, m, P.X)):
            K = basis.cross(P.kernel, P.X[s])  # (rows, m)
            KS = K @ Sigma
            v = nu[s] - tau[s] * (K @ mu)
            noise_slope += float(np.sum(v * v - tau[s] + tau[s] ** 2 * row_dots(KS, K)))
            Kbar = v[:, None] * mu - tau[s, None] * KS
            slope += basis.cross_pullback(P.kernel, P.X[s], Kbar, K)[1][self.name]
        logs = 0.5 * (1.0 - precisions * (np.diag(Sigma) + mu * mu))
        more = [0.5 * noise * noise_slope] if len(x) > m * (self.shape[1] + 1) else []
        return value, np.concatenate([slope.ravel(), logs, more])
