"""Several outputs, categories, gaps and uncertain inputs through the regressor."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
import oracle
import oracle_outputs
from benchmarks.outputs import made
from inducing.errors import (
    ColumnError,
    EmptyDataError,
    InducingWarning,
    ModelFileError,
    NonFiniteError,
    ParameterError,
    ShapeError,
    UnknownNameError,
)

RNG = np.random.default_rng(5)
X = RNG.uniform(-2, 2, (30, 2))
XS = RNG.uniform(-2, 2, (7, 2))
Y = np.column_stack([np.sin(X[:, 0]), 0.5 * X[:, 1], np.cos(X[:, 0])]) + 0.1 * RNG.normal(size=(30, 3))
GAPPY = np.where(RNG.uniform(size=Y.shape) < 0.5, np.nan, Y)
HOLES = np.where(RNG.uniform(size=X.shape) < 0.3, np.nan, X)
RBF = ig.kernels.RBF([0.8, 1.3], 1.2)
HELD: dict[str, Any] = dict(optimize=None, random_state=0)


def test_coregionalised_outputs_are_the_dense_gp() -> None:
    noise = np.array([0.04, 0.04, 0.04])
    model = ig.SparseGPRegressor(
        RBF, "exact", outputs="coregionalised", rank=1, noise=0.04, standardize=False, **HELD
    ).fit(X, GAPPY)
    B = oracle_outputs.levels(np.full((3, 1), np.sqrt(0.5)), np.full(3, 0.5))  # where it starts
    k = oracle.bind(oracle.rbf, lengthscale=np.array([0.8, 1.3]), variance=1.2)
    mean, covariance, evidence = oracle_outputs.coregionalised(k, B, noise, X, GAPPY, XS)
    assert model.log_evidence_ == pytest.approx(evidence, rel=1e-9)
    assert_allclose(model.predict(XS), mean, atol=1e-9)
    assert_allclose(model.predict(XS, return_cov=True, latent=True)[1], covariance, atol=1e-9)
    std = np.sqrt(np.diag(covariance.reshape(21, 21)).reshape(7, 3) + noise)
    assert_allclose(model.predict(XS, return_std=True)[1], std, rtol=1e-9)
    total = model.predict(XS, return_cov=True)[1].reshape(21, 21)
    assert_allclose(np.sqrt(np.diag(total)).reshape(7, 3), std, rtol=1e-9)
    draws = model.sample_y(XS[:2], 4000)
    assert draws.shape == (2, 3, 4000)
    joint = model.predict(XS[:2], return_cov=True)[1].reshape(6, 6)
    assert_allclose(np.cov(draws.reshape(6, -1)), joint, atol=0.12)


def test_each_entry_left_out_is_a_dense_gp_without_it() -> None:
    """In awkward units, with a noise for each output: the dense process of the other entries."""
    scale, shift = np.array([1.0, 100.0, 0.01]), np.array([0.0, -7.0, 3.0])
    model = ig.SparseGPRegressor("rbf", "exact", outputs="coregionalised", rank=1, max_iter=3, random_state=0)
    left = model.fit(X, GAPPY * scale + shift).loo_
    assert left.mean.shape == (30, 3) and np.array_equal(np.isnan(left.mean), np.isnan(GAPPY))
    base, levels = model.posterior_.kernel.parts
    B = oracle_outputs.levels(levels.W, levels.kappa)
    k = oracle.bind(oracle.rbf, lengthscale=base.lengthscale, variance=base.variance)
    A, U = (
        (X - model.x_mean_[:2]) / model.x_scale_[:2],
        (GAPPY * scale + shift - model.y_mean_) / model.y_scale_,
    )
    noise = model.noise_ / model.y_scale_**2
    for i, q in np.argwhere(~np.isnan(GAPPY))[::7]:
        without = U.copy()
        without[i, q] = np.nan
        mean, covariance, _ = oracle_outputs.coregionalised(k, B, noise, A, without, A[i : i + 1])
        assert_allclose(left.mean[i, q], mean[0, q] * model.y_scale_[q] + model.y_mean_[q], rtol=1e-6)
        variance = covariance.reshape(3, 3)[q, q] + noise[q]
        assert_allclose(left.std[i, q], np.sqrt(variance) * model.y_scale_[q], rtol=1e-6)
        z = (U[i, q] - mean[0, q]) ** 2 / variance
        density = -0.5 * (np.log(2 * np.pi * variance) + z) - np.log(model.y_scale_[q])
        assert_allclose(left.log_density[i, q], density, rtol=1e-6)


def test_each_output_has_its_units_and_noise() -> None:
    """In units a thousand times as large predictions and densities change as they must."""
    one = ig.SparseGPRegressor("rbf", "exact", outputs="coregionalised", max_iter=15, random_state=0)
    other = ig.SparseGPRegressor("rbf", "exact", outputs="coregionalised", max_iter=15, random_state=0)
    factor, shift = np.array([1.0, 1000.0, 0.01]), np.array([0.0, -70.0, 3.0])
    one.fit(X, GAPPY)
    other.fit(X, GAPPY * factor + shift)
    assert one.noise_.shape == (3,)
    assert_allclose(other.noise_, one.noise_ * factor**2, rtol=1e-3)
    assert_allclose(other.predict(XS), one.predict(XS) * factor + shift, rtol=1e-3)
    counts = np.sum(~np.isnan(GAPPY), axis=0)
    assert other.log_evidence_ == pytest.approx(one.log_evidence_ - counts @ np.log(factor), rel=1e-4)


def test_outputs_that_are_correlated_help_each_other() -> None:
    """Half of the targets not measured, a known correlation of 0.95: against independent models."""
    XA, YA = made(160, 3)
    y = np.where(np.random.default_rng(0).uniform(size=(60, 3)) < 0.5, np.nan, YA[:60])
    errors = {}
    for outputs in ("coregionalised", "independent"):
        model = ig.SparseGPRegressor("rbf", "exact", outputs=outputs, max_iter=30, random_state=0)
        errors[outputs] = np.mean((model.fit(XA[:60], y).predict(XA[60:]) - YA[60:]) ** 2)
    assert errors["coregionalised"] < 0.7 * errors["independent"]


def test_independent_outputs_are_models_of_their_own(tmp_path: Path) -> None:
    model = ig.SparseGPRegressor("rbf", "fitc", 8, outputs="independent", max_iter=5, random_state=0)
    model.fit(X, GAPPY)
    for q, target in enumerate(GAPPY.T):
        seen = ~np.isnan(target)
        alone = ig.SparseGPRegressor("rbf", "fitc", 8, max_iter=5, random_state=0).fit(X[seen], target[seen])
        assert_allclose(model.predict(XS, return_std=True)[1][:, q], alone.predict(XS, return_std=True)[1])
        assert_allclose(model.predict(XS)[:, q], alone.predict(XS))
    assert model.predict(XS, return_cov=True)[1].shape == (7, 7, 3)
    assert model.sample_y(XS, 2).shape == (7, 3, 2)
    model.save(tmp_path / "m.gp")
    back = ig.load(tmp_path / "m.gp")
    np.testing.assert_array_equal(back.predict(XS), model.predict(XS))
    assert back.outputs == "independent" and back.choice_ == [None] * 3
    with pytest.raises(ParameterError, match="leaving rows out needs the rows"):
        _ = back.loo_
    with pytest.raises(ModelFileError, match="several targets; load it without light=True"):
        ig.load(tmp_path / "m.gp", light=True)


HELD_FIT: dict[str, Any] = dict(kernel="rbf", approximation="exact", max_iter=3, random_state=0)


@pytest.mark.parametrize("before", [None, {"outputs": "shared"}, {"outputs": "coregionalised"}])
def test_independent_outputs_answer_what_their_models_do(before: dict[str, Any] | None) -> None:
    """The same whatever the estimator was fitted to before; a row without a value or weight has no answer."""
    model, weights = ig.SparseGPRegressor(**HELD_FIT), np.where(np.arange(30) == 4, 0.0, 1.0)
    if before is not None:
        earlier = model.set_params(**before).fit(X, Y if before["outputs"] == "coregionalised" else Y[:, 0])
        assert earlier.loo_.mean.shape[0] == 30
        earlier.scores_, earlier.metadata_ = np.ones(3), {"of": "another fit"}
    model.set_params(outputs="independent").fit(X, GAPPY, weights)
    left, intervals = model.loo_, model.predict_interval(XS, conformal="jackknife+")
    assert left.mean.shape == left.log_density.shape == (30, 3) and left.explained.shape == (3,)
    for q, target in enumerate(GAPPY.T):
        rows = ~np.isnan(target) & (weights > 0)
        alone = ig.SparseGPRegressor(**HELD_FIT).fit(X[rows], target[rows])
        for name in ("mean", "variance", "log_density", "error"):
            assert_allclose(getattr(left, name)[rows, q], getattr(alone.loo_, name))
            assert np.isnan(getattr(left, name)[~rows, q]).all()
        assert_allclose(intervals[:, q], alone.predict_interval(XS, conformal="jackknife+"))
    assert model.choice_ == model.likelihood_ == model.noise_posterior_ == [None] * 3
    assert model.noise_.shape == (3,) and not hasattr(model, "scores_") and not hasattr(model, "metadata_")
    for call in (lambda: model.relevance_, model.paths, model.sobol_indices, lambda: model.shapley(XS)):
        with pytest.raises(ParameterError, match="need one model; take those of each of `models_`"):
            call()
    back = model.set_params(outputs="shared").fit(X, Y[:, 0])
    assert back.loo_.mean.shape == (30,) and back.choice_ is back.likelihood_ is back.noise_posterior_ is None


def test_noise_learned_for_one_of_independent_outputs_is_none_there(tmp_path: Path) -> None:
    model = ig.SparseGPRegressor("rbf", "vfe", 8, outputs="independent", noise="learned", max_iter=5)
    model.fit(X, Y[:, :2]).save(tmp_path / "m.gp")
    for each in (model, ig.load(tmp_path / "m.gp")):
        assert each.noise_ == [None, None]
        assert [str(likelihood) for likelihood in each.likelihood_] == ["LearnedNoise()"] * 2
        assert all(process is not None for process in each.noise_posterior_)


def test_independent_outputs_know_the_columns_of_a_data_frame(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    kinds = np.array(["x", "y", "z"])[np.arange(30) % 3]
    frame = pd.DataFrame({"a": X[:, 0], "kind": kinds})
    model = ig.SparseGPRegressor(**HELD_FIT, outputs="independent").fit(frame, Y[:, :2])
    alone = ig.SparseGPRegressor(**HELD_FIT).fit(frame, Y[:, 0])
    assert_allclose(model.predict(frame)[:, 0], alone.predict(frame))
    model.save(tmp_path / "m.gp")
    assert_allclose(ig.load(tmp_path / "m.gp").predict(frame), model.predict(frame))


@pytest.mark.parametrize("outputs", ["shared", "independent", "coregionalised"])
def test_notebooks_show_several_outputs(outputs: str, tmp_path: Path) -> None:
    model = ig.SparseGPRegressor(**HELD_FIT, outputs=outputs).fit(X, Y)
    model.save(tmp_path / "m.gp")
    for each in (model, ig.load(tmp_path / "m.gp")):
        assert each._repr_html_().count("What was learned") == (3 if outputs == "independent" else 1)


@pytest.mark.parametrize(
    ("options", "y"),
    [
        ({"outputs": "coregionalised"}, GAPPY),
        ({"outputs": "coregionalised", "missing": "use"}, GAPPY),
        ({"missing": "use"}, Y[:, 0]),
        ({"missing": "use", "kernel": "matern32"}, Y[:, 0]),
        ({"categorical": [2], "kernel": "matern32"}, Y[:, 0]),
        ({"categorical": [2], "missing": "use"}, Y[:, 0]),
    ],
)
def test_files_bring_back_every_kind_of_column(options: dict[str, Any], y: Any, tmp_path: Path) -> None:
    table = np.column_stack([HOLES if "missing" in options else X, np.arange(30) % 4])
    model = ig.SparseGPRegressor(approximation="fitc", n_inducing=8, max_iter=3, random_state=0, **options)
    model.fit(table, y)
    model.save(tmp_path / "m.gp")
    back, queries = ig.load(tmp_path / "m.gp"), table[:9]
    for one, two in zip(model.predict(queries, return_std=True), back.predict(queries, return_std=True)):
        np.testing.assert_array_equal(one, two)
    assert np.all(np.isfinite(model.predict(queries)))
    assert (back.n_features_in_, back.get_params()) == (3, model.get_params())
    Z = model.posterior_.basis.Z
    assert np.all(Z[:, 2] == np.round(Z[:, 2])) or "categorical" not in options  # levels stayed levels


@pytest.mark.parametrize("Y", [Y, GAPPY])
def test_parts_of_a_source_give_the_same_outputs(Y: np.ndarray) -> None:
    Z = np.column_stack([np.repeat(X[::3], 3, axis=0), np.tile([0.0, 1.0, 2.0], 10)])
    model = ig.SparseGPRegressor(RBF, "vfe", inducing=Z, outputs="coregionalised", noise=0.1, **HELD)
    here = model.fit(X, Y).predict(XS, return_std=True)
    evidence, noise = model.log_evidence_, model.noise_
    there = model.fit(ig.as_source(X, Y, chunk_rows=8)).predict(
        ig.as_source(XS, chunk_rows=3), return_std=True
    )
    assert model.log_evidence_ == pytest.approx(evidence, rel=1e-9)
    assert_allclose(model.noise_, noise)
    for one, two in zip(here, there, strict=True):
        assert_allclose(two, one, rtol=1e-8)


@pytest.mark.parametrize("kernel", [RBF, "matern32"])
@pytest.mark.parametrize("missing", ["use", "drop"])
def test_gaps_in_parts_of_a_source_are_gaps_in_memory(kernel: Any, missing: str) -> None:
    """The Gaussian integral under the RBF kernel, indicators under another, and rows left out."""
    model = ig.SparseGPRegressor(kernel, "vfe", inducing=X[::3], missing=missing, noise=0.1, **HELD)
    queries = HOLES[:6] if missing == "use" else XS
    here = model.fit(HOLES, Y[:, 0]).predict(queries, return_std=True)
    evidence, known = model.log_evidence_, (model.n_gaps_, model.n_rows_)
    there = model.fit(ig.as_source(HOLES, Y[:, 0], chunk_rows=8)).predict(
        ig.as_source(queries, chunk_rows=4).with_gaps(), return_std=True
    )
    assert (model.n_gaps_, model.n_rows_) == known
    assert model.log_evidence_ == pytest.approx(evidence, rel=1e-9)
    for one, two in zip(here, there, strict=True):
        assert_allclose(two, one, rtol=1e-8)
    with pytest.raises(NonFiniteError, match="NaN"):
        ig.SparseGPRegressor(kernel).fit(ig.as_source(HOLES, Y[:, 0], chunk_rows=8))


def test_a_model_of_uncertain_inputs_is_an_average_of_the_model() -> None:
    """Its mean is the mean of f over what the input may be, by quadrature; certain ones are the RBF's."""
    rbf = ig.SparseGPRegressor(RBF, "exact", noise=0.04, **HELD).fit(X, Y[:, 0])
    model = ig.SparseGPRegressor(RBF, "exact", noise=0.04, **HELD).fit(X, Y[:, 0], x_std=0.0)
    assert_allclose(model.predict(XS, return_std=True), rbf.predict(XS, return_std=True), rtol=1e-8)
    steps = np.linspace(-8, 8, 401)
    weights = np.exp(-0.5 * steps**2) / np.sum(np.exp(-0.5 * steps**2))
    around = XS[0] + np.column_stack([0.5 * steps, 0.0 * steps])
    mean, std = model.predict(XS[:1], return_std=True, x_std=[0.5, 0.0])
    assert mean[0] == pytest.approx(weights @ rbf.predict(around), rel=1e-8)
    assert std[0] > rbf.predict(XS[:1], return_std=True)[1][0]
    covariance = model.predict(XS[:1], return_cov=True, x_std=[0.5, 0.0])[1]
    assert covariance[0, 0] == pytest.approx(std[0] ** 2, rel=1e-9)


