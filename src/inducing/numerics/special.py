"""Special functions by array namespace: the same few names from SciPy, PyTorch or CuPy."""

from typing import Any

import numpy as np

from .arrays import Array, namespace

LOG_2PI = float(np.log(2.0 * np.pi))
FRACTION_TERMS = 20  # of a continued fraction
ROOT_2 = float(np.sqrt(2.0))
ROOT_2_OVER_PI = float(np.sqrt(2.0 / np.pi))


def special(xp: Any) -> Any:
    """Return the module of `xp` that has ndtr, log_ndtr, erfcx, gammaln, digamma, polygamma and gammaincc."""
    if xp is np:
        import scipy.special

        return scipy.special
    if "torch" in xp.__name__:
        import torch

        return torch.special
    import cupyx.scipy.special

    return cupyx.scipy.special


def mills(z: Array) -> tuple[Array, Array, Array]:
    """Return log Φ(z), h = Φ'(z)/Φ(z) and z + h, all accurate in both tails."""
    xp = namespace(z)
    x = xp.clip(xp.abs(z), 0.0, 1e150)
    scaled = special(xp).erfcx(x / ROOT_2)  # exp(x²/2) · 2Φ(-x)
    whole = xp.round(16.0 * xp.clip(x, 0.0, 40.0)) / 16.0  # its square is exact
    density = xp.exp(-0.5 * whole * whole) * xp.exp(-0.5 * (x - whole) * (x + whole))
    tail = 0.5 * scaled * density
    low = z < 0.0
    value = xp.where(low, xp.log(0.5 * scaled) - 0.5 * x * x, xp.log1p(-tail))
    h = ROOT_2_OVER_PI / xp.where(low, scaled, 2.0 * (1.0 - tail)) * xp.where(low, 1.0 + 0.0 * z, density)
    if xp is np and not np.any(z < -50.0):
        return value, h, z + h
    far = xp.clip(x, 50.0, 1e150)
    w = 1.0 / (far * far)
    series = 1.0 - w * (2.0 - w * (10.0 - w * (74.0 - w * (706.0 - w * 8162.0))))
    return value, h, xp.where(z < -50.0, series / far, z + h)


def stirling(x: Array) -> Array:
    """Return x log x - x - log Γ(x + 1) for x ≥ 0: the log density of a Poisson count x at the rate x."""
    xp = namespace(x)
    few = xp.where(x < 16.0, x, 1.0)
    small = few * xp.log(xp.maximum(few, 1e-300)) - few - special(xp).gammaln(few + 1.0)
    many = xp.maximum(x, 16.0)
    w = 1.0 / (many * many)
    series = 1.0 / 12.0 - w * (1.0 / 360.0 - w * (1.0 / 1260.0 - w * (1.0 / 1680.0 - w / 1188.0)))
    return xp.where(x < 16.0, small, -0.5 * (LOG_2PI + xp.log(many)) - series / many)


def log_sigmoid(x: Array) -> tuple[Array, Array, Array]:
    """Return log σ(x), σ(x) and 1 - σ(x) of σ(x) = 1/(1 + exp(-x)), all accurate in both tails."""
    xp = namespace(x)
    low = xp.minimum(x, 0.0)
    up, down = xp.exp(low), xp.exp(low - x)
    e = up * down  # exp(-|x|)
    return low - xp.log1p(e), up / (1.0 + e), down / (1.0 + e)


def upper_gamma(a: float, x: Array) -> tuple[Array, Array]:
    """Return log Q(a, x) + x and h - x, h = -∂log Q/∂log x, also where Q underflows; Q is the regularised
    upper incomplete gamma function.

    Far out h = x + 1 - a - 1(1 - a)/(x + 3 - a - 2(2 - a)/(x + 5 - a - …)) = e^-x x^a/Γ(a, x).
    """
    xp = namespace(x)
    functions, a_row = special(xp), a + 0.0 * x
    far = x > a + 8.0 + 6.0 * a**0.5
    z = xp.where(far, x, a + 50.0)
    rest = 2.0 * FRACTION_TERMS + 1.0 - a + 0.0 * z
    for i in range(FRACTION_TERMS, 0, -1):
        rest = (2.0 * i - 1.0) - a - i * (i - a) / (z + rest)
    log_gamma = functions.gammaln(a_row)
    beyond = a * xp.log(z) - log_gamma - xp.log(z + rest)
    near = xp.where(far, a + 1.0, x)
    log_q = xp.log(xp.maximum(functions.gammaincc(a_row, near), 1e-300))
    hazard = xp.exp(a * xp.log(xp.maximum(near, 1e-300)) - near - log_gamma - log_q)
    return xp.where(far, beyond, log_q + near), xp.where(far, rest, hazard - near)
