"""Sparse online learning as plain loops over (alpha, C, Q), equation by equation. [004 chapters 2, 3 and
appendices C, D]

Nothing here comes from the package. Everything is in the precision of the arrays it is given: np.longdouble
replays a stream with 19 digits.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
Coefficients = Callable[[Any, Any, Any], tuple[Any, Any, Any]]  # y, mean, variance -> log average, q, r


def gaussian(noise: float) -> Coefficients:
    """log <p(y|f)>, q and r of y = f + noise. [004 section 2.4, eq. 5.3]"""

    def of(y: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
        s = noise + variance
        return -0.5 * (np.log(2 * np.pi * s) + (y - mean) ** 2 / s), (y - mean) / s, -1 / s

    return of


@dataclass
class Online:
    """One process and its basis while it reads. `history` holds the basis rows after each row read."""

    k: Callable[[Array, Array], Array]
    coefficients: Coefficients
    capacity: int | None
    tolerance: float
    score: str = "mean"
    dtype: Any = np.float64
    inverse_every: int | None = (
        None  # so many changes of the basis, Q is computed from K; between, by 3.5 and 3.22
    )
    Z: Array = field(init=False)
    alpha: Array = field(init=False)
    C: Array = field(init=False)
    Q: Array = field(init=False)
    log_predictive: Any = 0
    rows: list[int] = field(default_factory=list)
    history: list[list[int]] = field(default_factory=list)
    changes: int = 0
    closest: float = np.inf  # how near a decision was to going the other way, relatively

    def __post_init__(self) -> None:
        self.Z = np.zeros((0, 0), self.dtype)
        self.alpha, self.C, self.Q = (
            np.zeros(0, self.dtype),
            np.zeros((0, 0), self.dtype),
            np.zeros((0, 0), self.dtype),
        )

    def read(self, x: Array, y: Any, number: int) -> None:
        m, x = len(self.alpha), np.asarray(x, self.dtype)
        k = self.k(self.Z, x[None])[:, 0] if m else np.zeros(0, self.dtype)
        kss = self.k(x[None], x[None])[0, 0]
        mean, variance = k @ self.alpha, kss + k @ self.C @ k
        value, q, r = self.coefficients(np.asarray(y, self.dtype), mean, variance)
        self.log_predictive = self.log_predictive + value
        e = self.Q @ k  # (3.3)
        gamma = kss - k @ e
        self.closest = min(self.closest, abs(float(gamma / (self.tolerance * kss)) - 1.0))
        if gamma < self.tolerance * kss:
            eta = 1 / (1 + gamma * r)  # (3.29)
            s = self.C @ k + e
            self.alpha = self.alpha + q * eta * s
            self.C = self.C + r * eta * np.outer(s, s)
        else:
            s = np.append(self.C @ k, self.dtype(1))  # (2.46)
            self.alpha = grown(self.alpha) + q * s
            self.C = grown(self.C) + r * np.outer(s, s)
            new = np.append(e, self.dtype(-1))  # (3.5)
            self.Q = grown(self.Q) + np.outer(new, new) / gamma
            self.Z = np.vstack([self.Z.reshape(m, len(x)), x])
            self.rows.append(number)
            self._invert()
            if self.capacity is not None and m + 1 > self.capacity:
                scores = self.scores()
                order = np.sort(scores)
                self.closest = min(self.closest, float((order[1] - order[0]) / order[1]))
                self.remove(int(np.argmin(scores)))
        self.history.append(list(self.rows))

    def scores(self) -> Array:
        """2 KL of removing each. [004 eqs 3.24, 3.26]"""
        q, c = np.diag(self.Q), np.diag(self.C)
        scores = self.alpha**2 / (q + c)
        if self.score == "kl":
            K = self.k(self.Z, self.Z)
            S = np.linalg.inv(np.linalg.inv(self.C) + K)
            scores = scores - np.diag(S) / q + np.log(1 + c / q)
        return scores

    def remove(self, i: int) -> None:
        keep = np.arange(len(self.alpha)) != i
        q, c, a = self.Q[i, i], self.C[i, i], self.alpha[i]
        Q, C = self.Q[keep, i], self.C[keep, i]
        self.alpha = self.alpha[keep] - a / (c + q) * (Q + C)  # (3.19)
        self.C = self.C[np.ix_(keep, keep)] + np.outer(Q, Q) / q - np.outer(Q + C, Q + C) / (q + c)  # (3.21)
        self.Q = self.Q[np.ix_(keep, keep)] - np.outer(Q, Q) / q  # (3.22)
        self.Z = self.Z[keep]
        self.rows = [row for row, kept in zip(self.rows, keep, strict=True) if kept]
        self._invert()

    def _invert(self) -> None:
        self.changes += 1
        if self.inverse_every is not None and self.changes % self.inverse_every == 0:
            self.Q = inverse(self.k(self.Z, self.Z))

    def predict(self, X: Array) -> tuple[Array, Array]:
        X = np.asarray(X, self.dtype)
        k = self.k(X, self.Z)
        return k @ self.alpha, np.array([self.k(x[None], x[None])[0, 0] for x in X]) + np.sum(
            k @ self.C * k, axis=1
        )


def grown(A: Array) -> Array:
    """A with a zero at the end of every dimension."""
    return np.pad(A, [(0, 1)] * A.ndim)


def inverse(K: Array) -> Array:
    """K^-1 in K's own precision, by elimination."""
    n = len(K)
    work = np.hstack([K, np.eye(n, dtype=K.dtype)])
    for j in range(n):
        work[j] /= work[j, j]
        others = np.arange(n) != j
        work[others] -= np.outer(work[others, j], work[j])
    return work[:, n:]


