"""The passes over a range of rows where basis functions are Gaussians, on the CPU in double precision: see
_tiles.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model.kernels.exponents import Exponents
from ..model.kernels.stationary import RBF
from ..model.problem import Problem
from ..model.table import trace_penalty
from ..numerics.arrays import Array, is_numpy
from ..numerics.blas import addresses
from ..numerics.workers import cores
from ..progress import told_if_slow
from .sums import Back, Held, Work, add_gradients

TILE = 384  # rows at a time: few enough for a core's own cache, and enough for fast products
LEAST = (
    1 << 17
)  # kernel entries from which it pays with loading the code; no fewer once it is loaded, or results would differ
RANGE = 1 << 33  # products and sums of one call, which Ctrl-C cannot interrupt: a fraction of a second


@dataclass(frozen=True, eq=False)
class Form:
    """log Kfu as the compiled loops take it."""

    exponents: Exponents
    prior: float  # k(x, x)
    frame: tuple[np.ndarray, np.ndarray, bool]  # centre, scale, whether each function has widths of its own
    form: tuple[
        np.ndarray, np.ndarray, np.ndarray, np.ndarray, float
    ]  # v, P, constants, coefficients, largest |v|²

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
    e = (
        P.basis.exponents(P.kernel) if type(P.kernel) is RBF else None
    )  # one's own kernel may differ in anything
    if e is None:
        return None
    assert isinstance(P.kernel, RBF)
    with told_if_slow("compiling, once on this machine ..."):
        from . import tiles as _tiles  # noqa: F401

        if P.blocks is not None:
            from . import block_tiles as _block_tiles  # noqa: F401
    v, wide = plain(e.v), e.P is not None
    widths = plain(e.P) if wide else np.ones_like(v)
    constants = np.broadcast_to(e.constants, (len(v),)).astype(np.float64)
    frame = np.array(e.centre), np.array(e.scale), wide
    form = v, widths, constants, plain(e.coefficients), float(np.max(np.vecdot(v, v)))
    return Form(e, float(P.kernel.variance), frame, form)


def range_count(P: Problem) -> int:
    """One range of rows or blocks for each core, or a multiple where those would be long."""
    m = len(P.basis)
    return -(-max(1, P.n * m * (m + 64) // RANGE) // cores()) * cores()


def on_all_cores(P: Problem) -> bool:
    """Whether that pays: one core needs half a millisecond for what is the least here."""
    m = len(P.basis)
    return P.n * m * (m + 64) >= 1 << 24


def first_rows(P: Problem, F: Form, whitener: np.ndarray, held: Held, s: Work, rows: slice) -> None:
    """What `_passes.first_pass` sums, of a range."""
    from . import tiles as _tiles

    first: Any = _tiles.first
    share = P.row.share
    X, Y, noise, weight = _rows_of(P, rows)
    R = held.R[rows] if held.R is not None else np.empty_like(noise)
    root, b = np.sqrt(weight / noise), np.zeros((P.p, s.m))
    first(
        addresses(),
        X,
        Y,
        root,
        noise,
        weight,
        F.frame,
        F.form,
        plain(whitener),
        share,
        F.prior,
        P.uniform,
        _kfu(held, s, rows),
        R,
        *_space(s, F),
        s.G,
        b,
    )
    s.b += b.T
    s.log_D += float(weight @ np.log(share * R + noise if share else noise))
    if share:
        s.penalty += float(weight @ P.row.penalty(R, noise, share)[0])
    elif P.row.penalty is trace_penalty:  # ½ Σ (k(x, x) - φᵀφ)Π; the sum of φᵀφΠ is tr(B - I)
        s.penalty += 0.5 * F.prior * float(np.sum(weight / noise))


def second_rows(
    P: Problem, F: Form, back: Back, held: Held, noise_bar: np.ndarray, s: Work, rows: slice
) -> None:
    """What `_passes.second_pass` sums, of a range."""
    X, Y, noise, weight = _rows_of(P, rows)
    V, moments, squares = np.empty_like(Y), np.zeros((s.m, F.width)), np.zeros(X.shape[1])
    step = _deterministic if P.row.share == 0 else _sharing
    residuals, noise_bar[rows], rbar = step(
        P, F, back, held, s, rows, (X, Y, noise, weight), V, moments, squares
    )
    s.residual += float(np.sum(residuals))
    if rbar is not None:
        add_gradients(s.kernel, P.kernel.diag_pullback(X, rbar))
    add_moments(P, F, s, X, V, moments, squares)


def _deterministic(
    P: Problem,
    F: Form,
    back: Back,
    held: Held,
    s: Work,
    rows: slice,
    data: Any,
    V: np.ndarray,
    *sums: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """share = 0: fill V and the sums; returns eᵢ²Πᵢ, dJ/dnoise and dJ/dk(x, x) of each row, where it counts."""
    from . import tiles as _tiles

    second: Any = _tiles.second_deterministic
    X, Y, noise, weight = data
    trace, precision, lengths = P.row.penalty is trace_penalty, weight / noise, np.empty_like(noise)
    sign = 1.0 if trace else -1.0
    second(
        addresses(),
        X,
        Y,
        precision,
        F.frame,
        F.form,
        plain(back.T),
        plain(back.alpha.T),
        sign,
        P.uniform,
        _kfu(held, s, rows),
        V,
        lengths,
        *_space(s, F),
        *sums,
    )
    residuals = np.vecdot(V, V) / precision
    # g_D with φᵀB⁻¹φ = cφᵀφ ∓ |T k_u|²/(pΠ); under the trace penalty (c = 1) φᵀφ cancels against R's
    bar = residuals - P.p * weight - sign * lengths + (P.p * precision * F.prior if trace else 0.0)
    return residuals, 0.5 * bar / noise, -0.5 * P.p * precision if trace else None


def _sharing(
    P: Problem,
    F: Form,
    back: Back,
    held: Held,
    s: Work,
    rows: slice,
    data: Any,
    V: np.ndarray,
    *sums: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """share > 0: the same. The penalty's derivative in R is slope / D under every such row of the table."""
    from . import tiles as _tiles

    second: Any = _tiles.second
    X, Y, noise, weight = data
    share, known = P.row.share, held.R is not None
    R = held.R[rows] if held.R is not None else np.empty_like(noise)
    gD, rbar = np.empty_like(noise), np.empty_like(noise)
    slope = float(P.row.penalty(np.zeros(1), np.ones(1), share)[1][0])
    second(
        addresses(),
        X,
        Y,
        R,
        known,
        noise,
        weight,
        slope,
        share,
        F.prior,
        F.frame,
        F.form,
        plain(back.Linv),
        plain(back.Binv),
        plain(back.w.T),
        plain(back.alpha.T),
        _kfu(held, s, rows),
        V,
        gD,
        rbar,
        *_space(s, F),
        s.G,
        *sums,
    )
    through_penalty = P.p * weight * P.row.penalty(R, noise, share)[2]
    return np.vecdot(V, V) * (share * R + noise) / weight, gD - through_penalty, rbar


def add_moments(
    P: Problem, F: Form, s: Work, X: np.ndarray, V: np.ndarray, moments: np.ndarray, squares: np.ndarray
) -> None:
    """Gradients of kernel and basis from the moments of W = K̄fu∘Kfu, and of the prior mean, from v."""
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
    """A as compiled loops take it: in C order and double precision."""
    return np.ascontiguousarray(A, dtype=np.float64)


def _kfu(held: Held, s: Work, rows: slice) -> np.ndarray:
    return np.empty((0, s.m)) if held.Kfu is None else held.Kfu[rows]


def _space(s: Work, F: Form) -> Any:
    """A worker's buffers: four of a tile of rows, and their features."""
    if s.tiles is None:
        s.tiles = np.empty((4, TILE, s.m)), np.empty((TILE, F.width))
    return s.tiles
