"""Whole functions drawn from a process, as callables: `post.paths(size, rng)`. [Wilson et al. 2020]

A draw f₀ of the prior is corrected on the basis (Matheron's rule). With the whitened form of the process and
u₀ the inducing variables of f₀,

    f(x) = m0(x) + f₀(x) + k_u(x)ᵀ L⁻ᵀ (w + A ξ - L⁻¹u₀)

has the mean and covariance of the process, as exactly as f₀ has the kernel's; on the basis they are exact. A
query costs O(m + features), however many there are, and has a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import ConditionalError, ParameterError
from ..numerics.arrays import Array, Given, Seed, as_floats, to_numpy
from ..numerics.linalg import solve_lower
from ..numerics.special import special
from ..numerics.workers import row_slices
from .bases import Basis, Multiscale
from .kernels.base import Kernel
from .kernels.waves import Waves, waves
from .means import Mean

if TYPE_CHECKING:
    from .posterior import Posterior

FEATURES = 2048  # frequencies for each term of the kernel
ROWS = 4096  # queries that are computed together, and places where `maxima` starts to look


@dataclass(frozen=True, eq=False)
class Paths:
    """Draws of whole functions: `paths(X)` gives values (size, n), `paths.gradient(X)` (size, n, d)."""

    kernel: Kernel
    basis: Basis
    mean_function: Mean
    waves: Waves
    weights: np.ndarray  # (features, size · p)
    coefficients: np.ndarray  # (m, size · p)
    outputs: int | None = None  # p; None is one output without an axis of its own
    units: tuple[Any, Any, Any, Any] = (0.0, 1.0, 0.0, 1.0)  # x_mean, x_scale, y_mean, y_scale

    def __len__(self) -> int:
        return self.weights.shape[1] // (self.outputs or 1)

    def __call__(self, X: Array) -> np.ndarray:
        """Return the values of each function at each row. (size, n) or (size, n, p)"""
        X = self._own(X)
        values = np.empty((len(X), self.weights.shape[1]))
        for rows in row_slices(len(X), ROWS):
            values[rows] = self.waves(X[rows]) @ self.weights
            if len(self.basis):
                values[rows] += self.basis.cross(self.kernel, X[rows]) @ self.coefficients
        m0 = self.mean_function(X)
        values = values.reshape(len(X), len(self), -1) + m0.reshape(len(X), 1, -1)
        values = values.transpose(1, 0, 2) * self.units[3] + self.units[2]
        return values[:, :, 0] if self.outputs is None else values

    def gradient(self, X: Array) -> np.ndarray:
        """Return the gradient of each function at each row. (size, n, d) or (size, n, d, p)"""
        X, p = self._own(X), self.outputs or 1
        slopes = self.waves.gradient(X, self.weights)
        for j, alpha in enumerate(self.coefficients.T):
            slopes[j] += self.mean_function.input_gradient(X, j % p)
            if len(self.basis):
                slopes[j] += self.basis.input_gradient(self.kernel, X, np.ascontiguousarray(alpha))
        slopes = slopes.reshape(len(self), p, *X.shape) / np.asarray(self.units[1])
        slopes = np.moveaxis(slopes, 1, -1) * self.units[3]
        return slopes[..., 0] if self.outputs is None else slopes

    def in_units(self, x_mean: Given, x_scale: Given, y_mean: Given, y_scale: Given) -> Paths:
        """Return the functions from x to y, if these are of (x - x_mean)/x_scale and (y - y_mean)/y_scale."""
        return replace(self, units=(x_mean, x_scale, y_mean, y_scale))

    def maxima(self, low: Given, high: Given, rng: Seed = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return where each function is largest in the box from `low` to `high`, and its value there, by a
        climb from the best of many random places. (size, d), (size,)
        """
        from scipy.optimize import minimize

        if self.outputs is not None:
            raise ParameterError("a function with several outputs has no maximum; ask for one output")
        low, high = checked_box(low, high)
        places = np.random.default_rng(rng).uniform(low, high, (ROWS, len(low)))
        values = self(places)  # (size, ROWS)
        tops = []
        for j, row in enumerate(values):
            one = replace(self, weights=self.weights[:, [j]], coefficients=self.coefficients[:, [j]])

            def down(x: np.ndarray, one: Paths = one) -> tuple[float, np.ndarray]:
                return -float(one(x[None])[0, 0]), -one.gradient(x[None])[0, 0]

            start = places[np.argmax(row)]
            top = minimize(down, start, jac=True, method="L-BFGS-B", bounds=list(zip(low, high)))
            tops.append(np.clip(top.x, low, high))
        best = np.stack(tops)
        return best, np.array([self(x[None])[j, 0] for j, x in enumerate(best)])

    def _own(self, X: Array) -> np.ndarray:
        """Return queries in the units of the process."""
        X = np.atleast_2d(as_floats(to_numpy(X), "X"))
        return (X - self.units[0]) / self.units[1]


