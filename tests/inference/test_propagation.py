"""Expectation propagation against dense EP, against the thesis's own loops, against regression, and at its
fixed points.
"""

import os
from dataclasses import replace

import numpy as np
import pytest

import inducing as ig
from inducing import errors
from inducing.inference.propagation import from_sites
from inducing.inference.regression import problem_of
from inducing.learning.classes import ClassesEvidence
from inducing.learning.objective import Objective
from inducing.learning.settings import Settings
from inducing.model.likelihoods import Gaussian, Laplace, Logistic, Poisson, Probit, StudentT
from oracle_propagation import dense_ep, dense_predict, thesis_ep

RNG = np.random.default_rng(0)
n, d = 60, 2
X = RNG.standard_normal((n, d))
XS = RNG.standard_normal((25, d))
F = np.sin(2 * X[:, 0]) + X[:, 1]
y = np.sign(F + 0.5 * RNG.standard_normal(n))
KERNEL = ig.kernels.RBF(0.7, 4.0)
MATERN = ig.kernels.Matern32([0.8, 1.1], 3.0)


def close(post, other, tolerance):
    for ours, theirs in zip(
        post.predict(XS), other.predict(XS) if hasattr(other, "predict") else other, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)


# Dense EP.


@pytest.mark.parametrize("noise", [1.0, 0.1])
@pytest.mark.parametrize("kernel", [KERNEL, MATERN, ig.kernels.RBF(1.0, 1.0) + ig.kernels.Linear()])
def test_room_for_all_rows_is_dense_ep(kernel, noise):
    K, Ks = kernel(X, X), kernel(XS, X)
    nu, tau, log_Z = dense_ep(K, y, noise)
    post = ig.expectation_propagation(kernel, Probit(noise), X, y, capacity=n, sweeps=40, tolerance=1e-10)
    close(post, dense_predict(K, Ks, kernel.diag(XS), nu, tau), 1e-6)
    assert post.log_evidence == pytest.approx(log_Z, abs=1e-6)
    assert post.sites.converged and post.sites.P is None
    if len(post) == n:
        np.testing.assert_allclose(post.sites.tau, tau, rtol=1e-6)
        np.testing.assert_allclose(post.sites.nu, nu, rtol=1e-6, atol=1e-8)


def test_defaults_are_dense_ep_on_an_easy_problem():
    nu, tau, log_Z = dense_ep(MATERN(X, X), y)
    post = ig.expectation_propagation(MATERN, Probit(), X, y)
    close(post, dense_predict(MATERN(X, X), MATERN(XS, X), MATERN.diag(XS), nu, tau), 1e-6)
    assert post.log_evidence == pytest.approx(log_Z, abs=1e-6) and post.sites.n_sweeps <= 10


@pytest.mark.parametrize(
    "basis", [ig.bases.Points(X[:12]), ig.bases.Multiscale(X[:9], RNG.uniform(0.6, 1.5, (9, d)))]
)
def test_given_basis_is_dense_ep_under_the_prior_of_fitc(basis):
    Kuu, Kfu, Ksu = basis.gram(KERNEL), basis.cross(KERNEL, X), basis.cross(KERNEL, XS)
    Q, Qs = Kfu @ np.linalg.solve(Kuu, Kfu.T), Ksu @ np.linalg.solve(Kuu, Kfu.T)
    K = Q + np.diag(KERNEL.diag(X) - np.diag(Q))
    nu, tau, log_Z = dense_ep(K, y, 0.5)
    post = ig.expectation_propagation(KERNEL, Probit(0.5), X, y, basis=basis, sweeps=40, jitter=1e-14)
    close(post, dense_predict(K, Qs, KERNEL.diag(XS), nu, tau), 1e-6)
    assert post.log_evidence == pytest.approx(log_Z, abs=1e-6)
    np.testing.assert_allclose(post.sites.tau, tau, rtol=1e-6)


