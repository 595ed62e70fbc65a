"""The command line. Each module registers its commands with `app`; numerical imports wait until one runs."""

from . import experiments, models
from .app import app, main

__all__ = ["app", "experiments", "main", "models"]
