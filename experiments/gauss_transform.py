"""K(Z, X) V by the fast Gauss transform, an expansion about few centres; pays where lengthscales are long.

Inputs are in units of the lengthscale. Monomials of a total degree below p come in order of degree. Those of
degree k + 1 are those of degree k times each input in turn, without repeats: input i multiplies the monomials
from heads[k, i] on, which hold no input before i.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from inducing.errors import ParameterError
from inducing.inference.conjugate_gradients.products import checked_columns
from inducing.model.kernels.base import Kernel
from inducing.model.kernels.stationary import RBF
from inducing.numerics.arrays import SMALL
from inducing.numerics.compiling import FAST, compiled, helper
from inducing.numerics.workers import chunk_rows, cores, row_slices, run_over

from .fast_products import check_approximate, in_lengthscales

MOST_CLUSTERS = 1024
MOST_TERMS, MOST_DEGREE = 1 << 16, 150  # of one expansion
SAMPLED_ROWS = 256  # that costs are estimated from
TERM, DEGREE, POINT = 1.0, 8.0, 30.0  # costs of a term, of its degree for each coordinate, of an expansion
CENTRE = 3.0  # cost of a centre looked at
_LOG_FACTORIALS = np.array([math.lgamma(i + 1.0) for i in range(200)])


@dataclass(frozen=True, eq=False)
class _Clusters:
    """Centres for expansions: which one each row belongs to, and how far its rows lie from it."""

    owner: np.ndarray  # (n,)
    centres: np.ndarray  # (K, d)
    radii: np.ndarray  # (K,)

    @staticmethod
    def of(X: np.ndarray, owner: np.ndarray) -> _Clusters:
        """Centre each cluster in the middle of its box, which may halve the radius about its first point."""
        count = int(owner.max()) + 1
        low, high = np.full((count, X.shape[1]), np.inf), np.full((count, X.shape[1]), -np.inf)
        np.minimum.at(low, owner, X)
        np.maximum.at(high, owner, X)
        centres = 0.5 * (low + high)
        radii = np.zeros(count)
        np.maximum.at(radii, owner, np.linalg.norm(X - centres[owner], axis=1))
        return _Clusters(owner, centres, radii)

    def reach(self, Y: np.ndarray, tolerance: float) -> np.ndarray:
        """The distance from each centre up to which queries are looked at: beyond, all is below ε. (K,)"""
        low, high = Y.min(axis=0), Y.max(axis=0)
        corner = np.maximum(np.abs(self.centres - low), np.abs(self.centres - high))
        farthest = (1.0 + 1e-12) * np.linalg.norm(corner, axis=1)  # and not less by rounding
        return np.minimum(self.radii + math.sqrt(-2.0 * math.log(tolerance)), farthest)

    def degrees(self, reach: np.ndarray, tolerance: float) -> np.ndarray:
        """The least p for each cluster that keeps its expansion within tolerance. (K,)"""
        degrees, unfinished = np.ones(len(self.radii), dtype=np.int64), np.ones(len(self.radii), dtype=bool)
        for p in range(1, MOST_DEGREE):
            unfinished &= truncation(p, self.radii, reach) > tolerance
            if not unfinished.any():
                break
            degrees[unfinished] = p + 1
        return degrees


def truncation(p: int, radius: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """The greatest error of exp(-|x - y|²/2) expanded about c to total degree p - 1, where a = |x - c| ≤
    radius and b = |y - c| ≤ reach.

    exp(u·w) less its first p terms is at most (ab)^p/p! exp(ab), so the error is (ab)^p/p! exp(-(a - b)²/2).
    In a alone that is greatest at (b + √(b² + 4p))/2, and likewise in b; both cannot be there, so one lies at
    its limit. [Raykar et al. 2005]
    """
    best = np.zeros_like(radius)
    pairs = (
        (radius, np.minimum(reach, 0.5 * (radius + np.sqrt(radius**2 + 4.0 * p)))),
        (np.minimum(radius, 0.5 * (reach + np.sqrt(reach**2 + 4.0 * p))), reach),
    )
    for a, b in pairs:
        some = (a > 0) & (b > 0)
        log = p * np.log(np.where(some, a * b, 1.0)) - math.lgamma(p + 1.0) - 0.5 * (a - b) ** 2
        best = np.maximum(best, np.where(some, np.exp(np.minimum(log, 1.0)), 0.0))
    return best


def _terms(d: int, degrees: np.ndarray) -> np.ndarray:
    """The number of monomials of d inputs with a total degree below each of `degrees`."""
    table = np.array([0.0] + [float(math.comb(d + p - 1, d)) for p in range(1, int(degrees.max()) + 1)])
    return table[degrees]


def heads_and_factors(d: int, degree: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each input begins to multiply (degrees, d), 1/α! of monomials, how many are below each degree."""
    exponents = [np.zeros((1, d), dtype=int)]
    heads, begin, below = np.zeros((max(degree - 1, 1), d), dtype=np.int64), 0, [0, 1]
    first = np.zeros(d, dtype=int)  # of the last degree: the first monomial without any input before i
    for k in range(degree - 1):
        last, parts = exponents[-1], []
        heads[k] = begin + first
        at, fresh = 0, np.zeros(d, dtype=int)
        for i in range(d):
            part = last[first[i] :].copy()
            part[:, i] += 1
            fresh[i] = at
            at += len(part)
            parts.append(part)
        begin += len(last)
        first = fresh
        exponents.append(np.concatenate(parts))
        below.append(begin + len(exponents[-1]))
    alpha = np.concatenate(exponents)
    return heads, np.exp(-np.sum(_LOG_FACTORIALS[alpha], axis=1)), np.array(below)


