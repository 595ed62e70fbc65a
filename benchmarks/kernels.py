"""Processor time of one value and gradient of the evidence by kernel, on one thread, in units of RBF's.

python benchmarks/kernels.py                                   # all kernels, VFE and FITC, two sizes
python benchmarks/kernels.py --sources old/src src             # two versions of the package, in turns
python benchmarks/kernels.py --rows neighbours --sizes 4000,100,8 --kernels rbf rational

A process for each source, which take turns; the least of all rounds counts, since other programs only add.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS = 7
NAMES = "rbf matern52 rational linear sum product curves columns".split()


def kernel_of(name: str, d: int) -> Any:
    """A kernel of d inputs by its name here."""
    import inducing as ig

    k, lengths = ig.kernels, np.linspace(1.5, 3.0, d)
    one = k.RBF(lengths, 1.0)
    made = {
        "rbf": lambda: one,
        "matern12": lambda: k.Matern12(lengths, 1.0),
        "matern32": lambda: k.Matern32(lengths, 1.0),
        "matern52": lambda: k.Matern52(lengths, 1.0),
        "rational": lambda: k.RationalQuadratic(lengths, 1.0, 1.5),
        "linear": lambda: one + k.Linear(0.1),
        "sum": lambda: one + k.Matern32(lengths, 0.5),
        "product": lambda: one * k.Matern32(2.0 * lengths, 0.5),
        "curves": lambda: one + k.Sum(tuple(k.Matern52(1.0, 0.2, columns=(i,)) for i in range(d))),
        "columns": lambda: k.RBF(lengths[: d // 2], 1.0, columns=tuple(range(d // 2))),
    }
    return made[name]()


def evaluation(row: str, size: tuple[int, int, int], name: str) -> Any:
    """One value and gradient, as a function without arguments."""
    import inducing as ig
    from inducing.inference.regression import approximation_of, as_problem, gradient_of

    n, m, d = size
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = np.sin(X[:, 0]) + X[:, -1] + 0.3 * rng.standard_normal(n)
    blocks = {"blocks": np.arange(n) // 100} if row == "pitc" else {}
    table_row = approximation_of(row, None, 20 if row == "neighbours" else None)
    P = as_problem(kernel_of(name, d), ig.bases.Points(X[:m]), table_row, 0.1, X, y, **blocks)
    return lambda: gradient_of(P)


def serve() -> None:
    """Answer lines of JSON with processor seconds of one evaluation each."""
    ready: dict[str, Any] = {}
    for line in sys.stdin:
        if line not in ready:
            row, size, name = json.loads(line)
            ready[line] = evaluation(row, tuple(size), name)
            ready[line]()
        repeats = 3
        start = time.process_time()
        for _ in range(repeats):
            ready[line]()
        print((time.process_time() - start) / repeats, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sources", nargs="+", default=[str(Path(__file__).resolve().parent.parent / "src")])
    parser.add_argument("--rows", nargs="+", default=["vfe", "fitc"])
    parser.add_argument("--sizes", nargs="+", default=["10000,100,8", "10000,500,8"])
    parser.add_argument("--kernels", nargs="+", default=NAMES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    servers = []
    for i, source in enumerate(given.sources):
        cache = os.path.join(os.environ.get("NUMBA_CACHE_DIR", tempfile.gettempdir()), f"kernels-{i}")
        own = os.environ | {"PYTHONPATH": source, "NUMBA_CACHE_DIR": cache}
        command = [sys.executable, __file__, "--serve"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        servers.append(subprocess.Popen(command, env=own, **pipes))
    print("milliseconds of processor time, and in units of RBF's of the same source:", *given.sources)
    for row in given.rows:
        for size in given.sizes:
            least: dict[str, list[float]] = {name: [np.inf] * len(servers) for name in given.kernels}
            for _ in range(given.rounds):
                for name in given.kernels:
                    for i, server in enumerate(servers):
                        asked = json.dumps([row, [int(k) for k in size.split(",")], name])
                        print(asked, file=server.stdin, flush=True)
                        least[name][i] = min(least[name][i], float(server.stdout.readline()))
            for name, seconds in least.items():
                cells = (
                    f"{1e3 * s:8.2f} ({s / least['rbf'][i] if 'rbf' in least else np.nan:4.2f})"
                    for i, s in enumerate(seconds)
                )
                print(f"{row:10} {size:>14}  {name:10}", *cells, flush=True)
    for server in servers:
        server.stdin.close()
        server.wait()


if __name__ == "__main__":
    main()
