"""Columns of any data frame become numbers by name, whatever their kind and unit; what cannot is refused

by name.
"""

import datetime as dt
import json
from decimal import Decimal

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import inducing as ig
from inducing.errors import ColumnError, InducingWarning, MissingValuesError, ModelFileError, ShapeError
from inducing.sources import columns, tables
from inducing.sources.columns import Contents
from inducing.sources.encoding import gaps_of, guessed, require_complete, require_none, settle_target

START = np.datetime64("2021-03-28T00:30:00")  # the hour before summer time in Berlin


def frame():
    return pd.DataFrame(
        {
            "size": [1.5, 2.0, 0.5, 3.0],
            "colour": ["red", "blue", "red", "green"],
            "old": [True, False, True, True],
            "when": START + np.array([0, 3600, 7200, 86400]).astype("m8[s]"),
        }
    )


def encode(table, **options):
    return ig.TableEncoder(**options).fit(table).transform(table)


KNOWN = np.array(
    [[1.5, 0, 0, 1, 1, 0], [2, 1, 0, 0, 0, 3600], [0.5, 0, 0, 1, 1, 7200], [3, 0, 1, 0, 1, 86400]]
)


def test_each_kind_of_column_becomes_its_features():
    encoder = ig.TableEncoder().fit(frame())
    names = ["size", "colour=blue", "colour=green", "colour=red", "old", "when"]
    assert encoder.get_feature_names_out().tolist() == names
    np.testing.assert_array_equal(encoder.transform(frame()), KNOWN)
    assert encoder.inputs == ("size", "colour", "old", "when") and not encoder.plain
    assert "category of 3 levels" in encoder.summary() and "since 2021-03-28 00:30:00" in encoder.summary()
    at = encoder.summary().index("becomes")
    assert at == len("colour") + 2  # the longest name
    assert all(line[at - 2 : at] == "  " != line[at : at + 1] for line in encoder.summary().splitlines())


def test_a_target_with_two_values_is_one_and_with_one_is_none():
    kinds = {
        "text": ["a", "b", "a", "b"],
        "same text": ["a"] * 4,
        "same": [2.5] * 4,
        "number": [1.0, 2.5, 1.0, 4.0],
    }
    seen = ig.TableEncoder().seen(pd.DataFrame(kinds))
    assert settle_target("text", seen["text"], None) == "category"
    assert settle_target("number", seen["number"], None) == "number"
    for name in ("same text", "same"):
        with pytest.raises(ColumnError, match="in every row"):
            settle_target(name, seen[name], None)


LIBRARIES = {
    "pandas": lambda t: t,
    "pandas of Arrow": lambda t: t.convert_dtypes(dtype_backend="pyarrow"),
    "Polars": pl.from_pandas,
    "Arrow": pa.Table.from_pandas,
    "capsule": lambda t: Capsule(pa.Table.from_pandas(t)),
    "interchange": lambda t: Interchange(pa.Table.from_pandas(t)),
}


