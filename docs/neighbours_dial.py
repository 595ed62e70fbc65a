"""The tables of docs/neighbours.md: `INDUCING_DATA=folder python docs/neighbours_dial.py` prints them.

The dial turns the number of neighbours from none to all, everything else held: error, log loss, seconds to
condition and to predict, and bytes of the model file.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import inducing as ig
from inducing.metrics import msll, smse

ROWS, TESTS, WINDS, M = 4_000, 4_000, 20_000, 100
Rows = tuple[np.ndarray, np.ndarray]


def rough(n: int, rng: np.random.Generator) -> Rows:
    """A rough function of two inputs: a sum of ridges of many widths, and little noise."""
    X = rng.uniform(size=(n, 2))
    waves = np.random.default_rng(5)
    y = np.zeros(n)
    for width in 2.0 ** np.arange(2, 7):
        direction = waves.standard_normal((2, 12))
        direction *= width / np.linalg.norm(direction, axis=0)
        y += np.sum(np.sin(2 * np.pi * X @ direction + waves.uniform(0, 6.3, 12)), axis=1) / width**0.7
    return X, y / 3.0 + 0.05 * rng.standard_normal(n)


def dial(name: str, train: Rows, test: Rows) -> None:
    """Print the table of one data set."""
    (X, y), (Xs, ys) = train, test
    model = ig.SparseGPRegressor("matern52", "neighbours", n_inducing=M, random_state=0).fit(X, y)
    core, noise = model.posterior_, model.fit_result_.noise
    Z, Zs = ((A - model.x_mean_) / model.x_scale_ for A in (X, Xs))
    t = (y - model.y_mean_) / model.y_scale_
    print(f"\n{name}: {len(X)} rows, {X.shape[1]} inputs, m = {M}, Matérn 5/2\n")
    print("| neighbours | SMSE | MSLL | condition, s | predict, µs | file, kB |\n|---|---|---|---|---|---|")
    for count in (0, 5, 10, 20, 50, 100, len(X) - 1):
        start = time.perf_counter()
        near = ig.condition(core.kernel, core.basis, "neighbours", noise, Z, t, neighbours=count)
        made = time.perf_counter()
        mean, variance = near.predict(Zs)
        done = time.perf_counter()
        mean, variance = mean * model.y_scale_ + model.y_mean_, (variance + noise) * model.y_scale_**2
        with tempfile.TemporaryDirectory() as folder:
            size = _size(near, count, folder)
        scores = f"{smse(ys, mean, y):.4f} | {msll(ys, mean, variance, y):.2f}"
        times = f"{made - start:.2f} | {1e6 * (done - made) / len(Zs):.0f}"
        print(
            f"| {'all' if count >= len(X) - 1 else count} | {scores} | {times} | {size / 1000:.0f} |",
            flush=True,
        )


def _size(near: ig.NeighboursPredictor, count: int, folder: str) -> int:
    """Bytes of the model file; without neighbours it needs no rows."""
    from inducing.files.models import save

    return save(near if count else near.posterior, Path(folder) / "model")


def winds() -> None:
    """Print how well FITC and neighbours fill a map of wind speeds over the oceans of one day."""
    data, rng = ig.datasets.load("ascat"), np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(data.X_train))[:WINDS])
    X, speed = data.X_train[rows], np.linalg.norm(data.y_train[rows], axis=1)
    Xs, speeds = data.X_test[:TESTS], np.linalg.norm(data.y_test[:TESTS], axis=1)
    print(f"\nwind speeds: {len(X)} rows, longitude and latitude, m = {M}\n")
    print("| | SMSE | MSLL | fit, s |\n|---|---|---|---|")
    for name in ("fitc", "neighbours"):
        kernel = ig.kernels.Sphere(0.05, float(np.var(speed)), columns=(1, 0))
        mean = ig.means.Constant(float(np.mean(speed)))
        model = ig.SparseGPRegressor(kernel, name, n_inducing=M, mean=mean, standardize=False, random_state=0)
        start = time.perf_counter()
        at, std = model.fit(X, speed).predict(Xs, return_std=True)
        seconds = time.perf_counter() - start
        scores = f"{smse(speeds, at, speed):.3f} | {msll(speeds, at, std**2, speed):.2f}"
        print(f"| {name} | {scores} | {seconds:.0f} |", flush=True)


def main() -> None:
    rng = np.random.default_rng(0)
    dial("rough ridges", rough(ROWS, rng), rough(TESTS, rng))
    kin = ig.datasets.load("kin40k")
    rows = slice(ROWS), slice(TESTS)
    dial("kin-40k", (kin.X_train[rows[0]], kin.y_train[rows[0]]), (kin.X_test[rows[1]], kin.y_test[rows[1]]))
    winds()


if __name__ == "__main__":
    main()
