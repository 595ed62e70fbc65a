"""The Nyström method as written, negative variances and all. [003 eqs 31, 32]"""

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
import oracle
import oracle_beside as dense
from inducing import errors

LENGTHSCALE, VARIANCE, NOISE = np.array([0.9, 1.3]), 1.7, 0.09
KERNEL = ig.kernels.RBF(LENGTHSCALE, VARIANCE)
K0 = oracle.bind(oracle.rbf, lengthscale=LENGTHSCALE, variance=VARIANCE)

rng = np.random.default_rng(5)
X = rng.uniform(-2, 2, (300, 2))
XS = rng.uniform(-7, 7, (40, 2))  # some where there are no data
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.standard_normal(300)
Y2 = np.stack([Y, np.cos(X[:, 1]) - 0.4], axis=1)
NOISES = rng.uniform(0.02, 0.4, 300)
Z = rng.uniform(-2, 2, (7, 2))


def bases(kind: str) -> tuple[Any, oracle.Basis]:
    if kind == "points":
        return ig.bases.Points(Z), oracle.points(K0, Z)
    return ig.bases.Multiscale(Z, np.full((7, 2), 1.6)), oracle.multiscale(Z, 1.6, LENGTHSCALE, VARIANCE)


@pytest.mark.filterwarnings("ignore::inducing.errors.NegativeVarianceWarning")
@pytest.mark.parametrize("kind", ["points", "multiscale"])
@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("noise", [NOISE, NOISES], ids=["scalar noise", "row noise"])
def test_equation_32(noise: Any, y: Any, kind: str) -> None:
    basis, reference = bases(kind)
    reference = oracle.jittered(reference, 1e-8)
    mean, cov = oracle.condition(dense.nystrom_prior(K0, reference, X, XS), noise, y)
    predictor = ig.condition(KERNEL, basis, "nystrom", noise, X, y)
    got_mean, got_variance = predictor.predict(XS)
    scale = np.max(np.abs(cov))
    assert_allclose(got_mean, mean, rtol=1e-8, atol=1e-9 * np.max(np.abs(mean)))
    assert_allclose(got_variance, np.diag(cov), rtol=1e-8, atol=1e-9 * scale)
    assert_allclose(predictor.covariance(XS), cov, rtol=1e-8, atol=1e-9 * scale)
    assert_allclose(predictor.log_evidence, oracle.log_evidence("dtc", K0, reference, noise, X, y), rtol=1e-8)


def test_negative_variances_are_counted_and_returned() -> None:
    """[003 §10.1]: the matrix of eq. 31 is indefinite, that of DTC, with Q_f* in place of K_f*, is not."""
    basis, reference = bases("points")
    Kff, Kfs, Kss = dense.nystrom_prior(K0, oracle.jittered(reference, 1e-8), X, XS)
    assert np.linalg.eigvalsh(np.block([[Kff, Kfs], [Kfs.T, Kss]])).min() < -1.0
    Qff, Qfs, _ = oracle.joint_prior("dtc", K0, reference, X, XS)
    assert np.linalg.eigvalsh(np.block([[Qff, Qfs], [Qfs.T, Kss]])).min() > -1e-9
    variance = np.diag(oracle.condition((Kff, Kfs, Kss), NOISE, Y)[1])
    count = int(np.sum(variance < 0))
    assert 0 < count < len(XS)
    predictor = ig.condition(KERNEL, basis, "nystrom", NOISE, X, Y)
    with pytest.warns(
        errors.NegativeVarianceWarning, match=f"^{count} of 40 predicted variances are negative"
    ):
        found = predictor.predict(XS).variance
    assert np.sum(found < 0) == count
    with pytest.warns(errors.NegativeVarianceWarning, match=f"^{count} of 40"):
        predictor.covariance(XS)


