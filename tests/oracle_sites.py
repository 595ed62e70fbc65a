"""Power expectation propagation by dense n×n matrices and adaptive quadrature. Imports nothing from the package.

Bui, Yan & Turner (2017): the likelihood of row i becomes a Gaussian factor in g_i, g ~ N(0, Q), f_i = g_i + e_i with
e_i ~ N(0, R_i) of its own; power a takes the factor out and puts it back in shares of a.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit, gammaln, log_ndtr
from scipy.stats import norm
from scipy.stats import t as student

Array = np.ndarray
LogDensity = Callable[[float, Array], Array]  # of y and f


def probit(noise: float = 1.0) -> LogDensity:
    return lambda y, f: log_ndtr(y * f / np.sqrt(noise))


def logistic() -> LogDensity:
    return lambda y, f: np.log(expit(y * f))


def student_t(df: float, scale: float) -> LogDensity:
    return lambda y, f: student.logpdf(y, df, loc=f, scale=scale)


def poisson() -> LogDensity:
    return lambda y, f: y * f - np.exp(f) - gammaln(y + 1.0)


def tilted(log_p: LogDensity, y: float, m: float, v: float, a: float) -> tuple[float, float, float]:
    """L_a, q and r under f ~ N(m, v), or for a = 0 E, q and r, by adaptive quadrature."""
    s = np.sqrt(v)
    edges = m + s * np.array([-12.0, -6.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0, 12.0])
    edges = np.unique(np.concatenate([edges, [y] if edges[0] < y < edges[-1] else []]))

    def average(g: Callable[[float], float]) -> float:
        return sum(
            quad(g, lo, hi, epsabs=1e-13, epsrel=1e-12, limit=200)[0] for lo, hi in zip(edges, edges[1:])
        )

    def weight(f: float) -> float:
        return float(norm.pdf(f, m, s))

    if a == 0.0:
        E = average(lambda f: weight(f) * float(log_p(y, f)))
        q = average(lambda f: weight(f) * (f - m) / v * float(log_p(y, f)))
        r = average(lambda f: weight(f) * ((f - m) ** 2 / v - 1.0) / v * float(log_p(y, f)))
        return E, q, r
    Z = average(lambda f: weight(f) * np.exp(a * float(log_p(y, f))))
    first = average(lambda f: weight(f) * (f - m) * np.exp(a * float(log_p(y, f)))) / Z
    second = average(lambda f: weight(f) * (f - m) ** 2 * np.exp(a * float(log_p(y, f)))) / Z - first**2
    return np.log(Z), first / v, (second - v) / v**2


def power_ep(
    Q: Array,
    R: Array,
    y: Array,
    log_p: LogDensity,
    a: float,
    *,
    m0: float = 0.0,
    rate: float = 0.7,
    sweeps: int = 200,
) -> tuple[float, Array, Array]:
    """The evidence F and the sites τ, ν in g at the fixed point."""
    n = len(y)
    tau, nu = np.zeros(n), np.zeros(n)
    for _ in range(sweeps):
        before = np.concatenate([tau, nu])
        mu, s = _marginals(Q, tau, nu)
        sites = np.array([_site(log_p, y[i], mu[i], s[i], R[i], tau[i], nu[i], a, m0) for i in range(n)])
        tau, nu = tau + rate * (sites[:, 0] - tau), nu + rate * (sites[:, 1] - nu)
        if np.max(np.abs(np.concatenate([tau, nu]) - before)) < 1e-12:
            break
    return evidence(Q, R, y, log_p, a, tau, nu, m0), tau, nu


def _marginals(Q: Array, tau: Array, nu: Array) -> tuple[Array, Array]:
    Sigma = np.linalg.solve(np.eye(len(Q)) + Q * tau, Q)
    return Sigma @ nu, np.diag(Sigma).copy()


def _site(
    log_p: LogDensity, y: float, mu: float, s: float, R: float, tau: float, nu: float, a: float, m0: float
) -> tuple[float, float]:
    if a == 0.0:
        _, q, r = tilted(log_p, y, m0 + mu, s + R, 0.0)
        return -r, q - r * mu
    v = 1.0 / (1.0 / s - a * tau)
    m = v * (mu / s - a * nu)
    _, q, r = tilted(log_p, y, m0 + m, v + R, a)
    return -r / (a * (1 + v * r)), (q - m * r) / (a * (1 + v * r))


def evidence(
    Q: Array, R: Array, y: Array, log_p: LogDensity, a: float, tau: Array, nu: Array, m0: float = 0.0
) -> float:
    mu, s = _marginals(Q, tau, nu)
    total = 0.5 * nu @ mu - 0.5 * np.linalg.slogdet(np.eye(len(y)) + Q * tau)[1]
    for i in range(len(y)):
        if a == 0.0:
            E = tilted(log_p, y[i], m0 + mu[i], s[i] + R[i], 0.0)[0]
            total += E - nu[i] * mu[i] + 0.5 * tau[i] * (mu[i] ** 2 + s[i])
        else:
            v = 1.0 / (1.0 / s[i] - a * tau[i])
            m = v * (mu[i] / s[i] - a * nu[i])
            L = tilted(log_p, y[i], m0 + m, v + R[i], a)[0]
            total += (L + 0.5 * np.log(v / s[i]) + 0.5 * m**2 / v - 0.5 * mu[i] ** 2 / s[i]) / a
    return float(total)


def best_bound(Phi: Array, R: Array, y: Array, log_p: LogDensity, nodes: int = 60) -> float:
    """The largest Σ E log p(y|f) - KL over all Gaussians of w (m of them), by BFGS on its mean and factor."""
    x, weight = np.polynomial.hermite_e.hermegauss(nodes)
    weight = weight / weight.sum()
    m = Phi.shape[1]
    below = np.tril_indices(m)

    def loss(p: Array) -> float:
        L = np.zeros((m, m))
        L[below] = p[m:]
        mu, var = Phi @ p[:m], np.sum((Phi @ L) ** 2, axis=1) + R
        f = mu[:, None] + np.sqrt(var)[:, None] * x
        E = float(np.sum(weight * log_p(y[:, None], f)))
        return 0.5 * (np.sum(L**2) + p[:m] @ p[:m] - m - 2 * np.sum(np.log(np.abs(np.diag(L))))) - E

    start = np.concatenate([np.zeros(m), np.eye(m)[below]])
    best = minimize(loss, start, method="BFGS", options={"gtol": 1e-7})
    return -minimize(loss, best.x, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).fun
