"""`Problem`: data, prior, noise or likelihood, and row of the table, checked once for all computations."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from ..errors import EmptyDataError, NoiseError, ParameterError, ShapeError
from ..numerics import arrays
from ..numerics.arrays import Array, Given, as_columns, asarray_like, is_numpy, namespace, to_numpy
from .bases import Basis, Points
from .kernels.base import Gradients, Kernel
from .likelihoods import Gaussian, Likelihood, SeveralLikelihood
from .means import Mean, Zero
from .table import Approximation

DEFAULT_JITTER = 1e-8  # relative to mean(diag Kuu)
LEAST_NOISE = 64.0  # in roundings of the prior variance: less is lost where rows are alike


@dataclass(frozen=True, eq=False)
class NoiseByLevel:
    """A noise variance for each level of a category in a column of X, all of them learned."""

    values: Any  # (levels,)
    column: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", as_noise(self.values, np.zeros((np.size(self.values), 1)))[0])

    def __rmul__(self, factor: float) -> Self:
        return replace(self, values=factor * self.values)

    def rows(self, X: Array) -> Array:
        """Return the noise of each row. (n,)"""
        codes = to_numpy(X[:, self.column]).astype(int)
        if len(codes) and not 0 <= codes.min() <= codes.max() < len(self.values):
            count, worst = len(self.values), codes.min() if codes.min() < 0 else codes.max()
            raise NoiseError(f"there is noise for levels 0 to {count - 1}, but a row has level {worst}")
        return asarray_like(self.values[codes], X)

    def summed(self, X: Array, per_row: Array) -> np.ndarray:
        """Add up numbers of rows by level. (levels,)"""
        codes = to_numpy(X[:, self.column]).astype(int)
        return np.bincount(codes, to_numpy(per_row), minlength=len(self.values))


@dataclass(frozen=True, eq=False)
class Problem:
    """One checked regression problem on one device. Under Gaussian noise Y is y less its prior mean; with
    another likelihood it is y, with the further columns that likelihood takes.
    """

    kernel: Kernel
    basis: Basis
    row: Approximation
    noise: Array  # (n,), a broadcast view if it is one number; includes `scatter`
    X: Array  # (n, d)
    Y: Array  # (n, p)
    mean: Mean
    jitter: float
    weights: Array | None  # (n,): row i counts weights_i times
    labels: np.ndarray | None  # (n,): the block of each row, where the approximation uses blocks
    blocks: list[np.ndarray] | None  # row numbers of each block
    one_noise: bool  # whether the noise to learn is one number
    one_output: bool
    kept: np.ndarray | None = None  # numbers of the rows in use among those given; None means all
    n_given: int = 0
    likelihood: Likelihood | None = None  # None is Gaussian noise
    noise_name: str = "noise"  # in the gradient
    sets: np.ndarray | None = None  # (n, q): the neighbours of each row in its block, then -1
    noise_model: Any = None  # the noise given, where `noise` adds scatter or is by level
    batches: list[Any] | None = None  # blocks along neighbours that are processed together
    part: int = 0  # the number of this part of a source

    @property
    def n(self) -> int:
        return self.X.shape[0]

    @property
    def p(self) -> int:
        """The number of outputs."""
        return self.Y.shape[1] if self.likelihood is None else 1

    @property
    def general(self) -> bool:
        """Whether the gradient needs each row's R: if R is in D, or precisions may be negative."""
        bound = self.row.bound and self.likelihood is not None and not self.likelihood.log_concave
        return self.row.share > 0 or bound

    @property
    def uniform(self) -> bool:
        """Whether all rows have one noise and no weights, so that m×m matrices can hold the noise."""
        alike = self.one_noise and self.noise_model is None
        return alike and self.weights is None and self.likelihood is None

    @property
    def common_noise(self) -> Array:
        """The noise of every row, if it is one number."""
        return self.noise[0]

    @property
    def known_noise(self) -> bool:
        """Whether noise was given row by row: it is then not learned, and unknown for other rows."""
        return not self.one_noise and not isinstance(self.noise_model, NoiseByLevel)

    def with_noise(self, noise: Given) -> Self:
        """Return this problem with another noise: a number, one per level, or one per row."""
        values, one = as_noise(noise, self.X)
        scattered = self.kernel.uncertain and self.likelihood is None
        model = noise if scattered or isinstance(noise, NoiseByLevel) else None
        values = values + scatter(self.kernel, self.X) if scattered else values
        return replace(self, noise=values, one_noise=one, noise_model=model)

    def weight(self, rows: slice | np.ndarray) -> Array | float:
        """Return the weights of some rows, 1 if none were given."""
        return 1.0 if self.weights is None else self.weights[rows]

    def added_noise(self, rows: slice | np.ndarray) -> Array:
        """Return noise over weight of some rows, to add to the diagonal of their covariance. (c,)"""
        return above_rounding(self.noise[rows] / self.weight(rows), self.kernel, self.X[rows])

    def copies(self, rows: slice | np.ndarray) -> Array:
        """Return how many sites each row's likelihood has: its weight, but at least 1."""
        xp = namespace(self.X)
        ones = xp.ones_like(self.noise[rows])
        return ones if self.weights is None else xp.maximum(self.weights[rows], ones)

    def observed(self, rows: slice | np.ndarray) -> Array:
        """Return y of some rows as a likelihood takes it: (c,), or (c, q) with further columns."""
        return self.Y[rows, 0] if self.Y.shape[1] == 1 else self.Y[rows]


