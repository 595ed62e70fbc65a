"""Types of the arguments of compiled functions, in Numba's notation."""

# numbers, arrays that are only read (and may be read-only), arrays written to
Addresses = "Array(int64, 1, 'C', True)"
Given1, Given2 = (f"Array(float64, {k}, 'C', True)" for k in (1, 2))
Out1, Out2, Out3 = (f"Array(float64, {k}, 'C')" for k in (1, 2, 3))
Real, Int, Flag = "float64", "int64", "boolean"


def tuple_of(*kinds: str) -> str:
    """Return the type of a tuple."""
    return f"Tuple(({', '.join(kinds)},))"


def signature(result: str, *kinds: str) -> str:
    """Return the type of a function."""
    return f"{result}({', '.join(kinds)})"
