"""Compiled averages of likelihoods over f ~ N(mean, var), each branch of them, against plain quadrature: 50
panels of Gauss-Legendre nodes with kinks at their ends, and q and r from the moments.
"""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special, stats

from inducing.model import likelihoods as lk
from inducing.model.likelihoods.loops import BY_KIND, pointer, tilt_rows

DENSITIES: dict[str, Callable[..., np.ndarray]] = {
    "gaussian": lambda y, f, a, b: stats.norm.logpdf(y, f, np.sqrt(a)),
    "probit": lambda y, f, a, b: special.log_ndtr(y * f / np.sqrt(a)),
    "step": lambda y, f, a, b: np.log(a + (1 - 2 * a) * (y * f > 0)),
    "logistic": lambda y, f, a, b: special.log_expit(y * f),
    "laplace": lambda y, f, a, b: stats.laplace.logpdf(y, f, a),
    "student": lambda y, f, a, b: stats.t.logpdf(y, a, f, b),
    "poisson": lambda y, f, a, b: y * f - np.exp(f) - special.gammaln(y + 1),
    "squared": lambda y, f, a, b: 2 * y * np.log(np.abs(f)),
}
ROWS = [  # kind; parameters, y, mean, var
    ("gaussian", (0.3, 0.0), 0.7, -0.4, 0.8),
    ("probit", (0.3, 0.0), 1.0, 0.9, 0.5),
    ("probit", (0.3, 0.0), -1.0, 0.4, 0.5),
    ("probit", (0.1, 0.0), 1.0, -4.0, 0.2),  # far below: a continued fraction
    ("probit", (0.5, 0.0), 1.0, 0.2, 0.5),  # log Φ between 0 and 1
    ("step", (0.1, 0.0), 1.0, 0.9, 0.5),
    ("step", (0.1, 0.0), -1.0, 0.9, 0.5),
    ("logistic", (0.0, 0.0), 1.0, 0.7, 0.6),
    ("logistic", (0.0, 0.0), -1.0, 3.0, 9.0),
    ("logistic", (0.0, 0.0), 1.0, -20.0, 30.0),
    ("logistic", (0.0, 0.0), 1.0, 0.5, 1e-3),  # hardly bends
    ("laplace", (0.5, 0.0), 0.3, -0.4, 0.8),
    ("laplace", (0.5, 0.0), 0.3, 2.5, 0.2),
    ("laplace", (0.1, 0.0), 0.3, 1.5, 4.0),  # wide beside its scale, on both sides
    ("laplace", (0.1, 0.0), 0.3, -1.1, 4.0),
    ("laplace", (0.3, 0.0), 0.3, 1.0, 10.0),
    ("student", (3.0, 0.4), 0.3, -0.9, 0.8),
    ("student", (3.0, 0.4), 0.3, 3.0, 0.5),
    ("student", (3.0, 0.1), 0.3, 9.0, 0.5),
    ("student", (40.0, 0.2), 0.3, 0.9, 2.0),  # from 32 on log Γ is a series
    ("student", (33.0, 0.7), 1.3, 0.9, 0.1),
    ("poisson", (0.0, 0.0), 0.0, 0.3, 0.7),
    ("poisson", (0.0, 0.0), 3.0, 0.3, 0.7),
    ("poisson", (0.0, 0.0), 5.0, -2.0, 3.0),
    ("poisson", (0.0, 0.0), 16.0, 2.5, 0.3),
    ("poisson", (0.0, 0.0), 200.0, 4.0, 0.5),
    ("poisson", (0.0, 0.0), 40.0, 1.0, 1e-4),  # a narrow prior far from the count
    ("squared", (0.0, 0.0), 1.0, 0.7, 0.5),
    ("squared", (0.0, 0.0), 2.5, 1.2, 0.3),  # a power by its series
    ("squared", (0.0, 0.0), 1.5, -1.2, 0.3),
    ("squared", (0.0, 0.0), 20.0, 9.0, 1.0),
    ("squared", (0.0, 0.0), 1.5, 5.0, 0.1),  # far out, about the mode
    ("squared", (0.0, 0.0), 0.7, -5.0, 0.2),
]


@pytest.mark.parametrize(("kind", "theta", "y", "mean", "var"), ROWS)
def test_the_average_and_its_slopes(
    kind: str, theta: tuple[float, float], y: float, mean: float, var: float
) -> None:
    scale = np.sqrt(var)
    kinks = [0.0, y, *(y + np.array([-3.0, -1.0, 1.0, 3.0]) * theta[1])]
    edges = np.unique([*(mean + scale * np.linspace(-14, 14, 45)), *kinks])
    edges = edges[np.abs(edges - mean) <= 14 * scale]
    nodes, weights = np.polynomial.legendre.leggauss(48)
    half = 0.5 * np.diff(edges)[:, None]
    f = (edges[:-1, None] + half * (1.0 + nodes)).ravel()
    logs = DENSITIES[kind](y, f, *theta) + stats.norm.logpdf(f, mean, scale)
    mass = np.exp(logs - np.max(logs)) * (half * weights).ravel()
    t = (f - mean) / scale
    centre = mass @ t / np.sum(mass)
    spread = mass @ (t - centre) ** 2 / np.sum(mass)
    out = np.empty((1, 3))
    at = pointer(BY_KIND[list(DENSITIES).index(kind)])
    tilt_rows(at, np.array(theta), np.array([y]), np.array([mean]), np.array([var]), out)
    expected = np.log(np.sum(mass)) + np.max(logs), centre, spread - 1.0
    assert_allclose(out[0] * [1.0, scale, var], expected, rtol=1e-11, atol=1e-11)


def test_each_likelihood_has_the_average_of_its_name() -> None:
    kinds = (lk.Gaussian, lk.Probit, lk.Step, lk.Logistic, lk.Laplace, lk.StudentT, lk.Poisson, lk.Squared)
    numbers = [kind.kind for kind in kinds]
    assert [BY_KIND[number].__name__ for number in numbers] == list(DENSITIES)
