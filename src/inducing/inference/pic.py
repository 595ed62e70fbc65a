"""PIC, a predictor that keeps the data: the exact prior inside a query's block, the basis between blocks."""

from typing import NoReturn, Protocol

import numpy as np

from ..errors import ParameterError, ShapeError
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.posterior import Marginals, Posterior, Score
from ..model.problem import Problem, queries_like
from ..numerics.arrays import Array, Given, namespace, to_numpy
from ..numerics.linalg import cholesky, contiguous, gram, plus_diagonal, solve_lower


class Predictor(Protocol):
    """The interface of methods that need the data at every query: some methods of Posterior, but not all."""

    @property
    def log_evidence(self) -> float | None: ...

    @property
    def kernel(self) -> Kernel: ...

    @property
    def basis(self) -> Basis: ...

    def predict(self, X: Given) -> Marginals: ...

    def covariance(self, X: Given) -> Array: ...


class Corrected:
    """Base of predictors that correct a posterior; evidence, kernel and basis are those of `posterior`."""

    posterior: Posterior

    @property
    def log_evidence(self) -> float | None:
        return self.posterior.log_evidence

    @property
    def kernel(self) -> Kernel:
        return self.posterior.kernel

    @property
    def basis(self) -> Basis:
        return self.posterior.basis

    def require_exact(self, what: str) -> NoReturn:
        """Raise, since `what`, such as a KL divergence, needs a Posterior."""
        raise ParameterError(f"{what} a Posterior, and this predictor needs its data: use its `posterior`")

    def prune(self, capacity: int, score: Score = "mean", group: int = 1) -> NoReturn:
        """Raise, since only the basis of `posterior` can be pruned."""
        self.require_exact("pruning needs")

    def removal_scores(self, score: Score = "mean", group: int = 1) -> NoReturn:
        """Raise, since only the functions of `posterior` have scores."""
        self.require_exact("removal scores need")

    def paths(self, size: int = 1, rng: object = None) -> NoReturn:
        """Raise, since only `posterior` has paths."""
        self.require_exact("paths need")


class PICPredictor(Corrected):
    """A predictor that corrects PITC's posterior of w by the residuals of each query's own block.

    With R the residual covariance and D_b = R_bb + Σ_b of the query's block b, f* = φ*ᵀw + r*, and given w

        r* ~ N(R_*b D_b⁻¹ (y_b - Φ_bᵀw), R_** - R_*b D_b⁻¹ R_b*)

    A label that was not in training has an empty block, so the prediction there is PITC's.
    """

    def __init__(self, post: Posterior, problem: Problem) -> None:
        self.posterior = post
        self._problem = problem
        assert problem.blocks is not None and problem.labels is not None
        self._rows = {problem.labels[rows[0]].item(): rows for rows in problem.blocks}

    def predict(self, X: Given, blocks: Given = None) -> Marginals:
        """Return mean and variance of each f(x); `blocks` labels the block of each row. None: PITC's."""
        X, labels = self._queries(X, blocks)
        xp = namespace(X)
        mean, variance = self.posterior.predict(X)
        for label in np.unique(labels):
            if label.item() in self._rows:
                rows = np.flatnonzero(labels == label)
                part, H, R = self._own_block(X[rows], label.item())
                mean[rows] = self.posterior.with_prior_mean(X[rows], part)
                variance[rows] = xp.linalg.diagonal(R) + xp.sum((H @ self.posterior.A) ** 2, axis=1)
        return Marginals(mean, variance)

    def covariance(self, X: Given, blocks: Given = None) -> Array:
        """Return the joint covariance of f(X); residuals correlate inside a block only. None: PITC's."""
        X, labels = self._queries(X, blocks)
        if blocks is None:
            return self.posterior.covariance(X)
        H = self.posterior.features(X)
        joint = 0.0 * (H @ H.T)
        for label in np.unique(labels):
            rows = np.flatnonzero(labels == label)
            _, H_block, R = self._own_block(X[rows], label.item())
            H[rows] = H_block
            joint[np.ix_(rows, rows)] = R
        half = H @ self.posterior.A
        return joint + half @ half.T

    def _own_block(self, X: Array, label: Given) -> tuple[Array, Array, Array]:
        """Return for one block's queries the mean less m0 (q, p), H of f* = Hw + r*, and r*'s covariance."""
        post, P = self.posterior, self._problem
        Phi = post.features(X)
        R = post.kernel.covariances(X, X) - Phi @ Phi.T
        rows = self._rows.get(label)
        if rows is None:
            return Phi @ post.w, Phi, R
        Xb = P.X[rows]
        Phib = post.features(Xb)
        D = post.kernel.covariances(Xb, Xb) - Phib @ Phib.T
        L = cholesky(plus_diagonal(D, P.added_noise(rows)))
        T = solve_lower(L, post.kernel.covariances(Xb, X) - Phib @ Phi.T)  # L⁻¹R_b*
        E = solve_lower(L, P.Y[rows] - Phib @ post.w)
        H = Phi - T.T @ solve_lower(L, Phib)
        return Phi @ post.w + T.T @ E, H, R - gram(contiguous(T))

    def _queries(self, X: Given, blocks: Given) -> tuple[Array, np.ndarray]:
        X = queries_like(X, self._problem.X)
        if blocks is None:
            return X, np.empty(0)
        labels = to_numpy(blocks)
        if labels.shape != (X.shape[0],):
            raise ShapeError(f"blocks must have one label per query ({X.shape[0]}), not shape {labels.shape}")
        return X, labels
