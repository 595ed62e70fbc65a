"""Settings of learning that a user chooses, and the steps that a user sees: priors, climbs, traces."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from ..errors import ParameterError, require_count
from ..files.atomic import as_path
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.means import Mean
from ..progress import stop_asked
from .ascent import Progress

Trace = Callable[["Iterate"], None]
ROWS_OF_AN_INPUT = 10  # of fewer rows for each input chance decides which inputs have an effect


@dataclass(frozen=True)
class LogNormal:
    """A prior on a positive parameter: log θ ~ N(log median, sigma²), its density taken over log θ."""

    median: Any  # a number, or one for each entry; None is the mean of log θ itself
    sigma: float
    sigma_above: float | None = None  # in sigma's place where θ is above a given median

    def __post_init__(self) -> None:
        sigmas = [self.sigma] if self.sigma_above is None else [self.sigma, self.sigma_above]
        if not (self.median is None or np.all(np.asarray(self.median) > 0)) or not np.all(
            np.array(sigmas) > 0
        ):
            raise ParameterError(f"a median and sigma must be positive, not {self.median}, {sigmas}")
        if self.median is None and self.sigma_above is not None:
            raise ParameterError("sigma_above needs a median to be above of; give one")

    def log_density(self, value: Any) -> tuple[float, np.ndarray]:
        """Σ log N(log θ | log median, sigma²) up to a constant, and its derivative in θ."""
        value = np.asarray(value, dtype=float)
        middle = np.log(value if self.median is None else self.median)
        middle = middle if value.ndim and self.median is not None else np.mean(middle)  # of one value for all
        distance = np.log(value) - middle
        sigma = np.where(distance > 0.0, self.sigma_above or self.sigma, self.sigma)
        z = distance / sigma
        return float(-0.5 * np.sum(z**2)), -z / (sigma * value)


class Alike(LogNormal):
    """A prior on rows of numbers, of any sign, that are alike: each is N(their mean, sigma²)."""

    def log_density(self, value: Any) -> tuple[float, np.ndarray]:
        """Σ log N(θ | mean of all θ, sigma²) up to a constant, and its derivative in θ."""
        z = (value - np.mean(value, axis=0)) / self.sigma
        return float(-0.5 * np.sum(z**2)), -z / self.sigma


def require_priors(priors: Any) -> None:
    """Raise if these are not priors by the names of parameters, or None."""
    if priors is None:
        return
    if not isinstance(priors, Mapping) or not all(isinstance(each, LogNormal) for each in priors.values()):
        example = "{'noise': inducing.LogNormal(0.1, 1.0)}"
        raise ParameterError(f"priors must be a dictionary such as {example}, not {priors!r}")


@dataclass(frozen=True, eq=False)
class Iterate:
    """The state of an optimisation after an iteration: the best point so far."""

    iteration: int  # 0 is the start
    value: float
    kernel: Kernel
    basis: Basis
    noise: Any
    mean: Mean


@dataclass(frozen=True, eq=False, kw_only=True)
class Settings:
    """Settings of learning: what may move, when a climb ends, what is shown. `fit` explains each one."""

    optimize: str = "all"
    fixed: Sequence[str] = ()
    priors: Mapping[str, LogNormal] | None = None
    movable: Any = None
    restarts: int = 0
    max_iterations: int = 200
    tolerance: float = 1e-8
    least_gain: float = 0.0
    window: int = 10  # iterations over which least_gain is judged
    patience: int = 40
    deadline: float = math.inf  # of time.monotonic()
    noise_floor: float | None = None
    progress: Progress | bool | None = None
    trace: Trace | None = None
    checkpoint: str | Path | None = None
    rng: Any = None
    validation_fraction: float = 0.0  # the share of the rows that the recipe "auto" holds out to judge by
    prelude: Literal["all", "hyperparameters", "none"] = "all"  # what of the start "auto" may replace

    def __post_init__(self) -> None:
        """Raise if restarts, priors, checkpoint or names to hold are of another kind."""
        if isinstance(self.fixed, str) or not isinstance(self.fixed, Iterable):
            raise ParameterError(f"fixed must be a list of names of parameters, not {self.fixed!r}")
        require_count("restarts", self.restarts, 0)
        require_priors(self.priors)
        if self.checkpoint is not None:
            as_path(self.checkpoint, "checkpoint")

    @property
    def is_over(self) -> bool:
        """Whether learning is to end with its best so far: time is up, or Ctrl-C was pressed."""
        return stop_asked() or time.monotonic() > self.deadline

    def quietly(self) -> Self:
        """The settings without progress, trace and checkpoint."""
        return replace(self, progress=False, trace=None, checkpoint=None)
