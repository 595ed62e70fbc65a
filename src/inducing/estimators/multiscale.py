"""Multiscale Gaussian basis functions in kernel ridge regression and the support vector machine. [000 §1, §3,
§6]

The function is f = Σ_j c_j u_j + b, with Gaussians u_j of any centre and width in the space of an RBF kernel,
and what is minimised is a loss on the data plus the squared norm of f in that space, cᵀ Kuu c [000 Lemma
3.1]. In whitened features φ(x) = Luu⁻¹u(x) that is |w|², so any solver of the linear problem serves. By the
envelope theorem the minimum's derivative in the centres and widths is that at fixed c:

    dJ/dKfu = (dJ/df) cᵀ      dJ/dKuu = penalty · c cᵀ

which the basis carries on to its parameters for L-BFGS. The kernel is held: the minimum says nothing about
which one to use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.svm import SVC, LinearSVC
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..errors import FactorisationError, LabelError, ParameterError, ShapeError, UnknownNameError
from ..inference import selection
from ..learning.packing import Packing
from ..model.bases import Basis, Points, as_multiscale
from ..model.kernels import RBF
from ..model.problem import as_inputs, as_targets, make_problem
from ..model.table import SoR
from ..numerics.linalg import (
    cholesky,
    cholesky_escalating,
    gram,
    identity,
    inverse_lower,
    jittered,
    solve_lower,
    times_lower,
)
from ..numerics.workers import blas_for, chunk_rows, row_slices
from .preparation import center_and_scale, checked_weights, named


class Solution(NamedTuple):
    """The minimum over w and b of loss(Φᵀw + b) + penalty |w|²."""

    w: np.ndarray  # (m, q)
    b: np.ndarray  # (q,)
    value: float
    slope: np.ndarray  # (n, q), the loss's derivative in f
    penalty: float


Solver = Callable[[np.ndarray, np.ndarray, np.ndarray], Solution]


def ridge(alpha: float) -> Solver:
    """Σ weight (y - f)² + alpha |w|², without b."""

    def solve(Phi: np.ndarray, T: np.ndarray, weights: np.ndarray) -> Solution:
        root = np.sqrt(weights)[:, None]
        A = gram(root * Phi)  # (m, m)
        L = cholesky(A + alpha * identity(A))
        w = solve_lower(L, solve_lower(L, Phi.T @ (weights[:, None] * T)), transposed=True)
        E = T - Phi @ w
        slope = -2.0 * weights[:, None] * E
        return Solution(
            w, np.zeros(T.shape[1]), float(np.sum((root * E) ** 2) + alpha * np.sum(w**2)), slope, alpha
        )

    return solve


def hinge(C: float) -> Solver:
    """½|w|² + C Σ weight max(0, 1 - y f) for each column of y = ±1, b free: scikit-learn's SVC."""

    def solve(Phi: np.ndarray, T: np.ndarray, weights: np.ndarray) -> Solution:
        machines = [SVC(C=C, kernel="linear", tol=1e-5, cache_size=500).fit(Phi, t, weights) for t in T.T]
        slope = np.zeros(T.shape)
        for column, machine in zip(slope.T, machines, strict=True):
            column[machine.support_] = -machine.dual_coef_[
                0
            ]  # on the margin any slope in [-C y, 0] would do: the dual's does
        w, b = np.column_stack([s.coef_[0] for s in machines]), np.array([s.intercept_[0] for s in machines])
        loss = C * np.sum(weights[:, None] * np.maximum(0.0, 1.0 - T * (Phi @ w + b)))
        return Solution(w, b, float(0.5 * np.sum(w**2) + loss), slope, 0.5)

    return solve


INTERCEPT = 10.0  # LinearSVC penalises b like the weight of a constant feature, ½ (b / 10)² here


def squared_hinge(C: float) -> Solver:
    """½(|w|² + b²/100) + C Σ weight max(0, 1 - y f)² for each column of y = ±1: scikit-learn's LinearSVC."""

    def solve(Phi: np.ndarray, T: np.ndarray, weights: np.ndarray) -> Solution:
        options = {"C": C, "dual": False, "tol": 1e-8, "max_iter": 10_000, "intercept_scaling": INTERCEPT}
        machines = [LinearSVC(**options).fit(Phi, t, weights) for t in T.T]
        w, b = np.column_stack([s.coef_[0] for s in machines]), np.array([s.intercept_[0] for s in machines])
        short = np.maximum(0.0, 1.0 - T * (Phi @ w + b))
        loss = C * np.sum(weights[:, None] * short**2)
        slope = -2.0 * C * weights[:, None] * T * short
        return Solution(w, b, float(0.5 * (np.sum(w**2) + np.sum((b / INTERCEPT) ** 2)) + loss), slope, 0.5)

    return solve


