"""Preparation of a fit: checked weights and parameters, merged and standardised rows, the starting values."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import errors
from ..files.models import LEAST_HEADER, bytes_of
from ..inference import selection
from ..inference.regression import DENSE, approximation_of, problem_of
from ..learning.noise import NOISE_WAYS
from ..learning.objective import tempered
from ..model import kernels
from ..model.bases import Basis, Points, as_multiscale
from ..model.kernels.base import Kernel
from ..model.likelihoods import BY_NAME, Binary, Gaussian, Likelihood, SeveralLikelihood, Squared, StudentT
from ..model.means import Constant, Mean
from ..model.problem import NoiseByLevel, Problem, as_noise
from ..model.table import TABLE
from ..numerics.arrays import as_floats, to_numpy
from ..sources.moments import center_and_scale
from ..sources.source import Part, Source
from .columns import Kinds
from .guide import check_guide

ONLY_NUMBERS: Kinds = Kinds()
LEARNING_BASIS = 100  # basis functions, at most, to learn hyperparameters with before a stream is read
SMALLEST_SPREAD = 1e-150  # of targets: noise of a thousandth of it still has a variance with all digits
OTHERS = (Binary, SeveralLikelihood, Squared)  # likelihoods of classes, several processes and densities


@dataclass(frozen=True, eq=False)
class Scaling:
    """The conversion from the user's units to the model's, (a - mean) / scale for each column."""

    x_mean: np.ndarray  # (d,)
    x_scale: np.ndarray
    y_mean: np.ndarray  # (p,)
    y_scale: np.ndarray
    output: int | None = None  # the column of X with the number of a row's output, if coregionalised

    def __post_init__(self) -> None:
        """Raise if targets spread so little that their squares lose digits."""
        if np.any(self.y_scale < SMALLEST_SPREAD):
            raise errors.NonFiniteError(f"y spreads by {np.min(self.y_scale):g}, too little; use other units")

    @staticmethod
    def none(d: int, p: int) -> Scaling:
        """Return the scaling that changes nothing, for d inputs and p outputs."""
        return Scaling(np.zeros(d), np.ones(d), np.zeros(p), np.ones(p))

    def __call__(self, part: Part) -> Part:
        y = None if part.y is None else self.targets(part.X, part.y)
        return replace(part, X=(part.X - self.x_mean) / self.x_scale, y=y)

    def targets(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """Return the targets Y of rows X in the model's units."""
        if self.output is None:
            return (Y - self.y_mean) / self.y_scale
        q = X[:, self.output].astype(int).reshape(-1, *[1] * (Y.ndim - 1))
        return (Y - self.y_mean[q]) / self.y_scale[q]

    def under(self, likelihood: Likelihood | None) -> Scaling:
        """Return a scaling that changes only what a likelihood allows: the first column of y, or nothing."""
        if likelihood is None:
            return self
        kept = np.arange(len(self.y_mean)) >= likelihood.located
        mean, scale = np.where(kept, 0.0, self.y_mean), np.where(kept, 1.0, self.y_scale)
        return replace(self, y_mean=mean, y_scale=scale)

    def alike(self, varying: np.ndarray) -> Scaling:
        """Return a scaling with one scale for all outputs, the root mean square of those that vary."""
        scales = self.y_scale[varying] if np.any(varying) else self.y_scale
        return replace(self, y_scale=np.full(len(self.y_scale), np.sqrt(np.mean(scales**2))))


