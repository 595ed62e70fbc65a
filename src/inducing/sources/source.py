"""`Source`: rows in parts, in memory, on disk or on a cluster, that can be read again and again.

A source has two verbs. `map(function, *args)` gives function(part, *args) for every part, in order; `total`
gives their sum, added in a fixed tree whatever finishes first. All code for data larger than memory is
written with these two, so it runs on one core, on all, or on a cluster. `arrays.as_source` makes a source of
arrays, files and Dask collections. Every part is checked when it is read; an error names its part and row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from ..errors import ColumnError, EmptyDataError, InducingError, NonFiniteError, ParameterError, ShapeError
from ..numerics.arrays import FILLED, as_columns, as_floats

CACHE_BYTES = 1 << 30  # what `Source.cached` may keep in memory
FAN = 8  # neighbours that `tree_sum` adds at each level

PartsDone = Callable[[int, int | None], None]  # called with the number of parts done and of all parts


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of a source, read and checked."""

    index: int
    X: np.ndarray  # (c, d)
    y: np.ndarray | None  # (c,) or (c, p); None where there are only inputs
    where: str  # for people: "part 173 (data/0173.parquet)"

    @property
    def Y(self) -> np.ndarray:
        """The targets as columns. (c, p)"""
        if self.y is None:
            raise ParameterError(f"{self.where} has no targets; name the target column, or give y")
        return as_columns(self.y)

    @property
    def nbytes(self) -> int:
        return self.X.nbytes + (0 if self.y is None else self.y.nbytes)


@dataclass(frozen=True)
class Layout:
    """Columns of the inputs and targets, the same in all parts of a source."""

    n_features: int
    n_outputs: int  # zero where there are only inputs
    one_output: bool  # y is (c,), not (c, 1)
    feature_names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] | None = None
    encoder: Any = None  # a `TableEncoder` where the features come from a table
    gaps: bool = False  # whether X, and y of several outputs, may have gaps, NaN

    def target(self, q: int) -> str:
        return "y" if self.target_names is None else f"column {self.target_names[q]!r}"

    def feature(self, j: int) -> str:
        return f"column {j} of X" if self.feature_names is None else f"column {self.feature_names[j]!r}"


