"""Learning along neighbours, on subsets of rows that grow: kernel and noise by this row's own evidence, and
classes by pseudo-targets, judged by labels that are left out.
"""

from dataclasses import dataclass, replace

import numpy as np

from ..errors import FactorisationError
from ..inference import selection
from ..inference.left_out import left_out_of
from ..inference.neighbours import NeighboursPredictor, coordinates, with_neighbours
from ..inference.regression import settled_model
from ..metrics import Baseline, msll, smse
from ..model.bases import Basis, Points, as_multiscale, as_points
from ..model.kernels.base import Kernel
from ..model.likelihoods import Binary
from ..model.problem import Problem
from ..model.table import FITC
from ..numerics.arrays import Array, some_rows, to_numpy
from .class_diagnosis import ClassDiagnosis, diagnosis_of_classes
from .objective import HeldOut, PseudoTargets, moved, parameters_of, targets
from .stages import FIRST_SEARCH, NeighbourGain, Outcome, Stage, counting_on
from .starts import LEAST_GAIN, START_ROWS, stage_file, times

SUBSETS = (2_000, 10_000)  # rows
SUBSET_ITERATIONS = (40, 15, 10)  # at most, on the first, second, ... of them; the last on all rows
SHORT_START = 0.1  # times the lengthscales given: a second start, for functions that vary faster
FIRST_NEIGHBOURS = 20  # at most on subsets: what is learned there depends on more of them little
START_ITERATIONS = 20  # iterations of each start
# shares of the targets' variance: few rows that see less noise than the first start a climb with the second
NO_NOISE, SOME_NOISE = 1e-5, 0.05
PLACED_AMONG = 20_000  # rows that the basis is placed among
FREED_ROWS = 10_000  # that a basis which may move is learned from, at most
FREED_ITERATIONS = (15, 45)  # of climbs with it, as long as held-out rows gain
SCALES = (1.0, 0.4)  # times the lengthscales given: starts that are raced on the first subset
LAST_TOLERANCE, LAST_SWEEPS = 1e-3, 60  # of the sites that are kept


def along_neighbours(start: Stage, held: np.ndarray | None, rest: np.ndarray) -> Outcome:
    """Kernel and noise from an exact GP on a few rows, a basis by k-means in its lengthscales, then a few
    dozen evaluations of this row's evidence on subsets that grow, the last on all rows but those `held`.

    The basis is where k-means puts it, and moves in the end if the held-out rows gain: this evidence can
    exceed the exact one, so it alone does not tell. The noise is learned by it, too, since a subset has fewer
    near-duplicates than all rows. In the end both variances grow where left-out rows ask for it. A
    likelihood's own parameters are those of the few rows.
    """
    P = start.rows
    if P.likelihood is not None:  # judged by its own rows, left out one by one; none need be held out
        held = None
    bare = replace(start, problem=replace(P, row=FITC, sets=None, blocks=None), optimize="hyperparameters")
    learning = bare if held is None else bare.on(rest)
    left, outcomes, order = start.max_iterations, list[Outcome](), np.random.default_rng(P.n)
    if left >= 1 and start.prelude != "none" and not start.is_over:
        learning = _from_few_rows(learning)
        learning = placed_basis(learning) if start.prelude == "all" and not start.is_over else learning
    n = learning.rows.n
    for size, most in zip([*(size for size in SUBSETS if 2 * size <= n), n], SUBSET_ITERATIONS):
        rows = some_rows(n, size, order)
        stage = learning if size == n else learning.on(rows)
        few = np.ndim(P.row.neighbours) == 0 and size < n
        count = min(P.row.n_neighbours, FIRST_NEIGHBOURS) if few else P.row.neighbours
        stage = replace(
            stage,
            problem=with_neighbours(replace(stage.rows, row=replace(P.row, neighbours=count))),
            max_iterations=min(left, most),
            least_gain=LEAST_GAIN,
            checkpoint=start.checkpoint if size == n else stage_file(start.checkpoint, size),
            progress=counting_on(start.progress, outcomes),
            trace=start.trace if size == n else None,
        )
        outcomes.append(stage.run())
        left -= outcomes[-1].run.iterations
        learning = learning.after(outcomes[-1])
        if outcomes[-1].run.interrupted or start.is_over:
            break
        if len(outcomes) == 1 and size < n and start.prelude == "all":
            learning = placed_basis(learning)
    over = outcomes[-1].run.interrupted or start.is_over
    if held is not None and start.prelude == "all" and left > 0 and not over:
        for most in FREED_ITERATIONS:
            learning, before = _with_freed_basis(learning, P, held, min(left, most), outcomes), learning
            if learning is before or start.is_over:
                break
    if held is not None and start.max_iterations >= 1 and not (start.fixed or over or start.is_over):
        learning = _widened(learning, P)
    last = start.at(parameters_of(learning.rows)).unmoved(outcomes[-1].following(outcomes[:-1]).run)
    if held is None:
        return replace(last, score=outcomes[-1].score)
    gain = neighbour_gain(learning, P, held)
    return replace(last, score=-gain.log_loss[1], gain=gain)


