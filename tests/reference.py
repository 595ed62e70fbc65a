"""The log evidence and its gradient for rows with a diagonal D, in plain NumPy: whole arrays, one line per
formula.

    D = share diag R + noise,  Pi = weights/D,  B = I + Phi Pi Phi',  w = B^-1 Phi Pi y
    e = y - Phi'w,  v = Pi e
    log q(y) = -1/2 [n log 2pi + sum log D + log|B| + sum e^2 Pi + |w|^2] - penalty
    g_D   = 1/2 (v^2 - Pi + Pi^2 phi'B^-1 phi)            r = share g_D - d penalty/dR
    Phi_  = w v' - B^-1 Phi Pi - 2 Phi diag(r)            Kuf_ = L^-T Phi_
    Kuu_  = -1/2 L^-T (ww' - I + B^-1 - 2 Phi diag(r) Phi') L^-1

O(nm^2) time and O(nm) memory; no chunks, threads or products with explicit inverses. RBF kernel on points;
nothing here comes from the package. A trailing underscore is dJ/d of the name; p outputs share everything but
y, w, e and v.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular

Array = np.ndarray
Penalty = Callable[
    [Array, Array, float], tuple[Array, Array, Array]
]  # of R, noise, share: value, d/dR, d/dnoise


def nothing(R: Array, noise: Array, share: float) -> tuple[Array, Array, Array]:
    return np.zeros_like(R), np.zeros_like(R), np.zeros_like(R)


def trace(R: Array, noise: Array, share: float) -> tuple[Array, Array, Array]:
    return R / (2 * noise), 1 / (2 * noise), -R / (2 * noise**2)


def power(R: Array, noise: Array, share: float) -> tuple[Array, Array, Array]:
    c, D = (1 - share) / (2 * share), share * R + noise
    return c * np.log(D / noise), c * share / D, c * (1 / D - 1 / noise)


ROWS: dict[str, tuple[float, Penalty]] = {
    "sor": (0.0, nothing),
    "dtc": (0.0, nothing),
    "vfe": (0.0, trace),
    "fitc": (1.0, nothing),
    "pep": (0.5, power),
}


def rbf(X: Array, Z: Array, lengthscale: Array, variance: float) -> Array:
    """variance exp(-1/2 sum_k (x_k - z_k)^2 / l_k^2). (n, m)"""
    s = np.zeros((len(X), len(Z)))
    for k in range(X.shape[1]):
        s += ((X[:, k, None] - Z[None, :, k]) / lengthscale[k]) ** 2
    return variance * np.exp(-0.5 * s)


def rbf_pullback(
    X: Array, Z: Array, K_: Array, K: Array, lengthscale: Array, variance: float
) -> tuple[Array, float, Array]:
    """dJ/dlengthscale (d,), dJ/dvariance and dJ/dZ (m, d) from K_ = dJ/dK."""
    W = K_ * K
    lengthscale_, Z_ = np.zeros(X.shape[1]), np.zeros(Z.shape)
    for k in range(X.shape[1]):
        t = X[:, k, None] - Z[None, :, k]  # (n, m)
        lengthscale_[k] = np.sum(W * t**2) / lengthscale[k] ** 3
        Z_[:, k] = np.sum(W * t, axis=0) / lengthscale[k] ** 2
    return lengthscale_, np.sum(W) / variance, Z_


def value_and_gradient(
    name: str,
    lengthscale: Any,
    variance: float,
    Z: Array,
    noise: Any,
    X: Array,
    y: Array,
    *,
    jitter: float = 1e-8,
    weights: Array | None = None,
    share: float | None = None,
) -> tuple[float, dict[str, Any]]:
    """log q(y) and its gradient in lengthscale (d,), variance, Z and noise (a number, or one per row)."""
    default, penalty = ROWS[name]
    a = default if share is None else share
    n, m = len(X), len(Z)
    lengthscale = np.asarray(lengthscale, dtype=float)
    sigma2 = np.broadcast_to(np.asarray(noise, dtype=float), (n,))
    c = np.ones(n) if weights is None else weights  # row i counts c_i times
    Y = y.reshape(n, -1)  # (n, p)
    p = Y.shape[1]

    Kuu, Kfu = rbf(Z, Z, lengthscale, variance), rbf(X, Z, lengthscale, variance)
    L = cholesky(Kuu + jitter * np.mean(np.diag(Kuu)) * np.eye(m), lower=True)
    Phi = solve_triangular(L, Kfu.T, lower=True)  # (m, n)
    R = variance - np.sum(Phi**2, axis=0)
    D = a * R + sigma2
    Pi = c / D
    B = np.eye(m) + (Phi * Pi) @ Phi.T
    w = np.linalg.solve(B, (Phi * Pi) @ Y)  # (m, p)
    E = Y - Phi.T @ w  # (n, p)
    V = Pi[:, None] * E
    lost, lost_R, lost_noise = penalty(R, sigma2, a)
    value = -0.5 * p * (np.sum(c * np.log(2 * np.pi * D)) + np.linalg.slogdet(B)[1])
    value += -0.5 * (np.sum(E * V) + np.sum(w**2)) - p * np.sum(c * lost)

    S = np.linalg.solve(B, Phi)  # (m, n)
    D_ = 0.5 * (np.sum(E * V, axis=1) - p * c + p * Pi * np.sum(Phi * S, axis=0)) / D
    R_ = a * D_ - p * c * lost_R
    Phi_ = w @ V.T - p * S * Pi - 2 * Phi * R_  # (m, n)
    Kuf_ = solve_triangular(L, Phi_, lower=True, trans=1)
    M = w @ w.T - p * (np.eye(m) - np.linalg.inv(B)) - 2 * (Phi * R_) @ Phi.T
    Kuu_ = -0.5 * solve_triangular(L, solve_triangular(L, M, lower=True, trans=1).T, lower=True, trans=1)
    Kuu_ += jitter / m * np.trace(Kuu_) * np.eye(m)  # the jitter follows the mean of Kuu's diagonal

    lengthscale_, variance_, Z_ = rbf_pullback(X, Z, Kuf_.T, Kfu, lengthscale, variance)
    from_gram = rbf_pullback(Z, Z, Kuu_, Kuu, lengthscale, variance)
    noise_ = D_ - p * c * lost_noise
    return float(value), {
        "kernel.lengthscale": lengthscale_ + from_gram[0],
        "kernel.variance": variance_ + from_gram[1] + np.sum(R_),
        "basis.Z": Z_ + 2 * from_gram[2],
        "noise": np.sum(noise_) if np.ndim(noise) == 0 else noise_,
    }
