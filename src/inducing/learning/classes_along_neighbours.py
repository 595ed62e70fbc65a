"""Learning of classes along neighbours: pseudo-targets of each class, judged by labels that are left out."""

from dataclasses import dataclass, replace

import numpy as np

from ..inference.neighbours import NeighboursPredictor, with_neighbours
from ..inference.regression import settled_model
from ..model.likelihoods import Binary
from ..model.table import FITC
from ..numerics.arrays import Array
from .along_neighbours import FIRST_NEIGHBOURS, SUBSETS, placed_basis
from .objective import PseudoTargets, parameters_of
from .stages import FIRST_SEARCH, Outcome, Stage, mean_density
from .starts import times

SCALES = (1.0, 0.4)  # times the lengthscales given: starts that are raced on the first subset
LAST_TOLERANCE, LAST_SWEEPS = 1e-3, 60  # of the sites that are kept


@dataclass(frozen=True, eq=False)
class ClassesAlongNeighbours:
    """Predictors of classes on one kernel and basis, and how their learning ended."""

    predictors: list[NeighboursPredictor]
    likelihood: Binary
    n_iterations: int
    leave_one_out: float  # mean log probability of a label given all others, summed over predictors
    log_evidence: float


def learn_along_neighbours(start: Stage, signs: Array) -> ClassesAlongNeighbours:
    """Learn the kernel from labels as signs (n, c), c = 1 for two classes, by rounds on pseudo-targets.

    Two starts are raced on a subset of rows; the better one goes on there, on more rows and, for one round,
    on all of them. The basis is placed by k-means in the lengthscales found, and stays.
    """
    P, outcomes = start.rows, list[Outcome]()
    bare = replace(P, row=FITC, sets=None, blocks=None)
    learning = replace(start, problem=bare, optimize="hyperparameters", held_out=None)
    order = np.random.default_rng(P.n).permutation(P.n)
    sizes = [*(size for size in SUBSETS if 2 * size <= P.n), P.n]
    for turn, size in enumerate(sizes if start.max_iterations > 0 else []):
        rows = np.sort(order[:size])
        count = min(P.row.n_neighbours, FIRST_NEIGHBOURS) if size < P.n else P.row.neighbours
        own = replace(P.row, neighbours=count)
        most = FIRST_SEARCH if turn > 0 else start.max_iterations
        starts = [learning]
        if turn == 0 and start.prelude != "none":
            starts = [_scaled(learning, scale) for scale in SCALES]
        trials = []
        for stage in starts:
            stage = stage if size == P.n else stage.on(rows)
            problem = with_neighbours(replace(stage.rows, row=own))
            first = most if len(starts) == 1 else min(most, FIRST_SEARCH)
            evidence = PseudoTargets([signs[rows][:, [j]] for j in range(signs.shape[1])])
            trials.append(replace(stage, problem=problem, evidence=evidence, max_iterations=first))
        ends = [trial.run() for trial in trials]
        best = int(np.argmax([_score(end) for end in ends]))
        outcome = ends[best]
        if len(ends) > 1 and most > FIRST_SEARCH:
            outcome = replace(trials[best].after(outcome), max_iterations=most).run().following([outcome])
        outcomes.append(outcome)
        learning = learning.after(outcome)
        if turn == 0 and start.prelude == "all":
            learning = placed_basis(learning)
    final = with_neighbours(replace(learning.rows, row=P.row))
    evidence = PseudoTargets([signs[:, [j]] for j in range(signs.shape[1])])
    settled = evidence.settle(final, LAST_TOLERANCE, LAST_SWEEPS)
    predictors = [settled_model(s) for s in settled]
    likelihood = parameters_of(final).noise
    assert isinstance(likelihood, Binary)
    return ClassesAlongNeighbours(
        predictors,
        likelihood,
        sum(outcome.run.iterations for outcome in outcomes),
        mean_density(settled),
        sum(s.log_evidence for s in settled),
    )


def _scaled(stage: Stage, scale: float) -> Stage:
    """The stage with all lengthscales of its kernel times a number."""
    kernel = times(stage.problem.kernel, "lengthscale", scale)
    return stage.at(parameters_of(stage.problem)._replace(kernel=kernel))


def _score(outcome: Outcome) -> float:
    return -np.inf if outcome.score is None else outcome.score
