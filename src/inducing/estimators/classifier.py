"""Classification for scikit-learn: standardise, learn, report probabilities. No mathematics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..errors import LabelError, ParameterError, ShapeError, UnknownNameError
from ..inference import selection
from ..inference.online import Seen
from ..inference.propagation import expectation_propagation
from ..learning.fitting_ep import fit_expectation_propagation
from ..model import kernels, likelihoods
from ..model.bases import Points
from ..model.kernels.base import Kernel
from ..model.kernels.stationary import Stationary
from ..model.likelihoods import Binary
from ..model.posterior import Posterior, prior
from ..model.problem import as_inputs
from ..numerics.linalg import contiguous, row_squares, times_lower
from ..numerics.workers import blas_for, chunk_rows, row_slices, run_over
from ..streams.reading import all_or_nothing, most_informative_rows, read
from .preparation import center_and_scale, named

METHODS = ("ep", "fitc", "online")
LEARNING_BASIS = (
    100  # basis functions, at most, that hyperparameters are learned with before "ep" and "online"
)


class SparseGPClassifier(ClassifierMixin, BaseEstimator):
    """Sparse Gaussian process classification for scikit-learn: two classes, or one against the rest for each
    of many.

    All classes share the kernel and one basis. Inputs are standardised inside: `kernel`, `kernel_`, `fixed`,
    `priors` and `posteriors_` are in units of the standardised inputs, `inducing` in the user's. With
    standardize=False the two are one.

    Parameters ---------- kernel : a Kernel, or the name of a stationary one ("rbf", "matern52", ...), started
    at √d standard deviations; None is
        "rbf". A name has one lengthscale, or with ard=True one for each input.
    method : "ep", sparse expectation propagation on a basis found among the rows [004 chapter 4]; "fitc", the
    same on a basis
        that starts at `inducing` and may move [001 §5]; "online", one pass over the rows [004 chapter 3].
    capacity : how many basis functions, at most. inducing : where the basis of "fitc" starts, a rule of
    `inducing.selection` or an array (m, d). optimize : "hyperparameters" learns the kernel by EP's evidence;
    "all" (for "fitc") moves the basis, too; None does neither. learning_rows : how many rows, drawn at
    random, the kernel is learned from; None is all. likelihood : "probit", "logistic", "step", or one from
    `inducing.likelihoods` such as Probit(noise=1e-4). sweeps, tolerance, removal_score, damping : as for
    `inducing.expectation_propagation`, there score. order : how "online" and `partial_fit` read rows:
    "given", for `fit` at random; "information", the most informative of those
        left next [004 §3.8.1].
    warmup : how many rows `partial_fit` takes units and kernel from. max_iter, restarts, fixed, priors,
    jitter : of the learning, as for `inducing.fit_expectation_propagation`. random_state : seed of the order
    in which rows are read, of the start and the restarts.

    Attributes ---------- classes_ : the labels. posteriors_ : a Posterior of the latent f for each, for the
    second alone where there are two. kernel_, likelihood_, basis_size_, n_iter_ (of the learning, at least
    1), n_rows_ (read so far), x_mean_, x_scale_, n_features_in_, feature_names_in_ (from data frames).
    warming_up_ : whether units and kernel may still change. log_evidence_ : log probability of the labels,
    summed over posteriors_; for "online" each row's before it was read. None
        where it cannot be had.
    """

    _held: tuple[np.ndarray, np.ndarray] | None  # the rows of a warm-up that has not ended
    _begun_with: int  # how many rows set the units

    def __init__(
        self,
        kernel: Kernel | str | None = None,
        method: str = "ep",
        capacity: int = 100,
        *,
        ard: bool = False,
        inducing: Any = "kmeans",
        optimize: str | None = "hyperparameters",
        learning_rows: int | None = 1000,
        likelihood: Binary | str = "probit",
        sweeps: int = 10,
        tolerance: float = 1e-6,
        removal_score: str = "mean",
        damping: float = 1.0,
        order: str = "given",
        warmup: int = 500,
        max_iter: int = 50,
        restarts: int = 0,
        fixed: Any = (),
        priors: Any = None,
        jitter: float = 1e-8,
        standardize: bool = True,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.method = method
        self.capacity = capacity
        self.ard = ard
        self.inducing = inducing
        self.optimize = optimize
        self.learning_rows = learning_rows
        self.likelihood = likelihood
        self.sweeps = sweeps
        self.tolerance = tolerance
        self.removal_score = removal_score
        self.damping = damping
        self.order = order
        self.warmup = warmup
        self.max_iter = max_iter
        self.restarts = restarts
        self.fixed = fixed
        self.priors = priors
        self.jitter = jitter
        self.standardize = standardize
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from X (n, d) and labels y (n,)."""
        self._check_parameters()
        with all_or_nothing(self):
            X, y = self._checked(X, y, reset=True)
            self._start(X, np.unique(y))
            X, Y = (X - self.x_mean_) / self.x_scale_, self._signs(y)
            rng = self._rng()
            order = rng.permutation(len(X))
            X, Y = X[order], Y[order]
            if self.optimize is not None:
                self._learn(X, Y, rng, self.method)
            elif self.method == "fitc":
                basis = Points(self._places(X, self.capacity, rng))
                self._keep(self._propagate(X, Y, basis=basis, jitter=self.jitter))
            if self.method == "ep":
                self._keep(self._propagate(X, Y, capacity=self.capacity, score=self.removal_score))
            elif self.method == "online":
                self._read([prior(self.kernel_)] * Y.shape[1], X, Y, stoppable=True)
            else:
                self.n_rows_ = len(X)
            self._held = None
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Go on with more rows, read once and in order, from what `fit` left or from nothing. [004 §3.6]

        The first call on a new estimator needs `classes`, all labels there will ever be. The first `warmup`
        rows, in one batch or many, then set the units and teach the kernel: until so many have come they are
        kept, and the model starts again from all of them whenever their number has doubled, with the kernel
        as it would start. A batch is never cut in two, and one that cannot be used changes nothing.
        """
        self.predict_then_fit(X, y, classes)
        return self

    def predict_then_fit(self, X: Any, y: Any, classes: Any = None) -> np.ndarray:
        """`partial_fit`, and each row's probabilities just before it was read; NaN in the warm-up. (n,
        classes)
        """
        self._check_parameters()
        with all_or_nothing(self):
            fresh = not hasattr(self, "posteriors_")
            X, y = self._checked(X, y, reset=fresh)
            if fresh:
                if classes is None:
                    raise ParameterError(
                        "classes must be given on the first call of partial_fit: all labels there will ever "
                        "be"
                    )
                self.classes_, self._held = np.unique(classes), (X[:0], y[:0])
            elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise LabelError(
                    f"classes are {np.unique(classes)}, but the model has {self.classes_}; they cannot change"
                )
            if self._held is None:
                seen = self._read_on(X, y)
                return self._probabilities(seen.mean[:, :, 0], seen.variance)
            held = np.concatenate([self._held[0], X]), np.concatenate([self._held[1], y])
            warm = len(held[0]) >= self.warmup
            if warm or fresh or len(held[0]) >= 2 * self._begun_with:
                self._begin(*held, learn=warm)
            else:
                self._read_on(X, y)
            self._held = None if warm else held
            return np.full((len(X), len(self.classes_)), np.nan)

    def query(self, X: Any, n: int = 1) -> np.ndarray:
        """Numbers of the n rows of X whose labels would teach the model most, the best first. (n,) [004
        §3.8.1]
        """
        check_is_fitted(self)
        X = (self._checked(X, reset=False) - self.x_mean_) / self.x_scale_
        return most_informative_rows(self.posteriors_, self.likelihood_, X, n)

    @property
    def warming_up_(self) -> bool:
        check_is_fitted(self)
        return self._held is not None

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class; one-against-the-rest probabilities are scaled to a sum of one. (n,
        classes)
        """
        check_is_fitted(self)
        X = (self._checked(X, reset=False) - self.x_mean_) / self.x_scale_
        return self._probabilities(*self._latent(X))

    def _probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        p = self.likelihood_.probability(mean, variance)  # (n, c)
        if p.shape[1] == 1:
            return np.hstack([1.0 - p, p])
        p = np.maximum(p, 1e-300)
        return p / p.sum(axis=1, keepdims=True)

    def predict(self, X: Any, reject_below: float | None = None, reject_label: Any = None) -> np.ndarray:
        """The most probable class of each row. (n,)

        With reject_below, rows whose most probable class has less than this probability are given
        `reject_label` instead [004 Fig. 5.7]; the result is then an array of objects, with None for such rows
        unless a label is given.
        """
        p = self.predict_proba(X)
        labels = self.classes_[np.argmax(p, axis=1)]
        if reject_below is None:
            return labels
        if not 0.0 <= reject_below <= 1.0:
            raise ParameterError(
                f"reject_below is a probability and must lie in [0, 1], but is {reject_below}"
            )
        labels = labels.astype(object)
        labels[np.max(p, axis=1) < reject_below] = reject_label
        return labels

    def save(self, path: str | Path, metadata: dict[str, Any] | None = None) -> None:
        """Write the fitted model to a file for `inducing.load`; `metadata` is a dictionary of yours, of plain
        JSON.
        """
        from ..files.models import save

        save(self, path, metadata)

    def _check_parameters(self) -> None:
        if self.method not in METHODS:
            raise UnknownNameError(f"method must be one of {', '.join(METHODS)}, not {self.method!r}")
        if self.optimize not in (None, "hyperparameters", "all"):
            raise UnknownNameError(
                f"optimize must be 'hyperparameters', 'all' or None, not {self.optimize!r}"
            )
        if self.optimize == "all" and self.method != "fitc":
            raise ParameterError(
                f"optimize='all' moves the basis, which is for method='fitc', not for {self.method!r}"
            )
        capacity = self.capacity
        if isinstance(capacity, bool) or not isinstance(capacity, int | np.integer) or capacity < 1:
            raise ParameterError(f"capacity must be a whole number of at least 1, but is {capacity!r}")

    def _checked(self, X: Any, y: Any = "no_validation", *, reset: bool) -> Any:
        """scikit-learn's checks of shapes, names and types, with this package's errors."""
        if hasattr(X, "tocsr"):
            raise ShapeError("X is a sparse matrix, and sparse input is not supported; pass X.toarray()")
        try:
            checked = validate_data(self, X, y, reset=reset, dtype=np.float64, ensure_all_finite=False)
        except ValueError as error:
            raise named(error) from error
        if isinstance(y, str):
            return as_inputs(checked)
        try:
            check_classification_targets(checked[1])
        except ValueError as error:
            raise LabelError(str(error)) from error
        return as_inputs(checked[0]), checked[1]

    def _start(self, X: np.ndarray, classes: np.ndarray) -> None:
        """Labels, units, likelihood and kernel, before anything is learned."""
        if len(classes) < 2:
            raise LabelError(
                f"a classifier needs at least two classes, but there is one class, {classes[0]!r}"
            )
        d = X.shape[1]
        known = {name: kind for name, kind in likelihoods.BY_NAME.items() if issubclass(kind, Binary)}
        likelihood = self.likelihood
        if isinstance(likelihood, str) and likelihood.lower() in known:
            likelihood = known[likelihood.lower()]()
        if not isinstance(likelihood, Binary):
            raise UnknownNameError(
                f"likelihood must be one of {', '.join(known)}, or such an object, not {self.likelihood!r}"
            )
        x_mean, x_scale = np.zeros(d), np.ones(d)
        if self.standardize:
            x_mean, x_scale = center_and_scale(X, np.ones(len(X)))
        self.kernel_ = self._start_kernel((X - x_mean) / x_scale)
        self.classes_, self.likelihood_, self.x_mean_, self.x_scale_ = classes, likelihood, x_mean, x_scale
        self.n_iter_, self.n_rows_ = 1, 0
        self.__dict__.pop("metadata_", None)

    def _start_kernel(self, X: np.ndarray) -> Kernel:
        kernel = "rbf" if self.kernel is None else self.kernel
        if isinstance(kernel, Kernel):
            return kernel
        kind = kernels.BY_NAME.get(kernel.lower()) if isinstance(kernel, str) else None
        if kind is None or not issubclass(kind, Stationary):
            known = [name for name, k in kernels.BY_NAME.items() if issubclass(k, Stationary)]
            raise UnknownNameError(f"kernel must be a Kernel or one of {', '.join(known)}, not {kernel!r}")
        scales = center_and_scale(X, np.ones(len(X)))[1]  # (d,)
        varying = np.ptp(X, axis=0) > 0
        scale = max(1, int(np.count_nonzero(varying))) ** 0.5
        typical = float(np.sqrt(np.mean(scales[varying] ** 2))) if np.any(varying) else 1.0
        return kind(lengthscale=scale * (scales if self.ard else typical), variance=1.0)  # type: ignore[call-arg]

    def _signs(self, y: np.ndarray) -> np.ndarray:
        """+1 for the class a posterior is of, -1 for the rest. (n, 1) for two classes, else (n, classes)"""
        known = np.isin(y, self.classes_)
        if not np.all(known):
            row = int(np.argmin(known))
            raise LabelError(f"row {row} has the label {y[row]!r}, which is not one of {self.classes_}")
        classes = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        return np.where(y[:, None] == classes, 1.0, -1.0)

    def _begin(self, X: np.ndarray, y: np.ndarray, *, learn: bool) -> None:
        """Units and kernel from these rows; then read them."""
        self._start(X, self.classes_)
        X, Y, self._begun_with = (X - self.x_mean_) / self.x_scale_, self._signs(y), len(X)
        if learn and self.optimize is not None:
            rng = self._rng()
            order = rng.permutation(len(X))
            self._learn(X[order], Y[order], rng, "online")
        self._read([prior(self.kernel_)] * Y.shape[1], X, Y)

    def _read_on(self, X: np.ndarray, y: np.ndarray) -> Seen:
        posts = [replace(post, sites=None) for post in self.posteriors_]
        return self._read(posts, (X - self.x_mean_) / self.x_scale_, self._signs(y))

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(check_random_state(self.random_state).randint(2**31))

    def _learn(self, X: np.ndarray, Y: np.ndarray, rng: np.random.Generator, method: str) -> None:
        """The kernel, and for "fitc" the whole model, by EP's evidence."""
        n = len(X) if self.learning_rows is None else min(len(X), self.learning_rows)
        both = (
            np.ptp(Y[:n], axis=0) > 0
        )  # a class that is not among the rows yet says nothing about the kernel
        if not np.any(both):
            return
        places = self.capacity if method == "fitc" else min(self.capacity, LEARNING_BASIS)
        Z = self._places(X[:n], places, rng) if method == "fitc" else selection.kmeans(X[:n], places, rng)
        result = fit_expectation_propagation(
            self.kernel_,
            Points(Z),
            self.likelihood_,
            X[:n],  # in random order already
            Y[:n, both],
            optimize=self.optimize,  # type: ignore[arg-type]  # checked
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

    def _places(self, X: np.ndarray, m: int, rng: np.random.Generator) -> np.ndarray:
        if not isinstance(self.inducing, str):
            Z = np.asarray(self.inducing, dtype=float)
            if Z.ndim != 2 or Z.shape[1] != X.shape[1]:
                raise ShapeError(f"inducing must be an array (m, {X.shape[1]}), but has shape {Z.shape}")
            return (Z - self.x_mean_) / self.x_scale_
        if self.inducing not in ("kmeans", "random", "variance"):
            raise UnknownNameError(
                f"inducing must be an array, 'kmeans', 'random' or 'variance', not {self.inducing!r}"
            )
        return selection.BY_NAME[self.inducing](X, m, rng, kernel=self.kernel_)

    def _propagate(self, X: np.ndarray, Y: np.ndarray, **options: Any) -> list[Posterior]:
        options |= {"sweeps": self.sweeps, "tolerance": self.tolerance, "damping": self.damping}
        return expectation_propagation(self.kernel_, self.likelihood_, X, Y, **options)

    def _read(
        self, posts: Sequence[Posterior], X: np.ndarray, Y: np.ndarray, stoppable: bool = False
    ) -> Seen:
        rule: Any = self.capacity, self.tolerance, self.removal_score, self.order
        posts, seen, n = read(
            posts, self.likelihood_, X, Y[:, :, None], *rule, verbose=bool(self.verbose), stoppable=stoppable
        )
        self._keep(posts)
        self.n_rows_ += n
        return seen

    def _keep(self, posts: Sequence[Posterior]) -> None:
        """The result, without what EP remembers of each training row."""
        self.posteriors_ = tuple(replace(post, sites=None) for post in posts)
        self.basis_size_ = len(posts[0])
        values = [post.log_predictive if post.log_evidence is None else post.log_evidence for post in posts]
        self.log_evidence_ = (
            None if any(v is None for v in values) else float(sum(v for v in values if v is not None))
        )

    def _latent(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f of each posterior, which share the kernel's values. (n, c) each"""
        first, c = self.posteriors_[0], len(self.posteriors_)
        with blas_for(len(first)):
            roots = [post.variance_root for post in self.posteriors_]
        if any(root is None for root in roots):
            parts = [post.predict(X) for post in self.posteriors_]
            mean, variance = (np.stack(columns, axis=1) for columns in zip(*parts))
            return mean, np.maximum(variance, 1e-300)
        alpha = np.concatenate([post.coefficients for post in self.posteriors_], axis=1)  # (m, c)
        mean, variance = np.empty((len(X), c)), np.empty((len(X), c))

        def step(_: None, rows: slice) -> None:
            K = contiguous(first.basis.cross(first.kernel, X[rows]))
            mean[rows] = K @ alpha
            k = first.kernel.diag(X[rows])
            for j, T in enumerate(roots):
                variance[rows, j] = np.maximum(
                    k - row_squares(times_lower(K.copy(), T, transposed=True)), 1e-300
                )

        tasks = row_slices(len(X), chunk_rows(len(X), len(first), X))
        run_over(tasks, lambda: None, step, parallel=len(tasks) > 1)
        return mean, variance
