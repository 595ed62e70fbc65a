"""Several outputs with half of the targets not measured: coregionalised against independent models.

    python -m benchmarks.outputs [rows ...]

On sarcos' seven joints (the official test file, split at random with a fixed seed) and on a made set with a
known correlation. Prints the mean over outputs of the standardised mean squared error and of the log loss,
and writes nothing.
"""

import sys
import time

import numpy as np

import inducing as ig
from inducing.metrics import msll, smse

ROWS = (300, 600)


def made(n: int, p: int = 4, correlation: float = 0.95, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draws of outputs with a common correlation under an RBF kernel, with noise of a different size each."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    K = np.exp(-0.5 * np.sum((X[:, None] - X[None]) ** 2, axis=2) / 0.8**2)
    B = correlation + (1.0 - correlation) * np.eye(p)
    root, mix = np.linalg.cholesky(K + 1e-8 * np.eye(n)), np.linalg.cholesky(B)
    return X, root @ rng.normal(size=(n, p)) @ mix.T + rng.normal(size=(n, p)) * np.linspace(0.05, 0.4, p)


def sarcos() -> tuple[np.ndarray, np.ndarray]:
    with np.load(ig.datasets.path("sarcos")) as data:
        return data["X"].astype(float), data["Y"].astype(float)


def scores(
    X: np.ndarray, Y: np.ndarray, rows: int, outputs: str, seed: int = 0
) -> tuple[float, float, float]:
    """SMSE and MSLL over the outputs, and the seconds of processor time of the fit."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    train, test = order[:rows], order[rows : rows + 2000]
    y = Y[train].copy()
    y[rng.uniform(size=y.shape) < 0.5] = np.nan
    began = time.process_time()
    model = ig.SparseGPRegressor(outputs=outputs, random_state=0).fit(X[train], y)
    seconds = time.process_time() - began
    mean, std = model.predict(X[test], return_std=True)
    seen = [y[~np.isnan(y[:, q]), q] for q in range(Y.shape[1])]
    errors = [smse(Y[test, q], mean[:, q], seen[q]) for q in range(Y.shape[1])]
    losses = [msll(Y[test, q], mean[:, q], std[:, q] ** 2, seen[q]) for q in range(Y.shape[1])]
    return float(np.mean(errors)), float(np.mean(losses)), seconds


def main() -> None:
    sizes = tuple(map(int, sys.argv[1:])) or ROWS
    print("| data | rows | outputs | SMSE | MSLL | processor s |\n|---|---|---|---|---|---|")
    for name, (X, Y) in {"sarcos": sarcos(), "made": made(2000)}.items():
        for rows in sizes:
            for outputs in ("coregionalised", "independent"):
                error, loss, seconds = scores(X, Y, rows, outputs)
                print(
                    f"| {name} | {rows} | {outputs} | {error:.4f} | {loss:.3f} | {seconds:.0f} |", flush=True
                )


if __name__ == "__main__":
    main()
