"""A second process, which compiles what the first one is about to need where there is no cache yet.

`expect` says which functions will be called. Nothing comes of it until Numba compiles something here, having
found it in no cache: then another Python compiles those functions, one after the other, into the cache that
both share, and `wait_for` one of them waits until it is there. If that fails, it is compiled here.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import TYPE_CHECKING

from .compiling import FUNCTIONS
from .workers import cores

if TYPE_CHECKING:
    import subprocess

_lock = threading.Lock()
HEARD: set[str] = set()  # all that was ever expected
_due: list[str] = []  # expected, and nobody is at it
_away: list[str] = []  # with the other process
_cold = False
_other: subprocess.Popen[str] | None = None


def expect(*names: str) -> None:
    """Hear that these functions, whose one signature is known, will be called."""
    if HEARD.issuperset(names):
        return
    with _lock:
        _due.extend(name for name in names if name not in HEARD)
        HEARD.update(names)
        if _cold:
            _start()


def missed(name: str) -> None:
    """Hear that a function was found in no cache, and is now compiled here."""
    global _cold
    with _lock:
        _cold = True
        if name in _due:
            _due.remove(name)
        _start()


def wait_for(name: str) -> None:
    """Let the other process finish this function, if it has been given it."""
    with _lock:
        if name in _due:
            _due.remove(name)
        while name in _away and _other is not None and _other.stdout is not None:
            done = _other.stdout.readline().strip()
            if done in _away:
                _away.remove(done)
            else:  # it has ended
                _away.clear()


def _start() -> None:
    """Give all that is due to another process, unless one is still at work, or there is no core for it."""
    global _other
    import subprocess

    program = os.path.basename(sys.executable or "").lower()
    if not _due or cores() < 2 or hasattr(sys, "frozen") or not program.startswith("python"):
        return
    if _other is not None and _other.poll() is None:
        return
    _end()
    modules = ", ".join(f"inducing.{name.rpartition('.')[0]}" for name in _due)
    code = f"import {modules}; from {__name__} import compile_for_another; compile_for_another()"
    words = [sys.executable, "-P", "-c", code, *_due]
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        _other = subprocess.Popen(words, env=paths, stdin=quiet, stdout=pipe, stderr=quiet, text=True)
    except OSError:  # no process to be had
        return
    _away[:], _due[:] = _due, []


def compile_for_another() -> None:
    """Compile the functions named on the command line, and name each when it is in the cache."""
    for name in sys.argv[1:]:
        FUNCTIONS[name].ready()
        print(name, flush=True)


def _forget() -> None:
    """Leave the other process to the one that started it."""
    global _other, _lock
    if _other is not None and _other.stdout is not None:
        _other.returncode = 0  # nothing to wait for
        _other.stdout.close()
    _other, _lock = None, threading.Lock()
    _away.clear()


def _end() -> None:
    """End the other process, if there still is one, and close what it writes to."""
    if _other is not None:
        _other.kill()
        _other.communicate()


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
