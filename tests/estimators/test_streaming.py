"""The estimator that learns from streams: its contract, exact limits, forecasts before reading, warm-up, bad
batches.
"""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import inducing as ig
import oracle
import oracle_online
from inducing import errors
from inducing.inference.online import Learner
from inducing.model.likelihoods import Custom, Gaussian, Laplace, Poisson, Probit, StudentT
from online_problem import K0, KERNEL, NOISE


@parametrize_with_checks(
    [
        ig.OnlineGPRegressor(n_inducing=20, max_iter=5),
        ig.OnlineGPRegressor(n_inducing=None, optimize=None, warmup=1),
        ig.OnlineGPRegressor(likelihood="laplace", n_inducing=20, max_iter=3, learning_rows=50),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


rng = np.random.default_rng(5)
X = rng.uniform(-2, 2, (400, 2))
F = np.sin(2 * X[:, 0]) * X[:, 1]
Y = F + 0.1 * rng.standard_normal(400)
XS = rng.uniform(-2, 2, (40, 2))
FS = np.sin(2 * XS[:, 0]) * XS[:, 1]
AWKWARD = np.array([1000.0, 0.01]), np.array([5000.0, -3.0])  # units far from standard ones


def plain(**parameters):
    """The core with nothing around it: no units, nothing learned, no warm-up."""
    options = {
        "kernel": KERNEL,
        "likelihood": Gaussian(NOISE),
        "optimize": None,
        "standardize": False,
        "warmup": 1,
    }
    return ig.OnlineGPRegressor(**(options | parameters))


def quick(**parameters):
    return ig.OnlineGPRegressor(**({"n_inducing": 30, "max_iter": 25, "random_state": 0} | parameters))


# Against dense formulas.


def test_without_capacity_it_is_the_exact_process():
    n = 60
    model = plain(n_inducing=None, tolerance=1e-12)
    for rows in np.split(np.arange(n), [1, 2, 30]):
        model.partial_fit(X[rows], Y[rows])
    mean, cov = oracle.condition(oracle.joint_prior("exact", K0, None, X[:n], XS), NOISE, Y[:n])
    got, std = model.predict(XS, return_std=True)
    assert_allclose(got, mean, rtol=1e-8, atol=1e-8)
    assert_allclose(std**2, np.diag(cov) + NOISE, rtol=1e-8)
    assert_allclose(model.predict(XS, return_cov=True, latent=True)[1], cov, atol=1e-8)
    assert_allclose(model.predict(XS, return_cov=True)[1], cov + NOISE * np.eye(40), atol=1e-8)
    assert_allclose(
        model.log_predictive_, oracle.log_evidence("exact", K0, None, NOISE, X[:n], Y[:n]), rtol=1e-9
    )
    assert model.n_rows_ == n and model.noise_ == NOISE


def test_forecasts_are_those_of_the_plain_loops():
    """Of every row in a batch, what the loops of the thesis say just before it, through a full basis."""
    reference = oracle_online.Online(K0, oracle_online.gaussian(NOISE), 8, 1e-2)
    model, parts = plain(n_inducing=8, tolerance=1e-2).partial_fit(X[:1], Y[:1]), []
    reference.read(X[0], Y[0], 0)
    for rows in np.split(np.arange(1, 300), [2, 60]):
        parts.append(model.predict_then_fit(X[rows], Y[rows]))
    mean, std, log_density = (np.concatenate(columns) for columns in zip(*parts))
    for i in range(1, 300):
        m, v = reference.predict(X[i : i + 1])
        assert_allclose([mean[i - 1], std[i - 1] ** 2], [m[0], v[0] + NOISE], rtol=1e-7, atol=1e-8)
        assert_allclose(log_density[i - 1], stats.norm.logpdf(Y[i], m[0], np.sqrt(v[0] + NOISE)), rtol=1e-7)
        reference.read(X[i], Y[i], i)
    assert_allclose(model.log_predictive_, float(reference.log_predictive), rtol=1e-8)
    assert_array_equal(model.posterior_.basis.Z, reference.Z)


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [(Laplace(0.2), Y), (StudentT(4.0, 0.2), Y), (Poisson(), np.floor(np.exp(F)))],
    ids=["laplace", "student", "poisson"],
)
def test_forecasts_under_other_likelihoods(likelihood, y):
    """One row at a time, by `predict`; the density by SciPy's quadrature."""
    from scipy.integrate import quad

    together, alone = plain(likelihood=likelihood, n_inducing=10), plain(likelihood=likelihood, n_inducing=10)
    together.partial_fit(X[:20], y[:20])
    alone.partial_fit(X[:20], y[:20])
    said = together.predict_then_fit(X[20:40], y[20:40])
    for i in range(20):
        row = slice(20 + i, 21 + i)
        mean, std = alone.predict(X[row], return_std=True)
        assert_allclose([said.mean[i], said.std[i]], [mean[0], std[0]], rtol=1e-8)
        f, s = (part[0] for part in alone.predict(X[row], return_std=True, latent=True))
        density = quad(
            lambda t, f=f, s=s, i=i: (
                np.exp(likelihood.log_density(y[20 + i], f + s * t) - t * t / 2) / np.sqrt(2 * np.pi)
            ),
            -12,
            12,
            points=[0.0, np.clip((y[20 + i] - f) / s, -11, 11)],
            limit=200,
        )[0]
        assert_allclose(said.log_density[i], np.log(density), rtol=1e-7, atol=1e-9)
        alone.partial_fit(X[row], y[row])


def test_standardising_is_a_change_of_units():
    scale, shift = AWKWARD
    kernel = ig.kernels.RBF(np.array([0.9, 1.3]) * scale, 1.7)  # in the units of its rows
    model = ig.OnlineGPRegressor(kernel, 12, likelihood=Gaussian(0.3), tolerance=1e-2, optimize=None)
    model.fit(X * scale + shift, 100.0 * Y + 7.0)
    s = 100.0 * Y.std()
    core = ig.kernels.RBF([0.9, 1.3], 1.7 * Y.var())
    post = ig.update(ig.prior(core, ig.means.Constant(Y.mean())), Gaussian(0.3 / 1e4), X, Y, 12, 1e-2)
    mean, variance = post.predict(XS)
    got, std = model.predict(XS * scale + shift, return_std=True, latent=True)
    assert_allclose(got, 100.0 * mean + 7.0, rtol=1e-6)
    assert_allclose(std, 100.0 * np.sqrt(variance), rtol=1e-5)
    assert_allclose(model.log_predictive_, post.log_predictive - 400 * np.log(100.0), rtol=1e-8)
    assert model.noise_ == pytest.approx(0.3) and model.y_scale_ == pytest.approx(s)


# Learning.


def test_it_learns_from_data_in_awkward_units():
    scale, shift = AWKWARD
    model = quick().fit(X * scale + shift, 1e4 * Y)
    mean, std = model.predict(XS * scale + shift, return_std=True)
    error = mean / 1e4 - FS
    assert np.sqrt(np.mean(error**2)) < 0.1 and model.basis_size_ <= 30
    assert np.sqrt(model.noise_) / 1e4 == pytest.approx(0.1, rel=0.3)
    assert model.score(XS * scale + shift, 1e4 * FS) > 0.97
    assert np.mean(np.abs(error) < 2 * std / 1e4) > 0.9


def test_order_of_information_is_that_of_the_core():
    model = plain(n_inducing=8, tolerance=1e-2, order="information").fit(X[:40], Y[:40])
    post = ig.update(ig.prior(KERNEL), Gaussian(NOISE), X[:40], Y[:40], 8, 1e-2, order="information")
    assert_array_equal(model.posterior_.basis.Z, post.basis.Z)
    assert_allclose(model.posterior_.alpha, post.alpha, rtol=1e-8)
    with pytest.raises(errors.UnknownNameError, match="order must be one of"):
        plain(order="random").fit(X, Y)


@pytest.mark.parametrize("name", ["laplace", "studentt"])
def test_outliers_are_taken_for_what_they_are(name):
    y = Y.copy()
    y[::8] += np.random.default_rng(0).standard_cauchy(50) * 5
    robust, fooled = quick(likelihood=name).fit(X, y), quick().fit(X, y)
    assert np.mean((robust.predict(XS) - FS) ** 2) < 0.2 * np.mean((fooled.predict(XS) - FS) ** 2)
    assert robust.score(XS, FS) > 0.9
    assert robust.log_predictive_ > fooled.log_predictive_ + 100
    given = quick(likelihood=Laplace(0.08)).fit(X, y)
    assert given.noise_ == pytest.approx(2 * 0.08**2)
    assert given.score(XS, FS) > 0.9


def test_counts():
    rate = np.exp(1.0 + F)
    y = np.random.default_rng(1).poisson(rate)
    model = quick(likelihood="poisson").fit(X, y)
    assert_allclose(model.predict(XS, latent=True), 1.0 + FS, atol=0.6)
    assert np.corrcoef(model.predict(XS), np.exp(1.0 + FS))[0, 1] > 0.95
    assert model.noise_ is None and model.y_scale_ == 1.0
    mean, std = model.predict(XS[:3], return_std=True)
    draws = model.sample_y(XS[:3], 40_000)
    assert_array_equal(draws, np.round(draws))
    assert_allclose(draws.mean(axis=1), mean, rtol=0.05)
    assert_allclose(draws.std(axis=1), std, rtol=0.1)
    with pytest.raises(errors.ParameterError, match="latent=True"):
        model.predict(XS, return_cov=True)
    with pytest.raises(errors.ParameterError, match="without its y"):
        model.query(XS)
    with pytest.raises(errors.LabelError, match="row 1 has -1"):
        model.partial_fit(X[:2], [3, -1])


@pytest.mark.parametrize(
    "likelihood", [Gaussian(0.1), Laplace(0.3), StudentT(5.0, 0.3)], ids=lambda v: type(v).__name__
)
def test_draws_have_the_moments_predicted(likelihood):
    model = plain(likelihood=likelihood, n_inducing=20).fit(X[:60], Y[:60])
    mean, cov = model.predict(XS[:3], return_cov=True)
    assert_allclose(np.sqrt(np.diag(cov)), model.predict(XS[:3], return_std=True)[1], rtol=1e-8)
    draws = model.sample_y(XS[:3], 60_000, random_state=1)
    assert draws.shape == (3, 60_000)
    assert_allclose(draws.mean(axis=1), mean, atol=0.02)
    assert_allclose(np.cov(draws), cov, atol=0.05 * np.max(cov))


def test_several_outputs_in_their_own_units():
    Y2 = np.column_stack([Y, 1000.0 * np.cos(X[:, 0])])
    model = quick().fit(X, Y2)
    mean, std = model.predict(XS, return_std=True)
    assert mean.shape == std.shape == (40, 2) and model.noise_.shape == (2,)
    assert_allclose(mean[:, 0], FS, atol=0.4)
    assert_allclose(mean[:, 1], 1000.0 * np.cos(XS[:, 0]), atol=200)
    assert_allclose(std[:, 1] / std[:, 0], model.y_scale_[1] / model.y_scale_[0])
    assert model.sample_y(XS, 3).shape == (40, 2, 3) and model.query(XS, 2).shape == (2,)
    said = model.predict_then_fit(X[:5], Y2[:5])
    assert said.mean.shape == (5, 2) and said.log_density.shape == (5,)
    with pytest.raises(errors.ShapeError, match="2 output"):
        model.partial_fit(X[:5], Y[:5])
    with pytest.raises(errors.ShapeError, match="1d array"):
        quick(likelihood="laplace").fit(X, Y2)


def test_a_likelihood_of_ones_own():
    own = Custom(lambda y, f: -0.5 * np.log(2 * np.pi * 0.1) - (y - f) ** 2 / 0.2, lambda y: y[:, None])
    model = plain(likelihood=own, n_inducing=8).fit(X[:50], Y[:50])
    gaussian = plain(likelihood=Gaussian(0.1), n_inducing=8).fit(X[:50], Y[:50])
    assert_allclose(model.predict(XS, latent=True), gaussian.predict(XS), rtol=1e-6, atol=1e-7)
    with pytest.raises(errors.ParameterError, match="ask about f"):
        model.predict(XS)
    with pytest.raises(errors.ParameterError, match="draw f"):
        model.sample_y(XS)


# Which rows to ask for.


def test_queries_are_those_of_the_exact_process():
    """The largest variance; then the largest that is left when the first is known, whatever its y will be."""
    n = 30
    model = plain(n_inducing=None, tolerance=1e-12).fit(X[:n], Y[:n])
    chosen = model.query(XS, 4)
    known = X[:n]
    for i in chosen:
        _, cov = oracle.condition(
            oracle.joint_prior("exact", K0, None, known, XS), NOISE, np.zeros(len(known))
        )
        assert i == np.argmax(np.diag(cov))
        known = np.vstack([known, XS[i]])
    assert len(set(chosen)) == 4
    assert_array_equal(
        plain(likelihood=Laplace(np.sqrt(NOISE / 2)), n_inducing=None).fit(X[:n], Y[:n]).query(XS, 1).shape,
        (1,),
    )
    for count in (0, 41, 1.5, True):
        with pytest.raises(errors.ParameterError, match="from 1 to the 40 rows"):
            model.query(XS, count)


def test_classes_to_ask_for():
    labels = np.where(F > 0, "up", "down")
    model = ig.SparseGPClassifier(KERNEL, method="online", optimize=None, random_state=0).fit(
        X[:60], labels[:60]
    )
    p = model.predict_proba(XS)
    post = model.posteriors_[0]
    Q = (XS - model.x_mean_) / model.x_scale_
    gains = sum(
        p[:, j] * ig.information_gain(post, Probit(), Q, np.full(len(Q), sign))
        for j, sign in enumerate((-1.0, 1.0))
    )
    assert model.query(XS) == [np.argmax(gains)]
    assert len(set(model.query(XS, 10))) == 10
    many = np.digitize(X[:, 0], [-1, 0, 1])
    assert (
        len(set(ig.SparseGPClassifier("rbf", "ep", optimize=None).fit(X[:60], many[:60]).query(XS, 5))) == 5
    )


def test_classes_in_order_of_information():
    Y2 = np.stack([np.sign(F), np.sign(X[:, 0])], axis=1)[:25]
    posts = ig.update_together([ig.prior(KERNEL)] * 2, Probit(), X[:25], Y2, 8, 1e-2, order="information")
    left, order, steps = list(range(25)), [], [ig.prior(KERNEL)] * 2
    while left:
        gains = sum(ig.information_gain(post, Probit(), X[left], Y2[left, c]) for c, post in enumerate(steps))
        i = left.pop(int(np.argmax(gains)))
        order.append(i)
        steps = ig.update_together(steps, Probit(), X[i : i + 1], Y2[i : i + 1], 8, 1e-2)
    for post, other in zip(
        posts, ig.update_together([ig.prior(KERNEL)] * 2, Probit(), X[order], Y2[order], 8, 1e-2)
    ):
        assert_allclose(post.alpha, other.alpha, rtol=1e-7)
    labels = np.where(F > 0, "up", "down")
    model = ig.SparseGPClassifier(
        method="online", order="information", n_inducing=15, max_iter=10, random_state=0
    )
    assert model.fit(X[:100], labels[:100]).score(X[100:], labels[100:]) > 0.8


# Streams in pieces.


@pytest.mark.parametrize(
    "sizes", [[1] * 60 + [90, 50], [30, 30, 140], [7] * 28 + [4]], ids=["ones", "blocks", "sevens"]
)
def test_the_warm_up_may_come_in_any_pieces(sizes):
    """From row `warmup` on, units and kernel are those of the first rows, however they came."""
    options = {"warmup": 60, "n_inducing": 15, "max_iter": 10, "random_state": 0}
    whole = ig.OnlineGPRegressor(**options).partial_fit(X[:60], Y[:60])
    pieces, start = ig.OnlineGPRegressor(**options), 0
    for size in sizes:
        rows = slice(start, start := start + size)
        said = pieces.predict_then_fit(X[rows], Y[rows])
        assert pieces.n_rows_ == start and pieces.warming_up_ == (start < 60)
        assert np.all(np.isnan(said.mean)) == (rows.start < 60)
        assert np.all(np.isfinite(pieces.predict(XS)))
    if 60 in np.cumsum(sizes):
        whole.partial_fit(X[60:start], Y[60:start])
        assert_allclose(pieces.x_mean_, X[:60].mean(axis=0), rtol=1e-12)
        assert_allclose(pieces.predict(XS), whole.predict(XS), rtol=1e-6, atol=1e-8)
        assert_allclose(pieces.log_predictive_, whole.log_predictive_, rtol=1e-7)
    else:
        assert_allclose(pieces.x_mean_, X[:63].mean(axis=0), rtol=1e-12)


def test_units_follow_the_rows_while_the_warm_up_lasts():
    model = ig.OnlineGPRegressor(warmup=100)
    counts = []
    for i in range(40):
        model.partial_fit(X[i : i + 1], Y[i : i + 1])
        if not counts or not np.array_equal(model.x_mean_, X[: counts[-1]].mean(axis=0)):
            assert_allclose(model.x_mean_, X[: i + 1].mean(axis=0), rtol=1e-12)
            counts.append(i + 1)
    assert counts == [1, 2, 4, 8, 16, 32]
    assert np.mean((model.predict(XS) - FS) ** 2) < 0.5 * np.var(FS)


def test_a_classifier_warms_up_too():
    labels = np.where(F > 0, "up", "down")
    options = {"method": "online", "warmup": 100, "n_inducing": 25, "max_iter": 10, "random_state": 0}
    one, many = ig.SparseGPClassifier(**options), ig.SparseGPClassifier(**options)
    one.partial_fit(X[:100], labels[:100], ["up", "down"]).partial_fit(X[100:200], labels[100:200])
    for i in range(200):
        p = many.predict_then_fit(X[i : i + 1], labels[i : i + 1], ["up", "down"])
        assert np.all(np.isnan(p)) == (i < 100) and many.warming_up_ == (i < 99)
        if i >= 100:
            assert p.shape == (1, 2) and p.sum() == pytest.approx(1.0)
    assert_allclose(many.predict_proba(XS), one.predict_proba(XS), rtol=1e-6, atol=1e-8)
    assert many.score(X[200:], labels[200:]) > 0.85
    before = one.predict_proba(X[200:201])
    assert_allclose(one.predict_then_fit(X[200:202], labels[200:202])[:1], before, rtol=1e-9)


@pytest.mark.parametrize("rows", [30, 150], ids=["warm-up", "later"])
def test_bad_batches_change_nothing(rows):
    model = ig.OnlineGPRegressor(warmup=60, max_iter=5, n_inducing=15).partial_fit(X[:rows], Y[:rows])
    before, attributes = model.predict(XS), set(vars(model))
    bad = [
        (errors.NonFiniteError, [[0.0, np.nan], [1.0, 1.0]], [0.0, 1.0]),
        (errors.NonFiniteError, [[0.0, 1.0]], [np.inf]),
        (errors.ShapeError, [[0.0, 1.0, 2.0]], [0.0]),
        (errors.ShapeError, [[0.0, 1.0]], [0.0, 1.0]),
        (errors.LabelError, [[0.0, 1.0]], ["text"]),
    ]
    for error, x, y in bad:
        with pytest.raises((error, errors.InducingError)):
            model.partial_fit(x, y)
        assert_array_equal(model.predict(XS), before)
        assert model.n_rows_ == rows and set(vars(model)) == attributes
    fresh = ig.OnlineGPRegressor()
    with pytest.raises(errors.NonFiniteError):
        fresh.partial_fit([[np.nan]], [0.0])
    assert vars(fresh) == vars(ig.OnlineGPRegressor())


def test_predictions_at_rows_in_parts_are_those_in_memory():
    model = plain(n_inducing=8).fit(X, Y)
    source = ig.as_source(XS, chunk_rows=7)
    for part, whole in zip(model.predict(source, return_std=True), model.predict(XS, return_std=True)):
        assert_allclose(part, whole, rtol=1e-12)
    with pytest.raises(errors.ParameterError, match="no joint covariance"):
        model.predict(source, return_cov=True)


def test_interrupted_fit_keeps_what_it_has_read(monkeypatch):
    monkeypatch.setattr("inducing.inference.online.TURN", 50)
    calls, original = [], Learner.advance

    def interrupted(self, *rows):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, *rows)

    monkeypatch.setattr(Learner, "advance", interrupted)
    with pytest.warns(errors.InterruptedWarning, match="after 150 of 400 rows"):
        model = plain(n_inducing=15).fit(X, Y)
    assert model.n_rows_ == 150
    whole = plain(n_inducing=15).fit(X[:150], Y[:150])
    assert_allclose(model.predict(XS), whole.predict(XS), rtol=1e-8, atol=1e-9)
    calls[:] = [1, 1, 1]
    before = model.predict(XS)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X[150:], Y[150:])
    assert_array_equal(model.predict(XS), before)
    assert model.n_rows_ == 150