@pytest.mark.parametrize("way", ["x_std", "gaps", "categories", "outputs"])
def test_one_lengthscale_is_that_of_every_number(way: str) -> None:
    """Columns of variances, levels and outputs have no lengthscale, and one number none for them."""
    wide, targets = X * [1.0, 50.0], Y if way == "outputs" else Y[:, 0]  # two units: one becomes two
    options: dict[str, Any] = HELD | {"outputs": "coregionalised", "noise": 0.04}
    fitting: dict[str, Any] = {"x_std": 0.1} if way == "x_std" else {}
    if way == "gaps":
        wide, options = HOLES * [1.0, 50.0], options | {"missing": "use"}
    if way == "categories":
        wide, options = np.column_stack([np.arange(30) % 3, wide]), options | {"categorical": [0]}
    one, each = (
        ig.SparseGPRegressor(ig.kernels.RBF(length, 1.2), "exact", **options).fit(wide, targets, **fitting)
        for length in (2.0, np.full(2, 2.0))
    )
    assert one.log_evidence_ == pytest.approx(each.log_evidence_, rel=1e-12)
    assert_allclose(one.predict(wide), each.predict(wide), rtol=1e-12)


def test_the_name_of_a_kernel_has_no_case_where_there_are_gaps() -> None:
    one, two = (
        ig.SparseGPRegressor(name, "exact", missing="use", **HELD).fit(HOLES, Y[:, 0])
        for name in ("RBF", "rbf")
    )
    assert one.log_evidence_ == two.log_evidence_ and one.kinds_.way == two.kinds_.way == "variances"


