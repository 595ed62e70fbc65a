"""Cholesky factors, jitter, and products with triangles, for NumPy, PyTorch and CuPy arrays.

Row chunks are C-ordered (rows, m). On the CPU, BLAS's own routines do half the work of a full product where a
factor is a triangle or a result symmetric. `compiled_blas` has the same for compiled loops.
"""

import warnings

import numpy as np

from ..errors import FactorisationError, JitterWarning
from . import blas
from .arrays import Array, holds, is_numpy, is_torch, namespace, worth_compiling, zeros_like_rows
from .workers import aside, row_slices, run_over, workers_for

MAX_JITTER = 1e-2  # relative to mean(diag K): beyond this the matrix is not a covariance
FEW_PRODUCTS = 1 << 33  # multiplications that a device does in less time than a second call takes
ADDED_COLUMNS = 16  # columns beside a factor in `times_lower_plus`: as many as keep the product fast
EPSILON = float(np.finfo(float).eps)
ABOVE = np.triu(np.ones((48, 48), dtype=bool), 1)  # the entries above the diagonal of a small square


def cholesky(K: Array, *, overwrite: bool = False) -> Array:
    """Return the lower Cholesky factor of K, of which the lower triangle is read; `overwrite` may reuse K."""
    xp, m = namespace(K), K.shape[0]
    if m == 0:
        return K
    if is_numpy(K):
        L = K if overwrite and _fits_blas(K) else np.array(K, dtype=np.result_type(K, np.float32), order="C")
        done = aside(blas.potrf, m**3 / 3, L)
        _fill_above(L)
    elif is_torch(K):
        L, info = xp.linalg.cholesky_ex(K)
        done = info == 0
    else:
        try:
            L, done = xp.linalg.cholesky(K), True
        except Exception:  # each namespace has a LinAlgError of its own
            L, done = K, False
    total = xp.sum(xp.linalg.diagonal(L))
    if not holds(done & (total - total == 0.0)):  # finite, in few calls to a device
        nan = "" if np.isfinite(float(xp.sum(K))) else ": the kernel gives NaN or infinity"
        raise FactorisationError(f"a {m} x {m} matrix is not positive definite{nan}")
    return L


def _fill_above(L: np.ndarray, *, mirrored: bool = False) -> None:
    """Set what is above the diagonal to zero, or to the mirror image of what is below."""
    for i in range(0, len(L), len(ABOVE)):
        end = i + len(ABOVE)
        square = L[i:end, i:end]
        np.copyto(square, square.T if mirrored else 0.0, where=ABOVE[: len(square), : len(square)])
        L[i:end, end:] = L[end:, i:end].T if mirrored else 0.0


def cholesky_escalating(
    K: Array, jitter: float, *, what: str = "the prior covariance Kuu of the basis", try_less: bool = False
) -> tuple[Array, float]:
    """Return (L, jitter) with L the lower factor of K + jitter mean(diag K) I; on failure jitter grows
    tenfold, with one warning. `try_less` first tries none and small parts of it, to factor nearly K itself.
    """
    tried = [0.0, 1e-4 * jitter, 1e-2 * jitter, jitter] if try_less else [jitter]
    while (more := max(10 * tried[-1], 1e-12)) <= MAX_JITTER:
        tried.append(more)
    for used in tried:
        try:
            L = cholesky(jittered(K, used))
        except FactorisationError:
            continue
        if used > jitter:
            why = "basis functions are nearly duplicates of each other; use fewer, or spread them"
            text = f"{what} needed jitter {used:.0e} instead of {jitter:.0e} (relative to its mean diagonal)"
            warnings.warn(f"{text}: {why}", JitterWarning, stacklevel=3)
        return L, used
    raise FactorisationError(
        f"{what} is not positive definite even with jitter {MAX_JITTER:g}; check the kernel's parameters and "
        "remove duplicate basis functions"
    )


def jittered(K: Array, jitter: float) -> Array:
    """Return K + jitter mean(diag K) I."""
    if K.shape[0] == 0 or jitter == 0:
        return K
    return plus_diagonal(K, jitter * namespace(K).linalg.trace(K) / K.shape[0])


def plus_diagonal(M: Array, value: Array | float, *, overwrite: bool = False) -> Array:
    """Return M + value I for a number, M + diag(value) for a vector; with `overwrite` in M's place."""
    out = M if overwrite else M.clone() if is_torch(M) else M.copy()
    diagonal = out.diagonal() if is_torch(M) else out.reshape(-1)[:: len(M) + 1]
    diagonal += value
    return out


def identity(like: Array) -> Array:
    """Return the identity with the size, dtype and device of the square matrix `like`."""
    return namespace(like).eye(like.shape[0], dtype=like.dtype, device=like.device)


