"""Dense references written from the papers, formula by formula. Nothing here comes from the package.

Everything is n x n (or 40 digits) and slow on purpose. Sources: 000 Walder et al. 2008, 003 Quinonero-Candela
& Rasmussen 2005, 004 Csato 2002; rows that are in none of them (VFE, PEP, PIC) follow the table of the design
notes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np
from scipy.linalg import cho_factor, cho_solve

Array = np.ndarray
Kernel = Callable[[Array, Array], Array]

DIAGONAL = ("sor", "dtc", "vfe", "fitc", "fic", "pep")  # rows whose training Lambda is diagonal
BLOCKED = ("pitc", "pic")
ROWS = (*DIAGONAL, *BLOCKED, "exact")


# kernels ----------------------------------------------------------------------------------------------------


def rbf(X: Array, Z: Array, lengthscale: Any = 1.0, variance: float = 1.0) -> Array:
    """variance exp(-1/2 sum_i (x_i - z_i)^2 / l_i^2)."""
    T = (X[:, None, :] - Z[None, :, :]) / np.asarray(lengthscale)  # (n, m, d)
    return variance * np.exp(-0.5 * np.sum(T * T, axis=-1))


def _matern(nu: float, g: Callable[[Array], Array]) -> Callable[..., Array]:
    def matern(X: Array, Z: Array, lengthscale: Any = 1.0, variance: float = 1.0) -> Array:
        T = (X[:, None, :] - Z[None, :, :]) / np.asarray(lengthscale)
        r = np.sqrt(2.0 * nu * np.sum(T * T, axis=-1))
        return variance * g(r) * np.exp(-r)

    return matern


# variance g(r) exp(-r), r = sqrt(2 nu) times the scaled distance
matern12, matern32 = _matern(0.5, np.ones_like), _matern(1.5, lambda r: 1.0 + r)
matern52 = _matern(2.5, lambda r: 1.0 + r + r * r / 3.0)


def rational_quadratic(
    X: Array, Z: Array, lengthscale: Any = 1.0, variance: float = 1.0, shape: float = 1.0
) -> Array:
    """variance (1 + sum_i (x_i - z_i)^2 / (2 shape l_i^2))^-shape."""
    T = (X[:, None, :] - Z[None, :, :]) / np.asarray(lengthscale)
    return variance * (1.0 + np.sum(T * T, axis=-1) / (2.0 * shape)) ** -shape


def linear(X: Array, Z: Array, variance: Any = 1.0) -> Array:
    """sum_i variance_i x_i z_i."""
    return (X * np.asarray(variance)) @ Z.T


def bind(kernel: Callable[..., Array], **parameters: Any) -> Kernel:
    return lambda X, Z: kernel(X, Z, **parameters)


# bases ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Basis:
    """u as linear functionals of f: their Gram matrix and their covariance with f(x)."""

    gram: Array  # (m, m)
    cross: Callable[[Array], Array]  # X -> (n, m)

    def __getitem__(self, keep: Any) -> "Basis":
        keep = np.arange(len(self.gram))[keep]
        return Basis(self.gram[np.ix_(keep, keep)], lambda X: self.cross(X)[:, keep])


def points(k: Kernel, Z: Array) -> Basis:
    """u = f(Z)."""
    return Basis(k(Z, Z), lambda X: k(X, Z))


def multiscale(centers: Array, widths: Array, lengthscale: Any, variance: float) -> Basis:
    """u_i = <a_i g(., v_i, s_i^2), f>_H in the space of k = c g(., ., l^2), scaled to a Gram diagonal of
    variance.

    g is the normalised Gaussian of 000 eq. 9 (its sigma are variances), c = variance |2 pi l^2|^(1/2). By the
    reproducing property cov(u_i, f(x)) = a_i g(x, v_i, s_i^2); by 000 eq. 13/15 (divided by c, as k = c g)
    cov(u_i, u_j) = a_i a_j g(v_i, v_j, s_i^2 + s_j^2 - l^2) / c.
    """
    m, d = centers.shape
    S = np.broadcast_to(np.asarray(widths, float), (m, d)) ** 2
    L = np.broadcast_to(np.asarray(lengthscale, float), (d,)) ** 2
    c = variance * np.sqrt(np.prod(2 * np.pi * L))

    def g(x: Array, y: Array, s: Array) -> float:  # 000 eq. 9
        return float(np.prod(2 * np.pi * s) ** -0.5 * np.exp(-0.5 * np.sum((x - y) ** 2 / s)))

    a = np.array([np.sqrt(variance * c / g(centers[i], centers[i], 2 * S[i] - L)) for i in range(m)])
    gram = np.array(
        [
            [a[i] * a[j] * g(centers[i], centers[j], S[i] + S[j] - L) / c for j in range(m)]  # 000 eqs 13, 15
            for i in range(m)
        ]
    )

    def cross(X: Array) -> Array:  # 000 eq. 10
        norm = a * np.prod(2 * np.pi * S, axis=1) ** -0.5  # (m,)
        return norm * np.exp(-0.5 * np.sum((X[:, None, :] - centers) ** 2 / S, axis=-1))

    return Basis(gram, cross)


def jittered(basis: Basis, jitter: float) -> Basis:
    """jitter * mean(diag Kuu) on the diagonal of Kuu and nowhere else."""
    return Basis(basis.gram + jitter * np.mean(np.diag(basis.gram)) * np.eye(len(basis.gram)), basis.cross)


# the table --------------------------------------------------------------------------------------------------


def q_matrix(basis: Basis, A: Array, B: Array) -> Array:
    """Q_ab = K_au Kuu^-1 K_ub. [003 below eq. 9]"""
    return basis.cross(A) @ np.linalg.solve(basis.gram, basis.cross(B).T)


def training_prior(
    name: str, k: Kernel, basis: Basis | None, X: Array, blocks: Any = None, power: Any = None
) -> Array:
    """Effective prior covariance of the training latents f, top left of 003 eqs 5, 15, 19, 23, 25, 27 and
    Table 1.
    """
    K = k(X, X)
    if name == "exact":
        return K  # 003 eq. 5
    Q = q_matrix(basis, X, X)
    R = K - Q
    if name in ("sor", "dtc", "vfe"):
        return Q  # 003 eqs 15, 19
    if name in ("fitc", "fic"):
        return Q + np.diag(np.diag(R))  # 003 eqs 23, 25
    if name == "pep":
        return Q + power * np.diag(np.diag(R))
    if name in BLOCKED:
        same = np.equal.outer(np.asarray(blocks), np.asarray(blocks))
        return Q + np.where(same, R, 0.0)  # 003 eq. 27
    raise KeyError(name)


def joint_prior(
    name: str,
    k: Kernel,
    basis: Basis | None,
    X: Array,
    Xs: Array,
    *,
    blocks: Any = None,
    query_blocks: Any = None,
    power: Any = None,
) -> tuple[Array, Array, Array]:
    """(cov(f, f), cov(f, f*), cov(f*, f*)) of the effective joint prior. [003 Table 1]

    PIC: queries join a block each; covariances are exact inside a block, Q across blocks, for training and
    test alike (the only choice that is positive semi-definite when queries coincide with training inputs).
    """
    Kff = training_prior(name, k, basis, X, blocks, power)
    Kfs, Kss = k(X, Xs), k(Xs, Xs)
    if name == "exact":
        return Kff, Kfs, Kss
    Qfs, Qss = q_matrix(basis, X, Xs), q_matrix(basis, Xs, Xs)
    if name == "sor":
        return Kff, Qfs, Qss  # 003 eq. 15
    if name == "fic":
        return Kff, Qfs, Qss + np.diag(np.diag(Kss - Qss))  # 003 eq. 25
    if name == "pic":
        b, bs = np.asarray(blocks), np.asarray(query_blocks)
        return Kff, np.where(np.equal.outer(b, bs), Kfs, Qfs), np.where(np.equal.outer(bs, bs), Kss, Qss)
    return Kff, Qfs, Kss  # 003 eqs 19, 23, 27: exact test conditional


def noise_vector(noise: Any, n: int) -> Array:
    return np.broadcast_to(np.asarray(noise, float), (n,)).copy()


def condition(
    prior: tuple[Array, Array, Array], noise: Any, y: Array, m0: Any = 0.0, m0s: Any = 0.0
) -> tuple[Array, Array]:
    """Mean (n*,) or (n*, p) and joint covariance of f* given y. [003 eqs 6 and 35]

    m0 (n,) and m0s (n*,) are the prior mean at the training and test inputs, the same for every output.
    """
    Kff, Kfs, Kss = prior
    n = len(Kff)
    m0, m0s = noise_vector(m0, n), noise_vector(m0s, len(Kss))
    factor = cho_factor(Kff + np.diag(noise_vector(noise, n)), lower=True)
    residual = (y.T - m0).T
    mean = Kfs.T @ cho_solve(factor, residual)
    return (mean.T + m0s).T, Kss - Kfs.T @ cho_solve(factor, Kfs)


def log_normal(y: Array, cov: Array) -> float:
    """log N(y; 0, cov), summed over the columns of y. [003 eq. 30]"""
    Y = y.reshape(len(cov), -1)
    L = np.linalg.cholesky(cov)
    e = np.linalg.solve(L, Y)
    n, p = Y.shape
    return float(-0.5 * np.sum(e * e) - p * np.sum(np.log(np.diag(L))) - 0.5 * n * p * np.log(2 * np.pi))


def log_evidence(
    name: str,
    k: Kernel,
    basis: Basis | None,
    noise: Any,
    X: Array,
    y: Array,
    *,
    m0: Any = 0.0,
    blocks: Any = None,
    power: Any = None,
) -> float:
    """003 eq. 30 with the row's Lambda, less the penalty of VFE and PEP (once for each output)."""
    n = len(X)
    s2 = noise_vector(noise, n)
    residual = (y.T - noise_vector(m0, n)).T
    p = residual.reshape(n, -1).shape[1]
    value = log_normal(residual, training_prior(name, k, basis, X, blocks, power) + np.diag(s2))
    if name in ("vfe", "pep"):
        r = np.diag(k(X, X) - q_matrix(basis, X, X))
        if name == "vfe":
            value -= 0.5 * p * np.sum(r / s2)
        else:
            value -= p * (1 - power) / (2 * power) * np.sum(np.log1p(power * r / s2))
    return float(value)


