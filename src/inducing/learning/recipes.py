"""Named ways to train: which parameters move, in which order, under which row of the table. [000 §5], [001]

A recipe takes a `Task`, checks its data once, and composes stages; the posterior of its `Fit` is the only one
it makes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, update_wrapper
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..engine.compiled_passes import expects
from ..errors import FactorisationError, ParameterError, UnknownNameError, require_count
from ..inference import selection
from ..inference.regression import DENSE, approximation_of, problem_of
from ..model.bases import Basis, Multiscale, Points, as_multiscale, as_points
from ..model.kernels.base import Kernel
from ..model.means import Mean
from ..model.problem import DEFAULT_JITTER, Problem
from ..model.table import VFE, Approximation, row
from ..numerics.arrays import some_rows, to_numpy
from .along_neighbours import along_neighbours
from .ascent import INTERRUPTED
from .objective import HeldOut, parameters_of, targets
from .packing import Parameters
from .settings import Settings
from .stages import Fit, Outcome, Stage, counting_on
from .starts import LEAST_GAIN, SUBSET_ROWS, exact_start, informed_start, projected_start, stage_file

POWERS = (0.5, 0.8)  # of PEP, between VFE and FITC
FIRST_GAIN = 0.01  # nats per row: VFE ends with less where another row follows, having brought the basis near
FIRST_SHARE, SHARE = 0.4, 0.25  # of the iterations left, the most that VFE and others before the last take
LEAST_HELD, MOST_HELD = 10, 500  # rows held out to judge by
EARLY_ROWS, EARLY_SHARE = 10_000, 20  # that come before the last climb: at least, and for each basis function


@dataclass(frozen=True, eq=False)
class Task(Settings):
    """The arguments of one fit: the model to start from, the data as given, and the settings."""

    kernel: Kernel
    basis: Basis
    approximation: str
    noise: Any
    X: Any
    y: Any
    mean: Mean | None = None
    jitter: float = DEFAULT_JITTER
    blocks: Any = None
    power: float | None = None
    neighbours: Any = None
    weights: Any = None

    @cached_property
    def problem(self) -> Problem:
        """The data and the start, checked."""
        row = approximation_of(self.approximation, self.power, self.neighbours)
        options = {name: getattr(self, name) for name in ("mean", "jitter", "blocks", "weights")}
        return problem_of(self.kernel, self.basis, row, self.noise, self.X, self.y, **options)

    def stage(self) -> Stage:
        """The task as one stage, which others can be made of."""
        settings = {f.name: getattr(self, f.name) for f in fields(Settings)}
        return Stage(self.problem, **settings)

    def started(self, stage: Stage) -> "Task":
        """The same task with the start of a stage that was made of it; its data need no second check."""
        kernel, basis, noise, mean = parameters_of(stage.problem)
        basis = self.basis if self.approximation in DENSE else basis
        return self._with(stage.rows, kernel=kernel, basis=basis, noise=noise, mean=mean, fixed=stage.fixed)

    def set(self, **settings: Any) -> "Task":
        """The same task with other settings; its data need no second check."""
        return self._with(self.problem, **settings)

    def _with(self, problem: Problem, **changes: Any) -> "Task":
        task = replace(self, **changes)
        vars(task)["problem"] = problem
        return task

    def after(self, result: Fit) -> "Task":
        """The same task, started where `result` ended."""
        start = Parameters(result.kernel, result.basis, result.noise, result.mean)
        return self.started(self.stage().at(start)).set(restarts=0)

    def run(self, optimize: str | None = None) -> Fit:
        """`fit` with these arguments."""
        stage = self.stage() if optimize is None else replace(self.stage(), optimize=optimize)
        return stage.fit(stage.run())


class Recipe:
    """A way to train, written as a `path` from a stage to an outcome, and called with a task.

    What `prepared` makes of the task is checked, and a posterior is made of the outcome.
    """

    def __init__(
        self, path: Callable[[Stage], Outcome], prepared: Callable[[Task], Task] | None = None
    ) -> None:
        self.path, self.prepared = path, prepared
        update_wrapper(self, path)

    def __call__(self, task: Task) -> Fit:
        stage, outcome = self.learned(task)
        return stage.fit(outcome)

    def learned(self, task: Task) -> tuple[Stage, Outcome]:
        """The task as a stage, and the outcome of the path from it."""
        stage = (task if self.prepared is None else self.prepared(task)).stage()
        return stage, self.path(stage)


def by_fitc(path: Callable[[Stage], Outcome]) -> Recipe:
    """A recipe under FITC, whatever the task's own row."""
    return Recipe(path, lambda task: replace(task, approximation="fitc", power=None, neighbours=None))


