"""The two passes over rows behind the evidence under Gaussian noise, and the second of any likelihood.

evidence.py has the formulas. A pass takes a problem and m-by-m matrices that all rows share, and returns
`Sums`. Sums over different parts of the data add up, so rows may lie in memory, on disk or on other machines.
Large passes share out chunks of rows to all cores.
"""

from collections.abc import Callable
from functools import partial

from ..model.kernels.base import add_gradients
from ..model.problem import Problem, noise_gradient, scatter_pullback
from ..numerics.arrays import SMALL, Array, asarray_like, is_numpy, namespace, zeros_like_rows
from ..numerics.linalg import room_beside, row_dots, row_squares, scaled_sum_and_gram, times_lower
from ..numerics.workers import PER_ENTRY, chunk_rows, row_slices, run_over, workers_for
from . import block_passes, compiled_passes
from .row_sites import add_noise, add_terms
from .sums import Back, Group, Held, Sums, Work, count, finish, groups, scratch_copy

SWEEP_FLOPS = 1 << 27  # of a likelihood's pass from which threads pay: it often holds the interpreter's lock
FEW_FLOPS = 10_000_000  # of a block below which threads only wait for each other's interpreter lock


def first_pass(P: Problem, Linv: Array, kept: Held | None = None, *, squared: bool = True) -> Sums:
    """Sum ΦΠΦᵀ and ΦΠy (if not `squared` their root, see `Sums`), Σ log D and the correction; fill `kept`."""
    held, Linv = kept or Held(), asarray_like(Linv, P.X)
    whitener = Linv / P.common_noise**0.5 if P.uniform and P.row.share == 0 else Linv
    form = compiled_passes.form_of(P) if squared and held.shared is None else None
    step: Callable[..., None]
    if form is None:
        step = partial(_first_rows if P.blocks is None else block_passes.first_blocks, P, whitener, held)
    else:
        first = compiled_passes.first_rows if P.blocks is None else compiled_passes.first_blocks
        step = partial(first, P, form, whitener, held)
    sums = run_pass(P, step, G=squared, b=squared, compiled=form is not None)
    sums.count = float(P.n) if P.weights is None else float(namespace(P.X).sum(P.weights))
    return sums


def root_pass(P: Problem, Linv: Array, kept: Held | None = None) -> Sums:
    """Run the first pass without squares, where these would lose digits: a triangle has the digits of Φ."""
    return first_pass(P, Linv, kept, squared=False)


def residual_pass(P: Problem, back: Back, kept: Held | None = None) -> Sums:
    """Sum eᵢ²Πᵢ alone, without a gradient."""
    held, back = kept or Held(), back.on(P.X)
    step = _residual_rows if P.blocks is None else block_passes.residual_blocks
    return run_pass(P, partial(step, P, back, held), G=False)


def leave_out_pass(P: Problem, back: Back, kept: Held | None = None) -> tuple[Array, Array]:
    """Return C⁻¹y (n, p) and the diagonal of C⁻¹ (n,), C = Q + D: what leaving out each row needs."""
    held, back = kept or Held(), back.on(P.X)
    V, precision = zeros_like_rows((P.n, P.p), P.X), zeros_like_rows((P.n,), P.X)
    run_pass(P, partial(block_passes.leave_out_blocks, P, back, held, V, precision), G=False)
    return V, precision


def second_pass(P: Problem, back: Back, kept: Held | None = None) -> Sums:
    """Sum the residuals, or a likelihood's terms, and the gradients through Kfu, mean and noise."""
    held, back = kept or Held(), back.on(P.X)
    noise_bar = zeros_like_rows((P.n,), P.X)
    form = compiled_passes.form_of(P) if held.shared is None else None
    step: Callable[..., None]
    if form is not None:
        second = compiled_passes.second_rows if P.blocks is None else compiled_passes.second_blocks
        step = partial(second, P, form, back, held, noise_bar)
    elif P.blocks is not None:
        step = partial(block_passes.second_blocks, P, back, held, noise_bar)
    else:
        step = partial(_second_rows if P.general else _second_rows_plain, P, back, held, noise_bar)
    sums = run_pass(P, step, G=P.general, compiled=form is not None)
    if P.likelihood is None:
        sums.noise = noise_gradient(P, noise_bar)
        add_gradients(sums.kernel, scatter_pullback(P, noise_bar))
    return sums


