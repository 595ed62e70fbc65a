"""The one posterior: a Gaussian process on m basis functions. [004 Lemma 2.3.1, eqs 2.44-2.45]

    mean(x)    = m0(x) + k_u(x)ᵀ α
    cov(x, x') = k(x, x') + k_u(x)ᵀ C k_u(x')

Every method makes one; pruning and updating turn one into another; predicting, sampling and comparing use it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .. import errors
from ..numerics import linalg as la
from ..numerics.arrays import SMALL, Array, as_columns, is_numpy, namespace, to_numpy, zeros_like_rows
from ..numerics.nuggets import FINEST, independent_rows, nugget, with_nugget
from ..numerics.workers import blas_for, chunk_rows, row_slices, run_over
from .bases import Basis, Points, union
from .compiled import CompiledPredictor, Folded
from .kernels.base import Kernel
from .means import Mean, Zero
from .paths import FEATURES, Paths, draw_paths
from .problem import DEFAULT_JITTER, as_inputs, queries_like
from .removal import OnlineTerms, Removal, Score, check_score
from .table import Conditional

FoldedForm = TypeVar("FoldedForm", bound=Folded)

SPAN = 1e-12  # of its prior variance: least that a basis function must add to those before it


class Marginals(NamedTuple):
    """Mean (n,) or (n, p) and variance (n,) of each f(x) on its own."""

    mean: Array
    variance: Array


@dataclass(frozen=True, eq=False)
class Posterior:
    """A process in whitened form, with φ(x) = L⁻¹k_u(x):

        mean(x)    = m0(x) + φ(x)ᵀ w
        cov(x, x') = k(x, x') - φ(x)ᵀφ(x') + φ(x)ᵀ A Aᵀ φ(x')

    so α = L⁻ᵀw and C = L⁻ᵀ(AAᵀ - I)L⁻¹. For sparse methods L = Luu and AAᵀ = B⁻¹; for the exact GP L factors
    K + Σ and A is None, that is 0. A variance from these factors keeps the digits that an explicit C loses.
    """

    kernel: Kernel
    basis: Basis
    L: Array  # (m, m), lower
    w: Array  # (m, p)
    A: Array | None  # (m, m)
    mean_function: Mean = field(default_factory=Zero)
    conditional: Conditional = "exact"
    log_evidence: float | None = None
    jitter: float = DEFAULT_JITTER
    one_output: bool = True
    added: Array | None = None  # (m,), of the exact GP: the diagonal Σ of K + Σ
    log_predictive: float | None = None  # Σ log⟨p(y|f)⟩ of the rows read online, each before it was read
    sites: Any = None  # the rows' sites under expectation propagation, to start again from
    online: OnlineTerms | None = field(default=None, repr=False)  # kept for the next `update`

    def __len__(self) -> int:
        return len(self.basis)

    @cached_property
    def _Linv(self) -> Array:
        return la.inverse_lower(self.L)

    @cached_property
    def coefficients(self) -> Array:
        """α with a column for each output, even for one. (m, p)"""
        return la.solve_lower(self.L, self.w, transposed=True)

    @property
    def alpha(self) -> Array:
        """α: the mean's coefficients. (m,) or (m, p)"""
        return self.coefficients[:, 0] if self.one_output else self.coefficients

    @cached_property
    def C(self) -> Array:
        """The covariance's coefficients. (m, m)"""
        I = la.identity(self.L)
        middle = -I if self.A is None else self.A @ self.A.T - I
        return self._Linv.T @ middle @ self._Linv

    def features(self, X: Array) -> Array:
        """Return φ of each row. (n, m)"""
        if len(self) == 0:
            return zeros_like_rows((X.shape[0], 0), X)
        return la.times_lower(la.contiguous(self.basis.cross(self.kernel, X)), self._Linv, transposed=True)

    def mean(self, X: Array) -> Array:
        """Return the mean alone, in O(m) per row. (n,) or (n, p)"""
        X = self._inputs(X)

        def rows(s: slice) -> Array:
            if len(self) == 0:
                return zeros_like_rows((s.stop - s.start, self.w.shape[1]), X)
            return self.basis.cross(self.kernel, X[s]) @ self.coefficients

        return self.with_prior_mean(X, self._in_chunks(X, rows))

    def predict(self, X: Array) -> Marginals:
        """Return mean and variance of each f(x) on its own, in O(m²) per row; `covariance` is joint."""
        X = self._inputs(X)
        variance = zeros_like_rows((X.shape[0],), X)
        root = self._by_root()
        if root is None:
            _ = self._Linv  # computed once, before threads use it

        def rows(s: slice) -> Array:
            prior = 0.0 if self.conditional == "deterministic" else self.kernel.diagonal(X[s])
            if root is None:  # an empty basis, or a variance above the prior's somewhere: both terms apart
                Phi = self.features(X[s])
                variance[s] = prior - la.row_squares(Phi) + la.row_squares(Phi @ self.A)
                return Phi @ self.w
            K = la.contiguous(self.basis.cross(self.kernel, X[s]))
            mean = K @ self.coefficients
            squares = la.row_squares(root(K))
            variance[s] = squares if self.conditional == "deterministic" else prior - squares
            return mean

        mean = self._in_chunks(X, rows)
        warn_if_negative(variance)
        return Marginals(self.with_prior_mean(X, mean), variance)

    @cached_property
    def variance_root(self) -> Array | None:
        """Lower triangular T with var(x) = k(x, x) - |T k_u(x)|²: one product per row. None if there is none.

        TᵀT = -C = L⁻ᵀ(I - AAᵀ)L⁻¹. A degenerate process has var(x) = |T k_u(x)|² with T = AᵀL⁻¹.
        """
        if len(self) == 0:
            return None
        if self.A is None:
            return self._Linv
        if self.conditional == "deterministic":
            # the sum makes a copy, even of a single number
            return la.times_lower(la.contiguous(self.A.T + 0.0), self._Linv)
        try:
            U = la.shrinkage_root(self.A @ self.A.T)
        except errors.FactorisationError:
            return None
        # from TL = U, whose rounding errors in Tk are smaller than those of U times L⁻¹
        return la.contiguous(la.solve_lower(self.L, la.contiguous(U.T), transposed=True).T)

    def _by_root(self) -> Callable[[Array], Array] | None:
        """Return the function that takes rows k_u(x) to T k_u(x), T = `variance_root`; None if there is no T.

        On the CPU the exact GP, T = L⁻¹, solves with L, as quick as a product, and never computes L⁻¹.
        """
        if self.A is None and len(self) and is_numpy(self.L):
            return lambda K: la.solve_rows(K, self.L)
        T = self.variance_root
        return None if T is None else lambda K: la.times_lower(K, T, transposed=True)

    def to_numpy(self) -> Posterior:
        """Return this process in C-ordered NumPy arrays, as files give them back, so both round alike."""

        def rows(a: Array) -> np.ndarray:
            return np.ascontiguousarray(to_numpy(a))

        basis = self.basis.with_parameters({name: rows(a) for name, a in self.basis.parameters.items()})
        A = None if self.A is None else rows(self.A)
        return replace(self, basis=basis, L=rows(self.L), w=rows(self.w), A=A)

    def compile(self) -> CompiledPredictor:
        """Return a predictor of single queries in microseconds: `predictor(x)` is (mean, variance)."""
        return self.folded(CompiledPredictor)

    def folded(self, kind: type[FoldedForm] = Folded) -> FoldedForm:  # type: ignore[assignment]
        """Return the process as a few arrays. Raise if it has no such form."""
        if not self.one_output:
            raise errors.ParameterError("only a process with one output can be compiled; use predict")
        if self.variance_root is None:
            reason = "a process without a basis, or somewhere wider than its prior"
            raise errors.ParameterError(f"{reason}, cannot be compiled; use predict")
        parts = self.kernel, self.basis, self.mean_function, self.alpha, self.variance_root
        return kind.of(*parts, degenerate=self.conditional == "deterministic")

    def covariance(self, X: Array) -> Array:
        """Return the joint covariance of f(X). (n, n)

        With an exact test conditional it is option 1 of [003 §6]; FIC keeps only the diagonal of R, so two
        equal rows are two different variables. [003 Remark 7, δ by index]
        """
        X = self._inputs(X)
        # by substitution, so that k - |φ|² keeps its digits where L is near singular
        Phi = la.solve_lower(self.L, self.basis.cross(self.kernel, X).T).T if len(self) else self.features(X)
        joint = 0.0 if self.A is None else la.gram(la.contiguous((Phi @ self.A).T))
        if self.conditional == "exact":
            joint = joint + self.kernel.covariances(X, X) - la.gram(la.contiguous(Phi.T))
        elif self.conditional == "independent":
            R = self.kernel.diagonal(X) - la.row_squares(Phi)
            joint = joint + R * la.identity(joint)
        return joint

    def sample(self, X: Array, size: int = 1, rng: np.random.Generator | int | None = None) -> np.ndarray:
        """Draw f(X) jointly. (size, n) or (size, n, p)"""
        X = self._inputs(X)
        return draws(self.mean(X), self.covariance(X), size, rng)

    def paths(
        self, size: int = 1, rng: np.random.Generator | int | None = None, features: int = FEATURES
    ) -> Paths:
        """Draw whole functions, to be called at any X, with an approximate prior; `sample` is exact."""
        return draw_paths(self, size, rng, features)

    def gradient(self, X: Array) -> Array:
        """Return d mean / d x at each row. (n, d) or (n, d, p)"""
        X = self._inputs(X)
        slopes = [self.mean_function.input_gradient(X, q) for q in range(self.w.shape[1])]
        if len(self):
            alpha = self.coefficients.T
            slopes = [s + self.basis.input_gradient(self.kernel, X, a) for s, a in zip(slopes, alpha)]
        return slopes[0] if self.one_output else namespace(X).stack(slopes, axis=2)

    # Transforming it. In the parametrisation P = (C + Q)⁻¹, b = Pα with Q = Kuu⁻¹, the KL-optimal process on
    # fewer basis functions has P and b with the other rows and columns deleted. [004 eqs 3.18, 3.20]

    def removal_scores(self, score: Score = "mean", group: int = 1) -> np.ndarray:
        """Return the cost of removing each basis function, as a KL divergence (half of 004's ε).

        "mean" counts the change of the mean alone [004 eq. 3.26], "kl" is KL(pruned || this) [004 eq. 3.24].
        "heuristic" is no KL: the change of the mean at the function's own input, |α|/q [004 eq. 3.6]. Each
        `group` of successive functions is removed together, as components of a vector are. [004 eq. 5.43]
        """
        self.require_exact("removal scores need")
        return Removal(*self._whitened_precision(), score, group).scores()

    def remove(self, i: int) -> Posterior:
        """Return the process closest in KL(new || old) without basis function i. [004 eqs 3.19, 3.21]"""
        self.require_exact("removal needs")
        if not -len(self) <= i < len(self):
            raise errors.ParameterError(f"there is no basis function {i} among {len(self)}")
        return self.restrict(np.delete(np.arange(len(self)), i))

    def prune(self, capacity: int, score: Score = "mean", group: int = 1) -> Posterior:
        """Return the process with at most `capacity` functions, or groups, those of least score removed."""
        self.require_exact("pruning needs")
        check_score(score)
        if capacity < 1:
            raise errors.ParameterError(f"capacity must be at least 1, but is {capacity}")
        if capacity * group >= len(self):
            return self
        return self.restrict(Removal(*self._whitened_precision(), score, group).until(capacity))

    def restrict(self, kept: np.ndarray) -> Posterior:
        """Return the KL-optimal process on the basis functions `kept`: P and b restricted to them.

        The exact GP has P = K + KΣ⁻¹K and b = KΣ⁻¹y, and becomes DTC's process, in O(n m²).
        """
        if self.A is None:
            return self._exact_restricted(kept)
        Luu, w, precision = self._whitened_precision()
        # Luu[kept] = LT by QR, which keeps the digits that a factor of its square loses, and TTᵀ = I exactly
        Q, R = np.linalg.qr(Luu[kept].T)
        signs = np.where(np.diag(R) < 0.0, -1.0, 1.0)
        T, L = (Q * signs).T, np.ascontiguousarray((R * signs[:, None]).T)
        # P = Luu precision Luuᵀ, so B = L⁻¹PL⁻ᵀ = T precision Tᵀ
        return self._with_precision(self.basis[kept], L, T @ precision @ T.T, T @ (precision @ w))

    def _exact_restricted(self, kept: np.ndarray) -> Posterior:
        assert isinstance(self.basis, Points) and self.added is not None
        basis, y = self.basis[kept], to_numpy(self.L) @ to_numpy(self.w)  # y less its prior mean
        L = _prior_factor(with_nugget(to_numpy(basis.gram(self.kernel))), self.jitter)
        weighted = la.solve_lower(L, to_numpy(self.basis.cross(self.kernel, to_numpy(basis.Z))))  # Φ, (m, n)
        weighted = weighted / np.sqrt(to_numpy(self.added))
        B = la.identity(L) + la.gram(np.ascontiguousarray(weighted.T))
        return self._with_precision(basis, L, B, weighted @ (y / np.sqrt(to_numpy(self.added))[:, None]))

    def _with_precision(self, basis: Basis, L: np.ndarray, B: np.ndarray, b: np.ndarray) -> Posterior:
        """Return the process on another basis with factor L, where L⁻¹u has precision B and mean B⁻¹b."""
        LBinv = la.inverse_lower(la.cholesky(B))
        w, A = LBinv.T @ (LBinv @ b), np.ascontiguousarray(LBinv.T)
        return replace(self, basis=basis, L=L, w=w, A=A, added=None, log_evidence=None, sites=None)

    def _whitened_precision(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return Luu, and mean Luuᵀα and precision (I + LuuᵀC Luu)⁻¹ of Luu⁻¹u."""
        Luu = _prior_factor(with_nugget(to_numpy(self.basis.gram(self.kernel))), self.jitter)
        w, S = self.whitened(Luu)
        return Luu, w, la.gram(la.inverse_lower(la.cholesky(S)))

    def whitened(self, L: np.ndarray, place: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return mean Lᵀα and covariance I + LᵀCL of L⁻¹u, where L factors Kuu of a basis that has this one's
        functions at the numbers `place` (None: it is this basis).
        """
        part = L if place is None else L[place]  # with α padded by zeros, Lᵀα = partᵀα
        H = la.solve_lower(to_numpy(self.L), part)  # LᵀCL = Hᵀ(AAᵀ - I)H
        S = la.identity(L) - la.gram(np.ascontiguousarray(H))
        if self.A is not None:
            S = S + la.gram(np.ascontiguousarray(to_numpy(self.A).T @ H))
        return part.T @ to_numpy(self.coefficients), S

    def require_exact(self, what: str) -> None:
        """Raise if the test conditional is not exact."""
        if self.conditional != "exact":
            raise errors.ConditionalError(
                f"{what} an exact test conditional, but this process has a {self.conditional} one (SoR and "
                "FIC do): its KL to any pruned process is infinite; condition with 'dtc' or 'fitc' instead"
            )

    def _inputs(self, X: Array) -> Array:
        if len(self) == 0:
            return as_inputs(X)
        return queries_like(X, self.basis.centers)

    def _in_chunks(self, X: Array, rows: Callable[[slice], Array]) -> Array:
        """Return rows(s) of all slices s of X together, by several threads where that is worth it. (n, p)"""
        out = zeros_like_rows((X.shape[0], self.w.shape[1]), X)
        _ = self.coefficients  # computed once, before threads use it

        def step(_: None, s: slice) -> None:
            out[s] = rows(s)

        tasks = row_slices(X.shape[0], chunk_rows(X.shape[0], len(self), X))
        parallel = is_numpy(X) and X.shape[0] * max(len(self), 1) >= SMALL
        with blas_for(len(self)):
            run_over(tasks, lambda: None, step, parallel=parallel)
        return out

    def with_prior_mean(self, X: Array, out: Array) -> Array:
        """Add the prior mean to predictions out (n, p), in place, and return them. (n,) or (n, p)"""
        out += as_columns(self.mean_function(X))
        return out[:, 0] if self.one_output else out


def draws(mean: Array, covariance: Array, size: int, rng: np.random.Generator | int | None) -> np.ndarray:
    """Draw Gaussian vectors with mean (n,) or (n, p), covariance (n, n). (size, n) or (size, n, p)"""
    mean, covariance = to_numpy(mean), to_numpy(covariance)
    values, vectors = np.linalg.eigh(covariance)  # perhaps semi-definite: rows may repeat
    root = vectors * np.sqrt(np.clip(values, 0.0, None))
    z = np.random.default_rng(rng).standard_normal((size, *mean.shape))
    return mean + np.einsum("ij,sj...->si...", root, z)


def warn_if_negative(variance: Array) -> None:
    """Warn if variances are negative beyond rounding; none is ever clipped."""
    xp = namespace(variance)
    if variance.shape[0] == 0:
        return
    count = int(xp.sum(xp.asarray(variance < -1e-6 * xp.max(xp.abs(variance)), dtype=xp.int64)))
    if count:
        some = f"{count} of {variance.shape[0]} predicted variances are negative beyond rounding"
        text = f"{some}; they are returned as computed"
        warnings.warn(text, errors.NegativeVarianceWarning, stacklevel=3)


def prior(kernel: Kernel, mean: Mean | None = None, basis: Basis | None = None) -> Posterior:
    """Return the process before any data: on an empty basis, or with α = 0 and C = 0 on a given one. Basis
    functions in the span of others are left out, with a warning. [004 §3.6.1]
    """
    if basis is None:
        empty = np.zeros((0, 0))
        return Posterior(kernel, Points(empty), empty, np.zeros((0, 1)), empty, mean or Zero())
    basis.check(kernel)
    K = with_nugget(to_numpy(basis.gram(kernel)))
    kept, L = independent_rows(K, max(SPAN, FINEST * nugget(len(K))))
    m, left_out = len(kept), len(basis) - len(kept)
    if left_out:
        message = f"{left_out} of {len(basis)} basis functions lie in the span of others and were left out"
        warnings.warn(message, errors.ReducedBasisWarning, stacklevel=2)
    return Posterior(kernel, basis[kept], L, np.zeros((m, 1)), np.eye(m), mean or Zero(), jitter=0.0)


def predict_together(posteriors: Sequence[Posterior], X: Array) -> Marginals:
    """Return mean and variance of f under each of c posteriors that share kernel and basis. (n, c) each"""
    first, c = posteriors[0], len(posteriors)
    X = first._inputs(X)
    with blas_for(len(first)):
        roots = [post.variance_root for post in posteriors]
    plain = first.conditional != "deterministic" and isinstance(first.mean_function, Zero)
    if not plain or any(root is None for root in roots):
        parts = [post.predict(X) for post in posteriors]
        return Marginals(*(np.stack(columns, axis=1) for columns in zip(*parts)))
    alpha = np.concatenate([post.coefficients for post in posteriors], axis=1)  # (m, c)
    mean, variance = np.empty((len(X), c)), np.empty((len(X), c))

    def step(_: None, rows: slice) -> None:
        K = la.contiguous(first.basis.cross(first.kernel, X[rows]))
        mean[rows] = K @ alpha
        k = first.kernel.diagonal(X[rows])
        for j, T in enumerate(roots):
            variance[rows, j] = k - la.row_squares(la.times_lower(K.copy(), T, transposed=True))

    tasks = row_slices(len(X), chunk_rows(len(X), len(first), X))
    run_over(tasks, lambda: None, step, parallel=len(tasks) > 1)
    return Marginals(mean, variance)


def kl_divergence(first: Posterior, second: Posterior) -> float:
    """Return KL(first || second) of two processes that share a kernel and a prior mean. [004 eq. 3.15]

    On the union of their bases, in whitened coordinates, each is N(Lᵀα, I + LᵀCL), and the KL divergence of
    the processes is that of these Gaussians.
    """
    for post in (first, second):
        post.require_exact("a KL divergence needs")
    same = "the KL divergence compares processes with the same"
    if first.kernel.spec() != second.kernel.spec():
        raise errors.ParameterError(f"{same} kernel; these two have different ones")
    if first.mean_function.spec() != second.mean_function.spec():
        raise errors.ParameterError(f"{same} prior mean; these two have different ones")
    outputs = first.w.shape[1]
    if outputs != second.w.shape[1]:
        raise errors.ShapeError(f"{same} number of outputs, not {outputs} and {second.w.shape[1]}")
    basis, *places = union(first.kernel, first.basis, second.basis)
    if len(basis) == 0:
        return 0.0
    L = _prior_factor(to_numpy(basis.gram(first.kernel)), max(first.jitter, second.jitter))
    (mean1, S1), (mean2, S2) = first.whitened(L, places[0]), second.whitened(L, places[1])
    L1, L2 = la.cholesky(S1), la.cholesky(S2)
    half, shift = la.solve_lower(L2, L1), la.solve_lower(L2, mean2 - mean1)
    spread = np.sum(half**2) - len(basis) - la.log_det_from_factor(L1) + la.log_det_from_factor(L2)
    return float(0.5 * (np.sum(shift**2) + outputs * spread))


def _prior_factor(K: np.ndarray, jitter: float) -> np.ndarray:
    """Return the factor of K = Kuu with as little jitter as it takes, so that the prior stays that of k."""
    what = "the prior covariance of the basis"
    return la.cholesky_escalating(K, jitter or DEFAULT_JITTER, what=what, try_less=True)[0]
