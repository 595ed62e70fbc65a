"""Evaluations and a fit alone, and beside a program that multiplies matrices on every core.

    python benchmarks/busy.py            # a minute or two

A core that two programs share gives each half of its time, so a ratio of 2 is what can be expected; more is
time that threads spend waiting for each other. Seconds are medians of several runs; the slowest is in
brackets.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np

import inducing as ig

PROGRAM = "import numpy as np\nA = np.ones((1500, 1500))\nwhile True: A @ A"
ROWS = (1100, 2000, 5000)


def calls() -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    rng = np.random.default_rng(0)
    X = rng.random((10_000, 8))
    y = np.sin(4.0 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(len(X))
    kernel, basis = ig.kernels.Matern32(np.full(8, 0.5)), ig.bases.Points(X[:500])

    def evaluation(row: str, n: int) -> Callable[[], object]:
        return lambda: ig.log_evidence_and_gradient(kernel, basis, row, 0.01, X[:n], y[:n])

    named: dict[str, Callable[[], object]] = {f"exact, {n} rows": evaluation("exact", n) for n in ROWS}
    named |= {f"{row}, (10000, 500)": evaluation(row, 10_000) for row in ("vfe", "fitc")}
    named["default, 2000 rows"] = lambda: ig.SparseGPRegressor(random_state=0).fit(X[:2000], y[:2000])
    return named


def seconds(call: Callable[[], object]) -> np.ndarray:
    """The seconds of at least three runs, of more for two seconds."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < 2.0:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return np.array(times)


def main() -> None:
    warnings.simplefilter("ignore")
    named = calls()
    for call in named.values():
        call()  # compiles
    alone = {name: seconds(call) for name, call in named.items()}
    program = subprocess.Popen([sys.executable, "-c", PROGRAM])
    try:
        time.sleep(2.0)
        for name, call in named.items():
            beside, before = seconds(call), np.median(alone[name])
            words = f"{before:8.3f} s alone, {np.median(beside):8.3f} beside ({beside.max():.3f})"
            print(f"{name:<22}{words}   ratio {np.median(beside) / before:.1f}", flush=True)
    finally:
        program.kill()
        program.wait()


if __name__ == "__main__":
    main()
