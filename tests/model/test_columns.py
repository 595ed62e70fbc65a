"""Kernels of columns of a kind: categories, and inputs with variances, against tables and quadrature."""

import json
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_kernels import assert_gradient, difference

import oracle
import oracle_outputs
from inducing.errors import ParameterError, ShapeError
from inducing.model import kernels
from inducing.model.bases import Multiscale, Points
from inducing.model.kernels import RBF, Averaged, Category, Kernel, Linear, Matern32

RNG = np.random.default_rng(0)
W = RNG.normal(size=(4, 2))
KAPPA = np.array([0.3, 0.7, 1.1, 0.2])
X = np.column_stack([RNG.normal(size=9), RNG.integers(0, 4, 9), RNG.normal(size=9), np.zeros(9)])
Z = np.column_stack([RNG.normal(size=6), RNG.integers(0, 4, 6), RNG.normal(size=6), np.zeros(6)])
VX = RNG.uniform(0.1, 2.0, (9, 4)) * (RNG.uniform(size=(9, 4)) < 0.5)
VX[:, 1] = 0.0
AX, AZ = np.hstack([X, VX]), np.hstack([Z, 0.0 * Z])
WIDE = np.hstack([Z, np.abs(RNG.normal(size=Z.shape))])
CATEGORY = Category(1, 4, 2, W, KAPPA)
CASES: dict[str, tuple[Kernel, Any, Any]] = {
    "category": (CATEGORY, X, Z),
    "mixed": (CATEGORY * RBF(0.8, columns=(0, 2)) + Matern32(1.1, columns=(0, 2)) + Category(1, 4), X, Z),
    "averaged": (Averaged(0.8, 1.3), AX, AZ),
    "averaged ard, wide points": (Averaged([0.8, 1.3, 0.6, 1.0], 0.7), AX, WIDE),
    "averaged columns": (
        Averaged([0.8, 1.3], 0.7, columns=(2, 0)) * CATEGORY + Linear(0.1, columns=(0, 2)),
        AX,
        AZ,
    ),
}
each_case = pytest.mark.parametrize(("kernel", "X", "Z"), CASES.values(), ids=list(CASES))


def test_a_category_is_a_table() -> None:
    B = oracle_outputs.levels(W, KAPPA)
    left, right = X[:, 1].astype(int), Z[:, 1].astype(int)
    expected = np.array([[B[a, b] for b in right] for a in left])
    assert_allclose(CATEGORY(X, Z), expected, rtol=1e-14)
    assert_allclose(CATEGORY(X, Z, np.full((9, 6), np.nan)), expected, rtol=1e-14)
    assert_allclose(CATEGORY.diag(X), [B[a, a] for a in left], rtol=1e-14)


def test_an_average_is_an_integral() -> None:
    k = oracle.bind(oracle.rbf, lengthscale=np.array([0.8, 1.3, 0.6, 1.0]))
    kernel = Averaged([0.8, 1.3, 0.6, 1.0], 0.7)
    for other, U in ((AZ, 0.0 * Z), (WIDE, WIDE[:, 4:])):
        expected = 0.7 * oracle_outputs.averaged(k, X, VX, other[:, :4], U)
        assert_allclose(kernel(AX, other), expected, rtol=1e-9)
    assert_allclose(kernel.diag(AX), 0.7 * np.diag(oracle_outputs.averaged(k, X, VX, X, VX)), rtol=1e-9)
    assert_allclose(kernel.point_diag(AX), 0.7)


def test_inputs_that_are_known_are_the_rbf_kernel() -> None:
    sure = np.hstack([X, 0.0 * X])
    assert_allclose(Averaged(0.8, 1.3)(sure, AZ), RBF(0.8, 1.3)(X, Z), rtol=1e-13)
    assert_allclose(Averaged(0.8, 1.3)(sure, sure), RBF(0.8, 1.3)(X, X), rtol=1e-13)


