"""Expectation propagation by dense matrices and by the thesis's own loops. Imports nothing from the
package.
"""

import numpy as np
from scipy.special import log_ndtr


def dense_ep(K, y, noise=1.0, sweeps=100):
    """Site parameters ν, τ of f and log Z, with K the prior covariance of f.

    Rasmussen & Williams (2006), algorithms 3.5 and 3.6. Their likelihood is Φ(yf), so f is taken in units of
    √noise.
    """
    n, K = len(y), K / noise
    nu, tau, Sigma, mu = np.zeros(n), np.zeros(n), K.copy(), np.zeros(n)
    for _ in range(sweeps):
        for i in range(n):
            tau_cavity, nu_cavity = 1 / Sigma[i, i] - tau[i], mu[i] / Sigma[i, i] - nu[i]  # (3.56)
            m, v = nu_cavity / tau_cavity, 1 / tau_cavity
            z = y[i] * m / np.sqrt(1 + v)  # (3.58)
            ratio = np.exp(-0.5 * z**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
            mean = m + y[i] * v * ratio / np.sqrt(1 + v)
            var = v - v**2 * ratio / (1 + v) * (z + ratio)
            change = 1 / var - tau_cavity - tau[i]  # (3.59)
            tau[i], nu[i] = tau[i] + change, mean / var - nu_cavity
            column = Sigma[:, i].copy()
            Sigma -= change / (1 + change * column[i]) * np.outer(column, column)
            mu = Sigma @ nu
        root = np.sqrt(tau)
        L = np.linalg.cholesky(np.eye(n) + root[:, None] * K * root)
        V = np.linalg.solve(L, root[:, None] * K)
        Sigma = K - V.T @ V
        mu = Sigma @ nu
    v = 1 / (1 / np.diag(Sigma) - tau)
    m, T = v * (mu / np.diag(Sigma) - nu), K + np.diag(1 / tau)
    target = nu / tau
    log_Z = (  # (3.65)
        -0.5 * np.linalg.slogdet(T)[1]
        - 0.5 * target @ np.linalg.solve(T, target)
        + np.sum(log_ndtr(y * m / np.sqrt(1 + v)))
        + 0.5 * np.sum(np.log(v + 1 / tau))
        + np.sum((m - target) ** 2 / (2 * (v + 1 / tau)))
    )
    return nu / np.sqrt(noise), tau / noise, log_Z


def dense_predict(K, Ks, kss, nu, tau):
    T = K + np.diag(1 / tau)
    return Ks @ np.linalg.solve(T, nu / tau), kss - np.sum(Ks * np.linalg.solve(T, Ks.T).T, axis=1)


def thesis_ep(kernel, likelihood, X, y, capacity, tolerance, sweeps):
    """The thesis's loops, in α, C and P, with every matrix inverted anew. [004 Table G.1, its slips
    corrected]
    """
    n = len(X)
    Z, alpha, C, P = np.empty((0, X.shape[1])), np.empty(0), np.empty((0, 0)), np.empty((n, 0))
    a, lam = np.zeros(n), np.zeros(n)
    for _ in range(sweeps):
        for i in range(n):
            K, x = kernel(Z, Z), X[i][None]
            if lam[i] != 0:
                p = P[i]
                h = C @ K @ p + p
                v = 1 / (1 / lam[i] - p @ K @ p - p @ K @ C @ K @ p)
                alpha, C = alpha + h * v * (alpha @ K @ p - a[i]), C + v * np.outer(h, h)
            k, kss, Q = kernel(Z, x)[:, 0], kernel.diag(x)[0], np.linalg.inv(K)
            e, mean, var = Q @ k, k @ alpha, kss + k @ C @ k
            gamma = kss - k @ e
            q, r = (float(part) for part in likelihood.derivatives(y[i], mean, var))
            a[i], lam[i] = mean - q / r, -1 / (1 / r + var)
            if gamma < tolerance * kss:
                s, eta = C @ k + e, 1 / (1 + gamma * r)
                alpha, C, P[i] = alpha + q * eta * s, C + r * eta * np.outer(s, s), e
                continue
            s = np.append(C @ k, 1.0)
            alpha, C = np.append(alpha, 0.0) + q * s, np.pad(C, (0, 1)) + r * np.outer(s, s)
            Z, P = np.vstack([Z, x]), np.pad(P, ((0, 0), (0, 1)))
            P[i] = np.eye(len(Z))[-1]
            if len(Z) > capacity:
                Q = np.linalg.inv(kernel(Z, Z))
                j = int(np.argmin(alpha**2 / np.diag(Q + C)))
                rest = np.arange(len(Z)) != j
                Qj, s = Q[rest, j], Q[rest, j] + C[rest, j]
                alpha_j, c, q = alpha[j], C[j, j], Q[j, j]
                C = C[np.ix_(rest, rest)] + np.outer(Qj, Qj) / q - np.outer(s, s) / (q + c)
                alpha = alpha[rest] - alpha_j / (q + c) * s
                P, Z = P[:, rest] - np.outer(P[:, j], Qj) / q, Z[rest]
    return Z, alpha, C, a, lam, P
