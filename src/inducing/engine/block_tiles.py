"""PITC's passes as compiled loops, for an RBF kernel and Gaussian basis functions: rows come block after
block, and blocks that fit a tile together share their products with the basis; see evidence.py, tiles.py.
"""

import numpy as np

from ..model.kernels.exponents import NEAR_CENTRE
from ..numerics.compiled_blas import (
    add_cross,
    add_gram,
    add_outer,
    add_symmetric,
    factorise,
    lower_times,
    product,
    symmetric_times,
    times_lower,
)
from ..numerics.compiling import (
    FAST,
    Addresses,
    Flag,
    Given1,
    Given2,
    Numbers,
    Out1,
    Out2,
    Real,
    compiled,
    helper,
    signature,
    tuple_of,
)
from ..numerics.exponential import EXACT, exponential
from .tiles import Gaussians, MatricesType, Space, Totals, by_differences, copied, cross, features, finish

_jit = helper(fastmath=FAST)
BlockRows = tuple_of(Given2, Given2, Given1, Addresses)  # X, Y, noise over weight, edges of the blocks
OwnFrame = tuple_of(Out1, Out1)  # centre and inverse lengthscales of the kernel itself
FactorsType = tuple_of(Flag, Out1, Out1)  # whether they are kept, K and L⁻¹ of the blocks
FilledBlocks = tuple_of(Out2, Out1, Out1)  # V, the diagonal of G_D, the moments of the kernel's own


@_jit
def last_of(edges: np.ndarray, first: int, tile: int) -> int:
    """The blocks first, …, last - 1 fit a tile; one alone always does."""
    last = first + 1
    while last < len(edges) - 1 and edges[last + 1] - edges[first] <= tile:
        last += 1
    return last


@helper(fastmath=EXACT)
def exponentials_below(K: np.ndarray) -> None:
    """exp of the lower triangle, in K."""
    for i in range(len(K)):
        row = K[i]
        for j in range(i + 1):
            row[j] = exponential(row[j])


@_jit
def within(
    at: np.ndarray, X: np.ndarray, centre: np.ndarray, inverse: np.ndarray, prior: float, K: np.ndarray
) -> None:
    """The lower triangle of k(X, X)."""
    b, d = X.shape
    A, B = np.empty((b, d + 2)), np.empty((b, d + 2))
    largest = features(X, centre, inverse, False, A)
    log_prior = np.log(prior)
    if 2.0 * largest > NEAR_CENTRE:
        by_differences(A, A[:, :d], np.ones((b, d)), np.full(b, log_prior), K)
    else:
        for i in range(b):
            for k in range(d):
                B[i, k] = A[i, k]
            B[i, d], B[i, d + 1] = 1.0, A[i, d] + log_prior
        product(at, A, B, K)
    exponentials_below(K)
    for i in range(b):
        K[i, i] = prior


@_jit
def covariance(at: np.ndarray, K: np.ndarray, Phi: np.ndarray, noise: np.ndarray, D: np.ndarray) -> float:
    """D = K - ΦᵀΦ + Σ of one block becomes L⁻¹; returns log|D|."""
    for i in range(len(K)):
        for j in range(i + 1):
            D[i, j] = K[i, j]
        D[i, i] += noise[i]
    add_outer(at, Phi, -1.0, D)
    return factorise(at, D)


@compiled(
    signature(Real, Gaussians, BlockRows, OwnFrame, Given2, FactorsType, Space, Out2, Out2), fastmath=FAST
)
def first_blocks(
    basis: Numbers,
    rows: Numbers,
    own_frame: Numbers,
    Linv: np.ndarray,
    factors: Numbers,
    space: Numbers,
    G: np.ndarray,
    b: np.ndarray,
) -> float:
    """Add ΦD⁻¹Φᵀ to G and ΦD⁻¹Y to b (m, p); returns log|D|. Ks and Ls keep K and L⁻¹, all or a tile's."""
    at, (centre, scale, wide), form, prior = basis
    (X, Y, noise, edges), (own_centre, inverse) = rows, own_frame
    (keep, Ks, Ls), (work, A) = factors, space
    log_D, at_block = 0.0, 0
    first = 0
    while first < len(edges) - 1:
        last = last_of(edges, first, work.shape[1])
        lo, c = edges[first], edges[last] - edges[first]
        Phi, Yc = work[0, :c], Y[lo : lo + c].copy()
        cross(at, A[:c], features(X[lo : lo + c], centre, scale, wide, A[:c]), form, Phi)
        times_lower(at, Phi, Linv, True)
        for g in range(first, last):
            start, stop = edges[g] - lo, edges[g + 1] - lo
            size = stop - start
            K = Ks[at_block : at_block + size * size].reshape(size, size)
            D = Ls[at_block : at_block + size * size].reshape(size, size)
            within(at, X[lo + start : lo + stop], own_centre, inverse, prior, K)
            log_D += covariance(at, K, Phi[start:stop], noise[lo + start : lo + stop], D)
            lower_times(at, D, Phi[start:stop], False)
            lower_times(at, D, Yc[start:stop], False)
            if keep:
                at_block += size * size
        add_gram(at, Phi, 1.0, G)
        add_cross(at, Phi, Yc, b)
        first = last
    return log_D


