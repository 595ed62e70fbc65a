"""Stages of learning: one climb each, on a problem that was checked before.

A stage ends with parameters and a value; a posterior is made once, at the end of the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..engine.parts import Parted
from ..errors import ParameterError
from ..files.checkpoints import Checkpoint
from ..inference.neighbour_sites import Settled
from ..inference.neighbours import with_neighbours
from ..inference.pic import Predictor
from ..inference.regression import DENSE, along_neighbours, approximation_of, model_of
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.means import Mean
from ..model.posterior import Posterior
from ..model.problem import Problem, as_blocks, subset
from ..model.table import Approximation
from ..numerics.arrays import to_numpy
from ..numerics.linalg import cholesky_escalating
from ..progress import Line
from .ascent import INTERRUPTED, Ascent, Progress, Rules, climb_from
from .objective import EvidenceFunction, HeldOut, HeldOutScore, Objective, PseudoTargets, moved, plainly
from .packing import Parameters
from .settings import Iterate, Settings

SITE_ROUNDS = 8  # of a climb on pseudo-targets, at most
LEAST_BETTER = 1e-4  # nats a row that a round has to gain
FIRST_SEARCH = 10  # iterations until neighbours are searched for again; each time twice as many


@dataclass(frozen=True)
class NeighbourGain:
    """Errors and log losses of held-out rows without neighbours and with them, at the same parameters."""

    neighbours: int
    rows: int
    error: tuple[float, float]  # SMSE: mean squared error over that of the average
    log_loss: tuple[float, float]  # MSLL: log loss less that of the average's Gaussian

    def __str__(self) -> str:
        (e0, e1), (l0, l1) = self.error, self.log_loss
        return (
            f"SMSE {e0:.3g} without neighbours, {e1:.3g} with {self.neighbours}; "
            f"log loss {l0:.3g}, {l1:.3g} nats over the average's"
        )


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of an optimisation: posterior and parameters at its best point, and how it ended."""

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
    gain: NeighbourGain | None = None  # by what held-out rows gain from neighbours, where they were asked
    jumps: tuple[float, ...] = ()  # of the objective, each time that neighbours were found anew


@dataclass(frozen=True, eq=False)
class Outcome:
    """The end of a climb, without a posterior: its parameters, and the `Ascent` with value and counts."""

    parameters: Parameters
    run: Ascent
    jitter: float  # relative, as used
    at_bounds: tuple[str, ...] = ()
    log_prior: float = 0.0
    score: float | None = None
    densities: np.ndarray | None = None  # (t,), of the held-out rows one by one, where there are any
    gain: NeighbourGain | None = None

    def fit(self, posterior: Posterior | Predictor) -> Fit:
        """The `Fit` with this posterior, which gives the value where no climb did."""
        run, value = self.run, self.run.value
        if np.isnan(value):
            assert posterior.log_evidence is not None
            value = posterior.log_evidence + self.log_prior
        return Fit(
            posterior,
            *self.parameters,
            value,
            run.iterations,
            run.converged,
            run.message,
            tuple(run.history),
            self.at_bounds,
            self.score,
            run.evaluations,
            run.seconds,
            self.gain,
            tuple(run.jumps),
        )

    def following(self, earlier: Sequence[Outcome]) -> Outcome:
        """The outcome with the iterations, evaluations and seconds of earlier stages counted, too."""
        runs = [*(outcome.run for outcome in earlier), self.run]
        total = replace(
            self.run,
            iterations=sum(run.iterations for run in runs),
            evaluations=sum(run.evaluations for run in runs),
            seconds=sum(run.seconds for run in runs),
            history=[value for run in runs for value in run.history],
            jumps=[jump for run in runs for jump in run.jumps],
        )
        return replace(self, run=total)


