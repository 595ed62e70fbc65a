"""Every kernel against its formula, one entry at a time, and its derivatives against finite differences."""

import json
from collections.abc import Callable
from math import cos, exp, gamma, pi, prod, sin, sqrt
from typing import Any

import numpy as np
import pytest

from inducing.errors import ParameterError, ShapeError, UnknownNameError
from inducing.model import kernels
from inducing.model.kernels import (
    RBF,
    Constant,
    Levels,
    Linear,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    Product,
    Projected,
    RationalQuadratic,
    Sphere,
    Sum,
    Trigonometric,
    Warped,
    spectral_density,
)

Formula = Callable[[Any, Any], float]  # k(x, z) of two single inputs


def bessel_matern(s: float, nu: float) -> float:
    """The Matérn profile with K_ν(z) = ∫ exp(-z cosh t) cosh νt dt over t > 0, by the trapezoidal rule."""
    if s == 0.0:
        return 1.0
    z, t = np.sqrt(2 * nu * s), np.linspace(0.0, 40.0, 40001)
    values = np.exp(np.minimum(nu * t - z * np.cosh(t), 700.0)) * (1 + np.exp(-2 * nu * t)) / 2
    return 2 ** (1 - nu) / gamma(nu) * z**nu * float(np.trapezoid(values, t))


def of_distance(profile: Callable[[float], float], lengthscale: Any) -> Formula:
    """A formula of s = Σ (x - z)²/ℓ²."""
    return lambda x, z: profile(float(np.sum(((x - z) / lengthscale) ** 2)))


def dirichlet(r: float, order: int) -> float:
    return 1.0 + 2.0 * sum(cos(2.0 * pi * n * r) for n in range(1, order + 1))


def sine_distance(x: Any, z: Any, lengthscale: Any, period: Any) -> float:
    return float(sum(sin(pi * r / p) ** 2 / l**2 for r, p, l in np.broadcast(x - z, period, lengthscale)))


def chord(x: Any, z: Any) -> float:
    """Between two places whose latitude is input 2 and longitude input 0, in degrees: 2 sin of half the angle
    between them [haversine].
    """
    (a, b), (c, d) = ([v[2] * pi / 180, v[0] * pi / 180] for v in (x, z))
    return 2 * sqrt(sin((a - c) / 2) ** 2 + cos(a) * cos(c) * sin((b - d) / 2) ** 2)


ARD = np.array([0.7, 1.3, 2.1])
PERIODS = np.array([1.5, 2.2, 3.1])
SLOPES = np.array([0.4, 1.0, 2.5])
W = np.array([[0.5, -1.2, 0.3], [0.0, 0.7, 1.1]])
AT = [(2, 0.9), (0, -0.5), (0, 0.1), (0, 1.2), (2, -0.8)]  # sorted: three of column 0, two of column 2
HATS = np.array([0.7, 1.3, 2.1, 0.6, 0.8, 1.1, 0.9, 1.4])


def with_hats(x: Any) -> np.ndarray:
    """x, and hats of levels: straight lines between rows of the identity."""
    first = [np.interp(x[0], [-0.5, 0.1, 1.2], row) for row in np.eye(3)]
    return np.array([*x, *first, *(np.interp(x[2], [-0.8, 0.9], row) for row in np.eye(2))])


