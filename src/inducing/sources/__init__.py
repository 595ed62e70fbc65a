"""Data that come in parts, as a `Source`, and tables. May import `numerics` to `files`."""

from .source import Kept, Layout, Part, Pieces, Source, row_keys, split, tree_sum

__all__ = ["Kept", "Layout", "Part", "Pieces", "Source", "row_keys", "split", "tree_sum"]