LOSSES: dict[str, Callable[[float], Solver]] = {"squared_hinge": squared_hinge, "hinge": hinge}


@dataclass(frozen=True, eq=False)
class Risk:
    """The regularised risk of the best function in the span of a basis."""

    kernel: RBF
    solver: Solver
    X: np.ndarray  # (n, d)
    T: np.ndarray  # (n, q)
    weights: np.ndarray  # (n,)
    jitter: float

    def minimum(self, basis: Basis) -> tuple[Solution, np.ndarray, np.ndarray]:
        """The best function, its coefficients c = Luu⁻ᵀw (m, q), and Kfu (n, m)."""
        Kfu = basis.cross(self.kernel, self.X)
        Linv = inverse_lower(cholesky(jittered(basis.gram(self.kernel), self.jitter)))
        best = self.solver(times_lower(Kfu.copy(), Linv, transposed=True), self.T, self.weights)
        return best, Linv.T @ best.w, Kfu

    def value_and_gradient(self, basis: Basis) -> tuple[float, dict[str, np.ndarray]]:
        """The minimum, and its derivative in the parameters of the basis."""
        best, c, Kfu = self.minimum(basis)
        _, cross = basis.cross_pullback(self.kernel, self.X, best.slope @ c.T, Kfu)
        _, own = basis.gram_pullback(self.kernel, best.penalty * (c @ c.T))
        return best.value, {name: cross[name] + own[name] for name in cross}


def learn(
    risk: Risk, basis: Basis, max_iter: int, trace: Callable[[Basis, float], None] | None = None
) -> tuple[Basis, int]:
    """The basis of least risk that L-BFGS finds from the given one, and its iterations.

    trace is given the best basis so far and its risk after each iteration.
    """
    from scipy.optimize import minimize

    if max_iter < 1:
        return basis, 0
    X = risk.X
    spread = np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), 1.0)
    problem = make_problem(risk.kernel, basis, SoR, 1.0, X, risk.T, jitter=risk.jitter)
    packing = Packing.of(
        problem,
        "sor",
        "basis",
        (),
        spread=spread,
        low=X.min(axis=0),
        high=X.max(axis=0),
        target_variance=1.0,
        noise_floor=1e-6,
    )
    best_value, best, scale = np.inf, basis, 1.0

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best_value, best, scale
        trial = packing.unpack(x)[1]
        try:
            value, gradient = risk.value_and_gradient(trial)
        except FactorisationError:
            return 10.0 * (1.0 + abs(best_value) / scale), np.zeros_like(
                x
            )  # a wall, from which the line search turns back
        if not np.isfinite(best_value):
            scale = max(abs(value), np.finfo(float).tiny)
        if value < best_value:
            best_value, best = value, trial
        return value / scale, packing.gradient(x, {f"basis.{k}": g for k, g in gradient.items()}) / scale

    callback = None if trace is None else lambda _: trace(best, best_value)
    result = minimize(
        evaluate,
        packing.start,
        jac=True,
        method="L-BFGS-B",
        bounds=packing.bounds,
        callback=callback,
        options={"maxiter": max_iter, "maxcor": 20, "ftol": 1e-9, "gtol": 1e-7},
    )
    return best, int(result.nit)


