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
from ..inference.regression import approximation_of, posterior_of
from ..model.likelihoods import Binary
from ..model.posterior import Posterior
from ..model.problem import Problem
from ..model.table import VFE
from ..numerics.workers import blas_for
from .objective import SITE_TOLERANCE, moved
from .recipes import LEAST_GAIN, informed_start, split
from .stages import Outcome, Stage


class ClassesEvidence:
    """The sum of the evidences of several binary problems on one kernel and basis, and its gradient; each starts
    from its own sites of the call before.
    """

    def __init__(self, signs: np.ndarray) -> None:
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


def class_probabilities(posteriors: Sequence[Posterior], likelihood: Binary, X: np.ndarray) -> np.ndarray:
    """The probability of each class, one-against-rest probabilities scaled to a sum of one. (n, classes)"""
    columns = []
    for post in posteriors:
        mean, variance = post.predict(X)
        columns.append(likelihood.probability(mean, np.maximum(variance, 1e-300)))
    p = np.stack(columns, axis=1)
    if p.shape[1] == 1:
        return np.hstack([1.0 - p, p])
    p = np.maximum(p, 1e-300)
    return p / p.sum(axis=1, keepdims=True)


def learn_classes(start: Stage, signs: np.ndarray) -> LearnedClasses:
    """Learn kernel, basis and likelihood from labels as signs (n, c), c = 1 for two classes.

    The bound of power 0 first, which never over-fits, then the row asked for from there; held-out labels, where
    there are enough rows, judge between the two by their log probability. The result has all rows.
    """
    P = start.rows
    held, rest = split(start)
    learning = start if held is None else start.on(rest)
    own = signs if held is None else signs[rest]
    if start.prelude != "none" and start.max_iterations >= 1:
        learning = informed_start(
            replace(learning, evidence=None, problem=replace(learning.rows, Y=own[:, :1]))
        )
    rows = [VFE] if P.row.power == 0.0 else [VFE, P.row]
    outcomes: list[Outcome] = []
    scores: list[float] = []
    left = start.max_iterations
    for row in rows:
        last = row is rows[-1]
        evidence = ClassesEvidence(own)
        stage = replace(
            (learning.after(outcomes[-1]) if outcomes else learning).under(row),
            evidence=evidence,
            max_iterations=left if last else max(1, left // 2),
            least_gain=LEAST_GAIN if last else 3.0 * LEAST_GAIN,
        )
        outcome = stage.run()
        outcomes.append(outcome)
        left -= outcome.run.iterations
        if held is not None:
            posteriors = evidence.posteriors(moved(stage.rows, outcome.parameters))
            likelihood = outcome.parameters.noise
            assert isinstance(likelihood, Binary)
            p = class_probabilities(posteriors, likelihood, P.X[held])
            scores.append(float(np.mean(np.log(_own(p, signs[held])))))
        if outcome.run.interrupted:
            break
    best = int(np.argmax(scores)) if scores else len(outcomes) - 1
    chosen = outcomes[best].following(outcomes[:best])
    final = replace(moved(replace(P, row=rows[best]), chosen.parameters), jitter=chosen.jitter)
    likelihood = chosen.parameters.noise
    assert isinstance(likelihood, Binary)
    posteriors = ClassesEvidence(signs).posteriors(final)
    return LearnedClasses(posteriors, likelihood, chosen, tuple(row.name for row in rows), tuple(scores))


def _own(p: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """The probability of each row's own class. (n,)"""
    own = np.argmax(signs, axis=1) if signs.shape[1] > 1 else (signs[:, 0] > 0).astype(int)
    return p[np.arange(len(p)), own]


def row_of_classes(name: str, power: float | None) -> Any:
    """The row of the table that classes are learned with."""
    return approximation_of("fitc" if name == "auto" else name, power)
