"""The relevance vector machine: a degenerate process whose prior precisions are learned. [Tipping 2001], [003 §10.2]

    f(x) = φ(x)ᵀw,   w ~ N(0, A⁻¹),   A = diag(α),   φ_j(x) = k_j(x), a basis function at each training input
    k_RVM(x, x') = φ(x)ᵀA⁻¹φ(x')                                                           [003 eq. 33, Remark 15]

(eq. 33 prints A where the precisions A give the covariance A⁻¹.) Most α grow without bound; the functions that stay are the
relevance vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .approximations import SoR
from .backend import chunk_rows, row_slices, single_threaded_blas, to_numpy
from .bases import Basis, Points, as_multiscale
from .errors import ParameterError, ShapeError
from .kernels.base import Kernel
from .linalg import (
    cholesky,
    cholesky_and_inverse,
    contiguous,
    identity,
    inverse_lower,
    log_det_from_factor,
    plus_diagonal,
    row_dots,
    row_squares,
    solve_lower,
)
from .means import Mean
from .posterior import SPAN, Marginals, Posterior
from .problem import Problem, as_inputs, as_queries, make_problem
from .residuals import query_chunks

FIRST_NOISE = 0.1  # of the mean square of y: where learning the noise begins
NOISE_FLOOR = 1e-8  # of the same: where it ends


@dataclass(frozen=True, eq=False)
class RelevanceVectors:
    """The machine after learning. `posterior` is its process, with L = A^½ and so w ~ N(0, I) in whitened form.

    Its variance falls to zero away from the relevance vectors, where no function reaches. With `augment` each query brings a
    function of its own, k(x*, ·), of a weight such that f(x*) has `prior_variance` through it [003 §8.1, §10.2],
    [Rasmussen, Quiñonero-Candela 2005]. In whitened features the training rows see r_i = √ρ k(x_i, x*)/k(x*, x*), and with
    a = LB⁻¹φ*, h = LB⁻¹Φr/σ², s = 1 + |r|²/σ² - |h|², e = rᵀ(y - Φᵀw)/σ²,

        mean = φ*ᵀw + (√ρ - aᵀh) e/s,   variance = |a|² + (√ρ - aᵀh)²/s

    at O(nm) for each query.
    """

    posterior: Posterior
    rows: np.ndarray  # (m,), the relevance vectors' numbers among the training rows, or in the basis given
    precisions: np.ndarray  # (m,), α
    noise: float
    values: np.ndarray  # (steps + 1,), the log evidence before the first step and after each
    converged: bool
    problem: Problem
    prior_variance: float  # ρ
    augment: bool = False

    def __len__(self) -> int:
        return len(self.posterior)

    @property
    def log_evidence(self) -> float | None:
        """That of the machine before augmentation; afterwards it depends on the query."""
        return self.posterior.log_evidence

    @property
    def kernel(self) -> Kernel:
        return self.posterior.kernel

    @property
    def basis(self) -> Basis:
        """The relevance vectors' functions."""
        return self.posterior.basis

    def predict(self, X: Any) -> Marginals:
        """Mean and variance of each f(x); augmented, with only that query's function added."""
        X = as_queries(X, self.problem.X.shape[1])
        if not self.augment:
            return self.posterior.predict(X)
        mean, variance = self.posterior.mean(X), np.zeros(len(X))
        for s in query_chunks(len(X), len(self)):
            shift, variance[s] = self._bordered(X[s])
            mean[s] += shift
        return Marginals(mean, variance)

    def jointly(self, X: Any) -> Posterior:
        """The process with a function at every query: what it says of one depends on the others. [003 Definition 9]"""
        X = as_queries(X, self.problem.X.shape[1])
        queries = Points(X) if isinstance(self.basis, Points) else as_multiscale(self.kernel, Points(X))
        both = zip(self.basis.parameters.values(), queries.parameters.values(), strict=True)
        basis = type(self.basis)(*(np.concatenate(pair) for pair in both))
        precisions = np.concatenate([self.precisions, self.kernel.diag(X) ** 2 / self.prior_variance])
        return _posterior(self.problem, basis, precisions, self.noise)

    def covariance(self, X: Any) -> np.ndarray:
        """Joint covariance of f(X); augmented, that of `jointly`, whose diagonal is not `predict`'s."""
        return (self.jointly(X) if self.augment else self.posterior).covariance(X)

    def _bordered(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the query's function adds to the mean (t,), and the variance (t,), by the formulas above."""
        post, P = self.posterior, self.problem
        prior = self.kernel.diag(X)
        scale = np.where(prior > 0, math.sqrt(self.prior_variance) / np.where(prior > 0, prior, 1.0), 0.0)
        G, S, E = np.zeros((len(post), len(X))), np.zeros(len(X)), np.zeros(len(X))
        for s in row_slices(P.n, chunk_rows(P.n, max(len(X), len(post)), P.X)):
            Phi = post.features(P.X[s])  # (rows, m)
            R = self.kernel(P.X[s], X) * scale  # (rows, t)
            G += Phi.T @ R
            S += np.sum(R * R, axis=0)
            E += R.T @ (P.Y[s] - Phi @ post.w)[:, 0]
        A = post.A
        assert A is not None
        a, h = post.features(X) @ A, G.T @ A / self.noise  # (t, m)
        lead = scale * prior - row_dots(a, h)
        gain = lead / (1.0 + S / self.noise - row_squares(h))
        return gain * E / self.noise, row_squares(a) + gain * lead


def relevance_vectors(
    kernel: Kernel,
    X: Any,
    y: Any,
    *,
    noise: Any = None,
    basis: Basis | None = None,
    mean: Mean | None = None,
    augment: bool = False,
    prior_variance: float | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
) -> RelevanceVectors:
    """Learn the precisions by maximising the evidence, one function at a time. [Tipping, Faul 2003]

    Candidates are the kernel's functions at the training inputs, or those of a `basis`; `noise` is the noise variance, learned
    where it is None. Every step adds, changes or removes the function that raises the log evidence most, until none raises it
    by `tolerance`. O(nM) for each function added of M candidates, O(m²M) for each step, memory O(mM). `prior_variance` is that
    of a query's own function when augmented, the mean square of y about the prior mean where it is None.
    """
    X = to_numpy(as_inputs(X))
    first = np.sort(np.unique(X, axis=0, return_index=True)[1])  # equal inputs have one function
    candidates = Points(X[first]) if basis is None else basis
    P = make_problem(kernel, candidates, SoR, 1.0 if noise is None else noise, X, to_numpy(y), mean=mean, jitter=0.0)
    if not P.one_output:
        raise ShapeError(f"relevance vectors take one output, but y has shape {np.shape(y)}; learn each output by itself")
    if not P.one_noise:
        raise ShapeError(f"relevance vectors take one noise variance, but noise has shape {P.noise.shape}")
    power = float(np.mean(P.Y**2))
    if power == 0.0:
        raise ParameterError("y equals its prior mean in every row, so there is nothing to learn precisions from")
    if prior_variance is None:
        prior_variance = power
    if not 0.0 < prior_variance < math.inf:
        raise ParameterError(f"prior_variance must be positive and finite, but is {prior_variance:g}")
    search = _Search(P, FIRST_NOISE * power if noise is None else float(noise))
    values, converged = [search.value()], False
    with single_threaded_blas():  # many small products
        for _ in range(max_iterations):
            gain = search.step(tolerance)
            if noise is None:
                gain = max(gain, search.learn_noise(NOISE_FLOOR * power))
            if gain < tolerance:
                converged = True
                break
            values.append(search.value())
    post = _posterior(P, P.basis[search.active], search.precisions, search.noise)
    rows = first[search.active] if basis is None else search.active
    return RelevanceVectors(
        post, rows, search.precisions, search.noise, np.array(values), converged, P, prior_variance, augment
    )


class _Search:
    """The functions in the model and what the evidence says of every candidate. With C the covariance of y less candidate i,

        s_i = φ_iᵀC⁻¹φ_i,   q_i = φ_iᵀC⁻¹y,   ℓ(α_i) = ½ [log α_i/(α_i + s_i) + q_i²/(α_i + s_i)]

    is what the candidate adds to the log evidence, largest at α = s²/(q² - s), or at infinity where q² ≤ s.
    [Tipping, Faul 2003, eqs 18-23]
    """

    def __init__(self, P: Problem, noise: float) -> None:
        self.P, self.noise = P, noise
        self.active = np.zeros(0, dtype=int)  # (m,)
        self.precisions = np.zeros(0)  # (m,)
        self.norms, self.T = np.zeros(len(P.basis)), np.zeros(len(P.basis))  # |φ_i|², φ_iᵀy
        for s in self._rows():
            Phi = P.basis.cross(P.kernel, P.X[s])
            self.T += Phi.T @ P.Y[s, 0]
            self.norms += np.sum(Phi * Phi, axis=0)
        self.G = np.zeros((0, len(P.basis)))  # (m, M), inner products of the active with all
        self._factorise()

    def _rows(self) -> list[slice]:
        return row_slices(self.P.n, chunk_rows(self.P.n, len(self.P.basis), self.P.X))

    def _factorise(self) -> None:
        """LB and z = LB⁻¹DΦᵀy/σ² of B = I + DΦᵀΦD/σ², D = A^-½."""
        self.D = 1.0 / np.sqrt(self.precisions)
        self.LB = cholesky(plus_diagonal(self._whitened_gram() / self.noise, 1.0))
        self.z = solve_lower(self.LB, (self.D * self.T[self.active])[:, None])[:, 0] / self.noise

    def _whitened_gram(self) -> np.ndarray:
        return self.D[:, None] * self.G[:, self.active] * self.D

    def value(self) -> float:
        """The log evidence."""
        n, Y = self.P.n, self.P.Y
        fit = float(np.sum(Y * Y)) / self.noise - float(self.z @ self.z)
        return -0.5 * (n * math.log(2 * math.pi * self.noise) + float(log_det_from_factor(self.LB)) + fit)

    def factors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """s and q of every candidate (M,), and which of them may move: not those in the span of the model's own. [eqs 22-25]"""
        Linv = inverse_lower(self.LB)
        V = (Linv * self.D) @ self.G / self.noise  # (m, M)
        s = self.norms / self.noise - np.sum(V * V, axis=0)
        q = self.T / self.noise - V.T @ self.z
        free = s > SPAN * self.norms / self.noise
        variance = self.D**2 * np.sum(Linv * Linv, axis=0)  # of the weights
        s[self.active] = 1.0 / variance - self.precisions
        q[self.active] = self.D * (Linv.T @ self.z) / variance
        free[self.active] = True
        return s, q, free

    def step(self, tolerance: float) -> float:
        """Take the step that raises the log evidence most, unless by less than `tolerance`; by how much it would."""
        s, q, free = self.factors()
        now = np.full(len(s), math.inf)
        now[self.active] = self.precisions
        excess = q**2 - s
        best = np.where(free & (excess > 0), s**2 / np.where(excess > 0, excess, 1.0), math.inf)
        gains = np.where(free, added(best, s, q) - added(now, s, q), 0.0)
        i = int(np.argmax(gains))
        if gains[i] >= tolerance:
            self._set(i, best[i])
        return float(gains[i])

    def _set(self, i: int, precision: float) -> None:
        where = np.flatnonzero(self.active == i)
        if len(where) == 0:
            self.active, self.precisions = np.append(self.active, i), np.append(self.precisions, precision)
            self.G = np.vstack([self.G, self._inner_products(i)])
        elif math.isinf(precision):
            self.active, self.precisions = np.delete(self.active, where), np.delete(self.precisions, where)
            self.G = np.delete(self.G, where, axis=0)
        else:
            self.precisions[where] = precision
        self._factorise()

    def _inner_products(self, i: int) -> np.ndarray:
        """φ_iᵀφ_j for all j. (M,)"""
        P, total = self.P, np.zeros(len(self.P.basis))
        for s in self._rows():
            Phi = P.basis.cross(P.kernel, P.X[s])
            total += Phi.T @ Phi[:, i]
        return total

    def learn_noise(self, floor: float) -> float:
        """The noise variance of largest evidence within a factor e, precisions held; by how much the evidence grew.

        In the eigenvectors of DΦᵀΦD it is a sum over m terms.
        """
        from scipy.optimize import minimize_scalar

        eigenvalues, vectors = np.linalg.eigh(self._whitened_gram())
        eigenvalues = np.maximum(eigenvalues, 0.0)  # rounding of a Gram matrix
        t2 = (vectors.T @ (self.D * self.T[self.active])) ** 2
        n, square, before = self.P.n, float(np.sum(self.P.Y**2)), self.value()

        def loss(log_noise: float) -> float:
            v = math.exp(log_noise)
            fit = (square - np.sum(t2 / (v + eigenvalues))) / v
            return 0.5 * float(n * log_noise + np.sum(np.log1p(eigenvalues / v)) + fit)

        middle = math.log(self.noise)
        low = max(middle - 1.0, min(math.log(floor), middle))
        found = minimize_scalar(loss, bounds=(low, middle + 1.0), method="bounded", options={"xatol": 1e-8})
        if found.fun >= loss(middle):
            return 0.0
        self.noise = math.exp(found.x)
        self._factorise()
        return self.value() - before


def added(precision: np.ndarray, s: np.ndarray, q: np.ndarray) -> np.ndarray:
    """ℓ(α): what a function of this precision adds to the log evidence; nothing at infinity. [Tipping, Faul 2003, eq. 18]"""
    return 0.5 * (q**2 / (precision + s) - np.log1p(s / precision))


def _posterior(P: Problem, basis: Basis, precisions: np.ndarray, noise: float) -> Posterior:
    """The process of given precisions: B = I + ΦΦᵀ/σ² with φ(x) = A^-½ k_u(x), w = B⁻¹Φy/σ²."""
    D, m = 1.0 / np.sqrt(precisions), len(basis)
    rows = row_slices(P.n, chunk_rows(P.n, m, P.X))

    def features(s: slice) -> np.ndarray:
        return basis.cross(P.kernel, P.X[s]) * D if m else np.zeros((len(P.X[s]), 0))

    B, b = np.eye(m), np.zeros((m, 1))
    for s in rows:
        Phi = features(s)  # (rows, m)
        B += Phi.T @ Phi / noise
        b += Phi.T @ P.Y[s] / noise
    LB, LBinv = cholesky_and_inverse(B) if m else (B, B)
    w = LBinv.T @ (LBinv @ b)
    error = sum(float(np.sum((P.Y[s] - features(s) @ w) ** 2)) for s in rows)
    fit = error / noise + float(np.sum(w * w))
    return Posterior(
        kernel=P.kernel,
        basis=basis,
        L=identity(B) * np.sqrt(precisions),
        w=w,
        A=contiguous(LBinv.T),
        mean_function=P.mean,
        conditional="deterministic",
        log_evidence=-0.5 * (P.n * math.log(2 * math.pi * noise) + float(log_det_from_factor(LB)) + fit),
        jitter=0.0,
        one_output=True,
    )
