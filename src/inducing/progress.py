"""Progress of long computations on stderr: bars, the iterations of a fit, the status of a stream, notices."""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, Self

PATIENCE = 2.0  # seconds before anything is shown
PAUSE = 0.5, 10.0  # seconds between two lines of a `Status`, on a terminal and elsewhere

_stop = threading.Event()
_asks = False  # whether a block of `stop_on_interrupt` is under way
_listener: ContextVar[Any] = ContextVar("listener", default=None)  # called instead of all others


@contextmanager
def reporting_to(listener: Callable[[int, float], None]) -> Iterator[None]:
    """Call `listener` with each iteration of every fit in the block, instead of showing progress or calling
    `progress`. Once its attribute `stop` is true, optimisations end after their evaluation.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def reports_elsewhere() -> bool:
    """Whether this is in a block of `reporting_to`."""
    return _listener.get() is not None


@contextmanager
def stop_on_interrupt() -> Iterator[None]:
    """Let the first Ctrl-C in the block end every optimisation after its evaluation, while the code that
    makes and saves the model goes on. The second raises KeyboardInterrupt.
    """
    global _asks
    if _asks or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(*_: object) -> None:
        _stop.set()
        signal.signal(signal.SIGINT, before)
        print("inducing: ending early; once more to give up", file=sys.stderr, flush=True)

    before, _asks = signal.signal(signal.SIGINT, ask), True
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _stop.clear()
        _asks = False


def stop_asked() -> bool:
    """Whether Ctrl-C, or the listener of `reporting_to`, has asked to end early."""
    return _stop.is_set() or getattr(_listener.get(), "stop", False)


class Bars:
    """Progress lines on stderr, rewritten in place, with bars where the end is known: shown on terminals
    after two seconds, with wanted=True anywhere and at once, with wanted=False never.
    """

    def __init__(self, wanted: bool | None = None) -> None:
        silent = wanted is False or reports_elsewhere() or (wanted is None and not sys.stderr.isatty())
        self.due = math.inf if silent else time.monotonic() + (0.0 if wanted else PATIENCE)
        self._progress: Any = None
        self._tasks: dict[str, Any] = {}

    def show(self, name: str, text: str, done: int | None = None, total: int | None = None) -> None:
        """Write `text` into the line called `name`, with `done` of `total` as a bar."""
        if time.monotonic() < self.due:
            return
        if self._progress is None:
            self._progress = _start()
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(text, total=total, ends=done is not None)
        self._progress.update(self._tasks[name], description=text, completed=done, total=total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()


class Line(Bars):
    """The progress of a fit: passed to the listener of `reporting_to` or to `progress`, else shown."""

    def __init__(self, progress: Callable[[int, float], None] | bool | None, what: str = "fit") -> None:
        super().__init__(False if callable(progress) else progress)
        self.call = _listener.get() or (progress if callable(progress) else None)
        self.what = what

    def __call__(self, iteration: int, value: float) -> None:
        if self.call is not None:
            self.call(iteration, value)
        self.show("iterations", f"{self.what}: iteration {iteration}, log evidence {value:.4f}")

    def part(self, done: int, parts: int | None) -> None:
        """Show how many parts of a source a pass has read."""
        self.show("parts", "parts read", done, parts)


class Status:
    """A status line on stderr: rewritten in place on a terminal, elsewhere a new line every ten seconds."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self.began, self._shown, self._open = time.monotonic(), -math.inf, False
        self.patience = patience

    @property
    def seconds(self) -> float:
        """The seconds since this object was made."""
        return time.monotonic() - self.began

    def show(self, text: Callable[[], str]) -> None:
        """Write text(), unless the last line is too recent."""
        now, terminal = time.monotonic(), sys.stderr.isatty()
        if now - self.began < self.patience or now - self._shown < PAUSE[not terminal]:
            return
        line = f"\r{text()}\x1b[K" if terminal else f"{text()}\n"
        print(line, end="", file=sys.stderr, flush=True)
        self._shown, self._open = now, terminal

    def note(self, text: str) -> None:
        """Write a line that stays."""
        self.end()
        print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the line that is rewritten in place."""
        if self._open:
            print(file=sys.stderr)
            self._open = False


class _PlainLines:
    """A stand-in for rich's live display that prints plain lines, each about the task updated last."""

    def __init__(self) -> None:
        self.status = Status(patience=0.0)

    def add_task(self, text: str, **_: Any) -> None: ...

    def update(self, task: None, description: str, completed: int | None, total: int | None) -> None:
        ends = "" if completed is None else f", {completed}" + (f" of {total}" if total else "")
        self.status.show(lambda: description + ends)

    def stop(self) -> None:
        self.status.end()


def _start() -> Any:
    """Start rich's live display, or plain lines: without rich, or in a notebook without its widgets."""
    try:
        from rich import progress as rich
        from rich.console import Console
        from rich.text import Text
    except ModuleNotFoundError:
        return _PlainLines()
    console = Console(stderr=True)
    if console.is_jupyter and find_spec("ipywidgets") is None:
        return _PlainLines()

    class Where(rich.ProgressColumn):
        """A column that is empty for tasks that count nothing."""

        def __init__(self, column: rich.ProgressColumn) -> None:
            super().__init__()
            self.column = column

        def render(self, task: Any) -> Any:
            return self.column.render(task) if task.fields["ends"] else Text("")

    text = rich.TextColumn("{task.description}", markup=False)
    columns = text, Where(rich.BarColumn()), Where(rich.MofNCompleteColumn()), rich.TimeElapsedColumn()
    progress = rich.Progress(*columns, console=console)
    progress.start()
    return progress
