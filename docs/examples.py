# Examples of the reference, one for each public name; they run from top to bottom in one namespace.
import numpy as np

import inducing as ig

X, y = ig.datasets.friedman1(300, rng=0)
Xs, ys = ig.datasets.friedman1(50, rng=1)
labels = y > 14
kernel, noise = ig.kernels.RBF(np.full(10, 3.0), variance=20.0), 1.0
basis = ig.bases.Points(X[:20])

# SparseGPRegressor
model = ig.SparseGPRegressor(n_inducing=20, max_iter=20, random_state=0).fit(X, y)
mean, std = model.predict(Xs, return_std=True)

# SparseGPClassifier
classifier = ig.SparseGPClassifier(n_inducing=15, max_iter=10, random_state=0).fit(X, labels)
probabilities = classifier.predict_proba(Xs)  # (n, 2)

# OnlineGPRegressor
stream = ig.OnlineGPRegressor(n_inducing=20, warmup=100, random_state=0)
for rows in np.split(np.arange(300), 3):
    said = stream.predict_then_fit(X[rows], y[rows])

# GPDensity
density = ig.GPDensity(order=3).fit(X[:, :1])
height, std = density.pdf(Xs[:, :1], return_std=True)

# MultiscaleKernelRidge
ridge = ig.MultiscaleKernelRidge(8, max_iter=5, random_state=0).fit(X, y)

# MultiscaleSVM
machine = ig.MultiscaleSVM(8, max_iter=5, random_state=0).fit(X, labels)

# condition
post = ig.condition(kernel, basis, "fitc", noise, X, y - y.mean())
mean, variance = post.predict(Xs)  # of the latent f

# log_evidence
value = ig.log_evidence(kernel, basis, "vfe", noise, X, y - y.mean())

# log_evidence_and_gradient
value, gradient = ig.log_evidence_and_gradient(kernel, basis, "vfe", noise, X, y - y.mean())
gradient["kernel.lengthscale"]  # (10,)

# leave_one_out
left = ig.leave_one_out(kernel, basis, "fitc", noise, X, y - y.mean())
worst = np.argsort(left.log_density)[:5]

# Posterior
small = post.prune(10)  # the closest process with ten functions
answer = small.compile()  # answer(x) is mean and variance in microseconds
functions = small.paths(3, rng=0)(Xs)  # (3, 50)

# prior
before = ig.prior(kernel)

# kl_divergence
lost = ig.kl_divergence(small, post)  # nats

# NeighboursPredictor
near = ig.condition(kernel, basis, "neighbours", noise, X, y - y.mean(), neighbours=10)
mean, variance = near.predict(Xs)

# NoiseByLevel
levels = np.column_stack([X[:, 0], np.arange(300) % 2])
by_level = ig.NoiseByLevel([0.5, 2.0], column=1)
k = ig.kernels.RBF(1.0, 20.0, columns=(0,))
post_by_level = ig.condition(k, ig.bases.Points(levels[:10]), "vfe", by_level, levels, y)

# Sites
signs = np.where(labels, 1.0, -1.0)
sites = ig.condition(kernel, basis, "fitc", ig.likelihoods.Probit(), X, signs).sites
sites.tau, sites.nu  # (n,) each

# approximations
[row.name for row in ig.approximations.TABLE.values()]

# kernels
k = ig.kernels.RBF([1.0, 2.0]) + ig.kernels.Linear(0.1) * ig.kernels.Periodic(1.0, period=7.0, columns=[0])
k(X[:5, :2], X[:3, :2])  # (5, 3)

# bases
b = ig.bases.Multiscale(X[:5], np.full((5, 10), 3.5))

# means
m = ig.means.Linear(np.zeros(10), bias=1.0)

# selection
Z = ig.selection.kmeans(X, 20, rng=0)

# likelihoods
counts = ig.likelihoods.Poisson()
value = counts.log_average(np.array([3.0]), np.array([0.5]), np.array([0.2]))  # log ⟨p(y|f)⟩

# fit
found = ig.fit(kernel, basis, "vfe", noise, X, y - y.mean(), max_iterations=10)
found.kernel, found.noise, found.value

# Fit
found.posterior.predict(Xs)

# LogNormal
priors = {"kernel.lengthscale": ig.LogNormal(median=2.0, sigma=1.0)}
ig.fit(kernel, basis, "vfe", noise, X, y - y.mean(), priors=priors, max_iterations=3)

# fit_expectation_propagation
by_ep = ig.fit_expectation_propagation(
    kernel, basis, ig.likelihoods.Probit(), X[:100], signs[:100], max_iterations=2
)

# diagnose
report = ig.diagnose(found, X, y - y.mean())

# Diagnosis
print(report)  # a table, and advice in sentences

# recipes
list(ig.recipes.RECIPES)

# compare
table = ig.compare(X, y, methods=["vfe", "mean"], sizes=[10], repeats=1, max_iter=5, random_state=0)

# update
online = ig.update(ig.prior(kernel), ig.likelihoods.Gaussian(noise), X, y - y.mean(), capacity=20)

# update_together
both = np.column_stack([y, -y])
two = ig.update_together([ig.prior(kernel)] * 2, ig.likelihoods.Gaussian(noise), X, both, capacity=20)