def test_a_level_of_a_data_frame_that_was_not_seen_is_none_of_those_known() -> None:
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"c": np.array(list("abc"))[np.arange(30) % 3], "x": X[:, 0]})
    new = pd.DataFrame({"c": ["a", "z"], "x": [0.5, 0.5]})
    y = Y[:, 0] > 0
    for kind, target, ask in (
        (ig.SparseGPRegressor, Y[:, 0], "predict"),
        (ig.SparseGPClassifier, y, "predict_proba"),
    ):
        options: dict[str, Any] = dict(n_inducing=5, max_iter=2, random_state=0)
        model = kind(allow_unseen=True, **options).fit(table, target)
        features = [[1, 0, 0, 0.5], [0, 0, 0, 0.5]]
        plain = kind(**options).fit(np.column_stack([np.eye(3)[np.arange(30) % 3], X[:, 0]]), target)
        with pytest.warns(InducingWarning, match="'c' hold levels not seen before, 'z': .* none of the"):
            answers = getattr(model, ask)(new)
        assert_allclose(answers, getattr(plain, ask)(features), rtol=1e-9)
        with pytest.raises(ColumnError, match="not seen: 'z'.* or pass allow_unseen"):
            kind(**options).fit(table, target).predict(new)


def test_noise_on_the_inputs_is_told_from_noise_on_the_output() -> None:
    rng = np.random.default_rng(0)
    truth = rng.uniform(-3, 3, 300)
    x = (truth + 0.4 * rng.normal(size=300))[:, None]
    y = np.sin(2 * truth) + 0.05 * rng.normal(size=300)
    at = np.linspace(-2, 2, 50)[:, None]
    told = ig.SparseGPRegressor("rbf", "exact", max_iter=40).fit(x, y, x_std=0.4).predict(at, x_std=0.0)
    plain = ig.SparseGPRegressor("rbf", "exact", max_iter=40).fit(x, y).predict(at)
    f = np.sin(2 * at[:, 0])
    assert np.mean((told - f) ** 2) < 0.8 * np.mean((plain - f) ** 2)  # not flattened by the errors


