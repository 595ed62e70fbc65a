"""The choices that a user leaves open: a kernel, and a row of the table, judged by rows not learned from.

Few rows are judged by leaving out each in turn (closed form), many by holding some out. Of the candidates
whose error is within 2 % of the least the one with the best log density wins.
"""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import FactorisationError, UnknownNameError
from ..files.models import bytes_of
from ..inference.left_out import LeftOut, left_out_of
from ..model.bases import as_points
from ..model.distributions import Observations
from ..model.kernels.base import Kernel
from ..model.kernels.codes import code_columns
from ..model.kernels.composite import Sum
from ..model.likelihoods import LearnedNoise
from ..model.posterior import Posterior
from ..model.problem import Problem, subset
from ..model.table import VFE
from ..numerics.arrays import some_rows, to_numpy
from ..progress import stop_on_interrupt
from .ascent import INTERRUPTED
from .candidates import (
    IN_THIRDS,
    Comparison,
    Learned,
    Trial,
    at_own_basis,
    best_of,
    different,
    loosened,
    ranked_kernels,
)
from .noise import NoiseFit, noise_of_left_out
from .objective import HeldOut, parameters_of, plainly, targets, varied
from .packing import Parameters
from .recipes import Task, first_as_good, split, train
from .settings import Settings
from .stages import Fit, Outcome, Stage
from .starts import LEAST_GAIN, times

AIMS = ("both", "rmse", "log_loss")
FINALISTS = 3  # kernels that are learned from more rows; the more rows, the rougher a kernel they prefer
FINALIST_ITERATIONS, FINAL_ITERATIONS = 10, 40  # of each finalist, and of the best of them after that
EXACT_UP_TO = 10_000  # rows of an exact GP: its memory and time grow as their square and cube
ROWS_OF_AN_INPUT = 10  # from which on inputs may be left out at will: of fewer rows chance does it
LEARNED = 1_500  # rows that an exact GP's parameters are learned from at most
RACED = 750  # rows that finalists are learned from
JUDGED = 2_500  # rows that are left out in turn at most
MOST_JUDGED_NOISE = 10_000  # rows that learned noise is judged by, and learned from
WIDER, MOST_WIDER = 2.0, 6  # the factor of a guard against large errors, and how often it is tried

NoiseTried = tuple[Posterior | None, Sequence[Trial]]  # the process of the log variance, if it is taken
NO_NOISE: NoiseTried = None, ()


@dataclass(frozen=True, eq=False)
class Choice:
    """The fit of the candidate taken, its row of the table, and all that were tried."""

    fit: Fit
    approximation: str
    trials: tuple[Trial, ...]
    noise: Posterior | None = None  # the process of the noise's log variance, where that was taken

    def __str__(self) -> str:
        return "\n".join(map(str, self.trials))

    @property
    def learned(self) -> Fit | NoiseFit:
        """The fit, with the process of the noise where that was taken."""
        if self.noise is None:
            return self.fit
        posterior: Any = self.fit.posterior  # or a predictor along neighbours
        both = Observations(LearnedNoise(), (posterior, self.noise))
        return NoiseFit(self.fit, both, 0.0, self.approximation)


@stop_on_interrupt()
def choose(
    task: Task,
    kernels: Mapping[str, Kernel],
    *,
    aim: str = "both",
    neighbours: int = 20,
    most_bytes: float = math.inf,
) -> Choice:
    """Learn `task` with the kernel and the row of the table that rows not learned from prefer.

    Up to 10,000 rows that is the exact GP, where its file is not too large. Of more rows it is the one along
    neighbours, or a sparse basis, whichever predicts held-out rows better.
    """
    if aim not in AIMS:
        raise UnknownNameError(f"objective must be one of {', '.join(AIMS)}, not {aim!r}")
    start = task.stage()
    n, m, (d, p) = start.rows.n, len(task.basis), (start.rows.X.shape[1], start.rows.p)
    learned = ranked_kernels(start, kernels, aim, levels=n <= EXACT_UP_TO)
    for_noise = most_bytes - bytes_of(m, d, 1)  # what the file may have without the process of its noise
    if n <= EXACT_UP_TO and (size := bytes_of(n, d, p, exact=True)) < most_bytes:
        found = exact_trials(start, learned, aim)
        if found:
            trials = [trial for trial, _ in found]
            best = best_of(trials, aim)
            end = found[best][1].parameters
            left = None
            if start.max_iterations > 0 and not start.is_over:
                end, left = guarded(Comparison(start, LEARNED, JUDGED, 0), end)
            whole = at_own_basis(start.exact_on(np.arange(n)), end)
            fit = whole.fit(whole.unmoved(found[best][1].run))
            some = start.exact_on(some_rows(n, JUDGED, n + 1)).at(end._replace(basis=as_points(task.basis)))
            fits_in = size < for_noise
            noise, more = learned_noise(some.rows, trials[best], start, aim, left) if fits_in else NO_NOISE
            rest = (each.trial for each in learned[len(trials) :])
            return Choice(fit, "exact", (*trials, *more, *rest), noise)
    trials, fits, tasks = _sparse(task, learned, neighbours, most_bytes)
    best = best_of(trials, aim)
    P = _learned_on(tasks[best], fits[best], np.arange(n)).rows
    size = bytes_of(m, 2 * d, p, n if trials[best].name == "neighbours" else 0)  # widths, at most
    noise, more = learned_noise(P, trials[best], start, aim) if size < for_noise else NO_NOISE
    return Choice(fits[best], trials[best].name, (*trials, *more), noise)


