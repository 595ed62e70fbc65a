"""Streams that change: forgetting against sites counted one by one, rates, noise, drift, memory, threads."""

import copy
import cProfile
import pickle
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

import inducing as ig
import oracle_online
from inducing import errors
from inducing.inference.online import Learner
from inducing.inference.online_start import carried
from inducing.model.likelihoods import Gaussian
from inducing.streams.adapting import RATES, Adaptation
from inducing.streams.drift import Drift
from inducing.streams.memory import Memory
from online_problem import K0, KERNEL, NOISE, XS, N, X, Y, Z


def plain(**parameters: Any) -> Any:
    """The core with nothing around it."""
    core: dict[str, Any] = dict(kernel=KERNEL, likelihood=Gaussian(NOISE), optimize=None, standardize=False)
    return ig.OnlineGPRegressor(**(core | {"warmup": 1, "n_inducing": None, "tolerance": 1e-12} | parameters))


# Forgetting.


def forgetful(rows: int, half_life: float, times: Any = None) -> oracle_online.Discounted:
    reference = oracle_online.Discounted(K0, NOISE, half_life)
    for i in range(rows):
        if i:
            reference.wait(1.0 if times is None else times[i] - times[i - 1])
        reference.read(X[i], Y[i])
    return reference


@pytest.mark.parametrize("half_life", [3.0, 40.0])
@pytest.mark.parametrize("cuts", [[1], [1, 2, 3, 50], list(range(1, 90))], ids=["two", "some", "rows"])
def test_what_is_left_is_the_process_of_discounted_sites(half_life: float, cuts: list[int]) -> None:
    model = plain(half_life=half_life)
    for rows in np.split(np.arange(90), cuts):
        model.partial_fit(X[rows], Y[rows])
    mean, variance = forgetful(90, half_life).predict(XS)
    got, std = model.predict(XS, return_std=True, latent=True)
    assert_allclose(got, mean, rtol=1e-7, atol=1e-8)
    assert_allclose(std**2, variance, rtol=1e-7)


def test_forgetting_by_the_clock() -> None:
    """A gap as long as ten half-lives leaves next to nothing, an instant everything."""
    times = np.cumsum(np.random.default_rng(0).exponential(1.0, N))
    times[60:] += 40.0
    model = plain(half_life=4.0)
    model.partial_fit(X[:1], Y[:1], time=times[:1])
    for rows in np.split(np.arange(1, 75), [20, 21]):
        model.partial_fit(X[rows], Y[rows], time=times[rows])
    mean, variance = forgetful(75, 4.0, times).predict(XS)
    got, std = model.predict(XS, return_std=True, latent=True)
    assert_allclose(got, mean, rtol=1e-7, atol=1e-8)
    assert_allclose(std**2, variance, rtol=1e-7)
    for bad in (None, times[:3], times[74:75] * np.nan):
        with pytest.raises(errors.InducingError):
            model.partial_fit(X[75:76], Y[75:76], time=bad)
    with pytest.raises(errors.NonFiniteError, match="before the row before it"):
        model.partial_fit(X[75:76], Y[75:76], time=times[:1])
    assert model.n_rows_ == 75


@pytest.mark.parametrize("score", ["mean", "kl"])
def test_forgetting_on_a_given_basis(score: Any) -> None:
    """M = Φ τ Φᵀ and h = Φν, discounted and turned into (w, S) again, densely."""
    start = ig.prior(KERNEL, basis=ig.bases.Points(Z))
    learner = Learner([start], Gaussian(NOISE), 2, len(Z), 1e-6, score, True)
    learner.read(X[:40], Y[:40, None, None])
    before = learner.posteriors()[0]
    learner.forget([0.3])
    after = learner.posteriors()[0]
    P = np.linalg.inv(before.A @ before.A.T)
    S = np.linalg.inv(np.eye(len(P)) + 0.3 * (P - np.eye(len(P))))
    assert_allclose(after.A @ after.A.T, S, rtol=1e-9, atol=1e-12)
    assert_allclose(after.w, 0.3 * S @ P @ before.w, rtol=1e-9, atol=1e-12)
    fresh = Learner(
        [ig.update(after, Gaussian(NOISE), X[:0], Y[:0], len(Z), score=score)],
        Gaussian(NOISE),
        2,
        len(Z),
        1e-6,
        score,
        True,
    )
    assert_allclose(learner.scores(), fresh.scores(), rtol=1e-7)


