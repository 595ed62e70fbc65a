"""A running test on standardised prediction errors for drift, that is a change of level or of spread.

The test is Page's, on errors less their own running mean: g ← max(0, g + x - mean(x) - slack) sounds an alarm
above a threshold. [Page 1954; Hinkley 1971] Errors beyond ±4 count as ±4, so that outliers are no drift.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..inference.online import Seen
from ..model.likelihoods import Binary, Gaussian, Likelihood

FARTHEST_ERROR = 4.0
LEVEL_SLACK, LEVEL = 0.5, 20.0  # slack and threshold of the error: a false alarm about once in 10⁸ calm rows
SPREAD_SLACK, SPREAD = 1.0, 80.0  # those of its square, which has heavier tails
CALM_ROWS = 30  # rows before an alarm: the running mean has to settle
REMEMBERED = 20  # alarms whose rows are kept


@dataclass(frozen=True)
class Drift:
    """The state of the test, as plain numbers that fit into a file."""

    rows: int = 0  # since the last alarm
    mean: float = 0.0  # mean of these rows' errors
    up: float = 0.0  # the sum g against a rise of the errors
    down: float = 0.0  # against a fall
    square: float = 0.0  # mean of the squared errors
    spread: float = 0.0  # the sum g against a rise of their squares
    alarms: int = 0
    at: tuple[int, ...] = ()  # the rows of the last alarms, counted from 1 over the whole stream

    def after(self, errors: Iterable[float], first: int) -> "Drift":
        """Return the state after these errors, whose rows are numbered from `first` on."""
        n, mean, up, down = self.rows, self.mean, self.up, self.down
        square, spread, alarms, at = self.square, self.spread, self.alarms, self.at
        for row, z in enumerate(errors, first):
            z = FARTHEST_ERROR if z > FARTHEST_ERROR else -FARTHEST_ERROR if z < -FARTHEST_ERROR else z
            n += 1
            mean += (z - mean) / n
            square += (z * z - square) / n
            up, down = up + z - mean - LEVEL_SLACK, down + mean - z - LEVEL_SLACK
            spread += z * z - square - SPREAD_SLACK
            up, down, spread = up if up > 0 else 0.0, down if down > 0 else 0.0, spread if spread > 0 else 0.0
            if n >= CALM_ROWS and (up > LEVEL or down > LEVEL or spread > SPREAD):
                n, mean, up, down, square, spread = 0, 0.0, 0.0, 0.0, 0.0, 0.0
                alarms, at = alarms + 1, (*at, row)[-REMEMBERED:]
        return Drift(n, mean, up, down, square, spread, alarms, at)


def standardised(likelihood: Likelihood, seen: Seen, Y: np.ndarray) -> np.ndarray:
    """Return errors in predicted standard deviations: of y (n, c, p), or for labels (n,) of -log p(label).

    A label of probability p has the surprise -log p, which has the mean -p log p - (1-p) log(1-p) and the
    variance p(1-p) log²(p/(1-p)). Y is (n, c, p).
    """
    if isinstance(likelihood, Gaussian):
        return (Y - seen.mean) / np.sqrt(seen.variance[:, :, None] + likelihood.variance)
    if isinstance(likelihood, Binary):
        p = np.clip(np.exp(seen.log_density), 1e-12, 1.0 - 1e-12)
        log_odds = np.log(p) - np.log1p(-p)
        surplus = np.sum((p - 1.0) * log_odds, axis=1)  # -log p less its average
        variance = np.sum(p * (1.0 - p) * log_odds**2, axis=1)
        return surplus / np.sqrt(np.maximum(variance, 1e-3))
    mean, variance = likelihood.predict(seen.mean, seen.variance[:, :, None] + 0.0 * seen.mean)
    scale: Any = getattr(likelihood, "scale", 1.0)
    spread = np.where(np.isfinite(variance), variance, seen.variance[:, :, None] + scale**2)
    return (Y - mean) / np.sqrt(np.maximum(spread, 1e-300))


def rows_of(errors: np.ndarray) -> list[float]:
    """Return one error for each row: the sum over its processes and outputs, divided by √(their number)."""
    if errors.ndim == 1 or errors[0].size == 1:
        return errors.ravel().tolist()
    return (np.sum(errors, axis=(1, 2)) / np.sqrt(errors[0].size)).tolist()