def low_rank(
    name: str, k: Kernel, basis: Basis, noise: Any, X: Array, y: Array, Xs: Array, power: float = 0.0
) -> tuple[Array, Array, float]:
    """Mean, covariance and evidence of a row with diagonal Lambda, no n x n matrix; y (n,). [003 eqs 24b, 30,
    38]
    """
    Kfu, Ksu, Kuu, s2 = basis.cross(X), basis.cross(Xs), basis.gram, noise_vector(noise, len(X))
    prior = np.concatenate([np.diag(k(X[i : i + 25], X[i : i + 25])) for i in range(0, len(X), 25)])
    r = prior - np.sum(Kfu * np.linalg.solve(Kuu, Kfu.T).T, axis=1)
    Lam = s2 + {"fitc": 1.0, "fic": 1.0, "pep": power}.get(name, 0.0) * r
    Sigma = np.linalg.inv(Kuu + Kfu.T @ (Kfu / Lam[:, None]))
    b = Kfu.T @ (y / Lam)
    cov = Ksu @ Sigma @ Ksu.T
    if name != "sor":
        cov = cov + k(Xs, Xs) - Ksu @ np.linalg.solve(Kuu, Ksu.T)
    logdet = np.sum(np.log(2 * np.pi * Lam)) - np.linalg.slogdet(Sigma)[1] - np.linalg.slogdet(Kuu)[1]
    value = -0.5 * (logdet + np.sum(y * y / Lam) - b @ Sigma @ b)
    if name == "vfe":
        value -= 0.5 * np.sum(r / s2)
    if name == "pep":
        value -= (1 - power) / (2 * power) * np.sum(np.log1p(power * r / s2))
    return Ksu @ Sigma @ b, cov, float(value)


