"""Files that hold tables: read as they were written, in parts where they are large, or refused by name."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from inducing.errors import ColumnError, DataNotFoundError, EmptyDataError, UnknownNameError
from inducing.sources import tables
from inducing.sources.parquet import table_files
from inducing.sources.table_encoder import TableEncoder


@pytest.fixture
def table():
    colour = ["red", "blue", "red", "green"]
    return pd.DataFrame({"size": [1.5, 2.0, 0.5, 3.0], "colour": colour, "old": [True, False, True, True]})


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet", "T.PQ", "t.csv.gz", "t.tsv.bz2"])
def test_tables_are_read_as_they_were_written(tmp_path, table, name):
    tables.write(table, tmp_path / name)
    read = tables.read(tmp_path / name)
    assert list(read.columns) == list(table.columns)
    assert TableEncoder().fit(read).columns_ == TableEncoder().fit(table).columns_
    np.testing.assert_array_equal(read["size"], table["size"])
    assert [p.name for p in tmp_path.iterdir()] == [name]


FILES = [
    ("empty.csv", b"", EmptyDataError, "is empty"),
    ("header.csv", b"a,b\n", EmptyDataError, "a header but no rows"),
    ("ragged.csv", b"a,b\n1,2\n1,2,3,4\n", ColumnError, "could not be read as csv"),
    ("bytes.csv", b"a,b\n\xff\xfe,2\n", ColumnError, "could not be read as csv"),
    ("names.csv", b"\x80\n1\n", ColumnError, "could not be read as csv: its header is no UTF-8 text"),
    ("decimal.csv", b"a;b\n1,5;2,5\n", ColumnError, "could not be read as csv: .* Are commas between"),
    ("bad.parquet", b"not parquet", ColumnError, "could not be read as parquet"),
    ("t.xlsx", b"", UnknownNameError, r"end in one of \.csv"),
    ("t.parquet.gz", b"", UnknownNameError, r"end in one of \.csv"),
    ("t.gz", b"", UnknownNameError, r"end in one of \.csv"),
    ("twice.csv", b"a,a\n1,2\n", ColumnError, "two columns named 'a'"),
    ("cut.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9], ColumnError, "could not be read as csv"),
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


LATER = [
    ("1", "2.5", pa.float64()),
    ("1", "x", pa.string()),
    ("", "7", pa.float64()),
    ("true", "no", pa.string()),
]


@pytest.mark.parametrize("first, later, kind", LATER)
def test_a_column_that_turns_out_otherwise_later_is_read_again(tmp_path, monkeypatch, first, later, kind):
    monkeypatch.setattr(tables, "BLOCK", 64)
    (tmp_path / "t.csv").write_text("a,b\n" + f"1,{first}\n" * 100 + f"2,{later}\n")
    types = tables.parsed(tmp_path / "t.csv", (), lambda schema, batches: (schema.types, list(batches)))[0]
    assert types == [pa.int64(), kind]
    assert str(tables.read(tmp_path / "t.csv")["b"].iloc[-1]) in (later, f"{later}.0")


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_large_csv_file_is_read_in_parts(tmp_path, monkeypatch, name):
    monkeypatch.setattr(tables, "MANY_ROWS", 300)
    monkeypatch.setattr(tables, "PART_LINES", 128)
    frame = pd.DataFrame({"a": np.arange(301), "b": ['x, "y"\nz'] * 301})
    assert not tables.is_large(tmp_path / name)
    frame["b"] = "x"
    frame[:300].to_csv(tmp_path / name, index=False)
    assert not tables.is_large(tmp_path / name)
    frame.to_csv(tmp_path / name, index=False)
    assert tables.is_large(tmp_path / name)
    files, plain = table_files(tmp_path / name)
    folder = Path(files.spool.name)
    assert [piece.rows for piece in files.pieces] == [128, 128, 45] and plain == set()
    rows = np.concatenate([piece.table()["a"].to_numpy() for piece in files.pieces])
    assert rows.tolist() == list(range(301))
    assert folder.exists()
    del files
    assert not folder.exists()


@pytest.mark.parametrize("block", [24, 31, 64, 1 << 20])
def test_lines_inside_of_quotes_may_lie_across_blocks(tmp_path, monkeypatch, block):
    monkeypatch.setattr(tables, "BLOCK", block)
    texts = ["x\ny", "plain", '"', "a\n\nb,c", "z"] * 30
    pd.DataFrame({"n": np.arange(150), "t": texts}).to_csv(tmp_path / "t.csv", index=False)
    read = tables.read(tmp_path / "t.csv")
    assert read["t"].tolist() == texts and read["n"].tolist() == list(range(150))


def test_quotes_newlines_and_what_means_missing(tmp_path):
    (tmp_path / "t.csv").write_text('a,b\n1,"x, ""y""\nz"\n?,""\n,?\n')
    read = tables.read(tmp_path / "t.csv", ["?"])
    assert read["b"].tolist()[0] == 'x, "y"\nz' and read["a"].isna().tolist() == [False, True, True]
    assert tables.read(tmp_path / "t.csv")["a"].tolist()[:2] == ["1", "?"]
