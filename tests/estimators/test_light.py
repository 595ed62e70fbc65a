"""Light models: predictions without scikit-learn and Numba, and the whole estimator without Numba."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import inducing as ig
from inducing.cli.predict import predict
from inducing.sources import tables

SOURCE = Path(ig.__file__).parent.parent
RNG = np.random.default_rng(5)
X = RNG.uniform(-2.0, 2.0, size=(80, 2))
Y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * RNG.standard_normal(80)
COUNTS = RNG.poisson(np.exp(0.5 * X[:, 0])).astype(float)
LABELS = np.where(Y > 0.5, "high", np.where(Y > -0.5, "middle", "low"))
FEW: dict[str, Any] = {"max_iter": 2, "random_state": 0}
SMALL: dict[str, Any] = {**FEW, "n_inducing": 8}
SUM = ig.kernels.RBF(np.ones(2)) + ig.kernels.Linear(1.0)
REGRESSORS = {
    "auto": (FEW, Y),
    "points": ({**SMALL, "approximation": "fitc", "basis": "points", "kernel": "rbf"}, Y),
    "multiscale": ({**SMALL, "approximation": "vfe", "basis": "multiscale", "kernel": "rbf"}, Y),
    "matern": ({**SMALL, "approximation": "fitc", "kernel": "matern32"}, Y),
    "sum": ({**SMALL, "approximation": "fitc", "kernel": SUM}, Y),
    "exact": ({**FEW, "approximation": "exact", "kernel": "matern52"}, Y),
    "poisson": ({**SMALL, "likelihood": "poisson"}, COUNTS),
    "student": ({**SMALL, "likelihood": "studentt"}, Y),
    "learned noise": ({**SMALL, "noise": "learned"}, Y),
    "neighbours": ({**SMALL, "approximation": "neighbours", "neighbours": 5}, Y),
}
# a process in which the imports named first fail, and that says what it predicted of the rows in a file
BLOCKED = """
import importlib.abc, json, sys
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocked())
import numpy as np, inducing as ig
Q, answers = np.load(sys.argv[1]), []
for path in sys.argv[2:]:
    model = ig.load(path, light={light})
    if hasattr(model, "predict_proba"):
        answers.append(model.predict_proba(Q).tolist())
    else:
        answers.append([part.tolist() for part in model.predict(Q, return_std=True)])