def repeat(weights: Array, *arrays: Any) -> list[Any]:
    """What an integer weight means: the row that many times."""
    return [np.repeat(np.asarray(a), np.asarray(weights), axis=0) for a in arrays]


def central_differences(
    function: Callable[[dict[str, Any]], float], parameters: dict[str, Any], h: float = 1e-5
) -> dict[str, Array]:
    """Gradient in every entry of every parameter."""
    gradients = {}
    for key, value in parameters.items():
        value = np.asarray(value, float)
        gradient = np.zeros(value.shape)
        for index in np.ndindex(value.shape):
            step = np.zeros(value.shape)
            step[index] = h
            gradient[index] = function({**parameters, key: value + step}) - function(
                {**parameters, key: value - step}
            )
        gradients[key] = gradient / (2 * h)
    return gradients


# processes --------------------------------------------------------------------------------------------------


def u_posterior(
    name: str, k: Kernel, basis: Basis, noise: Any, X: Array, y: Array, **row: Any
) -> tuple[Array, Array]:
    """Posterior mean and covariance of u itself, by dense conditioning: cov(f, u) = Kfu, cov(u, u) = Kuu."""
    m0 = row.pop("m0", 0.0)
    Kff = training_prior(name, k, basis, X, **row)
    return condition((Kff, basis.cross(X), basis.gram), noise, y, m0)