def above_rounding(noise: Array, kernel: Kernel, X: Array) -> Array:
    """Return the noise of rows, or the rounding error of their prior variance if that is more, so that a
    covariance of equal rows has a factor.
    """
    xp = namespace(X)
    return xp.maximum(noise, LEAST_NOISE * xp.finfo(X.dtype).eps * kernel.diagonal(X))


def scatter(kernel: Kernel, X: Array) -> Array | float:
    """Return the prior variance of f about its average over uncertain inputs, 0 for known ones. (n,)"""
    return kernel.point_diag(X) - kernel.diagonal(X) if kernel.uncertain else 0.0


def scatter_pullback(P: Problem, per_row: Array) -> Gradients:
    """Return dJ/d(kernel's parameters) through `scatter`, from dJ/dnoise of each row (n,)."""
    if P.noise_model is None or not P.kernel.uncertain:
        return {}
    own = P.kernel.diag_pullback(P.X, per_row)
    return {k: g - own[k] for k, g in P.kernel.point_diag_pullback(P.X, per_row).items()}


def noise_gradient(P: Problem, per_row: Array) -> Array:
    """Return dJ/dnoise in the shape noise was given: summed, by level, or by row, 0 for unused rows."""
    if isinstance(P.noise_model, NoiseByLevel):
        return P.noise_model.summed(P.X, per_row)
    if P.one_noise:
        return namespace(per_row).sum(per_row)
    if P.kept is None:
        return per_row
    out = arrays.zeros_like_rows((P.n_given,), per_row)
    out[P.kept] = per_row
    return out


def subset(P: Problem, rows: np.ndarray) -> Problem:
    """Return the problem of some rows alone, which are also its basis: the subset of data. [003 §3]"""
    kept = rows if P.kept is None else P.kept[rows]
    weights = None if P.weights is None else P.weights[rows]
    model = P.noise_model[rows] if P.known_noise and P.noise_model is not None else P.noise_model
    some = replace(P, X=P.X[rows], Y=P.Y[rows], noise=P.noise[rows], weights=weights, kept=kept)
    return replace(some, basis=Points(some.X), noise_model=model)


def as_inputs(X: Given, *, most: float = arrays.LARGEST_NUMBER) -> Array:
    """Return X as an (n, d) array of finite floats up to `most`, in its own library. Raise if it is none."""
    if arrays.is_foreign(X):
        arrays.require_numbers(X, "X")
        X = X.detach() if hasattr(X, "detach") else X
    else:
        X = arrays.as_floats(X, "X", "must be a table of numbers")
    if X.ndim != 2:
        hint = "; a single column is X[:, None]" if X.ndim == 1 else ""
        raise ShapeError(f"X must have two dimensions (rows, columns), but has shape {tuple(X.shape)}{hint}")
    if X.shape[1] == 0:
        raise ShapeError("X has no columns")
    arrays.require_finite(X, "X", most)
    return X


