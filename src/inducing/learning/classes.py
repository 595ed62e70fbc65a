"""Learning of classes, two or one against the rest, on one kernel and basis: labels are signs (n, c)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..engine.compiled_passes import expects
from ..engine.evidence import factorise, gradient_from
from ..engine.parts import Parted
from ..engine.sweeps import SWEEPS, SiteMemory
from ..errors import LabelError
from ..inference.left_out import left_out_of
from ..inference.regression import as_problem, posterior_of
from ..model.kernels.stationary import Stationary
from ..model.likelihoods import Binary
from ..model.posterior import Posterior, predict_together
from ..model.problem import Problem
from ..numerics.arrays import Array, some_rows, to_numpy
from ..numerics.workers import blas_for
from ..sources.source import Kept, Part, Source
from .class_diagnosis import ClassDiagnosis, class_numbers, diagnosis_of_classes
from .diagnosis import mean_residual, suggested_size
from .objective import SITE_TOLERANCE, moved
from .outofcore import FULL
from .recipes import MOST_HELD, split
from .stages import Outcome, Stage
from .starts import LEAST_GAIN

RACE_ITERATIONS = 12  # iterations of each start in the race
RACE_ROWS, RACE_SHARE = 2000, 5  # rows of the race: at least, and for each basis function
CLIMB_TOLERANCE = 0.3  # of the sites during a climb: the evidence is off by less than a thousandth of a nat
GAIN = 4e-3  # nats per row in ten iterations: a climb that gains less has settled
MANY_LABELS = 50_000  # from which a climb goes on for smaller gains, at first on twice as many
FINE_GAIN = 1e-3
LEAST_JUDGE = 30  # labels held out; fewer are no judge
ONE_JUDGE_OF = 50  # of so many rows one is held out where 500 are fewer: near chance a label tells little
ENOUGH_JUDGE = 300  # labels held out that guard against over-fitting by themselves
CLASS_SWEEPS = 400  # for the processes that are kept
MOST_CLASSES = 1000  # of a source
FEW = 200  # rows of the exact process whose hyperparameters are a start


@dataclass(frozen=True)
class Against:
    """A change of a source's class numbers into signs: +1 for one class, -1 for the rest."""

    number: int

    def __call__(self, part: Part) -> Part:
        return replace(part, y=np.where(part.y == self.number, 1.0, -1.0))


@dataclass(frozen=True, eq=False)
class Coded:
    """A change of a source's labels into class numbers, and of its inputs into the model's units."""

    classes: np.ndarray  # (classes,), rising
    x_mean: np.ndarray  # (d,)
    x_scale: np.ndarray

    def __call__(self, part: Part) -> Part:
        numbers = np.searchsorted(self.classes, part.Y[:, 0]).astype(float)
        return replace(part, X=(part.X - self.x_mean) / self.x_scale, y=numbers)


@dataclass(frozen=True, eq=False)
class Labels:
    """The different labels of some rows; + joins those of others. Raise if they are too many for classes."""

    values: np.ndarray  # rising

    def __post_init__(self) -> None:
        if len(self.values) > MOST_CLASSES:
            raise LabelError(f"y has more than {MOST_CLASSES} different values; use SparseGPRegressor")

    def __add__(self, other: "Labels") -> "Labels":
        return Labels(np.union1d(self.values, other.values))

    @staticmethod
    def of(part: Part) -> "Labels":
        return Labels(np.unique(part.Y))


