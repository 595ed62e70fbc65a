"""Two worker processes: the numbers of memory, from arrays, memory maps, parquet and Dask collections; killed
workers.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing.errors import ClusterError, NonFiniteError, ParameterError
from inducing.numerics import workers
from inducing.sources import distributed
from inducing.sources.source import Kept, Part, tree_sum

pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

N, CHUNK = 3000, 500
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (N, 3))
Y = np.sin(X @ [1.0, 2.0, 0.5]) + 0.3 * RNG.standard_normal(N)
GRID = 1.3 * np.stack(np.meshgrid([-1, 0, 1], [-1, 0, 1], [-1, 0, 1]), axis=-1).reshape(-1, 3)
BASIS = ig.bases.Points(GRID + RNG.uniform(-0.2, 0.2, GRID.shape))
KERNEL, NOISE = ig.kernels.RBF([0.8, 0.7, 0.9], 1.3), 0.1


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with ig.distributed.cluster(workers=2) as client:
        yield client


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows as memory maps and as parquet files, a part each."""
    folder = tmp_path_factory.mktemp("rows")
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", Y)
    (folder / "parquet").mkdir()
    for i in range(0, N, CHUNK):
        frame = pd.DataFrame(X[i : i + CHUNK], columns=["a", "b", "c"]).assign(y=Y[i : i + CHUNK])
        frame.to_parquet(folder / "parquet" / f"{i:05}.parquet")
    return folder


def source(kind: str, folder: Path, chunk: int = CHUNK) -> ig.sources.Source:
    if kind == "memmap":
        files = [np.load(folder / name, mmap_mode="r") for name in ("X.npy", "y.npy")]
        return ig.as_source(*files, chunk_rows=chunk)
    if kind == "parquet":
        return ig.as_source(folder / "parquet", "y")
    if kind == "dask array":
        return ig.as_source(da.from_array(X, chunks=(chunk, 3)), da.from_array(Y, chunks=chunk))
    if kind == "dask frame":
        return ig.as_source(dd.read_parquet(folder / "parquet"), "y")
    return ig.as_source(X, Y, chunk_rows=chunk)


def everything(name: str, data: tuple[Any, ...], **options: Any) -> dict[str, Any]:
    value, gradient = ig.log_evidence_and_gradient(KERNEL, BASIS, name, NOISE, *data, **options)
    post = ig.condition(KERNEL, BASIS, name, NOISE, *data, **options)
    mean, variance = post.predict(X[:200])
    return {"value": value, "conditioned": post.log_evidence, "mean": mean, "variance": variance, **gradient}


