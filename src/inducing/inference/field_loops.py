"""Compiled steps of learning vector fields, on p-by-p matrices: averages of mixtures, sweeps over nodes."""

from math import exp, inf, isfinite, log, sqrt

import numpy as np

from ..engine.site_loops import LEAST_SHARE
from ..numerics.compiling import compiled, helper

_jit = helper(_nrt=True)  # these functions allocate p-by-p arrays


@_jit
def explained(W: np.ndarray, Lam: np.ndarray, V: np.ndarray) -> float:
    """Write V = (W⁻¹ + Λ)⁻¹ = T(I + TᵀΛT)⁻¹Tᵀ, W = TTᵀ; return log |I + WΛ|, -inf if V is no covariance."""
    values, T = np.linalg.eigh(W)
    T *= np.sqrt(np.maximum(values, 0.0))  # W may be only semi-definite
    values, U = np.linalg.eigh(np.eye(len(W)) + np.dot(np.dot(T.T, Lam), T))
    if not values[0] > LEAST_SHARE:
        return -inf
    F = np.dot(T, U) / np.sqrt(values)
    V[:, :] = np.dot(F, F.T)
    return np.sum(np.log(values))


@_jit
def tilt(
    log_c: np.ndarray,  # (k,)
    b: np.ndarray,  # (k, p)
    Lam: np.ndarray,  # (k, p, p)
    mean: np.ndarray,  # (p,)
    W: np.ndarray,  # (p, p)
    q: np.ndarray,  # (p,): out
    r: np.ndarray,  # (p, p): out
) -> float:
    """Return log⟨Σⱼ exp(cⱼ + bⱼᵀz - ½ zᵀΛⱼz)⟩, z ~ N(mean, W); write its mean derivatives. [004 eqs F.2-F.9]

    With e = b - Λ mean and V = (W⁻¹ + Λ)⁻¹ a component has

        log sⱼ = c + bᵀmean - ½ meanᵀΛmean + ½ eᵀVe - ½ log|I + WΛ|,   ∂ = e - ΛVe,   ∂² = ΛVΛ - Λ

    NaN if a component has no average.
    """
    k, p = b.shape
    values, g, h = np.empty(k), np.empty((k, p)), np.empty((k, p, p))
    V = np.empty((p, p))
    top = -inf
    for j in range(k):
        values[j] = -inf
        if log_c[j] == -inf:
            continue
        log_det = explained(W, Lam[j], V)
        if log_det == -inf:
            return np.nan
        Lm = np.dot(Lam[j], mean)
        e = b[j] - Lm
        Ve, LV = np.dot(V, e), np.dot(Lam[j], V)
        values[j] = (
            log_c[j] + np.dot(b[j], mean) - 0.5 * np.dot(mean, Lm) + 0.5 * np.dot(e, Ve) - 0.5 * log_det
        )
        g[j] = e - np.dot(LV, e)
        h[j] = np.dot(LV, Lam[j]) - Lam[j]
        top = max(top, values[j])
    q[:], r[:, :] = 0.0, 0.0
    total = 0.0
    for j in range(k):
        if values[j] > -inf:
            share = exp(values[j] - top)
            total += share
            q += share * g[j]
            r += share * (np.outer(g[j], g[j]) + h[j])
    q /= total
    r[:, :] = r / total - np.outer(q, q)
    return top + log(total)


@compiled()
def tilt_rows(
    log_c: np.ndarray,
    b: np.ndarray,
    Lam: np.ndarray,
    mean: np.ndarray,
    W: np.ndarray,
    values: np.ndarray,
    q: np.ndarray,
    r: np.ndarray,
) -> None:
    """Apply `tilt` to every row."""
    for i in range(len(mean)):
        values[i] = tilt(log_c[i], b[i], Lam[i], mean[i], W[i], q[i], r[i])


@_jit
def symmetric(M: np.ndarray) -> np.ndarray:
    return 0.5 * (M + M.T)