def _with_freed_basis(
    learning: Stage, P: Problem, held: np.ndarray, most: int, outcomes: list[Outcome]
) -> Stage:
    """The stage after a climb of all parameters and the basis on some rows, which is added to the outcomes;
    the stage as it was where held-out rows do not gain more than their standard error.
    """
    n, row = learning.rows.n, P.row
    rows = some_rows(n, FREED_ROWS, n)
    stage = learning if n <= FREED_ROWS else learning.on(rows)
    if np.ndim(row.neighbours) == 0:
        row = replace(row, neighbours=min(row.n_neighbours, FIRST_NEIGHBOURS))
    problem = with_neighbours(replace(stage.rows, row=row))
    stage = replace(stage.quietly(), problem=problem, optimize="all", max_iterations=most)
    outcome = replace(stage, least_gain=LEAST_GAIN).run()
    freed = learning.after(outcome)
    gain = _losses(learning, P, held) - _losses(freed, P, held)
    if not gain.mean() > gain.std() / len(gain) ** 0.5:
        return learning
    outcomes.append(outcome)
    return freed


def _widened(learning: Stage, P: Problem) -> Stage:
    """The stage with kernel variance and noise times the mean squared standardised error of P's rows as all
    others predict them, where that is above one: the factor they like best, and no mean moves. The evidence
    of a model that is wrong somewhere makes too little of errors far larger than their error bars.
    """
    end = parameters_of(learning.rows)
    Q = with_neighbours(moved(P, end))
    left = left_out_of(Q)
    factor = float(np.mean(left.error.T**2 / left.variance))
    wider = end._replace(kernel=times(end.kernel, "variance", factor), noise=factor * end.noise)
    if not 1.0 < factor < np.inf or np.mean(left_out_of(moved(Q, wider)).log_density - left.log_density) <= 0:
        return learning
    return learning.at(wider)


def _losses(learned: Stage, P: Problem, held: np.ndarray) -> np.ndarray:
    """The log loss of each held-out row along neighbours, but for a constant, summed over outputs. (t,)"""
    Q, y = learned.rows, to_numpy(targets(P)[held])
    model = replace(learned, problem=with_neighbours(replace(Q, row=P.row))).model()
    mean, variance = (to_numpy(a) for a in model.predict(P.X[held]))
    variance = variance + parameters_of(Q).noise
    squares = np.sum((y - mean.reshape(y.shape)) ** 2, axis=1)
    return 0.5 * (y.shape[1] * np.log(variance) + squares / variance)


def neighbour_gain(learned: Stage, P: Problem, held: np.ndarray) -> NeighbourGain:
    """Errors and log losses of held-out rows without neighbours and with those of P's row, at a stage."""
    judge, Q, p = HeldOut(P.X[held], targets(P)[held]), learned.rows, parameters_of(learned.rows)
    near = with_neighbours(replace(Q, row=P.row))
    models = [replace(learned, problem=own).model() for own in (Q, near)]
    y, known = to_numpy(judge.Y), to_numpy(targets(Q))  # (t, p), (n, p)
    errors, losses = [], []
    for model in models:
        mean, variance = (to_numpy(a) for a in model.predict(judge.X))
        mean, variance = mean.reshape(y.shape), variance + p.noise
        trivial = [Baseline.of(column) for column in known.T]
        columns = [c for c in range(y.shape[1]) if trivial[c].variance > 0]
        if not columns:  # targets that are all alike
            return NeighbourGain(P.row.n_neighbours, len(held), (1.0, 1.0), (0.0, 0.0))
        errors.append(float(np.mean([smse(y[:, c], mean[:, c], trivial[c]) for c in columns])))
        losses.append(float(np.mean([msll(y[:, c], mean[:, c], variance, trivial[c]) for c in columns])))
    return NeighbourGain(P.row.n_neighbours, len(held), (errors[0], errors[1]), (losses[0], losses[1]))