KERNELS: dict[str, tuple[kernels.Kernel, Formula]] = {
    "rbf": (RBF(0.9, 1.7), of_distance(lambda s: 1.7 * exp(-s / 2), 0.9)),
    "rbf ard": (RBF(ARD, 0.6), of_distance(lambda s: 0.6 * exp(-s / 2), ARD)),
    "rbf columns": (
        RBF(0.9, columns=(2, 0)),
        lambda x, z: exp(-((x[2] - z[2]) ** 2 + (x[0] - z[0]) ** 2) / 2 / 0.81),
    ),
    "matern12": (Matern12(1.1, 1.7), of_distance(lambda s: 1.7 * exp(-sqrt(s)), 1.1)),
    "matern12 ard": (Matern12(ARD, 1.7), of_distance(lambda s: 1.7 * exp(-sqrt(s)), ARD)),
    "matern32": (Matern32(1.1, 1.7), of_distance(lambda s: 1.7 * (1 + sqrt(3 * s)) * exp(-sqrt(3 * s)), 1.1)),
    "matern32 ard columns": (
        Matern32([0.7, 1.9], 1.7, columns=(0, 2)),
        lambda x, z: of_distance(lambda s: 1.7 * (1 + sqrt(3 * s)) * exp(-sqrt(3 * s)), [0.7, 1.9])(
            x[::2], z[::2]
        ),
    ),
    "matern52": (
        Matern52(1.1, 2.0),
        of_distance(lambda s: 2 * (1 + sqrt(5 * s) + 5 * s / 3) * exp(-sqrt(5 * s)), 1.1),
    ),
    "matern52 ard": (
        Matern52(ARD),
        of_distance(lambda s: (1 + sqrt(5 * s) + 5 * s / 3) * exp(-sqrt(5 * s)), ARD),
    ),
    "matern of any order": (Matern(1.1, 2.0, 1.8), of_distance(lambda s: 2 * bessel_matern(s, 1.8), 1.1)),
    "matern ard, rough": (Matern(ARD, 1.3, 0.7), of_distance(lambda s: 1.3 * bessel_matern(s, 0.7), ARD)),
    "rational quadratic": (
        RationalQuadratic(0.8, 1.7, 0.6),
        of_distance(lambda s: 1.7 * (1 + s / 1.2) ** -0.6, 0.8),
    ),
    "rational quadratic ard": (
        RationalQuadratic(ARD, 1.7, 3.0),
        of_distance(lambda s: 1.7 * (1 + s / 6) ** -3, ARD),
    ),
    "linear": (Linear(0.8), lambda x, z: 0.8 * float(x @ z)),
    "linear ard": (Linear(SLOPES), lambda x, z: float(np.sum(SLOPES * x * z))),
    "linear columns": (
        Linear([0.4, 2.0], columns=[1, 2]),
        lambda x, z: 0.4 * x[1] * z[1] + 2.0 * x[2] * z[2],
    ),
    "polynomial 1": (Polynomial(1, 0.7, 1.3), lambda x, z: 1.3 * (1 + x @ z / (3 * 0.7))),
    "polynomial 4": (Polynomial(4, scale=0.7, variance=1.3), lambda x, z: 1.3 * (1 + x @ z / (3 * 0.7)) ** 4),
    "polynomial columns": (Polynomial(3, 1.2, columns=(1,)), lambda x, z: (1 + x[1] * z[1] / 1.2) ** 3),
    "constant": (Constant(0.7), lambda x, z: 0.7),
    "periodic": (Periodic(0.9, 1.4, 1.7), lambda x, z: 1.7 * exp(-2 * sine_distance(x, z, 0.9, 1.4))),
    "periodic ard": (
        Periodic(ARD, PERIODS, 0.6),
        lambda x, z: 0.6 * exp(-2 * sine_distance(x, z, ARD, PERIODS)),
    ),
    "periodic mixed": (Periodic(ARD, 2.5), lambda x, z: exp(-2 * sine_distance(x, z, ARD, 2.5))),
    "periodic columns": (
        Periodic(0.8, [1.5, 0.9], 0.6, columns=(2, 1)),
        lambda x, z: 0.6 * exp(-2 * sine_distance(x[[2, 1]], z[[2, 1]], 0.8, [1.5, 0.9])),
    ),
    "trigonometric": (Trigonometric(2, 0.3), lambda x, z: 0.3 * prod(dirichlet(r, 2) for r in x - z)),
    "trigonometric columns": (Trigonometric(5, columns=(0,)), lambda x, z: dirichlet(x[0] - z[0], 5)),
    "sphere": (
        Sphere(0.02, 1.7, columns=(2, 0)),
        lambda x, z: 1.7 * (1 + sqrt(3) * chord(x, z) / 0.02) * exp(-sqrt(3) * chord(x, z) / 0.02),
    ),
    "smooth sphere": (
        Sphere(0.02, 0.6, float("inf"), columns=(2, 0)),
        lambda x, z: 0.6 * exp(-((chord(x, z) / 0.02) ** 2) / 2),
    ),
    "sum": (
        RBF(0.9, 1.7, columns=(0, 1)) + Linear(0.8, columns=(2,)) + Constant(0.5),
        lambda x, z: (
            1.7 * exp(-((x[0] - z[0]) ** 2 + (x[1] - z[1]) ** 2) / 2 / 0.81) + 0.8 * x[2] * z[2] + 0.5
        ),
    ),
    "product": (
        RBF(ARD) * Linear(0.8, columns=(2,)) * Polynomial(2, 0.7),
        lambda x, z: (
            exp(-np.sum(((x - z) / ARD) ** 2) / 2) * 0.8 * x[2] * z[2] * (1 + x @ z / (3 * 0.7)) ** 2
        ),
    ),
    "projected": (
        Projected(RBF(0.9, 1.7), W),
        lambda x, z: 1.7 * exp(-np.sum((W @ (x - z)) ** 2) / 2 / 0.81),
    ),
    "projected sum": (
        Projected(Linear(0.8, columns=(0,)) + RBF(0.6, columns=(1,)), W[:, :2], columns=(2, 0)),
        lambda x, z: (
            0.8 * (W[0, :2] @ x[[2, 0]]) * (W[0, :2] @ z[[2, 0]])
            + exp(-((W[1, :2] @ (x - z)[[2, 0]]) ** 2) / 2 / 0.36)
        ),
    ),
    "levels": (
        Levels(Matern32(HATS, 1.3), AT),
        lambda x, z: of_distance(lambda s: 1.3 * (1 + sqrt(3 * s)) * exp(-sqrt(3 * s)), HATS)(
            with_hats(x), with_hats(z)
        ),
    ),
    "warped": (
        Warped(Matern32([0.7, 1.2, 0.9], 1.3, columns=(0, 3, 4)), [(2, -0.4, 0.3), (1, 0.5, 2.0)]),
        lambda x, z: of_distance(lambda s: 1.3 * (1 + sqrt(3 * s)) * exp(-sqrt(3 * s)), [0.7, 1.2, 0.9])(
            *(
                np.array([v[0], np.arcsinh((v[1] - 0.5) / 2.0), np.arcsinh((v[2] + 0.4) / 0.3)])
                for v in (x, z)
            )
        ),
    ),
    "sum of products": (
        Matern32(1.1) * Constant(0.4) + RBF(0.9, columns=(1,)) * Periodic(0.8, 1.5, columns=(0,)),
        lambda x, z: (
            0.4 * of_distance(lambda s: (1 + sqrt(3 * s)) * exp(-sqrt(3 * s)), 1.1)(x, z)
            + exp(-((x[1] - z[1]) ** 2) / 2 / 0.81) * exp(-2 * sin(pi * (x[0] - z[0]) / 1.5) ** 2 / 0.64)
        ),
    ),
}
LEAVES = (
    RBF,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    Linear,
    Polynomial,
    Constant,
    Periodic,
    Trigonometric,
    Sphere,
)

