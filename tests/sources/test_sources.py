"""Rows in parts: the same sums wherever the rows lie, and errors that say which part and which row."""

import pickle
import sys
import types

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import inducing as ig
import oracle
from inducing.errors import (
    ColumnError,
    DataNotFoundError,
    EmptyDataError,
    NonFiniteError,
    ParameterError,
    ShapeError,
)
from inducing.numerics.arrays import FILLED
from inducing.sources import distributed, parquet
from inducing.sources.arrays import from_arrays, is_parted
from inducing.sources.moments import Columns, center_and_scale, moments, together
from inducing.sources.parquet import from_parquet, reading, table_files
from inducing.sources.source import Layout, Part, checked_part, split, tree_sum

CHUNK = 70
NAMES = ["a", "b", "c"]


def problem(n=330, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)
    return X, y


def kernel():
    return ig.kernels.RBF(lengthscale=[1.0, 1.5, 2.0], variance=1.3)


def write_parquet(folder, X, y, chunk=CHUNK):
    folder.mkdir(exist_ok=True)
    for i, at in enumerate(range(0, len(X), chunk)):
        table = pd.DataFrame(X[at : at + chunk], columns=NAMES).assign(y=y[at : at + chunk])
        table.to_parquet(folder / f"{i:04}.parquet", index=False)
    return folder


def everywhere(folder, X, y):
    """The same rows with the same boundaries, from all kinds of places."""
    dask_array, zarr = pytest.importorskip("dask.array"), pytest.importorskip("zarr")
    dask_frame = pytest.importorskip("dask.dataframe")
    files = write_parquet(folder / "parquet", X, y)
    maps = []
    for name, a in (("X", X), ("y", y)):
        m = np.memmap(folder / name, dtype=np.float64, mode="w+", shape=a.shape)
        m[:] = a
        m.flush()
        maps.append(np.memmap(folder / name, dtype=np.float64, mode="r", shape=a.shape))
    stores = [
        zarr.create_array(str(folder / f"{n}.zarr"), shape=a.shape, dtype="f8", chunks=(CHUNK, *a.shape[1:]))
        for n, a in (("X", X), ("y", y))
    ]
    stores[0][:], stores[1][:] = X, y
    frame = dask_frame.concat(
        [dask_frame.from_pandas(pd.read_parquet(f), npartitions=1) for f in sorted(files.iterdir())]
    )
    cuts = range(0, len(X), CHUNK)
    return {
        "arrays": ig.as_source(X, y, chunk_rows=CHUNK),
        "memory map": ig.as_source((maps[0], maps[1]), chunk_rows=CHUNK),
        "zarr": ig.as_source(stores[0], stores[1], chunk_rows=CHUNK),
        "folder": ig.as_source(files, "y"),
        "glob": ig.as_source(str(files / "*.parquet"), "y", columns=NAMES),
        "list": ig.as_source(sorted(files.iterdir()), "y"),
        "data frame": ig.as_source(frame, "y"),
        "frame and series": ig.as_source(frame[NAMES], frame["y"]),
        "dask array": ig.as_source(
            dask_array.from_array(X, chunks=(CHUNK, 2)), dask_array.from_array(y, chunks=50)
        ),
        "function": ig.as_source(lambda: ((X[at : at + CHUNK], y[at : at + CHUNK]) for at in cuts)),
    }


def relative(a, b):
    scale = np.max(np.abs(b))
    return np.max(np.abs(np.asarray(a) - np.asarray(b))) / scale


@pytest.mark.parametrize("row", ["vfe", "fitc"])
def test_everywhere_the_same_evidence_gradient_and_predictions(tmp_path, row):
    X, y = problem()
    basis, k = ig.bases.Points(X[::20] + 0.01), kernel()
    inside = oracle.bind(oracle.rbf, lengthscale=[1.0, 1.5, 2.0], variance=1.3)
    dense = oracle.jittered(oracle.points(inside, basis.Z), 1e-8)
    sources = everywhere(tmp_path, X, y)
    value, gradient = ig.log_evidence_and_gradient(k, basis, row, 0.1, sources["arrays"])
    mean, variance = ig.condition(k, basis, row, 0.1, sources["arrays"]).predict(X)
    assert value == pytest.approx(oracle.log_evidence(row, inside, dense, 0.1, X, y), rel=1e-9)
    for name, source in sources.items():
        found, slopes = ig.log_evidence_and_gradient(k, basis, row, 0.1, source)
        assert found == pytest.approx(value, rel=1e-10), name
        assert slopes.keys() == gradient.keys()
        assert all(relative(slopes[key], gradient[key]) < 1e-10 for key in gradient), name
        said = ig.condition(k, basis, row, 0.1, source).predict(X)
        assert relative(said[0], mean) < 1e-10 and relative(said[1], variance) < 1e-10, name
    for other in (ig.as_source(X, y, chunk_rows=101), ig.as_source(X, y)):  # other boundaries
        found, slopes = ig.log_evidence_and_gradient(k, basis, row, 0.1, other)
        assert found == pytest.approx(value, rel=1e-7)
        assert all(relative(slopes[key], gradient[key]) < 1e-7 for key in gradient)


