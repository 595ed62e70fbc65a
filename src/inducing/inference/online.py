"""Learning from a stream a row at a time, in O(m²), on a basis of limited size. [004 chapters 2-3]

A row (x, y) changes the process through two numbers, q and r, of its likelihood. Either x becomes a basis
function (2.46) or the row is projected on the functions there are (3.29); when the basis is full, the one
whose removal costs least in KL goes (3.19-3.24). The compiled steps are in `online_loops`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ..errors import InducingError, NonFiniteError, ParameterError, ShapeError, require_in, require_one_of
from ..model.kernels.rows import RowKernel
from ..model.likelihoods import Gaussian, Likelihood
from ..model.likelihoods.loops import Asked
from ..model.means import Constant, Zero
from ..model.posterior import Posterior, Score
from ..model.removal import OnlineTerms, check_score, removal_scores
from ..numerics.arrays import Array, as_columns
from ..numerics.linalg import inverse_lower, solve_lower
from ..numerics.workers import blas_for, interruptible, single_threaded_blas
from . import online_loops as loops
from .information import checked_targets, information_gain
from .online_loops import GrowthRule, Seen
from .online_start import checked_rows, common_factors, from_learner, joined, with_outputs

KERNEL_ROWS = 256  # rows whose kernel values are computed together, with the basis and with each other
FIXED_BLOCK = 1024  # the same if the basis does not grow: with the basis only
FEW_COMPUTED = 16  # up to so many rows, kernel values are computed row by row, not in one Gram matrix
TURN = 4096  # rows of a turn; progress is shown after each
REFRESH = 1024  # rows after which the terms of the scores are computed anew; twice the basis if that is more
ONE_ROW = (slice(0, 1),)

Order = Literal["given", "information"]


def update(
    post: Posterior,
    likelihood: Likelihood,
    X: Array,
    y: Array,
    capacity: int | None = 100,
    tolerance: float = 1e-6,
    score: Score = "mean",
    *,
    grow: bool = True,
    order: Order = "given",
) -> Posterior:
    """Return the process after the rows (X, y), read once and in order. [004 §3.6]

    A row joins the basis unless γ, the part of k(x, x) that the basis does not explain, is below tolerance ·
    k(x, x): then it is projected. A tolerance below rounding, some 1e-13, means rounding: 0 gives the exact
    process to about six digits, whatever the order of the rows, on a basis larger than for 1e-6. Beyond
    `capacity` (None: no limit) the function of least score is removed: "mean" [004 eq. 3.26] or "kl" [004 eq.
    3.24]. With grow=False the basis stays and every row is projected [004 §3.6.1]: start from `prior(kernel,
    basis=...)`, or from any batch posterior with an exact test conditional. order="information" reads the row
    with the largest `information_gain` next, at O(n m²) a row [004 §3.8.1].

    `log_predictive` gains Σ log⟨p(y|f)⟩ of the rows, each predicted just before it is read; `log_evidence` is
    None. y may be (n, p) under a Gaussian likelihood. A row that cannot be used raises an error with its
    number, and `post` stays as it was.
    """
    post.require_exact("updating needs")
    X = checked_rows(X, [post])
    y = checked_targets(likelihood, y, X)
    outputs = 1 if y.ndim == 1 else y.shape[1]
    post = with_outputs(post, y)
    if outputs > 1 and not isinstance(likelihood, Gaussian):
        raise ParameterError(f"{outputs} outputs need Gaussian noise, not {likelihood}; use update_together")
    Y = y.reshape(len(X), 1, outputs)
    return Learner([post], likelihood, X.shape[1], capacity, tolerance, score, grow).after(X, Y, order)[0]


def update_together(
    posts: Sequence[Posterior],
    likelihood: Likelihood,
    X: Array,
    Y: Array,
    capacity: int | None = 100,
    tolerance: float = 1e-6,
    score: Score = "mean",
    *,
    grow: bool = True,
    order: Order = "given",
) -> list[Posterior]:
    """Update several processes on one basis, process j by column j of Y (n, c). A function's score is the
    largest among the processes [004 eq. 5.10]; the function of least score is removed. Information gains add.
    """
    posts = list(posts)
    if not posts:
        raise ParameterError("update_together needs at least one process, but got none")
    X = checked_rows(X, posts)
    Y = checked_targets(likelihood, Y, X)
    if Y.shape != (len(X), len(posts)):
        raise ShapeError(f"Y has shape {Y.shape}, but there are {len(X)} rows and {len(posts)} processes")
    learner = Learner(posts, likelihood, X.shape[1], capacity, tolerance, score, grow)
    return learner.after(X, Y[:, :, None], order)


class Learner:
    """Processes on one basis that read rows in place; the posteriors it starts from are copied."""

    def __init__(
        self,
        posts: Sequence[Posterior],
        likelihood: Likelihood,
        d: int,
        capacity: int | None,
        tolerance: float,
        score: Score,
        grow: bool,
    ) -> None:
        if capacity is not None and (isinstance(capacity, bool) or int(capacity) != capacity or capacity < 1):
            raise ParameterError(f"capacity must be a whole number of at least 1, or None, but is {capacity}")
        require_in("tolerance, relative to k(x, x),", tolerance, "[0, 1)")
        check_score(score, online=True)
        if not grow and len(posts[0]) == 0:
            raise ParameterError("a basis that does not grow must not be empty: give prior(k, basis=...)")
        self.posts, self._X = list(posts), np.empty((0, d))  # _X: the rows of the last `open`
        self._means = 1 if all(post.mean_function is posts[0].mean_function for post in posts) else len(posts)
        self._row_prior: np.ndarray | None = None  # prior means of one row, if all rows have the same
        self.block = KERNEL_ROWS if grow else FIXED_BLOCK
        self.change(likelihood)
        self.kernel = posts[0].kernel
        self.capacity, self.tolerance, self.grow = capacity, float(tolerance), grow
        self.scored = grow and capacity is not None
        self.exact = self.scored and score == "kl"
        self.basis, factors, self.jitter = common_factors(self.posts, d)
        self.total = np.array([post.log_predictive or 0.0 for post in posts])
        self.margin = 1.0  # of `GrowthRule`
        self.age = 0  # rows read since `refresh`
        self.events = np.zeros(3, dtype=np.int64)  # rows that projected, grew the basis, replaced a function
        self._changes = 0  # the number of changes that `basis` includes
        m = len(self.basis)
        room = m + (0 if not grow else KERNEL_ROWS if capacity is None else max(capacity - m, 0)) + 1
        self.state = loops.allocate(room, len(posts), posts[0].w.shape[1], self.exact)
        self.state.size[0] = m
        for c, (L, w, A) in enumerate(factors):
            self.state.U[:m, :m] = L.T
            self.state.w[c, :, :m] = w.T
            self.state.A[c, :m, :m] = A
        self.state.places[:m] = np.arange(m)
        if self.scored:
            if not self._resume():
                with blas_for(m):
                    self.refresh()
                    self.start_exact_scores()
            while capacity is not None and self.state.size[0] > capacity:
                loops.remove_one(self.state, int(np.argmin(self.scores())))
            self.collect(self._X)

    def change(self, likelihood: Likelihood) -> None:
        """Use this likelihood for the rows that follow."""
        self.likelihood, self.asked = likelihood, Asked(likelihood)

    @property
    def rule(self) -> GrowthRule:
        """The rule by which the basis may change; without a capacity, the allocated room is the limit."""
        capacity = len(self.state.k) if self.capacity is None else self.capacity
        return GrowthRule(capacity, self.tolerance, self.grow, self.scored, self.margin)

    def after(self, X: np.ndarray, Y: np.ndarray, order: Order) -> list[Posterior]:
        """Read all rows X (n, d) with Y (n, c, p) and return the processes after them."""
        for rows in self.turns(X, Y, order):
            self.read(X[rows], Y[rows])
        return self.posteriors()

    def turns(self, X: np.ndarray, Y: np.ndarray, order: Order) -> Iterator[np.ndarray]:
        """Yield the numbers of the rows to read next, as given, or the most informative row that is left.
        The caller reads them before it asks for more.
        """
        require_one_of("order", order, ("given", "information"))
        left = np.arange(len(X))
        if order == "given":
            yield from np.split(left, range(TURN, len(X), TURN))
            return
        while len(left):
            gain = np.zeros(len(left))
            for c, post in enumerate(self.posteriors()):
                y = Y[left, c, 0] if post.one_output else Y[left, c]
                gain += information_gain(post, self.likelihood, X[left], y)
            i = int(np.argmax(gain))
            yield left[i : i + 1]
            left = np.delete(left, i)

    def read(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        """Read rows X (n, d) with Y (n, c, p) in order. After an error the learner must not be used again."""
        parts = [Seen.nothing(0, *Y.shape[1:])]
        for start in range(0, len(X), self.block):
            rows = slice(start, start + self.block)
            self.open(X[rows], Y[rows])
            parts.append(self.advance(len(X[rows])))
        return parts[1] if len(parts) == 2 else Seen(*map(np.concatenate, zip(*parts)))

    def open(self, X: np.ndarray, Y: np.ndarray) -> None:
        """Compute the kernel values and prior means of rows X (n, d) with Y (n, c, p), at most `block` of
        them, for `advance` to read.
        """
        if self.age > max(REFRESH, 2 * len(self.basis)):
            with blas_for(len(self.basis)):
                self.refresh()
        self.make_room(len(X))
        if len(X) == 1:
            K, kss = self._kernel_rows(X), self._row_kernel.diag(X)
        else:
            with single_threaded_blas():  # for the kernel: a block is too small to share out
                K = np.ascontiguousarray(self._kernel_rows(X), dtype=float)
            kss = np.asarray(self.kernel.diagonal(X), dtype=float)
        self._rows, self._X, self._done = loops.StreamRows(K, kss, self._prior_means(X, Y), Y), X, 0
        self._seen = Seen(np.empty(Y.shape), np.empty(Y.shape[:2]), np.empty(Y.shape[:2]))

    @cached_property
    def _row_kernel(self) -> RowKernel:
        return RowKernel(self.kernel, self._X.shape[1])

    def _prior_means(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """Return the prior means of rows X for each process and output, in the shape of Y. (n, c, p)"""
        if len(X) == 1 and self._row_prior is not None:
            return self._row_prior
        means = [np.asarray(post.mean_function(X), dtype=float) for post in self.posts[: self._means]]
        prior = np.stack([as_columns(v) for v in means], axis=1)  # (b, 1 or c, 1 or p)
        prior = np.ascontiguousarray(np.broadcast_to(prior, Y.shape))
        if len(X) == 1 and all(type(post.mean_function) in (Zero, Constant) for post in self.posts):
            self._row_prior = prior
        return prior

    def advance(self, n: int) -> Seen:
        """Read the next n rows of the last `open` and return their predictions."""
        first, asked = self._done, self.asked
        last = first + n
        given = self.state, self._rows, asked.at, asked.theta, np.empty(3), self._seen, self.events, self.rule
        read = first
        for some in interruptible(n, loops.row_work(self.state)) if n > 1 else ONE_ROW:
            if read == first + some.start and asked.error is None:
                read = loops.run(*given, first + some.start, first + some.stop)
        if asked.error is not None and not isinstance(asked.error, InducingError):
            raise asked.error
        if asked.error is not None:
            message = f"row {self.events.sum()} of the stream cannot be used: {asked.error}"
            raise type(asked.error)(message) from asked.error
        if read < last:
            raise NonFiniteError(
                f"row {self.events.sum()} leaves no valid process: {self.likelihood} gave q = "
                f"{self.state.q.ravel()} and r = {self.state.r} at variance {self.state.variance}; check its "
                "y and the kernel there, or use a likelihood with more noise"
            )
        seen = Seen(*(part[first:last] for part in self._seen))
        self.total += np.sum(seen.log_density, axis=0) if n > 1 else seen.log_density[0]
        self.age, self._done = self.age + n, last
        if last == len(self._X):
            self.collect(self._X)
        return seen

    def mean(self, x: np.ndarray) -> np.ndarray:
        """Return each process's mean at a row (1, d), after all rows of the last `open` are read. (c, p)"""
        m, Z = self.state.size[0], self.basis.parameters.get("Z")
        k = self.basis.cross(self.kernel, x)[0] if Z is None else self._row_kernel.cross(x, Z)
        w = self.state.w[:, :, :m]
        prior = self._prior_means(x, np.empty((1, *w.shape[:2])))[0]
        return prior + w @ solve_lower(self.state.U[:m, :m].T, k)

    def posteriors(self) -> list[Posterior]:
        """Copy the processes as they are now."""
        self.collect(self._X)
        m, state, posts = self.state.size[0], self.state, []
        for c, post in enumerate(self.posts):
            factors = state.U[:m, :m].T, state.w[c, :, :m].T, state.A[c, :m, :m]
            L, w, A = (part.copy("C") for part in factors)
            terms = OnlineTerms((L, w, A), tuple(v.copy() for v in self._score_terms(c)), self.age)
            changes: dict[str, Any] = dict(basis=self.basis, L=L, w=w, A=A, jitter=self.jitter, online=terms)
            changes |= dict(log_evidence=None, sites=None, log_predictive=float(self.total[c]))
            posts.append(replace(post, **changes))
        return posts

    def _score_terms(self, c: int) -> list[np.ndarray]:
        """Return the terms of process c's scores as views of the state: α, C + Q, Q and, for "kl", N; none if
        its scores do not count.
        """
        m, state = self.state.size[0], self.state
        if not (self.scored and state.size[1] <= c < state.size[2]):
            return []
        terms = [state.alpha[c, :, :m], state.CQ[c, :m], state.Q[:m]]
        return [*terms, state.N[c, :m, :m]] if self.exact else terms

    def _kernel_rows(self, X: np.ndarray) -> np.ndarray:
        """Return the kernel of rows with the basis and, if that grows, each other. (b, m) or (b, m + b)"""
        m, Z = len(self.basis), self.basis.parameters.get("Z")
        if self.grow and Z is not None and (self._row_kernel.compiled or len(X) == 1):
            return self._row_kernel.rows(X, Z)  # by differences: small values keep their digits
        if self.grow and len(X) <= FEW_COMPUTED:  # row by row, O(m), for the same reason
            K = np.zeros((len(X), m + len(X)))
            for i in range(len(X)):
                x = X[i : i + 1]
                K[i, :m] = self.basis.cross(self.kernel, x)[0] if Z is None else self._row_kernel.cross(x, Z)
            if len(X) > 1:
                K[:, m:] = self.kernel.covariances(X, X)
            return K
        if not self.grow:
            return np.ascontiguousarray(self.basis.cross(self.kernel, X), dtype=float)
        # by one Gram matrix, computed as the one that L is the factor of
        return joined(self.kernel, self.basis, np.arange(m), X).gram(self.kernel)[m:]

    def collect(self, X: np.ndarray, counted: bool = True) -> None:
        """Update `basis` after a block X: drop the functions that were removed, append the rows that joined.
        `events` say whether there were any, unless the steps were not `counted` there.
        """
        m, old, changes = self.state.size[0], len(self.basis), self.events[1] + self.events[2]
        if counted and m == old and changes == self._changes:
            return
        places, self._changes = self.state.places[:m], changes
        kept, new = places[places < old], places[places >= old] - old
        self.basis = joined(self.kernel, self.basis, kept, X[new])
        places[...] = np.arange(m)

    def make_room(self, rows: int) -> None:
        """Move to a larger state if `rows` more functions might not fit, which a capacity rules out."""
        old, m = self.state, len(self.basis)
        if not self.grow or self.capacity is not None or m + rows + 1 <= len(old.k):
            return
        self.state = loops.allocate(max(2 * m, m + rows + 1), len(self.posts), old.w.shape[1], self.exact)
        self.state.size[0] = m
        self.state.places[:m] = old.places[:m]
        self.state.U[:m, :m] = old.U[:m, :m]
        self.state.A[:, :m, :m] = old.A[:, :m, :m]
        self.state.w[:, :, :m] = old.w[:, :, :m]

    def _resume(self) -> bool:
        """Copy the terms of the scores from the processes; return False if a process has none. O(m²)"""
        terms = [post.online for post in self.posts if post.online and from_learner(post)]
        if len(terms) < len(self.posts) or any(len(t.scores) < 3 + self.exact for t in terms):
            return False
        for c, t in enumerate(terms):
            for ours, theirs in zip(self._score_terms(c), t.scores):
                ours[...] = theirs
        self.age = max(t.age for t in terms)
        return True

    def forget(self, kept: Sequence[float]) -> None:
        """Discount the sites of process c, S⁻¹ - I and S⁻¹w, to kept[c] = ρ of what they were. O(m³)

            S ← (ρS⁻¹ + (1 - ρ)I)⁻¹ = A G⁻¹Aᵀ,   G = ρI + (1 - ρ)AᵀA;   w ← w - (1 - ρ)Sw with that S

        The result is the process of the same rows, each counted ρ times; for ρ → 0 it is the prior.
        """
        m, state = self.state.size[0], self.state
        work = np.empty((2, m, m))
        for c, rho in enumerate(kept):
            if rho < 1.0 and m:
                if not loops.discount(state, c, float(rho), *work):
                    raise NonFiniteError(f"the covariance of process {c} is not positive definite; fit again")
                if self.exact:
                    state.N[c, :m, :m] *= rho  # it is L⁻ᵀ(S⁻¹ - I)L⁻¹
        if min(kept[state.size[1] : state.size[2]]) < 1.0:
            self.refresh()

    def judge(self, first: int, last: int) -> None:
        """Let only the scores of processes `first` up to `last` count in removals; at first all do."""
        if (first, last) != (self.state.size[1], self.state.size[2]):
            self.state.size[1:] = first, last
            self.refresh()
            self.start_exact_scores()

    def refresh(self) -> None:
        """Compute the terms of the scores anew, to end rounding drift: α and the diagonals of Q and C + Q."""
        m, state = self.state.size[0], self.state
        self.age = 0
        if m == 0 or not self.scored:
            return
        Linv = inverse_lower(np.ascontiguousarray(state.U[:m, :m].T))
        state.Q[:m] = np.sum(Linv * Linv, axis=0)
        for c in range(state.size[1], state.size[2]):
            F = state.A[c, :m, :m].T @ Linv  # C + Q = FᵀF
            state.CQ[c, :m] = np.sum(F * F, axis=0)
            state.alpha[c, :, :m] = state.w[c, :, :m] @ Linv

    def start_exact_scores(self) -> None:
        """Compute N = -S = Q(C + Q)⁻¹Q - Q for "kl"; later steps update it. [004 §D.2]"""
        m, state = self.state.size[0], self.state
        if not self.exact or m == 0:
            return
        Linv = inverse_lower(np.ascontiguousarray(state.U[:m, :m].T))
        for c in range(state.size[1], state.size[2]):
            G = np.linalg.solve(state.A[c, :m, :m], Linv)
            state.N[c, :m, :m] = G.T @ G - Linv.T @ Linv

    def scores(self) -> np.ndarray:
        """Return the removal score of each basis function, the largest over the processes. (m,)"""
        each = []
        for c in range(self.state.size[1], self.state.size[2]):
            alpha, CQ, Q, *N = self._score_terms(c)
            blocks = [v[:, None, None] for v in (CQ, Q, *map(np.diagonal, N))]  # (m, 1, 1)
            each.append(removal_scores(alpha.T[:, None, :], *blocks))
        return np.max(each, axis=0)
