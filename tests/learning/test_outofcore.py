"""Learning from sources: one sample and all rows, the same model wherever they lie, bounded memory, and the
command line.
"""

import os
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import inducing as ig
from experiments import reproduce
from inducing.cli import app
from inducing.engine.parts import Parted
from inducing.errors import ColumnError, ModelFileError, ParameterError, ShapeError, UnknownNameError
from inducing.inference import selection
from inducing.learning import outofcore
from inducing.learning.objective import RowEvidence
from inducing.sources.arrays import is_parted
from inducing.sources.source import row_keys
from inducing.sources.tables import is_large

NAMES = ["a", "b", "c"]


def f(X):
    return 5.0 + np.sin(X[:, 0] - 2.0) + 0.2 * X[:, 1]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal([2.0, -1.0, 100.0], [1.0, 2.0, 30.0], (3000, 3))
    return X, f(X) + 0.1 * rng.normal(size=len(X))


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    folder, (X, y) = tmp_path_factory.mktemp("parts"), data
    for i in range(5):
        rows = slice(600 * i, 600 * (i + 1))
        pd.DataFrame(X[rows], columns=NAMES).assign(y=y[rows]).to_parquet(
            folder / f"{i}.parquet", index=False
        )
    return folder


def small(**options):
    return ig.SparseGPRegressor(
        **{"n_inducing": 12, "max_iter": 30, "full_iter": 3, "random_state": 0} | options
    )


@pytest.fixture(scope="module")
def model(folder):
    return small().fit(folder, "y")


def test_a_sample_is_the_rows_of_the_least_keys(data):
    X, y = data
    source = ig.as_source(X, y, chunk_rows=370)
    found = outofcore.survey(source, 100, seed=3)
    keys = np.concatenate([row_keys(part, 3) for part in source.map(lambda part: part)])
    least = np.argsort(keys)[:100]
    np.testing.assert_array_equal(found.sample.X, X[least])
    np.testing.assert_array_equal(found.sample.Y[:, 0], y[least])
    assert found.moments.n == 3000
    assert len(outofcore.survey(source, 10**6).sample.X) == 3000


def test_centres_of_kmeans_move_as_lloyd_says(data):
    X, _ = data
    source = ig.as_source(X, chunk_rows=370)
    Z = start = selection.kmeans(X[:500], 6, 0)
    for _ in range(4):
        nearest = np.argmin(np.sum((X[:, None, :] - Z) ** 2, axis=-1), axis=1)
        Z = np.array([X[nearest == j].mean(axis=0) for j in range(6)])
    np.testing.assert_allclose(outofcore.refined(source, start, 4), Z, rtol=1e-10)
    far = np.vstack([start, [1e6, 1e6, 1e6]])  # no row is nearest to it: it stays
    np.testing.assert_array_equal(outofcore.refined(source, far, 1)[-1], far[-1])


@pytest.mark.parametrize("rule", ["random", "variance", "kmeans"])
def test_rules_choose_from_a_source(data, rule):
    X, y = data
    source = ig.as_source((X - X.mean(0)) / X.std(0), y, chunk_rows=370)
    kernel = ig.kernels.RBF(lengthscale=1.0)
    Z = outofcore.select(source, 9, rule, 0, kernel=kernel, noise=0.1)
    assert Z.shape == (9, 3) and len(np.unique(Z, axis=0)) == 9
    np.testing.assert_array_equal(Z, outofcore.select(source, 9, rule, 0, kernel=kernel, noise=0.1))
    with pytest.raises(UnknownNameError, match="rule must be one of random, .*, not 'best'"):
        outofcore.select(source, 9, "best")


def test_the_model_knows_the_function_in_the_users_units(model, data):
    X, y = data
    mean, std = model.predict(pd.DataFrame(X, columns=NAMES), return_std=True)
    assert np.sqrt(np.mean((mean - f(X)) ** 2)) < 0.03
    assert model.noise_ == pytest.approx(0.01, rel=0.15)
    np.testing.assert_allclose(model.x_mean_, X.mean(0), rtol=1e-10)
    np.testing.assert_allclose(model.x_scale_, X.std(0), rtol=1e-10)
    assert model.n_rows_ == 3000 and list(model.feature_names_in_) == NAMES
    assert np.mean(np.abs(y - mean) < 1.96 * std) == pytest.approx(0.95, abs=0.02)


def test_the_evidence_is_that_of_all_rows_in_their_units(model, data):
    """log p(y) under the model, from its posterior's parts and the rows in memory."""
    X, y = data
    post = model.posterior_
    Xs, ys = (X - model.x_mean_) / model.x_scale_, (y - model.y_mean_) / model.y_scale_
    noise = model.noise_ / model.y_scale_**2
    value = ig.log_evidence(post.kernel, post.basis, "fitc", noise, Xs, ys) - len(y) * np.log(model.y_scale_)
    assert model.log_evidence_ == pytest.approx(value, rel=1e-9)


