"""BLAS and LAPACK inside compiled loops: SciPy's routines by address, without interpreter lock or threads.

Arrays are C-ordered; column-major BLAS sees each as its own transpose, so operands and triangles swap sides.
Addresses are arguments, since compiled code that is kept on disk must not hold those of one process.
"""

from math import log
from typing import Any

import numpy as np

from .blas import LEAF
from .compiling import helper, intrinsic
from .kinds import signature

# in the order of `blas.addresses`; `triangles` uses those from dtrsv on
ROUTINES = "dgemm dtrmm dsyrk dsymm dpotrf dtrtri dtrsv dgemv dger dsyr dsyr2 drot dlauum".split()
GEMM, TRMM, SYRK, SYMM, POTRF, TRTRI, TRSV, GEMV, GER, SYR, SYR2, ROT, LAUUM = range(len(ROUTINES))
PLAIN, TRANSPOSED, LEFT, RIGHT, UPPER, LOWER = (np.uint8(ord(letter)) for letter in "NTLRUL")
STRIP = 96  # columns at a time of a product of which only the lower triangle is needed

_jit = helper()


@intrinsic
def call_at(context: Any, address: Any, arguments: Any) -> Any:
    """Call the Fortran routine at `address`: with pointers to arrays, letters and numbers."""
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.np.arrayobj import make_array

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        pointers = []
        for i, kind in enumerate(signature.args[1]):
            value = builder.extract_value(values[1], i)
            if isinstance(kind, types.Array):
                place = make_array(kind)(context, builder, value).data
            else:
                if kind == types.intp:
                    value = builder.trunc(value, ir.IntType(32))
                place = cgutils.alloca_once_value(builder, value)
            pointers.append(builder.bitcast(place, byte))
        routine = ir.FunctionType(ir.VoidType(), [byte] * len(pointers)).as_pointer()
        builder.call(builder.inttoptr(values[0], routine), pointers)
        return context.get_dummy_value()

    return types.void(address, arguments), generate


def handed(kind: str) -> tuple[Any, Any]:
    """Return two intrinsics: to call an address with a pointer to a tuple of this kind, and to read that."""

    def call(context: Any, address: Any, arguments: Any) -> Any:
        from llvmlite import ir
        from numba.core import cgutils, sigutils, types

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            byte = ir.IntType(8).as_pointer()
            routine = ir.FunctionType(ir.VoidType(), [byte]).as_pointer()
            place = builder.bitcast(cgutils.alloca_once_value(builder, values[1]), byte)
            builder.call(builder.inttoptr(values[0], routine), [place])
            return context.get_dummy_value()

        return types.void(address, sigutils.normalize_signature(signature("void", kind))[0][0]), generate

    def read(context: Any, address: Any) -> Any:
        from numba.core import sigutils

        (whole,), _ = sigutils.normalize_signature(signature("void", kind))

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.load(builder.bitcast(values[0], context.get_value_type(whole).as_pointer()))

        return whole(address), generate

    return intrinsic(call), intrinsic(read)


@_jit
def product(at: np.ndarray, A: np.ndarray, B: np.ndarray, C: np.ndarray) -> None:
    """C = A Bᵀ. A (c, q), B (m, q), C (c, m)."""
    c, q = A.shape
    m = len(B)
    call_at(at[GEMM], (TRANSPOSED, PLAIN, m, c, q, 1.0, B, q, A, q, 0.0, C, m))


@_jit
def add_cross(at: np.ndarray, A: np.ndarray, B: np.ndarray, C: np.ndarray) -> None:
    """C += AᵀB. A (c, m), B (c, q), C (m, q)."""
    c, m = A.shape
    q = B.shape[1]
    call_at(at[GEMM], (PLAIN, TRANSPOSED, q, m, c, 1.0, B, q, A, m, 1.0, C, q))


