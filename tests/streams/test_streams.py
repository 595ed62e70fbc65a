"""Online learning with every likelihood, on bad rows, with many digits and in little memory. [004 chapters 2
and 3]
"""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import inducing as ig
import oracle
import oracle_online
from inducing.errors import (
    ConditionalError,
    InducingError,
    LabelError,
    NonFiniteError,
    ParameterError,
    ShapeError,
    UnknownNameError,
)
from inducing.inference.online import Learner
from inducing.model.likelihoods import Custom, Gaussian, Laplace, Logistic, Poisson, Probit, Step, StudentT
from online_problem import GAUSSIAN, K0, KERNEL, LABELS, NOISE, VARIANCE, XS, N, X, Y, Z, relative

# means, outputs, likelihoods --------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [ig.means.Constant(0.7), ig.means.Linear([0.3, -1.1], 0.2)])
def test_prior_means(mean: Any) -> None:
    """With a prior mean, the process of y - m₀(x) plus m₀; Gaussian and not."""
    post = ig.update(ig.prior(KERNEL, mean), GAUSSIAN, X, Y, 10, 1e-2)
    centred = ig.update(ig.prior(KERNEL), GAUSSIAN, X, Y - mean(X), 10, 1e-2)
    assert_array_equal(post.basis.Z, centred.basis.Z)
    assert_allclose(post.predict(XS).mean, centred.predict(XS).mean + mean(XS), rtol=1e-9)
    assert_allclose(post.log_predictive, centred.log_predictive, rtol=1e-9)
    student = StudentT(4.0, 0.2)
    first = ig.update(ig.prior(KERNEL, mean), student, X[:1], Y[:1])
    q, r = student.derivatives(Y[0], mean(X[:1])[0], VARIANCE)
    assert_allclose([first.alpha[0], first.C[0, 0]], [q, r], rtol=1e-10)


def test_several_outputs_share_one_variance() -> None:
    Y2 = np.stack([Y, np.cos(X[:, 0])], axis=1)
    post = ig.update(ig.prior(KERNEL), GAUSSIAN, X[:60], Y2[:60], None, 1e-12)
    for o in range(2):
        alone = ig.update(ig.prior(KERNEL), GAUSSIAN, X[:60], Y2[:60, o], None, 1e-12)
        assert_allclose(post.predict(XS).mean[:, o], alone.predict(XS).mean, rtol=1e-9, atol=1e-9)
    sparse = ig.update(ig.prior(KERNEL), GAUSSIAN, X, Y2, 10, 1e-2, "kl")
    K = K0(sparse.basis.Z, sparse.basis.Z)
    scores = oracle.removal_scores(K, sparse.alpha, sparse.C)[1]
    assert_array_equal(
        ig.update(sparse, GAUSSIAN, X[:0], Y2[:0], 9, score="kl").basis.Z,
        np.delete(sparse.basis.Z, np.argmin(scores), axis=0),
    )
    with pytest.raises(ParameterError, match="update_together"):
        ig.update(ig.prior(KERNEL), Probit(), X, np.sign(Y2))
    with pytest.raises(ShapeError, match="2 outputs"):
        ig.update(ig.update(ig.prior(KERNEL), GAUSSIAN, X, Y), GAUSSIAN, X, Y2)


