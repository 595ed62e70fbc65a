"""Our estimators in the form TabArena takes: an AutoGluon model, and the experiments of its configurations.

It needs `autogluon.tabular` and a checkout of TabArena. To run it on TabArena's tables, hand
`experiments()` to its `ExperimentBatchRunner`; this module must not be the script that is run, since
TabArena pickles the class by its name.
"""

from __future__ import annotations

import time
from typing import Any

AbstractModel: Any = object
try:
    from autogluon.core.models import AbstractModel
except ImportError:
    pass

MOST_OF_THE_TIME = 0.9  # the share of a time limit that learning may take


class InducingModel(AbstractModel):  # type: ignore[misc]
    """`SparseGPRegressor` and `SparseGPClassifier` on a data frame, whose columns they encode themselves."""

    ag_key = "INDUCING"
    ag_name = "Inducing"
    seed_name = "random_state"

    def _fit(self, X: Any, y: Any, time_limit: float | None = None, **_: Any) -> None:
        """Learn from a frame and its targets, classes as AutoGluon numbers them."""
        began = time.monotonic()
        X, params = self.preprocess(X, y=y, is_train=True), self._get_model_params()
        left = None if time_limit is None else MOST_OF_THE_TIME * (time_limit - (time.monotonic() - began))
        self.model = estimator(self.problem_type, left, **params).fit(X, y.to_numpy())

    def _preprocess(self, X: Any, is_train: bool = False, **kwargs: Any) -> Any:
        """A frame without gaps: numbers have the training rows' median there, categories a level of its own.
        The estimators encode its columns.
        """
        X = super()._preprocess(X, **kwargs).copy()
        text = [name for name in X.columns if X[name].dtype == object or str(X[name].dtype) == "category"]
        numbers = X.columns.difference(text, sort=False)
        X[numbers] = X[numbers].astype(float)
        if is_train:
            self._medians = X[numbers].median().fillna(0.0)
        X[numbers] = X[numbers].fillna(self._medians)
        for name in text:
            X[name] = X[name].astype(object).where(X[name].notna(), "missing").astype(str)
        return X

    def _set_default_params(self) -> None:
        self._set_default_param_value("random_state", 0)

    def _get_default_auxiliary_params(self) -> dict[str, Any]:
        own = {"valid_raw_types": ["bool", "int", "float", "category"]}
        return super()._get_default_auxiliary_params() | own

    @classmethod
    def supported_problem_types(cls) -> list[str]:
        return ["binary", "multiclass", "regression"]

    def _more_tags(self) -> dict[str, bool]:
        return {"can_refit_full": True}


def estimator(problem_type: str, seconds: float | None = None, **params: Any) -> Any:
    """The estimator of a problem as AutoGluon names it, a regressor with so many seconds to learn in."""
    import inducing as ig

    params = {"encoder": ig.TableEncoder(allow_unseen=True), **params}
    if problem_type == "regression":
        return ig.SparseGPRegressor(time_budget=seconds, **params)
    return ig.SparseGPClassifier(**params)


def experiments(random_configs: int = 0) -> Any:
    """TabArena's experiments: the defaults, and so many random configurations of the kernel and the size."""
    from autogluon.common.space import Categorical, Int
    from tabarena.utils.config_utils import ConfigGenerator

    space = {"kernel": Categorical("rbf", "matern32", "matern52"), "n_inducing": Int(50, 500)}
    found = ConfigGenerator(model_cls=InducingModel, manual_configs=[{}], search_space=space)
    return found.generate_all_bag_experiments(
        num_random_configs=random_configs, fold_fitting_strategy="sequential_local"
    )