@_jit
def times_lower(at: np.ndarray, A: np.ndarray, L: np.ndarray, transposed: bool) -> None:
    """Replace A by A L, or A Lᵀ, for a lower triangular L. A (c, m), L (m, m)."""
    c, m = A.shape
    call_at(at[TRMM], (LEFT, UPPER, TRANSPOSED if transposed else PLAIN, PLAIN, m, c, 1.0, L, m, A, m))


@_jit
def add_gram(at: np.ndarray, A: np.ndarray, sign: float, G: np.ndarray) -> None:
    """The lower triangle of G += sign AᵀA. A (c, m), G (m, m)."""
    c, m = A.shape
    if c > 0:
        call_at(at[SYRK], (UPPER, PLAIN, m, c, sign, A, m, 1.0, G, m))


@_jit
def lower_times(at: np.ndarray, L: np.ndarray, A: np.ndarray, transposed: bool) -> None:
    """Replace A by L A, or LᵀA, for a lower triangular L. L (c, c), A (c, m)."""
    c, m = A.shape
    call_at(at[TRMM], (RIGHT, UPPER, TRANSPOSED if transposed else PLAIN, PLAIN, m, c, 1.0, L, c, A, m))


@_jit
def add_outer(at: np.ndarray, A: np.ndarray, sign: float, G: np.ndarray) -> None:
    """The lower triangle of G += sign AAᵀ. A (c, m), G (c, c)."""
    c, m = A.shape
    call_at(at[SYRK], (UPPER, TRANSPOSED, c, m, sign, A, m, 1.0, G, c))


@_jit
def symmetric_times(at: np.ndarray, G: np.ndarray, A: np.ndarray, factor: float, C: np.ndarray) -> None:
    """C = factor G A for a symmetric G of which the lower triangle is read. G (c, c), A (c, m)."""
    c, m = A.shape
    call_at(at[SYMM], (RIGHT, UPPER, m, c, factor, G, c, A, m, 0.0, C, m))


@_jit
def add_symmetric(at: np.ndarray, A: np.ndarray, B: np.ndarray, G: np.ndarray) -> None:
    """G += AᵀB, known to be symmetric, in the lower triangle (and some of the upper). A and B (c, m)."""
    c, m = A.shape
    for lo in range(0, m, STRIP):
        hi = min(lo + STRIP, m)
        call_at(at[GEMM], (PLAIN, TRANSPOSED, hi, hi - lo, c, 1.0, B, m, A[:, lo:], m, 1.0, G[lo:], m))


@_jit
def invert(at: np.ndarray, L: np.ndarray, failed: np.ndarray) -> None:
    """Replace a lower triangular L by L⁻¹: small blocks, then pairs, [A 0; C B]⁻¹ = [A⁻¹ 0; -B⁻¹CA⁻¹ B⁻¹]."""
    n, size = len(L), len(L)
    while size > LEAF:
        size = (size // 2 + 7) // 8 * 8
    for a in range(0, n, size):
        call_at(at[TRTRI], (UPPER, PLAIN, min(size, n - a), L[a:, a:], n, failed))
    while size < n:
        for a in range(0, n - size, 2 * size):
            b = a + size
            rows, C = min(size, n - b), L[b:, a:]
            call_at(at[TRMM], (LEFT, UPPER, PLAIN, PLAIN, size, rows, -1.0, L[a:, a:], n, C, n))
            call_at(at[TRMM], (RIGHT, UPPER, PLAIN, PLAIN, size, rows, 1.0, L[b:, b:], n, C, n))
        size *= 2


@_jit
def factorise(at: np.ndarray, D: np.ndarray) -> float:
    """Replace D = LLᵀ, given by its lower triangle, by L⁻¹; return log|D|, or NaN if there is no L."""
    c = len(D)
    failed = np.zeros(1, dtype=np.int32)
    call_at(at[POTRF], (UPPER, c, D, c, failed))
    log_det = 0.0
    for i in range(c):
        log_det += 2.0 * log(D[i, i])
    if failed[0] == 0:
        invert(at, D, failed)
    for i in range(c):
        for j in range(i + 1, c):
            D[i, j] = 0.0
    return log_det if failed[0] == 0 else np.nan
