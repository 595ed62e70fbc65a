"""Sweeps over rows that bring the sites of a likelihood to their fixed point.

A sweep is one pass: with B⁻¹ and w of the sweep before, each row's mean and spread, its new site
(row_sites.py), and τφφᵀ and νφ added to the next B and Φν. The change of both in units of the posterior's own
spread says when to stop. Steps are taken in (τ, ν), in which B is linear, so that none of the following costs
a pass: the steps of the last sweeps are mixed such that their residuals cancel (Anderson 1965); with power 0,
where the evidence is a lower bound that depends on the process (B, w) alone, a step that lowers it is halved;
with other powers steps are damped when they grow; and a step that leaves no proper process is halved until it
does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FactorisationError, IterationWarning
from ..model.problem import Problem
from ..numerics import linalg as la
from ..numerics.arrays import Array, asarray_like, is_numpy, namespace, to_numpy, zeros_like_rows
from . import compiled_passes
from .forms import Form
from .passes import run_pass
from .row_sites import propose
from .sums import Held, SitesByPart, Sums, Work, count, scratch_copy

if TYPE_CHECKING:
    from .parts import Parted

TOLERANCE = 1e-6  # of the last change of the process, in units of its own spread
SWEEPS = 100
HALVINGS = 40
LEAP = 300.0  # times the least change so far: a larger change has left a good region
LEAST_RATE = 1.0 / 64.0
GROWS = 1.5  # a step longer than this many times the one before is damped
LOOSE = 0.3  # the tolerance of processes that only start others
MIXED_FROM = 0.1  # the residual below which damped steps are mixed
DAMPED = 0.25  # the greatest rate of heavy sites
HEAVY = 10.0  # the greatest weight of a row whose sites may start at once
DEPTH = 5  # sweeps that are mixed
STALLED = 8  # sweeps without a shorter step, after which steps are damped
ENDLESS = 1e100  # an entry of a step from which on sites have no end
ROUNDING = 1e-8  # steps this short stop shrinking because of rounding alone


@dataclass(frozen=True, eq=False)
class Sweep:
    """The process that a sweep starts from, in whitened coordinates: N(w, B⁻¹) with B⁻¹ = LBinvᵀ LBinv."""

    Linv: Array  # (m, m), Luu⁻¹
    LBinv: Array
    w: Array  # (m, 1)
    sites: SitesByPart = field(default_factory=dict)  # by part
    rate: float = 1.0  # the share of the way from the old sites to the new ones
    safe: bool = False  # whether scale mixtures take their own update, which never widens the process
    gram: bool = True  # whether ΦτΦᵀ and Φν are summed

    def on(self, X: Array) -> Sweep:
        """Return this sweep with the namespace, dtype and device of X."""
        on = {name: asarray_like(getattr(self, name), X) for name in ("Linv", "LBinv", "w")}
        return replace(self, **on)


@dataclass(frozen=True, eq=False)
class Process:
    """Sites and the process they make; the factors are there once `factored`."""

    sites: SitesByPart  # τ and ν (c,); {} at the prior, and where each pass computes those of a source again
    G: Array  # (m, m), ΦτΦᵀ in the lower triangle
    b: Array  # (m, 1), Φν
    B: Array = None
    LB: Array = None
    LBinv: Array = None
    w: Array = None

    def factored(self) -> Process:
        return Process(self.sites, self.G, self.b, *la.information_factors(self.G, self.b))

    def towards(self, other: Process, share: float) -> Process:
        """Return this process moved by a share of the way to another, in (τ, ν)."""
        sites = {}
        for part, pair in other.sites.items():
            own = self.sites.get(part, tuple(0.0 * new for new in pair))
            sites[part] = tuple(old + share * (new - old) for old, new in zip(own, pair, strict=True))
        G, b = self.G + share * (other.G - self.G), self.b + share * (other.b - self.b)
        return Process(sites, G, b)

    def plus(self, share: float, start: Process, end: Process) -> Process:
        """Return this process plus a share of the way from `start` to `end`, in (τ, ν)."""
        change = start.towards(end, share)
        sites = {}
        for part, pair in self.sites.items():
            trios = zip(pair, change.sites[part], start.sites[part], strict=True)
            sites[part] = tuple(a + b - c for a, b, c in trios)
        return Process(sites, self.G + change.G - start.G, self.b + change.b - start.b)

    def base(self, power: float) -> float:
        """Return the evidence less the rows' terms: ½wᵀΦν - ½ log|B|, for a = 0 -KL(N(w, B⁻¹) || N(0, I))."""
        xp = namespace(self.w)
        half = 0.5 * float(la.log_det_from_factor(self.LBinv))
        if power > 0.0:
            return half + 0.5 * float(xp.sum(self.w * self.b))
        trace, square = float(xp.sum(self.LBinv * self.LBinv)), float(xp.sum(self.w * self.w))
        return half - 0.5 * (trace + square - len(self.w))

    def change(self, new: Process) -> Array:
        """Return the change to another process as a vector in units of this one's spread. (m² + m,)"""
        xp, dG = namespace(self.w), la.from_lower(new.G - self.G)
        D = self.LBinv @ dG @ self.LBinv.T
        d = self.LBinv @ (new.b - self.b - dG @ self.w)
        return xp.concat([xp.reshape(D, (-1,)), d[:, 0]])


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """The process that the sweeps reached."""

    process: Process
    n_sweeps: int
    converged: bool


