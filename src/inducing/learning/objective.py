"""The objective of learning: log evidence and log prior of a checked problem, in the variables of a packing.

The problem's rows lie in memory or in a source. The evidence is that of its row of the table, or another one
with a gradient in the same parameters, such as the sum over several classes (classes.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..engine.evidence import factorise, gradient_from
from ..engine.parts import Parted
from ..engine.sums import Held, SharedBlocks
from ..engine.sweeps import SiteMemory
from ..errors import FactorisationError, ParameterError, UnknownNameError
from ..inference.neighbour_sites import Settled, gaussian_problem, settle
from ..inference.pic import Predictor
from ..inference.regression import DENSE, gradient_of, model_of, posterior_from, with_data
from ..model.distributions import Observations
from ..model.likelihoods import Likelihood
from ..model.posterior import Posterior
from ..model.problem import NoiseByLevel, Problem, as_inputs, as_noise, as_targets, scatter
from ..model.table import Approximation
from ..numerics.arrays import Array, as_columns, namespace, to_numpy
from ..numerics.workers import blas_for
from ..progress import Line
from ..sources.moments import Columns, moments
from .packing import Packing, Parameters, Summary
from .settings import Alike, Settings

SITE_TOLERANCE = 1e-4  # of a likelihood's sites during a climb: the evidence is off by its square
LEAST_SPREAD = 1e-28  # of the mean's square: what rounding may leave of a variance that is none
NEAR_TOLERANCE, NEAR_SWEEPS = 0.003, 40  # of sites along neighbours, which are held for a climb
AnyProblem = TypeVar("AnyProblem", bound=Problem | Parted)
EvidenceFunction = Callable[[Problem | Parted], tuple[float, dict[str, Any]]]  # with its gradient


class Objective:
    """Log evidence plus log prior as a function of the variables that move: an `ascent.BoundedFunction`."""

    def __init__(
        self, P: Problem | Parted, settings: Settings, evidence: EvidenceFunction | None = None
    ) -> None:
        self.P, self.priors = P, dict(settings.priors or {})
        self.evidence = RowEvidence() if evidence is None else evidence
        self.last = np.zeros(0)  # the variables evaluated last
        self.y = targets(P) if isinstance(P, Problem) else None
        self.summary, self.sums = _summary(P, self.y)
        dense = P.row.name in DENSE  # whose basis is rows of the data, and stays
        self.packing = Packing(
            parameters_of(P),
            self.summary,
            optimize=settings.optimize,
            fixed=(*settings.fixed, "basis") if dense else settings.fixed,
            movable=None if dense else settings.movable,
            noise_floor=noise_floor(P.row) if settings.noise_floor is None else settings.noise_floor,
        )
        unknown = {n for n, p in self.priors.items() if not isinstance(p, Alike)} - set(self.packing.positive)
        if unknown:
            known = sorted(self.packing.positive)
            raise UnknownNameError(f"priors on {sorted(unknown)}, but the positive parameters are {known}")
        self.start, self.bounds, self.units = self.packing.start, self.packing.bounds, self.packing.units
        self.scale = 1.0 / self.summary.n
        self.size = self.summary.n if dense else len(P.basis)

    def problem(self, x: np.ndarray) -> Problem | Parted:
        """The problem with the parameters that x stands for."""
        return moved(self.P, self.packing.unpack(x), self.y)

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The value and its gradient in x. Raise a FactorisationError where there is none."""
        self.last, raw = x.copy(), self.packing.values(x)
        value, gradient = self.evidence(moved(self.P, self.packing.origin.with_raw(raw), self.y))
        gradient = {name: to_numpy(g) for name, g in gradient.items()}
        for name, prior in self.priors.items():
            log_density, slope = prior.log_density(raw[name])
            value += log_density
            gradient[name] = gradient[name] + slope
        return value, self.packing.gradient(raw, gradient)

    def posterior(self, x: np.ndarray) -> Posterior | Predictor | Observations:
        """The posterior at x; known where the evidence was just evaluated there and kept it."""
        known = getattr(self.evidence, "posterior", None)
        if known is not None and np.array_equal(self.last, x):
            return known
        return getattr(self.evidence, "model", model_of)(self.problem(x))

    def log_prior(self, x: np.ndarray) -> float:
        raw = self.packing.values(x)
        return sum(prior.log_density(raw[name])[0] for name, prior in self.priors.items())

    def fingerprint(self) -> str:
        """Return a text that changes when the data, the row of the table or the variables do."""
        kernel = _without_numbers(self.P.kernel.spec())
        row, variables = self.P.row, (self.packing.names, len(self.start))
        return repr((row.name, row.share, self.summary.n, kernel, *variables, self.sums))

    def watch(self, line: Line) -> None:
        """Show the parts of a source as they are read; rows in memory take too little time to be shown."""
        if isinstance(self.P, Parted) and line.due < np.inf:
            self.P = replace(self.P, source=self.P.source.watched(line.part))


