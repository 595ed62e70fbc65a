"""Recipes compose `fit`: what moves, what is held, and what happens when one is stopped half-way."""

from dataclasses import replace

import numpy as np
import pytest

import inducing as ig
from inducing.learning.recipes import RECIPES, Task, first_as_good, split, train, with_exact_hyperparameters
from inducing.learning.stages import Stage
from inducing.learning.starts import informed_start


def informed(task):
    return task.started(informed_start(task.stage()))


def task():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-3, 3, (150, 1)), axis=0)
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(150)
    basis = ig.bases.Points(np.linspace(-2, 2, 7)[:, None])
    start = Task(ig.kernels.RBF(1.0, 1.0), basis, "fitc", 0.1, X, y, max_iterations=40)
    return replace(start, progress=False, rng=0)


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_every_recipe_raises_the_evidence_of_the_row_it_ends_with(recipe):
    start = task()
    blocks = {"blocks": (start.X[:, 0] > 0).astype(int)} if recipe == "pitc" else {}
    row = "pitc" if blocks else "fitc"
    before = ig.log_evidence(start.kernel, start.basis, row, start.noise, start.X, start.y, **blocks)
    result = train(recipe, replace(start, **blocks))
    after = ig.log_evidence(result.kernel, result.basis, row, result.noise, start.X, start.y, **blocks)
    assert result.posterior.log_evidence == pytest.approx(after, rel=1e-9)
    assert after > before


def test_auto_ends_at_the_row_asked_for():
    start = task()
    for row, power in (
        ("fitc", None),
        ("fic", None),
        ("pep", 0.3),
        ("pep", None),
        ("vfe", None),
        ("dtc", None),
    ):
        result = train("auto", replace(start, approximation=row, power=power))
        expected = ig.log_evidence(
            result.kernel, result.basis, row, result.noise, start.X, start.y, power=power
        )
        assert result.posterior.log_evidence == pytest.approx(expected, rel=1e-9)


def table(n, seed):
    """A wave in one of two numbers, and a shift by three classes: a start that explains little is easily
    taken for noise.
    """
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-3, 3, (n, 2)), np.eye(3)[rng.integers(0, 3, n)]])
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + X[:, 2:] @ [0, 1, -1] + 0.1 * rng.standard_normal(n)


def scores(model, X, y, X_test, y_test):
    mean, std = model.fit(X, y).predict(X_test, return_std=True)
    return ig.metrics.smse(y_test, mean, y), ig.metrics.msll(y_test, mean, std**2, y)


def test_auto_does_not_take_a_poor_start_for_noise():
    X, y = table(150, 0)
    X_test, y_test = table(500, 1)
    given = X, y, X_test, y_test
    plain, _ = scores(
        ig.SparseGPRegressor(n_inducing=15, approximation="vfe", recipe="direct", random_state=0), *given
    )
    found, _ = scores(ig.SparseGPRegressor(n_inducing=15, random_state=0), *given)
    assert plain > 0.2 and found < 0.02  # the noise is 0.006 of the variance


def test_held_out_rows_keep_fitc_from_explaining_noise():
    def data(n, seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 4))
        return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] ** 2 + 0.2 * X[:, 2] + 0.1 * rng.standard_normal(n)

    given = (*data(150, 0), *data(1000, 1))
    _, free = scores(
        ig.SparseGPRegressor(n_inducing=15, random_state=0, recipe="direct", max_iter=400), *given
    )
    _, judged = scores(ig.SparseGPRegressor(n_inducing=15, random_state=0), *given)
    assert free > -1.7 and judged < -1.9  # of a best of about -2


