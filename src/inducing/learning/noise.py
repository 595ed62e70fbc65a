"""Learned noise: y ~ N(f, exp(g)), or Student's t about f with scale exp(g/2), two processes on one basis.

The likelihood of both together prefers to call hard rows noisy, so there are two ways. *Mean first*: f as if
the noise were one number; g from what f leaves of each row without that row in it, e ~ N(0, v₋ + exp(g));
then f again with noise that goes from the one number to exp(g) in steps, as far as left-out and held-out
errors allow. *Jointly*: the variational evidence of both, from there on.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtri

from ..engine.compiled_passes import expects
from ..engine.parts import Parted
from ..engine.several import JointFactors, factorise_jointly, joint_gradient
from ..engine.sweeps import SiteMemory
from ..errors import FactorisationError, ParameterError
from ..inference.left_out import LeftOut, left_out_errors, left_out_of
from ..inference.neighbours import with_neighbours
from ..inference.pic import Predictor
from ..inference.regression import as_problem, model_of, posterior_from, posterior_of, problem_of
from ..model.bases import as_points
from ..model.distributions import Observations
from ..model.kernels.base import Kernel
from ..model.kernels.composite import Sum
from ..model.kernels.stationary import RBF, Stationary
from ..model.likelihoods import LearnedNoise, LearnedScaleT, LogScaleT, LogVariance, StudentT
from ..model.means import Constant, Mean, Zero
from ..model.posterior import Posterior
from ..model.problem import Problem
from ..model.table import VFE
from ..numerics.arrays import Array, namespace, some_rows, to_numpy
from ..numerics.linalg import cholesky, contiguous
from ..numerics.workers import blas_for
from ..sources.moments import Columns
from ..sources.source import Source
from .objective import SITE_TOLERANCE, HeldOut, moved, targets, tempered
from .packing import Parameters
from .recipes import Task, split, train
from .settings import Settings
from .stages import Fit, Stage
from .starts import LEAST_GAIN

NOISE_WAYS = ("learned", "learned-jointly")  # mean first, and both at once
TEMPERATURES = (0.25, 0.5, 0.75, 1.0)  # of the noise by row: 0 is one number, 1 is exp(g)
PRIOR_ROWS = 5_000  # that the kernel of g is learned from
PRIOR_ITERATIONS = 40  # of that kernel
NOISE_SWEEPS = 400  # of g, whose likelihood is not log-concave
VARYING = 1e-3  # the chance of a test to see noise that varies where it does not
LEAST_DF = 4.0  # to start from: one scale for all rows makes tails look heavier than they are


@dataclass(frozen=True, eq=False)
class NoiseFit:
    """Learned noise: the fit of f, and both processes with their likelihood."""

    fit: Fit
    observations: Observations
    temperature: float  # of the noise that f was learned with; 1 is exp(g)
    approximation: str  # the row of the table that f was learned by
    score: float = -np.inf  # mean log density of held-out rows by what the others say; -∞ without them
    before: Posterior | None = None  # g as f was learned with it, where the temperature is not 0


class NoisePrior(NamedTuple):
    """Kernel and mean of g, and the likelihood of errors given g."""

    kernel: Kernel
    mean: Mean
    likelihood: LogVariance


def learn_noise(way: str, recipe: str, task: Task, optimize: str = "all") -> NoiseFit:
    """Fit `task`, whose noise is the one number or the StudentT to start from, by the recipe and in this way.

    The joint way is for the log density: of f and g by their common evidence, and of g on what is left by an
    f of FITC, which has error bars of its own, the one with the better held-out rows is kept. Raise if what f
    leaves has no process.
    """
    near = task.approximation == "neighbours"
    if near and (way != NOISE_WAYS[0] or task.problem.likelihood is not None):
        what = f"noise={way!r} of {task.problem.likelihood or 'Gaussian noise'}"
        advice = "use noise='learned' with Gaussian noise, or approximation='vfe'"
        raise ParameterError(f"{what} has no evidence along neighbours; {advice}")
    plain = task if near else replace(task, approximation="vfe", power=None)
    if not near:
        expects(replace(plain.problem, likelihood=LogVariance()))  # of g, which is learned last
    fit = train(recipe, plain, optimize)
    try:
        first = mean_first(plain.stage(), fit)
    except FactorisationError as error:
        advice = "use noise=None, or a likelihood= that expects such targets"
        raise FactorisationError(
            f"noise={way!r} found no process of the noise ({error}): {advice}"
        ) from error
    if way == NOISE_WAYS[0]:
        return first
    both = jointly(plain.stage(), first)
    if not np.isfinite(first.score):
        return both
    if plain.is_over:
        return both if both.score > first.score else first
    other, known = replace(plain, approximation="fitc"), [both]
    with suppress(FactorisationError):
        known.append(mean_first(other.stage(), train(recipe, other, optimize)))
    return max(known, key=lambda fit: fit.score)


# Mean first


def mean_first(start: Stage, fit: Fit) -> NoiseFit:
    """g from what f leaves of rows that it does not know, then f with noise as near exp(g) as left-out and
    held-out errors, and the held-out log density, allow.
    """
    P = moved(start.rows, Parameters(fit.kernel, fit.basis, fit.noise, fit.mean))
    P = with_neighbours(P) if P.row.keeps == "neighbours" else P
    held, rest = split(start)
    learning = P if held is None else replace(start, problem=P).on(rest).rows
    prior = _learned_prior(learning, left_out(learning, model_of(learning)), start)
    temperature, score = 0.0, -np.inf
    if held is not None and not start.is_over:
        temperature, score = _warmest(learning, prior, HeldOut(P.X[held], targets(P)[held]), start)
    observations, _, before = _processes(P, prior, temperature)
    fit = replace(fit, posterior=observations.posteriors[0])
    return NoiseFit(fit, observations, temperature, P.row.name, score, before)


def noise_of_sample(P: Problem, fit: Fit, start: Settings) -> NoiseFit:
    """g from what the posterior of all rows of a source leaves of some of them, each without itself."""
    errors = left_out(P, fit.posterior)
    g = _of_errors(P, errors, _learned_prior(P, errors, start))
    return NoiseFit(fit, Observations(LearnedNoise(), (fit.posterior, g)), 0.0, P.row.name)


def noise_of_left_out(P: Problem, left: LeftOut, start: Settings) -> tuple[Posterior, np.ndarray] | None:
    """g from predictions of each row of a problem by the others, on the problem's basis; and the log density
    that all other rows then give each. None where squared errors do not depend on the inputs.
    """
    known = left.variance - to_numpy(P.noise)
    errors = np.stack([left.error.ravel(), np.maximum(known, 0.0)], axis=1)
    if not _varies(to_numpy(P.X), left):
        return None
    prior = _learned_prior(P, errors, start)
    g = _of_errors(P, errors, prior)
    return g, left_out_of(_log_variance(P, errors, prior), g).log_density


def _varies(X: np.ndarray, left: LeftOut) -> bool:
    """Whether squared standardised errors depend on the inputs and the mean, or on their squares: n R² of a
    regression is χ² where they do not [White 1980, Econometrica 48, 817].
    """
    squares = left.error.ravel() ** 2 / left.variance
    U = np.column_stack([X, left.mean.ravel()])
    U = (U - U.mean(axis=0)) / np.maximum(U.std(axis=0), 1e-12)
    F = np.column_stack([U, U**2, np.ones(len(U))])
    fitted = F @ np.linalg.lstsq(F, squares, rcond=1e-8)[0]
    explained = np.var(fitted) / max(float(np.var(squares)), 1e-300)
    return len(F) * explained > chdtri(F.shape[1] - 1, VARYING)


def _warmest(P: Problem, prior: NoisePrior, judge: HeldOut, start: Settings) -> tuple[float, float]:
    """The last temperature that errors allow, going up from 0, and the log density there."""
    best, last = 0.0, _scores(P, prior, 0.0, judge)
    for temperature in TEMPERATURES if P.likelihood is None else ():
        if start.is_over:
            break
        try:
            scores = _scores(P, prior, temperature, judge)
        except FactorisationError:  # sites that leave no process
            break
        if scores[0] > last[0] or scores[1] > last[1] or scores[2] < last[2]:
            break
        best, last = temperature, scores
    return best, last[2]


def _scores(P: Problem, prior: NoisePrior, temperature: float, judge: HeldOut) -> tuple[float, float, float]:
    """Mean squared errors of left-out and of held-out rows, and the log density of the latter."""
    observations, errors, _ = _processes(P, prior, temperature)
    y = to_numpy(judge.Y)[:, 0]
    wrong = y - observations.latent(judge.X).mean[:, 0]
    density = float(np.mean(observations.at(judge.X).log_density(y)))
    weights = None if P.weights is None else to_numpy(P.weights)
    return float(np.average(to_numpy(errors)[:, 0] ** 2, weights=weights)), float(np.mean(wrong**2)), density


def _processes(
    P: Problem, prior: NoisePrior, temperature: float
) -> tuple[Observations, Array, Posterior | None]:
    """f with noise of this temperature, g from what it leaves of each row; that (n, 2); and the g that gave
    the noise of f, None where it is one number.
    """
    f, before = model_of(P), None
    errors = left_out(P, f)
    g = _of_errors(P, errors, prior)
    if temperature > 0.0:
        P, before = tempered(P, g, temperature), g
        f = model_of(P)
        errors = left_out(P, f)
        g = _of_errors(P, errors, prior)
    df = getattr(prior.likelihood, "df", None)
    return Observations(LearnedNoise() if df is None else LearnedScaleT(df), (f, g)), errors, before


def _of_errors(P: Problem, errors: Array, prior: NoisePrior) -> Posterior:
    """g from what f leaves of each row. A large error where f is less sure than the noise is large has a site
    of negative precision; g is no wider than its prior all the same, so that it can be compiled.
    """
    g = posterior_of(_log_variance(P, errors, prior), tolerance=SITE_TOLERANCE, sweeps=NOISE_SWEEPS)
    if g.variance_root is not None or g.A is None:
        return g
    xp = namespace(g.A)
    values, V = xp.linalg.eigh(g.A @ g.A.T)  # of B⁻¹
    clipped = (V * xp.clip(values, None, 1.0)) @ V.T
    return replace(g, A=contiguous(xp.flip(cholesky(contiguous(xp.flip(clipped))))))


def left_out(P: Problem, post: Posterior | Predictor) -> Array:
    """y less its mean without the row in the posterior, and the variance of f there. (n, 2)"""
    errors, variances = left_out_errors(P, post)
    return namespace(errors).stack([errors[:, 0], variances], axis=1)


def _log_variance(P: Problem, errors: Array, prior: NoisePrior) -> Problem:
    """The problem of g, given what f leaves of each row."""
    kernel, mean, likelihood = prior
    options: dict[str, Any] = dict(mean=mean, jitter=P.jitter, weights=P.weights)
    return problem_of(kernel, as_points(P.basis), VFE, likelihood, P.X, errors, **options)


def _learned_prior(P: Problem, errors: Array, settings: Settings) -> NoisePrior:
    """The prior of g, learned by the evidence of at most PRIOR_ROWS rows, in the iterations and time left."""
    few = some_rows(P.n, PRIOR_ROWS, P.n)
    weights = np.ones(P.n) if P.weights is None else to_numpy(P.weights)
    spread = Columns.of(to_numpy(P.X)).center_and_scale()[1]  # (d,)
    same = isinstance(P.kernel, Stationary) and P.kernel.columns is None
    kind: Any = type(P.kernel) if same else RBF
    kernel = kind(lengthscale=2.0 * np.sqrt(P.X.shape[1]) * np.where(spread > 0, spread, 1.0), variance=1.0)
    likelihood = LogVariance() if P.likelihood is None else LogScaleT(max(LEAST_DF, _student(P).df))
    start = NoisePrior(kernel, Constant(likelihood.likeliest(to_numpy(errors), weights)), likelihood)
    stage = Stage(
        _log_variance(P, errors, start),
        optimize="hyperparameters",
        max_iterations=min(PRIOR_ITERATIONS, settings.max_iterations),
        deadline=settings.deadline,
        least_gain=LEAST_GAIN,
        progress=False,
    )
    parameters = stage.on(few).run().parameters
    return NoisePrior(parameters.kernel, parameters.mean, parameters.noise)


def _student(P: Problem) -> StudentT:
    if not isinstance(P.likelihood, StudentT):
        raise ParameterError(f"noise can be a process for Gaussian noise and StudentT, not {P.likelihood}")
    return P.likelihood


# Jointly


class JointEvidence:
    """The variational evidence of f and g and its gradient. The kernels travel as the parts of a sum, g's as
    the last one, and the means as a constant of two numbers.
    """

    def __init__(self) -> None:
        self.memory = SiteMemory()
        self.posterior: Observations | None = None  # of the problem seen last

    def __call__(self, P: Problem | Parted) -> tuple[float, dict[str, Any]]:
        self.posterior, (problems, F) = None, self._factors(P)
        with blas_for(len(P.basis)):
            of_f, of_g = joint_gradient(problems, F)
        self.posterior = self.observations(problems, F)
        last = len(P.kernel.parts) - 1  # type: ignore[attr-defined]
        own = "" if last > 1 else "0."
        gradient = {f"kernel.{own}{k[7:]}": v for k, v in of_f.items() if k.startswith("kernel.")}
        gradient |= {f"kernel.{last}.{k[7:]}": v for k, v in of_g.items() if k.startswith("kernel.")}
        gradient |= {k: v + of_g[k] for k, v in of_f.items() if k.startswith("basis.")}
        gradient["mean.value"] = np.array([float(g["mean.value"]) for g in (of_f, of_g)])
        return F.value, gradient | {f"likelihood.{k}": float(v) for k, v in F.likelihood.items()}

    def model(self, P: Problem | Parted) -> Observations:
        """Both processes at the parameters of a problem."""
        return self.observations(*self._factors(P))

    def _factors(self, P: Problem | Parted) -> tuple[list[Problem], JointFactors]:
        problems = self.problems(P)
        with blas_for(len(P.basis)):
            F = factorise_jointly(problems, escalate=False, memory=self.memory, tolerance=SITE_TOLERANCE)
        return problems, F

    @staticmethod
    def problems(P: Problem | Parted) -> list[Problem]:
        """The problem of f and that of g, which share rows and basis."""
        assert isinstance(P, Problem) and isinstance(P.kernel, Sum) and isinstance(P.mean, Constant)
        *own, last = P.kernel.parts
        kernels = own[0] if len(own) == 1 else Sum(tuple(own)), last
        pairs = zip(kernels, P.mean.value, strict=True)
        return [replace(P, kernel=kernel, mean=Constant(float(value))) for kernel, value in pairs]

    @staticmethod
    def observations(problems: Sequence[Problem | Parted], F: JointFactors) -> Observations:
        likelihood = problems[0].likelihood
        assert likelihood is not None
        pairs = zip(problems, F.each, strict=True)
        return Observations(likelihood, tuple(posterior_from(P, each, F.value) for P, each in pairs))


def jointly(start: Stage, learned: NoiseFit) -> NoiseFit:
    """f and g by their common evidence, from the mean learned first, until held-out rows say stop; what was
    learned first where sites of both leave no process, or do not settle.
    """
    f, g = learned.observations.posteriors
    P = start.rows
    if not isinstance(f.mean_function, Zero | Constant):
        raise ParameterError("noise='learned-jointly' needs mean=None or a constant; use noise='learned'")
    levels = [float(getattr(post.mean_function, "value", 0.0)) for post in (f, g)]
    options: dict[str, Any] = dict(mean=Constant(levels), jitter=max(f.jitter, g.jitter), weights=P.weights)
    likelihood = learned.observations.likelihood
    kernel, basis = Sum((f.kernel, g.kernel)), as_points(f.basis)
    both = problem_of(kernel, basis, VFE, likelihood, P.X, targets(P)[:, 0], **options)
    held, rest = split(start)
    own = "kernel" if isinstance(f.kernel, Sum) else "kernel.0"  # sums of sums are flat
    stage = replace(
        start,
        problem=both,
        fixed=[name.replace("kernel", own) for name in start.fixed if name.startswith(("kernel", "basis"))],
        priors=None,
        restarts=0,
        least_gain=LEAST_GAIN,
        held_out=None if held is None else HeldOut(P.X[held], targets(P)[held]),
    )
    try:
        outcome = replace(stage if held is None else stage.on(rest), evidence=JointEvidence()).run()
        problems = JointEvidence.problems(replace(moved(both, outcome.parameters), jitter=outcome.jitter))
        with blas_for(len(both.basis)):
            F = factorise_jointly(problems, escalate=False, sweeps=NOISE_SWEEPS)
    except FactorisationError:
        return learned
    if not F.converged:
        return learned
    observations = JointEvidence.observations(problems, F)
    first = observations.posteriors[0]
    fit = replace(outcome.following([]).fit(first), kernel=first.kernel, mean=first.mean_function)
    score = -np.inf if outcome.score is None else outcome.score
    fit = replace(fit, noise=outcome.parameters.noise, value=F.value)
    return NoiseFit(fit, observations, 1.0, VFE.name, score)


def jointly_over(source: Source, start: Stage, learned: NoiseFit) -> NoiseFit:
    """f and g by their common evidence on the rows of `start`, then both from all rows of a source."""
    few = jointly(start, learned)
    if few is learned:
        return learned
    likelihood = few.observations.likelihood
    both = []
    for post in few.observations.posteriors:
        options: dict[str, Any] = dict(mean=post.mean_function, jitter=post.jitter)
        both.append(as_problem(post.kernel, post.basis, VFE, likelihood, source, None, **options))
    with blas_for(len(both[0].basis)):
        F = factorise_jointly(both, tolerance=SITE_TOLERANCE)
    observations = JointEvidence.observations(both, F)
    fit = replace(few.fit, posterior=observations.posteriors[0], value=F.value)
    return replace(few, fit=fit, observations=observations)
