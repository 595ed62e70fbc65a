"""The row along neighbours: its cost beside FITC's, its predictions, and other libraries on the same rows.

    python benchmarks/neighbours.py                          # everything: hours on two cores
    python benchmarks/neighbours.py --only ratios predictions                    # a minute
    python benchmarks/neighbours.py --only regression --sets sml --rows 4000 --who neighbours GPBoost
    python benchmarks/neighbours.py --only classes --sets digits spam7
    python benchmarks/neighbours.py --only ratios --device cuda --sizes 1000000,512,8,20
    python benchmarks/neighbours.py --quick                  # seconds: does it all work?

The sets' files are in the folder INDUCING_DATA. Times are this machine's; the ratios are the result. GPBoost,
CatBoost, LightGBM and GPyTorch take part where they are installed, the exact GP where its rows fit.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from likelihoods import TABLES, Table, contenders, late_flights, score
from problems import Data, make
from tables import Rows, boosted, catboost, histograms, lightgbm, rows_of

import inducing as ig
from inducing.inference.regression import approximation_of, gradient_of, problem_of
from inducing.metrics import msll, smse
from inducing.numerics.arrays import placed, to_numpy

SIZES = ((10_000, 100, 8, 20), (44_000, 500, 21, 20))
EXACT_LIMIT = 10_000  # rows
SECTIONS = ("ratios", "predictions", "regression", "classes")
REGRESSION = (
    "parkinsons",
    "sml",
    "keggdirected",
    "tamielectric",
    "kin40k",
    "pumadyn32nm",
    "sarcos",
    "diamonds",
)
FLIGHTS = 300_000  # rows
CLASSES = ("kin40k", "usps", "digits", "spam7", "nassCDS", "late flights")
Prediction = tuple[np.ndarray, np.ndarray]  # mean and variance of y
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # X, y, X of the test, y of the test


def best(function: Callable[[], Any], rounds: int) -> float:
    """Seconds of the quickest of several calls, after one that is not counted."""
    function()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def ratios(sizes: list[tuple[int, ...]], rounds: int, device: str | None) -> Iterator[str]:
    """One value and gradient beside FITC's."""
    yield "| kernel | n, m, d, q | FITC, s | neighbours, s | ratio |\n|---|---|---|---|---|"
    for n, m, d, q in sizes:
        data = make(n, m, d)
        X, y = placed(data.X, device), placed(data.y, device)
        for kind in (ig.kernels.RBF, ig.kernels.Matern32):
            seconds = []
            for name, count in (("fitc", None), ("neighbours", q)):
                row = approximation_of(name, None, count)
                kernel = kind(data.lengthscale, data.variance)
                P = problem_of(kernel, ig.bases.Points(data.Z), row, data.noise, X, y)

                def once(P: Any = P) -> None:
                    for slope in gradient_of(P)[1].values():
                        to_numpy(slope)  # waits for the device

                seconds.append(best(once, rounds))
            figures = f"{seconds[0]:.3g} | {seconds[1]:.3g} | {seconds[1] / seconds[0]:.2f}"
            yield f"| {kind.__name__} | {n}, {m}, {d}, {q} | {figures} |"


def predictions(n: int, queries: int, rounds: int) -> Iterator[str]:
    """Predicting many rows at m = 100, d = 8, q = 20."""
    data: Data = make(n, 100, 8)
    kernel, Q = ig.kernels.Matern52(data.lengthscale, data.variance), make(queries, 1, 8).X
    model = ig.condition(kernel, ig.bases.Points(data.Z), "neighbours", data.noise, data.X, data.y)
    seconds = best(lambda: model.predict(Q), rounds)
    yield f"predict {queries} rows, n = {n}, m = 100, q = 20, d = 8: {seconds:.3g} s"


def load(name: str) -> Split:
    """A data set of the library or of benchmarks/tables.py, its first fold to judge by."""
    if name in ig.datasets.READERS:
        data = ig.datasets.load(name)
        y, ys = (np.asarray(a, dtype=float).reshape(len(a), -1)[:, 0] for a in (data.y_train, data.y_test))
        return np.asarray(data.X_train, dtype=float), y, np.asarray(data.X_test, dtype=float), ys
    rows = rows_of(name, 0)
    return rows.X, rows.y, rows.Xs, rows.ys


def some(split: Split, n: int | None) -> Split:
    """At most n rows to learn from and n to judge by, drawn once for everyone."""
    X, y, Xs, ys = split
    rng = np.random.default_rng(0)
    own, judges = rng.permutation(len(y))[:n], rng.permutation(len(ys))[:n]
    return X[own], y[own], Xs[judges], ys[judges]


