"""Online learning against plain loops of the thesis, dense formulas and 19 digits. [004 chapters 2 and 3]"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import inducing as ig
import oracle
import oracle_online
from inducing.errors import ReducedBasisWarning
from inducing.inference.online import Learner
from inducing.model.likelihoods import Gaussian, Probit
from online_problem import (
    GAUSSIAN,
    K0,
    KERNEL,
    LABELS,
    LENGTHSCALE,
    NOISE,
    VARIANCE,
    XS,
    N,
    X,
    Y,
    Z,
    relative,
)

# the algorithm ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["mean", "kl"])
@pytest.mark.parametrize("name", ["gaussian", "probit"])
@pytest.mark.parametrize("capacity", [1, 6, 15])
def test_step_by_step(capacity: int, name: str, score: Any) -> None:
    """α, C and the basis after every row are those of the plain loops. [004 §3.6]"""
    likelihood, y = (GAUSSIAN, Y) if name == "gaussian" else (Probit(0.3), LABELS)
    loops = oracle_online.gaussian(NOISE) if name == "gaussian" else oracle_online.probit(0.3)
    reference = oracle_online.Online(K0, loops, capacity, 1e-2, score)
    post = ig.prior(KERNEL)
    for i in range(N):
        reference.read(X[i], y[i], i)
        post = ig.update(post, likelihood, X[i : i + 1], y[i : i + 1], capacity, 1e-2, score)
        assert_array_equal(post.basis.Z, reference.Z)
        assert relative(post.alpha, reference.alpha) < 1e-8
        assert relative(post.C, reference.C) < 1e-8
    assert reference.closest > 1e-6, "a decision was too near to call"
    assert len(post) == capacity
    assert_allclose(post.log_predictive, reference.log_predictive, rtol=1e-9)
    at_once = ig.update(ig.prior(KERNEL), likelihood, X, y, capacity, 1e-2, score)
    assert_array_equal(at_once.basis.Z, reference.Z)
    assert relative(at_once.alpha, reference.alpha) < 1e-8
    assert relative(at_once.C, reference.C) < 1e-8
    mean, variance = reference.predict(XS)
    assert_allclose(at_once.predict(XS).mean, mean, rtol=1e-8, atol=1e-9)
    assert_allclose(at_once.predict(XS).variance, variance, rtol=1e-8, atol=1e-9)


KERNELS = {
    "matern12": ig.kernels.Matern12(1.1, 0.8),
    "matern32": ig.kernels.Matern32([0.8, 1.4]),
    "matern52": ig.kernels.Matern52(1.3),
    "rational quadratic": ig.kernels.RationalQuadratic(1.2, 1.0, shape=0.7),
    "polynomial": ig.kernels.Polynomial(3, 1.5),
    "periodic": ig.kernels.Periodic(1.0, 2.3),
    "one column": ig.kernels.RBF(0.7, columns=(1,)),
    "sum": ig.kernels.RBF(0.9) + ig.kernels.Linear(),
    "product": ig.kernels.Matern32(1.0, columns=(0,)) * ig.kernels.RBF(1.5, columns=(1,))
    + ig.kernels.Constant(0.3),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
def test_any_kernel(kernel: Any) -> None:
    reference = oracle_online.Online(lambda A, B: kernel(A, B), oracle_online.gaussian(NOISE), 7, 1e-2)
    for i in range(60):
        reference.read(X[i], Y[i], i)
    post = ig.update(ig.prior(kernel), GAUSSIAN, X[:60], Y[:60], 7, 1e-2)
    assert_array_equal(post.basis.Z, reference.Z)
    assert relative(post.alpha, reference.alpha) < 1e-7
    assert relative(post.C, reference.C) < 1e-7


@given(
    cuts=st.lists(st.integers(0, N), max_size=4),
    capacity=st.sampled_from([3, 8, None]),
    score=st.sampled_from(["mean", "kl"]),
)
@settings(deadline=None, max_examples=15)
def test_the_stream_may_come_in_pieces(cuts: list[int], capacity: Any, score: Any) -> None:
    whole = ig.update(ig.prior(KERNEL), GAUSSIAN, X, Y, capacity, 1e-2, score)
    post = ig.prior(KERNEL)
    edges = [0, *sorted(cuts), N]
    for a, b in zip(edges[:-1], edges[1:], strict=True):
        post = ig.update(post, GAUSSIAN, X[a:b], Y[a:b], capacity, 1e-2, score)
    assert_array_equal(post.basis.Z, whole.basis.Z)
    assert relative(post.alpha, whole.alpha) < 1e-8
    assert_allclose(post.log_predictive, whole.log_predictive, rtol=1e-9)


# limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rbf", "matern32"])
def test_without_capacity_it_is_the_exact_process(name: str) -> None:
    """No row projects: α = (K + σ²)⁻¹y, C = -(K + σ²)⁻¹, and Σ log⟨p⟩ is the log evidence. [004 §5.1]"""
    n = 60
    kernel: Any = KERNEL if name == "rbf" else ig.kernels.Matern32(LENGTHSCALE, VARIANCE)
    k = K0 if name == "rbf" else oracle.bind(oracle.matern32, lengthscale=LENGTHSCALE, variance=VARIANCE)
    post = ig.update(ig.prior(kernel), GAUSSIAN, X[:n], Y[:n], capacity=None, tolerance=1e-12)
    assert len(post) == n
    mean, cov = oracle.condition(oracle.joint_prior("exact", k, None, X[:n], XS), NOISE, Y[:n])
    assert_allclose(post.predict(XS).mean, mean, rtol=1e-8, atol=1e-8)
    assert_allclose(post.covariance(XS), cov, rtol=1e-8, atol=1e-8)
    assert_allclose(
        post.log_predictive, oracle.log_evidence("exact", k, None, NOISE, X[:n], Y[:n]), rtol=1e-9
    )
    assert post.log_evidence is None
    M = np.linalg.inv(k(X[:n], X[:n]) + NOISE * np.eye(n))
    assert relative(post.alpha, M @ Y[:n]) < 1e-8
    assert relative(post.C, -M) < (1e-8 if name == "matern32" else 1e-6)  # cond K = 1e9 in the RBF's case


def in_order(x: Any, order: str, r: np.random.Generator) -> Any:
    """Rows of x, given from one end to the other, in another order; "repeated" has 30 different ones."""
    n = len(x)
    if order == "repeated":
        return x[r.integers(0, 30, n) * (n // 30)]
    half = n // 2
    numbers = {
        "sorted": np.arange(n),
        "reversed": np.arange(n)[::-1],
        "shuffled": r.permutation(n),
        "both ends": np.r_[:half, n - 1 : half - 1 : -1],
    }
    return x[numbers[order]]


ANY_ORDER = ["shuffled", "sorted", "reversed", "both ends", "repeated"]


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("order", ANY_ORDER)
@pytest.mark.parametrize("d", [1, 2])
def test_without_tolerance_it_is_exact_in_any_order(d: int, order: str, noise: float) -> None:
    """A Gram matrix of 300 points is singular to rounding, and γ in a sorted stream is what is left of
    numbers 1e8 times as large: mean and variance are the exact process's all the same.
    """
    r = np.random.default_rng(5)
    x = np.linspace(-3, 3, 300)[:, None] if d == 1 else r.uniform(-2, 2, (300, 2))
    x = in_order(x[np.argsort(x[:, 0])], order, r)
    y = np.sin(2 * x[:, 0]) + np.sqrt(noise) * r.standard_normal(300)
    post = ig.update(ig.prior(ig.kernels.RBF(1.0)), Gaussian(noise), x, y, None, 0.0)
    xs = np.linspace(-3.2, 3.2, 29)[:, None] if d == 1 else r.uniform(-2.2, 2.2, (29, 2))
    mean, cov = oracle.condition(oracle.joint_prior("exact", oracle.bind(oracle.rbf), None, x, xs), noise, y)
    assert_allclose(post.predict(xs).mean, mean, atol=1e-5)
    assert_allclose(post.predict(xs).variance, np.diag(cov), rtol=1e-3)
    assert_allclose(np.diag(post.covariance(xs)), np.diag(cov), rtol=1e-3)
    assert_allclose(
        post.log_predictive,
        oracle.log_evidence("exact", oracle.bind(oracle.rbf), None, noise, x, y),
        atol=0.02,
    )


@pytest.mark.parametrize("order", ANY_ORDER)
def test_smooth_kernel_with_a_tolerance(order: str) -> None:
    """A row projected at γ = tolerance costs the mean about tolerance / noise, and there are 400."""
    r = np.random.default_rng(0)
    x = in_order(np.linspace(-3, 3, 400)[:, None], order, r)
    y = np.sin(2 * x[:, 0]) + 0.1 * r.standard_normal(400)
    post = ig.update(ig.prior(ig.kernels.RBF(1.0)), Gaussian(0.01), x, y, None, 1e-6)
    assert len(post) < 30
    xs = np.linspace(-3.2, 3.2, 29)[:, None]
    mean, cov = oracle.condition(oracle.joint_prior("exact", oracle.bind(oracle.rbf), None, x, xs), 0.01, y)
    assert_allclose(post.predict(xs).mean, mean, atol=0.02)
    assert_allclose(post.predict(xs).variance, np.diag(cov), rtol=0.1)


@pytest.mark.parametrize("kernel", [*KERNELS.values(), ig.kernels.RBF(0.05), ig.kernels.Periodic(0.3, 2.3)])
@pytest.mark.parametrize("capacity", [None, 25])
@pytest.mark.parametrize("tolerance", [0.0, 1e-6])
def test_no_order_gives_a_negative_variance(kernel: Any, capacity: Any, tolerance: float) -> None:
    r = np.random.default_rng(2)
    line = np.sort(r.uniform(-2, 2, (120, 2)), axis=0)  # along the diagonal, where neighbours are nearest
    for order in ANY_ORDER:
        x = in_order(line, order, r)
        post = ig.update(ig.prior(kernel), Gaussian(1e-5), x, np.sin(3 * x[:, 0]), capacity, tolerance)
        xs = np.concatenate([line[::10], r.uniform(-2.1, 2.1, (30, 2))])
        for variance in (post.predict(xs).variance, np.diag(post.covariance(xs))):
            assert np.all(variance > 0)
            assert np.all(variance <= kernel.diag(xs) * (1 + 1e-12))


def test_wide_and_far_sorted_streams() -> None:
    """The rows of L come from differences: a product's errors grow with the distance from its centre."""
    r = np.random.default_rng(3)
    x = np.linspace(-40, 40, 500)[:, None]
    y = np.sin(x[:, 0]) + 0.01 * r.standard_normal(500)
    xs = r.uniform(-41, 41, (50, 1))
    mean, cov = oracle.condition(oracle.joint_prior("exact", oracle.bind(oracle.rbf), None, x, xs), 1e-4, y)
    for origin in (0.0, 1e4):
        got = ig.update(ig.prior(ig.kernels.RBF(1.0)), Gaussian(1e-4), x + origin, y, None, 0.0).predict(
            xs + origin
        )
        assert_allclose(got.mean, mean, atol=1e-6 if origin == 0.0 else 1e-5)
        assert_allclose(got.variance, np.diag(cov), rtol=1e-4)


