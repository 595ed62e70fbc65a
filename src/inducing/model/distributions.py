"""Distributions of new observations: `Distribution` row by row, in units of y; `Observations` makes one."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import LabelError, ParameterError, ShapeError
from ..numerics.arrays import Array, Given, Seed, to_numpy
from .likelihoods import Likelihood
from .likelihoods.classes import ranked_score
from .posterior import Marginals, Posterior

LEAST_VARIANCE = 1e-300  # of f, as likelihoods need a positive one


def checked_level(level: float) -> float:
    """Return the probability `level` of an interval. Raise if it is not between 0 and 1."""
    if not isinstance(level, float | int | np.floating) or not 0.0 < level < 1.0:
        raise ParameterError(f"level must lie between 0 and 1, but is {level}")
    return level


class Marginal:
    """The base of distributions of n independent rows."""

    def quantile(self, p: Given) -> np.ndarray:
        """Return the quantiles of y at probabilities p, a number or (k,). (n,) or (n, k)"""
        raise NotImplementedError

    def log_density(self, y: Given) -> np.ndarray:
        """Return the log density of observations y, or their log probability if they are discrete."""
        raise NotImplementedError

    def interval(self, level: float = 0.9) -> np.ndarray:
        """Return the ends of the central interval of probability `level`. (n, 2)"""
        tail = 0.5 - 0.5 * checked_level(level)
        return self.quantile([tail, 1.0 - tail])

    def pdf(self, y: Given) -> np.ndarray:
        """Return the density of y, or its probability if it is discrete. (n,) or (n, k)"""
        return np.exp(self.log_density(y))


@dataclass(frozen=True, eq=False)
class Distribution(Marginal):
    """The distribution of y = center + scale · z, where a likelihood gives z from f ~ N(f_mean, f_variance).

    Methods take y as a number, (n,), (n, k) or (1, k), and return (n,) or (n, k). Rows are independent;
    `sample_y` of an estimator draws them jointly.
    """

    likelihood: Likelihood
    f_mean: np.ndarray  # (n,), or (n, c) of a likelihood of several processes
    f_variance: np.ndarray
    center: float = 0.0
    scale: float = 1.0
    further: np.ndarray | None = None  # (n,), the second column of y, such as exposures, if there is one

    def __len__(self) -> int:
        return len(self.f_mean)

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = self.likelihood.predict(self.f_mean, self.f_variance, self.further)
        return mean * self.scale + self.center, np.sqrt(variance) * self.scale

    @property
    def mean(self) -> np.ndarray:
        """The mean of y. (n,)"""
        return self._moments[0]

    @property
    def std(self) -> np.ndarray:
        """The standard deviation of y. (n,)"""
        return self._moments[1]

    def cdf(self, y: Given) -> np.ndarray:
        """Return the probability of y or less. (n,) or (n, k)"""
        return self._each(self.likelihood.cumulative, y)

    def pdf(self, y: Given) -> np.ndarray:
        return np.exp(self._each(self.likelihood.log_predictive, y)) / self.scale

    def crps(self, y: Given) -> np.ndarray:
        """Return the continuous ranked probability score of y: ∫ (cdf(x) - 1{y ≤ x})² dx. (n,)"""
        return self._each(self.likelihood.crps, y) * self.scale

    def log_density(self, y: Given) -> np.ndarray:
        """Return the log density of y. If the likelihood takes two columns, such as times and whether these
        are censored, y (n, 2) holds both. (n,) or (n, k)
        """
        y = np.array(y, dtype=float)
        if self.likelihood.columns == 1 or y.ndim < 2:
            return self._each(self.likelihood.log_predictive, y) - np.log(self.scale)
        if len(y) != len(self) or y.shape[1] > self.likelihood.columns:
            raise ShapeError(f"y must have a row for each of {len(self)}, but has shape {y.shape}")
        y[:, 0] = (y[:, 0] - self.center) / self.scale
        density = self.likelihood.log_predictive(y, self.f_mean, self.f_variance)
        return density - np.log(self.scale) * (y[:, 1] == 0.0 if self.likelihood.located else 1.0)

    def quantile(self, p: Given) -> np.ndarray:
        p = Likelihood.probability_of(p)
        column = None if self.further is None else self.further[:, None]
        each = [self.likelihood.quantile(float(q), self.f_mean, self.f_variance, column) for q in p.ravel()]
        return (np.stack(each, axis=-1) if p.ndim else each[0]) * self.scale + self.center

    def sample(self, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Draw y, each row independently. (n, size)"""
        rng = np.random.default_rng(rng)
        shape = (len(self), size, *self.f_mean.shape[1:])
        f = self.f_mean[:, None] + np.sqrt(self.f_variance)[:, None] * rng.standard_normal(shape)
        wide = None if self.further is None else np.broadcast_to(self.further[:, None], shape[:2])
        return self.likelihood.sample(f, rng, wide) * self.scale + self.center

    def _each(self, function: Callable[..., Any], y: Given) -> np.ndarray:
        """Return function(z, mean, variance) for every y, z being y in units of the likelihood."""
        y, n = np.asarray(y, dtype=float), len(self)
        shape = (n, y.shape[1]) if y.ndim == 2 else (n,)
        if y.ndim > 2 or y.ndim > 0 and len(y) not in (n, 1 if y.ndim == 2 else n):
            raise ShapeError(f"y must be a number, ({n},) or ({n}, k), but has shape {y.shape}")
        z, k = ((np.broadcast_to(y, shape) - self.center) / self.scale).ravel(), int(np.prod(shape[1:]))
        if self.further is not None:
            z = np.column_stack([z, np.repeat(self.further, k)])
        moments = (np.repeat(part, k, axis=0) for part in (self.f_mean, self.f_variance))
        return np.asarray(function(z, *moments)).reshape(shape)


