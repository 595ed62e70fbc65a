"""Likelihoods of shares, numbers between 0 and 1."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from ...numerics.arrays import Array, namespace
from ...numerics.quadrature import Feature
from ...numerics.special import log_sigmoid, special, stirling
from .base import Likelihood, one_namespace, refuse
from .classes import Logistic


@dataclass(frozen=True)
class Beta(Likelihood):
    """Beta distributed shares with mean μ = 1/(1 + exp(-f)) and variance μ(1 - μ)/(1 + precision)."""

    names: ClassVar[tuple[str, ...]] = ("precision",)

    precision: float = 10.0

    def _check_rows(self, y: Array, *further: Array) -> None:
        wrong = (y <= 0.0) | (y >= 1.0)
        refuse(y, wrong, "shares must lie between 0 and 1, but row {row} has {value:g}; move it inside")

    def log_density(self, y: Array, f: Array) -> Array:
        """-φ KL(μ || y) and what is left: with S(x) = x log x - x - log Γ(x + 1) no large numbers cancel."""
        f, y = self.split(y, f)
        xp, phi = namespace(f, y), self.precision
        log_mu, mu, nu = log_sigmoid(f)
        log_nu = log_mu - f
        distance = mu * (log_mu - xp.log(y)) + nu * (log_nu - xp.log1p(-y))
        rest = stirling(mu * phi) + stirling(nu * phi) + log_mu + log_nu - xp.log(y) - xp.log1p(-y)
        return rest - phi * distance + float(np.log(phi) - stirling(np.array(phi)))

    def log_density_slopes(self, y: Array, f: Array) -> tuple[Array, Array, Array]:
        f, y = self.split(y, f)
        xp, phi = namespace(f, y), self.precision
        _, mu, nu = log_sigmoid(f)
        functions, d = special(xp), phi * mu * nu
        digamma = functions.digamma
        pull = digamma(nu * phi + 1.0) - digamma(mu * phi + 1.0) + xp.log(y) - xp.log1p(-y)
        bend = functions.polygamma(1, nu * phi + 1.0) + functions.polygamma(1, mu * phi + 1.0)
        slope = d * pull + nu - mu
        return self.log_density(y, f), slope, d * (nu - mu) * pull - d * d * bend - 2.0 * mu * nu

    def log_density_gradient(self, y: Array, f: Array) -> dict[str, Array]:
        f, y = self.split(y, f)
        xp, phi = namespace(f, y), self.precision
        _, mu, nu = log_sigmoid(f)
        digamma = special(xp).digamma
        logs = mu * (xp.log(y) - digamma(mu * phi + 1.0)) + nu * (xp.log1p(-y) - digamma(nu * phi + 1.0))
        return {"precision": logs + float(special(np).digamma(phi + 1.0) + 1.0 / phi)}

    def _feature(self, y: Array, power: float) -> Feature:
        if power == 0.0:
            return Feature(0.0, np.pi, fine=1.0 / (1.0 + 0.4 * np.log1p(self.precision)))
        xp, a = namespace(y), power
        one, other = 1.0 / (1.0 - xp.log(y)), 1.0 / (1.0 - xp.log1p(-y))
        centre = xp.log((y * self.precision + one) / ((1.0 - y) * self.precision + other))
        bend = -self.log_density_slopes(y, centre)[2] if y.shape[0] else y
        return Feature(centre, 1.5, 1.0 / xp.sqrt(xp.maximum(a * bend, 0.04)), left=1.0, right=1.0)

    def predict(self, mean: Array, var: Array, further: Array | None = None) -> tuple[Array, Array]:
        mean, var = one_namespace(mean, var)
        xp, p = namespace(mean), Logistic()
        first, second = (xp.exp(p.log_average(1.0, mean, var, power)) for power in (1.0, 2.0))
        spread = xp.maximum(second - first**2, 0.0)
        return first, spread + (first - second) / (1.0 + self.precision)

    def sample(self, f: np.ndarray, rng: Generator, further: np.ndarray | None = None) -> np.ndarray:
        _, mu, nu = log_sigmoid(np.asarray(f, dtype=float))
        return rng.beta(np.maximum(mu * self.precision, 1e-300), np.maximum(nu * self.precision, 1e-300))

    def _conditional(self, f: np.ndarray, y: np.ndarray, *further: np.ndarray) -> np.ndarray:
        _, mu, nu = log_sigmoid(f)
        a, b = (np.maximum(part * self.precision, 1e-300) for part in (mu, nu))
        return special(np).betainc(a, b, y)

    def _observed(self, x: np.ndarray) -> np.ndarray:
        return np.clip(log_sigmoid(x)[1], 1e-300, 1.0 - 1e-16)

    def _unobserved(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.log(y) - np.log1p(-y), y * (1.0 - y)