class Named:
    """Remembers in which order it was added."""

    def __init__(self, name):
        self.name = name

    def __add__(self, other):
        return Named(f"({self.name}+{other.name})")


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 63, 64, 65, 72, 100, 513])
def test_sums_are_added_in_a_fixed_tree(n):
    items = [Named(str(i)) for i in range(n)]
    level = list(items)
    while len(level) > 1:  # by the definition: groups of eight, each from the left
        groups = [level[at : at + 8] for at in range(0, len(level), 8)]
        level = []
        for group in groups:
            total = group[0]
            for item in group[1:]:
                total = total + item
            level.append(total)
    assert tree_sum(iter(items)).name == level[0].name


def test_names_shapes_and_counts(tmp_path):
    X, y = problem(200)
    files = write_parquet(tmp_path / "p", X, y)
    source = ig.as_source(files, "y")
    assert source.layout.feature_names == ("a", "b", "c") and source.layout.target_names == ("y",)
    assert (source.n_parts, source.n_rows, source.n_features, source.one_output) == (3, 200, 3, True)
    two = ig.as_source(files, ["y", "a"], columns=["c"])
    assert (two.n_outputs, two.one_output, two.n_features) == (2, False, 1)
    np.testing.assert_array_equal(
        np.concatenate([p.y for p in two.map(identity)]), np.column_stack([y, X[:, 0]])
    )
    inputs = ig.as_source(X)
    assert inputs.n_outputs == 0 and next(inputs.map(identity)).y is None
    bare = two.without_targets()
    assert (bare.n_outputs, bare.one_output, bare.n_features) == (0, True, 1)
    assert [part.where for part in source.map(identity)][2] == f"part 2 ({files / '0002.parquet'})"


def identity(part):
    return part


def test_moments_of_uneven_parts_are_those_of_the_whole():
    rng = np.random.default_rng(1)
    X, y = rng.normal([5.0, -1e3, 1e-6], [1.0, 1e-2, 1e-7], (1000, 3)), rng.normal(size=(1000, 2))
    cuts = [0, 1, 1, 400, 999, 1000]  # one of them empty
    found = moments(ig.as_source(lambda: ((X[a:b], y[a:b]) for a, b in zip(cuts, cuts[1:]))))
    assert found.n == 1000
    np.testing.assert_allclose(found.X.mean, X.mean(0), rtol=1e-13)
    np.testing.assert_allclose(found.X.variance, X.var(0), rtol=1e-10)
    np.testing.assert_allclose(found.Y.variance, y.var(0), rtol=1e-12)
    np.testing.assert_array_equal([found.X.low, found.X.high], [X.min(0), X.max(0)])


def test_a_split_takes_every_row_once_and_the_same_rows_each_time():
    X, y = problem(1000)
    rest, held = split(ig.as_source(X, y, chunk_rows=130), 0.3, seed=5)
    first, again = ([np.concatenate([p.X for p in s.map(identity)]) for s in (rest, held)] for _ in range(2))
    np.testing.assert_array_equal(first[1], again[1])
    assert sorted(map(tuple, np.concatenate(first))) == sorted(map(tuple, X))
    assert 220 < len(first[1]) < 380  # 300, six standard deviations either way
    with pytest.raises(ParameterError, match="share to hold out"):
        split(rest, 1.0)


def test_a_cache_keeps_what_fits_and_reads_the_rest_again():
    X, y = problem(400)
    reads = []

    class Array:
        shape = X.shape

        def __getitem__(self, rows):
            reads.append(rows.start)
            return X[rows]

    part = 100 * 4 * 8
    source = ig.as_source(Array(), y, chunk_rows=100).cached(2 * part)
    for _ in range(3):
        assert moments(source).n == 400
    assert reads == [0, 100, 200, 300, 200, 300, 200, 300]


