"""The application that all commands register with, and what they share: errors as lines, options, tables.

Numerical imports wait until a command runs, so that help is quick. Errors of this package end a command with
one line on stderr and exit code 1; bad usage with exit code 2. If the reader of its output has closed the
pipe, as `| head` does, a command ends silently with exit code 141, as tools that SIGPIPE ended.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from .. import __version__
from ..errors import ColumnError, EmptyDataError, InducingError, ModelFileError

if TYPE_CHECKING:
    import numpy as np
    from pandas import DataFrame

    from ..sources.encoding import ColumnEncoder
    from ..sources.table_encoder import TableEncoder

UNREAD = 141  # 128 and the number of SIGPIPE


class Commands(TyperGroup):
    """A command group that prints our errors and warnings as single lines on stderr, not as tracebacks."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = lambda text, *_, **__: _say("warning", text)
            try:
                return super().invoke(ctx)
            except BrokenPipeError:
                raise
            except (InducingError, OSError, ModuleNotFoundError) as error:
                _say("error", error)
                raise typer.Exit(1) from error


def _say(what: str, text: object) -> None:
    typer.echo(f"inducing: {what}: {printable(str(text))}", err=True)


app = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def main() -> None:
    try:
        app(prog_name="inducing")
    except SystemExit as end:  # Typer's and Rich's answer to a closed pipe is a silent 1
        raise SystemExit(UNREAD if isinstance(end.__context__, BrokenPipeError) else end.code) from None


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"inducing {__version__}")
        raise typer.Exit


