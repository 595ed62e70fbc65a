"""Model files: safetensors, with JSON in its metadata. No pickle: a file from a stranger is safe to open.

A file holds m basis functions and the factors of the posterior, and training data only where a query needs
them: the basis of an exact GP is its inputs, and a model along neighbours has rows.X (n, d), rows.residuals
(n, p) and rows.noise (n,) or one number, in double or single precision. Its metadata are

    format          "inducing"
    format_version  "2", or "1" of files whose triangles are not packed
    model           JSON: class, library version, kernel, mean, basis, parameters, feature names, user's notes
    sha256          of `model` and of every tensor with its name and shape

and its other tensors, all float64: w (m, p); A (m, m) unless exact; basis.Z, or basis.centers and
basis.widths (m, d); L (m, m), left out where it is the factor of Kuu + jitter mean(diag Kuu) I, which is
computed when the file is read (with full=True it is remade.L); for an exact GP instead added (m,), with LLᵀ =
K + diag(added); for an estimator also x_mean, x_scale (d,); for a regressor y_mean, y_scale, noise; for a
classifier of c > 2 classes, whose first posterior is L, w, A, the others, which share L: others.w (c - 1, m),
others.A (c - 1, m, m). A triangular factor is held as its triangle, row by row: A.upper (m(m + 1)/2,),
L.lower. A model of a stream goes on from its file as if it had never stopped; during its warm-up, and only
then, the file also holds the rows read so far: warmup.X (n, d) and warmup.y (n,) or (n, p), for a classifier
numbers of classes. A density has low and span (d,) of its box instead of x_mean and x_scale.

`inducing.SAVED` names the classes that may be in a file and their modules; a class reads and writes its own
record (`records`).
"""

import json
from importlib import import_module
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np

from .. import SAVED, SAVED_LIGHT, __version__
from ..errors import InducingError, ModelFileError, ParameterError
from ..model.posterior import Posterior
from .atomic import as_path, replacing
from .records import REMADE, ROWS_PREFIX, Arrays, Plain, posterior_from, posterior_record
from .tensors import DamagedError, digest, packed, tensors, unpacked

FORMAT, VERSION, READ = "inducing", "2", ("1", "2")
PRECISIONS = {"double": np.float64, "single": np.float32}  # of training rows
NOT_A_MODEL = LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError
OF_A_HEADER = 4_000  # bytes allowed for a file's text, which holds the report and what was tried
LEAST_HEADER = 2_000  # bytes that it takes at least