@Recipe
def direct(start: Stage) -> Outcome:
    """Everything at once, from the start given."""
    return start.run()


@Recipe
def hyperparameters(start: Stage) -> Outcome:
    """Hyperparameters alone: the basis stays where it is."""
    return replace(start, optimize="hyperparameters").run()


class Leg(NamedTuple):
    """A part of the way to the row asked for: the row to climb under, and what moves."""

    row: Approximation
    optimize: str


@Recipe
def auto(start: Stage) -> Outcome:
    """Learn in stages from VFE to the row asked for, each starting where the last one ended.

    VFE's bound is smooth in the basis and never over-fits, but its single noise pays for all of R and its
    error bars are wide; FITC's error bars are good, but from a distant start it moves the basis to explain
    noise, and given time it does so from a near one. Raising PEP's power from 0 to 1 carries VFE's basis over
    to FITC's error bars. The row asked for has its hyperparameters learned first: a basis that is free while
    the noise is still another row's moves to make up for it. What comes before it sees 10,000 rows, or 20 for
    each basis function, where there are more. A multiscale basis is learned as points first [000 §5]. With a
    validation_fraction, that share of the rows (10 to 500 of them) is held out: stages after the first end
    when those rows gain nothing, and the first stage is kept whose parameters predict them, under the row
    asked for, as well as those of any later one, to one standard error; of fewer than 50 rows none can be
    spared, and VFE's parameters are kept. The result always has all rows. Along neighbours the way is another
    one: see `along_neighbours`.
    """
    P = start.rows
    if P.row.name in DENSE:
        return start.run()
    held, rest = split(start)
    if P.row.keeps == "neighbours":
        expects(P)
        return along_neighbours(start, held, rest)
    legs = _legs(start)
    for i in reversed(range(len(legs))):  # what is called last first: another process may compile it
        expects(replace(P, row=legs[i].row), surely=i == 0 and start.max_iterations >= 1)
    judge = None if held is None else HeldOut(P.X[held], targets(P)[held])
    learning = start if held is None else start.on(rest)
    if start.prelude != "none" and start.max_iterations >= 1:
        learning = informed_start(learning)
    whole = len(legs)
    if held is None and start.validation_fraction > 0.0 and not P.known_noise:
        legs = legs[:1]  # too few rows to judge by, and only VFE's bound needs no judge
    outcomes = _climbed(start, learning, legs, judge)
    last = outcomes[-1]
    if judge is None and len(outcomes) == whole:
        return last.following(outcomes[:-1])
    chosen, score = (last, last.score) if judge is None else _best(learning, legs, outcomes, judge)
    return replace(start.at(chosen.parameters).unmoved(last.following(outcomes[:-1]).run), score=score)


