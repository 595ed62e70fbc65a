"""Arithmetic on LANES numbers at a time inside compiled loops: small problems side by side, one in each lane.

Arrays are flat; an index is that of the first of LANES numbers.
"""

from math import sqrt
from typing import Any

import numpy as np

from .compiling import FAST, helper, intrinsic

LANES = 8


@intrinsic
def minus_dot(context: Any, C: Any, c: Any, A: Any, a: Any, B: Any, b: Any, n: Any) -> Any:
    """C[c] -= Σ_t A[a + t] B[b + t] over n terms, t in steps of LANES."""
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.np.arrayobj import make_array

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind, free = ir.VectorType(ir.DoubleType(), LANES), ("contract",)

        def place(which: int, first: Any) -> Any:
            array = make_array(signature.args[which])(context, builder, values[which])
            return builder.bitcast(builder.gep(array.data, [first]), kind.as_pointer())

        total = cgutils.alloca_once_value(builder, builder.load(place(0, values[1]), align=8))
        with cgutils.for_range(builder, values[6]) as loop:
            t = builder.mul(loop.index, ir.Constant(loop.index.type, LANES))
            x = builder.load(place(2, builder.add(values[3], t)), align=8)
            y = builder.load(place(4, builder.add(values[5], t)), align=8)
            left = builder.fsub(builder.load(total), builder.fmul(x, y, flags=free), flags=free)
            builder.store(left, total)
        builder.store(builder.load(total), place(0, values[1]), align=8)
        return context.get_dummy_value()

    return types.void(C, c, A, a, B, b, n), generate


@helper(fastmath=FAST)
def factorise_lanes(least: np.ndarray, q: int, L: np.ndarray, x: np.ndarray) -> None:
    """Replace the lower triangles of LANES matrices of q + 1 rows, row by row, by their Cholesky factors with
    the diagonal inverted; no squared pivot is below its `least`. Fill x with b of each.
    """
    for j in range(q + 1):
        row = j * (j + 1) // 2 * LANES
        at = row + j * LANES
        minus_dot(L, at, L, row, L, row, j)
        for lane in range(LANES):
            L[at + lane] = 1.0 / sqrt(max(L[at + lane], least[j * LANES + lane]))
        for a in range(j + 1, q + 1):
            below = a * (a + 1) // 2 * LANES
            minus_dot(L, below + j * LANES, L, below, L, row, j)
            for lane in range(LANES):
                L[below + j * LANES + lane] *= L[at + lane]
    last = q * (q + 1) // 2 * LANES
    for t in range(q * LANES):
        x[t] = L[last + t]
    _solve_upper(L, q, x)


@helper(fastmath=FAST)
def _solve_upper(L: np.ndarray, q: int, x: np.ndarray) -> None:
    """Replace x by L⁻ᵀx, of the first q rows."""
    for j in range(q - 1, -1, -1):
        row = j * (j + 1) // 2 * LANES
        for lane in range(LANES):
            x[j * LANES + lane] *= L[row + j * LANES + lane]
        for t in range(0, j * LANES, LANES):
            minus_dot(x, t, L, row + t, x, j * LANES, 1)


@helper(fastmath=FAST)
def solve_lanes(L: np.ndarray, q: int, x: np.ndarray) -> None:
    """Replace x by A⁻¹x with A = LLᵀ, of the first q rows."""
    for j in range(q):
        row = j * (j + 1) // 2 * LANES
        minus_dot(x, j * LANES, L, row, x, 0, j)
        for lane in range(LANES):
            x[j * LANES + lane] *= L[row + j * LANES + lane]
    _solve_upper(L, q, x)