class ClassesEvidence:
    """The sum of the evidences of binary problems and its gradient; sites start from the last call's."""

    def __init__(
        self, signs: Array | int, *, tolerance: float = CLIMB_TOLERANCE, sweeps: int = SWEEPS
    ) -> None:
        """`signs` are those of rows in memory (n, c), or the number c of processes over a source; `tolerance`
        and `sweeps` are of the sites.
        """
        self.signs = signs
        self.settling: dict[str, Any] = dict(tolerance=tolerance, sweeps=sweeps)
        self.memories = [SiteMemory() for _ in range(signs if isinstance(signs, int) else signs.shape[1])]

    def __call__(self, P: Problem | Parted) -> tuple[float, dict[str, Any]]:
        total: dict[str, Any] = {}
        value, kept = 0.0, None
        with blas_for(len(P.basis)):
            for own, memory in zip(self.problems(P), self.memories, strict=True):
                F = factorise(own, escalate=False, memory=memory, kept=kept, **self.settling)
                kept = None if F.kept is None else F.kept.features
                part, gradient = gradient_from(own, F)
                value += part
                total = {name: total.get(name, 0.0) + g for name, g in gradient.items()}
        return value, total

    def problems(self, P: Problem | Parted) -> Sequence[Problem | Parted]:
        """The problem of each class against the rest, or of the second of two against the first."""
        count = len(self.memories)
        if isinstance(P, Problem):
            signs: Array = self.signs
            return [replace(P, Y=signs[:, [j]]) for j in range(count)]
        numbers = range(count) if count > 1 else [1]
        return [replace(P, source=P.source.changed(Against(j))) for j in numbers]

    def posteriors(self, P: Problem | Parted, tolerance: float = SITE_TOLERANCE) -> list[Posterior]:
        """The process of each class, on the rows of the problem."""
        pairs = zip(self.problems(P), self.memories, strict=True)
        return [posterior_of(p, memory=m, tolerance=tolerance, sweeps=CLASS_SWEEPS) for p, m in pairs]


@dataclass(frozen=True, eq=False)
class LearnedClasses:
    """Processes of classes on one kernel and basis, and how their learning ended."""

    posteriors: list[Posterior]
    likelihood: Binary
    outcome: Outcome
    n_iterations: int  # of all of them, and of going on with the best
    report: ClassDiagnosis  # of the rows in memory, each left out


class Judge:
    """Labels that are not learned from; their log probability judges between outcomes."""

    def __init__(self, X: Array, signs: Array) -> None:
        self.X, self.own = to_numpy(X), class_numbers(signs)

    def __len__(self) -> int:
        return len(self.own)

    def __call__(self, stage: Stage, outcome: Outcome) -> np.ndarray:
        """The log probability of each label. (t,)"""
        assert isinstance(stage.evidence, ClassesEvidence)
        posteriors = stage.evidence.posteriors(moved(stage.problem, outcome.parameters), CLIMB_TOLERANCE)
        mean, variance = predict_together([post.to_numpy() for post in posteriors], self.X)
        p = _binary(outcome).probabilities(mean, np.maximum(variance, 1e-300))
        return np.log(np.maximum(p[np.arange(len(p)), self.own], 1e-300))


