"""Compiled inner loops: no interpreter lock, no threads of their own."""

from math import log, sqrt

import numpy as np

from .compiling import FAST, compiled


@compiled(fastmath=FAST)
def affine_squared_distances(
    X: np.ndarray, Zt: np.ndarray, scale: np.ndarray, constant: float, factor: float, out: np.ndarray
) -> None:
    """out[i, j] = constant + factor Σ_k ((X[i, k] - Zt[k, j]) scale_k)², four inputs at a time."""
    n, d = X.shape
    m = Zt.shape[1]
    whole = d - d % 4
    for i in range(n):
        row = out[i]
        for j in range(m):
            row[j] = 0.0
        for k in range(0, whole, 4):
            x0, x1, x2, x3 = X[i, k], X[i, k + 1], X[i, k + 2], X[i, k + 3]
            s0, s1, s2, s3 = scale[k], scale[k + 1], scale[k + 2], scale[k + 3]
            for j in range(m):
                t0, t1 = (x0 - Zt[k, j]) * s0, (x1 - Zt[k + 1, j]) * s1
                t2, t3 = (x2 - Zt[k + 2, j]) * s2, (x3 - Zt[k + 3, j]) * s3
                row[j] += (t0 * t0 + t1 * t1) + (t2 * t2 + t3 * t3)
        for k in range(whole, d):
            x0, s0 = X[i, k], scale[k]
            for j in range(m):
                t0 = (x0 - Zt[k, j]) * s0
                row[j] += t0 * t0
        for j in range(m):
            row[j] = constant + factor * row[j]


@compiled(fastmath=FAST)
def split_scaled(A: np.ndarray, weights: np.ndarray, out: np.ndarray) -> int:
    """Put √|weight| A into out: rows of weight ≥ 0 from the top (returns how many), others from the end."""
    top, bottom = 0, len(A)
    for i in range(len(A)):
        root = sqrt(abs(weights[i]))
        if weights[i] >= 0:
            to = top
            top += 1
        else:
            bottom -= 1
            to = bottom
        for j in range(A.shape[1]):
            out[to, j] = root * A[i, j]
    return top


@compiled(fastmath=FAST)
def gaussian_gram(
    v: np.ndarray, s2: np.ndarray, l2: np.ndarray, constants: np.ndarray, E: np.ndarray
) -> None:
    """E_ij = c_i + c_j - ½ Σ_k [log τ² + (v_i - v_j)²/τ²] with τ² = s_i² + s_j² - ℓ². v, s2 (d, m)"""
    d, m = v.shape
    product = np.empty(m)
    for i in range(m):
        row = E[i]
        for j in range(i + 1):
            row[j] = 0.0
            product[j] = 1.0
        for k in range(d):
            here, width = v[k, i], s2[k, i] - l2[k]
            for j in range(i + 1):
                tau2, difference = width + s2[k, j], here - v[k, j]
                row[j] += difference * difference / tau2
                product[j] *= tau2
            if k % 8 == 7 or k == d - 1:  # one logarithm for eight inputs
                for j in range(i + 1):
                    row[j] += log(product[j])
                    product[j] = 1.0
        for j in range(i + 1):
            row[j] = constants[i] + constants[j] - 0.5 * row[j]
            E[j, i] = row[j]


@compiled(fastmath=FAST)
def gaussian_gram_pullback(
    v: np.ndarray, s2: np.ndarray, l2: np.ndarray, W: np.ndarray, slopes: np.ndarray, widths: np.ndarray
) -> None:
    """slopes = Σ_j W_ij (v_i - v_j)/τ² and widths = ½ Σ_j W_ij [(v_i - v_j)²/τ⁴ - 1/τ²], each (d, m)."""
    d, m = v.shape
    for i in range(m):
        row = W[i]
        for k in range(d):
            here, width, slope, change = v[k, i], s2[k, i] - l2[k], 0.0, 0.0
            for j in range(m):
                inverse = 1.0 / (width + s2[k, j])
                t = (here - v[k, j]) * inverse
                slope += row[j] * t
                change += row[j] * (t * t - inverse)
            slopes[k, i], widths[k, i] = slope, 0.5 * change
