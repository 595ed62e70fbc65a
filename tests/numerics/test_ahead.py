"""The second process that compiles ahead: whatever becomes of it, the first goes on, and nothing is left."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import inducing as ig
from inducing.numerics import ahead as first_ahead
from inducing.numerics import compiling

LONG = 30.0  # seconds, of which next to none is used
SOURCE = Path(ig.__file__).parent


def until(condition: Callable[[], bool]) -> bool:
    """Whether the condition comes to hold."""
    end = time.monotonic() + LONG
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def is_gone(pid: int) -> bool:
    """Whether there is no such process any more, not even a dead one that nobody has waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


class Bench:
    """A module `ahead` of its own, and a program in place of Python that does as it is told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, monkeypatch
        spec = importlib.util.spec_from_file_location("inducing.numerics.ahead_again", first_ahead.__file__)
        assert spec is not None and spec.loader is not None
        self.ahead: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.ahead)
        self.ahead.cores = lambda: 2
        self.here: list[str] = []  # compiled in this process while it waits
        self.ahead.compile_here, self.ahead.is_kept = self.here.append, lambda name: True

    def start(self, does: str, *names: str, program: str = "python", missed: str = "another") -> None:
        """Let a program take these functions, if it is one that may, when another one is missed."""
        path = self.folder / program
        path.write_text(
            f"#!/bin/sh\necho $$ > {self.folder}/pid.new\n"
            f"mv {self.folder}/pid.new {self.folder}/pid\n{does}\n"
        )
        path.chmod(0o755)
        self.patch.setattr(sys, "executable", str(path))
        self.ahead.expect(*names)
        if missed:
            self.ahead.missed(missed)

    @property
    def has_started(self) -> bool:
        """Whether there is a process, of which nobody yet knows the end."""
        return self.ahead._other is not None

    @property
    def pid(self) -> int:
        assert until((self.folder / "pid").exists)
        return int((self.folder / "pid").read_text())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Bench(tmp_path, monkeypatch)
    yield made
    made.ahead.STUCK_AFTER = 0.0
    for name in made.ahead.HEARD:  # a process that is still there is ended
        made.ahead.wait_for(name)


def test_a_process_that_has_ended_is_gone(bench: Bench) -> None:
    bench.start("echo a.first; echo a noise; echo a.second", "a.first", "a.second")
    pid = bench.pid
    assert until(lambda: is_gone(pid))
    bench.ahead.wait_for("a.first")
    assert until(lambda: not any(thread.name == "inducing ahead" for thread in threading.enumerate()))
    (bench.folder / "pid").unlink()
    bench.start("echo a.third; exec sleep 1000", "a.third")  # the next one may come
    assert bench.pid != pid
    bench.ahead.wait_for("a.third")  # at once, while it is still there


def test_what_a_failed_process_had_is_not_waited_for(bench: Bench) -> None:
    bench.start("echo a.first; exit 1", "a.first", "a.second")
    began = time.monotonic()
    bench.ahead.wait_for("a.second")
    assert time.monotonic() - began < LONG


def test_a_stuck_process_is_ended_and_not_tried_again(bench: Bench) -> None:
    bench.start("exec sleep 1000", "a.first", "a.second")
    pid = bench.pid
    bench.ahead.STUCK_AFTER = 0.3
    began = time.monotonic()
    bench.ahead.wait_for("a.first")
    assert 0.0 < time.monotonic() - began < LONG
    assert until(lambda: is_gone(pid))
    bench.ahead.wait_for("a.second")
    (bench.folder / "pid").unlink()
    bench.ahead.STUCK_AFTER = 60.0
    bench.start("exec sleep 1000", "a.third")
    bench.ahead.wait_for("a.third")
    assert not bench.has_started


def test_what_the_other_has_not_begun_is_compiled_here(bench: Bench) -> None:
    """That is what is asked for, at once, and others from the end while it waits; the other hears of it."""
    go, heard = bench.folder / "go", bench.folder / "heard"
    does = f"head -n 3 > {heard}; while [ ! -e {go} ]; do sleep 0.05; done; echo a.first; exec sleep 1000"
    bench.start(does, "a.first", "a.second", "a.third", "a.fourth")
    bench.ahead.wait_for("a.second")  # at once
    assert bench.here == []
    waiting = threading.Thread(target=bench.ahead.wait_for, args=("a.first",))
    waiting.start()
    assert until(lambda: bench.here == ["a.fourth", "a.third"]) and waiting.is_alive()
    assert until(lambda: heard.exists() and heard.read_text() == "a.second\na.fourth\na.third\n")
    go.touch()
    waiting.join(LONG)
    assert not waiting.is_alive()


def test_it_starts_where_the_first_that_is_expected_is_in_no_cache(bench: Bench) -> None:
    """That is, before anything is compiled here."""
    bench.ahead.is_kept = lambda name: name != "a.third"
    bench.start("exec sleep 1000", "a.first", "a.second", missed="")
    bench.ahead.expect("a.first", "a.third", surely=True)
    bench.ahead.expect("a.third", "a.fourth")
    assert not bench.has_started
    bench.ahead.expect("a.third", "a.fifth", surely=True)
    assert bench.has_started and bench.pid


def test_each_word_renews_the_patience(bench: Bench) -> None:
    """One that is slow, but at work, is not stuck."""
    bench.ahead.STUCK_AFTER = 2.0
    bench.start("sleep 0.8; echo a noise\n" * 3 + "echo a.first; touch $(dirname $0)/whole", "a.first")
    bench.ahead.wait_for("a.first")
    assert until(lambda: (bench.folder / "whole").exists())


def test_ctrl_c_is_heard_and_leaves_no_lock(bench: Bench, request: pytest.FixtureRequest) -> None:
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # workers of a test run may ignore it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, usual))
    bench.start("exec sleep 1000", "a.first")
    pid = bench.pid
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        bench.ahead.wait_for("a.first")
    assert time.monotonic() - began < LONG
    done = threading.Thread(target=bench.ahead.wait_for, args=("a.second",))
    done.start()
    done.join(LONG)
    assert not done.is_alive() and not is_gone(pid)


def test_threads_that_wait_all_go_on(bench: Bench) -> None:
    go = bench.folder / "go"
    bench.start(f"while [ ! -e {go} ]; do sleep 0.05; done; echo a.first; exec sleep 1000", "a.first")
    threads = [threading.Thread(target=bench.ahead.wait_for, args=("a.first",)) for _ in range(5)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert all(thread.is_alive() for thread in threads)
    bench.ahead.wait_for("a.second")  # nobody's: at once
    go.touch()
    for thread in threads:
        thread.join(LONG)
    assert not any(thread.is_alive() for thread in threads)


def in_a_fork(call: Callable[[], Any]) -> bool:
    """Whether a forked child gets through the call."""
    if (pid := os.fork()) == 0:
        try:
            signal.alarm(int(LONG))
            call()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_has_a_process_of_its_own(bench: Bench) -> None:
    """Also one that is made while a thread waits: it finds no lock taken, and leaves its parent's alone."""
    bench.start("exec sleep 1000", "a.first")
    pid = bench.pid
    waiting = threading.Thread(target=bench.ahead.wait_for, args=("a.first",))
    waiting.start()
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with bench.ahead._turn:
            held.set()
            over.wait()

    holding = threading.Thread(target=hold)
    holding.start()
    held.wait()
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0

    def child() -> None:
        bench.ahead.wait_for("a.first")
        assert not descriptors or len(os.listdir("/proc/self/fd")) < descriptors
        (bench.folder / "pid").unlink()
        bench.start("echo a.second; exec sleep 1000", "a.second")
        bench.ahead.wait_for("a.second")
        assert bench.pid != pid
        bench.ahead._end()
        assert is_gone(bench.pid)

    went_through = in_a_fork(child)
    over.set()
    holding.join()
    assert went_through
    assert waiting.is_alive() and not is_gone(pid)
    bench.ahead._end()
    waiting.join(LONG)
    assert not waiting.is_alive() and is_gone(pid)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_a_thread_compiles_can_compile() -> None:
    begun = threading.Event()

    def slow(**options: Any) -> Any:
        begun.set()
        time.sleep(0.5)
        return lambda function: function

    functions = [compiling.Compiled(lambda: 3.0, slow, {}) for _ in range(2)]
    del compiling.FUNCTIONS[next(key for key, value in compiling.FUNCTIONS.items() if value is functions[1])]
    thread = threading.Thread(target=functions[0])
    thread.start()
    begun.wait()
    assert in_a_fork(functions[1])
    thread.join()
    assert functions[1]() == 3.0


