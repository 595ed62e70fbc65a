"""Exceptions, warnings, and the checks of parameters that many functions share.

A message is one sentence: what was wrong, the number seen, what to change.
"""

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any


class InducingError(ValueError):
    """Base of every error this package raises on purpose."""


class ShapeError(InducingError):
    """An array has the wrong number of dimensions, rows or columns."""


class NonFiniteError(InducingError):
    """An array holds NaN or infinity."""


class EmptyDataError(InducingError):
    """There are no rows to work with."""


class NoiseError(InducingError):
    """A noise variance is zero, negative or not finite."""


class ParameterError(InducingError):
    """A kernel, mean, likelihood or fitting parameter is outside its domain."""


class LabelError(InducingError):
    """A label or count is not one the likelihood knows."""


class WidthError(InducingError):
    """A multiscale width is not above lengthscale/√2: the function leaves the space. [000 Lemma 3.1]"""


class UnknownNameError(InducingError):
    """A name (approximation, kernel, parameter, data set, ...) is not one of those known."""


class ColumnError(InducingError):
    """A table's columns do not match what the model expects, or hold what cannot be used."""


class MissingValuesError(InducingError):
    """A table has rows with missing values and was not told to drop them."""


class ConditionalError(InducingError):
    """The operation needs a process with an exact test conditional."""


class ModelFileError(InducingError):
    """A model file is missing, truncated, corrupt or of an unknown format version."""


class DataNotFoundError(InducingError):
    """A data set is neither at hand nor downloadable."""


class FactorisationError(InducingError):
    """A covariance matrix is not positive definite, even with the largest jitter allowed."""


class ClusterError(InducingError):
    """A cluster cannot be reached, has no workers, or loses them faster than they come back."""


class MissingPackageError(InducingError, ModuleNotFoundError):
    """A package that an extra brings is not installed; the message has the command."""


class InducingWarning(UserWarning):
    """Base of every warning this package gives."""


class JitterWarning(InducingWarning):
    """More jitter than asked for was needed to factorise a covariance."""


class ReducedBasisWarning(InducingWarning):
    """More basis functions were asked for than the data can support."""


class NegativeVarianceWarning(InducingWarning):
    """Predicted variances are negative beyond rounding; they are returned as computed."""


class IterationWarning(InducingWarning):
    """An iterative solver ended before it reached its tolerance."""


class CheckpointWarning(InducingWarning):
    """A checkpoint could not be written; the fit goes on without it."""


class InterruptedWarning(InducingWarning):
    """Ctrl-C ended a fit before all rows were read; the model has learned from the others."""


class RenamedWarning(InducingWarning, FutureWarning):
    """A parameter was given by its old name, which later versions will not know."""


class DriftWarning(InducingWarning):
    """A stream's prediction errors show that the process behind its rows has changed."""


def require_one_of(name: str, value: Any, known: Iterable[Any], otherwise: str = "") -> None:
    """Raise if a parameter is not one of the `known` names or None; `otherwise` ends their list."""
    names = list(known)
    if not isinstance(value, str | None) or value not in names:
        listed = ", ".join(map(str, names)) + otherwise
        raise UnknownNameError(f"{name} must be one of {listed}, not {value!r}")


def require_count(name: str, value: Any, least: int = 1) -> None:
    """Raise if a parameter is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ParameterError(f"{name} must be a whole number of at least {least}, but is {value!r}")


def require_in(name: str, value: Any, interval: str) -> None:
    """Raise if a parameter is no number in an interval such as "[0, 1)"; NaN lies in none."""
    if not isinstance(value, Real):
        raise ParameterError(f"{name} must be a number in {interval}, not {value!r}")
    low, high = (float(end) for end in interval[1:-1].split(","))
    number = float(value)
    above = number >= low if interval[0] == "[" else number > low
    below = number <= high if interval[-1] == "]" else number < high
    if not (above and below):
        raise ParameterError(f"{name} must lie in {interval}, but is {value}")
