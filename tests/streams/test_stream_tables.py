"""Streams of whole tables: text, categories and dates, drift in what is written, bad rows by the thousand,
files that grow.
"""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

import inducing as ig
from inducing.cli import app

N = 240
rng = np.random.default_rng(0)
KIND = np.array(["red", "green", "blue"])[rng.integers(0, 3, N)]
WHEN = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(N), unit="h")
A = rng.uniform(-2, 2, N)
Y = np.sin(A) + (KIND == "red") + 0.05 * rng.standard_normal(N)
TABLE = pd.DataFrame({"a": A, "kind": KIND, "when": WHEN.strftime("%Y-%m-%d %H:%M"), "y": Y})
OPTIONS = ("--warmup", "60", "--n-inducing", "20")


def run(*arguments: Any, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["stream", *map(str, arguments)])
    assert result.exit_code == code, result.output + result.stderr
    return result


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_text_and_dates_are_inputs(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"s.{kind}"
    write(path, TABLE)
    command = path, "-t", "y", "-o", tmp_path / "m", "-p", tmp_path / "p.csv"
    run(*command, *OPTIONS)
    model: Any = ig.load(tmp_path / "m")
    assert list(model.encoder_.inputs) == ["a", "kind", "when"] and model.n_features_in_ == 5
    said = pd.read_csv(tmp_path / "p.csv")
    assert np.sqrt(np.mean((said["y"] - said["y_mean"])[100:] ** 2)) < 0.2
    result = CliRunner().invoke(
        app, ["predict", str(tmp_path / "m"), str(table(tmp_path)), "-o", str(tmp_path / "o.csv")]
    )
    assert result.exit_code == 0, result.output
    assert np.sqrt(np.mean((pd.read_csv(tmp_path / "o.csv").filter(like="mean").iloc[:, 0] - Y) ** 2)) < 0.2


def table(folder: Path) -> Path:
    TABLE.to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def write(path: Path, frame: pd.DataFrame) -> None:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))


