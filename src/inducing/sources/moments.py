"""Count, mean, variance and range of the columns of a source, in one pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import EmptyDataError
from ..model.kernels.distances import MIDDLE_ROWS
from .source import Part, Source

MOST_SPREADS = 1e6  # a row further from the median, in median distances, does not set the units


@dataclass(frozen=True, eq=False)
class Columns:
    """Moments of some columns; + adds those of other rows. [Chan et al. 1983]"""

    n: int
    mean: np.ndarray  # (q,)
    scatter: np.ndarray  # Σ (a - mean)²
    low: np.ndarray
    high: np.ndarray

    @staticmethod
    def of(A: np.ndarray) -> Columns:
        if len(A) == 0:
            zeros = np.zeros(A.shape[1])
            return Columns(0, zeros, zeros, zeros + np.inf, zeros - np.inf)
        mean = A.mean(axis=0)
        return Columns(len(A), mean, np.sum((A - mean) ** 2, axis=0), A.min(axis=0), A.max(axis=0))

    def __add__(self, other: Columns) -> Columns:
        if self.n == 0 or other.n == 0:
            return other if self.n == 0 else self
        n, gap = self.n + other.n, other.mean - self.mean
        scatter = self.scatter + other.scatter + gap**2 * (self.n * (other.n / n))
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return Columns(n, self.mean + gap * (other.n / n), scatter, low, high)

    @property
    def variance(self) -> np.ndarray:
        return self.scatter / max(self.n, 1)

    def center_and_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation; of a constant column its value c, and |c| or 1. (q,) each"""
        constant = self.low == self.high
        mean = np.where(constant, self.low, self.mean)
        return mean, _or_size(constant, mean, np.sqrt(self.variance))


def center_and_scale(A: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weighted mean and standard deviation of the columns of A; constant ones as in `Columns`. (q,)
    each

    Rows a million times as far out as most, such as fill values, do not count: in their units all others
    would be one point.
    """
    near = together(A)
    A, weights = A[near], weights[near]
    constant = np.ptp(A, axis=0) == 0
    mean = np.where(constant, A[0], np.average(A, axis=0, weights=weights))
    largest = np.max(np.abs(A - mean), axis=0)  # squares of ratios neither overflow nor vanish
    largest[constant] = 1.0
    scale = largest * np.sqrt(np.average(((A - mean) / largest) ** 2, axis=0, weights=weights))
    return mean, _or_size(constant, mean, scale)


def together(A: np.ndarray) -> np.ndarray | slice:
    """Return the rows that are no more than MOST_SPREADS times as far out as most, in every column."""
    some = A[:: max(1, len(A) // MIDDLE_ROWS)]
    centre = np.median(some, axis=0)
    spread = np.median(np.abs(some - centre), axis=0)
    near = np.all((np.abs(A - centre) <= MOST_SPREADS * spread) | (spread == 0), axis=1)
    return near if np.any(near) and not np.all(near) else slice(None)


def _or_size(constant: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the scale of each column, |mean| or 1 where it is constant."""
    return np.where(constant, np.where(mean == 0, 1.0, np.abs(mean)), scale)


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the inputs and the targets of a source."""

    X: Columns
    Y: Columns

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.X + other.X, self.Y + other.Y)

    @property
    def n(self) -> int:
        return self.X.n


def moments(source: Source) -> Moments:
    """Compute the moments of every column of a source, in one pass."""
    return with_rows(source.total(of_part))


def of_part(part: Part) -> Moments:
    return Moments(Columns.of(part.X), Columns.of(targets(part)))


def known_columns(source: Source) -> tuple[Columns, list[Columns], list[Columns]]:
    """Compute the moments of each column of X and of Y without its gaps, in one pass; first those of a column
    that is 1 for a row with gaps in X, else 0.
    """
    incomplete, *columns = source.total(_known)
    return incomplete, columns[: source.n_features], columns[source.n_features :]


def _known(part: Part) -> np.ndarray:
    known = [np.isnan(part.X).any(axis=1).astype(float), *part.X.T, *targets(part).T]
    columns = np.empty(len(known), dtype=object)  # an array, so that + adds them one by one
    columns[:] = [Columns.of(a[~np.isnan(a), None]) for a in known]
    return columns


def targets(part: Part) -> np.ndarray:
    return np.zeros((len(part.X), 0)) if part.y is None else part.Y


def with_rows(sums: Moments) -> Moments:
    """Return the moments; raise if they are those of no rows."""
    if sums.n == 0:
        raise EmptyDataError("the source has no rows; at least one is needed")
    return sums
