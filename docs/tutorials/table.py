# # A table
#
# Rows with numbers, categories and dates, one column to predict, and an honest error bar for each prediction.
# The table here is made on the spot: rentals of bicycles over two years, which depend on the temperature, the
# wind, the weather and the day of the week.

import numpy as np
import pandas as pd

import inducing as ig

rng = np.random.default_rng(0)
day = pd.date_range("2024-01-01", periods=730)
season = -np.cos(2 * np.pi * (day.day_of_year - 20) / 365)
table = pd.DataFrame({"day": day, "temperature": 11 + 10 * season + 4 * rng.standard_normal(730)})
table["wind"] = rng.gamma(3.0, 4.0, 730)
table["weather"] = rng.choice(["clear", "cloudy", "rain"], 730, p=[0.5, 0.3, 0.2])
demand = 300 + 14 * table.temperature - 0.25 * (table.temperature - 20).clip(0) ** 3 - 4 * table.wind
demand = demand * table.weather.map({"clear": 1.0, "cloudy": 0.9, "rain": 0.55})
demand[day.day_of_week >= 5] *= 1.25
table["rentals"] = (demand + 25 * rng.standard_normal(730)).round()
print(table.head(3).to_string(index=False))
# >        day  temperature      wind weather  rentals
# > 2024-01-01     2.033043 10.016492   clear    235.0
# > 2024-01-02     0.947805  8.368831  cloudy    246.0
# > 2024-01-03     3.986839  4.437595  cloudy    319.0

# ## Fit
#
# A model takes the data frame as it is. A `TableEncoder` decides what each column becomes: the weather is a
# category, the day a number of seconds, and, since `calendar` says so, its place in the week, too. The last
# 130 days are kept back.

inputs = ["day", "temperature", "wind", "weather"]
past, future = table[:600], table[600:]
encoder = ig.TableEncoder(calendar=["weekday"])
model = ig.SparseGPRegressor(n_inducing=80, encoder=encoder, random_state=0)
model.fit(past[inputs], past["rentals"])
print(model.encoder_.get_feature_names_out())
# > ['day' 'day: weekday (sin)' 'day: weekday (cos)' 'temperature' 'wind'
# >  'weather=clear' 'weather=cloudy' 'weather=rain']

# ## Predict
#
# `return_std=True` gives the standard deviation of a new observation. Nineteen of twenty should lie within
# two of them.

mean, std = model.predict(future[inputs], return_std=True)
error = ig.metrics.smse(future["rentals"], mean, past["rentals"])
inside = ig.metrics.coverage(future["rentals"], mean, std**2)
print(f"error {np.sqrt(error):.2f} of the spread of the data; 95 % intervals hold {inside:.0%}")
# > error 0.19 of the spread of the data; 95 % intervals hold 96%

# ## Look
#
# What does the model look at, and what does it say? Along each input the others stay at their medians; the
# band is two standard deviations of a new observation.

ig.plots.save(ig.plots.portrait(model, "slices", target="rentals"), "slices.png")

# ![Slices through a model of six inputs](slices.png)

ig.plots.save(ig.plots.portrait(model, "relevance"), "relevance.png")

# ![Which inputs matter](relevance.png)
#
# Is it honest? On days it has not seen, intervals of every level should hold as many rows as they say.

picture = ig.plots.portrait(model, "calibration", X=future[inputs], y=future["rentals"], target="rentals")
ig.plots.save(picture, "calibration.png")

# ![Calibration on rows that were kept back](calibration.png)
#
# ## Keep
#
# A model is one file without any code in it, safe to open from anybody.

size = model.save("rentals.gp")
again = ig.load("rentals.gp")
print(f"{size / 1024:.0f} KiB; the same answer: {np.allclose(again.predict(future[inputs]), mean)}")
# > 40 KiB; the same answer: True

# From a shell the same is `inducing fit rentals.csv --target rentals --calendar weekday --out rentals.gp`,
# then `inducing predict`, `inducing plot` and `inducing explain`. More: [tables](../tables.md), [what the
# model knows](../knowing.md).
