"""What the measurements stand on: which machine, whether it was quiet, and a load to put on it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from library import CORES
from threadpoolctl import threadpool_info

BURNER = """
import os, sys, time
import numpy as np
end, parent = time.time() + float(sys.argv[1]), os.getppid()
A = np.random.default_rng(0).standard_normal((700, 700))
print("burning", flush=True)
while time.time() < end and os.getppid() == parent:
    A @ A
"""


def describe() -> str:
    """Processor, cores, memory and the versions that matter; no names."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else model
    memory = ""
    if hasattr(os, "sysconf"):
        memory = f", {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB of memory"
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # type: ignore[index]
    python = (
        f"Python {platform.python_version()}, NumPy {np.__version__} with {blas['name']} {blas['version']}"
        f" and its kernels for {', '.join(sorted({b.get('architecture', '?') for b in threadpool_info()}))}"
    )
    return f"{model}, {CORES} cores{memory}; {platform.system()}; {python}"


@dataclass(frozen=True)
class Quiet:
    """How busy the machine is with other things."""

    load: float  # the system's one-minute load average
    busy: float  # share of all cores used while this process slept
    spread: float  # by how much the median matrix product is slower than the best
    rate: float  # Flop/s of the best one

    def __bool__(self) -> bool:
        return self.busy < 0.1 and self.spread < 0.15

    def __str__(self) -> str:
        verdict = "The machine was quiet" if self else "THE MACHINE WAS NOT QUIET, so that times are too long"
        return (
            f"{verdict}: others used {self.busy:.0%} of {CORES} cores (load average {self.load:.1f}), and "
            f"the median matrix product was {self.spread:.0%} slower than the best, which ran at "
            f"{self.rate / 1e9:.0f} GFlop/s."
        )


def quiet(seconds: float = 2.0, size: int = 1500) -> Quiet:
    before = _cpu_times()
    time.sleep(seconds)
    after = _cpu_times()
    total = sum(after) - sum(before)
    busy = (
        1.0 - (after[3] + after[4] - before[3] - before[4]) / total if total else 0.0
    )  # idle and waiting for disks
    A = np.random.default_rng(0).standard_normal((size, size))
    A @ A
    times = []
    for _ in range(12):
        start = time.perf_counter()
        A @ A
        times.append(time.perf_counter() - start)
    best = min(times)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return Quiet(load, busy, float(np.median(times)) / best - 1.0, 2 * size**3 / best)


def _cpu_times() -> list[int]:
    stat = Path("/proc/stat")
    return [int(v) for v in stat.read_text().split("\n", 1)[0].split()[1:9]] if stat.exists() else [0] * 8


@contextmanager
def burner(seconds: float = 120.0) -> Iterator[None]:
    """A second process that multiplies matrices on all cores; it ends by itself, at the latest with its
    parent.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", BURNER, str(seconds)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()
