"""SciPy's BLAS and LAPACK routines: called on C-ordered NumPy arrays, and by address for compiled loops.

BLAS is column-major, so it sees a C-ordered array as its own transpose: a product from the right, A T, is a
product from the left there, and upper and lower triangles swap names.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np

LEAF = 80  # rows of a triangle that LAPACK inverts as fast as halves


def trmm(A: np.ndarray, T: np.ndarray, *, left: bool, transposed: bool) -> None:
    """A T, or T A if `left`, in A, for a lower triangular T or its transpose."""
    trans, (c, m) = b"T" if transposed else b"N", A.shape
    _call("trmm", A, b"R" if left else b"L", b"U", trans, b"N", m, c, 1.0, T, len(T), A, m)


def syrk(G: np.ndarray, A: np.ndarray, sign: float, *, rows: bool, times: float = 1.0) -> None:
    """The lower triangle of G becomes `times` G + sign AᵀA, or sign AAᵀ if `rows`."""
    (c, m), n = A.shape, len(G)
    _call("syrk", A, b"U", b"T" if rows else b"N", n, m if rows else c, float(sign), A, m, times, G, n)


def gemm(C: np.ndarray, A: np.ndarray, B: np.ndarray, sign: float) -> bool:
    """C += sign A B in double precision; False, and nothing done, where BLAS cannot read one of them."""
    if C.dtype != np.float64 or C.strides[1] != 8 or min(C.shape) == 0:
        return False
    (trans_a, lda), (trans_b, ldb) = _layout(A), _layout(B)
    if not (trans_a and trans_b):
        return False
    ldc = max(C.strides[0] // 8, C.shape[1])
    sizes = C.shape[1], C.shape[0], A.shape[1]
    _call("gemm", C, trans_b, trans_a, *sizes, float(sign), B, ldb, A, lda, 1.0, C, ldc)
    return True


def potrf(A: np.ndarray) -> int:
    """The lower Cholesky factor of a C-ordered A in its lower triangle; returns 0, or what LAPACK says."""
    info = np.zeros(1, dtype=np.int32)
    _call("potrf", A, b"U", len(A), A, len(A), info)
    return int(info[0])


def trtri(L: np.ndarray) -> None:
    """L⁻¹ in the place of a lower triangular L, whose rows may be part of longer ones. By halves, so that
    products do the work, [A 0; C B]⁻¹ = [A⁻¹ 0; -B⁻¹CA⁻¹ B⁻¹]: LAPACK takes twice as long at 300 rows.
    """
    m, step = len(L), L.strides[0] // L.itemsize
    if m <= LEAF:
        return _call("trtri", L, b"U", b"N", m, L, step, np.zeros(1, dtype=np.int32))
    h = (m // 2 + 7) // 8 * 8
    A, C, B = L[:h, :h], L[h:, :h], L[h:, h:]
    trtri(A)
    trtri(B)
    _call("trmm", L, b"L", b"U", b"N", b"N", h, m - h, -1.0, A, step, C, step)
    _call("trmm", L, b"R", b"U", b"N", b"N", h, m - h, 1.0, B, step, C, step)


def _layout(A: np.ndarray) -> tuple[bytes, int]:
    """The way BLAS reads A, b"N" in C order, b"T" transposed, b"" neither, and the step between its rows."""
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
    """The addresses of the routines in `compiled_blas.ROUTINES`. (int64)"""
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
