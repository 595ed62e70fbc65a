"""002: error against run time; initialisation, testing and learning hyperparameters are timed apart."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from inducing.inference.regression import condition
from inducing.inference.selection import greedy_variance, random_rows
from inducing.learning.fitting import fit
from inducing.metrics import smse
from inducing.model.bases import Points
from inducing.model.kernels import RBF
from inducing.pictures.plots import COLOURS, canvas, plain

from .report import Report

METHODS = {"sod": "SD", "sor": "SR", "dtc": "PP", "fitc": "FITC", "bcm": "BCM"}
GREEDY = {
    "sod": "SD, greedy",
    "dtc": "PP, greedy",
}  # the rows of largest remaining variance instead of random ones
LEAST = 128  # rows in a block of BCM: smaller ones make it slower still


def waves(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Uniform inputs in four dimensions and a sum of twelve waves, of unit variance, without noise."""
    X = rng.uniform(size=(n, 4))
    phases = X @ (5.0 * rng.standard_normal((4, 12))) + rng.uniform(0.0, 2.0 * np.pi, 12)
    return X, np.sum(np.sin(phases), axis=1) / np.sqrt(6.0)


class Point(NamedTuple):
    """One method at one size."""

    method: str
    m: int
    choosing: float  # seconds
    starting: float
    testing: float
    smse: float

    @property
    def seconds(self) -> float:
        return self.choosing + self.starting + self.testing


