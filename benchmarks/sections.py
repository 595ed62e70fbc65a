"""The sections of RESULTS.md: what is measured, with the workers that measure it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import machine
import numpy as np
from peers import LIBRARIES, OURS
from report import memory, picture, seconds, table, times
from worker import QUERIES, Worker, WorkerFailed, cold_start

FLOPS = {
    "vfe": 5,
    "dtc": 5,
    "fitc": 8,
    "multiscale vfe": 5,
    "multiscale fitc": 8,
}  # times n m², for value and gradient
PEERS = [name for name in LIBRARIES if name != OURS]
COMMAND_SECONDS = 300.0  # seconds that one command of a worker may take
BUDGET = 60.0  # seconds of one contestant, after which two rounds have to do

Size = tuple[int, int, int]


@dataclass(frozen=True)
class Plan:
    """How large, how often."""

    sizes: tuple[Size, ...] = ((10_000, 100, 8), (10_000, 500, 8), (44_000, 500, 21), (100_000, 500, 8))
    rounds: int = 5
    least: float = 0.2  # seconds of a measurement; shorter calls are repeated
    look: float = 3.0  # seconds to see what else the machine does
    prediction: Size = (10_000, 500, 8)
    queries: int = QUERIES
    query: Size = (2_000, 50, 8)
    load: Size = (10_000, 500, 8)
    memory: Size = (2_000_000, 512, 8)
    base: Size = (10_000, 200, 8)
    grid: dict[str, tuple[int, ...]] = field(
        default_factory=lambda: {
            "n": (1_000, 3_000, 10_000, 30_000, 100_000),
            "m": (25, 50, 100, 200, 400, 800),
            "d": (1, 2, 4, 8, 16, 32, 64),
        }
    )


QUICK = Plan(
    sizes=((2_000, 50, 4),),
    rounds=2,
    least=0.02,
    look=0.5,
    prediction=(1_000, 50, 4),
    queries=4_000,
    query=(500, 20, 4),
    load=(2_000, 100, 4),
    memory=(100_000, 64, 4),
    base=(1_000, 40, 4),
    grid={"n": (500, 2_000), "m": (20, 60), "d": (1, 4)},
)


class Bench:
    """The workers, started when first needed and again after one had to be ended."""

    def __init__(self, plan: Plan, pythons: dict[str, str], folder: Path, log: Path) -> None:
        self.plan, self.pythons, self.folder, self.log = plan, pythons, folder, log
        self.rate = 0.0  # Flop/s of a matrix product, the best of the rounds
        self.workers: dict[str, Worker] = {}
        self.failures: list[str] = []

    def worker(self, name: str) -> Worker:
        held = self.workers.get(name)
        if held is None or held.process.poll() is not None:
            say(f"  starting {name}")
            held = self.workers[name] = Worker(name, self.pythons[name], self.log, patience=COMMAND_SECONDS)
        return held

    @property
    def ours(self) -> Worker:
        return self.worker(OURS)

    def ask(self, name: str, command: str, *arguments: Any) -> Any:
        """The worker's answer; None, noted, where it has none."""
        try:
            return self.worker(name)(command, *arguments)
        except WorkerFailed as failure:
            self.failures.append(f"{name}, {' '.join(map(str, (command, *arguments)))}: {failure}")
            say(f"  {self.failures[-1]}")
            return None

    def installed(self) -> list[str]:
        """The libraries whose process starts, this package first."""
        names = []
        for name in list(self.pythons):
            try:
                self.worker(name)
                names.append(name)
            except WorkerFailed as failure:
                self.failures.append(f"{name} does not start: {failure}")
                del self.pythons[name]
        return names

    def load(self, names: list[str], size: Size) -> list[str]:
        """Everyone makes the same data; those that could."""
        sums = {name: self.ask(name, "load", *size) for name in names}
        for name, value in sums.items():
            if value is not None and not np.isclose(
                value, sums[OURS], rtol=1e-12
            ):  # sums round differently by library
                raise RuntimeError(f"{name} has other data than {OURS}: {value} and {sums[OURS]}")
        return [name for name in names if sums[name] is not None]

    def drop(self) -> None:
        for worker in self.workers.values():
            if worker.process.poll() is None:
                worker("drop")

    def interleaved(
        self,
        contestants: list[tuple[str, str]],
        rounds: int,
        command: str = "time",
        choose: Callable[[Any], Any] = min,
        calibrate: bool = False,
    ) -> dict[tuple[str, str], float]:
        """Seconds of every (library, call), taking turns. What two rounds show to be slow has no further
        ones.
        """
        found: dict[tuple[str, str], list[float]] = {}
        out: set[tuple[str, str]] = set()
        self.rate = 0.0
        for i in range(rounds):
            if calibrate:
                self.rate = max(self.rate, self.ours("product"))
            for contestant in contestants:
                if contestant in out or (i >= 2 and sum(found[contestant]) > BUDGET):
                    continue
                answer = self.ask(contestant[0], command, contestant[1], self.plan.least)
                if answer is None:
                    out.add(contestant)
                else:
                    found.setdefault(contestant, []).append(answer)
        return {contestant: float(choose(values)) for contestant, values in found.items()}

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()


