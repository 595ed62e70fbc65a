"""Arrays by name in a safetensors file, read in no more memory than the file has bytes."""

import hashlib
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .records import Arrays

UNREADABLE = OSError, TypeError, LookupError, AttributeError, MemoryError, OverflowError
SIDES = {"lower": np.tril_indices, "upper": np.triu_indices}


class DamagedError(Exception):
    """A file is no safetensors file, or not whole."""


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
    except (SafetensorError, *UNREADABLE) as error:
        raise DamagedError(" ".join(str(error).split())) from error


def packed(arrays: Arrays) -> Arrays:
    """Return the arrays, the factors L and A by their triangles where the rest is 0: L.lower or L.upper holds
    the triangle row by row. (…, m(m + 1)/2)
    """
    out = dict(arrays)
    for name, a in arrays.items():
        if name.split(".")[-1] not in ("L", "A"):
            continue
        for side, triangle in SIDES.items():
            rows, columns = triangle(a.shape[-1])
            whole = np.zeros_like(a)
            whole[..., rows, columns] = a[..., rows, columns]
            if np.array_equal(whole, a):
                out[f"{name}.{side}"] = np.ascontiguousarray(out.pop(name)[..., rows, columns])
                break
    return out


def unpacked(arrays: Arrays) -> Arrays:
    """Return the arrays that `packed` was given; raise if a triangle has a length that none has."""
    out = dict(arrays)
    for name, a in arrays.items():
        stem, _, side = name.rpartition(".")
        if side not in SIDES:
            continue
        m = (math.isqrt(8 * a.shape[-1] + 1) - 1) // 2 if a.ndim else 0
        if not a.ndim or m * (m + 1) != 2 * a.shape[-1]:
            raise DamagedError(f"the tensor {name!r} of shape {a.shape} is no triangle")
        out[stem] = np.zeros((*out.pop(name).shape[:-1], m, m), a.dtype)
        out[stem][..., *SIDES[side](m)] = a
    return out


def digest(text: str, arrays: Arrays) -> str:
    """Return the checksum of the text and the arrays of a file."""
    total = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()
