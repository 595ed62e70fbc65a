"""A small memory of the rows that taught most, to learn the model again from them. [Chang et al. 2023]"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..files.records import Arrays, array, expect
from ..model.likelihoods import Likelihood

REMEMBERED_ROWS, FEWEST_REMEMBERED = 500, 100  # rows that are kept, and the fewest to learn a model from


@dataclass(frozen=True)
class Memory:
    """At most `size` rows, each kept with a chance that grows with its leverage and halves every `half_life`.

    The leverage of a row is v/(v + noise), v the variance of f when the row came. Each row has a key, log
    leverage + age term + Gumbel noise, that never changes; the rows with the largest are such a sample at any
    time. [Efraimidis & Spirakis 2006] The noise depends only on the row's number, so it can be repeated.
    """

    size: int
    half_life: float
    X: np.ndarray  # (k, d), in the model's units
    y: np.ndarray  # (k, p)
    keys: np.ndarray  # (k,)

    @staticmethod
    def empty(half_life: float, d: int, p: int) -> Memory:
        """Return a memory without rows, for d inputs and p outputs."""
        return Memory(REMEMBERED_ROWS, float(half_life), np.empty((0, d)), np.empty((0, p)), np.empty(0))

    def with_rows(
        self, X: np.ndarray, y: np.ndarray, variance: np.ndarray, likelihood: Likelihood, row: int
    ) -> Memory:
        """Return the memory after rows X (n, d), y (n, p), numbered from `row` on; f had this `variance`."""
        numbers = row + np.arange(len(X))
        noise = np.maximum(likelihood.predict(np.zeros(1), np.zeros(1))[1], 1e-300)
        leverage = np.maximum(variance / (variance + noise), 0.01)
        keys = np.log(leverage) + np.log(2.0) * numbers / self.half_life - np.log(-np.log(_uniform(numbers)))
        keys, X, y = (np.concatenate(pair) for pair in ((self.keys, keys), (self.X, X), (self.y, y)))
        if len(keys) > self.size:
            kept = np.sort(np.argpartition(keys, -self.size)[-self.size :])
            keys, X, y = keys[kept], X[kept], y[kept]
        return replace(self, X=X, y=y, keys=keys)

    def emptied(self) -> Memory:
        """Return the memory without its rows."""
        return replace(self, X=self.X[:0], y=self.y[:0], keys=self.keys[:0])

    def to_arrays(self) -> Arrays:
        return {"memory.X": self.X, "memory.y": self.y, "memory.keys": self.keys}

    def restored(self, arrays: Arrays) -> Memory:
        X, y, keys = (array(arrays, f"memory.{n}", k) for n, k in (("X", 2), ("y", 2), ("keys", 1)))
        expect(len(X) == len(y) == len(keys) <= self.size, "memory.X", X)
        return replace(self, X=X, y=y, keys=keys)


def _uniform(numbers: np.ndarray) -> np.ndarray:
    """Map whole numbers to pseudo-random ones in (0, 1). [Steele, Lea & Flood 2014, SplitMix]"""
    z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(float) / 2.0**53 + 2.0**-54
