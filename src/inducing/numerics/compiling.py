"""Functions that Numba compiles: `Compiled` ones are called from Python, helpers from compiled code alone.

A `Compiled` function is compiled when it is first called, for what it is called with or for the one signature
it has, and kept in Numba's cache on disk; where no cache can be written it is compiled in every process. A
helper needs no way in from Python, which is a good part of what a compilation costs. `FUNCTIONS` lists all of
the first kind that are imported, for `inducing.warm`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import numba as _numba
from numba.core import event, types

numba: Any = _numba  # whose types name no target options
Numbers = Any  # an array, a tuple of arrays and numbers, or an address, inside compiled code
FAST = {"contract", "reassoc", "nsz", "arcp"}
QUIET_SECONDS = 1.0  # seconds of compiling, after which it is said
NOTICE = "inducing: compiling for this machine, once; `inducing warm` does all of it beforehand"
FUNCTIONS: dict[str, Compiled] = {}  # by module and name
_lock = threading.RLock()


class Compiled:
    """A function that is compiled at its first call."""

    def __init__(
        self, function: Callable[..., Any], make: Callable[..., Any], options: dict[str, Any]
    ) -> None:
        update_wrapper(self, function)
        self._function, self._make, self._options = function, make, options
        self._ready: Any = None
        FUNCTIONS[f"{function.__module__.removeprefix('inducing.')}.{function.__name__}"] = self

    def __call__(self, *arguments: Any) -> Any:
        return (self._ready or self.ready())(*arguments)

    def ready(self) -> Any:
        """What Numba made of it."""
        with _lock:
            if self._ready is None:
                try:
                    self._ready = self._make(**self._options, cache=True)(self._function)
                except RuntimeError as error:  # of a cache that cannot be written
                    if "cache" not in str(error):
                        raise
                    self._ready = self._make(**self._options)(self._function)
            return self._ready

    @property
    def is_compiled(self) -> bool:
        return self._ready is not None and bool(getattr(self._ready, "signatures", True))


def compiled(signature: Any = None, **options: Any) -> Callable[[Callable[..., Any]], Compiled]:
    """Compile a function that Python calls, for one signature or for each kind of arguments it meets."""
    signatures = () if signature is None else (signature,)

    def make(**how: Any) -> Any:
        return numba.njit(*signatures, **how)

    return lambda function: Compiled(function, make, {"nogil": True, **options})


def helper(**options: Any) -> Any:
    """Compile a function that compiled functions call.

    One with fast math is inlined: else a process that compiles runs the copy that stands alone, and one that
    reads the cache the caller's own, which rounds sums differently.
    """
    how = {"forceinline": bool(options.get("fastmath"))} | options
    return numba.njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **how)


def pointed(signature: Any, **options: Any) -> Callable[[Callable[..., Any]], Compiled]:
    """Compile a function that compiled functions call by its address, `pointer(function)`."""

    def make(**how: Any) -> Any:
        return numba.cfunc(signature, **how)

    return lambda function: Compiled(function, make, options)


def pointer(function: Compiled) -> int:
    """The address of a function made by `pointed`, which is compiled for it."""
    return function.ready().address


class _Notice(event.Listener):
    """Says once on stderr that functions of this package are being compiled, when that takes long."""

    def __init__(self) -> None:
        self.open, self.began, self.spent = 0, 0.0, 0.0
        self.timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        if self.open == 0 and self._is_ours(event) and self.spent < QUIET_SECONDS:
            self.began = time.monotonic()
            self.timer = threading.Timer(QUIET_SECONDS - self.spent, self.say)
            self.timer.daemon = True
            self.timer.start()
        self.open += 1

    def on_end(self, event: Any) -> None:
        self.open -= 1
        if self.open == 0 and self.timer is not None:
            self.timer.cancel()
            self.timer, self.spent = None, self.spent + time.monotonic() - self.began

    def say(self) -> None:
        self.spent = QUIET_SECONDS
        print(NOTICE, file=sys.stderr, flush=True)

    @staticmethod
    def _is_ours(event: Any) -> bool:
        return event.data["dispatcher"].py_func.__module__.startswith("inducing.")


_notice = _Notice()
event.register("numba:compile", _notice)


def expected() -> None:
    """Let compiling go on without a notice: it was asked for."""
    _notice.spent = QUIET_SECONDS


# what compiled functions take: numbers, arrays that they only read (and that may be read-only), and arrays
# that they write to
Addresses = types.Array(types.int64, 1, "C", readonly=True)
Given1, Given2 = (types.Array(types.float64, k, "C", readonly=True) for k in (1, 2))
Out1, Out2, Out3 = (types.Array(types.float64, k, "C") for k in (1, 2, 3))
Real, Flag = types.float64, types.boolean
