"""Sources of what people have: arrays in memory or on disk, and functions that make iterators. `as_source`
finds the right one.

Tables and Dask collections are in `tabular.py`; pandas, pyarrow and Dask are imported when a source needs
them.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import EmptyDataError, ParameterError, ShapeError
from .source import CACHE_BYTES, Layout, Part, Pieces, Report, Source, checked, keep

PART_BYTES, MOST_ROWS = 1 << 26, 1 << 17  # of a part where the data do not come in parts


@dataclass(eq=False)
class Repeated(Source):
    """What a function that makes a new iterator of (X, y) gives, each time from the start."""

    make: Callable[[], Iterable[Any]]
    layout: Layout
    report: Report | None = None
    budget: int = 0
    kept: dict[int, Part] = field(default_factory=dict)
    n_parts: int | None = None
    n_rows: int | None = None

    def map(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        parts = rows = 0
        if self.n_parts is not None and len(self.kept) == self.n_parts:
            for index in range(self.n_parts):
                yield self._told(index, function(self.kept[index], *args))
            return
        for index, item in enumerate(self.make()):
            part = self.kept.get(index) or checked(index, *_pair(item), f"part {index}", self.layout)
            keep(part, self.kept, self.budget)
            parts, rows = parts + 1, rows + len(part.X)
            yield self._told(index, function(part, *args))
        if self.n_parts is None:
            self.n_parts, self.n_rows = parts, rows
        elif (parts, rows) != (self.n_parts, self.n_rows):
            raise ShapeError(
                f"the function gave {parts} parts with {rows} rows, but {self.n_parts} with {self.n_rows} "
                "the time before; "
                "it must make a new iterator over the same rows each time it is called"
            )

    def _told(self, index: int, value: Any) -> Any:
        if self.report is not None:
            self.report(index + 1, self.n_parts)
        return value

    def watched(self, report: Report | None) -> Source:
        return replace(self, report=report)

    def cached(self, budget: int = CACHE_BYTES) -> Source:
        return replace(self, budget=budget, kept=dict(self.kept))


def _pair(item: Any) -> tuple[Any, Any]:
    return (item[0], item[1]) if isinstance(item, tuple) and len(item) == 2 else (item, None)


@dataclass(frozen=True, eq=False)
class ArrayPiece:
    """Some rows of arrays that are cut when they are read: memory maps, zarr, HDF5.

    In another process memory maps are opened again; of an array in memory those rows alone go there.
    """

    X: Any
    y: Any
    rows: slice

    @property
    def where(self) -> str:
        return f"rows {self.rows.start} to {self.rows.stop - 1}"

    @property
    def n_rows(self) -> int:
        return self.rows.stop - self.rows.start

    @property
    def portable(self) -> bool:
        return all(a is None or not isinstance(a, np.ndarray) or _is_map(a) for a in (self.X, self.y))

    def read(self) -> tuple[Any, Any]:
        return self.X[self.rows], None if self.y is None else self.y[self.rows]

    def __reduce__(self) -> Any:
        if self.portable:
            return _cut, (_reopened(self.X), _reopened(self.y), self.rows)
        X, y = self.read()
        return HeldPiece, (np.asarray(X), None if y is None else np.asarray(y), self.where)


def _is_map(a: Any) -> bool:
    """Whether it is a whole memory map, not a part of one, whose file can be opened again."""
    base: Any = getattr(a, "base", None)
    return (
        isinstance(a, np.memmap)
        and isinstance(base, mmap.mmap)
        and a.filename is not None
        and a.flags.c_contiguous
    )


def _reopened(a: Any) -> Any:
    return ("map", str(a.filename), a.dtype, a.offset, a.shape) if _is_map(a) else a


def _cut(X: Any, y: Any, rows: slice) -> ArrayPiece:
    X, y = (
        np.memmap(a[1], mode="r", dtype=a[2], offset=a[3], shape=a[4]) if isinstance(a, tuple) else a
        for a in (X, y)
    )
    return ArrayPiece(X, y, rows)


@dataclass(frozen=True, eq=False)
class HeldPiece:
    """Rows in memory."""

    X: Any
    y: Any
    where: str = ""
    portable = False

    @property
    def n_rows(self) -> int:
        return len(self.X)

    def read(self) -> tuple[Any, Any]:
        return self.X, self.y


def from_arrays(X: Any, y: Any = None, chunk_rows: int | None = None) -> Source:
    """Arrays that can be cut by rows: NumPy arrays, memory maps, zarr, HDF5 data sets. Part k begins with row
    k·chunk_rows.
    """
    if len(X.shape) != 2:
        raise ShapeError(f"X must have two dimensions (rows, columns), but has shape {tuple(X.shape)}")
    if y is not None and not hasattr(y, "shape"):
        y = np.asarray(y)
    if y is not None and (len(y.shape) not in (1, 2) or y.shape[0] != X.shape[0]):
        raise ShapeError(
            f"y has shape {tuple(y.shape)}, but X has {X.shape[0]} rows; give one target row per input row"
        )
    n, d = X.shape
    if n == 0 or d == 0:
        raise EmptyDataError(f"X has {n} rows and {d} columns; at least one of each is needed")
    layout = Layout(d, *_outputs(None if y is None else y.shape))
    rows = (
        _rows_of_part(d + layout.n_outputs, getattr(X, "chunks", None)) if chunk_rows is None else chunk_rows
    )
    if rows < 1:
        raise ParameterError(f"chunk_rows must be at least one, but is {rows}")
    slices = [slice(at, min(at + rows, n)) for at in range(0, n, rows)]
    return Pieces(layout, tuple(ArrayPiece(X, y, cut) for cut in slices))


def _outputs(shape: Sequence[int] | None) -> tuple[int, bool]:
    return (0, True) if shape is None else (1, True) if len(shape) == 1 else (int(shape[1]), False)


def _rows_of_part(columns: int, chunks: Any) -> int:
    """About PART_BYTES, and whole chunks of what is stored in chunks."""
    rows = max(1, min(MOST_ROWS, PART_BYTES // (8 * columns)))
    stored = (
        int(chunks[0])
        if isinstance(chunks, tuple) and chunks and isinstance(chunks[0], int | np.integer)
        else 1
    )
    return max(stored, rows - rows % stored)


def from_function(make: Callable[[], Iterable[Any]]) -> Source:
    """A function that makes a new iterator of (X, y), or of X alone, whenever it is called."""
    first = next(iter(make()), None)
    if first is None:
        raise EmptyDataError("the function gave an iterator without parts; at least one is needed")
    X, y = _pair(first)
    if np.ndim(X) != 2:
        raise ShapeError(
            f"the iterator must give (X, y) with X of two dimensions, but X has shape {np.shape(X)}"
        )
    return Repeated(make, Layout(np.shape(X)[1], *_outputs(None if y is None else np.shape(y))))


def as_source(
    data: Any, y: Any = None, *, chunk_rows: int | None = None, columns: Sequence[str] | None = None
) -> Source:
    """A source of what people have.

    data                                      y arrays: memory map, zarr, HDF5, NumPy     the same, or None a
    folder, glob or list of parquet files   name of the target column, or a list of names, or None; a part is
    a row group a Dask data frame                         a name, a list of names, a Dask series, or None; a
    part is a partition a Dask array                              a Dask array with as many row blocks, or
    None; a part is a block a function giving a new iterator          None: the iterator gives (X, y) or X (X,
    y)                                    None

    columns are the input columns of tables, by name; None is all that are not targets. chunk_rows is for
    arrays.
    """
    if isinstance(data, Source):
        if y is not None:
            raise ParameterError("a source has its targets inside; leave y out")
        return data
    if isinstance(data, tuple) and len(data) == 2 and y is None:
        return as_source(*data, chunk_rows=chunk_rows, columns=columns)
    from . import tabular

    if tabular.is_dask(data):
        return tabular.from_dask(data, y, columns)
    if tabular.is_paths(data):
        return tabular.from_parquet(data, y, columns)
    if isinstance(data, Iterator):
        raise ParameterError(
            "an iterator can be read only once; give a function that makes a new one each time it is called"
        )
    if callable(data) and not hasattr(data, "shape"):
        return from_function(data)
    if hasattr(data, "columns"):
        data = data.to_numpy()
    if not hasattr(data, "shape"):
        data = np.asarray(data)
    return from_arrays(data, y, chunk_rows)


def is_parted(data: Any) -> bool:
    """Whether data come in parts by themselves: all that `as_source` takes but arrays in memory, and maps
    that fit there.
    """
    from . import tabular

    if isinstance(data, Source) or tabular.is_paths(data) or tabular.is_dask(data):
        return True
    if isinstance(data, np.ndarray):
        return isinstance(data, np.memmap) and data.nbytes > CACHE_BYTES
    return type(data).__module__.partition(".")[0] in ("zarr", "h5py") or (
        callable(data) and not hasattr(data, "shape")
    )
