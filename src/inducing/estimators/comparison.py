"""`compare`: methods to fit one table, side by side, by error, log loss and time. [000 Fig 2], [001 Fig 3]"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import metrics, package
from ..errors import EmptyDataError, ParameterError, require_count, require_in, require_one_of
from ..inference.selection import BY_NAME as RULES
from ..learning.recipes import RECIPES
from ..model.problem import as_inputs, as_targets
from ..model.table import TABLE
from ..numerics.arrays import as_floats, require_numbers
from .classifier import SparseGPClassifier
from .regressor import SparseGPRegressor

if TYPE_CHECKING:
    from pandas import DataFrame

ROWS_OF_TABLE = tuple(name for name, row in TABLE.items() if not row.blocks)
BASELINES = ("mean", "linear", "boosting")  # from scikit-learn, without a basis
METHODS = tuple(dict.fromkeys((*RECIPES, *RULES, *ROWS_OF_TABLE, "exact", *BASELINES)))
USUAL = ("auto", "spgp-full", "vsgp-full", "vfe", "random", "kmeans", "information-gain", "exact", *BASELINES)
EXACT_ROWS = 1000  # of the exact GP, at most
SIZES = {"exact": EXACT_ROWS} | dict.fromkeys(BASELINES, 0)  # of the methods that `sizes` does not concern
METHODS_FOR_CLASSES = ("fitc", "vfe", "pep", "dtc", *BASELINES)
USUAL_FOR_CLASSES = ("fitc", "vfe", *BASELINES)
BLIND = ("random", "kmeans")  # rules that use no kernel, so none is learned before them


@dataclass(frozen=True)
class Result:
    """One fit of a regressor, and how well it predicts held-out rows."""

    method: str
    size: int  # basis functions asked for; for "exact" the most rows it may use
    repeat: int
    m: int  # basis functions of the fitted model
    smse: float
    msll: float
    coverage: float  # of intervals of 95 %
    noise: float  # its variance
    log_evidence: float
    iterations: int
    seconds: float


@dataclass(frozen=True)
class ClassResult:
    """One fit of a classifier, and how well it predicts the labels of held-out rows."""

    method: str
    size: int
    repeat: int
    m: int
    error: float  # the share of wrong labels
    log_loss: float
    seconds: float


ComparisonProgress = Callable[[int, int, str], None]


def compare(
    X: Any,
    y: Any,
    *,
    methods: Sequence[str] | None = None,
    sizes: Sequence[int] = (10, 25, 50, 100),
    approximation: str = "fitc",
    kernel: Any = None,
    repeats: int = 1,
    test_fraction: float = 0.2,
    max_iter: int = 200,
    budget: float | None = None,
    random_state: int = 0,
    progress: ComparisonProgress | None = None,
) -> DataFrame:
    """Fit X (n, d), y (n,) by each method with each number of basis functions; return a table of the fits.

    A method is one of METHODS:

        a recipe         "auto", "direct", "spgp-full", …, as `SparseGPRegressor(recipe=…)`
        a rule           "random", "information-gain", …: the basis stays where `selection` puts it, and
                         hyperparameters are learned; a rule that uses the kernel gets one that was learned
                         on k-means centres before, with half of the iterations
        an approximation "vfe", "dtc", …: everything at once, by its own evidence
        "exact"          the exact GP on at most 1000 rows, whatever the size
        a baseline       "mean"; "linear", a ridge or logistic regression; "boosting", scikit-learn's
                         HistGradientBoosting; their variance is the square error on a left-out fifth

    methods=None takes a few of each kind. y of text or booleans are classes: approximations and baselines are
    compared by error and log loss. `approximation` is that of recipes and rules. Each repeat has another seed
    and holds out other rows, the same for all methods. Sizes come in ascending order, and no fit starts once
    `budget` seconds have passed. progress is a function of (fits done, fits in all, what is next). Ctrl-C
    returns the fits that are finished.
    """
    pd = package("pandas")
    from sklearn.model_selection import train_test_split

    results: list[Result | ClassResult] = []
    labelled = np.asarray(y).dtype.kind in "OUSbT"
    usual, known = (USUAL_FOR_CLASSES, METHODS_FOR_CLASSES) if labelled else (USUAL, METHODS)
    jobs = _jobs(usual if methods is None else methods, known, sizes, repeats)
    data = _checked(X, y, test_fraction, labelled)
    test_rows = round(test_fraction * len(data[1]))
    began = time.perf_counter()
    try:
        for done, (size, repeat, method) in enumerate(jobs):
            if budget is not None and time.perf_counter() - began > budget:
                break
            if progress is not None:
                progress(done, len(jobs), f"{method}, m = {size}, repeat {repeat + 1} of {repeats}")
            split = train_test_split(*data, test_size=test_rows, random_state=random_state + repeat)
            settings = {"kernel": kernel, "max_iter": max_iter, "random_state": random_state + repeat}
            if labelled:
                results.append(_result_of_classes(method, size, repeat, settings, split))
            else:
                settings["approximation"] = approximation
                results.append(_result(method, size, repeat, settings, split))
    except KeyboardInterrupt:
        pass
    columns = [field.name for field in fields(ClassResult if labelled else Result)]
    return pd.DataFrame([asdict(result) for result in results], columns=columns)


def summary(results: DataFrame) -> DataFrame:
    """Return averages over the repeats: one row for each method and size, in the order of the fits."""
    numbers = [name for name in results.columns if name not in ("method", "size", "repeat")]
    return results.groupby(["method", "size"], sort=False)[numbers].mean().reset_index()


def _jobs(
    methods: Sequence[str], known: Sequence[str], sizes: Sequence[int], repeats: int
) -> list[tuple[int, int, str]]:
    """Return (size, repeat, method) in the order to run them, those without a size first."""
    for name in methods:
        require_one_of("each of methods", name, known)
    if not len(methods) or not len(sizes) or repeats < 1:
        raise ParameterError(f"{len(methods)} methods, {len(sizes)} sizes, {repeats} repeats are too few")
    require_count("each of sizes", min(sizes))
    sizes, methods = sorted(set(sizes)), list(dict.fromkeys(methods))
    alone = [(SIZES[name], repeat, name) for name in SIZES for repeat in range(repeats) if name in methods]
    others = [method for method in methods if method not in SIZES]
    return alone + [(m, repeat, method) for m in sizes for repeat in range(repeats) for method in others]


def _checked(X: Any, y: Any, test_fraction: float, labelled: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return X and y as arrays; raise if they cannot be split into rows to fit and rows to hold out."""
    X = as_inputs(as_floats(X, "X"))
    require_numbers(y, "y", text=labelled)
    y = np.asarray(y) if labelled else as_targets(as_floats(y, "y"), X)
    if y.ndim != 1:
        raise ParameterError(f"one target can be compared at a time, but y has shape {y.shape}")
    require_in("test_fraction", test_fraction, "(0, 1)")
    if min(round(test_fraction * len(y)), len(y) - round(test_fraction * len(y))) < 2:
        raise EmptyDataError(f"{len(y)} rows cannot be split into two parts of two rows or more: add rows")
    return X, y


