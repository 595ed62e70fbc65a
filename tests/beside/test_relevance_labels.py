"""Relevance vectors of labels against dense expectation propagation, quadrature and differences; and healed.
[003 §10.2]
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, ndtr
from test_relevance import predictions

import inducing as ig
import oracle
from inducing import errors
from inducing.beside import relevance_search
from inducing.model.likelihoods import Logistic, Probit
from oracle_propagation import dense_ep, dense_predict

KERNEL = ig.kernels.RBF(0.8, 1.7)
K0 = oracle.bind(oracle.rbf, lengthscale=0.8, variance=1.7)
rng = np.random.default_rng(4)
X = rng.uniform(-3, 3, (70, 1))
Y = np.where(2.0 * np.sin(1.5 * X[:, 0]) + rng.standard_normal(70) > 0, 1.0, -1.0)
XS = np.linspace(-4.0, 4.0, 11)[:, None]
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
WEIGHTS = WEIGHTS / np.sum(WEIGHTS)


@pytest.fixture(scope="module")
def learned() -> Any:
    return ig.relevance_vectors(KERNEL, X, Y, likelihood=Probit())


@pytest.mark.parametrize("noise", [1.0, 0.3])
@pytest.mark.parametrize("kind", ["points", "multiscale"])
def test_it_is_ep_on_the_degenerate_process(kind: str, noise: float) -> None:
    centers, widths = X[::2], np.where(np.arange(35) % 2, 0.8, 1.6)[:, None]
    basis = None if kind == "points" else ig.bases.Multiscale(centers, widths)
    found = ig.relevance_vectors(KERNEL, X, Y, basis=basis, likelihood=Probit(noise))
    if kind == "points":
        Phi, Phis = K0(X, X[found.rows]), K0(XS, X[found.rows])
    else:
        functions = oracle.multiscale(centers[found.rows], widths[found.rows], np.array([0.8]), 1.7)
        Phi, Phis = functions.cross(X), functions.cross(XS)
    assert 2 <= len(found) < 15 and found.converged and found.noise is None
    K, Ks = (Phi / found.precisions) @ Phi.T, (Phis / found.precisions) @ Phi.T
    nu, tau, log_Z = dense_ep(K, Y, noise)
    mean, variance = dense_predict(K, Ks, np.sum(Phis**2 / found.precisions, axis=1), nu, tau)
    assert_allclose([found.log_evidence, found.values[-1]], log_Z, rtol=1e-6)
    assert_allclose(found.predict(XS).mean, mean, rtol=1e-4, atol=1e-6)
    assert_allclose(found.predict(XS).variance, variance, rtol=1e-4, atol=1e-8)
    p = ndtr(mean / np.sqrt(noise + variance))
    assert_allclose(found.predict_proba(XS), np.stack([1 - p, p], axis=1), atol=1e-6)


def test_every_step_raises_the_evidence(learned: Any) -> None:
    assert len(learned.values) > 10 and np.all(np.diff(learned.values) > 0)
    assert learned.values[0] == pytest.approx(70 * np.log(0.5))


def test_no_precision_and_no_candidate_could_do_better(learned: Any) -> None:
    """Dense EP's evidence is flat in every precision, and with its sites no function left out belongs in."""
    Phi = K0(X, X[learned.rows])

    def value(logs: Any) -> float:
        return dense_ep((Phi / np.exp(logs)) @ Phi.T, Y, sweeps=25)[2]

    at = np.log(learned.precisions)
    slopes = [(value(at + step) - value(at - step)) / 2e-3 for step in 1e-3 * np.eye(len(at))]
    assert_allclose(
        slopes, 0.0, atol=5e-3
    )  # a gain of 1e-6 ends the search: a slope of √(1e-6 · 2 · curvature)
    K = (Phi / learned.precisions) @ Phi.T
    nu, tau, _ = dense_ep(K, Y)
    C = K + np.diag(1 / tau)
    rest = K0(X, np.delete(X, learned.rows, axis=0))
    s, q = np.sum(rest * np.linalg.solve(C, rest), axis=0), rest.T @ np.linalg.solve(C, nu / tau)
    gain = np.where(q**2 > s, 0.5 * (q**2 / s - 1 - np.log(np.maximum(q**2 / s, 1.0))), 0.0)
    assert np.max(gain) < 1e-4
    outside = [np.append(learned.rows, j) for j in (3, 30, 55) if j not in learned.rows]
    for rows in outside:  # and so it is where the sites follow
        more = K0(X, X[rows])
        assert (
            dense_ep((more / np.append(learned.precisions, 50.0)) @ more.T, Y, sweeps=25)[2]
            < learned.log_evidence
        )


