"""`inducing predict`: a table with a model's predictions beside its columns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from ..errors import ColumnError
from .app import Model, app, columns_of, is_large, load_model, output_option

if TYPE_CHECKING:
    from pandas import DataFrame


@app.command()
def predict(
    model: Model,
    table: Annotated[
        Path,
        typer.Argument(
            help="CSV, TSV or parquet file, folder or 'glob', with the model's input columns, in any order."
        ),
    ],
    out: Annotated[Path, output_option("The table to write: the given one and two columns more.")],
    allow_unseen: Annotated[
        bool,
        typer.Option("--allow-unseen", help="Take categories not seen in fitting as none of those known."),
    ] = False,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Leave the predictions empty in rows with missing inputs.")
    ] = False,
) -> None:
    """Add <target>_mean and <target>_std, of a new observation, to a table; for classes <target>_label and
    probabilities.
    """
    from ..progress import Line
    from ..sources import tables

    estimator = load_model(model)
    encoder, target = columns_of(estimator)

    def add(data: DataFrame) -> DataFrame:
        """The predictions for the rows of a table, none where inputs are missing."""
        tables.require_columns(data, encoder.columns)
        if not allow_missing:
            tables.require_complete(data, encoder.columns, "fill them in, or pass --allow-missing")
        rows = tables.complete_rows(data, encoder.columns)  # (n,) of bool
        X = encoder.transform(data[rows], allow_unseen=allow_unseen)
        predictions = _predictions(estimator, X, target)
        taken = [name for name in predictions.columns if name in data.columns]
        if taken:
            raise ColumnError(f"The table has a column {taken[0]!r} already: rename or remove it.")
        return predictions.set_index(data.index[rows]).reindex(data.index)

    with Line(None) as progress:
        done, rows = _predict_parts(table, out, add, progress.part)
    typer.echo(f"Predictions: {out} ({done} of {rows} rows)")


def _predictions(estimator: Any, X: DataFrame, target: str) -> DataFrame:
    import pandas as pd

    queries = X if hasattr(estimator, "feature_names_in_") else X.to_numpy()
    if not hasattr(estimator, "classes_"):
        mean, std = estimator.predict(queries, return_std=True) if len(X) else ([], [])
        return pd.DataFrame({f"{target}_mean": mean, f"{target}_std": std}, dtype=float)
    names = [f"{target}={label}" for label in estimator.classes_]
    p = estimator.predict_proba(queries) if len(X) else None
    table = pd.DataFrame(p, columns=names, dtype=float)
    table.insert(0, f"{target}_label", [] if p is None else estimator.classes_[p.argmax(axis=1)])
    return table


def _predict_parts(
    table: Path, out: Path, add: Callable[[DataFrame], DataFrame], report: Callable[[int, int | None], None]
) -> tuple[int, int]:
    """Write a table part by part with the columns that `add` gives for each; how many rows it had predictions
    for, of how many.

    The parts of a parquet table are row groups, and keep their types; another table is one part.
    """
    import pandas as pd

    from ..files.atomic import replacing
    from ..sources import tables
    from ..sources.tabular import from_parquet

    kind = tables.kind_of(out)
    if not (is_large(table) or tables.kind_of(table) == "parquet"):
        data = tables.read(table)
        predictions = add(data)
        tables.write(pd.concat([data, predictions], axis=1), out)
        return int(predictions.iloc[:, 0].notna().sum()), len(data)
    pieces = from_parquet(table).pieces
    rows = done = 0
    with replacing(out) as part, _Parquet(part) as parquet:
        for index, piece in enumerate(pieces):
            whole = piece.table()  # type: ignore[attr-defined]
            data = whole.to_pandas(ignore_metadata=True)
            predictions = add(data)
            if kind == "parquet":
                parquet.write(whole, predictions)
            else:
                both = pd.concat([data, predictions], axis=1)
                both.to_csv(part, sep=tables.SEPARATORS[kind], index=False, mode="a", header=index == 0)
            rows, done = rows + len(data), done + int(predictions.iloc[:, 0].notna().sum())
            report(index + 1, len(pieces))
    return done, rows


class _Parquet:
    """A parquet file that is written table by table, all with the columns and types of the first."""

    def __init__(self, path: Path) -> None:
        self.path, self.writer = path, ExitStack()
        self.file: Any = None

    def write(self, table: Any, predictions: DataFrame) -> None:
        """Write a table and the columns of predictions beside it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        for name, column in predictions.items():
            kind = pa.float64() if column.dtype.kind == "f" else pa.array(column.dropna()).type
            table = table.append_column(str(name), pa.array(column, from_pandas=True, type=kind))
        table = table.replace_schema_metadata(None)
        if self.file is None:
            self.file = self.writer.enter_context(pq.ParquetWriter(self.path, table.schema))
        self.file.write_table(table.select(self.file.schema.names).cast(self.file.schema))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.writer.close()
