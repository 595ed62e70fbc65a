"""Averages of Student's t and of Poisson counts over f ~ N(mean, var): one row's integral, compiled.

With t = (f - mean)/√var the integrand is exp g, g(t) = log p(y|f) - t²/2. Both densities are bounded, so that
nothing but an interval of t matters; it is cut at the places where p bends, and further until two rules agree
on every panel.
"""

from math import exp, inf, lgamma, log, log1p, pi, sqrt

import numpy as np

from .compiling import helper
from .quadrature import ROUNDED
from .subdivision import ACCURACY, GAUSS, KRONROD, NODES

_jit = helper(error_model="numpy")  # a division by zero is infinite

MOST_HALVINGS = 60
CUTS = 4096  # of panels, at most
NEGLIGIBLE = 40.0  # nats below the largest, where nothing counts any more
ROOM = 64  # edges, at most


@_jit
def log_density(student: bool, theta: np.ndarray, y: float, f: float) -> float:
    """log p(y|f) up to what does not depend on f."""
    if student:
        e = (y - f) / theta[1]
        return -0.5 * (theta[0] + 1.0) * log1p(e * e / theta[0])
    return y * f - exp(min(f, 700.0))


@_jit
def constant(student: bool, theta: np.ndarray, y: float) -> float:
    if student:
        df = theta[0]
        return lgamma(0.5 * (df + 1.0)) - lgamma(0.5 * df) - 0.5 * log(pi * df) - log(theta[1])
    return -lgamma(y + 1.0)


@_jit
def _mode(y: float, mean: float, scale: float) -> float:
    """Where y f - exp(f) - t²/2 is largest: t = √var (y - exp f), concave, by Newton's method kept in a
    bracket.

    It begins with Lambert's function: w = var exp f solves w + log w = log var + mean + var y.
    """
    low, high = min(0.0, scale * (y - exp(min(mean, 700.0)))), max(0.0, scale * y)
    t = min(max(0.0, (log(y + 0.5) - mean) / scale), high)
    x = 2.0 * log(scale) + mean + scale * scale * y
    if x > 2.0:
        w = x - log(x)
        for _ in range(4):
            w *= (1.0 + x - log(w)) / (1.0 + w)
        t = min(max(low, scale * y - w / scale), high)
    for _ in range(200):
        rate = exp(min(mean + scale * t, 700.0))
        slope = scale * (y - rate) - t
        if slope > 0.0:
            low = t
        else:
            high = t
        step = slope / (1.0 + scale * scale * rate)
        if abs(step) <= 1e-10 * (1.0 + abs(t)):
            break
        t += step
        if not low < t < high:
            t = 0.5 * (low + high)
    return t


@_jit
def _student_mode(theta: np.ndarray, y: float, mean: float, scale: float) -> float:
    """Where a Student's t times N(mean, var) is largest, by the weights of its mixture of Gaussians; in t."""
    t, centre, width = 0.0, (y - mean) / scale, theta[1] / scale
    for _ in range(200):
        tau = (theta[0] + 1.0) / (theta[0] * width * width + (centre - t) ** 2)
        step = tau * centre / (1.0 + tau) - t
        t += step
        if abs(step) <= 1e-6 * (1.0 + abs(t)):
            break
    return t


@_jit
def _bend(student: bool, theta: np.ndarray, y: float, mean: float, scale: float, t: float) -> float:
    """The second derivative of log p in t, no more than 0."""
    if not student:
        return -scale * scale * exp(min(mean + scale * t, 700.0))
    e = (y - mean - scale * t) / theta[1]
    over = 1.0 / (theta[0] + e * e)
    return min(0.0, (theta[0] + 1.0) * (scale / theta[1]) ** 2 * over * (1.0 - 2.0 * theta[0] * over))


