"""Functions behind the pages of remarks, against answers known otherwise."""

import numpy as np
import pytest
from scipy.optimize import minimize

import inducing as ig
from experiments.csato_query import divergence, informative_first
from experiments.csato_removal import diagonal_loss, pairs, recursion
from experiments.unifying_more import ais, edges


@pytest.fixture(scope="module")
def post() -> ig.Posterior:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (20, 1))
    return ig.update(ig.prior(ig.kernels.RBF(0.4)), ig.likelihoods.Gaussian(0.1), X, np.sin(3 * X[:, 0]), 4)


def test_the_best_diagonal_C_by_another_search(post: ig.Posterior) -> None:
    Q = np.linalg.inv(post.kernel(post.basis.Z, post.basis.Z))
    P = np.linalg.inv(Q + post.C)

    def kl(d: np.ndarray) -> float:
        A = Q + np.diag(d)
        if np.linalg.eigvalsh(A)[0] <= 0:
            return 1e6
        return 0.5 * (np.sum(P * A) - 4 - np.linalg.slogdet(P @ A)[1])

    best = minimize(
        kl, np.zeros(4), method="Nelder-Mead", options={"maxiter": 20_000, "xatol": 1e-9, "fatol": 1e-12}
    )
    assert diagonal_loss(post)[0] == pytest.approx(best.fun, abs=1e-6)


def test_pairs_and_the_recursion(post: ig.Posterior) -> None:
    best, greedy = pairs(post)
    assert 0.0 < best <= greedy + 1e-12
    assert recursion(post, 2) < 1e-9


def test_annealed_sampling_of_one_and_of_two_labels() -> None:
    rng = np.random.default_rng(0)
    one = ais(ig.kernels.RBF(1.0, 4.0), np.zeros((1, 1)), np.ones(1), rng, 200)
    assert one == pytest.approx(np.log(0.5), abs=0.05)
    # two equal inputs, equal labels: P(f + e1 > 0, f + e2 > 0) = 1/4 + arcsin(ρ)/2π with ρ = 4/5
    two = ais(ig.kernels.RBF(1.0, 4.0), np.zeros((2, 1)), np.ones(2), rng, 200)
    assert two == pytest.approx(np.log(0.25 + np.arcsin(0.8) / (2 * np.pi)), abs=0.05)


def test_divergence_is_the_kl_of_the_update() -> None:
    kernel, likelihood = ig.kernels.RBF(0.7), ig.likelihoods.Probit(1.0)
    X, y = np.array([[0.0], [0.5], [1.5]]), np.array([1.0, -1.0, 1.0])
    old = ig.update(ig.prior(kernel), likelihood, X[:2], y[:2], None, 0.0)
    new = ig.update(old, likelihood, X[2:], y[2:], None, 0.0)
    gain = divergence(likelihood, y[2:], *old.predict(X[2:]))
    assert gain[0] == pytest.approx(ig.kl_divergence(new, old), rel=1e-6)
    order = informative_first(kernel, likelihood, X, y, 3)
    assert sorted(order) == [0, 1, 2]


def test_graphs_follow_from_the_table() -> None:
    assert edges("fitc") == edges("sor") == {("u", f) for f in ("f1", "f2", "f3", "f*")}
    assert edges("pitc") - edges("fitc") == {("f1", "f2")}
    assert len(edges("exact")) == 6
