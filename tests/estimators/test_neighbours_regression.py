"""Regression along neighbours as an estimator: its recipe, its report, and files that hold training rows."""

import os

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load_file, save_file

import inducing as ig
from inducing import errors
from inducing.files import models
from inducing.inference.near_rows import NearestRows
from inducing.learning import along_neighbours as recipe

RNG = np.random.default_rng(3)
X = RNG.uniform(0, 1, (900, 2))
Y = np.sin(20 * X[:, 0]) * np.cos(18 * X[:, 1]) + X[:, 0] + 0.05 * RNG.standard_normal(900)  # rough
XS = RNG.uniform(0, 1, (200, 2))
YS = np.sin(20 * XS[:, 0]) * np.cos(18 * XS[:, 1]) + XS[:, 0]


def quick(**parameters):
    options = {"approximation": "neighbours", "n_inducing": 20, "neighbours": 12, "random_state": 0}
    return ig.SparseGPRegressor(**(options | parameters))


@pytest.fixture(scope="module")
def model():
    return quick().fit(pd.DataFrame(X, columns=["a", "b"]), Y)


def rows(A):
    return pd.DataFrame(A, columns=["a", "b"])


def test_neighbours_follow_what_few_inducing_inputs_cannot(model):
    few = ig.SparseGPRegressor("matern32", "fitc", n_inducing=20, max_iter=60, random_state=0).fit(X, Y)
    errors_ = [
        np.sqrt(np.mean((predicted - YS) ** 2)) for predicted in (few.predict(XS), model.predict(rows(XS)))
    ]
    assert errors_[1] < 0.15 < errors_[0]
    assert isinstance(model.kernel_, ig.kernels.Matern32) and model.n_iter_ > 0
    assert isinstance(model.posterior_, ig.NeighboursPredictor) and model.posterior_.n_neighbours == 12


def test_its_numbers_are_those_of_condition_in_the_users_units(model):
    scaled = (X - model.x_mean_) / model.x_scale_, (Y - model.y_mean_) / model.y_scale_
    core = ig.condition(
        model.posterior_.kernel,
        model.posterior_.basis,
        "neighbours",
        model.fit_result_.noise,
        *scaled,
        neighbours=12,
        mean=model.posterior_.posterior.mean_function,
    )
    mean, variance = core.predict((XS - model.x_mean_) / model.x_scale_)
    own = model.predict(rows(XS), return_std=True)
    assert_allclose(own[0], mean * model.y_scale_ + model.y_mean_, rtol=1e-8)
    assert_allclose(own[1] ** 2, variance * model.y_scale_**2 + model.noise_, rtol=1e-7)
    assert_allclose(model.log_evidence_, core.log_evidence - len(X) * np.log(model.y_scale_), rtol=1e-9)


def test_the_report_says_what_neighbours_add(model):
    gain = model.report_.gain
    assert gain.neighbours == 12 and gain.rows == 90
    assert gain.error[1] < 0.5 * gain.error[0] and gain.log_loss[1] < gain.log_loss[0] - 0.3
    assert f"SMSE {gain.error[0]:.3g} without neighbours, {gain.error[1]:.3g} with 12" in str(model.report_)
    assert quick(validation_fraction=0.0, max_iter=1).fit(X, Y).report_.gain is None


def test_subsets_grow_to_all_rows_and_end_on_them(monkeypatch):
    sizes = []
    climb = recipe.Stage.run
    monkeypatch.setattr(recipe, "SUBSETS", (100, 300, 800))
    monkeypatch.setattr(recipe.Stage, "run", lambda stage: (sizes.append(stage.rows.n), climb(stage))[1])
    quick().fit(X, Y)
    assert sizes == [500, 500, 500, 100, 300, 810, 810]  # the last one with a basis that may move


