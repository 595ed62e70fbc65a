"""Multiscale bases in kernel ridge regression and the SVM: scikit-learn's contract, known answers, gradients,
gains.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import accuracy_score
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import inducing as ig
from inducing import errors
from inducing.beside.multiscale_machines import INTERCEPT, Risk, hinge, ridge, squared_hinge

RIDGE, MACHINE = ig.MultiscaleKernelRidge, ig.MultiscaleSVM


@parametrize_with_checks(
    [
        RIDGE(),
        RIDGE(5, basis="points", max_iter=5),
        MACHINE(),
        MACHINE(5, basis="points", loss="hinge", max_iter=5),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, (120, 2))
y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(120) + 5.0
labels = np.where(np.hypot(X[:, 0] - 0.5, 0.5 * X[:, 1]) < 1.3, "in", "out")
labels[::15] = "in"  # not separable
XS = np.random.default_rng(1).uniform(-3, 3, (50, 2))
SIGN = np.where(labels == "out", 1.0, -1.0)[:, None]


# With no basis to learn they are machines that are known.


def test_ridge_on_points_is_the_sor_mean():
    model = RIDGE(
        12, basis="points", lengthscale=[1.1, 1.6], alpha=0.3, max_iter=0, standardize=False, jitter=0.0
    ).fit(X, y)
    post = ig.condition(ig.kernels.RBF([1.1, 1.6]), model.basis_, "sor", 0.3, X, y, jitter=0.0)
    np.testing.assert_allclose(model.predict(XS), post.mean(XS), rtol=1e-6)
    np.testing.assert_allclose(model.coef_, post.alpha, rtol=1e-5)


def test_ridge_with_all_rows_is_scikit_learns():
    model = RIDGE(200, basis="points", lengthscale=1.5, alpha=0.5, max_iter=0, standardize=False).fit(X, y)
    known = KernelRidge(alpha=0.5, kernel="rbf", gamma=0.5 / 1.5**2).fit(X, y)
    assert len(model.basis_) == 120
    np.testing.assert_allclose(model.predict(XS), known.predict(XS), rtol=1e-5)


def test_hinge_with_all_rows_is_scikit_learns():
    model = MACHINE(
        200, basis="points", lengthscale=1.0, C=2.0, loss="hinge", max_iter=0, standardize=False
    ).fit(X, labels)
    known = SVC(C=2.0, gamma=0.5, tol=1e-8).fit(X, labels)
    np.testing.assert_allclose(model.decision_function(XS), known.decision_function(XS), atol=1e-3)
    np.testing.assert_array_equal(model.predict(XS), known.predict(XS))


def test_squared_hinge_is_a_minimum():
    """Its own stationarity: w = -Φ slope, b / 100 = -Σ slope."""
    rng = np.random.default_rng(100)
    Phi = rng.normal(size=(120, 5))
    best = squared_hinge(0.7)(Phi, SIGN, np.ones(120))
    np.testing.assert_allclose(best.w, -Phi.T @ best.slope, atol=1e-5)
    np.testing.assert_allclose(best.b / INTERCEPT**2, -best.slope.sum(axis=0), atol=1e-4)
    short = np.maximum(0.0, 1.0 - SIGN * (Phi @ best.w + best.b))
    value = 0.5 * np.sum(best.w**2) + 0.5 * np.sum((best.b / INTERCEPT) ** 2) + 0.7 * np.sum(short**2)
    np.testing.assert_allclose(best.value, value)


def test_lengthscale_by_default_is_gamma_scale():
    model = RIDGE(10, max_iter=0).fit(X, y)
    np.testing.assert_allclose(model.kernel_.lengthscale, X.std(axis=0))  # √(2/2) standard deviations
    np.testing.assert_allclose(model.x_scale_, X.std(axis=0))


# Gradients of the minimum, by the envelope theorem, against finite differences.


HINGE = hinge(0.8)


def basis_of(kind):
    centers = X[:6] + 0.1
    widths = 1.0 + 0.4 * np.random.default_rng(3).uniform(size=(6, 2))
    return ig.bases.Points(centers) if kind == "points" else ig.bases.Multiscale(centers, widths)


@pytest.mark.parametrize("kind", ["points", "multiscale"])
@pytest.mark.parametrize(
    "solver", [ridge(0.2), squared_hinge(0.8), HINGE], ids=["ridge", "squared_hinge", "hinge"]
)
def test_gradient_of_the_minimum(solver, kind):
    weights = np.random.default_rng(4).uniform(0.5, 2.0, 120)
    T = np.column_stack([SIGN[:, 0], np.where(X[:, 1] > 0.3, 1.0, -1.0)])
    risk, basis = Risk(ig.kernels.RBF([0.9, 1.2]), solver, X, T, weights, 1e-8), basis_of(kind)
    _, gradient = risk.value_and_gradient(basis)
    exact = solver is not HINGE  # SVC's minimum is good to 1e-5 or so: its differences need longer steps
    h, rtol, atol = (1e-5, 1e-4, 1e-5) if exact else (1e-3, 1e-2, 1e-2)
    for name, value in basis.parameters.items():
        numeric = np.zeros_like(value)
        for at in np.ndindex(value.shape):
            ends = []
            for sign in (1.0, -1.0):
                moved = value.copy()
                moved[at] += sign * h
                ends.append(risk.minimum(basis.with_parameters({name: moved}))[0].value)
            numeric[at] = (ends[0] - ends[1]) / (2 * h)
        np.testing.assert_allclose(gradient[name], numeric, rtol=rtol, atol=atol * np.abs(numeric).max())


# What free widths gain.


@pytest.mark.parametrize("m", [3, 6, 12])
def test_ridge_with_widths_reaches_a_lower_objective_than_points(m):
    fits = {
        basis: RIDGE(m, basis=basis, lengthscale=0.5, max_iter=200, random_state=0).fit(X, y)
        for basis in ("points", "multiscale")
    }
    start = RIDGE(m, basis="points", lengthscale=0.5, max_iter=0, random_state=0).fit(X, y)
    least = RIDGE(120, basis="points", lengthscale=0.5, max_iter=0).fit(
        X, y
    )  # over the whole space: the representer theorem
    assert (
        least.objective_ < fits["multiscale"].objective_ < 0.95 * fits["points"].objective_ < start.objective_
    )


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_svm_with_widths_reaches_a_lower_objective_than_points(loss):
    options = {"n_inducing": 6, "lengthscale": 0.8 * X.std(axis=0), "C": 3.0, "loss": loss, "random_state": 0}
    fits = {
        basis: MACHINE(basis=basis, max_iter=60, **options).fit(X, labels)
        for basis in ("points", "multiscale")
    }
    start = MACHINE(basis="points", max_iter=0, **options).fit(X, labels)
    least = MACHINE(basis="points", max_iter=0, **(options | {"n_inducing": 120})).fit(X, labels)
    assert (
        least.objective_ < fits["multiscale"].objective_ < 0.97 * fits["points"].objective_ < start.objective_
    )


def test_objective_is_what_it_says():
    model = RIDGE(8, alpha=0.4, lengthscale=0.8, max_iter=30, random_state=0).fit(X, y)
    Kuu = model.basis_.gram(ig.kernels.in_units(model.kernel_, model.x_scale_))
    value = np.sum((y - model.predict(X)) ** 2) + 0.4 * model.coef_ @ Kuu @ model.coef_
    np.testing.assert_allclose(model.objective_, value, rtol=1e-5)
    svm = MACHINE(8, C=0.6, lengthscale=0.8, max_iter=30, random_state=0).fit(X, labels)
    f, c = svm.decision_function(X), svm.coef_[:, 0]
    Kuu = svm.basis_.gram(ig.kernels.in_units(svm.kernel_, svm.x_scale_))
    value = 0.5 * (c @ Kuu @ c + (svm.intercept_[0] / 10.0) ** 2)
    value += 0.6 * np.sum(np.maximum(0.0, 1.0 - SIGN[:, 0] * f) ** 2)
    np.testing.assert_allclose(svm.objective_, value, rtol=1e-5)


# The surface.


def test_predictions_and_scores():
    truth = np.sin(XS[:, 0]) * XS[:, 1] + 5.0
    assert RIDGE(30, alpha=0.05, random_state=0).fit(X, y).score(XS, truth) > 0.95
    both = RIDGE(30, alpha=0.05, random_state=0).fit(X, np.column_stack([y, -2.0 * y]))
    assert both.predict(XS).shape == (50, 2) and both.coef_.shape == (30, 2)
    np.testing.assert_allclose(both.predict(XS)[:, 1], -2.0 * both.predict(XS)[:, 0], rtol=1e-6)
    truth = np.where(np.hypot(XS[:, 0] - 0.5, 0.5 * XS[:, 1]) < 1.3, "in", "out")
    svm = MACHINE(10, random_state=0).fit(X, labels)
    assert svm.score(XS, truth) > 0.85
    np.testing.assert_array_equal(svm.predict(XS) == "out", svm.decision_function(XS) > 0)


def test_several_classes_share_a_basis():
    kinds = np.select([X[:, 0] < -1, X[:, 1] > 0.5], ["left", "top"], "rest")
    svm = MACHINE(8, random_state=0).fit(X, kinds)
    assert svm.decision_function(XS).shape == (50, 3) and svm.coef_.shape == (8, 3) and len(svm.basis_) == 8
    assert (
        accuracy_score(np.select([XS[:, 0] < -1, XS[:, 1] > 0.5], ["left", "top"], "rest"), svm.predict(XS))
        > 0.9
    )


def test_scaling_the_targets_scales_the_predictions():
    one = RIDGE(8, max_iter=6, random_state=0).fit(X, y)
    other = RIDGE(8, max_iter=6, random_state=0).fit(X * [10.0, 0.1] + 3.0, 100.0 * y)
    np.testing.assert_allclose(other.predict(XS * [10.0, 0.1] + 3.0), 100.0 * one.predict(XS), rtol=1e-6)


@pytest.mark.parametrize(("model", "t"), [(RIDGE(8, max_iter=10), y), (MACHINE(8, max_iter=10), labels)])
def test_weights_and_order(model, t):
    weights = np.random.default_rng(2).integers(0, 3, 120)
    order = np.random.default_rng(3).permutation(np.repeat(np.arange(120), weights))
    one = clone(model).set_params(random_state=0).fit(X, t, sample_weight=weights)
    other = clone(model).set_params(random_state=0).fit(X[order], t[order])
    np.testing.assert_allclose(one.coef_, other.coef_)


def test_a_class_of_weight_zero_is_not_there():
    kinds = np.select([X[:, 0] < -1, X[:, 1] > 0.5], ["left", "top"], "rest")
    svm = MACHINE(5, max_iter=4).fit(X, kinds, sample_weight=(kinds != "top").astype(float))
    assert list(svm.classes_) == ["left", "rest"]


def test_data_frames_give_names():
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert list(RIDGE(5, max_iter=2).fit(frame, y).feature_names_in_) == ["a", "b"]


@pytest.mark.parametrize(
    ("error", "model", "t"),
    [
        (errors.UnknownNameError, RIDGE(basis="wide"), y),
        (errors.UnknownNameError, MACHINE(loss="logistic"), labels),
        (errors.ParameterError, RIDGE(alpha=0.0), y),
        (errors.ParameterError, RIDGE(alpha="1"), y),
        (errors.ParameterError, MACHINE(C=-1.0), labels),
        (errors.ParameterError, RIDGE(n_inducing=0), y),
        (errors.ParameterError, RIDGE(lengthscale=-1.0), y),
        (errors.ShapeError, RIDGE(lengthscale=[1.0, 1.0, 1.0]), y),
        (errors.LabelError, MACHINE(), y),
        (errors.LabelError, MACHINE(), np.zeros(120)),
        (errors.ShapeError, RIDGE(), y[:5]),
        (errors.NonFiniteError, RIDGE(), np.full(120, np.nan)),
    ],
)
def test_bad_input_has_a_named_error(error, model, t):
    with pytest.raises(error):
        model.fit(X, t)