def test_iterations_over_all_rows_raise_their_evidence(data):
    X, y = data
    source = ig.as_source(X, y, chunk_rows=1000)
    sampled = small(full_iter=0, validation_fraction=0.0, max_iter=3, approximation="vfe").fit(source)
    longer = small(full_iter=5, validation_fraction=0.0, max_iter=3, approximation="vfe").fit(source)
    assert longer.log_evidence_ > sampled.log_evidence_
    assert longer.n_iter_ > sampled.n_iter_


@pytest.mark.parametrize(("asked", "words"), [(None, "held-out rows gained nothing in 10"), (20, "LIMIT")])
def test_iterations_over_all_rows_end_by_themselves_unless_a_number_is_asked_for(
    data, monkeypatch, asked, words
):
    calls, evaluate = [], RowEvidence.__call__

    def counted(evidence, P):
        calls.extend([P] * isinstance(P, Parted))
        return evaluate(evidence, P)

    monkeypatch.setattr(RowEvidence, "__call__", counted)
    result = small(full_iter=asked).fit(ig.as_source(*data, chunk_rows=1000)).fit_result_
    assert words in result.message and result.n_evaluations == len(calls) > 0 and result.seconds > 0.0
    few = small(full_iter=0).fit(ig.as_source(*data, chunk_rows=1000)).fit_result_
    made = result.n_iterations - few.n_iterations
    assert few.n_evaluations == 0 and (made == asked if asked else 10 <= made < outofcore.FULL)


def test_other_places_give_the_same_model(model, data, folder):
    dask_frame = pytest.importorskip("dask.dataframe")
    X, y = data
    frame = dask_frame.from_pandas(pd.DataFrame(X, columns=NAMES).assign(y=y), npartitions=5, sort=False)
    queries = pd.DataFrame(X, columns=NAMES)
    expected, std = model.predict(queries, return_std=True)
    for other in (small().fit(ig.as_source(X, y, chunk_rows=600)), small().fit(frame, "y")):
        names = hasattr(other, "feature_names_in_")
        np.testing.assert_allclose(other.predict(queries if names else X), expected, rtol=1e-10)
    # and predictions do not depend on where the queries lie
    np.testing.assert_allclose(model.predict(folder), expected, rtol=1e-10)
    both = model.predict(ig.as_source(X, chunk_rows=700), return_std=True)
    np.testing.assert_allclose(both, [expected, std], rtol=1e-10)
    lazily = model.predict(frame[["c", "y", "a", "b"]], return_std=True)
    np.testing.assert_allclose([part.compute() for part in lazily], [expected, std], rtol=1e-10)
    array = pytest.importorskip("dask.array").from_array(X, chunks=(500, 2))
    said = model.predict(array)
    assert said.chunks == ((500,) * 6,)
    np.testing.assert_allclose(said.compute(), expected, rtol=1e-10)


def test_a_dask_frame_stays_with_the_workers_of_a_client(model, data):
    dask_frame, _ = pytest.importorskip("dask.dataframe"), pytest.importorskip("distributed")
    X, y = data
    frame = dask_frame.from_pandas(pd.DataFrame(X, columns=NAMES).assign(y=y), npartitions=5, sort=False)
    expected = model.predict(pd.DataFrame(X, columns=NAMES))
    with ig.distributed.cluster(workers=2) as client:
        other = small().fit(frame, "y")
        np.testing.assert_allclose(other.predict(frame).compute(), expected, rtol=1e-10)
        spread = ig.distributed.spread(ig.as_source(X, chunk_rows=700), client)
        np.testing.assert_allclose(other.predict(spread), expected, rtol=1e-10)


def test_a_posterior_predicts_over_a_source(model, data):
    X, _ = data
    Xs = (X - model.x_mean_) / model.x_scale_
    parts = list(outofcore.predictions(model.posterior_, ig.as_source(Xs, chunk_rows=800)))
    assert [len(mean) for mean, _ in parts] == [800, 800, 800, 600]
    expected = model.posterior_.predict(Xs)
    np.testing.assert_allclose(np.concatenate([mean for mean, _ in parts]), expected[0], rtol=1e-10)
    np.testing.assert_allclose(np.concatenate([variance for _, variance in parts]), expected[1], rtol=1e-8)