def test_too_few_rows_to_judge_by_are_left_to_vfe():
    rng = np.random.default_rng(1000)
    X = rng.uniform(-2, 2, (2040, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(2040)
    given = X[:40], y[:40], X[40:], y[40:]
    _, free = scores(ig.SparseGPRegressor(n_inducing=10, validation_fraction=0.0, random_state=0), *given)
    _, guarded = scores(ig.SparseGPRegressor(n_inducing=10, random_state=0), *given)
    assert free > -1.8 and guarded < -2.2  # an exact GP has -2.3


def test_stages_end_when_they_have_settled_and_not_by_the_clock():
    for recipe_iterations in (400, 4000):
        result = train("auto", replace(task(), max_iterations=recipe_iterations))
        assert result.converged and result.n_iterations < 400
        if recipe_iterations == 400:
            first = result
    assert result.n_iterations == first.n_iterations and result.value == pytest.approx(first.value, rel=1e-9)


def test_the_rows_of_the_table_on_the_way_see_some_rows_and_the_last_one_all(monkeypatch):
    monkeypatch.setattr("inducing.learning.recipes.EARLY_ROWS", 50)
    monkeypatch.setattr("inducing.learning.recipes.EARLY_SHARE", 6)
    run, seen = Stage.run, []
    monkeypatch.setattr(
        Stage, "run", lambda stage: seen.append((stage.rows.row.name, stage.rows.n)) or run(stage)
    )
    X, y = ig.datasets.friedman1(200, rng=0)
    task = Task(ig.kernels.RBF(np.full(10, 3.0)), ig.bases.Points(X[:15]), "fitc", 1.0, X, y)
    fit = train("auto", task.set(validation_fraction=0.1, max_iterations=40))
    climbs = [each for each in seen if each[0] != "exact"]
    assert climbs == [("vfe", 90), ("pep", 90), ("pep", 90), ("fitc", 180), ("fitc", 180)]
    assert fit.posterior.log_evidence == pytest.approx(
        ig.log_evidence(fit.kernel, fit.basis, "fitc", fit.noise, X, y, mean=fit.mean), rel=1e-9
    )


def test_the_result_has_all_rows_though_some_were_held_out():
    start = replace(task(), validation_fraction=0.2)
    result = train("auto", start)
    assert result.score is not None and np.isfinite(result.score)
    again = ig.condition(result.kernel, result.basis, "fitc", result.noise, start.X, start.y)
    np.testing.assert_allclose(result.posterior.mean(start.X), again.mean(start.X), rtol=1e-8, atol=1e-10)
    assert train("auto", task()).score is None
    with pytest.raises(ig.errors.ParameterError, match=r"validation_fraction must lie in \[0, 1\), but is 1"):
        train("auto", replace(start, validation_fraction=1.0))


def test_the_score_is_the_density_of_the_rows_held_out():
    start = replace(task(), validation_fraction=0.2)
    held, rest = split(start.stage())
    assert len(held) == 30 and sorted([*held, *rest]) == list(range(150))
    result = train("auto", start)
    posterior = ig.condition(result.kernel, result.basis, "fitc", result.noise, start.X[rest], start.y[rest])
    mean, variance = posterior.predict(start.X[held])
    assert result.score == pytest.approx(
        -ig.metrics.nlpd(start.y[held], mean, variance + result.noise), rel=1e-6
    )
    assert len(split(replace(start, validation_fraction=0.01).stage())[0]) == 10  # fewer say nothing
    few = replace(start, X=start.X[:40], y=start.y[:40])
    assert split(few.stage())[0] is None  # and few rows can spare none


def test_the_prelude_replaces_what_it_may():
    start, steps = task(), []
    watched = replace(start, trace=steps.append, max_iterations=1)
    for prelude, kernel_stays, basis_stays in (
        ("none", True, True),
        ("hyperparameters", False, True),
        ("all", False, False),
    ):
        steps.clear()
        train("auto", replace(watched, prelude=prelude))
        assert (steps[0].kernel.lengthscale == start.kernel.lengthscale) == kernel_stays
        assert np.allclose(steps[0].basis.Z, start.basis.Z, rtol=1e-12) == basis_stays


def test_an_informed_start_has_the_exact_gps_kernel_and_a_noise_that_pays_for_the_basis():
    start = task()
    exact = ig.fit(start.kernel, None, "exact", start.noise, start.X, start.y, progress=False)
    found = informed(replace(start, basis=start.basis[:3]))
    assert found.kernel.lengthscale == pytest.approx(exact.kernel.lengthscale, rel=0.05)
    K, Kfu = found.kernel(start.X, start.X), found.kernel(start.X, found.basis.Z)
    left = np.mean(np.diag(K - Kfu @ np.linalg.solve(found.kernel(found.basis.Z, found.basis.Z), Kfu.T)))
    assert left > 3 * exact.noise and found.noise == pytest.approx(left, rel=1e-5)
    many = informed(replace(start, basis=ig.bases.Points(start.X[:40])))
    assert many.noise == pytest.approx(exact.noise, rel=0.05)


def test_places_that_do_not_go_with_the_kernel_found_keep_the_start_given():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (
        np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2]
    )  # no noise: the exact GP's kernel asks for more than 25 random rows
    model = ig.SparseGPRegressor(n_inducing=25, inducing="random", max_iter=100, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95


def test_known_noise_stays_as_it_is():
    start = task()
    noise = np.random.default_rng(1).uniform(0.005, 0.02, 150)
    result = train("auto", replace(start, noise=noise, validation_fraction=0.1))
    np.testing.assert_array_equal(result.noise, noise)
    assert train("auto", replace(start, fixed=("noise",))).noise == start.noise


def test_widths_follow_the_lengthscales_of_the_prelude():
    wide = ig.bases.Multiscale(np.linspace(-2, 2, 7)[:, None], np.full((7, 1), 2.0))
    start = replace(task(), basis=wide, kernel=ig.kernels.RBF(2.0), prelude="hyperparameters")
    found = informed(start)
    np.testing.assert_allclose(found.basis.widths / found.kernel.lengthscale, 1.0, rtol=1e-12)
    np.testing.assert_array_equal(found.basis.centers, wide.centers)


def test_mixed_moves_one_half_and_leaves_the_other_on_rows():
    start = task()
    result = train("mixed", start)
    on_rows = np.isin(result.basis.Z[:, 0], start.X[:, 0])
    assert np.count_nonzero(on_rows) == 4 and len(on_rows) == 7
    with pytest.raises(ig.errors.ParameterError, match="needs a basis of points"):
        train("mixed", replace(start, basis=ig.bases.Multiscale(start.basis.Z, np.full((7, 1), 2.0))))


def test_basis_recipes_hold_the_exact_gps_hyperparameters():
    start = task()
    held = with_exact_hyperparameters(start)
    exact = ig.fit(start.kernel, None, "exact", start.noise, start.X, start.y, progress=False)
    assert held.kernel.lengthscale == pytest.approx(exact.kernel.lengthscale, rel=1e-3)
    for recipe in ("spgp-basis", "vsgp-basis"):
        result = train(recipe, start)
        assert result.kernel.lengthscale == held.kernel.lengthscale and result.noise == held.noise
        assert not np.allclose(next(iter(result.basis.parameters.values())), start.basis.Z)


def test_freeing_the_widths_never_loses_evidence():
    start = task()
    points = replace(start, max_iterations=20).run()
    result = train("vsgp-full", start)
    assert isinstance(result.basis, ig.bases.Multiscale)
    assert result.value >= points.value - 1e-6 * abs(points.value)


def test_progress_counts_on_over_the_stages():
    seen = []
    result = train("auto", replace(task(), progress=lambda iteration, value: seen.append(iteration)))
    assert seen == list(range(1, result.n_iterations + 1)) and len(result.history) == result.n_iterations


def test_interrupted_path_still_gives_the_row_asked_for():
    def stop(iteration, value):
        if iteration == 5:
            raise KeyboardInterrupt

    start = replace(task(), progress=stop)
    result = train("auto", start)
    assert "interrupted" in result.message and not result.converged
    expected = ig.log_evidence(result.kernel, result.basis, "fitc", result.noise, start.X, start.y)
    assert result.posterior.log_evidence == pytest.approx(expected, rel=1e-9)


def test_ctrl_c_between_two_climbs_gives_what_the_stages_before_found(monkeypatch):
    calls, run = [], Stage.run

    def stopped(stage):
        calls.append(stage.problem.row.name)
        if calls[-1] == "pep":
            raise KeyboardInterrupt
        return run(stage)

    monkeypatch.setattr(Stage, "run", stopped)
    start = task()
    result = train("auto", start)
    assert calls == ["exact", "vfe", "pep"] and not result.converged and "interrupted" in result.message
    expected = ig.log_evidence(result.kernel, result.basis, "fitc", result.noise, start.X, start.y)
    assert result.posterior.log_evidence == pytest.approx(expected, rel=1e-9)


def test_stopped_path_resumes_at_its_stage(tmp_path):
    class Killed(Exception):
        pass

    def die(iteration, value):
        if iteration == 22:
            raise Killed

    start = replace(task(), checkpoint=tmp_path / "path")
    with pytest.raises(Killed):
        train("auto", replace(start, progress=die))
    seen = []
    resumed = train("auto", replace(start, progress=lambda i, v: seen.append(v)))
    whole = train("auto", task())
    assert len(seen) < whole.n_iterations
    assert resumed.value >= whole.value - 0.05 * abs(whole.value)


def test_unknown_recipe():
    with pytest.raises(ig.errors.UnknownNameError, match="no recipe 'magic'"):
        train("magic", task())
    with pytest.raises(ig.errors.UnknownNameError, match="no recipe"):
        ig.SparseGPRegressor(recipe="magic").fit(np.arange(9.0)[:, None], np.arange(9.0))


def test_the_first_stage_within_one_standard_error_of_the_best_is_taken():
    """Gains of 0.9 and 1.1 standard errors of the mean gain: the first is as good, the second is not."""
    noise = np.array([1.0, -1.0] * 8)  # of mean 0 and deviation 1: a standard error of 1/4
    best = np.zeros(16)
    for gain, wanted in ((0.9, 0), (1.1, 1)):
        densities = np.stack([best - gain / 4.0 + noise, best, best - 5.0])
        assert first_as_good(densities) == wanted
    assert (
        first_as_good(np.stack([best - 1.0, best - 0.2 + noise, best])) == 1
    )  # the first of those, in order
    assert first_as_good(best[None]) == 0
