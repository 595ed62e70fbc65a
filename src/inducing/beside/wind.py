"""Wind fields from a scatterometer: local ambiguities, and modes of the field from many orders. [004 §5.4]

    a = wind.ambiguities(kernel, s, beams, noise, X, mean=background)     # up to four winds a node (5.32)
    fields = wind.retrieve(kernel, a.likelihood(), X, mean=background)    # fields, heaviest first (5.41)
    fields.winds()                                                        # the heaviest
    fields.predict(X)                                                     # a mixture of all of them (§6.1)

The posterior of a field has several modes, and the order of the nodes decides which is found. So many orders
are tried, each converges by sweeps of expectation propagation, and relative weights rank the modes.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import IterationWarning, ParameterError
from ..inference import fields
from ..inference.fields import FieldProcess, as_nodes, stack, unstack
from ..inference.mixtures import Mixtures
from ..model.bases import Points
from ..model.kernels.base import Kernel
from ..model.means import Mean, Zero
from ..model.posterior import Posterior
from ..model.problem import DEFAULT_JITTER
from ..numerics.workers import blas_for
from .wind_model import Ambiguities, Beams, retrieve_locally

CONVERGENCE = 1e-6  # the largest move of a converged site, in units of its node's spread
MOST_ROUNDS = 50  # rounds of `FieldProcess.decide`
TORN = 1.0  # nats by which one component for each node must outweigh averages over several


def ambiguities(
    kernel: Kernel, s: Any, beams: Beams, noise: float, X: Any, *, mean: Mean | None = None, most: int = 4
) -> Ambiguities:
    """Find the winds at each node of X by s (n, beams), log σ⁰ with this noise, and the process's prior."""
    m0 = unstack((mean or Zero())(stack(X)))
    return retrieve_locally(s, beams, noise, m0, fields.own_covariance(kernel, X), most)


@dataclass(frozen=True, eq=False)
class Mode:
    """One of the fields that the measurements allow."""

    posterior: Posterior
    log_weight: float  # log γ (5.41)
    orders: int  # how many orders ended here
    settled: bool = True  # whether its sites have converged, or sweeps=1 asked for online learning


