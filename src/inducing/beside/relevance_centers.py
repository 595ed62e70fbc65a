"""Relevance vectors that leave the training inputs: centres by the gradient of the evidence. [003 §10.2]

With K (n, m) the functions at the rows, Σ = (A + KᵀΛK)⁻¹ and μ = ΣKᵀν the covariance and mean of their
weights, and v = ν - ΛKμ, the slopes of the log evidence are

    ∂/∂K = vμᵀ - ΛKΣ,   ∂/∂log α = ½ (1 - αΣ_jj - αμ_j²),   ∂/∂log σ² = ½ σ² Σ_i (v_i² - τ + τ² k_iᵀΣk_i)

Labels have the τ and ν of their sites; at the fixed point of expectation propagation the slopes hold with
these held.
"""

import math
from typing import NamedTuple

import numpy as np

from ..learning.ascent import Rules, climb_from
from ..model.bases import Basis
from ..model.kernels.stationary import Stationary
from ..model.problem import Problem
from ..numerics.linalg import row_dots
from ..numerics.workers import chunk_rows, row_slices
from .relevance_search import (
    LARGEST_VARIANCE,
    AnySearch,
    LabelSearch,
    log_evidence_of,
    peaks,
    process_of,
    propagate,
)

CLIMB_ITERATIONS = 100  # of one climb
ALIKE = 1e-6  # less than this from a correlation of one, two functions are the same
LARGEST_RISE = 10.0  # how far a logarithm may rise in one climb


class Moved(NamedTuple):
    """The result of a climb: functions, precisions, noise."""

    basis: Basis
    precisions: np.ndarray
    stayed: np.ndarray  # which of the functions before they are: one where several merged
    noise: float


def move_centers(search: AnySearch, floor: float | None) -> Moved:
    """Move all functions of the model at once, with their precisions and, given a floor, the noise."""
    climb = Centers(search, floor)
    basis, precisions, noise = climb.unpack(climb_from([climb.start], climb, Rules(CLIMB_ITERATIONS)).x)
    return Moved(*merged(search.P, basis, precisions), noise)


def merged(P: Problem, basis: Basis, precisions: np.ndarray) -> tuple[Basis, np.ndarray, np.ndarray]:
    """Merge functions in one place, adding their variances; also returns which of them stay."""
    K = basis.gram(P.kernel)
    scale = np.sqrt(np.diag(K))
    alike = K > (1.0 - ALIKE) * scale[:, None] * scale
    variances, stay = 1.0 / precisions, np.zeros(len(basis), dtype=bool)
    for i in np.argsort(precisions):  # the widest first
        first = np.flatnonzero(alike[i] & stay)
        if len(first):
            variances[first[0]] += variances[i]
        else:
            stay[i] = True
    return basis[stay], 1.0 / variances[stay], np.flatnonzero(stay)


class Centers:
    """The objective of a climb: -(log evidence)/n in centres, log precisions and log noise."""

    def __init__(self, search: AnySearch, floor: float | None) -> None:
        P = search.P
        self.search, self.P, self.basis = search, P, P.basis[search.active]
        self.name, self.noise = next(iter(self.basis.parameters)), search.noise
        centers = self.basis.parameters[self.name]  # (m, d)
        self.shape = centers.shape
        logs = [np.log(search.precisions)] + ([] if floor is None else [np.array([math.log(self.noise)])])
        self.start = np.concatenate([centers.ravel(), *logs])
        low, high = P.X.min(axis=0), P.X.max(axis=0)
        width = high - low + 1e-12
        plain = isinstance(P.kernel, Stationary) and P.kernel.columns is None
        spread = P.kernel.scales(P.X) if plain else 0.25 * width  # type: ignore[attr-defined]
        self.units = np.concatenate([np.tile(spread, len(centers)), np.ones(sum(map(len, logs)))])
        self.bounds = [*zip(low - width, high + width, strict=True)] * len(centers)
        power = LARGEST_VARIANCE * float(np.mean(P.Y**2))
        least = np.broadcast_to(search.least, len(P.basis))[search.active]
        widest = peaks(P)[search.active] ** 2 / power  # or two centres that merge run away
        least = np.where(least > 0, least, widest)
        self.bounds += [*zip(np.log(least), logs[0] + LARGEST_RISE, strict=True)]
        if floor is not None:
            self.bounds.append((min(math.log(floor), logs[1][0]), logs[1][0] + LARGEST_RISE))
        self.bounds = [(min(a, x), max(b, x)) for (a, b), x in zip(self.bounds, self.start, strict=True)]
        self.scale, self.size = 1.0 / P.n, len(centers)
        self.sites = search.rows()

    def unpack(self, x: np.ndarray) -> tuple[Basis, np.ndarray, float]:
        """Functions, precisions and noise."""
        centers, logs = np.split(x, [self.shape[0] * self.shape[1]])
        m = self.shape[0]
        noise = math.exp(logs[m]) if len(logs) > m else self.noise
        return self.basis.with_parameters({self.name: centers.reshape(self.shape)}), np.exp(logs[:m]), noise

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        basis, precisions, noise = self.unpack(x)
        P, m, search = self.P, self.shape[0], self.search
        if isinstance(search, LabelSearch):
            tau, nu, value = propagate(P, basis, precisions, search.labels, search.likelihood, self.sites)
            self.sites = tau, nu
            post = process_of(P, basis, precisions, tau, nu)
        else:
            tau, nu = np.full(P.n, 1.0 / noise), P.Y[:, 0] / noise
            post = process_of(P, basis, precisions, tau, nu)
            value = log_evidence_of(P, post, noise)
        assert post.A is not None
        half = post.A / np.sqrt(precisions)[:, None]
        Sigma, mu = half @ half.T, post.w[:, 0] / np.sqrt(precisions)
        slope, noise_slope = np.zeros(self.shape), 0.0
        for s in row_slices(P.n, chunk_rows(P.n, m, P.X)):
            K = basis.cross(P.kernel, P.X[s])  # (rows, m)
            KS = K @ Sigma
            v = nu[s] - tau[s] * (K @ mu)
            noise_slope += float(np.sum(v * v - tau[s] + tau[s] ** 2 * row_dots(KS, K)))
            Kbar = v[:, None] * mu - tau[s, None] * KS
            slope += basis.cross_pullback(P.kernel, P.X[s], Kbar, K)[1][self.name]
        logs = 0.5 * (1.0 - precisions * (np.diag(Sigma) + mu * mu))
        more = [0.5 * noise * noise_slope] if len(x) > m * (self.shape[1] + 1) else []
        return value, np.concatenate([slope.ravel(), logs, more])
