"""Calibration, surprising rows, partial dependence, relevance, and what notebooks show."""

import pickle

import numpy as np
import pytest
from scipy.special import ndtr

import inducing as ig


def _table(n=80):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (n, 2)) * [1, 100] + 5
    return X, 200 + 30 * np.sin(X[:, 0]) + 0.02 * X[:, 1] + 2 * rng.standard_normal(n)


def _model(**options):
    return ig.SparseGPRegressor(n_inducing=15, max_iter=20, random_state=0, approximation="vfe", **options)


def test_calibration_is_what_was_promised_and_what_was_held():
    X, y = _table()
    model = _model().fit(X, y)
    found, left = model.calibration(), model.loo_
    np.testing.assert_allclose(found.pit, ndtr((y - left.mean) / left.std), atol=1e-12)
    inside = np.abs((y - left.mean) / left.std)
    assert found.observed[9] == pytest.approx(np.mean(inside <= 0.6744897501960817))  # of level one half
    assert found.levels[9] == pytest.approx(0.5) and 0.0 <= found.error < 0.3
    grid = np.linspace(0, 1, 20001)
    apart = np.abs(np.searchsorted(np.sort(found.pit), grid, side="right") / len(y) - grid)
    assert found.distance == pytest.approx(apart.max(), abs=1e-4)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(model.calibration(X, y).pit, ndtr((y - mean) / std), atol=1e-12)


def test_calibration_under_another_likelihood_is_by_its_distribution():
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (120, 1))
    y = rng.poisson(np.exp(1.5 + X[:, 0])).astype(float)
    model = ig.SparseGPRegressor(n_inducing=10, max_iter=5, random_state=0, likelihood="poisson").fit(X, y)
    pit = model.calibration(X, y).pit
    assert abs(pit.mean() - 0.5) < 0.08 and 0.2 < pit.std() < 0.36  # 1/√12 = .289
    with pytest.raises(ig.errors.ParameterError, match="pass X and y"):
        model.calibration()


def test_classes_are_calibrated_by_shares():
    X, y = _table()
    model = ig.SparseGPClassifier(n_inducing=10, max_iter=5, random_state=0).fit(X, y > 200)
    found, p = model.calibration(X, y > 200), model.predict_proba(X)[:, 1]
    bins = np.array_split(np.argsort(p, kind="stable"), 8)
    np.testing.assert_allclose(found.levels[1], [p[b].mean() for b in bins])
    np.testing.assert_allclose(found.observed[1], [np.mean(y[b] > 200) for b in bins])
    with pytest.raises(ig.errors.ParameterError, match="no PIT"):
        _ = found.distance
    with pytest.raises(ig.errors.ParameterError, match="pass X and y"):
        model.calibration()


def test_the_report_lists_surprising_rows(tmp_path):
    X, y = _table()
    y[33] += 60
    model = _model().fit(
        X, y, sample_weight=np.where(np.arange(80) == 5, 0.0, 1.0)
    )  # row numbers are the user's
    row, seen, mean, std = model.report_.surprises[0]
    assert row == 33 and seen == pytest.approx(y[33]) and seen - mean > 4 * std
    assert "surprising: row 33" in str(model.report_) and "row 33" in model.report_._repr_html_()
    model.save(tmp_path / "m.gp")
    assert ig.load(tmp_path / "m.gp").report_ == model.report_
    assert model.surprises(X[:3], y[:3])[0][0] in (0, 1, 2)


def test_partial_dependence_is_the_average_with_its_own_error():
    X, y = _table()
    model = _model().fit(X, y)
    found = model.partial_dependence(0, X, values=[6.0, 9.0])
    for k, value in enumerate((6.0, 9.0)):
        rows = X.copy()
        rows[:, 0] = value
        mean, covariance = model.predict(rows, return_cov=True, latent=True)
        assert found.mean[k] == pytest.approx(mean.mean())
        assert found.std[k] == pytest.approx(np.sqrt(covariance.mean()), rel=1e-6)
    whole = model.partial_dependence(0)
    assert len(whole.values) == 41 and np.all(np.diff(whole.values) > 0)
    wave = 200 + 30 * np.sin(whole.values) + 0.02 * X[:, 1].mean()
    assert np.mean(np.abs(whole.mean - wave) < 3 * whole.std + 1.0) > 0.9
    with pytest.raises(ig.errors.ParameterError, match="0 to 1"):
        model.partial_dependence(7)