def learned_noise(
    P: Problem, trial: Trial, start: Settings, aim: str, left: LeftOut | None = None
) -> NoiseTried:
    """The process of the log variance of a problem's noise, where rows that the others predict are better for
    it by more than a standard error; and its trial, if there was one. `left` are these rows, if known.
    """
    averaged = P.kernel.uncertain  # rows have noise of their own, the scatter about an average: g learns it
    given = P.noise_model is not None and not averaged
    unasked = aim == "rmse" or P.p > 1 or start.max_iterations < 1 or start.is_over
    if unasked or given or code_columns(P.kernel):  # columns that are no places
        return NO_NOISE
    began = time.perf_counter()
    left = left_out_of(P) if left is None else left
    some = some_rows(P.n, MOST_JUDGED_NOISE, P.n + 1)
    few = replace(plainly(subset(P, some), VFE), basis=as_points(P.basis))
    left = LeftOut(left.mean[some], left.variance[some], left.log_density[some], left.error[some])
    try:
        most = min(FINAL_ITERATIONS, start.max_iterations)
        found = noise_of_left_out(few, left, replace(start, max_iterations=most))
    except FactorisationError:  # sites that leave no proper process: one number then
        found = None
    if found is None:
        return NO_NOISE
    g, densities = found
    gain = float(np.mean(densities - left.log_density))
    seconds = time.perf_counter() - began
    tried = Trial(f"{trial.name}, learned noise", trial.rmse, trial.log_density + gain, seconds)
    better = first_as_good(np.array([left.log_density, densities])) == 1
    return g if better else None, [tried]


def _sparse(
    task: Task, learned: Sequence[Learned], neighbours: int, most_bytes: float
) -> tuple[list[Trial], list[Fit], list[Task]]:
    """FITC and neighbours: trials, fits, and what they were fitted to. Neighbours have the best kernel that
    is no sum: trends and curves say little beside rows that are near, and take them twice as long.
    """
    tasks = {"fitc": task}
    n, d = task.problem.X.shape
    if bytes_of(len(task.basis), d, task.problem.p, n) < most_bytes:
        kernels = [each.outcome.parameters.kernel for each in learned] or [task.kernel]
        kernel = next((each for each in kernels if not isinstance(each, Sum)), kernels[0])
        near = replace(task, kernel=kernel, basis=as_points(task.basis), approximation="neighbours")
        tasks["neighbours"] = replace(near, neighbours=neighbours)
    trials: list[Trial] = []
    fits: list[Fit] = []
    for name, each in tasks.items():
        if fits and (task.is_over or fits[-1].message == INTERRUPTED):
            break
        began = time.perf_counter()
        fits.append(train("auto", each))
        trials.append(_judged(each, fits[-1], name, began))
    return trials, fits, list(tasks.values())


def _judged(task: Task, fit: Fit, name: str, began: float) -> Trial:
    """The trial of a fit: the rows its recipe held out, predicted from the rest with its parameters."""
    stage = task.stage()
    held, rest = split(stage)
    P = stage.rows
    held = np.arange(P.n) if held is None else held
    judge = HeldOut(P.X[held], targets(P)[held])
    learned, y = _learned_on(task, fit, rest), to_numpy(judge.Y)
    model, noise = learned.model(), parameters_of(learned.problem).noise
    mean = to_numpy(model.predict(judge.X)[0]).reshape(y.shape)
    density = float(np.mean(judge.log_densities(model, noise)))
    return Trial(name, float(np.sqrt(np.mean((y - mean) ** 2))), density, time.perf_counter() - began)


