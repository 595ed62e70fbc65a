"""Array namespaces (NumPy, PyTorch, CuPy): the one of an array, moving values, asking devices seldom."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .. import package
from ..errors import ColumnError, InducingError, NonFiniteError, ParameterError, ShapeError

Array = Any  # an array of any supported namespace; shapes are in the comments where arrays are born
Given = Any  # what a user gives where numbers are meant, before it is checked
Seed = np.random.Generator | int | None  # of random numbers
Computed = TypeVar("Computed")

SMALL = 1 << 15  # kernel entries below which waking threads costs more than they save
LARGEST_FLOAT = float(np.finfo(np.float64).max)
LARGEST_TARGET = 1e152  # in its own units, so that the variance of targets is finite
FILLED = 1e30  # size of a number that may stand for one that is missing, as 9.97e36 does in netCDF files
FAR_OFF = 1e15  # times the usual size: no measured number is as large
LARGEST_NUMBER = 1e70  # of data and parameters, 1e-70 the least: squares of ratios have finite sums
TOLD_APART = 1e-6 * 2.0**53  # size over range of whole numbers that lose a millionth of the range as floats
COMPILED = 1 << 13  # entries from which a compiled loop is used; NumPy loses 0.1 ms at most below it


def worth_compiling(entries: int) -> bool:
    """Return whether to use a compiled loop on this many entries: by number alone, so that results repeat."""
    return entries >= COMPILED


_known: dict[type, Any] = {np.ndarray: np}  # namespaces by type of array, since asking takes microseconds


def namespace(*arrays: Array) -> Any:
    """Return the array namespace of `arrays`: NumPy itself for NumPy arrays, array-api-compat's otherwise."""
    if len(arrays) == 1 and type(arrays[0]) in _known:
        return _known[type(arrays[0])]
    if all(isinstance(a, np.ndarray | np.generic | float | int) for a in arrays):
        return np
    import array_api_compat

    xp = array_api_compat.array_namespace(*(a for a in arrays if not isinstance(a, np.generic | float | int)))
    if len(arrays) == 1:
        _known[type(arrays[0])] = xp
    return xp


def is_numpy(a: Array) -> bool:
    return isinstance(a, np.ndarray)


def is_foreign(a: Any) -> bool:
    """Return whether `a` is a PyTorch or CuPy array, which is kept; all else becomes a NumPy array."""
    return type(a).__module__.partition(".")[0] in ("torch", "cupy")


def is_torch(a: Any) -> bool:
    return type(a).__module__.startswith("torch")


def require_numbers(a: Any, name: str, *, text: bool = False) -> None:
    """Raise if `a` holds what NumPy would turn into floats: masked entries, dates, complex numbers, text."""
    whole = type(a) is np.ndarray and a.dtype.kind in "iu" and a.size > 0 and not text
    if whole and max(-int(a.min()), int(a.max())) > 2**53:
        low, high = 1.0 * a.min(axis=0), 1.0 * a.max(axis=0)
        near = (high - low) * TOLD_APART < np.maximum(np.abs(low), np.abs(high))
        if np.any(near & (a.min(axis=0) < a.max(axis=0))):
            raise ShapeError(f"{name} holds whole numbers that floats do not tell apart; subtract the least")
    number = isinstance(a, float | int) and not LARGEST_FLOAT < abs(a) < np.inf
    if number or (type(a) is np.ndarray and a.dtype.kind in "fiub"):
        return
    rows = a if isinstance(a, list | tuple) else [a]
    if any(isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row) for row in rows):
        raise ShapeError(f"{name} has masked entries; fill them in, or leave those rows out")
    if not hasattr(a, "dtype") and not hasattr(a, "dtypes"):
        try:
            a = np.asarray(a)
        except ValueError:
            return  # rows of several lengths; the conversion to floats says so
    kinds = [a.dtype] if hasattr(a, "dtype") else list(a.dtypes)
    names = {getattr(kind, "kind", "c" if getattr(kind, "is_complex", False) else "f") for kind in kinds}
    if "O" in names and not text:
        values = np.asarray(a, dtype=object)
        names |= {"U" for value in values.flat if isinstance(value, str)}
        if any(type(value) is int and abs(value) > LARGEST_FLOAT for value in values.flat):
            raise NonFiniteError(f"{name} holds a whole number beyond {LARGEST_FLOAT:.2g}; use other units")
    for kind, what in {"c": "complex numbers", "M": "dates", "m": "times", "U": "text", "S": "text"}.items():
        if kind in names and not (text and what == "text"):
            known = "Complex data not supported: " if kind == "c" else ""  # which scikit-learn looks for
            frame = " or to a data frame" if name == "X" and kind != "c" else ""
            message = f"{known}{name} must hold numbers, but holds {what}; convert it to numbers{frame}"
            raise ColumnError(message) if what == "text" else ShapeError(message)


