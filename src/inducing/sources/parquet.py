"""Parquet files as a source: a part is a row group, its columns found by name and encoded as numbers."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ColumnError, DataNotFoundError, EmptyDataError, MissingValuesError, ParameterError
from .source import Layout, Pieces, first_line
from .tables import SUFFIXES, Encoder, complete_rows, is_label, is_numeric, numbers, require_columns

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class TableReader:
    """A function from a data frame to X and y: it knows the inputs, their encoding, and the targets."""

    encoder: Encoder
    targets: tuple[str, ...]
    one_output: bool
    drop_missing: bool = False
    labels: tuple[str, ...] | None = None  # of a text target, which becomes their numbers

    @staticmethod
    def of(
        names: Sequence[str],
        y: str | Sequence[str] | None,
        columns: Sequence[str] | None,
        *,
        encoder: Encoder | None = None,
        drop_missing: bool = False,
        labels: tuple[str, ...] | None = None,
    ) -> TableReader:
        """Make the reader of a table of these columns; the inputs are `columns`, or all but the targets."""
        targets = () if y is None else (y,) if isinstance(y, str) else tuple(y)
        if encoder is None:
            inputs = [name for name in names if name not in targets] if columns is None else columns
            encoder = Encoder(tuple(inputs))
        if not encoder.columns:
            raise ColumnError("The table has no columns to use as inputs; add at least one.")
        if set(targets) & set(encoder.columns):
            raise ColumnError(f"Column {targets[0]!r} is both an input and a target; choose one.")
        return TableReader(encoder, targets, y is None or isinstance(y, str), drop_missing, labels)

    @property
    def layout(self) -> Layout:
        names = self.encoder.feature_names
        return Layout(len(names), len(self.targets), self.one_output, names, self.targets or None)

    @property
    def columns(self) -> list[str]:
        return [*self.encoder.columns, *self.targets]

    def __call__(self, frame: DataFrame) -> tuple[Any, Any]:
        require_columns(frame, self.columns)
        if self.drop_missing:
            frame = frame[complete_rows(frame, self.columns)]
        for name in self.encoder.categories:
            missing = np.flatnonzero(frame[name].isna().to_numpy())
            if len(missing):
                raise MissingValuesError(
                    f"column {name!r} has no value in row {missing[0]}; fill or remove it"
                )
        X = self.encoder.transform(frame).to_numpy()  # (c, d)
        if self.labels is not None:
            text = Encoder(self.targets, {self.targets[0]: self.labels}).transform(frame)
            return X, text.to_numpy().argmax(axis=1).astype(float)
        y = [numbers(frame[name], name) for name in self.targets]
        return X, None if not y else y[0] if self.one_output else np.stack(y, axis=1)


@dataclass(frozen=True)
class ParquetPiece:
    """A row group of a file."""

    path: str
    group: int
    alone: bool  # it is the file's only one
    rows: int
    reader: TableReader

    @property
    def where(self) -> str:
        return self.path if self.alone else f"{self.path}, row group {self.group}"

    @property
    def n_rows(self) -> int | None:
        return None if self.reader.drop_missing else self.rows

    def table(self, columns: Sequence[str] | None = None) -> Any:
        """The rows as an arrow table with the columns named, or with all."""
        import pyarrow.parquet as pq

        names = None if columns is None else list(columns)
        with pq.ParquetFile(self.path) as file:
            return file.read_row_group(self.group, columns=names, use_threads=False)

    def read(self) -> tuple[Any, Any]:
        return self.reader(self.table(self.reader.columns).to_pandas(ignore_metadata=True))


def is_paths(data: Any) -> bool:
    """Whether data name files: a path, a glob, or a list of paths."""
    if isinstance(data, list | tuple):
        return len(data) > 0 and all(isinstance(item, str | Path) for item in data)
    return isinstance(data, str | Path)


def parquet_files(data: Any) -> list[str]:
    """List the files of a folder (and the folders in it), a glob, a file or a list, ordered by name."""
    if isinstance(data, list | tuple):
        return [file for item in data for file in parquet_files(item)]
    path = Path(data)
    if path.is_dir():
        inside = [file for file in path.rglob("*") if SUFFIXES.get(file.suffix.lower()) == "parquet"]
        files = sorted(str(file) for file in inside if not file.name.startswith((".", "_")))
    else:
        files = [str(path)] if path.is_file() else sorted(glob.glob(str(data), recursive=True))
    if not files:
        raise DataNotFoundError(f"There are no parquet files in {str(data)!r}: check the name.")
    return files


def from_parquet(
    data: Any,
    y: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    encoder: Encoder | None = None,
    drop_missing: bool = False,
    labels: tuple[str, ...] | None = None,
) -> Pieces:
    """Make a source with a part for each row group of the files, which must all have the columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names_given = isinstance(y, list | tuple) and all(isinstance(name, str) for name in y)
    if not (y is None or isinstance(y, str) or names_given):
        raise ParameterError(
            f"y must name the target column(s) of parquet files, but is a {type(y).__name__}"
        )
    reader: TableReader | None = None
    pieces: list[ParquetPiece] = []
    for path in parquet_files(data):
        try:
            metadata = pq.read_metadata(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise ColumnError(f"{path!r} could not be read as parquet: {first_line(error)}") from error
        names = [str(name) for name in metadata.schema.to_arrow_schema().names]
        if reader is None:
            reader = TableReader.of(
                names, y, columns, encoder=encoder, drop_missing=drop_missing, labels=labels
            )
        missing = [name for name in reader.columns if name not in names]
        if missing:
            have = ", ".join(map(repr, names))
            raise ColumnError(
                f"part {len(pieces)} ({path}) has no column {missing[0]!r}; its columns are {have}"
            )
        groups = range(metadata.num_row_groups)
        rows = [metadata.row_group(i).num_rows for i in groups]
        pieces += [ParquetPiece(path, i, len(groups) == 1, rows[i], reader) for i in groups if rows[i]]
    if reader is None or not pieces:
        raise EmptyDataError(f"the parquet files of {str(data)!r} have no rows; at least one is needed")
    return Pieces(reader.layout, tuple(pieces))


def encoder_of(source: Pieces, columns: Sequence[str]) -> Encoder:
    """Make the encoder of these columns of parquet files, in one pass over those that hold text."""
    import pandas as pd
    import pyarrow.parquet as pq

    pieces = [piece for piece in source.pieces if isinstance(piece, ParquetPiece)]
    kinds = pq.read_schema(pieces[0].path).empty_table().to_pandas()
    require_columns(kinds, columns)
    text = [name for name in columns if not is_numeric(kinds[name], name)]
    values = {name: pd.Series([], dtype=object) for name in text}
    for piece in pieces if text else ():
        frame = piece.table(text).to_pandas(ignore_metadata=True).astype(object)
        values = {name: pd.concat([values[name], frame[name]]).drop_duplicates() for name in text}
    categories = {name: Encoder.fit(values[name].to_frame(name)).categories[name] for name in text}
    return Encoder(tuple(columns), categories)


def target_labels(source: Pieces, target: str) -> np.ndarray | None:
    """The labels of a column of parquet files that holds text or booleans, sorted; None of one with numbers.
    (classes,)
    """
    import pyarrow.parquet as pq

    piece = next(piece for piece in source.pieces if isinstance(piece, ParquetPiece))
    column = pq.read_schema(piece.path).empty_table().to_pandas()[target]
    if not is_label(column, target):
        return None
    if is_numeric(column, target):
        return np.array([False, True])
    return np.array(encoder_of(source, [target]).categories[target])
