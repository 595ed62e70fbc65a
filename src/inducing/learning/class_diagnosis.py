"""Figures about a fit of classes: how well and how surely rows classify each other, and what would help."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..model.likelihoods.classes import given_one
from ..numerics.arrays import Array, to_numpy
from .diagnosis import PRINTED_SURPRISES, Report, advice_on_size, percent

# rows of a class, more of which would help; share of the log loss that inputs which say something take off
RARE, NOTHING = 10, 0.02


@dataclass(frozen=True)
class ClassDiagnosis(Report):
    """Figures about a fit of classes, and advice in sentences; print it for a table."""

    classes: tuple[str, ...]
    counts: tuple[float, ...]  # rows of each class, as they are weighted
    rows: int  # different rows
    functions: int  # m
    error: float  # the share of rows that the others name wrongly
    log_loss: float  # the mean of -log p(label | all others)
    confidence: float  # the mean probability of the class that the others name
    mistaken: tuple[tuple[int, int, float], ...]  # class, class named instead, share of all mistakes
    surprises: tuple[tuple[int, int, int, float], ...]  # row, class, class named by the others, p of its own
    residual_to_noise: float = 0.0  # tr(K - Q) τ, with the mean precision τ of a label in f
    suggested: int | None = None  # a size of the basis that would do; None where it is beyond what was tried
    tried: int = 0  # 0 where none was, as along neighbours

    @property
    def shares(self) -> np.ndarray:
        """The share of the rows in each class."""
        return np.array(self.counts) / sum(self.counts)

    @property
    def trivial_loss(self) -> float:
        """The log loss of a predictor that gives every row the shares of the classes."""
        return -float(np.sum(self.shares * np.log(np.maximum(self.shares, 1e-300))))

    @property
    def verdict(self) -> str:
        right, sure, most = 1.0 - self.error, self.confidence, int(self.shares.argmax())
        said = "as it should be"
        if abs(right - sure) > max(0.02, 2.0 * np.sqrt(sure * (1.0 - sure) / self.rows)):
            said = "less often than it says" if right < sure else "more often than it says"
        return (
            f"Left out in turn, rows are classified by the others: {percent(self.error, 1)} are wrong "
            f"({percent(1.0 - self.shares[most], 1)} if all were {self.classes[most]}), with a log loss of "
            f"{self.log_loss:.3g} ({self.trivial_loss:.3g} by the shares of the classes alone). The class "
            f"named has a probability of {percent(sure)} on average and is right in {percent(right)}, {said}."
        )

    @property
    def advice(self) -> tuple[str, ...]:
        out = []
        if self.log_loss > (1.0 - NOTHING) * self.trivial_loss:
            out.append("The inputs say next to nothing of the classes: other columns would help.")
        few = [f"{name} ({count:g})" for name, count in zip(self.classes, self.counts) if count < RARE]
        if few:
            out.append(f"Some classes have few rows, and more of them would help: {', '.join(few[:5])}.")
        if self.tried:
            out += advice_on_size(self.residual_to_noise, self.functions, self.suggested, self.tried)
        return tuple(out)

    @property
    def figures(self) -> dict[str, str]:
        rows = {"different rows, basis": f"{self.rows}, {self.functions}"}
        if self.tried:
            rows["suggested basis functions"] = f"{self.suggested or f'more than {self.tried}'}"
        if self.mistaken:
            pairs = [f"{self.classes[a]} for {self.classes[b]} ({percent(p)})" for a, b, p in self.mistaken]
            rows["most mistakes take"] = ", ".join(pairs)
        for row, own, said, p in self.surprises[:PRINTED_SURPRISES]:
            others = f"the others say {self.classes[said]} and give it {percent(p, 1)}"
            rows[f"surprising: row {row}"] = f"{self.classes[own]}, where {others}"
        return rows

    def named(self, classes: Any) -> "ClassDiagnosis":
        """The diagnosis with other names of its classes."""
        return replace(self, classes=tuple(map(str, classes)))


def class_numbers(signs: Array) -> np.ndarray:
    """The number of each row's class, from signs (n, c), c = 1 for two classes. (n,)"""
    signs = to_numpy(signs)
    return np.argmax(signs, axis=1) if signs.shape[1] > 1 else (signs[:, 0] > 0).astype(int)


def diagnosis_of_classes(
    signs: Array, log_densities: Sequence[Array], weights: Any, functions: int, **of_basis: Any
) -> ClassDiagnosis:
    """The diagnosis from the log density of each sign (n, c) by the other rows; `of_basis` is what is known
    of that. Classes are named by their numbers.
    """
    density = np.minimum(np.stack([to_numpy(a) for a in log_densities], axis=1), -1e-300)
    odds = to_numpy(signs) * (density - np.log(np.maximum(-np.expm1(density), 1e-300)))  # log of, for +1
    p = given_one(np.hstack([0.0 * odds, odds]) if odds.shape[1] == 1 else odds)  # (n, classes)
    (n, count), own, said = p.shape, class_numbers(signs), np.argmax(p, axis=1)
    weights = np.ones(n) if weights is None else to_numpy(weights) * np.ones(n)
    of_own, wrong = p[np.arange(n), own], np.flatnonzero(said != own)
    pairs = np.bincount(own[wrong] * count + said[wrong], weights[wrong], minlength=count * count)
    most = [int(k) for k in np.argsort(-pairs, kind="stable")[:3] if pairs[k] > 0]
    worst = wrong[np.argsort(of_own[wrong], kind="stable")][: 2 * PRINTED_SURPRISES]
    return ClassDiagnosis(
        classes=tuple(map(str, range(count))),
        counts=tuple(np.bincount(own, weights, minlength=count).tolist()),
        rows=n,
        functions=functions,
        error=float(np.average(said != own, weights=weights)),
        log_loss=float(np.average(-np.log(np.maximum(of_own, 1e-300)), weights=weights)),
        confidence=float(np.average(p.max(axis=1), weights=weights)),
        mistaken=tuple((k // count, k % count, float(pairs[k] / pairs.sum())) for k in most),
        surprises=tuple((int(i), int(own[i]), int(said[i]), float(of_own[i])) for i in worst),
        **of_basis,
    )
