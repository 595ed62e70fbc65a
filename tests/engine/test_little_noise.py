"""Rows that are alike, and noise of 1e-12 of the variance and less: the I in B = I + ΦΠΦᵀ is all that tells
how little is known of the rest, and squares of numbers of 1e14 have no digits left for it. Held against the
same formulas in eighty digits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import inducing as ig
from inducing.engine import compiled_passes, evidence
from inducing.engine.passes import root_pass
from inducing.errors import FactorisationError
from inducing.inference.regression import problem_of
from inducing.numerics import linalg as la

LENGTHSCALE = 0.9
KERNEL = ig.kernels.RBF(LENGTHSCALE, 1.0)


def draw(seed: int, dimensions: int = 2) -> tuple[np.ndarray, ...]:
    """Rows in three places, four each, their targets, a basis of six somewhere else, and queries."""
    r = np.random.default_rng(seed)
    places = r.uniform(-2.0, 2.0, (3, dimensions))
    X = places[np.arange(12) % 3]
    return X, np.sin(X[:, 0]), r.uniform(-2.0, 2.0, (6, dimensions)), r.uniform(-2.0, 2.0, (5, dimensions))


@contextmanager
def eighty_digits() -> Iterator[None]:
    with mp.workdps(80):
        yield


def covariance(A: np.ndarray, B: np.ndarray) -> Any:
    def squared(a: np.ndarray, b: np.ndarray) -> Any:
        return sum(
            ((mp.mpf(float(p)) - mp.mpf(float(q))) / LENGTHSCALE) ** 2 for p, q in zip(a, b, strict=True)
        )

    return mp.matrix([[mp.exp(-squared(a, b) / 2) for b in B] for a in A])


def dense(X: Any, y: Any, Z: Any, T: Any, noise: Any, jitter: float, exact: bool) -> tuple[np.ndarray, ...]:
    """Mean and variance of f at T, with an exact or a deterministic test conditional, by eighty digits."""
    with eighty_digits():
        noises = np.broadcast_to(noise, len(X))
        K, Kuf, Kut = covariance(Z, Z) + mp.mpf(jitter) * mp.eye(len(Z)), covariance(Z, X), covariance(Z, T)
        precision = mp.diag([1 / mp.mpf(float(s)) for s in noises])
        S = (K + Kuf * precision * Kuf.T) ** -1
        mean = Kut.T * S * Kuf * precision * mp.matrix([mp.mpf(float(t)) for t in y])
        prior, post = Kut.T * K**-1 * Kut, Kut.T * S * Kut
        dropped = [1 - prior[i, i] if exact else 0 for i in range(len(T))]
        variance = [dropped[i] + post[i, i] for i in range(len(T))]
        return np.array([float(t) for t in mean]), np.array([float(t) for t in variance])


def assert_right(post: Any, expected: tuple[np.ndarray, ...], T: Any, rtol: float = 1e-5) -> None:
    mean, variance = (np.ravel(part) for part in post.predict(T))
    std = np.sqrt(expected[1])
    assert_allclose(np.sqrt(variance), std, rtol=rtol)
    assert np.all(np.abs(mean - expected[0]) < 1e-3 * std)


@pytest.mark.parametrize("noise", [1e-11, 1e-12, 1e-13, 1e-14, 1e-15, 1e-16, 1e-18, 1e-20])
@pytest.mark.parametrize("row", ["vfe", "dtc", "sor"])
@pytest.mark.parametrize("seed", range(4))
def test_what_rows_do_not_tell_of_stays_unknown(seed: int, row: str, noise: float) -> None:
    X, y, Z, T = draw(seed)
    post = ig.condition(KERNEL, ig.bases.Points(Z), row, noise, X, y)
    expected = dense(X, y, Z, T, noise, post.jitter, row != "sor")
    if row == "sor" and noise > 1e-12:
        assert_allclose(np.sqrt(np.ravel(post.predict(T)[1])), np.sqrt(expected[1]), rtol=1e-4)
    else:
        assert_right(post, expected, T, 1e-4 if noise > 1e-14 else 1e-5)


def test_noise_of_each_row() -> None:
    X, y, Z, T = draw(1)
    noise = np.where(np.arange(12) < 6, 1e-15, 1e-9)
    post = ig.condition(KERNEL, ig.bases.Points(Z), "vfe", noise, X, y)
    assert_right(post, dense(X, y, Z, T, noise, post.jitter, True), T)


def test_weights_are_copies() -> None:
    X, y, Z, T = draw(2)
    post = ig.condition(KERNEL, ig.bases.Points(Z), "vfe", 1e-15, X[:3], y[:3], weights=np.full(3, 4.0))
    assert_right(post, dense(X, y, Z, T, 1e-15, post.jitter, True), T)


def test_several_outputs() -> None:
    X, y, Z, T = draw(3)
    both = ig.condition(KERNEL, ig.bases.Points(Z), "vfe", 1e-15, X, np.column_stack([y, np.cos(X[:, 1])]))
    one = ig.condition(KERNEL, ig.bases.Points(Z), "vfe", 1e-15, X, np.cos(X[:, 1]))
    assert_allclose(both.predict(T)[0][:, 1], np.ravel(one.predict(T)[0]), rtol=1e-6, atol=1e-9)


def test_rows_of_a_source_in_parts() -> None:
    X, y, Z, T = draw(1)
    source = ig.as_source((X, y), chunk_rows=5)
    post = ig.condition(KERNEL, ig.bases.Points(Z), "vfe", 1e-15, source)
    assert_right(post, dense(X, y, Z, T, 1e-15, post.jitter, True), T)


def test_compiled_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_passes, "LEAST", 0)
    X, y, Z, T = draw(0)
    post = ig.condition(KERNEL, ig.bases.Points(Z), "vfe", 1e-15, X, y)
    assert_right(post, dense(X, y, Z, T, 1e-15, post.jitter, True), T)


@pytest.mark.parametrize("row", ["fitc", "pitc"])
def test_rows_of_the_basis_without_jitter(row: str) -> None:
    """With rows in the basis nothing is left beside the noise, and FITC and PITC are DTC."""
    X, y, Z, T = draw(2)
    Z = np.concatenate([X[:3], Z[:3]])
    options = {"blocks": np.arange(12) // 6} if row == "pitc" else {}
    post = ig.condition(KERNEL, ig.bases.Points(Z), row, 1e-13, X, y, jitter=1e-15, **options)
    mean, variance = (np.ravel(part) for part in post.predict(T))
    expected = dense(X, y, Z, T, 1e-13, post.jitter, True)
    assert_allclose(np.sqrt(variance), np.sqrt(expected[1]), rtol=1e-3)
    assert_allclose(mean, expected[0], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("noise", [1e-12, 1e-15, 1e-18])
def test_evidence(noise: float) -> None:
    X, y, Z, _ = draw(3)
    with eighty_digits():
        K, Kuf = covariance(Z, Z) + mp.mpf(1e-8) * mp.eye(6), covariance(Z, X)
        C = Kuf.T * K**-1 * Kuf + mp.mpf(noise) * mp.eye(12)
        target = mp.matrix([mp.mpf(float(t)) for t in y])
        expected = -(12 * mp.log(2 * mp.pi) + mp.log(mp.det(C)) + (target.T * C**-1 * target)[0]) / 2
    found = ig.log_evidence(KERNEL, ig.bases.Points(Z), "dtc", noise, X, y)
    assert_allclose(found, float(expected), rtol=1e-9)


def test_noise_that_roots_cannot_tell_is_refused() -> None:
    X, y, Z, _ = draw(0)
    with pytest.raises(
        FactorisationError, match="too little noise: rows leave functions of the basis unknown"
    ):
        ig.condition(KERNEL, ig.bases.Points(Z), "vfe", 1e-32, X, y)


def test_rows_that_tell_of_all_functions_need_no_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "root_pass", lambda *arguments: pytest.fail("a pass that no one needs"))
    X, y, _, T = draw(0)
    post = ig.condition(KERNEL, ig.bases.Points(X[:3]), "vfe", 1e-32, X, y)
    assert_allclose(post.predict(X)[0].ravel(), y, rtol=1e-6)
    ig.condition(KERNEL, ig.bases.Points(T), "vfe", 1e-9, X, y)


def test_root_of_a_pass_squares_to_its_sums() -> None:
    X, y, Z, _ = draw(1)
    P = problem_of(KERNEL, ig.bases.Points(Z), "fitc", 0.1, X, y)
    F = evidence.factorise(P)
    R, p = root_pass(P, F.Linv).root
    assert p == 1
    assert_allclose(R[:, :6].T @ R[:, :6] + np.eye(6), F.B, rtol=1e-12, atol=1e-12)
    B, LB, LBinv, w = la.information_factors_of_root(R, 1)
    assert_allclose(B, F.B, rtol=1e-12, atol=1e-12)
    assert_allclose(LBinv, F.LBinv, rtol=1e-11, atol=1e-12)
    assert_allclose(LB @ LBinv, np.eye(6), atol=1e-12)
    assert_allclose(w, F.w, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_targets_of_rows_far_away_do_not_spill_over(parts: int) -> None:
    """Rows that the basis knows nothing of, whose y are 1e8 standard deviations of the noise. The one row
    that it knows of has w = φy/(1 + |φ|²); a QR of the rows as they come is off by 1 for 5 of the 30.
    """
    for seed in range(30):
        rng = np.random.default_rng(seed)
        phi, y = 1e8 * rng.normal(size=3), 1e8 * rng.normal(size=4)
        rows = np.column_stack([np.zeros((4, 3)), y])
        rows[2, :3] = phi
        R = la.triangle(*(la.triangle(part, beside=1) for part in np.split(rows, parts)), beside=1)
        w = la.information_factors_of_root(R, 1)[3]
        assert_allclose(w[:, 0], phi * y[2] / (1.0 + phi @ phi), rtol=1e-9, atol=1e-9)
