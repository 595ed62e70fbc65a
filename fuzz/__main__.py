"""Run the harnesses: `python -m fuzz [names] [--seconds 60] [--seed 0] [--jobs 2]`, each for so long.

Counts of cases are printed; the first case that fails is shrunk and shown, and belongs into its FOUND. A case
that hangs ends the process with a traceback, compiled loops among them; memory is limited. Hypothesis draws
the cases; with `--guided` atheris, where it is installed, looks for those that reach new lines.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
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
MEMORY = 8 << 30  # bytes of address space beyond what is taken at the start
TOLD = 60.0  # seconds between two lines that tell how far it is
BATCH = 200  # cases between two looks at the clock


def run(name: str, seconds: float, first: int) -> int:
    """Run one harness for so long from a seed on; returns the number of cases."""
    harness: Any = importlib.import_module(f"fuzz.{name}")
    count = 0

    def one(case: Any) -> None:
        nonlocal count
        count += 1
        faulthandler.dump_traceback_later(HANG, exit=True)
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
            print(f"{name}: {count} cases so far, seeds {first} to {number - 1}", flush=True)
    return count


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
    options.add_argument("--jobs", type=int, default=1, help="harnesses at a time, a process each")
    options.add_argument("--guided", action="store_true", help="by coverage, with atheris; one harness")
    told = options.parse_args()
    if told.guided:
        guided(told.names[0], told.seconds, told.seed)
    if told.jobs > 1:
        given_on = ["--seconds", str(told.seconds), "--seed", str(told.seed)]
        commands = [[sys.executable, "-m", "fuzz", name, *given_on] for name in told.names]
        with ThreadPoolExecutor(told.jobs) as pool:
            codes = pool.map(
                lambda command: subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode,
                commands,
            )
            sys.exit(int(any(codes)))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    for name in told.names:
        start = time.monotonic()
        cases = run(name, told.seconds, told.seed)
        print(
            f"{name}: {cases} cases in {time.monotonic() - start:.0f} s, seed {told.seed}: all hold",
            flush=True,
        )


if __name__ == "__main__":
    main()
