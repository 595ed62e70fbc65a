"""A stream while it is read: the model, where it stands, what it says of every row, and when it is saved."""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import typer

from ..cli.app import in_existing_folder
from ..errors import LabelError, NonFiniteError, ShapeError
from .rows import BadRow, Format, Lines, Stop, fingerprint

BATCH = 512  # rows given to the model at once, at most; each is still predicted before it is read
SHOWN = 0.5, 10.0  # seconds between two reports, on a terminal and elsewhere
PATIENCE = 2.0  # seconds before the first


class Row(NamedTuple):
    number: int
    start: int  # its place in the source, in bytes
    x: list[float]
    y: Any


class Refused(Exception):
    """A row that ends the stream, where that was asked for."""


@dataclass
class Place:
    """Where a stream stands: what a model file says of it."""

    rows: int = 0  # of the source, read or refused
    refused: int = 0
    source: str | None = None  # None is stdin
    offset: int = 0  # bytes of the source that these rows are
    head: str = ""  # the source's fingerprint
    written: int = 0  # bytes of the predictions


@dataclass
class Predictions:
    """A CSV file of what the model said of each row."""

    file: Any = None
    begun: bool = False

    @staticmethod
    @contextmanager
    def opened(name: str | None, written: int) -> Iterator[Predictions]:
        """Goes on after `written` bytes: what was said of rows that the saved model has not read will be said
        again.
        """
        if name is None or name == "-":
            yield Predictions(None if name is None else sys.stdout)
            return
        path = in_existing_folder(Path(name))
        going_on = 0 < written <= (path.stat().st_size if path.is_file() else 0)
        if going_on:
            os.truncate(path, written)
        with open(path, "a" if going_on else "w", newline="", encoding="utf-8") as file:
            yield Predictions(file, going_on)

    def write(self, header: Sequence[str], rows: Iterator[Sequence[Any]]) -> None:
        if self.file is None:
            return
        table = csv.writer(self.file)
        if not self.begun:
            table.writerow(header)
        table.writerows(rows)
        self.file.flush()
        self.begun = True

    def size(self) -> int:
        """In bytes, where it is a file."""
        return os.fstat(self.file.fileno()).st_size if self.file not in (None, sys.stdout) else 0


