"""Predefined bases, informative rows first, and queries: proposed in 004, not tested. [§§3.6.1, 3.8.1]"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from inducing.inference import selection
from inducing.inference.online import update
from inducing.model.bases import Points
from inducing.model.kernels.base import Kernel
from inducing.model.likelihoods import Gaussian, Likelihood, Probit
from inducing.model.posterior import Posterior, prior
from inducing.pictures.plots import BLUE, INK, RED
from inducing.sources import datasets

from .csato import GREEN, friedman_kernel, panels
from .csato_classification import sonar
from .report import Report

Chooser = Callable[[Posterior, np.ndarray, np.ndarray], int]


def c17(report: Report) -> None:
    """Three questions of 004, with paired tests over data sets."""
    runs = 4 if report.quick else 30
    kernel, noise, _ = friedman_kernel(report.seeds(2 if report.quick else 5, 500))
    report.settings = (
        f"Friedman 1 (250 rows, 1000 noise-free test rows), {runs} sets, kernel and noise by "
        "evidence; a difference "
        "counts when the mean of paired differences is two standard errors from 0. Queries: Sonar's "
        "104 training "
        f"rows as the pool, probit, {runs} orders of the first five."
    )
    _predefined(report, kernel, noise, runs)
    _ordering(report, kernel, noise, runs)
    _queries(report, runs)


def _friedman(report: Report, run: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    X, y = datasets.friedman1(250, rng=report.rng(run))
    Xs, _ = datasets.friedman1(1000, rng=report.rng(10_000 + run))
    f = 10 * np.sin(np.pi * Xs[:, 0] * Xs[:, 1]) + 20 * (Xs[:, 2] - 0.5) ** 2 + 10 * Xs[:, 3] + 5 * Xs[:, 4]
    return X, y, Xs, f


def _verdict(differences: np.ndarray) -> tuple[str, bool | None]:
    """The mean of paired differences with its standard error; whether it is below 0 by two of them."""
    mean, error = differences.mean(), differences.std(ddof=1) / np.sqrt(len(differences))
    said = f"difference {mean:+.3g} ± {error:.2g} (standard error, {len(differences)} sets)"
    return said, True if mean < -2 * error else False if mean > 2 * error else None


def _predefined(report: Report, kernel: Kernel, noise: float, runs: int) -> None:
    """A basis fixed beforehand, [004 §3.6.1], against one that online learning chooses."""
    sizes = (30, 60, 120)
    names = "chosen online", "random rows", "k-means centres", "random in the cube", "rows by variance"
    names += "chosen online, then given", "chosen with targets shuffled, then given"
    errors = np.zeros((len(names), len(sizes), runs))
    for run in range(runs):
        X, y, Xs, f = _friedman(report, run)
        t, rng = y - y.mean(), report.rng(20_000 + run)
        for j, m in enumerate(sizes):
            bases = {
                names[1]: X[rng.choice(len(X), m, replace=False)],
                names[2]: selection.kmeans(X, m, rng),
                names[3]: rng.random((m, 10)),
                names[4]: selection.greedy_variance(X, m, rng, kernel=kernel),
            }
            posts = {names[0]: update(prior(kernel), Gaussian(noise), X, t, m, 1e-6)}
            shuffled = update(prior(kernel), Gaussian(noise), X, rng.permutation(t), m, 1e-6)
            bases[names[5]], bases[names[6]] = posts[names[0]].basis.Z, shuffled.basis.Z
            for name, Z in bases.items():
                posts[name] = update(prior(kernel, basis=Points(Z)), Gaussian(noise), X, t, grow=False)
            for i, name in enumerate(names):
                errors[i, j, run] = np.mean((posts[name].mean(Xs) + y.mean() - f) ** 2)
    rows = [(name, *(f"{v:.2f}" for v in errors[i].mean(axis=-1))) for i, name in enumerate(names)]
    report.table(
        "Mean squared error with a basis given beforehand", ("basis", *(f"{m}" for m in sizes)), rows
    )
    for i in (1, 2):
        said, holds = _verdict((errors[i] - errors[0]).mean(axis=0))
        report.claim(
            f"A basis given beforehand ({names[i]}) does as well as the chosen one",
            "not tested, §3.6.1",
            f"MSE {said}",
            holds is not False,
        )
    said, chosen_for_targets = _verdict((errors[5] - errors[6]).mean(axis=0))
    kept, _ = _verdict((errors[5] - errors[0]).mean(axis=0))
    report.why(
        "A basis given beforehand",
        "the chosen one looks at the targets",
        f"the chosen basis given beforehand, less one chosen with the targets shuffled: MSE {said}; less the "
        f"chosen one itself: {kept}",
        chosen_for_targets is True,
    )
    report.values["predefined"] = {name: errors[i].mean(axis=-1) for i, name in enumerate(names)}


def _ordering(report: Report, kernel: Kernel, noise: float, runs: int) -> None:
    """Read the rows of largest KL(t+1 ∥ t) first. [004 §3.8.1]"""
    m, likelihood, differences = 60, Gaussian(noise), []
    for run in range(runs):
        X, y, Xs, f = _friedman(report, run)
        t = y - y.mean()
        order = informative_first(kernel, likelihood, X, t, m)
        posts = [
            update(prior(kernel), likelihood, X[rows], t[rows], m, 1e-6)
            for rows in (order, np.arange(len(X)))
        ]
        first, plain = (np.mean((post.mean(Xs) + y.mean() - f) ** 2) for post in posts)
        differences.append(first - plain)
    said, holds = _verdict(np.array(differences))
    report.claim(
        f"Informative rows first help online learning ({m} functions)",
        "proposed, §3.8.1",
        f"MSE {said}",
        holds,
    )
    report.values["ordering"] = differences


def informative_first(
    kernel: Kernel, likelihood: Likelihood, X: np.ndarray, y: np.ndarray, capacity: int, block: int = 10
) -> np.ndarray:
    """An order of the rows: each time those of largest KL(t+1 ∥ t), of the formula of [004 eq. 3.16]. (n,)"""
    post, left, order = prior(kernel), np.arange(len(X)), []
    while len(left):
        mean, variance = post.predict(X[left]) if len(post) else (np.zeros(len(left)), kernel.diag(X[left]))
        gain = divergence(likelihood, y[left], mean, variance)
        best = left[np.argsort(-gain, kind="stable")[: 1 if not order else block]]
        post = update(post, likelihood, X[best], y[best], capacity, 1e-6)
        order.extend(best)
        left = np.setdiff1d(left, best)
    return np.array(order)


def divergence(likelihood: Likelihood, y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """KL(t+1 ∥ t) of reading each row. [004 eq. 3.16]"""
    q, r = likelihood.derivatives(y, mean, variance)
    return 0.5 * ((q * q + r) * variance - np.log1p(r * variance))


def _queries(report: Report, runs: int) -> None:
    """Which labels to ask for: at random, by expected KL, by expected error on the pool. [004 §3.8.1]"""
    data = sonar(0.25**2)
    X, y, Xs, ys = data.X, data.y, data.X_test, data.y_test
    asked = 25 if report.quick else 50
    likelihood = Probit(1.0)

    def expected_kl(post: Posterior, rows: np.ndarray) -> np.ndarray:
        mean, variance = post.predict(rows)
        p = np.exp(likelihood.log_average(np.ones(len(rows)), mean, variance))
        both = [divergence(likelihood, np.full(len(rows), s), mean, variance) for s in (1.0, -1.0)]
        return p * both[0] + (1 - p) * both[1]

    def largest_kl(post: Posterior, pool: np.ndarray, left: np.ndarray) -> int:
        return int(left[np.argmax(expected_kl(post, pool[left]))])

    reach = data.kernel(X, X).mean(axis=1)  # how much a row's function has to do with the pool's. (n,)

    def reaching_kl(post: Posterior, pool: np.ndarray, left: np.ndarray) -> int:
        return int(left[np.argmax(expected_kl(post, pool[left]) * reach[left])])

    def least_error(post: Posterior, pool: np.ndarray, left: np.ndarray) -> int:
        """The row after whose label the pool is least uncertain: expected error of the plug-in rule."""
        some = left[np.argsort(np.abs(post.predict(pool[left]).mean))[:12]]
        mean, variance = post.predict(pool[some])
        p = np.exp(likelihood.log_average(np.ones(len(some)), mean, variance))
        costs = []
        for i, share in zip(some, p, strict=True):
            cost = 0.0
            for label, weight in ((1.0, share), (-1.0, 1 - share)):
                new = update(post, likelihood, pool[i : i + 1], np.array([label]), None, 1e-6)
                chance = np.exp(likelihood.log_average(np.ones(len(pool)), *new.predict(pool)))
                cost += weight * np.mean(np.minimum(chance, 1 - chance))
            costs.append(cost)
        return int(some[np.argmin(costs)])

    names = "at random", "largest expected KL", "least expected error", "expected KL times reach"
    errors, apart = np.zeros((4, runs, asked)), np.zeros((4, runs))
    gaps = np.sqrt(np.sum((X[:, None] - X) ** 2, axis=2)) + 1e9 * np.eye(len(X))
    alone = gaps.min(axis=1)  # how far a row is from its nearest neighbour
    for run in range(runs):
        start = report.rng(30_000 + run).permutation(len(X))
        choosers: list[Chooser | None] = [None, largest_kl, least_error, reaching_kl]
        for i, chooser in enumerate(choosers):
            post = update(prior(data.kernel), likelihood, X[start[:5]], y[start[:5]], None, 1e-6)
            left = start[5:]
            for step in range(asked):
                row = int(left[0]) if chooser is None else chooser(post, X, left)
                left = left[left != row]
                apart[i, run] += alone[row] / asked
                post = update(post, likelihood, X[row : row + 1], y[row : row + 1], None, 1e-6)
                errors[i, run, step] = np.mean(np.sign(post.mean(Xs)) != ys)
    for i in (1, 2):
        said, holds = _verdict(100 * (errors[i] - errors[0]).mean(axis=1))
        report.claim(
            f"Labels asked for by {names[i]} are worth more than random ones",
            "to be tested, §3.8.1",
            f"error in % over all steps, {said}",
            holds,
        )
    said, holds = _verdict(100 * (errors[2] - errors[1]).mean(axis=1))
    report.claim("Expected error chooses better than KL", "suggested, §3.8.1", f"error in %, {said}", holds)
    said, mended = _verdict(100 * (errors[3] - errors[1]).mean(axis=1))
    gap = apart[1] - apart[0]
    report.why(
        "Labels asked for by largest expected KL",
        "it asks for rows that lie alone, which say little of the others",
        f"they are {apart[1].mean():.2f} from their nearest neighbour, random ones {apart[0].mean():.2f} "
        f"(paired difference {gap.mean():+.2f} ± {gap.std(ddof=1) / np.sqrt(runs):.2f}); the KL times the "
        f"row's mean covariance with the pool asks for rows {apart[3].mean():.2f} away, error in % less that "
        f"of the KL alone: {said}",
        mended is True and bool(gap.mean() > 2.0 * gap.std(ddof=1) / np.sqrt(runs)),
    )
    report.values["queries"] = {name: errors[i].mean(axis=0) for i, name in enumerate(names)}
    figure, axes = panels(1, 6.5)
    for i, colour in enumerate((INK, BLUE, RED, GREEN)):
        axes[0].plot(5 + np.arange(1, asked + 1), 100 * errors[i].mean(axis=0), color=colour, label=names[i])
    axes[0].set(xlabel="labels", ylabel="test error in %, mean over orders", title="Sonar")
    axes[0].legend(frameon=False)
    report.pictures["queries"] = figure
