"""Parameters as one vector of unconstrained variables, and gradients on their way back.

Positive parameters travel as logarithms, those above or below a number as that of the distance to it, those
between two numbers as log (v - low)/(high - v), points and centres in units of the inputs' spread, a
projection's matrix in units of its inverse. Widths travel as log(2s²/ℓ² - 1), so they stay legal while ℓ
moves; holding that ratio is what "hyperparameters" alone means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError, UnknownNameError, require_one_of
from ..model.bases import Basis, Multiscale
from ..model.kernels.averaged import Averaged
from ..model.kernels.base import Kernel
from ..model.kernels.changed import OfFeatures, Projected
from ..model.kernels.codes import code_columns
from ..model.kernels.stationary import RBF, Stationary
from ..model.likelihoods import Likelihood
from ..model.means import Mean
from ..model.problem import NoiseByLevel

LEAST_RATIO, MOST_RATIO = -9.0, 14.0  # of log(2s²/ℓ² - 1): widths from 1.00006 ℓ/√2 to 775 ℓ
LEAST_AVERAGED = 0.05  # lengthscale over spread where inputs are averaged: below, an average knows nothing
LOGS = -12.0, 12.0  # of variables that are infinite at a bound
PLACES = ("basis.Z", "basis.centers")
OPTIMIZE = ("all", "hyperparameters", "basis")


class Parameters(NamedTuple):
    """All that an optimisation may move, in NumPy; noise is a number, one per row or level, a likelihood."""

    kernel: Kernel
    basis: Basis
    noise: Any
    mean: Mean

    def raw(self) -> dict[str, Any]:
        """Every parameter by its path: "kernel.lengthscale", "basis.Z", "noise", "mean.value", and so on."""
        values = {f"kernel.{k}": v for k, v in self.kernel.parameters.items()}
        values |= {f"basis.{k}": v for k, v in self.basis.parameters.items()}
        if isinstance(self.noise, Likelihood):
            values |= {f"likelihood.{k}": v for k, v in self.noise.parameters.items()}
        else:
            values["noise"] = self.noise.values if isinstance(self.noise, NoiseByLevel) else self.noise
        return values | {f"mean.{k}": v for k, v in self.mean.parameters.items()}

    def with_raw(self, raw: Mapping[str, Any]) -> Parameters:
        """The same objects with parameters from such a dictionary."""
        if isinstance(self.noise, Likelihood):
            learned = {k: v if np.ndim(v) else float(v) for k, v in _under("likelihood.", raw).items()}
            noise: Any = self.noise.with_parameters(learned)
        else:
            noise = float(raw["noise"]) if np.ndim(raw["noise"]) == 0 else raw["noise"]
            noise = replace(self.noise, values=noise) if isinstance(self.noise, NoiseByLevel) else noise
        kernel = self.kernel.with_parameters(_under("kernel.", raw))
        basis = self.basis.with_parameters(_under("basis.", raw))
        return Parameters(kernel, basis, noise, self.mean.with_parameters(_under("mean.", raw)))


@dataclass(frozen=True, eq=False)
class Summary:
    """The moments of the data that bounds and units are taken from."""

    n: int
    spread: np.ndarray  # (d,), of the inputs, positive
    low: np.ndarray
    high: np.ndarray
    target_variance: float
    widest: float = 1e4  # the greatest variance of a kernel, over that of the targets


class Transform(NamedTuple):
    """A parameter's way to a free variable: encode, decode, and the slope of decode at a value."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    bounds: tuple[float, float] | None = None  # of the variable; None leaves them to the data


LOG = Transform(np.log, np.exp, lambda v: v)


def _scaled(unit: Any, bounds: tuple[float, float] | None = (-np.inf, np.inf)) -> Transform:
    return Transform(lambda v: v / unit, lambda x: x * unit, lambda v: unit, bounds)


