"""The base of estimators that read streams: the warm-up, reading on, and following changes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..errors import ShapeError
from ..files.records import Arrays, Plain, array, expect, number
from ..inference.online import Learner, Seen
from ..model import likelihoods
from ..model.likelihoods import Likelihood
from ..model.posterior import Posterior
from ..streams.adapting import Adaptation
from ..streams.feeding import read


class Streaming:
    """Mixin of the estimators that read streams: a warm-up, whose rows set the units, a likelihood, and what
    follows the changes of a stream.
    """

    likelihood_: Likelihood
    n_rows_: int  # read so far
    _held: tuple[np.ndarray, np.ndarray] | None  # the rows of a warm-up that has not ended
    _begun_with: int  # how many rows set the units
    _posts: list[Posterior] | None  # the processes of all experts; None: those of the model, for each
    _adaptation: Adaptation
    _live: tuple[Learner, list[Posterior]] | None = None  # what made `_posts`, for the next rows
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
        """The number of alarms that drift has caused; `drifts_` are the rows of the last of them."""
        return self._adaptation.drift.alarms

    @property
    def drifts_(self) -> tuple[int, ...]:
        return self._adaptation.drift.at

    def __getstate__(self) -> Any:
        return {name: v for name, v in super().__getstate__().items() if name != "_live"}  # type: ignore

    def _adapt(self, follows_noise: bool = False, memory: Any = None) -> None:
        """Begin to follow changes, with nothing read."""
        self._posts, self._adaptation = (
            None,
            Adaptation.begun(self.half_life, self.on_drift, follows_noise, memory),
        )

    def _warm_up(self, X: np.ndarray, y: np.ndarray, time: np.ndarray | None) -> None:
        """Read rows of the warm-up, all of one age. The model starts again from all of them whenever their
        number has doubled, and for good, with hyperparameters learned, at its end.
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
        """Take units and, to learn, hyperparameters from these rows; then read them."""
        raise NotImplementedError

    def _read_on(self, X: np.ndarray, y: np.ndarray, time: np.ndarray | None) -> Any:
        """Read rows with the units and hyperparameters there are."""
        raise NotImplementedError

    def _feed(
        self,
        posts: Sequence[Posterior],
        X: np.ndarray,
        Y: np.ndarray,
        time: np.ndarray | None = None,
        stoppable: bool = False,
    ) -> tuple[list[Posterior], Seen, int]:
        """Read rows in the model's units, from where it stood or else from `posts`: the model's processes
        after them, what was predicted of each row before it, and how many were read.
        """
        adaptation = self._adaptation.copied()
        adaptation.watching = self.n_rows_ > 0 and self._held is None
        before = self._posts or list(posts) * len(adaptation.half_lives)
        learner, known = self._live or (None, None)
        if learner is None or known is not before or learner.likelihood is not self.likelihood_:
            rule = self._size, self.tolerance, self.removal_score
            learner = Learner(before, self.likelihood_, X.shape[1], *rule, True)
        how: dict[str, Any] = {"verbose": bool(self.verbose), "stoppable": stoppable}
        row = self.n_rows_ + 1
        after, self._adaptation, seen, n = read(learner, adaptation, X, Y, self.order, time, row, **how)
        self._posts, self.likelihood_ = after, learner.likelihood
        self._live, self.n_rows_ = (learner, after), self.n_rows_ + n
        return self._adaptation.matched(after), seen, n

    def _stream_record(self) -> tuple[Plain, Arrays]:
        """Describe what a model needs to go on reading."""
        plain = {"likelihood": self.likelihood_.spec(), "n_rows": int(self.n_rows_), "begun_with": None}
        more, arrays = self._adaptation.to_record()
        if self._posts is not None and len(self._adaptation.half_lives) > 1:
            arrays |= {"experts.w": np.stack([np.asarray(post.w) for post in self._posts])}
            arrays |= {"experts.A": np.stack([np.asarray(post.A) for post in self._posts])}
            more["log_predictive"] = [post.log_predictive for post in self._posts]
        plain["adaptation"] = more
        if self._held is not None:
            plain["begun_with"] = int(self._begun_with)
            arrays |= dict(zip(("warmup.X", "warmup.y"), self._held))
        return plain, arrays

    def _restore_stream(
        self, plain: Plain, arrays: Arrays, shape: tuple[int, ...], posterior: Posterior
    ) -> None:
        """Take what `_stream_record` has described; `shape` is that of the target of a row."""
        self.likelihood_ = likelihoods.from_spec(plain["likelihood"])
        self.n_rows_, self._held = int(plain["n_rows"]), None
        if plain["begun_with"] is not None:
            self._begun_with = int(plain["begun_with"])
            X, y = array(arrays, "warmup.X", 2), array(arrays, "warmup.y")
            expect(X.shape == (self.n_rows_, self.n_features_in_), "warmup.X", X)  # type: ignore[attr-defined]
            expect(y.shape == (self.n_rows_, *shape), "warmup.y", y)
            self._held = X, y
        self._adapt_again()
        if "adaptation" not in plain:  # of the first files
            return
        self._adaptation = self._adaptation.restored(plain["adaptation"], arrays)
        if "experts.w" in arrays:
            w, A = array(arrays, "experts.w", 3), array(arrays, "experts.A", 3)
            logs = plain["adaptation"]["log_predictive"]
            whole = len(w) % len(self._adaptation.half_lives) == 0 and len(A) == len(w) == len(logs)
            expect(
                whole and w.shape[1:] == posterior.w.shape and A.shape[1:] == posterior.L.shape,
                "experts.w",
                w,
            )
            parts = zip(w.copy(), A.copy(), logs)
            self._posts = [replace(posterior, w=u, A=B, log_predictive=number(log)) for u, B, log in parts]

    def _adapt_again(self) -> None:
        """`_adapt`, by what the estimator knows of its noise."""
        self._adapt()


def times_of(time: Any, X: np.ndarray) -> np.ndarray | None:
    """The times of the rows of X as floats (n,). Raise if they do not fit."""
    if time is None:
        return None
    times = np.asarray(time, dtype=float)
    if times.shape != (len(X),) or not np.all(np.isfinite(times)):
        raise ShapeError(
            f"time must be {len(X)} finite numbers, one for each row, not of shape {times.shape}"
        )
    return times