print(json.dumps(answers))
"""


def in_blocked_process(blocked: set[str], light: bool, paths: list[Path], folder: Path) -> list[np.ndarray]:
    np.save(folder / "queries.npy", X[:7])
    code = BLOCKED.format(blocked=blocked, light=light)
    words = [sys.executable, "-c", code, str(folder / "queries.npy"), *map(str, paths)]
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [np.array(answer) for answer in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, np.ndarray]:
    """Files of models of every kind, and what their estimators predict."""
    folder, answers = tmp_path_factory.mktemp("models"), {}
    models: dict[str, Any] = {}
    for name, (options, y) in REGRESSORS.items():
        models[name] = ig.SparseGPRegressor(**options).fit(X, y)
    stream: dict[str, Any] = {"n_inducing": 8, "warmup": 40, "random_state": 0, "max_iter": 2}
    models["stream"] = ig.OnlineGPRegressor(**stream).fit(X, Y)
    models["stream, laplace"] = ig.OnlineGPRegressor(likelihood="laplace", **stream).fit(X, Y)
    models["classes"] = ig.SparseGPClassifier(**SMALL).fit(X, LABELS)
    models["two classes"] = ig.SparseGPClassifier(**SMALL).fit(X, Y > 0)
    models["logistic"] = ig.SparseGPClassifier(likelihood="logistic", **SMALL).fit(X, Y > 0)
    near = {"approximation": "neighbours", "neighbours": 5}
    models["classes along neighbours"] = ig.SparseGPClassifier(**SMALL, **near).fit(X, LABELS)
    for name, model in models.items():
        model.save(folder / name)
        is_classes = hasattr(model, "classes_")
        answer = model.predict_proba(X[:7]) if is_classes else model.predict(X[:7], return_std=True)
        answers[folder / name] = np.array(answer)
    return answers


@pytest.mark.parametrize("light", [True, False])
def test_predictions_without_what_is_heavy(
    saved: dict[Path, np.ndarray], light: bool, tmp_path: Path
) -> None:
    blocked = {"numba", "llvmlite", "sklearn"} if light else {"numba", "llvmlite"}
    answers = in_blocked_process(blocked, light, list(saved), tmp_path)
    for (path, expected), answer in zip(saved.items(), answers, strict=True):
        np.testing.assert_allclose(answer, expected, rtol=1e-9, atol=1e-12, err_msg=path.name)


def test_light_quantiles_and_labels_are_the_estimators(saved: dict[Path, np.ndarray]) -> None:
    for path in saved:
        whole, light = ig.load(path), ig.load(path, light=True)
        if hasattr(whole, "classes_"):
            assert list(light.predict(X[:7])) == list(whole.predict(X[:7]))
        elif hasattr(whole, "predict_quantiles"):
            np.testing.assert_allclose(
                light.predict_quantiles(X[:7], [0.1, 0.9]),
                whole.predict_quantiles(X[:7], [0.1, 0.9]),
                rtol=1e-7,
            )


def test_what_a_light_model_refuses(saved: dict[Path, np.ndarray], tmp_path: Path) -> None:
    light = ig.load(next(iter(saved)), light=True)
    with pytest.raises(ig.errors.ShapeError, match="3 columns"):
        light.predict(np.ones((2, 3)))
    with pytest.raises(ig.errors.NonFiniteError, match="NaN"):
        light.predict(np.full((2, 2), np.nan))
    gappy = np.where(np.arange(len(X))[:, None] < [3, 0], np.nan, X)
    ig.SparseGPRegressor(**SMALL, missing="use").fit(gappy, Y).save(tmp_path / "gappy")
    assert np.isfinite(ig.load(tmp_path / "gappy").predict(gappy)).all()
    with pytest.raises(ig.errors.NonFiniteError, match="X has gaps, .*; load it without light=True"):
        ig.load(tmp_path / "gappy", light=True).predict(gappy)
    ig.SparseGPRegressor(**SMALL).fit(X, np.column_stack([Y, -Y])).save(tmp_path / "two")
    with pytest.raises(ig.errors.ModelFileError, match="several targets"):
        ig.load(tmp_path / "two", light=True)
    framed = ig.SparseGPRegressor(**SMALL).fit(pd.DataFrame(X, columns=["a", "b"]), Y)
    framed.save(tmp_path / "framed")
    with pytest.raises(ig.errors.ColumnError, match="columns"):
        ig.load(tmp_path / "framed", light=True).predict(pd.DataFrame(X, columns=["b", "a"]))


COMMAND = """
import importlib.abc, sys
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocked())
import inducing.cli
from inducing.cli.app import main
main()
"""


HEAVY = ("numba", "llvmlite", "sklearn")


def predicted(model: Path, table: Path, blocked: tuple[str, ...] = HEAVY) -> str:
    """What `inducing predict` writes of a table in a process that cannot import some packages."""
    out = table.with_name(f"out-{table.name}")
    code = f"BLOCKED = {blocked}\n{COMMAND}"
    words = [sys.executable, "-c", code, "predict", str(model), str(table), "-o", str(out)]
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out.read_text()


@pytest.mark.parametrize("target", ["number", "label"])
def test_the_command_predicts_without_what_is_heavy(target: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "kind": np.where(X[:, 1] > 0, "x", "y")})
    y = pd.Series(Y if target == "number" else np.where(Y > 0, "high", "low"), name="t")
    kind = ig.SparseGPRegressor if target == "number" else ig.SparseGPClassifier
    model = kind("rbf", **SMALL).fit(frame, y)
    model.save(tmp_path / "m.gp", {"target": "t"})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    told = pd.read_csv(StringIO(predicted(tmp_path / "m.gp", tmp_path / "rows.csv")))
    if target == "number":
        expected = model.predict(frame, return_std=True)
        np.testing.assert_allclose(told[["t_mean", "t_std"]].to_numpy().T, expected, rtol=1e-9, atol=1e-12)
    else:
        names = [f"t={label}" for label in model.classes_]
        np.testing.assert_allclose(told[names], model.predict_proba(frame), rtol=1e-9, atol=1e-12)


def test_a_light_answer_loads_only_what_it_needs(tmp_path: Path) -> None:
    """Start-up is imports: scipy.special, wanted by few kernels, is loaded by those."""
    path = tmp_path / "model.gp"
    ig.SparseGPRegressor("rbf", approximation="vfe", **SMALL).fit(X, Y).save(path)
    script = f"""
