"""The exact GP by conjugate gradients: products with K, not its factor, in O(n²) time, O(n) memory. [002]

A solve that ends with residual r has errors of no more than (σ² the least noise)

    |mean - exact mean|       ≤ √k(x, x) |r| / σ
    0 ≤ variance - exact one  ≤ |r|² / σ²

since k_*ᵀ(K + Σ)⁻¹k_* ≤ k(x, x) and K + Σ ⪰ σ²I. So tolerances are stated for predictions, and the target
norms of residuals follow from them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...errors import ParameterError, require_count, require_in
from ...model.bases import Basis
from ...model.kernels.base import Gradients, Kernel, add_gradients
from ...model.posterior import Marginals
from ...model.problem import Problem, queries_like
from ...numerics.arrays import SMALL, Array, as_columns, is_numpy, namespace, to_numpy
from ...numerics.linalg import contiguous, row_dots
from ...numerics.workers import DEVICE_BYTES, blas_for, row_slices, run_over
from ..exact import gradient_by_name, log_density, require_digits
from .krylov import Preconditioner, Solution, conjugate_gradients, precondition
from .products import Blocked, KernelProduct, block_pairs

TOGETHER = 64  # queries whose variances are solved for at once
PROBE = 1e-4  # a probe's residual relative to its length: an error far below the spread between probes


@dataclass(frozen=True)
class Solver:
    """Settings of conjugate gradients: tolerance, preconditioner, probes, and the product with K.

    tolerance is how far a mean may be from the exact GP's, relative to the root mean square of y, and a
    variance, relative to the prior's; rank is the preconditioner's; probes are those of the log determinant,
    drawn with the seed rng, so that the same parameters give the same evidence. product makes the products
    with K from a kernel and X.
    """

    tolerance: float = 1e-6
    rank: int = 100
    probes: int = 16
    max_iterations: int = 1000
    rng: int = 0
    product: Callable[[Kernel, Array], KernelProduct] = field(default=Blocked)

    def __post_init__(self) -> None:
        require_in("tolerance", self.tolerance, "(0, 1)")
        for name, least in {"rank": 0, "probes": 2, "max_iterations": 1}.items():
            require_count(name, getattr(self, name), least)


DEFAULT = Solver()


class Evidence(NamedTuple):
    """A log evidence, and its standard error from the random probes of its log determinant."""

    value: float
    error: float


@dataclass(frozen=True, eq=False)
class System:
    """The matrix K + Σ of a problem, as a product and a preconditioner for solves."""

    problem: Problem
    solver: Solver
    product: KernelProduct
    preconditioner: Preconditioner

    @staticmethod
    def of(P: Problem, solver: Solver) -> "System":
        preconditioner = precondition(P.kernel, P.X, P.noise / P.weight(slice(None)), solver.rank, P.jitter)
        return System(P, solver, solver.product(P.kernel, P.X), preconditioner)

    @cached_property
    def sigma(self) -> float:
        """√ of the least noise variance: (K + Σ)⁻¹ ⪯ I/σ²."""
        return math.sqrt(float(namespace(self.problem.X).min(self.preconditioner.noise)))

    def multiply(self, V: Array) -> Array:
        """Return (K + Σ) V."""
        return self.product(V) + self.preconditioner.noise[:, None] * V

    def solve(self, B: Array, targets: np.ndarray, what: str) -> Solution:
        most, P = self.solver.max_iterations, self.preconditioner
        with blas_for(self.problem.n):
            return conjugate_gradients(self.multiply, B, P, targets, max_iterations=most, what=what)

    def target_of_means(self) -> np.ndarray:
        """Return the residual norms at which means are within tolerance · rms(y) of the exact GP's. (p,)"""
        P, xp = self.problem, namespace(self.problem.X)
        scale = to_numpy(xp.sqrt(xp.mean(P.Y * P.Y, axis=0)))
        return self.solver.tolerance * self.sigma * scale / math.sqrt(float(xp.max(P.kernel.diagonal(P.X))))

    def probes(self) -> tuple[Array, np.ndarray]:
        """Draw right-hand sides (n, probes) whose mean zzᵀ is P, and return them with their target norms."""
        Z = self.preconditioner.sample(self.solver.probes, np.random.default_rng(self.solver.rng))
        return Z, PROBE * np.linalg.norm(to_numpy(Z), axis=0)

    def evidence(self, alpha: Array, residual: Array, log_quadratics: np.ndarray) -> Evidence:
        """Estimate log p(y): yᵀ(K + Σ)⁻¹y is yᵀα + αᵀr up to |r|²/σ², log|K + Σ| is log|P| + probes' mean."""
        P, xp = self.problem, namespace(self.problem.X)
        quadratic = float(xp.sum(P.Y * alpha)) + float(xp.sum(alpha * residual))
        log_det = self.preconditioner.log_det + float(np.mean(log_quadratics))
        error = float(np.std(log_quadratics, ddof=1)) / math.sqrt(len(log_quadratics))
        return Evidence(log_density(P, quadratic, log_det), 0.5 * P.p * error)


