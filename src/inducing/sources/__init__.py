"""Rows that something else holds, as a `Source`, and tables of them. May import `numerics` to `files`."""

from .source import Kept, Layout, Part, Pieces, Source, row_keys, split, tree_sum

__all__ = ["Kept", "Layout", "Part", "Pieces", "Source", "row_keys", "split", "tree_sum"]
