"""What the products with K that err have in common: a bound, costs to compare, and what they refuse.

The tree and the Gauss transform err by no more than `tolerance` of the prior variance times Σ|v|:

    |(K v)_i - product(v)_i| ≤ tolerance · k(0) · Σ_j |v_j|

Costs are in nanoseconds on one core of a server of 2023, for one column of V; only their ratios matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from inducing.errors import ParameterError
from inducing.model.kernels.base import Kernel
from inducing.model.kernels.stationary import RBF, Stationary
from inducing.numerics.arrays import is_numpy

ENTRY = 3.4  # of a kernel entry of a block, used twice


def cost_of_blocks(kernel: Kernel, n: int) -> float:
    """Nanoseconds of one core for K(X, X) v in blocks."""
    return (ENTRY if isinstance(kernel, RBF) else 2.0 * ENTRY) * 0.5 * float(n) ** 2


def in_lengthscales(kernel: Kernel, X: np.ndarray) -> np.ndarray:
    """X in units of the kernel's lengthscale. (n, d)"""
    assert isinstance(kernel, Stationary)
    return np.ascontiguousarray(kernel.scaled(X))


def check_approximate(what: str, product: Any, kernels: tuple[type[Kernel], ...]) -> None:
    """Raise if a product that errs does not apply to this kernel, these arrays or this tolerance."""
    kind = type(product.kernel)
    if kind not in kernels:
        names = ", ".join(k.__name__ for k in kernels)
        raise ParameterError(f"the {what} is for {names} kernels, not for {kind.__name__}; use blocks")
    if not is_numpy(product.X):
        raise ParameterError(f"the {what} runs on NumPy arrays, not {type(product.X).__name__}; use blocks")
    if not 0.0 < product.tolerance < 1.0:
        raise ParameterError(f"the {what}'s tolerance must lie between 0 and 1, but is {product.tolerance}")
