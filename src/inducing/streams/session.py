"""A session reads a stream: it predicts each row, then learns from it, and saves the model, its place in the
stream and the scores on the way, so that a killed session can go on from the model file.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import errors, package
from ..files.atomic import require_apart
from ..files.models import load
from ..progress import Status
from ..sources.table_encoder import TableEncoder
from .lines import HEAD, BadRow, Format, Lines, fingerprint, opened, stop_on_signals
from .scores import RunningClassification, RunningRegression, scores_from

NOTED = 20  # refused rows that are reported one by one; later ones are counted
BATCH = 512  # the most rows given to the model at once; each is still predicted before it is read


class Row(NamedTuple):
    number: int  # in the stream, from 1 on
    start: int  # where it begins in the source, in bytes
    x: list[Any]
    y: Any


class Refused(Exception):
    """A row was refused, which ends a strict stream."""


@dataclass
class Place:
    """The position of a stream, as a model file records it."""

    rows: int = 0  # rows of the source so far, read or refused
    refused: int = 0
    source: str | None = None  # path; None for stdin
    offset: int = 0  # bytes of the source up to the end of these rows
    head: str = ""  # checksum of the source's first bytes, "" if it was cut
    end: str = ""  # checksum of the last bytes before `offset`
    written: int = 0  # bytes of the predictions
    predictions: str | None = None  # path of their file; None for none or stdout
    tail: str = ""  # checksum of the last bytes written there


@dataclass
class Predictions:
    """A CSV file, or stdout, with the prediction of each row; without a file, nothing is written."""

    file: Any = None
    begun: bool = False  # whether the header is written

    @staticmethod
    @contextmanager
    def opened(name: str | None, place: Place) -> Iterator[Predictions]:
        """Open the file of that name, "-" for stdout, and cut it where the saved model stood, since the rows
        after that will be predicted again. Raise if the file holds anything else, which would be lost.
        """
        if name is None or name == "-":
            yield Predictions(None if name is None else sys.stdout)
            return
        with open(name, "a+", newline="", encoding="utf-8") as file:
            size, ours = os.fstat(file.fileno()).st_size, place.predictions == os.path.realpath(name)
            same = ours and place.written <= size and _tail(file.fileno(), place.written) == place.tail
            if size and not same:
                raise errors.ParameterError(f"{name!r} exists and is not this stream's: name another")
            os.ftruncate(file.fileno(), place.written if size else 0)
            yield Predictions(file, size > 0)

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
        """Write all of a file to the disk and return its size in bytes, 0 for none or stdout."""
        if self.file in (None, sys.stdout):
            return 0
        os.fsync(self.file.fileno())
        return os.fstat(self.file.fileno()).st_size


def _tail(fd: int, size: int) -> str:
    """Return the checksum of the number `size` and of the last bytes of a file's first `size` bytes."""
    start = max(0, size - HEAD)
    return hashlib.sha256(str(size).encode() + os.pread(fd, size - start, start)).hexdigest()


