"""The experiments of 004 on the USPS digits in their quick forms: pages, pictures, and what their numbers are
made of.
"""

import json
import os

import numpy as np
import pytest
from scipy.special import ndtr

from experiments import EXPERIMENTS, reproduce
from experiments.csato_digits import BLUR, SMOOTH, THRESHOLDS, Digits, digits, rejection, right_of_rejected

pytestmark = pytest.mark.skipif("INDUCING_DATA" not in os.environ, reason="needs the folder INDUCING_DATA")


def page(name, tmp_path):
    """The report, with its files checked."""
    report = reproduce(name, quick=True, folder=tmp_path)
    text = (tmp_path / name / "README.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}: {EXPERIMENTS[name].title}")
    (stem,) = report.pictures
    assert f"{stem}.png" in text and (tmp_path / name / f"{stem}.png").stat().st_size > 5000
    return report, json.loads((tmp_path / name / "values.json").read_text(encoding="utf-8"))


class Scores:
    """A process whose mean is the image's pixel of this number, with variance 4."""

    def __init__(self, pixel):
        self.pixel = pixel

    def predict(self, X):
        return X[:, self.pixel], np.full(len(X), 4.0)


def small(scores, truth, classes):
    """Digits whose test images hold the means of the classes."""
    empty = np.empty((0, scores.shape[1]))
    return Digits(empty, np.empty(0, dtype=int), scores, np.array(truth), np.array(classes), None)


def test_errors_losses_and_rejections_of_given_scores():
    means = np.array([[4.0, -2.0, -2.0], [1.0, 2.0, -4.0], [-1.0, -2.0, -3.0], [-2.0, -2.0, 6.0]])
    data, posts = small(means, [0, 0, 0, 2], [0, 1, 2]), [Scores(i) for i in range(3)]
    assert data.error(posts) == 25.0  # the second
    p = ndtr(means / 2.0)
    shares = [p[0, 0], p[1, 0], p[2, 0], p[3, 2]] / p.sum(axis=1)
    assert data.log_loss(posts) == pytest.approx(-np.mean(np.log(shares)), rel=1e-12)
    # the largest probabilities are Φ(2) = 0.977, Φ(1) = 0.841, Φ(-½) = 0.309 and Φ(3) = 0.9987
    wrong, rejected = rejection(data, posts, np.array([0.0, 0.5, 0.9, 0.99]))
    np.testing.assert_array_equal(wrong, [25.0, 25.0, 0.0, 0.0])
    np.testing.assert_array_equal(rejected, [0.0, 25.0, 50.0, 75.0])


def test_one_class_errs_on_the_wrong_side_of_zero():
    data = small(np.array([[1.0], [-1.0], [2.0], [-3.0]]), [4, 4, 7, 1], [4])
    assert data.error([Scores(0)]) == 50.0


def test_images_are_in_the_range_of_the_thesis_and_smoothing_spreads_a_point():
    raw, smooth = digits(0.5, every=40), digits(0.5, blur=BLUR, every=40)
    assert (
        raw.X.min() == -1.0
        and raw.X.max() == 1.0
        and raw.X.shape == (183, 256)
        and raw.X_test.shape == (51, 256)
    )
    weights = np.exp(-0.5 * (np.arange(16)[:, None] - np.arange(16)) ** 2 / BLUR**2)
    weights[np.abs(np.subtract.outer(np.arange(16), np.arange(16))) > 3] = (
        0.0  # four standard deviations, in whole pixels
    )
    inner = slice(3, 13)  # where the edge has no part in it
    weights /= weights[8].sum()
    images, found = raw.X.reshape(-1, 16, 16), smooth.X.reshape(-1, 16, 16)
    expected = np.einsum("ia,nab,jb->nij", weights, images, weights)
    np.testing.assert_allclose(found[:, inner, inner], expected[:, inner, inner], atol=1e-12)
    squares = np.sum((raw.X[:5, None] - raw.X[None, :7]) ** 2, axis=2)
    np.testing.assert_allclose(
        raw.kernel(raw.X[:5], raw.X[:7]), np.exp(-squares / (2 * 256 * 0.5)), rtol=1e-10
    )


