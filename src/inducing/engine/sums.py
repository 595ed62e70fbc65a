"""Accumulators of the passes over rows: `Sums` adds up, `Held` caches between passes, `Back` carries the
m-by-m matrices of the backward pass, `Group` is a run of blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..model.kernels.base import Gradients, add_gradients
from ..model.problem import Problem
from ..numerics import arrays
from ..numerics import linalg as la
from ..numerics.arrays import Array, is_numpy, namespace, zeros_like_rows
from ..numerics.workers import DEVICE_BYTES, put_back, row_slices, run_over, taken, workers_for

if TYPE_CHECKING:
    from .block_passes import BlockFactor

SitesByPart = dict[int, tuple[Array, ...]]  # τ and ν (c,) of the rows, by part

BLOCK_BYTES = 1 << 29  # of arrays of blocks that are kept between the passes, at most
BATCH_BYTES = 1 << 32  # the same on a device
KFU_BYTES = 1 << 24  # up to this size Kfu is kept between the passes; a larger one leaves the CPU's cache
PER_SUM = 16  # multiplications that take about as long as adding one number in memory
PHI_BYTES = 1 << 27  # up to this size Φ is kept between the sweeps of an evaluation


@dataclass(eq=False)
class Sums:
    """Totals of a pass over rows, 0 where the pass computes none; + joins those of different rows."""

    G: Any = 0.0  # (m, m), lower triangle: ΦΠΦᵀ in the first pass, 2Φ diag(r̄)Φᵀ in the second
    b: Any = 0.0  # (m, p), ΦΠy
    count: float = 0.0  # Σ weights
    log_D: Any = 0.0  # Σ log D; numbers stay on the device until the pass ends, since reading one waits
    correction: Any = 0.0  # Σ evidence_correction, which is subtracted from the evidence
    residual: Any = 0.0  # Σ eᵢ²Πᵢ
    terms: Any = 0.0  # Σ of the rows' likelihood terms in the evidence
    improper: Any = 0.0  # the number of rows without a proper cavity
    noise: Any = 0.0  # this and the next four are gradients
    kernel: Gradients = field(default_factory=dict)
    basis: Gradients = field(default_factory=dict)
    mean: Gradients = field(default_factory=dict)
    likelihood: Gradients = field(default_factory=dict)
    sites: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)  # τ and ν (c,), by part
    root: tuple[Array, ...] = ()  # of `root_pass`: R (m + p, m + p) and p, R a triangle, RᵀR = [Φᵀ y]ᵀΠ[Φᵀ y]

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(_joined(getattr(self, name), getattr(other, name)) for name in Sums.__match_args__))

    def to_numpy(self) -> Sums:
        """Return these sums with NumPy arrays, which can be sent to another process."""
        return Sums(*(_as_numpy(getattr(self, f.name)) for f in fields(Sums)))


@dataclass(eq=False)
class SharedBlocks:
    """Cache along neighbours for several problems with one kernel, basis and rows: Φ and R of each block, and
    the sum of their dJ/dD, which is pulled back through the kernel once. A block that does not fit its share
    of BLOCK_BYTES is computed again for each problem.
    """

    Phi: dict[int, Array] = field(default_factory=dict)  # by number of a group's first block
    R: dict[int, np.ndarray] = field(default_factory=dict)  # lower triangles, by number of the block
    bars: dict[tuple[str, int], Array] = field(default_factory=dict)  # sums so far of dJ/dD and dJ/dKfu
    last: bool = True  # whether this is the last problem, in which the sums are pulled back

    @staticmethod
    def has_room(n: int, rows: int, columns: int) -> bool:
        """Return whether an array (rows, columns) of a block fits its share rows/n of BLOCK_BYTES."""
        return rows * columns * 8 <= rows / n * BLOCK_BYTES

    def added(self, what: str, number: int, bar: Array, n: int) -> Array | None:
        """Add to a block's dJ/dD ("D") or dJ/dKfu ("K"); return the sum, or None until the last problem."""
        before = self.bars.pop((what, number), None)
        if before is not None:
            bar += before
        rows = math.prod(bar.shape[:-1])  # of one block, or of several stacked ones
        if self.last or not is_numpy(bar) or not SharedBlocks.has_room(n, rows, bar.shape[-1]):
            return bar
        self.bars[what, number] = bar.copy()
        return None