def test_several_outputs_from_parts(data):
    X, y = data
    Y = np.column_stack([y, 100.0 - 7.0 * y])
    both = small(max_iter=5, full_iter=1).fit(ig.as_source(X, Y, chunk_rows=900))
    mean, std = both.predict(ig.as_source(X), return_std=True)
    assert mean.shape == std.shape == (3000, 2)
    np.testing.assert_allclose(mean[:, 1], 100.0 - 7.0 * mean[:, 0], rtol=1e-8)
    np.testing.assert_allclose(std[:, 1], 7.0 * std[:, 0], rtol=1e-8)
    array = pytest.importorskip("dask.array").from_array(X, chunks=(500, 3))
    np.testing.assert_allclose(both.predict(array, return_std=True)[1].compute(), std, rtol=1e-10)


def test_a_killed_fit_goes_on_from_its_checkpoint(data, tmp_path):
    X, y = data
    source, seen = ig.as_source(X, y, chunk_rows=1000), []

    def stop(iteration, objective):
        seen.append(objective)
        if len(seen) > first.fit_result_.n_iterations + 2:
            raise SystemError("killed")

    options = {
        "approximation": "vfe",
        "validation_fraction": 0.0,
        "max_iter": 3,
        "checkpoint": tmp_path / "point",
    }
    first = small(**{**options, "checkpoint": None, "full_iter": 0}).fit(source)
    with pytest.raises(SystemError):
        small(**options, progress=stop).set_params(full_iter=20).fit(source)
    assert (tmp_path / "point").exists()
    resumed = small(**options).set_params(full_iter=1).fit(source)
    assert resumed.log_evidence_ > first.log_evidence_
    kept = seen[
        first.fit_result_.n_iterations
    ]  # the first iteration over all rows: the next write comes seconds later
    assert resumed.log_evidence_ + len(y) * np.log(resumed.y_scale_) >= kept - 1e-6
    with pytest.raises(ModelFileError, match="of another problem"):
        small(**options).fit(ig.as_source(X[:2000], y[:2000], chunk_rows=1000))