@dataclass(frozen=True, eq=False)
class Iterative:
    """The exact GP on all rows, with α = (K + Σ)⁻¹y and a preconditioner, but no factor of K. A mean takes a
    product with K, variances take solves, and the evidence is estimated when it is first used.
    """

    system: System
    solution: Solution

    @property
    def kernel(self) -> Kernel:
        return self.system.problem.kernel

    @property
    def basis(self) -> Basis:
        """The basis of the exact GP, a point at each row."""
        return self.system.problem.basis

    @property
    def alpha(self) -> Array:
        """(K + Σ)⁻¹(y - m0). (n,) or (n, p)"""
        return self.solution.X[:, 0] if self.system.problem.one_output else self.solution.X

    @property
    def log_evidence(self) -> float:
        """log p(y) by stochastic Lanczos quadrature; `evidence` has its standard error, too."""
        return self.evidence.value

    @cached_property
    def evidence(self) -> Evidence:
        """log p(y), and the standard error of its estimate."""
        Z, targets = self.system.probes()
        probed = self.system.solve(Z, targets, "the log determinant")
        return self.system.evidence(self.solution.X, self.solution.R, probed.log_quadratics())

    def mean(self, X: Array) -> Array:
        """Return the mean alone, by one product with K. (t,) or (t, p)"""
        P = self.system.problem
        X = queries_like(X, P.X)
        mean = self.system.product(self.solution.X, X) + as_columns(P.mean(X))
        return mean[:, 0] if P.one_output else mean

    def mean_error(self, X: Array) -> Array:
        """Bound each mean's distance to the exact GP's: √k(x, x) |r|/σ, for the worst output. (t,)"""
        X = queries_like(X, self.system.problem.X)
        residual = float(np.max(self.solution.residuals))
        return namespace(X).sqrt(self.kernel.diagonal(X)) * (residual / self.system.sigma)

    def predict(self, X: Array) -> Marginals:
        """Return mean and variance of each f(x), the variance at most tolerance · k(x, x) above the exact."""
        X = queries_like(X, self.system.problem.X)
        variance = self.kernel.diagonal(X)
        for s in row_slices(X.shape[0], TOGETHER):
            Ksf, solution = self._solved(X[s])
            S = contiguous(solution.X.T)  # (t, n)
            variance[s] -= row_dots(Ksf, S) + row_dots(contiguous(solution.R.T), S)
        return Marginals(self.mean(X), variance)

    def covariance(self, X: Array) -> Array:
        """Return the joint covariance K_** - K_*f S - Sᵀ(K_f* - (K + Σ)S): errors of solves S are squared."""
        X = queries_like(X, self.system.problem.X)
        Ksf, solution = self._solved(X)
        explained = Ksf @ solution.X + solution.X.T @ solution.R
        return self.kernel.covariances(X, X) - 0.5 * (explained + explained.T)

    def _solved(self, X: Array) -> tuple[Array, Solution]:
        """Return K_*f (t, n), and the solutions S = (K + Σ)⁻¹K_f*."""
        Ksf = self.kernel.covariances(X, self.system.problem.X)
        prior = to_numpy(self.kernel.diagonal(X))
        targets = np.sqrt(self.system.solver.tolerance * prior) * self.system.sigma
        return Ksf, self.system.solve(contiguous(Ksf.T), targets, "variances")


