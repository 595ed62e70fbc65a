"""The scikit-learn surface: its contract in full, units, weights, and what it says about bad input."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import inducing as ig
from inducing import errors
from inducing.inference.regression import NAMES


@parametrize_with_checks(
    [ig.SparseGPRegressor(), ig.SparseGPRegressor(n_inducing=8), ig.SparseGPRegressor(approximation="exact")]
)
@pytest.mark.filterwarnings("ignore::inducing.errors.ReducedBasisWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def make_data(n=80, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, d))
    return X, 5.0 + np.sin(X[:, 0]) * (X[:, 1] if d > 1 else 1.0) + 0.1 * rng.standard_normal(n)


def quick(**parameters):
    return ig.SparseGPRegressor(**({"n_inducing": 12, "max_iter": 15, "random_state": 0} | parameters))


X, y = make_data()
XS = make_data(30, seed=1)[0]


# The estimator against the core.


@pytest.mark.parametrize("basis", ["points", "multiscale"])
@pytest.mark.parametrize("name", NAMES)
def test_every_approximation_fits_and_predicts(name, basis):
    model = quick(approximation=name, basis=basis, max_iter=40).fit(X, y)
    truth = 5.0 + np.sin(XS[:, 0]) * XS[:, 1]
    assert model.score(XS, truth) > (0.4 if name == "sod" else 0.9)
    mean, std = model.predict(XS, return_std=True)
    _, covariance = model.predict(XS, return_cov=True)
    assert mean.shape == std.shape == (30,) and covariance.shape == (30, 30)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-6)
    np.testing.assert_allclose(model.predict(XS), mean, rtol=1e-7)
    assert model.sample_y(XS, 3).shape == (30, 3)


def test_without_standardising_it_is_the_core():
    Z = X[:10]
    kernel = ig.kernels.RBF([1.0, 2.0], 3.0)
    model = ig.SparseGPRegressor(
        kernel, "fitc", inducing=Z, noise=0.3, optimize=None, standardize=False, mean=ig.means.Constant(5.0)
    ).fit(X, y)
    post = ig.condition(kernel, ig.bases.Points(Z), "fitc", 0.3, X, y, mean=ig.means.Constant(5.0))
    mean, variance = post.predict(XS)
    np.testing.assert_allclose(model.predict(XS), mean, rtol=1e-9)
    np.testing.assert_allclose(
        model.predict(XS, return_std=True, latent=True)[1], np.sqrt(variance), rtol=1e-9
    )
    np.testing.assert_allclose(model.predict(XS, return_std=True)[1], np.sqrt(variance + 0.3), rtol=1e-9)
    np.testing.assert_allclose(
        model.predict(XS, return_cov=True, latent=True)[1], post.covariance(XS), atol=1e-9
    )
    np.testing.assert_allclose(
        model.predict(XS, return_cov=True)[1], post.covariance(XS) + 0.3 * np.eye(30), atol=1e-9
    )
    assert model.log_evidence_ == pytest.approx(post.log_evidence)
    assert model.noise_ == pytest.approx(0.3)


def test_standardising_is_a_change_of_units_of_the_core():
    """Lengthscales and noise are in the user's units, the kernel's variance is of standardised targets."""
    Z = X[:10]
    model = ig.SparseGPRegressor(ig.kernels.RBF([1.0, 2.0], 0.7), inducing=Z, noise=0.3, optimize=None).fit(
        X, y
    )
    scale = y.std()
    kernel = ig.kernels.RBF([1.0, 2.0], 0.7 * scale**2)
    post = ig.condition(kernel, ig.bases.Points(Z), "fitc", 0.3, X, y, mean=ig.means.Constant(y.mean()))
    mean, variance = post.predict(XS)
    np.testing.assert_allclose(model.predict(XS), mean, rtol=1e-8)
    np.testing.assert_allclose(
        model.predict(XS, return_std=True, latent=True)[1], np.sqrt(variance), rtol=1e-6
    )
    assert model.log_evidence_ == pytest.approx(post.log_evidence, rel=1e-9)
    assert model.noise_ == pytest.approx(0.3)
    np.testing.assert_allclose(model.x_mean_, X.mean(axis=0))
    np.testing.assert_allclose(model.x_scale_, X.std(axis=0))
    assert model.y_mean_ == pytest.approx(y.mean()) and model.y_scale_ == pytest.approx(scale)


def test_several_outputs_share_a_variance_in_their_own_units():
    Y = np.column_stack([y, 1000.0 * X[:, 0] ** 2, np.full(len(y), 3.0)])
    model = quick().fit(X, Y)
    mean, std = model.predict(XS, return_std=True)
    _, covariance = model.predict(XS, return_cov=True)
    assert mean.shape == std.shape == (30, 3) and covariance.shape == (30, 30, 3)
    np.testing.assert_allclose(std[:, 1] / std[:, 0], model.y_scale_[1] / model.y_scale_[0], rtol=1e-9)
    np.testing.assert_allclose(np.einsum("iij->ij", covariance), std**2, rtol=1e-6)
    np.testing.assert_allclose(mean[:, 2], 3.0, rtol=1e-6)
    assert model.noise_.shape == model.y_scale_.shape == (3,)
    assert model.sample_y(XS, 4).shape == (30, 3, 4)
    assert model.score(XS, model.predict(XS)) == 1.0


def test_given_noise_scales_outputs_alike():
    Y = np.column_stack([y, 100.0 * y])
    model = quick(noise=0.5, fixed=("noise",)).fit(X, Y)
    np.testing.assert_allclose(model.noise_, 0.5)
    assert model.y_scale_[0] == model.y_scale_[1]


def test_samples_follow_the_joint_distribution():
    model = quick(max_iter=40).fit(X, y)
    draws = model.sample_y(XS[:4], 20_000, random_state=1)
    mean, covariance = model.predict(XS[:4], return_cov=True)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=5 * np.sqrt(covariance.max() / 20_000))
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.05 * covariance.max())
    latent = model.sample_y(XS[:4], 20_000, random_state=1, latent=True)
    np.testing.assert_allclose(
        np.cov(latent), model.predict(XS[:4], return_cov=True, latent=True)[1], atol=0.05 * covariance.max()
    )
    np.testing.assert_array_equal(draws, model.sample_y(XS[:4], 20_000, random_state=1))


def test_noise_per_row_is_known_and_no_new_row_has_it():
    noise = np.where(X[:, 0] > 0, 1.0, 0.01)
    model = quick(noise=noise).fit(X, y)
    assert model.noise_ is None
    _, std = model.predict(XS, return_std=True, latent=True)
    assert np.all(np.isfinite(std))
    for ask in (lambda: model.predict(XS, return_std=True), lambda: model.predict(XS, return_cov=True)):
        with pytest.raises(errors.ParameterError, match="latent=True"):
            ask()
    with pytest.raises(errors.ParameterError, match="latent=True"):
        model.sample_y(XS)


# Rows, weights, order.


@pytest.mark.parametrize("name", NAMES)
def test_integer_weights_are_repeated_rows_and_order_is_nothing(name):
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 4, len(y)).astype(float)
    order = rng.permutation(int(weights.sum()))
    repeat = np.repeat(np.arange(len(y)), weights.astype(int))[order]
    weighted = quick(approximation=name).fit(X, y, sample_weight=weights)
    repeated = quick(approximation=name).fit(X[repeat], y[repeat])
    np.testing.assert_array_equal(weighted.predict(XS), repeated.predict(XS))
    assert weighted.log_evidence_ == repeated.log_evidence_


def test_weights_are_not_ignored():
    weights = np.where(X[:, 0] > 0, 10.0, 0.1)
    plain, weighted = quick().fit(X, y), quick().fit(X, y, sample_weight=weights)
    assert not np.allclose(plain.predict(XS), weighted.predict(XS), rtol=1e-3)
    assert weighted.y_mean_ == pytest.approx(np.average(y, weights=weights))


def test_more_points_than_rows_are_reduced_with_a_note():
    with pytest.warns(errors.ReducedBasisWarning, match="70 inducing points .* 20 different rows"):
        model = quick(n_inducing=70).fit(np.repeat(X[:20], 3, axis=0), np.repeat(y[:20], 3))
    assert model.basis_size_ == 20
    np.testing.assert_allclose(
        np.unique(model.posterior_.basis.Z * model.x_scale_ + model.x_mean_, axis=0),
        np.unique(X[:20], axis=0),
    )
    assert ig.SparseGPRegressor(max_iter=2).fit(X[:20], y[:20]).basis_size_ == 20  # the default says nothing


def test_rows_of_weight_zero_do_not_count_as_rows():
    weights = np.zeros(len(y))
    weights[:9] = 1.0
    assert ig.SparseGPRegressor(max_iter=2).fit(X, y, sample_weight=weights).basis_size_ == 9


def test_given_inducing_points_are_in_the_users_units():
    Z = np.array([[0.0, 0.0], [1.0, 2.0]])
    model = quick(inducing=Z, optimize="hyperparameters").fit(X, y)
    np.testing.assert_allclose(model.posterior_.basis.Z * model.x_scale_ + model.x_mean_, Z, atol=1e-12)


def test_duplicate_inducing_points_are_taken():
    model = quick(inducing=np.repeat(X[:6], 2, axis=0), optimize="hyperparameters").fit(X, y)
    assert np.all(np.isfinite(model.predict(XS, return_std=True)))
    with pytest.warns(errors.JitterWarning):
        quick(inducing=np.repeat(X[:6], 2, axis=0), jitter=0.0).fit(X, y)


# Units and awkward data.


@pytest.mark.parametrize("name", ["fitc", "vfe", "exact"])
def test_predictions_do_not_depend_on_units(name):
    """Powers of two change no digit; 10^±12 change the last."""
    model = quick(approximation=name).fit(X, y)
    mean, std = model.predict(XS, return_std=True)
    for units, exact in (([2.0**40, 2.0**-40], True), ([1e12, 1e-12], False)):
        for factor in (2.0**20,) if exact else (1e6,):
            other = quick(approximation=name).fit(X * units, y * factor)
            mean2, std2 = other.predict(XS * units, return_std=True)
            tolerance = 0 if exact else 1e-5
            np.testing.assert_allclose(mean2 / factor, mean, rtol=tolerance)
            np.testing.assert_allclose(std2 / factor, std, rtol=tolerance)
            np.testing.assert_allclose(other.noise_ / factor**2, model.noise_, rtol=tolerance)
            shift = len(y) * np.log(factor)
            assert other.log_evidence_ + shift == pytest.approx(model.log_evidence_, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "inputs", "targets"),
    [
        ("constant column", np.column_stack([X, np.full(len(X), 7.0)]), y),
        ("constant target", X, np.full(len(X), 7.0)),
        ("zero target", X, np.zeros(len(X))),
        ("one row", X[:1], y[:1]),
        ("two rows", X[:2], y[:2]),
        ("equal rows, different targets", np.ones((8, 2)), y[:8]),
        ("all rows equal", np.ones((8, 2)), np.ones(8)),
        ("far from the origin", X + 1e9, y + 1e9),
        ("huge", X * 1e200, y * 1e150),
        ("tiny", X * 1e-200, y * 1e-150),
        ("more columns than rows", np.random.default_rng(0).normal(size=(6, 40)), y[:6]),
        ("integers", np.arange(40).reshape(20, 2), np.arange(20)),
        ("single precision", X.astype(np.float32), y.astype(np.float32)),
        ("Fortran order", np.asfortranarray(X), y),
        ("lists", X.tolist(), y.tolist()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("approximation", ["fitc", "vfe", "exact"])
def test_awkward_data_just_work(name, inputs, targets, approximation):
    model = ig.SparseGPRegressor(approximation=approximation, max_iter=10, random_state=0).fit(
        inputs, targets
    )
    mean, std = model.predict(inputs, return_std=True)
    spread = np.ptp(targets) or max(abs(np.max(targets)), 1.0)
    assert np.all(np.isfinite(mean)) and np.all(np.isfinite(std)) and np.all(std > 0)
    assert np.all(np.abs(mean - targets) <= 1.5 * spread)
    assert np.isfinite(model.log_evidence_)


def test_the_constant_target_is_predicted():
    model = ig.SparseGPRegressor(max_iter=10).fit(X, np.full(len(X), 7.0))
    np.testing.assert_allclose(model.predict(XS), 7.0)


def test_kernels_by_name_by_value_and_composite():
    for kernel in ("matern32", ig.kernels.Matern52(2.0), ig.kernels.RBF([1.0, 1.0]) + ig.kernels.Linear(0.5)):
        assert quick(kernel=kernel, max_iter=30).fit(X, y).score(X, y) > 0.8
    model = quick(kernel="Matern32").fit(X, y)
    assert isinstance(model.kernel_, ig.kernels.Matern32) and np.shape(model.kernel_.lengthscale) == (2,)


def test_fixed_priors_restarts_progress_and_checkpoint_reach_the_fit(tmp_path):
    seen = []
    model = quick(
        kernel=ig.kernels.RBF([1.0, 1.0], 0.8),
        fixed=("kernel.variance",),
        restarts=1,
        checkpoint=tmp_path / "fit.npz",
        priors={"kernel.lengthscale": ig.LogNormal(1.0, 1e-3)},
        progress=lambda i, value: seen.append(i),
    ).fit(X, y)
    assert model.kernel_.variance == 0.8
    np.testing.assert_allclose(model.kernel_.lengthscale, 1.0, rtol=0.05)
    assert seen.count(1) == 2 and (tmp_path / "fit.npz").exists()


def test_silent_unless_asked(capfd):
    quick().fit(X, y)
    assert capfd.readouterr() == ("", "")
    quick(verbose=1).fit(X, y)
    assert "iteration" in capfd.readouterr().err


def test_the_same_seed_gives_the_same_model():
    one, two = quick(restarts=1).fit(X, y), quick(restarts=1).fit(X, y)
    np.testing.assert_array_equal(one.predict(XS), two.predict(XS))
    other = quick(inducing="random", random_state=1).fit(X, y)
    assert not np.array_equal(one.predict(XS), other.predict(XS))


def test_pic_sees_its_own_block():
    """With as many blocks as rows and a poor basis, PIC near a training row is far better than PITC."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 50, (150, 1))
    y = np.sin(X[:, 0])
    common = dict(
        inducing=np.array([[10.0], [40.0]]),
        n_blocks=10,
        optimize=None,
        noise=1e-4,
        random_state=0,
        kernel=ig.kernels.RBF(0.07 * X.std()),
    )
    pitc, pic = (ig.SparseGPRegressor(approximation=name, **common).fit(X, y) for name in ("pitc", "pic"))
    assert pic.score(X, y) > 0.99 > 0.5 > pitc.score(X, y)
    np.testing.assert_allclose(pic.predict(X, return_cov=True)[0], pic.predict(X))