def test_a_table_in_two_runs_is_the_table_in_one(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    for name, sizes in (("one", [N]), ("two", [150, N])):
        for i, size in enumerate(sizes):
            write(path, TABLE[:size])
            run(path, "-t", "y", "-o", tmp_path / name, *OPTIONS, *(["--resume"] if i else []))
    one, two = (ig.load(tmp_path / name) for name in ("one", "two"))
    assert_array_equal(one.posterior_.w, two.posterior_.w)
    assert_array_equal(one.posterior_.A, two.posterior_.A)


def test_values_never_seen_are_none_or_refused(tmp_path: Path) -> None:
    """A category is none of those known; a date that is none is refused, as a number would be."""
    strange = TABLE.copy()
    strange.loc[100, "kind"], strange.loc[120, "when"], strange.loc[130, "a"] = "violet", "tomorrow", np.nan
    write(tmp_path / "s.csv", strange)
    result = run(tmp_path / "s.csv", "-t", "y", "-o", tmp_path / "m", *OPTIONS)
    assert "row 121 refused" in result.stderr and "row 131 refused" in result.stderr
    assert ig.load(tmp_path / "m").n_rows_ == N - 2


def test_a_class_never_seen_is_learned_or_counted(tmp_path: Path) -> None:
    """Learned as it comes, its probability beside those of the header's classes; refused with --classes."""
    frame = TABLE.assign(y=np.where(A > 0, "up", "down"))
    frame.loc[100:, "y"] = np.where(np.abs(A[100:]) > 1, frame["y"][100:], "sideways")
    write(tmp_path / "s.csv", frame)
    command = tmp_path / "s.csv", "-t", "y", "--task", "classification", *OPTIONS
    result = run(*command, "-o", tmp_path / "m", "-p", tmp_path / "p.csv")
    assert "refused:" not in result.stderr
    assert list(ig.load(tmp_path / "m").classes_) == ["down", "sideways", "up"]
    said = pd.read_csv(tmp_path / "p.csv")
    assert list(said) == ["row", "y", "y=down", "y=up", "y_other", "drift"]
    p = said[["y=down", "y=up", "y_other"]].to_numpy()[60:]
    np.testing.assert_allclose(np.sum(p, axis=1), 1.0)
    assert np.max(p[:40, 2]) < 0.01 and np.mean(p[100:, 2][frame["y"][160:] == "sideways"]) > 0.5
    run(
        *command, "-o", tmp_path / "m", "-p", tmp_path / "p.csv", "--resume"
    )  # nothing new, and the same file
    result = run(*command, "-o", tmp_path / "m2", "--classes", "down,up")
    refused = int(np.sum(frame["y"] == "sideways"))
    assert len(re.findall("refused: it has the label 'sideways'", result.stderr)) == 20
    assert f"{refused} rows refused: {refused} × it has the label …, which is not one of" in result.stderr
    assert list(ig.load(tmp_path / "m2").classes_) == ["down", "up"]


def test_many_bad_rows_are_a_summary_and_an_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    bad = "".join(f"{i},oops{i}\n1e{75 + i % 9},1\nnan,1\n{i},-1e{200 + i % 99}\n" for i in range(5000))
    path.write_text("a,y\n" + bad)
    result = run(path, "-t", "y", "-o", tmp_path / "m", code=1)
    assert result.stderr.count("\n") < 30 and "20,000 rows refused: " in result.stderr
    for reason in ("'y' is …", "'a' is Ne+N, beyond Ne+N", "'a' is nan", "'y' is -Ne+N, beyond Ne+N"):
        assert f"5,000 × {reason}" in result.stderr
    assert "No model was made" in result.output


def test_drift_is_in_predictions_report_and_on_stderr(tmp_path: Path) -> None:
    shifted = TABLE.assign(y=Y + np.where(np.arange(N) >= 150, 5.0, 0.0))
    write(tmp_path / "s.csv", shifted)
    command = tmp_path / "s.csv", "-t", "y", "-o", tmp_path / "m", "-p", tmp_path / "p.csv", *OPTIONS
    result = run(*command, "--half-life", "auto", "--on-drift", "forget")
    rows = pd.read_csv(tmp_path / "p.csv").query("drift == 1")["row"].tolist()
    assert rows and 150 < rows[0] < 165 and f"drift at row {rows[0]}" in result.stderr
    assert re.search(r"drift alarms\W+\d, the last at row", result.output)
    model: Any = ig.load(tmp_path / "m")
    assert model.half_life == "auto" and model.on_drift == "forget" and model.drifts_[0] == rows[0]
    refused = run(*command, "--resume", "--half-life", "7", code=1)
    assert "half_life" in refused.output + refused.stderr


def test_a_file_that_grows_is_followed(tmp_path: Path) -> None:
    """Half a row is waited for; a signal ends it, and the model is that of the whole file."""
    path, lines = tmp_path / "s.csv", TABLE.to_csv(index=False).splitlines(keepends=True)
    path.write_text("".join(lines[:151]) + lines[151][:7])
    line = [path, "-t", "y", "-o", tmp_path / "m", "-p", tmp_path / "p.csv", *OPTIONS, "--follow"]
    call = [sys.executable, "-c", "from inducing.cli import main; main()", "stream", *map(str, line)]
    process = subprocess.Popen(call, stderr=subprocess.PIPE, stdout=subprocess.PIPE)

    def wait_for(rows: int) -> None:
        end = time.monotonic() + 90
        while not (tmp_path / "p.csv").exists() or (tmp_path / "p.csv").read_text().count("\n") < rows + 1:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.05)

    wait_for(150)
    with open(path, "a") as file:
        file.write(lines[151][7:] + "".join(lines[152:]))
    wait_for(N)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60) and process.returncode == 0
    assert ig.load(tmp_path / "m").n_rows_ == N
