"""Named ways to train: which parameters move, in which order, under which row of the table.

A recipe takes a `Task`, the arguments of one `fit`, and composes calls of `fit`. [000 §5], [001 §3, §5]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import FactorisationError, ParameterError, UnknownNameError
from ..inference import selection
from ..inference.regression import DENSE
from ..model.bases import Basis, Multiscale, Points, as_multiscale
from ..model.kernels.base import Kernel
from ..model.kernels.projected import Projected
from ..model.kernels.stationary import RBF, Stationary
from ..model.means import Mean
from ..model.posterior import Posterior
from ..model.problem import DEFAULT_JITTER
from ..numerics.arrays import to_numpy
from .ascent import INTERRUPTED
from .diagnosis import mean_residual
from .fitting import Fit, LogNormal, Progress, Trace, fit, input_spread, log_densities

SUBSET = 2000  # rows of the exact GP that gives the "-basis" recipes their hyperparameters
POWERS = (0.5, 0.8)  # of PEP, between VFE and FITC
LEAST_GAIN = 1e-3  # nats per row in ten iterations: a stage that gains less has settled
FIRST_GAIN = 0.01  # the same for VFE where another row follows: it only has to bring the basis near
FIRST_SHARE, SHARE = (
    0.4,
    0.25,
)  # of the iterations left, the most that VFE, and any other stage, may take before the last
FEW = 500  # rows of the exact GP that gives "auto" its start
LEAST_HELD, MOST_HELD = 10, 500  # rows held out to judge by


@dataclass(frozen=True, eq=False)
class Task:
    """What to fit, and where to start from; and the share of the rows that recipes hold out, those that do."""

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
    weights: Any = None
    fixed: Sequence[str] = ()
    priors: Mapping[str, LogNormal] | None = None
    movable: Any = None
    validation_fraction: float = 0.0
    prelude: Literal["all", "hyperparameters", "none"] = (
        "all"  # what of the start "auto" replaces, having looked at a few rows
    )
    restarts: int = 0
    max_iterations: int = 200
    tolerance: float = 1e-8
    noise_floor: float = 1e-6
    progress: Progress | bool | None = None
    trace: Trace | None = None
    checkpoint: str | Path | None = None
    rng: Any = None

    def after(self, result: Fit) -> Task:
        """The same task, started where `result` ended."""
        return replace(
            self, kernel=result.kernel, basis=result.basis, noise=result.noise, mean=result.mean, restarts=0
        )

    def on(self, rows: np.ndarray) -> Task:
        """The same task with some of the rows only."""
        X, y, per_row = self.X[rows], self.y[rows], np.ndim(self.noise) > 0
        weights, blocks = (None if a is None else a[rows] for a in (self.weights, self.blocks))
        return replace(
            self, X=X, y=y, noise=self.noise[rows] if per_row else self.noise, weights=weights, blocks=blocks
        )

    def quietly(self) -> Task:
        return replace(self, progress=False, trace=None, checkpoint=None)

    def run(
        self,
        optimize: Any = "all",
        *,
        iterations: int | None = None,
        least_gain: float = 0.0,
        held_out: tuple[Any, Any] | None = None,
    ) -> Fit:
        return fit(
            self.kernel,
            self.basis,
            self.approximation,
            self.noise,
            self.X,
            self.y,
            optimize=optimize,
            mean=self.mean,
            jitter=self.jitter,
            blocks=self.blocks,
            power=self.power,
            weights=self.weights,
            fixed=self.fixed,
            priors=self.priors,
            movable=self.movable,
            restarts=self.restarts,
            tolerance=self.tolerance,
            least_gain=least_gain,
            held_out=held_out,
            noise_floor=self.noise_floor,
            progress=self.progress,
            max_iterations=self.max_iterations if iterations is None else iterations,
            trace=self.trace,
            checkpoint=self.checkpoint,
            rng=self.rng,
        )


def direct(task: Task) -> Fit:
    """Everything at once, from the start given."""
    return task.run()


def hyperparameters(task: Task) -> Fit:
    """The basis stays where it is."""
    return task.run("hyperparameters")


def auto(task: Task) -> Fit:
    """From VFE to the row asked for in stages, each starting where the last one ended and ending when it has
    settled.

    VFE's bound is smooth in the basis and never over-fits, but its single noise pays for all of R and its
    error bars are wide; FITC's error bars are good, but from a distant start it moves the basis to explain
    noise, and given time it does so from a near one. Raising PEP's power from 0 to 1 carries VFE's basis over
    to FITC's error bars. The row asked for has its hyperparameters learned first: a basis that is free while
    the noise is still another row's moves to make up for it. A multiscale basis is learned as points first
    [000 §5]. With a validation_fraction, that share of the rows (10 to 500 of them) is held out: stages after
    the first end when those rows gain nothing, and the first stage is kept whose parameters predict them,
    under the row asked for, as well as those of any later one, to one standard error; of fewer than 50 rows
    none can be spared, and VFE's parameters are kept. The result always has all rows.
    """
    if task.approximation in DENSE:
        return direct(task)
    held, rest = _split(task)
    judge = None if held is None else (task.X[held], task.y[held])
    learning = task if held is None else task.on(rest)
    learning = learning if task.prelude == "none" or task.max_iterations < 1 else informed(learning)
    stages = _stages(task)
    if held is None and task.validation_fraction > 0.0 and np.ndim(task.noise) == 0:
        stages = stages[:1]  # too few rows to judge by, and only VFE's bound needs no judge
    files = [_stage_file(task.checkpoint, i) for i in range(len(stages) - 1)] + [task.checkpoint]
    results: list[Fit] = []
    left = task.max_iterations
    for i, (row, power, what) in enumerate(stages):
        last = i == len(stages) - 1
        stage = replace(
            learning.after(results[-1]) if results else _as_points(learning), approximation=row, power=power
        )
        stage = replace(stage, checkpoint=files[i], progress=counting_on(task.progress, results))
        most = left if last else min(left, max(1, round((FIRST_SHARE if row == "vfe" else SHARE) * left)))
        passed = not last and _exists(files[i + 1])  # in an earlier run: only pick up where it ended
        held_out = judge if results else None
        least_gain = LEAST_GAIN if last or row != "vfe" else FIRST_GAIN
        try:
            result = stage.run(
                what, iterations=0 if passed else most, least_gain=least_gain, held_out=held_out
            )
        except KeyboardInterrupt:  # outside of the climb itself
            if not results:
                raise
            results[-1] = replace(results[-1], converged=False, message=INTERRUPTED)
            break
        left -= most if passed else result.n_iterations
        if isinstance(task.basis, Multiscale):  # from now on its widths may move
            result = replace(result, basis=as_multiscale(result.kernel, result.basis))
        results.append(result)
        if result.message == INTERRUPTED:
            break
    return _concluded(task, learning, results, judge)


def _as_points(task: Task) -> Task:
    """The task on points at the centres, unless the widths given are to be kept."""
    if isinstance(task.basis, Points) or task.prelude != "all":
        return task
    return replace(task, basis=Points(task.basis.centers))


def _stages(task: Task) -> list[tuple[str, float | None, str]]:
    """Rows and powers on the way to the task's own, which is the last, and what moves under each."""
    target = {"vfe": 0.0, "fitc": 1.0, "fic": 1.0, "pep": 0.5 if task.power is None else task.power}.get(
        task.approximation
    )
    freed = isinstance(_as_points(task).basis, Points) and isinstance(
        task.basis, Multiscale
    )  # points first, then the widths
    begin: list[tuple[str, float | None, str]] = [("vfe", None, "all")] * (freed + (target != 0.0))
    powers = [] if target is None else [power for power in POWERS if power < target]
    own = [
        (task.approximation, task.power, what)
        for what in (["all"] if target == 0.0 else ["hyperparameters", "all"])
    ]
    return [*begin, *(("pep", power, "all") for power in powers), *own]


