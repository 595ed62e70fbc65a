"""Kernels of several parts in the compiled passes over rows, and the rational quadratic with its shape:
against dense formulas and central differences, and against the plain passes.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
import oracle
from inducing.engine import compiled_passes as _rows
from inducing.engine import passes as _passes
from inducing.model.likelihoods import Poisson, Probit
from inducing.model.problem import make_problem
from inducing.model.table import TABLE
from inducing.numerics import exponential as _exponential

k = ig.kernels
RNG = np.random.default_rng(5)
N, M, D, NOISE, JITTER = 90, 7, 3, 0.2, 1e-8
X = RNG.uniform(-2.0, 2.0, (N, D))
Z = RNG.uniform(-1.8, 1.8, (M, D))
Y = np.sin(X @ [1.0, 2.0, -0.5]) + 0.4 * RNG.standard_normal(N)
LENGTHS = np.array([0.8, 0.7, 1.4])
CURVES = tuple(k.Matern52(0.6 + 0.2 * i, 0.3, columns=(i,)) for i in range(D))
KERNELS: dict[str, Any] = {
    "rational": k.RationalQuadratic(LENGTHS, 1.3, 0.6),
    "rational, columns": k.RationalQuadratic([0.8, 1.1], 1.3, 2.5, columns=(2, 0)),
    "columns": k.Matern32(0.9, 1.2, columns=(1,)),
    "rbf + matern": k.RBF(LENGTHS, 0.6) + k.Matern12(1.1, 0.5),
    "linear + rbf": k.Linear([0.2, 0.3], columns=(2, 1)) + k.RBF(LENGTHS, 0.7),
    "rational + linear": k.RationalQuadratic(0.9, 1.0, 1.7) + k.Linear(0.3),
    "rbf + curves": k.Sum((k.RBF(LENGTHS, 0.8), *CURVES)),
    "a sum of one": k.Sum((k.Matern52(LENGTHS, 0.8),)),
    "rbf * matern": k.RBF(LENGTHS, 1.2) * k.Matern32(1.6, 0.9),
    "three factors": k.Matern12(2.0, 1.1)
    * k.RBF(0.8, 1.2, columns=(0,))
    * k.RationalQuadratic(1.5, 0.9, 0.7),
}
ROWS: dict[str, dict[str, Any]] = {"sor": {}, "dtc": {}, "vfe": {}, "fitc": {}, "pep": {"power": 0.5}}
FORMULAS: dict[str, Callable[..., Any]] = {
    "RBF": oracle.rbf,
    "Matern12": oracle.matern12,
    "Matern32": oracle.matern32,
    "Matern52": oracle.matern52,
    "RationalQuadratic": oracle.rational_quadratic,
    "Linear": oracle.linear,
}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled passes whatever the size, over tiles that end in the middle of things, on all cores."""
    monkeypatch.setattr(_rows, "LEAST", 0)
    monkeypatch.setattr(_rows, "TILE", 32)
    monkeypatch.setattr(_rows, "on_all_cores", lambda P: True)


def dense(kernel: Any, p: dict[str, Any]) -> oracle.Kernel:
    """The kernel by its formulas, at parameters by path."""
    joined = getattr(kernel, "parts", None)
    leaves = (
        {"kernel.": kernel} if joined is None else {f"kernel.{i}.": leaf for i, leaf in enumerate(joined)}
    )

    def value(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        found = []
        for head, leaf in leaves.items():
            seen = slice(None) if leaf.columns is None else list(leaf.columns)
            own = {name: p[head + name] for name in leaf.parameters}
            found.append(FORMULAS[type(leaf).__name__](A[:, seen], B[:, seen], **own))
        return np.prod(found, axis=0) if isinstance(kernel, k.Product) else np.sum(found, axis=0)

    return value


def assert_same(gradient: dict[str, Any], slopes: dict[str, Any], rtol: float = 1e-8) -> None:
    assert gradient.keys() == slopes.keys()
    for key, slope in slopes.items():
        most = np.max(np.abs(slope))
        assert_allclose(gradient[key], slope, rtol=rtol, atol=0.1 * rtol * most, err_msg=key)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ROWS)
def test_value_and_gradient_are_the_dense_ones(name: str, kernel: str) -> None:
    given = KERNELS[kernel]

    def value(p: dict[str, Any]) -> float:
        f = dense(given, p)
        basis = oracle.jittered(oracle.points(f, p["basis.Z"]), JITTER)
        return oracle.log_evidence(name, f, basis, p["noise"], X, Y, **ROWS[name])

    arguments = given, ig.bases.Points(Z), name, NOISE, X, Y
    assert _rows.form_of(make_problem(given, ig.bases.Points(Z), TABLE[name], NOISE, X, Y)) is not None
    found, gradient = ig.log_evidence_and_gradient(*arguments, jitter=JITTER, **ROWS[name])
    here: dict[str, Any] = {f"kernel.{path}": at for path, at in given.parameters.items()}
    here |= {"basis.Z": Z, "noise": NOISE}
    assert found == pytest.approx(value(here), rel=1e-10)
    slopes = oracle.central_differences(value, here)
    assert gradient.keys() == slopes.keys()
    for key, slope in slopes.items():
        atol = 1e-5 * max(1.0, np.max(np.abs(slope)))
        assert_allclose(gradient[key], slope, rtol=1e-5, atol=atol, err_msg=key)


