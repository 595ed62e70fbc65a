"""The evidence by compiled passes over tiles: against dense formulas and central differences, and against the
plain passes.
"""

from typing import Any

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
import oracle
from inducing.engine import compiled_passes as _rows
from inducing.engine import passes as _passes
from inducing.engine.sums import Work
from inducing.model.kernels.stationary import PROFILES
from inducing.model.problem import make_problem
from inducing.model.table import TABLE
from inducing.numerics import exponential as _exponential
from inducing.numerics.workers import single_threaded_blas

RNG = np.random.default_rng(0)
N, M = 140, 9
X = RNG.uniform(-2.0, 2.0, (N, 2))
Z = 0.9 * np.stack(np.meshgrid([-1.5, 0.0, 1.5], [-1.5, 0.0, 1.5]), axis=-1).reshape(-1, 2) + RNG.uniform(
    -0.2, 0.2, (M, 2)
)
LENGTHSCALE, VARIANCE, NOISE, JITTER = np.array([0.8, 0.7]), 1.3, 0.2, 1e-8
WIDTHS = LENGTHSCALE * RNG.uniform(0.85, 1.6, (M, 2))
Y = np.sin(X @ [1.0, 2.0]) + 0.4 * RNG.standard_normal(N)
BLOCKS = np.minimum(RNG.integers(0, 8, N), 5)  # of different sizes
ROWS: dict[str, dict[str, Any]] = {
    "sor": {},
    "dtc": {},
    "vfe": {},
    "fitc": {},
    "pep": {"power": 0.5},
    "pitc": {"blocks": BLOCKS},
}
BASES = {"points": ig.bases.Points(Z), "multiscale": ig.bases.Multiscale(Z, WIDTHS)}
KERNELS: dict[str, Any] = {"RBF": oracle.rbf, "Matern12": oracle.matern12}
KERNELS |= {"Matern32": oracle.matern32, "Matern52": oracle.matern52}
KERNELS |= {"RationalQuadratic": oracle.rational_quadratic}
PAIRS = [(kernel, kind) for kernel in KERNELS for kind in BASES if kernel == "RBF" or kind == "points"]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled passes whatever the size, over tiles that end in the middle of things, on all cores."""
    monkeypatch.setattr(_rows, "LEAST", 0)
    monkeypatch.setattr(_rows, "TILE", 32)
    monkeypatch.setattr(_rows, "on_all_cores", lambda P: True)


def plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rows, "LEAST", 1 << 60)


def test_every_profile_has_compiled_passes_and_no_kernel_of_ones_own() -> None:
    class Own(ig.kernels.Matern52):
        pass

    for kind in (*PROFILES, Own):
        P = make_problem(kind(LENGTHSCALE, VARIANCE), BASES["points"], TABLE["fitc"], NOISE, X, Y)
        assert (_rows.form_of(P) is None) == (kind is Own)


@pytest.mark.parametrize(("kernel", "kind"), PAIRS)
@pytest.mark.parametrize("name", ROWS)
def test_value_and_gradient_are_the_dense_ones(name: str, kernel: str, kind: str) -> None:
    def value(p: dict[str, Any]) -> float:
        k = oracle.bind(KERNELS[kernel], lengthscale=p["kernel.lengthscale"], variance=p["kernel.variance"])
        if kind == "points":
            basis = oracle.points(k, p["basis.Z"])
        else:
            basis = oracle.multiscale(
                p["basis.centers"], p["basis.widths"], p["kernel.lengthscale"], p["kernel.variance"]
            )
        return oracle.log_evidence(name, k, oracle.jittered(basis, JITTER), p["noise"], X, Y, **ROWS[name])

    arguments = getattr(ig.kernels, kernel)(LENGTHSCALE, VARIANCE), BASES[kind], name, NOISE, X, Y
    found, gradient = ig.log_evidence_and_gradient(*arguments, jitter=JITTER, **ROWS[name])
    here: dict[str, Any] = {"kernel.lengthscale": LENGTHSCALE, "kernel.variance": VARIANCE, "noise": NOISE}
    here |= {f"basis.{key}": at for key, at in BASES[kind].parameters.items()}
    assert found == pytest.approx(value(here), rel=1e-10)
    assert found == pytest.approx(ig.log_evidence(*arguments, jitter=JITTER, **ROWS[name]), rel=1e-12)
    for key, slope in oracle.central_differences(value, here).items():
        assert_allclose(
            gradient[key], slope, rtol=1e-5, atol=1e-5 * max(1.0, np.max(np.abs(slope))), err_msg=key
        )


@pytest.mark.parametrize("far", [0.0, 80.0], ids=["near", "far"])
@pytest.mark.parametrize("rich", [False, True], ids=["plain", "rich"])
@pytest.mark.parametrize(("kernel", "kind"), PAIRS)
@pytest.mark.parametrize("name", ROWS)
def test_the_plain_passes_agree(
    name: str, kernel: str, kind: str, rich: bool, far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two outputs, weights, a noise for each row and a mean, too; a row so far out that distances go by
    differences, one at an inducing input, and one so near that its distance would cancel.
    """
    rng = np.random.default_rng(100)
    rows = np.concatenate([X, [[far, 0.0], [1.0, 0.5]]])
    rows[0], rows[1] = Z[0], Z[1] + 1e-9
    y = (
        np.column_stack([np.append(Y, [0.1, 0.2]), np.append(Y, [0.3, 0.4]) ** 2])
        if rich
        else np.append(Y, [0.1, 0.2])
    )
    noise = rng.uniform(0.1, 0.4, N + 2) if rich else NOISE
    weights = rng.uniform(0.5, 2.0, N + 2) if rich else None
    options = ROWS[name] | ({"blocks": np.append(BLOCKS, [0, 5])} if name == "pitc" else {})
    mean = ig.means.Linear([0.3, -0.2], 0.7)
    arguments = getattr(ig.kernels, kernel)(0.8, VARIANCE), BASES[kind], name, noise, rows, y
    value, gradient = ig.log_evidence_and_gradient(*arguments, mean=mean, weights=weights, **options)
    plainly(monkeypatch)
    expected, slopes = ig.log_evidence_and_gradient(*arguments, mean=mean, weights=weights, **options)
    assert value == pytest.approx(expected, rel=1e-12)
    assert gradient.keys() == slopes.keys()
    for key, slope in slopes.items():
        assert_allclose(gradient[key], slope, rtol=1e-8, atol=1e-9 * np.max(np.abs(slope)), err_msg=key)