@pytest.mark.parametrize(
    "options",
    [{}, {"optimize": "hyperparameters"}, {"optimize": None}, {"basis": "multiscale", "kernel": "rbf"}],
)
def test_other_ways_to_learn(options):
    inside = quick(max_iter=3, **options).fit(X[:200], np.stack([Y, -3 * Y], axis=1)[:200])
    mean, std = inside.predict(XS, return_std=True)
    assert mean.shape == std.shape == (200, 2)
    assert_allclose(mean[:, 1], -3 * mean[:, 0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("precision", ["double", "single"])
def test_a_file_holds_the_rows_and_says_how_large_it_is(model, precision, tmp_path):
    size = model.save(tmp_path / "model", {"note": 1}, precision=precision)
    assert size == (tmp_path / "model").stat().st_size
    arrays = load_file(tmp_path / "model")
    assert arrays["rows.X"].dtype == models.PRECISIONS[precision] and arrays["A.upper"].dtype == np.float64
    assert arrays["rows.X"].shape == (900, 2) and arrays["rows.residuals"].shape == (900, 1)
    again = ig.load(tmp_path / "model")
    assert again.get_params() == model.get_params() and again.metadata_ == {"note": 1}
    for options in ({"return_std": True}, {"return_cov": True}):
        for a, b in zip(model.predict(rows(XS), **options), again.predict(rows(XS), **options), strict=True):
            assert_array_equal(a, b) if precision == "double" else assert_allclose(a, b, atol=2e-4)
    assert_array_equal(again.predict(rows(XS)), again.predict(rows(XS), return_std=True)[0])
    assert_allclose(again.posterior_.gradient(X[:5]), model.posterior_.gradient(X[:5]), rtol=1e-3, atol=1e-3)


def test_single_precision_halves_the_rows(model, tmp_path):
    double, single = (model.save(tmp_path / p, precision=p) for p in ("double", "single"))
    assert abs((double - single) - 4 * (900 * 3 + 1)) <= 64  # and the padding of the header


@pytest.mark.parametrize("weights", [None, RNG.uniform(0.5, 2.0, 60)])
def test_a_predictor_of_the_core_comes_back_to_the_bit(weights, tmp_path):
    basis, kernel = ig.bases.Points(X[:7]), ig.kernels.RBF([0.2, 0.3]) + ig.kernels.Constant(0.3)
    options = {"neighbours": 5, "weights": weights, "mean": ig.means.Constant(0.4)}
    post = ig.condition(
        kernel, basis, "neighbours", 0.01, X[:60], np.stack([Y, Y**2], axis=1)[:60], **options
    )
    assert post.save(tmp_path / "model") == (tmp_path / "model").stat().st_size
    again = ig.load(tmp_path / "model")
    assert isinstance(again, ig.NeighboursPredictor) and again.log_evidence == post.log_evidence
    for one, two in zip(post.predict(XS), again.predict(XS), strict=True):
        assert_array_equal(one, two)
    assert_array_equal(post.covariance(XS), again.covariance(XS))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows.X", np.zeros((900, 3))),
        ("rows.residuals", np.zeros((899, 1))),
        ("rows.noise", np.array(-1.0)),
        ("rows.X", np.full((900, 2), np.nan)),
        ("rows.X", None),
    ],
)
def test_a_file_whose_rows_do_not_fit_is_refused(model, name, value, tmp_path):
    from safetensors import safe_open

    path = tmp_path / "model"
    model.save(path)
    with safe_open(path, framework="numpy") as file:
        head = file.metadata()
    arrays = load_file(path)
    arrays = arrays | {name: value} if value is not None else {k: v for k, v in arrays.items() if k != name}
    save_file(arrays, path, head | {"sha256": models.digest(head["model"], arrays)})
    with pytest.raises(errors.ModelFileError, match=name):
        ig.load(path)


def test_a_limit_on_the_file_is_kept_before_learning_and_when_saving(model, tmp_path):
    with pytest.raises(
        errors.ParameterError,
        match="900 training rows and 20 .* max_file_size is 5000; use approximation='fitc'",
    ):
        quick(max_file_size=5000).fit(X, Y)
    with pytest.raises(errors.ParameterError, match="a smaller n_inducing"):
        ig.SparseGPRegressor(approximation="fitc", n_inducing=100, max_file_size=5000).fit(X, Y)
    with pytest.raises(errors.ParameterError, match="max_file_size must be a whole number"):
        quick(max_file_size="1 MB").fit(X, Y)
    limited = quick(max_file_size=25_000, optimize=None).fit(X, Y)
    with pytest.raises(errors.ModelFileError, match="max_file_size is 25000; use precision='single'"):
        limited.save(tmp_path / "model")
    assert (
        not (tmp_path / "model").exists() and limited.save(tmp_path / "model", precision="single") <= 25_000
    )


def test_what_is_refused(model, tmp_path):
    near = model.posterior_
    for call in (
        lambda: near.prune(5),
        lambda: ig.kl_divergence(near, near),
        lambda: ig.update(near, ig.likelihoods.Gaussian(0.1), X[:2], Y[:2]),
    ):
        with pytest.raises(errors.ParameterError, match="a Posterior, and this predictor needs its data"):
            call()
    assert len(near.posterior.prune(5).basis) == 5
    every = ig.condition(
        model.kernel_, ig.bases.Points(X[:5]), "neighbours", 0.1, X[:30], Y[:30], neighbours=29
    )
    with pytest.raises(errors.ParameterError, match="1 outputs with 30 of 30 rows .* use predict"):
        every.compile()
    with pytest.raises(errors.ParameterError, match="precision must be one of double, single"):
        model.save(tmp_path / "model", precision="half")
    with pytest.raises(errors.ParameterError, match="whole number from 0 on"):
        quick(neighbours=-1).fit(X[:50], Y[:50])


