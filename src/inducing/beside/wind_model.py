"""Model of a scatterometer: radar backscatter of a wind, and winds that its data allow. [004 §5.4.1]

Winds are vectors z = (u, v) in m/s in a plane with axes x and y; azimuths are degrees clockwise from y. Radar
backscatter is handled as log σ⁰, so that noise of a few per cent is additive.

CMOD5.N: Hersbach, Stoffelen & de Haan (2007), J. Geophys. Res. 112, C03006; neutral-wind coefficients of
Hersbach (2008).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import NoiseError, ShapeError
from ..inference.mixtures import Mixtures

COEFFICIENTS = """
    -0.6878 -0.7957 0.3380 -0.1728 0.0000 0.0040 0.1103 0.0159 6.7329 2.7713 -2.2885 0.4971 -0.7250 0.0450
    0.0066 0.3222 0.0120 22.7000 2.0813 3.0000 8.3659 -3.3428 1.3236 6.2437 2.3893 0.3249 4.1590 1.6930
"""
C = np.array([np.nan, *map(float, COEFFICIENTS.split())])  # c₁ … c₂₈, counted from 1 as printed
POWER = 1.6
SLOWEST = 0.2  # m/s, below which the model is not defined

SPEEDS = np.geomspace(0.5, 40.0, 60)  # the grid on which minima of the misfit are searched for, in m/s
DIRECTIONS = np.arange(0.0, 360.0, 5.0)  # and degrees
REFINING_STEPS = 30  # steps from the grid down the misfit


def cmod5n(speed: Any, angle: Any, incidence: Any) -> np.ndarray:
    """Return σ⁰ = B₀ (1 + B₁ cos φ + B₂ cos 2φ)^1.6, linear, for winds of this speed (m/s); `angle` φ is the
    direction the wind blows from less the radar's azimuth, `incidence` the radar's, in degrees.
    """
    phi = np.radians(angle)
    (log_B0, B1, B2), _ = _coefficients(np.asarray(speed, dtype=float), np.asarray(incidence, dtype=float))
    return np.exp(log_B0) * (1.0 + B1 * np.cos(phi) + B2 * np.cos(2.0 * phi)) ** POWER


def _coefficients(
    v: np.ndarray, incidence: np.ndarray
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Return log B₀, B₁ and B₂, and their derivatives in the speed v."""
    v = np.maximum(v, SLOWEST)
    x = (incidence - 40.0) / 25.0
    a0, a1 = C[1] + x * (C[2] + x * (C[3] + x * C[4])), C[5] + C[6] * x
    a2, gamma, s0 = C[7] + C[8] * x, C[9] + x * (C[10] + x * C[11]), C[12] + C[13] * x
    s = a2 * v
    f, g0 = 1.0 / (1.0 + np.exp(-s)), 1.0 / (1.0 + np.exp(-s0))
    power = s0 * (1.0 - g0)
    fast = s >= s0
    low = np.where(fast, 1.0, s / s0)
    log_f = np.where(fast, np.log(f), power * np.log(low) + np.log(g0))
    log_B0 = gamma * log_f + np.log(10.0) * (a0 + a1 * v)
    log_B0_v = gamma * np.where(fast, a2 * (1.0 - f), power / v) + np.log(10.0) * a1

    T, growth = np.tanh(4.0 * (x + C[16] + C[17] * v)), np.exp(0.34 * (v - C[18]))
    B1 = (C[14] * (1.0 + x) - C[15] * v * (0.5 + x - T)) / (1.0 + growth)
    slope = -C[15] * (0.5 + x - T) + 4.0 * C[15] * C[17] * v * (1.0 - T * T)
    B1_v = (slope - 0.34 * growth * B1) / (1.0 + growth)

    v0, d1, d2 = C[21] + x * (C[22] + x * C[23]), C[24] + x * (C[25] + x * C[26]), C[27] + C[28] * x
    a, b = C[19] - (C[19] - 1.0) / C[20], 1.0 / (C[20] * (C[19] - 1.0) ** (C[20] - 1.0))
    slow = v / v0 + 1.0 < C[19]
    y = np.where(slow, a + b * (v / v0) ** C[20], v / v0 + 1.0)
    y_v = np.where(slow, b * C[20] * (v / v0) ** (C[20] - 1.0), 1.0) / v0
    B2 = (-d1 + d2 * y) * np.exp(-y)
    return (log_B0, B1, B2), (log_B0_v, B1_v, y_v * (d1 + d2 - d2 * y) * np.exp(-y))


