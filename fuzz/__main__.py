"""Run the harnesses: `python -m fuzz [names] [--seconds 60] [--seed 0] [--jobs 2]`, each for so long.

With more jobs than names harnesses have several processes, each with seeds of its own. Cases and processor
seconds are printed as they come, so that a run that is cut off has its figures, and for each harness at the
end; the first case that fails is shrunk and shown, and belongs into its FOUND. A case
that hangs ends the process with a traceback, compiled loops among them; memory is limited. Hypothesis draws
the cases; with `--guided` atheris, where it is installed, looks for those that reach new lines.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import re
import resource
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests")]

NAMES = ("numbers", "files", "checkpoints", "tables", "lines", "commands")
HANG = 120.0  # seconds of a case, compilation among them
COLD = 600.0  # of the first one, which makes models and compiles most
MEMORY = 8 << 30  # bytes of address space beyond what is taken at the start
TOLD = 20.0  # seconds between two lines that tell how far it is
BATCH = 200  # cases between two looks at the clock
FIGURES = re.compile(r"\w+: (\d+) cases, (\d+) processor s")
APART = 10**6  # seeds between two processes of a harness


def run(name: str, seconds: float, first: int) -> int:
    """Run one harness for so long from a seed on; returns the number of cases."""
    harness: Any = importlib.import_module(f"fuzz.{name}")
    count = 0

    def one(case: Any) -> None:
        nonlocal count
        count += 1
        faulthandler.dump_traceback_later(HANG if count > 1 else COLD, exit=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                harness.check(case)
        finally:
            faulthandler.cancel_dump_traceback_later()

    for case in harness.FOUND:
        one(case)
    told = time.monotonic()
    end, number = told + seconds, first
    while time.monotonic() < end:
        options = settings(
            max_examples=BATCH, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )

        def batch(case: Any) -> None:
            if time.monotonic() < end:
                one(case)

        options(seed(number)(given(harness.CASES)(batch)))()
        number += 1
        if time.monotonic() > told + TOLD:
            told = time.monotonic()
            print(f"{name}: {count} cases, {spent():.0f} processor s so far, seed {first}", flush=True)
    return count


def spent() -> float:
    """Processor seconds of this process and of those it started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def side_by_side(names: list[str], jobs: int, seconds: float, first: int) -> int:
    """Run harnesses in processes, so many at a time, and add up their figures; returns an exit code."""
    processes = [
        (names[i % len(names)], first + i // len(names) * APART) for i in range(max(jobs, len(names)))
    ]
    last: dict[tuple[str, int], tuple[int, int]] = {}

    def one(process: tuple[str, int]) -> int:
        given_on = [process[0], "--seconds", str(seconds), "--seed", str(process[1])]
        child = subprocess.Popen(
            [sys.executable, "-m", "fuzz", *given_on],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        for line in child.stdout:
            print(line, end="", flush=True)
            if figures := FIGURES.match(line):
                last[process] = int(figures[1]), int(figures[2])
        return child.wait()

    with ThreadPoolExecutor(jobs) as pool:
        codes = list(pool.map(one, processes))
    for name in names:
        own = [figures for (of, _), figures in last.items() if of == name]
        failed = [code != 0 for (of, _), code in zip(processes, codes) if of == name]
        cases, used = (sum(column) for column in zip(*own, (0, 0)))
        print(f"{name}: {cases} cases in {used} processor s in all, {sum(failed)} of {len(failed)} failed")
    return int(any(codes))


def guided(name: str, seconds: float, first: int) -> None:
    """Run one harness on what atheris makes of its coverage; the process ends with it."""
    import atheris  # type: ignore[import-not-found]

    with atheris.instrument_imports(include=["inducing"]):
        harness: Any = importlib.import_module(f"fuzz.{name}")

    @settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(harness.CASES)
    def one(case: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            harness.check(case)

    limits = [f"-max_total_time={int(seconds)}", f"-seed={first + 1}", f"-timeout={int(HANG)}"]
    atheris.Setup([sys.argv[0], *limits, f"-rss_limit_mb={MEMORY >> 20}"], one.hypothesis.fuzz_one_input)  # type: ignore[attr-defined]
    atheris.Fuzz()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("names", nargs="*", default=list(NAMES))
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--jobs", type=int, default=1, help="processes at a time")
    options.add_argument("--guided", action="store_true", help="by coverage, with atheris; one harness")
    told = options.parse_args()
    if told.guided:
        guided(told.names[0], told.seconds, told.seed)
    if told.jobs > 1:
        sys.exit(side_by_side(told.names, told.jobs, told.seconds, told.seed))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    for name in told.names:
        before = spent()
        cases = run(name, told.seconds, told.seed)
        print(
            f"{name}: {cases} cases, {spent() - before:.0f} processor s, seed {told.seed}: all hold",
            flush=True,
        )


if __name__ == "__main__":
    main()
