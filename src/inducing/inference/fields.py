"""Learning of vector fields, with likelihoods of whole vectors at nodes. [004 §5.4, appendix F]

A field of p components is an ordinary process over inputs (x, component), see `kernels.codes`; `stack` makes
these inputs, and the result is an ordinary `Posterior`. A node x informs about all its components at once:
its likelihood has a vector q and a matrix r (5.38), its p basis functions come and go together (5.42-5.43).
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from .. import errors
from ..errors import ParameterError, ShapeError, require_in
from ..model.bases import Points
from ..model.kernels.base import Kernel
from ..model.means import Mean, Zero
from ..model.posterior import Posterior, Score
from ..model.problem import DEFAULT_JITTER, as_inputs, as_rows
from ..numerics.arrays import to_numpy
from ..numerics.linalg import cholesky_escalating, information_factors, log_det_from_factor, solve_lower
from ..numerics.workers import blas_for, interruptible
from . import field_loops as loops
from .mixtures import AVERAGE, Mixtures

CLIMB_GAIN = 1e-6  # nats that a change of a node's component must gain


def stack(X: ArrayLike, components: int = 2) -> np.ndarray:
    """Return the inputs (x, 0), …, (x, p - 1) of every node x, node after node. (n p, d + 1)"""
    X = to_numpy(as_inputs(X)).astype(float, copy=False)
    numbers = np.tile(np.arange(float(components)), len(X))
    return np.column_stack([np.repeat(X, components, axis=0), numbers])


def unstack(values: ArrayLike, components: int = 2) -> np.ndarray:
    """Reshape values at stacked inputs to one row for each node: (n p,) to (n, p)."""
    return np.asarray(values).reshape(-1, components)


def own_covariance(kernel: Kernel, X: ArrayLike, components: int = 2) -> np.ndarray:
    """Return the prior covariance W₀ of the components at each node. (n, p, p)"""
    inputs, p, block = stack(X, components), components, 16 * components
    out = np.empty((len(inputs) // p, p, p))
    for start in range(0, len(inputs), block):
        rows = inputs[start : start + block]
        g = len(rows) // p
        K = to_numpy(kernel(rows, rows)).reshape(g, p, g, p)
        out[start // p : start // p + g] = K[np.arange(g), :, np.arange(g)]
    return out


def predict(post: Posterior, X: ArrayLike, components: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return mean (n, p) and covariance (n, p, p) of the vector at each of X on its own. [004 eq. 5.34]"""
    inputs = stack(X, components)
    covariance = own_covariance(post.kernel, X, components)
    if len(post):
        post.require_exact("the covariance of a vector needs")
        Phi = to_numpy(post.features(inputs)).reshape(*covariance.shape[:2], -1)
        covariance = covariance - np.einsum("npm,nqm->npq", Phi, Phi)
        if post.A is not None:
            half = Phi @ to_numpy(post.A)
            covariance = covariance + np.einsum("npm,nqm->npq", half, half)
    return unstack(to_numpy(post.mean(inputs)), components), covariance


def nodes_of(post: Posterior) -> tuple[np.ndarray, int]:
    """Return the nodes (m/p, d) whose stacked inputs are the basis of a process, and p."""
    Z = to_numpy(post.basis.parameters["Z"]) if isinstance(post.basis, Points) else np.empty((0, 0))
    p = int(Z[:, -1].max()) + 1 if Z.size else 0
    nodes = Z[::p, :-1] if p else Z
    if p == 0 or len(Z) % p or not np.array_equal(stack(nodes, p), Z):
        raise ParameterError("the basis is not made of whole nodes: it must hold Points(fields.stack(nodes))")
    return nodes, p


@dataclass(frozen=True, eq=False)
class FieldSites:
    """A site exp(bᵀg - ½ gᵀΛg) for each node, g its vector above the prior mean. [004 eq. 4.17]"""

    Lam: np.ndarray  # (n, p, p)
    b: np.ndarray  # (n, p)
    n_sweeps: int = 0
    converged: bool = False


