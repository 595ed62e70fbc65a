"""The small problem that the tests of online learning share."""

from typing import Any

import numpy as np

import inducing as ig
import oracle
from inducing.model.likelihoods import Gaussian

LENGTHSCALE, VARIANCE = np.array([0.9, 1.3]), 1.7
K0 = oracle.bind(oracle.rbf, lengthscale=LENGTHSCALE, variance=VARIANCE)
KERNEL = ig.kernels.RBF(lengthscale=LENGTHSCALE, variance=VARIANCE)
NOISE = 0.05
GAUSSIAN = Gaussian(NOISE)
N = 120

rng = np.random.default_rng(3)
X = rng.uniform(-2, 2, (N, 2))
Y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.2 * rng.standard_normal(N)
LABELS = np.where(Y + 0.1 > 0, 1.0, -1.0)
XS = rng.uniform(-2.2, 2.2, (15, 2))
Z = np.array([[-1.7, -1.3], [-1.2, 1.4], [0.0, 0.1], [0.3, -1.8], [0.9, 1.6], [1.6, -0.9], [1.8, 0.8]])


def relative(a: Any, b: Any) -> float:
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b)))