def test_all_forgotten_is_the_prior() -> None:
    model = plain(half_life=1.0)
    model.partial_fit(X[:50], Y[:50], time=np.zeros(50))
    model.partial_fit(X[50:51], Y[50:51], time=[1e4])
    mean, variance = model.posterior_.predict(XS)
    exact = ig.update(ig.prior(KERNEL), Gaussian(NOISE), X[50:51], Y[50:51]).predict(XS)
    assert_allclose(mean, exact.mean, atol=1e-9)
    assert_allclose(variance, exact.variance, rtol=1e-9)


def test_ten_thousand_rows_forgotten_against_nineteen_digits() -> None:
    """On a basis that stays, the sums M and h in np.longdouble; a double drifts no more than its rounding."""
    rng, H = np.random.default_rng(1), 250.0
    data = rng.uniform(-2, 2, (10_000, 2))
    y = np.sin(2 * data[:, 0]) * data[:, 1] + 0.2 * rng.standard_normal(len(data))
    learner = Learner(
        [ig.prior(KERNEL, basis=ig.bases.Points(Z))], Gaussian(NOISE), 2, None, 1e-6, "mean", False
    )
    exact = np.longdouble
    K = K0(Z, Z).astype(exact)
    Kinv, k = oracle_online.inverse(K), K0(Z, data).astype(exact)
    M, h = np.zeros((len(Z), len(Z)), exact), np.zeros(len(Z), exact)
    for start in range(0, len(data), 50):
        rows = slice(start, start + 50)
        if start:
            rho = exact(2) ** (-exact(50) / exact(H))
            learner.forget([0.5 ** (50 / H)])
            M, h = rho * M, rho * h
        learner.read(data[rows], y[rows, None, None])
        for i in range(start, start + 50):
            e = Kinv @ k[:, i]
            M, h = M + np.outer(e, e) / exact(NOISE), h + exact(y[i]) * e / exact(NOISE)
    S = oracle_online.inverse(Kinv + M)  # of u
    post = learner.posteriors()[0]
    B = post.L @ post.A
    assert_allclose(B @ B.T, S.astype(float), rtol=1e-9, atol=1e-12)
    assert_allclose((post.L @ post.w)[:, 0], (S @ h).astype(float), rtol=1e-9, atol=1e-11)


# Rates that are learned.


