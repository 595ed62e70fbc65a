"""Remarks of 003 that had no page: footnote 7, Laplace's method, augmentation, priors, figures 1-4."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.stats import norm

from inducing.beside.laplace import laplace
from inducing.inference.regression import condition, log_evidence_and_gradient
from inducing.model.bases import Points
from inducing.model.kernels import RBF
from inducing.model.likelihoods import Probit
from inducing.model.table import TABLE
from inducing.pictures.plots import BLUE, INK, RED, canvas

from .report import Report


def q5(report: Report) -> None:
    """Four remarks of 003, each with a paired test or a dense reference."""
    runs = 6 if report.quick else 40
    report.settings = (
        f"One input, f from the prior (RBF, lengthscale 1 on [-5, 5]), 100 rows, noise 0.04, {runs} "
        "draws; 10 inducing "
        "inputs among the rows; 1000 test rows on [-7, 7]. Labels for Laplace's method by a probit."
    )
    _footnote(report, runs)
    _laplace(report, runs)
    _budget(report, runs)
    _prior(report, runs)


def _draw(report: Report, run: int, n: int = 100) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = report.rng(run)
    X, Xs = rng.uniform(-5, 5, (n, 1)), np.sort(rng.uniform(-7, 7, (1000, 1)), axis=0)
    both = np.concatenate([X, Xs])
    K = RBF(1.0)(both, both) + 1e-8 * np.eye(len(both))
    f = np.linalg.cholesky(K) @ rng.standard_normal(len(both))
    return X, f[:n] + 0.2 * rng.standard_normal(n), Xs, f[n:] + 0.2 * rng.standard_normal(1000)


def _footnote(report: Report, runs: int) -> None:
    """SoR's mean with the variance of the subset of data. [003 footnote 7, Smola & Bartlett 2001]"""
    names = "SoR", "SoR's mean, SoD's variance", "DTC", "SoD"
    losses = np.zeros((4, runs))
    inside = np.zeros((4, runs))
    for run in range(runs):
        X, y, Xs, ys = _draw(report, run)
        chosen = report.rng(1000 + run).choice(len(X), 10, replace=False)
        basis, kernel = Points(X[chosen]), RBF(1.0)
        sor, dtc = (condition(kernel, basis, name, 0.04, X, y).predict(Xs) for name in ("sor", "dtc"))
        sod = condition(kernel, None, "exact", 0.04, X[chosen], y[chosen]).predict(Xs)
        for i, (mean, variance) in enumerate((sor, (sor.mean, sod.variance), dtc, sod)):
            std = np.sqrt(variance + 0.04)
            losses[i, run] = -norm.logpdf(ys, mean, std).mean()
            inside[i, run] = np.mean(np.abs(ys - mean) < 1.96 * std)
    cells = [(n, f"{losses[i].mean():.3f}", f"{100 * inside[i].mean():.1f} %") for i, n in enumerate(names)]
    report.table(
        "Negative log density a row, and coverage of 95 % intervals", ("method", "loss", "inside"), cells
    )
    better = losses[0] - losses[1]
    found = (
        f"loss {losses[0].mean():.2f} with SoR's own variance, {losses[1].mean():.2f} with SoD's, "
        f"lower in {int((better > 0).sum())} of {runs} draws"
    )
    report.claim(
        "SoD's variance mends SoR's",
        "footnote 7: Smola & Bartlett, wary, propose it",
        found,
        np.all(better > 0),
    )
    worse = losses[1] - losses[2]
    error = worse.std(ddof=1) / np.sqrt(runs)
    found = (
        f"loss above DTC's by {worse.mean():.3f} ± {error:.3f}; coverage "
        f"{100 * inside[1].mean():.1f} % against {100 * inside[2].mean():.1f} %"
    )
    report.claim(
        "… but DTC's is sharper", "§5: the same mean, a better variance", found, worse.mean() > 2 * error
    )


