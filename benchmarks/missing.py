"""Tables with a fifth of the inputs missing at random: rows used as they are, dropped, or filled with means.

    INDUCING_DATA=folder python -m benchmarks.missing [table ...]

Each of the first three folds is held out in turn. Gaps are in the inputs of all rows, with a fixed seed;
where rows are dropped, test rows are filled with the means of the training rows. Prints the error over the
standard deviation of the target, and in brackets the mean log loss less that of a Gaussian of the training
targets; writes nothing.
"""

import os
import sys
from pathlib import Path

import numpy as np

import inducing as ig
from inducing.metrics import msll, smse

TABLES = ("yacht", "autompg", "stock", "energy", "wine")
SHARE, FOLDS = 0.2, 3


def gappy(name: str, held: int) -> tuple[np.ndarray, ...]:
    """Training rows and those of a fold, with gaps."""
    with np.load(Path(os.environ["INDUCING_DATA"]) / f"{name}.npz") as data:
        X, y, fold = data["X"].astype(float), data["y"].astype(float).ravel(), data["fold"].ravel()
    X[np.random.default_rng(held).uniform(size=X.shape) < SHARE] = np.nan
    return X[fold != held], y[fold != held], X[fold == held], y[fold == held]


def scores(name: str, held: int) -> dict[str, tuple[float, float]]:
    """The error and log loss of each way."""
    X, y, XS, yS = gappy(name, held)
    means, whole = np.nanmean(X, axis=0), ~np.isnan(X).any(axis=1)
    filled, queries = np.where(np.isnan(X), means, X), np.where(np.isnan(XS), means, XS)
    ways = {
        "used": (ig.SparseGPRegressor(missing="use", random_state=0), X, y, XS),
        "dropped": (ig.SparseGPRegressor(random_state=0), X[whole], y[whole], queries),
        "means": (ig.SparseGPRegressor(random_state=0), filled, y, queries),
    }
    found = {}
    for way, (model, rows, targets, at) in ways.items():
        mean, std = model.fit(rows, targets).predict(at, return_std=True)
        found[way] = float(np.sqrt(smse(yS, mean, y))), float(msll(yS, mean, std**2, y))
    return found


def main() -> None:
    print("| table | used | dropped | filled with means |\n|---|---|---|---|")
    for name in sys.argv[1:] or TABLES:
        folds = [scores(name, held) for held in range(FOLDS)]
        means = {way: np.mean([fold[way] for fold in folds], axis=0) for way in folds[0]}
        cells = [f"{error:.3f} ({loss:+.2f})" for error, loss in means.values()]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
