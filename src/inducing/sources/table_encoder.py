"""`TableEncoder`: columns of a data frame as numbers, for estimators and scikit-learn's pipelines."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from .encoding import ColumnEncoder


class TableEncoder(TransformerMixin, BaseEstimator, ColumnEncoder):
    """Columns of a table as float64 features: pandas, Polars, Arrow and all that narwhals reads.

    | a column of | becomes |
    |---|---|
    | numbers, also as text | itself; whole numbers beyond 2⁵³ less the least, so that no digit is lost |
    | booleans | 0 and 1 |
    | dates and times of any unit and zone, also as ISO 8601 text | seconds since the first |
    | durations, times of day | seconds |
    | categories with an order (pandas, Polars' Enum, parquet) | their place in it, from 0 on |
    | text, categories | a 0/1 feature for each level, or one column of their numbers |
    | text that hardly repeats; nothing at all | left out, with a warning |

    Columns are found by name: the table to transform may have them in any order, and more besides. Units are
    kept, so a date means the same in any unit, and another kind of value than `fit` saw is refused. All that
    is wrong with a table is said at once.

    Parameters
    ----------
    categories : "one-hot", or "codes": whole numbers from 0 on, in the order of the sorted levels, for
        `kernels.Category`; a level not seen is the number after the last.
    calendar : parts of dates that become features, too, each as sine and cosine: "time of day", "weekday",
        "day of year"; for all columns of dates, or by column in a dictionary. Zoned dates have those of
        their zone.
    kinds : what columns are to be, whatever they look like: {"zip": "category"}; one of "number", "boolean",
        "time", "duration", "category", "left out"; or the levels of ordered categories, lowest first.
    missing_values : texts or numbers that mean a gap, such as "?", "NA" or -999. Empty text always does.
    missing : "use" gives NaN for a gap, and makes it a level of a category; "refuse" raises; "drop" gives NaN
        for categories as well, for whoever leaves these rows out.
    allow_unseen : whether a level that `fit` did not see is none of those known, or an error.
    max_levels : how many levels of a category have a 0/1 feature of their own, the most frequent; the others
        share one.

    Attributes
    ----------
    columns_ : a `Column` for each column: name, kind, levels, origin. feature_names_in_, n_features_in_.
    """

    def transform(self, X: Any) -> np.ndarray:
        """The features of a table. (n, d)"""
        return ColumnEncoder.transform(self, X)
