# # Classes
#
# A classifier that says how sure it is, and may say that it does not know. The data are two crescents and a
# cloud beside them.

import numpy as np

import inducing as ig

rng = np.random.default_rng(1)
angle = np.pi * rng.uniform(0, 1, 300)
upper = np.column_stack([np.cos(angle), np.sin(angle)])
lower = np.column_stack([1 - np.cos(angle), 0.4 - np.sin(angle)])
cloud = np.column_stack([rng.normal(2.2, 0.3, 150), rng.normal(1.0, 0.3, 150)])
X = np.vstack([upper, lower, cloud]) + 0.18 * rng.standard_normal((750, 2))
labels = np.repeat(["upper", "lower", "cloud"], [300, 300, 150])
order = rng.permutation(750)
train, test = order[:500], order[500:]

# ## Fit
#
# Text, booleans or numbers are classes; there is nothing to encode. Each class has a process of its own on
# one basis.

model = ig.SparseGPClassifier(n_inducing=40, random_state=0).fit(X[train], labels[train])
p = model.predict_proba(X[test])
right = model.classes_[p.argmax(axis=1)] == labels[test]
loss = -np.mean(np.log(p[np.arange(250), np.searchsorted(model.classes_, labels[test])]))
print(f"{right.mean():.0%} right, log loss {loss:.2f}; three guesses in turn would have {np.log(3):.2f}")
# > 97% right, log loss 0.12; three guesses in turn would have 1.10

# ## How sure
#
# Probabilities are averages over what is not known of the functions, so they grow even far from the data
# instead of certain.

near, far = model.predict_proba([[0.0, 1.0], [-6.0, 6.0]]).max(axis=1)
print(f"amid the data {near:.2f}, far from it {far:.2f}")
# > amid the data 1.00, far from it 0.33

ig.plots.save(ig.plots.portrait(model, "map", X=X, y=labels, target="class"), "class_map.png")

# ![The probability of each class over two inputs](class_map.png)

picture = ig.plots.portrait(model, "calibration", X=X[test], y=labels[test], target="class")
ig.plots.save(picture, "class_calibration.png")

# ![Calibration of class probabilities](class_calibration.png)
#
# ## Not every question needs an answer
#
# With `reject_below` a prediction below that probability is None: those rows go to a person.

said = model.predict(X[test], reject_below=0.9)
answered = np.array([label is not None for label in said])
print(
    f"{answered.mean():.0%} answered, {np.mean(said[answered] == labels[test][answered]):.1%} of those right"
)
# > 94% answered, 97.9% of those right

# More: [likelihoods](../likelihoods.md), which has counts, durations, shares and targets with outliers, too.
