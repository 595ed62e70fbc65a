"""Kernel ridge regression and support vector machines on multiscale functions, for scikit-learn. [000]"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin

from ..beside.multiscale_machines import LOSSES, Machine, Risk, RiskSolver, machine, ridge
from ..errors import LabelError, ParameterError, require_one_of
from ..inference import selection
from ..model.kernels import RBF, in_units
from ..model.problem import as_inputs, as_targets
from ..sources.moments import center_and_scale
from .base import RENAMED, Inputs, Rated, Sized, generator
from .classes import require_labels
from .preparation import checked_weights
from .watching import with_callbacks


@dataclass(eq=False, repr=False)
class _Machine(Sized, Inputs):
    """Base of the two estimators: it learns and evaluates the function f."""

    n_inducing: int = 50
    _: KW_ONLY
    basis: str = "multiscale"
    lengthscale: Any = None
    max_iter: int = 100
    jitter: float = 1e-8
    standardize: bool = True
    random_state: Any = None
    n_basis: Any = RENAMED

    _old_name = "n_basis"

    def _fit(self, X: np.ndarray, T: np.ndarray, weights: np.ndarray, solver: RiskSolver) -> None:
        """Learn f from X (n, d) in the user's units and targets T (n, q), with positive weights."""
        require_one_of("basis", self.basis, ("points", "multiscale"))
        d = X.shape[1]
        mean, scale = center_and_scale(X, weights) if self.standardize else (np.zeros(d), np.ones(d))
        self.x_mean_, self.x_scale_, X = mean, scale, (X - mean) / scale
        spread = center_and_scale(X, weights)[1]
        varying = max(1, int(np.count_nonzero(np.ptp(X, axis=0))))
        kernel = RBF(np.sqrt(0.5 * varying) * spread)
        if self.lengthscale is not None:
            kernel = in_units(RBF(self.lengthscale), scale)
        risk = Risk(kernel, solver, X, T, weights, self.jitter)
        rng = generator(self.random_state)
        wide = self.basis == "multiscale"
        f = machine(risk, self._size, multiscale=wide, max_iter=self.max_iter, rng=rng)
        self._kernel, self.basis_, self.objective_, self.n_iter_ = f.kernel, f.basis, f.risk, f.n_iterations
        self.coef_: Any = f.c
        self.intercept_: Any = f.b

    def _values(self, X: Any) -> np.ndarray:
        """Return f at each row of X. (n, q)"""
        X = as_inputs(self._queries(X))
        c = self.coef_.reshape(len(self.basis_), -1)
        return Machine(self._kernel, self.basis_, c, self.intercept_, self.objective_, self.n_iter_).values(X)


@dataclass(eq=False, repr=False)
class MultiscaleKernelRidge(Rated, MultiOutputMixin, RegressorMixin, _Machine):
    """Kernel ridge regression on few Gaussian basis functions, whose centres and widths are learned. [000 §6]

    It minimises Σ (y - f(x))² + alpha |f|² over f in the span of n_inducing functions and over the functions
    themselves; |f| is the norm of the RBF kernel's space. With basis="points" and max_iter=0 it is the "sor"
    row of the table with noise alpha; with a function at every row it is scikit-learn's KernelRidge. Memory
    O(n n_inducing), time O(n n_inducing²) an iteration.

    Parameters
    ----------
    n_inducing : how many basis functions, and no more than the data have different rows.
    basis : "multiscale", or "points" to hold all widths at the lengthscale.
    lengthscale : of the kernel exp(-½ Σ (x-z)²/ℓ²), a number or one per input, in the units of X; None is
        √(d/2) standard deviations, scikit-learn's gamma="scale". It is not learned, so there is no ard:
        choose it by cross-validation.
    alpha : weight of the penalty; in terms of a GP, the variance of the noise over that of f.
    max_iter : of L-BFGS, from k-means centres; for "multiscale" the first half moves only the centres. 0
        learns nothing.
    jitter : relative to the diagonal of Kuu, added to it.
    standardize : scale inputs to mean 0 and standard deviation 1, and subtract the targets' mean.
    random_state : seed of k-means.

    Attributes
    ----------
    basis_ : of the standardised inputs. kernel_ : in the units of X.
    coef_ : c, (m,) or (m, p).
    intercept_ : the targets' mean, a number or (p,).
    objective_ : the minimum reached.
    n_iter_, n_features_in_, feature_names_in_.
    x_mean_, x_scale_ : (d,).
    """

    _: KW_ONLY
    alpha: float = 0.1

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from X (n, d) and y (n,) or (n, p); a row of weight w counts w times."""
        X, y = self._validated(X, y, reset=True, multi_output=True, y_numeric=True)
        X = as_inputs(X)
        y = as_targets(y, X)
        _check_positive("alpha", self.alpha)
        weights, d = checked_weights(sample_weight, X), X.shape[1]
        table = np.hstack([X, y.reshape(len(y), -1)])[weights > 0]
        table, weights = selection.merge_repeats(
            table, weights[weights > 0]
        )  # then the order of rows does not matter
        X, T = np.ascontiguousarray(table[:, :d]), np.ascontiguousarray(table[:, d:])
        offset = center_and_scale(T, weights)[0] if self.standardize else np.zeros(T.shape[1])
        self._fit(X, T - offset, weights, ridge(float(self.alpha)))
        self.intercept_ = offset
        if y.ndim == 1:
            self.coef_, self.intercept_ = self.coef_[:, 0], float(offset[0])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return f at each row of X. (n,) or (n, p)"""
        F = self._values(X)
        return F[:, 0] if self.coef_.ndim == 1 else F


