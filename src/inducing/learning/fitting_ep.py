"""Learning hyperparameters and basis for any likelihood by the log evidence of EP. [001 §5], [004 §6.1]

At a fixed point of EP, log Z does not change with the sites to first order. Its gradient is therefore that of
the FITC evidence of pseudo-targets a with noise 1/τ in each row, held as they are. [003 §6], [004 eq. 4.21]
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ..engine.parts import Parted
from ..engine.sites import Processes
from ..errors import FactorisationError
from ..inference.propagation import expectation_propagation
from ..inference.regression import gradient_of
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.likelihoods import Likelihood
from ..model.means import Mean
from ..model.problem import DEFAULT_JITTER, Problem, make_problem
from ..model.table import FITC
from ..numerics.arrays import to_numpy
from ..numerics.linalg import cholesky, jittered
from .ascent import Progress
from .settings import LogNormal
from .stages import Fit, Stage

EP = replace(FITC, name="ep")  # whose sites are found by sweeps
WEAKEST = 1e-10  # of τ k(x, x): below, a site counts as this weak, with its ν as it is


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
    the result is then a list. The likelihood stays as it is. Sites with τ < 0 count as weak ones in the
    gradient, which is exact without them.
    """
    Y = likelihood.check(to_numpy(y), processes=True)
    problem = make_problem(kernel, basis, EP, np.ones(len(Y)), X, Y, mean=mean, jitter=jitter)
    stage = Stage(
        problem,
        evidence=PropagatedEvidence(likelihood, Y, sweeps, convergence),
        optimize=optimize,
        fixed=fixed,
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


class PropagatedEvidence:
    """log Z of EP and its gradient, from the sites of the call before; Y and noise of P are not used."""

    def __init__(self, likelihood: Likelihood, y: np.ndarray, sweeps: int, convergence: float) -> None:
        self.likelihood, self.y = likelihood, y.reshape(len(y), -1)
        self.sweeps, self.convergence = sweeps, convergence
        self.sites: tuple[np.ndarray, np.ndarray] | None = None  # τ and ν, (n, c) each

    def __call__(self, P: Problem | Parted) -> tuple[float, dict[str, Any]]:
        assert isinstance(P, Problem)
        run = self._settled(P)
        values = run.log_evidence()
        if any(value is None for value in values):
            raise FactorisationError("a cavity of expectation propagation is improper")
        self.sites = run.tau.copy(), run.nu.copy()
        total: dict[str, Any] = {}
        least = WEAKEST / np.maximum(P.kernel.diag(P.X), 1e-300)
        for tau, nu in zip(run.tau.T, run.nu.T, strict=True):
            tau = np.maximum(tau, least)
            pseudo = replace(P, noise=1.0 / tau, Y=(nu / tau)[:, None], one_output=True, one_noise=False)
            for name, part in gradient_of(pseudo, escalate=False)[1].items():
                total[name] = total[name] + part if name in total else part
        return float(sum(value for value in values if value is not None)), total

    def _settled(self, P: Problem) -> Processes:
        """Sweeps from the sites of the last call until they move no more."""
        L = cholesky(jittered(P.basis.gram(P.kernel), P.jitter))
        run = Processes(P.kernel, P.basis, L, self.likelihood, P.X, self.y, P.mean, 1.0, P.jitter)
        if self.sites is not None:
            run.tau[...], run.nu[...] = self.sites
            try:
                run.rebuild()
            except FactorisationError:  # negative sites of another kernel
                run.tau[...], run.nu[...] = 0.0, 0.0
                run.rebuild()
        for _ in range(self.sweeps):
            if run.sweep(1.0) <= self.convergence:
                break
        return run
