"""Tables with dates, categories and gaps: our estimators beside HistGradientBoosting with its native ways.

    python benchmarks/mixed_tables.py --rows 2000          # scores on a fifth of the rows, held out
    python benchmarks/mixed_tables.py --csv 1000000        # a large CSV file beside the same rows in parquet

The tables lie in the folder `tables` of INDUCING_DATA. Boosting sees categories as such and gaps as gaps;
ours uses rows with gaps, too, with categories as 0/1 features or, "codes", by a learned kernel. Seconds are
of the processor.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss

import inducing as ig

TABLES = {  # the target, and columns that give it away
    "storms": ("wind", ["category", "name"]),
    "gapminder": ("life_expectancy", []),
    "seattle-weather": ("temp_max", []),
    "cars": ("Miles_per_Gallon", ["Name"]),
    "diamonds": ("price", []),
    "txhousing": ("median", []),
    "nassCDS": ("dead", ["caseid", "injSeverity", "weight"]),
    "Chile": ("vote", []),
    "Wage": ("wage", ["logwage"]),
}


def boosted(frame: pd.DataFrame) -> pd.DataFrame:
    """The inputs as boosting wants them: text as categories, dates as numbers."""
    out = frame.copy()
    for name in out.columns:
        if not pd.api.types.is_numeric_dtype(out[name]):
            dates = pd.to_datetime(out[name], format="ISO8601", errors="coerce")
            out[name] = dates.astype("int64") / 1e9 if dates.notna().all() else out[name].astype("category")
    many = [name for name in out if str(out[name].dtype) == "category" and out[name].nunique() > 255]
    return out.drop(columns=many)


def scores(y: np.ndarray, said: Any, classes: Any = None) -> tuple[float, float]:
    """SMSE and nothing, or error and log loss."""
    if classes is None:
        return float(np.mean((y - said) ** 2) / np.var(y)), np.nan
    return float(np.mean(classes[said.argmax(axis=1)] != y)), float(log_loss(y, said, labels=classes))


def one(name: str, rows: int, folder: Path, seed: int) -> list[dict[str, Any]]:
    target, hidden = TABLES[name]
    table = pd.read_csv(folder / f"{name}.csv.gz").drop(columns=hidden).dropna(subset=[target])
    table = table.sample(min(rows, len(table)), random_state=seed).reset_index(drop=True)
    X, y = table.drop(columns=target), table[target].to_numpy()
    labelled = y.dtype.kind not in "fi"
    test = np.arange(len(table)) % 5 == 0
    out = []
    for who in ("inducing", "codes", "boosting"):
        data, model = X, _ours(who, labelled)
        if who == "boosting":
            data, model = boosted(X), _boosting(labelled)
        start = time.process_time()
        model.fit(data[~test], y[~test])
        seconds = time.process_time() - start
        said = model.predict_proba(data[test]) if labelled else model.predict(data[test])
        error, loss = scores(y[test], said, model.classes_ if labelled else None)
        out.append(
            dict(table=name, model=who, rows=int(sum(~test)), error=error, log_loss=loss, seconds=seconds)
        )
    return out


def _ours(who: str, labelled: bool) -> Any:
    kind: Any = ig.SparseGPClassifier if labelled else ig.SparseGPRegressor
    categories = "codes" if who == "codes" else "one-hot"
    encoder = ig.TableEncoder(categories=categories, calendar=["day of year"], allow_unseen=True)
    return kind(encoder=encoder, missing="use", allow_unseen=True, random_state=0)


def _boosting(labelled: bool) -> Any:
    kind = HistGradientBoostingClassifier if labelled else HistGradientBoostingRegressor
    return kind(categorical_features="from_dtype", random_state=0)


def large(rows: int) -> None:
    """Fit a large CSV file and the same rows in parquet, each in a process of its own."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 10))
    table = pd.DataFrame(X, columns=[f"x{i}" for i in range(10)])
    table["y"] = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=rows)
    with tempfile.TemporaryDirectory() as folder:
        table.to_csv(f"{folder}/t.csv", index=False)
        table.to_csv(f"{folder}/t.csv.gz", index=False)
        table.to_parquet(f"{folder}/t.parquet", row_group_size=1 << 17)
        for name in ("t.parquet", "t.csv", "t.csv.gz"):
            for command in (
                ["fit", f"{folder}/{name}", "-t", "y", "-o", f"{folder}/m", "-m", "50", "--full-iter", "3"],
                ["predict", f"{folder}/m", f"{folder}/{name}", "-o", f"{folder}/out.parquet"],
            ):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                code = "import resource, sys; from inducing.cli import app\ntry: app(sys.argv[1:])\n"
                code += "finally: print('MiB', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
                done = subprocess.run(
                    [sys.executable, "-c", code, *command], capture_output=True, text=True, check=False
                )
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                memory = done.stdout.split()[-1]
                print(f"{command[0]:8} {name:10} {seconds:7.1f} s of the processor, {memory} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=2000, help="of each table, at most")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=int, default=0, help="rows of a CSV file to read in parts instead")
    options = parser.parse_args()
    if options.csv:
        return large(options.csv)
    warnings.simplefilter("ignore", ig.errors.InducingWarning)
    folder = Path(os.environ["INDUCING_DATA"]) / "tables"
    for name in options.tables.split(","):
        for row in one(name, options.rows, folder, options.seed):
            form = (
                "{table:16} {model:9} rows {rows:6} error {error:.4f} log loss {log_loss:.4f} {seconds:.1f} s"
            )
            print(form.format(**row), flush=True)


if __name__ == "__main__":
    main()
