"""The core without its extras: what it still does, and the sentence that says which command is missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import inducing as ig
from inducing import EXTRAS, progress

ROOT = Path(__file__).parent.parent
# scikit-learn itself imports narwhals from 1.9 on, so it may be there without the extra
EXTRA = sorted(set(" ".join(EXTRAS.values()).split()) - {"narwhals"})
BLOCK = f"""
import importlib.abc, sys
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {EXTRA}:
            raise ModuleNotFoundError(name + " is blocked", name=name)
sys.meta_path.insert(0, Blocked())
import numpy as np, inducing as ig
"""
MAKES = """
X = np.random.default_rng(0).uniform(-2, 2, (60, 2))
y = np.sin(X[:, 0]) + X[:, 1]
"""


def alone(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in which no extra can be imported."""
    command = [sys.executable, "-W", "error", "-c", BLOCK + code]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)


def test_extras_are_those_of_the_distribution():
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[\[<>=! ]", requirement)[0] for requirement in requirements}

    core = "numpy scipy numba scikit-learn array-api-compat safetensors"
    assert names(project["dependencies"]) == set(core.split())
    for extra, packages in EXTRAS.items():
        assert names(project["optional-dependencies"][extra]) <= {*packages.split(), "bokeh"}
    assert names(project["optional-dependencies"]["cli"]) == set(EXTRAS["cli"].split())


def test_core_fits_predicts_saves_and_loads(tmp_path):
    code = """
model = ig.SparseGPRegressor(n_inducing=8, max_iter=2, random_state=0, progress=True).fit(X, y)
model.save("m.gp")
print(np.abs(ig.load("m.gp").predict(X) - model.predict(X)).max() < 1e-9)
stream = ig.OnlineGPRegressor(n_inducing=10, warmup=20, random_state=0).partial_fit(X, y)
labels = ig.SparseGPClassifier(n_inducing=8, max_iter=2, random_state=0).fit(X, y > 0).predict(X)
print(labels.shape)
"""
    done = alone(MAKES + code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "(60,)"]
    assert "iteration" in done.stderr  # progress as plain lines


def test_a_missing_extra_is_one_sentence_with_the_command(tmp_path):
    cases = {
        "ig.plots.figure()": ("matplotlib", "plot"),
        "ig.compare(X, y)": ("pandas", "cli"),
        "ig.SparseGPRegressor().fit('rows/*.parquet', 'y')": ("pyarrow", "cli"),
        "ig.distributed.cluster(workers=1).__enter__()": ("distributed", "dask"),
        "ig.backend.placed(X, 'cuda')": ("torch", "gpu"),
        "ig.river": ("river", "river"),
        "ig.export(ig.SparseGPRegressor(n_inducing=5).fit(X, y), 'm.onnx', 'onnx')": ("onnx", "export"),
    }
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.parquet").write_bytes(b"PAR1")
    code = """
for code in {cases}:
    try:
        eval(code)
    except ig.errors.MissingPackageError as error:
        print(error)
"""
    done = alone(MAKES + code.format(cases=list(cases)), tmp_path)
    assert done.stdout.splitlines() == [
        f"this needs {package}, which is not installed: pip install 'inducing[{extra}]'"
        for package, extra in cases.values()
    ], done.stderr


def test_the_command_line_says_so_in_one_line(tmp_path):
    done = alone("from inducing.cli import main; main()", tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "inducing: error: this needs typer, which is not installed: pip install 'inducing[cli]'\n"
    )


def test_another_missing_module_is_not_taken_for_the_extra(monkeypatch):
    def broken(name: str) -> None:
        raise ModuleNotFoundError("no six", name="six")

    monkeypatch.setattr(ig, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="no six") as caught:
        ig.package("pandas")
    assert not isinstance(caught.value, ig.errors.MissingPackageError)


def test_progress_without_rich_is_plain_lines(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(progress, "PAUSE", (0.0, 0.0))
    with progress.Bars(True) as bars:
        bars.show("fits", "FITC", 3, 8)
        bars.show("lines", "reading")
    assert capsys.readouterr().err == "FITC, 3 of 8\nreading\n"


def test_progress_in_a_notebook_without_widgets_is_plain_lines(monkeypatch, capsys):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    with progress.Bars(True) as bars:
        bars.show("fits", "FITC", 3, 8)
    assert capsys.readouterr().err == "FITC, 3 of 8\n"


def test_import_takes_less_than_half_a_second():
    code = "import time; start = time.process_time(); import inducing; print(time.process_time() - start)"
    seconds = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(seconds) < 0.5
