"""Atomic writes: a file is replaced as a whole when its successor is complete, or stays as it was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, whose file takes its place when the block ends well and vanishes
    when it does not. It is on the disk before it takes it.
    """
    part = path.with_name(f".{os.getpid()}.{path.name}")  # keeps the suffix
    try:
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
