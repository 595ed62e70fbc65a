"""Climbing an objective by L-BFGS-B: when to stop, which point to keep, what to show on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np

from ..errors import FactorisationError
from ..files.checkpoints import Checkpoint
from ..numerics.workers import blas_for
from ..progress import Bars

Progress = Callable[[int, float], None]

WINDOW = 10  # iterations over which a gain is judged
INTERRUPTED = "interrupted; this is the best point so far"
CHECK = 5  # iterations from one look at the held-out rows to the next


class Objective(Protocol):
    """-scale · value and its gradient; raises FactorisationError only before the first success."""

    scale: float  # one over the number of rows
    size: int  # of the matrices inside
    last: tuple[np.ndarray, float, np.ndarray] | None  # where it was evaluated last, and what came out

    @property
    def bounds(self) -> list[tuple[float, float]]: ...

    @property
    def units(self) -> np.ndarray: ...  # steps of equal worth, one for each variable

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]: ...


@dataclass(frozen=True)
class Rules:
    """When a climb ends, if the objective does not end it by being flat.

    least_gain is in nats per row: it ends when the last ten iterations together gained less. With a score (of
    held-out rows, say) it ends when that has not risen for `patience` iterations, and the point of the best
    score is kept, not of the best value.
    """

    max_iterations: int = 200
    tolerance: float = 1e-8  # of L-BFGS-B, for one iteration's relative gain
    least_gain: float = 0.0
    score: Callable[[np.ndarray], float] | None = None
    patience: int = 40


@dataclass(eq=False)
class Run:
    """The best point of a climb, and how it ended."""

    x: np.ndarray
    value: float = -np.inf
    score: float = -np.inf
    iterations: int = 0
    evaluations: int = 0  # of the objective and its gradient
    seconds: float = 0.0  # that these took, together
    converged: bool = False
    interrupted: bool = False
    message: str = ""
    history: list[float] = field(default_factory=list)


def climb_from(
    starts: Sequence[np.ndarray],
    objective: Objective,
    rules: Rules,
    *,
    report: Progress,
    saved: Checkpoint | None = None,
    tell: Callable[[Run], None] | None = None,
) -> Run:
    """The best of the climbs from several starts; only the first must be one that can be evaluated."""
    best: Run | None = None
    for start in starts:
        try:
            run = _climb(start, objective, rules, report, saved, tell)
        except FactorisationError:
            if best is None:
                raise
            continue  # a random start
        if best is None or (run.score, run.value) > (best.score, best.value):
            best = run
        if run.interrupted:
            break
    assert best is not None
    if not np.isfinite(best.value):
        raise KeyboardInterrupt  # before anything was evaluated: there is no best point to return
    return best


def _climb(
    start: np.ndarray,
    objective: Objective,
    rules: Rules,
    report: Progress,
    saved: Checkpoint | None,
    tell: Callable[[Run], None] | None,
) -> Run:
    from scipy.optimize import minimize

    run = Run(start.copy())
    kept = Run(start.copy())  # the one of the best score, where there is a score
    units = objective.units

    def measured(x: np.ndarray) -> tuple[float, np.ndarray]:
        began = time.perf_counter()
        f, g = objective(x)
        run.evaluations, run.seconds = run.evaluations + 1, run.seconds + time.perf_counter() - began
        return f, g

    def evaluate(u: np.ndarray) -> tuple[float, np.ndarray]:
        x = u * units
        f, g = measured(x)
        first = not np.isfinite(run.value)
        if -f / objective.scale > run.value:
            run.x, run.value = x.copy(), -f / objective.scale
        if first:
            look()
            if tell is not None:
                tell(run)
        return f, g * units

    def look() -> None:
        if rules.score is None:
            return
        score = rules.score(run.x)
        if score > kept.score:
            kept.x, kept.value, kept.score, kept.iterations = run.x.copy(), run.value, score, run.iterations

    def save(*, force: bool = False) -> None:
        if saved is not None:
            best = (run.x, run.value) if rules.score is None else (kept.x, kept.score)
            saved.save(*best, force=force)

    def callback(_: np.ndarray) -> None:
        run.iterations += 1
        run.history.append(run.value)
        report(run.iterations, run.value)
        if tell is not None:
            tell(run)
        if run.iterations % CHECK == 0:
            look()
        save()
        if rules.score is not None and run.iterations - kept.iterations >= rules.patience:
            run.message = f"the held-out rows gained nothing in {rules.patience} iterations"
            raise StopIteration
        if (
            run.iterations > WINDOW
            and run.history[-1] - run.history[-1 - WINDOW] < rules.least_gain / objective.scale
        ):
            run.message = f"the last {WINDOW} iterations gained less than {rules.least_gain:g} nats per row"
            raise StopIteration

    objective.last = None
    if len(start) == 0 or rules.max_iterations < 1:
        evaluate(start / units)
        run.score = kept.score
        run.converged, run.message = (
            len(start) == 0,
            "nothing to optimise" if len(start) == 0 else "no iterations allowed",
        )
        return run
    bounds = np.array(objective.bounds, dtype=float) / units[:, None]
    try:
        with blas_for(objective.size):  # one thread for L-BFGS's own small products, too
            result = minimize(
                evaluate,
                start / units,
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                callback=callback,
                options={
                    "maxiter": rules.max_iterations,
                    "maxfun": 2 * rules.max_iterations + 20,
                    "ftol": rules.tolerance,
                    "gtol": 1e-7,
                    "maxcor": 20,
                },
            )
        if run.message:  # a rule ended it
            run.converged = True
        else:
            run.message = str(result.message)
            run.converged = bool(result.success) and _is_flat(objective, run.x, measured)
        look()
    except KeyboardInterrupt:
        run.interrupted, run.converged, run.message = True, False, INTERRUPTED
    save(force=True)
    if rules.score is not None:
        run.x, run.value, run.score = kept.x, kept.value, kept.score
    return run


def _is_flat(
    objective: Objective, x: np.ndarray, evaluate: Callable[[np.ndarray], Any], threshold: float = 1e-3
) -> bool:
    """Whether the projected gradient at x is small: L-BFGS-B may claim success after running into a wall."""
    if objective.last is None or not np.array_equal(objective.last[0], x):
        evaluate(x)
    assert objective.last is not None
    _, f, g = objective.last
    low, high = np.array(objective.bounds, dtype=float).T
    step = np.clip(x - g, low, high) - x
    return bool(np.max(np.abs(step)) <= threshold * max(1.0, abs(f)))


class Line:
    """What is called after each iteration: the caller's own function, a line on stderr, or nothing."""

    def __init__(self, progress: Progress | bool | None, what: str = "fit") -> None:
        self.call = progress if callable(progress) else None
        self.bars, self.what = Bars(False if callable(progress) else progress), what

    def __call__(self, iteration: int, value: float) -> None:
        if self.call is not None:
            self.call(iteration, value)
        self.bars.show("iterations", f"{self.what}: iteration {iteration}, log evidence {value:.4f}")

    def part(self, done: int, parts: int | None) -> None:
        """The same for the parts of a pass over a source."""
        self.bars.show("parts", "parts read", done, parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.bars.__exit__()
