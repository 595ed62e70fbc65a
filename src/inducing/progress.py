"""What long computations show of themselves."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

PATIENCE = 2.0  # seconds before anything is shown


class Bars:
    """Lines on stderr that are written over, with bars where an end is known.

    On terminals they come after two seconds; with wanted=True at once, and anywhere; with wanted=False never.
    As a context manager it ends what it began.
    """

    def __init__(self, wanted: bool | None = None) -> None:
        silent = wanted is False or (wanted is None and not sys.stderr.isatty())
        self.due = math.inf if silent else time.monotonic() + (0.0 if wanted else PATIENCE)
        self._progress: Any = None
        self._tasks: dict[str, Any] = {}

    def show(self, name: str, text: str, done: int | None = None, total: int | None = None) -> None:
        """Write `text` into the line called `name`."""
        if time.monotonic() < self.due:
            return
        if self._progress is None:
            self._progress = _start()
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(text, total=total, ends=done is not None)
        self._progress.update(self._tasks[name], description=text, completed=done, total=total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._progress is not None:
            self._progress.stop()


@contextmanager
def told_if_slow(text: str) -> Iterator[None]:
    """Write one line on stderr, if it is a terminal, when what is inside takes more than two seconds."""
    timer = threading.Timer(PATIENCE, lambda: print(text, file=sys.stderr))
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _start() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class Where(ProgressColumn):
        """A column that lines without an end leave empty."""

        def __init__(self, column: ProgressColumn) -> None:
            super().__init__()
            self.column = column

        def render(self, task: Any) -> Any:
            return self.column.render(task) if task.fields["ends"] else Text("")

    text = TextColumn("{task.description}", markup=False)
    columns = text, Where(BarColumn()), Where(MofNCompleteColumn()), TimeElapsedColumn()
    progress = Progress(*columns, console=Console(stderr=True))
    progress.start()
    return progress
