"""Averages of any p(y|f) over f ~ N(mean, var), by adaptive subdivision of every row's integral at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import NonFiniteError
from .quadrature import Tilted

# Nodes of the 15-point Kronrod rule on [-1, 1], its weights, and those of the 7-point Gauss rule inside it.
HALF = [
    (0.991455371120812639206854697526329, 0.022935322010529224963732008058970, 0.0),
    (
        0.949107912342758524526189684047851,
        0.063092092629978553290700663189204,
        0.129484966168869693270611432679082,
    ),
    (0.864864423359769072789712788640926, 0.104790010322250183839876322541518, 0.0),
    (
        0.741531185599394439863864773280788,
        0.140653259715525918745189590510238,
        0.279705391489276667901467771423780,
    ),
    (0.586087235467691130294144691258925, 0.169004726639267902826583426598550, 0.0),
    (
        0.405845151377397166906606412076961,
        0.190350578064785409913256402421014,
        0.381830050505118944950369775488975,
    ),
    (0.207784955007898467600689403773245, 0.204432940075298892414161999234649, 0.0),
]
_CENTRE = (0.0, 0.209482141084727828012999174891714, 0.417959183673469387755102040816327)
NODES, KRONROD, GAUSS = np.array([(-x, k, g) for x, k, g in HALF] + [_CENTRE] + HALF[::-1]).T
_RULES = np.stack(
    [KRONROD, KRONROD - GAUSS], axis=1
)  # (15, 2): the integral, and how far the smaller rule is off

_EDGES = np.concatenate(
    [-(10.0 ** np.arange(8, 1, -1)), np.sinh(np.linspace(-4.4, 4.4, 25)), 10.0 ** np.arange(2, 9)]
)
_ROUNDS = 80
_ROWS = 2048  # at a time
_ACCURACY = 1e-10  # of the 7-point rule on a panel, relative to the whole; the 15-point rule is far better

LogDensity = Callable[[np.ndarray, np.ndarray], np.ndarray]  # log p(y|f) of arrays that broadcast


def tilted_by_quadrature(
    log_density: LogDensity,
    y: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    landmarks: np.ndarray | None = None,
    power: float = 1.0,
) -> Tilted:
    """The average of exp log_density(y, f) and, from the moments of what it makes of N(mean, var), q and r.
    (n,) each

    q = (E f - mean)/var and r = (Var f - var)/var². Panels are cut in two until the 7-point Gauss and the
    15-point Kronrod rule agree on each of them. `landmarks` (n, l) are values of f where p may change faster
    than the prior, such as y.
    """
    if power != 1.0:
        assert power > 0.0
        given = log_density
        log_density = lambda y, f: power * given(y, f)
    parts = []
    for start in range(0, len(mean), _ROWS):
        s = slice(start, start + _ROWS)
        near = None if landmarks is None else (landmarks[s] - mean[s, None]) / np.sqrt(var[s, None])
        parts.append(_tilted(log_density, y[s], mean[s], var[s], near, start))
    return (
        Tilted(*(np.concatenate(columns) for columns in zip(*parts))) if parts else Tilted(mean, mean, mean)
    )


def _tilted(
    log_density: LogDensity,
    y: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    near: np.ndarray | None,
    first: int,
) -> Tilted:
    """The same for a few rows; t = (f - mean)/√var throughout."""
    n, scale = len(mean), np.sqrt(var)
    edges = np.broadcast_to(_EDGES, (n, len(_EDGES)))
    if near is not None:
        edges = np.sort(np.concatenate([edges, near], axis=1), axis=1)
    row = np.repeat(np.arange(n), edges.shape[1] - 1)
    left, right = edges[:, :-1].ravel(), edges[:, 1:].ravel()
    top, peak = np.full(n, -np.inf), np.zeros(n)  # largest log integrand seen, and its t
    whole = np.zeros(
        (2, n)
    )  # ∫ 1 and ∫ (t - peak)² over exp(top) of the panels that are done, for the tolerance
    finished = []
    for last in range(_ROUNDS - 1, -1, -1):
        half, middle = 0.5 * (right - left), 0.5 * (right + left)
        t = middle[:, None] + half[:, None] * NODES  # (panels, 15)
        with np.errstate(over="ignore"):  # exp(f) far out, where p is 0
            g = log_density(y[row, None], mean[row, None] + scale[row, None] * t) - 0.5 * t * t
        _check(g, first + row)
        best = np.argmax(g, axis=1)
        here, before = g[np.arange(len(g)), best], top.copy()
        np.maximum.at(top, row, here)
        found = here == top[row]
        peak[row[found]] = t[found, best[found]]
        shift = np.where(np.isfinite(top), top, 0.0)
        whole *= np.exp(np.minimum(before - shift, 0.0))
        weight = np.exp(g - shift[row, None]) * half[:, None]
        value, error = np.moveaxis(
            np.stack([weight, weight * (t - peak[row, None]) ** 2]) @ _RULES, 2, 0
        )  # (2, panels)
        total = whole + [np.bincount(row, v, minlength=n) for v in value]
        done = (
            np.all(np.abs(error) <= _ACCURACY * total[:, row], axis=0)
            | (half <= 1e-15 * np.abs(middle))
            | (last == 0)
        )
        whole += [np.bincount(row[done], v[done], minlength=n) for v in value]
        finished.append((row[done], t[done], g[done], half[done]))
        row, left, middle, right = row[~done], left[~done], middle[~done], right[~done]
        if len(row) == 0:
            break
        row, left, right = np.tile(row, 2), np.concatenate([left, middle]), np.concatenate([middle, right])
    row, t, g, half = (np.concatenate(parts) for parts in zip(*finished))
    weight = np.exp(g - shift[row, None]) * half[:, None] * KRONROD

    def over_rows(integrand: np.ndarray) -> np.ndarray:
        return np.bincount(row, np.sum(integrand, axis=1), minlength=n)

    with np.errstate(divide="ignore", invalid="ignore"):  # p is 0 wherever it was asked: log⟨p⟩ = -∞
        mass = over_rows(weight)
        centre = over_rows(weight * t) / mass
        spread = over_rows(weight * (t - centre[row, None]) ** 2) / mass
        return Tilted(shift + np.log(mass) - 0.5 * np.log(2.0 * np.pi), centre / scale, (spread - 1.0) / var)


def _check(g: np.ndarray, row: np.ndarray) -> None:
    wrong = np.isnan(g) | (g == np.inf)
    if np.any(wrong):
        bad = row[np.argmax(np.any(wrong, axis=1))]
        raise NonFiniteError(
            f"the log density of row {bad} is NaN or +infinity at some f; it must be finite or -infinity"
        )
