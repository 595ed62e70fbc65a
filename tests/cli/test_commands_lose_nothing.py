"""Commands that lose nothing: not the table, not the model after Ctrl-C or a metric that fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import inducing as ig
from inducing import progress
from inducing.cli import app
from inducing.errors import ParameterError

X = np.random.default_rng(2).uniform(-2, 2, (60, 2)).round(4)
TABLE = pd.DataFrame(X, columns=["a", "b"]).assign(y=np.sin(X[:, 0]).round(4))
QUICK = ("-m", "5", "--max-iter", "2")


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m"
    fitted = ig.SparseGPRegressor(n_inducing=5, max_iter=2, random_state=0).fit(TABLE[["a", "b"]], TABLE["y"])
    fitted.save(path, {"target": "y"})
    return path


def test_no_command_writes_over_what_it_reads(table: Path, model: Path) -> None:
    before, held = table.read_bytes(), model.read_bytes()
    link = table.with_name("link.csv")
    os.symlink(table, link)
    for command in (
        ("fit", table, "-t", "y", "-o", table, *QUICK),
        ("fit", table, "-t", "y", "-o", link, *QUICK),
        ("fit", link, "-t", "y", "-o", table, *QUICK),
        ("fit", table, "-t", "y", "-o", table.with_name("m"), "--checkpoint", table, *QUICK),
        ("predict", model, table, "-o", table),
        ("predict", model, table, "-o", link),
        ("predict", model, table, "-o", model),
        ("compare", table, "-t", "y", "--csv", table),
        ("stream", table, "-t", "y", "-o", table.with_name("s"), "-p", link),
    ):
        result = run(*command)
        assert result.exit_code == 1 and "would be written over" in result.stderr, command
        assert len(result.stderr.splitlines()) == 1
    assert table.read_bytes() == before and model.read_bytes() == held


def test_no_command_writes_over_a_pipe_or_a_device(table: Path, model: Path) -> None:
    pipe = table.with_name("pipe")
    os.mkfifo(pipe)
    for command in (
        ("fit", table, "-t", "y", "-o", pipe, *QUICK),
        ("predict", model, table, "-o", pipe),
        ("export", model, "--to", "c", "-o", pipe),
        ("stream", table, "-t", "y", "-o", table.with_name("s"), "-p", pipe),
    ):
        result = run(*command)
        assert result.exit_code == 2 and "a pipe or a device; name a file" in _words(result.stderr), command
    assert pipe.is_fifo()


def test_a_folder_that_cannot_be_written_is_known_before_a_fit(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    result = run("fit", table, "-t", "y", "-o", table.with_name("m"), *QUICK)
    assert result.exit_code == 2 and "cannot be written" in _words(result.stderr)


def _words(text: str) -> str:
    """Text without the frame that a box around it is."""
    return " ".join(text.replace("│", " ").split())


def test_names_of_a_stranger_do_not_command_the_terminal(tmp_path: Path) -> None:
    names = ["a\x1b]0;owned\x07", "b\x9b31m"]
    fitted = ig.SparseGPRegressor(n_inducing=5, optimize=None).fit(pd.DataFrame(X, columns=names), TABLE["y"])
    fitted.save(tmp_path / "m", {"target": "y\x1b[2J"})
    result = run("inspect", tmp_path / "m")
    assert result.exit_code == 0 and "\\x1b]0;owned\\x07" in result.stdout and "y\\x1b[2J" in result.stdout
    assert not any(c in result.stdout for c in "\x1b\x07\x9b")


def test_a_file_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "br[1].csv", index=False)
    result = run("fit", tmp_path / "br[1].csv", "-t", "y", "-o", tmp_path / "m", *QUICK)
    assert result.exit_code == 0, result.stderr
    assert ig.load(tmp_path / "m").n_features_in_ == 2


@pytest.mark.filterwarnings("default")
def test_a_metric_that_fails_does_not_cost_the_model(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("no spread")

    monkeypatch.setattr("inducing.metrics.Scores.of", broken)
    result = run("fit", table, "-t", "y", "-o", table.with_name("m"), *QUICK)
    assert result.exit_code == 0 and "cannot be scored: no spread" in result.stderr
    assert ig.load(table.with_name("m")).n_features_in_ == 2


def test_a_density_can_be_inspected(tmp_path: Path) -> None:
    ig.GPDensity().fit(X).save(tmp_path / "d")
    result = run("inspect", tmp_path / "d")
    assert result.exit_code == 0 and "GPDensity" in result.output


def test_seeds_below_zero_are_refused(table: Path) -> None:
    for command in (("fit", table, "-t", "y", "-o", table.with_name("m")), ("demo",), ("watch",)):
        assert run(*command, "--seed", "-1").exit_code == 2
    with pytest.raises(ParameterError, match="random_state must be a seed from 0 on, not -1"):
        ig.SparseGPRegressor(random_state=-1, max_iter=1).fit(X, X[:, 0])


def test_no_threads_is_one_sentence() -> None:
    command = [sys.executable, "-m", "inducing.cli", "fit", "nothing.csv", "-t", "y", "-o", "m"]
    command = [
        sys.executable,
        "-c",
        "from inducing.cli.app import main; from inducing import cli; main()",
        *command[3:],
    ]
    done = subprocess.run(
        command, env=os.environ | {"NUMBA_NUM_THREADS": "0"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "NUMBA_NUM_THREADS is '0'" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("at", [0, 1, 4])
def test_ctrl_c_ends_every_stage_and_leaves_a_model(at: int) -> None:
    """A signal before the first iteration, at the first, or in the middle: few iterations follow it."""
    seen: list[int] = []

    def tell(iteration: int, value: float) -> None:
        seen.append(iteration)
        if len(seen) == at:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with progress.stop_on_interrupt():
        if at == 0:
            os.kill(os.getpid(), signal.SIGINT)
        fitted = ig.SparseGPRegressor(n_inducing=10, max_iter=200, random_state=0, progress=tell).fit(
            X, X[:, 0]
        )
    assert signal.getsignal(signal.SIGINT) is before and not progress.stop_asked()
    assert len(seen) <= at + 1 and np.all(np.isfinite(fitted.predict(X)))
    assert "interrupted" in fitted.fit_result_.message and not fitted.fit_result_.converged


def test_ctrl_c_twice_gives_up(request: pytest.FixtureRequest) -> None:
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # workers of a test run may ignore it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, usual))
    with pytest.raises(KeyboardInterrupt), progress.stop_on_interrupt():
        for _ in range(2):  # any thread may get a signal, and two that wait at once are one
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(500):
                time.sleep(0.01)
                if progress.stop_asked():
                    break
        time.sleep(5.0)
    assert not progress.stop_asked()


KILLED = """
import os, signal, sys, threading, time
from inducing.cli.app import main
from inducing import cli
threading.Timer(float(sys.argv.pop(1)), lambda: os.kill(os.getpid(), signal.SIGINT)).start()
main()
"""


def test_ctrl_c_of_the_command_saves_the_best_so_far(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).uniform(-2, 2, (3000, 4))
    names = pd.DataFrame(rows, columns=list("abcd")).assign(y=np.sin(rows.sum(axis=1)))
    names.to_csv(tmp_path / "t.csv", index=False)
    command = ["fit", str(tmp_path / "t.csv"), "-t", "y", "-o", str(tmp_path / "m"), "-m", "200"]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, "6", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "ending early" in done.stderr, done.stderr
    assert ig.load(tmp_path / "m").n_features_in_ == 4
