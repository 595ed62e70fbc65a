"""Log evidence and its exact gradient for any row of the table, streamed over chunks of rows.

With Φ = Luu⁻¹Kuf, precisions Π = D⁻¹ (times the rows' weights), B = I + ΦΠΦᵀ, w = B⁻¹ΦΠy, e = y - Φᵀw and v =
Πe:

    log q(y) = -½ [n log 2π + Σ log D + log|B| + Σ eᵢ²Πᵢ + |w|²] - penalty

The first pass sums ΦΠΦᵀ and ΦΠy; the second carries the gradient back (reverse mode, written out):

    g_D = ½ (vᵢ² - Πᵢ + Πᵢ² φᵢᵀB⁻¹φᵢ)                               dJ/dDᵢ
    r̄   = share g_D - d penalty/dR                                  dJ/dRᵢᵢ = dJ/dk(xᵢ, xᵢ)
    Φ̄   = w vᵀ - B⁻¹ΦΠ - 2Φ diag(r̄)
    K̄uf = Luu⁻ᵀ Φ̄
    K̄uu = -½ Luu⁻ᵀ (wwᵀ - I + B⁻¹ - 2Φ diag(r̄)Φᵀ) Luu⁻¹           since Φv = w, M = Φ̄Φᵀ is symmetric

Rows are C-ordered, so the code holds the transposes: Phi is (rows, m). When share = 0 (SoR, DTC, VFE), r̄ =
-½cΠ with a constant c, so K̄uf = α vᵀ + Luu⁻ᵀ(cI - B⁻¹)Luu⁻¹ Kuf Π = α vᵀ ± TᵀT Kuf Π needs no Φ. The work is
4nm² for those rows and 7nm² for the others (products with triangles and symmetric results count half), and
memory is O(m² + chunk·m).

The passes themselves are in _passes.py. Their sums join over parts of the data, so a problem is rows in
memory (`Problem`) or rows that a source holds (`Parted`), and what stands here is the same for both: m-by-m
work between and after the passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model.problem import Problem
from ..model.table import trace_penalty
from ..numerics.arrays import Array, is_numpy, namespace
from ..numerics.linalg import (
    cholesky_and_inverse,
    cholesky_escalating,
    congruence,
    from_lower,
    gram,
    inverse_lower,
    jittered,
    log_det_from_factor,
    plus_diagonal,
    shrinkage_root,
    times_lower_on_all_cores,
)
from .parts import Parted
from .passes import first_pass, residual_pass, second_pass
from .sums import Back, Held, Sums


@dataclass(frozen=True, eq=False)
class Factors:
    """What the first pass leaves: enough to predict with and to start the second pass from."""

    Kuu: Array  # (m, m), without jitter
    Luu: Array
    Linv: Array  # Luu⁻¹
    jitter: float  # relative, as used
    B: Array
    LBinv: Array  # of the Cholesky factor of B
    w: Array  # (m, p), whitened posterior mean
    constant: float  # of -2 log q(y), all but the residuals' Σ eᵢ²Πᵢ
    kept: Held | None  # of rows in memory


def factorise(P: Problem | Parted, *, escalate: bool = True) -> Factors:
    """The first pass. `escalate=False` (inside an optimisation) lets a failed Cholesky raise instead of
    adding jitter.
    """
    Kuu = P.basis.gram(P.kernel)
    if escalate:
        Luu, jitter = cholesky_escalating(Kuu, P.jitter, what="the prior covariance Kuu of the basis")
        Linv = inverse_lower(Luu)
    else:
        (Luu, Linv), jitter = cholesky_and_inverse(jittered(Kuu, P.jitter)), P.jitter
    kept = Held.room_for(P) if isinstance(P, Problem) else None
    sums = _over(P, first_pass, Linv, kept)
    B = plus_diagonal(from_lower(sums.G), 1.0)
    LB, LBinv = cholesky_and_inverse(B)
    w = LBinv.T @ (LBinv @ sums.b)
    constant = P.p * (sums.count * math.log(2 * math.pi) + float(sums.log_D) + float(log_det_from_factor(LB)))
    penalty = float(sums.penalty)
    if P.row.penalty is trace_penalty:
        penalty -= 0.5 * (float(namespace(B).linalg.trace(B)) - len(P.basis))
    constant += float(namespace(w).sum(w * w)) + 2 * P.p * penalty
    return Factors(Kuu, Luu, Linv, jitter, B, LBinv, w, constant, kept)


def log_evidence(P: Problem | Parted, F: Factors) -> float:
    """log q(y), with a second look at the rows for their residuals: exact to rounding where yᵀΠy - |LB⁻¹ΦΠy|²
    cancels.
    """
    back = Back(F.w, F.Linv.T @ F.w, F.Linv if P.row.share else None)
    return -0.5 * (F.constant + float(_over(P, residual_pass, back, F.kept).residual))


def log_evidence_and_gradient(P: Problem | Parted, *, escalate: bool = True) -> tuple[float, dict[str, Any]]:
    """log q(y) and its gradient in every raw parameter, the others held."""
    F = factorise(P, escalate=escalate)
    Binv = gram(F.LBinv)
    trace = P.row.penalty is trace_penalty
    sums = _over(P, second_pass, _back(P, F, Binv), F.kept)
    value = -0.5 * (F.constant + float(sums.residual))

    M = plus_diagonal(F.w @ F.w.T + P.p * Binv, -P.p)
    if P.row.share:
        M -= from_lower(sums.G)  # 2Φ diag(r̄)Φᵀ
    elif trace:
        M += plus_diagonal(P.p * F.B, -P.p)
    Kuu_bar = -0.5 * congruence(M, F.Linv)
    if F.jitter:
        Kuu_bar = plus_diagonal(Kuu_bar, F.jitter / len(P.basis) * namespace(M).linalg.trace(Kuu_bar))
    kernel, basis = P.basis.gram_pullback(P.kernel, Kuu_bar, F.Kuu)
    through = sums + Sums(kernel=kernel, basis=basis)
    gradient = {f"kernel.{k}": g for k, g in through.kernel.items()} | {
        f"basis.{k}": g for k, g in through.basis.items()
    }
    gradient["noise"] = sums.noise
    gradient |= {f"mean.{k}": g for k, g in sums.mean.items()}
    if is_numpy(F.B):
        gradient = {k: float(g) if np.ndim(g) == 0 else np.asarray(g) for k, g in gradient.items()}
    return value, gradient


def _over(P: Problem | Parted, one_pass: Any, matrices: Any, kept: Held | None) -> Sums:
    """A pass over rows in memory, or over those of a source, where they are."""
    return one_pass(P, matrices, kept) if isinstance(P, Problem) else P.total(one_pass, matrices)


def _back(P: Problem | Parted, F: Factors, Binv: Array) -> Back:
    """What the second pass needs under this row of the table."""
    alpha = F.Linv.T @ F.w  # (m, p)
    if P.blocks is not None:
        return Back(F.w, alpha, F.Linv, LBinv=F.LBinv)
    if P.row.share:
        return Back(F.w, alpha, F.Linv, Binv=Binv)
    # cI - B⁻¹ = ±UᵀU, so K̄fu = v αᵀ ± p Π Kfu TᵀT with a triangular T; a Π common to all rows moves into T
    U = (
        shrinkage_root(F.B, Binv)
        if P.row.penalty is trace_penalty
        else namespace(Binv).asarray(F.LBinv, copy=True)
    )
    T = times_lower_on_all_cores(U, F.Linv)
    return Back(F.w, alpha, T=T * (P.p / P.common_noise) ** 0.5 if P.uniform else T)
