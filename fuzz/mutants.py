"""Mutants of the source: small changes that tests should notice.

    python -m fuzz.mutants model/table.py --sample 30 --folder F     # of one module
    python -m fuzz.mutants --jobs 16 --sample 400 --until 400 --folder F     # drawn from the six rooms
    python -m fuzz.mutants --jobs 2 --folder F --again --budget 120     # the survivors meet more tests

Each mutant changes one place of one module (an operation, a comparison, a condition, a number). First every
test is run on a copy of the package and notes which functions it calls (fuzz/touched.py); a mutant meets the
tests that call its function, the quick ones first, until one fails or `--budget` seconds of them are through.
The folder keeps what was learned of the tests and a line of JSON for each mutant judged (`results.jsonl`), so
that a run goes on where the last one ended. Controls, modules written anew without a change, must survive.
What survives is a test that is missing, or a change that changes nothing: `fuzz/equivalent.txt` lists those.
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
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path

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
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
CONTROLS = 12


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
        if self.kind == "control":
            return ast.unparse(tree)
        node = next(node for i, node in enumerate(ast.walk(tree)) if i == self.place)
        _change(node, self.field)
        return ast.unparse(tree)

    @property
    def text(self) -> str:
        """The line it is in."""
        return (PACKAGE / self.module).read_text(encoding="utf-8").splitlines()[self.line - 1].strip()

    @property
    def key(self) -> str:
        """What tells it from others, for as long as its function's text stays."""
        return f"{self.module}: {self.kind}: {self.text}"

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.kind}: {self.text}"


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


def drawn(modules: list[str], size: int, seed: int) -> list[Mutant]:
    """Controls, and mutants of all modules alike, in an order that the seed gives."""
    some = [mutant for module in modules for mutant in mutants(module)]
    draw = random.Random(seed)
    chosen = draw.sample(some, min(size, len(some)))
    rest = [mutant for mutant in some if mutant not in set(chosen)]
    controls = draw.sample(rest, min(CONTROLS, len(rest)))
    return [replace(mutant, kind="control") for mutant in controls] + chosen


Judged = dict[Mutant, str]


def judged(path: Path) -> Judged:
    """The verdicts in a file, the last of each mutant."""
    found: Judged = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        entry = json.loads(line)
        mutant = entry["mutant"]
        found[Mutant(**mutant | {"within": tuple(mutant["within"])})] = entry["result"]
    return found


def tell(found: Judged) -> None:
    """Print how many were noticed, of each kind and room and of all, and what survived."""
    excused = {line.rsplit(" # ", 1)[0] for line in EQUIVALENT.read_text(encoding="utf-8").splitlines()}
    counts: Counter[tuple[str, str]] = Counter()
    for mutant, result in found.items():
        if result in ("survived", "untested") and mutant.key in excused:
            result = "equivalent"
        if mutant.kind != "control":
            for group in (mutant.kind, mutant.module.split("/")[0], "all"):
                counts[group, result] += 1
        if (mutant.kind == "control") == (result in ("noticed", "hung")):
            print(f"{result}: {mutant}")
    controls = [result for mutant, result in found.items() if mutant.kind == "control"]
    print(f"controls: {controls.count('survived')} of {len(controls)} survived")
    for group in sorted({group for group, _ in counts}, key=lambda group: (group == "all", group)):
        seen = counts[group, "noticed"] + counts[group, "hung"]
        tried = seen + counts[group, "survived"] + counts[group, "untested"]
        same = counts[group, "equivalent"]
        share, plain = 100 * seen / max(tried, 1), 100 * seen / max(tried + same, 1)
        print(f"{group}: {seen} of {tried} noticed, {share:.1f} %, {counts[group, 'hung']} of them hung")
        print(
            f"    {counts[group, 'untested']} untested; {same} more change nothing, {plain:.1f} % with them"
        )


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("modules", nargs="*", help="such as model/table.py; by default all of six rooms")
    options.add_argument("--folder", type=Path, help="for results and what was learned; a new one by default")
    options.add_argument("--tests", nargs="*", type=Path, help="files of tests to learn, besides those known")
    options.add_argument("--sample", type=int, default=100, help="mutants, drawn at random")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options.add_argument("--budget", type=float, default=20.0, help="seconds of tests that a mutant meets")
    options.add_argument("--learn-seconds", type=float, default=3600.0, help="for the tests as they are")
    options.add_argument("--each", type=int, default=1 << 30, help="cases of each test that are learned")
    options.add_argument("--until", type=float, default=1e6, help="seconds after which no mutant begins")
    options.add_argument("--again", action="store_true", help="judge what survived once more")
    told = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run(told, told.folder or Path(name))


def run(told: argparse.Namespace, folder: Path) -> None:
    """Learn which tests call what, where that is not known, and judge mutants until the time is over."""
    from fuzz import judging

    began = time.monotonic()
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    paths = [path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))]
    modules = told.modules or [str(path.relative_to(PACKAGE)) for path in paths]
    folders = judging.Folders(folder, told.jobs)
    folders.spread()
    known, results = any(folder.glob("learned*.jsonl")), folder / "results.jsonl"
    every = [path for room in TESTS for path in sorted((ROOT / "tests" / room).glob("test_*.py"))]
    if tests := told.tests or ([] if known else every):
        judging.learn(folders, tests, told.jobs, told.each, told.learn_seconds)
    touched = judging.learned(folder)
    print(
        f"{len({t for some in touched.values() for t in some})} tests call {len(touched)} functions",
        flush=True,
    )
    before = judged(results)
    if told.again:
        ahead = [mutant for mutant, result in before.items() if result in ("survived", "untested")]
    else:
        ahead = [mutant for mutant in drawn(modules, told.sample, told.seed) if mutant not in before]
    with results.open("a", encoding="utf-8") as file:
        for verdict in judging.judge(
            ahead, folders, touched, told.jobs, told.budget, told.until - (time.monotonic() - began)
        ):
            file.write(json.dumps(asdict(verdict)) + "\n")
            file.flush()
    tell(judged(results))


if __name__ == "__main__":
    from fuzz import mutants as module  # so that there is one class of mutants

    module.main()