def test_rows_with_gaps_are_worth_using() -> None:
    """Learned from rows with gaps, asked at rows without: against means in gaps, and rows dropped."""
    rng = np.random.default_rng(1)
    a = rng.normal(size=(260, 3))
    a[:, 2] = 0.8 * a[:, 0] + 0.6 * a[:, 2]
    y = np.sin(1.5 * a[:, 0]) + a[:, 1] + 0.1 * rng.normal(size=260)
    holes = np.where(rng.uniform(size=a.shape) < 0.3, np.nan, a)
    train, test = slice(0, 160), slice(160, 260)
    filled = np.where(np.isnan(holes), np.nanmean(holes[train], axis=0), holes)

    def error(missing: str, rows: np.ndarray) -> tuple[float, ig.SparseGPRegressor]:
        model = ig.SparseGPRegressor("rbf", "exact", missing=missing, max_iter=40).fit(rows[train], y[train])
        return float(np.mean((model.predict(a[test]) - y[test]) ** 2)), model

    used, model = error("use", holes)
    assert used < 0.8 * min(error("refuse", filled)[0], error("drop", holes)[0])
    assert model.n_gaps_ == np.count_nonzero(np.isnan(holes[train]).any(axis=1))
    std = model.predict(holes[test], return_std=True)[1]
    mean, ends = model.predict(holes[test]), model.predict_quantiles(holes[test], [0.1, 0.9])
    assert_allclose(ends[:, 1] - ends[:, 0], 2 * 1.2815515655 * std, rtol=1e-8)
    density = -0.5 * (np.log(2 * np.pi * std**2) + (y[test] - mean) ** 2 / std**2)
    assert_allclose(model.log_density(holes[test], y[test]), density, rtol=1e-10)
    whole = ~np.isnan(holes[test, :2]).any(axis=1)
    assert np.mean(std[whole]) < 0.5 * np.mean(std[~whole])


