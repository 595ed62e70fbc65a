"""The Nyström method of prediction, which is no prior: its variance can be negative. [003 §10.1]"""

from dataclasses import dataclass
from typing import Any

from ..errors import ParameterError
from ..inference.pic import Corrected
from ..inference.regression import posterior_of, problem_of
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.posterior import Marginals, Posterior, warn_if_negative
from ..model.problem import Problem, queries_like
from ..numerics.arrays import Array, namespace, zeros_like_rows
from ..numerics.linalg import row_squares
from .residuals import check_gaussian, corrections, query_chunks


@dataclass(frozen=True, eq=False)
class Nystrom(Corrected):
    """The Nyström predictor: K_ff replaced by Q_ff, everything else exact. [003 eqs 31, 32]

        mean = K_*f (Q_ff + Σ)⁻¹ y,   covariance = K_** - K_*f (Q_ff + Σ)⁻¹ K_f*

    With K_f* = Φᵀφ_* + R_f*, a = LB⁻¹φ_*, h = LB⁻¹ΦΣ⁻¹R_f*, these are DTC's mean plus R_*fΣ⁻¹(y - Φᵀw), and

        covariance = R_** + (a - h)ᵀ(a - h) - R_*fΣ⁻¹R_f*

    which nothing keeps positive. Negative variances are returned as computed, with a NegativeVarianceWarning
    that counts them.
    """

    posterior: Posterior  # DTC's, whose Q_ff + Σ is the covariance of y here, too
    problem: Problem

    def predict(self, X: Any) -> Marginals:
        """Mean and variance of each f(x). O(n) and O(nm) per row."""
        X = queries_like(X, self.problem.X)
        mean, variance = self.posterior.mean(X), zeros_like_rows((X.shape[0],), X)
        for s in query_chunks(X.shape[0], len(self.posterior)):
            Phi = self.posterior.features(X[s])
            G, S, E = corrections(self.posterior, self.problem, X[s], Phi)
            half = (Phi - G.T) @ self.posterior.A  # (a - h)ᵀ
            mean[s] += E[:, 0] if self.posterior.one_output else E
            variance[s] = self.kernel.diag(X[s]) - row_squares(Phi) + row_squares(half) - S
        warn_if_negative(variance)
        return Marginals(mean, variance)

    def covariance(self, X: Any) -> Array:
        """The matrix of eq. 32 for all of f(X), which need not be positive semi-definite."""
        X = queries_like(X, self.problem.X)
        Phi = self.posterior.features(X)
        G, S, _ = corrections(self.posterior, self.problem, X, Phi, joint=True)
        half = (Phi - G.T) @ self.posterior.A
        joint = self.kernel(X, X) - Phi @ Phi.T + half @ half.T - S
        warn_if_negative(namespace(joint).linalg.diagonal(joint))
        return joint


def condition(
    kernel: Kernel, basis: Basis | None, approximation: str, noise: Any, X: Any, y: Any, **options: Any
) -> Nystrom:
    """Make the Nyström predictor; arguments and options as for `inducing.condition`, without blocks."""
    if options.pop("power", None) is not None:
        raise ParameterError(f"power is only for 'pep', not for {approximation!r}")
    P = problem_of(kernel, basis, "dtc", noise, X, y, **options | {"blocks": None})
    check_gaussian(P, approximation)
    return Nystrom(posterior_of(P), P)
