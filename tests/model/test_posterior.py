"""The one posterior: what it predicts, what it is in (alpha, C), pruning and the divergence. [004 sections
3.2-3.4]
"""

from dataclasses import replace
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import inducing as ig
import oracle
from inducing.model.posterior import predict_together

LENGTHSCALE, VARIANCE = np.array([0.7, 1.1]), 1.4
K0 = oracle.bind(oracle.rbf, lengthscale=LENGTHSCALE, variance=VARIANCE)
KERNEL = ig.kernels.RBF(lengthscale=LENGTHSCALE, variance=VARIANCE)
EXACT = ("dtc", "vfe", "fitc", "pitc", "pep")  # rows with an exact test conditional
N, M = 40, 7

rng = np.random.default_rng(5)
X = rng.uniform(-2, 2, (N, 2))
XS = rng.uniform(-2.2, 2.2, (11, 2))
Y = np.cos(2 * X[:, 0]) * X[:, 1] + 0.3 * rng.standard_normal(N)
Y2 = np.stack([Y, np.sin(X[:, 1]) + X[:, 0]], axis=1)
Z = np.array([[-1.7, -1.3], [-1.2, 1.4], [0.0, 0.1], [0.3, -1.8], [0.9, 1.6], [1.6, -0.9], [1.8, 0.8]])
Z2 = np.array([[-1.5, 0.2], [0.5, 0.7], [-0.4, -1.0], [1.2, -1.9], Z[2]])  # shares one point with Z
WIDTHS = np.linspace(0.9, 1.9, 14).reshape(7, 2)
NOISE = 0.08
LABELS = np.arange(N) % 4


def keywords(name: str) -> dict[str, Any]:
    return {"blocks": LABELS} if name in oracle.BLOCKED else {"power": 0.3} if name == "pep" else {}


def bases(kind: str) -> tuple[Any, oracle.Basis]:
    if kind == "points":
        return ig.bases.Points(Z), oracle.points(K0, Z)
    return ig.bases.Multiscale(Z, WIDTHS), oracle.multiscale(Z, WIDTHS, LENGTHSCALE, VARIANCE)


def pair(
    name: str = "fitc", y: Any = Y, kind: str = "points", n: int = N
) -> tuple[Any, oracle.Basis, Any, Any]:
    """(posterior, basis, alpha, C): the package's posterior and the (alpha, C) that dense conditioning
    gives.
    """
    ours, basis = bases(kind)
    row = keywords(name)
    if "blocks" in row:
        row = {"blocks": LABELS[:n]}
    post = ig.condition(KERNEL, ours, name, NOISE, X[:n], y[:n], jitter=0.0, **row)
    alpha, C = oracle.natural_parameters(
        basis, *oracle.u_posterior(name, K0, basis, NOISE, X[:n], y[:n], **row)
    )
    return post, basis, alpha, C


def padded(alpha: Any, C: Any, keep: Any, m: int) -> tuple[Any, Any]:
    """(alpha, C) written on a larger basis, with zeros for what it does not use. [004 below eq. 3.7]"""
    a, c = np.zeros((m, *alpha.shape[1:])), np.zeros((m, m))
    a[keep], c[np.ix_(keep, keep)] = alpha, C
    return a, c


# predicting -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["points", "multiscale"])
@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("name", EXACT)
def test_natural_parameters(name: str, y: Any, kind: str) -> None:
    """alpha and C are those of dense conditioning, and mean and covariance follow from them. [004 Lemma
    2.3.1]
    """
    post, basis, alpha, C = pair(name, y, kind)
    assert post.conditional == "exact"
    assert_allclose(post.alpha, alpha, rtol=1e-7, atol=1e-8 * np.max(np.abs(alpha)))
    assert_allclose(post.C, C, rtol=1e-7, atol=1e-8 * np.max(np.abs(C)))
    mean, cov = oracle.process_at(K0, basis, post.alpha, post.C, XS)
    got_mean, got_var = post.predict(XS)
    assert_allclose(got_mean, mean, rtol=1e-9, atol=1e-9)
    assert_allclose(got_var, np.diag(cov), rtol=1e-8, atol=1e-9)
    assert_allclose(post.covariance(XS), cov, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["sor", "fic", *EXACT, "exact"])
