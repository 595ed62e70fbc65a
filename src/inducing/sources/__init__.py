"""Rows that something else holds: arrays, parquet, zarr, Dask, tables and their columns, data sets. May
import `numerics`, `model` and `files`. `Source` is what the others make, and is here by name.
"""

from .source import Kept, Layout, Part, Pieces, Source, row_keys, split, tree_sum

__all__ = ["Kept", "Layout", "Part", "Pieces", "Source", "row_keys", "split", "tree_sum"]
