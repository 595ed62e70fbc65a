"""`ig.river.GPRegressor`: the regressor of streams behind river's interface, a dictionary a row."""

from typing import Any

import numpy as np
from river import base

from .base import RENAMED
from .online import OnlineGPRegressor


class GPRegressor(base.Regressor):
    """`OnlineGPRegressor` for river's pipelines and evaluations.

    The numbers among the features of the first row are the inputs. Later a feature that is not there has the
    mean of those of the warm-up, and one more than there were is not looked at.

    Parameters
    ----------
    n_inducing
        How many basis functions, at most.
    half_life
        Rows after which what was learned counts half, "auto" or None.
    warmup
        Rows that set units and teach the kernel.
    seed
        Seed of the learning.
    """

    def __init__(
        self,
        n_inducing: int = 50,
        half_life: Any = "auto",
        warmup: int = 200,
        seed: int | None = 0,
        capacity: Any = RENAMED,
    ) -> None:
        self.capacity, self.n_inducing, self.half_life = capacity, n_inducing, half_life
        self.warmup, self.seed = warmup, seed
        self._names: tuple[Any, ...] | None = None
        self._model = OnlineGPRegressor(
            n_inducing=n_inducing,
            half_life=half_life,
            warmup=warmup,
            random_state=seed,
            max_iter=30,
            capacity=capacity,
        )

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        if self._names is None:
            numbers = [name for name, value in x.items() if isinstance(value, int | float | np.number)]
            self._names = tuple(sorted(numbers, key=str))
        self._model.partial_fit(self._row(x), np.array([float(y)]))

    def predict_one(self, x: dict[Any, Any]) -> float:
        return float(self._model.predict(self._row(x))[0]) if self._names is not None else 0.0

    def _row(self, x: dict[Any, Any]) -> np.ndarray:
        """The inputs of a row; the mean where there is none. (1, d)"""
        assert self._names is not None
        usual = getattr(self._model, "x_mean_", np.zeros(len(self._names)))
        row = [x.get(name, mean) for name, mean in zip(self._names, usual)]
        return np.array([[float(value) for value in row]])