@pytest.mark.parametrize(
    ("compiled", "plain", "y"),
    [
        (GAUSSIAN, Custom(GAUSSIAN.log_density, lambda y: y[:, None]), Y),
        (Probit(0.3), Custom(Probit(0.3).log_density), LABELS),
        (Step(0.1), Custom(Step(0.1).log_density, lambda y: np.zeros((len(y), 1))), LABELS),
        (Logistic(), Custom(Logistic().log_density), LABELS),
        (Laplace(0.2), Custom(Laplace(0.2).log_density, lambda y: y[:, None]), Y),
    ],
    ids=lambda v: type(v).__name__,
)
def test_compiled_and_plain_loops_agree(compiled: Any, plain: Any, y: Any) -> None:
    """The same likelihood compiled, and as a function integrated by quadrature row by row."""
    n = 60
    fast = ig.update(ig.prior(KERNEL), compiled, X[:n], y[:n], 8, 1e-2)
    slow = ig.update(ig.prior(KERNEL), plain, X[:n], y[:n], 8, 1e-2)
    assert_array_equal(fast.basis.Z, slow.basis.Z)
    assert relative(fast.alpha, slow.alpha) < 1e-7
    assert relative(fast.C, slow.C) < 1e-7
    assert_allclose(fast.log_predictive, slow.log_predictive, rtol=1e-8)


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [(Logistic(), LABELS), (StudentT(3.0, 0.2), Y), (Poisson(), np.floor(np.exp(Y))), (Step(), LABELS)],
    ids=["logistic", "student", "poisson", "step"],
)
def test_log_predictive_is_prequential(likelihood: Any, y: Any) -> None:
    post, total = ig.prior(KERNEL), 0.0
    for i in range(30):
        mean, variance = post.predict(X[i : i + 1])
        total += float(likelihood.log_average(y[i], mean[0], variance[0]))
        post = ig.update(post, likelihood, X[i : i + 1], y[i : i + 1], 10, 1e-3)
    assert_allclose(post.log_predictive, total, rtol=1e-8)


def test_an_outlier_may_widen_the_process() -> None:
    """r > 0: a distant observation under Student noise; the process stays proper and predicts."""
    y = Y.copy()
    y[::9] += 25.0
    post = ig.update(ig.prior(KERNEL), StudentT(3.0, 0.1), X, y, 15, 1e-2)
    mean, variance = post.predict(XS)
    robust = ig.update(ig.prior(KERNEL), StudentT(3.0, 0.1), X, Y, 15, 1e-2).predict(XS).mean
    fooled = ig.update(ig.prior(KERNEL), Gaussian(0.03), X, y, 15, 1e-2).predict(XS).mean
    assert np.all(variance > 0)
    assert np.mean((mean - robust) ** 2) < 0.1 * np.mean((fooled - robust) ** 2)


def test_classes_share_a_basis() -> None:
    """Three processes on one basis: plain loops with minimax deletion; one process alone is `update`. [004
    eq. 5.10]
    """
    labels = np.stack([LABELS, np.sign(X[:, 1] - 0.3), np.sign(X[:, 0] * X[:, 1])], axis=1)
    loops = [oracle_online.Online(K0, oracle_online.probit(0.3), None, 1e-2) for _ in range(3)]
    reference = oracle_online.Together(loops, 8)
    for i in range(N):
        reference.read(X[i], labels[i], i)
    posts = ig.update_together([ig.prior(KERNEL)] * 3, Probit(0.3), X, labels, 8, 1e-2)
    for post, one in zip(posts, loops, strict=True):
        assert_array_equal(post.basis.Z, one.Z)
        assert relative(post.alpha, one.alpha) < 1e-8
        assert relative(post.C, one.C) < 1e-8
        assert_allclose(post.log_predictive, one.log_predictive, rtol=1e-9)
    alone = ig.update_together([ig.prior(KERNEL)], Probit(0.3), X, labels[:, :1], 8, 1e-2)[0]
    single = ig.update(ig.prior(KERNEL), Probit(0.3), X, LABELS, 8, 1e-2)
    assert_array_equal(alone.alpha, single.alpha)
    more = ig.update_together(posts, Probit(0.3), X[:20], labels[:20], 8, 1e-2)
    assert {id(post.basis) for post in more} == {id(more[0].basis)}
    with pytest.raises(ParameterError, match="same basis"):
        ig.update_together([posts[0], single], Probit(), X, labels[:, :2])
    with pytest.raises(ParameterError, match="same kernel"):
        ig.update_together([ig.prior(KERNEL), ig.prior(ig.kernels.RBF(2.0))], Probit(), X, labels[:, :2])
    with pytest.raises(ShapeError, match="3 processes"):
        ig.update_together(posts, Probit(), X, labels[:, :2])
    with pytest.raises(ParameterError, match="none"):
        ig.update_together([], Probit(), X, labels)


