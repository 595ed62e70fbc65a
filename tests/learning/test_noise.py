"""Learned noise: rows left out in closed form against refits, and the joint objective by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing.errors import FactorisationError
from inducing.inference.regression import as_problem, posterior_of, problem_of
from inducing.learning import noise as learned
from inducing.learning.noise import JointEvidence, left_out
from inducing.learning.objective import Objective
from inducing.learning.settings import Settings
from inducing.model.likelihoods import LearnedNoise, LearnedScaleT, LogScaleT, LogVariance

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (30, 1))
Y = np.sin(2 * X[:, 0]) + np.where(X[:, 0] > 0, 0.5, 0.05) * rng.standard_normal(30)
Z = ig.bases.Points(np.linspace(-2, 2, 6)[:, None])
KERNEL = ig.kernels.RBF([0.8], 1.2)


@pytest.mark.parametrize("row", ["vfe", "fitc"])
@pytest.mark.parametrize("noise", ["one", "by row"])
def test_rows_left_out_are_those_of_refits(row: str, noise: str) -> None:
    rng = np.random.default_rng(1)
    sigma = 0.1 if noise == "one" else rng.uniform(0.05, 0.5, 30)
    P = problem_of(KERNEL, Z, row, sigma, X, Y, jitter=1e-10)
    errors = left_out(P, posterior_of(P))
    for i in (0, 7, 29):
        rest = np.arange(30) != i
        own = sigma if noise == "one" else sigma[rest]
        refit = ig.condition(KERNEL, Z, row, own, X[rest], Y[rest], jitter=1e-10)
        mean, variance = refit.predict(X[[i]])
        assert_allclose(errors[i], [Y[i] - mean[0], variance[0]], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("width", [None, 0.25, 1.0, 4.0, 9.0, 60.0, 200.0])
@pytest.mark.parametrize("likelihood", [LogVariance(), LogScaleT(3.0)])
def test_log_variance_against_a_fine_grid(likelihood: LogVariance, width: float | None) -> None:
    rng = np.random.default_rng(2)
    e = rng.standard_normal(20) * np.exp(rng.normal(0, 1.5, 20))
    y = np.column_stack([e, np.where(np.arange(20) % 3 == 0, 0.0, np.exp(rng.normal(-2, 2, 20)))])
    mean, var = rng.normal(-1, 2, 20), np.exp(rng.normal(-1, 1, 20))
    var = var if width is None else np.full(20, width)  # None: some rows of each kind
    t = np.linspace(-12 - np.sqrt(var.max()), 12, 40001)
    weight = np.exp(-0.5 * t * t) / np.exp(-0.5 * t * t).sum()
    f = mean[:, None] + np.sqrt(var)[:, None] * t
    scale = np.sqrt(y[:, 1:] + np.exp(f))
    if isinstance(likelihood, LogScaleT):
        from scipy.stats import t as student

        dense = student.logpdf(y[:, :1], likelihood.df, scale=scale) @ weight
    else:
        from scipy.stats import norm

        dense = norm.logpdf(y[:, :1], scale=scale) @ weight
    assert_allclose(likelihood.tilted(y, mean, var, 0.0).log_average, dense, rtol=1e-9)
    q, r = likelihood.derivatives(y, mean, var, 0.0)
    h = 1e-4
    ends = [likelihood.tilted(y, mean + s * h, var, 0.0) for s in (1, -1)]
    assert_allclose(q, (ends[0].log_average - ends[1].log_average) / (2 * h), rtol=1e-6, atol=1e-7)
    assert_allclose(r, (ends[0].q - ends[1].q) / (2 * h), rtol=1e-6, atol=1e-7)


def test_errors_that_f_expects_leave_a_log_variance_that_settles() -> None:
    """Their likelihood has no lower end in g; its prior has one. Warnings are errors."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-2.0, 2.0, (400, 3))
    known = np.exp(rng.normal(-4.0, 1.0, 400) + X[:, 0])
    errors = np.column_stack([np.sqrt(known) * rng.standard_normal(400), known])
    P = problem_of(ig.kernels.RBF(np.ones(3)), ig.bases.Points(X[:40]), "vfe", 0.01, X, errors[:, 0])
    prior = learned._learned_prior(P, errors, Settings(max_iterations=40))
    assert prior.kernel.variance < 40.0
    g = learned._of_errors(P, errors, prior)
    assert np.mean(np.exp(g.predict(X)[0]) < known) > 0.9


