"""The engine: chunks, threads and BLAS against plain NumPy; determinism, thread settings, cost; compiled
queries.
"""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.testing import assert_allclose
from threadpoolctl import threadpool_info, threadpool_limits

import inducing as ig
import reference
from inducing.numerics import arrays, workers

LENGTHSCALE, VARIANCE, NOISE = np.array([0.5, 0.4, 0.6]), 1.3, 0.3
KERNEL = ig.kernels.RBF(LENGTHSCALE, VARIANCE)


def spread(m: int) -> np.ndarray:
    """Basis points well apart, so that rounding stays far below the tolerances: a grid, a little shaken. (m,
    3)
    """
    r = np.random.default_rng(m)
    side = 0.6 * (np.arange(7) - 3)
    grid = np.stack(np.meshgrid(side, side, side), axis=-1).reshape(-1, 3)
    return r.permutation(grid)[:m] + r.uniform(-0.1, 0.1, (m, 3))


def rows(n: int, outputs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    r = np.random.default_rng(n)
    X = r.uniform(-2, 2, (n, 3))
    y = np.sin(X @ [1.0, 2.0, 0.5]) + np.sqrt(NOISE) * r.standard_normal(n)
    return X, y if outputs is None else np.stack([np.cos(q * X[:, 0]) * y for q in range(outputs)], axis=1)


def plain(name: str, *data: Any, **options: Any) -> tuple[float, dict[str, Any]]:
    with threadpool_limits(1, user_api="blas"):  # several threads are slow on a busy machine
        return reference.value_and_gradient(name, LENGTHSCALE, VARIANCE, *data, **options)


@cache
def expected(name: str, n: int, m: int) -> tuple[float, dict[str, Any]]:
    return plain(name, spread(m), NOISE, *rows(n))


def agree(
    name: str, n: int, m: int, *, outputs: int | None = None, noise: Any = NOISE, **options: Any
) -> None:
    """Value and every gradient equal the reference's to 1e-10 of its size."""
    X, y = rows(n, outputs)
    Z = spread(m)
    got = ig.log_evidence_and_gradient(KERNEL, ig.bases.Points(Z), name, noise, X, y, **options)
    if outputs is None and noise is NOISE and not options:
        value, gradient = expected("dtc" if name == "sor" else name, n, m)  # the same evidence
    else:
        options["share"] = options.pop("power", None)
        value, gradient = plain(name, Z, noise, X, y, **options)
    assert_allclose(got[0], value, rtol=1e-10)
    assert set(got[1]) == set(gradient)
    for key, slope in gradient.items():
        scale = 1.0 + np.max(np.abs(slope))  # some vanish: a single row's FITC evidence does not depend on Z
        assert_allclose(got[1][key], slope, rtol=0, atol=1e-10 * scale, err_msg=key)


@pytest.mark.parametrize("m", [1, 3, 300])
@pytest.mark.parametrize("n", [1, 2, 127, 5000, 20011])
@pytest.mark.parametrize("name", reference.ROWS)
def test_equals_plain_numpy(name: str, n: int, m: int) -> None:
    agree(name, n, m)


def test_sizes_cross_the_boundaries() -> None:
    """The sizes above reach one and several chunks, an incomplete last one, with and without threads."""
    X, _ = rows(20011)
    chunks = {m: workers.chunk_rows(20011, m, X) for m in (1, 3, 300)}
    assert all(20011 > 2 * c and 20011 % c for c in chunks.values())
    assert 127 < chunks[300] < 5000
    assert 127 * 3 < arrays.SMALL < 127 * 300


@pytest.mark.parametrize(("n", "m"), [(2, 3), (127, 3), (2000, 300)])
@pytest.mark.parametrize("name", reference.ROWS)
def test_outputs_weights_and_noise_of_each_row(name: str, n: int, m: int) -> None:
    r = np.random.default_rng(1)
    weights, noise = r.uniform(0.5, 3.0, n), r.uniform(0.1, 0.5, n)
    power = {"power": 0.3} if name == "pep" else {}
    agree(name, n, m, outputs=1)
    agree(name, n, m, outputs=3, jitter=1e-3, **power)
    agree(name, n, m, weights=weights)
    agree(name, n, m, noise=noise, jitter=0.0, **power)
    agree(name, n, m, outputs=2, noise=noise, weights=weights)


# determinism ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vfe", "fitc", "pitc"])
def test_repeated_runs_are_equal_bit_by_bit(name: str) -> None:
    X, y = rows(5000)
    options = {"blocks": np.arange(5000) // 80} if name == "pitc" else {}

    def once() -> list[Any]:
        value, gradient = ig.log_evidence_and_gradient(
            KERNEL, ig.bases.Points(spread(100)), name, NOISE, X, y, **options
        )
        post = ig.condition(KERNEL, ig.bases.Points(spread(100)), name, NOISE, X, y, **options)
        return [value, *gradient.values(), *post.predict(X), post.log_evidence]

    first = once()
    for _ in range(4):
        assert all(np.array_equal(a, b) for a, b in zip(first, once(), strict=True))


SMALL_AND_LARGE = """
import sys
import numpy as np
import inducing as ig
r = np.random.default_rng(0)
X, Z = r.uniform(-2, 2, (400, 3)), ig.bases.Points(r.uniform(-2, 2, (20, 3)))
def small():
    return ig.log_evidence_and_gradient(ig.kernels.RBF(0.5), Z, "fitc", 0.1, X, np.sin(X[:, 0]))
value, gradient = small()
X2 = r.uniform(-2, 2, (20_000, 3))
ig.log_evidence(ig.kernels.RBF(0.5), Z, "fitc", 0.1, X2, np.sin(X2[:, 0]))  # warms up
again, gradient_again = small()
assert abs(again - value) <= 1e-13 * abs(value), (again, value)
for key in gradient:
    difference = np.max(np.abs(gradient_again[key] - gradient[key]))
    assert difference <= 1e-13 * np.max(np.abs(gradient[key])) * 10, (key, difference)
"""


def test_what_ran_before_does_not_matter() -> None:
    """A small problem, before and after compiled loops are loaded and threads started."""
    run = subprocess.run(
        [sys.executable, "-c", SMALL_AND_LARGE], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr


# threads ----------------------------------------------------------------------------------------------------


def blas_threads() -> list[tuple[Any, ...]]:
    return sorted((i["filepath"], i["num_threads"]) for i in threadpool_info() if i["user_api"] == "blas")


def evaluate(n: int = 5000, kernel: Any = KERNEL) -> float:
    X, y = rows(n)
    return ig.log_evidence_and_gradient(kernel, ig.bases.Points(spread(100)), "fitc", NOISE, X, y)[0]


@pytest.mark.parametrize("limit", [None, 1, 2])
def test_blas_threads_are_given_back(limit: int | None) -> None:
    evaluate()  # every library is loaded
    with threadpool_limits(limit, user_api="blas"):
        before = blas_threads()
        X, y = rows(5000)
        fitted = ig.fit(KERNEL, ig.bases.Points(spread(20)), "vfe", NOISE, X, y, max_iterations=2)
        fitted.posterior.predict(X)
        assert blas_threads() == before


@dataclass(frozen=True, eq=False)
class Failing(ig.kernels.RBF):
    """Breaks in the middle of the second pass, in a worker only, for which the calling thread waits."""

    broken: ClassVar[threading.Event] = threading.Event()

    def pullback(self, X: Any, *rest: Any) -> Any:
        if threading.current_thread().name.startswith("inducing"):
            self.broken.set()
            raise ZeroDivisionError("on purpose")
        self.broken.wait(60.0)
        return super().pullback(X, *rest)


@pytest.mark.skipif(workers.cores() < 2, reason="a single core has no workers")
def test_blas_threads_are_given_back_after_an_exception() -> None:
    value = evaluate()
    before = blas_threads()
    for _ in range(3):
        Failing.broken.clear()
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            evaluate(kernel=Failing(LENGTHSCALE, VARIANCE))
        assert blas_threads() == before
    assert evaluate() == value, "the workers are as good as before"


@dataclass(frozen=True, eq=False)
class Slow(ig.kernels.RBF):
    """Breaks at once in the calling thread, while the workers take their time."""

    running: ClassVar[list[int]] = []

    def _diag(self, X: Any) -> Any:
        if not threading.current_thread().name.startswith("inducing"):
            raise ZeroDivisionError("on purpose")
        self.running.append(1)
        threading.Event().wait(0.05)
        self.running.pop()
        return super()._diag(X)


@pytest.mark.skipif(workers.cores() < 2, reason="a single core has no workers")
def test_nothing_runs_on_after_an_exception() -> None:
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        evaluate(kernel=Slow(LENGTHSCALE, VARIANCE))
    assert not Slow.running
    assert workers.single_threaded_blas._depth == 0


@dataclass(frozen=True, eq=False)
class Nested(ig.kernels.RBF):
    """Runs another evaluation inside its own: nested use of workers and limits."""

    depth: ClassVar[threading.local] = threading.local()

    def _diag(self, X: Any) -> Any:
        if not getattr(self.depth, "inside", False):
            self.depth.inside = True
            try:
                assert workers.single_threaded_blas._depth > 0
                ig.log_evidence(KERNEL, ig.bases.Points(spread(3)), "vfe", NOISE, *rows(100))
            finally:
                self.depth.inside = False
        return super()._diag(X)


@dataclass(frozen=True, eq=False)
class Own(ig.kernels.RBF):
    """A kernel of one's own, which does not have RBF's compiled loops."""


def test_nested_calls() -> None:
    value = evaluate(kernel=Own(LENGTHSCALE, VARIANCE))
    before = blas_threads()
    assert evaluate(kernel=Nested(LENGTHSCALE, VARIANCE)) == value
    assert blas_threads() == before


def test_concurrent_calls() -> None:
    """User threads share the workers; each gets its own answer, and the settings come back after the last."""
    sizes = [5000, 700, 3000, 5000, 20, 2500]
    values = [evaluate(n) for n in sizes]
    before = blas_threads()
    with ThreadPoolExecutor(6) as pool:
        for _ in range(3):
            assert list(pool.map(evaluate, sizes)) == values
    assert blas_threads() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # that is what is tested
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_forked_child_can_compute(busy: bool) -> None:
    """The parent's threads do not exist in the child, nor does a limit another thread had set; it makes its
    own.
    """
    value = evaluate()
    before = blas_threads()
    stop = threading.Event()
    worker = threading.Thread(target=lambda: [evaluate() for _ in iter(stop.is_set, True)])
    if busy:
        worker.start()
        while workers.single_threaded_blas._depth == 0:
            pass
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if evaluate() == value and blas_threads() == before else 2
        finally:
            os._exit(code)
    stop.set()
    if busy:
        worker.join()
    assert wait_for(child, seconds=60) == 0


def wait_for(child: int, seconds: float) -> int:
    """The child's exit code; a child that hangs is ended and gives -1."""
    for _ in range(int(seconds / 0.05)):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        threading.Event().wait(0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


# cost -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Counting(ig.kernels.RBF):
    """Notes the shape of every matrix asked for."""

    asked: ClassVar[list[tuple[int, int]]] = []

    def covariances(self, X: Any, Z: Any, out: Any = None) -> Any:
        self.asked.append((X.shape[0], Z.shape[0]))
        return super().covariances(X, Z, out)


@pytest.mark.parametrize("name", [*reference.ROWS, "fic", "pitc"])
def test_kernel_evaluations(name: str) -> None:
    """Kuu once and Kfu at most twice; of K itself only the blocks that a row is about."""
    n, m, b = 5000, 40, 50
    X, y = rows(n)
    kernel, basis = Counting(LENGTHSCALE, VARIANCE), ig.bases.Points(spread(m))
    options = {"blocks": np.arange(n) // b} if name == "pitc" else {}
    allowed = m * m + 2 * n * m + (2 * n * b if name == "pitc" else 0)
    for call in (ig.log_evidence, ig.log_evidence_and_gradient, ig.condition):
        Counting.asked.clear()
        result = call(kernel, basis, name, NOISE, X, y, **options)
        assert sum(i * j for i, j in Counting.asked) <= allowed
        chunk = workers.chunk_rows(n, m, X) + b  # a block is never cut in two
        assert max(i * j for i, j in Counting.asked) <= max(chunk * m, m * m, b * b)
    Counting.asked.clear()
    result.predict(X)
    assert sum(i * j for i, j in Counting.asked) == n * m, "predicting looks at each pair once"


# using the posterior ----------------------------------------------------------------------------------------

SMALL_X, SMALL_Y = rows(200)
QUERIES = np.random.default_rng(5).uniform(-2.2, 2.2, (30, 3))
MEANS = {"zero": None, "constant": ig.means.Constant(0.7), "linear": ig.means.Linear([0.3, -1.0, 0.2], 0.4)}
CASES = [
    *(
        ("RBF", kind, name)
        for kind in ("points", "multiscale")
        for name in ("sor", "dtc", "vfe", "fitc", "fic", "pep")
    ),
    *(
        (kernel, "points", name)
        for kernel in ("Matern12", "Matern32", "Matern52")
        for name in ("sor", "fitc", "fic")
    ),
    *((kernel, "points", "exact") for kernel in ("RBF", "Matern12", "Matern32", "Matern52")),
    *(
        (kernel, "points", name)
        for kernel in ("RationalQuadratic", "sum", "product")
        for name in ("sor", "vfe")
    ),
]
COMPOSED = {
    "sum": ig.kernels.RBF(LENGTHSCALE, VARIANCE)
    + ig.kernels.Linear([0.3, 0.1, 0.2])
    + ig.kernels.Matern32(0.7, 0.4, columns=(1,)),
    "product": (ig.kernels.Linear(0.4, columns=(2, 0)) + ig.kernels.Constant(0.5))
    * ig.kernels.RationalQuadratic(LENGTHSCALE, VARIANCE, shape=0.6),
}


def posterior(kernel: str, kind: str, name: str, mean: str = "linear") -> Any:
    Z = spread(17)
    basis = (
        ig.bases.Points(Z)
        if kind == "points"
        else ig.bases.Multiscale(Z, LENGTHSCALE * (0.8 + 0.05 * (Z + 2)))
    )
    k = COMPOSED.get(kernel) or getattr(ig.kernels, kernel)(LENGTHSCALE, VARIANCE)
    return ig.condition(k, basis, name, NOISE, SMALL_X, SMALL_Y, mean=MEANS[mean])


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize(("kernel", "kind", "name"), CASES)
def test_compiled_equals_predict(kernel: str, kind: str, name: str, mean: str) -> None:
    post = posterior(kernel, kind, name, mean)
    predictor = post.compile()
    expected_mean, expected_variance = post.predict(QUERIES)
    got = np.array([predictor(x) for x in QUERIES])
    assert_allclose(got[:, 0], expected_mean, rtol=1e-10, atol=1e-10)
    assert_allclose(got[:, 1], expected_variance, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("kernel", "kind", "name"), [*CASES[::2], ("RBF", "multiscale", "sor")])
def test_compiled_with_units(kernel: str, kind: str, name: str) -> None:
    """For a process over standardised data, in the user's units and with the noise of an observation."""
    post = posterior(kernel, kind, name)
    units = dict(
        x_mean=np.array([3.0, -1.0, 0.5]), x_scale=np.array([2.0, 0.1, 30.0]), y_mean=-4.0, y_scale=2.5
    )
    predictor = post.compile().in_units(**units, noise=NOISE)
    mean, variance = post.predict(QUERIES)
    got = np.array([predictor(units["x_mean"] + units["x_scale"] * x) for x in QUERIES])
    assert_allclose(got[:, 0], units["y_mean"] + units["y_scale"] * mean, rtol=1e-10, atol=1e-10)
    assert_allclose(got[:, 1], units["y_scale"] ** 2 * (variance + NOISE), rtol=1e-10, atol=1e-10)


def test_what_cannot_be_compiled_is_refused() -> None:
    k = ig.kernels.RBF(LENGTHSCALE, VARIANCE)
    refused = [
        ig.condition(
            k + ig.kernels.Periodic(1.0), ig.bases.Points(spread(5)), "vfe", NOISE, SMALL_X, SMALL_Y
        ),
        ig.condition(k, ig.bases.Points(spread(5)), "vfe", NOISE, *rows(200, outputs=2)),
        ig.prior(k),
    ]
    for post in refused:
        with pytest.raises(ig.errors.ParameterError, match="compiled"):
            post.compile()


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize(("kernel", "kind", "name"), CASES)
def test_predict_is_the_diagonal_of_the_covariance(
    kernel: str, kind: str, name: str, outputs: int | None
) -> None:
    """At every row of several chunks, of which the covariance sees some."""
    post = posterior(kernel, kind, name)
    if outputs:
        post = ig.condition(post.kernel, post.basis, name, NOISE, *rows(200, outputs))
    X, _ = rows(9000)
    mean, variance = post.predict(X)
    some = np.r_[0:5, 4090:4100, 8995:9000]
    assert mean.shape == ((9000,) if outputs is None else (9000, outputs))
    assert_allclose(variance[some], np.diag(post.covariance(X[some])), rtol=1e-9, atol=1e-10)
    assert_allclose(mean, post.mean(X), rtol=1e-9, atol=1e-10)


# the benchmark ----------------------------------------------------------------------------------------------


def test_benchmark_runs(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "run.py"
    command = [sys.executable, str(script), "--quick", "--output", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    text = (tmp_path / "RESULTS.md").read_text()
    for heading in (
        "Value and gradient",
        "Prediction",
        "One query",
        "loaded",
        "Memory",
        "Cold start",
        "Scaling",
    ):
        assert heading in text
    assert (tmp_path / "scaling.png").stat().st_size > 0


def test_workers_follow_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large machine does small problems on one core: no thread is woken for less than its share."""
    monkeypatch.setattr(workers, "_process_cores", lambda: 16)
    counts = [workers.workers_for(n * m * (m + 64)) for n, m in SIZES_AND_WORKERS]
    assert counts == list(SIZES_AND_WORKERS.values())
    assert workers.chunk_rows(2000, 20, np.empty(0)) == 2000  # in one piece


def test_a_slow_worker_hands_its_tasks_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tasks 0 and 2 for one state and 1 and 3 for another, 2 goes to the worker who has done 3 and waits,
    unless a busy machine has kept it from waiting that long.
    """
    monkeypatch.setattr(workers, "_process_cores", lambda: 2)
    for _ in range(20):
        by, others_done = {}, threading.Event()

        def step(state: list[int], task: int, by: dict[int, int] = by, done: Any = others_done) -> None:
            if task == 0:
                assert done.wait(20.0)
                time.sleep(0.05)
            by[task] = threading.get_ident()
            state.append(task)
            if task == 3:
                done.set()

        assert workers.run_over([0, 1, 2, 3], list, step, parallel=True) == [[0, 2], [1, 3]]
        if by[2] != by[0]:
            return
    raise AssertionError("no task was handed on")


def test_scratch_arrays_are_used_again_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_spare", {})
    monkeypatch.setattr(workers, "_process_cores", lambda: 1)
    first, second = workers.taken((3, 2)), workers.taken((3, 2))
    assert first is not second
    workers.put_back([first])
    assert workers.taken((2, 3)) is not first and workers.taken((3, 2)) is first
    workers.put_back([first, np.empty(workers.SPARE_BYTES // 8)])  # too much: nothing is kept
    assert workers.taken((3, 2)) is not first


SIZES_AND_WORKERS = {(500, 20): 1, (2000, 100): 2, (10_000, 100): 6, (10_000, 500): 16, (44_000, 500): 16}


def test_cores_obey_the_environment_and_quotas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def container(line: str, files: dict[str, str], name: str) -> int:
        root = tmp_path / name
        for path, text in {"proc/self/cgroup": line, **files}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return workers._quota(str(root))

    assert container("0::/a/b\n", {"sys/fs/cgroup/a/cpu.max": "150000 100000\n"}, "above") == 2
    both = {"sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "300000 100000\n"}
    assert container("0::/a/b\n", both, "own") == 3
    old = {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}
    files = {f"sys/fs/cgroup/cpu/a/{key}": value for key, value in old.items()}
    assert container("3:cpu,cpuacct:/a\n1:memory:/a\n", files, "old") == 1
    assert container("0::/\n", {}, "none") > 1000 and workers._quota(str(tmp_path / "nothing")) > 1000
    cores = workers._process_cores.__wrapped__  # as it is read at the first call
    monkeypatch.setenv("OMP_NUM_THREADS", "1,2")
    assert cores() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "a few")
    assert cores() >= 1