def _laplace(report: Report, runs: int) -> None:
    """Laplace's method and EP under FITC, by their distance to exact inference by sampling."""
    apart, losses = [], []
    for run in range(min(runs, 10)):
        X, y, Xs, ys = _draw(report, run)
        rng = report.rng(2000 + run)
        t, ts = (np.where(rng.random(len(v)) < norm.cdf(2 * v), 1.0, -1.0) for v in (y, ys))
        kernel, basis, probit = RBF(1.0, 4.0), Points(np.linspace(-5, 5, 12)[:, None]), Probit(1.0)
        pair = laplace(kernel, basis, "fitc", probit, X, t), condition(kernel, basis, "fitc", probit, X, t)
        losses.append([-np.mean(probit.log_average(ts, *post.predict(Xs))) for post in pair])
        exact = ais(kernel, X, t, rng, 400 if report.quick else 1000)
        dense = [
            laplace(kernel, None, "exact", probit, X, t),
            condition(kernel, Points(X), "fitc", probit, X, t),
        ]
        apart.append([abs(post.log_evidence - exact) for post in dense])
    gap, loss = np.array(apart), np.array(losses)
    nearer = gap[:, 1] - gap[:, 0]
    error = nearer.std(ddof=1) / np.sqrt(len(nearer))
    found = (
        f"log evidence off by {gap[:, 0].mean():.2f} and {gap[:, 1].mean():.2f} nats (annealed "
        f"sampling; difference {nearer.mean():+.3f} ± {error:.3f}); EP nearer in "
        f"{int(np.sum(nearer < 0))} of {len(gap)} draws"
    )
    report.claim(
        "Laplace's method fits the framework, and EP is nearer to the truth",
        "§9 names it as an option",
        found,
        True if nearer.mean() < -2 * error else False if nearer.mean() > 2 * error else None,
    )
    found = f"log loss {loss[:, 0].mean():.4f} (Laplace), {loss[:, 1].mean():.4f} (EP) a test row"
    report.claim("… their predictions under FITC", "–", found, None)


def ais(
    kernel: RBF, X: np.ndarray, y: np.ndarray, rng: np.random.Generator, steps: int, chains: int = 60
) -> float:
    """log ∫ N(f; 0, K) Π Φ(y f) df by annealed importance sampling with elliptical slices. [Neal 2001]"""
    L = np.linalg.cholesky(kernel(X, X) + 1e-8 * np.eye(len(X)))
    f = L @ rng.standard_normal((len(X), chains))
    log_p, weight = norm.logcdf(y[:, None] * f).sum(axis=0), np.zeros(chains)
    powers = np.linspace(0, 1, steps + 1) ** 4
    for low, high in zip(powers[:-1], powers[1:], strict=True):
        weight += (high - low) * log_p
        nu, height = L @ rng.standard_normal((len(X), chains)), high * log_p + np.log(rng.random(chains))
        angle = rng.uniform(0, 2 * np.pi, chains)
        least, most, open_ = angle - 2 * np.pi, angle.copy(), np.ones(chains, dtype=bool)
        while open_.any():
            new = f * np.cos(angle) + nu * np.sin(angle)
            value = norm.logcdf(y[:, None] * new).sum(axis=0)
            accepted = open_ & (high * value > height)
            f[:, accepted], log_p[accepted] = new[:, accepted], value[accepted]
            open_ &= ~accepted
            least, most = np.where(angle < 0, angle, least), np.where(angle < 0, most, angle)
            angle = np.where(open_, rng.uniform(least, most), 0.0)
    return float(np.logaddexp.reduce(weight) - np.log(chains))


def _budget(report: Report, runs: int) -> None:
    """Augmentation makes m + 1 of m functions: against m + 1 fixed ones, and by time. [003 §8.1]"""
    losses = np.zeros((3, runs))
    for run in range(runs):
        X, y, Xs, ys = _draw(report, run)
        rng, kernel = report.rng(1000 + run), RBF(1.0)
        chosen = rng.choice(len(X), 22, replace=False)
        few, more = Points(X[chosen[:16]]), Points(X[chosen])
        found = (
            condition(kernel, few, "asor", 0.04, X, y).predict(Xs),
            condition(kernel, more, "dtc", 0.04, X, y).predict(Xs),
            condition(kernel, few, "fitc", 0.04, X, y).predict(Xs),
        )
        for i, (mean, variance) in enumerate(found):
            losses[i, run] = -norm.logpdf(ys, mean, np.sqrt(variance + 0.04)).mean()
    # a query costs (m + 1) n more with augmentation: as many flops as a good third more functions
    gap = losses[0] - losses[1]
    error = gap.std(ddof=1) / np.sqrt(runs)
    found_text = (
        f"loss {losses[0].mean():.3f} (16 and the query), {losses[1].mean():.3f} (DTC with "
        f"22): difference {gap.mean():+.3f} ± {error:.3f}"
    )
    holds = True if gap.mean() < -2 * error else False if gap.mean() > 2 * error else None
    report.claim(
        "On a budget of multiplications augmentation is worth its price",
        "computational cost not discussed, §8.1",
        found_text,
        holds,
    )


