"""`predict_distribution` of every estimator, and scores of it in scikit-learn's searches."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import GridSearchCV, cross_val_score

import inducing as ig

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (60, 2))
F = np.sin(X[:, 0]) + 0.3 * X[:, 1]
Y = 100.0 + 20.0 * (F + 0.2 * RNG.standard_normal(60))
BOTH = np.stack([Y, 5.0 * F], axis=1)
SMALL = dict(n_inducing=8, max_iter=5, random_state=0)

MODELS = {
    "fitc": (lambda: ig.SparseGPRegressor(approximation="fitc", **SMALL), Y),
    "pic": (lambda: ig.SparseGPRegressor(approximation="pic", n_blocks=3, **SMALL), Y),
    "neighbours": (lambda: ig.SparseGPRegressor(approximation="neighbours", neighbours=5, **SMALL), Y),
    "learned noise": (lambda: ig.SparseGPRegressor(noise="learned", **SMALL), Y),
    "student": (lambda: ig.SparseGPRegressor(approximation="vfe", likelihood="studentt", **SMALL), Y),
    "two outputs": (lambda: ig.SparseGPRegressor(approximation="vfe", **SMALL), BOTH),
    "apart": (lambda: ig.SparseGPRegressor(approximation="vfe", outputs="independent", **SMALL), BOTH),
    "together": (lambda: ig.SparseGPRegressor(approximation="vfe", outputs="coregionalised", **SMALL), BOTH),
    "online": (lambda: ig.OnlineGPRegressor(n_inducing=10, max_iter=5, random_state=0), Y),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_regressor_has_a_distribution(name: str) -> None:
    make, y = MODELS[name]
    model = make().fit(X, y)
    d = model.predict_distribution(X[:7])
    mean, std = model.predict(X[:7], return_std=True)
    assert_allclose(d.mean, mean, rtol=1e-10)
    assert_allclose(d.std, std, rtol=1e-8)
    assert_allclose(model.log_density(X[:7], y[:7]), d.log_density(y[:7]))
    ends = d.interval(0.8)
    assert ends.shape == (*mean.shape, 2) and np.all(ends[..., 0] < ends[..., 1])
    assert_allclose(model.predict_quantiles(X[:7], [0.1, 0.9]), ends, rtol=1e-12)
    assert np.all(d.crps(y[:7]) > 0.0) and d.sample(4, rng=0).shape == (*mean.shape, 4)
    assert ig.metrics.neg_crps(model, X, y) == pytest.approx(-np.mean(model.predict_distribution(X).crps(y)))


def test_exposures_are_part_of_the_distribution() -> None:
    rng = np.random.default_rng(1)
    exposure = rng.uniform(1.0, 20.0, 60)
    counts = np.column_stack([rng.poisson(exposure * np.exp(F)), exposure])
    model = ig.SparseGPRegressor(approximation="vfe", likelihood="poisson", **SMALL).fit(X, counts)
    d = model.predict_distribution(X[:5], further=exposure[:5])
    assert_allclose(d.mean, model.predict(X[:5], further=exposure[:5]))
    assert_allclose(d.log_density(counts[:5, 0]), model.log_density(X[:5], counts[:5]))
    assert np.all(d.cdf(counts[:5, 0]) <= 1.0) and np.all(d.crps(counts[:5, 0]) > 0.0)


def test_a_classifier_has_one() -> None:
    labels = np.where(F > 0.0, "up", "down")
    model = ig.SparseGPClassifier(n_inducing=8, max_iter=5, random_state=0).fit(X, labels)
    d = model.predict_distribution(X)
    p = model.predict_proba(X)
    assert_allclose(d.crps(labels), (p[:, 1] - (labels == "up")) ** 2)  # Brier's
    assert ig.metrics.neg_log_density(model, X, labels) == pytest.approx(np.mean(d.log_density(labels)))


def test_scores_work_in_searches() -> None:
    model = ig.SparseGPRegressor(approximation="vfe", **SMALL)
    crps = cross_val_score(model, X, Y, scoring=ig.metrics.neg_crps, cv=3)
    density = cross_val_score(model, X, Y, scoring=ig.metrics.neg_log_density, cv=3)
    assert np.all(crps < 0.0) and np.all(np.isfinite(density))
    rough = np.sqrt(np.mean((Y - Y.mean()) ** 2)) / np.sqrt(np.pi)  # of the trivial prediction
    assert np.mean(-crps) < rough
    search = GridSearchCV(model, {"kernel": ["rbf", "matern52"]}, scoring=ig.metrics.neg_crps, cv=2).fit(X, Y)
    assert search.best_score_ == np.max(search.cv_results_["mean_test_score"])