def test_given_basis_next_to_itself() -> None:
    """200 functions on a line are singular to rounding: those left of them hold the exact process, too."""
    r = np.random.default_rng(4)
    x = r.uniform(-3, 3, (300, 1))
    y, xs = np.sin(2 * x[:, 0]) + 0.1 * r.standard_normal(300), np.linspace(-3.2, 3.2, 29)[:, None]
    with pytest.warns(ReducedBasisWarning):
        start = ig.prior(ig.kernels.RBF(1.0), basis=ig.bases.Points(np.linspace(-3, 3, 200)[:, None]))
    got = ig.update(start, Gaussian(0.01), x, y, grow=False).predict(xs)
    mean, cov = oracle.condition(oracle.joint_prior("exact", oracle.bind(oracle.rbf), None, x, xs), 0.01, y)
    assert_allclose(got.mean, mean, atol=1e-5)
    assert_allclose(got.variance, np.diag(cov), rtol=1e-3)


def test_order_does_not_matter_without_sparsity() -> None:
    n = 50
    a = ig.update(ig.prior(KERNEL), GAUSSIAN, X[:n], Y[:n], None, 1e-12)
    b = ig.update(ig.prior(KERNEL), GAUSSIAN, X[:n][::-1], Y[:n][::-1], None, 1e-12)
    assert_allclose(a.predict(XS).mean, b.predict(XS).mean, rtol=1e-9, atol=1e-9)
    assert_allclose(a.predict(XS).variance, b.predict(XS).variance, rtol=1e-9, atol=1e-9)
    assert_allclose(a.log_predictive, b.log_predictive, rtol=1e-9)
    assert abs(ig.kl_divergence(a, b)) < 1e-8


