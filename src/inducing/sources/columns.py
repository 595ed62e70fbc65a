"""Columns of tables: what values a column holds, and how they become numbers.

`values_of` reads a column of any data frame; `Contents` adds up what it holds over the parts of a table;
`Column` is the encoding that follows, plain data for a model file. Numbers and dates written as text are
numbers and dates.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from .. import package
from ..errors import ColumnError, InducingWarning

Kind = Literal["number", "boolean", "time", "duration", "category", "ordered", "left out"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DAY, WEEK, YEAR = 86400, 7 * 86400, 365.2425 * 86400  # seconds
CALENDAR = {"time of day": DAY, "weekday": WEEK, "day of year": YEAR}  # parts of a date, and their periods
DIGITS = 1 << 53  # larger whole numbers lose their last digits as floats
GAP = "(missing)"  # the level that stands for gaps of a category
REST = "(other)"  # the feature that levels without their own share
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|[+-]?inf(inity)?", re.ASCII | re.IGNORECASE)
ISO = re.compile(r"\d{4}-\d\d?(-\d\d?)?([T ]\d\d.*)?", re.ASCII)
CLOCK = re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?", re.ASCII)
FOREIGN = (  # texts that are refused as ambiguous: what they look like, their pattern, what to write
    ("numbers", re.compile(r"(?=.*[,%$€£¥'])[+-]?[$€£¥]? ?\d[\d.,']*\s?[%$€£¥]?", re.ASCII), "1234.5"),
    ("dates", re.compile(r"\d{1,2}([./-])\d{1,2}\1(\d\d|\d{4})([T ]\d.*)?", re.ASCII), "2020-12-31"),
)
ZONED = re.compile(r"(Z|[+-]\d\d:?\d\d)$")


@dataclass(frozen=True, eq=False)
class Values:
    """The values of a column: booleans, integers, floats, dates or durations, or codes of texts."""

    array: np.ndarray  # (n,)
    missing: np.ndarray  # (n,) of bool
    texts: tuple[str, ...] | None = None  # that the codes in `array` number
    category: bool = False  # whether the data frame has them as categories
    zone: str | None = None
    order: tuple[str, ...] = ()  # of ordered categories, lowest first

    @property
    def what(self) -> str:
        """The kind of values, in a word for messages."""
        if self.missing.all():
            return "nothing"
        if self.texts is not None:
            return "text"
        names = {"b": "booleans", "M": "dates", "m": "durations"}
        return names.get(self.array.dtype.kind, "numbers")

    @property
    def as_levels(self) -> Values:
        """These values for a category: numbers and booleans as codes of texts, others as they are."""
        if self.texts is not None or self.array.dtype.kind not in "biuf":
            return self
        known, codes = np.unique(self.array, return_inverse=True)
        return Values(codes, self.missing, tuple(map(as_text, known.tolist())))


def values_of(series: Any, marks: tuple[str, ...] = ()) -> Values:
    """Read the values of a narwhals series; those that are one of the marks are missing."""
    nw = package("narwhals")
    missing = series.is_null().to_numpy().astype(bool)
    kind = series.dtype
    if kind.is_integer() and missing.any():
        series = series.fill_null(0)
    elif kind.is_decimal():
        series = series.cast(nw.Float64)
    array = np.asarray(series.to_numpy())
    if kind in (nw.Categorical, nw.Enum):
        known = array.astype(object)
        return replace(_texts(known, missing | (known != known), marks, True), order=_order(series, nw))
    if kind.is_nested() or kind == nw.Binary or array.dtype.kind not in "OUSTbiufMm":
        raise ColumnError(f"holds {kind}, which is no number, date or text: leave it out, or split it")
    if array.dtype.kind in "OUST":
        return _texts(array, missing, marks, False)
    missing |= np.isnat(array) if array.dtype.kind in "Mm" else array != array
    for mark in marks:
        if array.dtype.kind in "iuf" and NUMBER.fullmatch(mark):
            missing |= array == float(mark)
    return Values(array, missing, zone=getattr(kind, "time_zone", None))


def _order(series: Any, nw: Any) -> tuple[str, ...]:
    """Return the levels of ordered categories, lowest first, or () where they have no order."""
    if series.dtype == nw.Enum:  # also pandas' ordered ones
        return tuple(as_text(level) for level in series.dtype.categories)
    native = series.to_native()
    kind = getattr(native, "type", None) or getattr(native.dtype, "pyarrow_dtype", None)
    if not getattr(kind, "ordered", False):
        return ()
    levels = series.to_arrow().dictionary.to_pylist() if len(series) else []
    return tuple(as_text(level) for level in levels)


def _texts(array: np.ndarray, missing: np.ndarray, marks: tuple[str, ...], category: bool) -> Values:
    pd = package("pandas")
    array = array.astype(object)
    array[missing] = None
    try:
        codes, values = pd.factorize(array)
    except TypeError as error:
        raise ColumnError("holds lists or the like, no number, date or text: make columns of it") from error
    texts = [as_text(value) for value in values]
    empty = np.array([text == "" or text in marks for text in texts] + [True])
    return Values(codes, empty[codes], tuple(texts), category)


def as_text(value: Any) -> str:
    """Write a value as text, whole numbers without a decimal point: 1, 1.0 and "1" are one category."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def seconds(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split dates or durations into whole seconds, since 1970, and a fraction. (n,) int64 and float64"""
    unit, count = np.datetime_data(array.dtype)
    ticks = array.astype(np.int64)
    per = {"ms": 10**3, "us": 10**6, "ns": 10**9}.get(unit)
    if per is None:
        return array.astype(f"{array.dtype.kind}8[s]").astype(np.int64), np.zeros(len(array))
    return ticks // per, (ticks % per) / per


