"""Learned noise beside VFE and FITC at equal m: error, log loss and seconds; a picture of the trade.

INDUCING_DATA=… python benchmarks/learned_noise.py [--rows 5000] [--sets step,sarcos] [--picture FILE]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import inducing as ig

WAYS = {
    "vfe": dict(approximation="vfe"),
    "fitc": dict(approximation="fitc"),
    "learned": dict(noise="learned"),
    "learned-jointly": dict(noise="learned-jointly"),
}
Split = tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]


def made(name: str, n: int = 2000) -> Split:
    """A wave of two inputs whose noise has a step, or varies smoothly."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (n, 2))
    std = np.where(X[:, 0] > 0, 0.5, 0.05) if name == "step" else np.exp(-1.5 + 1.2 * np.sin(1.5 * X[:, 0]))
    y = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + std * rng.standard_normal(n)
    return name, X[: n // 2], y[: n // 2], X[n // 2 :], y[n // 2 :], 50


def splits(names: list[str], rows: int) -> Iterator[Split]:
    for name in names:
        if name in ("step", "varying"):
            yield made(name)
            continue
        data = ig.datasets.load(name)
        y, test = (a if a.ndim == 1 else a[:, 0] for a in (data.y_train, data.y_test))
        some, judged = (np.arange(len(a))[:rows] for a in (y, test))
        if name == "flights":  # they are in the order of the year
            rng = np.random.default_rng(0)
            some, judged = (np.sort(rng.permutation(len(a))[:rows]) for a in (y, test))
        yield name, data.X_train[some], y[some], data.X_test[judged], test[judged], 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--sets", default="step,varying,sarcos,kin40k")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    print("| set | way | SMSE | MSLL | seconds |\n|---|---|---|---|---|", flush=True)
    found: dict[str, list[tuple[float, float]]] = {}
    for name, X, y, Xs, ys, m in splits(options.sets.split(","), options.rows):
        trivial = ig.metrics.nlpd(ys, np.full(len(ys), y.mean()), np.full(len(ys), y.var()))
        for way, arguments in WAYS.items():
            start = time.perf_counter()
            settings = dict(n_inducing=m, basis="points", random_state=0) | arguments
            model = ig.SparseGPRegressor(**settings).fit(X, y)
            seconds = time.perf_counter() - start
            error = ig.metrics.smse(ys, model.predict(Xs), y)
            loss = -float(np.mean(model.log_density(Xs, ys))) - trivial
            found.setdefault(name, []).append((error, loss))
            print(f"| {name} | {way} | {error:.4f} | {loss:.3f} | {seconds:.0f} |", flush=True)
    if options.picture:
        draw(found, options.picture)


def draw(found: dict[str, list[tuple[float, float]]], file: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(3 * len(found), 3), layout="constrained")
    for ax, (name, points) in zip(np.atleast_1d(axes), found.items()):
        errors, losses = np.array(points).T
        order = np.argsort(losses)[::-1]
        ax.plot(errors[order], losses[order], color="0.8", zorder=0)
        for way, error, loss in zip(WAYS, errors, losses):
            ax.scatter(error, loss, s=25, label=way)
        ax.set(title=name, xlabel="SMSE")
        ax.margins(0.15)
    np.atleast_1d(axes)[0].set_ylabel("MSLL")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=len(WAYS))
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
