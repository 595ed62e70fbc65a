"""The commands from table to model to predictions, and what they say when something is wrong."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import inducing as ig
from inducing.cli import app
from inducing.files import models as model_files
from inducing.sources import tables


def run(*arguments, code=0):
    """Run a command and check its exit code; an error is one line on stderr, without a traceback."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    if code == 1:
        assert result.stderr.startswith("inducing: error: ") and result.stderr.count("\n") == 1
    return result


def make_table(n=150, seed=0):
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(-2, 2, n), rng.uniform(0, 10, n)
    colour = rng.choice(["red", "green", "blue"], n)
    y = 5 + np.sin(2 * x) + 0.1 * z + 2 * (colour == "red") + rng.normal(0, 0.1, n)
    return pd.DataFrame({"x": x, "z": z, "colour": colour, "y": y})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table as CSV and parquet, and a model fitted to it."""
    folder = tmp_path_factory.mktemp("cli")
    table = make_table()
    table.to_csv(folder / "train.csv", index=False)
    table.astype({"colour": "category"}).to_parquet(folder / "train.parquet")
    run("fit", folder / "train.csv", "--target", "y", "--out", folder / "model", *QUICK)
    return folder


QUICK = ("--n-inducing", 15, "--max-iter", 200)


def predictions(folder, table, name="queries.csv", *options):
    (table.to_parquet if name.endswith("parquet") else table.to_csv)(folder / name, index=False)
    run("predict", folder / "model", folder / name, "--out", folder / f"out-{name}", *options)
    return (pd.read_parquet if name.endswith("parquet") else pd.read_csv)(folder / f"out-{name}")


def test_fit_reports_rows_and_held_out_metrics(folder):
    result = run(
        "fit", folder / "train.csv", "-t", "y", "-o", folder / "again", *QUICK, "--test-fraction", 0.2
    )
    for words in (
        "training rows",
        "120",
        "held-out rows",
        "30",
        "3 columns, 5 features",
        "SMSE",
        "MSLL",
        "coverage",
    ):
        assert words in result.output
    held_out = ig.load(folder / "again").metadata_["held_out"]
    assert held_out["SMSE"] < 0.1 and held_out["MSLL"] < -1


def test_all_rows_are_trained_on_when_none_are_held_out(folder):
    result = run("fit", folder / "train.csv", "-t", "y", "-o", folder / "whole", *QUICK, "--test-fraction", 0)
    assert "150" in result.output and "SMSE" not in result.output


def test_predictions_are_close_calibrated_and_keep_the_table(folder):
    table = make_table(seed=1)
    out = predictions(folder, table)
    pd.testing.assert_frame_equal(out[table.columns], table)
    error = out["y_mean"] - table["y"]
    assert np.sqrt(np.mean(error**2)) < 0.25
    assert 0.8 < np.mean(np.abs(error) < 2 * out["y_std"]) <= 1


@pytest.mark.parametrize("name", ["queries.csv", "queries.tsv", "queries.parquet"])
def test_columns_are_matched_by_name(folder, name):
    table = make_table(20, seed=1)
    expected = predictions(folder, table)
    shuffled = table[["colour", "z", "x"]].assign(comment="kept")
    if name.endswith("tsv"):
        shuffled.to_csv(folder / name, sep="\t", index=False)
        run("predict", folder / "model", folder / name, "--out", folder / "out.csv")
        out = pd.read_csv(folder / "out.csv")
    else:
        out = predictions(folder, shuffled, name)
    np.testing.assert_allclose(out[["y_mean", "y_std"]], expected[["y_mean", "y_std"]], rtol=1e-9)
    assert (out["comment"] == "kept").all()


def test_csv_and_parquet_give_the_same_model(folder):
    run("fit", folder / "train.parquet", "-t", "y", "-o", folder / "parquet-model", *QUICK)
    one, two = ig.load(folder / "model"), ig.load(folder / "parquet-model")
    assert one.encoder_.to_json() == two.encoder_.to_json()
    assert one.log_evidence_ == pytest.approx(two.log_evidence_, rel=1e-8)


def test_the_encoder_travels_in_the_model(folder):
    encoder = ig.load(folder / "model").encoder_
    assert json.loads(json.dumps(encoder.to_json())) == encoder.to_json()
    assert encoder.inputs == ("x", "z", "colour")
    assert encoder.columns_[2].levels == ("blue", "green", "red")


@pytest.mark.filterwarnings("default::inducing.errors.InducingWarning")
def test_unseen_categories_are_named_unless_allowed(folder):
    table = make_table(5, seed=2).assign(colour="mauve")
    table.to_csv(folder / "unseen.csv", index=False)
    result = run("predict", folder / "model", folder / "unseen.csv", "-o", folder / "unseen-out.csv", code=1)
    assert "'colour'" in result.stderr and "'mauve'" in result.stderr
    assert not (folder / "unseen-out.csv").exists()
    names = folder / "model", folder / "unseen.csv", "-o", folder / "unseen-out.csv"
    told = run("predict", *names, "--allow-unseen").stderr
    assert "inducing: warning: 5 row(s) of 'colour' hold levels not seen before, 'mauve'" in told
    assert pd.read_csv(folder / "unseen-out.csv")["y_mean"].notna().all()


def test_missing_values_in_fitting_are_counted_and_dropped_only_when_told(folder):
    table = make_table()
    table.loc[:3, "x"] = np.nan
    table.loc[3:5, "colour"] = None
    table.loc[9, "y"] = np.nan
    table.to_csv(folder / "gaps.csv", index=False)
    command = "fit", folder / "gaps.csv", "-t", "y", "-o", folder / "gaps-model", *QUICK, "--test-fraction", 0
    result = run(*command)
    assert "6 of 150 rows have gaps in their inputs" in result.output
    assert "Left out 1 of 150 rows, which have missing values in the target" in result.output
    model = ig.load(folder / "gaps-model")
    assert model.missing == "use" and model.n_rows_ == 149
    run("predict", folder / "gaps-model", folder / "gaps.csv", "-o", folder / "gaps-out.parquet")
    out = pd.read_parquet(folder / "gaps-out.parquet")
    np.testing.assert_allclose(out["y_mean"], model.predict(table.drop(columns="y")), rtol=1e-9, atol=1e-9)
    assert "It looks most at" in run("inspect", folder / "gaps-model").output
    run("plot", folder / "gaps-model", "-o", folder / "gaps.png")
    result = run(*command, "--drop-missing")
    assert "Left out 7 of 150 rows" in result.output and "143" in result.output


def test_missing_inputs_of_predictions_stay_empty_when_allowed(folder):
    table = make_table(6, seed=3)
    table.loc[2, "z"] = np.nan
    table.to_csv(folder / "holes.csv", index=False)
    command = "predict", folder / "model", folder / "holes.csv", "-o", folder / "holes-out.csv"
    assert "1 of 6 rows have missing values, in z (1)" in run(*command, code=1).stderr
    out = predictions(folder, table, "holes.csv", "--allow-missing")
    assert out["y_mean"].isna().tolist() == [False, False, True, False, False, False]
    full = predictions(folder, table.drop(index=2))
    np.testing.assert_allclose(out["y_mean"].dropna(), full["y_mean"], rtol=1e-9)


TABLE = make_table(60)
BAD_TABLES = {
    "strays": (TABLE.assign(z=["?"] + ["1.5", "2"] * 29 + ["low"]), "but also '?' (1 rows), 'low' (1 rows)"),
    "several": (TABLE.assign(z=np.inf, y=["a"] + ["1"] * 59), "2 columns cannot be used: column 'y' holds"),
    "target": (
        TABLE.rename(columns={"y": "other"}),
        "no column 'y'; its columns are 'x', 'z', 'colour', 'other'",
    ),
    "words": (TABLE.assign(y="high"), "'y' is high in every row"),
    "constant": (TABLE.assign(y=3.0), "'y' is 3 in every row"),
    "infinite": (TABLE.assign(z=np.inf), "'z' holds 60 infinite"),
    "no inputs": (TABLE[["y"]], "no columns to use as inputs"),
    "one row": (TABLE[:1], "there is nothing to fit"),
    "two rows": (TABLE[:2], "1 of 2 rows are left to train on"),
    "nothing": (TABLE.assign(y=np.nan), "'y' holds no values at all"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_tables_that_cannot_be_fitted_are_refused_in_one_line(tmp_path, name):
    table, message = BAD_TABLES[name]
    table.to_parquet(tmp_path / "t.parquet")
    assert message in run("fit", tmp_path / "t.parquet", "-t", "y", "-o", tmp_path / "model", code=1).stderr
    assert not (tmp_path / "model").exists()


def test_a_column_can_be_left_out(folder):
    make_table(60).assign(id=[f"row{i}" for i in range(60)]).to_csv(folder / "ids.csv", index=False)
    command = "fit", folder / "ids.csv", "-t", "y", "-o", folder / "ids-model", *QUICK
    run(*command, "--exclude", "id", "--exclude", "z")
    assert ig.load(folder / "ids-model").encoder_.inputs == ("x", "colour")
    assert "no column 'nothing'" in run(*command, "--exclude", "nothing", code=1).stderr
    assert "both the target and excluded" in run(*command, "--exclude", "y", code=1).stderr


def test_empty_and_absent_files_are_named(tmp_path):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("x,y\n")
    for name, message in [
        ("empty.csv", "is empty"),
        ("header.csv", "no rows"),
        ("no.csv", "There is no file"),
    ]:
        assert message in run("fit", tmp_path / name, "-t", "y", "-o", tmp_path / "m", code=1).stderr


@pytest.mark.parametrize("command", ["predict", "inspect"])
def test_models_that_cannot_be_read_are_refused_in_one_line(folder, tmp_path, command):
    whole = (folder / "model").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "noise").write_bytes(b"\x00\x01not a model" * 10)
    (tmp_path / "empty").write_bytes(b"")
    rest = (folder / "train.csv", "-o", tmp_path / "out.csv") if command == "predict" else ()
    for name in ("cut", "noise", "empty", "absent"):
        run(command, tmp_path / name, *rest, code=1)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_a_csv_file_is_predicted_block_by_block(folder, monkeypatch, name):
    """In blocks of 300 bytes the same as at once, also where a later block has a wider type."""
    table = pd.read_csv(folder / "train.csv").drop(columns="y")
    table["note"] = ["1"] * (len(table) - 1) + ["x"]
    whole = predictions(folder, table, name)
    monkeypatch.setattr(tables, "BLOCK", 300)
    pd.testing.assert_frame_equal(predictions(folder, table, name), whole)
    assert (folder / f"out-{name}").read_bytes().startswith(b"\x1f\x8b") == name.endswith("gz")


def test_gaps_of_a_table_in_parts_are_used_and_counted(folder, monkeypatch):
    """A file of many rows with gaps: none is dropped but those without a target; predictions have no gaps."""
    monkeypatch.setattr(tables, "MANY_ROWS", 100)
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200)})
    table["y"] = truth = np.sin(table["a"]) + table["b"]
    table.loc[::5, "a"] = np.nan
    table["y"] = truth.where(~truth.index.isin([3, 4, 5, 6]))
    table.to_csv(folder / "gaps.csv.gz", index=False)
    options = ("-m", 10, "--max-iter", 5, "--full-iter", 1, "--test-fraction", 0)
    said = run("fit", folder / "gaps.csv.gz", "-t", "y", "-o", folder / "gaps", *options).output
    assert "Values are missing in a (40), y (4)" in said and "196" in said
    model = ig.load(folder / "gaps")
    assert model.kinds_.way == "variances"
    run("predict", folder / "gaps", folder / "gaps.csv.gz", "-o", folder / "gaps.parquet")
    mean = pd.read_parquet(folder / "gaps.parquet")["y_mean"]
    np.testing.assert_allclose(mean, model.predict(table.drop(columns="y")), rtol=0, atol=1e-11)
    wrong, known = np.square(mean - truth), table["a"].notna()
    assert np.mean(wrong[known]) ** 0.5 < 0.02  # there is no noise
    assert np.mean(wrong[~known]) ** 0.5 < 0.75  # sin a, which nobody knows there, has 0.68


def test_gaps_of_classes_in_parts_are_used(folder, monkeypatch):
    """A file of many rows with gaps gives the model that the same rows in memory give, in Python."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200)})
    table["kind"] = np.where(table["a"] + 0.3 * table["b"] > 0, "up", "down")
    table.loc[::5, "b"] = np.nan
    table.to_parquet(folder / "kinds.parquet")
    options = ("-m", 8, "--max-iter", 5, "--test-fraction", 0)
    monkeypatch.setattr(tables, "MANY_ROWS", 100)
    said = run("fit", folder / "kinds.parquet", "-t", "kind", "-o", folder / "kinds", *options).output
    assert "Values are missing in b (40)" in said and "training rows" in said
    model = ig.load(folder / "kinds")
    assert model.kinds_.way == "variances" and model.n_rows_ == 200
    p = model.predict_proba(table[["a", "b"]])
    assert np.mean((p[:, 1] > 0.5) == (table["kind"] == "up")) > 0.85
    whole = table[["a", "b"]].notna().all(axis=1)
    assert np.abs(p[~whole, 1] - 0.5).mean() < np.abs(p[whole, 1] - 0.5).mean()  # less is known of gaps
    run("predict", folder / "kinds", folder / "kinds.parquet", "-o", folder / "said.parquet")
    np.testing.assert_allclose(pd.read_parquet(folder / "said.parquet")["kind=up"], p[:, 1], rtol=1e-9)


