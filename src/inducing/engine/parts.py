"""`Parted`: a regression problem on rows that a source holds, whose passes run where the parts are."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from ..errors import EmptyDataError, ParameterError, require_count
from ..model import problem
from ..model.bases import Basis
from ..model.kernels.base import Kernel
from ..model.likelihoods import Likelihood
from ..model.means import Mean, Zero
from ..model.problem import DEFAULT_JITTER, NoiseByLevel, Problem
from ..model.table import Approximation
from ..numerics.arrays import Array, Given, as_columns, asarray_like, to_numpy
from ..numerics.workers import on_device
from ..sources.source import Part, Source
from .compiled_passes import in_batches
from .passes import first_pass
from .sums import Back, Held, Sums
from .sweeps import Sweep, sweep_pass

MOST_FOUND = 1 << 10  # parts whose neighbours a process keeps between passes
_found: dict[tuple[bytes, str, int], tuple[list[np.ndarray] | None, np.ndarray | None]] = {}
MOST_BLOCK_ROWS = 1 << 14  # of a part that is one block: its covariance takes 2 GiB


@dataclass(frozen=True, eq=False)
class Setting:
    """A problem without its rows, sent to the parts: prior, row of the table, noise or likelihood."""

    kernel: Kernel
    basis: Basis
    row: Approximation
    noise: float | NoiseByLevel
    mean: Mean
    jitter: float
    blocks: int | None  # rows of a block inside a part, 0 for whole parts; None where the row has no blocks
    likelihood: Likelihood | None
    noise_name: str
    # finds the neighbours of a part's rows, and the kernel by whose lengthscales they are near
    search: Callable[[Problem], Problem] | None = None
    near: Kernel | None = None

    def on(self, part: Part) -> Problem:
        """Return the problem on the rows of one part, on the device of this process."""
        y = part.Y if part.y is None else part.y
        X, y = on_device(part.X), on_device(y if self.likelihood is None else self.likelihood.check(y))
        P = Problem(
            kernel=self.kernel,
            basis=self.basis.on(X),
            row=self.row,
            noise=problem.as_noise(1.0, X)[0],
            X=X,
            Y=problem.less_mean(self.mean, X, y) if self.likelihood is None else as_columns(y),
            mean=self.mean,
            jitter=self.jitter,
            weights=None,
            labels=None,
            blocks=None if self.blocks is None else _blocks(part, self.blocks),
            one_noise=self.one_noise,
            one_output=y.ndim == 1 or self.likelihood is not None,
            likelihood=self.likelihood,
            noise_name=self.noise_name,
            part=part.index,
        )
        P = P.with_noise(self.noise)
        return P if self.search is None else self._with_neighbours(P)

    def _with_neighbours(self, P: Problem) -> Problem:
        """Return the problem with neighbours inside the part: kept from an earlier pass, or searched for."""
        assert self.search is not None and self.near is not None
        rows = hashlib.blake2b(np.ascontiguousarray(to_numpy(P.X)).data).digest()
        key = rows, repr(self.near.spec()), P.row.n_neighbours
        if key not in _found:
            searched = self.search(replace(P, kernel=self.near))
            if len(_found) >= MOST_FOUND:
                _found.pop(next(iter(_found)), None)
            _found[key] = searched.blocks, searched.sets
        blocks, sets = _found[key]
        return in_batches(replace(P, blocks=blocks, sets=sets))

    @property
    def one_noise(self) -> bool:
        return not isinstance(self.noise, NoiseByLevel)

    @property
    def general(self) -> bool:
        """Whether the second pass needs R, as `Problem.general`."""
        bound = self.row.bound and self.likelihood is not None and not self.likelihood.log_concave
        return self.row.share > 0 or bound


@dataclass(frozen=True, eq=False, kw_only=True)
class Parted(Setting):
    """A setting and the source of its rows; the passes of the evidence run where the parts are."""

    source: Source

    @property
    def p(self) -> int:
        return self.source.layout.n_outputs if self.likelihood is None else 1

    @property
    def one_output(self) -> bool:
        return self.source.layout.one_output or self.likelihood is not None

    @property
    def noise_model(self) -> float | NoiseByLevel:
        return self.noise

    @property
    def uniform(self) -> bool:
        return self.likelihood is None and self.one_noise and not self.kernel.uncertain

    @property
    def common_noise(self) -> float:
        assert not isinstance(self.noise, NoiseByLevel)
        return self.noise

    @property
    def known_noise(self) -> bool:
        return False

    @property
    def setting(self) -> Setting:
        return Setting(*(getattr(self, f.name) for f in fields(Setting)))

    def total(self, one_pass: Callable[..., Sums], matrices: Array) -> Sums:
        """Run a pass over all rows and return its sums."""
        sums = self.source.total(_over_part, one_pass, self.setting, matrices)
        if one_pass is first_pass and sums.count == 0:
            raise EmptyDataError("no part of the source has rows; at least one is needed")
        return sums

    def sites(self, sweep: Sweep) -> tuple[np.ndarray, ...]:
        """Return τ and ν of all rows in the order of the parts. (n,) each"""
        pairs = list(self.source.map(_sites_of_part, self.setting, sweep))
        return tuple(np.concatenate(values) for values in zip(*pairs, strict=True))


SomeProblem = Problem | Parted  # its rows are in memory, or in a source


def _over_part(part: Part, one_pass: Callable[..., Sums], setting: Setting, matrices: Array) -> Sums:
    """Run one pass over the rows of a part."""
    if not len(part.X):
        return Sums()
    P, kept = setting.on(part), None
    if setting.likelihood is not None:
        if setting.row.power == 0.0 and isinstance(matrices, Sweep):
            return replace(one_pass(P, matrices).to_numpy(), sites={})  # the next pass computes them again
        if isinstance(matrices, Back):
            tau, nu = (asarray_like(a, P.X) for a in _sites(P, matrices.sweep))
            kept = Held(tau=tau, nu=nu)
    return one_pass(P, matrices, kept).to_numpy()


def _sites(P: Problem, sweep: Sweep) -> tuple[Array, ...]:
    """Return τ and ν of a part's rows: kept ones, or at power 0 those that the process gives."""
    return sweep.sites.get(P.part) or sweep_pass(P, sweep).sites[P.part]


