"""The Nyström method for Gaussian process prediction: not a prior, and its variance can be negative. [003
§10.1]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import ParameterError
from ..inference.regression import posterior_of, problem_of
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.means import Mean
from ..model.posterior import Marginals, Posterior, warn_if_negative
from ..model.problem import DEFAULT_JITTER, Problem, queries_like
from ..model.table import DTC
from ..numerics.arrays import Array, namespace, zeros_like_rows
from ..numerics.linalg import row_squares
from .residuals import add_up, over_rows, query_chunks, terms


@dataclass(frozen=True, eq=False)
class Nystrom:
    """K_ff replaced by Q_ff, everything else exact: [003 eqs 31, 32]

        mean = K_*f (Q_ff + Σ)⁻¹ y,   covariance = K_** - K_*f (Q_ff + Σ)⁻¹ K_f*

    With K_f* = Φᵀφ_* + R_f*, a = LB⁻¹φ_*, h = LB⁻¹ΦΣ⁻¹R_f*, these are DTC's mean plus R_*fΣ⁻¹(y - Φᵀw), and

        covariance = R_** + (a - h)ᵀ(a - h) - R_*fΣ⁻¹R_f*

    which nothing keeps positive. Negative variances are returned as computed, with a NegativeVarianceWarning
    that counts them.
    """

    dtc: Posterior
    problem: Problem

    @property
    def log_evidence(self) -> float | None:
        """DTC's: both have Q_ff + Σ as the covariance of y."""
        return self.dtc.log_evidence

    @property
    def kernel(self) -> Kernel:
        return self.dtc.kernel

    @property
    def basis(self) -> Basis:
        return self.dtc.basis

    def predict(self, X: Any) -> Marginals:
        """Mean and variance of each f(x). O(n) and O(nm) per row."""
        X = queries_like(X, self.problem.X)
        mean, variance = self.dtc.mean(X), zeros_like_rows((X.shape[0],), X)
        for s in query_chunks(X.shape[0], len(self.dtc)):
            Phi = self.dtc.features(X[s])
            shift, half, S = self._corrections(X[s], Phi, joint=False)
            mean[s] += shift[:, 0] if self.dtc.one_output else shift
            variance[s] = self.kernel.diag(X[s]) - row_squares(Phi) + row_squares(half) - S
        warn_if_negative(variance)
        return Marginals(mean, variance)

    def covariance(self, X: Any) -> Array:
        """The matrix of eq. 32 for all of f(X), which need not be positive semi-definite."""
        X = queries_like(X, self.problem.X)
        Phi = self.dtc.features(X)
        _, half, S = self._corrections(X, Phi, joint=True)
        joint = self.kernel(X, X) - Phi @ Phi.T + half @ half.T - S
        warn_if_negative(namespace(joint).linalg.diagonal(joint))
        return joint

    def _corrections(self, X: Array, Phi: Array, *, joint: bool) -> tuple[Array, Array, Array]:
        """R_*fΣ⁻¹(y - Φᵀw) (t, p), (a - h)ᵀ (t, m), and R_*fΣ⁻¹R_f* or its diagonal."""
        post, P, t = self.dtc, self.problem, X.shape[0]

        def start() -> list[Array]:
            shapes = ((len(post), t), (t, P.p), (t, t) if joint else (t,))
            return [zeros_like_rows(shape, X) for shape in shapes]

        def step(sums: list[Array], rows: Any) -> None:
            T = terms(post, P, X, Phi, rows)
            sums[0] += T.Phi.T @ T.V
            sums[1] += T.V.T @ T.E
            sums[2] += T.R.T @ T.V if joint else namespace(X).sum(T.R * T.V, axis=0)

        G, shift, S = add_up(over_rows(post, P, start, step))
        return shift, (Phi - G.T) @ post.A, S


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
) -> Nystrom:
    """The Nyström predictor; arguments as for `inducing.condition`."""
    if power is not None:
        raise ParameterError(f"power is only for 'pep', not for {approximation!r}")
    P = problem_of(kernel, basis, DTC.name, noise, X, y, mean=mean, jitter=jitter, weights=weights)
    return Nystrom(posterior_of(P), P)
