"""Power expectation propagation by dense n×n matrices and fixed panels of nodes. Imports nothing from the
package.

Bui, Yan & Turner (2017): the likelihood of row i becomes a Gaussian factor in g_i, g ~ N(0, Q), f_i = g_i +
e_i with e_i ~ N(0, R_i) of its own; power a takes the factor out and puts it back in shares of a.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, gammaln, log_ndtr
from scipy.stats import t as student

Array = np.ndarray
LogDensity = Callable[[Array, Array], Array]  # of y and f


def probit(noise: float = 1.0) -> LogDensity:
    return lambda y, f: log_ndtr(y * f / np.sqrt(noise))


def logistic() -> LogDensity:
    return lambda y, f: np.log(expit(y * f))


def student_t(df: float, scale: float) -> LogDensity:
    return lambda y, f: student.logpdf(y, df, loc=f, scale=scale)


def poisson() -> LogDensity:
    return lambda y, f: y * f - np.exp(f) - gammaln(y + 1.0)


NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
EDGES = np.linspace(-14.0, 14.0, 121)
Z = (EDGES[:-1, None] + 0.5 * np.diff(EDGES)[:, None] * (NODES + 1.0)).ravel()  # in standard deviations
W = np.outer(0.5 * np.diff(EDGES), WEIGHTS).ravel() * np.exp(-0.5 * Z**2) / np.sqrt(2 * np.pi)


@dataclass(frozen=True)
class Kinked:
    """log p(y|f) that is smooth in f but for one place in every row."""

    log_p: LogDensity
    kinks: Array  # (n,)

    def __call__(self, y: Array, f: Array) -> Array:
        return self.log_p(y, f)


def tilted(log_p: LogDensity, y: Array, m: Array, v: Array, a: float) -> tuple[Array, Array, Array]:
    """L_a, q and r under f ~ N(m, v), or for a = 0 E, q and r, by 120 panels of 20 Gauss-Legendre nodes, and
    one more where log p has a kink. (n,) each
    """
    y, m, v = np.broadcast_arrays(np.atleast_1d(y).astype(float), m, v)
    s = np.sqrt(v)
    z, w = Z, W
    if isinstance(log_p, Kinked):
        kinks = np.clip((log_p.kinks - m) / s, EDGES[0], EDGES[-1])
        edges = np.sort(np.column_stack([np.tile(EDGES, (len(m), 1)), kinks]), axis=1)
        half = 0.5 * np.diff(edges, axis=1)[:, :, None]
        z = (edges[:, :-1, None] + half * (NODES + 1.0)).reshape(len(m), -1)
        w = (half * WEIGHTS).reshape(len(m), -1) * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    values = log_p(y[:, None], m[:, None] + s[:, None] * z)

    def average(values: Array) -> Array:
        return np.sum(values * w, axis=1)

    if a == 0.0:
        return average(values), average(values * z) / s, average(values * (z**2 - 1.0)) / v
    top = np.max(a * values, axis=1)
    p = np.exp(a * values - top[:, None])
    total = average(p)
    first, second = average(p * z) / total, average(p * z**2) / total
    return np.log(total) + top, first / s, (second - first**2 - 1.0) / v


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
        new_tau, new_nu = _sites(log_p, y, mu, s, R, tau, nu, a, m0)
        tau, nu = tau + rate * (new_tau - tau), nu + rate * (new_nu - nu)
        if np.max(np.abs(np.concatenate([tau, nu]) - before)) < 1e-12:
            break
    return evidence(Q, R, y, log_p, a, tau, nu, m0), tau, nu


def _marginals(Q: Array, tau: Array, nu: Array) -> tuple[Array, Array]:
    Sigma = np.linalg.solve(np.eye(len(Q)) + Q * tau, Q)
    return Sigma @ nu, np.diag(Sigma).copy()


def _sites(
    log_p: LogDensity, y: Array, mu: Array, s: Array, R: Array, tau: Array, nu: Array, a: float, m0: float
) -> tuple[Array, Array]:
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
    if a == 0.0:
        E = tilted(log_p, y, m0 + mu, s + R, 0.0)[0]
        return float(total + np.sum(E - nu * mu + 0.5 * tau * (mu**2 + s)))
    v = 1.0 / (1.0 / s - a * tau)
    m = v * (mu / s - a * nu)
    L = tilted(log_p, y, m0 + m, v + R, a)[0]
    return float(total + np.sum(L + 0.5 * np.log(v / s) + 0.5 * m**2 / v - 0.5 * mu**2 / s) / a)


def best_bound(Phi: Array, R: Array, y: Array, log_p: LogDensity) -> float:
    """The largest Σ E log p(y|f) - KL over all Gaussians of w (m of them), by BFGS on its mean and factor."""
    m = Phi.shape[1]
    below = np.tril_indices(m)

    def loss(p: Array) -> float:
        L = np.zeros((m, m))
        L[below] = p[m:]
        mu, var = Phi @ p[:m], np.sum((Phi @ L) ** 2, axis=1) + R
        E = float(np.sum(tilted(log_p, y, mu, var, 0.0)[0]))
        return 0.5 * (np.sum(L**2) + p[:m] @ p[:m] - m - 2 * np.sum(np.log(np.abs(np.diag(L))))) - E

    start = np.concatenate([np.zeros(m), np.eye(m)[below]])
    best = minimize(loss, start, method="BFGS", options={"gtol": 1e-7})
    return -float(min(best.fun, minimize(loss, best.x, method="BFGS", options={"gtol": 1e-9}).fun))
