"""The choices that a user leaves open: a kernel, and a row of the table, judged by rows not learned from.

Few rows are judged by leaving out each in turn (closed form), many by holding some out. Of the candidates
whose error is within 2 % of the least the one with the best log density wins.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import FactorisationError, UnknownNameError
from ..inference.left_out import left_out_of
from ..model.bases import as_points
from ..model.kernels.base import Kernel
from ..model.kernels.category import code_columns
from ..model.kernels.dot import Linear
from ..numerics.arrays import to_numpy
from .ascent import INTERRUPTED
from .objective import HeldOut, parameters_of, targets
from .packing import Parameters
from .recipes import Task, split, train
from .stages import Fit, Outcome, Stage
from .starts import LEAST_GAIN, times

AIMS = ("both", "rmse", "log_loss")
COMPARED_ROWS = 500  # rows that kernels are compared on
KERNEL_ITERATIONS = 40  # of each kernel there
SHORTER_START = 0.2  # times the lengthscales given: a second start, for functions that vary faster
CLOSE = 0.02  # of the least error: candidates as near as that are chosen by log density
FINALISTS = 3  # kernels that are learned from more rows; the more rows, the rougher a kernel they prefer
FINAL_ITERATIONS = 40
EXACT_UP_TO = 10_000  # rows of an exact GP: its memory and time grow as their square and cube
LEARNED = 1_500  # rows that an exact GP's parameters are learned from at most
SAME = 1.0  # nats: optima as near as that are one
LINEAR_SHARE = 0.1  # of the noise: the variance that a linear term starts with
GUARDED = 2_500  # rows that the guard looks at at most
WIDER, MOST_WIDER = 2.0, 6  # the factor of a guard against large errors, and how often it is tried
JUDGED = 4_000  # rows that are left out in turn at most


@dataclass(frozen=True)
class Trial:
    """One candidate: its root mean squared error and mean log density on rows it did not learn from."""

    name: str
    rmse: float
    log_density: float
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}: RMSE {self.rmse:.4g}, log density {self.log_density:.4g}, {self.seconds:.1f} s"


def best_of(trials: Sequence[Trial], aim: str = "both") -> int:
    """The number of the trial to take."""
    rmse = np.array([trial.rmse for trial in trials])
    density = np.array([trial.log_density for trial in trials])
    if aim == "rmse":
        return int(np.argmin(rmse))
    close = rmse <= (1.0 + CLOSE) * np.min(rmse) if aim == "both" else np.ones(len(trials), dtype=bool)
    return int(np.argmax(np.where(close, density, -np.inf)))


@dataclass(frozen=True, eq=False)
class Choice:
    """The fit of the candidate taken, its row of the table, and all that were tried."""

    fit: Fit
    approximation: str
    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.trials))


@dataclass(frozen=True, eq=False)
class Learned:
    """A kernel with the parameters that an exact GP on a few rows has learned, and its evidence there."""

    name: str
    parameters: Parameters
    value: float
    other: bool = False  # whether it is the worse of two optima of one kernel


def choose(
    task: Task,
    kernels: dict[str, Kernel],
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
    learned = ranked_kernels(start, kernels)
    n = start.rows.n
    if n <= EXACT_UP_TO and 8.0 * n * (start.rows.X.shape[1] + 2 + start.rows.p) < most_bytes:
        found = exact_trials(start, finalists(learned))
        if found:
            trials = [trial for trial, _ in found]
            outcome = found[best_of(trials, aim)][1]
            whole = at_own_basis(start.exact_on(np.arange(n)), outcome.parameters)
            return Choice(whole.fit(whole.unmoved(outcome.run)), "exact", tuple(trials))
    return _sparse(task, learned, aim, neighbours, most_bytes)


def _sparse(task: Task, learned: Sequence[Learned], aim: str, neighbours: int, most_bytes: float) -> Choice:
    """The better of neighbours and FITC, each with the best kernel."""
    tasks = {"fitc": task}
    n, d = task.problem.X.shape
    if 4.0 * n * (d + task.problem.p) < most_bytes:
        kernel = learned[0].parameters.kernel if learned else task.kernel
        near = replace(task, kernel=kernel, basis=as_points(task.basis), approximation="neighbours")
        tasks["neighbours"] = replace(near, neighbours=neighbours)
    trials: list[Trial] = []
    fits: list[Fit] = []
    for name, each in tasks.items():
        if fits and (time.monotonic() > task.deadline or fits[-1].message == INTERRUPTED):
            break
        began = time.perf_counter()
        fits.append(train("auto", each))
        trials.append(_judged(each, fits[-1], name, began))
    best = best_of(trials, aim)
    return Choice(fits[best], list(tasks)[best], tuple(trials))


def _judged(task: Task, fit: Fit, name: str, began: float) -> Trial:
    """The trial of a fit: the rows its recipe held out, predicted from the rest with its parameters."""
    stage = task.stage()
    held, rest = split(stage)
    P = stage.rows
    held = np.arange(P.n) if held is None else held
    judge = HeldOut(P.X[held], targets(P)[held])
    learned = stage.at(Parameters(fit.kernel, fit.basis, fit.noise, fit.mean)).on(rest)
    return held_out_trial(learned, judge, name, began)


def best_kernel(task: Task, kernels: dict[str, Kernel]) -> Kernel:
    """The kernel with the best evidence of an exact GP on some of the task's rows, its parameters learned."""
    learned = ranked_kernels(task.stage(), kernels)
    return learned[0].parameters.kernel if learned else next(iter(kernels.values()))