# information ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [(GAUSSIAN, Y), (Probit(0.3), LABELS), (Poisson(), np.floor(np.exp(Y)))],
    ids=["g", "p", "c"],
)
def test_gain_is_the_divergence_of_the_update(likelihood: Any, y: Any) -> None:
    """Half of 3.16 is KL(after || before), densely."""
    post = ig.update(ig.prior(KERNEL), likelihood, X[:40], y[:40], 10, 1e-2)
    gains = ig.information_gain(post, likelihood, X[40:50], y[40:50])
    for i in range(10):
        row = slice(40 + i, 41 + i)
        after = ig.update(post, likelihood, X[row], y[row], None, 1e-12)
        K = K0(after.basis.Z, after.basis.Z)
        before_alpha, before_C = np.zeros(len(after)), np.zeros((len(after), len(after)))
        before_alpha[: len(post)], before_C[: len(post), : len(post)] = post.alpha, post.C
        assert_allclose(
            gains[i], oracle.kl_315(K, after.alpha, after.C, before_alpha, before_C), rtol=1e-6, atol=1e-9
        )
    assert ig.most_informative(post, likelihood, X[40:50], y[40:50]) == np.argmax(gains)


def test_gain_without_the_answer() -> None:
    """Before y is known: the average gain over what the process predicts; ½ log(1 + σ²/σ₀²) under Gaussian
    noise.
    """
    post = ig.update(ig.prior(KERNEL), Probit(0.3), X[:40], LABELS[:40], 10, 1e-2)
    mean, variance = post.predict(XS)
    p = Probit(0.3).probability(mean, variance)
    both = [ig.information_gain(post, Probit(0.3), XS, np.full(len(XS), label)) for label in (-1.0, 1.0)]
    assert_allclose(ig.information_gain(post, Probit(0.3), XS), (1 - p) * both[0] + p * both[1], rtol=1e-8)
    symmetric = ig.prior(KERNEL)  # where the mean is 0 the label makes no difference at all
    expected = ig.information_gain(symmetric, Probit(0.3), XS)
    for label in (-1.0, 1.0):
        assert_allclose(
            ig.information_gain(symmetric, Probit(0.3), XS, np.full(len(XS), label)), expected, rtol=1e-9
        )
    gaussian = ig.update(ig.prior(KERNEL), GAUSSIAN, X[:40], Y[:40])
    variance = gaussian.predict(XS).variance
    assert_allclose(ig.information_gain(gaussian, GAUSSIAN, XS), 0.5 * np.log1p(variance / NOISE), rtol=1e-9)
    assert ig.most_informative(gaussian, GAUSSIAN, XS) == np.argmax(variance)
    with pytest.raises(ParameterError, match="without its y"):
        ig.information_gain(gaussian, Poisson(), XS)
    with pytest.raises(ShapeError):
        ig.information_gain(gaussian, GAUSSIAN, XS, np.zeros((len(XS), 2)))


def test_information_first() -> None:
    """Each row read is the most informative of those left; the process is that of the rows in this order."""
    n = 25
    post = ig.update(ig.prior(KERNEL), GAUSSIAN, X[:n], Y[:n], 8, 1e-2, order="information")
    left, order, step = list(range(n)), [], ig.prior(KERNEL)
    while left:
        gains = ig.information_gain(step, GAUSSIAN, X[left], Y[left])
        i = left.pop(int(np.argmax(gains)))
        order.append(i)
        step = ig.update(step, GAUSSIAN, X[i : i + 1], Y[i : i + 1], 8, 1e-2)
    given_order = ig.update(ig.prior(KERNEL), GAUSSIAN, X[order], Y[order], 8, 1e-2)
    assert_array_equal(post.basis.Z, given_order.basis.Z)
    assert_allclose(post.predict(XS).mean, given_order.predict(XS).mean, rtol=1e-8)
    with pytest.raises(UnknownNameError, match="given"):
        ig.update(post, GAUSSIAN, X, Y, order="random")  # type: ignore[arg-type]


# bad input --------------------------------------------------------------------------------------------------


