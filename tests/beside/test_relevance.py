"""The relevance vector machine against dense formulas: evidence, predictions, stationarity, healing. [003
§10.2]
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import inducing as ig
import oracle
from experiments import reproduce
from inducing import errors
from inducing.beside import relevance, relevance_search

KERNEL = ig.kernels.RBF(0.6, 1.7)
K0 = oracle.bind(oracle.rbf, lengthscale=0.6, variance=1.7)
X, Y = ig.datasets.sinc(60, noise=0.01, low=-3.0, high=3.0, rng=0)
XS = np.linspace(-4.0, 4.0, 11)[:, None]
CENTERS, WIDTHS = X[::2], np.where(np.arange(30) % 2, 0.6, 1.5)[:, None]


def log_evidence(alpha: Any, noise: float, Phi: Any, y: Any) -> float:
    """log N(y | 0, ΦA⁻¹Φᵀ + σ²I). [003 Remark 15]"""
    C = (Phi / alpha) @ Phi.T + noise * np.eye(len(y))
    return -0.5 * float(len(y) * np.log(2 * np.pi) + np.linalg.slogdet(C)[1] + y @ np.linalg.solve(C, y))


def predictions(alpha: Any, noise: float, Phi: Any, y: Any, Phis: Any) -> tuple[Any, Any]:
    """The Gaussian process with k_RVM, conditioned by n x n matrices. [003 Remark 15, eq. 6]"""
    C = (Phi / alpha) @ Phi.T + noise * np.eye(len(y))
    cross = (Phis / alpha) @ Phi.T
    return cross @ np.linalg.solve(C, y), (Phis / alpha) @ Phis.T - cross @ np.linalg.solve(C, cross.T)


@pytest.fixture(scope="module")
def learned() -> Any:
    return ig.relevance_vectors(KERNEL, X, Y)


@pytest.mark.parametrize("noise", [None, 0.02])
@pytest.mark.parametrize("kind", ["points", "multiscale"])
def test_predictions_and_evidence_are_those_of_the_degenerate_process(kind: str, noise: Any) -> None:
    basis = None if kind == "points" else ig.bases.Multiscale(CENTERS, WIDTHS)
    found = ig.relevance_vectors(KERNEL, X, Y, basis=basis, noise=noise)
    if kind == "points":
        Phi, Phis = K0(X, X[found.rows]), K0(XS, X[found.rows])
    else:
        functions = oracle.multiscale(CENTERS[found.rows], WIDTHS[found.rows], np.array([0.6]), 1.7)
        Phi, Phis = functions.cross(X), functions.cross(XS)
    assert 2 <= len(found) < 20 and found.converged
    assert found.noise == (noise or found.noise)
    mean, cov = predictions(found.precisions, found.noise, Phi, Y, Phis)
    assert_allclose(found.predict(XS).mean, mean, rtol=1e-8, atol=1e-10)
    assert_allclose(found.predict(XS).variance, np.diag(cov), rtol=1e-6, atol=1e-12)
    assert_allclose(found.covariance(XS), cov, atol=1e-11)
    value = log_evidence(found.precisions, found.noise, Phi, Y)
    assert_allclose([found.log_evidence, found.values[-1]], value, rtol=1e-9)


def test_every_step_raises_the_evidence(learned: Any) -> None:
    assert len(learned.values) > 20
    assert np.all(np.diff(learned.values) > 0)
    assert learned.values[0] == pytest.approx(
        np.sum(-0.5 * np.log(2 * np.pi * 0.1 * np.mean(Y**2)) - 5 * Y**2 / np.mean(Y**2))
    )
    assert 0.005 < learned.noise < 0.02


def test_no_precision_and_no_candidate_could_do_better(learned: Any) -> None:
    """Dense maximisation from where the search ended gains nothing, and no function left out belongs in: q² ≤
    s.
    """
    Phi = K0(X, X[learned.rows])

    def loss(p: Any) -> float:
        return -log_evidence(np.exp(p[:-1]), np.exp(p[-1]), Phi, Y)

    start = np.log(np.append(learned.precisions, learned.noise))
    best = minimize(loss, start, method="L-BFGS-B", bounds=[(p - 5, p + 5) for p in start])
    assert loss(start) - best.fun < 1e-3
    C = (Phi / learned.precisions) @ Phi.T + learned.noise * np.eye(len(Y))
    rest = K0(X, np.delete(X, learned.rows, axis=0))
    s, q = np.sum(rest * np.linalg.solve(C, rest), axis=0), rest.T @ np.linalg.solve(C, Y)
    gain = np.where(q**2 > s, 0.5 * (q**2 / s - 1 - np.log(np.maximum(q**2 / s, 1.0))), 0.0)
    assert np.max(gain) < 1e-6


def test_as_good_as_fixed_point_iteration_over_all_functions() -> None:
    """Tipping's batch updates α = γ/μ² with every candidate in the model from the start, on n x n matrices.
    [Tipping 2001]
    """
    Phi, noise, alpha = K0(X, X), 0.01, np.full(60, 1.0)
    for _ in range(3000):
        live = alpha < 1e9
        S = np.linalg.inv(np.diag(alpha[live]) + Phi[:, live].T @ Phi[:, live] / noise)
        mu = S @ Phi[:, live].T @ Y / noise
        alpha[live] = np.clip(1 - alpha[live] * np.diag(S), 1e-12, None) / np.maximum(mu**2, 1e-30)
    found = ig.relevance_vectors(KERNEL, X, Y, noise=noise)
    batch = log_evidence(alpha[live], noise, Phi[:, live], Y)
    assert abs(found.values[-1] - batch) < 2.0  # two local maxima of one surface
    assert found.values[-1] > log_evidence(np.full(60, 1.0), noise, Phi, Y) + 5.0
    S = np.linalg.inv(np.diag(alpha[live]) + Phi[:, live].T @ Phi[:, live] / noise)
    mean = K0(XS, X[live]) @ (S @ Phi[:, live].T @ Y / noise)
    inside = np.abs(XS[:, 0]) < 3
    assert_allclose(found.predict(XS).mean[inside], mean[inside], atol=0.05)


@pytest.mark.parametrize("kind", ["points", "multiscale"])
def test_augmentation_is_one_function_more(kind: str) -> None:
    """Each query alone, and all together, by dense conditioning with the query's own function in the prior.
    [003 §8.1]
    """
    basis = None if kind == "points" else ig.bases.Multiscale(CENTERS, WIDTHS)
    healed = ig.relevance_vectors(KERNEL, X, Y, basis=basis, augment=True, prior_variance=0.3)
    own = np.full(len(XS), 1.7**2 / 0.3)  # k(x*, x*)²/ρ
    functions = healed.basis.cross(KERNEL, X), healed.basis.cross(KERNEL, XS)
    mean, variance = healed.predict(XS)
    for i, x in enumerate(XS):
        Phi, Phis = np.hstack([functions[0], K0(X, x[None])]), np.append(functions[1][i], 1.7)[None]
        expected = predictions(np.append(healed.precisions, own[i]), healed.noise, Phi, Y, Phis)
        assert_allclose(mean[i], expected[0][0], rtol=1e-8, atol=1e-10)
        assert_allclose(variance[i], expected[1][0, 0], rtol=1e-8, atol=1e-11)
    Phi, Phis = np.hstack([functions[0], K0(X, XS)]), np.hstack([functions[1], K0(XS, XS)])
    joint = predictions(np.append(healed.precisions, own), healed.noise, Phi, Y, Phis)
    assert_allclose(healed.jointly(XS).predict(XS).mean, joint[0], rtol=1e-7, atol=1e-9)
    assert_allclose(healed.covariance(XS), joint[1], atol=1e-9)


def test_variance_away_from_the_data(learned: Any) -> None:
    """[003 §8.1, §10.2]: the machine is surest where it knows nothing; healed, it has the prior's variance
    there.
    """
    far = np.array([[30.0], [-40.0]])
    healed = replace(learned, augment=True)
    assert_allclose(learned.predict(far).variance, 0.0, atol=1e-12)
    assert_allclose(healed.predict(far).variance, np.mean(Y**2), rtol=1e-12)
    assert_allclose(healed.predict(far).mean, 0.0, atol=1e-12)
    away = healed.predict(np.array([[0.0], [3.5], [4.0], [5.0]])).variance
    assert np.all(np.diff(away) > 0)


def test_chunks_of_rows_and_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ig.relevance_vectors(KERNEL, X, Y, augment=True, max_iterations=40)
    expected = whole.predict(XS)
    for module in (relevance, relevance_search):
        monkeypatch.setattr(module, "chunk_rows", lambda n, m, X: 7)
    monkeypatch.setattr(relevance, "query_chunks", lambda t, m: [slice(0, 4), slice(4, t)])
    found = ig.relevance_vectors(KERNEL, X, Y, augment=True, max_iterations=40)
    assert_allclose(found.values, whole.values, rtol=1e-8)
    for first, second in zip(found.predict(XS), expected, strict=True):
        assert_allclose(first, second, rtol=1e-5, atol=1e-8)


def test_prior_mean_and_an_empty_model() -> None:
    shifted = ig.relevance_vectors(KERNEL, X, Y + 3.0, mean=ig.means.Constant(3.0), noise=0.01)
    plain = ig.relevance_vectors(KERNEL, X, Y, noise=0.01)
    assert_allclose(shifted.predict(XS).mean, plain.predict(XS).mean + 3.0, rtol=1e-5)
    nothing = ig.relevance_vectors(KERNEL, X, 0.01 * Y, noise=1.0)
    assert len(nothing) == 0 and nothing.converged
    assert_allclose(nothing.predict(XS), np.zeros((2, 11)), atol=0)
    white = -0.5 * np.sum(np.log(2 * np.pi) + (0.01 * Y) ** 2)
    assert nothing.log_evidence == pytest.approx(white)
    healed = replace(nothing, augment=True, prior_variance=2.0).predict(XS)
    for x, mean, variance in zip(XS, *healed, strict=True):
        Phi = K0(X, x[None])
        expected = predictions(np.array([1.7**2 / 2.0]), 1.0, Phi, 0.01 * Y, np.array([[1.7]]))
        assert_allclose([mean, variance], [expected[0][0], expected[1][0, 0]], rtol=1e-9, atol=1e-14)


def test_repeated_inputs_are_one_function() -> None:
    A, y = np.vstack([X, X]), np.concatenate([Y, Y + 0.01])
    found = ig.relevance_vectors(KERNEL, A, y)
    assert len(np.unique(A[found.rows])) == len(found)


def test_it_is_a_posterior_like_others(learned: Any) -> None:
    post = learned.posterior
    assert_allclose(post.alpha @ KERNEL(X[learned.rows], XS), learned.predict(XS).mean, rtol=1e-9, atol=1e-12)
    assert_allclose(post.compile()(XS[3])[1], learned.predict(XS).variance[3], rtol=1e-8)
    with pytest.raises(errors.ConditionalError, match="deterministic"):
        post.prune(2)


def test_asking_changes_nothing() -> None:
    """Not even a process on one function, whose factors are numbers that a product could write into."""
    for post in (
        ig.relevance_vectors(KERNEL, X, Y, basis=ig.bases.Points([[0.1]])).posterior,
        ig.condition(KERNEL, ig.bases.Points([[0.1]]), "sor", 0.1, X, Y),
    ):
        before = post.covariance(XS)
        assert_allclose(post.predict(XS).variance, np.diag(before), rtol=1e-10, atol=1e-300)
        assert_allclose(post.covariance(XS), before, rtol=1e-12)


def test_refusals() -> None:
    with pytest.raises(errors.ShapeError, match="one output"):
        ig.relevance_vectors(KERNEL, X, np.stack([Y, Y], axis=1))
    with pytest.raises(errors.ShapeError, match="one noise variance"):
        ig.relevance_vectors(KERNEL, X, Y, noise=np.full(60, 0.1))
    with pytest.raises(errors.NoiseError):
        ig.relevance_vectors(KERNEL, X, Y, noise=-1.0)
    with pytest.raises(errors.ParameterError, match="nothing to learn"):
        ig.relevance_vectors(KERNEL, X, 0.0 * Y)
    with pytest.raises(errors.ParameterError, match="prior_variance must be positive"):
        ig.relevance_vectors(KERNEL, X, Y, prior_variance=0.0)
    with pytest.raises(errors.ShapeError, match="X has 2 columns"):
        ig.relevance_vectors(KERNEL, X, Y, augment=True).predict(np.zeros((1, 2)))
    assert not ig.relevance_vectors(KERNEL, X, Y, max_iterations=3).converged


def test_quick_page(tmp_path: Any) -> None:
    report = reproduce("Q3", quick=True, folder=tmp_path)
    assert report.holds and len(report.claims) >= 4
    assert all((tmp_path / "Q3" / f"{stem}.png").stat().st_size > 10_000 for stem in report.pictures)