@dataclass(frozen=True, eq=False)
class Data:
    """Training rows, all different and sorted, with their weights and the noise to start from."""

    X: np.ndarray  # (n, d)
    Y: np.ndarray  # (n, p)
    weights: np.ndarray  # (n,)
    noise: Any  # a number, or (n,) where it is known; None until a guess is made

    def __getitem__(self, rows: np.ndarray) -> Data:
        noise = self.noise if np.ndim(self.noise) == 0 else self.noise[rows]
        return Data(self.X[rows], self.Y[rows], self.weights[rows], noise)

    @staticmethod
    def merged(X: np.ndarray, Y: np.ndarray, weights: np.ndarray, noise: Any) -> Data:
        """Sort the rows of positive weight and merge equal ones; a name for `noise` becomes None."""
        noise = None if isinstance(noise, str) else noise
        if noise is not None:
            values, one = as_noise(noise, X)
            noise = float(values[0]) if one else values
        columns = [X, Y] if np.ndim(noise) == 0 else [X, Y, noise[:, None]]
        table, weights = selection.merge_repeats(np.hstack(columns)[weights > 0], weights[weights > 0])
        d, p = X.shape[1], Y.shape[1]
        rows = np.ascontiguousarray(table[:, :d]), np.ascontiguousarray(table[:, d : d + p])
        return Data(*rows, weights, noise if np.ndim(noise) == 0 else table[:, -1])

    def standardised(
        self, standardize: bool, likelihood: Likelihood | None = None, kinds: Kinds = ONLY_NUMBERS
    ) -> tuple[Data, Scaling]:
        """Return the data in the model's units, and the scaling used, which changes nothing by request."""
        p = self.Y.shape[1] if kinds.output is None else kinds.codes[kinds.output]
        scaling = replace(Scaling.none(self.X.shape[1], p), output=kinds.output)
        if standardize:
            of_X = kinds.in_place(*center_and_scale(self.X, self.weights))
            if kinds.output is not None:
                q = self.X[:, kinds.output]
                each = [center_and_scale(self.Y[q == k], self.weights[q == k]) for k in range(p)]
                mean, scale = (np.concatenate(column) for column in zip(*each, strict=True))
                scaling = Scaling(*of_X, mean, scale, kinds.output)
            else:
                of_Y = center_and_scale(bulk(self.Y, likelihood), self.weights)
                scaling = Scaling(*of_X, *of_Y).under(likelihood)
                if self.noise is not None:
                    scaling = scaling.alike(np.ptp(self.Y, axis=0) > 0)
        return self.scaled(scaling), scaling

    def scaled(self, scaling: Scaling) -> Data:
        """Return the data in the units of a scaling; noise that is not given is a tenth of the variance."""
        X, Y = (self.X - scaling.x_mean) / scaling.x_scale, scaling.targets(self.X, self.Y)
        data = replace(self, X=X, Y=Y)
        noise: Any = 0.1 * data.target_variance()
        if scaling.output is not None:
            values = noise if self.noise is None else self.noise / scaling.y_scale**2
            noise = NoiseByLevel(values + np.zeros(len(scaling.y_scale)), scaling.output)
        elif self.noise is not None:
            noise = self.noise / scaling.y_scale[0] ** 2
        return replace(data, noise=noise)

    def seen(self, likelihood: Likelihood | None) -> np.ndarray:
        """Mark the rows that are not censored: their evidence is a density of y, not a probability. (n,)"""
        censored = likelihood is not None and likelihood.located and self.Y.shape[1] > 1
        return self.Y[:, 1] == 0.0 if censored else np.ones(len(self.Y), dtype=bool)

    def target_variance(self, likelihood: Likelihood | None = None) -> float:
        """Return the variance of the targets, or 1 under a likelihood whose f is not in units of y."""
        if likelihood is not None and not likelihood.located:
            return 1.0
        Y = self.Y if likelihood is None else bulk(self.Y, likelihood)[:, :1]
        return float(np.mean(center_and_scale(Y, self.weights)[1] ** 2))


def bulk(Y: np.ndarray, likelihood: Likelihood | None) -> np.ndarray:
    """Return the targets, for heavy-tailed likelihoods with outliers moved to three standard deviations."""
    if not hasattr(likelihood, "safe_site"):
        return Y
    middle = np.median(Y, axis=0)
    spread = 1.4826 * np.median(np.abs(Y - middle), axis=0)  # a Gaussian's standard deviation
    return np.where(spread > 0, np.clip(Y, middle - 3.0 * spread, middle + 3.0 * spread), Y)


