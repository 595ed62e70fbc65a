"""Conjugate gradients for (K + Σ) X = B, their preconditioner, and the log determinant from their steps.

The preconditioner is P = Q + Σ, with Q the projection of K on a few rows chosen by Cholesky with pivots: the
covariance of DTC. Conjugate gradients on the preconditioned system are Lanczos' method for P^-½(K + Σ)P^-½,
so the steps of a solve for a random right-hand side also give log|K + Σ| = log|P| + tr log P^-½(K + Σ)P^-½.
[002, Fast approximate solution of linear systems], [Gardner et al. 2018]
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...errors import FactorisationError, IterationWarning
from ...model.kernels.base import Kernel
from ...numerics import linalg as la
from ...numerics.arrays import SMALL, Array, asarray_like, is_numpy, namespace, to_numpy, zeros_like_rows
from ...numerics.workers import chunk_rows, row_slices, run_over
from ...progress import Bars
from ..selection import greedy_variance

ENOUGH = 1e-2  # no more pivots once tr(K - Q) is this share of the least noise: P is K + Σ up to 1 %


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """The preconditioner P = ΦᵀΦ + Σ, the covariance of DTC.

    P⁻¹ = Σ⁻¹ - H Hᵀ,   H = Σ⁻¹Φᵀ LB⁻ᵀ,   LB LBᵀ = I + ΦΣ⁻¹Φᵀ
    """

    noise: Array  # (n,), Σ's diagonal
    Phi: Array  # (n, r), Φᵀ
    H: Array  # (n, r)
    log_det: float

    @property
    def rank(self) -> int:
        return self.Phi.shape[1]

    def solve(self, B: Array) -> Array:
        """Return P⁻¹B. (n, p)"""
        return B / self.noise[:, None] - self.H @ (self.H.T @ B)

    def inverse_diagonal(self) -> Array:
        """Return diag P⁻¹. (n,)"""
        return 1.0 / self.noise - namespace(self.H).sum(self.H * self.H, axis=1)

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Draw columns z with P^-½z uniform on the sphere |P^-½z|² = n, so zzᵀ has mean P. (n, count)"""
        n = self.noise.shape[0]
        e, f = (asarray_like(rng.standard_normal((size, count)), self.Phi) for size in (self.rank, n))
        xp = namespace(self.Phi)
        Z = self.Phi @ e + xp.sqrt(self.noise)[:, None] * f
        return Z * xp.sqrt(n / xp.sum(Z * self.solve(Z), axis=0))


def precondition(kernel: Kernel, X: Array, noise: Array, rank: int, jitter: float) -> Preconditioner:
    """Make the preconditioner on `rank` pivots, or on fewer if these explain K up to the noise. O(n r²)"""
    n, xp = X.shape[0], namespace(X)
    pivots = zeros_like_rows((0, X.shape[1]), X)
    if rank > 0:
        rows = to_numpy(X)
        total = float(np.sum(to_numpy(kernel.diagonal(X))))
        threshold = min(0.5, max(1e-12, ENOUGH * float(xp.min(noise)) / total))
        pivots = asarray_like(greedy_variance(rows, min(rank, n), 0, kernel=kernel, threshold=threshold), X)
    r = pivots.shape[0]
    Phi, G = zeros_like_rows((n, r), X), zeros_like_rows((r, r), X)
    if r:
        K, what = kernel.covariances(pivots, pivots), "the prior covariance of the pivots"
        L, _ = la.cholesky_escalating(K, jitter, what=what)
        Linv = la.inverse_lower(L)

        def step(total: Array, s: slice) -> None:
            Phi[s] = la.times_lower(la.contiguous(kernel.covariances(X[s], pivots)), Linv, transposed=True)
            la.add_gram(total, la.contiguous(Phi[s] / xp.sqrt(noise[s])[:, None]))

        parallel, tasks = is_numpy(X) and n * r >= SMALL, row_slices(n, chunk_rows(n, r, X))
        parts = run_over(tasks, lambda: zeros_like_rows((r, r), X), step, parallel=parallel)
        G = sum(parts[1:], parts[0])
    _, LB, LBinv, _ = la.information_factors(G, G[:, :0])
    H = (Phi @ LBinv.T) / noise[:, None]
    return Preconditioner(noise, Phi, H, float(la.log_det_from_factor(LB)) + float(xp.sum(xp.log(noise))))


