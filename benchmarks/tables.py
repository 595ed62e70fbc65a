"""The default regressor beside gradient boosting on tables: error, log loss, coverage and seconds.

    python benchmarks/tables.py                        # every table here, all folds of the small ones
    python benchmarks/tables.py yacht energy --folds 2
    python benchmarks/tables.py --quick                # seconds: does it all work?

Tables are `NAME.npz` with X, y and fold in the folder that INDUCING_DATA names, the numbers of some CSV
files there, and those that come with scikit-learn. The constant noise of a booster is its cross-validated
error, whose time counts. CatBoost and LightGBM take part where they are installed, the exact GP with a
Matérn 3/2 kernel up to 3,000 rows.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SMALL = 5_000  # rows up to which every fold is a test
FILES = "yacht autompg forest stock energy wine gas sml parkinsons tamielectric keggdirected".split()
BUNDLED = ("diabetes", "friedman1")
TARGETS = {
    "diamonds": "price",
    "Wage": "wage",
    "DoctorVisits": "visits",
    "RainIbk": "rain",
}  # tables/NAME.csv.gz
Prediction = tuple[np.ndarray, np.ndarray]  # mean and std of y


@dataclass(frozen=True)
class Rows:
    """Rows to learn from and rows to judge by."""

    X: np.ndarray
    y: np.ndarray
    Xs: np.ndarray
    ys: np.ndarray


def table(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, y and the fold of each row."""
    if name == "friedman1":
        from sklearn.datasets import make_friedman1

        X, y = make_friedman1(1500, noise=1.0, random_state=0)
    elif name == "diabetes":
        from sklearn.datasets import load_diabetes

        X, y = load_diabetes(return_X_y=True)
    elif name in TARGETS:
        import pandas as pd

        frame = pd.read_csv(Path(os.environ["INDUCING_DATA"]) / "tables" / f"{name}.csv.gz")
        numbers = frame.select_dtypes("number").drop(columns="logwage", errors="ignore").dropna()
        X, y = (numbers.drop(columns=TARGETS[name]).to_numpy(float), numbers[TARGETS[name]].to_numpy(float))
    else:
        with np.load(Path(os.environ["INDUCING_DATA"]) / f"{name}.npz") as held:
            return held["X"], held["y"].ravel(), held["fold"]
    return X, y, np.random.default_rng(0).permutation(len(y)) % 10


def folds(name: str, most: int) -> Iterator[Rows]:
    """The splits of a table: all folds of a small one, else the first."""
    X, y, fold = table(name)
    for test in range(min(most, 10 if len(y) < SMALL else 1)):
        held = fold == test
        yield Rows(X[~held], y[~held], X[held], y[held])


def ours(**options: Any) -> Callable[[Rows], Prediction]:
    def fit(rows: Rows) -> Prediction:
        import inducing as ig

        model = ig.SparseGPRegressor(random_state=0, **options).fit(rows.X, rows.y)
        return model.predict(rows.Xs, return_std=True)

    return fit


def boosted(make: Callable[[], Any]) -> Callable[[Rows], Prediction]:
    """A booster with the constant noise of five-fold cross-validation."""

    def fit(rows: Rows) -> Prediction:
        from sklearn.model_selection import cross_val_predict

        left = rows.y - cross_val_predict(make(), rows.X, rows.y, cv=5)
        mean = make().fit(rows.X, rows.y).predict(rows.Xs)
        return mean, np.full(len(mean), np.sqrt(np.mean(left**2)))

    return fit


def catboost_with_uncertainty(rows: Rows) -> Prediction:
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty", verbose=0, random_seed=0, allow_writing_files=False
    )
    answer = model.fit(rows.X, rows.y).predict(rows.Xs)
    return answer[:, 0], np.sqrt(answer[:, 1])


def methods(n: int) -> dict[str, Callable[[Rows], Prediction]]:
    """Those that are installed, at their own settings."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    found: dict[str, Callable[[Rows], Prediction]] = {"inducing": ours()}
    if n <= 3_000:
        found["exact Matérn 3/2"] = ours(approximation="exact", kernel="matern32")
    found |= {f"{row}, m = 500": ours(approximation=row, n_inducing=500) for row in ("vfe", "fitc")}
    found["HistGradientBoosting"] = boosted(lambda: HistGradientBoostingRegressor(random_state=0))
    if importlib.util.find_spec("lightgbm"):
        from lightgbm import LGBMRegressor

        found["LightGBM"] = boosted(lambda: LGBMRegressor(verbose=-1, random_state=0))
    if importlib.util.find_spec("catboost"):
        from catboost import CatBoostRegressor

        settings: dict[str, Any] = dict(verbose=0, random_seed=0, allow_writing_files=False)
        found["CatBoost"] = boosted(lambda: CatBoostRegressor(**settings))
        found["CatBoost, its own uncertainty"] = catboost_with_uncertainty
    return found


def scores(rows: Rows, fit: Callable[[Rows], Prediction]) -> np.ndarray:
    """Normalised RMSE, MSLL, coverage of 95 %, largest standardised error, seconds. (5,)"""
    import inducing as ig

    began = time.perf_counter()
    mean, std = fit(rows)
    seconds = time.perf_counter() - began
    trivial, var = ig.metrics.Baseline.of(rows.y), np.maximum(std, 1e-12) ** 2
    return np.array(
        [
            np.sqrt(ig.metrics.smse(rows.ys, mean, trivial)),
            ig.metrics.msll(rows.ys, mean, var, trivial),
            ig.metrics.coverage(rows.ys, mean, var),
            np.max(np.abs(rows.ys - mean) / np.sqrt(var)),
            seconds,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--folds", type=int, default=10, help="at most so many of each table")
    parser.add_argument("--only", nargs="*", help="methods by the beginning of their names")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    names = args.tables or [*([*FILES, *TARGETS] if "INDUCING_DATA" in os.environ else []), *BUNDLED]
    if args.quick:
        names, args.folds = ["diabetes"], 1
    print(f"{'table':<14}{'method':<32}{'nRMSE':>9}{'MSLL':>9}{'cover':>8}{'max |z|':>9}{'seconds':>9}")
    for name in names:
        splits = list(folds(name, args.folds))
        for method, fit in methods(len(splits[0].y)).items():
            wanted = args.only is None or any(method.startswith(start) for start in args.only)
            if not wanted or (args.quick and "500" in method):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = np.array([scores(rows, fit) for rows in splits])
            error, loss, cover, largest, seconds = np.mean(found, axis=0)
            line = f"{name:<14}{method:<32}{error:9.4f}{loss:9.3f}{cover:8.3f}{largest:9.1f}{seconds:9.1f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
