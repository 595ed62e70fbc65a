"""Named ways to train: which parameters move, in which order, under which row of the table.

A recipe takes a `Task`, the arguments of one `fit`, and composes calls of `fit`. [000 §5], [001 §3, §5]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .bases import Basis, Points, as_multiscale
from .errors import ParameterError, UnknownNameError
from .fitting import Fit, LogNormal, Progress, fit
from .kernels.base import Kernel
from .means import Mean
from .problem import DEFAULT_JITTER

SUBSET = 2000  # rows of the exact GP that gives the "-basis" recipes their hyperparameters
PATH = ((0.0, 0.4), (0.5, 0.2), (0.8, 0.15), (1.0, 0.25))  # of "auto": power (0 is VFE) and share of the iterations


@dataclass(frozen=True, eq=False)
class Task:
    """What to fit, and where to start from."""

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
    restarts: int = 0
    max_iterations: int = 200
    tolerance: float = 1e-8
    noise_floor: float = 1e-6
    progress: Progress | bool | None = None
    checkpoint: str | Path | None = None
    rng: Any = None

    def after(self, result: Fit) -> Task:
        """The same task, started where `result` ended."""
        return replace(
            self, kernel=result.kernel, basis=result.basis, noise=result.noise, mean=result.mean, restarts=0
        )  # fmt: skip

    def run(self, optimize: Any = "all", *, iterations: int | None = None) -> Fit:
        return fit(
            self.kernel, self.basis, self.approximation, self.noise, self.X, self.y, optimize=optimize, mean=self.mean,
            jitter=self.jitter, blocks=self.blocks, power=self.power, weights=self.weights, fixed=self.fixed,
            priors=self.priors, restarts=self.restarts, tolerance=self.tolerance, noise_floor=self.noise_floor,
            max_iterations=self.max_iterations if iterations is None else iterations, progress=self.progress,
            checkpoint=self.checkpoint, rng=self.rng,
        )  # fmt: skip


def direct(task: Task) -> Fit:
    """Everything at once, from the start given."""
    return task.run()


def hyperparameters(task: Task) -> Fit:
    """The basis stays where it is."""
    return task.run("hyperparameters")


def auto(task: Task) -> Fit:
    """From VFE to FITC along PEP's power, each stage starting where the last one ended.

    VFE's bound is smooth in the basis and never over-fits, but its single noise pays for all of R and its error bars are
    wide; FITC's error bars are good, but from a distant start it moves the basis to explain noise. Raising the power
    carries VFE's basis over to FITC's error bars. A row without a diagonal share of R is trained directly.
    """
    target = {"vfe": 0.0, "fitc": 1.0, "fic": 1.0, "pep": 0.5 if task.power is None else task.power}.get(task.approximation)
    if target is None or target == 0.0:
        return direct(task)
    stages = [(power, share) for power, share in PATH if power < target]
    stages.append((target, 1.0 - sum(share for _, share in stages)))
    files = [_stage_file(task.checkpoint, i) for i in range(len(stages) - 1)] + [task.checkpoint]
    results: list[Fit] = []
    for i, (power, share) in enumerate(stages):
        last = i == len(stages) - 1
        row, pep = ("vfe", None) if power == 0 else (task.approximation, task.power) if last else ("pep", power)
        stage = replace(task, approximation=row, power=pep, progress=_counting_on(task.progress, results))
        stage = replace(stage, checkpoint=files[i])
        iterations = max(1, round(share * task.max_iterations)) if task.max_iterations else 0
        if not last and _exists(files[i + 1]):
            iterations = 0  # an earlier run got past this stage: only pick up where it ended
        results.append((stage.after(results[-1]) if results else stage).run(iterations=iterations))
        if "interrupted" in results[-1].message:
            break
    return _joined(results, task, complete=len(results) == len(stages))


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
        task, approximation="exact", X=task.X[chosen], y=task.y[chosen], weights=weights, blocks=None, power=None,
        max_iterations=min(task.max_iterations, 100), checkpoint=_stage_file(task.checkpoint, "exact"),
    )  # fmt: skip
    learned = subset.run("hyperparameters")
    return replace(task, kernel=learned.kernel, noise=learned.noise, mean=learned.mean)


def _freed(task: Task, optimize: str) -> Fit:
    """Points first, then the same functions as Gaussians whose widths may move."""
    half = task.max_iterations // 2
    start = task.basis if isinstance(task.basis, Points) else Points(task.basis.centers)
    points = replace(task, basis=start, checkpoint=_stage_file(task.checkpoint, "points")).run(optimize, iterations=half)
    freed = task.after(points)
    freed = replace(freed, basis=as_multiscale(points.kernel, points.basis))
    freed = replace(freed, progress=_counting_on(task.progress, [points]))
    return _joined([points, freed.run(optimize, iterations=task.max_iterations - half)], task, complete=True)


def _counting_on(progress: Progress | bool | None, before: Sequence[Fit]) -> Progress | bool | None:
    """A progress function whose iterations continue from the stages before."""
    if not callable(progress):
        return progress
    done = sum(result.n_iterations for result in before)
    return lambda iteration, value: progress(done + iteration, value)


def _stage_file(checkpoint: str | Path | None, stage: int | str) -> Path | None:
    return None if checkpoint is None else Path(f"{checkpoint}.{stage}")


def _exists(file: str | Path | None) -> bool:
    return file is not None and Path(file).exists()


def _joined(results: list[Fit], task: Task, *, complete: bool) -> Fit:
    """The last stage's result with the iterations of all; an interrupted path still ends with the row that was asked for."""
    last = results[-1]
    if not complete:
        message, last = last.message, task.after(last).run(iterations=0)
        last = replace(last, message=message)
    history = tuple(value for result in results for value in result.history)
    return replace(last, n_iterations=sum(result.n_iterations for result in results), history=history)
