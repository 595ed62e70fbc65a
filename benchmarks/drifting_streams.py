"""Streams that change: each row predicted before it is read, by this package and by others.

    python benchmarks/drifting_streams.py                        # all streams, all models; an hour or so
    python benchmarks/drifting_streams.py --streams level noise --models auto none
    python benchmarks/drifting_streams.py --rows 3000            # shorter

Made streams have 20,000 rows and change at half of them, or all the time; the truth is known. Two are real:
flights (their delay) and tropical storms (their pressure), in order of time. RMSE and log density are of
all rows after the first 500; coverage is that of 95 % bands: least and most over windows of 2,000 rows that
begin 500 rows after a change and end before the next. Seconds are processor time. The last of river's is
bagging with ADWIN: an adaptive random forest.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe
from report import table

import inducing as ig

warnings.simplefilter("ignore")
WARMUP, WINDOW, SETTLED, BATCH = 500, 2000, 500, 100
COLUMNS = ["date", "delay", "distance"]
Stream = tuple[np.ndarray, np.ndarray, list[int]]  # X, y, the rows after which it has changed


def made(kind: str, n: int) -> Stream:
    """A function of four inputs with noise of 0.2, and what happens to it."""
    rng, t = np.random.default_rng(0), np.arange(n)
    X, half = rng.uniform(-2, 2, (n, 4)), n // 2
    f, noise, changes = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2], np.full(n, 0.2), [0]
    if kind == "level":  # of three standard deviations
        f, changes = f + np.where(t >= half, 3 * np.std(f), 0.0), [0, half]
    elif kind == "slow":
        f = f + 3.0 * np.sin(np.pi * t / n) * np.tanh(X[:, 3])
    elif kind == "rotating":  # the inputs that matter change places
        angle = np.pi * t / n
        a, b = (
            np.cos(angle) * X[:, 0] + np.sin(angle) * X[:, 3],
            np.cos(angle) * X[:, 3] - np.sin(angle) * X[:, 0],
        )
        f = np.sin(2 * a) + 0.5 * b
    elif kind == "noise":
        noise, changes = np.where(t >= half, 1.0, 0.2), [0, half]
    elif kind == "season":
        f = f + 1.5 * np.sin(2 * np.pi * t / 2500)
    return X, f + noise * rng.standard_normal(n), changes


def flights(n: int) -> Stream:
    """Delays in minutes, cut at an hour early and three late, in order of time: every so many of a month."""
    import pandas as pd

    frame = pd.read_parquet(Path(os.environ["INDUCING_DATA"]) / "flights-3m.parquet", columns=COLUMNS)
    frame = frame.sort_values("date", kind="stable").iloc[:1_000_000]
    frame = frame.iloc[:: len(frame) // n][:n]
    hour, day = frame["date"].dt.hour + frame["date"].dt.minute / 60, frame["date"].dt.dayofweek
    X = np.column_stack([frame["distance"], hour, day]).astype(float)
    return X, np.clip(frame["delay"].to_numpy(float), -60, 180), [0]


def weather(n: int) -> Stream:
    """The pressure in tropical storms from where, when in the year and how strong they are, 1975 to 2022, in
    order of time.
    """
    import pandas as pd

    frame = pd.read_csv(Path(os.environ["INDUCING_DATA"]) / "tables" / "storms.csv.gz")
    frame = frame.sort_values(["year", "month", "day", "hour"], kind="stable")[:n]
    X = frame[["lat", "long", "wind", "hour"]].assign(month=frame["month"] + frame["day"] / 31)
    return X.to_numpy(float), frame["pressure"].to_numpy(float), [0]


STREAMS: dict[str, Callable[[int], Stream]] = {
    kind: (lambda n, kind=kind: made(kind, n)) for kind in ("level", "slow", "rotating", "noise", "season")
} | {"flights": flights, "weather": weather}


def ours(**options: Any) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Mean, std and log density of each row, by `OnlineGPRegressor`. (n, 3)"""

    def run(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        warmup = min(WARMUP, len(X) // 3)
        model = ig.OnlineGPRegressor(n_inducing=100, warmup=warmup, random_state=0, **options)
        parts = [model.predict_then_fit(X[:warmup], y[:warmup])]
        parts += [
            model.predict_then_fit(X[i : i + BATCH], y[i : i + BATCH]) for i in range(warmup, len(X), BATCH)
        ]
        return np.concatenate([np.column_stack(part) for part in parts])

    return run


def batch_gp(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A batch GP that is fitted again every 1,000 rows to the 2,000 rows before."""
    said = np.full((len(X), 3), np.nan)
    for start in range(min(WARMUP, len(X) // 3), len(X), 1000):
        rows = slice(max(0, start - 2000), start)
        model = ig.SparseGPRegressor(n_inducing=100, max_iter=50, random_state=0).fit(X[rows], y[rows])
        now = slice(start, start + 1000)
        mean, std = model.predict(X[now], return_std=True)
        said[now] = np.column_stack([mean, std, log_density(y[now], mean, std)])
    return said


def log_density(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    return -0.5 * (np.log(2 * np.pi * std**2) + ((y - mean) / std) ** 2)


def river(name: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """One of river's; its standard deviation is that of its last 500 errors."""

    def run(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        from river import forest, linear_model, neighbors, preprocessing, tree

        kinds: dict[str, Callable[[], Any]] = {
            "river KNN": lambda: neighbors.KNNRegressor(n_neighbors=10),
            "river tree": lambda: tree.HoeffdingAdaptiveTreeRegressor(seed=0),
            "river SGD": linear_model.LinearRegression,
            "river ADWIN bagging": lambda: forest.ARFRegressor(n_models=5, seed=0),
        }
        model = preprocessing.StandardScaler() | kinds[name]()
        said, errors = np.full((len(X), 3), np.nan), []
        for i, (row, target) in enumerate(zip(X, y)):
            x = dict(enumerate(row.tolist()))
            mean = float(model.predict_one(x) or 0.0)
            std = float(np.sqrt(np.mean(np.square(errors[-500:])))) if errors else 1.0
            said[i] = mean, std, log_density(target, mean, max(std, 1e-9))
            errors = [*errors[-499:], float(np.clip(target - mean, -1e6, 1e6))]
            model.learn_one(x, float(target))
        return said

    return run


MODELS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "none": ours(),
    "half-life 1000": ours(half_life=1000),
    "auto": ours(half_life="auto"),
    "auto, forget": ours(half_life="auto", on_drift="forget"),
    "auto, relearn": ours(half_life="auto", relearn=2000),
    "batch GP": batch_gp,
    **{name: river(name) for name in ("river KNN", "river tree", "river SGD", "river ADWIN bagging")},
}


def windows(n: int, changes: list[int]) -> Iterator[slice]:
    """Windows of rows that begin 500 rows after a change and end before the next."""
    for first, last in zip(changes, [*changes[1:], n]):
        start = max(first, WARMUP) + SETTLED
        for at in range(start, max(last - WINDOW, start) + 1, WINDOW // 4):
            if at + min(WINDOW, last - at) - at >= WINDOW // 4:
                yield slice(at, min(at + WINDOW, last))


def line(name: str, stream: Stream) -> tuple[str, ...]:
    X, y, changes = stream
    start = time.process_time()
    said = MODELS[name](X, y)
    seconds, rows = time.process_time() - start, slice(min(WARMUP, len(X) // 3), None)
    e, inside = y - said[:, 0], np.abs(y - said[:, 0]) < 1.96 * said[:, 1]
    shares = [np.mean(inside[w]) for w in windows(len(X), changes)] or [np.mean(inside[rows])]
    return (
        name,
        f"{np.sqrt(np.mean(e[rows] ** 2)):.3f}",
        f"{np.mean(said[rows, 2]):.3f}",
        f"{min(shares):.1%} to {max(shares):.1%}",
        f"{seconds:.1f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=list(STREAMS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rows", type=int, default=20_000)
    chosen = parser.parse_args()
    print(describe() + "\n")
    for name in chosen.streams:
        stream = STREAMS[name](chosen.rows)
        lines = [line(model, stream) for model in chosen.models]
        head = "model", "RMSE", "log density", "coverage of 95 %", "seconds"
        print(f"## {name}, {len(stream[0])} rows\n\n{table(head, lines)}", flush=True)


if __name__ == "__main__":
    main()
