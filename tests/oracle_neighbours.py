"""Dense references for R kept along nearest neighbours, formula by formula. Nothing here comes from the
package.

Row i has a set N of other rows; with A = (R + S)_NN, c = R_Ni, b = A^-1 c and d = R_ii + S_i - c'b, the
residuals have the precision sum_i m m'/d, m = e_i - b, S the noise. Everything else is conditioning of
Gaussians, n x n and slow.
"""

from typing import Any

import numpy as np

import oracle
from oracle import Array, Basis, Kernel


def residual_precision(R: Array, noise: Array, sets: Array) -> tuple[Array, Array]:
    """D^-1 (n, n), and the conditional variances d (n,)."""
    n = len(R)
    precision, d = np.zeros((n, n)), np.zeros(n)
    for i in range(n):
        N = [j for j in sets[i] if j >= 0]
        b = np.linalg.solve(R[np.ix_(N, N)] + np.diag(noise[N]), R[N, i])
        d[i] = R[i, i] + noise[i] - R[N, i] @ b
        m = np.zeros(n)
        m[i], m[N] = 1.0, -b
        precision += np.outer(m, m) / d[i]
    return precision, d


def log_evidence(
    k: Kernel, basis: Basis, noise: Any, X: Array, y: Array, sets: Array, weights: Any = None
) -> float:
    """log N(y | 0, Q + D) summed over outputs; c copies of a row share f: N(y | f, s/c) (2 pi
    s)^(-(c-1)/2) c^(-1/2).
    """
    n = len(X)
    noise, c = np.broadcast_to(noise, n), np.ones(n) if weights is None else weights
    Q = oracle.q_matrix(basis, X, X)
    D = np.linalg.inv(residual_precision(k(X, X) - Q, noise / c, sets)[0])
    Y = y.reshape(n, -1)
    value = -0.5 * Y.shape[1] * np.sum((c - 1) * np.log(2 * np.pi * noise) + np.log(c))
    sign, log_det = np.linalg.slogdet(2 * np.pi * (Q + D))
    assert sign > 0
    return value - 0.5 * (Y.shape[1] * log_det + np.sum(Y * np.linalg.solve(Q + D, Y)))


def predict(
    k: Kernel,
    basis: Basis,
    noise: Any,
    X: Array,
    y: Array,
    sets: Array,
    Xs: Array,
    nearest: Array,
    weights: Any = None,
) -> tuple[Array, Array]:
    """Mean (t,) or (t, p) and joint covariance (t, t) of f(Xs), whose neighbours among the rows of X are
    `nearest`.
    """
    n, t = len(X), len(Xs)
    c = np.ones(n) if weights is None else weights
    S = np.broadcast_to(noise, n) / c
    L = np.linalg.cholesky(basis.gram)
    Phi, phi = (np.linalg.solve(L, basis.cross(A).T) for A in (X, Xs))  # (m, n), (m, t)
    R, Rs, Rss = k(X, X) - Phi.T @ Phi, k(X, Xs) - Phi.T @ phi, k(Xs, Xs) - phi.T @ phi
    Dinv = residual_precision(R, S, sets)[0]
    B = np.eye(len(L)) + Phi @ Dinv @ Phi.T
    w = np.linalg.solve(B, Phi @ Dinv @ y)
    b = np.zeros((t, n))
    for i in range(t):
        N = nearest[i]
        b[i, N] = np.linalg.solve(R[np.ix_(N, N)] + np.diag(S[N]), Rs[N, i])
    g = phi - Phi @ b.T
    mean = phi.T @ w + b @ (y - Phi.T @ w)
    covariance = Rss - b @ Rs - (b @ Rs).T + b @ (R + np.diag(S)) @ b.T + g.T @ np.linalg.solve(B, g)
    return mean, covariance


def slopes(f: Any, x: Array, step: float = 2e-3) -> Array:
    """df/dx of each entry of x by central differences of order six, with steps relative to the entry's
    size.
    """
    out = np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        h = step * max(0.1, abs(x[at]))

        def moved(k: int, at: Any = at, h: float = h) -> float:
            z = x.copy()
            z[at] += k * h
            return f(z)

        out[at] = (45 * (moved(1) - moved(-1)) - 9 * (moved(2) - moved(-2)) + (moved(3) - moved(-3))) / (
            60 * h
        )
    return out


def earlier(Z: Array, order: Array, q: int) -> Array:
    """The q nearest of the rows that come before each row in `order`, -1 for none. (n, q)"""
    sets = np.full((len(Z), q), -1)
    for place, i in enumerate(order):
        before = order[:place]
        near = before[np.argsort(np.sum((Z[before] - Z[i]) ** 2, axis=1), kind="stable")][:q]
        sets[i, : len(near)] = near
    return sets
