"""Run functions on the workers of a Dask cluster: over the parts of a source, or over any items.

    with ig.distributed.cluster(workers=4) as client:             # or cluster("tcp://127.0.0.1:8786")
        source = ig.distributed.spread(ig.as_source("data/*.parquet", "y"), client)
        fit = ig.fit(kernel, basis, "vfe", noise, source)

Parts stay with the workers; what changes between passes is sent once in each; sums come back. Each part is
the result of a task that reads it, so Dask reads parts again when the worker that held them dies: a lost
worker costs time, not the result. Sums are added on the workers in the order of `sources.tree_sum`, whatever
finishes first. A worker runs as many parts at once as it has threads, each with a single-threaded BLAS.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from .. import package
from ..errors import ClusterError, ParameterError
from ..numerics.workers import cores, using
from .dask_collections import DelayedPiece
from .source import FAN, Changed, Layout, Part, PartsDone, Pieces, Source, read_part, sum_from_left

CONNECT_TIMEOUT = "10s"  # to reach a scheduler
CALL_SECONDS = 5.0  # that an answer of the scheduler may take
LOST_SECONDS = 8.0  # to wait without scheduler or workers before an error


@contextmanager
def cluster(
    address: str | None = None, workers: int | None = None, *, threads: int = 1, dashboard: bool = False
) -> Iterator[Any]:
    """Connect to the scheduler at `address`, or start worker processes here, which end with the block.

    Local workers have `threads` threads each; by default there are as many as the cores allow. They and the
    scheduler listen on 127.0.0.1 alone. Being new processes, they import the script that starts them: keep
    its work under `if __name__ == "__main__":`. With `dashboard` the address of Dask's own pages
    is printed (they need bokeh).
    """
    distributed = package("distributed")
    if address is not None and workers is not None:
        raise ParameterError("give the address of a scheduler or a number of local workers, not both")
    with ExitStack() as opened:
        if address is None:
            count = max(1, cores() // threads) if workers is None else workers
            if count < 1 or threads < 1:
                raise ParameterError(f"a cluster needs a worker and a thread, not {count} and {threads}")
            places: dict[str, Any] = dict(host="127.0.0.1", dashboard_address="127.0.0.1:0", processes=True)
            local = distributed.LocalCluster(n_workers=count, threads_per_worker=threads, **places)
            address = opened.enter_context(closing(local)).scheduler_address
        try:
            client = opened.enter_context(closing(distributed.Client(address, timeout=CONNECT_TIMEOUT)))
        except (OSError, ValueError) as error:
            raise ClusterError(f"there is no Dask scheduler at {address!r} ({error}); check it") from error
        if dashboard:
            print(f"dashboard: {client.dashboard_link}", file=sys.stderr, flush=True)
        yield client


def spread(source: Source, client: Any = None, *, device: str | None = None) -> Source:
    """Put a source on a client's cluster, by default the current one; each worker holds neighbouring parts.

    The workers read files and memory maps themselves, and must see them under the same names. Arrays in
    memory are sent inside the tasks: the scheduler keeps a copy. `device` is the PyTorch device on which the
    workers compute, such as "cuda".
    """
    if isinstance(source, Changed):
        return replace(source, base=spread(source.base, client, device=device))
    if isinstance(source, OnCluster):
        return source
    if not isinstance(source, Pieces):
        why = f"the parts of a {type(source).__name__} source come only in order and cannot be spread"
        raise ParameterError(f"{why}; give arrays, files or a Dask collection")
    client = current_client() if client is None else client
    places = _places(client, len(source.pieces))
    with _large_graphs():
        futures = [
            _submitted(client, i, piece, source.layout, place)
            for i, (piece, place) in enumerate(zip(source.pieces, places, strict=True))
        ]
    return OnCluster(source.layout, tuple(futures), tuple(places), client, source.n_rows, device)


def with_workers(source: Source) -> Source:
    """Put a source on the workers of the current client, if there is one."""
    if "distributed" not in sys.modules:  # then there is no client
        return source
    try:
        client = package("distributed").get_client()
    except ValueError:
        return source
    return spread(source, client)


@dataclass(frozen=True, eq=False)
class OnCluster(Source):
    """A source whose parts are Dask futures."""

    layout: Layout
    futures: tuple[Any, ...]
    places: tuple[str, ...]  # the worker of each part, as long as it lives
    client: Any
    n_rows: int | None
    device: str | None = None
    report: PartsDone | None = None

    @property
    def n_parts(self) -> int:  # type: ignore[override]
        return len(self.futures)

    def parts(self) -> Iterator[Part]:
        return self.map(_itself)

    def map(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        call = sent(self.client, function, args, self.device)
        tasks = (
            self.client.submit(_on_worker, part, call, None, pure=False, **_at(place))
            for part, place in zip(self.futures, self.places, strict=True)
        )
        for done, value in enumerate(results(self.client, tasks)):
            yield value
            if self.report is not None:
                self.report(done + 1, self.n_parts)

    def total(self, function: Callable[..., Any], *args: Any) -> Any:
        from dask import annotate, delayed

        call = sent(self.client, function, args, self.device)
        with _counting(self.client, self.report, self.n_parts) as topic:
            on_worker, add = delayed(_on_worker, pure=False), delayed(sum_from_left, pure=False)
            level = []
            for part, place in zip(self.futures, self.places, strict=True):
                with annotate(**_at(place)):
                    level.append(on_worker(part, call, topic))
            while len(level) > 1:
                level = [add(level[i : i + FAN]) for i in range(0, len(level), FAN)]
            return result(self.client.compute(level[0], optimize_graph=False))


def current_client() -> Any:
    """Return the Dask client in use; raise if there is none."""
    distributed = package("distributed")
    try:
        return distributed.get_client()
    except ValueError as error:
        raise ClusterError("there is no Dask client; give one, or make one by `cluster`") from error


def sent(client: Any, *values: Any) -> Any:
    """Send values to the workers as a task's result, which Dask, unlike scattered data, can make again."""
    with _large_graphs():
        return client.submit(_itself, Sealed(*values), pure=False)