# scikit-learn's machinery.


def test_pipeline_grid_search_and_clone():
    pipeline = make_pipeline(StandardScaler(), quick())
    search = GridSearchCV(
        pipeline,
        {"sparsegpregressor__n_inducing": [5, 15], "sparsegpregressor__approximation": ["fitc", "vfe"]},
        cv=2,
    ).fit(X, y)
    assert search.best_score_ > 0.5
    assert cross_val_score(quick(kernel="matern52"), X, y, cv=2).mean() > 0.5
    kernel = ig.kernels.RBF([1.0, 2.0])
    copy = clone(quick(kernel=kernel, inducing=X[:5], noise=0.1))
    assert copy.kernel.spec() == kernel.spec() and copy.noise == 0.1
    assert "n_inducing=12" in repr(quick())


@pytest.mark.parametrize("name", ["fitc", "exact", "pic"])
def test_pickling_keeps_predictions(name):
    model = quick(approximation=name).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(XS), model.predict(XS))


def test_data_frames_keep_their_names():
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = quick().fit(frame, pd.Series(y))
    assert list(model.feature_names_in_) == ["a", "b"] and model.n_features_in_ == 2
    np.testing.assert_array_equal(model.predict(frame), quick().fit(X, y).predict(X))
    with pytest.raises(errors.ColumnError, match="feature names"):
        model.predict(frame[["b", "a"]])