def in_memory(name: str, chunk: int = CHUNK) -> dict[str, Any]:
    """Checked against dense formulas in test_table.py and test_engine.py."""
    return everything(name, (X, Y), **({"blocks": np.arange(N) // chunk} if name == "pitc" else {}))


def agree(got: dict[str, Any], expected: dict[str, Any], rtol: float) -> None:
    assert set(got) == set(expected)
    for key, value in expected.items():
        assert_allclose(got[key], value, rtol=0, atol=rtol * np.max(np.abs(value)), err_msg=key)


# numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["arrays", "memmap", "parquet", "dask array", "dask frame"])
def test_equal_numbers_wherever_the_rows_are(kind: str, folder: Path, client: Any) -> None:
    near = source(kind, folder)
    far = ig.distributed.spread(near, client)
    for name in ["sor", "vfe", "fitc", "pep", "pitc"] if kind == "parquet" else ["vfe", "fitc"]:
        expected = in_memory(name)
        agree(everything(name, (near,)), expected, 1e-10)
        agree(everything(name, (far,)), expected, 1e-10)


def test_other_cuts(folder: Path, client: Any) -> None:
    for name in ("vfe", "fitc"):
        far = ig.distributed.spread(source("arrays", folder, 777), client)
        agree(everything(name, (far,)), in_memory(name), 1e-7)


def test_sums_do_not_depend_on_timing(client: Any) -> None:
    """Bit by bit, over and over, and the same as those of one thread in this process."""
    near = ig.as_source(X, Y, chunk_rows=400)
    far = ig.distributed.spread(near, client)
    with workers.using(threads=1):
        first = everything("fitc", (near,))
        for _ in range(3):
            again = everything("fitc", (far,))
            assert all(np.array_equal(again[key], first[key]) for key in first)


def _row_sum(part: Part) -> Any:
    return part.X.sum(axis=0) * 0.1


def test_the_order_of_the_sum(client: Any) -> None:
    """70 parts: three levels of eights. Floating-point sums would show another order."""
    near = ig.as_source(1e8 * X[:700] ** 9, chunk_rows=10)
    expected = tree_sum(_row_sum(near.part(i)) for i in range(70))
    assert np.array_equal(ig.distributed.spread(near, client).total(_row_sum), expected)
    assert not np.array_equal(sum(_row_sum(near.part(i)) for i in range(70)), expected), (
        "the order cannot be seen"
    )


def _index(part: Part, offset: int) -> tuple[int, int]:
    return part.index + offset, len(part.X)


def test_map_keeps_the_order(client: Any) -> None:
    near = ig.as_source(X[:95], chunk_rows=10)
    seen: list[tuple[int, int | None]] = []
    far = ig.distributed.spread(near, client).watched(lambda done, parts: seen.append((done, parts)))
    assert list(far.map(_index, 5)) == [(i + 5, 10 if i < 9 else 5) for i in range(10)]
    assert seen == [(i + 1, 10) for i in range(10)]
    seen.clear()
    far.total(_row_sum)
    assert seen[-1] == (10, 10)
    assert len(seen) == 10


def _scaled(part: Part) -> Part:
    return replace(part, X=(part.X - X.mean(0)) / X.std(0), y=(part.y - Y.mean()) / Y.std())


def test_changes_travel(folder: Path, client: Any) -> None:
    """Standardised, and a share of the rows held out: Changed over a cluster."""
    scaled = source("arrays", folder).changed(_scaled).changed(Kept(0.3, 1, False))
    kept = np.concatenate([np.random.default_rng([1, i]).random(CHUNK) >= 0.3 for i in range(N // CHUNK)])
    data = ((X - X.mean(0)) / X.std(0))[kept], ((Y - Y.mean()) / Y.std())[kept]
    agree(everything("vfe", (ig.distributed.spread(scaled, client),)), everything("vfe", data), 1e-10)


# threads and places -----------------------------------------------------------------------------------------


def _threads(part: Part) -> list[Any]:
    from threadpoolctl import threadpool_info

    blas = [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"]
    return [(workers.cores(), max(blas), os.getpid())]


def test_one_thread_for_each_part(client: Any) -> None:
    found = ig.distributed.spread(ig.as_source(X, Y, chunk_rows=CHUNK), client).total(_threads)
    assert {(threads, blas) for threads, blas, _ in found} == {(1, 1)}
    assert os.getpid() not in {pid for *_, pid in found}
    assert len({pid for *_, pid in found}) == 2


def test_neighbouring_parts_go_to_the_same_worker(client: Any) -> None:
    places = ig.distributed._places(client, 10)
    assert len(set(places)) == 2
    assert places == sorted(places)
    assert places.count(places[0]) == 5


def test_everything_listens_on_loopback(client: Any) -> None:
    found = client.scheduler_info(n_workers=-1)
    assert all(address.startswith("tcp://127.0.0.1:") for address in (found["address"], *found["workers"]))
    assert client.dashboard_link.startswith("http://127.0.0.1:")


# what is refused --------------------------------------------------------------------------------------------


def test_bad_rows_are_named(client: Any) -> None:
    bad = Y.copy()
    bad[1234] = np.nan
    far = ig.distributed.spread(ig.as_source(X, bad, chunk_rows=CHUNK), client)
    with pytest.raises(NonFiniteError, match=r"y holds NaN in part 2 .*row 234"):
        ig.log_evidence(KERNEL, BASIS, "vfe", NOISE, far)


def test_refusals(client: Any) -> None:
    with pytest.raises(ParameterError, match="only in order"):
        ig.distributed.spread(ig.as_source(lambda: iter([(X, Y)])), client)
    with pytest.raises(ParameterError, match="not both"), ig.distributed.cluster("tcp://127.0.0.1:1", 2):
        pass
    with pytest.raises(ParameterError, match="needs a worker"), ig.distributed.cluster(workers=0):
        pass


def test_an_address(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ig.distributed, "CONNECT_TIMEOUT", "1s")
    with pytest.raises(ClusterError, match="no Dask scheduler"), ig.distributed.cluster("tcp://127.0.0.1:1"):
        pass
    with ig.distributed.cluster(client.scheduler.address) as second:
        far = ig.distributed.spread(ig.as_source(X, Y, chunk_rows=CHUNK), second)
        assert_allclose(far.total(_row_sum), 0.1 * X.sum(0), rtol=1e-12)
    assert client.nthreads()  # it has only left


# faults -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["arrays", "parquet"])
def test_a_killed_worker_costs_no_result(kind: str, folder: Path, client: Any) -> None:
    """SIGKILL in the middle of a fit; benchmarks/faults.py does this twenty times."""

    def fit(progress: Any) -> ig.Fit:
        return ig.fit(KERNEL, BASIS, "vfe", NOISE, far, max_iterations=6, progress=progress)

    def kill(iteration: int, value: float) -> None:
        if iteration == 2:
            threading.Timer(0.01, os.kill, (pid, signal.SIGKILL)).start()

    far = ig.distributed.spread(source(kind, folder), client)
    expected = fit(False)
    before = set(client.run(os.getpid).values())
    pid = min(before)
    got = fit(kill)
    client.wait_for_workers(2, timeout=60)
    assert pid not in set(client.run(os.getpid).values())
    assert got.value == expected.value
    assert np.array_equal(got.basis.parameters["Z"], expected.basis.parameters["Z"])
    assert np.array_equal(got.posterior.predict(X)[0], expected.posterior.predict(X)[0])


@pytest.mark.parametrize("gone", ["workers", "scheduler", "nobody"])
def test_a_cluster_that_is_gone_is_one_sentence_within_15_seconds(gone):
    """All workers gone, the scheduler killed, or workers that never came: nobody waits for ever."""
    dask_distributed = pytest.importorskip("distributed")
    places = dict(host="127.0.0.1", dashboard_address="127.0.0.1:0", processes=True)
    with dask_distributed.LocalCluster(n_workers=0 if gone == "nobody" else 1, **places) as local:
        with dask_distributed.Client(local.scheduler_address, timeout="10s") as client:
            if gone == "nobody":
                start = time.monotonic()
                with pytest.raises(ClusterError, match="has no workers"):
                    ig.distributed.spread(ig.as_source(np.ones((4, 1)), np.ones(4)), client)
                assert time.monotonic() - start < 15.0
                return
            future = client.submit(time.sleep, 30.0, pure=False)
            time.sleep(0.5)
            start = time.monotonic()
            if gone == "workers":
                local.scale(0)
            else:
                threading.Thread(target=lambda: local.close(timeout=5), daemon=True).start()
            with pytest.raises(ClusterError, match="gone"):
                distributed.result(future)
            assert time.monotonic() - start < 15.0


def test_workers_of_another_version_are_refused(monkeypatch):
    pytest.importorskip("distributed")
    own = {"host": {"python": "3.11.4"}, "packages": {"distributed": "2024.1"}}
    other = {"host": {"python": "3.9.1"}, "packages": {"distributed": "2024.1"}}

    class Client:
        def get_versions(self):
            return {"client": own, "workers": {"tcp://a": own, "tcp://b": other}}

    with pytest.raises(ClusterError, match="tcp://b has Python and Dask .'3.9', '2024.1'"):
        distributed._check_versions(Client())
