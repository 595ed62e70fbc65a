"""Batch inference, `condition` and the evidence, for rows of the table, the exact GP and subsets of data."""

from dataclasses import replace
from importlib import import_module
from typing import Any, TypeGuard

import numpy as np

from .. import BESIDE
from ..engine import evidence
from ..engine.parts import Parted, make_parted
from ..engine.sweeps import SWEEPS, TOLERANCE, SiteMemory, Sweep
from ..errors import ParameterError, UnknownNameError
from ..model.bases import Basis
from ..model.kernels.base import Gradients, Kernel
from ..model.means import Mean
from ..model.posterior import Posterior
from ..model.problem import DEFAULT_JITTER, Problem, make_problem, subset
from ..model.table import FITC, TABLE, Approximation, Sites
from ..model.table import row as row_of_table
from ..numerics.arrays import Array, Given, asked_once, to_numpy
from ..numerics.linalg import contiguous
from ..numerics.workers import blas_for
from ..sources.source import Source
from .conjugate_gradients import predictor as conjugate_gradients
from .exact import exact_evidence, exact_gradient, exact_posterior
from .neighbour_sites import Settled, settle
from .neighbours import NeighboursPredictor, with_neighbours
from .pic import PICPredictor, Predictor

DENSE = ("exact", "sod", "cg")  # approximations whose basis is rows of the data
NAMES = (*DENSE, *TABLE)


def condition(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    noise: Given,
    X: Given,
    y: Given = None,
    *,
    mean: Mean | None = None,
    jitter: float = DEFAULT_JITTER,
    blocks: Given = None,
    power: float | None = None,
    neighbours: Given = None,
    weights: Given = None,
    tolerance: float = TOLERANCE,
    sweeps: int = SWEEPS,
) -> Posterior | Predictor:
    """Return the posterior under one row of the table, given data. [003 Table 1]

    noise is a variance, one number or one per row, or a `Likelihood`; y is (n,) or (n, p), where outputs
    share one factorisation, or has the columns that the likelihood takes; blocks are integer labels (n,) for
    "pitc", "pic" and committees; power is PEP's; neighbours, for "neighbours", is how many near earlier rows
    each row depends on, 20 by default, searched for inside the blocks given or else in clusters of near rows,
    or their numbers (n, q), -1 for none; a row of weight w counts w times. "exact" ignores the basis; "sod"
    keeps the training rows nearest to it; "cg" is "exact" by conjugate gradients, without a factor of K, for
    as many rows as there is time for. "cg", "pic", "neighbours" and the methods beside the table ("bcm",
    "rbcm", "gpoe", "poe", which ignore the basis, "nystrom", "asor") need the data at every query, so they
    return a predictor.

    A likelihood's sites are found by at most `sweeps` sweeps over the rows, until the process changes by less
    than `tolerance` of its own spread; they are in `post.sites`.

    X may be a `Source` that has the targets, too; then leave y out. Its rows are read part by part, twice for
    each value of the evidence, by all rows of the table but "pic". There noise is one number, and blocks the
    number of rows of a block, into which each part is cut; None takes whole parts as blocks. Neighbours are
    searched for inside a part, so near rows should share one (`outofcore.by_neighbourhood`), and their
    predictor has all rows in memory.
    """
    options: dict[str, Any] = dict(mean=mean, jitter=jitter, blocks=blocks, weights=weights)
    if approximation in BESIDE:
        if isinstance(X, Source):
            raise ParameterError(_all_rows_at_once(approximation))
        if neighbours is not None:
            raise ParameterError(f"neighbours= is only for 'neighbours', not for {approximation!r}")
        make = import_module(f"inducing.{BESIDE[approximation]}").condition
        return make(kernel, basis, approximation, noise, X, y, power=power, **options)
    row = approximation_of(approximation, power, neighbours)
    P = as_problem(kernel, basis, row, noise, X, y, **options)
    return model_of(P, tolerance=tolerance, sweeps=sweeps)


def log_evidence(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    noise: Given,
    X: Given,
    y: Given = None,
    *,
    mean: Mean | None = None,
    jitter: float = DEFAULT_JITTER,
    blocks: Given = None,
    power: float | None = None,
    neighbours: Given = None,
    weights: Given = None,
    tolerance: float = TOLERANCE,
    sweeps: int = SWEEPS,
) -> float:
    """Return the log evidence log q(y) of a row of the table. Arguments as for `condition`."""
    options: dict[str, Any] = dict(mean=mean, jitter=jitter, blocks=blocks, weights=weights)
    row = approximation_of(approximation, power, neighbours)
    P = as_problem(kernel, basis, row, noise, X, y, **options)
    if along_neighbours(P):
        return settle(P, tolerance=tolerance, sweeps=sweeps).log_evidence
    if isinstance(P, Parted) or P.row.name not in DENSE:
        return evidence.log_evidence(P, evidence.factorise(P, tolerance=tolerance, sweeps=sweeps))
    return conjugate_gradients.predictor_of(P).log_evidence if P.row.name == "cg" else exact_evidence(P)


