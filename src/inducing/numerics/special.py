"""Special functions by array namespace: the same few names from SciPy, PyTorch or CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import Array, namespace

LOG_2PI = float(np.log(2.0 * np.pi))
ROOT_2 = float(np.sqrt(2.0))
ROOT_2_OVER_PI = float(np.sqrt(2.0 / np.pi))


def special(xp: Any) -> Any:
    """The module of `xp` that has log_ndtr, ndtr, erfcx, expit, gammaln, digamma and gammaincc."""
    if xp is np:
        import scipy.special

        return scipy.special
    if "torch" in xp.__name__:
        import torch

        return torch.special
    import cupyx.scipy.special

    return cupyx.scipy.special


def mills(z: Array) -> tuple[Array, Array, Array]:
    """log Φ(z), h = Φ'(z)/Φ(z) and z + h, none of which loses digits on either side."""
    xp = namespace(z)
    x = xp.clip(xp.abs(z), 0.0, 1e150)
    scaled = special(xp).erfcx(x / ROOT_2)  # exp(x²/2) · 2Φ(-x)
    whole = xp.round(16.0 * xp.clip(x, 0.0, 40.0)) / 16.0  # its square is exact
    density = xp.exp(-0.5 * whole * whole) * xp.exp(-0.5 * (x - whole) * (x + whole))
    tail = 0.5 * scaled * density
    low = z < 0.0
    value = xp.where(low, xp.log(0.5 * scaled) - 0.5 * x * x, xp.log1p(-tail))
    h = ROOT_2_OVER_PI / xp.where(low, scaled, 2.0 * (1.0 - tail)) * xp.where(low, 1.0, density)
    far = xp.clip(x, 50.0, 1e150)
    w = 1.0 / (far * far)
    series = 1.0 - w * (2.0 - w * (10.0 - w * (74.0 - w * (706.0 - w * 8162.0))))
    return value, h, xp.where(z < -50.0, series / far, z + h)
