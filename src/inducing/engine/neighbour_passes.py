"""The passes over blocks along neighbours where compiled loops know the kernel, by neighbour_tiles.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..model.problem import Problem
from ..numerics.arrays import is_numpy
from ..numerics.workers import aside
from .compiled_passes import finish_blocks, form_of, plain, rows_of_blocks, space_of
from .forms import Form
from .neighbours import Conditionals, PairSets, batches_of, pairs_of, room_for
from .sums import BLOCK_BYTES, Back, Group, Held, Work, count, log_copies

GROUP_ROWS = 512  # rows of blocks that are done together, at least
PAIR_BYTES = 1 << 27  # that the numbers of pairs may take, to be found once for all evaluations


def near_groups(P: Problem) -> list[Group]:
    """The blocks along neighbours, small ones together; `in_batches` may have their pairs at hand."""
    if P.batches is not None:
        return P.batches
    assert P.blocks is not None
    sizes, found, first, rows = [len(rows) for rows in P.blocks], [], 0, 0
    for last, size in enumerate(sizes, 1):
        rows += size
        if rows >= GROUP_ROWS or last == len(sizes):
            edges = np.cumsum([0, *sizes[first:last]])
            found.append(Group(first, np.concatenate(P.blocks[first:last]), edges))
            first, rows = last, 0
    return found


def in_batches(P: Problem) -> Problem:
    """The problem with its blocks in batches: of about one size, where its rows are on a device; with the
    numbers of their pairs, where compiled loops use them and there is room.
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
    """Neighbours by places in a group, and its pairs."""
    assert P.sets is not None
    sets, place = P.sets[group.rows], np.empty(P.n, dtype=np.int32)
    place[group.rows] = own = np.arange(len(group.rows))
    return pairs_of(own, np.where(sets < 0, own[:, None], place[sets]), len(own))[0]


def first_near(P: Problem, F: Form, Linv: np.ndarray, held: Held, s: Work, group: Group) -> None:
    """Add what `passes.first_pass` sums over blocks along neighbours."""
    from . import neighbour_tiles

    first: Any = neighbour_tiles.first_near
    sets, b, c = group.batch or _pairs(P, group), np.zeros((s.m, P.p)), len(group.rows)
    factors, (work, A), rows = room_for(sets), _space(s, F, c), _near_rows(P, group)
    arguments = F.basis, rows, plain(Linv), sets, factors, work, A, s.G, b
    s.log_D += aside(first, _operations(sets, s.m), *arguments) + log_copies(P, group.rows)
    Conditionals.require_digits(factors[1], float(rows[2].min()), P.kernel.diagonal(rows[0]))
    s.b += b
    if held.blocks is not None and held.runs is not None:
        if sum(a.nbytes for a in sets + factors) <= c / P.n * BLOCK_BYTES:
            held.runs[group.first] = sets, factors
        N, (_, coef, var) = sets[1], factors
        for i, part in enumerate(group.parts):  # for a pass over residuals
            own, places = np.arange(count(part)), N[part] - part.start
            held.blocks[group.first + i] = Conditionals(own, places, coef[part], var[part])


def second_near(
    P: Problem, F: Form, back: Back, held: Held, noise_bar: np.ndarray, s: Work, group: Group
) -> None:
    """Add what `passes.second_pass` sums over blocks along neighbours."""
    from . import neighbour_tiles

    second: Any = neighbour_tiles.second_near
    rows, stored = _near_rows(P, group), (held.runs or {}).get(group.first)
    (c, d), totals = rows[0].shape, F.totals()
    work, A = _space(s, F, c)
    sets, factors = stored or (group.batch or _pairs(P, group), None)
    if factors is None:
        factors, unused = room_for(sets), (np.zeros((s.m, s.m)), np.zeros((s.m, P.p)))
        neighbour_tiles.first_near(F.basis, rows, plain(back.Linv), sets, factors, work, A, *unused)
    matrices = tuple(map(plain, (back.Linv, back.LBinv, back.w.T, back.alpha.T)))
    V, diagonal, own = filled = np.empty((c, P.p)), np.empty(c), np.zeros(d + 2)
    arguments = F.basis_back, rows, matrices, sets, factors, filled, work, A, s.G, totals
    s.residual += aside(second, _operations(sets, s.m), *arguments)
    finish_blocks(P, F, s, group, noise_bar, filled, totals)


def _space(s: Work, F: Form, c: int) -> tuple[np.ndarray, np.ndarray]:
    """A worker's buffers for groups of up to c rows."""
    return space_of(s, F, max(c, 0 if s.tiles is None else s.tiles[0].shape[1]), 5)


def _near_rows(P: Problem, group: Group) -> tuple[np.ndarray, ...]:
    (X, Y, noise, _), (centre, inverse) = rows_of_blocks(P, group)
    return X, Y, noise, (X - centre) * inverse


def _operations(sets: PairSets, m: int) -> float:
    """Multiplications of a pass, about."""
    c, q = sets[1].shape
    return float(c) * (4 * m * (m + 8 * q) + q**3)
