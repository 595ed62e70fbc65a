"""The base of estimators that read streams: warm-up, reading, and adaptation to changes."""

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..errors import DriftWarning, ShapeError
from ..files.records import Arrays, Plain, array, expect, number
from ..inference.online import Learner, Seen
from ..model import likelihoods
from ..model.likelihoods import Likelihood
from ..model.posterior import Posterior
from ..streams.adapting import Adaptation
from ..streams.feeding import Reading, enter, leave, read


class Standing:
    """The state of a model after some rows: the processes of all experts, and how they adapt."""

    def __init__(self, posts: list[Posterior], adaptation: Adaptation) -> None:
        self.posts, self.adaptation = posts, copy(adaptation)

    @cached_property
    def matched(self) -> list[Posterior]:
        """The processes of the model, matched to the mixtures of the experts."""
        return self.adaptation.matched(self.posts)


class Live:
    """A learner in the current state of its model, which single rows change in place; `rows` are those read
    since `settle` last wrote the model's processes down, after `n_rows` rows.
    """

    def __init__(self, learner: Learner, n_rows: int) -> None:
        self.learner, self.n_rows, self.lock = learner, n_rows, Lock()
        self.rows: list[tuple[np.ndarray, np.ndarray]] = []


class Streaming:
    """Mixin of the estimators that read streams: the warm-up, reading in batches or row by row, adaptation to
    changes, and its record in a file.
    """

    likelihood_: Likelihood
    n_rows_: int  # read so far
    basis_size_: int
    _held: tuple[np.ndarray, np.ndarray] | None  # the rows of a warm-up that has not ended
    _begun_with: int  # how many rows set the units
    _adaptation: Adaptation
    _standing: Standing | None = None
    _live: Live | None = None
    warmup: int
    verbose: int
    _size: Any
    tolerance: float
    removal_score: Any
    order: Any
    half_life: Any
    on_drift: Any

    @property
    def warming_up_(self) -> bool:
        check_is_fitted(self)  # type: ignore[arg-type]
        return self._held is not None

    @property
    def half_lives_(self) -> dict[float, float]:
        """The weight of each half-life."""
        rates = self._adaptation.half_lives
        return dict(zip(rates.tolist(), self._adaptation.weights.tolist(), strict=True))

    @property
    def n_drifts_(self) -> int:
        """The number of drift alarms so far; `drifts_` are the rows of the last of them."""
        return self._adaptation.drift.alarms

    @property
    def drifts_(self) -> tuple[int, ...]:
        return self._adaptation.drift.at

    def __getstate__(self) -> Any:
        self.settle()
        return {name: v for name, v in super().__getstate__().items() if name != "_live"}  # type: ignore

    @property
    def _posts(self) -> list[Posterior] | None:
        """The processes of all experts; None where each expert has those of the model."""
        self.settle()
        return None if self._standing is None else self._standing.posts

    @_posts.setter
    def _posts(self, posts: list[Posterior] | None) -> None:
        self._live, self._standing = None, None if posts is None else Standing(posts, self._adaptation)

    def settle(self) -> None:
        """Compute the processes from the learner if it has read single rows since the last time."""
        live = self._live
        if live is not None and live.rows:
            with live.lock:
                if self._live is live:
                    self._standing = Standing(live.learner.posteriors(), self._adaptation)
                    live.rows, live.n_rows = [], self.n_rows_

    def _adapt(self, follows_noise: bool = False, memory: Any = None) -> None:
        """Start the adaptation to changes anew, as before the first row."""
        self._adaptation = Adaptation.begun(self.half_life, self.on_drift, follows_noise, memory)
        self._posts = None

    def _warm_up(self, X: np.ndarray, y: np.ndarray, time: np.ndarray | None) -> None:
        """Read rows of the warm-up. Whenever their number has doubled the model starts again from all of
        them, as if they had come at once; at the end of the warm-up it does so with learned hyperparameters.
        """
        assert self._held is not None
        held = np.concatenate([self._held[0], X]), np.concatenate([self._held[1], y])
        last = len(held[0]) >= self.warmup
        if last or len(held[0]) >= 2 * self._begun_with:
            now = None if time is None or not len(time) else np.full(len(held[0]), time[-1])
            self._begin(*held, learn=last, time=now)
        else:
            self._read_on(X, y, time)
        self._held = None if last else held

    def _begin(self, X: np.ndarray, y: np.ndarray, *, learn: bool, time: Any = None) -> None:
        """Set the units, and with `learn` the hyperparameters, from these rows; then read them."""
        raise NotImplementedError

    def _read_on(self, X: np.ndarray, y: np.ndarray, time: np.ndarray | None) -> Any:
        """Read rows with the present units and hyperparameters."""
        raise NotImplementedError

    def _feed(
        self,
        posts: Sequence[Posterior],
        X: np.ndarray,
        Y: np.ndarray,
        time: np.ndarray | None = None,
        stoppable: bool = False,
    ) -> Reading:
        """Read rows in the model's units, starting from the model's own processes or else from `posts`."""
        adaptation = copy(self._adaptation)
        adaptation.watching = self.n_rows_ > 0 and self._held is None
        before, live = self._posts or list(posts) * len(adaptation.half_lives), self._live
        if live is not None and live.learner.likelihood is self.likelihood_:
            learner = live.learner
        else:
            rule = self._size, self.tolerance, self.removal_score
            learner = Learner(before, self.likelihood_, X.shape[1], *rule, True)
        with nullcontext() if live is None else live.lock:
            self._live = None  # the learner changes now; a thread that waited for the lock sees None
        how: dict[str, Any] = {"verbose": bool(self.verbose), "stoppable": stoppable}
        reading = read(learner, adaptation, X, Y, self.order, time, self.n_rows_ + 1, **how)
        self._adaptation, self.likelihood_ = reading.adaptation, learner.likelihood
        self.n_rows_, self._posts = self.n_rows_ + reading.n, reading.posts
        self._live = None if reading.n < len(X) else Live(learner, self.n_rows_)
        return reading

    def _read_row(self, X: np.ndarray, Y: np.ndarray) -> Seen | None:
        """Read one checked row (1, d) with Y (1, c, p) in the model's units, and return its prediction; where
        more than reading is due, do nothing and return None.

        The learner changes in place. If anything fails it is made again from the processes last computed.
        """
        live, adaptation = self._live, self._adaptation
        if live is None or adaptation.quiet < 1 or live.learner.likelihood is not self.likelihood_:
            return None
        outermost = enter(self)
        try:
            with live.lock:
                done, adaptation.watching = len(live.rows), self._held is None
                try:
                    seen = adaptation.read_row(live.learner, X, Y, self.n_rows_ + 1)
                    live.rows.append((X, Y))
                    self.n_rows_, self.basis_size_ = self.n_rows_ + 1, int(live.learner.state.size[0])
                except BaseException:
                    self._read_again(live, live.rows[:done])
                    raise
            return seen
        finally:
            if outermost:
                leave(self)

    def _mean_at(self, x: np.ndarray) -> np.ndarray | None:
        """Return the mean of f at a row (1, d) in the model's units, for each process and output (c, p), from
        the live learner; None without one.
        """
        live = self._live
        if live is None:
            return None
        with live.lock:
            if self._live is not live:
                return None
            means, share = live.learner.mean(x), self._adaptation.weights
        return np.tensordot(share, means.reshape(len(share), -1, means.shape[1]), 1)

    def _read_again(self, live: Live, rows: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Go back to the processes last computed, and read these rows again."""
        assert self._standing is not None
        self._live, self.n_rows_, self._adaptation = None, live.n_rows, copy(self._standing.adaptation)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DriftWarning)
            for X, Y in rows:
                self._feed([], X, Y)
        self.basis_size_ = len(self._standing.posts[0])

    def _stream_record(self) -> tuple[Plain, Arrays]:
        """Return the record of what a model needs to go on reading."""
        plain = {"likelihood": self.likelihood_.spec(), "n_rows": int(self.n_rows_), "begun_with": None}
        more, arrays = self._adaptation.to_record()
        posts = self._posts
        if posts is not None and len(self._adaptation.half_lives) > 1:
            arrays |= {"experts.w": np.stack([np.asarray(post.w) for post in posts])}
            arrays |= {"experts.A": np.stack([np.asarray(post.A) for post in posts])}
            more["log_predictive"] = [post.log_predictive for post in posts]
        plain["adaptation"] = more
        if self._held is not None:
            plain["begun_with"] = int(self._begun_with)
            arrays |= dict(zip(("warmup.X", "warmup.y"), self._held))
        return plain, arrays

    def _restore_stream(
        self, plain: Plain, arrays: Arrays, shape: tuple[int, ...], posterior: Posterior
    ) -> None:
        """Set the attributes that `_stream_record` recorded; `shape` is that of a row's target."""
        self.likelihood_ = likelihoods.from_spec(plain["likelihood"])
        self.n_rows_, self._held = int(plain["n_rows"]), None
        if plain["begun_with"] is not None:
            self._begun_with = int(plain["begun_with"])
            X, y = array(arrays, "warmup.X", 2), array(arrays, "warmup.y")
            expect(X.shape == (self.n_rows_, self.n_features_in_), "warmup.X", X)  # type: ignore[attr-defined]
            expect(y.shape == (self.n_rows_, *shape), "warmup.y", y)
            self._held = X, y
        self._adapt_again()
        if "adaptation" not in plain:  # in the oldest files
            return
        self._adaptation = self._adaptation.restored(plain["adaptation"], arrays)
        if "experts.w" in arrays:
            w, A = array(arrays, "experts.w", 3), array(arrays, "experts.A", 3)
            logs = plain["adaptation"]["log_predictive"]
            whole = len(w) % len(self._adaptation.half_lives) == 0 and len(A) == len(w) == len(logs)
            alike = w.shape[1:] == posterior.w.shape and A.shape[1:] == posterior.L.shape
            expect(whole and alike, "experts.w", w)
            parts = zip(w.copy(), A.copy(), logs)
            self._posts = [replace(posterior, w=u, A=B, log_predictive=number(log)) for u, B, log in parts]

    def _adapt_again(self) -> None:
        """Call `_adapt`, in a regressor with its noise and memory."""
        self._adapt()


def times_of(time: Any, X: np.ndarray) -> np.ndarray | None:
    """Return the times of the rows of X as floats (n,); raise if they do not fit."""
    if time is None:
        return None
    times = np.asarray(time, dtype=float)
    if times.shape != (len(X),) or not np.all(np.isfinite(times)):
        raise ShapeError(f"time must be {len(X)} finite numbers, one a row, not of shape {times.shape}")
    return times