@pytest.mark.parametrize(
    "program", ["server", "pythonservice.exe", "python3.11-config", "ipython", "pypy3", "mpython", ""]
)
def test_other_programs_are_not_started(bench: Bench, program: str) -> None:
    if program:
        bench.start("exec sleep 1000", "a.first", program=program)
    else:
        for executable in ("", None):
            bench.patch.setattr(sys, "executable", executable)
            bench.ahead.expect(f"a.{executable}")
            bench.ahead.missed("another")
    bench.ahead.wait_for("a.first")
    assert not bench.has_started


@pytest.mark.parametrize(
    "program", ["python", "python3", "python3.13t", "Python", "python.exe", "pythonw.exe", "PYTHON.EXE"]
)
def test_pythons_are_started_by_any_of_their_names(bench: Bench, program: str) -> None:
    bench.start("echo a.first; exec sleep 1000", "a.first", program=program)
    bench.ahead.wait_for("a.first")
    assert bench.has_started


def test_nothing_is_started_where_there_is_no_core_or_no_process(bench: Bench) -> None:
    """One core, a frozen program, a worker of a pool, no such file, no thread: all quietly."""
    for name, where in {"cores": bench.ahead, "parent_process": multiprocessing}.items():
        with bench.patch.context() as patch:
            patch.setattr(where, name, lambda: 1)
            bench.start("exec sleep 1000", f"a.{name}")
            assert not bench.has_started
    with bench.patch.context() as patch:
        patch.setattr(sys, "frozen", True, raising=False)
        bench.start("exec sleep 1000", "a.frozen")
        assert not bench.has_started
    with bench.patch.context() as patch:
        patch.setattr(sys, "executable", str(bench.folder / "none" / "python"))
        bench.ahead.missed("another")
        assert not bench.has_started

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with bench.patch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        bench.start("exec sleep 1000", "a.first")
        assert not bench.has_started


