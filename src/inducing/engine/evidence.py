"""Log evidence and its exact gradient for any row of the table and any likelihood, over chunks of rows.

Every row's likelihood is a Gaussian site in φᵀw, of precision τ and shift ν, with Φ = Luu⁻¹Kuf
(row_sites.py):

    B = I + ΦτΦᵀ,   w = B⁻¹Φν,   μ = φᵀw,   s = φᵀB⁻¹φ,   v = ν - τμ

Gaussian noise has the known sites τ = 1/D, ν = τy with D = aR + Σ, and with e = y - Φᵀw

    log q(y) = -½ [n log 2π + Σ log D + log|B| + Σ eᵢ²/Dᵢ + |w|²] - Σ evidence_correction

Other likelihoods get their sites from sweeps (sweeps.py); their evidence is ½wᵀΦν - ½ log|B| plus a term of
each row. The evidence is stationary in the sites, so its gradient takes them as fixed. One more pass computes
it in reverse mode:

    r̄   = ½ (a v² - τ + aτ²s), 0 where R is dropped                 dJ/dRᵢᵢ = dJ/dk(xᵢ, xᵢ)
    Φ̄   = w vᵀ - B⁻¹Φτ - 2Φ diag(r̄)
    K̄uf = Luu⁻ᵀ Φ̄
    K̄uu = -½ Luu⁻ᵀ (wwᵀ - I + B⁻¹ - 2Φ diag(r̄)Φᵀ) Luu⁻¹           since Φv = w, M = Φ̄Φᵀ is symmetric

Rows are C-ordered, so the code holds the transposes: Phi is (rows, m). Where R is not in D (SoR, DTC, VFE),
r̄ = -½cτ with a constant c, so K̄uf = α vᵀ + Luu⁻ᵀ(cI - B⁻¹)Luu⁻¹ Kuf τ = α vᵀ ± TᵀT Kuf τ needs no Φ. The
work is 4nm² for those rows and 7nm² for the others (products with triangles and symmetric results count
half), a sweep takes 3nm², and memory is O(m² + chunk·m). Blocks and neighbours have D⁻¹ = TᵀT of a block
instead of Π, and dJ/dD instead of r̄ (block_passes.py, neighbours.py).

The passes over rows are in passes.py. Here is the m-by-m work, the same for rows in memory (`Problem`) and
for rows that a source holds (`Parted`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import FactorisationError
from ..model.kernels.base import add_gradients
from ..model.problem import Problem
from ..numerics import linalg as la
from ..numerics.arrays import Array, holds, is_numpy, namespace
from . import sweeps as sweeping
from .parts import SomeProblem
from .passes import first_pass, residual_pass, root_pass, second_pass
from .sums import Back, Held, SitesByPart, Sums
from .sweeps import SWEEPS, TOLERANCE, FixedPoint, Process, SiteMemory, Sweep

SQUARED = 1e12  # condition of B from which ΦΠΦᵀ loses too much: 1e-4 of the I in B, ...
ROOT = 1e25  # ... and from which its root does


@dataclass(frozen=True, eq=False)
class Factors:
    """The posterior in whitened coordinates: enough to predict with and to start the second pass from."""

    Kuu: Array  # (m, m), without jitter
    Luu: Array
    Linv: Array  # Luu⁻¹
    jitter: float  # relative, as used
    B: Array
    LBinv: Array  # of the Cholesky factor of B
    w: Array  # (m, p), whitened posterior mean
    base: Any  # the log evidence without the rows' residuals or terms; stays on its device
    kept: Held | None  # of rows in memory
    point: FixedPoint | None = None  # of a likelihood that is not Gaussian

    @property
    def sites(self) -> SitesByPart:
        return {} if self.point is None else self.point.process.sites


def prior_factors(P: SomeProblem, *, escalate: bool = True) -> Factors:
    """Return the prior in whitened coordinates: Luu, B = I and w = 0."""
    Kuu, Luu, Linv, jitter = _whitening(P, escalate)
    eye = la.identity(Luu)
    return Factors(Kuu, Luu, Linv, jitter, eye, eye, 0.0 * Luu[:, :1], 0.0, None)


def _whitening(P: SomeProblem, escalate: bool) -> tuple[Array, Array, Array, float]:
    """Return Kuu, its Cholesky factor Luu with jitter, Luu⁻¹ and the relative jitter used."""
    Kuu = P.basis.gram(P.kernel)
    if escalate:
        Luu, jitter = la.cholesky_escalating(Kuu, P.jitter)
    else:
        Luu, jitter = la.cholesky(la.jittered(Kuu, P.jitter)), P.jitter
    return Kuu, Luu, la.inverse_lower(Luu), jitter


def factorise(
    P: SomeProblem,
    *,
    escalate: bool = True,
    memory: SiteMemory | None = None,
    tolerance: float = TOLERANCE,
    sweeps: int = SWEEPS,
    kept: Held | None = None,
) -> Factors:
    """Return the posterior's factors: by the first pass, or by a likelihood's sweeps from the process in
    `memory`, which is then replaced. `escalate=False` (inside an optimisation) lets a failed Cholesky raise
    instead of adding jitter. `kept` may be `Held.features` of a problem that differs in y alone.
    """
    whitening = _whitening(P, escalate)
    Linv = whitening[2]
    if kept is None and isinstance(P, Problem):
        kept = Held.room_for(P)
    if P.likelihood is not None:
        point = _settle(P, Linv, kept, memory, tolerance, sweeps)
        end = point.process
        if escalate:
            sweeping.warn_if_unsettled(point.converged, point.n_sweeps, P.likelihood)
        if memory is not None:
            memory.process = end
        if kept is not None:
            kept = replace(kept, tau=end.sites[0][0], nu=end.sites[0][1])
        return Factors(*whitening, end.B, end.LBinv, end.w, end.base(P.row.power), kept, point)
    sums = _over(P, first_pass, Linv, kept)
    B, LB, LBinv, w = _information(P, sums, Linv, kept)
    constant = sums.count * math.log(2 * math.pi) + sums.log_D + la.log_det_from_factor(LB)
    correction = sums.correction
    if P.row.bound:
        correction = correction - 0.5 * (namespace(B).linalg.trace(B) - len(P.basis))
    base = -0.5 * (P.p * constant + namespace(w).sum(w * w)) - P.p * correction
    return Factors(*whitening, B, LBinv, w, base, kept)


def _information(P: SomeProblem, sums: Sums, Linv: Array, kept: Held | None) -> tuple[Array, ...]:
    """Return B, LB, LB⁻¹ and w; by `root_pass` where rounding in ΦΠΦᵀ would drown the I in B = I + ΦΠΦᵀ."""
    xp = namespace(sums.G)
    try:
        factors = la.information_factors(sums.G, sums.b)
        if sums.G.dtype != xp.float64 or _condition_below(SQUARED, factors[0], factors[2]):
            return factors
    except FactorisationError:
        if not holds(xp.isfinite(xp.linalg.trace(sums.G))):
            raise  # the kernel gives NaN or infinity
    factors = la.information_factors_of_root(_over(P, root_pass, Linv, kept).root[0], P.p)
    if not _condition_below(ROOT, factors[0], factors[2]):
        why = "rows leave functions of the basis unknown; rounding beside their precision drowns the prior"
        todo = "give more, merge duplicate rows, or shift the basis"
        raise FactorisationError(f"too little noise: {why}: {todo}")
    return factors


def _condition_below(limit: float, B: Array, LBinv: Array) -> bool:
    """Return whether B's condition is surely below: it is at most tr B, as B ⪰ I, and at most tr B tr B⁻¹."""
    xp = namespace(B)
    trace = xp.linalg.trace(B)
    return holds(trace < limit) or holds(trace * xp.sum(LBinv * LBinv) < limit)


