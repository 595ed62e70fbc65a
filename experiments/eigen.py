"""002: a kernel's eigenfunctions under an input density; what is really going on in Gaussian process
regression.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from inducing.beside.eigenfunctions import Eigenfunctions, eigenfunctions, shrinkage
from inducing.beside.local import neighbours
from inducing.inference.regression import condition
from inducing.model.kernels import RBF, Matern12, Matern32, Matern52
from inducing.numerics.linalg import cholesky, plus_diagonal, solve_lower
from inducing.pictures.plots import BLUE, COLOURS, INK, RED, canvas, plain

from .report import Report
from .runtime import error_against_time

MODES, VARIANCE = (-1.5, 1.5), 0.05  # of the mixture
LENGTHSCALES = (0.2, 0.4)
DRAWN = (1, 2, 5)
FUNCTIONS = 6


@dataclass(frozen=True, eq=False)
class GaussianEigenfunctions:
    """The RBF kernel under N(0, s²) in closed form. With a = 1/4s², b = 1/2ℓ², c = √(a² + 2ab), A = a + b +
    c, B = b/A:

    λ_k = variance √(2a/A) B^k,   φ_k(x) = (√(a/c) 2^k k!)^-½ exp(-(c - a)x²) H_k(√(2c) x)
                                                                          [Rasmussen, Williams 2006 §4.3.1]
    """

    kernel: RBF
    deviation: float  # s
    count: int

    @property
    def _constants(self) -> tuple[float, float, float]:
        a = 0.25 / self.deviation**2
        b = 0.5 / float(np.reshape(self.kernel.lengthscale, ())) ** 2
        return a, b, math.sqrt(a * a + 2.0 * a * b)

    @property
    def values(self) -> np.ndarray:
        """λ. (count,)"""
        a, b, c = self._constants
        A = a + b + c
        return float(self.kernel.variance) * math.sqrt(2.0 * a / A) * (b / A) ** np.arange(self.count)

    def __call__(self, Y: np.ndarray) -> np.ndarray:
        """φ_k at each row of Y. (t, count)"""
        a, _, c = self._constants
        y = Y[:, 0]
        z = math.sqrt(2.0 * c) * y
        H = np.empty((len(y), self.count))  # H_k / √(2^k k!), by its recurrence
        H[:, 0] = 1.0
        for k in range(1, self.count):
            H[:, k] = math.sqrt(2.0 / k) * z * H[:, k - 1]
            if k > 1:
                H[:, k] -= math.sqrt((k - 1) / k) * H[:, k - 2]
        return (c / a) ** 0.25 * np.exp(-(c - a) * y * y)[:, None] * H


def density(x: np.ndarray) -> np.ndarray:
    """½ N(-1.5, 0.05) + ½ N(1.5, 0.05)."""
    return sum(np.exp(-0.5 * (x - mode) ** 2 / VARIANCE) for mode in MODES) / (
        2.0 * np.sqrt(2.0 * np.pi * VARIANCE)
    )


def draw(n: int, rng: np.random.Generator) -> np.ndarray:
    """n inputs of the mixture. (n, 1)"""
    return (rng.choice(MODES, n) + np.sqrt(VARIANCE) * rng.standard_normal(n))[:, None]


def by_quadrature(lengthscale: float, nodes: int = 600) -> Eigenfunctions:
    """The rectangle rule, exact to rounding for a kernel and a density so smooth."""
    x = np.linspace(-3.0, 3.0, nodes)
    return eigenfunctions(RBF(lengthscale), x[:, None], FUNCTIONS, weights=density(x))


def variation_in_density(functions: Eigenfunctions) -> np.ndarray:
    """The share of ∫|φ'| over [-3, 3] within two standard deviations of a mode, by function. (count,)"""
    x = np.linspace(-3.0, 3.0, 1201)
    steps = np.abs(np.diff(functions(x[:, None]), axis=0))
    middle = 0.5 * (x[1:] + x[:-1])
    dense = np.min(np.abs(middle[:, None] - np.array(MODES)), axis=1) < 2.0 * np.sqrt(VARIANCE)
    return np.sum(steps[dense], axis=0) / np.sum(steps, axis=0)


