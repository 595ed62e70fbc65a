"""`as_source` makes a `Source` of any kind of data; here are also the sources of arrays and of functions."""

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import EmptyDataError, ParameterError, ShapeError
from . import dask_collections, parquet
from .source import CACHE_BYTES, Layout, Part, PartsDone, Pieces, Source, checked_part, keep_if_it_fits

PART_BYTES, PART_ROWS = 1 << 26, 1 << 17  # largest part of data that do not come in parts


def as_source(
    data: Any, y: Any = None, *, chunk_rows: int | None = None, columns: Sequence[str] | None = None
) -> Source:
    """Make a source of data of any of these kinds.

    | data | y | a part is |
    |---|---|---|
    | arrays: memory map, zarr, HDF5, NumPy | the same, or None | chunk_rows rows |
    | a folder, glob or list of parquet files | names of target columns: one, a list, or None | a row group |
    | a Dask data frame | a name, a list of names, a Dask series, or None | a partition |
    | a Dask array | a Dask array with as many row blocks, or None | a block |
    | a function giving a new iterator | None | (X, y) or X, an item |
    | (X, y) | None | as above |

    `columns` are the input columns of tables, by name; by default all but the targets. `chunk_rows` is for
    arrays.
    """
    if isinstance(data, Source):
        if y is not None:
            raise ParameterError("a source has its targets inside; leave y out")
        return data
    if isinstance(data, tuple) and len(data) == 2 and y is None:
        return as_source(*data, chunk_rows=chunk_rows, columns=columns)
    if dask_collections.is_dask(data):
        return dask_collections.from_dask(data, y, columns)
    if parquet.is_paths(data):
        return parquet.from_parquet(data, y, columns)
    if isinstance(data, Iterator):
        raise ParameterError("an iterator can be read only once; give a function that makes a new one")
    if callable(data) and not hasattr(data, "shape"):
        return from_function(data)
    if hasattr(data, "columns"):
        data = data.to_numpy()
    try:
        array = data if hasattr(data, "shape") else np.asarray(data)
    except ValueError as error:
        parts = "of rows in parts give a function that returns a new iterator of (X, y)"
        raise ParameterError(f"rows must be numbers, as many in each; {parts}") from error
    return from_arrays(array, y, chunk_rows)


def is_parted(data: Any) -> bool:
    """Return whether data come in parts: everything `as_source` takes except arrays that fit into memory."""
    if isinstance(data, Source) or parquet.is_paths(data) or dask_collections.is_dask(data):
        return True
    if isinstance(data, np.ndarray):
        return isinstance(data, np.memmap) and data.nbytes > CACHE_BYTES
    stored = type(data).__module__.partition(".")[0] in ("zarr", "h5py")
    return stored or (callable(data) and not hasattr(data, "shape"))


@dataclass(frozen=True, eq=False)
class ArrayPiece:
    """Some rows of arrays, cut when they are read; a pickle holds a memory map's file name, not its rows."""

    X: Any
    y: Any
    rows: slice
    where: str

    @property
    def n_rows(self) -> int:
        return self.rows.stop - self.rows.start

    def read(self) -> tuple[Any, Any]:
        return self.X[self.rows], None if self.y is None else self.y[self.rows]

    def __reduce__(self) -> Any:
        if all(not isinstance(a, np.ndarray) or _is_map(a) for a in (self.X, self.y)):
            return _reopened, (_to_open(self.X), _to_open(self.y), self.rows, self.where)
        X, y = (None if a is None else np.asarray(a) for a in self.read())
        return ArrayPiece, (X, y, slice(0, self.n_rows), self.where)


def _is_map(a: Any) -> bool:
    """Return whether `a` is a whole memory map, whose file can be opened again, not a part of one."""
    whole = isinstance(a, np.memmap) and isinstance(getattr(a, "base", None), mmap.mmap)
    return whole and a.filename is not None and a.flags.c_contiguous


def _to_open(a: Any) -> Any:
    if not _is_map(a):
        return a
    return dict(filename=str(a.filename), mode="r", dtype=a.dtype, offset=a.offset, shape=a.shape)


def _reopened(X: Any, y: Any, rows: slice, where: str) -> ArrayPiece:
    X, y = (np.memmap(**a) if isinstance(a, dict) else a for a in (X, y))
    return ArrayPiece(X, y, rows, where)


