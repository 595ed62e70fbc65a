"""A pytest plugin that notes for each test how long it took and which functions of the package it called.

`--touched FILE` appends a line of JSON for every test that passed, `--share i/k` runs every k-th test from
the i-th on, `--each n` the first n cases of each test alone. Calls of compiled functions are noted by the
function that Python called. From Python 3.12 on each function is noted at its first call of a test alone,
which costs next to nothing; before, every call of the program is looked at.
"""

from __future__ import annotations

import inspect
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

TOOL = 4  # a number for this plugin among those that watch a program


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--touched")
    parser.addoption("--share", default="0/1")
    parser.addoption("--each", type=int, default=1 << 30)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    first, step = map(int, config.getoption("--share").split("/"))
    seen: Counter[str] = Counter()
    few = []
    for item in items:
        name = item.nodeid.split("[")[0]
        seen[name] += 1
        few += [item] if seen[name] <= config.getoption("--each") else []
    items[:] = few[first::step]


class Touched:
    """The functions called since the last test began, as module::qualified name."""

    def __init__(self, path: str) -> None:
        import inducing
        from inducing.numerics.compiling import Compiled

        self.path, self.package = path, str(Path(inducing.__file__).parent) + "/"
        self.compiled = Compiled.__call__.__code__
        self.called: set[CodeType] = set()
        self.seconds, self.passed = 0.0, True
        self.watching: Any = getattr(sys, "monitoring", None)
        if self.watching:
            self.watching.use_tool_id(TOOL, "touched")
            self.watching.register_callback(TOOL, self.watching.events.PY_START, self.started)

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code is self.compiled:
            self.called.add(frame.f_locals["self"]._function.__code__)
        self.called.add(frame.f_code)

    def started(self, code: CodeType, offset: int) -> Any:
        """Note a function; the way into compiled ones is watched on, for it leads to many."""
        self.called.add(code)
        if code is not self.compiled:
            return self.watching.DISABLE
        frame = inspect.currentframe()
        if frame and frame.f_back:
            self.called.add(frame.f_back.f_locals["self"]._function.__code__)
        return None

    def names(self) -> list[str]:
        own = [code for code in self.called if code.co_filename.startswith(self.package)]
        return sorted({f"{code.co_filename[len(self.package) :]}::{code.co_qualname}" for code in own})

    def watch(self, on: bool) -> None:
        if self.watching:
            self.watching.restart_events()
            self.watching.set_events(TOOL, self.watching.events.PY_START if on else 0)
        else:
            sys.settrace(self.note if on else None)
            threading.settrace(self.note if on else None)  # type: ignore[arg-type]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        self.called, self.seconds, self.passed = set(), 0.0, True
        self.watch(True)
        try:
            return (yield)
        finally:
            self.watch(False)
            if self.passed:
                with open(self.path, "a", encoding="utf-8") as file:
                    file.write(json.dumps([item.nodeid, round(self.seconds, 3), self.names()]) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds += report.duration
        self.passed &= report.outcome == "passed"


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--touched"):
        config.pluginmanager.register(Touched(path))