def test_a_worker_of_a_pool_starts_none(bench: Bench) -> None:
    """Other workers have the other cores."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(first_ahead._has_parent)
    assert not first_ahead._has_parent()


SCRIPT = """
import os, sys
with open("runs", "a") as file:
    file.write("x")
from numba.core import event
from inducing.engine.site_tiles import marginals
from inducing.numerics import ahead
from inducing.numerics.loops import split_scaled
import numpy as np
sys.path.insert(0, os.getcwd())
ahead.cores, sys.executable = lambda: 2, sys.argv[1]
ahead.expect("engine.site_tiles.marginals")
with event.install_recorder("numba:compile") as recorded:
    split_scaled(np.eye(3), np.ones(3), np.empty((3, 3)))
    A, ends = np.eye(3), [np.empty(3) for _ in range(2)]
    from inducing.numerics.blas import addresses
    marginals(addresses(), A, 2.0 * A, np.arange(3.0), np.empty((3, 3)), *ends)
here = {e.data["dispatcher"] for _, e in recorded.buffer}
print(*sorted(each.py_func.__name__ for each in here if each.stats.cache_path))
print(*np.concatenate(ends))
"""


@pytest.mark.parametrize("fails", [False, True], ids=["a Python", "a Python that fails"])
def test_a_second_process_compiles_what_is_expected(tmp_path: Path, fails: bool) -> None:
    """Where it fails, everything is compiled here. A script without a guard runs once; no file beside it is
    taken for one of Python's; and no home is needed.
    """
    (tmp_path / "script.py").write_text(SCRIPT)
    for name in ("sitecustomize", "usercustomize", "secrets", "queue"):
        text = f"open({str(tmp_path / 'runs')!r}, 'a').write({name!r})"
        (tmp_path / f"{name}.py").write_text(text)
    program = Path(sys.executable)
    if fails:
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
        program.chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if key != "HOME"}
    environment |= {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(SOURCE.parent)}
    run = [sys.executable, "-P", "script.py", str(program)]
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr in ("", compiling.NOTICE + "\n"), done.stderr
    names, numbers = done.stdout.splitlines()
    assert names == ("marginals split_scaled" if fails else "split_scaled")
    assert [float(word) for word in numbers.split()] == [0.0, 1.0, 2.0, 4.0, 4.0, 4.0]  # φᵀw and |2φ|²
    assert (tmp_path / "started").exists() == fails
    assert (tmp_path / "runs").read_text() == "x"
    assert len(list(tmp_path.rglob("*marginals*.nbi"))) == 1