@pytest.mark.parametrize("kind", ["points", "multiscale"])
def test_fixed_basis_is_dtc(kind: str) -> None:
    """Every row projected on a given basis, Gaussian noise: the same process as batch DTC. [004 §3.6.1]"""
    basis = (
        ig.bases.Points(Z)
        if kind == "points"
        else ig.bases.Multiscale(Z, np.linspace(1.0, 2.0, 14).reshape(7, 2))
    )
    start = ig.prior(KERNEL, basis=basis)
    assert_allclose(start.predict(XS).variance, VARIANCE)
    assert_allclose(start.C, 0.0, atol=1e-12)
    post = ig.update(start, GAUSSIAN, X, Y, grow=False)
    batch = ig.condition(KERNEL, basis, "dtc", NOISE, X, Y, jitter=0.0)
    assert relative(post.alpha, batch.alpha) < 1e-8
    assert relative(post.C, batch.C) < 1e-8
    assert len(post) == len(Z)


def test_given_basis_that_repeats_itself() -> None:
    with pytest.warns(ReducedBasisWarning, match="2 of 9"):
        start = ig.prior(KERNEL, basis=ig.bases.Points(np.vstack([Z[:3], Z[1], Z[3:], Z[0]])))
    assert_array_equal(start.basis.Z, Z)


