"""What is compiled: `warm` reaches all of it, and caches may be missing, shared, or new."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import caching
from numba.core.types.functions import BaseFunction
from typer.testing import CliRunner

import inducing as ig
from inducing.cli import app
from inducing.engine import site_loops
from inducing.inference import online_loops, propagation_loops
from inducing.inference.online import Learner
from inducing.numerics import ahead, compiling

SOURCE = Path(ig.__file__).parent
SCALED = """
import numpy as np
from inducing.numerics import compiling
compiling.QUIET_SECONDS = {patience}
from inducing.numerics.loops import split_scaled
G = np.empty((3, 3))
split_scaled(np.arange(9.0).reshape(3, 3), np.ones(3), G)
print(float(G.sum()))
"""

PROBE = """
import numpy as np
from inducing.numerics.compiling import FAST, compiled, helper

@helper(fastmath=FAST)
def dot(x, y, n):
    total = 0.0
    for i in range(n):
        total += x[i] * y[i]
    return total

@compiled(fastmath=FAST)
def one(x):
    return dot(x, x, len(x))

@compiled(fastmath=FAST)
def two(x):
    return dot(x, x, len(x)) + dot(x, x, len(x))

def show():
    x = np.sin(np.arange(1000.0))
    print(repr(float(one(x))), repr(float(two(x))))
"""


def start(cache: Path, patience: float = 60.0) -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if key != "HOME"}
    environment |= {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(SOURCE.parent)}
    code = [sys.executable, "-c", SCALED.format(patience=patience)]
    pipe = subprocess.PIPE
    return subprocess.Popen(code, env=environment, stdout=pipe, stderr=pipe, text=True)


def functions_compiled() -> set[str]:
    """The functions in the source with a decorator that compiles for calls from Python, or by address."""
    names = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if path.name == "compiling.py" or not re.search(r"\b(compiled|pointed)\(", text):
            continue
        aliases = re.findall(r"^(\w+) = (?:compiled|pointed)\(", text, flags=re.M)
        pattern = rf"^@(?:{'|'.join(['compiled', *aliases])})\b(?:(?!^def ).)*?^def (\w+)"
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        helpers = re.findall(r"^\w+ = compiled\(.*\)\((\w+)\.py_func\)", text, flags=re.M)
        names |= {f"{module}.{name}" for name in (*re.findall(pattern, text, flags=re.M | re.S), *helpers)}
    return names


def test_warm_compiles_every_function_once() -> None:
    seconds = ig.warm(progress=False)
    assert len(seconds) > 8 and all(value >= 0.0 for value in seconds.values())
    own = {name for name in compiling.FUNCTIONS if not name.startswith("experiments.")}
    assert own == functions_compiled()
    assert ahead.HEARD and ahead.HEARD <= own
    assert [name for name in own if not compiling.FUNCTIONS[name].is_compiled] == []


def test_the_command_says_where_it_is_kept() -> None:
    result = CliRunner().invoke(app, ["warm"])
    assert result.exit_code == 0, result.output
    assert "Compiled or loaded all functions in" in result.output and "kept" in result.output


def test_two_processes_share_a_new_cache_and_say_so_once_without_a_home(tmp_path: Path) -> None:
    both = [start(tmp_path, patience=1e-9) for _ in range(2)]
    ends = [process.communicate(timeout=120) for process in both]
    assert [out for out, _ in ends] == ["36.0\n"] * 2, ends
    said = {err for _, err in ends}  # one of them may find the other's work
    assert compiling.NOTICE + "\n" in said and said <= {"", compiling.NOTICE + "\n"}
    assert list(tmp_path.rglob("*.nbi"))
    out, err = start(tmp_path, patience=1e-9).communicate(timeout=120)
    assert (out, err) == ("36.0\n", "")  # nothing to compile, nothing to say


def test_compiled_and_cached_code_round_alike(tmp_path: Path) -> None:
    """Where fast math may reorder sums, each function has copies of its helpers that are its own."""
    (tmp_path / "probe.py").write_text(PROBE)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": f"{SOURCE.parent}:{tmp_path}"}
    run = [sys.executable, "-c", "import probe; probe.show()"]
    first, second = (subprocess.check_output(run, env=environment, text=True) for _ in range(2))
    assert list(tmp_path.rglob("*.nbi")) and first == second
    values = [float(word) for word in first.split()]
    expected = np.sin(np.arange(1000.0)) @ np.sin(np.arange(1000.0))
    assert values == pytest.approx([expected, 2.0 * expected], rel=1e-12)


def test_without_any_place_for_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compiled here, in every process: another one would compile it for nobody."""
    told: list[str] = []
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    monkeypatch.setattr(ahead, "missed", told.append)

    @compiling.compiled()
    def twice(x: float) -> float:
        return 2.0 * x

    @compiling.pointed("float64(float64)")
    def thrice(x: float) -> float:
        return 3.0 * x

    try:
        assert twice(1.5) == 3.0 and compiling.pointer(thrice) > 0 and told == []
    finally:
        for function in (twice, thrice):
            name = next(key for key, value in compiling.FUNCTIONS.items() if value is function)
            del compiling.FUNCTIONS[name]


