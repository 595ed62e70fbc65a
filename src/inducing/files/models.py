"""Model files: safetensors, with JSON in its metadata. No pickle: a file from a stranger is safe to open.

A file holds m basis functions and the factors of the posterior, never the training data (but the basis of an
exact GP is its inputs, so those are there). Its metadata are

    format          "inducing"
    format_version  "1"
    model           JSON: class, library version, kernel, mean, basis, parameters, feature names, the user's own notes
    sha256          of `model` and of every tensor with its name and shape

and its tensors, all float64: L (m, m), w (m, p), A (m, m) unless exact, basis.Z or basis.centers and
basis.widths (m, d); for an estimator also x_mean, x_scale (d,); for a regressor y_mean, y_scale, noise; for a
classifier of c > 2 classes, whose first posterior is L, w, A, those of the others, which share L: others.w (c
- 1, m), others.A (c - 1, m, m). A model that learns from a stream goes on from its file as if it had never
stopped; while its warm-up lasts, and only then, the rows read so far are there, too: warmup.X (n, d) and
warmup.y (n,) or (n, p), for a classifier numbers of classes. A density has the box it lives in, low and span
(d,), instead of x_mean and x_scale.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..errors import InducingError, ModelFileError, ParameterError
from ..learning.fitting import LogNormal
from ..model import kernels, means
from ..model.bases import Multiscale, Points
from ..model.kernels.base import Kernel
from ..model.likelihoods import Binary, Likelihood, from_spec
from ..model.means import Mean
from ..model.posterior import Posterior
from ..numerics.arrays import to_numpy
from .atomic import replacing

FORMAT, VERSION = "inducing", 1
_BASES: dict[str, type[Points] | type[Multiscale]] = {"Points": Points, "Multiscale": Multiscale}
_EITHER = ("optimize", "restarts", "max_iter", "jitter", "standardize")  # parameters that are plain JSON
_STREAM = ("capacity", "learning_rows", "tolerance", "removal_score", "order", "warmup")
_PLAIN = {
    "SparseGPRegressor": (
        *_EITHER,
        "approximation",
        "n_inducing",
        "basis",
        "power",
        "n_blocks",
        "recipe",
        "validation_fraction",
        "projection",
        "full_iter",
    ),
    "OnlineGPRegressor": (*_EITHER, *_STREAM),
    "SparseGPClassifier": (*_EITHER, *_STREAM, "method", "ard", "sweeps", "damping"),
    "GPDensity": ("kernel", "order", "lengthscale", "padding", "max_functions", "max_iter", "tol", "damping"),
}
_OF_X, _OF_Y = ("x_mean", "x_scale"), ("y_mean", "y_scale")
_SCALING = {
    "SparseGPRegressor": _OF_X + _OF_Y,
    "OnlineGPRegressor": _OF_X + _OF_Y,
    "SparseGPClassifier": _OF_X,
    "GPDensity": ("low", "span"),
}

Tensors = dict[str, np.ndarray]


def save(model: Any, path: str | Path, metadata: dict[str, Any] | None = None) -> None:
    """Write a fitted estimator or a Posterior: the whole file or, when anything fails, none. `metadata` is
    your own.
    """
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
        raise ParameterError(
            f"metadata cannot be written as JSON ({error}); use strings, numbers and lists"
        ) from error
    head = {"format": FORMAT, "format_version": str(VERSION), "model": text, "sha256": _digest(text, tensors)}
    try:
        with replacing(path) as part, open(part, "wb") as file:
            file.write(to_bytes(tensors, head))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ModelFileError(
            f"the model cannot be written to {str(path)!r}: {error.strerror or error}"
        ) from error


def load(path: str | Path) -> Any:
    """The estimator or Posterior that was saved, of the class that was saved. An estimator has `metadata_` as
    given.
    """
    path = Path(path)
    record, tensors = _read(path)
    try:
        posterior = _posterior(record, tensors)
        model = posterior if record["class"] == "Posterior" else _estimator(record, tensors, posterior)
    except ModelFileError as error:
        raise ModelFileError(f"{str(path)!r} cannot be used: {error}") from error
    except (
        InducingError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        RecursionError,
    ) as error:
        raise ModelFileError(
            f"{str(path)!r} does not describe a model ({type(error).__name__}: {error})"
        ) from error
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
                raise ModelFileError(
                    f"{str(path)!r} is a safetensors file of something else, not of inducing"
                )
            version = head.get("format_version")
            if version != str(VERSION):
                raise ModelFileError(
                    f"{str(path)!r} has format version {version}, but this library reads {VERSION}: update "
                    "inducing"
                )
            tensors = {name: np.array(file.get_tensor(name)) for name in file.keys()}
    except (SafetensorError, OSError, TypeError, KeyError, MemoryError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(
            f"{str(path)!r} is no model file, or is truncated or corrupt ({reason})"
        ) from error
    text = head.get("model", "")
    if head.get("sha256") != _digest(text, tensors):
        raise ModelFileError(
            f"{str(path)!r} is corrupt: its contents do not match its checksum; copy or save it again"
        )
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
    if hasattr(model, "posteriors_"):
        return model.posteriors_[0]
    if not hasattr(model, "posterior_"):
        raise ParameterError(f"this {type(model).__name__} is not fitted; call fit before save")
    if not isinstance(model.posterior_, Posterior):
        raise ModelFileError(
            f"a model with approximation={model.approximation!r} needs its training data at every query, "
            "and a file "
            "never holds those; fit 'pitc' or 'fitc' to save"
        )
    return model.posterior_


def _posterior_parts(post: Posterior) -> tuple[Tensors, dict[str, Any]]:
    tensors = {"L": post.L, "w": post.w} | {
        f"basis.{name}": value for name, value in post.basis.parameters.items()
    }
    if post.A is not None:
        tensors["A"] = post.A
    record = {
        "kernel": post.kernel.spec(),
        "mean": post.mean_function.spec(),
        "basis": type(post.basis).__name__,
        "conditional": post.conditional,
        "log_evidence": post.log_evidence,
        "jitter": post.jitter,
        "one_output": post.one_output,
        "log_predictive": post.log_predictive,
    }
    return {
        name: np.ascontiguousarray(to_numpy(value), dtype=np.float64) for name, value in tensors.items()
    }, record


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
    post = Posterior(
        kernel=kernels.from_spec(record["kernel"]),
        basis=basis,
        L=factors["L"],
        w=w,
        A=factors.get("A"),
        mean_function=means.from_spec(record["mean"]),
        conditional=record["conditional"],
        log_evidence=_number(record["log_evidence"]),
        jitter=float(record["jitter"]),
        one_output=one_output,
        log_predictive=_number(record["log_predictive"]),
    )
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


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _expect(right: bool, name: str, array: np.ndarray) -> None:
    if not right:
        raise ModelFileError(f"the tensor {name!r} of shape {array.shape} does not fit the others")


# The estimator around it.


def _add_estimator(model: Any, tensors: Tensors, record: dict[str, Any]) -> None:
    kind = type(model).__name__
    if kind not in _PLAIN:
        raise ParameterError(f"a {kind} cannot be saved; known are {', '.join(_PLAIN)} and Posterior")
    arrays = {name: getattr(model, f"{name}_") for name in _SCALING[kind]}
    parameters = {name: getattr(model, name) for name in _PLAIN[kind]}
    names = getattr(model, "feature_names_in_", None)
    record |= {
        "parameters": parameters,
        "n_iterations": int(model.n_iter_),
        "feature_names": None if names is None else [str(name) for name in names],
    }
    if kind == "GPDensity":
        _add_density(model, parameters, record)
    else:
        _add_supervised(model, arrays, parameters, record)
    tensors |= {name: np.array(value, dtype=np.float64, order="C") for name, value in arrays.items()}


def _add_density(model: Any, parameters: dict[str, Any], record: dict[str, Any]) -> None:
    parameters["bounds"] = None if model.bounds is None else np.asarray(model.bounds, dtype=float).tolist()
    record |= {
        "lam": model.lam_,
        "converged": bool(model.converged_),
        "log_evidence_of_x": model.log_evidence_,
        "smoothness": getattr(model, "lengthscale_", None),
        "scores": [[key, value if np.isfinite(value) else None] for key, value in model.scores_.items()],
    }


def _add_supervised(
    model: Any, arrays: dict[str, Any], parameters: dict[str, Any], record: dict[str, Any]
) -> None:
    parameters["random_state"] = model.random_state if isinstance(model.random_state, int) else None
    parameters["fixed"] = list(model.fixed)
    parameters["priors"] = {
        name: [prior.median, prior.sigma] for name, prior in (model.priors or {}).items()
    } or None
    parameters["kernel"] = model.kernel.spec() if isinstance(model.kernel, Kernel) else model.kernel
    if isinstance(getattr(model, "inducing", None), str | None):
        parameters["inducing"] = getattr(model, "inducing", None)
    else:
        arrays["inducing"] = model.inducing
    if "likelihood" in model.get_params():
        likelihood = model.likelihood
        parameters["likelihood"] = likelihood.spec() if isinstance(likelihood, Likelihood) else likelihood
        _add_stream(model, arrays, record)
    (_add_classifier if hasattr(model, "posteriors_") else _add_regressor)(model, arrays, parameters, record)


def _add_stream(model: Any, arrays: dict[str, Any], record: dict[str, Any]) -> None:
    """What a model needs to go on reading."""
    record |= {"likelihood": model.likelihood_.spec(), "n_rows": int(model.n_rows_), "begun_with": None}
    if model.warming_up_:
        record["begun_with"] = int(model._begun_with)
        X, y = model._held
        arrays["warmup.X"], arrays["warmup.y"] = (
            X,
            np.searchsorted(model.classes_, y) if hasattr(model, "classes_") else y,
        )


def _add_regressor(
    model: Any, arrays: dict[str, Any], parameters: dict[str, Any], record: dict[str, Any]
) -> None:
    parameters["noise"] = (
        None if np.ndim(model.noise) > 0 else model.noise
    )  # one per row would be training data
    parameters["mean"] = model.mean.spec() if isinstance(model.mean, Mean) else None
    if "likelihood" in parameters:
        return
    if model.noise_ is not None:
        arrays["noise"] = model.noise_
    record["log_evidence_of_y"] = model.log_evidence_


def _add_classifier(
    model: Any, arrays: dict[str, Any], parameters: dict[str, Any], record: dict[str, Any]
) -> None:
    classes = model.classes_
    if classes.dtype.kind not in "biufU" and not all(isinstance(label, str) for label in classes):
        raise ParameterError(f"labels of type {classes.dtype} cannot be saved; use numbers or strings")
    record |= {
        "log_evidence_of_y": model.log_evidence_,
        "classes": classes.tolist(),
        "classes_dtype": classes.dtype.str,
        "others_log_predictive": [post.log_predictive for post in model.posteriors_[1:]],
    }
    if len(model.posteriors_) > 1:
        arrays["others.w"] = np.stack([post.w[:, 0] for post in model.posteriors_[1:]])
        arrays["others.A"] = np.stack([post.A for post in model.posteriors_[1:]])


def _estimator(record: dict[str, Any], tensors: Tensors, posterior: Posterior) -> Any:
    kind = record["class"]
    if kind not in _PLAIN:
        raise ModelFileError(f"it holds a {kind!r}, which this version does not know")
    model = _unfitted(kind, record["parameters"], tensors)
    d, p = next(iter(posterior.basis.parameters.values())).shape[1], posterior.w.shape[1]
    for name in _SCALING[kind]:
        array = _tensor(tensors, name)
        _expect(
            array.shape == ((d,) if name[0] != "y" else () if posterior.one_output else (p,)), name, array
        )
        _expect(name.endswith("mean") or name == "low" or bool(np.all(array > 0)), name, array)
        setattr(model, f"{name}_", float(array) if array.ndim == 0 else array)
    names = record["feature_names"]
    if names is not None:
        if len(names) != d or not all(isinstance(name, str) for name in names):
            raise ModelFileError(f"it names {len(names)} features for {d} inputs")
        model.feature_names_in_ = np.array(names, dtype=object)
    model.kernel_, model.basis_size_ = posterior.kernel, len(posterior)
    model.n_features_in_, model.n_iter_ = d, int(record["n_iterations"])
    if not isinstance(record["metadata"], dict):
        raise ModelFileError("its metadata are no dictionary")
    model.metadata_ = record["metadata"]
    {
        "SparseGPRegressor": _complete_regressor,
        "OnlineGPRegressor": _complete_online,
        "GPDensity": _complete_density,
        "SparseGPClassifier": _complete_classifier,
    }[kind](model, record, tensors, posterior)
    return model


def _unfitted(kind: str, saved: dict[str, Any], tensors: Tensors) -> Any:
    """The estimator with the parameters it was made with."""
    from ..estimators.classifier import SparseGPClassifier
    from ..estimators.density import GPDensity
    from ..estimators.online import OnlineGPRegressor
    from ..estimators.regressor import SparseGPRegressor

    if kind == "GPDensity":
        return GPDensity(**{name: saved[name] for name in (*_PLAIN[kind], "bounds")})
    parameters = {
        name: saved[name] for name in (*_PLAIN[kind], "random_state") if name in saved or name != "full_iter"
    }
    parameters["fixed"] = tuple(saved["fixed"])
    priors = saved["priors"]
    parameters["priors"] = {name: LogNormal(*values) for name, values in priors.items()} if priors else None
    parameters["kernel"] = (
        kernels.from_spec(saved["kernel"]) if isinstance(saved["kernel"], dict) else saved["kernel"]
    )
    if kind != "OnlineGPRegressor":
        parameters["inducing"] = saved["inducing"] if "inducing" in saved else _tensor(tensors, "inducing", 2)
    if kind != "SparseGPRegressor":
        given = saved["likelihood"]
        parameters["likelihood"] = from_spec(given) if isinstance(given, dict) else given
    if kind != "SparseGPClassifier":
        parameters["noise"] = saved["noise"]
        parameters["mean"] = None if saved["mean"] is None else means.from_spec(saved["mean"])
    classes: dict[str, Any] = {
        c.__name__: c for c in (SparseGPRegressor, OnlineGPRegressor, SparseGPClassifier)
    }
    return classes[kind](**parameters)


def _complete_regressor(model: Any, record: dict[str, Any], tensors: Tensors, posterior: Posterior) -> None:
    model.posterior_, model.noise_, model.log_evidence_ = (
        posterior,
        None,
        _number(record["log_evidence_of_y"]),
    )
    if "noise" in tensors:
        noise = _tensor(tensors, "noise")
        _expect(noise.shape == np.shape(model.y_scale_) and bool(np.all(noise > 0)), "noise", noise)
        model.noise_ = float(noise) if noise.ndim == 0 else noise


def _complete_density(model: Any, record: dict[str, Any], tensors: Tensors, posterior: Posterior) -> None:
    from ..beside.squared import mass

    model.posterior_, model.mass_ = posterior, mass(posterior)
    model.lam_, model.converged_ = float(record["lam"]), bool(record["converged"])
    model.log_evidence_ = _number(record["log_evidence_of_x"])
    model.scores_ = {key: -np.inf if value is None else float(value) for key, value in record["scores"]}
    if isinstance(posterior.kernel, kernels.Trigonometric):
        model.order_ = posterior.kernel.order
    else:
        model.lengthscale_ = float(record["smoothness"])
    if not model.mass_ > 0.0:
        raise ModelFileError(f"its density has the mass {model.mass_}")


def _complete_online(model: Any, record: dict[str, Any], tensors: Tensors, posterior: Posterior) -> None:
    model.posterior_ = posterior
    _complete_stream(model, record, tensors, np.shape(model.y_mean_))
    if isinstance(model.likelihood_, Binary):
        raise ModelFileError(f"it is a regression with {model.likelihood_}")


def _complete_stream(model: Any, record: dict[str, Any], tensors: Tensors, shape: tuple[int, ...]) -> None:
    model.likelihood_, model.n_rows_, model._held = (
        from_spec(record["likelihood"]),
        int(record["n_rows"]),
        None,
    )
    if record["begun_with"] is not None:
        model._begun_with = int(record["begun_with"])
        X, y = _tensor(tensors, "warmup.X", 2), _tensor(tensors, "warmup.y")
        _expect(X.shape == (model.n_rows_, model.n_features_in_), "warmup.X", X)
        _expect(y.shape == (model.n_rows_, *shape), "warmup.y", y)
        model._held = X, y


def _complete_classifier(model: Any, record: dict[str, Any], tensors: Tensors, posterior: Posterior) -> None:
    dtype = np.dtype(record["classes_dtype"])
    if dtype.kind not in "biufUO":
        raise ModelFileError(f"its classes have the type {dtype}")
    model.classes_, model.log_evidence_ = (
        np.array(record["classes"], dtype=dtype),
        _number(record["log_evidence_of_y"]),
    )
    _complete_stream(model, record, tensors, ())
    if not isinstance(model.likelihood_, Binary):
        raise ModelFileError(f"it classifies with {model.likelihood_}")
    if model._held is not None:
        X, numbers = model._held
        _expect(bool(np.all(np.isin(numbers, np.arange(len(model.classes_))))), "warmup.y", numbers)
        model._held = X, model.classes_[numbers.astype(int)]
    count, m = len(model.classes_), len(posterior)
    model.posteriors_ = (posterior,)
    if count > 2:
        w, A = _tensor(tensors, "others.w", 2), _tensor(tensors, "others.A", 3)
        _expect(w.shape == (count - 1, m), "others.w", w)
        _expect(A.shape == (count - 1, m, m), "others.A", A)
        logs = [_number(value) for value in record["others_log_predictive"]]
        others = (
            replace(posterior, w=w[j, :, None].copy(), A=A[j].copy(), log_predictive=logs[j])
            for j in range(count - 1)
        )
        model.posteriors_ = (posterior, *others)