def from_arrays(X: Any, y: Any = None, chunk_rows: int | None = None) -> Source:
    """Make a source of arrays that can be cut by rows; part k begins with row k·chunk_rows."""
    if len(X.shape) != 2:
        raise ShapeError(f"X must have two dimensions (rows, columns), but has shape {tuple(X.shape)}")
    if y is not None and not hasattr(y, "shape"):
        y = np.asarray(y)
    if y is not None and (len(y.shape) not in (1, 2) or y.shape[0] != X.shape[0]):
        raise ShapeError(f"y has shape {tuple(y.shape)}, but X has {X.shape[0]} rows; give as many")
    n, d = X.shape
    if n == 0 or d == 0:
        raise EmptyDataError(f"X has {n} rows and {d} columns; at least one of each is needed")
    layout = Layout(d, *_outputs(None if y is None else y.shape))
    if chunk_rows is None:
        chunk_rows = _rows_of_part(d + layout.n_outputs, getattr(X, "chunks", None))
    if chunk_rows < 1:
        raise ParameterError(f"chunk_rows must be at least one, but is {chunk_rows}")
    edges = [(start, min(start + chunk_rows, n)) for start in range(0, n, chunk_rows)]
    return Pieces(layout, tuple(ArrayPiece(X, y, slice(a, b), f"rows {a} to {b - 1}") for a, b in edges))


def _outputs(shape: Sequence[int] | None) -> tuple[int, bool]:
    """Return the number of outputs of targets of this shape, and whether they are a vector."""
    return (0, True) if shape is None else (1, True) if len(shape) == 1 else (int(shape[1]), False)


def _rows_of_part(columns: int, chunks: Any) -> int:
    """Choose the rows of a part: about PART_BYTES, and whole chunks if the array is stored in chunks."""
    rows = max(1, min(PART_ROWS, PART_BYTES // (8 * columns)))
    in_chunks = isinstance(chunks, tuple) and chunks and isinstance(chunks[0], int | np.integer)
    stored = int(chunks[0]) if in_chunks else 1
    return max(stored, rows - rows % stored)


def from_function(make: Callable[[], Iterable[Any]]) -> Source:
    """Make a source of a function that returns a new iterator of (X, y), or of X, at each call."""
    first = next(iter(make()), None)
    if first is None:
        raise EmptyDataError("the function gave an iterator without parts; at least one is needed")
    X, y = _pair(first)
    if np.ndim(X) != 2:
        raise ShapeError(f"the iterator must give (X, y) with X of two dimensions, not {np.shape(X)}")
    return Repeated(make, Layout(np.shape(X)[1], *_outputs(None if y is None else np.shape(y))))


def _pair(item: Any) -> tuple[Any, Any]:
    return (item[0], item[1]) if isinstance(item, tuple) and len(item) == 2 else (item, None)


@dataclass(eq=False)
class Repeated(Source):
    """A source whose parts are the items of a function's iterator; it is called again for each pass."""

    make: Callable[[], Iterable[Any]]
    layout: Layout
    report: PartsDone | None = None
    budget: int = 0
    kept: dict[int, Part] = field(default_factory=dict)
    n_parts: int | None = None
    n_rows: int | None = None

    def parts(self) -> Iterator[Part]:
        if self.n_parts is not None and len(self.kept) == self.n_parts:
            yield from (self.kept[index] for index in range(self.n_parts))
            return
        parts = rows = 0
        for index, item in enumerate(self.make()):
            part = self.kept.get(index) or checked_part(index, *_pair(item), f"part {index}", self.layout)
            keep_if_it_fits(part, self.kept, self.budget)
            parts, rows = parts + 1, rows + len(part.X)
            yield part
        if self.n_parts is None:
            self.n_parts, self.n_rows = parts, rows
        elif (parts, rows) != (self.n_parts, self.n_rows):
            raise ShapeError(
                f"the function gave {parts} parts with {rows} rows, but {self.n_parts} with {self.n_rows} "
                "the time before; it must make a new iterator over the same rows each time it is called"
            )

    def cached(self, budget: int = CACHE_BYTES) -> Source:
        return replace(self, budget=budget, kept=dict(self.kept))
