"""Fast products with a kernel matrix, which err: bounds that hold at every row, and the choice by cost."""

import math
from typing import Any

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from experiments import dual_tree, gauss_transform
from experiments.dual_tree import Tree
from experiments.gauss_transform import Gauss
from experiments.linear_systems import choose
from inducing import errors
from inducing.inference.conjugate_gradients.products import Blocked
from inducing.numerics.compiling import Helper

N, T = 500, 100
APPROXIMATE = {"tree": Tree, "gauss": Gauss}
VARIANCE = 1.7


def dense(kernel: Any, Z: np.ndarray, X: np.ndarray) -> np.ndarray:
    """K(Z, X) from the formulas, without the package's kernels."""
    r2 = np.sum(((Z[:, None, :] - X) / kernel.lengthscale) ** 2, axis=2)
    r = np.sqrt(r2)
    g = {
        "RBF": lambda: np.exp(-0.5 * r2),
        "Matern12": lambda: np.exp(-r),
        "Matern32": lambda: (1 + math.sqrt(3) * r) * np.exp(-math.sqrt(3) * r),
        "Matern52": lambda: (1 + math.sqrt(5) * r + 5 * r2 / 3) * np.exp(-math.sqrt(5) * r),
    }[type(kernel).__name__]()
    return kernel.variance * g