def parsed_dates(texts: list[str]) -> np.ndarray:
    """Parse texts as dates in UTC, NaT where one is no date by ISO 8601. (n,) datetime64"""
    pd = package("pandas")
    series = pd.Series([text if ISO.fullmatch(text) else None for text in texts], dtype=object)
    dates = pd.to_datetime(series, format="ISO8601", utc=True, errors="coerce")
    return dates.to_numpy("datetime64[ns]")


def parsed_clock(text: str) -> float:
    """Parse a time of day such as 12:30 as seconds, NaN if it is none."""
    if not CLOCK.fullmatch(text):
        return np.nan
    parts = [float(part) for part in text.split(":")] + [0.0]
    return 3600 * parts[0] + 60 * parts[1] + parts[2]


@dataclass(frozen=True)
class Contents:
    """Summary of the values of a column; + adds that of other parts of the table."""

    what: str = "nothing"
    rows: int = 0
    missing: int = 0
    infinite: int = 0
    low: float = np.inf  # exact for integers; whole seconds for dates
    high: float = -np.inf
    zone: str | None = None
    category: bool = False
    counts: dict[str, int] = field(default_factory=dict)  # rows of each text
    order: tuple[str, ...] = ()  # of ordered categories, lowest first

    @staticmethod
    def of(values: Values) -> Contents:
        known, n, gaps = values.array[~values.missing], len(values.array), int(values.missing.sum())
        kind = dict(zone=values.zone, category=values.category, order=values.order)
        seen = Contents(values.what, n, gaps, **kind)  # type: ignore[arg-type]
        if values.texts is not None:
            counts = Counter[str]()
            for text, count in zip(values.texts, np.bincount(known, minlength=len(values.texts)).tolist()):
                counts[text] += count
            return replace(seen, counts=dict(+counts))
        if not len(known):
            return seen
        if known.dtype.kind in "Mm":
            known = seconds(known)[0]
        infinite = int(np.isinf(known).sum()) if known.dtype.kind == "f" else 0
        return replace(seen, infinite=infinite, low=known.min().item(), high=known.max().item())

    def __add__(self, other: Contents) -> Contents:
        pair = {self.what, other.what} - {"nothing"}
        what = pair.pop() if len(pair) == 1 else "numbers" if pair == {"numbers", "booleans"} else "nothing"
        if pair and what == "nothing":
            raise ColumnError(f"holds {self.what} in some parts of the table and {other.what} in others")
        counts = dict(Counter(self.counts) + Counter(other.counts))
        low, high = min(self.low, other.low), max(self.high, other.high)
        rows, missing = self.rows + other.rows, self.missing + other.missing
        zone, category = self.zone or other.zone, self.category | other.category
        if self.order and other.order and self.order != other.order:
            raise ColumnError("holds ordered categories, in another order in some parts of the table")
        order, infinite = self.order or other.order, self.infinite + other.infinite
        return Contents(what, rows, missing, infinite, low, high, zone, category, counts, order)