def test_memory_does_not_grow_with_the_rows():
    """400,000 rows and 30 functions: Kfu alone would take 96 MB."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(30, 2))
    kernel = ig.kernels.RBF(lengthscale=1.0)

    def parts():
        rng = np.random.default_rng(1)
        for _ in range(40):
            X = rng.normal(size=(10_000, 2))
            yield X, X[:, 0]

    source = ig.as_source(parts)
    ig.log_evidence_and_gradient(kernel, ig.bases.Points(Z), "fitc", 0.1, source)  # compile
    tracemalloc.start()
    ig.log_evidence_and_gradient(kernel, ig.bases.Points(Z), "fitc", 0.1, source)
    outofcore.survey(source, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6


def test_what_parts_cannot_do_is_said(model, data, folder):
    X, y = data
    source = ig.as_source(X, y)
    with pytest.raises(ParameterError, match="no targets; name the target column"):
        small().fit(ig.as_source(X))
    with pytest.raises(ParameterError, match="no weights"):
        small().fit(source, sample_weight=np.ones(3000))
    with pytest.raises(ParameterError, match="one noise, but noise has 3000 entries"):
        small(noise=np.ones(3000)).fit(source)
    with pytest.raises(ParameterError, match="device= is for rows in memory"):
        small(device="cuda").fit(source)
    for name in ("exact", "cg", "sod", "pitc", "pic"):
        with pytest.raises(ParameterError, match="needs all rows at once; for rows in parts choose one of"):
            small(approximation=name).fit(source)
    with pytest.raises(ParameterError, match="recipe 'pitc' needs all rows at once"):
        small(recipe="pitc").fit(source)
    for wrong in (-1, 2.5, "many"):
        with pytest.raises(ParameterError, match="full_iter must be a whole number"):
            small(full_iter=wrong).fit(source)
    with pytest.raises(ParameterError, match="no joint covariance"):
        model.predict(folder, return_cov=True)
    for call in (lambda: model.sample_y(source), lambda: small().fit(X, source)):
        with pytest.raises(ShapeError, match="X and y must be arrays here"):
            call()
    with pytest.raises(ParameterError, match="X is a source; give a sample of its rows"):
        ig.diagnose(model.fit_result_, source, None)
    with pytest.raises(ShapeError, match="X has 2 columns, but the model was fitted to 3"):
        model.predict(ig.as_source(X[:, :2]))
    with pytest.raises(ParameterError, match="validation_fraction must lie in"):
        small(validation_fraction=1.5).fit(source)
    assert not is_parted(X.tolist())


# the command line


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


QUICK = ("-m", 10, "--max-iter", 20, "--full-iter", 2)


def test_fit_and_predict_on_folders_and_globs(folder, data, tmp_path):
    X, y = data
    result = run(
        "fit", folder / "*.parquet", "--target", "y", "--exclude", "c", "--out", tmp_path / "m", *QUICK
    )
    for words in ("training rows", "held-out rows", "2 columns, 2 features", "SMSE", "coverage"):
        assert words in result.output
    evaluations = ig.load(tmp_path / "m").metadata_["evaluations"]
    assert evaluations["count"] > 2  # one for each iteration, and one before them
    assert (
        f"{evaluations['count']}, {evaluations['seconds'] / evaluations['count']:.2g} s each" in result.output
    )
    held_out = ig.load(tmp_path / "m").metadata_["held_out"]
    assert held_out["SMSE"] < 0.05 and held_out["MSLL"] < -1 and 0.9 < held_out["coverage of 95 %"] < 0.99
    run("predict", tmp_path / "m", folder, "--out", tmp_path / "said.parquet")
    said = pd.read_parquet(tmp_path / "said.parquet")
    assert list(said.columns) == [*NAMES, "y", "y_mean", "y_std"]
    np.testing.assert_array_equal(said[NAMES], X)
    np.testing.assert_allclose(said["y_mean"], ig.load(tmp_path / "m").predict(said[["a", "b"]]), rtol=1e-10)
    run("predict", tmp_path / "m", folder / "[01].parquet", "--out", tmp_path / "said.csv")
    assert len(pd.read_csv(tmp_path / "said.csv")) == 1200
    assert is_large(folder) and not is_large(folder / "0.parquet") and not is_large(tmp_path / "said.csv")


def test_text_and_missing_values_in_parts(tmp_path):
    rng = np.random.default_rng(0)
    for i, colours in enumerate((["red", "blue"], ["red", "green"])):
        table = pd.DataFrame({"x": rng.normal(size=200), "colour": rng.choice(colours, 200)})
        table["y"] = table["x"] + (table["colour"] == "green") + 0.1 * rng.normal(size=200)
        table.loc[7, "x"] = np.nan if i else 0.0
        table.to_parquet(tmp_path / f"{i}.parquet")
    assert (
        "1 columns"
        not in run("fit", tmp_path, "-t", "y", "-o", tmp_path / "m", *QUICK, "--drop-missing").output
    )
    assert ig.load(tmp_path / "m").encoder_.columns_[-1].levels == ("blue", "green", "red")
    wrong = run("predict", tmp_path / "m", tmp_path, "-o", tmp_path / "p.parquet", code=1)
    assert "1 of 200 rows have missing values" in wrong.stderr and not (tmp_path / "p.parquet").exists()
    run(
        "predict",
        tmp_path / "m",
        tmp_path / "[01].parquet",
        "-o",
        tmp_path / "said.parquet",
        "--allow-missing",
    )
    assert pd.read_parquet(tmp_path / "said.parquet")["y_mean"].isna().sum() == 1


def test_wrong_calls_end_with_one_line(folder, tmp_path):
    for arguments, words in (
        (("-t", "z"), "has no column 'z'"),
        (("-t", "y", "--exclude", "z"), "has no column 'z'"),
        (("-t", "y", "--exclude", "y"), "both the target and excluded"),
    ):
        assert words in run("fit", folder, *arguments, "-o", tmp_path / "m", code=1).stderr
    assert (
        "no parquet files" in run("fit", tmp_path / "none*", "-t", "y", "-o", tmp_path / "m", code=1).stderr
    )
    with pytest.raises(ColumnError):
        small().fit(folder, "z")


@pytest.mark.skipif("INDUCING_DATA" not in os.environ, reason="real data: INDUCING_DATA is not set")
def test_flights_in_quick_form(tmp_path):
    """The pipeline from the table to the page; what a small fit says of late flights is no worse than
    nothing.
    """
    report = reproduce("F1", quick=True, folder=tmp_path)
    assert all(claim.holds for claim in report.claims[:4])  # time, evaluations, memory, size
    losses = [float(row[1]) for row in report.tables[0].rows]
    assert losses[4] < losses[0] and losses[2] < losses[1] < losses[0]
    assert (tmp_path / "F1" / "flights.png").stat().st_size > 10_000


def test_the_judges_rows_are_held_out_of_the_passes_over_everything(monkeypatch):
    """Rows that judge are in no pass that learns: those whose keys are below that of the last judge."""
    rows = np.random.default_rng(8).uniform(-2, 2, (3000, 1))
    source = ig.as_source(rows, np.sin(rows[:, 0]), chunk_rows=500)
    used, kept = [], outofcore.Kept
    monkeypatch.setattr(outofcore, "Kept", lambda *told, **more: used.append(kept(*told, **more)) or used[-1])
    model = ig.SparseGPRegressor(
        approximation="vfe", n_inducing=5, max_iter=3, full_iter=2, random_state=0, validation_fraction=0.1
    ).fit(source)
    assert model.fit_result_.n_evaluations > 0
    part = next(source.parts())
    outside = [change for change in used if not change.inside]
    assert outside and 0 < len(outside[-1](part).X) < len(part.X)
