"""The two passes over rows behind the evidence: what is summed on the way, chunk by chunk, for rows and for
blocks of rows.

The formulas are in evidence.py. A pass takes a problem and m-by-m matrices that are the same for all rows,
and gives `Sums`; those of different parts of the data add up, so rows may lie in memory, on disk or on other
machines.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..model.problem import Problem, noise_gradient
from ..model.table import trace_penalty
from ..numerics.arrays import SMALL, Array, asarray_like, is_numpy, namespace, zeros_like_rows
from ..numerics.linalg import (
    add_gram,
    add_outer,
    add_product,
    add_symmetric_product,
    add_weighted_gram,
    cholesky_and_inverse,
    contiguous,
    from_lower,
    log_det_from_factor,
    lower_times,
    plus_diagonal,
    row_dots,
    row_squares,
    scaled_sum,
    times_lower,
)
from ..numerics.workers import chunk_rows, row_slices, run_over
from . import gaussian_blocks
from . import gaussian_rows as gaussian
from .sums import BLOCK_BYTES, Back, Group, Held, Sums, Work, add_gradients, groups

FEW_FLOPS = 10_000_000  # threads that share the interpreter get in each other's way on blocks below this


def first_pass(P: Problem, Linv: Array, kept: Held | None = None) -> Sums:
    """ΦΠΦᵀ, ΦΠy, Σ log D and the penalty, less what of a trace penalty is in tr B; fills `kept`."""
    held, Linv = kept or Held(), asarray_like(Linv, P.X)
    whitener = Linv / P.common_noise**0.5 if P.uniform and P.row.share == 0 else Linv
    form = gaussian.form_of(P)

    def step(s: Work, rows: Any) -> None:
        if P.blocks is not None and form is None:
            _first_blocks(P, whitener, held, s, rows)
        elif form is not None and P.blocks is not None:
            gaussian_blocks.first_blocks(P, form, whitener, held, s, rows)
        elif form is not None:
            gaussian.first_rows(P, form, whitener, held, s, rows)
        else:
            _first_rows(P, whitener, held, s, rows)

    sums = _run(P, step, b=True, compiled=form is not None)
    sums.count = float(P.n) if P.weights is None else float(namespace(P.X).sum(P.weights))
    return sums


def residual_pass(P: Problem, back: Back, kept: Held | None = None) -> Sums:
    """Σ eᵢ²Πᵢ alone, without a gradient."""
    held, back = kept or Held(), back.on(P.X)

    def step(s: Work, rows: Any) -> None:
        if P.blocks is not None:
            K = P.basis.cross(P.kernel, P.X[rows.rows], s.buffer(0, len(rows.rows)))
            E = P.Y[rows.rows] - K @ back.alpha
            for part, (_, Linv) in zip(rows.parts, _blocks(P, back, held, rows, K, None)[1], strict=True):
                E[part] = Linv @ E[part]
            s.residual = s.residual + namespace(E).sum(E * E)
        else:
            K = _kfu(P, held, s, rows)
            E, D = P.Y[rows] - K @ back.alpha, P.noise[rows]
            if P.row.share and held.R is not None:
                D = P.row.share * held.R[rows] + D
            elif P.row.share:
                Phi = times_lower(_copy(K, s.buffer(1, _count(rows))), back.Linv, transposed=True)
                D = P.row.share * (P.kernel.diag(P.X[rows]) - row_squares(Phi)) + D
            s.residual = s.residual + namespace(E).sum((P.weight(rows) / D)[:, None] * E * E)

    return _run(P, step, G=False)


def second_pass(P: Problem, back: Back, kept: Held | None = None) -> Sums:
    """The residuals and the gradients that pass through Kfu, the diagonal and the prior mean."""
    held, back = kept or Held(), back.on(P.X)
    noise_bar = zeros_like_rows((P.n,), P.X)
    form = gaussian.form_of(P)

    def step(s: Work, rows: Any) -> None:
        if P.blocks is not None and form is None:
            _second_blocks(P, back, held, noise_bar, s, rows)
        elif form is not None and P.blocks is not None:
            gaussian_blocks.second_blocks(P, form, back, held, noise_bar, s, rows)
        elif form is not None:
            gaussian.second_rows(P, form, back, held, noise_bar, s, rows)
        elif P.row.share == 0:
            _second_rows_deterministic(P, back, held, noise_bar, s, rows)
        else:
            _second_rows(P, back, held, noise_bar, s, rows)

    sums = _run(P, step, G=P.row.share != 0, compiled=form is not None)
    sums.noise = noise_gradient(P, noise_bar)
    return sums


def _run(P: Problem, step: Any, *, G: bool = True, b: bool = False, compiled: bool = False) -> Sums:
    """`step` over ranges or chunks of rows, or of blocks; on all cores where there is enough to do."""
    m = len(P.basis)
    tasks: list[Any]
    if compiled:
        count, parallel = gaussian.range_count(P), gaussian.on_all_cores(P)
        tasks = row_slices(P.n, -(-P.n // count)) if P.blocks is None else groups(P, count)
    elif P.blocks is None:
        tasks, parallel = row_slices(P.n, _chunk(P)), is_numpy(P.X) and P.n * m >= SMALL
    else:
        tasks = groups(P, -(-P.n // _chunk(P)))
        parallel = is_numpy(P.X) and P.n * m >= SMALL and P.n / len(P.blocks) * m**2 >= FEW_FLOPS
    return sum(run_over(tasks, lambda: Work(P, G, b), step, parallel=parallel), Sums())


def _chunk(P: Problem) -> int:
    return chunk_rows(P.n, len(P.basis), P.X)


def _count(rows: Any) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _first_rows(P: Problem, whitener: Array, held: Held, s: Work, rows: slice) -> None:
    xp = namespace(P.X)
    X, weight, noise = P.X[rows], P.weight(rows), P.noise[rows]
    K = P.basis.cross(P.kernel, X, s.buffer(0, _count(rows)))
    if held.Kfu is not None:
        held.Kfu[rows] = K
    Phi = times_lower(K, whitener, transposed=True)  # (c, m)
    if P.row.share == 0:
        D = noise
        if P.row.penalty is trace_penalty:  # ½ Σ (k(x, x) - φᵀφ)Π; the sum of φᵀφΠ is tr(B - I)
            s.penalty = s.penalty + 0.5 * xp.sum(weight / noise * P.kernel.diag(X))
    else:
        R = P.kernel.diag(X) - row_squares(Phi)
        D = P.row.share * R + noise
        s.penalty = s.penalty + xp.sum(weight * P.row.penalty(R, noise, P.row.share)[0])
        if held.R is not None:
            held.R[rows] = R
    s.log_D = s.log_D + xp.sum(weight * xp.log(D))
    root = xp.sqrt(weight / D)[:, None]
    if not (P.uniform and P.row.share == 0):  # else √Π is in the whitener
        Phi *= root
    s.G = add_gram(s.G, Phi)
    s.b += Phi.T @ (root * P.Y[rows])


def _kfu(P: Problem, held: Held, s: Work, rows: slice) -> Array:
    """Kfu of a chunk in the second pass. (c, m)"""
    return (
        P.basis.cross(P.kernel, P.X[rows], s.buffer(0, _count(rows))) if held.Kfu is None else held.Kfu[rows]
    )


def _second_rows_deterministic(
    P: Problem, back: Back, held: Held, noise_bar: Array, s: Work, rows: slice
) -> None:
    """share = 0: p Π φᵀ(cI - B⁻¹)φ = ±|T k_u|², with √(pΠ) in T if it is common to all rows and applied here
    if not.
    """
    xp, p, T, alpha = namespace(P.X), P.p, back.T, back.alpha
    X, weight, noise = P.X[rows], P.weight(rows), P.noise[rows]
    c, sign = _count(rows), 1.0 if P.row.penalty is trace_penalty else -1.0
    precision = weight / noise
    K = _kfu(P, held, s, rows)
    KT = times_lower(_copy(K, s.buffer(1, c)), T, transposed=True)
    if not P.uniform:
        root = xp.sqrt(p * precision)[:, None]
        KT *= root
    E = P.Y[rows] - K @ alpha
    V = precision[:, None] * E
    s.residual = s.residual + xp.sum(V * E)
    # g_D with φᵀB⁻¹φ = cφᵀφ ∓ |T k_u|²/(pΠ); under the trace penalty (c = 1) φᵀφ cancels against R's
    bar = xp.sum(E * V, axis=1) - p * weight
    if P.row.penalty is trace_penalty:
        bar = bar + p * precision * P.kernel.diag(X)
        add_gradients(s.kernel, P.kernel.diag_pullback(X, -0.5 * p * precision))
    noise_bar[rows] = 0.5 * (bar - sign * row_squares(KT)) / noise
    if not P.uniform:
        KT *= root
    _finish(P, s, X, K, times_lower(KT, T), V, alpha, sign)


def _second_rows(P: Problem, back: Back, held: Held, noise_bar: Array, s: Work, rows: slice) -> None:
    xp, p = namespace(P.X), P.p
    X, weight, noise = P.X[rows], P.weight(rows), P.noise[rows]
    c = _count(rows)
    K = _kfu(P, held, s, rows)
    Phi = times_lower(_copy(K, s.buffer(1, c)), back.Linv, transposed=True)
    S = xp.matmul(Phi, back.Binv, out=s.buffer(2, c)) if is_numpy(Phi) else Phi @ back.Binv
    R = P.kernel.diag(X) - row_squares(Phi) if held.R is None else held.R[rows]
    D = P.row.share * R + noise
    precision = weight / D
    E = P.Y[rows] - Phi @ back.w
    V = precision[:, None] * E
    s.residual = s.residual + xp.sum(V * E)
    gD = 0.5 * (xp.sum(E * V, axis=1) - p * weight + p * precision * row_dots(Phi, S)) / D
    _, dR, dnoise = P.row.penalty(R, noise, P.row.share)
    rbar = P.row.share * gD - p * weight * dR
    noise_bar[rows] = gD - p * weight * dnoise
    add_gradients(s.kernel, P.kernel.diag_pullback(X, rbar))
    S = scaled_sum(S, -p * precision, Phi, -2.0 * rbar)
    s.G = add_weighted_gram(s.G, Phi, 2.0 * rbar, s.buffer(3, c))
    _finish(P, s, X, K, times_lower(S, back.Linv), V, back.alpha)  # S is Φ̄ without w vᵀ, which becomes v αᵀ


def _finish(
    P: Problem, s: Work, X: Array, K: Array, Kbar: Array, V: Array, alpha: Array, sign: float = 1.0
) -> None:
    """Hand K̄fu = sign Kbar + v αᵀ to the basis; the prior mean's gradient is v itself."""
    Kbar = add_product(Kbar, V, alpha.T, sign)
    kernel, basis = P.basis.cross_pullback(P.kernel, X, Kbar, K)
    if sign < 0:
        kernel, basis = ({key: -g for key, g in part.items()} for part in (kernel, basis))
    add_gradients(s.kernel, kernel)
    add_gradients(s.basis, basis)
    add_gradients(s.mean, P.mean.pullback(X, V[:, 0] if P.one_output else V))


