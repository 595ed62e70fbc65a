"""Parquet and CSV files as a source: each row group is a part, its columns found by name and encoded."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import package
from ..errors import ColumnError, DataNotFoundError, EmptyDataError, ParameterError
from .columns import Column, Contents, values_of
from .source import Layout, Pieces, first_line
from .tables import SUFFIXES, kind_of, spooled

if TYPE_CHECKING:
    from .table_encoder import TableEncoder

MOST_NAMES = 1_000_000  # of files and folders in a folder; one with more is no table
MOST_PARTS = 1_000_000


@dataclass(frozen=True)
class TableReader:
    """A function that makes X and y of a data frame, with the encoder of the inputs and the targets."""

    encoder: TableEncoder
    targets: tuple[Column, ...]
    one_output: bool
    drop_missing: bool = False  # leave out rows without a target, or without an input unless gaps are used

    @staticmethod
    def of(
        names: Sequence[str],
        y: str | Sequence[str] | None,
        columns: Sequence[str] | None,
        *,
        encoder: TableEncoder | None = None,
        drop_missing: bool = False,
        labels: tuple[str, ...] | None = None,
    ) -> TableReader:
        """Make the reader of a table with columns `names`. Without an encoder the inputs are numbers:
        `columns`, or all but the targets y. With `labels` a target becomes their numbers.
        """
        from .table_encoder import TableEncoder

        targets = () if y is None else (y,) if isinstance(y, str) else tuple(y)
        if encoder is None:
            inputs = [name for name in names if name not in targets] if columns is None else columns
            encoder = TableEncoder.of_numbers(inputs)
        if not encoder.inputs:
            raise ColumnError("The table has no columns to use as inputs; add at least one.")
        if set(targets) & set(encoder.inputs):
            raise ColumnError(f"Column {targets[0]!r} is both an input and a target; choose one.")
        as_number = (
            Column("", "number") if labels is None else Column("", "category", levels=labels, codes=True)
        )
        one_output = y is None or isinstance(y, str)
        named = tuple(replace(as_number, name=t) for t in targets)
        return TableReader(encoder, named, one_output, drop_missing)

    @property
    def layout(self) -> Layout:
        names, targets = tuple(self.encoder.get_feature_names_out()), tuple(t.name for t in self.targets)
        gaps = self.drop_missing and self.encoder.missing == "use"
        return Layout(len(names), len(targets), self.one_output, names, targets or None, self.encoder, gaps)

    @property
    def columns(self) -> list[str]:
        return [*self.encoder.inputs, *(target.name for target in self.targets)]

    def __call__(self, frame: Any) -> tuple[Any, Any]:
        from .encoding import as_frame

        frame = as_frame(frame)
        X, marks = self.encoder.transform(frame), self.encoder.marks
        y = np.empty((len(X), len(self.targets)))
        for q, target in enumerate(self.targets):
            try:
                y[:, q] = target.encode(values_of(frame[target.name], marks), gaps=False)[:, 0]
            except ColumnError as error:
                raise ColumnError(f"column {target.name!r} {error}") from error
        if self.drop_missing:
            lacking = y if self.encoder.missing == "use" else np.hstack([X, y])
            rows = ~np.isnan(lacking).any(axis=1)
            X, y = X[rows], y[rows]
        return X, None if not self.targets else y[:, 0] if self.one_output else y


@dataclass(frozen=True)
class ParquetPiece:
    """A row group of a parquet file."""

    path: str
    group: int
    alone: bool  # whether it is the file's only one
    rows: int
    reader: TableReader

    @property
    def where(self) -> str:
        return self.path if self.alone else f"{self.path}, row group {self.group}"

    @property
    def n_rows(self) -> int | None:
        return None if self.reader.drop_missing else self.rows

    def table(self, columns: Sequence[str] | None = None) -> Any:
        """Read the rows as an Arrow table with these columns, by default all."""
        pq = package("pyarrow.parquet")
        names = None if columns is None else list(columns)
        with pq.ParquetFile(self.path) as file:
            return file.read_row_group(self.group, columns=names, use_threads=False)

    def read(self) -> tuple[Any, Any]:
        return self.reader(self.table(self.reader.columns))


def is_paths(data: Any) -> bool:
    """Return whether data name files: a path, a glob, or a list of paths."""
    if isinstance(data, list | tuple):
        return len(data) > 0 and all(isinstance(item, str | Path) for item in data)
    return isinstance(data, str | Path)


def parquet_files(data: Any) -> list[str]:
    """List the files that a folder (with its subfolders), a glob, a file or a list stands for, by name."""
    if isinstance(data, list | tuple):
        return [file for item in data for file in parquet_files(item)]
    path = Path(data)
    if path.is_dir():
        files = _inside(path)
    else:
        files = [str(path)] if path.is_file() else sorted(glob.glob(str(data), recursive=True))
    if not files:
        raise DataNotFoundError(f"There are no parquet files in {str(data)!r}: check the name.")
    return files


def _inside(folder: Path) -> list[str]:
    """List the parquet files in a folder and its subfolders, ordered by name; links are not followed."""
    files, looked = [], 0
    for place, _, names in os.walk(folder):
        looked += 1 + len(names)
        if looked > MOST_NAMES:
            raise ColumnError(f"{str(folder)!r} has more than {MOST_NAMES} files: name that of one table.")
        kept = [name for name in names if not name.startswith((".", "_"))]
        files += [str(Path(place, n)) for n in kept if SUFFIXES.get(Path(n).suffix.lower()) == "parquet"]
    return sorted(files)


def from_parquet(
    data: Any, y: str | Sequence[str] | None = None, columns: Sequence[str] | None = None
) -> Pieces:
    """Make a source with a part for each row group of files that all have the columns asked for."""
    names_given = isinstance(y, list | tuple) and all(isinstance(name, str) for name in y)
    if not (y is None or isinstance(y, str) or names_given):
        raise ParameterError(f"y must name target column(s) of parquet files, but is a {type(y).__name__}")
    files, plain = table_files(data, needed=[y] if isinstance(y, str) else y or ())
    wanted = TableReader.of(files.layout.feature_names or (), y, columns)
    inputs = wanted.encoder.inputs
    require_in_files(files, wanted.columns)
    if set(inputs) <= plain:
        return reading(files, wanted.encoder, y)
    from .table_encoder import TableEncoder

    encoder = TableEncoder(missing="drop")
    return reading(files, encoder.settle(survey_of(files, encoder, inputs)), y)


def table_files(
    data: Any, missing: Sequence[str] = (), needed: Sequence[str] = ()
) -> tuple[Pieces, set[str]]:
    """Return a source of a folder, glob, list or file with all columns as inputs, and the names of those that
    hold plain numbers. A CSV file is parsed once, into a temporary file; its fields that are one of `missing`
    are gaps. Raise at the first file that lacks a column of `needed`.
    """
    pa = package("pyarrow")
    pq = package("pyarrow.parquet")
    spool = None
    if isinstance(data, str | Path) and Path(data).is_file() and kind_of(Path(data)) != "parquet":
        spool = spooled(Path(data), missing)
    reader: TableReader | None = None
    pieces: list[ParquetPiece] = []
    plain: set[str] = set()
    for path in parquet_files(data if spool is None else spool.name):
        try:
            metadata = pq.read_metadata(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise ColumnError(f"{path!r} could not be read as parquet: {first_line(error)}") from error
        schema = metadata.schema.to_arrow_schema()
        own = {str(field.name) for field in schema if _is_plain(field.type)}
        plain = own if reader is None else plain & own
        if reader is None:
            reader = TableReader.of([str(name) for name in schema.names], None, None)
        _require(len(pieces), path, schema.names, needed)
        rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        pieces += [ParquetPiece(path, i, len(rows) == 1, n, reader) for i, n in enumerate(rows) if n]
        if len(pieces) > MOST_PARTS:
            raise ColumnError(f"{str(data)!r} has more than {MOST_PARTS} row groups: write larger ones.")
    if reader is None or not pieces:
        raise EmptyDataError(f"the parquet files of {str(data)!r} have no rows; at least one is needed")
    return Pieces(reader.layout, tuple(pieces), spool=spool), plain


def _is_plain(kind: Any) -> bool:
    """Return whether floats hold all numbers of an Arrow type exactly."""
    types = package("pyarrow.types")
    small = types.is_integer(kind) and kind.bit_width < 64
    return small or types.is_floating(kind) or types.is_boolean(kind)


def require_in_files(files: Pieces, columns: Sequence[str]) -> None:
    """Raise if one of the files lacks one of these columns."""
    pq = package("pyarrow.parquet")
    before = ""
    for index, piece in enumerate(files.pieces):
        path = piece.path  # type: ignore[attr-defined]
        if path != before:
            _require(index, path, pq.read_schema(path).names, columns)
        before = path


def _require(index: int, path: str, names: Sequence[str], columns: Sequence[str]) -> None:
    """Raise if a file with columns `names`, which begins with part `index`, lacks one of `columns`."""
    lacking = [name for name in columns if name not in names]
    if lacking:
        have = ", ".join(repr(str(name)) for name in names)
        raise ColumnError(f"part {index} ({path}) has no column {lacking[0]!r}; its columns are {have}")


def reading(
    files: Pieces,
    encoder: TableEncoder,
    y: str | Sequence[str] | None,
    *,
    drop_missing: bool = False,
    labels: tuple[str, ...] | None = None,
) -> Pieces:
    """Return the source with an encoder's inputs and the targets y; `labels` become their numbers."""
    reader = TableReader.of((), y, None, encoder=encoder, drop_missing=drop_missing, labels=labels)
    pieces = tuple(replace(piece, reader=reader) for piece in files.pieces)  # type: ignore[type-var]
    return replace(files, layout=reader.layout, pieces=pieces)


def survey_of(files: Pieces, encoder: TableEncoder, columns: Sequence[str]) -> dict[str, Contents | str]:
    """Return the contents of columns of files, or what is wrong with them, in one pass."""
    total: dict[str, Contents | str] = dict.fromkeys(columns, Contents())
    for piece in files.pieces:
        for name, seen in encoder.seen(piece.table(columns)).items():  # type: ignore[attr-defined]
            before = total[name]
            if isinstance(before, str) or isinstance(seen, str):
                total[name] = before if isinstance(before, str) else seen
                continue
            try:
                total[name] = before + seen
            except ColumnError as error:
                total[name] = str(error)
    return total