def test_basis_on_every_row_is_the_exact_gp() -> None:
    """Q_ff = K_ff: the only case where eq. 31 is a prior. Nothing to warn of."""
    A, y, k = X[:30], Y[:30], oracle.bind(oracle.rbf, lengthscale=0.4, variance=1.0)
    predictor = ig.condition(ig.kernels.RBF(0.4, 1.0), ig.bases.Points(A), "nystrom", NOISE, A, y, jitter=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mean, variance = predictor.predict(XS)
    expected, cov = dense.exact(k, NOISE, A, y, XS)
    assert_allclose(mean, expected, rtol=1e-7, atol=1e-9)
    assert_allclose(variance, np.diag(cov), rtol=1e-7)


@pytest.mark.filterwarnings("ignore::inducing.errors.NegativeVarianceWarning")
def test_weights_and_prior_mean() -> None:
    rng = np.random.default_rng(100)
    weights = rng.integers(0, 3, 300)
    basis, reference = bases("points")
    mean = ig.means.Constant(0.7)
    found = ig.condition(KERNEL, basis, "nystrom", NOISES, X, Y, weights=weights, mean=mean).predict(XS)
    noises, A, y = oracle.repeat(weights, NOISES, X, Y)
    prior = dense.nystrom_prior(K0, oracle.jittered(reference, 1e-8), A, XS)
    expected, cov = oracle.condition(prior, noises, y, 0.7, 0.7)
    assert_allclose(found.mean, expected, rtol=1e-8, atol=1e-8)
    assert_allclose(found.variance, np.diag(cov), rtol=1e-8, atol=1e-8 * np.max(np.abs(cov)))


def test_streams_over_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chunks of queries and many of rows give the dense answer; no kernel matrix is rows x queries."""
    rng = np.random.default_rng(101)
    sizes = []
    original = ig.kernels.RBF._matrix

    def record(self: Any, A: Any, B: Any, out: Any) -> Any:
        sizes.append((len(A), len(B)))
        return original(self, A, B, out)

    monkeypatch.setattr(ig.kernels.RBF, "_matrix", record)
    A = rng.uniform(-2, 2, (9000, 2))
    y, queries = np.sin(2 * A[:, 0]), rng.uniform(-3, 3, (300, 2))
    predictor = ig.condition(KERNEL, ig.bases.Points(Z), "nystrom", NOISE, A, y)
    with pytest.warns(errors.NegativeVarianceWarning):
        mean, variance = predictor.predict(queries)
    assert max(a for a, _ in sizes) < 9000 and max(b for _, b in sizes) < 300
    reference = oracle.jittered(oracle.points(K0, Z), 1e-8)
    # (Q + s2 I)^-1 = (I - Kfu Sigma Kuf / s2) / s2 with Sigma of 003 eq. 16, so that nothing dense is needed
    Kfu, Kfs = reference.cross(A), K0(A, queries)
    Sigma = np.linalg.inv(reference.gram + Kfu.T @ Kfu / NOISE)
    solved = (Kfs - Kfu @ (Sigma @ (Kfu.T @ Kfs)) / NOISE) / NOISE
    assert_allclose(mean, solved.T @ y, rtol=1e-7, atol=1e-7 * np.max(np.abs(mean)))
    expected = VARIANCE - np.sum(Kfs * solved, axis=0)
    assert_allclose(variance, expected, rtol=1e-7, atol=1e-7 * np.max(np.abs(expected)))


def test_refusals() -> None:
    with pytest.raises(errors.ParameterError, match="needs a basis"):
        ig.condition(KERNEL, None, "nystrom", NOISE, X, Y)
    with pytest.raises(errors.ParameterError, match="power is only for 'pep', not for 'nystrom'"):
        ig.condition(KERNEL, ig.bases.Points(Z), "nystrom", NOISE, X, Y, power=0.5)
    with pytest.raises(errors.ShapeError, match="X has 1 columns"):
        ig.condition(KERNEL, ig.bases.Points(Z), "nystrom", NOISE, X, Y).covariance(np.zeros((2, 1)))