@dataclass(frozen=True, eq=False)
class Held:
    """Cache of what the first pass or the sweeps computed for rows; what does not fit is computed again."""

    R: Array | None = None  # (n,), the diagonal of K - Q, where some of it is in D
    Kfu: Array | None = None  # (n, m), where it fits KFU_BYTES
    blocks: dict[int, BlockFactor] | None = None  # by number, within BLOCK_BYTES
    # of compiled passes: K and L⁻¹ of PITC's blocks, or `neighbours.PairSets` and `neighbours.PairFactors`
    runs: dict[int, Any] | None = None
    tau: Array | None = None  # (n,), the precisions of the rows' sites; None for Gaussian noise
    nu: Array | None = None  # (n,), their shifts
    Phi: Array | None = None  # (n, m), of a likelihood's rows, where it fits PHI_BYTES, or on a device
    shared: SharedBlocks | None = None
    filled: bool = False  # whether Φ and R are those of another problem with the same kernel, basis and rows

    @staticmethod
    def room_for(P: Problem) -> Held:
        if P.blocks is not None:
            return Held(blocks={}, runs={})
        kept = P.general if P.likelihood is None else P.row.keeps != "nothing"
        R = zeros_like_rows((P.n,), P.X) if kept else None
        size = P.n * len(P.basis) * P.X.dtype.itemsize

        def within(room: int) -> Array | None:
            kind = {"dtype": P.X.dtype, "device": P.X.device}
            return namespace(P.X).empty((P.n, len(P.basis)), **kind) if size <= room else None

        if P.likelihood is not None:
            return Held(R, Phi=within(PHI_BYTES))
        if is_numpy(P.X):
            return Held(R, within(KFU_BYTES))
        room = DEVICE_BYTES if 2 * size <= DEVICE_BYTES else max(DEVICE_BYTES, arrays.device_room(P.X) // 4)
        Phi = within(room) if P.general else None
        return Held(R, within(room if Phi is None else room - size), Phi=Phi)

    @property
    def features(self) -> Held:
        """Φ and R alone, for another problem with the same kernel, basis and rows."""
        return Held(self.R, Phi=self.Phi, filled=self.Phi is not None)

    def sites(self, rows: slice) -> tuple[Array, Array]:
        """Return τ and ν of some rows under a likelihood that is not Gaussian."""
        assert self.tau is not None and self.nu is not None
        return self.tau[rows], self.nu[rows]


@dataclass(frozen=True, eq=False)
class Back:
    """The m-by-m matrices of the backward pass; those that the row of the table has no use for are None."""

    w: Array  # (m, p)
    alpha: Array  # (m, p), Luu⁻ᵀw
    Linv: Array | None = None  # Luu⁻¹
    T: Array | None = None  # U Luu⁻¹ with cI - B⁻¹ = ±UᵀU, times √(pΠ) where that is common to all rows
    lengths: Array | None = None  # (), the mean of |T k_u|² over rows, where Π is common to them on a device
    Binv: Array | None = None
    LBinv: Array | None = None
    sweep: Any = None  # the process from which the sites of a source's rows are computed again

    def on(self, X: Array) -> Back:
        """Return these matrices with the namespace, dtype and device of X."""
        if is_numpy(X) and is_numpy(self.w):
            return self
        matrices = {f.name: getattr(self, f.name) for f in fields(Back) if f.name != "sweep"}
        return replace(
            self, **{k: None if a is None else arrays.asarray_like(a, X) for k, a in matrices.items()}
        )


class BlockAdjoints(NamedTuple):
    """Gradients that a block of b rows hands to the second pass."""

    V: Array  # (b, p), D⁻¹e
    S: Array  # (b, m), D⁻¹ΦᵀLB⁻ᵀ
    GD: Array  # (b, b), dJ/dD; entries above the diagonal may have been added to those below
    GPhi: Array  # (b, m), 2 G_D Φᵀ


class Work(Sums):
    """The sums of one worker, and the buffers it reuses."""

    def __init__(self, P: Problem, G: bool, b: bool) -> None:
        self.like, self.m = P.X, len(P.basis)
        super().__init__(b=zeros_like_rows((self.m, P.p), P.X) if b else 0.0)
        if G and is_numpy(P.X) and P.X.dtype == np.float64:
            self.G = taken((self.m, self.m))
            self.G.fill(0.0)
        elif G:
            self.G = zeros_like_rows((self.m, self.m), P.X)
        self._buffers: dict[int, np.ndarray] = {}
        self._square, self._scratch = np.empty(0), list[np.ndarray]()
        self.tiles: tuple[np.ndarray, np.ndarray] | None = None  # those of compiled_passes.py

    def add_rows(self, H: Array, Y: Array) -> None:
        """Add rows Φᵀ√Π (c, m) and √Πy (c, p) to ΦΠΦᵀ and ΦΠy, or, in a pass without these, to the root."""
        if isinstance(self.G, float):
            rows, p = namespace(H).concat([H, Y], axis=1), Y.shape[1]
            self.root = la.triangle(*self.root[:1], rows, beside=p), p
        else:
            self.G = la.add_gram(self.G, H)
            self.b += H.T @ Y

    def buffer(self, i: int, rows: int) -> np.ndarray | None:
        """Return the i-th (rows, m) scratch array; None off the CPU, where the allocator keeps its own."""
        if not is_numpy(self.like):
            return None
        held = self._buffers.get(i)
        if held is None or held.shape[0] < rows:
            held = self._buffers[i] = np.empty((rows, self.m), dtype=self.like.dtype)
        return held[:rows]

    def scratch(self, *shapes: tuple[int, ...]) -> list[np.ndarray]:
        """Return uninitialised arrays in place of the earlier ones; `total` puts them back for reuse."""
        self._scratch = [taken(shape) for shape in shapes]
        return self._scratch

    @staticmethod
    def total(states: list[Work]) -> Sums:
        """Return the sum of the workers' sums, in their order; their arrays are left to the next pass."""
        Gs, G, spare = [s.G for s in states], states[0].G, [a for s in states for a in s._scratch]
        if len(states) > 1 and is_numpy(G):
            m, G, spare = len(G), np.empty_like(G), spare + Gs

            def add(_: None, rows: slice) -> None:
                np.add(Gs[0][rows], Gs[1][rows], out=G[rows])
                for other in Gs[2:]:
                    G[rows] += other[rows]

            workers = workers_for(len(Gs) * PER_SUM * m * m)
            run_over(row_slices(m, -(-m // workers)), lambda: None, add, parallel=workers > 1)
            for s in states:
                s.G = 0.0
        sums = sum(states, Sums())
        sums.G = G
        put_back([a for a in spare if a.dtype == np.float64])
        return sums

    def square(self, b: int) -> np.ndarray | None:
        """Return a (b, b) scratch array, always the same memory; None off the CPU."""
        if not is_numpy(self.like):
            return None
        if self._square.size < b * b:
            self._square = np.empty(b * b, dtype=self.like.dtype)
        return self._square[: b * b].reshape(b, b)


@dataclass(frozen=True, eq=False)
class Group:
    """Blocks that one task computes together, so that products with the basis are large."""

    first: int  # number of the first block
    rows: np.ndarray  # (c,), the rows of all blocks, one block after the other
    edges: np.ndarray  # where each begins in `rows`, and where the last one ends
    kept: Any = ...  # the places in `rows` that are not filling, see `neighbours.batches_of`
    # on a device: places and neighbours in a block, and 1 for rows, 0 for filling; else `neighbours.PairSets`
    batch: tuple[Array, ...] | None = None
    count: int = 1  # the blocks of a batch

    @property
    def parts(self) -> list[slice]:
        """The slice of `rows` that each block takes."""
        return [slice(int(a), int(b)) for a, b in zip(self.edges[:-1], self.edges[1:], strict=True)]

    def only(self, A: Array) -> Array:
        """Return A with 0 in the rows that are filling. (c, m)"""
        return A if self.batch is None else A * self.batch[2][:, None]


def groups(P: Problem, count: int) -> list[Group]:
    """Return the blocks in at most `count` groups of about equal size, the longest first."""
    assert P.blocks is not None
    starts = np.cumsum([0] + [len(rows) for rows in P.blocks])
    cuts = np.flatnonzero(np.diff(starts[:-1] * count // P.n, prepend=-1))  # the first block of each group
    ends = [*cuts[1:], len(P.blocks)]
    joined = [
        Group(int(first), np.concatenate(P.blocks[first:last]), starts[first : last + 1] - starts[first])
        for first, last in zip(cuts, ends, strict=True)
    ]
    return sorted(joined, key=lambda group: -len(group.rows))


def log_copies(P: Problem, rows: Array) -> Array | float:
    """Return what weights add to Σ log D: w copies of N(y|f, σ²) = N(y|f, σ²/w) (2πσ²)^(-(w-1)/2) w^(-½)."""
    if P.weights is None:
        return 0.0
    xp, weight = namespace(P.X), P.weights[rows]
    return xp.sum((weight - 1.0) * xp.log(P.noise[rows]) + xp.log(weight))


def finish(
    P: Problem, s: Work, X: Array, K: Array, S: tuple[Array, ...], V: Array, alpha: Array, sign: float = 1.0
) -> None:
    """Add gradients of kernel, basis and mean from v and K̄fu = sign A T + v αᵀ; S: A, T, `room_beside`."""
    add_gradients(s.mean, P.mean.pullback(X, V[:, 0] if P.one_output else V))
    A, T, room = S
    finish_cross(P, s, X, K, la.times_lower_plus(A, T, room, sign * V, alpha.T), sign)


def finish_cross(P: Problem, s: Work, X: Array, K: Array, Kbar: Array, sign: float = 1.0) -> None:
    """Add the gradients of kernel and basis from sign K̄fu."""
    kernel, basis = P.basis.cross_pullback(P.kernel, X, Kbar, K)
    if sign < 0:
        kernel, basis = ({key: -g for key, g in part.items()} for part in (kernel, basis))
    add_gradients(s.kernel, kernel)
    add_gradients(s.basis, basis)


def count(rows: slice | np.ndarray) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def scratch_copy(A: Array, out: Array | None = None) -> Array:
    """Return a copy that products may overwrite, in `out` if given; off the CPU A itself, as they do not."""
    if not is_numpy(A):
        return A
    if out is None:
        return A.copy()
    out[...] = A
    return out


def copied(A: Array, out: Array | None = None) -> Array:
    """Return a copy, in `out` if given, that may be assigned to in parts in any namespace."""
    return namespace(A).asarray(A, copy=True) if out is None else scratch_copy(A, out)


def _joined(a: Array, b: Array) -> Array:
    """Return a + b, of gradients by name; where one is the float 0.0 the other itself, without a copy."""
    if isinstance(a, dict):
        add_gradients(total := dict(a), b)
        return total
    if isinstance(a, tuple):
        return (la.triangle(a[0], b[0], beside=a[1]), a[1]) if a and b else a or b
    return b if isinstance(a, float) and a == 0.0 else a if isinstance(b, float) and b == 0.0 else a + b


def _as_numpy(a: Array) -> Array:
    if isinstance(a, dict):
        return {key: _as_numpy(value) for key, value in a.items()}
    if isinstance(a, tuple):
        return tuple(map(arrays.to_numpy, a))
    return a if isinstance(a, float) else arrays.to_numpy(a)