def _from_few_rows(start: Stage) -> Stage:
    """The stage with kernel, noise and prior mean of an exact GP on a few of its rows.

    A function of many inputs may explain a few rows without noise. A climb over all of them would not leave
    that again, since the slope in the noise's logarithm vanishes with it; from more noise it finds either.
    """
    n, kernel = start.rows.n, start.problem.kernel
    few = start.exact_on(some_rows(n, START_ROWS, n)).quietly()
    few = replace(few, restarts=0, max_iterations=START_ITERATIONS, least_gain=LEAST_GAIN)
    shorter = times(kernel, "lengthscale", SHORT_START)
    given = parameters_of(few.problem)
    trials = []
    for other in (kernel, shorter):
        try:
            trials.append(few.at(given._replace(kernel=other)).run())
        except FactorisationError:  # too little noise for an exact GP of these rows
            continue
    if not trials:
        return start
    best = max(trials, key=lambda outcome: outcome.run.value)
    if not (best.run.interrupted or start.is_over):
        best = replace(few.after(best), max_iterations=60 - START_ITERATIONS).run()
    learned = best.parameters
    basis, noise = parameters_of(start.problem).basis, learned.noise
    if not isinstance(basis, Points):
        basis = as_multiscale(learned.kernel, as_points(basis))
    if isinstance(noise, float) and "noise" not in start.fixed:
        spread = float(np.mean(np.var(to_numpy(targets(start.rows)), axis=0)))
        noise = SOME_NOISE * spread if noise < NO_NOISE * spread else noise
    return start.at(learned._replace(basis=basis, noise=noise))


def placed_basis(stage: Stage) -> Stage:
    """The stage with its basis at the centres of k-means in the kernel's lengthscales."""
    P, basis = stage.rows, parameters_of(stage.problem).basis
    Z = central_points(P.kernel, to_numpy(P.X), len(basis))
    new: Basis = Points(Z) if isinstance(basis, Points) else as_multiscale(P.kernel, Points(Z))
    return replace(stage, problem=moved(P, parameters_of(P)._replace(basis=new)))


def central_points(kernel: Kernel, X: np.ndarray, m: int) -> np.ndarray:
    """The means of m groups of rows that are near as the kernel measures it. (m, d)"""
    rows = some_rows(len(X), PLACED_AMONG, len(X))
    X, Z = X[rows], coordinates(kernel, X[rows])
    labels = np.unique(selection.nearest(Z, selection.kmeans(Z, m, 0)), return_inverse=True)[1]
    sums, counts = np.zeros((labels.max() + 1, X.shape[1])), np.bincount(labels)
    np.add.at(sums, labels, X)
    return sums / counts[:, None]


# Classes


@dataclass(frozen=True, eq=False)
class ClassesAlongNeighbours:
    """Predictors of classes on one kernel and basis, and how their learning ended."""

    predictors: list[NeighboursPredictor]
    likelihood: Binary
    n_iterations: int
    log_evidence: float
    report: ClassDiagnosis  # of the rows, each left out


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
        over = outcome.run.interrupted or start.is_over
        if len(ends) > 1 and most > FIRST_SEARCH and not over:
            outcome = replace(trials[best].after(outcome), max_iterations=most).run().following([outcome])
        outcomes.append(outcome)
        learning = learning.after(outcome)
        if outcome.run.interrupted or start.is_over:
            break
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
        sum(s.log_evidence for s in settled),
        diagnosis_of_classes(signs, [s.log_densities for s in settled], P.weights, len(final.basis)),
    )


def _scaled(stage: Stage, scale: float) -> Stage:
    """The stage with all lengthscales of its kernel times a number."""
    kernel = times(stage.problem.kernel, "lengthscale", scale)
    return stage.at(parameters_of(stage.problem)._replace(kernel=kernel))


def _score(outcome: Outcome) -> float:
    return -np.inf if outcome.score is None else outcome.score
