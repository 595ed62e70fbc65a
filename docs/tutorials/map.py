# # A map
#
# Measurements at scattered places, a map of the mean, a map of what is not known, and the place to measure
# next. The quantity is a made field of temperature over 200 stations; a lake in the east has none.

import numpy as np

import inducing as ig

rng = np.random.default_rng(2)


def field(x):
    east, north = x.T
    hill = 3 * np.exp(-((east - 30) ** 2 + (north - 60) ** 2) / 300)
    valley = 4 * np.exp(-((east - 55) ** 2 + (north - 20) ** 2) / 500)
    return 15 - 0.04 * north + hill - valley + 0.8 * np.sin(east / 9)


places = rng.uniform(0, 100, (260, 2))
places = places[np.hypot(places[:, 0] - 78, places[:, 1] - 62) > 18][:200]
temperature = field(places) + 0.3 * rng.standard_normal(200)

# ## Fit
#
# Two hundred rows need no approximation: left alone, the regressor is the exact process with the kernel that
# rows it has not learned from like best. With `approximation="exact"` and a kernel named, it is done in a
# moment.

model = ig.SparseGPRegressor("matern52", "exact", random_state=0).fit(places, temperature)
grid = np.stack(np.meshgrid(np.arange(2.5, 100, 5), np.arange(2.5, 100, 5)), axis=-1).reshape(-1, 2)
mean, std = model.predict(grid, return_std=True, latent=True)
print(f"root mean square error {np.sqrt(np.mean((mean - field(grid)) ** 2)):.2f} degrees")
print(f"standard deviation from {std.min():.2f} to {std.max():.2f}")
# > root mean square error 0.12 degrees
# > standard deviation from 0.10 to 0.49

# ## Draw
#
# Left the mean, right the standard deviation: the lake opens up.

picture = ig.plots.portrait(
    model, "map", names=["east", "north"], target="temperature", X=places, y=temperature
)
ig.plots.save(picture, "map.png")

# ![A map of mean and standard deviation](map.png)
#
# ## Where to measure next
#
# The place whose measurement would teach most is the one with the largest information gain, here within the
# lake.

noise = ig.likelihoods.Gaussian(
    model.noise_ / model.y_scale_**2
)  # in the units of the core, which are standardised
gain = ig.information_gain(model.posterior_, noise, (grid - model.x_mean_) / model.x_scale_)
print(f"measure at {grid[np.argmax(gain)]}")
# > measure at [77.5 62.5]

# More: [neighbours](../neighbours.md) for a hundred thousand places and for a globe, [winds](../wind.md) for
# vector fields.
