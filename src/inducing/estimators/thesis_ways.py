"""The thesis' ways to a classifier: sparse expectation propagation, and one pass over the rows. [004]"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..inference import selection
from ..inference.online import Seen
from ..inference.propagation import expectation_propagation
from ..learning.fitting_ep import fit_expectation_propagation
from ..model.bases import Points
from ..model.posterior import Posterior, prior
from .base import generator
from .preparation import LEARNING_BASIS


class ThesisWays:
    """Mixin of the classifier: what `method` "ep", "fitc" and "online" and `partial_fit` do."""

    def _begin(self: Any, X: np.ndarray, y: np.ndarray, *, learn: bool, time: Any = None) -> None:
        self._start(X, self.classes_)
        X, Y, self._begun_with = self._in_model_units(X), self._signs(y), len(X)
        if learn and self.optimize is not None:
            rng = generator(self.random_state)
            order = rng.permutation(len(X))
            self._learn(X[order], Y[order], rng, "online")
        self._read([prior(self.kernel_)] * Y.shape[1], X, Y, time)

    def _read_on(self: Any, X: np.ndarray, y: np.ndarray, time: np.ndarray | None) -> Seen:
        posts = [replace(post, sites=None) for post in self.posteriors_]
        return self._read(posts, self._in_model_units(X), self._signs(y), time)

    def _learn(self: Any, X: np.ndarray, Y: np.ndarray, rng: np.random.Generator, method: str) -> None:
        """Learn the kernel, and for "fitc" the whole model, by EP's evidence."""
        n = len(X) if self.learning_rows is None else min(len(X), self.learning_rows)
        both = np.ptp(Y[:n], axis=0) > 0  # a class not among the rows yet says nothing about the kernel
        if not np.any(both):
            return
        places = self._size if method == "fitc" else min(self._size, LEARNING_BASIS)
        Z = self._places(X[:n], places, rng) if method == "fitc" else selection.kmeans(X[:n], places, rng)
        result = fit_expectation_propagation(
            self.kernel_,
            Points(Z),
            self.likelihood_,
            X[:n],  # in random order already
            Y[:n, both],
            optimize="all" if self.optimize == "all" else "hyperparameters",
            jitter=self.jitter,
            fixed=self.fixed,
            priors=self.priors,
            restarts=self.restarts,
            max_iterations=self.max_iter,
            progress=bool(self.verbose),
            rng=rng,
        )
        self.kernel_, self.n_iter_ = result.kernel, max(1, result.n_iterations)
        if method == "fitc":
            self._keep(self._propagate(X, Y, basis=result.basis, jitter=self.jitter))

    def _propagate(self: Any, X: np.ndarray, Y: np.ndarray, **options: Any) -> list[Posterior]:
        options |= {"sweeps": self.sweeps, "tolerance": self.tolerance, "damping": self.damping}
        return expectation_propagation(self.kernel_, self.likelihood_, X, Y, **options)

    def _read(
        self: Any,
        posts: Sequence[Posterior],
        X: np.ndarray,
        Y: np.ndarray,
        time: np.ndarray | None = None,
        stoppable: bool = False,
    ) -> Seen:
        posts, seen, _ = self._feed(posts, X, Y[:, :, None], time, stoppable)
        self._keep(posts)
        return seen