def test_points_with_variances_are_multiscale_functions() -> None:
    """The covariances of the functions scaled to the same prior variance."""
    kernel, basis = Averaged(0.8, 1.3), Multiscale(Z, np.sqrt(0.8**2 + WIDE[:, 4:]))
    root = np.sqrt(np.diag(kernel(WIDE, WIDE)) / 1.3)
    sure = np.hstack([X, 0.0 * X])
    assert_allclose(kernel(sure, WIDE) / root, basis.cross(RBF(0.8, 1.3), X), rtol=1e-12)
    gram = Points(WIDE).gram(kernel) / np.outer(root, root)
    assert_allclose(gram, basis.gram(RBF(0.8, 1.3)), rtol=1e-12)


@each_case
def test_matrices_are_covariances(kernel: Kernel, X: Any, Z: Any) -> None:
    K = kernel(X, X)
    assert_allclose(np.diag(K), kernel.diag(X), rtol=1e-12)
    assert_allclose(kernel(X, Z), kernel(Z, X).T, rtol=1e-12, atol=1e-14)
    assert np.linalg.eigvalsh(K)[0] > -1e-12
    assert np.all(kernel.point_diag(X) >= kernel.diag(X) - 1e-15)
    assert kernel(X[:0], Z).shape == (0, len(Z))
    big = np.tile(X, (50, 1))
    assert_allclose(kernel(big, Z), np.tile(kernel(X, Z), (50, 1)), rtol=1e-11)


@each_case
def test_derivatives(kernel: Kernel, X: Any, Z: Any) -> None:
    rng = np.random.default_rng(1)
    Kbar, kbar = rng.normal(size=(len(X), len(Z))), rng.normal(size=len(X))
    gradients, Zbar = kernel.pullback(X, Z, Kbar.copy())
    diagonal, point = kernel.diag_pullback(X, kbar), kernel.point_diag_pullback(X, kbar)
    assert set(gradients) == set(diagonal) == set(point) == set(kernel.parameters)
    for name, value in kernel.parameters.items():

        def at(v: Any, name: str = name) -> Kernel:
            return kernel.with_parameters({name: v})

        assert_gradient(gradients[name], difference(lambda v: float(np.sum(Kbar * at(v)(X, Z))), value))
        assert_gradient(diagonal[name], difference(lambda v: float(kbar @ at(v).diag(X)), value))
        assert_gradient(point[name], difference(lambda v: float(kbar @ at(v).point_diag(X)), value))
    codes = [1] if list(kernels.categories_of(kernel)) else []
    places = [c for c in range(4) if c not in codes]
    assert np.all(Zbar[:, codes] == 0.0)  # a level is no place to move in
    assert np.all(Zbar[:, 4:] == 0.0)
    for c in places:  # one column at a time, since a code may not move

        def along(v: np.ndarray, c: int = c) -> float:
            V = Z.copy()
            V[:, c] = v
            return float(np.sum(Kbar * kernel(X, V)))

        assert_gradient(Zbar[:, c], difference(along, Z[:, c]))


@each_case
def test_specs_and_torch(kernel: Kernel, X: Any, Z: Any) -> None:
    back = kernels.from_spec(json.loads(json.dumps(kernel.spec())))
    np.testing.assert_array_equal(back(X, Z), kernel(X, Z))
    torch = pytest.importorskip("torch")
    Kbar = np.random.default_rng(2).normal(size=(len(X), len(Z)))
    tX, tZ = torch.asarray(X.copy()), torch.asarray(Z.copy())
    assert_allclose(kernel(tX, tZ).numpy(), kernel(X, Z), rtol=1e-11)
    assert_allclose(kernel(tX, tX).numpy(), kernel(X, X), rtol=1e-11)
    assert_allclose(kernel.point_diag(tX).numpy(), kernel.point_diag(X), rtol=1e-12)
    ours, theirs = kernel.pullback(X, Z, Kbar.copy()), kernel.pullback(tX, tZ, torch.asarray(Kbar.copy()))
    assert_allclose(theirs[1].numpy(), ours[1], rtol=1e-9, atol=1e-11)
    kbar = Kbar[:, 0].copy()
    diagonal, on_device = kernel.diag_pullback(X, kbar), kernel.diag_pullback(tX, torch.asarray(kbar))
    for name, value in ours[0].items():
        assert_allclose(theirs[0][name].numpy(), value, rtol=1e-9, atol=1e-11)
        assert_allclose(on_device[name].numpy(), diagonal[name], rtol=1e-9, atol=1e-11)


