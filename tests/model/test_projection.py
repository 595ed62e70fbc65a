"""A linear projection of the inputs, learned with everything else. [001 §5]"""

import numpy as np
import pytest

import inducing as ig
from inducing.errors import ParameterError, ShapeError, UnknownNameError
from inducing.learning.packing import Packing, Parameters, Summary
from inducing.learning.recipes import Task, with_projection
from inducing.model.kernels import RBF, Linear, Projected

RNG = np.random.default_rng(0)
W = RNG.normal(size=(2, 4))
X = RNG.normal(size=(60, 4))
y = np.sin(X @ W[0]) + 0.1 * RNG.standard_normal(60)
Z = X[:7]


def planted(n, d, seed=0):
    """A function of two directions of d inputs, and those directions. (n, d), (n,), (2, d)"""
    A = np.linalg.qr(np.random.default_rng(99).normal(size=(d, 2)))[0].T
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    u, v = A @ X.T
    return X, np.sin(2 * u) + 0.5 * v**2 + 0.1 * rng.standard_normal(n), A


def alignment(matrix, A):
    """Cosine of the largest angle between two subspaces: 1 where they are the same."""
    first, second = (np.linalg.qr(M.T)[0] for M in (matrix, A))
    return np.linalg.svd(first.T @ second, compute_uv=False).min()


@pytest.mark.parametrize("row", ["vfe", "fitc", "dtc", "exact"])
def test_it_is_the_kernel_of_the_projected_inputs(row):
    inner = RBF([0.8, 1.2], 1.3)
    one = ig.log_evidence(Projected(inner, W), ig.bases.Points(Z), row, 0.1, X, y)
    other = ig.log_evidence(inner, ig.bases.Points(Z @ W.T), row, 0.1, X @ W.T, y)
    assert one == pytest.approx(other, rel=1e-10)


@pytest.mark.parametrize("row", ["vfe", "fitc", "pitc", "exact"])
@pytest.mark.parametrize(
    "inner", [RBF(0.9, 1.3), RBF(0.9, 1.3, columns=(0,)) + Linear(0.4)], ids=["rbf", "sum"]
)
def test_its_gradient_is_that_of_the_evidence(row, inner):
    blocks = {"blocks": np.arange(60) // 20} if row == "pitc" else {}

    def value(matrix):
        return ig.log_evidence(Projected(inner, matrix), ig.bases.Points(Z), row, 0.1, X, y, **blocks)

    _, gradient = ig.log_evidence_and_gradient(
        Projected(inner, W), ig.bases.Points(Z), row, 0.1, X, y, **blocks
    )
    found, h = np.zeros_like(W), 1e-5
    for i in np.ndindex(W.shape):
        E = np.zeros_like(W)
        E[i] = h
        found[i] = (value(W + E) - value(W - E)) / (2 * h)
    np.testing.assert_allclose(gradient["kernel.matrix"], found, rtol=1e-5, atol=1e-6 * np.abs(found).max())


def test_its_entries_may_have_any_sign_and_travel_without_logarithms():
    kernel = Projected(RBF(1.0), W)
    spread = np.array([1.0, 2.0, 0.5, 3.0])
    start = Parameters(kernel, ig.bases.Points(Z), 0.1, ig.means.Zero())
    packing = Packing(start, Summary(60, spread, X.min(0), X.max(0), 1.0))
    assert packing.positive == ["kernel.0.lengthscale", "kernel.0.variance", "noise"]
    x = packing.start
    np.testing.assert_allclose(
        x[:8].reshape(2, 4), W * spread
    )  # of the order of one, whatever units the inputs have
    np.testing.assert_allclose(packing.unpack(x)[0].matrix, W)
    np.testing.assert_allclose(packing.unpack(-x)[0].matrix, -W)
    assert all(np.isinf(low) and np.isinf(high) for low, high in packing.bounds[:8])
    assert (kernel + RBF(1.0)).unconstrained == ("0.matrix",) and RBF(1.0).unconstrained == ()


def test_a_planted_plane_among_thirty_inputs_is_found():
    X, y, A = planted(500, 30)
    test, y_test, _ = planted(1000, 30, seed=1)
    model = ig.SparseGPRegressor(n_inducing=40, projection=2, random_state=0).fit(X, y)
    assert model.kernel_.matrix.shape == (2, 30)
    assert alignment(model.kernel_.matrix, A) > 0.995
    assert ig.metrics.smse(y_test, model.predict(test), y) < 0.05  # the noise alone is 0.01 of the variance
    without = ig.SparseGPRegressor(n_inducing=40, random_state=0, max_iter=30).fit(X, y)
    assert ig.metrics.smse(y_test, without.predict(test), y) > 0.2


def test_the_start_looks_where_the_function_varies():
    X, y, A = planted(800, 12)
    units = np.linspace(0.1, 10, 12)  # must not matter
    X = X * units
    task = Task(
        RBF(3.0 * units), ig.bases.Points(X[:40]), "fitc", 0.1, X, y - y.mean(), progress=False, rng=0
    )
    start = with_projection(task, 2)
    assert alignment(start.kernel.matrix * units, A) > 0.8
    assert start.kernel.kernel.lengthscale == 1.0 and start.fixed == ("kernel.0.lengthscale",)


def test_models_with_a_projection_are_saved(tmp_path):
    X, y, _ = planted(100, 5)
    model = ig.SparseGPRegressor(n_inducing=10, projection=2, max_iter=10, random_state=0).fit(X, y)
    model.save(tmp_path / "model")
    again = ig.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.kernel_.matrix, model.kernel_.matrix)
    assert again.projection == 2


def test_what_cannot_be_projected_is_said():
    for wrong, word in (
        (np.ones(3), r"\(3,\)"),
        ([[np.nan]], "NaN"),
        ([["a"]], "numbers"),
        (np.ones((0, 2)), r"\(0, 2\)"),
    ):
        with pytest.raises(ParameterError, match=word):
            Projected(RBF(1.0), wrong)
    with pytest.raises(ParameterError, match="needs a kernel"):
        Projected(1.0, W)
    with pytest.raises(ShapeError, match="projects 4 inputs, but there are 3"):
        Projected(RBF(1.0), W)(X[:, :3], X[:, :3])
    with pytest.raises(UnknownNameError, match="no parameter"):
        Projected(RBF(1.0), W).with_parameters({"lengthscale": 2.0})
    with pytest.raises(ParameterError, match="1 to 4 directions, not 5"):
        ig.SparseGPRegressor(projection=5, n_inducing=5).fit(X, y)
    with pytest.raises(ParameterError, match="stationary kernel"):
        ig.SparseGPRegressor(Linear(1.0), projection=2, n_inducing=5).fit(X, y)
