"""Sites of rows: what each row's likelihood becomes in φᵀw, and what it adds to the evidence.

A row's likelihood becomes a Gaussian factor of precision τ and shift ν in φᵀw (power expectation propagation
on the whitened features; Bui, Yan & Turner 2017). With the row's mean μ = φᵀw and spread s = φᵀB⁻¹φ, the
variance R that the basis leaves, and the cavity v₋ = s/u, m₋ = (μ - asν)/u, u = 1 - aτs, from which the row's
own site is taken out with power a:

    a > 0    q, r of L_a at (m₋, v₋ + R);   τ = -r/(a(1 + v₋r)),   ν = (q - m₋r)/(a(1 + v₋r))
             term (L_a - ½ log u)/a + ½(τμ² - 2νμ + asν²)/u
    a = 0    q, r of E at (μ, s + R);        τ = -r,   ν = q - rμ;   term E

A row of weight c counts as c copies, each with its own site: τ and ν here are those of all copies together.
With c < 1 the likelihood is p(y|f)ᶜ instead, one copy of power ac.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..model.kernels.base import add_gradients
from ..model.likelihoods import SeveralLikelihood
from ..model.problem import Problem
from ..model.table import evidence_correction
from ..numerics.arrays import Array, namespace, to_numpy
from ..numerics.linalg import row_squares
from .sums import Work

LEAST_LEFT = 1e-10  # the least share u of a spread's precision that a cavity may keep


class Proposal(NamedTuple):
    """New sites of some rows, and the terms of the old ones in the evidence."""

    tau: Array  # (c,)
    nu: Array
    terms: Array
    improper: Array  # of bool: rows without a proper cavity


def propose(
    P: Problem, rows: slice, mean: Array, spread: Array, R: Array, tau: Array, nu: Array, *, safe: bool
) -> Proposal:
    """Return new sites of rows, given the process with the old τ and ν; `safe` for scale mixtures alone."""
    xp, a, weight = namespace(mean), P.row.power, P.weight(rows)
    if safe:
        return _safe(P, rows, mean, spread, R)
    if a == 0.0:
        value, q, r = tilted(P, rows, mean, spread + R)
        return Proposal(-weight * r, weight * (q - r * mean), weight * value, mean != mean)
    copies = P.copies(rows)
    t, shift = tau / copies, nu / copies
    left = 1.0 - a * t * spread
    improper = left <= LEAST_LEFT
    left = xp.where(improper, xp.ones_like(left), left)
    below, v = (mean - a * spread * shift) / left, spread / left
    value, q, r = tilted(P, rows, below, v + R)
    scale = copies / (a * xp.maximum(1.0 + v * r, xp.full_like(v, LEAST_LEFT)))
    terms = copies * _terms(a, value, left, mean, spread, t, shift)
    # a row without a cavity keeps half of its site and waits for the others
    new_tau = xp.where(improper, 0.5 * tau, -r * scale)
    new_nu = xp.where(improper, 0.5 * nu, (q - below * r) * scale)
    return Proposal(new_tau, new_nu, terms, improper)


def _safe(P: Problem, rows: slice, mean: Array, spread: Array, R: Array) -> Proposal:
    """Return sites by a scale mixture's own update, which never widens the process."""
    assert P.likelihood is not None
    y, m0 = P.observed(rows), P.mean(P.X[rows])
    tau, nu = getattr(P.likelihood, "safe_site")(y, m0 + mean, spread + R)  # noqa: B009
    nu = nu - tau * m0
    scale = P.weight(rows) / (1.0 + P.row.power * tau * R)
    return Proposal(scale * tau, scale * nu, 0.0 * mean, mean != mean)


def _terms(a: float, value: Array, left: Array, mean: Array, spread: Array, t: Array, shift: Array) -> Array:
    """Return the term in the evidence of one copy of each row, for a > 0."""
    quadratic = (t * mean * mean - 2.0 * shift * mean + a * spread * shift * shift) / left
    return (value - 0.5 * namespace(left).log(left)) / a + 0.5 * quadratic


def add_noise(P: Problem, s: Work, rows: slice, R: Array | float) -> Array:
    """Add Σ log D and the correction under Gaussian noise; return D (c,). R is k(x, x) for a bound."""
    xp, weight, noise, share = namespace(P.X), P.weight(rows), P.noise[rows], P.row.share
    D = share * R + noise if share else noise
    s.log_D = s.log_D + xp.sum(weight * xp.log(D))
    if share:
        s.correction = s.correction + xp.sum(weight * evidence_correction(P.row.power, R, noise)[0])
    elif P.row.bound:  # ½ Σ (k(x, x) - φᵀφ)Π; the sum of φᵀφΠ is tr(B - I)
        s.correction = s.correction + 0.5 * xp.sum(weight / noise * R)
    return D