def _factors_of_block(P: Problem, Phi: Array, rows: np.ndarray) -> tuple[Array, Array, Array]:
    """K, and L and L⁻¹ of D = R + Σ, of one block. (b, b)"""
    X = P.X[rows]
    K = P.kernel(X, X)
    D = plus_diagonal(add_outer(_copied(K), Phi, -1.0), P.noise[rows] / P.weight(rows))
    return K, *cholesky_and_inverse(D)


def _first_blocks(P: Problem, Linv: Array, held: Held, s: Work, group: Group) -> None:
    xp, rows = namespace(P.X), group.rows
    A = times_lower(
        P.basis.cross(P.kernel, P.X[rows], s.buffer(0, len(rows))), Linv, transposed=True
    )  # Phi, yet
    Y = _copied(P.Y[rows])
    for i, part in enumerate(group.parts):
        K, L, LDinv = _factors_of_block(P, A[part], rows[part])
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


def _second_blocks(P: Problem, back: Back, held: Held, noise_bar: Array, s: Work, group: Group) -> None:
    """G_D = ½ (VVᵀ - p(D⁻¹ - D⁻¹ΦᵀB⁻¹ΦD⁻¹)), and Φ̄ = w vᵀ - B⁻¹ΦD⁻¹ - 2ΦG_D; all symmetric parts in lower
    triangles.
    """
    p, rows, c = P.p, group.rows, len(group.rows)
    X = P.X[rows]
    xp = namespace(X)
    K = P.basis.cross(P.kernel, X, s.buffer(0, c))
    Phi, blocks = _blocks(P, back, held, group, K, s.buffer(1, c))
    E = P.Y[rows] - Phi @ back.w
    V, S = _copied(E), _copied(Phi, s.buffer(2, c))
    for part, (_, Linv) in zip(group.parts, blocks, strict=True):
        V[part] = Linv.T @ (Linv @ V[part])
        S[part] = lower_times(Linv, lower_times(Linv, S[part]), transposed=True)  # D⁻¹Φᵀ
    s.residual = s.residual + xp.sum(E * V)
    S = times_lower(S, back.LBinv, transposed=True)
    GPhi = _copied(Phi, s.buffer(3, c))
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
    _finish(P, s, X, K, times_lower(S, back.Linv), V, back.alpha)


def _blocks(
    P: Problem, back: Back, held: Held, group: Group, K: Array, out: Array | None
) -> tuple[Array, list[tuple[Array, Array]]]:
    """Phi (c, m), and of each block K and L⁻¹ (b, b), in the second pass."""
    Phi = times_lower(_copy(K, out), back.Linv, transposed=True)
    found = []
    for i, part in enumerate(group.parts):
        block = (held.blocks or {}).get(group.first + i)
        found.append(_factors_of_block(P, Phi[part], group.rows[part])[::2] if block is None else block)
    return Phi, found


def _copy(A: Array, out: Array | None = None) -> Array:
    if not is_numpy(A):
        return A  # nothing overwrites it there
    if out is None:
        return A.copy()
    out[...] = A
    return out


def _copied(A: Array, out: Array | None = None) -> Array:
    """A copy, whatever the namespace, for what is assigned to in parts."""
    return namespace(A).asarray(A, copy=True) if out is None else _copy(A, out)
