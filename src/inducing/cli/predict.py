"""`inducing predict`: a table with a model's predictions beside its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from .. import package
from ..errors import ColumnError, ModelFileError, ParameterError
from ..files.atomic import require_apart
from .app import Model, app, columns_of, load_model, nameless, output_option

if TYPE_CHECKING:
    import numpy as np
    from pandas import DataFrame


@app.command()
def predict(
    model: Model,
    table: Annotated[
        Path,
        Argument(
            help="CSV, TSV or parquet file, folder or 'glob', with the model's input columns, in any order."
        ),
    ],
    out: Annotated[Path, output_option("The table to write: the given one and two columns more.")],
    quantiles: Annotated[
        str | None, Option(help="Probabilities such as 0.05,0.95: a column <target>_q<p> for each.")
    ] = None,
    allow_unseen: Annotated[
        bool, Option("--allow-unseen", help="Take unknown categories as none of those known.")
    ] = False,
    allow_missing: Annotated[
        bool, Option("--allow-missing", help="No predictions where inputs are missing.")
    ] = False,
) -> None:
    """Add <target>_mean and <target>_std to a table; for classes <target>_label and probabilities."""
    import numpy as np

    from ..progress import Line
    from ..sources.encoding import gaps_of, require_columns, require_complete

    require_apart(out, table, model)
    estimator = _predictor(model)
    encoder, target = columns_of(estimator)
    levels, inputs = _levels(quantiles, estimator), list(encoder.inputs)
    encoder.set_params(allow_unseen=allow_unseen)
    uses = getattr(estimator, "missing", "refuse") == "use"  # rows with gaps, as in training

    def add(data: DataFrame) -> DataFrame:
        """The predictions for the rows of a table, none where inputs are missing."""
        require_columns(list(data.columns), inputs)
        gaps = {} if uses else gaps_of(data[inputs], encoder.marks)
        if not (uses or allow_missing):
            require_complete(gaps, "fill them in, or pass --allow-missing")
        rows = np.ones(len(data), dtype=bool) if uses else ~np.any(list(gaps.values()), axis=0)  # (n,)
        X = encoder.transform(data[rows])
        further = estimator.metadata_.get("further")
        known = None if further not in data.columns else data.loc[rows, further].to_numpy(float)
        predictions = _predictions(estimator, X, target, levels, known)
        taken = [name for name in predictions.columns if name in data.columns]
        if taken:
            raise ColumnError(f"The table has a column {taken[0]!r} already: rename or remove it.")
        return predictions.set_index(data.index[rows]).reindex(data.index)

    with Line(None) as progress:
        done, rows = _predict_parts(table, out, add, progress.part)
    typer.echo(f"Predictions: {out} ({done} of {rows} rows)")


def _predictor(path: Path) -> Any:
    """The model in a file, for predictions alone where it has such a form: that needs no scikit-learn."""
    try:
        light = load_model(path, light=True)
    except ModelFileError:
        return load_model(path)
    return load_model(path) if light.missing == "use" else light


def _levels(quantiles: str | None, estimator: Any) -> list[float]:
    """The probabilities that were asked for."""
    if quantiles is None:
        return []
    if not hasattr(estimator, "predict_quantiles"):
        raise ParameterError(f"A {type(estimator).__name__} has no quantiles: leave --quantiles out.")
    try:
        return [float(part) for part in quantiles.split(",")]
    except ValueError as error:
        raise ParameterError(f"--quantiles must be numbers such as 0.05,0.95, not {quantiles!r}.") from error


def _predictions(
    estimator: Any, X: np.ndarray, target: str, levels: list[float], further: np.ndarray | None
) -> DataFrame:
    pd = package("pandas")

    queries, estimator = X, nameless(estimator)
    if not hasattr(estimator, "classes_"):
        options = {} if further is None else {"further": further}
        mean, std = estimator.predict(queries, return_std=True, **options) if len(X) else ([], [])
        columns = {f"{target}_mean": mean, f"{target}_std": std}
        for level in levels:
            values = estimator.predict_quantiles(queries, level, **options) if len(X) else []
            columns[f"{target}_q{level:g}"] = values
        return pd.DataFrame(columns, dtype=float)
    names = [f"{target}={label}" for label in estimator.classes_]
    p = estimator.predict_proba(queries) if len(X) else None
    table = pd.DataFrame(p, columns=names, dtype=float)
    table.insert(0, f"{target}_label", [] if p is None else estimator.classes_[p.argmax(axis=1)])
    return table


def _predict_parts(
    table: Path, out: Path, add: Callable[[DataFrame], DataFrame], report: Callable[[int, int | None], None]
) -> tuple[int, int]:
    """Write a table by parts, row groups of parquet or blocks of CSV, with the columns of `add`; rows
    predicted, and all.
    """
    pa = package("pyarrow")

    from ..files.atomic import replacing
    from ..sources import tables
    from ..sources.parquet import table_files

    write = partial(
        _write_parts, kind=tables.kind_of(out), packing=tables.packing(out), add=add, report=report
    )
    with replacing(out) as part:
        if tables.is_text(table):
            return tables.parsed(
                table, (), lambda _, batches: write((pa.Table.from_batches([b]) for b in batches), part)
            )
        pieces = table_files(table)[0].pieces
        return write((piece.table() for piece in pieces), part, count=len(pieces))  # type: ignore[attr-defined]


def _write_parts(
    parts: Iterable[Any],
    path: Path,
    *,
    kind: str,
    packing: Any,
    add: Callable[[DataFrame], DataFrame],
    report: Callable[[int, int | None], None],
    count: int | None = None,
) -> tuple[int, int]:
    """Write Arrow tables with the columns of `add`, one after the other; rows predicted, and all."""
    pd = package("pandas")
    pq = package("pyarrow.parquet")

    from ..sources.tables import SEPARATORS

    writer, rows, done = None, 0, 0
    with ExitStack() as stack:
        for index, whole in enumerate(parts):
            data = whole.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)
            predictions = add(data)
            if kind == "parquet":  # all tables with the columns and types of the first
                whole = _with_columns(whole, predictions)
                writer = writer or stack.enter_context(pq.ParquetWriter(path, whole.schema))
                writer.write_table(whole.select(writer.schema.names).cast(writer.schema))
            else:
                both, mode = pd.concat([data, predictions], axis=1), "a" if index else "w"
                form: Any = {"sep": SEPARATORS[kind], "index": False, "compression": packing}
                both.to_csv(path, mode=mode, header=index == 0, **form)
            rows, done = rows + len(data), done + int(predictions.iloc[:, 0].notna().sum())
            report(index + 1, count)
    return done, rows


def _with_columns(table: Any, predictions: DataFrame) -> Any:
    """An Arrow table with the columns of predictions beside its own."""
    pa = package("pyarrow")

    for name, column in predictions.items():
        kind = pa.float64() if column.dtype.kind == "f" else pa.array(column.dropna()).type
        table = table.append_column(str(name), pa.array(column, from_pandas=True, type=kind))
    return table.replace_schema_metadata(None)