def test_mean_alone_and_covariance_agree_with_predict(name: str) -> None:
    post = ig.condition(KERNEL, bases("points")[0], name, NOISE, X, Y2, **keywords(name))
    mean, variance = post.predict(XS)
    assert_allclose(post.mean(XS), mean, rtol=1e-12, atol=1e-14)
    twice = np.vstack([XS, XS[:4]])  # repeated queries make the covariance singular (FIC's delta is by index)
    cov = post.covariance(twice)
    assert_allclose(cov, cov.T, rtol=0, atol=1e-14)
    assert_allclose(np.diag(cov)[: len(XS)], variance, rtol=1e-10, atol=1e-12)
    assert np.linalg.eigvalsh(cov).min() > -1e-11
    assert np.all(variance > 0)


def test_prediction_in_pieces_is_prediction_at_once() -> None:
    """Chunks do not show: many queries, one by one, none."""
    post, basis, alpha, C = pair()
    many = np.random.default_rng(0).uniform(-3, 3, (9001, 2))
    mean, variance = post.predict(many)
    Ku = basis.cross(many)
    assert_allclose(mean, Ku @ alpha, rtol=1e-8, atol=1e-9)
    assert_allclose(variance, VARIANCE + np.sum(Ku @ C * Ku, axis=1), rtol=1e-7, atol=1e-8)
    for i in (0, 4500, 9000):
        one_mean, one_variance = post.predict(many[i : i + 1])
        assert_allclose([one_mean[0], one_variance[0]], [mean[i], variance[i]], rtol=1e-11, atol=1e-13)
    assert post.predict(np.zeros((0, 2)))[0].shape == (0,)


@pytest.mark.parametrize("name", ["sor", "fic", "fitc"])
def test_sample_moments(name: str) -> None:
    """Sample mean and covariance lie within five standard errors of the dense posterior's."""
    _, basis = bases("points")
    queries, size = XS[:4], 40_000
    post = ig.condition(KERNEL, bases("points")[0], name, NOISE, X, Y, jitter=0.0)
    mean, cov = oracle.condition(oracle.joint_prior(name, K0, basis, X, queries), NOISE, Y)
    draws = np.asarray(post.sample(queries, size=size, rng=0))
    assert draws.shape == (size, 4)
    sd = np.sqrt(np.diag(cov))
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * sd / np.sqrt(size))
    spread = np.sqrt((np.outer(sd, sd) ** 2 + cov**2) / size)
    assert np.all(np.abs(np.cov(draws.T) - cov) < 5 * spread)
    assert_allclose(post.sample(queries, size=3, rng=1), post.sample(queries, size=3, rng=1))


def test_samples_of_two_outputs() -> None:
    post = ig.condition(KERNEL, bases("points")[0], "fitc", NOISE, X, Y2)
    draws = np.asarray(post.sample(XS[:3], size=4000, rng=0))
    assert draws.shape == (4000, 3, 2)
    mean, variance = post.predict(XS[:3])
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / 4000)[:, None])
    assert (
        abs(np.corrcoef(draws[:, 0, 0], draws[:, 0, 1])[0, 1]) < 0.08
    )  # outputs are independent a posteriori


@pytest.mark.parametrize("kind", ["points", "multiscale"])
def test_gradient_of_the_mean(kind: str) -> None:
    """d mean / d x against central differences of the dense mean, prior mean included."""
    _, basis, alpha, _ = pair("vfe", Y, kind)
    post = ig.condition(KERNEL, bases(kind)[0], "vfe", NOISE, X, Y, jitter=0.0)
    h = 1e-5
    expected = np.stack(
        [(basis.cross(XS + h * e) @ alpha - basis.cross(XS - h * e) @ alpha) / (2 * h) for e in np.eye(2)],
        axis=1,
    )
    assert_allclose(post.gradient(XS), expected, rtol=1e-6, atol=1e-7)
    both = ig.condition(KERNEL, bases(kind)[0], "vfe", NOISE, X, np.stack([Y, 2.0 * Y], axis=1), jitter=0.0)
    assert_allclose(both.gradient(XS), np.stack([expected, 2.0 * expected], axis=2), rtol=1e-6, atol=1e-6)
    trend, mean = Y + X @ [2.0, -3.0], ig.means.Linear([2.0, -3.0])
    slope = ig.condition(KERNEL, bases(kind)[0], "vfe", NOISE, X, trend, mean=mean, jitter=0.0)
    assert_allclose(slope.gradient(XS), expected + [2.0, -3.0], rtol=1e-6, atol=1e-6)