@dataclass(frozen=True, eq=False)
class Retrieval:
    """The modes that were found, heaviest first: a mixture of Gaussian processes. [004 §5.4.4, §6.1]"""

    modes: tuple[Mode, ...]
    X: np.ndarray  # (n, 2): the nodes

    @property
    def weights(self) -> np.ndarray:
        """The modes' shares of the posterior, NaN for those that have not settled. (modes,) [004 eq. 5.40]"""
        settled = np.array([mode.settled for mode in self.modes])
        logs = np.where(settled, [mode.log_weight for mode in self.modes], -np.inf)
        with np.errstate(invalid="ignore"):
            return np.where(settled, np.exp(logs - np.logaddexp.reduce(logs)), np.nan)

    def winds(self, mode: int = 0) -> np.ndarray:
        """Return the mean of one mode at the nodes. (n, 2)"""
        return unstack(self.modes[mode].posterior.mean(stack(self.X)))

    def predict(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return mean (n, 2) and covariance (n, 2, 2) of the wind at each of X under all modes together."""
        each = [fields.predict(mode.posterior, X) for mode in self.modes]
        means, covariances = map(np.stack, zip(*each, strict=True))  # (modes, n, 2), (modes, n, 2, 2)
        weights = np.nan_to_num(self.weights)
        if not weights.any():
            raise ParameterError("no mode has settled, so that none has a weight; raise sweeps or orders")
        mean = np.einsum("k,kni->ni", weights, means)
        apart = means - mean
        total = covariances + apart[..., :, None] * apart[..., None, :]
        return mean, np.einsum("k,knij->nij", weights, total)


def retrieve(
    kernel: Kernel,
    t: Mixtures,
    X: Any,
    *,
    mean: Mean | None = None,
    orders: int = 100,
    sweeps: int = 10,
    damping: float = 1.0,
    apart: float = 0.5,
    mirrored: bool = True,
    rng: Any = 0,
    jitter: float = DEFAULT_JITTER,
) -> Retrieval:
    """Find the fields that likelihoods t at nodes X allow, by random orders of nodes. [004 §§5.4.2-5.4.3]

    Each order is read online once, then swept up to `sweeps` - 1 times more (sweeps=1: online learning alone,
    as in 004). If that has not converged, or the field is more probable with one component chosen at each
    node, as with nodes that hardly correlate, components are chosen; a mode that still has not converged is
    warned of and has no weight. Solutions whose means differ by less than `apart` m/s, root mean square over
    the nodes, are one mode, of which the heaviest is kept. Opposite winds look alike to the radar, so with
    `mirrored` the opposites of the two heaviest modes are tried too; those count no order.
    """
    X = as_nodes(X, t)
    if orders < 1 or sweeps < 1:
        raise ParameterError(f"orders and sweeps must be at least 1, but are {orders} and {sweeps}")
    generator = np.random.default_rng(rng)
    basis = Points(stack(X, t.components))
    solutions = []  # mean at the nodes, mode
    with blas_for(len(basis)):
        field = FieldProcess(kernel, basis, mean or Zero(), jitter, X, t)
        for _ in range(orders):
            field.forget()
            solutions.append(_settled(field, X, generator.permutation(len(X)), sweeps, damping, 1))
        if mirrored:
            for z, _ in _distinct(solutions, apart)[:2]:
                field.forget()
                field.assume(-z)
                solutions.append(_settled(field, X, np.arange(len(X)), max(sweeps - 1, 1), damping, 0))
        modes = [mode for _, mode in _distinct(solutions, apart)]
        restless = sum(not mode.settled for mode in modes)
        if restless:
            message = f"{restless} of {len(modes)} modes did not settle; raise sweeps, or lower damping"
            warnings.warn(message, IterationWarning, stacklevel=2)
        return Retrieval(tuple(replace(m, posterior=_with_evidence(field, m.posterior)) for m in modes), X)


SolvedMode = tuple[np.ndarray, Mode]  # the mean at the nodes (n, 2), and the mode


def _settled(
    field: FieldProcess, X: np.ndarray, order: np.ndarray, sweeps: int, damping: float, orders: int
) -> SolvedMode:
    """Sweep in this order, decide nodes for one component where that is better, and return the mode."""
    field.run(order, sweeps, damping, CONVERGENCE)
    if sweeps > 1:
        swept, weight = field.sites, field.log_weight()
        field.decide(MOST_ROUNDS)
        if field.log_weight() > weight + TORN:
            field.climb(order)
        elif swept.converged:
            field.sites = swept
            field.rebuild()
    post = field.posterior(sites=field.sites)
    weight = fields.relative_weight(post, field.t, X)
    return field.prior + field.Phi @ field.w, Mode(post, weight, orders, sweeps == 1 or field.sites.converged)


def _with_evidence(field: FieldProcess, post: Posterior) -> Posterior:
    field.sites = post.sites
    field.rebuild()
    return replace(post, log_evidence=field.log_evidence())


def _distinct(solutions: list[SolvedMode], apart: float) -> list[SolvedMode]:
    """Return the heaviest of the solutions that are near each other; settled, heavy ones first."""
    distinct: list[SolvedMode] = []
    for z, mode in sorted(solutions, key=lambda of: (not of[1].settled, -of[1].log_weight)):
        gaps = [np.sqrt(np.mean(np.sum((z - other) ** 2, axis=1))) for other, _ in distinct]
        near = next((i for i, gap in enumerate(gaps) if gap < apart), None)
        if near is None:
            distinct.append((z, mode))
        else:
            first, heavier = distinct[near]
            distinct[near] = first, replace(heavier, orders=heavier.orders + mode.orders)
    return distinct
