"""A kernel's eigenfunctions under an input density, estimated from samples. [002], [GPML §4.3]

    ∫ k(x, y) p(x) φ_i(x) dx = λ_i φ_i(y),   ∫ φ_i(x) φ_j(x) p(x) dx = δ_ij,   k(x, y) = Σ λ_i φ_i(x) φ_i(y)

A draw of the process is f = Σ η_i φ_i with η_i ~ N(0, λ_i); given n noisy values of f, the estimate of η_i
shrinks by λ_i/(λ_i + σ²/n).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError
from ..model.kernels.base import Kernel
from ..model.problem import as_inputs, as_queries
from ..numerics.arrays import Array, asarray_like, to_numpy

FAINT = 1e-14  # an eigenvalue below this share of the largest is rounding, and its function noise


@dataclass(frozen=True, eq=False)
class Eigenfunctions:
    """Nyström's estimate φ_i(y) = 1/λ_i Σ_k w_k k(x_k, y) φ_i(x_k), weights w_k = 1/n for samples. [002]"""

    kernel: Kernel
    X: np.ndarray  # (n, d)
    weights: np.ndarray  # (n,), their sum is one
    values: np.ndarray  # (count,), λ in falling order
    vectors: np.ndarray  # (n, count), φ_i(x_k)

    def __call__(self, Y: Any) -> Array:
        """Return φ_i at each row of Y, as an array of Y's library. (t, count)"""
        Y = as_queries(Y, self.X.shape[1])
        weighted = self.weights[:, None] * self.vectors / self.values
        return asarray_like(self.kernel.covariances(to_numpy(Y), self.X) @ weighted, Y)


def eigenfunctions(kernel: Kernel, X: Any, count: int, *, weights: Any = None) -> Eigenfunctions:
    """Return the first `count` eigenfunctions under the density that X was drawn from.

    They solve the eigenproblem of √w_j k(x_j, x_k) √w_k, the kernel p^½ k p^½ of [002] on the samples; with w
    = 1/n the eigenvalues are those of K over n. O(n²) memory on purpose and O(n³) time: some thousand samples
    at most. With the nodes and `weights` of a quadrature rule in place of samples the result is as exact as
    the rule. Each function's sign makes its largest value positive.
    """
    from scipy.linalg import eigh

    X = to_numpy(as_inputs(X))
    n = len(X)
    if not 1 <= count <= n:
        raise ParameterError(f"count must lie between 1 and the number of samples ({n}), but is {count}")
    w = np.full(n, 1.0 / n) if weights is None else np.asarray(to_numpy(weights), dtype=float)
    if w.shape != (n,):
        raise ShapeError(f"weights must be one number for each of {n} samples, but have shape {w.shape}")
    if not (np.all(w > 0) and np.all(np.isfinite(w))):
        raise ParameterError(f"weights must be positive and finite, but the least is {np.min(w):g}; drop it")
    w = w / np.sum(w)
    root = np.sqrt(w)
    K = root[:, None] * to_numpy(kernel.covariances(X, X)) * root
    values, U = eigh(K, subset_by_index=(n - count, n - 1))
    values, vectors = values[::-1], U[:, ::-1] / root[:, None]
    if values[-1] <= FAINT * values[0]:
        good = int(np.sum(values > FAINT * values[0]))
        raise ParameterError(f"only {good} of {count} eigenvalues are above rounding; ask for {good}")
    peaks = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(count)]  # (count,)
    return Eigenfunctions(kernel, X, w, values, vectors * np.sign(peaks))


def shrinkage(values: Any, noise: float, n: int) -> np.ndarray:
    """Return λ/(λ + σ²/n): the share of each η_i that n values with noise variance σ² recover. [002]"""
    if not 0.0 < noise < math.inf:
        raise ParameterError(f"noise is a variance and must be positive and finite, but is {noise:g}")
    if n < 1:
        raise ParameterError(f"shrinkage needs at least one row, but n is {n}")
    values = np.asarray(values, dtype=float)
    return values / (values + noise / n)