def predictor_of(P: Problem, solver: Solver = DEFAULT) -> Iterative:
    """Solve for α of a checked problem's exact GP."""
    system = System.of(P, solver)
    solution = system.solve(P.Y, system.target_of_means(), "the mean")
    require_digits(P, solution.X)
    return Iterative(system, solution)


def log_evidence_and_gradient(P: Problem, solver: Solver = DEFAULT) -> tuple[Evidence, dict[str, Any]]:
    """Return the log evidence and its gradient in every parameter, both estimated with the same probes.

    The gradient is ½ tr[(ααᵀ - p(K + Σ)⁻¹) dK]; with u = (K + Σ)⁻¹z, w = P⁻¹z for probes of mean zzᵀ = P

        (K + Σ)⁻¹ = ⟨u wᵀ⟩ = P⁻¹ + ⟨(u - w) wᵀ⟩

    The second form takes P⁻¹ = Σ⁻¹ - HHᵀ exactly and estimates only what the preconditioner missed [Wenger et
    al. 2022]. It is used if that is less than what the first form estimates: if |P^-½(K + Σ)P^-½ - I|² in
    Frobenius' norm is below P's rank, about the number of directions that the data inform about.
    """
    xp, system = namespace(P.X), System.of(P, solver)
    M, p = system.preconditioner, P.p
    Z, targets = system.probes()
    targets = np.concatenate([system.target_of_means(), targets])
    solution = system.solve(xp.concat([P.Y, Z], axis=1), targets, "the gradient")
    alpha, U, W = solution.X[:, :p], solution.X[:, p:], M.solve(Z)
    evidence = system.evidence(alpha, solution.R[:, :p], solution.log_quadratics()[p:])
    missed = system.multiply(W) - Z
    split = float(xp.sum(missed * M.solve(missed))) / solver.probes < M.rank
    half = 0.5 * p / solver.probes
    if split:
        U = U - W
    left = xp.concat([0.5 * alpha, -0.5 * half * U, -0.5 * half * W], axis=1)
    right = xp.concat([alpha, W, U], axis=1)
    diagonal = -half * xp.sum(U * W, axis=1)
    if split:
        left, right = xp.concat([left, 0.5 * p * M.H], axis=1), xp.concat([right, M.H], axis=1)
        diagonal = diagonal - 0.5 * p * M.inverse_diagonal()
    kernel = _over_pairs(P, left, right)
    if split:
        add_gradients(kernel, P.kernel.diag_pullback(P.X, -0.5 * p / M.noise))
    return evidence, gradient_by_name(P, kernel, 0.5 * xp.sum(alpha * alpha, axis=1) + diagonal, alpha)


def _over_pairs(P: Problem, left: Array, right: Array) -> Gradients:
    """Return the kernel's parameter gradients from K̄ = left rightᵀ, which is symmetric, block by block."""
    X, n = P.X, P.X.shape[0]
    pairs: list[tuple[slice, slice]]
    if is_numpy(X):
        pairs = block_pairs(P.kernel, n)
        left, right = contiguous(left), contiguous(right)
    else:
        pairs = [(s, slice(0, n)) for s in row_slices(n, max(1, DEVICE_BYTES // (4 * X.dtype.itemsize * n)))]

    def step(sums: Gradients, pair: tuple[slice, slice]) -> None:
        i, j = pair
        Kbar = left[i] @ right[j].T
        if is_numpy(X) and i != j:
            Kbar *= 2.0  # and the block above the diagonal
        add_gradients(sums, P.kernel.pullback(X[i], X[j], Kbar, P.kernel.covariances(X[i], X[j]))[0])

    total, *others = run_over(pairs, dict, step, parallel=is_numpy(X) and n * n >= SMALL)
    for part in others:
        add_gradients(total, part)
    return total


def condition(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    noise: Array | float,
    X: Array,
    y: Array,
    *,
    solver: Solver = DEFAULT,
    **options: Any,
) -> Iterative:
    """Make the exact GP by conjugate gradients with a given solver; other arguments as for `condition`."""
    from ..regression import problem_of

    if approximation != "cg":
        raise ParameterError(f"conjugate gradients solve for 'cg', not for {approximation!r}; use condition")
    return predictor_of(problem_of(kernel, basis, approximation, noise, X, y, **options), solver)