def probit(noise: float) -> Coefficients:
    """Labels -1 and 1. [004 eqs 5.8, 5.9]"""
    from scipy.special import log_ndtr

    def of(y: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
        s = np.sqrt(noise + variance)
        z = y * mean / s
        h = np.exp(-0.5 * z * z - log_ndtr(z)) / np.sqrt(2 * np.pi)  # Erf'/Erf; Erf'' = -z Erf'
        return log_ndtr(z), y * h / s, (-z * h - h * h) / s**2

    return of


@dataclass
class Together:
    """Several processes on one basis; the function with the smallest largest score goes. [004 eq. 5.10]"""

    processes: list[Online]
    capacity: int

    def read(self, x: Array, y: Array, number: int) -> None:
        for process, label in zip(self.processes, y, strict=True):
            assert process.capacity is None
            process.read(x, label, number)
        if len(self.processes[0].alpha) > self.capacity:
            i = int(np.argmin(np.max([process.scores() for process in self.processes], axis=0)))
            for process in self.processes:
                process.remove(i)


def growing_stream(n: int, d: int, seed: int = 0) -> tuple[Array, Array]:
    """A stream whose targets grow, so that a new row is often worth more than an old one."""
    r = np.random.default_rng(seed)
    return r.uniform(-3, 3, (n, d)), np.where(np.arange(n) % 2, 1.0, -1.0) * 1.0003 ** np.arange(n)


@dataclass
class Discounted:
    """One process on a basis that grows with every row, as a sum of sites: tau f^2 and nu f at each row read.

    Nothing of it is a recursion over (alpha, C): `posterior` solves with all sites, each counted as often as
    it has weight left. Steps are of `step` half-lives: a row is discounted together with all before it.
    """

    k: Callable[[Array, Array], Array]
    noise: float
    half_life: float
    step: float = 0.125
    dtype: Any = np.float64
    X: list[Array] = field(default_factory=list)
    y: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    since: float = 0.0

    def wait(self, time: float = 1.0) -> None:
        """Let time pass before the next row."""
        self.since += time
        if self.since >= self.step * self.half_life:
            rho = self.dtype(2) ** (-self.dtype(self.since) / self.dtype(self.half_life))
            self.weights, self.since = [w * rho for w in self.weights], 0.0

    def read(self, x: Array, y: Any) -> None:
        self.X.append(np.asarray(x, self.dtype))
        self.y.append(self.dtype(y))
        self.weights.append(self.dtype(1))

    def predict(self, Xs: Array) -> tuple[Array, Array]:
        """Mean and variance of f: a row counted w times has noise of variance noise / w."""
        Xs, X = np.asarray(Xs, self.dtype), np.array(self.X)
        K = self.k(X, X) + np.diag(self.dtype(self.noise) / np.array(self.weights))
        Ks, inv = self.k(Xs, X), inverse(K)
        prior = np.array([self.k(x[None], x[None])[0, 0] for x in Xs])
        return Ks @ inv @ np.array(self.y), prior - np.sum(Ks @ inv * Ks, axis=1)