def natural_parameters(basis: Basis, mean_u: Array, cov_u: Array) -> tuple[Array, Array]:
    """(alpha, C) with E u = K alpha and cov u = K + K C K. [004 Lemma 2.3.1, eqs 2.44-2.45]"""
    Q = np.linalg.inv(basis.gram)
    return Q @ mean_u, Q @ (cov_u - basis.gram) @ Q


def process_at(k: Kernel, basis: Basis, alpha: Array, C: Array, Xs: Array) -> tuple[Array, Array]:
    """Mean and covariance at Xs of the process (alpha, C). [004 eqs 2.44-2.45]"""
    Ku = basis.cross(Xs)
    return Ku @ alpha, k(Xs, Xs) + Ku @ C @ Ku.T


def gaussian_kl(mean1: Array, cov1: Array, mean2: Array, cov2: Array) -> float:
    """KL(N1 || N2); with (t, p) means, of p independent outputs that share the covariance. [004 eq. 3.7]"""
    t = len(cov1)
    delta = (mean2 - mean1).reshape(t, -1)
    p = delta.shape[1]
    L1, L2 = np.linalg.cholesky(cov1), np.linalg.cholesky(cov2)
    e = np.linalg.solve(L2, delta)
    M = np.linalg.solve(L2, L1)
    logdet = 2 * np.sum(np.log(np.diag(L1))) - 2 * np.sum(np.log(np.diag(L2)))
    return float(0.5 * (np.sum(e * e) + p * (np.sum(M * M) - t - logdet)))


def kl_315(K: Array, alpha1: Array, C1: Array, alpha2: Array, C2: Array) -> float:
    """Half of 004 eq. 3.15, both processes on the same basis with Gram matrix K; p outputs share C."""
    Q = np.linalg.inv(K)
    M = np.linalg.inv(C2 + Q)
    delta = (alpha2 - alpha1).reshape(len(K), -1)
    p = delta.shape[1]
    _, logdet = np.linalg.slogdet((C1 + Q) @ M)
    return float(0.5 * (np.sum(delta * (M @ delta)) + p * (np.trace((C1 - C2) @ M) - logdet)))