def log_evidence_and_gradient(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str,
    noise: Given,
    X: Given,
    y: Given = None,
    *,
    mean: Mean | None = None,
    jitter: float = DEFAULT_JITTER,
    blocks: Given = None,
    power: float | None = None,
    neighbours: Given = None,
    weights: Given = None,
    tolerance: float = TOLERANCE,
    sweeps: int = SWEEPS,
) -> tuple[float, dict[str, Any]]:
    """Return log q(y) and its gradient by parameter ("kernel.lengthscale", "basis.Z", "noise" or
    "likelihood.scale", "mean.value", …), each with the others held. Arguments as for `condition`.
    """
    options: dict[str, Any] = dict(mean=mean, jitter=jitter, blocks=blocks, weights=weights)
    row = approximation_of(approximation, power, neighbours)
    P = as_problem(kernel, basis, row, noise, X, y, **options)
    return gradient_of(P, tolerance=tolerance, sweeps=sweeps)


def approximation_of(name: str, power: float | None = None, neighbours: Given = None) -> Approximation:
    """Return the row of the table called `name`; for the exact GP and its relatives, FITC's row renamed."""
    if name in BESIDE:
        raise ParameterError(
            f"{name!r} has no evidence to maximise, since it depends on the queries; learn with one of "
            f"{', '.join(NAMES)}, then call condition with {name!r}"
        )
    if name in DENSE:
        for option, value, owner in (("power", power, "pep"), ("neighbours=", neighbours, "neighbours")):
            if value is not None:
                raise ParameterError(f"{option} is only for {owner!r}, not for {name!r}")
        return replace(FITC, name=name)
    if name not in TABLE:
        known = ", ".join((*DENSE, *TABLE, *BESIDE))
        raise UnknownNameError(f"there is no approximation {name!r}; choose one of {known}")
    return row_of_table(name, power, neighbours)


def as_problem(
    kernel: Kernel, basis: Basis | None, row: Approximation, noise: Given, X: Given, y: Given, **options: Any
) -> Problem | Parted:
    """Return the checked problem of `condition` and `fit`, on arrays or a source; options of `problem_of`."""
    if not isinstance(X, Source):
        return problem_of(kernel, basis, row, noise, X, y, **options)
    if y is not None:
        raise ParameterError("a source has its targets inside; leave y out")
    if row.name in DENSE:
        raise ParameterError(_all_rows_at_once(row.name))
    search = with_neighbours if row.keeps == "neighbours" else None
    return make_parted(kernel, basis, row, noise, X, search=search, **options)


def _all_rows_at_once(name: str) -> str:
    known = ", ".join(name for name, row in TABLE.items() if not row.needs_data)
    return f"{name!r} needs all rows in memory at once; over a source use one of {known}"


def problem_of(
    kernel: Kernel,
    basis: Basis | None,
    approximation: str | Approximation,
    noise: Given,
    X: Given,
    y: Given,
    *,
    blocks: Given = None,
    **options: Any,
) -> Problem:
    """Return the checked problem on arrays; the exact GP and its relatives take rows of the data as basis.
    Options as for `make_problem`.
    """
    entry = approximation_of(approximation) if isinstance(approximation, str) else approximation
    if entry.name not in DENSE:
        if basis is None:
            raise ParameterError(f"{entry.name!r} needs a basis; only 'exact' does without")
        P = make_problem(kernel, basis, entry, noise, X, y, blocks=blocks, **options)
        return with_neighbours(P) if entry.keeps == "neighbours" else P
    P = make_problem(kernel, None, entry, noise, X, y, **options)
    return P if entry.name != "sod" else subset(P, _nearest_rows(P.X, basis))


def model_of(
    P: Problem | Parted, *, tolerance: float = TOLERANCE, sweeps: int = SWEEPS
) -> Posterior | Predictor:
    """Return the posterior of a checked problem, or a predictor if queries need the data."""
    if isinstance(P, Problem) and P.row.name in DENSE and P.likelihood is None:
        return conjugate_gradients.predictor_of(P) if P.row.name == "cg" else exact_posterior(P)
    if along_neighbours(P):
        return settled_model(settle(P, tolerance=tolerance, sweeps=sweeps))
    return with_data(P, posterior_of(P, tolerance=tolerance, sweeps=sweeps))