def test_gaps_that_come_with_the_queries() -> None:
    """A fit to complete rows fills them by regression on the other columns, and says so."""
    a = np.random.default_rng(2).normal(size=(60, 2))
    a[:, 1] = 2.0 * a[:, 0] + 1.0
    model = ig.SparseGPRegressor("matern32", "exact", missing="use", **HELD).fit(a, a[:, 0])
    with pytest.warns(InducingWarning, match="3 rows have gaps in columns that had none"):
        filled = model.predict(np.column_stack([a[:3, 0], np.full(3, np.nan)]))
    assert_allclose(filled, model.predict(a[:3]), atol=1e-4)


def test_categories_are_learned() -> None:
    """Forty levels in two groups: as good as knowing the groups, and better than the codes as numbers."""
    rng = np.random.default_rng(2)
    codes, x = rng.integers(0, 40, 400), rng.uniform(-2, 2, 400)
    group = np.random.default_rng(3).integers(0, 2, 40)
    y = np.where(group[codes] == 0, np.sin(2 * x), -np.sin(2 * x) + 1.0) + 0.1 * rng.normal(size=400)
    table = np.column_stack([x, codes])
    options: dict[str, Any] = dict(n_inducing=40, approximation="fitc", kernel="rbf", max_iter=60)
    by_level = ig.SparseGPRegressor(categorical=[1], **options).fit(table[:250], y[:250])
    as_number = ig.SparseGPRegressor(**options).fit(table[:250], y[:250])
    error = np.mean((by_level.predict(table[250:]) - y[250:]) ** 2)
    assert error < 0.3 * np.mean((as_number.predict(table[250:]) - y[250:]) ** 2)
    assert np.all(by_level.x_scale_[1:] == 1.0)
    assert np.all(by_level.x_mean_[1:] == 0.0)


