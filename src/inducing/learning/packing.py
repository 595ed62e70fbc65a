"""Raw parameters as one vector of unconstrained variables, and gradients on their way back.

Positive parameters travel as logarithms. Points and centres travel in units of the inputs' spread, a
projection's matrix in units of its inverse. Widths travel as log(2s²/ℓ² - 1), so they stay legal while ℓ
moves; holding that ratio is what "hyperparameters" alone means for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..engine.parts import Parted
from ..errors import ShapeError, UnknownNameError
from ..model.bases import Basis, Multiscale
from ..model.kernels.base import Kernel
from ..model.kernels.projected import Projected
from ..model.kernels.stationary import RBF, Stationary
from ..model.means import Mean
from ..model.problem import Problem
from ..numerics.arrays import to_numpy

LEAST_RATIO, MOST_RATIO = -9.0, 14.0  # of log(2s²/ℓ² - 1): widths from 1.00006 ℓ/√2 to 775 ℓ


@dataclass(eq=False)
class Packing:
    """Which parameters move, how they are transformed, and between which bounds."""

    kernel: Kernel
    basis: Basis
    noise: Any
    mean: Mean
    spread: np.ndarray  # (d,)
    movable: np.ndarray  # (m,) of bool: the basis functions that may move
    names: list[str] = field(default_factory=list)  # in the order of the vector
    positive: list[str] = field(default_factory=list)  # those travelling as logarithms, fixed ones included
    bounds: list[tuple[float, float]] = field(default_factory=list)
    start: np.ndarray = field(default_factory=lambda: np.zeros(0))
    units: np.ndarray = field(
        default_factory=lambda: np.zeros(0)
    )  # steps of equal worth: a lengthscale, for places

    @staticmethod
    def of(
        P: Problem | Parted,
        approximation: str,
        optimize: str,
        fixed: tuple[str, ...],
        *,
        spread: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
        target_variance: float,
        noise_floor: float,
        movable: Any = None,
    ) -> Packing:
        noise: Any = float(to_numpy(P.common_noise)) if P.one_noise else to_numpy(P.noise).copy()
        basis = P.basis.with_parameters({k: to_numpy(v) for k, v in P.basis.parameters.items()})
        self = Packing(P.kernel, basis, noise, P.mean, spread, _as_mask(movable, len(basis)))
        values = self._raw()
        real = {f"kernel.{name}" for name in P.kernel.unconstrained}
        self.positive = [
            name for name in values if (name.startswith("kernel.") and name not in real) or name == "noise"
        ]
        known = list(values)
        for name in fixed:
            if not any(key == name or key.startswith(name + ".") for key in known):
                raise UnknownNameError(f"cannot hold {name!r} fixed: the parameters are {', '.join(known)}")
        held = {key for key in known for name in fixed if key == name or key.startswith(name + ".")}
        if approximation in ("exact", "sod", "cg") or optimize == "hyperparameters":
            held |= {key for key in known if key.startswith("basis.")}
        if optimize == "basis":
            held |= {key for key in known if not key.startswith("basis.")}
        if not P.one_noise:
            held.add("noise")
        self.names = [key for key in known if key not in held]
        width = high - low + spread
        limits = _Limits(self.kernel, spread, low - width, high + width, target_variance, noise_floor)
        parts, units, bounds = [], [], []
        step = _lengthscales(self.kernel, spread) / spread  # (d,)
        for name in self.names:
            x = self._encode(name, values[name])
            places = name in ("basis.Z", "basis.centers")
            units.append(np.tile(step, len(x) // len(step)) if places else np.ones_like(x))
            lo, hi = (
                limits.of(name, x, spread)
                if name in self.positive or name.startswith("basis.")
                else _anything(x)
            )
            parts.append(x)
            bounds += [(min(a, v), max(b, v)) for a, b, v in zip(lo, hi, x, strict=True)]
        self.start = np.concatenate(parts) if parts else np.zeros(0)
        self.units = np.concatenate(units) if units else np.zeros(0)
        self.bounds = bounds
        return self

    def _raw(self) -> dict[str, Any]:
        values = {f"kernel.{k}": v for k, v in self.kernel.parameters.items()}
        values |= {f"basis.{k}": v for k, v in self.basis.parameters.items()}
        values["noise"] = self.noise
        return values | {f"mean.{k}": v for k, v in self.mean.parameters.items()}

    def _scales(self) -> np.ndarray:
        assert isinstance(self.kernel, RBF)
        return np.broadcast_to(self.kernel.lengthscale, self.spread.shape)

    def _unit(self, name: str) -> Any:
        """What one unit of a real parameter's variable is worth; broadcasts against the parameter."""
        if name in ("basis.Z", "basis.centers"):
            return self.spread
        if name.startswith("kernel.") and name.endswith("matrix"):
            return 1.0 / _columns_of(self.kernel, name, self.spread)
        return 1.0

    def _part(self, name: str, value: Any) -> np.ndarray:
        """The entries that move: all, or the movable functions' of the basis."""
        value = np.asarray(value, dtype=float)
        return value[self.movable] if name.startswith("basis.") else value

    def _encode(self, name: str, value: Any) -> np.ndarray:
        value = self._part(name, value)
        if name == "basis.widths":
            return np.log(2.0 * value**2 / self._scales() ** 2 - 1.0).ravel()
        return np.ravel(np.log(value) if name in self.positive else value / self._unit(name))

    def _slices(self) -> dict[str, slice]:
        raw, slices, at = self._raw(), {}, 0
        for name in self.names:
            size = np.size(self._part(name, raw[name]))
            slices[name] = slice(at, at + size)
            at += size
        return slices

    def values(self, x: np.ndarray) -> dict[str, Any]:
        """Every raw parameter at x, held ones included."""
        raw = self._raw()
        slices = self._slices()
        before = self._scales() if isinstance(self.basis, Multiscale) else None
        for name, where in slices.items():
            if name == "basis.widths":
                continue
            part = x[where].reshape(self._part(name, raw[name]).shape)
            part = np.exp(part) if name in self.positive else part * self._unit(name)
            raw[name] = self._placed(raw[name], part) if name.startswith("basis.") else part
        if before is not None:
            scales = np.broadcast_to(raw["kernel.lengthscale"], self.spread.shape)
            widths = raw["basis.widths"] * (scales / before)
            if "basis.widths" in slices:
                ratio = x[slices["basis.widths"]].reshape(widths[self.movable].shape)
                widths = self._placed(widths, scales * np.sqrt(0.5 * (1.0 + np.exp(ratio))))
            raw["basis.widths"] = widths
        return raw

    def _placed(self, value: np.ndarray, part: np.ndarray) -> np.ndarray:
        """`value` with its movable rows replaced."""
        if np.all(self.movable):
            return part
        value = value.copy()
        value[self.movable] = part
        return value

    def unpack(self, x: np.ndarray) -> tuple[Kernel, Basis, Any, Mean]:
        raw = self.values(x)
        kernel = self.kernel.with_parameters(_under("kernel.", raw))
        basis = self.basis.with_parameters(_under("basis.", raw))
        noise = float(raw["noise"]) if np.ndim(raw["noise"]) == 0 else raw["noise"]
        return kernel, basis, noise, self.mean.with_parameters(_under("mean.", raw))

    def gradient(self, x: np.ndarray, raw_gradient: dict[str, Any]) -> np.ndarray:
        """dJ/dx from dJ/d(raw parameters)."""
        raw = self.values(x)
        out = np.zeros_like(x)
        multiscale = isinstance(self.basis, Multiscale)
        for name, where in self._slices().items():
            g = self._part(name, raw_gradient[name])
            if name == "basis.widths":
                s, scales = (
                    raw[name][self.movable],
                    np.broadcast_to(raw["kernel.lengthscale"], self.spread.shape),
                )
                g = g * (s - 0.5 * scales**2 / s) / 2.0  # ds/dω = (2s² - ℓ²)/(4s)
            elif name not in self.positive:
                g = g * self._unit(name)
            elif multiscale and name == "kernel.lengthscale":  # widths move in proportion to ℓ
                along = np.sum(raw_gradient["basis.widths"] * raw["basis.widths"], axis=0)
                g = g * raw[name] + (np.sum(along) if np.ndim(raw[name]) == 0 else along)
            else:
                g = g * raw[name]
            out[where] = np.ravel(g)
        return out

    def at_bounds(self, x: np.ndarray) -> tuple[str, ...]:
        """The parameters that ended where they may go no further, in words."""
        found = []
        for name, where in self._slices().items():
            low, high = np.array(self.bounds[where], dtype=float).reshape(-1, 2).T
            for bound, word in ((low, "least"), (high, "greatest")):
                at = np.flatnonzero(
                    np.isfinite(bound) & (np.abs(x[where] - bound) <= 1e-6 * np.maximum(1.0, np.abs(bound)))
                )
                if len(at):
                    which = "" if len(low) == 1 else f" in {len(at)} of {len(low)} entries"
                    found.append(f"{name} at its {word}{which}")
        return tuple(found)

    def perturbed(self, rng: np.random.Generator, strength: float = 1.0) -> np.ndarray:
        """A random start: hyperparameters off by factors of about e, points by a third of the inputs' spread."""
        step = np.zeros_like(self.start)
        for name, where in self._slices().items():
            size = strength * (1.0 if name in self.positive else 0.3)
            step[where] = size * rng.standard_normal(where.stop - where.start)
        low, high = np.array(self.bounds, dtype=float).T if self.bounds else (step, step)
        return np.clip(self.start + step, low, high)