@dataclass(frozen=True)
class Column:
    """The encoding of a column as features."""

    name: str
    kind: Kind
    origin: int = 0  # subtracted from whole numbers beyond 2⁵³, and from dates in seconds since 1970
    zone: str = ""  # time zone of dates; "" where they have none
    calendar: tuple[str, ...] = ()  # parts of the date that are features too
    levels: tuple[str, ...] = ()  # of a category, sorted; of an ordered one lowest first
    codes: bool = False  # a category is one column of numbers, not a 0/1 feature for each level
    rest: bool = False  # further levels share a feature
    note: str = ""  # for the summary

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features: `height`, `colour=blue`, `when`, `when: weekday (sin)`."""
        if self.kind == "left out":
            return ()
        if self.kind == "category" and not self.codes:
            return tuple(f"{self.name}={level}" for level in (*self.levels, *((REST,) if self.rest else ())))
        waves = tuple(f"{self.name}: {part} ({wave})" for part in self.calendar for wave in ("sin", "cos"))
        return (self.name, *waves)

    @property
    def became(self) -> str:
        """The features that the column became, in words."""
        if self.kind == "time":
            start = np.datetime64(self.origin, "s").item().isoformat(" ")
            zone = f", {self.zone}" if self.zone else ""
            parts = f"; {', '.join(self.calendar)} as sine and cosine" if self.calendar else ""
            return f"seconds since {start}{zone}{parts}"
        if self.kind == "category":
            how = "numbered" if self.codes else f"{len(self.features)} features of 0 and 1"
            more = " and others" * self.rest
            return f"category of {len(self.levels)} level{'s' * (len(self.levels) > 1)}{more}, {how}"
        if self.kind == "ordered":
            return f"place from 0 to {len(self.levels) - 1}: {listing(self.levels, quote=False, sign=' < ')}"
        if self.kind == "number" and self.origin:
            return f"number, less {self.origin}"
        return {"boolean": "0 or 1", "duration": "seconds"}.get(self.kind, self.kind)

    def encode(self, values: Values, allow_unseen: bool = False, gaps: bool = True) -> np.ndarray:
        """Return the features of a column, with NaN for gaps, or with `gaps` the level of a category; raise
        if its values are of another kind than those fitted. (n, k)
        """
        if self.kind == "category":
            return self._levels(values, allow_unseen, gaps)
        if self.kind == "ordered":
            places = self._levels(values, allow_unseen, gaps=False)
            return np.where(places < len(self.levels), places, np.nan)
        if self.kind == "time":
            return self._dates(values)
        if values.what in ("dates", "durations") and self.kind != "duration":
            raise ColumnError(f"held {self.kind}s when the model was fitted, and holds {values.what} now")
        out = np.full(len(values.array), np.nan)
        known, some = ~values.missing, values.array[~values.missing]
        if values.texts is not None:
            table = self._parsed(values)
            out[known] = table[some]
        elif values.what == "durations":
            whole, fraction = seconds(some)
            out[known] = whole + fraction
        elif self.origin and some.dtype.kind in "iu":
            out[known] = exactly(some, self.origin)
        else:
            out[known] = some.astype(float) - self.origin
        if np.isinf(out).any():
            raise ColumnError(f"holds {np.isinf(out).sum()} infinite value(s): remove those rows")
        return out[:, None]

    def _parsed(self, values: Values) -> np.ndarray:
        """Return the numbers that texts mean; raise if one means none."""
        texts = list(values.texts or ())
        if self.kind == "boolean":
            texts = [{"true": "1", "false": "0"}.get(text.casefold(), text) for text in texts]
        table = np.array([float(text) if NUMBER.fullmatch(text) else np.nan for text in texts], dtype=float)
        table -= self.origin
        if self.kind == "duration":
            table = np.where(np.isnan(table), [parsed_clock(text) for text in texts], table)
        used = set(values.array[~values.missing].tolist())
        strays = [t for i, t in enumerate(texts) if i in used and np.isnan(table[i]) and t.lower() != "nan"]
        if strays:
            raise ColumnError(f"must hold {self.kind}s; it holds {listing(strays)}: name what means missing")
        return table

    def _dates(self, values: Values) -> np.ndarray:
        array, zone = values.array, values.zone
        if values.texts is not None:
            dates = np.append(parsed_dates(list(values.texts)), np.datetime64("NaT", "ns"))
            array, zone = dates[values.array], zone_of(values.texts)
            bad = np.isnat(array) & ~values.missing
            if bad.any():
                strays = sorted({values.texts[i] for i in values.array[bad]})
                raise ColumnError(f"must hold dates; it holds {listing(strays)}: name what means missing")
        elif values.what not in ("dates", "nothing"):
            raise ColumnError(f"held dates when the model was fitted, and holds {values.what} now")
        if values.missing.all():
            return np.full((len(array), len(self.features)), np.nan)
        if bool(zone) != bool(self.zone):
            has = "has a time zone now, and had none" if zone else "has no time zone now, but had one"
            raise ColumnError(f"{has} when the model was fitted: convert it")
        local = array
        if self.calendar and self.zone not in ("", "UTC"):
            pd = package("pandas")
            local = pd.DatetimeIndex(array, tz="UTC").tz_convert(self.zone).tz_localize(None).to_numpy()
        whole, fraction = seconds(array)
        waves = [wave for part in self.calendar for wave in _waves(part, local)]
        out = np.column_stack([(whole - self.origin) + fraction, *waves])
        out[values.missing] = np.nan
        return out

    def _levels(self, values: Values, allow_unseen: bool, gaps: bool) -> np.ndarray:
        values = values.as_levels
        if values.texts is None:
            raise ColumnError(f"held categories when the model was fitted, and holds {values.what} now")
        texts, array = values.texts, values.array
        place = {level: i for i, level in enumerate(self.levels)}
        other = len(self.levels)
        table = np.array([place.get(text, other) for text in (*texts, GAP)])
        codes = np.where(values.missing, table[-1], table[array])  # (n,)
        whole = self.codes or self.kind == "ordered"
        unseen = (codes == other) & ~values.missing if not self.rest else np.zeros(0, dtype=bool)
        if np.any(unseen) and not (allow_unseen and whole):  # codes: the caller, which takes them, warns
            bad = listing(sorted({texts[i] for i in array[unseen]}))
            if not allow_unseen:
                raise ColumnError(
                    f"holds categories the model has not seen: {bad}; the known ones are "
                    f"{listing(self.levels)}: remove those rows, or pass allow_unseen (--allow-unseen)"
                )
            rows = f"{np.count_nonzero(unseen)} row(s) of {self.name!r} hold levels not seen before, {bad}:"
            effect = "they are taken as none of the known ones, with error bars that are no wider for it"
            warnings.warn(f"{rows} {effect}", InducingWarning, stacklevel=2)
        out = codes[:, None] if whole else codes[:, None] == np.arange(len(self.features))
        out = out.astype(float)  # (n, k)
        if not gaps:
            out[values.missing] = np.nan
        return out

    def to_json(self) -> dict[str, Any]:
        """Return plain data, without fields that have their default."""
        plain = {key: value for key, value in asdict(self).items() if value or key in ("name", "kind")}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}


def in_days(seconds: float) -> str:
    """Write a time in the unit that suits it."""
    units = {"years": 31556952.0, "days": 86400.0, "hours": 3600.0, "minutes": 60.0}
    name, unit = next(((name, unit) for name, unit in units.items() if seconds >= unit), ("seconds", 1.0))
    return f"{seconds / unit:.3g} {name}"


def exactly(array: np.ndarray, origin: int) -> np.ndarray:
    """Subtract an origin from integers, without loss of digits or overflow. (n,)"""
    high, low = array >> 32, array & 0xFFFFFFFF
    return (high.astype(float) - (origin >> 32)) * 2.0**32 + (low.astype(float) - (origin & 0xFFFFFFFF))


def _waves(part: str, local: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sine and cosine of a date's place in its day, week or year."""
    whole, fraction = seconds(local)
    if part == "day of year":
        year = local.astype("M8[Y]")
        start, end = seconds(year)[0], seconds(year + np.timedelta64(1, "Y"))[0]
        turn = (whole - start + fraction) / (end - start)
    else:
        period, first = CALENDAR[part], 4 * DAY if part == "weekday" else 0  # 1970 began on a Thursday
        turn = ((whole - first) % period + fraction) / period
    return np.sin(2 * np.pi * turn), np.cos(2 * np.pi * turn)


