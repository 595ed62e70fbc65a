"""One value and gradient on 1, 2, 4, … cores, each in a process of its own under `taskset`, beside dgemm.

python benchmarks/cores.py                       # FITC and VFE with RBF, up to 16 cores: two or three minutes
python benchmarks/cores.py --rows fitc --kernels Matern52 --cores 1 2 4

Milliseconds, the least of several runs; `gain` is over one core. A `*` marks a time that is more than 5 %
slower than with fewer cores. The last lines are of the most cores: the gain as a share of dgemm's own, and
the rate of the products that a row of the table cannot avoid (8nm² or 5nm²) as a share of dgemm's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).resolve().parent.parent / "src"
SIZES = [(500, 20, 8), (2000, 100, 8), (10_000, 100, 8), (10_000, 500, 8), (44_000, 500, 21)]
PRODUCT = 3000  # rows of the square matrices of dgemm
PRODUCTS = {"vfe": 5.0, "dtc": 5.0, "sor": 5.0}  # times nm², in flops; 8 for the others


def least(call: object, seconds: float = 0.8) -> float:
    """The least milliseconds of a call, after one that warms it up."""
    assert callable(call)
    call()
    times, start = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begin))
    return min(times)


def child(row: str, kernel: str) -> None:
    """Print the milliseconds at every size, and dgemm's."""
    import inducing as ig

    rng, found = np.random.default_rng(0), []
    for n, m, d in SIZES:
        X = rng.standard_normal((n, d))
        y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)
        k, b = getattr(ig.kernels, kernel)(np.full(d, d**0.5)), ig.bases.Points(X[:m])
        found.append(least(lambda k=k, b=b, X=X, y=y: ig.log_evidence_and_gradient(k, b, row, 0.1, X, y)))
    A = rng.standard_normal((PRODUCT, PRODUCT))
    print(json.dumps([*found, least(lambda: A @ A)]))


def on_cores(count: int, row: str, kernel: str) -> list[float]:
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:count]))
    words = ["taskset", "-c", cores, sys.executable, __file__, "--child", row, kernel]
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    environment["PYTHONPATH"] = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def print_shares(row: str, one: list[float], most: list[float]) -> None:
    """Print what the gain of the most cores is of dgemm's, and the rate of the products of dgemm's rate."""
    gains = [a / b for a, b in zip(one, most, strict=True)]
    rate = 2.0 * PRODUCT**3 / most[-1]
    flops = [PRODUCTS.get(row, 8.0) * n * m * m for n, m, _ in SIZES]
    shares = [gain / gains[-1] for gain in gains[:-1]], [f / t / rate for f, t in zip(flops, most)]
    for name, values in zip(("gain", "rate"), shares, strict=True):
        print(f"{name:>6}" + "".join(f"{100 * value:>17.0f} % " for value in values))


def main() -> None:
    most = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", default=["fitc", "vfe"])
    parser.add_argument("--kernels", nargs="*", default=["RBF"])
    parser.add_argument("--cores", nargs="*", type=int, default=[c for c in (1, 2, 4, 8, 16) if c <= most])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(*asked.child)
        return
    names = [",".join(map(str, size)) for size in SIZES] + [f"dgemm {PRODUCT}"]
    for row in asked.rows:
        for kernel in asked.kernels:
            print(f"\n{row}, {kernel}: milliseconds (gain)")
            print(f"{'cores':>6}" + "".join(f"{name:>20}" for name in names))
            before: list[list[float]] = []
            for count in asked.cores:
                now = on_cores(count, row, kernel)
                line = f"{count:>6}"
                for i, value in enumerate(now):
                    slower = before and value > 1.05 * min(other[i] for other in before)
                    gain = before[0][i] / value if before else 1.0
                    line += f"{value:>11.1f} ({gain:5.2f}){'*' if slower else ' '}"
                print(line, flush=True)
                before.append(now)
            print_shares(row, before[0], before[-1])


if __name__ == "__main__":
    main()