# removing and pruning ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["points", "multiscale"])
@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("name", ["vfe", "fitc"])
def test_removal_scores(name: str, y: Any, kind: str) -> None:
    """Half of 3.26 and of 3.24, and the latter is the divergence from the process without that function."""
    post, basis, alpha, C = pair(name, y, kind)
    by_mean, by_kl = oracle.removal_scores(basis.gram, alpha, C)
    assert_allclose(post.removal_scores(score="mean"), by_mean, rtol=1e-7)
    assert_allclose(post.removal_scores(score="kl"), by_kl, rtol=1e-6)
    for i in range(M):
        keep = np.arange(M) != i
        removed = padded(*oracle.remove(basis.gram, alpha, C, i), keep, M)
        assert_allclose(
            post.removal_scores(score="kl")[i], oracle.kl_315(basis.gram, *removed, alpha, C), rtol=1e-6
        )


@pytest.mark.parametrize("kind", ["points", "multiscale"])
@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("i", [0, 3, M - 1])
def test_remove_solves_3_18_and_3_20(i: int, y: Any, kind: str) -> None:
    post, basis, alpha, C = pair("fitc", y, kind)
    keep = np.arange(M) != i
    small = post.remove(i)
    assert len(small.basis) == M - 1
    K = basis.gram
    metric = np.linalg.inv(np.linalg.inv(K) + C)  # (Q + C)^-1
    stationary = metric[keep][:, keep] @ small.alpha - metric[keep] @ alpha  # 3.18
    assert_allclose(stationary, 0, atol=1e-8 * np.max(np.abs(metric @ alpha)))
    Q_small = np.linalg.inv(K[np.ix_(keep, keep)])
    assert_allclose(
        np.linalg.inv(small.C + Q_small), metric[np.ix_(keep, keep)], rtol=1e-7, atol=1e-8
    )  # 3.20
    mean, cov = oracle.process_at(K0, basis[keep], *oracle.remove(K, alpha, C, i), XS)
    assert_allclose(small.predict(XS)[0], mean, rtol=1e-8, atol=1e-8)
    assert_allclose(small.covariance(XS), cov, rtol=1e-8, atol=1e-8)


def test_remove_is_the_minimum_of_the_divergence() -> None:
    """No process on the remaining functions is closer: dense KL at the basis points, random directions."""
    post, basis, alpha, C = pair("fitc")
    keep, extra = np.arange(M) != 4, np.vstack([Z, XS[:3]])
    small = post.remove(4)
    target = oracle.process_at(K0, basis, alpha, C, extra)

    def divergence(a: Any, c: Any) -> float:
        return oracle.gaussian_kl(*oracle.process_at(K0, basis[keep], a, c, extra), *target)

    best, r = divergence(small.alpha, small.C), np.random.default_rng(0)
    assert_allclose(best, post.removal_scores(score="kl")[4], rtol=1e-6)
    Q = np.linalg.inv(basis[keep].gram)
    L = np.linalg.cholesky(small.C + Q)
    for scale in (1e-3, 1e-2, 0.1):
        for _ in range(20):
            T = np.eye(M - 1) + scale * r.standard_normal((M - 1, M - 1))
            assert divergence(small.alpha + scale * r.standard_normal(M - 1), small.C) > best
            assert divergence(small.alpha, L @ T @ T.T @ L.T - Q) > best  # C + Q stays positive definite


