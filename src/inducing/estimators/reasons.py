"""`Reasons`: Shapley values of regressors, in the user's units."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..errors import ParameterError, ShapeError
from ..inference.shapley import Groups, Shapley, sampled_values, shapley_values
from ..model.posterior import Posterior
from ..numerics.arrays import some_rows
from .base import generator
from .judging import require_one_model

MOST_BACKGROUND = 100  # rows


class Reasons:
    """Mixin of the regressors: what each input adds to a prediction."""

    def shapley(
        self: Any,
        X: Any,
        background: Any = None,
        return_std: bool = False,
        permutations: int = 8,
        random_state: Any = 0,
    ) -> Shapley:
        """Return Shapley values: what each input adds to the mean of f at each row of X, compared with the
        rows of `background` (a hundred of X if not given). They are exact, and can have standard deviations,
        where the kernel is a sum of products over inputs; otherwise they are estimated from `permutations`
        random orders of the inputs for each background row.
        """
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        rows = X if background is None else self._validated(background, reset=False)
        require_one_model(self, "Shapley values")
        if self.kinds_.output is not None:
            raise ParameterError("Shapley values of coregionalised outputs are not known; use 'shared'")
        rng = generator(random_state)
        if background is None and len(rows) > MOST_BACKGROUND:
            rows = rows[some_rows(len(rows), MOST_BACKGROUND, rng)]
        if len(rows) == 0:
            raise ShapeError("the background has no rows; pass at least one")
        post, values = self.posterior_, None
        if isinstance(post, Posterior) and self.kinds_.guide is None:
            Xs, background = self._in_model_units(X), self._in_model_units(rows)
            values = shapley_values(post, Xs, background, _groups(self), return_std)
        names = getattr(self, "feature_names_in_", None)
        shown = tuple(map(str, range(X.shape[1]) if names is None else names))
        if values is not None:
            scale, std = self.y_scale_, values.std
            if std is not None:
                std = std * scale if np.ndim(scale) == 0 else std[..., None] * scale
            base = values.baseline * scale + self.y_mean_
            return replace(values, values=values.values * scale, baseline=base, std=std, X=X, names=shown)
        if return_std:
            needed = "a kernel that is a product over inputs, no guide, and a posterior that needs no rows"
            raise ParameterError(f"deviations of Shapley values need {needed}; leave return_std out")
        mean = partial(self._marginals, return_std=False, latent=True)
        return replace(sampled_values(mean, X, rows, permutations, rng), X=X, names=shown)


def _groups(model: Any) -> Groups:
    """Return for each column of X the columns of the kernel's inputs that are made of it."""
    d, kinds = model.n_features_in_, model.kinds_
    if kinds.way == "variances":
        return [(c, d + c) for c in range(d)]
    marked = {c: d + place for place, c in enumerate(kinds.marked)}
    return [(c, marked[c]) if c in marked else (c,) for c in range(d)]
