"""Ends of learning: Ctrl-C and time budgets end the climb at hand and all that follow."""

import signal
import time
from collections import Counter

import numpy as np
import pytest

import inducing as ig
from inducing.learning.objective import Objective

rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, (160, 2))
Y = np.sin(2.0 * X[:, 0]) + (0.05 + 0.2 * (X[:, 1] > 0)) * rng.standard_normal(160)
REGRESSIONS = [
    {},
    {"noise": "learned"},
    {"noise": "learned-jointly"},
    {"likelihood": "studentt"},
    {"approximation": "neighbours"},
    {"approximation": "neighbours", "likelihood": "studentt"},
    {"approximation": "neighbours", "noise": "learned"},
    {"approximation": "cg", "n_inducing": "auto"},
    {"outputs": "independent"},
]


def _at_evaluation(number, then, monkeypatch):
    """Do something in the evaluation of this number; returns the list of the objectives evaluated so far."""
    evaluate, asked = Objective.value_and_gradient, []

    def heard(objective, x):
        asked.append(objective)
        if len(asked) == number:
            then()
        return evaluate(objective, x)

    monkeypatch.setattr(Objective, "value_and_gradient", heard)
    return asked


def _assert_ended(asked, number):
    """Climbs that began later evaluated their start and no more."""
    later = Counter(map(id, (each for each in asked[number:] if each is not asked[number - 1])))
    assert set(later.values()) <= {1}
    assert asked[number:].count(asked[number - 1]) <= 5  # it ended its iteration


def _press():
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("given", REGRESSIONS, ids=str)
def test_ctrl_c_ends_a_regression(given, monkeypatch, capsys):
    asked = _at_evaluation(4, _press, monkeypatch)
    y = np.stack([Y, -Y], axis=1) if "outputs" in given else Y
    model = ig.SparseGPRegressor(**{"n_inducing": 10, "random_state": 0} | given).fit(X, y)
    _assert_ended(asked, 4)
    assert capsys.readouterr().err.count("ending early") == 1
    assert np.all(np.isfinite(model.predict(X)))


@pytest.mark.parametrize("given", REGRESSIONS, ids=str)
def test_a_spent_time_budget_ends_a_regression(given, monkeypatch):
    now, passed = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now() + passed[0])
    asked = _at_evaluation(4, lambda: passed.append(passed.pop() + 1e6), monkeypatch)
    y = np.stack([Y, -Y], axis=1) if "outputs" in given else Y
    model = ig.SparseGPRegressor(time_budget=1e5, **{"n_inducing": 10, "random_state": 0} | given)
    assert np.all(np.isfinite(model.fit(X, y).predict(X)))
    _assert_ended(asked, 4)


@pytest.mark.parametrize("given", [{"approximation": "neighbours"}, {}, {"kernel": "auto"}], ids=str)
def test_ctrl_c_ends_a_classification(given, monkeypatch, capsys):
    asked = _at_evaluation(4, _press, monkeypatch)
    model = ig.SparseGPClassifier(n_inducing=10, random_state=0, **given).fit(X, Y > 0)
    _assert_ended(asked, 4)
    assert "ending early" in capsys.readouterr().err
    assert np.all(np.isfinite(model.predict_proba(X)))


def test_without_time_nothing_is_learned():
    for given in REGRESSIONS:
        y = np.stack([Y, -Y], axis=1) if "outputs" in given else Y
        model = ig.SparseGPRegressor(time_budget=0.0, **{"n_inducing": 10} | given).fit(X, y)
        assert model.n_iter_ == 0 and np.all(np.isfinite(model.predict(X)))


def test_outputs_share_a_time_budget(monkeypatch):
    budgets = []
    fit = ig.SparseGPRegressor._task
    monkeypatch.setattr(
        ig.SparseGPRegressor, "_task", lambda self, *a: budgets.append(self.time_budget) or fit(self, *a)
    )
    y = np.stack([Y, -Y, 2.0 * Y], axis=1)
    model = ig.SparseGPRegressor(n_inducing=5, max_iter=1, outputs="independent", time_budget=60.0).fit(X, y)
    np.testing.assert_array_less(budgets, [20.0 + 1e-9, 30.0, 60.0])
    assert [each.time_budget for each in model.models_] == [60.0] * 3