def inputs(d: int, clustered: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(100)
    X = rng.uniform(size=(N, d))
    if clustered:
        X = X[rng.integers(0, 5, N)] + 0.01 * rng.standard_normal((N, d))
        X[:20] = X[0]  # repeated rows
    return X, rng.uniform(-0.3, 1.4, size=(T, d))


def worst(product: Any, V: np.ndarray, X: np.ndarray, Z: np.ndarray) -> float:
    """The largest error at any row, of X and of queries elsewhere, relative to the variance and Σ|v|."""
    size = product.kernel.variance * np.sum(np.abs(V), axis=0)
    own, other = product(V) - dense(product.kernel, X, X) @ V, product(V, Z) - dense(product.kernel, Z, X) @ V
    return float(max(np.max(np.abs(own) / size), np.max(np.abs(other) / size)))


@pytest.mark.parametrize("tolerance", [0.1, 1e-4, 1e-10])
@pytest.mark.parametrize("lengthscale", [0.01, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("name", APPROXIMATE)
def test_the_bound_holds(name: str, d: int, lengthscale: float, tolerance: float) -> None:
    """For weights of one sign, where errors add up, and of both; ARD; repeated rows."""
    rng = np.random.default_rng(103)
    for clustered in (False, True):
        X, Z = inputs(d, clustered)
        kernel = ig.kernels.RBF(lengthscale * np.linspace(1.0, 1.5, d), VARIANCE)
        product = APPROXIMATE[name](kernel, X, tolerance)
        if product.cost > 1e9:  # the Gauss transform with short lengthscales: seconds for these few rows
            continue
        V = np.stack([np.ones(N), rng.standard_normal(N), rng.exponential(size=N) ** 3], axis=1)
        assert worst(product, V, X, Z) <= tolerance + 1e-14


def test_the_bound_is_used() -> None:
    """Looser tolerances give larger errors and smaller costs: the bound is not met by computing
    everything.
    """
    X, Z = inputs(2)
    V = np.ones((N, 1))
    for make, lengthscale in ((Tree, 0.1), (Gauss, 0.6)):
        loose, tight = (make(ig.kernels.RBF(lengthscale), X, tolerance) for tolerance in (1e-2, 1e-8))
        assert worst(loose, V, X, Z) > 1e3 * worst(tight, V, X, Z)
        assert loose.cost < tight.cost


@pytest.mark.parametrize("kernel", [ig.kernels.Matern12, ig.kernels.Matern32, ig.kernels.Matern52])
def test_the_tree_takes_matern_kernels(kernel: Any) -> None:
    X, Z = inputs(2)
    for lengthscale in (0.02, 0.3):
        for tolerance in (1e-2, 1e-7):
            product = Tree(kernel(lengthscale, VARIANCE), X, tolerance)
            assert worst(product, np.ones((N, 1)), X, Z) <= tolerance + 1e-14


def test_five_dimensions_and_columns() -> None:
    rng = np.random.default_rng(104)
    X, Z = inputs(5)
    kernel = ig.kernels.RBF([2.0, 3.0], VARIANCE, columns=(1, 4))
    inner = ig.kernels.RBF([2.0, 3.0], VARIANCE)
    V = rng.standard_normal(N)
    for make in APPROXIMATE.values():
        assert_allclose(
            make(kernel, X, 1e-9)(V, Z), dense(inner, Z[:, [1, 4]], X[:, [1, 4]]) @ V, rtol=0, atol=1e-6
        )
    product = Gauss(ig.kernels.RBF(3.0, VARIANCE), X, 1e-8)
    assert worst(product, V[:, None], X, Z) <= 1e-8


def test_few_rows() -> None:
    rng = np.random.default_rng(105)
    for make in APPROXIMATE.values():
        for n in (1, 2, 40):
            X, V = rng.uniform(size=(n, 2)), rng.standard_normal((n, 2))
            product = make(ig.kernels.RBF(0.5), X, 1e-9)
            assert worst(product, V, X, X[:1]) <= 1e-9


def test_truncation_bounds_the_series() -> None:
    """Against the series itself, summed in one dimension, where x - c and y - c lie along a line in either
    direction.
    """
    for radius, reach in ((0.5, 2.0), (1.5, 3.0), (4.0, 2.0)):
        a, b = np.meshgrid(np.linspace(0.0, radius, 41), np.linspace(-reach, reach, 81))
        for p in (1, 2, 5, 9):
            series = sum((a * b) ** k / math.factorial(k) for k in range(p))
            error = np.max(np.abs(np.exp(a * b) - series) * np.exp(-0.5 * (a * a + b * b)))
            bound = gauss_transform.truncation(p, np.array([radius]), np.array([reach]))[0]
            assert error <= bound
            assert radius * reach > 1.0 or bound < math.e * error  # exp(ab) stands for a sum from 1 on


def called(helper: Any) -> Any:
    """A function for Python from one that compiled functions call, whether any has been compiled or not."""
    made = helper.made() if isinstance(helper, Helper) else helper
    return numba.njit(lambda a, b, c, d: made(a, b, c, d))


def test_monomials_in_their_order() -> None:
    monomials = called(gauss_transform.monomials)
    heads, factors, below = gauss_transform.heads_and_factors(3, 5)
    assert list(below) == [0] + [math.comb(3 + p - 1, 3) for p in range(1, 6)]
    out = np.empty(len(factors))
    out[0] = 1.0
    assert monomials(np.array([2.0, 3.0, 5.0]), 5, heads, out) == len(factors)
    expected = [2**i * 3**j * 5**k for i in range(5) for j in range(5 - i) for k in range(5 - i - j)]
    assert sorted(out) == sorted(expected)
    x, y = np.array([0.3, -0.2, 0.4]), np.array([0.5, 0.7, -0.1])
    left, right = np.ones(len(factors)), np.ones(len(factors))
    monomials(x, 5, heads, left)
    monomials(y, 5, heads, right)
    series = sum((x @ y) ** k / math.factorial(k) for k in range(5))
    assert_allclose(np.sum(left * right * factors), series, rtol=1e-14)


def test_exponentials() -> None:
    t = np.concatenate([-np.logspace(-300, 2.8, 3000), np.linspace(-40.0, 0.0, 3000), [0.0, -1e5]])
    values = -2.0 * t
    called(dual_tree.profiles)(values, len(t), 0, np.empty_like(t))
    assert_allclose(values, np.exp(t), rtol=0, atol=4e-16)


def test_the_choice_follows_the_lengthscale() -> None:
    """Tree for short lengthscales, Gauss transform for long ones, blocks where neither helps. [002]"""
    rng = np.random.default_rng(106)
    X = rng.uniform(size=(20_000, 2))
    kinds = [type(choose(ig.kernels.RBF(lengthscale), X, 1e-6)) for lengthscale in (0.003, 1.0)]
    assert kinds == [Tree, Gauss]
    wide = rng.uniform(size=(3_000, 8))
    assert isinstance(choose(ig.kernels.RBF(0.5), wide, 1e-6), Blocked)
    assert isinstance(choose(ig.kernels.Matern32(0.003), X, 1e-6), Tree)
    assert isinstance(choose(ig.kernels.RBF(0.003), X), Blocked)  # exact unless told otherwise
    assert isinstance(choose(ig.kernels.RBF(1.0) + ig.kernels.RBF(0.1), X, 1e-6), Blocked)


def test_refusals() -> None:
    rng = np.random.default_rng(107)
    X = rng.uniform(size=(500, 6))
    with pytest.raises(errors.ParameterError, match="Gauss transform is for RBF kernels, not for Matern32"):
        Gauss(ig.kernels.Matern32(1.0), X, 1e-6)
    with pytest.raises(errors.ParameterError, match="tree's tolerance must lie between 0 and 1, but is 0"):
        Tree(ig.kernels.RBF(1.0), X, 0.0)
    with pytest.raises(errors.ParameterError, match="needs more than 65536 terms .* in 6 dimensions"):
        Gauss(ig.kernels.RBF(0.05), X, 1e-10)(np.ones(500))