@compiled()
def farthest_points(
    X: np.ndarray, most: int, owner: np.ndarray, nearest: np.ndarray, snapshots: np.ndarray
) -> int:
    """Choose centres: each time the point farthest from those taken. O(n most d)

    owner is each point's centre and nearest the squared distance to it; snapshots keeps owner at 1, 2, 4, ...
    centres. How many were taken: fewer than `most` where no distance is left. [Gonzalez 1985]
    """
    n, d = X.shape
    at, kept = 0, 0
    for i in range(n):
        nearest[i] = np.inf
    for k in range(most):
        far, next_at = -1.0, 0
        for i in range(n):
            s = 0.0
            for j in range(d):
                t = X[i, j] - X[at, j]
                s += t * t
            if s < nearest[i]:
                nearest[i], owner[i] = s, k
            if nearest[i] > far:
                far, next_at = nearest[i], i
        at = next_at
        if k + 1 == 1 << kept:
            snapshots[kept, :] = owner
            kept += 1
        if far == 0.0:
            return k + 1
    return most


@helper(fastmath=FAST)
def monomials(u: np.ndarray, degree: int, heads: np.ndarray, out: np.ndarray) -> int:
    """Fill out with out[0] times each monomial of u of a degree below `degree`; returns how many."""
    end = 1
    for k in range(degree - 1):
        at = end
        for i in range(len(u)):
            head, x = heads[k, i], u[i]
            for j in range(end - head):
                out[at + j] = x * out[head + j]
            at += end - head
        end = at
    return end


@compiled(fastmath=FAST)
def gather(
    X: np.ndarray,
    owner: np.ndarray,
    V: np.ndarray,
    first: int,
    last: int,
    centres: np.ndarray,
    degrees: np.ndarray,
    heads: np.ndarray,
    C: np.ndarray,
    scratch: np.ndarray,
) -> None:
    """C[k, c] += Σ_j v_jc exp(-|u|²/2) u^α, u = x_j - centre_k, first ≤ j < last. C (clusters, p, terms)"""
    d = X.shape[1]
    u = np.empty(d)
    for j in range(first, last):
        k, s = owner[j], 0.0
        for i in range(d):
            u[i] = X[j, i] - centres[k, i]
            s += u[i] * u[i]
        scratch[0] = np.exp(-0.5 * s)
        count = monomials(u, degrees[k], heads, scratch)
        for c in range(V.shape[1]):
            v, row = V[j, c], C[k, c]
            for t in range(count):
                row[t] += v * scratch[t]


