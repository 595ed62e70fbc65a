"""Running scores of a stream's predictions, each made before its row was read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..metrics import Scores, log_losses


@dataclass
class RunningRegression:
    """Sums for SMSE, MSLL and NLPD of a regression; the trivial predictor knows only the earlier targets."""

    rows: int = 0  # predicted so far
    squared: float = 0.0  # Σ (y - mean)²
    squared_trivial: float = 0.0
    loss: float = 0.0  # -Σ log p(y)
    loss_trivial: float = 0.0
    targets: int = 0  # read so far, predicted or not
    mean: float = 0.0  # of these targets
    scatter: float = 0.0  # Σ (y - mean)² of these targets

    def add(self, y: np.ndarray, mean: np.ndarray, log_density: np.ndarray) -> None:
        """Add rows in the order they were read; one whose prediction is NaN counts as a target only."""
        count, z = self.targets + np.arange(len(y)), y - self.mean  # before each row
        sums, squares = _before(z), _before(z * z)
        spread = self.scatter + squares - sums**2 / np.maximum(count, 1)
        rows = np.isfinite(mean) & (count > 0)
        e, variance = (z - sums / np.maximum(count, 1))[rows], spread[rows] / count[rows]
        self.rows += int(np.count_nonzero(rows))
        self.squared += float(np.sum((y - mean)[rows] ** 2))
        self.squared_trivial += float(np.sum(e * e))
        self.loss -= float(np.sum(log_density[rows]))
        with np.errstate(divide="ignore", invalid="ignore"):  # without variance there is no trivial predictor
            self.loss_trivial += float(np.sum(log_losses(e, variance)))
        self.targets += len(y)
        self.scatter = float(self.scatter + np.sum(z * z) - np.sum(z) ** 2 / max(self.targets, 1))
        self.mean += float(np.sum(z)) / max(self.targets, 1)

    def values(self) -> dict[str, float]:
        """Return the metrics by name, none before the first prediction."""
        if not self.rows:
            return {}
        sums = Scores(self.rows, self.squared, self.squared_trivial, self.loss, self.loss_trivial)
        return {name: value for name, value in sums.metrics().items() if name in ("SMSE", "MSLL", "NLPD")}


@dataclass
class RunningClassification:
    """Sums for the error (share of wrong labels) and log loss (mean of -log p(label)) of a classification."""

    rows: int = 0  # predicted so far
    wrong: int = 0
    loss: float = 0.0

    def add(self, labels: np.ndarray, p: np.ndarray, classes: Sequence[Any] | np.ndarray) -> None:
        """Add labels (n,) and the predicted probabilities of all classes (n, classes)."""
        rows = np.isfinite(p[:, 0])
        truth = np.asarray(labels)[rows, None] == np.asarray(classes)  # (n, classes)
        self.rows += int(np.count_nonzero(rows))
        self.wrong += int(np.count_nonzero(~truth[np.arange(len(truth)), np.argmax(p[rows], axis=1)]))
        self.loss -= float(np.sum(np.log(np.maximum(p[rows][truth], 1e-300))))

    def values(self) -> dict[str, float]:
        """Return the metrics by name, none before the first prediction."""
        return {"error": self.wrong / self.rows, "log loss": self.loss / self.rows} if self.rows else {}


def _before(values: np.ndarray) -> np.ndarray:
    """Return for each value the sum of those before it."""
    return np.cumsum(values) - values


def scores_from(sums: dict[str, Any]) -> RunningRegression | RunningClassification:
    """Make the scores from their sums by name, the reverse of `dataclasses.asdict`."""
    return RunningClassification(**sums) if "wrong" in sums else RunningRegression(**sums)
