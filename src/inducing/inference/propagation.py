"""Expectation propagation: sweeps over the rows until their order no longer matters. [004 chapter 4]

Every row's likelihood becomes a Gaussian factor, its site. A visit removes the row's site from the process
(4.36), which leaves the cavity, and adds the site that gives the cavity the same moments as the likelihood
itself (4.18). A basis that is found among the rows changes in the first two sweeps only [004 §5.2]; until
then a site acts on the row's projection on the current basis, which is kept and rotated with it (4.30).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ..engine.site_loops import sweep_rows
from ..engine.sites import Processes
from ..errors import ParameterError, require_in, require_one_of
from ..model.bases import Basis, Points
from ..model.kernels.base import Kernel
from ..model.likelihoods import Likelihood
from ..model.means import Mean, Zero
from ..model.posterior import Posterior, Score
from ..model.problem import DEFAULT_JITTER, as_rows
from ..model.table import Sites
from ..numerics.ahead import expect
from ..numerics.arrays import Array, as_columns, to_numpy
from ..numerics.linalg import cholesky_escalating
from ..numerics.workers import blas_for, interruptible
from . import online_loops
from . import propagation_loops as loops
from .information import checked_targets
from .online import KERNEL_ROWS, Learner
from .online_loops import row_work

FINEST_BASIS = 1e-11  # the least tolerance: projections on closer functions would be rounding

Posteriors = Any  # a Posterior, or one for each column of labels


def expectation_propagation(
    kernel: Kernel,
    likelihood: Likelihood,
    X: Array,
    y: Array,
    capacity: int | None = 100,
    basis: Basis | None = None,
    sweeps: int = 10,
    tolerance: float = 1e-6,
    *,
    mean: Mean | None = None,
    damping: float = 1.0,
    freeze_after: int = 2,
    convergence: float = 1e-8,
    score: Score = "mean",
    jitter: float = DEFAULT_JITTER,
    start: Posterior | Sequence[Posterior] | None = None,
    approximation: Literal["fitc", "dtc"] = "fitc",
) -> Posteriors:
    """Return the posterior of f given labels, counts or other y, with `sites`, `log_evidence`. [004 §4.6]

    Without `basis`, one is found among the rows, as by `update`, with at most `capacity` functions (None: no
    limit): a row joins unless its γ is below tolerance · k(x, x), the function of least `score` is removed,
    and the basis may change in the first `freeze_after` sweeps. With `basis`, γ counts as noise of the row
    ("fitc"), or each likelihood is taken to depend on the row's projection alone ("dtc", 004 §4.4): sharper,
    so that it often errs less and is surer of itself. Sweeps end after `sweeps`, or when no site moved by
    more than `convergence` in units of its row's spread. With damping < 1 a site moves only this share of the
    way to its new value, from its second visit on. A row without a proper cavity (if others have τ < 0) gives
    up part of its site until it has one.

    y (n,) gives a Posterior; y (n, c) a list of c, one for each column, on one basis (5.10). `start` is the
    result of an earlier call for the same rows, to continue from.
    """
    X, one = _rows(X), np.ndim(y) == 1
    Y = checked_targets(likelihood, y, X)
    require_in("tolerance, relative to k(x, x),", tolerance, "[0, 1)")
    require_in("damping", damping, "(0, 1]")
    Y = np.ascontiguousarray(as_columns(Y), dtype=float)
    require_one_of("approximation", approximation, ("fitc", "dtc"))
    if approximation == "dtc" and basis is None and start is None:
        raise ParameterError("approximation='dtc' needs a basis that stays: give one as basis=")
    posts = None if start is None else [start] if isinstance(start, Posterior) else list(start)
    of_rows = likelihood, X, Y, mean or Zero()
    if posts is not None:
        if posts[0].kernel.spec() != kernel.spec():
            raise ParameterError("start has another kernel; from_sites gives its sites to this one")
        run = Processes.resumed(posts, likelihood, X, Y)
    elif basis is not None:
        basis = basis.on(X)
        basis.check(kernel)
        L, jitter = cholesky_escalating(basis.gram(kernel), jitter)
        run = Processes(kernel, basis, L, *of_rows, 1.0, jitter, approximation == "dtc")
    else:
        expect(sweep_rows.name, surely=True)
        run = Processes(kernel, Points(X[:0]), np.empty((0, 0)), *of_rows, 0.0, 0.0)
    before = run.n_sweeps
    with blas_for(max(len(run.basis), min(capacity or len(X), len(X)))):
        if run.share == 0.0 and run.n_sweeps < min(freeze_after, before + sweeps):
            growth = _Growth(run, capacity, tolerance, score)
            while run.n_sweeps < min(freeze_after, before + sweeps):
                growth.sweep(damping)
        run.converged = False
        while run.n_sweeps < before + sweeps and not run.converged:
            run.converged = run.sweep(damping if run.n_sweeps else 1.0) <= convergence
        posts = run.posteriors()
    return posts[0] if one else posts


def expects(last: str, sweeps: bool = True) -> None:
    """Compile ahead for rows that will be read by EP (`last` is "ep") or online, perhaps after `sweeps`."""
    reads = loops.sweep_and_grow if last == "ep" else online_loops.run
    expect(reads.name, *([sweep_rows.name] if sweeps else []), surely=True)


def from_sites(kernel: Kernel, basis: Basis, sites: Sites, X: Array) -> Posterior:
    """Make the process of given sites, with a prior mean of 0. [004 eqs 4.25, 4.34]

    α = Pᵀ(Λ⁻¹ + PKPᵀ)⁻¹a,   C = -Pᵀ(Λ⁻¹ + PKPᵀ)⁻¹P
    """
    X = _rows(X)
    basis = basis.on(X)
    L, jitter = cholesky_escalating(basis.gram(kernel), 0.0)
    run = Processes(kernel, basis, L, None, X, np.zeros((len(X), 1)), Zero(), sites.share, jitter)
    run.take([sites])
    return run.posteriors(evidence=False)[0]


def _rows(X: Array) -> np.ndarray:
    return np.ascontiguousarray(to_numpy(as_rows(X)), dtype=float)


class _Growth:
    """Sweeps in which the basis changes: online learning that removes old sites from the second sweep on."""

    def __init__(self, run: Processes, capacity: int | None, tolerance: float, score: Score) -> None:
        n, m = len(run.X), len(run.basis)
        limit = None if capacity is None or capacity >= n else capacity
        if limit is not None and m > limit:
            raise ParameterError(f"capacity is {limit}, but start has {m} basis functions; prune it")
        self.run = run
        posts = [replace(post, sites=None) for post in run.posteriors(evidence=False)]
        d, tolerance = run.X.shape[1], max(tolerance, FINEST_BASIS)
        self.learner = Learner(posts, run.likelihood, d, limit, tolerance, score, True)
        cheapest = np.sqrt(n * (limit or n)) / KERNEL_ROWS  # about
        self.epoch = KERNEL_ROWS * int(np.clip(cheapest, 1, 16))  # rows of an epoch
        self.Pi = np.zeros((n, n if limit is None else limit))  # projections of the rows on the basis
        if m:
            self.Pi[:, :m] = np.concatenate([Phi for _, Phi, _ in run.chunks()]) if run.Pi is None else run.Pi

    def sweep(self, damping: float) -> None:
        """Visit every row once."""
        run, learner, n = self.run, self.learner, len(self.run.X)
        changes = np.zeros(1, dtype=np.int64)
        for first in range(0, n, self.epoch):
            self._epoch(slice(first, min(first + self.epoch, n)), damping if run.n_sweeps else 1.0, changes)
            learner.refresh()
        m, state = learner.state.size[0], learner.state
        run.n_sweeps, run.changes = run.n_sweeps + 1, (*run.changes, int(changes[0]))
        run.move(learner.basis, np.ascontiguousarray(state.U[:m, :m].T), np.ascontiguousarray(self.Pi[:, :m]))
        state.A[:, :m, :m], state.w[:, 0, :m] = run.A, run.w
        learner.refresh()
        learner.start_exact_scores()

    def _epoch(self, rows: slice, rate: float, changes: np.ndarray) -> None:
        """Visit some rows in order; then rotate the projections of all others as the basis was."""
        learner, Pi, again = self.learner, self.Pi, self.run.n_sweeps > 0
        m, size = len(learner.basis), rows.stop - rows.start
        T = np.zeros((m + size + 1 if learner.capacity is None else len(learner.state.k), m + size))
        T[np.arange(m), np.arange(m)] = 1.0
        for first in range(rows.start, rows.stop, KERNEL_ROWS):
            block = slice(first, min(first + KERNEL_ROWS, rows.stop))
            learner.make_room(block.stop - first)
            work = np.empty_like(learner.state.places)
            turns = loops.Turns(T, m + first - rows.start, changes, work)
            self._block(turns, Pi[block, :m].copy(), block, rate, again)
        now = learner.state.size[0]
        Pi[rows, :now] = T[:now, m:].T
        if not np.array_equal(T[:now, :m], np.eye(now, m)):
            for others in (slice(0, rows.start), slice(rows.stop, len(Pi) if again else rows.stop)):
                Pi[others, :now] = Pi[others, :m] @ T[:now, :m].T

    def _block(self, turns: loops.Turns, Pi: np.ndarray, rows: slice, rate: float, again: bool) -> None:
        run, learner, X = self.run, self.learner, self.run.X[rows]
        known = learner.basis.cross(run.kernel, X) if len(learner.basis) else np.empty((len(X), 0))
        K = np.concatenate([known, run.kernel.covariances(X, X)], axis=1)
        kss = np.asarray(run.kernel.diagonal(X), dtype=float)
        data = loops.SiteRows(Pi, run.tau[rows], run.nu[rows], K, kss, run.prior[rows], run.Y[rows])
        state, rule = learner.state, learner.rule
        asked, done = learner.asked, 0
        for some in interruptible(len(X), row_work(state) + 4.0 * turns.T.size):
            if done == some.start:
                given = state, turns, data, asked.at, asked.theta, np.empty(3), rate, rule, again
                done = loops.sweep_and_grow(*given, some.start, some.stop)
        if done < len(X):
            run.refuse(rows.start + done, asked.error)
        learner.collect(X, counted=False)
