"""Tables that come in parts: folders and globs of parquet files, and files too long to read at once, here or
on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..errors import ColumnError, EmptyDataError

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..estimators.regressor import SparseGPRegressor
    from ..metrics import Scores
    from ..sources.source import Part, Source
    from ..sources.tables import Encoder

MANY_ROWS = 200_000  # a parquet file of more is read in parts


def _scores(part: Part, model: SparseGPRegressor) -> Scores:
    from .. import metrics

    if len(part.X) == 0:
        return metrics.Scores()
    mean, std = model._predicted(model._queries_of(part.X), True, False)
    return metrics.Scores.of(
        part.Y[:, 0], mean, std**2, metrics.Baseline(float(model.y_mean_), float(model.y_scale_) ** 2)
    )


def is_large(table: Path) -> bool:
    """Whether a table is many files, or a parquet file with many rows."""
    if table.is_dir() or any(mark in str(table) for mark in "*?["):
        return True
    if not (table.is_file() and table.suffix.lower() in (".parquet", ".pq")):
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(table).num_rows > MANY_ROWS
    except (pa.ArrowInvalid, OSError):
        return False  # reading it will say what is wrong


def source_of(table: Path, target: str, exclude: list[str], drop_missing: bool) -> tuple[Source, Encoder]:
    """The rows of parquet files as a source, text columns encoded."""
    from ..sources.parquet import encoder_of, from_parquet

    if target in exclude:
        raise ColumnError(f"Column {target!r} is both the target and excluded; choose one.")
    found = from_parquet(table, [target, *exclude])  # looks at the columns alone
    encoder = encoder_of(found, list(found.layout.feature_names or ()))
    return from_parquet(table, target, encoder=encoder, drop_missing=drop_missing), encoder


@contextmanager
def on_cluster(source: Source, scheduler: str | None, workers: int | None) -> Iterator[Source]:
    """The source on the cluster of that scheduler, or on so many local workers; as it is where neither is
    asked for.
    """
    if scheduler is None and workers is None:
        yield source
        return
    from ..sources.distributed import cluster, spread

    with cluster(scheduler, workers, dashboard=True) as client:
        yield spread(source, client)


def fit_parts(
    model: SparseGPRegressor, source: Source, test_fraction: float, seed: int, report: Callable[..., None]
) -> tuple[int, int, dict[str, float]]:
    """Fit a model to a source without a share of its rows, and measure it there: training rows, held-out
    rows, metrics.
    """
    from ..sources.source import split

    train, test = (source, None) if test_fraction == 0 else split(source.cached(), test_fraction, seed)
    model.fit(train.watched(report))
    if test is None:
        return model.n_rows_, 0, {}
    scores = test.total(_scores, model.light())
    if scores.rows == 0:
        raise EmptyDataError("No row was held out to measure the fit: raise --test-fraction, or set it to 0.")
    return model.n_rows_, scores.rows, scores.metrics()


def predict_parts(
    table: Path, out: Path, add: Callable[[DataFrame], DataFrame], report: Callable[[int, int | None], None]
) -> tuple[int, int]:
    """Write a table part by part with the columns that `add` gives for each; how many rows it had predictions
    for, of how many.

    The parts of a parquet table are row groups, and keep their types; another table is one part.
    """
    import pandas as pd

    from ..sources import tables
    from ..sources.parquet import from_parquet

    kind = tables.kind_of(out)
    if not (is_large(table) or tables.kind_of(table) == "parquet"):
        data = tables.read(table)
        said = add(data)
        tables.write(pd.concat([data, said], axis=1), out)
        return int(said.iloc[:, 0].notna().sum()), len(data)
    pieces = from_parquet(table).pieces
    rows = done = 0
    with tables.replacing(out) as part, _Parquet(part) as parquet:
        for index, piece in enumerate(pieces):
            whole = piece.table()  # type: ignore[attr-defined]
            data = whole.to_pandas(ignore_metadata=True)
            said = add(data)
            if kind == "parquet":
                parquet.write(whole, said)
            else:
                both = pd.concat([data, said], axis=1)
                both.to_csv(part, sep=tables.SEPARATORS[kind], index=False, mode="a", header=index == 0)
            rows, done = rows + len(said), done + int(said.iloc[:, 0].notna().sum())
            report(index + 1, len(pieces))
    return done, rows


class _Parquet:
    """A parquet file that is written table by table, all with the columns and types of the first."""

    def __init__(self, path: Path) -> None:
        self.path, self.writer = path, ExitStack()
        self.file: Any = None

    def write(self, table: Any, said: DataFrame) -> None:
        """A table and the columns of predictions beside it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        for name, column in said.items():
            kind = pa.float64() if column.dtype.kind == "f" else pa.array(column.dropna()).type
            table = table.append_column(str(name), pa.array(column, from_pandas=True, type=kind))
        table = table.replace_schema_metadata(None)
        if self.file is None:
            self.file = self.writer.enter_context(pq.ParquetWriter(self.path, table.schema))
        self.file.write_table(table.select(self.file.schema.names).cast(self.file.schema))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.writer.close()
