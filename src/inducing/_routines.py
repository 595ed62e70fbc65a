"""BLAS and LAPACK inside compiled loops: SciPy's own routines by address, without the interpreter, its lock or its threads.

Arrays are C-ordered rows; in the column-major eyes of BLAS each is its own transpose, so operands and triangles swap sides.
Addresses come in as numbers, since compiled code that is kept on disk must not hold those of one process.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic as _intrinsic
from numba.np.arrayobj import make_array

NAMES = ("dgemm", "dtrmm", "dsyrk")  # the order in which addresses come
GEMM, TRMM, SYRK = range(len(NAMES))
N, T, LEFT, UPPER = (np.uint8(ord(letter)) for letter in "NTLU")

_jit = numba.njit(nogil=True)
intrinsic: Any = _intrinsic  # whose first argument is the compiler's own


@intrinsic
def _call(context: Any, address: Any, arguments: Any) -> Any:
    """Call the routine at `address`, Fortran's way: with pointers to arrays, letters, 32-bit integers and numbers."""

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


@_jit
def product(at: np.ndarray, A: np.ndarray, B: np.ndarray, C: np.ndarray) -> None:
    """C = A Bᵀ. A (c, q), B (m, q), C (c, m)."""
    c, q = A.shape
    m = len(B)
    _call(at[GEMM], (T, N, m, c, q, 1.0, B, q, A, q, 0.0, C, m))


@_jit
def add_cross(at: np.ndarray, A: np.ndarray, B: np.ndarray, C: np.ndarray) -> None:
    """C += AᵀB. A (c, m), B (c, q), C (m, q)."""
    c, m = A.shape
    q = B.shape[1]
    _call(at[GEMM], (N, T, q, m, c, 1.0, B, q, A, m, 1.0, C, q))


@_jit
def times_lower(at: np.ndarray, A: np.ndarray, L: np.ndarray, transposed: bool) -> None:
    """A L, or A Lᵀ, in A, for a lower triangular L. A (c, m), L (m, m)."""
    c, m = A.shape
    _call(at[TRMM], (LEFT, UPPER, T if transposed else N, N, m, c, 1.0, L, m, A, m))


@_jit
def add_gram(at: np.ndarray, A: np.ndarray, sign: float, G: np.ndarray) -> None:
    """The lower triangle of G += sign AᵀA. A (c, m), G (m, m)."""
    c, m = A.shape
    if c > 0:
        _call(at[SYRK], (UPPER, N, m, c, sign, A, m, 1.0, G, m))
