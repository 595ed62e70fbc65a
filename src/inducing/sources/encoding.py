"""`ColumnEncoder`: encode data frames as numbers, without scikit-learn; `TableEncoder` is made of it."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from .. import package
from ..errors import ColumnError, InducingWarning, MissingValuesError, ModelFileError, require_one_of
from . import columns as col
from .columns import Column, Contents, Values, listing, require_columns, require_unique, values_of

MANY_LEVELS = 50  # features of a category, by default
FEW_VALUES = 20  # different texts that make a category however few the rows
OPTIONS = "categories calendar kinds missing_values missing allow_unseen max_levels".split()


@dataclass(eq=False, repr=False)
class ColumnEncoder:
    """Encoder of a table's columns as float64 features; `TableEncoder` documents it and its parameters."""

    categories: str = "one-hot"
    calendar: Sequence[str] | Mapping[str, Sequence[str]] = ()
    kinds: Mapping[str, str | Sequence[str]] | None = None
    missing_values: Sequence[Any] = ()
    missing: str = "use"
    allow_unseen: bool = False
    max_levels: int = MANY_LEVELS

    def fit(self, X: Any, y: Any = None) -> Self:
        """Decide what each column of a table becomes."""
        return self.settle(self.seen(X))

    def seen(self, X: Any) -> dict[str, Contents | str]:
        """Return the contents of each column of some rows, which + adds over parts of a table, or what is
        wrong with it.
        """
        frame = as_frame(X)
        contents: dict[str, Contents | str] = {}
        for name in frame.columns:
            try:
                values, kind = values_of(frame[name], self.marks), (self.kinds or {}).get(name, "")
                levels = kind == "category" or not isinstance(kind, str)
                contents[name] = Contents.of(values.as_levels if levels else values)
            except ColumnError as error:
                contents[name] = str(error)
        return contents

    def settle(self, seen: Mapping[str, Contents | str], problems: Sequence[str] = ()) -> Self:
        """Decide what each column becomes; raise if columns cannot be used, with all problems in one message,
        also those given.
        """
        self._check(list(seen))
        problems, columns = list(problems), []
        for name, contents in seen.items():
            try:
                if isinstance(contents, str):
                    raise ColumnError(contents)
                columns.append(self._column(name, contents))
            except ColumnError as error:
                problems.append(f"column {name!r} {error}")
        require_none(problems)
        gone = [f"{c.name!r} ({c.note})" for c in columns if c.kind == "left out" and c.note]
        if not any(column.features for column in columns):
            why = f" ({listing(gone, quote=False)} left out)" if gone else ""
            raise ColumnError(f"The table has no columns to use as inputs{why}; add at least one.")
        if gone:
            message = f"left out of the inputs: {listing(gone, quote=False)}"
            warnings.warn(message, InducingWarning, stacklevel=3)
        return self._take(columns)

    def transform(self, X: Any) -> np.ndarray:
        """Return the features of a table. (n, d)"""
        self._require_fitted()
        frame = as_frame(X)
        return self.features(frame.columns, lambda name: values_of(frame[name], self.marks))

    def features(self, names: Sequence[str], values_by_name: Callable[[str], Values]) -> np.ndarray:
        """Return the features of a table with these columns, whose values a function gives. (n, d)"""
        used = [column for column in self.columns_ if column.kind != "left out"]
        require_columns(names, [column.name for column in used])
        blocks, problems, gaps, as_level = [], [], {}, self.missing == "use"
        for column in used:
            try:
                values = values_by_name(column.name)
                blocks.append(column.encode(values, self.allow_unseen, as_level))
                gaps[column.name] = values.missing
            except ColumnError as error:
                problems.append(f"column {column.name!r} {error}")
        require_none(problems)
        if self.missing == "refuse":
            require_complete(gaps, "fill them in, or pass missing='use' or 'drop'")
        return np.concatenate(blocks, axis=1)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the features: `height`, `colour=blue`, `when: weekday (sin)`."""
        self._require_fitted()
        return np.array([name for column in self.columns_ for name in column.features], dtype=object)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that a table to transform must have."""
        return tuple(column.name for column in self.columns_ if column.kind != "left out")

    @property
    def plain(self) -> bool:
        """Whether all columns are numbers or booleans and their own features."""
        return all(column.kind in ("number", "boolean") and not column.origin for column in self.columns_)

    @property
    def category_levels(self) -> dict[int, int]:
        """By the number of a feature that holds codes of a category, how many levels that has."""
        places = [column for column in self.columns_ for _ in column.features]
        return {i: len(column.levels) for i, column in enumerate(places) if column.codes}

    def rows(self) -> list[tuple[str, str, str]]:
        """Return for each column its name, what it became, and a note."""
        return [(column.name, column.became, column.note) for column in self.columns_]

    def summary(self) -> str:
        """Write a small table of what each column became."""
        rows = [("column", "becomes", ""), *self.rows()]
        wide = [max(len(row[i]) for row in rows) for i in (0, 1)]
        return "\n".join(f"{a:<{wide[0]}}  {b:<{wide[1]}}  {c}".rstrip() for a, b, c in rows)

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary of strings, numbers and lists, for a model file."""
        options = {name: getattr(self, name) for name in OPTIONS}
        options |= {"missing_values": list(self.marks), "kinds": dict(self.kinds or {}) or None}
        calendar = self.calendar
        options["calendar"] = dict(calendar) if isinstance(calendar, Mapping) else list(calendar)
        return {"options": options, "columns": [column.to_json() for column in self.columns_]}

    @classmethod
    def from_json(cls, plain: Any) -> Self:
        """Make the encoder from the dictionary of `to_json`; raise if it is none."""
        try:
            options = plain["options"]
            if not isinstance(options["missing_values"], list):
                raise ValueError(f"missing_values are {options['missing_values']!r}")
            encoder = cls(**{name: options[name] for name in OPTIONS})
            columns = []
            for record in plain["columns"]:
                lists = {key: tuple(map(str, record.get(key, ()))) for key in ("levels", "calendar")}
                column = Column(**(record | lists))
                if column.kind not in col.KINDS or not isinstance(column.name, str):
                    raise ValueError(f"there is no kind {column.kind!r}")
                columns.append(replace(column, origin=int(column.origin)))
            encoder._check([column.name for column in columns])
            return encoder._take(columns)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"The model file's columns cannot be read ({error!r}): fit it again."
            raise ModelFileError(message) from error

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> Self:
        """Make the encoder of columns that are known to hold numbers, without looking at them."""
        return cls()._take([Column(str(name), "number") for name in names])

    def set_params(self, **options: Any) -> Self:
        """Change parameters by name."""
        for name, value in options.items():
            setattr(self, name, value)
        return self

    def _require_fitted(self) -> None:
        if not hasattr(self, "columns_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"This {type(self).__name__} is not fitted yet; call fit with a table.")

    def _take(self, columns: list[Column]) -> Self:
        self.columns_ = tuple(columns)
        self.feature_names_in_ = np.array([column.name for column in columns], dtype=object)
        self.n_features_in_ = len(columns)
        return self

    @property
    def marks(self) -> tuple[str, ...]:
        """The texts that mean a gap."""
        return tuple(col.as_text(mark) for mark in self.missing_values)

    def _check(self, names: Sequence[str]) -> None:
        """Raise if a parameter is not one of those known."""
        parts = self.calendar.values() if isinstance(self.calendar, Mapping) else [self.calendar]
        require_one_of("categories", self.categories, ("one-hot", "codes"))
        require_one_of("missing", self.missing, ("use", "refuse", "drop"))
        for part in (part for some in parts for part in some):
            require_one_of("calendar", part, col.CALENDAR)
        for name, kind in (self.kinds or {}).items():
            require_one_of(f"kinds[{name!r}]", kind if isinstance(kind, str) else "category", col.KINDS)
        named = [*(self.kinds or ()), *(self.calendar if isinstance(self.calendar, Mapping) else ())]
        require_columns(names, named)

    def _column(self, name: str, seen: Contents) -> Column:
        """Choose the encoding of a column; raise if it cannot be used."""
        kind, note = (self.kinds or {}).get(name), ""
        if kind is not None and not isinstance(kind, str):
            kind, seen = "ordered", replace(seen, order=tuple(map(col.as_text, kind)))
        if kind is None:
            kind, note = guessed(seen)
        if kind == "left out":
            return Column(name, "left out", note=note)
        if seen.infinite:
            raise ColumnError(f"holds {seen.infinite} infinite value(s): remove those rows")
        if seen.missing and kind != "category":
            note = f"{seen.missing} missing"
        if seen.low == seen.high or len(seen.counts) == 1:
            note = ", ".join(filter(None, ["constant", note]))
        column = Column(name, kind, note=note)  # type: ignore[arg-type]
        if kind == "category":
            return self._category(column, seen)
        if kind == "ordered":
            return _ordered(column, seen)
        if kind == "time":
            dates = col.parsed_dates(list(seen.counts))
            low = min(col.seconds(dates[~np.isnat(dates)])[0], default=0) if seen.counts else seen.low
            zone = col.zone_of(tuple(seen.counts)) or seen.zone or ""
            calendar = self.calendar.get(name, ()) if isinstance(self.calendar, Mapping) else self.calendar
            return replace(column, origin=int(low), zone=zone, calendar=tuple(calendar))
        large = seen.what == "numbers" and max(abs(seen.low), abs(seen.high)) > col.DIGITS
        return replace(column, origin=seen.low if large and isinstance(seen.low, int) else 0)

    def _category(self, column: Column, seen: Contents) -> Column:
        counts = dict(seen.counts)
        if seen.what != "text":
            raise ColumnError(f"holds {seen.what}; write them as text to have them as categories")
        codes, most = self.categories == "codes", self.max_levels
        if seen.missing and self.missing == "use":
            counts[col.GAP] = seen.missing
        rest = not codes and len(counts) > most
        if rest:
            kept = sorted(counts, key=lambda level: (-counts[level], level))[: most - 1]
            counts = {level: counts[level] for level in kept}
        note = f"{seen.missing} missing: a level" if col.GAP in counts else column.note
        return replace(column, levels=tuple(sorted(counts)), codes=codes, rest=rest, note=note)


def _ordered(column: Column, seen: Contents) -> Column:
    """Choose the encoding of ordered categories; raise if there is no order, or it lacks a level."""
    lacking = sorted(set(seen.counts) - set(seen.order))
    if not seen.order or seen.what not in ("text", "nothing") or len(set(seen.order)) < len(seen.order):
        raise ColumnError("must hold text, and its levels must be given, each once, lowest first")
    if lacking:
        raise ColumnError(f"holds {listing(lacking)}, but the order given is {listing(seen.order)}")
    return replace(column, levels=seen.order)


def guessed(seen: Contents) -> tuple[str, str]:
    """Guess a column's kind, with a note; raise if most of its texts, but not all, are numbers or dates."""
    if seen.what == "nothing":
        return "left out", "it holds no values"
    if seen.what != "text":
        return {"dates": "time", "durations": "duration", "booleans": "boolean"}.get(seen.what, "number"), ""
    if seen.category:
        return "ordered" if seen.order else "category", ""
    texts, counts = list(seen.counts), np.array(list(seen.counts.values()))
    if {text.casefold() for text in texts} <= {"true", "false"}:
        return "boolean", ""
    numbers = np.array([bool(col.NUMBER.fullmatch(text)) for text in texts])
    clocks = np.array([not np.isnan(col.parsed_clock(text)) for text in texts])
    dates = ~np.isnat(col.parsed_dates(texts))
    for kind, right in (("number", numbers), ("time", dates), ("duration", clocks)):
        if right.all():
            return kind, "written as text" if kind == "number" else ""
        if 2 * counts[right].sum() >= counts.sum():
            strays = [f"{texts[i]!r} ({counts[i]} rows)" for i in np.flatnonzero(~right)]
            raise ColumnError(
                f"holds {kind}s written as text, but also {listing(strays, quote=False, most=4)}: name what "
                "means missing (--missing), or say that the column is a category (--category)"
            )
    for what, form, advice in col.FOREIGN:
        odd = np.array([bool(form.fullmatch(text)) for text in texts])
        if 2 * counts[odd].sum() >= counts.sum():
            raise ColumnError(
                f"holds what look like {what}, such as {texts[int(odd.argmax())]!r}: write them as {advice}, "
                "or say that the column is a category (--category)"
            )
    if len(texts) > FEW_VALUES and 4 * len(texts) > counts.sum():
        return "left out", f"text with {len(texts)} different values in {counts.sum()} rows"
    return "category", ""


