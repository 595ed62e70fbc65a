"""003 Fig 5: the approximations side by side on one toy; what fails beside the table; why not to maximise the
posterior.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from inducing.beside import augmentation, committee
from inducing.beside.local import neighbours
from inducing.errors import NegativeVarianceWarning
from inducing.inference import selection
from inducing.inference.regression import condition
from inducing.metrics import nlpd
from inducing.model.bases import Points
from inducing.model.kernels import RBF
from inducing.model.posterior import Marginals, Posterior
from inducing.pictures.plots import BLUE, INK, RED
from inducing.sources import datasets

from .report import Report

PANELS = {"sod": "SoD", "sor": "SoR", "dtc": "DTC", "asor": "ASoR = ADTC", "fitc": "FITC", "pitc": "PITC"}
MORE = {"afitc": "augmented FITC", "apitc": "augmented PITC"}  # which the paper has not compared
EDGE = 3.0  # of the data


@dataclass(frozen=True, eq=False)
class Toy:
    """100 noisy values of sinc, 10 of their inputs as the basis, and a kernel whose lengthscale is slightly
    short (0.6, where the evidence is largest at about 0.75).
    """

    X: np.ndarray  # (n, 1)
    y: np.ndarray
    basis: Points
    kernel: RBF
    noise: float
    labels: np.ndarray  # (n,), blocks of ten neighbours
    grid: np.ndarray  # (g, 1), inside the data

    def predict(self, name: str, X: np.ndarray) -> Marginals:
        blocks = self.labels if name.endswith("pitc") else None
        make, name = (augmentation.condition, name[1:]) if name in MORE else (condition, name)
        return make(self.kernel, self.basis, name, self.noise, self.X, self.y, blocks=blocks).predict(X)


def toy(seed: int = 0, n: int = 100, m: int = 10, lengthscale: float = 0.6) -> Toy:
    X, y = datasets.sinc(n, noise=0.01, low=-EDGE, high=EDGE, rng=seed)
    rows = np.random.default_rng(seed).permutation(n)[:m]
    labels = np.argsort(np.argsort(X[:, 0])) // 10
    return Toy(
        X, y, Points(X[rows]), RBF(lengthscale, 0.2), 0.01, labels, np.linspace(-EDGE, EDGE, 100)[:, None]
    )


def distance(exact: Marginals, found: Marginals) -> float:
    """Mean KL(exact || found) over the marginals."""
    ratio = exact.variance / found.variance
    return float(
        np.mean(0.5 * ((exact.mean - found.mean) ** 2 / found.variance + ratio - 1.0 - np.log(ratio)))
    )


def q1(report: Report) -> None:
    """Figure 5, repeated over draws of the data and the basis."""
    draws = 3 if report.quick else 50
    report.settings = (
        "sinc on [-3, 3], n = 100, noise variance 0.01; RBF kernel of lengthscale 0.6 and variance 0.2; 10 "
        "inducing inputs drawn from the training inputs; PITC has blocks of ten neighbours. Numbers are "
        f"medians over {draws} draws of data and basis; distances are taken inside the data."
    )
    names = [*PANELS, *MORE]
    scores = np.array([_scores(toy(seed), names) for seed in report.seeds(draws)])  # (draws, names, 4)
    kl, error, width, far = (dict(zip(names, scores[:, :, i].T, strict=True)) for i in range(4))
    middle = np.median(scores, axis=0)
    header = (
        "method",
        "KL from the exact GP",
        "RMSE from its mean",
        "std / its std",
        "variance / prior's, one unit outside",
    )
    titles = PANELS | MORE
    cells = [
        (titles[name], *(f"{value:.3g}" for value in row)) for name, row in zip(names, middle, strict=True)
    ]
    report.table("Distance from the exact GP", header, cells)
    report.values = {"scores": {name: middle[i].tolist() for i, name in enumerate(names)}, "draws": draws}

    def share(holds: Any) -> str:
        return f"in {int(np.sum(holds))} of {draws} draws"

    wide = width["sod"] > 1.0
    report.claim(
        "SoD's predictive distribution is wide",
        "Fig 5, §3",
        f"std {middle[0, 2]:.2g} times the exact GP's, wider {share(wide)}",
        bool(np.all(wide)),
    )
    sure = far["sor"] < 0.5 * far["dtc"]
    report.claim(
        "SoR is over-confident away from the basis",
        "Fig 5, §4",
        f"variance there {middle[1, 3]:.2g} of the prior's, DTC's {middle[2, 3]:.2g}",
        bool(np.all(sure)),
    )
    t = toy(report.seeds(1)[0])
    same = float(np.max(np.abs(t.predict("sor", t.grid).mean - t.predict("dtc", t.grid).mean)))
    report.claim("SoR and DTC have the same mean", "Remark 5", f"to {same:.0e}", same < 1e-8)
    better = (kl["asor"] < kl["dtc"]) & (error["asor"] < error["dtc"])
    report.claim(
        "augmented DTC is superior to DTC in mean and variance",
        "Fig 5, §8.1",
        f"KL {middle[3, 0]:.2g} against {middle[2, 0]:.2g}, mean and KL better {share(better)}",
        bool(np.mean(better) > 0.5),
    )
    ranked = (kl["pitc"] < kl["fitc"]) & (kl["fitc"] < kl["dtc"]) & (kl["dtc"] < kl["sor"])
    order = ", ".join(f"{middle[i, 0]:.2g}" for i in (5, 4, 2, 1))
    report.claim(
        "PITC, FITC, DTC, SoR: closest first",
        'the ranking of §§4-7, which practice "may not always follow"',
        f"KL {order}; that order {share(ranked)}",
        bool(np.mean(ranked) > 0.5),
    )
    whole = (kl["apitc"] < kl["afitc"]) & (kl["afitc"] < kl["asor"])
    report.why(
        "PITC, FITC, DTC, SoR",
        "a query sees f through u alone, whatever training keeps of R",
        f"with the query's own f among the inducing ones PITC, FITC, DTC have KL {middle[7, 0]:.2g}, "
        f"{middle[6, 0]:.2g}, {middle[3, 0]:.2g}: the paper's order {share(whole)}",
        bool(np.mean(whole) > 0.5),
    )
    helped = (kl["afitc"] < kl["fitc"]) & (kl["apitc"] < kl["pitc"])
    report.claim(
        "augmentation against FITC and PITC",
        '"hasn\'t been compared", §8.1',
        f"KL falls from {middle[4, 0]:.2g} to {middle[6, 0]:.2g} (FITC) and from {middle[5, 0]:.2g} to "
        f"{middle[7, 0]:.2g} (PITC), both {share(helped)}",
        None,
    )
    report.notes += [
        "With inducing inputs taken from the training inputs and hyperparameters given, keeping more of R "
        "in training (FITC, PITC) does not bring this toy's predictions closer to the exact GP's than DTC's "
        "are: what is lost is lost because f\\* sees f through u alone, and only augmentation changes that.",
        "The augmented rows cost O(nm) for each query (SoR, DTC, VFE; PITC with blocks of about m rows) or "
        "O(nm²) (FITC): see Q2 for times.",
    ]
    report.pictures["panels"] = _panels(t)
    report.pictures["failures"] = _failures(report, t)
    report.pictures["posterior_maximum"] = _posterior_maximum(report)


def _scores(t: Toy, names: list[str]) -> list[tuple[float, float, float, float]]:
    exact = condition(t.kernel, None, "exact", t.noise, t.X, t.y).predict(t.grid)
    outside = np.array([[-EDGE - 1.0], [EDGE + 1.0]])
    rows = []
    for name in names:
        found, far = t.predict(name, t.grid), t.predict(name, outside)
        error = float(np.sqrt(np.mean((exact.mean - found.mean) ** 2)))
        width = float(np.mean(np.sqrt(found.variance / exact.variance)))
        rows.append((distance(exact, found), error, width, float(np.mean(far.variance)) / t.kernel.variance))
    return rows


def _axes(rows: int, columns: int, height: float) -> tuple[Any, np.ndarray]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, height), layout="constrained")
    axes = figure.subplots(rows, columns)
    for ax in np.ravel(axes):
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _panels(t: Toy) -> Any:
    figure, axes = _axes(3, 2, 9.5)
    grid = np.linspace(-EDGE - 1.2, EDGE + 1.2, 300)[:, None]
    exact = condition(t.kernel, None, "exact", t.noise, t.X, t.y).predict(grid)
    chosen = [int(np.flatnonzero(t.X[:, 0] == z)[0]) for z in t.basis.Z[:, 0]]
    for ax, (name, title) in zip(axes.ravel(), PANELS.items(), strict=True):
        mean, variance = t.predict(name, grid)
        bar = 1.96 * np.sqrt(variance + t.noise)
        ax.fill_between(grid[:, 0], mean - bar, mean + bar, color=BLUE, alpha=0.15, linewidth=0)
        for sign in (-1, 1):
            ax.plot(
                grid[:, 0],
                exact.mean + sign * 1.96 * np.sqrt(exact.variance + t.noise),
                ":",
                color=INK,
                linewidth=1,
            )
        ax.plot(t.X[:, 0], t.y, ".", color=INK, markersize=3, alpha=0.6)
        ax.plot(t.X[chosen, 0], t.y[chosen], "x", color=RED, markersize=7, markeredgewidth=1.6)
        ax.plot(grid[:, 0], mean, color=BLUE, linewidth=1.8)
        ax.set(title=title, xlim=(grid[0, 0], grid[-1, 0]), ylim=(-1.3, 1.6))
    figure.suptitle(
        "mean and 95 % of a new observation; dotted: the exact GP's; crosses: inducing inputs and their "
        "targets"
    )
    return figure


def _failures(report: Report, t: Toy) -> Any:
    """Four pictures of what the methods beside the table get wrong."""
    figure, axes = _axes(2, 2, 7.5)
    grid = np.linspace(-EDGE - 3.0, EDGE + 3.0, 600)[:, None]
    x, k = grid[:, 0], t.kernel.variance
    exact = condition(t.kernel, None, "exact", t.noise, t.X, t.y)

    ax = axes[0, 0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NegativeVarianceWarning)
        variance = condition(t.kernel, t.basis, "nystrom", t.noise, t.X, t.y).predict(grid).variance
    below = variance < 0
    ax.plot(x, exact.predict(grid).variance / k, ":", color=INK, label="exact GP")
    ax.plot(x, variance / k, color=BLUE, label="Nyström")
    ax.fill_between(
        x, 0, np.where(below, variance / k, 0), color=RED, alpha=0.25, linewidth=0, label="negative"
    )
    ax.set(
        title=f"Nyström: {below.sum()} of {len(x)} variances are negative",
        ylabel="variance / prior's",
        yscale="symlog",
    )
    report.claim(
        "Nyström's predictive variance can be negative",
        "§10.1",
        f"{below.sum()} of {len(x)} queries, and the warning counts them: "
        f'"{caught[0].message if caught else ""}"',
        bool(below.any() and caught),
    )

    ax = axes[0, 1]
    for name, style in (("poe", "-"), ("gpoe", "--"), ("bcm", "-"), ("rbcm", "-.")):
        machine = committee.condition(t.kernel, None, name, t.noise, t.X, t.y, blocks=t.labels, chunk=1)
        std = np.sqrt(machine.predict(grid).variance / k)
        ax.plot(
            x, std, style, color=RED if name == "poe" else BLUE, alpha=0.4 if name == "bcm" else 1, label=name
        )
    ax.plot(x, np.sqrt(exact.predict(grid).variance / k), ":", color=INK, label="exact GP")
    ax.set(title="Ten experts, each query alone: PoE forgets the prior", ylabel="std / prior's")

    ax = axes[1, 0]
    machine = committee.condition(t.kernel, None, "bcm", t.noise, t.X, t.y, blocks=t.labels)
    asor = augmentation.condition(t.kernel, t.basis, "sor", t.noise, t.X, t.y)
    others = np.linspace(-EDGE, EDGE, 120)
    pairs = [np.array([[0.3], [other]]) for other in others]
    ax.plot(others, [machine.predict(pair).variance[0] / k for pair in pairs], color=BLUE, label="BCM")
    ax.plot(
        others,
        [asor.jointly(pair).predict(pair).variance[0] / k for pair in pairs],
        color=RED,
        label="ASoR, jointly",
    )
    ax.axhline(asor.predict(pairs[0]).variance[0] / k, color=RED, linestyle="--", label="ASoR, one at a time")
    ax.axhline(exact.predict(pairs[0]).variance[0] / k, color=INK, linestyle=":", label="exact GP")
    ax.set(
        title="Transduction: the variance at 0.3, asked with …",
        xlabel="another query",
        ylabel="variance / prior's",
    )

    ax = axes[1, 1]
    local = neighbours(t.kernel, t.noise, t.X, t.y, size=5).predict(grid)
    jump = float(np.max(np.abs(np.diff(local.mean))))
    ax.plot(t.X[:, 0], t.y, ".", color=INK, markersize=3, alpha=0.5)
    ax.plot(x, exact.predict(grid).mean, ":", color=INK, label="exact GP")
    ax.plot(x, local.mean, color=BLUE, label="5 nearest rows", drawstyle="steps-mid")
    ax.set(title=f"Local subsets: the mean jumps, by up to {jump:.2f}", xlim=(-EDGE - 0.5, EDGE + 0.5))
    for ax in axes.ravel():
        ax.legend(frameon=False, fontsize=8)
    return figure


def _posterior_maximum(report: Report) -> Any:
    """A lengthscale chosen by the posterior's maximum, -½yᵀ(Q + Σ)⁻¹y, against one chosen by the evidence.
    [003 §9]

    The basis is chosen greedily by the same posterior at each lengthscale, as Smola and Bartlett do.
    """
    lengthscales = np.geomspace(0.1, 1.6, 7 if report.quick else 25)
    draws = 2 if report.quick else 10
    curves = np.zeros((draws, len(lengthscales), 3))
    for draw, seed in enumerate(report.seeds(draws)):
        t = toy(seed, n=60)
        X, y = datasets.sinc(400, noise=t.noise, low=-EDGE, high=EDGE, rng=1000 + seed)
        for i, lengthscale in enumerate(lengthscales):
            kernel = replace(t.kernel, lengthscale=lengthscale)
            Z = selection.smola_bartlett(t.X, 30, 0, kernel=kernel, noise=t.noise, y=t.y)
            post = condition(kernel, Points(Z), "dtc", t.noise, t.X, t.y)
            assert isinstance(post, Posterior)
            mean, variance = post.predict(X)
            best = -0.5 * (np.sum((t.y - post.mean(t.X)) ** 2) / t.noise + np.sum(post.w**2))
            curves[draw, i] = best, post.log_evidence, nlpd(y, mean, variance + t.noise)
    by_posterior, by_evidence = curves[:, :, 0].argmax(axis=1), curves[:, :, 1].argmax(axis=1)
    chosen = lengthscales[by_posterior], lengthscales[by_evidence]
    each = np.arange(draws)
    loss = curves[each, by_posterior, 2], curves[each, by_evidence, 2]
    report.claim(
        "maximising the effective posterior instead of the evidence can over-fit",
        "§9",
        f"lengthscale {np.median(chosen[0]):.2f} against {np.median(chosen[1]):.2f}; held-out negative log "
        f"density {np.median(loss[0]):.3f} against {np.median(loss[1]):.3f}, worse in "
        f"{np.sum(loss[0] > loss[1])} of {draws}",
        bool(np.all(loss[0] > loss[1])),
    )
    report.values["posterior_maximum"] = {"lengthscales": lengthscales, "curves": curves.mean(axis=0)}

    figure, axes = _axes(1, 2, 4.0)
    rescaled = curves[0, :, :2] - curves[0, :, :2].max(axis=0)
    axes[0].plot(lengthscales, rescaled[:, 0], color=RED, label="maximum of the log posterior")
    axes[0].plot(lengthscales, rescaled[:, 1], color=BLUE, label="log evidence")
    axes[0].set(xscale="log", xlabel="lengthscale", ylabel="below its largest value", ylim=(-60, 4))
    other = axes[0].twinx()
    other.plot(lengthscales, curves[0, :, 2], ":", color=INK)
    other.set(ylabel="held-out negative log density (dotted)", ylim=(-0.9, 0.2))
    axes[0].legend(frameon=False, loc="lower center", fontsize=8)
    t = toy(0, n=60)
    grid = np.linspace(-EDGE, EDGE, 400)[:, None]
    for i, color, label in (
        (by_posterior[0], RED, "by the posterior"),
        (by_evidence[0], BLUE, "by the evidence"),
    ):
        kernel = replace(t.kernel, lengthscale=lengthscales[i])
        Z = selection.smola_bartlett(t.X, 30, 0, kernel=kernel, noise=t.noise, y=t.y)
        mean = condition(kernel, Points(Z), "dtc", t.noise, t.X, t.y).predict(grid).mean
        axes[1].plot(grid[:, 0], mean, color=color, label=f"{label}: {lengthscales[i]:.2f}")
    axes[1].plot(t.X[:, 0], t.y, ".", color=INK, markersize=4, alpha=0.6)
    axes[1].plot(grid[:, 0], np.sinc(grid[:, 0]), ":", color=INK)
    axes[1].legend(frameon=False, fontsize=8)
    return figure
