"""The application all commands register with, and what they share: errors as lines, progress, tables on the
terminal.

Numerical imports wait until a command runs, so that help is quick. Errors of this package end a command with
one line on stderr and exit code 1; bad usage with exit code 2. Where nobody reads its output any longer, as
after `| head`, a command ends silently with exit code 141, which is what shells say of tools that SIGPIPE
ended.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__
from ..errors import InducingError


class Commands(TyperGroup):
    """Our errors and warnings as single lines on stderr instead of tracebacks."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: typer.echo(
                f"inducing: warning: {message}", err=True
            )
            try:
                return super().invoke(ctx)
            except BrokenPipeError:
                raise
            except (InducingError, OSError, ModuleNotFoundError) as error:
                typer.echo(f"inducing: error: {error}", err=True)
                raise typer.Exit(1) from error


app = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


UNREAD = 141  # 128 and the number of SIGPIPE


def main() -> None:
    try:
        app(prog_name="inducing")
    except SystemExit as end:  # Typer's and Rich's answer to a closed pipe is a silent 1
        raise SystemExit(UNREAD if isinstance(end.__context__, BrokenPipeError) else end.code) from None


def in_existing_folder(path: Path) -> Path:
    """Found out before an hour of fitting, not after."""
    if not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"the folder {str(path.parent)!r} does not exist")
    if path.is_dir():
        raise typer.BadParameter(f"{str(path)!r} is a folder; name a file")
    return path


def output_option(help: str) -> Any:
    """`--out`, a file in a folder that exists."""
    return typer.Option("--out", "-o", callback=in_existing_folder, help=help)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"inducing {__version__}")
        raise typer.Exit


@app.callback()
def inducing(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Sparse Gaussian processes for tables: fit, predict with error bars, inspect."""


class Shown:
    """What a fit shows of itself: a line with the iteration and the objective, and a bar for the pass over
    parts.
    """

    def __init__(self, bars: Any) -> None:
        self.bars = bars

    def __call__(self, iteration: int, objective: float) -> None:
        self.bars.show("fit", f"fitting: iteration {iteration}, objective {objective:.6g}")

    def part(self, done: int, parts: int | None) -> None:
        self.bars.show("parts", "parts read", done, parts)


@contextmanager
def progress_line() -> Iterator[Shown]:
    """Progress on stderr, while a terminal is there to see it."""
    from ..progress import Bars

    with Bars() as bars:
        yield Shown(bars)


def print_table(title: str, rows: dict[str, str]) -> None:
    from rich.table import Table

    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right", overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    show(title, table)


def show(*things: Any) -> None:
    from rich.console import Console

    console = Console(markup=False, emoji=False, highlight=False)  # a column may be called "width [m]"
    for thing in things:
        console.print(thing)
