"""The passes of passes.py over ranges of rows or blocks, where compiled loops know the kernel: on the CPU in
double precision, by tiles.py, block_tiles.py and neighbour_tiles.py.
"""

from dataclasses import replace

import numpy as np

from ..errors import FactorisationError
from ..model.kernels.base import add_gradients
from ..model.kernels.stationary import Stationary
from ..model.problem import Problem
from ..numerics.ahead import expect
from ..numerics.arrays import Array, is_numpy, plain
from ..numerics.blas import addresses
from ..numerics.workers import aside, row_slices, run_over, workers_for
from .block_passes import Whole
from .forms import Form, form_with, leaves_in_loops
from .neighbours import Conditionals, PairSets, batches_of, pairs_of, room_for, space_for
from .row_sites import add_noise, add_terms
from .sums import BLOCK_BYTES, Back, Group, Held, Work, count, groups, log_copies

TILE = 384  # rows at a time: few enough for a core's own cache, and enough for fast products
# kernel entries from which loading the compiled code pays; used also where it is loaded already
LEAST = 1 << 17
RANGE = 1 << 31  # products and sums of one call, which Ctrl-C cannot interrupt: a fraction of a second
RANGES = 4  # ranges for each worker, so that one who is done can take over another's last ones, ...
HANDED_OVER = 1 << 26  # ... if each range has this many products and sums: some milliseconds
FEWEST_ROWS = 64  # rows of a call, below which products are slow
GROUP_ROWS = 512  # rows of blocks along neighbours that are done together, about
PAIR_BYTES = 1 << 27  # of the numbers of pairs, up to which they are kept for all evaluations


def form_of(P: Problem) -> Form | None:
    """Return kernel and basis as compiled loops take them; None where these do not apply or do not pay."""
    if not expects(P) or (P.sets is not None and P.sets.shape[1] == 0):
        return None
    return form_with(P)


def expects(P: Problem, surely: bool = False) -> bool:
    """Return whether compiled loops know the kernel and pay; if so, announce them to `ahead.expect`."""
    known = leaves_in_loops(P.kernel)
    if not known or not is_numpy(P.X) or P.X.dtype != np.float64 or P.n * len(P.basis) < LEAST:
        return False
    if P.blocks is not None and (P.kernel is not known[0] or getattr(P.kernel, "columns", None)):
        return False  # the loops over blocks take a single profile for the kernel between rows of a block
    from . import block_tiles, neighbour_loops, neighbour_tiles, site_tiles, tiles

    if P.row.keeps == "neighbours":
        called = [tiles.fill_at, tiles.finish_at, neighbour_tiles.second_near]
        called += [neighbour_loops.nearest_rows, tiles.first]  # for predictions and reports
        called.append(neighbour_tiles.first_near)
    elif P.row.keeps == "blocks":
        called = [block_tiles.second_blocks, tiles.finish_at]
    else:
        second = tiles.second if P.general else tiles.second_deterministic
        called = [tiles.fill_at, tiles.finish_at, second, tiles.first]
        if P.likelihood is not None:
            called += [tiles.whiten, site_tiles.add_sites, site_tiles.marginals]
    expect(*(function.name for function in called), surely=surely)
    return True


def compiled(Phi: Array) -> bool:
    """Return whether compiled loops can use this kept Φ, and pay."""
    return is_numpy(Phi) and Phi.dtype == np.float64 and Phi.size >= LEAST