def learn_classes(start: Stage, signs: Array, kinds: Sequence[type[Stationary]] = ()) -> LearnedClasses:
    """Learn kernel, basis and likelihood from labels as signs (n, c), c = 1 for two classes.

    Several starts (`_starts`) are raced for a few iterations each, on a sample of the rows; the best goes on
    with all of them. The race is won by the evidence per row, less a nat for each lengthscale unless
    `ENOUGH_JUDGE` labels are held out, and, where there are enough rows to hold some out, the mean log
    probability of their labels, added: a hundred labels alone are a poor judge. Kernels of other `kinds` then
    race from where the winner started. If going on made the held-out labels less probable, it is taken back.
    The result has all rows.
    """
    P = start.rows
    expects(P, surely=start.max_iterations >= 1)
    held, rest = split(start, max(MOST_HELD, P.n // ONE_JUDGE_OF))
    if held is not None and len(held) < LEAST_JUDGE:
        held, rest = None, np.arange(P.n)
    judge = None if held is None else Judge(P.X[held], signs[held])
    learning = replace(start if held is None else start.on(rest), held_out=None)
    own = signs if held is None else signs[rest]
    outcome, stage, spent = _race(learning, own, judge, kinds)
    few = judge is None and P.n < 10 * LEAST_JUDGE  # nothing guards them, and a free basis over-fits
    if start.max_iterations > RACE_ITERATIONS and not outcome.run.interrupted and not few:
        left = replace(stage, max_iterations=start.max_iterations - RACE_ITERATIONS, least_gain=GAIN)
        before = -np.inf if judge is None else np.mean(judge(stage, outcome))
        more = _climb(left, own)
        spent += more.run.iterations
        if judge is None or np.mean(judge(left, more)) >= before:
            outcome = more.following([outcome])
    final = replace(moved(P, outcome.parameters), jitter=outcome.jitter)
    posteriors = ClassesEvidence(signs).posteriors(final)
    return LearnedClasses(posteriors, _binary(outcome), outcome, spent, _report(final, signs, posteriors))


def _report(P: Problem, signs: Array, posteriors: Sequence[Posterior]) -> ClassDiagnosis:
    """The diagnosis of posteriors on the rows of a problem. A label is worth a precision of f, that of its
    site; the basis is judged by the process in which labels say most.
    """
    pairs = zip(ClassesEvidence(signs).problems(P), posteriors, strict=True)
    left = [left_out_of(own, post).log_density for own, post in pairs]
    noise = 1.0 / max(float(np.mean(to_numpy(post.sites.tau))) for post in posteriors if post.sites)
    size, tried = suggested_size(P, noise * P.n, len(P.basis), 0)
    left_over = dict(residual_to_noise=mean_residual(P) / noise, suggested=size, tried=tried)
    return diagnosis_of_classes(signs, left, P.weights, len(P.basis), **left_over)


def learn_classes_of(
    source: Source,
    start: Stage,
    signs: Array,
    held: tuple[Array, Array],
    key: float,
    seed: int,
    kinds: Sequence[type[Stationary]] = (),
) -> LearnedClasses:
    """Learn from a few rows of a source as `learn_classes` does, then go on with all of them.

    The source has class numbers. Rows whose key is below `key` are `held` out, inputs and signs: if going on
    made their labels less probable, it is taken back. The processes have all rows.
    """
    few, count = learn_classes(start, signs, kinds), int(signs.shape[1])
    P, judge = few.outcome.parameters, Judge(*held) if len(held[0]) else None
    row = start.rows.row
    whole = as_problem(*P[:2], row, P.noise, source, None, mean=P.mean, jitter=start.rows.jitter)
    assert isinstance(whole, Parted)
    rest = source if judge is None else source.changed(Kept(key, seed, inside=False))
    learning = replace(whole, source=rest)
    most = min(start.max_iterations, FULL)
    stage = replace(start, problem=learning, evidence=ClassesEvidence(count), max_iterations=most)
    stage = replace(stage, least_gain=GAIN, validation_fraction=0.0)
    outcome = few.outcome
    if most > 0 and not outcome.run.interrupted:
        before = -np.inf if judge is None else np.mean(judge(stage, outcome))
        more = stage.run().following([outcome])
        after = 0.0 if judge is None else np.mean(judge(stage, more))
        outcome = more if after >= before else outcome
    posteriors = ClassesEvidence(count).posteriors(moved(whole, outcome.parameters))
    spent = few.n_iterations + outcome.run.iterations - few.outcome.run.iterations
    Q = replace(moved(start.rows, outcome.parameters), jitter=outcome.jitter)
    report = _report(Q, signs, ClassesEvidence(signs).posteriors(Q))
    return LearnedClasses(posteriors, _binary(outcome), outcome, spent, report)


def _climb(stage: Stage, signs: Array) -> Outcome:
    """Climb on all rows; where they are many, on some of them first, and for longer: rows that say little
    each, as labels near chance do, still say much together.
    """
    n = stage.rows.n
    if n < MANY_LABELS:
        return stage.run()
    some = some_rows(n, 2 * MANY_LABELS, n)
    sample = replace(stage.on(some), evidence=ClassesEvidence(signs[some]), least_gain=FINE_GAIN)
    first = sample.run()
    most = stage.max_iterations - first.run.iterations
    if len(some) == n or most < 1 or first.run.interrupted:
        return first
    return replace(stage.after(first), max_iterations=most).run().following([first])


def _race(
    learning: Stage, signs: Array, judge: Judge | None, kinds: Sequence[type[Stationary]]
) -> tuple[Outcome, Stage, int]:
    """The best start's outcome on a sample, the stage on all rows, and the number of iterations of all."""
    n, m = learning.rows.n, len(learning.rows.basis)
    some = some_rows(n, max(RACE_ROWS, RACE_SHARE * m), n)
    sample, own = (learning, signs) if len(some) == n else (learning.on(some), signs[some])
    trials: list[tuple[Stage, Outcome]] = []
    scores: list[float] = []

    def run(stage: Stage, alone: bool) -> None:
        most = min(stage.max_iterations, RACE_ITERATIONS)
        stage = replace(stage, evidence=ClassesEvidence(own), max_iterations=most)
        trials.append((stage, stage.run()))
        guarded = judge is not None and len(judge) >= ENOUGH_JUDGE
        score = (trials[-1][1].run.value if guarded else _fair_value(trials[-1][1])) / sample.rows.n
        scores.append(score if judge is None or alone else score + float(np.mean(judge(*trials[-1]))))

    starts = _starts(sample, own)
    for stage in starts:
        run(stage, alone=len(starts) == 1 and not kinds)
    first = trials[int(np.argmax(scores))][0]
    kernel = first.rows.kernel
    if isinstance(kernel, Stationary) and first.max_iterations > 0:
        for kind in kinds:
            other = kind(kernel.lengthscale, kernel.variance)
            run(replace(first, problem=replace(first.rows, kernel=other)), alone=False)
    best = int(np.argmax(scores))
    outcome, spent = trials[best][1], sum(outcome.run.iterations for _, outcome in trials)
    evidence = trials[best][0].evidence if sample is learning else ClassesEvidence(signs)
    return outcome, replace(learning.after(outcome), evidence=evidence), spent


def _starts(learning: Stage, signs: Array) -> list[Stage]:
    """Starts worth a race, those with fewer parameters first: of a kernel with a lengthscale for each input
    also the one with a single lengthscale; and where rows are few the hyperparameters of an exact process on
    some, each with a function of its own.
    """
    if learning.max_iterations < 1 or learning.prelude == "none":
        return [learning]
    P = learning.rows
    starts = [learning]
    prior = (learning.priors or {}).get("kernel.lengthscale")
    apart = prior is not None and np.ndim(prior.median) > 0  # a prior for each input
    if isinstance(P.kernel, Stationary) and np.ndim(P.kernel.lengthscale) > 0 and not apart:
        one = float(np.exp(np.mean(np.log(P.kernel.lengthscale))))
        kernel = P.kernel.with_parameters({"lengthscale": one})
        starts.insert(0, replace(learning, problem=replace(P, kernel=kernel)))
    if P.n <= 2 * FEW:
        few = some_rows(P.n, FEW, P.n)
        exact = replace(learning, problem=replace(P, Y=signs[:, :1])).exact_on(few).quietly()
        evidence = ClassesEvidence(signs[few, :1])
        exact = replace(exact, evidence=evidence, restarts=0, max_iterations=40, least_gain=LEAST_GAIN)
        starts.append(replace(learning, problem=replace(P, kernel=exact.run().parameters.kernel)))
    return starts


def _fair_value(outcome: Outcome) -> float:
    """The evidence less a nat for each parameter of the kernel, by which their fit is too kind (Akaike): a
    few hundred labels do not tell thirty lengthscales apart.
    """
    return outcome.run.value - sum(np.size(v) for v in outcome.parameters.kernel.parameters.values())


def _binary(outcome: Outcome) -> Binary:
    assert isinstance(outcome.parameters.noise, Binary)
    return outcome.parameters.noise
