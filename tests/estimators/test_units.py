"""Lengthscales, periods and priors of the estimators are in the units of X, given, learned and saved."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing import errors

k = ig.kernels
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)) * [1000.0, 0.01] + [5000.0, 3.0]
U = (X - X.mean(axis=0)) / X.std(axis=0)
Y = np.sin(U[:, 0]) + 0.3 * U[:, 1] + 0.1 * RNG.standard_normal(60)
QUICK = dict(max_iter=5, random_state=0)


def test_a_kernel_given_is_the_one_of_the_raw_inputs():
    """The exact process of the raw inputs, written out, with nothing standardised but y."""
    kernel, noise = k.Matern32([900.0, 0.02], 0.8), 0.05
    model = ig.SparseGPRegressor(kernel, "exact", noise=noise, optimize=None).fit(X, Y)
    assert_allclose(model.kernel_.lengthscale, [900.0, 0.02], rtol=1e-12)
    t, unit = (Y - Y.mean()) / Y.std(), Y.var()
    K = kernel(X, X) + noise / unit * np.eye(60)
    mean = Y.mean() + Y.std() * kernel(X[:7] + 1e-3, X) @ np.linalg.solve(K, t)
    assert_allclose(model.predict(X[:7] + 1e-3), mean, rtol=1e-7)


@pytest.mark.parametrize(
    "kernel",
    [
        k.RBF(2.0),
        k.RationalQuadratic([3.0, 5.0], 1.0, 2.0),
        k.Periodic(0.7, period=4.0) * k.Matern12([2.0], columns=[1]),
        k.RBF([1.0], columns=[1]) + k.Linear(0.5),
        k.Projected(k.RBF(1.0), [[1.0, 2.0]]),
    ],
)
def test_units_there_and_back(kernel):
    scale = np.array([3.0, 0.5])
    inside = k.in_units(kernel, scale)
    if "Linear" not in str(kernel):  # whose variance is of the standardised inputs
        assert_allclose(inside(U / scale, U[:9] / scale), kernel(U, U[:9]), rtol=1e-12, atol=1e-15)
    again = k.in_units(inside, 1.0 / scale)
    for name, value in kernel.parameters.items():
        assert_allclose(again.parameters[name], value, rtol=1e-12)


@pytest.mark.parametrize(
    "kernel",
    [
        k.Levels(k.RBF([20.0, 1.0, 0.7, 0.8, 0.9]), [[0, 5.0], [0, 15.0], [0, 25.0]]) + k.RBF(2.0),
        k.Warped(k.RBF([20.0, 1.0, 0.7, 0.8]), [[0, 7.0, 3.0], [1, 2.5, 0.1]]) + k.RBF(2.0),
    ],
    ids=["levels", "warps"],
)
def test_levels_and_warps_stay_at_their_values(kernel):
    rng = np.random.default_rng(1)
    A = np.column_stack([rng.integers(0, 3, 40), rng.normal(size=40)]) * [10.0, 1.0] + [5.0, 2.0]
    scale, mean = np.array([4.0, 0.5]), np.array([9.0, 1.0])
    inside, S = k.in_units(kernel, scale, mean), (A - mean) / scale
    assert_allclose(inside(S, S), kernel(A, A), rtol=1e-12)
    assert_allclose(k.in_units(inside, 1.0 / scale, -mean / scale)(A, A), kernel(A, A), rtol=1e-12)


def test_of_uncertain_inputs_too():
    scale, v = np.array([3.0, 0.5, 9.0, 0.25]), np.abs(U) * 0.1
    kernel, A = k.Averaged(1.3), np.hstack([U, v])
    assert_allclose(k.in_units(kernel, scale)(A / scale, A / scale), kernel(A, A), rtol=1e-12)


@pytest.mark.parametrize("columns", [None, (0, 5)])
def test_a_kernel_of_other_inputs_is_refused(columns):
    with pytest.raises(errors.ShapeError, match="inputs"):
        k.in_units(k.RBF([1.0, 1.0, 1.0] if columns is None else 1.0, columns=columns), np.ones(2))


def test_what_was_learned_means_the_same_on_other_rows(tmp_path):
    model = ig.SparseGPRegressor("rbf", n_inducing=20, basis="points", **QUICK).fit(X, Y)
    assert_allclose(model.kernel_.lengthscale, model.posterior_.kernel.lengthscale * model.x_scale_)
    half = ig.SparseGPRegressor(model.kernel_, "exact", optimize=None, noise=model.noise_).fit(X[:30], Y[:30])
    assert_allclose(half.kernel_.lengthscale, model.kernel_.lengthscale, rtol=1e-12)
    assert not np.allclose(half.x_scale_, model.x_scale_, rtol=1e-3)
    half.save(tmp_path / "half")
    again = ig.load(tmp_path / "half")
    assert_allclose(again.kernel_.lengthscale, model.kernel_.lengthscale, rtol=1e-12)
    assert_allclose(again.kernel.lengthscale, model.kernel_.lengthscale, rtol=1e-12)


@pytest.mark.parametrize("kind", [ig.SparseGPRegressor, ig.OnlineGPRegressor, ig.SparseGPClassifier])
def test_priors_on_lengthscales_are_in_the_units_of_x(kind):
    wanted = np.array([700.0, 0.03])
    held = {"kernel.lengthscale": ig.LogNormal(wanted, 1e-3)}
    options = {"approximation": "vfe"} if kind is ig.SparseGPRegressor else {}
    model = kind("rbf", n_inducing=10, priors=held, max_iter=20, random_state=0, **options)
    assert_allclose(
        model.fit(X, Y > 0 if kind is ig.SparseGPClassifier else Y).kernel_.lengthscale, wanted, rtol=0.05
    )


@pytest.mark.parametrize("kind", [ig.SparseGPRegressor, ig.OnlineGPRegressor, ig.SparseGPClassifier])
def test_a_kernel_under_which_no_rows_are_related_is_said(kind):
    options = {"approximation": "vfe"} if kind is ig.SparseGPRegressor else {}
    model = kind(k.RBF([1e-6, 1e-6]), n_inducing=5, optimize=None, **options)
    with pytest.warns(errors.InducingWarning, match="lengthscales count the units of X, and the shortest is"):
        model.fit(X, Y > 0 if kind is ig.SparseGPClassifier else Y)


def test_machines_take_lengthscales_in_the_units_of_x():
    model = ig.MultiscaleKernelRidge(10, lengthscale=[900.0, 0.02], max_iter=0).fit(X, Y)
    assert_allclose(model.kernel_.lengthscale, [900.0, 0.02], rtol=1e-12)


@pytest.mark.parametrize(
    "kind",
    [
        ig.SparseGPRegressor,
        lambda **options: ig.SparseGPRegressor("matern32", "vfe", 8, **options),
        lambda **options: ig.SparseGPRegressor("auto", "fitc", 8, **options),
        ig.OnlineGPRegressor,
        lambda **options: ig.SparseGPClassifier(optimize=None, **options),  # else a race may take one
        lambda **options: ig.SparseGPClassifier(method="online", **options),
    ],
    ids="open named auto stream classes online".split(),
)
def test_each_input_has_a_lengthscale_unless_one_is_asked_for(kind, tmp_path):
    y = np.where(Y > np.median(Y), 1, 0) if "Classifier" in type(kind()).__name__ else Y
    for ard in (True, False):
        model = kind(ard=ard, **QUICK).fit(X, y)
        posterior = model.posteriors_[0] if hasattr(model, "classes_") else model.posterior_
        scales = [v for name, v in posterior.kernel.parameters.items() if name.endswith("lengthscale")]
        assert all(np.ndim(v) == 0 for v in scales) is not ard
        model.save(tmp_path / "model")
        assert ig.load(tmp_path / "model").ard is ard
    assert kind().ard is True
