"""Learning curves: independent jobs (data, method, number of basis functions, seed), each giving a record.

A curve experiment is a list of jobs and a page drawn from their records. Records are kept in a file as they
finish, so that a run that was stopped goes on where it was. Jobs run on a GPU where PyTorch has one, on NumPy
arrays elsewhere.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from inducing import metrics
from inducing.inference import selection
from inducing.inference.regression import condition
from inducing.learning import recipes
from inducing.learning.fitting import Fit
from inducing.learning.recipes import Task
from inducing.model.bases import Multiscale, Points
from inducing.model.kernels import RBF
from inducing.numerics.arrays import Array, to_numpy
from inducing.progress import Bars
from inducing.sources import datasets

Record = dict[str, Any]
Hyperparameters = Literal["plain", "exact", "held"]

SUBSET = {"kin40k": 2000, "pumadyn32nm": 1024}  # rows of the exact GP that gives hyperparameters [000 §5]
NOISE_FLOOR = 5e-3  # of the variance of y: about what the exact GP finds on kin-40k
NOISE = 0.1  # where learning starts; with it lengthscales √d and variance 1, the data being standardised


@dataclass(frozen=True)
class Job:
    """One point of a curve. The same job gives the same numbers, up to rounding."""

    data: str
    method: str  # one of METHODS
    m: int
    seed: int = 0
    iterations: int = 0
    start: str = "kmeans"  # the rule that selects the basis to start from
    movable: float = 1.0  # the share of the inducing inputs that may move
    blocks: int = 0  # how many blocks of rows PITC has: clusters of the inputs
    rows: int = 0  # training rows used, and as many test rows; 0 is all

    @property
    def key(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True)
class Method:
    """How a curve is made. Hyperparameters start plain, or start as the exact GP's, or are held there."""

    hyperparameters: Hyperparameters
    row: str
    learn: Callable[[Task], Fit] | None = None  # None: the basis stays as selected


METHODS = {
    "selected-dtc": Method("held", "dtc"),  # the curves of [001 Fig 3], by the rule in `start`
    "selected-fitc": Method("held", "fitc"),
    "spgp-full": Method("plain", "fitc", recipes.spgp_full),
    "spgp-basis": Method("held", "fitc", recipes.spgp_full),
    "vsgp-full": Method("plain", "fitc", recipes.vsgp_full),
    "vsgp-basis": Method("held", "fitc", recipes.vsgp_full),
    "spgp-exact": Method("exact", "fitc", recipes.spgp_full),
    "auto": Method("plain", "fitc", recipes.auto),
    "vfe-full": Method("plain", "vfe", recipes.direct),
    "pep-full": Method("plain", "pep", recipes.direct),
    "floor-full": Method(
        "plain", "fitc", lambda task: recipes.spgp_full(replace(task, noise_floor=NOISE_FLOOR))
    ),
    "hyper-dtc": Method("plain", "dtc", recipes.hyperparameters),
    "hyper-fitc": Method("plain", "fitc", recipes.hyperparameters),
    "hyper-vfe": Method("plain", "vfe", recipes.hyperparameters),
    "pitc-basis": Method("held", "pitc", recipes.direct),
    "pitc-full": Method("plain", "pitc", recipes.direct),
}


class Store:
    """Records by job: in memory, and in a file of JSON lines where there is one."""

    def __init__(self, path: Path | None = None) -> None:
        self.path, self.records = path, {}  # type: ignore[var-annotated]
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                self.records[Job(**record["job"]).key] = record

    @staticmethod
    @cache
    def usual(quick: bool) -> Store:
        """The file beside the data that were downloaded; only memory for quick forms."""
        return Store(None if quick else datasets.cache_folder() / "curves.jsonl")

    def record(self, job: Job) -> Record:
        """The job's record, computed if it is not there yet."""
        if job.key not in self.records:
            self.add(_compute_exact(job) if job.method == "exact" else _compute(job, self))
        return self.records[job.key]

    def add(self, record: Record) -> None:
        self.records[Job(**record["job"]).key] = record
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")  # one write: processes may share the file

    def all(self, jobs: Iterable[Job]) -> list[Record]:
        """The records of all jobs; a bar on a terminal shows the one being computed."""
        jobs = list(jobs)
        with Bars() as bars:
            for i, job in enumerate(jobs):
                if job.key not in self.records:
                    text = f"{job.data} {job.method} m={job.m} seed={job.seed}"
                    bars.show("jobs", text, i, len(jobs))
                self.record(job)
        return [self.records[job.key] for job in jobs]