def _climbed(start: Stage, learning: Stage, legs: Sequence[Leg], judge: HeldOut | None) -> list[Outcome]:
    """The outcomes of the legs one after the other, up to the last or to an interruption."""
    files = [stage_file(start.checkpoint, i) for i in range(len(legs) - 1)] + [start.checkpoint]
    early, outcomes = _on_some_rows(learning), list[Outcome]()
    left = start.max_iterations
    for i, leg in enumerate(legs):
        last, vfe = i == len(legs) - 1, leg.row.name == "vfe"
        stage = learning if leg.row is start.rows.row else early
        if outcomes:
            stage = stage.after(outcomes[-1])
        elif start.prelude == "all":  # else widths given are kept
            stage = _on_points(stage)
        most = left if last else min(left, max(1, round((FIRST_SHARE if vfe else SHARE) * left)))
        after = None if last else files[i + 1]
        passed = after is not None and Path(after).exists()  # in an earlier run: only pick up where it ended
        stage = replace(
            stage.under(leg.row),
            optimize=leg.optimize,
            max_iterations=0 if passed else most,
            least_gain=FIRST_GAIN if vfe and not last else LEAST_GAIN,
            held_out=judge if outcomes else None,
            checkpoint=files[i],
            progress=counting_on(start.progress, outcomes),
        )
        try:
            outcome = stage.run()
        except KeyboardInterrupt:  # outside of the climb itself
            if not outcomes:
                raise
            stopped = replace(outcomes[-1].run, converged=False, message=INTERRUPTED)
            outcomes[-1] = replace(outcomes[-1], run=stopped)
            break
        except FactorisationError:  # sites that leave no proper process here: what came before is kept
            if not outcomes or start.rows.likelihood is None:
                raise
            break
        left -= most if passed else outcome.run.iterations
        if isinstance(start.problem.basis, Multiscale):  # from now on its widths may move
            outcome = replace(outcome, parameters=_widened(outcome.parameters))
        outcomes.append(outcome)
        if outcome.run.interrupted:
            break
    return outcomes


def _on_some_rows(stage: Stage) -> Stage:
    """The stage on as many rows as bring its basis near, if it has more."""
    n, count = stage.rows.n, max(EARLY_ROWS, EARLY_SHARE * len(stage.problem.basis))
    return stage if n <= count else stage.on(some_rows(n, count, n))


def _on_points(stage: Stage) -> Stage:
    """The stage with points at the centres of its basis."""
    basis = stage.problem.basis
    return stage if isinstance(basis, Points) else stage.with_basis(as_points(basis))


def _widened(parameters: Parameters) -> Parameters:
    """Points as Gaussians of the kernel's own width."""
    return parameters._replace(basis=as_multiscale(parameters.kernel, parameters.basis))


def _legs(start: Stage) -> list[Leg]:
    """The rows of the table to climb under, the stage's own last, and what moves under each."""
    P = start.rows
    target = P.row.power if P.row.keeps == "diagonal" else None
    freed = isinstance(P.basis, Multiscale) and start.prelude == "all"  # points first, then the widths
    plain = target is not None and P.likelihood is None  # sites of a likelihood take many sweeps a leg
    powers = [power for power in POWERS if target is not None and plain and power < target]
    moves = ("all",) if target == 0.0 else ("hyperparameters", "all")
    return [
        *[Leg(VFE, "all")] * (freed + (target != 0.0)),
        *(Leg(row("pep", power), "all") for power in powers),
        *(Leg(P.row, optimize) for optimize in moves),
    ]


def _best(
    learning: Stage, legs: Sequence[Leg], outcomes: Sequence[Outcome], judge: HeldOut
) -> tuple[Outcome, float]:
    """The first outcome as good as any by the held-out rows under the row asked for, and its score."""
    rows = []
    for leg, outcome in zip(legs, outcomes):
        known = outcome.densities if leg.row is learning.rows.row else None
        if known is None:
            model = learning.at(outcome.parameters).model()
            known = judge.log_densities(model, outcome.parameters.noise)
        rows.append(known)
    first = first_as_good(np.array(rows))
    return outcomes[first], float(np.mean(rows[first]))


def first_as_good(densities: np.ndarray) -> int:
    """The first stage of densities (stages, rows) that the best one beats by less than a standard error."""
    best = int(np.argmax(np.mean(densities, axis=1)))
    gains = densities[best] - densities[: best + 1]
    errors = np.std(gains, axis=1) / np.sqrt(gains.shape[1])
    return int(np.argmax(np.mean(gains, axis=1) <= errors))


def split(start: Stage, most: int = MOST_HELD) -> tuple[np.ndarray | None, np.ndarray]:
    """Rows to judge by, None if there are too few or noise is by row, and rows to learn from."""
    n, share = start.rows.n, start.validation_fraction
    if not 0.0 <= share < 1.0:
        raise ParameterError(f"validation_fraction must lie in [0, 1), but is {share}")
    count = min(max(round(share * n), LEAST_HELD), most)
    if share == 0.0 or start.rows.known_noise or n < 5 * count:
        return None, np.arange(n)
    order = np.random.default_rng(n).permutation(n)
    return np.sort(order[:count]), np.sort(order[count:])