class Sealed:
    """Values that Dask does not look into."""

    def __init__(self, *values: Any) -> None:
        self.values = values


def _itself(value: Any) -> Any:
    return value


def _on_worker(part: Part, call: Sealed, topic: str | None) -> Any:
    function, args, device = call.values
    with using(threads=1, device=device):
        result = function(part, *args)
    if topic is not None:
        package("distributed").get_worker().log_event(topic, part.index)
    return result


def results(client: Any, tasks: Iterable[Any]) -> Iterator[Any]:
    """Yield the results of tasks, in order; two tasks for each thread of the cluster are taken ahead."""
    ahead = 2 * max(1, sum(client.nthreads().values()))
    waiting: deque[Any] = deque()
    for task in tasks:
        waiting.append(task)
        if len(waiting) > ahead:
            yield result(waiting.popleft())
    while waiting:
        yield result(waiting.popleft())


def result(future: Any) -> Any:
    """Return a future's result; raise ClusterError if its workers died, or if the scheduler or all workers
    are gone and do not come back.
    """
    seen = time.monotonic()
    while True:
        try:
            return future.result(timeout=1.0)
        except package("distributed").KilledWorker as error:
            raise ClusterError(f"workers died one after the other; their logs say why ({error})") from error
        except CancelledError as error:
            raise ClusterError(f"the scheduler is gone, and what it held with it ({error})") from error
        except TimeoutError:
            if future.status == "error":  # the function's own
                raise
        seen = time.monotonic() if _workers(future.client) else seen
        if time.monotonic() - seen > LOST_SECONDS:
            raise ClusterError("the scheduler or all of its workers are gone; start them, and call again")


def _workers(client: Any) -> dict[str, int]:
    """Return the number of threads of each worker, {} if the scheduler does not answer."""
    try:
        answer = client.sync(client.scheduler.ncores, callback_timeout=CALL_SECONDS)
        return dict(answer) if client.status == "running" else {}
    except (OSError, TimeoutError, AttributeError, RuntimeError):
        return {}


def _check_versions(client: Any) -> None:
    """Raise if workers do not answer, or have another version of Python or Dask."""
    answers: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: answers.append(client.get_versions()), daemon=True)
    asking.start()
    asking.join(timeout=2 * CALL_SECONDS)
    if not answers:
        raise ClusterError("the workers do not answer; look at their logs")
    own = _versions(answers[0]["client"])
    for address, versions in answers[0]["workers"].items():
        if _versions(versions) != own:
            theirs = f"the worker {address} has Python and Dask {_versions(versions)}"
            raise ClusterError(f"{theirs}, but here are {own}; make them the same")


def _versions(answer: Any) -> tuple[str, str]:
    """Return the first two numbers of Python's version, and Dask's version."""
    if not isinstance(answer, dict):
        return "", ""
    python, dask = answer["host"]["python"], answer["packages"]["distributed"]
    return ".".join(str(python).split(".")[:2]), str(dask)


def _places(client: Any, parts: int) -> list[str]:
    """Choose a worker for each part: neighbours together, and parts in proportion to threads."""
    threads = _workers(client)
    if not threads:
        raise ClusterError("the cluster has no workers; start some, and call again")
    _check_versions(client)
    slots = [address for address in sorted(threads) for _ in range(threads[address])]
    return [slots[i * len(slots) // parts] for i in range(parts)]


def _at(place: str) -> dict[str, Any]:
    """Return Dask's keywords for a task that should run on a worker, or anywhere once that is gone."""
    return {"workers": [place], "allow_other_workers": True}


def _submitted(client: Any, index: int, piece: Any, layout: Layout, place: str) -> Any:
    """Submit the task that reads a part on the worker `place`; return its future."""
    futures: list[Any] = []
    if isinstance(piece, DelayedPiece):
        futures = client.compute(list(piece.delayed), **_at(place))
        piece = replace(piece, delayed=())
    return client.submit(_read, Sealed(index, piece, layout), *futures, pure=False, **_at(place))


def _read(sealed: Sealed, *computed: Any) -> Part:
    index, piece, layout = sealed.values
    return read_part(index, replace(piece, delayed=computed) if computed else piece, layout)


@contextmanager
def _large_graphs() -> Iterator[None]:
    """Silence Dask's warning of large values inside tasks: here they are meant."""
    import dask

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        yield


@contextmanager
def _counting(client: Any, report: PartsDone | None, parts: int) -> Iterator[str | None]:
    """Open a topic on which the workers log parts that are done; call `report` with their count."""
    if report is None:
        yield None
        return
    topic, seen = f"inducing-{uuid4().hex}", set()

    def count(event: Any) -> None:
        seen.add(event[1])
        report(len(seen), parts)

    client.subscribe_topic(topic, count)
    try:
        yield topic
    finally:
        client.unsubscribe_topic(topic)
