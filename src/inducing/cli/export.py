"""`inducing export`: write a model's predictor in C, JavaScript or ONNX."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from ..files.atomic import require_apart
from .app import Model, app, load_model, output_option


@app.command()
def export(
    model: Model,
    to: Annotated[str, Option(help="c (a C99 header), js (a JavaScript module) or onnx.")],
    out: Annotated[Path, output_option("The file to write.")],
    name: Annotated[str, Option(help="Prefix of the functions in C.")] = "model",
    max_functions: Annotated[int | None, Option(help="Basis functions to prune to.", min=1)] = None,
) -> None:
    """Write mean and std, or class probabilities, as C, JavaScript or ONNX, and check what was written."""
    from ..estimators.exporting import CHECKED_ROWS
    from ..estimators.exporting import export as write

    require_apart(out, model)
    difference = write(load_model(model), out, to, name=name, max_functions=max_functions)
    size = out.stat().st_size / 1024
    checked = "not run: this machine has no compiler, node or onnxruntime for it"
    if difference is not None:
        checked = f"at {CHECKED_ROWS} rows it differs from predict by {difference:.1e} at most, relative"
    typer.echo(f"{out} ({size:.0f} KiB): {checked}")
