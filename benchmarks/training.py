"""Which row and recipe to train by: held-out error, log loss and time over several data sets, as a table in
Markdown.

    INDUCING_DATA=folder python benchmarks/training.py --seeds 3 --jobs 16

Each fit has one core to itself; --jobs says how many run side by side. race.py has the whole of kin-40k,
against the clock.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

import inducing as ig

WAYS = {
    "default": {},
    "points": {"basis": "points"},
    "vfe": {"approximation": "vfe"},
    "pep": {"approximation": "pep"},
    "fitc, not judged": {"validation_fraction": 0.0},
    "fitc, direct": {"recipe": "direct", "basis": "points", "max_iter": 400},
    "vfe, direct": {"approximation": "vfe", "recipe": "direct", "basis": "points", "max_iter": 400},
}
Data = tuple[np.ndarray, np.ndarray]
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
ROWS = 3000  # drawn of everything synthetic


def classes(r: np.random.Generator) -> Data:
    """A shift by three classes, one column each."""
    X = np.column_stack([r.uniform(-3, 3, (ROWS, 2)), np.eye(3)[r.integers(0, 3, ROWS)]])
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + X[:, 2:] @ [0, 1, -1] + 0.1 * r.standard_normal(ROWS)


def codes(r: np.random.Generator) -> Data:
    """Integers that stand for something."""
    X = np.column_stack(
        [r.integers(0, 5, ROWS), r.integers(0, 2, ROWS), r.uniform(size=ROWS), r.integers(1, 13, ROWS)]
    )
    signal = (X[:, 0] - 2) ** 2 * X[:, 2] + 2 * X[:, 1] + np.sin(X[:, 3] / 2)
    return X, signal + 0.2 * r.standard_normal(ROWS)


def counts(r: np.random.Generator) -> Data:
    X = r.uniform(-2, 2, (ROWS, 3))
    return X, r.poisson(np.exp(1 + X[:, 0] + 0.5 * np.sin(3 * X[:, 1]))).astype(float)


def friedman(r: np.random.Generator) -> Data:
    return ig.datasets.friedman1(ROWS, rng=r)


def heavy(r: np.random.Generator) -> Data:
    """Student-t noise."""
    X = r.uniform(-3, 3, (ROWS, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 3 + 0.2 * r.standard_t(2.5, size=ROWS)


def irrelevant(r: np.random.Generator) -> Data:
    """Two inputs of thirty matter."""
    X = r.normal(size=(ROWS, 30))
    return X, np.sin(2 * X[:, 3]) + X[:, 7] ** 2 / 2 + 0.2 * r.standard_normal(ROWS)


def linear(r: np.random.Generator) -> Data:
    X = r.normal(size=(ROWS, 6))
    return X, X @ r.normal(size=6) + 0.3 * r.standard_normal(ROWS)


def noise(r: np.random.Generator) -> Data:
    """Nothing to learn."""
    return r.normal(size=(ROWS, 5)), r.standard_normal(ROWS)


def noisy(r: np.random.Generator) -> Data:
    """The signal is less than half of the variance."""
    X = r.normal(size=(ROWS, 5))
    signal = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2]
    return X, signal + 1.5 * signal.std() * r.standard_normal(ROWS)


def scales(r: np.random.Generator) -> Data:
    """Units from thousandths to millions, far from zero."""
    U = r.uniform(size=(ROWS, 4))
    y = 1e5 * (np.sin(6 * U[:, 0]) + U[:, 1] + U[:, 2]) + 3e3 * r.standard_normal(ROWS)
    return U * [1e-3, 1, 1e3, 1e6] + [0, 0, 5e4, 1e9], y


def skewed(r: np.random.Generator) -> Data:
    """Log-normal inputs."""
    X = np.exp(1.2 * r.normal(size=(ROWS, 4)))
    return X, np.log1p(X[:, 0] * X[:, 1]) + 0.3 * np.sqrt(X[:, 2]) + 0.1 * r.standard_normal(ROWS)


def step(r: np.random.Generator) -> Data:
    """Discontinuous."""
    X = r.uniform(-1, 1, (ROWS, 2))
    return X, np.sign(np.sin(4 * X[:, 0]) + X[:, 1]) + 0.5 * X[:, 0] + 0.05 * r.standard_normal(ROWS)


def table(r: np.random.Generator) -> Data:
    X = r.normal(size=(ROWS, 4))
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] ** 2 + 0.2 * X[:, 2] + 0.1 * r.standard_normal(ROWS)


def varying(r: np.random.Generator) -> Data:
    """Noise that depends on the input."""
    X = r.uniform(-3, 3, (ROWS, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + (0.05 + 0.3 * np.abs(X[:, 0])) * r.standard_normal(ROWS)


def wave(r: np.random.Generator) -> Data:
    X = r.uniform(0, 10, (ROWS, 1))
    return X, np.sin(3 * X[:, 0]) + 0.2 * r.standard_normal(ROWS)


def stored(name: str) -> Callable[[np.random.Generator], Data]:
    """Some rows of a real data set."""

    def draw(r: np.random.Generator) -> Data:
        if name == "diabetes":
            from sklearn.datasets import load_diabetes

            X, y = load_diabetes(return_X_y=True)
        else:
            data = ig.datasets.load(name)
            assert data.y_test is not None
            X, y = np.vstack([data.X_train, data.X_test]), np.concatenate([data.y_train, data.y_test])
        rows = r.permutation(len(X))[:9000]
        return X[rows], (y if y.ndim == 1 else y[:, 0])[rows]

    return draw


SETS: dict[str, tuple[Callable[[np.random.Generator], Data], int, int]] = {  # and rows to learn from, and m
    "boston": (stored("boston"), 406, 50),
    "classes": (classes, 135, 15),
    "codes": (codes, 800, 50),
    "counts": (counts, 1000, 50),
    "diabetes": (stored("diabetes"), 342, 30),
    "friedman": (friedman, 500, 50),
    "friedman, few": (friedman, 200, 10),
    "heavy": (heavy, 800, 50),
    "irrelevant": (irrelevant, 1000, 50),
    "kin-40k, 500 rows": (stored("kin40k"), 500, 50),
    "kin-40k, 5000 rows": (stored("kin40k"), 5000, 100),
    "linear": (linear, 400, 30),
    "noise": (noise, 400, 30),
    "noisy": (noisy, 2000, 50),
    "pumadyn-32nm, 1000 rows": (stored("pumadyn32nm"), 1000, 30),
    "sarcos, 2000 rows": (stored("sarcos"), 2000, 100),
    "scales": (scales, 800, 50),
    "skewed": (skewed, 800, 50),
    "step": (step, 600, 50),
    "table": (table, 150, 15),
    "table, 40 rows": (table, 40, 10),
    "varying": (varying, 800, 50),
    "wave": (wave, 500, 20),
}


def run(name: str, way: str, seed: int) -> tuple[float, float, float]:
    """Error, log loss and seconds of one fit."""
    draw, n, m = SETS[name]
    X, y = draw(np.random.default_rng(1000 + seed))
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ig.SparseGPRegressor(n_inducing=m, random_state=seed, **WAYS[way]).fit(X[:n], y[:n])
    seconds = time.perf_counter() - began
    mean, std = model.predict(X[n:], return_std=True)
    return ig.metrics.smse(y[n:], mean, y[:n]), ig.metrics.msll(y[n:], mean, std**2, y[:n]), seconds


def pin(cores: object) -> None:
    os.sched_setaffinity(0, {cores.get()})  # type: ignore[attr-defined]
    run("table, 40 rows", "default", 0)  # loads compiled loops


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="data sets whose name contains this")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    context = get_context("spawn")
    cores = context.Queue()
    for core in sorted(os.sched_getaffinity(0))[: given.jobs]:
        cores.put(core)
    names = [name for name in SETS if given.only in name]
    with ProcessPoolExecutor(given.jobs, context, pin, (cores,)) as pool:
        pairs = [(name, way) for name in names for way in WAYS]
        jobs = {pair: [pool.submit(run, *pair, seed) for seed in range(given.seeds)] for pair in pairs}
        print("| data | n, m | " + " | ".join(WAYS) + " |\n|" + "---|" * (len(WAYS) + 2))
        for name in names:
            found = {way: np.mean([job.result() for job in jobs[name, way]], axis=0) for way in WAYS}
            cells = [f"{smse:.3f}; {msll:.2f}; {seconds:.1f} s" for smse, msll, seconds in found.values()]
            print(f"| {name} | {SETS[name][1]}, {SETS[name][2]} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
