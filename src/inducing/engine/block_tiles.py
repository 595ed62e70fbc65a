"""PITC's passes as compiled loops, for stationary kernels: rows lie block after block, and blocks that fit
one tile share their products with the basis; see evidence.py, tiles.py.
"""

import numpy as np

from ..model.kernels.triangle_loops import add_triangle, fill, fill_triangle
from ..numerics.compiled_blas import (
    add_cross,
    add_gram,
    add_outer,
    add_symmetric,
    factorise,
    lower_times,
    symmetric_times,
    times_lower,
)
from ..numerics.compiling import FAST, Numbers, compiled, helper
from ..numerics.kinds import Addresses, Flag, Given1, Given2, Out1, Out2, Real, signature, tuple_of
from ..numerics.triangles import dot
from .tiles import BasisType, MatricesType, Space, Totals, copied, fill_tile, finish

_jit = helper(fastmath=FAST)
BlockRows = tuple_of(Given2, Given2, Given1, Addresses)  # X, Y, noise over weight, edges of the blocks
# centre and inverse lengthscales of the kernel itself; space for the inputs of a block
OwnFrame = tuple_of(Out1, Out1, Out1)
FactorsType = tuple_of(Flag, Out1, Out1)  # whether they are kept, K and L⁻¹ of the blocks
# V, the diagonal of G_D, moments of the kernel between rows; space for G_D of a block and for two of its rows
FilledBlocks = tuple_of(Out2, Out1, Out1, Out1, Out2)


@_jit
def last_of(edges: np.ndarray, first: int, tile: int) -> int:
    """Return `last` such that the blocks first, …, last - 1 share a tile; one alone always fits."""
    last = first + 1
    while last < len(edges) - 1 and edges[last + 1] - edges[first] <= tile:
        last += 1
    return last


@_jit
def columns(X: np.ndarray, frame: Numbers, Xt: np.ndarray) -> None:
    """Fill Xt with inputs about a centre in lengthscales, by columns. (d, b)"""
    centre, inverse, _ = frame
    for k in range(len(Xt)):
        for i in range(len(X)):
            Xt[k, i] = (X[i, k] - centre[k]) * inverse[k]


@_jit
def covariance(at: np.ndarray, K: np.ndarray, Phi: np.ndarray, noise: np.ndarray, D: np.ndarray) -> float:
    """Fill D with L⁻¹ of one block's K - ΦᵀΦ + Σ = LLᵀ; return log|LLᵀ|."""
    for i in range(len(K)):
        for j in range(i + 1):
            D[i, j] = K[i, j]
        D[i, i] += noise[i]
    add_outer(at, Phi, -1.0, D)
    return factorise(at, D)


_there = Given2, FactorsType, Space, Out2, Out2, Out2


@compiled(signature(Real, BasisType, BlockRows, OwnFrame, *_there), fastmath=FAST)
def first_blocks(
    basis: Numbers,
    rows: Numbers,
    own_frame: Numbers,
    Linv: np.ndarray,
    factors: Numbers,
    space: Numbers,
    half: np.ndarray,
    G: np.ndarray,
    b: np.ndarray,
) -> float:
    """Add ΦD⁻¹Φᵀ to G and ΦD⁻¹Y to b (m, p); return log|D|. Ks and Ls get K and L⁻¹, of a tile or of all;
    `half`, Y at first, becomes L⁻¹Y.
    """
    at, _, _, kernel = basis
    X, _, noise, edges = rows
    (keep, Ks, Ls), (work, A) = factors, space
    log_D, at_block, first, d = 0.0, 0, 0, X.shape[1]
    while first < len(edges) - 1:
        last = last_of(edges, first, work.shape[1])
        lo, c = edges[first], edges[last] - edges[first]
        Phi, Yc = work[0, :c], half[lo : lo + c]
        fill_tile(basis, X[lo : lo + c], False, Phi, A, work[1, :c])
        times_lower(at, Phi, Linv, True)
        for g in range(first, last):
            start, stop = edges[g] - lo, edges[g + 1] - lo
            size = stop - start
            K = Ks[at_block : at_block + size * size].reshape(size, size)
            D = Ls[at_block : at_block + size * size].reshape(size, size)
            Xt = own_frame[2][: d * size].reshape(d, size)
            columns(X[lo + start : lo + stop], own_frame, Xt)
            fill_triangle(Xt, kernel, 0, size, K)
            log_D += covariance(at, K, Phi[start:stop], noise[lo + start : lo + stop], D)
            lower_times(at, D, Phi[start:stop], False)
            lower_times(at, D, Yc[start:stop], False)
            if keep:
                at_block += size * size
        add_gram(at, Phi, 1.0, G)
        add_cross(at, Phi, Yc, b)
        first = last
    return log_D


