"""Claims of 000 and 001 that had no page: random starts, -basis and -full, interleaving, chunks, labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from inducing import metrics
from inducing.inference import selection
from inducing.inference.regression import condition, log_evidence, log_evidence_and_gradient
from inducing.learning.fitting import Fit, fit
from inducing.model.bases import Multiscale, Points
from inducing.model.kernels import RBF
from inducing.model.likelihoods import Probit
from inducing.pictures.plots import BLUE, INK, RED
from inducing.sources import datasets

from .csato import panels
from .report import Report


@dataclass(frozen=True)
class Rows:
    """Standardised training and test rows, the first so many of a random order."""

    X: np.ndarray
    y: np.ndarray
    Xs: np.ndarray
    ys: np.ndarray

    def smse(self, found: Fit | Any) -> float:
        post = found.posterior if isinstance(found, Fit) else found
        return metrics.smse(self.ys, post.mean(self.Xs), self.y)


def rows_of(name: str, n: int, rng: np.random.Generator) -> Rows:
    data = datasets.load(name)
    some = rng.permutation(len(data.X_train))[:n]
    X, y = data.X_train[some], data.y_train[some]
    Xs, ys = data.X_test[:4000], data.y_test[:4000]
    shift, scale, m, s = X.mean(0), X.std(0), y.mean(), y.std()
    return Rows((X - shift) / scale, (y - m) / s, (Xs - shift) / scale, (ys - m) / s)


def w6(report: Report) -> None:
    """Random starts of vsgp, and -basis against -full on pumadyn. [000 §5]"""
    n, iterations, starts = (600, 40, 3) if report.quick else (2000, 200, 8)
    m = 25
    report.settings = (
        f"kin-40k and pumadyn-32nm, {n} random training rows, up to 4000 test rows; {iterations} "
        "iterations in "
        f"each stage; {starts} starts. Informed: k-means, spgp first, then free widths; random: "
        "centres from the "
        "inputs' own normal, widths and lengthscales from log-normals, all free at once for as many "
        "iterations."
    )
    rows, ratios, evidences = rows_of("kin40k", n, report.rng()), [], []
    d = rows.X.shape[1]
    options: dict[str, Any] = dict(progress=False, max_iterations=iterations)
    for k in range(starts):
        rng = report.rng(100 + k)
        centres = selection.kmeans(rows.X, m, rng)
        first = fit(RBF(np.full(d, np.sqrt(d))), Points(centres), "fitc", 0.1, rows.X, rows.y, **options)
        start = Multiscale(first.basis.Z, np.broadcast_to(first.kernel.lengthscale, (m, d)))
        informed = fit(first.kernel, start, "fitc", first.noise, rows.X, rows.y, **options)
        scale = np.sqrt(d) * np.exp(0.5 * rng.standard_normal(d))
        widths = scale * np.exp(np.abs(0.5 * rng.standard_normal((m, d))))
        random = Multiscale(rng.standard_normal((m, d)), widths)
        free = fit(
            RBF(scale), random, "fitc", 0.1, rows.X, rows.y, progress=False, max_iterations=2 * iterations
        )
        ratios.append(rows.smse(free) / rows.smse(informed))
        evidences.append(free.value - informed.value)
    worse = int(np.sum(np.array(evidences) < 0))
    found = (
        f"evidence lower in {worse} of {starts} starts (median {np.median(evidences):+.0f} nats), "
        f"error {np.median(ratios):.2f} times (median)"
    )
    report.claim(
        "Random starts of vsgp end in inferior optima", "tended to, §5", found, worse >= 0.75 * starts
    )
    _basis_and_full(report, n, iterations)
    report.values |= {"error ratio": ratios, "evidence gap": evidences}
    figure, axes = panels(1, 6.0)
    axes[0].scatter(evidences, ratios, color=BLUE)
    axes[0].axhline(1.0, color=INK, linewidth=0.8)
    axes[0].axvline(0.0, color=INK, linewidth=0.8)
    axes[0].set(xlabel="log evidence, random less informed start", ylabel="error, random over informed")
    report.pictures["starts"] = figure


def _basis_and_full(report: Report, n: int, iterations: int) -> None:
    """On pumadyn hyperparameters of an exact GP, held, against learned ones; both kinds of basis."""
    rows = rows_of("pumadyn32nm", n, report.rng(1))
    d, options = rows.X.shape[1], dict(progress=False, max_iterations=iterations)
    some = slice(0, min(1024, n))
    exact = fit(RBF(np.full(d, np.sqrt(d))), None, "exact", 0.1, rows.X[some], rows.y[some], **options)
    cells, apart = [], []
    for m in (25, 50):
        Z = selection.kmeans(rows.X, m, report.rng(2))
        bases = {"spgp": Points(Z), "vsgp": Multiscale(Z, np.broadcast_to(exact.kernel.lengthscale, (m, d)))}
        for name, basis in bases.items():
            given: tuple[Any, ...] = exact.kernel, basis, "fitc", exact.noise, rows.X, rows.y
            held, full = (rows.smse(fit(*given, optimize=what, **options)) for what in ("basis", "all"))
            apart.append(held / full)
            cells.append((f"{name}, m = {m}", f"{held:.4f}", f"{full:.4f}"))
    report.table("pumadyn-32nm, SMSE", ("method", "-basis", "-full"), cells)
    found = f"error of -basis {min(apart):.3f} to {max(apart):.3f} times that of -full"
    report.claim(
        "On pumadyn -basis and -full are practically identical",
        "practically identical, §5",
        found,
        0.97 < min(apart) and max(apart) < 1.03,
    )


def s7(report: Report) -> None:
    """Interleaved selection under PLV's evidence, chunks and stochastic gradients, labels. [001 fn 2, §5]"""
    n, m, iterations, repeats = (600, 40, 40, 2) if report.quick else (2000, 100, 160, 5)
    report.settings = (
        f"kin-40k, {n} random rows, up to 4000 test rows, m = {m}, {repeats} repeats; every way has "
        f"about {iterations} "
        "passes over the rows (gradients on a tenth of the rows count a tenth)."
    )
    _interleaved(report, n, m, iterations, repeats)
    _chunks(report, n, m, iterations, repeats)
    _labels(report, n, m, iterations, repeats)


