"""A board of our own: the metrics of ScoringBench and TabArena on the tables at hand, ours beside others.

    python -m benchmarks.boards --out boards.jsonl                       # goes on where it was stopped
    python -m benchmarks.boards yacht diabetes iris --folds 2
    python -m benchmarks.boards --summary --out boards.jsonl             # the tables of what is known
    python -m benchmarks.boards --quick                                  # does it all work?

Every method has its default settings; CatBoost, LightGBM and NGBoost take part where they are installed. A
method that predicts only a number has the constant noise of its errors in five-fold cross-validation. The
exact GP is scikit-learn's (RBF, a lengthscale for each input, learned noise) on at most 1,000 random rows,
its classifier on 500. "trivial" answers with the mean and spread, or the shares, of the targets; a method
that fails on a split has its scores there. A table counts in the ranks when all methods have done the same
splits of it. The normalised score of a table is 1 for the best method, 0 for the median one and for those
behind it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .. import likelihoods, tables

OURS = "inducing"
SCORES = {
    "regression": ("RMSE", "log score", "CRPS", "interval score"),
    "classes": ("error", "log loss", "Brier"),
}
LEVEL = 0.9  # of the intervals
EXACT = {"regression": 1_000, "classes": 500}  # rows that the exact GP sees
NUMBERS = "yacht diabetes autompg forest stock energy friedman1 wine Wage RainIbk gas sml parkinsons".split()
CLASSES = ("crabs", "iris", "wine classes", "sonar", "breast cancer", "digits")
PACKAGES = {"CatBoost": "catboost", "LightGBM": "lightgbm", "NGBoost": "ngboost"}
Record = dict[str, Any]
Rows = tables.Rows


def split(task: str, name: str, fold: int, folds: int) -> Rows:
    """A table's rows to learn from and to judge by."""
    if task == "regression":
        return tables.rows_of(name, fold)
    whole = likelihoods.TABLES[name.removesuffix(" classes")][0]()
    part = list(whole.splits(max(2, folds)))[fold]
    return Rows(part.X, part.y, part.Xs, part.ys)


# what each method answers: the scores of each row of a regression, or probabilities of classes


def gaussian(fit: Callable[[Rows], tables.Prediction]) -> Callable[[Rows], dict[str, float]]:
    """The scores of a method that predicts means and standard deviations."""

    def scores(rows: Rows) -> dict[str, float]:
        from scipy.special import ndtri

        import inducing as ig

        mean, std = fit(rows)
        std = np.maximum(std, 1e-9 * np.std(rows.y))
        half = ndtri(0.5 + LEVEL / 2) * std
        return {
            "RMSE": float(np.sqrt(np.mean((rows.ys - mean) ** 2))),
            "log score": ig.metrics.nlpd(rows.ys, mean, std**2),
            "CRPS": ig.metrics.crps(rows.ys, mean, std**2),
            "interval score": ig.metrics.interval_score(rows.ys, mean - half, mean + half, LEVEL),
        }

    return scores


def ours(rows: Rows) -> dict[str, float]:
    import inducing as ig

    answer = ig.SparseGPRegressor(random_state=0).fit(rows.X, rows.y).predict_distribution(rows.Xs)
    low, high = answer.interval(LEVEL).T
    return {
        "RMSE": float(np.sqrt(np.mean((rows.ys - answer.mean) ** 2))),
        "log score": -float(np.mean(answer.log_density(rows.ys))),
        "CRPS": float(np.mean(answer.crps(rows.ys))),
        "interval score": ig.metrics.interval_score(rows.ys, low, high, LEVEL),
    }


def trivial(rows: Rows) -> tables.Prediction:
    return np.full(len(rows.ys), rows.y.mean()), np.full(len(rows.ys), rows.y.std())


def ngboost(rows: Rows) -> tables.Prediction:
    from ngboost import NGBRegressor

    answer = NGBRegressor(verbose=False, random_state=0).fit(rows.X, rows.y).pred_dist(rows.Xs)
    return answer.loc, answer.scale


def ridge() -> Any:
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15)))


