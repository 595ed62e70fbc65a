"""Functions that feed rows to a learner, choose the most informative ones, and undo what failed."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from ..errors import InterruptedWarning, ParameterError
from ..inference.information import information_gain
from ..inference.online import Learner, Order, Seen, update_together
from ..model.likelihoods import Binary, Likelihood
from ..model.posterior import Posterior
from ..numerics.arrays import to_numpy
from ..numerics.workers import single_threaded_blas
from ..progress import Bars
from .adapting import Adaptation

_reading: dict[int, int] = {}  # id(model) -> the thread that changes this model now


class Reading(NamedTuple):
    """The outcome of `read`."""

    posts: list[Posterior]  # the processes after the rows
    adaptation: Adaptation
    n: int  # rows that were read
    seen: Seen  # the prediction before each row
    under: list[tuple[np.ndarray, Likelihood]]  # rows by number, and the likelihood they were read under


def read(
    learner: Learner,
    adaptation: Adaptation,
    X: np.ndarray,
    Y: np.ndarray,
    order: Order,
    times: np.ndarray | None,
    row: int,
    *,
    verbose: bool = False,
    stoppable: bool = False,
) -> Reading:
    """Read rows X (n, d), Y (n, c, p); `row` is the number of the first one in the stream.

    Reading ends early when drift asks for the model to be learned again. If `stoppable`, Ctrl-C ends it with
    a warning and what the rows so far have taught, else with KeyboardInterrupt.
    """
    seen, done, steps = Seen.nothing(*Y.shape), 0, adaptation.steps(len(X), times, row)
    under = list[tuple[np.ndarray, Likelihood]]()
    posts, after = learner.posteriors() if stoppable else [], copy(adaptation)
    shown = Bars(True if verbose else None) if len(X) > 1 else nullcontext()
    with shown as bars, single_threaded_blas():  # set here once: setting it for every few rows takes time
        try:
            for rows in learner.turns(X, Y, order):
                n = 0
                while n < len(rows) and not adaptation.to_be_learned:
                    left = rows[n : n + learner.block]
                    parts = adaptation.read(learner, X[left], Y[left], steps[left], row + done + n)
                    for part, likelihood in parts:
                        now = rows[n : n + len(part.mean)]
                        under.append((now, likelihood))
                        for whole, new in zip(seen, part):
                            whole[now] = new
                        n += len(now)
                done += n
                if stoppable or done == len(X) or adaptation.to_be_learned:
                    posts, after = learner.posteriors(), copy(adaptation)
                if bars is not None:
                    bars.show("rows", f"{len(learner.basis)} basis functions, rows read", done, len(X))
        except KeyboardInterrupt:
            if not (stoppable and done):
                raise
            message = f"interrupted after {done} of {len(X)} rows; the model is what these have taught it"
            warnings.warn(message, InterruptedWarning, stacklevel=3)
    return Reading(posts, after, done, seen, under)


def most_informative_rows(
    posts: Sequence[Posterior], likelihood: Likelihood, X: np.ndarray, n: int
) -> np.ndarray:
    """Choose the n rows whose unknown y would teach the processes most, the best first. (n,) [004 §3.8.1]

    After each choice the processes read that row with the y they expect, so that the next is not its
    neighbour. Under Gaussian noise the variances after a row do not depend on its y, so they are exact.
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


def enter(model: object) -> bool:
    """Mark a model as changed by this thread; return whether it was free. Raise if another thread has it."""
    first = id(model) not in _reading
    if _reading.setdefault(id(model), get_ident()) != get_ident():
        raise ParameterError("the model is learning in another thread; let one thread at a time feed a model")
    return first


def leave(model: object) -> None:
    """Remove the mark of `enter`, so that other threads may change the model."""
    del _reading[id(model)]


@contextmanager
def all_or_nothing(model: Any) -> Iterator[None]:
    """Restore an estimator's attributes if the block raises; refuse a second thread at the same time."""
    outermost = enter(model)
    try:
        model.settle()
        before = dict(vars(model))
        try:
            yield
        except BaseException:
            vars(model).clear()
            # the learner in `_live` has been written into, so it cannot be restored
            vars(model).update(before | ({"_live": None} if "_live" in before else {}))
            raise
    finally:
        if outermost:
            leave(model)
