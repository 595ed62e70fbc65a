"""Random waves, whose weighted sums are whole functions drawn from the prior of a kernel.

By Bochner's theorem a stationary kernel is variance · E cos ωᵀ(x - z), so that with F frequencies

    f(x) = Σ_r √(variance/F) (ξ_r cos ω_rᵀx + η_r sin ω_rᵀx)

has the kernel's variance exactly, and its covariance up to the error of the average. Frequencies ω are z/ℓ
with standard normal z for the RBF, a multivariate t over ℓ for Matérn [002 §2.3], z/ℓ times the root of a
gamma variable for the rational quadratic, and whole multiples of 2π/period for a periodic kernel.
"""

from dataclasses import dataclass

import numpy as np

from ...errors import ParameterError
from ...numerics.arrays import to_numpy
from ...numerics.special import special
from .base import Kernel
from .changed import OfFeatures, Projected
from .composite import Product, Sum
from .dot import Constant, Linear
from .periodic import Periodic
from .stationary import RBF, Matern, Matern12, Matern32, Matern52, RationalQuadratic, Stationary

DEGREES: dict[type[Kernel], float] = {Matern12: 1.0, Matern32: 3.0, Matern52: 5.0}  # twice ν
EDGE = 1e-12  # the distance that uniform numbers keep from 0 and 1, where quantiles are infinite


