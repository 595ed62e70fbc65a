"""Online learning in 004: sinc, divergences between successive processes, removals. [004 §§2.2, 3.2, 3.4]"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from inducing.inference.online import Learner, update
from inducing.inference.regression import condition
from inducing.model.kernels import Polynomial
from inducing.model.kernels.base import Kernel
from inducing.model.likelihoods import Gaussian
from inducing.model.posterior import kl_divergence, prior
from inducing.numerics.workers import single_threaded_blas
from inducing.pictures.plots import BLUE, INK, RED
from inducing.sources import datasets

from .csato import draw_process, panels, rbf
from .report import Report

if TYPE_CHECKING:
    pass


def c1(report: Report) -> None:
    """Online learning of sinc, whose inputs end at 2.5, with an RBF and a polynomial kernel. [004 Fig.
    2.1]
    """
    n, noise, scales = 60, 0.2, (4.0, 16.0, 64.0, 200.0)
    rng = report.rng()
    x = rng.permutation(np.linspace(-4.0, 2.5, n))
    X, y = x[:, None], _sinc(x) + np.sqrt(noise) * rng.standard_normal(n)
    report.settings = (
        f"{n} equidistant inputs on [-4, 2.5] in random order, sin(x)/x with noise of variance {noise}, "
        "known to the model. RBF with σ_k² = 1; POL-6 with several l_k. Tolerance 1e-9, no limit to the "
        "basis."
    )
    kernels: dict[str, Kernel] = {"RBF": rbf(1, 1.0)} | {
        f"POL-6, l_k = {s:g}": Polynomial(6, scale=s) for s in scales
    }
    ends, grid = np.array([[2.5], [4.0]]), np.linspace(-4.0, 4.0, 81)[:, None]
    posts, std, share, evidence, rows, apart = {}, {}, {}, {}, [], 0.0
    for name, kernel in kernels.items():
        posts[name] = post = update(prior(kernel), Gaussian(noise), X, y, None, 1e-9)
        exact = condition(kernel, None, "exact", noise, X, y)
        for one, other in zip(post.predict(grid), exact.predict(grid), strict=True):
            apart = max(apart, float(np.max(np.abs(one - other))))
        mean, variance = post.predict(ends)
        std[name], share[name] = np.sqrt(variance), variance[1] / kernel.diag(ends)[1]
        error = abs(mean[1] - _sinc(4.0)) / std[name][1]
        cells = f"{std[name][0]:.3f}", f"{std[name][1]:.3f}", f"{100 * share[name]:.1f} %", f"{error:.1f}"
        evidence[name] = exact.log_evidence
        rows.append((name, len(post), *cells, f"{exact.log_evidence:.1f}"))

    likeliest = max((n for n in kernels if n != "RBF"), key=lambda name: evidence[name])
    drawn = "RBF", "POL-6, l_k = 200", likeliest
    local, wide, own = std["RBF"], std[drawn[1]], std[likeliest]
    found = f"std {local[0]:.2f} at 2.5, {local[1]:.2f} at 4, where the prior's is 1"
    report.claim(
        "The RBF's uncertainty grows where there are no inputs", "Fig. 2.1a", found, local[1] > 2.5 * local[0]
    )
    found = (
        f"std {own[0]:.2f} at 2.5, {own[1]:.2f} at 4 for the width of highest evidence ({likeliest}); "
        f"{wide[0]:.2f} and {wide[1]:.2f} for l_k = 200"
    )
    report.claim(
        "The polynomial's increases less than the RBF's",
        "does not increase significantly, Fig. 2.1b",
        found,
        own[1] / own[0] < local[1] / local[0],
    )
    found = (
        f"it opens {wide[1] / wide[0]:.1f} times from 2.5 to 4 with l_k = 200, {own[1] / own[0]:.1f} "
        f"times with "
        f"{likeliest}, the RBF {local[1] / local[0]:.1f} times; l_k = 200 costs "
        f"{evidence[likeliest] - evidence[drawn[1]]:.1f} nats of evidence"
    )
    reason = "the figure has a tame prior: l_k, which is not printed, was large"
    report.why("The polynomial's increases", reason, found, bool(wide[1] / wide[0] < local[1] / local[0]))
    most = max(value for name, value in share.items() if name != "RBF")
    found = (
        f"at most {100 * most:.0f} % of the prior variance is left at 4, {100 * share['RBF']:.0f} % under "
        "the RBF"
    )
    report.claim(
        "Under the polynomial every example speaks everywhere", "§2.2.1", found, most < 0.25 < share["RBF"]
    )
    found = f"largest difference from the batch {apart:.0e}"
    report.claim("Online learning of Gaussian regression is exact", "§2.5", found, apart < 1e-4)
    head = (
        "kernel",
        "basis vectors",
        "std at 2.5",
        "std at 4",
        "prior variance left at 4",
        "error at 4 / std",
        "log evidence",
    )
    report.table("Where the data end, and beyond", head, rows)
    report.notes += [
        "l_k is not printed. How far a polynomial's error bars open depends on it: that they do not holds "
        "for a tame prior, l_k = 200, not for the scales that the evidence prefers. That the data inform "
        "the whole line holds for all.",
        "The rows are read in random order. Read from left to right, they make a basis at the left end, "
        "from which a polynomial cannot be told at the right end in double precision.",
    ]
    report.values = {"std at 2.5 and 4": std, "share of the prior variance at 4": share}
    figure, axes = panels(3, 13.0)
    grid = np.linspace(-4.0, 4.0, 400)
    for ax, name in zip(axes, drawn, strict=True):
        draw_process(ax, posts[name], grid, _sinc(grid), X, y, name, 8.0)
        ax.axvspan(2.5, 4.0, color=INK, alpha=0.05, linewidth=0)
        ax.set_ylim(-1.6, 2.4)
    axes[0].legend(frameon=False, fontsize=9, loc="upper left", ncols=2)
    report.pictures["sinc"] = figure


def c2(report: Report) -> None:
    """How far each row moves the process, measured both ways. [004 Fig. 3.2, eqs 3.15-3.16]"""
    runs, n, noise = (6 if report.quick else 50), 150, 0.02
    kernel, likelihood = rbf(10, 2.0), Gaussian(noise)
    report.settings = (
        f"Friedman 1 with noise of variance 1, {n} rows, {runs} runs; RBF with σ_k² = 2 on the inputs as "
        f"they are, σ₀² = {noise}, no limit to the basis. Targets as they are, and standardised by their own "
        "mean and deviation."
    )
    names = "targets as they are", "standardised targets"
    kl = np.zeros((2, 2, runs, n))  # targets; KL(t+1 ∥ t) and KL(t ∥ t+1)
    variance, apart = np.zeros((runs, n)), 0.0
    with single_threaded_blas():
        for run in range(runs):
            X, y = datasets.friedman1(n, rng=report.rng(run))
            for i, t in enumerate((y, (y - y.mean()) / y.std())):
                seen = Learner([prior(kernel)], likelihood, 10, None, 0.0, "mean", True).read(
                    X, t[:, None, None]
                )
                variance[run] = s2 = seen.variance[:, 0]  # (n,), of f at each row before it is read
                q, r = likelihood.derivatives(t, seen.mean[:, 0, 0], s2)
                left = 1.0 + r * s2
                kl[i, :, run] = (
                    0.5 * ((q * q + r) * s2 - np.log(left)),
                    0.5 * ((q * q - r) * s2 / left + np.log(left)),
                )
                if run == 0:
                    for t0 in (1, 10, n // 2, n - 1):
                        old = update(prior(kernel), likelihood, X[:t0], t[:t0], None, 0.0)
                        new = update(old, likelihood, X[t0 : t0 + 1], t[t0 : t0 + 1], None, 0.0)
                        direct = np.array([kl_divergence(new, old), kl_divergence(old, new)])
                        apart = max(apart, float(np.max(np.abs(direct / kl[i, :, run, t0] - 1.0))))
    means = kl.mean(axis=2)  # (2, 2, n)
    ratio = means[:, 1] / means[:, 0]
    for i, name in enumerate(names):
        forward, backward = means[i, 0], means[i, 1]
        early, late = backward[:10].sum() / forward[:10].sum(), backward[-20:].sum() / forward[-20:].sum()
        found = f"KL(t ∥ t+1) / KL(t+1 ∥ t) = {early:.1f} over the first 10 rows, {late:.2f} over the last 20"
        report.claim(
            f"The two divergences meet ({name})",
            "Fig. 3.2",
            found,
            late < 1.25 and early - 1 > 10 * (late - 1),
        )
    late = variance[:, -20:].mean()
    found = f"mean {variance[:, 0].mean():.2f} at the first row, {late:.4f} over the last 20"
    report.claim("The predictive variance tends to zero", "§3.2", found, late < noise)
    found = f"largest relative difference {apart:.0e} at four rows"
    report.claim("The scalars of eq. 3.16 are the divergence of eq. 3.15", "eq. 3.16", found, apart < 1e-7)
    head = (
        "row",
        "σ²",
        *(f"{what}, {name}" for name in names for what in ("KL(t+1 ∥ t)", "KL(t ∥ t+1)", "ratio")),
    )
    rows = [
        (
            t + 1,
            f"{variance[:, t].mean():.4f}",
            *(f"{v:.3g}" for i in (0, 1) for v in (*means[i, :, t], ratio[i, t])),
        )
        for t in (0, 4, 9, 19, 49, 99, n - 1)
    ]
    report.table("Mean divergences", head, rows)
    report.notes.append(
        "The ratio is about 1 + σ²/σ₀²: how unsure the process still is, beside the noise. The divergences "
        "themselves do not vanish, since the model expects less noise than there is."
    )
    report.values = {"forward": means[:, 0], "backward": means[:, 1], "variance": variance.mean(0)}
    figure, axes = panels(2)
    for i, (ax, name) in enumerate(zip(axes, names, strict=True)):
        ax.plot(np.arange(1, n + 1), means[i, 1], color=RED, linewidth=1.4, label="KL(t ∥ t+1)")
        ax.plot(np.arange(1, n + 1), means[i, 0], color=BLUE, linewidth=1.4, label="KL(t+1 ∥ t)")
        ax.set(yscale="log", xlabel="rows read", ylabel=f"mean over {runs} runs", title=name)
        ax.legend(frameon=False)
    report.pictures["divergences"] = figure


def c3(report: Report) -> None:
    """How often the score of the mean alone would remove another function than the whole KL. [004 Fig.
    3.4]
    """
    runs = 60 if report.quick else 500
    sizes = np.array((20, 60, 140) if report.quick else (20, 40, 60, 80, 100, 120, 140, 160, 200, 250))
    kernel, likelihood = rbf(10, 2.0), Gaussian(0.02)
    all_rows, most_rows, fifty = rules = "all rows", "90 % of the rows", "50 functions"
    capacity: dict[str, Callable[[int], int | None]] = {
        all_rows: lambda n: None,
        most_rows: lambda n: round(0.9 * n),
        fifty: lambda n: 50,
    }
    report.settings = (
        f"Friedman 1, {runs} independent training sets of each size; kernel and noise of C2 (σ_k² = 2, σ₀² = "
        "0.02), targets as they are. After the last row: has the basis function of least α²/(q + c) (eq. "
        "3.26) also the least KL (eq. 3.24)?"
    )
    omitted = {rule: np.zeros(len(sizes)) for rule in rules}
    excess = {rule: np.zeros(len(sizes)) for rule in rules}  # KL of the function chosen, over the least
    with single_threaded_blas():
        for j, n in enumerate(sizes):
            for seed in report.seeds(runs):
                X, y = datasets.friedman1(n, rng=np.random.default_rng((n, seed)))
                for rule in rules:
                    post = update(prior(kernel), likelihood, X, y, capacity[rule](n), 0.0)
                    chosen, kl = np.argmin(post.removal_scores("mean")), post.removal_scores("kl")
                    omitted[rule][j] += (chosen != np.argmin(kl)) / runs
                    excess[rule][j] += kl[chosen] / np.min(kl) / runs
    percent = {rule: 100.0 * values for rule, values in omitted.items()}
    bar = 100.0 / np.sqrt(runs)  # two standard errors, at most
    whole, most, few, late = percent[all_rows], percent[most_rows], percent[fifty], sizes >= 120
    found = f"{whole[0]:.0f} % at {sizes[0]} rows, {whole[-1]:.0f} % at {sizes[-1]}"
    report.claim(
        "Without removals the rate rises with the basis", "Fig. 3.4a", found, whole[-1] > whole[0] + bar
    )
    found = (
        f"{most[0]:.0f} % at {sizes[0]} rows; {most[late].min():.0f} to {most[late].max():.0f} % from 120 on"
    )
    holds = most[late].min() > most[0] and np.ptp(most[late]) < bar
    report.claim("At 90 % of the rows it rises and settles from 120 rows on", "Fig. 3.4b", found, holds)
    found = f"{few.max():.0f} % at most, {few[-1]:.1f} % at {sizes[-1]} rows"
    report.claim(
        "With 50 functions it falls, to practically zero",
        "Fig. 3.4b",
        found,
        few[-1] < min(5.0, 0.5 * few.max()),
    )
    head = "basis", *(f"n = {n}" for n in sizes)
    report.table("Omissions in %", head, [(rule, *(f"{v:.1f}" for v in percent[rule])) for rule in rules])
    rows = [(rule, *(f"{v:.3f}" for v in excess[rule])) for rule in rules]
    report.table("KL of the function that the simple score chooses, over the least", head, rows)
    report.notes.append(
        "How often the simple score errs depends on the units of the targets: it leaves out what the "
        "covariance loses, which matters more the smaller the targets are beside the amplitude of the kernel."
    )
    report.values = {"sizes": sizes, "omissions": omitted, "excess": excess}
    figure, axes = panels(2)
    wide = 0.36 * np.min(np.diff(sizes))
    axes[0].bar(sizes, whole, wide, color=BLUE)
    axes[0].set(title=f"{all_rows} in the basis", ylabel="omissions, %", xlabel="training rows")
    axes[1].bar(sizes - wide / 2, most, wide, color=BLUE, label=most_rows)
    axes[1].bar(sizes + wide / 2, few, wide, color="white", edgecolor=RED, label=fifty)
    axes[1].set(title="a full basis", xlabel="training rows")
    axes[1].legend(frameon=False)
    report.pictures["omissions"] = figure


def _sinc(x: Any) -> Any:
    """sin(x)/x. [004 eq. 5.4]"""
    return np.sinc(np.asarray(x) / np.pi)