@pytest.mark.parametrize("likelihood", [LearnedNoise(), LearnedScaleT(4.0)])
def test_gradient_of_the_joint_objective(likelihood: LearnedNoise | LearnedScaleT) -> None:
    kernels = ig.kernels.RBF([0.8], 1.2) + ig.kernels.RBF([1.5], 2.0)
    P = problem_of(kernels, Z, "vfe", likelihood, X, Y, mean=ig.means.Constant([0.1, -1.0]), jitter=1e-6)
    objective = Objective(P, Settings(), JointEvidence())
    slope = objective.value_and_gradient(objective.start)[1]
    direction = np.random.default_rng(1).standard_normal(len(slope))
    ends = [objective.value_and_gradient(objective.start + s * 1e-4 * direction)[0] for s in (1, -1)]
    assert_allclose(slope @ direction, (ends[0] - ends[1]) / 2e-4, rtol=2e-3)


@pytest.mark.parametrize("likelihood", [LearnedNoise(), LearnedScaleT(5.0)])
def test_quantiles_are_those_of_draws(likelihood: LearnedNoise | LearnedScaleT) -> None:
    rng = np.random.default_rng(3)
    means, variances = np.array([[0.0, -1.0], [1.0, 2.0]]), np.array([[0.5, 0.3], [0.1, 1.0]])
    draws = likelihood.sample(means + np.sqrt(variances) * rng.standard_normal((200_000, 2, 2)), rng)
    for p in (0.1, 0.5, 0.9):
        q = likelihood.quantile(p, means, variances)
        assert_allclose(np.mean(draws <= q, axis=0), p, atol=0.005)
        assert_allclose(likelihood.cumulative(q, means, variances), p, atol=1e-9)


def test_the_noise_is_nowhere_wider_than_its_prior() -> None:
    """Large errors among small ones, all under an unsure f, have sites of negative precision."""
    X = np.linspace(-3, 3, 60)[:, None]
    errors = np.stack([np.where(np.arange(60) % 20 == 7, 2.0, 0.02), np.full(60, 0.2)], axis=1)
    P = as_problem(ig.kernels.RBF(1.0), ig.bases.Points(X[::4]), "vfe", 0.01, X, X[:, 0])
    prior = learned.NoisePrior(ig.kernels.RBF(0.5, 2.0), ig.means.Constant(-6.0), LogVariance())
    raw = posterior_of(learned._log_variance(P, errors, prior))
    wider = np.linalg.eigvalsh(raw.A @ raw.A.T)
    assert raw.sites.tau.min() < 0 and wider[-1] > 1.01 and raw.variance_root is None
    g = learned._of_errors(P, errors, prior)
    clipped = np.linalg.eigvalsh(g.A @ g.A.T)
    assert_allclose(clipped, np.minimum(wider, 1.0), rtol=1e-3)  # of sites to a looser tolerance
    assert_allclose(g.mean(X), raw.mean(X), rtol=1e-3)
    compiled = g.compile()
    for x in X[::7] + 0.1:
        assert_allclose(compiled(x)[1], g.predict(x[None]).variance[0], rtol=1e-9)


def _mostly_zero(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 3))
    return X, np.where(rng.uniform(size=200) < 0.97, 0.0, rng.exponential(size=200))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_targets_that_are_mostly_zero_have_learned_noise(seed: int) -> None:
    """Their sites leave no process at some points of the climb. Warnings are errors."""
    X, y = _mostly_zero(seed)
    model = ig.SparseGPRegressor(noise="learned-jointly", random_state=0, max_iter=60).fit(X, y)
    assert np.all(np.isfinite(model.predict(X, return_std=True)))


def test_what_was_learned_first_is_kept_where_both_together_have_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*arguments: Any, **options: Any) -> Any:
        raise FactorisationError("the sites leave no proper process")

    settings: Any = dict(n_inducing=6, max_iter=5, random_state=0)
    first = ig.SparseGPRegressor(noise="learned", **settings).fit(X, Y)
    monkeypatch.setattr(learned, "factorise_jointly", fails)
    model = ig.SparseGPRegressor(noise="learned-jointly", **settings).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), first.predict(X))
    monkeypatch.setattr(learned, "_of_errors", fails)
    with pytest.raises(FactorisationError, match="use noise=None, or a likelihood="):
        ig.SparseGPRegressor(noise="learned", **settings).fit(X, Y)
