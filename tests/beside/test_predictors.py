"""What the methods beside the table have in common."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing import errors
from inducing.beside import local

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (50, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(50)
QUERIES = RNG.uniform(-2, 2, (6, 2))
KERNEL, BASIS = ig.kernels.RBF([1.0, 1.3], 0.8), ig.bases.Points(X[:9])


def test_a_committee_finds_its_own_blocks_among_rows_that_count():
    weights = np.where(np.arange(50) % 5 == 0, 0.0, 1.0)
    with_zeros = ig.condition(KERNEL, None, "rbcm", 0.05, X, Y, weights=weights).predict(QUERIES)
    kept = weights > 0
    without = ig.condition(KERNEL, None, "rbcm", 0.05, X[kept], Y[kept]).predict(QUERIES)
    assert_allclose(with_zeros.mean, without.mean, rtol=1e-12)


@pytest.mark.parametrize("name", ["bcm", "rbcm", "gpoe", "poe", "nystrom", "asor", "local"])
def test_another_likelihood_than_gaussian_noise_is_refused(name):
    labels = np.where(Y > 0, 1.0, -1.0)
    with pytest.raises(errors.ParameterError, match=rf"'{name}' needs Gaussian noise, not Probit"):
        if name == "local":
            local.neighbours(KERNEL, ig.likelihoods.Probit(), X, labels)
        else:
            ig.condition(KERNEL, BASIS, name, ig.likelihoods.Probit(), X, labels)


@pytest.mark.parametrize(
    "name, options", [("neighbours", {"neighbours": 5}), ("pic", {"blocks": [0, 1] * 25})]
)
@pytest.mark.parametrize(
    "verb, what",
    [
        (lambda p: p.prune(4), "pruning needs"),
        (lambda p: p.removal_scores(), "removal scores need"),
        (lambda p: p.paths(2, 0), "paths need"),
        (lambda p: ig.kl_divergence(p, p), "a KL divergence needs"),
        (lambda p: ig.update(p, ig.likelihoods.Gaussian(0.1), X[:1], Y[:1]), "updating needs"),
    ],
)
def test_what_a_predictor_cannot_do_its_posterior_can(name, options, verb, what):
    model = ig.condition(KERNEL, BASIS, name, 0.05, X, Y, **options)
    with pytest.raises(errors.ParameterError, match=f"{what} a Posterior, .* use its `posterior`"):
        verb(model)
    verb(model.posterior)
