"""`TableEncoder`: encode data frames as numbers, for estimators and scikit-learn's pipelines."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from .encoding import ColumnEncoder


class TableEncoder(TransformerMixin, BaseEstimator, ColumnEncoder):
    """Encoder of a table's columns as float64 features; pandas, Polars, Arrow and all that narwhals reads.

    | a column of | becomes |
    |---|---|
    | numbers, also as text | itself; whole numbers beyond 2⁵³ less the least, so that no digit is lost |
    | booleans | 0 and 1 |
    | dates and times of any unit and zone, also as ISO 8601 text | seconds since the first |
    | durations, times of day | seconds |
    | categories with an order (pandas, Polars' Enum, parquet) | their place in it, from 0 on |
    | text, categories | a 0/1 feature for each level, or one column of their numbers |
    | text that hardly repeats; nothing at all | left out, with a warning |

    Columns are found by name: the table to transform may have them in any order, and others. Dates mean the
    same in any unit, and a column with another kind of value than `fit` saw is refused. One error names all
    that is wrong with a table.

    Parameters
    ----------
    categories : "one-hot", or "codes": whole numbers from 0 on, in the order of the sorted levels, for
        `kernels.Category`; an unseen level has the number after the last.
    calendar : parts of dates that become features too, each as sine and cosine: "time of day", "weekday",
        "day of year"; for all columns of dates, or by column in a dictionary; in the dates' own time zone.
    kinds : the kinds of columns that should not be guessed: {"zip": "category"}; one of "number", "boolean",
        "time", "duration", "category", "left out"; or the levels of ordered categories, lowest first.
    missing_values : texts or numbers that mean a gap, such as "?", "NA" or -999; empty text always does.
    missing : "use" gives NaN for a gap, and makes it a level of a category; "refuse" raises; "drop" gives NaN
        for categories too, so that the caller can leave these rows out.
    allow_unseen : whether a level that `fit` did not see is taken as none of those known, or an error.
    max_levels : the largest number of 0/1 features of a category; the rarest levels share the last one.

    Attributes
    ----------
    columns_ : a `Column` for each column: name, kind, levels, origin. feature_names_in_, n_features_in_.
    """

    def transform(self, X: Any) -> np.ndarray:
        """Return the features of a table; here, so that scikit-learn's `set_output` finds it. (n, d)"""
        return ColumnEncoder.transform(self, X)
