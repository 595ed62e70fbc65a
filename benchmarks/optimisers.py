"""Score against evaluations: ways to climb the same VFE evidence from the same start.

    INDUCING_DATA=folder python benchmarks/optimisers.py --jobs 16
    python benchmarks/optimisers.py friedman step --m 50 --evaluations 100      # a minute

The sets are those of training.py, half of the rows left out to judge by. Every way starts from the recipe's
own start (an exact GP on 500 rows, places of greatest variance) and may evaluate the bound and its gradient
200 times; a way that works on a part of the rows counts that part of an evaluation. Tables in Markdown: the
best bound per row, in nats below the best of all ways, after a quarter, a half and all of the evaluations;
and the log loss (MSLL) of other rows at the end.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Any

import numpy as np
from scipy.optimize import minimize
from training import SETS

import inducing as ig
from inducing.errors import FactorisationError
from inducing.learning.ascent import MEMORY
from inducing.learning.objective import Objective
from inducing.learning.recipes import Task
from inducing.learning.stages import Stage
from inducing.learning.starts import informed_start
from inducing.model.bases import Points

MOST_ROWS = 5000


class Spent(Exception):
    """All evaluations are."""


@dataclass
class Counted:
    """An objective to be minimised in its own units, that remembers the best point and ends by its count."""

    objective: Objective
    most: float
    cost: float = 1.0  # of an evaluation: the part of the rows that it looks at
    spent: float = 0.0
    best: float = -np.inf
    x: np.ndarray = field(default_factory=lambda: np.zeros(0))
    curve: list[tuple[float, float]] = field(default_factory=list)  # evaluations, best value

    def __call__(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        if self.spent >= self.most:
            raise Spent
        self.spent += self.cost
        scale, x = self.objective.scale, u * self.objective.units
        try:
            value, gradient = self.objective.value_and_gradient(x)
        except FactorisationError:
            return 1e10, np.zeros_like(u)
        if value > self.best:
            self.best, self.x = value, x.copy()
        self.curve.append((self.spent, self.best))
        return -scale * value, -scale * gradient * self.objective.units

    @property
    def start(self) -> np.ndarray:
        return self.objective.start / self.objective.units

    @property
    def bounds(self) -> np.ndarray:
        return np.array(self.objective.bounds, dtype=float) / self.objective.units[:, None]


def lbfgs(f: Counted, u: np.ndarray, evaluations: float = np.inf, memory: int = MEMORY) -> np.ndarray:
    """L-BFGS-B until so many evaluations are spent or it has settled; the best point."""
    limit, f.most = f.most, min(f.most, f.spent + evaluations)
    try:
        options = {"maxiter": 10_000, "maxfun": 10_000, "ftol": 1e-12, "gtol": 1e-9, "maxcor": memory}
        minimize(f, u, jac=True, method="L-BFGS-B", bounds=f.bounds, options=options)
    except Spent:
        pass
    f.most = limit
    return f.x / f.objective.units


def adam(f: Counted, u: np.ndarray, evaluations: int, rate: float) -> np.ndarray:
    """Adam with a rate that falls to zero along a cosine."""
    low, high = f.bounds.T
    first, second = np.zeros_like(u), np.zeros_like(u)
    for k in range(evaluations):
        try:
            g = f(u)[1]
        except Spent:
            break
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
        step = first / (1 - 0.9 ** (k + 1)) / (np.sqrt(second / (1 - 0.999 ** (k + 1))) + 1e-8)
        u = np.clip(u - 0.5 * rate * (1 + np.cos(np.pi * k / evaluations)) * step, low, high)
    return f.x / f.objective.units


def scaled(f: Counted, u: np.ndarray) -> np.ndarray:
    """L-BFGS-B in units of each coordinate's root mean squared gradient along ten steps of Adam."""
    squares, low, high = np.zeros_like(u), *f.bounds.T
    g = f(u)[1]
    for _ in range(10):
        squares += g * g
        g = f(np.clip(u - 0.02 * np.sign(g), low, high))[1]
    root = np.sqrt(squares / 10) + 1e-8
    units = np.clip(np.median(root) / root, 0.1, 10.0) ** 0.5
    inner = f.objective.packing.units
    try:
        f.objective.packing.units = inner * units
        return lbfgs(f, f.x / f.objective.units)
    finally:
        f.objective.packing.units = inner


def on_part(share: float, evaluations: int) -> Callable[[Counted, Stage], None]:
    """L-BFGS-B on a part of the rows, so many evaluations of all of them long, then on all."""

    def way(f: Counted, stage: Stage) -> None:
        n = stage.rows.n
        rows = np.sort(np.random.default_rng(n).permutation(n)[: round(share * n)])
        few = Counted(stage.on(rows).objective(), evaluations, cost=share)
        lbfgs(few, few.start)
        f.spent = few.spent
        lbfgs(f, few.x / f.objective.units)

    return way


