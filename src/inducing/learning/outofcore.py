"""Learning from a source: moments and a sample in one pass, places for the basis, then more and more rows.

Everything here is `map` or `total` over parts, with O(m² + chunk·m) memory beside the sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..engine.parts import Parted
from ..errors import require_in, require_one_of
from ..inference import selection
from ..inference.neighbours import BLOCK_ROWS, coordinates
from ..inference.regression import approximation_of, as_problem
from ..model.kernels.base import Kernel
from ..model.posterior import Posterior
from ..model.problem import Problem
from ..numerics.arrays import to_numpy
from ..sources.arrays import ArrayPiece
from ..sources.moments import Moments, of_part, targets, with_rows
from ..sources.source import Kept, Part, Pieces, Source, row_keys
from . import recipes
from .objective import HeldOut
from .stages import Fit

START = 20_000  # rows that learning starts from
SAMPLE, SAMPLE_BYTES = 200_000, 1 << 28  # rows that it goes on with, and no more than fit into so much memory
SAMPLE_SEED = 2**31 - 1  # of the sample: one that nobody chooses for a split
JUDGES = 2_000  # rows held out to judge by, at most a tenth of the first ones
ITERATIONS, FULL = 60, 30  # the most over the sample, and over all rows unless a number is asked for
NEAR_ITERATIONS = 8  # the most over the sample along neighbours
ITERATIONS_WITHOUT_GAIN = 10  # on held-out rows, after which a climb ends
LEAST_HELD_OUT_GAIN = 1e-4  # nats per row in ten iterations: with less a climb ends


@dataclass(frozen=True, eq=False)
class Sample:
    """`size` rows drawn without replacement, those of the least random keys; + joins and draws again."""

    size: int
    keys: np.ndarray  # (s,), rising
    X: np.ndarray  # (s, d)
    Y: np.ndarray  # (s, p)

    def __add__(self, other: Sample) -> Sample:
        keys = np.concatenate([self.keys, other.keys])
        X, Y = np.concatenate([self.X, other.X]), np.concatenate([self.Y, other.Y])
        return Sample(self.size, keys, X, Y).drawn()

    def rows(self, first: int, end: int | None, one_output: bool) -> Part:
        """Some of the sampled rows as a part; the first k of them are a random sample, too."""
        Y = self.Y[first:end]
        return Part(0, self.X[first:end], Y[:, 0] if one_output else Y, "a sample")

    def drawn(self) -> Sample:
        first = np.argsort(self.keys, kind="stable")[: self.size]
        return Sample(self.size, self.keys[first], self.X[first], self.Y[first])


@dataclass(frozen=True, eq=False)
class Survey:
    """Moments and a sample of a source, from one pass."""

    moments: Moments
    sample: Sample

    def __add__(self, other: Survey) -> Survey:
        return Survey(self.moments + other.moments, self.sample + other.sample)


def survey(source: Source, rows: int | None = None, seed: int = SAMPLE_SEED) -> Survey:
    """Moments and a random sample of the rows, in one pass; the same rows for the same seed and parts."""
    if rows is None:
        rows = max(START, min(SAMPLE, SAMPLE_BYTES // (8 * (source.n_features + source.n_outputs))))
    result = source.total(_survey, rows, seed)
    with_rows(result.moments)
    return result


def _survey(part: Part, rows: int, seed: int) -> Survey:
    return Survey(of_part(part), Sample(rows, row_keys(part, seed), part.X, targets(part)).drawn())


# Places for the basis


def select(
    source: Source,
    m: int,
    rule: str = "variance",
    rng: Any = None,
    *,
    kernel: Kernel | None = None,
    noise: Any = None,
    passes: int = 5,
    sample: Sample | None = None,
) -> np.ndarray:
    """Z (m, d) by a rule of `selection.BY_NAME` from a random sample of the rows, which takes a pass.

    "kmeans" then moves every centre to the mean of all rows nearest to it, `passes` times, a pass each.
    """
    require_one_of("rule", rule, selection.BY_NAME)
    generator = np.random.default_rng(rng)
    if sample is None:
        sample = survey(source, START, int(generator.integers(2**31))).sample
    y = sample.Y if sample.Y.shape[1] else None
    Z = selection.BY_NAME[rule](sample.X, m, generator, kernel=kernel, noise=noise, y=y)
    return refined(source, Z, passes) if rule == "kmeans" else Z


def refined(source: Source, Z: np.ndarray, passes: int = 5) -> np.ndarray:
    """Centres moved `passes` times to the mean of the rows nearest to them. [Lloyd 1982]"""
    for _ in range(passes):
        sums, counts = np.split(source.total(_sums_by_centre, Z), [-1], axis=1)
        Z = np.where(counts > 0, sums / np.maximum(counts, 1.0), Z)
    return Z


def _sums_by_centre(part: Part, Z: np.ndarray) -> np.ndarray:
    """The sum of the rows nearest to each centre, and their number. (m, d + 1)"""
    near = selection.nearest(part.X, Z) if len(part.X) else np.zeros(0, dtype=int)  # (c,)
    columns = [*part.X.T, np.ones(len(part.X))]
    return np.stack([np.bincount(near, column, minlength=len(Z)) for column in columns], axis=1)


# Near rows in one part


def by_neighbourhood(source: Source, folder: str | Path, kernel: Kernel) -> Source:
    """The rows of a source in files of `folder`, near ones together: what "neighbours" over a source needs.

    A sample gives centres, as the kernel measures distances; one pass counts the rows nearest to each, and
    another writes them there. A part of the new source is such a block, of about 1000 rows.
    """
    found = survey(source)
    n, layout = int(found.moments.n), source.layout
    Z, size = coordinates(kernel, found.sample.X), BLOCK_ROWS
    centres = selection.kmeans(Z, max(1, min(-(-3 * n // (2 * size)), len(Z) // 4)), 0)
    counts = source.total(_counts_by_centre, kernel, centres)
    edges = np.concatenate([[0], np.cumsum(counts)]).astype(int)
    Path(folder).mkdir(parents=True, exist_ok=True)
    columns = {"X": layout.n_features, "y": layout.n_outputs}
    X, Y = (
        np.lib.format.open_memmap(Path(folder) / f"{name}.npy", mode="w+", shape=(n, width))
        for name, width in columns.items()
    )
    places = edges[:-1].copy()
    for part in source.parts():
        labels = _labels(part, kernel, centres)
        order = np.argsort(labels, kind="stable")
        own = np.bincount(labels, minlength=len(centres))
        to = np.repeat(places - np.cumsum(own) + own, own) + np.arange(len(order))
        X[to], Y[to] = part.X[order], part.Y[order]
        places += own
    X.flush()
    Y.flush()
    y = Y[:, 0] if layout.one_output else Y
    kept = [(int(a), int(b)) for a, b in zip(edges[:-1], edges[1:], strict=True) if b > a]
    pieces = (ArrayPiece(X, y, slice(a, b), f"rows {a} to {b - 1} of {folder}") for a, b in kept)
    return Pieces(layout, tuple(pieces))


def _counts_by_centre(part: Part, kernel: Kernel, centres: np.ndarray) -> np.ndarray:
    return np.bincount(_labels(part, kernel, centres), minlength=len(centres))


def _labels(part: Part, kernel: Kernel, centres: np.ndarray) -> np.ndarray:
    """The nearest centre of each row. (c,)"""
    if not len(part.X):
        return np.zeros(0, dtype=int)
    return selection.nearest(coordinates(kernel, part.X), centres)


# Learning


def judges(sample: Sample, share: float) -> int:
    """The number of a sample's first rows that are held out to judge by; 0 where there are too few."""
    require_in("validation_fraction", share, "[0, 1)")
    rows = min(START, len(sample.keys))
    count = min(JUDGES, round(share * rows))
    return count if 5 * max(count, recipes.LEAST_HELD) <= rows else 0