def removal_scores(K: Array, alpha: Array, C: Array) -> tuple[Array, Array]:
    """Half of 004 eq. 3.26 and half of 004 eq. 3.24, S = (C^-1 + K)^-1 in the form that allows a singular
    C.
    """
    Q = np.linalg.inv(K)
    q, c = np.diag(Q), np.diag(C)
    s = np.diag(C @ np.linalg.solve(C + Q, Q))
    a = alpha.reshape(len(K), -1)
    mean = np.sum(a * a, axis=1) / (q + c)
    return 0.5 * mean, 0.5 * (mean + a.shape[1] * (np.log1p(c / q) - s / q))


def remove(K: Array, alpha: Array, C: Array, i: int) -> tuple[Array, Array]:
    """The projection that solves 004 eqs 3.18 and 3.20 literally, by dense solves and not by 3.19 and
    3.21.
    """
    keep = np.arange(len(K)) != i
    M = np.linalg.inv(C + np.linalg.inv(K))  # (Q + C)^-1
    alpha_hat = np.linalg.solve(M[np.ix_(keep, keep)], M[keep] @ alpha)  # 3.18
    C_hat = np.linalg.inv(M[np.ix_(keep, keep)]) - np.linalg.inv(K[np.ix_(keep, keep)])  # 3.20
    return alpha_hat, C_hat


# forty digits -----------------------------------------------------------------------------------------------

UNIT = 2.0**-53  # unit roundoff of float64


Rows = list[list[Any]]  # an mpmath matrix as rows


def _mp_kernel(A: Array, B: Array, lengthscale: Any, variance: Any, jiggle: Array) -> Rows:
    """RBF matrix from the float64 inputs taken as exact; entries times (1 + UNIT jiggle)."""
    l2, v, unit = mp.mpf(lengthscale) ** 2, mp.mpf(variance), mp.mpf(UNIT)

    def entry(a: Array, b: Array, z: float) -> Any:
        r2 = mp.fsum((mp.mpf(float(s)) - mp.mpf(float(t))) ** 2 for s, t in zip(a, b, strict=True))
        return v * mp.exp(-r2 / (2 * l2)) * (1 + unit * mp.mpf(float(z)))

    return [[entry(a, b, z) for b, z in zip(B, row, strict=True)] for a, row in zip(A, jiggle, strict=True)]


def _mp_cholesky(A: Rows) -> Rows:
    L: Rows = []
    for i, row in enumerate(A):
        L.append([])
        for j in range(i):
            L[i].append((row[j] - mp.fdot(L[i], L[j][:j])) / L[j][j])
        L[i].append(mp.sqrt(row[i] - mp.fdot(L[i], L[i])))
    return L


def _mp_solve(L: Rows, b: list[Any]) -> list[Any]:
    """L^-1 b, L lower triangular."""
    w: list[Any] = []
    for row in L:
        w.append((b[len(w)] - mp.fdot(row[:-1], w)) / row[-1])
    return w