def test_pieces_travel_light(tmp_path):
    X, y = problem(3000)
    held = ig.as_source(X, y, chunk_rows=100).cached()
    moments(held)
    assert len(pickle.dumps(held.pieces[0])) < 2 * 100 * 4 * 8  # its own rows
    assert not pickle.loads(pickle.dumps(held)).kept
    m = np.memmap(tmp_path / "X", dtype=np.float32, mode="w+", shape=X.shape, offset=128)
    m[:] = X
    mapped = ig.as_source(m, chunk_rows=100)
    assert len(pickle.dumps(mapped.pieces[7])) < 500
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(mapped)).part(7).X, m[700:800].astype(float))
    cut = ig.as_source(m[50:], chunk_rows=100)  # part of a map: its offset is not known
    assert len(pickle.dumps(cut.pieces[1])) > 100 * 3 * 4
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(cut)).part(1).X, m[150:250].astype(float))


def test_a_report_is_given_as_parts_are_read():
    X, y = problem(300)
    told = []
    moments(ig.as_source(X, y, chunk_rows=100).watched(lambda done, parts: told.append((done, parts))))
    assert told == [(1, 3), (2, 3), (3, 3)]


# what is wrong, and where


def test_a_nan_is_found_in_its_part_and_row(tmp_path):
    X, y = problem(200 * 50)
    X[173 * 50 + 41, 1] = np.nan
    y[180 * 50 + 3] = np.inf
    files = write_parquet(tmp_path / "p", X, y, 50)
    with pytest.raises(NonFiniteError, match=r"column 'b' holds NaN in part 173 \(.*0173\.parquet\), row 41"):
        moments(ig.as_source(files, "y"))
    with pytest.raises(
        NonFiniteError, match=r"column 1 of X holds NaN in part 173 \(rows 8650 to 8699\), row 41"
    ):
        ig.condition(kernel(), ig.bases.Points(X[:5]), "vfe", 0.1, ig.as_source(X, y, chunk_rows=50))
    X[173 * 50 + 41, 1] = 0.0
    with pytest.raises(NonFiniteError, match="y holds infinity in part 180 .*, row 3"):
        moments(ig.as_source(X, y, chunk_rows=50))
    with pytest.raises(ColumnError, match=r"part 180 \(.*column 'y' holds 1 infinite"):
        encoder = from_parquet(files, "y").layout.encoder
        moments(reading(table_files(files)[0], encoder, "y", drop_missing=True))


def test_missing_columns_and_text_are_named(tmp_path):
    X, y = problem(100)
    files = write_parquet(tmp_path / "p", X, y, 50)
    with pytest.raises(ColumnError, match=r"part 0 .* has no column 'z'; its columns are 'a', 'b', 'c', 'y'"):
        ig.as_source(files, "z")
    pd.read_parquet(files / "0001.parquet").drop(columns="b").to_parquet(files / "0001.parquet")
    with pytest.raises(ColumnError, match=r"part 1 \(.*0001.parquet\) has no column 'b'"):
        ig.as_source(files, "y")
    pd.DataFrame({"a": 1.0, "b": ["x"] * 5, "c": 1.0, "y": 1.0}).to_parquet(files / "0001.parquet")
    with pytest.raises(ColumnError, match="'b' holds numbers in some parts of the table and text in others"):
        moments(ig.as_source(files, "y"))
    with pytest.raises(DataNotFoundError, match="no parquet files"):
        ig.as_source(str(tmp_path / "none*"), "y")
    (tmp_path / "bad.parquet").write_text("no")
    with pytest.raises(ColumnError, match="could not be read as parquet"):
        ig.as_source(tmp_path / "bad.parquet", "y")
    with pytest.raises(ColumnError, match="both an input and a target"):
        ig.as_source(files, "y", columns=["y", "a"])


def test_a_folder_that_is_no_table_is_left_early(tmp_path, monkeypatch):
    """As a whole disk: no more is listed than a table may have, or read than tells that it is none."""
    folder = write_parquet(tmp_path / "p", *problem(60), 10)
    read, metadata = [], pq.read_metadata
    monkeypatch.setattr("pyarrow.parquet.read_metadata", lambda path: read.append(path) or metadata(path))
    with pytest.raises(ColumnError, match=r"part 0 .*0000.parquet\) has no column 'z'"):
        from_parquet(folder, "z")
    assert len(read) == 1
    monkeypatch.setattr(parquet, "MOST_PARTS", 3)
    with pytest.raises(ColumnError, match="has more than 3 row groups"):
        from_parquet(folder, "y")
    assert len(read) == 5
    monkeypatch.setattr(parquet, "MOST_NAMES", 6)
    with pytest.raises(ColumnError, match="has more than 6 files"):
        from_parquet(folder, "y")
    assert len(read) == 5
    monkeypatch.setattr(parquet, "MOST_NAMES", 7)  # the folder and its six files
    assert len(parquet.parquet_files(folder)) == 6