class Capsule:
    """A table of which only the Arrow stream is known."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class Interchange:
    """A table of which only the data frame interchange protocol is known."""

    def __init__(self, table):
        self.table = table

    def __dataframe__(self, **options):
        return self.table.__dataframe__(**options)


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_gives_the_same(library):
    np.testing.assert_array_equal(encode(LIBRARIES[library](frame())), KNOWN)


def test_estimators_take_what_the_encoder_takes():
    table = pd.DataFrame({"x": np.arange(20.0), "kind": ["a", "b"] * 10})
    y = table["x"].to_numpy() + (table["kind"] == "a")
    model = ig.SparseGPRegressor(n_inducing=5, max_iter=3, random_state=0).fit(table, y)
    for library in set(LIBRARIES) - {"capsule"}:  # which has no columns, and might be a list of numbers
        given = LIBRARIES[library](table)
        np.testing.assert_allclose(model.predict(given), model.predict(table), rtol=1e-12)
        np.testing.assert_allclose(model.fit(given, y).predict(given), model.predict(table), rtol=1e-12)
    for wrong in (table.to_dict(), pl.from_pandas(table).lazy()):
        with pytest.raises(ShapeError, match="pass a data frame that holds its rows"):
            model.fit(wrong, y)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_a_date_means_the_same_in_every_unit_and_zone(unit, zone):
    table = frame()[["when"]]
    if zone:
        table["when"] = table["when"].dt.tz_localize("UTC")
    encoder = ig.TableEncoder().fit(table)
    other = table.astype({"when": f"datetime64[{unit}{f', {zone}' if zone else ''}]"})
    for asked in (other, pl.from_pandas(other), other.astype({"when": str})):
        np.testing.assert_array_equal(encoder.transform(asked)[:, 0], KNOWN[:, -1])


def test_calendar_parts_are_sines_and_cosines_of_local_time():
    when = frame()["when"].dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
    X = encode(pd.DataFrame({"when": when}), calendar=["time of day", "weekday", "day of year"])
    hours = np.array([1.5, 3.5, 4.5, 2.5])  # summer time began at one o'clock UTC
    days = 6 + hours / 24 + np.array([0, 0, 0, -6])  # a Sunday, and the Monday after
    year = (np.array([86, 86, 86, 87]) + hours / 24) / 365
    turns = [hours / 24, days / 7, year]
    expected = [wave(2 * np.pi * turn) for turn in turns for wave in (np.sin, np.cos)]
    np.testing.assert_allclose(X[:, 1:], np.column_stack(expected), atol=1e-12)
    again = ig.TableEncoder(calendar={"when": ["weekday"]}).fit(pd.DataFrame({"when": when, "b": when}))
    assert again.get_feature_names_out().tolist() == [
        "when",
        "when: weekday (sin)",
        "when: weekday (cos)",
        "b",
    ]


def test_times_of_day_durations_and_dates_as_objects():
    table = pd.DataFrame(
        {
            "clock": [dt.time(1, 2, 3), dt.time(0, 0, 1)],
            "took": pd.to_timedelta([90, 0.5], unit="s"),
            "day": [dt.date(2000, 1, 2), dt.date(2000, 1, 1)],
            "price": [Decimal("1.50"), Decimal(2)],
        }
    )
    np.testing.assert_array_equal(encode(table), [[3723, 90, 86400, 1.5], [1, 0.5, 0, 2]])
    np.testing.assert_array_equal(encode(table.astype({"clock": str})), encode(table))
    np.testing.assert_array_equal(encode(pl.from_pandas(table)), encode(table))


@pytest.mark.parametrize("kind", ["int64", "uint64", "Int64"])
def test_integers_beyond_floats_keep_their_digits(kind):
    top = 2**62 if kind != "uint64" else 2**64 - 11
    table = pd.DataFrame({"id": pd.array([top + 3, top, top + 10], dtype=kind), "x": 1.0})
    encoder = ig.TableEncoder().fit(table)
    np.testing.assert_array_equal(encoder.transform(table)[:, 0], [3, 0, 10])
    assert f"less {top}" in encoder.summary() and "constant" in encoder.summary() and not encoder.plain
    early = table.assign(id=pd.array([1, 2, 3], dtype=kind))
    np.testing.assert_allclose(encoder.transform(early)[:, 0], [-float(top)] * 3, rtol=1e-15)
    assert ig.TableEncoder().fit(early).plain


def test_numbers_and_booleans_written_as_text():
    table = pd.DataFrame({"a": [" 1.5", "-2e3", "nan", ""], "b": ["True", "FALSE", "true", None]})
    table["c"] = ["3", "4", "?", "n/a"]
    X = encode(table, missing_values=["?", "n/a"])
    np.testing.assert_array_equal(X, [[1.5, 1, 3], [-2000, 0, 4], [np.nan, 1, np.nan], [np.nan] * 3])
    np.testing.assert_array_equal(
        encode(pd.DataFrame({"a": [1, -999, 2.5]}), missing_values=[-999])[:, 0], [1, np.nan, 2.5]
    )


@pytest.mark.parametrize("kind", ["category", "string", "object"])
def test_every_kind_of_text_is_encoded_alike(kind):
    encoder = ig.TableEncoder().fit(frame())
    other = frame().astype({"colour": kind})
    assert ig.TableEncoder().fit(other).columns_ == encoder.columns_
    np.testing.assert_array_equal(encoder.transform(other), KNOWN)


ORDER = ["poor", "fair", "good"]
QUALITY = pd.Categorical(["good", "poor", "good", "fair"], categories=ORDER, ordered=True)


# Arrow's reader of the interchange protocol forgets an order
@pytest.mark.parametrize("library", [name for name in LIBRARIES if name != "interchange"])
def test_ordered_categories_are_their_place_in_the_order(library, tmp_path):
    def given(some):
        made = LIBRARIES[library](some)  # Polars takes pandas' categories without their order
        return made.cast({"quality": pl.Enum(ORDER)}) if library == "Polars" else made

    table = pd.DataFrame({"quality": QUALITY, "x": [0.5, 1.5, 2.5, 3.5]})
    expected = np.column_stack([[2, 0, 2, 1], table["x"]])
    encoder = ig.TableEncoder().fit(given(table))
    np.testing.assert_array_equal(encoder.transform(given(table)), expected)
    assert "place from 0 to 2: poor < fair < good" in encoder.summary()
    table.to_parquet(tmp_path / "t.parquet")
    np.testing.assert_array_equal(encoder.transform(tables.read(tmp_path / "t.parquet")), expected)
    assert ig.TableEncoder().fit(tables.read(tmp_path / "t.parquet")).columns_ == encoder.columns_
    text = table.astype({"quality": str})  # as a CSV file has it
    named = ig.TableEncoder(kinds={"quality": ORDER}).fit(text)
    assert named.columns_ == encoder.columns_
    again = ig.TableEncoder.from_json(json.loads(json.dumps(named.to_json())))
    np.testing.assert_array_equal(again.transform(text), expected)
    parts = [ig.TableEncoder().seen(given(some))["quality"] for some in (table[:2], table[2:])]
    assert (parts[0] + parts[1]).order == tuple(ORDER)
    assert encode(table, kinds={"quality": "category"}).shape == (4, 4)


def test_an_order_that_does_not_fit_is_refused():
    table = pd.DataFrame({"quality": np.array(QUALITY, dtype=object), "x": [1, 2, 3, 4]})
    for kinds, message in (
        ({"quality": ["poor", "good"]}, "'quality' holds 'fair', but the order given is 'poor', 'good'"),
        ({"quality": ["poor", "poor", "fair", "good"]}, "levels must be given, each once, lowest first"),
        ({"quality": "ordered"}, "levels must be given"),
        ({"x": ["1", "2"]}, "'x' holds '3', '4', but the order given is '1', '2'"),
    ):
        with pytest.raises(ColumnError, match=message):
            ig.TableEncoder(kinds=kinds).fit(table)
    encoder = ig.TableEncoder(kinds={"quality": ORDER}).fit(table)
    new = pd.DataFrame({"quality": ["fair", "superb", None], "x": [1, 2, 3]})
    with pytest.raises(ColumnError, match="not seen: 'superb'; the known ones are 'poor', 'fair', 'good'"):
        encoder.transform(new)
    np.testing.assert_array_equal(
        encoder.set_params(allow_unseen=True).transform(new)[:, 0], [1, np.nan, np.nan]
    )
    other = pd.DataFrame({"quality": QUALITY.reorder_categories(ORDER[::-1]), "x": [1, 2, 3, 4]})
    with pytest.raises(ColumnError, match="another order in some parts"):
        same = table.assign(quality=QUALITY)
        _ = ig.TableEncoder().seen(same)["quality"] + ig.TableEncoder().seen(other)["quality"]


def test_numbers_as_categories_match_however_they_are_stored():
    encoder = ig.TableEncoder(categories="codes").fit(pd.DataFrame({"zone": pd.Categorical([1, 2, 10])}))
    assert encoder.columns_[0].levels == ("1", "10", "2") and encoder.category_levels == {0: 3}
    for zone in ([1, 2], [1.0, 2.0], ["1", "2"]):
        np.testing.assert_array_equal(encoder.transform(pd.DataFrame({"zone": zone})), [[0], [2]])
    asked = ig.TableEncoder(kinds={"zone": "category"}).fit(pd.DataFrame({"zone": ["7", "8", "x"]}))
    assert asked.columns_[0].levels == ("7", "8", "x")


def test_a_gap_in_a_category_is_a_level_or_missing():
    table = pd.DataFrame({"c": ["a", None, "b"], "x": [1.0, 2.0, np.nan]})
    encoder = ig.TableEncoder().fit(table)
    assert encoder.get_feature_names_out().tolist() == ["c=(missing)", "c=a", "c=b", "x"]
    np.testing.assert_array_equal(encoder.transform(table)[:, :3], [[0, 1, 0], [1, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(np.isnan(encode(table, missing="drop")), [[0, 0, 0], [1, 1, 0], [0, 0, 1]])
    codes = ig.TableEncoder(categories="codes").fit(table[:1])
    np.testing.assert_array_equal(codes.set_params(allow_unseen=True).transform(table)[:, 0], [0, 1, 1])
    with pytest.raises(MissingValuesError, match=r"2 of 3 rows have missing values, in c \(1\), x \(1\)"):
        encode(table, missing="refuse")


def test_the_levels_that_are_rare_share_a_feature():
    table = pd.DataFrame({"c": [f"{i:02d}x" for i in range(30) for _ in range(5 + i)]})
    encoder = ig.TableEncoder(max_levels=4).fit(table)
    assert encoder.get_feature_names_out().tolist() == ["c=27x", "c=28x", "c=29x", "c=(other)"]
    X = encoder.transform(pd.DataFrame({"c": ["28x", "01x", "new"]}))
    np.testing.assert_array_equal(X, [[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1]])
    assert len(ig.TableEncoder(categories="codes").fit(table).columns_[0].levels) == 30


def test_text_that_hardly_repeats_and_empty_columns_are_left_out_with_a_word():
    table = pd.DataFrame({"x": np.arange(30.0), "name": [f"row {i}" for i in range(30)], "void": None})
    with pytest.warns(InducingWarning, match=r"'name' \(text with 30 different values in 30 rows\), 'void'"):
        encoder = ig.TableEncoder().fit(table)
    assert encoder.inputs == ("x",) and encoder.transform(table[["x"]]).shape == (30, 1)
    asked = ig.TableEncoder(kinds={"name": "category", "void": "left out"}).fit(table)
    assert len(asked.get_feature_names_out()) == 31


def test_order_and_further_columns_do_not_matter():
    encoder = ig.TableEncoder().fit(frame())
    shuffled = frame()[["old", "when", "colour", "size"]].assign(extra="x")
    np.testing.assert_array_equal(encoder.transform(shuffled), KNOWN)


AT_FIT = {  # a table that cannot be used, and what is said
    "strays": ({"a": ["1", "2", "?"]}, r"Column 'a' holds numbers written as text, but also '\?' \(1 rows\)"),
    "stray dates": ({"a": ["2020-01-01", "2020-01-02", "soon"]}, "holds times written as text, but also 'so"),
    "decimal commas": ({"a": ["1,5", "2,25", "3"]}, "'a' holds what look like numbers, such as '1,5': write"),
    "money": (
        {"a": ["$1.50", "$1,200"]},
        r"look like numbers, such as '\$1.50': write them as 1234.5, or say",
    ),
    "shares": ({"a": ["3 %", "12%"]}, "look like numbers, such as '3 %'"),
    "dates of a country": (
        {"a": ["1/31/2020", "2/1/20"]},
        "look like dates, such as .*: write them as 2020-12-3",
    ),
    "dots": ({"a": ["31.12.2020 10:30", "1.2.1999"]}, "look like dates, such as '31.12.2020 10:30'"),
    "names alone": (
        {"a": [f"row {i}" for i in range(30)]},
        r"inputs \('a' \(text with 30 .*\) left out\); add",
    ),
    "infinite": ({"a": [1.0, np.inf]}, r"'a' holds 1 infinite value"),
    "lists": (
        {"a": pd.Series([[1], [2, 3]], dtype=pd.ArrowDtype(pa.list_(pa.int64())))},
        "List.*, which is no",
    ),
    "bytes": ({"a": pd.Series([b"x", b"y"], dtype=pd.ArrowDtype(pa.binary()))}, "holds Binary, which is no"),
    "complex": ({"a": [1 + 2j, 1.0]}, "'a' holds .*, which is no number, date or text"),
    "zones": ({"a": ["2020-01-01T00:00Z", "2020-01-02T00:00"]}, "dates with a time zone and dates without"),
    "several": (
        {"a": ["1", "2", "?"], "b": [1.0, np.inf, 2.0], "c": [1, 2, 3]},
        "2 columns cannot be used: column 'a' holds .*; column 'b' holds",
    ),
    "no columns": ({}, "no columns to use as inputs"),
}


@pytest.mark.parametrize("name", AT_FIT)
def test_tables_that_cannot_be_used_get_one_sentence(name):
    table, message = AT_FIT[name]
    with pytest.raises(ColumnError, match=message) as caught:
        ig.TableEncoder().fit(pd.DataFrame(table))
    assert "\n" not in str(caught.value)


LATER = {  # what a table to predict holds instead, and what is said
    "text": (dict(size="big"), "'size' must hold numbers; it holds 'big'"),
    "dates": (dict(size=START), "'size' held numbers when the model was fitted, and holds dates now"),
    "numbers": (dict(when=5), "'when' held dates when the model was fitted, and holds numbers now"),
    "no dates": (dict(when="soon"), "'when' must hold dates; it holds 'soon'"),
    "zone": (dict(when=pd.Timestamp("2021-01-01", tz="UTC")), "'when' has a time zone now, and had none"),
    "unseen": (dict(colour="pink"), "'colour' holds categories .* not seen: 'pink'; .* are 'blue', 'green'"),
    "truth": (dict(old="maybe"), "'old' must hold booleans; it holds 'maybe'"),
    "all": (dict(size="big", when=5), "2 columns cannot be used: column 'size' must .*; column 'when' held"),
}


@pytest.mark.parametrize("name", LATER)
def test_other_values_than_before_get_one_sentence(name):
    changed, message = LATER[name]
    with pytest.raises(ColumnError, match=message) as caught:
        ig.TableEncoder().fit(frame()).transform(frame().assign(**changed))
    assert "\n" not in str(caught.value)


def test_tables_and_parameters_that_are_none_are_named():
    encoder = ig.TableEncoder().fit(frame())
    with pytest.raises(ColumnError, match="no column 'size', 'old', 'when'; its columns are 'colour'"):
        encoder.transform(frame()[["colour"]])
    with pytest.raises(ColumnError, match="must be a data frame, not a list"):
        encoder.transform([[1.0]])
    with pytest.raises(ColumnError, match="two columns named '1'"):
        ig.TableEncoder().fit(pd.DataFrame([[1.0, 2.0]], columns=[1, "1"]))
    with pytest.raises(ColumnError, match="two columns named 'a': rename one"):
        ig.SparseGPRegressor().fit(pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), [1.0])
    with pytest.raises(ColumnError, match=r"with several names, \('a', 1\): name each by one text"):
        ig.TableEncoder().fit(pd.DataFrame([[1.0]], columns=pd.MultiIndex.from_tuples([("a", 1)])))
    with pytest.raises(ColumnError, match="'a' holds lists or the like, no number, date or text"):
        ig.TableEncoder().fit(pd.DataFrame({"a": [[1, 2], [3]]}))
    wrong = dict(missing="fill"), dict(categories="hash"), dict(calendar=["month"]), dict(kinds={"size": "x"})
    for options in wrong:
        with pytest.raises(ig.errors.UnknownNameError, match="must be one of"):
            ig.TableEncoder(**options).fit(frame())
    with pytest.raises(ColumnError, match="no column 'zip'"):
        ig.TableEncoder(kinds={"zip": "category"}).fit(frame())


def test_gaps_are_counted_by_row_and_column():
    gaps = gaps_of(frame().assign(size=[np.nan, 1, np.nan, 1], colour=[None, "a", "?", "b"]), ("?",))
    with pytest.raises(MissingValuesError, match=r"2 of 4 rows .*, in size \(2\), colour \(2\): do this"):
        require_complete(gaps, "do this")
    require_complete({"old": gaps["old"]}, "do this")


def test_the_encoder_survives_json_and_a_pipeline():
    encoder = ig.TableEncoder(calendar={"when": ["weekday"]}, missing_values=["?"]).fit(frame())
    again = ig.TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again.columns_ == encoder.columns_
    np.testing.assert_array_equal(again.transform(frame()), encoder.transform(frame()))
    pipeline = make_pipeline(ig.TableEncoder(), Ridge()).set_output(transform="pandas")
    pipeline.fit(frame(), [1.0, 2.0, 3.0, 4.0])
    assert pipeline[-1].feature_names_in_.tolist()[0] == "size"
    assert pipeline[:-1].transform(frame()).columns.tolist() == pipeline[0].get_feature_names_out().tolist()


@pytest.mark.parametrize("plain", [None, 3, {}, {"columns": ["a"]}, {"columns": [], "options": 7}])
def test_damaged_json_is_a_model_file_error(plain):
    with pytest.raises(ModelFileError, match="fit it again"):
        ig.TableEncoder.from_json(plain)


@given(st.lists(st.sampled_from(["a", "b", "c", "é", "a=b", "(other)"]), min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_one_hot_rows_name_their_own_category(values):
    encoder = ig.TableEncoder().fit(pd.DataFrame({"c": values}))
    X, names = encoder.transform(pd.DataFrame({"c": values})), encoder.get_feature_names_out()
    assert [name.removeprefix("c=") for name in names[X.argmax(axis=1)]] == values
    assert np.all(X.sum(axis=1) == 1)


INSTANTS = st.lists(st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)), min_size=2, max_size=5)


@given(INSTANTS)
@settings(max_examples=50, deadline=None)
def test_seconds_between_dates_are_exact(instants):
    X = encode(pl.DataFrame({"t": instants, "x": 1.0}))[:, 0]
    first = min(instants).replace(microsecond=0)
    expected = [(t - first) // dt.timedelta(seconds=1) + t.microsecond / 1e6 for t in instants]
    np.testing.assert_array_equal(X, expected)
    assert isinstance(nw.from_native(pl.DataFrame({"t": instants})), nw.DataFrame)


@pytest.mark.parametrize("unit", ["D", "h", "s", "ms", "us", "ns"])
def test_whole_seconds_and_the_rest_in_every_unit(unit: str) -> None:
    moments = ["1969-12-31T23:59:58.250", "1970-01-01T00:00:00", "2020-02-29T12:30:01.500"]
    dates = np.array(moments, dtype="datetime64[ms]").astype(f"datetime64[{unit}]")
    whole, part = columns.seconds(dates)
    exact = [int(date.astype("datetime64[ms]").astype(np.int64)) for date in dates]
    assert whole.tolist() == [ms // 1000 for ms in exact] and whole.dtype == np.int64
    assert part.tolist() == [ms % 1000 / 1000 for ms in exact]
    lengths, _ = columns.seconds(np.array([90], dtype="timedelta64[m]").astype(f"timedelta64[{unit}]"))
    assert lengths.tolist() == [{"D": 0, "h": 3600}.get(unit, 5400)]


def test_times_of_day_are_seconds() -> None:
    assert columns.parsed_clock("12:30") == 45000.0 and columns.parsed_clock("01:02:03.5") == 3723.5
    assert np.isnan(columns.parsed_clock("12")) and np.isnan(columns.parsed_clock("noon"))


def test_notes_of_a_summary_begin_in_one_column():
    encoder = ig.TableEncoder().fit(pd.DataFrame({"a": [1.0, 1.0], "name": ["u", "v"], "b": [2.0, 2.0]}))
    lines = encoder.summary().splitlines()
    noted = [line for line in lines if "constant" in line]
    at = lines[0].index("becomes") + len("category of 2 levels, 2 features of 0 and 1") + 2
    assert len(noted) == 2 and all(line[at - 2 : at] == "  " != line[at : at + 1] for line in noted)


@pytest.mark.parametrize(
    "seconds, said",
    [
        *((1.0, "1 seconds"), (59.9, "59.9 seconds"), (60.0, "1 minutes"), (3600.0, "1 hours")),
        *((5400.0, "1.5 hours"), (86400.0, "1 days"), (31556952.0, "1 years"), (0.25, "0.25 seconds")),
    ],
)
def test_times_are_told_in_the_unit_that_suits_them(seconds, said):
    assert columns.in_days(seconds) == said


def test_a_header_in_one_piece_is_told_to_be_one():
    with pytest.raises(ColumnError, match=r"no column 'y'; its columns are 'a;y'\. Are commas between\?"):
        columns.require_columns(["a;y"], ["y"])
    for have in (["a;y", "b"], ["a"]):
        with pytest.raises(ColumnError, match=r"no column 'y'; .*'\.$"):
            columns.require_columns(have, ["y"])


def test_what_is_missing_of_numbers_is_noted_and_of_categories_where_it_is_a_level():
    table = pd.DataFrame({"x": [1.0, np.nan, 3.0, np.nan], "c": ["u", None, "v", "u"]})
    for missing, of_categories in (("use", "1 missing: a level"), ("drop", "")):
        encoder = ig.TableEncoder(missing=missing).fit(table)
        assert [column.note for column in encoder.columns_] == ["2 missing", of_categories]


@pytest.mark.parametrize("count", [20, 21])
def test_twenty_texts_are_categories_however_few_the_rows(count):
    assert guessed(Contents("text", counts={f"level {i}": 1 for i in range(count)}))[0] == (
        "category" if count == 20 else "left out"
    )


def test_problems_are_counted_where_there_are_several():
    for problems, said in (
        (["'a' is odd"], "^'a' is odd.$"),
        (["'a'", "'b'"], "^2 columns cannot be used: 'a'; 'b'.$"),
    ):
        with pytest.raises(ColumnError, match=said):
            require_none(problems)
