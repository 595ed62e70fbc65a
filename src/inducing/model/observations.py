"""`Observations`: what is believed of new y, by a likelihood and the posteriors of its processes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError
from ..numerics.arrays import Array, Given, to_numpy
from .distributions import Distribution
from .likelihoods import Likelihood
from .posterior import Marginals, Posterior

LEAST_VARIANCE = 1e-300  # of variances that a likelihood is asked about


@dataclass(frozen=True, eq=False)
class Observations:
    """Predictions of new observations: a likelihood, a posterior for each of its processes; `further` are
    numbers of new rows beside y.
    """

    likelihood: Likelihood
    posteriors: tuple[Any, ...]  # of f alone a predictor, too

    def latent(self, X: Array) -> Marginals:
        """Mean and variance of the processes at each row, in NumPy. (n,) each, (n, c) of several"""
        parts = [tuple(map(to_numpy, post.predict(X))) for post in self.posteriors]
        mean, variance = (np.stack(columns, axis=1) for columns in zip(*parts, strict=True))
        variance = np.maximum(variance, LEAST_VARIANCE)
        return Marginals(mean, variance) if len(parts) > 1 else Marginals(mean[:, 0], variance[:, 0])

    def at(self, X: Array, further: Given = None, center: float = 0.0, scale: float = 1.0) -> Distribution:
        """The distribution of center + scale · y at each row."""
        column = _column(further, len(X)) if self.likelihood.columns > 1 else None
        return Distribution(self.likelihood, *self.latent(X), center, scale, column)

    def sample(self, X: Array, size: int, rng: np.random.Generator, further: Given = None) -> np.ndarray:
        """Draws of y that share draws of the processes. (size, n)"""
        draws = [post.sample(X, size, rng) for post in self.posteriors]
        f = np.stack(draws, axis=-1) if len(draws) > 1 else draws[0]
        column = _column(further, len(X))
        return self.likelihood.sample(f, rng, None if column is None else np.broadcast_to(column, f.shape))

    def compile(self) -> Callable[[Array], tuple[float, float]]:
        """A predictor of single queries in microseconds: `observations.compile()(x)` is mean and variance of
        y. A process that is wider than its prior anywhere takes longer.
        """
        queries = [_query(post) for post in self.posteriors]

        def predict(x: Array) -> tuple[float, float]:
            mean, variance = np.array([query(x) for query in queries]).T[:, None]  # (1, c) each
            if len(queries) == 1:
                mean, variance = mean[:, 0], variance[:, 0]
            y, spread = self.likelihood.predict(mean, np.maximum(variance, LEAST_VARIANCE))
            return float(y[0]), float(spread[0])

        return predict


def _query(post: Posterior) -> Callable[[Array], Any]:
    """Mean and variance of f at one input."""
    try:
        return post.compile()
    except (AttributeError, ParameterError):  # not every predictor compiles
        return lambda x: np.ravel(post.predict(np.reshape(x, (1, -1))))


def _column(further: Given, n: int) -> np.ndarray | None:
    """The further numbers of n rows. (n,)"""
    if further is None:
        return None
    column = np.asarray(further, dtype=float)
    if column.ndim == 0:
        return np.full(n, float(column))
    if column.size != n:
        raise ShapeError(f"further must have a number for each of {n} rows, but has shape {column.shape}")
    return column.reshape(n)