def test_held_out_images_are_a_sixth_of_those_to_learn_from():
    data = digits(0.5, every=40)
    part = data.held_out()
    assert len(part.y_test) == 30 and len(part.y) == 153
    both = np.vstack([part.X, part.X_test])
    assert {row.tobytes() for row in both} == {row.tobytes() for row in data.X} and len(both) == len(data.X)
    label = {row.tobytes(): y for row, y in zip(data.X, data.y, strict=True)}
    assert [label[row.tobytes()] for row in both] == [*part.y, *part.y_test]


def test_c9_four_against_the_rest(tmp_path):
    report, values = page("C9", tmp_path)
    data = digits(0.5, (4,), every=4)
    truth = data.y_test == 4
    errors = []
    for order in range(2):  # the mean's sign at 256 vectors, after one pass
        (post,) = data.online(order, 256)
        errors.append(100 * np.mean((post.predict(data.X_test)[0] > 0) != truth))
    assert values["pixels as they are"]["mean"][1][0] == pytest.approx(np.mean(errors), rel=1e-12)
    assert np.mean(errors) < 0.3 * 100 * truth.mean()  # far below that of always saying no
    assert [
        claim.text
        for claim in report.claims
        if claim.text.startswith("256 vectors, online (pixels as they are)")
    ]


def test_c10_classifiers_share_a_basis_and_ep_is_sharper(tmp_path):
    _, values = page("C10", tmp_path)
    data = digits(0.5, blur=BLUR, every=8)
    posts = data.online(0, 100)
    assert len(posts) == 10 and all(np.array_equal(post.basis.Z, posts[0].basis.Z) for post in posts)
    assert len(posts[0]) == 100
    parts = [post.predict(data.X_test) for post in posts]
    p = np.stack([ndtr(mean / np.sqrt(variance)) for mean, variance in parts], axis=1)
    assert values["pixels smoothed, σ_k² = 0.5"]["mean"][1][0] == pytest.approx(
        100 * np.mean(p.argmax(axis=1) != data.y_test), rel=1e-12
    )
    X, Y = data.rows(0)
    wrong = [
        np.sum(np.sign(np.stack([q.predict(X)[0] for q in part], axis=1)) != Y)
        for part in (posts, data.projected(0, posts))
    ]
    assert wrong[1] < wrong[0]  # signs of training rows, over all classes


def test_c11_counts(tmp_path):
    report, values = page("C11", tmp_path)
    data = digits(0.5, blur=BLUR, every=8)
    z = data.scores(data.online(0, 100))
    wrong_and_rejected = values[f"online, {SMOOTH}"][1]
    for t in (0, 50, 90):
        accepted = [i for i in range(len(z)) if ndtr(z[i].max()) >= values["thresholds"][t]]
        wrong = sum(int(np.argmax(z[i])) != data.y_test[i] for i in accepted)
        assert wrong_and_rejected[0][t] == pytest.approx(100 * wrong / len(z), abs=1e-9)
        assert wrong_and_rejected[1][t] == pytest.approx(100 * (1 - len(accepted) / len(z)), abs=1e-9)
    assert all(claim.holds for claim in report.claims if claim.text.startswith("Misclassified"))


def test_right_among_rejected_and_what_probabilities_say() -> None:
    p, wrong = np.array([0.105, 0.305, 0.305, 0.905]), np.array([True, True, False, False])
    accepted = p >= THRESHOLDS[:, None]
    curves = 25.0 * np.sum(wrong & accepted, axis=1), 25.0 * np.sum(~accepted, axis=1)
    right, stated = right_of_rejected(*curves, 50)
    assert right == pytest.approx(1 / 3) and stated == pytest.approx((0.105 + 2 * 0.305) / 3)