def test_predictions_never_overwrite_a_column(folder):
    make_table(5).assign(y_mean=1.0).to_csv(folder / "taken.csv", index=False)
    result = run("predict", folder / "model", folder / "taken.csv", "-o", folder / "taken-out.csv", code=1)
    assert "'y_mean' already" in result.stderr


def test_a_model_of_a_data_frame_knows_its_columns_and_one_of_an_array_says_so(tmp_path):
    table = make_table(40)[["x", "z", "y"]]
    table.to_csv(tmp_path / "t.csv", index=False)
    fitted = ig.SparseGPRegressor(n_inducing=5, max_iter=3).fit(table[["x", "z"]], table["y"])
    fitted.save(tmp_path / "frame")
    run("predict", tmp_path / "frame", tmp_path / "t.csv", "-o", tmp_path / "out.csv")
    np.testing.assert_allclose(
        pd.read_csv(tmp_path / "out.csv")["y_mean"], fitted.predict(table[["x", "z"]]), rtol=1e-9
    )
    ig.SparseGPRegressor(n_inducing=5, max_iter=3).fit(table[["x", "z"]].to_numpy(), table["y"]).save(
        tmp_path / "array"
    )
    result = run("predict", tmp_path / "array", tmp_path / "t.csv", "-o", tmp_path / "out2.csv", code=1)
    assert "knows no column names" in result.stderr


