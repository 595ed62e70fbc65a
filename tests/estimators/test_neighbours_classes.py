"""Classification along neighbours: learning on pseudo-targets, many classes, files."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import inducing as ig
from inducing import errors

RNG = np.random.default_rng(8)
X = RNG.uniform(0, 1, (700, 2))
F = np.sin(14 * X[:, 0]) * np.cos(12 * X[:, 1])
TWO = F + 0.1 * RNG.standard_normal(700) > 0
THREE = np.array(["low", "mid", "high"])[np.digitize(F, [-0.3, 0.3])]
XS = RNG.uniform(0, 1, (300, 2))
FS = np.sin(14 * XS[:, 0]) * np.cos(12 * XS[:, 1])


def quick(**parameters):
    options = {"approximation": "neighbours", "n_inducing": 15, "neighbours": 10, "random_state": 0}
    return ig.SparseGPClassifier("matern32", **(options | parameters))


@pytest.fixture(scope="module")
def two():
    return quick().fit(X, TWO)


@pytest.fixture(scope="module")
def three():
    return quick(max_iter=10).fit(X, THREE)


def test_neighbours_follow_what_few_inducing_inputs_cannot(two):
    p = two.predict_proba(XS)
    assert_allclose(p.sum(axis=1), 1.0)
    clear = np.abs(FS) > 0.1
    assert np.mean(two.predict(XS)[clear] == (FS > 0)[clear]) > 0.97
    loss = -np.mean(np.log(p[np.arange(300), (FS > 0).astype(int)]))
    few = ig.SparseGPClassifier("matern32", n_inducing=15, max_iter=30, random_state=0).fit(X, TWO)
    q = few.predict_proba(XS)
    assert loss < 0.75 * -np.mean(np.log(q[np.arange(300), (FS > 0).astype(int)]))


def test_many_classes(three):
    assert list(three.classes_) == ["high", "low", "mid"] and len(three.posteriors_) == 3
    p, truth = three.predict_proba(XS), np.array(["low", "mid", "high"])[np.digitize(FS, [-0.3, 0.3])]
    assert_allclose(p.sum(axis=1), 1.0)
    assert np.mean(three.predict(XS) == truth) > 0.85


@pytest.mark.parametrize("which", ["two", "three"])
def test_files_hold_the_rows(which, request, tmp_path):
    model = request.getfixturevalue(which)
    size = model.save(tmp_path / "model")
    again = ig.load(tmp_path / "model")
    assert_array_equal(again.predict_proba(XS), model.predict_proba(XS))
    assert again.get_params() == model.get_params()
    smaller = model.save(tmp_path / "model", precision="single")
    assert smaller < size - 700 * 3 * 4
    assert_allclose(ig.load(tmp_path / "model").predict_proba(XS), model.predict_proba(XS), atol=1e-4)


def test_weights_count_rows():
    weights = np.random.default_rng(1).integers(0, 3, 200)
    rows = np.repeat(np.arange(200), weights)
    weighted = quick(optimize=None).fit(X[:200], TWO[:200], sample_weight=weights)
    repeated = quick(optimize=None).fit(X[rows], TWO[rows])
    assert_allclose(weighted.predict_proba(XS), repeated.predict_proba(XS), rtol=1e-9)


def test_learning_raises_the_density_of_rows_left_out():
    from inducing.inference.neighbour_sites import settle
    from inducing.inference.regression import approximation_of, problem_of

    signs, row = np.where(TWO, 1.0, -1.0), approximation_of("neighbours", None, 10)
    kernel, basis = ig.kernels.Matern32([0.4, 0.4], 2.0), ig.bases.Points(X[:15])
    start = (kernel, basis, "neighbours", ig.likelihoods.Probit(1.0), X, signs)
    fit = ig.fit(*start, neighbours=10, optimize="hyperparameters", max_iterations=30, progress=False)
    assert isinstance(fit.posterior, ig.NeighboursPredictor) and fit.n_iterations > 0
    before, after = (
        np.mean(
            settle(problem_of(k, basis, row, fit.noise, X, signs), tolerance=1e-4, sweeps=60).log_densities
        )
        for k in (kernel, fit.kernel)
    )
    assert after > before + 0.02 and fit.score == pytest.approx(after, abs=1e-3)


def test_what_is_refused(two):
    with pytest.raises(errors.ParameterError, match="partial_fit needs a process without neighbours"):
        two.partial_fit(X, TWO)
    with pytest.raises(errors.ParameterError, match="query needs a process without neighbours"):
        two.query(XS)
    start = (ig.kernels.RBF(0.3), ig.bases.Points(X[:9]), "neighbours", ig.likelihoods.Probit(1.0), X)
    with pytest.raises(errors.ParameterError, match="leave held_out= out"):
        ig.fit(*start, np.where(TWO, 1.0, -1.0), held_out=(X, np.where(TWO, 1.0, -1.0)))