@_jit
def own_moments(
    at: np.ndarray, W: np.ndarray, K: np.ndarray, U: np.ndarray, WU: np.ndarray, own: np.ndarray
) -> None:
    """Add Σ_ij W_ij (u_i - u_j)² of each input, then Σ_ij W_ij, for W∘K in lower triangles; U is [u, 1]."""
    b, d = len(W), U.shape[1] - 1
    for i in range(b):
        row, k_row = W[i], K[i]
        own[d] += row[i] * k_row[i]
        row[i] = 0.0  # a row's distance from itself: nothing is to cancel
        for j in range(i):
            row[j] *= k_row[j]
    symmetric_times(at, W, U, 1.0, WU)
    for i in range(b):
        own[d] += WU[i, d]
        for k in range(d):
            own[k] += 2.0 * U[i, k] * (WU[i, d] * U[i, k] - WU[i, k])


@compiled(
    signature(
        Real, Gaussians, BlockRows, OwnFrame, MatricesType, FactorsType, FilledBlocks, Space, Out2, Totals
    ),
    fastmath=FAST,
)
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
    """G_D = ½ (VVᵀ - p(D⁻¹ - D⁻¹ΦᵀB⁻¹ΦD⁻¹)) and Φ̄ = w vᵀ - pB⁻¹ΦD⁻¹ - 2ΦG_D, block by block; returns Σ
    eᵀD⁻¹e.

    Fills V = D⁻¹(Y - Φᵀw) and the diagonal of G_D; adds 2ΦG_DΦᵀ to G, and to the moments of W and of the
    kernel's own.
    """
    at, (centre, scale, wide), form, prior = basis
    (X, Y, noise, edges), (own_centre, inverse), (Linv, LBinv, w, alpha) = rows, own_frame, matrices
    (kept, Ks, Ls), (V, diagonal, own) = factors, filled
    (work, A), (moments, squares) = space, totals
    p, d, m = Y.shape[1], X.shape[1], len(G)
    most = 0
    for g in range(len(edges) - 1):
        most = max(most, edges[g + 1] - edges[g])
    space, U, WU = np.empty(most * most), np.ones((most, d + 1)), np.empty((most, d + 1))
    residual, at_block, first = 0.0, 0, 0
    while first < len(edges) - 1:
        last = last_of(edges, first, work.shape[1])
        lo, hi = edges[first], edges[last]
        c = hi - lo
        K, Phi, S, GPhi = work[0, :c], work[1, :c], work[2, :c], work[3, :c]
        cross(at, A[:c], features(X[lo:hi], centre, scale, wide, A[:c]), form, K)
        copied(K, Phi)
        times_lower(at, Phi, Linv, True)
        copied(Phi, S)
        for i in range(c):
            for o in range(p):
                t = 0.0
                for j in range(m):
                    t += Phi[i, j] * w[o, j]
                V[lo + i, o] = Y[lo + i, o] - t
        place = at_block
        for g in range(first, last):
            start, stop = edges[g] - lo, edges[g + 1] - lo
            size = stop - start
            D = Ls[place : place + size * size].reshape(size, size)
            if not kept:
                Kb = Ks[place : place + size * size].reshape(size, size)
                within(at, X[lo + start : lo + stop], own_centre, inverse, prior, Kb)
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
            GD = space[: size * size].reshape(size, size)
            GD[:, :] = 0.0
            add_gram(at, D, -0.5 * p, GD)
            add_outer(at, S[start:stop], 0.5 * p, GD)
            add_outer(at, V[lo + start : lo + stop], 0.5, GD)
            symmetric_times(at, GD, Phi[start:stop], 2.0, GPhi[start:stop])
            for i in range(size):
                diagonal[lo + start + i] = GD[i, i]
                for k in range(d):
                    U[i, k] = (X[lo + start + i, k] - own_centre[k]) * inverse[k]
            Kb = Ks[place : place + size * size].reshape(size, size)
            own_moments(at, GD, Kb, U[:size], WU[:size], own)
            place += size * size
        if kept:
            at_block = place
        times_lower(at, S, LBinv, False)  # D⁻¹ΦᵀB⁻¹
        add_symmetric(at, GPhi, Phi, G)
        for i in range(c):
            for j in range(m):
                S[i, j] = -p * S[i, j] - GPhi[i, j]
        times_lower(at, S, Linv, False)
        finish(at, S, 1.0, V[lo:hi], alpha, K, A[:c], moments, squares)
        first = last
    return residual
