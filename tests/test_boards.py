"""The local board, and our estimators in the forms that TabArena and ScoringBench take."""

import json
import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import inducing as ig
from benchmarks.boards import run

ROOT = Path(__file__).parents[1]
X, Y = ig.datasets.friedman1(60, rng=0)
SMALL = dict(n_inducing=5, max_iter=3)


def test_the_quick_board_goes_on_where_it_stopped(tmp_path):
    out = tmp_path / "boards.jsonl"
    command = [sys.executable, "-m", "benchmarks.boards", "--quick", "--out", str(out)]
    options = dict(cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    first = subprocess.run(command, timeout=300, check=False, **options)
    assert first.returncode == 0, first.stderr
    records = [json.loads(line) for line in out.read_text().splitlines()]
    for task, scores in run.SCORES.items():
        of_task = [r for r in records if r["task"] == task]
        assert {r["method"] for r in of_task} == set(run.methods(task)) >= {"inducing", "exact GP"}
        assert all(np.isfinite(r[s]) for r in of_task for s in scores)
    assert "regression, 1 tables (diabetes)" in first.stdout and "| inducing | " in first.stdout
    again = subprocess.run(command, timeout=300, check=False, **options)
    assert again.stdout in first.stdout and len(out.read_text().splitlines()) == len(records)


def test_ranks_and_normalised_scores():
    """One table of scores 1, 2, 4, 3 and one whose first three are equal."""
    scores = np.array([[1.0, 2.0, 4.0, 3.0], [1.0, 1.0, 1.0, 5.0]])[:, :, None]
    np.testing.assert_allclose(run.ranks(scores)[:, 0], [1.5, 2.0, 3.0, 3.5])
    np.testing.assert_allclose(run.normalised(scores)[:, 0], [1.0, (1.0 / 3.0 + 1.0) / 2, 0.5, 0.0])


def test_a_table_counts_when_all_methods_did_the_same_splits():
    def record(table, method, fold):
        return {"task": "classes", "table": table, "method": method, "fold": fold} | dict.fromkeys(
            run.SCORES["classes"], fold + 1.0
        )

    known = [record("a", m, f) for m in ("inducing", "logistic") for f in (0, 1)]
    known += [record("b", "inducing", 0), record("c", "inducing", 0), record("c", "logistic", 1)]
    names, who, scores = run.means(known, "classes")
    assert names == ["a"] and who == ["inducing", "logistic"]
    np.testing.assert_array_equal(scores, np.full((1, 2, 3), 1.5))


def test_gaussian_scores_are_those_of_our_distribution():
    """A method of means and standard deviations is judged as a model with `predict_distribution` is."""
    model = ig.SparseGPRegressor("rbf", approximation="vfe", random_state=0, **SMALL)
    rows = run.Rows(X[:40], Y[:40], X[40:], Y[40:])
    answer = model.fit(rows.X, rows.y).predict_distribution(rows.Xs)
    found = run.gaussian(lambda rows: model.predict(rows.Xs, return_std=True))(rows)
    assert found["CRPS"] == pytest.approx(np.mean(answer.crps(rows.ys)))
    assert found["log score"] == pytest.approx(-np.mean(answer.log_density(rows.ys)))
    low, high = answer.interval(run.LEVEL).T
    assert found["interval score"] == pytest.approx(ig.metrics.interval_score(rows.ys, low, high, run.LEVEL))


def test_a_method_that_fails_has_the_trivial_scores(monkeypatch):
    def fails(rows):
        raise ValueError("no")

    monkeypatch.setitem(run.METHODS["classes"], "logistic", fails)
    failed = run.work("classes", "iris", 0, 1, "logistic")
    assert failed["failed"] == "ValueError: no" and failed["log loss"] == pytest.approx(np.log(3.0), abs=1e-3)
    whole = run.work("regression", "diabetes", 0, 1, "trivial")
    assert whole["failed"] is None and 60.0 < whole["RMSE"] < 90.0


def adapter(name, monkeypatch, modules):
    """An adapter as it is imported where the board's package is installed."""
    for path, module in modules.items():
        monkeypatch.setitem(sys.modules, path, module)
    monkeypatch.delitem(sys.modules, f"benchmarks.boards.{name}", raising=False)
    found = import_module(f"benchmarks.boards.{name}")
    monkeypatch.delitem(sys.modules, f"benchmarks.boards.{name}")
    return found


@pytest.mark.parametrize("name", ["tabarena", "scoringbench"])
def test_adapters_are_imported_without_the_boards(name, monkeypatch):
    assert adapter(name, monkeypatch, {"autogluon": None, "scoringbench": None})


def test_the_form_of_scoringbench(monkeypatch):
    """The base class and the constructor are ScoringBench's, as its univariate wrappers use them."""

    class ProbabilisticWrapper:
        def _set_train_range(self, y):
            self._y_train_range = float(np.min(y)), float(np.max(y))

    class DistributionPrediction(SimpleNamespace):
        @classmethod
        def from_multi_quantile(cls, q, alphas, mean=None, *, train_range):
            return cls(q=q, alphas=alphas, mean=mean, train_range=train_range)

    base = ModuleType("base")
    base.ProbabilisticWrapper, base.DistributionPrediction = ProbabilisticWrapper, DistributionPrediction
    wrappers = ModuleType("scoringbench.univariate.wrappers")
    wrappers.base = base
    paths = ("scoringbench", "scoringbench.univariate")
    modules = {path: ModuleType(path) for path in paths} | {wrappers.__name__: wrappers}
    found = adapter("scoringbench", monkeypatch, modules)
    wrapper = found.InducingWrapper(approximation="vfe", kernel="rbf", **SMALL)
    y = Y.copy()
    y[3] = np.nan
    assert wrapper.fit(pd.DataFrame(X), pd.Series(y)) is wrapper
    told = wrapper.predict_distribution(X[:7])
    assert told.train_range == (np.nanmin(y), np.nanmax(y))
    np.testing.assert_array_equal(told.mean, wrapper.predict(X[:7]))
    assert told.q.shape == (7, len(told.alphas)) and np.all(np.diff(told.q, axis=1) > 0)
    np.testing.assert_allclose(told.q[:, 499], told.mean, rtol=1e-9)  # the median of a Gaussian
    mean, std = wrapper.model.predict(X[:7], return_std=True)
    np.testing.assert_allclose(told.q[:, 899], mean + 1.2815515655446004 * std)


@pytest.mark.parametrize("problem", ["regression", "binary", "multiclass"])
def test_the_form_of_tabarena(problem, monkeypatch):
    """What AutoGluon's AbstractModel does around `_fit` and `_preprocess`."""

    class AbstractModel:
        def __init__(self, problem_type, hyperparameters):
            self.problem_type, self.params = problem_type, dict(hyperparameters)
            self._set_default_params()

        def _set_default_param_value(self, name, value):
            self.params.setdefault(name, value)

        def _get_model_params(self):
            return dict(self.params)

        def _get_default_auxiliary_params(self):
            return {"max_rows": None}

        def _preprocess(self, X, **kwargs):
            return X

        def preprocess(self, X, y=None, **kwargs):
            return self._preprocess(X, **kwargs)

    models = ModuleType("autogluon.core.models")
    models.AbstractModel = AbstractModel
    paths = ("autogluon", "autogluon.core")
    modules = {path: ModuleType(path) for path in paths} | {models.__name__: models}
    found = adapter("tabarena", monkeypatch, modules)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X[:, :3], columns=list("abc"))
    frame["kind"] = pd.Categorical(np.where(rng.random(60) < 0.5, "low", "high"))
    frame["on"] = rng.random(60) < 0.5
    frame.loc[5, "a"], frame.loc[6, "kind"] = np.nan, None
    y = {"regression": Y, "binary": (Y > 14) * 1, "multiclass": np.digitize(Y, [12, 17])}[problem]
    options = {"approximation": "vfe", "kernel": "rbf"} if problem == "regression" else {}
    model = found.InducingModel(problem, SMALL | options)
    assert set(model._get_default_auxiliary_params()) == {"max_rows", "valid_raw_types"}
    model._fit(frame, pd.Series(y, index=frame.index), time_limit=60.0)
    asked = frame.iloc[:9].copy()
    asked["kind"] = asked["kind"].cat.rename_categories({"low": "never seen"})
    rows = model.preprocess(asked)
    assert not rows.isna().any().any() and rows.loc[5, "a"] == frame["a"].median()
    told = pytest.warns(ig.errors.InducingWarning, match="levels not seen before, 'never seen'")
    if problem == "regression":
        with told:
            assert np.isfinite(model.model.predict(rows)).all()
        assert model.model.time_budget == pytest.approx(54.0, abs=1.0)
    else:
        with told:
            assert model.model.predict_proba(rows).shape == (9, len(np.unique(y)))
        np.testing.assert_array_equal(model.model.classes_, np.unique(y))


