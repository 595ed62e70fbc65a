"""Two trees of this repository beside each other: do the same calls give the same numbers, as fast?

    git worktree add --detach ../before b9f16c8
    python benchmarks/trees.py ../before            # that tree and this one
    python benchmarks/trees.py ../before --rounds 0 # numbers alone
    python benchmarks/trees.py ../before --rounds 2 --tables yacht wine   # the default regressor of each tree

Each tree has a process of its own, with a compilation cache of its own. The calls are those that both trees
know, with every setting given, because defaults change; their numbers are compared in units of the largest
number of the call. For times the processes take turns, and the best of the rounds counts; tables are those of
tables.py, the first split of each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from problems import make

SIZES = ((10_000, 100, 8), (10_000, 500, 8), (44_000, 500, 21), (100_000, 500, 8))
ROWS = ("vfe", "fitc", "pitc")


def problem(ig: Any, size: tuple[int, int, int], row: str) -> Callable[[], float]:
    """Return a call of a row's evidence and gradient at this size, as benchmarks/run.py has it."""
    data = make(*size)
    options: dict[str, Any] = {"jitter": 1e-6 / data.variance}
    if row == "pitc":
        options["blocks"] = np.arange(len(data.X)) // len(data.Z)
    arguments = (
        ig.kernels.RBF(data.lengthscale, data.variance),
        ig.bases.Points(data.Z),
        row,
        data.noise,
        data.X,
        data.y,
    )
    return lambda: float(ig.log_evidence_and_gradient(*arguments, **options)[0])


def numbers(value: Any) -> Iterator[float]:
    """Yield every number of a nested answer, dictionaries in the order of their keys."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from numbers(value[key])
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from numbers(part)
    elif value is not None:
        yield from np.ravel(np.asarray(value, dtype=float)).tolist()


def regressions(ig: Any) -> Iterator[tuple[str, Any]]:
    """Yield evidence, gradient and predictions of every row of the table, for kernels and bases."""
    r = np.random.default_rng(0)
    X = r.standard_normal((240, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * r.standard_normal(240)
    T, blocks, noise = r.standard_normal((40, 3)), np.arange(240) // 24, 0.05
    k, lengths = ig.kernels, np.array([0.8, 1.1, 1.7])
    kernels = {
        "RBF": k.RBF(lengths, 1.3),
        "Matern12": k.Matern12(lengths, 1.3),
        "Matern32": k.Matern32(lengths, 1.3),
        "Matern52": k.Matern52(lengths, 1.3),
        "RationalQuadratic": k.RationalQuadratic(lengths, 1.3, 0.9),
        "sum": k.RBF(lengths, 1.3) + k.Matern32(2 * lengths, 0.4),
        "product": k.RBF(lengths, 1.3) * k.Matern52(2 * lengths, 0.7),
    }
    bases = {"points": ig.bases.Points(X[:30].copy())}
    wide = ig.bases.Multiscale(X[:30].copy(), np.broadcast_to(1.2 * lengths, (30, 3)))
    rows = ("exact", "sor", "dtc", "fitc", "fic", "vfe", "pitc", "pic")
    for kernel_name, kernel in kernels.items():
        for name, basis in (bases | ({"multiscale": wide} if kernel_name == "RBF" else {})).items():
            for row in rows:
                options = {"blocks": blocks} if row in ("pitc", "pic") else {}
                arguments = (kernel, None if row == "exact" else basis, row, noise, X, y)
                label = f"{row}, {kernel_name}, {name}"
                yield label, ig.log_evidence_and_gradient(*arguments, **options)[0]
                gradient = ig.log_evidence_and_gradient(*arguments, **options)[1]
                yield f"{label}: gradient", gradient
                post = ig.condition(*arguments, **options)
                asked = {"blocks": np.arange(40) % 10} if row in ("pic",) else {}
                yield f"{label}: predictions", post.predict(T, **asked)


def others(ig: Any) -> Iterator[tuple[str, Any]]:
    """Yield what streams, EP, committees, conjugate gradients and densities answer."""
    r = np.random.default_rng(1)
    X = r.uniform(-2, 2, (150, 2))
    f = np.sin(2 * X[:, 0]) + X[:, 1]
    y, labels = f + 0.1 * r.standard_normal(150), np.where(f > 0.3, 1.0, -1.0)
    T, kernel = r.uniform(-2, 2, (30, 2)), ig.kernels.RBF(np.array([0.7, 1.2]), 1.5)
    for name, likelihood, target in (
        ("Gaussian", ig.likelihoods.Gaussian(0.02), y),
        ("probit", ig.likelihoods.Probit(), labels),
        ("Laplace", ig.likelihoods.Laplace(0.2), y),
    ):
        post = ig.prior(kernel)
        for start in range(0, 150, 50):
            part = slice(start, start + 50)
            post = ig.update(post, likelihood, X[part], target[part], capacity=25, tolerance=1e-3)
        yield f"stream, {name}", post.predict(T)
    basis = ig.bases.Points(X[:20].copy())
    for row in ("dtc", "fitc", "vfe"):
        yield (
            f"kl, {row}",
            ig.kl_divergence(
                ig.condition(kernel, basis, row, 0.02, X, y), ig.condition(kernel, basis, "vfe", 0.03, X, y)
            ),
        )
    for name in ("bcm", "rbcm", "gpoe", "poe"):
        post = ig.condition(kernel, basis, name, 0.02, X, y, blocks=np.arange(150) // 30)
        yield f"committee, {name}", post.predict(T)
    for name in ("asor", "cg"):
        yield name, ig.condition(kernel, basis, name, 0.02, X, y).predict(T)


def calls(ig: Any) -> dict[str, list[float]]:
    """Return the numbers of every call by its name."""
    found: dict[str, list[float]] = {}
    for group in (regressions, others):
        for name, value in group(ig):
            found[name] = list(numbers(value))
    return found


def default(ig: Any, name: str) -> tuple[float, float, float]:
    """Return the seconds until the default regressor has learned a table and predicted, and its error."""
    from tables import rows_of

    rows = rows_of(name, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        model = ig.SparseGPRegressor(random_state=0).fit(rows.X, rows.y)
        learning = time.perf_counter() - start
        mean, _ = model.predict(rows.Xs, return_std=True)
    error = np.sqrt(np.mean((rows.ys - mean) ** 2) / np.mean((rows.ys - rows.y.mean()) ** 2))
    return learning, time.perf_counter() - start, float(error)


def serve() -> None:
    """Answer commands, a line of JSON each: the calls' numbers, a table's name, or an evaluation to time."""
    import inducing as ig

    ready: tuple[Any, Callable[[], float]] | None = None
    for line in sys.stdin:
        command = json.loads(line)
        if command == "calls":
            answer: Any = calls(ig)
        elif isinstance(command, str):
            answer = default(ig, command)
        else:
            size, row, times = command
            if ready is None or ready[0] != (size, row):
                ready = ((size, row), problem(ig, tuple(size), row))
                ready[1]()
            seconds = []
            for _ in range(times):
                start = time.perf_counter()
                ready[1]()
                seconds.append(time.perf_counter() - start)
            answer = min(seconds)
        print("answer", json.dumps(answer), flush=True)


class Tree:
    """A process with the package of one tree."""

    def __init__(self, root: Path, cache: str) -> None:
        environment = os.environ | {"PYTHONPATH": str(root.resolve() / "src"), "NUMBA_CACHE_DIR": cache}
        environment["INDUCING_PROGRESS"] = "0"
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, command: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        print(json.dumps(command), file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith("answer "):
                return json.loads(line[7:])
        raise RuntimeError(f"the process ended while it was asked {command}")


def compare(old: dict[str, list[float]], new: dict[str, list[float]]) -> None:
    """Print by how much the calls differ, the worst first, in units of each call's largest number."""
    differences = []
    for name, before in old.items():
        a, b = np.array(before), np.array(new[name])
        if a.shape != b.shape:
            differences.append((np.inf, f"{name} ({a.size} numbers, {b.size} now)"))
        else:
            differences.append((float(np.abs(a - b).max() / np.abs(a).max()), name))
    differences.sort(reverse=True)
    total = sum(len(before) for before in old.values())
    print(f"{len(old)} calls, {total} numbers; the calls that differ most:")
    for difference, name in differences[:8]:
        print(f"  {difference:8.1e}  {name}")