@pytest.mark.parametrize("name", ROWS)
def test_what_is_not_kept_is_made_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither Kfu, nor D, nor a block's factors: the same numbers."""
    kernel, basis = ig.kernels.RBF(LENGTHSCALE, VARIANCE), BASES["points"]
    expected, slopes = ig.log_evidence_and_gradient(kernel, basis, name, NOISE, X, Y, **ROWS[name])
    monkeypatch.setattr(_passes.Held, "room_for", staticmethod(lambda P: _passes.Held()))
    value, gradient = ig.log_evidence_and_gradient(kernel, basis, name, NOISE, X, Y, **ROWS[name])
    assert value == pytest.approx(expected, rel=1e-13)
    for key, slope in slopes.items():
        assert_allclose(gradient[key], slope, rtol=1e-10, atol=1e-11 * np.max(np.abs(slope)), err_msg=key)


def test_arrays_that_cannot_be_written_to() -> None:
    kernel, basis = ig.kernels.RBF(LENGTHSCALE, VARIANCE), BASES["points"]
    frozen, targets = X.copy(), Y.copy()
    for a in (frozen, targets):
        a.setflags(write=False)
    assert ig.log_evidence(kernel, basis, "fitc", NOISE, frozen, targets) == ig.log_evidence(
        kernel, basis, "fitc", NOISE, X, Y
    )


