"""What 004 leaves for later: mixtures of processes, likelihoods and orders by evidence. [004 §§5.4, 6.1]"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm

from inducing.beside.mixture import mixture
from inducing.learning.fitting import fit
from inducing.model.bases import Points
from inducing.model.kernels import RBF, Polynomial
from inducing.model.likelihoods import Gaussian, NegativeBinomial, Poisson, Probit, StudentT
from inducing.pictures.plots import BLUE, INK, RED

from .csato import panels
from .report import Report


def crossing(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of two curves that cross twice, with noise of variance 0.0225, and which curve each is on."""
    x, z = rng.uniform(-3.0, 3.0, n), rng.integers(0, 2, n)
    return x[:, None], curves(x)[z, np.arange(n)] + 0.15 * rng.standard_normal(n), z


def curves(x: np.ndarray) -> np.ndarray:
    return np.stack([np.sin(1.5 * x) + 0.5 * x, -0.5 * x - np.cos(x)])


def m1(report: Report) -> None:
    """A mixture of two processes on rows of two crossing curves. [004 §6.1, §5.4.3]"""
    runs, n, starts = (3, 120, 30) if report.quick else (10, 200, 50)
    report.settings = (
        f"{n} rows of two curves that cross, labels hidden, noise of variance 0.0225; RBF, 20 "
        "inducing inputs; EM "
        f"from {starts} starts, then three rounds of learning; {runs} data sets, 1000 new rows each."
    )
    basis, rows, right, gains, held, found = Points(np.linspace(-3, 3, 20)[:, None]), [], [], [], [], None
    for run in range(runs):
        rng = report.rng(run)
        X, y, z = crossing(n, rng)
        new, t, _ = crossing(1000, rng)
        two = mixture(RBF(1.0, 2.0), basis, 0.05, X, y, starts=starts, learn=3, rng=rng)
        one = fit(RBF(1.0, 2.0), basis, "vfe", 0.5, X, y, optimize="hyperparameters", progress=False)
        mean, variance = one.posterior.predict(new)
        single = norm.logpdf(t, mean, np.sqrt(variance + one.noise)).mean()
        density = two.log_density(new, t).mean()
        truth = np.logaddexp.reduce(norm.logpdf(t, curves(new[:, 0]), 0.15), axis=0).mean() - np.log(2.0)
        agree = np.mean(two.best.labels == z)
        right.append(max(agree, 1 - agree))
        gains.append(density - single)
        held.append(truth - density)
        first = mixture(RBF(1.0, 2.0), basis, 0.05, X, y, starts=starts, rng=report.rng(run))
        shares = " ".join(f"{w:.2g}" for w in first.weights[:3])
        cells = f"{right[-1]:.3f}", f"{density:.3f}", f"{single:.3f}", f"{truth:.3f}"
        rows.append((run, *cells, len(first.solutions), first.best.starts, shares))
        found = found or (X, y, two)
    some = f"{np.min(right):.2f} to {np.max(right):.2f} of the rows"
    report.claim("EM tells the curves apart", "feasible, §6.1", some, np.median(right) > 0.9)
    some = f"{np.min(gains):.2f} to {np.max(gains):.2f} nats a new row"
    report.claim("The mixture predicts better than one process", "interesting, §6.1", some, min(gains) > 0.0)
    some = f"{np.min(held):.3f} to {np.max(held):.3f} nats a row below the true density"
    report.claim("Its density is near the true one", "–", some, np.median(held) < 0.1)
    head = (
        "data set",
        "rows right",
        "log density",
        "of one process",
        "of the truth",
        "solutions",
        "starts in the best",
    )
    report.table("Each data set", (*head, "weights (5.40)"), rows)
    report.notes.append(
        "The starts end in many solutions; the weight exp F of the best exceeds the others' by many "
        "nats, as the good "
        "wind fields' does in §5.4.3. Labels near a crossing cannot be told."
    )
    report.values = {"right": right, "gain": gains, "below the truth": held}
    assert found is not None
    report.pictures["curves"] = _curves_picture(*found)


def _curves_picture(X: np.ndarray, y: np.ndarray, two: Any) -> Any:
    figure, axes = panels(2, 12.0)
    grid = np.linspace(-3, 3, 241)
    for k, (part, colour) in enumerate(zip(two.best.components, (BLUE, RED), strict=True)):
        own = two.best.labels == k
        axes[0].scatter(X[own, 0], y[own], s=12, color=colour, alpha=0.7, linewidth=0)
        mean, variance = part.posterior.predict(grid[:, None])
        std = 2 * np.sqrt(variance + part.likelihood.variance)
        axes[0].plot(grid, mean, color=colour)
        axes[0].fill_between(grid, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)
    axes[0].plot(grid, curves(grid).T, color=INK, linewidth=0.8, linestyle=":")
    axes[0].set(title="the two processes ± 2 std, rows by their likelier one", xlabel="x", ylabel="y")
    heights = np.linspace(-3.5, 3.5, 281)
    density = np.stack([two.log_density(grid[:, None], np.full(len(grid), h)) for h in heights])
    axes[1].pcolormesh(grid, heights, np.exp(density), cmap="viridis", vmin=0.0, vmax=1.4, shading="auto")
    modes = two.modes(grid[:, None])
    points = np.array([(x, m) for x, values in zip(grid, modes, strict=True) for m in values[:2]])
    axes[1].plot(points[:, 0], points[:, 1], ".", color=RED, markersize=2)
    axes[1].set(title="the mixture's density of y, and its modes", xlabel="x", xlim=(-3, 3))
    return figure


