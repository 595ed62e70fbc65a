"""Sites of rows under expectation propagation, and the processes they make. [004 §§4.2-4.4]

A site is exp(ν g - ½ τ g²), ν = τa, in one number g = pᵀu: f less its prior mean, as the basis explains it.
The sites determine the process: with π = Lᵀp in whitened coordinates u = Lv,

    B = I + Σ τ π πᵀ,   w = B⁻¹ Σ ν π,   v ~ N(w, B⁻¹)                     [004 eqs 4.25, 4.34]

so it is computed from them again after every sweep, and errors do not accumulate. On a fixed basis π = φ(x).
With γ = k(x, x) - φᵀφ, what the basis does not explain of f(x), a site is found for f(x) and then acts on g
(share = 0, 004 §4.6); or it acts on f(x) itself, as under FITC (share = 1, 001 §5): then τ/(1 + τγ) and
ν/(1 + τγ) replace τ and ν above; or the likelihood is taken to depend on g alone, as under DTC (projected,
004 §4.4 below 4.33), without γ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..errors import FactorisationError, InducingError, NonFiniteError, ParameterError, ShapeError
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.likelihoods import Likelihood
from ..model.likelihoods.loops import Asked
from ..model.means import Mean
from ..model.posterior import Posterior
from ..model.table import Sites
from ..numerics import linalg as la
from ..numerics.arrays import Given, require_finite, to_numpy
from ..numerics.blas import addresses
from ..numerics.workers import ROW_WORK, chunk_rows, interruptible, row_slices, side_by_side
from . import site_loops as loops

VISITED_TOGETHER = 32  # rows that go through the compiled loop together
KEEP = 1 << 24  # entries of Φ (n, m) up to which it is kept between sweeps
LARGE = 1 << 23  # products in a chunk of rows from which processes are worth a thread each


class Processes:
    """The processes on one basis, one for each column of Y (n, c), and their sites."""

    def __init__(
        self,
        kernel: Kernel,
        basis: Basis,
        L: np.ndarray,
        likelihood: Given,
        X: np.ndarray,
        Y: np.ndarray,
        mean: Mean,
        share: float,
        jitter: float,
        projected: bool = False,
    ) -> None:
        self.projected = projected
        self.kernel, self.basis, self.L, self.likelihood = kernel, basis, L, likelihood
        self.X, self.Y, self.mean, self.share, self.jitter = X, Y, mean, share, jitter
        self.prior = np.asarray(mean(X), dtype=float)  # (n,)
        if self.prior.ndim != 1:
            raise ShapeError(f"the prior mean must have one output for this, not {self.prior.shape[1]}")
        self.tau, self.nu = np.zeros(Y.shape), np.zeros(Y.shape)  # (n, c)
        self.Pi: np.ndarray | None = None  # (n, m), or None where it is Φ
        self.n_sweeps, self.converged = 0, False
        self.changes: tuple[int, ...] = ()
        self._kept: list[Any] | None = None
        self._forget()

    @cached_property
    def asked(self) -> Asked:
        """The likelihood in the form that compiled loops call."""
        return Asked(self.likelihood)

    def _forget(self) -> None:
        m, c = len(self.L), self.Y.shape[1]
        self.S, self.A = np.tile(np.eye(m), (c, 1, 1)), np.tile(np.eye(m), (c, 1, 1))  # AAᵀ = S = B⁻¹
        self.w, self.log_B = np.zeros((c, m)), np.zeros(c)

    def move(self, basis: Basis, L: np.ndarray, Pi: np.ndarray) -> None:
        """Take the sites to another basis with factor L, on which their directions are Pi (n, m)."""
        self.basis, self.L, self.Pi, self._kept = basis, L, Pi, None
        self._forget()
        self.rebuild()

    @staticmethod
    def resumed(
        posts: Sequence[Posterior], likelihood: Likelihood, X: np.ndarray, Y: np.ndarray
    ) -> Processes:
        first = posts[0]
        if any(post.sites is None for post in posts):
            raise ParameterError("start has no sites: it must come from expectation_propagation")
        if len(posts) != Y.shape[1] or first.sites.tau.shape != (len(X),):
            have = f"{len(posts)} processes and {len(first.sites.tau)} rows"
            raise ShapeError(f"start has {have}, but y has shape {Y.shape}; they must agree")
        mean, share = first.mean_function, first.sites.share
        L, projected = to_numpy(first.L), first.sites.projected
        run = Processes(first.kernel, first.basis, L, likelihood, X, Y, mean, share, first.jitter, projected)
        run.take([post.sites for post in posts])
        return run

    def take(self, sites: Sequence[Sites]) -> None:
        first = sites[0]
        self.tau, self.nu = (np.stack([getattr(s, name) for s in sites], axis=1) for name in ("tau", "nu"))
        self.Pi = None if first.P is None else first.P @ self.L
        self.n_sweeps, self.changes, self.converged = first.n_sweeps, first.changes, first.converged
        self.rebuild()

    def chunks(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Yield rows, their φ (rows, m) and γ (rows,), chunk by chunk; all are kept if they are few."""
        if self._kept is not None:
            yield from self._kept
            return
        n, m = len(self.X), len(self.L)
        Linv, kept = la.inverse_lower(self.L), []
        for rows in row_slices(n, chunk_rows(n, m, self.X)):
            K = la.contiguous(self.basis.cross(self.kernel, self.X[rows]))
            Phi = la.times_lower(K, Linv, transposed=True)
            gamma = np.maximum(self.kernel.diagonal(self.X[rows]) - la.row_squares(Phi), 0.0)
            require_finite(gamma, f"what the kernel gives from row {rows.start} on")
            if self.projected:  # a variance must not vanish: averages by quadrature would divide by it
                gamma = np.full(len(gamma), 1e-12)
            if n * m <= KEEP:
                kept.append((rows, Phi, gamma))
            yield rows, Phi, gamma
        self._kept = kept or None

    def effective(self, rows: slice, gamma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return τ and ν of the rows' sites on πᵀv. (rows, c) each"""
        scale = 1.0 / (1.0 + self.share * self.tau[rows] * gamma[:, None])
        return scale * self.tau[rows], scale * self.nu[rows]

    def rebuild(self) -> None:
        """Compute the processes from their sites alone."""
        m, c = len(self.L), self.Y.shape[1]
        B, beta = np.zeros((c, m, m)), np.zeros((c, m))
        for rows, Phi, gamma in self.chunks():
            D = Phi if self.Pi is None else self.Pi[rows]
            tau, nu = self.effective(rows, gamma)
            beta += nu.T @ D
            for j in range(c):
                la.add_symmetric_product(B[j], tau[:, j, None] * D, D)
        for j in range(c):
            try:
                _, LB, LBinv, w = la.information_factors(B[j], beta[j][:, None])
            except FactorisationError as error:
                text = f"the sites leave no proper process (the least τ is {self.tau[:, j].min():.3g})"
                raise FactorisationError(f"{text}; use damping below 1") from error
            self.log_B[j] = float(la.log_det_from_factor(LB)) if m else 0.0
            self.A[j], self.w[j] = LBinv.T, w[:, 0]
            self.S[j] = self.A[j] @ self.A[j].T

    def sweep(self, rate: float) -> float:
        """Visit every row once, on a fixed basis; return the largest move of a site."""
        largest = 0.0
        for rows, Phi, gamma in self.chunks():
            calls = [partial(self._sweep_rows, rows, Phi, gamma, j, rate) for j in range(self.Y.shape[1])]
            largest = max(largest, *side_by_side(calls, parallel=len(Phi) * len(self.L) ** 2 >= LARGE))
        self.Pi = None
        self.n_sweeps, self.changes = self.n_sweeps + 1, (*self.changes, 0)
        self.rebuild()
        return largest

    def _sweep_rows(self, rows: slice, Phi: np.ndarray, gamma: np.ndarray, j: int, rate: float) -> float:
        """Visit a chunk of rows under process j; return the largest move of a site."""
        Pi = Phi[:0] if self.Pi is None else self.Pi[rows]
        tau, nu, y = self.tau[rows, j].copy(), self.nu[rows, j].copy(), self.Y[rows, j].copy()
        data, asked, move = (tau, nu, gamma, self.prior[rows], y), self.asked, 0.0
        how = self.share, asked.at, asked.theta, rate, VISITED_TOGETHER
        for some in interruptible(len(Phi), 8.0 * self.S[j].size + ROW_WORK, VISITED_TOGETHER):
            sites = loops.RowSites(*(part[some] for part in data))
            given = addresses(), self.S[j], self.w[j], Phi[some], Pi[some], sites
            done, moved = loops.sweep_rows(*given, *how)
            if done < some.stop - some.start:
                self.refuse(rows.start + some.start + done, asked.error)
            move = max(move, moved)
        self.tau[rows, j], self.nu[rows, j] = tau, nu
        return move

    def refuse(self, row: int, error: BaseException | None = None) -> None:
        """Raise the error of a likelihood in Python (or Ctrl-C), or else that a row's site is not finite."""
        if error is not None and not isinstance(error, InducingError):
            raise error
        raise NonFiniteError(
            f"row {row} leaves no valid site: its likelihood {self.likelihood} has no finite q and r there; "
            "check y and the kernel there, or use a likelihood with more noise"
        )

    def log_evidence(self) -> list[float | None]:
        """Return log Z = -½ log|B| + ½ Σ ν g + Σ log s of each process, None where a cavity is improper. By
        log s = log⟨p(y|f)⟩ - log⟨exp(ν g - ½ τ g²)⟩ each site has the cavity average of its likelihood.
        """
        values = -0.5 * self.log_B
        for rows, Phi, gamma in self.chunks():
            D = Phi if self.Pi is None else self.Pi[rows]
            taus, nus = self.effective(rows, gamma)
            for j, (tau, nu) in enumerate(zip(taus.T, nus.T)):
                DA = D @ self.A[j]
                s, g = la.row_squares(DA), D @ self.w[j]
                left = 1.0 - tau * s
                if not np.all(left > loops.LEAST_SHARE):
                    values[j] = np.nan
                    continue
                mean, var = (g - s * nu) / left, s / left  # the cavity's g
                site = 0.5 * (np.log(left) + left * (nu**2 * var + 2.0 * nu * mean - tau * mean**2))
                if self.Pi is not None:  # its f, along φ
                    across = la.row_dots(Phi @ self.A[j], DA)
                    mean = Phi @ self.w[j] + across * (tau * g - nu) / left
                    var = la.row_squares(Phi @ self.A[j]) + tau * across**2 / left
                value = self.likelihood.log_average(self.Y[rows, j], self.prior[rows] + mean, gamma + var)
                values[j] += float(np.sum(value - site)) + 0.5 * float(nu @ g)
        return [float(v) if np.isfinite(v) else None for v in values]

    def posteriors(self, *, evidence: bool = True) -> list[Posterior]:
        values: list[float | None] = self.log_evidence() if evidence else [None] * self.Y.shape[1]
        P = None
        if self.Pi is not None:
            P = np.ascontiguousarray(la.solve_lower(self.L, self.Pi.T, transposed=True).T)
        state = self.n_sweeps, self.converged, self.changes, self.projected
        posts = []
        for j, value in enumerate(values):
            factors = self.L, self.w[j, :, None].copy(), self.A[j].copy()
            sites = Sites(self.tau[:, j].copy(), self.nu[:, j].copy(), P, self.share, *state)
            process = self.kernel, self.basis, *factors, self.mean
            posts.append(Posterior(*process, log_evidence=value, jitter=self.jitter, sites=sites))
        return posts
