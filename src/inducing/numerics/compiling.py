"""Functions that Numba compiles: `Compiled` ones are called from Python, helpers from compiled code alone.

A `Compiled` function is compiled when it is first called, for what it is called with or for the one signature
it has, and kept in Numba's cache on disk; where no cache can be written it is compiled in every process.
Numba itself is imported then and not before. `FUNCTIONS` lists all that are imported, for `inducing.warm`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache, update_wrapper
from pathlib import Path
from types import CodeType
from typing import Any

from . import ahead

AnyFunction = Callable[..., Any]
Example = Callable[[], tuple[Any, ...]]  # of the arguments of one
Numbers = Any  # an array, a tuple of arrays and numbers, or an address, inside compiled code
FAST = {"contract", "reassoc", "nsz", "arcp"}
QUIET_SECONDS = 1.0  # seconds of compiling, after which the notice is printed
NOTICE = "inducing: compiling for this machine, once; `inducing warm` does all of it beforehand"
FUNCTIONS: dict[str, Compiled] = {}  # by module and name
HELD: list[type] = []  # named tuples that are not yet registered with Numba
_lock = threading.RLock()


@cache
def _numba() -> tuple[Any, Any, Any]:
    """Return Numba, the module with its compiler classes, and the notice that it is compiling."""
    import numba

    from . import linking

    notice = linking.Notice(NOTICE, QUIET_SECONDS)
    linking.event.register("numba:compile", notice)
    return numba, linking, notice


def by_address(named: type) -> Any:
    """Let Python pass this named tuple of arrays and numbers to compiled functions by address."""
    HELD.append(named)
    return named


def _options(function: AnyFunction, **options: Any) -> dict[str, Any]:
    """Return Numba's options; a function that does not name `np` makes no array, and counts no references."""
    return {"error_model": "numpy", "_nrt": "np" in function.__code__.co_names} | options


def name_of(function: AnyFunction) -> str:
    """Return the module and name by which `FUNCTIONS` lists a function."""
    return f"{function.__module__.removeprefix('inducing.')}.{function.__name__}"


class Helper:
    """A function that compiled functions call, not yet given to Numba."""

    def __init__(self, function: AnyFunction, make: Callable[[AnyFunction], Any]) -> None:
        self.py_func, self._make = function, make
        self._made: Any = None

    def made(self) -> Any:
        """Return Numba's function, with its own helpers made as well."""
        if self._made is None:
            self._made = self._make(self.py_func)
            _with_helpers(self.py_func)
        return self._made


def _with_helpers(function: AnyFunction) -> AnyFunction:
    """Replace the helpers that a function names in its module by Numba's functions; return the function."""

    def names(code: CodeType) -> set[str]:
        inner = [names(part) for part in code.co_consts if isinstance(part, CodeType)]
        return set(code.co_names).union(*inner)

    known = function.__globals__
    for name in names(function.__code__):
        if isinstance(known.get(name), Helper):
            known[name] = known[name].made()
    return function


class Compiled:
    """A function that is compiled at its first call."""

    def __init__(
        self, function: AnyFunction, make: AnyFunction, options: dict[str, Any], usual: Example | None = None
    ) -> None:
        update_wrapper(self, function)
        self._function, self._make, self._options, self._usual = function, make, options, usual
        self._ready: Any = None
        self.name = name_of(function)
        FUNCTIONS[self.name] = self

    def __call__(self, *arguments: Any) -> Any:
        return (self._ready or self.ready())(*arguments)

    def ready(self) -> Any:
        """Return Numba's function."""
        if self._ready is None:
            ahead.wait_for(self.name)  # without the lock: other threads may load theirs meanwhile
        with _lock:
            if self._ready is None:
                _with_helpers(self._function)
                _, linking, _ = _numba()
                while HELD:
                    linking.hold(HELD.pop())
                try:
                    self._ready = self._make(**self._options, cache=True)(self._function)
                except RuntimeError as error:  # of a cache that cannot be written
                    if "cache" not in str(error):
                        raise
                    self._ready = self._make(**self._options)(self._function)
            return self._ready

    def prepare(self) -> None:
        """Compile the function, or load it, for its one signature or for its `usual` arguments."""
        ready = self.ready()
        if self._usual is not None and not self.is_compiled:
            ready.compile(tuple(map(ready.typeof_pyval, self._usual())))

    @property
    def is_kept(self) -> bool:
        """Whether Numba's cache seems to have this function; True also where there can be no cache."""
        from numba.core.caching import FunctionCache

        line = self._function.__code__.co_firstlineno
        try:
            folder = Path(FunctionCache(self._function).cache_path)
        except RuntimeError:
            return True
        return any(folder.glob(f"*.{self._function.__name__}-{line}.*nbi"))

    @property
    def is_compiled(self) -> bool:
        return self._ready is not None and bool(getattr(self._ready, "signatures", True))


def compiled(
    kind: str | None = None, usual: Example | None = None, **options: Any
) -> Callable[[AnyFunction], Compiled]:
    """Compile a function that Python calls, for one signature or for each kind of arguments it gets; `usual`
    then makes examples, for which it can be compiled beforehand.
    """

    def make(**how: Any) -> Any:
        numba, linking, _ = _numba()
        how |= {"nogil": True, "no_cfunc_wrapper": True, "pipeline_class": linking.WholeCompiler}
        return numba.njit(*([] if kind is None else [kind]), **how)

    return lambda function: Compiled(function, make, _options(function, **options), usual)


def pointed(kind: str, **options: Any) -> Callable[[AnyFunction], Compiled]:
    """Compile a function that compiled functions call by its address, `pointer(function)`."""

    def make(**how: Any) -> Any:
        numba, linking, _ = _numba()
        return numba.cfunc(kind, pipeline_class=linking.WholeCompiler, **how)

    return lambda function: Compiled(function, make, _options(function, **options))


def helper(**options: Any) -> Any:
    """Compile a function that compiled functions call."""

    def make(function: AnyFunction) -> Any:
        numba, linking, _ = _numba()
        how = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": linking.PartCompiler}
        return linking.shared(numba.njit(**_options(function, nogil=True, **how, **options))(function))

    return lambda function: Helper(function, make)


def intrinsic(function: AnyFunction) -> Any:
    """Make an intrinsic: a function that writes LLVM's instructions, for compiled functions to call."""
    return Helper(function, lambda body: _numba()[0].extending.intrinsic(body))


def pointer(function: Compiled) -> int:
    """Return the address of a function made by `pointed`, compiling it if need be."""
    return function.ready().address


def expected() -> None:
    """Print no notice while functions compile, since the user asked for it."""
    notice = _numba()[2]
    notice.spent = notice.patience


if hasattr(os, "register_at_fork"):  # a child would wait forever for a lock held by a thread of the parent
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
