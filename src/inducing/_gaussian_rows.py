"""The passes over a range of rows where basis functions are Gaussians, on the CPU in double precision: see _tiles.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._blas import addresses
from ._sums import Back, Held, Work, add_gradients
from .approximations import trace_penalty
from .backend import Array, is_numpy, row_slices, workers
from .kernels.exponents import Exponents
from .kernels.stationary import RBF
from .problem import Problem

TILE_BYTES = 1 << 19  # one tile-by-m buffer: four of them are in a core's own cache
LEAST = 1 << 17  # kernel entries from which it pays with loading the code; no fewer once it is loaded, or results would differ
RANGE = 1 << 24  # kernel entries of one call, which neither Ctrl-C nor another thread can interrupt


@dataclass(frozen=True, eq=False)
class Form:
    """log Kfu as the compiled loops take it."""

    exponents: Exponents
    prior: float  # k(x, x)
    frame: tuple[np.ndarray, np.ndarray, bool]  # centre, scale, whether each function has widths of its own
    form: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]  # v, P, constants, coefficients, largest |v|²

    @property
    def width(self) -> int:
        """How many features a row has."""
        return self.form[3].shape[1]


def form_of(P: Problem) -> Form | None:
    """What the loops need of kernel and basis; None where they do not apply or do not pay."""
    if not is_numpy(P.X) or P.X.dtype != np.float64:
        return None
    if P.n * len(P.basis) < LEAST:
        return None
    e = P.basis.exponents(P.kernel)
    if e is None:
        return None
    assert isinstance(P.kernel, RBF)
    v, wide = plain(e.v), e.P is not None
    widths = plain(e.P) if wide else np.ones_like(v)
    constants = np.broadcast_to(e.constants, (len(v),)).astype(np.float64)
    frame = np.array(e.centre), np.array(e.scale), wide
    form = v, widths, constants, plain(e.coefficients), float(np.max(np.vecdot(v, v)))
    return Form(e, float(P.kernel.variance), frame, form)


def ranges(P: Problem) -> list[slice]:
    """Rows in as many ranges as there are cores, or a multiple where those would be long."""
    most = max(1, RANGE // len(P.basis))
    count = -(-max(1, -(-P.n // most)) // workers()) * workers()
    return row_slices(P.n, -(-P.n // count))


def on_all_cores(P: Problem) -> bool:
    """Whether that pays: one core needs half a millisecond for what is the least here."""
    m = len(P.basis)
    return P.n * m * (m + 64) >= 1 << 24


def first_rows(P: Problem, F: Form, whitener: np.ndarray, held: Held, s: Work, rows: slice) -> None:
    from ._tiles import first

    share = P.row.share
    X, Y, noise, weight = _rows_of(P, rows)
    D = noise if held.D is None else held.D[rows]
    if share and held.D is None:
        D = np.empty_like(noise)
    root, b = np.sqrt(weight / noise), np.zeros((P.p, s.m))
    first(addresses(), X, Y, root, noise, weight, F.frame, F.form, plain(whitener), share, F.prior, P.uniform,
          _kfu(held, s, rows), D, *_space(s, F), s.G, b)  # fmt: skip
    s.b += b.T
    s.log_D += float(weight @ np.log(D))
    if share:
        s.penalty += float(weight @ P.row.penalty((D - noise) / share, noise, share)[0])
    elif P.row.penalty is trace_penalty:  # ½ Σ (k(x, x) - φᵀφ)Π; the sum of φᵀφΠ is tr(B - I)
        s.penalty += 0.5 * F.prior * float(np.sum(weight / noise))


def second_rows(P: Problem, F: Form, back: Back, held: Held, noise_bar: np.ndarray, s: Work, rows: slice) -> None:
    from ._tiles import second, second_deterministic

    at, p, share, Kfu = addresses(), P.p, P.row.share, _kfu(held, s, rows)
    X, Y, noise, weight = _rows_of(P, rows)
    n, d = X.shape
    V, lengths, alpha = np.empty((n, p)), np.empty(n), plain(back.alpha.T)
    moments, squares = np.zeros((s.m, F.width)), np.zeros(d)
    if share == 0:
        sign, precision = 1.0 if P.row.penalty is trace_penalty else -1.0, weight / noise
        second_deterministic(at, X, Y, precision, F.frame, F.form, plain(back.T), alpha, sign, P.uniform, Kfu, V, lengths,
                             *_space(s, F), moments, squares)  # fmt: skip
        VE = np.vecdot(V, V) / precision
        bar = VE - p * weight - sign * lengths
        if P.row.penalty is trace_penalty:
            bar += p * precision * F.prior
            add_gradients(s.kernel, P.kernel.diag_pullback(X, -0.5 * p * precision))
        noise_bar[rows] = 0.5 * bar / noise
    else:
        known = held.D is not None
        D = held.D[rows] if held.D is not None else np.empty(n)
        rbar = np.empty(n)
        # under every row of the table with share > 0 the penalty's derivative in R is slope / D
        slope = float(P.row.penalty(np.zeros(1), np.ones(1), share)[1][0])
        second(at, X, Y, D, known, noise, weight, slope, share, F.prior, F.frame, F.form, plain(back.Linv), plain(back.Binv),
               plain(back.w.T), alpha, Kfu, V, lengths, rbar, *_space(s, F), s.G, moments, squares)  # fmt: skip
        VE = np.vecdot(V, V) * D / weight
        noise_bar[rows] = lengths - p * weight * P.row.penalty((D - noise) / share, noise, share)[2]
        add_gradients(s.kernel, P.kernel.diag_pullback(X, rbar))
    s.residual += float(np.sum(VE))
    kernel, basis = P.basis.from_moments(P.kernel, F.exponents, moments, squares)
    add_gradients(s.kernel, kernel)
    add_gradients(s.basis, basis)
    add_gradients(s.mean, P.mean.pullback(X, V[:, 0] if P.one_output else V))


def _rows_of(P: Problem, rows: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """X, Y, noise and weight of a range, without gaps between their numbers."""
    X, Y = plain(P.X[rows]), plain(P.Y[rows])
    weight = np.ones(len(X)) if P.weights is None else np.array(P.weights[rows])
    return X, Y, np.array(P.noise[rows]), weight


def plain(A: Array | None) -> np.ndarray:
    return np.ascontiguousarray(A, dtype=np.float64)


def _kfu(held: Held, s: Work, rows: slice) -> np.ndarray:
    return np.empty((0, s.m)) if held.Kfu is None else held.Kfu[rows]


def _space(s: Work, F: Form) -> Any:
    """A worker's buffers: four of a tile of rows, and their features."""
    if s.tiles is None:
        tile = tile_rows(s.m)
        s.tiles = np.empty((4, tile, s.m)), np.empty((tile, F.width))
    return s.tiles


def tile_rows(m: int) -> int:
    return min(1024, max(128, TILE_BYTES // (8 * m)))
