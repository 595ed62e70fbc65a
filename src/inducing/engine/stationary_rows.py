"""The passes over a range of rows where compiled loops know the kernel, on the CPU in double precision: what
passes.py computes for any kernel, by tiles.py.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model.kernels.base import add_gradients
from ..model.kernels.distances import FAR_OUT, within_reach
from ..model.kernels.exponents import Exponents
from ..model.kernels.stationary import PROFILES, Stationary
from ..model.problem import Problem
from ..model.table import evidence_correction
from ..numerics.arrays import Array, is_numpy
from ..numerics.blas import addresses
from ..numerics.workers import row_slices, run_over, workers_for
from .row_sites import add_terms
from .sums import Back, Held, Work

TILE = 384  # rows at a time: few enough for a core's own cache, and enough for fast products
# kernel entries from which loading the compiled code pays, whether it is loaded already or not
LEAST = 1 << 17
RANGE = 1 << 31  # products and sums of one call, which Ctrl-C cannot interrupt: a fraction of a second
FEWEST_ROWS = 64  # rows of a call, below which products are slow


@dataclass(frozen=True, eq=False)
class Form:
    """Kfu as the compiled loops take it: a profile of squared distances."""

    exponents: Exponents
    prior: float  # k(x, x)
    frame: tuple[np.ndarray, np.ndarray, bool]  # centre, scale, whether each function has widths of its own
    # v, P, constants, coefficients, largest |v|², profile and its factor
    form: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float, int, float]

    @property
    def width(self) -> int:
        """The number of features of a row."""
        return self.form[3].shape[1]

    @property
    def basis(self) -> tuple[Any, ...]:
        """The first argument of the compiled loops: BLAS by address, and the basis."""
        return addresses(), self.frame, self.form, self.prior

    def totals(self) -> tuple[np.ndarray, np.ndarray]:
        """Zeros for the sums of the second pass."""
        m, d = self.form[0].shape
        return np.zeros((m, self.width)), np.zeros(d + 1)


def form_of(P: Problem) -> Form | None:
    """The kernel and basis for the compiled loops; None where these do not apply or do not pay."""
    if not is_numpy(P.X) or P.X.dtype != np.float64 or P.n * len(P.basis) < LEAST or P.sets is not None:
        return None
    profile = PROFILES.get(type(P.kernel))  # a subclass may differ in anything
    e = None if profile is None else P.basis.exponents(P.kernel)
    if profile is None or e is None or not within_reach(FAR_OUT, e.v):
        return None
    assert isinstance(P.kernel, Stationary)
    v, wide, variance = plain(e.v), e.P is not None, float(P.kernel.variance)
    widths = plain(e.P) if wide else np.ones_like(v)
    constants = -2.0 * np.broadcast_to(e.constants, (len(v),)).astype(np.float64)
    form = v, widths, constants, -2.0 * plain(e.coefficients), float(np.max(np.vecdot(v, v)))
    frame, factor = (np.array(e.centre), np.array(e.scale), wide), 1.0 if profile == 0 else variance
    return Form(e, variance, frame, (*form, profile, factor))


def compiled(Phi: Array) -> bool:
    """Whether compiled loops take Φ as it was kept, and pay."""
    return is_numpy(Phi) and Phi.dtype == np.float64 and Phi.size >= LEAST


def range_count(P: Problem) -> int:
    """The number of ranges of rows or blocks: one for each worker, or a multiple if those would be long."""
    m = len(P.basis)
    workers = workers_for(P.n * m * (m + 64))
    return -(-max(1, min(P.n * m * (m + 64) // RANGE, P.n // FEWEST_ROWS)) // workers) * workers


def on_all_cores(P: Problem) -> bool:
    """Whether threads pay."""
    m = len(P.basis)
    return workers_for(P.n * m * (m + 64)) > 1


def first_rows(P: Problem, F: Form, whitener: np.ndarray, held: Held, s: Work, rows: slice) -> None:
    """Add what `passes.first_pass` sums over a range of rows."""
    from .tiles import first

    share, data = P.row.share, _data(P, held, s, rows)
    _, _, noise, weight, _ = data
    R = held.R[rows] if held.R is not None else np.empty_like(noise)
    root, b = np.sqrt(weight / noise), np.zeros((P.p, s.m))
    first(F.basis, data, root, plain(whitener), share, P.uniform, R, _space(s, F), s.G, b)
    s.b += b.T
    s.log_D += float(weight @ np.log(share * R + noise if share else noise))
    if share:
        s.correction += float(weight @ evidence_correction(P.row.power, R, noise)[0])
    elif P.row.bound:  # ½ Σ (k(x, x) - φᵀφ)Π; the sum of φᵀφΠ is tr(B - I)
        s.correction += 0.5 * F.prior * float(np.sum(weight / noise))


def whitened_rows(P: Problem, F: Form, Linv: Array, s: Work, rows: slice, Phi: Array) -> tuple[Array, Array]:
    """Φ of some rows, made in `Phi` (c, m), and R = k(x, x) - φᵀφ (c,)."""
    from .tiles import whiten

    R = np.empty(len(Phi))
    whiten(F.basis, plain(P.X[rows]), plain(Linv), _space(s, F)[1], Phi, R)
    return Phi, R


def kept_marginals(P: Problem, Phi: Array, LBinv: Array, w: Array) -> tuple[Array, Array]:
    """Mean φᵀw and spread φᵀB⁻¹φ of all rows, from Φ as it was kept. (n,) each"""
    from .site_tiles import marginals

    mean, spread, m = np.empty(P.n), np.empty(P.n), len(P.basis)
    root, weights = plain(LBinv), plain(w[:, 0])

    def step(work: np.ndarray, rows: slice) -> None:
        marginals(addresses(), Phi[rows], root, weights, work, mean[rows], spread[rows])

    run_over(_ranges(P), lambda: np.empty((TILE, m)), step, parallel=on_all_cores(P))
    return mean, spread


def kept_sums(P: Problem, Phi: np.ndarray, tau: np.ndarray, nu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ΦτΦᵀ in the lower triangle (m, m) and Φν (m, 1), from Φ as it was kept."""
    from .site_tiles import add_sites

    m = len(P.basis)

    def step(state: tuple[np.ndarray, ...], rows: slice) -> None:
        work, G, b = state
        add_sites(addresses(), Phi[rows], plain(tau[rows]), plain(nu[rows]), work, G, b)

    def start() -> tuple[np.ndarray, ...]:
        return np.empty((TILE, m)), np.zeros((m, m)), np.zeros(m)

    states = run_over(_ranges(P), start, step, parallel=on_all_cores(P))
    G, b = (np.sum([state[i] for state in states], axis=0) for i in (1, 2))
    return G, b[:, None]