def as_floats(a: Given, name: str, what: str = "must hold numbers") -> np.ndarray:
    """Return `a` as a NumPy array of floats in C order; raise if it holds anything but numbers."""
    require_numbers(a, name)
    try:
        return np.asarray(a, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise ShapeError(f"{name} {what}: {error}") from error


def require_finite(a: Array, name: str, most: float = LARGEST_NUMBER) -> None:
    """Raise if an array holds NaN, infinity or a number beyond `most`."""
    if 0 in a.shape or -most <= float(a.min()) <= float(a.max()) <= most:
        return
    values = to_numpy(a)
    wrong = np.argwhere(~(np.abs(values) <= most))[0]
    value, row = values[tuple(wrong)], int(wrong[0]) if len(wrong) else 0
    if np.isfinite(value):
        raise NonFiniteError(f"{name} holds {value:g} in row {row}, beyond {most:g}; remove it or rescale")
    use = "; an estimator takes gaps by missing='use'" if name == "X" and np.isnan(value) else ""
    raise NonFiniteError(f"{name} holds NaN or infinity, first in row {row}; remove or fill such rows{use}")


def refuse_fill_values(a: Array, name: str, most: float = LARGEST_NUMBER) -> None:
    """Raise if `a` has fill values of missing numbers: beyond `FILLED`, and far beyond the usual size."""
    if 0 in a.shape or -FILLED <= float(a.min()) <= float(a.max()) <= FILLED:
        return
    size = np.abs(to_numpy(a))
    usual = float(np.median(size))
    require_finite(a, name, max(FILLED, FAR_OFF * min(usual, most / FAR_OFF)))


def asarray_like(value: Any, like: Array) -> Array:
    """Return `value` as an array with the namespace, dtype and device of `like`."""
    if is_numpy(like):
        return np.asarray(to_numpy(value), dtype=like.dtype)
    if type(value) is type(like) and value.dtype == like.dtype:
        return value
    xp, values = namespace(like), to_numpy(value)
    if is_torch(like):  # a copy that waits for the device's queued work would leave it idle afterwards
        return xp.asarray(values, dtype=like.dtype).to(like.device, non_blocking=True)
    return xp.asarray(values, dtype=like.dtype, device=like.device)


def plain(a: Array | None) -> np.ndarray:
    """Return an array as compiled loops take it: NumPy's, in C order and double precision."""
    return np.ascontiguousarray(a, dtype=np.float64)


def indices_like(numbers: Array, like: Array) -> Array:
    """Return row numbers with the namespace and device of `like`, so that indexing need not move them."""
    if is_numpy(like) or type(numbers) is type(like):
        return numbers
    return namespace(like).asarray(numbers, device=like.device)


def as_columns(a: Array) -> Array:
    """Return an array (n,) as one column, (n, p) as it is."""
    return a if a.ndim == 2 else a[:, None]


def some_rows(n: int, most: int, rng: Seed) -> np.ndarray:
    """Return the numbers of at most `most` of n rows, drawn without replacement, in ascending order."""
    return np.sort(np.random.default_rng(rng).permutation(n)[:most])


def zeros_like_rows(shape: tuple[int, ...], like: Array) -> Array:
    """Return zeros of `shape` with the namespace, dtype and device of `like`."""
    return namespace(like).zeros(shape, dtype=like.dtype, device=like.device)


def device_room(like: Array) -> int:
    """Return the free bytes of the device that holds an array; 0 where they are not known."""
    if is_torch(like) and like.is_cuda:
        import torch

        held = torch.cuda.memory_reserved(like.device) - torch.cuda.memory_allocated(like.device)
        return torch.cuda.mem_get_info(like.device)[0] + held
    return 0 if is_torch(like) else like.device.mem_info[0]


def to_numpy(a: Any) -> np.ndarray:
    """Return a NumPy copy or view of an array from any namespace."""
    if hasattr(a, "detach"):  # torch
        return a.detach().cpu().numpy()
    if hasattr(a, "get") and hasattr(a, "device"):  # cupy
        return a.get()
    if isinstance(a, np.ma.MaskedArray):
        require_numbers(a, "an array")
    return np.asarray(a)


def placed(a: np.ndarray, device: str | None) -> Array:
    """Return `a`, or a PyTorch copy in double precision if a device is named."""
    if device is None:
        return a
    torch = package("torch")
    try:
        return torch.as_tensor(a, dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ParameterError(f"device={device!r} cannot be used ({reason}); use device=None") from error


class _Claims(threading.local):
    """Conditions that the calling thread assumed to hold inside `asked_once`, and the results of `once`."""

    open: list[Array] | None = None
    results: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]] = {}


_claims = _Claims()


def holds(claim: Array) -> bool:
    """Return whether a claim about numbers is true; inside `asked_once` one on a device is first assumed."""
    if is_foreign(claim) and _claims.open is not None:
        _claims.open.append(claim)
        return True
    return bool(claim)


def once(compute: Callable[..., Computed], *given: Any) -> Computed:
    """Return `compute`(*given) of objects that do not change; inside `asked_once` compute it only once."""
    if _claims.open is None:
        return compute(*given)
    key = compute, *map(id, given)
    if key not in _claims.results:
        _claims.results[key] = given, compute(*given)  # holds the objects, so that no others get their ids
    return _claims.results[key][1]


def asked_once(compute: Callable[[], Computed], like: Array) -> Computed:
    """Return the result of `compute`, in which `holds` assumes claims on a device that are checked together
    afterwards; if one is wrong, compute again and check each in its place.
    """
    if is_numpy(like) or _claims.open is not None:
        return compute()
    claims: list[Array] = []
    _claims.open, _claims.results = claims, {}
    try:
        result = compute()
        if not claims or all(to_numpy(namespace(like).stack(claims))):
            return result
    except InducingError:
        pass  # it may follow from a wrong claim
    finally:
        _claims.open, _claims.results = None, {}
    return compute()
