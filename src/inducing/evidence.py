"""Log evidence and its exact gradient for any row of the table, streamed over chunks of rows.

With Φ = Luu⁻¹Kuf, precisions Π = D⁻¹ (times the rows' weights), B = I + ΦΠΦᵀ, w = B⁻¹ΦΠy, e = y - Φᵀw and v = Πe:

    log q(y) = -½ [n log 2π + Σ log D + log|B| + Σ eᵢ²Πᵢ + |w|²] - penalty

The first pass sums ΦΠΦᵀ and ΦΠy; the second carries the gradient back (reverse mode, written out):

    g_D = ½ (vᵢ² - Πᵢ + Πᵢ² φᵢᵀB⁻¹φᵢ)                               dJ/dDᵢ
    r̄   = share g_D - d penalty/dR                                  dJ/dRᵢᵢ = dJ/dk(xᵢ, xᵢ)
    Φ̄   = w vᵀ - B⁻¹ΦΠ - 2Φ diag(r̄)
    K̄uf = Luu⁻ᵀ Φ̄
    K̄uu = -½ Luu⁻ᵀ (wwᵀ - I + B⁻¹ - 2Φ diag(r̄)Φᵀ) Luu⁻¹           since Φv = w, M = Φ̄Φᵀ is symmetric

Rows are C-ordered, so the code holds the transposes: Phi is (rows, m). When share = 0 (SoR, DTC, VFE), r̄ = -½cΠ with a
constant c, so K̄uf = α vᵀ + Luu⁻ᵀ(cI - B⁻¹)Luu⁻¹ Kuf Π = α vᵀ ± TᵀT Kuf Π needs no Φ. The work is 4nm² for those
rows and 7nm² for the others (products with triangles and symmetric results count half), and memory is O(m² + chunk·m).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .approximations import trace_penalty
from .backend import SMALL, Array, chunk_rows, is_numpy, namespace, row_slices, run_over, zeros_like_rows
from .kernels.base import Gradients
from .linalg import (
    add_gram,
    add_outer,
    add_product,
    add_symmetric_product,
    add_weighted_gram,
    cholesky_and_inverse,
    cholesky_escalating,
    congruence,
    contiguous,
    from_lower,
    gram,
    inverse_lower,
    jittered,
    log_det_from_factor,
    lower_times,
    plus_diagonal,
    row_dots,
    row_squares,
    scaled_sum,
    shrinkage_root,
    times_lower,
    times_lower_on_all_cores,
)
from .problem import Problem, noise_gradient

FEW_FLOPS = 10_000_000  # threads that share the interpreter get in each other's way on blocks below this
BLOCK_BYTES = 1 << 29  # what PITC may keep of its blocks between the passes
KFU_BYTES = 1 << 24  # up to this size Kfu is kept between the passes; a larger one leaves the cache, and is made again


@dataclass(frozen=True, eq=False)
class Factors:
    """What the first pass leaves: enough to predict with and to start the second pass from."""

    Kuu: Array  # (m, m), without jitter
    Luu: Array
    Linv: Array  # Luu⁻¹
    jitter: float  # relative, as used
    B: Array
    LBinv: Array  # of the Cholesky factor of B
    w: Array  # (m, p), whitened posterior mean
    D: Array | None  # (n,); None for blocks, which are made again when needed
    constant: float  # of -2 log q(y), all but the residuals' Σ eᵢ²Πᵢ
    Kfu: Array | None  # (n, m), where it fits KFU_BYTES
    kept: dict[int, tuple[Array, Array]]  # by block: K and the L⁻¹ of D, where they fit BLOCK_BYTES


def factorise(P: Problem, *, escalate: bool = True) -> Factors:
    """The first pass. `escalate=False` (inside an optimisation) lets a failed Cholesky raise instead of adding jitter."""
    Kuu = P.basis.gram(P.kernel)
    if escalate:
        Luu, jitter = cholesky_escalating(Kuu, P.jitter, what="the prior covariance Kuu of the basis")
        Linv = inverse_lower(Luu)
    else:
        (Luu, Linv), jitter = cholesky_and_inverse(jittered(Kuu, P.jitter)), P.jitter
    D = None if P.blocks is not None else _empty(P.n, P.X)
    whitener = Linv / P.noise[0] ** 0.5 if P.uniform and P.row.share == 0 else Linv
    kept: dict[int, tuple[Array, Array]] = {}
    small = is_numpy(P.X) and D is not None and P.n * len(P.basis) * P.X.dtype.itemsize <= KFU_BYTES
    Kfu = np.empty((P.n, len(P.basis)), dtype=P.X.dtype) if small else None
    sums = _run(P, lambda s, t: _first_blocks(P, Linv, kept, s, t) if D is None else _first_rows(P, whitener, D, Kfu, s, t))
    B = plus_diagonal(from_lower(_total(s.G for s in sums)), 1.0)
    LB, LBinv = cholesky_and_inverse(B)
    w = LBinv.T @ (LBinv @ _total(s.b for s in sums))
    count = float(P.n) if P.weights is None else float(namespace(P.X).sum(P.weights))
    constant = P.p * (count * math.log(2 * math.pi) + float(sum(s.log_D for s in sums)) + float(log_det_from_factor(LB)))
    penalty = float(sum(s.penalty for s in sums))
    if P.row.penalty is trace_penalty:
        penalty -= 0.5 * (float(namespace(B).linalg.trace(B)) - len(P.basis))
    constant += float(namespace(w).sum(w * w)) + 2 * P.p * penalty
    return Factors(Kuu, Luu, Linv, jitter, B, LBinv, w, D, constant, Kfu, kept)


def log_evidence(P: Problem, F: Factors) -> float:
    """log q(y), with a second look at the rows for their residuals: exact to rounding where yᵀΠy - |LB⁻¹ΦΠy|² cancels."""
    alpha = F.Linv.T @ F.w  # (m, p)

    def step(s: _Sums, rows: Any) -> None:
        if isinstance(rows, _Group):
            K = P.basis.cross(P.kernel, P.X[rows.rows], s.buffer(0, len(rows.rows)))
            E = P.Y[rows.rows] - K @ alpha
            for part, (_, Linv) in zip(rows.parts, _blocks(P, F, rows, K, None)[1], strict=True):
                E[part] = Linv @ E[part]
            s.residual = s.residual + namespace(E).sum(E * E)
        else:
            assert F.D is not None
            E, precision = P.Y[rows] - _kfu(P, F, s, rows) @ alpha, P.weight(rows) / F.D[rows]
            s.residual = s.residual + namespace(E).sum(precision[:, None] * E * E)

    return -0.5 * (F.constant + float(sum(s.residual for s in _run(P, step))))


def log_evidence_and_gradient(P: Problem, *, escalate: bool = True) -> tuple[float, dict[str, Any]]:
    """log q(y) and its gradient in every raw parameter, the others held."""
    F = factorise(P, escalate=escalate)
    xp = namespace(P.X)
    Binv = gram(F.LBinv)
    alpha = F.Linv.T @ F.w  # (m, p)
    noise_bar = _empty(P.n, P.X)
    trace = 1.0 if P.row.penalty is trace_penalty else 0.0
    if P.blocks is not None:

        def step(s: _Sums, rows: Any) -> None:
            _second_blocks(P, F, alpha, noise_bar, s, rows)

    elif P.row.share == 0:
        # cI - B⁻¹ = ±UᵀU, so K̄fu = v αᵀ ± p Π Kfu TᵀT with a triangular T; a Π common to all rows moves into T
        U = shrinkage_root(F.B, Binv) if trace else _copy(F.LBinv)
        T = times_lower_on_all_cores(U, F.Linv)
        if P.uniform:
            T = T * (P.p / P.noise[0]) ** 0.5

        def step(s: _Sums, rows: Any) -> None:
            _second_rows_deterministic(P, F, T, alpha, noise_bar, s, rows)

    else:

        def step(s: _Sums, rows: Any) -> None:
            _second_rows(P, F, Binv, alpha, noise_bar, s, rows)

    sums = _run(P, step)
    value = -0.5 * (F.constant + float(sum(s.residual for s in sums)))

    M = plus_diagonal(F.w @ F.w.T + P.p * Binv, -P.p)
    if P.blocks is not None or P.row.share:
        M -= from_lower(_total(s.G for s in sums))  # 2Φ diag(r̄)Φᵀ
    elif trace:
        M += plus_diagonal(P.p * F.B, -P.p)
    Kuu_bar = -0.5 * congruence(M, F.Linv)
    if F.jitter:
        Kuu_bar = plus_diagonal(Kuu_bar, F.jitter / len(P.basis) * xp.linalg.trace(Kuu_bar))
    kernel, basis = P.basis.gram_pullback(P.kernel, Kuu_bar, F.Kuu)
    _add(kernel, *(s.kernel for s in sums))
    _add(basis, *(s.basis for s in sums))
    mean: Gradients = {}
    _add(mean, *(s.mean for s in sums))
    gradient = {f"kernel.{k}": g for k, g in kernel.items()} | {f"basis.{k}": g for k, g in basis.items()}
    gradient["noise"] = noise_gradient(P, noise_bar)
    gradient |= {f"mean.{k}": g for k, g in mean.items()}
    if is_numpy(P.X):
        gradient = {k: float(g) if np.ndim(g) == 0 else np.asarray(g) for k, g in gradient.items()}
    return value, gradient


class _Sums:
    """What one worker accumulates, and the buffers it reuses."""

    def __init__(self, P: Problem) -> None:
        m = len(P.basis)
        self.like = P.X
        self.m = m
        self.G = zeros_like_rows((m, m), P.X)
        self.b = zeros_like_rows((m, P.p), P.X)
        self.log_D: Any = 0.0  # sums stay on the device until the pass ends: reading one waits for it
        self.penalty: Any = 0.0
        self.residual: Any = 0.0
        self.kernel: Gradients = {}
        self.basis: Gradients = {}
        self.mean: Gradients = {}
        self._buffers: dict[int, np.ndarray] = {}

    def buffer(self, i: int, rows: int) -> np.ndarray | None:
        """The i-th (rows, m) scratch array; None off the CPU, where the allocator keeps its own."""
        if not is_numpy(self.like):
            return None
        held = self._buffers.get(i)
        if held is None or held.shape[0] < rows:
            held = self._buffers[i] = np.empty((rows, self.m), dtype=self.like.dtype)
        return held[:rows]


def _run(P: Problem, step: Any) -> list[_Sums]:
    """`step` over chunks of rows or groups of blocks; on all cores where there is enough to do."""
    tasks: list[Any] = row_slices(P.n, _chunk(P)) if P.blocks is None else _groups(P)
    large = P.blocks is None or P.n / len(P.blocks) * len(P.basis) ** 2 >= FEW_FLOPS
    return run_over(tasks, lambda: _Sums(P), step, parallel=is_numpy(P.X) and large and P.n * len(P.basis) >= SMALL)


def _chunk(P: Problem) -> int:
    return chunk_rows(P.n, len(P.basis), P.X)


def _count(rows: Any) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _first_rows(P: Problem, whitener: Array, D_all: Array, Kfu: Array | None, s: _Sums, rows: slice) -> None:
    xp = namespace(P.X)
    X, weight, noise = P.X[rows], P.weight(rows), P.noise[rows]
    K = P.basis.cross(P.kernel, X, s.buffer(0, _count(rows)))
    if Kfu is not None:
        Kfu[rows] = K
    Phi = times_lower(K, whitener, transposed=True)  # (c, m)
    if P.row.share == 0:
        D = noise
        if P.row.penalty is trace_penalty:  # ½ Σ (k(x, x) - φᵀφ)Π; the sum of φᵀφΠ is tr(B - I)
            s.penalty = s.penalty + 0.5 * xp.sum(weight / noise * P.kernel.diag(X))
    else:
        R = P.kernel.diag(X) - row_squares(Phi)
        D = P.row.share * R + noise
        s.penalty = s.penalty + xp.sum(weight * P.row.penalty(R, noise, P.row.share)[0])
    D_all[rows] = D
    s.log_D = s.log_D + xp.sum(weight * xp.log(D))
    root = xp.sqrt(weight / D)[:, None]
    if not (P.uniform and P.row.share == 0):  # else √Π is in the whitener
        Phi *= root
    s.G = add_gram(s.G, Phi)
    s.b += Phi.T @ (root * P.Y[rows])


def _kfu(P: Problem, F: Factors, s: _Sums, rows: slice) -> Array:
    """Kfu of a chunk in the second pass. (c, m)"""
    return P.basis.cross(P.kernel, P.X[rows], s.buffer(0, _count(rows))) if F.Kfu is None else F.Kfu[rows]


def _second_rows_deterministic(
    P: Problem, F: Factors, T: Array, alpha: Array, noise_bar: Array, s: _Sums, rows: slice
) -> None:
    """share = 0: p Π φᵀ(cI - B⁻¹)φ = ±|T k_u|², with √(pΠ) in T if it is common to all rows and applied here if not."""
    xp, p = namespace(P.X), P.p
    X, weight, noise = P.X[rows], P.weight(rows), P.noise[rows]
    c, sign = _count(rows), 1.0 if P.row.penalty is trace_penalty else -1.0
    precision = weight / noise
    K = _kfu(P, F, s, rows)
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
        _add(s.kernel, P.kernel.diag_pullback(X, -0.5 * p * precision))
    noise_bar[rows] = 0.5 * (bar - sign * row_squares(KT)) / noise
    if not P.uniform:
        KT *= root
    _finish(P, s, X, K, times_lower(KT, T), V, alpha, sign)


def _second_rows(P: Problem, F: Factors, Binv: Array, alpha: Array, noise_bar: Array, s: _Sums, rows: slice) -> None:
    xp, p = namespace(P.X), P.p
    assert F.D is not None
    X, weight, noise, D = P.X[rows], P.weight(rows), P.noise[rows], F.D[rows]
    c = _count(rows)
    K = _kfu(P, F, s, rows)
    Phi = times_lower(_copy(K, s.buffer(1, c)), F.Linv, transposed=True)
    S = xp.matmul(Phi, Binv, out=s.buffer(2, c)) if is_numpy(Phi) else Phi @ Binv
    precision = weight / D
    E = P.Y[rows] - Phi @ F.w
    V = precision[:, None] * E
    s.residual = s.residual + xp.sum(V * E)
    gD = 0.5 * (xp.sum(E * V, axis=1) - p * weight + p * precision * row_dots(Phi, S)) / D
    _, dR, dnoise = P.row.penalty((D - noise) / P.row.share, noise, P.row.share)
    rbar = P.row.share * gD - p * weight * dR
    noise_bar[rows] = gD - p * weight * dnoise
    _add(s.kernel, P.kernel.diag_pullback(X, rbar))
    S = scaled_sum(S, -p * precision, Phi, -2.0 * rbar)
    s.G = add_weighted_gram(s.G, Phi, 2.0 * rbar, s.buffer(3, c))
    _finish(P, s, X, K, times_lower(S, F.Linv), V, alpha)  # S is Φ̄ without w vᵀ, which becomes v αᵀ


def _finish(P: Problem, s: _Sums, X: Array, K: Array, Kbar: Array, V: Array, alpha: Array, sign: float = 1.0) -> None:
    """Hand K̄fu = sign Kbar + v αᵀ to the basis; the prior mean's gradient is v itself."""
    Kbar = add_product(Kbar, V, alpha.T, sign)
    kernel, basis = P.basis.cross_pullback(P.kernel, X, Kbar, K)
    if sign < 0:
        kernel, basis = ({key: -g for key, g in part.items()} for part in (kernel, basis))
    _add(s.kernel, kernel)
    _add(s.basis, basis)
    _add(s.mean, P.mean.pullback(X, V[:, 0] if P.one_output else V))