def test_progress_is_shown_when_asked_for(capsys):
    quick(verbose=1, n_inducing=10, max_iter=3).fit(X, Y)
    shown = capsys.readouterr().err
    assert "learn: iteration 3" in shown and "10 basis functions, rows read" in shown and "400/400" in shown
    quick(n_inducing=10, max_iter=3).fit(X, Y)
    assert capsys.readouterr().err == ""


# Manners.


@pytest.mark.parametrize(
    ("error", "text", "options"),
    [
        (errors.UnknownNameError, "likelihood must be", {"likelihood": "normal"}),
        (errors.LabelError, "SparseGPClassifier", {"likelihood": Probit()}),
        (errors.ParameterError, "give one of them", {"likelihood": Gaussian(0.1), "noise": 0.2}),
        (errors.UnknownNameError, "optimize must be", {"optimize": "all"}),
        (errors.ParameterError, "n_inducing", {"n_inducing": 0}),
        (errors.ParameterError, "tolerance", {"tolerance": 2.0}),
        (errors.UnknownNameError, "removal score", {"removal_score": "best"}),
        (errors.UnknownNameError, "kernel must be", {"kernel": "rbg"}),
    ],
)
def test_bad_parameters(error, text, options):
    with pytest.raises(error, match=text):
        quick(**options).fit(X[:30], Y[:30])


