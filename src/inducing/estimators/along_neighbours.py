"""What a classifier along neighbours does in another way: its processes need the training rows."""

from typing import Any, Self

import numpy as np

from ..errors import ParameterError
from ..inference.neighbours import NeighboursPredictor
from ..learning.classes_along_neighbours import ClassesAlongNeighbours
from ..model.kernels.base import Kernel
from ..model.posterior import Posterior, predict_together
from ..numerics.arrays import Array


class ClassesOfRows:
    """Mixin of a classifier whose `posteriors_` are posteriors, or predictors along neighbours."""

    posteriors_: tuple[Any, ...]
    likelihood_: Any  # of classes
    kernel_: Kernel
    n_iter_: int
    basis_size_: int
    log_evidence_: float | None

    def _keep_along_neighbours(self, learned: ClassesAlongNeighbours) -> Self:
        """Keep the predictors of a fit; they share the search and the features of the rows."""
        first, *others = learned.predictors
        self.posteriors_ = (first, *(other.beside(first) for other in others))
        self.likelihood_, self.kernel_ = learned.likelihood, first.kernel
        self.n_iter_, self.basis_size_ = max(1, learned.n_iterations), len(first.basis)
        self.log_evidence_ = learned.log_evidence
        return self

    def _refuse_along_neighbours(self, what: str) -> None:
        """Raise if the model is one along neighbours, which cannot do this."""
        if isinstance(getattr(self, "posteriors_", (None,))[0], NeighboursPredictor):
            raise ParameterError(
                f"{what} needs a process without neighbours; fit with approximation='fitc', or use the "
                "`posterior` of each of posteriors_"
            )

    def _processes(self) -> list[Posterior]:
        """The posterior of each class; along neighbours the part of it that knows none."""
        return [getattr(post, "posterior", post) for post in self.posteriors_]

    def _latent(self, Xs: Array) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each class's f. (n, c) each"""
        if not isinstance(self.posteriors_[0], NeighboursPredictor):
            return predict_together(self.posteriors_, Xs)
        each = [post.predict(Xs) for post in self.posteriors_]
        return np.stack([m.mean for m in each], axis=1), np.stack([m.variance for m in each], axis=1)
