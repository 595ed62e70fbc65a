"""Augmentation: add f* of a query to the basis, one query at a time or all together. [003 §8.1]"""

from dataclasses import dataclass, replace
from typing import Any

from ..errors import ParameterError
from ..inference.pic import Corrected
from ..inference.regression import DENSE, approximation_of, posterior_of, problem_of
from ..model.bases import Basis, Points, union
from ..model.kernels.base import Kernel
from ..model.posterior import SPAN, Marginals, Posterior
from ..model.problem import Problem, queries_like
from ..numerics import linalg as la
from ..numerics.arrays import Array, namespace, zeros_like_rows
from ..numerics.workers import row_slices
from .nystrom import check_gaussian, corrections, query_chunks, sums_over_rows, terms

SPACE = 1 << 23  # the most numbers in the matrices B of the queries of a chunk


@dataclass(frozen=True, eq=False)
class Augmented(Corrected):
    """A predictor for a row of the table with f* among its inducing variables, for each query on its own.

    With f* in the basis R_** becomes 0, so test conditionals no longer differ: SoR, DTC and VFE become one
    method [003 Remark 12], FITC and FIC another, PITC and PIC a third. The new whitened feature of row i is
    R_i*/√ρ, ρ = R_**. With G = ΦD̃⁻¹R_f*, S = R_*fD̃⁻¹R_f*, E = R_*fD̃⁻¹(y - Φᵀw), a = LB⁻¹φ_*, h = LB⁻¹G,
    elimination in the bordered B gives

        mean = φ_*ᵀw + (ρ - aᵀh) E / (ρ + S - |h|²),   variance = |a|² + (ρ - aᵀh)² / (ρ + S - |h|²)

    SoR, DTC and VFE have D̃ = Σ and cost O(nm) for each query. The other rows of the table have D̃ = D - a
    R_f*R_*f/ρ inside their blocks, which changes B by rank one for each block: O(nm) for each query with
    blocks of about m rows, O(nm²) with single rows (FITC, PEP), less if a local kernel changes few blocks.
    """

    posterior: Posterior  # before augmentation; after it the evidence would depend on the query
    problem: Problem

    def predict(self, X: Any) -> Marginals:
        """Return mean and variance of each f(x), adding f(x) alone to the basis: queries are independent."""
        X = queries_like(X, self.problem.X)
        post, P = self.posterior, self.problem
        mean, variance = post.mean(X), zeros_like_rows((X.shape[0],), X)
        chunks = query_chunks(X.shape[0], len(post))
        if P.row.share > 0:
            chunks = row_slices(X.shape[0], min(256, max(1, SPACE // len(post) ** 2)))
        for s in chunks:
            Phi = post.features(X[s])
            if P.row.share > 0:
                shift, variance[s] = self._conditioned(X[s], Phi)
            else:  # the rows' D and B do not depend on the query
                G, S, E = corrections(post, P, X[s], Phi)
                shift, variance[s] = self._bordered(X[s], Phi, Phi @ post.A, G.T @ post.A, S, E)
            mean[s] += shift[:, 0] if post.one_output else shift
        return Marginals(mean, variance)

    def jointly(self, X: Any) -> Posterior:
        """Return the posterior on the basis and all of X: queries depend on each other. [003 Definition 9]"""
        X = queries_like(X, self.problem.X)
        basis = union(self.kernel, self.basis, Points(X))[0]
        return posterior_of(replace(self.problem, basis=basis.on(X)))

    def covariance(self, X: Any) -> Array:
        """Return the joint covariance of f(X) under `jointly`; `predict` takes each query alone."""
        return self.jointly(X).covariance(X)

    def _conditioned(self, X: Array, Phi: Array) -> tuple[Array, Array]:
        """Return change of mean and variance for share a > 0. With τ = R_*bD⁻¹R_b*, q = ΦD⁻¹R_b*,
        f = ρ/(ρ - aτ) for each block b, or else each row,

        G = Σ f q,   S = Σ f τ,   E = Σ f R_*bD⁻¹e,   B̃ = B + Σ (a f/ρ) q qᵀ,
        w̃ = w + B̃⁻¹ Σ (a f/ρ) q R_*bD⁻¹e
        """
        post, P, t, m = self.posterior, self.problem, X.shape[0], len(self.basis)
        xp = namespace(X)
        rho = self._residual(X, Phi)

        def start() -> list[Array]:
            return [zeros_like_rows(shape, X) for shape in ((t, m), (t,), (t, P.p), (t, m, m), (t, m, P.p))]

        def step(sums: list[Array], rows: Any) -> None:
            T = terms(post, P, X, Phi, rows)
            for j in (j for j in range(t) if rho[j] > 0):
                v, r = T.V[:, j], T.R[:, j]
                if P.blocks is None:
                    q, tau, known = T.Phi * v[:, None], r * v, v[:, None] * T.E
                else:
                    q, tau, known = (v @ T.Phi)[None, :], xp.sum(r * v)[None], (v @ T.E)[None, :]
                f = rho[j] / (rho[j] - P.row.share * tau / T.weight)
                for total, each in zip(sums[:3], (q, tau, known)):
                    total[j] += f @ each
                scale = P.row.share * f / (rho[j] * T.weight)
                moved = f > 1.0  # elsewhere D̃ is D to the last digit
                half = xp.sqrt(scale[moved])[:, None] * q[moved]
                sums[3][j] = la.add_gram(sums[3][j], la.contiguous(half))
                sums[4][j] += half.T @ (xp.sqrt(scale[moved])[:, None] * known[moved])

        G, S, E, more, information = sums_over_rows(post, P, start, step)
        assert post.A is not None
        LB = la.inverse_lower(la.contiguous(post.A.T))
        B, a, h = LB @ LB.T, 0.0 * Phi, 0.0 * Phi
        shift = zeros_like_rows((t, P.p), X)
        for j in range(t):
            L = la.cholesky(B + la.from_lower(more[j]))
            a[j], h[j] = la.solve_lower(L, Phi[j]), la.solve_lower(L, G[j])
            change = la.solve_lower(L, la.solve_lower(L, information[j]), transposed=True)
            shift[j] = Phi[j] @ change
            E[j] -= G[j] @ change
        correction, variance = self._bordered(X, Phi, a, h, S, E)
        return shift + correction, variance

    def _bordered(self, X: Array, Phi: Array, a: Array, h: Array, S: Array, E: Array) -> tuple[Array, Array]:
        """Return change of mean and variance by the class's formulas; a query in the span adds nothing."""
        xp = namespace(X)
        rho = self._residual(X, Phi)
        lead = rho - la.row_dots(a, h)
        gain = xp.where(rho > 0, lead / xp.where(rho > 0, rho + S - la.row_squares(h), 1.0), 0.0)
        return gain[:, None] * E, la.row_squares(a) + gain * lead

    def _residual(self, X: Array, Phi: Array) -> Array:
        """Return ρ = R_** of each query, zero if it is only rounding. (t,)"""
        prior = self.kernel.diagonal(X)
        rho = prior - la.row_squares(Phi)
        return namespace(X).where(rho > SPAN * prior, rho, 0.0)


def condition(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    noise: Any,
    X: Any,
    y: Any,
    *,
    power: float | None = None,
    **options: Any,
) -> Augmented:
    """Augment a row of the table, by its name or "asor" for "sor". Arguments as for `inducing.condition`."""
    entry = approximation_of("sor" if approximation == "asor" else approximation, power)
    P = problem_of(kernel, basis, entry, noise, X, y, **options)
    if P.row.name in DENSE:
        raise ParameterError(f"{P.row.name!r} cannot be augmented, since f* already depends on all the data")
    if P.row.keeps == "neighbours":
        raise ParameterError(f"{P.row.name!r} cannot be augmented; give its rows more neighbours instead")
    check_gaussian(P, "asor")
    return Augmented(posterior_of(P), P)
