"""Noise by level, categories and inputs with variances in the evidence: against dense formulas, finite
differences and Monte Carlo, for arrays, sources and torch.
"""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
import oracle
import oracle_outputs
from inducing.errors import NoiseError
from inducing.learning.objective import HeldOut

RNG = np.random.default_rng(3)
N, P = 40, 3
X = np.column_stack([RNG.uniform(-2, 2, (N, 2)), RNG.integers(0, P, N)])
Y = np.sin(X[:, 0]) * (1.0 + X[:, 2]) + 0.3 * X[:, 1] + 0.1 * RNG.normal(size=N)
VALUES = np.array([0.05, 0.2, 0.4])
NOISE = ig.NoiseByLevel(VALUES, 2)
W, KAPPA = RNG.normal(size=(P, 1)), np.array([0.2, 0.5, 0.3])
KERNEL = ig.kernels.RBF([0.9, 1.4], 1.2, columns=(0, 1)) * ig.kernels.Category(2, P, 1, W, KAPPA)
BASIS = ig.bases.Points(X[::5].copy())
V = RNG.uniform(0.1, 1.0, (N, 2)) * (RNG.uniform(size=(N, 2)) < 0.4)
AX = np.hstack([X[:, :2], V])
AVERAGED = ig.kernels.Averaged([0.9, 1.4], 1.2)
ABASIS = ig.bases.Points(np.hstack([X[::5, :2], 0.0 * X[::5, :2]]))
ROWS = ("exact", "vfe", "fitc", "dtc", "pitc", "neighbours", "cg")


def options(row: str) -> dict[str, Any]:
    blocks = {"blocks": np.arange(N) % 4} if row in ("pitc", "neighbours") else {}
    return blocks | ({"neighbours": 5} if row == "neighbours" else {})


def slope(J: Any, v: np.ndarray, h: float = 1e-5) -> np.ndarray:
    out = np.empty(v.shape)
    for i in np.ndindex(v.shape):
        step = np.zeros(v.shape)
        step[i] = h
        out[i] = (J(v + step) - J(v - step)) / (2 * h)
    return out


