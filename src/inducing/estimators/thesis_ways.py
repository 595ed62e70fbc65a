"""The thesis' methods for a classifier: sparse expectation propagation, and one pass over the rows. [004]"""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Self

import numpy as np

from ..errors import LabelError
from ..inference import selection
from ..inference.online import Learner, Seen
from ..inference.propagation import expectation_propagation, expects
from ..learning.fitting import fit_expectation_propagation
from ..model.bases import Points
from ..model.posterior import Posterior, prior
from ..model.removal import OnlineTerms
from ..streams.feeding import all_or_nothing
from .base import generator
from .preparation import LEARNING_BASIS
from .starting import given_priors
from .streaming import times_of


class ThesisWays:
    """Mixin of the classifier: `partial_fit`, and the methods "ep", "fitc" and "online" of `fit`."""

    _held: Any  # as of `Streaming`
    _posts: Any

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posteriors_")  # false as long as all rows have one label

    @property
    def posteriors_(self: Any) -> tuple[Any, ...]:
        self.settle()
        if self._standing is not None and self._standing is not self._kept:
            self._keep(self._standing.matched)
        return self._posteriors

    @posteriors_.setter
    def posteriors_(self: Any, posteriors: tuple[Any, ...]) -> None:
        self._posteriors, self._kept = posteriors, self._standing

    @property
    def log_evidence_(self: Any) -> float | None:
        return self._log_evidence if self.posteriors_ else None

    @log_evidence_.setter
    def log_evidence_(self: Any, value: float | None) -> None:
        self._log_evidence = value

    def partial_fit(self, X: Any, y: Any, classes: Any = None, time: Any = None) -> Self:
        """Read more rows, once and in order, after `fit` or without it. [004 §3.6]

        `classes` of the first call are all labels that may come, and others are refused; without them a new
        label is learned when it comes. Without `fit` the first `warmup` rows, in one batch or many, set the
        units and teach the kernel: they are kept until all have come, and whenever their number has doubled
        or a label is new the model starts again from all of them with the starting kernel. A batch is never
        split, and one that cannot be used changes nothing. `time` (n,), in the units of half_life, must not
        decrease.
        """
        if classes is not None or time is not None or self._read_one(X, y) is None:
            self.predict_then_fit(X, y, classes, time)
        return self

    def predict_then_fit(self: Any, X: Any, y: Any, classes: Any = None, time: Any = None) -> np.ndarray:
        """Read more rows as `partial_fit` does, and return the probabilities of each just before it was read;
        NaN in the warm-up. (n, classes)
        """
        seen = self._read_one(X, y) if classes is None and time is None else None
        if seen is not None:
            return self.likelihood_.probabilities(seen.mean[:, :, 0], seen.variance)
        self._check_parameters()
        self._refuse_along_neighbours("partial_fit")
        with all_or_nothing(self):
            fresh = not hasattr(self, "_held")
            X, y = self._checked(X, y, reset=fresh)
            time = times_of(time, X)
            if fresh:
                self.open_classes_, self._held, self._begun_with = classes is None, (X[:0], y[:0]), 0
                self.classes_ = np.unique(y if classes is None else classes)
            elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise LabelError(f"classes cannot change from {self.classes_} to {np.unique(classes)}")
            self._admit(y)
            if self._held is None:
                seen = self._read_on(X, y, time)
                return self.likelihood_.probabilities(seen.mean[:, :, 0], seen.variance)
            if len(self.classes_) < 2 and len(self._held[0]) + len(X) < self.warmup:
                self._held = np.concatenate([self._held[0], X]), np.concatenate([self._held[1], y])
            else:
                self._warm_up(X, y, time)
            return np.full((len(X), len(self.classes_)), np.nan)

    def _read_one(self: Any, X: Any, y: Any) -> Seen | None:
        """Read a single row and return its prediction; if more is due, do nothing and return None."""
        if self._live is None or self._held is not None or not (type(X) is np.ndarray is type(y)):
            return None
        if X.dtype != np.float64 or X.shape != (1, self.n_features_in_) or hasattr(self, "feature_names_in_"):
            return None
        if y.dtype != self.classes_.dtype or y.shape != (1,) or self.missing == "use":
            return None
        own = self.classes_ == y[0]
        if not (np.any(own) and isfinite(X.sum())):
            return None
        signs = np.where(own[1:] if len(own) == 2 else own, 1.0, -1.0)
        return self._read_row(self._in_model_units(X), signs[None, :, None])

    def _admit(self: Any, y: np.ndarray) -> None:
        """Add a process for each label that is new, if new labels may come.

        All that a new class knows of the rows before it is that none was its own. The rows are gone, but the
        basis lies where they were: the new process reads each basis input as one of another class, as often
        as there were rows for it, at most ten times.
        """
        new = np.setdiff1d(y, self.classes_)
        if not self.open_classes_ or len(new) == 0:
            return
        old, self.classes_ = self.classes_.tolist(), np.union1d(self.classes_, new)
        if self._held is not None:
            self._begun_with = 0
            return
        experts, rule = len(self._adaptation.half_lives), (self.tolerance, self.removal_score)
        before = self._posts or [replace(post, sites=None) for post in self.posteriors_] * experts
        learner = Learner(before, self.likelihood_, len(self.x_mean_), self.n_inducing, *rule, True)
        before, posts = learner.posteriors(), list[Posterior]()
        each, first = len(before) // experts, before[0]
        w, A, Z = np.zeros_like(first.w), np.eye(len(first)), first.basis.centers
        nothing = replace(first, w=w, A=A, log_predictive=0.0, online=OnlineTerms((first.L, w, A), (), 0))
        learner = Learner([nothing], self.likelihood_, Z.shape[1], None, *rule, False)
        for _ in range(min(10, 1 + self.n_rows_ // max(len(Z), 1))):
            learner.read(Z, np.full((len(Z), 1, 1), -1.0))
        for own in (before[i : i + each] for i in range(0, len(before), each)):
            if each == 1:  # one process for two classes becomes two of opposite signs
                L, turned, root = own[0].L, -own[0].w, np.asarray(own[0].A)
                other = replace(own[0], w=turned, A=root, online=OnlineTerms((L, turned, root), (), 0))
                own = [other, *own]
            known = dict(zip(old, own, strict=True))
            posts += [known.get(label) or learner.posteriors()[0] for label in self.classes_.tolist()]
        self._posts = posts
        self._keep(self._adaptation.matched(posts))

    def _begin(self: Any, X: np.ndarray, y: np.ndarray, *, learn: bool, time: Any = None) -> None:
        expects("online", learn and self.optimize is not None)
        self._start(X, self.classes_)
        X, Y, self._begun_with = self._in_model_units(X), self._signs(y), len(X)
        if learn and self.optimize is not None:
            rng = generator(self.random_state)
            order = rng.permutation(len(X))
            self._learn(X[order], Y[order], rng, "online")
        self._read([prior(self._kernel)] * Y.shape[1], X, Y, time=time)

    def _read_on(self: Any, X: np.ndarray, y: np.ndarray, time: np.ndarray | None) -> Seen:
        posts = [replace(post, sites=None) for post in self.posteriors_]
        return self._read(posts, self._in_model_units(X), self._signs(y), time=time)

    def _learn(self: Any, X: np.ndarray, Y: np.ndarray, rng: np.random.Generator, method: str) -> None:
        """Learn the kernel, and for "fitc" the whole model, by EP's evidence."""
        n = len(X) if self.learning_rows is None else min(len(X), self.learning_rows)
        both = np.ptp(Y[:n], axis=0) > 0  # a class not among the rows yet says nothing about the kernel
        if not np.any(both):
            return
        places = self._size if method == "fitc" else min(self._size, LEARNING_BASIS)
        Z = self._places(X[:n], places, rng) if method == "fitc" else selection.kmeans(X[:n], places, rng)
        result = fit_expectation_propagation(
            self._kernel,
            Points(Z),
            self.likelihood_,
            X[:n],  # in random order already
            Y[:n, both],
            optimize="all" if self.optimize == "all" else "hyperparameters",
            jitter=self.jitter,
            fixed=self.fixed,
            priors=given_priors(self.priors, self._kernel, self.x_scale_),
            restarts=self.restarts,
            max_iterations=self.max_iter,
            progress=bool(self.verbose),
            rng=rng,
        )
        self._kernel, self.n_iter_ = result.kernel, max(1, result.n_iterations)
        if method == "fitc":
            self._keep(self._propagate(X, Y, basis=result.basis, jitter=self.jitter))

    def _propagate(self: Any, X: np.ndarray, Y: np.ndarray, **options: Any) -> list[Posterior]:
        options |= {"sweeps": self.sweeps, "tolerance": self.tolerance, "damping": self.damping}
        return expectation_propagation(self._kernel, self.likelihood_, X, Y, **options)

    def _read(self: Any, posts: Sequence[Posterior], X: np.ndarray, Y: np.ndarray, **how: Any) -> Seen:
        """Read rows, with the options of `_feed`, and keep the processes."""
        seen = self._feed(posts, X, Y[:, :, None], **how).seen
        self._keep(self._standing.matched)
        return seen