@dataclass
class Session:
    out: Path
    target: str
    model: Any
    metrics: Any  # of `prequential`
    classes: list[str] | None = None  # None for a regression, and for a classification until they are known
    place: Place = field(default_factory=Place)
    strict: bool = False
    save_rows: int = 10_000
    save_seconds: float = 30.0
    format: Format | None = None
    predictions: Predictions = field(default_factory=Predictions)
    stopped_at: int | None = None  # the row that was refused, where that ends the stream

    def __post_init__(self) -> None:
        self.waiting: list[Row] = []  # of a classification whose classes are not known yet
        self.began = self.saved_at = time.monotonic()
        self.unsaved, self.read, self.shown, self.line = 0, 0, 0.0, False

    @property
    def classifies(self) -> bool:
        return hasattr(self.model, "predict_proba")

    @property
    def inputs(self) -> list[str] | None:
        """The columns a model has been made with."""
        return self.model.metadata_["encoder"]["columns"] if hasattr(self.model, "metadata_") else None

    @property
    def changed(self) -> bool:
        """Whether there is something to save."""
        return self.unsaved > 0 and not self.waiting and hasattr(self.model, "n_rows_")

    def follow(self, lines: Lines, stop: Stop) -> None:
        """Read until the stream ends, a signal comes or, where that is asked for, a row is refused."""
        try:
            ready = lines.held()
            while not stop.asked():
                for start in range(0, len(ready), BATCH):
                    self.take(ready[start : start + BATCH])
                    self.save_if_due(lines.fd)
                    self.report()
                    if stop.asked():
                        break
                if lines.ended:
                    break
                due = self.saved_at + self.save_seconds - time.monotonic()
                ready = lines.wait(due if self.changed else 60.0)
                self.save_if_due(lines.fd)
            if self.waiting:  # for classes that will not come now
                self.learn([], end=True)
        except Refused:
            pass
        finally:
            if self.changed:
                self.save(lines.fd)

    def take(self, lines: Sequence[bytes]) -> None:
        """Rows from lines: predicted, then read."""
        assert self.format is not None
        rows: list[Row] = []
        for line in lines:
            start = self.place.offset
            self.place.offset += len(line)
            try:
                values = self.format.read(line)
            except BadRow as error:
                self.place.rows += 1
                if self.strict:
                    self.learn(rows)
                    rows = []
                self.refuse(Row(self.place.rows, start, [], None), error)
                continue
            if values is not None:
                self.place.rows += 1
                rows.append(Row(self.place.rows, start, *values))
        self.learn(rows)

    def learn(self, rows: list[Row], *, end: bool = False) -> None:
        if self.classifies and self.classes is None:
            self.waiting += rows
            if len(self.waiting) < self.model.warmup and not end:
                return
            self.classes = sorted({row.y for row in self.waiting[: self.model.warmup]})
            if len(self.classes) < 2:
                count, known = len(self.waiting), self.classes
                raise LabelError(
                    f"The first {count} rows hold the label {known} alone: name all there are with --classes."
                )
            rows, self.waiting = self.waiting, []
        while rows:
            left = self.model.warmup - getattr(
                self.model, "n_rows_", 0
            )  # the warm-up ends on the row it should
            self._learn(rows[:left] if left > 0 else rows)
            rows = rows[left:] if left > 0 else []

    def _learn(self, rows: list[Row]) -> None:
        """The model reads these rows; any that it refuses is found by halving."""
        import numpy as np

        X, y = np.array([row.x for row in rows]), np.array([row.y for row in rows])
        try:
            said = self.model.predict_then_fit(X, y, *([self.classes] if self.classifies else []))
        except (LabelError, NonFiniteError, ShapeError) as error:
            if len(rows) > 1:
                self._learn(rows[: len(rows) // 2])
                self._learn(rows[len(rows) // 2 :])
            else:
                self.refuse(rows[0], str(error).replace("row 0", "it"))
            return
        self.unsaved, self.read = self.unsaved + len(rows), self.read + len(rows)
        if self.classifies:
            self.metrics.add(y, said, self.classes)
            kinds, columns = [f"={label}" for label in self.classes or []], said
        else:
            self.metrics.add(y, said.mean, said.log_density)
            kinds, columns = ["_mean", "_std"], np.stack([said.mean, said.std], axis=1)
        header = ["row", self.target, *(f"{self.target}{kind}" for kind in kinds)]
        values = (["" if v != v else v for v in line] for line in columns.tolist())  # no prediction is NaN
        self.predictions.write(header, ((row.number, row.y, *line) for row, line in zip(rows, values)))

    def refuse(self, row: Row, why: Any) -> None:
        self._end_line()
        typer.echo(f"inducing: row {row.number} refused: {why}", err=True)
        if self.strict:
            self.place.rows, self.place.offset, self.stopped_at = row.number - 1, row.start, row.number
            raise Refused
        self.place.refused += 1
        self.unsaved += 1

    def save_if_due(self, fd: int) -> None:
        late = time.monotonic() - self.saved_at >= self.save_seconds
        if self.changed and (late or self.unsaved >= self.save_rows):
            self.save(fd)

    def save(self, fd: int) -> None:
        assert self.format is not None
        self.place.head = "" if self.place.source is None else fingerprint(fd, self.place.offset)
        self.place.written = self.predictions.size()
        stream = {"place": asdict(self.place), "metrics": self.metrics.to_json()}
        encoder = {"columns": list(self.format.inputs), "categories": {}}
        self.model.save(self.out, {"target": self.target, "encoder": encoder, "stream": stream})
        self.unsaved, self.saved_at = 0, time.monotonic()

    def report(self) -> None:
        """A line on stderr: written over on a terminal, a new one now and then elsewhere."""
        now, terminal = time.monotonic(), sys.stderr.isatty()
        if now - self.began < PATIENCE or now - self.shown < SHOWN[not terminal]:
            return
        text = f"{self.place.rows:,} rows, {self.place.refused} refused, {self.read / (now - self.began):,.0f} rows/s"
        text += f", {getattr(self.model, 'basis_size_', 0)} basis functions"
        text += "".join(f", {name} {value:.4f}" for name, value in self.metrics.values().items())
        typer.echo(f"\r{text}\x1b[K" if terminal else text, err=True, nl=not terminal)
        self.shown, self.line = now, terminal

    def _end_line(self) -> None:
        if self.line:
            typer.echo(err=True)
            self.line = False

    def summarise(self, source: str, *, to_stderr: bool) -> None:
        from rich.console import Console
        from rich.table import Table

        from ..cli.models import file_size

        self._end_line()
        seconds = time.monotonic() - self.began
        rows = {"rows read": f"{self.read}"}
        if hasattr(self.model, "n_rows_"):
            rows |= {
                "rows read in all": f"{self.model.n_rows_}",
                "basis functions": f"{self.model.basis_size_}",
            }
        rows |= {"refused in all": f"{self.place.refused}", "predicted before read": f"{self.metrics.rows}"}
        rows |= {name: f"{value:.4f}" for name, value in self.metrics.values().items()} | {
            "seconds": f"{seconds:.2f}"
        }
        table = Table(show_header=False)
        table.add_column(style="bold")
        table.add_column(justify="right", overflow="fold")
        for name, value in rows.items():
            table.add_row(name, value)
        console = Console(stderr=to_stderr, markup=False, emoji=False, highlight=False)
        console.print(f"{self.target} from {source}")
        console.print(table)
        made = hasattr(self.model, "n_rows_")
        console.print(
            f"Model: {self.out} ({file_size(self.out)})"
            if made
            else "No model was made: no row could be used."
        )
