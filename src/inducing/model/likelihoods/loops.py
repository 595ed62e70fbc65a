"""Compiled functions for log⟨p(y|f)⟩ under f ~ N(mean, var) and two derivatives in the mean, row by row.

Loops over rows call a likelihood by its address (`Asked`), so that only likelihoods in use are compiled.
Numbers that are not finite, or variances that are not positive, give NaN; every loop ends.
"""

from __future__ import annotations

import ctypes
from math import erfc, exp, inf, isfinite, lgamma, log, log1p, nan, sqrt
from typing import TYPE_CHECKING

import numpy as np

from ...numerics.compiled_blas import call_at
from ...numerics.compiling import Numbers, compiled, helper, pointed, pointer
from ...numerics.kinds import Given1, Int, Out2, signature
from .row_averages import LOG_ROOT_2PI, LOGISTIC, POISSON, STUDENT, average

if TYPE_CHECKING:
    from .base import Likelihood

# no fast math, as tails depend on exact rounding; a division by zero is infinite, no exception
_jit = helper(error_model="numpy")
_pointed = pointed(signature("void", *["CPointer(float64)"] * 5), error_model="numpy")
_CALLBACK = ctypes.CFUNCTYPE(None, *[ctypes.POINTER(ctypes.c_double)] * 5)

LEGENDRE_NODES, LEGENDRE_WEIGHTS = np.polynomial.legendre.leggauss(16)
TERMS = 1 << 20  # of a series, at most
APART = 50.0  # mean²/2var above which f has the sign of its mean, up to rounding


@_jit
def tilt(at: int, theta: np.ndarray, y: float, mean: float, var: float, out: np.ndarray) -> None:
    """Fill out (3,) with log⟨p(y|f)⟩, q and r of the likelihood whose address is `at`. [004 eq. 2.42]"""
    call_at(at, (theta, y, mean, var, out))


@compiled(signature("void", Int, Given1, Given1, Given1, Given1, Out2))
def tilt_rows(
    at: int, theta: np.ndarray, y: np.ndarray, mean: np.ndarray, var: np.ndarray, out: np.ndarray
) -> None:
    """Fill each row of out (n, 3) by `tilt`."""
    for i in range(len(y)):
        tilt(at, theta, y[i], mean[i], var[i], out[i])


@_jit
def _usable(y: float, mean: float, var: float, out: Numbers) -> bool:
    out[0], out[1], out[2] = nan, nan, nan
    return 0.0 < var < inf and isfinite(y) and isfinite(mean)


@_pointed
def gaussian(theta: Numbers, y: Numbers, mean: Numbers, var: Numbers, out: Numbers) -> None:
    if _usable(y[0], mean[0], var[0], out):
        total, e = theta[0] + var[0], y[0] - mean[0]
        out[0], out[1] = -LOG_ROOT_2PI - 0.5 * (log(total) + e * e / total), e / total
        out[2] = -1.0 / total


@_pointed
def probit(theta: Numbers, y: Numbers, mean: Numbers, var: Numbers, out: Numbers) -> None:
    if _usable(y[0], mean[0], var[0], out):
        out[0], q, out[2] = _probit(theta[0], y[0] * mean[0], var[0])
        out[1] = y[0] * q


@_pointed
def step(theta: Numbers, y: Numbers, mean: Numbers, var: Numbers, out: Numbers) -> None:
    if _usable(y[0], mean[0], var[0], out):
        out[0], q, out[2] = _step(theta[0], y[0] * mean[0], var[0])
        out[1] = y[0] * q


@_pointed
def logistic(theta: Numbers, y: Numbers, mean: Numbers, var: Numbers, out: Numbers) -> None:
    if _usable(y[0], mean[0], var[0], out):
        out[0], q, out[2] = average(LOGISTIC, theta, 1.0, y[0] * mean[0], var[0])
        out[1] = y[0] * q


@_pointed
def laplace(theta: Numbers, y: Numbers, mean: Numbers, var: Numbers, out: Numbers) -> None:
    if _usable(y[0], mean[0], var[0], out):
        out[0], out[1], out[2] = _laplace(theta[0], y[0], mean[0], var[0])


@_pointed
def student(theta: Numbers, y: Numbers, mean: Numbers, var: Numbers, out: Numbers) -> None:
    if _usable(y[0], mean[0], var[0], out):
        out[0], out[1], out[2] = average(STUDENT, theta, y[0], mean[0], var[0])


