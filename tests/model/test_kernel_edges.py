"""Kernels at the edges of what they take: defaults, largest numbers, inputs far out, many of them."""

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from inducing.errors import ParameterError
from inducing.model.kernels import (
    RBF,
    Levels,
    Linear,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    Warped,
    spectral_density,
)
from inducing.numerics.arrays import LARGEST_NUMBER


def test_parameters_that_are_not_given_are_one() -> None:
    rng = np.random.default_rng(3)
    X, Z = rng.normal(size=(4, 2)), rng.normal(size=(3, 2))
    assert_allclose(Polynomial(3)(X, Z), (1.0 + X @ Z.T / 2.0) ** 3, rtol=1e-12)
    squares = np.sum(np.sin(np.pi * (X[:, None] - Z)) ** 2, axis=2)
    assert_allclose(Periodic()(X, Z), np.exp(-2.0 * squares), rtol=1e-12)


def test_the_largest_and_the_smallest_that_are_taken() -> None:
    for value in (LARGEST_NUMBER, 1.0 / LARGEST_NUMBER):
        assert RBF(value).lengthscale == value
    for value in (1.001 * LARGEST_NUMBER, 0.999 / LARGEST_NUMBER):
        with pytest.raises(ParameterError, match="lengthscale must lie between"):
            RBF(value)
    assert Polynomial(100_000).degree == 100_000
    with pytest.raises(ParameterError, match="at most 100000, but is 100001"):
        Polynomial(100_001)


@pytest.mark.parametrize("rows", [1, 4])
def test_the_slope_of_a_period_does_not_depend_on_the_origin(rows: int) -> None:
    """A thousand million periods away, inputs that are exact there."""
    rng = np.random.default_rng(3)
    X, Z = (rng.integers(0, 1 << 12, (n, 1)) / (1 << 12) for n in (5, rows))
    kernel, Kbar = Periodic(0.8, 1.5, 1.3), rng.normal(size=(5, rows))
    near, far = (kernel.pullback(X + shift, Z + shift, Kbar.copy())[0] for shift in (0.0, 2.0**30))
    for name, value in near.items():
        assert_allclose(far[name], value, rtol=1e-10)
    angle = np.pi * (X - Z.T) / 1.5
    K = 1.3 * np.exp(-2.0 * np.sin(angle) ** 2 / 0.64)
    slope = K * 2.0 * np.sin(2.0 * angle) * angle / 1.5 / 0.64
    assert_allclose(near["period"], np.sum(Kbar * slope), rtol=1e-10)


def in_mpmath(r: float, nu: mp.mpf) -> mp.mpf:
    z = mp.sqrt(2 * nu) * mp.mpf(r)
    return 2 ** (1 - nu) / mp.gamma(nu) * z**nu * mp.besselk(nu, z)


@pytest.mark.parametrize("nu", [0.3, 0.7, 4.0, 20.0, 60.0])
def test_the_slope_in_the_order_of_a_matern_kernel(nu: float) -> None:
    for r in (0.3, 1.1, 2.5):
        with mp.workdps(40):
            expected = float(mp.diff(lambda order, r=r: in_mpmath(r, order), mp.mpf(nu)))
        X, Z, one = np.zeros((1, 1)), np.full((1, 1), r), np.ones((1, 1))
        assert_allclose(Matern(1.0, 1.0, nu).pullback(X, Z, one)[0]["nu"], expected, rtol=1e-7)


def test_orders_beyond_a_hundred_count_as_a_hundred() -> None:
    rng = np.random.default_rng(3)
    X, Z, Kbar = rng.normal(size=(4, 1)), rng.normal(size=(3, 1)), np.ones((4, 3))
    assert_allclose(Matern(1.0, 1.0, 150.0)(X, Z), Matern(1.0, 1.0, 100.0)(X, Z), rtol=1e-14)
    assert Matern(1.0, 1.0, 150.0).pullback(X, Z, Kbar)[0]["nu"] == 0.0


@pytest.mark.parametrize("nu", [60.0, 100.0])
def test_smooth_matern_kernels_of_inputs_that_all_but_coincide(nu: float) -> None:
    """Where the Bessel function overflows and where it does not."""
    for r in (1e-7, 1e-5, 1e-3, 2e-3, 3e-3, 5e-3, 1e-2, 0.05):
        with mp.workdps(40):
            expected = float(1 - in_mpmath(r, mp.mpf(nu)))
        got = Matern(1.0, 1.0, nu)(np.zeros((1, 1)), np.full((1, 1), r))[0, 0]
        assert abs(1.0 - got - expected) < 1e-11