@dataclass(frozen=True, eq=False)
class Beams:
    """Azimuth and incidence of the radar's beams at n nodes, in degrees."""

    azimuth: np.ndarray  # (n, beams)
    incidence: np.ndarray  # (n, beams)

    @staticmethod
    def ers(across: Any, heading: float = 0.0) -> "Beams":
        """Return the fore, mid and aft beam of ERS, or one side of ASCAT, at 45°, 90°, 135°; `across` (n,) is
        the place in the swath, 0 (near) to 1 (far), for incidences of 34° to 64°, 25° to 53°, 34° to 64°.
        """
        across = np.asarray(across, dtype=float)[:, None]
        near, far = np.array([34.0, 25.0, 34.0]), np.array([64.0, 53.0, 64.0])
        return Beams(heading + np.array([45.0, 90.0, 135.0]) + 0.0 * across, near + (far - near) * across)

    def __post_init__(self) -> None:
        shapes = np.shape(self.azimuth), np.shape(self.incidence)
        if shapes[0] != shapes[1] or len(shapes[0]) != 2:
            raise ShapeError(f"azimuth {shapes[0]} and incidence {shapes[1]} must both be (nodes, beams)")

    def __len__(self) -> int:
        return len(self.azimuth)


def log_backscatter(winds: Any, beams: Beams) -> tuple[np.ndarray, np.ndarray]:
    """Return log σ⁰ (n, …, beams) of winds (n, …, 2), and its derivatives in the wind (n, …, beams, 2)."""
    winds = np.asarray(winds, dtype=float)
    shape = (len(beams), *(1,) * (winds.ndim - 2), beams.azimuth.shape[1])
    azimuth, incidence = (v.reshape(shape) for v in (beams.azimuth, beams.incidence))
    u, v = winds[..., 0, None], winds[..., 1, None]  # (n, …, 1)
    speed = np.maximum(np.hypot(u, v), SLOWEST)
    phi = np.arctan2(-u, -v) - np.radians(azimuth)
    (log_B0, B1, B2), (log_B0_v, B1_v, B2_v) = _coefficients(speed, incidence)
    cos, cos2 = np.cos(phi), np.cos(2.0 * phi)
    shape_of = 1.0 + B1 * cos + B2 * cos2
    by_speed = log_B0_v + POWER * (B1_v * cos + B2_v * cos2) / shape_of
    by_angle = -POWER * (B1 * np.sin(phi) + 2.0 * B2 * np.sin(2.0 * phi)) / shape_of
    by_u = by_speed * u / speed + by_angle * v / speed**2
    by_v = by_speed * v / speed - by_angle * u / speed**2
    return log_B0 + POWER * np.log(shape_of), np.stack([by_u, by_v], axis=-1)


def measure(winds: Any, beams: Beams, noise: float, rng: Any = 0) -> np.ndarray:
    """Simulate log σ⁰ (n, beams) of winds (n, 2) with noise of this variance: 0.05² is five per cent."""
    clean = log_backscatter(winds, beams)[0]
    return clean + np.sqrt(_variance(noise)) * np.random.default_rng(rng).standard_normal(clean.shape)


@dataclass(frozen=True, eq=False)
class Ambiguities:
    """Winds that explain each node's data, most probable first, as weighted Gaussians. [004 eq. 5.32]"""

    winds: np.ndarray  # (n, k, 2): minima of the misfit
    misfits: np.ndarray  # (n, k): ½ Σ (log σ⁰ - model)²/noise there; inf where there is none
    weights: np.ndarray  # (n, k): β, of p(z | s) under the prior; 0 where there is none
    means: np.ndarray  # (n, k, 2)
    covariances: np.ndarray  # (n, k, 2, 2)
    prior_mean: np.ndarray  # (n, 2)
    prior_covariance: np.ndarray  # (n, 2, 2)

    def likelihood(self) -> Mixtures:
        """Return p(z | s)/p₀(z), the likelihood of the measurements alone. [004 eq. 5.33]"""
        return Mixtures.of(self.weights, self.means, self.covariances, self.prior_mean, self.prior_covariance)

    def nearest(self, winds: Any) -> np.ndarray:
        """Return the number of the ambiguity nearest to each wind (n, 2). (n,)"""
        distance = np.linalg.norm(self.winds - np.asarray(winds)[:, None], axis=2)
        return np.argmin(np.where(np.isfinite(self.misfits), distance, np.inf), axis=1)


