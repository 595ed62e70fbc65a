"""Rules for choosing a basis: every rule of the table, with weights, repeats and many rows."""

import numpy as np
import pytest

from inducing import errors, selection
from inducing.selection import BY_NAME, kmeans, merge_repeats, nearest

RULES = pytest.mark.parametrize("rule", BY_NAME.values(), ids=BY_NAME)
X = np.random.default_rng(0).normal(size=(300, 3))


@RULES
def test_m_different_places_inside_the_data(rule):
    Z = rule(X, 20, 0)
    assert Z.shape == (20, 3) and len(np.unique(Z, axis=0)) == 20
    assert np.all(Z >= X.min(axis=0)) and np.all(Z <= X.max(axis=0))


@RULES
def test_the_seed_decides(rule):
    np.testing.assert_array_equal(rule(X, 20, 0), rule(X, 20, 0))
    np.testing.assert_array_equal(rule(X, 20, np.random.default_rng(3)), rule(X, 20, np.random.default_rng(3)))
    assert not np.array_equal(rule(X, 20, 0), rule(X, 20, 1))


@RULES
def test_no_more_than_there_are_different_rows(rule):
    few = np.repeat(X[:7], 4, axis=0)
    np.testing.assert_array_equal(np.sort(rule(few, 20, 0), axis=0), np.sort(X[:7], axis=0))
    assert rule(X[:1], 1, 0).shape == (1, 3)


@RULES
def test_weights_are_repeated_rows_and_order_is_nothing(rule):
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 3, len(X))
    repeated = rng.permutation(np.repeat(X, weights, axis=0))
    np.testing.assert_array_equal(rule(X, 20, 0, weights), rule(repeated, 20, 0))


@RULES
def test_rows_of_weight_zero_are_not_there(rule):
    weights = (X[:, 0] > 0).astype(float)
    assert np.all(rule(X, 20, 0, weights)[:, 0] > 0)


@RULES
def test_units_change_nothing_but_units(rule):
    if rule is kmeans:  # distances depend on the units of one input against another
        np.testing.assert_allclose(rule(4.0 * X, 20, 0), 4.0 * rule(X, 20, 0))
    else:
        np.testing.assert_array_equal(rule(X * [2.0, 4.0, 0.5], 20, 0), rule(X, 20, 0) * [2.0, 4.0, 0.5])


@RULES
def test_many_rows_are_sampled(rule, monkeypatch):
    monkeypatch.setattr(selection, "MOST_ROWS", 50)
    monkeypatch.setattr(selection, "ROWS_EACH", 2)
    weights = np.where(X[:, 0] > 0, 1.0, 1e-9)
    Z = rule(X, 10, 0, weights)
    assert Z.shape == (10, 3) and np.all(Z[:, 0] > 0)


def test_kmeans_spreads_better_than_chance():
    def distortion(Z):
        return np.mean(np.min(np.sum((X[:, None] - Z) ** 2, axis=2), axis=1))

    assert distortion(kmeans(X, 20, 0)) < 0.8 * distortion(selection.random_rows(X, 20, 0))


def test_merged_rows_are_sorted_and_counted():
    table = np.array([[1.0, 2.0], [0.0, 5.0], [1.0, -1.0], [1.0, 2.0], [-0.0, 5.0]])
    rows, weights = merge_repeats(table, np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    np.testing.assert_array_equal(rows, [[0.0, 5.0], [1.0, -1.0], [1.0, 2.0]])
    np.testing.assert_array_equal(weights, [7.0, 3.0, 5.0])
    rows, weights = merge_repeats(X, np.ones(300))
    np.testing.assert_array_equal(rows, X[np.argsort(X[:, 0])])


def test_nearest():
    Z = X[:5]
    np.testing.assert_array_equal(nearest(X, Z), np.argmin(np.sum((X[:, None] - Z) ** 2, axis=2), axis=1))


@RULES
@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (errors.ParameterError, (X, 0)), (errors.ParameterError, (X, 2.5)), (errors.ParameterError, (X, True)),
        (errors.ShapeError, (X[:, 0], 3)), (errors.ShapeError, (X, 3, 0, np.ones(5))),
        (errors.EmptyDataError, (X[:0], 3)), (errors.EmptyDataError, (X, 3, 0, np.zeros(300))),
        (errors.NonFiniteError, (np.full((4, 2), np.nan), 3)),
    ],
)  # fmt: skip
def test_bad_input_has_a_named_error(rule, error, arguments):
    with pytest.raises(error):
        rule(*arguments)
