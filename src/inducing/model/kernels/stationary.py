"""Kernels of the scaled distance s = Σ (x - z)² / ℓ²: RBF, Matérn, rational quadratic."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ...numerics.arrays import Array, asarray_like, is_numpy, namespace, once, to_numpy, worth_compiling
from ...numerics.special import special
from ...numerics.workers import interruptible
from .base import Gradients, Kernel, as_parameter, per_input
from .distances import FAR_OUT, Exponents, squared_distances, within_reach

MOST_SMOOTH = 100.0  # of ν: K_ν overflows beyond
ORDER_STEP = 2e-3  # of differences in ν, relative to ν
PER_ROOT = 32  # cost of a profile at one distance, in multiplications, about


@dataclass(frozen=True, eq=False)
class Stationary(Kernel):
    """variance · g(s) with s = Σ_k (x_k - z_k)² / ℓ_k². A scalar lengthscale is shared by all inputs.

    A subclass only defines g (`_profile`) and W = -2 dK/ds (`_slope`). Everything else follows:
    dK/dz_k = W (x_k - z_k)/ℓ_k² and dK/dℓ_k = W (x_k - z_k)²/ℓ_k³, so gradients need only WᵀX and sums of W.
    """

    names: ClassVar[tuple[str, ...]] = ("lengthscale", "variance")
    per_input_names: ClassVar[tuple[str, ...]] = ("lengthscale",)
    lengths: ClassVar[tuple[str, ...]] = ("lengthscale",)
    _needs_distances: ClassVar[bool] = True  # whether `_slope` looks at s

    lengthscale: Any = 1.0
    variance: Any = 1.0
    columns: tuple[int, ...] | None = field(default=None, kw_only=True)

    def _profile(self, s: Array) -> Array:
        """Return variance · g(s), which may overwrite s."""
        raise NotImplementedError

    def _slope(self, s: Array, K: Array) -> Array:
        """Return W = -2 dK/ds. (n, m)"""
        raise NotImplementedError

    def scales(self, X: Array) -> Array:
        """Return the lengthscale of each input, on X's device. (d,)"""
        return per_input("lengthscale", self.lengthscale, X)

    def scaled(self, X: Array) -> Array:
        """Return the selected columns of X over their lengthscales. (n, d)"""
        X = self._select(X)
        return X / self.scales(X)

    def triangle(self, X: Array, out: Array | None = None, rows: slice | None = None) -> Array:
        if not self._by_loops(X):
            return super().triangle(X, out, rows)
        from .triangle_loops import triangle

        K = np.empty((len(X), len(X))) if out is None else out
        first, last, _ = (rows or slice(None)).indices(len(X))
        Xt = np.ascontiguousarray(self.scaled(X[:last]).T)
        for rows in interruptible(last - first, last * (len(Xt) + PER_ROOT)):
            ends = first + rows.start, first + rows.stop
            triangle(Xt, self.in_loops, *ends, K)
        return K

    def triangle_pullback(self, X: Array, Kbar: Array, rows: slice | None = None) -> Gradients:
        if not self._by_loops(X):
            return super().triangle_pullback(X, Kbar, rows)
        from .triangle_loops import triangle_pullback

        first, last, _ = (rows or slice(None)).indices(len(X))
        Xt = np.ascontiguousarray(self.scaled(X[:last]).T)
        sums, space = np.zeros(len(Xt) + 2), np.empty((2, last))
        for rows in interruptible(last - first, last * (3 * len(Xt) + PER_ROOT)):
            ends = first + rows.start, first + rows.stop
            triangle_pullback(Xt, self.in_loops, *ends, Kbar, space, sums)
        return self.from_sums(sums[:-2] / self.scales(self._select(X)), sums[-2], sums[-1])

    @property
    def in_loops(self) -> tuple[int, float, float]:
        """The kernel as compiled loops take it: the number of its profile, variance and shape."""
        return PROFILES[type(self)], float(self.variance), float(getattr(self, "shape", 1.0))

    def from_sums(self, lengths: Array, total: Array, shape: Array) -> Gradients:
        """Return dJ/dparameters from dJ/dℓ of each input, Σ K̄∘K, and Σ K̄∘K d(log g)/dshape."""
        lengthscale = as_parameter(lengths, self.lengthscale)
        gradients = {"lengthscale": lengthscale, "variance": total / self.variance}
        return gradients | ({"shape": shape} if "shape" in self.names else {})

    def grams(self, X: Array) -> Array:
        return self._profile(self._squares_within(X)[1])

    def grams_pullback(self, X: Array, Kbar: Array) -> Gradients:
        xp = namespace(X)
        U, s = self._squares_within(X)
        if not within_reach(FAR_OUT, U.reshape(-1, U.shape[-1])):
            return super().grams_pullback(X, Kbar)
        K = self._profile(xp.asarray(s, copy=True))
        gradients = self._profile_gradients(s, K, Kbar)
        gradients["variance"] = _total(Kbar, K) / self.variance
        Kbar *= self._slope(s, K)
        one = xp.ones_like(U[..., :1])
        rows = Kbar @ xp.concat([U, one], axis=-1)  # Σ W_ij (u_i - u_j)² from W U, W 1 and 1ᵀW
        both = rows[..., -1:] + xp.matrix_transpose(Kbar) @ one
        squares = xp.sum(both * U * U - 2.0 * U * rows[..., :-1], axis=(0, 1))
        lengthscale = as_parameter(squares / self.scales(U[0]), self.lengthscale)
        return gradients | {"lengthscale": lengthscale}

    def _squares_within(self, X: Array) -> tuple[Array, Array]:
        """Return rows less the first of their set, in lengthscales (k, b, d), and squared distances."""
        X = X if self.columns is None else X[..., list(self.columns)]
        U = (X - X[:, :1]) / self.scales(X[0])
        return U, squared_distances(U, U)

    def _by_loops(self, X: Array) -> bool:
        return type(self) in PROFILES and is_numpy(X) and worth_compiling(len(X) ** 2)

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        return self._profile(squared_distances(X, Z, out, scale=1.0 / self.scales(X)))

    def _pullback(self, X: Array, Z: Array, Kbar: Array, K: Array | None) -> tuple[Gradients, Array]:
        xp, form = namespace(X), once(type(self).exponents, self, Z)
        s = squared_distances(X, Z, scale=form.scale) if self._needs_distances or K is None else None
        if K is None:
            K = self._profile(xp.asarray(s, copy=True))
        s = s if self._needs_distances else None
        gradients = self._profile_gradients(s, K, Kbar)
        if s is not None:
            gradients["variance"] = _total(Kbar, K) / self.variance
        W = Kbar
        W *= self._slope(s, K)
        U = form.v if X is Z else form.within(X)
        if not within_reach(FAR_OUT, U, form.reach):
            lengthscale, Zbar = self._by_differences(X, Z, 1.0 / form.scale, W)
        else:
            lengths, Zbar = self._from_moments(form.v, form.scale, *_moments(W, U))
            lengthscale = as_parameter(lengths, self.lengthscale)
        gradients["lengthscale"] = lengthscale
        if s is None:  # W = K̄∘K
            gradients["variance"] = xp.sum(W) / self.variance
        return gradients, Zbar

    def exponents(self, Z: Array) -> Exponents:
        """Return the form of -s/2 for basis rows Z."""
        return Exponents.of(Z, self.scales(Z), 0.0)

    def from_moments(self, form: Exponents, moments: Array, sums: Array) -> tuple[Gradients, Array]:
        """Return dJ/dparameters and dJ/dZ from `moments`, Wᵀ[u, …, 1] (m, d + 2), and `sums` (d + 2,):
        Σ_ij W_ij u_i², Σ K̄∘K and its derivative in the shape.
        """
        WX, columns = moments[:, : form.v.shape[1]], moments[:, -1:]
        lengths, Zbar = self._from_moments(form.v, form.scale, WX, columns, sums[:-2])
        return self.from_sums(lengths, sums[-2], sums[-1]), Zbar

    def _from_moments(
        self, Z: Array, scale: Array, WX: Array, columns: Array, WX2: Array
    ) -> tuple[Array, Array]:
        """Return dJ/dℓ by input and dJ/dZ from `_moments` of W; x and z are about one centre, over ℓ."""
        xp = namespace(Z)
        Zbar = WX - columns * Z
        per_scale = (WX2 - xp.sum(Z * (WX + Zbar), axis=0)) * scale  # Σ W (x - z)²/ℓ³
        return per_scale, Zbar * scale

    def _by_differences(self, X: Array, Z: Array, scales: Array, W: Array) -> tuple[Array, Array]:
        """Return dJ/dlengthscale and dJ/dZ for rows so far out that sums of moments would cancel."""
        xp, Zbar, per_scale = namespace(W), [], []
        for k in range(X.shape[1]):
            u = (X[:, k, None] - Z[None, :, k]) / scales[k]
            Wu = W * u
            Zbar.append(xp.sum(Wu, axis=0) / scales[k])
            per_scale.append(xp.sum(Wu * u) / scales[k])
        return as_parameter(xp.stack(per_scale), self.lengthscale), xp.stack(Zbar, axis=1)

    def _profile_gradients(self, s: Array, K: Array, Kbar: Array) -> Gradients:
        """Return dJ/d(parameters of g) other than lengthscale and variance."""
        return {}


