"""`inducing fit` of classes, counts and learned noise, and what other commands make of the models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.impute import SimpleImputer
from typer.testing import CliRunner

import inducing as ig
from inducing.cli import app
from inducing.cli.inspect import influence
from inducing.estimators import comparison

N = 160
QUICK = ("--n-inducing", 10, "--max-iter", 30)


def run(*arguments: Any, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stderr if code else result.output


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, N)
    hours = rng.uniform(0.5, 3.0, N)
    return pd.DataFrame(
        {
            "x": x,
            "kind": np.where(x + 0.2 * rng.standard_normal(N) > 0, "right", "left"),
            "late": x > 0.5,
            "calls": rng.poisson(hours * np.exp(2 + np.sin(2 * x))),
            "hours": hours,
            "y": np.sin(2 * x) + np.where(x > 0, 0.5, 0.05) * rng.standard_normal(N),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    table().to_csv(folder / "train.csv", index=False)
    (folder / "parts").mkdir()
    for i, rows in enumerate(np.array_split(np.arange(N), 3)):
        table().iloc[rows].to_parquet(folder / "parts" / f"{i}.parquet")
    return folder


def fit(folder: Path, target: str, keep: str, *options: Any, rows: str = "train.csv") -> str:
    """Fit a target from x; what else the table has is excluded, but for columns to keep."""
    others = [c for c in ("kind", "late", "calls", "hours", "y") if c not in (target, keep)]
    left_out = [word for name in others for word in ("--exclude", name)]
    return run("fit", folder / rows, "-t", target, "-o", folder / target, *QUICK, *left_out, *options)


def predicted(folder: Path, target: str, *options: Any) -> pd.DataFrame:
    queries = pd.DataFrame({"x": [-1.0, 1.0], "hours": [1.0, 10.0]})
    queries.to_csv(folder / "queries.csv", index=False)
    run("predict", folder / target, folder / "queries.csv", "-o", folder / "out.csv", *options)
    return pd.read_csv(folder / "out.csv")


@pytest.mark.parametrize("rows", ["train.csv", "parts"])
@pytest.mark.parametrize(("target", "classes"), [("kind", ["left", "right"]), ("late", [False, True])])
def test_text_and_booleans_are_classes_by_themselves(
    folder: Path, target: str, classes: list[Any], rows: str
) -> None:
    text = fit(folder, target, "", rows=rows)
    assert "log loss" in text and "error" in text and "classes" in text
    out = predicted(folder, target)
    assert out[f"{target}_label"].tolist() == classes
    assert_allclose(out[[f"{target}={label}" for label in classes]].sum(axis=1), 1.0)
    shown = run("inspect", folder / target)
    assert "SparseGPClassifier" in shown and ", ".join(map(str, classes)) in shown
    for said in (text, shown):
        assert "Left out in turn, rows are classified by the others" in said
        assert any(f"if all were {label}" in said for label in classes)  # by its name, in parts, too
    lines = [line.split() for line in text.splitlines() if line.startswith("surprising: row")]
    assert (len(lines) > 0) == (rows == "train.csv" and target == "kind")  # which has mistakes to list
    assert all(str(table()[target][int(words[2])]) == words[3].rstrip(",") for words in lines)


def test_numbers_are_classes_when_asked(folder: Path) -> None:
    data = table().assign(code=lambda t: (t["x"] > 0).astype(int))[["x", "code"]]
    data.to_csv(folder / "codes.csv", index=False)
    command = "fit", folder / "codes.csv", "-t", "code", "-o", folder / "code", *QUICK
    run(*command, "--task", "classification", "--likelihood", "logistic")
    model = ig.load(folder / "code")
    assert model.classes_.tolist() == [0, 1] and type(model.likelihood_).__name__ == "Logistic"
    data.assign(code=data["x"]).to_csv(folder / "fractions.csv", index=False)
    fractions = "fit", folder / "fractions.csv", *command[2:], "--task", "classification"
    assert "different numbers, such as " in run(*fractions, code=1)
    assert "--task must be" in run(*command, "--task", "sorting", code=1)
    data.assign(code=data["x"]).to_parquet(folder / "fraction0.parquet")
    parts = "fit", f"{folder}/fraction*.parquet", *command[2:], "--task", "classification"
    assert "different numbers, such as " in run(*parts, code=1)
    data.to_parquet(folder / "codes.parquet")
    run("fit", f"{folder}/code*.parquet", *command[2:], "--task", "classification")  # a glob is read in parts
    assert ig.load(folder / "code").classes_.tolist() == [0, 1]


@pytest.mark.parametrize("rows", ["train.csv", "parts"])
def test_counts_with_exposure(folder: Path, rows: str) -> None:
    text = fit(folder, "calls", "hours", "--likelihood", "poisson", "--further", "hours", rows=rows)
    assert "Poisson()" in text and "NLPD" in text and "MSLL" not in text
    assert ("Left out in turn, rows have a log density" in text) == (rows == "train.csv")
    assert "rows a log evidence of" in text and "under Poisson(); held-out rows show" in text
    out = predicted(folder, "calls", "--quantiles", "0.1,0.9")
    rate = np.exp(2 + np.sin(2 * np.array([-1.0, 1.0])))
    assert_allclose(out["calls_mean"], rate * [1, 10], rtol=0.25)  # the exposure of each row
    assert np.all((out["calls_q0.1"] < out["calls_mean"]) & (out["calls_mean"] < out["calls_q0.9"]))
    assert "Poisson()" in run("inspect", folder / "calls")
    assert "likelihood must be one of" in run(
        *("fit", folder / "train.csv", "-t", "y", "-o", folder / "no", "--likelihood", "unheard"), code=1
    )


def test_learned_noise(folder: Path) -> None:
    text = fit(folder, "y", "", "--noise", "learned")
    assert "learned, follows the inputs" in text and "Left out in turn, rows are predicted" in text
    assert "exact log evidence between" in text and "no diagnosis" not in text
    held = np.random.default_rng(0).permutation(N)[: N // 10]
    model, y = ig.load(folder / "y"), table()["y"].to_numpy()
    seen, density = np.delete(y, held), model.predict_distribution(table()[["x"]].iloc[held])
    trivial = norm(seen.mean(), seen.std()).logpdf(y[held])
    msll = np.mean(trivial - density.log_density(y[held]))
    assert_allclose(model.metadata_["held_out"]["MSLL"], msll, rtol=1e-9)
    out = predicted(folder, "y", "--quantiles", "0.05,0.95")
    assert out["y_std"][1] > 2 * out["y_std"][0]
    assert "learned, follows the inputs" in run("inspect", folder / "y")
    assert "--quantiles must be numbers" in run(
        *("predict", folder / "y", folder / "queries.csv", "-o", folder / "o.csv", "--quantiles", "a"), code=1
    )


@pytest.mark.parametrize("place", [0, -1], ids=["held out", "trained on"])
def test_what_is_wrong_with_a_row_is_said_with_its_number_in_the_table(folder: Path, place: int) -> None:
    row = 1 + int(np.random.default_rng(0).permutation(N - 1)[place])  # row 0 has no target
    data = table()[["x", "calls"]].astype({"calls": object})
    data.loc[0, "calls"], data.loc[row, "calls"] = "", -1
    data.to_csv(folder / "wrong.csv", index=False)
    options = ("-t", "calls", "-o", folder / "wrong", "-m", 2, "--max-iter", 0, "--likelihood", "poisson")
    result = CliRunner().invoke(app, ["fit", str(folder / "wrong.csv"), *map(str, options)])
    assert f"row {row} has -1" in result.stderr + str(result.exception)  # an error, or a warning


def test_compare_uses_rows_with_gaps(folder: Path) -> None:
    data = table()[["x", "hours", "y"]]
    data.loc[::7, "x"] = np.nan
    data.to_csv(folder / "gaps.csv", index=False)
    methods = ("--methods", "linear,kmeans", "-m", 3, "--max-iter", 2, "--csv", folder / "c.csv")
    text = run("compare", folder / "gaps.csv", "-t", "y", *methods, "-o", folder / "c.png")
    assert f"{len(data[::7])} of {N} rows have gaps in their inputs, which get the mean, and a column" in text
    X = SimpleImputer(add_indicator=True).fit_transform(data[["x", "hours"]])
    options: dict[str, Any] = dict(methods=["linear", "kmeans"], sizes=[3], max_iter=2, kernel="RBF")
    expected = comparison.compare(X, data["y"], **options)
    assert_allclose(pd.read_csv(folder / "c.csv")["smse"], expected["smse"], rtol=1e-9)


def test_a_likelihood_is_printed_with_four_digits(folder: Path) -> None:
    told = fit(folder, "hours", "", "--likelihood", "studentt", "--max-iter", 3)
    likelihood = ig.load(folder / "hours").likelihood_
    for text in (told, run("inspect", folder / "hours")):
        assert f"StudentT(df={likelihood.df:.4g}, scale={likelihood.scale:.4g})" in text
        assert repr(likelihood) not in text


def test_influence_asks_a_model_for_its_means_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And once for each column: tables of a thousand columns are looked at in seconds."""
    X = np.random.default_rng(0).standard_normal((60, 7))
    model = ig.SparseGPRegressor(ig.kernels.RBF(np.full(7, 2.0)), "vfe", n_inducing=12, max_iter=5)
    model.fit(X, 3.0 * X[:, 2] + 0.1 * X[:, 5]).save(tmp_path / "m")
    model = ig.load(tmp_path / "m")
    calls, mean = [], ig.Posterior.mean
    monkeypatch.setattr(ig.Posterior, "mean", lambda post, X: calls.append(len(X)) or mean(post, X))
    weight = influence(model)
    assert len(calls) == 8
    assert list(weight) == [f"x{i}" for i in range(1, 8)] and max(weight, key=weight.__getitem__) == "x3"
    Z = np.asarray(model.posterior_.basis.centers)
    at, other = np.random.default_rng(0).integers(len(Z), size=(2, calls[0]))
    moved = Z[at]
    moved[:, 2] = Z[other, 2]
    change = mean(model.posterior_, moved) - mean(model.posterior_, Z[at])
    assert_allclose(weight["x3"], np.sqrt(np.mean(np.square(change))), rtol=1e-12)
