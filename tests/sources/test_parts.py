"""Rows in parts: every row of the table over a source against dense formulas, its cost, what it refuses, fits
that go on.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import inducing as ig
import oracle
import reference
from inducing.engine.parts import MOST_BLOCK_ROWS
from inducing.errors import (
    EmptyDataError,
    InducingError,
    ModelFileError,
    NoiseError,
    ParameterError,
    ShapeError,
)
from inducing.numerics import workers

LENGTHSCALE, VARIANCE, NOISE, JITTER = np.array([0.8, 0.7]), 1.3, 0.2, 1e-8
KERNEL = ig.kernels.RBF(LENGTHSCALE, VARIANCE)
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (60, 2))
Y = np.sin(X @ [1.0, 2.0]) + 0.4 * RNG.standard_normal(60)
Z = 0.9 * np.stack(np.meshgrid([-1.5, 0.0, 1.5], [-1.5, 0.0, 1.5]), axis=-1).reshape(-1, 2) + RNG.uniform(
    -0.2, 0.2, (9, 2)
)
BASIS = ig.bases.Points(Z)
QUERIES = RNG.uniform(-2.5, 2.5, (12, 2))
CUTS = [[], [25], [0, 7, 7, 40, 60]]  # one part; two; several, some of them empty
ROWS = ["sor", "dtc", "vfe", "fitc", "fic", "pep", "pitc"]


def parts(cuts: list[int], X: Any = X, y: Any = Y) -> ig.sources.Source:
    edges = [0, *cuts, len(X)]
    return ig.as_source(lambda: ((X[a:b], y[a:b]) for a, b in zip(edges[:-1], edges[1:], strict=True)))


def labels(cuts: list[int], n: int = len(X)) -> np.ndarray:
    return np.searchsorted(cuts, np.arange(n), side="right")


def dense(name: str, cuts: list[int]) -> tuple[Any, oracle.Basis, dict[str, Any]]:
    k = oracle.bind(oracle.rbf, lengthscale=LENGTHSCALE, variance=VARIANCE)
    options = {"pep": {"power": 0.5}, "pitc": {"blocks": labels(cuts)}}.get(name, {})
    return k, oracle.jittered(oracle.points(k, Z), JITTER), options


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("name", ROWS)
def test_posterior_equals_dense_conditioning(name: str, cuts: list[int]) -> None:
    k, basis, options = dense(name, cuts)
    mean = ig.means.Linear([0.3, -0.2], 0.7)
    m0, m0s = X @ [0.3, -0.2] + 0.7, QUERIES @ [0.3, -0.2] + 0.7
    expected, covariance = oracle.condition(
        oracle.joint_prior(name, k, basis, X, QUERIES, **options), NOISE, Y, m0, m0s
    )
    evidence = oracle.log_evidence(name, k, basis, NOISE, X, Y, m0=m0, **options)
    post = ig.condition(KERNEL, BASIS, name, NOISE, parts(cuts), mean=mean)
    assert_allclose(post.predict(QUERIES)[0], expected, rtol=1e-8)
    assert_allclose(post.predict(QUERIES)[1], np.diag(covariance), rtol=1e-8)
    assert_allclose(post.log_evidence, evidence, rtol=1e-9)
    assert_allclose(ig.log_evidence(KERNEL, BASIS, name, NOISE, parts(cuts), mean=mean), evidence, rtol=1e-9)


@pytest.mark.parametrize("name", reference.ROWS)
def test_gradient_equals_plain_numpy(name: str) -> None:
    """With parts of several chunks."""
    r = np.random.default_rng(1)
    many = r.uniform(-2, 2, (30_000, 2))
    targets = np.stack([np.sin(many @ [1.0, 2.0]), many[:, 0]], axis=1) + 0.4 * r.standard_normal((30_000, 2))
    source = parts([11_000, 11_000, 12_345], many, targets)
    value, gradient = ig.log_evidence_and_gradient(KERNEL, BASIS, name, NOISE, source)
    expected, slopes = reference.value_and_gradient(name, LENGTHSCALE, VARIANCE, Z, NOISE, many, targets)
    assert_allclose(value, expected, rtol=1e-10)
    assert set(gradient) == set(slopes)
    for key, slope in slopes.items():
        assert_allclose(gradient[key], slope, rtol=0, atol=1e-10 * (1.0 + np.max(np.abs(slope))), err_msg=key)


@pytest.mark.parametrize("name", ["vfe", "fitc", "pitc"])
def test_gradient_equals_differences(name: str) -> None:
    """Of the dense evidence: PITC with parts as blocks, and prior means."""
    cuts, h = [0, 7, 7, 40], 1e-5
    k, basis, options = dense(name, cuts)
    mean = ig.means.Constant(0.4)
    _, gradient = ig.log_evidence_and_gradient(KERNEL, BASIS, name, NOISE, parts(cuts), mean=mean)

    def at(variance: float = VARIANCE, noise: float = NOISE, m0: float = 0.4, shift: float = 0.0) -> float:
        k = oracle.bind(oracle.rbf, lengthscale=LENGTHSCALE, variance=variance)
        moved = Z.copy()
        moved[3, 1] += shift
        basis = oracle.jittered(oracle.points(k, moved), JITTER)
        return oracle.log_evidence(name, k, basis, noise, X, Y, m0=m0, **options)

    def slope(key: str, at_: float) -> float:
        return (at(**{key: at_ + h}) - at(**{key: at_ - h})) / (2 * h)

    assert_allclose(gradient["kernel.variance"], slope("variance", VARIANCE), rtol=1e-6)
    assert_allclose(gradient["noise"], slope("noise", NOISE), rtol=1e-6)
    assert_allclose(gradient["mean.value"], slope("m0", 0.4), rtol=1e-6)
    assert_allclose(gradient["basis.Z"][3, 1], slope("shift", 0.0), rtol=1e-5)


def test_blocks_inside_parts() -> None:
    """Parts of 40 and 20 rows in blocks of at most 15: 14, 13, 13 and 10, 10 rows."""
    inside = np.repeat(np.arange(5), [14, 13, 13, 10, 10])
    k, basis, _ = dense("pitc", [])
    expected = oracle.log_evidence("pitc", k, basis, NOISE, X, Y, blocks=inside)
    assert_allclose(
        ig.log_evidence(KERNEL, BASIS, "pitc", NOISE, parts([40]), blocks=15), expected, rtol=1e-9
    )


@given(st.lists(st.integers(0, 60), max_size=20).map(sorted), st.sampled_from(["vfe", "fitc", "pep"]))
@settings(max_examples=25, deadline=None)
def test_where_the_rows_are_cut_does_not_matter(cuts: list[int], name: str) -> None:
    k, basis, options = dense(name, cuts)
    value = ig.log_evidence(KERNEL, BASIS, name, NOISE, parts(cuts))
    assert_allclose(value, oracle.log_evidence(name, k, basis, NOISE, X, Y, **options), rtol=1e-9)


# cost -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vfe", "fitc", "pitc"])
def test_two_passes(name: str) -> None:
    read = []

    def make() -> Any:
        for i in range(3):
            read.append(i)
            yield X[20 * i : 20 * i + 20], Y[20 * i : 20 * i + 20]

    source = ig.as_source(make)
    for call in (ig.log_evidence_and_gradient, ig.condition, ig.log_evidence):
        read.clear()
        call(KERNEL, BASIS, name, NOISE, source)
        assert read == [0, 1, 2, 0, 1, 2]


MEMORY = """
import json, resource, sys
import numpy as np
import inducing as ig

