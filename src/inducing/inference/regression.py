"""Batch regression: `condition` and the evidence, for the rows of the table, the exact GP and subsets of
data.
"""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from ..engine import evidence
from ..engine.parts import Parted, make_parted
from ..errors import ParameterError, UnknownNameError
from ..model.bases import Basis, Points
from ..model.kernels.base import Gradients, Kernel
from ..model.means import Mean
from ..model.posterior import Posterior
from ..model.problem import DEFAULT_JITTER, Problem, as_inputs, make_problem, noise_gradient, subset
from ..model.table import FITC, TABLE, row
from ..numerics.arrays import Array, is_numpy, namespace, to_numpy
from ..numerics.linalg import (
    cholesky,
    contiguous,
    inverse_lower,
    log_det_from_factor,
    plus_diagonal,
    solve_lower,
)
from ..numerics.workers import blas_for
from ..sources.source import Source
from .pic import PICPredictor, Predictor

DENSE = ("exact", "sod", "cg")  # whose basis is rows of the data
NAMES = (*DENSE, *TABLE)
# what is not one effective prior, and the module whose `condition` makes it: it builds on this one
BESIDE = {
    "bcm": "beside.committee",
    "rbcm": "beside.committee",
    "gpoe": "beside.committee",
    "poe": "beside.committee",
    "nystrom": "beside.nystrom",
    "asor": "beside.augmentation",
}


def condition(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    noise: Any,
    X: Any,
    y: Any = None,
    *,
    mean: Mean | None = None,
    jitter: float = DEFAULT_JITTER,
    blocks: Any = None,
    power: float | None = None,
    weights: Any = None,
) -> Posterior | Predictor:
    """The posterior under one row of the table, given data. [003 Table 1]

    noise is a variance, one number or one per row; y is (n,) or (n, p), outputs sharing one factorisation;
    blocks are integer labels (n,) for "pitc", "pic" and committees; power is PEP's; weights count a row
    several times. "exact" ignores the basis, "sod" takes the training rows nearest to it; "cg" is "exact"
    without a factor of K, by conjugate gradients, for as many rows as there is time for
    (`inducing.iterative`). "cg", "pic", and the methods beside the table ("bcm", "rbcm", "gpoe", "poe", which
    have no use for a basis, "nystrom", "asor"), give a predictor, since they need the data at every query.

    X may be a `Source` that has the targets, too; y is then left out. Its rows are read part by part, twice
    for each value of the evidence, by the rows of the table but "pic". Noise is one number there, and blocks
    the rows of a block, into which each part is cut; None takes whole parts as blocks.
    """
    if approximation in BESIDE and not isinstance(X, Source):
        make = import_module(f"inducing.{BESIDE[approximation]}").condition
        return make(
            kernel,
            basis,
            approximation,
            noise,
            X,
            y,
            mean=mean,
            jitter=jitter,
            blocks=blocks,
            power=power,
            weights=weights,
        )
    P = problem_of(
        kernel,
        basis,
        approximation,
        noise,
        X,
        y,
        mean=mean,
        jitter=jitter,
        blocks=blocks,
        power=power,
        weights=weights,
    )
    if isinstance(P, Parted):
        return posterior_of(P)
    if approximation in DENSE:
        return dense_model_of(P, approximation)
    post = posterior_of(P)
    return PICPredictor(post, P) if P.row.own_block else post


def dense_model_of(P: Problem, approximation: str) -> Posterior | Predictor:
    """The exact GP on a problem's rows, by a factor of K or by conjugate gradients."""
    return (
        import_module("inducing.inference.conjugate_gradients.predictor").predictor_of(P)
        if approximation == "cg"
        else exact_posterior_of(P)
    )


def posterior_of(P: Problem | Parted) -> Posterior:
    """The posterior of a checked problem under its row of the table; for PIC this is PITC's."""
    F = evidence.factorise(P)
    return Posterior(
        kernel=P.kernel,
        basis=P.basis,
        L=F.Luu,
        w=F.w,
        A=contiguous(F.LBinv.T),
        mean_function=P.mean,
        conditional=P.row.conditional,
        log_evidence=evidence.log_evidence(P, F),
        jitter=F.jitter,
        one_output=P.one_output,
    )