def run_pass(
    P: Problem, step: Callable[..., None], *, G: bool = True, b: bool = False, compiled: bool = False
) -> Sums:
    """Return the sum of what `step` adds to a `Work` for each range or chunk of rows, or group of blocks."""
    m = len(P.basis)
    chunk = chunk_rows(P.n, m, P.X)
    tasks: list[slice] | list[Group]
    if compiled and P.sets is not None:
        tasks, parallel = compiled_passes.near_groups(P), compiled_passes.on_all_cores(P)
    elif compiled:
        ranges, parallel = compiled_passes.range_count(P), compiled_passes.on_all_cores(P)
        tasks = row_slices(P.n, -(-P.n // ranges)) if P.blocks is None else groups(P, ranges)
    elif P.blocks is None:
        workers = workers_for(P.n * m * (m + PER_ENTRY)) if is_numpy(P.X) else 1
        parallel = workers > 1 and (P.likelihood is None or P.n * m * (m + 64) >= SWEEP_FLOPS)
        tasks = row_slices(P.n, chunk if parallel else workers * chunk)
    elif P.sets is not None and P.batches is not None and not is_numpy(P.X):
        tasks, parallel = P.batches, False
    else:
        tasks = groups(P, -(-P.n // chunk) if P.sets is None else len(P.blocks))
        work = P.n / len(P.blocks) * m * (m if P.sets is None else P.n / len(P.blocks))
        parallel = is_numpy(P.X) and P.n * m >= SMALL and work >= FEW_FLOPS
    return Work.total(run_over(list(tasks), lambda: Work(P, G, b), step, parallel=parallel))


def _first_rows(P: Problem, whitener: Array, held: Held, s: Work, rows: slice) -> None:
    X, R = P.X[rows], 0.0
    room = s.buffer(0, count(rows)) if held.Kfu is None or is_numpy(X) else held.Kfu[rows]
    K = P.basis.cross(P.kernel, X, room)
    if held.Kfu is not None and (K is not room or is_numpy(X)):
        held.Kfu[rows] = K
    Phi = times_lower(K, whitener, transposed=True, out=None if held.Phi is None else held.Phi[rows])
    if P.row.bound:
        R = P.kernel.diagonal(X)
    elif P.row.share:
        R = P.kernel.diagonal(X) - row_squares(Phi)
        if held.R is not None:
            held.R[rows] = R
    root = namespace(X).sqrt(P.weight(rows) / add_noise(P, s, rows, R))[:, None]
    if not (P.uniform and P.row.share == 0):  # else √Π is in the whitener
        Phi = namespace(Phi).multiply(Phi, root, out=Phi if held.Phi is None else None)
    s.add_rows(Phi, root * P.Y[rows])


def _kfu(P: Problem, held: Held, s: Work, rows: slice) -> Array:
    """Return Kfu of a chunk, as kept by the first pass or computed again. (c, m)"""
    if held.Kfu is None:
        return P.basis.cross(P.kernel, P.X[rows], s.buffer(0, count(rows)))
    return held.Kfu[rows]


def _sites(P: Problem, held: Held, rows: slice, D: Array, mean: Array) -> tuple[Array, Array, Array]:
    """Return τ, ν and v = ν - τμ of rows; under Gaussian noise τ = weight/D, y for ν, and v = τ(y - μ)."""
    if P.likelihood is None:
        tau = P.weight(rows) / D
        return tau, P.Y[rows], tau[:, None] * (P.Y[rows] - mean)
    tau, nu = held.sites(rows)
    return tau, nu, nu[:, None] - tau[:, None] * mean


def _residual_rows(P: Problem, back: Back, held: Held, s: Work, rows: slice) -> None:
    K = _kfu(P, held, s, rows)
    E, D = P.Y[rows] - K @ back.alpha, P.noise[rows]
    if P.row.share and held.R is not None:
        D = P.row.share * held.R[rows] + D
    elif P.row.share:
        Phi = times_lower(scratch_copy(K, s.buffer(1, count(rows))), back.Linv, transposed=True)
        D = P.row.share * (P.kernel.diagonal(P.X[rows]) - row_squares(Phi)) + D
    s.residual = s.residual + namespace(E).sum((P.weight(rows) / D)[:, None] * E * E)


def _second_rows_plain(P: Problem, back: Back, held: Held, noise_bar: Array, s: Work, rows: slice) -> None:
    """Add the second pass of rows where R is not in D: τφᵀ(cI - B⁻¹)φ = ±τ|T k_u|², c = 1 for a bound and 0
    where R is dropped; √(pΠ) is in T if it is common to all rows.
    """
    X, p, T, alpha = P.X[rows], P.p, back.T, back.alpha
    sign = 1.0 if P.row.bound else -1.0
    K = _kfu(P, held, s, rows)
    room = room_beside(K, p)
    out = None if room is None else room[:, : s.m]
    KT = times_lower(scratch_copy(K, s.buffer(1, count(rows))), T, transposed=True, out=out)
    lengths, mean = row_squares(KT) if back.lengths is None else back.lengths, K @ alpha
    tau, nu, V = _sites(P, held, rows, P.noise[rows], mean)
    if P.uniform:
        lengths = lengths / (p * tau)
    # φᵀB⁻¹φ = cφᵀφ ∓ |T k_u|²; for a bound (c = 1) φᵀφ cancels against that in R = k(x, x) - φᵀφ
    spread = P.kernel.diagonal(X) - lengths if P.row.bound else lengths
    add_terms(P, s, rows, noise_bar, (mean, V, spread, 0.0), tau, nu)
    if P.row.bound:
        add_gradients(s.kernel, P.kernel.diag_pullback(X, -0.5 * p * tau))
    if not P.uniform:
        KT *= (p * tau)[:, None]
    finish(P, s, X, K, (KT, T, room), V, alpha, sign)


def _second_rows(P: Problem, back: Back, held: Held, noise_bar: Array, s: Work, rows: slice) -> None:
    """Add the second pass of rows where R is in D, with r̄ = ½(a v² - τ + aτ²s) for each copy of a row."""
    xp, p, a = namespace(P.X), P.p, P.row.power
    X, c = P.X[rows], count(rows)
    K = _kfu(P, held, s, rows)
    if P.likelihood is None and held.Phi is not None:
        Phi = held.Phi[rows]
    else:
        Phi = times_lower(scratch_copy(K, s.buffer(1, c)), back.Linv, transposed=True)
    S = xp.matmul(Phi, back.Binv, out=s.buffer(2, c)) if is_numpy(Phi) else Phi @ back.Binv
    R = P.kernel.diagonal(X) - row_squares(Phi) if held.R is None else held.R[rows]
    mean, spread = Phi @ back.w, row_dots(Phi, S)
    tau, nu, V = _sites(P, held, rows, a * R + P.noise[rows], mean)
    copies = add_terms(P, s, rows, noise_bar, (mean, V, spread, R), tau, nu)
    rbar = 0.5 * (a * xp.sum(V * V, axis=1) / copies - p * tau + a * p * tau * tau * spread / copies)
    add_gradients(s.kernel, P.kernel.diag_pullback(X, rbar))
    room = room_beside(Phi, p)
    out = None if room is None else room[:, : s.m]
    S, s.G = scaled_sum_and_gram(S, -p * tau, Phi, -2.0 * rbar, s.G, s.buffer(3, c), out)
    # S is Φ̄ without w vᵀ, which `finish` adds as v αᵀ
    finish(P, s, X, K, (S, back.Linv, room), V, back.alpha)