@pytest.mark.parametrize("name", ["dtc", "vfe", "fitc", "pitc", "pep", "exact"])
@pytest.mark.parametrize("jitter", [0.0, 1e-8])
def test_continue_from_batch(name: str, jitter: float) -> None:
    """Half the rows in batch, by any row of the table; the others online: Bayes' rule on the batch process,
    densely.
    """
    half, more = slice(0, 60), slice(60, 90)
    keywords: dict[str, Any] = (
        {"blocks": np.arange(60) % 4} if name == "pitc" else {"power": 0.4} if name == "pep" else {}
    )
    batch = ig.condition(KERNEL, ig.bases.Points(Z), name, NOISE, X[half], Y[half], jitter=jitter, **keywords)
    post = ig.update(batch, GAUSSIAN, X[more], Y[more], capacity=None, tolerance=1e-12)
    basis = oracle.points(K0, np.asarray(batch.basis.Z))
    mean, cov = oracle.process_at(K0, basis, batch.alpha, batch.C, np.vstack([X[more], XS]))
    n = 30
    gain = np.linalg.solve(cov[:n, :n] + NOISE * np.eye(n), cov[:n, n:]).T
    assert_allclose(post.predict(XS).mean, mean[n:] + gain @ (Y[more] - mean[:n]), atol=1e-7)
    assert_allclose(post.predict(XS).variance, np.diag(cov[n:, n:] - gain @ cov[:n, n:]), atol=1e-7)
    assert post.log_evidence is None


