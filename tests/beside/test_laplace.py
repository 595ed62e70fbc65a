"""Laplace's method against Newton's method on the row's dense prior covariance. [003 §9]"""

import numpy as np
import pytest
from scipy.stats import norm

import inducing as ig
from inducing import errors


def dense(K: np.ndarray, y: np.ndarray, mean: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The mode, W there and log q(y) for probit labels, prior N(mean, K). [Rasmussen, Williams 2006 §3.4]"""
    f = np.full(len(y), mean)
    for _ in range(200):
        ratio = np.exp(norm.logpdf(f) - norm.logcdf(y * f))
        slope, W = y * ratio, ratio**2 + y * f * ratio
        B = np.eye(len(y)) + np.sqrt(W)[:, None] * K * np.sqrt(W)
        b = W * (f - mean) + slope
        a = b - np.sqrt(W) * np.linalg.solve(B, np.sqrt(W) * (K @ b))
        f = mean + K @ a
    return f, W, float(np.sum(norm.logcdf(y * f)) - 0.5 * a @ (f - mean) - 0.5 * np.linalg.slogdet(B)[1])


@pytest.mark.parametrize("name", ["exact", "sor", "dtc", "fitc"])
def test_mode_and_evidence_are_the_dense_ones(name: str) -> None:
    rng = np.random.default_rng(0)
    X, Z, Xs = rng.uniform(-2, 2, (30, 1)), np.linspace(-2, 2, 6)[:, None], np.linspace(-3, 3, 9)[:, None]
    y = np.where(rng.random(30) < norm.cdf(2 * np.sin(2 * X[:, 0])), 1.0, -1.0)

    def k(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return 3.0 * np.exp(-0.5 * (A - B.T) ** 2 / 0.64)

    Kuu = k(Z, Z) + 1e-8 * 3.0 * np.eye(6)
    Q, Qs = (k(A, Z) @ np.linalg.solve(Kuu, k(Z, X)) for A in (X, Xs))
    K = {"exact": k(X, X), "fitc": Q + np.diag(3.0 - np.diag(Q))}.get(name, Q)
    cross = k(Xs, X) if name == "exact" else Qs
    f, W, evidence = dense(K, y, 0.3)
    post = ig.laplace(
        ig.kernels.RBF(0.8, 3.0),
        ig.bases.Points(Z),
        name,
        ig.likelihoods.Probit(1.0),
        X,
        y,
        mean=ig.means.Constant(0.3),
    )
    C = np.linalg.inv(K + np.diag(1.0 / W))
    ratio = np.exp(norm.logpdf(f) - norm.logcdf(y * f))
    np.testing.assert_allclose(post.mean(Xs), 0.3 + cross @ C @ (f - 0.3 + y * ratio / W), atol=1e-6)
    own = np.sum((k(Xs, Z) @ np.linalg.inv(Kuu)) * k(Xs, Z), axis=1) if name == "sor" else 3.0
    np.testing.assert_allclose(post.predict(Xs).variance, own - np.sum(cross @ C * cross, axis=1), atol=1e-6)
    assert post.log_evidence == pytest.approx(evidence, abs=1e-6)


def test_counts_far_out_settle() -> None:
    X = np.linspace(0, 1, 20)[:, None]
    y = np.round(np.exp(6 * np.sin(6 * X[:, 0])))
    post = ig.laplace(ig.kernels.RBF(0.3, 20.0), None, "exact", ig.likelihoods.Poisson(), X, y)
    np.testing.assert_allclose(post.mean(X)[y > 50], np.log(y[y > 50]), atol=0.2)


def test_what_is_refused() -> None:
    X, y = np.zeros((2, 1)), np.ones(2)
    for name, likelihood in (("vfe", ig.likelihoods.Probit(1.0)), ("fitc", ig.likelihoods.StudentT())):
        with pytest.raises(errors.ParameterError, match="log-concave"):
            ig.laplace(ig.kernels.RBF(), ig.bases.Points(X[:1]), name, likelihood, X, y)