def _prior(report: Report, runs: int) -> None:
    """A Gaussian prior on the inducing inputs, N(0, 3²), when FITC's evidence moves them. [003 §9]"""
    runs, losses, where = min(runs, 12), [], []
    for run in range(runs):
        X, y, Xs, ys = _draw(report, run, 40)
        Z = X[report.rng(1000 + run).choice(len(X), 10, replace=False)]
        line, rows = [], [_row_losses(Z, X, y, Xs, ys)]
        for width in (np.inf, 3.0, 6.0):
            best = minimize(
                _penalised, Z.ravel(), (X, y, width), jac=True, method="L-BFGS-B", options={"maxiter": 200}
            )
            rows.append(_row_losses(best.x[:, None], X, y, Xs, ys))
            line.append((rows[-1].mean(), np.max(np.abs(best.x))))
        losses.append(line)
        outer = np.abs(Xs[:, 0]) > 4.0
        where.append([rows[0].mean(), np.mean((rows[2] - rows[1]) * outer), outer.mean()])
    values = np.array(losses)
    for i, width in ((1, 3), (2, 6)):
        gap = values[:, i, 0] - values[:, 0, 0]
        error = gap.std(ddof=1) / np.sqrt(runs)
        found = (
            f"loss {values[:, 0, 0].mean():.3f} without, {values[:, i, 0].mean():.3f} with "
            f"({gap.mean():+.3f} ± "
            f"{error:.3f}); farthest input {values[:, 0, 1].max():.1f} and {values[:, i, 1].max():.1f} from 0"
        )
        report.claim(
            f"A prior N(0, {width}²) on the inducing inputs guards against over-fitting",
            "'we could use priors', §9",
            found,
            True if gap.mean() < -2 * error else False if gap.mean() > 2 * error else None,
        )
    before, outside, rows_outside = np.mean(where, axis=0)
    share = outside / (values[:, 1, 0] - values[:, 0, 0]).mean()
    report.why(
        "A prior N(0,",
        "there is no over-fitting to guard against, and the prior pulls inputs from the ends of the data",
        f"without it learning lowers the loss of new rows from {before:.3f} to {values[:, 0, 0].mean():.3f}; "
        f"{share:.0%} of what N(0, 3²) costs is beyond |x| = 4, where {rows_outside:.0%} of them are",
        bool(before > values[:, 0, 0].mean() and share > rows_outside),
    )
    report.notes.append(
        "With ten inputs and hyperparameters held, FITC's evidence does not over-fit here, so that a "
        "prior can only pull "
        "the inputs from where rows are (on [-5, 5]); the wider one pulls less and loses less."
    )