@compiled(fastmath=FAST)
def evaluate(
    Y: np.ndarray,
    first: int,
    last: int,
    centres: np.ndarray,
    reach: np.ndarray,
    degrees: np.ndarray,
    heads: np.ndarray,
    C: np.ndarray,
    scratch: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[i, c] += Σ_k exp(-|w|²/2) Σ_α C[k, c, α] w^α, w = y_i - centre_k, over clusters within reach_k."""
    d = Y.shape[1]
    w = np.empty(d)
    for i in range(first, last):
        for k in range(len(centres)):
            s = 0.0
            for j in range(d):
                w[j] = Y[i, j] - centres[k, j]
                s += w[j] * w[j]
            if s > reach[k] * reach[k]:
                continue
            scratch[0] = np.exp(-0.5 * s)
            count = monomials(w, degrees[k], heads, scratch)
            for c in range(C.shape[1]):
                row, total = C[k, c], 0.0
                for t in range(count):
                    total += row[t] * scratch[t]
                out[i, c] += total


@dataclass(frozen=True, eq=False)
class Gauss:
    """The improved fast Gauss transform, for the RBF kernel. [Yang et al. 2005], [Raykar et al. 2005]

        exp(-|x - y|²/2) = exp(-|x - c|²/2) exp(-|y - c|²/2) Σ_α (x - c)^α (y - c)^α / α!

    Farthest-point clusters give centres c; sums over a cluster's rows are taken once for each α of total
    degree below p, and each query adds up the clusters within reach. How many clusters, and which p for each,
    follow from the tolerance.
    """

    kernel: Kernel
    X: np.ndarray  # (n, d)
    tolerance: float

    def __post_init__(self) -> None:
        check_approximate("Gauss transform", self, (RBF,))

    @cached_property
    def _scaled_X(self) -> np.ndarray:
        return in_lengthscales(self.kernel, self.X)

    @cached_property
    def _plan(self) -> tuple[_Clusters, float]:
        """The number of clusters, of 1, 2, 4, ..., that costs least, and that cost."""
        X, n, d = self._scaled_X, len(self.X), self._scaled_X.shape[1]
        most = max(1, min(MOST_CLUSTERS, n // 4))
        owner, snapshots = np.zeros(n, dtype=np.int64), np.zeros((most.bit_length(), n), dtype=np.int64)
        taken = farthest_points(X, most, owner, np.empty(n), snapshots)
        best: tuple[_Clusters, float] | None = None
        some = X[:: max(1, n // SAMPLED_ROWS)]
        for snapshot in snapshots[: taken.bit_length()]:
            clusters = _Clusters.of(X, snapshot)
            reach = clusters.reach(X, self.tolerance)
            degrees = clusters.degrees(reach, self.tolerance)
            terms = _terms(d, degrees)
            if degrees.max() == MOST_DEGREE or terms.max() > MOST_TERMS:
                continue
            distances = np.linalg.norm(some[:, None, :] - clusters.centres, axis=2)  # (some, K)
            each = POINT + DEGREE * d * degrees + TERM * terms  # (K,)
            reached = np.mean((distances <= reach) @ each) + CENTRE * len(terms)
            cost = n * (np.mean(each[clusters.owner]) + reached)
            if best is None or cost < best[1]:
                best = clusters, cost
        if best is None:
            raise ParameterError(
                f"the Gauss transform needs more than {MOST_TERMS} terms for a tolerance of "
                f"{self.tolerance:g} in {d} dimensions with this lengthscale; use the tree or blocks"
            )
        return best

    @property
    def cost(self) -> float:
        """Nanoseconds of one core for K(X, X) v; infinite where it would need too many terms."""
        try:
            return self._plan[1]
        except ParameterError:
            return math.inf

    def __call__(self, V: np.ndarray, Z: np.ndarray | None = None) -> np.ndarray:
        """K(Z, X) V within the tolerance. Memory O(clusters · terms · p) on each core."""
        clusters, X = self._plan[0], self._scaled_X
        Y = X if Z is None else in_lengthscales(self.kernel, Z)
        columns = np.ascontiguousarray(checked_columns(V, len(X)))
        reach = clusters.reach(Y, self.tolerance)
        degrees = clusters.degrees(reach, self.tolerance)
        heads, factors, _ = heads_and_factors(X.shape[1], int(degrees.max()))
        shape = (len(degrees), columns.shape[1], len(factors))

        def start() -> tuple[np.ndarray, np.ndarray]:
            return np.zeros(shape), np.empty(len(factors))

        def collect(state: tuple[np.ndarray, np.ndarray], s: slice) -> None:
            gather(X, clusters.owner, columns, s.start, s.stop, clusters.centres, degrees, heads, *state)

        parallel = len(X) * len(factors) >= SMALL
        parts = run_over(row_slices(len(X), -(-len(X) // cores())), start, collect, parallel=parallel)
        C = sum((part[0] for part in parts[1:]), parts[0][0])
        C *= self.kernel.variance * factors  # type: ignore[attr-defined]
        out = np.zeros((len(Y), columns.shape[1]))

        def spread(scratch: np.ndarray, s: slice) -> None:
            evaluate(Y, s.start, s.stop, clusters.centres, reach, degrees, heads, C, scratch, out)

        tasks = row_slices(len(Y), chunk_rows(len(Y), len(factors), Y))
        run_over(tasks, lambda: np.empty(len(factors)), spread, parallel=parallel)
        return out[:, 0] if V.ndim == 1 else out