@_jit
def _edges(student: bool, theta: np.ndarray, y: float, mean: float, scale: float, edges: np.ndarray) -> int:
    """Fill in the edges of the panels, in order; returns how many there are."""
    if student:
        centre, width = (y - mean) / scale, theta[1] / scale  # of p, in t
        gap = log_density(student, theta, y, y) - log_density(student, theta, y, mean)
        # beyond, exp(-t²/2) of the largest p is nothing beside p at t = 0
        reach = sqrt(2.0 * (NEGLIGIBLE + gap))
        low, high = -reach, reach
    else:
        gap = 0.0
        centre = _mode(y, mean, scale)
        width = 1.0 / sqrt(1.0 - _bend(student, theta, y, mean, scale, centre))
        low, high = centre - sqrt(2.0 * NEGLIGIBLE), centre + sqrt(2.0 * NEGLIGIBLE)  # g'' ≤ -1
    count = 17
    for i in range(count):
        edges[i] = low + (high - low) * i / (count - 1)
    for spread in (-128.0, -32.0, -8.0, -2.0, 0.0, 2.0, 8.0, 32.0, 128.0):
        t = centre + spread * width
        if low < t < high:
            edges[count] = t
            count += 1
    if gap > 100.0:  # a peak between y and the mean that the others may miss
        centre = _student_mode(theta, y, mean, scale)
        width = 1.0 / sqrt(1.0 - _bend(student, theta, y, mean, scale, centre))
        for spread in (-8.0, -2.0, 0.0, 2.0, 8.0):
            edges[count] = centre + spread * width
            count += 1
    for i in range(1, count):  # in order, by insertion: a general sort takes long to compile
        t, j = edges[i], i
        while j > 0 and edges[j - 1] > t:
            edges[j] = edges[j - 1]
            j -= 1
        edges[j] = t
    return count


@_jit
def _panel(
    student: bool,
    theta: np.ndarray,
    y: float,
    mean: float,
    scale: float,
    left: float,
    right: float,
    top: float,
    about: float,
    out: np.ndarray,
) -> None:
    """∫ (1, t - about, (t - about)²) exp(g - top) in out[:3], and the smaller rule's errors in out[3:]."""
    half, middle = 0.5 * (right - left), 0.5 * (right + left)
    out[:] = 0.0
    for j in range(len(NODES)):
        t = middle + half * NODES[j]
        value = half * exp(log_density(student, theta, y, mean + scale * t) - 0.5 * t * t - top)
        for power in range(3):
            out[power] += KRONROD[j] * value
            out[3 + power] += (KRONROD[j] - GAUSS[j]) * value
            value *= t - about


@_jit
def average(
    student: bool, theta: np.ndarray, y: float, mean: float, var: float
) -> tuple[float, float, float]:
    """(log⟨p(y|f)⟩, q, r): q = (E f - mean)/var and r = (Var f - var)/var². [004 eq. 2.42]"""
    scale = sqrt(var)
    edges, parts, part, total = np.empty(ROOM), np.empty((ROOM, 6)), np.empty(6), np.zeros(3)
    count = _edges(student, theta, y, mean, scale, edges)
    top, about = -inf, 0.0
    for i in range(count):
        g = log_density(student, theta, y, mean + scale * edges[i]) - 0.5 * edges[i] ** 2
        if g > top:
            top, about = g, edges[i]
    zeroth, second = 0.0, 0.0  # of the whole, roughly
    for i in range(count - 1):
        _panel(student, theta, y, mean, scale, edges[i], edges[i + 1], top, about, parts[i])
        zeroth, second = zeroth + parts[i, 0], second + parts[i, 2]
    lefts, rights, cuts = np.empty(MOST_HALVINGS + 1), np.empty(MOST_HALVINGS + 1), 0
    for i in range(count - 1):
        lefts[0], rights[0], part[:], depth = edges[i], edges[i + 1], parts[i], 1
        while True:
            left, right = lefts[depth - 1], rights[depth - 1]
            fine = abs(part[3]) <= ACCURACY * zeroth and abs(part[5]) <= ACCURACY * second
            if fine or depth == MOST_HALVINGS or cuts == CUTS:
                total += part[:3]
                depth -= 1
                if depth == 0:
                    break
            else:
                cuts += 1
                middle = 0.5 * (left + right)
                rights[depth - 1] = middle
                lefts[depth], rights[depth] = middle, right
                depth += 1
            _panel(student, theta, y, mean, scale, lefts[depth - 1], rights[depth - 1], top, about, part)
    shift = total[1] / total[0]
    spread = total[2] / total[0] - shift * shift
    if abs(top) > ROUNDED:
        shift, spread = 0.0, 1.0 / (1.0 - _bend(student, theta, y, mean, scale, about))
        total[0] = sqrt(2.0 * pi * spread)
    value = top + log(total[0]) - 0.5 * log(2.0 * pi) + constant(student, theta, y)
    return value, (about + shift) / scale, (spread - 1.0) / var
