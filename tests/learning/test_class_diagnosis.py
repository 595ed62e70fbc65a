"""The report of a classifier: left-out labels, how sure they are, advice, files."""

import numpy as np
import pytest

import inducing as ig
from inducing.learning.class_diagnosis import ClassDiagnosis, diagnosis_of_classes

X = np.random.default_rng(3).normal(size=(150, 2)) * [1.0, 40.0] + [0.0, 7.0]
F = X[:, 0] + 0.4 * np.random.default_rng(4).standard_normal(150)
Y2 = np.where(F > 0.0, "yes", "no")
Y3 = np.digitize(F, [-0.6, 0.6])
QUICK = dict(n_inducing=12, max_iter=20, random_state=0)


def left_out(model, y):
    """The probability of each class by the other rows, by the core from the parameters of the fit."""
    rows = (X - model.x_mean_) / model.x_scale_
    odds = []
    for label in model.classes_ if len(model.classes_) > 2 else model.classes_[1:]:
        sign, post = np.where(y == label, 1.0, -1.0), model.posteriors_[0]
        found = ig.leave_one_out(post.kernel, post.basis, "fitc", model.likelihood_, rows, sign)
        p = model.likelihood_.probability(found.mean, found.variance)
        odds.append(p / (1.0 - p))
    odds = np.stack([np.ones(len(X)), *odds] if len(odds) == 1 else odds, axis=1)
    return odds / odds.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("y", [Y2, Y3], ids=["two", "three"])
def test_labels_left_out_are_those_of_the_core(y, tmp_path):
    model = ig.SparseGPClassifier(**QUICK).fit(X, y)
    p, report = left_out(model, y), model.report_
    own = np.searchsorted(model.classes_, y)
    assert report.log_loss == pytest.approx(-np.mean(np.log(p[np.arange(150), own])), rel=1e-3)
    assert report.error == pytest.approx(np.mean(p.argmax(axis=1) != own), abs=0.01)
    assert report.confidence == pytest.approx(p.max(axis=1).mean(), rel=1e-3)
    shares = np.bincount(own) / 150
    assert report.trivial_loss == pytest.approx(-np.sum(shares * np.log(shares)))
    assert report.rows == 150
    row, label, said, prob = report.surprises[0]
    assert label == own[row] != said == p[row].argmax() and prob == pytest.approx(p[row, label], rel=1e-2)
    model.save(tmp_path / "m")
    assert ig.load(tmp_path / "m").report_ == report


def test_left_out_labels_are_as_likely_as_new_ones():
    """Of 600 rows of the same kind, which the model has not seen, it is as sure and as often right."""
    rng = np.random.default_rng(0)
    new = rng.normal(size=(600, 2)) * [1.0, 40.0] + [0.0, 7.0]
    truth = np.where(new[:, 0] + 0.4 * rng.standard_normal(600) > 0.0, "yes", "no")
    model = ig.SparseGPClassifier(**QUICK).fit(X, Y2)
    assert model.report_.error == pytest.approx(np.mean(model.predict(new) != truth), abs=0.05)
    assert "as it should be" in model.report_.verdict and "% if all were" in model.report_.verdict


@pytest.mark.parametrize("approximation", ["auto", "neighbours"])
def test_rows_have_the_numbers_of_the_table(approximation):
    """A wrong label surprises, by its number among all rows: also those of weight 0 and repeats."""
    y, weights = Y2.copy(), np.ones(150)
    wrong = 20 + int(np.argmin(np.abs(X[20:, 0] - 1.2)))
    y[wrong], weights[:5] = "no", 0.0
    again, labels = np.vstack([X[:20], X]), np.concatenate([y[:20], y])
    model = ig.SparseGPClassifier(approximation=approximation, **QUICK)
    model.fit(again, labels, sample_weight=np.concatenate([weights[:20], weights]))
    found = {row: own for row, own, _, _ in model.report_.surprises}
    assert wrong + 20 in list(found)[:2] and f"surprising: row {wrong + 20} " in str(model.report_)
    assert all(labels[row] == model.classes_[own] for row, own in found.items())
    assert sum(model.report_.counts) == 160.0 and model.report_.rows == 145
    assert (model.report_.tried == 0) == (approximation == "neighbours")


def test_rows_in_parts_have_the_report_of_a_sample():
    held = dict(n_inducing=10, inducing=X[:10], optimize=None, random_state=0, validation_fraction=0.0)
    parts = ig.SparseGPClassifier(**held).fit(ig.as_source(X, 10.0 * Y3, chunk_rows=40)).report_
    here = ig.SparseGPClassifier(**held).fit(X, Y3).report_
    assert parts.log_loss == pytest.approx(here.log_loss, rel=1e-3) and parts.surprises == ()
    assert parts.classes == ("0", "10", "20") and here.classes == ("0", "1", "2")


def test_what_would_help_is_said():
    wiggly = np.where(np.sin(8.0 * X[:, 0]) > 0.0, 1, 0)
    few = ig.SparseGPClassifier(ig.kernels.RBF([0.2, 1e4], 10.0), n_inducing=4, optimize=None).fit(X, wiggly)
    assert few.report_.residual_to_noise > 0.1 and few.report_.suggested is None
    assert any("more than 8 basis functions would" in said for said in few.report_.advice)
    more = ig.SparseGPClassifier(ig.kernels.RBF([0.2, 1e4], 10.0), n_inducing=60, optimize=None)
    assert more.fit(X, wiggly).report_.log_loss < 0.8 * few.report_.log_loss
    nothing = ig.SparseGPClassifier(**QUICK).fit(X, np.random.default_rng(5).integers(0, 2, 150))
    assert any("next to nothing" in said for said in nothing.report_.advice)
    rare = np.where(np.arange(150) < 3, "rare", Y2)
    assert any("rare (3)" in said for said in ig.SparseGPClassifier(**QUICK).fit(X, rare).report_.advice)


def test_sentences_on_how_sure_it_is():
    signs = np.where(np.arange(400) % 2 == 0, 1.0, -1.0)[:, None]
    of = {}
    for name, right in (("as it should be", 360), ("less often", 240), ("more often", 399)):
        p = np.where(np.arange(400) < right, 0.9, 0.1)  # 90 % for the class named
        of[name] = diagnosis_of_classes(signs, [np.log(p)], None, 5)
        assert name in of[name].verdict and of[name].confidence == pytest.approx(0.9)
        assert of[name].error == pytest.approx(1.0 - right / 400)
    plain = of["less often"].to_json()
    assert ClassDiagnosis.from_json(plain) == of["less often"]


def test_no_report_of_an_earlier_fit_is_left():
    model = ig.SparseGPClassifier(**QUICK).fit(X, Y2)
    model.set_params(method="ep", optimize=None).fit(X, Y2)
    assert not hasattr(model, "report_")
