"""Densities as squares of a Gaussian process on the unit box: h(x|f) = f(x)²/∫f². [004 §5.3]

The mass ∫f² is no likelihood of single rows. A Gamma integral over λ puts it into the prior (5.15-5.22): for
a given λ each row has the likelihood f(x)², and the prior covariance Σ₀ becomes (Σ₀⁻¹ + λI)⁻¹, which is known
in closed form for two families.

    Fourier             Σ₀Σ₀ = Σ₀, so that k_λ = k₀/(1 + λ)                              [004 eqs 5.28-5.29]
    OrnsteinUhlenbeck   Σ₀⁻¹ = -l²∂², so that k_λ = exp(-√λ|x - z|/l)/(2l√λ)             [004 eq. 5.27]

Sweeps of expectation propagation alternate with 2N/λ = ∫E f² (5.25), where the integrand of (5.16) is
largest; when λ, and with it the kernel, has changed, the process is made anew from its sites. The predicted
density is E f²/∫E f² (5.24), normalised by the closed form of that integral. Two slips of the thesis: (5.23),
(5.25) and (5.30) have lost the ½ of e^(-½λ∫f²), and (5.27) swaps √λ and l in its exponent; both contradict
its remarks that λ grows with N and the process then roughens.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import lgamma, log, log1p, sqrt
from typing import Any

import numpy as np

from ..errors import FactorisationError, NonFiniteError, ParameterError, ShapeError
from ..inference.propagation import expectation_propagation, from_sites
from ..model.bases import Basis, Points
from ..model.kernels import Kernel, Matern12, Trigonometric
from ..model.kernels.base import positive
from ..model.kernels.dot import positive_integer
from ..model.likelihoods import Squared
from ..model.posterior import Posterior
from ..model.table import Sites
from ..numerics.linalg import row_squares
from ..numerics.workers import blas_for

LEAST_DAMPING = 1.0 / 64.0
MOST_GROWTH = 1e4  # a sweep by which the mass grows by a larger factor has failed
ENOUGH_SWEEPS = 40  # sweeps after which damping is halved


@dataclass(frozen=True)
class Fourier:
    """Products of series 1, √2 cos 2πnx, √2 sin 2πnx up to n = order, with standard Gaussian coefficients."""

    order: int
    d: int = 1

    def __post_init__(self) -> None:
        for name in ("order", "d"):
            object.__setattr__(self, name, positive_integer(name, getattr(self, name)))

    @property
    def functions(self) -> int:
        """The dimension of the space, D = (2 order + 1)^d."""
        return (2 * self.order + 1) ** self.d

    def kernel(self, lam: float) -> Kernel:
        return Trigonometric(self.order, variance=1.0 / (1.0 + lam))

    def basis(self) -> Points:
        """Return a grid of D points; its functions are orthogonal, Kuu = D I/(1 + λ), and span the space."""
        axis = np.arange(2 * self.order + 1) / (2 * self.order + 1)
        return Points(np.stack(np.meshgrid(*[axis] * self.d, indexing="ij"), axis=-1).reshape(-1, self.d))

    def settled(self, n: float) -> float:
        """Return λ at the fixed point, where (1 + λ)∫E f² = 2n + D and 2n/λ = ∫E f²."""
        return 2.0 * n / self.functions

    def next(self, lam: float, mass: float, n: float) -> tuple[float, float]:
        """Return λ' with 2n/λ' = ∫E f'², and c by which f' = cf is stretched, c² = (1 + λ)/(1 + λ')."""
        rest = (1.0 + lam) * mass - 2.0 * n
        new = 2.0 * n / rest if rest > 0.0 else lam
        return new, sqrt((1.0 + lam) / (1.0 + new))

    def log_evidence(self, log_average: float, lam: float, n: float) -> float:
        """Return log E Π h(xᵢ|f) from log E_λ Π f(xᵢ)², which is the same for every λ. [004 eq. 5.16]"""
        half = 0.5 * self.functions
        return log_average + n * (log1p(lam) - log(2.0)) + lgamma(half) - lgamma(n + half)


@dataclass(frozen=True)
class OrnsteinUhlenbeck:
    """Functions of one input with a small l²∫f'², l = length, on points a quarter of l apart. [004 eq. 5.27]

    Only the lengthscale l/√λ matters, since stretching f is the same as dividing l. By 2n/λ = ∫E f² it takes
    many sweeps to converge, to one that is the same for all l and shrinks as n grows. With λ held at 1
    (hold=True) l is the lengthscale, to be chosen.
    """

    length: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", positive("length", self.length, scalar=True))

    def kernel(self, lam: float) -> Kernel:
        root = sqrt(positive("lam", lam, scalar=True))
        return Matern12(self.length / root, variance=0.5 / (self.length * root))

    def next(self, lam: float, mass: float, n: float) -> tuple[float, float]:
        """Return λ' = 2n/∫E f², and 1: the sites stay as they are."""
        return 2.0 * n / mass, 1.0

    def basis(self) -> Points:
        m = int(np.clip(np.ceil(4.0 / self.length), 20, 400))
        return Points(((np.arange(m) + 0.5) / m)[:, None])


Prior = Fourier | OrnsteinUhlenbeck


def overlap(kernel: Kernel, Z: np.ndarray) -> tuple[float, np.ndarray]:
    """Return ∫k(x, x)dx and ∫k(z, x)k(x, z')dx (m, m) over the unit box. [004 eq. 5.30]"""
    if isinstance(kernel, Trigonometric):  # idempotent but for the variance
        return float(kernel.diag(Z[:1])[0]), kernel.variance * kernel(Z, Z)
    if isinstance(kernel, Matern12) and Z.shape[1] == 1:
        scale = float(np.ravel(kernel.lengthscale)[0])
        r, total = np.abs(Z - Z.T) / scale, (Z + Z.T) / scale
        inside = (1.0 + r) * np.exp(-r) - 0.5 * (np.exp(-total) + np.exp(total - 2.0 / scale))
        return kernel.variance, kernel.variance**2 * scale * inside
    raise ParameterError(f"the mass has a closed form for Trigonometric and Matern12, not {kernel}")


def mass(post: Posterior) -> float:
    """Return ∫E f² = ∫k(x, x) + Σᵢⱼ (αᵢαⱼ + Cᵢⱼ) ∫k(zᵢ, x)k(x, zⱼ), prior mean 0. [004 eqs 5.25, 5.30]"""
    assert isinstance(post.basis, Points)
    total, G = overlap(post.kernel, post.basis.Z)
    return total + float(post.alpha @ G @ post.alpha + np.sum(post.C * G))


def moments(post: Posterior, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return E f² = mean² + var and the std of f², √(2var² + 4 mean² var), at each row. (n,) each"""
    mean, variance = post.predict(X)
    variance = np.maximum(variance, 0.0)  # `predict` has warned of any below rounding
    square = mean * mean
    return square + variance, np.sqrt(2.0 * variance * (variance + 2.0 * square))


@dataclass(frozen=True, eq=False)
class Estimate:
    """The process after some sweeps, whose square over its mass is the density."""

    prior: Prior
    lam: float  # λ of the kernel
    posterior: Posterior
    mass: float  # ∫E f²
    log_evidence: float | None  # None where a cavity is improper, or the family has no closed form
    n_sweeps: int
    converged: bool

    def density(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return h(x) and its standard deviation at rows in the unit box. (n,) each [004 eq. 5.24]"""
        value, deviation = moments(self.posterior, X)
        return value / self.mass, deviation / self.mass


def left_out(post: Posterior, X: np.ndarray) -> np.ndarray:
    """Return E f(x)² of each row given all others, NaN if it has no cavity. (n,) [004 eq. 4.36]"""
    Phi, (mean, total) = post.features(X), post.predict(X)
    s = row_squares(Phi @ post.A)
    scale = 1.0 / (1.0 + post.sites.tau * (total - s))
    tau, nu = scale * post.sites.tau, scale * post.sites.nu
    left = 1.0 - tau * s
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(left > 0.0, ((mean - nu * s) / left) ** 2 + s / left + total - s, np.nan)


def uniform_start(times: np.ndarray, total: float) -> Sites:
    """Return Laplace's sites of the uniform density f = √total, which choose f and not -f."""
    return Sites(2.0 * times / total, 4.0 * times / sqrt(total), None, 1.0)


def prior_start(times: np.ndarray) -> Sites:
    """Return sites that change the prior only by a tilt exp(Σ f/n), which decides between f and -f."""
    return Sites(np.zeros(len(times)), times / np.sum(times), None, 1.0)


def sweeps(
    prior: Prior,
    X: np.ndarray,
    times: np.ndarray | None = None,
    *,
    basis: Basis | None = None,
    lam: float | None = None,
    hold: bool = False,
    start: Sites | None = None,
    damping: float = 0.5,
    convergence: float = 1e-6,
) -> Iterator[Estimate]:
    """Yield the estimate after each sweep over rows X (n, d) of the unit box, with weights `times` (n,).

    [004 §5.3] It never ends by itself. `start` gives the first sites and with them the sign of f, `lam` the
    first λ, or with `hold` the only one. f² is not log-concave, and rows about a zero of f may oscillate: a
    sweep that leaves no proper process is repeated with half the damping, and every ENOUGH_SWEEPS sweeps
    halve it. `converged` says that the last sweep, undamped, would have moved less than the share
    `convergence` of the mass from one place to another, and that 2n/λ = ∫E f² to the same share.
    """
    X = np.ascontiguousarray(X, dtype=float)
    if X.ndim != 2 or not np.all((X >= 0.0) & (X <= 1.0)):
        raise ShapeError("the rows of a density must have two dimensions and lie in the unit box; scale them")
    times = np.ones(len(X)) if times is None else times
    n = float(np.sum(times))
    if lam is None:
        lam = prior.settled(n) if isinstance(prior, Fourier) else 1.0
    basis = prior.basis() if basis is None else basis
    sites = uniform_start(times, 2.0 * n / lam) if start is None else start
    post, before = None, None
    while True:
        with blas_for(len(basis)):
            if post is None:
                post = from_sites(prior.kernel(lam), basis, sites, X)
            try:
                new = expectation_propagation(
                    post.kernel, Squared(), X, times, sweeps=1, damping=damping, start=post
                )
                total = mass(new)
                if not 0.0 < total <= MOST_GROWTH * mass(post):
                    raise FactorisationError(f"the process has the mass {total:.3g}, which is rounding")
            except (FactorisationError, NonFiniteError):
                damping *= 0.5
                if damping < LEAST_DAMPING:
                    raise
                seen = max(post.sites.n_sweeps, 1)  # the very first sweep would not be damped
                post = replace(post, sites=replace(post.sites, n_sweeps=seen))
                continue
        evidence = None
        if isinstance(prior, Fourier) and new.log_evidence is not None:
            evidence = prior.log_evidence(new.log_evidence, lam, n)
        logs = np.log(moments(new, X)[0] / total)
        moved = np.inf  # ½∫|h - h'|
        if before is not None:
            moved = 0.5 * float(times @ np.abs(logs - before)) / (n * damping)
        settled = moved <= convergence and (hold or abs(0.5 * lam * total / n - 1.0) <= convergence)
        yield Estimate(prior, lam, new, total, evidence, new.sites.n_sweeps, settled)
        if new.sites.n_sweeps % ENOUGH_SWEEPS == 0:
            damping = max(0.5 * damping, LEAST_DAMPING)
        post, before = new, logs
        if hold:
            continue
        following, c = prior.next(lam, total, n)
        stretched = replace(new.sites, tau=new.sites.tau / c**2, nu=new.sites.nu / c)
        with suppress(FactorisationError), blas_for(len(basis)):  # sites of λ < 0 need the wider prior now
            post = from_sites(prior.kernel(following), basis, stretched, X)
            lam = following


def estimate(
    prior: Prior, X: np.ndarray, times: np.ndarray | None = None, *, limit: int = 100, **options: Any
) -> Estimate:
    """Return the estimate to which `sweeps` converge, or that after `limit` sweeps."""
    for reached in sweeps(prior, X, times, **options):
        if reached.converged or reached.n_sweeps >= limit:
            break
    return reached