def as_rows(X: Given) -> Array:
    """Return X as inputs. Raise if it has no rows."""
    X = as_inputs(X)
    if X.shape[0] == 0:
        raise EmptyDataError("X has no rows; at least one is needed")
    return X


def as_queries(X: Given, d: int) -> Array:
    """Return X as inputs. Raise if it has not d columns, as the data had."""
    X = as_inputs(X)
    if X.shape[1] != d:
        raise ShapeError(f"X has {X.shape[1]} columns, but the process was made with {d}")
    return X


def queries_like(X: Given, data: Array) -> Array:
    """Return X as inputs. Raise if it differs from the data in the number of columns or the kind of array."""
    X = as_queries(X, data.shape[1])
    if (is_numpy(X) and is_numpy(data)) or _kind(X) == _kind(data):
        return X
    raise ParameterError(f"X is a {_kind(X)}, but the process was made with a {_kind(data)}; convert one")


def _kind(a: Array) -> str:
    return "NumPy array" if is_numpy(a) else f"{type(a).__name__} of {a.dtype} on {a.device}"


def as_targets(y: Given, X: Array, *, most: float = arrays.LARGEST_NUMBER) -> Array:
    """Return y as a finite (n,) or (n, p) array on X's device. Raise if it is none."""
    if is_numpy(X):
        y = arrays.as_floats(y, "y")
    else:
        arrays.require_numbers(y, "y")
        y = asarray_like(y, X)
    if y.ndim not in (1, 2) or y.shape[0] != X.shape[0]:
        raise ShapeError(f"y has shape {tuple(y.shape)}, but X has {X.shape[0]} rows; give as many")
    arrays.require_finite(y, "y", most)
    arrays.refuse_fill_values(y, "y", most)
    return y


def as_noise(noise: Given, X: Array) -> tuple[Array, bool]:
    """Return the noise variance of every row (n,), and whether it was given as one number."""
    if isinstance(noise, NoiseByLevel):
        return noise.rows(X), False
    arrays.require_numbers(noise, "noise")
    values = asarray_like(noise, X)
    n = X.shape[0]
    if values.ndim > 1 or (values.ndim == 1 and values.shape[0] != n):
        raise ShapeError(f"noise must be one variance or one per row ({n}), not {tuple(values.shape)}")
    xp = namespace(X)
    least, most = float(values.min()), float(values.max())  # in double: 1e70 is none in single precision
    if not (1.0 / arrays.LARGEST_NUMBER <= least and most <= arrays.LARGEST_NUMBER):
        worst = most if 1.0 / arrays.LARGEST_NUMBER <= least else least
        raise NoiseError(
            f"noise is a variance and must be positive and finite, from {1.0 / arrays.LARGEST_NUMBER:g} to "
            f"{arrays.LARGEST_NUMBER:g}, but {worst:g} was given; use a small positive number"
        )
    return xp.broadcast_to(values, (n,)), values.ndim == 0


def _as_weights(weights: Given, X: Array) -> Array | None:
    if weights is None:
        return None
    arrays.require_numbers(weights, "weights")
    values = asarray_like(weights, X)
    if values.ndim != 1 or values.shape[0] != X.shape[0]:
        raise ShapeError(f"weights must be one per row ({X.shape[0]}), not of shape {tuple(values.shape)}")
    arrays.require_finite(values, "weights")
    xp = namespace(X)
    if bool(xp.any(values < 0)):
        raise ParameterError(f"weights must not be negative, but the smallest is {float(xp.min(values)):g}")
    if not bool(xp.any(values > 0)):
        raise EmptyDataError("all weights are zero; at least one row must count")
    return values


def as_blocks(labels: Given, n: int) -> list[np.ndarray]:
    """Return the row numbers of each block, in the order of the labels."""
    arrays.require_numbers(labels, "blocks", text=True)
    labels = to_numpy(labels)
    if labels.shape != (n,):
        raise ShapeError(f"blocks must hold one label per row ({n}), but has shape {labels.shape}")
    order = np.argsort(labels, kind="stable")
    edges = np.flatnonzero(np.diff(labels[order])) + 1
    return np.split(order, edges)


