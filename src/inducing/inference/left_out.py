"""Predictions of each row by the others, in closed form: `leave_one_out`. [003 §2, 001 eq. 9]

Without row i, the others and all parameters held, a Gaussian posterior predicts y_i by

    exact GP:        y_i - α_i / (K + Σ)⁻¹_ii                    and variance 1 / (K + Σ)⁻¹_ii
    row of a table:  (μ - sν) / (1 - τs)                         and variance s / (1 - τs) + R + σ²
    in blocks:       as the exact GP, with C = Q + D of blocks or neighbours for K + Σ

with μ = φᵀw, s = φᵀB⁻¹φ and the row's site τ, ν: one pass over the rows, no refit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine.evidence import factorise
from ..engine.passes import leave_out_pass
from ..engine.row_sites import LEAST_LEFT
from ..engine.sums import Back
from ..errors import ParameterError
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.means import Mean
from ..model.posterior import Posterior
from ..model.problem import DEFAULT_JITTER, Problem
from ..numerics.arrays import Array, Given, asarray_like, namespace, to_numpy
from ..numerics.linalg import row_squares
from ..numerics.workers import blas_for, chunk_rows, row_slices
from .exact import exact_left_out
from .regression import approximation_of, posterior_of, problem_of


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What the other rows say of each row: mean and variance of y, under a likelihood of f, and the log
    density of y.
    """

    mean: np.ndarray  # (n,) or (n, p)
    variance: np.ndarray  # (n,)
    log_density: np.ndarray  # (n,), of y, the mean over outputs
    error: np.ndarray  # (n,) or (n, p), y less the mean

    @property
    def std(self) -> np.ndarray:
        return np.sqrt(self.variance)


def leave_one_out(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    noise: Given,
    X: Given,
    y: Given,
    *,
    mean: Mean | None = None,
    jitter: float = DEFAULT_JITTER,
    blocks: Given = None,
    power: float | None = None,
    neighbours: Given = None,
    weights: Given = None,
) -> LeftOut:
    """Predictions of each row's y by all other rows, without a refit. Arguments as for `condition`.

    Under Gaussian noise they equal those of refits; a likelihood's are refits with the other sites held.
    """
    row = approximation_of(approximation, power, neighbours)
    options: dict[str, Any] = dict(mean=mean, jitter=jitter, blocks=blocks, weights=weights)
    return left_out_of(problem_of(kernel, basis, row, noise, X, y, **options))


def left_out_of(P: Problem) -> LeftOut:
    """The same for a checked problem."""
    if P.likelihood is not None and (P.row.name in ("exact", "sod") or P.row.keeps == "neighbours"):
        raise ParameterError(
            f"leave_one_out under {P.likelihood} needs a basis and no neighbours; use 'fitc'"
        )
    if P.row.name in ("exact", "sod"):
        with blas_for(P.n):
            error, variance = exact_left_out(P)
    elif P.row.keeps in ("blocks", "neighbours"):
        error, variance = _left_out_of_blocks(P)
    else:
        error, variance = left_out_errors(P, posterior_of(P))
    return _described(P, error, variance)


def _described(P: Problem, error: Array, variance: Array) -> LeftOut:
    """Errors (n, p) of y and variances (n,) of f as predictions of y."""
    if P.likelihood is not None:
        mean, of_f = to_numpy(P.Y)[:, 0] - to_numpy(error)[:, 0], np.maximum(to_numpy(variance), 1e-300)
        density = to_numpy(P.likelihood.log_predictive(P.observed(slice(None)), mean, of_f))
        return LeftOut(mean, of_f, density, to_numpy(error)[:, 0])
    m0 = to_numpy(P.mean(P.X))
    errors, of_y = to_numpy(error), to_numpy(variance) + to_numpy(P.noise)
    density = -0.5 * np.mean(np.log(2.0 * np.pi * of_y)[:, None] + errors**2 / of_y[:, None], axis=1)
    mean = to_numpy(P.Y) - errors + (m0 if m0.ndim == 2 else m0[:, None])
    one = P.one_output
    return LeftOut(mean[:, 0] if one else mean, of_y, density, errors[:, 0] if one else errors)


def _left_out_of_blocks(P: Problem) -> tuple[Array, Array]:
    """As `left_out_errors`, where R is kept in blocks or along neighbours: all copies of a row are out."""
    F = factorise(P)
    V, precision = leave_out_pass(P, Back(F.w, F.Linv.T @ F.w, F.Linv, LBinv=F.LBinv), F.kept)
    return V / precision[:, None], 1.0 / precision - P.noise / P.weight(slice(None))


def left_out_errors(P: Problem, post: Posterior) -> tuple[Array, Array]:
    """y less its mean without the row (n, p), and the variance of f there (n,); other sites are held."""
    xp, m0 = namespace(P.X), P.mean(P.X)
    errors, variances = asarray_like(np.empty((P.n, P.p)), P.X), asarray_like(np.empty(P.n), P.X)
    with blas_for(len(P.basis)):
        for rows in row_slices(P.n, chunk_rows(P.n, len(P.basis), P.X)):
            Phi, weight = post.features(P.X[rows]), P.weight(rows)
            s, mean = row_squares(Phi @ post.A), Phi @ post.w
            R = P.kernel.diag(P.X[rows]) - row_squares(Phi)
            R = xp.maximum(R, 0.0 * R)
            if P.likelihood is None:
                y, tau = P.Y[rows], weight / (P.noise[rows] + P.row.share * R)
                nu = tau[:, None] * y
            else:
                assert post.sites is not None
                y, tau = P.Y[rows, :1] - m0[rows][:, None], weight * post.sites.tau[rows]
                nu = (weight * post.sites.nu[rows])[:, None]
            left = xp.maximum(1.0 - tau * s, xp.full_like(s, LEAST_LEFT))
            errors[rows] = y - (mean - s[:, None] * nu) / left[:, None]
            variances[rows] = s / left + (0.0 if P.row.conditional == "deterministic" else R)
    return errors, variances