@dataclass(frozen=True, eq=False)
class _Limits:
    """Bounds from the data: wide enough for anything sensible, tight enough to stay factorisable."""

    kernel: Kernel
    spread: np.ndarray
    low: np.ndarray
    high: np.ndarray
    target_variance: float
    noise_floor: float

    def of(self, name: str, x: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ones = np.ones_like(x)
        if name in ("basis.Z", "basis.centers"):
            copies = len(x) // len(spread)
            return np.tile(self.low / spread, copies), np.tile(self.high / spread, copies)
        if name == "basis.widths":
            return LEAST_RATIO * ones, MOST_RATIO * ones
        if name == "noise":
            return np.log(self.noise_floor * self.target_variance) * ones, np.log(
                100.0 * self.target_variance
            ) * ones
        leaf = name.rsplit(".", 1)[-1]
        if leaf == "lengthscale" and isinstance(_owner(self.kernel, name), Stationary):
            spread = _columns_of(self.kernel, name, spread)
            lo, hi = (
                (1e-3 * spread, 1e4 * spread) if len(x) > 1 else (1e-3 * spread.min(), 1e4 * spread.max())
            )
            return np.log(lo) * ones, np.log(hi) * ones
        if leaf == "variance" and isinstance(_owner(self.kernel, name), Stationary):
            return np.log(1e-4 * self.target_variance) * ones, np.log(1e4 * self.target_variance) * ones
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
        kernel = kernel.parts[int(step)]  # type: ignore[attr-defined]
    return _of_columns(kernel, spread)


def _lengthscales(kernel: Kernel, spread: np.ndarray) -> np.ndarray:
    """The lengthscale of each input within two decades of its spread; the spread where a kernel has none for
    it. (d,)
    """
    if not isinstance(kernel, Stationary) or kernel.columns is not None:
        return spread
    return np.clip(np.broadcast_to(kernel.lengthscale, spread.shape), 0.01 * spread, 100.0 * spread)


def _of_columns(kernel: Kernel, spread: np.ndarray) -> np.ndarray:
    columns = getattr(kernel, "columns", None)
    return spread if columns is None else spread[list(columns)]


def _anything(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.full_like(x, -np.inf), np.full_like(x, np.inf)


def _as_mask(movable: Any, m: int) -> np.ndarray:
    """Which of m basis functions may move, from a mask; None is all of them. (m,) of bool"""
    if movable is None:
        return np.ones(m, dtype=bool)
    mask = np.asarray(movable)
    if mask.shape != (m,) or mask.dtype != bool:
        raise ShapeError(
            f"movable must hold True or False for each of {m} basis functions, not {mask.dtype} of "
            f"{mask.shape}"
        )
    return mask


def _under(prefix: str, raw: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in raw.items() if name.startswith(prefix)}