def some(rows: Rows, task: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows that the exact GP sees."""
    chosen = np.random.default_rng(0).permutation(len(rows.y))[: EXACT[task]]
    return rows.X[chosen], rows.y[chosen]


def exact(rows: Rows) -> tables.Prediction:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    kernel = ConstantKernel(1.0) * RBF(np.ones(rows.X.shape[1])) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    return (
        make_pipeline(StandardScaler(), model)
        .fit(*some(rows, "regression"))
        .predict(rows.Xs, return_std=True)
    )


def labelled(make: Callable[[], Any], task: str = "") -> Callable[[Rows], dict[str, float]]:
    """The scores of a classifier's probabilities, cut to [1e-15, 1]."""

    def scores(rows: Rows) -> dict[str, float]:
        model = make().fit(*(some(rows, task) if task else (rows.X, rows.y)))
        p = np.zeros((len(rows.ys), int(rows.y.max()) + 1))
        p[:, np.asarray(model.classes_ if hasattr(model, "classes_") else range(p.shape[1]), int)] = (
            model.predict_proba(rows.Xs)
        )
        own = np.clip(p[np.arange(len(p)), rows.ys], 1e-15, 1.0)
        return {
            "error": float(np.mean(np.argmax(p, axis=1) != rows.ys)),
            "log loss": -float(np.mean(np.log(own))),
            "Brier": float(np.mean(np.sum((p - np.eye(p.shape[1])[rows.ys]) ** 2, axis=1))),
        }

    return scores


def our_classifier() -> Any:
    import inducing as ig

    return ig.SparseGPClassifier(random_state=0)


def shares() -> Any:
    from sklearn.dummy import DummyClassifier

    return DummyClassifier(strategy="prior")


def catboost_classifier() -> Any:
    from catboost import CatBoostClassifier

    cores = len(os.sched_getaffinity(0))
    return CatBoostClassifier(verbose=0, random_seed=0, allow_writing_files=False, thread_count=cores)


def lightgbm_classifier() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(verbose=-1, random_state=0, n_jobs=len(os.sched_getaffinity(0)))


def histogram_classifier() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=0)