def shrinkage_root(Binv: Array, B: Array | None = None) -> Array:
    """Return a lower U with UᵀU = I - B⁻¹, for B ⪰ I. Where B⁻¹ has too few digits for Cholesky's factor, use
    eigenvalues of B, or of B⁻¹ without B. Raise if the latter are above 1 by more than rounding.
    """
    xp = namespace(Binv)
    reverse = contiguous(xp.flip(plus_diagonal(-Binv, 1.0, overwrite=True)))
    for rounding in (1e-14, 1e-12):  # of I, against rounding
        try:
            return contiguous(xp.flip(cholesky(plus_diagonal(reverse, rounding))).T)
        except FactorisationError:
            continue
    values, vectors = xp.linalg.eigh(Binv if B is None else B)
    values = 1.0 - (values if B is None else 1.0 / values)
    # B⁻¹ of norm one has errors of ε m |B|; where these are too large to judge by, one of 0.01 is allowed
    rounding = EPSILON * len(values) / max(1.0 - float(xp.max(values)), EPSILON)
    if B is None and float(xp.min(values)) < -min(rounding, 1e-2):
        raise FactorisationError("a matrix is not positive semi-definite")
    half = xp.sqrt(xp.clip(values, 0.0, None))[:, None] * vectors.T
    # QR with the columns turned round is QL
    return contiguous(xp.flip(xp.linalg.qr(xp.flip(half, axis=1))[1]))


def solve_lower(L: Array, B: Array, *, transposed: bool = False) -> Array:
    """Return L⁻¹B, or L⁻ᵀB."""
    if L.shape[0] == 0:
        return B
    if is_numpy(L):
        from scipy.linalg import solve_triangular

        return solve_triangular(L, B, lower=True, trans=1 if transposed else 0, check_finite=False)
    matrix = B if B.ndim == 2 else B[:, None]
    if is_torch(L):
        import torch

        X = torch.linalg.solve_triangular(L.T if transposed else L, matrix, upper=transposed)
    else:
        from cupyx.scipy.linalg import solve_triangular as cupy_solve  # type: ignore[import-not-found]

        X = cupy_solve(L, matrix, lower=True, trans=1 if transposed else 0)
    return X if B.ndim == 2 else X[:, 0]


def solve_rows(A: Array, L: Array) -> Array:
    """Return L⁻¹ times each row of A; overwrite A on the CPU, where it is as quick as a product with L⁻¹."""
    if not _fits_blas(A, L):
        return solve_lower(L, A.T).T
    _require_inverse(L)
    if A.size:
        blas.trsm(A, L)
    return A


def inverse_lower(L: Array) -> Array:
    """Return L⁻¹, explicitly: multiplying n rows by it is 3-5 times faster than n triangular solves."""
    m = L.shape[0]
    if m == 0:
        return L
    if not is_numpy(L):
        return solve_lower(L, identity(L))
    _require_inverse(L)
    out = np.array(L, order="C")
    blas.trtri(out)
    _fill_above(out)
    return out


def _require_inverse(L: np.ndarray) -> None:
    """Raise if the diagonal of a triangular factor has a zero."""
    zeros = np.flatnonzero(np.diagonal(L) == 0.0)
    if len(zeros):
        raise FactorisationError(f"a triangular factor has a zero at position {zeros[0] + 1} of its diagonal")


def information_factors(G: Array, b: Array) -> tuple[Array, Array, Array, Array]:
    """Return B = I + G, its Cholesky factor LB, LB⁻¹ and w = B⁻¹b from the lower triangle of G = ΦΠΦᵀ (m, m)
    and b = ΦΠy (m, p). With Π ≥ 0 the eigenvalues of B are at least 1: it needs no jitter.
    """
    B = plus_diagonal(from_lower(G), 1.0, overwrite=True)
    LB = cholesky(B)
    LBinv = inverse_lower(LB)
    return B, LB, LBinv, LBinv.T @ (LBinv @ b)


def information_factors_of_root(R: Array, p: int) -> tuple[Array, Array, Array, Array]:
    """Return `information_factors` from the triangle R of [Φᵀ y]√Π, p columns y: it loses fewer digits."""
    xp, m = namespace(R), R.shape[1] - p
    R = triangle(R, xp.eye(m, m + p, dtype=R.dtype, device=R.device), beside=p)[:m]
    LB = contiguous(R[:, :m].T)
    LBinv = inverse_lower(LB)
    return LB @ LB.T, LB, LBinv, LBinv.T @ R[:, m:]


