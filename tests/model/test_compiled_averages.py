"""Compiled averages of likelihoods over f ~ N(mean, var), each branch of them, against plain quadrature: 50
panels of Gauss-Legendre nodes with kinks at their ends, and q and r from the moments; and over any width,
against panels that are halved as often as it takes.
"""

import ctypes
import itertools
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
from likelihood_cases import refined
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
    ("squared", (0.0, 0.0), 2.0, 0.4, 0.3),
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


def log_count(y: float, f: np.ndarray) -> np.ndarray:
    """Poisson's log p about the rate max(y, 1), where no large numbers cancel."""
    unit = max(y, 1.0)
    x = np.minimum(f - np.log(unit), 600.0)
    return stats.poisson.logpmf(y, unit) + y * x - unit * np.expm1(x)


def slopes(kind: str, theta: tuple[float, float], y: float, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two derivatives of log p(y|f) in f."""
    if kind == "logistic":
        return y * special.expit(-y * f), -special.expit(f) * special.expit(-f)
    if kind == "poisson":
        return y - np.exp(f), -np.exp(f)
    df, e = theta[0], (y - f) / theta[1]
    below = df + e * e
    return (df + 1) * e / below / theta[1], (df + 1) * (e * e - df) / below**2 / theta[1] ** 2


WIDE = [  # kind; parameters, observations, means
    ("logistic", (0.0, 0.0), (-1.0, 1.0), (-300.0, -20.0, -3.0, 0.0, 0.7, 8.0, 40.0)),
    ("student", (1.0, 0.01), (0.2, -3.0, 30.0, 1e4), (0.2, 1.0)),
    ("student", (3.0, 0.4), (0.2, -3.0, 30.0, 1e4), (0.2, 1.0)),
    ("student", (40.0, 0.2), (0.2, -3.0, 30.0, 1e4), (0.2, 1.0)),
    ("student", (200.0, 5.0), (0.2, -3.0, 30.0, 1e4), (0.2, 1.0)),
    ("poisson", (0.0, 0.0), (0.0, 1.0, 3.0, 17.0, 1e3), (-6.0, -0.7, 0.0, 2.0, 8.0)),
]


@pytest.mark.parametrize("var", [1e-8, 1.1e-7, 1e-3, 0.3, 10.0, 1e3, 1e6])
@pytest.mark.parametrize(("kind", "theta", "ys", "means"), WIDE)
def test_averages_of_any_width(
    kind: str, theta: tuple[float, float], ys: tuple[float, ...], means: tuple[float, ...], var: float
) -> None:
    """q and r are averages of log p's slopes, or moments of f where those would cancel."""
    scale, at = np.sqrt(var), pointer(BY_KIND[list(DENSITIES).index(kind)])
    reach = np.geomspace(1e-3, 1e4, 36)
    reach = np.concatenate([-reach[::-1], [0.0], reach])
    for y, mean in itertools.product(ys, means):
        centre, unit = (y, theta[1]) if kind == "student" else (0.0, 1.0)
        if kind == "poisson":
            centre, unit = np.log(y + 0.5), 1.0 / np.sqrt(y + 0.5)
        edges = np.unique([*(mean + scale * reach), *(centre + unit * reach)])

        def logs(f: np.ndarray, y: float = y, mean: float = mean) -> np.ndarray:
            density = log_count(y, f) if kind == "poisson" else DENSITIES[kind](y, f, *theta)
            return density - 0.5 * ((f - mean) / scale) ** 2

        f, log_weight = refined(logs, edges[np.abs(edges - mean) <= 1e4 * scale])
        value = special.logsumexp(log_weight)
        weight = np.exp(log_weight - value)
        slope, bend = slopes(kind, theta, y, np.where(weight > 0.0, f, mean))
        q, size = weight @ slope, weight @ np.abs(bend)
        r = weight @ bend + weight @ (slope - q) ** 2
        if var * size > 1.0:
            t = (f - mean) / scale
            q, size = weight @ t / scale, 1.0 / var
            r = (weight @ (t - q * scale) ** 2 - 1.0) / var
        out = np.empty((1, 3))
        tilt_rows(at, np.array(theta), np.array([y]), np.array([mean]), np.array([var]), out)
        digits = 1e-10 + 1e-14 * abs(value)
        assert_allclose(out[0, 0], value - 0.5 * np.log(2 * np.pi * var), rtol=1e-11, atol=1e-11)
        assert_allclose(out[0, 1], q, rtol=digits, atol=1e-15 + digits * size * min(scale, 1.0))
        assert_allclose(out[0, 2], r, rtol=0.0, atol=1e-15 + 10 * digits * size)


@pytest.mark.parametrize("count", [16, 17, 20])
def test_counts_where_they_are_expected(count: int) -> None:
    """log p at its largest is the rest of Stirling's formula, by a series from 16 on, to 14 digits."""
    out = np.empty((1, 3))
    rows = (np.array([number]) for number in (float(count), np.log(count), 1e-20))
    tilt_rows(pointer(BY_KIND[6]), np.zeros(2), *rows, out)
    with mp.workdps(30):
        expected = count * mp.log(count) - count - mp.loggamma(count + 1)
    assert abs(out[0, 0] - float(expected)) < 8e-15


@pytest.mark.parametrize(("mean", "var"), [(9.0, 1.0), (12.0, 2.0)])
def test_a_high_power_of_f(mean: float, var: float) -> None:
    """The series of |f|^8000, beyond the largest number that there is, against Kummer's function."""
    w, out = 4000.0, np.empty((1, 3))
    tilt_rows(pointer(BY_KIND[7]), np.zeros(2), *(np.array([v]) for v in (w, mean, var)), out)
    with mp.workdps(40):

        def value(m: mp.mpf) -> mp.mpf:
            kummer = mp.hyp1f1(-w, mp.mpf(1) / 2, -m * m / (2 * var))
            return w * mp.log(2 * var) + mp.loggamma(w + mp.mpf(1) / 2) - mp.loggamma(0.5) + mp.log(kummer)

        expected = [float(mp.diff(value, mp.mpf(mean), k)) for k in range(3)]
    assert_allclose(out[0], expected, rtol=1e-9)


@pytest.mark.parametrize(("kind", "theta", "y", "mean", "var"), ROWS)
def test_one_number_of_each_is_read(
    kind: str, theta: tuple[float, float], y: float, mean: float, var: float
) -> None:
    """Called as compiled loops call it, by addresses: what lies behind the row's own numbers does not count,
    and of the row itself every number does.
    """
    numbers = ctypes.POINTER(ctypes.c_double)
    at = pointer(BY_KIND[list(DENSITIES).index(kind)])
    call = ctypes.CFUNCTYPE(None, *[numbers] * 5)(at)

    def asked(*row: np.ndarray) -> np.ndarray:
        out = np.full(4, 7.0)
        call(*(part.ctypes.data_as(numbers) for part in (np.array(theta), *row, out)))
        assert out[3] == 7.0
        return out[:3]

    rows = [np.array([v, np.nan]) for v in (y, mean, var)]
    expected = np.empty((1, 3))
    tilt_rows(at, np.array(theta), *(np.array([v]) for v in (y, mean, var)), expected)
    assert_allclose(asked(*rows), expected[0], rtol=1e-13, atol=1e-13)
    for i, bad in itertools.product(range(3), (np.nan, np.inf, -np.inf)):
        wrong = [np.array([bad, 1.0]) if j == i else part for j, part in enumerate(rows)]
        assert np.all(np.isnan(asked(*wrong)))