def evidence(bench: Bench) -> Iterator[str]:
    """Value and gradient of everything, at several sizes: a section each."""
    for n, m, d in bench.plan.sizes:
        say(f"value and gradient, n={n} m={m} d={d}")
        names = bench.load(bench.installed(), (n, m, d))
        prepared = {}
        for name in names:
            for row in (*bench.worker(name).rows, *bench.worker(name).value_only):
                answer = bench.ask(name, "prepare", row)
                if answer is not None:
                    prepared[name, row] = answer["value"]
        best = bench.interleaved(list(prepared), bench.plan.rounds, calibrate=True)
        peaks = {contestant: memory(bench.ask(contestant[0], "peak", contestant[1])) for contestant in best}
        bench.drop()
        lines = []
        for row in bench.ours.rows:
            entries = sorted((t, name) for (name, other), t in best.items() if other == row)
            mine = best[OURS, row]
            share = f"{FLOPS[row] * n * m * m / mine / bench.rate:.0%}" if row in FLOPS else ""
            for t, name in sorted(entries, key=lambda entry: (entry[1] != OURS, entry[0])):
                whole = row in bench.worker(name).rows
                label = bold(name) if whole else f"{name} (value only, no gradient)"
                found = f"{prepared[name, row]:.6g}"
                lines.append(
                    (
                        row,
                        label,
                        seconds(t),
                        times(t / mine),
                        share if name == OURS else "",
                        peaks[name, row],
                        found,
                    )
                )
        header = ("row", "library", "time", "beside ours", "of dgemm", "memory", "log evidence")
        note = (
            "Log evidence and its gradient in basis, lengthscales, variance and noise, in float64. 'Of "
            "dgemm' counts 5nm² (VFE) or 8nm² (FITC) operations against NumPy's own product in the same "
            f"rounds, {bench.rate / 1e9:.0f} GFlop/s. Memory is the peak above what the process held before. "
            "PITC has blocks of m rows.\n"
        )
        yield f"## Value and gradient, n = {n:,}, m = {m}, d = {d}\n\n{note}\n{table(header, lines)}"


