"""Feeding rows to a learner: in turns with progress, a batch whole or not at all, the best rows first."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ..errors import InterruptedWarning, ParameterError
from ..inference.online import Learner, Order, Seen, information_gain, update_together
from ..model.likelihoods import Binary, Likelihood
from ..model.posterior import Posterior, Score
from ..numerics.arrays import to_numpy
from ..progress import Bars


def read(
    posts: Sequence[Posterior],
    likelihood: Likelihood,
    X: np.ndarray,
    Y: np.ndarray,
    capacity: int | None,
    tolerance: float,
    score: Score,
    order: Order,
    *,
    verbose: bool = False,
    stoppable: bool = False,
) -> tuple[list[Posterior], Seen, int]:
    """Read rows X (n, d), Y (n, c, p): the processes after them, predictions before each, rows read.

    Where it is `stoppable`, Ctrl-C ends it early with a warning; else it ends it with nothing changed.
    """
    learner = Learner(posts, likelihood, X.shape[1], capacity, tolerance, score, True)
    seen, posts, done = Seen.nothing(*Y.shape), learner.posteriors(), 0
    with Bars(True if verbose else None) as bars:
        try:
            for rows in learner.turns(X, Y, order):
                for whole, part in zip(seen, learner.read(X[rows], Y[rows])):
                    whole[rows] = part
                posts, done = learner.posteriors(), done + len(rows)
                bars.show("rows", f"{len(learner.basis)} basis functions, rows read", done, len(X))
        except KeyboardInterrupt:
            if not (stoppable and done):
                raise
            warnings.warn(
                f"interrupted after {done} of {len(X)} rows; the model is what these have taught it",
                InterruptedWarning,
                stacklevel=3,
            )
    return posts, seen, done


def most_informative_rows(
    posts: Sequence[Posterior], likelihood: Likelihood, X: np.ndarray, n: int
) -> np.ndarray:
    """Choose the n rows whose unknown y would teach the processes most, the best first. (n,) [004 §3.8.1]

    After each choice the processes read that row with the y they expect most, so that the next is not its
    neighbour. Under Gaussian noise their variances are then what they will be, whatever y is.
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= len(X):
        raise ParameterError(f"n must be a whole number from 1 to the {len(X)} rows there are, but is {n!r}")
    left, chosen, posts = np.arange(len(X)), [], list(posts)
    while True:
        gain = sum(information_gain(post, likelihood, X[left]) for post in posts)
        i = left[int(np.argmax(gain))]
        chosen.append(i)
        if len(chosen) == n:
            return np.array(chosen)
        left = left[left != i]
        expected = np.stack([to_numpy(post.mean(X[i : i + 1])) for post in posts], axis=1)  # (1, c)
        if isinstance(likelihood, Binary):
            expected = np.where(expected > 0, 1.0, -1.0)
        posts = update_together(posts, likelihood, X[i : i + 1], expected, capacity=None)


@contextmanager
def all_or_nothing(model: object) -> Iterator[None]:
    """Restore an estimator's attributes if anything goes wrong."""
    before = dict(vars(model))
    try:
        yield
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise
