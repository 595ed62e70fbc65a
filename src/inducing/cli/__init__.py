"""The command line, one file a command; each registers with `app`. Numerical imports wait until one runs."""

from . import compare, demo, export, fit, inspect, predict, stream, warm, watch
from .app import app, main

__all__ = ["app", "compare", "demo", "export", "fit", "inspect", "main", "predict", "stream", "warm", "watch"]
