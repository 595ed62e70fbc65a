"""003 §10.2: the relevance vector machine's error bars, and what augmentation makes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from inducing.beside.relevance import RelevanceVectors, relevance_vectors
from inducing.inference.regression import condition
from inducing.metrics import nlpd
from inducing.model.kernels import RBF
from inducing.model.posterior import Marginals
from inducing.pictures.plots import BLUE, INK, RED, canvas, plain
from inducing.sources import datasets

from .report import Report

EDGE, NOISE = 3.0, 0.01
GAP = (0.5, 1.8)  # no data here
KERNEL = RBF(0.6)
METHODS = ("RVM", "RVM, healed", "exact GP")


def data(seed: int, n: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Noisy values of sinc on [-3, 3], none of them inside the gap."""
    X, y = datasets.sinc(2 * n, noise=NOISE, low=-EDGE, high=EDGE, rng=seed)
    outside = np.flatnonzero((X[:, 0] < GAP[0]) | (X[:, 0] > GAP[1]))[:n]
    return X[outside], y[outside]


def predictions(machine: RelevanceVectors, X: np.ndarray) -> dict[str, Marginals]:
    """Predictions of the machine, the healed one, and an exact GP of the same kernel, noise and far
    variance.
    """
    P = machine.problem
    gp = condition(
        RBF(KERNEL.lengthscale, machine.prior_variance), None, "exact", machine.noise, P.X, P.Y[:, 0]
    )
    return dict(
        zip(
            METHODS,
            (machine.predict(X), replace(machine, augment=True).predict(X), gp.predict(X)),
            strict=True,
        )
    )


def q3(report: Report) -> None:
    """Variance away from data."""
    draws = 2 if report.quick else 20
    report.settings = (
        f"sinc on [-3, 3] without {GAP}, n = 100, noise variance {NOISE}, learned with the precisions; RBF "
        f"functions of lengthscale {KERNEL.lengthscale} at the training inputs; a query's own function has "
        f"the mean square of y as its prior variance. Medians over {draws} draws. The exact GP has the same "
        "lengthscale, noise and far variance."
    )
    places = np.array([[0.0], [np.mean(GAP)], [EDGE + 0.5], [EDGE + 1.0], [EDGE + 2.0], [EDGE + 4.0]])
    variances, scores, sizes, rises = [], [], [], []
    for seed in report.seeds(draws):
        machine = relevance_vectors(KERNEL, *data(seed))
        test = datasets.sinc(400, noise=NOISE, low=-EDGE - 1.0, high=EDGE + 1.0, rng=1000 + seed)
        near, held_out = predictions(machine, places), predictions(machine, test[0])
        variances.append([near[name].variance / machine.prior_variance for name in METHODS])
        scores.append(
            [nlpd(test[1], held_out[name].mean, held_out[name].variance + machine.noise) for name in METHODS]
        )
        sizes.append(len(machine))
        rises.append(float(np.min(np.diff(machine.values))))
    middle, losses = np.median(variances, axis=0), np.median(scores, axis=0)  # (methods, places), (methods,)
    header = ("method", *(f"x = {x:g}" for x in places[:, 0]), "held-out NLPD on [-4, 4]")
    rows = [(name, *(f"{v:.2g}" for v in middle[i]), f"{losses[i]:.3f}") for i, name in enumerate(METHODS)]
    report.table(
        f"Variance of f over the mean square of y (x = {places[1, 0]:g} is the middle of the gap)",
        header,
        rows,
    )
    report.values = {
        "places": places[:, 0],
        "variance": middle,
        "nlpd": losses,
        "relevance_vectors": sizes,
        "draws": draws,
    }
    all_variances = np.array(variances)  # (draws, methods, places)
    rvm, healed, exact = (all_variances[:, i] for i in range(3))
    report.claim(
        "the RVM is sparse",
        "many precisions go to infinity",
        f"{np.median(sizes):g} of 100 functions stay, {max(sizes)} at most",
        max(sizes) <= 20,
    )
    report.claim("every step raises the evidence", "", f"by {min(rises):.0e} at least", min(rises) > 0)
    report.claim(
        "the RVM's variance shrinks away from the data",
        "unreasonable predictive variances",
        f"{middle[0, 2]:.1g} of y's mean square half a unit outside, {middle[0, 5]:.0e} four units outside",
        bool(np.all(np.diff(rvm[:, 2:], axis=1) < 0)),
    )
    report.claim(
        "augmented, it grows",
        "healed by augmentation",
        f"{', '.join(f'{v:.2g}' for v in middle[1, 2:])} at 0.5, 1, 2 and 4 units outside; "
        f"{', '.join(f'{v:.2g}' for v in middle[2, 2:])} with the exact GP",
        bool(np.all(np.diff(healed[:, 2:], axis=1) > -1e-9) and np.all(healed[:, 5] > 0.99)),
    )
    report.claim(
        "in a gap of the data too",
        "",
        f"{middle[1, 1]:.2g} against {middle[0, 1]:.2g} without and {middle[2, 1]:.2g} with the exact GP",
        bool(np.mean(healed[:, 1] > rvm[:, 1]) > 0.5),
    )
    report.claim(
        "healing improves the held-out density",
        "sparsity costs predictive distributions [Rasmussen & QC 2005]",
        f"NLPD {losses[1]:.2f} against {losses[0]:.2f}, {losses[2]:.2f} with the exact GP",
        bool(losses[1] < losses[0]),
    )
    report.notes.append(
        "A healed prediction costs O(nm) for each query in place of O(m²), and needs the data: the machine "
        "is then no longer sparse. The healed mean moves as well: at the edges the query's function fits "
        "what the machine left unexplained, and extrapolates it further than the exact GP does."
    )
    report.pictures["error_bars"] = _picture()


def _picture() -> Any:
    X, y = data(0)
    machine = relevance_vectors(KERNEL, X, y)
    grid = np.linspace(-EDGE - 2.5, EDGE + 2.5, 400)
    found = predictions(machine, grid[:, None])
    picture = canvas(12.0, 6.0)
    axes = picture.subplots(2, 3, sharex=True, height_ratios=(2, 1))
    for (above, below), (name, (mean, variance)) in zip(axes.T, found.items(), strict=True):
        plain(above), plain(below)
        bar = 2.0 * np.sqrt(variance + machine.noise)
        above.fill_between(grid, mean - bar, mean + bar, color=BLUE, alpha=0.16, linewidth=0)
        above.plot(X[:, 0], y, ".", color=INK, markersize=4, alpha=0.7, markeredgewidth=0)
        above.plot(grid, np.sinc(grid), color=INK, linestyle=":", linewidth=1)
        above.plot(grid, mean, color=BLUE, linewidth=2)
        if name != "exact GP":
            centers = machine.basis.parameters["Z"][:, 0]
            above.plot(centers, np.full(len(centers), -0.95), "x", color=RED)
        above.set_ylim(-1.05, 1.6)
        above.set_title(name)
        below.plot(grid, np.sqrt(variance), color=RED)
        below.set_ylim(0.0, 1.05 * np.sqrt(machine.prior_variance))
        below.set_ylabel("std of f")
    return picture