def test_a_level_that_was_not_seen_is_the_prior() -> None:
    kernel = Category(0, 4, 2, W, KAPPA, allow_unseen=True)
    rows = np.array([[0.0], [7.0], [-1.0], [7.0], [3.0]])
    K, B = kernel(rows, rows), oracle_outputs.levels(W, KAPPA)
    mean = np.trace(B) / 4
    assert_allclose(K[1], [0.0, mean, 0.0, mean, 0.0], rtol=1e-14)
    assert_allclose(K[2], [0.0, 0.0, mean, 0.0, 0.0], rtol=1e-14)
    assert_allclose(np.diag(K), kernel.diag(rows), rtol=1e-14)
    Kbar = np.random.default_rng(2).normal(size=(5, 5))
    gradients = kernel.pullback(rows, rows, Kbar.copy())[0]
    for name, value in kernel.parameters.items():
        expected = difference(
            lambda v: float(np.sum(Kbar * kernel.with_parameters({name: v})(rows, rows))),  # noqa: B023
            value,
        )
        assert_gradient(gradients[name], expected)
    with pytest.raises(ParameterError, match="level 7 in row 1, but the levels known are 0 to 3"):
        Category(0, 4)(rows, rows)
    assert_allclose(kernel(rows[1:4], rows[1:4]), mean * (rows[1:4] == rows[1:4].T), rtol=1e-14)
    assert_allclose(kernel(rows[1:4], rows), K[1:4], rtol=1e-14)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_a_category_begins_with_orthogonal_waves(rank: int) -> None:
    """Cosines at the middles of as many parts of a half period as there are levels."""
    weights = Category(0, 5, rank).W
    squares = 5 * 0.5 * np.array([1.0, *[0.5 * 0.3**2] * 3])[:rank]
    assert_allclose(weights.T @ weights, np.diag(squares), atol=1e-14)


def test_distances_of_levels_are_those_of_their_correlations() -> None:
    E, B = CATEGORY.scaled(X), oracle_outputs.levels(W, KAPPA)
    codes = X[:, 1].astype(int)
    correlation = (B / np.sqrt(np.outer(np.diag(B), np.diag(B))))[np.ix_(codes, codes)]
    squares = np.sum((E[:, None] - E[None]) ** 2, axis=2)
    assert_allclose(squares, 2.0 * (1.0 - correlation), atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CATEGORY(X + 0.5, Z), "whole numbers"),
        (lambda: Category(0, 0), "levels must be a whole number"),
        (lambda: Category(0, 3, 4), "rank must be a whole number"),
        (lambda: Category(0, 3, W=[[1.0]]), r"W must have shape \(3, 1\)"),
        (lambda: Category(0, 3, kappa=[1.0, -1.0, 1.0]), "kappa must be positive"),
        (lambda: Category(0.5, 3), "column must be"),  # type: ignore[arg-type]
        (lambda: Averaged()(np.hstack([X, -VX]), AZ), "negative"),
    ],
)
def test_bad_input_is_named(make: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make()


def test_averages_need_variances() -> None:
    with pytest.raises(ShapeError, match="3 columns"):
        Averaged()(X[:, :3], Z[:, :3])
    with pytest.raises(ShapeError, match="column 4, but there are 4 inputs"):
        Averaged(columns=(4,))(AX, AZ)
