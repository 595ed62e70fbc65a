"""Kernel machines on few Gaussian basis functions of any centre and width. [000 §1, §3, §6]

The function is f = Σ_j c_j u_j + b, with Gaussians u_j in the space of an RBF kernel. It minimises a loss on
the data plus the squared norm of f in that space, cᵀ Kuu c [000 Lemma 3.1]. In whitened features φ(x) =
Luu⁻¹u(x) that norm is |w|², so any solver of the linear problem serves. By the envelope theorem the minimum's
derivative in the centres and widths is that at fixed c:

    dJ/dKfu = (dJ/df) cᵀ      dJ/dKuu = penalty · c cᵀ

which the basis turns into slopes of its parameters for L-BFGS. The kernel is held, since the minimum cannot
tell which one to use.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.svm import SVC, LinearSVC

from ..inference import selection
from ..learning.ascent import Ascent, Rules, climb_from
from ..learning.packing import Packing, Parameters, Summary
from ..model.bases import Basis, Points, as_multiscale
from ..model.kernels.stationary import RBF
from ..model.means import Zero
from ..numerics import linalg as la
from ..numerics.workers import blas_for, chunk_rows, row_slices

INTERCEPT = 10.0  # LinearSVC penalises b like the weight of a constant feature, ½ (b / 10)² here
LBFGS_TOLERANCE = 1e-9  # L-BFGS ends when an iteration's relative gain is less


class Minimum(NamedTuple):
    """The minimum over w and b of loss(Φᵀw + b) + penalty |w|²."""

    w: np.ndarray  # (m, q)
    b: np.ndarray  # (q,)
    value: float
    slope: np.ndarray  # (n, q), the loss's derivative in f
    penalty: float


RiskSolver = Callable[[np.ndarray, np.ndarray, np.ndarray], Minimum]  # of Φᵀ, targets (n, q), weights


def ridge(alpha: float) -> RiskSolver:
    """Return the solver of ridge regression: least Σ weight (y - f)² + alpha |w|², without b."""

    def solve(Phi: np.ndarray, T: np.ndarray, weights: np.ndarray) -> Minimum:
        root = np.sqrt(weights)[:, None]
        A = la.gram(root * Phi)  # (m, m)
        L = la.cholesky(A + alpha * la.identity(A))
        w = la.solve_lower(L, la.solve_lower(L, Phi.T @ (weights[:, None] * T)), transposed=True)
        E = T - Phi @ w
        value = float(np.sum((root * E) ** 2) + alpha * np.sum(w**2))
        return Minimum(w, np.zeros(T.shape[1]), value, -2.0 * weights[:, None] * E, alpha)

    return solve


def hinge(C: float) -> RiskSolver:
    """Return a solver by scikit-learn's SVC: least ½|w|² + C Σ weight max(0, 1 - y f), columns of y = ±1."""

    def solve(Phi: np.ndarray, T: np.ndarray, weights: np.ndarray) -> Minimum:
        machines = [SVC(C=C, kernel="linear", tol=1e-5, cache_size=500).fit(Phi, t, weights) for t in T.T]
        slope = np.zeros(T.shape)
        for column, machine in zip(slope.T, machines, strict=True):
            # on the margin any slope in [-C y, 0] is valid; the dual gives one
            column[machine.support_] = -machine.dual_coef_[0]
        w, b = _coefficients(machines)
        loss = C * np.sum(weights[:, None] * np.maximum(0.0, 1.0 - T * (Phi @ w + b)))
        return Minimum(w, b, float(0.5 * np.sum(w**2) + loss), slope, 0.5)

    return solve


def squared_hinge(C: float) -> RiskSolver:
    """Return a solver by scikit-learn's LinearSVC: least ½(|w|² + b²/100) + C Σ weight max(0, 1 - y f)²."""

    def solve(Phi: np.ndarray, T: np.ndarray, weights: np.ndarray) -> Minimum:
        options = {"C": C, "dual": False, "tol": 1e-8, "max_iter": 10_000, "intercept_scaling": INTERCEPT}
        w, b = _coefficients([LinearSVC(**options).fit(Phi, t, weights) for t in T.T])
        short = np.maximum(0.0, 1.0 - T * (Phi @ w + b))
        loss = C * np.sum(weights[:, None] * short**2)
        slope = -2.0 * C * weights[:, None] * T * short
        return Minimum(w, b, float(0.5 * (np.sum(w**2) + np.sum((b / INTERCEPT) ** 2)) + loss), slope, 0.5)

    return solve