def exact_job(data: str, seed: int, rows: int = 0) -> Job:
    """The exact GP on a subset, whose hyperparameters others use."""
    return Job(data, "exact", min(SUBSET[data], rows // 3) if rows else SUBSET[data], seed, 100, rows=rows)


@dataclass(frozen=True, eq=False)
class Bench:
    """Standardised data, and where learning starts. [000 §5]"""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @staticmethod
    @cache
    def of(name: str, rows: int) -> Bench:
        data = datasets.load(name)
        assert data.y_test is not None
        use = slice(rows or None)
        X, y = data.X_train[use], data.y_train[use]
        shift, scale, level, spread = X.mean(0), X.std(0), y.mean(), y.std()
        return Bench(
            (X - shift) / scale,
            (y - level) / spread,
            (data.X_test[use] - shift) / scale,
            (data.y_test[use] - level) / spread,
        )

    def task(self, job: Job) -> Task:
        d = self.X.shape[1]
        return Task(
            RBF(np.full(d, np.sqrt(d)), 1.0),
            Points(self.X[:1]),
            "fitc",
            NOISE,
            placed(self.X),
            placed(self.y),
            max_iterations=job.iterations,
            progress=False,
            rng=job.seed,
        )

    def scores(self, posterior: Any, noise: float, **options: Any) -> Record:
        """How good the predictions of the test rows are. `noise` is the variance of the observations."""
        mean, variance = (to_numpy(a) for a in posterior.predict(placed(self.X_test), **options))
        variance = variance + noise
        return {
            "smse": metrics.smse(self.y_test, mean, self.y),
            "msll": metrics.msll(self.y_test, mean, variance, self.y),
        }


def placed(a: np.ndarray) -> Array:
    """On the GPU, if PyTorch is installed and has one."""
    return a if _torch() is None else _torch().from_numpy(np.ascontiguousarray(a)).cuda()


@cache
def _torch() -> Any:
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":  # as PyTorch itself would find, without loading it
        return None
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def device() -> str:
    return "NumPy" if _torch() is None else f"PyTorch, {_torch().cuda.get_device_name()}"


def _compute_exact(job: Job) -> Record:
    bench, began = Bench.of(job.data, job.rows), time.perf_counter()
    learned = recipes.with_exact_hyperparameters(bench.task(job), job.m)
    chosen = np.sort(np.random.default_rng(job.seed).permutation(len(bench.X))[: job.m])  # the same rows
    posterior = condition(learned.kernel, None, "exact", learned.noise, learned.X[chosen], learned.y[chosen])
    return _record(job, began, learned, posterior) | bench.scores(posterior, learned.noise)


def _compute(job: Job, store: Store) -> Record:
    bench, method = Bench.of(job.data, job.rows), METHODS[job.method]
    task = replace(bench.task(job), approximation=method.row)
    if method.hyperparameters != "plain":
        known = store.record(exact_job(job.data, job.seed, job.rows))
        task = replace(
            task, kernel=RBF(np.array(known["lengthscale"]), known["variance"]), noise=known["noise"]
        )
    if method.hyperparameters == "held":
        task = replace(task, fixed=("kernel", "noise"))
    began = time.perf_counter()
    rule = selection.BY_NAME[job.start]
    task = replace(
        task, basis=Points(rule(bench.X, job.m, job.seed, kernel=task.kernel, noise=task.noise, y=bench.y))
    )
    if job.movable < 1.0:  # the first ones stay where they were selected
        task = replace(task, movable=np.arange(job.m) >= round((1.0 - job.movable) * job.m))
    if job.blocks:
        task = replace(
            task, blocks=selection.nearest(bench.X, selection.kmeans(bench.X, job.blocks, job.seed))
        )
    if method.learn is None:
        posterior = condition(task.kernel, task.basis, method.row, task.noise, task.X, task.y)
        return _record(job, began, task, posterior) | bench.scores(posterior, task.noise)
    fit = method.learn(task)
    record = _record(job, began, fit, fit.posterior) | bench.scores(fit.posterior, fit.noise)
    record |= {"iterations": fit.n_iterations, "converged": fit.converged, "history": _quarters(fit.history)}
    if isinstance(fit.basis, Multiscale):
        variances = np.array(record["lengthscale"]) ** 2  # (d,)
        relative = to_numpy(fit.basis.widths) ** 2 / variances - 1.0  # (m, d)
        record |= {
            "deviation": float(np.mean((relative * variances) ** 2)),
            "relative": np.mean(relative**2, axis=0).tolist(),
        }
    return record | (_other_conditionals(job, bench, task, fit) if job.blocks else {})


def _other_conditionals(job: Job, bench: Bench, task: Task, fit: Fit) -> Record:
    """The parameters that PITC found, under FITC, and under PIC, whose queries see the rows of their own
    block.
    """
    centres = selection.kmeans(bench.X, job.blocks, job.seed)  # the same as before
    fitc = condition(fit.kernel, fit.basis, "fitc", fit.noise, task.X, task.y)
    pic = condition(fit.kernel, fit.basis, "pic", fit.noise, task.X, task.y, blocks=task.blocks)
    found = {"fitc": bench.scores(fitc, fit.noise)}
    found["pic"] = bench.scores(pic, fit.noise, blocks=selection.nearest(bench.X_test, centres))
    return {f"{row} {name}": value for row, scores in found.items() for name, value in scores.items()}


def _record(job: Job, began: float, state: Task | Fit, posterior: Any) -> Record:
    kernel = state.kernel
    assert isinstance(kernel, RBF)
    return {
        "job": asdict(job),
        "log_evidence": float(posterior.log_evidence),
        "noise": float(state.noise),
        "variance": float(kernel.variance),
        "lengthscale": np.asarray(kernel.lengthscale).tolist(),
        "seconds": time.perf_counter() - began,
        "device": device(),
    }


def _quarters(history: Sequence[float]) -> list[float]:
    """The objective after each quarter of the iterations: whether it had settled."""
    return [float(history[max(0, len(history) * q // 4 - 1)]) for q in range(1, 5)] if history else []