def bad(what: str) -> tuple[Any, Any, Any]:
    x, y, likelihood = X[:40].copy(), Y[:40].copy(), GAUSSIAN
    if what == "nan in x":
        x[17, 1] = np.nan
    elif what == "infinity in x":
        x[17, 0] = np.inf
    elif what == "nan in y":
        y[17] = np.nan
    elif what == "narrow row":
        return [list(row) if i != 17 else [1.0] for i, row in enumerate(x)], y, likelihood
    elif what == "label":
        y, likelihood = LABELS[:40].copy(), Probit()
        y[17] = 0.5
    elif what == "count":
        y, likelihood = np.arange(40.0), Poisson()
        y[17] = -1.0
    elif what == "impossible":
        likelihood = Custom(lambda y, f: np.where((y == 99.0) & (f < 1e9), -np.inf, -0.5 * (y - f) ** 2))
        y[17] = 99.0
    elif what == "nan density":
        likelihood = Custom(lambda y, f: np.where(y == 99.0, np.nan, -0.5 * (y - f) ** 2))
        y[17] = 99.0
    return x, y, likelihood


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("nan in x", NonFiniteError),
        ("infinity in x", NonFiniteError),
        ("nan in y", NonFiniteError),
        ("narrow row", ShapeError),
        ("label", LabelError),
        ("count", LabelError),
        ("impossible", InducingError),
        ("nan density", InducingError),
    ],
)
@pytest.mark.parametrize("fresh", [True, False], ids=["prior", "posterior"])
def test_bad_rows_are_refused_and_nothing_changes(what: str, error: type[Exception], fresh: bool) -> None:
    post = ig.prior(KERNEL) if fresh else ig.update(ig.prior(KERNEL), GAUSSIAN, X, Y, 9, 1e-2)
    before = [np.array(a) for a in (post.L, post.w, post.A, post.basis.Z)]
    x, y, likelihood = bad(what)
    with pytest.raises(error, match=r"row 17\b"):
        ig.update(post, likelihood, x, y, 9)
    for a, b in zip(before, (post.L, post.w, post.A, post.basis.Z), strict=True):
        assert_array_equal(a, b)


def test_a_good_update_leaves_the_old_posterior_too() -> None:
    post = ig.update(ig.prior(KERNEL), GAUSSIAN, X, Y, 9, 1e-2)
    before = [np.array(a) for a in (post.L, post.w, post.A, post.basis.Z)]
    ig.update(post, GAUSSIAN, X[::-1], Y[::-1], 9, 1e-2)
    for a, b in zip(before, (post.L, post.w, post.A, post.basis.Z), strict=True):
        assert_array_equal(a, b)


def test_arguments_refused() -> None:
    post = ig.update(ig.prior(KERNEL), GAUSSIAN, X, Y, 9, 1e-2)
    with pytest.raises(ShapeError, match="3 columns"):
        ig.update(post, GAUSSIAN, np.zeros((4, 3)), np.zeros(4))
    with pytest.raises(ShapeError, match="40 rows"):
        ig.update(post, GAUSSIAN, X[:40], Y[:39])
    for capacity in (0, -3, 2.5, True):
        with pytest.raises(ParameterError, match="capacity"):
            ig.update(post, GAUSSIAN, X, Y, capacity)  # type: ignore[arg-type]
    for tolerance in (-1e-3, 1.0, np.nan):
        with pytest.raises(ParameterError, match="tolerance"):
            ig.update(post, GAUSSIAN, X, Y, tolerance=tolerance)
    with pytest.raises(UnknownNameError, match="score"):
        ig.update(post, GAUSSIAN, X, Y, score="variance")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="must not be empty"):
        ig.update(ig.prior(KERNEL), GAUSSIAN, X, Y, grow=False)
    with pytest.raises(ConditionalError, match="exact"):
        ig.update(ig.condition(KERNEL, ig.bases.Points(Z), "sor", NOISE, X, Y), GAUSSIAN, X, Y)
    assert len(ig.update(post, GAUSSIAN, X[:0], Y[:0], 9)) == 9


@given(
    n=st.integers(1, 40),
    capacity=st.integers(1, 12),
    tolerance=st.sampled_from([0.0, 1e-6, 1e-2, 0.5]),
    score=st.sampled_from(["mean", "kl"]),
    repeat=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=40)