def _sites_of_part(part: Part, setting: Setting, sweep: Sweep) -> tuple[np.ndarray, ...]:
    if not len(part.X):
        return np.zeros(0), np.zeros(0)
    return tuple(map(to_numpy, _sites(setting.on(part), sweep)))


def _blocks(part: Part, rows: int) -> list[np.ndarray]:
    n = len(part.X)
    if rows == 0 and n > MOST_BLOCK_ROWS:
        raise ParameterError(
            f"each part of the source is one block, but {part.where} has {n} rows, more than "
            f"{MOST_BLOCK_ROWS}; give blocks= a number of rows to cut the parts into blocks of that size"
        )
    return np.array_split(np.arange(n), max(1, -(-n // rows)) if rows else 1)


def make_parted(
    kernel: Kernel,
    basis: Basis | None,
    row: Approximation,
    noise: Given,
    source: Source,
    *,
    mean: Mean | None = None,
    jitter: float = DEFAULT_JITTER,
    blocks: Given = None,
    weights: Given = None,
    search: Callable[[Problem], Problem] | None = None,
) -> Parted:
    """Check all but the rows, which are checked when read; `search` finds the neighbours in a part."""
    if basis is None:
        raise ParameterError(f"{row.name!r} needs a basis")
    if weights is not None:
        raise ParameterError("a source has no weights for its rows; leave weights out, or give arrays")
    if not isinstance(noise, NoiseByLevel) and np.ndim(noise) != 0:
        raise ParameterError("noise must be one number for a source, which has no variances for its rows")
    if source.layout.n_outputs == 0:
        raise ParameterError("the source has no targets; name the target column, or give y")
    noise, likelihood, noise_name = problem.split_noise(noise, row)
    if row.own_block:
        raise ParameterError("'pic' needs the data at every query; over a source use 'pitc'")
    if row.keeps == "neighbours" and (np.ndim(row.neighbours) > 0 or likelihood is not None):
        what = "a number of neighbours" if likelihood is None else "Gaussian noise"
        raise ParameterError(f"{row.name!r} over a source needs {what}; give the rows as arrays for more")
    problem.check_jitter(jitter)
    problem.check_basis(basis, kernel, source.layout.n_features)
    if blocks is not None:
        require_count("blocks, the rows of a block of a source,", blocks)
    if not isinstance(noise, NoiseByLevel):
        noise = float(problem.as_noise(noise, np.zeros((1, 1)))[0][0])
    size = None if not row.blocks else 0 if blocks is None else int(blocks)
    assumed = kernel, basis, row, noise, Zero() if mean is None else mean, float(jitter), size
    near = kernel if row.keeps == "neighbours" else None
    return Parted(*assumed, likelihood, noise_name, search, near, source=source)