def high_precision(
    name: str,
    X: Array,
    Z: Array,
    Xs: Array,
    y: Array,
    noise: Any,
    *,
    lengthscale: Any = 1.0,
    variance: Any = 1.0,
    jitter: float = 0.0,
    digits: int = 40,
    rng: np.random.Generator | None = None,
) -> tuple[Array, Array, mp.mpf]:
    """Mean, variance and evidence of exact, DTC, VFE or FITC with an RBF kernel: 003 eqs 6, 24b and 30 in
    mpmath.

    With an rng every kernel value is first multiplied by 1 + UNIT z, z uniform on [-1, 1]: the spread of the
    answers is the error that merely rounding the kernel matrices to float64 must cause, whatever the
    algorithm.
    """

    def kernel(A: Array, B: Array, symmetric: bool = False) -> Rows:
        E = np.zeros((len(A), len(B))) if rng is None else rng.uniform(-1, 1, (len(A), len(B)))
        return _mp_kernel(A, B, lengthscale, variance, (E + E.T) / 2 if symmetric else E)

    with mp.workdps(digits):
        n, v, s2 = len(X), mp.mpf(variance), mp.mpf(noise)
        Y = [mp.mpf(float(t)) for t in y]
        if name == "exact":
            K = kernel(X, X, True)
            for i in range(n):
                K[i][i] += s2
            L = _mp_cholesky(K)
            c = _mp_solve(L, Y)
            V = [_mp_solve(L, column) for column in kernel(Xs, X)]
            mean = [mp.fdot(t, c) for t in V]
            var = [v - mp.fdot(t, t) for t in V]
            value = (
                -mp.fsum(mp.log(L[i][i]) for i in range(n)) - mp.fdot(c, c) / 2 - n * mp.log(2 * mp.pi) / 2
            )
        else:
            Kuu = kernel(Z, Z, True)
            m = len(Kuu)
            shift = mp.mpf(jitter) * mp.fsum(Kuu[i][i] for i in range(m)) / m
            for i in range(m):
                Kuu[i][i] += shift
            Luu = _mp_cholesky(Kuu)
            Phi = [_mp_solve(Luu, row) for row in kernel(X, Z)]  # (n, m)
            Phis = [_mp_solve(Luu, row) for row in kernel(Xs, Z)]
            r = [v - mp.fdot(t, t) for t in Phi]
            D = [s2 + t if name == "fitc" else s2 for t in r]
            scaled = [[t / d for t in row] for row, d in zip(Phi, D, strict=True)]
            columns, weighted = list(zip(*Phi, strict=True)), list(zip(*scaled, strict=True))
            B = [[mp.fdot(weighted[i], columns[j]) + (i == j) for j in range(m)] for i in range(m)]
            LB = _mp_cholesky(B)
            c = _mp_solve(LB, [mp.fdot(t, Y) for t in weighted])
            V = [_mp_solve(LB, t) for t in Phis]
            mean = [mp.fdot(t, c) for t in V]
            var = [v - mp.fdot(p, p) + mp.fdot(t, t) for p, t in zip(Phis, V, strict=True)]
            fit = mp.fsum(t * t / d for t, d in zip(Y, D, strict=True)) - mp.fdot(c, c)
            value = (
                -mp.fsum(mp.log(LB[i][i]) for i in range(m))
                - (mp.fsum(mp.log(2 * mp.pi * d) for d in D) + fit) / 2
            )
            if name == "vfe":
                value -= mp.fsum(r) / (2 * s2)
        return np.array([float(t) for t in mean]), np.array([float(t) for t in var]), value


def high_precision_gradient(
    name: str,
    X: Array,
    Z: Array,
    y: Array,
    noise: float,
    *,
    lengthscale: float,
    variance: float,
    jitter: float,
) -> Array:
    """d evidence / d log(lengthscale, variance, noise), central differences of forty digits."""
    with mp.workdps(40):
        h = mp.mpf(2) ** -30

        def slope(i: int) -> float:
            values = []
            for sign in (1, -1):
                at = [mp.mpf(t) for t in (lengthscale, variance, noise)]
                at[i] *= mp.exp(sign * h)
                l, v, s2 = at
                values.append(
                    high_precision(name, X, Z, X[:0], y, s2, lengthscale=l, variance=v, jitter=jitter)[2]
                )
            return float((values[0] - values[1]) / (2 * h))

        return np.array([slope(i) for i in range(3)])


def permitted_error(name: str, *args: Any, draws: int = 4, **kwargs: Any) -> tuple[float, float, float]:
    """Largest change of (mean, variance, evidence) when the kernel matrices are rounded at random to
    float64.
    """
    mean, var, value = high_precision(name, *args, **kwargs)
    worst = np.zeros(3)
    for seed in range(draws):
        m1, v1, e1 = high_precision(name, *args, rng=np.random.default_rng(seed), **kwargs)
        worst = np.maximum(
            worst, [np.max(np.abs(m1 - mean)), np.max(np.abs(v1 - var)), float(abs(e1 - value))]
        )
    return tuple(worst.tolist())