def test_a_level_that_was_not_seen() -> None:
    table = np.column_stack([X[:, 0], np.arange(30) % 3])
    new = np.array([[0.0, 5.0]])
    options: dict[str, Any] = dict(
        kernel="rbf", approximation="fitc", n_inducing=9, max_iter=5, random_state=0
    )
    with pytest.raises(ParameterError, match="level 5 in row 0, but the levels known are 0 to 2"):
        ig.SparseGPRegressor(categorical=[1], **options).fit(table, Y[:, 0]).predict(new)
    model = ig.SparseGPRegressor(categorical=[1], allow_unseen=True, **options).fit(table, Y[:, 0])
    with pytest.warns(InducingWarning, match="1 rows have a level of column 1 that was not seen"):
        std = model.predict(new, return_std=True)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert std > model.predict(np.array([[0.0, 1.0]]), return_std=True)[1]


HOLLOW = np.where(np.arange(30)[:, None] < [10, 0], np.nan, X)  # a gap in each row, in column 1 of most
HOLLOW[10:, 1] = np.nan
ALL_GAPS = "every row has a gap; use missing='use', or leave out column 1, which has 20"


@pytest.mark.parametrize("kind", [ig.SparseGPRegressor, ig.SparseGPClassifier])
def test_parts_of_a_source_without_a_complete_row_are_named(kind: Any) -> None:
    source = ig.as_source(HOLLOW, np.arange(30) % 2).with_gaps()
    with pytest.raises(EmptyDataError, match=ALL_GAPS):
        kind(missing="drop").fit(source)