def _with_blocks(task: Task) -> Task:
    if task.blocks is None:
        X = to_numpy(task.X)
        centres = selection.kmeans(X, max(1, round(len(X) / len(task.basis))), task.rng)
        task = replace(task, blocks=selection.nearest(X, centres))
    return replace(task, approximation="pitc", power=None, neighbours=None)


def _pitc(start: Stage) -> Outcome:
    """Learn as "auto" does, ending with PITC, whose evidence keeps blocks of R. [003 §7, §11]

    Blocks not given are made by k-means, of about as many rows each as there are basis functions.
    """
    return auto.path(start)


pitc = Recipe(_pitc, _with_blocks)


@Recipe
def mixed(start: Stage) -> Outcome:
    """Learn as "auto" does with half of the basis free: the others are random rows, and stay. [001 §5]"""
    P, basis = start.rows, parameters_of(start.problem).basis
    if not isinstance(basis, Points):
        raise ParameterError(f"the mixed recipe needs a basis of points, not {type(basis).__name__}")
    rng, m = np.random.default_rng(start.rng), len(basis)
    Z, movable = basis.Z.copy(), np.arange(m) >= round(0.5 * m)
    Z[~movable] = to_numpy(P.X[some_rows(P.n, int(np.count_nonzero(~movable)), rng)])
    return auto.path(replace(start.with_basis(Points(Z)), movable=movable))


@by_fitc
def spgp_full(start: Stage) -> Outcome:
    """Inducing inputs and hyperparameters jointly, by FITC's evidence. [001 §3]"""
    return start.run()


@by_fitc
def spgp_basis(start: Stage) -> Outcome:
    """Hyperparameters of an exact GP on a subset, held; then inducing inputs alone. [001 §4], [000 §5]"""
    return replace(exact_start(start), optimize="basis").run()


@by_fitc
def vsgp_full(start: Stage) -> Outcome:
    """Half of the iterations as spgp-full, then the widths are freed. [000 §5]"""
    return _freed(start)


@by_fitc
def vsgp_basis(start: Stage) -> Outcome:
    """Half of the iterations as spgp-basis, then the widths are freed. [000 §5]"""
    return _freed(replace(exact_start(start), optimize="basis"))


RECIPES = {
    "auto": auto,
    "direct": direct,
    "hyperparameters": hyperparameters,
    "pitc": pitc,
    "mixed": mixed,
    "spgp-full": spgp_full,
    "spgp-basis": spgp_basis,
    "vsgp-full": vsgp_full,
    "vsgp-basis": vsgp_basis,
}


def recipe_for(recipe: str, optimize: str = "all") -> Recipe:
    """The recipe of that name; where not everything is to move, one climb of what is."""
    if recipe not in RECIPES:
        raise UnknownNameError(f"there is no recipe {recipe!r}; choose one of {', '.join(RECIPES)}")
    if optimize == "all":
        return RECIPES[recipe]
    return Recipe(direct.path, lambda task: replace(task, optimize=optimize))


def train(recipe: str, task: Task, optimize: str = "all") -> Fit:
    """Fit `task` by the recipe of that name; by one climb where `optimize` is not "all"."""
    return recipe_for(recipe, optimize)(task)


def with_exact_hyperparameters(task: Task, rows: int = SUBSET_ROWS) -> Task:
    """The task with kernel and noise learned by an exact GP on a random subset of the rows."""
    return task.started(exact_start(task.stage(), rows))


def with_projection(task: Task, directions: int) -> Task:
    """The task with a kernel of a few directions of its inputs; see `projected_start`."""
    require_count("projection", directions)
    return task.started(projected_start(task.stage(), directions))


def _freed(start: Stage) -> Outcome:
    """Points first, then the same functions as Gaussians whose widths may move."""
    half, checkpoint = start.max_iterations // 2, stage_file(start.checkpoint, "points")
    first = replace(_on_points(start), checkpoint=checkpoint, max_iterations=half).run()
    freed = start.after(replace(first, parameters=_widened(first.parameters)))
    progress = counting_on(start.progress, [first])
    left = start.max_iterations - half
    return replace(freed, progress=progress, max_iterations=left).run().following([first])
