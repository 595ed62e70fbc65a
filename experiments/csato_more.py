"""Smaller remarks of 004: crabs, figure 5.8, densities by exp(-f), ADATAP, sources apart. [004 §§4-6]"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from inducing.inference.propagation import expectation_propagation
from inducing.inference.regression import condition, log_evidence
from inducing.learning.fitting import fit_expectation_propagation
from inducing.model.bases import Points
from inducing.model.kernels import RBF, Matern32, Polynomial, Trigonometric
from inducing.model.likelihoods import Probit
from inducing.pictures.plots import BLUE, INK, RED

from .csato import GREEN, panels
from .csato_classification import LIKELIHOOD, crabs
from .report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def c18(report: Report) -> None:
    """Five remarks, each with its own reference."""
    report.settings = (
        "Crabs: random stratified splits 80/120, EP's evidence sets the scale of each kernel. "
        "Density: 500 rows of "
        "a mixture of two normals. ADATAP and EP: 30 rows, probit, an exact process. Sources: two, 300 times."
    )
    figure, axes = panels(3, 14.0)
    _crabs(report, axes[0])
    _kernel(report, axes[1])
    _density(report, axes[2])
    _adatap(report)
    _sources(report)
    report.pictures["remarks"] = figure


def _crabs(report: Report, ax: Axes) -> None:
    """Polynomial kernels, and what happens from sweep to sweep with 50 vectors. [004 §5.2, Fig. 5.4b]"""
    splits, names = (2 if report.quick else 10), ("RBF", "POL-2", "POL-3", "POL-4")
    errors, changes = np.zeros((4, splits)), np.zeros((splits, 6))
    test, train, used = np.zeros((splits, 6)), np.zeros((splits, 6)), list[int]()
    for i, split in enumerate(report.seeds(splits)):
        data = crabs(split)
        for j, name in enumerate(names):
            kernel = data.kernel
            if j:
                kernel = fit_expectation_propagation(
                    Polynomial(int(name[-1]), 1.0),
                    Points(data.X),
                    LIKELIHOOD,
                    data.X,
                    data.y,
                    optimize="hyperparameters",
                    max_iterations=40,
                    progress=False,
                ).kernel
            post = expectation_propagation(kernel, LIKELIHOOD, data.X, data.y, 50, sweeps=3)
            errors[j, i] = data.errors(post)
        # at the width of the evidence fewer than 50 vectors are new: the narrower kernel fills the basis
        used.append(len(expectation_propagation(data.kernel, LIKELIHOOD, data.X, data.y, 50, sweeps=1)))
        narrow = data.kernel.with_parameters({"lengthscale": 0.4 * data.kernel.lengthscale})
        posts = replace(data, kernel=narrow).sweeps(split, 50, 6, 6)
        last: set[bytes] = set()
        for k, post in enumerate(posts):
            basis = {row.tobytes() for row in post.basis.Z}
            changes[i, k], last = len(basis - last), basis
            test[i, k], train[i, k] = data.errors(post), np.sum(np.sign(post.mean(data.X)) != data.y)
    best = errors[1:].mean(axis=1).min()
    found = ", ".join(f"{name} {100 * e.mean() / 120:.2f} %" for name, e in zip(names, errors, strict=True))
    gap = errors[1:].mean(axis=0) - errors[0]
    se = gap.std(ddof=1) / np.sqrt(splits)
    report.claim(
        "Polynomial kernels give slightly larger test errors on Crabs",
        "slightly larger, §5.2",
        f"{found}; difference {gap.mean():+.2f} ± {se:.2f} errors",
        True if gap.mean() > 2 * se else False if gap.mean() < -2 * se else None,
    )
    cells = [
        ("new in the basis", *(f"{v:.1f}" for v in changes.mean(0))),
        ("test errors", *(f"{v:.2f}" for v in test.mean(0))),
        ("training errors", *(f"{v:.2f}" for v in train.mean(0))),
    ]
    report.table("Crabs with 50 vectors, sweep by sweep", ("", *(str(k + 1) for k in range(6))), cells)
    late = np.ptp(test[:, 1:], axis=1)
    found = (
        f"{changes[:, 2:].mean():.1f} replacements a sweep from the third on; test errors move by "
        f"{late.mean():.2f}, {late.max():.0f} at most"
    )
    report.claim(
        "With 50 vectors the basis still changes after the second sweep, the errors do not",
        "Fig. 5.4b",
        found,
        bool(changes[:, 2:].mean() > 0 and np.median(late) <= 1),
    )
    report.notes.append(
        f"At the width that the evidence prefers {min(used)} to {max(used)} vectors are new beyond the "
        "tolerance, so "
        "that a basis of 50 never changes; the sweeps are those of a kernel of 0.4 of that lengthscale."
    )
    ax.plot(range(1, 7), changes.mean(0), "o-", color=BLUE, label="new in the basis")
    ax.plot(range(1, 7), test.mean(0), "s-", color=RED, label="test errors")
    ax.plot(range(1, 7), train.mean(0), "^-", color=INK, label="training errors")
    ax.set(xlabel="sweep", title="Crabs, 50 vectors (Fig. 5.4b)")
    ax.legend(frameon=False)
    report.values["crabs"] = {
        "errors": dict(zip(names, errors.mean(1), strict=True)),
        "best polynomial": best,
    }


def _kernel(report: Report, ax: Axes) -> None:
    """The kernel of densities, k₀ = 5, about 0 and 0.4. [004 eq. 5.29, Fig. 5.8]"""
    x = np.linspace(0, 1, 401)
    K = Trigonometric(5)(np.array([[0.0], [0.4]]), x[:, None])
    n = np.arange(1, 6)
    direct = 1 + 2 * np.cos(2 * np.pi * n[:, None, None] * (np.array([[0.0], [0.4]]) - x)).sum(axis=0)
    worst = float(np.max(np.abs(K - direct)))
    found = f"sum and kernel differ by {worst:.0e}; K(0) = {K[0, 0]:.0f} = 2k₀ + 1"
    report.claim(
        "The kernel of Fig. 5.8 is the sum of 5.29",
        "Fig. 5.8",
        found,
        worst < 1e-10 and abs(K[0, 0] - 11) < 1e-10,
    )
    ax.plot(x, K[0], color=INK, label="x = 0")
    ax.plot(x, K[1], color=INK, linestyle="--", label="x = 0.4")
    ax.set(xlabel="x'", title="K₀(x, x'), k₀ = 5 (Fig. 5.8)")
    ax.legend(frameon=False)


def _density(report: Report, ax: Axes) -> None:
    """p(x|f) ∝ p₀(x) exp(-f(x)) with p₀ = N(0, 2²) instead of an interval: its mode."""
    x, runs, losses = np.linspace(-8, 8, 321), (3 if report.quick else 10), []
    step, base = x[1] - x[0], norm.pdf(x, 0, 2)
    truth = 0.6 * norm.pdf(x, -1, 0.6) + 0.4 * norm.pdf(x, 2, 0.8)
    K = RBF(1.0, 4.0)(x[:, None], x[:, None])
    for run in range(runs):
        rng = report.rng(50 + run)
        rows = np.where(rng.random(500) < 0.6, rng.normal(-1, 0.6, 500), rng.normal(2, 0.8, 500))
        counts = np.histogram(rows, np.append(x - step / 2, x[-1] + step / 2))[0]
        f = np.zeros(len(x))
        for _ in range(100):  # of log p(f|rows) = -Σ f(x_i) - N log ∫ p₀ e^-f - ½ fᵀK⁻¹f
            p = base * np.exp(-(f - f.min()))
            p /= p.sum()
            W = 500 * (np.diag(p) - np.outer(p, p))
            a = np.linalg.solve(np.eye(len(x)) + W @ K, W @ f + 500 * p - counts)
            new = K @ a
            if np.max(np.abs(new - f)) < 1e-9:
                break
            f = new
        density = p / step
        width = 1.06 * rows.std() * 500**-0.2
        kernel = norm.pdf(x[:, None], rows, width).mean(axis=1)
        losses.append([np.sqrt(step * np.sum((d - truth) ** 2)) for d in (density, kernel, base)])
    values = np.array(losses)
    found = (
        f"L₂ error {values[:, 0].mean():.3f}; a kernel estimate (rule of thumb) "
        f"{values[:, 1].mean():.3f}, p₀ itself {values[:, 2].mean():.3f}"
    )
    report.claim(
        "exp(-f) with a prior density of the inputs instead of an interval",
        "future work, §5.3",
        found,
        bool(np.all(values[:, 0] < values[:, 2]) and values[:, 0].mean() < values[:, 1].mean()),
    )
    ax.plot(x, truth, color=INK, label="truth")
    ax.plot(x, density, color=BLUE, label="p₀ exp(-f)")
    ax.plot(x, base, color=GREEN, linestyle=":", label="p₀")
    ax.set(xlabel="x", title="density with a prior of the inputs")
    ax.legend(frameon=False)


def _adatap(report: Report) -> None:
    """ADATAP's equations solved by themselves, densely, against EP. [004 §4.2]"""
    rng = report.rng(90)
    X = rng.uniform(-2, 2, (30, 1))
    y = np.where(rng.random(30) < norm.cdf(2 * np.sin(2 * X[:, 0])), 1.0, -1.0)
    K = RBF(0.7, 2.0)(X, X)
    h, V = np.zeros(30), np.full(30, 0.5)  # cavity means and variances
    for _ in range(3000):
        z = y * h / np.sqrt(1 + V)
        ratio = np.exp(norm.logpdf(z) - norm.logcdf(z)) / np.sqrt(1 + V)
        m = h + y * V * ratio  # the TAP magnetisation, and its response
        chi = V - V**2 * (ratio**2 + z / np.sqrt(1 + V) * ratio)
        Lam = 1 / chi - 1 / V
        C = K - K @ np.linalg.solve(K + np.diag(1 / Lam), K)
        target = 1 / (1 / np.diag(C) - Lam)  # V such that the linear response is self-consistent
        field = target * (C @ (m / chi - h / V) / np.diag(C) - (m / chi - h / V))
        h, V = 0.7 * h + 0.3 * field, 0.7 * V + 0.3 * target
    post = condition(RBF(0.7, 2.0), Points(X), "fitc", Probit(1.0), X, y)
    mean, variance = post.predict(X)
    apart = max(np.max(np.abs(mean - m)), np.max(np.abs(variance - chi)))
    report.claim(
        "ADATAP and EP have the same fixed point",
        "§4.2",
        f"means and variances differ by {apart:.0e}",
        apart < 1e-4,
    )