@pytest.mark.parametrize(
    "basis", [ig.bases.Points(X[:12]), ig.bases.Multiscale(X[:9], RNG.uniform(0.6, 1.5, (9, d)))]
)
def test_projected_rows_are_dense_ep_under_the_prior_of_dtc(basis):
    Kuu, Kfu, Ksu = basis.gram(KERNEL), basis.cross(KERNEL, X), basis.cross(KERNEL, XS)
    Q, Qs = Kfu @ np.linalg.solve(Kuu, Kfu.T), Ksu @ np.linalg.solve(Kuu, Kfu.T)
    nu, tau, log_Z = dense_ep(Q, y, 0.5)
    options = {"basis": basis, "jitter": 1e-14, "approximation": "dtc"}
    post = ig.expectation_propagation(KERNEL, Probit(0.5), X, y, sweeps=40, **options)
    close(post, dense_predict(Q, Qs, KERNEL.diag(XS), nu, tau), 1e-6)
    assert post.log_evidence == pytest.approx(log_Z, abs=1e-6)
    np.testing.assert_allclose(post.sites.tau, tau, rtol=1e-6)
    part = ig.expectation_propagation(KERNEL, Probit(0.5), X, y, sweeps=2, **options)
    close(ig.expectation_propagation(KERNEL, Probit(0.5), X, y, sweeps=38, start=part), post, 1e-6)


def test_projected_rows_of_a_gaussian_likelihood_are_dtc():
    post = ig.expectation_propagation(
        KERNEL, Gaussian(0.3), X, F, basis=ig.bases.Points(X[:12]), approximation="dtc"
    )
    batch = ig.condition(KERNEL, ig.bases.Points(X[:12]), "dtc", 0.3, X, F)
    close(post, batch, 1e-8)
    assert post.log_evidence == pytest.approx(batch.log_evidence, rel=1e-8)


def test_projection_needs_a_basis():
    with pytest.raises(errors.ParameterError, match="basis="):
        ig.expectation_propagation(KERNEL, Probit(), X, y, approximation="dtc")
    with pytest.raises(errors.UnknownNameError, match="'vfe'"):
        ig.expectation_propagation(KERNEL, Probit(), X, y, approximation="vfe")


# The thesis's loops. [004 Table G.1]


