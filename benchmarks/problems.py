"""The data everyone is measured on: made anew from a seed in each process, so that nothing large travels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Data:
    """A regression problem and the parameters at which everyone evaluates it."""

    X: np.ndarray  # (n, d)
    y: np.ndarray  # (n,)
    Z: np.ndarray  # (m, d)
    lengthscale: np.ndarray  # (d,)
    variance: float
    noise: float

    @property
    def checksum(self) -> float:
        return float(self.X.sum() + self.y.sum() + self.Z.sum())


def make(n: int, m: int, d: int) -> Data:
    """Standard normal inputs, a smooth function of two of them, noise; the basis is m of the rows."""
    r = np.random.default_rng(n + 7 * m + d)
    X = r.standard_normal((n, d))
    y = np.sin(X[:, 0]) + 0.5 * X[:, -1] ** 2 + 0.15 * r.standard_normal(n)
    return Data(X, y, X[r.permutation(n)[:m]].copy(), np.full(d, 0.7 * np.sqrt(d)), 1.4, 0.02)


def make_small(n: int = 500, m: int = 20) -> Data:
    """The cold start's curve: one input, a wave, a start that is off."""
    r = np.random.default_rng(0)
    X = r.uniform(0, 10, (n, 1))
    y = curve(X) + 0.2 * r.standard_normal(n)
    return Data(X, y, np.linspace(0.25, 9.75, m)[:, None], np.ones(1), 1.0, 0.1)


def curve(X: np.ndarray) -> np.ndarray:
    return np.sin(2 * X[:, 0]) + 0.5 * np.cos(3.1 * X[:, 0])