def informed(task: Task) -> Task:
    """The task with a start that knows something: hyperparameters of an exact GP on 500 rows, and places to
    go with them.

    VFE from a start that explains little can settle where all is noise. An exact GP on a few rows cannot
    mistake a poor basis for noise, and costs little. The places are the rows that are least known given those
    before, by the kernel found (`selection.greedy_variance`), which spends none of them on inputs that do not
    matter; the noise is at least tr(K - Q)/n, what VFE's noise has to pay for: with less, it would rise at
    once and take all the rest with it. Places that are to stay may not go with that kernel: then the start
    given is tried, too, for ten iterations, and the higher bound decides.
    """
    given = task
    n = task.X.shape[0]
    chosen = np.sort(np.random.default_rng(n).permutation(n)[:FEW])
    few = replace(
        task.on(chosen).quietly(), approximation="exact", power=None, blocks=None, movable=None, restarts=0
    )
    try:
        found = few.run("hyperparameters", iterations=60, least_gain=LEAST_GAIN)
    except FactorisationError:  # too little noise for an exact GP of these rows
        return task
    known, before = np.ndim(task.noise) > 0, task.kernel
    task = replace(task, kernel=found.kernel, noise=task.noise if known else found.noise, mean=found.mean)
    if task.prelude == "all":
        Z = Points(
            selection.greedy_variance(task.X, len(task.basis), task.rng, task.weights, kernel=task.kernel)
        )
        task = replace(task, basis=Z if isinstance(task.basis, Points) else as_multiscale(task.kernel, Z))
    elif isinstance(task.basis, Multiscale):  # widths keep their ratio to the lengthscales
        assert isinstance(before, RBF) and isinstance(task.kernel, RBF)
        widths = task.basis.widths * (
            task.kernel.scales(task.basis.centers) / before.scales(task.basis.centers)
        )
        task = replace(task, basis=replace(task.basis, widths=widths))
    if not known and "noise" not in task.fixed:
        task = replace(task, noise=max(found.noise, mean_residual(task.kernel, task.basis, task.X)))
    if task.prelude == "all":
        return task
    trials = [
        replace(start.quietly(), approximation="vfe", power=None, restarts=0) for start in (task, given)
    ]
    values = [trial.run(iterations=min(10, task.max_iterations)).value for trial in trials]
    return task if values[0] >= values[1] else given


