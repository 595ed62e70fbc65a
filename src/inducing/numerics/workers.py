"""Worker threads over chunks of rows, with a single-threaded BLAS in each."""

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import ParameterError
from .arrays import Array, device_room, is_numpy, placed

WorkerState = TypeVar("WorkerState")
Returned = TypeVar("Returned")

LEAST_CHUNK = 256  # rows of a chunk at least: with fewer, products with large triangles are a tenth slower
CHUNK_BYTES = 1 << 23  # one chunk-by-m buffer on the CPU: it fits in cache, but threads seldom wait
WAKING = 1 << 24  # multiplications for which a thread is worth waking: some milliseconds
UNHEARD = 1 << 28  # multiplications of a compiled call, which Ctrl-C cannot interrupt: a fraction of a second
LONG = 1 << 31  # multiplications of a call that cannot be cut, beyond which `aside` uses a thread
ROW_WORK = 1 << 16  # multiplications that take about as long as a row's likelihood by quadrature
PER_ENTRY = 256  # multiplications that take about as long as an entry of the kernel by array operations
SPARE_BYTES = 1 << 24  # kept for reuse per core: fresh memory costs as much as small products
DEVICE_BYTES = 1 << 30  # one chunk-by-m buffer on a GPU, or a 32nd of what is free there if that is more


class _ThreadLimits(threading.local):
    """Limits of the calling thread: cores and device; see `using`."""

    threads: int | None = None
    device: str | None = None


_limits = _ThreadLimits()

THREADS = os.environ.get("NUMBA_NUM_THREADS", "").strip()
if THREADS == "0" or re.fullmatch("-[0-9]+", THREADS):  # Numba cannot be imported then
    raise ParameterError(f"NUMBA_NUM_THREADS is {THREADS!r}: give a whole number of at least 1, or unset it")


@contextmanager
def using(*, threads: int, device: str | None = None) -> Iterator[None]:
    """Limit passes that start in this thread, such as a cluster worker's, to `threads` threads with one
    thread of BLAS each, and to a PyTorch device.
    """
    before, _limits.threads, _limits.device = (_limits.threads, _limits.device), threads, device
    try:
        with single_threaded_blas():
            yield
    finally:
        _limits.threads, _limits.device = before


def on_device(a: np.ndarray) -> Array:
    """Return `a`, or its copy on the device that `using` names."""
    return placed(a, _limits.device)


def cores() -> int:
    """Return how many cores the calling thread may use: those of the process, unless `using` says less."""
    return _process_cores() if _limits.threads is None else max(1, min(_limits.threads, _process_cores()))


def workers_for(operations: float) -> int:
    """Return how many cores pay for this many operations, so that small work is no slower on many cores."""
    return max(1, min(cores(), round((operations / WAKING) ** 0.75)))


@cache
def _process_cores() -> int:
    """Return the cores this process may use, by affinity, quota and OMP_NUM_THREADS at the first call."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if asked.isdigit() and int(asked) > 0:
        count = min(count, int(asked))
    return max(1, min(count, _quota()))


def _quota(root: str = "/") -> int:
    """Return the cores that the quotas of all cgroups of this process (Linux) allow; 65536 without one."""
    most = 1 << 16
    try:
        lines = Path(root, "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return most
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names: tuple[str, ...] = ("cpu.max",)
        if controllers == "":
            folder = Path(root, "sys/fs/cgroup")
        elif "cpu" in controllers.split(","):
            folder, names = Path(root, "sys/fs/cgroup/cpu"), ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        else:
            continue
        own = Path(path.lstrip("/"))
        for inside in (own, *own.parents):  # a limit of any group above counts, too
            try:
                quota, period = " ".join((folder / inside / name).read_text() for name in names).split()
                if quota != "max" and int(quota) > 0:
                    most = min(most, max(1, round(int(quota) / int(period))))
            except (OSError, ValueError):
                continue
    return most


def chunk_rows(n: int, m: int, like: Array) -> int:
    """Return the rows of a chunk: a chunk-by-m buffer fits its budget, and workers get equal shares."""
    size = like.dtype.itemsize * max(m, 1)
    budget = CHUNK_BYTES if is_numpy(like) else DEVICE_BYTES
    if budget == DEVICE_BYTES < n * size:
        budget = max(DEVICE_BYTES, device_room(like) // 32)
    rows = max(LEAST_CHUNK, budget // size)
    if is_numpy(like):
        chunks = max(1, -(-n // min(rows, 4096)))
        workers = workers_for(n * m * (m + PER_ENTRY))
        chunks = -(-chunks // workers) * workers
        rows = -(-n // chunks)
    elif rows < n:  # all alike
        rows = -(-n // -(-n // rows))
    return max(1, min(rows, n))


@cache
def _controller() -> Any:
    """Return threadpoolctl's controller of the BLAS libraries that are loaded."""
    import scipy.linalg  # noqa: F401  (loads the BLAS the controller must see)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _BlasLimit:
    """A limit of one BLAS thread while a call needs it. The limit of threadpoolctl is global to the process:
    nested and concurrent calls share one, and the user's own setting comes back when the last of them ends.
    """

    def __init__(self) -> None:
        self._limiter: Any = None
        self.forget_calls()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._limiter is None:
                self._limiter = _controller().limit(limits=1, user_api="blas")
            self._depth += 1
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if self._depth == 0:
                    self._restore()

    @property
    def held(self) -> bool:
        """Whether BLAS is limited now."""
        return self._depth > 0

    def _restore(self) -> None:
        """Lift the limit; libraries that let only the thread that set it do so must forget which that was."""
        for library in _controller().lib_controllers:
            getattr(library, "clear_controlling_thread", lambda force: None)(force=True)
        with self._limiter:  # leaving it restores
            self._limiter = None

    def forget_calls(self) -> None:
        """Forget the calls of other threads, which never end in a forked child."""
        self._lock = threading.Lock()
        self._depth = 0


