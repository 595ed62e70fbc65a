"""Mixtures of processes against enumeration of all labels, quadrature and a dense bound. [004 §6.1]"""

from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

import inducing as ig
from inducing import errors
from inducing.beside.mixture import ProcessMixture

KERNEL, NOISE = ig.kernels.RBF(1.0, 2.0), 0.0225


def crossing(seed: int, n: int = 120) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two curves that cross, and which of them each row is on."""
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(-3.0, 3.0, n), rng.integers(0, 2, n)
    f = np.where(z == 0, np.sin(1.5 * x) + 0.5 * x, -0.5 * x - np.cos(x))
    return x[:, None], f + np.sqrt(NOISE) * rng.standard_normal(n), z


@pytest.fixture(scope="module")
def found() -> ProcessMixture:
    X, y, _ = crossing(1)
    return ig.mixture(KERNEL, ig.bases.Points(np.linspace(-3, 3, 16)[:, None]), NOISE, X, y, rng=0)


def test_one_component_is_vfe() -> None:
    X, y, _ = crossing(0, 40)
    basis = ig.bases.Points(X[::4])
    one = ig.mixture(KERNEL, basis, NOISE, X, y, components=1)
    assert one.best.log_weight == pytest.approx(ig.log_evidence(KERNEL, basis, "vfe", NOISE, X, y), rel=1e-9)
    mean, variance = ig.condition(KERNEL, basis, "vfe", NOISE, X, y).predict(X)
    np.testing.assert_allclose(one.predict(X).mean, mean, atol=1e-8)
    np.testing.assert_allclose(one.predict(X).variance, variance + NOISE, atol=1e-8)


def test_the_bound_is_below_the_evidence_of_all_labels() -> None:
    """On Z = X the processes are exact: log p(y) is a sum over 2⁸ labellings, of which F is a lower bound."""
    X, y, _ = crossing(3, 8)
    noise, K = 0.1, 2.0 * np.exp(-0.5 * (X - X.T) ** 2)
    found = ig.mixture(KERNEL, ig.bases.Points(X), noise, X, y, rng=0)
    shares = np.array([part.share for part in found.best.components])
    logs = []
    for labels in product((0, 1), repeat=8):
        value = 0.0
        for j in (0, 1):
            on = np.array(labels) == j
            if on.any():
                C = K[np.ix_(on, on)] + noise * np.eye(on.sum())
                value += multivariate_normal.logpdf(y[on], np.zeros(on.sum()), C) + on.sum() * np.log(
                    shares[j]
                )
        logs.append(value)
    exact = np.logaddexp.reduce(logs)
    assert found.best.log_weight <= exact
    # F of labels that are certain is their own term, so the best solution is no less than the best labelling
    assert found.best.log_weight > np.max(logs) - 1e-3


def test_responsibilities_are_where_the_dense_bound_is_flat() -> None:
    """F written out densely on Z = X; moving any responsibility lowers it."""
    X, y, _ = crossing(3, 8)
    noise, K = 0.4, 2.0 * np.exp(-0.5 * (X - X.T) ** 2)
    options = dict(starts=8, rng=0, tolerance=1e-13, rounds=5000)
    found = ig.mixture(KERNEL, ig.bases.Points(X), noise, X, y, **options)

    def bound(r: np.ndarray) -> float:
        r = np.clip(r, 1e-12, None)
        shares = r.sum(axis=0) / r.sum()
        total = float(np.sum(r * (np.log(shares) - np.log(r))))
        for w in r.T:
            root = np.sqrt(w)
            B = noise * np.eye(8) + root[:, None] * K * root
            total -= 0.5 * (w.sum() * np.log(2 * np.pi * noise) + np.linalg.slogdet(B / noise)[1])
            total -= 0.5 * (root * y) @ np.linalg.solve(B, root * y)
        return total

    unsure = 0
    for solution in found.solutions:
        r = solution.responsibilities
        assert solution.log_weight == pytest.approx(bound(r), abs=1e-6)
        for i in np.flatnonzero(np.min(r, axis=1) > 1e-3):
            unsure += 1
            for step in (0.01, -0.01):
                moved = r.copy()
                moved[i] += step * min(r[i]) * np.array([1.0, -1.0])
                assert bound(moved) < bound(r) + 1e-9
    assert unsure


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_crossing_curves_are_told_apart(seed: int) -> None:
    X, y, z = crossing(seed)
    found = ig.mixture(KERNEL, ig.bases.Points(np.linspace(-3, 3, 16)[:, None]), NOISE, X, y, rng=0)
    agree = np.mean(found.best.labels == z)
    assert max(agree, 1.0 - agree) > 0.95
    assert found.weights.sum() == pytest.approx(1.0)
    assert sum(s.starts for s in found.solutions) == 50
    one = ig.mixture(KERNEL, ig.bases.Points(X[::8]), NOISE, X, y, components=1)
    assert found.best.log_weight > one.best.log_weight + 100


def test_density_moments_and_modes(found: ProcessMixture) -> None:
    """By quadrature of a density written from the components' moments."""
    x = np.array([[-2.0], [1.9]])
    parts = [(w, *part.posterior.predict(x)) for w, part in found.components()]
    for i in range(2):

        def density(y: float, i: int = i) -> float:
            return sum(w * norm.pdf(y, m[i], np.sqrt(v[i] + NOISE)) for w, m, v in parts)

        row = x[i : i + 1]
        assert np.exp(found.log_density(row, np.array([0.3])))[0] == pytest.approx(density(0.3), rel=1e-9)
        mean = quad(lambda y: y * density(y), -9, 9, points=[-1, 0, 1], limit=400)[0]
        square = quad(lambda y: y * y * density(y), -9, 9, points=[-1, 0, 1], limit=400)[0]
        assert found.predict(row).mean[0] == pytest.approx(mean, abs=1e-7)
        assert found.predict(row).variance[0] == pytest.approx(square - mean**2, abs=1e-7)
        grid = np.linspace(-4, 4, 80001)
        p = density(grid)
        peaks = grid[1:-1][(p[1:-1] > p[:-2]) & (p[1:-1] > p[2:]) & (p[1:-1] > 1e-6)]
        modes = found.modes(row)[0]
        assert set(np.round(peaks, 3)) <= set(np.round(modes, 3)) | set(np.round(modes + 1e-4, 3))
        assert density(modes[0]) >= density(modes[-1])


