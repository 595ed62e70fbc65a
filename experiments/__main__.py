"""Run experiments from a shell: `python -m experiments S1 Q1 --quick --seed 3`; without names, list them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from inducing.cli.app import show
from inducing.errors import InducingError, UnknownNameError

from .report import Report

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Experiments to run, such as W1 S3; none lists them all.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Run every experiment.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes and few repeats: a look in seconds to minutes.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Another seed draws other data, splits and orders.")] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="Run under so many seeds, and write their verdicts side by side.")
    ] = 1,
    output: Annotated[
        Path | None,
        typer.Option(help="The folder for pages; experiments/results, or experiments/quick with --quick."),
    ] = None,
    index: Annotated[bool, typer.Option("--index", help="Write the index of the folder's pages.")] = False,
) -> None:
    """Run experiments of the papers: pictures, and what was claimed beside what came out."""
    from . import EXPERIMENTS
    from . import reproduce as run
    from .index import write_index, write_seeds

    names = list(EXPERIMENTS) if everything else names or []
    folder = output or Path("experiments/quick" if quick else "experiments/results")
    if not names and not index:
        table = Table("name", "after", "what")
        for name, entry in EXPERIMENTS.items():
            table.add_row(name, entry.source, entry.title)
        show(table)
        return
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        raise UnknownNameError(f"there is no experiment {unknown[0]!r}; choose from {', '.join(EXPERIMENTS)}")
    began = time.process_time()
    for name in names:
        reports = [run(name, quick=quick, seed=seed, folder=folder)]
        for other in range(seed + 1, seed + seeds):
            reports.append(run(name, quick=quick, seed=other, folder=folder / f"seed-{other}"))
        show(_verdicts(reports))
        typer.echo(f"Page: {folder / name / 'README.md'}")
    if seeds > 1 and names:
        typer.echo(f"Verdicts: {write_seeds(folder, folder)}")
    if everything:
        typer.echo(f"{time.process_time() - began:.0f} s of processor time")
    if everything or index:
        typer.echo(f"Index: {write_index(folder)}")


def _verdicts(reports: list[Report]) -> Table:
    """The claims of an experiment, and whether they hold under each seed."""
    first, word = reports[0], {True: "yes", False: "no", None: ""}
    title = f"{first.name}: {first.title} [{first.source}], {first.seconds:.0f} s"
    columns = [f"holds, seed {report.seed}" for report in reports] if len(reports) > 1 else ["holds"]
    table = Table("claim", "paper", "here", *columns, title=title)
    for k, claim in enumerate(first.claims):
        marks = (word[report.claims[k].holds] if k < len(report.claims) else "–" for report in reports)
        table.add_row(claim.text, claim.paper, claim.found, *marks)
    return table


if __name__ == "__main__":
    try:
        app(prog_name="python -m experiments")
    except InducingError as error:  # data that are not at hand, a name that is none
        raise SystemExit(f"experiments: error: {error}") from None