class _Machine(BaseEstimator):
    """What the two estimators share: units, the start, learning the basis, evaluating the function."""

    coef_: Any
    intercept_: Any
    n_basis: int
    basis: str
    lengthscale: Any
    max_iter: int
    jitter: float
    standardize: bool
    random_state: Any

    def _fit(self, X: np.ndarray, T: np.ndarray, weights: np.ndarray, solver: Solver) -> None:
        """Learn from X (n, d) in the user's units and targets T (n, q) of positive weights."""
        if self.basis not in ("points", "multiscale"):
            raise UnknownNameError(f"basis must be 'points' or 'multiscale', not {self.basis!r}")
        d = X.shape[1]
        mean, scale = center_and_scale(X, weights) if self.standardize else (np.zeros(d), np.ones(d))
        self.x_mean_, self.x_scale_, X = mean, scale, (X - mean) / scale
        spread = center_and_scale(X, weights)[1]
        varying = max(1, int(np.count_nonzero(np.ptp(X, axis=0))))
        lengthscale = np.sqrt(0.5 * varying) * spread if self.lengthscale is None else self.lengthscale
        self.kernel_ = kernel = RBF(lengthscale, 1.0)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        scales = kernel.scales(X)
        start = Points(scales * selection.kmeans(X / scales, self.n_basis, rng, weights))
        what = "the inner products Kuu of the basis"
        jitter = cholesky_escalating(start.gram(kernel), self.jitter, what=what)[1]
        risk = Risk(kernel, solver, X, T, weights, jitter)
        # with all widths free from the start worse optima are found [000 §5]: first the centres, at the
        # kernel's own width
        first = self.max_iter if self.basis == "points" else self.max_iter // 2
        with blas_for(len(start)):
            basis, self.n_iter_ = learn(risk, start, first)
            if self.basis == "multiscale":
                basis, more = learn(risk, as_multiscale(kernel, basis), self.max_iter - first)
                self.n_iter_ += more
            best, c, _ = risk.minimum(basis)
        self.basis_, self.objective_, self.coef_, self.intercept_ = basis, best.value, c, best.b

    def _values(self, X: Any) -> np.ndarray:
        """f at each row. (n, q)"""
        check_is_fitted(self)
        X = (self._checked(X, reset=False) - self.x_mean_) / self.x_scale_
        coef = self.coef_.reshape(len(self.basis_), -1)
        parts = [
            self.basis_.cross(self.kernel_, X[s]) @ coef
            for s in row_slices(len(X), chunk_rows(len(X), len(coef), X))
        ]
        return np.concatenate(parts) + self.intercept_

    def _checked(self, X: Any, y: Any = "no_validation", *, reset: bool, **options: Any) -> Any:
        """scikit-learn's checks of shapes, names and types, with this package's errors."""
        if hasattr(X, "tocsr"):
            raise ShapeError("X is a sparse matrix, and sparse input is not supported; pass X.toarray()")
        try:
            checked = validate_data(
                self, X, y, reset=reset, dtype=np.float64, ensure_all_finite=False, **options
            )
        except ValueError as error:
            raise named(error) from error
        return as_inputs(checked) if isinstance(y, str) else (as_inputs(checked[0]), checked[1])