each_kernel = pytest.mark.parametrize("kernel", [k for k, _ in KERNELS.values()], ids=list(KERNELS))


def inputs(n: int = 9, m: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)), rng.normal(size=(m, 3)), rng.normal(size=(n, m))


def difference(J: Callable[[np.ndarray], float], at: Any, h: float = 3e-6) -> np.ndarray:
    """dJ/d(at) by central differences, in the shape of `at`."""
    at = np.asarray(at, dtype=float)
    gradient = np.empty(at.shape)
    for i in np.ndindex(at.shape):
        ends = []
        for step in (h, -h):
            moved = at.copy()
            moved[i] += step
            ends.append(J(moved))
        gradient[i] = (ends[0] - ends[1]) / (2 * h)
    return gradient


def assert_gradient(found: Any, expected: np.ndarray) -> None:
    assert np.shape(found) == np.shape(expected)
    assert np.max(np.abs(found - expected)) <= 1e-6 * max(1.0, np.max(np.abs(expected)))


def test_the_list_has_every_kernel() -> None:
    def leaves(kernel: kernels.Kernel) -> set[type]:
        return (
            set().union(*map(leaves, kernel.parts))
            if isinstance(kernel, Sum | Product | Projected | Levels | Warped)
            else {type(kernel)}
        )

    assert (
        set().union(*(leaves(k) for k, _ in KERNELS.values())) == set(LEAVES) == set(kernels.BY_NAME.values())
    )
    assert set(kernels.BY_NAME) == {kind.__name__.lower() for kind in LEAVES}


