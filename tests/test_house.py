"""The house rules: who may import whom, how large files and functions may be, and which names are public.

The rooms of src/inducing stand in the order of docs/draw_rooms.py; docs/architecture.md explains them. Where
a rule is broken for the time being, ALLOWED says so; the aim is that it is empty.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import inducing as ig
from docs.draw_rooms import PACKAGE, ROOMS, imports, modules

TOP = ("__init__", "errors", "metrics", "progress")  # the files beside the rooms
TABLES = (
    "__version__",
    "BESIDE",
    "SAVED",
    "SAVED_LIGHT",
    "saved_class",
    "package",
)  # what a room may take from `__init__`
MOST_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 450, 60, 10
MOST_CODE = 30_000  # lines of the package, without blank ones, comments and docstrings
ALLOWED = set(
    """
""".splitlines()
)

PUBLIC = """
citation
condition log_evidence log_evidence_and_gradient leave_one_out Posterior NeighboursPredictor prior
kl_divergence update update_together information_gain most_informative expectation_propagation
relevance_vectors sparse_kernel_pca mixture laplace Sites fit fit_expectation_propagation Fit LogNormal
diagnose Diagnosis SparseGPRegressor SparseGPClassifier OnlineGPRegressor GPDensity MultiscaleKernelRidge
MultiscaleSVM compare
as_source load backend kernels means bases approximations augmentation committee distributed
eigenfunctions iterative local products likelihoods mixtures fields wind wind_model errors metrics progress
datasets plots animation recipes selection outofcore sources squared warm NoiseByLevel sobol_indices
probability_of_maximum probability_above TableEncoder
export distil __version__
"""
INSIDE = """
kernels.RBF kernels.Matern12 kernels.Matern32 kernels.Matern52 kernels.Linear kernels.Polynomial
kernels.Periodic bases.Points bases.Multiscale means.Constant means.Linear likelihoods.Gaussian
likelihoods.Probit likelihoods.StudentT likelihoods.Laplace likelihoods.Poisson approximations.TABLE
selection.BY_NAME selection.kmeans committee.condition committee.partition augmentation.condition
distributed.cluster distributed.spread datasets.load datasets.path datasets.sinc datasets.friedman1
datasets.toy1d datasets.step_noise metrics.smse metrics.msll metrics.nlpd metrics.coverage
metrics.calibration metrics.crps metrics.interval_score metrics.neg_crps metrics.neg_log_density
metrics.Baseline metrics.Scores plots.plot_predictions_1d plots.plot_comparison
plots.save animation.record animation.animate animation.task_for sources.Source sources.Part sources.Layout
sources.split sources.tree_sum recipes.direct errors.InducingError errors.InducingWarning progress.Bars
Posterior.predict Posterior.covariance Posterior.sample Posterior.gradient Posterior.prune
Posterior.removal_scores
"""
HEAVY = ("sklearn", "pandas", "numba", "matplotlib", "torch", "typer", "rich", "safetensors", "dask")

Function = ast.FunctionDef | ast.AsyncFunctionDef
ROOT = PACKAGE.parents[1]
MODULES = dict(modules())
BESIDE = {  # what stands beside the package
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for folder in ("experiments", "benchmarks", "docs")
    for path in sorted((ROOT / folder).glob("*.py"))
}


def broken(rules: Iterator[str]) -> list[str]:
    """Where a rule is broken and not allowed to be."""
    return sorted(set(rules) - ALLOWED)


# who may import whom


def test_a_room_imports_only_from_the_rooms_before_it():
    order = dict.fromkeys(TOP, -1) | {room: i for i, room in enumerate(ROOMS)}

    def rules() -> Iterator[str]:
        for module, tree in MODULES.items():
            for found in imports(module, tree):
                here, there = found.rooms
                if module == "__init__.py" or here == there or there in TABLES:
                    continue
                if there not in order or there == "__init__":
                    yield f"{module} imports {'.'.join(found.target)} by its public name"
                elif order[there] > order[here]:
                    yield f"{module} imports {there}"

    assert broken(rules()) == []


def test_what_is_imported_is_there():
    """Late imports would otherwise fail only when they run."""
    names = {module: _defined(tree) | _imported(tree) for module, tree in MODULES.items()}

    def home(path: tuple[str, ...]) -> str | None:
        stem = "/".join(path)
        candidates = (f"{stem}.py", f"{stem}/__init__.py".lstrip("/"))
        return next((module for module in candidates if module in MODULES), None)

    def rules() -> Iterator[str]:
        for module, tree in {**MODULES, **BESIDE}.items():
            for found in imports(module, tree):
                above, name = home(found.target[:-1]), found.target[-1]
                if module in BESIDE and found.target[0] in ("experiments", "benchmarks", "docs"):
                    continue  # relative, among themselves
                public = above == "__init__.py" and name in dir(ig)
                if home(found.target) is None and not public and (above is None or name not in names[above]):
                    yield f"{module} imports {'.'.join(found.target)}, which is not there"

    assert broken(rules()) == []


def test_modules_are_imported_by_strings_only_through_the_tables_at_the_top():
    def rules() -> Iterator[str]:
        for module, tree in MODULES.items():
            for node in ast.walk(tree):
                call = ast.unparse(node) if isinstance(node, ast.Call) else ""
                by_string = "import_module" in call.split("(")[0] or call.startswith("__import__")
                if by_string and module != "__init__.py" and not any(table in call for table in TABLES):
                    yield f"{module} imports by a string"

    assert broken(rules()) == []


def test_no_module_takes_the_underscore_names_of_another():
    def rules() -> Iterator[str]:
        for module, tree in {**MODULES, **BESIDE}.items():
            own = _defined(tree)
            for found in imports(module, tree):
                if _is_private(found.target[-1]):
                    yield f"{module} takes {found.target[-1]}"
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
                    if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                        yield f"{module} takes {node.attr}"

    assert broken(rules()) == []


def _is_private(name: str) -> bool:
    foreign = ("_replace", "_asdict", "_fields", "_get_param_names")  # of named tuples and scikit-learn
    return name.startswith("_") and not name.endswith("__") and name != "_" and name not in foreign


def _defined(tree: ast.Module) -> set[str]:
    """The names that a module defines anywhere: functions, classes, variables, fields, attributes."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("_"):
            names.add(node.value)  # object.__setattr__(self, "_name", value)
    return names