@dataclass(frozen=True, eq=False)
class Stage(Settings):
    """One climb of the evidence: a checked problem, with its row of the table, and settings.

    `after`, `under`, `on` and `exact_on` make other stages of it; none of them looks at the data again.
    """

    problem: Problem | Parted
    held_out: HeldOut | None = None
    evidence: EvidenceFunction | None = None  # to climb instead of that of the row

    @property
    def rows(self) -> Problem:
        """The problem, where its rows lie in memory."""
        assert isinstance(self.problem, Problem)
        return self.problem

    def at(self, parameters: Parameters) -> Stage:
        """The same stage, started elsewhere."""
        return replace(self, problem=moved(self.problem, parameters))

    def with_basis(self, basis: Basis) -> Stage:
        """The same stage on another basis that goes with its kernel."""
        return replace(self, problem=replace(self.rows, basis=basis.on(self.rows.X)))

    def after(self, outcome: Outcome) -> Stage:
        """The same stage, started where another ended."""
        return replace(self.at(outcome.parameters), restarts=0)

    def under(self, row: Approximation) -> Stage:
        """The same stage under another row of the table."""
        if row.blocks:
            return replace(self, problem=replace(self.rows, row=row))
        P = plainly(self.rows, row)
        return replace(self, problem=with_neighbours(P) if row.keeps == "neighbours" else P)

    def on(self, rows: np.ndarray) -> Stage:
        """The same stage on some of its rows."""
        P = self.rows
        labels = None if P.labels is None else P.labels[rows]
        blocks = None if labels is None else as_blocks(labels, len(rows))
        some = replace(subset(P, rows), basis=P.basis, labels=labels, blocks=blocks, sets=None)
        return replace(self, problem=some if P.row.keeps != "neighbours" else with_neighbours(some))

    def exact_on(self, rows: np.ndarray) -> Stage:
        """The hyperparameters of an exact GP on some of the rows."""
        P = plainly(subset(self.rows, rows), approximation_of("exact"))
        return replace(self, problem=P, optimize="hyperparameters", movable=None)

    def run(self) -> Outcome:
        """Climb from the problem's own parameters, and from `restarts` random ones; where neighbours move
        with the parameters, in several climbs, each with those found anew.
        """
        if along_neighbours(self.problem):
            return self._climb_in_rounds()
        if not self._searching:
            return self._climb()
        stage, outcomes, left, most = self, list[Outcome](), self.max_iterations, FIRST_SEARCH
        while True:
            outcomes.append(replace(stage, max_iterations=min(left, most))._climb())
            run, before = outcomes[-1].run, stage.problem
            if len(outcomes) > 1:  # the sets of rows changed, and so did the evidence
                run.jumps.append(run.first - outcomes[-2].run.value)
            left, most = left - run.iterations, 2 * most
            renewed = found_anew(stage.after(outcomes[-1]).problem)
            settled = run.converged and _same_sets(before, renewed)
            if settled or run.interrupted or run.iterations == 0 or left <= 0 or self.is_over:
                return outcomes[-1].following(outcomes[:-1])
            stage = replace(stage, problem=renewed, restarts=0)

    def _climb_in_rounds(self) -> Outcome:
        """Climb on a likelihood's pseudo-targets, held for a round; then neighbours and sites are found anew.
        A round that does not raise the leave-one-out log density of the targets is taken back, and is the
        last.
        """
        if self.held_out is not None:
            raise ParameterError(
                "along neighbours a likelihood is judged by its own rows, left out one by one; "
                "leave held_out= out"
            )
        stage, left = self, self.max_iterations
        evidence = self.evidence if isinstance(self.evidence, PseudoTargets) else PseudoTargets([self.rows.Y])
        stage = replace(stage, evidence=evidence, restarts=0)
        best = stage.unmoved(Ascent(np.zeros(0), message="no round gained"))
        score, outcomes = mean_density(evidence.settle(stage.rows)), list[Outcome]()
        for _ in range(SITE_ROUNDS):
            if left <= 0 or (outcomes and self.is_over):
                break
            trial = replace(stage, max_iterations=min(left, FIRST_SEARCH))._climb()
            outcomes.append(trial)
            left -= max(trial.run.iterations, 1)
            moved_there = stage.after(trial)
            if self._searching:
                moved_there = replace(moved_there, problem=with_neighbours(moved_there.rows))
            better = mean_density(evidence.settle(moved_there.rows))
            if not better > score + LEAST_BETTER:
                break
            stage, best, score = moved_there, trial, better
            if trial.run.interrupted:
                break
        run = replace(best.run, value=np.nan)
        if outcomes and outcomes[-1].run.interrupted:
            run = replace(run, interrupted=True, converged=False, message=INTERRUPTED)
        return replace(best, run=run, score=score).following([o for o in outcomes if o is not best])

    @property
    def _searching(self) -> bool:
        """Whether a row has neighbours that depend on the parameters."""
        P = self.problem
        given = np.ndim(P.row.neighbours) > 0 or (isinstance(P, Problem) and P.sets is None)
        return P.row.keeps == "neighbours" and not given

    def _climb(self) -> Outcome:
        """One climb, or the best of those from several starts."""
        objective = self.objective()
        score = None if self.held_out is None else HeldOutScore(objective, self.held_out)
        saved = None
        if self.checkpoint is not None:
            saved = Checkpoint(Path(self.checkpoint), objective.fingerprint())
        generator = np.random.default_rng(self.rng)
        starts = [objective.start if saved is None else saved.load(objective.start)]
        starts += [objective.packing.perturbed(generator) for _ in range(self.restarts)]
        ends = self.max_iterations, self.tolerance, self.least_gain, self.window
        rules = Rules(*ends, score, self.patience, self.deadline)

        def tell(run: Ascent) -> None:
            if self.trace is not None:
                self.trace(Iterate(run.iterations, run.value, *objective.packing.unpack(run.x)))

        with Line(self.progress, self.problem.row.name) as report:
            objective.watch(report)
            best = climb_from(starts, objective, rules, report=report, saved=saved, tell=tell)
        outcome = outcome_at(objective, best)
        return outcome if score is None else replace(outcome, score=best.score, densities=score.densities)

    def unmoved(self, run: Ascent) -> Outcome:
        """The parameters as they are, after `run`; their value is left to the posterior."""
        objective = Objective(self.problem, self, self.evidence)
        return outcome_at(objective, replace(run, x=objective.start, value=np.nan))

    def objective(self) -> Objective:
        """The objective of the climb. Jitter grows here, with one warning, or not at all: it then stays."""
        P = self.problem
        if P.row.name not in DENSE:
            what = "the prior covariance Kuu of the basis"
            P = replace(P, jitter=cholesky_escalating(P.basis.gram(P.kernel), P.jitter, what=what)[1])
        return Objective(P, self, self.evidence)

    def model(self) -> Posterior | Predictor:
        """The posterior of the problem as it is."""
        return model_of(self.problem)

    def fit(self, outcome: Outcome) -> Fit:
        """The fit that ends with this outcome: its posterior, made once, has all rows of this stage."""
        P = replace(moved(self.problem, outcome.parameters), jitter=outcome.jitter)
        if self._searching:  # the neighbours at the end, and the value with them
            P, outcome = found_anew(P), replace(outcome, run=replace(outcome.run, value=np.nan))
        return outcome.fit(model_of(P))