def zone_of(texts: tuple[str, ...]) -> str | None:
    """Return the zone of dates written as text: UTC if all have an offset, None if none has; else raise."""
    zoned = [bool(ZONED.search(text[10:])) for text in texts if ISO.fullmatch(text)]
    if any(zoned) and not all(zoned):
        raise ColumnError("holds dates with a time zone and dates without: convert them")
    return "UTC" if any(zoned) else None


def listing(names: Any, *, quote: bool = True, most: int = 8, sign: str = ", ") -> str:
    """Join names by commas or another sign, only the first few of many."""
    shown = [repr(name) if quote else str(name) for name in list(names)[:most]]
    return sign.join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def require_unique(names: Sequence[str], table: str) -> None:
    """Raise if two columns of a table have the same name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ColumnError(f"{table} has two columns named {twice[0]!r}: rename one")


def require_columns(have: Sequence[str], names: Sequence[str]) -> None:
    """Raise if a table that has these columns lacks one of the names."""
    lacking = [name for name in names if name not in have]
    if lacking:
        hint = " Are commas between?" * (len(have) == 1 and bool({*";|\t"} & {*have[0]}))
        known = f"its columns are {listing(have)}.{hint}"
        raise ColumnError(f"The table has no column {listing(lacking)}; {known}")