def noise_way(noise: Any) -> str | None:
    """Return how noise is learned as a process of its own; None if it is a number or "constant"."""
    if not isinstance(noise, str) or noise == "constant":
        return None
    errors.require_one_of("noise", noise, ("constant", *NOISE_WAYS), " or a variance")
    return noise


def start_likelihood(model: Any) -> Likelihood | None:
    """Return the likelihood that a regressor starts from, in the units of y; None is Gaussian noise."""
    given, noise = model.likelihood, model.noise
    if given is None or given == "gaussian":
        return None
    known = {name: kind for name, kind in BY_NAME.items() if not issubclass(kind, OTHERS)}
    likelihood = known[given.lower()]() if isinstance(given, str) and given.lower() in known else given
    if isinstance(likelihood, Binary):
        raise errors.LabelError(f"{likelihood} is for classes: use SparseGPClassifier")
    if not isinstance(likelihood, Likelihood) or isinstance(likelihood, OTHERS):
        names = ", ".join(known)
        raise errors.UnknownNameError(f"likelihood must be one of {names}, or such an object, not {given!r}")
    if noise_way(noise) is not None and not isinstance(likelihood, StudentT | Gaussian):
        raise errors.ParameterError(f"noise={noise!r} is for Gaussian noise and StudentT, not {likelihood}")
    if noise is not None and not isinstance(noise, str):
        raise errors.ParameterError(f"noise={noise} and {likelihood} both set the noise; give one of them")
    return None if isinstance(likelihood, Gaussian) else likelihood


def start_noise(
    model: Any, data: Data, scaling: Scaling, likelihood: Likelihood | None
) -> tuple[Any, Mean | None]:
    """Return the noise or likelihood, and prior mean, that a regressor starts from, in the model's units."""
    if not isinstance(model.mean, Mean | None):
        raise errors.ParameterError(f"mean must be None or one of inducing.means, but is {model.mean!r}")
    if likelihood is None:
        given = getattr(model.likelihood, "variance", None)  # of a Gaussian(variance)
        return data.noise if given is None else given / scaling.y_scale[0] ** 2, model.mean
    named, variance = isinstance(model.likelihood, str), data.target_variance(likelihood)
    noise = likelihood.in_units(np.sqrt(0.1 * variance) if named else 1.0 / scaling.y_scale[0])
    if model.mean is not None or likelihood.located:
        return noise, model.mean
    return noise, Constant(likelihood.likeliest(data.Y, data.weights))


def fitted_problem(model: Any, rows: Any, likelihood: Likelihood | None, centres: Any) -> Problem:
    """Return the problem of f that a fitted regressor solved, from its rows (X, y, weights) in the user's
    units and the centres of its blocks; raise if the model does not have its rows.
    """
    if rows is None or (likelihood is None and isinstance(model.fit_result_.noise, Likelihood)):
        raise errors.ParameterError(
            "leaving rows out needs the rows of a fit in memory, and noise that was not learned jointly with "
            "f; models fitted to sources or loaded from files have no rows"
        )
    (X, y, weights), fit = rows, model.fit_result_
    kept, name = weights > 0, model.approximation_
    X, y, weights = (X[kept] - model.x_mean_) / model.x_scale_, y[kept], weights[kept]
    if likelihood is None:
        q = ... if model.kinds_.output is None else X[:, model.kinds_.output].astype(int)
        y = (y - np.asarray(model.y_mean_)[q]) / np.asarray(model.y_scale_)[q]
    elif likelihood.located:
        first = ((y if y.ndim == 1 else y[:, 0]) - model.y_mean_) / model.y_scale_
        y = first if y.ndim == 1 else np.column_stack([first, y[:, 1:]])
    noise = fit.noise
    if likelihood is None and np.ndim(model.noise) > 0:
        noise = np.asarray(model.noise, dtype=float)[kept] / model.y_scale_**2
    P = problem_of(
        fit.kernel,
        None if name in DENSE else fit.posterior.basis,
        approximation_of(name, model.power, model.neighbours if name == "neighbours" else None),
        noise,
        X,
        y,
        mean=fit.mean,
        jitter=model.jitter,
        blocks=None if centres is None else selection.nearest(X, centres),
        weights=None if np.all(weights == 1.0) else weights,
    )
    return tempered(P, *model.noise_of_f_)