import sys, inducing as ig
ig.load({str(path)!r}, light=True).predict([[0.1, 0.2]], return_std=True)
print(sorted(set("scipy.special scipy.stats scipy.optimize sklearn numba pandas".split()) & set(sys.modules)))
"""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == "[]"


NUMBERS = (
    "-0.0 007.5 1e5 1E-7 123456789012345678 1.7976931348623157e+38 0.1 -3 100000000000000000000.5".split()
)


@pytest.mark.parametrize("target", ["number", "label", "whole label"])
def test_plain_numbers_are_predicted_without_pandas_and_with_its_bytes(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = {"number": Y, "label": np.where(Y > 0, 'a "b", c', "d"), "whole label": np.where(Y > 0, 3, 1)}[target]
    kind = ig.SparseGPRegressor if target == "number" else ig.SparseGPClassifier
    frame = pd.DataFrame({"a": X[:, 0], "b": np.round(X[:, 1])})
    kind("rbf", **SMALL).fit(frame, y).save(tmp_path / "m.gp", {"target": "t, of €"})
    lines = [f"{b:g},{x},{i - 3:03d},{a}" for i, (x, a, b) in enumerate(zip(NUMBERS, *X.T.round(1)))]
    text = "\r\n".join(["b,extra [€],whole,a", *lines]) + "\r\n"
    for name, separator in (("rows.csv", ","), ("rows.tsv", "\t")):
        (tmp_path / name).write_bytes(text.replace(",", separator).encode())
        predict(tmp_path / "m.gp", tmp_path / name, tmp_path / f"light-{name}")
        with monkeypatch.context() as patch:
            patch.setattr(tables, "numbers", lambda path: None)
            predict(tmp_path / "m.gp", tmp_path / name, tmp_path / f"full-{name}")
        written = (tmp_path / f"light-{name}").read_bytes()
        assert written == (tmp_path / f"full-{name}").read_bytes() and written.count(b"\n") == 1 + len(lines)
    alone = predicted(tmp_path / "m.gp", tmp_path / "rows.csv", (*HEAVY, "pandas", "pyarrow", "narwhals"))
    assert alone == (tmp_path / "light-rows.csv").read_text()


@pytest.mark.parametrize(
    "field", ["", "nan", "x", "true", "1_0", "+1", ".5", "5.", "1e999", "2020-01-01", '"1"', " 1", "1,2", "١"]
)
def test_what_is_no_plain_number_is_left_to_the_full_reader(field: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"a,b\n1,2.5\n{field},3\n")
    assert tables.numbers(path) is None
    path.write_text("a,b\n1,2.5\n-4,3\n")
    assert tables.numbers(path) == {"a": [1, -4], "b": [2.5, 3.0]}


@pytest.mark.parametrize(
    "text", ["", "a,b\n", "a,a\n1,2\n", 'a,"b"\n1,2\n', "\ufeffa,b\n1,2\n", "a,b\n1,2\n\n"]
)
def test_files_that_are_no_plain_table_are_left_to_the_full_reader(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    assert tables.numbers(path) is None
