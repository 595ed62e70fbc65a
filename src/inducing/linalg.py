"""The only Cholesky, triangular work and jitter of the package, for NumPy, PyTorch and CuPy arrays.

Row chunks are C-ordered (rows, m). In BLAS's column-major eyes such an array is its own transpose, so a product from the
right, A T, is a product from the left there; triangles swap names with it.
"""

from __future__ import annotations

import ctypes
import warnings
from functools import cache
from typing import Any

import numpy as np

from .backend import Array, is_numpy, is_torch, namespace, zeros_like_rows
from .errors import FactorisationError, JitterWarning

MAX_JITTER = 1e-2  # relative to mean(diag K): beyond this the matrix is not a covariance


def cholesky(K: Array) -> Array:
    """Lower Cholesky factor of K; raises FactorisationError when K is not positive definite."""
    xp = namespace(K)
    if K.shape[0] == 0:
        return K
    try:
        L = xp.linalg.cholesky(K)
    except Exception as error:  # numpy and torch have LinAlgErrors of their own
        raise FactorisationError(f"a {K.shape[0]} x {K.shape[0]} matrix is not positive definite") from error
    if not bool(xp.all(xp.isfinite(xp.linalg.diagonal(L)))):
        raise FactorisationError(f"a {K.shape[0]} x {K.shape[0]} matrix is not positive definite or not finite")
    return L


def reverse_cholesky(M: Array) -> Array:
    """Lower U with UᵀU = M for a positive semi-definite M of norm about one; rounding is absorbed by 1e-14 to 1e-10 of I."""
    reverse = contiguous(namespace(M).flip(M))
    for rounding in (1e-14, 1e-12, 1e-10):
        try:
            return contiguous(namespace(M).flip(cholesky(reverse + rounding * identity(M))).T)
        except FactorisationError:
            continue
    raise FactorisationError("a matrix is not positive semi-definite")


def jittered(K: Array, jitter: float) -> Array:
    """K + jitter mean(diag K) I."""
    xp = namespace(K)
    if K.shape[0] == 0 or jitter == 0:
        return K
    diagonal = xp.linalg.diagonal(K)
    return K + xp.linalg.diagonal(K).sum() / diagonal.shape[0] * jitter * identity(K)


def cholesky_escalating(K: Array, jitter: float, *, what: str) -> tuple[Array, float]:
    """Lower factor of K + jitter mean(diag K) I; on failure jitter grows tenfold, with one warning. Returns (L, jitter)."""
    asked = jitter
    while True:
        try:
            L = cholesky(jittered(K, jitter))
        except FactorisationError as error:
            jitter = max(10 * jitter, 1e-12)
            if jitter > MAX_JITTER:
                raise FactorisationError(
                    f"{what} is not positive definite even with jitter {MAX_JITTER:g}; check the kernel's parameters "
                    "and remove duplicate basis functions"
                ) from error
            continue
        if jitter != asked:
            warnings.warn(
                f"{what} needed jitter {jitter:.0e} instead of {asked:.0e} (relative to its mean diagonal): basis "
                "functions are nearly duplicates of each other; use fewer, or spread them",
                JitterWarning,
                stacklevel=3,
            )
        return L, jitter


def identity(like: Array) -> Array:
    """The identity with the size, dtype and device of the square matrix `like`."""
    if is_numpy(like):
        return np.eye(like.shape[0], dtype=like.dtype)
    import array_api_compat

    return namespace(like).eye(like.shape[0], dtype=like.dtype, device=array_api_compat.device(like))


def solve_lower(L: Array, B: Array, *, transposed: bool = False) -> Array:
    """L⁻¹B, or L⁻ᵀB."""
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


def inverse_lower(L: Array) -> Array:
    """L⁻¹, explicitly: multiplying n rows by it is 3-5 times faster than n triangular solves."""
    if L.shape[0] == 0:
        return L
    if is_numpy(L):
        from scipy.linalg import lapack

        trtri = lapack.dtrtri if L.dtype == np.float64 else lapack.strtri
        inverse, info = trtri(L.T, lower=0)
        if info != 0:
            raise FactorisationError(f"a triangular factor has a zero at position {info} of its diagonal")
        return np.ascontiguousarray(inverse.T)
    return solve_lower(L, identity(L))


def log_det_from_factor(L: Array) -> Array:
    """log |L Lᵀ|."""
    xp = namespace(L)
    return 2.0 * xp.sum(xp.log(xp.linalg.diagonal(L)))


# Products with triangles. On the CPU BLAS's trmm and syrk do half the work of a full product.


@cache
def _blas(name: str, n_arguments: int) -> Any:
    """SciPy's BLAS routine `name` as a foreign function; such calls release the interpreter lock."""
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__[name]
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get_pointer(capsule, get_name(capsule))
    return ctypes.CFUNCTYPE(None, *([ctypes.c_void_p] * n_arguments))(address)


def _prefix(A: np.ndarray) -> tuple[str, Any]:
    return ("d", ctypes.c_double) if A.dtype == np.float64 else ("s", ctypes.c_float)


def _fits_blas(*arrays: Array) -> bool:
    return all(is_numpy(A) and A.flags.c_contiguous and A.dtype in (np.float64, np.float32) for A in arrays)


def times_lower(A: Array, T: Array, *, transposed: bool = False) -> Array:
    """A T, or A Tᵀ, for a lower triangular T; overwrites A on the CPU. A (c, m), T (m, m)."""
    if not _fits_blas(A, T):
        return _times_lower_in_blocks(A, T, transposed)
    if A.size == 0:
        return A
    p, real = _prefix(A)
    m, c, one = ctypes.c_int(A.shape[1]), ctypes.c_int(A.shape[0]), real(1.0)
    ref = ctypes.byref
    trans = b"T" if transposed else b"N"
    _blas(p + "trmm", 11)(
        b"L", b"U", trans, b"N", ref(m), ref(c), ref(one), T.ctypes.data, ref(m), A.ctypes.data, ref(m)
    )
    return A


