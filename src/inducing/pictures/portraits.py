"""Pictures of a fitted model of any number of inputs: which matter, what it predicts, how right it is."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import ParameterError
from ..learning.diagnosis import relevance
from ..sources.columns import in_days
from .style import BLUE, COLOURS, HEIGHTS, INK, RED, SPREADS, canvas, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PORTRAITS = ("slices", "map", "dependence", "relevance", "reasons", "calibration", "residuals")
MOST_SLICES, MOST_MAPS, GRID = 6, 4, 60
MOST_REASONS, REASONED_ROWS = 12, 300  # inputs and rows that a picture of reasons shows


def portrait(
    model: Any,
    kind: str = "slices",
    names: Sequence[str] | None = None,
    target: str = "y",
    X: Any = None,
    y: Any = None,
) -> Figure:
    """Draw a fitted estimator: "slices" along the inputs that matter most, the others at their medians; a
    "map" over the first two; "dependence" on each, averaged over rows; "relevance", 1 / lengthscale in
    standard deviations; "reasons", Shapley values of rows X (n, d) or of the basis; or, on rows X with y
    (n,), "calibration" or "residuals". `names` of the features are by default the model's.
    """
    if kind not in PORTRAITS:
        raise ParameterError(f"kind must be one of {', '.join(PORTRAITS)}, not {kind!r}")
    dates = _dates(model)
    model, names, X = _by_features(model, names, X)
    post = model.posteriors_[0] if hasattr(model, "posteriors_") else model.posterior_
    basis, weight = post.basis, relevance(post.kernel, post.basis)[: len(names)]
    order = [int(j) for j in np.argsort(-weight, kind="stable") if weight[j] > 0]
    if kind == "relevance":
        lengths = zip(order, 1.0 / model.relevance_[order])
        shown = [in_days(length) if j in dates else f"{length:.3g}" for j, length in lengths]
        return _relevance(weight[order], [f"{names[j]} ({length})" for j, length in zip(order, shown)])
    if kind in ("calibration", "residuals"):
        if X is None or y is None or len(X) < 2:
            raise ParameterError(f"a picture of {kind} needs rows with {target}: pass X and y, or --table")
        return (_calibration if kind == "calibration" else _residuals)(model, X, y, target)
    Z = basis.centers * model.x_scale_ + model.x_mean_ if X is None else X
    Z = Z[:, : len(names)]  # (m, d), without what is known of gaps
    if kind == "reasons":
        return reasons(_shapley(model, Z), names, target)
    subject = _Subject(model, Z, names, target, dates)
    if kind in ("slices", "dependence"):
        return _slices(subject, order[:MOST_SLICES], averaged=kind == "dependence")
    if len(order) < 2:
        raise ParameterError(f"a map needs two inputs that matter, and the model has {len(order)}")
    return _map(subject, order[:2], dots=X is not None and len(names) == 2)


class _Subject(NamedTuple):
    """A model that takes arrays of features, rows of these, their names, the target's, and the dates."""

    model: Any
    Z: np.ndarray
    names: Sequence[str]
    target: str
    dates: dict[int, int]


def _by_features(model: Any, names: Sequence[str] | None, X: Any) -> tuple[Any, Sequence[str], Any]:
    """Return a copy of the model that takes arrays of features, their names, and the rows X as an array."""
    encoder = getattr(model, "encoder_", None)
    if X is not None:
        framed = encoder if hasattr(X, "columns") else None
        X = np.asarray(X, dtype=float) if framed is None else framed.transform(X)
    if names is None:
        known = getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])
        names = [str(name) for name in (known if encoder is None else encoder.get_feature_names_out())]
    model = copy(model)
    for name in ("feature_names_in_", "encoder_"):
        vars(model).pop(name, None)
    return model, names, X


def _dates(model: Any) -> dict[int, int]:
    """Return the features that are dates: their numbers, and the second since 1970 that each counts from."""
    encoder = getattr(model, "encoder_", None)
    each = [] if encoder is None else [(c, name) for c in encoder.columns_ for name in c.features]
    return {i: c.origin for i, (c, name) in enumerate(each) if c.kind == "time" and name == c.name}


def _as_dates(x: np.ndarray, origin: int | None) -> np.ndarray:
    """Return seconds since the origin as dates; without an origin return x."""
    return x if origin is None else (origin + np.round(x)).astype("M8[s]")