@pytest.mark.parametrize("name", KERNELS)
def test_matrix_is_the_formula(name: str) -> None:
    kernel, formula = KERNELS[name]
    X, Z, _ = inputs()
    slow = np.array([[formula(x, z) for z in Z] for x in X])
    for K in (kernel(X, Z), kernel(X, Z, np.full((9, 6), np.nan))):
        np.testing.assert_allclose(K, slow, rtol=1e-12, atol=1e-13 * np.max(np.abs(slow)))


@each_kernel
def test_diagonal_symmetry_and_definiteness(kernel: kernels.Kernel) -> None:
    X, Z, _ = inputs(n=15)
    K = kernel(X, X)
    np.testing.assert_allclose(kernel.diag(X), np.diag(K), rtol=1e-12)
    np.testing.assert_allclose(K, K.T, rtol=0, atol=1e-13 * np.max(np.abs(K)))
    np.testing.assert_allclose(kernel(X, Z), kernel(Z, X).T, rtol=0, atol=1e-13 * np.max(np.abs(K)))
    eigenvalues = np.linalg.eigvalsh((K + K.T) / 2)
    assert eigenvalues[0] >= -1e-13 * eigenvalues[-1]


@each_kernel
def test_large_matrices_are_the_same_numbers(kernel: kernels.Kernel) -> None:
    X, Z, _ = inputs(n=400, m=100)  # above backend.COMPILED
    K = kernel(X, Z, np.empty((400, 100)))
    rows = np.concatenate([kernel(X[i : i + 50], Z) for i in range(0, 400, 50)])
    np.testing.assert_allclose(K, rows, rtol=1e-11, atol=1e-13 * np.max(np.abs(K)))
    rows = np.concatenate([kernel(np.asfortranarray(X)[i : i + 50], Z) for i in range(0, 400, 50)])
    np.testing.assert_allclose(K, rows, rtol=1e-11, atol=1e-13 * np.max(np.abs(K)))


@each_kernel
def test_an_empty_basis_and_no_rows(kernel: kernels.Kernel) -> None:
    X, Z, _ = inputs()
    assert kernel(X, Z[:0]).shape == (9, 0)
    assert kernel(X[:0], Z).shape == (0, 6)
    assert kernel.diag(X[:0]).shape == (0,)


