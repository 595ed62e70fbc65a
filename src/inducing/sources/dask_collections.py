"""Dask arrays and data frames as sources, and predictions of their rows, without a cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..errors import ColumnError, ShapeError
from .columns import require_columns
from .parquet import TableReader
from .source import Layout, Pieces, checked_part


@dataclass(frozen=True, eq=False)
class DelayedPiece:
    """A block of a Dask collection: X, or X and y, as Delayed values, and what turns them into arrays."""

    delayed: tuple[Any, ...]
    finish: Callable[..., tuple[Any, Any]]
    where: str
    n_rows: int | None = None

    def read(self) -> tuple[Any, Any]:
        import dask

        return self.finish(*dask.compute(*self.delayed))


def is_dask(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] in ("dask", "dask_expr")


def from_dask(data: Any, y: Any = None, columns: Sequence[str] | None = None) -> Pieces:
    """Make a source with a part for each partition of a data frame, or for each block of rows of an array."""
    if hasattr(data, "columns"):
        return _from_frame(data, y, columns)
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
        blocks = [(X_block, y_block) for (X_block,), y_block in _pairs(blocks, y.to_delayed().ravel())]
    rows = [None if np.isnan(c) else int(c) for c in X.chunks[0]]
    pieces = [DelayedPiece(block, _as_pair, f"block {i}", rows[i]) for i, block in enumerate(blocks)]
    return Pieces(Layout(X.shape[1], n_outputs, one_output), tuple(pieces))


def _from_frame(data: Any, y: Any, columns: Sequence[str] | None) -> Pieces:
    names = [str(name) for name in data.columns]
    reader = TableReader.of(names, None if is_dask(y) else y, columns)
    require_columns(names, reader.columns)
    if not is_dask(y):
        blocks = [(frame,) for frame in data.to_delayed()]
        return _pieces(blocks, reader, reader.layout)
    is_array, one_output, name = hasattr(y, "chunks"), y.ndim == 1, getattr(y, "name", None)
    if name in reader.columns and not hasattr(y, "columns"):
        raise ColumnError(f"Column {name!r} is both an input and the target; leave it out of X.")
    targets = y.to_delayed().ravel() if is_array else y.to_delayed(optimize_graph=False)
    frames = list(data.to_delayed(optimize_graph=False))  # optimised alone, X and y may be cut differently
    target_names = (str(name),) if one_output and name is not None and not is_array else None
    n_outputs = 1 if one_output else y.shape[1] if is_array else len(y.columns)
    layout = replace(reader.layout, n_outputs=n_outputs, one_output=one_output, target_names=target_names)
    return _pieces(_pairs(frames, targets), partial(_beside_targets, reader), layout)


def _pieces(blocks: Sequence[tuple[Any, ...]], finish: Callable[..., Any], layout: Layout) -> Pieces:
    return Pieces(layout, tuple(DelayedPiece(b, finish, f"partition {i}") for i, b in enumerate(blocks)))


def _beside_targets(reader: TableReader, frame: Any, y: Any) -> tuple[Any, Any]:
    """Return X from a frame, and y, a block of its own series or array."""
    return reader(frame)[0], y


def _as_pair(X: Any, y: Any = None) -> tuple[Any, Any]:
    return X, y


def _pairs(blocks: Sequence[Any], targets: Sequence[Any]) -> list[tuple[Any, Any]]:
    if len(blocks) != len(targets):
        raise ShapeError(f"X has {len(blocks)} partitions, but y has {len(targets)}; they must be cut alike")
    return list(zip(blocks, targets, strict=True))


def predict_dask(
    predict: Callable[[np.ndarray], Any], X: Any, names: Sequence[str] | None, n_features: int
) -> Any:
    """Predict the rows of a Dask array or data frame: a Dask array or a pair of them, chunked like X."""
    if hasattr(X, "columns"):
        if names is not None:
            require_columns([str(name) for name in X.columns], list(names))
        X = (X if names is None else X[list(names)]).to_dask_array()
    X = X.rechunk({1: -1})
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ShapeError(f"X has {X.shape[-1]} columns, but the model was fitted to {n_features}")
    layout = Layout(n_features, 0, True)

    def side_by_side(block: np.ndarray) -> np.ndarray:
        answer = predict(checked_part(0, block, None, "a block of X", layout).X)
        return np.column_stack(answer) if isinstance(answer, tuple) else answer.reshape(len(block), -1)

    probe = predict(np.zeros((1, n_features)))
    pair = isinstance(probe, tuple)
    shape = np.shape(probe[0] if pair else probe)
    width = 1 if len(shape) == 1 else shape[1]
    chunks = (X.chunks[0], (width * (1 + pair),))
    answers = X.map_blocks(side_by_side, chunks=chunks, dtype=float, meta=np.zeros((0, 0)))
    parts = [answers[:, i * width : (i + 1) * width] for i in range(1 + pair)]
    parts = [part[:, 0] for part in parts] if len(shape) == 1 else parts
    return tuple(parts) if pair else parts[0]