def _moments(W: Array, X: Array) -> tuple[Array, Array, Array]:
    """Return WᵀX (m, d), Wᵀ1 (m, 1) and Σ_ij W_ij x_ik² (d,); on a GPU by one pass over W."""
    xp = namespace(W)
    one = xp.ones_like(X[:, :1])
    if is_numpy(W):
        moments = W.T @ np.concatenate([X, one], axis=1)
        return moments[:, :-1], moments[:, -1:], (W @ np.ones(W.shape[1])) @ (X * X)
    moments, d = W.T @ xp.concat([X, one, X * X], axis=1), X.shape[1]
    return moments[:, :d], moments[:, d : d + 1], xp.sum(moments[:, d + 1 :], axis=0)


def _total(A: Array, B: Array) -> Array:
    """Return Σ A∘B."""
    if is_numpy(A):
        return np.vdot(A, B)
    return namespace(A).sum(A * B)


@dataclass(frozen=True, eq=False)
class RBF(Stationary):
    """variance · exp(-s/2), the squared exponential."""

    _needs_distances: ClassVar[bool] = False

    def _profile(self, s: Array) -> Array:
        return self.variance * namespace(s).exp(-0.5 * s)

    def _matrix(self, X: Array, Z: Array, out: Array | None) -> Array:
        form = once(type(self).exponents, self, Z)
        E = form.matrix(X, out, digits=X is Z)  # a Gram matrix will be factorised
        if X is Z and is_numpy(E):
            np.fill_diagonal(E, np.log(self.variance))
        return namespace(E).exp(E, out=E)

    def exponents(self, Z: Array) -> Exponents:
        """Return the form of log k(x, z), variance included, for basis rows Z."""
        return Exponents.of(Z, self.scales(Z), float(np.log(self.variance)))

    def _slope(self, s: Array, K: Array) -> Array:
        return K