def test_partial_dependence_on_a_category_and_of_classes():
    pandas = pytest.importorskip("pandas")
    X, y = _table()
    colour = np.array(["red", "green", "blue"])[np.arange(80) % 3]
    frame = pandas.DataFrame({"x": X[:, 0], "colour": colour})
    model = _model().fit(frame, y + 50 * (colour == "red"))
    found = model.partial_dependence("colour")
    assert list(found.values) == ["blue", "green", "red"]
    assert found.mean[2] - found.mean[0] == pytest.approx(50, abs=10)
    with pytest.raises(ig.errors.ParameterError, match="no column 'z'"):
        model.partial_dependence("z")
    classes = ig.SparseGPClassifier(n_inducing=10, max_iter=5, random_state=0).fit(X, y > 200)
    of_classes = classes.partial_dependence(0, values=[6.3, 14.0])
    np.testing.assert_allclose(of_classes.mean.sum(axis=1), 1.0, rtol=1e-9)
    there = classes.predict_proba(np.column_stack([np.full(80, 6.3), X[:, 1]])).mean(axis=0)
    found = classes.partial_dependence(0, X, values=[6.3])
    np.testing.assert_allclose(found.mean[0], there, rtol=1e-9)
    assert of_classes.mean[1, 1] > of_classes.mean[0, 1] and np.all(of_classes.std > 0)


def test_relevance_is_in_the_users_units():
    X, y = _table()
    model, wider = _model().fit(X, y), _model().fit(X * [10, 1], y)
    np.testing.assert_allclose(wider.relevance_, model.relevance_ / [10, 1], rtol=1e-2)
    np.testing.assert_allclose(1 / model.relevance_, model.kernel_.lengthscale)


def test_notebooks_show_models_and_pictures():
    pytest.importorskip("matplotlib")
    X, y = _table()
    model = _model()
    assert "What was learned" not in model._repr_html_()
    model.fit(X[:, :1], y)
    shown = model._repr_mimebundle_()["text/html"]
    assert "What was learned" in shown and "noise, standard deviation" in shown and "VFE" in shown.upper()
    axes = ig.plots.plot_predictions_1d(model)
    assert axes._repr_png_()[:8] == axes.figure._repr_png_()[:8] == b"\x89PNG\r\n\x1a\n"
    pickle.loads(pickle.dumps(axes.figure))


@pytest.mark.parametrize("kind", ["dependence", "calibration", "relevance"])
def test_pictures(kind):
    pytest.importorskip("matplotlib")
    from inducing.pictures.portraits import portrait

    X, y = _table()
    picture = portrait(_model().fit(X, y), kind, ["a", "b"], "y", X, y)
    assert len(picture.axes) == {"dependence": 2, "calibration": 2, "relevance": 1}[kind]


def test_left_out_rows_of_noise_that_was_learned_after_f():
    rng = np.random.default_rng(2)
    X = rng.uniform(-2, 2, (150, 1))
    y = np.sin(2 * X[:, 0]) + np.exp(X[:, 0] - 1) * rng.standard_normal(150)
    model = ig.SparseGPRegressor(random_state=0).fit(X, y)
    assert model.noise_posterior_ is not None  # what "auto" finds here
    left = model.loo_
    density = -0.5 * (np.log(2 * np.pi * left.variance) + left.error**2 / left.variance)
    np.testing.assert_allclose(left.log_density, density, rtol=1e-8)
    ends = left.std[np.argmin(X[:, 0])], left.std[np.argmax(X[:, 0])]
    assert ends[1] > 3 * ends[0] and 0.8 < np.std(left.error / left.std) < 1.2
