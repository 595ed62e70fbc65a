"""Coverage of 90 % intervals on made sets whose noise is not what the model assumes.

python benchmarks/intervals.py [--sets 20] [--from 0] [--quick]

The coverage of one set is itself random, beyond the rows it is judged by: with n rows to calibrate by that of
split follows Beta(k, n + 1 - k), k = ⌈.9(n + 1)⌉, whatever the noise, so that its standard error is known and
a few sets do not have to estimate it. Each half of the rows calibrates in turn, and the two are averaged. In
brackets: how many standard errors the mean is from what was promised.
"""

from __future__ import annotations

import argparse
from math import ceil, sqrt

import numpy as np

import inducing as ig

KINDS = ("Gaussian noise", "heavy tails", "noise that grows", "skewed noise")
WAYS = (None, "jackknife+", "split")
LEVEL = 0.9
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def made(kind: str, seed: int, n: int, t: int) -> Split:
    """A smooth function of three inputs with noise of a kind: n rows to learn from, t to judge by."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n + t, 3))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2]
    noise = {
        "Gaussian noise": lambda: rng.standard_normal(n + t),
        "heavy tails": lambda: rng.standard_t(1.5, n + t),
        "noise that grows": lambda: rng.standard_normal(n + t) * np.exp(X[:, 0]),
        "skewed noise": lambda: rng.exponential(1.0, n + t) ** 2,
    }[kind]()
    y = f + 0.3 * noise
    return X[:n], y[:n], X[n:], y[n:]


def coverage_of(split: Split, conformal: str | None, level: float = LEVEL) -> float:
    """The share of new rows inside the interval; "split" learns from half of the rows alone."""
    X, y, Xs, ys = split
    halves = np.array_split(np.arange(len(X)), 2)
    kept = []
    for learned, held in (halves, halves[::-1]) if conformal == "split" else [(np.arange(len(X)), None)]:
        model = ig.SparseGPRegressor(approximation="vfe", n_inducing=30, max_iter=30, random_state=0)
        model.fit(X[learned], y[learned])
        if held is not None:
            model.calibrate(X[held], y[held])
        low, high = model.predict_interval(Xs, level, conformal=conformal).T
        kept.append(np.mean((low <= ys) & (ys <= high)))
    return float(np.mean(kept))


def of_split(sets: int, n: int, t: int, level: float = LEVEL) -> tuple[float, float]:
    """The coverage that split promises on sets of n rows, n/2 of which calibrate, and the standard error of
    its mean: the Beta law of two calibrations a set, and t rows to judge by.
    """
    rows = n // 2
    k = ceil(level * (rows + 1))
    p = k / (rows + 1)
    return p, sqrt((p * (1 - p) / (rows + 2) / 2 + p * (1 - p) / t) / sets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    sets, n = (2, 100) if options.quick else (options.sets, 400)
    print(f"| {sets} sets of {n} rows | " + " | ".join(str(way or "plain") for way in WAYS) + " |")
    print("|---|" + "---|" * len(WAYS), flush=True)
    for kind in KINDS:
        cells = []
        for way in WAYS:
            seeds = range(options.first, options.first + sets)
            kept = [coverage_of(made(kind, seed, n, 5 * n), way) for seed in seeds]
            promised, error = of_split(sets, n, 5 * n)
            if way != "split":
                promised, error = LEVEL, np.std(kept, ddof=1) / np.sqrt(sets)
            away = (np.mean(kept) - promised) / error
            cells.append(f"{np.mean(kept):.3f} ± {error:.3f} ({away:+.1f})")
        print(f"| {kind} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
