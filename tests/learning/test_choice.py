"""The choice of kernel and row that a user leaves open."""

import time

import numpy as np
import pytest

import inducing as ig
from inducing.errors import UnknownNameError
from inducing.learning.choice import Trial, best_of, ranked_kernels
from inducing.learning.recipes import Task


def _rows(n=150, rough=False):
    rng = np.random.default_rng(2)
    X = rng.uniform(0, 10, (n, 1))
    K = (ig.kernels.Matern12 if rough else ig.kernels.RBF)(1.5)(X, X) + 1e-8 * np.eye(n)
    return X, np.linalg.cholesky(K) @ rng.standard_normal(n) + 0.02 * rng.standard_normal(n)


@pytest.mark.parametrize(("aim", "best"), [("both", 1), ("rmse", 0), ("log_loss", 2)])
def test_error_and_log_density_judge_together(aim, best):
    trials = [Trial("a", 1.0, -3.0), Trial("b", 1.015, -1.0), Trial("c", 1.05, 0.0)]
    assert best_of(trials, aim) == best


@pytest.mark.parametrize("rough", [False, True])
def test_the_kernel_that_made_the_rows_has_the_best_evidence(rough):
    X, y = _rows(rough=rough)
    kernels = {"rbf": ig.kernels.RBF(3.0), "matern12": ig.kernels.Matern12(3.0)}
    task = Task(kernels["rbf"], ig.bases.Points(X[:5]), "fitc", 0.1, X, y, progress=False)
    ranked = ranked_kernels(task.stage(), kernels)
    assert ranked[0].name.split()[0] == ("matern12" if rough else "rbf")
    for each in ranked:  # the evidence is that of the parameters it comes with
        p = each.parameters
        assert each.value == pytest.approx(
            ig.log_evidence(p.kernel, None, "exact", p.noise, X, y, mean=p.mean)
        )


def test_few_rows_get_the_exact_gp():
    X, y = _rows(rough=True)
    model = ig.SparseGPRegressor().fit(X, y)
    assert model.approximation_ == "exact" and model.basis_size_ == len(X)
    assert any(name in str(model.kernel_) for name in ("Matern12", "RationalQuadratic"))
    assert min(trial.rmse for trial in model.choice_.trials) > 0
    left = ig.leave_one_out(
        model.kernel_,
        None,
        "exact",
        model.fit_result_.noise,
        (X - model.x_mean_) / model.x_scale_,
        (y - model.y_mean_) / model.y_scale_,
        mean=model.fit_result_.mean,
    )
    chosen = max(model.choice_.trials, key=lambda trial: trial.log_density)
    assert chosen.log_density == pytest.approx(np.mean(left.log_density), abs=1e-9)


def test_many_rows_get_the_better_of_neighbours_and_a_basis(monkeypatch):
    monkeypatch.setattr("inducing.learning.choice.EXACT_UP_TO", 100)
    X, y = _rows(600, rough=True)
    model = ig.SparseGPRegressor(max_iter=20).fit(X, y)
    errors = {trial.name: trial.rmse for trial in model.choice_.trials}
    assert set(errors) == {"fitc", "neighbours"}
    assert errors[model.approximation_] <= 1.02 * min(errors.values())


@pytest.mark.parametrize("given", [{"n_inducing": 12}, {"inducing": "random"}, {"fixed": ("noise",)}])
def test_a_parameter_of_a_sparse_basis_asks_for_one(given):
    X, y = _rows()
    model = ig.SparseGPRegressor(max_iter=3, **given).fit(X, y)
    assert model.approximation_ == "fitc" and model.choice_ is None


def test_files_size_and_time_bound_the_choice(monkeypatch):
    X, y = _rows()
    small = ig.SparseGPRegressor(max_file_size=4_000, max_iter=5).fit(X, y)
    assert small.approximation_ != "exact"
    began = time.perf_counter()
    ig.SparseGPRegressor(time_budget=0.0).fit(X, y)
    assert time.perf_counter() - began < 20


def test_an_unknown_objective_is_named():
    X, y = _rows()
    with pytest.raises(UnknownNameError, match="objective must be one of both, rmse, log_loss"):
        ig.SparseGPRegressor(objective="mae").fit(X, y)


def test_a_kernel_is_chosen_for_a_sparse_basis_too():
    X, y = _rows(rough=True)
    model = ig.SparseGPRegressor(kernel="auto", n_inducing=30, max_iter=3).fit(X, y)
    assert model.approximation_ == "fitc"
    assert any(name in str(model.kernel_) for name in ("Matern12", "RationalQuadratic"))


def test_saved_models_remember_the_choice(tmp_path):
    X, y = _rows()
    model = ig.SparseGPRegressor().fit(X, y)
    model.save(tmp_path / "m.gp")
    again = ig.load(tmp_path / "m.gp")
    assert again.approximation_ == "exact"
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