def _fitted(method: str, size: int, usual: dict[str, Any], X: np.ndarray, y: np.ndarray) -> SparseGPRegressor:
    """Fit rows by one method, with no more basis functions than there are different rows."""
    settings: dict[str, Any] = {"inducing": method, "optimize": "hyperparameters"}
    if method in RECIPES:
        settings = {"recipe": method}
    elif method in ROWS_OF_TABLE:
        settings = {"approximation": method, "recipe": "direct"}
    elif method == "exact":
        settings = {"approximation": "exact"}
        rows = np.random.default_rng(usual["random_state"]).permutation(len(y))[:EXACT_ROWS]
        X, y = X[rows], y[rows]
    elif method not in BLIND:
        half = usual["max_iter"] // 2
        first = _fitted("kmeans", size, usual | {"max_iter": half}, X, y)
        settings |= {"kernel": first.kernel_, "noise": first.noise_, "max_iter": usual["max_iter"] - half}
    m = min(size, len(np.unique(X, axis=0)))
    model = SparseGPRegressor(n_inducing=m, **(usual | settings)).fit(X, y)
    if "interrupted" in model.fit_result_.message:
        raise KeyboardInterrupt  # an interrupted fit says nothing about its method
    return model


def _result(method: str, size: int, repeat: int, usual: dict[str, Any], split: list[np.ndarray]) -> Result:
    """Fit rows by one method, and score it on the held-out rows."""
    X, X_test, y, y_test = split
    began = time.perf_counter()
    if method in BASELINES:
        mean, variance = _baseline_predictions(method, X, y, X_test, usual["random_state"])
        m, seconds, end = 0, time.perf_counter() - began, (float(variance[0]), np.nan, 0)
    else:
        model: Any = _fitted(method, size, usual, X, y)
        seconds, (mean, std) = time.perf_counter() - began, model.predict(X_test, return_std=True)
        m, variance = model.basis_size_, std**2
        end = float(model.noise_), model.log_evidence_, model.n_iter_
    smse, msll = metrics.smse(y_test, mean, y), metrics.msll(y_test, mean, variance, y)
    coverage = metrics.coverage(y_test, mean, variance)
    return Result(method, size, repeat, m, smse, msll, coverage, *end, seconds)


def _baseline(method: str, labelled: bool, seed: int) -> Any:
    """Return the scikit-learn estimator of a baseline."""
    from sklearn import dummy, ensemble, linear_model
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if method == "mean":
        return dummy.DummyClassifier(strategy="prior") if labelled else dummy.DummyRegressor()
    if method == "linear":
        line = linear_model.LogisticRegression(max_iter=1000) if labelled else linear_model.RidgeCV()
        return make_pipeline(StandardScaler(), line)
    kind = ensemble.HistGradientBoostingClassifier if labelled else ensemble.HistGradientBoostingRegressor
    return kind(random_state=seed)


def _baseline_predictions(
    method: str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a baseline's predictions, and as their variance its mean square error on a left-out fifth."""
    from sklearn.model_selection import train_test_split

    A, B, a, b = train_test_split(X, y, test_size=0.2, random_state=seed)
    model = _baseline(method, False, seed)
    variance = np.mean((b - model.fit(A, a).predict(B)) ** 2)
    return model.fit(X, y).predict(X_test), np.full(len(X_test), max(variance, 1e-12 * np.var(y)))


def _result_of_classes(
    method: str, size: int, repeat: int, settings: dict[str, Any], split: list[np.ndarray]
) -> ClassResult:
    """Fit the classes of rows by one method, and score it on the held-out rows."""
    X, X_test, y, y_test = split
    began = time.perf_counter()
    if method in BASELINES:
        model: Any = _baseline(method, True, settings["random_state"])
    else:
        m = min(size, len(np.unique(X, axis=0)))
        model = SparseGPClassifier(approximation=method, n_inducing=m, **settings)
    model.fit(X, y)
    seconds, p = time.perf_counter() - began, model.predict_proba(X_test)
    own = np.where(y_test[:, None] == model.classes_, p, 0.0).sum(axis=1)
    wrong = float(np.mean(model.classes_[p.argmax(axis=1)] != y_test))
    loss = -float(np.mean(np.log(np.maximum(own, 1e-15))))
    return ClassResult(method, size, repeat, getattr(model, "basis_size_", 0), wrong, loss, seconds)
