"""The command line. Each module registers its commands with `app`; numerical imports wait until one runs."""

from . import compare, models, stream, watch
from .app import app, main

__all__ = ["app", "compare", "main", "models", "stream", "watch"]
