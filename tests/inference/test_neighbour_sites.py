"""Likelihoods along neighbours: FITC's sites without neighbours, those of the exact GP with all rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing import errors
from inducing.engine import sums
from inducing.inference.neighbour_sites import settle
from inducing.inference.regression import approximation_of, problem_of
from inducing.learning.objective import PseudoTargets

RNG = np.random.default_rng(5)
X = RNG.uniform(-2, 2, (60, 2))
F = 1.5 * np.sin(2 * X[:, 0]) + X[:, 1]
XS = RNG.uniform(-2, 2, (15, 2))
KERNEL = ig.kernels.Matern32([0.9, 1.4], 1.6)
BASIS = ig.bases.Points(X[:8])
SIGNS = np.where(F + 0.5 * RNG.standard_normal(60) > 0, 1.0, -1.0)
COUNTS = RNG.poisson(np.exp(0.5 * F)).astype(float)
CASES = {
    "probit": (ig.likelihoods.Probit(1.0), SIGNS, None, None),
    "logistic": (ig.likelihoods.Logistic(), SIGNS, None, ig.means.Constant(0.3)),
    "poisson": (ig.likelihoods.Poisson(), COUNTS, None, None),
}
EXACTLY = {"tolerance": 1e-12, "sweeps": 400}


@pytest.mark.parametrize("case", CASES)
def test_without_neighbours_the_sites_are_fitcs(case):
    likelihood, y, weights, mean = CASES[case]
    options = {"weights": weights, "mean": mean} | EXACTLY
    fitc = ig.condition(KERNEL, BASIS, "fitc", likelihood, X, y, **options)
    near = ig.condition(KERNEL, BASIS, "neighbours", likelihood, X, y, neighbours=0, **options)
    sites = near.posterior.sites
    phi = fitc.features(X)
    R = KERNEL.diag(X) - np.sum(phi * phi, axis=1)
    scale = 1 + sites.tau * R
    assert_allclose(sites.tau / scale, fitc.sites.tau, atol=1e-10)
    assert_allclose(sites.nu / scale, fitc.sites.nu, atol=1e-10)
    assert_allclose(near.log_evidence, fitc.log_evidence, atol=1e-9)
    for one, two in zip(near.predict(XS), fitc.predict(XS), strict=True):
        assert_allclose(one, two, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_with_all_rows_the_evidence_is_the_exact_gps(case, weighted):
    likelihood, y, _, mean = CASES[case]
    weights = np.random.default_rng(1).integers(1, 4, 60).astype(float) if weighted else None
    rows = np.repeat(np.arange(60), 1 if weights is None else weights.astype(int))
    exact = ig.condition(KERNEL, None, "exact", likelihood, X[rows], y[rows], mean=mean, **EXACTLY)
    options = {"neighbours": 59, "weights": weights, "mean": mean} | EXACTLY
    near = ig.condition(KERNEL, BASIS, "neighbours", likelihood, X, y, **options)
    assert_allclose(near.log_evidence, exact.log_evidence, atol=1e-6)
    assert_allclose(
        ig.log_evidence(KERNEL, BASIS, "neighbours", likelihood, X, y, **options), near.log_evidence
    )
    for one, two in zip(near.predict(XS), exact.predict(XS), strict=True):
        assert_allclose(one, two, atol=1e-6)


def test_some_neighbours_come_close():
    likelihood, y, _, _ = CASES["probit"]
    exact = ig.condition(KERNEL, None, "exact", likelihood, X, y)
    errors_ = []
    for count in (0, 5, 15, 30):
        near = ig.condition(KERNEL, BASIS, "neighbours", likelihood, X, y, neighbours=count)
        assert near.posterior.sites.converged
        errors_.append(float(np.max(np.abs(near.predict(XS).mean - exact.predict(XS).mean))))
    assert errors_[0] > 2 * errors_[1] > 4 * errors_[3]


def test_the_densities_are_those_of_rows_left_out_with_the_other_sites_held():
    likelihood, y, _, _ = CASES["probit"]
    row = approximation_of("neighbours", None, 59)
    settled = settle(problem_of(KERNEL, BASIS, row, likelihood, X, y), **EXACTLY)
    for i in (0, 17, 40):
        rest = np.arange(60) != i
        noise = 1.0 / settled.tau[rest]
        post = ig.condition(KERNEL, None, "exact", noise, X[rest], (settled.nu / settled.tau)[rest])
        mean, variance = post.predict(X[[i]])
        assert_allclose(
            settled.log_densities[i], likelihood.log_average(y[[i]], mean, variance)[0], atol=1e-8
        )


def test_what_is_shared_with_other_targets_is_the_residual_of_each_block():
    likelihood, y, _, _ = CASES["probit"]
    P = problem_of(KERNEL, BASIS, approximation_of("neighbours", None, 5), likelihood, X, y)
    shared = sums.SharedBlocks()
    settle(P, shared=shared, **EXACTLY)
    Kfu, Kuu = KERNEL(X, X[:8]), KERNEL(X[:8], X[:8])
    residual = KERNEL.diag(X) - np.sum(Kfu * np.linalg.solve(Kuu, Kfu.T).T, axis=1)
    found = np.concatenate([np.diagonal(R) for R in shared.R.values()])
    assert_allclose(np.sort(found), np.sort(residual), atol=1e-6)


def test_what_is_refused():
    likelihood, y, _, _ = CASES["probit"]
    with pytest.raises(errors.ParameterError, match="has no gradient: the evidence is not stationary"):
        ig.log_evidence_and_gradient(KERNEL, BASIS, "neighbours", likelihood, X, y)
    with pytest.raises(errors.ParameterError, match="is for one process, and LearnedNoise"):
        ig.condition(KERNEL, BASIS, "neighbours", ig.likelihoods.LearnedNoise(), X, F)
    with pytest.warns(errors.IterationWarning, match="did not settle in 2 sweeps"):
        ig.condition(KERNEL, BASIS, "neighbours", likelihood, X, y, sweeps=2)


@pytest.mark.parametrize("room", [sums.BLOCK_BYTES, 1000])
def test_columns_that_share_blocks_give_the_sum_of_their_own(monkeypatch, room):
    """Classes share R, Φ and the way back through the kernel, where there is room."""
    monkeypatch.setattr(sums, "BLOCK_BYTES", room)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    signs = np.where(np.sin(X[:, :1]) + X[:, 1:2] + [-0.5, 0.0, 0.5] > 0, 1.0, -1.0)
    row = approximation_of("neighbours", None, 6)
    kernel, basis = ig.kernels.Matern52(np.full(3, 2.0), 2.0), ig.bases.Points(X[:10])
    P = problem_of(kernel, basis, row, ig.likelihoods.Probit(), X, signs[:, 0])
    together = PseudoTargets([signs[:, [j]] for j in range(3)])
    settled = together.settle(P)
    value, gradient = together(P)
    alone = []
    for j in range(3):
        one = PseudoTargets([signs[:, [j]]])
        assert one.settle(P)[0].log_evidence == pytest.approx(settled[j].log_evidence, rel=1e-13)
        alone.append(one(P))
    assert value == pytest.approx(sum(v for v, _ in alone), rel=1e-13)
    for name, g in gradient.items():
        total = sum(np.asarray(part[name]) for _, part in alone)
        np.testing.assert_allclose(g, total, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("unit", [1e-5, 1e5])
def test_the_unit_of_targets_does_not_matter(unit):
    """The density of every row is 1/unit of what it was, and f unit times."""
    values = []
    for s in (1.0, unit):
        kernel, likelihood = ig.kernels.Matern32([0.9, 1.4], 1.6 * s**2), ig.likelihoods.Laplace(0.4 * s)
        near = ig.condition(kernel, BASIS, "neighbours", likelihood, X, s * F, neighbours=5)
        mean, variance = near.predict(XS)[:2]
        values.append((near.log_evidence + 60 * np.log(s), mean / s, variance / s**2))
    for one, two in zip(*values, strict=True):
        assert_allclose(one, two, rtol=1e-6)
