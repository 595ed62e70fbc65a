"""Fits in threads and processes that are the user's own: same numbers, and thread settings as before."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import joblib
import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

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


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Two threads for every library, also where a variable asks for one: set, not held as a limit."""
    alone(0)  # loads all libraries
    libraries = ThreadpoolController().lib_controllers
    before = [library.num_threads for library in libraries]
    set_threads(libraries, [2] * len(libraries))
    yield
    set_threads(libraries, before)


def set_threads(libraries: list[Any], counts: list[int]) -> None:
    for library, count in zip(libraries, counts, strict=True):
        library.set_num_threads(count)
        getattr(library, "clear_controlling_thread", lambda force: None)(force=True)


def in_threads(seeds: list[int]) -> list[np.ndarray]:
    with ThreadPoolExecutor(len(seeds)) as pool:
        return list(pool.map(fitted, seeds))


def by_joblib(backend: str) -> Callable[[list[int]], list[np.ndarray]]:
    return lambda seeds: joblib.Parallel(2, backend=backend)(joblib.delayed(fitted)(seed) for seed in seeds)


def by_dask(seeds: list[int]) -> list[np.ndarray]:
    """Fits in the two threads of a Dask worker in this process."""
    from distributed import Client

    options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": None}
    with Client(processes=False, set_as_default=False, **options) as client:
        return client.gather([client.submit(fitted, seed, pure=False) for seed in seeds])


WAYS = {"threads": in_threads, "joblib threads": by_joblib("threading"), "joblib": by_joblib("loky")}
WAYS |= {"joblib forks": by_joblib("multiprocessing"), "dask": by_dask}


@pytest.mark.parametrize(("way", "limit"), [*((way, None) for way in WAYS), ("threads", 1)])
def test_fits_at_once_are_those_alone(way: str, limit: int | None) -> None:
    seeds = [0, 1, 0]
    expected = [alone(seed) for seed in seeds]
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


KINDS: dict[str, Callable[[], np.ndarray]] = {
    "classes": lambda: (
        ig.SparseGPClassifier("rbf", n_inducing=20, max_iter=2, random_state=0)
        .fit(X[:400], Y[:400] > 0)
        .predict_proba(X[:20])
    ),
    "neighbours": lambda: (
        ig.SparseGPRegressor("rbf", approximation="neighbours", n_inducing=20, neighbours=5, max_iter=2)
        .set_params(random_state=0)
        .fit(X[:800], Y[:800])
        .predict(X[:20])
    ),
    "stream": lambda: (
        ig.OnlineGPRegressor(n_inducing=20, warmup=100, max_iter=2, random_state=0)
        .fit(X[:600], Y[:600])
        .predict(X[:20])
    ),
}


def test_fits_of_all_kinds_at_once_are_those_alone() -> None:
    """What is compiled and the worker threads are shared by the fits of a process."""
    expected = [kind() for kind in KINDS.values()]
    before = settings()
    with ThreadPoolExecutor(len(KINDS)) as pool:
        together = [future.result() for future in [pool.submit(kind) for kind in KINDS.values()]]
    assert settings() == before
    for name, values, others in zip(KINDS, together, expected, strict=True):
        np.testing.assert_allclose(values, others, atol=NEAR, err_msg=name)


def test_a_fit_that_fails_leaves_the_thread_settings() -> None:
    before = settings()

    def interrupt(iteration: int, value: float) -> None:
        raise KeyError("the caller's own")

    with pytest.raises(KeyError, match="own"):
        ig.SparseGPRegressor("rbf", approximation="fitc", n_inducing=60, progress=interrupt).fit(X, Y)
    assert settings() == before