@each_kernel
def test_pullback_is_the_derivative(kernel: kernels.Kernel) -> None:
    X, Z, Kbar = inputs()
    K = kernel(X, Z)
    gradients, Zbar = kernel.pullback(X, Z, Kbar.copy())
    assert set(gradients) == set(kernel.parameters)
    for name, value in kernel.parameters.items():
        expected = difference(lambda v: float(np.sum(Kbar * kernel.with_parameters({name: v})(X, Z))), value)  # noqa: B023
        assert_gradient(gradients[name], expected)
    assert_gradient(Zbar, difference(lambda V: float(np.sum(Kbar * kernel(X, V))), Z))
    again, Zbar_again = kernel.pullback(X, Z, Kbar.copy(), K)
    np.testing.assert_allclose(Zbar_again, Zbar, rtol=1e-10, atol=1e-11)
    for name in gradients:
        np.testing.assert_allclose(again[name], gradients[name], rtol=1e-10, atol=1e-11)
    np.testing.assert_array_equal(K, kernel(X, Z))  # K is only read


@each_kernel
def test_pullback_through_kuu(kernel: kernels.Kernel) -> None:
    _, Z, Kbar = inputs(n=6)
    Kbar = Kbar + Kbar.T
    gradients, Zbar = kernel.pullback(Z, Z, Kbar.copy(), kernel(Z, Z))
    assert_gradient(2.0 * Zbar, difference(lambda V: float(np.sum(Kbar * kernel(V, V))), Z))
    for name, value in kernel.parameters.items():
        expected = difference(lambda v: float(np.sum(Kbar * kernel.with_parameters({name: v})(Z, Z))), value)  # noqa: B023
        assert_gradient(gradients[name], expected)


@each_kernel
def test_diagonal_pullback_is_the_derivative(kernel: kernels.Kernel) -> None:
    X, _, _ = inputs()
    kbar = np.random.default_rng(1).normal(size=len(X))
    kept = kbar.copy()
    gradients = kernel.diag_pullback(X, kbar)
    np.testing.assert_array_equal(kbar, kept)
    assert set(gradients) == set(kernel.parameters)
    for name, value in kernel.parameters.items():
        expected = difference(lambda v: float(kbar @ kernel.with_parameters({name: v}).diag(X)), value)  # noqa: B023
        assert_gradient(gradients[name], expected)


@each_kernel
def test_parameters_and_specs_round_trip(kernel: kernels.Kernel) -> None:
    X, Z, _ = inputs()
    doubled = kernel.with_parameters(
        {name: 2.0 * np.asarray(value) for name, value in kernel.parameters.items()}
    )
    for name, value in kernel.parameters.items():
        np.testing.assert_array_equal(doubled.parameters[name], 2.0 * np.asarray(value))
    assert not np.allclose(doubled(X, Z), kernel(X, Z))
    back = kernels.from_spec(json.loads(json.dumps(kernel.spec())))
    assert type(back) is type(kernel)
    assert back.spec() == kernel.spec()
    np.testing.assert_array_equal(back(X, Z), kernel(X, Z))
    with pytest.raises(UnknownNameError, match="nonsense"):
        kernel.with_parameters({"nonsense": 1.0})


@each_kernel
def test_torch_gives_the_same_numbers(kernel: kernels.Kernel) -> None:
    torch = pytest.importorskip("torch")
    X, Z, Kbar = inputs()
    kbar = Kbar[:, 0].copy()
    tX, tZ, tKbar, tkbar = (torch.asarray(a.copy()) for a in (X, Z, Kbar, kbar))

    def assert_same(found: Any, expected: Any) -> None:
        assert isinstance(found, torch.Tensor)
        assert found.dtype == torch.float64
        assert tuple(found.shape) == np.shape(expected)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-10)

    assert_same(kernel(tX, tZ), kernel(X, Z))
    assert_same(kernel.diag(tX), kernel.diag(X))
    gradients, Zbar = kernel.pullback(X, Z, Kbar.copy())
    tgradients, tZbar = kernel.pullback(tX, tZ, tKbar)
    assert_same(tZbar, Zbar)
    assert set(tgradients) == set(gradients)
    for name in gradients:
        assert_same(tgradients[name], gradients[name])
    for name, value in kernel.diag_pullback(X, kbar).items():
        assert_same(kernel.diag_pullback(tX, tkbar)[name], value)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, [[1.0]], [1.0, -2.0]], ids=str)
