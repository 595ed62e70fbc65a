"""Pictures show the mean, two standard deviations, the data and the basis, in the units the model predicts
in.
"""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import inducing as ig
from inducing.errors import ShapeError
from inducing.pictures import plots, portraits

NOISE = 0.05
X, Y = ig.datasets.toy1d(80, noise=NOISE, rng=0)
CENTERS = np.linspace(0.2, 5.8, 9)[:, None]
KERNEL = ig.kernels.RBF(0.4, 1.0)


def posterior(basis):
    return ig.condition(KERNEL, basis, "vfe", NOISE, X, Y)


def line(ax, label):
    return next(artist for artist in ax.lines if artist.get_label() == label)


def test_the_mean_the_band_and_the_data_are_drawn():
    post = posterior(ig.bases.Points(CENTERS))
    ax = plots.plot_predictions_1d(post, X, Y, noise=NOISE, grid=np.linspace(-1, 7, 50))
    grid, mean = line(ax, "mean").get_data()
    expected, variance = post.predict(grid[:, None])
    np.testing.assert_allclose(mean, expected)
    band = ax.collections[0].get_paths()[0].vertices
    std = np.sqrt(variance + NOISE)
    assert band[:, 1].min() == pytest.approx((expected - 2 * std).min())
    assert band[:, 1].max() == pytest.approx((expected + 2 * std).max())
    np.testing.assert_array_equal(line(ax, "data").get_xdata(), X[:, 0])
    np.testing.assert_array_equal(line(ax, "inducing inputs").get_xdata(), CENTERS[:, 0])


def test_widths_are_drawn_as_bars():
    ax = plots.plot_predictions_1d(posterior(ig.bases.Multiscale(CENTERS, np.full((9, 1), 0.5))))
    bars = [path.get_segments() for path in ax.collections if hasattr(path, "get_segments")]
    widths = [segment[1, 0] - segment[0, 0] for segment in bars[0]]
    np.testing.assert_allclose(widths, 1.0)


def test_an_estimator_is_drawn_in_the_units_of_the_user():
    model = ig.SparseGPRegressor(n_inducing=10, max_iter=20, random_state=0).fit(100 * X + 1000, Y)
    ax = plots.plot_predictions_1d(model, 100 * X + 1000, Y)
    grid, mean = line(ax, "mean").get_data()
    assert grid[0] < 1000 and grid[-1] > 1590
    np.testing.assert_allclose(mean, model.predict(grid[:, None]))
    inducing_inputs = line(ax, "inducing inputs").get_xdata()
    assert len(inducing_inputs) == model.basis_size_ and np.median(inducing_inputs) == pytest.approx(
        1300, abs=150
    )


def test_pictures_are_saved_whole(tmp_path):
    ax = plots.plot_predictions_1d(posterior(ig.bases.Points(CENTERS)))
    assert plots.save(ax, tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="not supported"):
        plots.save(ax, tmp_path / "p.docx")
    assert [file.name for file in tmp_path.iterdir()] == ["p.png"]


def test_more_inputs_than_one_are_refused():
    post = ig.condition(KERNEL, ig.bases.Points(np.zeros((1, 2))), "dtc", NOISE, np.zeros((3, 2)), np.ones(3))
    with pytest.raises(ShapeError, match="one input; this one has 2"):
        plots.plot_predictions_1d(post)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'inducing\[plot\]'"):
        plots.figure()


def test_a_portrait_shows_what_the_model_says():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-2, 2, (80, 2)), np.full(80, 3.0)])
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(80)
    model = ig.SparseGPRegressor(n_inducing=8, max_iter=20, random_state=0).fit(X, y)
    names = ["a", "b", "flat"]
    slices = portraits.portrait(model, "slices", names, "y").axes
    assert [ax.get_xlabel() for ax in slices if ax.get_visible()][
        0
    ] == "a"  # the most relevant, the constant never
    assert "flat" not in [ax.get_xlabel() for ax in slices]
    line = slices[0].lines[0]
    at = np.tile(np.median(places(model), axis=0), (200, 1))
    at[:, 0] = line.get_xdata()
    np.testing.assert_allclose(line.get_ydata(), model.predict(at))
    shares = portraits.portrait(model, "calibration", names, "y", X, y).axes[0].lines[1]
    low, high = model.predict_quantiles(X, [0.25, 0.75]).T
    inside = np.mean((y >= low) & (y <= high))
    assert np.interp(0.5, shares.get_xdata(), shares.get_ydata()) == pytest.approx(inside)
    labels = np.where(y > 0, "up", "down")
    classes = ig.SparseGPClassifier(n_inducing=8, max_iter=5, random_state=0).fit(X, labels)
    assert len(portraits.portrait(classes, "calibration", names, "y", X, labels).axes[0].lines) == 3
    assert "probability of y = up" in portraits.portrait(classes, "map", names, "y").axes[1].get_ylabel()
    with pytest.raises(ig.errors.ParameterError, match="no residuals"):
        portraits.portrait(classes, "residuals", names, "y", X, labels)