def prediction(bench: Bench) -> Iterator[str]:
    """Mean and variance at many points."""
    n, m, d = bench.plan.prediction
    say("prediction")
    prepared = {}
    for name in bench.load(bench.installed(), bench.plan.prediction):
        for row in bench.worker(name).predicts:
            answer = bench.ask(name, "prepare_prediction", row, bench.plan.queries)
            if answer is not None:
                prepared[name, f"predict {row}"] = answer
    best = bench.interleaved(list(prepared), bench.plan.rounds)
    peaks = {contestant: memory(bench.ask(contestant[0], "peak", contestant[1])) for contestant in best}
    bench.drop()
    lines = []
    for contestant, t in sorted(best.items(), key=lambda item: (item[0][1], item[0][0] != OURS, item[1])):
        name, call = contestant
        a = prepared[contestant]
        mine = best[OURS, call]
        label = bold(name)
        lines.append(
            (
                call.split(" ", 1)[1],
                label,
                seconds(t),
                times(t / mine),
                f"{a['chunk']:,}",
                peaks[contestant],
                f"{a['mean']:.5f}",
                f"{a['variance']:.5f}",
            )
        )
    header = (
        "row",
        "library",
        "time",
        "beside ours",
        "rows at a time",
        "memory",
        "average mean",
        "average variance",
    )
    note = (
        f"Mean and variance of f at {bench.plan.queries:,} points, m = {m}, d = {d} (trained on {n:,} "
        "rows).\n"
    )
    yield f"## Prediction\n\n{note}\n{table(header, lines)}"


def query(bench: Bench) -> Iterator[str]:
    """One point at a time."""
    n, m, d = bench.plan.query
    say("one query")
    contestants = [(OURS, "compiled")]
    for name in bench.load(bench.installed(), bench.plan.query):
        contestants += [(name, row) for row in bench.worker(name).predicts[:1]]
    contestants = [c for c in contestants if bench.ask(c[0], "prepare_query", c[1]) is not None]
    best = bench.interleaved(contestants, bench.plan.rounds, "time_query")
    bench.drop()
    mine = best[OURS, "compiled"]
    calls = {(OURS, "compiled"): "post.compile()", (OURS, "vfe"): "post.predict"}
    lines = [
        (calls.get(c, c[1]), bold(c[0]), seconds(t), times(t / mine))
        for c, t in sorted(best.items(), key=lambda item: item[1])
    ]
    note = f"Mean and variance at a single point, m = {m}, d = {d}, from Python.\n"
    yield f"## One query\n\n{note}\n{table(('call', 'library', 'time', 'beside ours'), lines)}"


def load(bench: Bench) -> Iterator[str]:
    """The same evaluation while a second process uses every core."""
    n, m, d = bench.plan.load
    say("on a loaded machine")
    before = bench.ours("blas_threads")
    names = bench.load(
        [name for name in bench.installed() if "vfe" in bench.worker(name).rows], bench.plan.load
    )
    contestants = [(name, "vfe") for name in names if bench.ask(name, "prepare", "vfe") is not None]
    rounds = max(2, bench.plan.rounds - 2)
    calm = bench.interleaved(contestants, rounds, choose=np.median)
    with machine.burner(seconds=4 * COMMAND_SECONDS):
        loaded = bench.interleaved(contestants, rounds, choose=np.median)
    after = bench.ours("blas_threads")
    bench.drop()
    lines = [
        (bold(c[0]), seconds(calm[c]), seconds(loaded[c]), times(loaded[c] / calm[c]))
        for c in contestants
        if c in calm and c in loaded
    ]
    kept = "as they were" if before == after else f"CHANGED from {before} to {after}"
    note = (
        f"VFE value and gradient, n = {n:,}, m = {m}, d = {d}; medians. Sharing the cores fairly with one "
        "other is 2 ×.\n"
    )
    header = ("library", "alone", "beside a second process on all cores", "slower by")
    settings = f"The user's BLAS thread settings after all calls: {kept}.\n"
    yield f"## On a loaded machine\n\n{note}\n{table(header, lines)}\n{settings}"


def peak_memory(bench: Bench) -> Iterator[str]:
    """Value and gradient of a problem whose n x m matrix would not be pleasant."""
    n, m, d = bench.plan.memory
    say("memory")
    worker = Worker(
        OURS, bench.pythons[OURS], bench.log, patience=2 * COMMAND_SECONDS
    )  # fresh: nothing held, nothing to reuse
    lines = []
    try:
        for row in ("vfe", "fitc"):
            worker("load", 20_000, m, d)
            worker("prepare", row)  # loads compiled loops, starts threads
            worker("load", n, m, d)
            worker("build", row)
            lines.append((row, bold(OURS), memory(worker("peak", row))))
    finally:
        worker.close()
    note = (
        f"Value and gradient, n = {n:,}, m = {m}, d = {d}: peak above the data. One n × m matrix is "
        f"{memory(8.0 * n * m)}.\n"
    )
    yield f"## Memory\n\n{note}\n{table(('row', 'library', 'peak'), lines)}"