def _relevance(weight: np.ndarray, names: Sequence[str]) -> Figure:
    picture = canvas(7.0, 1.2 + 0.3 * len(names))
    ax = plain(picture.subplots())
    ax.barh(names, weight, color=BLUE)
    ax.invert_yaxis()
    ax.set_xlabel("1 / lengthscale, in standard deviations\n(in brackets: the lengthscale in its own units)")
    return picture


def _shapley(model: Any, Z: np.ndarray) -> Any:
    """Compute Shapley values of at most 300 of the rows."""
    if not hasattr(model, "shapley") or hasattr(model, "classes_"):
        raise ParameterError("reasons are of regressors; classes have a picture of their dependence")
    rows = Z[np.linspace(0, len(Z) - 1, min(len(Z), REASONED_ROWS)).astype(int)]
    return model.shapley(rows)


def reasons(found: Any, names: Sequence[str] | None = None, target: str = "y") -> Figure:
    """Draw Shapley values, from `model.shapley(X)`: the mean size of each input's share, as bars, and the
    share in each row, as dots, bright where the input is large and dark where it is small.
    """
    if np.ndim(found.values) != 2:
        raise ParameterError("a picture of reasons is of one target; take values[..., k] of one of them")
    names = found.names if names is None else names
    sizes = np.mean(np.abs(found.values), axis=0)
    order = np.argsort(-sizes, kind="stable")[:MOST_REASONS]
    picture = canvas(11.0, 1.4 + 0.42 * len(order))
    left, right = picture.subplots(1, 2, sharey=True, width_ratios=(1, 2))
    plain(left).barh(range(len(order)), sizes[order], color=BLUE)
    left.set_yticks(range(len(order)), [names[j] for j in order])
    left.set_xlabel(f"mean size of its share in {target}")
    right.axvline(0.0, color=INK, linewidth=1)
    dots: Any = dict(cmap=HEIGHTS, s=9, linewidths=0, alpha=0.9)
    for place, j in enumerate(order):
        shares, ranks = found.values[:, j], np.argsort(np.argsort(found.X[:, j], kind="stable"))
        right.scatter(shares, place + 0.8 * _apart(shares), c=ranks, **dots)
    plain(right).set_xlabel(f"share in {target} of each row; bright where the input is large, else dark")
    left.set_ylim(len(order) - 0.5, -0.5)
    return picture


