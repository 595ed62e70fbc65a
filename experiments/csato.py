"""Shared by the experiments of 004: its RBF kernel in its own parameters, and its plots.

Its polynomial kernel, (1 + x'z/(d l_k))^k [004 eq. 5.1], is `Polynomial(k, scale=l_k)` as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from inducing.learning.fitting import fit
from inducing.model.kernels import RBF
from inducing.model.posterior import Posterior
from inducing.numerics.workers import single_threaded_blas
from inducing.pictures.plots import BLUE, INK, RED, canvas, plain
from inducing.sources import datasets

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREEN = "#3a8f5c"


def rbf(d: int, sigma2: float, amplitude: float = 1.0) -> RBF:
    """amplitude · exp(-|x - x'|²/(2 d σ_k²)) with sigma2 = σ_k²: lengthscale √(d σ_k²). [004 eq. 5.2]"""
    return RBF(lengthscale=np.sqrt(d * sigma2), variance=amplitude)


def width(d: int, kernel: Any) -> float:
    """σ_k² of an isotropic RBF: the other way round."""
    return float(kernel.lengthscale) ** 2 / d


def friedman_kernel(seeds: Iterable[int]) -> tuple[RBF, float, list[list[float]]]:
    """Kernel and noise for Friedman 1 by the exact GP's evidence: geometric means over training sets."""
    learned = []
    with single_threaded_blas():
        for seed in seeds:
            X, y = datasets.friedman1(250, rng=seed)
            found = fit(rbf(10, 0.2, y.var()), None, "exact", 1.0, X, y - y.mean(), progress=False)
            learned.append(
                [width(10, found.kernel), float(found.kernel.parameters["variance"]), float(found.noise)]
            )
    sigma2, amplitude, noise = (float(v) for v in np.exp(np.mean(np.log(learned), axis=0)))
    return rbf(10, sigma2, amplitude), noise, learned


def spread(values: Any, digits: int = 1) -> str:
    """Mean ± standard deviation."""
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}"


def panels(columns: int, width: float = 11.0, height: float = 4.2) -> tuple[Figure, list[Axes]]:
    """A figure with axes side by side."""
    figure = canvas(width, height)
    return figure, [plain(ax) for ax in np.ravel(figure.subplots(1, columns))]


def curve(
    ax: Axes, x: Any, mean: Any, bar: Any, label: str, colour: str, line: str = "-", shift: float = 0.0
) -> None:
    """A line through the means, with bars; `shift` keeps those of several lines apart."""
    style: dict[str, Any] = dict(
        color=colour, linestyle=line, marker="o", markersize=4, elinewidth=1, capsize=2.5
    )
    ax.errorbar(np.asarray(x) + shift, mean, yerr=bar, label=label, **style)


def level(ax: Axes, height: float, label: str, line: str = ":") -> None:
    """A horizontal line at a figure from elsewhere, which the legend explains."""
    ax.axhline(height, color=RED, linewidth=1.2, linestyle=line, label=label)


def draw_process(
    ax: Axes,
    post: Posterior,
    grid: np.ndarray,
    f: np.ndarray,
    X: np.ndarray,
    y: np.ndarray,
    title: str,
    size: float = 3.0,
) -> None:
    """Draw the true f, the process' mean ± one standard deviation, the rows, and the basis as diamonds."""
    mean, variance = post.predict(grid[:, None])
    std = np.sqrt(variance)
    chosen = np.isin(X[:, 0], post.basis.parameters["Z"][:, 0])
    faint = 0.3 if size < 5 else 0.7
    ax.plot(X[:, 0], y, ".", color=INK, alpha=faint, markersize=size, markeredgewidth=0, label="rows")
    ax.plot(grid, f, color=INK, linewidth=1.2, label="sinc")
    ax.plot(grid, mean, color=BLUE, linestyle="-.", linewidth=2, label="mean")
    for sign in (-1, 1):
        label = "± std of f" if sign > 0 else None
        ax.plot(grid, mean + sign * std, color=BLUE, linestyle="--", linewidth=0.9, label=label)
    ax.plot(
        X[chosen, 0], y[chosen], "D", color=RED, markersize=6, markerfacecolor="none", label="basis vectors"
    )
    ax.set(title=title, xlim=(grid[0], grid[-1]), xlabel="x")
