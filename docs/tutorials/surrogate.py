# # A surrogate with paths and a maximum
#
# A simulation takes an hour a run. After ten runs a process stands in for it: it draws whole functions that
# could be the simulation, says where the maximum may be, and chooses the next run.

import numpy as np

import inducing as ig

rng = np.random.default_rng(4)


def simulation(x):
    a, b = np.atleast_2d(x).T
    right = np.exp(-((a - 0.7) ** 2 + (b - 0.3) ** 2) / 0.1)
    left = 0.9 * np.exp(-((a - 0.2) ** 2 + (b - 0.8) ** 2) / 0.15)
    return right + left + 0.2 * a


runs = rng.uniform(0, 1, (10, 2))
yields, peak = simulation(runs), simulation(rng.uniform(0, 1, (100_000, 2))).max()

# ## A stand-in
#
# The simulation has no noise, so almost none is assumed.

kernel = ig.kernels.RBF(lengthscale=[0.3, 0.3])


def stand_in(runs, yields):
    return ig.SparseGPRegressor(kernel, "exact", noise=1e-6, random_state=0).fit(runs, yields)


model = stand_in(runs, yields)
mean, std = model.predict([[0.7, 0.3]], return_std=True, latent=True)
print(
    f"at (0.7, 0.3) it says {mean[0]:.2f} ± {std[0]:.2f}, and the simulation {simulation([0.7, 0.3])[0]:.2f}"
)
# > at (0.7, 0.3) it says 1.11 ± 0.03, and the simulation 1.17

# ## Functions, and where each is largest
#
# `paths` draws functions that can be called anywhere, with gradients. Each has a maximum; where they fall
# says what is not known.

paths = model.paths(100, random_state=0)
where, how_large = paths.maxima([0, 0], [1, 1])
print(f"maxima of 100 functions: {how_large.mean():.2f} ± {how_large.std():.2f}")
print(f"{np.mean(where[:, 0] > 0.5):.0%} of them on the right")
# > maxima of 100 functions: 1.15 ± 0.06
# > 78% of them on the right

# ## Choose the next run
#
# Run where one function drawn at random has its maximum (Thompson sampling): places that are good, or that
# may be.

for step in range(12):
    (best,), _ = stand_in(runs, yields).paths(1, random_state=step).maxima([0, 0], [1, 1])
    runs, yields = np.vstack([runs, best]), np.append(yields, simulation(best))
print(
    f"best of 10 runs {yields[:10].max():.3f}, of 12 more {yields[10:].max():.3f}; the maximum is {peak:.3f}"
)
# > best of 10 runs 1.077, of 12 more 1.173; the maximum is 1.173

final = stand_in(runs, yields)
axis = np.linspace(0, 1, 21)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
chance = ig.probability_of_maximum(final, grid, size=200)
print(f"of a grid, {grid[np.argmax(chance)]} is the largest with probability {chance.max():.2f}")
# > of a grid, [0.7 0.3] is the largest with probability 0.78

picture = ig.plots.portrait(final, "map", names=["a", "b"], target="yield", X=runs, y=yields)
ig.plots.save(picture, "surrogate.png")

# ![A surrogate, its uncertainty and the runs it chose](surrogate.png)
#
# More: [what the model knows](../knowing.md), Sobol indices among it.