def ranked_kernels(start: Stage, kernels: dict[str, Kernel], rows: int = COMPARED_ROWS) -> list[Learned]:
    """The kernels with parameters learned by an exact GP on some of the rows, the best evidence first.

    The first kernel of the dictionary is learned from its own lengthscales and from shorter ones, and where
    these end apart both are kept; the others start with the better of the two. Last the best of all is tried
    with a linear term.
    """
    n = start.rows.n
    few = start.exact_on(np.sort(np.random.default_rng(n).permutation(n)[:rows]))
    few = replace(few, trace=None, checkpoint=None, restarts=0)
    few = replace(few, max_iterations=KERNEL_ITERATIONS, least_gain=LEAST_GAIN)
    given = parameters_of(few.problem)

    stopped = False

    def learned_from(name: str, kernel: Kernel, base: Parameters) -> list[Learned]:
        nonlocal stopped
        outcome = None if stopped else _climbed(at_own_basis(few, base._replace(kernel=kernel)))
        if outcome is None:
            return []
        stopped = outcome.run.interrupted
        return [Learned(name, outcome.parameters, outcome.run.value)]

    (name, first), *others = kernels.items()
    learned = learned_from(name, first, given)
    learned += learned_from(
        f"{name}, from short lengthscales", times(first, "lengthscale", SHORTER_START), given
    )
    learned.sort(key=lambda each: -each.value)
    if not learned:
        return []
    if len(learned) == 2:
        apart = learned[0].value - learned[1].value >= SAME
        learned = [learned[0], replace(learned[1], other=True)] if apart else learned[:1]
    # with little noise all may become noise
    base = learned[0].parameters._replace(noise=given.noise)
    for name, kernel in others:
        learned += learned_from(name, _like(kernel, base.kernel), base)
    best = max(learned, key=lambda each: each.value)
    if others and not (best.parameters.kernel.uncertain or code_columns(first)):
        linear = Linear(variance=LINEAR_SHARE * given.noise)
        learned += learned_from(f"{best.name} + linear", best.parameters.kernel + linear, best.parameters)
    return sorted(learned, key=lambda each: -each.value)


def finalists(learned: Sequence[Learned]) -> list[Learned]:
    """The kernels to learn further: the best, and the other optimum of the first one."""
    return [*learned[:FINALISTS], *(each for each in learned[FINALISTS:] if each.other)]