@dataclass(eq=False, repr=False)
class MultiscaleSVM(Rated, ClassifierMixin, _Machine):
    """A support vector machine on few Gaussians, whose centres and widths are learned. [000 §5, §6]

    It minimises ½ |f|² + C Σ loss(y f(x)) over f in the span of n_inducing functions plus a constant, and
    over the functions themselves; |f| is the norm of the RBF kernel's space. More than two classes are taken
    one against the rest, on one basis learned for the sum of their objectives. With a function at every row,
    loss="hinge" and max_iter=0 it is scikit-learn's SVC.

    Parameters
    ----------
    C : weight of the loss.
    loss : "squared_hinge", max(0, 1 - y f)², solved by LinearSVC in O(n n_inducing) a step; or "hinge",
        solved by SVC, whose time grows with n² or more. With "hinge" and too few functions the best f may be
        constant, and has no slope to learn from.
    n_inducing, basis, lengthscale, max_iter, jitter, standardize, random_state : as for
        `MultiscaleKernelRidge`, but the targets keep their mean.

    Attributes
    ----------
    classes_.
    coef_, intercept_ : c (m, q) and b (q,), with q = 1 for two classes, else one per class. The others as for
        `MultiscaleKernelRidge`.
    """

    _: KW_ONLY
    C: float = 1.0
    loss: str = "squared_hinge"

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from X (n, d) and class labels y (n,); a row of weight w counts w times."""
        X, y = self._validated(X, y, reset=True)
        X = as_inputs(X)
        require_labels(y)
        _check_positive("C", self.C)
        require_one_of("loss", self.loss, LOSSES)
        weights = checked_weights(sample_weight, X)
        X, y, weights = X[weights > 0], y[weights > 0], weights[weights > 0]
        self.classes_, label = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise LabelError(f"rows of positive weight have one class, {self.classes_[0]!r}; two are needed")
        table, weights = selection.merge_repeats(np.column_stack([X, label]), weights)
        targets = np.arange(len(self.classes_)) if len(self.classes_) > 2 else np.array([1])
        T = np.where(table[:, -1:] == targets, 1.0, -1.0)  # (n, q)
        self._fit(np.ascontiguousarray(table[:, :-1]), T, weights, LOSSES[self.loss](float(self.C)))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return f at each row of X: (n,), positive for the second of two classes, or (n, q) of q classes."""
        F = self._values(X)
        return F[:, 0] if F.shape[1] == 1 else F

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row, by the sign of f, or by the largest f. (n,)"""
        F = self.decision_function(X)
        return self.classes_[(F > 0).astype(int) if F.ndim == 1 else np.argmax(F, axis=1)]


def _check_positive(name: str, value: Any) -> None:
    """Raise if an argument is not a positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < np.inf:
        raise ParameterError(f"{name} must be a positive number, but is {value!r}")
