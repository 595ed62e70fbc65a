"""A comparison fits every method to the same rows, scores it on rows held out, and survives Ctrl-C and
budgets.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import train_test_split
from typer.testing import CliRunner

import inducing as ig
from inducing.cli import app
from inducing.errors import EmptyDataError, ParameterError, UnknownNameError
from inducing.estimators import comparison
from inducing.inference import selection
from inducing.learning import objective
from inducing.pictures import plots

X, Y = ig.datasets.toy1d(120, rng=0)
QUICK = {"max_iter": 10, "sizes": (3, 6)}


def test_rows_methods_and_sizes_are_all_there():
    table = ig.compare(X, Y, methods=["vfe", "random", "exact"], repeats=2, **QUICK)
    assert list(table.columns) == list(comparison.Result.__dataclass_fields__)
    found = sorted(
        table.loc[table["method"] != "exact", ["method", "size", "repeat"]].itertuples(index=False, name=None)
    )
    assert found == [(method, m, r) for method in ("random", "vfe") for m in (3, 6) for r in (0, 1)]
    exact = table[table["method"] == "exact"]
    assert list(exact["repeat"]) == [0, 1] and set(exact["m"]) == {96}  # all rows that are not held out
    assert list(table["size"].iloc[2:]) == [3, 3, 3, 3, 6, 6, 6, 6]


def test_scores_are_those_of_the_rows_held_out():
    row = ig.compare(
        X, Y, methods=["exact"], sizes=[3], max_iter=10, random_state=7, test_fraction=0.25
    ).iloc[0]
    A, A_test, b, b_test = train_test_split(X, Y, test_size=30, random_state=7)
    model = ig.SparseGPRegressor(approximation="exact", max_iter=10, random_state=7).fit(A, b)
    mean, std = model.predict(A_test, return_std=True)
    assert row["smse"] == pytest.approx(
        np.mean((b_test - mean) ** 2) / np.mean((b_test - b.mean()) ** 2), rel=1e-6
    )
    trivial = 0.5 * np.mean(np.log(2 * np.pi * b.var()) + (b_test - b.mean()) ** 2 / b.var())
    ours = 0.5 * np.mean(np.log(2 * np.pi * std**2) + (b_test - mean) ** 2 / std**2)
    assert row["msll"] == pytest.approx(ours - trivial, rel=1e-6)
    assert row["coverage"] == pytest.approx(np.mean(np.abs(b_test - mean) < 1.959964 * std))


def test_rules_leave_the_basis_where_it_is_and_get_a_learned_kernel(monkeypatch):
    seen = []

    def rule(A, m, rng, weights, *, kernel, noise, y):
        seen.append((float(np.ravel(kernel.lengthscale)[0]), noise))
        return A[:m]

    monkeypatch.setitem(selection.BY_NAME, "information-gain", rule)
    fits = []
    fit = ig.SparseGPRegressor.fit
    monkeypatch.setattr(
        ig.SparseGPRegressor, "fit", lambda self, *data: (fits.append(self), fit(self, *data))[1]
    )
    ig.compare(X, Y, methods=["information-gain", "random"], sizes=[5], max_iter=20)
    first, second, random = fits
    assert [model.max_iter for model in fits] == [10, 10, 20]
    learned = float(np.ravel(first.posterior_.kernel.lengthscale)[0])
    assert (
        seen == [(pytest.approx(learned), pytest.approx(first.noise_ / first.y_scale_**2))] and learned != 1.0
    )
    A = np.sort(
        (train_test_split(X, random_state=0, test_size=24)[0][:, 0] - second.x_mean_) / second.x_scale_
    )
    np.testing.assert_allclose(second.posterior_.basis.Z[:, 0], A[:5])
    assert np.all(np.isin(random.posterior_.basis.Z.round(9), A.round(9)))


def test_more_functions_than_rows_are_no_reason_to_warn():
    table = ig.compare(X[:12], Y[:12], methods=["random"], sizes=[50], max_iter=2)
    assert list(table["size"]) == [50] and list(table["m"]) == [10]


def test_ctrl_c_keeps_what_is_finished():
    def interrupt(done, total, what):
        assert total == 4
        if done == 2:
            raise KeyboardInterrupt

    assert len(ig.compare(X, Y, methods=["vfe", "random"], progress=interrupt, **QUICK)) == 2


def test_ctrl_c_during_a_fit_does_not_count_it(monkeypatch):
    seen = []

    def evaluate(self, x):
        seen.append(x)
        if len(seen) == 5:
            raise KeyboardInterrupt
        return original(self, x)

    original = objective.Objective.value_and_gradient
    monkeypatch.setattr(objective.Objective, "value_and_gradient", evaluate)
    assert len(ig.compare(X, Y, methods=["vfe", "random"], **QUICK)) == 0


def test_a_spent_budget_starts_nothing():
    assert len(ig.compare(X, Y, methods=["vfe"], budget=0.0, **QUICK)) == 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"methods": ["svm"]}, UnknownNameError, "not 'svm'"),
        ({"methods": []}, ParameterError, "0 methods"),
        ({"sizes": [0, 5]}, ParameterError, "at least 1, but is 0"),
        ({"test_fraction": 1.5}, ParameterError, "lie in \\(0, 1\\), but is 1.5"),
    ],
)
def test_bad_requests_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        ig.compare(X, Y, **options)


def test_bad_data_are_refused():
    with pytest.raises(EmptyDataError, match="5 rows cannot be split"):
        ig.compare(X[:5], Y[:5])
    with pytest.raises(ParameterError, match=r"shape \(120, 2\)"):
        ig.compare(X, np.column_stack([Y, Y]))


def test_every_method_can_be_fitted():
    table = ig.compare(X, Y, methods=comparison.METHODS, sizes=[4], max_iter=4)
    alone = list(comparison.SIZES)  # come first
    assert list(table["method"]) == [*alone, *(name for name in comparison.METHODS if name not in alone)]
    assert np.all(np.isfinite(table[["smse", "msll", "noise"]]))
    assert np.all(np.isfinite(table["log_evidence"]) == (table["m"] > 0))


def results():
    rows = [("a", 5, 0, 0.4, 1.0), ("a", 5, 1, 0.2, 3.0), ("a", 10, 0, 0.1, 2.0), ("a", 10, 1, 0.1, 2.0)]
    rows.append(("exact", 1000, 0, 0.05, 9.0))
    table = pd.DataFrame(rows, columns=["method", "size", "repeat", "smse", "seconds"])
    return table.assign(
        m=table["size"], msll=-table["smse"], coverage=0.95, noise=0.1, log_evidence=0.0, iterations=3
    )


def test_a_summary_averages_the_repeats():
    summary = comparison.summary(results())
    assert list(zip(summary["method"], summary["size"])) == [("a", 5), ("a", 10), ("exact", 1000)]
    assert list(summary["smse"]) == pytest.approx([0.3, 0.1, 0.05]) and list(
        summary["seconds"]
    ) == pytest.approx([2, 2, 9])


def test_the_picture_shows_means_and_the_exact_level():
    by_error, by_loss, by_time = plots.plot_comparison(results()).axes
    np.testing.assert_allclose(by_error.lines[0].get_xydata(), [[5, 0.3], [10, 0.1]])
    assert list(by_error.lines[-1].get_ydata()) == [0.05, 0.05] and by_error.lines[-1].get_label() == "exact"
    np.testing.assert_allclose(by_loss.lines[0].get_ydata(), [-0.3, -0.1])
    np.testing.assert_allclose(by_time.lines[0].get_xydata(), [[2, 0.3], [2, 0.1]])
    bars = by_error.collections[0].get_segments()
    np.testing.assert_allclose(bars[0][:, 1], [0.2, 0.4])


def compare(*arguments, code=0):
    result = CliRunner().invoke(app, ["compare", *(str(a) for a in arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_the_command_prints_draws_and_writes(tmp_path):
    pd.DataFrame({"x": X[:, 0], "y": Y, "id": np.arange(len(Y))}).to_csv(tmp_path / "t.csv", index=False)
    options = ("-t", "y", "--exclude", "id", "--sizes", "3,6", "--methods", "vfe, random", "--max-iter", 5)
    result = compare(tmp_path / "t.csv", *options, "-o", tmp_path / "c.png", "--csv", tmp_path / "c.csv")
    table = pd.read_csv(tmp_path / "c.csv")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG") and len(table) == 4
    for smse in table["smse"]:
        assert f"{smse:.4f}" in result.output
    assert "120 rows, 20% held out" in result.output
    assert "no list of whole" in compare(tmp_path / "t.csv", "-t", "y", "--sizes", "3;6", code=2).stderr
    assert "must end in" in compare(tmp_path / "t.csv", "-t", "y", "--csv", "results.docx", code=2).stderr
    assert "No fit was finished" in compare(tmp_path / "t.csv", *options, "--budget", 0, code=1).output


def test_baselines_are_those_of_scikit_learn_with_the_variance_of_unseen_rows():
    table = ig.compare(X, Y, methods=["mean", "linear", "boosting"], sizes=[3], random_state=2).set_index(
        "method"
    )
    A, A_test, b, b_test = train_test_split(X, Y, test_size=24, random_state=2)
    mean = table.loc["mean"]
    assert (
        mean["smse"] == pytest.approx(1.0) and mean["msll"] == pytest.approx(0.0, abs=0.1) and mean["m"] == 0
    )
    line = np.polynomial.Polynomial.fit(A[:, 0], b, 1)(A_test[:, 0])
    slack = np.mean((b_test - line) ** 2) / np.mean((b_test - b.mean()) ** 2)
    assert table.loc["linear", "smse"] == pytest.approx(slack, rel=0.05)  # RidgeCV shrinks a little
    assert table.loc["boosting", "smse"] < table.loc["linear", "smse"]


def test_classes_are_compared_by_error_and_log_loss(tmp_path):
    labels = np.where(X[:, 0] > np.median(X), "right", "left")
    table = ig.compare(X, labels, methods=["vfe", "mean", "linear"], sizes=[4], max_iter=5).set_index(
        "method"
    )
    share = np.mean(train_test_split(labels, test_size=24, random_state=0)[1] == "left")
    prior = np.mean(train_test_split(labels, test_size=24, random_state=0)[0] == "left")
    expected = -share * np.log(prior) - (1 - share) * np.log(1 - prior)
    assert table.loc["mean", "log_loss"] == pytest.approx(expected)
    assert table.loc["vfe", "error"] <= 0.1 and table.loc["linear", "error"] <= 0.1
    pd.DataFrame({"x": X[:, 0], "kind": labels}).to_csv(tmp_path / "t.csv", index=False)
    options = (
        "--methods",
        "vfe,mean,boosting",
        "--sizes",
        "4",
        "--max-iter",
        "3",
        "-o",
        str(tmp_path / "c.png"),
    )
    said = CliRunner().invoke(app, ["compare", str(tmp_path / "t.csv"), "-t", "kind", *options])
    assert said.exit_code == 0 and "log loss" in said.output and (tmp_path / "c.png").stat().st_size > 10_000
