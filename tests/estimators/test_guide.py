"""The guide: boosted trees as arrays, predictions of rows that the trees have not seen, models with it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

import inducing as ig
from inducing.estimators.guide import GUIDE_FOLDS, Guide, cross_fitted


def steps(n: int, seed: int = 0, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A function with jumps, which trees see and smooth functions do not."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, d))
    return X, np.sign(np.sin(3.0 * X[:, 0])) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def guided() -> ig.SparseGPRegressor:
    return ig.SparseGPRegressor("rbf", n_inducing=20, guide="boosting", max_iter=60).fit(*steps(200))


def test_trees_as_arrays_predict_what_scikit_learn_does() -> None:
    X, y = steps(500)
    one, two = (HistGradientBoostingRegressor(max_iter=20, random_state=s).fit(X, s * y) for s in (1, 2))
    Xs = np.vstack([steps(2000, 1)[0], X])  # on thresholds and off them
    np.testing.assert_allclose(Guide.mean_of([one])(Xs), one.predict(Xs), rtol=0, atol=1e-13)
    mean = 0.5 * (one.predict(Xs) + two.predict(Xs))
    np.testing.assert_allclose(Guide.mean_of([one, two])(Xs), mean, rtol=0, atol=1e-13)


def test_no_row_is_predicted_by_trees_that_saw_it() -> None:
    X, y = steps(150)
    predicted = cross_fitted(X, y, np.ones(150))[1]
    for i in (0, 149):
        other = y.copy()
        other[i] += 5.0
        changed = cross_fitted(X, other, np.ones(150))[1]
        assert changed[i] == predicted[i]
        assert np.count_nonzero(changed != predicted) > 150 // 2  # the other folds did see it


def test_neither_order_nor_repetition_of_rows_matters() -> None:
    X, y = steps(120)
    guide, predicted = cross_fitted(X, y, np.where(np.arange(120) < 10, 2.0, 1.0))
    order = np.random.default_rng(3).permutation(130) % 120  # the first ten rows twice
    again, twice = cross_fitted(X[order], y[order], np.ones(130))
    np.testing.assert_array_equal(twice, predicted[order])
    np.testing.assert_array_equal(again(X), guide(X))
    weights = np.r_[np.where(np.arange(120) < 10, 2.0, 1.0), 0.0]  # a row of weight 0 is none
    last = cross_fitted(np.vstack([X, X[:1] + 9.0]), np.r_[y, 7.0], weights)
    np.testing.assert_array_equal(last[1][:-1], predicted)


def test_new_rows_are_predicted_by_the_mean_of_the_folds() -> None:
    X, y = steps(200)
    guide = cross_fitted(X, y, np.ones(200))[0]
    order = np.lexsort(np.column_stack([X, y]).T[::-1])
    fold = np.random.default_rng(200).permutation(200) % GUIDE_FOLDS
    Xs = steps(50, 1)[0]
    own = [
        HistGradientBoostingRegressor(random_state=0).fit(X[order][fold != k], y[order][fold != k])
        for k in range(GUIDE_FOLDS)
    ]
    np.testing.assert_allclose(guide(Xs), np.mean([b.predict(Xs) for b in own], axis=0), rtol=0, atol=1e-12)


def test_a_guide_helps_where_a_function_jumps(guided: ig.SparseGPRegressor) -> None:
    Xs, ys = steps(1000, 1)
    plain = ig.SparseGPRegressor("rbf", n_inducing=20, max_iter=60).fit(*steps(200))
    error, plainly = (np.mean((ys - model.predict(Xs)) ** 2) for model in (guided, plain))
    assert error < 0.8 * plainly
    assert len(guided.x_mean_) == guided.n_features_in_ + 1 == 4


def test_the_process_is_the_one_on_the_guided_rows(guided: ig.SparseGPRegressor) -> None:
    X, y = steps(200)
    predicted = cross_fitted(X, y, np.ones(200))[1]
    by_hand = ig.SparseGPRegressor("rbf", n_inducing=20, max_iter=60).fit(np.column_stack([X, predicted]), y)
    Xs = steps(30, 1)[0]
    assert guided.kinds_.guide is not None
    both = np.column_stack([Xs, guided.kinds_.guide(Xs)])
    for one, two in zip(guided.predict(Xs, return_std=True), by_hand.predict(both, return_std=True)):
        np.testing.assert_allclose(one, two, rtol=1e-10)
    np.testing.assert_allclose(guided.loo_.mean, by_hand.loo_.mean, rtol=1e-10)


@pytest.mark.parametrize("light", [False, True])
def test_a_file_holds_the_trees(guided: ig.SparseGPRegressor, tmp_path: Path, light: bool) -> None:
    guided.save(tmp_path / "model")
    again, Xs = ig.load(tmp_path / "model", light=light), steps(100, 1)[0]
    for one, two in zip(again.predict(Xs, return_std=True), guided.predict(Xs, return_std=True)):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-12)
    assert again.n_features_in_ == 3


def test_trees_that_lead_nowhere_are_refused(guided: ig.SparseGPRegressor) -> None:
    assert guided.kinds_.guide is not None
    arrays = guided.kinds_.guide.record()
    Guide.from_record(arrays, 3)
    inner = int(np.flatnonzero(arrays["guide.nodes"][:, 1] > np.arange(len(arrays["guide.nodes"])))[1])
    for column, value in ((0, 3), (1, 0), (2, inner), (2, len(arrays["guide.nodes"])), (0, -1)):
        nodes = arrays["guide.nodes"].copy()
        nodes[inner, column] = value  # a feature or node that is not there, or a way back
        with pytest.raises(ig.errors.ModelFileError, match=r"guide\.nodes"):
            Guide.from_record(arrays | {"guide.nodes": nodes}, 3)
    with pytest.raises(ig.errors.ModelFileError, match=r"guide\.roots"):
        Guide.from_record(arrays | {"guide.roots": np.array([1e6])}, 3)
    with pytest.raises(ig.errors.ModelFileError, match=r"guide\.nodes"):
        Guide.from_record(arrays | {"guide.numbers": np.zeros(3)}, 3)


def test_columns_of_a_table_and_gaps_go_through_the_guide(tmp_path: Path) -> None:
    X, y = steps(120)
    frame = pd.DataFrame(X, columns=list("abc")).assign(kind=np.where(np.arange(120) % 3, "u", "v"))
    frame.loc[::7, "b"] = np.nan
    y = y + (frame["kind"] == "u")
    model = ig.SparseGPRegressor("matern52", n_inducing=10, guide="boosting", missing="use", max_iter=10)
    model.fit(frame, y)
    model.save(tmp_path / "model")
    mean, std = model.predict(frame, return_std=True)
    again = ig.load(tmp_path / "model").predict(frame, return_std=True)
    np.testing.assert_allclose(again[0], mean, rtol=0, atol=1e-12)
    assert np.mean((y - mean) ** 2) < 0.3 * np.var(y) and np.all(std > 0)


def test_what_a_guide_cannot_do_is_said(guided: ig.SparseGPRegressor, tmp_path: Path) -> None:
    X, y = steps(60)
    model = ig.SparseGPRegressor(guide="boosting")
    with pytest.raises(ig.errors.EmptyDataError, match="50 different rows"):
        model.fit(X[:40], y[:40])
    with pytest.raises(ig.errors.ParameterError, match="one target"):
        model.fit(X, np.column_stack([y, y]))
    with pytest.raises(ig.errors.ParameterError, match="inputs that are known"):
        model.fit(X, y, x_std=0.1)
    with pytest.raises(ig.errors.ParameterError, match="all rows at once"):
        model.fit(ig.as_source(X, y))
    with pytest.raises(ig.errors.UnknownNameError, match="guide must be"):
        ig.SparseGPRegressor(guide="oracle").fit(X, y)
    with pytest.raises(ig.errors.ParameterError, match="no paths"):
        guided.paths()
    with pytest.raises(ig.errors.ParameterError, match="Sobol"):
        guided.sobol_indices()
    with pytest.raises(ig.errors.ParameterError, match="exports"):
        ig.export(guided, tmp_path / "model.h", "c")


def test_shapley_values_of_a_guided_model_are_those_of_their_definition() -> None:
    """The guide is a function of all inputs, and its part in the mean belongs to them."""
    X, y = steps(120, d=2)
    model = ig.SparseGPRegressor("rbf", n_inducing=20, guide="boosting", max_iter=20).fit(X, y)
    rows, background = X[:3], X[3:8]
    found = model.shapley(rows, background)
    for x, values in zip(rows, found.values):

        def worth(*known: bool, x: np.ndarray = x) -> float:
            return float(np.mean(model.predict(np.where(known, x, background), latent=True)))

        none, both = worth(False, False), worth(True, True)
        first, second = worth(True, False), worth(False, True)
        expected = [0.5 * (first - none + both - second), 0.5 * (second - none + both - first)]
        np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-12)
    with pytest.raises(ig.errors.ParameterError, match="no guide"):
        model.shapley(rows, background, return_std=True)
