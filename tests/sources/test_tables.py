"""Columns become numbers by name, whatever their order and kind; what cannot is refused by name."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inducing.errors import (
    ColumnError,
    DataNotFoundError,
    EmptyDataError,
    MissingValuesError,
    ModelFileError,
    NonFiniteError,
    UnknownNameError,
)
from inducing.sources import tables
from inducing.sources.tables import Encoder


@pytest.fixture
def table():
    colour = ["red", "blue", "red", "green"]
    return pd.DataFrame({"size": [1.5, 2.0, 0.5, 3.0], "colour": colour, "old": [True, False, True, True]})


def test_numbers_pass_and_text_becomes_one_hot(table):
    encoder = Encoder.fit(table)
    assert encoder.feature_names == ("size", "colour=blue", "colour=green", "colour=red", "old")
    X = encoder.transform(table)
    assert list(X.columns) == list(encoder.feature_names)
    expected = [[1.5, 0, 0, 1, 1], [2.0, 1, 0, 0, 0], [0.5, 0, 0, 1, 1], [3.0, 0, 1, 0, 1]]
    np.testing.assert_array_equal(X.to_numpy(), expected)


def test_order_and_extra_columns_do_not_matter(table):
    encoder = Encoder.fit(table)
    shuffled = table[["old", "colour", "size"]].assign(extra="x")
    pd.testing.assert_frame_equal(encoder.transform(shuffled), encoder.transform(table))


@pytest.mark.parametrize("kind", ["category", "string", "object"])
def test_every_kind_of_text_column_is_encoded_alike(table, kind):
    encoder = Encoder.fit(table)
    other = table.astype({"colour": kind})
    assert Encoder.fit(other) == encoder
    pd.testing.assert_frame_equal(encoder.transform(other), encoder.transform(table))


def test_numbers_as_categories_match_however_they_are_stored():
    encoder = Encoder.fit(pd.DataFrame({"zone": pd.Series([1, 2, 10], dtype="category")}))
    assert encoder.categories["zone"] == ("1", "10", "2")
    for zone in ([1, 2], [1.0, 2.0], ["1", "2"]):
        np.testing.assert_array_equal(encoder.transform(pd.DataFrame({"zone": zone})), [[1, 0, 0], [0, 0, 1]])


def test_nullable_integers_are_numbers():
    column = pd.Series([1, None, 3], dtype="Int64")
    np.testing.assert_array_equal(tables.numbers(column, "n"), [1, np.nan, 3])


def test_unseen_categories_are_named_or_encoded_as_none_of_those_known(table):
    encoder = Encoder.fit(table)
    new = table.assign(colour=["red", "pink", "mauve", "blue"])
    with pytest.raises(
        ColumnError, match="'colour'.*not seen: 'mauve', 'pink'; .*are 'blue', 'green', 'red'"
    ):
        encoder.transform(new)
    X = encoder.transform(new, allow_unseen=True)
    np.testing.assert_array_equal(X.filter(like="colour=").sum(axis=1), [1, 0, 0, 1])


def test_the_encoder_survives_json(table):
    encoder = Encoder.fit(table)
    assert Encoder.from_json(json.loads(json.dumps(encoder.to_json()))) == encoder


@pytest.mark.parametrize("plain", [None, 3, {}, {"columns": ["a"]}, {"columns": ["a"], "categories": 7}])
def test_damaged_json_is_a_model_file_error(plain):
    with pytest.raises(ModelFileError, match="fit it again"):
        Encoder.from_json(plain)


@given(st.lists(st.sampled_from(["a", "b", "c", "", "é", "a=b"]), min_size=1, max_size=12), st.randoms())
@settings(max_examples=50, deadline=None)
def test_one_hot_rows_name_their_own_category(values, random):
    table = pd.DataFrame({"c": values, "x": np.arange(float(len(values)))})
    X = Encoder.fit(table).transform(table.sample(frac=1, random_state=random.randrange(99)).sort_index())
    features = X.filter(like="c=")
    assert [name.removeprefix("c=") for name in features.idxmax(axis=1)] == values
    assert (features.sum(axis=1) == 1).all()


def test_text_with_too_many_values_is_refused():
    ids = pd.DataFrame({"id": [f"row{i}" for i in range(tables.MAX_CATEGORIES + 1)]})
    with pytest.raises(
        ColumnError, match="'id' holds text with 51 distinct values such as 'row0', 'row1', more"
    ):
        Encoder.fit(ids)
    assert len(Encoder.fit(ids[:-1]).feature_names) == tables.MAX_CATEGORIES


def test_columns_that_cannot_be_used_are_named(table):
    encoder = Encoder.fit(table)
    with pytest.raises(ColumnError, match="no column 'size', 'old'; its columns are 'colour'"):
        encoder.transform(table[["colour"]])
    with pytest.raises(ColumnError, match="'size' must hold numbers; it holds text such as 'big'"):
        encoder.transform(table.assign(size="big"))
    with pytest.raises(NonFiniteError, match=r"'size' holds 1 infinite"):
        encoder.transform(table.assign(size=[1.0, np.inf, 2.0, 3.0]))
    with pytest.raises(ColumnError, match="'when' holds dates"):
        Encoder.fit(pd.DataFrame({"when": pd.to_datetime(["2001-01-01"])}))
    with pytest.raises(ColumnError, match="'void' holds no values"):
        Encoder.fit(pd.DataFrame({"void": pd.Series([None, None], dtype=object)}))
    with pytest.raises(ColumnError, match="no columns"):
        Encoder.fit(table[[]])


def test_missing_values_are_counted_by_row_and_column(table):
    table.loc[[0, 2], "size"] = np.nan
    table.loc[0, "colour"] = None
    np.testing.assert_array_equal(tables.complete_rows(table, ["size", "colour"]), [False, True, False, True])
    with pytest.raises(MissingValuesError, match=r"2 of 4 rows .*, in size \(2\), colour \(1\): do this"):
        tables.require_complete(table, ["size", "colour"], "do this")
    tables.require_complete(table, ["old"], "do this")


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet", "T.PQ"])
def test_tables_are_read_as_they_were_written(tmp_path, table, name):
    tables.write(table, tmp_path / name)
    read = tables.read(tmp_path / name)
    assert list(read.columns) == list(table.columns)
    assert Encoder.fit(read) == Encoder.fit(table)
    np.testing.assert_array_equal(read["size"], table["size"])
    assert [p.name for p in tmp_path.iterdir()] == [name]


FILES = [
    ("empty.csv", b"", EmptyDataError, "is empty"),
    ("header.csv", b"a,b\n", EmptyDataError, "a header but no rows"),
    ("ragged.csv", b"a,b\n1,2\n1,2,3,4\n", ColumnError, "could not be read as csv"),
    ("bytes.csv", b"a,b\n\xff\xfe,2\n", ColumnError, "could not be read as csv"),
    ("bad.parquet", b"not parquet", ColumnError, "could not be read as parquet"),
    ("t.xlsx", b"", UnknownNameError, r"end in one of \.csv"),
]


@pytest.mark.parametrize("name, content, error, message", FILES)
def test_files_that_are_no_tables_are_named(tmp_path, name, content, error, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=message) as caught:
        tables.read(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(DataNotFoundError, match="no file 'nowhere.csv'"):
        tables.read(Path("nowhere.csv"))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "out.csv"
    target.write_text("old")
    with pytest.raises(RuntimeError), tables.replacing(target) as part:
        part.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
