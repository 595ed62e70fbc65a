"""`inducing warm`: compile all functions beforehand."""

import typer

from .app import app


@app.command()
def warm() -> None:
    """Compile all functions for this machine, so that first calls are quick; it takes about a minute."""
    from ..estimators import warming

    seconds = warming.warm(progress=True)
    kept = warming.cache_folder()
    where = f"kept in {kept}" if kept else "not kept: set NUMBA_CACHE_DIR to a folder that can be written"
    typer.echo(f"Compiled or loaded all functions in {sum(seconds.values()):.0f} s; {where}.")
