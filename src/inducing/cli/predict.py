"""`inducing predict`: add a model's predictions to a table as columns."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from .. import package
from ..errors import ColumnError, ModelFileError, ParameterError
from ..files.atomic import require_apart
from .app import Model, app, columns_of, load_model, output_option

if TYPE_CHECKING:
    import numpy as np
    from pandas import DataFrame

    from ..sources.encoding import ColumnEncoder

# gives the columns to add; takes a table's column names, features and the likelihood's further numbers
Answer = Callable[[Sequence[str], "np.ndarray", "np.ndarray | None"], "dict[str, np.ndarray]"]


@app.command()
def predict(
    model: Model,
    table: Annotated[Path, Argument(help="CSV, TSV or parquet file, folder or 'glob', with the inputs.")],
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
    from ..sources.tables import numbers, plain_separator

    require_apart(out, table, model)
    estimator = _predictor(model)
    encoder, target = columns_of(estimator)
    levels, inputs = _levels(quantiles, estimator), list(encoder.inputs)
    encoder.set_params(allow_unseen=allow_unseen)
    uses = getattr(estimator, "missing", "refuse") == "use"  # rows with gaps, as in training
    further = estimator.metadata_.get("further")

    def answer(names: Sequence[str], X: np.ndarray, known: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return the columns to add; raise if the table has one of that name."""
        added = _predictions(estimator, X, target, levels, known)
        taken = [name for name in added if name in names]
        if taken:
            raise ColumnError(f"The table has a column {taken[0]!r} already: rename or remove it.")
        return added

    def add(data: DataFrame) -> DataFrame:
        """Return predictions for the rows of a table, empty where inputs are missing."""
        require_columns(list(data.columns), inputs)
        gaps = {} if uses else gaps_of(data[inputs], encoder.marks)
        if not (uses or allow_missing):
            require_complete(gaps, "fill them in, or pass --allow-missing")
        rows = np.ones(len(data), dtype=bool) if uses else ~np.any(list(gaps.values()), axis=0)  # (n,)
        X = encoder.transform(data[rows])
        known = None if further not in data.columns else data.loc[rows, further].to_numpy(float)
        added = answer(list(data.columns), X, known)
        return package("pandas").DataFrame(added, index=data.index[rows]).reindex(data.index)

    plain = None if encoder.marks or plain_separator(out) is None else numbers(table)
    if plain is not None:
        done = rows = _predict_numbers(plain, out, encoder, further, answer)
    else:
        with Line(None) as progress:
            done, rows = _predict_parts(table, out, add, progress.part)
    typer.echo(f"Predictions: {out} ({done} of {rows} rows)")


def _predictor(path: Path) -> Any:
    """Load the model in a file, in its light form if it has one: that needs no scikit-learn."""
    try:
        light = load_model(path, light=True)
    except ModelFileError:
        return load_model(path)
    return load_model(path) if light.missing == "use" else light


def _levels(quantiles: str | None, estimator: Any) -> list[float]:
    """Parse the probabilities in "0.05,0.95"; raise if the model has no quantiles."""
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
) -> dict[str, np.ndarray]:
    """Return predictions as columns: mean, std and quantiles, or label and probabilities."""
    import numpy as np

    from ..estimators.predictive import nameless

    estimator = nameless(estimator)
    if not hasattr(estimator, "classes_"):
        names = [f"{target}_mean", f"{target}_std", *(f"{target}_q{level:g}" for level in levels)]
        if len(X) == 0:
            return dict.fromkeys(names, np.zeros(0))
        new = estimator.predict_distribution(X, further)
        return dict(zip(names, [new.mean, new.std, *map(new.quantile, levels)], strict=True))
    classes = estimator.classes_
    p = estimator.predict_proba(X) if len(X) else np.zeros((0, len(classes)))
    columns = {f"{target}_label": classes[p.argmax(axis=1)]}
    return columns | {f"{target}={label}": p[:, i] for i, label in enumerate(classes)}


def _predict_numbers(
    table: dict[str, list[Any]], out: Path, encoder: ColumnEncoder, further: str | None, answer: Answer
) -> int:
    """Write the columns of a table of plain numbers and those of `answer`, to the byte as pandas and pyarrow
    would but without loading them; return the number of rows.
    """
    import numpy as np

    from ..files.atomic import replacing
    from ..sources.columns import Values
    from ..sources.tables import plain_separator

    arrays = {name: np.array(column) for name, column in table.items()}
    none = np.zeros(len(next(iter(table.values()))), dtype=bool)
    X = encoder.features(list(table), lambda name: Values(arrays[name], none))
    added = answer(list(table), X, arrays[further].astype(float) if further in arrays else None)
    with replacing(out) as part, open(part, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=plain_separator(out) or ",", lineterminator=os.linesep)
        writer.writerow([*table, *added])
        writer.writerows(zip(*table.values(), *(column.tolist() for column in added.values())))
    return len(none)


def _predict_parts(
    table: Path, out: Path, add: Callable[[DataFrame], DataFrame], report: Callable[[int, int | None], None]
) -> tuple[int, int]:
    """Write a table with the columns of `add`, a row group of parquet or a block of CSV at a time; return the
    number of rows predicted, and of all rows.
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
            whole = pa.Table.from_batches
            return tables.parsed(table, (), lambda _, parts: write((whole([b]) for b in parts), part))
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
    """Write Arrow tables with the columns of `add` into one file; return as `_predict_parts` does."""
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
    """Return an Arrow table with the predictions as further columns."""
    pa = package("pyarrow")
    for name, column in predictions.items():
        kind = pa.float64() if column.dtype.kind == "f" else pa.array(column.dropna()).type
        table = table.append_column(str(name), pa.array(column, from_pandas=True, type=kind))
    return table.replace_schema_metadata(None)