def rows(parts):
    for i in range(parts):
        X = np.random.default_rng(i).uniform(-3, 3, (25_000, 2))
        yield X, np.sin(X[:, 0]) * X[:, 1]

def value(name, parts):
    basis = ig.bases.Points(np.random.default_rng(99).uniform(-3, 3, (50, 2)))
    source = ig.as_source(lambda: rows(parts))
    return ig.log_evidence_and_gradient(ig.kernels.RBF(1.0), basis, name, 0.1, source)[0]

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

value("vfe", 4), value("fitc", 4)                     # compile and start threads before measuring
before = peak()
values = value("vfe", 40), value("fitc", 40)
print(json.dumps(dict(bytes=peak() - before, finite=bool(np.isfinite(values).all()))))
"""


def test_one_row_is_enough() -> None:
    one = parts([0], X[:1], Y[:1])
    expected = ig.log_evidence(KERNEL, BASIS, "fitc", NOISE, X[:1], Y[:1])
    assert_allclose(ig.log_evidence(KERNEL, BASIS, "fitc", NOISE, one), expected, rtol=1e-12)


def test_memory_does_not_grow_with_the_rows() -> None:
    """Of a million rows X alone takes 16 MB and Kfu 400 MB; ten times the rows take no more than a part's
    buffers.
    """
    pytest.importorskip("resource", reason="peak memory is read with getrusage")
    run = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["finite"]
    assert found["bytes"] < 12e6


def test_threads_are_as_many_as_told() -> None:
    all_of_them = workers.cores()
    with workers.using(threads=1):
        assert workers.cores() == 1
        assert workers.on_device(X) is X
        with workers.using(threads=10_000):
            assert workers.cores() == all_of_them
        assert workers.cores() == 1
    assert workers.cores() == all_of_them


@pytest.mark.parametrize("name", ROWS)
def test_parts_on_a_device(name: str) -> None:
    """PyTorch's CPU as the device: what comes back is NumPy, and the dense answer."""
    pytest.importorskip("torch")
    k, basis, options = dense(name, [25])
    with workers.using(threads=1, device="cpu"):
        value, gradient = ig.log_evidence_and_gradient(KERNEL, BASIS, name, NOISE, parts([25]))
    assert_allclose(value, oracle.log_evidence(name, k, basis, NOISE, X, Y, **options), rtol=1e-9)
    assert isinstance(gradient["basis.Z"], np.ndarray)


