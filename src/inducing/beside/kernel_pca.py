"""Sparse kernel principal components: a Gaussian in feature space on few rows. [Tipping 2001b], [004 §3.7.1]

With ψ(x) the feature vector of k(x, x') = ψ(x)ᵀψ(x'), the n inputs are modelled as draws of N(0, σ²I +
ΨWΨᵀ), W diagonal and not negative [004 eqs 2.38, 3.37]. Maximum likelihood in W is a search for relevance
vectors: candidates are the ψ_i, each of the n targets is a ψ_j, all share the precisions 1/W, and inner
products are the kernel's values. For given σ² most of W is zero. As σ² → 0 all inputs stay, W → I/n, and the
result is kernel PCA without centring [004 eqs 3.33, 3.34].
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import NoiseError, ParameterError
from ..model.bases import Points
from ..model.kernels.base import Kernel
from ..model.problem import as_queries, as_rows
from ..numerics.arrays import Array, asarray_like, to_numpy
from ..numerics.linalg import inverse_lower, log_det_from_factor
from ..numerics.workers import chunk_rows, row_slices, single_threaded_blas
from .relevance_search import Search


@dataclass(frozen=True, eq=False)
class KernelPCA:
    """The axes e_i of a Gaussian in feature space, whose variance along them is σ² + λ_i: unit vectors e_i =
    ΨW^½u_i/√λ_i with W^½KW^½u_i = λ_iu_i over the m inputs that stayed. `pca(X)` gives coordinates ψ(x)ᵀe_i.
    """

    kernel: Kernel
    basis: Points  # the inputs that stayed (m)
    rows: np.ndarray  # (m,), their numbers
    weights: np.ndarray  # (m,), W
    noise: float  # σ²
    values: np.ndarray  # (m,), λ in falling order
    coefficients: np.ndarray  # (m, m): e_i = Σ_j coefficients_ji ψ_j
    gains: np.ndarray  # (steps + 1,), the log likelihood above that of W = 0
    converged: bool

    def __len__(self) -> int:
        return len(self.basis)

    def __call__(self, X: Any, count: int | None = None) -> Array:
        """Return each row's coordinates along the first `count` components, by default all. (t, count)"""
        queries = as_queries(X, self.basis.Z.shape[1])
        count = len(self) if count is None else count
        if not 0 <= count <= len(self):
            raise ParameterError(f"{len(self)} components, but {count} were asked for; lower the noise")
        K = self.kernel.covariances(to_numpy(queries), self.basis.Z)
        return asarray_like(K @ self.coefficients[:, :count], queries)


def sparse_kernel_pca(
    kernel: Kernel, X: Any, noise: float, *, tolerance: float = 1e-6, max_iterations: int = 1000
) -> KernelPCA:
    """Fit the Gaussian of largest likelihood with noise variance σ² in every direction of feature space.

    With more noise, fewer inputs stay. O(n²) for each that joins, O(m²n) for each step, memory O(mn); the
    search ends when no step gains `tolerance`.
    """
    X = to_numpy(as_rows(X))
    if not 0.0 < noise < math.inf:
        raise NoiseError(f"noise lives in feature space and must be positive and finite, but is {noise:g}")
    first = np.sort(np.unique(X, axis=0, return_index=True)[1])  # equal inputs have one feature vector
    search = _Features(kernel, X, X[first], float(noise))
    gains, converged = [search.value()], False
    with single_threaded_blas():
        for _ in range(max_iterations):
            converged = search.step(tolerance) == 0.0
            if converged:
                break
            gains.append(search.value())
    root = search.D
    values, U = np.linalg.eigh(root[:, None] * search.G[:, search.active] * root)
    values, U = values[::-1], U[:, ::-1]
    return KernelPCA(
        kernel=kernel,
        basis=Points(X[first[search.active]]),
        rows=first[search.active],
        weights=root**2,
        noise=search.noise,
        values=values,
        coefficients=root[:, None] * U / np.sqrt(np.maximum(values, np.finfo(float).tiny)),
        gains=np.array(gains),
        converged=converged,
    )


class _Features(Search):
    """A search whose candidates and targets are feature vectors. Over the targets j, with H = K_aK and V, LB
    as in `Search`,

    Σ_j (φ_iᵀC⁻¹ψ_j)² = (K²)_ii/σ⁴ - 2 V_iᵀLB⁻¹DH_i/σ⁴ + V_iᵀZV_i,   Z = LB⁻¹D H_aa DLB⁻ᵀ/σ⁴
    """

    def __init__(self, kernel: Kernel, X: np.ndarray, candidates: np.ndarray, noise: float) -> None:
        super().__init__(np.zeros(0, dtype=int), np.zeros(0))
        self.kernel, self.X, self.candidates, self.noise, self.targets = kernel, X, candidates, noise, len(X)
        self.norms = kernel.diagonal(candidates)
        self.G, self.H = np.zeros((0, len(candidates))), np.zeros((0, len(candidates)))  # (m, M)
        self.squares = np.zeros(len(candidates))  # (K²)_ii
        for s in self._rows():
            self.squares += np.sum(kernel.covariances(X[s], candidates) ** 2, axis=0)
        self._factorise()

    def _rows(self) -> list[slice]:
        return row_slices(len(self.X), chunk_rows(len(self.X), len(self.candidates), self.X))

    def put(self, i: int, precision: float) -> None:
        known = self.active == i
        rows = self.G[known], self.H[known]
        others = self._replace(i, precision)
        self.G, self.H = self.G[others], self.H[others]
        if math.isfinite(precision):
            G, H = rows if np.any(known) else self._products(i)
            self.G, self.H = np.vstack([self.G, G]), np.vstack([self.H, H])
        self._factorise()

    def _products(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return K_i and Σ_j K_ijK_j of all candidates. (M,) each"""
        H = np.zeros(len(self.candidates))
        for s in self._rows():
            K = self.kernel.covariances(self.X[s], self.candidates)
            H += K[:, i] @ K
        return self.kernel.covariances(self.candidates[i : i + 1], self.candidates)[0], H

    def _scatter(self, Linv: np.ndarray) -> np.ndarray:
        """Return the matrix Z of the class's formulas. (m, m)"""
        return Linv @ self.H[:, self.active] @ Linv.T / self.noise**2

    def _alignment(self, Linv: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        Z = self._scatter(Linv)
        total = (self.squares - 2.0 * np.sum(V * (Linv @ self.H), axis=0)) / self.noise**2
        total += np.sum(V * (Z @ V), axis=0)
        return np.maximum(total, 0.0) / self.targets, np.sum(Linv * (Z @ Linv), axis=0) / self.targets

    def value(self) -> float:
        """Return -½ n log|B| + ½ tr Z: the log likelihood less that of W = 0, as each is infinite."""
        Z = self._scatter(inverse_lower(self.LB) * self.D)
        return 0.5 * float(np.trace(Z)) - 0.5 * self.targets * float(log_det_from_factor(self.LB))
