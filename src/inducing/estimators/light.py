"""Models from files that only predict, without scikit-learn, and for small batches without Numba:
`inducing.load(path, light=True)` makes them.
"""

from typing import Any

import numpy as np

from ..errors import ColumnError, ModelFileError, NonFiniteError, ShapeError
from ..files.records import Arrays, Plain, array, expect, posterior_from
from ..model import likelihoods
from ..model.distributions import Distribution, Observations
from ..model.likelihoods import Binary, Gaussian
from ..model.problem import as_inputs
from ..numerics.arrays import require_numbers
from ..sources.encoding import ColumnEncoder
from .classes import probabilities_at, restored_classes
from .columns import Kinds
from .predictive import Predictive, PredictiveClasses, noise_process


class LightModel:
    """Base of the light models: units, columns and the first posterior, read from a model file."""

    def __init__(self, plain: Plain, arrays: Arrays) -> None:
        if "models" in plain or not (posterior := posterior_from(plain, arrays)).one_output:
            raise ModelFileError("it predicts several targets; load it without light=True")
        self.posterior_ = posterior
        d = self.posterior_.basis.centers.shape[1]
        self.n_features_in_, self.metadata_ = int(plain.get("n_features", d)), plain["metadata"]
        self.kinds_ = Kinds.from_record(plain.get("kinds"), arrays, d)
        self.x_mean_, self.x_scale_ = (array(arrays, name, 1) for name in ("x_mean", "x_scale"))
        expect(self.x_mean_.shape == (d,), "x_mean", self.x_mean_)
        expect(self.x_scale_.shape == (d,) and bool(np.all(self.x_scale_ > 0)), "x_scale", self.x_scale_)
        self.missing = plain["parameters"].get("missing", "refuse")
        encoder = plain.get("encoder")
        self.encoder_ = None if encoder is None else ColumnEncoder.from_json(encoder)
        if self.encoder_ and len(self.encoder_.get_feature_names_out()) != self.n_features_in_:
            raise ModelFileError(f"its columns do not give {self.n_features_in_} inputs")
        if not isinstance(self.metadata_, dict):
            raise ModelFileError("its metadata are not a dictionary")
        if plain["feature_names"] is not None:
            self.feature_names_in_ = np.array(plain["feature_names"], dtype=object)

    def _queries(self, X: Any) -> np.ndarray:
        """Return the rows of X in the model's units; raise if its columns are not those of the fit."""
        names = getattr(self, "feature_names_in_", None)
        if names is not None and hasattr(X, "columns") and [str(c) for c in X.columns] != list(names):
            raise ColumnError(f"X has the columns {list(X.columns)}, but the model knows {list(names)}")
        require_numbers(X, "X")
        rows = np.asarray(X, dtype=float)
        if self.missing == "use" and np.isnan(rows).any():
            raise NonFiniteError("X has gaps, which only the whole model uses; load it without light=True")
        rows = as_inputs(rows)
        if rows.shape[1] != self.n_features_in_:
            message = f"X has {rows.shape[1]} columns, but the model was fitted to {self.n_features_in_}"
            raise ShapeError(message)
        return (self.kinds_.inputs(rows) - self.x_mean_) / self.x_scale_


class LightRegressor(Predictive, LightModel):
    """A regressor of one target, read from its file, that only predicts."""

    def __init__(self, plain: Plain, arrays: Arrays) -> None:
        super().__init__(plain, arrays)
        self.y_mean_, self.y_scale_ = (float(array(arrays, name, 0)) for name in ("y_mean", "y_scale"))
        expect(self.y_scale_ > 0, "y_scale", arrays["y_scale"])
        spec = plain.get("likelihood")
        if spec is not None:
            self.likelihood = likelihoods.from_spec(spec)
        elif "noise" in arrays:
            self.likelihood = Gaussian(float(array(arrays, "noise", 0)) / self.y_scale_**2)
        else:
            raise ModelFileError("its noise was given row by row, not for new rows: load it without light")
        self._processes: tuple[Any, ...] = (self.posterior_,)
        if plain.get("chosen") == "neighbours":
            from ..inference.neighbours import NeighboursPredictor

            self._processes = (NeighboursPredictor.from_record(plain, arrays, self.posterior_),)
        second = noise_process(plain, arrays, self.likelihood)
        self._processes += () if second is None else (second,)

    @property
    def observations_(self) -> Observations:
        """The distribution of new observations, in units of the standardised data."""
        return Observations(self.likelihood, self._processes)

    def predict_distribution(self, X: Any, further: Any = None) -> Distribution:
        """Return the distribution of a new observation at each row of X."""
        return self.observations_.at(self._queries(X), further, self.y_mean_, self.y_scale_)

    def predict(self, X: Any, return_std: bool = False, further: Any = None) -> Any:
        """Return the mean of a new observation at each row of X, (n,), on request with its std."""
        y = self.predict_distribution(X, further)
        return (y.mean, y.std) if return_std else y.mean


class LightClassifier(PredictiveClasses, LightModel):
    """A classifier, read from its file, that only predicts."""

    def __init__(self, plain: Plain, arrays: Arrays) -> None:
        super().__init__(plain, arrays)
        likelihood = likelihoods.from_spec(plain["likelihood"])
        if not isinstance(likelihood, Binary):
            raise ModelFileError(f"its likelihood {likelihood} is not for classes")
        self.likelihood = likelihood
        self.classes_, self.posteriors_, _ = restored_classes(plain, arrays, self.posterior_, None)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class at the rows of X. (n, classes)"""
        return probabilities_at(self.posteriors_, self.likelihood, self._queries(X))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each row. (n,)"""
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


LIGHT: dict[str, type[LightModel]] = {
    "SparseGPRegressor": LightRegressor,
    "OnlineGPRegressor": LightRegressor,
    "SparseGPClassifier": LightClassifier,
}
