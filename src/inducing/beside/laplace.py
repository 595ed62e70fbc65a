"""Laplace's method under a row of the table: a Gaussian about the most probable f. [003 §9]"""

from dataclasses import replace

import numpy as np

from ..errors import FactorisationError, ParameterError
from ..inference.regression import model_of, problem_of
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.likelihoods import Likelihood
from ..model.means import Mean
from ..model.posterior import Posterior
from ..numerics.arrays import Given, to_numpy
from ..numerics.linalg import row_squares

FLATTEST = 1e-10  # the least curvature of a row, relative to the largest


def laplace(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    likelihood: Likelihood,
    X: Given,
    y: Given,
    *,
    mean: Mean | None = None,
    iterations: int = 100,
    tolerance: float = 1e-10,
) -> Posterior:
    """Return the posterior about the mode of p(f|y) under a row of the table, found by Newton's method.

    With W = -∂² log p(y|f)/∂f² at the mode each row acts as an observation ỹ = f + W⁻¹ ∂log p/∂f of noise
    W⁻¹, which "exact", "sor", "dtc" or "fitc" takes as any other. The log evidence is that of these
    observations plus Σ log p(y|f) - log N(ỹ; f, W⁻¹). A step that lowers log p(y, f) is halved.
    """
    if approximation not in ("exact", "sor", "dtc", "fitc") or not likelihood.log_concave:
        given = f"not {approximation!r} and {type(likelihood).__name__}"
        raise ParameterError(f"laplace takes exact, sor, dtc or fitc and a log-concave likelihood, {given}")
    y = to_numpy(likelihood.check(y))
    f = m0 = np.zeros(len(y)) if mean is None else to_numpy(mean(X)).reshape(len(y))
    a = 0.0 * f  # f = m0 + K̃a under the row's prior covariance K̃
    best, old = -np.inf, (f, a)
    for _ in range(iterations):
        value, slope, bend = (to_numpy(part) for part in likelihood.log_density_slopes(y, f))
        height = float(np.sum(value) - 0.5 * a @ (f - m0))  # log p(y, f) up to a constant
        if height < best - 1e-12 * abs(best):
            f, a = (0.5 * (now + before) for now, before in zip((f, a), old, strict=True))
            continue
        W = np.maximum(-bend, FLATTEST * np.max(-bend))
        target = f + slope / W
        post = model_of(problem_of(kernel, basis, approximation, 1.0 / W, X, target, mean=mean))
        assert isinstance(post, Posterior)
        new = to_numpy(post.mean(X))
        if approximation == "fitc":  # the part of f that the basis does not explain moves, too
            R = kernel.diagonal(X) - row_squares(post.features(X))
            new = new + R / (R + 1.0 / W) * (target - new)
        if np.max(np.abs(new - f)) < tolerance * max(1.0, float(np.max(np.abs(f)))):
            terms = value + 0.5 * (slope**2 / W + np.log(2.0 * np.pi / W))
            return replace(post, log_evidence=(post.log_evidence or 0.0) + float(np.sum(terms)))
        best, old = height, (f, a)
        f, a = new, W * (target - new)
    raise FactorisationError(f"Newton's method did not settle in {iterations} steps; raise iterations")