@dataclass(eq=False)
class SiteMemory:
    """The process of the last evaluation, from which the next one starts."""

    process: Any = None  # a `Process`, or the processes of one y together


def start_pass(P: Problem, sweep: Sweep, kept: Held | None = None) -> Sums:
    """Sum ΦτΦᵀ and Φν of an earlier evaluation's sites under the present Φ; fill Φ and R in `kept`."""
    held, sweep = kept or Held(), sweep.on(P.X)
    before, form = sweep.sites.get(P.part), compiled_passes.form_of(P)
    at_once = held.Phi is not None and compiled_passes.compiled(held.Phi)

    def step(s: Work, rows: slice) -> None:
        Phi, _ = _features(P, form, sweep.Linv, held, s, rows, fill=not held.filled)
        if before is not None and not at_once:
            tau, nu = (asarray_like(a, P.X)[rows] for a in before)
            s.G = la.add_weighted_gram(s.G, Phi, tau, s.buffer(1, count(rows)))
            s.b += Phi.T @ nu[:, None]

    nothing_left = held.filled and (before is None or at_once)
    sums = Work(P, True, True) if nothing_left else run_pass(P, step, b=True)
    if before is not None and at_once and held.Phi is not None:
        sums.G, sums.b = compiled_passes.kept_sums(P, held.Phi, *before)
    return sums


def sweep_pass(P: Problem, sweep: Sweep, kept: Held | None = None) -> Sums:
    """Sum the old sites' terms of the evidence, find new ones, sum their ΦτΦᵀ and Φν; Φ and R from `kept`."""
    held, sweep = kept or Held(), sweep.on(P.X)
    before = sweep.sites.get(P.part)
    if held.Phi is not None and compiled_passes.compiled(held.Phi):
        return _sweep_at_once(P, sweep, held.Phi, held.R)
    tau, nu = zeros_like_rows((P.n,), P.X), zeros_like_rows((P.n,), P.X)
    xp, form = namespace(P.X), None if held.Phi is not None else compiled_passes.form_of(P)

    def step(s: Work, rows: slice) -> None:
        c = count(rows)
        Phi, R = _features(P, form, sweep.Linv, held, s, rows)
        below = la.times_lower(scratch_copy(Phi, s.buffer(1, c)), sweep.LBinv, transposed=True)
        spread = la.row_squares(below)
        mean = (Phi @ sweep.w)[:, 0]
        old = 0.0 * mean, 0.0 * mean
        if before is not None:
            old = tuple(asarray_like(a, P.X)[rows] for a in before)
        new = propose(P, rows, mean, spread, R, *old, safe=sweep.safe)
        tau[rows], nu[rows] = (a + sweep.rate * (b - a) for a, b in zip(old, new[:2], strict=True))
        s.terms = s.terms + xp.sum(new.terms)
        s.improper = s.improper + xp.sum(xp.asarray(new.improper, dtype=P.X.dtype))
        if sweep.gram:
            s.G = la.add_weighted_gram(s.G, Phi, tau[rows], s.buffer(1, c))
            s.b += Phi.T @ nu[rows][:, None]

    sums = run_pass(P, step, G=sweep.gram, b=sweep.gram)
    sums.sites = {P.part: (tau, nu)}
    return sums