def made(kind: str, n: int = 3000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A stream whose level, or noise, changes at two thirds; 0.2 of noise before."""
    rng = np.random.default_rng(seed)
    A, after = rng.uniform(-2, 2, (n, 2)), np.arange(n) >= 2 * n // 3
    noise = 0.2 * rng.standard_normal(n) * np.where(after & (kind == "noise"), 4.0, 1.0)
    return A, np.sin(2 * A[:, 0]) * A[:, 1] + noise + np.where(after & (kind == "level"), 3.0, 0.0)


def streamed(A: np.ndarray, y: np.ndarray, **options: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """The model after a stream, and errors and standard deviations of its rows after the warm-up."""
    model = ig.OnlineGPRegressor(
        **({"n_inducing": 30, "max_iter": 20, "warmup": 300, "random_state": 0} | options)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.DriftWarning)
        parts = [model.predict_then_fit(A[i : i + 100], y[i : i + 100]) for i in range(0, len(A), 100)]
    mean, std = (np.concatenate([getattr(part, name) for part in parts]) for name in ("mean", "std"))
    return model, y - mean, std


def test_each_expert_forgets_by_its_own_half_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shares that it keeps multiply to 2^(-t/h), t the rows up to its last discount, no long ago."""
    kept, discount = [], Adaptation._discount

    def noted(self: Adaptation, learner: Learner, shares: np.ndarray) -> None:
        kept.append(np.array(shares))
        discount(self, learner, shares)

    monkeypatch.setattr(Adaptation, "_discount", noted)
    rng = np.random.default_rng(0)
    A = rng.uniform(-1.0, 1.0, size=(700, 1))
    model = plain(half_life="auto", kernel=ig.kernels.RBF(0.5), n_inducing=8, tolerance=1e-3)
    model.fit(A, np.sin(3.0 * A[:, 0]))
    lives, periods = model._adaptation.half_lives, model._adaptation._periods
    some = np.isfinite(lives)
    assert np.sum(some) > 1 and len(set(periods[some])) > 1
    gone = -np.log2(np.prod(kept, axis=0)[some]) * lives[some]
    assert np.all(gone < 700.0) and np.all(gone > 700.0 - periods[some] - 1.0 - 1e-6)


def test_experts_are_weighed_by_what_they_said() -> None:
    """Their mixture, row by row, is that of models with one half-life each on the same basis."""
    start = ig.prior(KERNEL, basis=ig.bases.Points(Z))
    model = plain(half_life="auto", n_inducing=len(Z), tolerance=0.99)
    model.partial_fit(X[:1], Y[:1])
    model._posts = [start] * len(RATES)
    rows = np.arange(200) % N  # the first discount of each comes after 64 or 128 of them
    said, alone, each = model.predict_then_fit(X[rows], Y[rows]), [], []
    for rate, period in zip(RATES, (64, 128, 10**6)):
        learner = Learner([start], Gaussian(NOISE), 2, len(Z), 0.99, "mean", True)
        parts, cuts = [], range(period - 1, len(rows), period)  # one row came before these
        for part in np.split(rows, cuts):
            parts.append(learner.read(X[part], Y[part, None, None]))
            learner.forget([0.5 ** (period / rate) if len(parts) <= len(cuts) else 1.0])
        alone.append([np.concatenate(values) for values in zip(*parts)])
        each.append(learner.posteriors()[0].predict(XS))
    log_weights = np.zeros(len(RATES))
    for i in range(len(rows)):
        share = np.exp(log_weights) / np.sum(np.exp(log_weights))
        density = np.log(np.sum(share * np.exp([log_density[i, 0] for *_, log_density in alone])))
        assert_allclose(said.log_density[i], density, rtol=1e-8)
        assert_allclose(said.mean[i], np.sum(share * [mean[i, 0, 0] for mean, *_ in alone]), rtol=1e-7)
        log_weights = 0.99 * (log_weights + [log_density[i, 0] for *_, log_density in alone])
    share = np.array(list(model.half_lives_.values()))
    assert_allclose(share, np.exp(log_weights) / np.sum(np.exp(log_weights)), rtol=1e-8)
    mean, variance = model.posterior_.predict(XS)
    expected = sum(s * part.mean for s, part in zip(share, each))
    assert_allclose(mean, expected, rtol=1e-8)
    spread = sum(s * (part.variance + (part.mean - expected) ** 2) for s, part in zip(share, each))
    assert_allclose(variance, spread, rtol=1e-7)


def test_rates_follow_a_change() -> None:
    A, y = made("level")
    model, e, std = streamed(A, y, half_life="auto")
    fixed, e0, std0 = streamed(A, y)
    late = slice(2500, None)
    assert np.sqrt(np.mean(e[late] ** 2)) < 0.4 < 0.6 < np.sqrt(np.mean(e0[late] ** 2))
    assert 0.9 < np.mean(np.abs(e[late]) < 1.96 * std[late]) < 0.995
    assert np.mean(np.abs(e0[late]) < 1.96 * std0[late]) < 0.7
    still, _, _ = streamed(*made("none"), half_life="auto")
    assert still.half_lives_[np.inf] > 0.5 > model.half_lives_[np.inf]


@pytest.mark.parametrize("likelihood", ["gaussian", "studentt", "laplace"])
def test_noise_follows_the_stream(likelihood: str) -> None:
    A, y = made("noise")
    model, e, std = streamed(A, y, half_life=1000, likelihood=likelihood)
    before, after = slice(800, 2000), slice(2500, None)
    for rows in (before, after):
        assert 0.91 < np.mean(np.abs(e[rows]) < 1.96 * std[rows]) < 0.985
    assert np.median(std[after]) > 2.5 * np.median(std[before])
    held, _, std = streamed(A, y, half_life=1000, likelihood=likelihood, fixed=("noise",))
    assert np.median(std[after]) < 1.7 * np.median(std[before]) and held.n_drifts_ > 0


# Drift.


@pytest.mark.filterwarnings("ignore:the stream has drifted")
@pytest.mark.parametrize("options", [{"half_life": 500}, {"half_life": "auto", "relearn": 400}], ids=str)
def test_error_bars_are_those_of_before_the_row(options: dict[str, Any]) -> None:
    """Of noise that grows, too: a batch's last rows have no say in its first, so any batches say the same."""
    rng = np.random.default_rng(5)
    inputs = rng.uniform(-2, 2, (1200, 1))
    y = np.sin(2 * inputs[:, 0]) + np.repeat([0.1, 1.0], 600) * rng.standard_normal(1200)
    said = []
    for size in (400, 1100):
        model = ig.OnlineGPRegressor(n_inducing=15, warmup=100, random_state=0, **options)
        model.partial_fit(inputs[:100], y[:100])
        parts = [
            model.predict_then_fit(inputs[i : i + size], y[i : i + size]) for i in range(100, 1200, size)
        ]
        said.append([np.concatenate(part) for part in zip(*parts, strict=True)])
    for one, other in zip(*said, strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-11)
    std, density = said[0][1], said[0][2]
    assert std[480:500].max() < 0.3 < 0.6 < std[-20:].min()  # before the noise grows, and long after
    errors = y[100:] - said[0][0]
    single = -0.5 * (np.log(2 * np.pi * std**2) + (errors / std) ** 2)
    if options["half_life"] == 500:  # one process: the density is that of its own error bars
        assert_allclose(density, single, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["level", "noise"])
def test_drift_is_told_once_and_soon(kind: str) -> None:
    A, y = made(kind)
    model, _, _ = streamed(A, y)
    assert model.n_drifts_ == len(model.drifts_) and 2000 < model.drifts_[0] < 2100
    calm, _, _ = streamed(A[:2000], y[:2000])
    assert calm.n_drifts_ == 0 and calm.drifts_ == ()


def test_the_test_of_drift_is_that_of_page() -> None:
    """The statistic is Σ(x - mean - slack) less its own minimum; alarms are rare where nothing changes."""
    z = np.random.default_rng(0).standard_normal(400)
    z[200:] += 0.7
    means = np.cumsum(z) / np.arange(1, 401)
    walk = np.concatenate([[0.0], np.cumsum(z - means - 0.5)])
    state = Drift().after(z[:150], 1).after(z[150:], 151)
    assert state.alarms == 0 and state.rows == 400
    assert_allclose([state.mean, state.up], [means[-1], walk[-1] - np.min(walk)], rtol=1e-9)
    assert Drift().after(np.random.default_rng(1).standard_normal(100_000), 1).alarms == 0
    assert Drift().after(np.random.default_rng(1).standard_t(3, 100_000) / np.sqrt(3), 1).alarms == 0
    assert Drift().after([0.0] * 50 + [-5.0] * 50, 11).at == (66,)


def test_drift_is_a_warning() -> None:
    A, y = made("level", 900)
    model = ig.OnlineGPRegressor(n_inducing=30, max_iter=5, warmup=300, random_state=0)
    model.partial_fit(A[:300], y[:300])
    with pytest.warns(errors.DriftWarning, match="alarm 1 at row 60"):
        model.partial_fit(A[300:700], y[300:700])


@pytest.mark.parametrize("answer", ["forget", "reset", "relearn"])
def test_answers_to_drift(answer: str) -> None:
    A, y = made("level")
    model, e, _ = streamed(A, y, on_drift=answer)
    _, kept, _ = streamed(A, y)
    assert np.mean(e[2200:] ** 2) < 0.5 * np.mean(kept[2200:] ** 2)


def test_classes_drift_and_forget() -> None:
    rng = np.random.default_rng(0)
    A = rng.uniform(-2, 2, (3000, 2))
    y = np.where((A[:, 0] > 0) ^ (np.arange(3000) >= 2000) ^ (rng.random(3000) < 0.1), "a", "b")
    wrong, drifts = {}, {}
    for half_life in (None, 200, "auto"):
        model = ig.SparseGPClassifier(
            method="online", n_inducing=20, warmup=200, max_iter=10, half_life=half_life
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.DriftWarning)
            model.partial_fit(A[:200], y[:200], ["a", "b"])
            p = np.concatenate(
                [model.predict_then_fit(A[i : i + 50], y[i : i + 50]) for i in range(200, 3000, 50)]
            )
        wrong[half_life] = np.mean(((p[:, 1] > 0.5) != (y[200:] == "b"))[1900:2200])  # from row 2100 on
        drifts[half_life] = model.drifts_
    assert max(wrong[200], wrong["auto"]) < 0.3 < 0.5 < wrong[None]
    assert all(2000 < rows[0] < 2100 for rows in drifts.values())


@pytest.mark.parametrize("half_life", [None, "auto"])
def test_labels_may_come_at_any_time(half_life: Any, tmp_path: Any) -> None:
    """One at first, a second in the warm-up, a third after it, a fourth; each is learned in some rows."""
    rng = np.random.default_rng(0)
    A, at = rng.uniform(-2, 2, (1200, 2)), np.arange(1200)
    y = np.where(A[:, 0] > 0, "up", "down")
    y[at < 40] = "down"
    y = np.where((at >= 400) & (A[:, 1] > 0.7), "north", np.where((at >= 800) & (A[:, 1] < -0.7), "a", y))
    options: dict[str, Any] = {"warmup": 200, "max_iter": 5, "half_life": half_life}
    model = ig.SparseGPClassifier(method="online", n_inducing=30, **options)
    with pytest.raises(NotFittedError):
        model.partial_fit(A[:20], y[:20]).predict(A)
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.DriftWarning)
        for i in range(20, 1200, 20):
            p = model.predict_then_fit(A[i : i + 20], y[i : i + 20])
            wrong += list(model.classes_[np.argmax(p, axis=1)] != y[i : i + 20])
            if i == 600:
                model.save(tmp_path / "model")
                model = ig.load(tmp_path / "model")
    assert list(model.classes_) == ["a", "down", "north", "up"] and model.n_rows_ == 1200
    late = 0.35 if half_life is None else 0.25  # where nothing fades, 800 rows speak against the fourth
    assert np.mean(wrong[580:780]) < 0.2 and np.mean(wrong[980:]) < late
    assert np.all(p >= 0) and np.allclose(np.sum(p, axis=1), 1.0)
    alone = ig.SparseGPClassifier(method="online", **options)
    with pytest.raises(errors.LabelError, match="one class"):
        alone.partial_fit(A[:300], y[:1].repeat(300))