def _between(low: float, high: float) -> Transform:
    """A parameter between two numbers, either or both of which may be infinite."""
    if not np.isfinite(low) and not np.isfinite(high):
        return _scaled(1.0)
    if not np.isfinite(high):
        return Transform(lambda v: np.log(v - low), lambda x: low + np.exp(x), lambda v: v - low, LOGS)
    if not np.isfinite(low):
        return Transform(lambda v: np.log(high - v), lambda x: high - np.exp(x), lambda v: v - high, LOGS)
    return Transform(
        lambda v: np.log((v - low) / (high - v)),
        lambda x: low + (high - low) / (1.0 + np.exp(-x)),
        lambda v: (v - low) * (high - v) / (high - low),
        LOGS,
    )


class Packing:
    """The parameters that move, their transforms and their bounds.

    `fixed` names parameters to hold, or prefixes of their names; `movable` is a mask (m,) of the basis
    functions that may move. Noise given per row is held.
    """

    def __init__(
        self,
        parameters: Parameters,
        summary: Summary,
        *,
        optimize: str = "all",
        fixed: Sequence[str] = (),
        movable: Any = None,
        noise_floor: float = 1e-6,
    ) -> None:
        self.origin, self.raw = parameters, parameters.raw()
        self.summary, self.spread, self.noise_floor = summary, summary.spread, noise_floor
        self.movable = _as_mask(movable, len(parameters.basis))
        self.codes = code_columns(parameters.kernel)  # levels of categories are no places to move in
        self.transforms = {name: self._transform(name) for name in self.raw}
        self.positive = [name for name, transform in self.transforms.items() if transform is LOG]
        held = self._held(optimize, fixed)
        self.names = [name for name in self.raw if name not in held]  # in the order of the vector
        parts = {name: self._encoded(name) for name in self.names}
        ends = np.cumsum([0, *map(len, parts.values())])
        self.slices = {name: slice(*ends[i : i + 2]) for i, name in enumerate(parts)}
        self.start = np.concatenate([*parts.values(), np.zeros(0)])
        self.units = np.concatenate([*map(self._steps, parts, parts.values()), np.zeros(0)])
        self.bounds = [bound for name, x in parts.items() for bound in self._bounds(name, x)]

    def _transform(self, name: str) -> Transform:
        kernel, noise = self.origin.kernel, self.origin.noise
        owner, _, leaf = name.partition(".")
        if owner == "basis":
            return _scaled(self.spread if name in PLACES else 1.0, None)
        if owner == "mean":
            return _scaled(1.0)
        if owner == "kernel" and leaf in kernel.unconstrained:
            return _scaled(1.0 / _columns_of(kernel, name, self.spread) if leaf.endswith("matrix") else 1.0)
        if owner == "likelihood" and leaf in noise.bounds:
            return _between(*noise.bounds[leaf])
        return LOG

    def _held(self, optimize: str, fixed: Sequence[str]) -> set[str]:
        """The names of the parameters that stay as they are."""
        require_one_of("optimize", optimize, OPTIMIZE)
        known, noise = list(self.raw), self.origin.noise
        held: set[str] = set()
        for name in fixed:
            under = {key for key in known if key == name or key.startswith(name + ".")}
            if not under:
                raise UnknownNameError(f"cannot hold {name!r} fixed: the parameters are {', '.join(known)}")
            held |= under
        if optimize != "all":
            held |= {key for key in known if key.startswith("basis.") == (optimize == "hyperparameters")}
        if isinstance(noise, Likelihood):
            return held | {f"likelihood.{name}" for name in noise.held}
        return held | ({"noise"} if not isinstance(noise, NoiseByLevel) and np.ndim(noise) else set())

    def _steps(self, name: str, x: np.ndarray) -> np.ndarray:
        """Steps of equal worth: a lengthscale for places, one for all else."""
        if name not in PLACES:
            return np.ones_like(x)
        step = _lengthscales(self.origin.kernel, self.spread) / self.spread  # (d,)
        return np.tile(step, len(x) // len(step))

    def _bounds(self, name: str, x: np.ndarray) -> list[tuple[float, float]]:
        """The bounds of each entry; those from the data are widened where it starts outside."""
        fixed = self.transforms[name].bounds
        if fixed is not None:
            return [fixed] * len(x)
        low, high = _limits(name, x, self.origin.kernel, self.summary, self.noise_floor)
        return [*zip(np.minimum(low, x), np.maximum(high, x), strict=True)]

    def _part(self, name: str, value: Any) -> np.ndarray:
        """The entries that move: all, or the movable functions' of the basis."""
        value = np.asarray(value, dtype=float)
        return value[self.movable] if name.startswith("basis.") else value

    def _encoded(self, name: str) -> np.ndarray:
        """The variables that a parameter starts from."""
        value = self._part(name, self.raw[name])
        if name == "basis.widths":
            return np.log(2.0 * value**2 / self._scales(self.raw) ** 2 - 1.0).ravel()
        return np.ravel(self.transforms[name].encode(value))

    def _scales(self, raw: Mapping[str, Any]) -> np.ndarray:
        """ℓ of each input, where the basis has widths. (d,)"""
        assert isinstance(self.origin.kernel, RBF)
        return np.broadcast_to(raw["kernel.lengthscale"], self.spread.shape)

    def values(self, x: np.ndarray) -> dict[str, Any]:
        """Every raw parameter at x, held ones included."""
        raw = dict(self.raw)
        for name, where in self.slices.items():
            if name != "basis.widths":
                before = self._part(name, raw[name])
                part = self.transforms[name].decode(x[where].reshape(before.shape))
                if name in PLACES:
                    part[:, self.codes] = before[:, self.codes]  # to the last digit
                raw[name] = self._placed(raw[name], part) if name.startswith("basis.") else part
        if isinstance(self.origin.basis, Multiscale):
            raw["basis.widths"] = self._widths(x, raw)
        return raw

    def _widths(self, x: np.ndarray, raw: Mapping[str, Any]) -> np.ndarray:
        """Widths in proportion to the lengthscales, the movable ones by their own ratio. (m, d)"""
        scales = self._scales(raw)
        widths = raw["basis.widths"] * (scales / self._scales(self.raw))
        if "basis.widths" not in self.slices:
            return widths
        ratio = x[self.slices["basis.widths"]].reshape(widths[self.movable].shape)
        return self._placed(widths, scales * np.sqrt(0.5 * (1.0 + np.exp(ratio))))

    def _placed(self, value: np.ndarray, part: np.ndarray) -> np.ndarray:
        """`value` with its movable rows replaced."""
        if np.all(self.movable):
            return part
        value = value.copy()
        value[self.movable] = part
        return value

    def unpack(self, x: np.ndarray) -> Parameters:
        return self.origin.with_raw(self.values(x))

    def gradient(self, raw: Mapping[str, Any], raw_gradient: Mapping[str, Any]) -> np.ndarray:
        """dJ/dx from dJ/d(raw parameters), which `raw` holds."""
        out = np.zeros_like(self.start)
        for name, where in self.slices.items():
            g = self._part(name, raw_gradient[name])
            if name == "basis.widths":
                s = raw[name][self.movable]
                g = g * (s - 0.5 * self._scales(raw) ** 2 / s) / 2.0  # ds/dω = (2s² - ℓ²)/(4s)
            else:
                g = g * self.transforms[name].slope(raw[name])
            if name == "kernel.lengthscale" and isinstance(self.origin.basis, Multiscale):  # widths follow ℓ
                along = np.sum(raw_gradient["basis.widths"] * raw["basis.widths"], axis=0)
                g = g + (np.sum(along) if np.ndim(raw[name]) == 0 else along)
            out[where] = np.ravel(g)
        return out

    def at_bounds(self, x: np.ndarray) -> tuple[str, ...]:
        """The parameters that ended where they may go no further, in words."""
        words = []
        for name, where in self.slices.items():
            low, high = np.array(self.bounds[where], dtype=float).reshape(-1, 2).T
            for bound, word in ((low, "least"), (high, "greatest")):
                near = np.abs(x[where] - bound) <= 1e-6 * np.maximum(1.0, np.abs(bound))
                count = np.count_nonzero(np.isfinite(bound) & near)
                if count:
                    which = "" if len(low) == 1 else f" in {count} of {len(low)} entries"
                    words.append(f"{name} at its {word}{which}")
        return tuple(words)

    def perturbed(self, rng: np.random.Generator) -> np.ndarray:
        """A random start: hyperparameters off by factors of about e, points by a third of the spread."""
        step = np.zeros_like(self.start)
        for name, where in self.slices.items():
            size = 1.0 if name in self.positive else 0.3
            step[where] = size * rng.standard_normal(where.stop - where.start)
            if name in PLACES:
                step[where].reshape(-1, len(self.spread))[:, self.codes] = 0.0
        low, high = np.array(self.bounds, dtype=float).T if self.bounds else (step, step)
        return np.clip(self.start + step, low, high)


def _limits(
    name: str, x: np.ndarray, kernel: Kernel, data: Summary, noise_floor: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds from the data: wide enough for anything sensible, tight enough to stay factorisable."""
    ones, spread, variance = np.ones_like(x), data.spread, data.target_variance
    if name in PLACES:
        width, copies = data.high - data.low + spread, len(x) // len(spread)
        low, high = data.low - width, data.high + width
        return np.tile(low / spread, copies), np.tile(high / spread, copies)
    if name == "basis.widths":
        return LEAST_RATIO * ones, MOST_RATIO * ones
    if name == "noise":
        return np.log(noise_floor * variance) * ones, np.log(100.0 * variance) * ones
    leaf = name.rsplit(".", 1)[-1]
    owner = _owner(kernel, name) if name.startswith("kernel.") else None
    stationary = isinstance(owner, Stationary | Averaged)
    if stationary and leaf == "variance":
        return np.log(1e-4 * variance) * ones, np.log(data.widest * variance) * ones
    if stationary and leaf == "lengthscale":
        spread = _columns_of(kernel, name, spread)
        if isinstance(owner, Averaged) and owner.columns is None:  # variances follow
            spread = spread[: len(spread) // 2]
        low, high = (spread, spread) if len(x) > 1 else (spread.min(), spread.max())
        least = LEAST_AVERAGED if isinstance(owner, Averaged) else 1e-3
        return np.log(least * low) * ones, np.log(1e4 * high) * ones
    return x - np.log(1e4), x + np.log(1e4)


def _owner(kernel: Kernel, name: str) -> Kernel:
    """The kernel that owns the parameter at this path."""
    for step in name.split(".")[1:-1]:
        kernel = kernel.parts[int(step)]  # type: ignore[attr-defined]
    return kernel


def _columns_of(kernel: Kernel, name: str, spread: np.ndarray) -> np.ndarray:
    """The spread of the inputs that this parameter's kernel looks at."""
    for step in name.split(".")[1:-1]:
        if isinstance(kernel, Projected):  # a sum of independent inputs
            spread = np.sqrt(kernel.matrix**2 @ _of_columns(kernel, spread) ** 2)
        if isinstance(kernel, OfFeatures):
            spread = np.concatenate([spread, np.full(len(kernel.owners), kernel.spread)])
        kernel = kernel.parts[int(step)]  # type: ignore[attr-defined]
    return _of_columns(kernel, spread)


def _of_columns(kernel: Kernel, spread: np.ndarray) -> np.ndarray:
    columns = getattr(kernel, "columns", None)
    return spread if columns is None else spread[list(columns)]


def _lengthscales(kernel: Kernel, spread: np.ndarray) -> np.ndarray:
    """The lengthscale of each input within two decades of its spread, or else the spread. (d,)"""
    if not isinstance(kernel, Stationary) or kernel.columns is not None:
        return spread
    return np.clip(np.broadcast_to(kernel.lengthscale, spread.shape), 0.01 * spread, 100.0 * spread)


def _as_mask(movable: Any, m: int) -> np.ndarray:
    """The mask of the basis functions that may move; None is all of them. (m,) of bool"""
    mask = np.ones(m, dtype=bool) if movable is None else np.asarray(movable)
    if mask.shape != (m,) or mask.dtype != bool:
        what = f"{mask.dtype} of {mask.shape}"
        raise ShapeError(f"movable must hold True or False for each of {m} basis functions, not {what}")
    return mask


def _under(prefix: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in raw.items() if name.startswith(prefix)}