def c15(report: Report) -> None:
    """Parameters of likelihoods and the order of a polynomial kernel, by evidence. [004 §6.1]"""
    runs, n = (2, 200) if report.quick else (10, 400)
    orders = range(1, 9)
    report.settings = (
        f"{n} rows on [-1, 1], {runs} data sets. Parameters: f = 2 sin 4x, RBF, 15 inducing inputs, "
        "FITC's evidence "
        "from a start four times off. Orders: f a polynomial of the order named, POL-k for k = 1 to "
        "8 with scale "
        "and variance learned, 12 inducing inputs, FITC."
    )
    cases = {
        "Gaussian variance": (
            Gaussian(0.1),
            "variance",
            lambda f, rng: f + np.sqrt(0.1) * rng.standard_normal(n),
        ),
        "Student-t scale": (StudentT(4.0, 0.2), "scale", lambda f, rng: f + 0.2 * rng.standard_t(4.0, n)),
        "negative binomial shape": (
            NegativeBinomial(5.0),
            "shape",
            lambda f, rng: rng.poisson(np.exp(f) * rng.gamma(5.0, 0.2, n)).astype(float),
        ),
    }
    Z, rows, far = np.linspace(-1, 1, 15)[:, None], [], {}
    for name, (truth, key, draw) in cases.items():
        value, learned = getattr(truth, key), []
        for run in range(runs):
            rng = report.rng(run)
            X = rng.uniform(-1, 1, (n, 1))
            y = draw(2.0 * np.sin(4.0 * X[:, 0]), rng)
            start = truth.with_parameters({key: 4.0 * value})
            best = fit(
                RBF(0.4, 2.0),
                Points(Z),
                "fitc",
                start,
                X,
                y,
                optimize="hyperparameters",
                fixed=("likelihood.df",) if "df" in truth.parameters else (),
                progress=False,
            )
            learned.append(best.noise if isinstance(best.noise, float) else getattr(best.noise, key))
        logs = np.log(learned) - np.log(value)
        far[name] = abs(np.mean(logs)) / max(np.std(logs, ddof=1) / np.sqrt(runs), 1e-12)
        rows.append((name, f"{value:g}", f"{np.exp(np.mean(logs)) * value:.3g}", f"{far[name]:.1f}"))
        found = (
            f"{np.exp(np.mean(logs)) * value:.3g} on average, {far[name]:.1f} standard errors away in the log"
        )
        report.claim(
            f"The evidence finds the {name}, {value:g}", "by gradient ascent, §6.1", found, far[name] < 3.0
        )
    report.table("Parameters by evidence", ("parameter", "truth", "learned", "standard errors away"), rows)
    draws = {
        "Gaussian": (Gaussian(0.04), lambda f, rng: f + 0.2 * rng.standard_normal(n)),
        "probit": (Probit(1.0), lambda f, rng: np.where(rng.random(n) < norm.cdf(f), 1.0, -1.0)),
        "Poisson": (Poisson(), lambda f, rng: rng.poisson(np.exp(f)).astype(float)),
    }
    counts, shown = {}, {}
    for name, (likelihood, draw) in draws.items():
        chosen, lines = [], []
        for run in range(runs):
            rng = report.rng(100 + run)
            X = rng.uniform(-1, 1, (n, 1))
            y = draw(3.0 * (4 * X[:, 0] ** 3 - 3 * X[:, 0]) * (0.5 if name == "Poisson" else 1.0), rng)
            basis = Points(np.linspace(-1, 1, 12)[:, None])
            values = [_order(k, basis, likelihood, X, y) for k in orders]
            chosen.append(orders[int(np.argmax(values))])
            lines.append(np.array(values) - max(values))
        counts[name], shown[name] = chosen, np.mean(lines, axis=0)
        below = np.median(np.array(lines)[:, :2].max(axis=1))
        found = (
            f"orders {', '.join(map(str, sorted(chosen)))}; orders below 3 are {-below:.0f} nats "
            "worse, median"
        )
        report.claim(
            f"The evidence finds that order 3 is needed ({name})",
            "an interesting direction, §6.1",
            found,
            np.median(chosen) in (3, 4) and min(chosen) >= 3,
        )
    report.table(
        "Mean log evidence below the best order's",
        ("likelihood", *(f"POL-{k}" for k in orders)),
        [(name, *(f"{v:.1f}" for v in line)) for name, line in shown.items()],
    )
    report.notes.append(
        "POL-k with a learned scale contains all lower orders, so that higher orders lose little."
    )
    report.values = {"orders": counts, "standard errors": far}
    figure, axes = panels(1, 6.0)
    for (name, line), colour in zip(shown.items(), (BLUE, RED, INK), strict=True):
        axes[0].plot(list(orders), np.minimum(-line, 60.0), "o-", color=colour, label=name)
    axes[0].set(xlabel="order of the polynomial kernel", ylabel="nats below the best order (cut at 60)")
    axes[0].legend(frameon=False)
    report.pictures["orders"] = figure


def _order(k: int, basis: Points, likelihood: Any, X: np.ndarray, y: np.ndarray) -> float:
    fixed = ("likelihood",) if likelihood.parameters and not isinstance(likelihood, Gaussian) else ()
    best = fit(
        Polynomial(k, 1.0, 1.0),
        basis,
        "fitc",
        likelihood,
        X,
        y,
        optimize="hyperparameters",
        fixed=fixed,
        progress=False,
        max_iterations=60,
    )
    return float(best.value)
