"""Rows in parts that someone else holds: arrays on disk, parquet files, zarr, Dask collections, whatever can
be read twice.

A `Source` has two verbs. `map(function, *args)` gives function(part, *args) for every part, in order; `total`
gives their sum, added in a fixed tree whatever finishes first. All that is computed from data larger than
memory is written with these two, so it runs on one core, on all, or on a cluster. `origins.as_source` makes a
source of what people have. Every part is checked when it is read, and an error says which part and which row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from ..errors import ColumnError, EmptyDataError, InducingError, NonFiniteError, ParameterError, ShapeError

CACHE_BYTES = 1 << 30  # what `Source.cached` may keep in memory
FAN = 8  # neighbours that `tree_sum` adds at each level

Report = Callable[[int, int | None], None]


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the rows, read and checked."""

    index: int
    X: np.ndarray  # (c, d)
    y: np.ndarray | None  # (c,) or (c, p); None where there are only inputs
    where: str  # for people: "part 173 (data/0173.parquet)"

    @property
    def Y(self) -> np.ndarray:
        """The targets as columns. (c, p)"""
        if self.y is None:
            raise ParameterError(f"{self.where} has no targets; name the target column, or give y")
        return self.y if self.y.ndim == 2 else self.y[:, None]


@dataclass(frozen=True)
class Layout:
    """What all parts have in common."""

    n_features: int
    n_outputs: int  # zero where there are only inputs
    one_output: bool  # y is (c,), not (c, 1)
    feature_names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] | None = None

    def target(self, q: int) -> str:
        return "y" if self.target_names is None else f"column {self.target_names[q]!r}"

    def feature(self, j: int) -> str:
        return f"column {j} of X" if self.feature_names is None else f"column {self.feature_names[j]!r}"