class NGBoostClasses:
    """NGBoost's classifier, which must be told how many classes there are."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> NGBoostClasses:
        from ngboost import NGBClassifier
        from ngboost.distns import k_categorical

        classes = k_categorical(int(y.max()) + 1)
        self.model = NGBClassifier(Dist=classes, verbose=False, random_state=0).fit(X, y)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict_proba(X)


def logistic() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))


def exact_classifier() -> Any:
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    kernel = ConstantKernel(1.0) * RBF(2.0)
    return make_pipeline(StandardScaler(), GaussianProcessClassifier(kernel, random_state=0))


METHODS: dict[str, dict[str, Callable[[Rows], dict[str, float]]]] = {
    "regression": {
        OURS: ours,
        "CatBoost": gaussian(tables.boosted(tables.catboost)),
        "CatBoost, its own uncertainty": gaussian(tables.catboost_with_uncertainty),
        "LightGBM": gaussian(tables.boosted(tables.lightgbm)),
        "HistGradientBoosting": gaussian(tables.boosted(tables.histograms)),
        "NGBoost": gaussian(ngboost),
        "ridge": gaussian(tables.boosted(ridge)),
        "exact GP": gaussian(exact),
        "trivial": gaussian(trivial),
    },
    "classes": {
        OURS: labelled(our_classifier),
        "CatBoost": labelled(catboost_classifier),
        "LightGBM": labelled(lightgbm_classifier),
        "HistGradientBoosting": labelled(histogram_classifier),
        "NGBoost": labelled(NGBoostClasses),
        "logistic": labelled(logistic),
        "exact GP": labelled(exact_classifier, "classes"),
        "trivial": labelled(shares),
    },
}


def methods(task: str) -> list[str]:
    """Those whose packages are installed."""
    missing = tuple(name for name, module in PACKAGES.items() if not importlib.util.find_spec(module))
    return [name for name in METHODS[task] if not name.startswith(missing or ("\0",))]


def work(task: str, name: str, fold: int, folds: int, method: str) -> Record:
    """The scores and processor time of one method on one split; of the trivial one where it fails."""
    rows = split(task, name, fold, folds)
    spent = time.process_time()
    failed = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            scores = METHODS[task][method](rows)
        except ImportError:
            raise  # a package that is not whole is no failure of its method
        except Exception as error:  # of other people's code; the board says so
            failed, scores = f"{type(error).__name__}: {error}", METHODS[task]["trivial"](rows)
    cpu = time.process_time() - spent
    told = {
        "task": task,
        "table": name,
        "fold": fold,
        "method": method,
        "n": len(rows.y),
        "d": rows.X.shape[1],
    }
    return told | scores | {"cpu": cpu, "failed": failed}


def jobs(wanted: list[str], folds: int) -> Iterator[tuple[str, str, int, int, str]]:
    """All fits there are, those of a table together."""
    stored = "INDUCING_DATA" in os.environ
    for task, names in (("classes", CLASSES), ("regression", NUMBERS)):
        at_hand = [n for n in names if stored or n in (*tables.BUNDLED, *CLASSES[1:3], *CLASSES[4:])]
        for name in at_hand:
            if not wanted or name in wanted:
                most = folds if task == "classes" else tables.folds(name, folds)
                yield from ((task, name, fold, folds, m) for fold in range(most) for m in methods(task))


def means(known: list[Record], task: str) -> tuple[list[str], list[str], np.ndarray]:
    """Tables, methods and the mean scores (tables, methods, scores) where all methods did the same splits."""
    found: dict[str, dict[str, dict[int, Record]]] = {}
    for record in known:
        if record["task"] == task:
            found.setdefault(record["table"], {}).setdefault(record["method"], {})[record["fold"]] = record
    who = [m for m in METHODS[task] if any(m in of_table for of_table in found.values())]
    names, scores = [], []
    for name, of_table in found.items():
        if len(of_table) < len(who) or len({frozenset(splits) for splits in of_table.values()}) > 1:
            continue
        names.append(name)
        scores.append([[np.mean([r[s] for r in of_table[m].values()]) for s in SCORES[task]] for m in who])
    return names, who, np.array(scores).reshape(len(names), len(who), len(SCORES[task]))


def ranks(scores: np.ndarray) -> np.ndarray:
    """Mean ranks over tables, equal scores sharing theirs. (methods, scores)"""
    from scipy.stats import rankdata

    return np.mean(rankdata(scores, axis=1), axis=0)


def normalised(scores: np.ndarray) -> np.ndarray:
    """Mean over tables of 1 for the best score, 0 for the median and beyond. (methods, scores)"""
    best, middle = np.min(scores, axis=1, keepdims=True), np.median(scores, axis=1, keepdims=True)
    span = np.where(middle > best, middle - best, 1.0)
    return np.mean(np.clip((middle - scores) / span, 0.0, 1.0) + (middle == best) * (scores == best), axis=0)


def summary(known: list[Record]) -> str:
    """The tables in Markdown: mean rank and mean normalised score of each method, and the processor time."""
    lines: list[str] = []
    for task, of_task in SCORES.items():
        names, who, scores = means(known, task)
        if not names:
            continue
        rank, score = ranks(scores), normalised(scores)
        counted = [r for r in known if r["task"] == task and r["table"] in names]
        cpu = [np.mean([r["cpu"] for r in counted if r["method"] == m]) for m in who]
        lines += [f"{task}, {len(names)} tables ({', '.join(names)}): mean rank, mean normalised score", ""]
        lines += [f"| | {' | '.join(of_task)} | processor seconds |", "|---" * (len(of_task) + 2) + "|"]
        for i in np.argsort(rank[:, 2 if task == "regression" else 1], kind="stable"):
            cells = [f"{rank[i, j]:.2f}, {score[i, j]:.2f}" for j in range(len(of_task))]
            failures = sum(r["method"] == who[i] and r["failed"] is not None for r in counted)
            note = f" (failed on {failures})" if failures else ""
            lines.append(f"| {who[i]}{note} | {' | '.join(cells)} | {cpu[i]:.1f} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tables", nargs="*", help=f"some of {', '.join([*NUMBERS, *CLASSES])}")
    parser.add_argument("--folds", type=int, default=5, help="splits of each table")
    parser.add_argument("--out", type=Path, default=Path("boards.jsonl"), help="results, line by line")
    parser.add_argument("--summary", action="store_true", help="run nothing")
    parser.add_argument("--quick", action="store_true", help="one split of two small tables")
    given = parser.parse_args()
    if given.quick:
        given.tables, given.folds = ["diabetes", "iris"], 1
    known = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {(r["task"], r["table"], r["fold"], r["method"]) for r in known}
    with given.out.open("a") as out:
        for job in [] if given.summary else jobs(given.tables, given.folds):
            if (job[0], job[1], job[2], job[4]) in done:
                continue
            known.append(work(*job))
            out.write(json.dumps(known[-1]) + "\n")
            out.flush()
            first = SCORES[job[0]][:3]
            told = "  ".join(f"{s} {known[-1][s]:.4f}" for s in first)
            print(f"{job[1]:<16}{job[2]:>3}  {job[4]:<32}{told}  {known[-1]['cpu']:.1f} s", flush=True)
    print(summary(known))


if __name__ == "__main__":
    main()
