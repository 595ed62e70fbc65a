"""The recipe along neighbours: kernel and noise by this row's own evidence, on subsets of rows that grow."""

from dataclasses import replace

import numpy as np

from ..errors import FactorisationError
from ..inference import selection
from ..inference.neighbours import coordinates, with_neighbours
from ..metrics import Baseline, msll, smse
from ..model.bases import Basis, Points, as_multiscale, as_points
from ..model.kernels.base import Kernel
from ..model.problem import Problem
from ..model.table import FITC
from ..numerics.arrays import to_numpy
from .objective import HeldOut, moved, parameters_of, targets
from .stages import NeighbourGain, Outcome, Stage, counting_on
from .starts import LEAST_GAIN, START_ROWS, stage_file, times

SUBSETS = (2_000, 10_000)  # rows
SUBSET_ITERATIONS = (40, 15, 10)  # at most, on the first, second, ... of them; the last on all rows
SHORT_START = 0.1  # times the lengthscales given: a second start, for functions that vary faster
FIRST_NEIGHBOURS = 20  # at most on subsets: what is learned there depends on more of them little
START_ITERATIONS = 20  # iterations of each start
PLACED_AMONG = 20_000  # rows that the basis is placed among


def along_neighbours(start: Stage, held: np.ndarray | None, rest: np.ndarray) -> Outcome:
    """Kernel and noise from an exact GP on a few rows, a basis by k-means in its lengthscales, then a few
    dozen evaluations of this row's evidence on subsets that grow, the last on all rows but those `held`.

    The basis stays where k-means puts it: what it misses is local, and the neighbours see it. The noise is
    learned by this evidence, since a subset has fewer near-duplicates than all rows. A likelihood's own
    parameters are those of the few rows.
    """
    P = start.rows
    if P.likelihood is not None:  # judged by its own rows, left out one by one; none need be held out
        held = None
    bare = replace(start, problem=replace(P, row=FITC, sets=None, blocks=None), optimize="hyperparameters")
    learning = bare if held is None else bare.on(rest)
    left, outcomes, order = start.max_iterations, list[Outcome](), np.random.default_rng(P.n)
    if left >= 1 and start.prelude != "none":
        learning = _from_few_rows(learning)
        learning = placed_basis(learning) if start.prelude == "all" else learning
    n = learning.rows.n
    for size, most in zip([*(size for size in SUBSETS if 2 * size <= n), n], SUBSET_ITERATIONS):
        rows = np.sort(order.permutation(n)[:size])
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
        if outcomes[-1].run.interrupted:
            break
        if len(outcomes) == 1 and size < n and start.prelude == "all":
            learning = placed_basis(learning)
    last = start.at(parameters_of(learning.rows)).unmoved(outcomes[-1].following(outcomes[:-1]).run)
    if held is None:
        return replace(last, score=outcomes[-1].score)
    gain = neighbour_gain(learning, P, held)
    return replace(last, score=-gain.log_loss[1], gain=gain)


def neighbour_gain(learned: Stage, P: Problem, held: np.ndarray) -> NeighbourGain:
    """Errors and log losses of held-out rows without neighbours and with those of P's row, at the parameters
    and rows of a stage.
    """
    judge, Q, p = HeldOut(P.X[held], targets(P)[held]), learned.rows, parameters_of(learned.rows)
    models = [
        replace(learned, problem=Q).model(),
        replace(learned, problem=with_neighbours(replace(Q, row=P.row))).model(),
    ]
    y, known = to_numpy(judge.Y), to_numpy(targets(Q))  # (t, p), (n, p)
    errors, losses = [], []
    for model in models:
        mean, variance = (to_numpy(a) for a in model.predict(judge.X))
        mean, variance = mean.reshape(y.shape), variance + p.noise
        trivial = [Baseline.of(column) for column in known.T]
        columns = [c for c in range(y.shape[1]) if trivial[c].variance > 0]
        errors.append(float(np.mean([smse(y[:, c], mean[:, c], trivial[c]) for c in columns])))
        losses.append(float(np.mean([msll(y[:, c], mean[:, c], variance, trivial[c]) for c in columns])))
    return NeighbourGain(P.row.n_neighbours, len(held), (errors[0], errors[1]), (losses[0], losses[1]))


def _from_few_rows(start: Stage) -> Stage:
    """The stage with kernel, noise and prior mean of an exact GP on a few of its rows."""
    n, kernel = start.rows.n, start.problem.kernel
    few = start.exact_on(np.sort(np.random.default_rng(n).permutation(n)[:START_ROWS])).quietly()
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
    learned = replace(few.after(best), max_iterations=60 - START_ITERATIONS).run().parameters
    basis = parameters_of(start.problem).basis
    if not isinstance(basis, Points):
        basis = as_multiscale(learned.kernel, as_points(basis))
    return start.at(learned._replace(basis=basis))


def placed_basis(stage: Stage) -> Stage:
    """The stage with its basis at the centres of k-means in the kernel's lengthscales."""
    P, basis = stage.rows, parameters_of(stage.problem).basis
    Z = central_points(P.kernel, to_numpy(P.X), len(basis))
    new: Basis = Points(Z) if isinstance(basis, Points) else as_multiscale(P.kernel, Points(Z))
    return replace(stage, problem=moved(P, parameters_of(P)._replace(basis=new)))


def central_points(kernel: Kernel, X: np.ndarray, m: int) -> np.ndarray:
    """The means of m groups of rows that are near as the kernel measures it. (m, d)"""
    rows = np.sort(np.random.default_rng(len(X)).permutation(len(X))[:PLACED_AMONG])
    X, Z = X[rows], coordinates(kernel, X[rows])
    labels = np.unique(selection.nearest(Z, selection.kmeans(Z, m, 0)), return_inverse=True)[1]
    sums, counts = np.zeros((labels.max() + 1, X.shape[1])), np.bincount(labels)
    np.add.at(sums, labels, X)
    return sums / counts[:, None]
