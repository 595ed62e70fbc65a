"""Plots of processes with one input, of bases and of comparisons. Matplotlib loads when one is drawn."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ShapeError
from ..model.bases import Basis
from ..model.bases import places as places
from .portraits import portrait as portrait
from .portraits import reasons as reasons
from .style import BLUE, COLOURS, INK, RED, canvas, figure, plain
from .style import save as save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


def plot_predictions_1d(
    model: Any,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    noise: float = 0.0,
    grid: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw mean, error bars of two standard deviations, data and inducing inputs of a model with one input.

    A fitted estimator is drawn in the user's units, with the error bars of a new observation; a Posterior
    with those of f, or of an observation when its `noise` variance is given. Multiscale basis functions are
    drawn with their widths. `ax.figure` is the picture; `save` writes it.
    """
    ax = figure() if ax is None else ax
    centers, widths = _basis(model)  # (m,), (m,) or None
    x = None if X is None else np.asarray(X, dtype=np.float64).reshape(-1)  # (n,)
    if grid is None:
        seen = centers if x is None else x
        margin = 0.15 * np.ptp(seen) or 1.0
        grid = np.linspace(seen.min() - margin, seen.max() + margin, 500)
    grid = np.asarray(grid, dtype=np.float64).reshape(-1)  # (g,)
    mean, std = _marginals(model, grid, noise)  # (g,)

    ax.fill_between(grid, mean - 2 * std, mean + 2 * std, color=BLUE, alpha=0.16, linewidth=0, label="±2 std")
    if x is not None and y is not None:
        faint = float(np.clip(30 / np.sqrt(len(x)), 0.15, 0.8))
        ax.plot(x, np.asarray(y), ".", color=INK, markersize=4, alpha=faint, markeredgewidth=0, label="data")
    ax.plot(grid, mean, color=BLUE, linewidth=2, label="mean")
    ax.set_xlim(grid[0], grid[-1])
    _draw_basis(ax, centers, widths)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False, ncols=4)
    return ax


def plot_stream(
    y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    alarms: Iterable[int] = (),
    first: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw a stream's errors, its targets minus what was predicted before each was read, over the predicted
    band of two standard deviations; `alarms` are numbers of rows, and the first row drawn is number `first`.
    """
    ax = figure(10.0, 4.2) if ax is None else ax
    error = np.asarray(y, dtype=float) - np.asarray(mean, dtype=float)
    band, rows = 2.0 * np.asarray(std, dtype=float), first + np.arange(len(error))
    ax.fill_between(rows, -band, band, color=BLUE, alpha=0.25, linewidth=0, label="±2 std predicted")
    out = np.abs(error) > band
    ax.plot(rows[~out], error[~out], ".", color=INK, markersize=4, alpha=0.7, label="inside")
    ax.plot(rows[out], error[out], "o", color=RED, markersize=4, markerfacecolor="none", label="outside")
    for i, row in enumerate(row for row in alarms if first <= row < first + len(error)):
        ax.axvline(row, color=RED, linestyle="--", linewidth=1.4, label="" if i else "alarm")
    ax.set(xlabel="row", ylabel="seen minus predicted")
    ax.margins(x=0.01)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False, ncols=5)
    return ax


def plot_comparison(results: DataFrame) -> Figure:
    """Draw the results of `ig.compare`: error and log loss against m, error against seconds, as means over
    the repeats with bars from least to greatest; methods without a size are level lines. [000 Fig 2]
    """
    picture = canvas(13.0, 4.8)
    panels = [plain(ax) for ax in picture.subplots(1, 3)]
    error, loss = ("smse", "msll") if "smse" in results else ("error", "log_loss")
    levels = [m for m in ("exact", "mean", "linear", "boosting") if m in set(results["method"])]
    methods = [method for method in results["method"].unique() if method not in levels]
    colours = dict(zip(methods, itertools.cycle(COLOURS), strict=False)) | dict.fromkeys(levels, INK)
    for ax, (across, up) in zip(panels, [("size", error), ("size", loss), ("seconds", error)], strict=True):
        for method, colour in colours.items():
            groups = results[results["method"] == method].groupby("size")
            x, y = groups[across].mean().to_numpy(), groups[up].mean().to_numpy()
            dash = ("-", ":", "--", "-.", (0, (1, 4)))[levels.index(method) + 1 if method in levels else 0]
            if method in levels and across == "size":
                ax.axhline(y[0], color=colour, linestyle=dash, label=method)
                continue
            spread = np.array([y - groups[up].min(), groups[up].max() - y])  # (2, sizes)
            style: dict[str, Any] = dict(marker="o", markersize=4, linewidth=1.6, elinewidth=1)
            ax.errorbar(x, y, spread, color=colour, label=method, **style)
            if across == "seconds" and method in levels:  # all of one colour; the legend names the others
                ax.annotate(
                    method, (x[-1], y[-1]), (4, 3), textcoords="offset points", color=colour, fontsize=8
                )
        ax.set_xscale("log")
        ax.set_ylabel(up.upper() if error == "smse" else up.replace("_", " "))
        if across == "size":
            sizes = sorted(results.loc[~results["method"].isin(levels), "size"].unique())
            ax.set_xticks(sizes, [str(m) for m in sizes])
            ax.minorticks_off()
        else:
            ax.margins(x=0.2)
        ax.set_xlabel("number of basis functions m" if across == "size" else "seconds to fit")
        if up == "smse":
            ax.set_yscale("log")
    picture.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    return picture


def draw_basis_2d(ax: Axes, basis: Basis) -> None:
    """Draw a cross for each inducing input, and an ellipse of one width about it if the basis has widths."""
    from matplotlib.patches import Ellipse

    centers, widths = places(basis)
    if widths is not None:
        for center, (a, b) in zip(centers, widths, strict=True):
            ax.add_patch(Ellipse(center, 2 * a, 2 * b, facecolor="none", edgecolor=RED, linewidth=1.2))
    style: dict[str, Any] = dict(color=RED, markersize=7, markeredgewidth=1.8, label="inducing inputs")
    ax.plot(centers[:, 0], centers[:, 1], "x", **style)


def _draw_basis(ax: Axes, centers: np.ndarray, widths: np.ndarray | None) -> None:
    """Draw a cross for each inducing input along the lower edge, with a bar of ± one width if it has any."""
    low, high = ax.get_ylim()
    floor = np.full(len(centers), low - 0.04 * (high - low))  # (m,)
    if widths is not None:
        style: dict[str, Any] = dict(fmt="none", ecolor=RED, elinewidth=1.2, capsize=2.5, alpha=0.6)
        ax.errorbar(centers, floor, xerr=widths, **style)
    ax.plot(centers, floor, "x", color=RED, markersize=6, markeredgewidth=1.6, label="inducing inputs")
    ax.set_ylim(low - 0.08 * (high - low), high)


def _marginals(model: Any, grid: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    if hasattr(model, "posterior_"):
        return model.predict(grid[:, None], return_std=True)
    mean, variance = model.predict(grid[:, None])
    return mean, np.sqrt(np.maximum(variance + noise, 0.0))


def _basis(model: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Return inducing inputs and widths, or None, in the units of the model's inputs. (m,) each"""
    if hasattr(model, "posterior_"):
        basis, shift, scale = model.posterior_.basis, model.x_mean_, model.x_scale_
    else:
        basis, shift, scale = model.basis, 0.0, 1.0
    centers, widths = places(basis)
    if centers.shape[1] != 1:
        raise ShapeError(f"A plot needs a model with one input; this one has {centers.shape[1]}.")
    return (centers * scale + shift)[:, 0], None if widths is None else (widths * scale)[:, 0]