def as_frame(X: Any) -> Any:
    """Return a data frame as narwhals', its columns named by strings; raise if it is none."""
    nw = package("narwhals")
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        require_unique([str(name) for name in X.columns], "the table")
        raise
    if not isinstance(frame, nw.DataFrame):
        if not hasattr(X, "__arrow_c_stream__"):
            if not hasattr(X, "__dataframe__"):
                raise ColumnError(f"a table must be a data frame, not a {type(X).__name__}")
            X = package("pyarrow.interchange").from_dataframe(X)
        frame = nw.from_arrow(X, backend="pyarrow")
    names = [str(name) for name in frame.columns]
    require_unique(names, "the table")
    if several := [name for name in frame.columns if isinstance(name, tuple)]:
        raise ColumnError(f"the table has a column with several names, {several[0]}: name each by one text")
    return frame.rename(dict(zip(frame.columns, names))) if names != list(frame.columns) else frame


def is_frame(X: Any) -> bool:
    """Return whether X is a data frame that `as_frame` takes, and no array."""
    streamed = hasattr(X, "columns") and hasattr(X, "__arrow_c_stream__")  # not a single column
    return streamed or hasattr(X, "__dataframe__")


def require_none(problems: Sequence[str]) -> None:
    """Raise if there are problems with columns, with all of them in one message."""
    if problems:
        many = f"{len(problems)} columns cannot be used: " if len(problems) > 1 else ""
        text = many + "; ".join(problems)
        raise ColumnError(f"{text[0].upper()}{text[1:]}.")