def log_evidence(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    noise: Any,
    X: Any,
    y: Any = None,
    *,
    mean: Mean | None = None,
    jitter: float = DEFAULT_JITTER,
    blocks: Any = None,
    power: float | None = None,
    weights: Any = None,
) -> float:
    """log q(y) of the row. Arguments as for `condition`."""
    P = problem_of(
        kernel,
        basis,
        approximation,
        noise,
        X,
        y,
        mean=mean,
        jitter=jitter,
        blocks=blocks,
        power=power,
        weights=weights,
    )
    if approximation in DENSE and isinstance(P, Problem):
        if approximation == "cg":
            return (
                import_module("inducing.inference.conjugate_gradients.predictor").predictor_of(P).log_evidence
            )
        return _exact_value(P, cholesky(_covariance(P)))
    return evidence.log_evidence(P, evidence.factorise(P))


def log_evidence_and_gradient(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    noise: Any,
    X: Any,
    y: Any = None,
    *,
    mean: Mean | None = None,
    jitter: float = DEFAULT_JITTER,
    blocks: Any = None,
    power: float | None = None,
    weights: Any = None,
) -> tuple[float, dict[str, Any]]:
    """log q(y) and its gradient in every raw parameter, each with the others held: "kernel.lengthscale",
    "basis.Z", "noise", "mean.value", and so on by path. Arguments as for `condition`.
    """
    P = problem_of(
        kernel,
        basis,
        approximation,
        noise,
        X,
        y,
        mean=mean,
        jitter=jitter,
        blocks=blocks,
        power=power,
        weights=weights,
    )
    return gradient_of(P, approximation)


def gradient_of(
    P: Problem | Parted, approximation: str, *, escalate: bool = True
) -> tuple[float, dict[str, Any]]:
    """The same for a problem that has been checked already; `escalate=False` raises where jitter would have
    to grow.
    """
    if approximation == "cg" and isinstance(P, Problem):
        found, gradient = import_module(
            "inducing.inference.conjugate_gradients.predictor"
        ).log_evidence_and_gradient(P)
        return found.value, gradient
    if approximation in DENSE and isinstance(P, Problem):
        with blas_for(P.n):
            return _exact_gradient(P)
    with blas_for(len(P.basis)):
        return evidence.log_evidence_and_gradient(P, escalate=escalate)


def problem_of(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    noise: Any,
    X: Any,
    y: Any,
    *,
    mean: Mean | None,
    jitter: float,
    blocks: Any,
    power: float | None,
    weights: Any,
) -> Problem | Parted:
    """The checked problem behind a call of `condition`, `log_evidence` or `fit`, on arrays or on a source."""
    if not isinstance(X, Source):
        return make_regression(
            kernel,
            basis,
            approximation,
            noise,
            X,
            y,
            mean=mean,
            jitter=jitter,
            blocks=blocks,
            power=power,
            weights=weights,
        )
    if y is not None:
        raise ParameterError("a source has its targets inside; leave y out")
    if approximation in DENSE or approximation in BESIDE:
        known = ", ".join(name for name, entry in TABLE.items() if not entry.own_block)
        raise ParameterError(
            f"{approximation!r} needs all rows in memory at once; over a source use one of {known}"
        )
    return make_parted(
        kernel,
        basis,
        row(approximation, power),
        noise,
        X,
        mean=mean,
        jitter=jitter,
        blocks=blocks,
        weights=weights,
    )


def make_regression(
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
) -> Problem:
    """The checked problem on arrays."""
    if approximation in BESIDE:
        raise ParameterError(
            f"{approximation!r} has no evidence to maximise and no model to keep without the data, since "
            "what it computes "
            f"depends on the queries; learn with one of {', '.join(NAMES)}, then call condition with "
            f"{approximation!r}"
        )
    if approximation not in NAMES:
        raise UnknownNameError(
            f"there is no approximation {approximation!r}; choose one of {', '.join((*NAMES, *BESIDE))}"
        )
    if approximation in DENSE:
        if power is not None:
            raise ParameterError(f"power is only for 'pep', not for {approximation!r}")
        X = as_inputs(X)
        P = make_problem(kernel, Points(X), FITC, noise, X, y, mean=mean, jitter=jitter, weights=weights)
        if approximation != "sod":
            return replace(P, basis=Points(P.X))
        return subset(P, _nearest_rows(P.X, basis))
    if basis is None:
        raise ParameterError(f"{approximation!r} needs a basis; only 'exact' does without")
    return make_problem(
        kernel,
        basis,
        row(approximation, power),
        noise,
        X,
        y,
        mean=mean,
        jitter=jitter,
        blocks=blocks,
        weights=weights,
    )