def triangle(*matrices: Array, beside: int = 0) -> Array:
    """Return the upper triangle R, its diagonal not negative, with RᵀR = Σ MᵀM over matrices of equal width.
    Rows are sorted by their largest entry outside the last columns `beside`: rounding then stays with each
    row, and large numbers beside rows of zeros do not spill into others [Cox and Higham 1998].
    """
    xp = namespace(matrices[0])
    M = xp.concat(list(matrices), axis=0)
    size = xp.max(xp.abs(M[:, : M.shape[1] - beside]), axis=1) if M.shape[1] > beside else M[:, 0]
    R = xp.linalg.qr(M[xp.argsort(-size)])[1]
    return xp.where(xp.linalg.diagonal(R)[:, None] < 0.0, -R, R)


def log_det_from_factor(L: Array) -> Array:
    """Return log |L Lᵀ|."""
    xp = namespace(L)
    return 2.0 * xp.sum(xp.log(xp.linalg.diagonal(L)))


def _fits_blas(*arrays: Array) -> bool:
    return all(is_numpy(A) and A.flags.c_contiguous and A.dtype in (np.float64, np.float32) for A in arrays)


def times_lower(A: Array, T: Array, *, transposed: bool = False, out: Array | None = None) -> Array:
    """Return A T, or A Tᵀ, for a lower triangular T; overwrite A on the CPU, else fill `out`. A (c, m)."""
    if not _fits_blas(A, T):
        return _times_lower_in_blocks(A, T, transposed, namespace(A).empty_like(A) if out is None else out)
    if A.size:
        blas.trmm(A, T, left=False, transposed=transposed)
    return A


def lower_times(T: Array, A: Array, *, transposed: bool = False) -> Array:
    """Return T A, or TᵀA, for a lower triangular T; overwrite A on the CPU. T (c, c), A (c, m)."""
    if not _fits_blas(A, T):
        return (T.T if transposed else T) @ A
    if A.size:
        blas.trmm(A, T, left=True, transposed=transposed)
    return A