@_jit
def effective(Lam: np.ndarray, b: np.ndarray, Gamma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the site exp(bᵀg - ½ gᵀΛg) as it acts on φᵀv, g = φᵀv + N(0, Γ): (I + ΛΓ)⁻¹Λ and (I + ΛΓ)⁻¹b."""
    M = np.eye(len(b)) + np.dot(Lam, Gamma)
    return symmetric(np.linalg.solve(M, Lam)), np.linalg.solve(M, b)


@compiled()
def sweep(
    S: np.ndarray,  # (m, m): changes
    w: np.ndarray,  # (m,): changes
    Phi: np.ndarray,  # (n, p, m)
    Gamma: np.ndarray,  # (n, p, p)
    prior: np.ndarray,  # (n, p): prior mean
    log_c: np.ndarray,  # (n, k)
    b: np.ndarray,  # (n, k, p)
    Lam: np.ndarray,  # (n, k, p, p)
    order: np.ndarray,  # the rows to visit, in this order
    site_Lam: np.ndarray,  # (n, p, p): changes
    site_b: np.ndarray,  # (n, p): changes
    rate: float,
) -> tuple[int, float, float]:
    """Replace each node's site by that of its mixture's average without it. [004 eqs 4.18, 4.36, 5.38]

    With sites of zero this is online learning. Return how many nodes were done, fewer than all if one failed,
    the largest move of a site in units of its node's spread, and Σ log⟨t⟩.
    """
    m, p = len(w), prior.shape[1]
    largest, total = 0.0, 0.0
    q, r, V = np.empty(p), np.empty((p, p)), np.empty((p, p))
    I = np.eye(p)
    for place in range(len(order)):
        i = order[place]
        G = np.dot(Phi[i], S)  # (p, m)
        s, mu = symmetric(np.dot(G, Phi[i].T)), np.dot(Phi[i], w)
        out_Lam, out_b = effective(site_Lam[i], site_b[i], Gamma[i])
        if explained(s, -out_Lam, V) == -inf:  # no proper cavity while other sites have negative directions
            largest = inf
            continue
        cavity = mu + np.dot(V, np.dot(out_Lam, mu) - out_b)
        cov = V + Gamma[i]
        value = tilt(log_c[i], b[i], Lam[i], prior[i] + cavity, cov, q, r)
        if not isfinite(value):
            return place, largest, total
        total += value
        M = I + np.dot(r, cov)
        new_Lam = symmetric(-np.linalg.solve(M, r))
        new_b = np.linalg.solve(M, q - np.dot(r, cavity))
        new_Lam = site_Lam[i] + rate * (new_Lam - site_Lam[i])
        new_b = site_b[i] + rate * (new_b - site_b[i])
        in_Lam, in_b = effective(new_Lam, new_b, Gamma[i])
        step_Lam, step_b = in_Lam - out_Lam, in_b - out_b
        M = I + np.dot(step_Lam, s)
        change = symmetric(np.linalg.solve(M, step_Lam))  # S loses Gᵀ(I + ΔΛ s)⁻¹ΔΛ G
        shift = np.linalg.solve(M, step_b - np.dot(step_Lam, mu))
        if not (np.all(np.isfinite(change)) and np.all(np.isfinite(shift))):
            return place, largest, total
        spread = np.trace(s + Gamma[i]) / p
        move = max(
            np.max(np.abs(new_Lam - site_Lam[i])) * spread, np.max(np.abs(new_b - site_b[i])) * sqrt(spread)
        )
        largest = max(largest, move)
        site_Lam[i], site_b[i] = new_Lam, new_b
        H = np.dot(change, G)  # (p, m)
        for h in range(m):
            for a in range(p):
                t = G[a, h]
                w[h] += shift[a] * t
                for c in range(m):
                    S[h, c] -= t * H[a, c]
    return len(order), largest, total
