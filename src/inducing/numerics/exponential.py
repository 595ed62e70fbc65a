"""The exponential and the logarithm for compiled loops, as arithmetic that becomes vector instructions."""

from typing import Any

from .compiling import helper, intrinsic

ROUND = 1.5 * 2.0**52  # adding it to a number puts the nearest integer into the last bits
TINY = -708.0  # for exponents below the result is 0: it would be a subnormal number, which is slow
EXACT = {"contract", "nsz", "arcp"}  # for loops that call it: its rounding needs sums in the order written


@intrinsic
def _scaled_by_bits(context: Any, p: Any, t: Any) -> Any:
    """Return p 2ᵏ by adding k, the integer in the last bits of t, to p's exponent."""
    from llvmlite import ir
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word = ir.IntType(64)
        bits = builder.shl(builder.bitcast(values[1], word), ir.Constant(word, 52))
        return builder.bitcast(builder.add(builder.bitcast(values[0], word), bits), ir.DoubleType())

    return types.float64(types.float64, types.float64), generate


@helper(inline="always")
def exponential(x: float) -> float:
    """Return eˣ to the last bit or two, for x < 700."""
    least = max(x, TINY)
    t = least * 1.4426950408889634 + ROUND  # k = round(x / log 2) is in its last bits
    k = t - ROUND
    r = (least - k * 0.6931471803691238) - k * 1.9082149292705877e-10  # log 2 in two parts
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


@intrinsic
def _split(context: Any, u: Any) -> Any:
    """Return k and v of u = 2ᵏv > 0, v from √½ to √2, from the bits of u's exponent counted from √½."""
    from llvmlite import ir
    from numba.core import types

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word, real = ir.IntType(64), ir.DoubleType()
        half, one, whole = 0x3FE6A09E00000000, 0x3FF0000000000000, 0x4330000000000000  # √½, 1, 2⁵²
        bits = builder.add(builder.bitcast(values[0], word), ir.Constant(word, one - half))
        k = builder.or_(builder.lshr(bits, ir.Constant(word, 52)), ir.Constant(word, whole))
        v = builder.add(builder.and_(bits, ir.Constant(word, (1 << 52) - 1)), ir.Constant(word, half))
        shift = ir.Constant(real, 2.0**52 + 1023.0)
        pair = [builder.fsub(builder.bitcast(k, real), shift), builder.bitcast(v, real)]
        return context.make_tuple(builder, signature.return_type, pair)

    return types.UniTuple(types.float64, 2)(types.float64), generate


@helper(inline="always")
def log_one_plus(t: float) -> float:
    """Return log(1 + t) to the last digit, for t ≥ 0, by log v = 2 artanh((v - 1)/(v + 1)) of 1 + t = 2ᵏv."""
    u = 1.0 + t
    k, v = _split(u)
    f = v - 1.0
    s, h, lost = f / (2.0 + f), 0.5 * f * f, (t - (u - 1.0)) / u
    z = s * s
    p = 0.1479819860511658591  # the best polynomial of its degree for 2 artanh
    p = p * z + 0.1531383769920937332
    p = p * z + 0.1818357216161805012
    p = p * z + 0.2222219843214978396
    p = p * z + 0.2857142874366239149
    p = p * z + 0.3999999999940941908
    p = p * z + 0.6666666666666735130
    return k * 0.6931471803691238 + (f + ((s * (h + p * z) + (k * 1.9082149292705877e-10 + lost)) - h))
