"""Model files: safetensors, with JSON in its metadata. No pickle: a file from a stranger is safe to open.

A file holds m basis functions and the factors of the posterior, never the training data (but the basis of an exact GP
is its inputs, so those are there). Its metadata are

    format          "inducing"
    format_version  "1"
    model           JSON: class, library version, kernel, mean, basis, parameters, feature names, the user's own notes
    sha256          of `model` and of every tensor with its name and shape

and its tensors, all float64: L (m, m), w (m, p), A (m, m) unless exact, basis.Z or basis.centers and basis.widths
(m, d); for an estimator also x_mean, x_scale (d,), y_mean, y_scale, noise.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__, kernels, means
from .backend import to_numpy
from .bases import Multiscale, Points
from .errors import InducingError, ModelFileError, ParameterError
from .fitting import LogNormal
from .kernels.base import Kernel
from .means import Mean
from .posterior import Posterior
from .tables import replacing

FORMAT, VERSION = "inducing", 1
_BASES: dict[str, type[Points] | type[Multiscale]] = {"Points": Points, "Multiscale": Multiscale}
_PLAIN = ("approximation", "n_inducing", "basis", "optimize", "power", "n_blocks", "restarts", "max_iter", "jitter",
          "standardize", "random_state")  # fmt: skip
_SCALING = ("x_mean", "x_scale", "y_mean", "y_scale")

Tensors = dict[str, np.ndarray]


def save(model: Any, path: str | Path, metadata: dict[str, Any] | None = None) -> None:
    """Write a fitted estimator or a Posterior: the whole file or, when anything fails, none. `metadata` is your own."""
    from safetensors.numpy import save as to_bytes

    path = Path(path)
    posterior = model if isinstance(model, Posterior) else _posterior_of(model)
    tensors, record = _posterior_parts(posterior)
    record |= {"class": type(model).__name__, "library_version": __version__}
    record["metadata"] = getattr(model, "metadata_", {}) if metadata is None else metadata
    if not isinstance(record["metadata"], dict):
        raise ParameterError(f"metadata must be a dictionary, not {type(metadata).__name__}")
    if not isinstance(model, Posterior):
        _add_estimator(model, tensors, record)
    try:
        text = json.dumps(record, default=_plain)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"metadata cannot be written as JSON ({error}); use strings, numbers and lists") from error
    head = {"format": FORMAT, "format_version": str(VERSION), "model": text, "sha256": _digest(text, tensors)}
    try:
        with replacing(path) as part, open(part, "wb") as file:
            file.write(to_bytes(tensors, head))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ModelFileError(f"the model cannot be written to {str(path)!r}: {error.strerror or error}") from error


def load(path: str | Path) -> Any:
    """The estimator or Posterior that was saved, of the class that was saved. An estimator has `metadata_` as given."""
    path = Path(path)
    record, tensors = _read(path)
    try:
        posterior = _posterior(record, tensors)
        model = posterior if record["class"] == "Posterior" else _estimator(record, tensors, posterior)
    except ModelFileError as error:
        raise ModelFileError(f"{str(path)!r} cannot be used: {error}") from error
    except (InducingError, KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise ModelFileError(f"{str(path)!r} does not describe a model ({type(error).__name__}: {error})") from error
    return model


def _read(path: Path) -> tuple[dict[str, Any], Tensors]:
    """The two parts of a file, whole and unaltered."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ModelFileError(f"there is no model file {str(path)!r}: check the name")
    try:
        with safe_open(path, framework="numpy") as file:
            head = file.metadata() or {}
            if head.get("format") != FORMAT:
                raise ModelFileError(f"{str(path)!r} is a safetensors file of something else, not of inducing")
            version = head.get("format_version")
            if version != str(VERSION):
                raise ModelFileError(
                    f"{str(path)!r} has format version {version}, but this library reads {VERSION}: update inducing"
                )
            tensors = {name: np.array(file.get_tensor(name)) for name in file.keys()}
    except (SafetensorError, OSError, TypeError, KeyError, MemoryError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(f"{str(path)!r} is no model file, or is truncated or corrupt ({reason})") from error
    text = head.get("model", "")
    if head.get("sha256") != _digest(text, tensors):
        raise ModelFileError(f"{str(path)!r} is corrupt: its contents do not match its checksum; copy or save it again")
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{str(path)!r} does not describe a model: its JSON cannot be read") from error
    if not isinstance(record, dict):
        raise ModelFileError(f"{str(path)!r} does not describe a model: its JSON is no dictionary")
    return record, tensors


def _digest(text: str, tensors: Tensors) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """NumPy numbers and arrays as JSON's; a JSON encoder asks about nothing else but what it cannot write."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is in it")


# The posterior.


def _posterior_of(model: Any) -> Posterior:
    if not hasattr(model, "posterior_"):
        raise ParameterError(f"this {type(model).__name__} is not fitted; call fit before save")
    if not isinstance(model.posterior_, Posterior):
        raise ModelFileError(
            f"a model with approximation={model.approximation!r} needs its training data at every query, and a file "
            "never holds those; fit 'pitc' or 'fitc' to save"
        )
    return model.posterior_


def _posterior_parts(post: Posterior) -> tuple[Tensors, dict[str, Any]]:
    tensors = {"L": post.L, "w": post.w} | {f"basis.{name}": value for name, value in post.basis.parameters.items()}
    if post.A is not None:
        tensors["A"] = post.A
    record = {
        "kernel": post.kernel.spec(), "mean": post.mean_function.spec(), "basis": type(post.basis).__name__,
        "conditional": post.conditional, "log_evidence": post.log_evidence, "jitter": post.jitter,
        "one_output": post.one_output,
    }  # fmt: skip
    return {name: np.ascontiguousarray(to_numpy(value), dtype=np.float64) for name, value in tensors.items()}, record


def _posterior(record: dict[str, Any], tensors: Tensors) -> Posterior:
    if record["basis"] not in _BASES:
        raise ModelFileError(f"it has a basis of unknown kind {record['basis']!r}")
    kind = _BASES[record["basis"]]
    names = ["Z"] if kind is Points else ["centers", "widths"]
    basis = kind(*(_tensor(tensors, f"basis.{name}", 2) for name in names))
    m = len(basis)
    w = _tensor(tensors, "w", 2)
    _expect(w.shape[0] == m and w.shape[1] >= 1, "w", w)
    factors = {"L": _tensor(tensors, "L", 2)} | ({"A": _tensor(tensors, "A", 2)} if "A" in tensors else {})
    for name, factor in factors.items():
        _expect(factor.shape == (m, m), name, factor)
    if record["conditional"] not in ("exact", "deterministic", "independent"):
        raise ModelFileError(f"it has an unknown test conditional {record['conditional']!r}")
    one_output = bool(record["one_output"])
    _expect(not one_output or w.shape[1] == 1, "w", w)
    evidence = record["log_evidence"]
    post = Posterior(
        kernel=kernels.from_spec(record["kernel"]), basis=basis, L=factors["L"], w=w, A=factors.get("A"),
        mean_function=means.from_spec(record["mean"]), conditional=record["conditional"],
        log_evidence=None if evidence is None else float(evidence), jitter=float(record["jitter"]),
        one_output=one_output,
    )  # fmt: skip
    if m:  # kernel, mean, basis and factors must fit together: ask for one prediction
        basis.check(post.kernel)
        mean, variance = post.predict(next(iter(basis.parameters.values()))[:1])
        if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(variance))):
            raise ModelFileError("its predictions are not finite")
    return post


def _tensor(tensors: Tensors, name: str, ndim: int | None = None) -> np.ndarray:
    if name not in tensors:
        raise ModelFileError(f"the tensor {name!r} is missing")
    array = tensors[name]
    if array.dtype != np.float64 or (ndim is not None and array.ndim != ndim):
        raise ModelFileError(f"the tensor {name!r} has the wrong type {array.dtype} or shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise ModelFileError(f"the tensor {name!r} holds NaN or infinity")
    return array


def _expect(right: bool, name: str, array: np.ndarray) -> None:
    if not right:
        raise ModelFileError(f"the tensor {name!r} of shape {array.shape} does not fit the others")


# The estimator around it.


def _add_estimator(model: Any, tensors: Tensors, record: dict[str, Any]) -> None:
    arrays = {name: getattr(model, f"{name}_") for name in _SCALING}
    if model.noise_ is not None:
        arrays["noise"] = model.noise_
    parameters = {name: getattr(model, name) for name in _PLAIN}
    parameters["random_state"] = model.random_state if isinstance(model.random_state, int) else None
    parameters["noise"] = None if np.ndim(model.noise) > 0 else model.noise  # one per row would be training data
    parameters["fixed"] = list(model.fixed)
    parameters["priors"] = {name: [prior.median, prior.sigma] for name, prior in (model.priors or {}).items()} or None
    parameters["kernel"] = model.kernel.spec() if isinstance(model.kernel, Kernel) else model.kernel
    parameters["mean"] = model.mean.spec() if isinstance(model.mean, Mean) else None
    if isinstance(model.inducing, str):
        parameters["inducing"] = model.inducing
    else:
        arrays["inducing"] = model.inducing
    tensors |= {name: np.array(value, dtype=np.float64, order="C") for name, value in arrays.items()}
    names = getattr(model, "feature_names_in_", None)
    record |= {
        "parameters": parameters, "n_iterations": int(model.n_iter_), "log_evidence_of_y": model.log_evidence_,
        "feature_names": None if names is None else [str(name) for name in names],
    }  # fmt: skip


def _estimator(record: dict[str, Any], tensors: Tensors, posterior: Posterior) -> Any:
    from .estimators import SparseGPRegressor

    classes = {"SparseGPRegressor": SparseGPRegressor}
    if record["class"] not in classes:
        raise ModelFileError(f"it holds a {record['class']!r}, which this version does not know")
    saved = record["parameters"]
    parameters = {name: saved[name] for name in (*_PLAIN, "noise")}
    parameters["fixed"] = tuple(saved["fixed"])
    priors = saved["priors"]
    parameters["priors"] = {name: LogNormal(*values) for name, values in priors.items()} if priors else None
    parameters["kernel"] = kernels.from_spec(saved["kernel"]) if isinstance(saved["kernel"], dict) else saved["kernel"]
    parameters["mean"] = None if saved["mean"] is None else means.from_spec(saved["mean"])
    parameters["inducing"] = saved["inducing"] if "inducing" in saved else _tensor(tensors, "inducing", 2)
    model = classes[record["class"]](**parameters)

    d, p = next(iter(posterior.basis.parameters.values())).shape[1], posterior.w.shape[1]
    for name in _SCALING:
        array = _tensor(tensors, name)
        _expect(array.shape == ((d,) if name[0] == "x" else () if posterior.one_output else (p,)), name, array)
        _expect(name.endswith("mean") or bool(np.all(array > 0)), name, array)
        setattr(model, f"{name}_", float(array) if array.ndim == 0 else array)
    model.noise_ = None
    if "noise" in tensors:
        noise = _tensor(tensors, "noise")
        _expect(noise.shape == np.shape(model.y_scale_) and bool(np.all(noise > 0)), "noise", noise)
        model.noise_ = float(noise) if noise.ndim == 0 else noise
    names = record["feature_names"]
    if names is not None:
        if len(names) != d or not all(isinstance(name, str) for name in names):
            raise ModelFileError(f"it names {len(names)} features for {d} inputs")
        model.feature_names_in_ = np.array(names, dtype=object)
    model.posterior_, model.kernel_, model.basis_size_ = posterior, posterior.kernel, len(posterior)
    model.n_features_in_, model.n_iter_ = d, int(record["n_iterations"])
    model.log_evidence_ = float(record["log_evidence_of_y"])
    if not isinstance(record["metadata"], dict):
        raise ModelFileError("its metadata are no dictionary")
    model.metadata_ = record["metadata"]
    return model
