"""Array namespaces (NumPy, PyTorch, CuPy): which one an array belongs to, and moving values between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ParameterError

Array = Any  # an array of any supported namespace; shapes are in the comments where arrays are born

SMALL = 1 << 15  # kernel entries below which waking threads costs more than they save
COMPILED = 1 << 13  # entries from which a compiled loop is used; NumPy loses 0.1 ms at most below it


def worth_compiling(entries: int) -> bool:
    """Whether a compiled loop is used on this many entries: by their number alone, so that results do not
    depend on what the process ran before.
    """
    return entries >= COMPILED


def namespace(*arrays: Array) -> Any:
    """The array namespace of `arrays`: NumPy itself for NumPy arrays, array-api-compat's otherwise."""
    if all(isinstance(a, np.ndarray | np.generic | float | int) for a in arrays):
        return np
    import array_api_compat

    return array_api_compat.array_namespace(
        *(a for a in arrays if not isinstance(a, np.generic | float | int))
    )


def is_numpy(a: Array) -> bool:
    return isinstance(a, np.ndarray)


def is_foreign(a: Any) -> bool:
    """Whether `a` is a PyTorch or CuPy array, which stays what it is; all else becomes a NumPy array."""
    return type(a).__module__.partition(".")[0] in ("torch", "cupy")


def is_torch(a: Any) -> bool:
    return type(a).__module__.startswith("torch")


def asarray_like(value: Any, like: Array) -> Array:
    """`value` as an array with the namespace, dtype and device of `like`."""
    if is_numpy(like):
        return np.asarray(value, dtype=like.dtype)
    if type(value) is type(like) and value.dtype == like.dtype:
        return value
    import array_api_compat

    xp = namespace(like)
    return xp.asarray(to_numpy(value), dtype=like.dtype, device=array_api_compat.device(like))


def zeros_like_rows(shape: tuple[int, ...], like: Array) -> Array:
    """Zeros of `shape` with the namespace, dtype and device of `like`."""
    if is_numpy(like):
        return np.zeros(shape, dtype=like.dtype)
    import array_api_compat

    return namespace(like).zeros(shape, dtype=like.dtype, device=array_api_compat.device(like))


def to_numpy(a: Any) -> np.ndarray:
    """A NumPy copy or view of an array from any namespace."""
    if hasattr(a, "detach"):  # torch
        return a.detach().cpu().numpy()
    if hasattr(a, "get") and hasattr(a, "device"):  # cupy
        return a.get()
    return np.asarray(a)


def placed(a: np.ndarray, device: str | None) -> Array:
    """`a`, or a PyTorch copy on the device, in double precision."""
    if device is None:
        return a
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ParameterError(f"device={device!r} needs PyTorch: pip install 'inducing[gpu]'") from error
    try:
        return torch.as_tensor(a, dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ParameterError(f"device={device!r} cannot be used ({reason}); use device=None") from error