@pytest.mark.parametrize("likelihood", [Probit(0.5), Logistic()], ids=str)
def test_one_function_against_an_integral(likelihood: Any) -> None:
    """With a single weight the evidence and the probabilities are integrals over one number."""
    basis = ig.bases.Points([[0.4]])
    labels = np.where(np.arange(70) % 5, 1.0, -1.0)
    found = ig.relevance_vectors(KERNEL, X, labels, basis=basis, likelihood=likelihood)
    weight = np.linspace(-12.0, 12.0, 4001) / np.sqrt(found.precisions)
    f, fs = K0(X, np.array([[0.4]])) * weight, K0(XS, np.array([[0.4]])) * weight  # (rows, weights)
    p, ps = (ndtr(a / np.sqrt(0.5)) if isinstance(likelihood, Probit) else expit(a) for a in (f, fs))
    joint = np.prod(np.where(labels[:, None] > 0, p, 1 - p), axis=0) * np.exp(
        -0.5 * found.precisions * weight**2
    )
    evidence = np.sum(joint) * (weight[1] - weight[0]) * np.sqrt(found.precisions[0] / (2 * np.pi))
    assert found.log_evidence == pytest.approx(np.log(evidence), abs=5e-3)  # EP's own error
    assert_allclose(found.predict_proba(XS)[:, 1], ps @ joint / np.sum(joint), atol=2e-3)


def test_probabilities_are_averages_over_f() -> None:
    found = ig.relevance_vectors(KERNEL, X, Y, likelihood=Logistic())
    mean, variance = found.predict(XS)
    average = expit(mean[:, None] + np.sqrt(variance)[:, None] * NODES) @ WEIGHTS
    p = found.predict_proba(XS)
    assert_allclose(p[:, 1], average, atol=1e-5)
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    inside = variance > 0.1
    assert np.all(np.abs(p[inside, 1] - 0.5) < np.abs(expit(mean[inside]) - 0.5))


def test_augmentation_is_one_function_more_on_the_same_sites(learned: Any) -> None:
    healed = replace(learned, augment=True, prior_variance=3.0)
    lam, target = healed.sites.tau, healed.sites.a
    mean, variance = healed.predict(XS)
    own = np.full(len(XS), 1.7**2 / 3.0)
    Phi, Phis = K0(X, X[healed.rows]), K0(XS, X[healed.rows])
    root = np.sqrt(lam)  # rows of noise 1/λ are rows of noise 1 seen through √λ
    for i, x in enumerate(XS):
        more = root[:, None] * np.hstack([Phi, K0(X, x[None])])
        expected = predictions(
            np.append(healed.precisions, own[i]), 1.0, more, root * target, np.append(Phis[i], 1.7)[None]
        )
        assert_allclose(mean[i], expected[0][0], rtol=1e-6, atol=1e-8)
        assert_allclose(variance[i], expected[1][0, 0], rtol=1e-6, atol=1e-8)
    more = root[:, None] * np.hstack([Phi, K0(X, XS)])
    joint = predictions(
        np.append(healed.precisions, own), 1.0, more, root * target, np.hstack([Phis, K0(XS, XS)])
    )
    assert_allclose(healed.covariance(XS), joint[1], atol=1e-7)
    assert healed.jointly(XS).log_evidence is None


