"""Batch inference: `condition` and the evidence, for the table, the exact GP and subsets of data."""

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

DENSE = ("exact", "sod", "cg")  # whose basis is rows of the data
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
    """The posterior under one row of the table, given data. [003 Table 1]

    noise is a variance, one number or one per row, or a `Likelihood`; y is (n,) or (n, p), outputs sharing
    one factorisation, and for a likelihood the targets and further numbers that it takes of each row; blocks
    are integer labels (n,) for "pitc", "pic" and committees; power is PEP's; neighbours are for "neighbours":
    the number of earlier rows near a row that it looks at, 20 if not given, searched for inside the given
    blocks or inside clusters of near rows, or the row numbers themselves (n, q), -1 for none; weights count a
    row several times. "exact" ignores the basis, "sod" takes the training rows nearest to it; "cg" is "exact"
    without a factor of K, by conjugate gradients, for as many rows as there is time for. "cg", "pic",
    "neighbours", and the methods beside the table ("bcm", "rbcm", "gpoe", "poe", which have no use for a
    basis, "nystrom", "asor"), give a predictor, since they need the data at every query.

    A likelihood's sites are found by sweeps over the rows, at most `sweeps` of them, until the process
    changes by less than `tolerance` of its own spread; `post.sites` has them.

    X may be a `Source` that has the targets, too; y is then left out. Its rows are read part by part, twice
    for each value of the evidence, by the rows of the table but "pic". Noise is one number there, and blocks
    the rows of a block, into which each part is cut; None takes whole parts as blocks. Neighbours are looked
    for inside a part, so near rows should be in one (`outofcore.by_neighbourhood`), and the predictor has all
    rows in memory.
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
    """log q(y) of the row. Arguments as for `condition`."""
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
    """log q(y) and its gradient in every raw parameter, each with the others held: "kernel.lengthscale",
    "basis.Z", "noise" or "likelihood.scale", "mean.value", and so on by path. Arguments as for `condition`.
    """
    options: dict[str, Any] = dict(mean=mean, jitter=jitter, blocks=blocks, weights=weights)
    row = approximation_of(approximation, power, neighbours)
    P = as_problem(kernel, basis, row, noise, X, y, **options)
    return gradient_of(P, tolerance=tolerance, sweeps=sweeps)


def approximation_of(name: str, power: float | None = None, neighbours: Given = None) -> Approximation:
    """The row of the table called `name`; the exact GP and its relatives are FITC's, with another basis."""
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
    """The checked problem of `condition` and `fit`, on arrays or on a source; options as for `problem_of`."""
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
    """The checked problem on arrays, with options as for `make_problem`; the exact GP and its relatives bring
    a basis of their own.
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
    """The posterior of a checked problem, or the predictor where a query needs the data."""
    if isinstance(P, Problem) and P.row.name in DENSE and P.likelihood is None:
        return conjugate_gradients.predictor_of(P) if P.row.name == "cg" else exact_posterior(P)
    if along_neighbours(P):
        return settled_model(settle(P, tolerance=tolerance, sweeps=sweeps))
    return with_data(P, posterior_of(P, tolerance=tolerance, sweeps=sweeps))


def along_neighbours(P: Problem | Parted) -> TypeGuard[Problem]:
    """Whether a likelihood that is not Gaussian meets R along neighbours: its sites then act on f itself."""
    return isinstance(P, Problem) and P.row.keeps == "neighbours" and P.likelihood is not None


def settled_model(settled: Settled) -> NeighboursPredictor:
    """The predictor of a likelihood's pseudo-targets along neighbours."""
    post = posterior_from(settled.pseudo, settled.factors, settled.log_evidence)
    sites = Sites(settled.tau, settled.nu, share=1.0, n_sweeps=settled.n_sweeps, converged=settled.converged)
    return NeighboursPredictor.of(replace(post, sites=sites), settled.pseudo)


def with_data(P: Problem | Parted, post: Posterior) -> Posterior | Predictor:
    """The posterior of a problem, or the predictor of its row of the table where a query needs the data."""
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
    """The posterior of a checked problem; for PIC this is PITC's, for neighbours that of w alone."""
    F = evidence.factorise(P, memory=memory, tolerance=tolerance, sweeps=sweeps)
    return posterior_from(P, F, evidence.log_evidence(P, F))


def posterior_from(P: Problem | Parted, F: evidence.Factors, log_evidence: float) -> Posterior:
    """The posterior of a problem from the factors of the first pass and the log evidence."""
    A, sites = contiguous(F.LBinv.T), None if F.point is None else _sites(P, F)
    post = Posterior(P.kernel, P.basis, F.Luu, F.w, A, P.mean, P.row.conditional, log_evidence, F.jitter)
    return replace(post, one_output=P.one_output, sites=sites)


def _sites(P: Problem | Parted, F: evidence.Factors) -> Sites:
    """The sites of all rows, one copy of each row's."""
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
    """The log evidence of a checked problem and its gradient; `escalate=False` raises where jitter would have
    to grow, and a likelihood's sites start from those in `memory`, which is renewed.
    """
    if along_neighbours(P):
        why = "has no gradient: the evidence is not stationary in its sites"
        raise ParameterError(f"{P.likelihood} along neighbours {why}; learn with fit, or under 'fitc'")
    if isinstance(P, Problem) and P.row.name in DENSE and P.likelihood is None:
        if P.row.name == "cg":
            found, gradient = conjugate_gradients.log_evidence_and_gradient(P)
            return found.value, gradient
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
    """The training row nearest to each basis function, each row once: the subset of "sod"."""
    if basis is None:
        raise ParameterError("'sod' needs a basis: its subset is the training rows nearest to it")
    Z = to_numpy(basis.centers)
    rows = to_numpy(X)
    return np.unique([np.argmin(np.sum((rows - z) ** 2, axis=1)) for z in Z])
