"""The optimiser: L-BFGS-B from one or several starts, with rules for when to stop and which point to keep."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ..errors import FactorisationError
from ..files.checkpoints import Checkpoint
from ..numerics.workers import blas_for
from ..progress import stop_asked

Progress = Callable[[int, float], None]

MEMORY = 50  # steps that L-BFGS-B remembers: with 20 it needs more evaluations for the same bound
INTERRUPTED = "interrupted; this is the best point so far"
OUT_OF_TIME = "the time budget is spent"
CHECK = 5  # iterations from one look at the held-out rows to the next
FLAT = 1e-3  # the greatest entry of a projected gradient, relative to the objective, that counts as none


class BoundedFunction(Protocol):
    """A function of bounded variables to maximise, with its gradient; L-BFGS-B minimises -scale · value in
    variables divided by `units`. Only at a start must `value_and_gradient` not raise FactorisationError.
    """

    @property
    def scale(self) -> float: ...  # one over the number of rows

    @property
    def size(self) -> int: ...  # of the matrices inside

    @property
    def bounds(self) -> list[tuple[float, float]]: ...

    @property
    def units(self) -> np.ndarray: ...  # steps of equal worth, one for each variable

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]: ...


@dataclass(frozen=True)
class Rules:
    """The rules that end a climb, if the objective does not end it by being flat.

    least_gain is in nats per row: it ends when the last `window` iterations together gained less. With a
    score (of held-out rows, say) it ends when that has not risen for `patience` iterations, and the point of
    the best score is kept, not of the best value. It ends after the iteration in which time.monotonic()
    passes the deadline; one that begins later evaluates its start alone.
    """

    max_iterations: int = 200
    tolerance: float = 1e-8  # of L-BFGS-B, for one iteration's relative gain
    least_gain: float = 0.0
    window: int = 10  # iterations
    score: Callable[[np.ndarray], float] | None = None
    patience: int = 40
    deadline: float = math.inf


@dataclass(eq=False)
class Ascent:
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
    first: float = np.nan  # the value at the start
    jumps: list[float] = field(default_factory=list)  # of the value, where neighbours were found anew


def climb_from(
    starts: Sequence[np.ndarray],
    objective: BoundedFunction,
    rules: Rules,
    *,
    report: Progress = lambda iteration, value: None,
    saved: Checkpoint | None = None,
    tell: Callable[[Ascent], None] | None = None,
) -> Ascent:
    """The best of the climbs from several starts; only the first must be one that can be evaluated."""
    best: Ascent | None = None
    for start in starts:
        try:
            run = _Climb(start, objective, rules, report, saved, tell).climb()
        except FactorisationError:
            if best is None:
                raise
            continue  # a random start
        if best is None or (run.score, run.value) > (best.score, best.value):
            best = run
        if run.interrupted or time.monotonic() > rules.deadline:
            break
    assert best is not None
    if not np.isfinite(best.value):
        raise KeyboardInterrupt  # before anything was evaluated: there is no best point to return
    return best


class _Climb:
    """One climb from one start. `run` has the best value so far, `kept` the best score."""

    def __init__(
        self,
        start: np.ndarray,
        objective: BoundedFunction,
        rules: Rules,
        report: Progress,
        saved: Checkpoint | None,
        tell: Callable[[Ascent], None] | None,
    ) -> None:
        self.objective, self.rules, self.report, self.saved, self.tell = objective, rules, report, saved, tell
        self.start, self.run, self.kept = start, Ascent(start.copy()), Ascent(start.copy())
        self.last: tuple[np.ndarray, float, np.ndarray] | None = None  # x, -scale · value and its gradient

    def climb(self) -> Ascent:
        run, units, late = self.run, self.objective.units, time.monotonic() > self.rules.deadline
        if len(self.start) == 0 or self.rules.max_iterations < 1 or late:
            self._evaluate(self.start / units)
            run.score, run.converged = self.kept.score, len(self.start) == 0
            run.message = "nothing to optimise" if run.converged else "no iterations allowed"
            run.message = OUT_OF_TIME if late and not run.converged else run.message
            return run
        try:
            self._minimise(units)
            self._look()
        except KeyboardInterrupt:
            run.interrupted, run.converged, run.message = True, False, INTERRUPTED
        self._save(force=True)
        if self.rules.score is not None:
            run.x, run.value, run.score = self.kept.x, self.kept.value, self.kept.score
        return run

    def _minimise(self, units: np.ndarray) -> None:
        from scipy.optimize import minimize

        most, run = self.rules.max_iterations, self.run
        options = {"maxiter": most, "maxfun": 2 * most + 20, "ftol": self.rules.tolerance}
        with blas_for(self.objective.size):  # one thread for L-BFGS's own small products, too
            result = minimize(
                self._evaluate,
                self.start / units,
                jac=True,
                method="L-BFGS-B",
                bounds=np.array(self.objective.bounds, dtype=float) / units[:, None],
                callback=self._after_iteration,
                options=options | {"gtol": 1e-7, "maxcor": MEMORY},
            )
        if run.message:  # a rule ended it
            run.converged = run.message != OUT_OF_TIME
        else:
            run.message = str(result.message)
            run.converged = bool(result.success) and self._is_flat()

    def _objective(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """-scale · value and its gradient, or a finite wall from which the line search turns back."""
        began = time.perf_counter()
        try:
            value, gradient = self.objective.value_and_gradient(x)
            if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
                raise FactorisationError("the objective is not finite")
        except FactorisationError:
            if self.last is None:
                raise
            f = self.last[1]
            return f + 10.0 * (1.0 + abs(f)), np.zeros_like(x)
        finally:
            self.run.evaluations += 1
            self.run.seconds += time.perf_counter() - began
        scale = self.objective.scale
        self.last = x.copy(), -scale * value, -scale * gradient
        return self.last[1:]

    def _evaluate(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective at x = u · units."""
        run, units = self.run, self.objective.units
        x = u * units
        f, g = self._objective(x)
        value, first = -f / self.objective.scale, not np.isfinite(run.value)
        if value > run.value:
            run.x, run.value = x.copy(), value
        if first:
            run.first = value
            self._look()
            if self.tell is not None:
                self.tell(run)
        if stop_asked() and len(u) and self.rules.max_iterations > 0:
            raise KeyboardInterrupt
        return f, g * units

    def _look(self) -> None:
        """Score the best point so far."""
        if self.rules.score is None:
            return
        run, score = self.run, self.rules.score(self.run.x)
        if score > self.kept.score:
            self.kept = Ascent(run.x.copy(), run.value, score, run.iterations)

    def _save(self, *, force: bool = False) -> None:
        if self.saved is not None:
            run, kept = self.run, self.kept
            best = (run.x, run.value) if self.rules.score is None else (kept.x, kept.score)
            self.saved.save(*best, force=force)

    def _after_iteration(self, _: np.ndarray) -> None:
        run, rules = self.run, self.rules
        run.iterations += 1
        run.history.append(run.value)
        self.report(run.iterations, run.value)
        if self.tell is not None:
            self.tell(run)
        if run.iterations % CHECK == 0:
            self._look()
        self._save()
        if rules.score is not None and run.iterations - self.kept.iterations >= rules.patience:
            run.message = f"the held-out rows gained nothing in {rules.patience} iterations"
            raise StopIteration
        if time.monotonic() > rules.deadline:
            run.message = OUT_OF_TIME
            raise StopIteration
        least, window = rules.least_gain / self.objective.scale, rules.window
        if run.iterations > window and run.history[-1] - run.history[-1 - window] < least:
            run.message = f"the last {window} iterations gained less than {rules.least_gain:g} nats per row"
            raise StopIteration

    def _is_flat(self) -> bool:
        """Whether the projected gradient at the best point is small: L-BFGS-B may claim so after a wall."""
        x = self.run.x
        if self.last is None or not np.array_equal(self.last[0], x):
            self._objective(x)
        assert self.last is not None
        _, f, g = self.last
        low, high = np.array(self.objective.bounds, dtype=float).T
        step = np.clip(x - g, low, high) - x
        return bool(np.max(np.abs(step)) <= FLAT * max(1.0, abs(f)))