class FieldProcess:
    """A process on a fixed basis, in whitened coordinates v ~ N(w, S), and n nodes with their sites."""

    def __init__(
        self, kernel: Kernel, basis: Points, mean: Mean, jitter: float, X: np.ndarray, t: Mixtures
    ) -> None:
        n, p = len(t), t.components
        self.kernel, self.basis, self.mean, self.t = kernel, basis, mean, t
        self.L, self.jitter = cholesky_escalating(basis.gram(kernel), jitter)
        stacked = stack(X, p)
        m0 = np.asarray(mean(stacked), dtype=float)
        if m0.ndim != 1:
            raise ShapeError(f"the prior mean of a field is one number at (x, component), not {m0.shape[1]}")
        self.prior = unstack(m0, p)
        Phi = solve_lower(self.L, np.ascontiguousarray(basis.cross(kernel, stacked).T)).T  # (n p, m)
        self.Phi = np.ascontiguousarray(Phi.reshape(n, p, -1))
        explained = np.einsum("npm,nqm->npq", self.Phi, self.Phi)
        self.Gamma = own_covariance(kernel, X, p) - explained  # what the basis does not explain
        self.log_predictive = 0.0
        self.forget()

    def forget(self) -> None:
        """Go back to the prior."""
        n, p, m = self.Phi.shape
        self.w, self.S, self.A, self.log_B = np.zeros(m), np.eye(m), np.eye(m), 0.0
        self.sites = FieldSites(np.zeros((n, p, p)), np.zeros((n, p)))

    def assume(self, Z: np.ndarray) -> None:
        """Make each node's site the component of its mixture that is largest at Z (n, p)."""
        self.choose(np.argmax(self.t.log_terms(Z), axis=1))

    def choose(self, components: np.ndarray, nodes: np.ndarray | None = None) -> None:
        """Make each node's site the component (n,) of its mixture; with `nodes`, all others get no site."""
        rows = np.arange(len(components)) if nodes is None else nodes
        Lam, b = np.zeros_like(self.sites.Lam), np.zeros_like(self.sites.b)
        Lam[rows] = self.t.Lam[rows, components[rows]]
        b[rows] = self.t.b[rows, components[rows]]
        b -= np.einsum("npq,nq->np", Lam, self.prior)  # of z - prior
        self.sites = FieldSites(Lam, b, n_sweeps=1)
        self.rebuild()

    def decide(self, rounds: int) -> None:
        """Choose each node's component that is largest at the mean, until no choice changes. The sites have
        converged if that takes at most `rounds` rounds.
        """
        which = np.full(len(self.t), -1)
        for _ in range(rounds):
            now = np.argmax(self.t.log_terms(self.prior + self.Phi @ self.w), axis=1)
            if np.array_equal(now, which):
                self.sites = replace(self.sites, converged=True)
                return
            which = now
            self.choose(which)

    def climb(self, order: np.ndarray) -> None:
        """Choose components anew: first node after node in this order, each the largest given those before;
        then change single choices as long as that makes the field more probable.
        """
        self.forget()
        which = np.zeros(len(self.t), dtype=int)
        for done, i in enumerate(order, 1):
            which[i] = np.argmax(self.t.log_terms(self.prior + self.Phi @ self.w)[i])
            self.choose(which, order[:done])
        best, better = self.log_weight(), True
        while better:
            better = False
            for i, j in np.argwhere(np.isfinite(self.t.log_c[order])):
                other = which.copy()
                other[order[i]] = j
                self.choose(other)
                if self.log_weight() > best + CLIMB_GAIN:
                    best, which, better = self.log_weight(), other, True
        self.choose(which)
        self.sites = replace(self.sites, converged=True)

    def log_weight(self) -> float:
        """Return `relative_weight` of the present process at its own nodes."""
        at_mean = float(np.sum(self.t.log_density(self.prior + self.Phi @ self.w)))
        return at_mean - 0.5 * float(self.w @ self.w) - 0.5 * self.log_B

    def run(self, order: np.ndarray, sweeps: int, damping: float, convergence: float) -> None:
        """Sweep until no site moves by more than `convergence`, at most `sweeps` times."""
        converged, last = False, self.sites.n_sweeps + sweeps
        while self.sites.n_sweeps < last and not converged:
            converged = self.sweep(order, damping if self.sites.n_sweeps else 1.0) <= convergence
            self.sites = replace(self.sites, n_sweeps=self.sites.n_sweeps + 1, converged=converged)
            self.rebuild()

    def sweep(self, order: np.ndarray, rate: float) -> float:
        """Visit the nodes in this order and return the largest move of a site."""
        t, Lam, b = self.t, self.sites.Lam.copy(), self.sites.b.copy()
        move, given = 0.0, (self.S, self.w, self.Phi, self.Gamma, self.prior, t.log_c, t.b, t.Lam)
        _, p, m = self.Phi.shape
        for some in interruptible(len(order), 2.0 * p * m * m + t.log_c.shape[1] * AVERAGE):
            done, moved, total = loops.sweep(*given, order[some], Lam, b, rate)
            move, self.log_predictive = max(move, moved), self.log_predictive + total
            if done == some.stop - some.start:
                continue
            raise errors.NonFiniteError(
                f"node {order[some][done]} leaves no valid process: its mixture has no average under what is "
                "known of it; check that each component is narrower than the prior that is divided out, or "
                "use damping below 1"
            )
        self.sites = replace(self.sites, Lam=Lam, b=b)
        return move

    def rebuild(self) -> None:
        """Make the process from its sites alone: B = I + Σ φΛφᵀ, w = B⁻¹ Σ φb. [004 eqs 4.25, 4.34]"""
        Lam, b = self._effective()
        G = np.einsum("npm,npk->mk", self.Phi, np.einsum("npq,nqk->npk", Lam, self.Phi), optimize=True)
        beta = np.einsum("npm,np->m", self.Phi, b)
        try:
            _, LB, LBinv, w = information_factors(0.5 * (G + G.T), beta[:, None])
        except errors.FactorisationError as error:
            raise errors.FactorisationError("the sites leave no proper process; use damping < 1") from error
        self.log_B, self.w = float(log_det_from_factor(LB)), w[:, 0]
        self.A = np.ascontiguousarray(LBinv.T)
        self.S = self.A @ self.A.T

    def _effective(self) -> tuple[np.ndarray, np.ndarray]:
        """Return Λ (n, p, p) and b (n, p) of the sites as they act on φᵀv, with Γ as noise of each node."""
        M = np.eye(self.t.components) + self.sites.Lam @ self.Gamma
        return np.linalg.solve(M, self.sites.Lam), np.linalg.solve(M, self.sites.b[:, :, None])[:, :, 0]

    def log_evidence(self) -> float | None:
        """Return log Z = -½ log|B| + ½ Σ bᵀφᵀw + Σ [log⟨t⟩ - log⟨site⟩], None if a cavity is improper."""
        Lam, b = self._effective()
        s = np.einsum("npm,mk,nqk->npq", self.Phi, self.S, self.Phi, optimize=True)
        mu = self.Phi @ self.w
        left = np.eye(len(b[0])) - s @ Lam
        V = np.linalg.solve(left, s)
        V = 0.5 * (V + np.swapaxes(V, 1, 2))
        if np.any(np.linalg.det(left) <= loops.LEAST_SHARE) or np.any(np.linalg.eigvalsh(V) < 0.0):
            return None
        cavity = mu + np.einsum("npq,nq->np", V, np.einsum("npq,nq->np", Lam, mu) - b)
        site = Mixtures(np.zeros((len(b), 1)), self.sites.b[:, None], self.sites.Lam[:, None])
        values = self.t.tilted(self.prior + cavity, V + self.Gamma)[0]
        values -= site.tilted(cavity, V + self.Gamma)[0]
        values += site.tilted(np.zeros_like(mu), self.Gamma)[0] + 0.5 * np.sum(b * mu, axis=1)
        total = float(np.sum(values)) - 0.5 * self.log_B
        return total if np.isfinite(total) else None

    def posterior(self, log_evidence: float | None = None, sites: FieldSites | None = None) -> Posterior:
        parts = self.kernel, self.basis, self.L, self.w[:, None].copy(), self.A, self.mean
        return Posterior(*parts, log_evidence=log_evidence, jitter=self.jitter, sites=sites)