class Source(ABC):
    """Rows in parts; `n_parts` and `n_rows` are None where they are unknown before the first pass."""

    layout: Layout
    n_parts: int | None
    n_rows: int | None
    report: PartsDone | None = None

    @property
    def n_features(self) -> int:
        return self.layout.n_features

    @property
    def n_outputs(self) -> int:
        return self.layout.n_outputs

    @property
    def one_output(self) -> bool:
        return self.layout.one_output

    @abstractmethod
    def parts(self) -> Iterator[Part]:
        """Read the parts, in their order."""

    def map(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        """Yield function(part, *args) for every part, in the order of the parts."""
        for index, part in enumerate(self.parts()):
            yield function(part, *args)
            if self.report is not None:
                self.report(index + 1, self.n_parts)

    def total(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the sum of function(part, *args) over the parts, in the order of `tree_sum`."""
        return tree_sum(self.map(function, *args))

    def watched(self, report: PartsDone | None) -> Source:
        """Return the same source, which calls report(parts done, all parts) during a pass."""
        return replace(self, report=report)  # type: ignore[type-var]

    def changed(self, change: Callable[[Part], Part], layout: Layout | None = None) -> Source:
        """Return the source of change(part), which runs in each pass, in the process that holds the part."""
        return Changed(self, change, self.layout if layout is None else layout)

    def cached(self, budget: int = CACHE_BYTES) -> Source:
        """Return a source that keeps the parts it has read, up to `budget` bytes."""
        return self

    def with_gaps(self) -> Source:
        """Return a source that takes NaN for a gap instead of refusing it."""
        return replace(self, layout=replace(self.layout, gaps=True))  # type: ignore[type-var]

    def without_targets(self) -> Source:
        return self.changed(_inputs, replace(self.layout, n_outputs=0, one_output=True, target_names=None))


def tree_sum(items: Iterable[Any]) -> Any:
    """Add eight neighbours from the left, then eight of their sums, and so on; at most 8 log₈ n are held."""
    levels: list[list[Any]] = []
    for item in items:
        at = 0
        while True:
            if at == len(levels):
                levels.append([])
            levels[at].append(item)
            if len(levels[at]) < FAN:
                break
            item, levels[at], at = sum_from_left(levels[at]), [], at + 1
    if not levels:
        raise EmptyDataError("the source has no parts; at least one is needed")
    rest: list[Any] = []  # the sum of the items left over below a level
    for level in levels:
        rest = [sum_from_left([*level, *rest])] if level or rest else []
    return rest[0]


def sum_from_left(items: Sequence[Any]) -> Any:
    total = items[0]
    for item in items[1:]:
        total = total + item
    return total


@dataclass(frozen=True, eq=False)
class Changed(Source):
    """A source whose parts are those of another, changed by a function."""

    base: Source
    change: Callable[[Part], Part]
    layout: Layout

    @property
    def n_parts(self) -> int | None:  # type: ignore[override]
        return self.base.n_parts

    @property
    def n_rows(self) -> int | None:  # type: ignore[override]
        return None if getattr(self.change, "drops", False) else self.base.n_rows

    def parts(self) -> Iterator[Part]:
        return map(self.change, self.base.parts())

    def map(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        return self.base.map(_then, self.change, function, *args)

    def total(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.base.total(_then, self.change, function, *args)

    def watched(self, report: PartsDone | None) -> Source:
        return replace(self, base=self.base.watched(report))

    def cached(self, budget: int = CACHE_BYTES) -> Source:
        return replace(self, base=self.base.cached(budget))

    def with_gaps(self) -> Source:
        return replace(self, base=self.base.with_gaps(), layout=replace(self.layout, gaps=True))


def _then(part: Part, change: Callable[[Part], Part], function: Callable[..., Any], *args: Any) -> Any:
    return function(change(part), *args)


def _inputs(part: Part) -> Part:
    return replace(part, y=None)


@dataclass(frozen=True)
class Kept:
    """A change that keeps a random share of each part's rows, or the others; the same in every pass."""

    share: float
    seed: int
    inside: bool
    drops = True

    def __call__(self, part: Part) -> Part:
        rows = (row_keys(part, self.seed) < self.share) == self.inside
        return replace(part, X=part.X[rows], y=None if part.y is None else part.y[rows])


def row_keys(part: Part, seed: int) -> np.ndarray:
    """Draw a number in [0, 1) for each row, which only the seed, the part and the row's place decide. (c,)"""
    return np.random.default_rng([seed, part.index]).random(len(part.X))


def split(source: Source, share: float, seed: int = 0) -> tuple[Source, Source]:
    """Split a source into one without a random share of its rows, and one of these rows."""
    if not 0.0 < share < 1.0:
        raise ParameterError(f"the share to hold out must lie in (0, 1), but is {share}")
    return source.changed(Kept(share, seed, inside=False)), source.changed(Kept(share, seed, inside=True))


class Piece(Protocol):
    """The place of a part; `read` gives X (c, d), and y (c,) or (c, p) or None, not yet checked."""

    @property
    def where(self) -> str: ...

    @property
    def n_rows(self) -> int | None: ...

    def read(self) -> tuple[Any, Any]: ...


def read_part(index: int, piece: Piece, layout: Layout) -> Part:
    """Read a piece and check it; an error says which part it was."""
    where = f"part {index} ({piece.where})" if piece.where else f"part {index}"
    try:
        X, y = piece.read()
    except InducingError as error:
        raise type(error)(f"{where}: {error}") from error
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise ColumnError(f"{where} could not be read: {first_line(error)}") from error
    return checked_part(index, X, y, where, layout)


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def checked_part(index: int, X: Any, y: Any, where: str, layout: Layout) -> Part:
    """Make a part of X and y; raise if they are not finite numbers in the columns of `layout`, row by row."""
    X = as_floats(X, f"X in {where}")
    if X.ndim != 2 or X.shape[1] != layout.n_features:
        have = f"{X.shape[1]} columns" if X.ndim == 2 else f"shape {X.shape}"
        raise ShapeError(f"X in {where} has {have}, but the first part has {layout.n_features} columns")
    _require_finite(X, where, layout.feature, layout.gaps)
    if layout.n_outputs == 0:
        return Part(index, X, None, where)
    if y is None:
        raise ShapeError(f"{where} has no targets, but other parts have; give y for all of them")
    y = as_floats(y, f"y in {where}")
    if y.ndim == 2 and layout.one_output and y.shape[1] == 1:
        y = y[:, 0]
    if y.shape != (len(X), *(() if layout.one_output else (layout.n_outputs,))):
        raise ShapeError(f"y in {where} has shape {y.shape}, but X has {len(X)} rows there; give as many")
    _require_finite(as_columns(y), where, layout.target, layout.gaps and y.ndim == 2)
    return Part(index, X, y, where)


def _require_finite(a: np.ndarray, where: str, name: Callable[[int], str], gaps: bool) -> None:
    a = np.where(np.isnan(a), 0.0, a) if gaps else a
    if a.size == 0 or (np.max(a) <= FILLED and np.min(a) >= -FILLED):
        return
    row, column = np.argwhere(~(np.abs(a) <= FILLED))[0]
    value = a[row, column]
    what = f"{value:g}, beyond {FILLED:g} as what stands for missing numbers,"
    if not np.isfinite(value):
        what = "NaN" if np.isnan(value) else "infinity"
    raise NonFiniteError(f"{name(int(column))} holds {what} in {where}, row {row}; remove or fill such rows")


@dataclass(frozen=True, eq=False)
class Pieces(Source):
    """A source whose parts are read one after the other in this process; each may use all cores."""

    layout: Layout
    pieces: tuple[Piece, ...]
    report: PartsDone | None = None
    budget: int = 0  # bytes that may be kept
    kept: dict[int, Part] = field(default_factory=dict)
    spool: Any = None  # the temporary folder of the pieces, which lives as long as they do

    @property
    def n_parts(self) -> int:  # type: ignore[override]
        return len(self.pieces)

    @property
    def n_rows(self) -> int | None:  # type: ignore[override]
        rows = [piece.n_rows for piece in self.pieces]
        return None if None in rows else sum(n for n in rows if n is not None)

    def parts(self) -> Iterator[Part]:
        return map(self.part, range(len(self.pieces)))

    def part(self, index: int) -> Part:
        if index in self.kept:
            return self.kept[index]
        part = read_part(index, self.pieces[index], self.layout)
        keep_if_it_fits(part, self.kept, self.budget)
        return part

    def cached(self, budget: int = CACHE_BYTES) -> Source:
        return replace(self, budget=budget, kept=dict(self.kept))

    def __reduce__(self) -> Any:
        return Pieces, (self.layout, self.pieces)  # what is kept here is of no use elsewhere


def keep_if_it_fits(part: Part, kept: dict[int, Part], budget: int) -> None:
    if sum(held.nbytes for held in kept.values()) + part.nbytes <= budget:
        kept[part.index] = part
