"""Averages of any p(y|f) over f ~ N(mean, var): every row's integral is cut until two rules agree on it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..errors import NonFiniteError
from .arrays import Array, asarray_like, is_numpy, namespace, to_numpy
from .quadrature import Tilted

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
PANELS_TOGETHER = 1 << 16  # at a time beyond four times the first ones, for functions that no panel resolves
ROWS_TOGETHER = 2048, 1 << 15  # at a time, in NumPy and elsewhere
ACCURACY = 1e-10  # of the 7-point rule on a panel, relative to the whole; the 15-point rule is far better

LogDensity = Callable[[Array, Array], Array]  # log p(y|f) of arrays that broadcast


def tilted_by_quadrature(
    log_density: LogDensity,
    y: Array,
    mean: Array,
    var: Array,
    landmarks: Array | None = None,
    power: float = 1.0,
) -> Tilted:
    """The average of p(y|f)^power, or of log p(y|f) if power = 0, and its derivatives q, r. (n,) each

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
    """log of the mass, q and r from the moments."""
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
    """The average of log p, and q and r from its products with the polynomials of Hermite."""
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
    """The sums of the values of each row. (n,)"""
    return namespace(values).bincount(row, weights=values, minlength=n)


def _largest(row: Array, values: Array, like: Array) -> Array:
    """The largest value of each row, -∞ where there is none. (n,)"""
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
