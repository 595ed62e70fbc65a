"""`fit`: hyperparameters and basis learned together, by L-BFGS-B on the log evidence, that of EP for several
processes. [001 §3], [003 §9], [004 §6.1]
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ..inference.propagation import expectation_propagation
from ..inference.regression import approximation_of, as_problem, problem_of
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.likelihoods import Likelihood
from ..model.means import Mean
from ..model.problem import DEFAULT_JITTER
from ..numerics.arrays import to_numpy
from .ascent import Progress
from .classes import ClassesEvidence
from .objective import HeldOut
from .settings import LogNormal, Trace
from .stages import Fit, Stage


def fit(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    noise: Any,
    X: Any,
    y: Any = None,
    *,
    optimize: Literal["all", "hyperparameters", "basis"] = "all",
    mean: Mean | None = None,
    jitter: float = DEFAULT_JITTER,
    blocks: Any = None,
    power: float | None = None,
    neighbours: Any = None,
    weights: Any = None,
    fixed: Sequence[str] = (),
    priors: Mapping[str, LogNormal] | None = None,
    movable: Any = None,
    restarts: int = 0,
    max_iterations: int = 200,
    tolerance: float = 1e-8,
    least_gain: float = 0.0,
    held_out: tuple[Any, Any] | None = None,
    patience: int = 40,
    noise_floor: float | None = None,
    progress: Progress | bool | None = None,
    trace: Trace | None = None,
    checkpoint: str | Path | None = None,
    rng: Any = None,
) -> Fit:
    """Maximise the log evidence from the given start; the best of `restarts` further random starts, if any.

    X may be a `Source` that has the targets, too, as for `condition`: each evaluation then takes two passes
    over it. Neighbours are searched for again after 10, 30, 70, ... iterations, unless they are given by
    number.

    What moves: fixed names parameters to hold ("kernel.variance", or a prefix such as "kernel"); movable is a
    mask (m,) of the basis functions that may move, None for all; priors gives log-normal priors on positive
    parameters by name; noise_floor is the least noise, relative to the variance of y (1e-6, along neighbours
    1e-10). Noise given per row is taken as known and not optimised.

    When it ends: after max_iterations, or where the gradient is flat, or after an iteration whose relative
    gain is below tolerance, or when ten iterations together gained less than least_gain nats per row. With
    held_out = (X, y), rows that are not trained on, the point that predicts them best is returned, and the
    climb ends when they have gained nothing for `patience` iterations: a guard against evidences that rise
    while the fit worsens, as FITC's with a free basis does.

    What is seen of it: progress is a function of (iteration, objective); True always shows a line on stderr,
    None shows it on terminals once two seconds have passed. trace is given an `Iterate` at every start and
    after each iteration, to be drawn or kept. With checkpoint the best point is kept in that file, and a
    later call with the same problem continues from it. Ctrl-C returns the best point so far.
    """
    row = approximation_of(approximation, power, neighbours)
    options: dict[str, Any] = dict(jitter=jitter, blocks=blocks, weights=weights)
    stage = Stage(
        as_problem(kernel, basis, row, noise, X, y, mean=mean, **options),
        None if held_out is None else HeldOut.checked(*held_out),
        optimize=optimize,
        fixed=fixed,
        priors=priors,
        movable=movable,
        restarts=restarts,
        max_iterations=max_iterations,
        tolerance=tolerance,
        least_gain=least_gain,
        patience=patience,
        noise_floor=noise_floor,
        progress=progress,
        trace=trace,
        checkpoint=checkpoint,
        rng=rng,
    )
    return stage.fit(stage.run())


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
    """Maximise EP's log evidence over kernel, basis and prior mean, as `fit` does for regression. [001 §5]

    Its sites are those of FITC under the likelihood, and its evidence the same [003 §6], [004 eq. 4.21].

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
