"""The row along neighbours: its cost beside FITC's, its predictions, and other libraries on the same rows.

    python benchmarks/neighbours.py                                    # ratios and predictions, a minute
    INDUCING_DATA=folder python benchmarks/neighbours.py --data kin40k sml --m 500 --neighbours 100
    python benchmarks/neighbours.py --device cuda --sizes 1000000,512,8,20
    python benchmarks/neighbours.py --quick                            # seconds: does it all work?

Times are this machine's; the ratios are the result. GPBoost, CatBoost and LightGBM take part where they are
installed, the exact GP where its rows fit.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from problems import Data, make

import inducing as ig
from inducing.inference.regression import approximation_of, gradient_of, problem_of
from inducing.metrics import msll, smse
from inducing.numerics.arrays import placed, to_numpy

SIZES = ((10_000, 100, 8, 20), (44_000, 500, 21, 20))
EXACT_LIMIT = 10_000  # rows
TEST_SHARE = 0.1  # of a data set that comes without test rows
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
    """A data set of the folder in INDUCING_DATA: X_train, y_train, X_test, y_test, or X and y to be split."""
    with np.load(Path(os.environ["INDUCING_DATA"]) / f"{name}.npz") as file:
        if "X_train" in file:
            return tuple(file[key] for key in ("X_train", "y_train", "X_test", "y_test"))  # type: ignore[return-value]
        X, y = (np.asarray(file[key], dtype=float) for key in ("X", "y"))
    order = np.random.default_rng(0).permutation(len(X))
    held, rest = order[: round(TEST_SHARE * len(X))], order[round(TEST_SHARE * len(X)) :]
    return X[rest], y[rest], X[held], y[held]


def rough(n: int) -> Split:
    """A made-up function that few inducing inputs cannot follow."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n + 200, 2))
    y = np.sin(20 * X[:, 0]) * np.cos(18 * X[:, 1]) + 0.05 * rng.standard_normal(n + 200)
    return X[:n], y[:n], X[n:], y[n:]


def ours(approximation: str, kernel: str, m: int, q: int) -> Callable[[Split], tuple[np.ndarray, np.ndarray]]:
    def fit(split: Split) -> tuple[np.ndarray, np.ndarray]:
        X, y, Xs, _ = split
        options = {"n_inducing": m, "neighbours": q, "random_state": 0}
        mean, std = (
            ig.SparseGPRegressor(kernel, approximation, **options).fit(X, y).predict(Xs, return_std=True)
        )
        return mean, std**2

    return fit


def boosted(make_model: Callable[[], Any]) -> Callable[[Split], tuple[np.ndarray, np.ndarray]]:
    """A library without error bars: its variance is that of its errors on a fifth of the rows."""

    def fit(split: Split) -> tuple[np.ndarray, np.ndarray]:
        X, y, Xs, _ = split
        cut = len(X) - len(X) // 5
        order = np.random.default_rng(1).permutation(len(X))
        own, held = order[:cut], order[cut:]
        variance = np.mean((make_model().fit(X[own], y[own]).predict(X[held]) - y[held]) ** 2)
        return make_model().fit(X, y).predict(Xs), np.full(len(Xs), variance)

    return fit


def gpboost(method: str, m: int, q: int) -> Callable[[Split], tuple[np.ndarray, np.ndarray]]:
    def fit(split: Split) -> tuple[np.ndarray, np.ndarray]:
        import gpboost as gpb  # type: ignore[import-not-found]

        X, y, Xs, _ = split
        center, scale = X.mean(axis=0), np.maximum(X.std(axis=0), 1e-12)
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
        answer = model.predict(gp_coords_pred=(Xs - center) / scale, predict_var=True, predict_response=True)
        return answer["mu"] + y.mean(), answer["var"]

    return fit


def contestants(n: int, kernel: str, m: int, q: int) -> dict[str, Callable[[Split], Any]]:
    from sklearn.ensemble import HistGradientBoostingRegressor

    found = {f"neighbours, m = {m}, q = {q}": ours("neighbours", kernel, m, q)}
    found[f"FITC, m = {m}"] = ours("fitc", kernel, m, q)
    if n <= EXACT_LIMIT:
        found["exact GP"] = ours("exact", kernel, m, q)
    found["HistGradientBoosting"] = boosted(lambda: HistGradientBoostingRegressor(random_state=0))
    if importlib.util.find_spec("lightgbm"):
        from lightgbm import LGBMRegressor  # type: ignore[import-not-found]

        found["LightGBM"] = boosted(lambda: LGBMRegressor(verbose=-1, random_state=0))
    if importlib.util.find_spec("catboost"):
        from catboost import CatBoostRegressor  # type: ignore[import-not-found]

        found["CatBoost"] = boosted(lambda: CatBoostRegressor(verbose=0, random_seed=0))
    if importlib.util.find_spec("gpboost"):
        found["GPBoost, full_scale_vecchia"] = gpboost("full_scale_vecchia", m, q)
        found["GPBoost, vecchia"] = gpboost("vecchia", m, q)
    return found


def table(name: str, split: Split, kernel: str, m: int, q: int) -> Iterator[str]:
    """Normalised RMSE, MSLL and seconds of everyone on one data set."""
    X, y, _, ys = split
    yield f"\n{name}: {len(X)} rows, {X.shape[1]} inputs, {len(ys)} test rows\n"
    yield "| | RMSE / std | MSLL | s |\n|---|---|---|---|"
    for who, fit in contestants(len(X), kernel, m, q).items():
        start = time.perf_counter()
        mean, variance = fit(split)
        seconds = time.perf_counter() - start
        error = smse(ys, mean, y) ** 0.5
        yield f"| {who} | {error:.4f} | {msll(ys, mean, variance, y):.3f} | {seconds:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument(
        "--sizes", nargs="+", default=[",".join(map(str, size)) for size in SIZES], help="n,m,d,q"
    )
    parser.add_argument("--device", help="a PyTorch device for the ratios")
    parser.add_argument("--data", nargs="*", default=[], help="names of .npz files in INDUCING_DATA")
    parser.add_argument("--kernel", default="matern52")
    parser.add_argument("--m", type=int, default=100)
    parser.add_argument("--neighbours", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    sizes = [tuple(map(int, size.split(","))) for size in given.sizes]
    if given.quick:
        sizes, given.rounds, given.m, given.neighbours = [(400, 10, 3, 5)], 1, 10, 5
    for line in ratios(sizes, given.rounds, given.device):
        print(line, flush=True)
    if given.device is None:
        for line in predictions(*((400, 500) if given.quick else (40_000, 100_000)), given.rounds):
            print(line, flush=True)
    sets = {"rough": rough(400)} if given.quick else {name: load(name) for name in given.data}
    for name, split in sets.items():
        for line in table(name, split, given.kernel, given.m, given.neighbours):
            print(line, flush=True)


if __name__ == "__main__":
    main()
