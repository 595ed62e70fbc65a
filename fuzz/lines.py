"""Lines of a stream, of any bytes: a refusal with a reason, or numbers that are those of the text."""

from __future__ import annotations

import math
import re
from typing import Any

from hypothesis import strategies as st

from inducing.errors import InducingError
from inducing.streams.lines import BadRow, Format

PLAIN = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
FIELD = st.one_of(
    st.floats().map(repr),
    st.integers(-(10**40), 10**40).map(str),
    st.text(max_size=6),
    st.sampled_from(
        ["", "NaN", "inf", "1_000", "१२", "１", "1e", "0x1", "−1", "1,5", "\x00", " 7 ", "true", "null"]
    ),
)
CSV = st.lists(FIELD, min_size=1, max_size=4).map(lambda fields: ",".join(fields).encode("utf-8", "replace"))
VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.floats().map(str)
    | st.integers(-(10**400), 10**400).map(str)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2).map(str),
)
OBJECT = st.tuples(VALUE, VALUE).map(
    lambda pair: '{{"a": {}, "y": {}}}'.format(*(str(v).lower() for v in pair)).encode("utf-8", "replace")
)
CASES = st.tuples(
    st.sampled_from(["csv", "jsonl"]), st.booleans(), st.one_of(CSV, OBJECT, st.binary(max_size=40))
)
FOUND: list[Any] = [
    ("csv", False, b"1_000,1"),
    ("csv", False, "١٢,1".encode()),
    ("csv", True, "1,café".encode("latin-1")),
    ("jsonl", False, b'{"a": "1_000", "y": 1}'),
]


def check(case: tuple[str, bool, bytes]) -> None:
    kind, labels, line = case
    try:
        head = b"a,y\n" if kind == "csv" else b'{"a": 1, "y": 1}\n'
        row = Format.of(head, kind, "y", (), None, labels).read(line)
    except (BadRow, InducingError) as error:
        assert str(error)
        return
    if row is None:
        assert not line.decode("utf-8").lstrip("\ufeff").strip("\r\n").strip()
        return
    x, y = row
    assert len(x) == 1 and all(math.isfinite(v) for v in x)
    assert isinstance(y, str) and y if labels else math.isfinite(y)
    if kind == "csv" and b'"' not in line:
        fields = line.decode("utf-8").lstrip("\ufeff").strip("\r\n").split(",")
        for value, text in [(x[0], fields[0]), *([] if labels else [(y, fields[1])])]:
            assert PLAIN.fullmatch(text) and value == float(text), text
    for head in (line, line + b"\n"):
        try:
            Format.of(head, "auto", "y", (), None, labels)
        except InducingError as error:
            assert str(error)
