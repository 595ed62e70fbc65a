"""Sources made of tables: parquet files, and Dask's data frames and arrays. Columns are found by name in
every part.
"""

from __future__ import annotations

import glob
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import (
    ColumnError,
    DataNotFoundError,
    EmptyDataError,
    MissingValuesError,
    ParameterError,
    ShapeError,
)
from .source import Layout, Pieces, Source, checked
from .tables import SUFFIXES, Encoder, complete_rows, is_numeric, numbers, require_columns

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Reading:
    """How a table becomes X and y."""

    encoder: Encoder
    targets: tuple[str, ...]
    one_output: bool
    drop_missing: bool = False

    @staticmethod
    def of(
        names: Sequence[str],
        y: str | Sequence[str] | None,
        columns: Sequence[str] | None,
        *,
        encoder: Encoder | None = None,
        drop_missing: bool = False,
    ) -> Reading:
        """Of a table with columns of these names; the inputs are `columns`, or all that are not targets."""
        targets = () if y is None else (y,) if isinstance(y, str) else tuple(y)
        if encoder is None:
            encoder = Encoder(
                tuple(name for name in names if name not in targets) if columns is None else tuple(columns)
            )
        if not encoder.columns:
            raise ColumnError("The table has no columns to use as inputs; add at least one.")
        if set(targets) & set(encoder.columns):
            raise ColumnError(f"Column {targets[0]!r} is both an input and a target; choose one.")
        return Reading(encoder, targets, y is None or isinstance(y, str), drop_missing)

    @property
    def layout(self) -> Layout:
        names = self.encoder.feature_names
        return Layout(len(names), len(self.targets), self.one_output, names, self.targets or None)

    @property
    def used(self) -> list[str]:
        return [*self.encoder.columns, *self.targets]

    def __call__(self, frame: DataFrame) -> tuple[Any, Any]:
        require_columns(frame, self.used)
        if self.drop_missing:
            frame = frame[complete_rows(frame, self.used)]
        for name in self.encoder.categories:
            missing = np.flatnonzero(frame[name].isna().to_numpy())
            if len(missing):
                raise MissingValuesError(
                    f"column {name!r} has no value in row {missing[0]}; remove or fill such rows"
                )
        X = self.encoder.transform(frame).to_numpy()  # (c, d)
        y = [numbers(frame[name], name) for name in self.targets]
        return X, None if not y else y[0] if self.one_output else np.stack(y, axis=1)