def _ranges(P: Problem) -> list[slice]:
    return row_slices(P.n, -(-P.n // range_count(P)))


def second_rows(P: Problem, F: Form, back: Back, held: Held, noise_bar: Array, s: Work, rows: slice) -> None:
    """Add what `passes.second_pass` sums over a range of rows."""
    data = _data(P, held, s, rows)
    totals = F.totals()
    step = _sharing if P.general else _deterministic
    V, rbar = step(P, F, back, held, noise_bar, s, rows, data, totals)
    if rbar is not None:
        add_gradients(s.kernel, P.kernel.diag_pullback(data[0], rbar))
    add_moments(P, F, s, data[0], V, totals)


def _deterministic(
    P: Problem,
    F: Form,
    back: Back,
    held: Held,
    noise_bar: np.ndarray,
    s: Work,
    rows: slice,
    data: tuple[Array, ...],
    totals: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray | None]:
    """The rows where R is not in D: V, and dJ/dk(x, x) where it counts."""
    from .tiles import second_deterministic

    _, Y, noise, weight, _ = data
    given = P.likelihood is not None
    tau = held.sites(rows)[0] if given else weight / noise
    mean, V, lengths = np.empty_like(Y), np.empty_like(Y), np.empty_like(noise)
    sign = 1.0 if P.row.bound else -1.0
    matrices, filled = (plain(back.T), plain(back.alpha.T)), (mean, V, lengths)
    space = _space(s, F)
    second_deterministic(F.basis, data, (tau, given), matrices, sign, P.uniform, filled, space, totals)
    if given:
        spread = F.prior - lengths if P.row.bound else lengths
        add_terms(P, s, rows, mean[:, 0], spread, 0.0, tau, Y[:, 0])
    else:
        residuals = np.vecdot(V, V) / tau
        s.residual += float(np.sum(residuals))
        # g_D with φᵀB⁻¹φ = cφᵀφ ∓ |T k_u|²/(pΠ); for a bound (c = 1) φᵀφ cancels against R's
        own = lengths if P.uniform else P.p * tau * lengths
        bar = residuals - P.p * weight - sign * own + (P.p * tau * F.prior if P.row.bound else 0.0)
        noise_bar[rows] = 0.5 * bar / noise
    return V, -0.5 * P.p * tau if P.row.bound else None


def _sharing(
    P: Problem,
    F: Form,
    back: Back,
    held: Held,
    noise_bar: np.ndarray,
    s: Work,
    rows: slice,
    data: tuple[Array, ...],
    totals: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """The rows where R is in D: V, and dJ/dk(x, x)."""
    from .tiles import second

    _, Y, noise, weight, _ = data
    given, known, a = P.likelihood is not None, held.R is not None, P.row.power
    R = held.R[rows] if held.R is not None else np.empty_like(noise)
    tau = held.sites(rows)[0] if given else np.empty_like(noise)
    mean, V, spread, rbar = np.empty_like(Y), np.empty_like(Y), np.empty_like(noise), np.empty_like(noise)
    matrices = tuple(map(plain, (back.Linv, back.Binv, back.w.T, back.alpha.T)))
    filled = mean, V, spread, rbar
    second(F.basis, data, (tau, given), a, (R, known), matrices, filled, _space(s, F), s.G, totals)
    if given:
        add_terms(P, s, rows, mean[:, 0], spread, R, tau, Y[:, 0])
    else:
        residuals = np.vecdot(V, V) / tau
        s.residual += float(np.sum(residuals))
        gD = 0.5 * (residuals - P.p * weight + P.p * tau * spread) * tau / weight
        noise_bar[rows] = gD - P.p * weight * evidence_correction(a, R, noise)[2]
    return V, rbar


def add_moments(P: Problem, F: Form, s: Work, X: Array, V: Array, totals: tuple[np.ndarray, ...]) -> None:
    """Gradients of kernel and basis from sums of W = -2 K̄∘dK/ds, and of the prior mean, from v."""
    kernel, basis = P.basis.from_moments(P.kernel, F.exponents, *totals)
    add_gradients(s.kernel, kernel)
    add_gradients(s.basis, basis)
    add_gradients(s.mean, P.mean.pullback(X, V[:, 0] if P.one_output else V))


def _data(P: Problem, held: Held, s: Work, rows: slice) -> tuple[np.ndarray, ...]:
    """X, Y, noise, weight and Kfu of a range; a likelihood has ν for Y and copies for the weight."""
    X = plain(P.X[rows])
    Kfu = np.empty((0, s.m)) if held.Kfu is None else held.Kfu[rows]
    if P.likelihood is not None:
        return X, plain(held.sites(rows)[1][:, None]), np.ones(len(X)), plain(P.copies(rows)), Kfu
    weight = np.ones(len(X)) if P.weights is None else np.array(P.weights[rows])
    return X, plain(P.Y[rows]), np.array(P.noise[rows]), weight, Kfu


def plain(A: Array | None) -> np.ndarray:
    """A as compiled loops take it: in C order and double precision."""
    return np.ascontiguousarray(A, dtype=np.float64)


def _space(s: Work, F: Form) -> tuple[np.ndarray, np.ndarray]:
    """A worker's buffers: four of a tile of rows, and their features."""
    if s.tiles is None:
        s.tiles = np.empty((4, TILE, s.m)), np.empty((TILE, F.width))
    return s.tiles
