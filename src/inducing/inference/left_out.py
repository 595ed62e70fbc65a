"""Leave-one-out predictions, of each row by the others, in closed form. [003 §2, 001 eq. 9]

Without row i, with the others and all parameters held, a Gaussian posterior predicts y_i by

    exact GP:        y_i - α_i / (K + Σ)⁻¹_ii                    and variance 1 / (K + Σ)⁻¹_ii
    row of a table:  (μ - sν) / (1 - τs)                         and variance s / (1 - τs) + R + σ²
    in blocks:       as the exact GP, with C = Q + D of blocks or neighbours for K + Σ

with μ = φᵀw, s = φᵀB⁻¹φ and the row's site τ, ν: one pass over the rows, no refit.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from ..engine.evidence import factorise
from ..engine.parts import Parted, Setting
from ..engine.passes import leave_out_pass
from ..engine.row_sites import LEAST_LEFT
from ..engine.sums import Back
from ..errors import ParameterError
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.means import Mean
from ..model.posterior import Posterior
from ..model.problem import DEFAULT_JITTER, Problem, subset
from ..model.table import Sites
from ..numerics.arrays import Array, Given, as_columns, asarray_like, namespace, to_numpy
from ..numerics.linalg import inverse_lower, row_squares
from ..numerics.workers import blas_for, chunk_rows, row_slices
from ..sources.source import Part
from .exact import exact_left_out, exact_posterior
from .pic import Predictor
from .regression import approximation_of, as_problem, posterior_of

JACKKNIFE_NUMBERS = 1 << 22  # the most leave-one-out predictions that are in memory at a time


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Predictions of each row by all others. Mean and variance are those of y under Gaussian noise, of f
    under a likelihood.
    """

    mean: np.ndarray  # (n,) or (n, p)
    variance: np.ndarray  # (n,)
    log_density: np.ndarray  # (n,), of y, averaged over outputs
    error: np.ndarray  # (n,) or (n, p), y less the mean

    @property
    def std(self) -> np.ndarray:
        return np.sqrt(self.variance)

    @property
    def explained(self) -> np.ndarray:
        """The share of each output's variance that the predictions explain; NaN errors are left out. (p,)"""
        spread = np.maximum(np.nanvar(self.mean + self.error, axis=0), 1e-300)
        return np.atleast_1d(1.0 - np.nanmean(self.error**2, axis=0) / spread)

    @property
    def inside(self) -> float:
        """The share of y inside the 95 % intervals of the predictions."""
        seen = ~np.isnan(self.error)
        std = np.broadcast_to(self.std, self.error.shape)
        return float(np.mean(np.abs(self.error[seen]) <= ndtri(0.975) * std[seen]))

    def with_noise(self, before: np.ndarray, after: np.ndarray) -> "LeftOut":
        """Return the predictions of one output with the noise of rows (n,) changed from `before` to `after`.
        Along neighbours, which see only some rows, the variance may be below the noise: then f has none.
        """
        variance = np.maximum(self.variance - before, 0.0) + after
        density = -0.5 * (np.log(2.0 * np.pi * variance) + self.error**2 / variance)
        return replace(self, variance=variance, log_density=density)


def leave_one_out(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    noise: Given,
    X: Given,
    y: Given = None,
    *,
    mean: Mean | None = None,
    jitter: float = DEFAULT_JITTER,
    blocks: Given = None,
    power: float | None = None,
    neighbours: Given = None,
    weights: Given = None,
) -> LeftOut:
    """Predict each row's y by all other rows, without a refit. Arguments as for `condition`; X may be a
    source, whose rows come in the order of its parts.

    The result equals that of refits; under a likelihood, of refits with all other rows' sites held.
    """
    row = approximation_of(approximation, power, neighbours)
    options: dict[str, Any] = dict(mean=mean, jitter=jitter, blocks=blocks, weights=weights)
    return left_out_of(as_problem(kernel, basis, row, noise, X, y, **options))


def exact_left_out_of(P: Problem, last: int) -> LeftOut:
    """Apply `leave_one_out` to the `last` rows of the exact GP's checked problem, each given all others."""
    with blas_for(P.n):
        return _described(subset(P, np.arange(P.n - last, P.n)), *exact_left_out(P, last))


