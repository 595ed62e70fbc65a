"""First answers of a model file: processor seconds of new processes, one thread, best of several in turns.

python benchmarks/answers.py                    # goals: .5 s beyond the start, .3 s beyond import sklearn
python benchmarks/answers.py --runs 20 --also ../old/src    # and another source tree beside this one

Imports are nearly all of it, so the files must be in the system's cache: the first run is not counted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).resolve().parent.parent / "src"
TELL = "\nimport time; print(time.process_time())"
ASK = "import inducing as ig; ig.load('m.gp', light={light}).predict([[.1, .2, .3]], return_std=True)"
COMMAND = """import sys; sys.argv = ["inducing", "predict", "m.gp", "rows.csv", "-o", "out.csv"]
from inducing.cli import main
try: main()
except SystemExit: pass
"""
CASES = {
    "Python's start": "",
    "import numpy": "import numpy",
    "import sklearn": "import sklearn",
    "load(light=True), predict": ASK.format(light=True),
    "inducing predict, 300 rows of a CSV file": COMMAND,
    "load, predict": ASK.format(light=False),
}


def seconds(code: str, source: Path, folder: Path) -> float:
    """Processor seconds of a new process that runs some code."""
    place = os.environ | {"PYTHONPATH": str(source), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code + TELL], cwd=folder, env=place, capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--also", type=Path, help="the src folder of another tree")
    given = parser.parse_args()
    sources = [SOURCE, *([] if given.also is None else [given.also.resolve()])]
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        found: dict[tuple[str, Path], list[float]] = {}
        for _ in range(given.runs + 1):
            for name, code in CASES.items():
                for source in sources:
                    found.setdefault((name, source), []).append(seconds(code, source, Path(folder)))
    for name in CASES:
        print(f"{name:<42}", *(f"{min(found[name, source][1:]):6.3f}" for source in sources))


def make(folder: Path) -> None:
    """A model of 50 functions of three inputs, and rows to predict."""
    sys.path.insert(0, str(SOURCE))
    import inducing as ig

    X = np.random.default_rng(0).normal(size=(300, 3))
    model = ig.SparseGPRegressor("rbf", "vfe", n_inducing=50, max_iter=5, random_state=0)
    model.fit(X, X[:, 0] + np.sin(X[:, 1]))
    model.feature_names_in_ = np.array(["a", "b", "c"], dtype=object)
    model.save(folder / "m.gp", {"target": "t"})
    np.savetxt(folder / "rows.csv", X, delimiter=",", header="a,b,c", comments="")


if __name__ == "__main__":
    main()