def _settle(
    P: SomeProblem, Linv: Array, kept: Held | None, memory: SiteMemory | None, tolerance: float, sweeps: int
) -> FixedPoint:
    """Return the fixed point of a likelihood's sites; from a cold start heavy weights are raised in steps."""
    assert P.likelihood is not None

    def settled(P: SomeProblem, start: Process, tolerance: float) -> FixedPoint:
        assert P.likelihood is not None

        def run(process: Process, rate: float, safe: bool) -> tuple[Process, float, float]:
            sweep = Sweep(Linv, process.LBinv, process.w, process.sites, rate, safe)
            sums = _over(P, sweeping.sweep_pass, sweep, kept)
            return Process(sums.sites, sums.G, sums.b), float(sums.terms), float(sums.improper)

        safely = not P.likelihood.log_concave and hasattr(P.likelihood, "safe_site")
        options: dict[str, Any] = {"power": P.row.power, "rate": sweeping.DAMPED if lighter else 1.0}
        return sweeping.converge(start, run, safely=safely, tolerance=tolerance, sweeps=sweeps, **options)

    lighter = sweeping.lighter_weights(P)
    start = sweeping.start_of(P, Linv, memory)
    if isinstance(P, Problem) or start.sites:  # the old sites under the new features are near the new ones
        sums = _over(P, sweeping.start_pass, Sweep(Linv, start.LBinv, start.w, start.sites), kept)
        start = Process(start.sites, sums.G, sums.b).factored()
    if not lighter:
        return settled(P, start, tolerance)
    assert isinstance(P, Problem)
    if start.sites:
        point = settled(P, start, tolerance)
        if point.converged:
            return point
    process = sweeping.start_of(P, Linv, None)
    for weights in lighter:
        process = settled(replace(P, weights=weights), process, sweeping.LOOSE).process
    return settled(P, process, tolerance)


