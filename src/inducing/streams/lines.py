"""Reader of a stream's lines from a file or stdin as they come, and parser of the values in them."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import ColumnError, DataNotFoundError, EmptyDataError, require_one_of
from ..numerics.arrays import LARGEST_NUMBER, LARGEST_TARGET

READ_BYTES = 1 << 18  # bytes asked for at once; a pipe gives what it has
LONGEST = 1 << 24  # the most bytes of a line, so that memory has a bound
FOLLOW_SECONDS = 0.2  # between two attempts to read at the end of a file that grows
HEAD = 4096  # bytes whose checksum tells one file from another


class Stop:
    """A flag that is set when a signal asks the stream to end; `fd` becomes readable, which ends a wait."""

    def __init__(self, fd: int) -> None:
        self.fd, self._asked = fd, False

    def ask(self, *_: object) -> None:
        self._asked = True

    def asked(self) -> bool:
        return self._asked


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Turn SIGINT, SIGTERM and, unless `nohup` ignores it, SIGHUP into a request to end, so that a row is
    read whole or not at all.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    stop = Stop(read)
    wakeup = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop.ask) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(read)
        os.close(write)


@contextmanager
def opened(source: str) -> Iterator[int]:
    """Open a file, or stdin for "-", and yield its file descriptor."""
    if source == "-" and sys.stdin is not None:
        yield sys.stdin.fileno()
        return
    if source == "-":
        raise DataNotFoundError("Standard input is closed: give a file, or a pipe.")
    if not Path(source).is_file():
        raise DataNotFoundError(f"There is no file {source!r}: check the name.")
    with open(source, "rb", buffering=0) as file:
        yield file.fileno()


@dataclass
class Lines:
    """A reader of the lines of an open file descriptor; each line keeps its line end."""

    fd: int
    stop: Stop
    follow: bool = False  # whether to wait at the end of a file for more, unless the file was cut
    rest: bytes = b""  # what was read and not returned yet
    ended: bool = False

    def wait(self, seconds: float) -> list[bytes]:
        """Wait for lines and return those that have come; none on a timeout, a signal or the end."""
        ready, _, _ = select.select([self.fd, self.stop.fd], [], [], max(seconds, 0.0))
        if self.fd not in ready or self.stop.asked():
            return []
        chunk = os.read(self.fd, READ_BYTES)
        if not chunk and self.follow and os.fstat(self.fd).st_size >= os.lseek(self.fd, 0, os.SEEK_CUR):
            select.select([self.stop.fd], [], [], min(max(seconds, 0.0), FOLLOW_SECONDS))
            return []
        if not chunk:  # a last line without a line end may be half a row that is still being written
            self.ended, last = True, self.rest
            whole = last.lstrip().startswith(b"{") and _is_object(last)
            self.rest = b"" if whole else last
            return [last] if whole else []
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        if len(self.rest) > LONGEST:
            raise ColumnError(f"A row has no end after {len(self.rest)} bytes: rows are lines.")
        return [line + b"\n" for line in lines]

    def first(self) -> bytes:
        """Wait for the first line and return it, b"" if the stream ends or a signal comes; keep the rest."""
        lines: list[bytes] = []
        while not (lines or self.ended or self.stop.asked()):
            lines = self.wait(3600.0)
        self.rest = b"".join(lines[1:]) + self.rest
        return lines[0] if lines else b""

    def left(self) -> list[bytes]:
        """Return the whole lines in `rest` without reading more."""
        *lines, self.rest = self.rest.split(b"\n")
        return [line + b"\n" for line in lines]


def fingerprint(fd: int, size: int) -> str:
    """Return the checksum of a file's first bytes, `size` at most: it stays the same when the file grows."""
    return hashlib.sha256(os.pread(fd, min(size, HEAD), 0)).hexdigest()


class BadRow(ValueError):
    """A row cannot be used; the message says why."""