def left_out_of(P: Problem | Parted, post: Posterior | None = None) -> LeftOut:
    """Apply `leave_one_out` to a checked problem; `post` is its posterior on a basis, if known already."""
    if isinstance(P, Parted):
        return _left_out_of_parts(P)
    if P.likelihood is not None and (P.row.name in ("exact", "sod") or P.row.keeps == "neighbours"):
        raise ParameterError(f"leave_one_out of {P.likelihood} needs a basis and no neighbours; use 'fitc'")
    if P.row.name in ("exact", "sod"):
        with blas_for(P.n):
            error, variance = exact_left_out(P)
    elif P.row.keeps in ("blocks", "neighbours"):
        error, variance = _left_out_of_blocks(P)
    else:
        error, variance = left_out_errors(P, posterior_of(P) if post is None else post)
    return _described(P, error, variance)


def _left_out_of_parts(P: Parted) -> LeftOut:
    """Apply `leave_one_out` to a source by one more pass over its parts, with the sites of their rows."""
    if P.row.keeps in ("blocks", "neighbours"):
        raise ParameterError(f"leave_one_out over a source has no {P.row.name!r}; use 'fitc', or arrays")
    post, setting = posterior_of(P), P.setting
    ends = np.cumsum(list(P.source.map(_rows_of)))
    starts = dict(enumerate(np.concatenate([[0], ends[:-1]])))
    light = replace(post, sites=None)
    sites = None if post.sites is None else (post.sites.tau, post.sites.nu)
    parts = list(P.source.map(_left_out_of_part, setting, light, sites, starts))
    return LeftOut(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(LeftOut)))


def _rows_of(part: Part) -> int:
    return len(part.X)


def _left_out_of_part(
    part: Part,
    setting: Setting,
    post: Posterior,
    sites: tuple[Array, Array] | None,
    starts: dict[int, np.integer],
) -> LeftOut:
    P = setting.on(part)
    if sites is not None:
        own = slice(starts[part.index], starts[part.index] + len(part.X))
        post = replace(post, sites=Sites(sites[0][own], sites[1][own]))
    return _described(P, *left_out_errors(P, post))


def _described(P: Problem, error: Array, variance: Array) -> LeftOut:
    """Make predictions from the errors of y (n, p) and the variances of f (n,)."""
    if P.likelihood is not None:
        mean, of_f = to_numpy(P.Y)[:, 0] - to_numpy(error)[:, 0], np.maximum(to_numpy(variance), 1e-300)
        density = P.likelihood.log_predictive(to_numpy(P.observed(slice(None))), mean, of_f)
        return LeftOut(mean, of_f, density, to_numpy(error)[:, 0])
    errors, of_y = to_numpy(error), to_numpy(variance) + to_numpy(P.noise)
    density = -0.5 * np.mean(np.log(2.0 * np.pi * of_y)[:, None] + errors**2 / of_y[:, None], axis=1)
    mean = to_numpy(P.Y) - errors + as_columns(to_numpy(P.mean(P.X)))
    one = P.one_output
    return LeftOut(mean[:, 0] if one else mean, of_y, density, errors[:, 0] if one else errors)


def _left_out_of_blocks(P: Problem) -> tuple[Array, Array]:
    """Return `left_out_errors` with R kept in blocks or along neighbours; all copies of a row are out."""
    F = factorise(P)
    V, precision = leave_out_pass(P, Back(F.w, F.Linv.T @ F.w, F.Linv, LBinv=F.LBinv), F.kept)
    return V / precision[:, None], 1.0 / precision - P.noise / P.weight(slice(None))


