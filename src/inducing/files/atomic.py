"""Atomic writes: a file is replaced as a whole when its successor is complete, or stays as it was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well and vanishes when it does
    not.
    """
    part = path.with_name(f".{os.getpid()}.{path.name}")  # keeps the suffix
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
