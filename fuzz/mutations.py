"""Mutations of bytes and of JSON, as strategies."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["<U200000000", "|O", "__class__", "RBF", "Trigonometric", 10**9, 1e308, -1, "\ud800"]),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)
BYTES = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from(["flip", "cut", "insert", "repeat"]), st.binary(max_size=6)),
    min_size=1,
    max_size=6,
)


def mutated(raw: bytes, changes: list[tuple[float, str, bytes]]) -> bytes:
    """Bytes after changes, each at a share of the length."""
    for share, kind, extra in changes:
        at = int(share * len(raw))
        if kind == "flip" and at < len(raw):
            raw = raw[:at] + bytes([raw[at] ^ (extra[0] if extra else 1)]) + raw[at + 1 :]
        elif kind == "cut":
            raw = raw[:at] + raw[at + 1 + len(extra) :]
        elif kind == "insert":
            raw = raw[:at] + extra + raw[at:]
        elif kind == "repeat":
            raw = raw[:at] + raw[max(0, at - 8) : at] + raw[at:]
    return raw


def altered(record: Any, changes: list[tuple[float, str, Any]]) -> Any:
    """A JSON value after changes of leaves or branches, each at a share of all places."""
    record = copy.deepcopy(record)
    for share, kind, value in changes:
        places = list(_places(record))
        if not places:
            return record
        parent, key = places[min(int(share * len(places)), len(places) - 1)]
        if kind == "delete":
            del parent[key]
        elif kind == "copy" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        else:
            parent[key] = value
    return record


def _places(record: Any) -> Any:
    items = (
        record.items() if isinstance(record, dict) else enumerate(record) if isinstance(record, list) else ()
    )
    for key, value in list(items):
        yield record, key
        yield from _places(value)
