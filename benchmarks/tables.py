"""The default regressor beside gradient boosting on tables: error, log loss, coverage and seconds.

    python benchmarks/tables.py --jobs 8 --out tables.jsonl      # everything; go on where it was stopped
    python benchmarks/tables.py yacht energy --folds 2 --only inducing CatBoost
    python benchmarks/tables.py --quick                          # a minute: does it all work?
    python benchmarks/tables.py --summary --out tables.jsonl     # what is known so far

Tables are `NAME.npz` with X, y and fold in the folder that INDUCING_DATA names, the numbers of some CSV files
there, kin-40k and pumadyn-32nm with the literature's split, those that come with scikit-learn, and the sets
of training.py. Of tables with fewer than 5,000 rows every fold is a test, of others the first; the sets of
training.py are drawn anew instead. CatBoost, LightGBM and HistGradientBoosting run at their own default
settings, the first two where they are installed; their constant noise is their error in five-fold
cross-validation, whose time counts, and "CatBoost, its own uncertainty" is its loss RMSEWithUncertainty. The
exact GP with a Matérn 3/2 kernel takes part up to 3,000 rows. Each of the `--jobs` has an equal share of the
cores to itself; every result is a line of JSON in `--out` as soon as it is there. A small fit before the
first that is timed loads compiled code.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

SMALL = 5_000  # rows up to which every fold is a test
EXACT = 3_000  # rows up to which the exact GP takes part
FILES = "yacht autompg forest stock energy wine gas sml parkinsons tamielectric keggdirected".split()
SPLIT = {"kin-40k": "kin40k", "pumadyn-32nm": "pumadyn32nm"}  # with rows of their own to judge by
BUNDLED = ("diabetes", "friedman1")
TARGETS = {  # of tables/NAME.csv.gz
    "diamonds": "price",
    "Wage": "wage",
    "DoctorVisits": "visits",
    "RainIbk": "rain",
}
SCORES = ("nRMSE", "MSLL", "cover", "max |z|", "learning", "seconds", "cpu")
OURS, PEER = "inducing", "CatBoost"
Prediction = tuple[np.ndarray, np.ndarray]  # mean and std of y
Method = Callable[["Rows"], Callable[[], Prediction]]  # it learns, and what it returns predicts
Record = dict[str, Any]


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


def rows_of(name: str, test: int) -> Rows:
    """The split of a table with this number."""
    if name in SPLIT:
        import inducing as ig

        data = ig.datasets.load(SPLIT[name])
        assert data.y_test is not None
        return Rows(data.X_train, data.y_train, data.X_test, data.y_test)
    if name.startswith("set: "):
        from training import SETS

        draw, n, _ = SETS[name.removeprefix("set: ")]
        X, y = draw(np.random.default_rng(1000 + test))
        return Rows(X[:n], y[:n], X[n:], y[n:])
    X, y, fold = table(name)
    held = fold == test
    return Rows(X[~held], y[~held], X[held], y[held])


def everything() -> list[str]:
    """The names of all tables that are at hand."""
    from training import SETS

    stored = "INDUCING_DATA" in os.environ
    real = ("boston", "kin-40k", "pumadyn", "sarcos")  # sets that need files
    sets = [f"set: {name}" for name in SETS if stored or not name.startswith(real)]
    sets.remove("set: diabetes")
    return [*([*FILES, *TARGETS, *SPLIT] if stored else []), *BUNDLED, *sets]


def folds(name: str, most: int) -> int:
    """How many splits of a table are looked at."""
    if name in SPLIT:
        return 1
    return min(most, 10 if name.startswith("set: ") or len(table(name)[1]) < SMALL else 1)


def ours(**options: Any) -> Method:
    def fit(rows: Rows) -> Callable[[], Prediction]:
        import inducing as ig

        model = ig.SparseGPRegressor(random_state=0, **options).fit(rows.X, rows.y)
        return lambda: model.predict(rows.Xs, return_std=True)

    return fit


def boosted(make: Callable[[], Any]) -> Method:
    """A booster with the constant noise of five-fold cross-validation."""

    def fit(rows: Rows) -> Callable[[], Prediction]:
        from sklearn.model_selection import cross_val_predict

        left = rows.y - cross_val_predict(make(), rows.X, rows.y, cv=5)
        model = make().fit(rows.X, rows.y)
        return lambda: (model.predict(rows.Xs), np.full(len(rows.ys), np.sqrt(np.mean(left**2))))

    return fit


def catboost(**options: Any) -> Any:
    from catboost import CatBoostRegressor

    cores = len(os.sched_getaffinity(0))
    settings = dict(verbose=0, random_seed=0, allow_writing_files=False, thread_count=cores)
    return CatBoostRegressor(**settings, **options)


def catboost_with_uncertainty(rows: Rows) -> Callable[[], Prediction]:
    model = catboost(loss_function="RMSEWithUncertainty").fit(rows.X, rows.y)

    def predict() -> Prediction:
        answer = model.predict(rows.Xs)
        return answer[:, 0], np.sqrt(answer[:, 1])

    return predict


def lightgbm() -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(verbose=-1, random_state=0, n_jobs=len(os.sched_getaffinity(0)))


def histograms() -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=0)


METHODS: dict[str, Method] = {
    OURS: ours(),
    "exact Matérn 3/2": ours(approximation="exact", kernel="matern32"),
    "vfe, m = 500": ours(approximation="vfe", n_inducing=500),
    "fitc, m = 500": ours(approximation="fitc", n_inducing=500),
    "HistGradientBoosting": boosted(histograms),
    "LightGBM": boosted(lightgbm),
    PEER: boosted(catboost),
    "CatBoost, its own uncertainty": catboost_with_uncertainty,
}


def methods(given: argparse.Namespace) -> list[str]:
    """Those that are wanted and installed."""
    packages = {"LightGBM": "lightgbm", "CatBoost": "catboost"}
    names = [name for name in METHODS if given.only is None or name.startswith(tuple(given.only))]
    missing = [p for p, module in packages.items() if not importlib.util.find_spec(module)]
    names = [name for name in names if not name.startswith(tuple(missing))]
    return [name for name in names if not (given.quick and "500" in name)]


def scores(rows: Rows, fit: Method) -> dict[str, float]:
    """What a method reaches on a split: normalised RMSE, MSLL, coverage of 95 %, largest standardised error,
    seconds by the clock until it has learned and until it has predicted, and seconds of the processor.
    """
    import inducing as ig

    began, spent = time.perf_counter(), time.process_time()
    predict = fit(rows)
    learning = time.perf_counter() - began
    mean, std = predict()
    seconds, cpu = time.perf_counter() - began, time.process_time() - spent
    trivial, var = ig.metrics.Baseline.of(rows.y), np.maximum(std, 1e-12) ** 2
    values = (
        np.sqrt(ig.metrics.smse(rows.ys, mean, trivial)),
        ig.metrics.msll(rows.ys, mean, var, trivial),
        ig.metrics.coverage(rows.ys, mean, var),
        np.max(np.abs(rows.ys - mean) / np.sqrt(var)),
        learning,
        seconds,
        cpu,
    )
    return {name: float(value) for name, value in zip(SCORES, values, strict=True)}


def work(name: str, test: int, method: str) -> Record:
    """One fit of one method to one split."""
    rows = rows_of(name, test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        record = {"table": name, "fold": test, "method": method, "n": len(rows.y), "d": rows.X.shape[1]}
        return record | scores(rows, METHODS[method])


def settle(shares: Any) -> None:
    """Take a share of the cores, and load what is compiled."""
    os.sched_setaffinity(0, shares.get())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        few = np.random.default_rng(0).standard_normal((60, 3))
        METHODS[OURS](Rows(few[:, :2], few[:, 2], few[:, :2], few[:, 2]))()


def missing(given: argparse.Namespace, names: list[str], known: list[Record]) -> list[tuple[str, int, str]]:
    """What is still to be run, the longest first so that no core waits for one at the end."""
    done = {(r["table"], r["fold"], r["method"]) for r in known}
    left = []
    for name in names:
        n = len(rows_of(name, 0).y)
        wanted = [m for m in methods(given) if not m.startswith("exact") or n <= EXACT]
        left += [
            (n, name, test, m)
            for test in range(folds(name, given.folds))
            for m in wanted
            if (name, test, m) not in done
        ]
    left.sort(key=lambda job: (-min(job[0], SMALL), job[2]))
    return [job[1:] for job in left]


def run(given: argparse.Namespace, jobs: list[tuple[str, int, str]]) -> None:
    """Run what is missing, each process on cores of its own, and write each result at once."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // given.jobs)
    os.environ |= {name: str(share) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    context = get_context("spawn")
    shares = context.Queue()
    for i in range(given.jobs):
        shares.put(set(cores[i * share % len(cores) :][:share]))
    with ProcessPoolExecutor(given.jobs, context, settle, (shares,)) as pool, given.out.open("a") as out:
        for future in as_completed([pool.submit(work, *job) for job in jobs]):
            record = future.result() | {"cores": share}
            out.write(json.dumps(record) + "\n")
            out.flush()
            print(_line(record["table"], f"{record['method']}, {record['fold']}", record), flush=True)


def _line(name: str, method: str, values: Record) -> str:
    error, loss, cover, *others = (values[score] for score in SCORES)
    head = f"{name:<26}{method:<34}{error:9.4f}{loss:9.3f}{cover:8.3f}"
    return head + "".join(f"{value:9.1f}" for value in others)


def summary(known: list[Record]) -> None:
    """The means over the splits of each table, and the default against the goals."""
    found: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in known:
        found[record["table"]][record["method"]].append(record)
    print(f"{'table':<26}{'method':<34}" + "".join(f"{s:>{8 if s == 'cover' else 9}}" for s in SCORES))
    means = {}
    for name, of_table in found.items():
        means[name] = {
            m: {s: float(np.mean([r[s] for r in records])) for s in SCORES} for m, records in of_table.items()
        }
        for m, values in means[name].items():
            print(_line(name, m, values))
    rows = [of_table for of_table in means.values() if OURS in of_table and len(of_table) > 1]
    if not rows:
        return

    def of(score: str) -> tuple[np.ndarray, np.ndarray]:
        """The default's score and the best one, of every table."""
        own = np.array([row[OURS][score] for row in rows])
        return own, np.array([min(each[score] for each in row.values()) for row in rows])

    (error, least), (loss, lowest), cover = of("nRMSE"), of("MSLL"), of("cover")[0]
    both = [(row[OURS], row[PEER]) for row in rows if PEER in row]
    ratios = [np.mean([np.log(own[time] / peer[time]) for own, peer in both]) for time in SCORES[4:6]]
    parts = [
        f"{len(rows)} tables. RMSE within 2 % of the best on {np.mean(error <= 1.02 * least):.0%} (75 %)",
        f"at most {np.max(error / least) - 1:.0%} behind (10 %)",
        f"log loss within .02 on {np.mean(loss <= lowest + 0.02):.0%} (75 %)",
        f"bands of 95 % hold {np.mean(cover):.1%} (92 to 98 %), at least {np.min(cover):.1%} (88 %)",
        f"{np.exp(ratios[1]):.2f} of CatBoost's time (1), {np.exp(ratios[0]):.2f} until it has learned",
    ]
    print("; ".join(parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tables", nargs="*", help="by the beginning of their names; all where none is named")
    parser.add_argument("--folds", type=int, default=10, help="at most so many of each table")
    parser.add_argument("--only", nargs="*", help="methods by the beginning of their names")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--out", type=Path, default=Path("tables.jsonl"), help="results, line by line")
    parser.add_argument("--summary", action="store_true", help="run nothing")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    names = [name for name in everything() if not given.tables or name.startswith(tuple(given.tables))]
    if given.quick:
        names, given.folds = ["diabetes", "set: wave"], 1
    known = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    jobs = [] if given.summary else missing(given, names, known)
    if jobs:
        run(given, jobs)
        known = [json.loads(line) for line in given.out.read_text().splitlines()]
    wanted = set(methods(given))
    summary([record for record in known if record["table"] in names and record["method"] in wanted])


if __name__ == "__main__":
    main()