def test_never_improper(n: int, capacity: int, tolerance: float, score: Any, repeat: bool, seed: int) -> None:
    """Repeated rows, tiny noise, any capacity: a basis within it and variances between 0 and the prior's."""
    r = np.random.default_rng(seed)
    x = r.integers(-2, 3, (n, 2)).astype(float) if repeat else r.normal(size=(n, 2))
    y = r.choice([-1.0, 1.0], n)
    for likelihood in (Gaussian(1e-6), Step(), Probit(1e-3)):
        post = ig.update(ig.prior(KERNEL), likelihood, x, y, capacity, tolerance, score)
        variance = post.predict(XS).variance
        assert 1 <= len(post) <= min(n, capacity)
        assert np.all(np.isfinite(post.alpha))
        assert np.all(variance > -1e-9) and np.all(variance < VARIANCE * (1 + 1e-9))


# digits, memory ---------------------------------------------------------------------------------------------


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision on this machine")
def test_ten_thousand_rows_against_nineteen_digits() -> None:
    """The stream of 10,000 rows, thousands of which change the basis, replayed in extended precision by the
    plain loops.
    """
    x, y = oracle_online.growing_stream(10_000, 2)
    k = ig.kernels.RBF(1.2)

    def extended(A: Any, B: Any) -> Any:
        D = (A[:, None, :] - B[None, :, :]) / np.longdouble(1.2)
        return np.exp(-np.sum(D * D, axis=2) / 2)

    reference = oracle_online.Online(
        extended, oracle_online.gaussian(np.longdouble(0.01)), 20, 1e-6, dtype=np.longdouble, inverse_every=40
    )
    for i in range(len(x)):
        reference.read(x[i], y[i], i)
    learner = Learner([ig.prior(k)], Gaussian(0.01), 2, 20, 1e-6, "mean", True)
    learner.read(x, y[:, None, None])
    assert learner.events[2] > 3000
    post = learner.posteriors()[0]
    assert_array_equal(post.basis.Z, reference.Z.astype(float))
    assert relative(post.alpha, reference.alpha) < 1e-6
    assert relative(post.C, reference.C) < 1e-6
    xs = np.random.default_rng(1).uniform(-3, 3, (50, 2))
    mean, variance = reference.predict(xs)
    assert relative(post.predict(xs).mean, mean) < 1e-8
    assert_allclose(post.predict(xs).variance, variance.astype(float), atol=1e-8)
    assert_allclose(post.log_predictive, float(reference.log_predictive), rtol=1e-8)


def test_no_drift() -> None:
    """LLᵀ = K to the last digits after 30,000 rows, though K is never factorised; |QK - I| is what its
    condition allows.
    """
    x, y = oracle_online.growing_stream(30_000, 2)
    k = ig.kernels.RBF(1.0)
    learner = Learner([ig.prior(k)], Gaussian(0.01), 2, 60, 1e-6, "mean", True)
    learner.read(x, y[:, None, None])
    assert learner.events[2] > 10_000
    post = learner.posteriors()[0]
    K = k(post.basis.Z, post.basis.Z)
    Linv = np.linalg.inv(post.L)
    assert np.max(np.abs(post.L @ post.L.T - K)) < 1e-13
    assert np.max(np.abs(Linv.T @ Linv @ K - np.eye(60))) < 1e-8


MEMORY = """
import json, resource, sys
import numpy as np
import inducing as ig

UNIT = 1 if sys.platform == "darwin" else 1024
k, r = ig.kernels.RBF(2.0), np.random.default_rng(0)
post, peaks = ig.prior(k), []
for chunk in range(20):
    X = r.normal(size=(10_000, 10))
    post = ig.update(post, ig.likelihoods.Gaussian(0.1), X, np.sin(X[:, 0]), capacity=50)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT)
print(json.dumps(dict(growth=peaks[-1] - peaks[3], size=len(post))))
"""


def test_memory_does_not_grow_with_the_stream() -> None:
    pytest.importorskip("resource")
    run = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout.splitlines()[-1])
    assert result["size"] == 50
    assert result["growth"] < 4e6, "something is kept per row"