def test_continue_from_batch_step_by_step() -> None:
    """With a capacity, the plain loops started from the batch's α and C."""
    batch = ig.condition(KERNEL, ig.bases.Points(Z), "fitc", NOISE, X[:60], Y[:60])
    reference = oracle_online.Online(K0, oracle_online.gaussian(NOISE), 9, 1e-2, inverse_every=1)
    reference.Z, reference.alpha, reference.C, reference.Q = Z, batch.alpha, batch.C, np.linalg.inv(K0(Z, Z))
    reference.rows = [-1] * len(Z)
    for i in range(60, N):
        reference.read(X[i], Y[i], i)
    post = ig.update(batch, GAUSSIAN, X[60:], Y[60:], 9, 1e-2)
    assert_array_equal(post.basis.Z, reference.Z)
    assert relative(post.alpha, reference.alpha) < 1e-7
    assert relative(post.C, reference.C) < 1e-7


def test_multiscale_basis_takes_points_in() -> None:
    """Rows join a multiscale basis with the kernel's own width."""
    widths = np.linspace(1.0, 2.0, 14).reshape(7, 2)
    batch = ig.condition(KERNEL, ig.bases.Multiscale(Z, widths), "fitc", NOISE, X[:60], Y[:60])
    post = ig.update(batch, GAUSSIAN, X[60:70], Y[60:70], capacity=None, tolerance=1e-6)
    assert isinstance(post.basis, ig.bases.Multiscale)
    assert_allclose(post.basis.widths[7:], np.broadcast_to(LENGTHSCALE, (len(post) - 7, 2)))
    basis = oracle.multiscale(Z, widths, LENGTHSCALE, VARIANCE)
    mean, cov = oracle.process_at(K0, basis, batch.alpha, batch.C, np.vstack([X[60:70], XS]))
    gain = np.linalg.solve(cov[:10, :10] + NOISE * np.eye(10), cov[:10, 10:]).T
    assert_allclose(post.predict(XS).mean, mean[10:] + gain @ (Y[60:70] - mean[:10]), atol=1e-6)


# removal ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["mean", "kl"])
def test_removal_is_optimal(score: Any) -> None:
    """The step from capacity m + 1 to m solves 3.18 and 3.20, and takes the function of least score."""
    full = ig.update(ig.prior(KERNEL), GAUSSIAN, X[:80], Y[:80], 12, 1e-2, score)
    K = K0(full.basis.Z, full.basis.Z)
    scores = oracle.removal_scores(K, full.alpha, full.C)[score == "kl"]
    i = int(np.argmin(scores))
    alpha, C = oracle.remove(K, full.alpha, full.C, i)
    pruned = ig.update(full, GAUSSIAN, X[:0], Y[:0], 11, score=score)
    assert_array_equal(pruned.basis.Z, np.delete(full.basis.Z, i, axis=0))
    assert relative(pruned.alpha, alpha) < 1e-7
    assert relative(pruned.C, C) < 1e-7
    if score == "kl":
        assert_allclose(ig.kl_divergence(pruned, full), scores[i], rtol=1e-6)


