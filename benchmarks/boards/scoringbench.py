"""Our regressor in the form ScoringBench takes: a wrapper with `fit`, `predict` and `predict_distribution`.

It needs a checkout of ScoringBench on the path. To put it on the board, register the factory under a name of
its own in `scoringbench/univariate/models.py`:

    from benchmarks.boards.scoringbench import InducingWrapper
    MODELS["inducing_0_1"] = InducingWrapper
"""

from __future__ import annotations

from typing import Any

import numpy as np

Base: Any = object
try:
    from scoringbench.univariate.wrappers import base

    Base = base.ProbabilisticWrapper
except ImportError:
    base = None

LEVELS = np.arange(1, 1000) / 1000.0  # at which a distribution is handed over


class InducingWrapper(Base):  # type: ignore[misc]
    """`SparseGPRegressor` at its defaults; `options` are its parameters."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def fit(self, X: Any, y: Any) -> InducingWrapper:
        """Learn from the rows whose target is finite; gaps in X are left to the model."""
        import inducing as ig

        X, y = _inputs(X), np.asarray(y, dtype=float).reshape(-1)
        kept = np.isfinite(y)
        if base is not None:
            self._set_train_range(y[kept])
        gaps = "use" if np.isnan(X[kept]).any() else "refuse"
        self.model = ig.SparseGPRegressor(random_state=0, **{"missing": gaps, **self.options})
        self.model.fit(X[kept], y[kept])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The mean of each row. (n,)"""
        return self.model.predict(_inputs(X))

    def quantiles(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """The mean (n,) and the quantiles at LEVELS (n, levels) of each row's distribution."""
        answer = self.model.predict_distribution(_inputs(X))
        return answer.mean, np.stack([answer.quantile(p) for p in LEVELS], axis=1)

    def predict_distribution(self, X: Any) -> Any:
        """Each row's distribution as ScoringBench holds it, made of its quantiles."""
        mean, q = self.quantiles(X)
        return base.DistributionPrediction.from_multi_quantile(
            q, LEVELS, mean=mean, train_range=self._y_train_range
        )


def _inputs(X: Any) -> np.ndarray:
    """Numbers (n, d), with NaN where there is none."""
    X = np.asarray(X, dtype=float)
    return np.where(np.isfinite(X), X, np.nan)
