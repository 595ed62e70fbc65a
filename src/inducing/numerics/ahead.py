"""A second process that compiles what the first one is about to need, where no cache has it yet.

`expect` announces functions that will be called. If they surely will and the first of them is in no cache, or
once Numba has to compile something here, another Python compiles them one after the other into the cache that
both share. `wait_for` takes a function back if the other has not begun it, and else waits until it is there,
compiling the last of the others meanwhile. If the other process fails, or nothing is heard of it for
`STUCK_AFTER` seconds, all is compiled here.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from .workers import cores

if TYPE_CHECKING:
    import subprocess

STUCK_AFTER = 60.0  # seconds for one function, of which the longest takes ten; then the process is stuck
PYTHON = re.compile(r"pythonw?[0-9.]*t?(\.exe)?", re.IGNORECASE)  # other programs may run anything
HEARD: set[str] = set()  # all that was ever expected
_turn = threading.Condition()  # guards what follows
_due: list[str] = []  # expected, and not yet begun by either process
_away: list[str] = []  # given to the other process
_cold = _stuck = False  # whether something was in no cache; whether the other process was given up
_other: subprocess.Popen[bytes] | None = None
_last_word = 0.0  # the time at which the other process last wrote something


def expect(*names: str, surely: bool = False) -> None:
    """Note that these functions, of known types, may or `surely` will be called; the longest first."""
    global _cold
    if HEARD.issuperset(names):
        return
    is_cold = _cold or (surely and cores() >= 2 and not is_kept(names[0]))  # Numba's import, without the lock
    with _turn:
        _cold = _cold or is_cold
        _due.extend(name for name in names if name not in HEARD)
        HEARD.update(names)
        if _cold:
            _start()


def missed(name: str) -> None:
    """Note that a function was in no cache, and is now compiled here."""
    global _cold
    with _turn:
        _cold = True
        if name in _due:
            _due.remove(name)
        _start()


def wait_for(name: str) -> None:
    """Wait until the other process has compiled this function, if it has begun it."""
    while spare := _spare(name):
        compile_here(spare)


def _spare(name: str) -> str:
    """Wait for a function and return "", or return the name of another to compile here meanwhile."""
    global _stuck
    with _turn:
        if name in _due:
            _due.remove(name)
        while name in _away:
            if time.monotonic() > _last_word + STUCK_AFTER:
                _stuck = True
                _end()
            elif _away[1:] and _other is not None and _other.stdin is not None:
                taken = _away.pop(-1 if name == _away[0] else _away.index(name))
                with suppress(OSError):  # of one that has ended
                    _other.stdin.write(f"{taken}\n".encode())
                if taken != name:
                    return taken
            else:
                _turn.wait(0.2)  # not for longer: on Windows Ctrl-C is heard in between
    return ""


def is_kept(name: str) -> bool:
    """Return whether the cache has this function, or there is no cache."""
    from .compiling import FUNCTIONS

    return FUNCTIONS[name].is_kept


def compile_here(name: str) -> None:
    """Compile this function, or load it from the cache."""
    from .compiling import FUNCTIONS

    FUNCTIONS[name].prepare()


def _start() -> None:
    """Start another process with all that is due, unless one is still at work, or there is no core for it."""
    global _other, _last_word
    alone = cores() >= 2 and not _has_parent()  # processes that another one has started share the cores
    known = PYTHON.fullmatch(os.path.basename(sys.executable or "")) and not hasattr(sys, "frozen")
    if not (_due and alone and known) or _stuck or _other is not None:
        return
    import subprocess

    # the paths of this process come last, so that no file of the user's hides a module of Python's
    paths = [path for path in sys.path if path and isinstance(path, str)]
    modules = ", ".join(f"inducing.{name.rpartition('.')[0]}" for name in _due)
    code = f"import sys; sys.path += {paths!a}; import {modules}, {__name__} as a; a.compile_for_another()"
    flags = "-P" + "E" * sys.flags.ignore_environment + "s" * sys.flags.no_user_site
    words, quiet = [sys.executable, flags, "-c", code, *_due], subprocess.DEVNULL
    pipe = subprocess.PIPE
    try:  # no buffer, whose lock a fork could find taken
        other = subprocess.Popen(words, bufsize=0, stdin=pipe, stdout=pipe, stderr=quiet)
    except OSError:  # no process to be had
        return
    _other, _last_word = other, time.monotonic()
    _away[:], _due[:] = _due, []
    try:
        threading.Thread(target=_listen, args=(other,), name="inducing ahead", daemon=True).start()
    except RuntimeError:  # no thread to be had, or Python is about to end
        other.kill()
        _listen(other)


def _has_parent() -> bool:
    """Return whether `multiprocessing` has started this process: a pool, a Dask worker."""
    multiprocessing = sys.modules.get("multiprocessing")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def _listen(other: subprocess.Popen[bytes]) -> None:
    """Take each function off `_away` when the other process has compiled it, and all when that ends."""
    global _other, _last_word
    assert other.stdout is not None and other.stdin is not None
    with other.stdin, other.stdout as words:
        for word in words:
            with _turn:
                _last_word = time.monotonic()
                _away[:] = [name for name in _away if name != word.decode(errors="replace").strip()]
                _turn.notify_all()
    with _turn:
        _away.clear()
        _turn.notify_all()
    other.wait()
    with _turn:
        _other = None
        _turn.notify_all()


def compile_for_another() -> None:
    """Compile the functions on the command line, less those named on stdin; print each once it is cached."""
    import faulthandler

    names, taken = sys.argv[1:], set[str]()

    def hear() -> None:
        while words := os.read(0, 1 << 12):
            taken.update(words.decode().split())

    threading.Thread(target=hear, daemon=True).start()
    faulthandler.dump_traceback_later(STUCK_AFTER * (len(names) + 1), exit=True)  # whatever holds it up
    for name in names:
        if name not in taken:
            compile_here(name)
            print(name, flush=True)


def _forget() -> None:
    """In a forked child, leave the other process to the parent."""
    global _other, _turn
    if _other is not None and _other.stdin is not None and _other.stdout is not None:
        _other.returncode = 0  # nothing to wait for
        _other.stdin.close()
        _other.stdout.close()
    _other, _turn = None, threading.Condition()
    _away.clear()


def _end() -> None:
    """End the other process, if there still is one, and give it a second to be gone."""
    with _turn:
        _away.clear()
        _turn.notify_all()
        if _other is not None:
            _other.kill()
            _turn.wait_for(lambda: _other is None, 1.0)


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