@dataclass(frozen=True, eq=False)
class Waves:
    """Functions whose weights are independent standard normal in the prior: waves, and linear functions."""

    frequencies: np.ndarray  # (F, d), or (F, d + L) with L features of the inputs
    amplitudes: np.ndarray  # (F,), of a cosine and of a sine each
    slopes: np.ndarray  # (d, s)
    features: OfFeatures | None = None  # the kernel that gives the features

    def __len__(self) -> int:
        return 2 * len(self.amplitudes) + self.slopes.shape[1]

    def __call__(self, X: np.ndarray, damping: np.ndarray | None = None) -> np.ndarray:
        """Return the functions at each row, the waves times `damping` (n, F) if given. (n, functions)"""
        X = X if self.features is None else self.features.changed(X)
        angles = X @ self.frequencies.T
        heights = self.amplitudes if damping is None else self.amplitudes * damping
        return np.concatenate([np.cos(angles) * heights, np.sin(angles) * heights, X @ self.slopes], axis=1)

    def gradient(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return d/dx of the sums of the functions with weights (functions, k). (k, n, d)"""
        d = X.shape[1]
        X, rises = (X, None) if self.features is None else self.features.features(X)
        F, angles = len(self.amplitudes), X @ self.frequencies.T
        cos, sin = np.cos(angles) * self.amplitudes, np.sin(angles) * self.amplitudes
        parts = [
            (cos * b - sin * a) @ self.frequencies + self.slopes @ s
            for a, b, s in zip(weights[:F].T, weights[F : 2 * F].T, weights[2 * F :].T)
        ]
        whole = np.stack(parts)
        if self.features is None:
            return whole
        return whole[:, :, :d] + (whole[:, :, d:] * rises) @ self.features.columns_of(d)


def waves(kernel: Kernel, d: int, count: int, rng: np.random.Generator) -> Waves:
    """Draw waves of a kernel of d inputs, `count` for each term of a sum. Raise if it has no such form."""
    terms = kernel.parts if isinstance(kernel, Sum) else (kernel,)
    featured = [term for term in terms if isinstance(term, OfFeatures)]
    first = featured[0] if featured else None
    inputs = d if first is None else d + len(first.owners)
    if first is not None and not all(np.array_equal(own.hats, first.hats) for own in featured):
        name = type(first).__name__
        raise ParameterError(f"whole functions of several {name} kernels need the same features; use sample")
    each = [
        waves(term.kernel, inputs, count, rng)
        if isinstance(term, OfFeatures)
        else _waves_of_term(term, d, count, rng)
        for term in terms
    ]
    if any(own.features is not None for own in each):
        raise ParameterError("no whole functions can be drawn from features of features; use sample")
    omega = [np.pad(own.frequencies, ((0, 0), (0, inputs - own.frequencies.shape[1]))) for own in each]
    slopes = [np.pad(own.slopes, ((0, inputs - len(own.slopes)), (0, 0))) for own in each]
    amplitudes = np.concatenate([own.amplitudes for own in each])
    return Waves(np.concatenate(omega), amplitudes, np.concatenate(slopes, axis=1), first)


def _waves_of_term(term: Kernel, d: int, count: int, rng: np.random.Generator) -> Waves:
    if isinstance(term, Linear):
        columns, root = _columns(term, d), np.zeros((d, d))
        root[columns, columns] = np.sqrt(np.broadcast_to(term.variance, len(columns)))
        return Waves(np.zeros((0, d)), np.zeros(0), root[:, columns])
    if isinstance(term, Constant):
        return Waves(np.zeros((1, d)), np.sqrt([term.variance]), np.zeros((d, 0)))
    variance, omega = _spectrum(term, d, count, rng)
    return Waves(omega, np.full(count, np.sqrt(variance / count)), np.zeros((d, 0)))


def _spectrum(kernel: Kernel, d: int, count: int, rng: np.random.Generator) -> tuple[float, np.ndarray]:
    """Return the variance and random frequencies of a stationary kernel: of a product, sums. (count, d)"""
    if isinstance(kernel, Product):
        parts = [_spectrum(part, d, count, rng) for part in kernel.parts]
        return float(np.prod([v for v, _ in parts])), np.sum([omega for _, omega in parts], axis=0)
    if isinstance(kernel, Projected) and kernel.columns is None:
        variance, omega = _spectrum(kernel.kernel, len(kernel.matrix), count, rng)
        return variance, omega @ kernel.matrix
    omega = np.zeros((count, d))
    if isinstance(kernel, Constant):
        return kernel.variance, omega
    if isinstance(kernel, Periodic):
        columns = _columns(kernel, d)
        u = _uniform(len(columns), count, rng)
        scales, periods = (np.broadcast_to(v, len(columns)) for v in (kernel.lengthscale, kernel.period))
        for j, column in enumerate(columns):
            omega[:, column] = 2.0 * np.pi / periods[j] * _harmonics(u[:, j], scales[j] ** -2.0)
        return kernel.variance, omega
    known = type(kernel) in (RBF, RationalQuadratic) or _degrees(kernel) is not None
    if not isinstance(kernel, Stationary) or not known:
        name = type(kernel).__name__
        raise ParameterError(f"no whole functions can be drawn from a {name} kernel; use sample")
    columns = _columns(kernel, d)
    u = _uniform(len(columns) + 1, count, rng)
    z = special(np).ndtri(u[:, 1:])
    if isinstance(kernel, RationalQuadratic):
        z *= np.sqrt(special(np).gammaincinv(kernel.shape, u[:, :1]) / kernel.shape)
    elif degrees := _degrees(kernel):
        z /= np.sqrt(2.0 * special(np).gammaincinv(0.5 * degrees, u[:, :1]) / degrees)
    omega[:, columns] = z / np.broadcast_to(to_numpy(kernel.lengthscale), len(columns))
    return kernel.variance, omega


def spectral_density(kernel: Stationary, frequencies: np.ndarray) -> np.ndarray:
    """Return the spectral density S of an RBF or Matérn kernel at frequencies (F, D) in cycles a unit. [002]

    k(x - z) = ∫ S(s) cos 2πsᵀ(x - z) ds. With D inputs, t = s ℓ in each, and times the product of all ℓ,

        RBF     variance (2π)^(D/2) exp(-2π²|t|²)
        Matérn  variance 2^D π^(D/2) Γ(ν + D/2)/Γ(ν) (2ν)^ν (2ν + 4π²|t|²)^-(ν + D/2)
    """
    s = np.atleast_2d(np.asarray(frequencies, dtype=float))
    D, degrees = s.shape[1], _degrees(kernel)
    scales = np.broadcast_to(np.asarray(to_numpy(kernel.lengthscale), dtype=float), (D,))
    squares, scale = np.sum((s * scales) ** 2, axis=1), float(kernel.variance * np.prod(scales))
    if degrees is None:
        if type(kernel) is not RBF:
            name = type(kernel).__name__
            raise ParameterError(f"only RBF and Matérn kernels have a spectral density here, not {name}")
        return scale * (2.0 * np.pi) ** (0.5 * D) * np.exp(-2.0 * np.pi**2 * squares)
    nu = 0.5 * degrees
    log_gamma = special(np).gammaln
    log_c = D * np.log(2.0) + 0.5 * D * np.log(np.pi) + log_gamma(nu + 0.5 * D) - log_gamma(nu)
    power = nu * np.log(2.0 * nu) - (nu + 0.5 * D) * np.log(2.0 * nu + 4.0 * np.pi**2 * squares)
    return scale * np.exp(log_c + power)


def _degrees(kernel: Kernel) -> float | None:
    """Return 2ν of a Matérn kernel, the degrees of freedom of its frequencies, or None for other kernels."""
    return 2.0 * float(kernel.nu) if isinstance(kernel, Matern) else DEGREES.get(type(kernel))


def _columns(kernel: Kernel, d: int) -> list[int]:
    return list(range(d)) if kernel.columns is None else list(kernel.columns)


def _uniform(d: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return `count` Sobol points of the unit cube, in random order: averages err less than at random."""
    from scipy.stats import qmc

    u = qmc.Sobol(d, seed=rng).random(1 << max(count - 1, 0).bit_length())[:count]
    return np.clip(rng.permutation(u), EDGE, 1.0 - EDGE)


def _harmonics(u: np.ndarray, concentration: float) -> np.ndarray:
    """Return quantiles u of integers n with probability e^-c I_n(c), c being the concentration."""
    most = int(8.0 * np.sqrt(concentration) + 16.0)
    n = np.arange(-most, most + 1)
    cumulative = np.cumsum(special(np).ive(np.abs(n), concentration))
    return n[np.minimum(np.searchsorted(cumulative, u * cumulative[-1]), 2 * most)].astype(float)
