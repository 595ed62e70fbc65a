"""Real tables, as people have them, through the command line and through Python: the same numbers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import inducing as ig
from inducing.cli import app

FOLDER = Path(os.environ.get("INDUCING_DATA", "nowhere")) / "tables"
TABLES = {  # target, columns to leave out
    "storms": ("wind", ["category"]),
    "gapminder": ("life_expectancy", []),
    "seattle-weather": ("weather", []),
    "cars": ("Miles_per_Gallon", []),
    "diamonds": ("price", []),
    "txhousing": ("median", []),
    "nassCDS": ("dead", []),
    "Chile": ("vote", []),
    "Wage": ("wage", ["logwage"]),
}


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the tables are not here: set INDUCING_DATA")
@pytest.mark.filterwarnings("ignore:left out of the inputs")
@pytest.mark.parametrize("name", TABLES)
def test_the_command_line_and_python_agree(tmp_path: Path, name: str) -> None:
    target, exclude = TABLES[name]
    table = pd.read_csv(FOLDER / f"{name}.csv.gz").sample(100, random_state=0)
    table.to_csv(tmp_path / "t.csv.gz", index=False)
    left_out = [word for column in exclude for word in ("--exclude", column)]
    options = ("-m", 8, "--max-iter", 2, "--test-fraction", 0, "--calendar", "day of year")
    said = run("fit", tmp_path / "t.csv.gz", "-t", target, "-o", tmp_path / "m.gp", *options, *left_out)
    assert all(column in said for column in table.columns if column not in (target, *exclude))
    run(
        "predict", tmp_path / "m.gp", tmp_path / "t.csv.gz", "-o", tmp_path / "out.parquet", "--allow-missing"
    )
    out = pd.read_parquet(tmp_path / "out.parquet")
    rows = table.drop(columns=exclude).dropna(subset=[target])
    X, y = rows.drop(columns=target), rows[target]
    left = X.columns[X.isna().all()]  # nothing in them, in so few rows
    missing = "use" if X.drop(columns=left).isna().any(axis=None) else "refuse"
    encoder = ig.TableEncoder(calendar=["day of year"])
    settings = dict(n_inducing=8, max_iter=2, random_state=0, encoder=encoder, missing=missing)
    columns = out.columns[len(table.columns) :]
    if y.dtype.kind in "fi":
        model = ig.SparseGPRegressor(**settings).fit(X, y)
        expected = np.column_stack(model.predict(table, return_std=True))
    else:
        model = ig.SparseGPClassifier(**settings).fit(pl.from_pandas(X), y)
        columns, expected = columns[1:], model.predict_proba(table)
    np.testing.assert_allclose(out[columns].to_numpy(float), expected, rtol=1e-12, atol=1e-12)


COLUMNS = {
    "number": st.floats(-1e6, 1e6).map(lambda v: round(v, 3)),
    "whole": st.integers(-(2**62), 2**62),
    "text": st.sampled_from(["a", "b, c", 'd "e"', "é"]),
    "truth": st.booleans(),
    "when": st.datetimes(pd.Timestamp("1800-01-01"), pd.Timestamp("2200-01-01")).map(
        lambda t: t.replace(microsecond=0)
    ),
}


def test_an_order_on_the_command_line_is_that_of_the_data_frame(tmp_path: Path) -> None:
    rng, order = np.random.default_rng(0), ["S", "M", "X=L"]
    table = pd.DataFrame({"size": rng.choice(order, 30), "x": np.arange(30.0)})
    table["y"] = table["x"] + 5.0 * table["size"].map(order.index)
    table.to_csv(tmp_path / "t.csv", index=False)
    frame = table.assign(size=pd.Categorical(table["size"], categories=order, ordered=True))
    frame.to_parquet(tmp_path / "t.parquet")
    options = ("-t", "y", "-m", 5, "--max-iter", 5, "--test-fraction", 0)
    run("fit", tmp_path / "t.csv", "-o", tmp_path / "a.gp", *options, "--category", "size=S<M<X=L")
    run("fit", tmp_path / "t.parquet", "-o", tmp_path / "b.gp", *options)
    model = ig.SparseGPRegressor(n_inducing=5, max_iter=5, random_state=0).fit(
        frame[["size", "x"]], frame["y"]
    )
    for path in ("a.gp", "b.gp"):
        loaded = ig.load(tmp_path / path)
        np.testing.assert_allclose(loaded.predict(frame), model.predict(frame), rtol=1e-12, atol=1e-12)


@given(st.data())
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_csv_parquet_and_data_frames_give_the_same_model(tmp_path: Path, data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4, unique=True))
    table = pd.DataFrame(
        {kind: data.draw(st.lists(COLUMNS[kind], min_size=12, max_size=12)) for kind in kinds}
    )
    table["x"] = np.arange(12.0)  # no two rows are equal
    table["y"] = np.sin(table["x"])
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_csv(tmp_path / "t.tsv.gz", index=False, sep="\t")
    table.to_parquet(tmp_path / "t.parquet")
    X, found = table.drop(columns="y"), {}
    for name in ("t.csv", "t.tsv.gz", "t.parquet"):
        options = ("-m", 3, "--max-iter", 2, "--test-fraction", 0)
        run("fit", tmp_path / name, "-t", "y", "-o", tmp_path / "m", *options)
        found[name] = ig.load(tmp_path / "m")
    for name, frame in {"pandas": X, "Polars": pl.from_pandas(X)}.items():
        found[name] = ig.SparseGPRegressor(n_inducing=3, max_iter=2, random_state=0).fit(frame, table["y"])
    first = found.pop("t.csv")
    for name, model in found.items():
        assert model.encoder_.columns_ == first.encoder_.columns_, name
        np.testing.assert_allclose(model.predict(X), first.predict(X), rtol=1e-12, atol=1e-12, err_msg=name)
