"""Cholesky factor of a kernel matrix that grows by one chosen row at a time, and its DTC posterior."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..model.kernels.base import Kernel
from ..numerics.arrays import SMALL
from ..numerics.linalg import solve_lower
from ..numerics.nuggets import beyond_rounding, nugget
from ..numerics.workers import chunk_rows, row_slices, run_over, single_threaded_blas

EXHAUSTED = 1e-10  # a row whose residual variance is this share of k(x, x) or less adds only rounding


class PivotedCholesky:
    """The features Φᵀ on the rows chosen so far, and diag(K - Q); another row costs O(n (size + d))."""

    def __init__(self, kernel: Kernel, X: np.ndarray, m: int) -> None:
        self.kernel, self.X, self.most = kernel, X, min(m, len(X))
        self.diagonal = np.array(kernel.diagonal(X), dtype=float)  # (n,)
        self.residual = self.diagonal.copy()  # diag(K - Q)
        self.open = self.diagonal > 0  # rows that are not chosen and would add more than rounding
        self.Phi = np.empty((len(X), self.most))  # Φᵀ is its first `size` columns
        self.chosen: list[int] = []

    @property
    def size(self) -> int:
        return len(self.chosen)

    def grow(self, pick: Callable[[], int | None]) -> None:
        """Add rows that `pick` chooses, until there are `most`, it returns None, or no row adds anything."""
        with single_threaded_blas():
            while self.size < self.most and np.any(self.open):
                i = pick()
                if i is None:
                    return
                self.add(i)

    def rows(self, rng: np.random.Generator) -> np.ndarray:
        """Return the rows chosen, filled up to `most` with others at random. (most, d)"""
        rest = np.setdiff1d(np.arange(len(self.X)), self.chosen)
        others = rng.choice(rest, self.most - self.size, replace=False)
        return self.X[np.concatenate([np.array(self.chosen, dtype=int), others])]

    def over_rows(self, start: Callable[[], tuple], step: Callable[[Any, slice], None]) -> tuple:
        """Run `step` on chunks of rows in threads and return its sums; `start` makes their zeros."""
        n = len(self.X)
        chunk = max(1024, chunk_rows(n, self.most, self.X))  # a kernel's call costs as much as 500 rows
        tasks = row_slices(n, chunk)
        parts = run_over(tasks, start, step, parallel=self.Phi.size >= SMALL)
        return tuple(sum(part) for part in zip(*parts, strict=True))

    def beyond_rounding(self, i: int) -> bool:
        """Return whether row i is outside the span of those chosen by more than rounding. O(size²)"""
        own, factor = self.Phi[i, : self.size], self.Phi[self.chosen, : self.size]
        e = solve_lower(factor, own, transposed=True)  # ê
        own_share = self.diagonal[self.chosen] / self.diagonal[i]
        return beyond_rounding(self.residual[i], nugget(self.size) * self.diagonal[i], own_share @ (e * e))

    def add(self, i: int) -> None:
        """Choose row i."""
        self._extend(i, lambda: (), lambda sums, s, phi: None)

    def _extend(
        self, i: int, start: Callable[[], tuple], visit: Callable[[Any, slice, np.ndarray], None]
    ) -> tuple:
        """Compute the new column of Φᵀ and call `visit` on each part of it while it is in the cache."""
        j, own, length = self.size, self.Phi[i, : self.size].copy(), np.sqrt(self.residual[i])

        def step(sums: tuple, s: slice) -> None:
            phi = self.kernel.covariances(self.X[s], self.X[i : i + 1])[:, 0]
            phi -= self.Phi[s, :j] @ own
            phi /= length
            self.Phi[s, j] = phi
            self.residual[s] -= phi * phi
            visit(sums, s, phi)

        sums = self.over_rows(start, step)
        self.chosen.append(i)
        self.residual[self.chosen] = 0.0
        np.maximum(self.residual, 0.0, out=self.residual)
        self.open = self.residual > EXHAUSTED * self.diagonal
        return sums


class ProjectedPosterior(PivotedCholesky):
    """The DTC posterior of the projections φ(x)ᵀw at all rows; another row costs O(n (size + d)).

    With B = I + ΦΣ⁻¹Φᵀ = LB LBᵀ and M = LB⁻¹Φ: mean μ = Mᵀ MΣ⁻¹y and variance v = diag MᵀM.
    """

    def __init__(self, kernel: Kernel, X: np.ndarray, Y: np.ndarray, precision: np.ndarray, m: int) -> None:
        super().__init__(kernel, X, m)
        self.Y, self.precision = Y, precision  # (n, p), (n,)
        self.LBinv = np.zeros((self.most, self.most))
        self.mean = np.zeros_like(Y)
        self.variance = np.zeros(len(X))

    def add(self, i: int) -> None:
        j, E = self.size, self.Y - self.mean

        def visit(sums: tuple[np.ndarray, np.ndarray], s: slice, phi: np.ndarray) -> None:
            weighted = self.precision[s] * phi
            sums[0][...] += weighted @ self.Phi[s, : j + 1]
            sums[1][...] += weighted @ E[s]

        b, slope = self._extend(i, lambda: (np.zeros(j + 1), np.zeros(E.shape[1])), visit)
        c = self.LBinv[:j, :j] @ b[:j]  # the new row of LB, and its diagonal:
        rho = np.sqrt(max(1.0, 1.0 + b[j] - c @ c))
        self.LBinv[j, : j + 1] = last = np.append(-(c @ self.LBinv[:j, :j]), 1.0) / rho

        def step(_: tuple, s: slice) -> None:
            new = self.Phi[s, : j + 1] @ last  # of M
            self.variance[s] += new * new
            self.mean[s] += new[:, None] * (slope / rho)

        self.over_rows(lambda: (), step)

    def decrease(self, tried: np.ndarray) -> np.ndarray:
        """Return twice the decrease of `selection.smola_bartlett`'s objective by each candidate. (q,)"""
        q, j = len(tried), self.size
        V = self.precision[:, None] * (self.Y - self.mean)  # (n, p)

        def step(sums: tuple[np.ndarray, np.ndarray, np.ndarray], s: slice) -> None:
            K = self.kernel.covariances(self.X[s], self.X[tried])  # (rows, q)
            sums[0][...] += K.T @ V[s]
            sums[1][...] += self.precision[s] @ (K * K)
            K *= self.precision[s, None]
            sums[2][...] += K.T @ self.Phi[s, :j]

        zeros = (q, V.shape[1]), (q,), (q, j)
        slope, squares, G = self.over_rows(lambda: tuple(map(np.zeros, zeros)), step)
        G = (G + self.Phi[tried, :j]) @ self.LBinv[:j, :j].T  # MᵀΣ⁻¹k_i + M_i
        left = self.diagonal[tried] + squares - np.vecdot(G, G)
        # in exact arithmetic `left` is r_i (1 + …), and the residual r_i has lost no digits
        return np.sum((slope - self.mean[tried]) ** 2, axis=1) / np.maximum(left, self.residual[tried])
