"""Judge mutants: which tests call which function, and what they say of a copy of the package with one change.

Processes are forked from one that has imported what tests import; each has a copy of the package of its own,
whose compiled functions are kept from one mutant to the next.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fuzz.mutants import PACKAGE, ROOT, Mutant

COMPILING = ("helper(", "pointed(", "compiled(", "intrinsic")  # of modules that are part of others, compiled
SLOW = 20.0  # seconds, beyond which a test is left out
SHARE = 60.0  # seconds for a share of a file of tests that is learned
MEMORY = 16 << 30  # bytes of address space of a process
PATIENCE = 30.0  # seconds a mutant may take beyond twice its tests', compiling among them
NOT_FOUND = 4  # pytest's exit code where a test is not there
MOST = 200  # tests that a mutant meets


class Folders:
    """A copy of the package, and one more for each process; what is compiled in them is kept."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder, self.base = folder, folder / "base"
        self.copies = [folder / f"copy{i}" for i in range(jobs)]
        self.importers, self.callers = _importers(), Callers()
        folder.mkdir(parents=True, exist_ok=True)
        if _sources(self.base / "inducing") != _sources(PACKAGE):
            shutil.rmtree(self.base, ignore_errors=True)
            shutil.copytree(PACKAGE, self.base / "inducing", ignore=shutil.ignore_patterns("__pycache__"))

    def spread(self) -> None:
        """Compile what the package compiles, its parts side by side, and copy it for each process."""
        for process in [
            in_process(lambda part=part: _warm(self.base, part), self.folder / f"warm{part}.log")
            for part in range(WARMED)
        ]:
            os.waitpid(process, 0)
        for path in self.copies:
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(self.base, path)

    @contextlib.contextmanager
    def changed(self, path: Path, mutant: Mutant) -> Iterator[None]:
        """The copy with a mutant in it, without what was compiled from the module; whole again afterwards."""
        module = path / "inducing" / mutant.module
        original, began = module.stat(), time.time_ns() - 10**7
        text, compiled = module.read_text(encoding="utf-8"), {}
        # a number at the top of a module may be part of what others compile
        if not mutant.within or any(word in text for word in COMPILING):
            for name in {mutant.module, *self.importers[mutant.module]}:
                place = path / "inducing" / name
                for file in (place.parent / "__pycache__").glob(f"{place.stem}.*.nb[ic]"):
                    compiled[file] = file.read_bytes()
                    file.unlink()
        module.write_text(mutant.source(), encoding="utf-8")
        try:
            yield
        finally:
            module.write_text(text, encoding="utf-8")
            os.utime(module, ns=(original.st_atime_ns, original.st_mtime_ns))
            for folder in {file.parent for file in compiled}:
                for written in folder.glob("*.nb[ic]"):
                    if written.stat().st_mtime_ns > began:
                        written.unlink()
            for file, content in compiled.items():
                file.write_bytes(content)


WARMED = 10  # parts of `inducing.warm`


def _warm(package: Path, part: int) -> int:
    sys.path.insert(0, str(package))
    from inducing.estimators import warming

    for call in list(warming.PARTS.values())[part::WARMED]:
        call()
    return 0


def _sources(package: Path) -> dict[str, bytes]:
    return {str(path.relative_to(package)): path.read_bytes() for path in package.rglob("*.py")}


def _importers() -> dict[str, set[str]]:
    """The modules that import each module, directly or through others."""
    direct: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        name = str(path.relative_to(PACKAGE))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                folder = path.parents[node.level - 1] if node.level else PACKAGE
                stems = [folder / (node.module or "").replace(".", "/")]
                stems += [stems[0] / alias.name for alias in node.names]
                for stem in stems:
                    if stem.with_suffix(".py").is_file():
                        direct[str(stem.with_suffix(".py").relative_to(PACKAGE))].add(name)

    def closure(name: str) -> set[str]:
        seen, ahead = set(), [name]
        while ahead:
            for other in direct[ahead.pop()] - seen:
                seen.add(other)
                ahead.append(other)
        return seen

    return defaultdict(set, {name: closure(name) for name in list(direct)})


