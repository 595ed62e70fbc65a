"""Evidence and gradient of every likelihood, each under every power and on either basis, against dense power
EP; and non-log-concave ones from unfriendly starts.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit

import inducing as ig
import oracle
import oracle_sites
from inducing.errors import IterationWarning
from inducing.model import likelihoods as L

sys.path.append(str(Path(__file__).parents[1] / "model"))
import likelihood_cases as dense

N, JITTER = 12, 1e-8
rng = np.random.default_rng(8)
X = rng.uniform(-2, 2, (N, 2))
F = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
CENTERS = np.array([[-1.6, -1.2], [-1.0, 1.3], [0.1, -0.2], [1.5, 0.4]])
WIDTHS = np.array([[0.9, 1.3], [1.1, 1.0], [0.7, 1.9], [1.4, 1.4]])
LENGTHSCALE, VARIANCE = np.array([0.9, 1.3]), 1.3
KERNEL = ig.kernels.RBF(LENGTHSCALE, VARIANCE)
K0 = oracle.bind(oracle.rbf, lengthscale=LENGTHSCALE, variance=VARIANCE)

REAL = F + 0.4 * rng.standard_t(3, N)
EXPOSURE = rng.uniform(0.5, 4.0, N)
COUNTS = rng.poisson(EXPOSURE * np.exp(0.5 * F)).astype(float)
TRIALS = rng.integers(1, 9, N).astype(float)
SUCCESSES = rng.binomial(TRIALS.astype(int), expit(F)).astype(float)
TIMES, CENSORED = rng.weibull(1.8, N) * np.exp(F), (rng.uniform(size=N) < 0.4) * 1.0
SHARES = np.clip(rng.beta(6 * expit(F), 6 * expit(-F)), 0.02, 0.98)
CLASSES = np.clip(np.round(F + 1.5 + 0.3 * rng.standard_normal(N)), 0, 3)
SIDES = rng.choice([-1.0, 0.0, 1.0], N)
THRESHOLDS = np.array([-np.inf, -0.5, 0.3, 2.3, np.inf])


def by_row(log_p: Callable[..., np.ndarray], *columns: np.ndarray) -> oracle_sites.LogDensity:
    """log p of the numbers of a row, for the oracle, which then has the rows' own numbers as y."""

    def of(number: np.ndarray, f: np.ndarray) -> np.ndarray:
        row = number.astype(int)
        return log_p(*(column[row] for column in columns), f)

    return of


def censored_normal(y: np.ndarray, side: np.ndarray, f: np.ndarray) -> np.ndarray:
    sd = np.sqrt(0.3)
    below, above = stats.norm.logcdf(y, f, sd), stats.norm.logsf(y, f, sd)
    return np.where(side == 0, stats.norm.logpdf(y, f, sd), np.where(side > 0, above, below))


def gamma_times(y: np.ndarray, censored: np.ndarray, f: np.ndarray) -> np.ndarray:
    survivors = dense.log_upper_gamma(2.5, 2.5 * y * np.exp(-f))
    return np.where(censored > 0, survivors, dense.gamma(y, 2.5, f))


def weibull_times(shape: float) -> Callable[..., np.ndarray]:
    def log_p(y: np.ndarray, censored: np.ndarray, f: np.ndarray) -> np.ndarray:
        return np.where(censored > 0, dense.weibull(y, shape, f, True), dense.weibull(y, shape, f, False))

    return log_p


