"""A boosted ensemble of tens of megabytes and its pupil of a hundred kilobytes: errors, sizes, microseconds.

    OPENBLAS_NUM_THREADS=1 python benchmarks/pupils.py                  # a minute
    python benchmarks/pupils.py --trees 20 --rows 600                   # does it work?

Both learn Friedman's first function of ten inputs, five of them of no use, with noise 1: the teacher from
half of the rows with their targets, the pupil from its answers at the others. Errors are on 2,000 new rows,
times are of the processor, the least of several.
"""

from __future__ import annotations

import argparse
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def microseconds(call: Callable[[], Any], rows: int, repeats: int) -> float:
    """Processor time of a call, for each row, the least of several."""
    best = np.inf
    for _ in range(5):
        began = time.process_time()
        for _ in range(repeats):
            call()
        best = min(best, time.process_time() - began)
    return 1e6 * best / (rows * repeats)


def compare(trees: int, rows: int, size: int) -> dict[str, dict[str, float]]:
    """What the teacher and the pupil reach, by name."""
    from sklearn.datasets import make_friedman1
    from sklearn.ensemble import GradientBoostingRegressor

    import inducing as ig

    X, y = make_friedman1(rows + 2000, noise=1.0, random_state=0)
    (X, Xs), (y, ys), half = np.split(X, [rows]), np.split(y, [rows]), rows // 2
    options: dict[str, Any] = dict(max_depth=7, learning_rate=0.02, subsample=0.5, max_features=3)
    teacher = GradientBoostingRegressor(n_estimators=trees, random_state=0, **options).fit(X[:half], y[:half])
    pupil = ig.distil(teacher, X[half:], size=size)
    answers = teacher.predict(Xs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pupil.gp"
        pupil.save(path)
        light, of_pupil = ig.load(path, light=True), path.stat().st_size
        found = {}
        for name, model, size in (
            ("teacher", teacher, len(pickle.dumps(teacher))),
            ("pupil", light, of_pupil),
        ):
            mean = model.predict(Xs)
            found[name] = {
                "bytes": size,
                "RMSE": float(np.sqrt(np.mean((mean - ys) ** 2))),
                "RMSE to the teacher": float(np.sqrt(np.mean((mean - answers) ** 2))),
                "µs, one row": microseconds(lambda m=model: m.predict(Xs[:1]), 1, 20),
                "µs a row, of 2,000": microseconds(lambda m=model: m.predict(Xs), len(Xs), 1),
            }
    found["pupil"] |= {
        "R² to the teacher": pupil.fidelity_.r2,
        "held by the band of 90 %": pupil.fidelity_.coverage,
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trees", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--size", type=int, default=100_000, help="the most bytes of the pupil's file")
    given = parser.parse_args()
    for name, values in compare(given.trees, given.rows, given.size).items():
        print(f"{name}: " + ", ".join(f"{what} {value:,.4g}" for what, value in values.items()))


if __name__ == "__main__":
    main()