def update(
    post: Posterior,
    t: Mixtures,
    X: ArrayLike,
    *,
    order: ArrayLike | None = None,
    capacity: int | None = None,
    score: Score = "mean",
) -> Posterior:
    """Return the process after the nodes X (n, d) with mixtures t, read once and in `order`. [004 eq. 5.38]

        α + v q,   C + v r vᵀ,   v = C k + e,   one column for each component of the node

    Each node joins the basis with all its components. Beyond `capacity` nodes (None: no limit) the node of
    least score is removed (5.42). Without a limit the order matters only if mixtures have several components.
    `log_predictive` gains Σ log⟨t(z)⟩.
    """
    X, order = as_nodes(X, t), _order(order, len(t))
    if capacity is None:
        return _read(post, t, X, order)
    for i in order:
        post = _read(post, t[i : i + 1], X[i : i + 1], np.zeros(1, dtype=np.int64))
        post = prune(post, capacity, score)
    return post


def _read(post: Posterior, t: Mixtures, X: np.ndarray, order: np.ndarray) -> Posterior:
    """Apply `update` without a limit: add the nodes to the basis, which changes nothing, then read them."""
    post.require_exact("updating needs")
    old = to_numpy(post.basis.parameters["Z"]) if len(post) else np.empty((0, X.shape[1] + 1))
    places = dict.fromkeys(map(bytes, [*old, *stack(X, t.components)]))  # rows, each once, in order
    basis = Points(np.array([np.frombuffer(row) for row in places]))
    with blas_for(len(basis)):
        field = FieldProcess(post.kernel, basis, post.mean_function, post.jitter or DEFAULT_JITTER, X, t)
        if len(post):
            mean, field.S = post.whitened(field.L, np.arange(len(post)))
            field.w = np.ascontiguousarray(mean[:, 0])
        field.sweep(order, 1.0)
        field.A, _ = cholesky_escalating(field.S, 0.0, what="the posterior covariance of the whitened basis")
    log_predictive = (post.log_predictive or 0.0) + field.log_predictive
    return replace(field.posterior(), log_predictive=log_predictive)


