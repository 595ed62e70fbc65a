"""The one posterior: a Gaussian process that leans on m basis functions. [004 Lemma 2.3.1, eqs 2.44-2.45]

    mean(x)    = m0(x) + k_u(x)ᵀ α
    cov(x, x') = k(x, x') + k_u(x)ᵀ C k_u(x')

Every method makes one of these; pruning and updating turn one into another; predicting, sampling and
comparing use it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from ..errors import (
    ConditionalError,
    FactorisationError,
    NegativeVarianceWarning,
    ParameterError,
    ReducedBasisWarning,
    ShapeError,
    UnknownNameError,
)
from ..numerics.arrays import SMALL, Array, is_numpy, namespace, to_numpy, zeros_like_rows
from ..numerics.linalg import (
    cholesky,
    cholesky_escalating,
    contiguous,
    gram,
    identity,
    inverse_lower,
    jittered,
    log_det_from_factor,
    reverse_cholesky,
    row_squares,
    solve_lower,
    times_lower,
)
from ..numerics.workers import blas_for, chunk_rows, row_slices, run_over
from .bases import Basis, union
from .kernels.base import Kernel
from .means import Mean, Zero
from .problem import DEFAULT_JITTER, as_inputs, queries_like
from .table import Conditional

Score = Literal["mean", "kl"]
SPAN = 1e-12  # a basis function with γ below this share of its prior variance lies in the span of the others


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
    K + Σ and A is None (nothing). A variance from these factors keeps the digits that an explicit C loses.
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
    log_predictive: float | None = None  # Σ log⟨p(y|f)⟩ of the rows read online, each before it was read
    # propagation.Sites: what each row's likelihood became under expectation propagation, to go on from
    sites: Any = None

    def __len__(self) -> int:
        return len(self.basis)

    @cached_property
    def _Linv(self) -> Array:
        return inverse_lower(self.L)

    @cached_property
    def _alpha(self) -> Array:
        return solve_lower(self.L, self.w, transposed=True)  # (m, p)

    @property
    def alpha(self) -> Array:
        """α: the mean's coefficients. (m,) or (m, p)"""
        return self._alpha[:, 0] if self.one_output else self._alpha

    @cached_property
    def C(self) -> Array:
        """The covariance's coefficients. (m, m)"""
        I = identity(self.L)
        middle = -I if self.A is None else self.A @ self.A.T - I
        return self._Linv.T @ middle @ self._Linv

    def features(self, X: Array) -> Array:
        """φ of each row. (n, m)"""
        if len(self) == 0:
            return zeros_like_rows((X.shape[0], 0), X)
        return times_lower(contiguous(self.basis.cross(self.kernel, X)), self._Linv, transposed=True)

    def mean(self, X: Any) -> Array:
        """The mean alone: O(m) per row, no variance work. (n,) or (n, p)"""
        X = self._inputs(X)

        def rows(s: slice) -> Array:
            return (
                self.basis.cross(self.kernel, X[s]) @ self._alpha
                if len(self)
                else zeros_like_rows((_size(s), self.w.shape[1]), X)
            )

        return self._add_prior_mean(X, self._in_chunks(X, rows))

    def predict(self, X: Any) -> Marginals:
        """Mean and variance of each f(x) on its own; `covariance` gives them jointly. In chunks, O(m²) per
        row.
        """
        X = self._inputs(X)
        variance = zeros_like_rows((X.shape[0],), X)
        T = self._root

        def rows(s: slice) -> Array:
            prior = 0.0 if self.conditional == "deterministic" else self.kernel.diag(X[s])
            if T is None:  # no information yet, or a covariance above the prior's: both terms apart
                Phi = self.features(X[s])
                variance[s] = prior - row_squares(Phi) + row_squares(Phi @ self.A)
                return Phi @ self.w
            K = contiguous(self.basis.cross(self.kernel, X[s]))
            mean = K @ self._alpha
            squares = row_squares(times_lower(K, T, transposed=True))
            variance[s] = squares if self.conditional == "deterministic" else prior - squares
            return mean

        mean = self._in_chunks(X, rows)
        warn_if_negative(variance)
        return Marginals(self._add_prior_mean(X, mean), variance)

    @cached_property
    def _root(self) -> Array | None:
        """Lower triangular T with var(x) = k(x, x) - |T k_u(x)|², one triangular product per row; None if
        there is none.

        TᵀT = -C = L⁻ᵀ(I - AAᵀ)L⁻¹. A degenerate process has var(x) = |T k_u(x)|² with T = AᵀL⁻¹.
        """
        if len(self) == 0:
            return None
        if self.A is None:
            return self._Linv
        if self.conditional == "deterministic":
            return times_lower(contiguous(self.A.T + 0.0), self._Linv)  # a copy, even of a single number
        try:
            U = reverse_cholesky(identity(self.L) - self.A @ self.A.T)
        except FactorisationError:
            return None
        return times_lower(U, self._Linv)

    def compile(self) -> Any:
        """A predictor of single queries in microseconds: `compile()(x)` is (mean, variance). See `compiled`."""
        from .compiled import CompiledPredictor

        return CompiledPredictor.of(self)

    def covariance(self, X: Any) -> Array:
        """Joint covariance of f(X). (n, n)

        With an exact test conditional it is option 1 of [003 §6]; FIC's keeps only the diagonal of R, so two
        equal rows are two different variables there. [003 Remark 7, δ by index]
        """
        X = self._inputs(X)
        Phi = self.features(X)
        joint = 0.0 if self.A is None else gram(contiguous((Phi @ self.A).T))
        if self.conditional == "exact":
            joint = joint + self.kernel(X, X) - gram(contiguous(Phi.T))
        elif self.conditional == "independent":
            R = self.kernel.diag(X) - row_squares(Phi)
            joint = joint + R * identity(joint)
        return joint

    def sample(self, X: Any, size: int = 1, rng: Any = None) -> np.ndarray:
        """Draws of f(X) from the joint. (size, n) or (size, n, p)"""
        X = self._inputs(X)
        mean, covariance = to_numpy(self.mean(X)), to_numpy(self.covariance(X))
        values, vectors = np.linalg.eigh(
            covariance
        )  # semi-definite when rows repeat or the process is degenerate
        root = vectors * np.sqrt(np.clip(values, 0.0, None))
        shape = (size, *mean.shape)
        z = np.random.default_rng(rng).standard_normal(shape)
        return mean + np.einsum("ij,sj...->si...", root, z)

    def gradient(self, X: Any) -> Array:
        """d mean / d x at each row, for control. (n, d) or (n, d, p)"""
        X = self._inputs(X)
        xp = namespace(X)
        slopes = [self._slope(X, q) for q in range(self.w.shape[1])]
        return slopes[0] if self.one_output else xp.stack(slopes, axis=2)

    def _slope(self, X: Array, q: int) -> Array:
        prior = self.mean_function.input_gradient(X, q)
        if len(self) == 0:
            return prior
        return prior + self.basis.input_gradient(self.kernel, X, self._alpha[:, q])

    # Transforming it. In the parametrisation P = (C + Q)⁻¹, b = Pα with Q = Kuu⁻¹, the KL-optimal process on
    # fewer basis
    # functions has P and b with the other rows and columns deleted. [004 eqs 3.18, 3.20]

    def removal_scores(self, score: Score = "mean") -> np.ndarray:
        """What removing each basis function would cost, in KL units (half of 004's ε).

        "mean": ½ α²/(q + c), the change of the mean alone [004 eq. 3.26]; "kl": ½ [α²/(q + c) - s/q + log(1 +
        c/q)] with S = (C⁻¹ + Kuu)⁻¹, the whole KL(pruned || this) [004 eq. 3.24].
        """
        self._require_exact("removal scores need")
        return _Removal(self, score).scores()

    def remove(self, i: int) -> Posterior:
        """The closest process that does not use basis function i, in KL(new || old). [004 eqs 3.19, 3.21]"""
        self._require_exact("removal needs")
        if not -len(self) <= i < len(self):
            raise ParameterError(f"there is no basis function {i} among {len(self)}")
        return self._keep(np.delete(np.arange(len(self)), i))

    def prune(self, capacity: int, score: Score = "mean") -> Posterior:
        """The process with at most `capacity` basis functions: the one of least score goes first,
        KL-optimally, repeatedly.
        """
        self._require_exact("pruning needs")
        if capacity < 1:
            raise ParameterError(f"capacity must be at least 1, but is {capacity}")
        removal = _Removal(self, score)
        while len(removal.kept) > capacity:
            removal.drop(int(np.argmin(removal.scores())))
        return self if capacity >= len(self) else self._keep(removal.kept)

    def _keep(self, kept: np.ndarray) -> Posterior:
        """The KL-optimal process on the basis functions `kept`: P and b restricted to them."""
        Luu, precision, w = self._whitened_precision()
        L = cholesky(Luu[kept] @ Luu[kept].T)
        T = solve_lower(L, Luu[kept])  # P = Luu precision Luuᵀ, so B = L⁻¹PL⁻ᵀ = T precision Tᵀ
        LB = cholesky(T @ precision @ T.T)
        Ainv = inverse_lower(LB)
        w = Ainv.T @ (Ainv @ (T @ (precision @ w)))
        return replace(
            self,
            basis=self.basis[kept],
            L=L,
            w=w,
            A=np.ascontiguousarray(Ainv.T),
            log_evidence=None,
            sites=None,
        )

    def _whitened_precision(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Luu, and precision (I + LuuᵀC Luu)⁻¹ and mean Luuᵀα of Luu⁻¹u."""
        Luu = _prior_factor(self.kernel, self.basis, self.jitter)
        mean, S = _whitened(self, np.arange(len(self)), Luu)
        return Luu, gram(inverse_lower(cholesky(S))), mean

    def _require_exact(self, what: str) -> None:
        if self.conditional != "exact":
            raise ConditionalError(
                f"{what} an exact test conditional, but this process has a {self.conditional} one (SoR and "
                "FIC do): its KL to "
                "any pruned process is infinite; condition with 'dtc' or 'fitc' instead"
            )

    def _inputs(self, X: Any) -> Array:
        if len(self) == 0:
            return as_inputs(X)
        return queries_like(X, next(iter(self.basis.parameters.values())))

    def _in_chunks(self, X: Array, rows: Any) -> Array:
        """(n, p) from a function of a slice, chunk by chunk, on all cores."""
        out = zeros_like_rows((X.shape[0], self.w.shape[1]), X)
        _ = self._Linv, self._alpha  # made once, before the threads ask

        def step(_: None, s: slice) -> None:
            out[s] = rows(s)

        tasks = row_slices(X.shape[0], chunk_rows(X.shape[0], len(self), X))
        parallel = is_numpy(X) and X.shape[0] * max(len(self), 1) >= SMALL
        with blas_for(len(self)):
            run_over(tasks, lambda: None, step, parallel=parallel)
        return out

    def _add_prior_mean(self, X: Array, out: Array) -> Array:
        m0 = self.mean_function(X)
        out += m0 if m0.ndim == 2 else m0[:, None]
        return out[:, 0] if self.one_output else out


def _size(s: slice) -> int:
    return s.stop - s.start


def warn_if_negative(variance: Array) -> None:
    """Rounding may leave -1e-16; anything worth more is reported, never clipped."""
    xp = namespace(variance)
    if variance.shape[0] == 0:
        return
    count = int(xp.sum(xp.asarray(variance < -1e-6 * xp.max(xp.abs(variance)), dtype=xp.int64)))
    if count:
        warnings.warn(
            f"{count} of {variance.shape[0]} predicted variances are negative beyond rounding; they are "
            "returned as computed",
            NegativeVarianceWarning,
            stacklevel=3,
        )


class _Removal:
    """Scores of the basis functions still kept, down-dated in O(m²) as functions are dropped. [004 eqs
    3.19-3.24, D.2]
    """

    def __init__(self, post: Posterior, score: Score) -> None:
        if score not in ("mean", "kl"):
            raise UnknownNameError(f"there is no removal score {score!r}; choose 'mean' or 'kl'")
        Luu, precision, w = post._whitened_precision()
        Linv = inverse_lower(Luu)
        self.score = score
        self.kept = np.arange(len(post))
        self.alpha = Linv.T @ w
        self.CQ = Linv.T @ np.linalg.solve(precision, Linv)  # C + Q
        self.Q = gram(Linv)
        self.N = Linv.T @ (precision - identity(Luu)) @ Linv  # -S = Q(P - Kuu)Q

    def scores(self) -> np.ndarray:
        cq, q = np.diag(self.CQ), np.diag(self.Q)
        scores = 0.5 * np.sum(self.alpha**2, axis=1) / cq
        if self.score == "kl":
            scores = scores + 0.5 * self.alpha.shape[1] * (np.diag(self.N) / q + np.log(cq / q))
        return scores

    def drop(self, i: int) -> None:
        rest = np.arange(len(self.kept)) != i
        square = np.ix_(rest, rest)
        cq, q, n = self.CQ[rest, i], self.Q[rest, i] / self.Q[i, i], self.N[rest, i]
        self.alpha = self.alpha[rest] - np.outer(cq, self.alpha[i]) / self.CQ[i, i]
        self.CQ = self.CQ[square] - np.outer(cq, cq) / self.CQ[i, i]
        self.N = self.N[square] - np.outer(q, n) - np.outer(n, q) + self.N[i, i] * np.outer(q, q)
        self.Q = self.Q[square] - np.outer(q, q) * self.Q[i, i]
        self.kept = self.kept[rest]


def prior(kernel: Kernel, mean: Mean | None = None, basis: Basis | None = None) -> Posterior:
    """The process before any data: a Posterior on an empty basis, or with α = 0 and C = 0 on a given one.
    [004 §3.6.1]

    Functions of the given basis that lie in the span of those before them are left out, with a warning.
    """
    from .bases import Points

    if basis is None:
        empty = np.zeros((0, 0))
        return Posterior(kernel, Points(empty), empty, np.zeros((0, 1)), empty, mean or Zero())
    basis.check(kernel)
    K = to_numpy(basis.gram(kernel))
    kept, L = _independent(K)
    if len(kept) < len(basis):
        warnings.warn(
            f"{len(basis) - len(kept)} of {len(basis)} basis functions lie in the span of the others and "
            "were left out",
            ReducedBasisWarning,
            stacklevel=2,
        )
    w = np.zeros((len(kept), 1))
    return Posterior(kernel, basis[kept], L, w, np.eye(len(kept)), mean or Zero(), jitter=0.0)


def _independent(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the functions with γ above rounding, taken in order, and the factor of their Gram matrix.
    [004 eq. C.6]
    """
    m = len(K)
    try:
        L = cholesky(K)
        if np.all(np.diag(L) ** 2 > SPAN * np.diag(K)):
            return np.arange(m), L
    except FactorisationError:
        pass
    kept: list[int] = []
    L = np.zeros((m, m))
    for j in range(m):
        h = len(kept)
        phi = solve_lower(L[:h, :h], K[kept, j])
        gamma = K[j, j] - phi @ phi
        if gamma > SPAN * K[j, j]:
            L[h, :h], L[h, h] = phi, np.sqrt(gamma)
            kept.append(j)
    return np.array(kept, dtype=int), np.ascontiguousarray(L[: len(kept), : len(kept)])


def kl_divergence(first: Posterior, second: Posterior) -> float:
    """KL(first || second) between two processes that share a kernel and a prior mean. [004 eq. 3.15]

    Both are written on the union of their bases; in whitened coordinates each is N(Lᵀα, I + LᵀCL), and the KL
    between the processes is the KL between these two Gaussians.
    """
    for post in (first, second):
        post._require_exact("a KL divergence needs")
    if first.kernel.spec() != second.kernel.spec():
        raise ParameterError(
            "the KL divergence compares processes with the same kernel; these two have different ones"
        )
    if first.mean_function.spec() != second.mean_function.spec():
        raise ParameterError(
            "the KL divergence compares processes with the same prior mean; these two have different ones"
        )
    if first.w.shape[1] != second.w.shape[1]:
        raise ShapeError(
            f"the processes have {first.w.shape[1]} and {second.w.shape[1]} outputs; the numbers must agree"
        )
    basis, *places = union(first.kernel, first.basis, second.basis)
    if len(basis) == 0:
        return 0.0
    L = _prior_factor(first.kernel, basis, max(first.jitter, second.jitter))
    (mean1, S1), (mean2, S2) = (
        _whitened(post, place, L) for post, place in zip((first, second), places, strict=True)
    )
    L1, L2 = cholesky(S1), cholesky(S2)
    half = solve_lower(L2, L1)
    shift = solve_lower(L2, mean2 - mean1)
    outputs = mean1.shape[1]
    trace = np.sum(half**2) - len(basis)
    return float(
        0.5 * (np.sum(shift**2) + outputs * (trace - log_det_from_factor(L1) + log_det_from_factor(L2)))
    )


def _whitened(post: Posterior, place: np.ndarray, L: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lᵀα and I + LᵀCL of `post` written on a basis with factor L, where its functions have the numbers
    `place`.
    """
    part = L[place]  # with α padded by zeros, Lᵀα = partᵀα
    H = solve_lower(to_numpy(post.L), part)  # LᵀCL = Hᵀ(AAᵀ - I)H
    S = identity(L) - gram(np.ascontiguousarray(H))
    if post.A is not None:
        S = S + gram(np.ascontiguousarray(to_numpy(post.A).T @ H))
    return part.T @ to_numpy(post._alpha), S


def _prior_factor(kernel: Kernel, basis: Basis, jitter: float) -> np.ndarray:
    """Factor of Kuu with as little jitter as it takes: (α, C) define the process, and its KL is about k
    itself.
    """
    K = to_numpy(basis.gram(kernel))
    jitter = jitter or DEFAULT_JITTER
    for little in (0.0, 1e-4 * jitter, 1e-2 * jitter):
        try:
            return cholesky(jittered(K, little))
        except FactorisationError:
            continue
    return cholesky_escalating(K, jitter, what="the prior covariance of the basis")[0]