def ordinal(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    low, high = THRESHOLDS[y.astype(int)], THRESHOLDS[y.astype(int) + 1]
    return dense.between((low - f) / np.sqrt(0.3), (high - f) / np.sqrt(0.3))


def poisson(y: np.ndarray, exposure: np.ndarray, f: np.ndarray) -> np.ndarray:
    return stats.poisson.logpmf(y, exposure * np.exp(f))


def sech(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    e = np.abs(y - f)
    return -e - 2.0 * np.log1p(np.exp(-e))


def pairs(*columns: np.ndarray) -> np.ndarray:
    return np.column_stack(columns)


EVERY: dict[str, tuple[L.Likelihood, np.ndarray, Any]] = {
    "ordinal": (L.Ordinal(-0.5, (0.8, 2.0), 0.3), CLASSES, by_row(ordinal, CLASSES)),
    "exposed poisson": (L.Poisson(), pairs(COUNTS, EXPOSURE), by_row(poisson, COUNTS, EXPOSURE)),
    "negative binomial": (
        L.NegativeBinomial(1.7),
        pairs(COUNTS, EXPOSURE),
        by_row(
            lambda y, e, f: dense.negative_binomial(y, 1.7, f + np.log(e / 1.7)),  # type: ignore[arg-type]
            COUNTS,
            EXPOSURE,
        ),
    ),
    "binomial": (
        L.Binomial(),
        pairs(SUCCESSES, TRIALS),
        by_row(lambda y, n, f: dense.binomial(y, n, f), SUCCESSES, TRIALS),  # type: ignore[arg-type]
    ),
    "gamma": (L.Gamma(2.5), pairs(TIMES, CENSORED), by_row(gamma_times, TIMES, CENSORED)),
    "exponential": (L.Exponential(), pairs(TIMES, CENSORED), by_row(weibull_times(1.0), TIMES, CENSORED)),
    "weibull": (L.Weibull(1.8), pairs(TIMES, CENSORED), by_row(weibull_times(1.8), TIMES, CENSORED)),
    "beta": (L.Beta(6.0), SHARES, by_row(lambda y, f: dense.beta(y, f, 6.0), SHARES)),  # type: ignore[arg-type]
    "laplace": (
        L.Laplace(0.4),
        REAL,
        oracle_sites.Kinked(by_row(lambda y, f: stats.laplace.logpdf(y, f, 0.4), REAL), REAL),
    ),
    "asymmetric laplace": (
        L.AsymmetricLaplace(0.3, 0.8),
        REAL,
        oracle_sites.Kinked(by_row(lambda y, f: dense.asymmetric(y - f, 0.3, 0.8), REAL), REAL),
    ),
    "contaminated": (
        L.Contaminated(0.2, 0.1, 25.0),
        REAL,
        by_row(lambda y, f: dense.contaminated(y - f, 0.2, 0.1, 25.0), REAL),
    ),
    "censored": (L.CensoredGaussian(0.3), pairs(REAL, SIDES), by_row(censored_normal, REAL, SIDES)),
    "step": (
        L.Step(0.1),
        np.sign(F),
        oracle_sites.Kinked(
            by_row(lambda y, f: np.where(y * f > 0, np.log(0.9), np.log(0.1)), np.sign(F)), np.zeros(N)
        ),
    ),
    "own": (L.Custom(sech), REAL, by_row(sech, REAL)),
}
ROWS = {"dtc": 1.0, "vfe": 0.0, "pep": 0.4, "fitc": 1.0}


def options(name: str) -> dict[str, Any]:
    return {"power": ROWS[name]} if name == "pep" else {}


def test_the_list_is_complete() -> None:
    """What is not here is beside the four of test_likelihood_evidence.py, has several processes, or is that
    of a density with two modes.
    """
    here = {type(model).__name__ for model, _, _ in EVERY.values()}
    elsewhere = {"Gaussian", "Probit", "Logistic", "StudentT", "LearnedNoise", "LearnedScaleT", "Softmax"}
    known = {kind.__name__ for kind in L.BY_NAME.values()} | {"Custom"}
    assert here | elsewhere | {"Squared"} == known


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("likelihood", EVERY)
def test_evidence_is_that_of_dense_power_ep(name: str, likelihood: str) -> None:
    model, y, log_p = EVERY[likelihood]
    for basis, kernels in (
        (ig.bases.Points(CENTERS), oracle.points(K0, CENTERS)),
        (ig.bases.Multiscale(CENTERS, WIDTHS), oracle.multiscale(CENTERS, WIDTHS, LENGTHSCALE, VARIANCE)),
    ):
        Q = oracle.q_matrix(oracle.jittered(kernels, JITTER), X, X)
        R = np.zeros(N) if name == "dtc" else np.diag(K0(X, X)) - np.diag(Q)
        value, tau, nu = oracle_sites.power_ep(Q, R, np.arange(N), log_p, ROWS[name])
        post = ig.condition(KERNEL, basis, name, model, X, y, jitter=JITTER, tolerance=1e-9, **options(name))
        assert post.sites.converged
        assert_allclose(post.log_evidence, value, atol=1e-7, rtol=1e-7)
        assert_allclose(post.sites.tau, tau, atol=1e-6 * np.max(np.abs(tau)))
        assert_allclose(post.sites.nu, nu, atol=1e-6 * np.max(np.abs(nu)))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("likelihood", EVERY)
def test_gradient_along_a_direction(name: str, likelihood: str) -> None:
    """A central difference in all parameters at once, the sites converged at both ends."""
    model, y, _ = EVERY[likelihood]
    basis, direction = ig.bases.Points(CENTERS), np.random.default_rng(1)
    call: dict[str, Any] = dict(jitter=1e-6, tolerance=1e-11, **options(name))
    _, gradient = ig.log_evidence_and_gradient(KERNEL, basis, name, model, X, y, **call)
    things = {"kernel": KERNEL, "basis": basis, "likelihood": model}
    along = {key: direction.standard_normal(np.shape(slope)) for key, slope in gradient.items()}
    ends = []
    for step in (1e-5, -1e-5):
        moved = []
        for key, thing in things.items():
            values = {leaf: value + step * along[f"{key}.{leaf}"] for leaf, value in thing.parameters.items()}
            moved.append(thing.with_parameters(values))
        ends.append(ig.log_evidence(moved[0], moved[1], name, moved[2], X, y, **call))
    expected = sum(float(np.sum(along[key] * slope)) for key, slope in gradient.items())
    assert_allclose((ends[0] - ends[1]) / 2e-5, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "model", [L.StudentT(4.0, 0.3), L.StudentT(1.5, 0.05), L.Contaminated(0.01, 0.2, 400.0), L.Step(0.05)]
)
def test_without_log_concavity_sites_settle_or_say_so(model: L.Likelihood) -> None:
    """Outliers, few rows, wide and narrow kernels: the result is a fixed point, or there is a warning and a
    process all the same. Student's t of a common width always settles, the others nearly always by VFE.
    """
    fuzz, settled = np.random.default_rng(4), {"vfe": 0, "fitc": 0, "dtc": 0}
    for _ in range(8):
        n = int(fuzz.integers(5, 60))
        Xs = fuzz.uniform(-3, 3, (n, 1))
        y = np.sin(2 * Xs[:, 0]) + np.where(fuzz.uniform(size=n) < 0.3, 20.0, 0.1) * fuzz.standard_normal(n)
        y = np.where(y > 0, 1.0, -1.0) if isinstance(model, L.Binary) else y
        kernel = ig.kernels.RBF(float(fuzz.uniform(0.1, 2.0)), float(10 ** fuzz.uniform(-1, 3)))
        basis = ig.bases.Points(Xs[: min(n, 15)])
        for name in settled:
            sweeps = 400 if name == "vfe" else 100
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                post = ig.condition(kernel, basis, name, model, Xs, y, jitter=1e-6, sweeps=sweeps)
            assert post.sites.converged or any(issubclass(w.category, IterationWarning) for w in caught)
            assert np.all(np.isfinite(np.ravel(post.predict(Xs))))
            settled[name] += post.sites.converged
    common = model == L.StudentT(4.0, 0.3)
    assert settled == {"vfe": 8, "fitc": 8, "dtc": 8} if common else settled["vfe"] >= 7