def test_inspect_names_inputs_noise_basis_and_evidence(folder):
    output = run("inspect", folder / "model").output
    for words in (
        "target",
        "15 Multiscale",
        "log evidence",
        "noise std",
        "RBF",
        "colour=red",
        "lengthscale",
        "KiB",
        "SMSE",
    ):
        assert words in output


def test_names_are_printed_as_they_are(folder):
    make_table(60).rename(columns={"x": "width [m]"}).to_csv(folder / "units.csv", index=False)
    run("fit", folder / "units.csv", "-t", "y", "-o", folder / "units", *QUICK)
    assert "width [m]" in run("inspect", folder / "units").output


def test_models_of_several_targets_are_for_python(folder, tmp_path):
    table = make_table(30)[["x", "z"]]
    ig.SparseGPRegressor(n_inducing=5, max_iter=1).fit(table[["x"]], table[["x", "z"]]).save(tmp_path / "two")
    apart = ig.SparseGPRegressor(n_inducing=5, max_iter=1, outputs="independent")
    apart.fit(table[["x"]], table[["x", "z"]]).save(tmp_path / "apart")
    model_files.save(ig.load(folder / "model").posterior_, tmp_path / "posterior")
    for name in ("two", "apart", "posterior"):
        assert "no model of one target" in run("inspect", tmp_path / name, code=1).stderr