@dataclass(frozen=True, eq=False)
class Matern12(Stationary):
    """variance · exp(-√s), the Ornstein-Uhlenbeck kernel; its derivative is taken as 0 at equal inputs."""

    def _profile(self, s: Array) -> Array:
        xp = namespace(s)
        return self.variance * xp.exp(-xp.sqrt(s))

    def _slope(self, s: Array, K: Array) -> Array:
        xp = namespace(s)
        r = xp.sqrt(s)
        apart = r > 1e-7  # nearer than that, points coincide to rounding
        return xp.where(apart, K / xp.where(apart, r, xp.ones_like(r)), xp.zeros_like(r))


@dataclass(frozen=True, eq=False)
class Matern32(Stationary):
    """variance · (1 + √(3s)) exp(-√(3s))."""

    def _profile(self, s: Array) -> Array:
        xp = namespace(s)
        r = xp.sqrt(3.0 * s)
        return self.variance * (1.0 + r) * xp.exp(-r)

    def _slope(self, s: Array, K: Array) -> Array:
        xp = namespace(s)
        return 3.0 * self.variance * xp.exp(-xp.sqrt(3.0 * s))


@dataclass(frozen=True, eq=False)
class Matern52(Stationary):
    """variance · (1 + √(5s) + 5s/3) exp(-√(5s))."""

    def _profile(self, s: Array) -> Array:
        xp = namespace(s)
        r = xp.sqrt(5.0 * s)
        return self.variance * (1.0 + r + r * r / 3.0) * xp.exp(-r)

    def _slope(self, s: Array, K: Array) -> Array:
        xp = namespace(s)
        r = xp.sqrt(5.0 * s)
        return self.variance * (5.0 / 3.0) * (1.0 + r) * xp.exp(-r)


