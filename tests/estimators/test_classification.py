"""The classifier: scikit-learn's contract in full, probabilities, many classes on one basis, rejection,
streams, files.
"""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import inducing as ig
from inducing import errors
from inducing.learning import classes
from inducing.model.likelihoods import Probit


def without_weights(estimator):
    """Checks of weights that fail, and why; the thesis' ways refuse weights by name."""
    if estimator.method is None:
        return {}
    checks = (
        "check_sample_weights_pandas_series",
        "check_sample_weights_not_an_array",
        "check_sample_weights_list",
        "check_all_zero_sample_weights_error",
        "check_sample_weights_shape",
        "check_sample_weights_not_overwritten",
        "check_sample_weight_equivalence_on_dense_data",
        "check_classifiers_one_label_sample_weights",
        "check_class_weight_classifiers",
    )
    return dict.fromkeys(checks, "weights are for method=None")


@parametrize_with_checks(
    [
        ig.SparseGPClassifier(n_inducing=10, max_iter=3),
        ig.SparseGPClassifier(method="ep", n_inducing=20, max_iter=5),
        ig.SparseGPClassifier(method="online", optimize=None),
        ig.SparseGPClassifier(method="fitc", n_inducing=10, optimize="all", max_iter=5),
    ],
    expected_failed_checks=without_weights,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def moons(n, seed):
    """Two classes with a curved border, in awkward units, and the probability of the second."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    f = 4.0 * (X[:, 1] - np.sin(2 * X[:, 0]))
    p = 1.0 / (1.0 + np.exp(-f))
    return X * [1000.0, 0.01] + [5000.0, 0.0], np.where(rng.random(n) < p, "yes", "no"), p


X, y, _ = moons(300, 0)
XS, YS, PS = moons(1000, 1)
X3, y3 = make_blobs(240, centers=4, cluster_std=1.2, random_state=3)
X3S, y3S = X3[160:], y3[160:]
X3, y3 = X3[:160], y3[:160]


def quick(**parameters):
    return ig.SparseGPClassifier(
        **({"method": "ep", "n_inducing": 25, "max_iter": 15, "random_state": 0} | parameters)
    )


@pytest.mark.parametrize(
    "options", [{}, {"method": "fitc", "optimize": "all"}, {"method": "online"}, {"ard": True}]
)
def test_every_method_learns_and_is_calibrated(options):
    model = quick(**options).fit(X, y)
    p = model.predict_proba(XS)
    assert model.score(XS, YS) > 0.83 and model.basis_size_ <= 25  # the best possible is 0.87
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert list(model.classes_) == ["no", "yes"] and len(model.posteriors_) == 1
    assert np.mean(np.abs(p[:, 1] - PS)) < 0.1
    assert model.log_evidence_ < 0


def test_without_standardising_it_is_the_core():
    Xu = (X - X.mean(axis=0)) / X.std(axis=0)
    kernel, Z = ig.kernels.RBF([1.0, 0.7], 3.0), Xu[:20]
    signs = np.where(y == "yes", 1.0, -1.0)
    model = ig.SparseGPClassifier(
        kernel, "fitc", inducing=Z, optimize=None, standardize=False, likelihood=Probit(0.5)
    )
    model.fit(Xu, y)
    post = ig.expectation_propagation(kernel, Probit(0.5), Xu, signs, basis=ig.bases.Points(Z))
    Q = (XS - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(
        model.predict_proba(Q)[:, 1], Probit(0.5).probability(*post.predict(Q)), atol=1e-5
    )
    assert model.log_evidence_ == pytest.approx(post.log_evidence, abs=1e-5)
    in_units = ig.kernels.RBF(kernel.lengthscale * X.std(axis=0), 3.0)
    scaled = ig.SparseGPClassifier(
        in_units, "fitc", inducing=X[:20], optimize=None, likelihood=Probit(0.5)
    ).fit(X, y)
    np.testing.assert_allclose(scaled.predict_proba(XS), model.predict_proba(Q), atol=1e-5)
    np.testing.assert_allclose(scaled.x_mean_, X.mean(axis=0))


@pytest.mark.parametrize("method", ["ep", "fitc", "online"])
def test_many_classes_share_one_basis(method):
    model = quick(method=method).fit(X3, y3)
    assert len(model.posteriors_) == 4 and len({id(post.basis) for post in model.posteriors_}) == 1
    assert model.basis_size_ <= 25
    p = model.predict_proba(X3S)
    assert p.shape == (80, 4) and model.score(X3S, y3S) > 0.9
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    apart = [
        model.likelihood_.probability(*post.predict((X3S - model.x_mean_) / model.x_scale_))
        for post in model.posteriors_
    ]
    odds = np.transpose(apart) / (1.0 - np.transpose(apart))  # exactly one of the classes is positive
    np.testing.assert_allclose(p, odds / np.sum(odds, axis=1, keepdims=True), rtol=1e-6)


def test_the_function_that_goes_is_the_one_whose_largest_score_is_least():
    """Minimax deletion [004 eq. 5.10], where the last function to go is decided by hand."""
    kernel, likelihood, Xu = ig.kernels.RBF(1.0), Probit(), (X3 - X3.mean(axis=0)) / X3.std(axis=0)
    Y = np.where(y3[:, None] == np.arange(4), 1.0, -1.0)
    rows = [0]
    for i in range(1, len(Xu)):  # rows far from each other, so that each joins
        if np.min(np.sum((Xu[rows] - Xu[i]) ** 2, axis=1)) > 0.2:
            rows.append(i)
    m = len(rows) - 1
    full = ig.expectation_propagation(kernel, likelihood, Xu[rows], Y[rows], None, sweeps=1)
    scores = np.max([post.removal_scores() for post in full], axis=0)
    pruned = ig.expectation_propagation(kernel, likelihood, Xu[rows], Y[rows], m, sweeps=1)
    np.testing.assert_array_equal(pruned[0].basis.Z, np.delete(Xu[rows], np.argmin(scores), axis=0))


def test_rejection():
    model = quick().fit(X, y)
    p = model.predict_proba(XS).max(axis=1)
    labels = model.predict(XS, reject_below=0.8)
    assert labels.dtype == object
    np.testing.assert_array_equal([label is None for label in labels], p < 0.8)
    np.testing.assert_array_equal(labels[p >= 0.8], model.predict(XS)[p >= 0.8])
    kept = p >= 0.8
    assert np.mean(labels[kept] != YS[kept]) < 0.5 * np.mean(model.predict(XS) != YS)
    assert set(model.predict(XS, reject_below=0.9, reject_label="?")) == {"no", "yes", "?"}
    with pytest.raises(errors.ParameterError, match="must lie in"):
        model.predict(XS, reject_below=80)


# Streams.


def test_partial_fit_reads_a_stream():
    kernel = ig.kernels.RBF(0.7 * X[:100].std(axis=0), 5.0)
    model = ig.SparseGPClassifier(kernel, "ep", n_inducing=30, optimize=None, warmup=100)
    for start in range(0, 300, 100):
        rows = slice(start, start + 100)
        model.partial_fit(X[rows], y[rows], classes=["yes", "no"])
    assert model.score(XS, YS) > 0.8
    Xu = (X - X[:100].mean(axis=0)) / X[:100].std(axis=0)
    post = ig.update(ig.prior(ig.kernels.RBF(0.7, 5.0)), Probit(), Xu, np.where(y == "yes", 1.0, -1.0), 30)
    np.testing.assert_allclose(model.posteriors_[0].alpha, post.alpha, rtol=1e-6)
    assert model.log_evidence_ == pytest.approx(post.log_predictive)


@pytest.mark.parametrize("method", ["ep", "fitc"])
def test_partial_fit_goes_on_from_fit(method):
    model = quick(method=method).fit(X[:100], y[:100])
    before = model.score(XS, YS)
    model.partial_fit(X[100:], y[100:])
    assert model.score(XS, YS) > max(before - 0.02, 0.8) and model.basis_size_ <= 25


def test_rows_that_cannot_be_used_leave_the_model_as_it_was():
    model = quick(optimize=None)
    model.partial_fit(X[:100], y[:100], classes=["no", "yes"])
    before = model.predict_proba(XS)
    with pytest.raises(errors.LabelError, match="row 1 has the label"):
        model.partial_fit(X[:2], ["no", "maybe"])
    with pytest.raises(errors.NonFiniteError):
        model.partial_fit([[0.0, np.nan]], ["no"])
    with pytest.raises(errors.ShapeError):
        model.partial_fit([[0.0, 1.0, 2.0]], ["no"])
    with pytest.raises(errors.LabelError, match="cannot change"):
        model.partial_fit(X[:2], y[:2], classes=["no", "yes", "maybe"])
    np.testing.assert_array_equal(model.predict_proba(XS), before)


# Files.


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ((X, y), {"likelihood": Probit(0.5), "kernel": ig.kernels.Matern52(1.0)}),
        ((X3, y3), {"method": "online", "priors": {"kernel.lengthscale": ig.LogNormal(1.0, 1.0)}}),
        ((X3, y3 > 1), {"method": "fitc", "inducing": X3[:20], "optimize": "all"}),
        ((X3, y3 + 1.0), {"likelihood": "logistic"}),
        ((X3, np.array(list("abcd"), dtype=object)[y3]), {}),
    ],
)
def test_files_give_back_what_was_saved(tmp_path, data, options):
    model = quick(**options).fit(pd.DataFrame(data[0], columns=["a", "b"]), data[1])
    model.save(tmp_path / "model.safetensors", {"note": "mine"})
    loaded = ig.load(tmp_path / "model.safetensors")
    queries = pd.DataFrame(data[0], columns=["a", "b"])
    assert type(loaded) is ig.SparseGPClassifier and loaded.metadata_ == {"note": "mine"}
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    assert loaded.classes_.dtype == model.classes_.dtype
    np.testing.assert_allclose(loaded.predict_proba(queries), model.predict_proba(queries), rtol=1e-10)
    assert loaded.log_evidence_ == model.log_evidence_ and loaded.n_inducing == 25
    np.testing.assert_array_equal(loaded.predict(queries), model.predict(queries))
    again = clone(loaded).set_params(max_iter=1).fit(*data)
    assert again.score(*data) > 0.5
    loaded.partial_fit(queries[:20], data[1][:20])


def test_files_refuse_what_they_cannot_hold(tmp_path):
    model = quick(optimize=None).fit(X3, y3)
    model.save(tmp_path / "model")
    from safetensors.numpy import load_file

    assert not any(
        len(X3) in tensor.shape for tensor in load_file(tmp_path / "model").values()
    )  # no training data
    with pytest.raises(errors.ParameterError, match="not fitted"):
        quick().save(tmp_path / "other")
    model.classes_ = np.array([None, 1, "a", 2.0], dtype=object)
    with pytest.raises(errors.ParameterError, match="labels of type"):
        model.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()


# Manners.


def test_seed_pickle_clone_pipeline_cross_validation():
    one, two = quick().fit(X, y), quick().fit(X, y)
    np.testing.assert_array_equal(one.predict_proba(XS), two.predict_proba(XS))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(one)).predict_proba(XS), one.predict_proba(XS))
    assert cross_val_score(make_pipeline(StandardScaler(), quick(max_iter=3)), X, y, cv=2).min() > 0.75


@pytest.mark.parametrize(
    ("error", "text", "options"),
    [
        (errors.UnknownNameError, "method must be", {"method": "svm"}),
        (errors.UnknownNameError, "optimize must be", {"optimize": "basis"}),
        (errors.ParameterError, "moves the basis", {"optimize": "all"}),
        (errors.ParameterError, "n_inducing", {"n_inducing": 0}),
        (errors.UnknownNameError, "kernel must be", {"kernel": "rbg"}),
        (errors.UnknownNameError, "likelihood must be", {"likelihood": "gaussian"}),
        (errors.UnknownNameError, "inducing must be", {"method": "fitc", "inducing": "best"}),
        (errors.ShapeError, "inducing must be", {"method": "fitc", "inducing": np.zeros((3, 5))}),
        (
            errors.ParameterError,
            "max_iter must be a whole number of at least 0, but is 'x'",
            {"max_iter": "x"},
        ),
        (errors.ParameterError, "max_iter must be a whole number of at least 0, but is -1", {"max_iter": -1}),
        (errors.ParameterError, "restarts must be a whole number", {"restarts": "x"}),
        (errors.ParameterError, "priors must be a dictionary", {"priors": [1]}),
        (
            errors.ParameterError,
            "^a classifier drops no rows .* or drop the rows first$",
            {"missing": "drop"},
        ),
        (
            errors.ParameterError,
            "^categorical= needs method=None, not 'ep'$",
            {"method": "ep", "categorical": [0]},
        ),
    ],
)
def test_bad_parameters(error, text, options):
    with pytest.raises(error, match=text):
        quick(**options).fit(X, y)


def test_bad_data():
    for one, shown in ((0, "0"), ("a", "'a'")):
        with pytest.raises(errors.LabelError, match=f"y has one class, {shown}$"):
            quick().fit(X, np.full(len(X), one))
    with pytest.raises(errors.LabelError):
        quick().fit(X, np.linspace(0, 1, len(X)))
    with pytest.raises(errors.ShapeError, match="sparse"):
        quick().fit(scipy.sparse.csr_matrix(X), y)
    with pytest.raises(errors.NonFiniteError):
        quick().fit(np.where(X > 6000, np.nan, X), y)


# Real data. [004 §5.2]


def test_usps_digits_with_few_basis_functions():
    if "INDUCING_DATA" not in os.environ:
        pytest.skip("real data: INDUCING_DATA is not set")
    data = ig.datasets.load("usps")
    X, Xs = 2 * data.X_train[:2000] - 1, 2 * data.X_test - 1
    kernel = ig.kernels.RBF(8.0)
    model = ig.SparseGPClassifier(
        kernel,
        "ep",
        n_inducing=60,
        optimize=None,
        likelihood=Probit(1e-2),
        standardize=False,
        random_state=0,
        sweeps=4,
    ).fit(X, data.y_train[:2000])
    wrong = model.predict(Xs) != data.y_test
    assert np.mean(wrong) < 0.14
    labels = model.predict(Xs, reject_below=0.5, reject_label=-1)
    kept = labels != -1
    assert np.mean(labels[kept] != data.y_test[kept]) < 0.8 * np.mean(wrong) and 0.7 < np.mean(kept) < 1.0


# On the engine: kernel and basis learned from all rows.


@pytest.mark.parametrize("approximation", ["auto", "vfe", "pep", "dtc"])
def test_the_engine_learns_kernel_and_basis(approximation):
    model = ig.SparseGPClassifier(
        approximation=approximation, n_inducing=12, max_iter=20, random_state=0
    ).fit(X, y)
    assert model.score(XS, YS) > 0.85
    p = model.predict_proba(XS)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert model.basis_size_ == 12 and np.ndim(model.posteriors_[0].w) == 2


def test_the_engine_has_one_process_for_each_of_many_classes(tmp_path):
    model = ig.SparseGPClassifier(n_inducing=20, max_iter=20, random_state=0).fit(X3, y3)
    assert len(model.posteriors_) == 4 and model.score(X3S, y3S) > 0.9
    model.save(tmp_path / "model")
    again = ig.load(tmp_path / "model")
    assert again.n_inducing == 20 and again.method is None
    np.testing.assert_allclose(again.predict_proba(X3S), model.predict_proba(X3S), rtol=1e-12)


def test_weights_count_rows_on_the_engine():
    times = np.random.default_rng(0).integers(1, 4, len(X))
    options = dict(n_inducing=10, optimize=None, random_state=0, inducing=X[:10], validation_fraction=0.0)
    kernel = ig.kernels.RBF([1.0, 1.0], 2.0)
    one = ig.SparseGPClassifier(kernel, standardize=False, **options).fit(X, y, sample_weight=times)
    many = ig.SparseGPClassifier(kernel, standardize=False, **options).fit(
        np.repeat(X, times, axis=0), np.repeat(y, times)
    )
    np.testing.assert_allclose(one.predict_proba(XS), many.predict_proba(XS), atol=1e-6)
    few = ig.SparseGPClassifier(
        kernel, standardize=False, class_weight={"yes": 5.0, "no": 1.0}, **options
    ).fit(X, y)
    assert np.mean(few.predict_proba(XS)[:, 1]) > np.mean(one.predict_proba(XS)[:, 1])
    with pytest.raises(errors.ParameterError, match="weights are for method=None"):
        ig.SparseGPClassifier(method="ep").fit(X, y, sample_weight=times)


# Rows that come in parts.


def parts_of(kind, tmp_path, X, y):
    """The rows as a source, as a folder of parquet files, or as a Dask array, and what is y there."""
    if kind == "source":
        return ig.as_source(X, y, chunk_rows=100), None
    if kind == "dask":
        da = pytest.importorskip("dask.array")
        return da.from_array(X, chunks=(100, 2)), da.from_array(y, chunks=100)
    for i in range(0, len(X), 100):
        frame = pd.DataFrame(X[i : i + 100], columns=["a", "b"]).assign(label=y[i : i + 100])
        frame.to_parquet(tmp_path / f"{i:05}.parquet")
    return tmp_path, "label"


@pytest.mark.parametrize("kind", ["source", "parquet", "dask"])
def test_rows_in_parts_are_learned_from_as_arrays_are(kind, tmp_path):
    """Without learning the processes are those of the rows in memory; learned from, they predict as well."""
    labels = np.where(y == "yes", 1.0, 0.0)
    given = parts_of(kind, tmp_path, X, labels)
    held = dict(n_inducing=10, inducing=X[:10], optimize=None, random_state=0, validation_fraction=0.0)
    model = ig.SparseGPClassifier(**held).fit(*given)
    here = ig.SparseGPClassifier(**held).fit(X, labels)
    np.testing.assert_array_equal(model.classes_, [0, 1])
    queries, rows = (pd.DataFrame(A, columns=["a", "b"]) if kind == "parquet" else A for A in (XS, X))
    np.testing.assert_allclose(model.predict_proba(queries), here.predict_proba(XS), atol=1e-5)
    assert model.log_evidence_ == pytest.approx(here.log_evidence_, abs=1e-4) and model.n_rows_ == len(X)
    learned = ig.SparseGPClassifier(n_inducing=12, max_iter=15, random_state=0).fit(*given)
    assert learned.score(queries, YS == "yes") > 0.84
    np.testing.assert_allclose(learned.predict_proba(given[0]), learned.predict_proba(rows), atol=1e-12)


def test_many_classes_in_parts():
    model = ig.SparseGPClassifier(n_inducing=20, max_iter=14, random_state=0)
    model.fit(ig.as_source(X3, 10.0 * y3, chunk_rows=50))
    np.testing.assert_array_equal(model.classes_, [0, 10, 20, 30])
    assert len(model.posteriors_) == 4 and model.score(X3S, 10 * y3S) > 0.9


@pytest.mark.parametrize("options", [{"method": "ep"}, {"class_weight": "balanced"}, {"device": "cpu"}])
def test_what_rows_in_parts_cannot_have(options):
    with pytest.raises(errors.ParameterError, match="rows that come in parts"):
        ig.SparseGPClassifier(**options).fit(ig.as_source(X3, y3, chunk_rows=50))
    with pytest.raises(errors.LabelError, match="more than 1000 different values"):
        ig.SparseGPClassifier().fit(ig.as_source(np.zeros((2000, 1)), np.arange(2000.0), chunk_rows=500))


def test_the_benchmark_of_classes_runs():
    script = Path(__file__).parents[2] / "benchmarks" / "likelihoods.py"
    done = subprocess.run(
        [sys.executable, str(script), "--quick"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    for words in ("probit", "iris: 105 rows", "inducing", "logistic", "boosting"):
        assert words in done.stdout


@pytest.mark.parametrize("method", [None, "online"])
def test_classes_that_learning_rows_lack_are_still_predicted(method):
    """A class of one row in five hundred is seldom among the rows that hyperparameters are learned from."""
    rng = np.random.default_rng(2)
    inputs = rng.normal(size=(500, 2))
    labels = np.where(inputs[:, 0] > 0, "a", "b").astype(object)
    inputs[499], labels[499] = [8.0, 8.0], "rare"
    options = {"max_iter": 2} if method is None else {"method": method, "learning_rows": 50, "max_iter": 2}
    model = ig.SparseGPClassifier(n_inducing=10, random_state=0, **options).fit(inputs, labels.astype(str))
    p = model.predict_proba(inputs)
    assert list(model.classes_) == ["a", "b", "rare"] and p.shape == (500, 3)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-9)
    assert np.all(np.isfinite(p)) and np.mean(model.predict(inputs[:499]) == labels[:499]) > 0.9
    assert p[499, 2] > 5.0 * np.mean(p[:499, 2])


@pytest.mark.parametrize("rough", [False, True])
def test_the_kernel_of_classes_can_be_left_open(rough):
    rng = np.random.default_rng(4)
    X = rng.uniform(0, 6, (300, 1))
    kernel = ig.kernels.Matern12(0.8) if rough else ig.kernels.RBF(0.8)
    f = np.linalg.cholesky(kernel(X, X) + 1e-8 * np.eye(300)) @ rng.standard_normal(300)
    y = f + 0.1 * rng.standard_normal(300) > 0
    model = ig.SparseGPClassifier(kernel="auto", n_inducing=30, random_state=0, max_iter=20).fit(X, y)
    plain = ig.SparseGPClassifier(n_inducing=30, random_state=0, max_iter=20).fit(X, y)
    assert isinstance(model.kernel_, ig.kernels.RBF | ig.kernels.Matern52 | ig.kernels.Matern32)
    assert model.log_evidence_ >= plain.log_evidence_ - 1.0
    if rough:
        assert not isinstance(model.kernel_, ig.kernels.RBF)


@pytest.mark.parametrize(
    "labels, message",
    [
        (np.arange(30.0) % 3 * 1e150, "continuous"),
        (np.r_[np.zeros(29), 1e100], "continuous"),
        (np.array(["a", "b", None] * 10, dtype=object), "of one kind"),
        (np.array(["a", 1] * 15, dtype=object), "of one kind"),
    ],
)
def test_labels_that_are_none_are_one_sentence(labels, message):
    """Whole numbers beyond integers were a StopIteration, labels of two kinds a TypeError of NumPy."""
    X = np.random.default_rng(0).uniform(size=(30, 2))
    with pytest.raises(errors.LabelError, match=message):
        ig.SparseGPClassifier(n_inducing=5, max_iter=1).fit(X, labels)


def test_many_held_out_labels_let_a_lengthscale_for_each_pixel_win():
    if "INDUCING_DATA" not in os.environ:
        pytest.skip("real data: INDUCING_DATA is not set")
    data = ig.datasets.load("usps")
    model = ig.SparseGPClassifier(n_inducing=50, max_iter=30, random_state=0)
    model.fit(data.X_train, data.y_train == 4)
    assert np.size(model.kernel_.lengthscale) == 256
    assert np.mean(model.predict(data.X_test) != (data.y_test == 4)) < 0.024


def test_a_climb_with_many_labels_begins_on_some_of_them_and_ends_on_all(monkeypatch):
    rng, seen = np.random.default_rng(5), []
    X = rng.uniform(-2, 2, (900, 2))
    y = rng.uniform(size=900) < 0.3 + 0.2 * (np.sin(2 * X[:, 0]) > 0)  # labels near chance
    evaluate = classes.ClassesEvidence.__call__
    monkeypatch.setattr(
        classes.ClassesEvidence, "__call__", lambda e, P: (seen.append(P.n), evaluate(e, P))[1]
    )
    monkeypatch.setattr(classes, "RACE_ROWS", 150)
    monkeypatch.setattr(classes, "MANY_LABELS", 200)
    ig.SparseGPClassifier(n_inducing=15, max_iter=60, random_state=0).fit(X, y)
    stages = list(dict.fromkeys(seen))
    assert len(stages) == 3 and stages[:2] == [150, 400] and 800 < stages[2] <= 900
    assert seen == sorted(seen)


def test_more_labels_judge_where_there_are_many(monkeypatch):
    """Near chance a few hundred labels cannot tell if a climb gained: one of ONE_JUDGE_OF is held out."""
    rng, sizes = np.random.default_rng(6), []
    X = rng.uniform(-2, 2, (800, 2))
    judge = classes.Judge.__init__
    monkeypatch.setattr(
        classes.Judge, "__init__", lambda s, X, signs: (sizes.append(len(X)), judge(s, X, signs))[1]
    )
    monkeypatch.setattr(classes, "MOST_HELD", 30)
    for judged, expected in ((50, 30), (20, 40)):
        monkeypatch.setattr(classes, "ONE_JUDGE_OF", judged)
        ig.SparseGPClassifier(n_inducing=4, max_iter=1, random_state=0).fit(X, X[:, 0] > 0)
        assert sizes.pop() == expected and not sizes


def test_files_of_tables_with_text_columns_are_predicted_as_the_table_is(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.standard_normal(200), "c": rng.choice(["a", "b"], 200)})
    labels = (frame["x"] + (frame["c"] == "a") > 0.3).astype(float)
    for i in range(2):
        frame.assign(label=labels)[100 * i : 100 * (i + 1)].to_parquet(tmp_path / f"{i}.parquet")
    model = ig.SparseGPClassifier(n_inducing=10, max_iter=10, random_state=0).fit(tmp_path, "label")
    p = model.predict_proba(tmp_path)
    np.testing.assert_allclose(p, model.predict_proba(frame), atol=1e-12)
    assert np.mean((p[:, 1] > 0.5) == labels) > 0.95