def _sources(report: Report) -> None:
    """Two sources, processes of different kernels, mixed by a matrix: unmixed by evidence. [§6.1]"""
    runs, errors, plain = (4 if report.quick else 20), [], []
    t = np.linspace(0, 10, 300)[:, None]
    kernels, basis = (RBF(0.8), Matern32(0.3)), Points(np.linspace(0, 10, 60)[:, None])
    factors = [np.linalg.cholesky(k(t, t) + 1e-8 * np.eye(300)) for k in kernels]
    for run in range(runs):
        rng = report.rng(60 + run)
        S = np.stack([L @ rng.standard_normal(300) for L in factors])
        A = rng.standard_normal((2, 2))
        Y = A @ S + 0.02 * rng.standard_normal((2, 300))
        U, scale, _ = np.linalg.svd(Y @ Y.T / 300)
        white = (U / np.sqrt(scale)).T @ (Y - Y.mean(axis=1, keepdims=True))

        def cost(angle: float, white: np.ndarray = white) -> float:
            rotated = _rotation(angle) @ white
            return -sum(
                log_evidence(k, basis, "vfe", 0.02, t, row) for k, row in zip(kernels, rotated, strict=True)
            )

        grid = np.linspace(0, np.pi, 25)
        start = grid[int(np.argmin([cost(a) for a in grid]))]
        best = minimize_scalar(cost, bounds=(start - 0.15, start + 0.15), method="bounded").x
        found = _rotation(best) @ white
        errors.append(min(abs(np.corrcoef(found[i], S[i])[0, 1]) for i in (0, 1)))
        plain.append(min(max(abs(np.corrcoef(white[i], S[j])[0, 1]) for i in (0, 1)) for j in (0, 1)))
    found_text = (
        f"the worse source correlates with its estimate by {np.median(errors):.3f} (median), "
        f"{np.median(plain):.3f} after whitening alone"
    )
    report.claim(
        "Processes as sources of independent component analysis",
        "an outlook, §6.1",
        found_text,
        np.median(errors) > 0.95,
    )


def _rotation(angle: float) -> np.ndarray:
    return np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
