"""First calls: cold (a fresh compilation cache), warm (a new process, a warm cache) and steady (once more).

python benchmarks/cold.py                          # every case, two processes each: some minutes
python benchmarks/cold.py classifier stream        # some of them
python benchmarks/cold.py --compiled classifier    # and what is compiled, with the seconds of each function

Seconds of wall clock, and of CPU of the process that calls; while that one compiles, a second process may
compile, too (inducing/numerics/ahead.py), so on a quiet machine the clock counts, and on one that others use
the CPU time says what is left for the first process. A first call is timed with the imports that it brings,
after Python and NumPy have started.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).resolve().parent.parent / "src"
ALLOWED = 4.0  # seconds that a cold first call may take beyond a warm one


def table(n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Rows and a smooth target with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(n, 4))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)


def regressor(n: int = 3000, **options: Any) -> Callable[[], Any]:
    def call() -> None:
        import inducing as ig

        X, y = table(n)
        y = np.floor(np.exp(0.3 * y)) if options.get("likelihood") == "poisson" else y
        ig.SparseGPRegressor(random_state=0, max_iter=5, **options).fit(X, y).predict(X[:10], return_std=True)

    return call


def classifier(**options: Any) -> Callable[[], Any]:
    def call() -> None:
        import inducing as ig

        X, y = table(2000)
        ig.SparseGPClassifier(random_state=0, max_iter=5, **options).fit(X, y > 0).predict_proba(X[:10])

    return call


def stream(likelihood: str = "gaussian") -> Callable[[], Any]:
    def call() -> None:
        import inducing as ig

        X, y = table(600)
        y = np.floor(np.exp(0.3 * y)) if likelihood == "poisson" else y
        ig.OnlineGPRegressor(random_state=0, n_inducing=40, likelihood=likelihood).fit(X, y).predict(X[:10])

    return call


def density() -> None:
    import inducing as ig

    ig.GPDensity().fit(table(600)[0][:, :2]).score_samples(table(10)[0][:, :2])


def evidence(kernel: str, row: str, rows: int = 3000) -> Callable[[], Any]:
    def call() -> None:
        import inducing as ig

        X, y = table(rows)
        k, b = getattr(ig.kernels, kernel)(np.ones(4)), ig.bases.Points(X[:100])
        options = {"blocks": np.arange(rows) // 100} if row == "pitc" else {}
        ig.log_evidence_and_gradient(k, b, row, 0.1, X, y, **options)

    return call


def conjugate_gradients() -> None:
    import inducing as ig

    X, y = table()
    ig.condition(ig.kernels.RBF(np.ones(4)), ig.bases.Points(X[:10]), "cg", 0.1, X, y).predict(X[:10])


def compiled_predictor() -> None:
    import inducing as ig

    X, y = table(300)
    model = ig.condition(ig.kernels.RBF(np.ones(4)), ig.bases.Points(X[:10]), "fitc", 0.1, X, y)
    model.compile()(X[0])


def command(*arguments: str) -> Callable[[], Any]:
    """A command on a table of 1,000 rows, t.csv, in a folder of its own."""

    def call() -> None:
        from inducing.cli import app

        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            X, y = table(1000)
            lines = [",".join(map(str, [*x, t])) for x, t in zip(X, y, strict=True)]
            Path(folder, "t.csv").write_text("\n".join(["a,b,c,d,y", *lines, ""]))
            filled = [word.replace("FOLDER", folder) for word in arguments]
            app(filled, standalone_mode=False)

    return call


CASES: dict[str, Callable[[], Any]] = {
    "regressor": regressor(),
    "regressor, sparse": regressor(approximation="fitc", n_inducing=100, kernel="rbf"),
    "regressor, matern": regressor(approximation="fitc", n_inducing=100, kernel="matern52"),
    "regressor, neighbours": regressor(approximation="neighbours", n_inducing=50),
    "regressor, poisson": regressor(likelihood="poisson", n_inducing=50),
    "regressor, learned noise": regressor(noise="learned", n_inducing=50),
    "classifier": classifier(),
    "classifier, neighbours": classifier(approximation="neighbours"),
    "ep": classifier(method="ep", n_inducing=40),
    "online classifier": classifier(method="online", n_inducing=40),
    "stream": stream(),
    "stream, student": stream("studentt"),
    "stream, poisson": stream("poisson"),
    "density": density,
    "evidence, pitc": evidence("RBF", "pitc"),
    "conjugate gradients": conjugate_gradients,
    "compiled predictor": compiled_predictor,
    "command fit": command("fit", "FOLDER/t.csv", "--target", "y", "--out", "FOLDER/m.gp"),
    "command stream": command("stream", "FOLDER/t.csv", "--target", "y", "--out", "FOLDER/m.gp"),
    "command compare": command("compare", "FOLDER/t.csv", "--target", "y", "-o", "FOLDER/t.png"),
}


class Compilations:
    """Seconds of CPU that Numba spends on each function, without those of the functions it calls."""

    def __init__(self) -> None:
        from numba.core import event

        self.open: list[list[Any]] = []
        self.seconds: dict[str, float] = {}
        listener = type("Listener", (event.Listener,), {"on_start": self.start, "on_end": self.end})
        event.register("numba:compile", listener())

    def start(self, event: Any) -> None:
        self.open.append([time.process_time(), 0.0])

    def end(self, event: Any) -> None:
        began, inner = self.open.pop()
        took = time.process_time() - began
        if self.open:
            self.open[-1][1] += took
        function = event.data["dispatcher"].py_func
        name = f"{function.__module__.removeprefix('inducing.')}.{function.__name__}"
        self.seconds[name] = self.seconds.get(name, 0.0) + took - inner


def measured(name: str, compiled: bool) -> dict[str, Any]:
    """Time the case's first and second call in this process."""
    watch = Compilations() if compiled else None
    times = []
    for _ in range(2):
        wall, cpu = time.perf_counter(), time.process_time()
        CASES[name]()
        times += [time.perf_counter() - wall, time.process_time() - cpu]
    return {"times": times, "compiled": watch.seconds if watch is not None else {}}


