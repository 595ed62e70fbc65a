"""CSV files of any text: a sentence, or columns of finite numbers and categories that come back."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from inducing.errors import InducingError, InducingWarning
from inducing.sources import tables
from inducing.sources.encoding import gaps_of
from inducing.sources.table_encoder import TableEncoder

FIELD = st.one_of(
    st.floats().map(repr),
    st.integers(-(10**30), 10**30).map(str),
    st.text(max_size=6),
    st.sampled_from(
        ["", "NA", "nan", "1_000", "١٢", "2020-01-01", "true", '"', '""', "1e999", "0x1F", "\x00", "1+2j"]
    ),
)
ROWS = st.lists(st.lists(FIELD, min_size=1, max_size=4), min_size=1, max_size=6)
CASES = st.one_of(
    st.tuples(
        st.sampled_from([".csv", ".tsv"]),
        ROWS.map(lambda r: "\n".join(",".join(f) for f in r).encode("utf-8", "replace")),
    ),
    st.tuples(st.sampled_from([".csv", ".tsv", ".parquet"]), st.binary(max_size=200)),
)
FOUND: list[Any] = [(".csv", b"\x80\n")]  # a header that is no text was a UnicodeDecodeError


def check(case: tuple[str, bytes]) -> None:
    suffix, content = case
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{suffix}"
        path.write_bytes(content)
        try:
            table = tables.read(path)
            rows = ~np.any(list(gaps_of(table, ()).values()), axis=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InducingWarning)
                encoder = TableEncoder().fit(table[rows])
            X = encoder.transform(table[rows])
        except InducingError as error:
            assert len(str(error).splitlines()) == 1, str(error)
            return
    assert X.shape == (rows.sum(), len(encoder.get_feature_names_out())) and not np.any(np.isinf(X))
    again = TableEncoder.from_json(encoder.to_json())
    np.testing.assert_array_equal(again.transform(table[rows]), X)
