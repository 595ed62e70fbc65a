"""What an observation y says about f: log⟨p(y|f)⟩ under f ~ N(mean, var) and its derivatives in the mean.
[004 eq. 2.42]

    q = ∂/∂mean log⟨p(y|f)⟩        r = ∂²/∂mean² log⟨p(y|f)⟩

are all that online learning and expectation propagation ask of a likelihood. A new one needs only log p(y|f):
the moments of p(y|f) N(f; mean, var), by quadrature, give q = (E f - mean)/var and r = (Var f - var)/var².
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from ...errors import InducingError, LabelError, NonFiniteError, ParameterError, ShapeError, UnknownNameError
from ...numerics.quadrature import Tilted, tilted_by_quadrature
from ..kernels.base import positive


@dataclass(frozen=True)
class Likelihood:
    """p(y|f) of one observation given the latent f at its input.

    A likelihood gives `log_density`, and where f has landmarks (a location, a kink) `_landmarks`; one that is
    compiled for the inner loops of online learning and EP names its `kind` in `_likelihoods` and its
    parameters `theta`.
    """

    kind: ClassVar[int | None] = None

    @property
    def theta(self) -> np.ndarray:
        """The parameters as the compiled functions take them."""
        return np.array([getattr(self, f.name) for f in fields(self)] or [0.0], dtype=float)

    def log_density(self, y: Any, f: Any) -> np.ndarray:
        """log p(y|f), for arrays that broadcast."""
        raise NotImplementedError

    def check(self, y: Any) -> np.ndarray:
        """y as floats this likelihood knows; raises an error that names the first row it does not."""
        try:
            y = np.asarray(y, dtype=float)
        except (TypeError, ValueError) as error:
            raise LabelError(f"y must hold numbers: {error}") from error
        bad = ~np.isfinite(y)
        if np.any(bad):
            raise NonFiniteError(f"y holds NaN or infinity, first in row {_first(bad)}; remove such rows")
        return y

    def tilted(self, y: Any, mean: Any, var: Any) -> Tilted:
        """(log⟨p(y|f)⟩, q, r), each in the common shape of y, mean and var."""
        y, mean, var = (np.asarray(v, dtype=float) for v in _broadcast(self.check(y), mean, var))
        if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(var)) and np.all(var > 0)):
            raise ParameterError("the mean must be finite and the variance of f positive and finite")
        flat = y.ravel(), mean.ravel(), var.ravel()
        parts = self._compiled(*flat) if self.kind is not None else self._quadrature(*flat)
        return Tilted(*(part.reshape(y.shape) for part in parts))

    def log_average(self, y: Any, mean: Any, var: Any) -> np.ndarray:
        """log⟨p(y|f)⟩ under f ~ N(mean, var)."""
        return self.tilted(y, mean, var).log_average

    def derivatives(self, y: Any, mean: Any, var: Any) -> tuple[np.ndarray, np.ndarray]:
        """q and r: the first and second derivative of `log_average` in the mean. [004 eq. 2.42]"""
        return self.tilted(y, mean, var)[1:]

    def predict(self, mean: Any, var: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of y."""
        raise ParameterError(f"{self} does not say what mean and variance y has; ask about f instead")

    def sample(self, f: Any, rng: np.random.Generator) -> np.ndarray:
        """A draw of y for each f."""
        raise ParameterError(f"{self} does not say how to draw y; draw f instead")

    def _compiled(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        from .loops import tilt_rows

        out = np.empty((3, len(y)))
        assert self.kind is not None
        tilt_rows(self.kind, self.theta, y, mean, var, out)
        return out

    def _quadrature(self, y: np.ndarray, mean: np.ndarray, var: np.ndarray) -> Tilted:
        return tilted_by_quadrature(self.log_density, y, mean, var, self._landmarks(y))

    def _landmarks(self, y: np.ndarray) -> np.ndarray | None:
        """Values of f (n, l) between which p(y|f) is smooth on the scale of their distance."""
        return None

    def spec(self) -> dict[str, Any]:
        """A plain description that `likelihoods.from_spec` reads back."""
        return {"name": type(self).__name__} | {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """y = f + noise of this variance. [004 eq. 5.3]"""

    kind: ClassVar[int | None] = 0

    variance: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", positive("variance", self.variance, scalar=True))

    def log_density(self, y: Any, f: Any) -> np.ndarray:
        e = np.subtract(y, f)
        return -0.5 * (np.log(2.0 * np.pi * self.variance) + e * e / self.variance)

    def predict(self, mean: Any, var: Any) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(mean), np.asarray(var) + self.variance

    def sample(self, f: Any, rng: np.random.Generator) -> np.ndarray:
        return rng.normal(f, np.sqrt(self.variance))


@dataclass(frozen=True)
class Binary(Likelihood):
    """Two classes, labels -1 and +1, with p(y|f) = p(+1|yf)."""

    def check(self, y: Any) -> np.ndarray:
        y = super().check(y)
        bad = np.abs(y) != 1.0
        if np.any(bad):
            raise LabelError(f"labels must be -1 or +1, but row {_first(bad)} has {y[bad][0]:g}")
        return y

    def probability(self, mean: Any, var: Any) -> np.ndarray:
        """⟨p(+1|f)⟩, the probability of the positive class. [004 eq. 5.8]"""
        return np.exp(self.log_average(1.0, mean, var))


@dataclass(frozen=True)
class Probit(Binary):
    """Φ(y f/√noise): the sign of f after Gaussian noise of this variance. [004 eqs 5.6-5.9]"""

    kind: ClassVar[int | None] = 1

    noise: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", positive("noise", self.noise, scalar=True))

    def log_density(self, y: Any, f: Any) -> np.ndarray:
        from scipy.special import log_ndtr

        return log_ndtr(np.multiply(y, f) / np.sqrt(self.noise))


@dataclass(frozen=True)
class Step(Binary):
    """1 - flip where y agrees with the sign of f, else flip: noiseless classes with a share of wrong labels.
    [004 §2.6]
    """

    kind: ClassVar[int | None] = 2

    flip: float = 0.0

    def __post_init__(self) -> None:
        value = _number("flip", self.flip)
        if not 0.0 <= value < 0.5:
            raise ParameterError(
                f"flip is the share of wrong labels and must lie in [0, 0.5), but is {self.flip}"
            )
        object.__setattr__(self, "flip", value)

    def log_density(self, y: Any, f: Any) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(np.where(np.multiply(y, f) > 0, 1.0 - self.flip, self.flip))


@dataclass(frozen=True)
class Logistic(Binary):
    """1/(1 + exp(-y f))."""

    kind: ClassVar[int | None] = 3

    def log_density(self, y: Any, f: Any) -> np.ndarray:
        return -np.logaddexp(0.0, -np.multiply(y, f))


@dataclass(frozen=True)
class Laplace(Likelihood):
    """exp(-|y - f|/scale)/(2 scale): noise with heavier tails than a Gaussian's."""

    kind: ClassVar[int | None] = 4

    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive("scale", self.scale, scalar=True))

    def log_density(self, y: Any, f: Any) -> np.ndarray:
        return -np.abs(np.subtract(y, f)) / self.scale - np.log(2.0 * self.scale)

    def predict(self, mean: Any, var: Any) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(mean), np.asarray(var) + 2.0 * self.scale**2

    def sample(self, f: Any, rng: np.random.Generator) -> np.ndarray:
        return rng.laplace(f, self.scale)


@dataclass(frozen=True)
class StudentT(Likelihood):
    """Student's t with df degrees of freedom and this scale about f: an outlier's pull fades instead of
    growing.

    Not log-concave: far from the mean r > 0, and an observation can widen the process.
    """

    kind: ClassVar[int | None] = 5

    df: float = 4.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("df", "scale"):
            object.__setattr__(self, name, positive(name, getattr(self, name), scalar=True))

    def log_density(self, y: Any, f: Any) -> np.ndarray:
        from scipy.special import gammaln

        constant = (
            gammaln(0.5 * (self.df + 1))
            - gammaln(0.5 * self.df)
            - np.log(np.sqrt(np.pi * self.df) * self.scale)
        )
        e = np.subtract(y, f) / self.scale
        return constant - 0.5 * (self.df + 1) * np.log1p(e * e / self.df)

    def _landmarks(self, y: np.ndarray) -> np.ndarray:
        return y[:, None] + self.scale * np.array([-32.0, -8.0, -2.0, 0.0, 2.0, 8.0, 32.0])

    def predict(self, mean: Any, var: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of y; the variance is infinite up to df = 2."""
        noise = self.scale**2 * self.df / (self.df - 2.0) if self.df > 2.0 else np.inf
        return np.asarray(mean), np.asarray(var) + noise

    def sample(self, f: Any, rng: np.random.Generator) -> np.ndarray:
        return f + self.scale * rng.standard_t(self.df, np.shape(f))


@dataclass(frozen=True)
class Poisson(Likelihood):
    """Counts with rate exp(f)."""

    kind: ClassVar[int | None] = 6

    def check(self, y: Any) -> np.ndarray:
        y = super().check(y)
        bad = (y < 0) | (y != np.floor(y))
        if np.any(bad):
            raise LabelError(
                f"counts must be whole numbers from 0 on, but row {_first(bad)} has {y[bad][0]:g}"
            )
        return y

    def log_density(self, y: Any, f: Any) -> np.ndarray:
        from scipy.special import gammaln

        with np.errstate(over="ignore"):
            return np.multiply(y, f) - np.exp(f) - gammaln(np.add(y, 1.0))

    def _landmarks(self, y: np.ndarray) -> np.ndarray:
        width = 1.0 / np.sqrt(y + 0.5)
        return (np.log(y + 0.5)[:, None]) + width[:, None] * np.array([-8.0, -2.0, 0.0, 2.0, 8.0])

    def predict(self, mean: Any, var: Any) -> tuple[np.ndarray, np.ndarray]:
        rate = np.exp(np.add(mean, 0.5 * np.asarray(var)))
        return rate, rate + rate * rate * np.expm1(var)

    def sample(self, f: Any, rng: np.random.Generator) -> np.ndarray:
        return rng.poisson(np.exp(f)).astype(float)


@dataclass(frozen=True)
class Squared(Likelihood):
    """f^2y for an input seen y times, where f² is a density up to its mass; y need not be whole. [004 §5.3]

    q = 2 mean/(mean² + var) and r = 2(var - mean²)/(mean² + var)² at y = 1: a mean of 0 stays 0, and r > 0
    about it.
    """

    kind: ClassVar[int | None] = 7

    def check(self, y: Any) -> np.ndarray:
        y = super().check(y)
        bad = y <= 0
        if np.any(bad):
            raise LabelError(
                f"y is how often an input was seen and must be positive, but row {_first(bad)} has "
                f"{y[bad][0]:g}"
            )
        return y

    def log_density(self, y: Any, f: Any) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return 2.0 * np.multiply(y, np.log(np.abs(f)))


@dataclass(frozen=True)
class Custom(Likelihood):
    """Any p(y|f), given as function(y, f) -> log p(y|f) on arrays that broadcast; averages are by quadrature.

    `landmarks(y)` may name values of f (n, l) where p(y|f) peaks or bends more sharply than the prior of f;
    without them a peak much narrower than the prior can be overlooked.
    """

    function: Callable[[np.ndarray, np.ndarray], np.ndarray]
    landmarks: Callable[[np.ndarray], np.ndarray] | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ParameterError(f"Custom needs a function(y, f) giving log p(y|f), not {self.function!r}")

    def log_density(self, y: Any, f: Any) -> np.ndarray:
        value = np.asarray(self.function(y, f), dtype=float)
        shape = np.broadcast_shapes(np.shape(y), np.shape(f))
        if value.shape != shape:
            raise ShapeError(
                f"the log density of arrays with shape {shape} came back with shape {value.shape}"
            )
        return value

    def _landmarks(self, y: np.ndarray) -> np.ndarray | None:
        return None if self.landmarks is None else np.reshape(self.landmarks(y), (len(y), -1)).astype(float)

    def spec(self) -> dict[str, Any]:
        raise ParameterError(
            "a Custom likelihood is a function and has no plain description; save its parameters yourself"
        )


BY_NAME: dict[str, type[Likelihood]] = {
    kind.__name__.lower(): kind
    for kind in (Gaussian, Probit, Step, Logistic, Laplace, StudentT, Poisson, Squared)
}


def from_spec(spec: Mapping[str, Any]) -> Likelihood:
    """The likelihood that `likelihood.spec()` described. Reads plain data only."""
    if not isinstance(spec, Mapping) or not isinstance(spec.get("name"), str):
        raise ParameterError(f"a likelihood's spec must be a dictionary with a name, not {spec!r}")
    kind = BY_NAME.get(spec["name"].lower())
    if kind is None:
        raise UnknownNameError(f"there is no likelihood {spec['name']!r}; known are {', '.join(BY_NAME)}")
    values = {key: value for key, value in spec.items() if key != "name"}
    known = [f.name for f in fields(kind)]
    unknown = [key for key in values if key not in known]
    if unknown:
        raise UnknownNameError(f"{kind.__name__} has no parameter {unknown}; it has {known}")
    try:
        return kind(**values)
    except InducingError:
        raise
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{kind.__name__} cannot be made from {values}: {error}") from error


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be a number, but is {value!r}") from error


def _first(bad: np.ndarray) -> int:
    """The row of the first True."""
    return int(np.argwhere(bad)[0][0]) if bad.ndim else 0


def _broadcast(*values: Any) -> list[np.ndarray]:
    try:
        return list(np.broadcast_arrays(*values))
    except ValueError as error:
        shapes = [np.shape(v) for v in values]
        raise ShapeError(f"y, mean and variance have shapes {shapes}, which do not go together") from error