def _split(task: Task) -> tuple[np.ndarray | None, np.ndarray]:
    """Rows to judge by and rows to learn from, the same ones every time. None where there are too few, or
    noise is by row.
    """
    n = task.X.shape[0]
    if not 0.0 <= task.validation_fraction < 1.0:
        raise ParameterError(f"validation_fraction must lie in [0, 1), but is {task.validation_fraction}")
    count = min(max(round(task.validation_fraction * n), LEAST_HELD), MOST_HELD)
    if task.validation_fraction == 0.0 or np.ndim(task.noise) > 0 or n < 5 * count:
        return None, np.arange(n)
    order = np.random.default_rng(n).permutation(n)
    return np.sort(order[:count]), np.sort(order[count:])


def _first_as_good(densities: np.ndarray) -> int:
    """The first stage that the best one does not beat by more than one standard error of their differences."""
    best = int(np.argmax(np.mean(densities, axis=1)))
    gains = densities[best] - densities[: best + 1]  # (stages, rows)
    errors = np.std(gains, axis=1) / np.sqrt(gains.shape[1])
    return int(np.argmax(np.mean(gains, axis=1) <= errors))


def _concluded(task: Task, learning: Task, results: list[Fit], judge: tuple[Any, Any] | None) -> Fit:
    """The parameters of the stage that is best by the held-out rows, or of the last, with all rows under the
    task's own row.
    """
    chosen, score = results[-1], results[-1].score
    if judge is not None:
        trials = [learning.after(result).quietly().run(iterations=0) for result in results]
        densities = np.array(
            [log_densities(trial.posterior, float(trial.noise), *judge) for trial in trials]
        )  # (stages, rows)
        best = _first_as_good(densities)
        chosen, score = results[best], float(np.mean(densities[best]))
    complete = chosen is results[-1] and judge is None and len(results) == len(_stages(task))
    calls = results if complete else [*results, task.after(chosen).quietly().run(iterations=0)]
    return replace(_joined(calls), converged=results[-1].converged, message=results[-1].message, score=score)


def pitc(task: Task) -> Fit:
    """As "auto", ending with PITC: inducing inputs by an evidence that keeps whole blocks of R. [003 §7, §11]

    Blocks not given are made by k-means, of about as many rows each as there are basis functions.
    """
    if task.blocks is None:
        X = to_numpy(task.X)
        centres = selection.kmeans(X, max(1, round(len(X) / len(task.basis))), task.rng)
        task = replace(task, blocks=selection.nearest(X, centres))
    return auto(replace(task, approximation="pitc", power=None))


def mixed(task: Task, share: float = 0.5) -> Fit:
    """As "auto" with only some of the basis free to move: the others are random rows, and stay. [001 §5]"""
    if not isinstance(task.basis, Points):
        raise ParameterError(f"the mixed recipe needs a basis of points, not {type(task.basis).__name__}")
    rng, m = np.random.default_rng(task.rng), len(task.basis)
    Z, movable = to_numpy(task.basis.Z).copy(), np.arange(m) >= round((1.0 - share) * m)
    Z[~movable] = to_numpy(task.X[np.sort(rng.permutation(task.X.shape[0])[: np.count_nonzero(~movable)])])
    return auto(replace(task, basis=Points(Z), movable=movable))


def spgp_full(task: Task) -> Fit:
    """Inducing inputs and hyperparameters jointly, by FITC's evidence. [001 §3]"""
    return replace(task, approximation="fitc").run()


def spgp_basis(task: Task) -> Fit:
    """Hyperparameters from an exact GP on a subset, held; then the inducing inputs alone. [001 §4], [000 §5]"""
    return with_exact_hyperparameters(replace(task, approximation="fitc")).run("basis")


def vsgp_full(task: Task) -> Fit:
    """Half of the iterations as spgp-full, then the widths are freed. [000 §5]"""
    return _freed(replace(task, approximation="fitc"), "all")


def vsgp_basis(task: Task) -> Fit:
    """Half of the iterations as spgp-basis, then the widths are freed. [000 §5]"""
    return _freed(with_exact_hyperparameters(replace(task, approximation="fitc")), "basis")


