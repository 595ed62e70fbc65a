"""`inducing stream`: rows from files and pipes, bad rows, signals, kill -9, resuming; the model in other
commands.
"""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from typer.testing import CliRunner

import inducing as ig
from inducing.cli import app

COLUMNS = ["a", "b", "y"]
OPTIONS = ("--warmup", 60, "--n-inducing", 20)


def make_table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2)) * [100.0, 0.1]
    return pd.DataFrame(
        np.column_stack([X, 50 + 10 * np.sin(X[:, 0] / 50) * X[:, 1] + 0.05 * rng.standard_normal(n)]),
        columns=COLUMNS,
    ).round(6)


TABLE = make_table()
X, Y = TABLE[["a", "b"]].to_numpy(), TABLE["y"].to_numpy()


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["stream", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def other(command, *arguments):
    result = CliRunner().invoke(app, [command, *map(str, arguments)])
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def write(path, table=TABLE, changed=()):
    """A CSV file of the table, some of its lines replaced by what is given for them."""
    lines = [",".join(map(repr, row)) for row in table.to_numpy().tolist()]
    for number, line in dict(changed).items():
        lines[number - 1] = line
    path.write_text("\n".join([",".join(table.columns), *lines, ""]))
    return path


@pytest.fixture(scope="module")
def reference():
    """The same stream in Python: what was said of each row, and the model."""
    model = ig.OnlineGPRegressor(warmup=60, n_inducing=20, random_state=0).partial_fit(X[:60], Y[:60])
    return model.predict_then_fit(X[60:], Y[60:]), model


def assert_same(path, model, rtol=1e-7):
    """The saved model is this one, to rounding."""
    again = ig.load(path)
    assert again.n_rows_ == model.n_rows_
    assert_array_equal(again.posterior_.basis.Z, model.posterior_.basis.Z)
    assert_allclose(
        again.posterior_.alpha, model.posterior_.alpha, atol=rtol * np.max(np.abs(model.posterior_.alpha))
    )
    assert_allclose(again.log_predictive_, model.log_predictive_, rtol=1e-9)


def test_a_file_row_by_row(tmp_path, reference):
    said, model = reference
    result = run(
        write(tmp_path / "s.csv"), "-t", "y", "-o", tmp_path / "m", "-p", tmp_path / "p.csv", *OPTIONS
    )
    table = pd.read_csv(tmp_path / "p.csv")
    assert list(table.columns) == ["row", "y", "y_mean", "y_std", "drift"]
    assert_array_equal(table["row"], np.arange(1, 401))
    assert_array_equal(table["y"], Y)
    assert table["y_mean"][:60].isna().all()
    assert_allclose(table["y_mean"][60:], said.mean, rtol=1e-7)
    assert_allclose(table["y_std"][60:], said.std, rtol=1e-6)
    assert_same(tmp_path / "m", model)
    nlpd = -np.mean(said.log_density)
    assert f"{nlpd:.4f}" in result.output and "SMSE" in result.output and "MSLL" in result.output
    stream = ig.load(tmp_path / "m").metadata_["stream"]
    assert stream["place"]["rows"] == 400 and stream["metrics"]["rows"] == 340


@pytest.mark.parametrize("kind", ["jsonl", "tsv", "crlf", "order"])
def test_other_formats_give_the_same_model(tmp_path, reference, kind):
    path = tmp_path / "s.txt"
    if kind == "jsonl":
        path.write_text(
            "".join(json.dumps({"y": y, "a": a, "id": "no", "b": b}) + "\n" for a, b, y in TABLE.to_numpy())
        )
    elif kind == "tsv":
        TABLE.to_csv(path, sep="\t", index=False)
    elif kind == "crlf":
        path.write_bytes(b"\xef\xbb\xbf" + write(path).read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    else:
        path.write_text(write(path).read_text().replace("a,b,y", '"a", b ,y'))
    exclude = ("--exclude", "id") if kind == "jsonl" else ()
    run(path, "-t", "y", "-o", tmp_path / "m", *exclude, *OPTIONS)
    assert_same(tmp_path / "m", reference[1])
    assert ig.load(tmp_path / "m").metadata_["encoder"]["columns"] == ["a", "b"]


def test_json_rows_that_are_none(tmp_path):
    rows = [json.dumps({"a": a, "b": b, "y": y}) for a, b, y in TABLE[:100].to_numpy()]
    rows[10:14] = ["[1, 2]", "{", '{"a": 1, "y": 2}', '{"a": 1, "b": null, "y": 2}']
    (tmp_path / "s.jsonl").write_text("\n".join(rows))
    shown = run(tmp_path / "s.jsonl", "-t", "y", "-o", tmp_path / "m", *OPTIONS).stderr
    for number, words in enumerate(("a JSON list, not an object", "no JSON", "no 'b'", "'b' is missing"), 11):
        assert f"row {number} refused: " in shown and words in shown
    assert ig.load(tmp_path / "m").n_rows_ == 96


BAD = {
    100: ("1.0,2.0", "it has 2 columns, but the header has 3"),
    150: ("nan,0.1,3.0", "'a' is nan"),
    151: ("1.0,0.1,inf", "'y' is inf"),
    200: ("1.0,abc,3.0", "'b' is 'abc', which is no number"),
    260: ("1.0,,3.0", "'b' is missing"),
    300: ('"1.0,0.1,3.0', "it is no CSV"),
    7: ("1,2,3,4", "it has 4 columns"),
}


def test_bad_rows_are_refused_by_number_and_leave_no_trace(tmp_path):
    """The model is the one of the stream without them, and so are its predictions."""
    bad = {number: line for number, (line, _) in BAD.items()}
    result = run(
        write(tmp_path / "s.csv", changed=bad),
        "-t",
        "y",
        "-o",
        tmp_path / "m",
        "-p",
        tmp_path / "p.csv",
        *OPTIONS,
    )
    for number, (_, message) in BAD.items():
        assert f"inducing: row {number} refused: {message}" in result.stderr
    assert result.stderr.count("refused: ") == len(BAD)  # the progress line counts them, too
    clean = TABLE.drop(index=[number - 1 for number in BAD])
    run(
        write(tmp_path / "c.csv", clean), "-t", "y", "-o", tmp_path / "c", "-p", tmp_path / "cp.csv", *OPTIONS
    )
    assert_same(tmp_path / "m", ig.load(tmp_path / "c"))
    one, two = pd.read_csv(tmp_path / "p.csv"), pd.read_csv(tmp_path / "cp.csv")
    assert_allclose(one[["y", "y_mean", "y_std"]], two[["y", "y_mean", "y_std"]], rtol=1e-7)
    assert set(BAD).isdisjoint(one["row"]) and one["row"].iloc[-1] == 400
    place = ig.load(tmp_path / "m").metadata_["stream"]["place"]
    assert place["rows"] == 400 and place["refused"] == len(BAD)


def test_strict_stops_before_the_bad_row_and_goes_on_when_it_is_mended(tmp_path, reference):
    path = write(tmp_path / "s.csv", changed={250: "1.0,abc,3.0"})
    command = path, "-t", "y", "-o", tmp_path / "m", "-p", tmp_path / "p.csv", "--strict", *OPTIONS
    assert "row 250 refused" in run(*command, code=1).stderr
    assert ig.load(tmp_path / "m").n_rows_ == 249 and len(pd.read_csv(tmp_path / "p.csv")) == 249
    write(path)
    assert "going on after row 249" in run(*command, "--resume").stderr
    assert_same(tmp_path / "m", reference[1])
    assert_array_equal(pd.read_csv(tmp_path / "p.csv")["row"], np.arange(1, 401))


def test_counts_that_are_none_are_refused_by_the_model(tmp_path):
    rng = np.random.default_rng(0)
    counts = TABLE.assign(y=rng.poisson(3.0, 400)).astype({"y": object})
    counts.loc[[99, 299], "y"] = [-1, 2.5]
    counts.to_csv(tmp_path / "s.csv", index=False)
    result = run(tmp_path / "s.csv", "-t", "y", "-o", tmp_path / "m", "--likelihood", "poisson", *OPTIONS)
    for number, value in ((100, "-1"), (300, "2.5")):
        assert (
            f"row {number} refused: counts must be whole numbers from 0 on, but it has {value}"
            in result.stderr
        )
    assert ig.load(tmp_path / "m").n_rows_ == 398 and "SMSE" in result.output


@pytest.mark.parametrize("named", [True, False], ids=["classes given", "classes of the warm-up"])
def test_classes(tmp_path, named):
    labels = np.where(TABLE["a"] > 0, "up", np.where(TABLE["b"] > 0, "left", "right")).astype(object)
    table = TABLE.assign(y=labels)
    table.loc[199, "y"] = ""
    if named:  # where classes are not, a new label is learned
        table.loc[9, "y"] = "down"
    table.to_csv(tmp_path / "s.csv", index=False)
    classes = ("--classes", "up,left,right") if named else ()
    command = (
        tmp_path / "s.csv",
        "-t",
        "y",
        "-o",
        tmp_path / "m",
        "-p",
        tmp_path / "p.csv",
        "--task",
        "classification",
    )
    result = run(*command, *classes, *OPTIONS)
    assert not named or ("row 10 refused: it has the label" in result.stderr and "'down'" in result.stderr)
    assert "row 200 refused: 'y' is missing" in result.stderr
    said = pd.read_csv(tmp_path / "p.csv")
    names = ["y=left", "y=right", "y=up"]
    rows, other_label = (398, []) if named else (399, ["y_other"])
    assert list(said.columns) == ["row", "y", *names, *other_label, "drift"] and len(said) == rows
    p = said[names][said["y=up"].notna()]
    assert len(p) == rows - 60
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-9)
    truth = said["y"][p.index].to_numpy()
    wrong = np.mean(np.array([name[2:] for name in p.idxmax(axis=1)]) != truth)
    loss = -np.mean(np.log([p[f"y={label}"][i] for i, label in zip(p.index, truth)]))
    assert wrong < 0.1 and f"{wrong:.4f}" in result.output and f"{loss:.4f}" in result.output
    shown = other("inspect", tmp_path / "m").output
    assert "left, right, up" in shown and "stream error" in shown and f"{rows}" in shown
    other("predict", tmp_path / "m", tmp_path / "s.csv", "-o", tmp_path / "out.csv")
    out = pd.read_csv(tmp_path / "out.csv")
    assert np.mean(out["y_label"] == labels) > 0.9
    assert_allclose(out[names].sum(axis=1), 1.0, rtol=1e-9)


def test_one_class_is_not_enough(tmp_path):
    TABLE.assign(y="only").to_csv(tmp_path / "s.csv", index=False)
    command = tmp_path / "s.csv", "-t", "y", "-o", tmp_path / "m", "--task", "classification", *OPTIONS
    assert "--classes" in run(*command, code=1).stderr
    assert not (tmp_path / "m").exists()


# Stopping and going on.


def test_a_file_in_two_runs_is_the_file_in_one(tmp_path, reference):
    """The file grows between the runs; rows read before are passed over, and the predictions go on."""
    path = write(tmp_path / "s.csv", TABLE[:170])
    command = path, "-t", "y", "-o", tmp_path / "m", "-p", tmp_path / "p.csv"
    run(*command, *OPTIONS)
    with open(tmp_path / "p.csv", "a") as file:
        file.write("171,1.0,2.0,3.0\n")  # said by a process that was killed before it saved
    write(path)
    result = run(*command, *OPTIONS, "--resume")
    assert "going on after row 170" in result.stderr
    assert_same(tmp_path / "m", reference[1])
    table = pd.read_csv(tmp_path / "p.csv")
    assert_array_equal(table["row"], np.arange(1, 401))
    assert_allclose(table["y_mean"][60:], reference[0].mean, rtol=1e-7)
    run(*command, "--resume")  # nothing new
    assert_same(tmp_path / "m", reference[1])


def test_another_file_is_read_from_its_beginning(tmp_path, reference):
    command = "-t", "y", "-o", tmp_path / "m"
    run(write(tmp_path / "one.csv", TABLE[:200]), *command, *OPTIONS)
    run(write(tmp_path / "two.csv", TABLE[200:][["y", "b", "a"]]), *command, "--resume")
    assert_same(tmp_path / "m", reference[1])
    write(tmp_path / "two.csv", make_table(seed=1))  # rotated: the same name, other rows
    run(tmp_path / "two.csv", *command, "--resume", "--skip", 300)
    assert ig.load(tmp_path / "m").n_rows_ == 500


def test_a_stop_in_the_warm_up_loses_nothing(tmp_path, reference):
    command = tmp_path / "s.csv", "-t", "y", "-o", tmp_path / "m", *OPTIONS
    write(tmp_path / "s.csv", TABLE[:25])
    run(*command)
    assert ig.load(tmp_path / "m").warming_up_
    assert "25 of 60 rows" in other("inspect", tmp_path / "m").output
    write(tmp_path / "s.csv")
    run(*command, "--resume")
    assert_same(tmp_path / "m", reference[1])


def test_models_are_not_overwritten_or_mixed_up(tmp_path):
    path = write(tmp_path / "s.csv", TABLE[:100])
    command = path, "-t", "y", "-o", tmp_path / "m"
    run(*command, *OPTIONS)
    whole = (tmp_path / "m").read_bytes()
    assert "--resume" in run(*command, code=1).stderr
    assert "n_inducing 20, not 30" in run(*command, "--resume", "--n-inducing", 30, code=1).stderr
    assert "target y, not a" in run(path, "-t", "a", "-o", tmp_path / "m", "--resume", code=1).stderr
    assert "task regression" in run(*command, "--resume", "--task", "classification", code=1).stderr
    (tmp_path / "t.csv").write_text("a,y\n1,2\n")
    assert (
        "no column 'b'" in run(tmp_path / "t.csv", "-t", "y", "-o", tmp_path / "m", "--resume", code=1).stderr
    )
    assert (tmp_path / "m").read_bytes() == whole
    ig.OnlineGPRegressor(optimize=None).fit(X, Y).save(tmp_path / "own")
    assert "no model of a stream" in run(path, "-t", "y", "-o", tmp_path / "own", "--resume", code=1).stderr


def test_streams_that_cannot_be_read(tmp_path):
    empty, headless = tmp_path / "empty.csv", tmp_path / "twice.csv"
    empty.write_text("")
    headless.write_text("a,a,y\n1,2,3\n")
    for path, words in (
        (empty, "is empty"),
        (headless, "two columns 'a'"),
        (tmp_path / "no.csv", "There is no file"),
    ):
        assert words in run(path, "-t", "y", "-o", tmp_path / "m", code=1).stderr
    path = write(tmp_path / "s.csv")
    for options, words in (
        (("-t", "z"), "no column 'z'"),
        (("-t", "y", "--exclude", "y"), "excluded"),
        (("-t", "y", "--format", "xml"), "not 'xml'"),
        (("-t", "y", "--task", "clustering"), "must be one of regression"),
        (("-t", "y", "--classes", "a,b"), "no meaning for a regression"),
        (("-t", "y", "--task", "classification", "--noise", "1"), "no meaning for a classification"),
        (("-t", "y", "--task", "classification", "--classes", "a"), "at least two"),
        (("-t", "y", "--kernel", "nothing"), "'nothing'"),
        (("-t", "y", "--likelihood", "nothing"), "'nothing'"),
    ):
        assert words in run(path, *options, "-o", tmp_path / "m", code=1).stderr
    (tmp_path / "bad.csv").write_text("a,y\n" + "1,x\n" * 5)
    result = run(tmp_path / "bad.csv", "-t", "y", "-o", tmp_path / "m", code=1)
    assert result.stderr.count("refused") == 5 and "No model was made" in result.output
    assert not (tmp_path / "m").exists()


def test_other_commands_know_the_model(tmp_path):
    run(write(tmp_path / "s.csv"), "-t", "y", "-o", tmp_path / "m", "--likelihood", "laplace", *OPTIONS)
    shown = other("inspect", tmp_path / "m").output
    for words in (
        "OnlineGPRegressor",
        "Laplace",
        "rows read",
        "400",
        "stream NLPD",
        "noise std",
        "lengthscale",
        "20 Points",
    ):
        assert words in shown
    other("predict", tmp_path / "m", tmp_path / "s.csv", "-o", tmp_path / "out.csv")
    out, model = pd.read_csv(tmp_path / "out.csv"), ig.load(tmp_path / "m")
    mean, std = model.predict(X, return_std=True)
    assert_allclose(out[["y_mean", "y_std"]], np.column_stack([mean, std]), rtol=1e-9)


# Real processes, real signals.


def started(*arguments):
    command = [sys.executable, "-c", "from inducing.cli import main; main()", "stream", *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **pipes)


def rows_saved(path):
    return ig.load(path).n_rows_ if path.exists() else 0


def wait_until(condition, seconds=120.0):
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, "it did not happen"
        time.sleep(0.05)


HEADER = ",".join(COLUMNS) + "\n"
LINES = [",".join(map(repr, row)) + "\n" for row in TABLE.to_numpy().tolist()]


def test_a_signal_saves_what_was_read_and_a_resumed_pipe_goes_on(tmp_path, reference):
    command = "-", "-t", "y", "-o", tmp_path / "m", "-p", tmp_path / "p.csv", "--save-rows", 50, *OPTIONS
    done = 0
    for number, rows in ((signal.SIGTERM, 230), (signal.SIGINT, 300)):
        process = started(*command, *(["--resume"] if done else []))
        process.stdin.write((HEADER + "".join(LINES[done:rows]) + LINES[rows][:5]).encode())  # and half a row
        process.stdin.flush()
        wait_until(
            lambda rows=rows: (
                (tmp_path / "p.csv").exists() and (tmp_path / "p.csv").read_text().count("\n") == rows + 1
            )
        )
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
        assert rows_saved(tmp_path / "m") == rows and "rows read" in output.decode()
        done = rows
    process = started(*command, "--resume")
    _, errors = process.communicate((HEADER + "".join(LINES[done:])).encode(), timeout=60)
    assert process.returncode == 0, errors.decode()
    assert_same(tmp_path / "m", reference[1])
    table = pd.read_csv(tmp_path / "p.csv")
    assert_array_equal(table["row"], np.arange(1, 401))
    assert_allclose(table["y_mean"][60:], reference[0].mean, rtol=1e-7)


def test_a_killed_process_loses_no_more_than_it_had_not_saved(tmp_path, reference):
    """kill -9 while rows come in and models are saved; resumed, it ends as if nothing had happened."""
    command = (
        "-t",
        "y",
        "-o",
        tmp_path / "m",
        "-p",
        tmp_path / "p.csv",
        "--save-rows",
        40,
        "--save-seconds",
        1000,
        *OPTIONS,
    )
    process = started("-", *command)
    process.stdin.write((HEADER + "".join(LINES[:100])).encode())
    process.stdin.flush()
    wait_until(lambda: rows_saved(tmp_path / "m") >= 60)
    for line in LINES[100:300]:  # saved again and again while it is killed
        process.stdin.write(line.encode())
        process.stdin.flush()
        time.sleep(0.001)
        if rows_saved(tmp_path / "m") >= 140:
            break
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    saved, said = rows_saved(tmp_path / "m"), (tmp_path / "p.csv").read_text().count("\n") - 1
    assert 140 <= saved and said - saved <= 40 + 1
    process = started("-", *command, "--resume")
    process.communicate((HEADER + "".join(LINES[saved:])).encode(), timeout=60)
    assert process.returncode == 0
    assert_same(tmp_path / "m", reference[1])
    assert_array_equal(pd.read_csv(tmp_path / "p.csv")["row"], np.arange(1, 401))


def test_an_idle_stream_is_saved_by_the_clock(tmp_path):
    process = started("-", "-t", "y", "-o", tmp_path / "m", "-p", "-", "--save-seconds", 0.2, *OPTIONS)
    process.stdin.write((HEADER + "".join(LINES[:70])).encode())
    process.stdin.flush()
    wait_until(lambda: rows_saved(tmp_path / "m") == 70)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output.decode().startswith("row,y,y_mean,y_std") and output.decode().count("\n") == 71
    assert "rows read" in errors.decode()  # the summary makes way for the predictions


PEAK = """
import resource, sys
from inducing.cli import app
try:
    app(sys.argv[1:])
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
"""


def test_memory_does_not_grow_with_the_stream(tmp_path):
    pytest.importorskip("resource")
    peaks = []
    for repeats in (5, 60):
        path = tmp_path / f"{repeats}.csv"
        path.write_text(HEADER + "".join(LINES) * repeats)
        command = ["stream", str(path), "-t", "y", "-o", str(tmp_path / f"m{repeats}"), *map(str, OPTIONS)]
        done = subprocess.run(
            [sys.executable, "-c", PEAK, *command], capture_output=True, text=True, check=True
        )
        peaks.append(int(done.stdout.split()[-1]))
    assert ig.load(tmp_path / "m60").n_rows_ == 24_000
    assert peaks[1] - peaks[0] < 8e6, "something is kept per row"
