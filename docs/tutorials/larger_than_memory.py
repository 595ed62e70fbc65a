# # Data larger than memory
#
# Rows in files, read part by part: the fit needs room for one part and a few matrices of the basis, whatever
# the number of rows. Here eight parquet files stand for eight hundred.

from pathlib import Path

import numpy as np
import pandas as pd

import inducing as ig

rng = np.random.default_rng(5)
Path("rows").mkdir()
for part in range(8):
    X = rng.uniform(-3, 3, (5000, 3))
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    table["y"] = np.sin(2 * X[:, 0]) + np.cos(X[:, 1]) * X[:, 2] + 0.2 * rng.standard_normal(5000)
    table.to_parquet(f"rows/{part}.parquet", index=False)

# ## Fit
#
# The estimator takes the files in the place of X and the name of the target in the place of y. Moments, a
# sample and the start come from one pass; then each evaluation of the evidence is two passes. With
# `checkpoint=` in the core, or `inducing fit --checkpoint`, a killed fit goes on where it was.

model = ig.SparseGPRegressor(n_inducing=60, max_iter=15, random_state=0)
model.fit("rows/[0-6].parquet", "y")
print(f"{model.basis_size_} functions, noise {np.sqrt(model.noise_):.2f}")
# > 60 functions, noise 0.19

# ## Predict
#
# Predictions come part by part, too.

held_out = pd.read_parquet("rows/7.parquet")
mean, std = model.predict("rows/7.parquet", return_std=True)
error = ig.metrics.smse(held_out["y"], mean, held_out["y"])
print(f"SMSE {error:.3f}, 95 % intervals hold {ig.metrics.coverage(held_out['y'], mean, std**2):.0%}")
# > SMSE 0.020, 95 % intervals hold 95%

# ## How many functions?
#
# A sample that fits into memory says how the error falls with the number of functions, before hours are spent
# on all rows.

sample = pd.concat(pd.read_parquet(f"rows/{part}.parquet").sample(60, random_state=0) for part in range(7))
methods = ["vfe", "fitc", "linear", "boosting"]
X, y = sample[["a", "b", "c"]].to_numpy(), sample["y"].to_numpy()
results = ig.compare(X, y, methods=methods, sizes=[10, 20, 40], max_iter=20, random_state=0)
ig.plots.save(ig.plots.plot_comparison(results), "curves.png")

# ![Learning curves by the number of functions](curves.png)
#
# The same evidence in the core, over any source: arrays on disk, Dask, functions that make iterators.

source = ig.as_source("rows/", "y")
kernel = ig.kernels.RBF([1.0, 1.5, 1.5])
basis = ig.bases.Points(ig.outofcore.select(source, 40, "kmeans", rng=0))
value, gradient = ig.log_evidence_and_gradient(kernel, basis, "vfe", 0.05, source)
print(f"log evidence of {source.n_rows} rows: {value:.0f}; gradients in", *gradient)
# > log evidence of 40000 rows: -137439; gradients in kernel.lengthscale kernel.variance basis.Z noise

# More: [scaling out](../scaling.md) to workers and clusters, and what a pass costs.
