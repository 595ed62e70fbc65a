"""The exponential for compiled loops, as straight arithmetic that becomes vector instructions."""

from typing import Any

from .compiling import helper, intrinsic

ROUND = 1.5 * 2.0**52  # added to a number, its nearest integer stands in the last bits
TINY = -708.0  # exponents below give numbers that are not normal, and slow; they are zero here
# of loops that call it: k is found by rounding, so sums keep their order
EXACT = {"contract", "nsz", "arcp"}


@intrinsic
def _scaled_by_bits(context: Any, p: Any, t: Any) -> Any:
    """p 2ᵏ, k the integer in the last bits of t: added to p's exponent."""
    from llvmlite import ir
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word = ir.IntType(64)
        bits = builder.shl(builder.bitcast(values[1], word), ir.Constant(word, 52))
        return builder.bitcast(builder.add(builder.bitcast(values[0], word), bits), ir.DoubleType())

    return types.float64(types.float64, types.float64), generate


@helper(inline="always")
def _reduced(x: float) -> tuple[float, float]:
    """t with k = round(x / log 2) in its last bits, and r = x - k log 2, with log 2 in two parts."""
    t = x * 1.4426950408889634 + ROUND
    k = t - ROUND
    return t, (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10


@helper(inline="always")
def exponential(x: float) -> float:
    """eˣ to the last bit or two, for x < 700, as straight arithmetic that becomes vector instructions."""
    t, r = _reduced(max(x, TINY))
    p = 1.6059043836821613e-10  # 1/13!, and so on down to 1/0!
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return 0.0 if x < TINY else _scaled_by_bits(p, t)