def places(model):
    return plots.places(model.posterior_.basis)[0] * model.x_scale_ + model.x_mean_


def test_a_portrait_takes_a_data_frame_and_draws_each_of_several_classes():
    rng = np.random.default_rng(7)
    table = pd.DataFrame({"a": rng.uniform(-2, 2, 90), "b": rng.uniform(-2, 2, 90), "c": list("xyz") * 30})
    model = ig.SparseGPRegressor(n_inducing=8, max_iter=2, random_state=0).fit(table, table["a"] ** 2)
    bars = plots.portrait(model, "relevance").axes[0].get_yticklabels()
    assert {label.get_text().split(" (")[0] for label in bars} <= {"a", "b", "c=x", "c=y", "c=z"}
    assert len(plots.portrait(model, "residuals", X=table, y=table["a"].to_numpy() ** 2).axes) == 2
    X, labels = table[["a", "b"]].to_numpy(), np.digitize(table["a"], [-0.5, 0.5])
    classes = ig.SparseGPClassifier(n_inducing=8, max_iter=2, random_state=0).fit(X, labels)
    picture = plots.portrait(classes, "map", X=X, target="level")
    panels = picture.axes[:3]
    assert [ax.get_ylabel() for ax in picture.axes[3:]] == [f"probability of level = {c}" for c in range(3)]
    np.testing.assert_array_equal(panels[0].lines[0].get_xdata(), X[:, 0])  # the rows are dots


def test_a_stream_is_drawn_as_errors_within_bands_and_alarms():
    y, mean, std = np.array([1.0, 2.0, 5.0, 1.0]), np.array([1.1, 1.8, 2.0, 1.0]), np.full(4, 0.5)
    ax = plots.plot_stream(y, mean, std, alarms=[11, 12, 99], first=10)
    inside, outside, *alarms = ax.lines
    np.testing.assert_allclose(inside.get_ydata(), [-0.1, 0.2, 0.0])
    np.testing.assert_array_equal(outside.get_xdata(), [12])
    assert [line.get_xdata()[0] for line in alarms] == [11, 12]  # the third is beyond what is drawn
    np.testing.assert_allclose(ax.collections[0].get_paths()[0].vertices[:, 1].max(), 1.0)


def test_colours_are_told_apart_without_red_or_green():
    """By their lightness, or by blue against yellow, which those who see no red or green keep."""
    rgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in plots.COLOURS[:6]])
    light = rgb @ [0.2126, 0.7152, 0.0722]
    blue = rgb[:, 2] - rgb[:, :2].mean(axis=1)
    for i in range(len(rgb)):
        for j in range(i):
            assert abs(light[i] - light[j]) > 0.06 or abs(blue[i] - blue[j]) > 0.15, (i, j)


def test_reasons_are_the_shapley_values():
    rows, target = ig.datasets.friedman1(60, rng=0)
    model = ig.SparseGPRegressor("rbf", n_inducing=8, max_iter=3, random_state=0).fit(rows[:, :3], target)
    found = model.shapley(rows[:, :3])
    bars, dots = plots.reasons(found, ["a", "b", "c"], "price").axes
    order = np.argsort(-np.mean(np.abs(found.values), axis=0))
    widths = [bar.get_width() for bar in bars.patches]
    np.testing.assert_allclose(widths, np.mean(np.abs(found.values), axis=0)[order])
    assert [label.get_text() for label in bars.get_yticklabels()] == [["a", "b", "c"][j] for j in order]
    for place, (swarm, j) in enumerate(zip(dots.collections, order, strict=True)):
        np.testing.assert_allclose(swarm.get_offsets()[:, 0], found.values[:, j])
        assert np.all(np.abs(swarm.get_offsets()[:, 1] - place) <= 0.5)
    assert len(plots.portrait(model, "reasons").axes) == 2
    with pytest.raises(ig.errors.ParameterError, match="one target"):
        plots.reasons(replace(found, values=found.values[..., None]))


def test_dates_are_dates_on_the_axes():
    days = pd.date_range("2001-03-01", periods=40, freq="30D")
    table = pd.DataFrame({"when": days, "x": np.linspace(0, 1, 40)})
    y = np.arange(40.0) + 3 * table["x"]
    model = ig.SparseGPRegressor("rbf", "exact", max_iter=5).fit(table, y)
    slices = {ax.get_xlabel(): ax for ax in portraits.portrait(model, "slices").axes}
    assert list(slices["when"].lines[0].get_xdata()[[0, -1]]) == list(days.to_numpy()[[0, -1]])
    assert slices["x"].lines[0].get_xdata().dtype == float
    drawn = portraits.portrait(model, "map").axes[0]
    axis = drawn.xaxis if drawn.get_xlabel() == "when" else drawn.yaxis
    low, high = axis.get_view_interval()  # days since 1970
    assert (low, high) == pytest.approx((11382, 12552))  # 2001-03-01, 2004-05-14
    labels = [text.get_text() for text in portraits.portrait(model, "relevance").axes[0].get_yticklabels()]
    assert any(text.startswith("when (") and text.endswith("years)") for text in labels)