class Callers:
    """Which functions of the package mention a name, and what a place of a module is called by others."""

    def __init__(self) -> None:
        self.mentions: dict[str, set[str]] = defaultdict(set)
        for path in PACKAGE.rglob("*.py"):
            module = str(path.relative_to(PACKAGE))
            self._visit(ast.parse(path.read_text(encoding="utf-8")), module, "")

    def _visit(self, node: ast.AST, module: str, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.FunctionDef):
                names = {n.id for n in ast.walk(child) if isinstance(n, ast.Name)}
                names |= {n.attr for n in ast.walk(child) if isinstance(n, ast.Attribute)}
                for name in names:
                    self.mentions[name].add(f"{module}::{prefix}{child.name}")
                inner = f"{prefix}{child.name}.<locals>."
            elif isinstance(child, ast.ClassDef):
                inner = f"{prefix}{child.name}."
            self._visit(child, module, inner)

    def names(self, mutant: Mutant) -> set[str]:
        """The name of a mutant's function; of a line outside of functions, what it gives a value to."""
        if mutant.within:
            return {mutant.within[-1].split(".")[-1]}
        found: set[str] = set()
        for node in ast.walk(ast.parse((PACKAGE / mutant.module).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                if node.lineno <= mutant.line <= (node.end_lineno or node.lineno):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    found |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        return found

    def of(self, mutant: Mutant) -> Iterator[set[str]]:
        """The functions that mention a mutant's, those that mention these, and so on."""
        names, seen = self.names(mutant), set[str]()
        while names:
            callers = set().union(*(self.mentions[name] for name in names)) - seen
            yield callers
            seen |= callers
            names = {caller.split("::")[1].split(".")[-1] for caller in callers}


def in_process(work: Callable[[], int], log: Path) -> int:
    """Fork a process group that does some work with its output in a file; returns its id."""
    if process := os.fork():
        return process
    os.setsid()
    code = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def pytest_run(package: Path, arguments: Iterable[str], *, keep: bool = False) -> int:
    """The exit code of pytest on a copy of the package, in this process; `keep` writes Python's bytecode."""
    import pytest

    os.chdir(ROOT)
    paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    os.environ |= {} if keep else {"PYTHONDONTWRITEBYTECODE": "1"}
    sys.path.insert(0, str(package))
    sys.dont_write_bytecode = not keep
    return int(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]))


@dataclass
class Running:
    """A process of the pool: its place, and the moment it has to be through."""

    place: int
    task: Any
    deadline: float
    close: contextlib.ExitStack


def pool(
    tasks: Iterable[Any], jobs: int, begin: Callable[[int, Any], tuple[int, float, contextlib.ExitStack]]
) -> Iterator[tuple[Any, int | None]]:
    """Run tasks, so many at a time; yields each with its exit code, None where it ran out of time."""
    ahead, running, free = iter(tasks), {}, list(range(jobs))
    while True:
        while free and (task := next(ahead, None)) is not None:
            place = free.pop()
            process, seconds, close = begin(place, task)
            running[process] = Running(place, task, time.monotonic() + seconds, close)
        if not running:
            return
        time.sleep(0.05)
        for process, entry in list(running.items()):
            done, status = os.waitpid(process, os.WNOHANG)
            if not done and time.monotonic() < entry.deadline:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            if not done:
                os.waitpid(process, 0)
            entry.close.close()
            del running[process]
            free.append(entry.place)
            yield entry.task, os.waitstatus_to_exitcode(status) if done else None


Touch = dict[str, list[tuple[int, float, str]]]  # of a function: tests that call it, as `learned` says


