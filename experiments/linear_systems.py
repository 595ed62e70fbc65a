"""002: fast approximate solution of linear systems. Conjugate gradients; products in blocks, by a tree and by
expansions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from inducing.inference.conjugate_gradients.predictor import Solver, predictor_of
from inducing.inference.conjugate_gradients.products import Blocked
from inducing.inference.regression import condition, problem_of
from inducing.model.kernels import RBF
from inducing.model.kernels.base import Kernel
from inducing.model.kernels.stationary import PROFILES
from inducing.pictures.plots import BLUE, INK, RED, canvas, plain

from .dual_tree import Tree
from .fast_products import cost_of_blocks
from .gauss_transform import Gauss
from .report import Report

WAYS: dict[str, Callable[[Any, np.ndarray, float], Any]] = {
    "blocks": lambda kernel, X, tolerance: Blocked(kernel, X),
    "tree": Tree,
    "Gauss transform": Gauss,
}
NAMES = {Blocked: "blocks", Tree: "tree", Gauss: "Gauss transform"}
COLOURS = {"blocks": INK, "tree": RED, "Gauss transform": BLUE}
TOO_SLOW = 4.0  # a product that `cost` says takes so many times as long as blocks is not run
NOISE = 0.05


def choose(kernel: Kernel, X: np.ndarray, tolerance: float = 0.0) -> Blocked | Tree | Gauss:
    """The product of least cost for K(X, X) v within the tolerance; in blocks, and exact, for one of 0.

    Costs are counted, not guessed from the lengthscale: n²/2 entries for blocks; the boxes and points that a
    sample of leaves look at for the tree; the terms and centres of the best plan for the Gauss transform.
    Other kernels go in blocks.
    """
    blocks = Blocked(kernel, X)
    rivals: list[Tree | Gauss] = []
    if tolerance > 0.0 and type(kernel) in PROFILES:
        rivals.append(Tree(kernel, X, tolerance))
    if tolerance > 0.0 and isinstance(kernel, RBF):
        rivals.append(Gauss(kernel, X, tolerance))
    best = min(rivals, key=lambda product: product.cost, default=None)
    return blocks if best is None or best.cost >= cost_of_blocks(kernel, len(X)) else best


class Run(NamedTuple):
    """One product: the best of some times, and the largest error relative to Σ|v|."""

    lengthscale: float
    way: str
    tolerance: float  # 0 for blocks
    seconds: float
    error: float


def seconds_of(function: Callable[[], Any], repeats: int) -> float:
    """The best of some runs."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return min(found)


def race(
    n: int, d: int, lengthscale: float, tolerances: tuple[float, ...], repeats: int, rng: np.random.Generator
) -> tuple[list[Run], list[str]]:
    """Time every way at every tolerance, on uniform inputs; and list the way `choose` takes at each."""
    X, v, kernel = rng.uniform(size=(n, d)), rng.standard_normal(n), RBF(lengthscale)
    blocks = Blocked(kernel, X)
    exact, size = blocks(v), np.sum(np.abs(v))
    runs = [Run(lengthscale, "blocks", 0.0, seconds_of(lambda: blocks(v), repeats), 0.0)]
    for tolerance in tolerances:
        for way in ("tree", "Gauss transform"):
            product = WAYS[way](kernel, X, tolerance)
            if product.cost <= TOO_SLOW * cost_of_blocks(kernel, n):
                error = float(np.max(np.abs(product(v) - exact)) / size)
                runs.append(Run(lengthscale, way, tolerance, seconds_of(partial(product, v), repeats), error))
    return runs, [NAMES[type(choose(kernel, X, tolerance))] for tolerance in tolerances]


def times(runs: list[Run], lengthscale: float, tolerance: float) -> dict[str, float]:
    """Seconds of each way within the tolerance."""
    return {
        run.way: run.seconds
        for run in runs
        if run.lengthscale == lengthscale and run.tolerance in (0.0, tolerance)
    }


def solve(
    n: int, lengthscale: float, tolerances: tuple[float, ...], rng: np.random.Generator
) -> dict[str, list[tuple[float, float]]]:
    """Seconds and largest relative error of predicted means, by Cholesky and by each product."""
    X, Xs, kernel = rng.uniform(size=(n, 2)), rng.uniform(size=(200, 2)), RBF(lengthscale)
    y = np.sin(8.0 * X[:, 0]) * np.cos(5.0 * X[:, 1]) + math.sqrt(NOISE) * rng.standard_normal(n)
    start = time.perf_counter()
    exact = condition(kernel, None, "exact", NOISE, X, y)
    expected = exact.mean(Xs)  # type: ignore[union-attr]
    curves = {"Cholesky": [(time.perf_counter() - start, 0.0)]}
    P = problem_of(kernel, None, "cg", NOISE, X, y)
    for way, make in WAYS.items():
        for tolerance in tolerances:

            def product(k: Any, A: np.ndarray, make: Any = make, tolerance: float = tolerance) -> Any:
                return make(k, A, 1e-4 * tolerance)

            made = product(kernel, X)
            if not isinstance(made, Blocked) and made.cost > TOO_SLOW * cost_of_blocks(kernel, n):
                break
            start = time.perf_counter()
            found = predictor_of(P, Solver(tolerance=tolerance, product=product)).mean(Xs)
            taken = time.perf_counter() - start
            curves.setdefault(way, []).append(
                (taken, float(np.max(np.abs(found - expected)) / np.max(np.abs(expected))))
            )
    return curves