def test_two_classes_are_three_when_a_third_comes() -> None:
    """What was known of two stays: the first is the second turned round, the third is unlikely so far."""
    rng = np.random.default_rng(1)
    A = rng.uniform(-2, 2, (300, 2))
    model = ig.SparseGPClassifier(method="online", n_inducing=20, warmup=100, optimize=None)
    model.partial_fit(A, np.where(A[:, 0] > 0, 1, 0))
    before = model.predict_proba(A)
    model._admit(np.array([2]))
    after = model.predict_proba(A)
    assert after.shape == (300, 3) and np.max(after[:, 2]) < 0.35 and np.mean(after[:, 2]) < 0.1
    assert_array_equal(np.argmax(after, axis=1), np.argmax(before, axis=1))
    means = [post.predict(A).mean for post in model.posteriors_]
    assert_allclose(means[0], -means[1], atol=1e-9)


# Learning again.


def test_what_is_carried_over_is_what_the_new_prior_makes_of_the_sites() -> None:
    """With the basis at the rows nothing is lost: the process is that of the new kernel and mean."""
    old = ig.update(ig.prior(KERNEL, ig.means.Constant(0.3)), Gaussian(NOISE), X[:25], Y[:25], None, 1e-12)
    kernel, mean = ig.kernels.RBF([0.6, 1.1], 0.8), ig.means.Constant(-0.4)
    got = carried(old, kernel, mean).predict(XS)
    exact = ig.update(ig.prior(kernel, mean), Gaussian(NOISE), X[:25], Y[:25], None, 1e-12).predict(XS)
    assert_allclose(got.mean, exact.mean, atol=1e-6)
    assert_allclose(got.variance, exact.variance, rtol=1e-5)
    same = carried(old, KERNEL, ig.means.Constant(0.3)).predict(XS)
    assert_allclose(same.mean, old.predict(XS).mean, atol=1e-8)


