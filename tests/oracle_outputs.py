"""Dense references for categories, several outputs and inputs that are not known. Nothing here comes from
the package.

A category's covariance is a table; coregionalisation is a Kronecker product (Bonilla et al. 2008) with the
rows of what was measured taken out of it; an uncertain input is an average over nodes.
"""

import itertools
from collections.abc import Callable

import numpy as np

Array = np.ndarray


def levels(W: Array, kappa: Array) -> Array:
    """B_ij = Σ_r W_ir W_jr + [i = j] κ_i, entry by entry."""
    L = len(kappa)
    B = np.empty((L, L))
    for i, j in itertools.product(range(L), range(L)):
        B[i, j] = sum(a * b for a, b in zip(W[i], W[j])) + (kappa[i] if i == j else 0.0)
    return B


def gaussian(K: Array, noise: Array, Y: Array) -> float:
    """log N(y; 0, K + diag noise)."""
    C = K + np.diag(noise)
    sign, log_det = np.linalg.slogdet(2 * np.pi * C)
    assert sign > 0
    return float(-0.5 * (Y @ np.linalg.solve(C, Y) + log_det))


def coregionalised(
    k: Callable[[Array, Array], Array], B: Array, noise: Array, X: Array, Y: Array, Xs: Array
) -> tuple[Array, Array, float]:
    """Mean (n*, p), covariance (n*, p, n*, p) of f at Xs and log evidence, given the entries of Y (n, p) that
    are not NaN: the exact GP on vec Y with covariance K ⊗ B + I ⊗ diag noise.
    """
    n, p = Y.shape
    seen = ~np.isnan(Y.ravel())
    K = np.kron(k(X, X), B)[np.ix_(seen, seen)]
    S = np.tile(noise, n)[seen]
    cross = np.kron(k(Xs, X), B)[:, seen]
    y = Y.ravel()[seen]
    C = np.linalg.inv(K + np.diag(S))
    mean, covariance = cross @ C @ y, np.kron(k(Xs, Xs), B) - cross @ C @ cross.T
    m = len(Xs)
    return mean.reshape(m, p), covariance.reshape(m, p, m, p), gaussian(K, S, y)


def averaged(
    k: Callable[[Array, Array], Array], X: Array, V: Array, Z: Array, U: Array, order: int = 601
) -> Array:
    """E k(x, z) with x ~ N(X_i, V_i) and z ~ N(Z_j, U_j), two independent inputs, by the trapezoidal rule."""
    nodes = np.linspace(-10.0, 10.0, order)
    weights = np.exp(-0.5 * nodes**2)
    weights = weights / weights.sum()
    d, K = X.shape[1], np.empty((len(X), len(Z)))
    for i, j in itertools.product(range(len(X)), range(len(Z))):
        value = 1.0  # k(x, z) = k(x - z, 0), a product over inputs with k(0, 0) = 1
        for c in range(d):
            gap = X[i, c] - Z[j, c] + np.sqrt(V[i, c] + U[j, c]) * nodes
            x, z = np.zeros((order, d)), np.zeros((1, d))
            x[:, c] = gap
            value *= float(weights @ k(x, z)[:, 0])
        K[i, j] = value
    return K
