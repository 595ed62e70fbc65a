"""Recorded steps are those of the fit; films show them, as GIF and as HTML; `inducing watch` writes them."""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

import inducing as ig
from inducing.beside.multiscale_machines import Risk, learn, ridge
from inducing.cli import app
from inducing.errors import ShapeError, UnknownNameError
from inducing.learning import recipes
from inducing.model.bases import Multiscale, Points
from inducing.pictures import animation

X, Y = ig.datasets.toy1d(60, rng=0)


def task(**options):
    return animation.task_for(X, Y, **{"n_inducing": 4, "max_iterations": 8, **options})


def watch(*arguments, code=0):
    result = CliRunner().invoke(app, ["watch", *(str(a) for a in arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_steps_go_from_the_start_to_the_end_of_the_fit():
    steps, start = [], task()
    end = ig.fit(
        start.kernel,
        start.basis,
        "fitc",
        start.noise,
        X,
        Y,
        mean=start.mean,
        max_iterations=8,
        trace=steps.append,
    )
    assert [step.iteration for step in steps] == list(range(end.n_iterations + 1))
    value = ig.log_evidence(start.kernel, start.basis, "fitc", start.noise, X, Y, mean=start.mean)
    assert steps[0].value == pytest.approx(value, rel=1e-12)
    np.testing.assert_array_equal(steps[0].basis.Z, start.basis.Z)
    np.testing.assert_array_equal(steps[-1].basis.Z, end.basis.Z)
    assert steps[-1].value == end.value and steps[-1].noise == end.noise
    assert np.all(np.diff([step.value for step in steps]) >= 0)


def test_every_start_is_traced():
    steps, start = [], task()
    replace(start, restarts=2, max_iterations=2, trace=steps.append).run()
    assert sum(step.iteration == 0 for step in steps) == 3


def test_the_exact_stage_of_a_recipe_is_not_part_of_the_film():
    recording = animation.record(task(), recipes.vsgp_basis)
    assert {len(step.basis) for step in recording.steps} == {4}
    kinds = [type(step.basis) for step in recording.steps]
    assert (
        kinds[0] is Points
        and kinds[-1] is Multiscale
        and kinds == sorted(kinds, key=lambda kind: kind is Multiscale)
    )
    lengthscales = {float(np.ravel(step.kernel.lengthscale)[0]) for step in recording.steps}
    assert len(lengthscales) == 1


def test_a_recorded_posterior_is_under_the_row_of_the_task():
    recording = animation.record(task(), recipes.auto)  # climbs VFE first
    step = recording.steps[0]
    expected = ig.log_evidence(step.kernel, step.basis, "fitc", step.noise, X, Y, mean=step.mean)
    assert recording.posterior(0).log_evidence == pytest.approx(expected, rel=1e-12)


def test_chosen_steps_are_denser_at_the_start():
    recording = animation.Recording(task(), (None,) * 101)
    np.testing.assert_array_equal(recording.chosen(11), [0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100])
    np.testing.assert_array_equal(animation.Recording(task(), (None,) * 3).chosen(50), [0, 2])


def test_learning_a_machine_is_traced():
    risk = Risk(ig.kernels.RBF(0.5), ridge(0.1), X, Y[:, None], np.ones(len(X)), 1e-8)
    seen = []
    best, iterations = learn(risk, Points(X[:3]), 5, lambda basis, value: seen.append((basis, value)))
    assert len(seen) == iterations and np.array_equal(seen[-1][0].Z, best.Z)
    assert seen[-1][1] == pytest.approx(risk.minimum(best)[0].value)


@pytest.mark.parametrize(("start", "low", "high"), [("left", 0.0, 0.6), ("random", 0.0, 6.0)])
def test_where_the_basis_starts(start, low, high):
    Z = task(start=start, n_inducing=20).basis.Z
    assert Z.shape == (20, 1) and Z.min() >= low and Z.max() <= high
    assert start == "left" or Z.max() > 3.0


def test_bad_names_and_inputs_are_refused():
    with pytest.raises(UnknownNameError, match="start must be one of left, random, kmeans"):
        task(start="right")
    with pytest.raises(UnknownNameError, match="points, multiscale, not 'splines'"):
        task(basis="splines")
    with pytest.raises(ShapeError, match=r"y has shape \(60, 2\)"):
        animation.task_for(X, np.column_stack([Y, Y]))
    wide = animation.task_for(np.column_stack([X, X**2, X**3]), Y, n_inducing=3, max_iterations=1)
    with pytest.raises(ShapeError, match="one or two inputs, but X has 3"):
        animation.animate(animation.record(wide))


def test_a_film_of_one_input_shows_data_predictions_and_ways():
    recording = animation.record(task())
    film = animation.animate(recording, frames=5, names=("hour",), target="load")
    film.draw(film.frames - 1)
    curve, main, below = film.canvas.axes
    assert (main.get_ylabel(), below.get_xlabel()) == ("load", "hour")
    crosses = next(line for line in main.lines if line.get_label() == "inducing inputs")
    np.testing.assert_allclose(np.sort(crosses.get_xdata()), np.sort(recording.steps[-1].basis.Z[:, 0]))
    ways = np.array([line.get_xdata() for line in below.lines[:4]]).T  # (steps, m)
    np.testing.assert_allclose(ways, [step.basis.Z[:, 0] for step in recording.steps])
    assert curve.lines[0].get_ydata()[-1] == pytest.approx(recording.steps[-1].value)
    assert f"log evidence {recording.steps[-1].value:.2f}" in film.canvas.get_suptitle()


def test_a_film_of_widths_shows_them_over_the_lengthscale():
    recording = animation.record(task(basis="multiscale"))
    film = animation.animate(recording, frames=3)
    film.draw(film.frames - 1)
    below, last = film.canvas.axes[2], recording.steps[-1]
    curve = film.canvas.axes[0]  # of a few frames all of it
    low, high = curve.get_ylim()
    assert len(curve.lines[0].get_ydata()) == 3 and np.all(curve.lines[0].get_ydata() >= low) and high > low
    assert below.lines[0].get_ydata()[0] == pytest.approx(float(np.ravel(last.kernel.lengthscale)[0]))
    circles = below.lines[-1]
    np.testing.assert_allclose(circles.get_xdata(), last.basis.centers[:, 0])
    np.testing.assert_allclose(circles.get_ydata(), last.basis.widths[:, 0])


def test_a_gif_holds_every_frame(tmp_path):
    film = animation.animate(animation.record(task()), frames=4)
    with Image.open(film.save(tmp_path / "film.gif", fps=10, dpi=30)) as image:
        assert image.format == "GIF" and image.n_frames == film.frames and image.info["duration"] == 600
        image.seek(film.frames - 1)
        assert image.info["duration"] == 2500
    with pytest.raises(UnknownNameError, match=r"must end in one of \.gif \.html"):
        film.save(tmp_path / "film.mp4")
    assert [file.name for file in tmp_path.iterdir()] == ["film.gif"]


def test_watch_animates_the_toy(tmp_path):
    out = tmp_path / "toy.gif"
    result = watch(
        "-o",
        out,
        "--frames",
        2,
        "--max-iter",
        3,
        "-m",
        3,
        "--start",
        "left",
        "--approximation",
        "dtc",
        "--hold",
    )
    assert out.read_bytes().startswith(b"GIF8")
    assert "iterations" in result.output and str(out) in result.output.replace("\n", "")


def test_watch_animates_a_table_with_two_inputs(tmp_path):
    rng = np.random.default_rng(0)
    inputs = rng.uniform(size=(40, 3))
    table = pd.DataFrame(inputs, columns=["east", "north", "id"]).assign(
        height=np.sin(5 * inputs[:, 0]) + inputs[:, 1]
    )
    table.to_csv(tmp_path / "hill.csv", index=False)
    options = ("-t", "height", "-m", 3, "--max-iter", 4, "--frames", 3, "--basis", "multiscale")
    watch(tmp_path / "hill.csv", *options, "-o", tmp_path / "hill.html", "--exclude", "id")
    page = (tmp_path / "hill.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64") == 3
    assert (
        "X has 3 columns" in watch(tmp_path / "hill.csv", *options, "-o", tmp_path / "no.gif", code=1).stderr
    )


def test_watch_says_what_is_missing(tmp_path, monkeypatch):
    table = tmp_path / "t.csv"
    table.write_text("x,y\n1,2\n2,3\n", encoding="utf-8")
    assert "needs --target" in watch(table, "-o", tmp_path / "w.gif", code=2).stderr
    assert ".html" in watch("-o", tmp_path / "w.mp4", code=2).stderr
    assert "no recipe 'magic'" in watch("-o", tmp_path / "w.gif", "--recipe", "magic", code=1).stderr
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install 'inducing[plot]'" in watch("-o", tmp_path / "w.gif", code=1).stderr
