"""Averages over f ~ N(mean, var), tilted by p(y|f)^a or not, from few nodes a row, for all rows at once.

The rule is the trapezoidal one, which converges exponentially for an integrand that is analytic and vanishes at
both ends. f is a function of u whose slope follows two scales: √var, and the distance to the place where log p
bends (its `Feature`). So thirty or so nodes do where one scale would need thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .arrays import Array, asarray_like, is_numpy, namespace

FAR = 36.0  # nats below the largest, where nothing counts any more
STEPS = 0.3, 0.2  # of u, at most, where f follows a feature without and with a peak
PLAIN = 0.65  # of t = (f - mean)/√var, at most, where it does not; and in units of the peak
FEWEST, MOST = 24, 4096  # nodes
COARSE = 33  # nodes that look where the integrand is
ROUNDS = 60  # of looking
ENTRIES = 1 << 16, 1 << 22  # rows × nodes at a time, in NumPy and elsewhere
INFINITE = float("inf")


class Tilted(NamedTuple):
    """log⟨p(y|f)^a⟩, or ⟨log p(y|f)⟩ for a = 0, and its first and second derivative in the mean. (n,) each
    [004 eq. 2.42]
    """

    log_average: Array
    q: Array
    r: Array


class Feature(NamedTuple):
    """Where a·log p(y|f), as a function of f, is within a nat or two of its largest, and on which scale it bends
    there. (n,) each

    Away from `centre` it may bend on a scale that grows with the distance, but on neither side on one beyond
    `left` or `right`: 1 where a factor exp(-exp f) is a wall on the right.
    """

    centre: Array
    width: Array  # as far as the function has no singularity in the complex plane
    peak: Array | float = INFINITE  # standard deviation of the Gaussian that p^a is like, if it is
    left: Array | float = INFINITE
    right: Array | float = INFINITE


class Nodes(NamedTuple):
    """Nodes of some rows, and their weights under the normalised N(f; mean, var) p(y|f)^a."""

    rows: Any  # a slice, or the numbers of the rows. (k,)
    f: Array  # (k, j)
    t: Array  # (k, j): (f - mean)/√var
    weight: Array  # (k, j)
    log_mass: Array  # (k,): log ∫ N(f; mean, var) p(y|f)^a df
    values: tuple[Array, ...]  # of the functions, log p first. (k, j) each


Functions = Callable[[Any, Array], tuple[Array, ...]]  # (rows, f) -> log p(y|f) and more


def nodes(
    functions: Functions,
    log_density: Callable[[Any, Array], Array],
    mean: Array,
    var: Array,
    feature: Feature,
    power: float,
) -> Iterator[Nodes]:
    """Nodes and weights for every row, some rows at a time.

    `functions(rows, f)` gives log p(y|f) first, and then whatever is to be averaged; `log_density` log p alone,
    f (k, j).
    """
    xp, n = namespace(mean), mean.shape[0]
    grid = _Grid(mean, xp.sqrt(var), feature)
    low, high = _window(grid, log_density, power)
    plain, low, high, count = _choose(grid, low, high)
    for number, rows in _groups(plain, count):
        size = max(ENTRIES[not is_numpy(mean)] // number[1], 1)
        for part in _slices(rows, n, size):
            u = xp.arange(number[1], dtype=mean.dtype)
            u = asarray_like(u, mean) / (number[1] - 1)
            step = (high[part] - low[part]) / (number[1] - 1)
            u = low[part][:, None] + (high[part] - low[part])[:, None] * u  # (k, j)
            t, slope = (u, 1.0) if number[0] else grid.map(part, u)
            f = mean[part][:, None] + grid.scale[part][:, None] * t
            values = functions(part, f)
            g = -0.5 * t * t if power == 0.0 else power * values[0] - 0.5 * t * t
            top = xp.max(g, axis=1)
            weight = xp.exp(g - top[:, None]) * slope
            mass = xp.sum(weight, axis=1)
            weight = weight / mass[:, None]
            yield Nodes(part, f, t, weight, top + xp.log(mass * step) - 0.5 * np.log(2.0 * np.pi), values)


class _Grid:
    """The map from u to t = (f - mean)/√var of every row.

        f = centre + R log(1 + w e^u / R) - L log(1 + w e^-u / L)

    is centre + 2w sinh u near the centre, and goes on straight with slopes R and L of the order of √var.
    """

    def __init__(self, mean: Array, scale: Array, feature: Feature) -> None:
        xp = namespace(mean)
        self.mean, self.scale = mean, scale
        full = xp.zeros_like(mean)
        self.width = full + feature.width
        self.offset = (feature.centre - mean) / scale  # in units of √var from here on
        self.peak = (full + feature.peak) / scale
        w = xp.minimum(0.5 * self.width / scale, self.peak)
        widest = 1.0 + 1.0 / (1.0 + w)
        self.left = xp.minimum(widest, (full + feature.left) / scale)
        self.right = xp.minimum(widest, (full + feature.right) / scale)
        self.log_left, self.log_right = xp.log(w / self.left), xp.log(w / self.right)
        self.centre = feature.centre + full

    def map(self, rows: Any, u: Array) -> tuple[Array, Array]:
        """t and dt/du. (k, j) each"""
        right, right_slope = _softplus(u + self.log_right[rows][:, None])
        left, left_slope = _softplus(self.log_left[rows][:, None] - u)
        R, L = self.right[rows][:, None], self.left[rows][:, None]
        return self.offset[rows][:, None] + R * right - L * left, R * right_slope + L * left_slope

    def inverse(self, rows: Any, t: Array) -> Array:
        """u of t. (k, j)"""
        xp = namespace(t)
        x = t - self.offset[rows][:, None]
        R, L = self.right[rows][:, None], self.left[rows][:, None]
        kR, kL = self.log_right[rows][:, None], self.log_left[rows][:, None]
        up = x > 0
        a, b, ka, kb = xp.where(up, R, L), xp.where(up, L, R), xp.where(up, kR, kL), xp.where(up, kL, kR)
        x, u = xp.abs(x), xp.zeros_like(x)
        for _ in range(3):  # above, below, and closer above the root
            z = xp.maximum((x + b * _softplus(kb - u)[0]) / a, 1e-300)
            u = xp.maximum(z + xp.log(-xp.expm1(-z)) - ka, 0.0)
        return xp.where(up, u, -u)


def _softplus(x: Array) -> tuple[Array, Array]:
    """log(1 + exp x) and its derivative."""
    xp = namespace(x)
    below = xp.exp(xp.minimum(x, 0.0))
    e = below * xp.exp(-xp.maximum(x, 0.0))
    return xp.maximum(x, 0.0) + xp.log1p(e), below / (1.0 + e)


def _window(grid: _Grid, log_density: Callable[[Any, Array], Array], power: float) -> tuple[Array, Array]:
    """t between which the integrand is more than FAR below its largest nowhere but at the ends. (n,) each"""
    xp = namespace(grid.mean)
    if power == 0.0:
        reach = xp.zeros_like(grid.mean) + np.sqrt(2.0 * FAR)
        return -reach, reach
    at = xp.stack([grid.centre, grid.mean], axis=1)  # (n, 2)
    value = power * log_density(slice(None), at)
    gap = xp.maximum(value[:, 0] - value[:, 1], 0.0) + 1.0
    gap = xp.where(gap < 1e100, gap, 1e100)
    reach = xp.sqrt(2.0 * (FAR + gap))
    low, high = -reach, reach * 1.0
    u = grid.inverse(slice(None), xp.stack([low, high], axis=1))
    rows = xp.nonzero((gap > 8.0) | (u[:, 1] - u[:, 0] > 20.0) | (grid.peak < 0.7))[0]
    for _ in range(ROUNDS):
        if rows.shape[0] == 0:
            break
        new_low, new_high = _closer(grid, log_density, power, rows, low[rows], high[rows])
        before = high[rows] - low[rows]
        low[rows], high[rows] = new_low, new_high
        rows = rows[new_high - new_low < 0.6 * before]
    return low, high


def _closer(
    grid: _Grid, log_density: Any, power: float, rows: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """The same window cut to where the integrand counts, seen from a few coarse nodes."""
    xp = namespace(low)
    u = grid.inverse(rows, xp.stack([low, high, xp.zeros_like(low)], axis=1))  # (k, 3)
    part = asarray_like(np.linspace(0.0, 1.0, COARSE), low)
    near = asarray_like(np.linspace(-2.0, 2.0, 5), low)
    t_line = low[:, None] + (high - low)[:, None] * part
    u = xp.concat(
        [
            u[:, 0][:, None] + (u[:, 1] - u[:, 0])[:, None] * part,
            u[:, 2][:, None] + near,
            near + 0.0 * low[:, None],
        ],
        axis=1,
    )
    t = xp.concat([grid.map(rows, u)[0], t_line], axis=1)
    t = xp.sort(xp.clip(t, low[:, None], high[:, None]), axis=1)
    f = grid.mean[rows][:, None] + grid.scale[rows][:, None] * t
    g = power * log_density(rows, f) - 0.5 * t * t
    counts = g > xp.max(g, axis=1)[:, None] - (FAR + 4.0)
    last = t.shape[1] - 1
    numbers = xp.arange(last + 1)
    first = xp.min(xp.where(counts, numbers, last), axis=1)
    final = xp.max(xp.where(counts, numbers, 0), axis=1)
    row = xp.arange(t.shape[0])
    return t[row, xp.maximum(first - 1, 0)], t[row, xp.minimum(final + 1, last)]


def _choose(grid: _Grid, low: Array, high: Array) -> tuple[Array, Array, Array, Array]:
    """Which rows take t itself for u, the windows in u, and how many nodes."""
    xp = namespace(low)
    away = xp.maximum(xp.maximum(low - grid.offset, grid.offset - high), 0.0)
    step = 0.17 * xp.sqrt((grid.width / grid.scale) ** 2 + away * away)
    step = xp.minimum(
        xp.minimum(step, PLAIN),
        xp.where(away < 8.0 * grid.peak, PLAIN / xp.sqrt(1.0 + 1.0 / grid.peak**2), PLAIN),
    )
    u = grid.inverse(slice(None), xp.stack([low, high], axis=1))
    straight = (high - low) / step
    curved = (u[:, 1] - u[:, 0]) / xp.where(grid.peak < 0.5 * grid.width / grid.scale, STEPS[1], STEPS[0])
    plain = straight <= 1.5 * curved
    low, high = xp.where(plain, low, u[:, 0]), xp.where(plain, high, u[:, 1])
    count = xp.clip(8.0 * xp.ceil(xp.where(plain, straight, curved) / 8.0), FEWEST, MOST)
    return plain, low, high, count


def _groups(plain: Array, count: Array) -> Iterator[tuple[tuple[bool, int], Any]]:
    xp = namespace(count)
    key = xp.where(plain, -count, count)
    if key.shape[0] == 0:
        return
    kinds = xp.unique_values(key) if hasattr(xp, "unique_values") else xp.unique(key)
    for kind in kinds:
        number = int(abs(float(kind)))
        yield (float(kind) < 0.0, number), None if kinds.shape[0] == 1 else xp.nonzero(key == kind)[0]


def _slices(rows: Any, n: int, size: int) -> Iterator[Any]:
    for start in range(0, n if rows is None else rows.shape[0], size):
        yield slice(start, start + size) if rows is None else rows[start : start + size]