def found_anew(P: Problem | Parted) -> Problem | Parted:
    """The problem with the neighbours of its own lengthscales; over a source each pass finds them."""
    return replace(P, near=P.kernel) if isinstance(P, Parted) else with_neighbours(P)


def _same_sets(one: Problem | Parted, two: Problem | Parted) -> bool:
    if isinstance(one, Parted) or isinstance(two, Parted):
        return False
    return bool(np.all(np.asarray(one.sets) == np.asarray(two.sets)))


def mean_density(settled: Sequence[Settled]) -> float:
    """The mean leave-one-out log density of a row, summed over columns of targets."""
    return float(sum(float(np.mean(to_numpy(s.log_densities))) for s in settled))


def outcome_at(objective: Objective, run: Ascent) -> Outcome:
    """The outcome of a run over the variables of an objective."""
    at_bounds = objective.packing.at_bounds(run.x)
    end = objective.packing.unpack(run.x)
    return Outcome(end, run, objective.P.jitter, at_bounds, objective.log_prior(run.x))


def counting_on(progress: Progress | bool | None, before: Sequence[Outcome]) -> Progress | bool | None:
    """A progress function whose iterations continue from the stages before."""
    if not callable(progress):
        return progress
    done = sum(outcome.run.iterations for outcome in before)
    return lambda iteration, value: progress(done + iteration, value)
