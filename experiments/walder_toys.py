"""The toys of [000]: four Gaussians of any width against four of one width; multiscale bases in other kernel
machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from inducing import metrics
from inducing.beside.multiscale_machines import Risk, learn, squared_hinge
from inducing.estimators.multiscale import MultiscaleKernelRidge, MultiscaleSVM
from inducing.inference import selection
from inducing.inference.regression import log_evidence
from inducing.learning import recipes
from inducing.learning.fitting import Fit, fit
from inducing.learning.recipes import Task
from inducing.model.bases import Basis, Multiscale, Points, as_multiscale
from inducing.model.kernels import RBF
from inducing.numerics.linalg import cholesky, jittered, solve_lower
from inducing.pictures import animation, plots
from inducing.sources import datasets

from .report import Report, together, within_chance
from .snelson_toys import mismatch

RECIPES = {"spgp-full": recipes.spgp_full, "vsgp-full": recipes.vsgp_full}


# W1. [000 Fig 1]


def w1(report: Report) -> None:
    """spgp-full, vsgp-full and the exact GP on 200 points, with four basis functions."""
    starts = 3 if report.quick else 10
    sizes = (4,) if report.quick else (2, 3, 4, 5, 6, 8)
    data = datasets.load("snelson1d")
    X = (data.X_train - data.X_train.mean()) / data.X_train.std()
    y = (data.y_train - data.y_train.mean()) / data.y_train.std()
    grid = np.linspace(X.min(), X.max(), 300)[:, None]
    iterations = 400 if report.quick else 1000
    report.settings = (
        f"{len(y)} rows of the one-dimensional data of 001, standardised (000 does not name its toy); "
        f"{starts} k-means starts, at most {iterations} iterations, the best evidence kept. vsgp-full spends "
        "half of them as spgp-full. Mismatch: mean over x of the KL divergence, in nats, from the exact GP's "
        "prediction of y to the approximation's."
    )
    start = Task(RBF(1.0, 1.0), Points(X[:1]), "fitc", 0.1, X, y, max_iterations=iterations, progress=False)
    exact = fit(start.kernel, None, "exact", start.noise, X, y)
    runs = {
        name: {m: [train(_started(start, m, seed)) for seed in report.seeds(starts)] for m in sizes}
        for name, train in RECIPES.items()
    }
    curves = {
        name: {m: max(ends, key=lambda end: end.value) for m, ends in by_size.items()}
        for name, by_size in runs.items()
    }

    def off(end: Fit) -> float:
        return mismatch(end.posterior, end.noise, exact.posterior, exact.noise, grid)

    spgp, vsgp = curves["spgp-full"][4], curves["vsgp-full"][4]
    scale, own = _lengthscale(exact), _lengthscale(vsgp)
    widths = np.sort(np.ravel(vsgp.basis.parameters["widths"]))
    report.claim(
        "Four basis functions are not enough for spgp-full",
        "not similar to the full GP",
        f"mismatch {off(spgp):.3f}, {off(spgp) / off(vsgp):.1f} times vsgp-full's; log evidence "
        f"{spgp.value:.1f} (exact {exact.value:.1f})",
        off(spgp) > 3 * off(vsgp) and spgp.value < exact.value - 10,
    )
    report.claim(
        "vsgp-full's posterior is closer to the exact GP's",
        "closer",
        f"mismatch {off(vsgp):.3f}, log evidence {vsgp.value:.1f}",
        off(vsgp) < off(spgp),
    )
    report.claim(
        "All widths are larger than the exact GP's lengthscale",
        "larger σᵢ",
        f"{np.sum(widths > scale)} of {len(widths)}: {', '.join(f'{s:.3f}' for s in widths)} against "
        f"{scale:.3f}",
        bool(np.all(np.asarray(widths) > scale)),
    )
    wider = vsgp.basis.with_parameters({"widths": np.maximum(vsgp.basis.parameters["widths"], 1.001 * scale)})
    cost = vsgp.value - float(log_evidence(vsgp.kernel, wider, "fitc", vsgp.noise, X, y))
    report.why(
        "All widths are larger",
        "the evidence hardly cares about the one that is not",
        f"widening it to the exact GP's lengthscale, all else as it was, costs {cost:.2f} nats",
        cost < 1.0,
    )
    report.claim(
        "The lengthscale is smaller than the exact GP's",
        "smaller σ",
        f"{own:.3f} against {scale:.3f}",
        own < scale,
    )
    covariances = {"exact GP": exact.kernel(grid, grid)}
    covariances |= {name: effective_covariance(curves[name][4], grid) for name in RECIPES}
    correlations = {name: K / K[0, 0] for name, K in covariances.items()}
    for what, by_name in (
        ("covariance (eq. 20)", covariances),
        ("covariance over its variance", correlations),
    ):
        errors = {name: _relative(by_name[name], by_name["exact GP"]) for name in RECIPES}
        report.claim(
            f"The effective {what} of vsgp-full is nearer to the exact GP's, though neither is near",
            "better matches (not shown)",
            "; ".join(f"{name} off by {error:.0%}" for name, error in errors.items()),
            errors["vsgp-full"] < errors["spgp-full"],
        )
    rows = [
        [m, *(f"{off(curves[name][m]):.3f} ({curves[name][m].value:.1f})" for name in RECIPES)] for m in sizes
    ]
    report.table(
        f"Mismatch, and log evidence in brackets; the exact GP has {exact.value:.1f}", ["m", *RECIPES], rows
    )
    report.values = {
        name: {m: [off(end), end.value] for m, end in curve.items()} for name, curve in curves.items()
    }
    report.values |= {
        "widths": widths,
        "lengthscale": {"exact": scale, "vsgp-full": own, "spgp-full": _lengthscale(spgp)},
    }
    report.pictures["predictions"] = _draw_bases(
        X, y, {"spgp-full": spgp, "vsgp-full": vsgp, "full GP": exact}
    )
    report.pictures["correlation"] = _draw_correlations(grid[:, 0], correlations)
    if not report.quick:
        best = runs["vsgp-full"][4].index(vsgp)
        recording = animation.record(_started(start, 4, report.seeds(starts)[best]), recipes.vsgp_full)
        report.pictures["vsgp-full.gif"] = animation.animate(recording, frames=50).save
    report.notes.append(
        "In the film the widths are freed half-way: until then all basis functions lie on the line."
    )


def _started(task: Task, m: int, seed: int) -> Task:
    return replace(task, basis=Points(selection.kmeans(task.X, m, seed)), rng=seed)


def _lengthscale(end: Fit) -> float:
    return float(np.ravel(end.kernel.parameters["lengthscale"])[0])


def effective_covariance(end: Fit, grid: np.ndarray) -> np.ndarray:
    """k on the diagonal, Q elsewhere: what FITC's prior says of f(x), f(z). [000 eq. 20]"""
    L = cholesky(jittered(end.basis.gram(end.kernel), 1e-8))
    Phi = solve_lower(L, end.basis.cross(end.kernel, grid).T)  # (m, n)
    Q = Phi.T @ Phi
    np.fill_diagonal(Q, end.kernel.diag(grid))
    return Q