def _coefficients(machines: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return w (m, q) and b (q,) of scikit-learn's machines, one for each column."""
    return np.column_stack([s.coef_[0] for s in machines]), np.array([s.intercept_[0] for s in machines])


LOSSES: dict[str, Callable[[float], RiskSolver]] = {"squared_hinge": squared_hinge, "hinge": hinge}


@dataclass(frozen=True, eq=False)
class Risk:
    """The regularised risk of the best function in the span of a basis."""

    kernel: RBF
    solver: RiskSolver
    X: np.ndarray  # (n, d)
    T: np.ndarray  # (n, q)
    weights: np.ndarray  # (n,)
    jitter: float

    def minimum(self, basis: Basis) -> tuple[Minimum, np.ndarray, np.ndarray]:
        """Return the best function, its coefficients c = Luu⁻ᵀw (m, q), and Kfu (n, m)."""
        Kfu = basis.cross(self.kernel, self.X)
        Linv = la.inverse_lower(la.cholesky(la.jittered(basis.gram(self.kernel), self.jitter)))
        best = self.solver(la.times_lower(Kfu.copy(), Linv, transposed=True), self.T, self.weights)
        return best, Linv.T @ best.w, Kfu

    def value_and_gradient(self, basis: Basis) -> tuple[float, dict[str, np.ndarray]]:
        """Return the minimum, and its derivative in the parameters of the basis."""
        best, c, Kfu = self.minimum(basis)
        _, cross = basis.cross_pullback(self.kernel, self.X, best.slope @ c.T, Kfu)
        _, own = basis.gram_pullback(self.kernel, best.penalty * (c @ c.T))
        return best.value, {name: cross[name] + own[name] for name in cross}


class _Descent:
    """The negative risk over its first value, in the variables of a packing: an objective of `ascent`."""

    scale = 1.0

    def __init__(self, risk: Risk, basis: Basis) -> None:
        X = risk.X
        spread = np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), 1.0)
        summary = Summary(len(X), spread, X.min(axis=0), X.max(axis=0), 1.0)
        self.packing = Packing(Parameters(risk.kernel, basis, 1.0, Zero()), summary, optimize="basis")
        self.risk, self.size, self.bounds = risk, len(basis), self.packing.bounds
        self.units = np.ones_like(self.packing.start)
        self.first = 0.0

    def basis(self, x: np.ndarray) -> Basis:
        return self.packing.unpack(x).basis

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self.risk.value_and_gradient(self.basis(x))
        self.first = self.first or max(abs(value), np.finfo(float).tiny)
        by_path = {f"basis.{name}": g for name, g in gradient.items()}
        slope = self.packing.gradient(self.packing.values(x), by_path)
        return -value / self.first, -slope / self.first


def learn(
    risk: Risk, basis: Basis, max_iter: int, trace: Callable[[Basis, float], None] | None = None
) -> tuple[Basis, int]:
    """Return the basis of least risk by L-BFGS, and its iterations; trace gets each best basis and risk."""
    if max_iter < 1:
        return basis, 0
    descent = _Descent(risk, basis)

    def tell(run: Ascent) -> None:
        if trace is not None and run.iterations:
            trace(descent.basis(run.x), -run.value * descent.first)

    run = climb_from([descent.packing.start], descent, Rules(max_iter, LBFGS_TOLERANCE), tell=tell)
    if run.interrupted:
        raise KeyboardInterrupt
    return descent.basis(run.x), run.iterations


@dataclass(frozen=True, eq=False)
class Machine:
    """A learned function f = Σ_j c_j u_j + b."""

    kernel: RBF
    basis: Basis
    c: np.ndarray  # (m, q)
    b: np.ndarray  # (q,)
    risk: float
    n_iterations: int

    def values(self, X: np.ndarray) -> np.ndarray:
        """Return f at each row. (n, q)"""
        chunks = row_slices(len(X), chunk_rows(len(X), len(self.c), X))
        return np.concatenate([self.basis.cross(self.kernel, X[s]) @ self.c for s in chunks]) + self.b


def machine(
    risk: Risk, n_basis: int, *, multiscale: bool = True, max_iter: int = 100, rng: Any = None
) -> Machine:
    """Learn the function of least risk on n_basis Gaussians, from k-means centres. Widths are learned only in
    the second half of the iterations, since that finds better optima. [000 §5]
    """
    kernel, scales = risk.kernel, risk.kernel.scales(risk.X)
    start = Points(scales * selection.kmeans(risk.X / scales, n_basis, rng, risk.weights))
    what = "the inner products Kuu of the basis"
    risk = replace(risk, jitter=la.cholesky_escalating(start.gram(kernel), risk.jitter, what=what)[1])
    with blas_for(len(start)):
        basis, iterations = learn(risk, start, max_iter // 2 if multiscale else max_iter)
        if multiscale:
            basis, more = learn(risk, as_multiscale(kernel, basis), max_iter - max_iter // 2)
            iterations += more
        best, c, _ = risk.minimum(basis)
    return Machine(kernel, basis, c, best.b, best.value, iterations)