@pytest.mark.parametrize("nu", [1.4, 1.5, 1.9, 3.2])
def test_the_slope_of_a_matern_kernel_at_next_to_no_distance(nu: float) -> None:
    """The profile is 1 - ν/(ν - 1) r²/2 there, r the distance in lengthscales."""
    near, far = np.zeros((1, 1)), np.full((1, 1), 1e-8)
    for x, z in ((near, far), (far, near)):
        slope = Matern(0.5, 2.0, nu=nu).pullback(x, z, np.ones((1, 1)))[1]
        assert_allclose(slope, 2.0 * nu / (nu - 1.0) * (x - z) / 0.5**2, rtol=1e-4)


@pytest.mark.parametrize("d", [1, 3, 4, 5, 8, 9, 11])
@pytest.mark.parametrize("kind", [RBF, Matern12, Matern32, Matern52])
def test_triangles_of_many_inputs(kind: type[RBF], d: int) -> None:
    """Compiled loops take four inputs at a time: the lower triangle and its derivatives from the formula."""
    rng = np.random.default_rng(3)
    scales = np.linspace(1.0, 2.0, d) * np.sqrt(d)
    X, Kbar = rng.normal(size=(96, d)), np.tril(rng.normal(size=(96, 96)))
    kernel = kind(scales, 1.7)
    squares = ((X[:, None] - X) / scales) ** 2
    s = np.sum(squares, axis=2)
    r3, r5, r = np.sqrt(3 * s), np.sqrt(5 * s), np.sqrt(s) + np.eye(96)
    g, slope = {  # of s, and -2 dg/ds
        RBF: (np.exp(-s / 2), np.exp(-s / 2)),
        Matern12: (np.exp(-np.sqrt(s)), np.where(s > 0, np.exp(-np.sqrt(s)) / r, 0.0)),
        Matern32: ((1 + r3) * np.exp(-r3), 3 * np.exp(-r3)),
        Matern52: ((1 + r5 + 5 * s / 3) * np.exp(-r5), 5 / 3 * (1 + r5) * np.exp(-r5)),
    }[kind]
    assert_allclose(np.tril(kernel.triangle(X)), np.tril(1.7 * g), rtol=1e-11)
    gradient = kernel.triangle_pullback(X, Kbar)
    assert_allclose(gradient["variance"], np.sum(Kbar * g), rtol=1e-10)
    expected = np.einsum("ij,ijk->k", 1.7 * Kbar * slope, squares) / scales
    assert_allclose(gradient["lengthscale"], expected, rtol=1e-9, atol=1e-11)


def test_kernels_of_levels_see_inputs_and_hats() -> None:
    """Of a linear kernel, whose diagonal is not the same everywhere; and in the units of a lengthscale."""
    rng = np.random.default_rng(3)
    X, slopes = rng.uniform(-1.0, 2.0, (6, 2)), np.array([0.4, 1.0, 2.5, 0.7])
    hats = [np.interp(X[:, 1], [0.0, 1.0], row) for row in np.eye(2)]
    F = np.column_stack([X, *hats])
    kernel, kbar = Levels(Linear(slopes), [(1, 0.0), (1, 1.0)]), rng.normal(size=6)
    assert_allclose(kernel.diagonal(X), F**2 @ slopes, rtol=1e-12)
    assert_allclose(kernel.diag_pullback(X, kbar)["0.variance"], kbar @ F**2, rtol=1e-12)
    assert_allclose(Levels(RBF(slopes), kernel.levels).scaled(X), F / slopes, rtol=1e-12)


@pytest.mark.parametrize(
    "warps, sentence",
    [
        ([[0.0, 1.0]], "warps must be triples"),
        ([[0.5, 0.0, 1.0]], "warps must name columns from 0 on"),
        ([[-1, 0.0, 1.0]], "warps must name columns from 0 on"),
        ([[0, 0.0, 0.0]], "the scale of a warp must be positive, not 0"),
    ],
)
def test_warps_that_are_none_are_refused(warps: list, sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        Warped(RBF(1.0), warps)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("nu", [0.5, 1.5, 1.8, 2.5])
def test_the_spectral_density_of_matern_kernels_is_the_formula(nu: float, d: int) -> None:
    """Student's t: 2^D π^(D/2) Γ(ν + D/2)/Γ(ν) (2ν)^ν (2ν + 4π²|t|²)^-(ν + D/2). [002]"""
    rng = np.random.default_rng(3)
    frequencies, scales = rng.normal(size=(5, d)), np.linspace(0.4, 0.9, d)
    for s, got in zip(frequencies, spectral_density(Matern(scales, 1.3, nu), frequencies)):
        t2 = float(np.sum((s * scales) ** 2))
        c = 2**d * mp.pi ** (mp.mpf(d) / 2) * mp.gamma(nu + d / 2) / mp.gamma(nu) * (2 * nu) ** nu
        expected = 1.3 * np.prod(scales) * float(c * (2 * nu + 4 * mp.pi**2 * t2) ** (-nu - d / 2))
        assert_allclose(got, expected, rtol=1e-11)