def test_learning_raises_the_bound() -> None:
    X, y, _ = crossing(0)
    basis = ig.bases.Points(np.linspace(-3, 3, 16)[:, None])
    start = ig.mixture(ig.kernels.RBF(1.5, 1.0), basis, 0.1, X, y, rng=0)
    learned = ig.mixture(ig.kernels.RBF(1.5, 1.0), basis, 0.1, X, y, rng=0, learn=2)
    assert learned.best.log_weight > start.best.log_weight + 10
    assert all(part.likelihood.variance == pytest.approx(NOISE, rel=0.5) for part in learned.best.components)


def test_labels_of_two_classes_from_two_functions() -> None:
    """Another likelihood: EM over probit rows climbs and predicts probabilities."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 80)[:, None]
    y = np.where(rng.random(80) < 0.9, np.sign(x[:, 0]), 1.0)
    found = ig.mixture(
        ig.kernels.RBF(1.0, 4.0), ig.bases.Points(x[:10]), ig.likelihoods.Probit(1.0), x, y, starts=2, rng=0
    )
    assert np.all(np.exp(found.log_density(x, y)) <= 1.0)
    both = np.exp(found.log_density(x, np.ones(80))) + np.exp(found.log_density(x, -np.ones(80)))
    np.testing.assert_allclose(both, 1.0, atol=1e-9)


def test_what_is_refused_or_warned_of() -> None:
    X, y, _ = crossing(0, 30)
    basis = ig.bases.Points(X[:5])
    with pytest.raises(errors.ParameterError, match="not 3 kernels, 2 components"):
        ig.mixture([KERNEL] * 3, basis, NOISE, X, y)
    with pytest.warns(errors.IterationWarning, match="raise rounds"):
        ig.mixture(KERNEL, basis, NOISE, X, y, starts=1, rounds=2, rng=0)
