"""Arrays by name in a file of safetensors, whose header must fit the file: opening takes no more memory than
the file has bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .records import Arrays


class DamagedError(Exception):
    """An error that a file is none of safetensors, or not whole."""


def tensors(
    path: Path, check: Callable[[dict[str, str]], None] | None = None
) -> tuple[dict[str, str], Arrays]:
    """Read the metadata and the arrays of a file; `check` may refuse the metadata before arrays are read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            head = file.metadata() or {}
            if check is not None:
                check(head)
            return head, {name: np.array(file.get_tensor(name)) for name in file.keys()}
    except (
        SafetensorError,
        OSError,
        TypeError,
        LookupError,
        AttributeError,
        MemoryError,
        OverflowError,
    ) as error:
        raise DamagedError(" ".join(str(error).split())) from error


def digest(text: str, arrays: Arrays) -> str:
    """The checksum of both parts of a file."""
    total = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()