@dataclass(frozen=True, eq=False)
class RationalQuadratic(Stationary):
    """variance · (1 + s/(2a))^(-a): a mixture of RBFs whose shape parameter a is called `shape`."""

    names: ClassVar[tuple[str, ...]] = ("lengthscale", "variance", "shape")

    shape: Any = 1.0

    def _profile(self, s: Array) -> Array:
        xp = namespace(s)
        return self.variance * xp.exp(-self.shape * xp.log1p(s / (2.0 * self.shape)))

    def _slope(self, s: Array, K: Array) -> Array:
        return K / (1.0 + s / (2.0 * self.shape))

    def _profile_gradients(self, s: Array, K: Array, Kbar: Array) -> Gradients:
        xp = namespace(s)
        t = s / (2.0 * self.shape)
        dlogK = t / (1.0 + t) - xp.log1p(t)
        return {"shape": xp.sum(Kbar * K * dlogK)}


@dataclass(frozen=True, eq=False)
class Matern(Stationary):
    """variance · 2^(1-ν)/Γ(ν) z^ν K_ν(z) with z = √(2νs) and any `nu` = ν, which can be learned. [002]

    For ν = ½, 3/2 and 5/2 `Matern12`, `Matern32` and `Matern52` are quicker; ν → ∞ is the RBF, and any ν
    above 100 counts as 100. For ν ≤ 1 the slope is taken as 0 at equal inputs.
    """

    names: ClassVar[tuple[str, ...]] = ("lengthscale", "variance", "nu")

    nu: Any = 1.5

    @property
    def _order(self) -> float:
        return min(float(self.nu), MOST_SMOOTH)

    def _profile(self, s: Array) -> Array:
        return asarray_like(self.variance * np.exp(_log_matern(to_numpy(s), self._order)), s)

    def _slope(self, s: Array, K: Array) -> Array:
        nu, z = self._order, np.sqrt(2.0 * self._order * to_numpy(s))
        apart = z > 1e-7
        at = np.where(apart, z, 1.0)
        # -dg/dz = c z^ν K_(ν-1)(z), and ds = z dz/ν
        bessel = special(np).kve(abs(nu - 1.0), at)
        log_slope = _log_matern_constant(nu) + (nu - 1.0) * np.log(at) + np.log(bessel) - at
        near = nu / (nu - 1.0) if nu > 1.0 else 0.0
        return asarray_like(self.variance * np.where(apart, 2.0 * nu * np.exp(log_slope), near), s)

    def _profile_gradients(self, s: Array, K: Array, Kbar: Array) -> Gradients:
        # K_ν has no closed derivative in ν: differences of fourth order
        nu, h = self._order, ORDER_STEP * self._order
        distances = to_numpy(s)
        near, far = (
            (_log_matern(distances, nu + k * h) - _log_matern(distances, nu - k * h)) / (2 * k * h)
            for k in (1, 2)
        )
        slope = (4.0 * near - far) / 3.0 * (nu == float(self.nu))
        return {"nu": namespace(s).sum(Kbar * K * asarray_like(slope, s))}


def _log_matern(s: np.ndarray, nu: float) -> np.ndarray:
    """Return the log of the Matérn profile of unit variance."""
    z = np.sqrt(2.0 * nu * s)
    at = np.maximum(z, 1e-12)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        value = _log_matern_constant(nu) + nu * np.log(at) + np.log(special(np).kve(nu, at)) - at
    early = -(z**2) / (4.0 * (nu - 1.0)) if nu > 1.0 else np.zeros_like(z)  # where K_ν(z) overflows
    return np.where(
        np.isfinite(value) & (z > 1e-12), np.minimum(value, 0.0), np.where(z < 1.0, early, -np.inf)
    )


def _log_matern_constant(nu: float) -> float:
    return float((1.0 - nu) * np.log(2.0) - special(np).gammaln(nu))


# the number of each profile g in compiled loops
PROFILES: dict[type[Kernel], int] = {RBF: 0, Matern12: 1, Matern32: 2, Matern52: 3, RationalQuadratic: 4}
LINEAR: int = len(PROFILES)  # the number of a linear kernel