@_pointed
def poisson(theta: Numbers, y: Numbers, mean: Numbers, var: Numbers, out: Numbers) -> None:
    if _usable(y[0], mean[0], var[0], out):
        out[0], out[1], out[2] = average(POISSON, theta, y[0], mean[0], var[0])


@_pointed
def squared(theta: Numbers, y: Numbers, mean: Numbers, var: Numbers, out: Numbers) -> None:
    if _usable(y[0], mean[0], var[0], out):
        out[0], out[1], out[2] = _squared(y[0], mean[0], var[0])


BY_KIND = gaussian, probit, step, logistic, laplace, student, poisson, squared  # by `Likelihood.kind`


class Asked:
    """A likelihood for compiled loops, which call it by the address `at`, be it compiled or Python.

    An exception in Python is kept in `error`; the loops see NaN.
    """

    def __init__(self, likelihood: Likelihood) -> None:
        self.error: BaseException | None = None
        if likelihood.kind is not None:
            self.at, self.theta = pointer(BY_KIND[likelihood.kind]), likelihood.theta
            return

        def ask(theta: Numbers, y: Numbers, mean: Numbers, var: Numbers, out: Numbers) -> None:
            out[0] = out[1] = out[2] = nan
            try:
                out[0], out[1], out[2] = map(float, likelihood.tilted(y[0], mean[0], var[0]))
            except BaseException as error:  # compiled code cannot pass it on
                self.error = error

        self._callback = _CALLBACK(ask)
        self.at, self.theta = ctypes.cast(self._callback, ctypes.c_void_p).value or 0, np.zeros(1)


@_jit
def mills(z: float) -> tuple[float, float, float]:
    """Return log Φ(z), h = Φ'(z)/Φ(z) and z + h, without loss of digits for z → -∞.

    There h = x + 1/(x + 2/(x + 3/(x + …))) with x = -z.
    """
    if z > -5.0:
        tail = 0.5 * erfc(abs(z) / sqrt(2.0))
        below = 1.0 - tail if z > 0.0 else tail
        h = exp(-0.5 * z * z - LOG_ROOT_2PI) / below
        return log1p(-tail) if z > 0.0 else log(tail), h, z + h
    fraction = -z
    for n in range(40, 1, -1):
        fraction = -z + n / fraction
    h = -z + 1.0 / fraction
    return -0.5 * z * z - LOG_ROOT_2PI - log(h), h, 1.0 / fraction


@_jit
def _probit(noise: float, mean: float, var: float) -> tuple[float, float, float]:
    """Average Φ(f/√noise), which gives Φ(z), z = mean/√(noise + var). [004 eqs 5.8-5.9]"""
    total = noise + var
    scale = sqrt(total)
    value, h, rest = mills(mean / scale)
    return value, h / scale, -h * rest / total


@_jit
def _step(flip: float, mean: float, var: float) -> tuple[float, float, float]:
    """Average flip + (1 - 2 flip)[f > 0], which gives flip + (1 - 2 flip)Φ(z), z = mean/√var."""
    if flip == 0.0:
        return _probit(0.0, mean, var)
    scale = sqrt(var)
    z = mean / scale
    tail = 0.5 * erfc(abs(z) / sqrt(2.0))
    if z > 0.0:
        value = log1p(-flip - (1.0 - 2.0 * flip) * tail)
    else:
        value = log(flip + (1.0 - 2.0 * flip) * tail)
    h = (1.0 - 2.0 * flip) * exp(-0.5 * z * z - LOG_ROOT_2PI - value)
    return value, h / scale, -h * (z + h) / var


