"""Learning hyperparameters and basis together, by L-BFGS-B on the log evidence. [001 §3], [003 §9]"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import FactorisationError, ParameterError, UnknownNameError
from ..files.checkpoints import Checkpoint
from ..inference.pic import Predictor
from ..inference.regression import (
    DENSE,
    approximation_of,
    as_problem,
    condition,
    gradient_of,
    model_of,
    posterior_of,
)
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.means import Mean
from ..model.posterior import Posterior
from ..model.problem import DEFAULT_JITTER, Problem, as_inputs, as_noise, as_targets
from ..numerics.arrays import Array, namespace, to_numpy
from ..numerics.linalg import cholesky_escalating
from ..sources.moments import moments
from .ascent import Line, Progress, Rules, Run, climb_from
from .packing import Packing

Trace = Callable[["Step"], None]


@dataclass(frozen=True)
class LogNormal:
    """A prior on a positive parameter: log θ ~ N(log median, sigma²), its density taken over log θ."""

    median: float
    sigma: float

    def __post_init__(self) -> None:
        if not self.median > 0 or not self.sigma > 0:
            raise ParameterError(
                f"a log-normal prior needs positive median and sigma, not {self.median} and {self.sigma}"
            )

    def log_density(self, value: Any) -> tuple[float, np.ndarray]:
        """Σ log N(log θ | log median, sigma²) up to a constant, and its derivative in θ."""
        value = np.asarray(value, dtype=float)
        z = (np.log(value) - np.log(self.median)) / self.sigma
        return float(-0.5 * np.sum(z**2)), -z / (self.sigma * value)


@dataclass(frozen=True, eq=False)
class Step:
    """Where an optimisation stands after an iteration: the best point so far."""

    iteration: int  # 0 is the start
    value: float
    kernel: Kernel
    basis: Basis
    noise: Any
    mean: Mean


@dataclass(frozen=True, eq=False)
class Fit:
    """What an optimisation ended with."""

    posterior: Posterior | Predictor
    kernel: Kernel
    basis: Basis
    noise: Any
    mean: Mean
    value: float  # log evidence, and log prior where there is one
    n_iterations: int
    converged: bool
    message: str
    history: tuple[float, ...] = ()  # the objective at each iteration
    at_bounds: tuple[str, ...] = ()  # the parameters that ended where they may go no further
    score: float | None = None  # mean log predictive density of the held-out rows, where there are any
    n_evaluations: int = 0  # of the objective and its gradient, over all rows that were learned from
    seconds: float = 0.0  # that these took, together


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
    noise_floor: float = 1e-6,
    progress: Progress | bool | None = None,
    trace: Trace | None = None,
    checkpoint: str | Path | None = None,
    rng: Any = None,
) -> Fit:
    """Maximise the log evidence from the given start; the best of `restarts` further random starts, if any.

    X may be a `Source` that has the targets, too, as for `condition`: each evaluation then takes two passes
    over it.

    What moves: fixed names parameters to hold ("kernel.variance", or a prefix such as "kernel"); movable is a
    mask (m,) of the basis functions that may move, None for all; priors gives log-normal priors on positive
    parameters by name; noise_floor is the least noise, relative to the variance of y. Noise given per row is
    taken as known and not optimised.

    When it ends: after max_iterations, or where the gradient is flat, or after an iteration whose relative
    gain is below tolerance, or when ten iterations together gained less than least_gain nats per row. With
    held_out = (X, y), rows that are not trained on, the point that predicts them best is returned, and the
    climb ends when they have gained nothing for `patience` iterations: a guard against evidences that rise
    while the fit worsens, as FITC's with a free basis does.

    What is seen of it: progress is a function of (iteration, objective); True always shows a line on stderr,
    None shows it on terminals once two seconds have passed. trace is given a `Step` at every start and after
    each iteration, to be drawn or kept. With checkpoint the best point is kept in that file, and a later call
    with the same problem continues from it. Ctrl-C returns the best point so far.
    """
    if optimize not in ("all", "hyperparameters", "basis"):
        raise UnknownNameError(f"optimize must be 'all', 'hyperparameters' or 'basis', not {optimize!r}")
    problem = as_problem(
        kernel,
        basis,
        approximation_of(approximation, power),
        noise,
        X,
        y,
        mean=mean,
        jitter=jitter,
        blocks=blocks,
        weights=weights,
    )
    if (
        approximation not in DENSE
    ):  # jitter grows here, with one warning, or not at all: it stays constant from now on
        Kuu = problem.basis.gram(kernel)
        jitter = cholesky_escalating(Kuu, jitter, what="the prior covariance Kuu of the basis")[1]
        problem = replace(problem, jitter=jitter)
    moving = approximation, optimize, tuple(fixed), dict(priors or {}), noise_floor, movable
    objective = (
        _Objective(problem, *moving) if isinstance(problem, Problem) else _PartedObjective(problem, *moving)
    )
    score = None if held_out is None else objective.scorer(*held_out)
    saved = None if checkpoint is None else Checkpoint(Path(checkpoint), objective.fingerprint())
    generator = np.random.default_rng(rng)
    starts = [objective.start if saved is None else saved.load(objective.start)]
    starts += [objective.packing.perturbed(generator) for _ in range(restarts)]

    def tell(run: Run) -> None:
        if trace is not None:
            trace(Step(run.iterations, run.value, *objective.packing.unpack(run.x)))

    rules = Rules(max_iterations, tolerance, least_gain, score, patience)
    with Line(progress, approximation) as report:
        objective.watch(report)
        best = climb_from(starts, objective, rules, report=report, saved=saved, tell=tell)
    kernel, basis_, noise, mean = objective.packing.unpack(best.x)
    posterior = condition(
        kernel,
        basis_,
        approximation,
        noise,
        X,
        y,
        mean=mean,
        jitter=jitter,
        blocks=blocks,
        power=power,
        weights=weights,
    )
    return Fit(
        posterior,
        kernel,
        basis_,
        noise,
        mean,
        best.value,
        best.iterations,
        best.converged,
        best.message,
        tuple(best.history),
        objective.packing.at_bounds(best.x),
        None if score is None else best.score,
        best.evaluations,
        best.seconds,
    )


class _Objective:
    """-(log evidence + log prior)/n and its gradient in the packed, unconstrained variables."""

    def __init__(
        self,
        P: Any,
        approximation: str,
        optimize: str,
        fixed: tuple[str, ...],
        priors: dict[str, LogNormal],
        noise_floor: float,
        movable: Any = None,
    ) -> None:
        self.P, self.approximation, self.priors = P, approximation, priors
        data = self.data = self._look()
        self.packing = Packing.of(
            P,
            approximation,
            optimize,
            fixed,
            spread=data.spread,
            low=data.low,
            high=data.high,
            target_variance=data.target_variance,
            noise_floor=noise_floor,
            movable=movable,
        )
        unknown = set(priors) - set(self.packing.positive)
        if unknown:
            known = sorted(self.packing.positive)
            raise UnknownNameError(f"priors on {sorted(unknown)}, but the positive parameters are {known}")
        self.start = self.packing.start
        self.scale = 1.0 / data.n
        self.size = data.n if approximation in DENSE else len(P.basis)
        self.last: tuple[np.ndarray, float, np.ndarray] | None = None

    @property
    def bounds(self) -> list[tuple[float, float]]:
        return self.packing.bounds

    @property
    def units(self) -> np.ndarray:
        return self.packing.units

    def fingerprint(self) -> str:
        """Changes when the data, the row or the variables do."""
        kernel = _without_numbers(self.P.kernel.spec())
        variables = self.packing.names, len(self.start)
        return repr((self.approximation, self.P.row.share, self.data.n, kernel, *variables, self.data.sums))

    def _look(self) -> _Data:
        P = self.P
        self.y = P.Y + _as_columns(P.mean(P.X))  # targets with the prior mean put back, since that may move
        X, Y = to_numpy(P.X), to_numpy(self.y)
        sums = [float(namespace(a).sum(a)) for a in (P.X, self.y, P.weights) if a is not None]
        return _Data(P.n, input_spread(X), X.min(0), X.max(0), _target_variance(Y), sums)

    def watch(self, line: Line) -> None:
        """Rows in memory take too little time to be shown."""

    def problem(self, x: np.ndarray) -> Any:
        kernel, basis, noise, mean = self.packing.unpack(x)
        basis = basis.on(self.P.X)
        basis.check(kernel)
        m0 = _as_columns(mean(self.P.X))
        return replace(
            self.P, kernel=kernel, basis=basis, noise=as_noise(noise, self.P.X)[0], mean=mean, Y=self.y - m0
        )

    def scorer(self, X: Any, y: Any) -> Callable[[np.ndarray], float]:
        """Mean log predictive density of other rows, as a function of the variables."""
        if not self.P.one_noise:
            raise ParameterError(
                "held-out rows have no noise of their own: give noise as one number to use them"
            )
        X = as_inputs(X)
        Y = as_targets(y, X)

        def score(x: np.ndarray) -> float:
            P = self.problem(x)
            try:
                posterior = model_of(P) if self.approximation in DENSE else posterior_of(P)
            except FactorisationError:
                return -np.inf
            return float(np.mean(log_densities(posterior, float(P.common_noise), X, Y)))

        return score

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, dict[str, Any]]:
        """The log evidence and its gradient in the raw parameters; raises FactorisationError where there is
        none.
        """
        return gradient_of(self.problem(x), escalate=False)

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


@dataclass(frozen=True, eq=False)
class _Data:
    """What an optimisation asks of the data themselves."""

    n: int
    spread: np.ndarray  # (d,)
    low: np.ndarray
    high: np.ndarray
    target_variance: float
    sums: list[float]  # for the fingerprint


class _PartedObjective(_Objective):
    """The same on a source: one more pass, before the first evaluation."""

    def _look(self) -> _Data:
        found = moments(self.P.source)
        X, Y = found.X, found.Y
        variance = float(np.mean(Y.variance))
        variance = variance if variance > 0 else float(np.mean(Y.mean**2)) or 1.0
        sums = [float(columns.n * np.sum(columns.mean)) for columns in (X, Y)]
        return _Data(found.n, X.center_and_scale()[1], X.low, X.high, variance, sums)

    def watch(self, line: Line) -> None:
        if line.bars.due < np.inf:
            self.P = replace(self.P, source=self.P.source.watched(line.part))

    def problem(self, x: np.ndarray) -> Any:
        kernel, basis, noise, mean = self.packing.unpack(x)
        basis.check(kernel)
        return replace(self.P, kernel=kernel, basis=basis, noise=noise, mean=mean)


def log_densities(posterior: Posterior | Predictor, noise: float, X: Any, y: Any) -> np.ndarray:
    """log p(y | data) of each new row, the mean over its outputs. (n,)"""
    mean, variance = posterior.predict(X)
    variance = to_numpy(variance)[:, None] + noise
    squares = (to_numpy(_as_columns(y)) - to_numpy(_as_columns(mean))) ** 2 / variance
    return -0.5 * np.mean(np.log(2.0 * np.pi * variance) + squares, axis=1)


def _without_numbers(spec: Mapping[str, Any]) -> Any:
    """What a kernel is made of, whatever its parameters are."""
    inside = [*spec.get("parts", ()), *([spec["kernel"]] if "kernel" in spec else [])]
    return spec["name"], spec.get("columns"), [_without_numbers(part) for part in inside]


def _as_columns(a: Array) -> Array:
    return a if a.ndim == 2 else a[:, None]


def input_spread(X: np.ndarray) -> np.ndarray:
    """A positive scale for each input: its standard deviation, or its size if it is constant."""
    spread = X.std(axis=0)
    return np.where(spread > 0, spread, np.where(X[0] != 0, np.abs(X[0]), 1.0))


def _target_variance(Y: np.ndarray) -> float:
    """The mean square of y about its mean; one where y is constant."""
    variance = float(np.mean(Y.var(axis=0)))
    return variance if variance > 0 else max(float(np.mean(Y**2)), 1e-12) if np.any(Y) else 1.0