def left_out_errors(P: Problem, post: Posterior | Predictor) -> tuple[Array, Array]:
    """Return y less its mean without the row (n, p), f's variance without it (n,); other sites are held."""
    if not isinstance(post, Posterior):
        return _left_out_of_blocks(P)
    xp, m0 = namespace(P.X), P.mean(P.X)
    errors, variances = asarray_like(np.empty((P.n, P.p)), P.X), asarray_like(np.empty(P.n), P.X)
    with blas_for(len(P.basis)):
        for rows in row_slices(P.n, chunk_rows(P.n, len(P.basis), P.X)):
            Phi, weight = post.features(P.X[rows]), P.weight(rows)
            s, mean = row_squares(Phi @ post.A), Phi @ post.w
            R = P.kernel.diagonal(P.X[rows]) - row_squares(Phi)
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


# Conformal intervals


@dataclass(frozen=True, eq=False)
class Jackknife:
    """Conformal intervals by the jackknife+ of Barber et al. (2021), which leaves out each row in turn.

    Without row i the mean is mean₋ᵢ(x) = mean(x) - ψ(x)ᵀdᵢ, with ψ = Aᵀφ and dᵢ = ψᵢ τᵢeᵢ/(1 - τᵢ|ψᵢ|²), so
    no model is fitted again. Row i errs by sᵢ of its own standard deviations; the interval at x goes from a
    low quantile of mean₋ᵢ(x) - sᵢ std(x) to a high one of mean₋ᵢ(x) + sᵢ std(x).
    """

    posterior: Posterior
    noise: float
    directions: np.ndarray  # dᵢ (n, m)
    scores: np.ndarray  # sᵢ (n,)

    @staticmethod
    def of(P: Problem) -> "Jackknife":
        """Make the jackknife of a checked problem in memory, with one output and Gaussian noise."""
        if P.likelihood is not None or not P.one_output or P.row.keeps in ("blocks", "neighbours"):
            raise ParameterError(
                "the jackknife needs one target with Gaussian noise, and a row of the table without blocks "
                "or neighbours; use conformal='split'"
            )
        left, y = left_out_of(P), to_numpy(P.Y)[:, 0]
        if P.row.name in ("exact", "sod"):
            post = exact_posterior(P)
            Psi = to_numpy(inverse_lower(post.L)).T
            gain = post.alpha / np.sum(Psi**2, axis=1)  # α_i/(K + Σ)⁻¹_ii
        else:
            post = posterior_of(P)
            Phi = to_numpy(post.features(P.X))
            Psi, prior = Phi @ to_numpy(post.A), to_numpy(P.kernel.diagonal(P.X))
            R = np.maximum(prior - row_squares(Phi), 0.0)
            tau = to_numpy(P.weight(slice(None))) / (to_numpy(P.noise) + P.row.share * R)
            rest = np.maximum(1.0 - tau * row_squares(Psi), LEAST_LEFT)
            gain = tau * (y - Phi @ to_numpy(post.w)[:, 0]) / rest
        noise = float(np.mean(to_numpy(P.noise)))
        return Jackknife(post, noise, Psi * gain[:, None], np.abs(left.error) / left.std)

    def interval(self, X: np.ndarray, level: float) -> np.ndarray:
        """Return the ends of the interval of y at each row. (n, 2)"""
        post, n = self.posterior, len(self.scores)
        mean, variance = (to_numpy(a) for a in post.predict(X))
        std, ends = np.sqrt(np.maximum(variance, 0.0) + self.noise), np.empty((len(X), 2))
        for rows in row_slices(len(X), max(1, JACKKNIFE_NUMBERS // n)):
            Phi = to_numpy(post.features(X[rows]))
            Psi = Phi if post.A is None else Phi @ to_numpy(post.A)
            without = mean[rows, None] - Psi @ self.directions.T  # (q, n)
            spread = std[rows, None] * self.scores
            ends[rows, 1] = upper_quantile(without + spread, level)
            ends[rows, 0] = -upper_quantile(spread - without, level)
        return ends


def upper_quantile(scores: np.ndarray, level: float) -> np.ndarray:
    """Return the ⌈(n + 1) level⌉-th smallest of n scores, ∞ if there are fewer. A new score of the same
    distribution, whatever that is, lies below it with probability `level` or more.
    """
    n = scores.shape[-1]
    k = int(np.ceil((n + 1) * level))
    return np.full(scores.shape[:-1], np.inf) if k > n else np.partition(scores, k - 1, axis=-1)[..., k - 1]
