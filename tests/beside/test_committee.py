"""Committees against Tresp's product of posteriors and PITC at the queries, and where they fail. [Tresp
2000], [003 §7-8]
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import inducing as ig
import oracle
import oracle_beside as dense
from inducing import errors
from inducing.beside import committee

RULES = ("bcm", "rbcm", "gpoe", "poe")
LENGTHSCALE, VARIANCE, NOISE = np.array([0.9, 1.3]), 1.7, 0.09
KERNEL = ig.kernels.RBF(LENGTHSCALE, VARIANCE)
K0 = oracle.bind(oracle.rbf, lengthscale=LENGTHSCALE, variance=VARIANCE)

rng = np.random.default_rng(11)
X = rng.uniform(-2, 2, (40, 2))
XS = rng.uniform(-2.5, 2.5, (9, 2))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.standard_normal(40)
Y2 = np.stack([Y, np.cos(X[:, 1]) - 0.4], axis=1)
NOISES = rng.uniform(0.02, 0.4, 40)
LABELS = np.repeat([4, 0, 7, -1], [18, 3, 1, 18])[rng.permutation(40)]  # unequal blocks, in no order
FAR = np.array([[60.0, -80.0]])


def bcm(
    noise: Any = NOISE, y: Any = Y, blocks: Any = LABELS, rule: str = "bcm", **options: Any
) -> committee.Committee:
    return committee.condition(KERNEL, None, rule, noise, X, y, blocks=blocks, jitter=0.0, **options)


@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("noise", [NOISE, NOISES], ids=["scalar noise", "row noise"])
def test_bcm_is_pitc_at_the_queries_and_tresps_product(noise: Any, y: Any) -> None:
    predictor = ig.condition(KERNEL, ig.bases.Points(X[:3]), "bcm", noise, X, y, blocks=LABELS, jitter=0.0)
    mean, variance = predictor.predict(XS)
    product_mean, product_cov = dense.tresp(K0, noise, X, y, XS, LABELS)
    assert_allclose(mean, product_mean, rtol=1e-8, atol=1e-10)
    assert_allclose(variance, np.diag(product_cov), rtol=1e-8)
    assert_allclose(predictor.covariance(XS), product_cov, rtol=1e-8, atol=1e-10)
    pitc = oracle.joint_prior("pitc", K0, oracle.points(K0, XS), X, XS, blocks=LABELS)
    assert_allclose(predictor.covariance(XS), oracle.condition(pitc, noise, y)[1], rtol=1e-8, atol=1e-10)
    post = ig.condition(KERNEL, ig.bases.Points(XS), "pitc", noise, X, y, blocks=LABELS, jitter=0.0)
    assert_allclose(mean, post.predict(XS)[0], rtol=1e-8, atol=1e-10)
    assert_allclose(predictor.covariance(XS), post.covariance(XS), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["points", "multiscale"])
def test_on_a_basis_it_is_pitc(kind: str) -> None:
    """The inductive form: the blocks without the transduction. [003 §8]"""
    rng = np.random.default_rng(100)
    Z = rng.uniform(-2, 2, (6, 2))
    basis = ig.bases.Points(Z) if kind == "points" else ig.bases.Multiscale(Z, np.full((6, 2), 1.6))
    post = committee.condition(KERNEL, None, "bcm", NOISES, X, Y2, blocks=LABELS).on(basis)
    reference = oracle.points(K0, Z) if kind == "points" else oracle.multiscale(Z, 1.6, LENGTHSCALE, VARIANCE)
    prior = oracle.joint_prior("pitc", K0, oracle.jittered(reference, 1e-8), X, XS, blocks=LABELS)
    mean, cov = oracle.condition(prior, NOISES, Y2)
    assert_allclose(post.predict(XS)[0], mean, rtol=1e-8, atol=1e-10)
    assert_allclose(post.covariance(XS), cov, rtol=1e-8, atol=1e-9)
    assert isinstance(post.prune(4), ig.Posterior)


@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("rule", RULES)
def test_rules_for_single_queries(rule: str, y: Any) -> None:
    mean, variance = bcm(NOISES, y, rule=rule, chunk=1 if rule == "bcm" else 5).predict(XS)
    expected = dense.marginal_committee(rule, K0, NOISES, X, y, XS, LABELS)
    assert_allclose(mean, expected[0], rtol=1e-9, atol=1e-12)
    assert_allclose(variance, expected[1], rtol=1e-9)


@settings(max_examples=25, deadline=None)
@given(labels=st.lists(st.integers(-2, 3), min_size=40, max_size=40), queries=st.integers(1, 9))
def test_any_partition(labels: list[int], queries: int) -> None:
    mean, variance = bcm(blocks=np.array(labels)).predict(XS[:queries])
    expected = dense.tresp(K0, NOISE, X, Y, XS[:queries], labels)
    assert_allclose(mean, expected[0], rtol=1e-8, atol=1e-9)
    assert_allclose(variance, np.diag(expected[1]), rtol=1e-8)


# limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["bcm", "gpoe", "poe"])
def test_one_expert_is_the_exact_gp(rule: str) -> None:
    mean, cov = dense.exact(K0, NOISES, X, Y, XS)
    found = bcm(NOISES, blocks=np.zeros(40, dtype=int), rule=rule).predict(XS)
    assert_allclose(found.mean, mean, rtol=1e-9, atol=1e-12)
    assert_allclose(found.variance, np.diag(cov), rtol=1e-9)


def test_one_row_each_is_fitc_at_the_queries() -> None:
    prior = oracle.joint_prior("fitc", K0, oracle.points(K0, XS), X, XS)
    mean, cov = oracle.condition(prior, NOISE, Y)
    predictor = bcm(blocks=np.arange(40))
    assert_allclose(predictor.predict(XS)[0], mean, rtol=1e-8, atol=1e-10)
    assert_allclose(predictor.covariance(XS), cov, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("rule", RULES)
def test_far_away_only_the_product_forgets_the_prior(rule: str) -> None:
    """The plain product of M experts counts the prior M times: k/M where nothing is known. The others fall
    back to k.
    """
    mean, variance = bcm(rule=rule).predict(FAR)
    assert_allclose(mean, 0.0, atol=1e-12)
    assert_allclose(variance, VARIANCE / 4 if rule == "poe" else VARIANCE, rtol=1e-12)


def test_only_the_joint_bcm_is_transductive() -> None:
    """[003 Definition 9]: a prediction depends on the other queries. Exact GPs and single-query rules do not.
    [Remark 10]
    """
    together, alone = bcm().predict(XS), bcm().predict(XS[:1])
    assert abs(together.variance[0] / alone.variance[0] - 1) > 1e-3
    for rule in ("rbcm", "gpoe", "poe"):
        predictor = bcm(rule=rule)
        assert_allclose(predictor.predict(XS).variance[0], predictor.predict(XS[:1]).variance[0], rtol=1e-12)


def test_chunks_are_separate_calls() -> None:
    chunked = bcm(chunk=4).predict(XS)
    parts = [bcm().predict(XS[i : i + 4]) for i in (0, 4, 8)]
    assert_allclose(chunked.mean, np.concatenate([p.mean for p in parts]), rtol=1e-12)
    assert_allclose(chunked.variance, np.concatenate([p.variance for p in parts]), rtol=1e-12)


# keywords ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_prior_mean(rule: str) -> None:
    def m0(A: Any) -> Any:
        return 0.7 + A @ np.array([0.3, -1.1])

    mean = ig.means.Linear(weights=[0.3, -1.1], bias=0.7)
    shifted = committee.condition(
        KERNEL, None, rule, NOISE, X, Y + m0(X), blocks=LABELS, jitter=0.0, mean=mean
    ).predict(XS)
    plain = bcm(rule=rule).predict(XS)
    assert_allclose(shifted.mean, plain.mean + m0(XS), rtol=1e-9)
    assert_allclose(shifted.variance, plain.variance, rtol=1e-9)


def test_integer_weights_are_repeated_rows() -> None:
    rng = np.random.default_rng(101)
    weights = rng.integers(0, 4, 40)
    predictor = committee.condition(
        KERNEL, None, "bcm", NOISES, X, Y, blocks=LABELS, weights=weights, jitter=0.0
    )
    noises, A, y, labels = oracle.repeat(weights, NOISES, X, Y, LABELS)
    mean, cov = dense.tresp(K0, noises, A, y, XS, labels)
    assert_allclose(predictor.predict(XS)[0], mean, rtol=1e-8, atol=1e-10)
    assert_allclose(predictor.covariance(XS), cov, rtol=1e-8, atol=1e-10)
    evidence = sum(
        oracle.log_normal(y[labels == b], K0(A[labels == b], A[labels == b]) + np.diag(noises[labels == b]))
        for b in np.unique(labels)
    )
    assert_allclose(predictor.log_evidence, evidence, rtol=1e-9)


def test_mapper_gets_every_expert_and_threads_change_nothing() -> None:
    seen = []

    def serial(function: Any, items: Any) -> Any:
        items = list(items)
        seen.append(len(items))
        return map(function, items)

    mapped, threaded = bcm(mapper=serial), bcm()
    for one, other in zip(mapped.predict(XS), threaded.predict(XS), strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-11)  # loops compiled meanwhile round differently
    assert seen == [4, 4]  # the experts once, and the question


def test_blocks_by_kmeans() -> None:
    rng = np.random.default_rng(102)
    labels = committee.partition(X, size=10)
    assert len(np.unique(labels)) == 4
    distance = np.sum((X[:, None] - X) ** 2, axis=-1)
    inside, across = labels[:, None] == labels, labels[:, None] != labels
    assert distance[inside].mean() < distance[across].mean()
    assert_array_equal(committee.partition(X, size=10), labels)
    big = rng.uniform(-2, 2, (1100, 2))
    predictor = ig.condition(KERNEL, None, "bcm", NOISE, big, np.sin(big[:, 0]))
    assert len(predictor.experts) == 2 and sum(len(e) for e in predictor.experts) == 1100


def test_nothing_is_larger_than_an_expert_beside_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(103)
    sizes = []
    original = ig.kernels.RBF._matrix

    def record(self: Any, A: Any, B: Any, out: Any) -> Any:
        sizes.append((len(A), len(B)))
        return original(self, A, B, out)

    monkeypatch.setattr(ig.kernels.RBF, "_matrix", record)
    big = rng.uniform(-2, 2, (600, 2))
    for rule in RULES:
        committee.condition(
            KERNEL, None, rule, NOISE, big, big[:, 0], blocks=np.arange(600) // 50, chunk=20
        ).predict(big[:50])
    assert max(a * b for a, b in sizes) == 50 * 50


@pytest.mark.parametrize("rule", RULES)
def test_no_queries(rule: str) -> None:
    mean, variance = bcm(y=Y2, rule=rule).predict(np.empty((0, 2)))
    assert mean.shape == (0, 2) and variance.shape == (0,)


# refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["rbcm", "gpoe", "poe"])
def test_rules_for_single_queries_have_no_joint(rule: str) -> None:
    with pytest.raises(errors.ConditionalError, match="not jointly; use 'bcm'"):
        bcm(rule=rule).covariance(XS)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"blocks": LABELS[:-1]}, errors.ShapeError),
        ({"power": 0.5}, errors.ParameterError),
        ({"chunk": 0}, errors.ParameterError),
        ({"noise": 0.0}, errors.NoiseError),
        ({"y": Y[:-1]}, errors.ShapeError),
    ],
)
def test_bad_input(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        bcm(**options)


def test_queries_of_another_width_are_refused() -> None:
    with pytest.raises(errors.ShapeError, match="X has 3 columns, but the process was made with 2"):
        bcm().predict(np.zeros((2, 3)))
    with pytest.raises(errors.ParameterError, match="at least one row, but size is 0"):
        committee.partition(X, size=0)


@pytest.mark.parametrize("name", [*RULES, "nystrom", "asor"])
def test_what_needs_the_data_cannot_be_learned_or_kept(name: str) -> None:
    """A model file holds no data, so the estimator refuses what would need them."""
    for attempt in (
        lambda: ig.log_evidence(KERNEL, ig.bases.Points(X[:3]), name, NOISE, X, Y),
        lambda: ig.fit(KERNEL, ig.bases.Points(X[:3]), name, NOISE, X, Y),
        lambda: ig.SparseGPRegressor(approximation=name, n_inducing=5).fit(X, Y),
        lambda: ig.SparseGPRegressor(approximation=name, n_inducing=5, optimize=None).fit(X, Y),
    ):
        with pytest.raises(
            errors.ParameterError, match=f"'{name}' has no evidence .* then call condition with '{name}'"
        ):
            attempt()