def test_a_memory_keeps_what_taught_most_and_what_is_recent() -> None:
    memory = Memory.empty(500.0, 1, 1)
    rows = np.arange(4000.0)[:, None]
    leverage = np.where(np.arange(4000) % 2, 9.0, 0.2)  # variances of f, under noise of 1
    for part in np.split(np.arange(4000), [7, 500, 3990]):
        memory = memory.with_rows(rows[part], rows[part], leverage[part], Gaussian(1.0), int(part[0]) + 1)
    at_once = Memory.empty(500.0, 1, 1).with_rows(rows, rows, leverage, Gaussian(1.0), 1)
    assert_array_equal(memory.X, at_once.X)
    kept = memory.X[:, 0]
    assert len(kept) == 500 and np.all(np.diff(kept) > 0)
    assert np.mean(kept % 2) > 0.65 and np.mean(kept > 3000) > 0.6 and np.any(kept < 2500)


def test_relearning_finds_a_kernel_that_the_warm_up_could_not() -> None:
    """Flat while it warms up, then wavy in the second input."""
    rng = np.random.default_rng(0)
    A = rng.uniform(-2, 2, (2500, 2))
    y = (
        np.sin(A[:, 0])
        + np.where(np.arange(2500) > 300, np.sin(3 * A[:, 1]), 0.0)
        + 0.1 * rng.standard_normal(2500)
    )
    kept, e0, _ = streamed(A, y, half_life=300, n_inducing=60)
    model, e, std = streamed(A, y, half_life=300, n_inducing=60, relearn=500)
    assert np.mean(e[-500:] ** 2) < 0.5 * np.mean(e0[-500:] ** 2)
    assert model.kernel_.lengthscale[1] < 0.7 * kept.kernel_.lengthscale[1]
    assert 0.9 < np.mean(np.abs(e[-500:]) < 1.96 * std[-500:]) < 0.99


