"""The Nyström method of prediction, and sums over the data that augmentation uses, too. [003 §8.1, §10.1]

Both correct a posterior by R_f* = K_f* - ΦᵀΦ_*, the covariance of data and queries that the basis does not
explain. With v = D⁻¹R_f* and e = y - Φᵀw the corrections are sums over rows,

    G = Φv    S = R_*f v    E = vᵀe

at O(nm) for each query; Φ is computed again in each call; memory O(chunk (m + t)).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..engine.block_passes import Whole
from ..errors import ParameterError
from ..inference.pic import Corrected
from ..inference.regression import posterior_of, problem_of
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.posterior import Marginals, Posterior, warn_if_negative
from ..model.problem import Problem, queries_like
from ..numerics.arrays import SMALL, Array, is_numpy, namespace, zeros_like_rows
from ..numerics.linalg import row_squares
from ..numerics.workers import chunk_rows, row_slices, run_over


class Terms(NamedTuple):
    """The terms of the sums from one chunk of rows, or one block, for t queries."""

    Phi: Array  # (c, m)
    R: Array  # (c, t)
    V: Array  # (c, t), D⁻¹R with the rows' weights
    E: Array  # (c, p), y less the posterior mean
    weight: Array | float  # (c,), of the rows; 1 in a block, whose D includes them


def terms(post: Posterior, P: Problem, X: Array, Phi_X: Array, rows: Any) -> Terms:
    """Return the terms of some rows of P, a slice or one of its blocks, for queries X with features Phi_X."""
    Xr = P.X[rows]
    Phi = post.features(Xr)
    R = P.kernel.covariances(Xr, X) - Phi @ Phi_X.T
    E = P.Y[rows] - Phi @ post.w
    if P.blocks is not None:
        Linv = Whole.of(P, Phi, rows).Linv
        return Terms(Phi, R, Linv.T @ (Linv @ R), E, 1.0)
    weight, D = P.weight(rows), P.noise[rows]
    if P.row.share:
        D = D + P.row.share * (P.kernel.diagonal(Xr) - row_squares(Phi))
    return Terms(Phi, R, R * (weight / D)[:, None], E, weight)


def corrections(
    post: Posterior, P: Problem, X: Array, Phi: Array, *, joint: bool = False
) -> tuple[Array, Array, Array]:
    """Compute G (m, t), S or its diagonal, (t, t) if `joint` else (t,), and E (t, p)."""
    t, xp = X.shape[0], namespace(X)

    def start() -> list[Array]:
        shapes = ((len(post), t), (t, t) if joint else (t,), (t, P.p))
        return [zeros_like_rows(shape, X) for shape in shapes]

    def step(sums: list[Array], rows: Any) -> None:
        T = terms(post, P, X, Phi, rows)
        sums[0] += T.Phi.T @ T.V
        sums[1] += T.R.T @ T.V if joint else xp.sum(T.R * T.V, axis=0)
        sums[2] += T.V.T @ T.E

    G, S, E = sums_over_rows(post, P, start, step)
    return G, S, E


def sums_over_rows(
    post: Posterior, P: Problem, start: Callable[[], list[Array]], step: Callable[[list[Array], Any], None]
) -> list[Array]:
    """Run `step` over chunks of rows, or blocks, on all cores, and add its sums in a fixed order."""
    tasks: list[Any] = P.blocks or row_slices(P.n, chunk_rows(P.n, len(post), P.X))
    _ = post.features(P.X[:1])  # computes what the threads share before they start
    parts = run_over(tasks, start, step, parallel=is_numpy(P.X) and P.n * max(len(post), 1) >= SMALL)
    return [sum(rest, first) for first, *rest in zip(*parts, strict=True)]


def query_chunks(t: int, m: int) -> list[slice]:
    """Slice queries into chunks of m or more, so that computing Φ for each costs no more than using it."""
    return row_slices(t, max(256, m))


@dataclass(frozen=True, eq=False)
class Nystrom(Corrected):
    """The Nyström predictor, with Q_ff in place of K_ff and everything else exact. [003 eqs 31, 32]

        mean = K_*f (Q_ff + Σ)⁻¹ y,   covariance = K_** - K_*f (Q_ff + Σ)⁻¹ K_f*

    With K_f* = Φᵀφ_* + R_f*, a = LB⁻¹φ_*, h = LB⁻¹ΦΣ⁻¹R_f*, these are DTC's mean plus R_*fΣ⁻¹(y - Φᵀw), and

        covariance = R_** + (a - h)ᵀ(a - h) - R_*fΣ⁻¹R_f*

    which may be negative. Negative variances are returned as computed, with a NegativeVarianceWarning that
    counts them.
    """

    posterior: Posterior  # DTC's, which has the same covariance Q_ff + Σ of y
    problem: Problem

    def predict(self, X: Any) -> Marginals:
        """Return mean and variance of each f(x). O(n) and O(nm) for each query."""
        X = queries_like(X, self.problem.X)
        mean, variance = self.posterior.mean(X), zeros_like_rows((X.shape[0],), X)
        for s in query_chunks(X.shape[0], len(self.posterior)):
            Phi = self.posterior.features(X[s])
            G, S, E = corrections(self.posterior, self.problem, X[s], Phi)
            half = (Phi - G.T) @ self.posterior.A  # (a - h)ᵀ
            mean[s] += E[:, 0] if self.posterior.one_output else E
            variance[s] = self.kernel.diagonal(X[s]) - row_squares(Phi) + row_squares(half) - S
        warn_if_negative(variance)
        return Marginals(mean, variance)

    def covariance(self, X: Any) -> Array:
        """Return the matrix of eq. 32 for all of f(X), which may be indefinite."""
        X = queries_like(X, self.problem.X)
        Phi = self.posterior.features(X)
        G, S, _ = corrections(self.posterior, self.problem, X, Phi, joint=True)
        half = (Phi - G.T) @ self.posterior.A
        joint = self.kernel.covariances(X, X) - Phi @ Phi.T + half @ half.T - S
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


def check_gaussian(P: Problem, name: str) -> None:
    """Raise if the problem of a method that needs Gaussian noise has another likelihood."""
    if P.likelihood is not None:
        raise ParameterError(f"{name!r} needs Gaussian noise, not {P.likelihood}; use 'fitc' or 'vfe'")