def expectation_propagation(
    kernel: Kernel,
    t: Mixtures,
    X: ArrayLike,
    nodes: ArrayLike | None = None,
    *,
    mean: Mean | None = None,
    order: ArrayLike | None = None,
    sweeps: int = 20,
    damping: float = 1.0,
    convergence: float = 1e-6,
    start: FieldSites | None = None,
    jitter: float = DEFAULT_JITTER,
) -> Posterior:
    """Return the field given mixtures t at nodes X (n, d), with `sites`, `log_evidence`. [004 ch. 4, §5.4.4]

    `nodes` (m, d) carry the basis, by default X itself; with fewer, what they do not explain of a node counts
    as noise of that node (FITC). The first sweep visits the nodes in `order` and is online learning (5.38);
    it decides which of several modes is followed. Later sweeps remove a node's site before they make a new
    one (4.36), until no site moves by more than `convergence` in units of its node's spread. `start` gives
    sites to continue from, also those found on another basis.
    """
    X, order = as_nodes(X, t), _order(order, len(t))
    require_in("damping", damping, "(0, 1]")
    basis = Points(stack(X if nodes is None else nodes, t.components))
    if start is not None and start.b.shape != (len(t), t.components):
        raise ShapeError(f"start has sites of shape {start.b.shape}, but {(len(t), t.components)} are needed")
    with blas_for(len(basis)):
        field = FieldProcess(kernel, basis, mean or Zero(), jitter, X, t)
        if start is not None:
            field.sites = replace(start, converged=False)
            field.rebuild()
        field.run(order, sweeps, damping, convergence)
        return field.posterior(field.log_evidence(), field.sites)


def removal_scores(post: Posterior, score: Score = "mean") -> np.ndarray:
    """Return the KL cost of removing each node with all its components. (nodes,) [004 eq. 5.43]"""
    return post.removal_scores(score, nodes_of(post)[1])


def prune(post: Posterior, capacity: int, score: Score = "mean") -> Posterior:
    """Remove the node of least score until at most `capacity` nodes are left. [004 eq. 5.42]"""
    with blas_for(len(post)):
        return post.prune(capacity, score, nodes_of(post)[1])


def relative_weight(post: Posterior, t: Mixtures, X: ArrayLike) -> float:
    """Return log γ, the log of this mode's share of the posterior up to a constant. [004 eqs 5.39-5.41]

        log q(ẑ) + ½ log|Σ̂| + (N p/2) log 2π,   q(ẑ) = Π t(ẑᵢ) p₀(ẑ)

    ẑ is the process's mean at the nodes. In whitened coordinates this is Σ log t(ẑᵢ) - ½|w|² + ½ log|S|,
    without an inverse of the size of the data. With one component at each node, and the nodes as basis, it
    is the log evidence.
    """
    X = as_nodes(X, t)
    if post.A is None:
        raise ParameterError("the relative weight needs a process made by update or expectation_propagation")
    z = unstack(post.mean(stack(X, t.components)), t.components)
    half_log_S = float(np.linalg.slogdet(to_numpy(post.A))[1])
    return float(np.sum(t.log_density(z)) - 0.5 * np.sum(to_numpy(post.w) ** 2)) + half_log_S


def as_nodes(X: ArrayLike, t: Mixtures) -> np.ndarray:
    """Return X as finite inputs (n, d). Raise if there is not one for each mixture."""
    X = np.ascontiguousarray(to_numpy(as_rows(X)), dtype=float)
    if len(X) != len(t):
        raise ShapeError(f"X has {len(X)} rows, but t has mixtures for {len(t)} nodes; they must agree")
    return X


def _order(order: ArrayLike | None, n: int) -> np.ndarray:
    if order is None:
        return np.arange(n)
    order = np.asarray(order)
    if order.shape != (n,) or not np.array_equal(np.sort(order), np.arange(n)):
        raise ParameterError(f"order must be a permutation of the {n} nodes")
    return order.astype(np.int64)