def e3(report: Report) -> None:
    """Products over lengthscales and tolerances; conjugate gradients with each of them."""
    n, repeats = (1000, 1) if report.quick else (10_000, 2)
    lengthscales = (0.005, 0.1, 2.0) if report.quick else (0.002, 0.01, 0.05, 0.2, 1.0, 3.0)
    tolerances = (1e-2, 1e-8) if report.quick else (1e-2, 1e-6, 1e-10)
    d, others = (3, (0.05, 2.0)) if report.quick else (4, (0.03, 0.3, 3.0))
    report.settings = (
        f"Products: n = {n} uniform inputs in the unit square, RBF kernels, normal weights v, tolerances "
        f"relative to Σ|v|; the best of {repeats} runs, trees and clusters made beforehand, on all cores. "
        f"Systems: y = sin 8x₁ cos 5x₂ with noise variance {NOISE}; the products' tolerance is 1e-4 of that "
        "of the means."
    )
    found = [race(n, 2, lengthscale, tolerances, repeats, report.rng()) for lengthscale in lengthscales]
    runs = [run for part, _ in found for run in part]
    picks = dict(zip(lengthscales, (pick for _, pick in found), strict=True))
    _product_claims(report, runs, picks, tolerances)
    report.pictures["products"] = _products_picture(runs, lengthscales, tolerances)
    races = [race(n, d, lengthscale, tolerances[1:2], repeats, report.rng()) for lengthscale in others]
    more = [run for runs_of_one, _ in races for run in runs_of_one]
    rows = [
        (f"{l:g}", *(f"{times(more, l, tolerances[1]).get(way, math.nan):.4f}" for way in WAYS))
        for l in others
    ]
    report.table(f"Seconds in {d} dimensions, tolerance {tolerances[1]:.0e}", ("lengthscale", *WAYS), rows)
    _systems(report)
    report.values |= {
        "products": runs,
        "chosen": {str(l): pick for l, pick in picks.items()},
        f"products_{d}": more,
    }
    report.notes += [
        "Times of the tree and the Gauss transform are those of a product: the tree is built, and the "
        "clusters are found, once for all iterations. Blocks use each entry of K twice; at short "
        "lengthscales they are slower, since inputs that lie many lengthscales out have their distances "
        "taken by differences, so that nothing cancels. nan is a product that would take more than "
        f"{TOO_SLOW:g} times as long as blocks.",
        "The tree's one number for two boxes is of little use at tight tolerances: what it saves is what "
        "lies beyond the kernel's reach, √(-2 log ε) lengthscales. Expansions of the near field are what "
        "the Gauss transform has.",
        "Where the kernel reaches over much of the data and varies within it, blocks are hard to beat in "
        "more than two dimensions: an expansion's terms grow as p^d/d!, a tree's share of pairs as the "
        "volume within reach.",
    ]


def _product_claims(
    report: Report, runs: list[Run], picks: dict[float, list[str]], tolerances: tuple[float, ...]
) -> None:
    share = [run.error / run.tolerance for run in runs if run.tolerance > 0]
    report.claim(
        "errors stay below the bound",
        "Gray 2004, Yang et al. 2005",
        f"{max(share):.2g} of it at most, in {len(share)} runs",
        max(share) <= 1.0,
    )
    winners = {}
    near = right = 0
    for lengthscale, pick in picks.items():
        seconds = [times(runs, lengthscale, tolerance) for tolerance in tolerances]
        winners[lengthscale] = [min(found, key=found.__getitem__) for found in seconds]
        right += sum(way == best for way, best in zip(pick, winners[lengthscale], strict=True))
        near += sum(
            found.get(way, math.inf) <= 1.5 * min(found.values())
            for way, found in zip(pick, seconds, strict=True)
        )
    for lengthscale, way, word in ((min(picks), "tree", "short"), (max(picks), "Gauss transform", "long")):
        own = winners[lengthscale].count(way)
        report.claim(
            f"{way}: best for {word} lengthscales",
            "a question on the slides",
            f"fastest at {own} of {len(tolerances)} tolerances with lengthscale {lengthscale:g}",
            own == len(tolerances),
        )
    cases = len(picks) * len(tolerances)
    report.claim(
        "counting the work tells which to use",
        "–",
        f"`choose` takes the fastest in {right} of {cases} cases, and one within 1.5 times of it in {near}",
        near >= 0.9 * cases,
    )
    report.table(
        "The fastest way at each tolerance",
        ("lengthscale", *(f"{t:.0e}" for t in tolerances)),
        [(f"{l:g}", *found) for l, found in winners.items()],
    )


