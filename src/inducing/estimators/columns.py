"""`Kinds`: how columns of a table become inputs of a kernel: numbers, codes of categories, filled gaps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import EmptyDataError, InducingWarning, ParameterError, ShapeError, require_one_of
from ..files.records import Arrays, Plain, array, expect
from ..model.kernels.averaged import Averaged
from ..model.kernels.base import Kernel
from ..model.kernels.codes import Category, categories_of
from ..model.kernels.composite import Composite, Product, Sum
from ..model.kernels.stationary import RBF
from ..numerics.arrays import as_floats, some_rows
from .guide import Guide

MISSING = ("refuse", "use", "drop")
GAUSSIAN_ROWS, GAP_ROUNDS, GAP_RIDGE = 4000, 8, 1e-6  # rows and rounds to learn the Gaussian of the columns
COPIES = {"known": 1, "variances": 2, "indicators": 1}  # how often each column is among the inputs


@dataclass(frozen=True, eq=False)
class Kinds:
    """The kinds of the columns of X (n, d), and the inputs (n, d), (n, d + g) or (n, 2d) made of them.

    Gaps are filled with their mean under a Gaussian of all columns, given the values in the row. Either their
    variance under it follows in d more columns, for a kernel that averages over it, or g more columns mark
    the gaps. A gap in a column of codes is a level of its own, the last. A guide's prediction is one more
    column.
    """

    codes: Mapping[int, int] = field(default_factory=dict)  # the number of levels of each column of codes
    output: int | None = None  # the column of codes that holds the number of the output
    way: str = "known"  # how gaps enter: not at all, or as "variances" or "indicators"
    mean: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (d,), of the Gaussian of the columns
    scale: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (d,)
    correlation: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # (d, d)
    marked: tuple[int, ...] = ()  # the columns whose gaps have indicators
    allow_unseen: bool = False
    guide: Guide | None = None  # of the inputs before it

    @staticmethod
    def of(X: np.ndarray, categorical: Sequence[int], way: str, output: int | None, unseen: bool) -> Kinds:
        """Return the kinds of the columns of training rows, with gaps treated in this `way`."""
        d, codes = X.shape[1], {}
        for c in (*categorical, *(() if output is None else (output,))):
            if not isinstance(c, int | np.integer) or isinstance(c, bool) or not 0 <= c < d:
                raise ParameterError(f"categorical must name columns 0 to {d - 1} by number, but has {c!r}")
            known = X[~np.isnan(X[:, c]), c]
            if np.any(known != np.round(known)) or np.any(known < 0):
                raise ParameterError(f"column {c} is categorical, but holds more than codes 0, 1, …")
            codes[int(c)] = int(known.max(initial=0)) + 1 + int(len(known) < len(X))
        kinds = Kinds(codes, output, way, allow_unseen=unseen)
        if way == "known":
            return kinds
        gaps = np.isnan(X) & ~np.isin(np.arange(d), list(codes))
        kinds = replace(kinds, marked=tuple(np.flatnonzero(gaps.any(axis=0)).tolist()))
        return kinds._taught(np.where(np.isin(np.arange(d), list(codes)), 0.0, X))

    def _taught(self, X: np.ndarray) -> Kinds:
        """Return these kinds with the Gaussian of the columns of X, learned by EM. [Dempster 1977]"""
        X = X[some_rows(len(X), GAUSSIAN_ROWS, len(X))]
        if np.any(np.isnan(X).all(axis=0)):
            raise EmptyDataError(f"column {np.isnan(X).all(axis=0).argmax()} has no values; leave it out")
        mean, scale = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
        kinds = replace(self, mean=mean, scale=np.where(scale > 0, scale, 1.0), correlation=np.eye(len(mean)))
        for _ in range(GAP_ROUNDS):
            filled, extra = kinds._expected(X)[::2]
            second = (filled.T @ filled + extra) / len(X)
            root = np.sqrt(np.diag(second)) + GAP_RIDGE
            kinds = replace(kinds, correlation=second / np.outer(root, root))
        return kinds

    def _expected(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows in standard units, gaps filled, the variances there (n, d), Σ covariances (d, d)."""
        S, V, total = (X - self.mean) / self.scale, np.zeros(X.shape), np.zeros((X.shape[1], X.shape[1]))
        gaps = np.isnan(S)
        C = self.correlation + GAP_RIDGE * np.eye(len(total))
        patterns, which = np.unique(gaps, axis=0, return_inverse=True)
        for i, m in enumerate(patterns):
            rows = np.flatnonzero(which.reshape(-1) == i)
            A = np.linalg.solve(C[np.ix_(~m, ~m)], C[np.ix_(~m, m)])  # (o, m)
            left = C[np.ix_(m, m)] - C[np.ix_(m, ~m)] @ A
            S[np.ix_(rows, m)] = S[np.ix_(rows, ~m)] @ A
            V[np.ix_(rows, m)] = np.maximum(np.diag(left), 0.0)
            total[np.ix_(m, m)] += len(rows) * left
        return S, V, total

    @property
    def plain(self) -> bool:
        """Whether the inputs of the kernel are the unchanged columns of X."""
        return not self.codes and self.way == "known" and self.guide is None

    def width(self, d: int) -> int:
        """Return the number of columns of X that become d inputs of the kernel."""
        marks = len(self.marked) if self.way == "indicators" else 0
        return (d - (self.guide is not None)) // COPIES[self.way] - marks

    def inputs(self, X: np.ndarray, std: Any = None) -> np.ndarray:
        """Return the inputs of the kernel in the units of X; `std` are standard deviations of its entries."""
        X = self._unguided(X, std)
        return X if self.guide is None else np.column_stack([X, self.guide(X)])

    def _unguided(self, X: np.ndarray, std: Any) -> np.ndarray:
        """Return `inputs` without the guide; warn of levels and gaps that the fit did not have."""
        X = X.copy() if self.codes else X
        for c, levels in self.codes.items():
            X[np.isnan(X[:, c]), c] = levels - 1
            unseen = (X[:, c] < 0) | (X[:, c] >= levels)
            if self.allow_unseen and np.any(unseen):
                warnings.warn(
                    f"{np.count_nonzero(unseen)} rows have a level of column {c} that was not seen, and are "
                    "predicted with the mean variance of all levels",
                    InducingWarning,
                    stacklevel=2,
                )
        if self.way == "known":
            if std is not None:
                raise ParameterError("x_std was given to predict, but not to fit; fit with it as well")
            return X
        gaps = np.isnan(X)
        if self.way == "indicators" and not self.marked and not gaps.any():
            return X
        S, V, _ = self._expected(X)
        filled = np.where(gaps, S * self.scale + self.mean, X)
        if self.way == "indicators":
            new = int(np.count_nonzero(np.delete(gaps, self.marked, axis=1).any(axis=1)))
            if new:
                message = f"{new} rows have gaps in columns that had none in the fit; their means fill them"
                warnings.warn(message, InducingWarning, stacklevel=2)
            return np.hstack([filled, gaps[:, list(self.marked)]])
        V = V * self.scale**2
        return np.hstack([filled, V if std is None else np.where(gaps, V, deviations(std, X) ** 2)])

    def in_place(self, mean: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return centre and scale of the inputs, changed so that codes stay codes and variances positive."""
        mean, scale, codes = mean.copy(), scale.copy(), list(self.codes)
        mean[codes], scale[codes] = 0.0, 1.0
        if self.way == "variances":
            half = len(mean) // 2
            mean[half:], scale[half:] = 0.0, scale[:half] ** 2
        return mean, scale

    def numbers(self, width: int) -> list[int]:
        """Return the columns of the inputs (n, width) that are numbers, not codes."""
        return [c for c in range(width // COPIES[self.way]) if c not in self.codes]

    def of_numbers(self, base: Kernel, width: int) -> Kernel:
        """Return `base` on the numbers, averaged where these are uncertain; unchanged if it uses codes."""
        if any(c.column in self.codes for c in categories_of(base)):
            return base
        return restricted(base, tuple(self.numbers(width)) if self.codes else None, self.way == "variances")

    def kernel(self, base: Kernel, width: int, rank: int | None = None, mixed: bool = True) -> Kernel:
        """Return `base`, a kernel of the numbers, with kernels of the categories: k_num · k_cat, if `mixed`
        plus k_num + k_cat; and times the kernel of the outputs.
        """
        known = not self.codes and self.way != "variances"
        if known or any(c.column in self.codes for c in categories_of(base)):
            return base
        numbers, base = self.numbers(width), self.of_numbers(base, width)
        categories = [
            Category(c, levels, min(levels, 2), allow_unseen=self.allow_unseen)
            for c, levels in self.codes.items()
            if c != self.output
        ]
        kernel: Kernel = Product((base, *categories) if numbers else tuple(categories))
        if categories and mixed:
            kernel = Sum((kernel, *([base] if numbers else []), *categories))
        if self.output is None:
            return kernel if categories else base
        levels = self.codes[self.output]
        of_output = Category(self.output, levels, min(rank or 2, levels))
        return Product((kernel if categories else base, of_output))

    def record(self) -> tuple[Plain, Arrays]:
        """Return the record of the kinds for a model file."""
        codes = {str(c): levels for c, levels in self.codes.items()}
        plain = {"codes": codes, "output": self.output, "way": self.way, "marked": list(self.marked)}
        arrays = {} if self.guide is None else self.guide.record()
        if self.way != "known":
            arrays |= {f"kinds.{name}": getattr(self, name) for name in ("mean", "scale", "correlation")}
        return plain | {"allow_unseen": self.allow_unseen}, arrays

    @staticmethod
    def from_record(plain: Plain | None, arrays: Arrays, d: int) -> Kinds:
        """Read back `record` for a kernel of d inputs; older files have none (None)."""
        if plain is None:
            return Kinds()
        values: dict[str, Any] = {name: plain[name] for name in ("output", "way", "allow_unseen")}
        values["codes"] = {int(c): int(levels) for c, levels in plain["codes"].items()}
        values["marked"] = tuple(int(c) for c in plain["marked"])
        expect(values["way"] in COPIES, "way", values["way"])
        if values["way"] != "known":
            mean = array(arrays, "kinds.mean")
            values |= {"mean": mean, "scale": array(arrays, "kinds.scale")}
            values["correlation"] = array(arrays, "kinds.correlation", 2)
            expect(values["correlation"].shape == (len(mean), len(mean)), "correlation", mean)
        return Kinds(**values, guide=Guide.from_record(arrays, d - 1))


def deviations(std: Any, X: np.ndarray) -> np.ndarray:
    """Return standard deviations of X's entries, given as one number, one per column or one per entry."""
    std = as_floats(std, "x_std")
    fits = std.shape in ((), X.shape[1:], X.shape)
    if not fits or not np.all((std >= 0.0) & (std < np.inf)):
        raise ShapeError(
            f"x_std must hold standard deviations of zero or more, one for each entry of X {X.shape}, "
            f"but {f'holds {std.min():g} to {std.max():g}' if fits else f'has shape {std.shape}'}"
        )
    return np.broadcast_to(std, X.shape)


def kinds_of(
    model: Any,
    X: np.ndarray,
    output: int | None = None,
    std: Any = None,
    of_all: tuple[np.ndarray, np.ndarray] | None = None,
) -> Kinds:
    """Return the kinds of an estimator's training rows, from its parameters and its encoder. If X is only a
    sample of the rows, `of_all` are whether each column has gaps, and its highest value. (d,) each
    """
    encoder = getattr(model, "encoder_", None)
    known = {} if encoder is None else encoder.category_levels
    categorical = list(known) if model.categorical is None else model.categorical
    if isinstance(categorical, str) or not np.iterable(categorical):
        raise ParameterError(f"categorical must be a list of columns by number, not {categorical!r}")
    some = np.isnan(X).any(axis=0) if of_all is None else of_all[0]
    gaps = bool(set(np.flatnonzero(some)) - set(categorical))
    unseen = model.allow_unseen or getattr(encoder, "allow_unseen", False)
    way = way_of(model.missing, model.kernel, gaps, std)
    if way == "known" and model.missing == "use":  # no gaps yet, but queries may have some
        way = "indicators"
    kinds = Kinds.of(X, list(categorical), way, output, unseen)
    if of_all is not None:
        known = {c: max(known.get(c, 0), int(of_all[1][c]) + 1 + int(some[c])) for c in kinds.codes}
        marked = tuple(c for c in np.flatnonzero(some).tolist() if c not in kinds.codes)
        kinds = replace(kinds, marked=() if way == "known" else marked)
    return replace(kinds, codes={c: max(levels, known.get(c, 0)) for c, levels in kinds.codes.items()})


def way_of(missing: str, kernel: Any, gaps: bool, std: Any) -> str:
    """Return how gaps enter the inputs: "known" for not at all, "variances" for the RBF, or "indicators"."""
    require_one_of("missing", missing, MISSING)
    rbf = isinstance(kernel, RBF) or str(kernel).lower() in ("none", "auto", "rbf")
    if std is not None and not rbf:
        raise ParameterError(f"x_std needs the RBF kernel, whose average is known, not {kernel!r}")
    if std is not None or (gaps and missing == "use"):
        return "variances" if rbf else "indicators"
    return "known"


def restricted(kernel: Kernel, columns: tuple[int, ...] | None, averaged: bool) -> Kernel:
    """Return the kernel on these columns, unless it has its own; if `averaged` with every RBF averaged."""
    if isinstance(kernel, Composite):
        return replace(kernel, parts=tuple(restricted(part, columns, averaged) for part in kernel.parts))
    own = getattr(kernel, "columns", None)
    if averaged and isinstance(kernel, RBF):
        return Averaged(kernel.lengthscale, kernel.variance, columns=columns if own is None else own)
    return kernel if own is not None or columns is None else replace(kernel, columns=columns)  # type: ignore[call-arg]
