"""Mixtures of Gaussian processes: each row comes from one of several functions, unknown which. [004 §6.1]

    model = ig.mixture(kernel, basis, 0.01, X, y, components=2)
    model.predict(X)            # mean and variance of y under the mixture
    model.log_density(X, y)     # of y at each row of X
    model.modes(X)              # the values of y where that density has its maxima

Row i has a hidden label z_i with probabilities π, and p(y_i | z_i = k) = p(y_i | f_k(x_i)). With q(f) q(z) in
the place of the posterior the evidence has the lower bound

    F = Σ_k F_k(r_k) + Σ_ik r_ik (log π_k - log r_ik)

where F_k(r_k) is VFE's bound of process k, whose row i counts r_ik times. EM maximises F: given r, each
process is one call of `condition`; given the processes, r_ik ∝ π_k exp⟨log p(y_i|f_k(x_i))⟩. F has many
maxima: EM starts from many places, and exp F is the relative weight of the solutions found. [004 eq. 5.40]
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax

from ..errors import IterationWarning, ParameterError
from ..inference.regression import posterior_of, problem_of
from ..learning.fitting import fit
from ..model.bases import Basis
from ..model.distributions import Observations
from ..model.kernels.base import Kernel
from ..model.likelihoods import Gaussian, Likelihood
from ..model.posterior import Marginals, Posterior
from ..model.problem import as_inputs
from ..numerics.arrays import Seed, to_numpy

LEAST_RESPONSIBILITY = 1e-10
SAME_SOLUTION = 0.05  # solutions whose responsibilities differ by less, on average, count as one
MODE_STEP = 1e-9  # a mode is found when steps in y are shorter, in units of the narrowest component
MEAN_SHIFTS = 500  # the most steps towards a mode


@dataclass(frozen=True, eq=False)
class MixtureComponent:
    """One process of a mixture: its model and its share of the rows."""

    posterior: Posterior
    likelihood: Likelihood
    share: float  # π

    @property
    def observations(self) -> Observations:
        return Observations(self.likelihood, (self.posterior,))


@dataclass(frozen=True, eq=False)
class EMSolution:
    """One maximum of the bound."""

    components: tuple[MixtureComponent, ...]
    responsibilities: np.ndarray  # (n, k)
    log_weight: float  # F
    converged: bool
    starts: int = 1  # how many starts ended here

    @property
    def labels(self) -> np.ndarray:
        """The likeliest component of each row. (n,)"""
        return np.argmax(self.responsibilities, axis=1)


@dataclass(frozen=True, eq=False)
class ProcessMixture:
    """The solutions that EM found, heaviest first; predictions average over all of them by their weight."""

    solutions: tuple[EMSolution, ...]

    @property
    def best(self) -> EMSolution:
        return self.solutions[0]

    @property
    def weights(self) -> np.ndarray:
        """The solutions' shares of the posterior, 0 for those that did not converge where one did. (s,)"""
        settled = np.array([solution.converged for solution in self.solutions])
        logs = np.array([solution.log_weight for solution in self.solutions])
        return softmax(np.where(settled | ~np.any(settled), logs, -np.inf))

    def components(self) -> list[tuple[float, MixtureComponent]]:
        """Return all processes with their weights, which sum to one."""
        return [
            (float(weight) * part.share, part)
            for weight, solution in zip(self.weights, self.solutions, strict=True)
            for part in solution.components
            if weight > 0.0
        ]

    def predict(self, X: Any) -> Marginals:
        """Return mean and variance of a new y at each row under the whole mixture. (n,) each"""
        weights, means, variances = self._moments(X)
        mean = weights @ means
        return Marginals(mean, weights @ (variances + (means - mean) ** 2))

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """Return the log density of y at each row. (n,)"""
        terms = [np.log(w) + part.observations.at(X).log_density(y) for w, part in self.components()]
        return np.logaddexp.reduce(terms, axis=0)

    def modes(self, X: Any) -> list[np.ndarray]:
        """Return the values of y where the density of each row has its maxima, the highest first.

        Each component counts as a Gaussian with its mean and variance of y, which under Gaussian noise it is.
        """
        weights, means, variances = self._moments(X)
        y = means.copy()  # mean shift uphill from every centre
        for _ in range(MEAN_SHIFTS):
            logs = _log_terms(weights, means, variances, y)
            pull = np.exp(logs - logs.max(axis=1, keepdims=True)) / variances[None]
            new = np.sum(pull * means[None], axis=1) / np.sum(pull, axis=1)
            step, y = np.max(np.abs(new - y) / np.sqrt(variances.min(axis=0))), new
            if step < MODE_STEP:
                break
        heights = np.logaddexp.reduce(_log_terms(weights, means, variances, y), axis=1)  # (k, n)
        near = 1e-3 * np.sqrt(variances.min(axis=0))
        return [_distinct(y[:, i], heights[:, i], near[i]) for i in range(y.shape[1])]

    def _moments(self, X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return weights (k,), and mean and variance of y under each component, (k, n) each."""
        X = as_inputs(X)
        weights, parts = zip(*self.components(), strict=True)
        each = [part.likelihood.predict(*part.observations.latent(X)) for part in parts]
        means, variances = (np.stack(column) for column in zip(*each, strict=True))
        return np.array(weights), means, variances


def mixture(
    kernel: Kernel | Sequence[Kernel],
    basis: Basis,
    noise: Any,
    X: Any,
    y: Any,
    *,
    components: int = 2,
    starts: int = 50,
    rounds: int = 200,
    tolerance: float = 1e-6,
    learn: int = 0,
    rng: Seed = None,
) -> ProcessMixture:
    """Fit a mixture of `components` processes to the rows, by EM from `starts` starts.

    kernel is one for all components or one for each; noise a variance or a `Likelihood`. A start gives every
    component a few rows near each other, and responsibilities by its predictions of the rest. EM ends when a
    round gains less than `tolerance` nats a row, after `rounds` at most. Then `fit` learns each component's
    kernel and noise by its part of the best solution's bound, followed by EM, `learn` times.
    """
    kernels = list(kernel) if isinstance(kernel, Sequence) else [kernel] * components
    if components < 1 or starts < 1 or len(kernels) != components:
        given = f"not {len(kernels)} kernels, {components} components and {starts} starts"
        raise ParameterError(f"a mixture needs starts, and one kernel or one for each component, {given}")
    likelihood = noise if isinstance(noise, Likelihood) else Gaussian(noise)
    X, y = to_numpy(as_inputs(X)), to_numpy(likelihood.check(y))
    models = [(k, basis, likelihood) for k in kernels]
    generator = np.random.default_rng(rng)
    solutions: list[EMSolution] = []
    for _ in range(starts if components > 1 else 1):
        start = _start(models, X, y, generator)
        solutions = _with(solutions, _climb(models, X, y, start, rounds, tolerance))
    for _ in range(learn):
        best = solutions[0]
        models = [_learned(m, X, y, r) for m, r in zip(models, best.responsibilities.T, strict=True)]
        solutions = [_climb(models, X, y, best.responsibilities, rounds, tolerance)]
    if not solutions[0].converged:
        message = f"EM gained more than {tolerance:g} nats a row in its last round of {rounds}; raise rounds"
        warnings.warn(message, IterationWarning, stacklevel=2)
    return ProcessMixture(tuple(solutions))


ComponentModel = tuple[Kernel, Basis, Likelihood]


def _climb(
    models: Sequence[ComponentModel],
    X: np.ndarray,
    y: np.ndarray,
    r: np.ndarray,
    rounds: int,
    tolerance: float,
) -> EMSolution:
    """Run EM from responsibilities r (n, k)."""
    last, converged = -np.inf, False
    for _ in range(rounds):
        r = np.maximum(r, LEAST_RESPONSIBILITY)
        shares = r.sum(axis=0) / r.sum()
        pairs = zip(models, r.T, strict=True)
        posts = [_process(model, X, y, w) for model, w in pairs]
        of_labels = float(np.sum(r * (np.log(shares) - np.log(r))))
        bound = sum(post.log_evidence or 0.0 for post in posts) + of_labels
        logs = np.stack([_expected(m[2], post, X, y) for m, post in zip(models, posts, strict=True)], axis=1)
        now, r = r, softmax(logs + np.log(shares), axis=1)
        converged = bound - last < tolerance * len(y)
        last = bound
        if converged:
            break
    each = zip(models, posts, shares, strict=True)
    parts = tuple(MixtureComponent(post, model[2], share) for model, post, share in each)
    return EMSolution(parts, now, bound, converged)


def _process(
    model: ComponentModel, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None
) -> Posterior:
    kernel, basis, noise = model
    return posterior_of(problem_of(kernel, basis, "vfe", noise, X, y, weights=weights))


def _start(
    models: Sequence[ComponentModel], X: np.ndarray, y: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return responsibilities by processes that have seen a few near rows each. (n, k)"""
    columns = []
    for kernel, basis, noise in models:
        centre = X[rng.integers(len(X))]
        near = np.abs(kernel.covariances(X, centre[None])[:, 0]) + 0.05 * np.mean(kernel.diagonal(X))
        seen = rng.choice(len(X), min(len(X), 2 + X.shape[1]), replace=False, p=near / near.sum())
        post = _process((kernel, basis, noise), X[seen], y[seen])
        columns.append(_expected(noise, post, X, y))
    return softmax(np.stack(columns, axis=1) / 2.0, axis=1)  # soft: EM decides


def _expected(likelihood: Likelihood, post: Posterior, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return ⟨log p(y|f)⟩ of each row. (n,)"""
    return to_numpy(likelihood.expected_log(y, *Observations(likelihood, (post,)).latent(X)))


def _learned(model: ComponentModel, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> ComponentModel:
    kernel, basis, noise = model
    best = fit(kernel, basis, "vfe", noise, X, y, weights=weights, optimize="hyperparameters", progress=False)
    return best.kernel, best.basis, best.noise if isinstance(best.noise, Likelihood) else Gaussian(best.noise)


def _with(solutions: list[EMSolution], new: EMSolution) -> list[EMSolution]:
    """Merge a solution into the distinct ones, up to the order of components; converged, heavy ones first."""
    for i, old in enumerate(solutions):
        apart = np.abs(old.responsibilities[:, :, None] - new.responsibilities[:, None, :]).mean(axis=0)
        if apart[linear_sum_assignment(apart)].mean() < SAME_SOLUTION:
            keep = max(old, new, key=lambda s: (s.converged, s.log_weight))
            merged = replace(keep, starts=old.starts + new.starts)
            solutions = [*solutions[:i], merged, *solutions[i + 1 :]]
            break
    else:
        solutions = [*solutions, new]
    return sorted(solutions, key=lambda s: (not s.converged, -s.log_weight))


def _log_terms(weights: np.ndarray, means: np.ndarray, variances: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the log of each Gaussian term of a mixture at y (s, n). (s, k, n)"""
    e = y[:, None] - means[None]
    return np.log(weights)[:, None] - 0.5 * (np.log(2.0 * np.pi * variances) + e * e / variances)


def _distinct(y: np.ndarray, heights: np.ndarray, near: float) -> np.ndarray:
    """Return the maxima that differ by more than `near`, the highest first."""
    kept: list[float] = []
    for i in np.argsort(-heights, kind="stable"):
        if all(abs(y[i] - other) > near for other in kept):
            kept.append(float(y[i]))
    return np.array(kept)
