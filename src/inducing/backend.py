"""Array namespaces (NumPy, PyTorch, CuPy) and the worker threads that run over chunks of rows."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np

from .errors import ParameterError

Array = Any  # an array of any supported namespace; shapes are in the comments where arrays are born
State = TypeVar("State")

CACHE_BYTES = 1 << 23  # one chunk-by-m buffer on the CPU: in cache still, and large enough that threads seldom meet
DEVICE_BYTES = 1 << 30  # one chunk-by-m buffer on a GPU: large enough for full-speed products
SMALL = 1 << 15  # below this many kernel entries a plain NumPy pass beats waking threads or loading compiled code


def namespace(*arrays: Array) -> Any:
    """The array namespace of `arrays`: NumPy itself for NumPy arrays, array-api-compat's otherwise."""
    if all(isinstance(a, np.ndarray | np.generic | float | int) for a in arrays):
        return np
    import array_api_compat

    return array_api_compat.array_namespace(*(a for a in arrays if not isinstance(a, np.generic | float | int)))


def is_numpy(a: Array) -> bool:
    return isinstance(a, np.ndarray)


def is_foreign(a: Any) -> bool:
    """Whether `a` is a PyTorch or CuPy array, which stays what it is; everything else becomes a NumPy array."""
    return type(a).__module__.partition(".")[0] in ("torch", "cupy")


def is_torch(a: Any) -> bool:
    return type(a).__module__.startswith("torch")


def asarray_like(value: Any, like: Array) -> Array:
    """`value` as an array with the namespace, dtype and device of `like`."""
    if is_numpy(like):
        return np.asarray(value, dtype=like.dtype)
    if type(value) is type(like) and value.dtype == like.dtype:
        return value
    import array_api_compat

    xp = namespace(like)
    return xp.asarray(to_numpy(value), dtype=like.dtype, device=array_api_compat.device(like))


def to_numpy(a: Any) -> np.ndarray:
    """A NumPy copy or view of an array from any namespace."""
    if hasattr(a, "detach"):  # torch
        return a.detach().cpu().numpy()
    if hasattr(a, "get") and hasattr(a, "device"):  # cupy
        return a.get()
    return np.asarray(a)


def worth_compiling(entries: int) -> bool:
    """Whether to use compiled loops on so many kernel entries: always once they are loaded, else when it pays."""
    return entries >= (1 << 10 if f"{__package__}._fused" in sys.modules else SMALL)


def zeros_like_rows(shape: tuple[int, ...], like: Array) -> Array:
    """Zeros of `shape` with the namespace, dtype and device of `like`."""
    if is_numpy(like):
        return np.zeros(shape, dtype=like.dtype)
    import array_api_compat

    return namespace(like).zeros(shape, dtype=like.dtype, device=array_api_compat.device(like))


class _Here(threading.local):
    """What the calling thread may use; see `using`."""

    threads: int | None = None
    device: str | None = None


_here = _Here()


@contextmanager
def using(*, threads: int, device: str | None = None) -> Iterator[None]:
    """Passes over rows that start in this thread use so many threads, BLAS one in each, and move parts to the PyTorch device.

    For programs that have threads of their own, such as the workers of a cluster.
    """
    before, _here.threads, _here.device = (_here.threads, _here.device), threads, device
    try:
        with single_threaded_blas():
            yield
    finally:
        _here.threads, _here.device = before


def on_device(a: np.ndarray) -> Array:
    """`a`, or its copy on the device that `using` names."""
    return placed(a, _here.device)


def placed(a: np.ndarray, device: str | None) -> Array:
    """`a`, or a PyTorch copy on the device, in double precision."""
    if device is None:
        return a
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ParameterError(f"device={device!r} needs PyTorch: pip install 'inducing[gpu]'") from error
    try:
        return torch.as_tensor(a, dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ParameterError(f"device={device!r} cannot be used ({reason}); use device=None") from error


def workers() -> int:
    """How many cores the calling thread may use: those of the process, unless `using` says less."""
    return _cores() if _here.threads is None else max(1, min(_here.threads, _cores()))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


def chunk_rows(n: int, m: int, like: Array) -> int:
    """Rows per chunk: one chunk-by-m buffer fits the budget of the device, and every core gets as many chunks as the others."""
    budget = CACHE_BYTES if is_numpy(like) else DEVICE_BYTES
    rows = max(128, budget // (like.dtype.itemsize * max(m, 1)))
    if is_numpy(like):
        chunks = max(1, -(-n // min(rows, 4096)))
        chunks = -(-chunks // workers()) * workers()
        rows = -(-n // chunks)
    return max(1, min(rows, n))


class _BlasLimit:
    """A process-wide limit of one BLAS thread while at least one call needs it.

    threadpoolctl's limit is global to the process, so nested and concurrent calls share one, and the user's own setting
    comes back when the last of them ends.
    """

    def __init__(self) -> None:
        self._limiter: Any = None
        self.forget_calls()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._limiter is None:
                self._limiter, self._owner = self._controller().limit(limits=1, user_api="blas"), threading.get_ident()
            self._depth += 1
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if self._depth == 0:
                    self._restore()

    def _restore(self) -> None:
        """Only the thread that set a limit may lift it, says threadpoolctl, but the last call may run in another one."""
        if self._owner != threading.get_ident():
            for library in self._controller().lib_controllers:
                getattr(library, "clear_controlling_thread", lambda force: None)(force=True)
        with self._limiter:  # leaving it restores
            self._limiter = None

    def forget_calls(self) -> None:
        """In a forked child the calls of other threads never end; the first of its own lifts the limit they had set."""
        self._lock = threading.Lock()
        self._depth = 0

    @staticmethod
    def _controller() -> Any:
        global _controller
        if _controller is None:
            import scipy.linalg  # noqa: F401  (loads the BLAS the controller must see)
            from threadpoolctl import ThreadpoolController

            _controller = ThreadpoolController()
        return _controller


_controller: Any = None
single_threaded_blas = _BlasLimit()


def blas_for(size: int) -> Any:
    """A context for dense work on size-by-size matrices: small ones are slower on several threads than on one."""
    return single_threaded_blas() if size < 1024 else nullcontext()


_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def _executor() -> ThreadPoolExecutor:
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max_workers=_cores(), thread_name_prefix="inducing")
        return _pool


def _forget_threads() -> None:
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()
    single_threaded_blas.forget_calls()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)  # threads do not survive a fork


def run_over(
    tasks: list[Any], start: Callable[[], State], step: Callable[[State, Any], None], *, parallel: bool
) -> list[State]:
    """Give `tasks` to workers, each with a state of its own; returns the states in a fixed order.

    Worker t takes tasks t, t + T, t + 2T, ..., so the sums it accumulates do not depend on timing. BLAS runs
    single-threaded inside, one core per worker.
    """
    count = min(workers(), len(tasks)) if parallel else 1

    def work(t: int) -> State:
        state = start()
        for task in tasks[t::count]:
            step(state, task)
        return state

    if count <= 1:
        return [work(0)]
    with single_threaded_blas():
        futures = [_executor().submit(work, t) for t in range(1, count)]
        try:
            first = work(0)
        finally:
            wait(futures)  # after an exception, too, nothing runs on
        return [first] + [f.result() for f in futures]


def row_slices(n: int, rows: int) -> list[slice]:
    return [slice(i, min(i + rows, n)) for i in range(0, n, rows)]
