"""SciPy's BLAS and LAPACK routines: called on C-ordered NumPy arrays, and by address for compiled loops.

BLAS is column-major, so it sees a C-ordered array as its own transpose: a product from the right, A T, is a
product from the left there, and upper and lower triangles swap names.
"""

import ctypes
from functools import cache, partial
from typing import Any

import numpy as np

from .workers import side_by_side, single_threaded_blas

LEAF = 100  # rows of a triangle up to which LAPACK inverts it no slower than by halves
ONE_THREAD = 512  # rows of a triangle up to which it is left to one thread


def trmm(A: np.ndarray, T: np.ndarray, *, left: bool, transposed: bool, times: float = 1.0) -> None:
    """Replace A by `times` A T, or T A if `left`, for a lower triangular T or its transpose."""
    side, trans, (c, m) = b"R" if left else b"L", b"T" if transposed else b"N", A.shape
    _call("trmm", A, side, b"U", trans, b"N", m, c, times, T, _step(T), A, _step(A))


def trsm(A: np.ndarray, T: np.ndarray) -> None:
    """Replace A by A T⁻ᵀ for a lower triangular T: the rows of A by T⁻¹ times them."""
    c, m = A.shape
    _call("trsm", A, b"L", b"U", b"T", b"N", m, c, 1.0, T, _step(T), A, _step(A))


def syrk(G: np.ndarray, A: np.ndarray, sign: float, *, rows: bool, times: float = 1.0) -> None:
    """Replace the lower triangle of G by that of `times` G + sign AᵀA, or sign AAᵀ if `rows`."""
    (c, m), trans = A.shape, b"T" if rows else b"N"
    _call("syrk", A, b"U", trans, len(G), m if rows else c, float(sign), A, _step(A), times, G, _step(G))


def gemm(C: np.ndarray, A: np.ndarray, B: np.ndarray, sign: float) -> bool:
    """C += sign A B in double precision; return False, with C unchanged, where BLAS cannot read an array."""
    if C.dtype != np.float64 or C.strides[1] != 8 or min(C.shape) == 0:
        return False
    (trans_a, lda), (trans_b, ldb) = _layout(A), _layout(B)
    if not (trans_a and trans_b):
        return False
    ldc = max(C.strides[0] // 8, C.shape[1])
    sizes = C.shape[1], C.shape[0], A.shape[1]
    _call("gemm", C, trans_b, trans_a, *sizes, float(sign), B, ldb, A, lda, 1.0, C, ldc)
    return True


def potrf(A: np.ndarray) -> bool:
    """Replace the lower triangle of a C-ordered A by its Cholesky factor; return False if there is none.

    By halves, and small ones on one thread: threads of OpenBLAS wait for each other in loops, and LAPACK has
    them wait at each of many small products, which beside another program took a hundred times as long.
    """
    if len(A) <= ONE_THREAD or single_threaded_blas.held:
        info = np.zeros(1, dtype=np.int32)
        with single_threaded_blas():
            _call("potrf", A, b"U", len(A), A, _step(A), info)
        return int(info[0]) == 0
    A, C, B = _halves(A)
    if not potrf(A):
        return False
    trsm(C, A)
    syrk(B, C, -1.0, rows=True)
    return potrf(B)


def lauum(L: np.ndarray) -> None:
    """Replace a lower triangular L by the lower triangle of LᵀL, by halves as `potrf`."""
    if len(L) <= ONE_THREAD or single_threaded_blas.held:
        with single_threaded_blas():
            return _call("lauum", L, b"U", len(L), L, _step(L), np.zeros(1, dtype=np.int32))
    A, C, B = _halves(L)
    lauum(A)
    syrk(A, C, 1.0, rows=False)
    trmm(C, B, left=True, transposed=True)
    lauum(B)


def trtri(L: np.ndarray) -> None:
    """Replace a lower triangular L by L⁻¹; its rows may be parts of longer ones. By halves, so that products
    do the work, [A 0; C B]⁻¹ = [A⁻¹ 0; -B⁻¹CA⁻¹ B⁻¹]: LAPACK takes twice as long at 300 rows.
    """
    if len(L) <= LEAF:
        return _call("trtri", L, b"U", b"N", len(L), L, _step(L), np.zeros(1, dtype=np.int32))
    if len(L) <= ONE_THREAD and not single_threaded_blas.held:
        with single_threaded_blas():
            return trtri(L)
    A, C, B = _halves(L)
    if ONE_THREAD < len(L) <= 2 * ONE_THREAD:
        side_by_side([partial(trtri, A), partial(trtri, B)])
    else:
        trtri(A)
        trtri(B)
    trmm(C, A, left=False, transposed=False, times=-1.0)
    trmm(C, B, left=True, transposed=False)


def _halves(L: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return A, C and B of L = [A 0; C B]."""
    h = (len(L) // 2 + 7) // 8 * 8
    return L[:h, :h], L[h:, :h], L[h:, h:]


def _step(A: np.ndarray) -> int:
    """Return the step between rows, which may be parts of longer ones."""
    return max(A.strides[0] // A.itemsize, A.shape[1], 1)


def _layout(A: np.ndarray) -> tuple[bytes, int]:
    """Return how BLAS reads A, b"N" in C order, b"T" transposed, b"" not, and the step between its rows."""
    if A.dtype == np.float64 and A.strides[1] == 8 and A.strides[0] >= 8 * A.shape[1]:
        return b"N", A.strides[0] // 8
    if A.dtype == np.float64 and A.strides[0] == 8 and A.strides[1] >= 8 * A.shape[0]:
        return b"T", A.strides[1] // 8
    return b"", 0


def _call(name: str, like: np.ndarray, *arguments: bytes | int | float | np.ndarray) -> None:
    """Call the routine of `like`'s precision; a call releases the interpreter lock."""
    double = like.dtype == np.float64
    by_type = DOUBLE if double else SINGLE
    routine = _routine(("d" if double else "s") + name, len(arguments))
    routine(*[by_type[type(a)](a) for a in arguments])


SINGLE: dict[type, Any] = {
    np.ndarray: lambda a: a.ctypes.data,
    bytes: lambda a: a,
    int: lambda a: ctypes.byref(ctypes.c_int(a)),
    float: lambda a: ctypes.byref(ctypes.c_float(a)),
}
DOUBLE = SINGLE | {float: lambda a: ctypes.byref(ctypes.c_double(a))}


@cache
def _routine(name: str, n_arguments: int) -> Any:
    return ctypes.CFUNCTYPE(None, *([ctypes.c_void_p] * n_arguments))(_address(name))


@cache
def addresses() -> np.ndarray:
    """Return the addresses of the routines in `compiled_blas.ROUTINES`. (int64)"""
    from .compiled_blas import ROUTINES

    return np.array([_address(name) for name in ROUTINES])


def _address(name: str) -> int:
    from scipy.linalg import cython_blas, cython_lapack

    capsule = (cython_blas if name in cython_blas.__pyx_capi__ else cython_lapack).__pyx_capi__[name]
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get_pointer(capsule, get_name(capsule))
