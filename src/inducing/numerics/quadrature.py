"""Averages over f ~ N(mean, var), tilted by p(y|f)^a or not, on few nodes a row and for all rows at once.

The rule is the trapezoidal one, which converges exponentially for an integrand that is analytic and vanishes
at both ends. f is a function of u whose slope follows two scales: √var, and the distance to the place where
log p bends, its `Feature`. So thirty or so nodes do where one scale would need thousands.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .arrays import Array, asarray_like, is_numpy, namespace
from .special import log_sigmoid

FAR = 34.0  # nats below the largest, where nothing counts any more
ROUNDED = 1e11  # log averages beyond have no digits left for the weights
NEAR = 8.0  # nats that p at the mean may lie below its largest before the window is looked for
CURVED, PEAKED = 0.3, 0.2  # steps of u, at most, where f follows a feature without and with a peak
STRAIGHT = 0.62  # step of t = (f - mean)/√var, at most, where it does not; and in units of the peak
CLEAR = 0.15  # step of f, at most, in units of the distance to the nearest singularity
FEWEST, MANY, MOST_NODES = 32, 96, 4096  # nodes: at least; from where a closer window pays; at most
COARSE = 17  # nodes that look for the window, in u and in t
WINDOW_ROUNDS = 60  # of looking, at most
ENTRIES = 1 << 16, 1 << 22  # rows × nodes at a time, in NumPy and elsewhere
INFINITE = float("inf")


@cache
def hermite(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Hermite nodes and weights of averages over N(0, 1), without a tilt. (count,) each"""
    t, weight = np.polynomial.hermite_e.hermegauss(count)
    return t, weight / np.sum(weight)


