"""Ctrl-C is heard at least once a second: no compiled call holds the main thread longer, and a fit that is
stopped returns the best it had.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import inducing as ig
from inducing.inference.near_rows import NearestRows
from inducing.numerics import linalg, workers

LONGEST = 0.5  # seconds of the main thread's own time, half of what is promised


@contextmanager
def listening() -> Iterator[list[float]]:
    """The longest time, by the clock of this thread, between two moments at which Python hears signals."""
    last, longest = time.thread_time(), [0.0]

    def hear(number: int, frame: Any) -> None:
        nonlocal last
        now = time.thread_time()
        longest[0], last = max(longest[0], now - last), now

    before = signal.signal(signal.SIGPROF, hear)
    signal.setitimer(signal.ITIMER_PROF, 0.02, 0.02)
    try:
        yield longest
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def stream() -> None:
    """A block of rows on 1500 functions that all stay: the whole of it in one call would be seconds."""
    rng = np.random.default_rng(0)
    Z = np.linspace(0.0, 1500.0, 1500)[:, None]
    post = ig.prior(ig.kernels.RBF(0.4), basis=ig.bases.Points(Z))
    X = rng.uniform(0, 1500, (400, 1))
    ig.update(post, ig.likelihoods.Gaussian(0.1), X, np.sin(X[:, 0]), capacity=1500, grow=False)


def propagation() -> None:
    """A basis of 500 functions that changes for a sweep, then one that stays."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 700, (700, 1))
    y = np.where(np.sin(X[:, 0]) > 0, 1.0, -1.0)
    ig.expectation_propagation(
        ig.kernels.RBF(0.3), ig.likelihoods.Probit(), X, y, capacity=500, sweeps=2, freeze_after=1
    )


def search() -> None:
    """Leaves of rows in 20 coordinates tell nothing: every query looks at all rows."""
    rng = np.random.default_rng(2)
    NearestRows(rng.standard_normal((120_000, 20)))(rng.standard_normal((1500, 20)), 10)


def passes() -> None:
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 10, (12_000, 4))
    kernel, basis = ig.kernels.RBF(1.0), ig.bases.Points(X[:900])
    ig.log_evidence_and_gradient(kernel, basis, "fitc", 0.1, X, np.sin(X[:, 0]))


@pytest.mark.parametrize("work", [stream, propagation, search, passes])
def test_signals_are_heard_every_second(work: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_process_cores", lambda: 1)
    work()  # compiles
    with listening() as longest:
        work()
    assert longest[0] < LONGEST


def factor() -> None:
    K = np.eye(2500)
    K[1:, 0] = 0.01
    linalg.cholesky(K)


def one_block() -> None:
    rng = np.random.default_rng(4)
    X = rng.uniform(0, 10, (1500, 2))
    blocks, basis = np.zeros(len(X), dtype=int), ig.bases.Points(X[:100])
    ig.log_evidence_and_gradient(ig.kernels.RBF(1.0), basis, "pitc", 0.1, X, X[:, 0], blocks=blocks)


def send(ended: threading.Event) -> None:
    while not ended.wait(0.002):
        os.kill(os.getpid(), signal.SIGUSR1)


@pytest.mark.parametrize("work", [factor, one_block])
def test_calls_that_cannot_be_cut_run_aside(
    work: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals come every two milliseconds; a call that is deaf to them lets one be heard, at its end."""
    monkeypatch.setattr(workers, "_process_cores", lambda: 1)
    work()  # compiles
    heard = []
    for long in (1e3, 1e30):
        monkeypatch.setattr(workers, "LONG", long)
        heard.append(0)

        def hear(number: int, frame: Any) -> None:
            heard[-1] += 1

        before = signal.signal(signal.SIGUSR1, hear)
        ended = threading.Event()
        sender = threading.Thread(target=send, args=(ended,))
        sender.start()
        try:
            work()
        finally:
            ended.set()
            sender.join()
            signal.signal(signal.SIGUSR1, before)
    assert heard[0] > heard[1] + 5, heard


def test_an_exception_aside_comes_back() -> None:
    with pytest.raises(ZeroDivisionError):
        workers.aside(lambda: 1 / 0, 1e30)


def test_workers_end_with_the_task_they_are_at_when_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_process_cores", lambda: 2)
    done, begun = [], threading.Event()

    def step(_: None, task: int) -> None:
        if task == 0:
            begun.wait(10.0)
            raise KeyboardInterrupt
        begun.set()
        time.sleep(0.01)
        done.append(task)

    with pytest.raises(KeyboardInterrupt):
        workers.run_over(list(range(2000)), lambda: None, step, parallel=True)
    assert 1 <= len(done) < 200
    before = len(done)
    time.sleep(0.05)
    assert len(done) == before  # nothing runs on


def test_an_interrupt_amid_an_evaluation_returns_the_best_so_far() -> None:
    """The signal comes in the second iteration's evaluation, after some processor time of compiled code."""
    rng = np.random.default_rng(4)
    X = rng.uniform(0, 10, (20_000, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(len(X))
    values = []

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    def tell(iteration: int, value: float) -> None:
        values.append(value)
        signal.setitimer(signal.ITIMER_PROF, 0.02)

    before = signal.signal(signal.SIGPROF, interrupt)
    try:
        fit = ig.fit(ig.kernels.RBF(3.0), ig.bases.Points(X[:200]), "fitc", 1.0, X, y, progress=tell)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
    assert len(values) == 1 and fit.value >= values[0]
    assert "interrupted" in fit.message and not fit.converged


class Stopping(ig.likelihoods.Likelihood):
    """A likelihood in Python at whose third row the user presses Ctrl-C."""

    asked = 0

    def log_density(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        Stopping.asked += 1
        if Stopping.asked > 2:
            raise KeyboardInterrupt
        return -0.5 * (y - f) ** 2


@pytest.mark.parametrize("basis", [None, ig.bases.Points(np.linspace(0, 3, 4)[:, None])])
def test_an_interrupt_inside_a_likelihood_is_passed_on(basis: ig.bases.Points | None) -> None:
    Stopping.asked, X = 0, np.linspace(0, 3, 9)[:, None]
    with pytest.raises(KeyboardInterrupt):
        ig.expectation_propagation(ig.kernels.RBF(), Stopping(), X, X[:, 0], basis=basis)
