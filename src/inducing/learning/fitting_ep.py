"""Learning hyperparameters and basis for any likelihood, by L-BFGS-B on EP's log evidence. [001 §5], [004
§6.1]

At a fixed point of EP, log Z does not change with the sites to first order. Its gradient is therefore that of
the FITC evidence of pseudo-targets a with noise 1/λ in each row, held as they are. [003 §6], [004 eq. 4.21]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ..engine.sites import Processes
from ..errors import FactorisationError, UnknownNameError
from ..inference.propagation import expectation_propagation
from ..inference.regression import gradient_of
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.likelihoods import Likelihood
from ..model.means import Mean
from ..model.problem import DEFAULT_JITTER, Problem, make_problem
from ..model.table import FITC
from ..numerics.arrays import to_numpy
from ..numerics.linalg import cholesky, cholesky_escalating, jittered
from .ascent import Line, Progress, Rules, climb_from
from .fitting import Fit, LogNormal, _Objective

LEAST = 1e-10  # of λ k(x, x): below, a site counts as this weak, with its b as it is


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
    the result is then a list. The likelihood stays as it is. Sites with λ < 0 count as weak ones in the
    gradient, which is exact without them.
    """
    if optimize not in ("all", "hyperparameters", "basis"):
        raise UnknownNameError(f"optimize must be 'all', 'hyperparameters' or 'basis', not {optimize!r}")
    Y = likelihood.check(to_numpy(y), processes=True)
    problem = make_problem(kernel, basis, FITC, np.ones(len(Y)), X, Y, mean=mean, jitter=jitter)
    jitter = cholesky_escalating(
        problem.basis.gram(kernel), jitter, what="the prior covariance Kuu of the basis"
    )[1]
    problem = replace(problem, jitter=jitter)
    objective = _Propagated(
        problem, likelihood, optimize, tuple(fixed), dict(priors or {}), sweeps, convergence
    )
    objective.y = Y.reshape(len(Y), -1)  # to the bit: a count less a mean and back is no count
    generator = np.random.default_rng(rng)
    starts = [objective.start] + [objective.packing.perturbed(generator) for _ in range(restarts)]
    with Line(progress, "ep") as report:
        best = climb_from(starts, objective, Rules(max_iterations, tolerance), report=report)
    kernel, basis, _, mean = objective.packing.unpack(best.x)
    posterior = expectation_propagation(
        kernel, likelihood, X, y, basis=basis, sweeps=sweeps, mean=mean, jitter=jitter
    )
    return Fit(
        posterior,
        kernel,
        basis,
        None,
        mean,
        best.value,
        best.iterations,
        best.converged,
        best.message,
        tuple(best.history),
        objective.packing.at_bounds(best.x),
        n_evaluations=best.evaluations,
        seconds=best.seconds,
    )


class _Propagated(_Objective):
    """-(log Z + log prior)/n; every evaluation starts from the sites of the one before."""

    def __init__(
        self,
        P: Problem,
        likelihood: Likelihood,
        optimize: str,
        fixed: tuple[str, ...],
        priors: dict[str, LogNormal],
        sweeps: int,
        convergence: float,
    ) -> None:
        super().__init__(P, "fitc", optimize, fixed, priors, 1e-6)
        self.likelihood, self.sweeps, self.convergence = likelihood, sweeps, convergence
        self.sites: tuple[np.ndarray, np.ndarray] | None = None  # λ and b, (n, c) each

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, dict[str, Any]]:
        P = self.problem(x)
        L = cholesky(jittered(P.basis.gram(P.kernel), P.jitter))
        run = Processes(P.kernel, P.basis, L, self.likelihood, P.X, self.y, P.mean, 1.0, P.jitter)
        if self.sites is not None:
            run.lam[...], run.b[...] = self.sites
            try:
                run.rebuild()
            except FactorisationError:  # negative sites of another kernel
                run.lam[...], run.b[...] = 0.0, 0.0
                run.rebuild()
        for _ in range(self.sweeps):
            if run.sweep(1.0) <= self.convergence:
                break
        values = run.log_evidence()
        if any(value is None for value in values):
            raise FactorisationError("a cavity of expectation propagation is improper")
        self.sites = run.lam.copy(), run.b.copy()
        total: dict[str, Any] = {}
        least = LEAST / np.maximum(P.kernel.diag(P.X), 1e-300)
        for lam, b in zip(run.lam.T, run.b.T, strict=True):
            lam = np.maximum(lam, least)
            pseudo = replace(P, noise=1.0 / lam, Y=(b / lam)[:, None], one_output=True, one_noise=False)
            for name, part in gradient_of(pseudo, escalate=False)[1].items():
                total[name] = total[name] + part if name in total else part
        return float(sum(value for value in values if value is not None)), total