def in_new_process(name: str, cache: str, compiled: bool) -> dict[str, Any]:
    environment = dict(os.environ, NUMBA_CACHE_DIR=cache, PYTHONPATH=str(SOURCE))
    words = [sys.executable, __file__, "--child", name, *(["--compiled"] if compiled else [])]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=", ".join(CASES))
    parser.add_argument("--compiled", action="store_true", help="list what is compiled")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(measured(asked.names[0], asked.compiled)))
        return
    heads = "cold first", "warm first", "steady", "cold - warm"
    print(f"{'wall / CPU seconds':<26}" + "".join(f"{head:>16}" for head in heads))
    late = []
    for name in asked.names or CASES:
        with tempfile.TemporaryDirectory() as cache:
            cold = in_new_process(name, cache, asked.compiled)
            warm = in_new_process(name, cache, False)["times"]
        first = cold["times"]
        more = first[0] - warm[0], first[1] - warm[1]
        pairs = first[:2], warm[:2], warm[2:], more
        print(f"{name:<26}" + "".join(f"{wall:>8.2f} /{cpu:>6.2f}" for wall, cpu in pairs), flush=True)
        late += [name] if more[0] > ALLOWED else []
        ranked = sorted(cold["compiled"].items(), key=lambda item: -item[1])
        for function, seconds in ranked[:40]:
            print(f"    {seconds:6.2f}  {function}")
        if ranked:
            print(f"    {sum(seconds for _, seconds in ranked):6.2f}  in {len(ranked)} functions")
    print(f"more than {ALLOWED:g} s by the clock beyond the warm call: {', '.join(late) or 'none'}")


if __name__ == "__main__":
    main()
