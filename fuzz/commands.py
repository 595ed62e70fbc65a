"""Command lines: whatever the options, exit code 0, 1 or 2, one line of error, and no file lost."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from typer.testing import CliRunner

from inducing.cli import app

NUMBER = st.sampled_from(["-1", "0", "1", "3", "1e9", "nan", "x", "", "0.5", "10**9"])
FILES = [
    "t.csv",
    "m",
    "link",
    "br[1].csv",
    "empty.csv",
    "text.csv",
    "none",
    ".",
    "/",
    "*.csv",
    "",
    "-",
    "out.csv",
    "nowhere/x",
]
NAME = st.sampled_from(FILES)
OPTION = st.one_of(
    st.tuples(
        st.sampled_from(
            [
                "--seed",
                "-m",
                "--max-iter",
                "--test-fraction",
                "--restarts",
                "--warmup",
                "--n-inducing",
                "--save-rows",
                "--skip",
                "--noise",
                "--quantiles",
            ]
        ),
        NUMBER,
    ),
    st.tuples(st.sampled_from(["-o", "--checkpoint", "-p"]), NAME),
    st.tuples(
        st.sampled_from(
            [
                "--target",
                "--exclude",
                "--task",
                "--kernel",
                "--approximation",
                "--likelihood",
                "--inducing",
                "--classes",
                "--format",
                "--basis",
            ]
        ),
        st.sampled_from(
            [
                "y",
                "a",
                "b",
                "zz",
                "",
                "fitc",
                "vfe",
                "regression",
                "classification",
                "RBF",
                "poisson",
                "csv",
                "a,b",
                "é",
            ]
        ),
    ),
    st.tuples(st.sampled_from(["--drop-missing", "--resume", "--strict", "--allow-unseen", "--help"])),
)
CASES = st.tuples(
    st.sampled_from(["fit", "predict", "inspect", "stream", "stream", "fit"]),
    st.lists(NAME, min_size=0, max_size=2),
    st.lists(OPTION, max_size=4),
)
FOUND: list[Any] = [
    ("fit", ["t.csv"], [("-o", "t.csv")]),
    ("stream", ["t.csv"], [("-p", "t.csv")]),
    ("fit", ["t.csv"], [("--seed", "-1")]),
    ("fit", ["br[1].csv"], []),
    ("fit", ["br[1].csv"], [("-o", "t.csv")]),
]


@cache
def model() -> bytes:
    import inducing as ig

    X = np.linspace(0, 1, 30)[:, None]
    with tempfile.TemporaryDirectory() as folder:
        fitted = ig.SparseGPRegressor(n_inducing=3, max_iter=1, random_state=0).fit(X, np.sin(X[:, 0]))
        fitted.save(Path(folder) / "m", {"target": "y", "encoder": {"columns": ["a"], "categories": {}}})
        return (Path(folder) / "m").read_bytes()


def check(case: tuple[str, list[str], list[tuple[str, ...]]]) -> None:
    command, names, options = case
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = "".join(f"{i / 30},{np.sin(i / 5):.5f}\n" for i in range(30))
        for file in ("t.csv", "br[1].csv"):
            (folder / file).write_text("a,y\n" + rows)
        (folder / "empty.csv").write_text("")
        (folder / "text.csv").write_text("a,y\n" + "x,1\ny,2\n" * 5)
        (folder / "m").write_bytes(model())
        (folder / "link").symlink_to(folder / "t.csv")
        kept = {file: (folder / file).read_bytes() for file in ("t.csv", "br[1].csv", "text.csv")}

        def at(text: str) -> str:
            return str(folder / text) if text in FILES and text not in ("", "-", "/") else text

        # a whole disk as a table is another case on every machine: this folder, which has no parquet, instead
        words = [command, *(name if text == "/" else at(text) for text in names)]
        given = {option[0] for option in options}
        words += [at(word) for option in options for word in option]
        if command in ("fit", "stream") and "--target" not in given:
            words += ["--target", "y"]
        if command in ("fit", "stream", "predict") and "-o" not in given:
            words += ["-o", str(folder / "out.csv")]
        words += {
            "fit": ["-m", "3", "--max-iter", "1"],
            "stream": ["--warmup", "10", "--n-inducing", "3"],
        }.get(command, [])
        result = CliRunner().invoke(app, words, input="")
        assert result.exit_code in (0, 1, 2), (words, result.exit_code)
        unexpected = result.exception is not None and not isinstance(result.exception, SystemExit)
        assert not unexpected, (words, repr(result.exception))
        if result.exit_code == 1:
            last = result.stderr.strip().splitlines()
            assert last and (last[-1].startswith("inducing:") or "refused" in result.stderr), (
                words,
                result.stderr,
            )
        targets = {"link": "t.csv"}
        read = {targets.get(text, text) for text in names}
        written = {targets.get(word, word) for option in options for word in option[1:]} - read
        for file, content in kept.items():  # but what the user names for output, and does not read
            assert file in written or (folder / file).read_bytes() == content, (words, file)