def _relative(A: np.ndarray, B: np.ndarray) -> float:
    return float(np.linalg.norm(A - B) / np.linalg.norm(B))


def _draw_bases(X: np.ndarray, y: np.ndarray, ends: dict[str, Fit]) -> Any:
    """Predictions above; centres and widths below as crossed circles, lengthscales as lines. [000 Fig 1]"""
    canvas = plots.canvas(12.0, 5.4)
    axes = canvas.subplots(2, 3, sharex=True, sharey="row", height_ratios=(2.0, 1.0))
    grid = np.linspace(X.min() - 0.3, X.max() + 0.3, 300)
    most = max(float(np.max(end.basis.parameters.get("widths", _lengthscale(end)))) for end in ends.values())
    for (top, bottom), (name, end) in zip(axes.T, ends.items(), strict=True):
        mean, variance = end.posterior.predict(grid[:, None])
        std = np.sqrt(variance + end.noise)
        plots.plain(top).fill_between(
            grid, mean - 2 * std, mean + 2 * std, color=plots.BLUE, alpha=0.16, linewidth=0
        )
        top.plot(X[:, 0], y, ".", color=plots.INK, markersize=3.5, alpha=0.6, markeredgewidth=0)
        top.plot(grid, mean, color=plots.BLUE, linewidth=1.8)
        top.set_title(f"{name}: log evidence {end.value:.1f}")
        plots.plain(bottom).axhline(_lengthscale(end), color=plots.INK, linewidth=1)
        if name != "full GP":
            v, s = plots.places(end.basis)
            s = np.full_like(v, _lengthscale(end)) if s is None else s
            bottom.plot(
                v[:, 0],
                s[:, 0],
                "o",
                color="none",
                markeredgecolor=plots.RED,
                markersize=9,
                markeredgewidth=1.4,
            )
            bottom.plot(v[:, 0], s[:, 0], "x", color=plots.RED, markersize=6)
        bottom.set_ylim(0.0, 1.15 * most)
        bottom.set_xlabel("x")
    axes[0, 0].set_ylabel("y")
    axes[1, 0].set_ylabel("widths; line: lengthscale")
    return canvas


