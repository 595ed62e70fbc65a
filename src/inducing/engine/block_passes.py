"""The passes over blocks of rows (PITC), for any kernel and array namespace; evidence.py has the formulas."""

from __future__ import annotations

import numpy as np

from ..model.problem import Problem
from ..numerics.arrays import Array, namespace, zeros_like_rows
from ..numerics.linalg import (
    add_gram,
    add_outer,
    add_symmetric_product,
    cholesky_and_inverse,
    contiguous,
    from_lower,
    log_det_from_factor,
    lower_times,
    plus_diagonal,
    times_lower,
)
from .sums import BLOCK_BYTES, Back, Group, Held, Work, add_gradients, copied, finish, scratch_copy


def factors_of_block(P: Problem, Phi: Array, rows: np.ndarray) -> tuple[Array, Array, Array]:
    """K, and L and L⁻¹ of D = R + Σ, of one block. (b, b)"""
    X = P.X[rows]
    K = P.kernel(X, X)
    D = plus_diagonal(add_outer(copied(K), Phi, -1.0), P.noise[rows] / P.weight(rows))
    return K, *cholesky_and_inverse(D)


def first_blocks(P: Problem, Linv: Array, held: Held, s: Work, group: Group) -> None:
    xp, rows = namespace(P.X), group.rows
    A = times_lower(
        P.basis.cross(P.kernel, P.X[rows], s.buffer(0, len(rows))), Linv, transposed=True
    )  # Phi, yet
    Y = copied(P.Y[rows])
    for i, part in enumerate(group.parts):
        K, L, LDinv = factors_of_block(P, A[part], rows[part])
        if held.blocks is not None and 2 * P.n * len(L) * P.X.dtype.itemsize <= BLOCK_BYTES:
            held.blocks[group.first + i] = K, LDinv
        A[part] = lower_times(LDinv, A[part])
        Y[part] = LDinv @ Y[part]
        s.log_D = s.log_D + log_det_from_factor(L)
    s.G = add_gram(s.G, A)
    s.b += A.T @ Y
    if P.weights is not None:  # Π N(y|f, σ²) over w copies is N(y|f, σ²/w) (2πσ²)^(-(w-1)/2) w^(-1/2)
        weight = P.weights[rows]
        s.log_D = s.log_D + xp.sum((weight - 1.0) * xp.log(P.noise[rows]) + xp.log(weight))


def second_blocks(P: Problem, back: Back, held: Held, noise_bar: Array, s: Work, group: Group) -> None:
    """G_D = ½ (VVᵀ - p(D⁻¹ - D⁻¹ΦᵀB⁻¹ΦD⁻¹)), and Φ̄ = w vᵀ - B⁻¹ΦD⁻¹ - 2ΦG_D; all symmetric parts in lower
    triangles.
    """
    p, rows, c = P.p, group.rows, len(group.rows)
    X = P.X[rows]
    xp = namespace(X)
    K = P.basis.cross(P.kernel, X, s.buffer(0, c))
    Phi, blocks = _blocks(P, back, held, group, K, s.buffer(1, c))
    E = P.Y[rows] - Phi @ back.w
    V, S = copied(E), copied(Phi, s.buffer(2, c))
    for part, (_, Linv) in zip(group.parts, blocks, strict=True):
        V[part] = Linv.T @ (Linv @ V[part])
        S[part] = lower_times(Linv, lower_times(Linv, S[part]), transposed=True)  # D⁻¹Φᵀ
    s.residual = s.residual + xp.sum(E * V)
    S = times_lower(S, back.LBinv, transposed=True)
    GPhi = copied(Phi, s.buffer(3, c))
    diagonal = zeros_like_rows((c,), X)
    for part, (Kxx, Linv) in zip(group.parts, blocks, strict=True):
        x, b = X[part], len(Linv)
        GD = add_gram(zeros_like_rows((b, b), X), Linv, -p)
        GD = 0.5 * from_lower(add_outer(add_outer(GD, S[part], p), contiguous(V[part])))
        GPhi[part] = 2.0 * (GD @ Phi[part])
        diagonal[part] = xp.linalg.diagonal(GD)
        add_gradients(s.kernel, P.kernel.pullback(x, x, GD, Kxx)[0])
    S = times_lower(S, back.LBinv)  # D⁻¹ΦᵀB⁻¹
    weight, noise = P.weight(rows), P.noise[rows]
    extra = 0.5 * p * (weight - 1.0) / noise if P.weights is not None else 0.0
    noise_bar[rows] = diagonal / weight - extra
    s.G = add_symmetric_product(s.G, GPhi, Phi)
    S *= -p
    S -= GPhi
    finish(P, s, X, K, times_lower(S, back.Linv), V, back.alpha)


def _blocks(
    P: Problem, back: Back, held: Held, group: Group, K: Array, out: Array | None
) -> tuple[Array, list[tuple[Array, Array]]]:
    """Phi (c, m), and of each block K and L⁻¹ (b, b), in the second pass."""
    Phi = times_lower(scratch_copy(K, out), back.Linv, transposed=True)
    blocks = []
    for i, part in enumerate(group.parts):
        block = (held.blocks or {}).get(group.first + i)
        blocks.append(factors_of_block(P, Phi[part], group.rows[part])[::2] if block is None else block)
    return Phi, blocks


def residual_blocks(P: Problem, back: Back, held: Held, s: Work, group: Group) -> None:
    """Add Σ |L⁻¹e|² over the blocks of a group."""
    K = P.basis.cross(P.kernel, P.X[group.rows], s.buffer(0, len(group.rows)))
    E = P.Y[group.rows] - K @ back.alpha
    for part, (_, Linv) in zip(group.parts, _blocks(P, back, held, group, K, None)[1], strict=True):
        E[part] = Linv @ E[part]
    s.residual = s.residual + namespace(E).sum(E * E)
