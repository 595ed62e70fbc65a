"""What the passes of the evidence add up, keep between them and take along."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ..model.kernels.base import Gradients
from ..model.problem import Problem
from ..numerics.arrays import Array, asarray_like, is_numpy, to_numpy, zeros_like_rows

BLOCK_BYTES = 1 << 29  # what PITC may keep of its blocks between the passes
KFU_BYTES = (
    1 << 24
)  # up to this size Kfu is kept between the passes; a larger one leaves the cache, and is made again


@dataclass(eq=False)
class Sums:
    """What a pass adds up over rows; + joins those of different rows. A pass leaves what it has no use for at
    zero.
    """

    G: Any = 0.0  # (m, m), lower triangle: ΦΠΦᵀ in the first pass, 2Φ diag(r̄)Φᵀ in the second
    b: Any = 0.0  # (m, p), ΦΠy
    count: float = 0.0  # Σ weights
    log_D: Any = 0.0  # numbers stay on the device until the pass ends: reading one waits for it
    penalty: Any = 0.0
    residual: Any = 0.0  # Σ eᵢ²Πᵢ
    noise: Any = 0.0  # gradients, from here on
    kernel: Gradients = field(default_factory=dict)
    basis: Gradients = field(default_factory=dict)
    mean: Gradients = field(default_factory=dict)

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(_joined(getattr(self, f.name), getattr(other, f.name)) for f in fields(Sums)))

    def to_numpy(self) -> Sums:
        """The same as NumPy arrays, which travel."""
        return Sums(*(_as_numpy(getattr(self, f.name)) for f in fields(Sums)))


@dataclass(frozen=True, eq=False)
class Held:
    """What the first pass leaves of the rows for the second, as far as there is room; the rest is made again."""

    R: Array | None = None  # (n,), the diagonal of K - Q, where some of it is in D
    Kfu: Array | None = None  # (n, m), where it fits KFU_BYTES
    blocks: dict[int, tuple[Array, Array]] | None = (
        None  # by number: K and the L⁻¹ of D, where they fit BLOCK_BYTES
    )
    runs: dict[int, tuple[np.ndarray, np.ndarray]] | None = (
        None  # the same of compiled loops, by the first block of each run
    )

    @staticmethod
    def room_for(P: Problem) -> Held:
        if P.blocks is not None:
            return Held(blocks={}, runs={})
        small = is_numpy(P.X) and P.n * len(P.basis) * P.X.dtype.itemsize <= KFU_BYTES
        Kfu = np.empty((P.n, len(P.basis)), dtype=P.X.dtype) if small else None
        return Held(zeros_like_rows((P.n,), P.X) if P.row.share else None, Kfu)


@dataclass(frozen=True, eq=False)
class Back:
    """What the second pass takes to all rows; matrices that the row of the table has no use for are None."""

    w: Array  # (m, p)
    alpha: Array  # (m, p), Luu⁻ᵀw
    Linv: Array | None = None  # Luu⁻¹
    T: Array | None = (
        None  # share = 0: cI - B⁻¹ = ±UᵀU, T = U Luu⁻¹, times √(pΠ) where that is common to all rows
    )
    Binv: Array | None = None
    LBinv: Array | None = None

    def on(self, X: Array) -> Back:
        """The same with X's namespace, dtype and device."""
        if is_numpy(X) and is_numpy(self.w):
            return self
        held = (getattr(self, f.name) for f in fields(Back))
        return Back(*(None if a is None else asarray_like(a, X) for a in held))


class Work(Sums):
    """The sums of one worker, and the buffers it reuses."""

    def __init__(self, P: Problem, G: bool, b: bool) -> None:
        self.like, self.m = P.X, len(P.basis)
        super().__init__(
            G=zeros_like_rows((self.m, self.m), P.X) if G else 0.0,
            b=zeros_like_rows((self.m, P.p), P.X) if b else 0.0,
        )
        self._buffers: dict[int, np.ndarray] = {}
        self.tiles: tuple[np.ndarray, np.ndarray] | None = None  # those of _gaussian_rows.py

    def buffer(self, i: int, rows: int) -> np.ndarray | None:
        """The i-th (rows, m) scratch array; None off the CPU, where the allocator keeps its own."""
        if not is_numpy(self.like):
            return None
        held = self._buffers.get(i)
        if held is None or held.shape[0] < rows:
            held = self._buffers[i] = np.empty((rows, self.m), dtype=self.like.dtype)
        return held[:rows]


@dataclass(frozen=True, eq=False)
class Group:
    """Blocks that one task does together, so that all products with the basis are large ones."""

    first: int  # number of the first block
    rows: np.ndarray  # (c,), the rows of all blocks, one block after the other
    edges: np.ndarray  # where each begins in `rows`, and where the last one ends

    @property
    def parts(self) -> list[slice]:
        """Where each block is in `rows`."""
        return [slice(int(a), int(b)) for a, b in zip(self.edges[:-1], self.edges[1:], strict=True)]


def groups(P: Problem, count: int) -> list[Group]:
    """The blocks in at most so many groups, with about as many rows each."""
    assert P.blocks is not None
    starts = np.cumsum([0] + [len(rows) for rows in P.blocks])
    cuts = np.flatnonzero(np.diff(starts[:-1] * count // P.n, prepend=-1))  # the first block of each group
    ends = [*cuts[1:], len(P.blocks)]
    return [
        Group(int(first), np.concatenate(P.blocks[first:last]), starts[first : last + 1] - starts[first])
        for first, last in zip(cuts, ends, strict=True)
    ]


def add_gradients(total: Gradients, part: Gradients) -> None:
    for key, value in part.items():
        total[key] = total[key] + value if key in total else value


def _joined(a: Any, b: Any) -> Any:
    """a + b; gradients by name. Nothing is 0.0, and adds no pass over what it is added to."""
    if isinstance(a, dict):
        add_gradients(total := dict(a), b)
        return total
    return b if isinstance(a, float) and a == 0.0 else a if isinstance(b, float) and b == 0.0 else a + b


def _as_numpy(a: Any) -> Any:
    if isinstance(a, dict):
        return {key: _as_numpy(value) for key, value in a.items()}
    return a if isinstance(a, float) else to_numpy(a)
