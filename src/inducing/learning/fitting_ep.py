"""Learning hyperparameters and basis for any likelihood by the log evidence of EP. [001 §5], [004 §6.1]

Its sites are those of FITC under the likelihood, and its evidence the same [003 §6], [004 eq. 4.21]; what is
special here is that several columns of y share kernel and basis, and that the posterior remembers its sites.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from ..inference.propagation import expectation_propagation
from ..inference.regression import problem_of
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.likelihoods import Likelihood
from ..model.means import Mean
from ..model.problem import DEFAULT_JITTER
from ..numerics.arrays import to_numpy
from .ascent import Progress
from .classes import ClassesEvidence
from .settings import LogNormal
from .stages import Fit, Stage


def fit_expectation_propagation(
    kernel: Kernel,
    basis: Basis,
    likelihood: Likelihood,
    X: Any,
    y: Any,
    *,
    optimize: Literal["all", "hyperparameters", "basis"] = "all",
    mean: Mean | None = None,
    jitter: float = DEFAULT_JITTER,
    fixed: Sequence[str] = (),
    priors: Mapping[str, LogNormal] | None = None,
    restarts: int = 0,
    max_iterations: int = 100,
    tolerance: float = 1e-6,
    sweeps: int = 50,
    convergence: float = 1e-4,
    progress: Progress | bool | None = None,
    rng: Any = None,
) -> Fit:
    """Maximise EP's log evidence over kernel, basis and prior mean, as `fit` does for regression.

    y is (n,), or (n, c) for c processes that share kernel and basis, whose evidences add up; `posterior` of
    the result is then a list. The likelihood stays as it is. `sweeps` and `convergence` are of the sites at
    each evaluation.
    """
    Y = likelihood.check(to_numpy(y), processes=True)
    Y = Y.reshape(len(Y), -1)
    stage = Stage(
        problem_of(kernel, basis, "fitc", likelihood, X, Y[:, 0], mean=mean, jitter=jitter),
        evidence=ClassesEvidence(Y, tolerance=convergence, sweeps=sweeps),
        optimize=optimize,
        fixed=(*fixed, "likelihood") if likelihood.parameters else fixed,
        priors=priors,
        restarts=restarts,
        max_iterations=max_iterations,
        tolerance=tolerance,
        progress=progress,
        rng=rng,
    )
    outcome = stage.run()
    kernel, basis, _, mean = outcome.parameters
    posterior = expectation_propagation(
        kernel, likelihood, X, y, basis=basis, sweeps=sweeps, mean=mean, jitter=outcome.jitter
    )
    return replace(outcome.fit(posterior), noise=None)