@pytest.mark.parametrize("score", ["mean", "kl"])
def test_one_row_at_a_time_inverts_nothing(score: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an update leaves for the next makes it O(m²), and the process that of one long stream."""
    begun = ig.update(ig.prior(KERNEL), GAUSSIAN, X[:40], Y[:40], 12, 1e-2, score)
    once = ig.update(begun, GAUSSIAN, X[40:80], Y[40:80], 12, 1e-2, score)
    monkeypatch.setattr("inducing.inference.online.inverse_lower", None)
    monkeypatch.setattr("inducing.inference.online_start.cholesky_escalating", None)
    post = begun
    for i in range(40, 80):
        post = ig.update(post, GAUSSIAN, X[i : i + 1], Y[i : i + 1], 12, 1e-2, score)
    assert_array_equal(post.basis.Z, once.basis.Z)
    assert relative(post.alpha, once.alpha) < 1e-12
    assert relative(post.C, once.C) < 1e-12
    with pytest.raises(TypeError):  # other factors than those that it left are factorised anew
        ig.update(post.prune(11), GAUSSIAN, X[:1], Y[:1], 12, 1e-2, score)


@pytest.mark.parametrize("likelihood", [GAUSSIAN, Probit(0.3)], ids=["gaussian", "probit"])
def test_exact_scores_stay_exact(likelihood: Any) -> None:
    """S, kept through projections and replacements, gives every removal's KL as dense algebra does. [004 eq.
    3.24, §D.2]
    """
    x, y = oracle_online.growing_stream(2000, 2)
    y = y**10 if likelihood is GAUSSIAN else np.sign(y * x[:, 0])
    learner = Learner([ig.prior(KERNEL)], likelihood, 2, 9, 1e-2, "kl", True)
    learner.read(x, y[:, None, None])
    assert np.all(learner.events[[0, 2]] >= 10)
    post = learner.posteriors()[0]
    K = K0(post.basis.Z, post.basis.Z)
    assert_allclose(learner.scores(), oracle.removal_scores(K, post.alpha, post.C)[1], rtol=1e-7)
    for i in range(len(post)):
        alpha, C = oracle.remove(K, post.alpha, post.C, i)
        keep = np.arange(len(post)) != i
        padded_alpha, padded_C = np.zeros(len(post)), np.zeros((len(post), len(post)))
        padded_alpha[keep], padded_C[np.ix_(keep, keep)] = alpha, C
        kl = oracle.kl_315(K, padded_alpha, padded_C, post.alpha, post.C)
        assert_allclose(learner.scores()[i], kl, rtol=1e-6)


def test_smaller_capacity_prunes_first() -> None:
    post = ig.update(ig.prior(KERNEL), GAUSSIAN, X, Y, 20, 1e-2)
    assert len(post) == 20
    smaller = ig.update(post, GAUSSIAN, X[:0], Y[:0], 8)
    pruned = post.prune(8)
    assert_array_equal(smaller.basis.Z, pruned.basis.Z)
    assert relative(smaller.alpha, pruned.alpha) < 1e-8


# the thesis's figures ---------------------------------------------------------------------------------------


def sinc(n: int) -> tuple[np.ndarray, np.ndarray]:
    r = np.random.default_rng(1)
    x = r.uniform(-2, 2, (n, 1))
    return x, np.sinc(x[:, 0] / np.pi) + 0.1 * r.standard_normal(n)


def test_polynomial_of_degree_five_keeps_six() -> None:
    """The feature space has six dimensions, so six basis vectors hold all the data there is. [004 Fig.
    5.1]
    """
    x, y = sinc(1000)
    post = ig.update(ig.prior(ig.kernels.Polynomial(5)), Gaussian(0.01), x, y, tolerance=1e-6)
    assert len(post) == 6
    exact = ig.condition(ig.kernels.Polynomial(5), None, "exact", 0.01, x, y)
    xs = np.linspace(-2, 2, 21)[:, None]
    assert_allclose(post.predict(xs).mean, exact.predict(xs).mean, atol=1e-6)


@pytest.mark.parametrize("n", [300, 1000, 3000])
def test_rbf_settles_whatever_the_number_of_rows(n: int) -> None:
    x, y = sinc(n)
    post = ig.update(ig.prior(ig.kernels.RBF(1.0)), Gaussian(0.01), x, y, tolerance=1e-6)
    assert len(post) <= 12