# Files, copies, threads, arguments.


@pytest.mark.parametrize(
    "options",
    [
        {"half_life": 50},
        {"half_life": "auto", "on_drift": "forget"},
        {"half_life": 80, "relearn": 150, "on_drift": "relearn"},
    ],
    ids=["forgets", "experts", "relearns"],
)
def test_a_changing_stream_goes_on_from_its_file(options: dict[str, Any], tmp_path: Any) -> None:
    """To the last bit, with forgetting, weights, memory and drift in the file; and again when replayed."""
    A, y = made("level", 600)
    common: dict[str, Any] = {"n_inducing": 12, "max_iter": 5, "warmup": 60, "random_state": 0} | options
    model, replayed = (ig.OnlineGPRegressor(**common) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.DriftWarning)
        for at, stop in ((0, 130), (130, 433), (433, 600)):
            model.partial_fit(A[at:stop], y[at:stop])
            replayed.partial_fit(A[at:stop], y[at:stop])
            model.save(tmp_path / "model")
            model = pickle.loads(pickle.dumps(ig.load(tmp_path / "model")))
    assert model.n_drifts_ == replayed.n_drifts_ > 0 and model.drifts_ == replayed.drifts_
    for name in ("w", "A", "L"):
        assert_array_equal(getattr(model.posterior_, name), getattr(replayed.posterior_, name))
    assert model.noise_ == replayed.noise_ and model.half_lives_ == replayed.half_lives_
    assert model.kernel_.spec() == replayed.kernel_.spec()
    assert_array_equal(model.predict(A[:20]), replayed.predict(A[:20]))


def test_a_second_thread_is_refused() -> None:
    model = plain().partial_fit(X[:20], Y[:20])
    refused = []

    def feed() -> None:
        try:
            model.partial_fit(X[20:], Y[20:])
        except errors.ParameterError as error:
            refused.append(str(error))

    class Slow(np.ndarray):  # feeds from another thread while this one has begun
        def __array__(self, *arguments: Any, **options: Any) -> Any:
            thread = threading.Thread(target=feed)
            thread.start()
            thread.join()
            return np.asarray(X[:20])

    model._checked = lambda *a, **o: (np.ndarray.__array__(X[:20].view(Slow)), Slow.__array__(X), Y[:20])[::2]
    model.partial_fit(X[:20], Y[:20])
    assert refused and "another thread" in refused[0]
    del model._checked
    model.partial_fit(X[20:40], Y[20:40])
    assert model.n_rows_ == 60


@pytest.mark.parametrize(
    ("error", "text", "options"),
    [
        (errors.ParameterError, "half_life must be a positive number", {"half_life": -1.0}),
        (errors.ParameterError, "half_life must be a positive number", {"half_life": "quick"}),
        (errors.UnknownNameError, "on_drift must be", {"on_drift": "cry"}),
        (errors.ParameterError, "relearn must be a whole number", {"relearn": 0}),
    ],
)
def test_bad_parameters(error: Any, text: str, options: dict[str, Any]) -> None:
    with pytest.raises(error, match=text):
        plain(**options).partial_fit(X, Y)