@pytest.mark.parametrize("kind", LEAVES)
def test_bad_parameters_are_named(kind: type, bad: Any) -> None:
    first = {Polynomial: {"degree": 2}, Trigonometric: {"order": 2}}.get(kind, {})
    for name in kind(**first).parameters:
        with pytest.raises(ParameterError, match=name):
            kind(**first, **{name: bad})


@pytest.mark.parametrize("bad", [0, -1, 2.0, True, "2"], ids=repr)
def test_degree_and_order_are_whole_numbers(bad: Any) -> None:
    with pytest.raises(ParameterError, match="degree"):
        Polynomial(bad)
    with pytest.raises(ParameterError, match="order"):
        Trigonometric(bad)
    assert Polynomial(np.int64(3)).spec()["degree"] == 3


@pytest.mark.parametrize(
    "kernel",
    [Linear(SLOPES), Periodic(ARD), Periodic(1.0, PERIODS), RBF(ARD), RBF(columns=(3,))],
    ids=["linear", "periodic lengthscale", "periodic period", "rbf", "columns"],
)
def test_inputs_of_another_width_are_refused(kernel: kernels.Kernel) -> None:
    X = np.zeros((4, 2))
    with pytest.raises(ShapeError, match="2 columns"):
        kernel(X, X)


@pytest.mark.parametrize(
    "kernel", [Polynomial(2, variance=0.5), Polynomial(6, scale=2.0)], ids=["degree 2", "degree 6"]
)
def test_polynomial_has_rank_degree_plus_one(kernel: Polynomial) -> None:
    X = np.linspace(-2.0, 2.0, 20)[:, None]
    assert np.linalg.matrix_rank(kernel(X, X), tol=1e-9) == kernel.degree + 1  # [004 §5.1]


@pytest.mark.parametrize("order", [1, 5, 40])
def test_trigonometric_near_whole_separations(order: int) -> None:
    kernel = Trigonometric(order)
    separations = np.array([0.0, 1.0, -3.0, 1e-15, 1e-9, 1 - 1e-12, 2 + 1e-6, 1e-3, 0.5])
    r = separations - np.round(separations)
    n = np.arange(1, order + 1)
    K = kernel(np.zeros((1, 1)), separations[:, None])[0]
    assert kernel(np.full((1, 1), 0.3), np.full((1, 1), 0.3))[0, 0] == pytest.approx(2 * order + 1, rel=1e-15)
    np.testing.assert_allclose(K[:3], 2 * order + 1, rtol=1e-14)
    np.testing.assert_allclose(
        K, 1 + 2 * np.cos(2 * pi * np.outer(r, n)).sum(axis=1), rtol=1e-12, atol=1e-12 * order
    )
    _, Zbar = kernel.pullback(np.zeros((1, 1)), separations[:, None], np.ones((1, len(r))))
    slope = -4 * pi * (np.sin(2 * pi * np.outer(r, n)) @ n)
    np.testing.assert_allclose(Zbar[:, 0], slope, rtol=1e-9, atol=1e-11 * order**2)
    apart = np.abs(r) > 1e-4  # the closed form of 5.29, where it can be computed
    closed = np.cos(2 * pi * order * r[apart]) + np.sin(2 * pi * order * r[apart]) / np.tan(pi * r[apart])
    np.testing.assert_allclose(K[apart], closed, rtol=1e-9, atol=1e-11)


def test_trigonometric_functions_are_orthonormal() -> None:
    """The kernel is idempotent: ∫₀¹ k(x, t) k(t, z) dt = k(x, z). [004 §5.3]"""
    kernel = Trigonometric(5)
    t = (np.arange(64) / 64)[:, None]
    X = np.array([[0.1], [0.25], [0.9]])
    np.testing.assert_allclose(kernel(X, t) @ kernel(t, X) / 64, kernel(X, X), rtol=0, atol=1e-12)


