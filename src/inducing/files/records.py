"""Records: a model as plain data for JSON and arrays by name, as a model file holds it.

A class that files may hold has two methods, `to_record() -> (plain, arrays)` and the class method
`from_record(plain, arrays)`. Both build on the record of a `Posterior`, in this module.
"""

from typing import Any

import numpy as np

from ..errors import FactorisationError, ModelFileError
from ..model import kernels, means
from ..model.bases import Multiscale, Points
from ..model.kernels.base import gram_factor
from ..model.posterior import Posterior
from ..numerics.arrays import LARGEST_FLOAT, LARGEST_TARGET, to_numpy
from ..numerics.linalg import cholesky, jittered

Plain = dict[str, Any]
Arrays = dict[str, np.ndarray]

MOST_FACTORED = 20_000  # rows of an exact GP in a file, whose factor is computed when it is read
REMADE = "remade.L"  # name of an L that can be computed from kernel, basis and jitter
ROWS_PREFIX = "rows."  # before the names of arrays that hold training rows, in double or single precision
BASES: dict[str, type[Points] | type[Multiscale]] = {"Points": Points, "Multiscale": Multiscale}


def posterior_record(post: Posterior) -> tuple[Plain, Arrays]:
    """Describe a posterior: kernel, mean and numbers, and the factors L, w, A with the basis."""
    exact = post.A is None and post.added is not None
    arrays: dict[str, Any] = {"w": post.w}
    if exact:
        arrays["added"] = post.added
    else:
        arrays[REMADE if _is_remade(post) else "L"] = post.L
    arrays |= {f"basis.{name}": value for name, value in post.basis.parameters.items()}
    if post.A is not None:
        arrays["A"] = post.A
    plain = {
        "kernel": post.kernel.spec(),
        "mean": post.mean_function.spec(),
        "basis": type(post.basis).__name__,
        "conditional": post.conditional,
        "log_evidence": post.log_evidence,
        "jitter": post.jitter,
        "one_output": post.one_output,
        "log_predictive": post.log_predictive,
    }
    return plain, {name: to_numpy(value) for name, value in arrays.items()}


def _is_remade(post: Posterior) -> bool:
    """Return whether L is the factor of Kuu to the bit, so that a file need not hold it."""
    L, basis = to_numpy(post.L), post.to_numpy().basis
    if post.A is None or not len(basis):
        return False
    try:
        return np.array_equal(_prior_factor(post.kernel, basis, post.jitter), L)
    except FactorisationError:
        return False


def _prior_factor(kernel: kernels.Kernel, basis: Points | Multiscale, jitter: float) -> np.ndarray:
    return cholesky(jittered(to_numpy(basis.gram(kernel)), jitter))


def posterior_from(plain: Plain, arrays: Arrays) -> Posterior:
    """Make the posterior of a record; raise if its parts do not fit together."""
    if plain["basis"] not in BASES:
        raise ModelFileError(f"it has a basis of unknown kind {plain['basis']!r}")
    kind = BASES[plain["basis"]]
    names = ["Z"] if kind is Points else ["centers", "widths"]
    basis = kind(*(array(arrays, f"basis.{name}", 2) for name in names))
    m, w, one_output = len(basis), array(arrays, "w", 2), bool(plain["one_output"])
    expect(w.shape[0] == m and w.shape[1] >= 1 and (not one_output or w.shape[1] == 1), "w", w)
    kernel, added = kernels.from_spec(plain["kernel"]), None
    factors = {name: array(arrays, name, 2) for name in ("L", REMADE, "A") if name in arrays}
    for name, factor in factors.items():
        expect(factor.shape == (m, m), name, factor)
    if "added" in arrays:  # of an exact GP, whose factor would be the largest part of a file by far
        added = array(arrays, "added", 1)
        expect(len(added) == m <= MOST_FACTORED and bool(np.all(added > 0)), "added", added)
        factors["L"] = gram_factor(kernel, array(arrays, "basis.Z", 2), added)
    elif REMADE in factors:
        factors["L"] = factors[REMADE]
    elif "L" not in factors and "A" in factors:
        factors["L"] = _prior_factor(kernel, basis, float(plain["jitter"]))
    elif "L" not in factors:
        array(arrays, "L", 2)
    if plain["conditional"] not in ("exact", "deterministic", "independent"):
        raise ModelFileError(f"it has an unknown test conditional {plain['conditional']!r}")
    post = Posterior(
        kernel=kernel,
        basis=basis,
        L=factors["L"],
        w=w,
        A=factors.get("A"),
        added=added,
        mean_function=means.from_spec(plain["mean"]),
        conditional=plain["conditional"],
        log_evidence=number(plain["log_evidence"]),
        jitter=float(plain["jitter"]),
        one_output=one_output,
        log_predictive=number(plain["log_predictive"]),
    )
    if m:  # kernel, mean, basis and factors must fit together: ask for one prediction
        basis.check(post.kernel)
        mean, variance = post.predict(basis.centers[:1])
        if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(variance))):
            raise ModelFileError("its predictions are not finite")
    return post


def array(arrays: Arrays, name: str, ndim: int | None = None) -> np.ndarray:
    """Return an array of finite floats by its name; raise if it is missing or has another type or rank."""
    if name not in arrays:
        raise ModelFileError(f"the tensor {name!r} is missing")
    value = arrays[name]
    if name.startswith(ROWS_PREFIX) and value.dtype == np.float32:
        value = value.astype(np.float64)
    if value.dtype != np.float64 or (ndim is not None and value.ndim != ndim):
        raise ModelFileError(f"the tensor {name!r} has the wrong type {value.dtype} or shape {value.shape}")
    if not np.all(np.abs(value) <= (LARGEST_FLOAT if name.startswith("x_") else LARGEST_TARGET)):
        raise ModelFileError(f"the tensor {name!r} holds NaN, infinity or a number beyond {LARGEST_TARGET:g}")
    return value


def expect(right: bool, name: str, value: np.ndarray) -> None:
    """Raise unless `right`, with the shape of an array that does not fit."""
    if not right:
        raise ModelFileError(f"the tensor {name!r} of shape {value.shape} does not fit the others")


def number(value: Any) -> float | None:
    return None if value is None else float(value)


def number_or_array(value: np.ndarray) -> Any:
    """Return an array without dimensions as a float, others as they are."""
    return float(value) if value.ndim == 0 else value
