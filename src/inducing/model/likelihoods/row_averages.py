"""Compiled averages of logistic, Student's t and Poisson densities over f ~ N(mean, var), for one row: the
trapezoidal rule of numerics/quadrature.py, on the same nodes.
"""

from math import ceil, exp, expm1, inf, lgamma, log, log1p, pi, sqrt

import numpy as np

from ...numerics import quadrature as rule
from ...numerics.compiling import Numbers, helper

_jit = helper(error_model="numpy")  # a division by zero is infinite

LOG_ROOT_2PI = 0.5 * log(2.0 * pi)
LOGISTIC, STUDENT, POISSON = range(3)


@_jit
def _stirling(x: float) -> float:
    """Return x log x - x - log Γ(x + 1), as `special.stirling`."""
    if x < 16.0:
        return (x * log(x) if x > 0.0 else 0.0) - x - lgamma(x + 1.0)
    w = 1.0 / (x * x)
    series = 1.0 / 12.0 - w * (1.0 / 360.0 - w * (1.0 / 1260.0 - w * (1.0 / 1680.0 - w / 1188.0)))
    return -LOG_ROOT_2PI - 0.5 * log(x) - series / x


@_jit
def _constant(density: int, theta: np.ndarray, y: float) -> float:
    """Return the part of log p(y|f) that does not depend on f."""
    if density == STUDENT:
        half = 0.5 * theta[0]
        ratio = (half - 1.0) * log1p(0.5 / half) + 0.5 * log(half + 0.5) - 0.5
        return ratio + _stirling(half) - _stirling(half + 0.5) - 0.5 * log(pi * theta[0]) - log(theta[1])
    return _stirling(y) - max(1.0 - y, 0.0) if density == POISSON else 0.0


@_jit
def _slopes(density: int, theta: np.ndarray, y: float, f: float) -> tuple[float, float, float]:
    """Return log p(y|f) without `_constant`, and two derivatives in f."""
    if density == STUDENT:
        e = min(max((y - f) / theta[1], -1e50), 1e50)
        over = (theta[0] + 1.0) / (theta[0] + e * e)
        bend = over * (1.0 - 2.0 * theta[0] / (theta[0] + e * e)) / (theta[1] * theta[1])
        return -0.5 * (theta[0] + 1.0) * log1p(e * e / theta[0]), over * e / theta[1], bend
    if density == POISSON:
        unit = max(y, 1.0)
        x = min(f - log(unit), 500.0)
        rise = expm1(x)
        rate = unit * (1.0 + rise)
        return y * x - unit * rise, y - rate, -rate
    e = exp(-abs(f))
    slack = (e if f > 0.0 else 1.0) / (1.0 + e)
    return min(f, 0.0) - log1p(e), slack, -e / ((1.0 + e) * (1.0 + e))


@_jit
def _grid(density: int, theta: np.ndarray, y: float, mean: float, scale: float) -> tuple[float, ...]:
    """Return offset, width and peak of the place where p bends, in units of √var; the slopes of `_mapped`
    left and right of it; and log(w/left) and log(w/right), w being its scale.
    """
    centre, width, peak, right = 0.0, pi, inf, inf
    if density == STUDENT:
        centre, width, peak = y, theta[1] * sqrt(theta[0]), theta[1]
    elif density == POISSON:
        centre, width, peak, right = log(y + 0.5), 1.3, 1.0 / sqrt(y + 0.5), 1.0
    width, peak = width / scale, peak / scale
    w = min(0.5 * width, peak)
    left = 1.0 + 1.0 / (1.0 + w)
    right = min(left, right / scale)
    return (centre - mean) / scale, width, peak, left, right, log(w / left), log(w / right)


@_jit
def _softplus(x: float) -> float:
    return max(x, 0.0) + log1p(exp(-abs(x)))


@_jit
def _mapped(grid: Numbers, u: float) -> float:
    """Return t = (f - mean)/√var at u."""
    offset, _, _, left, right, log_left, log_right = grid
    return offset + right * _softplus(u + log_right) - left * _softplus(log_left - u)


@_jit
def _inverse(grid: Numbers, t: float) -> float:
    """Return u of t, or a number a little farther from 0."""
    offset, _, _, left, right, log_left, log_right = grid
    x, u = abs(t - offset), 0.0
    a, log_a, b, log_b = left, log_left, right, log_right
    if t > offset:
        a, log_a, b, log_b = right, log_right, left, log_left
    for _ in range(3):  # iterates are above, below, and again above the root
        z = max((x + b * _softplus(log_b - u)) / a, 1e-300)
        u = max(z + log(-expm1(-z)) - log_a, 0.0)
    return u if t > offset else -u


@_jit
def _needed(grid: Numbers, low: float, high: float) -> tuple[bool, float]:
    """Return whether equal steps of t, not of u, serve this window, and how many nodes it needs."""
    offset, width, peak, _, _, _, _ = grid
    away = max(low - offset, offset - high, 0.0)
    step = min(rule.CLEAR * max(width, away), rule.STRAIGHT)
    if away < 8.0 * peak:
        bent = min(peak, 1.0 / peak)
        step = min(step, rule.STRAIGHT * min(peak, 1.0) / sqrt(1.0 + bent * bent))
    curved = (_inverse(grid, high) - _inverse(grid, low)) / (
        rule.PEAKED if peak < 0.4 * width else rule.CURVED
    )
    straight = step >= rule.STRAIGHT or (high - low) / step <= 1.5 * curved
    count = (high - low) / step if straight else curved
    return straight, 8.0 * ceil(min(max(count + 1.0, rule.FEWEST), rule.MOST_NODES) / 8.0)