def test_clone_and_seed():
    one, two = quick().fit(X, Y), clone(quick()).fit(X, Y)
    assert_array_equal(one.predict(XS), two.predict(XS))
    with pytest.raises(errors.ParameterError, match="both given"):
        one.predict(XS, return_std=True, return_cov=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        constant = quick().fit(X[:30], np.full(30, 3.0))
    assert_allclose(constant.predict(XS), 3.0, rtol=1e-3)


def test_the_benchmark_runs():
    script = Path(__file__).parents[2] / "benchmarks" / "streams.py"
    command = [sys.executable, str(script), "--quick", "--only", "speed", "digits", "drift", "memory"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for words in ("## speed", "rows replace a function", "| yes |", "max abs(QK - I)", "growth from there"):
        assert words in done.stdout


def test_old_names_of_the_size_are_taken_with_a_warning(tmp_path):
    """`capacity` and `n_basis` mean `n_inducing`; files and clones know the new name."""
    with pytest.warns(errors.RenamedWarning, match="pass n_inducing=6"):
        old = ig.OnlineGPRegressor(capacity=6, optimize=None, random_state=0).fit(X, Y)
    new = ig.OnlineGPRegressor(n_inducing=6, optimize=None, random_state=0).fit(X, Y)
    assert old.basis_size_ == new.basis_size_ == 6
    np.testing.assert_array_equal(old.predict(XS), new.predict(XS))
    with pytest.warns(errors.RenamedWarning):
        old.save(tmp_path / "m")
    assert ig.load(tmp_path / "m").n_inducing == 6
    with pytest.warns(errors.RenamedWarning):
        ep = ig.SparseGPClassifier(method="ep", capacity=7, optimize=None).fit(X, Y > 0)
    assert ep.basis_size_ <= 7 and len(ep.kernel_.lengthscale) == X.shape[1]
    with pytest.warns(errors.RenamedWarning, match="n_basis is now n_inducing"):
        machine = ig.MultiscaleKernelRidge(n_basis=4, max_iter=0).fit(X, Y)
    assert len(machine.basis_) == 4


def test_periods_are_in_the_users_units():
    """A period of one year on a column of years, whose standard deviation is not one."""
    t = np.arange(0.0, 20.0, 0.05)[:, None]
    wave = np.sin(2.0 * np.pi * t[:, 0])
    model = ig.OnlineGPRegressor(ig.kernels.Periodic(period=1.0), 20, optimize=None, random_state=0).fit(
        t, wave
    )
    np.testing.assert_allclose(model.kernel_.period, 1.0)
    assert np.sqrt(np.mean((model.predict(t + 100.0) - np.sin(2.0 * np.pi * t[:, 0])) ** 2)) < 0.05