@pytest.mark.parametrize("d", [1, 3, 8, 30])
def test_the_search_finds_the_nearest_rows(d):
    rng = np.random.default_rng(d)
    Z, Q = rng.standard_normal((700, d)), rng.standard_normal((300, d))
    Z[100:160] = Z[:60]  # equal rows
    N = NearestRows(Z)(Q, 9)
    s = np.sum((Q[:, None] - Z) ** 2, axis=2)  # (t, n)
    found = np.take_along_axis(s, N, axis=1)
    assert_allclose(found, np.sort(s, axis=1)[:, :9], rtol=1e-9)
    assert all(len(set(row)) == 9 for row in N)
    assert_array_equal(NearestRows(Z)(Q[:40], 9), N[:40])


def test_another_likelihood_along_neighbours(tmp_path):
    rng = np.random.default_rng(6)
    rate, rates = (np.exp(0.5 + np.sin(14 * A[:, 0]) * np.cos(12 * A[:, 1])) for A in (X[:700], XS))
    counts = rng.poisson(rate).astype(float)
    near = quick(likelihood="poisson", n_inducing=15).fit(X[:700], counts)
    assert isinstance(near.posterior_, ig.NeighboursPredictor)
    spread = np.std(rates)
    assert np.sqrt(np.mean((near.predict(XS) - rates) ** 2)) < 0.75 * spread
    low, high = near.predict_quantiles(XS, [0.05, 0.95]).T
    drawn = rng.poisson(rates)
    assert 0.8 < np.mean((low <= drawn) & (drawn <= high)) <= 1.0
    near.save(tmp_path / "model")
    assert_array_equal(ig.load(tmp_path / "model").predict(XS), near.predict(XS))


def test_the_basis_moves_where_held_out_rows_gain(monkeypatch):
    """A smooth function of six inputs gains from inducing inputs that are learned, noise alone does not."""
    rng = np.random.default_rng(0)
    A = rng.uniform(-2, 2, (1600, 6))
    smooth = np.sin(A.sum(axis=1)) + A[:, 0] ** 2 + 0.01 * rng.standard_normal(len(A))

    def fitted(y):
        return quick(kernel="rbf", neighbours=5).fit(A[:800], y[:800])

    def apart(one, other):
        return np.max(np.abs(one.posterior_.basis.Z - other.posterior_.basis.Z))

    noise = rng.permutation(smooth)
    free, unmoved = fitted(smooth), fitted(noise)
    monkeypatch.setattr(recipe, "FREED_ITERATIONS", ())
    still = fitted(smooth)
    error, before = (np.mean((model.predict(A[800:]) - smooth[800:]) ** 2) for model in (free, still))
    assert error < 0.8 * before and apart(free, still) > 0.01
    assert apart(unmoved, fitted(noise)) == 0.0


@pytest.mark.parametrize("fixed", [(), ("kernel.variance",)], ids=["learned", "held"])
def test_error_bars_widen_to_the_errors_of_left_out_rows(fixed):
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(300, 2))
    y = np.sin(9 * X[:, 0]) + 0.05 * rng.standard_normal(300)
    y[::60] += 1.5  # far from all else, which the evidence makes too little of
    kernel = ig.kernels.Matern32([0.3, 0.3], 1.0)
    fit = quick(kernel=kernel, neighbours=10, standardize=False, fixed=fixed).fit(X, y).fit_result_
    left = ig.leave_one_out(fit.kernel, fit.basis, "neighbours", fit.noise, X, y, neighbours=10)
    if fixed:
        assert fit.kernel.variance == 1.0
    else:
        assert_allclose(np.mean(left.error**2 / left.variance), 1.0, rtol=1e-9)


@pytest.mark.skipif("INDUCING_DATA" not in os.environ, reason="real data: INDUCING_DATA is not set")
def test_noise_that_few_rows_do_not_see_is_learned():
    """Of 32 inputs four matter: 500 rows are explained without noise, 1,000 are not."""
    data = ig.datasets.load("pumadyn32nm")
    rows, judges = (
        np.random.default_rng(0).permutation(n)[:1000] for n in map(len, (data.y_train, data.y_test))
    )
    y, ys = data.y_train[rows].ravel(), data.y_test[judges].ravel()
    model = quick(kernel="matern32", n_inducing=100, neighbours=20).fit(data.X_train[rows], y)
    assert 0.02 < model.noise_ / np.var(y) < 0.06  # learned from the first rows alone: 1e-6
    assert ig.metrics.smse(ys, model.predict(data.X_test[judges]), y) ** 0.5 < 0.245  # and .275
