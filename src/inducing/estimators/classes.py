"""Helpers of the classifiers: checks of labels, likelihoods by name, probabilities, records of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import LabelError, ModelFileError, ParameterError, require_one_of
from ..files.records import ROWS_PREFIX, Arrays, Plain, array, expect, number
from ..model import likelihoods
from ..model.likelihoods import Binary
from ..model.posterior import Posterior, predict_together
from ..numerics.arrays import Array, to_numpy
from .predictive import PredictiveClasses

WarmupRows = tuple[np.ndarray, np.ndarray] | None  # X and labels of a warm-up that has not ended


def require_labels(y: np.ndarray) -> None:
    """Raise if y does not hold labels but, for example, numbers with fractions."""
    from sklearn.utils.multiclass import check_classification_targets

    try:
        with np.errstate(invalid="ignore"):  # of numbers too large for integers
            check_classification_targets(y)
    except TypeError as error:
        raise LabelError(f"labels must be of one kind, all text or all numbers: {error}") from error
    except ValueError as error:
        message = str(error)
        if "type: continuous." in message and np.ndim(y) == 1:
            some = next((value for value in np.ravel(y).tolist() if value != round(value)), float(np.max(y)))
            message = (
                f"Unknown label type: continuous. The target has {len(np.unique(y))} different numbers, such "
                f"as {some:g}, and classes are whole numbers or text: fit a regressor, or sort the target "
                "into classes"
            )
        raise LabelError(message) from error


class ClassesOfRows(PredictiveClasses):
    """Mixin of a classifier whose `posteriors_` are posteriors, or predictors along neighbours."""

    posteriors_: Any  # a tuple
    likelihood_: Any  # of classes
    report_: Any  # a `ClassDiagnosis`

    def _refuse_along_neighbours(self, what: str) -> None:
        """Raise if the model was fitted with approximation="neighbours", which `what` does not support."""
        if _along_neighbours(getattr(self, "posteriors_", (None,))):
            raise ParameterError(
                f"{what} needs a process without neighbours; fit with approximation='fitc', or use the "
                "`posterior` of each of posteriors_"
            )


def probabilities_at(posteriors: Sequence[Any], likelihood: Binary, Xs: Array) -> np.ndarray:
    """Return the probability of each class at rows in the model's units. (n, classes)"""
    if _along_neighbours(posteriors):
        each = [post.predict(Xs) for post in posteriors]
        mean, variance = (np.stack(values, axis=1) for values in zip(*each))
    else:
        mean, variance = predict_together(posteriors, Xs)
    return likelihood.probabilities(mean, np.maximum(variance, 1e-300))


def _along_neighbours(posteriors: Sequence[Any]) -> bool:
    """Return whether these are predictors along neighbours, which contain a posterior."""
    return hasattr(posteriors[0], "posterior")


def binary_likelihood(likelihood: Any) -> Binary:
    """Return the likelihood of two classes, given as an object or by name; raise if it is another."""
    known = {name: kind for name, kind in likelihoods.BY_NAME.items() if issubclass(kind, Binary)}
    if isinstance(likelihood, Binary):
        return likelihood
    name = likelihood.lower() if isinstance(likelihood, str) else likelihood
    require_one_of("likelihood", name, known, " or an object")
    return known[name]()


def class_record(classes: np.ndarray, posteriors: Sequence[Any], held: WarmupRows) -> tuple[Plain, Arrays]:
    """Return the record of a classifier's classes for a file: labels, the posteriors after the first, labels
    of a warm-up, and for predictors along neighbours the training rows, whose inputs they share.
    """
    if classes.dtype.kind not in "biufU" and not all(isinstance(label, str) for label in classes):
        raise ParameterError(f"labels of type {classes.dtype} cannot be saved; use numbers or strings")
    others, arrays = [getattr(post, "posterior", post) for post in posteriors[1:]], {}
    plain: Plain = {
        "classes": classes.tolist(),
        "classes_dtype": classes.dtype.str,
        "others_log_predictive": [post.log_predictive for post in others],
    }
    if held is not None:
        arrays["warmup.y"] = np.searchsorted(classes, held[1])
    if others:
        arrays["others.w"] = np.stack([post.w[:, 0] for post in others])
        arrays["others.A"] = np.stack([np.asarray(post.A) for post in others])
    if _along_neighbours(posteriors):
        rows = [post.data for post in posteriors]
        plain["n_neighbours"] = posteriors[0].n_neighbours
        arrays[f"{ROWS_PREFIX}X"] = to_numpy(rows[0].X)
        arrays[f"{ROWS_PREFIX}residuals"] = np.stack([to_numpy(own.residuals[:, 0]) for own in rows], axis=1)
        arrays[f"{ROWS_PREFIX}noise"] = np.stack([to_numpy(own.noise) for own in rows], axis=1)
    return plain, arrays


def restored_classes(
    plain: Plain, arrays: Arrays, first: Posterior, held: WarmupRows
) -> tuple[np.ndarray, tuple[Any, ...], WarmupRows]:
    """Read back `class_record`: labels, posteriors, and the rows of a warm-up, which come with class numbers
    and leave with labels. Raise if the parts do not fit together.
    """
    dtype, labels = np.dtype(plain["classes_dtype"]), plain["classes"]
    lengths = [len(label) for label in labels if isinstance(label, str)]
    if dtype.kind not in "biufUO" or max(lengths, default=0) * len(labels) > 16 * sum(lengths) + 4096:
        raise ModelFileError(f"its {len(labels)} classes have the type {dtype}")
    if len(labels) < 2 and held is None:
        raise ModelFileError(f"it has {len(labels)} classes, and a classifier needs at least two")
    classes = np.array(labels, dtype="U" if dtype.kind == "U" else dtype)  # text as wide as the longest label
    count, m = len(classes), len(first)
    if held is not None:
        X, numbers = held
        expect(bool(np.all(np.isin(numbers, np.arange(count)))), "warmup.y", numbers)
        held = X, classes[numbers.astype(int)]
    posteriors = [first]
    if count > 2:
        w, A = array(arrays, "others.w", 2), array(arrays, "others.A", 3)
        expect(w.shape == (count - 1, m), "others.w", w)
        expect(A.shape == (count - 1, m, m), "others.A", A)
        logs = [number(value) for value in plain["others_log_predictive"]]
        for j in range(count - 1):
            other = {"w": w[j, :, None].copy(), "A": A[j].copy(), "log_predictive": logs[j]}
            posteriors.append(replace(first, **other))
    if "n_neighbours" in plain:
        return classes, _near_rows(plain, arrays, posteriors), held
    return classes, tuple(posteriors), held


def _near_rows(plain: Plain, arrays: Arrays, posteriors: Sequence[Posterior]) -> tuple[Any, ...]:
    """Return the predictors along neighbours, made of the posteriors and the training rows in a record."""
    from ..inference.neighbours import NeighboursPredictor

    columns = {ROWS_PREFIX + name: array(arrays, ROWS_PREFIX + name, 2) for name in ("residuals", "noise")}
    for name, a in columns.items():
        expect(a.shape[1] == len(posteriors), name, a)
    residuals, noise = columns.values()
    predictors = []
    for j, posterior in enumerate(posteriors):
        own = dict(zip(columns, (residuals[:, [j]], noise[:, j])))
        predictors.append(NeighboursPredictor.from_record(plain, arrays | own, posterior))
    return tuple(predictor.beside(predictors[0]) for predictor in predictors)