def test_a_block_without_a_factor_is_an_error_and_not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        _rows, "plain", lambda A: -np.ones_like(A) if np.ndim(A) == 1 else np.ascontiguousarray(A)
    )
    with pytest.raises(ig.errors.FactorisationError, match="block is not positive definite"):
        ig.log_evidence_and_gradient(ig.kernels.RBF(1.0), BASES["points"], "pitc", NOISE, X, Y, blocks=BLOCKS)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_rows_in_ranges_give_the_same(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One range for each worker, of at most so many entries."""
    kernel, basis = ig.kernels.RBF(LENGTHSCALE, VARIANCE), BASES["points"]
    blocks = (
        np.maximum(np.arange(N) - 70, 0) // 9
    )  # a long one first: its buffers must not be those of the others
    options = {"fitc": {}, "pitc": {"blocks": blocks}}
    expected = [
        ig.log_evidence_and_gradient(kernel, basis, name, NOISE, X, Y, **options[name]) for name in options
    ]
    monkeypatch.setattr(_rows, "workers_for", lambda operations: workers)
    monkeypatch.setattr(_rows, "RANGE", 20 * M * (M + 64))
    for held in (_passes.Held.room_for, lambda P: _passes.Held()):
        monkeypatch.setattr(_passes.Held, "room_for", staticmethod(held))
        for name, (value, slopes) in zip(options, expected, strict=True):
            found, gradient = ig.log_evidence_and_gradient(kernel, basis, name, NOISE, X, Y, **options[name])
            assert found == pytest.approx(value, rel=1e-13)
            for key, slope in slopes.items():
                assert_allclose(
                    gradient[key], slope, rtol=1e-9, atol=1e-11 * np.max(np.abs(slope)), err_msg=key
                )
    assert single_threaded_blas._depth == 0


@pytest.mark.parametrize("compiled", [True, False])
def test_pep_of_hardly_any_power_is_vfe(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing cancels on the way to the limit."""
    if not compiled:
        plainly(monkeypatch)
    arguments = ig.kernels.RBF(LENGTHSCALE, VARIANCE), BASES["points"]
    bound, slopes = ig.log_evidence_and_gradient(*arguments, "vfe", NOISE, X, Y)
    for power in (1e-9, 1e-13, 1e-18):
        value, gradient = ig.log_evidence_and_gradient(*arguments, "pep", NOISE, X, Y, power=power)
        assert value == pytest.approx(bound, rel=1e-8)
        for key, slope in slopes.items():
            assert_allclose(gradient[key], slope, rtol=1e-6, atol=1e-7 * np.max(np.abs(slope)), err_msg=key)


def test_exponentials_to_the_last_digits() -> None:
    exponential = _exponential.exponential.made()

    @numba.njit
    def exponentials(A: np.ndarray) -> None:
        row = A[0]
        for j in range(len(row)):
            row[j] = exponential(row[j])

    x = np.concatenate([np.linspace(-700.0, 700.0, 20_001), np.linspace(-1.0, 1.0, 20_001), [0.0, -0.0]])
    found = x.reshape(1, -1).copy()
    exponentials(found)
    assert_allclose(found[0], np.exp(x), rtol=4.5e-16)  # two units in the last place
    deep = np.array([[-709.0, -1e4, -1e300, -np.inf]])
    exponentials(deep)
    assert np.all(deep == 0.0)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("away", [0.0, 500.0])  # farther apart a profile with long tails goes by arrays
def test_values_in_two_places_far_apart_keep_their_digits(kernel: str, away: float) -> None:
    """Where these are taken from squares of distances from one point, they lose two of twelve."""
    shift = np.array([away, 0.0])
    rows, centers = np.concatenate([X, X + shift]), np.concatenate([Z, Z + shift])
    k = getattr(ig.kernels, kernel)(LENGTHSCALE, VARIANCE)
    P = make_problem(k, ig.bases.Points(centers), TABLE["fitc"], NOISE, rows, np.tile(Y, 2))
    form, K = _rows.form_of(P), np.empty((2 * N, 2 * M))
    assert form is not None
    _, R = _rows.whitened_rows(P, form, np.eye(2 * M), Work(P, True, True), slice(0, 2 * N), K)
    expected = KERNELS[kernel](rows, centers, lengthscale=LENGTHSCALE, variance=VARIANCE)
    assert_allclose(K, expected, rtol=1e-11, atol=1e-250)
    assert_allclose(R, VARIANCE - np.sum(expected**2, axis=1), rtol=1e-9, atol=1e-10)
