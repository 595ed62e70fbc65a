"""The time of a query in exported C beside `compile()`, at m = 100 and d = 8: least of several rounds.

python benchmarks/exports.py [--flags=-O2]
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import inducing as ig

MAIN = """#include <stdio.h>
#include <time.h>
#include "model.h"
int main(void) {
  double x[8], mean, std, sum = 0, best = 1e9;
  for (int round = 0; round < 9; round++) {
    clock_t began = clock();
    for (int i = 0; i < 20000; i++) {
      for (int k = 0; k < 8; k++) x[k] = 0.1 * k + 1e-5 * i;
      model_predict(x, &mean, &std);
      sum += mean + std;
    }
    double took = (double)(clock() - began) / CLOCKS_PER_SEC / 20000;
    if (took < best) best = took;
  }
  printf("%g %g", 1e6 * best, sum);
  return 0;
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flags", default="-O2")
    flags = parser.parse_args().flags.split()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 8))
    y = np.sin(X[:, 0]) + X[:, 1]
    for kernel in ("rbf", "matern52"):
        model = ig.SparseGPRegressor(
            kernel, approximation="vfe", n_inducing=100, optimize=None, random_state=0
        )
        query, best = model.fit(X, y).posterior_.compile(), np.inf
        for _ in range(9):
            began = time.process_time()
            for _ in range(40):
                for x in X[:50]:
                    query(x)
            best = min(best, 1e6 * (time.process_time() - began) / 2000)
        with tempfile.TemporaryDirectory() as folder:
            differs = ig.export(model, Path(folder) / "model.h", "c")
            (Path(folder) / "main.c").write_text(MAIN)
            program = str(Path(folder) / "main")
            subprocess.run(["cc", "-std=c99", *flags, f"{program}.c", "-o", program, "-lm"], check=True)
            took = float(
                subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()[0]
            )
        times = f"C {took:.2f} µs, compile() {best:.2f} µs, ratio {took / best:.2f}"
        print(f"{kernel}: {times}; differs by {differs:.1e}")


if __name__ == "__main__":
    main()