def per_output(a: np.ndarray, scale: Any) -> np.ndarray:
    """Return a variance or covariance that all outputs share in the units of each of them."""
    return a * scale**2 if np.ndim(scale) == 0 else a[..., None] * scale**2


def checked_weights(sample_weight: Any, X: np.ndarray) -> np.ndarray:
    """Return one weight for each row of X, None and a number being the same for all; raise if invalid."""
    if sample_weight is None:
        return np.ones(len(X))
    weights = as_floats(sample_weight, "sample_weight").copy()
    weights = np.full(len(X), weights) if weights.ndim == 0 else weights
    if weights.shape != (len(X),):
        raise errors.ShapeError(f"sample_weight must have {len(X)} entries, one per row, not {weights.shape}")
    if not np.all(np.isfinite(weights)):
        raise errors.NonFiniteError("sample_weight holds NaN or infinity; use zero to leave a row out")
    if np.any(weights < 0):
        raise errors.ParameterError(f"sample_weight must not be negative, but its least is {weights.min():g}")
    if not np.any(weights > 0):
        raise errors.EmptyDataError(
            "sample_weight is zero in every row; at least one must be a non-zero number"
        )
    return weights


def check_parted(source: Source, sample_weight: Any, model: Any) -> None:
    """Raise if a source, or the parameters of a regressor over it, cannot be fitted."""
    message, known = "", [name for name, row in TABLE.items() if not (row.blocks or row.own_block)]
    check_guide(model, None)
    if source.n_outputs == 0:
        message = "the source has no targets; name the target column, or give y"
    elif sample_weight is not None:
        message = "rows that come in parts have no weights; leave sample_weight out, or give arrays"
    elif noise_way(model.noise) is not None and model.likelihood is not None:
        message = f"for rows in parts noise={model.noise!r} must be Gaussian; leave out likelihood="
    elif np.ndim(model.noise) > 0:
        n = np.size(model.noise)
        message = f"rows that come in parts take one noise, but noise has {n} entries; give a number"
    elif model.device is not None:
        message = "device= is for rows in memory; for rows in parts see inducing.distributed.spread(device=)"
    elif model.approximation not in known:
        row = model.approximation
        message = f"{row!r} needs all rows at once; for rows in parts choose one of {', '.join(known)}"
    elif model.recipe == "pitc":
        message = "the recipe 'pitc' needs all rows at once; for rows in parts use inducing.fit with blocks="
    if message:
        raise errors.ParameterError(message)


def check_file_size(model: Any, data: Data, m: int) -> None:
    """Raise if the file of a model with m basis functions would exceed its `max_file_size`."""
    limit, (n, d), p = model.max_file_size, data.X.shape, data.Y.shape[1]
    if limit is None:
        return
    errors.require_count("max_file_size", limit)
    near = model.approximation == "neighbours"
    of_arrays = bytes_of(m, d, p, n if near else 0, 4, exact=model.approximation in DENSE)
    if (size := of_arrays + LEAST_HEADER) > limit:
        what = f"{n} training rows and " if near else ""
        instead = "a smaller n_inducing"
        if near or model.approximation == "exact":
            instead = "approximation='fitc'" + near * f" or {instead}"
        instead = "a larger one" if limit < LEAST_HEADER + bytes_of(1, d, p) else instead
        raise errors.ParameterError(
            f"a file with {what}{m} basis functions has at least {size} bytes, but max_file_size is {limit}; "
            f"use {instead}"
        )


