"""Noise that follows the inputs, learned from what rows along neighbours leave of each other."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing import errors

RNG = np.random.default_rng(5)
X = RNG.uniform(0, 1, (700, 2))
NOISY = X[:, 0] > 0.5
Y = np.sin(14 * X[:, 0]) * np.cos(12 * X[:, 1]) + np.where(NOISY, 0.5, 0.03) * RNG.standard_normal(700)


@pytest.fixture(scope="module")
def model() -> ig.SparseGPRegressor:
    options = {"n_inducing": 20, "neighbours": 10, "random_state": 0, "max_iter": 30}
    return ig.SparseGPRegressor("matern52", "neighbours", noise="learned", **options).fit(X, Y)


def test_noise_follows_the_inputs(model: ig.SparseGPRegressor, tmp_path: object) -> None:
    quiet, loud = model.predict(np.array([[0.2, 0.5], [0.8, 0.5]]), return_std=True)[1]
    assert quiet < 0.15 and 0.35 < loud < 0.7
    assert isinstance(model.posterior_, ig.NeighboursPredictor) and model.noise_posterior_ is not None
    assert model.approximation_ == "neighbours"


def test_a_file_holds_both_processes(model: ig.SparseGPRegressor, tmp_path: object) -> None:
    path = f"{tmp_path}/model"
    model.save(path)
    again = ig.load(path)
    for a, b in zip(
        again.predict(X[:20], return_std=True), model.predict(X[:20], return_std=True), strict=True
    ):
        assert_allclose(a, b, rtol=1e-9)
    x = (X[3] - model.x_mean_) / model.x_scale_
    mean, variance = again.observations_.compile()(x)  # both processes are compiled
    expected = model.predict(X[3:4], return_std=True)
    assert_allclose(mean * model.y_scale_ + model.y_mean_, expected[0][0], rtol=1e-9)
    assert_allclose(np.sqrt(variance) * model.y_scale_, expected[1][0], rtol=1e-7)


def test_left_out_errors_see_each_rows_own_noise() -> None:
    kernel, basis = ig.kernels.Matern32(0.4), ig.bases.Points(X[:10])
    noise = np.where(NOISY, 0.25, 0.001)
    left = ig.leave_one_out(kernel, basis, "neighbours", noise, X, Y, neighbours=10)
    z = left.error / left.std
    for part in (NOISY, ~NOISY):
        assert 0.8 < np.std(z[part]) < 1.2


def test_what_has_no_evidence_is_refused() -> None:
    with pytest.raises(errors.ParameterError, match="no evidence along neighbours; use noise='learned'"):
        ig.SparseGPRegressor(approximation="neighbours", n_inducing=5, noise="learned-jointly").fit(X, Y)
