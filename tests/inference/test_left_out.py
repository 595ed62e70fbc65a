"""Leaving out one row in closed form against refits without it."""

import numpy as np
import pytest

import inducing as ig
from inducing.errors import ParameterError


def _problem(outputs=1):
    rng = np.random.default_rng(4)
    X = rng.uniform(-2, 2, (25, 2))
    Y = np.sin(2 * X[:, :1]) * np.arange(1, outputs + 1) + 0.2 * rng.standard_normal((25, outputs))
    return X, Y[:, 0] if outputs == 1 else Y, ig.bases.Points(X[:6] + 0.1)


@pytest.mark.parametrize("approximation", ["exact", "sor", "dtc", "vfe", "fitc", "fic", "pep"])
@pytest.mark.parametrize("kind", ["plain", "noise by row", "weights", "mean", "two outputs"])
def test_equals_a_refit_without_the_row(approximation, kind):
    X, y, Z = _problem(2 if kind == "two outputs" else 1)
    rng = np.random.default_rng(5)
    noise = rng.uniform(0.05, 0.2, 25) if kind == "noise by row" else 0.1
    weights = rng.uniform(0.5, 3.0, 25) if kind == "weights" else None
    options = {"mean": ig.means.Constant(0.7)} if kind == "mean" else {}
    options |= {"power": 0.4} if approximation == "pep" else {}
    options |= {"jitter": 1e-10}
    kernel = ig.kernels.Matern52(0.9, 1.3)
    left = ig.leave_one_out(kernel, Z, approximation, noise, X, y, weights=weights, **options)
    for i in (0, 7, 24):
        rest = np.arange(25) != i
        some = noise if np.ndim(noise) == 0 else noise[rest]
        w = None if weights is None else weights[rest]
        post = ig.condition(kernel, Z, approximation, some, X[rest], y[rest], weights=w, **options)
        mean, variance = post.predict(X[i : i + 1])
        of_y = variance[0] + (noise if np.ndim(noise) == 0 else noise[i])
        assert left.mean[i] == pytest.approx(mean[0], rel=1e-8, abs=1e-9)
        assert left.variance[i] == pytest.approx(of_y, rel=1e-8)
        square = np.mean((y[i] - mean[0]) ** 2)
        assert left.log_density[i] == pytest.approx(
            -0.5 * (np.log(2 * np.pi * of_y) + square / of_y), rel=1e-7
        )
    np.testing.assert_allclose(left.std**2, left.variance)


def test_rows_that_need_the_data_are_refused():
    X, y, Z = _problem()
    with pytest.raises(ParameterError, match="fitting again"):
        ig.leave_one_out(ig.kernels.RBF(), Z, "neighbours", 0.1, X, y)