class HeldOut(NamedTuple):
    """Rows that are not learned from, to judge by."""

    X: Array  # (t, d)
    Y: Array  # (t, p)

    @staticmethod
    def checked(X: Any, y: Any) -> "HeldOut":
        X = as_inputs(X)
        return HeldOut(X, as_columns(as_targets(y, X)))

    def log_densities(
        self, posterior: Posterior | Predictor | Observations, noise: float | NoiseByLevel | Likelihood
    ) -> np.ndarray:
        """log p(y | data) of each row, the mean over its outputs. (t,)"""
        ask = posterior.latent if isinstance(posterior, Observations) else posterior.predict
        mean, variance = ask(self.X)
        if isinstance(noise, Likelihood):
            Y = to_numpy(self.Y)
            y = Y[:, 0] if Y.shape[1] == 1 else Y
            return noise.log_predictive(y, to_numpy(mean), np.maximum(to_numpy(variance), 1e-300))
        known = getattr(posterior, "kernel", None)
        added = as_noise(noise, self.X)[0] + (0.0 if known is None else scatter(known, self.X))
        variance = to_numpy(variance + added)[:, None]
        squares = (to_numpy(self.Y) - to_numpy(as_columns(mean))) ** 2 / variance
        return -0.5 * np.mean(np.log(2.0 * np.pi * variance) + squares, axis=1)


class HeldOutScore:
    """The mean log predictive density of held-out rows as a function of an objective's variables.

    `densities` (t,) are those of the rows where it was greatest.
    """

    def __init__(self, objective: Objective, held_out: HeldOut) -> None:
        if objective.P.known_noise:
            raise ParameterError("held-out rows have no noise of their own: give noise as one number")
        self.objective, self.held_out = objective, held_out
        if isinstance(objective.evidence, RowEvidence):
            objective.evidence.judged = True
        self.best = -np.inf
        self.densities: np.ndarray | None = None

    def __call__(self, x: np.ndarray) -> float:
        try:
            posterior = self.objective.posterior(x)
        except FactorisationError:
            return -np.inf
        densities = self.held_out.log_densities(posterior, self.objective.packing.unpack(x).noise)
        score = float(np.mean(densities))
        if score > self.best:
            self.best, self.densities = score, densities
        return score


class RowEvidence:
    """The evidence of a problem's own row of the table. A likelihood's sites start from those of the call
    before; where points are `judged`, the factors serve the posterior, too.
    """

    def __init__(self) -> None:
        self.memory, self.judged = SiteMemory(), False
        self.posterior: Posterior | Predictor | None = None  # of the problem seen last

    def __call__(self, P: Problem | Parted) -> tuple[float, dict[str, Any]]:
        options: dict[str, Any] = dict(escalate=False, memory=self.memory, tolerance=SITE_TOLERANCE)
        self.posterior = None
        if self.judged and P.row.name not in DENSE:
            with blas_for(len(P.basis)):
                F = factorise(P, **options)
                value, gradient = gradient_from(P, F)
            self.posterior = with_data(P, posterior_from(P, F, value))
        else:
            value, gradient = gradient_of(P, **options)
        if P.noise_name in gradient:
            gradient["noise"] = gradient.pop(P.noise_name)
        return value, gradient


def noise_floor(row: Approximation) -> float:
    """The least noise that is learned, relative to the variance of y; small factors bear less of it."""
    return 1e-10 if row.keeps == "neighbours" else 1e-6


class PseudoTargets:
    """The evidence of a likelihood's pseudo-targets along neighbours, held until `settle` renews them; of
    several columns of targets, such as one for each class, the sum.

    The evidence of the likelihood itself is not stationary in its sites there, so its gradient would be
    wrong; parameters of the likelihood are held.
    """

    def __init__(self, columns: Sequence[Array]) -> None:
        self.columns = columns  # each (n, ...), the Y of a problem
        self.sites: list[tuple[Array, Array] | None] = [None] * len(columns)
        self.held: list[tuple[Array, Array]] = []  # pseudo-targets with the prior mean, and their noise

    def problems(self, P: Problem) -> list[Problem]:
        return [replace(P, Y=Y) for Y in self.columns]

    def settle(
        self, P: Problem, tolerance: float = NEAR_TOLERANCE, sweeps: int = NEAR_SWEEPS
    ) -> list[Settled]:
        """The sites of every column at the parameters of a problem, from those of the last time."""
        options: dict[str, Any] = dict(tolerance=tolerance, sweeps=sweeps, escalate=False)
        options["shared"] = SharedBlocks()
        settled = [settle(own, old, **options) for own, old in zip(self.problems(P), self.sites, strict=True)]
        self.sites = [(s.tau, s.nu) for s in settled]
        self.held = [(s.pseudo.Y + as_columns(P.mean(P.X)), s.pseudo.noise) for s in settled]
        return settled

    def __call__(self, P: Problem | Parted) -> tuple[float, dict[str, Any]]:
        assert isinstance(P, Problem) and P.likelihood is not None
        slopes = P.likelihood.parameters.items()
        value, total = 0.0, {f"likelihood.{k}": np.zeros(np.shape(v)) for k, v in slopes}
        shared = SharedBlocks()
        for number, (Y, noise) in enumerate(self.held, start=1):
            Y, shared.last = Y - as_columns(P.mean(P.X)), number == len(self.held)
            pseudo = gaussian_problem(P, Y, noise)
            with blas_for(len(P.basis)):
                kept = Held(blocks={}, runs={}, shared=shared if len(self.held) > 1 else None)
                part, gradient = gradient_from(pseudo, factorise(pseudo, escalate=False, kept=kept))
            value += part
            total |= {k: total.get(k, 0.0) + g for k, g in gradient.items() if k != "noise"}
        return value, total