@pytest.mark.parametrize(
    ("kernel", "far"),
    # a row that far out has a linear variance of 1e9, and no digits are left of the others'
    [(kernel, far) for kernel in KERNELS for far in (0.0, 80.0, 1e5) if far < 1e5 or "linear" not in kernel],
)
@pytest.mark.parametrize("rich", [False, True], ids=["plain", "rich"])
@pytest.mark.parametrize("name", ROWS)
def test_the_plain_passes_agree(
    name: str, kernel: str, rich: bool, far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two outputs, weights, a noise for each row and a mean, too; a row so far out that distances go by
    differences or that all go by arrays, one at an inducing input, and one next to another.
    """
    rng = np.random.default_rng(100)
    rows = np.concatenate([X, [[0.0, far, 0.0], [1.0, 0.5, 0.1]]])
    rows[0], rows[1] = Z[0], Z[1] + 1e-9
    y = np.append(Y, [0.1, 0.2])
    options: dict[str, Any] = {"mean": ig.means.Linear([0.3, -0.2, 0.0], 0.7), **ROWS[name]}
    noise: Any = NOISE
    if rich:
        y = np.column_stack([y, y**2])
        noise, options["weights"] = rng.uniform(0.1, 0.4, N + 2), rng.uniform(0.5, 2.0, N + 2)
    arguments = KERNELS[kernel], ig.bases.Points(Z), name, noise, rows, y
    value, gradient = ig.log_evidence_and_gradient(*arguments, **options)
    monkeypatch.setattr(_rows, "LEAST", 1 << 60)
    expected, slopes = ig.log_evidence_and_gradient(*arguments, **options)
    assert value == pytest.approx(expected, rel=1e-12)
    assert_same(gradient, slopes)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("likelihood", ["poisson", "probit"])
@pytest.mark.parametrize("name", ROWS)
def test_sites_of_other_likelihoods_agree(
    name: str, likelihood: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = Poisson() if likelihood == "poisson" else Probit(0.5)
    y = np.floor(np.exp(Y)) if likelihood == "poisson" else np.sign(Y)
    options = {"mean": ig.means.Constant(0.2), "tolerance": 1e-11, **ROWS[name]}
    arguments = KERNELS[kernel], ig.bases.Points(Z), name, model, X, y
    value, gradient = ig.log_evidence_and_gradient(*arguments, **options)
    monkeypatch.setattr(_rows, "LEAST", 1 << 60)
    expected, slopes = ig.log_evidence_and_gradient(*arguments, **options)
    assert value == pytest.approx(expected, rel=1e-10)
    assert_same(gradient, slopes, rtol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["vfe", "fitc"])
def test_what_is_not_kept_is_made_again(name: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = KERNELS[kernel], ig.bases.Points(Z), name, NOISE, X, Y
    expected, slopes = ig.log_evidence_and_gradient(*arguments)
    monkeypatch.setattr(_passes.Held, "room_for", staticmethod(lambda P: _passes.Held()))
    value, gradient = ig.log_evidence_and_gradient(*arguments)
    assert value == pytest.approx(expected, rel=1e-13)
    assert_same(gradient, slopes, rtol=1e-10)


@pytest.mark.parametrize(
    "kernel",
    [
        k.RBF(LENGTHS) * k.Matern32(1.0) + k.Linear(0.3),  # a sum of products
        k.RBF(LENGTHS) * (k.Matern32(1.0) + k.RBF(2.0)),  # a product of sums
        k.RBF(LENGTHS) * k.Linear(0.3),  # W would need a quotient
        k.Linear(0.3),
        k.Matern(LENGTHS, 1.0, 1.1),
        k.RBF([1.0, 2.0], columns=(1, 1)),
    ],
    ids=str,
)
def test_other_kernels_go_through_arrays(kernel: Any) -> None:
    P = make_problem(kernel, ig.bases.Points(Z), TABLE["fitc"], NOISE, X, Y)
    assert _rows.form_of(P) is None


def test_blocks_know_one_kernel_of_all_inputs() -> None:
    blocks = np.arange(N) // 10
    for name, kernel in KERNELS.items():
        P = make_problem(kernel, ig.bases.Points(Z), TABLE["pitc"], NOISE, X, Y, blocks=blocks)
        assert (_rows.form_of(P) is not None) == (name == "rational")


def test_a_shape_without_end_is_an_rbf() -> None:
    """(1 + s/(2a))^(-a) is exp(-s/2) but for s²/(4a), and so is its slope."""
    arguments = ig.bases.Points(Z), "fitc", NOISE, X, Y
    expected, slopes = ig.log_evidence_and_gradient(k.RBF(LENGTHS, 1.3), *arguments)
    value, gradient = ig.log_evidence_and_gradient(k.RationalQuadratic(LENGTHS, 1.3, 1e9), *arguments)
    assert value == pytest.approx(expected, rel=1e-6)
    assert abs(gradient.pop("kernel.shape")) < 1e-12
    for key, slope in slopes.items():
        assert_allclose(gradient[key], slope, rtol=1e-5, atol=1e-6 * np.max(np.abs(slope)), err_msg=key)


def test_logarithms_to_the_last_digits() -> None:
    log_one_plus = _exponential.log_one_plus.made()

    @numba.njit
    def logarithms(A: np.ndarray) -> None:
        row = A[0]
        for j in range(len(row)):
            row[j] = log_one_plus(row[j])

    t = np.concatenate(
        [[0.0, 1.0, 1e300], np.geomspace(1e-300, 1e300, 20_001), np.linspace(0.0, 5.0, 20_001)]
    )
    found = t.reshape(1, -1).copy()
    logarithms(found)
    assert_allclose(found[0], np.log1p(t), rtol=4.5e-16, atol=0.0)  # two units in the last place