@pytest.mark.parametrize("row", ROWS)
def test_noise_by_level_is_noise_by_row(row: str) -> None:
    by_row = VALUES[X[:, 2].astype(int)]
    value, gradient = ig.log_evidence_and_gradient(KERNEL, BASIS, row, NOISE, X, Y, **options(row))
    other, of_rows = ig.log_evidence_and_gradient(KERNEL, BASIS, row, by_row, X, Y, **options(row))
    assert value == pytest.approx(other, rel=1e-10)
    assert_allclose(gradient["noise"], np.bincount(X[:, 2].astype(int), of_rows["noise"]), rtol=1e-6)
    for name in ("kernel.1.W", "kernel.1.kappa", "kernel.0.lengthscale"):
        assert_allclose(gradient[name], of_rows[name], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("row", ("exact", "vfe", "fitc"))
def test_categories_in_the_evidence(row: str) -> None:
    """Against finite differences, and the exact GP against a table of covariances."""
    value, gradient = ig.log_evidence_and_gradient(KERNEL, BASIS, row, NOISE, X, Y)
    for name in ("1.W", "1.kappa"):

        def J(v: np.ndarray, name: str = name) -> float:
            return ig.log_evidence(KERNEL.with_parameters({name: v}), BASIS, row, NOISE, X, Y)

        expected = slope(J, np.array(KERNEL.parameters[name]))
        assert_allclose(gradient[f"kernel.{name}"], expected, rtol=2e-5, atol=1e-5)
    if row == "exact":
        B, codes = oracle_outputs.levels(W, KAPPA), X[:, 2].astype(int)
        K = oracle.rbf(X[:, :2], X[:, :2], np.array([0.9, 1.4]), 1.2) * B[np.ix_(codes, codes)]
        assert value == pytest.approx(oracle_outputs.gaussian(K, VALUES[codes], Y), rel=1e-10)
    else:
        assert np.all(gradient["basis.Z"][:, 2] == 0.0)


@pytest.mark.parametrize("row", [row for row in ROWS if row != "cg"])
def test_rows_with_variances(row: str) -> None:
    """The gradient by finite differences; the exact GP is dense, its noise with the scatter of f."""
    given = options(row)
    if row == "neighbours":  # held, since a search would see the lengthscales move
        i = np.arange(N)
        given = {"neighbours": np.column_stack([np.where(i >= 1, i - 1, -1), np.where(i >= 4, i - 4, -1)])}
    value, gradient = ig.log_evidence_and_gradient(AVERAGED, ABASIS, row, 0.1, AX, Y, **given)
    for name in ("lengthscale", "variance"):

        def J(v: np.ndarray, name: str = name) -> float:
            return ig.log_evidence(AVERAGED.with_parameters({name: v}), ABASIS, row, 0.1, AX, Y, **given)

        expected = slope(J, np.array(AVERAGED.parameters[name]))
        assert_allclose(gradient[f"kernel.{name}"], expected, rtol=2e-5, atol=1e-5)
    assert_allclose(
        gradient["noise"],
        slope(lambda v: ig.log_evidence(AVERAGED, ABASIS, row, float(v[0]), AX, Y, **given), np.array([0.1]))[
            0
        ],
        rtol=1e-5,
    )
    if row == "exact":
        k = oracle.bind(oracle.rbf, lengthscale=np.array([0.9, 1.4]))
        K = 1.2 * oracle_outputs.averaged(k, X[:, :2], V, X[:, :2], V, 201)
        assert value == pytest.approx(oracle_outputs.gaussian(K, 0.1 + 1.2 - np.diag(K), Y), rel=1e-9)


def test_covariances_of_observations_by_monte_carlo() -> None:
    """cov(y) of f at inputs drawn again and again: k averaged, and all of k(x, x) on the diagonal."""
    rng, K, draws = np.random.default_rng(0), np.zeros((6, 6)), 20_000
    for _ in range(draws):
        x = X[:6, :2] + np.sqrt(V[:6]) * rng.normal(size=(6, 2))
        K += oracle.rbf(x, x, np.array([0.9, 1.4]), 1.2) / draws
    ours = AVERAGED(AX[:6], AX[:6])
    ours[np.diag_indices(6)] += AVERAGED.point_diag(AX[:6]) - AVERAGED.diag(AX[:6])
    assert_allclose(ours, K, atol=5 * 1.2 * 0.5 / np.sqrt(draws))


@pytest.mark.parametrize(
    ("kernel", "basis", "noise", "X"),
    [(KERNEL, BASIS, NOISE, X), (AVERAGED, ABASIS, 0.1, AX)],
    ids=["levels", "variances"],
)
@pytest.mark.parametrize("row", ("vfe", "fitc"))
def test_parts_of_a_source_and_torch_give_the_same(
    row: str, kernel: Any, basis: Any, noise: Any, X: Any
) -> None:
    value, gradient = ig.log_evidence_and_gradient(kernel, basis, row, noise, X, Y)
    source = ig.as_source(X, Y, chunk_rows=15)
    parted, of_parts = ig.log_evidence_and_gradient(kernel, basis, row, noise, source)
    assert parted == pytest.approx(value, rel=1e-11)
    for name, g in gradient.items():
        assert_allclose(of_parts[name], g, rtol=1e-7, atol=1e-9)
    torch = pytest.importorskip("torch")
    found, of_torch = ig.log_evidence_and_gradient(
        kernel, basis, row, noise, torch.asarray(X.copy()), torch.asarray(Y.copy())
    )
    assert found == pytest.approx(value, rel=1e-10)
    for name, g in gradient.items():
        assert_allclose(np.asarray(of_torch[name]), g, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("row", ("exact", "fitc"))
def test_noise_by_level_is_learned(row: str) -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.uniform(-2, 2, 300), np.arange(300) % 2])
    y = np.sin(2 * x[:, 0]) + np.where(x[:, 1] == 0, 0.1, 0.7) * rng.normal(size=300)
    kernel = ig.kernels.RBF(columns=(0,)) * ig.kernels.Category(1, 2)
    Z = np.array([[z, c] for z in np.linspace(-2, 2, 8) for c in (0.0, 1.0)])
    fit = ig.fit(kernel, ig.bases.Points(Z), row, ig.NoiseByLevel([0.3, 0.3], 1), x, y, max_iterations=60)
    assert_allclose(np.sqrt(fit.noise.values), [0.1, 0.7], rtol=0.2)
    assert set(np.unique(fit.basis.parameters["Z"][:, 1])) == {0.0, 1.0}  # levels stayed
    held = HeldOut.checked(x[:4], y[:4])
    mean, variance = fit.posterior.predict(x[:4])
    total = variance + fit.noise.values[[0, 1, 0, 1]]
    expected = -0.5 * (np.log(2 * np.pi * total) + (y[:4] - mean) ** 2 / total)
    assert_allclose(held.log_densities(fit.posterior, fit.noise), expected, rtol=1e-10)


def test_a_level_without_noise_is_named() -> None:
    with pytest.raises(NoiseError, match="levels 0 to 1, but a row has level 2"):
        ig.condition(KERNEL, BASIS, "fitc", ig.NoiseByLevel([0.1, 0.2], 2), X, Y)
    with pytest.raises(NoiseError, match="positive"):
        ig.NoiseByLevel([0.1, -0.2], 2)