def gaps_of(X: Any, marks: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return a mask of the gaps of each column of a table. (n,) of bool each"""
    frame = as_frame(X)
    return {name: values_of(frame[name], marks).missing for name in frame.columns}


def require_complete(gaps: Mapping[str, np.ndarray], advice: str) -> None:
    """Raise if there are gaps, with their counts by row and column; `advice` says what to do about them."""
    incomplete = np.any(list(gaps.values()), axis=0)
    if np.any(incomplete):
        where = [f"{name} ({gap.sum()})" for name, gap in gaps.items() if gap.any()]
        raise MissingValuesError(
            f"{incomplete.sum()} of {len(incomplete)} rows have missing values, in "
            f"{listing(where, quote=False)}: {advice}."
        )


def settle_target(name: str, seen: Contents | str, task: str | None) -> str:
    """Return the kind of a target: "number", or a kind of label if the task is classification, or None and
    the column holds no numbers; raise if it cannot be a target.
    """
    if isinstance(seen, str):
        raise ColumnError(f"column {name!r} {seen}")
    try:
        kind, _ = guessed(seen)
    except ColumnError as error:
        raise ColumnError(f"column {name!r} {error}") from error
    kind = "category" if kind == "ordered" else kind
    labelled = task == "classification" or (task is None and kind in ("category", "boolean", "left out"))
    lowest = next(iter(seen.counts), f"{seen.low:g}")
    if seen.rows == seen.missing:
        raise ColumnError(f"column {name!r} holds no values at all: there is nothing to fit")
    if len(seen.counts) == 1 or seen.low == seen.high:
        raise ColumnError(f"column {name!r} is {lowest} in every row: there is nothing to fit")
    if seen.infinite:
        raise ColumnError(f"column {name!r} holds {seen.infinite} infinite value(s): remove those rows")
    if labelled and kind == "left out":
        raise ColumnError(f"column {name!r} holds text with {len(seen.counts)} different values: no classes")
    if labelled:
        return "numbers of classes" if kind == "number" else kind
    if kind not in ("number", "boolean"):
        what = f"text such as {lowest!r}" if seen.counts else seen.what
        raise ColumnError(f"column {name!r} must hold numbers; it holds {what}: recode it")
    return "number"