def test_far_away_only_the_healed_machine_knows_that_it_does_not_know(learned: Any) -> None:
    far = np.array([[30.0], [-40.0]])
    healed = replace(learned, augment=True)
    assert_allclose(learned.predict(far).variance, 0.0, atol=1e-12)
    assert_allclose(healed.predict(far).variance, learned.prior_variance, rtol=1e-12)
    assert_allclose(healed.predict_proba(far), 0.5, atol=1e-12)
    mean, variance = learned.predict(X)
    assert learned.prior_variance == pytest.approx(np.mean(mean**2 + variance))
    away = healed.predict(np.array([[3.2], [4.0], [5.0], [7.0]])).variance
    assert np.all(np.diff(away) > 0) and away[1] > 2 * learned.predict(np.array([[4.0]])).variance


def test_one_class_ends_at_the_widest_prior() -> None:
    """Evidence grows with the variance of a function that sees one class alone, towards a half: it has no
    best precision.
    """
    found = ig.relevance_vectors(
        KERNEL, X, np.ones(70), basis=ig.bases.Points([[0.0]]), likelihood=Probit(0.5)
    )
    assert_allclose(found.precisions, 1.7**2 / (relevance_search.LARGEST_VARIANCE * 0.5), rtol=1e-12)


def test_prior_mean_and_an_empty_model() -> None:
    shifted = ig.relevance_vectors(KERNEL, X, Y, likelihood=Probit(), mean=ig.means.Constant(0.4))
    assert shifted.values[0] == pytest.approx(np.sum(np.log(ndtr(0.4 * Y))))
    assert_allclose(shifted.predict(np.array([[50.0]])).mean, 0.4, rtol=1e-12)
    coin = np.where(np.arange(70) % 2, 1.0, -1.0)[np.argsort(np.argsort(X[:, 0]))]  # neighbours never agree
    nothing = ig.relevance_vectors(ig.kernels.RBF(2.0), X, coin, likelihood=Probit())
    assert len(nothing) == 0 and nothing.converged
    assert_allclose(nothing.predict_proba(XS), 0.5, atol=1e-9)
    assert nothing.log_evidence == pytest.approx(70 * np.log(0.5))


@pytest.mark.parametrize("likelihood", [Probit(), Logistic()], ids=str)
def test_rows_that_no_function_reaches(likelihood: Any) -> None:
    A, y = np.vstack([X, [[1e4]]]), np.append(Y, 1.0)
    basis = ig.bases.Points(X[::7])
    found = ig.relevance_vectors(KERNEL, A, y, basis=basis, likelihood=likelihood)
    plain = ig.relevance_vectors(KERNEL, X, Y, basis=basis, likelihood=likelihood)
    assert_allclose(found.log_evidence, plain.log_evidence + np.log(0.5), atol=1e-5)
    assert_allclose(found.predict_proba(XS), plain.predict_proba(XS), atol=1e-3)


def test_refusals() -> None:
    with pytest.raises(errors.ParameterError, match=r"Probit\(\) or Logistic\(\), not Step"):
        ig.relevance_vectors(KERNEL, X, Y, likelihood=ig.likelihoods.Step(0.1))
    with pytest.raises(errors.ParameterError, match="no noise variance, but noise is 0.1"):
        ig.relevance_vectors(KERNEL, X, Y, likelihood=Probit(), noise=0.1)
    with pytest.raises(errors.LabelError, match="-1 or \\+1, but row 0 has 0"):
        ig.relevance_vectors(KERNEL, X, np.zeros(70), likelihood=Probit())
    with pytest.raises(errors.ShapeError, match="one output"):
        ig.relevance_vectors(KERNEL, X, np.stack([Y, Y], axis=1), likelihood=Probit())
    with pytest.raises(errors.ConditionalError, match="learned values, not labels"):
        ig.relevance_vectors(KERNEL, X, Y, max_iterations=3).predict_proba(XS)
    assert not ig.relevance_vectors(KERNEL, X, Y, likelihood=Probit(), max_iterations=3).converged