def test_time_may_be_an_input_with_a_kernel_of_its_own() -> None:
    """Ornstein-Uhlenbeck in time: the process follows a level that wanders, without any forgetting."""
    r = np.random.default_rng(0)
    t = np.arange(800.0)[:, None]
    level = np.cumsum(0.1 * r.standard_normal(800))
    A = np.hstack([r.uniform(-2, 2, (800, 1)), t])
    y = np.sin(2 * A[:, 0]) + level + 0.1 * r.standard_normal(800)
    # a variance of 5 and a lengthscale of 1000 rows: steps of variance 2 · 5 / 1000 a row
    kernel = ig.kernels.RBF(1.0, columns=(0,)) + ig.kernels.Matern12(1000.0, 5.0, columns=(1,))
    model = plain(kernel=kernel, likelihood=Gaussian(0.01), n_inducing=60, tolerance=1e-4)
    model.partial_fit(A[:1], y[:1])
    said = model.predict_then_fit(A[1:], y[1:])
    e = (y[1:] - said.mean)[400:]
    assert np.sqrt(np.mean(e**2)) < 0.25 and np.mean(np.abs(e) < 1.96 * said.std[400:]) > 0.9


# One row at a time.

ONE_BY_ONE: list[dict[str, Any]] = [
    {},
    {"half_life": 50},
    {"half_life": "auto"},
    {"half_life": 80, "relearn": 70, "on_drift": "relearn"},
    {"half_life": 60, "likelihood": "studentt"},
]


def row_by_row(options: dict[str, Any], n: int = 420) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """Models that have read 200 rows at once, and the rows after them."""
    A, y = made("level", 500)
    common: dict[str, Any] = {"n_inducing": 12, "max_iter": 5, "warmup": 60, "random_state": 0} | options
    model = ig.OnlineGPRegressor(**common).partial_fit(A[:200], y[:200])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.DriftWarning)
        for i in range(200, n):
            yield model, A[i : i + 1], y[i : i + 1]


def assert_same(model: Any, other: Any) -> None:
    for name in ("w", "A", "L"):
        assert_array_equal(getattr(model.posterior_, name), getattr(other.posterior_, name))
    assert_array_equal(model.posterior_.basis.Z, other.posterior_.basis.Z)
    assert (model.n_rows_, model.basis_size_, model.drifts_) == (
        other.n_rows_,
        len(other.posterior_),
        other.drifts_,
    )
    assert (model.noise_, model.half_lives_) == (other.noise_, other.half_lives_)
    assert model.log_predictive_ == other.log_predictive_


@pytest.mark.parametrize("options", ONE_BY_ONE, ids=str)
def test_a_row_read_straight_is_read_as_any_batch_is(options: dict[str, Any]) -> None:
    """To the last bit, whether the learner stood ready or was made anew, as after a load; the posterior is
    right whenever it is read.
    """
    straight = 0
    for i, ((model, x, y), (other, *_)) in enumerate(zip(row_by_row(options), row_by_row(options))):
        other._posts = other._posts  # makes the learner anew
        expected = other.predict_then_fit(x, y)
        assert_array_equal(np.stack(model.predict_then_fit(x, y)), np.stack(expected))
        straight += bool(model._live and model._live.rows)
        if i % 40 == 39:
            assert_same(model, other)
            assert_allclose(model.mean_at(x[0]), model.predict(x)[0], rtol=1e-9)
    assert straight > 150
    assert_same(model, other)


@pytest.mark.parametrize("options", ONE_BY_ONE[:3], ids=str)
def test_a_row_that_fails_leaves_the_model_as_it_was(options: dict[str, Any], monkeypatch: Any) -> None:
    """Whatever fails, after the learner has changed: Ctrl-C, and a warning that is an error."""
    read_row, failures = Adaptation.read_row, 0

    def interrupted(self: Any, *arguments: Any) -> Any:
        read_row(self, *arguments)
        raise KeyboardInterrupt

    for (model, x, y), (other, *_) in zip(row_by_row(options), row_by_row(options)):
        if model.n_rows_ % 60 in (20, 21) and model._live and model._adaptation.quiet:
            with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
                patched.setattr(Adaptation, "read_row", interrupted)
                model.partial_fit(x, y)
            assert_same(model, other)
            failures += 1
        with warnings.catch_warnings():
            warnings.simplefilter("error", errors.DriftWarning)
            try:
                model.partial_fit(x, y)
            except errors.DriftWarning:
                assert_same(model, other)
                warnings.simplefilter("ignore", errors.DriftWarning)
                model.partial_fit(x, y)
                failures += 1
        other.partial_fit(x, y)
    assert failures > 3
    assert_same(model, other)


