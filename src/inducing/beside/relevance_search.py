"""The search for relevance vectors, one function at a time, for values with noise (`ValueSearch`), labels by
EP's sites (`LabelSearch`) and vectors in feature space (`kernel_pca`). [Tipping, Faul 2003]
"""

import math
from typing import NamedTuple

import numpy as np

from ..engine.sites import Processes
from ..errors import FactorisationError
from ..model.bases import Basis
from ..model.likelihoods import Likelihood, Probit
from ..model.posterior import SPAN, Posterior
from ..model.problem import Problem
from ..numerics import linalg as la
from ..numerics.workers import chunk_rows, row_slices

MOST_SWEEPS, SETTLED = 50, 1e-6  # the most sweeps of EP after each step, and the move that ends them
LARGEST_VARIANCE = 1e3  # of f through one function, in units of the labels' own noise or y's mean square
TRIES, SHARES = 5, (1.0, 0.25, 0.0625)  # moves that are tried, and shares of each, if they gain too little


class Move(NamedTuple):
    """A step that would raise the evidence."""

    gain: float
    candidate: int
    precision: float  # infinity removes the candidate


class Search:
    """Base of searches: the functions in the model, and the gain in evidence by every candidate.

    A candidate is a vector φ_i; targets t, one or more with the same precisions, are sums of candidates plus
    noise. With C the covariance of t without candidate i,

        s_i = φ_iᵀC⁻¹φ_i,   q_i² = mean of (φ_iᵀC⁻¹t)² over t,
        ℓ(α_i) = ½ [log α_i/(α_i + s_i) + q_i²/(α_i + s_i)]

    ℓ is what i adds to the log evidence of each target, largest at α = s²/(q² - s), at infinity if q² ≤ s.
    """

    noise = 1.0  # σ²
    targets = 1  # how many
    least: np.ndarray | float = 0.0  # (M,), the least precision of each candidate
    norms: np.ndarray  # (M,), |φ_i|²
    T: np.ndarray  # (M,), φ_iᵀt of a single target
    G: np.ndarray  # (m, M), inner products of the functions in the model with all candidates

    def __init__(self, active: np.ndarray, precisions: np.ndarray) -> None:
        self.active, self.precisions = active, precisions  # (m,) each

    def value(self) -> float:
        """Return the log evidence."""
        raise NotImplementedError

    def put(self, i: int, precision: float) -> None:
        """Put candidate i into the model with this precision; remove it if that is infinity."""
        raise NotImplementedError

    def _alignment(self, Linv: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means over t of (φ_iᵀC⁻¹t)² (M,) and squared weights (m,); Linv = LB⁻¹D, V = Linv G/σ²."""
        z = Linv @ self.T[self.active] / self.noise
        return (self.T / self.noise - V.T @ z) ** 2, (Linv.T @ z) ** 2

    def _factorise(self) -> None:
        """Compute LB of B = I + DΦᵀΦD/σ², D = A^-½."""
        self.D = 1.0 / np.sqrt(self.precisions)
        self.LB = la.cholesky(la.plus_diagonal(self._whitened_gram() / self.noise, 1.0))

    def _whitened_gram(self) -> np.ndarray:
        return self.D[:, None] * self.G[:, self.active] * self.D

    def factors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return s and q² of every candidate (M,), and which may move: not those in the model's span."""
        Linv = la.inverse_lower(self.LB) * self.D
        V = Linv @ self.G / self.noise  # (m, M)
        s = self.norms / self.noise - np.sum(V * V, axis=0)
        q2, squares = self._alignment(Linv, V)
        free = s > SPAN * self.norms / self.noise
        variance = np.sum(Linv * Linv, axis=0)  # of the weights
        s[self.active] = 1.0 / variance - self.precisions
        q2[self.active] = squares / variance**2
        free[self.active] = True
        return s, q2, free

    def moves(self, tolerance: float) -> list[Move]:
        """Return up to TRIES steps that gain `tolerance` or more, the best first."""
        s, q2, free = self.factors()
        now = np.full(len(s), math.inf)
        now[self.active] = self.precisions
        excess = q2 - s
        raised = free & (excess > 0)
        best = np.where(raised, np.maximum(s**2 / np.where(raised, excess, 1.0), self.least), math.inf)
        gains = self.targets * np.where(free, added(best, s, q2) - added(now, s, q2), 0.0)
        order = np.argsort(-gains, kind="stable")[:TRIES]
        return [Move(float(gains[i]), int(i), float(best[i])) for i in order if gains[i] >= tolerance]

    def step(self, tolerance: float) -> float:
        """Take the step that raises the log evidence most; return its gain, 0 if none gains `tolerance`."""
        moves = self.moves(tolerance)
        if not moves:
            return 0.0
        self.put(moves[0].candidate, moves[0].precision)
        return moves[0].gain

    def _replace(self, i: int, precision: float) -> np.ndarray:
        """Change `active` and `precisions` only; return the former places of the other active functions."""
        others = np.flatnonzero(self.active != i)
        new = [i] if math.isfinite(precision) else []
        self.active = np.append(self.active[others], np.array(new, dtype=int))
        self.precisions = np.append(self.precisions[others], [precision] * len(new))
        return others


def added(precision: np.ndarray, s: np.ndarray, q2: np.ndarray) -> np.ndarray:
    """Return ℓ(α), what a function of this precision adds to the log evidence; 0 at infinity."""
    return 0.5 * (q2 / (precision + s) - np.log1p(s / precision))


class SearchSums(NamedTuple):
    """The sums over rows, each with its weight τ, that a search needs."""

    norms: np.ndarray  # (M,), Σ τφ_i²
    T: np.ndarray  # (M,), Σ νφ_i, ν = τy
    G: np.ndarray  # (m, M), Σ τφ_aφ_i


def sums_of(P: Problem, tau: np.ndarray, nu: np.ndarray, active: np.ndarray) -> SearchSums:
    """Compute the sums in one pass over the rows. O(nMm)"""
    M = len(P.basis)
    sums = SearchSums(np.zeros(M), np.zeros(M), np.zeros((len(active), M)))
    for s in _rows(P):
        Phi = P.basis.cross(P.kernel, P.X[s])  # (rows, M)
        weighted = Phi * tau[s, None]
        np.add(sums.norms, np.sum(weighted * Phi, axis=0), out=sums.norms)
        np.add(sums.T, Phi.T @ nu[s], out=sums.T)
        np.add(sums.G, weighted[:, active].T @ Phi, out=sums.G)
    return sums


def peaks(P: Problem) -> np.ndarray:
    """Return the largest value of every candidate, at its centre. (M,)"""
    centers = P.basis.centers
    slices = row_slices(len(centers), 256)
    return np.concatenate([np.diagonal(P.basis[s].cross(P.kernel, centers[s])) for s in slices])


def _rows(P: Problem) -> list[slice]:
    return row_slices(P.n, chunk_rows(P.n, len(P.basis), P.X))


class ValueSearch(Search):
    """The search for values with one noise variance, which may be learned. The sums over rows are kept."""

    def __init__(self, P: Problem, noise: float, active: np.ndarray, precisions: np.ndarray) -> None:
        super().__init__(active, precisions)
        self.P, self.noise = P, noise
        self.norms, self.T, self.G = sums_of(P, np.ones(P.n), P.Y[:, 0], active)
        self._factorise()

    def value(self) -> float:
        n, Y = self.P.n, self.P.Y
        z = la.solve_lower(self.LB, self.D * self.T[self.active]) / self.noise
        fit = float(np.sum(Y * Y)) / self.noise - float(z @ z)
        return -0.5 * (n * math.log(2 * math.pi * self.noise) + float(la.log_det_from_factor(self.LB)) + fit)

    def put(self, i: int, precision: float) -> None:
        known = self.G[self.active == i]  # (1 or 0, M)
        others = self._replace(i, precision)
        self.G = self.G[others]
        if math.isfinite(precision):
            self.G = np.vstack([self.G, known if len(known) else self._inner_products(i)])
        self._factorise()

    def _inner_products(self, i: int) -> np.ndarray:
        """Return φ_iᵀφ_j for all j. (M,)"""
        P, total = self.P, np.zeros(len(self.P.basis))
        for s in _rows(P):
            Phi = P.basis.cross(P.kernel, P.X[s])
            total += Phi.T @ Phi[:, i]
        return total

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return precision τ and shift ν = τy of every row. (n,) each"""
        return np.full(self.P.n, 1.0 / self.noise), self.P.Y[:, 0] / self.noise

    def learn_noise(self, floor: float) -> float:
        """Set the noise to the variance of largest evidence within a factor e; return the gain."""
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
        minimum = minimize_scalar(loss, bounds=(low, middle + 1.0), method="bounded", options={"xatol": 1e-8})
        if minimum.fun >= loss(middle):
            return 0.0
        self.noise = math.exp(minimum.x)
        self._factorise()
        return self.value() - before


class LabelSearch(Search):
    """The search for labels, through the sites that expectation propagation makes of their likelihood:
    pseudo-targets a with noise 1/τ. [004 eq. 4.21]

    At EP's fixed point the evidence does not change with the sites to first order, so s and q with the sites
    held give its slope in every precision. A step that gains too little is taken in part, or not at all.
    O(nmM) for each step, since it changes all sites. The evidence grows with the variance of a function that
    is large at rows of one class only, so f through a function has at most LARGEST_VARIANCE times the
    variance of the labels' own noise.
    """

    def __init__(
        self,
        P: Problem,
        labels: np.ndarray,
        likelihood: Likelihood,
        active: np.ndarray,
        precisions: np.ndarray,
    ) -> None:
        super().__init__(active, precisions)
        self.P, self.labels, self.likelihood = P, labels, likelihood
        self.tau, self.nu = np.zeros(P.n), np.zeros(P.n)  # the sites: τ, and ν = τa
        noise = likelihood.noise if isinstance(likelihood, Probit) else math.pi**2 / 3.0
        self.least = peaks(P) ** 2 / (LARGEST_VARIANCE * noise)
        self._settle()

    def value(self) -> float:
        return self._value

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return precision τ and shift ν of every row's site. (n,) each"""
        return self.tau, self.nu

    def put(self, i: int, precision: float) -> None:
        self._replace(i, precision)
        self._settle()

    def _settle(self) -> None:
        P, start = self.P, (self.tau, self.nu)
        self.tau, self.nu, self._value = propagate(
            P, P.basis[self.active], self.precisions, self.labels, self.likelihood, start
        )
        self.norms, self.T, self.G = sums_of(P, self.tau, self.nu, self.active)
        self._factorise()

    def step(self, tolerance: float) -> float:
        before, state = self.value(), dict(vars(self))  # arrays are replaced, never written into
        now = dict(zip(self.active, 1.0 / self.precisions, strict=True))
        for _, i, precision in self.moves(tolerance):
            old = now.get(i, 0.0)
            for share in SHARES:
                variance = old + share * (1.0 / precision - old)
                self.put(i, 1.0 / variance if variance > 0.0 else math.inf)
                if self.value() - before >= tolerance:
                    return self.value() - before
                vars(self).update(state)
        return 0.0


AnySearch = LabelSearch | ValueSearch


def propagate(
    P: Problem,
    active: Basis,
    precisions: np.ndarray,
    labels: np.ndarray,
    likelihood: Likelihood,
    start: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return τ and ν of every row's site (n,) and EP's log evidence, for functions `active`, from `start`."""
    if len(active) == 0:  # f is the prior mean, and the likelihood's derivatives there give the site
        average, q, r = likelihood.tilted(labels, np.asarray(P.mean(P.X), dtype=float), 1e-12)
        return -r, q, float(np.sum(average))
    L = np.diag(np.sqrt(precisions))  # w ~ N(0, I) in φ(x) = A^-½ k_u(x), and f = φᵀw with nothing left over
    run = Processes(P.kernel, active, L, likelihood, P.X, labels[:, None], P.mean, 1.0, 0.0, projected=True)
    run.tau[:, 0], run.nu[:, 0] = start
    run.rebuild()
    for _ in range(MOST_SWEEPS):
        if run.sweep(1.0) <= SETTLED:
            break
    (value,) = run.log_evidence()
    if value is None:
        raise FactorisationError(f"a cavity of expectation propagation is improper under {likelihood}")
    return run.tau[:, 0], run.nu[:, 0], value


def process_of(
    P: Problem, basis: Basis, precisions: np.ndarray, tau: np.ndarray, nu: np.ndarray
) -> Posterior:
    """Make the process of these precisions and rows: φ(x) = A^-½ k_u(x), B = I + ΦΛΦᵀ, w = B⁻¹Φν."""
    D, m = 1.0 / np.sqrt(precisions), len(basis)
    G, c = np.zeros((m, m)), np.zeros((m, 1))
    for s in row_slices(P.n, chunk_rows(P.n, m, P.X)) if m else ():
        Phi = basis.cross(P.kernel, P.X[s]) * D  # (rows, m)
        G += Phi.T @ (Phi * tau[s, None])
        c += Phi.T @ nu[s, None]
    LBinv, w = la.information_factors(G, c)[2:] if m else (G, c)
    L, A = np.diag(np.sqrt(precisions)), la.contiguous(LBinv.T)
    return Posterior(P.kernel, basis, L, w, A, P.mean, "deterministic", jitter=0.0)


def log_evidence_of(P: Problem, post: Posterior, noise: float) -> float:
    """Return -½ [n log 2πσ² + log|B| + |y - Φᵀw|²/σ² + |w|²] for values and a process of `process_of`."""
    error = 0.0
    for s in row_slices(P.n, chunk_rows(P.n, len(post), P.X)):
        error += float(np.sum((P.Y[s] - post.features(P.X[s]) @ post.w) ** 2))
    assert post.A is not None
    log_B = -float(la.log_det_from_factor(post.A)) if len(post) else 0.0  # AAᵀ = B⁻¹, and A is triangular
    return -0.5 * (P.n * math.log(2 * math.pi * noise) + log_B + error / noise + float(np.sum(post.w**2)))


def together(first: Basis, second: Basis) -> Basis:
    """Join two bases of one kind, one after the other."""
    both = zip(first.parameters.values(), second.parameters.values(), strict=True)
    return type(first)(*(np.concatenate(pair) for pair in both))
