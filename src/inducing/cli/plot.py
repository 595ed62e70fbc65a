"""`inducing plot`: draw pictures of a model file."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from ..errors import ParameterError
from ..files.atomic import require_apart
from .app import Model, app, columns_of, inputs_and_target, load_model, output_option


@app.command()
def plot(
    model: Model,
    kind: Annotated[
        str,
        Option(
            help="slices, map, dependence, relevance or reasons; of a table calibration or residuals; "
            "stream, of the table that `inducing stream --predictions` wrote."
        ),
    ] = "slices",
    table: Annotated[Path | None, Option(help="Rows with the target, best ones not fitted to.")] = None,
    out: Annotated[Path, output_option("The picture to write.")] = Path("plot.png"),
) -> None:
    """Draw a model: which inputs matter, what it predicts, and on rows of a table how right it is."""
    from ..pictures import plots
    from ..sources import tables
    from ..sources.columns import require_columns

    require_apart(out, model, table)
    estimator = load_model(model)
    encoder, target = columns_of(estimator)
    if kind == "stream":
        columns = [target, f"{target}_mean", f"{target}_std", "drift"]
        if table is None:
            raise ParameterError("a picture of a stream needs its predictions: pass --table predictions.csv")
        seen = tables.read(table)
        require_columns(list(seen.columns), columns)
        alarms = seen.index[seen["drift"] == 1]
        plots.save(plots.plot_stream(*(seen[name] for name in columns[:3]), alarms=alarms), out)
        typer.echo(f"Picture: {out}")
        return
    encoder.set_params(allow_unseen=True)
    names, X, y = [str(name) for name in encoder.get_feature_names_out()], None, None
    if table is not None:
        task = "classification" if hasattr(estimator, "classes_") else "regression"
        data, y = inputs_and_target(table, target, None, encoder, task=task)
        X = encoder.transform(data)
    plots.save(plots.portrait(estimator, kind, names, target, X, y), out)
    typer.echo(f"Picture: {out}")
