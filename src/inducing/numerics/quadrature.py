"""Averages over f ~ N(mean, var), tilted by p(y|f)^a or not, for all rows at once.

Where it is known how p bends, about thirty nodes a row are enough: the trapezoidal rule converges
exponentially for an integrand that is analytic and vanishes at both ends. It steps in u, and the slope of
f(u) follows two scales, √var and the distance to the place where log p bends, its `Feature`; with one scale
it would take thousands of nodes. Any other p is averaged by panels, which are cut until two rules agree.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..errors import NonFiniteError
from .arrays import Array, asarray_like, is_numpy, namespace, to_numpy
from .special import log_sigmoid

FAR = 34.0  # nats below the largest integrand, from which on it is negligible
ROUNDED = 1e11  # log averages beyond have no digits left for the weights
NEAR = 8.0  # nats that p at the mean may lie below its largest before the window is searched for
CURVED, PEAKED = 0.3, 0.2  # largest steps of u, where f follows a feature without and with a peak
STRAIGHT = 0.62  # largest step of t = (f - mean)/√var, where it does not; and in units of the peak
CLEAR = 0.15  # largest step of f in units of the distance to the nearest singularity
FEWEST, MANY, MOST_NODES = 32, 96, 4096  # nodes: the fewest; above which a closer window pays; the most
COARSE = 17  # nodes for the search of the window, in u and in t
WINDOW_ROUNDS = 60  # of this search, at most
ENTRIES = 1 << 16, 1 << 22  # rows × nodes at a time, in NumPy and elsewhere
INFINITE = float("inf")

# Nodes of the 15-point Kronrod rule on [0, 1], its weights, and those of the 7-point Gauss rule inside it.
NODES_RIGHT = [
    *(0.0, 0.207784955007898467600689403773245, 0.405845151377397166906606412076961),
    *(0.586087235467691130294144691258925, 0.741531185599394439863864773280788),
    *(0.864864423359769072789712788640926, 0.949107912342758524526189684047851),
    0.991455371120812639206854697526329,
]
KRONROD_RIGHT = [
    *(0.209482141084727828012999174891714, 0.204432940075298892414161999234649),
    *(0.190350578064785409913256402421014, 0.169004726639267902826583426598550),
    *(0.140653259715525918745189590510238, 0.104790010322250183839876322541518),
    *(0.063092092629978553290700663189204, 0.022935322010529224963732008058970),
]
GAUSS_RIGHT = [
    *(0.417959183673469387755102040816327, 0.0, 0.381830050505118944950369775488975, 0.0),
    *(0.279705391489276667901467771423780, 0.0, 0.129484966168869693270611432679082, 0.0),
]
NODES = np.array([-x for x in NODES_RIGHT[:0:-1]] + NODES_RIGHT)
KRONROD, GAUSS = (np.array(half[:0:-1] + half) for half in (KRONROD_RIGHT, GAUSS_RIGHT))
KRONROD_RULES = np.stack([KRONROD, KRONROD - GAUSS], axis=1)  # (15, 2): integral, error

EDGES = np.concatenate(
    [-(10.0 ** np.arange(8, 1, -1)), np.sinh(np.linspace(-4.4, 4.4, 25)), 10.0 ** np.arange(2, 9)]
)
SPLITTING_ROUNDS = 80
PANELS_TOGETHER = 1 << 16  # and four times the first ones at most, for functions that no panel resolves
ROWS_TOGETHER = 2048, 1 << 15  # at a time, in NumPy and elsewhere
ACCURACY = 1e-10  # of the 7-point rule on a panel, relative to the whole; the 15-point rule is far better


@cache
def hermite(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Gauss-Hermite nodes and weights of averages over N(0, 1), without a tilt. (count,) each"""
    t, weight = np.polynomial.hermite_e.hermegauss(count)
    return t, weight / np.sum(weight)


