"""A process folded into three arrays, and single queries of it in microseconds by one compiled function."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from ..errors import ParameterError
from ..numerics.arrays import Array, to_numpy
from .bases import Basis, Multiscale
from .kernels.base import Kernel
from .kernels.stationary import PROFILES, Stationary
from .means import Constant, Linear, Mean, Zero


@dataclass(frozen=True, eq=False)
class Folded:
    """A process of an RBF or Matérn kernel as three arrays.

    With k_j(x) = h_j g(Σ_k p_jk (x_k - v_jk)²):  mean = bias + slopeᵀx + Σ_j α_j k_j(x), variance = prior ±
    |T k(x)|². Few arrays, because each argument costs a call 0.2 µs.
    """

    table: np.ndarray  # (m, 2d + 2): v, p, h, α of each basis function
    T: np.ndarray  # (m, m), lower
    head: np.ndarray  # (4 + d,): bias, prior, sign, profile, slope

    @classmethod
    def of(
        cls, kernel: Kernel, basis: Basis, mean: Mean, alpha: Array, T: Array, *, degenerate: bool
    ) -> Self:
        """The process of mean k_u(x)ᵀα and variance k(x, x) - |T k_u(x)|², or |T k_u(x)|² if degenerate."""
        if not isinstance(kernel, Stationary) or type(kernel) not in PROFILES or kernel.columns is not None:
            name = type(kernel).__name__
            raise ParameterError(f"only RBF and Matérn kernels can be compiled, not {name}; use predict")
        centers, widths, heights = function_shapes(kernel, basis)
        slope, bias = _affine(mean, centers.shape[1])
        prior, sign = (0.0, 1.0) if degenerate else (kernel.variance, -1.0)
        return cls(
            np.column_stack([centers, 1.0 / widths**2, heights, to_numpy(alpha)]),
            np.ascontiguousarray(to_numpy(T), dtype=float),
            np.array([bias, prior, sign, PROFILES[type(kernel)], *slope]),
        )

    def in_units(
        self,
        *,
        x_mean: float | np.ndarray = 0.0,
        x_scale: float | np.ndarray = 1.0,
        y_mean: float = 0.0,
        y_scale: float = 1.0,
        noise: float = 0.0,
    ) -> Self:
        """The same process in units of (x - x_mean)/x_scale and (y - y_mean)/y_scale, with noise added."""
        table, head, d = self.table.copy(), self.head.copy(), len(self.head) - 4
        head[4:] *= y_scale / x_scale
        head[0] = y_mean + y_scale * head[0] - head[4:] @ np.broadcast_to(x_mean, d)
        head[1] = (head[1] + noise) * y_scale**2
        table[:, :d] = table[:, :d] * x_scale + x_mean
        table[:, d : 2 * d] /= np.square(x_scale)
        table[:, -1] *= y_scale
        return type(self)(table, self.T * y_scale, head)


@dataclass(frozen=True, eq=False)
class CompiledPredictor(Folded):
    """`predictor(x)` is (mean, variance) of f at one point x, a float64 array (d,); nothing is checked."""

    _function: Callable[..., tuple[float, float]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        from ..numerics.loops import predict_one

        object.__setattr__(self, "_function", predict_one.ready())
        self(np.zeros(len(self.head) - 4))  # compile, or load what was compiled before

    def __call__(self, x: np.ndarray) -> tuple[float, float]:
        return self._function(x, self.table, self.T, self.head)


def function_shapes(kernel: Stationary, basis: Basis) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centres and widths (m, d) and heights (m,) of the functions k_u(x)."""
    if not isinstance(basis, Multiscale):
        centers = to_numpy(basis.Z)
        widths = np.broadcast_to(to_numpy(kernel.scales(centers)), centers.shape)
        return centers, widths, np.full(len(basis), kernel.variance)
    centers, widths = to_numpy(basis.centers), to_numpy(basis.widths)
    scales = to_numpy(kernel.scales(centers))
    ratios = np.sqrt(scales * np.sqrt(2 * widths**2 - scales**2)) / widths
    return centers, widths, kernel.variance * np.prod(ratios, axis=1)


def _affine(mean: Mean, d: int) -> tuple[np.ndarray, float]:
    """Slope and bias of a prior mean."""
    if isinstance(mean, Zero):
        return np.zeros(d), 0.0
    if isinstance(mean, Constant):
        return np.zeros(d), float(np.ravel(mean.value)[0])
    if isinstance(mean, Linear):
        return np.asarray(mean.weights, dtype=float).reshape(d), float(np.ravel(mean.bias)[0])
    raise ParameterError(f"a prior mean {type(mean).__name__} cannot be compiled; use predict")