def test_ragged_parts_are_named():
    X, y = problem(100)
    with pytest.raises(ShapeError, match="X in part 1 has 2 columns, but the first part has 3"):
        moments(ig.as_source(lambda: iter([(X[:50], y[:50]), (X[50:, :2], y[50:])])))
    with pytest.raises(ShapeError, match=r"y in part 1 has shape \(49,\), but X has 50 rows there"):
        moments(ig.as_source(lambda: iter([(X[:50], y[:50]), (X[50:], y[51:])])))
    with pytest.raises(ShapeError, match="part 1 has no targets, but other parts have"):
        moments(ig.as_source(lambda: iter([(X[:50], y[:50]), X[50:]])))
    with pytest.raises(ShapeError, match=r"y has shape \(99,\), but X has 100 rows"):
        ig.as_source(X, y[1:])


def without_b(part):
    return part.drop(columns="b") if part.index[0] > 60 else part


def test_dask_collections_cut_differently_are_refused():
    da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    X, y = problem(100)
    frame = dd.from_pandas(pd.DataFrame(X, columns=NAMES), npartitions=4)
    series = dd.from_pandas(pd.Series(y, name="y"), npartitions=3)
    with pytest.raises(ShapeError, match="X has 4 partitions, but y has 3"):
        ig.as_source(frame, series)
    with pytest.raises(ColumnError, match="no column 'y'"):
        ig.as_source(frame, "y")
    for enforced, words in (
        (False, ": The table has no column 'b'"),
        (True, " could not be read: The columns in"),
    ):
        ragged = frame.map_partitions(without_b, meta=frame, enforce_metadata=enforced)
        with pytest.raises(ColumnError, match=rf"part 3 \(partition 3\){words}"):
            moments(ig.as_source(ragged, "a"))
    with pytest.raises(ShapeError, match="X has 2 partitions, but y has 1|y in part"):
        moments(ig.as_source(da.from_array(X, chunks=(50, 3)), da.from_array(y[:60], chunks=60)))


def test_what_can_be_read_only_once_is_refused():
    X, y = problem(100)
    with pytest.raises(ParameterError, match="only once; give a function"):
        ig.as_source(iter([(X, y)]))
    once = [(X, y)]

    def spent():
        while once:
            yield once.pop()

    once.append((X, y))
    source = ig.as_source(spent)  # looks at the first part, and leaves one
    assert moments(source).n == 100
    with pytest.raises(ShapeError, match="gave 0 parts with 0 rows, but 1 with 100 the time before"):
        moments(source)


def test_empty_sources_and_wrong_calls(tmp_path):
    X, y = problem(100)
    with pytest.raises(EmptyDataError, match="without parts"):
        ig.as_source(lambda: iter([]))
    with pytest.raises(EmptyDataError, match="0 rows"):
        ig.as_source(X[:0], y[:0])
    with pytest.raises(EmptyDataError, match="no rows"):
        moments(ig.as_source(lambda: iter([(X[:0], y[:0])])))
    with pytest.raises(ParameterError, match="as many in each; of rows in parts give a function"):
        ig.as_source([(np.zeros((1, 2)), np.zeros(1)), (np.zeros((3, 2)), np.zeros(3))])
    with pytest.raises(ParameterError, match="targets inside"):
        ig.as_source(ig.as_source(X, y), y)
    with pytest.raises(ParameterError, match="chunk_rows must be at least one"):
        ig.as_source(X, y, chunk_rows=0)
    with pytest.raises(ParameterError, match="has no targets"):
        _ = Part(0, X, None, "part 0").Y
    with pytest.raises(ParameterError, match="must name target column"):
        ig.as_source(write_parquet(tmp_path / "p", X, y), y)
    assert not is_parted(X) and not is_parted(np.memmap(tmp_path / "m", mode="w+", shape=(2, 2)))
    assert is_parted("data/*.parquet") and is_parted(ig.as_source(X)) and is_parted(lambda: iter([]))