def retrieve_locally(
    s: Any, beams: Beams, noise: float, prior_mean: Any, prior_covariance: Any, most: int = 4
) -> Ambiguities:
    """Invert the forward model at each node on its own; s (n, beams) is log σ⁰ with this noise variance.

    Minima of the misfit are found on a grid of directions, each with its best speed, and refined by
    Gauss-Newton steps; J being the model's slopes there, H = JᵀJ/noise. With the prior N(μ₀, W₀) the
    component of a minimum ẑ is a Gaussian with

        A⁻¹ = H + W₀⁻¹,   c = A (Hẑ + W₀⁻¹μ₀),   β ∝ exp(-misfit) |A|^½ exp(-½ (Hẑ)ᵀẑ - …)

    that is, the product of exp(-misfit - ½ (z - ẑ)ᵀH(z - ẑ)) with the prior.
    """
    s, noise = np.asarray(s, dtype=float), _variance(noise)
    n = len(beams)
    winds, misfits = _minima(s, beams, noise, most)  # (n, k, 2), (n, k)
    J = log_backscatter(winds, beams)[1]
    H = np.einsum("nkbi,nkbj->nkij", J, J) / noise
    mu0, W0 = np.broadcast_to(prior_mean, (n, 2)), np.broadcast_to(prior_covariance, (n, 2, 2))
    P0 = np.linalg.inv(W0)[:, None]  # (n, 1, 2, 2)
    A = np.linalg.inv(H + P0)
    pull = np.einsum("nkij,nkj->nki", H, winds) + np.einsum("nkij,nj->nki", P0, mu0)
    means = np.einsum("nkij,nkj->nki", A, pull)
    level = np.einsum("nki,nki->nk", pull, means) - np.einsum("nki,nkij,nkj->nk", winds, H, winds)
    log_beta = -misfits + 0.5 * np.linalg.slogdet(A)[1] + 0.5 * level
    log_beta -= np.logaddexp.reduce(log_beta, axis=1, keepdims=True)
    return Ambiguities(winds, misfits, np.exp(log_beta), means, A, mu0, W0)


def _misfit(s: np.ndarray, winds: np.ndarray, beams: Beams, noise: float) -> np.ndarray:
    """Return ½ Σ (log σ⁰ - model)²/noise for winds (n, …, 2). (n, …)"""
    model = log_backscatter(winds, beams)[0]
    return 0.5 * np.sum((s.reshape(len(s), *(1,) * (winds.ndim - 2), -1) - model) ** 2, axis=-1) / noise


def _minima(s: np.ndarray, beams: Beams, noise: float, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Find up to `most` minima of each node's misfit, least first: winds (n, k, 2), misfits (n, k) or inf."""
    angle = np.radians(DIRECTIONS)
    speeds = SPEEDS[:, None, None]
    grid = speeds * np.stack([np.sin(angle), np.cos(angle)], axis=-1)  # (speeds, directions, 2)
    (log_B0, B1, B2), _ = _coefficients(speeds, beams.incidence[:, None, None])  # (n, speeds, 1, beams)
    phi = angle[:, None] + np.pi - np.radians(beams.azimuth)[:, None, None]  # (n, 1, directions, beams)
    model = log_B0 + POWER * np.log(1.0 + B1 * np.cos(phi) + B2 * np.cos(2.0 * phi))
    values = np.sum((s[:, None, None] - model) ** 2, axis=-1)  # (n, speeds, directions)
    best = np.argmin(values, axis=1)  # (n, directions)
    along = np.take_along_axis(values, best[:, None], axis=1)[:, 0]
    valley = (along <= np.roll(along, 1, axis=1)) & (along < np.roll(along, -1, axis=1))
    ranked = np.argsort(np.where(valley, along, np.inf), axis=1)[:, :most]
    winds = grid[np.take_along_axis(best, ranked, axis=1), ranked]  # (n, k, 2)
    winds = _refined(s, winds, beams, noise)
    misfits = np.where(np.take_along_axis(valley, ranked, axis=1), _misfit(s, winds, beams, noise), np.inf)
    for j in range(1, most):  # starts that ended in one minimum count once
        apart = np.linalg.norm(winds[:, :j] - winds[:, j, None], axis=2) > 0.1
        misfits[:, j] = np.where(np.all(apart | np.isinf(misfits[:, :j]), axis=1), misfits[:, j], np.inf)
    ranked = np.argsort(misfits, axis=1)
    return np.take_along_axis(winds, ranked[:, :, None], axis=1), np.take_along_axis(misfits, ranked, axis=1)


def _refined(s: np.ndarray, winds: np.ndarray, beams: Beams, noise: float) -> np.ndarray:
    """Go down the misfit by Levenberg's steps, from all starts at once."""
    damping = np.full(winds.shape[:2], 1e-3)
    value = _misfit(s, winds, beams, noise)
    for _ in range(REFINING_STEPS):
        model, J = log_backscatter(winds, beams)
        H = np.einsum("nkbi,nkbj->nkij", J, J) / noise
        g = np.einsum("nkbi,nkb->nki", J, s[:, None] - model) / noise
        scale = damping * np.trace(H, axis1=2, axis2=3)
        step = np.linalg.solve(H + scale[..., None, None] * np.eye(2), g[..., None])[..., 0]
        trial = winds + step
        new = _misfit(s, trial, beams, noise)
        better = new < value
        winds, value = np.where(better[..., None], trial, winds), np.where(better, new, value)
        damping = np.where(better, 0.2 * damping, 5.0 * damping)
    return winds


def _variance(noise: float) -> float:
    if not 0.0 < noise < np.inf:
        raise NoiseError(f"noise is the variance of log σ⁰ and must be positive and finite, but is {noise}")
    return float(noise)