def measure(
    name: str, label: str, m: int, kernel: Any, noise: float, data: Any, greedy: bool, seed: int
) -> Point:
    """Choose, condition, predict."""
    X, y, X_test, y_test = data
    start = time.perf_counter()
    options: dict[str, Any] = {}
    basis: Any = None
    if name == "bcm":
        options["blocks"] = np.random.default_rng(seed).permutation(np.arange(len(X)) // m)
    else:
        basis = Points(greedy_variance(X, m, seed, kernel=kernel) if greedy else random_rows(X, m, seed))
    chosen = time.perf_counter()
    model = condition(kernel, basis, name, noise, X, y, **options)
    made = time.perf_counter()
    mean = model.predict(X_test).mean
    asked = time.perf_counter()
    return Point(label, m, chosen - start, made - chosen, asked - made, smse(y_test, mean, y))


def error_against_time(report: Report) -> None:
    """SD, SR, PP, FITC and BCM with random subsets, two of them with greedy ones as well."""
    n, test, sizes, repeats = (
        (500, 200, (32, 128), 1) if report.quick else (4000, 1000, (32, 64, 128, 256, 512, 1024), 3)
    )
    rng = report.rng()
    X, f = waves(n + test, rng)
    data = X[:n], f[:n] + 0.1 * rng.standard_normal(n), X[n:], f[n:]
    start = time.perf_counter()
    learned = fit(
        RBF(np.full(X.shape[1], 0.5)),
        None,
        "exact",
        0.05,
        data[0][:400],
        data[1][:400],
        max_iterations=10 if report.quick else 60,
        progress=False,
    )
    learning = time.perf_counter() - start
    jobs = [(name, label, False) for name, label in METHODS.items()] + [
        (name, label, True) for name, label in GREEDY.items()
    ]
    kernel, noise = learned.kernel, float(learned.noise)
    measure("fitc", "", sizes[0], kernel, noise, data, True, 0)  # loads what is compiled
    points = []
    for name, label, greedy in jobs:
        for m in (m for m in sizes if name != "bcm" or m >= LEAST):
            runs = [
                measure(name, label, m, kernel, noise, data, greedy, seed) for seed in report.seeds(repeats)
            ]
            choosing, starting, testing = np.min(
                [(run.choosing, run.starting, run.testing) for run in runs], axis=0
            ).tolist()
            points.append(
                Point(label, m, choosing, starting, testing, float(np.median([run.smse for run in runs])))
            )
    report.settings += (
        f"Run time: a sum of waves of unit variance in 4 dimensions, {n} rows with noise variance 0.01 to "
        f"train on and {test} without noise to test on, an exact GP's hyperparameters from 400 rows; "
        f"{repeats} subsets, the median error and the least time. BCM: random blocks of m rows."
    )
    report.values["runtime"] = points
    rows = [
        (p.method, p.m, f"{p.choosing:.3f}", f"{p.starting:.3f}", f"{p.testing:.3f}", f"{p.smse:.4f}")
        for p in points
    ]
    title = f"Seconds to choose the subset, to start and to test; learning took {learning:.1f} s for all"
    report.table(title, ("method", "m", "choosing", "starting", "testing", "SMSE"), rows)
    _claims(report, points, learning)
    _why_apart(report, kernel, noise)
    picture = canvas(7.5, 4.6)
    ax = plain(picture.subplots())
    for colour, label in zip(COLOURS, dict.fromkeys(p.method for p in points), strict=False):
        line = [(p.seconds, p.smse) for p in points if p.method == label]
        ax.loglog(*zip(*line, strict=True), marker="o", markersize=4, color=colour, label=label)
    ax.set_xlabel("seconds to choose, start and test")
    ax.set_ylabel("SMSE")
    ax.legend(frameon=False, fontsize=8)
    report.pictures["error_against_time"] = picture


def best_within(points: list[Point], method: str, seconds: float) -> float:
    """The least SMSE a method reaches in so much time."""
    return min((p.smse for p in points if p.method == method and p.seconds <= seconds), default=np.inf)


def _why_apart(report: Report, kernel: Any, noise: float) -> None:
    """Subset of data and projected process for as many multiplications, m³/3 and n m², with more and "
    "more rows."""
    m, sizes = (64, (250, 1000)) if report.quick else (128, (1000, 4000, 16000))
    X, f = waves(sizes[-1] + 1000, report.rng())
    rng, ratios, taken = report.rng(1), [], []
    for n in sizes:
        data = X[:n], f[:n] + 0.1 * rng.standard_normal(n), X[-1000:], f[-1000:]
        subset = min(round((3.0 * n * m * m) ** (1 / 3)), n)
        pair = [
            np.median([measure(name, "", k, kernel, noise, data, False, s).smse for s in report.seeds(3)])
            for name, k in (("sod", subset), ("dtc", m))
        ]
        ratios.append(float(pair[0] / pair[1]))
        taken.append(subset)
    found = (
        f"for as many multiplications as PP with m = {m}, SD with {', '.join(map(str, taken))} rows has "
        f"{', '.join(f'{r:.2g}' for r in ratios)} times its error at n = {', '.join(map(str, sizes))}"
    )
    reason = "PP's time grows with the rows and SD's does not; the slides have 44,484 of them"
    report.why("judged on time SD, SR and PP", reason, found, bool(np.all(np.diff(ratios) < 0)))


def _claims(report: Report, points: list[Point], learning: float) -> None:
    least = max(min(p.seconds for p in points if p.method == method) for method in ("SD", "SR", "PP"))
    budgets = sorted({least} | {p.seconds for p in points if p.method in ("SD", "PP") and p.seconds > least})
    methods = dict.fromkeys(p.method for p in points)
    found = {method: [best_within(points, method, budget) for budget in budgets] for method in methods}
    same = all(
        max(found[a][i] for a in ("SD", "SR", "PP")) <= 2.0 * min(found[a][i] for a in ("SD", "SR", "PP"))
        for i in range(len(budgets))
    )
    last = ", ".join(f"{method} {found[method][-1]:.3f}" for method in ("SD", "SR", "PP"))
    report.claim(
        "judged on time SD, SR and PP are on the same trajectory",
        "for SARCOS",
        f"within {budgets[-1]:.2f} s: {last}; within a factor of 2 at every one of {len(budgets)} times: "
        f"{'yes' if same else 'no'}",
        same,
    )
    worse = all(found["BCM"][i] >= min(found[a][i] for a in ("SD", "SR", "PP")) for i in range(len(budgets)))
    report.claim(
        "BCM is worse",
        "for SARCOS",
        f"never the best of the four in {len(budgets)} times"
        if worse
        else f"the best in some of {len(budgets)} times",
        worse,
    )
    gains = {name: np.array(found[f"{name}, greedy"]) / np.array(found[name]) for name in ("SD", "PP")}
    text = "; ".join(
        f"{name} {', '.join(f'{g:.2f}' for g in gain[np.isfinite(gain)])}" for name, gain in gains.items()
    )
    report.claim(
        "greedy or random subsets, in the same time", "an open question", f"SMSE relative to random: {text}"
    )
    most = max(points, key=lambda p: p.seconds)
    report.claim(
        "training, testing and learning times apart",
        "the balance depends on the situation",
        f"learning {learning:.1f} s on 400 rows; {most.method} at m = {most.m}: start {most.starting:.2f} "
        f"s, test {most.testing:.2f} s",
    )