def test_scores_of_the_exact_posterior() -> None:
    """There C = -(K + s2 I)^-1 and S = -I / s2: the score is a formula in q, c and alpha. [004 below eq.
    3.25]
    """
    few, y = np.vstack([Z, Z2[:4]]), Y[:11]
    post = ig.condition(KERNEL, None, "exact", NOISE, few, y, jitter=0.0)
    K = K0(few, few)
    q, inverse = np.diag(np.linalg.inv(K)), np.linalg.inv(K + NOISE * np.eye(11))
    alpha, c = inverse @ y, -np.diag(inverse)
    expected = 0.5 * (alpha**2 / (q + c) + 1 / (NOISE * q) + np.log1p(c / q))
    assert_allclose(post.removal_scores(score="kl"), expected, rtol=1e-7)
    assert_allclose(ig.kl_divergence(post.remove(5), post), expected[5], rtol=1e-6)
    gone = np.delete(np.arange(11), 5)
    reference = oracle.process_at(K0, oracle.points(K0, few[gone]), *oracle.remove(K, alpha, -inverse, 5), XS)
    assert_allclose(post.remove(5).covariance(XS), reference[1], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("score", ["mean", "kl"])
@pytest.mark.parametrize("kind", ["points", "multiscale"])
def test_prune_removes_the_least_score_again_and_again(kind: str, score: str) -> None:
    post, basis, alpha, C = pair("fitc", Y2, kind)
    kept = np.arange(M)
    while len(kept) > 3:
        scores = oracle.removal_scores(basis[kept].gram, alpha, C)[0 if score == "mean" else 1]
        i = int(np.argmin(scores))
        alpha, C = oracle.remove(basis[kept].gram, alpha, C, i)
        kept = np.delete(kept, i)
    small = post.prune(3, score=score)
    assert_allclose(small.basis.Z if kind == "points" else small.basis.centers, Z[kept])
    assert_allclose(small.alpha, alpha, rtol=1e-6, atol=1e-7)
    mean, cov = oracle.process_at(K0, basis[kept], alpha, C, XS)
    assert_allclose(small.predict(XS)[0], mean, rtol=1e-7, atol=1e-8)
    assert_allclose(small.predict(XS)[1], np.diag(cov), rtol=1e-7, atol=1e-8)
    assert (
        len(post.prune(M + 5).basis) == M and len(post.basis) == M
    )  # nothing to do; the original is untouched


def test_repeated_basis_points_are_pruned_for_nothing() -> None:
    """gamma = 0 has score zero [004 below eq. 3.23]. (Nearly repeated ones do not: they hold a
    derivative.)
    """
    post = ig.condition(KERNEL, ig.bases.Points(np.vstack([Z, Z[:3]])), "vfe", NOISE, X, Y)
    small = post.prune(M)
    assert_allclose(small.basis.Z[np.lexsort(small.basis.Z.T)], Z[np.lexsort(Z.T)])
    mean, variance = post.predict(XS)
    assert_allclose(small.predict(XS)[0], mean, rtol=1e-5, atol=1e-5)
    assert_allclose(small.predict(XS)[1], variance, rtol=1e-5, atol=1e-6)
    assert 0 <= ig.kl_divergence(small, post) + 1e-8 < 1e-3


@pytest.mark.parametrize("capacity", [5, 6])
def test_pruned_predictions_are_as_close_as_the_divergence_says(capacity: int) -> None:
    """Marginals cannot diverge by more than the processes do."""
    post, _, _, _ = pair("fitc")
    small = post.prune(capacity, score="kl")
    cost = ig.kl_divergence(small, post)
    one, two = ((p.mean(XS[:6]), p.covariance(XS[:6])) for p in (small, post))
    assert 0 < oracle.gaussian_kl(*one, *two) <= cost + 1e-7
    (mean, variance), (near, other) = post.predict(XS), small.predict(XS)
    ratio = other / variance
    assert np.all(0.5 * ((near - mean) ** 2 / variance + ratio - 1 - np.log(ratio)) <= cost + 1e-7)


@pytest.mark.parametrize("name", ["sor", "fic"])
def test_inexact_conditionals_are_refused(name: str) -> None:
    post = ig.condition(KERNEL, bases("points")[0], name, NOISE, X, Y)
    good = ig.condition(KERNEL, bases("points")[0], "fitc", NOISE, X, Y)
    assert post.conditional == {"sor": "deterministic", "fic": "independent"}[name]
    for attempt in (lambda: post.prune(3), lambda: post.remove(0), lambda: ig.kl_divergence(post, good)):
        with pytest.raises(ig.errors.ConditionalError):
            attempt()
    with pytest.raises(ig.errors.ConditionalError):
        ig.kl_divergence(good, post)


# divergence -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
def test_divergence_between_bases(y: Any) -> None:
    """Equals the KL between the two Gaussians over f at both bases and at further points. [004 eqs 3.7,
    3.15]
    """
    first = ig.condition(KERNEL, ig.bases.Points(Z), "fitc", NOISE, X, y, jitter=0.0)
    second = ig.condition(KERNEL, ig.bases.Points(Z2), "vfe", 2 * NOISE, X[:25], y[:25], jitter=0.0)
    where = np.vstack([Z, Z2[:-1], XS[:4]])
    one = oracle.condition(oracle.joint_prior("fitc", K0, oracle.points(K0, Z), X, where), NOISE, y)
    two = oracle.condition(
        oracle.joint_prior("vfe", K0, oracle.points(K0, Z2), X[:25], where), 2 * NOISE, y[:25]
    )
    assert_allclose(ig.kl_divergence(first, second), oracle.gaussian_kl(*one, *two), rtol=1e-5)
    assert_allclose(ig.kl_divergence(second, first), oracle.gaussian_kl(*two, *one), rtol=1e-5)


def test_divergence_of_processes_with_jitter_is_about_the_kernel_itself() -> None:
    """Jitter is part of how (α, C) were found, not of the prior the divergence is about: fifty digits."""
    r = np.random.default_rng(1)
    X = r.uniform(-2, 2, (150, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * r.standard_normal(150)
    basis, lengthscale, variance = X[:20], (0.7, 1.2), 1.5
    kernel = ig.kernels.RBF(np.array(lengthscale), variance)
    first, second = (
        ig.condition(kernel, ig.bases.Points(basis), "dtc", noise, X, y, jitter=1e-8)
        for noise in (0.02, 0.03)
    )
    with mp.workdps(50):

        def k(a: Any, b: Any) -> Any:
            scaled = [(mp.mpf(s) - mp.mpf(t)) / mp.mpf(length) for s, t, length in zip(a, b, lengthscale)]
            return mp.mpf(variance) * mp.exp(-mp.fsum(s * s for s in scaled) / 2)

        Kuu = mp.matrix([[k(a, b) for b in basis.tolist()] for a in basis.tolist()])
        Kuf = mp.matrix([[k(a, b) for b in X.tolist()] for a in basis.tolist()])
        prior = Kuu + mp.mpf(1e-8) * mp.mpf(variance) * mp.eye(20)

        def at_basis(noise: float) -> tuple[Any, Any]:
            S = (prior + Kuf * Kuf.T / mp.mpf(noise)) ** -1  # α = S Kuf y/σ², C = S - (Kuu + jitter)⁻¹
            return Kuu * (S * (Kuf * mp.matrix(y.tolist()) / mp.mpf(noise))), Kuu + Kuu * (
                S - prior**-1
            ) * Kuu

        (mean1, S1), (mean2, S2) = at_basis(0.02), at_basis(0.03)
        ratio, shift = S2**-1 * S1, mean2 - mean1
        expected = mp.fsum(ratio[i, i] - 1 for i in range(20)) + (shift.T * S2**-1 * shift)[0]
        expected = float(expected - mp.log(mp.det(ratio))) / 2
    assert_allclose(ig.kl_divergence(first, second), expected, rtol=3e-12)


@pytest.mark.parametrize("kind", ["points", "multiscale"])
@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
def test_divergence_on_one_basis(y: Any, kind: str) -> None:
    first, basis, alpha, C = pair("fitc", y, kind)
    second, _, alpha2, C2 = pair("dtc", y, kind, n=20)
    assert_allclose(
        ig.kl_divergence(first, second), oracle.kl_315(basis.gram, alpha, C, alpha2, C2), rtol=1e-6
    )
    assert ig.kl_divergence(first, first) == pytest.approx(0, abs=1e-8)
    if y.ndim == 1:
        expected = oracle.kl_315(basis.gram, alpha, C, 0 * alpha, 0 * C)
        assert_allclose(ig.kl_divergence(first, ig.prior(KERNEL)), expected, rtol=1e-6)


def test_divergence_needs_one_prior() -> None:
    """Another kernel or another prior mean is another feature space [004 below eq. 3.15]: refused, not
    ignored.
    """
    post = ig.condition(KERNEL, bases("points")[0], "fitc", NOISE, X, Y)
    other = ig.condition(ig.kernels.RBF(1.0, 1.0), bases("points")[0], "fitc", NOISE, X, Y)
    shifted = ig.condition(KERNEL, bases("points")[0], "fitc", NOISE, X, Y, mean=ig.means.Constant(3.0))
    for second in (other, shifted):
        with pytest.raises(ig.errors.InducingError):
            ig.kl_divergence(post, second)


def test_divergence_of_points_and_multiscale() -> None:
    """Different kinds of functionals of the same f: dense Gaussians over both u jointly."""
    first, _, alpha, C = pair("fitc", Y, "points")
    second, _, alpha2, C2 = pair("vfe", Y, "multiscale")
    widths = np.vstack([np.broadcast_to(LENGTHSCALE, Z.shape), WIDTHS])
    both = oracle.multiscale(np.vstack([Z, Z]), widths, LENGTHSCALE, VARIANCE)
    one, two = padded(alpha, C, np.arange(M), 2 * M), padded(alpha2, C2, np.arange(M, 2 * M), 2 * M)
    assert_allclose(ig.kl_divergence(first, second), oracle.kl_315(both.gram, *one, *two), rtol=1e-4)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31), m1=st.integers(1, 6), m2=st.integers(1, 6), name=st.sampled_from(EXACT[:3])
)
def test_divergence_is_never_negative(seed: int, m1: int, m2: int, name: str) -> None:
    r = np.random.default_rng(seed)
    one, two = (
        ig.condition(KERNEL, ig.bases.Points(r.uniform(-2, 2, (m, 2))), name, r.uniform(0.01, 1), X, Y)
        for m in (m1, m2)
    )
    assert ig.kl_divergence(one, two) >= -1e-7
    assert abs(ig.kl_divergence(one, one)) < 1e-7


# ill-conditioned problems against forty digits --------------------------------------------------------------

ILL = {
    "near-duplicate basis points": (np.array([-1.5, -1.5 + 1e-7, 0.0, 1e-6, 0.9, 1.7]), 1e-2, 1e-8),
    "crowded basis": (np.linspace(-2, 2, 14), 1e-2, 1e-8),
    "little noise": (np.linspace(-2, 2, 9), 1e-6, 1e-8),
    "both, less jitter": (np.linspace(-2, 2, 14), 1e-6, 1e-10),
}


@pytest.mark.parametrize("name", ["dtc", "vfe", "fitc"])
@pytest.mark.parametrize("case", ILL)
def test_ill_conditioned_against_forty_digits(case: str, name: str) -> None:
    """The error allowed is 30 m times the change that rounding the kernel matrices to float64 causes by
    itself.

    No algorithm can avoid that change, and a backward stable one (Cholesky's backward error is at most about
    m + 1 roundings of Kuu, B's likewise) multiplies it by a modest multiple of m; one that forms Kuu^-1 or
    Kuu + Kuf Kfu / s2 multiplies it by a condition number, 1e4 to 1e8 here, and fails.
    """
    z, noise, jitter = ILL[case]
    r = np.random.default_rng(11)
    A, Z, queries = r.uniform(-2, 2, (24, 1)), z[:, None], np.array([[-1.9], [-0.33], [0.0], [0.71], [2.6]])
    y = np.sin(3 * A[:, 0]) + np.sqrt(noise) * r.standard_normal(24)
    arguments, keywords = (A, Z, queries, y, noise), {"lengthscale": 1.0, "jitter": jitter}
    mean, var, evidence = oracle.high_precision(name, *arguments, **keywords)
    allowed = np.array(oracle.permitted_error(name, *arguments, **keywords)) * 30 * len(Z) + 1e-13
    post = ig.condition(ig.kernels.RBF(1.0, 1.0), ig.bases.Points(Z), name, noise, A, y, jitter=jitter)
    got_mean, got_var = post.predict(queries)
    assert post.jitter == jitter
    assert np.max(np.abs(got_mean - mean)) <= allowed[0]
    assert np.max(np.abs(post.mean(queries) - mean)) <= allowed[0]
    assert np.max(np.abs(got_var - var)) <= allowed[1]
    assert abs(post.log_evidence - evidence) <= allowed[2]


def test_exact_with_little_noise_against_forty_digits() -> None:
    r = np.random.default_rng(12)
    A, queries = r.uniform(-2, 2, (24, 1)), np.array([[-1.9], [0.0], [0.71], [2.6]])
    y = np.sin(3 * A[:, 0])
    arguments = (A, A[:1], queries, y, 1e-6)
    mean, var, evidence = oracle.high_precision("exact", *arguments)
    allowed = np.array(oracle.permitted_error("exact", *arguments)) * 30 * len(A) + 1e-13
    post = ig.condition(ig.kernels.RBF(1.0, 1.0), None, "exact", 1e-6, A, y, jitter=0.0)
    got_mean, got_var = post.predict(queries)
    assert np.max(np.abs(got_mean - mean)) <= allowed[0]
    assert np.max(np.abs(got_var - var)) <= allowed[1]
    assert abs(post.log_evidence - evidence) <= allowed[2]


@pytest.mark.parametrize("name", ["exact", "dtc", "vfe", "fitc"])
def test_forty_digits_agree_with_the_dense_reference(name: str) -> None:
    A, queries, z = X[:20, :1], XS[:3, :1], np.linspace(-2, 2, 5)[:, None]
    k = oracle.bind(oracle.rbf, lengthscale=0.8, variance=1.3)
    basis = oracle.jittered(oracle.points(k, z), 1e-3)
    got = oracle.high_precision(name, A, z, queries, Y[:20], 0.1, lengthscale=0.8, variance=1.3, jitter=1e-3)
    mean, cov = oracle.condition(oracle.joint_prior(name, k, basis, A, queries), 0.1, Y[:20])
    assert_allclose(got[0], mean, rtol=1e-11, atol=1e-12)
    assert_allclose(got[1], np.diag(cov), rtol=1e-11)
    assert_allclose(float(got[2]), oracle.log_evidence(name, k, basis, 0.1, A, Y[:20]), rtol=1e-11)


@pytest.mark.parametrize("rows", [False, True], ids=["scalar noise", "row noise"])
@pytest.mark.parametrize("name", ["sor", "vfe", "fitc"])
def test_gradient_of_an_ill_conditioned_problem(name: str, rows: bool) -> None:
    """A crowded basis, noise 1e-6 and the default jitter, relative to the largest d evidence / d log
    parameter.

    Through whitened features the errors are about 1e-8 (noise) and 1e-7 (kernel, where Luu^-T meets 1/noise);
    sums that go through an explicit Kuu^-1, such as k_u' Luu^-T (I - B^-1) Luu^-1 k_u with the middle
    multiplied out, end at 1e-3.
    """
    r, noise = np.random.default_rng(0), 1e-6
    A, z = r.uniform(-3, 3, (120, 1)), np.linspace(-3, 3, 20)[:, None]
    y = np.sin(2 * A[:, 0]) + np.sqrt(noise) * r.standard_normal(120)
    row = {"sor": "dtc"}.get(name, name)  # the same evidence
    expected = oracle.high_precision_gradient(row, A, z, y, noise, lengthscale=1.0, variance=1.0, jitter=1e-8)
    given = np.full(120, noise) if rows else noise
    _, got = ig.log_evidence_and_gradient(
        ig.kernels.RBF(1.0, 1.0), ig.bases.Points(z), name, given, A, y, jitter=1e-8
    )
    error = np.abs(
        [got["kernel.lengthscale"], got["kernel.variance"], noise * np.sum(got["noise"])] - expected
    )
    assert np.all(error <= np.array([1e-4, 1e-4, 1e-6]) * np.max(np.abs(expected)))


@pytest.mark.parametrize("case", ["more functions than rows", "functions far from the data"])
@pytest.mark.parametrize("name", ["sor", "vfe", "fitc"])
def test_gradient_where_the_data_say_nothing(name: str, case: str) -> None:
    """B = I + Phi D^-1 Phi' has eigenvalues equal to one, so I - B^-1 is singular."""
    A = X[:3, :1] if case.startswith("more") else X[:, :1]
    z = (
        np.linspace(-2, 2, 6)[:, None]
        if case.startswith("more")
        else np.array([[0.0], [1.0], [50.0], [60.0]])
    )
    y = Y[: len(A)]

    def value(p: dict[str, Any]) -> float:
        k = oracle.bind(oracle.rbf, lengthscale=p["kernel.lengthscale"], variance=p["kernel.variance"])
        return oracle.log_evidence(
            name, k, oracle.jittered(oracle.points(k, p["basis.Z"]), 1e-6), p["noise"], A, y
        )

    parameters = {"kernel.lengthscale": 1.0, "kernel.variance": 1.3, "noise": 0.1, "basis.Z": z}
    _, got = ig.log_evidence_and_gradient(
        ig.kernels.RBF(1.0, 1.3), ig.bases.Points(z), name, 0.1, A, y, jitter=1e-6
    )
    for key, expected in oracle.central_differences(value, parameters).items():
        assert_allclose(got[key], expected, rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", ["vfe", "sor", "exact"])
@pytest.mark.parametrize("mean", [None, ig.means.Constant(1.5)])
def test_posteriors_on_one_basis_are_asked_together(name: str, mean: Any) -> None:
    made = [ig.condition(KERNEL, ig.bases.Points(Z), name, NOISE, X, y, mean=mean) for y in Y2.T]
    together = predict_together(made, XS)
    for j, post in enumerate(made):
        for part, alone in zip(together, post.predict(XS)):
            assert_allclose(part[:, j], alone, rtol=1e-12, atol=1e-14)


def test_the_heuristic_score_is_the_change_of_the_mean_at_what_goes():
    """A function replaced by its projection changes the mean at its input alone, by |α|/q. [004 eq. 3.6]"""
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, (40, 1))
    kernel = ig.kernels.RBF(0.7, 1.5)
    post = ig.condition(kernel, ig.bases.Points(X[:8]), "dtc", 0.1, X, np.sin(3 * X[:, 0]))
    scores = post.removal_scores("heuristic")
    Z, K = X[:8], kernel(X[:8], X[:8])
    for i in range(8):
        rest = np.delete(np.arange(8), i)
        # k(z_i, .) replaced by its projection on the others [004 eq. 3.2]
        projected = post.alpha[rest] + post.alpha[i] * np.linalg.solve(K[np.ix_(rest, rest)], K[rest, i])
        change = post.mean(Z) - K[:, rest] @ projected
        np.testing.assert_allclose(change[rest], 0.0, atol=1e-5)
        assert scores[i] == pytest.approx(abs(change[i]), rel=1e-4)
    least = np.argmin(scores)
    assert not np.any(np.all(post.prune(7, "heuristic").basis.Z == Z[least], axis=1))
    assert post.removal_scores("heuristic", group=2).shape == (4,)
    with pytest.raises(ig.errors.UnknownNameError, match="one of mean, kl"):
        ig.update(ig.prior(kernel), ig.likelihoods.Gaussian(0.1), X, X[:, 0], 5, score="heuristic")


def test_an_exact_process_on_some_of_its_rows_is_the_dtc_one():
    """P and b of the exact GP, restricted, are those of DTC on the kept rows, [004 eqs 3.18, 3.20]."""
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((40, 2)), rng.standard_normal(40)
    k, kept = ig.kernels.Matern52(1.3, 0.8) + ig.kernels.Linear(0.2), np.arange(0, 40, 4)
    small = ig.condition(k, ig.bases.Points(X), "exact", 0.1, X, y).restrict(kept)
    dtc = ig.condition(k, ig.bases.Points(X[kept]), "dtc", 0.1, X, y)
    queries = rng.standard_normal((15, 2))
    for got, want in zip(small.predict(queries), dtc.predict(queries), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def test_functions_near_the_span_of_others_stay_below_the_prior_when_some_go():
    """B ⪰ I on the functions kept, as on all of them: I - B⁻¹ has no eigenvalue below -1e-12."""
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 1, (120, 2))
    post = ig.condition(ig.kernels.RBF(0.5, 4.0), ig.bases.Points(X[:90]), "vfe", 0.1, X, X[:, 0])
    kept = np.arange(85)
    small = post.restrict(kept)
    assert np.linalg.eigvalsh(np.eye(85) - small.A @ small.A.T)[0] > -1e-12
    assert_allclose(small.L @ small.L.T, small.basis.gram(small.kernel), rtol=0, atol=1e-12)
    assert np.all(np.diag(small.L) > 0) and small.variance_root is not None
    for got, want in zip(small.predict(X), post.predict(X), strict=True):  # the five that went say nothing
        assert_allclose(got, want, rtol=0, atol=1e-6)


def test_a_process_wider_than_its_prior_is_not_compiled():
    post = ig.condition(KERNEL, ig.bases.Points(Z), "vfe", NOISE, X, Y)
    wide = replace(post, A=np.diag(np.append(1.00001, np.linspace(0.2, 0.9, M - 1))))
    assert wide.variance_root is None
    with pytest.raises(ig.errors.ParameterError, match="wider than its prior"):
        wide.compile()


@pytest.mark.parametrize("noise", [1e-4, 1e-8, 1e-12])
def test_next_to_no_noise_has_a_variance_root(noise: float) -> None:
    """I - B⁻¹ is negative by ε|B| there; its root agrees with the joint covariance."""
    rng = np.random.default_rng(0)
    X, queries = rng.uniform(-1, 1, (200, 2)), rng.uniform(-1, 1, (20, 2))
    post = ig.condition(ig.kernels.RBF(0.7, 100.0), ig.bases.Points(X[:180]), "vfe", noise, X, X[:, 0])
    query, want = post.compile(), np.diag(post.covariance(queries))
    assert_allclose([query(x)[1] for x in queries], want, rtol=0, atol=1e-10 * 100.0)


def test_an_exact_process_predicts_without_an_inverse() -> None:
    """Of ten thousand rows L⁻¹ would take longer than conditioning did."""
    r = np.random.default_rng(0)
    X, queries = r.standard_normal((30, 2)), r.standard_normal((5, 2))
    kernel = ig.kernels.RBF(1.0, 1.0)
    post = ig.condition(kernel, None, "exact", 0.1, X, X[:, 0])
    mean, variance = post.predict(queries)
    assert "_Linv" not in vars(post)
    np.testing.assert_allclose(post.mean(queries), mean, rtol=1e-12)
    K, cross = kernel(X, X) + 0.1 * np.eye(30), kernel(queries, X)
    np.testing.assert_allclose(mean, cross @ np.linalg.solve(K, X[:, 0]), rtol=1e-12)
    explained = np.sum(cross.T * np.linalg.solve(K, cross.T), axis=0)
    np.testing.assert_allclose(variance, 1.0 - explained, rtol=1e-12)
    query = post.compile()  # the product with L⁻¹
    np.testing.assert_allclose([query(x)[1] for x in queries], variance, rtol=1e-12)