def along_neighbours(P: Problem | Parted) -> TypeGuard[Problem]:
    """Return whether a likelihood that is not Gaussian meets "neighbours": its sites then act on f itself."""
    return isinstance(P, Problem) and P.row.keeps == "neighbours" and P.likelihood is not None


def settled_model(settled: Settled) -> NeighboursPredictor:
    """Return the predictor from a likelihood's pseudo-targets along neighbours."""
    post = posterior_from(settled.pseudo, settled.factors, settled.log_evidence)
    sites = Sites(settled.tau, settled.nu, share=1.0, n_sweeps=settled.n_sweeps, converged=settled.converged)
    return NeighboursPredictor.of(replace(post, sites=sites), settled.pseudo)


def with_data(P: Problem | Parted, post: Posterior) -> Posterior | Predictor:
    """Return the posterior unchanged, or the predictor made from it if queries need the data."""
    if isinstance(P, Parted) and P.row.keeps == "neighbours":
        return NeighboursPredictor.over(post, P)
    if isinstance(P, Parted) or not P.row.needs_data:
        return post
    return PICPredictor(post, P) if P.row.own_block else NeighboursPredictor.of(post, P)


def posterior_of(
    P: Problem | Parted,
    *,
    memory: SiteMemory | None = None,
    tolerance: float = TOLERANCE,
    sweeps: int = SWEEPS,
) -> Posterior:
    """Return the posterior of a checked problem; for PIC this is PITC's, for neighbours that of w alone."""
    F = evidence.factorise(P, memory=memory, tolerance=tolerance, sweeps=sweeps)
    return posterior_from(P, F, evidence.log_evidence(P, F))


def posterior_from(P: Problem | Parted, F: evidence.Factors, log_evidence: float) -> Posterior:
    """Return the posterior of a problem from the factors of the first pass and the log evidence."""
    A, sites = contiguous(F.LBinv.T), None if F.point is None else _sites(P, F)
    post = Posterior(P.kernel, P.basis, F.Luu, F.w, A, P.mean, P.row.conditional, log_evidence, F.jitter)
    return replace(post, one_output=P.one_output, sites=sites)


def _sites(P: Problem | Parted, F: evidence.Factors) -> Sites:
    """Return the sites of all rows, each for one copy of its row."""
    assert F.point is not None
    if isinstance(P, Problem):
        tau, nu = F.sites[0]
        weight = P.weight(slice(None))
    else:
        (tau, nu), weight = P.sites(Sweep(F.Linv, F.LBinv, F.w, F.sites, gram=False)), 1.0
    return Sites(tau=tau / weight, nu=nu / weight, n_sweeps=F.point.n_sweeps, converged=F.point.converged)


def gradient_of(
    P: Problem | Parted,
    *,
    escalate: bool = True,
    memory: SiteMemory | None = None,
    tolerance: float = TOLERANCE,
    sweeps: int = SWEEPS,
) -> tuple[float, Gradients]:
    """Return the log evidence of a checked problem and its gradient; with escalate=False, raise if jitter
    would have to grow. A likelihood's sites start from those in `memory`, which is updated.
    """
    if along_neighbours(P):
        why = "has no gradient: the evidence is not stationary in its sites"
        raise ParameterError(f"{P.likelihood} along neighbours {why}; learn with fit, or under 'fitc'")
    if isinstance(P, Problem) and P.row.name in DENSE and P.likelihood is None:
        if P.row.name == "cg":
            estimate, gradient = conjugate_gradients.log_evidence_and_gradient(P)
            return estimate.value, gradient
        with blas_for(P.n):
            return exact_gradient(P)

    def compute() -> tuple[float, Gradients]:
        F = evidence.factorise(P, escalate=escalate, memory=memory, tolerance=tolerance, sweeps=sweeps)
        return evidence.gradient_from(P, F)

    with blas_for(len(P.basis)):
        if isinstance(P, Problem) and P.likelihood is None:
            return asked_once(compute, P.X)
        return compute()


def _nearest_rows(X: Array, basis: Basis | None) -> np.ndarray:
    """Return the numbers of the training rows nearest to the basis functions: the subset of "sod"."""
    if basis is None:
        raise ParameterError("'sod' needs a basis: its subset is the training rows nearest to it")
    rows = to_numpy(X)
    return np.unique([np.argmin(np.sum((rows - z) ** 2, axis=1)) for z in to_numpy(basis.centers)])
