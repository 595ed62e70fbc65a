"""Mutants of the source: small changes that tests should notice.

    python -m fuzz.mutants model/table.py --most 30          # of one module
    python -m fuzz.mutants --jobs 16 --most 6 --minutes 7    # six of every module of the six rooms

Each mutant changes one place of one module (an operation, a comparison, a condition, a number). First every
test is run on a copy of the package and notes which functions it calls (fuzz/touched.py); a mutant meets the
tests that call its function, the quick ones first, until one fails or `--budget` seconds of them are through.
What survives is printed with its line: a test that is missing, or a change that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "inducing"
ROOMS = ("model", "engine", "inference", "files", "sources", "streams")
TESTS = (*ROOMS, "estimators", "learning", "beside")  # folders of tests that may notice
OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
BOUNDARIES = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
PRELOADED = (  # what a process of tests would import by itself
    *("numpy", "scipy.linalg", "scipy.optimize", "scipy.spatial", "scipy.stats", "numba", "sklearn.base"),
    *("sklearn.utils.estimator_checks", "pandas", "narwhals", "mpmath", "pytest"),
)
SLOW = 20.0  # seconds, beyond which a test is left out
MEMORY = 16 << 30  # bytes of address space of a process
LAST = 20.0  # seconds in which the last mutants may come to an end
PATIENCE = 90.0  # seconds a mutant may take beyond thrice its tests', compiling among them


@dataclass(frozen=True)
class Mutant:
    """One change of one module: the kind of change, and the place of its node in the tree's walk."""

    module: str
    place: int
    field: str
    line: int
    kind: str
    within: tuple[str, ...]  # the functions around it, innermost first

    def source(self) -> str:
        """The module after the change."""
        tree = ast.parse((PACKAGE / self.module).read_text(encoding="utf-8"))
        node = next(node for i, node in enumerate(ast.walk(tree)) if i == self.place)
        _change(node, self.field)
        return ast.unparse(tree)

    def __str__(self) -> str:
        text = (PACKAGE / self.module).read_text(encoding="utf-8").splitlines()[self.line - 1].strip()
        return f"{self.module}:{self.line}: {self.kind}: {text}"


