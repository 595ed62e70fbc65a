"""`inducing explain`: write an HTML page about a model."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from ..files.atomic import require_apart
from .app import Model, app, columns_of, load_model, output_option


@app.command()
def explain(
    model: Model,
    table: Annotated[Path | None, Argument(help="A table with the target, to check the model on.")] = None,
    out: Annotated[Path, output_option("The page to write.")] = Path("explain.html"),
) -> None:
    """Write one HTML page to explore a model: slices, a map, relevance, calibration, surprising rows."""
    from ..estimators.explaining import explain as write
    from ..estimators.predictive import nameless
    from ..sources import tables
    from ..sources.columns import require_columns

    require_apart(out, model, *([] if table is None else [table]))
    estimator, X, y = load_model(model), None, None
    if table is not None:
        encoder, target = columns_of(estimator)
        data = tables.read(table, encoder.marks)
        require_columns(list(data.columns), [*encoder.inputs, target])
        data = data.dropna(subset=[*encoder.inputs, target])
        X, y = encoder.transform(data[list(encoder.inputs)]), data[target].to_numpy()
    names = getattr(estimator, "feature_names_in_", None)
    size = write(nameless(estimator), out, X, y, names)
    typer.echo(f"{out} ({size / 1024:.0f} KiB): open it in a browser")
