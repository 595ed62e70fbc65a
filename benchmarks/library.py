"""One small adapter per library, through its public interface alone: this package and its peers.

An adapter offers what its library offers, all in float64 and with the same parameters:

    gradient(data, row)   a function that computes the log evidence and its gradient in everything (basis,
                          lengthscale of each input, variance, noise) and returns the evidence
    predictor(data, row)  a function of X (n, d) that returns mean and variance of f
    fit_small(data)       fits everything from the given start to convergence; returns a predicting function

Each library runs in a process of its own (see worker.py) and is imported only there, with all cores to
itself. A library that is not installed is missing from the tables; what it does not offer is, too.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from problems import Data

JITTER = 1e-6  # the default of most peers, set in all that let one
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

Predictor = Callable[[np.ndarray], tuple[Any, Any]]


class Library:
    """What an adapter may offer; `rows` are those whose value and gradient it has, `value_only` those without
    gradient.
    """

    package = ""
    rows: tuple[str, ...] = ()
    value_only: tuple[str, ...] = ()
    predicts: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.module = importlib.import_module(self.package)
        self.version = getattr(self.module, "__version__", "?")

    def gradient(self, data: Data, row: str) -> Callable[[], float]:
        raise NotImplementedError

    def predictor(self, data: Data, row: str) -> Predictor:
        return self._predict(self._model(data, row))

    def fit_small(self, data: Data) -> Predictor:
        raise NotImplementedError

    def _model(self, data: Data, row: str) -> Any:
        raise NotImplementedError

    def _predict(self, model: Any) -> Predictor:
        raise NotImplementedError
