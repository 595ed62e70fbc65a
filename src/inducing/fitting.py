"""Learning hyperparameters and basis together, by L-BFGS-B on the log evidence. [001 §3], [003 §9]"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .backend import Array, blas_for, namespace, to_numpy
from .bases import Basis
from .checkpoints import Checkpoint
from .errors import FactorisationError, ParameterError, UnknownNameError
from .kernels.base import Kernel
from .linalg import cholesky_escalating
from .means import Mean
from .packing import Packing
from .pic import PICPredictor
from .posterior import Posterior
from .problem import DEFAULT_JITTER, Problem, as_noise
from .regression import DENSE, condition, gradient_of, make_regression

Progress = Callable[[int, float], None]


@dataclass(frozen=True)
class LogNormal:
    """A prior on a positive parameter: log θ ~ N(log median, sigma²), its density taken over log θ."""

    median: float
    sigma: float

    def __post_init__(self) -> None:
        if not self.median > 0 or not self.sigma > 0:
            raise ParameterError(f"a log-normal prior needs positive median and sigma, not {self.median} and {self.sigma}")

    def log_density(self, value: Any) -> tuple[float, np.ndarray]:
        """Σ log N(log θ | log median, sigma²) up to a constant, and its derivative in θ."""
        value = np.asarray(value, dtype=float)
        z = (np.log(value) - np.log(self.median)) / self.sigma
        return float(-0.5 * np.sum(z**2)), -z / (self.sigma * value)


@dataclass(frozen=True, eq=False)
class Fit:
    """What an optimisation ended with."""

    posterior: Posterior | PICPredictor
    kernel: Kernel
    basis: Basis
    noise: Any
    mean: Mean
    value: float  # log evidence, and log prior where there is one
    n_iterations: int
    converged: bool
    message: str
    history: tuple[float, ...] = ()  # the objective at each iteration


def fit(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    noise: Any,
    X: Any,
    y: Any,
    *,
    optimize: Literal["all", "hyperparameters", "basis"] = "all",
    mean: Mean | None = None,
    jitter: float = DEFAULT_JITTER,
    blocks: Any = None,
    power: float | None = None,
    weights: Any = None,
    fixed: Sequence[str] = (),
    priors: Mapping[str, LogNormal] | None = None,
    restarts: int = 0,
    max_iterations: int = 200,
    tolerance: float = 1e-8,
    noise_floor: float = 1e-6,
    progress: Progress | bool | None = None,
    checkpoint: str | Path | None = None,
    rng: Any = None,
) -> Fit:
    """Maximise the log evidence from the given start; the best of `restarts` further random starts, if any.

    fixed names parameters to hold ("kernel.variance", or a prefix such as "kernel"); priors gives log-normal priors by the
    same names. noise_floor is the least noise, relative to the variance of y. progress is a function of (iteration,
    objective); True always shows a line on stderr, None shows it on terminals once two seconds have passed. With checkpoint
    the best point is kept in that file, and a later call with the same problem continues from it. Ctrl-C returns the best
    point so far. Noise given per row is taken as known and not optimised.
    """
    if optimize not in ("all", "hyperparameters", "basis"):
        raise UnknownNameError(f"optimize must be 'all', 'hyperparameters' or 'basis', not {optimize!r}")
    problem = make_regression(kernel, basis, approximation, noise, X, y, mean=mean, jitter=jitter, blocks=blocks, power=power,
                              weights=weights)  # fmt: skip
    if approximation not in DENSE:  # jitter grows here, with one warning, or not at all: it stays constant from now on
        Kuu = problem.basis.gram(kernel)
        jitter = cholesky_escalating(Kuu, jitter, what="the prior covariance Kuu of the basis")[1]
        problem = replace(problem, jitter=jitter)
    objective = _Objective(problem, approximation, optimize, tuple(fixed), dict(priors or {}), noise_floor)
    report = _reporter(progress)
    saved = None if checkpoint is None else Checkpoint(Path(checkpoint), objective.fingerprint())
    generator = np.random.default_rng(rng)
    starts = [objective.start if saved is None else saved.load(objective.start)]
    starts += [objective.packing.perturbed(generator) for _ in range(restarts)]
    best: _Run | None = None
    for start in starts:
        try:
            run = _maximise(objective, start, max_iterations, tolerance, report, saved)
        except FactorisationError:
            if best is None:
                raise
            continue  # a random start that cannot be evaluated
        if best is None or run.value > best.value:
            best = run
        if run.interrupted:
            break
    assert best is not None
    if not np.isfinite(best.value):
        raise KeyboardInterrupt  # before anything was evaluated: there is no best point to return
    kernel, basis_, noise, mean = objective.packing.unpack(best.x)
    posterior = condition(kernel, basis_, approximation, noise, X, y, mean=mean, jitter=jitter, blocks=blocks, power=power,
                          weights=weights)  # fmt: skip
    return Fit(
        posterior, kernel, basis_, noise, mean, best.value, best.iterations, best.converged, best.message,
        tuple(best.history),
    )


class _Objective:
    """-(log evidence + log prior)/n and its gradient in the packed, unconstrained variables."""

    def __init__(
        self, P: Problem, approximation: str, optimize: str, fixed: tuple[str, ...], priors: dict[str, LogNormal],
        noise_floor: float,
    ) -> None:  # fmt: skip
        self.P, self.approximation, self.priors = P, approximation, priors
        self.y = P.Y + _as_columns(P.mean(P.X))  # targets with the prior mean put back, since that may move
        X, Y = to_numpy(P.X), to_numpy(self.y)
        self.packing = Packing.of(P, approximation, optimize, fixed, spread=_spread(X), low=X.min(0), high=X.max(0),
                                  target_variance=_target_variance(Y), noise_floor=noise_floor)  # fmt: skip
        unknown = set(priors) - set(self.packing.positive)
        if unknown:
            known = sorted(self.packing.positive)
            raise UnknownNameError(f"priors on {sorted(unknown)}, but the positive parameters are {known}")
        self.start = self.packing.start
        self.scale = 1.0 / P.n
        self.size = P.n if approximation in DENSE else len(P.basis)
        self.last: tuple[np.ndarray, float, np.ndarray] | None = None

    def fingerprint(self) -> str:
        """Changes when the data, the row or the variables do."""
        sums = [float(namespace(a).sum(a)) for a in (self.P.X, self.y, self.P.weights) if a is not None]
        kernel = _without_numbers(self.P.kernel.spec())
        return repr((self.approximation, self.P.row.share, self.P.n, kernel, self.packing.names, len(self.start), sums))

    def problem(self, x: np.ndarray) -> Problem:
        kernel, basis, noise, mean = self.packing.unpack(x)
        basis = basis.on(self.P.X)
        basis.check(kernel)
        m0 = _as_columns(mean(self.P.X))
        return replace(self.P, kernel=kernel, basis=basis, noise=as_noise(noise, self.P.X)[0], mean=mean, Y=self.y - m0)

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, dict[str, Any]]:
        """The log evidence and its gradient in the raw parameters; raises FactorisationError where there is none."""
        return gradient_of(self.problem(x), self.approximation, escalate=False)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            value, gradient = self.value_and_gradient(x)
            gradient = {key: to_numpy(g) for key, g in gradient.items()}
            for name, prior in self.priors.items():
                log_density, slope = prior.log_density(self.packing.values(x)[name])
                value += log_density
                gradient[name] = gradient[name] + slope
            f, g = -self.scale * value, -self.scale * self.packing.gradient(x, gradient)
            if not (np.isfinite(f) and np.all(np.isfinite(g))):
                raise FactorisationError("the objective is not finite")
        except FactorisationError:
            if self.last is None:
                raise
            # a wall, finite so that the line search can interpolate and turn back
            _, f0, _ = self.last
            return f0 + 10.0 * (1.0 + abs(f0)), np.zeros_like(x)
        self.last = (x.copy(), f, g)
        return f, g


@dataclass(eq=False)
class _Run:
    x: np.ndarray
    value: float
    iterations: int = 0
    converged: bool = False
    interrupted: bool = False
    message: str = ""
    history: list[float] = None  # type: ignore[assignment]


def _maximise(
    objective: _Objective, start: np.ndarray, max_iterations: int, tolerance: float, report: Progress, saved: Checkpoint | None
) -> _Run:
    from scipy.optimize import minimize

    best = _Run(start.copy(), -np.inf, history=[])

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        f, g = objective(x)
        if -f / objective.scale > best.value:
            best.x, best.value = x.copy(), -f / objective.scale
        return f, g

    def callback(_: np.ndarray) -> None:
        best.iterations += 1
        best.history.append(best.value)
        report(best.iterations, best.value)
        if saved is not None:
            saved.save(best.x, best.value)

    objective.last = None
    if len(start) == 0 or max_iterations < 1:
        evaluate(start)
        best.converged, best.message = len(start) == 0, "nothing to optimise" if len(start) == 0 else "no iterations allowed"
        return best
    try:
        with blas_for(objective.size):  # one thread for L-BFGS's own small products, too
            result = minimize(
                evaluate, start, jac=True, method="L-BFGS-B", bounds=objective.packing.bounds, callback=callback,
                options={"maxiter": max_iterations, "maxfun": 2 * max_iterations + 20, "ftol": tolerance, "gtol": 1e-7,
                         "maxcor": 20},
            )  # fmt: skip
        best.message = str(result.message)
        best.converged = bool(result.success) and _is_flat(objective, best.x)
    except KeyboardInterrupt:
        best.interrupted, best.message = True, "interrupted; this is the best point so far"
    if saved is not None:
        saved.save(best.x, best.value, force=True)
    return best


def _is_flat(objective: _Objective, x: np.ndarray, threshold: float = 1e-3) -> bool:
    """Whether the projected gradient at x is small: L-BFGS-B may claim success after running into a wall."""
    if objective.last is None or not np.array_equal(objective.last[0], x):
        objective(x)
    assert objective.last is not None
    _, f, g = objective.last
    low, high = np.array(objective.packing.bounds, dtype=float).T
    step = np.clip(x - g, low, high) - x
    return bool(np.max(np.abs(step)) <= threshold * max(1.0, abs(f)))


def _reporter(progress: Progress | bool | None) -> Progress:
    """The function called after each iteration."""
    if callable(progress):
        return progress
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return lambda iteration, value: None
    began, patience = time.monotonic(), 2.0 if progress is None else 0.0

    def line(iteration: int, value: float) -> None:
        if time.monotonic() - began >= patience:
            print(f"\rfit: iteration {iteration}, log evidence {value:.4f}", end="", file=sys.stderr, flush=True)

    return line


def _without_numbers(spec: Mapping[str, Any]) -> Any:
    """What a kernel is made of, whatever its parameters are."""
    return spec["name"], spec.get("columns"), [_without_numbers(part) for part in spec.get("parts", ())]


def _as_columns(a: Array) -> Array:
    return a if a.ndim == 2 else a[:, None]


def _spread(X: np.ndarray) -> np.ndarray:
    """A positive scale for each input: its standard deviation, or its size if it is constant."""
    spread = X.std(axis=0)
    return np.where(spread > 0, spread, np.where(X[0] != 0, np.abs(X[0]), 1.0))


def _target_variance(Y: np.ndarray) -> float:
    """The mean square of y about its mean; one where y is constant."""
    variance = float(np.mean(Y.var(axis=0)))
    return variance if variance > 0 else max(float(np.mean(Y**2)), 1e-12) if np.any(Y) else 1.0
