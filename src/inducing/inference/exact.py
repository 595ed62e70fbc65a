"""The exact GP on a problem's rows by a Cholesky factor of K + Σ: O(n³) time, O(n²) memory. [003 eq. 6]"""

import math
from dataclasses import replace

import numpy as np

from ..errors import FactorisationError
from ..model.kernels.base import SEVERAL_THREADS, Gradients, add_gradients, gram, gram_factor, strips
from ..model.posterior import Posterior
from ..model.problem import Problem, noise_gradient, scatter_pullback
from ..numerics.arrays import Array, is_numpy, namespace
from ..numerics.blas import ONE_THREAD, addresses, lauum, syrk, trtri
from ..numerics.linalg import inverse_lower, log_det_from_factor, row_squares, solve_lower
from ..numerics.workers import run_over, single_threaded_blas


def exact_evidence(P: Problem) -> float:
    """Return the log evidence log N(y | m0, K + Σ)."""
    L = _factor(P)
    return _value(P, L, solve_lower(L, P.Y))


def exact_posterior(P: Problem) -> Posterior:
    """Return the exact GP's posterior, whatever the problem's row of the table."""
    L, added = _factor(P), _added(P)
    w = solve_lower(L, P.Y)
    require_digits(P, solve_lower(L, w, transposed=True))
    post = Posterior(P.kernel, P.basis, L, w, None, P.mean, jitter=P.jitter)
    return replace(post, log_evidence=_value(P, L, w), one_output=P.one_output, added=added)


def exact_gradient(P: Problem) -> tuple[float, Gradients]:
    """Return log N(y | m0, K + Σ) and its gradient tr[K̄ dK] in every parameter, K̄ = ½(ααᵀ - p(K + Σ)⁻¹).

    One factor of K + Σ and one inverse in its place take n³ operations. Only the lower triangles of K̄ and K
    are computed, whose off-diagonal entries count twice, and the kernel sees a strip of rows at a time.
    """
    if not is_numpy(P.X):
        L = _factor(P)
        z = solve_lower(L, P.Y)
        value, alpha = _value(P, L, z), solve_lower(L, z, transposed=True)
        Kbar = alpha @ alpha.T - P.p * _inverse_of(L)
        kernel = P.kernel.pullback(P.X, P.X, 0.5 * Kbar)[0]
        return value, gradient_by_name(P, kernel, 0.5 * namespace(L).linalg.diagonal(Kbar), alpha)

    value, alpha, Kbar = _weighed(P)  # twice K̄, until its diagonal is halved
    diagonal = 0.5 * np.diagonal(Kbar)
    Kbar[np.diag_indices(P.n)] = diagonal

    def add_strip(total: Gradients, rows: slice) -> None:
        add_gradients(total, P.kernel.triangle_pullback(P.X, Kbar, rows))

    kernel = {}
    for part in run_over(strips(P.n), dict, add_strip, parallel=P.n >= SEVERAL_THREADS):
        add_gradients(kernel, part)
    return value, gradient_by_name(P, kernel, diagonal, alpha)


def _weighed(P: Problem) -> tuple[float, np.ndarray, np.ndarray]:
    """Return log N(y | m0, K + Σ), α = (K + Σ)⁻¹Y (n, p), and the lower triangle of 2K̄ (n, n)."""
    if 0 < P.n <= ONE_THREAD and P.X.dtype == P.Y.dtype == np.float64:
        from .exact_loops import weigh

        K, alpha = np.ascontiguousarray(gram(P.kernel, P.X, _added(P))), np.array(P.Y, order="C")
        with single_threaded_blas():
            total = weigh(addresses(), K, alpha)
        if math.isfinite(total):
            return log_density(P, total, 0.0), alpha, K
    L = _factor(P)
    z = solve_lower(L, P.Y)
    value, alpha = _value(P, L, z), solve_lower(L, z, transposed=True)
    Kbar = _inverse_of(L)  # in L's place
    syrk(Kbar, np.ascontiguousarray(alpha), 1.0, rows=True, times=-float(P.p))
    return value, alpha, Kbar


def exact_left_out(P: Problem, last: int | None = None) -> tuple[Array, Array]:
    """Return y less its mean given all other rows (n, p), and the variance of f given them (n,); those of the
    `last` rows alone need the inverse of the last block of the factor, and no more.
    """
    L, own = _factor(P), slice(0 if last is None else P.n - last, None)
    alpha = solve_lower(L, solve_lower(L, P.Y), transposed=True)[own]
    precision = _inverse_diagonal(L[own, own])
    return alpha / precision[:, None], 1.0 / precision - _added(P)[own]


