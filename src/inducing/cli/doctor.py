"""`inducing doctor`: show the set-up, and check that its arithmetic is right."""

import typer

from .app import app, print_table


@app.command()
def doctor() -> None:
    """Show versions, BLAS, cores, GPU and cache, and check the arithmetic; exit code 1 if that is wrong."""
    from ..estimators.doctor import examine

    about, problems = examine()
    print_table("Set-up", about)
    for problem in problems:
        typer.echo(f"inducing: error: {problem}", err=True)
    if problems:
        raise typer.Exit(1)
    typer.echo("All well.")