def test_periodic_repeats_however_far_out() -> None:
    kernel = Periodic(0.8, 0.25)
    X, Z = np.linspace(0, 0.25, 7)[:, None], np.array([[0.03], [0.2]])
    np.testing.assert_allclose(
        kernel(X + 1e9 * 0.25, Z), kernel(X, Z), rtol=0, atol=1e-6
    )  # x itself keeps 8 digits
    np.testing.assert_allclose(kernel(np.array([[2.0**40]]), np.array([[0.0]])), 1.0, rtol=1e-14)


def test_matern12_is_finite_where_inputs_coincide() -> None:
    X, _, _ = inputs()
    Z = X[:4].copy()
    gradients, Zbar = Matern12(ARD).pullback(X, Z, np.ones((9, 4)))
    assert np.all(np.isfinite(Zbar))
    assert all(np.all(np.isfinite(g)) for g in gradients.values())
    _, alone = Matern12(ARD).pullback(X[:1], X[:1], np.ones((1, 1)))
    np.testing.assert_array_equal(alone, 0.0)


def test_products_survive_a_zero_factor() -> None:
    kernel = RBF(0.9) * Linear(0.8) * Linear([0.3, 0.4, 0.5])
    X, Z, Kbar = inputs()
    X[0], Z[1] = 0.0, 0.0
    gradients, Zbar = kernel.pullback(X, Z, Kbar.copy())
    assert_gradient(Zbar, difference(lambda V: float(np.sum(Kbar * kernel(X, V))), Z))
    for name, value in kernel.parameters.items():
        expected = difference(lambda v: float(np.sum(Kbar * kernel.with_parameters({name: v})(X, Z))), value)  # noqa: B023
        assert_gradient(gradients[name], expected)


def test_sums_and_products_are_flat() -> None:
    a, b, c = RBF(0.5), Linear(2.0), Constant(3.0)
    total = (a + b) + (c + a)
    assert isinstance(total, Sum)
    assert total.parts == (a, b, c, a)
    paths = ["0.lengthscale", "0.variance", "1.variance", "2.variance", "3.lengthscale", "3.variance"]
    assert list(total.parameters) == paths
    nested = a * b * c + a
    assert isinstance(nested, Sum)
    assert isinstance(nested.parts[0], Product)
    assert nested.with_parameters({"0.1.variance": 7.0}).parameters["0.1.variance"] == 7.0
    assert nested.parameters["0.1.variance"] == 2.0
    with pytest.raises(ParameterError, match="0.5"):
        a + 0.5  # type: ignore[operator]
    with pytest.raises(ParameterError, match="at least one"):
        Sum(())
    with pytest.raises(ParameterError, match="variance"):
        nested.with_parameters({"0.1.variance": -1.0})
    with pytest.raises(UnknownNameError, match="5.variance"):
        nested.with_parameters({"5.variance": 1.0})


def test_the_same_kernel_twice() -> None:
    kernel, (X, Z, Kbar) = RBF(0.9, 1.7), inputs()
    single, Zbar_single = kernel.pullback(X, Z, Kbar.copy())
    gradients, Zbar = (kernel + kernel).pullback(X, Z, Kbar.copy())
    np.testing.assert_allclose(Zbar, 2.0 * Zbar_single, rtol=1e-12)
    assert gradients["0.lengthscale"] == gradients["1.lengthscale"] == pytest.approx(single["lengthscale"])


def test_a_repeated_column_counts_twice() -> None:
    X, Z, Kbar = inputs()
    kernel = RBF(0.9, columns=(1, 1))
    _, Zbar = kernel.pullback(X, Z, Kbar.copy())
    assert_gradient(Zbar, difference(lambda V: float(np.sum(Kbar * kernel(X, V))), Z))