def gradient_by_name(P: Problem, kernel: Gradients, diagonal: Array, alpha: Array) -> Gradients:
    """Return the gradient by name, from the kernel's own part, the diagonal of K̄ (n,) and α (n, p)."""
    noise_bar = diagonal / P.weight(slice(None))
    if P.weights is not None:
        noise_bar = noise_bar - 0.5 * P.p * (P.weights - 1.0) / P.noise
    add_gradients(kernel, scatter_pullback(P, noise_bar))
    gradient: Gradients = {f"kernel.{k}": g for k, g in kernel.items()}
    gradient[P.noise_name] = noise_gradient(P, noise_bar)
    slopes = P.mean.pullback(P.X, alpha[:, 0] if P.one_output else alpha)
    gradient |= {f"mean.{k}": g for k, g in slopes.items()}
    if is_numpy(P.X):
        gradient = {k: float(g) if np.ndim(g) == 0 else np.asarray(g) for k, g in gradient.items()}
    return gradient


def log_density(P: Problem, quadratic: float, log_det: float) -> float:
    """Return log N(y | m0, K + Σ) from yᵀ(K + Σ)⁻¹y, summed over outputs, and log|K + Σ|."""
    xp = namespace(P.X)
    value = quadratic + P.p * (P.n * math.log(2 * math.pi) + log_det)
    if P.weights is not None:  # c copies of a row: Π N(y|f, σ²) is N(y|f, σ²/c) (2πσ²)^(-(c-1)/2) c^(-1/2)
        extra = (P.weights - 1.0) * xp.log(2 * math.pi * P.noise) + xp.log(P.weights)
        value += P.p * float(xp.sum(extra))
    return -0.5 * value


def _added(P: Problem) -> Array:
    """Return the noise on the diagonal of K: each row's variance over its weight. (n,)"""
    return P.noise / P.weight(slice(None))


def _factor(P: Problem) -> Array:
    """Return the Cholesky factor of K + Σ. Raise if it has none, because of little noise where that is so."""
    try:
        return gram_factor(P.kernel, P.X, _added(P))
    except FactorisationError as error:
        little = 1e-8 * float(namespace(P.X).max(P.kernel.diagonal(P.X)))
        raise (_too_alike(P) if float(_added(P).min()) < little else error) from None


def require_digits(P: Problem, alpha: Array) -> None:
    """Raise if the rounding error of a mean k_uᵀα may be a twentieth of the targets or more."""
    xp = namespace(P.X)
    total = float(xp.max(xp.sum(xp.abs(alpha), axis=0))) * float(xp.max(P.kernel.diagonal(P.X)))
    if not total * xp.finfo(P.X.dtype).eps <= 0.05 * float(xp.max(xp.abs(P.Y))):
        raise _too_alike(P)


def _too_alike(P: Problem) -> FactorisationError:
    return FactorisationError(
        f"K + Σ of {P.n} rows is singular to rounding at noise of {float(_added(P).min()):.3g}: rows are too "
        "nearly alike; merge duplicate rows, or give more noise"
    )


def _inverse_of(L: Array) -> Array:
    """Return the lower triangle of (LLᵀ)⁻¹, on the CPU in L's place: 2n³/3 operations, twice the factor's."""
    if not _in_place(L):
        Linv = inverse_lower(L)
        return Linv.T @ Linv
    trtri(L)
    lauum(L)
    return L


def _inverse_diagonal(L: Array) -> Array:
    """Return the diagonal of (LLᵀ)⁻¹ from L⁻¹, on the CPU in L's place: half the work of the inverse. (n,)"""
    if not _in_place(L):
        return row_squares(inverse_lower(L).T)
    trtri(L)
    total = np.zeros(len(L))
    for rows in strips(len(L)):
        strip = np.tril(L[rows, : rows.stop], rows.start)
        total[: rows.stop] += np.einsum("ij,ij->j", strip, strip)
    return total


def _in_place(L: Array) -> bool:
    return is_numpy(L) and len(L) > 0 and L.dtype == np.float64


def _value(P: Problem, L: Array, z: Array) -> float:
    """Return log N(y | m0, K + Σ) from the Cholesky factor L of K + Σ and z = L⁻¹Y."""
    return log_density(P, float(namespace(P.X).sum(z * z)), float(log_det_from_factor(L)))
