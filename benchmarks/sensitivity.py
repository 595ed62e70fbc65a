"""Sobol indices of known functions: how often the truth lies within the model's own error bars.

python benchmarks/sensitivity.py [--fits 100] [--rows 200] [--only ishigami] [--jobs 16]
"""

from __future__ import annotations

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np

import inducing as ig


def ishigami(X: np.ndarray) -> np.ndarray:
    """Three inputs from -π to π. [Ishigami and Homma 1990]"""
    return np.sin(X[:, 0]) + 7 * np.sin(X[:, 1]) ** 2 + 0.1 * X[:, 2] ** 4 * np.sin(X[:, 0])


def g_function(X: np.ndarray) -> np.ndarray:
    """Four inputs from 0 to 1 with a = (0, 1, 4.5, 9). [Sobol 1993]"""
    return np.prod((np.abs(4 * X - 2) + _A) / (1 + _A), axis=1)


_A = np.array([0.0, 1.0, 4.5, 9.0])


def truths() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """First order and total indices."""
    one = np.array([0.5 * (1 + 0.1 * np.pi**4 / 5) ** 2, 49 / 8, 0.0])
    both = 0.01 * np.pi**8 * (1 / 18 - 1 / 50)
    whole = one.sum() + both
    parts = 1 / (3 * (1 + _A) ** 2)
    all_of_g = np.prod(1 + parts) - 1
    totals = np.array([parts[k] * np.prod(np.delete(1 + parts, k)) for k in range(4)])
    return {
        "ishigami": (one / whole, (one + both * np.array([1.0, 0.0, 1.0])) / whole),
        "g": (parts / all_of_g, totals / all_of_g),
    }


BOXES = {"ishigami": (np.full(3, -np.pi), np.full(3, np.pi)), "g": (np.zeros(4), np.ones(4))}
FUNCTIONS = {"ishigami": ishigami, "g": g_function}


def one_fit(name: str, rows: int, seed: int) -> np.ndarray:
    """Errors of the indices of a fit, and their standard deviations. (2, 2d)"""
    warnings.simplefilter("ignore")
    low, high = BOXES[name]
    X = np.random.default_rng(seed).uniform(low, high, (rows, len(low)))
    model = ig.SparseGPRegressor(random_state=0).fit(X, FUNCTIONS[name](X))
    found = model.sobol_indices(low, high)
    gaps = np.concatenate([found.first, found.total]) - np.concatenate(truths()[name])
    return np.stack([gaps, np.concatenate([found.first_std, found.total_std])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--only", choices=FUNCTIONS)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    for name in [options.only] if options.only else FUNCTIONS:
        with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
            found = pool.map(partial(one_fit, name, options.rows), range(options.fits))
            gaps, stds = np.moveaxis(np.array(list(found)), 1, 0)  # (fits, 2d) each
        inside = np.abs(gaps) <= 2.0 * stds
        shares, whole = np.mean(inside, axis=0), np.mean(np.all(inside, axis=1))
        names = [f"{kind} of x{k + 1}" for kind in ("first", "total") for k in range(gaps.shape[1] // 2)]
        worst, bias = int(np.argmin(shares)), np.mean(gaps, axis=0)
        print(
            f"{name}: {options.fits} fits of {options.rows} rows: {np.mean(inside):.1%} of the indices "
            f"within two standard deviations, of the worst ({names[worst]}, {bias[worst]:+.4f} on "
            f"average) {shares[worst]:.1%}, all of a fit {whole:.1%}; mean error at most "
            f"{np.max(np.mean(np.abs(gaps), axis=0)):.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
