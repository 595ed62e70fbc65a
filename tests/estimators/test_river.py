"""The regressor behind river's interface passes river's own checks, and follows a stream."""

import warnings

import numpy as np
import pytest

import inducing as ig

river = pytest.importorskip("river")
SLOW = {
    "check_bounded_memory_growth"
}  # of ten thousand rows; that memory is constant is tested of the estimator


def cases() -> list:
    from river import checks

    model = ig.river.GPRegressor(n_inducing=10, warmup=20)
    return [check for check in checks.yield_checks(model) if check.__name__ not in SLOW]


@pytest.mark.filterwarnings("ignore::inducing.errors.DriftWarning")
@pytest.mark.parametrize("check", cases(), ids=lambda check: check.__name__)
def test_rivers_own_checks(check) -> None:
    model = ig.river.GPRegressor(n_inducing=10, warmup=20)
    if check.__name__ not in model._unit_test_skips():
        check(model.clone())


def test_it_predicts_and_follows() -> None:
    rng = np.random.default_rng(0)
    model, errors = ig.river.GPRegressor(n_inducing=20, warmup=50), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ig.errors.DriftWarning)
        for i, a in enumerate(rng.uniform(-2, 2, 600)):
            x, y = {"a": a, "name": "text"}, np.sin(a) + (2.0 if i >= 300 else 0.0)
            errors.append(abs(model.predict_one(x) - y))
            model.learn_one(x, y)
    assert np.mean(errors[200:300]) < 0.05
    assert np.mean(errors[500:]) < 0.35  # two to three of the shortest half-lives later, of a step of 2
    assert np.isfinite(model.predict_one({"b": 1.0}))