# what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "error", "words"),
    [
        ("exact", {}, ParameterError, "all rows in memory"),
        ("bcm", {}, ParameterError, "all rows in memory"),
        ("pic", {}, ParameterError, "use 'pitc'"),
        ("vfe", {"y": Y}, ParameterError, "targets inside"),
        ("vfe", {"weights": np.ones(60)}, ParameterError, "no weights"),
        ("vfe", {"noise": np.ones(60)}, ParameterError, "one number"),
        ("vfe", {"noise": -1.0}, NoiseError, "-1"),
        ("vfe", {"jitter": 2.0}, ParameterError, "jitter"),
        ("vfe", {"basis": None}, ParameterError, "needs a basis"),
        ("vfe", {"basis": ig.bases.Points(np.zeros((3, 5)))}, ShapeError, "5 dimensions, but X has 2"),
        ("vfe", {"mean": ig.means.Constant([1.0, 2.0])}, ShapeError, "2 outputs"),
        ("pitc", {"blocks": labels([25])}, ParameterError, "rows of a block of a source"),
        ("pitc", {"blocks": 0}, ParameterError, "but is 0"),
        ("pep", {"power": 3.0}, ParameterError, "power"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], error: type[InducingError], words: str) -> None:
    options = {"basis": BASIS, "noise": NOISE, "y": None, **options}
    basis, noise, y = (options.pop(key) for key in ("basis", "noise", "y"))
    with pytest.raises(error, match=words):
        ig.condition(KERNEL, basis, name, noise, parts([25]), y, **options)