@dataclass(frozen=True)
class Format:
    """The format of a stream's lines, CSV or JSON objects, and the columns that are used."""

    separator: str | None  # of CSV; None for JSON objects
    target: str
    inputs: tuple[str, ...]
    labels: bool  # whether the target is a label
    width: int = 0  # columns of a CSV row
    places: tuple[int, ...] = field(default=())  # column numbers of the inputs and, last, of the target
    text: frozenset[str] | None = None  # the inputs that hold text; None: not known yet, all read as numbers

    @staticmethod
    def of(
        line: bytes,
        kind: str,
        target: str,
        exclude: Sequence[str],
        inputs: Sequence[str] | None,
        labels: bool,
    ) -> Format:
        """Recognise the format by the first line, a header or an object; inputs=None takes all columns."""
        require_one_of("format", kind, ("auto", "csv", "tsv", "jsonl"))
        if not line.strip():
            raise EmptyDataError("The stream is empty: a header and rows, or JSON objects, are needed.")
        try:
            text = _text(line)
            if kind == "auto":
                kind = "jsonl" if text.startswith("{") else "tsv" if "\t" in text else "csv"
            separator = {"csv": ",", "tsv": "\t", "jsonl": None}[kind]
            columns = _object(text) if separator is None else map(str.strip, _fields(text, separator))
        except BadRow as error:
            raise ColumnError(f"The first row does not tell the columns: {error}.") from error
        names = list(columns)
        twice = {name for name in names if names.count(name) > 1}
        missing = [name for name in (target, *exclude, *(inputs or ())) if name not in names]
        if twice or missing:
            what = f"two columns {twice.pop()!r}" if twice else f"no column {missing[0]!r}"
            raise ColumnError(f"The stream has {what}; its columns are {', '.join(map(repr, names))}.")
        if inputs is None:
            inputs = [name for name in names if name != target and name not in exclude]
        if not inputs or target in exclude:
            raise ColumnError(f"Nothing is left to predict {target!r} from, or it is excluded itself.")
        places = tuple(names.index(name) for name in (*inputs, target))
        return Format(separator, target, tuple(inputs), labels, len(names), places)

    def typed(self, lines: Sequence[bytes]) -> Format:
        """Return the format with `text` set: the inputs that are no numbers in most of these lines."""
        wrong, rows = dict.fromkeys(self.inputs, 0), 0
        for line in lines:
            try:
                values = self._values(_text(line))
            except BadRow:
                continue
            rows += 1
            for name, value in zip(self.inputs, values):
                try:
                    _number(value, name)
                except BadRow:
                    wrong[name] += value not in (None, "")
        return replace(self, text=frozenset(name for name in self.inputs if 2 * wrong[name] > rows))

    def _values(self, text: str) -> list[Any]:
        """Return the inputs and the target of a line unparsed; raise BadRow if some are missing."""
        if self.separator is None:
            row, names = _object(text), (*self.inputs, self.target)
            missing = [name for name in names if name not in row]
            if missing:
                raise BadRow(f"it has no {missing[0]!r}")
            return [row[name] for name in names]
        fields = _fields(text, self.separator)
        if len(fields) != self.width:
            raise BadRow(f"it has {len(fields)} columns, but the header has {self.width}")
        return [fields[i] for i in self.places]

    def read(self, line: bytes) -> tuple[list[Any], Any] | None:
        """Return the inputs and the target of a line, None if it is blank; raise BadRow if it is invalid."""
        text = _text(line)
        if not text.strip():
            return None
        names, values = (*self.inputs, self.target), self._values(text)
        label = _label(values.pop(), self.target) if self.labels else None
        try:
            plain = text.isascii() and "_" not in text  # float() would accept 1_000 and digits of all scripts
            numbers: list[Any] | None = list(map(float, values)) if plain and not self.text else None
        except (TypeError, ValueError, OverflowError):
            numbers = None
        if numbers is None:
            parsers = [_label if name in (self.text or ()) else _number for name in names]
            numbers = [parse(value, name) for parse, value, name in zip(parsers, values, names)]
        if not sum(abs(v) for v in numbers if isinstance(v, float)) <= LARGEST_NUMBER:
            for number, name in zip(numbers, names):
                most = LARGEST_TARGET if name == self.target else LARGEST_NUMBER
                if isinstance(number, float) and not abs(number) <= most:
                    beyond = f", beyond {most:g}" if abs(number) < math.inf else ""
                    raise BadRow(f"{name!r} is {number}{beyond}")
        return (numbers, label) if self.labels else (numbers[:-1], numbers[-1])


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8").lstrip("\ufeff").strip("\r\n")
    except UnicodeDecodeError as error:
        raise BadRow(f"it is no UTF-8 ({error.reason} at byte {error.start})") from error


def _fields(text: str, separator: str) -> list[str]:
    if '"' not in text:
        return text.split(separator)
    try:
        return next(csv.reader([text], delimiter=separator, strict=True))
    except csv.Error as error:
        raise BadRow(f"it is no CSV ({error})") from error


def _object(text: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRow(f"it is no JSON ({error})") from error
    if not isinstance(row, dict):
        raise BadRow(f"it is a JSON {type(row).__name__}, not an object")
    return row


def _is_object(line: bytes) -> bool:
    """Return whether a line is a whole, non-empty JSON object."""
    try:
        return bool(_object(_text(line)))
    except BadRow:
        return False


def _number(value: Any, name: str) -> float:
    try:
        if isinstance(value, str) and (not value.isascii() or "_" in value):
            raise ValueError(value)
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        what = "is missing" if value in (None, "") else f"is {value!r}, which is no number"
        raise BadRow(f"{name!r} {what}") from error


def _label(value: Any, name: str) -> str:
    label = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
    if value is None or not label:
        raise BadRow(f"{name!r} is missing")
    return label
