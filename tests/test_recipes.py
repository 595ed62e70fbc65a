"""Recipes compose `fit`: what moves, what is held, and what happens when one is stopped half-way."""

from dataclasses import replace

import numpy as np
import pytest

import inducing as ig
from inducing.recipes import RECIPES, Task, train, with_exact_hyperparameters


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
    before = ig.log_evidence(start.kernel, start.basis, "fitc", start.noise, start.X, start.y)
    result = train(recipe, start)
    after = ig.log_evidence(result.kernel, result.basis, "fitc", result.noise, start.X, start.y)
    assert result.posterior.log_evidence == pytest.approx(after, rel=1e-9)
    assert after > before


def test_auto_ends_at_the_row_asked_for():
    start = task()
    for row, power in (("fitc", None), ("fic", None), ("pep", 0.3), ("pep", None), ("vfe", None), ("dtc", None)):
        result = train("auto", replace(start, approximation=row, power=power))
        expected = ig.log_evidence(result.kernel, result.basis, row, result.noise, start.X, start.y, power=power)
        assert result.posterior.log_evidence == pytest.approx(expected, rel=1e-9)


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