_back = MatricesType, FactorsType, FilledBlocks, Space, Out2, Totals


@compiled(signature(Real, BasisType, BlockRows, OwnFrame, *_back), fastmath=FAST)
def second_blocks(
    basis: Numbers,
    rows: Numbers,
    own_frame: Numbers,
    matrices: Numbers,
    factors: Numbers,
    filled: Numbers,
    space: Numbers,
    G: np.ndarray,
    totals: Numbers,
) -> float:
    """Fill V = D⁻¹e and the diagonal of G_D; add (Φ̄ - w vᵀ)Φᵀ to G, and to `totals` and the moments of the
    kernel between rows; return Σ eᵀD⁻¹e, e = Y - Φᵀw. In each block

    G_D = ½ (VVᵀ - p(D⁻¹ - D⁻¹ΦᵀB⁻¹ΦD⁻¹)) and Φ̄ = w vᵀ - pB⁻¹ΦD⁻¹ - 2ΦG_D.
    """
    at, _, _, kernel = basis
    (X, Y, noise, edges), (Linv, LBinv, w, alpha) = rows, matrices
    (kept, Ks, Ls), (V, diagonal, own, room, pair) = factors, filled
    work, A = space
    p, m, d = Y.shape[1], len(G), X.shape[1]
    residual, at_block, first = 0.0, 0, 0
    while first < len(edges) - 1:
        last = last_of(edges, first, work.shape[1])
        lo, hi = edges[first], edges[last]
        c = hi - lo
        K, Phi, S, GPhi = work[0, :c], work[1, :c], work[2, :c], work[3, :c]
        fill_tile(basis, X[lo:hi], False, K, A, Phi)
        copied(K, Phi)
        times_lower(at, Phi, Linv, True)
        copied(Phi, S)
        for i in range(c):
            for o in range(p):
                V[lo + i, o] = Y[lo + i, o] - dot(Phi[i], w[o], m)
        place = at_block
        for g in range(first, last):
            start, stop = edges[g] - lo, edges[g + 1] - lo
            size = stop - start
            D = Ls[place : place + size * size].reshape(size, size)
            if not kept:
                Kb = Ks[place : place + size * size].reshape(size, size)
                Xt = own_frame[2][: d * size].reshape(d, size)
                columns(X[lo + start : lo + stop], own_frame, Xt)
                fill_triangle(Xt, kernel, 0, size, Kb)
                covariance(at, Kb, Phi[start:stop], noise[lo + start : lo + stop], D)
            lower_times(at, D, S[start:stop], False)
            lower_times(at, D, S[start:stop], True)  # D⁻¹Φᵀ
            lower_times(at, D, V[lo + start : lo + stop], False)
            for i in range(start, stop):
                for o in range(p):
                    residual += V[lo + i, o] * V[lo + i, o]
            lower_times(at, D, V[lo + start : lo + stop], True)
            place += size * size
        times_lower(at, S, LBinv, True)
        place = at_block
        for g in range(first, last):
            start, stop = edges[g] - lo, edges[g + 1] - lo
            size = stop - start
            D = Ls[place : place + size * size].reshape(size, size)
            GD = room[: size * size].reshape(size, size)
            for i in range(size):
                fill(GD[i], 0.0)
            add_gram(at, D, -0.5 * p, GD)
            add_outer(at, S[start:stop], 0.5 * p, GD)
            add_outer(at, V[lo + start : lo + stop], 0.5, GD)
            symmetric_times(at, GD, Phi[start:stop], 2.0, GPhi[start:stop])
            for i in range(size):
                diagonal[lo + start + i] = GD[i, i]
                for j in range(i):
                    GD[i, j] *= 2.0  # for its mirror image
            Xt = own_frame[2][: d * size].reshape(d, size)
            columns(X[lo + start : lo + stop], own_frame, Xt)
            add_triangle(Xt, kernel, 0, size, GD, pair, own)
            place += size * size
        if kept:
            at_block = place
        times_lower(at, S, LBinv, False)  # D⁻¹ΦᵀB⁻¹
        for i in range(c):
            for j in range(m):
                S[i, j] = -p * S[i, j] - GPhi[i, j]
        add_symmetric(at, S, Phi, G)
        times_lower(at, S, Linv, False)
        finish(basis, S, 1.0, V[lo:hi], alpha, K, A, (GPhi, Phi), totals)
        first = last
    return residual