@dataclass(frozen=True)
class ParquetPiece:
    """A row group of a file."""

    path: str
    group: int
    alone: bool  # it is the file's only one
    rows: int
    reading: Reading
    portable = True

    @property
    def where(self) -> str:
        return self.path if self.alone else f"{self.path}, row group {self.group}"

    @property
    def n_rows(self) -> int | None:
        return None if self.reading.drop_missing else self.rows

    def table(self, columns: Sequence[str] | None = None) -> Any:
        """The rows as an arrow table with the columns named, or with all."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as file:
            return file.read_row_group(
                self.group, columns=None if columns is None else list(columns), use_threads=False
            )

    def read(self) -> tuple[Any, Any]:
        return self.reading(self.table(self.reading.used).to_pandas(ignore_metadata=True))


@dataclass(frozen=True, eq=False)
class DelayedPiece:
    """A block of a Dask collection: X, or X and y, as Delayed values, and what makes arrays of them."""

    delayed: tuple[Any, ...]
    finish: Callable[..., tuple[Any, Any]]
    where: str = ""
    n_rows: int | None = None
    portable = False

    def read(self) -> tuple[Any, Any]:
        import dask

        return self.finish(*dask.compute(*self.delayed))


def is_paths(data: Any) -> bool:
    """Whether it names files: a path, a glob, or a list of paths."""
    if isinstance(data, list | tuple):
        return len(data) > 0 and all(isinstance(item, str | Path) for item in data)
    return isinstance(data, str | Path)


def is_dask(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] in ("dask", "dask_expr")


def parquet_files(data: Any) -> list[str]:
    """The files of a folder (and the folders in it), a glob, a file or a list, in the order of their names."""
    if isinstance(data, list | tuple):
        return [file for item in data for file in parquet_files(item)]
    path = Path(data)
    if path.is_dir():
        files = sorted(
            str(file) for file in path.rglob("*") if SUFFIXES.get(file.suffix.lower()) == "parquet"
        )
        files = [file for file in files if not Path(file).name.startswith((".", "_"))]
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
) -> Pieces:
    """A part for each row group of the files, which must all have the columns; memory is that of one row
    group.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not (
        y is None
        or isinstance(y, str)
        or (isinstance(y, list | tuple) and all(isinstance(name, str) for name in y))
    ):
        raise ParameterError(
            f"y must name the target column, or columns, of parquet files, but is a {type(y).__name__}"
        )
    reading: Reading | None = None
    pieces: list[ParquetPiece] = []
    for path in parquet_files(data):
        try:
            metadata = pq.read_metadata(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise ColumnError(
                f"{path!r} could not be read as parquet: {str(error).splitlines()[0]}"
            ) from error
        names = [str(name) for name in metadata.schema.to_arrow_schema().names]
        if reading is None:
            reading = Reading.of(names, y, columns, encoder=encoder, drop_missing=drop_missing)
        missing = [name for name in reading.used if name not in names]
        if missing:
            have = ", ".join(map(repr, names))
            raise ColumnError(
                f"part {len(pieces)} ({path}) has no column {missing[0]!r}; its columns are {have}"
            )
        groups = range(metadata.num_row_groups)
        rows = [metadata.row_group(i).num_rows for i in groups]
        pieces += [ParquetPiece(path, i, len(groups) == 1, rows[i], reading) for i in groups if rows[i]]
    if reading is None or not pieces:
        raise EmptyDataError(f"the parquet files of {str(data)!r} have no rows; at least one is needed")
    return Pieces(reading.layout, tuple(pieces))


def encoder_of(source: Pieces, columns: Sequence[str]) -> Encoder:
    """The encoder of these columns of parquet files: text becomes categories, found in one pass over such
    columns alone.
    """
    import pandas as pd
    import pyarrow.parquet as pq

    pieces = [piece for piece in source.pieces if isinstance(piece, ParquetPiece)]
    kinds = pq.read_schema(pieces[0].path).empty_table().to_pandas()
    require_columns(kinds, columns)
    text = [name for name in columns if not is_numeric(kinds[name], name)]
    values = {name: pd.Series([], dtype=object) for name in text}
    for piece in pieces if text else ():
        frame = piece.table(text).to_pandas(ignore_metadata=True)
        values = {
            name: pd.concat([values[name], frame[name].astype(object)]).drop_duplicates() for name in text
        }
    return Encoder(
        tuple(columns), {name: Encoder.fit(values[name].to_frame(name)).categories[name] for name in text}
    )


def from_dask(data: Any, y: Any = None, columns: Sequence[str] | None = None) -> Pieces:
    """A part for each partition of a data frame, or for each block of rows of an array."""
    if hasattr(data, "columns"):
        return _from_frames(data, y, columns)
    if not hasattr(data, "chunks") or data.ndim != 2:
        raise ShapeError(f"X must be a Dask array (rows, columns) or data frame, not a {type(data).__name__}")
    import dask.array as da

    X = data.rechunk({1: -1})
    blocks: list[tuple[Any, ...]] = [(block,) for block in X.to_delayed()[:, 0]]
    n_outputs, one_output = 0, True
    if y is not None:
        y = y if is_dask(y) else da.from_array(np.asarray(y))
        y = y.values if hasattr(y, "divisions") else y
        y = y if y.ndim == 1 else y.rechunk({1: -1})
        known = not any(np.isnan(c) for c in (*X.chunks[0], *y.chunks[0]))
        if known and X.shape[0] == y.shape[0] and X.chunks[0] != y.chunks[0]:
            y = y.rechunk({0: X.chunks[0]})
        n_outputs, one_output = (1, True) if y.ndim == 1 else (y.shape[1], False)
        pairs = y.to_delayed().ravel()
        _same_number(len(blocks), len(pairs))
        blocks = [(*block, q) for block, q in zip(blocks, pairs, strict=True)]
    rows = [None if np.isnan(c) else int(c) for c in X.chunks[0]]
    pieces = [
        DelayedPiece(block, _as_pair, f"block {i}", n)
        for i, (block, n) in enumerate(zip(blocks, rows, strict=True))
    ]
    return Pieces(Layout(X.shape[1], n_outputs, one_output), tuple(pieces))


def _from_frames(data: Any, y: Any, columns: Sequence[str] | None) -> Pieces:
    names = [str(name) for name in data.columns]
    if not is_dask(y):
        reading = Reading.of(names, y, columns)
        require_columns(data, reading.used)
        pieces = [
            DelayedPiece((frame,), reading, f"partition {i}") for i, frame in enumerate(data.to_delayed())
        ]
        return Pieces(reading.layout, tuple(pieces))
    reading = Reading.of(names, None, columns)
    require_columns(data, reading.used)
    if getattr(y, "name", None) in reading.used and not hasattr(y, "columns"):
        raise ColumnError(f"Column {y.name!r} is both an input and the target; leave it out of X.")
    targets = y.to_delayed().ravel() if hasattr(y, "chunks") else y.to_delayed(optimize_graph=False)
    pairs = list(data.to_delayed(optimize_graph=False))  # optimised alone, X and y may be cut differently
    _same_number(len(pairs), len(targets))
    beside = _Beside(reading)
    pieces = [
        DelayedPiece((a, b), beside, f"partition {i}")
        for i, (a, b) in enumerate(zip(pairs, targets, strict=True))
    ]
    one = y.ndim == 1
    name = (
        (str(y.name),) if one and getattr(y, "name", None) is not None and not hasattr(y, "chunks") else None
    )
    outputs = 1 if one else y.shape[1] if hasattr(y, "chunks") else len(y.columns)
    return Pieces(
        replace(reading.layout, n_outputs=outputs, one_output=one, target_names=name), tuple(pieces)
    )


@dataclass(frozen=True)
class _Beside:
    """X from a frame, y from its own series or array."""

    reading: Reading

    def __call__(self, frame: Any, y: Any) -> tuple[Any, Any]:
        return self.reading(frame)[0], y


def _as_pair(X: Any, y: Any = None) -> tuple[Any, Any]:
    return X, y


def _same_number(parts: int, others: int) -> None:
    if parts != others:
        raise ShapeError(f"X has {parts} partitions, but y has {others}; they must be cut alike")


def with_workers(source: Source) -> Source:
    """A Dask collection's source on the workers of the current client, if there is one."""
    if "distributed" not in sys.modules:  # then nobody has made one
        return source
    from distributed import get_client

    from .distributed import spread

    try:
        client = get_client()
    except ValueError:
        return source
    return spread(source, client)


def predict_dask(predict: Callable[[np.ndarray], Any], X: Any, names: Any, d: int) -> Any:
    """What `predict` says of the rows of a Dask array or data frame, one array or a pair, as Dask arrays cut
    like X.
    """
    if hasattr(X, "columns"):
        if names is not None:
            require_columns(X, list(names))
        X = (X if names is None else X[list(names)]).to_dask_array()
    X = X.rechunk({1: -1})
    if X.ndim != 2 or X.shape[1] != d:
        raise ShapeError(f"X has {X.shape[-1]} columns, but the model was fitted to {d}")

    def block(A: np.ndarray) -> np.ndarray:  # all outputs side by side
        said = predict(checked(0, A, None, "a block of X", Layout(d, 0, True)).X)
        return np.column_stack(said) if isinstance(said, tuple) else said.reshape(len(A), -1)

    probe = predict(np.zeros((1, d)))
    pair, one = isinstance(probe, tuple), np.ndim(probe[0] if isinstance(probe, tuple) else probe) == 1
    width = 1 if one else np.shape(probe[0] if pair else probe)[1]
    said = X.map_blocks(
        block, chunks=(X.chunks[0], (width * (1 + pair),)), dtype=float, meta=np.zeros((0, 0))
    )
    parts = [said[:, i * width : (i + 1) * width] for i in range(1 + pair)]
    parts = [part[:, 0] for part in parts] if one else parts
    return tuple(parts) if pair else parts[0]