single_threaded_blas = _BlasLimit()


def blas_for(size: int) -> Any:
    """Return a context for work on size-by-size matrices: small ones are slower on several threads."""
    return single_threaded_blas() if size < 1024 else nullcontext()


_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def _executor() -> ThreadPoolExecutor:
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max_workers=_process_cores(), thread_name_prefix="inducing")
        return _pool


def _forget_threads() -> None:
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()
    _process_cores.cache_clear()
    single_threaded_blas.forget_calls()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)  # threads do not survive a fork


_spare: dict[tuple[int, ...], list[np.ndarray]] = {}  # scratch arrays, by shape


def taken(shape: tuple[int, ...]) -> np.ndarray:
    """Return an uninitialised scratch array of floats, one that was put back if there is one."""
    try:
        return _spare[shape].pop()
    except (KeyError, IndexError):
        return np.empty(shape)


def put_back(arrays: list[np.ndarray]) -> None:
    """Keep scratch arrays that are no longer used for `taken`, up to `SPARE_BYTES` for each core."""
    for a in arrays:
        _spare.setdefault(a.shape, []).append(a)
    if sum(a.nbytes for some in list(_spare.values()) for a in list(some)) > cores() * SPARE_BYTES:
        _spare.clear()


def run_over(
    tasks: list[Any],
    start: Callable[[], WorkerState],
    step: Callable[[WorkerState, Any], None],
    *,
    parallel: bool,
    alone: bool = False,
) -> list[WorkerState]:
    """Run `step`(state, task) for all tasks with one state for each worker, or if `alone` for each task;
    return the states in a fixed order.

    State t gets tasks t, t + T, t + 2T, ... one after the other, so that its sums do not depend on timing;
    any free worker does the next one, so that slow cores hold up no one. BLAS runs single-threaded inside.
    """
    count, waiting = min(cores(), len(tasks)) if parallel else 1, 0
    n_states = len(tasks) if alone else count
    left, free = [tasks[t::n_states] for t in range(n_states)], list(range(n_states))  # states not in use
    states: dict[int, WorkerState] = {}
    turn = threading.Condition()

    def work() -> None:
        nonlocal waiting
        handed_on = False
        with turn:
            try:
                while any(left):
                    if handed_on or not free:  # until a worker frees a state that has tasks left
                        waiting, handed_on = waiting + 1, False
                        turn.wait()
                        waiting -= 1
                        continue
                    task = left[t := free.pop(0)].pop(0)
                    try:
                        turn.release()
                        if t not in states:
                            states[t] = start()
                        step(states[t], task)
                    finally:
                        turn.acquire()
                    if left and left[t]:
                        free.append(t)
                        handed_on = waiting > 0
                        turn.notify()
            except BaseException:
                left.clear()
                raise
            finally:
                turn.notify_all()

    if count <= 1:
        work()
        return [states[0]] if tasks else [start()]
    with single_threaded_blas():
        futures = [_executor().submit(work) for _ in range(1, count)]
        try:
            work()
            for future in futures:
                if not future.cancel():  # it has begun; one that has not has nothing left to do
                    future.result()
        finally:  # after an exception each worker ends after its present task
            left.clear()
            wait([future for future in futures if not future.cancel()])
    return [states[t] for t in range(n_states)]


def side_by_side(calls: Sequence[Callable[[], Returned]], *, parallel: bool = True) -> list[Returned]:
    """Return the results of calls, in their order; each call runs on one core, as soon as one is free."""
    if not parallel or min(cores(), len(calls)) <= 1:
        return [call() for call in calls]
    returned = dict[int, Returned]()

    def step(_: None, i: int) -> None:
        with using(threads=1):
            returned[i] = calls[i]()

    run_over(list(range(len(calls))), lambda: None, step, parallel=True, alone=True)
    return [returned[i] for i in range(len(calls))]


def aside(call: Callable[..., Returned], operations: float, *arguments: Any) -> Returned:
    """Call a function that releases the interpreter lock; if it is long in another thread, so that the main
    thread, which alone gets signals, notices Ctrl-C. KeyboardInterrupt is raised when the call has ended.
    """
    if operations < LONG or threading.current_thread() is not threading.main_thread():
        return call(*arguments)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call, *arguments)
        while not wait([future], timeout=0.2).done:  # between waits other threads' signals are handled
            pass
        return future.result()


def row_slices(n: int, rows: int) -> list[slice]:
    return [slice(i, min(i + rows, n)) for i in range(0, n, rows)]


def interruptible(n: int, operations: float, multiple: int = 1) -> list[slice]:
    """Return slices of rows with a bounded number of multiplications, between which Ctrl-C can interrupt."""
    return row_slices(n, multiple * max(1, int(UNHEARD // max(operations * multiple, 1.0))))
