"""Compiled inner loops: no interpreter lock, no threads of their own."""

from math import exp, log, log1p, sqrt

import numpy as np

from .compiling import FAST, compiled, helper


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


@compiled()
def mirror(G: np.ndarray) -> None:
    """Copy the lower triangle onto the upper, in blocks that fit the cache."""
    m = G.shape[0]
    for i0 in range(0, m, 32):
        for j0 in range(0, i0 + 1, 32):
            for i in range(i0, min(i0 + 32, m)):
                for j in range(j0, min(j0 + 32, i)):
                    G[j, i] = G[i, j]


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


@helper()
def profile_value(s: float, profile: float) -> float:
    """The RBF kernel (0), or Matérn ½, 3/2 or 5/2 (1, 2, 3), of variance 1 at the squared distance s."""
    if profile == 0:
        return exp(-0.5 * s)
    if profile == 1:
        return exp(-sqrt(s))
    if profile == 2:
        r = sqrt(3.0 * s)
        return (1.0 + r) * exp(-r)
    r = sqrt(5.0 * s)
    return (1.0 + r + r * r / 3.0) * exp(-r)


@helper()
def _leaf_values(
    x: np.ndarray, table: np.ndarray, origin: np.ndarray, leaf: np.ndarray, s: np.ndarray
) -> float:
    """Put a leaf at each function into s (m,), and return it at x itself."""
    m, kind, shape, each, c = len(s), leaf[0], leaf[1], int(leaf[2]), int(leaf[3])
    own = 0.0
    for j in range(m):
        s[j] = 0.0
    for i in range(c):
        k = int(leaf[4 + i])
        here, z, p = x[k], table[k], leaf[4 + c + i * each :]
        if kind == 5:
            t = p[0] * (here - origin[k])
            own += t * (here - origin[k])
            for j in range(m):
                s[j] += t * (z[j] - origin[k])
        elif each == 1:
            for j in range(m):
                s[j] += p[0] * (here - z[j]) * (here - z[j])
        else:
            for j in range(m):
                s[j] += p[j] * (here - z[j]) * (here - z[j])
    if kind == 5:
        return own
    if kind == 4:
        for j in range(m):
            s[j] = exp(-shape * log1p(s[j] / (2.0 * shape)))
    else:
        for j in range(m):
            s[j] = profile_value(s[j], kind)
    return 1.0


@compiled(fastmath=FAST)
def predict_one(x: np.ndarray, table: np.ndarray, T: np.ndarray, form: np.ndarray) -> tuple[float, float]:
    """(mean, variance) at one point; see compiled.CompiledPredictor for what the arrays hold."""
    m, d, L, mean, whole = table.shape[1], len(x), int(form[4]), form[0], 0.0
    for k in range(d):
        mean += form[5 + k] * x[k]
    origin, at = form[5 + d : 5 + 2 * d + L], 5 + 2 * d + L
    if L > 0:
        given, x = x, np.empty(d + L)
        for k in range(d):
            x[k] = given[k]
        for k in range(d, d + L):
            v, a, b, c = given[int(form[at])], form[at + 1], form[at + 2], form[at + 3]
            x[k] = max(0.0, min((v - a) / (b - a), (c - v) / (c - b)))
            at += 4
    ku, product, s = np.zeros(m), np.empty(m), np.empty(m)
    for _ in range(int(form[3])):
        own, leaves = form[at], int(form[at + 1])
        at += 2
        for j in range(m):
            product[j] = own
        for _ in range(leaves):
            own *= _leaf_values(x, table, origin, form[at:], s)
            at += 4 + int(form[at + 3]) * (1 + int(form[at + 2]))
            for j in range(m):
                product[j] *= s[j]
        whole += own
        for j in range(m):
            ku[j] += product[j]
    squares = 0.0
    for i in range(m):
        t = 0.0
        for j in range(i + 1):
            t += T[i, j] * ku[j]
        squares += t * t
        mean += table[d + L, i] * ku[i]
    if form[2] == 0.0:
        return mean, form[1] + squares
    return mean, form[1] + form[2] * whole - squares