def _learned_on(task: Task, fit: Fit, rows: np.ndarray) -> Stage:
    """Some rows of a task with the parameters of a fit."""
    return task.stage().at(Parameters(fit.kernel, fit.basis, fit.noise, fit.mean)).on(rows)


@stop_on_interrupt()
def best_kernel(task: Task, kernels: Mapping[str, Kernel]) -> Kernel:
    """The kernel that rows predicted by others prefer, its parameters learned from some of the rows."""
    learned = ranked_kernels(task.stage(), kernels)
    return learned[0].outcome.parameters.kernel if learned else next(iter(kernels.values()))


def exact_trials(start: Stage, learned: Sequence[Learned], aim: str) -> list[tuple[Trial, Outcome]]:
    """Exact GPs with the best of these kernels, judged by rows that they were not learned from and the others
    predict. Of few rows these trials are known, and the best is learned from all rows; of more the best three
    that differ are learned from more rows for some iterations, and the best of these to its end, from as many
    as an exact GP is learned from.
    """
    n = start.rows.n
    rows = varied(start.rows, some_rows(n, LEARNED, n + 1))
    whole = replace(start.exact_on(np.sort(rows)), trace=None, checkpoint=None, restarts=0)
    most = min(FINAL_ITERATIONS, start.max_iterations)
    whole = replace(whole, max_iterations=most, least_gain=LEAST_GAIN)
    if n < IN_THIRDS:
        enough = n >= ROWS_OF_AN_INPUT * start.rows.X.shape[1]
        for each in learned:
            own = loosened(each.priors) if enough else each.priors
            try:
                outcome = replace(at_own_basis(whole, each.outcome.parameters), priors=own).run()
            except FactorisationError:  # too little noise for all rows
                continue
            return [(replace(each.trial, name=f"exact, {each.name}"), outcome)]
        return []
    race, racing = Comparison(start, min(RACED, n // 2), JUDGED, FINALIST_ITERATIONS), different(learned)
    racing = racing[: 1 if start.is_over else FINALISTS]
    ends = race.climbed([([each.outcome.parameters], each.priors) for each in racing])
    trials, priors = list[tuple[Trial, Outcome]](), []
    for each, outcomes in zip(racing, ends):
        if trials and (start.is_over or trials[-1][1].run.interrupted):
            break
        began = time.perf_counter()
        for outcome in outcomes:
            trial = race.judged([outcome.parameters], f"exact, {each.name}")
            seconds = outcome.run.seconds + time.perf_counter() - began
            trials.append((replace(trial, seconds=seconds), outcome))
            priors.append(each.priors)
    if trials and not (start.is_over or trials[-1][1].run.interrupted):
        best, began = best_of([trial for trial, _ in trials], aim), time.perf_counter()
        trial, outcome = trials[best]
        with suppress(FactorisationError):  # too little noise for more rows
            outcome = replace(at_own_basis(whole, outcome.parameters), priors=priors[best]).run()
        trials[best] = replace(trial, seconds=trial.seconds + time.perf_counter() - began), outcome
    return trials


def guarded(comparison: Comparison, parameters: Parameters) -> tuple[Parameters, LeftOut | None]:
    """The parameters with more variance of the kernel, then of the noise, as long as that helps rows that the
    others predict: a guard against errors far larger than their error bars, of which the evidence of a model
    that is wrong somewhere makes too little. And these rows, as the others predict them by what is returned.
    """

    def judged(candidate: Parameters) -> tuple[float, LeftOut | None]:
        try:
            left = comparison.left_out(candidate)
        except FactorisationError:
            return -np.inf, None
        return float(np.mean(left.log_density)), left

    best, left = judged(parameters)
    for step in (
        lambda p: p._replace(kernel=times(p.kernel, "variance", WIDER)),
        lambda p: p._replace(noise=WIDER * p.noise),
    ):
        for _ in range(MOST_WIDER):
            candidate = step(parameters)
            value, predicted = judged(candidate)
            if not value > best:
                break
            parameters, best, left = candidate, value, predicted
    return parameters, left