def checked_box(low: Given, high: Given) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of a box (d,) as arrays. Raise unless low < high."""
    low, high = np.atleast_1d(low).astype(float), np.atleast_1d(high).astype(float)
    if low.shape != high.shape or not np.all(low < high):
        raise ParameterError(f"the box must have low < high for each input, but is {low} to {high}")
    return low, high


class Drawn(Protocol):
    """A model whose functions can be drawn: a posterior or an estimator."""

    def paths(self, size: int, rng: Seed, /) -> Paths: ...

    def predict(self, X: Array, /) -> tuple[Array, ...]: ...


def draw_paths(post: Posterior, size: int, rng: Seed, features: int = FEATURES) -> Paths:
    """Draw `size` functions from a process. Raise if its conditional (FIC) or kernel allows no such draws."""
    if post.conditional == "independent":
        raise ConditionalError("a process with an independent conditional (FIC) has no paths; use 'fitc'")
    if size < 1:
        raise ParameterError(f"size must be at least 1, but is {size}")
    if len(post) == 0:
        raise ParameterError("a prior without a basis does not know its inputs; use prior(kernel, basis=...)")
    generator, p, m = np.random.default_rng(rng), post.w.shape[1], len(post)
    d = post.basis.centers.shape[1]
    L, w = to_numpy(post.L), np.tile(to_numpy(post.w), size)  # (m, size · p), the outputs of a draw together
    if post.conditional == "deterministic":
        prior = Waves(np.zeros((0, d)), np.zeros(0), np.zeros((d, 0)))
    else:
        prior = waves(post.kernel, d, features, generator)
    weights = generator.standard_normal((len(prior), size * p))
    drawn = _on_basis(prior, post.kernel, post.basis) @ weights  # u₀
    if post.A is None:  # the exact GP: L factors K + Σ, and u₀ is observed with noise
        assert post.added is not None
        drawn = drawn + np.sqrt(to_numpy(post.added))[:, None] * generator.standard_normal((m, size * p))
    else:
        A = to_numpy(post.A)
        w = w + A @ generator.standard_normal((A.shape[1], size * p))
    coefficients = solve_lower(L, w - solve_lower(L, drawn), transposed=True)
    outputs = None if post.one_output else p
    own = post.to_numpy()
    return Paths(own.kernel, own.basis, own.mean_function, prior, weights, coefficients, outputs)


def _on_basis(prior: Waves, kernel: Kernel, basis: Basis) -> np.ndarray:
    """Return the inducing variables of each feature: values at points, or inner products with Gaussians,
    where width s damps a wave by Π √(√(2s² - ℓ²)/ℓ) exp(-ω²(s² - ℓ²)/2). (m, features)
    """
    if not isinstance(basis, Multiscale):
        return prior(to_numpy(basis.Z))
    widths = to_numpy(basis.widths)
    scales = to_numpy(kernel.scales(widths))  # type: ignore[attr-defined]
    heights = np.prod(np.sqrt(np.sqrt(2.0 * widths**2 - scales**2) / scales), axis=1)
    exponents = -0.5 * (widths**2 - scales**2) @ (prior.frequencies**2).T
    return prior(to_numpy(basis.centers), heights[:, None] * np.exp(exponents))


def probability_of_maximum(process: Drawn | Paths, X: Array, size: int = 1000, rng: Seed = 0) -> np.ndarray:
    """Return the probability that f is largest at each row, from `size` draws or the given ones. (n,)"""
    paths = process if isinstance(process, Paths) else process.paths(size, rng)
    values = paths(X)
    if values.ndim != 2:
        raise ParameterError("several outputs have no one maximum; ask for one output")
    return np.bincount(np.argmax(values, axis=1), minlength=values.shape[1]) / len(values)


def probability_above(process: Drawn, X: Array, level: float) -> np.ndarray:
    """Return the probability that f lies above a level at each row. (n,)"""
    if hasattr(process, "get_params"):
        mean, std = process.predict(X, return_std=True, latent=True)  # type: ignore[call-arg]
    else:
        mean, variance = (to_numpy(a) for a in process.predict(X))
        std = np.sqrt(np.maximum(variance, 0.0))
    std = np.maximum(std, np.finfo(float).tiny)
    return special(np).ndtr((mean - level) / std)