def learn(folders: Folders, tests: list[Path], jobs: int, each: int, seconds: float) -> None:
    """Run tests on the package as it is, for so long at most, and note in `learned.jsonl` what they call."""
    folder, end = folders.folder, time.monotonic() + seconds
    shares = {path: 1 + path.read_text(encoding="utf-8").count("\n") // 100 for path in tests}
    tasks = [(path, i, k) for path, k in shares.items() for i in range(k)]
    tasks.sort(key=lambda task: (task[1], -task[2]))

    def begin(place: int, task: tuple[Path, int, int]) -> tuple[int, float, contextlib.ExitStack]:
        path, i, k = task
        name = f"{path.parent.name}.{path.stem}.{i}"
        arguments = ["-p", "fuzz.touched", "--touched", str(folder / f"{name}.part"), "--share", f"{i}/{k}"]
        arguments += ["--each", str(each)]
        process = in_process(
            lambda: pytest_run(folders.copies[place], [*arguments, str(path)], keep=True),
            folder / f"{name}.log",
        )
        return process, min(max(end - time.monotonic(), 1.0), SHARE), contextlib.ExitStack()

    for (path, i, _), code in pool((task for task in tasks if time.monotonic() < end), jobs, begin):
        log = folder / f"{path.parent.name}.{path.stem}.{i}.log"
        if code not in (0, 5):
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            print(f"as it is: {path.name} share {i}: exit code {code}: {' '.join(last)}", flush=True)
        log.unlink(missing_ok=True)
    with (folder / "learned.jsonl").open("a", encoding="utf-8") as whole:
        for part in sorted(folder.glob("*.part")):
            lines = part.read_text(encoding="utf-8").splitlines(keepends=True)
            whole.writelines(line for line in lines if line.endswith("\n"))
            part.unlink()


def learned(folder: Path) -> Touch:
    """Which tests call which function, of all that were learned: how many functions they call, how long they
    take, and their names.
    """
    latest: dict[str, tuple[float, list[str]]] = {}
    for path in sorted(folder.glob("learned*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, took, functions = json.loads(line)
            latest[name] = took, functions
    touched: Touch = defaultdict(list)
    for name, (took, functions) in latest.items():
        if took < SLOW:
            for function in functions:
                touched[function].append((len(functions), took, name))
    return touched


def tests_for(mutant: Mutant, touched: Touch, folders: Folders, budget: float) -> list[str]:
    """The tests that call the function of a mutant, some of each kind, those that call little else first,
    `budget` seconds of them, the quick ones in front. Helpers inside compiled code are called by nobody:
    those that mention them stand in.
    """
    inside = [touched.get(f"{mutant.module}::{name}", []) for name in mutant.within]
    tests = next((some for some in inside if some), [])
    for callers in folders.callers.of(mutant) if not tests else ():
        tests = [test for caller in callers for test in touched.get(caller, [])]
        if tests:
            break
    for modules in ([mutant.module], folders.importers[mutant.module]):
        if not tests:
            own = {f: tests for f, tests in touched.items() if f.split("::")[0] in modules and "<" not in f}
            tests = [test for some in own.values() for test in some]
    groups = defaultdict(list)
    for size, took, name in sorted(set(tests)):
        groups[name.split("[")[0]].append((size, took, name))
    total, chosen = 0.0, []
    for _, took, name in (test for turn in zip_longest(*sorted(groups.values())) for test in turn if test):
        if total + took <= budget and len(chosen) < MOST:
            total += took
            chosen.append((took, name))
    return [name for _, name in sorted(chosen)]


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: noticed, hung, survived or untested, and the test that noticed."""

    mutant: Mutant
    result: str
    tests: int = 0
    seconds: float = 0.0
    by: str = ""


def judge(
    some: list[Mutant], folders: Folders, touched: Touch, jobs: int, budget: float, seconds: float
) -> Iterator[Verdict]:
    """Run the tests of each mutant, beginning none after so many seconds, so that none is left undecided."""
    end = time.monotonic() + seconds
    places: dict[Mutant, tuple[int, float]] = {}
    untested: list[Mutant] = []

    def ahead() -> Iterator[tuple[Mutant, list[str]]]:
        for mutant in some:
            if time.monotonic() > end:
                return
            if tests := tests_for(mutant, touched, folders, budget):
                yield mutant, tests
            else:
                untested.append(mutant)

    def begin(place: int, task: tuple[Mutant, list[str]]) -> tuple[int, float, contextlib.ExitStack]:
        mutant, tests = task
        path, close = folders.copies[place], contextlib.ExitStack()
        close.enter_context(folders.changed(path, mutant))
        places[mutant] = place, time.monotonic()
        log = folders.folder / f"copy{place}.log"
        process = in_process(lambda: pytest_run(path, ["-x", *tests]), log)
        return process, PATIENCE + 2 * budget, close

    for (mutant, tests), code in pool(ahead(), jobs, begin):
        place, start = places.pop(mutant)
        seconds = round(time.monotonic() - start, 1)
        log = (folders.folder / f"copy{place}.log").read_text(errors="replace").splitlines()
        failures = [line for line in log if line.startswith(("FAILED ", "ERROR "))]
        # names of cases that the change renames are not found, which is no failure of theirs
        passed = code == 0 or (code == NOT_FOUND and not failures)
        result = "hung" if code is None else "survived" if passed else "noticed"
        by = (failures or log[-1:] or [""])[0][:300] if result == "noticed" else ""
        yield Verdict(mutant, result, len(tests), seconds, by)
    for mutant in untested:
        yield Verdict(mutant, "untested")
