"""A soak: millions of rows in adversarial order, with outliers, and what is left of the process after them.

python benchmarks/soak.py                                  # ten million rows of each order; minutes
python benchmarks/soak.py sorted repeated --rows 1000000 --seed 3

Every order feeds one model; after each tenth its predictions are finite, its variances positive, its factors
those of a proper process, and its memory that of the first tenth. The error on clean rows at the end is told:
the order "plain" has rows in random order and no outliers.
"""

from __future__ import annotations

import argparse
import gc
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import inducing as ig

BLOCK = 100_000  # rows at a time
CAPACITY, D = 30, 2
TENTHS = 10
MEMORY = 32 << 20  # bytes that the process may grow after the first tenth

Rows = tuple[np.ndarray, np.ndarray]


def truth(X: np.ndarray) -> np.ndarray:
    return np.sin(X[:, 0]) + 0.5 * np.cos(2.0 * X[:, 1])


def plain(n: int, rng: np.random.Generator) -> Rows:
    """Rows in random order, without outliers."""
    X = rng.uniform(-3, 3, (n, D))
    return X, truth(X) + 0.1 * rng.standard_normal(n)


def in_order(n: int, rng: np.random.Generator) -> Rows:
    """Rows sorted by their first input: neighbours are singular to rounding."""
    X, y = plain(n, rng)
    order = np.argsort(X[:, 0])
    return X[order], y[order]


def repeated(n: int, rng: np.random.Generator) -> Rows:
    """The same hundred inputs again and again, bit by bit."""
    X = np.random.default_rng(0).uniform(-3, 3, (100, D))[rng.integers(0, 100, n)]
    return X, truth(X) + 0.1 * rng.standard_normal(n)


def outliers(n: int, rng: np.random.Generator) -> Rows:
    """A row in a thousand is a thousand times the noise off, one in ten thousand far from all others."""
    X, y = plain(n, rng)
    y[rng.random(n) < 1e-3] += 100.0
    far = rng.random(n) < 1e-4
    X[far] *= 10.0 ** rng.uniform(1, 8, (far.sum(), 1))
    return X, y


def jumping(n: int, rng: np.random.Generator) -> Rows:
    """Two places in turn, a thousand rows each: what was learned at one is of no use at the other."""
    X, _ = plain(n, rng)
    X[:, 0] = 0.1 * X[:, 0] + np.where(np.arange(n) // 1000 % 2, -2.5, 2.5)
    return X, truth(X) + 0.1 * rng.standard_normal(n)


def constant(n: int, rng: np.random.Generator) -> Rows:
    """Long runs of one input and one target, between rows of the usual kind."""
    X, y = plain(n, rng)
    run = np.arange(n) % 2000 < 1900
    X[run], y[run] = 0.5, truth(np.full((1, D), 0.5))[0]
    return X, y


ORDERS: dict[str, Callable[[int, np.random.Generator], Rows]] = {
    "plain": plain,
    "sorted": in_order,
    "repeated": repeated,
    "outliers": outliers,
    "jumping": jumping,
    "constant": constant,
}


def resident() -> int:
    """Bytes of memory that the process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def sound(model: ig.OnlineGPRegressor, X: np.ndarray) -> str:
    """What is wrong with the process, or nothing."""
    mean, std = model.predict(X, return_std=True)
    post = model.posterior_
    if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(std)) and np.all(std > 0)):
        return "predictions that are no numbers"
    K = post.basis.gram(post.kernel)
    gap = np.max(np.abs(post.L @ post.L.T - K)) / np.max(np.diag(K))
    if len(post) > CAPACITY or not gap < 1e-9:
        return f"{len(post)} functions, L off by {gap:.1e}"
    return "" if np.all(np.isfinite(post.A)) else "a factor that is no number"


def soak(name: str, rows: int, seed: int) -> int:
    """Feed one order; returns how often something was wrong."""
    rng, wrong, start = np.random.default_rng(seed), 0, time.process_time()
    X, _ = plain(2000, np.random.default_rng(99))
    model = ig.OnlineGPRegressor(n_inducing=CAPACITY, warmup=500, random_state=0)
    model.partial_fit(*plain(1000, rng))
    held, read, tenth = 0, 0, -(-rows // TENTHS)
    while read < rows:
        n = min(BLOCK, rows - read, tenth - read % tenth)
        model.partial_fit(*ORDERS[name](n, rng))
        read += n
        if read % tenth and read < rows:
            continue
        gc.collect()
        held = held or resident()
        grown = resident() - held
        found = sound(model, X) or (f"{grown >> 20} MiB more memory" if grown > MEMORY else "")
        wrong += bool(found)
        if found:
            print(f"  {name} after {read} rows: {found}", flush=True)
    rmse = float(np.sqrt(np.mean((model.predict(X) - truth(X)) ** 2)))
    seconds = time.process_time() - start
    what = f"RMSE {rmse:.3f}, {grown >> 10} KiB more memory, {seconds:.0f} s of processor time"
    print(f"{name}: {read} rows, seed {seed}, {wrong} wrong, {what}", flush=True)
    return wrong


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("orders", nargs="*", help=f"of {', '.join(ORDERS)}; all by default")
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--seed", type=int, default=0)
    told = options.parse_args()
    warnings.simplefilter("ignore", ig.errors.DriftWarning)  # there is drift
    if sum(soak(name, told.rows, told.seed) for name in told.orders or ORDERS):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