def _imported(tree: ast.Module) -> set[str]:
    """The names that a module imports, and so has for others to take."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {alias.asname or alias.name for node in found for alias in node.names}


# how the tree looks


def test_the_top_holds_four_files_and_the_rooms():
    inside = [path for path in PACKAGE.iterdir() if path.name != "__pycache__"]
    assert {path.stem for path in inside if path.suffix == ".py"} <= set(TOP)
    assert {path.name for path in inside if path.is_dir()} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_a_sign(room):
    sign = ast.get_docstring(MODULES[f"{room}/__init__.py"])
    assert sign, "there is no sign"
    sentences = re.split(r"(?<=\.)\s", sign)
    assert 2 <= len(sentences) <= 4, "two or three plain sentences"
    assert any(re.match(r"(May import|Imports)\s", sentence) for sentence in sentences), "what it may import"


def test_files_are_named_without_underscores_and_say_what_they_hold():
    for module, tree in MODULES.items():
        assert not Path(module).stem.strip("_").startswith("_"), module
        assert not _is_private(Path(module).stem), module
        assert ast.get_docstring(tree), module


def test_a_docstring_begins_with_the_thing_it_describes():
    """Not with a question, which an engineer would have to answer before knowing what the thing is."""
    questions = {"What", "How", "Where", "When", "Which", "Who", "Why", "So", "Those", "Such", "Of"}

    def rules() -> Iterator[str]:
        for module, tree in MODULES.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.Module | ast.ClassDef | Function):
                    first = (ast.get_docstring(node) or "").partition(" ")[0]
                    if first in questions:
                        yield f"{module}: {getattr(node, 'name', 'the module')} begins with {first!r}"

    assert broken(rules()) == []


def test_a_name_is_defined_in_one_module():
    """Two modules that use one name for two things are read wrongly sooner or later."""
    twice = {"Constant", "Linear", "BY_NAME"}  # of kernels and of means; of each list to choose from
    homes: dict[str, str] = {}

    def rules() -> Iterator[str]:
        for module, tree in MODULES.items():
            for name in _classes_and_constants(tree):
                if name not in twice and homes.setdefault(name, module) != module:
                    yield f"{name} is defined in {homes[name]} and in {module}"

    assert broken(rules()) == []


def _classes_and_constants(tree: ast.Module) -> Iterator[str]:
    """The capitalised names that a module defines at its top: classes, types and constants."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [node.name] if isinstance(node, ast.ClassDef) else []
        names += [part.id for target in targets if target for part in ast.walk(target) if hasattr(part, "id")]
        yield from (name for name in names if name[0].isupper())