def parameters_of(P: Problem | Parted) -> Parameters:
    """The parameters of a problem, in NumPy."""
    noise: Any = P.likelihood
    if noise is None:
        noise = P.noise_model
    if noise is None:
        noise = float(to_numpy(P.common_noise)) if P.one_noise else to_numpy(P.noise).copy()
    basis = P.basis.with_parameters({name: to_numpy(value) for name, value in P.basis.parameters.items()})
    return Parameters(P.kernel, basis, noise, P.mean)


def moved(P: AnyProblem, parameters: Parameters, y: Array | None = None) -> AnyProblem:
    """The problem with other parameters, its rows as they were; y are its `targets`, where they are known."""
    kernel, basis, noise, mean = parameters
    basis.check(kernel)
    if isinstance(noise, Likelihood):
        on = basis if isinstance(P, Parted) else basis.on(P.X)
        return replace(P, kernel=kernel, basis=on, likelihood=noise, mean=mean)
    if isinstance(P, Parted):
        return replace(P, kernel=kernel, basis=basis, noise=noise, mean=mean)
    Y = (targets(P) if y is None else y) - as_columns(mean(P.X))
    P = replace(P, kernel=kernel, basis=basis.on(P.X), mean=mean, Y=Y)
    return P if P.known_noise and not kernel.uncertain else P.with_noise(noise)  # noise per row is held


def plainly(P: Problem, row: Approximation) -> Problem:
    """The problem under a row of the table that keeps neither blocks nor neighbours."""
    return replace(P, row=row, labels=None, blocks=None, sets=None)


def tempered(P: Problem, g: Posterior | None, temperature: float) -> Problem:
    """The problem of f with noise between one number and that of g, if there is one."""
    if g is None:
        return P
    xp, (mean, variance) = namespace(P.X), g.predict(P.X)
    noise = xp.log(P.noise) * (1.0 - temperature) + temperature * (mean + 0.5 * variance)
    return replace(P, noise=xp.exp(noise), one_noise=False)


def targets(P: Problem) -> Array:
    """The targets of a problem, with the prior mean put back. (n, p)"""
    return P.Y if P.likelihood is not None else P.Y + as_columns(P.mean(P.X))


def varied(P: Problem, rows: np.ndarray) -> np.ndarray:
    """The rows, the first one replaced by another of P where their targets are all alike and others differ:
    of targets that are nearly all zero, say, nothing else can be learned.
    """
    Y = to_numpy(targets(P))
    differ = np.flatnonzero(np.any(Y != Y[rows[0]], axis=1))
    return rows if len(differ) == 0 or np.isin(differ, rows).any() else np.concatenate([differ[:1], rows[1:]])


def _summary(P: Problem | Parted, y: Array | None) -> tuple[Summary, list[float]]:
    """The moments of the rows, by one pass over a source; and sums by which other rows are recognised."""
    if isinstance(P, Parted):
        rows = moments(P.source)
        X, Y, weights = rows.X, rows.Y, None
    else:
        X, Y, weights = Columns.of(to_numpy(P.X)), Columns.of(to_numpy(y)), P.weights
    spread = X.center_and_scale()[1]
    observed = slice(None) if P.likelihood is None else slice(1)  # further columns say how it was observed
    variance = float(np.mean(Y.variance[observed]))
    if P.likelihood is not None and not P.likelihood.located:
        variance = 1.0
    squares = float(np.mean(Y.mean[observed] ** 2))
    if not variance > LEAST_SPREAD * squares:  # targets that are all alike
        variance = squares or 1.0
    sums = [float(columns.n * np.sum(columns.mean)) for columns in (X, Y)]
    sums += [] if weights is None else [float(namespace(weights).sum(weights))]
    widest = 1e4 if P.likelihood is None else P.likelihood.widest
    return Summary(X.n, np.where(spread > 0, spread, 1.0), X.low, X.high, variance, widest), sums


def _without_numbers(spec: Mapping[str, Any]) -> Any:
    """The structure of a kernel's spec without its parameters."""
    inside = [*spec.get("parts", ()), *([spec["kernel"]] if "kernel" in spec else [])]
    return spec["name"], spec.get("columns"), [_without_numbers(part) for part in inside]
