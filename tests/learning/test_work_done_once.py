"""How often a fit looks at its data and factorises: once for each evaluation, and once for the posterior."""

import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import inducing as ig
from inducing.engine import evidence
from inducing.inference import regression
from inducing.learning.recipes import RECIPES, Task, train, with_projection
from inducing.learning.stages import Stage
from inducing.model import problem, table
from inducing.numerics import arrays

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (200, 2))
Y = np.sin(X @ [1.0, 2.0]) + 0.1 * RNG.standard_normal(200)
WATCHED = {
    problem: ["make_problem"],
    regression: ["condition", "posterior_of", "gradient_of"],
    evidence: ["factorise"],
}


@pytest.fixture
def calls(monkeypatch):
    """Counts of calls by name, wherever in the package the function is called from."""
    counts = Counter()

    def counting(name, function):
        def counted(*args, **options):
            counts[name] += 1
            return function(*args, **options)

        return counted

    modules = [module for name, module in sys.modules.items() if name.startswith("inducing")]
    for home, names in WATCHED.items():
        for name in names:
            function = getattr(home, name)
            for module in modules:
                if vars(module).get(name) is function:
                    monkeypatch.setattr(module, name, counting(name, function))
    run = Stage.run
    monkeypatch.setattr(Stage, "run", lambda stage: counts.update(["stages"]) or run(stage))
    return counts


def task(**options):
    basis = ig.bases.Points(X[:12])
    start = {"max_iterations": 10, "progress": False, "rng": 0} | options
    return Task(ig.kernels.RBF([1.0, 1.0]), basis, "fitc", 0.1, X, Y, **start)


def test_a_fit_checks_once_and_makes_one_posterior(calls):
    fit = ig.fit(ig.kernels.RBF([1.0, 1.0]), ig.bases.Points(X[:12]), "fitc", 0.1, X, Y, max_iterations=7)
    assert calls["make_problem"] == calls["posterior_of"] == 1 and calls["condition"] == 0
    assert calls["gradient_of"] == fit.n_evaluations and calls["factorise"] == fit.n_evaluations + 1


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_checks_once_and_makes_one_posterior(recipe, calls):
    given = task(blocks=(X[:, 0] > 0).astype(int)) if recipe == "pitc" else task()
    train(recipe, given)
    assert calls["make_problem"] == 1 and calls["condition"] == 0
    assert calls["posterior_of"] == 1  # whatever the number of stages


def test_points_are_judged_by_the_factors_of_their_evaluation(calls):
    result = train("auto", task(validation_fraction=0.2))
    assert calls["stages"] == 6  # an exact GP, VFE, two of PEP, hyperparameters and all of FITC
    assert calls["make_problem"] == 1
    assert calls["posterior_of"] == 1 + 3  # the last, and FITC's with the parameters of VFE and PEP
    assert calls["factorise"] == result.n_evaluations + 1 + calls["posterior_of"]  # 1 for tr(K - Q)


def test_an_estimator_checks_the_standardised_data_once(calls):
    model = ig.SparseGPRegressor(n_inducing=12, max_iter=5, random_state=0).fit(X, Y)
    assert (
        calls["make_problem"] == 1 + 1 and calls["condition"] == 0
    )  # one of the rows as given, equal ones apart
    report = 2  # factorisations of the two bounds
    assert calls["factorise"] == model.fit_result_.n_evaluations + 1 + calls["posterior_of"] + report


@pytest.fixture
def looks(monkeypatch):
    """The names of arrays in which NaN and infinity were looked for, wherever in the package."""
    names, real = [], arrays.require_finite

    def looking(a, name, *most):
        names.append(name)
        real(a, name, *most)

    for module in [module for name, module in sys.modules.items() if name.startswith("inducing")]:
        if vars(module).get("require_finite") is real:
            monkeypatch.setattr(module, "require_finite", looking)
    return names


def test_a_prediction_looks_for_nan_once(looks):
    model = ig.SparseGPRegressor(approximation="fitc", n_inducing=12, optimize=None, random_state=0).fit(X, Y)
    for options in ({}, {"return_std": True}):
        looks.clear()
        model.predict(X, **options)
        assert looks == ["X"]


@pytest.mark.parametrize("row", ["exact", "vfe", "fitc", "pitc"])
def test_iterations_look_at_the_data_no_more(row, looks):
    kernel, basis = ig.kernels.RBF([1.0, 1.0]) + ig.kernels.Matern32(1.0), ig.bases.Points(X[:12])
    for iterations in (1, 6):
        looks.clear()
        ig.fit(kernel, basis, row, 0.1, X, Y, max_iterations=iterations, blocks=np.arange(200) // 20)
        assert [name for name in looks if name in ("X", "y")] == ["X", "y"]


def test_a_start_that_was_looked_for_needs_no_second_check(calls):
    start = with_projection(task(), 1)
    before = calls["make_problem"]
    RECIPES["direct"](start)
    assert calls["make_problem"] == before == 1


def test_stages_are_views_of_one_checked_problem():
    labels = (X[:, 0] > 0).astype(int)
    start = replace(task(), approximation="pitc", blocks=labels).stage()
    rows = np.arange(0, 200, 3)
    some = start.on(rows).problem
    assert some.n == 67 and some.row.name == "pitc" and len(some.basis) == 12
    np.testing.assert_array_equal(some.labels, labels[rows])
    np.testing.assert_array_equal(np.sort(np.concatenate(some.blocks)), np.arange(67))
    plain = start.under(table.VFE).problem
    assert plain.X is start.problem.X and plain.Y is start.problem.Y and plain.blocks is None
    few = start.exact_on(rows)
    assert few.problem.row.name == "exact" and len(few.problem.basis) == 67 and few.problem.blocks is None
