"""Mutants of the source: small changes that tests should notice. `python -m fuzz.mutants model/table.py`

Each mutant changes one place of one module (a comparison, an operation, a constant, a condition), in a copy
of the package, and the tests of its room, or those given, are run on it until one fails. What survives is
printed with its line: a test that is missing, or a change that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "inducing"
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
SECONDS = 600.0  # that tests may take; a mutant that hangs is noticed


def changes(tree: ast.Module) -> Iterator[tuple[int, str, ast.Module]]:
    """Every mutant of a module: line, what was changed, and the changed tree."""
    for place, node in enumerate(ast.walk(tree)):
        for field in ("op", "ops", "value", "test"):
            if not hasattr(node, field) or not hasattr(node, "lineno"):
                continue
            mutant = copy.deepcopy(tree)
            twin = next(n for i, n in enumerate(ast.walk(mutant)) if i == place)
            if (what := _changed(twin, field)) is not None:
                yield node.lineno, what, mutant


def _changed(node: ast.AST, field: str) -> str | None:
    """Change a node in place; returns what was changed, None where there is nothing."""
    part = getattr(node, field)
    if field == "op" and type(part) in OTHER:
        setattr(node, field, OTHER[type(part)]())
    elif field == "ops" and len(part) == 1 and type(part[0]) in OTHER:
        node.ops = [OTHER[type(part[0])]()]  # type: ignore[attr-defined]
    elif field == "value" and isinstance(node, ast.Constant) and type(part) in (int, float):
        node.value = part + 1
    elif field == "test" and isinstance(node, ast.If | ast.While | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), part)
    else:
        return None
    return f"{type(node).__name__}.{field} {type(part).__name__}"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("modules", nargs="+", help="such as model/table.py")
    options.add_argument("--tests", nargs="*", help="files of tests; by default those of the module's room")
    options.add_argument("--most", type=int, default=20, help="mutants of each module, drawn at random")
    options.add_argument("--seed", type=int, default=0)
    told = options.parse_args()
    killed = tried = 0
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(PACKAGE, Path(name) / "inducing", ignore=shutil.ignore_patterns("*.nb[ic]"))
        environment = os.environ | {"PYTHONPATH": name, "NUMBA_CACHE_DIR": str(Path(name) / "cache")}
        for module in told.modules:
            source = (PACKAGE / module).read_text(encoding="utf-8")
            mutants = list(changes(ast.parse(source)))
            random.Random(told.seed).shuffle(mutants)
            tests = told.tests or [str(ROOT / "tests" / module.split("/")[0])]
            for line, what, tree in mutants[: told.most]:
                (Path(name) / "inducing" / module).write_text(ast.unparse(tree), encoding="utf-8")
                command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
                try:
                    done = subprocess.run(
                        command, cwd=ROOT, env=environment, capture_output=True, timeout=SECONDS, check=False
                    )
                    noticed = done.returncode != 0
                except subprocess.TimeoutExpired:
                    noticed = True
                killed, tried = killed + noticed, tried + 1
                if not noticed:
                    print(
                        f"survived: {module}:{line}: {what}: {source.splitlines()[line - 1].strip()}",
                        flush=True,
                    )
            (Path(name) / "inducing" / module).write_text(source, encoding="utf-8")
    print(f"{killed} of {tried} mutants noticed, {100 * killed / max(tried, 1):.0f} %")


if __name__ == "__main__":
    main()