def _sweep_at_once(P: Problem, sweep: Sweep, Phi: Array, R: Array | None) -> Sums:
    """Run `sweep_pass` where Φ is kept on the CPU: its products use all cores, the likelihood only one."""
    mean, spread = compiled_passes.kept_marginals(P, Phi, sweep.LBinv, sweep.w)
    old = sweep.sites.get(P.part, (np.zeros(P.n), np.zeros(P.n)))
    R = np.zeros(P.n) if R is None else R
    new = propose(P, slice(0, P.n), mean, spread, R, *old, safe=sweep.safe)
    tau, nu = (a + sweep.rate * (b - a) for a, b in zip(old, new[:2], strict=True))
    sums = Sums(terms=np.sum(new.terms), improper=float(np.sum(new.improper)), sites={P.part: (tau, nu)})
    if sweep.gram:
        sums.G, sums.b = compiled_passes.kept_sums(P, Phi, tau, nu)
    return sums


def _features(
    P: Problem, form: Form | None, Linv: Array, held: Held, s: Work, rows: slice, fill: bool = False
) -> tuple[Array, Array]:
    """Return Φ of some rows (c, m) and R (c,), 0 where the table drops it; `fill` puts both into `held`."""
    keeps = P.row.keeps != "nothing"
    if held.Phi is not None and not fill:
        Phi = held.Phi[rows]
        return Phi, held.R[rows] if held.R is not None else 0.0 * Phi[:, 0]
    room = held.Phi[rows] if fill and held.Phi is not None and is_numpy(P.X) else s.buffer(0, count(rows))
    if form is not None:
        assert room is not None
        Phi, R = compiled_passes.whitened_rows(P, form, Linv, s, rows, room)
    else:
        Phi = la.times_lower(P.basis.cross(P.kernel, P.X[rows], room), Linv, transposed=True)
        R = P.kernel.diagonal(P.X[rows]) - la.row_squares(Phi) if keeps else 0.0 * Phi[:, 0]
        if fill and held.Phi is not None and Phi is not room:
            held.Phi[rows] = Phi
    if fill and held.R is not None:
        held.R[rows] = R
    return Phi, R if keeps else 0.0 * R


Run = Callable[[Process, float, bool], tuple[Process, float, float]]  # -> the step, its terms, improper rows


def start_of(P: Problem | Parted, Linv: Array, memory: SiteMemory | None) -> Process:
    """Return the process of the last evaluation, or the prior."""
    if memory is not None and memory.process is not None and len(memory.process.w) == len(P.basis):
        return memory.process
    zero = zeros_like_rows(tuple(Linv.shape), Linv)
    return Process({}, zero, zero[:, :1]).factored()


def lighter_weights(P: Problem | Parted) -> list[Array]:
    """Return the weights cut at 1, 4, 16, …, with which sweeps start if the greatest is heavy: a thousand
    copies of a row would move at once, and the process leap between wide and narrow.
    """
    if not isinstance(P, Problem) or P.weights is None:
        return []
    xp, most = namespace(P.weights), float(namespace(P.weights).max(P.weights))
    cuts = [4.0**k for k in range(20) if 4.0**k < most] if most > HEAVY else []
    return [xp.minimum(P.weights, xp.full_like(P.weights, cut)) for cut in cuts]


