"""Workers killed in the middle of fits: each fit must end where an undisturbed one does.

python benchmarks/faults.py            # 20 fits on two local workers, one SIGKILL in each at a random moment;
minutes
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from pathlib import Path

import numpy as np

import inducing as ig
from inducing.sources import distributed

ITERATIONS = 8


def parquet(folder: Path, n: int, parts: int) -> ig.sources.Source:
    """Rows in files, a part each."""
    import pandas as pd

    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    y = np.sin(X @ [1.0, 2.0, 0.5]) + 0.3 * rng.standard_normal(n)
    for i, rows in enumerate(np.array_split(np.arange(n), parts)):
        pd.DataFrame(np.column_stack([X, y])[rows], columns=["a", "b", "c", "y"]).to_parquet(
            folder / f"{i:03}.parquet"
        )
    return ig.as_source(folder, "y")


def fit(source: ig.sources.Source, m: int) -> ig.Fit:
    kernel, Z = ig.kernels.RBF([0.9, 0.8, 1.0]), np.random.default_rng(1).uniform(-2, 2, (m, 3))
    return ig.fit(kernel, ig.bases.Points(Z), "vfe", 0.2, source, max_iterations=ITERATIONS, progress=False)


class Killer:
    """Counts the parts that are done, of all passes of a fit; after so many of them a worker process gets
    SIGKILL.
    """

    def __init__(self, pid: int | None = None, after: int | None = None) -> None:
        self.pid, self.after, self.done = pid, after, 0

    def __call__(self, done: int, parts: int | None) -> None:
        self.done += 1
        if self.pid is not None and self.done == self.after:
            os.kill(self.pid, signal.SIGKILL)


def same(a: ig.Fit, b: ig.Fit) -> float:
    """The largest relative difference of value, hyperparameters and basis."""
    pairs = [(a.value, b.value), (a.noise, b.noise), (a.basis.parameters["Z"], b.basis.parameters["Z"])]
    pairs += [(a.kernel.parameters[name], b.kernel.parameters[name]) for name in a.kernel.parameters]
    return max(float(np.max(np.abs(np.subtract(p, q))) / np.max(np.abs(q))) for p, q in pairs)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=20)
    options.add_argument("--rows", type=int, default=200_000)
    options.add_argument("--functions", type=int, default=64)
    options.add_argument("--seed", type=int, default=0)
    told = options.parse_args()
    rng = np.random.default_rng(told.seed)
    right = hits = 0
    with tempfile.TemporaryDirectory() as folder, distributed.cluster(workers=2) as client:
        source = distributed.spread(parquet(Path(folder), told.rows, 16), client)
        fit(source, told.functions)  # compiles
        counted = Killer()
        expected = fit(source.watched(counted), told.functions)
        print(
            f"undisturbed: {counted.done} parts in all passes together, log evidence {expected.value:.6f}",
            flush=True,
        )
        for run in range(told.runs):
            client.wait_for_workers(2)
            killer = Killer(
                int(rng.choice(sorted(client.run(os.getpid).values()))), int(rng.integers(1, counted.done))
            )
            start = time.perf_counter()
            gap = same(fit(source.watched(killer), told.functions), expected)
            gone = killer.pid not in client.run(os.getpid).values()
            hits, right = hits + gone, right + (gap == 0.0)
            word = f"killed {killer.pid} after {killer.after} parts" if gone else "not killed"
            print(
                f"run {run + 1}: {word}, {time.perf_counter() - start:.1f} s, largest difference {gap:.1e}",
                flush=True,
            )
    print(f"{hits} kills in {told.runs} runs, {right} results equal to the undisturbed one bit by bit")
    if right < told.runs or hits < told.runs:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