# information_gain
gain = ig.information_gain(online, ig.likelihoods.Gaussian(noise), Xs)

# most_informative
row = ig.most_informative(online, ig.likelihoods.Gaussian(noise), Xs)

# expectation_propagation
ep = ig.expectation_propagation(kernel, ig.likelihoods.Probit(), X, signs, capacity=20, sweeps=2)

# sobol_indices
shares = ig.sobol_indices(post, np.zeros(10), np.ones(10))
shares.first, shares.total

# probability_of_maximum
chance = ig.probability_of_maximum(post, Xs)

# probability_above
above = ig.probability_above(post, Xs, 5.0)

# load
model.save("model.gp")
again = ig.load("model.gp")

# export
ig.export(model, "model.h", "c")

# distil
pupil = ig.distil(model, X, size=20_000, rounds=1)  # a model of at most so many bytes that answers alike

# citation
print(ig.citation(model))  # BibTeX of the methods that a model used

# warm
prepare = ig.warm  # prepare() compiles everything beforehand, and says how long each part took

# TableEncoder
import pandas as pd

frame = pd.DataFrame({"city": ["Bern", "Basel"] * 5, "height": np.arange(10.0)})
features = ig.TableEncoder().fit_transform(frame)

# as_source
source = ig.as_source(X, y, chunk_rows=100)

# sources
held_out, others = ig.sources.split(source, 0.3)


# distributed
def far_away():
    with ig.distributed.cluster(workers=4) as client:
        return ig.log_evidence(kernel, basis, "vfe", noise, ig.distributed.spread(source, client))


# outofcore
Z = ig.outofcore.select(source, 20, "kmeans", rng=0)

# datasets
X1, y1 = ig.datasets.toy1d(100, rng=0)

# committee
experts = ig.condition(kernel, None, "bcm", noise, X, y - y.mean(), blocks=np.arange(300) // 100)

# augmentation
augmented = ig.augmentation.condition(kernel, basis, "fitc", noise, X, y - y.mean())

# local
nearest = ig.local.neighbours(kernel, noise, X, y - y.mean(), size=30)

# iterative
exact = ig.condition(kernel, None, "cg", noise, X, y - y.mean())
exact.evidence  # value and standard error

# products
product = ig.products.Blocked(kernel, X)
product(y[:, None])  # K y

# relevance_vectors
few = ig.relevance_vectors(kernel, X[:60], y[:60] - y.mean(), noise=noise)

# laplace
sides = ig.laplace(kernel, basis, "fitc", ig.likelihoods.Logistic(), X, np.where(labels, 1.0, -1.0))

# mixture
x = np.linspace(-1, 1, 80)[:, None]  # of two curves in turns
t = np.where(np.arange(80) % 2, np.sin(3 * x[:, 0]), -x[:, 0])
curves = ig.mixture(ig.kernels.RBF(0.7), ig.bases.Points(x[::8]), 0.01, x, t, rng=0)
curves.modes([[0.8]])  # the two values of y at 0.8, the likelier first

# sparse_kernel_pca
pca = ig.sparse_kernel_pca(ig.kernels.RBF(2.0), X[:40], noise=0.1)

# eigenfunctions
waves = ig.eigenfunctions.eigenfunctions(ig.kernels.RBF(1.0), X[:, :1], 5)

# squared
mean_square, variance = ig.squared.moments(density.posterior_, Xs[:, :1])

# mixtures
mixtures = ig.mixtures.Mixtures

# fields
places = np.random.default_rng(2).uniform(0, 10, (8, 2))
field = ig.kernels.DivergenceFree(3.0, 5.0) + ig.kernels.Independent([40.0, 40.0])
inputs = ig.fields.stack(places)  # (16, 3): x, y and the component
winds = np.column_stack([3.0 + 0.1 * places[:, 0], 4.0 - 0.1 * places[:, 1]])
flow = ig.condition(field, ig.bases.Points(inputs), "exact", 0.02, inputs, winds.ravel())
mean, covariance = ig.fields.predict(flow, places)  # (8, 2), (8, 2, 2)

# wind_model
beams = ig.wind_model.Beams.ers(np.linspace(0, 1, 8))  # where each node lies in the swath
backscatter = ig.wind_model.measure(winds, beams, noise=0.08**2)

# wind
ambiguities = ig.wind.ambiguities(field, backscatter, beams, 0.08**2, places)  # winds at each node
modes = ig.wind.retrieve(field, ambiguities.likelihood(), places, orders=3)

# plots
line = ig.SparseGPRegressor(n_inducing=8, max_iter=5, random_state=0).fit(X1, y1)
ig.plots.save(ig.plots.plot_predictions_1d(line, X1, y1), "line.png")

# animation
film = ig.animation.animate(ig.animation.record(ig.animation.task_for(X1, y1, max_iterations=3)), frames=2)

# metrics
ig.metrics.smse(ys, model.predict(Xs), y)

# progress
with ig.progress.Bars(False) as bars:
    bars.show("fits", "first", 1, 3)

# errors
try:
    ig.kernels.RBF(-1.0)
except ig.errors.ParameterError as error:
    print(error)

# backend
with ig.backend.using(threads=1):
    post.predict(Xs)