def _draw_correlations(x: np.ndarray, correlations: dict[str, np.ndarray]) -> Any:
    canvas = plots.canvas(11.0, 3.8)
    axes = canvas.subplots(1, 3, sharey=True)
    for ax, (name, K) in zip(axes, correlations.items(), strict=True):
        image = ax.pcolormesh(x, x, K, cmap="RdBu_r", vmin=-1.0, vmax=1.0, rasterized=True)
        ax.set_title(name)
        ax.set_aspect("equal")
    canvas.colorbar(image, ax=list(axes), shrink=0.8, label="prior correlation of f(x), f(z)")
    return canvas


# W5. [000 §1, §5, §6]

Errors = dict[str, dict[int, list[float]]]  # by basis and number of functions, one for each seed


def w5(report: Report) -> None:
    """Kernel ridge regression and an SVM on few basis functions: points against Gaussians of any width."""
    seeds = report.seeds(1 if report.quick else 3)
    rows = 400 if report.quick else 2000
    toy = (3, 6) if report.quick else (2, 3, 4, 6, 8, 12)
    sizes = (5, 10) if report.quick else (5, 10, 20, 40)
    iterations = 60 if report.quick else 200
    report.settings = (
        f"Points and multiscale functions start from the same k-means centres and get the same {iterations} "
        "iterations of L-BFGS on the regularised risk; the multiscale ones free their widths half-way. "
        "Lengthscales and penalty are held where the exact GP's evidence puts them (two moons: 0.5 standard "
        f"deviations, C = 1). Toys: 200 rows in one input; two moons of 300 points. kin-40k: {rows} training "
        f"rows and 5000 test rows, for the SVM split at the median, C = 10. Means of {len(seeds)} "
        f"seed(s), of two "
        "moons of 10. A difference counts where it is two standard errors of the paired runs from 0."
    )
    curves = {
        "ridge, one input": _ridge_toy(toy, seeds, iterations),
        "SVM, two moons": _svm_toy(toy, report.seeds(3 if report.quick else 10), iterations),
        **_kin40k(sizes, seeds, rows, iterations),
    }
    for name, errors in curves.items():
        means = {
            basis: {m: float(np.mean(v)) for m, v in by_size.items()} for basis, by_size in errors.items()
        }
        lower = [means["multiscale"][m] <= means["points"][m] for m in means["points"]]
        chance = [m for m in means["points"] if within_chance(errors["multiscale"][m], errors["points"][m])]
        higher = [m for m, less in zip(means["points"], lower, strict=True) if not less and m not in chance]
        saved = _functions_needed(means["points"], means["multiscale"])
        report.claim(
            f"{name}: lower error with as many functions",
            "outperforms",
            f"at {sum(lower)} of {len(lower)} sizes, higher beyond chance at {len(higher)}",
            together(less or (None if m not in higher else False) for m, less in zip(means["points"], lower)),
        )
        if saved:
            found = ", ".join(f"{m} for {points:.1f}" for m, points in saved.items())
            report.claim(
                f"{name}: fewer functions for the same error",
                "particularly for very sparse solutions",
                f"multiscale for points: {found}",
                together(points > m or (None if m in chance else False) for m, points in saved.items()),
            )
        settled = ", ".join(map(str, chance)) or "none"
        report.why(
            name,
            "where both curves have settled the order is chance",
            f"within two standard errors of each other with {settled} functions",
            not higher and bool(chance),
        )
        cells = [[basis, *(f"{mean:.4f}" for mean in by_size.values())] for basis, by_size in means.items()]
        report.table(f"{name}: test error", ["", *(f"m = {m}" for m in means["points"])], cells)
    report.values = dict(curves)
    report.pictures["errors"] = _draw_errors(curves)
    film, final = _svm_film(5, 30 if report.quick else 100, seeds[0])
    report.pictures["svm"] = final
    if not report.quick:
        report.pictures["svm.gif"] = film.save
    report.notes.append(
        "Errors are SMSE for ridge regression, the share of wrong classes for the SVM, on rows not trained "
        "on."
    )
    report.notes.append(
        "Where both curves have settled, as on the two moons from eight functions on, the order is chance."
    )