def _start(rows: Rows) -> tuple[RBF, float]:
    d = rows.X.shape[1]
    return RBF(np.full(d, np.sqrt(d))), 0.1


def _interleaved(report: Report, n: int, m: int, iterations: int, repeats: int) -> None:
    """Eight turns of selecting an active set by information gain and learning hyperparameters on it."""
    table, crossed = np.zeros((3, repeats)), np.zeros((2, repeats))
    for r in range(repeats):
        rows, rng = rows_of("kin40k", n, report.rng(r)), report.rng(100 + r)
        kernel, noise = _start(rows)
        chosen = selection.random_rows(rows.X, m, rng)
        options: dict[str, Any] = dict(optimize="hyperparameters", progress=False)
        plain = fit(
            kernel, Points(chosen), "dtc", noise, rows.X, rows.y, max_iterations=iterations, **options
        )
        turn = plain
        k, s = kernel, noise
        for _ in range(8):
            Z = selection.information_gain(rows.X, m, rng, kernel=k, noise=s, y=rows.y)
            turn = fit(
                k, Points(Z), "dtc", s, rows.X, rows.y, max_iterations=max(iterations // 8, 2), **options
            )
            k, s = turn.kernel, turn.noise
        joint = fit(
            kernel, Points(chosen), "fitc", noise, rows.X, rows.y, progress=False, max_iterations=iterations
        )
        table[:, r] = [rows.smse(post) for post in (turn, plain, joint)]
        for i, (one, other) in enumerate(((turn, plain), (plain, turn))):  # hyperparameters, and whose set
            crossed[i, r] = rows.smse(condition(one.kernel, other.basis, "dtc", one.noise, rows.X, rows.y))
    names = "re-selected in turns (footnote 2)", "a random subset (S5)", "SPGP, joint"
    report.table(
        "SMSE under PLV's evidence",
        ("active set", "mean", "least", "most"),
        [
            (name, *(f"{v:.3f}" for v in (line.mean(), line.min(), line.max())))
            for name, line in zip(names, table, strict=True)
        ],
    )
    ratio, sets = crossed[0] / table[1], crossed[1] / table[1]
    found = (
        f"on the same random subset error {ratio.min():.2f} to {ratio.max():.2f} times that of its own; "
        f"each on "
        f"its own set {(table[0] / table[1]).min():.2f} to {(table[0] / table[1]).max():.2f}"
    )
    report.claim(
        "Interleaving selection and learning gives no better hyperparameters than a random subset",
        "footnote 2: reselection makes it hard to converge",
        found,
        True if ratio.min() > 1 else False if ratio.max() < 1 else None,
    )
    report.why(
        "Interleaving selection",
        "what interleaving gains is the selected set's, not the hyperparameters'",
        f"the random subset's hyperparameters on the selected set have {sets.min():.2f} to "
        f"{sets.max():.2f} times "
        f"the error on the random one, the interleaved ones on the random set {ratio.min():.2f} to "
        f"{ratio.max():.2f}",
        bool(np.median(sets) < 1.0 and np.median(np.abs(sets - 1)) > np.median(np.abs(ratio - 1))),
    )
    ratio = table[2] / np.minimum(table[0], table[1])
    report.claim(
        "SPGP's joint optimisation is below both",
        "Fig. 3",
        f"{ratio.min():.2f} to {ratio.max():.2f} times the better",
        ratio.max() < 1,
    )


def _chunks(report: Report, n: int, m: int, iterations: int, repeats: int) -> None:
    """All inputs at once, a tenth of them in turns, and Adam on a tenth of the rows."""
    names = "all at once", "chunks of a tenth", "stochastic gradients"
    values, errors = np.zeros((3, repeats)), np.zeros((3, repeats))
    afresh, halves, bias = np.zeros(repeats), np.zeros(repeats), np.zeros(repeats)
    for r in range(repeats):
        rows, rng = rows_of("kin40k", n, report.rng(r)), report.rng(200 + r)
        kernel, noise = _start(rows)
        held = fit(
            kernel, None, "exact", noise, rows.X[:500], rows.y[:500], progress=False, max_iterations=60
        )
        Z = selection.kmeans(rows.X, m, rng)
        given: dict[str, Any] = dict(optimize="basis", progress=False)
        whole = fit(
            held.kernel, Points(Z), "fitc", held.noise, rows.X, rows.y, max_iterations=iterations, **given
        )
        basis, order = Points(Z), rng.permutation(m)
        for part in np.array_split(np.tile(order, 2), 20):
            mask = np.isin(np.arange(m), part)
            step = fit(
                held.kernel,
                basis,
                "fitc",
                held.noise,
                rows.X,
                rows.y,
                movable=mask,
                max_iterations=max(iterations // 20, 2),
                **given,
            )
            basis = step.basis
        for kept, masks in (
            (afresh, [np.ones(m, dtype=bool)]),
            (halves, [order_half(order), ~order_half(order)]),
        ):
            where: Any = Points(Z)
            for k in range(20):
                model = held.kernel, where, "fitc", held.noise, rows.X, rows.y
                steps = max(iterations // 20, 2)
                where = fit(*model, movable=masks[k % len(masks)], max_iterations=steps, **given).basis
            kept[r] = log_evidence(held.kernel, where, "fitc", held.noise, rows.X, rows.y)
            kept[r] -= log_evidence(held.kernel, whole.basis, "fitc", held.noise, rows.X, rows.y)
        bias[r] = bias_of_tenths(held.kernel, whole.basis, held.noise, rows)
        climbed = adam(held.kernel, Z, held.noise, rows, 10 * iterations, rng)
        for i, where in enumerate((whole.basis, basis, Points(climbed))):
            model = held.kernel, where, "fitc", held.noise, rows.X, rows.y
            values[i, r], errors[i, r] = log_evidence(*model), rows.smse(condition(*model))
    cells = [
        (name, f"{v.mean():.0f}", f"{e.mean():.4f}") for name, v, e in zip(names, values, errors, strict=True)
    ]
    report.table("Pseudo-inputs with hyperparameters held", ("way", "log evidence", "SMSE"), cells)
    for i in (1, 2):
        gap, ratio = values[i] - values[0], errors[i] / errors[0]
        found = (
            f"evidence {gap.mean():+.0f} nats, error {ratio.min():.2f} to {ratio.max():.2f} times "
            "that of all at once"
        )
        report.claim(
            f"{names[i].capitalize()} save work",
            "could be tried, §5",
            found,
            True if ratio.max() < 1 else False if ratio.min() > 1 else None,
        )
    lost = (values[1] - values[0]).mean()
    report.why(
        names[1].capitalize(),
        "inputs that stand still hold back those that move",
        f"20 fresh starts of all inputs lose {-afresh.mean():.0f} nats, of halves in turns "
        f"{-halves.mean():.0f}, of "
        f"tenths {-lost:.0f}",
        bool(afresh.mean() > halves.mean() > lost and afresh.mean() > 0.5 * lost),
    )
    report.why(
        names[2].capitalize(),
        "FITC's evidence is no sum over rows: the gradients of tenths do not add up to that of all",
        f"where the gradient of all rows is zero, the mean of those of ten tenths is {bias.mean():.0%} as "
        f"long as "
        "one of them (a sum would give 0)",
        bool(bias.min() > 0.1),
    )


def order_half(order: np.ndarray) -> np.ndarray:
    """A mask of the half of the places that come first in an order."""
    return np.isin(np.arange(len(order)), order[: len(order) // 2])


def bias_of_tenths(kernel: RBF, basis: Any, noise: float, rows: Rows) -> float:
    """The length of the mean gradient of ten disjoint tenths of the rows, over their mean length."""
    gradients = [
        log_evidence_and_gradient(kernel, basis, "fitc", noise, rows.X[k::10], rows.y[k::10])[1]["basis.Z"]
        for k in range(10)
    ]
    lengths = [np.linalg.norm(gradient) for gradient in gradients]
    return float(np.linalg.norm(np.mean(gradients, axis=0)) / np.mean(lengths))


def adam(
    kernel: RBF, Z: np.ndarray, noise: float, rows: Rows, steps: int, rng: np.random.Generator
) -> np.ndarray:
    """Ascent of FITC's evidence of random tenths of the rows, steps falling to nothing. [Kingma & Ba 2015]"""
    first, second = np.zeros_like(Z), np.zeros_like(Z)
    for t in range(1, steps + 1):
        some = rng.choice(len(rows.X), len(rows.X) // 10, replace=False)
        gradient = log_evidence_and_gradient(kernel, Points(Z), "fitc", noise, rows.X[some], rows.y[some])[1][
            "basis.Z"
        ]
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        scaled = first / (1 - 0.9**t) / (np.sqrt(second / (1 - 0.999**t)) + 1e-12)
        Z = Z + 0.05 * (1 - (t - 1) / steps) * scaled
    return Z


def _labels(report: Report, n: int, m: int, iterations: int, repeats: int) -> None:
    """SPGP for labels: the pseudo-inputs climb the evidence of the probit's sites."""
    m, table = m // 2, np.zeros((2, repeats, 2))
    for r in range(repeats):
        rows, rng = rows_of("kin40k", n, report.rng(r)), report.rng(300 + r)
        cut = np.median(rows.y)
        t, ts = np.where(rows.y > cut, 1.0, -1.0), np.where(rows.ys > cut, 1.0, -1.0)
        kernel, probit = _start(rows)[0].with_parameters({"variance": 4.0}), Probit(1.0)
        Z = selection.kmeans(rows.X, m, rng)
        for i, what in enumerate(("hyperparameters", "all")):
            best = fit(
                kernel,
                Points(Z),
                "fitc",
                probit,
                rows.X,
                t,
                optimize=what,
                progress=False,
                max_iterations=max(iterations // 2, 20),
            )
            mean, variance = best.posterior.predict(rows.Xs)
            loss = -float(np.mean(probit.log_average(ts, mean, variance)))
            table[i, r] = np.mean(np.sign(mean) != ts), loss
    cells = [
        (name, f"{100 * line[:, 0].mean():.1f} %", f"{line[:, 1].mean():.3f}")
        for name, line in zip(("inputs at k-means' centres", "inputs learned"), table, strict=True)
    ]
    report.table(f"Labels: above the median or not, m = {m}", ("pseudo-inputs", "error", "log loss"), cells)
    found = (
        f"error {100 * table[0, :, 0].mean():.1f} to {100 * table[1, :, 0].mean():.1f} %, log "
        f"loss {table[0, :, 1].mean():.3f} to {table[1, :, 1].mean():.3f}"
    )
    report.claim(
        "SPGP extends to classification, and learned inputs help",
        "a natural avenue, §5",
        found,
        bool(np.all(table[1, :, 1] < table[0, :, 1])),
    )
    figure, axes = panels(1, 5.0)
    for i, (name, colour) in enumerate((("fixed inputs", RED), ("learned inputs", BLUE))):
        axes[0].scatter(100 * table[i, :, 0], table[i, :, 1], color=colour, label=name)
    axes[0].set(xlabel="error in %", ylabel="log loss", title="kin-40k, labels")
    axes[0].legend(frameon=False)
    report.pictures["labels"] = figure
