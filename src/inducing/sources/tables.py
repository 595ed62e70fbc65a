"""Tables: reading and writing CSV, TSV and parquet files, and encoding columns as numbers.

pandas is imported when a table is touched, not before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import (
    ColumnError,
    DataNotFoundError,
    EmptyDataError,
    MissingValuesError,
    ModelFileError,
    NonFiniteError,
    UnknownNameError,
)
from ..files.atomic import replacing
from .source import first_line

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MAX_CATEGORIES = 50
SEPARATORS = {"csv": ",", "tsv": "\t"}
SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}


@dataclass(frozen=True)
class Encoder:
    """An encoding of columns as numbers: numeric ones as they are, text one-hot, a 0/1 feature a category.

    Columns are found by name, so a table to encode may hold them in any order, and more besides.
    """

    columns: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # column -> its values, sorted

    @classmethod
    def fit(cls, table: DataFrame) -> Encoder:
        """Make the encoder of all columns of `table`; text may have MAX_CATEGORIES distinct values."""
        if not len(table.columns):
            raise ColumnError("The table has no columns to use as inputs; add at least one.")
        text = [name for name in table.columns if not is_numeric(table[name], name)]
        categories = {str(name): _categories(table[name], name) for name in text}
        return cls(tuple(str(name) for name in table.columns), categories)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the encoded columns: `height`, `colour=blue`, `colour=red`."""
        encoded = {name: [f"{name}={value}" for value in values] for name, values in self.categories.items()}
        return tuple(feature for name in self.columns for feature in encoded.get(name, [name]))

    def transform(self, table: DataFrame, *, allow_unseen: bool = False) -> DataFrame:
        """Encode `table` as float64 features; categories not seen by `fit` are refused, or become zeros."""
        import pandas as pd

        require_columns(table, self.columns)
        blocks = [
            self._one_hot(table[name], name, allow_unseen)
            if name in self.categories
            else numbers(table[name], name)[:, None]
            for name in self.columns
        ]
        X = np.concatenate(blocks, axis=1)  # (n, d)
        return pd.DataFrame(X, columns=list(self.feature_names), index=table.index)

    def _one_hot(self, column: Series, name: str, allow_unseen: bool) -> np.ndarray:
        import pandas as pd

        known = self.categories[name]
        values = _text(column)
        codes = pd.Index(known, dtype=object).get_indexer(values)  # (n,), -1 where unseen
        if not allow_unseen and (codes < 0).any():
            unseen = sorted(values[codes < 0].unique())
            raise ColumnError(
                f"Column {name!r} holds categories the model has not seen: {_listing(unseen)}; the known "
                f"ones are {_listing(known)}: remove those rows, or allow unseen categories."
            )
        return (codes[:, None] == np.arange(len(known))).astype(np.float64)  # (n, c)

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary of strings and lists, for a model file's metadata."""
        categories = {name: list(values) for name, values in self.categories.items()}
        return {"columns": list(self.columns), "categories": categories}

    @classmethod
    def from_json(cls, plain: Any) -> Encoder:
        try:
            columns, categories = plain["columns"], plain["categories"].items()
            return cls(tuple(map(str, columns)), {str(name): tuple(map(str, v)) for name, v in categories})
        except (KeyError, TypeError, AttributeError) as error:
            message = f"The model file's columns cannot be read ({error!r}): fit it again."
            raise ModelFileError(message) from error


def require_columns(table: DataFrame, names: Sequence[str]) -> None:
    """Raise if the table lacks one of these columns."""
    missing = [name for name in names if name not in table.columns]
    if missing:
        have = _listing([str(name) for name in table.columns])
        raise ColumnError(f"The table has no column {_listing(missing)}; its columns are {have}.")


def numbers(column: Series, name: str) -> np.ndarray:
    """Return a numeric column as float64, (n,), missing values as NaN; raise if it holds anything else."""
    if not is_numeric(column, name):
        example = _text(column.dropna()).iloc[:1].tolist()
        raise ColumnError(
            f"Column {name!r} must hold numbers; it holds text such as {_listing(example)}: recode it."
        )
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isinf(values).any():
        raise NonFiniteError(
            f"Column {name!r} holds {np.isinf(values).sum()} infinite value(s): remove those rows."
        )
    return values