RECIPES: dict[str, Callable[[Task], Fit]] = {
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


def train(recipe: str, task: Task) -> Fit:
    """Fit `task` by the recipe of that name."""
    if recipe not in RECIPES:
        raise UnknownNameError(f"there is no recipe {recipe!r}; choose one of {', '.join(RECIPES)}")
    return RECIPES[recipe](task)


def with_exact_hyperparameters(task: Task, rows: int = SUBSET) -> Task:
    """The task with kernel and noise learned by an exact GP on a random subset of the rows."""
    if np.ndim(task.noise) > 0:
        raise ParameterError("the -basis recipes learn one noise from a subset; give noise as one number")
    n = task.X.shape[0]
    chosen = np.sort(np.random.default_rng(task.rng).permutation(n)[:rows])
    weights = None if task.weights is None else task.weights[chosen]
    subset = replace(
        task,
        approximation="exact",
        X=task.X[chosen],
        y=task.y[chosen],
        weights=weights,
        blocks=None,
        power=None,
        max_iterations=min(task.max_iterations, 100),
        trace=None,
        checkpoint=_stage_file(task.checkpoint, "exact"),
    )
    learned = subset.run("hyperparameters")
    return replace(task, kernel=learned.kernel, noise=learned.noise, mean=learned.mean)


def with_projection(task: Task, directions: int) -> Task:
    """The task with a kernel of so many directions of its inputs, started where the function varies most.
    [001 §5]

    A first fit on a subset, with a lengthscale for each input, gives gradients g(x) of the mean; the
    directions are the first eigenvectors of Σ g gᵀ over the rows, in units of the inputs' spread. The
    lengthscale inside is 1 and held, since the matrix has a scale of its own.
    """
    kernel, d = task.kernel, task.X.shape[1]
    if not isinstance(kernel, Stationary) or kernel.columns is not None:
        raise ParameterError(
            f"a projection needs a stationary kernel over all inputs, not {type(kernel).__name__}"
        )
    if not 1 <= directions <= d:
        raise ParameterError(f"a projection of {d} inputs has 1 to {d} directions, not {directions}")
    chosen = np.sort(np.random.default_rng(task.rng).permutation(task.X.shape[0])[:SUBSET])
    first = replace(task.on(chosen).quietly(), approximation="vfe", power=None, blocks=None, movable=None)
    first = replace(
        first, basis=Points(first.X[:: max(1, len(chosen) // len(task.basis))][: len(task.basis)])
    )
    posterior = first.run("hyperparameters", least_gain=LEAST_GAIN).posterior
    assert isinstance(posterior, Posterior)
    spread = input_spread(to_numpy(task.X))  # (d,)
    slopes = to_numpy(posterior.gradient(first.X)).reshape(len(chosen), d, -1) * spread[:, None]  # (n, d, p)
    V = np.linalg.eigh(np.einsum("njp,nkp->jk", slopes, slopes))[1]  # (d, d), eigenvalues rising
    matrix = V[:, ::-1][:, :directions].T / spread  # (g, d)
    inside = kernel.with_parameters({"lengthscale": 1.0})
    return replace(task, kernel=Projected(inside, matrix), fixed=(*task.fixed, "kernel.0.lengthscale"))


def _freed(task: Task, optimize: str) -> Fit:
    """Points first, then the same functions as Gaussians whose widths may move."""
    half = task.max_iterations // 2
    start = task.basis if isinstance(task.basis, Points) else Points(task.basis.centers)
    points = replace(task, basis=start, checkpoint=_stage_file(task.checkpoint, "points")).run(
        optimize, iterations=half
    )
    freed = task.after(points)
    freed = replace(freed, basis=as_multiscale(points.kernel, points.basis))
    freed = replace(freed, progress=counting_on(task.progress, [points]))
    return _joined([points, freed.run(optimize, iterations=task.max_iterations - half)])


def counting_on(progress: Progress | bool | None, before: Sequence[Fit]) -> Progress | bool | None:
    """A progress function whose iterations continue from the stages before."""
    if not callable(progress):
        return progress
    done = sum(result.n_iterations for result in before)
    return lambda iteration, value: progress(done + iteration, value)


def _stage_file(checkpoint: str | Path | None, stage: int | str) -> Path | None:
    return None if checkpoint is None else Path(f"{checkpoint}.{stage}")


def _exists(file: str | Path | None) -> bool:
    return file is not None and Path(file).exists()


def _joined(results: list[Fit]) -> Fit:
    """The last result with the iterations of all."""
    return replace(
        results[-1],
        n_iterations=sum(result.n_iterations for result in results),
        n_evaluations=sum(result.n_evaluations for result in results),
        seconds=sum(result.seconds for result in results),
        history=tuple(value for result in results for value in result.history),
    )
