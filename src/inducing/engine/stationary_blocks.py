"""PITC's passes over a range of blocks where compiled loops know the kernel: see block_tiles.py."""

from typing import Any

import numpy as np

from ..errors import FactorisationError
from ..model.kernels.base import add_gradients
from ..model.kernels.stationary import Stationary
from ..model.problem import Problem
from .block_factors import Whole
from .stationary_rows import TILE, Form, add_moments, plain
from .sums import BLOCK_BYTES, Back, Group, Held, Work


def first_blocks(P: Problem, F: Form, Linv: np.ndarray, held: Held, s: Work, group: Group) -> None:
    """What `_passes.first_pass` sums, of a range of blocks."""
    from . import block_tiles as _block_tiles

    first: Any = _block_tiles.first_blocks
    rows, own = _rows_of(P, group)
    keep = held.blocks is not None and 16 * P.n * int(np.max(np.diff(group.edges))) <= BLOCK_BYTES
    Ks, Ls = _space_for_blocks(group, keep)
    b = np.zeros((s.m, P.p))
    log_D = first(F.basis, rows, own, plain(Linv), (keep, Ks, Ls), _space(s, F, group), s.G, b)
    if np.isnan(log_D):
        raise FactorisationError("the covariance of a block is not positive definite")
    if keep and held.blocks is not None and held.runs is not None:
        held.runs[group.first] = Ks, Ls
        end = 0
        for i, size in enumerate(np.diff(group.edges)):  # views, for a pass over residuals
            part, end = slice(end, end + size**2), end + size**2
            held.blocks[group.first + i] = Whole(Ks[part].reshape(size, size), Ls[part].reshape(size, size))
    s.b += b
    s.log_D += log_D
    if P.weights is not None:  # Π N(y|f, σ²) over w copies is N(y|f, σ²/w) (2πσ²)^(-(w-1)/2) w^(-1/2)
        weight = P.weights[group.rows]
        s.log_D += float(np.sum((weight - 1.0) * np.log(P.noise[group.rows]) + np.log(weight)))


def second_blocks(
    P: Problem, F: Form, back: Back, held: Held, noise_bar: np.ndarray, s: Work, group: Group
) -> None:
    """What `_passes.second_pass` sums, of a range of blocks."""
    from . import block_tiles as _block_tiles

    second: Any = _block_tiles.second_blocks
    assert isinstance(P.kernel, Stationary)
    rows, frame = _rows_of(P, group)
    X = rows[0]
    n, d = X.shape
    stored = (held.runs or {}).get(group.first)
    Ks, Ls = _space_for_blocks(group, False) if stored is None else stored
    V, diagonal, own = np.empty((n, P.p)), np.empty(n), np.zeros(d + 1)
    matrices = tuple(map(plain, (back.Linv, back.LBinv, back.w.T, back.alpha.T)))
    factors, filled = (stored is not None, Ks, Ls), (V, diagonal, own)
    totals = F.totals()
    space = _space(s, F, group)
    s.residual += second(F.basis, rows, frame, matrices, factors, filled, space, s.G, totals)
    weight = P.weight(group.rows)
    extra = 0.5 * P.p * (weight - 1.0) / P.noise[group.rows] if P.weights is not None else 0.0
    noise_bar[group.rows] = diagonal / weight - extra
    lengths = own[:d] * frame[1]  # Σ W (x - x')²/ℓ³
    if np.ndim(P.kernel.lengthscale) == 0:
        lengths = lengths.sum()
    add_gradients(s.kernel, {"lengthscale": lengths, "variance": own[d] / F.prior})
    add_moments(P, F, s, X, V, totals)


def _rows_of(P: Problem, group: Group) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, np.ndarray]]:
    """X, Y, noise over weight and edges; and the centre and inverse lengthscales of the kernel itself."""
    assert isinstance(P.kernel, Stationary)
    X, noise = plain(P.X[group.rows]), plain(P.noise[group.rows] / P.weight(group.rows))
    return (X, plain(P.Y[group.rows]), noise, group.edges), (X.mean(axis=0), 1.0 / P.kernel.scales(X))


def _space_for_blocks(group: Group, keep: bool) -> tuple[np.ndarray, np.ndarray]:
    """For the K and L⁻¹ of all blocks, or of those of one tile."""
    sizes = np.diff(group.edges)
    most = int(np.max(sizes))
    room = int(np.sum(sizes**2)) if keep else max(TILE, most) * most
    return np.empty(room), np.empty(room)


def _space(s: Work, F: Form, group: Group) -> tuple[np.ndarray, ...]:
    """Four buffers of a tile of rows, or of the longest block, and their features."""
    tile = max(TILE, int(np.max(np.diff(group.edges))))
    if s.tiles is None or s.tiles[0].shape[1] != tile:
        s.tiles = np.empty((4, tile, s.m)), np.empty((tile, F.width))
    return s.tiles
