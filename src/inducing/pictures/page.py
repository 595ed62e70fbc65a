"""`page`: one HTML file that evaluates a model in the browser. Its arrays are text: doubles in base64, and
the triangular factors of a process in as few characters as its error bars allow.

The m(m + 1)/2 doubles of a factor would be most of the file. But the page can compute L⁻¹ from the kernel:
then an exact process needs no factor, and another, whose variance is k(x, x) - |L⁻¹k|² + |AᵀL⁻¹k|², needs
only A. Row i of A (upper triangular) is multiplied by (L⁻¹k)_i, no larger than about L_ii: so all numbers
L_ii A_ij can be rounded to multiples of one step, which takes 13 to 27 bits instead of 64.
"""

import base64
import json
from importlib.resources import files
from typing import Any

import numpy as np

from ..files.exports import Exported, js_evaluator
from ..model.bases import Points
from ..model.posterior import Posterior
from ..numerics.arrays import to_numpy
from ..numerics.linalg import cholesky, solve_lower

ALPHABET = bytes(c for c in range(33, 127) if c not in b'"<\\')  # that JSON and HTML do not escape
RUN = 32  # numbers in a row that are written with the same number of bits
AS_NEAR = 6e-10  # largest relative error of a standard deviation in the page
OF_A_FACTOR = 1e-12  # relative rounding of the entries of LLᵀ - K that should be 0


def packed(value: Any) -> Any:
    """Replace each array in plain data by its shape and its doubles in base64, which the page reads."""
    if isinstance(value, np.ndarray):
        doubles = np.ascontiguousarray(value, dtype="<f8").tobytes()
        return {"shape": value.shape, "f8": base64.b64encode(doubles).decode("ascii")}
    if isinstance(value, dict):
        return {key: packed(own) for key, own in value.items()}
    return [packed(own) for own in value] if isinstance(value, list | tuple) else value


def diagonal_beyond(post: Posterior) -> np.ndarray | None:
    """Return diag(LLᵀ - K) if LLᵀ is K plus a diagonal and A is upper triangular, else None. (m,)"""
    if not isinstance(post.basis, Points) or post.conditional != "exact":
        return None
    A = None if post.A is None else to_numpy(post.A)
    if A is not None and (A.shape[0] != A.shape[1] or np.any(np.tril(A, -1))):
        return None
    Z, L = to_numpy(post.basis.Z), to_numpy(post.L)
    beyond = L @ L.T - to_numpy(post.kernel.covariances(Z, Z))
    added = np.diag(beyond).copy()
    beyond[np.diag_indices(len(beyond))] = 0.0
    return added if np.max(np.abs(beyond), initial=0.0) <= OF_A_FACTOR * np.max(np.abs(L)) ** 2 else None


def few_bits(A: np.ndarray, L: np.ndarray, step: float) -> dict[str, Any]:
    """Write an upper triangular matrix for the page: its diagonal as doubles, above it L_ii A_ij rounded to
    multiples of `step`, column by column, in runs of 32 numbers after six bits with their width.
    """
    numbers = np.rint(np.diag(L)[:, None] * A / step).astype(np.int64)
    parts = []
    for j in range(1, len(A)):
        for i in range(0, j, RUN):
            run = numbers[i : min(i + RUN, j), j]
            width = int(np.max(np.abs(run))).bit_length() + 1
            parts.append(_bits(np.array([width]), 6))
            parts.append(_bits(run + (1 << width - 1), width))
    bits = np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint8)
    return {"step": step, "diagonal": np.diag(A).copy(), "bits": _text(bits)}


def _text(bits: np.ndarray) -> str:
    """Write bits as text, thirteen as two of 91 characters."""
    padded = np.concatenate([bits, np.zeros(-len(bits) % 13, dtype=np.uint8)]).reshape(-1, 13)
    pairs = np.divmod(padded @ (1 << np.arange(12, -1, -1)), len(ALPHABET))
    return np.frombuffer(ALPHABET, dtype=np.uint8)[np.stack(pairs, axis=1)].tobytes().decode("ascii")


def _bits(numbers: np.ndarray, width: int) -> np.ndarray:
    """Return the bits of whole numbers, the highest first. (n · width,)"""
    return (numbers[:, None] >> np.arange(width - 1, -1, -1) & 1).astype(np.uint8).ravel()


def stepped(A: np.ndarray, L: np.ndarray, step: float) -> np.ndarray:
    """Return A with the rounding of `few_bits`."""
    l = np.diag(L)[:, None]
    near = np.rint(l * A / step) * step / l
    near[np.diag_indices(len(A))] = np.diag(A)
    return near


def variance_in_page(post: Posterior, added: np.ndarray, A: np.ndarray | None, X: np.ndarray) -> np.ndarray:
    """Compute the variance of f as the page does, from its own factor of the kernel matrix. (n,)"""
    assert isinstance(post.basis, Points)
    Z = to_numpy(post.basis.Z)
    L = cholesky(to_numpy(post.kernel.covariances(Z, Z)) + np.diag(added))
    phi = solve_lower(L, to_numpy(post.kernel.covariances(Z, X)))
    variance = to_numpy(post.kernel.diagonal(X)) - np.sum(phi**2, axis=0)
    return variance if A is None else variance + np.sum((A.T @ phi) ** 2, axis=0)


def triangle_of(post: Posterior, noise: float, X: np.ndarray) -> dict[str, Any] | None:
    """Return the numbers from which the page makes the factors of a process, so that √(noise + variance) at X
    is right to 6e-10; None where there is no such form.
    """
    added = diagonal_beyond(post)
    if added is None:
        return None
    if post.A is None:
        return {"added": added}
    A, L, true = to_numpy(post.A), to_numpy(post.L), to_numpy(post.predict(X).variance)
    largest = float(np.max(np.abs(np.diag(L)[:, None] * A)))
    for halvings in range(24, 40):
        step = 0.5**halvings * largest
        variance = variance_in_page(post, added, stepped(A, L, step), X)
        if np.max(np.abs(variance - true) / (true + noise)) < 2.0 * AS_NEAR:
            return {"added": added} | few_bits(A, L, step)
    return None


def page(model: Exported, facts: dict[str, Any], triangles: list[dict[str, Any]] | None = None) -> str:
    """Write the page of a model with facts about it, plain data with arrays; `triangles`, from `triangle_of`,
    replace the factors of the processes.

    Facts and names are data in a JSON element and become text nodes; none is ever read as HTML or code.
    """
    template = files("inducing.pictures").joinpath("explain.html").read_text(encoding="utf-8")
    plain = model.plain()
    if triangles is not None:
        plain["processes"] = [p | {"T": own} for p, own in zip(plain["processes"], triangles)]
    facts = facts | {"model": packed(plain)}
    data = json.dumps(facts, default=lambda a: np.asarray(a).tolist(), allow_nan=False)
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return template.replace("/*evaluator*/", js_evaluator()).replace("/*data*/", data)