@dataclass
class Session:
    """A stream and the estimator that learns from it: every row is predicted, then read.

    The model is saved to `out` after `save_rows` rows, after `save_seconds` if rows have come, and at the
    end. Rows that cannot be used are reported by number, counted from 1 without the header, and leave the
    model as it was; a strict session stops before the first of them.
    """

    out: Path
    target: str
    model: Any  # an estimator with warmup, predict_then_fit and save
    scores: RunningRegression | RunningClassification
    classes: list[str] | None = None  # all labels there will ever be; None: learn them from the rows
    labels: list[str] | None = None  # the labels that the predictions have columns for
    place: Place = field(default_factory=Place)
    strict: bool = False
    save_rows: int = 10_000
    save_seconds: float = 30.0
    stopped_at: int | None = None  # the refused row that ended a strict stream
    read: int = 0  # rows that this session has read
    encoder: TableEncoder | None = None  # of inputs with text or dates, from the warm-up on
    format: Format = field(init=False)
    predictions: Predictions = field(init=False, default_factory=Predictions)
    status: Status = field(init=False, default_factory=Status)

    def __post_init__(self) -> None:
        self._waiting: list[Row] = []  # rows that wait until the classes and the text columns are known
        self._reasons: Counter[str] = Counter()  # why rows were refused, with numbers and values left out
        self._unsaved, self._saved_at = 0, time.monotonic()

    @staticmethod
    def begun(out: Path, target: str, model: Any, classes: list[str] | None = None) -> Session:
        """Begin a session; `classes` are all labels there will ever be, None learns them from the rows."""
        scores = RunningClassification() if hasattr(model, "predict_proba") else RunningRegression()
        return Session(out, target, model, scores, classes, classes)

    @staticmethod
    def resumed(out: Path) -> Session:
        """Resume the session that saved a model file."""
        model = load(out)
        metadata = getattr(model, "metadata_", {})
        state = metadata.get("stream")
        if not isinstance(state, dict):
            raise errors.ModelFileError(f"{str(out)!r} is no model of a stream: name another file.")
        encoder = getattr(model, "encoder_", None)
        known = [str(label) for label in model.classes_] if hasattr(model, "classes_") else None
        classes, labels = None if getattr(model, "open_classes_", True) else known, state.get("labels", known)
        try:
            scores, place = scores_from(state["metrics"]), Place(**state["place"])
        except (KeyError, TypeError) as error:
            raise errors.ModelFileError(f"{str(out)!r} does not say where it stopped ({error!r}).") from error
        target = str(metadata.get("target"))
        return Session(out, target, model, scores, classes, labels, place, encoder=encoder)

    @property
    def classifies(self) -> bool:
        return hasattr(self.model, "predict_proba")

    def run(
        self,
        source: str,
        *,
        format: str = "auto",
        exclude: Sequence[str] = (),
        skip: int | None = None,
        predictions: str | None = None,
        follow: bool = False,
    ) -> None:
        """Read a file, "-" for stdin, until it ends, a signal comes or, if strict, a row is refused.

        format is "csv", "tsv", "jsonl", or "auto": by the first line. Rows that were read from this file
        before are passed over, or the first `skip` rows if given. With `follow`, wait at the end of a file
        and read what is written there later. predictions names a CSV file, "-" for stdout, to write to.
        """
        read = None if source == "-" else source
        require_apart(self.out, read)
        if predictions not in (None, "-"):
            require_apart(predictions, read, self.out)
        with opened(source) as fd, stop_on_signals() as stop, warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.DriftWarning)  # `_read` reports drift by the row's number
            warnings.filterwarnings("ignore", r".* hold levels not seen before", errors.InducingWarning)
            lines = Lines(fd, stop, follow and read is not None)
            self._find_rows(lines, source, format, exclude, skip)
            with Predictions.opened(predictions, self.place) as self.predictions:
                self._follow(lines)
        if self._reasons.total() > NOTED:
            counts = "; ".join(f"{n:,} × {reason}" for reason, n in self._reasons.most_common(5))
            self.status.note(f"inducing: {self._reasons.total():,} rows refused: {counts}")
        self.status.end()

    def _find_rows(
        self, lines: Lines, source: str, kind: str, exclude: Sequence[str], skip: int | None
    ) -> None:
        """Find the columns by the first line, then move to the first row that the model has not read."""
        place, path = self.place, None if source == "-" else str(Path(source).resolve())
        inputs = self.model.metadata_["encoder"]["columns"] if hasattr(self.model, "metadata_") else None
        first = lines.first()
        self.format = Format.of(first, kind, self.target, exclude, inputs, self.classifies)
        if self.encoder is not None:
            text = (c.name for c in self.encoder.columns_ if c.kind not in ("number", "boolean"))
            self.format = replace(self.format, text=frozenset(text))
        if self.format.separator is None:
            lines.rest, first = first + lines.rest, b""
        same = path is not None and skip is None and path == place.source
        if same and fingerprint(lines.fd, place.offset) == place.head:
            if place.end and _tail(lines.fd, place.offset) != place.end:
                row = f"row {place.rows + 1}, where its model stopped"
                advice = "pass --skip, the number of rows to pass over"
                raise errors.ParameterError(f"{source!r} has changed before {row}: {advice}")
            os.lseek(lines.fd, place.offset, os.SEEK_SET)
            lines.rest = b""
            self.status.note(f"inducing: going on after row {place.rows} of {source}")
            return
        if path is not None:
            place.rows = 0
        place.source, place.offset = path, len(first)
        left = skip or 0
        while left and not (lines.ended or lines.stop.asked()):
            passed = lines.left() or lines.wait(60.0)
            lines.rest = b"".join(passed[left:]) + lines.rest
            place.offset += sum(map(len, passed[:left]))
            place.rows += min(left, len(passed))
            left -= min(left, len(passed))

    def _follow(self, lines: Lines) -> None:
        """Read the lines as they come, and save the model whenever that is due and at the end."""
        try:
            ready = lines.left()
            while not lines.stop.asked():
                for start in range(0, len(ready), BATCH):
                    self._take(ready[start : start + BATCH])
                    self._save_if_due(lines.fd)
                    self.status.show(self._status)
                    if lines.stop.asked():
                        break
                if lines.ended:
                    if lines.follow:
                        self.status.note("inducing: the file was cut: --resume reads it from its beginning")
                    elif lines.rest.strip():
                        self.status.note("inducing: the last line has no end and may be half a row: not read")
                    break
                due = self._saved_at + self.save_seconds - time.monotonic()
                ready = lines.wait(due if self._changed else 60.0)
                self._save_if_due(lines.fd)
            if self._waiting:  # no more rows will come
                self._learn([], end=True)
        except Refused:
            pass
        finally:
            if self._changed:
                self._save(lines.fd)

    def _take(self, lines: Sequence[bytes]) -> None:
        """Parse lines into rows, refuse the invalid ones, and learn from the others."""
        rows: list[Row] = []
        if self.format.text is None and lines:
            self.format = self.format.typed(lines)
        for line in lines:
            start = self.place.offset
            self.place.offset += len(line)
            try:
                values = self.format.read(line)
            except BadRow as error:
                self.place.rows += 1
                if self.strict:
                    self._learn(rows)
                    rows = []
                self._refuse(Row(self.place.rows, start, [], None), str(error))
                continue
            if values is not None:
                self.place.rows += 1
                rows.append(Row(self.place.rows, start, *values))
        self._learn(rows)

    def _learn(self, rows: list[Row], *, end: bool = False) -> None:
        """Predict rows, then read them; rows wait until the classes and the text columns are known."""
        unlabelled = self.classifies and self.labels is None
        if unlabelled or (self.format.text and self.encoder is None):
            self._waiting += rows
            if len(self._waiting) < self.model.warmup and not end:
                return
            first = self._waiting[: self.model.warmup]
            if unlabelled:
                self.labels = sorted({row.y for row in first})
            if unlabelled and len(self.labels or ()) < 2:
                rows_so_far = f"The first {len(self._waiting)} rows hold the label {self.labels} alone"
                raise errors.LabelError(f"{rows_so_far}: name all with --classes.")
            if self.format.text:
                self.encoder = TableEncoder(missing="refuse", allow_unseen=True).fit(self._frame(first))
            rows, self._waiting = self._waiting, []
        while rows:
            left = self.model.warmup - getattr(self.model, "n_rows_", 0)
            self._read(rows[:left] if left > 0 else rows)  # no batch goes on past the warm-up
            rows = rows[left:] if left > 0 else []

    def _read(self, rows: list[Row]) -> None:
        """Let the model predict and read rows; if it refuses them, halve them to find the bad ones."""
        y, first = np.array([row.y for row in rows]), getattr(self.model, "n_rows_", 0) + 1
        try:
            X = np.array([row.x for row in rows])
            if self.encoder is not None:
                X = self.encoder.transform(self._frame(rows))
            forecast = self.model.predict_then_fit(X, y, *([self.classes] if self.classes else []))
        except (errors.LabelError, errors.NonFiniteError, errors.ShapeError, errors.ColumnError) as error:
            if len(rows) > 1:
                self._read(rows[: len(rows) // 2])
                self._read(rows[len(rows) // 2 :])
            else:
                self._refuse(rows[0], str(error).replace("row 0", "it"))
            return
        self._unsaved, self.read = self._unsaved + len(rows), self.read + len(rows)
        if isinstance(self.scores, RunningClassification):
            known, labels = self.model.classes_.tolist(), self.labels or []
            self.scores.add(y, forecast, known)
            kinds, columns = [f"={label}" for label in labels], forecast[:, np.isin(known, labels)]
            if self.classes is None:  # one column for all classes that came after the header was written
                kinds, rest = [*kinds, "_other"], forecast[:, ~np.isin(known, labels)]
                columns = np.column_stack([columns, np.sum(rest, axis=1) + 0.0 * columns[:, 0]])
        else:
            self.scores.add(y, forecast.mean, forecast.log_density)
            kinds, columns = ["_mean", "_std"], np.stack([forecast.mean, forecast.std], axis=1)
        header = ["row", self.target, *(f"{self.target}{kind}" for kind in kinds), "drift"]
        drifts = {at - first for at in self.model.drifts_ if at >= first}
        for i in sorted(drifts):
            self.status.note(f"inducing: drift at row {rows[i].number}")
        values = (["" if v != v else v for v in line] for line in columns.tolist())  # NaN: not predicted
        numbered = enumerate(zip(rows, values))
        table = ((row.number, row.y, *line, int(i in drifts)) for i, (row, line) in numbered)
        self.predictions.write(header, table)

    def _frame(self, rows: list[Row]) -> Any:
        """Return the inputs of rows as a table."""
        return package("pandas").DataFrame([row.x for row in rows], columns=list(self.format.inputs))

    def _refuse(self, row: Row, reason: str) -> None:
        """Report and count a refused row; raise `Refused` in a strict session, placed before that row."""
        if self.strict or self._reasons.total() < NOTED:
            self.status.note(f"inducing: row {row.number} refused: {reason}")
        elif self._reasons.total() == NOTED:
            self.status.note("inducing: more rows are refused, and counted")
        self._reasons[re.sub(r"(is|label) '.*?'", r"\1 …", re.sub(r"\d+", "N", reason))[:200]] += 1
        if self.strict:
            self.place.rows, self.place.offset, self.stopped_at = row.number - 1, row.start, row.number
            raise Refused
        self.place.refused += 1
        self._unsaved += 1

    @property
    def _changed(self) -> bool:
        """Whether there is something to save."""
        return self._unsaved > 0 and not self._waiting and hasattr(self.model, "n_rows_")

    def _save_if_due(self, fd: int) -> None:
        late = time.monotonic() - self._saved_at >= self.save_seconds
        if self._changed and (late or self._unsaved >= self.save_rows):
            self._save(fd)

    def _save(self, fd: int) -> None:
        place = self.place
        whole = place.source is not None and os.fstat(fd).st_size >= place.offset
        place.head = fingerprint(fd, place.offset) if whole else ""
        place.end = _tail(fd, place.offset) if whole else ""
        place.written, file = self.predictions.size(), self.predictions.file
        place.predictions = os.path.realpath(file.name) if place.written else None
        place.tail = _tail(file.fileno(), place.written) if place.written else ""
        stream = {"place": asdict(place), "metrics": asdict(self.scores), "labels": self.labels}
        columns = {"columns": list(self.format.inputs), "categories": {}}
        if self.encoder is not None:
            self.model.encoder_ = self.encoder
        self.model.save(self.out, {"target": self.target, "encoder": columns, "stream": stream})
        self._unsaved, self._saved_at = 0, time.monotonic()

    def _status(self) -> str:
        speed, size = self.read / self.status.seconds, getattr(self.model, "basis_size_", 0)
        text = f"{self.place.rows:,} rows, {self.place.refused} refused, {speed:,.0f} rows/s"
        text += f", {size} basis functions"
        if getattr(self.model, "_adaptation", None) and self.model.n_drifts_:
            text += f", {self.model.n_drifts_} drift alarms"
        return text + "".join(f", {name} {value:.4f}" for name, value in self.scores.values().items())
