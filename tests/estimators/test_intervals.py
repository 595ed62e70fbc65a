"""What a fitted regressor knows: left-out rows, intervals with and without conformal correction, paths."""

import numpy as np
import pytest

import inducing as ig
from benchmarks.intervals import coverage_of, made, of_split


def _table(n=60):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 50, (n, 2))
    return X, 200 + 30 * np.sin(X[:, 0] / 8) + X[:, 1] + 3 * rng.standard_normal(n)


def _model(**options):
    return ig.SparseGPRegressor(n_inducing=12, max_iter=15, random_state=0, **options)


@pytest.mark.parametrize("approximation", ["fitc", "vfe", "exact", "neighbours", "pitc"])
def test_left_out_rows_are_in_the_users_order_and_units(approximation):
    X, y = _table()
    X[7], y[7] = X[3], y[3]  # the same row twice
    model = _model(approximation=approximation).fit(X, y)
    left = model.loo_
    assert left.mean.shape == left.std.shape == left.log_density.shape == (60,)
    same = 1e-2 if approximation == "neighbours" else 1e-6  # whose order tells equal rows apart
    assert left.mean[7] == pytest.approx(left.mean[3], rel=same)
    assert left.std[7] == pytest.approx(left.std[3], rel=10 * same)
    np.testing.assert_allclose(left.error, y - left.mean, rtol=1e-9)
    assert 0.5 < np.std(left.error / left.std) < 2.0
    density = -0.5 * (np.log(2 * np.pi * left.variance) + left.error**2 / left.variance)
    np.testing.assert_allclose(left.log_density, density, rtol=1e-8)


def test_left_out_equals_a_refit_with_all_else_held():
    X, y = _table()
    model = _model(approximation="fitc", basis="points").fit(X, y)
    rest, post = np.arange(60) != 5, model.fit_result_.posterior
    Xs, ys = (X - model.x_mean_) / model.x_scale_, (y - model.y_mean_) / model.y_scale_
    noise = model.noise_ / model.y_scale_**2
    own = ig.condition(post.kernel, post.basis, "fitc", noise, Xs[rest], ys[rest], mean=post.mean_function)
    mean, variance = own.predict(Xs[5:6])
    assert model.loo_.mean[5] == pytest.approx(mean[0] * model.y_scale_ + model.y_mean_, rel=1e-8)
    assert model.loo_.std[5] == pytest.approx(np.sqrt(variance[0] + noise) * model.y_scale_, rel=1e-6)


def test_left_out_rows_of_a_likelihood():
    X, y = _table()
    counts = np.round(np.exp((y - 200) / 20))
    model = _model(likelihood="poisson").fit(X, counts)
    left = model.loo_
    assert left.log_density.shape == (60,) and np.all(left.log_density < 0.0)
    mean, std = model.predict(X, return_std=True, latent=True)
    assert np.all(left.std > std - 1e-9)  # a row that is left out is known less


def test_intervals_without_correction_are_quantiles(tmp_path):
    X, y = _table()
    model = _model().fit(X, y)
    np.testing.assert_allclose(model.predict_interval(X, 0.8), model.predict_quantiles(X, [0.1, 0.9]))
    model.calibrate(X[:30], y[:30])
    split = model.predict_interval(X, 0.8, conformal="split")
    mean, std = model.predict(X, return_std=True)
    k = np.sort(np.abs(y - mean)[:30] / std[:30])[24]  # ⌈.8 · 31⌉ = 25
    np.testing.assert_allclose(split, np.stack([mean - k * std, mean + k * std], axis=1))
    model.save(tmp_path / "m.gp")
    np.testing.assert_allclose(
        ig.load(tmp_path / "m.gp").predict_interval(X, 0.8, conformal="split"), split, rtol=1e-9
    )
    with pytest.raises(ig.errors.ParameterError, match="fitted to sources or loaded from files have no rows"):
        ig.load(tmp_path / "m.gp").predict_interval(X, conformal="jackknife+")


@pytest.mark.parametrize("conformal", ["jackknife+", "split"])
@pytest.mark.parametrize("kind", ["heavy tails", "noise that grows"])
def test_conformal_intervals_hold_what_the_plain_ones_do_not(kind, conformal):
    """The mean coverage of 90 % intervals over few sets, within three standard errors."""
    sets = 2 if conformal == "split" else 4  # where each half calibrates in turn
    kept = [coverage_of(made(kind, seed, 300, 1000), conformal) for seed in range(sets)]
    promised, error = of_split(sets, 300, 1000)
    if conformal != "split":
        promised, error = 0.9, np.sqrt(0.09 / 300 / 4 + 0.09 / 1000 / 4) + 0.0017
    assert abs(np.mean(kept) - promised) < 3.0 * error


def test_the_error_of_split_is_that_of_its_law():
    """By draws: the share of 500 rows below the 46th of 50 scores, twice a set, 4 sets a mean."""
    rng = np.random.default_rng(0)
    levels = np.sort(rng.random((4000, 4, 2, 50)), axis=-1)[..., 45, None]
    rows = rng.random((4000, 4, 1, 500))
    means = (rows <= levels).mean(axis=(1, 2, 3))
    promised, error = of_split(4, 100, 500)
    assert means.mean() == pytest.approx(promised, abs=5 * error / np.sqrt(4000))
    assert means.std() == pytest.approx(error, rel=5 / np.sqrt(8000))


@pytest.mark.parametrize(
    "ask, sentence",
    [
        (lambda m, X: m.predict_interval(X, 1.5), "between 0 and 1"),
        (lambda m, X: m.predict_interval(X, conformal="magic"), "'jackknife\\+' or 'split'"),
        (lambda m, X: m.predict_interval(X, conformal="split"), "call calibrate"),
        (lambda m, X: m.calibrate(X, np.zeros(3)), "one target for each of 60 rows"),
    ],
)
def test_bad_requests(ask, sentence):
    X, y = _table()
    model = _model(optimize=None).fit(X, y)
    with pytest.raises(ig.errors.ParameterError, match=sentence):
        ask(model, X)


def test_paths_of_an_estimator_are_in_the_users_units():
    X, y = _table()
    model = _model(approximation="vfe").fit(X, y)
    paths = model.paths(2000, random_state=1)
    mean, std = model.predict(X, return_std=True, latent=True)
    values = paths(X)
    assert np.all(np.abs(values.mean(axis=0) - mean) < 6 * std / np.sqrt(2000) + 0.05)
    assert np.all(np.abs(values.std(axis=0) / std - 1) < 0.35)
    assert ig.probability_of_maximum(model, X).sum() == pytest.approx(1.0)
    np.testing.assert_allclose(ig.probability_above(model, X, -1e6), 1.0)
    near = _model(approximation="neighbours", optimize=None).fit(X, y)
    with pytest.raises(ig.errors.ParameterError, match="no whole functions"):
        near.paths()
