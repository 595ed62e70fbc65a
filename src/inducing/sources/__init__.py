"""Rows that something else holds: arrays, parquet files, zarr, Dask collections, tables and their columns,
data sets. May import `numerics`, `model` and `files`. All of them become a `Source`; `arrays.as_source` makes
it.
"""

from .source import Kept, Layout, Part, Pieces, Source, row_keys, split, tree_sum

__all__ = ["Kept", "Layout", "Part", "Pieces", "Source", "row_keys", "split", "tree_sum"]