def _functions_needed(points: dict[int, float], multiscale: dict[int, float]) -> dict[int, float]:
    """How many points it takes to reach the error of m multiscale functions, between the sizes tried.
    [log-log lines]
    """
    sizes, errors = np.log(list(points)), np.minimum.accumulate(np.log(list(points.values())))
    inside = {m: e for m, e in multiscale.items() if errors[-1] <= np.log(e) <= errors[0]}
    return {m: float(np.exp(np.interp(-np.log(e), -errors, sizes))) for m, e in inside.items()}


def _exact_kernel(X: np.ndarray, y: np.ndarray, iterations: int = 60) -> tuple[np.ndarray, float]:
    """Lengthscales in the units of X, and noise over variance, by an exact GP's evidence."""
    d, scale = X.shape[1], X.std(axis=0)
    X, y = (X - X.mean(axis=0)) / scale, (y - y.mean()) / y.std()
    end = fit(RBF(np.full(d, np.sqrt(d)), 1.0), None, "exact", 0.1, X, y, max_iterations=iterations)
    return scale * np.asarray(end.kernel.parameters["lengthscale"]), float(
        end.noise / end.kernel.parameters["variance"]
    )


def _ridge_toy(sizes: Sequence[int], seeds: Sequence[int], iterations: int) -> Errors:
    errors: Errors = {"points": {}, "multiscale": {}}
    X_test, f_test = datasets.toy1d(2000, noise=0.0, rng=99 + seeds[0])
    for seed in seeds:
        X, y = datasets.toy1d(200, rng=seed)
        lengthscale, alpha = _exact_kernel(X, y)
        for basis, by_size in errors.items():
            for m in sizes:
                machine = MultiscaleKernelRidge(
                    m,
                    basis=basis,
                    lengthscale=lengthscale,
                    alpha=alpha,
                    max_iter=iterations,
                    random_state=seed,
                ).fit(X, y)
                by_size.setdefault(m, []).append(metrics.smse(f_test, machine.predict(X_test), y))
    return errors


