"""Several processes that explain one y together, each with sites of power 0.

A likelihood of several processes (learned noise: f and g = log variance; softmax: one process a class) gives
E = ⟨log p(y | f₁ … f_c)⟩ under independent marginals, and q_j = ∂E/∂mean_j, r_j = 2 ∂E/∂var_j. Each process
has its own sites τ_j = -r_j, ν_j = q_j - r_j μ_j, and its own B_j and w_j; processes that share kernel and
basis share Φ. The evidence Σ E - Σ_j KL_j is a lower bound, and its gradient goes through each process as it
would alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..model.kernels.base import Gradients, add_gradients
from ..model.likelihoods import SeveralLikelihood
from ..model.problem import Problem
from ..numerics.arrays import SMALL, Array, is_numpy, namespace, zeros_like_rows
from ..numerics.linalg import add_weighted_gram, row_squares, times_lower
from ..numerics.workers import chunk_rows, row_slices, run_over
from ..sources.source import Part
from . import sweeps as sweeping
from .evidence import Factors, gradient_from, prior_factors
from .parts import Parted, Setting, SomeProblem
from .sums import Held, SitesByPart, Sums, Work, count, scratch_copy
from .sweeps import SWEEPS, TOLERANCE, FixedPoint, Process, SiteMemory, converge, start_of


@dataclass(frozen=True, eq=False)
class Joint:
    """The processes that explain one y, with the methods of `Process`, which `converge` calls."""

    processes: tuple[Process, ...]

    @property
    def sites(self) -> SitesByPart:
        return self.processes[0].sites

    def factored(self) -> Joint:
        return Joint(tuple(p.factored() for p in self.processes))

    def towards(self, other: Joint, share: float) -> Joint:
        return Joint(tuple(a.towards(b, share) for a, b in zip(self.processes, other.processes, strict=True)))

    def plus(self, share: float, start: Joint, end: Joint) -> Joint:
        trios = zip(self.processes, start.processes, end.processes, strict=True)
        return Joint(tuple(p.plus(share, a, b) for p, a, b in trios))

    def base(self, power: float) -> float:
        return sum(p.base(power) for p in self.processes)

    def change(self, new: Joint) -> Array:
        changes = [a.change(b) for a, b in zip(self.processes, new.processes, strict=True)]
        return namespace(changes[0]).concat(changes)


@dataclass(frozen=True, eq=False)
class JointSums:
    """The sums of a pass for each process; + joins those of different rows."""

    each: tuple[Sums, ...] = ()

    def __add__(self, other: JointSums) -> JointSums:
        if not (self.each and other.each):
            return self if self.each else other
        return JointSums(tuple(a + b for a, b in zip(self.each, other.each, strict=True)))


@dataclass(frozen=True, eq=False)
class JointFactors:
    """The posteriors of all processes in whitened coordinates."""

    each: tuple[Factors, ...]
    value: float  # the evidence
    likelihood: Gradients  # of its parameters
    n_sweeps: int
    converged: bool


def factorise_jointly(
    problems: Sequence[SomeProblem],
    *,
    escalate: bool = True,
    memory: SiteMemory | None = None,
    tolerance: float = TOLERANCE,
    sweeps: int = SWEEPS,
) -> JointFactors:
    """Sweep until all processes have settled; the problems share rows, weights and likelihood."""
    priors = [prior_factors(P, escalate=escalate) for P in problems]
    start: Joint | None = None if memory is None else memory.process
    if start is None or [len(p.w) for p in start.processes] != [len(P.basis) for P in problems]:
        start = Joint(tuple(start_of(P, F.Linv, None) for P, F in zip(problems, priors, strict=True)))

    def run(joint: Joint, rate: float, safe: bool) -> tuple[Joint, float, float]:
        sums = _over_rows(problems, priors, joint, True)
        return Joint(tuple(Process(s.sites, s.G, s.b) for s in sums)), float(sums[0].terms), 0.0

    how: dict[str, Any] = dict(power=0.0, safely=False, tolerance=tolerance, sweeps=sweeps)
    point: FixedPoint = converge(start, run, **how)  # type: ignore[arg-type]
    joint: Joint = point.process  # type: ignore[assignment]
    if escalate:
        sweeping.warn_if_unsettled(point.converged, point.n_sweeps, problems[0].likelihood)
    if memory is not None:
        memory.process = joint
    last = _over_rows(problems, priors, joint, False)
    # the sites of a source's rows follow from the process, and are not kept
    kept = [Held(tau=p.sites[0][0], nu=p.sites[0][1]) if p.sites else None for p in joint.processes]
    each = tuple(
        replace(F, B=p.B, LBinv=p.LBinv, w=p.w, base=p.base(0.0), kept=held)
        for F, p, held in zip(priors, joint.processes, kept, strict=True)
    )
    value = joint.base(0.0) + float(last[0].terms)
    return JointFactors(each, value, last[0].likelihood, point.n_sweeps, point.converged)


def _over_rows(
    problems: Sequence[SomeProblem], priors: Sequence[Factors], joint: Joint, gram: bool
) -> Sequence[Sums]:
    """Run a sweep over rows in memory, or over those of a source, where they are."""
    first = problems[0]
    if isinstance(first, Parted):
        settings = [P.setting for P in problems if isinstance(P, Parted)]
        return first.source.total(_over_part, settings, priors, joint, gram).each
    return joint_pass([P for P in problems if isinstance(P, Problem)], priors, joint, gram=gram)


def _over_part(
    part: Part, settings: Sequence[Setting], priors: Sequence[Factors], joint: Joint, gram: bool
) -> JointSums:
    if not len(part.X):
        return JointSums()
    sums = joint_pass([setting.on(part) for setting in settings], priors, joint, gram=gram)
    return JointSums(tuple(replace(total.to_numpy(), sites={}) for total in sums))


def joint_gradient(problems: Sequence[Problem], F: JointFactors) -> list[Gradients]:
    """Return the gradient of the evidence through each process, its kernel, basis and mean."""
    return [gradient_from(P, each)[1] for P, each in zip(problems, F.each, strict=True)]


def joint_pass(
    problems: Sequence[Problem], priors: Sequence[Factors], joint: Joint, *, gram: bool = True
) -> list[Sums]:
    """Sweep once: find each process's new sites, and sum ΦτΦᵀ and Φν. The first `Sums` has the terms of the
    evidence; without `gram` it has their gradient in the likelihood's parameters too, and sites stay 0.
    """
    first = problems[0]
    n, m = first.n, max(len(P.basis) for P in problems)
    xp, likelihood = namespace(first.X), first.likelihood
    assert isinstance(likelihood, SeveralLikelihood)
    sites = [(zeros_like_rows((n,), first.X), zeros_like_rows((n,), first.X)) for _ in problems]

    def step(works: list[Work], rows: slice) -> None:
        Phis: list[Array] = []
        means, variances = [], []
        for j, (P, process) in enumerate(zip(problems, joint.processes, strict=True)):
            Phi = _features(problems, priors, Phis, j, rows)
            Phis.append(Phi)
            below = scratch_copy(Phi, works[j].buffer(1, count(rows)))
            below = times_lower(below, process.LBinv, transposed=True)
            spread = row_squares(below)
            means.append((Phi @ process.w)[:, 0] + P.mean(P.X[rows]))
            diag = P.kernel.diagonal(P.X[rows])
            R = diag - row_squares(Phi)
            variances.append(xp.maximum(spread + R if P.row.keeps != "nothing" else spread, 1e-12 * diag))
        weight, y = first.weight(rows), first.observed(rows)
        mean, var = xp.stack(means, axis=1), xp.stack(variances, axis=1)
        value, q, r = likelihood.expected(y, mean, var)
        works[0].terms = works[0].terms + xp.sum(weight * value)
        if not gram:
            slopes = likelihood.parameter_gradient(y, mean, var)
            add_gradients(works[0].likelihood, {k: xp.sum(weight * g) for k, g in slopes.items()})
            return
        for j, (P, work, Phi) in enumerate(zip(problems, works, Phis, strict=True)):
            own = means[j] - P.mean(P.X[rows])
            tau, nu = -weight * r[:, j], weight * (q[:, j] - r[:, j] * own)
            sites[j][0][rows], sites[j][1][rows] = tau, nu
            work.G = add_weighted_gram(work.G, Phi, tau, work.buffer(1, count(rows)))
            work.b += Phi.T @ nu[:, None]

    def start() -> list[Work]:
        return [Work(P, gram, gram) for P in problems]

    parallel = is_numpy(first.X) and n * m * len(problems) >= SMALL
    parts = run_over(row_slices(n, chunk_rows(n, m, first.X)), start, step, parallel=parallel)
    totals = [sum(works, Sums()) for works in zip(*parts, strict=True)]
    for total, pair in zip(totals, sites, strict=True):
        total.sites = {0: pair}
    return totals


def _features(
    problems: Sequence[Problem], priors: Sequence[Factors], known: list[Array], j: int, rows: slice
) -> Array:
    """Return Φ of some rows for process j, or that of an earlier process with its kernel and basis. (c, m)"""
    P = problems[j]
    for i in range(j):
        if problems[i].kernel is P.kernel and problems[i].basis is P.basis:
            return known[i]
    return times_lower(P.basis.cross(P.kernel, P.X[rows]), priors[j].Linv, transposed=True)