def sign_changes(functions: Eigenfunctions) -> np.ndarray:
    """How often each function changes sign near the mode where it is largest. (count,)"""
    x = np.linspace(-2.0, 2.0, 401) * np.sqrt(VARIANCE)
    near = [functions((x + mode)[:, None]) for mode in MODES]  # each (401, count)
    peaks = np.array([np.max(np.abs(values), axis=0) for values in near])  # (2, count)
    largest = [near[mode][:, i] for i, mode in enumerate(np.argmax(peaks, axis=0))]
    return np.array([int(np.sum(np.diff(np.sign(values)) != 0)) for values in largest])


def e1(report: Report) -> None:
    """Eigenfunctions depend on p(x)."""
    sizes = (50, 200) if report.quick else (50, 100, 200, 400, 800)
    repeats = 4 if report.quick else 10
    report.settings = (
        f"p(x) is a mixture of two Gaussians at ±1.5, variance {VARIANCE}; RBF kernels of lengthscale 0.2 "
        f"and 0.4, variance 1. Nyström's method on n = {', '.join(map(str, sizes))} samples, {repeats} draws "
        "each; the reference is the same eigenproblem on 600 quadrature nodes."
    )
    rng = report.rng()
    errors: dict[float, np.ndarray] = {}  # (sizes, repeats, functions)
    for lengthscale in LENGTHSCALES:
        exact = by_quadrature(lengthscale)
        found = [
            [eigenfunctions(RBF(lengthscale), draw(n, rng), FUNCTIONS).values for _ in range(repeats)]
            for n in sizes
        ]
        errors[lengthscale] = np.abs(np.array(found) / exact.values - 1.0)
        gauss = 0.5 * GaussianEigenfunctions(RBF(lengthscale), np.sqrt(VARIANCE), FUNCTIONS // 2).values
        header = ("i", "λ, quadrature", "½ λ of one Gaussian", *(f"error, n = {n}" for n in sizes))
        mean = np.mean(errors[lengthscale], axis=1)  # (sizes, functions)
        rows = [
            (i + 1, f"{exact.values[i]:.4g}", f"{gauss[i // 2]:.4g}", *(f"{e:.1%}" for e in mean[:, i]))
            for i in range(FUNCTIONS)
        ]
        report.table(f"Eigenvalues, lengthscale {lengthscale}: mean relative error of λ_mat/n", header, rows)
        report.values[f"eigenvalues_{lengthscale}"] = exact.values
        report.values[f"errors_{lengthscale}"] = mean
        gap = float(np.max(np.abs(exact.values.reshape(-1, 2) / gauss[:, None] - 1.0)))
        report.claim(
            f"lengthscale {lengthscale}: eigenvalues come in pairs, one for each mode, at half of one "
            "Gaussian's",
            "from the closed form",
            f"to {gap:.0e}",
            gap < 1e-2,
        )
    _claims(report, sizes, errors)
    report.pictures["eigenfunctions"] = _eigenfunctions_picture(report)
    report.pictures["convergence"] = _convergence_picture(sizes, errors)
    report.notes += [
        "The modes lie 15 and 7.5 lengthscales apart, so the eigenvalues of a pair nearly agree and any "
        "rotation of its two functions is as good: the even and odd ones of the symmetric density, or one "
        "on each mode. Samples decide for the latter: the mode with more of them has the larger eigenvalue "
        "and comes first.",
        "Where p(x) is small Nyström's function averages k(x, ·) over far samples, and goes to zero within "
        "some lengthscales.",
        "With the longer lengthscale the functions fall off wider than two standard deviations of their "
        "mode, so most of their variation lies outside, although less of it per unit length than inside.",
    ]


def _claims(report: Report, sizes: tuple[int, ...], errors: dict[float, np.ndarray]) -> None:
    means = {lengthscale: np.mean(e, axis=(1, 2)) for lengthscale, e in errors.items()}
    rates = {
        lengthscale: float(np.polyfit(np.log(sizes), np.log(mean), 1)[0])
        for lengthscale, mean in means.items()
    }
    falls = ", ".join(f"{mean[0]:.1%} to {mean[-1]:.1%}" for mean in means.values())
    report.claim(
        "λ_mat/n converges to λ",
        "as n grows",
        f"mean error falls from {falls}, as n^{rates[0.2]:.2f} and n^{rates[0.4]:.2f}",
        all(rate < -0.3 for rate in rates.values()),
    )
    large = eigenfunctions(RBF(0.2), draw(500, report.rng(1)), FUNCTIONS)
    wide = eigenfunctions(RBF(0.4), draw(500, report.rng(1)), FUNCTIONS)
    length = 8.0 * np.sqrt(VARIANCE) / 6.0
    for lengthscale, functions in ((0.2, large), (0.4, wide)):
        share = variation_in_density(functions)[np.array(DRAWN) - 1]
        shares = ", ".join(f"{s:.0%}" for s in share)
        report.claim(
            f"lengthscale {lengthscale}: eigenfunctions of large λ vary most where the density is high",
            "a remark",
            f"{shares} of the variation of the 1st, 2nd and 5th in {length:.0%} of [-3, 3]",
            bool(np.all(share > 0.5)),
        )
        dense = share / length / ((1.0 - share) / (1.0 - length))
        report.why(
            f"lengthscale {lengthscale}: eigenfunctions of large",
            "they fall off wider than the mode: much of the variation is outside, thinly spread",
            f"per unit length {', '.join(f'{r:.1f}' for r in dense)} times as much inside as outside",
            bool(np.all(dense > 1.0)),
        )
    changes = sign_changes(large)
    report.claim(
        "within a mode they are a Gaussian's: the 1st and 2nd do not change sign there, the 5th twice",
        "Hermite's",
        f"{', '.join(map(str, changes))} sign changes of the first {FUNCTIONS}",
        list(changes) == [0, 0, 1, 1, 2, 2],
    )


def _eigenfunctions_picture(report: Report) -> Any:
    picture = canvas(11.0, 5.6)
    axes = picture.subplots(2, 3, sharex=True)
    x = np.linspace(-3.0, 3.0, 601)
    for row, lengthscale in zip(axes, LENGTHSCALES, strict=True):
        draws = [eigenfunctions(RBF(lengthscale), draw(500, report.rng(k)), FUNCTIONS) for k in (1, 2, 3)]
        for ax, i in zip(row, DRAWN, strict=True):
            plain(ax)
            ax.fill_between(x, 0.0, density(x), color=INK, alpha=0.12, linewidth=0, label="p(x)")
            for j, functions in enumerate(draws):
                ax.plot(
                    x,
                    functions(x[:, None])[:, i - 1],
                    color=COLOURS[j],
                    linewidth=1.6,
                    label=f"500 samples, draw {j + 1}",
                )
            ax.set_title(
                f"ℓ = {lengthscale}, {('1st', '2nd', '5th')[DRAWN.index(i)]}, λ ≈ "
                f"{draws[0].values[i - 1]:.3g}"
            )
    picture.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False
    )
    return picture


