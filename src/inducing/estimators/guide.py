"""`Guide`: the prediction of boosted trees as one more input of a process, made without the row itself."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..errors import EmptyDataError, ParameterError, require_one_of
from ..files.records import Arrays, array, expect

GUIDES = (None, "boosting")
GUIDE_FOLDS = 5  # each fold is predicted by trees grown from the others
LEAST_GUIDED = 50  # rows: with fewer, trees of twenty rows a leaf cannot split
DESCENDING = 1_000_000  # rows times trees that are evaluated together


@dataclass(frozen=True, eq=False)
class Guide:
    """Regression trees as arrays: the prediction of a row is `base` plus the numbers of its leaves.

    A node (feature, left, right) sends rows with x[feature] at most its number to the left; a leaf has itself
    on both sides, and its number is what it adds. Children come after their parent, so no descent is endless.
    """

    base: float
    roots: np.ndarray  # (t,) of int: the first node of each tree
    nodes: np.ndarray  # (N, 3) of int
    numbers: np.ndarray  # (N,)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return the prediction of each row of X. (n,)"""
        feature, left, right = self.nodes.T
        predicted, chunk = np.empty(len(X)), max(1, DESCENDING // max(1, len(self.roots)))
        for start in range(0, len(X), chunk):
            rows = X[start : start + chunk]
            at, last = np.broadcast_to(self.roots, (len(rows), len(self.roots))), None
            while last is None or np.any(at != last):
                low = np.take_along_axis(rows, feature[at], axis=1) <= self.numbers[at]
                at, last = np.where(low, left[at], right[at]), at
            predicted[start : start + chunk] = self.base + self.numbers[at].sum(axis=1)
        return predicted

    @classmethod
    def mean_of(cls, boosters: list[Any]) -> Self:
        """Return the guide that predicts the mean of these fitted HistGradientBoostingRegressors."""
        roots, nodes, numbers, size = [], [], [], 0
        own_parts = [vars(booster) for booster in boosters]  # scikit-learn has no public way to its trees
        for tree in (tree for parts in own_parts for (tree,) in parts["_predictors"]):
            own, leaf = tree.nodes, tree.nodes["is_leaf"].astype(bool)
            here = np.arange(len(own))
            links = [np.where(leaf, here, own[side].astype(int)) + size for side in ("left", "right")]
            roots.append(size)
            nodes.append(np.stack([np.where(leaf, 0, own["feature_idx"].astype(int)), *links], axis=1))
            numbers.append(np.where(leaf, own["value"] / len(boosters), own["num_threshold"]))
            size += len(own)
        base = float(np.mean([np.ravel(parts["_baseline_prediction"])[0] for parts in own_parts]))
        return cls(base, np.array(roots, dtype=int), np.concatenate(nodes), np.concatenate(numbers))

    def record(self) -> Arrays:
        """Return the arrays for a model file."""
        parts = {"base": self.base, "roots": self.roots, "nodes": self.nodes, "numbers": self.numbers}
        return {f"guide.{name}": np.asarray(value, dtype=float) for name, value in parts.items()}

    @classmethod
    def from_record(cls, arrays: Arrays, d: int) -> Self | None:
        """Return the guide of d inputs in a model file, or None; raise if its trees are not valid."""
        if "guide.nodes" not in arrays:
            return None
        base, roots = float(array(arrays, "guide.base", 0)), array(arrays, "guide.roots", 1).astype(int)
        given, numbers = array(arrays, "guide.nodes", 2), array(arrays, "guide.numbers", 1)
        expect(given.shape == (len(numbers), 3) and bool(np.all(given >= 0)), "guide.nodes", given)
        nodes = given.astype(int)
        own = np.arange(len(nodes))[:, None]
        on, leaf = np.all(nodes[:, 1:] > own, axis=1), np.all(nodes[:, 1:] == own, axis=1)
        inside = bool(np.all(nodes[:, 0] < d) and np.all(nodes[:, 1:] < len(nodes)) and np.all(on | leaf))
        expect(inside, "guide.nodes", given)
        expect(bool(np.all((roots >= 0) & (roots < len(nodes)))), "guide.roots", roots)
        return cls(base, roots, nodes, numbers)


def cross_fitted(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[Guide, np.ndarray]:
    """Return the guide for new rows, the mean of the folds' trees, and the prediction of each training row by
    trees grown without it. (n,)

    Equal rows are merged and their weights added, so that no row is predicted by its own copy, and neither
    order nor repetition matters.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    table, same = np.unique(np.column_stack([X, y])[weights > 0], axis=0, return_inverse=True)
    rows, targets = table[:, :-1], table[:, -1]
    if len(rows) < LEAST_GUIDED:
        needed = f"{LEAST_GUIDED} different rows, but there are {len(rows)}"
        raise EmptyDataError(f"guide='boosting' needs {needed}; leave the guide out")
    counts, left_out = np.bincount(same.ravel(), weights[weights > 0]), np.empty(len(rows))
    fold, boosters = np.random.default_rng(len(rows)).permutation(len(rows)) % GUIDE_FOLDS, []
    for k in range(GUIDE_FOLDS):
        own = fold != k
        booster = HistGradientBoostingRegressor(random_state=0)
        boosters.append(booster.fit(rows[own], targets[own], counts[own]))
        left_out[~own] = booster.predict(rows[~own])
    predicted = np.full(len(X), np.mean(left_out))  # rows of weight 0 are never looked at
    predicted[weights > 0] = left_out[same.ravel()]
    return Guide.mean_of(boosters), predicted


def refuse_guided(model: Any, what: str) -> None:
    """Raise if a model has a guide; `what` names what needs a function of its columns alone."""
    if model.kinds_.guide is not None:
        raise ParameterError(f"{what} a model with a guide, since trees are no process; fit guide=None")


def check_guide(model: Any, y: np.ndarray | None, way: str = "known") -> bool:
    """Return whether a regressor has a guide; raise if its data do not allow one."""
    require_one_of("guide", model.guide, GUIDES)
    message = ""
    if y is None:
        message = "needs all rows at once; give arrays"
    elif y.ndim > 1 or model.outputs == "coregionalised":
        message = "is for one target; use outputs='independent'"
    elif way == "variances":
        message = "needs inputs that are known; use missing='drop', or a kernel other than the RBF"
    if message and model.guide is not None:
        raise ParameterError(f"guide={model.guide!r} {message}")
    return model.guide is not None