def check_jitter(jitter: Given) -> None:
    if not isinstance(jitter, float | int) or not 0 <= jitter < 1:
        raise ParameterError(f"jitter, relative to the prior variance, must lie in [0, 1), but is {jitter}")


def check_basis(basis: Basis, kernel: Kernel, columns: int) -> None:
    d = basis.centers.shape[1]
    if d != columns:
        raise ShapeError(f"the basis lives in {d} dimensions, but X has {columns} columns")
    if len(basis) == 0:
        raise EmptyDataError("the basis is empty; at least one basis function is needed")
    basis.check(kernel)


def less_mean(mean: Mean, X: Array, y: Array) -> Array:
    """Return the targets less the prior mean, as columns. (n, p)"""
    m0 = mean(X)
    if m0.ndim == 2 and (y.ndim == 1 or m0.shape[1] != y.shape[1]):
        raise ShapeError(f"the prior mean has {m0.shape[1]} outputs, but y has shape {tuple(y.shape)}")
    return as_columns(y) - as_columns(m0)


def make_problem(
    kernel: Kernel,
    basis: Basis | None,
    row: Approximation,
    noise: Given,
    X: Given,
    y: Given,
    *,
    mean: Mean | None = None,
    jitter: float = DEFAULT_JITTER,
    blocks: Given = None,
    weights: Given = None,
) -> Problem:
    """Check everything and put it on X's device; without a basis the rows of X are the basis."""
    X = as_rows(X)
    noise, likelihood, noise_name = split_noise(noise, row)
    y = as_targets(y if likelihood is None else likelihood.check(to_numpy(y)), X)
    given, (noise, one_noise) = noise, as_noise(noise, X)
    check_jitter(jitter)
    weights = _as_weights(weights, X)
    n_given, kept = X.shape[0], None
    if row.blocks and blocks is None:
        raise ParameterError(f"{row.name!r} needs blocks=, one integer label per row")
    if blocks is not None:
        blocks = to_numpy(blocks)
        as_blocks(blocks, X.shape[0])
    if weights is not None and bool(namespace(X).any(weights == 0)):
        kept = keep = np.flatnonzero(to_numpy(weights) > 0)
        X, y, noise, weights = X[keep], y[keep], noise[keep], weights[keep]
        blocks = None if blocks is None else blocks[keep]
    basis = Points(X) if basis is None else basis.on(X)
    check_basis(basis, kernel, X.shape[1])
    mean = Zero() if mean is None else mean
    Y = less_mean(mean, X, y) if likelihood is None else as_columns(y)
    labels = blocks if row.blocks or row.keeps == "neighbours" else None
    P = Problem(
        kernel=kernel,
        basis=basis,
        row=row,
        noise=noise,
        X=X,
        Y=Y,
        mean=mean,
        jitter=float(jitter),
        weights=weights,
        labels=labels,
        blocks=None if labels is None else as_blocks(labels, X.shape[0]),
        one_noise=one_noise,
        one_output=y.ndim == 1 or likelihood is not None,
        kept=kept,
        n_given=n_given,
        likelihood=likelihood,
        noise_name=noise_name,
    )
    return P.with_noise(given if one_noise or isinstance(given, NoiseByLevel) else noise)


def split_noise(noise: Given, row: Approximation) -> tuple[Any, Likelihood | None, str]:
    """Return the noise variance, the likelihood unless it is Gaussian, and the name of noise in gradients."""
    if not isinstance(noise, Likelihood):
        return noise, None, "noise"
    if isinstance(noise, Gaussian):
        return noise.variance, None, "likelihood.variance"
    if row.blocks:
        raise ParameterError(f"{row.name!r} keeps blocks and needs Gaussian noise, not {noise}; use 'fitc'")
    if row.keeps == "neighbours" and isinstance(noise, SeveralLikelihood):
        raise ParameterError(f"{row.name!r} is for one process, and {noise} has several; use 'vfe'")
    return 1.0, noise, "noise"