@pytest.mark.parametrize("kernel, basis", [("matern32", "points"), ("rbf", "multiscale")])
def test_other_kernels_and_bases(folder, kernel, basis):
    run(
        "fit",
        folder / "train.csv",
        "-t",
        "y",
        "-o",
        folder / "other",
        *QUICK,
        "--kernel",
        kernel,
        "--basis",
        basis,
    )
    output = run("inspect", folder / "other").output
    assert kernel in output.lower() and basis in output.lower()


@pytest.mark.parametrize(
    "option", [("--kernel", "nothing"), ("--approximation", "nothing"), ("--basis", "nothing")]
)
def test_unknown_names_are_refused(folder, option):
    assert (
        "nothing"
        in run("fit", folder / "train.csv", "-t", "y", "-o", folder / "unknown", *option, code=1).stderr
    )


def test_an_approximation_that_needs_its_data_is_refused_before_the_fit(folder):
    result = run(
        "fit", folder / "train.csv", "-t", "y", "-o", folder / "pic", "--approximation", "pic", code=1
    )
    assert "which 'pic' needs" in result.stderr


BAD_USAGE = [
    ("fit",),
    ("fit", "t.csv", "--target", "y"),
    ("fit", "t.csv", "--target", "y", "--out", "m", "--n-inducing", "0"),
    ("fit", "t.csv", "--target", "y", "--out", "m", "--test-fraction", "1.5"),
    ("fit", "t.csv", "--target", "y", "--out", "no/such/folder/m"),
    ("predict", "m"),
    ("unknown",),
]


