"""`import inducing` is quick and light: what is heavy waits until it is used."""

import subprocess
import sys

import pytest

HEAVY = ("sklearn", "pandas", "numba", "matplotlib", "torch", "typer", "rich", "safetensors", "dask")


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


def test_everything_public_is_there():
    python("import inducing as ig; [getattr(ig, name) for name in dir(ig)]")


def test_results_do_not_depend_on_what_ran_before():
    code = """
import inducing as ig, numpy as np
X = np.random.default_rng(0).normal(size=(90, 8))
call = lambda: ig.log_evidence(ig.kernels.Matern32(1.0), ig.bases.Points(X[:40]), 'fitc', 0.1, X, X[:, 0])
first = call()
import inducing.numerics.loops
print(first == call())
"""
    assert python(code) == ["True"]