def converge(
    start: Process, run: Run, *, power: float, safely: bool, tolerance: float, sweeps: int, rate: float = 1.0
) -> FixedPoint:
    """Sweep until the process no longer changes; `run`(process, rate, safe) is one sweep over all rows.

    From a cold start `safely` begins with sweeps that never widen the process. No rate is above `rate`; if
    that is below one, steps are mixed only near the end.
    """
    last, current, near = float("inf"), start, float("inf") if rate == 1.0 else MIXED_FROM
    most, least, since = rate, float("inf"), 0  # the rate allowed, the shortest step, and the sweeps since
    safe, calm = safely and not start.sites, start  # the process that changed least
    best: tuple[float, Process] | None = None
    past: list[tuple[Process, np.ndarray]] = []  # steps and their residuals
    for n in range(1, sweeps + 1):
        step, terms, improper = run(current, rate, safe)
        value = current.base(power) + terms
        if power == 0.0 and best is not None and value < best[0] - 1e-9 * abs(best[0]):
            current, past = _proper(best[1], best[1].towards(current, 0.5)), []
            continue
        best = value, current
        residual = to_numpy(current.change(step)) / rate
        if not np.max(np.abs(residual)) < ENDLESS:
            raise FactorisationError("the sites leave no proper process: their steps grow without end")
        distance = float(np.linalg.norm(residual))
        if safe:
            current, best, safe = _proper(current, step), None, distance > 0.1 and n < 10
            continue
        if power > 0.0 and distance > LEAP * least and most > LEAST_RATE:  # go back, and take shorter steps
            rate = most = max(0.5 * most, LEAST_RATE)
            current, near, past, last = calm, MIXED_FROM, [], least
            continue
        since = 0 if distance < 0.9 * least else since + 1
        if distance < least:
            least, calm = distance, current
        if improper == 0.0 and (distance <= tolerance or (since >= STALLED and distance <= ROUNDING)):
            return FixedPoint(_proper(current, step), n, True)
        if since >= STALLED:  # the steps go round in circles
            most, since, least, calm, past = max(0.5 * most, LEAST_RATE), 0, distance, current, []
        grows = power > 0.0 and distance > GROWS * last
        rate = max(0.5 * rate, LEAST_RATE) if grows else min(most, 1.5 * rate)
        past = [] if grows or distance > near else [*past[1 - DEPTH :], (step, residual)]
        current, last = _mixed(current, step, past), distance
    return FixedPoint(current, sweeps, False)


def _mixed(current: Process, step: Process, past: list[tuple[Process, np.ndarray]]) -> Process:
    """Return the mixture of the last steps with the least residual; if it is not proper, forget the past."""
    if len(past) > 1:
        residuals = np.stack([residual for _, residual in past])  # (k, m² + m)
        differences = residuals[-1] - residuals[:-1]
        gram, along = differences @ differences.T, differences @ residuals[-1]
        shares, *_ = np.linalg.lstsq(gram, along, rcond=1e-13)
        mixture = step
        for share, (other, _) in zip(shares, past[:-1], strict=True):
            mixture = mixture.plus(float(share), step, other)
        try:
            return mixture.factored()
        except FactorisationError:
            past.clear()
    return _proper(current, step)


def _proper(start: Process, step: Process) -> Process:
    """Return the step, halved until the process is proper: sites may have negative precisions."""
    for _ in range(HALVINGS):
        try:
            return step.factored()
        except FactorisationError:
            step = start.towards(step, 0.5)
    raise FactorisationError("the sites leave no proper process, however small the step")


def warn_if_unsettled(converged: bool, n_sweeps: int, likelihood: object) -> None:
    """Warn if the sweeps ended before the sites settled."""
    if not converged:
        text = f"the sites of {likelihood} did not settle in {n_sweeps} sweeps; the last one's are returned"
        advice = "allow more with sweeps=, or use a likelihood with more noise"
        warnings.warn(f"{text}: {advice}", IterationWarning, stacklevel=4)
