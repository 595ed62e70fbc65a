"""Methods beside the table made of a checked problem, and what they refuse."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import inducing as ig
from inducing import errors
from inducing.beside import augmentation, committee, local, nystrom
from inducing.inference.regression import problem_of
from inducing.model.table import PITC

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (50, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(50)
QUERIES = RNG.uniform(-2, 2, (6, 2))
LABELS = (X[:, 0] > 0).astype(int)
KERNEL, BASIS = ig.kernels.RBF([1.0, 1.3], 0.8), ig.bases.Points(X[:9])
ROWS = {"bcm": PITC, "rbcm": PITC, "gpoe": PITC, "poe": PITC, "nystrom": "dtc", "asor": "sor"}
MODULES = {"nystrom": nystrom, "asor": augmentation}


@pytest.mark.filterwarnings("ignore::inducing.errors.NegativeVarianceWarning")
@pytest.mark.parametrize("name", ROWS)
def test_a_checked_problem_gives_what_condition_gives(name):
    blocks = LABELS if name not in MODULES else None
    weights = RNG.uniform(0.5, 2.0, 50)
    options = {"blocks": blocks, "weights": weights, "mean": ig.means.Constant(0.2)}
    P = problem_of(
        KERNEL, ig.bases.Points(X) if blocks is not None else BASIS, ROWS[name], 0.05, X, Y, **options
    )
    found = MODULES.get(name, committee).predictor_of(P, name).predict(QUERIES)
    expected = ig.condition(KERNEL, BASIS, name, 0.05, X, Y, **options).predict(QUERIES)
    assert_array_equal(found.mean, expected.mean)
    assert_array_equal(found.variance, expected.variance)


def test_a_committee_finds_its_own_blocks_among_rows_that_count():
    weights = np.where(np.arange(50) % 5 == 0, 0.0, 1.0)
    with_zeros = ig.condition(KERNEL, None, "rbcm", 0.05, X, Y, weights=weights).predict(QUERIES)
    kept = weights > 0
    without = ig.condition(KERNEL, None, "rbcm", 0.05, X[kept], Y[kept]).predict(QUERIES)
    assert_allclose(with_zeros.mean, without.mean, rtol=1e-12)


@pytest.mark.parametrize("name", [*ROWS, "local"])
def test_another_likelihood_than_gaussian_noise_is_refused(name):
    labels = np.where(Y > 0, 1.0, -1.0)
    with pytest.raises(errors.ParameterError, match=rf"'{name}' needs Gaussian noise, not Probit"):
        if name == "local":
            local.neighbours(KERNEL, ig.likelihoods.Probit(), X, labels)
        else:
            ig.condition(KERNEL, BASIS, name, ig.likelihoods.Probit(), X, labels)