@pytest.mark.parametrize("arguments", BAD_USAGE, ids=" ".join)
def test_bad_usage_exits_with_two(arguments):
    run(*arguments, code=2)


def test_demo_prints_metrics_and_draws_a_picture(tmp_path):
    result = run("demo", "--out", tmp_path / "demo.png")
    assert "SMSE" in result.output and "coverage" in result.output and "demo.png" in result.output
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in tmp_path.iterdir()] == ["demo.png"]


def test_demo_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("demo", "--out", tmp_path / "demo.png")
    assert "SMSE" in result.output and "pip install 'inducing[plot]'" in result.output
    assert not (tmp_path / "demo.png").exists()


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
@pytest.mark.parametrize(
    "command", [["--help"], ["fit", "--help"], ["--version"], ["inspect"], ["predict"]], ids=" ".join
)
def test_output_that_nobody_reads_ends_a_command_silently(folder, command):
    """As by SIGPIPE: what `inducing ... | head -1` may meet, whether Typer, Rich or a command prints."""
    model, table, unread = (str(folder / name) for name in ("model", "train.csv", "unread.csv"))
    more = {"inspect": [model], "predict": [model, table, "--out", unread]}
    command = [*command, *more.get(command[0], [])]
    read, write = os.pipe()
    os.close(read)
    python = [sys.executable, "-c", "from inducing.cli import main; main()"]
    ended = subprocess.run([*python, *command], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")
    assert command[0] != "predict" or len(pd.read_csv(folder / "unread.csv")) == 150


def test_help_is_quick_because_nothing_heavy_is_imported():
    code = "import sys, inducing.cli; print({'numpy', 'pandas', 'sklearn', 'numba'} & set(sys.modules))"
    python = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert python.stdout.strip() == "set()"
    assert "fit" in CliRunner().invoke(app, ["--help"]).output


def test_version():
    assert ig.__version__ in run("--version").output


@pytest.mark.parametrize("columns", [None, [1]])
def test_inspect_says_what_a_model_looks_at_whatever_its_kernel(tmp_path, columns):
    X = np.random.default_rng(0).normal(size=(40, 2))
    kernel = ig.kernels.Linear(1.0) if columns is None else ig.kernels.Linear(1.0, columns=columns)
    model = ig.SparseGPRegressor(kernel, approximation="exact", random_state=0)
    model.fit(pd.DataFrame(X, columns=["a", "b"]), X[:, 1]).save(tmp_path / "m.gp")
    told = run("inspect", tmp_path / "m.gp").output
    assert "Kernel Linear" in told and "lengthscale" not in told
    assert "It looks most at b." in told and "next to nothing from a." in told  # y is b


def test_inspect_speaks_in_words_and_the_report_survives(folder):
    table = make_table(80).assign(flat=7.0, when=pd.date_range("2020-01-01", periods=80, freq="h"))
    table.to_csv(folder / "words.csv", index=False)
    run("fit", folder / "words.csv", "-t", "y", "-o", folder / "words", *QUICK)
    model = ig.load(folder / "words")
    assert isinstance(model.report_, ig.Diagnosis) and model.n_rows_ == 72
    output = run("inspect", folder / "words").output
    assert "predicts y from 5 columns, learned from 72 rows" in output and "of the variance of y" in output
    assert all(sentence.split(":")[0][:40] in output for sentence in model.report_.advice)
    lines = [line for line in output.splitlines() if line.startswith("│")]
    assert "flat" in lines[-1] and "constant" in lines[-1]  # after all that matter
    when = next(line for line in lines if "when" in line)
    assert any(unit in when for unit in ("hours", "days", "years", "minutes"))


@pytest.mark.parametrize("kind", ["slices", "map", "relevance", "calibration", "residuals"])
def test_a_model_is_drawn(folder, tmp_path, kind):
    table = () if kind in ("slices", "map", "relevance") else ("--table", folder / "train.csv")
    output = run("plot", folder / "model", "--kind", kind, *table, "-o", tmp_path / "p.png").output
    assert "Picture:" in output and (tmp_path / "p.png").stat().st_size > 5_000


def test_pictures_that_cannot_be_drawn_are_refused_in_one_line(folder, tmp_path):
    command = "plot", folder / "model", "-o", tmp_path / "p.png", "--kind"
    assert "needs rows with y: pass X and y, or --table" in run(*command, "residuals", code=1).stderr
    assert "must be one of slices, map" in run(*command, "cubes", code=1).stderr
    assert not (tmp_path / "p.png").exists()


def test_surprising_rows_have_the_numbers_of_the_table(folder, tmp_path):
    table = make_table(80)
    table.loc[[0, 3], "y"] = np.nan  # left out, and so are the rows that are held out
    table.loc[61, "y"] += 50.0
    table.to_csv(tmp_path / "t.csv", index=False)
    for seed in range(3):
        run("fit", tmp_path / "t.csv", "-t", "y", "-o", tmp_path / "m", *QUICK, "--seed", seed)
        surprises = ig.load(tmp_path / "m").report_.surprises
        assert len(surprises) == 10
        assert all(seen == pytest.approx(table["y"][row], rel=1e-9) for row, seen, _, _ in surprises)


def test_inspect_looks_at_what_the_mean_does_not_at_lengthscales(tmp_path):
    """Of a sum, the part with the shortest lengthscale may have next to no variance."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(-2, 2, (60, 2)), columns=["strong", "weak"])
    kernel = ig.kernels.RBF(4.0, 9.0, columns=[0]) + ig.kernels.RBF(0.05, 1e-8, columns=[1])
    model = ig.SparseGPRegressor(kernel, approximation="exact", optimize=None).fit(X, X["strong"] ** 2)
    model.save(tmp_path / "m.gp")
    told = run("inspect", tmp_path / "m.gp").output
    assert "It looks most at strong." in told and "next to nothing from weak." in told
    assert "lengthscale 4" not in told.split("Kernel")[1].splitlines()[0]  # the table has it, in units


def test_a_category_is_one_input_in_words_and_a_long_table_is_cut(tmp_path):
    rng = np.random.default_rng(0)
    level = np.arange(200) % 40
    table = pd.DataFrame(
        {"x": rng.normal(size=200), "town": [f"t{i}" for i in level], "y": 3.0 * (level % 5)}
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    run("fit", tmp_path / "t.csv", "-t", "y", "-o", tmp_path / "m", "-m", 60, "--max-iter", 5)
    told = run("inspect", tmp_path / "m").output
    assert "from 2 columns" in told and "It looks most at town" in told and "2 columns, 41 features" in told
    assert "11 more" in told


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_numbers_are_categories_where_that_is_said(tmp_path, name):
    rng = np.random.default_rng(0)
    level = rng.integers(1, 4, 90)
    table = pd.DataFrame({"x": rng.normal(size=90), "zip": level, "y": np.array([0.0, 5.0, -5.0])[level - 1]})
    table["y"] += 0.1 * table["x"]
    (table.to_csv if name == "t.csv" else table.to_parquet)(tmp_path / name, index=False)
    told = run("fit", tmp_path / name, "-t", "y", "-o", tmp_path / "m", "--category", "zip", *QUICK).output
    assert "category of 3 levels" in told
    encoder = ig.TableEncoder(kinds={"zip": "category"})
    frame = table[["x", "zip"]]
    assert list(encoder.fit(frame).get_feature_names_out()) == ["x", "zip=1", "zip=2", "zip=3"]
    np.testing.assert_array_equal(encoder.transform(frame)[:, 1:], level[:, None] == [1, 2, 3])
    np.testing.assert_array_equal(
        encoder.transform(frame.assign(zip=level.astype(float))), encoder.transform(frame)
    )
    with pytest.raises(ig.errors.ColumnError, match="has not seen: '9'"):
        encoder.transform(frame.assign(zip=9))
    with pytest.raises(
        ig.errors.ColumnError, match="held categories when the model was fitted, and holds dates"
    ):
        encoder.transform(frame.assign(zip=pd.Timestamp("2020-01-01")))
    ordered = ig.TableEncoder(kinds={"zip": [3, 1, 2]}).fit(frame)
    np.testing.assert_array_equal(ordered.transform(frame)[:, 1], np.array([1, 2, 0])[level - 1])