def mutants(module: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its tree; annotations and messages are left alone."""
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    around, left_alone = _surroundings(tree), _left_alone(tree)
    found = []
    for place, node in enumerate(ast.walk(tree)):
        for field in ("op", "ops", "value", "test"):
            if not hasattr(node, field) or not hasattr(node, "lineno") or id(node) in left_alone:
                continue
            kind = _change(copy.copy(node), field)
            if kind is not None:
                found.append(Mutant(module, place, field, node.lineno, kind, around[id(node)]))
    return found


def _surroundings(tree: ast.Module) -> dict[int, tuple[str, ...]]:
    """The qualified names of the functions around each node, innermost first."""
    around: dict[int, tuple[str, ...]] = {}

    def visit(node: ast.AST, prefix: str, functions: tuple[str, ...]) -> None:
        around[id(node)] = functions
        inner, within = prefix, functions
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = prefix + node.name
            inner = name + (".<locals>." if isinstance(node, ast.FunctionDef) else ".")
            within = (name, *functions) if isinstance(node, ast.FunctionDef) else functions
        for field, value in ast.iter_fields(node):
            outside = field in ("decorator_list", "args", "returns", "bases")
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child, prefix if outside else inner, functions if outside else within)

    visit(tree, "", ())
    return around


def _left_alone(tree: ast.Module) -> set[int]:
    """Nodes that say something to readers only: annotations, signatures of types, the text of errors."""
    parts: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            parts += [node.returns]
        elif isinstance(node, ast.arg | ast.AnnAssign):
            parts += [node.annotation]
        elif isinstance(node, ast.Raise | ast.Assert):
            parts += [node]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
            parts += [node]
    return {id(inner) for part in parts if part is not None for inner in ast.walk(part)}


def _change(node: ast.AST, field: str) -> str | None:
    """Change a node in place; returns the kind of the change, None where there is nothing."""
    part = getattr(node, field)
    if field == "op" and type(part) in OTHER:
        setattr(node, field, OTHER[type(part)]())
        return "operation"
    if field == "ops" and len(part) == 1 and type(part[0]) in OTHER:
        node.ops = [OTHER[type(part[0])]()]  # type: ignore[attr-defined]
        return "boundary" if isinstance(part[0], BOUNDARIES) else "comparison"
    if field == "value" and isinstance(node, ast.Constant) and type(part) in (int, float):
        node.value = part + 1
        return "number"
    if field == "test" and isinstance(node, ast.If | ast.While | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), part)
        return "condition"
    return None


class Folders:
    """Copies of the package, one for each process, whose compiled functions are kept."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.base, self.copies = folder / "base", [folder / f"copy{i}" for i in range(jobs)]
        shutil.copytree(PACKAGE, self.base / "inducing")
        self.importers = _importers()

    def spread(self) -> None:
        for path in self.copies:
            shutil.copytree(self.base, path)

    @contextlib.contextmanager
    def changed(self, path: Path, mutant: Mutant) -> Iterator[None]:
        """The copy with a mutant in it, without what was compiled from the module; whole again afterwards."""
        module = path / "inducing" / mutant.module
        original, began = module.stat(), time.time_ns() - 10**7
        text, compiled = module.read_text(encoding="utf-8"), {}
        if any(word in text for word in ("@helper", "@pointed", "@compiled", "@intrinsic")):
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


Touch = dict[str, list[tuple[float, str]]]  # of a function: seconds and name of the tests that call it


def learn(folders: Folders, tests: list[Path], jobs: int, seconds: float) -> Touch:
    """Run the tests on the package as it is, for so long at most; returns which tests call which function."""
    folder, end = folders.base.parent, time.monotonic() + seconds
    shares = {path: 1 + path.read_text(encoding="utf-8").count("\n") // 200 for path in tests}
    tasks = [(path, i, k) for path, k in shares.items() for i in range(k)]
    tasks.sort(key=lambda task: (task[1], -task[2]))

    def begin(place: int, task: tuple[Path, int, int]) -> tuple[int, float, contextlib.ExitStack]:
        path, i, k = task
        out = folder / f"{path.stem}.{i}.jsonl"
        arguments = ["-p", "fuzz.touched", "--touched", str(out), "--share", f"{i}/{k}", str(path)]
        process = in_process(
            lambda: pytest_run(folders.base, arguments, keep=True), folder / f"{path.stem}.{i}.log"
        )
        return process, max(end - time.monotonic(), 1.0), contextlib.ExitStack()

    for (path, i, _), code in pool(tasks, jobs, begin):
        if code not in (0, 5):
            last = (folder / f"{path.stem}.{i}.log").read_text(errors="replace").strip().splitlines()[-1:]
            print(f"as it is: {path.name} share {i}: exit code {code}: {' '.join(last)}", flush=True)
    touched: Touch = defaultdict(list)
    for file in folder.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            name, took, functions = json.loads(line)
            if took < SLOW:
                for function in functions:
                    touched[function].append((took, name))
    return touched


def tests_for(mutant: Mutant, touched: Touch, importers: dict[str, set[str]], budget: float) -> list[str]:
    """The tests that call the function of a mutant, some of each kind, quick ones first, `budget` seconds of
    them. Helpers inside compiled code are called by nobody: those of the modules that import it stand in.
    """
    inside = [touched.get(f"{mutant.module}::{name}", []) for name in mutant.within]
    tests = next((some for some in inside if some), [])
    for modules in ([mutant.module], importers[mutant.module]):
        if not tests:
            own = {f: tests for f, tests in touched.items() if f.split("::")[0] in modules and "<" not in f}
            tests = [test for some in own.values() for test in some]
    groups = defaultdict(list)
    for took, name in sorted(set(tests)):
        groups[name.split("[")[0]].append((took, name))
    ordered = sorted(groups.values())
    total, chosen = 0.0, []
    for took, name in (test for turn in zip_longest(*ordered) for test in turn if test):
        if total + took <= budget and len(chosen) < 200:
            total += took
            chosen.append((took, name))
    return [name for _, name in sorted(chosen)]


def try_all(
    all_mutants: list[Mutant], folders: Folders, touched: Touch, jobs: int, budget: float, minutes: float
) -> Iterator[tuple[Mutant, str]]:
    """Run the tests of each mutant; yields it with noticed, hung, survived, untested or unfinished."""
    end = time.monotonic() + 60 * minutes
    logs = folders.base.parent
    ready = [(mutant, tests_for(mutant, touched, folders.importers, budget)) for mutant in all_mutants]
    for mutant, tests in ready:
        if not tests:
            yield mutant, "untested"

    def begin(place: int, task: tuple[Mutant, list[str]]) -> tuple[int, float, contextlib.ExitStack]:
        mutant, tests = task
        path, close = folders.copies[place], contextlib.ExitStack()
        close.enter_context(folders.changed(path, mutant))
        process = in_process(lambda: pytest_run(path, ["-x", *tests]), logs / f"copy{place}.log")
        return process, min(PATIENCE + 3 * budget, max(end + LAST - time.monotonic(), 1.0)), close

    tasks = (task for task in ready if task[1] and time.monotonic() < end)
    for (mutant, _), code in pool(tasks, jobs, begin):
        late = "hung" if time.monotonic() < end + LAST else "unfinished"
        yield mutant, late if code is None else "noticed" if code else "survived"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("modules", nargs="*", help="such as model/table.py; by default all of six rooms")
    options.add_argument(
        "--tests", nargs="*", type=Path, help="files of tests; by default those of nine folders"
    )
    options.add_argument("--most", type=int, default=20, help="mutants of each module, drawn at random")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options.add_argument("--budget", type=float, default=20.0, help="seconds of tests that a mutant meets")
    options.add_argument("--learn-minutes", type=float, default=60.0, help="for the tests as they are")
    options.add_argument("--minutes", type=float, default=600.0, help="for the mutants")
    told = options.parse_args()
    paths = [path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))]
    modules = told.modules or [str(path.relative_to(PACKAGE)) for path in paths]
    tests = told.tests or [
        path for room in TESTS for path in sorted((ROOT / "tests" / room).glob("test_*.py"))
    ]
    drawn = []
    for module in modules:
        some = mutants(module)
        drawn += random.Random(f"{told.seed} {module}").sample(some, min(told.most, len(some)))
    random.Random(told.seed).shuffle(drawn)
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with tempfile.TemporaryDirectory() as name:
        folders = Folders(Path(name), told.jobs)
        touched = learn(folders, tests, told.jobs, 60 * told.learn_minutes)
        print(
            f"{len({t for some in touched.values() for t in some})} tests call {len(touched)} functions",
            flush=True,
        )
        folders.spread()
        counts: Counter[tuple[str, str]] = Counter()
        arguments = folders, touched, told.jobs, told.budget, told.minutes
        for mutant, result in try_all(drawn, *arguments):
            counts[mutant.kind, result] += 1
            counts[mutant.module.split("/")[0], result] += 1
            counts["all", result] += 1
            if result != "noticed":
                print(f"{result}: {mutant}", flush=True)
            if sum(counts["all", kind] for kind in ("noticed", "hung", "survived", "untested")) % 50 == 0:
                _tell(counts, ["all"])
    _tell(counts, sorted({group for group, _ in counts}, key=lambda group: (group == "all", group)))


def _tell(counts: Counter[tuple[str, str]], groups: Iterable[str]) -> None:
    """Print how many were noticed, of each kind and room and of all."""
    for group in groups:
        seen = counts[group, "noticed"] + counts[group, "hung"]
        tried = seen + counts[group, "survived"] + counts[group, "untested"]
        share, hung = 100 * seen / max(tried, 1), counts[group, "hung"]
        print(f"{group}: {seen} of {tried} noticed, {share:.1f} %, {hung} of them hung", flush=True)


if __name__ == "__main__":
    main()
