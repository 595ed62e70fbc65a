"""What the rows of 003 Table 1 cost as n and m grow. [003 Table 1]"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import nnls

from inducing.beside import augmentation
from inducing.errors import NegativeVarianceWarning
from inducing.inference.regression import condition
from inducing.model.bases import Points
from inducing.model.kernels import RBF
from inducing.pictures.plots import BLUE, INK, RED, figure

from .report import Report

Array = np.ndarray
NAMES = {"exact": "GP", "sor": "SoR", "dtc": "DTC", "fitc": "FITC", "pitc": "PITC"}
PICTURE = {
    "exact GP, start, by n": INK,
    "DTC, start, by n": BLUE,
    "FITC, start, by m": RED,
    "DTC, variance of a query, by m": "#7a5195",
    "augmented SoR, a query, by m": "#2f8f6b",
    "augmented FITC, a query, by m": "#c98a1b",
}


# The clock. Each cost is measured over a range of one size with the others held, and fitted by a line in
# logarithms.


def _data(n: int, d: int = 4) -> tuple[Array, Array]:
    """Rows whose only use is to be timed: the same whatever the seed."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, d))
    return X, np.sin(X).sum(axis=1) + 0.3 * rng.standard_normal(n)


def _best(action: Callable[[], Any], repeats: int, budget: float = 0.1) -> float:
    """Processor seconds of the cheapest run: so many at least, and more while the budget lasts."""
    times: list[float] = []
    while len(times) < repeats or sum(times) < budget:
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def _make(name: str, n: int, m: int, make: Callable[..., Any] = condition) -> Callable[[], Any]:
    X, y = _data(n)
    blocks = np.arange(n) // m if name in ("pitc", "bcm") else None
    return lambda: make(RBF(1.5), Points(X[:m]), name, 0.1, X, y, blocks=blocks)


def _ask(
    name: str, n: int, m: int, queries: int, make: Callable[..., Any] = condition, mean_only: bool = False
) -> Callable[[], Any]:
    predictor, Xs = _make(name, n, m, make)(), _data(queries)[0]
    ask = predictor.mean if mean_only else predictor.predict
    ask(Xs[:2])
    return lambda: ask(Xs)


@dataclass(frozen=True)
class Cost:
    """What is timed, over which sizes, and the exponent the paper gives."""

    what: str
    size: str
    sizes: tuple[int, ...]
    action: Callable[[int], Callable[[], Any]]
    paper: float


def _measurements(quick: bool) -> list[Cost]:
    rows, base, queries = ((500, 1000, 2000), 32, 50) if quick else ((4000, 8000, 16000, 32000), 256, 1000)
    ms = (16, 32, 64) if quick else (128, 256, 512, 1024)
    dense = (100, 200, 400) if quick else (500, 1000, 2000, 4000)
    fixed, few = rows[0], 10
    costs = [
        Cost("exact GP, start", "n", dense, partial(_make, "exact", m=1), 3),
        Cost(
            "exact GP, mean of a query",
            "n",
            dense,
            partial(_ask, "exact", m=1, queries=queries, mean_only=True),
            1,
        ),
        Cost("exact GP, variance of a query", "n", dense, partial(_ask, "exact", m=1, queries=queries), 2),
    ]
    for name in ("sor", "dtc", "fitc", "pitc"):
        costs.append(Cost(f"{NAMES[name]}, start", "n", rows, partial(_make, name, m=base), 1))
        costs.append(Cost(f"{NAMES[name]}, start", "m", ms, partial(_make, name, fixed), 2))
    many = 10 * queries
    costs.append(
        Cost("DTC, mean of a query", "m", ms, partial(_ask, "dtc", fixed, queries=many, mean_only=True), 1)
    )
    costs.append(Cost("DTC, variance of a query", "m", ms, partial(_ask, "dtc", fixed, queries=many), 2))
    for name, number in (("sor", queries), ("fitc", few), ("pitc", few)):
        ask, title = (
            partial(_ask, name, queries=number, make=augmentation.condition),
            f"augmented {NAMES[name]}, a query",
        )
        costs.append(Cost(title, "n", rows[:3], partial(ask, m=base), 1))
        costs.append(Cost(title, "m", ms[:3], partial(ask, fixed), 1))
    costs.append(Cost("BCM, a query", "n", rows[:3], partial(_ask, "bcm", m=base, queries=base), 1))
    costs.append(
        Cost("Nyström, a query", "n", rows[:3], partial(_ask, "nystrom", m=base, queries=queries), 1)
    )
    return costs


Curve = tuple[tuple[int, ...], list[float], float, float]  # sizes, seconds, fitted and stated exponent


