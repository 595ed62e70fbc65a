"""Fits in threads and processes that are the user's own: same numbers, and thread settings as before."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import joblib
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import inducing as ig

X = np.random.default_rng(3).uniform(-2.0, 2.0, size=(2500, 3))
Y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2]

NEAR = 1e-6  # a few iterations of learning make so much of the rounding of one or two BLAS threads


def settings() -> list[tuple[Any, ...]]:
    return sorted((pool["filepath"], pool["num_threads"]) for pool in threadpool_info())


def fitted(seed: int) -> np.ndarray:
    """Predictions of a fit that goes through k-means, worker threads and small products."""
    options: dict[str, Any] = {"approximation": "fitc", "kernel": "rbf", "n_inducing": 60, "max_iter": 3}
    model = ig.SparseGPRegressor(random_state=seed, **options).fit(X[seed:], Y[seed:])
    return model.predict(X[:20])


@cache
def alone(seed: int) -> np.ndarray:
    return fitted(seed)


def in_threads(seeds: list[int]) -> list[np.ndarray]:
    with ThreadPoolExecutor(len(seeds)) as pool:
        return list(pool.map(fitted, seeds))


def by_joblib(backend: str) -> Callable[[list[int]], list[np.ndarray]]:
    return lambda seeds: joblib.Parallel(2, backend=backend)(joblib.delayed(fitted)(seed) for seed in seeds)


WAYS = {"threads": in_threads, "joblib threads": by_joblib("threading"), "joblib": by_joblib("loky")}


@pytest.mark.parametrize(
    ("way", "limit"), [("threads", None), ("threads", 1), ("joblib threads", None), ("joblib", None)]
)
def test_fits_at_once_are_those_alone(way: str, limit: int | None) -> None:
    seeds = [0, 1, 0]
    expected = [alone(seed) for seed in seeds]  # loads all libraries, too
    with threadpool_limits(limit):
        before = settings()
        together = WAYS[way](seeds)
        assert settings() == before
    for values, others in zip(together, expected, strict=True):
        np.testing.assert_allclose(values, others, atol=NEAR)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_fits_while_another_thread_does() -> None:
    expected, before, started = alone(0), settings(), threading.Event()

    def keep_fitting() -> None:
        started.set()
        fitted(1)

    other = threading.Thread(target=keep_fitting)
    other.start()
    started.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if np.allclose(fitted(0), expected, atol=NEAR) else 2)
    _, status = os.waitpid(child, 0)
    other.join()
    assert os.waitstatus_to_exitcode(status) == 0 and settings() == before
