"""Shapley values against all subsets of the inputs, and their deviations against functions drawn."""

import warnings
from itertools import combinations
from math import factorial

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing.errors import ParameterError
from inducing.inference.shapley import product_terms, sampled_values, shapley_values

K = ig.kernels


def mixed(x: np.ndarray, B: np.ndarray, S: tuple[int, ...]) -> np.ndarray:
    rows = B.copy()
    rows[:, list(S)] = x[list(S)]
    return rows


def enumerated(function, X: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Over all subsets, from the definition. (n, d)"""
    d, values = X.shape[1], []
    subsets = [S for k in range(d + 1) for S in combinations(range(d), k)]
    for x in X:
        rows = np.concatenate([mixed(x, B, S) for S in subsets])
        worth = dict(zip(subsets, function(rows).reshape(len(subsets), len(B), -1).mean(axis=1)))
        own = []
        for i in range(d):
            total = 0.0
            for S in subsets:
                if i not in S:
                    weight = factorial(len(S)) * factorial(d - len(S) - 1) / factorial(d)
                    total = total + weight * (worth[tuple(sorted((*S, i)))] - worth[S])
            own.append(total)
        values.append(own)
    return np.array(values)[..., 0]


def process(kernel, d: int, basis=None, mean=None, row: str = "vfe"):
    rng = np.random.default_rng(d)
    X = rng.uniform(-1.5, 1.5, (60, d))
    y = np.sin(X[:, 0]) + X[:, 0] * X[:, -1] + 0.1 * rng.standard_normal(60)
    basis = ig.bases.Points(X[:12]) if basis is None else basis
    return ig.condition(kernel, basis, row, 0.05, X, y, mean=mean), X


WEIGHT = K.Constant(0.4)
CASES = {
    "rbf": (K.RBF([0.8, 1.3, 2.0, 0.9]), None),
    "isotropic": (K.RBF(1.1, 2.0), ig.means.Linear([0.3, -0.2, 0.0, 1.0], 0.5)),
    "sum": (K.RBF(1.0, columns=(0, 1)) + K.Matern32(0.7, columns=(2,)) + K.Linear(0.3), None),
    "product": (
        K.RBF([0.9, 1.2], columns=(0, 3)) * K.Periodic(1.0, 2.0, columns=(1,)) + K.Constant(0.4),
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_against_all_subsets(name: str) -> None:
    kernel, mean = CASES[name]
    post, X = process(kernel, 4, mean=mean)
    B = X[20:27]
    found = shapley_values(post, X[:4], B, [(i,) for i in range(4)])
    assert found is not None and found.error is None
    assert_allclose(found.values, enumerated(post.mean, X[:4], B), atol=1e-9)
    assert_allclose(found.predictions, post.mean(X[:4]), atol=1e-10)


@pytest.mark.parametrize("d", [1, 2, 7, 10])
def test_any_number_of_inputs(d: int) -> None:
    post, X = process(K.RBF(np.linspace(0.8, 2.5, d)), d)
    found = shapley_values(post, X[:2], X[30:33], [(i,) for i in range(d)])
    assert found is not None
    assert_allclose(found.values, enumerated(post.mean, X[:2], X[30:33]), atol=1e-9)


def test_multiscale_bases() -> None:
    rng = np.random.default_rng(0)
    basis = ig.bases.Multiscale(rng.uniform(-1, 1, (9, 3)), rng.uniform(0.8, 2.0, (9, 3)))
    post, X = process(K.RBF([0.8, 1.0, 0.9]), 3, basis)
    found = shapley_values(post, X[:3], X[10:15], [(0,), (1,), (2,)], std=True)
    assert found is not None and found.std is not None and np.all(found.std > 0.0)
    assert_allclose(found.values, enumerated(post.mean, X[:3], X[10:15]), atol=1e-9)


@pytest.mark.parametrize("row", ["vfe", "sor"])
@pytest.mark.parametrize("name", ["rbf", "sum"])
def test_deviations_against_the_joint_covariance(name: str, row: str) -> None:
    """A value is a weighted sum of f at the subsets' rows, whose covariance is known."""
    post, X = process(CASES[name][0], 4, row=row)
    B = X[20:23]
    found = shapley_values(post, X[:2], B, [(i,) for i in range(4)], std=True)
    assert found is not None and found.std is not None
    subsets = [S for k in range(5) for S in combinations(range(4), k)]
    for i, x in enumerate(X[:2]):
        rows = np.concatenate([mixed(x, B, S) for S in subsets])
        joint = post.covariance(rows)
        for g in range(4):
            weights = dict.fromkeys(subsets, 0.0)
            for S in subsets:
                if g not in S:
                    w = factorial(len(S)) * factorial(3 - len(S)) / factorial(4)
                    weights[tuple(sorted((*S, g)))] += w
                    weights[S] -= w
            c = np.repeat([weights[S] / len(B) for S in subsets], len(B))
            assert_allclose(found.std[i, g] ** 2, c @ joint @ c, rtol=1e-5, atol=1e-9)


def test_deviations_against_functions_drawn() -> None:
    post, X = process(CASES["rbf"][0], 4)
    B, x = X[20:22], X[:1]
    found = shapley_values(post, x, B, [(i,) for i in range(4)], std=True)
    assert found is not None and found.std is not None
    subsets = [S for k in range(5) for S in combinations(range(4), k)]
    draws = post.sample(np.concatenate([mixed(x[0], B, S) for S in subsets]), 2000, np.random.default_rng(0))
    worth = dict(zip(subsets, np.moveaxis(draws.reshape(2000, len(subsets), 2).mean(axis=2), 1, 0)))
    for g in range(4):
        value = sum(
            factorial(len(S)) * factorial(3 - len(S)) / 24 * (worth[tuple(sorted((*S, g)))] - worth[S])
            for S in subsets
            if g not in S
        )
        assert_allclose(np.std(value), found.std[0, g], rtol=0.08)


def test_sampled_values_say_their_error() -> None:
    post, X = process(K.Matern52([0.8, 1.3, 2.0, 0.9]), 4)
    assert product_terms(post.kernel, [(i,) for i in range(4)]) is None
    B = X[20:30]
    found = sampled_values(post.mean, X[:5], B, permutations=20, rng=0)
    exact = enumerated(post.mean, X[:5], B)
    assert found.error is not None and np.all(found.error < 0.02)
    assert np.mean(np.abs(found.values - exact) < 3.0 * found.error + 1e-12) > 0.9
    assert_allclose(found.predictions, post.mean(X[:5]), atol=1e-10)
    both = shapley_values(post, X[:5], B, [(0, 1, 2, 3)])  # one input of four columns
    assert both is not None
    assert_allclose(both.values[:, 0], post.mean(X[:5]) - np.mean(post.mean(B)), atol=1e-10)


def test_estimators_answer_in_their_units() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 50.0, (80, 3))
    y = 100.0 + X[:, 0] + 0.1 * X[:, 1] * X[:, 2] + rng.standard_normal(80)  # without noise digits are lost
    options = dict(n_inducing=10, max_iter=5, random_state=0)
    model = ig.SparseGPRegressor(approximation="vfe", kernel="rbf", **options).fit(X, y)
    found = model.shapley(X[:4], X[10:16], return_std=True)
    assert found.names == ("0", "1", "2") and found.error is None
    assert_allclose(found.predictions, model.predict(X[:4]), rtol=1e-10)
    assert_allclose(found.values, enumerated(model.predict, X[:4], X[10:16]), atol=1e-8)
    near = ig.SparseGPRegressor(approximation="neighbours", neighbours=5, **options).fit(X, y)
    sampled = near.shapley(X[:2], X[10:16])
    assert sampled.error is not None
    assert_allclose(sampled.predictions, near.predict(X[:2]), rtol=1e-10)
    with pytest.raises(ParameterError, match="product"):
        near.shapley(X[:2], X[10:16], return_std=True)


def test_values_against_the_package_shap() -> None:
    """Its exact explainer, which masks every subset of six inputs with the rows of the background."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages it imports
        shap = pytest.importorskip("shap")
    post, X = process(K.RBF(np.linspace(0.8, 2.5, 6)), 6)
    B = X[20:28]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = shap.explainers.Exact(post.mean, shap.maskers.Independent(B, max_samples=len(B)))(X[:5])
    found = shapley_values(post, X[:5], B, [(i,) for i in range(6)])
    assert found is not None
    assert_allclose(found.values, theirs.values, atol=1e-9)
    assert_allclose(found.baseline, theirs.base_values[0], atol=1e-9)
