"""The exact GP on a problem's rows, by a Cholesky factor of K + Σ: O(n³) time, O(n²) memory. [003 eq. 6]"""

from __future__ import annotations

import math

import numpy as np

from ..model.kernels.base import Gradients
from ..model.posterior import Posterior
from ..model.problem import Problem, noise_gradient
from ..numerics.arrays import Array, is_numpy, namespace
from ..numerics.linalg import cholesky, inverse_lower, log_det_from_factor, plus_diagonal, solve_lower


def exact_evidence(P: Problem) -> float:
    """log N(y | m0, K + Σ)."""
    return _value(P, cholesky(_covariance(P)))


def exact_posterior(P: Problem) -> Posterior:
    """The exact GP, whatever the problem's row of the table."""
    L = cholesky(_covariance(P))
    return Posterior(
        kernel=P.kernel,
        basis=P.basis,
        L=L,
        w=solve_lower(L, P.Y),
        A=None,
        mean_function=P.mean,
        log_evidence=_value(P, L),
        jitter=P.jitter,
        one_output=P.one_output,
    )


def exact_gradient(P: Problem) -> tuple[float, Gradients]:
    """log N(y | m0, K + Σ) and ½ tr[(ααᵀ - p(K + Σ)⁻¹) dK] in every parameter."""
    xp = namespace(P.X)
    L = cholesky(_covariance(P))
    Linv = inverse_lower(L)
    alpha = Linv.T @ (Linv @ P.Y)
    Kbar = 0.5 * (alpha @ alpha.T - P.p * (Linv.T @ Linv))
    diagonal = xp.asarray(xp.linalg.diagonal(Kbar), copy=True)  # the kernel may overwrite Kbar
    return _value(P, L), gradient_by_name(P, P.kernel.pullback(P.X, P.X, Kbar)[0], diagonal, alpha)


def gradient_by_name(P: Problem, kernel: Gradients, diagonal: Array, alpha: Array) -> Gradients:
    """The gradient by name, from the kernel's own part, the diagonal of K̄ (n,) and α (n, p)."""
    noise_bar = diagonal / P.weight(slice(None))
    if P.weights is not None:
        noise_bar = noise_bar - 0.5 * P.p * (P.weights - 1.0) / P.noise
    gradient: Gradients = {f"kernel.{k}": g for k, g in kernel.items()}
    gradient[P.noise_name] = noise_gradient(P, noise_bar)
    gradient |= {
        f"mean.{k}": g for k, g in P.mean.pullback(P.X, alpha[:, 0] if P.one_output else alpha).items()
    }
    if is_numpy(P.X):
        gradient = {k: float(g) if np.ndim(g) == 0 else np.asarray(g) for k, g in gradient.items()}
    return gradient


def log_density(P: Problem, quadratic: float, log_det: float) -> float:
    """log N(y | m0, K + Σ) from yᵀ(K + Σ)⁻¹y, summed over outputs, and log|K + Σ|."""
    xp = namespace(P.X)
    value = quadratic + P.p * (P.n * math.log(2 * math.pi) + log_det)
    if P.weights is not None:  # c copies of a row: Π N(y|f, σ²) is N(y|f, σ²/c) (2πσ²)^(-(c-1)/2) c^(-1/2)
        extra = (P.weights - 1.0) * xp.log(2 * math.pi * P.noise) + xp.log(P.weights)
        value += P.p * float(xp.sum(extra))
    return -0.5 * value


def _covariance(P: Problem) -> Array:
    return plus_diagonal(P.kernel(P.X, P.X), P.noise / P.weight(slice(None)))


def _value(P: Problem, L: Array) -> float:
    z = solve_lower(L, P.Y)
    return log_density(P, float(namespace(P.X).sum(z * z)), float(log_det_from_factor(L)))