@pytest.mark.parametrize(
    ("options", "X", "y", "kind", "message"),
    [
        ({}, X, GAPPY, NonFiniteError, "y"),
        ({}, HOLES, Y, NonFiniteError, "X"),
        ({"missing": "ignore"}, X, Y, UnknownNameError, "missing must be one of refuse, use, drop"),
        ({"outputs": "linear"}, X, Y, UnknownNameError, "outputs must be one of shared"),
        ({"outputs": "coregionalised"}, X, Y * [np.nan, 1, 1], EmptyDataError, "output 0 was never measured"),
        ({"categorical": [0]}, X, Y, ParameterError, "column 0 is categorical, but holds more than codes"),
        ({"categorical": [2]}, X, Y, ParameterError, "columns 0 to 1 by number, but has 2"),
        ({"missing": "use"}, X * [np.nan, 1], Y, EmptyDataError, "column 0 has no values"),
        ({"categorical": 2}, X, Y, ParameterError, "categorical must be a list of columns by number, not 2"),
        ({"missing": "drop"}, HOLLOW, Y[:, 0], EmptyDataError, ALL_GAPS),
        ({"missing": "drop", "outputs": "independent"}, HOLLOW, Y, EmptyDataError, ALL_GAPS),
        ({"missing": "drop", "outputs": "coregionalised"}, HOLLOW, Y, EmptyDataError, ALL_GAPS),
        ({}, X, GAPPY, NonFiniteError, "NaN.* outputs='coregionalised' takes NaN for entries not measured"),
        ({}, X.astype("datetime64[s]"), Y, ShapeError, "dates; convert it to numbers or to a data frame"),
    ],
)
def test_what_cannot_be_used_is_named(options: Any, X: Any, y: Any, kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        ig.SparseGPRegressor(**options).fit(X, y)


def test_uncertain_inputs_need_their_kernel_and_shape() -> None:
    with pytest.raises(ParameterError, match="x_std needs the RBF kernel"):
        ig.SparseGPRegressor("matern32").fit(X, Y[:, 0], x_std=0.1)
    with pytest.raises(ShapeError, match="x_std must hold standard deviations .* but holds -0.1"):
        ig.SparseGPRegressor("rbf").fit(X, Y[:, 0], x_std=-0.1)
    with pytest.raises(ShapeError, match=r"one for each entry of X \(30, 2\), but has shape \(3,\)"):
        ig.SparseGPRegressor("rbf").fit(X, Y[:, 0], x_std=np.ones(3))
    with pytest.raises(ColumnError, match="x_std must hold numbers, but holds text"):
        ig.SparseGPRegressor("rbf").fit(X, Y[:, 0], x_std="much")
    with pytest.raises(NonFiniteError, match="an estimator takes gaps by missing='use'"):
        ig.SparseGPRegressor("rbf").fit(np.where(X == X[0, 0], np.nan, X), Y[:, 0])
    model = ig.SparseGPRegressor("rbf", "exact", **HELD).fit(X, Y[:, 0])
    with pytest.raises(ParameterError, match="x_std was given to predict, but not to fit"):
        model.predict(XS, x_std=0.1)


def test_a_classifier_of_categories_and_gaps(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    table = np.column_stack([rng.normal(size=(240, 2)), rng.permutation(240) % 12])
    likely = np.where(np.isin(table[:, 2], (0, 3, 4, 8, 11)), 1.0, -1.0) * table[:, 0]
    y = np.where(likely + 0.1 * rng.normal(size=240) > 0, "yes", "no")
    table[rng.uniform(size=240) < 0.2, 1] = np.nan  # a column that does not matter
    options: dict[str, Any] = dict(missing="use", n_inducing=30, max_iter=40, random_state=0)
    by_level = ig.SparseGPClassifier(categorical=[2], **options).fit(table[:160], y[:160])
    as_number = ig.SparseGPClassifier(**options).fit(table[:160], y[:160])
    assert by_level.score(table[160:], y[160:]) > max(0.8, as_number.score(table[160:], y[160:]) + 0.05)
    by_level.save(tmp_path / "m.gp")
    back = ig.load(tmp_path / "m.gp")
    np.testing.assert_allclose(back.predict_proba(table), by_level.predict_proba(table), rtol=1e-10)
    with pytest.raises(ParameterError, match="drops no rows"):
        ig.SparseGPClassifier(missing="drop").fit(table, y)


def test_noise_is_learned_where_there_are_gaps(tmp_path: Path) -> None:
    """Noise that grows with an input, and gaps: the default has bands that grow; no page knows of gaps."""
    rng = np.random.default_rng(0)
    A = rng.uniform(-2, 2, (320, 2))
    b = np.sin(2 * A[:, 0]) + 0.5 * np.exp(A[:, 0] - 1) * rng.standard_normal(320)
    A[rng.random(A.shape) < 0.15] = np.nan
    few, rest = slice(0, 200), slice(200, None)
    model = ig.SparseGPRegressor(missing="use", random_state=0).fit(A[few], b[few])
    assert isinstance(model.likelihood_, ig.likelihoods.LearnedNoise)
    plain = ig.SparseGPRegressor("rbf", "exact", missing="use", random_state=0).fit(A[few], b[few])

    def loss(of: ig.SparseGPRegressor) -> float:
        mean, std = of.predict(A[rest], return_std=True)
        return float(np.mean(np.log(std) + 0.5 * ((b[rest] - mean) / std) ** 2))

    assert loss(model) < loss(plain) - 0.1
    with pytest.raises(ig.errors.ParameterError, match="knows of gaps"):
        model.explain(tmp_path / "page.html")


def test_many_levels_with_few_rows_each_are_alike() -> None:
    """Rows not seen lie in their intervals: free loadings of each level would fit the noise."""
    rng = np.random.default_rng(0)
    level, effect = np.arange(160) % 40, rng.normal(size=40)
    more, x = rng.integers(0, 40, 400), rng.uniform(-2, 2, 560)
    y = effect[np.append(level, more)] + np.sin(2.0 * x) + 0.2 * rng.standard_normal(560)
    table = np.column_stack([x, np.append(level, more)])
    model = ig.SparseGPRegressor(categorical=[1], random_state=0).fit(table[:160], y[:160])
    mean, std = model.predict(table[160:], return_std=True)
    assert np.sqrt(np.mean((y[160:] - mean) ** 2)) < 0.35
    assert np.mean(np.abs(y[160:] - mean) < 1.96 * std) > 0.75