def exact_trials(start: Stage, learned: Sequence[Learned]) -> list[tuple[Trial, Outcome]]:
    """Exact GPs with these kernels, each row predicted by the others: all rows where they are few, else
    parameters learned from 1,500 of them and judged on 4,000.
    """
    n = start.rows.n
    order = np.random.default_rng(n + 1).permutation(n)
    learning = start.exact_on(np.sort(order[:LEARNED]))
    learning = replace(learning, max_iterations=FINAL_ITERATIONS, least_gain=LEAST_GAIN, restarts=0)
    guarding, judging = (start.exact_on(np.sort(order[:count])) for count in (GUARDED, JUDGED))
    trials: list[tuple[Trial, Outcome]] = []
    for each in learned:
        if trials and time.monotonic() > start.deadline:
            break
        began = time.perf_counter()
        outcome = _climbed(at_own_basis(learning, each.parameters))
        if outcome is not None:
            outcome = replace(outcome, parameters=guarded(guarding, outcome.parameters))
            judged = at_own_basis(judging, outcome.parameters)
            trials.append((exact_trial(judged, each.name, began), outcome))
            if outcome.run.interrupted:
                break
    return trials


def guarded(learning: Stage, parameters: Parameters) -> Parameters:
    """The parameters with more variance of the kernel, then of the noise, as long as that helps rows that the
    others predict: a guard against errors far larger than their error bars, of which the evidence of a model
    that is wrong somewhere makes too little.
    """

    def density(candidate: Parameters) -> float:
        try:
            return float(np.mean(left_out_of(at_own_basis(learning, candidate).rows).log_density))
        except FactorisationError:
            return -np.inf

    best = density(parameters)
    for step in (
        lambda p: p._replace(kernel=times(p.kernel, "variance", WIDER)),
        lambda p: p._replace(noise=WIDER * p.noise),
    ):
        for _ in range(MOST_WIDER):
            candidate = step(parameters)
            value = density(candidate)
            if not value > best:
                break
            parameters, best = candidate, value
    return parameters


def exact_trial(stage: Stage, name: str, began: float) -> Trial:
    """The trial of an exact GP, each row predicted by the others."""
    P = stage.rows
    left = left_out_of(P)
    weights = to_numpy(P.weight(slice(None))) * np.ones(P.n)
    squares = np.mean(left.error.reshape(P.n, -1) ** 2, axis=1)
    rmse = float(np.sqrt(np.average(squares, weights=weights)))
    density = float(np.average(left.log_density, weights=weights))
    return Trial(f"exact, {name}", rmse, density, time.perf_counter() - began)


def held_out_trial(stage: Stage, judge: HeldOut, name: str, began: float) -> Trial:
    """The trial of the stage's model as it is, by held-out rows."""
    model, noise = stage.model(), parameters_of(stage.problem).noise
    y = to_numpy(judge.Y)
    mean = to_numpy(model.predict(judge.X)[0]).reshape(y.shape)
    density = float(np.mean(judge.log_densities(model, noise)))
    return Trial(name, float(np.sqrt(np.mean((y - mean) ** 2))), density, time.perf_counter() - began)


def at_own_basis(stage: Stage, parameters: Parameters) -> Stage:
    """The stage with these parameters but for its basis, which it keeps."""
    return stage.at(parameters._replace(basis=parameters_of(stage.problem).basis))


def _climbed(stage: Stage) -> Outcome | None:
    try:
        return stage.run()
    except FactorisationError:  # too little noise for an exact GP of these rows
        return None


def _like(kernel: Kernel, other: Kernel) -> Kernel:
    """The kernel with the parameters that another of its kind has, too."""
    known = {name: v for name, v in other.parameters.items() if name in kernel.parameters}
    same = {name: v for name, v in known.items() if np.shape(v) == np.shape(kernel.parameters[name])}
    return kernel.with_parameters(same)
