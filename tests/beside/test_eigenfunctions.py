"""Nyström's eigenfunctions against the Gaussian's closed form. [Rasmussen, Williams 2006 §4.3.1]"""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import eval_hermite, factorial

import inducing as ig
from experiments import eigen, reproduce
from experiments.eigen import GaussianEigenfunctions
from inducing import errors
from inducing.beside.eigenfunctions import eigenfunctions, shrinkage

KERNEL = ig.kernels.RBF(0.7, 1.3)
DEVIATION = 1.1
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
XS = np.linspace(-2.5, 2.5, 23)[:, None]


def closed_form(count: int) -> tuple[Any, Any]:
    """Eigenvalues, and eigenfunctions at XS, written from the book, and normalised."""
    a, b = 1 / (4 * DEVIATION**2), 1 / (2 * 0.7**2)
    c = np.sqrt(a**2 + 2 * a * b)
    A = a + b + c
    k = np.arange(count)
    h2 = 1 / (np.sqrt(a / c) * 2.0**k * factorial(k))
    x = XS[:, 0]
    functions = np.stack([np.exp(-(c - a) * x**2) * eval_hermite(i, np.sqrt(2 * c) * x) for i in k], axis=1)
    return 1.3 * np.sqrt(2 * a / A) * (b / A) ** k, np.sqrt(h2) * functions


def test_closed_form() -> None:
    found = GaussianEigenfunctions(KERNEL, DEVIATION, 12)
    values, functions = closed_form(12)
    assert_allclose(found.values, values, rtol=1e-12)
    assert_allclose(found(XS), functions, rtol=1e-9, atol=1e-11)


def test_closed_form_solves_the_eigenproblem() -> None:
    """Orthonormal under p, ∫kpφ = λφ, and Mercer's sum is the kernel."""
    found = GaussianEigenfunctions(KERNEL, DEVIATION, 60)
    x = np.linspace(-10.0, 10.0, 801)[:, None]  # the rectangle rule, exact to rounding for what is so smooth
    w = 0.025 * np.exp(-0.5 * (x[:, 0] / DEVIATION) ** 2) / np.sqrt(2 * np.pi * DEVIATION**2)
    Phi = found(x)[:, :8]
    assert_allclose(Phi.T @ (w[:, None] * Phi), np.eye(8), atol=1e-10)
    assert_allclose(KERNEL(XS, x) @ (w[:, None] * Phi), found(XS)[:, :8] * found.values[:8], atol=1e-10)
    assert_allclose((found(XS) * found.values) @ found(XS).T, KERNEL(XS, XS), atol=1e-8)
    assert_allclose(np.sum(found.values), 1.3, rtol=1e-8)  # the trace is ∫k(x, x)p


def test_quadrature_nodes_give_the_closed_form() -> None:
    found = eigenfunctions(KERNEL, DEVIATION * NODES[5:-5, None], 6, weights=WEIGHTS[5:-5])
    values, functions = closed_form(6)
    assert_allclose(found.values, values, rtol=1e-8)
    sign = np.sign(np.sum(found(XS) * functions, axis=0))
    assert_allclose(sign * found(XS), functions, atol=1e-5)


def test_samples_converge() -> None:
    """λ_mat/n → λ and φ → φ as n grows, at the rate of Monte Carlo. [002]"""
    values, functions = closed_form(4)
    gaps = []
    for n in (64, 1024):
        errors_of = []
        for seed in range(6):
            X = DEVIATION * np.random.default_rng(seed).standard_normal((n, 1))
            found = eigenfunctions(KERNEL, X, 4)
            if n < 100:
                assert_allclose(found.values, np.linalg.eigvalsh(KERNEL(X, X))[::-1][:4] / n, rtol=1e-9)
            at = found(XS)
            at = at * np.sign(np.sum(at * functions, axis=0))
            errors_of.append(
                [np.max(np.abs(found.values / values - 1)), np.sqrt(np.mean((at - functions)[:, :2] ** 2))]
            )
        gaps.append(np.mean(errors_of, axis=0))
    assert np.all(gaps[1] < 0.5 * gaps[0])  # n^-½ would give a quarter
    assert gaps[1][0] < 0.1


def test_at_the_samples_it_is_the_eigenvector() -> None:
    X = np.random.default_rng(3).standard_normal((40, 2))
    found = eigenfunctions(ig.kernels.Matern32([0.8, 1.2]), X, 5)
    assert_allclose(found(X), found.vectors, atol=1e-10)
    assert_allclose(found.vectors.T @ found.vectors / 40, np.eye(5), atol=1e-12)
    assert np.all(np.max(found.vectors, axis=0) == np.max(np.abs(found.vectors), axis=0))


def test_shrinkage_is_the_posterior_mean_of_a_coefficient() -> None:
    """n values of η φ with φ² averaging one: a Bayesian linear model of one weight."""
    n, noise, value, eta = 50, 0.3, 0.02, 1.7
    phi = np.random.default_rng(0).choice([-1.0, 1.0], n)
    mean = value * phi @ np.linalg.solve(value * np.outer(phi, phi) + noise * np.eye(n), eta * phi)
    assert_allclose(shrinkage([value], noise, n)[0], mean / eta, rtol=1e-10)


def test_refusals() -> None:
    X = np.zeros((5, 1)) + np.arange(5)[:, None]
    with pytest.raises(errors.ParameterError, match="count must lie between 1 and the number of samples"):
        eigenfunctions(KERNEL, X, 6)
    with pytest.raises(errors.ParameterError, match="weights must be positive"):
        eigenfunctions(KERNEL, X, 2, weights=[1, 1, 0, 1, 1])
    with pytest.raises(errors.ShapeError, match="weights must be one number"):
        eigenfunctions(KERNEL, X, 2, weights=[1, 1])
    with pytest.raises(errors.ParameterError, match="above rounding; ask for 1"):
        eigenfunctions(KERNEL, 0.0 * X, 2)
    with pytest.raises(errors.ParameterError, match="noise is a variance"):
        shrinkage([1.0], 0.0, 5)


def test_the_toys_density() -> None:
    x = np.linspace(-4, 4, 4001)
    assert_allclose(np.sum(eigen.density(x)) * (x[1] - x[0]), 1.0, rtol=1e-9)
    sample = eigen.draw(20_000, np.random.default_rng(0))[:, 0]
    assert_allclose(np.var(np.abs(sample)), 0.05, rtol=0.05)
    assert_allclose(np.mean(np.abs(sample)), 1.5, rtol=0.01)


@pytest.mark.parametrize("name", ["E1", "E4"])
def test_quick_page(name: str, tmp_path: Any) -> None:
    report = reproduce(name, quick=True, folder=tmp_path)
    assert len(report.claims) >= 5
    assert all((tmp_path / name / f"{stem}.png").stat().st_size > 10_000 for stem in report.pictures)