def test_metadata_of_a_loaded_model_end_with_a_new_fit(tmp_path):
    quick().fit(X, y).save(tmp_path / "model", metadata={"a": 1})
    model = ig.load(tmp_path / "model")
    assert model.metadata_ == {"a": 1}
    assert not hasattr(model.fit(X, y), "metadata_")


# Bad input.


def with_entry(array, value):
    array = np.array(array, dtype=float)
    array.flat[3] = value
    return array


@pytest.mark.parametrize(
    ("error", "words", "fit"),
    [
        (errors.NonFiniteError, "X holds NaN", lambda: quick().fit(with_entry(X, np.nan), y)),
        (errors.NonFiniteError, "X holds NaN or infinity", lambda: quick().fit(with_entry(X, np.inf), y)),
        (errors.NonFiniteError, "y contains NaN", lambda: quick().fit(X, with_entry(y, np.nan))),
        (errors.ShapeError, "1D array", lambda: quick().fit(X[:, 0], y)),
        (errors.ShapeError, "inconsistent numbers", lambda: quick().fit(X, y[:-1])),
        (errors.ShapeError, "sparse", lambda: quick().fit(scipy.sparse.csr_array(X), y)),
        (errors.ShapeError, "dim", lambda: quick().fit(X[None], y)),
        (errors.ShapeError, "expecting 2 features", lambda: quick().fit(X, y).predict(X[:, :1])),
        (errors.ShapeError, "feature", lambda: quick().fit(X[:, :0], y)),
        (errors.EmptyDataError, "0 sample", lambda: quick().fit(X[:0], y[:0])),
        (
            errors.ColumnError,
            "convert",
            lambda: quick().fit(X.astype(str).tolist()[:1] + [["a", "b"]], y[:2]),
        ),
        (errors.ShapeError, "sample_weight", lambda: quick().fit(X, y, sample_weight=np.ones(3))),
        (
            errors.ParameterError,
            "negative, .* -1",
            lambda: quick().fit(X, y, sample_weight=with_entry(np.ones(len(y)), -1)),
        ),
        (
            errors.NonFiniteError,
            "NaN",
            lambda: quick().fit(X, y, sample_weight=with_entry(np.ones(len(y)), np.nan)),
        ),
        (
            errors.EmptyDataError,
            "zero in every row",
            lambda: quick().fit(X, y, sample_weight=np.zeros(len(y))),
        ),
        (errors.NoiseError, "-1", lambda: quick(noise=-1.0).fit(X, y)),
        (errors.NoiseError, "positive", lambda: quick(noise=with_entry(np.ones(len(y)), 0.0)).fit(X, y)),
        (errors.ShapeError, "noise", lambda: quick(noise=np.ones(3)).fit(X, y)),
        (errors.UnknownNameError, "fitcc", lambda: quick(approximation="fitcc").fit(X, y)),
        (errors.UnknownNameError, "wide", lambda: quick(basis="wide").fit(X, y)),
        (errors.UnknownNameError, "best", lambda: quick(inducing="best").fit(X, y)),
        (errors.UnknownNameError, "some", lambda: quick(optimize="some").fit(X, y)),
        (errors.UnknownNameError, "polynomial", lambda: quick(kernel="polynomial").fit(X, y)),
        (errors.UnknownNameError, "3.0", lambda: quick(kernel=3.0).fit(X, y)),
        (errors.UnknownNameError, "kernel.period", lambda: quick(fixed=("kernel.period",)).fit(X, y)),
        (errors.ParameterError, "at least 1, but is 0", lambda: quick(n_inducing=0).fit(X, y)),
        (errors.ParameterError, "2.5", lambda: quick(n_inducing=2.5).fit(X, y)),
        (
            errors.ParameterError,
            "at least 1, but is 0",
            lambda: quick(approximation="pitc", n_blocks=0).fit(X, y),
        ),
        (errors.ParameterError, "pep", lambda: quick(power=0.5).fit(X, y)),
        (errors.ParameterError, "power", lambda: quick(approximation="pep", power=2.0).fit(X, y)),
        (errors.ParameterError, "jitter", lambda: quick(jitter=-1.0).fit(X, y)),
        (errors.ParameterError, "max_iter must be a whole number", lambda: quick(max_iter=-1).fit(X, y)),
        (errors.ParameterError, "max_iter must be a whole number", lambda: quick(max_iter=np.inf).fit(X, y)),
        (errors.ParameterError, "fixed must be a list", lambda: quick(fixed=5).fit(X, y)),
        (errors.ParameterError, "time_budget must .* nan", lambda: quick(time_budget=np.nan).fit(X, y)),
        (errors.ParameterError, "full_iter must be a whole number", lambda: quick(full_iter=-1).fit(X, y)),
        (
            errors.ParameterError,
            r"in \[0, 1\), but is 1",
            lambda: ig.SparseGPRegressor(validation_fraction=1.0).fit(X, y),
        ),
        (errors.ParameterError, r"in \[0, 1\), not 'x'", lambda: quick(validation_fraction="x").fit(X, y)),
        (errors.UnknownNameError, "both, rmse, log_loss, not 'x'", lambda: quick(objective="x").fit(X, y)),
        (errors.ParameterError, "level must", lambda: quick().fit(X, y).predict_interval(X, "0.9")),
        (errors.ParameterError, "RBF", lambda: quick(kernel="matern32", basis="multiscale").fit(X, y)),
        (errors.ShapeError, r"\(m, 2\)", lambda: quick(inducing=np.ones((4, 3))).fit(X, y)),
        (errors.NonFiniteError, "NaN", lambda: quick(inducing=with_entry(X[:4], np.nan)).fit(X, y)),
        (errors.ShapeError, "3 lengthscales", lambda: quick(kernel=ig.kernels.RBF(np.ones(3))).fit(X, y)),
        (
            errors.ParameterError,
            "both",
            lambda: quick().fit(X, y).predict(X, return_std=True, return_cov=True),
        ),
    ],
)
def test_bad_input_has_a_named_error(error, words, fit):
    with pytest.raises(error, match=words):
        fit()