@dataclass(frozen=True, eq=False)
class _Group:
    """Blocks that one task does together, so that all products with the basis are large ones."""

    first: int  # number of the first block
    rows: np.ndarray  # (c,), the rows of all blocks, one block after the other
    parts: tuple[slice, ...]  # where each block is in `rows`


def _groups(P: Problem) -> list[_Group]:
    """The blocks in groups of about a chunk of rows."""
    assert P.blocks is not None
    count = -(-P.n // _chunk(P))
    starts = np.cumsum([0] + [len(rows) for rows in P.blocks])
    owner = starts[:-1] * count // P.n  # of each block
    groups = []
    for g in np.unique(owner):
        blocks = np.flatnonzero(owner == g)
        edges = starts[blocks[0] : blocks[-1] + 2] - starts[blocks[0]]
        parts = tuple(slice(int(a), int(b)) for a, b in zip(edges[:-1], edges[1:], strict=True))
        groups.append(_Group(int(blocks[0]), np.concatenate([P.blocks[b] for b in blocks]), parts))
    return groups


def _factors_of_block(P: Problem, Phi: Array, rows: np.ndarray) -> tuple[Array, Array, Array]:
    """K, and L and L⁻¹ of D = R + Σ, of one block. (b, b)"""
    X = P.X[rows]
    K = P.kernel(X, X)
    D = plus_diagonal(add_outer(_copied(K), Phi, -1.0), P.noise[rows] / P.weight(rows))
    return K, *cholesky_and_inverse(D)


def _first_blocks(P: Problem, whitener: Array, kept: dict[int, tuple[Array, Array]], s: _Sums, group: _Group) -> None:
    xp, rows = namespace(P.X), group.rows
    A = times_lower(P.basis.cross(P.kernel, P.X[rows], s.buffer(0, len(rows))), whitener, transposed=True)  # Phi, yet
    Y = _copied(P.Y[rows])
    for i, part in enumerate(group.parts):
        K, L, Linv = _factors_of_block(P, A[part], rows[part])
        if 2 * P.n * len(L) * P.X.dtype.itemsize <= BLOCK_BYTES:
            kept[group.first + i] = K, Linv
        A[part] = lower_times(Linv, A[part])
        Y[part] = Linv @ Y[part]
        s.log_D = s.log_D + log_det_from_factor(L)
    s.G = add_gram(s.G, A)
    s.b += A.T @ Y
    if P.weights is not None:  # Π N(y|f, σ²) over w copies is N(y|f, σ²/w) (2πσ²)^(-(w-1)/2) w^(-1/2)
        weight = P.weights[rows]
        s.log_D = s.log_D + xp.sum((weight - 1.0) * xp.log(P.noise[rows]) + xp.log(weight))


def _second_blocks(P: Problem, F: Factors, alpha: Array, noise_bar: Array, s: _Sums, group: _Group) -> None:
    """G_D = ½ (VVᵀ - p(D⁻¹ - D⁻¹ΦᵀB⁻¹ΦD⁻¹)), and Φ̄ = w vᵀ - B⁻¹ΦD⁻¹ - 2ΦG_D; all symmetric parts in lower triangles."""
    p, rows, c = P.p, group.rows, len(group.rows)
    X = P.X[rows]
    xp = namespace(X)
    K = P.basis.cross(P.kernel, X, s.buffer(0, c))
    Phi, blocks = _blocks(P, F, group, K, s.buffer(1, c))
    E = P.Y[rows] - Phi @ F.w
    V, S = _copied(E), _copied(Phi, s.buffer(2, c))
    for part, (_, Linv) in zip(group.parts, blocks, strict=True):
        V[part] = Linv.T @ (Linv @ V[part])
        S[part] = lower_times(Linv, lower_times(Linv, S[part]), transposed=True)  # D⁻¹Φᵀ
    s.residual = s.residual + xp.sum(E * V)
    S = times_lower(S, F.LBinv, transposed=True)
    GPhi = _copied(Phi, s.buffer(3, c))
    diagonal = _empty(c, X)
    for part, (Kxx, Linv) in zip(group.parts, blocks, strict=True):
        x, b = X[part], len(Linv)
        GD = add_gram(zeros_like_rows((b, b), X), Linv, -p)
        GD = 0.5 * from_lower(add_outer(add_outer(GD, S[part], p), contiguous(V[part])))
        GPhi[part] = 2.0 * (GD @ Phi[part])
        diagonal[part] = xp.linalg.diagonal(GD)
        _add(s.kernel, P.kernel.pullback(x, x, GD, Kxx)[0])
    S = times_lower(S, F.LBinv)  # D⁻¹ΦᵀB⁻¹
    weight, noise = P.weight(rows), P.noise[rows]
    extra = 0.5 * p * (weight - 1.0) / noise if P.weights is not None else 0.0
    noise_bar[rows] = diagonal / weight - extra
    s.G = add_symmetric_product(s.G, GPhi, Phi)
    S *= -p
    S -= GPhi
    _finish(P, s, X, K, times_lower(S, F.Linv), V, alpha)


def _blocks(P: Problem, F: Factors, group: _Group, K: Array, out: Array | None) -> tuple[Array, list[tuple[Array, Array]]]:
    """Phi (c, m), and of each block K and L⁻¹ (b, b), in the second pass."""
    Phi = times_lower(_copy(K, out), F.Linv, transposed=True)
    found = []
    for i, part in enumerate(group.parts):
        held = F.kept.get(group.first + i)
        found.append(_factors_of_block(P, Phi[part], group.rows[part])[::2] if held is None else held)
    return Phi, found


def _add(total: Gradients, *parts: Gradients) -> None:
    for part in parts:
        for key, value in part.items():
            total[key] = total[key] + value if key in total else value


def _total(arrays: Any) -> Array:
    first, *rest = arrays
    for a in rest:
        first = first + a
    return first


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


def _empty(n: int, like: Array) -> Array:
    return zeros_like_rows((n,), like)