def restarted(every: int) -> Callable[[Counted, Stage], None]:
    """L-BFGS-B that forgets its memory now and then."""

    def way(f: Counted, stage: Stage) -> None:
        u, before = f.start, -1.0
        while f.spent < f.most and f.spent > before:
            before = f.spent
            u = lbfgs(f, u, every)

    return way


def hyperparameters_first(f: Counted, stage: Stage) -> None:
    """A fifth of the evaluations for kernel and noise alone, then everything."""
    alone = Counted(replace(stage, optimize="hyperparameters").objective(), 0.2 * f.most)
    lbfgs(alone, alone.start)
    f.spent = alone.spent
    whole = stage.at(alone.objective.packing.unpack(alone.x)).objective()
    lbfgs(f, whole.start / f.objective.units)


def adam_then_lbfgs(f: Counted, stage: Stage) -> None:
    lbfgs(f, adam(f, f.start, round(0.3 * f.most), 0.1))


def raced(f: Counted, stage: Stage) -> None:
    """Adam and L-BFGS-B for a sixth of the evaluations each; L-BFGS-B goes on from the better."""
    part, start = round(f.most / 6), f.start
    lbfgs(f, start, part)
    adam(f, start, part, 0.1)
    lbfgs(f, f.x / f.objective.units)


WAYS: dict[str, Callable[[Counted, Stage], Any]] = {
    "L-BFGS": lambda f, stage: lbfgs(f, f.start),
    "memory 20": lambda f, stage: lbfgs(f, f.start, memory=20),
    "memory 100": lambda f, stage: lbfgs(f, f.start, memory=100),
    "memory 10": lambda f, stage: lbfgs(f, f.start, memory=10),
    "forgets every 40": restarted(40),
    "Adam .2": lambda f, stage: adam(f, f.start, round(f.most), 0.2),
    "Adam .05": lambda f, stage: adam(f, f.start, round(f.most), 0.05),
    "Adam, L-BFGS": adam_then_lbfgs,
    "raced": raced,
    "own scales": lambda f, stage: scaled(f, f.start),
    "a quarter first": on_part(0.25, 30),
    "kernel first": hyperparameters_first,
}


def start_of(name: str, m: int) -> tuple[Stage, np.ndarray, np.ndarray]:
    """The stage that every way starts from, in standard units, and rows to judge by."""
    draw, *_ = SETS[name]
    X, y = draw(np.random.default_rng(1000))
    n = min(len(y) // 2, MOST_ROWS)
    mean, scale = X[:n].mean(axis=0), np.maximum(X[:n].std(axis=0), 1e-12)
    X, y = (X - mean) / scale, (y - y[:n].mean()) / y[:n].std()
    kernel = ig.kernels.RBF(np.full(X.shape[1], np.sqrt(X.shape[1])))
    places = Points(X[np.random.default_rng(0).permutation(n)[: min(m, n // 3)]])
    task = Task(kernel, places, "vfe", 0.1, X[:n], y[:n], max_iterations=100)
    return informed_start(task.stage()), X[n:], y[n:]


def run(name: str, way: str, m: int, evaluations: int) -> tuple[list[float], float]:
    """The bound per row after a quarter, a half and all of the evaluations, and the log loss at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stage, Xs, ys = start_of(name, m)
        f = Counted(stage.objective(), evaluations)
        try:
            WAYS[way](f, stage)
        except Spent:
            pass
        end = f.objective.packing.unpack(f.x)
        mean, variance = stage.at(end).model().predict(Xs)
    first = f.curve[0][1]
    values = [
        max([v for spent, v in f.curve if spent <= share * evaluations], default=first)
        for share in (0.25, 0.5, 1.0)
    ]
    return [v / stage.rows.n for v in values], ig.metrics.msll(
        ys, mean, variance + end.noise, stage.rows.Y[:, 0]
    )


def pin(cores: Any) -> None:
    os.sched_setaffinity(0, {cores.get()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sets", nargs="*", help="by the beginning of their names; all where none is named")
    parser.add_argument("--ways", nargs="*", default=list(WAYS))
    parser.add_argument("--m", type=int, default=200)
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    names = [name for name in SETS if not given.sets or name.startswith(tuple(given.sets))]
    context = get_context("spawn")
    cores = context.Queue()
    for core in (2 * sorted(os.sched_getaffinity(0)))[: given.jobs]:
        cores.put(core)
    with ProcessPoolExecutor(given.jobs, context, pin, (cores,)) as pool:
        jobs = {
            (name, way): pool.submit(run, name, way, given.m, given.evaluations)
            for name in names
            for way in given.ways
        }
        print("| data | " + " | ".join(given.ways) + " |\n|" + "---|" * (len(given.ways) + 1))
        behind = []
        for name in names:
            found = [jobs[name, way].result() for way in given.ways]
            best = max(values[-1] for values, _ in found)
            behind.append([best - values[-1] for values, _ in found])
            cells = ["/".join(f"{best - v:.3f}" for v in values) + f"; {loss:.3f}" for values, loss in found]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
        means = " | ".join(f"{v:.4f}" for v in np.mean(behind, axis=0))
        print(f"| **mean at the end** | {means} |")


if __name__ == "__main__":
    main()