@pytest.mark.parametrize("sweeps", [1, 2, 4])
@pytest.mark.parametrize("likelihood", [Probit(0.3), Gaussian(0.2)])
def test_it_is_the_thesis_s_algorithm(likelihood, sweeps):
    rng = np.random.default_rng(102)
    rows = np.tile(np.arange(n), 6)[:320]  # more than one block, with rows that repeat
    inputs, targets = X[rows] + 1e-3 * rng.standard_normal((320, d)), y[rows]
    Z, alpha, C, a, lam, P = thesis_ep(KERNEL, likelihood, inputs, targets, 12, 1e-6, sweeps)
    post = ig.expectation_propagation(
        KERNEL, likelihood, inputs, targets, 12, sweeps=sweeps, freeze_after=sweeps
    )
    np.testing.assert_array_equal(post.basis.Z, Z)
    np.testing.assert_allclose(post.alpha, alpha, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(post.C, C, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(post.sites.a, a, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(post.sites.tau, lam, rtol=1e-6)
    np.testing.assert_allclose(post.sites.P, P, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("score", ["mean", "kl"])
def test_one_sweep_is_online_learning(score):
    online = ig.update(ig.prior(KERNEL), Probit(), X, y, 15, score=score)
    post = ig.expectation_propagation(KERNEL, Probit(), X, y, 15, sweeps=1, score=score)
    np.testing.assert_array_equal(post.basis.Z, online.basis.Z)
    close(post, online, 1e-10)


# The two parametrisations. [004 eqs 4.25, 4.26, 4.34]


def test_processes_from_sites_and_back():
    post = ig.expectation_propagation(KERNEL, Probit(), X, y, 15, sweeps=2)
    s, K = post.sites, post.basis.gram(KERNEL)
    M = np.diag(1 / s.tau) + s.P @ K @ s.P.T
    np.testing.assert_allclose(post.alpha, s.P.T @ np.linalg.solve(M, s.a), atol=1e-9)
    np.testing.assert_allclose(post.C, -s.P.T @ np.linalg.solve(M, s.P), atol=1e-9)
    close(from_sites(KERNEL, post.basis, s, X), post, 1e-10)
    whole = ig.expectation_propagation(MATERN, Probit(), X, y, None)
    assert len(whole) == n
    close(from_sites(MATERN, whole.basis, whole.sites, X), whole, 1e-10)
    inverse = np.linalg.inv(whole.C)  # Λ = -(C⁻¹ + K)⁻¹, a = -C⁻¹α
    Lam = -np.linalg.inv(inverse + whole.basis.gram(MATERN))
    np.testing.assert_allclose(Lam, np.diag(whole.sites.tau), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(-inverse @ whole.alpha, whole.sites.a, rtol=1e-6)


# Regression.


def test_gaussian_likelihood_is_regression():
    exact = ig.condition(MATERN, None, "exact", 0.2, X, F)
    post = ig.expectation_propagation(MATERN, Gaussian(0.2), X, F)
    close(post, exact, 1e-9)
    assert post.log_evidence == pytest.approx(exact.log_evidence, abs=1e-8)
    np.testing.assert_allclose(post.sites.tau, 5.0, rtol=1e-9)
    np.testing.assert_allclose(post.sites.a, F, rtol=1e-8)
    basis, mean = ig.bases.Points(X[:10]), ig.means.Linear([0.3, -0.2], 1.0)
    fitc = ig.condition(KERNEL, basis, "fitc", 0.2, X, F, mean=mean)
    post = ig.expectation_propagation(KERNEL, Gaussian(0.2), X, F, basis=basis, mean=mean)
    close(post, fitc, 1e-9)
    assert post.log_evidence == pytest.approx(fitc.log_evidence, abs=1e-8) and post.sites.n_sweeps == 2
    post = ig.expectation_propagation(MATERN, Gaussian(0.2), X, F, 10, mean=mean)
    close(post, ig.condition(MATERN, post.basis, "dtc", 0.2, X, F, mean=mean, jitter=0), 1e-9)


# Fixed points.


COUNTS = RNG.poisson(np.exp(F)).astype(float)
_RNG = np.random.default_rng(1)
OUTLIERS = F + 0.2 * _RNG.standard_normal(n) + 5.0 * (_RNG.random(n) < 0.1)


@pytest.mark.parametrize(
    ("likelihood", "targets"),
    [
        (Logistic(), y),
        (Laplace(0.3), OUTLIERS),
        (StudentT(4.0, 0.2), OUTLIERS),
        (Poisson(), COUNTS),
        (Probit(1e-3), y),
    ],
)
def test_sites_reproduce_the_moments_of_the_likelihood(likelihood, targets):
    """The fixed point of EP, whatever the likelihood: each marginal is the moments of its cavity times
    p(y|f).
    """
    mean = ig.means.Constant(0.3)
    post = ig.expectation_propagation(
        MATERN, likelihood, X, targets, None, sweeps=60, mean=mean, convergence=1e-10
    )
    assert post.sites.converged and len(post) == n
    g, s = post.predict(X)
    g, lam, b = g - 0.3, post.sites.tau, post.sites.nu
    v, m = s / (1 - lam * s), (g - s * b) / (1 - lam * s)
    q, r = likelihood.derivatives(targets, 0.3 + m, v)
    np.testing.assert_allclose(m + v * q, g, atol=1e-7)
    np.testing.assert_allclose(v + v * v * r, s, rtol=1e-7)
    if isinstance(likelihood, StudentT):
        assert lam.min() < 0  # an outlier widens the process


@pytest.mark.parametrize(
    "options", [{"damping": 0.6}, {"freeze_after": 1}, {"freeze_after": 3, "damping": 0.8}]
)
def test_damping_and_freezing_lead_to_the_same_fixed_point(options):
    one = ig.expectation_propagation(MATERN, Probit(), X, y, sweeps=60)
    two = ig.expectation_propagation(MATERN, Probit(), X, y, sweeps=60, **options)
    assert two.sites.converged
    close(one, two, 1e-6)


def test_a_row_without_a_proper_cavity_is_never_taken_for_converged():
    """These outliers have no fixed point that undamped sweeps reach; with damping they have one."""
    rng = np.random.default_rng(4)
    targets = F + 0.2 * rng.standard_normal(n) + 5.0 * (rng.random(n) < 0.1)
    likelihood, mean = StudentT(4.0, 0.2), ig.means.Constant(0.3)
    for damping in (1.0, 0.5):
        post = ig.expectation_propagation(
            MATERN, likelihood, X, targets, None, sweeps=60, mean=mean, damping=damping
        )
        cavity = 1.0 - post.sites.tau * post.predict(X)[1]
        assert np.all(np.isfinite(post.predict(XS)))
        assert post.sites.converged == (damping == 0.5) and (np.all(cavity > 0) or not post.sites.converged)


def test_order_no_longer_matters_when_the_basis_has_room():
    posts = [
        ig.expectation_propagation(KERNEL, Probit(), X[o], y[o], 55, sweeps=30)
        for o in (np.arange(n), np.random.default_rng(1).permutation(n))
    ]
    close(*posts, 1e-3)
    online = [
        ig.update(ig.prior(KERNEL), Probit(), X[o], y[o], 55) for o in (np.arange(n), np.arange(n)[::-1])
    ]
    assert np.max(np.abs(online[0].predict(XS)[0] - online[1].predict(XS)[0])) > 0.05


def test_going_on_is_going_on():
    whole = ig.expectation_propagation(KERNEL, Probit(), X, y, 15, sweeps=8, convergence=0.0)
    for first in (1, 2, 5):
        part = ig.expectation_propagation(KERNEL, Probit(), X, y, 15, sweeps=first, convergence=0.0)
        post = ig.expectation_propagation(
            KERNEL, Probit(), X, y, 15, sweeps=8 - first, start=part, convergence=0.0
        )
        close(post, whole, 1e-9)
        assert post.sites.n_sweeps == 8 and post.log_evidence == pytest.approx(whole.log_evidence, abs=1e-9)
        assert sum(post.sites.changes) == sum(whole.sites.changes) and post.sites.changes[2:] == (0,) * 6
    basis = ig.bases.Points(X[:10])
    part = ig.expectation_propagation(KERNEL, Probit(), X, y, basis=basis, sweeps=2)
    post = ig.expectation_propagation(KERNEL, Probit(), X, y, start=part, sweeps=20)
    close(post, ig.expectation_propagation(KERNEL, Probit(), X, y, basis=basis, sweeps=22), 1e-9)


class PlainProbit(Probit):
    """The same without its compiled form."""

    kind = None


@pytest.mark.parametrize(
    "options", [{"capacity": 15, "sweeps": 2}, {"capacity": 15}, {"basis": ig.bases.Points(X[:9])}]
)
def test_compiled_and_plain_likelihoods_agree(options):
    compiled = ig.expectation_propagation(KERNEL, Probit(0.5), X, y, **options)
    plain = ig.expectation_propagation(KERNEL, PlainProbit(0.5), X, y, **options)
    close(compiled, plain, 1e-12)


def test_columns_are_processes_on_one_basis():
    Y = np.column_stack([y, -y, np.where(X[:, 0] > 0, 1.0, -1.0)])
    posts = ig.expectation_propagation(MATERN, Probit(), X, Y, None, sweeps=30)
    for post, column in zip(posts, Y.T, strict=True):
        alone = ig.expectation_propagation(MATERN, Probit(), X, column, None, sweeps=30)
        close(post, alone, 1e-7)
        assert post.log_evidence == pytest.approx(alone.log_evidence, abs=1e-9)
    posts = ig.expectation_propagation(MATERN, Probit(), X, Y, 12)
    assert len(posts[0]) == 12 and all(post.basis is posts[0].basis for post in posts)
    np.testing.assert_allclose(posts[0].predict(XS)[0], -posts[1].predict(XS)[0], atol=1e-10)


def test_a_posterior_with_sites_can_be_pruned_updated_and_compared():
    post = ig.expectation_propagation(KERNEL, Probit(), X, y, 20)
    assert ig.kl_divergence(post.prune(10), post) > 0 and post.prune(10).sites is None
    assert len(ig.update(replace(post, sites=None), Probit(), XS, np.ones(len(XS)), 20)) == 20


# Learning.


@pytest.mark.parametrize(
    "basis", [ig.bases.Points(X[:8]), ig.bases.Multiscale(X[:6], RNG.uniform(1.1, 1.8, (6, d)))]
)
@pytest.mark.parametrize(
    ("likelihood", "targets"),
    [
        (Probit(), y),
        (Logistic(), y),
        (Laplace(0.3), F),
        (Probit(0.1), np.column_stack([y, np.sign(X[:, 0])])),
    ],
)
def test_gradient_of_the_evidence(basis, likelihood, targets):
    kernel, mean = ig.kernels.RBF([0.9, 1.2], 2.0), ig.means.Constant(0.2)
    columns = targets.reshape(n, -1)
    problem = problem_of(kernel, basis, "fitc", likelihood, X, columns[:, 0], mean=mean)
    evidence = ClassesEvidence(columns, tolerance=1e-11, sweeps=300)
    held = ("likelihood",) if likelihood.parameters else ()
    objective = Objective(problem, Settings(fixed=held), evidence)
    x, evaluate = objective.start, objective.value_and_gradient
    gradient = evaluate(x)[1]
    numerical = [(evaluate(x + h)[0] - evaluate(x - h)[0]) / 2e-5 for h in 1e-5 * np.eye(len(x))]
    np.testing.assert_allclose(gradient, numerical, atol=2e-9 * n, rtol=1e-6)


def test_learning_finds_the_inputs_that_matter():
    rng = np.random.default_rng(2)
    inputs = rng.standard_normal((200, 4))
    labels = np.sign(np.sin(2 * inputs[:, 2]) + 0.3 * rng.standard_normal(200))
    kernel = ig.kernels.RBF(np.full(4, 2.0), 1.0)
    seen: list[float] = []
    fit = ig.fit_expectation_propagation(
        kernel,
        ig.bases.Points(inputs[:15]),
        Probit(),
        inputs,
        labels,
        max_iterations=40,
        progress=lambda _, v: seen.append(v),
    )
    scales = fit.kernel.lengthscale
    assert np.argmin(scales) == 2 and scales[2] < 1.5 and np.min(np.delete(scales, 2)) > 3.0
    assert fit.value == pytest.approx(fit.posterior.log_evidence, abs=1e-3) and seen == sorted(seen)
    start = ig.expectation_propagation(kernel, Probit(), inputs, labels, basis=ig.bases.Points(inputs[:15]))
    assert fit.value > start.log_evidence + 20
    held = ig.fit_expectation_propagation(
        kernel,
        ig.bases.Points(inputs[:15]),
        Probit(),
        inputs,
        labels,
        optimize="hyperparameters",
        max_iterations=3,
        fixed=["kernel.variance"],
        priors={"kernel.lengthscale": ig.LogNormal(2.0, 1.0)},
        restarts=1,
        rng=0,
    )
    assert held.kernel.variance == 1.0
    np.testing.assert_array_equal(held.basis.Z, inputs[:15])


# What it says about bad input.


@pytest.mark.parametrize(
    ("error", "text", "arguments"),
    [
        (errors.LabelError, "row 3 has 2", {"y": np.where(np.arange(n) == 3, 2.0, y)}),
        (errors.ShapeError, "60 rows", {"y": y[:-1]}),
        (errors.ParameterError, "damping", {"damping": 0.0}),
        (errors.ParameterError, "capacity", {"capacity": 0}),
        (errors.ParameterError, "tolerance", {"tolerance": -1.0}),
        (errors.UnknownNameError, "removal score", {"score": "best"}),
        (errors.ShapeError, "one output", {"mean": ig.means.Constant([1.0, 2.0])}),
        (errors.ParameterError, "no sites", {"start": ig.prior(KERNEL)}),
        (errors.ParameterError, "another kernel", {"start": ig.prior(MATERN)}),
        (errors.EmptyDataError, "no rows", {"X": np.empty((0, 2)), "y": np.empty(0)}),
        (errors.WidthError, "width", {"basis": ig.bases.Multiscale(X[:5], np.full((5, d), 0.1))}),
    ],
)
def test_bad_arguments(error, text, arguments):
    good = {"kernel": KERNEL, "likelihood": Probit(), "X": X, "y": y}
    with pytest.raises(error, match=text):
        ig.expectation_propagation(**(good | arguments))


@pytest.mark.parametrize("options", [{}, {"basis": ig.bases.Points(X[:5])}])
def test_a_row_without_a_valid_site_is_named(options):
    bad = ig.likelihoods.Custom(lambda y, f: np.where(y == 7.0, np.nan, -((y - f) ** 2)))
    targets = np.where(np.arange(n) == 31, 7.0, F)
    with pytest.raises(errors.NonFiniteError, match="row 31"):
        ig.expectation_propagation(KERNEL, bad, X, targets, 8, **options)
    with pytest.raises(errors.ShapeError, match="60 rows"):
        part = ig.expectation_propagation(KERNEL, Gaussian(), X, F, 8)
        ig.expectation_propagation(KERNEL, Gaussian(), X[:50], F[:50], 8, start=part)


# Real data. [004 §5.2]


def load(name, **options):
    if "INDUCING_DATA" not in os.environ:
        pytest.skip("real data: INDUCING_DATA is not set")
    data = ig.datasets.load(name, **options)
    mean, scale = data.X_train.mean(axis=0), data.X_train.std(axis=0)
    return (
        (data.X_train - mean) / scale,
        data.y_train.astype(float),
        (data.X_test - mean) / scale,
        data.y_test,
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_crabs_needs_no_more_than_twenty_basis_functions(seed):
    """From 20 on as full EP, within one error of it, and no order matters after three sweeps. [004 Fig.
    5.4]
    """
    X, y, Xs, ys = load("crabs", seed=seed)
    kernel = ig.kernels.RBF(10.0, 1e4)  # near the evidence's optimum

    def wrong(capacity, sweeps, order):
        post = ig.expectation_propagation(kernel, Probit(), X[order], y[order], capacity, sweeps=sweeps)
        return int(np.sum(np.sign(post.mean(Xs)) != ys))

    full = wrong(80, 30, np.arange(80))
    orders = [np.random.default_rng(i).permutation(80) for i in range(8)]
    for capacity in (20, 40):
        errors = [wrong(capacity, 3, order) for order in orders]
        assert max(abs(e - full) for e in errors) <= 1
    nu, tau, _ = dense_ep(kernel(X, X), y, sweeps=30)
    mean, _ = dense_predict(kernel(X, X), kernel(Xs, X), kernel.diag(Xs), nu, tau)
    assert full == np.sum(np.sign(mean) != ys) <= 5


def test_sonar():
    """6.7 % with 100 basis functions, whatever the order. [004 Fig. 5.5]"""
    X, y, Xs, ys = load("sonar")
    kernel = ig.kernels.RBF(np.sqrt(60 * 0.25))
    wrong = []
    for i in range(5):
        order = np.random.default_rng(i).permutation(len(X))
        post = ig.expectation_propagation(kernel, Probit(1e-4), X[order], y[order], 100)
        wrong.append(np.mean(np.sign(post.mean(Xs)) != ys))
    assert np.mean(wrong) <= 0.077 and np.std(wrong) <= 0.01


@pytest.mark.parametrize("capacity", [6, 10])
def test_a_full_basis_that_changes_is_the_one_its_factor_belongs_to(capacity: int) -> None:
    """Functions that replace others in a sweep must be in the basis, although its size stays."""
    r = np.random.default_rng(0)
    inputs = r.normal(size=(60, 2))
    y, kernel = np.sin(inputs[:, 0]) + 0.1 * r.normal(size=60), ig.kernels.RBF(1.0, 1.3)
    post = ig.expectation_propagation(
        kernel, ig.likelihoods.Gaussian(0.1), inputs, y, capacity=capacity, sweeps=4
    )
    assert len(post) == capacity
    np.testing.assert_allclose(post.L @ post.L.T, kernel(post.basis.Z, post.basis.Z), rtol=1e-7, atol=1e-7)