def cold(bench: Bench) -> Iterator[str]:
    """A fresh process that imports, fits a small problem and predicts."""
    say("cold start")
    found: dict[str, list[float]] = {}
    errors: dict[str, str] = {}
    for i in range(1 + max(1, bench.plan.rounds - 2)):
        for name, python in bench.pythons.items():
            if i and name not in found:
                continue
            try:
                taken, errors[name] = cold_start(name, python, COMMAND_SECONDS)
            except WorkerFailed as failure:
                bench.failures.append(f"{name}, cold start: {failure}")
                found.pop(name, None)
                continue
            rounds = found.setdefault(name, [])
            if i:  # the first run fills the caches of compiled code
                rounds.append(taken)
    lines = []
    remarks = {"scikit-learn": "exact GP", "egobox": "basis fixed", "GPBoost": "FITC, basis fixed"}
    for name, values in sorted(found.items(), key=lambda item: min(item[1])):
        label = bold(name)
        best, mine = min(values), min(found[OURS])
        lines.append((label, remarks.get(name, "VFE"), seconds(best), times(best / mine), errors[name]))
    note = (
        "A new process imports, fits hyperparameters and basis (m = 20) to 500 points on a line until its "
        "optimiser stops, and predicts; the second start counts, when compiled code is cached. Error is that "
        "of the mean against the true curve.\n"
    )
    yield f"## Cold start\n\n{note}\n{table(('library', 'what', 'time', 'beside ours', 'error'), lines)}"


def scaling(bench: Bench) -> Iterator[str]:
    """Time against n, m and d."""
    say("scaling")
    panels: dict[str, tuple[str, dict[str, list[tuple[float, float]]]]] = {}
    text = []
    for i, (axis, values) in enumerate(bench.plan.grid.items()):
        curves: dict[str, list[tuple[float, float]]] = {}
        for value in values:
            size = (*bench.plan.base[:i], value, *bench.plan.base[i + 1 :])
            say(f"  {axis} = {value}")
            contestants = []
            for name in bench.load(bench.installed(), size):  # type: ignore[arg-type]
                rows = ("vfe", "fitc") if name == OURS else ("vfe",)
                contestants += [(name, row) for row in rows if row in bench.worker(name).rows]
            contestants = [c for c in contestants if bench.ask(c[0], "prepare", c[1]) is not None]
            for (name, row), t in bench.interleaved(contestants, 2).items():
                curves.setdefault(f"{name} {row.upper()}", []).append((value, t))
            bench.drop()
        fixed = ", ".join(f"{k} = {v:,}" for k, v in zip("nmd", bench.plan.base, strict=True) if k != axis)
        panels[axis] = (fixed, curves)
        lines = []
        for curve, points in curves.items():
            at = dict(points)
            lines.append((*curve.rsplit(" ", 1), *(seconds(at[v]) if v in at else "" for v in values)))
        text.append(f"{fixed}\n\n" + table(("library", "row", *(f"{axis} = {v:,}" for v in values)), lines))
    drawn = picture(bench.folder / "scaling.png", panels)
    image = (
        "![time of value and gradient against n, m and d](scaling.png)"
        if drawn
        else "(no picture without matplotlib)"
    )
    yield f"## Scaling\n\n{image}\n\n" + "\n".join(text)


SECTIONS: dict[str, Callable[[Bench], Iterator[str]]] = {
    "evidence": evidence,
    "prediction": prediction,
    "query": query,
    "load": load,
    "memory": peak_memory,
    "cold": cold,
    "scaling": scaling,
}


def bold(name: str) -> str:
    return f"**{name}**" if name == OURS else name


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
