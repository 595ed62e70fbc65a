"""Workers: how much faster two are than one, what Dask costs, and what that says of a hundred workers and 10⁹
rows.

    python benchmarks/cluster.py --only speed         # speed, overhead, terms: a minute or so each
    python benchmarks/cluster.py --only overhead
    python benchmarks/cluster.py --only terms
    python benchmarks/cluster.py --picture docs/images/scaling.png \\
        --rate 40 --latency 0.02 --task 0.001 --spread 0.05
    python benchmarks/cluster.py --rows 20000 --functions 32              # does it all work?

One evaluation is VFE's evidence with its gradient in everything, d = 8. All workers are processes of this
machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe
from problems import Data, make
from report import table

import inducing as ig
from inducing.numerics import workers
from inducing.sources import distributed
from inducing.sources.source import Part, Source

D, PART, ROUNDS = 8, 50_000, 2  # inputs, rows of a part, rounds of which the best counts


@contextmanager
def rows(n: int, m: int) -> Iterator[tuple[Data, Source]]:
    """The problem with its rows in memory maps, which every worker opens for itself."""
    data = make(n, m, D)
    with tempfile.TemporaryDirectory() as folder:
        for name, array in (("X", data.X), ("y", data.y)):
            np.save(Path(folder) / f"{name}.npy", array)
        X, y = (np.load(Path(folder) / f"{name}.npy", mmap_mode="r") for name in "Xy")
        yield data, ig.as_source(X, y, chunk_rows=PART)


def evaluation(data: Data, source: Source) -> Callable[[], Any]:
    """One value and gradient; parts are read and loops compiled by a small one before."""
    kernel, basis = ig.kernels.RBF(data.lengthscale, data.variance), ig.bases.Points(data.Z)

    def once(functions: int = len(basis)) -> None:
        ig.log_evidence_and_gradient(kernel, basis[:functions], "vfe", data.noise, source)

    once(8)
    return once


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def speed(n: int, m: int) -> str:
    times = []
    with rows(n, m) as (data, source):
        for workers in (1, 2):
            with distributed.cluster(workers=workers) as client:
                call = evaluation(data, distributed.spread(source, client))
                times.append(min(seconds(call) for _ in range(ROUNDS)))
    rates = [4 * n * m * m / t / 1e9 for t in times]
    numbered = zip((1, 2), times, rates, strict=True)
    lines = [[str(w), f"{t:.2f}", f"{rate:.0f}", f"{times[0] / t:.2f}"] for w, t, rate in numbered]
    return table(["workers of one thread", "s", "GFlop/s", "times as fast"], lines)


def overhead(n: int, m: int) -> str:
    """The same threads in this process and as workers, in turns, so that both have the machine in the same
    mood.
    """
    lines = []
    with rows(n, m) as (data, source):
        for count in (1, 2):
            with distributed.cluster(workers=count) as client:
                calls = (
                    evaluation(data, source.cached()),
                    evaluation(data, distributed.spread(source, client)),
                )
                times = []
                for _ in range(3 * ROUNDS):
                    with workers.using(threads=count):
                        near = seconds(calls[0])
                    times.append((near, seconds(calls[1])))
            near, far = np.min(times, axis=0)
            lines.append([str(count), f"{near:.2f}", f"{far:.2f}", f"{100 * (far / near - 1):+.1f} %"])
    return table(["threads, or workers of one", "in this process, s", "by Dask, s", "more"], lines)


def terms(n: int, m: int) -> str:
    """What the model of docs/scaling.md is made of: the fixed and the growing cost of a pass, and how parts
    differ in time.
    """
    with rows(n, m) as (data, source), distributed.cluster(workers=2) as client:
        X, idle = data.X, {}
        for parts in (8, 200):
            empty = distributed.spread(ig.as_source(X[: 10 * parts], chunk_rows=10), client)
            empty.total(_nothing)
            idle[parts] = min(seconds(lambda empty=empty: empty.total(_nothing)) for _ in range(10))
        far = distributed.spread(source, client)
        setting = ig.kernels.RBF(data.lengthscale, data.variance), ig.bases.Points(data.Z)
        list(far.map(_timed, *setting))
        times = np.array(list(far.map(_timed, *setting)))
    task = (idle[200] - idle[8]) / (192 + 192 / 8)
    latency = idle[8] - 9 * task
    return table(
        ["", ""],
        [
            ["a pass that does nothing, 8 parts", f"{1e3 * idle[8]:.1f} ms"],
            ["the same, 200 parts", f"{1e3 * idle[200]:.1f} ms"],
            ["fixed cost of a pass", f"{1e3 * latency:.1f} ms"],
            ["each task", f"{1e3 * task:.2f} ms"],
            ["standard deviation of a part's time over its mean", f"{times.std() / times.mean():.3f}"],
        ],
    )


def _nothing(part: Part) -> int:
    return 0


def _timed(part: Part, kernel: Any, basis: Any) -> float:
    start = time.perf_counter()
    ig.log_evidence(kernel, basis, "vfe", 0.02, part.X, part.y)
    return time.perf_counter() - start


# the model --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """Seconds of one evaluation (two passes) as a function of rows n, functions m and workers w; see
    docs/scaling.md.
    """

    rate: float  # flop/s of a worker
    latency: float  # s, fixed, of a pass
    task: float  # s of the scheduler for each task
    spread: float  # standard deviation of a part's time over its mean
    network: float = 1.25e9  # bytes/s
    part_rows: int = 1_000_000

    def __call__(self, n: float, m: int, w: Any) -> dict[str, Any]:
        w = np.asarray(w, dtype=float)
        parts = np.maximum(n / self.part_rows, w)
        products = 4 * n * m**2 / (self.rate * w)
        message = 8 * m**2 / self.network
        return {
            "products": products,
            "stragglers": products * self.spread * np.sqrt(2 * np.log(np.maximum(w, 1)) * w / parts),
            "scheduling": 2 * (self.latency + 9 / 8 * parts * self.task),
            "broadcast": 2 * np.ceil(np.log2(np.maximum(w, 1))) * message,
            "reduction": 2 * 7 * np.ceil(np.log(np.maximum(w, 1)) / np.log(8)) * message,
            "m³ on the client": 3 * m**3 / self.rate + 0.0 * w,
        }


def picture(model: Model, path: str, measured: dict[int, float]) -> str:
    from inducing.pictures.plots import COLOURS, INK, canvas, plain

    workers = np.unique(np.logspace(0, 3, 60).round())
    drawing = canvas(9, 3.8)
    left, right = (plain(ax) for ax in drawing.subplots(1, 2))
    for n, colour in zip((1e9, 1e8, 2e6), COLOURS, strict=False):
        left.loglog(workers, sum(model(n, 256, workers).values()), color=colour, label=f"{n:,.0f} rows")
    left.plot(
        list(measured),
        list(measured.values()),
        "o",
        color=INK,
        markersize=4,
        label="measured, 2,000,000 rows",
    )
    left.set(xlabel="workers of one thread", ylabel="seconds", title="One value and gradient, m = 256")
    left.legend(frameon=False)
    for (name, value), colour in zip(model(1e9, 256, workers).items(), COLOURS, strict=False):
        right.loglog(workers[value > 0], value[value > 0], color=colour, label=name)
    right.set(xlabel="workers of one thread", title="1,000,000,000 rows, by term", ylim=(1e-4, 1e7))
    right.legend(frameon=False, fontsize=8, loc="upper right")
    drawing.savefig(path, dpi=120)
    at = model(1e9, 256, 100)
    return table(
        ["term, 10⁹ rows on 100 workers", "s"], [[name, f"{float(value):.3g}"] for name, value in at.items()]
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=2_000_000)
    options.add_argument("--functions", type=int, default=256)
    options.add_argument("--only", choices=["speed", "overhead", "terms"])
    options.add_argument("--picture", help="file to draw the model into, from the four numbers below")
    options.add_argument("--rate", type=float, default=40.0, help="GFlop/s of a worker")
    options.add_argument("--latency", type=float, default=0.02, help="seconds")
    options.add_argument("--task", type=float, default=1e-3, help="seconds")
    options.add_argument("--spread", type=float, default=0.05)
    options.add_argument(
        "--measured", type=float, nargs=2, default=(), help="seconds on one and on two workers"
    )
    told = options.parse_args()
    print(f"{told.rows:,} rows, m = {told.functions}, d = {D}; {describe()}\n")
    if told.picture:
        model = Model(1e9 * told.rate, told.latency, told.task, told.spread)
        print(picture(model, told.picture, dict(zip((1, 2), told.measured, strict=False))))
        return
    for name, measure in (("speed", speed), ("overhead", overhead), ("terms", terms)):
        if told.only in (None, name):
            print(f"## {name}\n\n{measure(told.rows, told.functions)}\n", flush=True)


if __name__ == "__main__":
    main()