@pytest.mark.parametrize("problem", ["regression", "classification"])
def test_tabarena_runs_the_adapter(problem, tmp_path, monkeypatch):
    """The board's own classes, where they are installed: `pip install tabarena` in an environment beside."""
    user_task = import_module("tabarena.benchmark.task.user_task")
    monkeypatch.chdir(tmp_path)
    adapter = import_module("benchmarks.boards.tabarena")
    inputs, y = ig.datasets.friedman1(160, rng=1)
    if problem == "classification":
        y = np.array(["low", "middle", "high"])[np.digitize(inputs[:, 0] + inputs[:, 1], [0.8, 1.2])]
    table = pd.DataFrame(inputs[:, :5], columns=list("abcde"))
    table["d"] = pd.Categorical(np.where(table["d"] > 0.5, "x", "y"))
    table.loc[3, "b"] = np.nan
    spec = user_task.UserTask(task_name="small", task_cache_path=tmp_path)
    rows = np.random.default_rng(0).permutation(len(y)).tolist()
    options = {"target_feature": "y", "problem_type": problem, "dataset": table.assign(y=y)}
    task = spec.create_task(**options, splits={0: {0: (rows[:-40], rows[-40:])}})
    first = adapter.experiments()[0]
    found = first.run(task, 0, "small", cache_task_key="small")
    assert first.name == "Inducing_c1_BAG_L1" and np.isfinite(found["metric_error"])
    assert found["metric_error"] < (3.0 if problem == "regression" else 0.5)  # 5 and 1.1 are trivial


if find_spec("tabarena") is None:  # it pins versions of its own, so that it cannot be installed beside ours
    del test_tabarena_runs_the_adapter
