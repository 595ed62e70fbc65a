"""Experts on a Dask cluster say what they say here, and travel once."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing import errors
from inducing.beside import committee

distributed = pytest.importorskip("distributed", reason="Dask is not installed")

KERNEL = ig.kernels.RBF([0.9, 1.3], 1.7)
rng = np.random.default_rng(1)
X = rng.uniform(-2, 2, (60, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(60)
XS = rng.uniform(-2, 2, (9, 2))
LABELS = np.arange(60) % 4


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    here = dict(
        protocol="tcp", host="127.0.0.1", dashboard_address="127.0.0.1:0"
    )  # in this process, but through a socket
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, **here) as cluster:
        with distributed.Client(cluster, set_as_default=True) as client:
            yield client


@pytest.mark.parametrize("rule", ["bcm", "rbcm", "gpoe", "poe"])
@pytest.mark.parametrize("mapper", ["client", "dask"])
def test_a_committee_on_a_cluster(rule: str, mapper: str, client: Any) -> None:
    arguments = KERNEL, None, rule, 0.09, X, Y
    here = committee.condition(*arguments, blocks=LABELS, chunk=4)
    there = committee.condition(
        *arguments, blocks=LABELS, chunk=4, mapper=client if mapper == "client" else "dask"
    )
    for got, want in zip(there.predict(XS), here.predict(XS), strict=True):
        assert_allclose(got, want, rtol=1e-12)
    assert there.log_evidence == pytest.approx(here.log_evidence, rel=1e-12)
    if rule == "bcm":
        assert_allclose(there.covariance(XS), here.covariance(XS), rtol=1e-10, atol=1e-12)
        assert_allclose(there.on(ig.bases.Points(XS)).alpha, here.on(ig.bases.Points(XS)).alpha, rtol=1e-9)


def test_experts_travel_once(client: Any) -> None:
    found = committee.condition(KERNEL, None, "bcm", 0.09, X, Y, blocks=LABELS, chunk=3, mapper=client)
    placed = found.mapper.sent
    found.predict(XS)  # three chunks
    futures = [placed[expert] for expert in found.experts]
    assert len(placed) == 4  # the blocks they were made of are gone
    found.predict(XS)
    assert [placed[expert] for expert in found.experts] == futures


def test_an_error_on_a_worker_is_raised_here(client: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        list(committee.as_mapper(client)(lambda item: 1 // item, [1, 0]))


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        errors.ParameterError, match="function such as map, a Dask client or 'dask', but is 'spark'"
    ):
        committee.condition(KERNEL, None, "bcm", 0.09, X, Y, blocks=LABELS, mapper="spark")
    monkeypatch.setattr(distributed, "get_client", _no_client)
    with pytest.raises(errors.ClusterError, match="there is no Dask client; give one, or make one"):
        committee.condition(KERNEL, None, "bcm", 0.09, X, Y, blocks=LABELS, mapper="dask")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'inducing\[dask\]'"):
        committee.condition(KERNEL, None, "bcm", 0.09, X, Y, blocks=LABELS, mapper="dask")


def _no_client() -> Any:
    raise ValueError("No global client found and no address provided")