def test_a_row_takes_few_calls() -> None:
    """Next to none of Python's are made for a row: a tenth of a millisecond at most, on a calm machine."""
    counts = []
    for model, x, y in row_by_row({"half_life": 1000}, 300):
        profile = cProfile.Profile()
        profile.runcall(model.partial_fit, x, y)
        counts.append(sum(entry.callcount for entry in profile.getstats()))
    assert np.median(counts) < 150  # of any kind; some 700 where nothing stands ready


def test_whoever_waits_to_ask_a_learner_is_not_answered_by_one_that_changes() -> None:
    """Reading takes the learner away under its lock; an asker that had it in hand goes without."""
    A, y = made("none", 300)
    model = ig.OnlineGPRegressor(n_inducing=15, max_iter=5, warmup=60, random_state=0)
    model.partial_fit(A[:200], y[:200]).partial_fit(A[200:201], y[200:201])
    live, rows = model._live, (A[:1] - model.x_mean_) / model.x_scale_
    assert live is not None and model._mean_at(rows) is not None
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(model._mean_at(rows)))
    with live.lock:
        thread.start()
        time.sleep(0.05)  # it has the learner, and waits for the lock
        model._live = None
    thread.join()
    assert answers == [None]
    with live.lock:  # reading waits for whoever asks
        model._live = live
        reader = threading.Thread(target=model.partial_fit, args=(A[201:300], y[201:300]))
        reader.start()
        time.sleep(0.05)
        assert model._live is live
    reader.join()
    assert model.n_rows_ == 300


def test_a_model_may_be_asked_while_it_is_fed() -> None:
    """From another thread, between rows and within: every answer is that of a model after some row."""
    A, y = made("none", 1500)
    model = ig.OnlineGPRegressor(n_inducing=15, max_iter=5, warmup=60, random_state=0)
    model.partial_fit(A[:200], y[:200])
    answers, ended = [], threading.Event()

    def ask() -> None:
        while not ended.is_set():
            answers.append((float(model.predict(A[:1])[0]), float(model.mean_at(A[0]))))

    known = [float(model.predict(A[:1])[0])]
    thread, replayed = threading.Thread(target=ask), copy.deepcopy(model)
    thread.start()
    for i in range(200, 1500):
        model.partial_fit(A[i : i + 1], y[i : i + 1])
    ended.set()
    thread.join()
    for i in range(200, 1500):
        replayed.partial_fit(A[i : i + 1], y[i : i + 1])
        known.append(float(replayed.predict(A[:1])[0]))
    for value in np.array(answers).ravel():
        assert np.min(np.abs(np.array(known) - value)) < 1e-10
    assert_same(model, replayed)


@pytest.mark.parametrize("options", [{}, {"half_life": 50}, {"half_life": "auto"}], ids=str)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_label_read_straight_is_read_as_any_batch_is(classes: int, options: dict[str, Any]) -> None:
    """To the last bit; processes and evidence are right whenever they are read."""
    A, f = made("level", 420)
    y = np.digitize(f, [0.0, 1.5][: classes - 1])
    common: dict[str, Any] = {
        "method": "online",
        "n_inducing": 12,
        "max_iter": 5,
        "random_state": 0,
    } | options
    model, other = (ig.SparseGPClassifier(warmup=60, **common).partial_fit(A[:200], y[:200]) for _ in "ab")
    straight = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.DriftWarning)
        for i in range(200, 420):
            other._posts = other._posts  # makes the learner anew
            row = slice(i, i + 1)
            assert_array_equal(model.predict_then_fit(A[row], y[row]), other.predict_then_fit(A[row], y[row]))
            straight += bool(model._live and model._live.rows)
            if i % 40 == 39 or i == 419:
                assert_array_equal(model.predict_proba(A[:9]), other.predict_proba(A[:9]))
                assert (model.log_evidence_, model.n_rows_) == (other.log_evidence_, other.n_rows_)
    assert straight > 150
    new = model.partial_fit(A[:1], np.array([classes]))  # a class that was never seen
    assert len(new.classes_) == classes + 1 and new.predict_proba(A[:1]).shape == (1, classes + 1)