def _edges(m: int) -> list[tuple[int, int]]:
    """Block boundaries of a triangle: enough blocks to skip most zeros, large enough for fast products."""
    blocks = min(8, max(1, m // 128))
    cuts = [m * i // blocks for i in range(blocks + 1)]
    return list(zip(cuts[:-1], cuts[1:], strict=True))


def _times_lower_in_blocks(A: Array, T: Array, transposed: bool) -> Array:
    """The same where there is no triangular product: skip the blocks of T that are zero."""
    xp, out = namespace(A), namespace(A).empty_like(A)
    for lo, hi in _edges(T.shape[0]):
        left, right = (A[:, :hi], T[lo:hi, :hi].T) if transposed else (A[:, lo:], T[lo:, lo:hi])
        if is_torch(A):
            xp.mm(left, right, out=out[:, lo:hi])
        else:
            out[:, lo:hi] = left @ right
    return out


def add_gram(G: Array, A: Array, sign: float = 1.0) -> Array:
    """G + sign AᵀA, in the lower triangle alone; `from_lower` completes it. Overwrites G. A (c, m)."""
    if A.shape[0] == 0:
        return G
    if not _fits_blas(G, A):
        return _add_gram_in_blocks(G, A, sign)
    p, real = _prefix(A)
    m, c, alpha, beta = ctypes.c_int(A.shape[1]), ctypes.c_int(A.shape[0]), real(sign), real(1.0)
    ref = ctypes.byref
    _blas(p + "syrk", 10)(
        b"U", b"N", ref(m), ref(c), ref(alpha), A.ctypes.data, ref(m), ref(beta), G.ctypes.data, ref(m)
    )
    return G


def _add_gram_in_blocks(G: Array, A: Array, sign: float) -> Array:
    for lo, hi in _edges(G.shape[0]):
        add_product(G[lo:hi, :hi], A[:, lo:hi].T, A[:, :hi], sign)
    return G


def add_symmetric_product(G: Array, A: Array, B: Array) -> Array:
    """G + AᵀB, known to be symmetric, in the lower triangle alone (and some of the upper). Overwrites G."""
    for lo, hi in _edges(G.shape[0]):
        add_product(G[lo:hi, :hi], A[:, lo:hi].T, B[:, :hi])
    return G


def add_product(C: Array, A: Array, B: Array, sign: float = 1.0) -> Array:
    """C + sign A B, in C's memory."""
    if is_torch(C):
        return C.addmm_(A, B, alpha=sign)
    if is_numpy(C) and C.dtype == np.float64 and C.strides[1] == 8 and min(C.shape) > 0:
        (trans_a, lda), (trans_b, ldb) = _layout(A), _layout(B)
        if trans_a and trans_b:
            ref, alpha, beta = ctypes.byref, ctypes.c_double(sign), ctypes.c_double(1.0)
            n, m, k = ctypes.c_int(C.shape[1]), ctypes.c_int(C.shape[0]), ctypes.c_int(A.shape[1])
            ld = ctypes.c_int(max(C.strides[0] // 8, C.shape[1]))
            _blas("dgemm", 13)(
                trans_b, trans_a, ref(n), ref(m), ref(k), ref(alpha), B.ctypes.data, ref(ldb), A.ctypes.data, ref(lda),
                ref(beta), C.ctypes.data, ref(ld),
            )  # fmt: skip
            return C
    C += A @ B if sign == 1.0 else sign * (A @ B)
    return C


def _layout(A: np.ndarray) -> tuple[bytes, ctypes.c_int]:
    """How BLAS reads A (b"N" in C order, b"T" for a transposed view of that, b"" for neither) and its leading dimension."""
    if A.dtype == np.float64 and A.strides[1] == 8 and A.strides[0] >= 8 * A.shape[1]:
        return b"N", ctypes.c_int(A.strides[0] // 8)
    if A.dtype == np.float64 and A.strides[0] == 8 and A.strides[1] >= 8 * A.shape[0]:
        return b"T", ctypes.c_int(A.strides[1] // 8)
    return b"", ctypes.c_int(0)


def from_lower(G: Array) -> Array:
    """The symmetric matrix whose lower triangle is G's."""
    xp = namespace(G)
    return xp.tril(G) + xp.tril(G, k=-1).T


def gram(A: Array) -> Array:
    """AᵀA, symmetric."""
    return from_lower(add_gram(zeros_like_rows((A.shape[1], A.shape[1]), A), A))


def congruence(M: Array, T: Array) -> Array:
    """TᵀMT for a symmetric M and a lower triangular T."""
    half = times_lower(M.copy() if is_numpy(M) else M, T)  # M T
    return times_lower(contiguous(half.T), T)


def contiguous(A: Array) -> Array:
    """A in C order, which BLAS needs; a no-op off the CPU."""
    return np.ascontiguousarray(A) if is_numpy(A) else A


def row_squares(A: Array) -> Array:
    """Σⱼ Aᵢⱼ² of each row."""
    if is_numpy(A):
        return np.vecdot(A, A)
    return namespace(A).linalg.vector_norm(A, axis=1) ** 2  # one pass, no temporary


def row_dots(A: Array, B: Array) -> Array:
    """Σⱼ Aᵢⱼ Bᵢⱼ of each row."""
    if is_numpy(A):
        return np.vecdot(A, B)
    return namespace(A).sum(A * B, axis=1)