class MultiscaleKernelRidge(MultiOutputMixin, RegressorMixin, _Machine):
    """Kernel ridge regression on few Gaussian basis functions, whose centres and widths are learned. [000 §6]

    It minimises Σ (y - f(x))² + alpha |f|² over f in the span of n_basis functions, |f| being the norm of the
    RBF kernel's space, and over the functions themselves. With basis="points" and max_iter=0 it is the "sor"
    row of the table with noise alpha; with a function at every row it is scikit-learn's KernelRidge. Memory
    O(n n_basis), time O(n n_basis²) an iteration.

    Parameters ---------- n_basis : how many basis functions, and no more than the data have different rows.
    basis : "multiscale", or "points" to hold all widths at the lengthscale. lengthscale : of the kernel
    exp(-½ Σ (x-z)²/ℓ²), a number or one per input, in standard deviations of the inputs; None is
        √(d/2), scikit-learn's gamma="scale". It is not learned: choose it by cross-validation.
    alpha : weight of the penalty; as a GP would see it, the variance of the noise over that of f. max_iter :
    of L-BFGS, from k-means centres; for "multiscale" the first half moves the centres alone. 0 learns
    nothing. jitter : relative to the diagonal of Kuu, added to it. standardize : inputs to mean 0 and
    standard deviation 1, and the mean off the targets. False takes them as they are. random_state : seed of
    k-means.

    Attributes ---------- basis_, kernel_ : of the standardised inputs. coef_ : c, (m,) or (m, p). intercept_
    : the targets' mean, a number or (p,). objective_ : the minimum reached. n_iter_, n_features_in_,
    feature_names_in_. x_mean_, x_scale_ : (d,).
    """

    def __init__(
        self,
        n_basis: int = 50,
        *,
        basis: str = "multiscale",
        lengthscale: Any = None,
        alpha: float = 0.1,
        max_iter: int = 100,
        jitter: float = 1e-8,
        standardize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_basis = n_basis
        self.basis = basis
        self.lengthscale = lengthscale
        self.alpha = alpha
        self.max_iter = max_iter
        self.jitter = jitter
        self.standardize = standardize
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from X (n, d) and y (n,) or (n, p). A row of weight w counts w times, one of weight 0 not at
        all.
        """
        X, y = self._checked(X, y, reset=True, multi_output=True, y_numeric=True)
        y = as_targets(y, X)
        _check_positive("alpha", self.alpha)
        weights, d = checked_weights(sample_weight, X), X.shape[1]
        table = np.hstack([X, y.reshape(len(y), -1)])[weights > 0]
        table, weights = selection.merge_repeats(
            table, weights[weights > 0]
        )  # so that their order does not matter
        X, T = np.ascontiguousarray(table[:, :d]), np.ascontiguousarray(table[:, d:])
        offset = center_and_scale(T, weights)[0] if self.standardize else np.zeros(T.shape[1])
        self._fit(X, T - offset, weights, ridge(float(self.alpha)))
        self.intercept_ = offset
        if y.ndim == 1:
            self.coef_, self.intercept_ = self.coef_[:, 0], float(offset[0])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """f at each row of X. (n,) or (n, p)"""
        F = self._values(X)
        return F[:, 0] if self.coef_.ndim == 1 else F


class MultiscaleSVM(ClassifierMixin, _Machine):
    """A support vector machine on few Gaussian basis functions, whose centres and widths are learned. [000
    §5, §6]

    It minimises ½ |f|² + C Σ loss(y f(x)) over f in the span of n_basis functions plus a constant, |f| being
    the norm of the RBF kernel's space, and over the functions themselves. More than two classes are taken one
    against the rest, on one basis that serves the sum. With a function at every row, loss="hinge" and
    max_iter=0 it is scikit-learn's SVC.

    Parameters ---------- C : weight of the loss. loss : "squared_hinge", max(0, 1 - y f)², solved by
    LinearSVC in O(n n_basis) a step; or "hinge", solved by SVC, whose
        time grows with n² or more; where its best f is constant, for want of basis functions, there is no slope to learn from.
    n_basis, basis, lengthscale, max_iter, jitter, standardize, random_state : as for `MultiscaleKernelRidge`,
    where the targets
        have no mean to take off.

    Attributes ---------- classes_. basis_, kernel_ : of the standardised inputs. coef_ : c, (m, q), with q =
    1 for two classes, else one per class. intercept_ : (q,). objective_ : the minimum reached. n_iter_,
    n_features_in_, feature_names_in_. x_mean_, x_scale_ : (d,).
    """

    def __init__(
        self,
        n_basis: int = 50,
        *,
        basis: str = "multiscale",
        lengthscale: Any = None,
        C: float = 1.0,
        loss: str = "squared_hinge",
        max_iter: int = 100,
        jitter: float = 1e-8,
        standardize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_basis = n_basis
        self.basis = basis
        self.lengthscale = lengthscale
        self.C = C
        self.loss = loss
        self.max_iter = max_iter
        self.jitter = jitter
        self.standardize = standardize
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from X (n, d) and class labels y (n,). A row of weight w counts w times, one of weight 0 not
        at all.
        """
        X, y = self._checked(X, y, reset=True)
        try:
            check_classification_targets(y)
        except ValueError as error:
            raise LabelError(str(error)) from error
        _check_positive("C", self.C)
        if self.loss not in LOSSES:
            raise UnknownNameError(f"loss must be one of {', '.join(LOSSES)}, not {self.loss!r}")
        weights = checked_weights(sample_weight, X)
        X, y, weights = X[weights > 0], y[weights > 0], weights[weights > 0]
        self.classes_, label = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise LabelError(
                f"y has one class, {self.classes_[0]!r}, in rows of positive weight; two classes are needed"
            )
        table, weights = selection.merge_repeats(np.column_stack([X, label]), weights)
        targets = np.arange(len(self.classes_)) if len(self.classes_) > 2 else np.array([1])
        T = np.where(table[:, -1:] == targets, 1.0, -1.0)  # (n, q)
        self._fit(np.ascontiguousarray(table[:, :-1]), T, weights, LOSSES[self.loss](float(self.C)))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """f at each row of X: (n,), positive for the second of two classes; or (n, q), one for each class."""
        F = self._values(X)
        return F[:, 0] if F.shape[1] == 1 else F

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row: the sign of f, or the class of the largest. (n,)"""
        F = self.decision_function(X)
        return self.classes_[(F > 0).astype(int) if F.ndim == 1 else np.argmax(F, axis=1)]


def _check_positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < np.inf:
        raise ParameterError(f"{name} must be a positive number, but is {value!r}")