def _systems(report: Report) -> None:
    n = 500 if report.quick else 3000
    lengthscales = (0.02, 1.0) if report.quick else (0.01, 0.1, 1.0)
    tolerances = (1e-1, 1e-4) if report.quick else (1e-1, 1e-2, 1e-4, 1e-6)
    solve(200, 0.5, tolerances[:1], report.rng(1))  # compiles what is timed below
    found = {lengthscale: solve(n, lengthscale, tolerances, report.rng(1)) for lengthscale in lengthscales}
    report.pictures["systems"] = _systems_picture(found, n)
    report.values["systems"] = {str(l): curves for l, curves in found.items()}
    ends = {l: curves["blocks"][-1][1] for l, curves in found.items()}
    report.claim(
        "conjugate gradients solve (K + σ²I)v = y",
        "in O(kn²) for k iterations",
        ", ".join(f"means to {error:.0e} with ℓ = {l:g}" for l, error in ends.items()),
        max(ends.values()) < tolerances[-1],
    )
    beside = [
        curves["Cholesky"][0][0] / min(curve[-1][0] for way, curve in curves.items() if way != "Cholesky")
        for curves in found.values()
    ]
    report.claim(
        f"how much faster than Cholesky at n = {n}, with the best product and the tightest tolerance",
        "–",
        ", ".join(f"{ratio:.1f} times with ℓ = {l:g}" for ratio, l in zip(beside, found, strict=True)),
    )


def _systems_picture(found: dict[float, dict[str, list[tuple[float, float]]]], n: int) -> Any:
    picture = canvas(4.2 * len(found), 4.2)
    axes = picture.subplots(1, len(found), sharey=True)
    for ax, (lengthscale, curves) in zip(axes, found.items(), strict=True):
        plain(ax)
        for way, curve in curves.items():
            if way == "Cholesky":
                ax.axvline(curve[0][0], color="#7a7a7a", linestyle=":", label=f"Cholesky, n = {n}")
            else:
                ax.loglog(
                    *zip(*curve, strict=True),
                    marker="o",
                    markersize=4,
                    color=COLOURS[way],
                    label=f"CG, {way}",
                )
        ax.set_title(f"ℓ = {lengthscale:g}")
        ax.minorticks_off()
        ax.set_xlabel("seconds")
        ax.set_ylabel("largest error of a mean, relative")
    picture.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return picture


def _products_picture(runs: list[Run], lengthscales: tuple[float, ...], tolerances: tuple[float, ...]) -> Any:
    picture = canvas(11.5, 5.2)
    left, right = (plain(ax) for ax in picture.subplots(1, 2))
    for way, colour in COLOURS.items():
        for tolerance, style in ((tolerances[0], ":"), (tolerances[-1], "-")):
            line = [
                (run.lengthscale, run.seconds)
                for run in runs
                if run.way == way and run.tolerance in (0.0, tolerance)
            ]
            if line and not (way == "blocks" and style == ":"):
                label = way if way == "blocks" else f"{way}, tolerance {tolerance:.0e}"
                left.loglog(
                    *zip(*line, strict=True),
                    linestyle=style,
                    marker="o",
                    markersize=4,
                    color=colour,
                    label=label,
                )
    left.set_xlabel("lengthscale")
    left.set_ylabel("seconds for a product")
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False, fontsize=8)
    some = lengthscales if len(lengthscales) <= 3 else (lengthscales[1], lengthscales[3], lengthscales[-1])
    for lengthscale, style in zip(some, ("-", "--", ":"), strict=True):
        for way in ("tree", "Gauss transform"):
            line = [
                (run.seconds, max(run.error, 1e-17))
                for run in runs
                if run.way == way and run.lengthscale == lengthscale
            ]
            if line:
                right.loglog(
                    *zip(*line, strict=True),
                    linestyle=style,
                    marker="o",
                    markersize=4,
                    color=COLOURS[way],
                    label=f"{way}, ℓ = {lengthscale:g}",
                )
    right.axvline(
        float(np.median([run.seconds for run in runs if run.way == "blocks"])),
        color=INK,
        label="blocks, exact",
    )
    right.set_xlabel("seconds")
    right.set_ylabel("largest error, relative to Σ|v|")
    right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False, fontsize=8)
    return picture