def train(
    recipe: str,
    task: recipes.Task,
    sample: Part,
    source: Source,
    iterations: int | None,
    *,
    optimize: str = "all",
    held_out: tuple[Any, Any] | None = None,
    key: float = 0.0,
    seed: int = SAMPLE_SEED,
) -> Fit:
    """Fit a source: learn `task`, a few of its rows, by a recipe; go on with a larger sample, then with all.

    Few rows cost little and go far; what they cannot know, more tell in some dozens of iterations. Rows whose
    key is below `key` are held out of all this, and the point that predicts `held_out`, those rows, best is
    kept: one of the few rows' fit, if nothing later is better. There are as many `iterations` over everything
    as are asked for; with None at most 30, which end when they gain too little. The posterior has all rows.
    Along neighbours there are none over everything, whose rows are only sent to their blocks, in files that
    last as long as this call, and conditioned on. A checkpoint, and `n_evaluations`, are of those over
    everything.
    """
    resumed = task.checkpoint is not None and Path(task.checkpoint).exists()
    few = task.set(checkpoint=None, max_iterations=0 if resumed else task.max_iterations)
    stage, outcome = recipes.recipe_for(recipe, optimize).learned(few)
    outcomes, row = [outcome], approximation_of(task.approximation, task.power, task.neighbours)
    judge = None if held_out is None else HeldOut.checked(*held_out)
    settings = replace(stage, optimize=optimize, held_out=judge, restarts=0)
    settings = replace(settings, patience=ITERATIONS_WITHOUT_GAIN, least_gain=LEAST_HELD_OUT_GAIN)

    def go_on(X: Any, y: Any, most: int, **more: Any) -> None:
        progress = recipes.counting_on(task.progress, outcomes)
        stage = replace(settings, problem=problem(X, y), max_iterations=most, progress=progress, **more)
        outcomes.append(stage.run())

    def problem(X: Any, y: Any) -> Problem | Parted:
        kernel, basis, noise, mean = outcomes[-1].parameters
        return as_problem(kernel, basis, row, noise, X, y, mean=mean, jitter=task.jitter)

    near = row.keeps == "neighbours"
    if len(sample.X) > START and task.max_iterations and not (resumed or task.is_over):
        most = min(NEAR_ITERATIONS if near else ITERATIONS, task.max_iterations)
        go_on(sample.X, sample.y, most, **({"held_out": None} if near else {}))
    if near:
        with TemporaryDirectory() as folder:
            blocks = by_neighbourhood(source, folder, outcomes[-1].parameters.kernel)
            end = replace(outcomes[-1].following(outcomes[:-1]), gain=outcome.gain)
            result = replace(settings, problem=problem(blocks, None)).fit(end)
            return replace(result, n_evaluations=0, seconds=0.0)
    everything = iterations != 0 and task.max_iterations > 0 and not task.is_over
    if everything:
        learning = source if held_out is None else source.changed(Kept(key, seed, inside=False))
        most = FULL if iterations is None else iterations
        asked = {} if iterations is None else {"patience": most + 1, "least_gain": 0.0}
        go_on(learning, None, most, checkpoint=task.checkpoint, **asked)
    last = outcomes[-1]
    result = replace(settings, problem=problem(source, None)).fit(last.following(outcomes[:-1]))
    if not everything:
        return replace(result, n_evaluations=0, seconds=0.0)
    return replace(result, n_evaluations=last.run.evaluations, seconds=last.run.seconds)


# Predicting


def predictions(posterior: Posterior, source: Source) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(mean, variance) of f at the rows of each part, in turn."""
    return source.map(_predicted, posterior)


def _predicted(part: Part, posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
    mean, variance = posterior.predict(part.X)
    return to_numpy(mean), to_numpy(variance)