@_jit
def _closer(
    density: int, theta: np.ndarray, row: Numbers, grid: Numbers, low: float, high: float, t: np.ndarray
) -> tuple[float, float]:
    """Return the window cut to where the integrand counts on coarse nodes t (2, j), and one node beyond."""
    y, mean, scale = row
    start, end, own, j = _inverse(grid, low), _inverse(grid, high), _inverse(grid, 0.0), 0
    for i in range(rule.COARSE):
        part = i / (rule.COARSE - 1.0)
        t[0, j], t[0, j + 1] = _mapped(grid, start + (end - start) * part), low + (high - low) * part
        j += 2
    for i in range(-2, 3):
        t[0, j], t[0, j + 1] = _mapped(grid, own + i), _mapped(grid, float(i))
        j += 2
    top = -inf
    for i in range(j):
        t[0, i] = min(max(t[0, i], low), high)
        t[1, i] = _slopes(density, theta, y, mean + scale * t[0, i])[0] - 0.5 * t[0, i] * t[0, i]
        top = max(top, t[1, i])
    first, last, below, above = high, low, low, high
    for i in range(j):
        if t[1, i] > top - (rule.FAR + 4.0):
            first, last = min(first, t[0, i]), max(last, t[0, i])
    for i in range(j):
        below = max(below, t[0, i]) if t[0, i] < first else below
        above = min(above, t[0, i]) if t[0, i] > last else above
    least = 1e-7 * max(abs(below), abs(above))  # no closer than rounding of t² allows
    return min(below, above - least), max(above, below + least)


@_jit
def _window(density: int, theta: np.ndarray, row: Numbers, grid: Numbers) -> tuple[float, float]:
    """Return the lowest and the highest t that count in the average."""
    y, mean, scale = row
    at_centre = _slopes(density, theta, y, mean + scale * grid[0])[0]
    gap = min(max(at_centre - _slopes(density, theta, y, mean)[0], 0.0) + 1.0, 1e100)
    high = sqrt(2.0 * rule.FAR + min(2.0 * gap, grid[0] * grid[0] + 4.0))
    low = -high
    if gap <= rule.NEAR and _needed(grid, low, high)[1] <= rule.MANY:
        return low, high
    t = np.empty((2, 2 * rule.COARSE + 10))
    for _ in range(rule.WINDOW_ROUNDS):
        size, length = high - low, _inverse(grid, high) - _inverse(grid, low)
        low, high = _closer(density, theta, row, grid, low, high, t)
        shorter = _inverse(grid, high) - _inverse(grid, low) < 0.6 * length
        if not shorter and high - low >= 0.6 * size:
            break
    return low, high


@_jit
def average(density: int, theta: np.ndarray, y: float, mean: float, var: float) -> tuple[float, float, float]:
    """Return log⟨p(y|f)⟩, q and r from moments of t, or of log p's slopes where p hardly bends over √var."""
    scale = sqrt(var)
    row = y, mean, scale
    grid = _grid(density, theta, y, mean, scale)
    low, high = _window(density, theta, row, grid)
    straight, count = _needed(grid, low, high)
    if not count >= 2.0:  # of NaN
        return np.nan, np.nan, np.nan
    if not straight:
        low, high = _inverse(grid, low), _inverse(grid, high)
    number, step, top = int(count), (high - low) / (count - 1.0), -inf
    at = np.empty((number, 5))  # log weight, t, slope and bend of log p, dt/du
    for i in range(number):
        u = low + step * i
        t = u if straight else _mapped(grid, u)
        value, slope, bend = _slopes(density, theta, y, mean + scale * t)
        at[i, 0], at[i, 1], at[i, 2], at[i, 3], at[i, 4] = value - 0.5 * t * t, t, slope, bend, 1.0
        if not straight:
            _, _, _, left, right, log_left, log_right = grid
            at[i, 4] = right / (1.0 + exp(-u - log_right)) + left / (1.0 + exp(u - log_left))
        top = max(top, at[i, 0])
    mass, sums = 0.0, np.zeros(4)  # of t, slope, bend and |bend|
    for i in range(number):
        at[i, 0] = exp(at[i, 0] - top) * at[i, 4]
        mass += at[i, 0]
        for k in range(3):
            sums[k] += at[i, 0] * at[i, k + 1]
        sums[3] += at[i, 0] * abs(at[i, 3])
    centre, first, second = sums[0] / mass, sums[1] / mass, sums[2] / mass
    spread, between = 0.0, 0.0
    for i in range(number):
        spread += at[i, 0] * (at[i, 1] - centre) * (at[i, 1] - centre)
        between += at[i, 0] * (at[i, 2] - first) * (at[i, 2] - first)
    value = top + log(mass * step) - LOG_ROOT_2PI + _constant(density, theta, y)
    bends = var * sums[3] > 1e-2 * mass
    q, r = (centre / scale, (spread / mass - 1.0) / var) if bends else (first, second + between / mass)
    if abs(value) > rule.ROUNDED:  # weights are all rounding there: r as of a Gaussian p
        r = second / (1.0 + var * max(-second, 0.0))
    return value, q, r
