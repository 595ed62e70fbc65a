"""Run a function over the blocks of a committee: one after the other, in threads, or on Dask workers."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from ..errors import ParameterError
from ..numerics.arrays import Array, is_numpy
from ..numerics.workers import cores, single_threaded_blas, using
from ..sources.distributed import current_client, results, sent

Mapper = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # like `map`


def as_mapper(mapper: Any) -> Mapper:
    """Make a mapper: a function stays itself; a Dask client, or "dask" for the current one, uses workers."""
    if callable(mapper):
        return mapper
    if type(mapper).__module__.partition(".")[0] == "distributed":
        return OnWorkers(mapper)
    if mapper == "dask":
        return OnWorkers(current_client())
    raise ParameterError(f"mapper must be a function such as map, a Dask client or 'dask', but is {mapper!r}")


def suited(mapper: Mapper, like: Array) -> Mapper:
    """The mapper for work on arrays like this one: a GPU needs no threads."""
    return map if mapper is in_threads and not is_numpy(like) else mapper


def in_threads(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """`map` on all cores, a few results ahead of whoever takes them. BLAS runs single-threaded meanwhile."""
    with single_threaded_blas(), ThreadPoolExecutor(cores()) as pool:
        ahead: deque[Future[Any]] = deque()
        for item in items:
            ahead.append(pool.submit(function, item))
            if len(ahead) > 2 * cores():
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


@dataclass(frozen=True, eq=False)
class OnWorkers:
    """`map` by the workers of a Dask client, each call on one thread; function and items travel once."""

    client: Any
    sent: WeakKeyDictionary[Any, Any] = field(default_factory=WeakKeyDictionary, repr=False)

    def __call__(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        question = sent(self.client, function)
        tasks = (self.client.submit(_answer, question, self._place(item), pure=False) for item in items)
        return results(self.client, tasks)

    def _place(self, item: Any) -> Any:
        if getattr(type(item), "__weakrefoffset__", 0) == 0:  # a tuple, say: nothing tells when it is gone
            return sent(self.client, item)
        if item not in self.sent:
            self.sent[item] = sent(self.client, item)
        return self.sent[item]


def _answer(question: Any, item: Any) -> Any:
    with using(threads=1):
        return question.values[0](item.values[0])