def add_terms(
    P: Problem, s: Work, rows: slice, noise_bar: Array, moments: tuple[Array, ...], tau: Array, nu: Array
) -> Array | float:
    """Add the rows' terms of the evidence, and the gradient of noise or likelihood; return the rows' copies.

    moments: μ and v = ν - τμ (c, p), s, and R where it counts (c,).
    """
    mean, V, spread, R = moments
    if P.likelihood is not None:
        return _add_likelihoods(P, s, rows, mean[:, 0], spread, R, tau, nu)
    xp, weight, residuals = namespace(V), P.weight(rows), row_squares(V) / tau
    s.residual = s.residual + xp.sum(residuals)
    noise_bar[rows] = 0.5 * (residuals - P.p * weight + P.p * tau * spread) * tau / weight
    if P.general:
        noise_bar[rows] -= P.p * weight * evidence_correction(P.row.power, R, P.noise[rows])[2]
    return weight


def _add_likelihoods(
    P: Problem, s: Work, rows: slice, mean: Array, spread: Array, R: Array | float, tau: Array, nu: Array
) -> Array:
    xp, a, copies, weight = namespace(mean), P.row.power, P.copies(rows), P.weight(rows)
    if isinstance(P.likelihood, SeveralLikelihood):
        return copies  # several.py has its terms
    if a == 0.0:
        value, gradient = _with_gradient(P, rows, mean, spread + R)
        terms, scale = weight * value, weight
    else:
        t, shift = tau / copies, nu / copies
        left = 1.0 - a * t * spread
        improper = left <= LEAST_LEFT  # sweeps that did not settle may leave such rows: no evidence then
        left = xp.where(improper, xp.ones_like(left), left)
        below = (mean - a * spread * shift) / left
        value, gradient = _with_gradient(P, rows, below, spread / left + R)
        terms, scale = copies * _terms(a, value, left, mean, spread, t, shift), copies / a
        terms = xp.where(improper, xp.full_like(terms, float("nan")), terms)
    s.terms = s.terms + xp.sum(terms)
    add_gradients(s.likelihood, {name: xp.sum(scale * g) for name, g in gradient.items()})
    return copies


def tilted(P: Problem, rows: slice, mean: Array, var: Array) -> tuple[Array, Array, Array]:
    """Return L_a (E for a = 0), q and r of the rows' likelihoods under f ~ N(m0 + mean, var)."""
    assert P.likelihood is not None
    ask = P.likelihood.tilted
    parts = _by_power(P, rows, mean, var, lambda *given: dict(zip("vqr", ask(*given), strict=True)))
    return parts["v"], parts["q"], parts["r"]


def _with_gradient(P: Problem, rows: slice, mean: Array, var: Array) -> tuple[Array, dict[str, Array]]:
    """Return L_a (E for a = 0) of the rows' likelihoods and its derivatives in the parameters."""
    assert P.likelihood is not None
    likelihood = P.likelihood

    def ask(*given: Array) -> dict[str, Array]:
        value, gradient = likelihood.value_and_gradient(*given)
        return {"": value, **gradient}

    gradient = _by_power(P, rows, mean, var, ask)
    return gradient.pop(""), gradient


def _by_power(
    P: Problem, rows: slice, mean: Array, var: Array, ask: Callable[..., dict[str, Array]]
) -> dict[str, Array]:
    """Return `ask`(y, m0 + mean, var, power) for the rows, with power ac for those of weight c < 1."""
    xp, a = namespace(mean), P.row.power
    y, m0 = P.observed(rows), P.mean(P.X[rows])
    mean, var = mean + m0, xp.maximum(var, 1e-12 * P.kernel.diagonal(P.X[rows]))  # rounding may leave -1e-16
    if a == 0.0 or P.weights is None or not bool(xp.any(P.weights[rows] < 1.0)):
        return ask(y, mean, var, a)
    powers = a * np.minimum(to_numpy(P.weights[rows]), 1.0)
    out: dict[str, Array] = {}
    for power in np.unique(powers):
        some = np.flatnonzero(powers == power)
        for name, values in ask(y[some], mean[some], var[some], float(power)).items():
            out.setdefault(name, xp.zeros_like(mean))[some] = values
    return out