class Source(ABC):
    """Rows in parts. `n_parts` and `n_rows` are None where nobody knows before the first pass."""

    layout: Layout
    n_parts: int | None
    n_rows: int | None

    @property
    def n_features(self) -> int:
        return self.layout.n_features

    @property
    def n_outputs(self) -> int:
        return self.layout.n_outputs

    @property
    def one_output(self) -> bool:
        return self.layout.one_output

    @property
    def portable(self) -> bool:
        """Whether another process can read the parts by itself, given a copy of the source."""
        return False

    def part(self, index: int) -> Part:
        """One of the parts, where they can be had out of turn."""
        raise ParameterError(f"the parts of a {type(self).__name__} source come only in order")

    @abstractmethod
    def map(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        """function(part, *args) for every part, in the order of the parts."""

    def total(self, function: Callable[..., Any], *args: Any) -> Any:
        """The sum of function(part, *args) over the parts, in the order of `tree_sum`."""
        return tree_sum(self.map(function, *args))

    @abstractmethod
    def watched(self, report: Report | None) -> Source:
        """The same source, which calls report(parts done, parts in all) as a pass goes on."""

    def changed(self, change: Callable[[Part], Part], layout: Layout | None = None) -> Source:
        """The source whose parts are change(part); the change is made anew in each pass, where the part is."""
        return Changed(self, change, self.layout if layout is None else layout)

    def cached(self, budget: int = CACHE_BYTES) -> Source:
        """The source that keeps the parts it has read, as far as they fit the budget in bytes, and reads the
        others again.
        """
        return self

    def without_targets(self) -> Source:
        return self.changed(_inputs, replace(self.layout, n_outputs=0, one_output=True, target_names=None))


def tree_sum(items: Iterable[Any]) -> Any:
    """Eight neighbours added from the left, then eight of their sums, and so on. It holds 8 log₈ of the
    number of items.
    """
    levels: list[list[Any]] = []
    for item in items:
        at = 0
        while True:
            if at == len(levels):
                levels.append([])
            levels[at].append(item)
            if len(levels[at]) < FAN:
                break
            item, levels[at], at = added(levels[at]), [], at + 1
    if not levels:
        raise EmptyDataError("the source has no parts; at least one is needed")
    rest: list[Any] = []  # the sum of what is left over below a level
    for level in levels:
        rest = [added([*level, *rest])] if level or rest else []
    return rest[0]


def added(items: Sequence[Any]) -> Any:
    """The sum from the left."""
    total = items[0]
    for item in items[1:]:
        total = total + item
    return total


@dataclass(frozen=True, eq=False)
class Changed(Source):
    """A source seen through a change of its parts."""

    base: Source
    change: Callable[[Part], Part]
    layout: Layout

    @property
    def n_parts(self) -> int | None:  # type: ignore[override]
        return self.base.n_parts

    @property
    def n_rows(self) -> int | None:  # type: ignore[override]
        return None if getattr(self.change, "drops", False) else self.base.n_rows

    @property
    def portable(self) -> bool:
        return self.base.portable

    def part(self, index: int) -> Part:
        return self.change(self.base.part(index))

    def map(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        return self.base.map(_then, self.change, function, *args)

    def total(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.base.total(_then, self.change, function, *args)

    def watched(self, report: Report | None) -> Source:
        return replace(self, base=self.base.watched(report))

    def cached(self, budget: int = CACHE_BYTES) -> Source:
        return replace(self, base=self.base.cached(budget))


def _then(part: Part, change: Callable[[Part], Part], function: Callable[..., Any], *args: Any) -> Any:
    return function(change(part), *args)


def _inputs(part: Part) -> Part:
    return replace(part, y=None)


@dataclass(frozen=True)
class Kept:
    """A change: a random share of the rows of each part, or those that are not in it. The same rows in every
    pass.
    """

    share: float
    seed: int
    inside: bool
    drops = True

    def __call__(self, part: Part) -> Part:
        rows = (row_keys(part, self.seed) < self.share) == self.inside
        return replace(part, X=part.X[rows], y=None if part.y is None else part.y[rows])


def row_keys(part: Part, seed: int) -> np.ndarray:
    """A number in [0, 1) for each row, from nothing but the seed, the part and the place of the row in it.
    (c,)
    """
    return np.random.default_rng([seed, part.index]).random(len(part.X))


def split(source: Source, share: float, seed: int = 0) -> tuple[Source, Source]:
    """The source without a random share of its rows, and these rows as another source."""
    if not 0.0 < share < 1.0:
        raise ParameterError(f"the share to hold out must lie in (0, 1), but is {share}")
    return source.changed(Kept(share, seed, inside=False)), source.changed(Kept(share, seed, inside=True))


class Piece(Protocol):
    """Where a part is, and how to get it: X (c, d), and y (c,) or (c, p) or None, not yet checked."""

    @property
    def where(self) -> str: ...

    @property
    def n_rows(self) -> int | None: ...

    @property
    def portable(self) -> bool: ...  # whether a copy in another process can read it there, and is small

    def read(self) -> tuple[Any, Any]: ...


def load(index: int, piece: Piece, layout: Layout) -> Part:
    """A part, read and checked: numbers, as many columns as the others, as many targets as rows, all finite."""
    where = f"part {index} ({piece.where})" if piece.where else f"part {index}"
    try:
        X, y = piece.read()
    except InducingError as error:
        raise type(error)(f"{where}: {error}") from error
    except (ValueError, TypeError, KeyError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ColumnError(f"{where} could not be read: {reason}") from error
    return checked(index, X, y, where, layout)


def checked(index: int, X: Any, y: Any, where: str, layout: Layout) -> Part:
    X = _as_floats(X, f"X in {where}")
    if X.ndim != 2 or X.shape[1] != layout.n_features:
        have = f"{X.shape[1]} columns" if X.ndim == 2 else f"shape {X.shape}"
        raise ShapeError(
            f"X in {where} has {have}, but the first part has {layout.n_features} columns; they must agree"
        )
    _check_finite(X, where, layout.feature)
    if layout.n_outputs == 0:
        return Part(index, X, None, where)
    if y is None:
        raise ShapeError(f"{where} has no targets, but other parts have; give y for all of them")
    y = _as_floats(y, f"y in {where}")
    outputs = () if layout.one_output else (layout.n_outputs,)
    if y.ndim == 2 and layout.one_output and y.shape[1] == 1:
        y = y[:, 0]
    if y.shape != (len(X), *outputs):
        raise ShapeError(
            f"y in {where} has shape {y.shape}, but X has {len(X)} rows there; give one target row per "
            "input row"
        )
    _check_finite(y[:, None] if y.ndim == 1 else y, where, layout.target)
    return Part(index, X, y, where)


def _as_floats(a: Any, name: str) -> np.ndarray:
    try:
        return np.ascontiguousarray(a, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{name} must hold numbers: {error}") from error


def _check_finite(a: np.ndarray, where: str, name: Callable[[int], str]) -> None:
    if np.isfinite(np.sum(a)) or np.all(np.isfinite(a)):
        return
    row, column = np.argwhere(~np.isfinite(a))[0]
    what = "NaN" if np.isnan(a[row, column]) else "infinity"
    raise NonFiniteError(f"{name(int(column))} holds {what} in {where}, row {row}; remove or fill such rows")


@dataclass(frozen=True, eq=False)
class Pieces(Source):
    """Parts that are read one after the other in this process; each may use all cores."""

    layout: Layout
    pieces: tuple[Piece, ...]
    report: Report | None = None
    budget: int = 0  # bytes to keep
    kept: dict[int, Part] = field(default_factory=dict)

    @property
    def n_parts(self) -> int:  # type: ignore[override]
        return len(self.pieces)

    @property
    def n_rows(self) -> int | None:  # type: ignore[override]
        rows = [piece.n_rows for piece in self.pieces]
        return None if None in rows else sum(n for n in rows if n is not None)

    def map(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        for index in range(len(self.pieces)):
            yield function(self.part(index), *args)
            if self.report is not None:
                self.report(index + 1, len(self.pieces))

    @property
    def portable(self) -> bool:
        return all(piece.portable for piece in self.pieces)

    def part(self, index: int) -> Part:
        if index in self.kept:
            return self.kept[index]
        part = load(index, self.pieces[index], self.layout)
        keep(part, self.kept, self.budget)
        return part

    def watched(self, report: Report | None) -> Source:
        return replace(self, report=report)

    def cached(self, budget: int = CACHE_BYTES) -> Source:
        return replace(self, budget=budget, kept=dict(self.kept))

    def __reduce__(self) -> Any:
        return Pieces, (self.layout, self.pieces)  # what is kept here is of no use elsewhere


def keep(part: Part, kept: dict[int, Part], budget: int) -> None:
    """Keep a part where the budget in bytes allows."""
    size = sum(_bytes(held) for held in kept.values()) + _bytes(part)
    if size <= budget:
        kept[part.index] = part


def _bytes(part: Part) -> int:
    return part.X.nbytes + (0 if part.y is None else part.y.nbytes)
