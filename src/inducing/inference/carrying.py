"""Carrying what a process has learned over to another kernel. [Bui, Nguyen & Turner 2017]"""

from dataclasses import replace

import numpy as np

from ..model.kernels.base import Kernel
from ..model.means import Mean
from ..model.posterior import Posterior
from ..numerics.arrays import to_numpy
from ..numerics.linalg import cholesky, cholesky_escalating, inverse_lower, solve_lower, with_nugget

LEAST_LEARNED = 1e-10  # of the largest: a smaller eigenvalue of what was learned is rounding


def carried(post: Posterior, kernel: Kernel, mean: Mean) -> Posterior:
    """The process under another kernel and prior mean that has learned the same about its basis functions.

    What all rows said of u, the functions less the prior mean, is one Gaussian factor: M = S⁻¹ - I and h =
    S⁻¹w in v, u = Lv. With the new prior u' = u - shift = L'v', shift the change of the mean, and T = L⁻¹L':

        S'⁻¹ = I + TᵀMT,   w' = S'Tᵀ(h - M L⁻¹shift)
    """
    if len(post) == 0:
        return replace(post, kernel=kernel, mean_function=mean, online=None)
    L, w, Z = to_numpy(post.L), to_numpy(post.w), next(iter(post.basis.parameters.values()))
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
