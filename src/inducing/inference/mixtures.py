"""Mixtures of Gaussians as likelihoods of vectors, perhaps with a prior divided out. [004 appendix F]

A mixture does for fields what a `Likelihood` does for processes with one output: it gives log⟨t(z)⟩ under z ~
N(mean, W), and its derivatives in the mean, a vector q and a matrix r.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..errors import FactorisationError, NonFiniteError, ParameterError, ShapeError
from ..numerics.workers import interruptible
from . import field_loops as loops

AVERAGE = 1 << 14  # estimate of the multiplications that the average of a component takes


@dataclass(frozen=True, eq=False)
class Mixtures:
    """A sum of k Gaussians in the vector z at each of n nodes, in canonical form and up to a constant.

        t(z) = Σⱼ exp(cⱼ + bⱼᵀz - ½ zᵀΛⱼz)

    Λ may be singular or indefinite, so that a mixture divided by a prior is one again. A component with c =
    -inf does not exist.
    """

    log_c: np.ndarray  # (n, k)
    b: np.ndarray  # (n, k, p)
    Lam: np.ndarray  # (n, k, p, p)

    @staticmethod
    def of(
        weights: ArrayLike,
        means: ArrayLike,
        covariances: ArrayLike,
        prior_mean: ArrayLike | None = None,
        prior_covariance: ArrayLike | None = None,
    ) -> "Mixtures":
        """Make Σⱼ βⱼ N(z; cⱼ, Aⱼ), for instance from a local retrieval. [004 eq. 5.32]

        weights (n, k) ≥ 0, means (n, k, p), covariances (n, k, p, p). The prior N(μ₀, W₀) that the retrieval
        used, μ₀ (p,) or (n, p) and W₀ (p, p) or (n, p, p), is divided out: p_m(z)/p₀(z). [004 eq. F.1]

            Λ = A⁻¹ - W₀⁻¹,   b = A⁻¹c - W₀⁻¹μ₀,   exp(c) = β N(0; c, A)/N(0; μ₀, W₀)

        Appendix F takes μ₀ = 0; here it may be anything, a forecast for instance.
        """
        weights, means, A = (np.asarray(v, dtype=float) for v in (weights, means, covariances))
        if means.ndim != 3 or weights.shape != means.shape[:2] or A.shape != (*means.shape, means.shape[2]):
            shapes = f"{weights.shape}, {means.shape} and {A.shape}"
            raise ShapeError(
                f"weights (n, k), means (n, k, p), covariances (n, k, p, p) do not fit: {shapes}"
            )
        if not (np.all(weights >= 0.0) and np.all(weights.sum(axis=1) > 0.0)):
            raise ParameterError("the weights of every node must be zero or positive, and not all zero")
        log_c, b, Lam = _canonical(means, A)
        with np.errstate(divide="ignore"):
            log_c = log_c + np.log(weights)
        if prior_covariance is not None:
            p = means.shape[2]
            W0 = np.broadcast_to(np.asarray(prior_covariance, dtype=float), (len(means), p, p))
            mean = np.zeros(p) if prior_mean is None else np.asarray(prior_mean, dtype=float)
            log_c0, b0, Lam0 = _canonical(np.broadcast_to(mean, (len(means), p)), W0)
            log_c, b, Lam = log_c - log_c0[:, None], b - b0[:, None], Lam - Lam0[:, None]
        elif prior_mean is not None:
            raise ParameterError("a prior mean without a prior covariance cannot be divided out; give both")
        return Mixtures(log_c, b, Lam)

    def __post_init__(self) -> None:
        for name in ("log_c", "b", "Lam"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=float))
        n, k, p = self.b.shape
        if self.log_c.shape != (n, k) or self.Lam.shape != (n, k, p, p):
            raise ShapeError(f"log_c {self.log_c.shape}, b {self.b.shape}, Lam {self.Lam.shape} do not fit")
        finite = np.all(np.isfinite(self.b)) and np.all(np.isfinite(self.Lam))
        if np.any(np.isnan(self.log_c)) or not finite:
            raise NonFiniteError("a mixture holds NaN or infinity; every mean and covariance must be finite")

    def __len__(self) -> int:
        return len(self.b)

    def __getitem__(self, rows: slice | np.ndarray) -> "Mixtures":
        return Mixtures(self.log_c[rows], self.b[rows], self.Lam[rows])

    @property
    def components(self) -> int:
        """The number p of z's components."""
        return self.b.shape[2]

    def log_terms(self, Z: ArrayLike) -> np.ndarray:
        """Return the logarithm of every term at Z (n, p). (n, k)"""
        Z = np.asarray(Z, dtype=float)
        linear, quadratic = np.einsum("nkp,np->nk", self.b, Z), np.einsum("np,nkpq,nq->nk", Z, self.Lam, Z)
        return self.log_c + linear - 0.5 * quadratic

    def log_density(self, Z: ArrayLike) -> np.ndarray:
        """Return log t(z) at Z (n, p). (n,)"""
        return np.logaddexp.reduce(self.log_terms(Z), axis=1)

    def tilted(self, mean: ArrayLike, covariance: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return log⟨t(z)⟩ (n,), z ~ N(mean, covariance), and its mean derivatives q (n, p), r (n, p, p)."""
        mean, W = np.ascontiguousarray(mean, dtype=float), np.ascontiguousarray(covariance, dtype=float)
        n, p = len(self), self.components
        if mean.shape != (n, p) or W.shape != (n, p, p):
            needed = f"{n} vectors of {p} components need a mean {(n, p)}"
            raise ShapeError(f"{needed}, not {mean.shape}, and covariances to fit")
        value, q, r = np.empty(n), np.empty((n, p)), np.empty((n, p, p))
        rows = self.log_c, self.b, self.Lam, mean, W, value, q, r
        for some in interruptible(len(mean), self.log_c.shape[1] * AVERAGE):
            loops.tilt_rows(*(part[some] for part in rows))
        return value, q, r


def _canonical(mean: np.ndarray, A: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return c, b and Λ of log N(z; mean, A) = c + bᵀz - ½ zᵀΛz."""
    try:
        L = np.linalg.cholesky(A)
    except np.linalg.LinAlgError as error:
        raise FactorisationError("a covariance in a mixture is not positive definite") from error
    Lam = np.linalg.inv(A)
    Lam = 0.5 * (Lam + np.swapaxes(Lam, -1, -2))
    b = np.einsum("...pq,...q->...p", Lam, mean)
    log_det = 2.0 * np.sum(np.log(np.diagonal(L, axis1=-2, axis2=-1)), axis=-1)
    p = mean.shape[-1]
    return -0.5 * (p * np.log(2.0 * np.pi) + log_det + np.einsum("...p,...p->...", b, mean)), b, Lam
