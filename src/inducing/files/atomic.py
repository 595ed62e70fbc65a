"""Atomic writes: a file is replaced as a whole when its successor is complete, or stays as it was."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path

from ..errors import ParameterError

PART = ".inducing-part-"  # how the names of temporary files begin, hidden beside what they replace


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, whose file takes its place when the block ends well and vanishes
    when it does not. It is on the disk before it takes it, with the permissions of what it replaces.

    While it is written it is locked. What a killed process left is not, and is removed by the next.
    """
    path = Path(os.path.realpath(path))
    for left in path.parent.glob(f"{PART}*"):
        _remove_unlocked(left)
    part, lock = _created(path)
    try:
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)
        os.close(lock)


def require_apart(out: str | Path, *read: str | Path | None) -> None:
    """Raise if a file to be written is one that is read, whatever links lead to it; a folder or a pattern
    stands for its files.
    """
    target = os.path.realpath(out)
    for name in (str(name) for name in read if name is not None):
        same = os.path.exists(out) and any(
            os.path.samefile(out, file) for file in {name, *glob(name)} if os.path.exists(file)
        )
        inside = (
            os.path.isdir(name) and os.path.exists(out) and target.startswith(os.path.realpath(name) + os.sep)
        )
        if same or inside or target == os.path.realpath(name):
            raise ParameterError(
                f"{str(out)!r} would be written over {name!r}, which is read: name another file"
            )


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _created(path: Path) -> tuple[Path, int]:
    """A new locked file with a name nobody can guess, and its descriptor."""
    try:
        mode = os.stat(path).st_mode & 0o777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    while True:
        part = path.with_name(f"{PART}{secrets.token_hex(8)}{path.suffix}")
        lock = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(lock, mode)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:  # nobody took it for a leftover before it was locked
                return part, lock
        except OSError:
            part.unlink(missing_ok=True)
            os.close(lock)
            raise
        os.close(lock)


def _remove_unlocked(part: Path) -> None:
    """Remove a temporary file that no process holds."""
    with suppress(OSError):
        descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()
        finally:
            os.close(descriptor)