def test_text_becomes_categories_of_all_parts(tmp_path):
    for i, colours in enumerate((["red", "blue"], ["green", "red"])):
        pd.DataFrame({"x": [1.0, 2.0], "colour": colours, "y": 0.0}).to_parquet(tmp_path / f"{i}.parquet")
    source = from_parquet(tmp_path, "y")
    assert source.layout.feature_names == ("x", "colour=blue", "colour=green", "colour=red")
    np.testing.assert_array_equal(source.part(1).X, [[1, 0, 1, 0], [2, 0, 0, 1]])
    table = pd.read_parquet(tmp_path / "0.parquet")
    table.loc[1, "colour"] = None
    table.to_parquet(tmp_path / "0.parquet")
    with pytest.raises(ValueError, match=r"column 'colour=blue' holds NaN in part 0 .*, row 1"):
        source.part(0)
    files, encoder = table_files(tmp_path)[0], source.layout.encoder
    assert len(reading(files, encoder, "y", drop_missing=True).part(0).X) == 1


def test_parts_may_be_of_one_row_and_not_of_none():
    X, y = problem(n=5)
    parts = list(from_arrays(X, y, chunk_rows=1).parts())
    assert [part.X.tolist() for part in parts] == [[row] for row in X.tolist()]
    with pytest.raises(ParameterError, match="at least one, but is 0"):
        from_arrays(X, y, chunk_rows=0)


def test_a_constant_column_has_its_own_value_and_its_size():
    A = np.array([[1.0, -3.0, 0.0], [2.0, -3.0, 0.0], [6.0, -3.0, 0.0]])
    for parts in ([A], [A[:1], A[1:]], [A[:0], A]):
        center, scale = tree_sum(Columns.of(part) for part in parts).center_and_scale()
        np.testing.assert_allclose(center, [3.0, -3.0, 0.0], rtol=1e-14)
        np.testing.assert_allclose(scale, [np.sqrt(14.0 / 3.0), 3.0, 1.0], rtol=1e-14)


def test_rows_far_out_do_not_count_in_center_and_scale():
    A = np.array([[1.0], [2.0], [3.0], [6.0]])
    for far in (np.empty((0, 1)), np.array([[-1e12], [1e13]])):
        center, scale = center_and_scale(np.concatenate([A, far]), np.ones(len(A) + len(far)))
        np.testing.assert_allclose([center[0], scale[0]], [3.0, np.sqrt(3.5)], rtol=1e-14)
    assert together(A) == slice(None)
    assert together(np.concatenate([A, [[1e13]]])).tolist() == [True] * 4 + [False]  # type: ignore[union-attr]


def test_the_largest_number_is_not_taken_for_what_stands_for_none():
    X = np.array([[FILLED], [-FILLED], [2.0 * FILLED]])
    with pytest.raises(NonFiniteError, match=r"holds 2e\+30, beyond 1e\+30 .*, row 2;"):
        list(from_arrays(X).parts())
    assert len(next(iter(from_arrays(X[:2]).parts())).X) == 2


def test_targets_of_a_part_are_a_vector_where_others_are_and_gaps_are_of_several_outputs():
    X, y = problem(n=4)
    part = checked_part(0, X, y[:, None], "here", Layout(3, 1, True))
    np.testing.assert_array_equal(part.y, y)
    Y = np.stack([y, np.full(4, np.nan)], axis=1)
    np.testing.assert_array_equal(checked_part(0, X, Y, "here", Layout(3, 2, False, gaps=True)).y, Y)
    for targets, layout in ((Y, Layout(3, 2, False)), (Y[:, 1], Layout(3, 1, True, gaps=True))):
        with pytest.raises(NonFiniteError, match="NaN in here, row 0"):
            checked_part(0, X, targets, "here", layout)


def test_rows_go_to_the_workers_of_a_client_where_there_is_one(monkeypatch):
    rows = from_arrays(*problem(n=4))
    calls = []
    monkeypatch.setattr(distributed, "spread", lambda source, client: calls.append((source, client)))

    def get_client():
        if not clients:
            raise ValueError("no client")
        return clients[0]

    clients = []
    monkeypatch.setitem(sys.modules, "distributed", types.SimpleNamespace(get_client=get_client))
    assert distributed.with_workers(rows) is rows and calls == []
    clients.append("client")
    assert distributed.with_workers(rows) is None and calls == [(rows, "client")]
    monkeypatch.delitem(sys.modules, "distributed")
    assert distributed.with_workers(rows) is rows and "distributed" not in sys.modules
