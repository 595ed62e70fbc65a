"""Pupils of three teachers: a function, boosted trees, and a forest of classes."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier

import inducing as ig
from benchmarks.pupils import compare
from inducing.errors import EmptyDataError, ParameterError

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (500, 2))
SIZE = 20_000


def wave(X: np.ndarray) -> np.ndarray:
    return 5.0 + np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2


def boosted() -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(max_iter=60, random_state=0).fit(X, wave(X))


def forest() -> RandomForestClassifier:
    return RandomForestClassifier(40, min_samples_leaf=20, random_state=0).fit(X, wave(X) > 6.0)


@pytest.mark.parametrize("teacher, least", [(lambda: wave, 0.999), (boosted, 0.97), (forest, 0.8)])
def test_a_pupil_answers_as_its_teacher(teacher, least: float, tmp_path: Path) -> None:
    pupil = ig.distil(teacher(), X, size=SIZE)
    assert pupil.fidelity_.r2 > least and pupil.fidelity_.queries == 400
    assert pupil.fidelity_.coverage >= 0.75  # of 50 rows: .9 and 3.5 deviations
    assert pupil.save(tmp_path / "pupil.gp") <= SIZE


@pytest.mark.parametrize("d, size", [(1, 6_000), (12, 30_000), (30, 30_000)])
def test_a_pupil_nearly_fills_its_file(d: int, size: int, tmp_path: Path) -> None:
    rows = np.random.default_rng(d).uniform(size=(400, d))
    pupil = ig.distil(lambda X: np.sin(3.0 * X[:, 0]), rows, size=size, rounds=1)
    assert 0.6 * size < pupil.save(tmp_path / "pupil.gp") <= size


def test_a_teacher_and_its_pupil_are_measured() -> None:
    found = compare(trees=30, rows=600, size=20_000)
    assert found["teacher"]["bytes"] > 1e5 and found["pupil"]["bytes"] <= 20_000
    assert found["pupil"]["R² to the teacher"] > 0.5 and found["teacher"]["RMSE to the teacher"] == 0.0


def test_what_cannot_be_taught() -> None:
    with pytest.raises(EmptyDataError, match="needs 100 rows"):
        ig.distil(wave, X[:20])
    with pytest.raises(ParameterError, match="a number for each row"):
        ig.distil(lambda X: X, X)