def _edges(m: int, A: Array) -> list[tuple[int, int]]:
    """Return block boundaries of a triangle that multiplies A: enough to skip most zeros, few for speed."""
    blocks = min(8, max(1, m // 128)) if is_numpy(A) or A.shape[0] * m * m > FEW_PRODUCTS else 1
    cuts = [m * i // blocks for i in range(blocks + 1)]
    return list(zip(cuts[:-1], cuts[1:], strict=True))


def _times_lower_in_blocks(A: Array, T: Array, transposed: bool, out: Array) -> Array:
    """Fill `out` with A T where no library has triangular products: skip the blocks of T that are zero."""
    xp, edges = namespace(A), _edges(T.shape[1], A)
    right = T.T if transposed else T
    if is_torch(A) and len(edges) > 1:
        right = right.contiguous()  # by a seventh faster on a GPU
    for lo, hi in edges:
        rows = slice(0, hi) if transposed else slice(lo, None)
        if is_torch(A):
            xp.mm(A[:, rows], right[rows, lo:hi], out=out[:, lo:hi])
        else:
            out[:, lo:hi] = A[:, rows] @ right[rows, lo:hi]
    return out


def room_beside(A: Array, columns: int) -> Array | None:
    """Return an array for A and further columns for `times_lower_plus`; None where that would not pay."""
    if not is_torch(A) or columns > ADDED_COLUMNS or len(_edges(A.shape[1], A)) == 1:
        return None
    return A.new_empty((A.shape[0], A.shape[1] + ADDED_COLUMNS))


def times_lower_plus(A: Array, T: Array, room: Array | None, V: Array, B: Array) -> Array:
    """Return A T + V B for a lower triangular T; overwrites A on the CPU. A (c, m) is in `room`, if any."""
    if room is None:
        return add_product(times_lower(A, T), V, B)
    p, m = B.shape  # as [A, V] [T; B], since adding later costs one more pass over the result
    room[:, m : m + p], room[:, m + p :] = V, 0.0
    right = namespace(A).concat([T, B, T.new_zeros((ADDED_COLUMNS - p, m))])
    return _times_lower_in_blocks(room, right, False, A.new_empty((A.shape[0], m)))


def add_gram(G: Array, A: Array, sign: float = 1.0) -> Array:
    """Return G + sign AᵀA, in the lower triangle alone; `from_lower` completes it. Overwrites G. A (c, m)."""
    if A.shape[0] == 0:
        return G
    if not _fits_blas(G, A):
        return add_symmetric_product(G, A, A, sign)
    blas.syrk(G, A, sign, rows=False)
    return G


def add_outer(G: Array, A: Array, sign: float = 1.0) -> Array:
    """Return G + sign AAᵀ, in the lower triangle alone. Overwrites G. A (c, m), G (c, c)."""
    if not _fits_blas(G, A):
        return add_symmetric_product(G, A.T, A.T, sign)
    if A.size:
        blas.syrk(G, A, sign, rows=True)
    return G


def add_weighted_gram(G: Array, A: Array, weights: Array, scratch: Array | None = None) -> Array:
    """Return G + Aᵀ diag(weights) A, lower triangle, weights of either sign. Overwrites G and `scratch`."""
    if not _fits_blas(G, A):
        return add_symmetric_product(G, A * weights[:, None], A)
    if scratch is None:
        scratch = np.empty_like(A)
    if worth_compiling(A.size):
        from .loops import split_scaled

        positive = split_scaled(A, weights, scratch)
    else:
        order = np.argsort(weights < 0, kind="stable")
        np.multiply(A[order], np.sqrt(np.abs(weights[order]))[:, None], out=scratch)
        positive = int(np.count_nonzero(weights >= 0))
    return add_gram(add_gram(G, scratch[:positive]), scratch[positive:], -1.0)  # two symmetric products


def scaled_sum_and_gram(
    A: Array, a: Array, B: Array, b: Array, G: Array, scratch: Array | None, out: Array | None = None
) -> tuple[Array, Array]:
    """Return diag(a) A + diag(b) B, in A or in `out`, and G - Bᵀ diag(b) B as by `add_weighted_gram`."""
    if is_numpy(A):
        A *= a[:, None]
        A += np.multiply(b[:, None], B, out=scratch)
        return A, add_weighted_gram(G, B, -b, scratch)
    weighted = b[:, None] * B
    G = add_symmetric_product(G, weighted, B, -1.0)
    if is_torch(A):
        return namespace(A).addcmul(weighted, a[:, None], A, out=A if out is None else out), G
    A *= a[:, None]
    A += weighted
    return A, G


def add_symmetric_product(G: Array, A: Array, B: Array, sign: float = 1.0) -> Array:
    """Return G + sign AᵀB, which is symmetric, in the lower triangle and some of the upper. Overwrites G."""
    for lo, hi in _edges(G.shape[0], A):
        add_product(G[lo:, lo:hi], A[:, lo:].T, B[:, lo:hi], sign)
    return G


def add_product(C: Array, A: Array, B: Array, sign: float = 1.0) -> Array:
    """Return C + sign A B, in C's memory."""
    if is_torch(C):
        return C.addmm_(A, B, alpha=sign)
    if is_numpy(C) and blas.gemm(C, A, B, sign):
        return C
    C += A @ B if sign == 1.0 else sign * (A @ B)
    return C


def from_lower(G: Array) -> Array:
    """Return the symmetric matrix whose lower triangle is G's."""
    if is_numpy(G):
        out = G.copy()
        _fill_above(out, mirrored=True)
        return out
    xp = namespace(G)
    return xp.tril(G) + xp.tril(G, k=-1).T


def gram(A: Array) -> Array:
    """Return AᵀA, symmetric."""
    m = A.shape[1]
    workers = workers_for(A.shape[0] * m * m) if is_numpy(A) else 1
    G = zeros_like_rows((m, m), A)
    if workers == 1:
        return from_lower(add_gram(G, A))

    def step(_: None, rows: slice) -> None:
        np.matmul(A[:, rows].T, A[:, : rows.stop], out=G[rows, : rows.stop])

    run_over(row_slices(m, -(-m // (2 * workers))), lambda: None, step, parallel=True)
    return from_lower(G)


def congruence(M: Array, T: Array) -> Array:
    """Return TᵀMT for a symmetric M and a lower triangular T."""
    half = times_lower_on_all_cores(M.copy() if is_numpy(M) else M, T)  # M T
    return times_lower_on_all_cores(contiguous(half.T), T)


def times_lower_on_all_cores(A: Array, T: Array) -> Array:
    """Return A T, with the rows of one large A shared out to all cores. Overwrites A on the CPU."""
    workers = workers_for(A.shape[0] * A.shape[1] ** 2) if _fits_blas(A, T) else 1
    if workers == 1:
        return times_lower(A, T)
    parts = row_slices(A.shape[0], -(-A.shape[0] // workers))

    def step(_: None, rows: slice) -> None:
        times_lower(A[rows], T)

    run_over(parts, lambda: None, step, parallel=True)
    return A


def contiguous(A: Array) -> Array:
    """Return A in C order, which BLAS needs; a no-op off the CPU."""
    return np.ascontiguousarray(A) if is_numpy(A) else A


def row_squares(A: Array) -> Array:
    """Return Σⱼ Aᵢⱼ² of each row."""
    if is_numpy(A):
        return np.vecdot(A, A)
    return namespace(A).linalg.vector_norm(A, axis=1) ** 2  # one pass, no temporary


def row_dots(A: Array, B: Array) -> Array:
    """Return Σⱼ Aᵢⱼ Bᵢⱼ of each row."""
    if is_numpy(A):
        return np.vecdot(A, B)
    return namespace(A).sum(A * B, axis=1)