def start_inducing(inducing: Any, d: int) -> np.ndarray:
    """Return inducing inputs given as an array (m, d), in the user's units; raise if the shape is wrong."""
    Z = np.asarray(inducing, dtype=float)
    if Z.ndim != 2 or Z.shape[1] != d:
        raise errors.ShapeError(f"inducing must be an array (m, {d}), but has shape {Z.shape}")
    return Z


def start_places(
    model: Any, data: Data, scaling: Scaling, kernel: Kernel, rng: Any
) -> tuple[np.ndarray, bool]:
    """Return the places (m, d) where a regressor's basis starts, and whether each different row has one."""
    if model.approximation in ("exact", "cg"):
        return data.X, True
    coded = bool(model.kinds_.codes) or model.kinds_.way == "variances"  # then averages of rows are no inputs
    rule = ("variance" if coded else "kmeans") if model.inducing is None else model.inducing
    if not isinstance(rule, str):
        Z = model.kinds_.inputs(start_inducing(rule, model.kinds_.width(data.X.shape[1])))
        return (Z - scaling.x_mean) / scaling.x_scale, False
    errors.require_one_of("inducing", rule, selection.BY_NAME, " or an array")
    m0 = np.zeros(1) if model.mean is None else to_numpy(model.mean(data.X))
    y = data.Y - (m0[:, None] if m0.ndim == 1 else m0 if m0.shape == data.Y.shape else 0.0)
    m, known_model = model.n_inducing, {"kernel": kernel, "noise": data.noise, "y": y}
    Z = selection.BY_NAME[rule](data.X, m, rng, data.weights, **known_model)
    Z = data.X[np.unique(selection.nearest(Z, data.X))] if coded and rule == "kmeans" else Z
    if len(Z) >= m:
        return Z, len(Z) == len(data.X)
    whole = len(Z) == len(selection.merge_repeats(data.X, data.weights)[0])
    if not model.left_open:
        reason = f"{rule!r} found only {len(Z)} that differ enough; choose another rule to have more"
        if whole:
            reason = f"the data have only {len(Z)} different rows"
        message = f"{m} inducing points were asked for, but {reason}"
        warnings.warn(message, errors.ReducedBasisWarning, stacklevel=4)
    return Z, whole


def start_basis(model: Any, Z: np.ndarray, kernel: Kernel, *, free: bool) -> Basis:
    """Return the starting basis: points at Z, or the same functions as Gaussians of free widths."""
    errors.require_one_of("basis", model.basis, ("auto", "points", "multiscale"))
    plain = isinstance(kernel, kernels.RBF) and kernel.columns is None and model.projection is None
    near = model.approximation == "neighbours"  # near rows hold the detail that widths would be for
    wide = plain and free and model.recipe == "auto" and model.inducing is None and not near
    if model.basis == "points" or model.approximation not in TABLE or (model.basis == "auto" and not wide):
        return Points(Z)
    if not plain:
        raise errors.ParameterError(f"basis='multiscale' needs a plain RBF, not {type(kernel).__name__}")
    return as_multiscale(kernel, Points(Z))


def block_centres(model: Any, X: np.ndarray, m: int, rng: Any) -> np.ndarray | None:
    """Return the centres of the blocks of PITC and PIC (a row belongs to the nearest); else None."""
    if model.approximation not in TABLE or not TABLE[model.approximation].blocks:
        return None
    return selection.kmeans(X, max(1, round(len(X) / m)) if model.n_blocks is None else model.n_blocks, rng)


def named(error: ValueError | OverflowError) -> errors.InducingError:
    """Return this package's error for one of scikit-learn's."""
    text = re.sub(r":\narray=.*\n", "; ", str(error), flags=re.DOTALL)  # without the numbers themselves
    text = re.sub(r"\s*\n-?\s*", " ", text)
    if "sample(s)" in text:
        return errors.EmptyDataError(text)
    if "NaN" in text or "infinity" in text:
        return errors.NonFiniteError(text)
    if "feature names" in text.lower() or "convert" in text:
        return errors.ColumnError(text)
    return errors.ShapeError(text)
