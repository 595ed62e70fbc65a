"""Learning of classes: one process for two of them, or one against the rest for each of many, on one kernel and
one basis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..engine.evidence import factorise, gradient_from
from ..engine.parts import Parted
from ..engine.sweeps import SiteMemory
from ..inference.regression import posterior_of
from ..model.kernels.stationary import Stationary
from ..model.likelihoods import Binary
from ..model.posterior import Posterior
from ..model.problem import Problem
from ..model.table import FITC, VFE
from ..numerics.arrays import Array, to_numpy
from ..numerics.workers import blas_for
from .objective import SITE_TOLERANCE, moved
from .recipes import LEAST_GAIN, first_as_good, informed_start, split
from .stages import Outcome, Stage


class ClassesEvidence:
    """The sum of the evidences of several binary problems on one kernel and basis, and its gradient; each starts
    from its own sites of the call before.
    """

    def __init__(self, signs: Array) -> None:
        self.signs = signs  # (n, c), of ±1
        self.memories = [SiteMemory() for _ in range(signs.shape[1])]

    def __call__(self, P: Problem | Parted) -> tuple[float, dict[str, Any]]:
        assert isinstance(P, Problem)
        total: dict[str, Any] = {}
        value = 0.0
        with blas_for(len(P.basis)):
            for own, memory in zip(self.problems(P), self.memories, strict=True):
                F = factorise(own, escalate=False, memory=memory, tolerance=SITE_TOLERANCE)
                part, gradient = gradient_from(own, F)
                value += part
                total = {name: total.get(name, 0.0) + g for name, g in gradient.items()}
        return value, total

    def problems(self, P: Problem) -> list[Problem]:
        """The problem of each class against the rest."""
        return [replace(P, Y=self.signs[:, [j]]) for j in range(self.signs.shape[1])]

    def posteriors(self, P: Problem) -> list[Posterior]:
        """The process of each class, on the rows of the problem."""
        pairs = zip(self.problems(P), self.memories, strict=True)
        return [posterior_of(own, memory=memory) for own, memory in pairs]


@dataclass(frozen=True, eq=False)
class LearnedClasses:
    """Processes of classes on one kernel and basis, and how their learning ended."""

    posteriors: list[Posterior]
    likelihood: Binary
    outcome: Outcome
    rows: tuple[str, ...]  # of the table that were tried
    scores: tuple[float, ...]  # their mean log probability of the held-out labels, where there are any


def class_probabilities(posteriors: Sequence[Posterior], likelihood: Binary, X: Array) -> np.ndarray:
    """The probability of each class, one-against-rest probabilities scaled to a sum of one. (n, classes)"""
    columns = []
    for post in posteriors:
        mean, variance = map(to_numpy, post.predict(X))
        columns.append(likelihood.probability(mean, np.maximum(variance, 1e-300)))
    p = np.stack(columns, axis=1)
    if p.shape[1] == 1:
        return np.hstack([1.0 - p, p])
    p = np.maximum(p, 1e-300)
    return p / p.sum(axis=1, keepdims=True)


class Judge:
    """Labels that are not learned from; their log probability judges between outcomes."""

    def __init__(self, X: Array, signs: Array) -> None:
        self.X, signs = X, to_numpy(signs)
        self.own = np.argmax(signs, axis=1) if signs.shape[1] > 1 else (signs[:, 0] > 0).astype(int)

    def __call__(self, stage: Stage, outcome: Outcome) -> np.ndarray:
        """The log probability of each label. (t,)"""
        assert isinstance(stage.evidence, ClassesEvidence)
        posteriors = stage.evidence.posteriors(moved(stage.rows, outcome.parameters))
        p = class_probabilities(posteriors, _binary(outcome), self.X)
        return np.log(p[np.arange(len(p)), self.own])


def learn_classes(start: Stage, signs: Array) -> LearnedClasses:
    """Learn kernel, basis and likelihood from labels as signs (n, c), c = 1 for two classes.

    A kernel with a lengthscale for each input is tried with one for all of them, too. Then comes the bound of
    power 0, which never over-fits, and the row asked for from there. Held-out labels, where there are enough rows,
    judge by their log probability: of all that are as good as the best to one standard error, the first is kept.
    The result has all rows.
    """
    P = start.rows
    held, rest = split(start)
    judge = None if held is None else Judge(P.X[held], signs[held])
    learning = replace(start if held is None else start.on(rest), held_out=None)
    evidence = ClassesEvidence(signs if held is None else signs[rest])
    if start.max_iterations >= 1 and start.prelude != "none":
        learning = _started(learning, evidence, judge)
    rows = [VFE] if P.row.power == 0.0 else [VFE, P.row]
    outcomes: list[Outcome] = []
    densities: list[np.ndarray] = []
    left = start.max_iterations
    for row in rows:
        last = row is rows[-1]
        stage = replace(
            (learning.after(outcomes[-1]) if outcomes else learning).under(row),
            evidence=ClassesEvidence(evidence.signs),
            max_iterations=left if last else max(min(left, 1), left // 2),
            least_gain=LEAST_GAIN if last else 3.0 * LEAST_GAIN,
        )
        outcome = stage.run()
        outcomes.append(outcome)
        left -= outcome.run.iterations
        if judge is not None:
            densities.append(judge(stage, outcome))
        if outcome.run.interrupted:
            break
    best = int(np.argmax([np.mean(d) for d in densities])) if densities else len(outcomes) - 1
    chosen = outcomes[best].following(outcomes[:best])
    final = replace(moved(replace(P, row=rows[best]), chosen.parameters), jitter=chosen.jitter)
    posteriors = ClassesEvidence(signs).posteriors(final)
    scores = tuple(float(np.mean(d)) for d in densities)
    return LearnedClasses(posteriors, _binary(chosen), chosen, tuple(row.name for row in rows), scores)


def _started(learning: Stage, evidence: ClassesEvidence, judge: Judge | None) -> Stage:
    """The stage with hyperparameters learned on a few rows, those of one lengthscale for all inputs where held-out
    labels are as well off with them, and with places that go with the kernel.
    """
    P = learning.rows
    first = replace(learning, evidence=None, problem=replace(P, Y=evidence.signs[:, :1]))
    starts = [informed_start(first)]
    kernel = P.kernel
    if judge is not None and isinstance(kernel, Stationary) and np.ndim(kernel.lengthscale) > 0:
        scale = float(np.exp(np.mean(np.log(kernel.lengthscale))))
        one = kernel.with_parameters({"lengthscale": scale})
        starts.insert(0, informed_start(replace(first, problem=replace(first.rows, kernel=one))))
        trials = []
        for stage in starts:
            trial = replace(stage.under(FITC), evidence=ClassesEvidence(evidence.signs), max_iterations=0)
            trials.append(judge(trial, trial.run()))
        return starts[first_as_good(np.array(trials))]
    return starts[0]


def _binary(outcome: Outcome) -> Binary:
    assert isinstance(outcome.parameters.noise, Binary)
    return outcome.parameters.noise