def fitting_size(limit: Any) -> int:
    """Return the size of a basis, at least 1, whose file has surely fewer than `limit` bytes."""
    return max(1, isqrt(max(0, limit - OF_A_HEADER) // 32)) if isinstance(limit, int | np.integer) else 1


def bytes_of(m: int, d: int, p: int, rows: int = 0, of_a_number: int = 8, *, exact: bool = False) -> int:
    """Return how many bytes the arrays of a file take at least, for m basis functions of d inputs and p
    outputs and so many training rows; an exact process has a number for each function and no triangle.
    """
    triangle = m if exact else m * (m + 1) // 2
    return 8 * (triangle + m * (d + p)) + of_a_number * rows * (d + p)


def require_fitting(model: Any) -> None:
    """Raise if the file of a fitted model, its training rows in single precision, is larger than its
    `max_file_size`; a model that has no file is not looked at.
    """
    if model.max_file_size is not None:
        try:
            size = len(_content(model, {}, "single", False))
        except InducingError:
            return
        _require_size(model, size, "")


def _require_size(model: Any, size: int, first: str) -> None:
    """Raise if a file of this size is larger than the model's `max_file_size`; `first` is what to try."""
    limit = getattr(model, "max_file_size", None)
    if limit is not None and size > limit:
        raise ModelFileError(
            f"the file would have {size} bytes, but max_file_size is {limit}; "
            f"use {first}a smaller basis, or another approximation"
        )


def save(
    model: Any,
    path: str | Path,
    metadata: dict[str, Any] | None = None,
    precision: str = "double",
    full: bool = False,
) -> int:
    """Write a fitted estimator, a Posterior or a predictor along neighbours, whole or not at all; return the
    size of the file in bytes.

    `metadata` is any dictionary of JSON. Training rows, where the model needs them at every query, are
    written in `precision` "double" or "single". With full=True the prior's factor is written too, which
    `load` otherwise computes again: the file is twice as large, and the loaded model is the same to the bit
    on any machine.
    """
    path = as_path(path)
    content = _content(model, metadata, precision, full)
    _require_size(model, len(content), "precision='single' where it holds training rows, ")
    try:
        with replacing(path) as part:
            part.write_bytes(content)
    except OSError as error:
        raise ModelFileError(f"it cannot be written to {str(path)!r}: {error.strerror or error}") from error
    return len(content)


def _content(model: Any, metadata: dict[str, Any] | None, precision: str, full: bool) -> bytes:
    """Return the bytes of the file that `save` writes."""
    from safetensors.numpy import save as to_bytes

    name = type(model).__name__
    if name not in SAVED:
        raise ParameterError(f"a {name} cannot be saved; known are {', '.join(SAVED)}")
    plain, arrays = posterior_record(model) if isinstance(model, Posterior) else model.to_record()
    if precision not in PRECISIONS:
        raise ParameterError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
    dtypes = {key: PRECISIONS[precision] if key.startswith(ROWS_PREFIX) else np.float64 for key in arrays}
    arrays = {key: np.array(value, dtype=dtypes[key], order="C") for key, value in arrays.items()}
    arrays = packed({key: value for key, value in arrays.items() if full or not key.endswith(REMADE)})
    plain |= {"class": name, "library_version": __version__}
    plain["metadata"] = getattr(model, "metadata_", {}) if metadata is None else metadata
    if not isinstance(plain["metadata"], dict):
        raise ParameterError(f"metadata must be a dictionary, not {type(metadata).__name__}")
    try:
        text = json.dumps(plain, default=_from_numpy)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"metadata is no JSON ({error}); use strings, numbers and lists") from error
    head = {"format": FORMAT, "format_version": VERSION, "model": text, "sha256": digest(text, arrays)}
    return to_bytes(arrays, head)


def load(path: str | Path, light: bool = False, max_bytes: int | None = None) -> Any:
    """Load a saved model as an object of its class; an estimator has the `metadata_` given to `save`.

    light=True gives a model for predictions alone, with `predict` and `predict_quantiles` or `predict_proba`,
    which needs no scikit-learn and is ready in a fraction of a second. Loading takes a small multiple of the
    file's bytes, except for an exact process, whose factor of n² numbers is computed again; a factor of more
    than `max_bytes` is refused.
    """
    path = as_path(path)
    plain, arrays = read(path)
    try:
        factor = 8 * max((len(a) ** 2 for name, a in arrays.items() if name.endswith("added")), default=0)
        if max_bytes is not None and factor > max_bytes:
            raise ModelFileError(f"its factor takes {factor} bytes, beyond max_bytes={max_bytes}")
        name = plain["class"]
        if name == "Posterior":
            return posterior_from(plain, arrays)
        if name not in SAVED:
            raise ModelFileError(f"it holds a {name!r}, which this version does not know")
        if light and name != "NeighboursPredictor":
            if name not in SAVED_LIGHT:
                raise ModelFileError(f"a {name} has no light form; load it without light=True")
            return import_module(f"inducing.{SAVED_LIGHT[name]}").LIGHT[name](plain, arrays)
        return getattr(import_module(f"inducing.{SAVED[name]}"), name).from_record(plain, arrays)
    except ModelFileError as error:
        raise ModelFileError(f"{str(path)!r} cannot be used: {error}") from error
    except MemoryError as error:
        raise ModelFileError(f"{str(path)!r} needs more memory than there is: {error}") from error
    except NOT_A_MODEL as error:
        raise ModelFileError(f"{str(path)!r} does not describe a model ({error!r})") from error


def read(path: Path) -> tuple[Plain, Arrays]:
    """Read the plain data and the arrays of a file; raise if it is not whole and unaltered."""
    if not path.is_file():
        raise ModelFileError(f"there is no model file {str(path)!r}: check the name")
    try:
        head, arrays = tensors(path, check=_check_format)
    except DamagedError as error:
        raise ModelFileError(f"{str(path)!r} is no model file, or truncated or corrupt ({error})") from error
    except ModelFileError as error:
        raise ModelFileError(f"{str(path)!r} {error}") from error
    text = head.get("model", "")
    if head.get("sha256") != digest(text, arrays):
        raise ModelFileError(f"{str(path)!r} is corrupt: its checksum does not match; copy or save it again")
    try:
        arrays, plain = unpacked(arrays), json.loads(text)
    except (DamagedError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{str(path)!r} does not describe a model: {error}") from error
    if not isinstance(plain, dict):
        raise ModelFileError(f"{str(path)!r} does not describe a model: its JSON is no dictionary")
    return plain, arrays


def _check_format(head: dict[str, str]) -> None:
    """Raise if a file is not a model of this library and version."""
    if head.get("format") != FORMAT:
        raise ModelFileError("is a safetensors file of something else, not of inducing")
    version = head.get("format_version")
    if version not in READ:
        raise ModelFileError(f"has format version {version}, not {' or '.join(READ)}: update inducing")


def _from_numpy(value: Any) -> Any:
    """Return NumPy numbers and arrays as Python's, for a JSON encoder; raise for other types."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is in it")
