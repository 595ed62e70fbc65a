"""`ig.river`: the stream regressor and classifier with river's interface, where a row is a dictionary."""

from typing import Any

import numpy as np
from river import base

from .classifier import SparseGPClassifier
from .online import OnlineGPRegressor


class _Rows:
    """Base of the two models. The inputs are the features of the first row whose values are numbers; later a
    missing feature gets the mean of the warm-up, and a new one is ignored.

    Parameters
    ----------
    n_inducing
        The largest number of basis functions.
    half_life
        Rows after which what was learned counts half, "auto" or None.
    on_drift
        What an alarm does: "warn", "forget" (what was learned counts little) or "reset".
    warmup
        Rows that set units and teach the kernel.
    seed
        Seed of the learning.
    """

    def __init__(
        self,
        n_inducing: int = 50,
        half_life: Any = "auto",
        on_drift: str = "forget",
        warmup: int = 200,
        seed: int | None = 0,
    ) -> None:
        self.n_inducing, self.half_life, self.on_drift = n_inducing, half_life, on_drift
        self.warmup, self.seed = warmup, seed
        self._names: tuple[Any, ...] | None = None
        self._labels: list[Any] = []  # of a classifier, in the order they came; the model knows their numbers
        options = {"half_life": half_life, "on_drift": on_drift, "warmup": warmup, "random_state": seed}
        self._model = self._made(n_inducing=n_inducing, max_iter=30, **options)

    def _made(self, **options: Any) -> Any:
        """Return the estimator behind the interface."""
        raise NotImplementedError

    def _row(self, x: dict[Any, Any], *, first: bool = False) -> np.ndarray:
        """Return the inputs of a row, with the mean of the warm-up for missing features. (1, d)"""
        if first and self._names is None:
            numbers = [name for name, value in x.items() if isinstance(value, int | float | np.number)]
            self._names = tuple(sorted(numbers, key=str))
        assert self._names is not None
        usual = getattr(self._model, "x_mean_", np.zeros(len(self._names)))
        row = [x.get(name, mean) for name, mean in zip(self._names, usual)]
        return np.array([[float(value) for value in row]])


class GPRegressor(_Rows, base.Regressor):
    """`OnlineGPRegressor` for river's pipelines and evaluations."""

    def _made(self, **options: Any) -> OnlineGPRegressor:
        return OnlineGPRegressor(**options)

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        self._model.partial_fit(self._row(x, first=True), np.array([float(y)]))

    def predict_one(self, x: dict[Any, Any]) -> float:
        return float(self._model.mean_at(self._row(x)[0])) if self._names is not None else 0.0


class GPClassifier(_Rows, base.Classifier):
    """`SparseGPClassifier(method="online")` for river. New labels are learned when they come; a single label
    has probability 1 until there is a second.
    """

    def _made(self, **options: Any) -> SparseGPClassifier:
        return SparseGPClassifier(method="online", **options)

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        if y not in self._labels:
            self._labels.append(y)
        self._model.partial_fit(self._row(x, first=True), np.array([self._labels.index(y)]))

    def predict_proba_one(self, x: dict[Any, Any], **_: Any) -> dict[Any, float]:
        if len(self._labels) < 2:
            return dict.fromkeys(self._labels, 1.0)
        return dict(zip(self._labels, self._model.predict_proba(self._row(x))[0].tolist()))