def test_files_named_in_comments_and_docstrings_exist():
    files = {path.name for folder in ("src", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")}

    def rules() -> Iterator[str]:
        for module in MODULES:
            named = re.findall(r"\b(\w+\.py)\b", (PACKAGE / module).read_text(encoding="utf-8"))
            yield from (f"{module} speaks of {name}" for name in named if name not in files)

    assert broken(rules()) == []


def test_the_package_stays_small():
    assert sum(_lines_of_code(PACKAGE / module, tree) for module, tree in MODULES.items()) < MOST_CODE


def _lines_of_code(path: Path, tree: ast.Module) -> int:
    """The lines of a module without blank ones, comments and docstrings."""
    lines = path.read_text(encoding="utf-8").splitlines()
    told: set[int] = set()
    for node in ast.walk(tree):
        first = node.body[0] if isinstance(node, ast.Module | ast.ClassDef | Function) and node.body else None
        if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
            told.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code = [line.strip() for number, line in enumerate(lines, 1) if number not in told]
    return sum(bool(line) and not line.startswith("#") for line in code)


def test_no_file_is_long():
    def rules() -> Iterator[str]:
        for folder in ("src", "experiments", "benchmarks"):
            for path in (ROOT / folder).rglob("*.py"):
                if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES:
                    yield f"{path.relative_to(ROOT).as_posix()} is long"

    assert broken(rules()) == []


def test_no_function_is_long_or_has_many_parameters():
    def rules() -> Iterator[str]:
        for module, tree in MODULES.items():
            for name, function in _functions(tree):
                if _is_compiled(function):
                    continue
                public = _is_public(module, name) or _is_command(function)
                if _lines(function, public) > MOST_FUNCTION_LINES:
                    yield f"{module}: {name} is long"
                if _parameters(function) > MOST_PARAMETERS and not public:
                    yield f"{module}: {name} has many parameters"

    assert broken(rules()) == []


def _functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(tree):
        name = f"{within}{getattr(node, 'name', '')}"
        if isinstance(node, Function):
            yield name, node
        yield from _functions(node, f"{name}." if isinstance(node, Function | ast.ClassDef) else within)


def _is_compiled(function: Function) -> bool:
    ways = "_jit", "compiled(", "helper("
    return any(ast.unparse(decorator).startswith(ways) for decorator in function.decorator_list)


def _is_command(function: Function) -> bool:
    return any(ast.unparse(decorator).startswith("app.command") for decorator in function.decorator_list)


def _is_public(module: str, name: str) -> bool:
    """Whether it can be reached from `ig`, or is a public method of a class that can."""
    if any(part.startswith("_") and part != "__init__" for part in name.split(".")):
        return False
    home = f"inducing.{module.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"
    first = name.split(".")[0]
    reached = [getattr(ig, word) for word in PUBLIC.split()]
    return any(
        getattr(value, "__name__", "") == home
        or (getattr(value, "__module__", "") == home and getattr(value, "__name__", "") == first)
        or (getattr(getattr(value, first, None), "__module__", "") == home)
        for value in reached
    )


def _lines(function: Function, public: bool) -> int:
    """Its lines; of a public one without the signature and the docstring, which are for people."""
    body = function.body[1:] if public and ast.get_docstring(function) else function.body
    start = body[0].lineno if public and body else function.lineno
    return (function.end_lineno or start) - start + 1


def _parameters(function: Function) -> int:
    a = function.args
    names = [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def test_signatures_of_the_core_name_what_they_take():
    """In model/, engine/ and inference/ none says Any: `Array` and `Given` say which numbers are meant."""

    def rules() -> Iterator[str]:
        for module, tree in MODULES.items():
            if module.split("/")[0] in ("model", "engine", "inference"):
                for name, function in _functions(tree):
                    a = function.args
                    said = [arg.annotation for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
                    if any(
                        node is not None and ast.unparse(node) == "Any" for node in (*said, function.returns)
                    ):
                        yield f"{module}: {name}"

    assert broken(rules()) == []


def test_no_test_draws_from_a_generator_of_its_module():
    """What it drew would depend on which tests ran before."""

    def rules() -> Iterator[str]:
        for path in sorted((ROOT / "tests").rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            drawn = [node for node in tree.body if ast.unparse(node).count("= np.random.default_rng(") == 1]
            shared = {
                ast.unparse(node).split(" = ")[0] for node in drawn if ast.unparse(node).count("(") == 1
            }
            for name, function in _functions(tree):
                inside = [node for line in function.body for node in ast.walk(line)]
                names = [node for node in inside if isinstance(node, ast.Name)]
                own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
                if shared & {node.id for node in names} - own:
                    yield f"{path.name}: {name} draws from a generator of its module"

    assert broken(rules()) == []


def test_nothing_escapes_the_formatter():
    def rules() -> Iterator[str]:
        for folder in ("src", "tests", "experiments", "benchmarks", "docs"):
            for path in (ROOT / folder).rglob("*.py"):
                if "# fmt:" + " skip" in path.read_text(encoding="utf-8"):
                    yield f"{path.relative_to(ROOT).as_posix()} escapes the formatter"

    assert broken(rules()) == []


# what is public


@pytest.mark.parametrize("name", [*PUBLIC.split(), *INSIDE.split()])
def test_a_public_name_is_there(name):
    value = ig
    for part in name.split("."):
        value = getattr(value, part)


def test_the_list_of_public_names_is_complete():
    assert set(dir(ig)) == set(PUBLIC.split())


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def loaded_by(code):
    return python(f"{code}\nimport sys; print(*[name for name in {HEAVY} if name in sys.modules])")


def test_import_takes_less_than_a_second():
    code = "import time; start = time.perf_counter(); import inducing; print(time.perf_counter() - start)"
    assert min(float(python(code)[0]) for _ in range(3)) < 1.0


@pytest.mark.parametrize(
    "code",
    [
        "import inducing",
        "import inducing as ig; ig.kernels.RBF(1.0), ig.bases, ig.selection, ig.errors, ig.metrics, "
        "ig.condition, ig.fit, ig.load",
    ],
)
def test_import_loads_nothing_heavy(code):
    assert loaded_by(code) == []


def test_a_small_regression_needs_no_compiler():
    code = "import inducing as ig, numpy as np; X = np.random.default_rng(0).normal(size=(50, 1)); "
    code += "ig.fit(ig.kernels.RBF(1.0), ig.bases.Points(X[:5]), 'fitc', 0.1, X, X[:, 0], max_iterations=3)"
    assert loaded_by(code) == []


def test_results_do_not_depend_on_what_ran_before() -> None:
    code = """
import inducing as ig, numpy as np
X = np.random.default_rng(0).normal(size=(90, 8))
call = lambda: ig.log_evidence(ig.kernels.Matern32(1.0), ig.bases.Points(X[:40]), 'fitc', 0.1, X, X[:, 0])
first = call()
import inducing.numerics.loops
print(first == call())
"""
    assert python(code) == ["True"]