def is_label(column: Series, name: str) -> bool:
    """Whether a column holds labels by itself: text, categories, true or false."""
    from pandas.api import types

    return bool(types.is_bool_dtype(column)) or not is_numeric(column, name)


def labels(column: Series) -> np.ndarray:
    """Return a column of labels as booleans, numbers or strings. (n,)"""
    from pandas.api import types

    if types.is_bool_dtype(column) or types.is_numeric_dtype(column):
        return column.to_numpy()
    return _text(column).to_numpy(dtype=str)


def complete_rows(table: DataFrame, columns: Sequence[str]) -> np.ndarray:
    """True for the rows without missing values in `columns`, (n,)."""
    return table[list(columns)].notna().all(axis=1).to_numpy()


def require_complete(table: DataFrame, columns: Sequence[str], advice: str) -> None:
    """Raise if there are missing values, counted by row and column; `advice` says what to do about them."""
    incomplete = int((~complete_rows(table, columns)).sum())
    if incomplete:
        counts = table[list(columns)].isna().sum()
        where = _listing([f"{name} ({count})" for name, count in counts.items() if count], quote=False)
        message = f"{incomplete} of {len(table)} rows have missing values, in {where}: {advice}."
        raise MissingValuesError(message)


def read(path: Path) -> DataFrame:
    """Read a table from a CSV, TSV or parquet file, by its suffix; raise if it has no rows."""
    import pandas as pd

    kind = kind_of(path)
    if not path.is_file():
        raise DataNotFoundError(f"There is no file {str(path)!r}: check the name.")
    try:
        table = pd.read_parquet(path) if kind == "parquet" else pd.read_csv(path, sep=SEPARATORS[kind])
    except pd.errors.EmptyDataError as error:
        message = f"{str(path)!r} is empty: a table needs a header and at least one row."
        raise EmptyDataError(message) from error
    except (ValueError, OSError) as error:
        raise ColumnError(f"{str(path)!r} could not be read as {kind}: {first_line(error)}") from error
    table.columns = table.columns.map(str)
    if not table.columns.is_unique:
        twice = table.columns[table.columns.duplicated()][0]
        raise ColumnError(f"{str(path)!r} has two columns named {twice!r}: rename one.")
    if not len(table):
        raise EmptyDataError(f"{str(path)!r} has a header but no rows: add at least one.")
    return table


def write(table: DataFrame, path: Path) -> None:
    """Write a table to a CSV, TSV or parquet file, by its suffix: whole or not at all."""
    kind = kind_of(path)
    with replacing(path) as temporary:
        if kind == "parquet":
            table.to_parquet(temporary, index=False)
        else:
            table.to_csv(temporary, sep=SEPARATORS[kind], index=False)


def kind_of(path: Path) -> str:
    """The kind of table file that a suffix means: csv, tsv or parquet."""
    if path.suffix.lower() not in SUFFIXES:
        raise UnknownNameError(
            f"{str(path)!r} is no table known here; it must end in one of {' '.join(SUFFIXES)}."
        )
    return SUFFIXES[path.suffix.lower()]


def is_numeric(column: Series, name: str) -> bool:
    """Whether a column holds numbers; raise if it holds dates or times."""
    from pandas.api import types

    if types.is_datetime64_any_dtype(column) or types.is_timedelta64_dtype(column):
        raise ColumnError(
            f"Column {name!r} holds dates or times: replace it by numbers, such as days since a start."
        )
    return bool(types.is_numeric_dtype(column) and not types.is_complex_dtype(column))


def _categories(column: Series, name: str) -> tuple[str, ...]:
    values = sorted(_text(column.dropna()).unique())
    if not values:
        raise ColumnError(f"Column {name!r} holds no values at all: exclude it.")
    if len(values) > MAX_CATEGORIES:
        raise ColumnError(
            f"Column {name!r} holds text with {len(values)} distinct values such as {_listing(values[:2])}, "
            f"more than {MAX_CATEGORIES}: exclude it, or recode it as numbers or fewer categories."
        )
    return tuple(values)


def _text(column: Series) -> Series:
    """The values as strings; whole numbers have no decimal point: 1, 1.0 and "1" are one category."""
    return column.astype(object).map(
        lambda v: str(int(v)) if isinstance(v, float) and v.is_integer() else str(v)
    )


def _listing(names: Sequence[str], *, quote: bool = True, most: int = 8) -> str:
    shown = [repr(name) if quote else name for name in names[:most]]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")
