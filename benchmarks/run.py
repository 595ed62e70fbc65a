"""This package beside its peers: one command measures everything and writes RESULTS.md and scaling.png.

    python benchmarks/run.py                                       # peers installed beside this package
    python benchmarks/run.py --peer-python OTHER/bin/python ...    # and those in other environments
    python benchmarks/run.py --only evidence cold                  # some of the sections
    python benchmarks/run.py --quick --output results              # a minute, no peers: does it all work?

Everyone has the same data and parameters in the same run; the libraries take turns, each in a process of its
own, and the best of several rounds counts. Times are this machine's; the ratios are the result.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
from peers import LIBRARIES, OURS
from sections import PEERS, QUICK, SECTIONS, Bench, Plan, Size, say
from worker import environment


def find_pythons(candidates: list[str], wanted: list[str]) -> dict[str, str]:
    """For each library the first interpreter that has it; this package runs in the present one."""
    found = {OURS: sys.executable}
    packages = {name: LIBRARIES[name].package for name in wanted}
    for python in [sys.executable, *candidates]:
        code = (
            f"import importlib.util as u; print(*(n for n, p in {packages!r}.items() if u.find_spec(p)), "
            "sep=chr(10))"
        )
        run = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, env=environment("peer"), check=False
        )
        for name in run.stdout.split():
            found.setdefault(name, python)
    return found


def _size(text: str) -> Size:
    n, m, d = (int(part) for part in text.split(","))
    return n, m, d


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes and no peers")
    parser.add_argument(
        "--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), help="sections to run"
    )
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="which of them; default all")
    parser.add_argument(
        "--sizes", nargs="+", metavar="N,M,D", help="of value and gradient; default the four of the results"
    )
    parser.add_argument("--rounds", type=int, help="turns that everyone has; default 5")
    parser.add_argument(
        "--peer-python", nargs="+", default=[], help="interpreters of environments with peers"
    )
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent, help="folder for RESULTS.md and scaling.png"
    )
    options = parser.parse_args()
    plan = QUICK if options.quick else Plan()
    if options.sizes:
        plan = replace(plan, sizes=tuple(_size(text) for text in options.sizes))
    if options.rounds:
        plan = replace(plan, rounds=options.rounds)
    wanted = ([] if options.quick else PEERS) if options.peers is None else options.peers
    pythons = find_pythons(options.peer_python, wanted)
    options.output.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="inducing-benchmark-"))
    began = machine.quiet(plan.look)
    say(str(began))
    bench = Bench(plan, pythons, options.output, scratch / "workers.log")
    results = options.output / "RESULTS.md"
    try:
        for section in (s for s in SECTIONS if s in options.only):
            for text in SECTIONS[section](bench):
                ended = machine.quiet(plan.look)
                say(str(ended))
                write(results, text, circumstances(bench, options, section, began, ended))
                bench.failures.clear()
                began = ended
    except BaseException:
        say(f"what the libraries said: {bench.log}")
        raise
    finally:
        bench.close()
    shutil.rmtree(scratch, ignore_errors=True)
    say(f"written: {results}")


def circumstances(bench: Bench, options: argparse.Namespace, section: str, began: Any, ended: Any) -> str:
    """How a section was measured."""
    arguments = {
        "--sizes": options.sizes,
        "--rounds": options.rounds and [str(options.rounds)],
        "--peers": options.peers,
    }
    said = [part for name, values in arguments.items() if values for part in (name, *values)]
    said += (["--quick"] if options.quick else []) + (["--peer-python ..."] if options.peer_python else [])
    names = bench.installed()
    versions = ", ".join(f"{name} {bench.worker(name).version}" for name in names)
    restless = {
        name: bench.worker(name).busiest_rest for name in names if bench.worker(name).busiest_rest > 0.1
    }
    idle = "none used a tenth of a core" if not restless else f"BUSY: {restless}"
    lines = [
        f"    {' '.join(['python benchmarks/run.py --only', section, *said])}\n",
        f"Before: {began} After: {ended} Workers waiting for their turn: {idle}. Libraries: {versions}.\n",
    ]
    if bench.failures:
        lines.append(
            "What could not be measured:\n\n" + "".join(f"- {failure}\n" for failure in bench.failures)
        )
    return "\n".join(lines)


HEAD = """# Benchmark results

Machine: {machine}. Libraries take turns on the same data with the same parameters, each in its own process;
the best round counts. Each section was measured in one run of its own, by the command above it.
"""


def write(file: Path, section: str, how: str) -> None:
    """Put the section into the file, in the place of an older one; the others stay."""
    title, body = section.split("\n", 1)
    parts = file.read_text(encoding="utf-8").split("\n## ")[1:] if file.exists() else []
    kept = {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in parts}
    kept[title.removeprefix("## ")] = f"\n{how}{body}"
    whole = HEAD.format(machine=machine.describe()) + "".join(
        f"\n## {name}\n{text}" for name, text in kept.items()
    )
    file.write_text(whole.rstrip("\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
