# # A stream
#
# Rows come one after the other and are never seen again; each is predicted before it is read, memory stays
# constant, and the thing itself changes on the way. A sensor's response to two inputs is turned round after
# 3,000 rows.

import warnings

import numpy as np

import inducing as ig

rng = np.random.default_rng(3)
n = 5000
X = rng.uniform(-2, 2, (n, 2))
phase = np.where(np.arange(n) < 3000, 0.0, 2.0)
y = np.sin(2 * X[:, 0] + phase) + 0.5 * X[:, 1] + 0.1 * rng.standard_normal(n)

# ## Read
#
# The first `warmup` rows set units and hyperparameters; from then on each row costs the same.
# `on_drift="forget"` lets the model forget what it knew when its errors say that it is no longer true, and it
# warns.

model = ig.OnlineGPRegressor(n_inducing=60, on_drift="forget", random_state=0)
mean, std = np.full(n, np.nan), np.full(n, np.nan)
with warnings.catch_warnings(record=True) as alarms:
    warnings.simplefilter("always", ig.errors.DriftWarning)
    for rows in np.split(np.arange(n), n // 100):
        said = model.predict_then_fit(X[rows], y[rows])
        mean[rows], std[rows] = said.mean, said.std
print(alarms[0].message)
print("alarms at rows", *model.drifts_)
# > the stream has drifted: alarm 1 at row 3007
# > alarms at rows 3007 3037 3075

# ## Look
#
# Before the change the errors are those of the noise; at the alarm the model forgets, and the band opens
# until it has learned anew.

for name, rows in {
    "before": slice(1000, 3000),
    "after": slice(3000, 3200),
    "in the end": slice(4000, n),
}.items():
    error = np.sqrt(np.mean((y - mean)[rows] ** 2))
    inside = np.mean(np.abs(y - mean)[rows] < 1.96 * std[rows])
    print(f"{name:>10}: error {error:.2f}, 95 % intervals hold {inside:.0%}")
# >     before: error 0.10, 95 % intervals hold 95%
# >      after: error 0.62, 95 % intervals hold 46%
# > in the end: error 0.10, 95 % intervals hold 95%

shown = slice(2900, 3500)
picture = ig.plots.plot_stream(y[shown], mean[shown], std[shown], alarms=model.drifts_, first=2900)
ig.plots.save(picture, "stream.png")

# ![A stream with bands and an alarm](stream.png)
#
# ## Go on tomorrow
#
# The file has all that the model needs to go on as if it had never stopped.

model.save("sensor.gp")
again = ig.load("sensor.gp").partial_fit(X[:10], y[:10])
print(f"{again.n_rows_} rows read, {again.basis_size_} functions")
# > 5010 rows read, 23 functions

# From a shell: `inducing stream sensors.csv --target y --out sensors.gp --follow --on-drift forget`. More:
# [streams](../streams.md).