@dataclass(frozen=True, eq=False)
class OutputDistributions(Marginal):
    """The distributions of p independent outputs: shapes have (n, p) in place of (n,)."""

    each: tuple[Distribution, ...]

    def __len__(self) -> int:
        return len(self.each[0])

    @property
    def mean(self) -> np.ndarray:
        """The mean of each output. (n, p)"""
        return np.stack([own.mean for own in self.each], axis=1)

    @property
    def std(self) -> np.ndarray:
        """The standard deviation of each output. (n, p)"""
        return np.stack([own.std for own in self.each], axis=1)

    def cdf(self, y: Given) -> np.ndarray:
        """Return the probability of y or less, output by output. (n, p)"""
        return self._by_output("cdf", y)

    def log_density(self, y: Given) -> np.ndarray:
        """Return the log density of each output of y. (n, p)"""
        return self._by_output("log_density", y)

    def crps(self, y: Given) -> np.ndarray:
        """Return the continuous ranked probability score of each output of y. (n, p)"""
        return self._by_output("crps", y)

    def quantile(self, p: Given) -> np.ndarray:
        """Return the quantiles of y at probabilities p. (n, p), or (n, p, k)"""
        return np.stack([own.quantile(p) for own in self.each], axis=1)

    def sample(self, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Draw y, each row and output independently. (n, p, size)"""
        rng = np.random.default_rng(rng)
        return np.stack([own.sample(size, rng) for own in self.each], axis=1)

    def _by_output(self, name: str, y: Given) -> np.ndarray:
        wide = np.broadcast_to(np.asarray(y, dtype=float), (len(self), len(self.each)))
        return np.stack([getattr(own, name)(column) for own, column in zip(self.each, wide.T)], axis=1)


@dataclass(frozen=True, eq=False)
class ClassDistribution(Marginal):
    """The probabilities of labels, in the order of `classes`; mean and deviation if labels are numbers."""

    classes: np.ndarray  # (c,)
    probabilities: np.ndarray  # (n, c)

    def __len__(self) -> int:
        return len(self.probabilities)

    @property
    def mean(self) -> np.ndarray:
        """The mean of the label. (n,)"""
        return self.probabilities @ self._numbers

    @property
    def std(self) -> np.ndarray:
        """The standard deviation of the label. (n,)"""
        apart = self._numbers - self.mean[:, None]
        return np.sqrt(np.sum(self.probabilities * apart**2, axis=1))

    @property
    def _numbers(self) -> np.ndarray:
        if self.classes.dtype.kind not in "biuf":
            raise ParameterError(f"labels such as {self.classes[0]!r} have no mean; ask for probabilities")
        return self.classes.astype(float)

    def cdf(self, y: Given) -> np.ndarray:
        """Return the probability of the labels up to y. (n,)"""
        return np.cumsum(self.probabilities, axis=1)[np.arange(len(self)), self._codes(y)]

    def log_density(self, y: Given) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(self.probabilities[np.arange(len(self)), self._codes(y)])

    def crps(self, y: Given) -> np.ndarray:
        """Return the ranked probability score, labels being one apart: of two the Brier score. (n,)"""
        return ranked_score(self.probabilities, self._codes(y))

    def quantile(self, p: Given) -> np.ndarray:
        p = Likelihood.probability_of(p)
        below = np.cumsum(self.probabilities, axis=1)[:, :-1]  # (n, c - 1)
        below = below.reshape(len(below), *(1,) * p.ndim, -1)
        return self.classes[np.sum(below < p[..., None], axis=-1)]

    def sample(self, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Draw labels. (n, size)"""
        u = np.random.default_rng(rng).uniform(size=(len(self), size, 1))
        return self.classes[np.sum(np.cumsum(self.probabilities, axis=1)[:, None, :-1] < u, axis=-1)]

    def _codes(self, y: Given) -> np.ndarray:
        """Return the numbers of labels y, one or (n,). Raise if one is unknown. (n,)"""
        y = np.broadcast_to(np.asarray(y, dtype=self.classes.dtype if np.ndim(y) == 0 else None), len(self))
        codes = np.asarray(np.searchsorted(self.classes, y))
        known = self.classes[np.minimum(codes, len(self.classes) - 1)] == y
        if not np.all(known):
            row = int(np.argmin(known))
            raise LabelError(f"row {row} has the label {y[row]!r}, which is not one of {self.classes}")
        return codes


AnyDistribution = Distribution | OutputDistributions | ClassDistribution


@dataclass(frozen=True, eq=False)
class Observations:
    """Predictions of new observations: a likelihood and a posterior for each of its processes. `further` is
    the second column of y of new rows, if the likelihood takes one.
    """

    likelihood: Likelihood
    posteriors: tuple[Any, ...]  # a single one may be any predictor

    def latent(self, X: Array) -> Marginals:
        """Return mean and variance of the processes at each row, in NumPy. (n,) or (n, c) each"""
        parts = [tuple(map(to_numpy, post.predict(X))) for post in self.posteriors]
        mean, variance = (np.stack(columns, axis=1) for columns in zip(*parts, strict=True))
        variance = np.maximum(variance, LEAST_VARIANCE)
        return Marginals(mean, variance) if len(parts) > 1 else Marginals(mean[:, 0], variance[:, 0])

    def at(self, X: Array, further: Given = None, center: float = 0.0, scale: float = 1.0) -> Distribution:
        """Return the distribution of center + scale · y at each row."""
        column = _column(further, len(X)) if self.likelihood.columns > 1 else None
        return Distribution(self.likelihood, *self.latent(X), center, scale, column)

    def sample(self, X: Array, size: int, rng: np.random.Generator, further: Given = None) -> np.ndarray:
        """Draw y from joint draws of the processes. (size, n)"""
        draws = [post.sample(X, size, rng) for post in self.posteriors]
        f = np.stack(draws, axis=-1) if len(draws) > 1 else draws[0]
        column = _column(further, len(X))
        return self.likelihood.sample(f, rng, None if column is None else np.broadcast_to(column, f.shape))

    def compile(self) -> Callable[[Array], tuple[float, float]]:
        """Return a predictor of single queries in microseconds: `predictor(x)` is mean and variance of y. A
        process that cannot be compiled takes longer.
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
    """Return a function from one input to mean and variance of f, compiled if that is possible."""
    try:
        return post.compile()
    except (AttributeError, ParameterError):  # not every predictor compiles
        return lambda x: np.ravel(post.predict(np.reshape(x, (1, -1))))


def _column(further: Given, n: int) -> np.ndarray | None:
    """Return `further` as a column of n rows. Raise if it has not as many. (n,)"""
    if further is None:
        return None
    column = np.asarray(further, dtype=float)
    if column.ndim == 0:
        return np.full(n, float(column))
    if column.size != n:
        raise ShapeError(f"further must have a number for each of {n} rows, but has shape {column.shape}")
    return column.reshape(n)
