"""Shapley values of fitted models, in the user's units."""

from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError
from ..inference.shapley import Groups, Shapley, sampled_values, shapley_values
from ..model.posterior import Posterior
from ..numerics.arrays import some_rows

MOST_BACKGROUND = 100  # rows


def shapley(
    model: Any,
    X: np.ndarray,
    background: Any,
    in_model_units: Any,
    mean: Any,
    return_std: bool,
    permutations: int,
    rng: Any,
) -> Shapley:
    """Return what each input adds to a regressor's mean of f at the rows of X, compared with the `background`
    rows, by default some of X; `in_model_units` and `mean` are functions of rows.
    """
    if model.kinds_.output is not None or getattr(model, "models_", None) is not None:
        raise ParameterError("values are of one model; take outputs='shared', or one of `models_`")
    rows = X if background is None else background
    if background is None and len(rows) > MOST_BACKGROUND:
        rows = rows[some_rows(len(rows), MOST_BACKGROUND, rng)]
    if len(rows) == 0:
        raise ShapeError("the background has no rows; pass at least one")
    post, groups, found = model.posterior_, _groups(model), None
    if isinstance(post, Posterior) and model.kinds_.guide is None:
        found = shapley_values(post, in_model_units(X), in_model_units(rows), groups, return_std)
    names = getattr(model, "feature_names_in_", None)
    shown = tuple(map(str, range(X.shape[1]) if names is None else names))
    if found is not None:
        scale, std = model.y_scale_, found.std
        if std is not None:
            std = std * scale if np.ndim(scale) == 0 else std[..., None] * scale
        base = found.baseline * scale + model.y_mean_
        return replace(found, values=found.values * scale, baseline=base, std=std, X=X, names=shown)
    if return_std:
        needed = "a kernel that is a product over inputs, no guide, and a posterior that needs no rows"
        raise ParameterError(f"deviations of Shapley values need {needed}; leave return_std out")
    return replace(sampled_values(mean, X, rows, permutations, rng), X=X, names=shown)


def _groups(model: Any) -> Groups:
    """Return for each column of X the columns of the kernel's inputs that are made of it."""
    d, kinds = model.n_features_in_, model.kinds_
    if kinds.way == "variances":
        return [(c, d + c) for c in range(d)]
    marked = {c: d + place for place, c in enumerate(kinds.marked)}
    return [(c, marked[c]) if c in marked else (c,) for c in range(d)]