def moons(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import make_moons

    return make_moons(n, noise=0.25, random_state=seed)


def _svm_toy(sizes: Sequence[int], seeds: Sequence[int], iterations: int) -> Errors:
    errors: Errors = {"points": {}, "multiscale": {}}
    X_test, y_test = moons(5000, 99 + seeds[0])
    for seed in seeds:
        X, y = moons(300, seed)
        for basis, by_size in errors.items():
            for m in sizes:
                machine = MultiscaleSVM(
                    m, basis=basis, lengthscale=0.5 * X.std(axis=0), max_iter=iterations, random_state=seed
                ).fit(X, y)
                by_size.setdefault(m, []).append(float(np.mean(machine.predict(X_test) != y_test)))
    return errors


def _kin40k(sizes: Sequence[int], seeds: Sequence[int], rows: int, iterations: int) -> dict[str, Errors]:
    ridge: Errors = {"points": {}, "multiscale": {}}
    svm: Errors = {"points": {}, "multiscale": {}}
    data = datasets.load("kin40k")
    assert data.y_test is not None
    X_test, y_test = data.X_test[:5000], data.y_test[:5000]
    for seed in seeds:
        chosen = np.random.default_rng(seed).permutation(len(data.X_train))[:rows]
        X, y = data.X_train[chosen], data.y_train[chosen]
        lengthscale, alpha = _exact_kernel(X[:1000], y[:1000])
        middle = np.median(y)
        for basis in ridge:
            for m in sizes:
                shared: dict[str, Any] = {"basis": basis, "lengthscale": lengthscale, "max_iter": iterations}
                shared["random_state"] = seed
                regression = MultiscaleKernelRidge(m, alpha=alpha, **shared).fit(X, y)
                ridge[basis].setdefault(m, []).append(metrics.smse(y_test, regression.predict(X_test), y))
                machine = MultiscaleSVM(m, C=10.0, **shared).fit(X, y > middle)
                svm[basis].setdefault(m, []).append(
                    float(np.mean(machine.predict(X_test) != (y_test > middle)))
                )
    return {"ridge, kin-40k": ridge, "SVM, kin-40k": svm}


def _draw_errors(curves: dict[str, Errors]) -> Any:
    from matplotlib.ticker import LogLocator

    canvas = plots.canvas(13.0, 3.6)
    for ax, (name, errors) in zip(canvas.subplots(1, len(curves)), curves.items(), strict=True):
        plots.plain(ax)
        for (basis, by_size), colour in zip(errors.items(), (plots.BLUE, plots.RED), strict=True):
            mean = np.array([np.mean(v) for v in by_size.values()])
            spread = np.abs([[min(v), max(v)] for v in by_size.values()] - mean[:, None]).T
            ax.errorbar(
                list(by_size),
                mean,
                yerr=spread,
                color=colour,
                marker="o",
                markersize=4,
                elinewidth=1,
                label=basis,
            )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xticks(list(by_size), [str(m) for m in by_size])
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        ax.yaxis.set_major_formatter("{x:.2g}")
        ax.minorticks_off()
        ax.set_title(name)
        ax.set_xlabel("basis functions")
    ax.legend(frameon=False)
    return canvas


def _svm_film(m: int, iterations: int, seed: int = 0) -> tuple[animation.Film, Any]:
    """The optimisation of an SVM's basis on two moons, as 000's video has it; and its last frame as a
    picture.
    """
    X, label = moons(300, seed)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    kernel, T = RBF(0.5, 1.0), np.where(label == 1, 1.0, -1.0)[:, None]
    risk = Risk(kernel, squared_hinge(1.0), X, T, np.ones(len(X)), 1e-8)
    steps: list[tuple[Basis, float]] = []

    def keep(basis: Basis, value: float) -> None:
        steps.append((basis, value))

    start = Points(selection.kmeans(X, m, seed))
    keep(start, risk.minimum(start)[0].value)
    halfway, _ = learn(risk, start, iterations // 2, keep)
    learn(risk, as_multiscale(kernel, halfway), iterations - iterations // 2, keep)
    canvas = plots.canvas(6.0, 5.4, None)
    canvas.subplots_adjust(left=0.08, right=0.98, top=0.9, bottom=0.08)
    ax = canvas.subplots()
    shown = np.unique(np.round((len(steps) - 1) * np.linspace(0.0, 1.0, 50) ** 1.5).astype(int))

    def draw(frame: int) -> None:
        i = int(shown[frame])
        basis, value = steps[i]
        _draw_machine(ax, risk, X, label, basis)
        kind = "widths free" if isinstance(basis, Multiscale) else "widths held"
        ax.set_title(f"SVM, {m} basis functions, {kind}: iteration {i}, risk {value:.1f}", fontsize=10)

    draw(len(shown) - 1)
    return animation.Film(canvas, draw, len(shown)), canvas


def _draw_machine(ax: Any, risk: Risk, X: np.ndarray, label: np.ndarray, basis: Basis) -> None:
    """Data, the decision line with its margins, centres and widths."""
    best, c, _ = risk.minimum(basis)
    a, b = np.meshgrid(np.linspace(-2.4, 2.4, 80), np.linspace(-2.4, 2.4, 80))
    f = basis.cross(risk.kernel, np.column_stack([a.ravel(), b.ravel()])) @ c[:, 0] + best.b[0]
    ax.clear()
    ax.contourf(
        a,
        b,
        f.reshape(a.shape),
        levels=[-1e9, -1.0, 0.0, 1.0, 1e9],
        alpha=0.22,
        colors=["#d9a441", "#f2dfb6", "#bcd7ef", plots.BLUE],
    )
    ax.contour(
        a, b, f.reshape(a.shape), levels=[-1.0, 0.0, 1.0], colors=[plots.INK], linewidths=[0.8, 1.8, 0.8]
    )
    for value, colour in ((0, "#b8801a"), (1, plots.BLUE)):
        ax.plot(*X[label == value].T, ".", color=colour, markersize=5, markeredgewidth=0)
    plots.draw_basis_2d(ax, basis)
    ax.set_xlim(-2.4, 2.4)
    ax.set_ylim(-2.4, 2.4)
