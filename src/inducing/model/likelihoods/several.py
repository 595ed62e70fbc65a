"""Likelihoods of several processes per row: one for the noise or scale beside f, or one per class.

They give ⟨log p(y|f)⟩ under independent f_j ~ N(mean_j, var_j), for variational inference (power 0).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, NoReturn

import numpy as np
from numpy.random import Generator

from ...errors import ParameterError, ShapeError
from ...numerics.arrays import Array, asarray_like, is_numpy, namespace
from ...numerics.linalg import row_dots
from ...numerics.quadrature import ENTRIES, hermite
from ...numerics.ranked import crps_of_gaussians
from ...numerics.special import LOG_2PI, special
from ...numerics.workers import row_slices
from .base import LARGEST, ROUNDS, SCORED, STEEP, Likelihood, exp, moments, one_namespace
from .classes import check_classes, class_moments, ranked_score
from .outliers import StudentT

HERMITE, HERMITE_WEIGHTS = hermite(24)
REACH = 6.3  # standard deviations that an average to nine digits covers
GUMBEL_STEP = 0.5  # between nodes x of `_log_sum_exp`
WIDEST = 20.0


class Expected(NamedTuple):
    """⟨log p(y|f)⟩ (n,), and for every process its q = ∂/∂mean and r = 2 ∂/∂var. (n, c) each"""

    value: Array
    q: Array
    r: Array


@dataclass(frozen=True)
class SeveralLikelihood(Likelihood):
    """p(y|f_1, …, f_c) of one observation given c latent processes at its input."""

    processes: ClassVar[int] = 2

    def n_processes(self, y: Array) -> int:
        """Return the number of processes per row."""
        return self.processes

    def expected(self, y: Array, means: Array, variances: Array) -> Expected:
        """Return ⟨log p(y|f)⟩ and its derivatives for y (n,), means and variances (n, c)."""
        with np.errstate(all="ignore"):  # branches that are not taken may overflow
            return self._expected(*self._rows(y, means, variances)[:3])

    def parameter_gradient(
        self, y: Array, means: Array, variances: Array, power: float = 0.0
    ) -> dict[str, Array]:
        """Return the derivatives of ⟨log p(y|f)⟩ in the parameters. (n,) each"""
        if power != 0.0:
            self.tilted(y, means, variances, power)  # raises
        return super().parameter_gradient(y, means, variances, power)

    def _expected(self, y: Array, means: Array, variances: Array) -> Expected:
        raise NotImplementedError

    def _rows(self, y: Array, means: Array, variances: Array) -> tuple[Array, Array, Array, tuple[int, ...]]:
        """Return y (n,), means and variances (n, c), checked, in one namespace; and the shape of y."""
        y, means, variances = one_namespace(self.check(y), means, variances)
        shape = (*y.shape, self.n_processes(y))
        if y.ndim != 1 or tuple(means.shape) != shape or tuple(variances.shape) != shape:
            shapes = [tuple(v.shape) for v in (y, means, variances)]
            raise ShapeError(f"y, means and variances have shapes {shapes}, not (n,) and (n, {shape[-1]})")
        xp = namespace(means)
        if not xp.all((xp.abs(means) <= LARGEST) & (variances <= LARGEST**2) & (variances > 0.0)):
            raise ParameterError("the means must be finite and the variances of f positive and finite")
        return y, means, xp.maximum(variances, LARGEST**-2), y.shape

    def quantile(self, p: Array, means: Array, variances: Array, further: Array | None = None) -> np.ndarray:
        """Return the quantile of y at probability p, a number or (n,), for moments (n, c). (n,)"""
        means, variances = np.asarray(means, dtype=float), np.asarray(variances, dtype=float)
        p = np.broadcast_to(self.probability_of(p), len(means))
        return self._quantile(p, means, variances, None)

    def _quantile(self, p: Array, mean: np.ndarray, var: np.ndarray, further: Array | None) -> np.ndarray:
        step = np.sqrt(var[:, 0]) + np.exp(0.5 * np.clip(mean[:, 1], -STEEP, STEEP))
        return _crossing(lambda y: self._cumulative(y, mean, var) - p, mean[:, 0], step)

    def tilted(self, y: Array, means: Array, variances: Array, power: float = 1.0) -> NoReturn:
        """Raise: only `expected` is defined."""
        raise ParameterError(
            f"{type(self).__name__} has several processes per row and gives only ⟨log p⟩ (power 0): "
            "use `expected`, and a variational approximation"
        )


def _crossing(excess: Callable[[np.ndarray], np.ndarray], centre: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return the zero (n,) of an increasing function by the Illinois method of false positions."""
    low, high = centre - step, centre + step
    for _ in range(ROUNDS):
        at_low, at_high = excess(low), excess(high)
        if np.all((at_low <= 0.0) & (at_high >= 0.0)):
            break
        width = high - low
        low, high = np.where(at_low > 0.0, low - width, low), np.where(at_high < 0.0, high + width, high)
    for _ in range(ROUNDS):
        slope = at_high - at_low
        x = high - at_high * (high - low) / np.where(slope == 0.0, 1.0, slope)
        at_x = excess(x)
        other = at_x * at_high < 0.0
        low, at_low = np.where(other, high, low), np.where(other, at_high, 0.5 * at_low)
        high, at_high = x, at_x
        if np.all(np.abs(at_x) <= 1e-10):
            break
    return high