def rough(n: int) -> Split:
    """A made-up function that few inducing inputs cannot follow."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n + 200, 2))
    y = np.sin(20 * X[:, 0]) * np.cos(18 * X[:, 1]) + 0.05 * rng.standard_normal(n + 200)
    return X[:n], y[:n], X[n:], y[n:]


def ours(approximation: str, kernel: str, m: int, q: int) -> Callable[[Split], Prediction]:
    def fit(split: Split) -> Prediction:
        X, y, Xs, _ = split
        options = {"n_inducing": m, "neighbours": q, "random_state": 0}
        mean, std = (
            ig.SparseGPRegressor(kernel, approximation, **options).fit(X, y).predict(Xs, return_std=True)
        )
        return mean, std**2

    return fit


def gpboost(method: str, m: int, q: int) -> Callable[[Split], Prediction]:
    def fit(split: Split) -> Prediction:
        import gpboost as gpb  # type: ignore[import-not-found]

        X, y, Xs, _ = split
        vary = np.ptp(X, axis=0) > 0  # it refuses constant inputs
        X, Xs = X[:, vary], Xs[:, vary]
        center, scale = X.mean(axis=0), X.std(axis=0)
        options = {
            "cov_function": "matern_ard",
            "cov_fct_shape": 1.5,
            "gp_approx": method,
            "num_neighbors": q,
        }
        if method != "vecchia":
            options["num_ind_points"] = m
        model = gpb.GPModel(gp_coords=(X - center) / scale, likelihood="gaussian", **options)
        model.fit(y=y - y.mean())
        model.set_prediction_data(num_neighbors_pred=q)  # by default twice as many as it learns with
        answer = model.predict(gp_coords_pred=(Xs - center) / scale, predict_var=True, predict_response=True)
        return answer["mu"] + y.mean(), answer["var"]

    return fit


def booster(make_model: Callable[[], Any]) -> Callable[[Split], Prediction]:
    """A library without error bars: its variance is that of its errors in five-fold cross-validation."""

    def fit(split: Split) -> Prediction:
        mean, std = boosted(make_model)(Rows(*split))
        return mean, std**2

    return fit


def contestants(n: int, kernel: str, m: int, q: int) -> dict[str, Callable[[Split], Any]]:
    found = {f"neighbours, m = {m}, q = {q}": ours("neighbours", kernel, m, q)}
    found[f"FITC, m = {m}"] = ours("fitc", kernel, m, q)
    if n <= EXACT_LIMIT:
        found["exact GP"] = ours("exact", kernel, m, q)
    found["HistGradientBoosting"] = booster(histograms)
    for library, package, make_model in (
        ("LightGBM", "lightgbm", lightgbm),
        ("CatBoost", "catboost", catboost),
    ):
        if importlib.util.find_spec(package):
            found[library] = booster(make_model)
    if importlib.util.find_spec("gpboost"):
        found["GPBoost, full_scale_vecchia"] = gpboost("full_scale_vecchia", m, q)
        found["GPBoost, vecchia"] = gpboost("vecchia", m, q)
    return found


def chosen(name: str, who: list[str]) -> bool:
    """Whether someone takes part: all do unless some are named, by how their names begin."""
    return not who or name.startswith(tuple(who))


def compared(ys: np.ndarray, scale: float, theirs: Prediction, own: Prediction) -> str:
    """Loss and RMSE / std less ours, each with the standard error of the difference."""
    squares = [(ys - mean) ** 2 for mean, _ in (theirs, own)]
    losses = [
        0.5 * (np.log(2.0 * np.pi * v) + e / v) for e, (_, v) in zip(squares, (theirs, own), strict=True)
    ]
    unit = scale * sum(np.sqrt(e.mean()) for e in squares)  # a² - b² = (a - b)(a + b)
    more = losses[0] - losses[1], (squares[0] - squares[1]) / unit
    return " | ".join(f"{m.mean():+.4f} ± {m.std() / len(m) ** 0.5:.4f}" for m in more)


def regression(name: str, split: Split, given: argparse.Namespace) -> Iterator[str]:
    """Normalised RMSE, MSLL, loss and RMSE less those of neighbours, seconds and seconds of all cores, which
    other programs change little.
    """
    X, y, _, ys = split
    yield f"\n{name}: {len(X)} rows, {X.shape[1]} inputs, {len(ys)} test rows\n"
    yield "| | RMSE / std | MSLL | loss less ours | RMSE less ours | s | processor, s |"
    yield "|---|---|---|---|---|---|---|"
    first: Prediction | None = None
    for who, fit in contestants(len(X), given.kernel, given.m, given.neighbours).items():
        if not chosen(who, given.who):
            continue
        start, busy = time.perf_counter(), time.process_time()
        try:
            mean, variance = fit(split)
        except Exception as error:  # another library's, too
            yield f"| {who} | {type(error).__name__}: {str(error)[:60]} | | | | | |"
            continue
        times = f"{time.perf_counter() - start:.1f} | {time.process_time() - busy:.1f}"
        answer = mean, np.maximum(variance, 1e-300)
        first = first or answer
        error, loss = smse(ys, mean, y) ** 0.5, msll(ys, *answer, y)
        versus = compared(ys, np.sqrt(np.mean((ys - y.mean()) ** 2)), answer, first)
        yield f"| {who} | {error:.4f} | {loss:.3f} | {versus} | {times} |"


def frame(name: str) -> Table:
    """A table of text and numbers, by its numbers: spam, and who died in a crash."""
    from pathlib import Path

    import pandas as pd
    from sklearn.model_selection import train_test_split

    target = {"spam7": "yesno", "nassCDS": "dead"}[name]
    rows = pd.read_csv(Path(os.environ["INDUCING_DATA"]) / "tables" / f"{name}.csv.gz").dropna()
    labels = np.unique(rows[target], return_inverse=True)[1]
    numbers = rows.drop(columns=[target, "rownames", "Unnamed: 0", "weight", "caseid"], errors="ignore")
    X = numbers.select_dtypes("number").to_numpy(float)
    X, Xs, y, ys = train_test_split(X, labels, test_size=0.3, random_state=0, stratify=labels)
    return Table(X, y, Xs, ys)


def classes(name: str, given: argparse.Namespace) -> Iterator[str]:
    """Error, log loss and seconds of everyone on one table of classes."""
    q, rows = given.neighbours, given.rows
    epochs, most = (2, 8) if given.quick else (40, None)
    make_table, m = TABLES[name] if name in TABLES else (lambda: frame(name), 100)
    table, m = late_flights(FLIGHTS) if name == "late flights" else make_table(), min(m, most or m)
    table = table if rows is None else table.some(rows)
    yield f"\n{name}: {len(table.X)} rows, {table.X.shape[1]} inputs, m = {m}\n"
    yield "| | error | log loss | s | processor, s |\n|---|---|---|---|---|"
    options: dict[str, Any] = dict(n_inducing=m, random_state=0)
    fits: dict[str, Any] = {f"neighbours, q = {q}": lambda t: _along(q, options).fit(t.X, t.y).predict_proba}
    fits |= dict(contenders(m, epochs))
    if importlib.util.find_spec("catboost"):
        from catboost import CatBoostClassifier

        cores = len(os.sched_getaffinity(0))
        quiet: dict[str, Any] = dict(verbose=0, random_seed=0, allow_writing_files=False, thread_count=cores)
        fits["CatBoost"] = lambda t: CatBoostClassifier(**quiet).fit(t.X, t.y).predict_proba
    for who, fit in fits.items():
        if not chosen(who, given.who):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = score(table, fit)
        times = f"{found.seconds:.1f} | {found.processor:.1f}"
        yield f"| {who} | {100 * found.error:.2f} % | {found.log_loss:.4f} | {times} |"


def _along(q: int, options: dict[str, Any]) -> Any:
    return ig.SparseGPClassifier("matern52", approximation="neighbours", neighbours=q, **options)


def lines(given: argparse.Namespace) -> Iterator[str]:
    """What was asked for."""
    sets = given.sets
    if "ratios" in given.only:
        yield from ratios(
            [tuple(map(int, size.split(","))) for size in given.sizes], given.rounds, given.device
        )
    if "predictions" in given.only and given.device is None:
        yield from predictions(*((400, 500) if given.quick else (40_000, 100_000)), given.rounds)
    if "regression" in given.only:
        for name in sets or REGRESSION:
            split = rough(400) if given.quick else load(name)
            yield from regression(name, some(split, given.rows), given)
    if "classes" in given.only:
        for name in sets or CLASSES:
            yield from classes(name, given)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="these sections")
    parser.add_argument("--sets", nargs="*", default=[], help="names of data sets")
    parser.add_argument("--who", nargs="*", default=[], help="those who take part, by how their names begin")
    parser.add_argument("--rows", type=int, help="at most so many rows to learn from, and to judge by")
    parser.add_argument(
        "--sizes", nargs="+", default=[",".join(map(str, size)) for size in SIZES], help="n,m,d,q"
    )
    parser.add_argument("--device", help="a PyTorch device for the ratios")
    parser.add_argument("--kernel", default="matern32")
    parser.add_argument("--m", type=int, default=100)
    parser.add_argument("--neighbours", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    if given.quick:
        given.sizes, given.rounds, given.m, given.neighbours, given.rows = ["400,10,3,5"], 1, 10, 5, 150
        given.sets = ["iris"]
    for line in lines(given):
        print(line, flush=True)


if __name__ == "__main__":
    main()
