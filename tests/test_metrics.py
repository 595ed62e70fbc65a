"""Metrics against the formulas written out, against scipy's densities, and on Gaussians whose calibration is
known.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from inducing import metrics
from inducing.errors import EmptyDataError, NonFiniteError, ParameterError, ShapeError


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y_train = rng.normal(3.0, 2.0, 50)
    y, mean, var = rng.normal(3.0, 2.0, 40), rng.normal(3.0, 2.0, 40), rng.uniform(0.5, 4.0, 40)
    return y, mean, var, y_train


def test_definitions_on_three_rows():
    y, mean, var, y_train = [1.0, 2.0, 4.0], [1.5, 2.0, 3.0], [1.0, 0.25, 4.0], [0.0, 2.0]
    assert metrics.smse(y, mean, y_train) == pytest.approx((0.25 + 0 + 1) / (0 + 1 + 9))
    log_densities = [norm.logpdf(a, b, np.sqrt(c)) for a, b, c in zip(y, mean, var)]
    trivial = [norm.logpdf(a, 1.0, 1.0) for a in y]
    assert metrics.nlpd(y, mean, var) == pytest.approx(-np.mean(log_densities))
    assert metrics.msll(y, mean, var, y_train) == pytest.approx(np.mean(trivial) - np.mean(log_densities))


def test_the_trivial_predictor_scores_one_and_zero(rows):
    y, _, _, y_train = rows
    mean, var = np.full(len(y), np.mean(y_train)), np.full(len(y), np.var(y_train))
    assert metrics.smse(y, mean, y_train) == pytest.approx(1.0)
    assert metrics.msll(y, mean, var, y_train) == pytest.approx(0.0, abs=1e-14)


def test_a_baseline_stands_for_the_training_targets(rows):
    y, mean, var, y_train = rows
    baseline = metrics.Baseline(float(np.mean(y_train)), float(np.var(y_train)))
    assert metrics.smse(y, mean, baseline) == metrics.smse(y, mean, y_train)
    assert metrics.msll(y, mean, var, baseline) == metrics.msll(y, mean, var, y_train)


def test_msll_and_smse_do_not_depend_on_units(rows):
    y, mean, var, y_train = rows
    scaled = 10 * y - 5, 10 * mean - 5, 100 * var, 10 * y_train - 5
    assert metrics.msll(*scaled) == pytest.approx(metrics.msll(y, mean, var, y_train))
    assert metrics.smse(scaled[0], scaled[1], scaled[3]) == pytest.approx(metrics.smse(y, mean, y_train))


def test_scores_of_parts_add_up_to_the_metrics_of_all_rows(rows):
    y, mean, var, y_train = rows
    parts = [metrics.Scores.of(y[cut], mean[cut], var[cut], y_train) for cut in (slice(15), slice(15, None))]
    found = (metrics.Scores() + parts[0] + parts[1]).metrics()
    assert found["SMSE"] == pytest.approx(metrics.smse(y, mean, y_train), rel=1e-13)
    assert found["MSLL"] == pytest.approx(metrics.msll(y, mean, var, y_train), rel=1e-13)
    assert found["NLPD"] == pytest.approx(metrics.nlpd(y, mean, var), rel=1e-13)
    assert found["coverage of 95 %"] == pytest.approx(metrics.coverage(y, mean, var), rel=1e-13)


@pytest.mark.parametrize("level", [0.5, 0.68, 0.95])
def test_coverage_counts_the_rows_inside(rows, level):
    y, mean, var, _ = rows
    low, high = norm.interval(level, mean, np.sqrt(var))
    assert metrics.coverage(y, mean, var, level) == np.mean((low <= y) & (y <= high))


def test_calibrated_gaussians_cover_what_they_say():
    rng = np.random.default_rng(1)
    mean, var = rng.normal(size=20_000), rng.uniform(0.1, 9.0, 20_000)
    y = rng.normal(mean, np.sqrt(var))
    assert metrics.coverage(y, mean, var) == pytest.approx(0.95, abs=0.006)
    assert metrics.calibration(y, mean, var).error < 0.006
    assert metrics.calibration(y, mean, var / 9).error > 0.2


@given(st.integers(1, 30), st.lists(st.floats(0.01, 0.99), min_size=1, max_size=8), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_calibration_agrees_with_coverage_and_rises_with_the_level(n, levels, seed):
    rng = np.random.default_rng(seed)
    y, mean, var = rng.normal(size=n), rng.normal(size=n), rng.uniform(0.1, 2.0, n)
    curve = metrics.calibration(y, mean, var, sorted(levels))
    assert np.all(np.diff(curve.observed) >= 0)
    assert list(curve.observed) == [metrics.coverage(y, mean, var, level) for level in sorted(levels)]


BAD = [
    (dict(y=[[1.0], [2.0]]), ShapeError, r"y must be one-dimensional.*\(2, 1\)"),
    (dict(mean=[1.0]), ShapeError, "one length.*'mean': 1"),
    (dict(y=[], mean=[], var=[]), EmptyDataError, "y has no rows"),
    (dict(y=[1.0, np.nan]), NonFiniteError, "y holds 1 non-finite.*row 1"),
    (dict(var=[1.0, np.inf]), NonFiniteError, "var holds 1 non-finite"),
    (dict(var=[1.0, -0.5]), ParameterError, "row 1 of var is -0.5, not positive"),
    (dict(y_train=[2.0, 2.0]), ParameterError, "positive variance of y_train"),
    (dict(y_train=[]), EmptyDataError, "y_train has no rows"),
]


@pytest.mark.parametrize("change, error, message", BAD)
def test_bad_input_is_named(change, error, message):
    arguments = dict(y=[1.0, 2.0], mean=[1.0, 2.0], var=[1.0, 1.0], y_train=[0.0, 1.0]) | change
    with pytest.raises(error, match=message):
        metrics.msll(**arguments)


def test_smse_of_constant_targets_and_levels_outside_the_unit_interval_are_refused():
    with pytest.raises(ParameterError, match="every y equals the training mean"):
        metrics.smse([1.0, 1.0], [0.0, 1.0], [1.0, 1.0])
    with pytest.raises(ParameterError, match="strictly between 0 and 1; got 95"):
        metrics.coverage([1.0], [1.0], [1.0], level=95)