def race(old: Tree, new: Tree, rounds: int, sizes: list[tuple[int, int, int]]) -> None:
    """Print the best time of each tree and their ratio for every size and row."""
    print(f"{'size':>18} {'row':>5} {'before':>9} {'now':>9} ratio")
    for size in sizes:
        for row in ROWS:
            times = max(1, 300_000_000 // (size[0] * size[1] * 30))
            best = [np.inf, np.inf]
            for turn in range(rounds):
                for i in (0, 1) if turn % 2 else (1, 0):
                    best[i] = min(best[i], (old, new)[i].ask([size, row, times]))
            before, now = (1e3 * seconds for seconds in best)
            print(f"{size!s:>18} {row:>5} {before:6.1f} ms {now:6.1f} ms {now / before:.3f}")


def race_defaults(old: Tree, new: Tree, rounds: int, names: list[str]) -> None:
    """Print the best times of each tree's default regressor on tables, the errors, and the mean ratio."""
    print(f"{'table':<14} {'before':>9} {'now':>9} {'learned':>9} {'ratio':>6}   errors")
    ratios = []
    for name in names:
        best = [[np.inf] * 3, [np.inf] * 3]  # seconds to learn, seconds in all, error
        for turn in range(rounds):
            for i in (0, 1) if turn % 2 else (1, 0):
                best[i] = [min(pair) for pair in zip(best[i], (old, new)[i].ask(name), strict=True)]
        (_, before, past), (learned, now, error) = best
        ratios.append(now / before)
        seconds = f"{before:7.1f} s {now:7.1f} s {learned:7.1f} s"
        print(f"{name:<14} {seconds} {ratios[-1]:6.2f}   {past:.4f} {error:.4f}")
    print(f"geometric mean of {len(names)} tables: {np.exp(np.mean(np.log(ratios))):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, nargs="?", help="the folder of the other tree")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each tree; 0: no times")
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="the first so many of four sizes")
    parser.add_argument("--tables", nargs="+", default=[], help="tables for the default regressor, alone")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve()
    if given.before is None:
        parser.error("give the folder of the other tree")
    with tempfile.TemporaryDirectory() as caches:
        here = Path(__file__).resolve().parents[1]
        old, new = Tree(given.before, f"{caches}/old"), Tree(here, f"{caches}/new")
        if given.tables:
            race_defaults(old, new, max(1, given.rounds), given.tables)
        else:
            compare(old.ask("calls"), new.ask("calls"))
        if given.rounds and not given.tables:
            race(old, new, given.rounds, list(SIZES[: given.sizes]))
        for tree in (old, new):
            tree.process.stdin.close()  # type: ignore[union-attr]
            tree.process.wait()


if __name__ == "__main__":
    main()
