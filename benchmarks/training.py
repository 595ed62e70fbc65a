"""Which row and recipe to train by: held-out error, log loss and time over several data sets, as a table in Markdown.

INDUCING_DATA=folder python benchmarks/training.py            # minutes; --large adds kin-40k, --seeds 3
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

import inducing as ig

WAYS = {
    "default": {},
    "points": {"basis": "points"},
    "vfe": {"approximation": "vfe"},
    "fitc, not judged": {"basis": "points", "validation_fraction": 0.0},
    "fitc, direct": {"recipe": "direct", "max_iter": 400},
    "vfe, direct": {"approximation": "vfe", "recipe": "direct", "max_iter": 400},
}
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def synthetic(name: str, rng: np.random.Generator) -> Split:
    n, N = {"noisy": (2000, 5000), "table": (150, 2150), "classes": (135, 2135), "step": (600, 2600), "friedman": (500, 2500)}[
        name
    ]
    if name == "friedman":
        X, y = ig.datasets.friedman1(N, rng=rng)
    elif name == "noisy":  # the signal is less than half of the variance
        X = rng.normal(size=(N, 5))
        signal = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2]
        y = signal + 1.5 * signal.std() * rng.standard_normal(N)
    elif name == "table":
        X = rng.normal(size=(N, 4))
        y = np.sin(X[:, 0]) + 0.3 * X[:, 1] ** 2 + 0.2 * X[:, 2] + 0.1 * rng.standard_normal(N)
    elif name == "classes":
        X = np.column_stack([rng.uniform(-3, 3, (N, 2)), np.eye(3)[rng.integers(0, 3, N)]])
        y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + X[:, 2:] @ [0, 1, -1] + 0.1 * rng.standard_normal(N)
    else:  # discontinuous
        X = rng.uniform(-1, 1, (N, 2))
        y = np.sign(np.sin(4 * X[:, 0]) + X[:, 1]) + 0.5 * X[:, 0] + 0.05 * rng.standard_normal(N)
    return X[:n], y[:n], X[n:], y[n:]


def split(name: str, seed: int) -> Split:
    rng = np.random.default_rng(seed)
    if name in ("noisy", "table", "classes", "step", "friedman"):
        return synthetic(name, rng)
    data = ig.datasets.load(name)
    X, y = data.X_train, data.y_train if data.y_train.ndim == 1 else data.y_train[:, 0]
    if name == "boston":
        X, y = np.vstack([X, data.X_test]), np.concatenate([y, data.y_test])
        order = rng.permutation(len(X))
        return X[order[:406]], y[order[:406]], X[order[406:]], y[order[406:]]
    return X, y, data.X_test, data.y_test if data.y_test.ndim == 1 else data.y_test[:, 0]


SETS = (
    ("friedman", 50),
    ("classes", 15),
    ("table", 15),
    ("step", 50),
    ("noisy", 50),
    ("boston", 50),
    ("sarcos", 100),
    ("pumadyn32nm", 25),
)
LARGE = (("kin40k", 64), ("kin40k", 256), ("kin40k", 512))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="kin-40k, too")
    parser.add_argument("--only", default="", help="data sets whose name contains this")
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    print("| data, m | " + " | ".join(WAYS) + " |\n|" + "---|" * (len(WAYS) + 1))
    for name, m in SETS + (LARGE if given.large else ()):
        if given.only not in name:
            continue
        cells = []
        for options in WAYS.values():
            found = []
            for seed in range(given.seeds):
                X, y, X_test, y_test = split(name, seed)
                began = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = ig.SparseGPRegressor(n_inducing=m, random_state=seed, **options).fit(X, y)
                seconds = time.perf_counter() - began
                mean, std = model.predict(X_test, return_std=True)
                found.append((ig.metrics.smse(y_test, mean, y), ig.metrics.msll(y_test, mean, std**2, y), seconds))
            smse, msll, seconds = np.mean(found, axis=0)
            cells.append(f"{smse:.4f}; {msll:.3f}; {seconds:.1f} s")
        print(f"| {name}, {m} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