def _row_losses(Z: np.ndarray, X: np.ndarray, y: np.ndarray, Xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """Negative log density of each test row under FITC on these inputs."""
    mean, variance = condition(RBF(1.0), Points(Z), "fitc", 0.04, X, y).predict(Xs)
    return -norm.logpdf(ys, mean, np.sqrt(variance + 0.04))


def _penalised(z: np.ndarray, X: np.ndarray, y: np.ndarray, width: float) -> tuple[float, np.ndarray]:
    value, gradient = log_evidence_and_gradient(RBF(1.0), Points(z[:, None]), "fitc", 0.04, X, y)
    return -value + 0.5 * float(np.sum((z / width) ** 2)), -np.ravel(gradient["basis.Z"]) + z / width**2


def q6(report: Report) -> None:
    """The graphical models of 003, figures 1 to 4, drawn from the table of approximations."""
    report.settings = (
        "Drawn by code: edges follow from what a row of the table keeps of R, and its test conditional."
    )
    graphs = {name: edges(name) for name in ("exact", "sor", "dtc", "fitc", "fic", "pitc")}
    figure = canvas(13.0, 7.6)
    for ax, (name, links) in zip(np.ravel(figure.subplots(2, 3)), graphs.items(), strict=True):
        _draw_graph(ax, name, links)
    report.pictures["graphs"] = figure
    full = {(a, b) for a in ("f1", "f2", "f3", "f*") for b in ("f1", "f2", "f3", "f*") if a < b}
    known = {
        "exact": ("Fig. 1: all f and f* fully connected", full <= graphs["exact"]),
        "fitc": ("Fig. 2 right: f joined to u alone, one by one", not full & graphs["fitc"]),
        "sor": ("Fig. 3: f and f* are functions of u", not full & graphs["sor"]),
        "pitc": ("Fig. 4: f joined inside blocks", full & graphs["pitc"] == {("f1", "f2")}),
    }
    for name, (text, holds) in known.items():
        links = ", ".join("-".join(e) for e in sorted(graphs[name] & full)) or "none"
        report.claim(f"{name}: {text}", "Figs 1-4", f"edges among f: {links}", holds)
    report.values = {name: sorted(map(list, links)) for name, links in graphs.items()}


def edges(name: str, blocks: dict[str, int] | None = None) -> set[tuple[str, str]]:
    """Undirected edges between u, f1, f2 (one block), f3 and f*, by the table's row."""
    functions, blocks = ("f1", "f2", "f3", "f*"), blocks or {"f1": 0, "f2": 0, "f3": 1, "f*": 2}
    links = set() if name == "exact" else {("u", f) for f in functions}
    for i, a in enumerate(functions):
        for b in functions[i + 1 :]:
            a_, b_ = sorted((a, b))
            keeps = "everything" if name == "exact" else TABLE[name].keeps
            if keeps == "everything" or (keeps == "blocks" and blocks[a] == blocks[b]):
                links.add((a_, b_))
    return links


def _draw_graph(ax: Any, name: str, links: set[tuple[str, str]]) -> None:
    places = {"u": (1.5, 2.0), "f1": (0.0, 1.0), "f2": (1.0, 1.0), "f3": (2.0, 1.0), "f*": (3.0, 1.0)}
    deterministic = name != "exact" and TABLE[name].keeps == "nothing"
    for a, b in sorted(links):
        (x0, y0), (x1, y1) = places[a], places[b]
        sure = a == "u" and (deterministic if b != "f*" else TABLE[name].test == "deterministic")
        bend = 0.0 if a == "u" or abs(x0 - x1) <= 1 else -0.35
        ax.annotate(
            "",
            (x1, y1),
            (x0, y0),
            arrowprops={
                "arrowstyle": "-",
                "color": RED if sure else INK,
                "linewidth": 1.4,
                "connectionstyle": f"arc3,rad={bend}",
                "shrinkA": 14,
                "shrinkB": 14,
            },
        )
    for label, (x, y) in places.items():
        if label == "u" and name == "exact":
            continue
        ax.text(
            x,
            y,
            label,
            ha="center",
            va="center",
            fontsize=12,
            bbox={
                "boxstyle": "circle,pad=0.35",
                "facecolor": "white",
                "edgecolor": BLUE if label == "u" else INK,
            },
        )
        if label.startswith("f") and label != "f*":
            ax.annotate("", (x, 0.32), (x, y), arrowprops={"arrowstyle": "->", "color": INK, "shrinkA": 14})
            ax.text(x, 0.18, "y" + label[1:], ha="center", va="center", fontsize=11)
    ax.text(1.5, -0.2, "red: deterministic" if any_red(name) else "", ha="center", color=RED, fontsize=9)
    ax.set(title=name, xlim=(-0.5, 3.5), ylim=(-0.3, 2.4))
    ax.axis("off")


def any_red(name: str) -> bool:
    return name != "exact" and (TABLE[name].keeps == "nothing" or TABLE[name].test == "deterministic")
