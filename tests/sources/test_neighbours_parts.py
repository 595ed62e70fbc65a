"""Neighbours over sources: the numbers of rows in memory whose blocks are the parts."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import inducing as ig
from inducing.engine import parts

RNG = np.random.default_rng(2)
X = RNG.uniform(-2, 2, (160, 2))
Y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * RNG.standard_normal(160)
XS = RNG.uniform(-2, 2, (20, 2))
KERNEL, BASIS, NOISE = ig.kernels.Matern32([0.7, 1.1], 1.3), ig.bases.Points(X[:6]), 0.05
LABELS = np.arange(160) // 40
OPTIONS = {"neighbours": 7, "mean": ig.means.Constant(0.2)}


def source():
    return ig.as_source(X, Y, chunk_rows=40)


def test_parts_are_blocks():
    own = ig.log_evidence_and_gradient(KERNEL, BASIS, "neighbours", NOISE, X, Y, blocks=LABELS, **OPTIONS)
    far = ig.log_evidence_and_gradient(KERNEL, BASIS, "neighbours", NOISE, source(), **OPTIONS)
    assert far[0] == pytest.approx(own[0], rel=1e-12)
    for name, slope in own[1].items():
        assert_allclose(far[1][name], slope, rtol=1e-9, atol=1e-10, err_msg=name)


def test_the_predictor_has_all_rows():
    own = ig.condition(KERNEL, BASIS, "neighbours", NOISE, X, Y, blocks=LABELS, **OPTIONS)
    far = ig.condition(KERNEL, BASIS, "neighbours", NOISE, source(), **OPTIONS)
    assert far.log_evidence == pytest.approx(own.log_evidence, rel=1e-12)
    for one, two in zip(own.predict(XS), far.predict(XS), strict=True):
        assert_allclose(two, one, rtol=1e-10)
    assert_allclose(far.covariance(XS), own.covariance(XS), atol=1e-11)


def test_neighbours_are_kept_between_passes(monkeypatch):
    monkeypatch.setattr(parts, "_found", {})
    looked = []
    real = parts.Setting._with_neighbours
    monkeypatch.setattr(
        parts.Setting,
        "_with_neighbours",
        lambda self, P: (looked.append(len(parts._found)), real(self, P))[1],
    )
    ig.log_evidence_and_gradient(KERNEL, BASIS, "neighbours", NOISE, source(), **OPTIONS)
    assert looked == [0, 1, 2, 3, 4, 4, 4, 4]  # two passes over four parts


def test_fit_climbs_over_a_source():
    start = (KERNEL, BASIS, "neighbours", NOISE)
    options = OPTIONS | {"optimize": "hyperparameters", "max_iterations": 8, "progress": False}
    fit = ig.fit(*start, source(), **options)
    own = ig.fit(*start, X, Y, blocks=LABELS, **options)
    assert fit.value > ig.log_evidence(KERNEL, BASIS, "neighbours", NOISE, source(), **OPTIONS) + 1
    assert fit.value == pytest.approx(own.value, rel=1e-6)


def test_rows_are_sent_to_their_neighbourhood(tmp_path, monkeypatch):
    monkeypatch.setattr(ig.outofcore, "BLOCK_ROWS", 30)
    near = ig.outofcore.by_neighbourhood(source(), tmp_path / "near", KERNEL)
    found = list(near.parts())
    assert near.n_rows == 160 and len(found) > 4
    table = np.concatenate([np.column_stack([part.X, part.y]) for part in found])
    given = np.column_stack([X, Y])
    assert_array_equal(table[np.lexsort(table.T)], given[np.lexsort(given.T)])
    spread = sum(np.sum((part.X - part.X.mean(axis=0)) ** 2) for part in found)
    assert spread < 0.3 * np.sum((X - X.mean(axis=0)) ** 2)
    exact = ig.log_evidence(KERNEL, None, "exact", NOISE, X, Y, mean=OPTIONS["mean"])
    gaps = [
        abs(ig.log_evidence(KERNEL, BASIS, "neighbours", NOISE, s, **OPTIONS) - exact)
        for s in (near, source())
    ]
    assert gaps[0] < 0.5 * gaps[1]


def test_workers_of_a_cluster_give_the_same_numbers():
    distributed = pytest.importorskip("distributed")
    own = ig.log_evidence_and_gradient(KERNEL, BASIS, "neighbours", NOISE, source(), **OPTIONS)
    with (
        distributed.LocalCluster(
            n_workers=2, processes=False, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        there = ig.distributed.spread(source(), client)
        far = ig.log_evidence_and_gradient(KERNEL, BASIS, "neighbours", NOISE, there, **OPTIONS)
    assert far[0] == pytest.approx(own[0], rel=1e-13)
    for name, slope in own[1].items():
        assert_allclose(far[1][name], slope, rtol=1e-11, atol=1e-12, err_msg=name)


def test_the_estimator_over_a_source(monkeypatch):
    rng = np.random.default_rng(4)
    A = rng.uniform(-2, 2, (3000, 2))
    b = np.sin(9 * A[:, 0]) * np.cos(8 * A[:, 1]) + 0.1 * rng.standard_normal(3000)
    monkeypatch.setattr(ig.outofcore, "START", 800)
    monkeypatch.setattr(ig.outofcore, "SAMPLE", 2000)
    model = ig.SparseGPRegressor(approximation="neighbours", n_inducing=20, neighbours=10, random_state=0)
    model.fit(ig.as_source(A, b, chunk_rows=700))
    assert model.n_rows_ == 3000 and len(model.posterior_.data) == 3000
    truth = np.sin(9 * XS[:, 0]) * np.cos(8 * XS[:, 1])
    assert np.sqrt(np.mean((model.predict(XS) - truth) ** 2)) < 0.15
    assert model.report_.gain.error[1] < 0.5 * model.report_.gain.error[0]
