"""The exact GP by conjugate gradients beside Cholesky: times, their ratio, and how far the means differ.

python benchmarks/exact.py                                     # n = 20,000: a minute, and 7 GB for Cholesky
python benchmarks/exact.py --rows 100000 --only cg             # what no factor fits in
INDUCING_DATA=folder python benchmarks/exact.py --data kin40k
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

import numpy as np

import inducing as ig
from inducing.inference.conjugate_gradients import predictor as iterative
from inducing.inference.conjugate_gradients import products
from inducing.numerics.linalg import cholesky, log_det_from_factor, solve_lower

QUERIES = 1000  # whose means are predicted


def smooth(n: int, d: int, noise: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A sum of waves on the unit cube, of unit variance, with Gaussian noise."""
    X = rng.uniform(size=(n, d))
    waves = 2.0 * np.pi * rng.standard_normal((d, 8)) / np.sqrt(d)
    y = np.sum(np.sin(X @ waves + rng.uniform(0.0, 2.0 * np.pi, 8)), axis=1) / 2.0
    return X, y + np.sqrt(noise) * rng.standard_normal(n)


def kin40k(n: int) -> tuple[np.ndarray, np.ndarray]:
    data = ig.datasets.load("kin40k")
    X, y = np.vstack([data.X_train, data.X_test])[:n], np.concatenate([data.y_train, data.y_test])[:n]
    return X, (y - y.mean()) / y.std()


def timed(what: str, function: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function()
    seconds = time.perf_counter() - start
    print(f"{what}: {seconds:.2f} s", flush=True)
    return result, seconds


def factorised(kernel: Any, X: np.ndarray, noise: float) -> np.ndarray:
    """The factor of K + σ²I, with as few copies as there can be."""
    K = kernel(X, X)
    K.reshape(-1)[:: len(X) + 1] += noise
    return cholesky(K)


def peak() -> float:
    """GB this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--inputs", type=int, default=3)
    parser.add_argument("--lengthscale", type=float, default=0.3)
    parser.add_argument("--noise", type=float, default=0.01, help="variance, beside a prior variance of 1")
    parser.add_argument("--data", choices=["smooth", "kin40k"], default="smooth")
    parser.add_argument("--only", choices=["cg", "both"], default="both")
    parser.add_argument("--rank", type=int, default=200)
    parser.add_argument("--variances", type=int, default=8, help="for so many of the queries")
    parser.add_argument("--evidence", action="store_true", help="the log evidence, too")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    total = given.rows + QUERIES
    X, y = kin40k(total) if given.data == "kin40k" else smooth(total, given.inputs, given.noise, rng)
    Xs, X, y = X[given.rows :], X[: given.rows], y[: given.rows]
    kernel = ig.kernels.RBF(given.lengthscale)
    print(
        f"{given.data}, n = {len(X)}, d = {X.shape[1]}, RBF of lengthscale {given.lengthscale:g}, noise "
        f"variance {given.noise:g}; preconditioner of rank {given.rank}"
    )
    ig.condition(kernel, None, "cg", given.noise, X[:3000], y[:3000]).predict(
        Xs[:3]
    )  # loads what is compiled
    solver = iterative.Solver(rank=given.rank)

    def solve() -> Any:
        return iterative.condition(kernel, None, "cg", given.noise, X, y, solver=solver)

    found, seconds = timed("conjugate gradients", solve)
    print(f"  {found.solution.products} iterations, rank {found.system.preconditioner.rank}")
    mean, asking = timed(f"  means of {QUERIES} queries", lambda: found.mean(Xs))
    variance, _ = timed(
        f"  variances of {given.variances} queries", lambda: found.predict(Xs[: given.variances]).variance
    )
    if given.evidence:
        evidence, _ = timed("  log evidence", lambda: found.evidence)
        print(f"  log evidence {evidence.value:.1f} ± {evidence.error:.1f}")
    print(f"  peak memory {peak():.2f} GB; a factor would need {8e-9 * len(X) ** 2:.1f} GB")
    if given.only == "cg":
        return
    L, factor = timed("Cholesky", lambda: factorised(kernel, X, given.noise))
    w, solving = timed("  its solves", lambda: solve_lower(L, y))
    alpha = solve_lower(L, w, transposed=True)
    expected, dense_asking = timed(
        f"  means of {QUERIES} queries", lambda: products.Blocked(kernel, X)(alpha, Xs)
    )
    differences = np.max(np.abs(mean - expected)) / np.max(np.abs(expected))
    half = solve_lower(L, kernel(X, Xs[: given.variances]))
    variances = np.max(np.abs(variance - kernel.diag(Xs[: given.variances]) + np.sum(half * half, axis=0)))
    print(f"  peak memory {peak():.2f} GB")
    print(f"means differ by {differences:.1e} of the largest, variances by {variances:.1e}")
    print(f"Cholesky takes {(factor + 2.0 * solving + dense_asking) / (seconds + asking):.2f} times as long")
    if given.evidence:
        exact = -0.5 * (float(w @ w) + len(X) * np.log(2.0 * np.pi) + float(log_det_from_factor(L)))
        print(
            f"log evidence {exact:.1f}, {(evidence.value - exact) / evidence.error:+.1f} standard errors "
            "from the estimate"
        )


if __name__ == "__main__":
    main()
