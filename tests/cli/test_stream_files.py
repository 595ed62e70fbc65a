"""Streams that stop and go on: model files that hold all there is, and running metrics."""

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import save_file
from scipy import stats

import inducing as ig
from inducing import errors
from inducing.files import models as files
from inducing.model.likelihoods import Gaussian, Poisson
from inducing.streams.scores import RunningClassification, RunningRegression, scores_from
from online_problem import KERNEL, NOISE

rng = np.random.default_rng(5)
X = rng.uniform(-2, 2, (400, 2))
F = np.sin(2 * X[:, 0]) * X[:, 1]
Y = F + 0.1 * rng.standard_normal(400)
XS = rng.uniform(-2, 2, (40, 2))

STREAMS = {
    "gaussian": (
        {"fixed": ("kernel.variance",), "priors": {"kernel.lengthscale": ig.LogNormal(1.0, 1.0)}},
        Y,
    ),
    "kl": ({"removal_score": "kl", "kernel": KERNEL, "noise": 0.1, "mean": ig.means.Linear([0.1, 0.2])}, Y),
    "laplace": ({"likelihood": "laplace"}, Y),
    "poisson": ({"likelihood": Poisson(), "n_inducing": None, "tolerance": 1e-3}, np.floor(np.exp(F))),
    "outputs": ({}, np.column_stack([Y, X[:, 0] ** 2])),
}


@pytest.mark.filterwarnings("ignore::inducing.errors.DriftWarning")  # the model is a poor one
@pytest.mark.parametrize("at", [25, 150], ids=["warm-up", "later"])
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_goes_on_from_its_file_as_if_it_had_not_stopped(tmp_path, name, at):
    """To the last bit: the file holds all there is."""
    options, y = STREAMS[name]
    model = ig.OnlineGPRegressor(
        **({"n_inducing": 12, "max_iter": 5, "warmup": 40, "random_state": 0} | options)
    )
    frame = pd.DataFrame(X, columns=["a", "b"])
    model.partial_fit(frame[:at], y[:at])
    model.save(tmp_path / "model", {"note": "mine"})
    again = ig.load(tmp_path / "model")
    assert type(again) is ig.OnlineGPRegressor and again.metadata_ == {"note": "mine"}
    assert again.warming_up_ == model.warming_up_ == (at == 25)
    for rows in (slice(at, at + 30), slice(at + 30, at + 31), slice(at + 31, 250)):
        for a, b in zip(
            model.predict_then_fit(frame[rows], y[rows]), again.predict_then_fit(frame[rows], y[rows])
        ):
            assert_array_equal(a, b)
    queries = pd.DataFrame(XS, columns=["a", "b"])
    assert_array_equal(model.predict(queries), again.predict(queries))
    assert_array_equal(model.posterior_.A, again.posterior_.A)
    assert model.log_predictive_ == again.log_predictive_ and model.n_rows_ == again.n_rows_ == 250
    assert_array_equal(model.noise_, again.noise_)
    ours, theirs = model.get_params(), again.get_params()
    for key in ours:
        a, b = ours[key], theirs[key]
        assert (a.spec() == b.spec()) if hasattr(a, "spec") else a == b, key
    assert not {"warmup.X", "warmup.y"} & set(saved(again, tmp_path)[1])


def saved(model, folder):
    model.save(folder / "saved")
    return files.read(folder / "saved")


@pytest.mark.parametrize("classes", [2, 4])
def test_a_classifier_goes_on_from_its_file(tmp_path, classes):
    y = np.array(list("abcd"))[np.digitize(F, [0.0] if classes == 2 else [-0.5, 0.0, 0.5])]
    for at in (25, 150):
        model = ig.SparseGPClassifier(
            method="online", n_inducing=12, max_iter=5, warmup=40, random_state=0, order="given"
        )
        model.partial_fit(X[:at], y[:at], np.unique(y))
        model.save(tmp_path / "model")
        again = ig.load(tmp_path / "model")
        for rows in (slice(at, at + 30), slice(at + 30, 250)):
            assert_array_equal(
                model.predict_then_fit(X[rows], y[rows]), again.predict_then_fit(X[rows], y[rows])
            )
        assert [post.log_predictive for post in model.posteriors_] == [
            post.log_predictive for post in again.posteriors_
        ]
        assert model.log_evidence_ == again.log_evidence_ and again.n_rows_ == 250


