"""Atomic writes: a file is replaced as a whole when its successor is complete, or stays as it was."""

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from typing import Any

from ..errors import ParameterError

PART = ".inducing-part-"  # how the names of temporary files begin, hidden beside what they replace


def as_path(path: Any, name: str = "path") -> Path:
    """Return the path of a file; raise if the parameter of this name is neither text nor a path."""
    if not isinstance(path, str | os.PathLike):
        raise ParameterError(f"{name} must be the name of a file, as text or a Path, not {path!r}")
    return Path(path)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; if the block ends well its file, synced to the disk and with the
    owner and permissions of the old one, replaces `path`; else it is removed.

    The temporary file is locked. One without a lock, left by a killed process, is removed by the next call.
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
    """Raise if the file to be written is one of those read, also through links; folders and patterns stand
    for their files.
    """
    target, there = os.path.realpath(out), os.path.exists(out)
    for name in (str(name) for name in read if name is not None):
        files = [file for file in {name, *glob(name)} if os.path.exists(file)]
        same = there and any(os.path.samefile(out, file) for file in files)
        inside = there and os.path.isdir(name) and target.startswith(os.path.realpath(name) + os.sep)
        if same or inside or target == os.path.realpath(name):
            raise ParameterError(f"{str(out)!r} would be written over {name!r}, which is read: name another")


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _created(path: Path) -> tuple[Path, int]:
    """Create a locked file with a name nobody can guess; return its path and descriptor. Raise if it would
    replace a folder, a pipe or a device.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
    old = os.stat(path) if path.exists() else None
    while True:
        part = path.with_name(f"{PART}{secrets.token_hex(8)}{path.suffix}")
        mode = 0o666 if old is None else 0o600  # new files follow the umask, which is global to the process
        lock = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            if old is not None:
                _give(lock, old)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:  # no other process removed it as a leftover before the lock
                return part, lock
        except OSError:
            part.unlink(missing_ok=True)
            os.close(lock)
            raise
        os.close(lock)


def _give(descriptor: int, old: os.stat_result) -> None:
    """Give a file the owner, the group and the permissions of another, as far as this user may; if the group
    cannot be set, no group gets permissions.
    """
    mode, new = old.st_mode & 0o777, os.fstat(descriptor)
    if new.st_uid != old.st_uid:
        with suppress(OSError):
            os.fchown(descriptor, old.st_uid, -1)
    if new.st_gid != old.st_gid:
        try:
            os.fchown(descriptor, -1, old.st_gid)
        except OSError:
            mode &= 0o707
    os.fchmod(descriptor, mode)


def _remove_unlocked(part: Path) -> None:
    """Remove a temporary file that no process holds."""
    with suppress(OSError):
        descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()
        finally:
            os.close(descriptor)