@pytest.mark.parametrize(
    ("spec", "error", "says"),
    [
        ({"name": "os.system"}, UnknownNameError, "os.system"),
        ({"name": "Kernel"}, UnknownNameError, "Kernel"),
        ({}, ParameterError, "name"),
        ("RBF", ParameterError, "dictionary"),
        ({"name": "RBF", "size": 1.0}, UnknownNameError, "size"),
        ({"name": "RBF", "lengthscale": "long"}, ParameterError, "long"),
        ({"name": "RBF", "lengthscale": {}}, ParameterError, "lengthscale"),
        ({"name": "RBF", "columns": 3}, ParameterError, "RBF"),
        ({"name": "RBF", "variance": -2.0}, ParameterError, "variance"),
        ({"name": "Polynomial"}, ParameterError, "degree"),
        ({"name": "Sum", "parts": "RBF"}, ParameterError, "parts"),
        ({"name": "Sum"}, ParameterError, "parts"),
        ({"name": "Product", "parts": [{"name": "Nope"}]}, UnknownNameError, "Nope"),
    ],
)
def test_bad_specs_are_refused(spec: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        kernels.from_spec(spec)


def test_a_sphere_is_closed_and_refuses_other_inputs() -> None:
    kernel = Sphere(0.3)
    ends = np.array([[10.0, 180.0], [10.0, -180.0], [90.0, 0.0], [90.0, 77.0]])
    K = kernel(ends, ends)
    np.testing.assert_allclose(K[0, 1], 1.0, atol=1e-12)
    np.testing.assert_allclose(K[2, 3], 1.0, atol=1e-12)
    with pytest.raises(ShapeError, match="needs latitude and longitude, not 3 columns"):
        kernel(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(ParameterError, match="smoothness must be one of 0.5, 1.5, 2.5, inf, not 2"):
        Sphere(1.0, 1.0, 2)


def test_matern_of_any_order_meets_its_neighbours() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    for nu, kind in ((0.5, Matern12), (1.5, Matern32), (2.5, Matern52)):
        np.testing.assert_allclose(Matern(ARD[:2], 1.3, nu)(X, X), kind(ARD[:2], 1.3)(X, X), rtol=1e-12)
    gap = [np.max(np.abs(Matern(1.0, 1.0, nu)(X, X) - RBF(1.0)(X, X))) for nu in (10.0, 30.0, 100.0)]
    assert gap[0] > 2.5 * gap[1] > 6 * gap[2]  # as 1/ν
    near = np.array([[0.0], [1e-9], [1e-4], [0.3]])
    assert np.all(np.isfinite(Matern(1.0, 1.0, 80.0)(near, near)))


@pytest.mark.parametrize("kernel", [RBF(0.7, 1.3), Matern12(0.7), Matern32(0.7, 1.3), Matern(0.7, 1.3, 1.8)])
def test_the_spectral_density_is_the_kernels_fourier_transform(kernel: kernels.Kernel) -> None:
    s = np.linspace(-400.0, 400.0, 1_600_001)[:, None]
    S = spectral_density(kernel, s)
    for r in (0.25, 0.8):
        k = np.trapezoid(S * np.cos(2 * np.pi * s[:, 0] * r), s[:, 0])
        assert k == pytest.approx(kernel(np.zeros((1, 1)), np.full((1, 1), r))[0, 0], abs=2e-5)
    plane = type(kernel)(**(kernel.parameters | {"lengthscale": [0.7, 0.4]}))
    g = np.linspace(-60.0, 60.0, 1201)
    line = spectral_density(
        plane, np.stack([np.full_like(g, 0.9), g], axis=1)
    )  # over one input: that of the rest
    assert np.trapezoid(line, g) == pytest.approx(spectral_density(kernel, [[0.9]])[0], rel=0.02)


def test_no_spectral_density_is_said() -> None:
    with pytest.raises(ParameterError, match="not RationalQuadratic"):
        spectral_density(RationalQuadratic(), [[1.0]])