def test_a_missing_device_is_named():
    pytest.importorskip("torch")
    with pytest.raises(errors.ParameterError, match="device='cuda:99'"):
        quick(device="cuda:99").fit(X, y)


def test_devices_agree():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
        for name in ("fitc", "vfe", "exact"):
            model = quick(approximation=name, device=device).fit(X, y)
            mean, std = model.predict(XS, return_std=True)
            expected = quick(approximation=name).fit(X, y).predict(XS, return_std=True)
            assert isinstance(mean, np.ndarray)
            np.testing.assert_allclose((mean, std), expected, rtol=1e-4)


def test_no_warning_on_ordinary_data():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ig.SparseGPRegressor(max_iter=20).fit(*make_data(150)).predict(XS, return_std=True)


@pytest.mark.parametrize("kind", [ig.SparseGPRegressor, ig.SparseGPClassifier])
def test_periods_are_in_the_users_units(kind):
    rng = np.random.default_rng(0)
    years, size = rng.uniform(1990, 2020, 120), rng.normal(size=120)
    y = np.sin(2 * np.pi * years) + 0.05 * rng.standard_normal(120)
    X = np.column_stack([size, years])
    kernel = ig.kernels.Periodic(1.0, period=1.0, columns=[1]) * ig.kernels.RBF(3.0, columns=[0])
    target, options = y, dict(n_inducing=30, max_iter=20, random_state=0)
    if kind is ig.SparseGPClassifier:
        target = y > 0
    model = kind(kernel=kernel, optimize="hyperparameters", **options).fit(X, target)
    assert float(model.kernel_.parameters["0.period"]) == pytest.approx(1.0, rel=0.01)
    late = np.column_stack([np.zeros(200), np.linspace(2030, 2032, 200)])  # ten years on, it repeats
    if kind is ig.SparseGPRegressor:
        assert np.corrcoef(model.predict(late), np.sin(2 * np.pi * late[:, 1]))[0, 1] > 0.9


@pytest.mark.parametrize(("names", "words"), [("aa", "two columns named 'a'"), ("ba", "in the same order")])
def test_columns_that_repeat_or_come_in_another_order_are_one_line(names, words):
    import pandas as pd

    A = np.random.default_rng(0).standard_normal((30, 2))
    model = ig.SparseGPRegressor(n_inducing=5, max_iter=1, random_state=0)
    model.fit(pd.DataFrame(A, columns=["a", "b"]), A[:, 0])
    with pytest.raises(errors.ColumnError, match=words) as found:
        model.predict(pd.DataFrame(A, columns=list(names)))
    assert "\n" not in str(found.value)