@cache
def equal_steps(shift: float, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Return equidistant nodes and weights of averages over N(0, 1) of functions that may grow as
    exp(-shift t) to the left: for smooth ones fewer than Gauss-Hermite needs. (k,) each
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

    At `centre` it is within a nat or so of its largest, and the nearest singularity in the complex plane is
    `width` away; `peak` is the standard deviation of the Gaussian that p^a resembles there, if it does. Away
    from the centre it may bend on a scale that grows with the distance, up to `left` and `right` on the two
    sides: 1 where a factor exp(-exp f) is a wall on the right. `fine` below 1 makes the steps finer.
    """

    centre: Array | float
    width: Array | float
    peak: Array | float = INFINITE
    left: Array | float = INFINITE
    right: Array | float = INFINITE
    fine: Array | float = 1.0


class WeightedNodes(NamedTuple):
    """Nodes for some rows, and their weights under the normalised N(f; mean, var) p(y|f)^a."""

    rows: Any  # a slice, or the numbers of the rows. (k,)
    t: Array  # (k, j): (f - mean)/√var
    weight: Array  # (k, j)
    log_mass: Array  # (k,): log ∫ N(f; mean, var) p(y|f)^a df
    values: tuple[Array, ...]  # of the functions, log p first. (k, j) each


OfRows = Callable[[Any, Array], Any]  # (rows, f (k, j)) -> one or several arrays (k, j)


def nodes(
    functions: OfRows, log_density: OfRows, mean: Array, var: Array, feature: Feature, power: float
) -> Iterator[WeightedNodes]:
    """Yield nodes and weights, some rows at a time; `functions` gives log p(y|f) and what to average."""
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

    is centre + 2w sinh u near the centre, and far away straight with slopes R and L of the order of √var.
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
        """Return t and dt/du. (k, j) each"""
        right, right_slope = _softplus(u + self.log_right[rows][:, None])
        left, left_slope = _softplus(self.log_left[rows][:, None] - u)
        R, L = self.right[rows][:, None], self.left[rows][:, None]
        return self.offset[rows][:, None] + R * right - L * left, R * right_slope + L * left_slope

    def inverse(self, rows: Any, t: Array) -> Array:
        """Return u of t, or a little farther from 0. (k,)"""
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
    """Return log(1 + exp x) = -log σ(-x) and its derivative."""
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
    # farther out, the prior times the largest p is negligible beside p at the mean, or at the centre
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
    """Return the lengths of windows in t and in u. (k,) each"""
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
    """Return windows of t cut to the coarse nodes where the integrand counts, and one node more. (k,) each"""
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
    """Yield groups of rows with equal plans: whether they are straight, their number of nodes, the rows."""
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


# any density, by subdivision

LogDensity = Callable[[Array, Array], Array]  # log p(y|f) of arrays that broadcast


def tilted_by_quadrature(
    log_density: LogDensity, y: Array, mean: Array, var: Array, landmarks: Array | None, power: float
) -> Tilted:
    """Return log⟨p(y|f)^power⟩, or ⟨log p(y|f)⟩ if power = 0, and its derivatives q, r. (n,) each

    q = (E f - mean)/var and r = (Var f - var)/var² from the moments of what p^power makes of N(mean, var).
    Panels are cut in two until the 7-point Gauss and the 15-point Kronrod rule agree on each of them.
    `landmarks` (n, l) are values of f where p may change faster than the prior, such as y.
    """
    size, xp, parts = ROWS_TOGETHER[not is_numpy(mean)], namespace(mean), []
    for start in range(0, mean.shape[0], size):
        s = slice(start, start + size)
        scale = xp.sqrt(var[s])
        near = None if landmarks is None else (landmarks[s] - mean[s][:, None]) / scale[:, None]
        panels = _panels(log_density, y[s], mean[s], scale, near, power, start)
        parts.append((_expected if power == 0.0 else _tilted)(panels, scale))
    return Tilted(*(xp.concat(columns) for columns in zip(*parts))) if parts else Tilted(mean, mean, mean)


class Panels(NamedTuple):
    """The panels of some rows, and log p at their nodes."""

    row: Array  # (p,)
    t: Array  # (p, 15): (f - mean)/√var
    half: Array  # (p,)
    value: Array  # (p, 15): log p, times the power if there is one
    top: Array  # (n,): the largest of value - t²/2


def _panels(
    log_density: LogDensity, y: Array, mean: Array, scale: Array, near: Array | None, power: float, first: int
) -> Panels:
    """Cut panels until none needs a further cut."""
    xp, n = namespace(mean), mean.shape[0]
    edges = xp.broadcast_to(asarray_like(EDGES, mean), (n, len(EDGES)))
    if near is not None:
        edges = xp.sort(xp.concat([edges, near], axis=1), axis=1)
    left, right = (xp.reshape(part, (-1,)) for part in (edges[:, :-1], edges[:, 1:]))
    row = xp.nonzero(xp.ones_like(edges[:, 1:]))[0]
    nodes, rules = asarray_like(NODES, mean), asarray_like(KRONROD_RULES, mean)
    top = xp.zeros_like(mean) - np.inf
    centre = xp.zeros_like(mean)  # t of the largest
    done_before = [xp.zeros_like(mean), xp.zeros_like(mean)]  # two integrals over panels that are done
    finished, most = [], 4 * row.shape[0] + PANELS_TOGETHER
    for remaining in range(SPLITTING_ROUNDS - 1, -1, -1):
        half, middle = 0.5 * (right - left), 0.5 * (right + left)
        t = middle[:, None] + half[:, None] * nodes  # (p, 15)
        with np.errstate(over="ignore"):  # exp(f) far out, where p is 0
            f = mean[row][:, None] + scale[row][:, None] * t
            value = (power or 1.0) * log_density(y[row][:, None], f)
        _check(value, first + row)
        g = value - 0.5 * t * t if power else -0.5 * t * t
        here = xp.max(g, axis=1)
        before, top = top, xp.maximum(top, _largest(row, here, top))
        best = xp.max(xp.where(g == top[row][:, None], t, -np.inf), axis=1)
        best = _largest(row, best, top)
        centre = xp.where(xp.isfinite(best), best, centre)
        shift = xp.where(xp.isfinite(top), top, 0.0)
        weight = xp.exp(g - shift[row][:, None]) * half[:, None]
        weight = weight if power else weight * xp.where(xp.isfinite(value), value, 0.0)
        faded = xp.exp(xp.minimum(before - shift, 0.0))
        done = (half <= 1e-15 * xp.abs(middle)) | (remaining == 0 or row.shape[0] > most)
        fine = xp.ones_like(row, dtype=xp.bool)
        integrals = []
        for i, integrand in enumerate((weight, weight * (t - centre[row][:, None]) ** 2)):
            integral, error = (integrand @ rules).T
            done_before[i] = done_before[i] * faded
            whole = done_before[i] + sum_rows(row, integral, n)
            fine &= xp.abs(error) <= ACCURACY * xp.abs(whole)[row]
            integrals.append(integral)
        done |= fine
        for i, integral in enumerate(integrals):
            done_before[i] = done_before[i] + sum_rows(row[done], integral[done], n)
        finished.append((row[done], t[done], half[done], value[done]))
        row, left, middle, right = row[~done], left[~done], middle[~done], right[~done]
        if row.shape[0] == 0:
            break
        row = xp.concat([row, row])
        left, right = xp.concat([left, middle]), xp.concat([middle, right])
    row, t, half, value = (xp.concat(parts) for parts in zip(*finished))
    return Panels(row, t, half, value, top)


def _tilted(panels: Panels, scale: Array) -> Tilted:
    """Return the log of the mass, and q and r from the moments."""
    xp, n = namespace(scale), scale.shape[0]
    row, t = panels.row, panels.t
    shift = xp.where(xp.isfinite(panels.top), panels.top, 0.0)
    weight = xp.exp(panels.value - 0.5 * t * t - shift[row][:, None]) * panels.half[:, None]
    weight = weight * asarray_like(KRONROD, scale)
    with np.errstate(divide="ignore", invalid="ignore"):  # p is 0 wherever it was asked: log⟨p⟩ = -∞
        mass = sum_rows(row, xp.sum(weight, axis=1), n)
        centre = sum_rows(row, xp.sum(weight * t, axis=1), n) / mass
        spread = sum_rows(row, xp.sum(weight * (t - centre[row][:, None]) ** 2, axis=1), n) / mass
        log_mass = shift + xp.log(mass) - 0.5 * np.log(2.0 * np.pi)
        return Tilted(log_mass, centre / scale, (spread - 1.0) / scale**2)


def _expected(panels: Panels, scale: Array) -> Tilted:
    """Return the average of log p, and q and r from its products with Hermite polynomials."""
    xp, n = namespace(scale), scale.shape[0]
    row, t = panels.row, panels.t
    weight = xp.exp(-0.5 * t * t) * panels.half[:, None] * asarray_like(KRONROD / np.sqrt(2.0 * np.pi), scale)
    never = (panels.value == -np.inf) & (weight > 0.0)
    impossible = sum_rows(row, xp.where(xp.any(never, axis=1), panels.half, 0.0), n) > 0.0
    value = weight * xp.where(never | (weight == 0.0), 0.0, panels.value)
    averages = [sum_rows(row, xp.sum(value * factor, axis=1), n) for factor in (1.0, t, t * t - 1.0)]
    averages[0] = xp.where(impossible, -np.inf, averages[0])
    q, r = (xp.where(impossible, np.nan, part) for part in averages[1:])
    return Tilted(averages[0], q / scale, r / scale**2)


def sum_rows(row: Array, values: Array, n: int) -> Array:
    """Return the sum of the values of each row. (n,)"""
    return namespace(values).bincount(row, weights=values, minlength=n)


def _largest(row: Array, values: Array, like: Array) -> Array:
    """Return the largest value of each row, -∞ where there is none. (n,)"""
    xp = namespace(values)
    order = xp.argsort(values)
    order = order[xp.argsort(row[order], stable=True)]
    row, values = row[order], values[order]
    last = xp.concat([row[1:] != row[:-1], row[:1] == row[:1]])
    out = xp.zeros_like(like) - np.inf
    out[row[last]] = values[last]
    return out


def _check(value: Array, row: Array) -> None:
    xp = namespace(value)
    wrong = xp.any(xp.isnan(value) | (value == np.inf), axis=1)
    if xp.any(wrong):
        bad = int(to_numpy(row[wrong])[0])
        raise NonFiniteError(f"the log density of row {bad} is NaN or +infinity at some f")