def _nearest_rows(X: Array, basis: Basis | None) -> np.ndarray:
    """The training row nearest to each basis function, each row once: the subset of "sod"."""
    if basis is None:
        raise ParameterError(
            "'sod' needs a basis: its subset is the training rows nearest to the basis functions"
        )
    Z = to_numpy(next(iter(basis.parameters.values())))
    rows = to_numpy(X)
    return np.unique([np.argmin(np.sum((rows - z) ** 2, axis=1)) for z in Z])


# The exact GP: O(n³) time, O(n²) memory. [003 eq. 6]


def _covariance(P: Problem) -> Array:
    return plus_diagonal(P.kernel(P.X, P.X), P.noise / P.weight(slice(None)))


def _exact_value(P: Problem, L: Array) -> float:
    z = solve_lower(L, P.Y)
    return log_density_of(P, float(namespace(P.X).sum(z * z)), float(log_det_from_factor(L)))


def log_density_of(P: Problem, quadratic: float, log_det: float) -> float:
    """log N(y | m0, K + Σ) from yᵀ(K + Σ)⁻¹y, summed over outputs, and log|K + Σ|."""
    xp = namespace(P.X)
    value = quadratic + P.p * (P.n * math.log(2 * math.pi) + log_det)
    if P.weights is not None:  # the factors that w copies of a row leave behind; see evidence._first_blocks
        extra = (P.weights - 1.0) * xp.log(2 * math.pi * P.noise) + xp.log(P.weights)
        value += P.p * float(xp.sum(extra))
    return -0.5 * value


def exact_posterior_of(P: Problem) -> Posterior:
    """The exact GP on a problem's rows, whatever its row of the table."""
    L = cholesky(_covariance(P))
    return Posterior(
        kernel=P.kernel,
        basis=P.basis,
        L=L,
        w=solve_lower(L, P.Y),
        A=None,
        mean_function=P.mean,
        log_evidence=_exact_value(P, L),
        jitter=P.jitter,
        one_output=P.one_output,
    )


def _exact_gradient(P: Problem) -> tuple[float, dict[str, Any]]:
    """½ tr[(ααᵀ - p(K + Σ)⁻¹) dK] in every parameter."""
    xp = namespace(P.X)
    L = cholesky(_covariance(P))
    Linv = inverse_lower(L)
    alpha = Linv.T @ (Linv @ P.Y)
    Kbar = 0.5 * (alpha @ alpha.T - P.p * (Linv.T @ Linv))
    diagonal = xp.asarray(xp.linalg.diagonal(Kbar), copy=True)  # the kernel may overwrite Kbar
    return _exact_value(P, L), exact_gradient_of(P, P.kernel.pullback(P.X, P.X, Kbar)[0], diagonal, alpha)


def exact_gradient_of(P: Problem, kernel: Gradients, diagonal: Array, alpha: Array) -> dict[str, Any]:
    """By name, from the kernel's own part, the diagonal of K̄ (n,) and α (n, p)."""
    noise_bar = diagonal / P.weight(slice(None))
    if P.weights is not None:
        noise_bar = noise_bar - 0.5 * P.p * (P.weights - 1.0) / P.noise
    gradient: dict[str, Any] = {f"kernel.{k}": g for k, g in kernel.items()}
    gradient["noise"] = noise_gradient(P, noise_bar)
    gradient |= {
        f"mean.{k}": g for k, g in P.mean.pullback(P.X, alpha[:, 0] if P.one_output else alpha).items()
    }
    if is_numpy(P.X):
        gradient = {k: float(g) if np.ndim(g) == 0 else np.asarray(g) for k, g in gradient.items()}
    return gradient
