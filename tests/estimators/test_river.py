"""Regressor and classifier behind river's interface pass river's own checks, and follow a stream."""

import warnings
from typing import Any

import numpy as np
import pytest

import inducing as ig

river = pytest.importorskip("river")
SLOW = {
    "check_bounded_memory_growth"
}  # of ten thousand rows; that memory is constant is tested of the estimator


def made(kind: str) -> Any:
    return getattr(ig.river, kind)(n_inducing=10, warmup=20)


def cases() -> list:
    from river import checks

    found = {}  # the checks go through several tables each; the last will do
    for kind in ("GPRegressor", "GPClassifier"):
        found |= {(kind, check.__name__): check for check in checks.yield_checks(made(kind))}
    return [(kind, check) for (kind, name), check in found.items() if name not in SLOW]


@pytest.mark.filterwarnings("ignore::inducing.errors.DriftWarning")
@pytest.mark.parametrize(("kind", "check"), cases(), ids=lambda part: getattr(part, "__name__", part))
def test_rivers_own_checks(kind, check) -> None:
    model = made(kind)
    if check.__name__ not in model._unit_test_skips():
        check(model.clone())


def test_labels_of_any_kind_come_when_they_come() -> None:
    rng = np.random.default_rng(0)
    model, right = ig.river.GPClassifier(n_inducing=15, warmup=60), []
    assert model.predict_proba_one({"a": 1.0}) == {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ig.errors.DriftWarning)
        for i, a in enumerate(rng.uniform(-2, 2, 400)):
            y = "mid" if i > 200 and abs(a) < 0.7 else a > 0
            right.append(model.predict_one({"a": a}) == y)
            model.learn_one({"a": a}, y)
            if i == 0:
                assert model.predict_proba_one({"a": a}) == {y: 1.0}
    assert np.mean(right[100:200]) > 0.9 and np.mean(right[300:]) > 0.8
    assert set(model.predict_proba_one({"a": 0.0})) == {True, False, "mid"}


def test_it_predicts_and_follows() -> None:
    rng = np.random.default_rng(0)
    model, errors = ig.river.GPRegressor(n_inducing=20, warmup=50), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ig.errors.DriftWarning)
        for i, a in enumerate(rng.uniform(-2, 2, 600)):
            x, y = {"a": a, "name": "text"}, np.sin(a) + (2.0 if i >= 300 else 0.0)
            errors.append(abs(model.predict_one(x) - y))
            model.learn_one(x, y)
    assert np.mean(errors[200:300]) < 0.01
    assert np.mean(errors[300:305]) > 1.0  # a step of 2
    assert np.mean(errors[350:400]) < 0.3 and np.mean(errors[500:]) < 0.05
    assert np.mean(errors[500:]) < np.mean(errors[400:500]) < np.mean(errors[310:400])
    assert np.isfinite(model.predict_one({"b": 1.0}))
