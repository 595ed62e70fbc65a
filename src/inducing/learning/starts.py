"""Better starts for learning: hyperparameters of an exact GP on a few rows, and places to go with them."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from ..errors import FactorisationError, ParameterError
from ..inference import selection
from ..model.bases import Basis, Multiscale, Points, as_multiscale
from ..model.kernels.base import Kernel
from ..model.kernels.changed import Projected
from ..model.kernels.stationary import RBF, Stationary
from ..model.posterior import Posterior
from ..model.problem import NoiseByLevel
from ..model.table import VFE
from ..numerics.arrays import some_rows, to_numpy
from ..sources.moments import Columns
from .diagnosis import mean_residual
from .objective import parameters_of
from .packing import Parameters
from .stages import Stage

LEAST_GAIN = 1e-3  # nats per row in ten iterations: a stage that gains less has settled
START_ROWS = 500  # rows of the exact GP that knows something
FEWER_ROWS = 200  # the same under a likelihood, whose sites take many sweeps
SUBSET_ROWS = 2000  # rows of the exact GP whose hyperparameters are held


def informed_start(start: Stage) -> Stage:
    """The stage started from hyperparameters of an exact GP on 500 rows, and from places to go with them.

    VFE from a start that explains little can settle where all is noise. An exact GP on a few rows cannot
    mistake a poor basis for noise, and costs little. The places are the rows that are least known given those
    before, by the kernel found (`selection.greedy_variance`), which spends none of them on inputs that do not
    matter; the noise is at least tr(K - Q)/n, what VFE's noise has to pay for: with less, it would rise at
    once and take all the rest with it. Places that are to stay may not go with that kernel: then the start
    given is tried, too, for ten iterations, and the higher bound decides.
    """
    P, given = start.rows, parameters_of(start.problem)
    count = START_ROWS if P.likelihood is None else FEWER_ROWS
    few = start.exact_on(some_rows(P.n, count, P.n)).quietly()
    if P.likelihood is not None:  # sites of power 0 settle from any start
        few = few.under(VFE)
    few = replace(few, restarts=0, max_iterations=60, least_gain=LEAST_GAIN)
    try:
        kernel, _, noise, mean = few.run().parameters
    except FactorisationError:  # too little noise for an exact GP of these rows
        return start
    basis: Basis = given.basis
    if start.prelude == "all":
        Z = Points(selection.greedy_variance(P.X, len(basis), start.rng, P.weights, kernel=kernel))
        basis = Z if isinstance(basis, Points) else as_multiscale(kernel, Z)
    elif isinstance(basis, Multiscale):  # widths keep their ratio to the lengthscales
        assert isinstance(given.kernel, RBF) and isinstance(kernel, RBF)
        ratio = kernel.scales(basis.centers) / given.kernel.scales(basis.centers)
        basis = replace(basis, widths=basis.widths * ratio)
    informed = start.at(Parameters(kernel, basis, noise, mean))
    if P.likelihood is None and not P.known_noise and "noise" not in start.fixed:
        least, by_level = mean_residual(informed.rows), isinstance(noise, NoiseByLevel)
        noise = replace(noise, values=np.maximum(noise.values, least)) if by_level else max(noise, least)
        informed = start.at(Parameters(kernel, basis, noise, mean))
    if start.prelude == "all":
        return informed
    most = min(10, start.max_iterations)
    trials = [replace(s.under(VFE).quietly(), restarts=0, max_iterations=most) for s in (informed, start)]
    better, worse = (trial.run().run.value for trial in trials)
    return informed if better >= worse else start


def exact_start(start: Stage, rows: int = SUBSET_ROWS) -> Stage:
    """The stage with kernel and noise learned by an exact GP on a random subset of the rows."""
    P = start.rows
    if P.known_noise:
        raise ParameterError("the -basis recipes learn one noise from a subset; give noise as one number")
    chosen = some_rows(P.n, rows, start.rng)
    checkpoint = stage_file(start.checkpoint, "exact")
    most = min(start.max_iterations, 100)
    exact = replace(start.exact_on(chosen), max_iterations=most, trace=None, checkpoint=checkpoint)
    return start.at(exact.run().parameters._replace(basis=parameters_of(P).basis))


def projected_start(start: Stage, directions: int) -> Stage:
    """The stage with a kernel of a few directions of the inputs, where the function varies most. [001 §5]

    A first fit on a subset, with a lengthscale for each input, gives gradients g(x) of the mean; the
    directions are the first eigenvectors of Σ g gᵀ over the rows, in units of the inputs' spread. The
    lengthscale inside is 1 and held, since the matrix has a scale of its own.
    """
    P, kernel, d, m = start.rows, start.problem.kernel, start.rows.X.shape[1], len(start.problem.basis)
    if not isinstance(kernel, Stationary) or kernel.columns is not None:
        raise ParameterError(
            f"projections need a stationary kernel of all inputs, not {type(kernel).__name__}"
        )
    if not 1 <= directions <= d:
        raise ParameterError(f"a projection of {d} inputs has 1 to {d} directions, not {directions}")
    chosen = some_rows(P.n, SUBSET_ROWS, start.rng)
    first = replace(start.on(chosen).under(VFE).quietly(), movable=None, least_gain=LEAST_GAIN)
    first = replace(first, optimize="hyperparameters")
    X = first.rows.X
    first = first.with_basis(Points(X[:: max(1, len(chosen) // m)][:m]))
    posterior = first.fit(first.run()).posterior
    assert isinstance(posterior, Posterior)
    spread = Columns.of(to_numpy(P.X)).center_and_scale()[1]  # (d,)
    slopes = to_numpy(posterior.gradient(X)).reshape(len(chosen), d, -1) * spread[:, None]  # (n, d, p)
    V = np.linalg.eigh(np.einsum("njp,nkp->jk", slopes, slopes))[1]  # (d, d), eigenvalues rising
    matrix = V[:, ::-1][:, :directions].T / spread  # (g, d)
    projected = Projected(kernel.with_parameters({"lengthscale": 1.0}), matrix)
    stage = start.at(parameters_of(P)._replace(kernel=projected))
    return replace(stage, fixed=(*start.fixed, "kernel.0.lengthscale"))


def times(kernel: Kernel, kind: str, factor: float) -> Kernel:
    """The kernel with all its parameters of a kind, "lengthscale" or "variance", times a factor."""
    names = {name: value for name, value in kernel.parameters.items() if name.endswith(kind)}
    return kernel.with_parameters({name: factor * np.asarray(value) for name, value in names.items()})


def stage_file(checkpoint: str | Path | None, stage: int | str) -> Path | None:
    """The file where a stage before the last keeps its point."""
    return None if checkpoint is None else Path(f"{checkpoint}.{stage}")
