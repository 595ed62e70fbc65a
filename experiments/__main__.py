"""Run experiments from a shell: `python -m experiments W1 S1 --quick --seed 3`; without names, list them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inducing.cli.app import Commands, show
from inducing.errors import UnknownNameError

app = typer.Typer(cls=Commands, add_completion=False, pretty_exceptions_enable=False)


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Experiments to run, such as W1 S3; none lists them all.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes and few repeats: a look in seconds to minutes.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Another seed draws other data, splits and orders.")] = 0,
    output: Annotated[Path, typer.Option(help="The folder for pages, pictures and numbers.")] = Path(
        "experiments/results"
    ),
) -> None:
    """Run experiments of the papers: pictures, and what was claimed beside what came out."""
    from rich.table import Table

    from . import EXPERIMENTS
    from . import reproduce as run

    if not names:
        table = Table("name", "after", "what")
        for name, entry in EXPERIMENTS.items():
            table.add_row(name, entry.source, entry.title)
        show(table)
        return
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        raise UnknownNameError(f"there is no experiment {unknown[0]!r}; choose from {', '.join(EXPERIMENTS)}")
    for name in names:
        report = run(name, quick=quick, seed=seed, folder=output)
        title = f"{name}: {report.title} [{report.source}], {report.seconds:.0f} s"
        table = Table("claim", "paper", "here", "holds", title=title)
        for claim in report.claims:
            table.add_row(
                claim.text, claim.paper, claim.found, {True: "yes", False: "no", None: ""}[claim.holds]
            )
        show(table)
        typer.echo(f"Page: {output / name / 'README.md'}")


if __name__ == "__main__":
    app(prog_name="python -m experiments")