@dataclass(frozen=True, eq=False)
class Solution:
    """The solution X of (K + Σ) X = B by conjugate gradients, and the steps that led to each column."""

    X: Array  # (n, p)
    R: Array  # (n, p), B - (K + Σ) X by the recurrence
    residuals: np.ndarray  # (p,), the norms of R's columns
    products: int  # number of products with K + Σ
    iterations: np.ndarray  # (p,)
    steps: np.ndarray  # (iterations, p): step length in each direction; NaN after a column's end
    ratios: np.ndarray  # (iterations, p): of successive rᵀP⁻¹r
    starts: np.ndarray  # (p,): bᵀP⁻¹b

    def log_quadratics(self) -> np.ndarray:
        """Return bᵀP^-½ log(P^-½(K + Σ)P^-½) P^-½b of each column, by Gauss quadrature. (p,)

        The Lanczos matrix is T_kk = 1/γ_k + β_{k-1}/γ_{k-1}, T_k,k+1 = √β_k/γ_k for steps γ and ratios β. Its
        eigenvalues are nodes, weighted by their vectors' first entries squared. [Golub, Meurant 2010, ch. 3]
        """
        from scipy.linalg import eigh_tridiagonal

        out = np.zeros(len(self.starts))
        for c, count in enumerate(self.iterations):
            if count == 0:
                continue
            step, ratio = self.steps[:count, c], self.ratios[:count, c]
            diagonal = 1.0 / step
            diagonal[1:] += ratio[:-1] / step[:-1]
            if not (np.all(np.isfinite(diagonal)) and np.all(ratio[:-1] >= 0.0)):
                raise FactorisationError(f"after {count} steps K + Σ is singular to rounding; use more noise")
            values, vectors = eigh_tridiagonal(diagonal, np.sqrt(ratio[:-1]) / step[:-1])
            out[c] = self.starts[c] * (vectors[0] ** 2 @ np.log(values))
        return out


def conjugate_gradients(
    multiply: Callable[[Array], Array],
    B: Array,
    P: Preconditioner,
    targets: np.ndarray,
    *,
    max_iterations: int,
    what: str,
) -> Solution:
    """Solve A X = B, where `multiply` is the product with A, until each column's residual norm is at most its
    target; later products leave out finished columns. Warn once if some are not finished at max_iterations.
    """
    xp, n, p = namespace(B), B.shape[0], B.shape[1]
    out_X, out_R = zeros_like_rows((n, p), B), xp.asarray(B, copy=True)
    active = np.arange(p)
    X, R = zeros_like_rows((n, p), B), xp.asarray(B, copy=True)
    Z = P.solve(R)
    D, rho = Z, xp.sum(R * Z, axis=0)
    starts, iterations = to_numpy(rho).astype(float), np.zeros(p, dtype=int)
    norms = to_numpy(xp.sqrt(xp.sum(R * R, axis=0))).astype(float)
    residuals = norms.copy()
    steps: list[np.ndarray] = []
    ratios: list[np.ndarray] = []
    with Bars() as bars:
        for _ in range(max_iterations + 1):
            finished = norms <= targets[active]
            if finished.any() or len(steps) == max_iterations:
                out_X[:, active], out_R[:, active], residuals[active] = X, R, norms
                if finished.all() or len(steps) == max_iterations:
                    break
                keep = np.flatnonzero(~finished)
                active, X, R, D, rho = active[keep], X[:, keep], R[:, keep], D[:, keep], rho[keep]
            AD = multiply(D)
            step = rho / xp.sum(D * AD, axis=0)
            X, R = X + step * D, R - step * AD
            Z = P.solve(R)
            fresh = xp.sum(R * Z, axis=0)
            ratio = fresh / rho
            D, rho = Z + ratio * D, fresh
            norms = to_numpy(xp.sqrt(xp.sum(R * R, axis=0))).astype(float)
            iterations[active] += 1
            steps.append(_spread(step, active, p))
            ratios.append(_spread(ratio, active, p))
            farthest = float(np.max(norms / targets[active]))
            bars.show("cg", f"{what}: iteration {len(steps)}, residual {farthest:.3g} times its target")
    missed = residuals > targets
    if missed.any():
        worst = float(np.max(residuals[missed] / targets[missed]))
        end = f"ended after {max_iterations} iterations with a residual {worst:.1f} times its target"
        advice = "raise the solver's rank, its max_iterations or its tolerance"
        warnings.warn(f"conjugate gradients for {what} {end}; {advice}", IterationWarning, stacklevel=3)
    all_steps, all_ratios = (np.array(part).reshape(-1, p) for part in (steps, ratios))
    return Solution(out_X, out_R, residuals, len(steps), iterations, all_steps, all_ratios, starts)


def _spread(values: Array, active: np.ndarray, p: int) -> np.ndarray:
    """Put the values of active columns into all p columns, NaN elsewhere."""
    out = np.full(p, np.nan)
    out[active] = to_numpy(values)
    return out