def test_a_posterior_keeps_its_log_predictive(tmp_path):
    post = ig.update(ig.prior(KERNEL), Gaussian(NOISE), X, Y, 10)
    files.save(post, tmp_path / "post")
    again = ig.load(tmp_path / "post")
    assert again.log_predictive == post.log_predictive and again.log_evidence is None
    more = [ig.update(p, Gaussian(NOISE), X[:50], Y[:50], 10) for p in (post, again)]
    assert more[0].log_predictive == more[1].log_predictive
    assert_array_equal(more[0].alpha, more[1].alpha)


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("'warmup.X' is missing", lambda record, tensors: tensors.pop("warmup.X")),
        ("'warmup.X' of shape", lambda record, tensors: tensors.update({"warmup.X": np.zeros((25, 3))})),
        ("'warmup.y' of shape", lambda record, tensors: tensors.update({"warmup.y": np.zeros((25, 1))})),
        ("NaN", lambda record, tensors: tensors["warmup.y"].fill(np.nan)),
        ("no likelihood", lambda record, tensors: record.update(likelihood={"name": "eval"})),
        ("is not for regression", lambda record, tensors: record.update(likelihood={"name": "Probit"})),
        ("does not describe", lambda record, tensors: record.pop("n_rows")),
    ],
)
def test_forged_streams(tmp_path, words, change):
    ig.OnlineGPRegressor(optimize=None).partial_fit(X[:25], Y[:25]).save(tmp_path / "model")
    record, tensors = files.read(tmp_path / "model")
    change(record, tensors)
    text = json.dumps(record)
    head = {"format": "inducing", "format_version": "1", "model": text, "sha256": files.digest(text, tensors)}
    save_file(tensors, tmp_path / "model", head)
    with pytest.raises(errors.ModelFileError, match=words):
        ig.load(tmp_path / "model")


def test_running_metrics_are_those_of_a_plain_loop():
    y, mean = 1e6 + Y, 1e6 + F
    log_density = stats.norm.logpdf(y, mean, 0.3)
    mean = np.where(np.arange(400) < 30, np.nan, mean)
    running = RunningRegression()
    for rows in np.split(np.arange(400), [0, 1, 3, 20, 29, 90, 91, 300]):
        running.add(y[rows], mean[rows], log_density[rows])
    before = [(y[:i].mean(), y[:i].var()) for i in range(30, 400)]
    trivial = np.array([stats.norm.logpdf(y[i], m, np.sqrt(v)) for i, (m, v) in zip(range(30, 400), before)])
    squares = np.sum((y[30:] - np.array([m for m, _ in before])) ** 2)
    got = running.values()
    assert running.rows == 370 and running.targets == 400
    assert_allclose(got["SMSE"], np.sum((y - mean)[30:] ** 2) / squares, rtol=1e-8)
    assert_allclose(got["NLPD"], -np.mean(log_density[30:]), rtol=1e-10)
    assert_allclose(got["MSLL"], np.mean(trivial) - np.mean(log_density[30:]), rtol=1e-8)
    assert scores_from(asdict(running)) == running
    assert RunningRegression().values() == {}


def test_running_metrics_of_classes():
    p = np.array([[np.nan, np.nan], [0.9, 0.1], [0.4, 0.6], [0.2, 0.8]])
    running = RunningClassification()
    running.add(np.array(["b", "a", "a", "b"]), p, ["a", "b"])
    assert running.values() == {
        "error": pytest.approx(1 / 3),
        "log loss": pytest.approx(-np.mean(np.log([0.9, 0.4, 0.8]))),
    }
