"""Sites of a likelihood along neighbours: expectation propagation on f itself.

A row's likelihood becomes a Gaussian factor of precision τ and shift ν in f(x): a pseudo-target ỹ = ν/τ with
the noise 1/τ, handled like data. With C = Q + D the covariance of the pseudo-targets, the cavity of a row is
f given all other pseudo-targets,

    v₋ = 1/C⁻¹ᵢᵢ - 1/τ,   m₋ = ỹ - (C⁻¹ỹ)ᵢ/C⁻¹ᵢᵢ,   q, r of log Z = log∫ N(f; m₋, v₋) p(y|f) df
    τ = -r/(1 + v₋r),      ν = (q - m₋r)/(1 + v₋r)
    log evidence = log q(ỹ) + Σ [log Z - log N(ỹ; m₋, v₋ + 1/τ)]

which is FITC's without neighbours and that of expectation propagation for the exact GP if all rows are
neighbours. In between, the noise is not simply added in D, so the evidence is not stationary in the sites;
judge a model by Σ log Z, the leave-one-out log density. A row of weight c has c copies of its site, which
share f: its cavity leaves out one of them.
"""

import math
from dataclasses import dataclass, replace

from ..engine import evidence
from ..engine.passes import leave_out_pass
from ..engine.row_sites import LEAST_LEFT, tilted
from ..engine.sums import Back, Held, SharedBlocks
from ..engine.sweeps import LEAST_RATE, warn_if_unsettled
from ..model.problem import Problem
from ..numerics.arrays import Array, namespace, zeros_like_rows
from ..numerics.workers import blas_for

RATE = 0.8  # the share of the way to the new sites that the first step goes
GROWTH = 1.2  # a step longer than this many times the one before is damped
LEAST_PRECISION = 1e-8  # the least precision of a site, in units of the prior's


@dataclass(frozen=True, eq=False)
class Settled:
    """The sites of a likelihood along neighbours, and the Gaussian problem that they make."""

    pseudo: Problem  # pseudo-targets, each with its noise
    factors: evidence.Factors
    tau: Array  # (n,), of one copy of each row
    nu: Array
    log_evidence: float
    log_densities: Array  # (n,), log Z of each row given all others
    n_sweeps: int
    converged: bool


@dataclass(frozen=True, eq=False)
class Cavities:
    """The moments of f at each row given all other rows and all but one of the row's own copies."""

    mean: Array  # (n,), above the prior mean
    variance: Array
    improper: Array  # of bool: the prior stands in place of the cavity


def settle(
    P: Problem,
    start: tuple[Array, Array] | None = None,
    *,
    tolerance: float,
    sweeps: int,
    escalate: bool = True,
    shared: SharedBlocks | None = None,
) -> Settled:
    """Iterate the sites from `start`, or the prior, to their fixed point; `shared` serves other y as well."""
    room = Held(blocks={}, runs={}, shared=shared or SharedBlocks())
    xp, prior, copies = namespace(P.X), P.kernel.diagonal(P.X), P.copies(slice(None))
    zero = zeros_like_rows((P.n,), P.X)
    first = Cavities(zero, prior, zero > 1.0)
    tau, nu = _proposed(P, first, LEAST_PRECISION / prior, zero)[:2] if start is None else start
    rate, last, n, converged = RATE, math.inf, 0, False
    with blas_for(len(P.basis)):
        while True:
            n += 1
            pseudo = gaussian_problem(P, (nu / tau)[:, None], 1.0 / (copies * tau))
            F = evidence.factorise(pseudo, escalate=escalate, kept=replace(room, blocks={}, runs={}))
            cavities = _cavities(pseudo, F, tau, nu, copies, prior)
            new_tau, new_nu, densities = _proposed(P, cavities, tau, nu)
            v, change_tau, change_nu = cavities.variance, new_tau - tau, new_nu - nu
            change = max(float(xp.max(xp.abs(change_tau) * v)), float(xp.max(xp.abs(change_nu) * xp.sqrt(v))))
            converged = change <= tolerance
            if converged or n >= sweeps:
                break
            rate = max(0.5 * rate, LEAST_RATE) if change > GROWTH * last else min(1.0, 1.1 * rate)
            tau, nu, last = tau + rate * change_tau, nu + rate * change_nu, change
        value = evidence.log_evidence(pseudo, F) + _normalisers(cavities, densities, tau, nu, copies)
    if escalate:
        warn_if_unsettled(converged, n, P.likelihood)
    return Settled(pseudo, F, tau, nu, value, densities, n, converged)


def gaussian_problem(P: Problem, Y: Array, noise: Array) -> Problem:
    """Return the problem with pseudo-targets Y (n, 1), above the prior mean, and Gaussian noise (n,)."""
    return replace(P, likelihood=None, noise=noise, one_noise=False, Y=Y, weights=None, one_output=True)


def _cavities(
    pseudo: Problem, F: evidence.Factors, tau: Array, nu: Array, copies: Array, prior: Array
) -> Cavities:
    xp = namespace(tau)
    V, precision = leave_out_pass(pseudo, Back(F.w, F.Linv.T @ F.w, F.Linv, LBinv=F.LBinv), F.kept)
    v = 1.0 / precision - pseudo.noise
    improper = v <= LEAST_LEFT * prior
    v = xp.where(improper, prior, v)
    mean = xp.where(improper, 0.0 * v, pseudo.Y[:, 0] - V[:, 0] / precision)
    one = 1.0 / (1.0 / v + (copies - 1.0) * tau)  # with all copies but one
    return Cavities(one * (mean / v + (copies - 1.0) * nu), one, improper)


def _proposed(P: Problem, cavities: Cavities, tau: Array, nu: Array) -> tuple[Array, Array, Array]:
    """Return the sites that match the likelihood's moments, and log Z; rows without a cavity keep theirs."""
    xp, m, v = namespace(tau), cavities.mean, cavities.variance
    value, q, r = tilted(P, slice(None), m, v)
    left = xp.maximum(1.0 + v * r, xp.full_like(v, LEAST_LEFT))
    least = LEAST_PRECISION / P.kernel.diagonal(P.X)
    # a site of too little or negative precision gets the least, with the slope q at the cavity's mean
    flat = -r / left < least
    new_tau = xp.where(flat, least, -r / left)
    new_nu = xp.where(flat, q + least * m, (q - m * r) / left)
    return xp.where(cavities.improper, tau, new_tau), xp.where(cavities.improper, nu, new_nu), value


def _normalisers(cavities: Cavities, densities: Array, tau: Array, nu: Array, copies: Array) -> float:
    """Return the sum Σ [log Z - log N(ỹ; m₋, v₋ + 1/τ)] to be added to the pseudo-targets' log evidence."""
    xp, m, v = namespace(tau), cavities.mean, cavities.variance
    site = 0.5 * (v * nu * nu + 2.0 * m * nu - tau * m * m) / (1.0 + tau * v) - 0.5 * xp.log1p(tau * v)
    target = 0.5 * xp.log(copies * tau / (2.0 * math.pi)) - 0.5 * copies * nu * nu / tau
    return float(xp.sum(copies * (densities - site) - target))
