"""`SparseGPRegressor` under other likelihoods and with learned noise, against what the data were made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing.errors import LabelError, ParameterError, UnknownNameError
from inducing.model import likelihoods as L

rng = np.random.default_rng(0)
N = 240
X = rng.uniform(-2, 2, (N, 1))
GRID = np.linspace(-1.8, 1.8, 40)[:, None]
EXPOSURE = rng.uniform(0.5, 4.0, N)


def rate(x: np.ndarray) -> np.ndarray:
    return np.exp(3.0 + np.sin(2 * x[:, 0]))


def wave(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x[:, 0])


COUNTS = rng.poisson(EXPOSURE * rate(X)).astype(float)


def regressor(**options: Any) -> ig.SparseGPRegressor:
    return ig.SparseGPRegressor(n_inducing=12, random_state=0, **{"basis": "points"} | options)


@pytest.fixture(scope="module")
def poisson() -> ig.SparseGPRegressor:
    return regressor(likelihood="poisson").fit(1e3 * X, np.column_stack([COUNTS, EXPOSURE]))


def test_a_rate_is_recovered_from_counts_with_exposure(poisson: ig.SparseGPRegressor) -> None:
    mean, std = poisson.predict(1e3 * GRID, return_std=True)
    assert_allclose(mean, rate(GRID), rtol=0.12)
    assert np.all(std**2 > mean)  # a Poisson variance, and that of the rate
    assert_allclose(poisson.predict(1e3 * GRID, further=np.full(40, 10.0)), 10 * mean)
    f, spread = poisson.predict(1e3 * GRID, return_std=True, latent=True)
    assert np.mean(np.abs(f - np.log(rate(GRID))) < 2.5 * spread) > 0.9
    assert poisson.y_mean_ == 0.0 and poisson.y_scale_ == 1.0 and poisson.noise_ is None
    told = str(poisson.report_)
    density = np.mean(poisson.loo_.log_density)
    assert f"rows have a log density of {density:.4g} on average" in told and "under Poisson()" in told


def test_quantiles_of_counts_cover_them(poisson: ig.SparseGPRegressor) -> None:
    low, high = poisson.predict_quantiles(1e3 * X, [0.05, 0.95], EXPOSURE).T
    assert np.all(low == np.floor(low))
    assert 0.86 < np.mean((low <= COUNTS) & (COUNTS <= high)) < 0.99
    draws = poisson.sample_y(1e3 * GRID, 400)
    assert_allclose(draws.mean(axis=1), poisson.predict(1e3 * GRID), rtol=0.1)


def test_a_saved_likelihood_opens_and_predicts_the_same(
    poisson: ig.SparseGPRegressor, tmp_path: Path
) -> None:
    poisson.save(tmp_path / "model")
    again = ig.load(tmp_path / "model")
    assert again.likelihood == "poisson" and again.likelihood_ == L.Poisson()
    assert_allclose(again.predict(1e3 * GRID), poisson.predict(1e3 * GRID), rtol=0)
    assert_allclose(again.predict_quantiles(1e3 * GRID, 0.9), poisson.predict_quantiles(1e3 * GRID, 0.9))
    x = again._in_model_units(1e3 * GRID[:1])[0]
    mean, std = again.predict(1e3 * GRID[:1], return_std=True)
    assert_allclose(again.observations_.compile()(x), (mean[0], std[0] ** 2))


def test_student_t_ignores_outliers_that_gaussian_noise_follows() -> None:
    draw = np.random.default_rng(1)
    y = 1e4 + 100 * (wave(X) + 0.1 * draw.standard_normal(N))
    y[::12] += 3000.0
    student = L.StudentT(df=4.0, scale=30.0)
    robust = regressor(likelihood=student, fixed=["likelihood.df"]).fit(X, y)
    plain = regressor().fit(X, y)
    truth = 1e4 + 100 * wave(GRID)
    assert np.max(np.abs(robust.predict(GRID) - truth)) < 12
    assert np.max(np.abs(plain.predict(GRID) - truth)) > 60
    assert 5 < robust.likelihood_.scale < 20  # in units of y
    assert robust.predict_quantiles(GRID, 0.5) == pytest.approx(robust.predict(GRID), abs=1e-6)


def test_given_parameters_are_in_units_of_y_and_can_be_held() -> None:
    draw = np.random.default_rng(2)
    y = 100 * wave(X) + 20 * draw.standard_normal(N)
    held = regressor(likelihood=L.Laplace(25.0), fixed=["likelihood"]).fit(X, y)
    assert held.likelihood_.scale == pytest.approx(25.0)
    learned = regressor(likelihood=L.Laplace(25.0)).fit(X, y)
    assert 12 < learned.likelihood_.scale < 18  # E|e| of this noise is 16
    assert learned.noise_ == pytest.approx(2 * learned.likelihood_.scale**2)


def test_a_quantile_is_learned_as_f() -> None:
    draw = np.random.default_rng(3)
    y = wave(X) + draw.exponential(0.5, N)
    model = regressor(likelihood=L.AsymmetricLaplace(level=0.8), approximation="vfe").fit(X, y)
    share = np.mean(y < model.predict(X, latent=True))
    assert 0.72 < share < 0.88


def test_censored_targets_are_continued() -> None:
    draw = np.random.default_rng(4)
    y, limit = wave(X) + 0.1 * draw.standard_normal(N), 0.5
    seen = np.column_stack([np.minimum(y, limit), y > limit]).astype(float)
    model = regressor(likelihood="censoredgaussian").fit(X, seen)
    plain = regressor().fit(X, seen[:, 0])
    at = np.array([[np.pi / 4]])
    assert model.predict(at)[0] > 0.75 > plain.predict(at)[0]
    density = model.log_density(X, seen)
    assert density.shape == (N,) and np.mean(density) > -0.5


def test_evidence_of_a_gaussian_likelihood_object_is_that_of_noise() -> None:
    draw = np.random.default_rng(5)
    y = wave(X) + 0.1 * draw.standard_normal(N)
    named, plain = regressor(likelihood="gaussian").fit(X, y), regressor().fit(X, y)
    assert named.log_evidence_ == plain.log_evidence_ and named.likelihood_ is None
    held = regressor(likelihood=L.Gaussian(0.04), fixed=["noise"], approximation="vfe").fit(X, y)
    assert held.noise_ == pytest.approx(0.04)
    assert_allclose(named.predict_quantiles(GRID, 0.975), sum_of(named, GRID), rtol=1e-6)


def sum_of(model: ig.SparseGPRegressor, x: np.ndarray) -> np.ndarray:
    mean, std = model.predict(x, return_std=True)
    return mean + 1.959963985 * std


def test_what_does_not_go_together_is_refused() -> None:
    y = np.abs(wave(X)) + 0.1
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        (dict(likelihood="probit"), UnknownNameError, "likelihood must be one of"),
        (dict(likelihood=L.Probit()), LabelError, "SparseGPClassifier"),
        (dict(likelihood="gamma", noise=0.1), ParameterError, "both set the noise"),
        (dict(likelihood="gamma", noise="learned"), ParameterError, "not Gamma"),
        (dict(likelihood="poisson", approximation="pitc"), LabelError, "whole numbers"),
        (dict(noise="unheard"), UnknownNameError, "learned-jointly"),
        (dict(noise="learned", approximation="pitc"), ParameterError, "one target"),
    ]
    for options, error, message in cases:
        with pytest.raises(error, match=message):
            regressor(max_iter=1, **options).fit(X, y)
    with pytest.raises(ParameterError, match="one target"):
        regressor(noise="learned", max_iter=1).fit(X, np.column_stack([y, y]))


def test_counts_from_a_source() -> None:
    y = np.column_stack([COUNTS, EXPOSURE])
    model = regressor(likelihood="poisson", full_iter=2, max_iter=20).fit(ig.as_source(X, y, chunk_rows=100))
    assert_allclose(model.predict(GRID), rate(GRID), rtol=0.2)


# Learned noise

STEP = np.where(X[:, 0] > 0, 0.6, 0.05)
NOISY = 10 + 5 * (wave(X) + STEP * rng.standard_normal(N))


@pytest.fixture(scope="module", params=["learned", "learned-jointly"])
def noisy(request: pytest.FixtureRequest) -> ig.SparseGPRegressor:
    return regressor(noise=request.param).fit(X, NOISY)


def test_a_step_of_the_noise_is_recovered(noisy: ig.SparseGPRegressor) -> None:
    at = np.array([[-1.0], [1.0]])
    assert noisy.noise_posterior_ is not None
    log_variance, _ = noisy.noise_posterior_.predict(noisy._in_model_units(at))
    assert_allclose(np.exp(0.5 * log_variance) * noisy.y_scale_, [0.25, 3.0], rtol=0.35)
    _, std = noisy.predict(at, return_std=True)  # with what is not known of the mean
    assert std[0] < 0.5 and 2.0 < std[1] < 4.0
    assert noisy.noise_ is None and noisy.likelihood_ == L.LearnedNoise()
    mean = noisy.predict(GRID)
    assert np.sqrt(np.mean((mean - 10 - 5 * wave(GRID))[:20] ** 2)) < 0.15


def test_its_mean_is_as_good_and_its_density_better_than_with_one_noise(noisy: ig.SparseGPRegressor) -> None:
    test = np.random.default_rng(7)
    Xs = test.uniform(-2, 2, (1000, 1))
    y = 10 + 5 * (wave(Xs) + np.where(Xs[:, 0] > 0, 0.6, 0.05) * test.standard_normal(1000))
    plain = regressor(approximation="vfe").fit(X, NOISY)
    assert np.mean(noisy.log_density(Xs, y)) > np.mean(plain.log_density(Xs, y)) + 0.3
    assert np.mean((noisy.predict(Xs) - y) ** 2) < 1.01 * np.mean((plain.predict(Xs) - y) ** 2)
    low, high = noisy.predict_quantiles(Xs, [0.05, 0.95]).T
    for side in (Xs[:, 0] < 0, Xs[:, 0] > 0):
        assert 0.8 < np.mean((low <= y)[side] & (y <= high)[side]) < 0.97


def test_means_under_learned_noise_take_no_variances(
    noisy: ig.SparseGPRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = np.linspace(-2.0, 2.0, 9)[:, None]
    expected = noisy.predict(queries, return_std=True)[0]
    monkeypatch.setattr(ig.Posterior, "predict", lambda post, X: pytest.fail("variances for a mean"))
    assert_allclose(noisy.predict(queries), expected, rtol=1e-12, atol=1e-14)


def test_learned_noise_is_saved_and_compiled(noisy: ig.SparseGPRegressor, tmp_path: Path) -> None:
    noisy.save(tmp_path / "model")
    again = ig.load(tmp_path / "model")
    for ask in (lambda m: m.predict(GRID, return_std=True)[1], lambda m: m.predict_quantiles(GRID, 0.1)):
        assert_allclose(ask(again), ask(noisy), rtol=0)
    mean, covariance = again.predict(GRID[:3], return_cov=True)
    assert_allclose(np.sqrt(np.diag(covariance)), again.predict(GRID[:3], return_std=True)[1])
    assert again.sample_y(GRID[:3], 5).shape == (3, 5)
    mean, variance = again.observations_.compile()(again._in_model_units(GRID[:1])[0])
    expected = again.predict(GRID[:1], return_std=True)
    assert_allclose(
        [mean * again.y_scale_ + again.y_mean_, np.sqrt(variance) * again.y_scale_],
        np.ravel(expected),
        rtol=1e-6,
    )


def test_student_t_with_a_scale_that_changes() -> None:
    y = wave(X) + STEP * np.random.default_rng(3).standard_t(4, N)
    model = regressor(noise="learned", likelihood="studentt").fit(X, y)
    low, high = model.predict_quantiles(np.array([[-1.0], [1.0]]), [0.1, 0.9]).T
    assert_allclose(high - low, 2 * 1.533 * np.array([0.05, 0.6]), rtol=0.4)
    assert isinstance(model.likelihood_, L.LearnedScaleT) and model.likelihood_.df > 1.5
    mean, variance = model.observations_.compile()(model._in_model_units(GRID[:1])[0])
    expected = model.observations_.at(model._in_model_units(GRID[:1]))
    assert_allclose([mean, variance], [expected.mean[0], expected.std[0] ** 2], rtol=1e-6)


@pytest.mark.parametrize("way", ["learned", "learned-jointly"])
def test_learned_noise_over_a_source(way: str) -> None:
    source = ig.as_source(X, NOISY, chunk_rows=100)
    model = regressor(noise=way, full_iter=3).fit(source)
    _, std = model.predict(np.array([[-1.0], [1.0]]), return_std=True)
    assert std[0] < 0.6 and 2.0 < std[1] < 4.0
    assert model.approximation_ == "vfe"
    with pytest.raises(ParameterError, match="must be Gaussian"):
        regressor(noise=way, likelihood="studentt").fit(source)


def test_counts_along_neighbours_are_saved_and_have_quantiles(tmp_path: Path) -> None:
    model = regressor(likelihood="poisson", approximation="neighbours", basis="auto", max_iter=10)
    model.fit(X, np.column_stack([COUNTS, EXPOSURE]))
    assert np.median(np.abs(model.predict(GRID) / rate(GRID) - 1.0)) < 0.1
    model.save(tmp_path / "model")
    assert_allclose(
        ig.load(tmp_path / "model").predict_quantiles(GRID, 0.9), model.predict_quantiles(GRID, 0.9)
    )
