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
    """The part of each input in a regressor's mean at the rows of X; `background` are rows, or None,
    and `mean` gives the mean of f at rows.
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
        scale, deviations = model.y_scale_, found.std
        if deviations is not None:
            deviations = deviations * scale if np.ndim(scale) == 0 else deviations[..., None] * scale
        base = found.baseline * scale + model.y_mean_
        return replace(found, values=found.values * scale, baseline=base, std=deviations, X=X, names=shown)
    if return_std:
        needed = "a kernel that is a product over inputs, no guide, and a posterior that needs no rows"
        raise ParameterError(f"deviations of Shapley values need {needed}; leave return_std out")
    found = sampled_values(mean, X, rows, permutations, rng)
    return replace(found, X=X, names=shown)


def _groups(model: Any) -> Groups:
    """The columns of the model's inputs that each column of X has become."""
    d, kinds = model.n_features_in_, model.kinds_
    if kinds.way == "variances":
        return [(c, d + c) for c in range(d)]
    marked = {c: d + place for place, c in enumerate(kinds.marked)}
    return [(c, marked[c]) if c in marked else (c,) for c in range(d)]