def test_other_errors_are_not_taken_for_a_missing_cache() -> None:
    def fail(**options: object) -> object:
        raise RuntimeError("something else")

    function = compiling.Compiled(lambda: None, fail, {})
    del compiling.FUNCTIONS[next(key for key, value in compiling.FUNCTIONS.items() if value is function)]
    with pytest.raises(RuntimeError, match="something else"):
        function()


def test_a_python_likelihood_in_compiled_loops_passes_its_errors_on() -> None:
    class Failing(ig.likelihoods.Gaussian):
        kind = None

        def tilted(self, y: float, mean: float, var: float, power: float = 1.0) -> tuple[float, ...]:
            raise ZeroDivisionError("in Python")

    X = np.linspace(0.0, 1.0, 3)[:, None]
    with pytest.raises(ZeroDivisionError, match="in Python"):
        ig.update(ig.prior(ig.kernels.RBF(1.0)), Failing(0.1), X, X[:, 0])


def test_rows_that_were_read_are_given_back() -> None:
    """A block of a stream, and of a sweep, is held by nobody once it is over."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    likelihood = ig.likelihoods.Gaussian(0.1)
    learner = Learner([ig.prior(ig.kernels.RBF(1.0))], likelihood, 2, 10, 1e-6, "mean", True)
    learner.read(X, X[:, :1, None])
    before = [sys.getrefcount(part) for part in (*learner._rows, *learner.state)]
    for i in range(3):
        learner.open(X[: 10 + i], X[: 10 + i, :1, None])
        learner.advance(10 + i)
    assert [sys.getrefcount(part) for part in (*learner._rows, *learner.state)] == before
    for function in (online_loops.run, propagation_loops.sweep_and_grow):
        assert "np" not in function.__wrapped__.__code__.co_names, "it would count references"


def test_another_process_compiles_for_the_types_that_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """One variant serves all: rows and means may be read-only, and there may be several processes."""
    functions = online_loops.run, propagation_loops.sweep_and_grow, site_loops.sweep_rows
    met: dict[str, set[Any]] = {function.name: set() for function in functions}

    def watch(function: compiling.Compiled) -> None:
        ready = function.ready()

        def call(*given: Any) -> Any:
            met[function.name].add(tuple(map(ready.typeof_pyval, given)))
            return ready(*given)

        monkeypatch.setattr(function, "_ready", call)

    usual = {}
    for function in functions:
        usual[function.name] = {tuple(map(function.ready().typeof_pyval, function._usual()))}
        watch(function)
    rng = np.random.default_rng(0)
    X, likelihood = rng.normal(size=(60, 2)), ig.likelihoods.Probit()
    Y = np.sign(rng.normal(size=(60, 2)))
    for y in (Y[:, 0], Y):
        ig.expectation_propagation(ig.kernels.RBF(1.0), likelihood, X, y, capacity=10, sweeps=3)
    X.flags.writeable = False
    ig.update(ig.prior(ig.kernels.RBF(1.0)), likelihood, X, Y[:, 0], capacity=10)
    ig.update_together([ig.prior(ig.kernels.RBF(1.0))] * 2, likelihood, X, Y, capacity=10)
    assert met == usual


def test_tuples_by_address_keep_no_references_and_numba_stays_as_it_was() -> None:
    state = online_loops.allocate(4, 1, 1, exact=False)
    state.size[0], state.A[0] = 2, np.eye(4)
    state.U[0, 1], state.w[0, 0, :2] = 0.5, [3.0, 4.0]
    before = [sys.getrefcount(part) for part in state]
    online_loops.remove_one(state, 0)
    assert [sys.getrefcount(part) for part in state] == before
    assert state.size[0] == 1
    assert state.U[0, 0] * state.w[0, 0, 0] == pytest.approx(
        0.5 * 3.0 + 4.0
    )  # the mean at the one that stays
    assert BaseFunction.get_call_type.__name__ == "get_call_type"