def test_refused_rows() -> None:
    with pytest.raises(ParameterError, match="no targets"):
        ig.condition(KERNEL, BASIS, "vfe", NOISE, parts([25]).without_targets())
    with pytest.raises(EmptyDataError, match="no part of the source has rows"):
        ig.condition(KERNEL, BASIS, "vfe", NOISE, parts([0], X[:0], Y[:0]))
    large = np.zeros((MOST_BLOCK_ROWS + 1, 2))
    with pytest.raises(ParameterError, match="part 0 has 16385 rows"):
        ig.condition(KERNEL, BASIS, "pitc", NOISE, parts([], large, large[:, 0]))


# fits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vfe", "fitc"])
def test_fit_climbs_the_same_hill(name: str) -> None:
    """The fit over parts ends where the one on arrays does, at a point whose dense evidence is the value it
    says.
    """
    over_parts = ig.fit(KERNEL, BASIS, name, NOISE, parts([0, 7, 30]), max_iterations=300, tolerance=1e-13)
    on_arrays = ig.fit(KERNEL, BASIS, name, NOISE, X, Y, max_iterations=300, tolerance=1e-13)
    assert_allclose(over_parts.value, on_arrays.value, rtol=1e-6)
    k = oracle.bind(oracle.rbf, **over_parts.kernel.parameters)
    basis = oracle.jittered(oracle.points(k, over_parts.basis.Z), JITTER)
    assert_allclose(over_parts.value, oracle.log_evidence(name, k, basis, over_parts.noise, X, Y), rtol=1e-7)
    assert over_parts.value > ig.log_evidence(KERNEL, BASIS, name, NOISE, X, Y) + 5.0


KILLED = """
import sys, time
import numpy as np
import inducing as ig
from inducing.files import checkpoints

checkpoints.INTERVAL = 0.0
X, y = np.load(sys.argv[1], mmap_mode="r"), np.load(sys.argv[2], mmap_mode="r")

def progress(iteration, value):
    print(repr(value), flush=True)
    time.sleep(0.05)

basis = ig.bases.Points(np.array(X[:15]))
fit = ig.fit(ig.kernels.RBF([3.0, 3.0]), basis, "vfe", 2.0, ig.as_source(X, y, chunk_rows=300),
             checkpoint=sys.argv[3], max_iterations=int(sys.argv[4]), progress=progress)
print("done", repr(fit.value), flush=True)
"""


def test_a_killed_fit_goes_on(tmp_path: Path) -> None:
    r = np.random.default_rng(3)
    rows = r.uniform(-2, 2, (1000, 2))
    np.save(tmp_path / "X.npy", rows)
    np.save(tmp_path / "y.npy", np.sin(3 * rows[:, 0]) + rows[:, 1] + 0.1 * r.standard_normal(1000))
    files = [str(tmp_path / name) for name in ("X.npy", "y.npy", "checkpoint.npz")]

    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, *files, "200"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    reached = [float(process.stdout.readline()) for _ in range(8)]
    time.sleep(0.02)  # inside the next iteration or its pause
    os.kill(process.pid, signal.SIGKILL)
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL

    run = subprocess.run(
        [sys.executable, "-c", KILLED, *files, "0"], capture_output=True, text=True, timeout=120, check=True
    )
    resumed = float(run.stdout.split()[-1])
    assert resumed >= reached[-2]  # the last one told may have been killed before it was written
    assert resumed > reached[0] + 10.0

    source = ig.as_source(rows + 1.0, np.load(files[1]), chunk_rows=300)
    with pytest.raises(ModelFileError, match="another problem"):
        ig.fit(
            ig.kernels.RBF([3.0, 3.0]), ig.bases.Points(rows[:15]), "vfe", 2.0, source, checkpoint=files[2]
        )


def test_passes_are_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    ig.fit(KERNEL, BASIS, "vfe", NOISE, parts([0, 7, 30]), max_iterations=2, progress=True)
    shown = capsys.readouterr().err
    assert "vfe: iteration 2, log evidence" in shown
    assert "parts read" in shown and "4/4" in shown
    ig.fit(KERNEL, BASIS, "vfe", NOISE, parts([0, 7, 30]), max_iterations=2)  # stderr is no terminal here
    assert capsys.readouterr().err == ""