@_jit
def _laplace(scale: float, y: float, mean: float, var: float) -> tuple[float, float, float]:
    """Average exp(-|y - f|/b)/2b: (t₊ + t₋)/2b, t± = exp(v/2b² ± u/b) Φ(∓u/√v - √v/b), u = mean - y.

    t₊ and t₋ are the parts of f < y and of f > y, with shares P and M of the whole, so q = (P - M)/b and r =
    [4PM - 2b N(u; 0, v)/(t₊ + t₋)]/b². Where v ≫ b² these cancel; the moments of the two cut Gaussians do
    not.
    """
    u, root = (mean - y) / scale, sqrt(var) / scale  # in units of b
    below, hb, restb = mills(-u / root - root)
    above, ha, resta = mills(u / root - root)
    # log t = log(√v N(u; 0, v)/h), where the square of z cancels
    centre = -0.5 * (u / root) * (u / root) - LOG_ROOT_2PI
    below = centre - log(hb) if u > -root * root else below + 0.5 * root * root + u
    above = centre - log(ha) if u < root * root else above + 0.5 * root * root - u
    top = max(below, above)
    total = top + log(exp(below - top) + exp(above - top))
    P, M = exp(below - total), exp(above - total)
    value = total - log(2.0 * scale)
    if root < 10.0:
        density = exp(-0.5 * u * u / (root * root) - LOG_ROOT_2PI - total) / root
        return value, (P - M) / scale, (4.0 * P * M - 2.0 * density) / (scale * scale)
    # the parts have means y - √v restb and y + √v resta, and variances v(1 - h·rest)
    kept = P * (1.0 - hb * restb) + M * (1.0 - ha * resta) + P * M * (restb + resta) * (restb + resta)
    return value, (root * (M * resta - P * restb) - u) * scale / var, (kept - 1.0) / var


@_jit
def _squared(times: float, mean: float, var: float) -> tuple[float, float, float]:
    """Average |f|^2w, w = times: mean² + var for w = 1 [004 §5.3], else a confluent hypergeometric function
    of t = mean²/2var:

        (2var)^w Γ(w + ½)/Γ(½) e⁻ᵗ Σ cⱼ,   cⱼ = (w + ½)ⱼ/(½)ⱼ tʲ/j!

    No term is negative. With averages over j under cⱼ: q = 2(E j - t)/mean and r = (4 Var j - 2 E j -
    2t)/mean².
    """
    if times == 1.0:
        total = mean * mean + var
        return log(total), 2.0 * mean / total, 2.0 * (var - mean * mean) / (total * total)
    t = 0.5 * mean * mean / var
    if t > APART:
        return _power_far_out(times, mean, var)
    constant = times * log(2.0 * var) + lgamma(times + 0.5) - lgamma(0.5)
    if t < 1e-16:
        return constant, 2.0 * times * mean / var, 2.0 * times / var
    term, total, first, second, scale, j = 1.0, 1.0, 0.0, 0.0, 0.0, 0.0
    for _ in range(TERMS):
        ratio = (times + 0.5 + j) / (0.5 + j) * t / (j + 1.0)
        j += 1.0
        term *= ratio
        total += term
        first += j * term
        second += j * j * term
        if total > 1e250:
            term, total, scale = 1e-250 * term, 1e-250 * total, scale + 1.0
            first, second = 1e-250 * first, 1e-250 * second
        if ratio < 0.9 and j * j * term < 1e-18 * second:
            break
    average = first / total
    spread = second / total - average * average
    value = constant - t + log(total) + scale * 250.0 * log(10.0)
    return value, 2.0 * (average - t) / mean, (4.0 * spread - 2.0 * average - 2.0 * t) / (mean * mean)


@_jit
def _power_far_out(times: float, mean: float, var: float) -> tuple[float, float, float]:
    """Average |f|^2w where f has one sign, by Gauss-Legendre: q = E 2w/f, r = Var 2w/f - E 2w/f²."""
    m, w = abs(mean), times
    mode = 0.5 * (m + sqrt(m * m + 8.0 * w * var))
    scale = 1.0 / sqrt(1.0 / var + 2.0 * w / (mode * mode))
    total, first, second = 0.0, 0.0, 0.0
    for panel in range(-2, 2):
        for i in range(16):
            f = mode + 2.25 * scale * (2 * panel + 1.0 + LEGENDRE_NODES[i])
            away = f - mode
            e = away / mode
            # relative to the mode, where 2w/mode = (mode - m)/var: w log(1 + e)² - e²mode²/2var - 2we
            weight = LEGENDRE_WEIGHTS[i] * exp(2.0 * w * (log1p(e) - e) - 0.5 * away * away / var)
            slope = -e / (1.0 + e)  # mode/f - 1
            total += weight
            first += weight * slope
            second += weight * slope * slope
    first, second = first / total, second / total
    unit = 2.0 * w / mode
    q = unit * (1.0 + first)
    r = unit * unit * (second - first * first) - unit / mode * (1.0 + 2.0 * first + second)
    value = 2.0 * w * log(mode) - 0.5 * (mode - m) * (mode - m) / var - LOG_ROOT_2PI
    value += log(2.25 * scale * total / sqrt(var))
    return value, q if mean > 0.0 else -q, r