@dataclass(frozen=True)
class LearnedNoise(SeveralLikelihood):
    """y = f + Gaussian noise of variance exp(g); f and g are the two processes.

    ⟨log p⟩ = -½ [log 2π + m_g + ((y - m_f)² + v_f) exp(-m_g + v_g/2)].
    """

    located: ClassVar[bool] = True
    centred: ClassVar[bool] = True

    def _expected(self, y: Array, means: Array, variances: Array) -> Expected:
        e, mean, var = y - means[:, 0], means[:, 1], variances[:, 1]
        xp, log_precision = namespace(y), 0.5 * var - mean
        precision, square = exp(log_precision), exp(log_precision + xp.log(e * e + variances[:, 0]))
        stack = xp.stack
        q = stack([e * precision, 0.5 * (square - 1.0)], axis=1)
        return Expected(-0.5 * (LOG_2PI + mean + square), q, -stack([precision, 0.5 * square], axis=1))

    def predict(self, means: Array, variances: Array, further: Array | None = None) -> tuple[Array, Array]:
        """Return mean and variance of y. (n,) each"""
        means, variances = one_namespace(means, variances)
        return means[:, 0], variances[:, 0] + exp(means[:, 1] + 0.5 * variances[:, 1])

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        """Draw y for each row of f (n, 2)."""
        return rng.normal(f[..., 0], np.sqrt(exp(f[..., 1])))

    def log_predictive(self, y: Array, means: Array, variances: Array) -> Array:
        """Return log ∫ N(y; m_f, v_f + exp(g)) N(g; m_g, v_g) dg. (n,)"""
        y, means, variances, _ = self._rows(y, means, variances)
        xp = namespace(y)
        total, weight = self._totals(means, variances)
        value = weight - 0.5 * (LOG_2PI + xp.log(total) + ((y - means[:, 0]) ** 2)[:, None] / total)
        top = xp.max(value, axis=1)
        return top + xp.log(xp.sum(xp.exp(value - top[:, None]), axis=1))

    def _cumulative(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        total, weight = self._totals(mean, var)
        return special(np).ndtr((y - mean[:, 0])[:, None] / np.sqrt(total)) @ np.exp(weight)

    def _crps(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        total, weight = self._totals(mean, var)
        weight = np.exp(weight[::2])  # for the score half the nodes are enough
        parts = [(y[s] - mean[s, 0], total[s, ::2]) for s in row_slices(len(y), SCORED)]
        scores = [crps_of_gaussians(error, variances, weight / weight.sum()) for error, variances in parts]
        return np.concatenate([*scores, np.empty(0)])

    def _totals(self, means: Array, variances: Array) -> tuple[Array, Array]:
        """Return variances of y at nodes of g (n, j), and the logs of their weights. (j,)"""
        xp, t = namespace(means), np.linspace(-9.0, 9.0, 160)
        weight = asarray_like(-0.5 * t * t + np.log(t[1] - t[0]) - 0.5 * LOG_2PI, means)
        g = means[:, 1:] + xp.sqrt(variances[:, 1:]) * asarray_like(t, means)
        return variances[:, :1] + exp(g), weight


@dataclass(frozen=True)
class LearnedScaleT(SeveralLikelihood):
    """y = f + Student's t noise with df degrees of freedom and scale exp(g/2); f and g are the two processes.

    ⟨log p⟩ is exact up to quadrature: Gauss-Hermite in g, the nodes of `StudentT` in f.
    """

    located: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("df",)

    df: float = 4.0

    def _inside(self, y: Array, means: Array, variances: Array) -> tuple[Array, Array, Array]:
        """Return nodes of g (n, j), and mean and variance of (f - y) exp(-g/2) at these (n j,)."""
        xp = namespace(y)
        g = means[:, 1:] + xp.sqrt(variances[:, 1:]) * asarray_like(HERMITE, y)
        g = xp.clip(g, -STEEP / 2.0, STEEP / 2.0)
        mean, var = (means[:, :1] - y[:, None]) * xp.exp(-0.5 * g), variances[:, :1] * xp.exp(-g)
        mean, var = (xp.reshape(part, (-1,)) for part in (mean, var))
        return g, xp.clip(mean, -LARGEST, LARGEST), xp.clip(var, LARGEST**-2, LARGEST**2)

    def _expected(self, y: Array, means: Array, variances: Array) -> Expected:
        xp, student = namespace(y), StudentT(self.df, 1.0)
        g, mean, var = self._inside(y, means, variances)
        value, q, r, bend = (xp.zeros_like(mean) for _ in range(4))

        def functions(zero: Array, f: Array) -> tuple[Array, ...]:
            share = 1.0 / (1.0 + f * f / self.df)
            return *student.log_density_slopes(zero, f), share * (1.0 - share)

        for part in student.nodes_of(xp.zeros_like(mean), mean, var, 0.0, functions):
            value[part.rows], q[part.rows], r[part.rows] = moments(part, var[part.rows], 0.0)
            bend[part.rows] = row_dots(part.weight, part.values[3])
        along = -0.5 * (1.0 + q * mean + r * var)  # d/dg
        bend = -0.5 * (self.df + 1.0) * bend
        value, along, bend, q, r = (xp.reshape(part, g.shape) for part in (value, along, bend, q, r))
        parts = (value - 0.5 * g, q * xp.exp(-0.5 * g), along, r * xp.exp(-g), bend)
        value, q_f, q_g, r_f, r_g = (part @ asarray_like(HERMITE_WEIGHTS, y) for part in parts)
        return Expected(value, xp.stack([q_f, q_g], axis=1), xp.stack([r_f, r_g], axis=1))

    def gradient_on_nodes(self, y: Array, means: Array, variances: Array, power: float) -> dict[str, Array]:
        g, mean, var = self._inside(y, means, variances)
        zero = namespace(y).zeros_like(mean)
        slope = StudentT(self.df, 1.0).gradient_on_nodes(zero, mean, var, 0.0)["df"]
        return {"df": namespace(y).reshape(slope, g.shape) @ asarray_like(HERMITE_WEIGHTS, y)}

    def predict(self, means: Array, variances: Array, further: Array | None = None) -> tuple[Array, Array]:
        """Return mean and variance of y; the variance is infinite up to df = 2. (n,) each"""
        means, variances = one_namespace(means, variances)
        ratio = self.df / (self.df - 2.0) if self.df > 2.0 else np.inf
        return means[:, 0], variances[:, 0] + ratio * exp(means[:, 1] + 0.5 * variances[:, 1])

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        """Draw y for each row of f (n, 2)."""
        return f[..., 0] + np.sqrt(exp(f[..., 1])) * rng.standard_t(self.df, np.shape(f)[:-1])

    def log_predictive(self, y: Array, means: Array, variances: Array) -> Array:
        """Return the log of the density of y averaged over f and g. (n,)"""
        y, means, variances, _ = self._rows(y, means, variances)
        xp = namespace(y)
        g, mean, var = self._inside(y, means, variances)
        value = StudentT(self.df, 1.0).log_average(0.0, mean, var)
        value = xp.reshape(value, g.shape) - 0.5 * g
        top = xp.max(value, axis=1)
        return top + xp.log(xp.exp(value - top[:, None]) @ asarray_like(HERMITE_WEIGHTS, y))

    def _cumulative(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        g, mean, var = self._inside(y, mean, var)
        below = StudentT(self.df, 1.0).cumulative(np.zeros_like(mean), mean, var)
        return below.reshape(g.shape) @ HERMITE_WEIGHTS


@dataclass(frozen=True)
class Softmax(SeveralLikelihood):
    """One of c classes, numbered from 0, with probability exp(f_y)/Σ exp(f_j); each class has a process.

    With independent Gumbel variables G the largest of f_j + G_j has mean ⟨log Σ exp f⟩ + γ, so ⟨log p⟩ is one
    integral over a product of c functions, exact up to quadrature. Knowles and Minka's bound with the best
    tilts misses a tenth of the effect of var at var = 1, and half of it at var = 4.
    """

    classes: int = 2

    def __post_init__(self) -> None:
        if int(self.classes) != self.classes or not 2 <= self.classes <= 100_000:
            raise ParameterError(f"classes must be a whole number from 2 to 100000, but is {self.classes}")
        object.__setattr__(self, "classes", int(self.classes))

    def n_processes(self, y: Array) -> int:
        return self.classes

    def _check_rows(self, y: Array, *further: Array) -> None:
        check_classes(y, self.classes - 1)

    def _expected(self, y: Array, means: Array, variances: Array) -> Expected:
        largest, p, bend = _log_sum_exp(means, variances)
        numbers = asarray_like(np.arange(self.classes), y)
        chosen = 1.0 * (y[:, None] == numbers)
        return Expected(namespace(y).sum(chosen * means, axis=1) - largest, chosen - p, bend)

    def probabilities(self, means: Array, variances: Array) -> Array:
        """Return ⟨softmax f⟩, the probability of every class. (n, c)"""
        means, variances = one_namespace(means, variances)
        with np.errstate(all="ignore"):
            return _log_sum_exp(means, variances)[1]

    def predict(self, means: Array, variances: Array, further: Array | None = None) -> tuple[Array, Array]:
        """Return mean and variance of the number of the class. (n,) each"""
        return class_moments(self.probabilities(means, variances))

    def log_predictive(self, y: Array, means: Array, variances: Array) -> Array:
        """Return the log probability of the class y. (n,)"""
        y, means, variances, _ = self._rows(y, means, variances)
        p = self.probabilities(means, variances)
        chosen = y[:, None] == asarray_like(np.arange(self.classes), y)
        return namespace(y).log(namespace(y).sum(namespace(y).where(chosen, p, 0.0), axis=1))

    def _cumulative(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        below = np.cumsum(self.probabilities(mean, var), axis=1)
        return np.take_along_axis(below, y.astype(int)[:, None], axis=1)[:, 0]

    def _quantile(self, p: Array, mean: np.ndarray, var: np.ndarray, further: Array | None) -> np.ndarray:
        below = np.cumsum(self.probabilities(mean, var), axis=1)[:, :-1]
        return np.sum(below < p[:, None], axis=1).astype(float)

    def _crps(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        return ranked_score(self.probabilities(mean, var), y)

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        """Draw a class for each row of f (n, c)."""
        return np.argmax(f + rng.gumbel(size=np.shape(f)), axis=-1).astype(float)


def _log_sum_exp(means: Array, variances: Array) -> tuple[Array, Array, Array]:
    """Return ⟨log Σ exp f⟩ (n,), its derivatives in the means, and -2 times those in the variances (n, c).

    With K(x) = ⟨exp(-exp(f - x))⟩, the distribution of f + G, and F = ΠK it is ∫ (x > 0) - F(x) dx - γ, its
    derivatives are ∫ K_j' F/K_j dx, and the others ∫ K_j'' F/K_j dx; by trapezoidal rules in f and in x, to
    eight digits or more. If a √var exceeds WIDEST, only the largest f counts, and it is κ ⟨log Σ exp(f/κ)⟩
    with √var = κ WIDEST.
    """
    xp, scales = namespace(means), namespace(means).sqrt(variances)
    top, unit = xp.max(means, axis=1), xp.maximum(xp.max(scales, axis=1) / WIDEST, 1.0)
    means = xp.maximum((means - top[:, None]) / unit[:, None], -1e9)
    scales, variances = scales / unit[:, None], variances / unit[:, None] ** 2
    value, p, bend = xp.zeros_like(means[:, 0]), xp.zeros_like(means), xp.zeros_like(means)
    low = xp.max(means - REACH * scales, axis=1) - 3.1  # where exp(-exp(-x)) is nothing
    high = xp.max(means + xp.minimum(0.5 * variances, REACH * scales), axis=1) + 21.0 + np.log(means.shape[1])
    widest = xp.max(scales, axis=1)
    for rows, inner, outer in _chunks(2.0 * REACH * widest / 0.5, (high - low) / GUMBEL_STEP, means):
        m, s, start, stop = means[rows], scales[rows], low[rows], high[rows]
        x = start[:, None] + (stop - start)[:, None] * asarray_like(np.linspace(0.0, 1.0, outer), m)
        K, slope, curve = _gumbel_sums(m, s, x, inner)
        logs = xp.log(xp.maximum(K, 1e-300))
        total = xp.sum(logs, axis=1)  # (k, x)
        others = xp.exp(total[:, None, :] - logs)
        step = (stop - start) / (outer - 1)
        F = xp.exp(total)
        value[rows] = stop - step * (xp.sum(F, axis=1) - 0.5 * F[:, -1]) - np.euler_gamma
        p[rows] = step[:, None] * xp.sum(slope * others, axis=2)
        bend[rows] = step[:, None] * xp.sum(curve * others, axis=2)
    return top + unit * value, p, bend / unit[:, None]


def _gumbel_sums(m: Array, s: Array, x: Array, inner: int) -> tuple[Array, Array, Array]:
    """Return K, K' and K'' of every process at x. (k, c, x) each"""
    xp, t = namespace(m), np.linspace(-REACH, REACH, inner)
    weights = np.exp(-0.5 * t * t)
    centre = xp.max(m, axis=1)[:, None]
    down = xp.exp(xp.clip(centre - x, -300.0, 300.0))[:, None, :]
    K, slope, curve = (xp.zeros_like(m)[:, :, None] + 0.0 * down for _ in range(3))
    for shift, weight in zip(t, weights / weights.sum()):
        up = xp.exp(xp.clip(m + shift * s - centre, -300.0, 300.0))[:, :, None]
        y = xp.minimum(up * down, 700.0)  # exp(f - x), beyond which exp(-y) is next to 0
        e = weight * xp.exp(-y)
        K, e = K + e, y * e
        slope, curve = slope + e, curve + (y - 1.0) * e
    return K, slope, curve


def _chunks(inner: Array, outer: Array, like: Array) -> Iterator[tuple[Array, int, int]]:
    """Yield groups of rows with the numbers of nodes, in f and in x, that they share."""
    xp = namespace(like)
    inner, outer = (2.0 * xp.ceil(2.0 * xp.log2(xp.clip(part, 16.0, 1024.0))) for part in (inner, outer))
    key = 100.0 * inner + outer
    for kind in xp.unique_values(key).tolist():
        rows = xp.nonzero(key == kind)[0]
        numbers = [int(2.0 ** (part / 4.0)) + 1 for part in divmod(kind, 100.0)]
        size = max(ENTRIES[not is_numpy(like)] // (numbers[1] * like.shape[1]), 1)
        for first in range(0, rows.shape[0], size):
            yield rows[first : first + size], *numbers
