"""Preparation of online learning: check rows, put processes on one basis, carry them to another kernel."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..errors import ParameterError, ShapeError
from ..model.bases import Basis, Multiscale, Points, as_multiscale
from ..model.kernels.base import Kernel
from ..model.means import Mean
from ..model.posterior import Posterior
from ..model.problem import as_inputs
from ..numerics.arrays import Array, to_numpy
from ..numerics.linalg import cholesky, cholesky_escalating, inverse_lower, solve_lower
from ..numerics.nuggets import with_nugget
from ..numerics.workers import blas_for

LEAST_LEARNED = 1e-10  # an eigenvalue of M below this share of the largest is rounding


def from_learner(post: Posterior) -> bool:
    """Return whether the factors of a process are still those that online learning left."""
    factors = () if post.online is None else post.online.factors
    return len(factors) == 3 and all(a is b for a, b in zip(factors, (post.L, post.w, post.A)))


def common_factors(
    posts: Sequence[Posterior], d: int
) -> tuple[Basis, list[tuple[np.ndarray, np.ndarray, np.ndarray]], float]:
    """Return the common basis, (L, w, A) of every process with LLᵀ the Gram matrix, and its jitter. Raise if
    the processes differ in kernel or basis.
    """
    first, together = posts[0], "processes that learn together need the same"
    for post in posts:
        post.require_exact("updating needs")
        if post is first:
            continue
        if post.kernel.spec() != first.kernel.spec():
            raise ParameterError(f"{together} kernel; these have different ones")
        pairs = zip(post.basis.parameters.values(), first.basis.parameters.values(), strict=True)
        if len(post) != len(first) or any(not np.array_equal(to_numpy(a), to_numpy(b)) for a, b in pairs):
            raise ParameterError(f"{together} basis; these have different ones")
    if len(first) == 0:
        empty = np.empty((0, 0))
        return Points(np.empty((0, d))), [(empty, np.zeros(post.w.T.shape).T, empty) for post in posts], 0.0
    basis = type(first.basis)(*(to_numpy(part) for part in first.basis.parameters.values()))
    jitter = max(post.jitter for post in posts)
    if all(from_learner(post) or (post.jitter == 0.0 and post.A is not None) for post in posts):
        return basis, [(to_numpy(post.L), to_numpy(post.w), to_numpy(post.A)) for post in posts], jitter
    with blas_for(len(basis)):
        K, what = with_nugget(to_numpy(basis.gram(first.kernel))), "the prior covariance of the basis"
        L, jitter = cholesky_escalating(K, jitter, what=what, try_less=True)
        factors = []
        for post in posts:
            w, S = post.whitened(L)
            A, _ = cholesky_escalating(S, 0.0, what="the posterior covariance of the whitened basis")
            factors.append((L, w, A))
    return basis, factors, jitter


def joined(kernel: Kernel, basis: Basis, kept: np.ndarray, X: np.ndarray) -> Basis:
    """Return the basis functions `kept`, followed by k(x, ·) of each row of X."""
    new: Basis = as_multiscale(kernel, Points(X)) if isinstance(basis, Multiscale) else Points(X)
    old = [part[kept] for part in basis.parameters.values()]
    return type(basis)(*(np.concatenate([a, b]) for a, b in zip(old, new.parameters.values(), strict=True)))


def checked_rows(X: Array, posts: Sequence[Posterior]) -> np.ndarray:
    """Return X as a finite NumPy array (n, d). Raise if a row's width is not that of the processes."""
    widths = [int(post.basis.centers.shape[1]) for post in posts if len(post)]
    if isinstance(X, list | tuple):
        for i, row in enumerate(X):
            width = widths[0] if widths else np.size(X[0])
            if np.size(row) != width:
                raise ShapeError(f"row {i} of X has {np.size(row)} columns, but the process has {width}")
    X = to_numpy(as_inputs(X)).astype(float, copy=False)
    if widths and X.shape[1] != widths[0]:
        width = X.shape[1]
        raise ShapeError(f"X has {width} columns from row 0 on, but the process was made with {widths[0]}")
    return np.ascontiguousarray(X)


def with_outputs(post: Posterior, y: np.ndarray) -> Posterior:
    """Return `post` with as many outputs as y. Raise if it has learned with another number of outputs."""
    outputs = 1 if y.ndim == 1 else y.shape[1]
    if (post.w.shape[1], post.one_output) == (outputs, y.ndim == 1):
        return post
    if np.any(to_numpy(post.w)) or (post.A is None and len(post)):
        raise ShapeError(f"y has {outputs} outputs, but the process has {post.w.shape[1]}")
    return replace(post, w=np.zeros((len(post), outputs)), one_output=y.ndim == 1)


def carried(post: Posterior, kernel: Kernel, mean: Mean) -> Posterior:
    """Return the process under another kernel and prior mean with the same information about its basis
    functions. [Bui, Nguyen & Turner 2017]

    All rows together are one Gaussian factor in u, f(Z) less the prior mean: M = S⁻¹ - I and h = S⁻¹w in v, u
    = Lv. With the new prior u' = u - shift = L'v', where the mean changes by shift, and T = L⁻¹L':

        S'⁻¹ = I + TᵀMT,   w' = S'Tᵀ(h - M L⁻¹shift)
    """
    if len(post) == 0:
        return replace(post, kernel=kernel, mean_function=mean, online=None)
    L, w, Z = to_numpy(post.L), to_numpy(post.w), post.basis.centers
    K, what = with_nugget(to_numpy(post.basis.gram(kernel))), "the prior covariance of the basis"
    new, jitter = cholesky_escalating(K, 0.0, what=what)
    inverse = np.linalg.inv(np.asarray(post.A))
    values, V = np.linalg.eigh(inverse.T @ inverse - np.eye(len(L)))
    learned = values > LEAST_LEARNED * max(values[-1], 0.0)
    values, T = np.where(learned, values, 0.0)[:, None], V.T @ solve_lower(L, new)  # V diag(values) Vᵀ = M
    shift = (np.asarray(mean(Z)) - np.asarray(post.mean_function(Z))).reshape(len(L), -1)
    h = (values + learned[:, None]) * (V.T @ w) - values * (V.T @ solve_lower(L, shift))
    A = inverse_lower(cholesky(np.eye(len(L)) + T.T @ (values * T))).T
    w = A @ (A.T @ (T.T @ h))
    return replace(post, kernel=kernel, mean_function=mean, L=new, w=w, A=A, jitter=jitter, online=None)