@cache
def equal_steps(shift: float, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Equidistant nodes and weights of averages over N(0, 1), of functions that may grow as exp(-shift t) to
    the left: for smooth ones fewer than Gauss and Hermite need. (k,) each
    """
    t = np.arange(-8.0 - shift, 8.0, min(step, 0.7))
    weight = np.exp(-0.5 * t * t)
    return t, weight / np.sum(weight)


class Tilted(NamedTuple):
    """log⟨p(y|f)^a⟩, or ⟨log p(y|f)⟩ for a = 0, and two derivatives in the mean. (n,) each [004 eq. 2.42]"""

    log_average: Array
    q: Array
    r: Array


class Feature(NamedTuple):
    """The place where a·log p(y|f) bends as a function of f, and its scale. (n,) each, or one for all rows

    `centre` is where it is within a nat or so of its largest, `width` how far it has no singularity there in
    the complex plane; `peak` is the standard deviation of the Gaussian that p^a is like there, if it is. Away
    from the centre it may bend on a scale that grows with the distance, up to `left` and `right` on the two
    sides: 1 where a factor exp(-exp f) is a wall on the right. What bends more is given a `fine` below 1.
    """

    centre: Array | float
    width: Array | float
    peak: Array | float = INFINITE
    left: Array | float = INFINITE
    right: Array | float = INFINITE
    fine: Array | float = 1.0


class WeightedNodes(NamedTuple):
    """Nodes of some rows, and their weights under the normalised N(f; mean, var) p(y|f)^a."""

    rows: Any  # a slice, or the numbers of the rows. (k,)
    t: Array  # (k, j): (f - mean)/√var
    weight: Array  # (k, j)
    log_mass: Array  # (k,): log ∫ N(f; mean, var) p(y|f)^a df
    values: tuple[Array, ...]  # of the functions, log p first. (k, j) each


OfRows = Callable[[Any, Array], Any]  # (rows, f (k, j)) -> one or several arrays (k, j)


def nodes(
    functions: OfRows, log_density: OfRows, mean: Array, var: Array, feature: Feature, power: float
) -> Iterator[WeightedNodes]:
    """Nodes and weights, some rows at a time; `functions` gives log p(y|f) and what is to be averaged."""
    xp = namespace(mean)
    grid = _Grid(mean, xp.sqrt(var), feature)
    plan = _plan(grid, log_density, power)
    for straight, number, rows in _chunks(plan, mean):
        low, high = plan.low[rows], plan.high[rows]
        u = low[:, None] + (high - low)[:, None] * asarray_like(np.linspace(0.0, 1.0, number), mean)  # (k, j)
        t, slope = (u, 1.0) if straight else grid.map(rows, u)
        values = functions(rows, grid.f(rows, t))
        g = -0.5 * t * t if power == 0.0 else power * values[0] - 0.5 * t * t
        top = xp.max(g, axis=1)
        weight = xp.exp(g - top[:, None]) * slope
        mass = xp.sum(weight, axis=1)
        log_mass = top + xp.log(mass * ((high - low) / (number - 1))) - 0.5 * np.log(2.0 * np.pi)
        yield WeightedNodes(rows, t, weight / mass[:, None], log_mass, values)


class _Grid:
    """The map from u to t = (f - mean)/√var of every row.

        f = centre + R log(1 + w e^u / R) - L log(1 + w e^-u / L)

    is centre + 2w sinh u near the centre, and goes on straight with slopes R and L of the order of √var.
    """

    def __init__(self, mean: Array, scale: Array, feature: Feature) -> None:
        xp = namespace(mean)
        self.mean, self.scale = mean, scale
        centre, width, peak, left, right, self.fine = (xp.zeros_like(mean) + part for part in feature)
        self.centre = centre
        self.offset = (centre - mean) / scale  # in units of √var from here on
        self.width, self.peak = width / scale, peak / scale
        self.peaked = self.peak < 0.4 * self.width
        w = xp.minimum(0.5 * self.width, self.peak)
        widest = 1.0 + 1.0 / (1.0 + w)  # both slopes count where w is wide, one where it is not
        self.left, self.right = xp.minimum(widest, left / scale), xp.minimum(widest, right / scale)
        self.log_left, self.log_right = xp.log(w / self.left), xp.log(w / self.right)

    def f(self, rows: Any, t: Array) -> Array:
        return self.mean[rows][:, None] + self.scale[rows][:, None] * t

    def map(self, rows: Any, u: Array) -> tuple[Array, Array]:
        """t and dt/du. (k, j) each"""
        right, right_slope = _softplus(u + self.log_right[rows][:, None])
        left, left_slope = _softplus(self.log_left[rows][:, None] - u)
        R, L = self.right[rows][:, None], self.left[rows][:, None]
        return self.offset[rows][:, None] + R * right - L * left, R * right_slope + L * left_slope

    def inverse(self, rows: Any, t: Array) -> Array:
        """u of t, or a little farther from 0. (k,)"""
        xp = namespace(t)
        x = t - self.offset[rows]
        R, L, log_R, log_L = self.right[rows], self.left[rows], self.log_right[rows], self.log_left[rows]
        up = x > 0
        a, log_a = xp.where(up, R, L), xp.where(up, log_R, log_L)
        b, log_b = xp.where(up, L, R), xp.where(up, log_L, log_R)
        x, u = xp.abs(x), xp.zeros_like(x)
        for _ in range(3):  # above, below, and closer above the root
            z = xp.maximum((x + b * _softplus(log_b - u)[0]) / a, 1e-300)
            u = xp.maximum(z + xp.log(-xp.expm1(-z)) - log_a, 0.0)
        return xp.where(up, u, -u)


def _softplus(x: Array) -> tuple[Array, Array]:
    """log(1 + exp x) = -log σ(-x) and its derivative."""
    value, _, slope = log_sigmoid(-x)
    return -value, slope


class _Plan(NamedTuple):
    """Windows of u, or of t in rows that are straight, and how many nodes they need. (n,) each"""

    low: Array
    high: Array
    straight: Array
    count: Array


def _plan(grid: _Grid, log_density: OfRows, power: float) -> _Plan:
    xp, everything = namespace(grid.mean), slice(None)
    if power == 0.0:
        reach = xp.zeros_like(grid.mean) + np.sqrt(2.0 * FAR)
        return _nodes_needed(grid, everything, -reach, reach)
    value = power * log_density(everything, xp.stack([grid.centre, grid.mean], axis=1))
    gap = xp.maximum(value[:, 0] - value[:, 1], 0.0) + 1.0
    gap = xp.where(gap < 1e100, gap, 1e100)  # p may be 0 at the mean
    # beyond, the prior of the largest p is nothing beside p at the mean, or at the centre
    high = xp.sqrt(2.0 * FAR + xp.minimum(2.0 * gap, grid.offset**2 + 4.0))
    low = -high
    plan = _nodes_needed(grid, everything, low, high)
    rows = looked_at = xp.nonzero((gap > NEAR) | (plan.count > MANY))[0]
    for _ in range(WINDOW_ROUNDS):
        if rows.shape[0] == 0:
            break
        before = _sizes(grid, rows, low[rows], high[rows])
        low[rows], high[rows] = _closer(grid, log_density, power, rows, low[rows], high[rows])
        after = _sizes(grid, rows, low[rows], high[rows])
        rows = rows[(after[0] < 0.6 * before[0]) | (after[1] < 0.6 * before[1])]
    if looked_at.shape[0]:
        for whole, part in zip(plan, _nodes_needed(grid, looked_at, low[looked_at], high[looked_at])):
            whole[looked_at] = part
    return plan


def _sizes(grid: _Grid, rows: Any, low: Array, high: Array) -> tuple[Array, Array]:
    """The lengths of windows, of t and of u. (k,) each"""
    return high - low, grid.inverse(rows, high) - grid.inverse(rows, low)


def _nodes_needed(grid: _Grid, rows: Any, low: Array, high: Array) -> _Plan:
    """Plan the nodes of windows of t: in steps of t or of u, whichever are fewer."""
    xp = namespace(low)
    width, peak, offset = grid.width[rows], grid.peak[rows], grid.offset[rows]
    away = xp.maximum(xp.maximum(low - offset, offset - high), 0.0)
    step = CLEAR * xp.maximum(width, away)
    product = STRAIGHT * xp.minimum(peak, 1.0) / xp.sqrt(1.0 + xp.minimum(peak, 1.0 / peak) ** 2)
    step = xp.minimum(xp.minimum(step, STRAIGHT), xp.where(away < 8.0 * peak, product, STRAIGHT))
    u_low, u_high = grid.inverse(rows, low), grid.inverse(rows, high)
    curved = (u_high - u_low) / (grid.fine[rows] * xp.where(grid.peaked[rows], PEAKED, CURVED + 0.0 * low))
    straight = (step >= STRAIGHT) | ((high - low) / step <= 1.5 * curved)
    count = xp.where(straight, (high - low) / step, curved)
    count = 8.0 * xp.ceil(xp.clip(count + 1.0, FEWEST, MOST_NODES) / 8.0)
    return _Plan(xp.where(straight, low, u_low), xp.where(straight, high, u_high), straight, count)


def _closer(
    grid: _Grid, log_density: OfRows, power: float, rows: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """Windows of t cut to where the integrand counts on a few coarse nodes, and one node more. (k,) each"""
    xp = namespace(low)
    part, near = (asarray_like(np.linspace(*ends), low) for ends in ((0.0, 1.0, COARSE), (-2.0, 2.0, 5)))
    u_low, u_high = grid.inverse(rows, low)[:, None], grid.inverse(rows, high)[:, None]
    u = [u_low + (u_high - u_low) * part, grid.inverse(rows, xp.zeros_like(low))[:, None] + near]
    u.append(xp.zeros_like(u_low) + near)
    low, high = low[:, None], high[:, None]
    t = xp.concat([grid.map(rows, xp.concat(u, axis=1))[0], low + (high - low) * part], axis=1)  # (k, j)
    t = xp.clip(t, low, high)
    g = power * log_density(rows, grid.f(rows, t)) - 0.5 * t * t
    counts = g > xp.max(g, axis=1)[:, None] - (FAR + 4.0)
    first = xp.min(xp.where(counts, t, high), axis=1)[:, None]
    last = xp.max(xp.where(counts, t, low), axis=1)[:, None]
    low, high = xp.max(xp.where(t < first, t, low), axis=1), xp.min(xp.where(t > last, t, high), axis=1)
    least = 1e-7 * xp.maximum(xp.abs(low), xp.abs(high))  # no closer than rounding of t² allows
    return xp.minimum(low, high - least), xp.maximum(high, low + least)


def _chunks(plan: _Plan, like: Array) -> Iterator[tuple[bool, int, Any]]:
    """Groups of rows with equal plans: whether they are straight, the number of their nodes, the rows."""
    xp = namespace(like)
    key = xp.where(plan.straight, -plan.count, plan.count)
    kinds = xp.unique_values(key).tolist()
    for kind in kinds:
        number = int(abs(kind))
        rows = None if len(kinds) == 1 else xp.nonzero(key == kind)[0]
        size = max(ENTRIES[not is_numpy(like)] // number, 1)
        for start in range(0, key.shape[0] if rows is None else rows.shape[0], size):
            part = slice(start, start + size)
            yield kind < 0.0, number, part if rows is None else rows[part]
