"""`inducing compare`: fit one table in several ways, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from ..files.atomic import require_apart
from . import app as shared
from .app import app

if TYPE_CHECKING:
    from pandas import DataFrame

FILLED_IN = "get the mean, and a column that marks them"
Sizes = Annotated[str, Option("--n-inducing", "-m", "--sizes", help="Numbers of basis functions: 10,25.")]


def _sizes(text: str) -> list[int]:
    """Parse the numbers in "10,25,50"."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no list of whole numbers such as 10,25,50") from error


def _is_table(path: Path | None) -> Path | None:
    from ..sources.tables import SUFFIXES

    if path is not None and path.suffix.lower() not in SUFFIXES:
        raise typer.BadParameter(f"{str(path)!r} must end in one of {' '.join(SUFFIXES)}")
    return None if path is None else shared.in_existing_folder(path)


@app.command()
def compare(
    table: Annotated[Path, Argument(help="CSV, TSV or parquet file, one row per observation.")],
    target: shared.Target,
    sizes: Sizes = "10,25,50,100",
    methods: Annotated[
        str | None,
        Option(
            help="With commas: recipes (auto, direct, spgp-full, vsgp-full, …), rules with learned "
            "hyperparameters (random, kmeans, variance, information-gain, …), approximations (vfe, fitc, "
            "pep, …), exact, and baselines (mean, linear, boosting); by default a few of each."
        ),
    ] = None,
    task: shared.TaskOption = None,
    approximation: Annotated[str, Option(help="Row of the table for recipes and rules.")] = "fitc",
    kernel: shared.StationaryKernel = "RBF",
    repeats: Annotated[int, Option(min=1, help="Repetitions, each with other rows held out.")] = 1,
    test_fraction: Annotated[float, Option(min=0.01, max=0.9, help="Share of the rows held out.")] = 0.2,
    max_iter: Annotated[int, Option(min=0, help="Iteration limit of each fit.")] = 200,
    budget: Annotated[float | None, Option(min=0.0, help="Seconds after which no fit starts.")] = None,
    out: Annotated[Path, shared.output_option("The picture to write.")] = Path("compare.png"),
    csv: Annotated[Path | None, Option(callback=_is_table, help="A table of the fits to write.")] = None,
    exclude: shared.Exclude = None,
    category: shared.CategoryColumns = None,
    calendar: shared.CalendarParts = None,
    missing: shared.MissingMarks = None,
    drop_missing: shared.DropMissing = False,
    seed: Annotated[int, Option(min=0, help="Seed of the held-out rows and of the fits.")] = 0,
) -> None:
    """Fit a table in several ways at several sizes: error, log loss and time. Ctrl-C shows what is done."""
    import numpy as np

    from ..estimators import comparison
    from ..pictures import plots
    from ..progress import Bars
    from ..sources import tables

    for path in (out, csv or out):
        require_apart(path, table)
    wanted = _sizes(sizes)
    encoder = shared.encoder_for(missing, category, calendar, drop_missing, "use")
    data, y = shared.inputs_and_target(table, target, exclude, encoder, task=task, gap=FILLED_IN)
    if task == "classification":
        y = y.astype(str)
    X = encoder.transform(data)
    gaps = np.isnan(X)  # every method gets the mean there, and columns of 0 and 1 that mark them
    X = np.column_stack([np.where(gaps, np.nanmean(X, axis=0), X), gaps[:, gaps.any(axis=0)]])
    with Bars() as bars:
        results = comparison.compare(
            X,
            y,
            methods=None if methods is None else [name.strip() for name in methods.split(",")],
            sizes=wanted,
            approximation=approximation,
            kernel=kernel,
            repeats=repeats,
            test_fraction=test_fraction,
            max_iter=max_iter,
            budget=budget,
            random_state=seed,
            progress=lambda done, total, what: bars.show("fits", what, done, total),
        )
    if not len(results):
        typer.echo("No fit was finished.")
        raise typer.Exit(1)
    title = f"{target} from {table.name}: {len(y)} rows, {test_fraction:.0%} held out"
    _print(title, comparison.summary(results))
    if csv is not None:
        tables.write(results, csv)
        typer.echo(f"Table: {csv}")
    shared.save_picture(lambda: plots.plot_comparison(results), out)


def _print(title: str, summary: DataFrame) -> None:
    """Print a line for each method and size, with a star at the least error and log loss of a size."""
    from rich.table import Table

    scores = (
        {"smse": "SMSE", "msll": "MSLL"} if "smse" in summary else {"error": "error", "log_loss": "log loss"}
    )
    table = Table(title=title)
    table.add_column("m", justify="right")
    table.add_column("method")
    for name in (*scores.values(), *(["95 % interval"] if "coverage" in summary else []), "seconds"):
        table.add_column(name, justify="right")
    for size, group in summary.groupby("size", sort=True):
        for _, row in group.sort_values(list(scores)[1]).iterrows():
            marks = [" *" if row[name] == group[name].min() and len(group) > 1 else "  " for name in scores]
            cells = [f"{row[name]:.4f}{mark}" for name, mark in zip(scores, marks)]
            cells += [f"{100 * row['coverage']:.1f} %"] if "coverage" in summary else []
            m = "" if size == 0 else f"{row['m']:.0f}" if row["method"] == "exact" else f"{size}"
            table.add_row(m, str(row["method"]), *cells, f"{row['seconds']:.2f}")
        table.add_section()
    shared.show(table)
