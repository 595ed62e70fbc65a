"""Coverage of 90 % intervals on made sets whose noise is not what the model assumes.

python benchmarks/intervals.py [--sets 20] [--quick]
"""

from __future__ import annotations

import argparse

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
    half = len(X) // 2 if conformal == "split" else len(X)
    model = ig.SparseGPRegressor(approximation="vfe", n_inducing=30, max_iter=30, random_state=0)
    model.fit(X[:half], y[:half])
    if conformal == "split":
        model.calibrate(X[half:], y[half:])
    low, high = model.predict_interval(Xs, level, conformal=conformal).T
    return float(np.mean((low <= ys) & (ys <= high)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    sets, n = (2, 100) if options.quick else (options.sets, 400)
    print(f"| {sets} sets of {n} rows | " + " | ".join(str(way or "plain") for way in WAYS) + " |")
    print("|---|" + "---|" * len(WAYS))
    for kind in KINDS:
        cells = []
        for way in WAYS:
            kept = [coverage_of(made(kind, seed, n, 5 * n), way) for seed in range(sets)]
            cells.append(f"{np.mean(kept):.3f} ± {np.std(kept, ddof=1) / np.sqrt(sets):.3f}")
        print(f"| {kind} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