def _convergence_picture(sizes: tuple[int, ...], errors: dict[float, np.ndarray]) -> Any:
    picture = canvas(10.0, 4.0)
    for ax, lengthscale in zip(picture.subplots(1, 2, sharey=True), LENGTHSCALES, strict=True):
        plain(ax)
        for i, line in enumerate(np.mean(errors[lengthscale], axis=1).T):
            ax.loglog(sizes, line, marker="o", markersize=4, color=COLOURS[i], label=f"λ{i + 1}")
        guide = np.mean(errors[lengthscale][0]) * np.sqrt(sizes[0] / np.array(sizes))
        ax.loglog(sizes, guide, color=INK, linestyle=":", label="n^-½")
        ax.set_title(f"ℓ = {lengthscale}")
        ax.set_xticks(sizes, list(map(str, sizes)))
        ax.minorticks_off()
        ax.set_xlabel("samples n")
        ax.set_ylabel("mean relative error of λ_mat/n")
    ax.legend(frameon=False)
    return picture


# E4

NODES = 500  # of the midpoint rule


def _truth(count: int) -> GaussianEigenfunctions:
    return GaussianEigenfunctions(RBF(0.5), 1.0, count)


def uniform_share(n: int, noise: float, count: int, draws: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """As `learned_share`, with inputs uniform on [0, 1] and lengthscale 0.1; eigenfunctions by quadrature."""
    x = (np.arange(600) + 0.5) / 600
    truth, kernel = eigenfunctions(RBF(0.1), x[:, None], count), RBF(0.1)
    total = np.zeros(count)
    for _ in range(draws):
        X = rng.uniform(size=(n, 1))
        V = solve_lower(cholesky(plus_diagonal(kernel(X, X), noise)), truth(X))
        total += truth.values * np.sum(V * V, axis=0)
    return total / draws, shrinkage(truth.values, noise, n)


def learned_share(
    n: int, noise: float, count: int, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """⟨η̂_i η_i⟩/λ_i of an exact GP with the right prior, over draws of inputs N(0, 1); and λ/(λ + σ²/n).

    The mean over functions and noise is exact: ∫φ_i k(·, X) p = λ_i φ_i(X), so it is λ_i φ_i(X)ᵀ(K +
    σ²I)⁻¹φ_i(X).
    """
    truth = _truth(count)
    total = np.zeros(count)
    for _ in range(draws):
        X = rng.standard_normal((n, 1))
        V = solve_lower(cholesky(plus_diagonal(truth.kernel(X, X), noise)), truth(X))  # (n, count)
        total += truth.values * np.sum(V * V, axis=0)
    return total / draws, shrinkage(truth.values, noise, n)


def decay(kernel: Any, nodes: int = NODES, count: int = 60) -> np.ndarray:
    """Eigenvalues under a uniform density on [0, 1], by the midpoint rule. (count,)"""
    x = (np.arange(nodes) + 0.5) / nodes
    return eigenfunctions(kernel, x[:, None], count).values


def screening(
    kernel: Any, noise: float, sizes: tuple[int, ...], n: int, rng: np.random.Generator
) -> list[float]:
    """Excess variance of the nearest neighbours' GP over the exact one's, relative to it, in the plane."""
    X, queries = rng.uniform(size=(n, 2)), rng.uniform(0.1, 0.9, size=(40, 2))
    y = np.zeros(n)  # variances do not depend on it
    exact = condition(kernel, None, "exact", noise, X, y).predict(queries).variance
    local = [neighbours(kernel, noise, X, y, size=size).predict(queries).variance for size in sizes]
    return [float(np.mean(found) / np.mean(exact) - 1.0) for found in local]


def e4(report: Report) -> None:
    """Shrinkage, spectra, screening, error against time."""
    draws, n_screen = (5, 200) if report.quick else (50, 600)
    noise, rng = 0.1, report.rng()
    report.settings = (
        f"Shrinkage: RBF kernel, lengthscale 0.5, inputs N(0, 1), noise variance {noise}, {draws} draws of "
        f"inputs. Decay: uniform density on [0, 1], lengthscale 0.3, {NODES} nodes. Screening: {n_screen} "
        "uniform inputs in the unit square, lengthscale 0.5, 40 queries. "
    )
    picture = canvas(13.0, 4.2)
    first, second, third = (plain(ax) for ax in picture.subplots(1, 3))
    _shrinkage(report, first, draws, noise, rng)
    _decay(report, second)
    _screening(report, third, n_screen)
    report.pictures["shrinkage_decay_screening"] = picture
    error_against_time(report)
    report.notes += [
        "Less of η is learned than λ/(λ + σ²/n) says, and the gap closes slowly with n: the formula takes "
        "the eigenfunctions as orthogonal on the sample, which they are far from where the density has "
        "tails.",
        "Error against run time on SARCOS, the slides' own data, is E2's.",
    ]


def _shrinkage(report: Report, ax: Any, draws: int, noise: float, rng: np.random.Generator) -> None:
    count, gaps, mended, visible = 20, [], [], []
    for n, colour in zip((20, 100, 400), COLOURS, strict=False):
        found, expected = learned_share(n, noise, count, draws, rng)
        ax.plot(range(1, count + 1), expected, color=colour, label=f"λ/(λ + σ²/n), n = {n}")
        ax.plot(range(1, count + 1), found, "o", color=colour, markersize=4)
        gaps.append(float(np.max(np.abs(found - expected))))
        mended.append(float(np.max(np.abs(np.subtract(*uniform_share(n, noise, count, draws, rng))))))
        visible.append((int(np.sum(found > 0.5)), int(np.sum(expected > 0.5))))
        report.values[f"shrinkage_{n}"] = {"found": found, "expected": expected}
    ax.set_title("share of η learned (dots: measured)")
    ax.set_xlabel("eigenfunction")
    ax.legend(frameon=False)
    report.claim(
        "the posterior mean shrinks η_i by λ_i/(λ_i + σ²/n)",
        "Ferrari-Trecate, Williams & Opper 1999",
        f"largest gap {', '.join(f'{gap:.2f}' for gap in gaps)} at n = 20, 100, 400",
        gaps[-1] < 0.15,
    )
    report.why(
        "the posterior mean shrinks",
        "under N(0, 1) high eigenfunctions live in tails where hardly a row falls",
        "under a uniform density, which has none (lengthscale 0.1 on [0, 1]), the largest gap is "
        f"{', '.join(f'{gap:.3f}' for gap in mended)}",
        mended[-1] < 0.05 and all(new < old for new, old in zip(mended, gaps, strict=True)),
    )
    report.claim(
        "eigenfunctions of λ below σ²/n are hidden: less than half of η shows",
        "λ ≫ σ²/n to find η",
        f"{', '.join(f'{seen} show more than half, {large} have λ > σ²/n' for seen, large in visible)}",
        all(seen <= large for seen, large in visible),
    )


def _decay(report: Report, ax: Any) -> None:
    slopes = {}
    matern = (
        ("Matérn ½", Matern12(0.3), 2),
        ("Matérn 3/2", Matern32(0.3), 4),
        ("Matérn 5/2", Matern52(0.3), 6),
    )
    for (name, kernel, power), colour in zip(matern, COLOURS, strict=False):
        values, i = decay(kernel), np.arange(1, 61)
        slopes[name] = (float(np.polyfit(np.log(i[19:]), np.log(values[19:]), 1)[0]), power)
        ax.loglog(i, values, color=colour, label=f"{name}, i^{slopes[name][0]:.2f}")
    values = decay(RBF(0.3), count=12)
    ax.loglog(range(1, 13), values, color=INK, label="RBF")
    ax.set_title("eigenvalue decay")
    ax.set_xlabel("i")
    ax.legend(frameon=False)
    report.values["slopes"] = {name: slope for name, (slope, _) in slopes.items()}
    found = ", ".join(f"{name} {slope:.2f}" for name, (slope, _) in slopes.items())
    report.claim(
        "Matérn spectra fall as s^-(2ν + D), eigenvalues as i^-(2ν + 1) in one dimension",
        "-2, -4, -6",
        found,
        all(abs(slope + power) < 0.1 * power for slope, power in slopes.values()),
    )
    rough = decay(Matern52(0.3), count=12)
    ends = values[-1] / values[0], rough[-1] / rough[0]
    report.claim(
        "smoother processes have faster decay",
        "RBF the fastest",
        f"the 12th is {ends[0]:.0e} of the first with the RBF, {ends[1]:.0e} with Matérn 5/2",
        bool(ends[0] < ends[1]),
    )


def _screening(report: Report, ax: Any, n: int) -> None:
    sizes = (5, 10, 20, 40, 80)
    cases = {
        "Matérn ½, noise 1e-6": (Matern12(0.5), 1e-6),
        "Matérn 3/2, noise 1e-6": (Matern32(0.5), 1e-6),
        "Matérn ½, noise 0.1": (Matern12(0.5), 0.1),
        "RBF, noise 0.1": (RBF(0.5), 0.1),
    }
    excess = {name: screening(*case, sizes, n, report.rng()) for name, case in cases.items()}
    for (name, found), colour in zip(excess.items(), (BLUE, COLOURS[2], COLOURS[3], RED), strict=True):
        ax.loglog(sizes, found, marker="o", markersize=4, color=colour, label=name)
    ax.set_title("excess variance of local subsets")
    ax.set_xticks(sizes, list(map(str, sizes)))
    ax.minorticks_off()
    ax.set_xlabel("nearest neighbours")
    ax.legend(frameon=False)
    report.values["screening"] = {"neighbours": sizes, "excess": excess}
    low, high = excess["Matérn ½, noise 1e-6"], excess["RBF, noise 0.1"]
    report.claim(
        "nearest neighbours do as a subset of data where screening operates",
        "Stein 2002: for some kernels",
        f"20 neighbours add {low[2]:.1%} of variance with Matérn ½ and little noise, {high[2]:.0%} with RBF "
        "and noise",
        low[2] < 0.05 and high[2] > 5.0 * low[2],
    )