def why_flatter(report: Report, curves: dict[str, Curve]) -> None:
    """Times of starts as sums of the stated order and the one below, by least squares of relative errors."""
    misfits, shares = [], []
    for sizes, seconds, _, paper in curves.values():
        relative = np.array(sizes)[:, None] / sizes[-1]
        terms = relative ** np.array([paper, paper - 1.0]) / np.array(seconds)[:, None]  # (sizes, 2)
        parts = terms * nnls(terms, np.ones(len(sizes)))[0]
        misfits.append(float(np.max(np.abs(parts.sum(axis=1) - 1.0))))
        shares.append(float(parts[-1, 0] / parts[-1].sum()))
    report.why(
        "a start is O(nm²)",
        "at these sizes terms of one order less still count: kernel matrices, and products of small blocks",
        f"as a sum of the stated order and the one below, times are met within {np.median(misfits):.0%} "
        f"(median over starts; {max(misfits):.0%} at most), and the stated order has {min(shares):.0%} to "
        f"{max(shares):.0%} of the time at the largest size",
        bool(np.median(misfits) < 0.15 and min(shares) > 0.5),
    )


def costs(report: Report) -> None:
    cells, curves = [], {}
    measurements = _measurements(report.quick)
    if report.quick:
        measurements = [cost for cost in measurements if f"{cost.what}, by {cost.size}" in PICTURE]
    for cost in measurements:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NegativeVarianceWarning)
            seconds = [_best(cost.action(size), 1 if report.quick else 2) for size in cost.sizes]
        slope = float(np.polyfit(np.log(cost.sizes), np.log(seconds), 1)[0])
        last = float(np.log(seconds[-1] / seconds[-2]) / np.log(cost.sizes[-1] / cost.sizes[-2]))
        curves[f"{cost.what}, by {cost.size}"] = (cost.sizes, seconds, slope, cost.paper)
        span = f"{cost.sizes[0]} to {cost.sizes[-1]}"
        cells.append(
            (
                cost.what,
                cost.size,
                span,
                f"{cost.paper:g}",
                f"{slope:.2f}",
                f"{last:.2f}",
                f"{seconds[-1]:.3g}",
            )
        )
    header = ("cost", "of", "range", "paper's exponent", "fitted", "last step", "CPU seconds at the end")
    report.table("Measured exponents", header, cells)
    report.values["costs"] = {
        key: {"sizes": c[0], "seconds": c[1], "slope": c[2], "paper": c[3]} for key, c in curves.items()
    }
    starts = {key: curve for key, curve in curves.items() if "start" in key}
    excess = [slope - paper for _, _, slope, paper in starts.values()]
    doubled = [np.log2(seconds[-1] / seconds[-2]) - paper for _, seconds, _, paper in starts.values()]
    report.claim(
        "a start is O(nm²), that of the exact GP O(n³)",
        "Table 1 (whose caption prints n² for the exact GP)",
        f"exponent less the stated one: {min(doubled):+.2f} to {max(doubled):+.2f} over the largest "
        f"doubling, {min(excess):+.2f} to {max(excess):+.2f} over all sizes",
        None if report.quick else max(map(abs, doubled)) < 0.3,
    )
    why_flatter(report, starts)
    fitc, sor = (curves[f"augmented {name}, a query, by m"][2] for name in ("FITC", "SoR"))
    report.claim(
        "augmentation costs O(nm) for each query",
        "§8.1, said of DTC",
        f"in m: {sor:.2f} for SoR and DTC; {fitc:.2f} for FITC, all of whose D changes",
        None if report.quick else abs(sor - 1.0) < 0.3,
    )
    report.notes += [
        "Exponents are fitted over sizes that a minute allows. There terms of lower order (kernel matrices, "
        "O(n²) for the exact GP and O(nm) for the others) and slower products of small matrices still "
        "flatten them: they bear the paper's orders out as bounds, not as rates. The last step is the "
        "exponent of the largest doubling alone.",
        "The paper counts O(nm) for an augmented query, which is right for SoR, DTC and VFE. FITC's D "
        "changes in every row that f\\* touches, and with it B: O(nm²) for each query. PITC's changes by "
        "rank one for each block.",
    ]
    ax = figure(9.0, 5.0)
    for key, color in PICTURE.items():
        sizes, seconds, slope, paper = curves[key]
        relative = np.array(sizes) / sizes[0]
        ax.plot(
            relative,
            np.array(seconds) / seconds[0],
            "o-",
            color=color,
            label=f"{key}: {slope:.2f} (paper {paper:g})",
        )
        ax.plot(relative, relative**paper, ":", color=color, linewidth=1)
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="size / smallest",
        ylabel="time / that of the smallest (dotted: as in the paper)",
    )
    ax.legend(frameon=False, fontsize=8)
    report.pictures["costs"] = ax.figure