def _apart(shares: np.ndarray) -> np.ndarray:
    """Choose heights from -½ to ½ that spread out dots on a line, further where they are dense. (n,)"""
    bins = np.digitize(shares, np.linspace(shares.min(), shares.max(), 40))
    heights = np.zeros(len(shares))
    most = max(10, int(np.max(np.bincount(bins))))
    for own in np.unique(bins):
        rows = np.flatnonzero(bins == own)
        steps = np.arange(len(rows))
        heights[rows] = (-1.0) ** steps * ((steps + 1) // 2) / most
    return heights


def _mean_and_std(model: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predict means and standard deviations, or the probability of the last class and zeros."""
    if hasattr(model, "classes_"):
        return model.predict_proba(X)[:, -1], np.zeros(len(X))
    return model.predict(X, return_std=True)


def _label(model: Any, target: str) -> str:
    return f"probability of {target} = {model.classes_[-1]}" if hasattr(model, "classes_") else target


def _slices(subject: _Subject, order: Sequence[int], averaged: bool) -> Figure:
    model, Z, names, target, dates = subject
    rows = -(-len(order) // 3)
    picture = canvas(11.0, 3.2 * rows)
    axes = picture.subplots(rows, min(3, len(order)), squeeze=False, sharey=True).ravel()
    for ax, j in zip(axes, order):
        if averaged:
            curve = model.partial_dependence(j, Z)
            x, mean, std = curve.values, curve.mean, curve.std
            mean, std = (mean[:, -1], std[:, -1]) if mean.ndim > 1 else (mean, std)
        else:
            X = np.tile(np.median(Z, axis=0), (200, 1))
            x = X[:, j] = np.linspace(Z[:, j].min(), Z[:, j].max(), 200)
            mean, std = _mean_and_std(model, X)
        x = _as_dates(x, dates.get(j))
        plain(ax).fill_between(x, mean - 2 * std, mean + 2 * std, color=BLUE, alpha=0.16, linewidth=0)
        ax.plot(x, mean, color=BLUE)
        ax.tick_params("x", labelrotation=25.0 * (j in dates))
        ax.set_xlabel(names[j])
    for ax in axes[len(order) :]:
        ax.set_visible(False)
    axes[0].set_ylabel(_label(model, target))
    return picture


def _map(subject: _Subject, order: Sequence[int], dots: bool) -> Figure:
    (model, Z, names, target, dates), (i, j) = subject, order
    X = np.tile(np.median(Z, axis=0), (GRID * GRID, 1))
    across, up = (np.linspace(Z[:, k].min(), Z[:, k].max(), GRID) for k in order)
    X[:, i], X[:, j] = (grid.ravel() for grid in np.meshgrid(across, up))
    if hasattr(model, "classes_"):
        shown = model.classes_[-1:] if len(model.classes_) == 2 else model.classes_[:MOST_MAPS]
        P = model.predict_proba(X)[:, -1:] if len(shown) == 1 else model.predict_proba(X)
        panels = [(f"probability of {target} = {label}", p, HEIGHTS) for label, p in zip(shown, P.T)]
    else:
        mean, std = model.predict(X, return_std=True)
        panels = [(_label(model, target), mean, HEIGHTS), ("standard deviation", std, SPREADS)]
    picture = canvas(5.5 * max(2, len(panels)), 4.6)
    across, up = _as_dates(across, dates.get(i)), _as_dates(up, dates.get(j))
    for ax, (title, values, colours) in zip(picture.subplots(1, len(panels), squeeze=False)[0], panels):
        drawn = ax.contourf(across, up, values.reshape(GRID, GRID), levels=20, cmap=colours)
        picture.colorbar(drawn, ax=ax, label=title)
        if dots:
            rows = (_as_dates(Z[:, k], dates.get(k)) for k in order)
            ax.plot(*rows, ".", color="white", markeredgecolor=INK, markersize=5, markeredgewidth=0.5)
        ax.set_xlabel(names[i])
        ax.set_ylabel(names[j])
    return picture


def _square(ax: Axes, low: float, high: float) -> None:
    plain(ax).plot([low, high], [low, high], color=INK, linewidth=1, linestyle=":")


def _calibration(model: Any, X: np.ndarray, y: np.ndarray, target: str) -> Figure:
    """Draw observed against nominal coverage and the PIT, or shares of classes against probabilities."""
    measured = model.calibration(X, y)
    picture = canvas(5.0 if measured.pit is None else 9.5, 4.6)
    axes = picture.subplots(1, 1 if measured.pit is None else 2, squeeze=False)[0]
    _square(axes[0], 0.0, 1.0)
    if measured.pit is None:
        each = zip(model.classes_, measured.levels, measured.observed, COLOURS * len(measured.levels))
        for label, predicted, observed, colour in each:
            axes[0].plot(predicted, observed, "o-", color=colour, label=str(label))
        axes[0].legend(frameon=False)
        axes[0].set(xlabel="probability predicted", ylabel=f"share of rows with that {target}")
        return picture
    axes[0].plot(measured.levels, measured.observed, "o-", color=BLUE, markersize=4)
    axes[0].set(xlabel="level of the interval", ylabel=f"share of rows with {target} in it")
    plain(axes[1]).hist(measured.pit, bins=10, range=(0.0, 1.0), density=True, color=BLUE, alpha=0.6)
    axes[1].axhline(1.0, color=INK, linewidth=1, linestyle=":")
    axes[1].set(xlabel=f"PIT: probability predicted of less {target}", ylabel="density; even if all is well")
    return picture


def _residuals(model: Any, X: np.ndarray, y: np.ndarray, target: str) -> Figure:
    if hasattr(model, "classes_"):
        raise ParameterError("classes have no residuals: draw their calibration")
    mean, std = model.predict(X, return_std=True)
    picture = canvas(10.0, 4.4)
    left, right = picture.subplots(1, 2)
    _square(left, float(min(mean.min(), y.min())), float(max(mean.max(), y.max())))
    left.plot(mean, y, ".", color=BLUE, markersize=4, alpha=0.5)
    left.set(xlabel=f"{target} predicted", ylabel=f"{target} seen")
    plain(right).plot(mean, (y - mean) / std, ".", color=BLUE, markersize=4, alpha=0.5)
    for level in (-2, 2):
        right.axhline(level, color=RED, linewidth=1, linestyle=":")
    right.set(xlabel=f"{target} predicted", ylabel="residual in standard deviations")
    return picture