def range_count(P: Problem) -> int:
    """Return how many ranges of rows or blocks to make: one for each worker, or several if these are long."""
    m = len(P.basis)
    work = P.n * m * (m + 64)
    workers = workers_for(work)
    ranges = max(work // RANGE, min(work // HANDED_OVER, RANGES * workers if workers > 1 else 1))
    return -(-max(1, min(ranges, P.n // FEWEST_ROWS)) // workers) * workers


def on_all_cores(P: Problem) -> bool:
    """Return whether threads pay."""
    m = len(P.basis)
    return workers_for(P.n * m * (m + 64)) > 1


def first_rows(P: Problem, F: Form, whitener: np.ndarray, held: Held, s: Work, rows: slice) -> None:
    """Add what `passes.first_pass` sums over a range of rows."""
    from .tiles import first

    share, data = P.row.share, _data(P, held, s, rows)
    _, _, noise, weight, _ = data
    R = held.R[rows] if held.R is not None else np.empty_like(noise)
    if share or P.row.bound:
        R[:] = P.kernel.diagonal(data[0])
    root, b = np.sqrt(weight / noise), np.zeros((P.p, s.m))
    first(F.basis(), data, root, plain(whitener), share, P.uniform, R, space_of(s, F), s.G, b)
    s.b += b.T
    add_noise(P, s, rows, R)


def whitened_rows(P: Problem, F: Form, Linv: Array, s: Work, rows: slice, Phi: Array) -> tuple[Array, Array]:
    """Fill `Phi` (c, m) with Φ of some rows; return it and R = k(x, x) - φᵀφ (c,)."""
    from .tiles import whiten

    R = np.array(P.kernel.diagonal(P.X[rows]))
    whiten(F.basis(), plain(P.X[rows]), plain(Linv), space_of(s, F), Phi, R)
    return Phi, R


def kept_marginals(P: Problem, Phi: Array, LBinv: Array, w: Array) -> tuple[Array, Array]:
    """Return the mean φᵀw and the spread φᵀB⁻¹φ of all rows from the kept Φ. (n,) each"""
    from .site_tiles import marginals

    mean, spread, m = np.empty(P.n), np.empty(P.n), len(P.basis)
    root, weights = plain(LBinv), plain(w[:, 0])

    def step(work: np.ndarray, rows: slice) -> None:
        marginals(addresses(), Phi[rows], root, weights, work, mean[rows], spread[rows])

    run_over(_ranges(P), lambda: np.empty((TILE, m)), step, parallel=on_all_cores(P))
    return mean, spread


def kept_sums(P: Problem, Phi: np.ndarray, tau: np.ndarray, nu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ΦτΦᵀ in the lower triangle (m, m) and Φν (m, 1) from the kept Φ."""
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
    from .tiles import second, second_deterministic

    data, space, totals, given = _data(P, held, s, rows), space_of(s, F), F.totals(), P.likelihood is not None
    (X, Y, noise, weight, _), basis = data, F.basis(back=True)
    tau = held.sites(rows)[0] if given else np.empty_like(noise) if P.general else weight / noise
    mean, V, spread, rbar = np.empty_like(Y), np.empty_like(Y), np.empty_like(noise), np.empty_like(noise)
    R: Array | float = 0.0
    if P.general:  # R is in D
        R = np.array(P.kernel.diagonal(X)) if held.R is None else held.R[rows]
        matrices = tuple(map(plain, (back.Linv, back.Binv, back.w.T, back.alpha.T)))
        filled, residual = (mean, V, spread, rbar), (R, held.R is not None)
        second(basis, data, (tau, given), P.row.power, residual, matrices, filled, space, s.G, totals)
    else:
        sign, pair, lengths = 1.0 if P.row.bound else -1.0, (plain(back.T), plain(back.alpha.T)), spread
        how = pair, sign, P.uniform, (mean, V, lengths)
        second_deterministic(basis, data, (tau, given), *how, space, totals)
        if P.uniform:  # √(pΠ) is in T
            lengths /= P.p * tau
        # a bound's φᵀφ cancels against that in R = k(x, x) - φᵀφ
        spread, rbar = P.kernel.diagonal(X) - lengths if P.row.bound else lengths, -0.5 * P.p * tau
    add_terms(P, s, rows, noise_bar, (mean, V, spread, R), tau, Y[:, 0])
    if P.general or P.row.bound:
        add_gradients(s.kernel, P.kernel.diag_pullback(X, rbar))
    _add_moments(P, F, s, X, V, totals)


def _add_moments(P: Problem, F: Form, s: Work, X: Array, V: Array, totals: tuple[np.ndarray, ...]) -> None:
    """Add the gradients of kernel and basis from sums of W = -2 K̄∘dK/ds, and of the prior mean from v."""
    kernel, basis = F.gradients(P, *totals)
    add_gradients(s.kernel, kernel)
    add_gradients(s.basis, basis)
    add_gradients(s.mean, P.mean.pullback(X, V[:, 0] if P.one_output else V))


def _data(P: Problem, held: Held, s: Work, rows: slice) -> tuple[np.ndarray, ...]:
    """Return X, Y, noise, weight and Kfu of a range; under a likelihood ν for Y and copies for the weight."""
    X = plain(P.X[rows])
    Kfu = np.empty((0, s.m)) if held.Kfu is None else held.Kfu[rows]
    if P.likelihood is not None:
        return X, plain(held.sites(rows)[1][:, None]), np.ones(len(X)), plain(P.copies(rows)), Kfu
    weight = np.ones(len(X)) if P.weights is None else np.array(P.weights[rows])
    return X, plain(P.Y[rows]), np.array(P.noise[rows]), weight, Kfu


def space_of(s: Work, F: Form, tile: int = TILE, count: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Return a worker's buffers: `count` for a tile of rows, and one for the features of these."""
    if s.tiles is None or s.tiles[0].shape[1] != tile:
        parts, width = F.features
        buffers, features = s.scratch((count, tile, s.m), (parts, tile, width))
        s.tiles = buffers, features
    return s.tiles


# PITC's blocks, and blocks along neighbours


def near_groups(P: Problem) -> list[Group]:
    """Return the blocks along neighbours, small ones grouped; with their pairs if `in_batches` found them."""
    return groups(P, max(1, P.n // GROUP_ROWS)) if P.batches is None else P.batches


def in_batches(P: Problem) -> Problem:
    """Return the problem with its blocks in batches: on a device those of about one size; on the CPU with the
    numbers of their pairs, where compiled loops use these and PAIR_BYTES allows it.
    """
    if P.sets is None:
        return P
    if not is_numpy(P.X):
        return replace(P, batches=batches_of(P))
    (n, q), P = P.sets.shape, replace(P, batches=None)
    if form_of(P) is None or 2 * n * (q + 1) * (q + 2) > PAIR_BYTES:
        return P
    return replace(P, batches=[replace(group, batch=_pairs(P, group)) for group in near_groups(P)])


def _pairs(P: Problem, group: Group) -> PairSets:
    """Return the neighbours of a group's rows, by their places in the group, and the pairs of both."""
    assert P.sets is not None
    sets, place = P.sets[group.rows], np.empty(P.n, dtype=np.int32)
    place[group.rows] = own = np.arange(len(group.rows))
    return pairs_of(own, np.where(sets < 0, own[:, None], place[sets]), len(own))[0]


def first_blocks(P: Problem, F: Form, Linv: np.ndarray, held: Held, s: Work, group: Group) -> None:
    """Add what `passes.first_pass` sums over a range of blocks."""
    b = np.zeros((s.m, P.p))
    first = _first_whole if P.sets is None else _first_near
    s.log_D += first(P, F, plain(Linv), held, s, group, b) + log_copies(P, group.rows)
    s.b += b


def _first_whole(
    P: Problem, F: Form, Linv: np.ndarray, held: Held, s: Work, group: Group, b: np.ndarray
) -> float:
    from . import block_tiles

    sizes = np.diff(group.edges)
    keep = held.blocks is not None and 16 * P.n * int(np.max(sizes)) <= BLOCK_BYTES
    Ks, Ls = _space_for_blocks(group, keep)
    rows, space = _rows_of_blocks(P, group), space_of(s, F, _tile(group))
    given = F.basis(), *rows, Linv, (keep, Ks, Ls), space, np.array(rows[0][1])
    log_D = aside(block_tiles.first_blocks, _operations(P, group), *given, s.G, b)
    if np.isnan(log_D):
        raise FactorisationError("the covariance of a block is not positive definite")
    if keep and held.blocks is not None and held.runs is not None:
        held.runs[group.first] = Ks, Ls
        end = 0
        for i, size in enumerate(sizes):  # views, for a pass over residuals
            part, end = slice(end, end + size**2), end + size**2
            held.blocks[group.first + i] = Whole(Ks[part].reshape(size, size), Ls[part].reshape(size, size))
    return log_D


def _first_near(
    P: Problem, F: Form, Linv: np.ndarray, held: Held, s: Work, group: Group, b: np.ndarray
) -> float:
    from . import neighbour_tiles

    sets, (rows,) = group.batch or _pairs(P, group), _rows_of_blocks(P, group)
    factors, c = room_for(sets), len(group.rows)
    given = F.basis(), rows, Linv, sets, factors, space_for(sets, P.p), *_near_space(s, F, c), s.G, b
    log_D = aside(neighbour_tiles.first_near, _operations(P, group), *given)
    Conditionals.require_digits(factors[1], float(rows[2].min()), P.kernel.diagonal(rows[0]))
    if held.blocks is not None and held.runs is not None:
        if sum(a.nbytes for a in sets + factors) <= c / P.n * BLOCK_BYTES:
            held.runs[group.first] = sets, factors
        N, (_, coef, var, _) = sets[1], factors
        for i, part in enumerate(group.parts):  # for a pass over residuals
            own, places = np.arange(count(part)), N[part] - part.start
            held.blocks[group.first + i] = Conditionals(own, places, coef[part], var[part])
    return log_D


def second_blocks(
    P: Problem, F: Form, back: Back, held: Held, noise_bar: np.ndarray, s: Work, group: Group
) -> None:
    """Add what `passes.second_pass` sums over a range of blocks."""
    from . import block_tiles, neighbour_tiles

    assert isinstance(P.kernel, Stationary)
    rows = _rows_of_blocks(P, group)
    (c, d), totals, stored = rows[0][0].shape, F.totals(), (held.runs or {}).get(group.first)
    matrices = tuple(map(plain, (back.Linv, back.LBinv, back.w.T, back.alpha.T)))
    # V, the diagonal of dJ/dD, and sums of the kernel between the rows themselves
    V, diagonal, own = filled = np.empty((c, P.p)), np.empty(c), np.zeros(d + 2)
    if P.sets is None:
        most = int(np.max(np.diff(group.edges)))
        filled_too = *filled, np.empty(most * most), np.empty((2, most))
        second = block_tiles.second_blocks
        kept = stored is not None, *(stored or _space_for_blocks(group, False))
        given: tuple[object, ...] = *rows, matrices, kept, filled_too, space_of(s, F, _tile(group))
    else:
        second, buffers = neighbour_tiles.second_near, _near_space(s, F, c)
        sets, factors = stored or (group.batch or _pairs(P, group), None)
        space = space_for(sets, P.p), *buffers
        if factors is None:
            factors, unused = room_for(sets), (np.zeros((s.m, s.m)), np.zeros((s.m, P.p)))
            neighbour_tiles.first_near(F.basis(), *rows, matrices[0], sets, factors, *space, *unused)
        given = *rows, matrices, sets, factors, filled, *space
    s.residual += aside(second, _operations(P, group), F.basis(back=True), *given, s.G, totals)
    weight, X = P.weight(group.rows), P.X[group.rows]
    extra = 0.5 * P.p * (weight - 1.0) / P.noise[group.rows] if P.weights is not None else 0.0
    noise_bar[group.rows] = diagonal / weight - extra
    lengths = own[:-2] / P.kernel.scales(X)  # Σ W (x - x')²/ℓ³
    add_gradients(s.kernel, P.kernel.from_sums(lengths, own[-2], own[-1]))
    _add_moments(P, F, s, X, V, totals)


def _operations(P: Problem, group: Group) -> float:
    """Return about how many multiplications a pass over blocks takes."""
    c, m = np.diff(group.edges).astype(float), len(P.basis)
    if P.sets is None:
        return float(np.sum(c * c * (c + m)))
    q = P.sets.shape[1]
    return float(np.sum(c)) * (4 * m * (m + 8 * q) + q**3)


def _rows_of_blocks(P: Problem, group: Group) -> tuple[tuple[np.ndarray, ...], ...]:
    """Return (X, Y, noise over weight, edges) and `block_tiles.OwnFrame`; along neighbours (X, Y, noise over
    weight, inputs in lengthscales) alone.
    """
    assert isinstance(P.kernel, Stationary)
    X, Y, noise = plain(P.X[group.rows]), plain(P.Y[group.rows]), plain(P.added_noise(group.rows))
    centre, inverse = X.mean(axis=0), 1.0 / P.kernel.scales(X)
    if P.sets is None:
        space = np.empty(int(np.max(np.diff(group.edges))) * X.shape[1])
        return (X, Y, noise, group.edges), (centre, inverse, space)
    return ((X, Y, noise, (X - centre) * inverse),)


def _space_for_blocks(group: Group, keep: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return uninitialised arrays for K and L⁻¹ of all blocks (`keep`), or of those of one tile."""
    sizes = np.diff(group.edges)
    room = int(np.sum(sizes**2)) if keep else _tile(group) * int(np.max(sizes))
    return np.empty(room), np.empty(room)


def _tile(group: Group) -> int:
    """Return the number of rows of a tile: TILE, or that of the longest block if it is greater."""
    return max(TILE, int(np.max(np.diff(group.edges))))


def _near_space(s: Work, F: Form, c: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a worker's buffers for groups of up to c rows."""
    return space_of(s, F, max(c, 0 if s.tiles is None else s.tiles[0].shape[1]), 5)