@app.callback()
def inducing(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Sparse Gaussian processes for tables: fit, predict with error bars, inspect."""


# Options


def in_existing_folder(path: Path) -> Path:
    """Return the path; raise now, not after an hour of fitting, if no file can be written there."""
    folder = path.absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        what = "cannot be written" if folder.is_dir() else "does not exist"
        raise typer.BadParameter(f"the folder {str(path.parent)!r} {what}")
    if path.exists() and not path.is_file():
        raise typer.BadParameter(f"{str(path)!r} is a folder, a pipe or a device; name a file")
    return path


def output_option(help: str) -> Any:
    """Make the option `--out`, a file in a folder that exists."""
    return Option("--out", "-o", callback=in_existing_folder, help=help)


Model = Annotated[Path, Argument(metavar="MODEL", help="Model file written by `inducing fit`.")]
Target = Annotated[str, Option("--target", "-t", help="The column to predict; the others are the inputs.")]
Exclude = Annotated[list[str] | None, Option(help="A column to leave out; may be repeated.")]
DropMissing = Annotated[bool, Option("--drop-missing", help="Leave out rows with missing values.")]
MissingMarks = Annotated[
    list[str] | None,
    Option("--missing", help='A text or number that means a gap, such as "?" or NA; may be repeated.'),
]
CategoryColumns = Annotated[
    list[str] | None,
    Option(help="A column of categories, whatever it looks like, or 'size=S<M<L' where they have an order."),
]
CalendarParts = Annotated[
    list[str] | None,
    Option(help="Part of dates as an input: 'time of day', 'weekday', 'day of year'; may be repeated."),
]
TaskOption = Annotated[str | None, Option(help="regression or classification; else as the target looks.")]
Size = Annotated[int, Option("--n-inducing", "-m", min=1, help="Number of basis functions.")]
SizeIfAny = Annotated[int | None, Option("--n-inducing", "-m", min=1, help="Basis functions, at most.")]
ApproximationOption = Annotated[str, Option(help="auto, exact, neighbours, fitc, vfe, dtc, sor, pep, …")]
StationaryKernel = Annotated[str, Option(help="auto, RBF, Matern12, Matern32, Matern52, RationalQuadratic.")]


# Tables and model files in


def encoder_for(
    missing: list[str] | None,
    category: list[str] | None,
    calendar: list[str] | None,
    drop_missing: bool,
    otherwise: str = "refuse",
) -> TableEncoder:
    """Make the encoder that a command's options ask for; `otherwise` says what gaps become if not dropped."""
    from ..sources.table_encoder import TableEncoder

    kinds: dict[str, str | list[str]] = {}
    for text in category or []:
        name, _, levels = text.partition("=")
        ordered = "<" in levels
        kinds[name if ordered else text] = levels.split("<") if ordered else "category"
    how: dict[str, Any] = dict(calendar=calendar or (), kinds=kinds or None, missing_values=missing or ())
    return TableEncoder(missing="drop" if drop_missing else otherwise, **how)


def settle(
    encoder: ColumnEncoder, seen: dict[str, Any], target: str, further: str | None, task: str | None
) -> str:
    """Decide what each column becomes, and return the target's kind: "number", or a kind of label. Raise if
    columns cannot be used, with all of them in one message.
    """
    from ..sources.encoding import settle_target

    problems, kind = [], ""
    for name, wanted in ((further, "regression"), (target, task)):
        try:
            kind = kind if name is None else settle_target(name, seen[name], wanted)
        except ColumnError as error:
            problems.append(str(error))
    encoder.settle({name: seen[name] for name in seen if name not in (target, further)}, problems)
    return kind


def inputs_and_target(
    table: Path,
    target: str,
    exclude: list[str] | None,
    encoder: ColumnEncoder,
    *,
    task: str | None = "regression",
    further: str | None = None,
    gap: str = "are averaged over",
) -> tuple[DataFrame, np.ndarray]:
    """Read a table; return its input columns and y (n,), or (n, 2) with a `further` column. y holds labels if
    the task is "classification", or None and the target no numbers. The encoder is settled if it was not;
    `gap` says in the message what happens to gaps in inputs.
    """
    import numpy as np

    from ..sources import encoding, tables
    from ..sources.columns import Column, require_columns, values_of

    data, further_ones = tables.read(table, encoder.marks), [further] if further else []
    require_columns(list(data.columns), [target, *(exclude or []), *further_ones])
    data = data.drop(columns=exclude or [])
    if target not in data.columns:
        raise ColumnError(f"Column {target!r} is both the target and excluded; choose one.")
    settled = hasattr(encoder, "columns_")
    if settled:
        kind = encoding.settle_target(target, encoder.seen(data[[target]])[target], task)
    else:
        kind = settle(encoder, encoder.seen(data), target, further, task)
    gaps = encoding.gaps_of(data, encoder.marks)
    used = {name: gap for name, gap in gaps.items() if name in (*encoder.inputs, target, *further_ones)}
    if encoder.missing == "refuse":
        encoding.require_complete(used, "fill them in, or leave those rows out by --drop-missing")
    if encoder.missing == "use":  # a row without its target is of no use
        count = np.any([gaps[name] for name in encoder.inputs], axis=0).sum()
        if count:
            advice = "; --drop-missing leaves these rows out" * (not settled)
            typer.echo(f"{count} of {len(data)} rows have gaps in their inputs, which {gap}{advice}.")
        used = {name: gap for name, gap in used.items() if name not in encoder.inputs}
    rows = ~np.any(list(used.values()), axis=0)  # (n,) of bool
    if not rows.any():
        raise EmptyDataError(f"All {len(data)} rows have missing values: exclude the columns that cause it.")
    if not rows.all():
        where = " in the target" if encoder.missing == "use" else ""
        typer.echo(f"Left out {(~rows).sum()} of {len(data)} rows, which have missing values{where}.")
    data = data[rows]
    frame = encoding.as_frame(data)
    values = values_of(frame[target], encoder.marks)
    if kind == "number":
        y = Column(target, "number").encode(values)[:, 0]
    else:
        y = values.array if values.texts is None else np.array(values.texts)[values.array]
        y = np.char.lower(y) == "true" if kind == "boolean" and values.texts is not None else y
    if further is not None:
        beside = values_of(frame[further], encoder.marks)
        y = np.column_stack([y, Column(further, "number").encode(beside)])
    return data[list(encoder.inputs)], y


def load_model(path: Path, light: bool = False) -> Any:
    """Load the estimator in a file; raise if it has several targets. A light one can only predict."""
    from ..files.models import load

    model = load(path, light)
    several = getattr(model, "models_", None) is not None
    if not hasattr(model, "metadata_") or several or not posterior_of(model).one_output:
        raise ModelFileError(f"{str(path)!r} is no model of one target: use it from Python.")
    return model


def posterior_of(model: Any) -> Any:
    """Return the posterior of a regressor, or the first of a classifier."""
    return model.posteriors_[0] if hasattr(model, "posteriors_") else model.posterior_


def columns_of(model: Any) -> tuple[ColumnEncoder, str]:
    """Return the encoder and the target of a model's table; raise if the model knows no column names."""
    from ..sources.encoding import ColumnEncoder

    metadata, target = model.metadata_, model.metadata_.get("target", "y")
    if model.encoder_ is not None:
        return model.encoder_, target
    if isinstance(metadata.get("encoder"), dict):  # of a stream, whose columns are numbers
        return ColumnEncoder.of_numbers(metadata["encoder"]["columns"]), target
    if hasattr(model, "feature_names_in_"):
        return ColumnEncoder.of_numbers(model.feature_names_in_), target
    raise ModelFileError("The model knows no column names: fit it with `inducing fit`, or from a data frame.")


# Reports


def print_table(title: str, rows: dict[str, str], *, to_stderr: bool = False) -> None:
    """Print names and values under a title."""
    from rich.table import Table

    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right", overflow="fold")
    for name, value in rows.items():
        table.add_row(printable(name), printable(value))
    show(printable(title), table, to_stderr=to_stderr)


def printable(text: str) -> str:
    """Escape the control characters of a text: names may come from a stranger, and terminals obey them."""
    return "".join(repr(c)[1:-1] if c < " " and c not in "\n\t" or "\x7f" <= c < "\xa0" else c for c in text)


def show(*things: Any, to_stderr: bool = False) -> None:
    """Print texts and rich tables."""
    from rich.console import Console

    # a column may be called "width [m]"
    console = Console(stderr=to_stderr, markup=False, emoji=False, highlight=False)
    for thing in things:
        console.print(thing)


def save_picture(draw: Callable[[], Any], out: Path) -> None:
    """Write the picture that a function draws; without matplotlib print why there is none."""
    from ..pictures import plots

    try:
        plots.save(draw(), out)
    except ModuleNotFoundError as error:
        typer.echo(f"No picture was drawn. {error}")
    else:
        typer.echo(f"Picture: {out}")


def formatted(metrics: dict[str, float]) -> dict[str, str]:
    shown = {k: f"{v:.4g}" if k == "RMSE" else f"{v:.4f}" for k, v in metrics.items()}
    return {k.removesuffix(" in %"): f"{100 * metrics[k]:.1f} %" if "%" in k else v for k, v in shown.items()}


def about_noise(model: Any) -> dict[str, str]:
    """Describe the noise of a model, or its likelihood."""
    likelihood = getattr(model, "likelihood_", None)
    if getattr(model, "noise_posterior_", None) is not None:
        return {"noise std": "learned, follows the inputs"}
    if likelihood is not None and not hasattr(model, "warmup"):
        return {"likelihood": str(likelihood)}
    return {"noise std": "given row by row" if model.noise_ is None else f"{model.noise_**0.5:.4g}"}


def file_size(path: Path) -> str:
    kibibytes = path.stat().st_size / 1024
    return f"{kibibytes:.1f} KiB" if kibibytes < 1024 else f"{kibibytes / 1024:.1f} MiB"
