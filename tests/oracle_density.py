"""Densities to estimate and the thesis' functions to estimate them with. Imports nothing from the package.
[004 §5.3]
"""

import numpy as np
from numpy.polynomial.legendre import leggauss


def mixture(n, d=1, seed=0):
    """Two heaps in d dimensions, in units of no unit box."""
    rng = np.random.default_rng(seed)
    first = rng.random(n) < 0.4
    return np.where(first[:, None], rng.normal(-1.0, 0.8, (n, d)), rng.normal(3.0, 0.6, (n, d))) * 5.0 + 100.0


def waves(X, order):
    """The orthonormal functions of [004 eq. 5.28] and their tensor products. (n, D)"""
    out = np.ones((len(X), 1))
    for x in X.T:
        angle = 2.0 * np.pi * np.outer(x, np.arange(1, order + 1))
        one = np.hstack([np.ones((len(x), 1)), np.sqrt(2.0) * np.cos(angle), np.sqrt(2.0) * np.sin(angle)])
        out = (out[:, :, None] * one[:, None, :]).reshape(len(X), -1)
    return out


def in_panels(function, edges, nodes=12):
    """∫ function by Gauss-Legendre between neighbouring edges."""
    x, w = leggauss(nodes)
    half = 0.5 * np.diff(edges)
    points = edges[:-1, None] + half[:, None] * (x + 1.0)
    return float(np.sum(half[:, None] * w * function(points.ravel()).reshape(points.shape)))