def log_evidence(P: SomeProblem, F: Factors) -> float:
    """Return log q(y), with residuals from a second pass, since yᵀΠy - |LB⁻¹ΦΠy|² would lose digits."""
    if P.likelihood is not None:
        sweep = Sweep(F.Linv, F.LBinv, F.w, F.sites, gram=False)
        return float(F.base + _over(P, sweeping.sweep_pass, sweep, F.kept).terms)
    back = Back(F.w, F.Linv.T @ F.w, F.Linv if P.row.share else None)
    return float(F.base - 0.5 * _over(P, residual_pass, back, F.kept).residual)


def gradient_from(P: SomeProblem, F: Factors) -> tuple[float, dict[str, Any]]:
    """Return the evidence and its gradient, given the factors of the first pass or of the sweeps."""
    Binv = la.gram(F.LBinv)
    sums = _over(P, second_pass, _back(P, F, Binv), F.kept)
    value = float(F.base + sums.terms - 0.5 * sums.residual)

    M = la.plus_diagonal(F.w @ F.w.T + P.p * Binv, -P.p, overwrite=True)
    if P.row.keeps in ("blocks", "neighbours"):
        M = F.w @ F.w.T + la.from_lower(sums.G)  # (Φ̄ - w vᵀ)Φᵀ
    elif P.general:
        M -= la.from_lower(sums.G)  # 2Φ diag(r̄)Φᵀ
    elif P.row.bound:
        M += la.plus_diagonal(P.p * F.B, -P.p, overwrite=True)
    Kuu_bar = -0.5 * la.congruence(M, F.Linv)
    if F.jitter:
        trace = namespace(M).linalg.trace(Kuu_bar)
        Kuu_bar = la.plus_diagonal(Kuu_bar, F.jitter / len(P.basis) * trace, overwrite=True)
    kernel, basis = P.basis.gram_pullback(P.kernel, Kuu_bar, F.Kuu)
    add_gradients(sums.kernel, kernel)
    add_gradients(sums.basis, basis)
    gradient = {f"kernel.{k}": g for k, g in sums.kernel.items()}
    gradient |= {f"basis.{k}": g for k, g in sums.basis.items()}
    if P.likelihood is None:
        gradient[P.noise_name] = sums.noise
    gradient |= {f"likelihood.{k}": g for k, g in sums.likelihood.items()}
    gradient |= {f"mean.{k}": g for k, g in sums.mean.items()}
    if is_numpy(F.B):
        gradient = {k: float(g) if np.ndim(g) == 0 else np.asarray(g) for k, g in gradient.items()}
    return value, gradient


def _over(
    P: SomeProblem, one_pass: Callable[..., Sums], matrices: Array | Sweep | Back, kept: Held | None
) -> Sums:
    """Run a pass over rows in memory, or over those of a source, where they are."""
    return one_pass(P, matrices, kept) if isinstance(P, Problem) else P.total(one_pass, matrices)


def _back(P: SomeProblem, F: Factors, Binv: Array) -> Back:
    """Return the matrices that the second pass needs under this row of the table."""
    alpha = F.Linv.T @ F.w  # (m, p)
    if P.row.keeps in ("blocks", "neighbours"):
        return Back(F.w, alpha, F.Linv, LBinv=F.LBinv)
    sites = None if P.likelihood is None else Sweep(F.Linv, F.LBinv, F.w, F.sites, gram=False)
    if P.general:
        return Back(F.w, alpha, F.Linv, Binv=Binv, sweep=sites)
    # cI - B⁻¹ = ±UᵀU, so K̄fu = v αᵀ ± p τ Kfu TᵀT with a triangular T; a τ common to all rows moves into T
    U = la.shrinkage_root(Binv, F.B) if P.row.bound else namespace(Binv).asarray(F.LBinv, copy=True)
    T = la.times_lower_on_all_cores(U, F.Linv)
    if not P.uniform:
        return Back(F.w, alpha, T=T, sweep=sites)
    T, lengths = T * (P.p / P.common_noise) ** 0.5, None
    if isinstance(P, Problem) and not is_numpy(P.X):  # Σ p τ|U φ|² = p tr((cI - B⁻¹)(B - I)), without a pass
        diagonal, m = namespace(Binv).linalg.diagonal, len(P.basis)
        total = diagonal(F.B) + diagonal(Binv) if P.row.bound else -diagonal(Binv)
        lengths = (namespace(Binv).sum(total) + (-2 * m if P.row.bound else m)) * (P.p / P.n)
    return Back(F.w, alpha, T=T, lengths=lengths, sweep=sites)
