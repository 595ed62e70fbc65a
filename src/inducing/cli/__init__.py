"""The command line: one file for each command, which registers with `app`. May import every room; numerical
modules only when a command runs.
"""

from .. import package
from ..errors import MissingPackageError

try:
    package("typer")
except MissingPackageError as error:  # a command ends with a line, not with a traceback
    raise SystemExit(f"inducing: error: {error}") from None

from . import compare, demo, doctor, explain, export, fit, inspect, plot, predict, stream, warm, watch  # noqa: F401
from .app import app, main

__all__ = ["app", "main"]
