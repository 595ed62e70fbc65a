"""R kept along nearest neighbours against dense formulas; its limits FITC, PITC and the exact GP; its sets
of rows.
"""

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import inducing as ig
import oracle
import oracle_neighbours as dense
from inducing.engine import compiled_passes, neighbour_sets, passes, sums
from inducing.engine.neighbour_sets import find_neighbours
from inducing.inference import neighbours as inference
from inducing.numerics import arrays

N, M, Q, JITTER = 48, 5, 6, 1e-8
rng = np.random.default_rng(11)
X = rng.uniform(-2, 2, (N, 2))
XS = rng.uniform(-2.3, 2.3, (9, 2))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.standard_normal(N)
Y2 = np.stack([Y, np.cos(X[:, 1]) - 0.4], axis=1)
WEIGHTS = rng.uniform(0.3, 4.0, N)
SETS = dense.earlier(X, rng.permutation(N), Q)
Z = np.array([[-1.6, -1.2], [-1.0, 1.3], [0.1, -0.2], [0.8, 1.7], [1.5, -1.4]])
ONE = {"kernel.lengthscale": np.array([0.6, 1.1]), "kernel.variance": np.array(1.7), "noise": np.array(0.09)}
K32 = oracle.bind(oracle.matern32, lengthscale=np.array([0.6, 1.1]), variance=1.7)
START: dict[str, dict[str, np.ndarray]] = {
    "rbf": ONE | {"basis.Z": Z},
    "matern": ONE | {"basis.Z": Z, "noise": rng.uniform(0.02, 0.4, N)},
    "rational": ONE | {"basis.Z": Z, "kernel.shape": np.array(0.8)},
    "sum": {"basis.Z": Z, "noise": np.array(0.09)}
    | {"kernel.0.lengthscale": np.array([0.9, 1.3]), "kernel.0.variance": np.array(1.2)}
    | {"kernel.1.lengthscale": np.array(0.5), "kernel.1.variance": np.array(0.6)},
    "product": {"basis.Z": Z, "noise": np.array(0.09)}
    | {"kernel.0.lengthscale": np.array([0.9, 1.3]), "kernel.0.variance": np.array(1.2)}
    | {"kernel.1.lengthscale": np.array(0.8), "kernel.1.variance": np.array(1.4)},
    "multiscale": ONE
    | {"basis.centers": Z, "basis.widths": np.array([0.9, 1.3]) * np.linspace(0.8, 1.6, M)[:, None]},
}


def parts(values: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of the kernel, or of its two parts, and of the basis."""
    return tuple(
        {name.removeprefix(head): v for name, v in values.items() if name.startswith(head)}
        for head in ("kernel.", "basis.")
    )


def package(kind: str, values: dict[str, np.ndarray]) -> tuple[Any, ...]:
    """kernel, basis, "neighbours" and noise, the first arguments of `condition`."""
    k, b = parts(values)
    kernels = ig.kernels
    if kind in ("sum", "product"):
        first = kernels.Matern32(k["0.lengthscale"], k["0.variance"])
        second = kernels.RBF(k["1.lengthscale"], k["1.variance"], columns=(1,))
        kernel = first + second if kind == "sum" else first * second
    else:
        named = {"matern": kernels.Matern32, "rational": kernels.RationalQuadratic}
        kernel = named.get(kind, kernels.RBF)(**k)
    basis = ig.bases.Multiscale(**b) if kind == "multiscale" else ig.bases.Points(**b)
    return kernel, basis, "neighbours", values["noise"]


def reference(kind: str, values: dict[str, np.ndarray]) -> tuple[Any, ...]:
    """The same for the dense formulas: kernel, basis and noise."""
    k, b = parts(values)
    if kind in ("sum", "product"):

        def kernel(A: Any, B: Any) -> Any:
            first = oracle.matern32(A, B, k["0.lengthscale"], k["0.variance"])
            second = oracle.rbf(A[:, 1:], B[:, 1:], k["1.lengthscale"], k["1.variance"])
            return first + second if kind == "sum" else first * second
    else:
        named = {"matern": oracle.matern32, "rational": oracle.rational_quadratic}
        kernel = oracle.bind(named.get(kind, oracle.rbf), **k)
    basis = oracle.multiscale(**b, **k) if kind == "multiscale" else oracle.points(kernel, b["Z"])
    return kernel, oracle.jittered(basis, JITTER), values["noise"]


@pytest.fixture(params=["arrays", "compiled", "whole blocks"], autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test by plain arrays, by compiled loops, and by those that do a whole block in one call."""
    monkeypatch.setattr(arrays, "COMPILED", 1 << 60 if request.param == "arrays" else 0)
    monkeypatch.setattr(compiled_passes, "LEAST", 0 if request.param == "whole blocks" else 1 << 60)


# against dense formulas -------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["no weights", "weights"])
@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("kind", START)
def test_evidence_prediction_and_covariance(kind: str, y: Any, weights: Any) -> None:
    args, formulas = package(kind, START[kind]), reference(kind, START[kind])
    post: Any = ig.condition(*args, X, y, neighbours=SETS, weights=weights, jitter=JITTER)
    expected = dense.log_evidence(*formulas, X, y, SETS, weights)
    value = ig.log_evidence(*args, X, y, neighbours=SETS, weights=weights, jitter=JITTER)
    assert_allclose([post.log_evidence, value], expected, rtol=1e-10)
    nearest = post.rows(XS)
    mean, covariance = dense.predict(*formulas, X, y, SETS, XS, nearest, weights)
    assert_allclose(post.predict(XS).mean, mean, rtol=1e-9, atol=1e-9)
    assert_allclose(post.predict(XS).variance, np.diag(covariance), rtol=1e-9, atol=1e-9)
    assert_allclose(post.mean(XS), mean, rtol=1e-9, atol=1e-9)
    assert_allclose(post.covariance(XS), covariance, rtol=1e-9, atol=1e-9)
    assert np.linalg.eigvalsh(post.covariance(np.concatenate([XS, XS, X])))[0] > -1e-9


@cache
def slopes(kind: str, outputs: int, weighted: bool) -> dict[str, np.ndarray]:
    """The gradient of the dense evidence, by differences, with the sets held."""
    y, weights = (Y, Y2)[outputs - 1], WEIGHTS if weighted else None

    def value(name: str, v: np.ndarray) -> float:
        return dense.log_evidence(*reference(kind, START[kind] | {name: v}), X, y, SETS, weights)

    return {name: dense.slopes(partial(value, name), start) for name, start in START[kind].items()}


@pytest.mark.parametrize("weighted", [False, True], ids=["no weights", "weights"])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("kind", START)
def test_gradient_is_that_of_the_dense_evidence(kind: str, outputs: int, weighted: bool) -> None:
    y, weights = (Y, Y2)[outputs - 1], WEIGHTS if weighted else None
    value, gradient = ig.log_evidence_and_gradient(
        *package(kind, START[kind]), X, y, neighbours=SETS, weights=weights, jitter=JITTER
    )
    assert_allclose(value, dense.log_evidence(*reference(kind, START[kind]), X, y, SETS, weights), rtol=1e-10)
    expected = slopes(kind, outputs, weighted)
    assert set(gradient) == set(expected)
    for name, slope in expected.items():
        assert_allclose(gradient[name], slope, rtol=1e-7, atol=1e-8 * np.max(np.abs(slope)), err_msg=name)


def test_a_prior_mean_is_taken_off_and_learned() -> None:
    args, formulas, slope = (
        package("rbf", START["rbf"]),
        reference("rbf", START["rbf"]),
        np.array([0.3, -1.1]),
    )
    mean = ig.means.Linear(weights=slope, bias=0.7)
    value, gradient = ig.log_evidence_and_gradient(*args, X, Y, neighbours=SETS, mean=mean, jitter=JITTER)
    assert_allclose(value, dense.log_evidence(*formulas, X, Y - 0.7 - X @ slope, SETS), rtol=1e-10)
    moved = dense.slopes(lambda v: dense.log_evidence(*formulas, X, Y - 0.7 - X @ v, SETS), slope)
    assert_allclose(gradient["mean.weights"], moved, rtol=1e-7)
    post: Any = ig.condition(*args, X, Y, neighbours=SETS, mean=mean, jitter=JITTER)
    expected = dense.predict(*formulas, X, Y - 0.7 - X @ slope, SETS, XS, post.rows(XS))[0]
    assert_allclose(post.predict(XS).mean, expected + 0.7 + XS @ slope, rtol=1e-9)


@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("kind", ["matern", "multiscale"])
@pytest.mark.parametrize("count", [0, Q, N])
def test_gradient_of_the_mean_and_samples(kind: str, y: Any, count: int) -> None:
    mean = ig.means.Linear(weights=[0.3, -1.1], bias=0.7)
    post: Any = ig.condition(*package(kind, START[kind]), X, y, neighbours=count, mean=mean)
    rows, slope = post.rows(XS), post.gradient(XS)
    assert slope.shape == (*XS.shape, *np.shape(y)[1:])
    for at in np.ndindex(*XS.shape):
        h = np.zeros(XS.shape)
        h[at] = 1e-5
        assert_array_equal(np.sort(post.rows(XS + h)), np.sort(rows))
        expected = (post.mean(XS + h) - post.mean(XS - h))[at[0]] / 2e-5
        assert_allclose(slope[at], expected, rtol=1e-6, atol=1e-6)
    samples = post.sample(XS, size=20_000, rng=0)
    assert samples.shape == (20_000, len(XS), *np.shape(y)[1:])
    first = samples.reshape(20_000, len(XS), -1)[:, :, 0]
    assert_allclose(np.cov(first.T), post.covariance(XS), atol=0.05)


# limits -----------------------------------------------------------------------------------------------------


def same(first: Any, second: Any, tolerance: float = 1e-10, names: Any = None) -> None:
    """Two evidences with their gradients."""
    assert_allclose(first[0], second[0], rtol=tolerance)
    for name in second[1] if names is None else names:
        slope = second[1][name]
        assert_allclose(
            first[1][name], slope, rtol=0, atol=tolerance * (1 + np.max(np.abs(slope))), err_msg=name
        )


@pytest.mark.parametrize("kind", START)
def test_no_neighbours_are_fitc(kind: str) -> None:
    kernel, basis, name, noise = package(kind, START[kind])
    got = ig.log_evidence_and_gradient(kernel, basis, name, noise, X, Y2, neighbours=0)
    same(got, ig.log_evidence_and_gradient(kernel, basis, "fitc", noise, X, Y2))
    post, fitc = (
        ig.condition(kernel, basis, row, noise, X, Y2, **more)
        for row, more in ((name, {"neighbours": 0}), ("fitc", {}))
    )
    for a, b in zip(post.predict(XS), fitc.predict(XS), strict=True):
        assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    assert_allclose(post.covariance(XS), fitc.covariance(XS), rtol=1e-10, atol=1e-12)
    weighted = ig.log_evidence_and_gradient(kernel, basis, name, noise, X, Y2, neighbours=0, weights=WEIGHTS)
    blocks = {"blocks": np.arange(N), "weights": WEIGHTS}
    same(weighted, ig.log_evidence_and_gradient(kernel, basis, "pitc", noise, X, Y2, **blocks))


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["no weights", "weights"])
@pytest.mark.parametrize("kind", START)
def test_all_earlier_rows_are_the_exact_gp(kind: str, weights: Any) -> None:
    kernel, basis, name, noise = package(kind, START[kind])
    everything = {"jitter": 1e-6, "weights": weights}
    order = np.random.default_rng(2).permutation(N)
    exact: Any = ig.condition(kernel, None, "exact", noise, X, Y2, weights=weights)
    expected = ig.log_evidence_and_gradient(kernel, None, "exact", noise, X, Y2, weights=weights)
    for neighbours in (N - 1, 3 * N, dense.earlier(X, order, N - 1)):
        got = ig.log_evidence_and_gradient(
            kernel, basis, name, noise, X, Y2, neighbours=neighbours, **everything
        )
        same(got, expected, names=expected[1])
        assert all(np.max(np.abs(slope)) < 1e-8 for key, slope in got[1].items() if key.startswith("basis"))
        post: Any = ig.condition(kernel, basis, name, noise, X, Y2, neighbours=neighbours, **everything)
        for a, b in zip(post.predict(XS), exact.predict(XS), strict=True):
            assert_allclose(a, b, rtol=1e-9, atol=1e-10)
        assert_allclose(post.covariance(XS), exact.covariance(XS), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", START)
def test_all_earlier_rows_of_a_block_are_pitc(kind: str) -> None:
    kernel, basis, name, noise = package(kind, START[kind])
    labels = np.repeat([4, 0, 7, -1], [20, 3, 1, 24])[np.random.default_rng(3).permutation(N)]
    sets = np.full((N, N - 1), -1)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        sets[rows, : len(rows)] = rows[dense.earlier(X[rows], np.arange(len(rows)), len(rows))]
        sets[rows, : len(rows)] = np.where(np.tri(len(rows), k=-1) > 0, sets[rows, : len(rows)], -1)
    expected = ig.log_evidence_and_gradient(
        kernel, basis, "pitc", noise, X, Y, blocks=labels, weights=WEIGHTS
    )
    for more in (
        {"neighbours": sets},
        {"neighbours": 23, "blocks": labels},
        {"neighbours": 99, "blocks": labels},
    ):
        same(
            ig.log_evidence_and_gradient(kernel, basis, name, noise, X, Y, weights=WEIGHTS, **more), expected
        )


# rows that repeat, and noise that is nothing ----------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.1, 1e-13])
def test_more_equal_rows_than_neighbours_are_safe(noise: float) -> None:
    """A row's neighbours may all be equal to it; without noise their covariance is singular but for
    rounding.
    """
    A = np.concatenate([np.repeat(X[:4], 12, axis=0), X])
    y = np.concatenate([np.repeat(Y[:4], 12), Y])
    kernel, basis = ig.kernels.Matern32([0.6, 1.1], 1.7), ig.bases.Points(X[:9])
    value, gradient = ig.log_evidence_and_gradient(kernel, basis, "neighbours", noise, A, y, neighbours=5)
    post: Any = ig.condition(kernel, basis, "neighbours", noise, A, y, neighbours=5)
    mean, variance = post.predict(np.concatenate([A, XS]))
    assert np.isfinite(value) and all(np.all(np.isfinite(slope)) for slope in gradient.values())
    assert np.all(np.isfinite(mean)) and np.all(variance > -1e-10)
    assert_allclose(mean[: len(A)], y, atol=3 * np.sqrt(noise) + 1e-5)
    if noise > 1e-3:
        R = oracle.jittered(oracle.points(K32, X[:9]), JITTER)
        assert_allclose(value, dense.log_evidence(K32, R, noise, A, y, post.sets), rtol=1e-9)


@pytest.mark.parametrize("noise", [1e-18, 1e-60])
@pytest.mark.parametrize("n", [15, 60])  # 15: all rows are neighbours of a query
def test_rows_all_alike_are_their_mean_whatever_the_noise(n: int, noise: float) -> None:
    """Noise that rounding drowns counts as what rounding leaves, in a fit and in a file with so little.

    α is (y - mean) over 64 roundings, so a rounding of each k(x, x') moves the mean by √20/64 at most.
    """
    off = 20**0.5 / 64.0
    at = np.full((1, 2), 0.3)
    A, y = np.repeat(at, n, axis=0), np.random.default_rng(n).standard_normal(n)
    post: Any = ig.condition(ig.kernels.RBF(), ig.bases.Points(Z), "neighbours", noise, A, y, neighbours=20)
    less = replace(post.data, noise=np.full(n, noise))
    file: Any = inference.NeighboursPredictor(post.posterior, less, post.n_neighbours)
    near, weaker = y[post.rows(at)[0]].mean(), replace(post.data, noise=np.full(n, 1e-10))
    slope = inference.NeighboursPredictor(post.posterior, weaker, post.n_neighbours).gradient(at)
    for model in (post, file):
        mean, variance = model.predict(at)
        assert_allclose([mean, model.mean(at)], near, atol=off)
        assert_allclose(model.covariance(at)[0], variance, atol=1e-13)
        assert 0.0 <= variance[0] < 1e-13
        assert_allclose(model.gradient(at), slope, atol=0.1)
    if n > 20:
        assert_allclose(file.compile()(at[0]), (near, 0.0), atol=off)
    else:
        block = {"blocks": np.zeros(n, dtype=int)}
        pitc: Any = ig.condition(ig.kernels.RBF(), ig.bases.Points(Z), "pitc", noise, A, y, **block)
        assert_allclose(pitc.mean(at), y.mean(), atol=off)


def test_rows_too_alike_for_their_noise_are_refused_by_name() -> None:
    """Errors of Φ far from the origin, or of a factor that is another basis's, are more than the least noise:
    rounding would decide.
    """
    near = np.random.default_rng(26)
    A = 1e6 + near.uniform(size=(200, 2))
    A[1::2] = A[::2] + 1e-9 * near.standard_normal((100, 2))
    problem = ig.kernels.Matern32(3.0), ig.bases.Points(A[near.integers(0, 200, 12)]), "neighbours"
    refused = pytest.raises(ig.errors.FactorisationError, match="merge duplicate rows, give more noise")
    with np.errstate(all="ignore"):
        try:  # arrays have the digits, compiled loops have not
            fitted: Any = ig.condition(*problem, 1e-30, A, A[:, 0] - 1e6, neighbours=20)
            assert_allclose(fitted.mean(A), A[:, 0] - 1e6, atol=1e-5)
        except ig.errors.FactorisationError as error:
            assert "merge duplicate rows, give more noise" in str(error)
    post: Any = ig.condition(ig.kernels.RBF(), ig.bases.Points(Z), "neighbours", 1e-4, X, Y, neighbours=20)
    less = replace(post.data, noise=np.full(N, 1e-30))
    wrong: Any = inference.NeighboursPredictor(replace(post.posterior, L=0.5 * post.posterior.L), less, 20)
    for ask in (
        wrong.predict,
        wrong.mean,
        wrong.covariance,
        wrong.gradient,
        lambda A: wrong.compile().many(A),
    ):
        with refused, np.errstate(all="ignore"):
            ask(XS)


def test_a_row_of_weight_zero_is_not_there() -> None:
    weights = np.where(np.arange(N) % 3 == 0, 0.0, WEIGHTS)
    kept = np.flatnonzero(weights)
    args = package("matern", START["matern"] | {"noise": np.array(0.1)})
    few: Any = ig.condition(*args, X[kept], Y[kept], neighbours=4, weights=weights[kept])
    post: Any = ig.condition(*args, X, Y, neighbours=4, weights=weights)
    assert post.log_evidence == few.log_evidence
    assert_array_equal(post.predict(XS), few.predict(XS))
    assert_array_equal(post.sets[kept], np.where(few.sets < 0, -1, kept[few.sets]))
    assert np.all(post.sets[weights == 0] == -1)
    again: Any = ig.condition(*args, X, Y, neighbours=post.sets, weights=weights)
    assert_allclose(again.log_evidence, post.log_evidence, rtol=1e-12)
    holes = ig.log_evidence(*args, X, Y, neighbours=SETS, weights=weights)
    place = np.full(N + 1, -1)
    place[kept] = np.arange(len(kept))
    assert_allclose(
        holes, ig.log_evidence(*args, X[kept], Y[kept], neighbours=place[SETS[kept]], weights=weights[kept])
    )


# the sets ---------------------------------------------------------------------------------------------------


def rows(n: int, d: int = 3) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, d))


def test_nearest_earlier_rows_inside_a_block() -> None:
    A = np.round(8 * rows(300, 2)) / 8  # many equal distances, and equal rows
    blocks = [np.flatnonzero(np.arange(300) % 3 == i) for i in range(3)]
    sets = find_neighbours(A, blocks, 7)
    for block in blocks:
        shuffled = np.random.default_rng(0).permutation(len(block))  # whatever the other blocks are
        order = block[np.lexsort(A[block].T[::-1])][shuffled]
        assert_array_equal(sets[block], dense.earlier(A, order, 7)[block])


def test_blocks_are_bounded_whatever_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "BLOCK_ROWS", 64)
    for A in (rows(1000), np.zeros((300, 2)), np.repeat(rows(4), 200, axis=0), np.ones((64, 1))):
        blocks = inference.clusters(A)
        assert max(map(len, blocks)) <= 64
        assert_array_equal(np.sort(np.concatenate(blocks)), np.arange(len(A)))
        assert all(np.all(np.diff(block) > 0) for block in blocks)


def test_the_order_of_the_data_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, order and sets follow from the inputs and a fixed seed."""
    monkeypatch.setattr(inference, "BLOCK_ROWS", 64)
    A = rows(400)
    y, moved = np.sin(A[:, 0]) * A[:, 1], np.random.default_rng(5).permutation(400)
    args = ig.kernels.Matern52([0.8, 1.0, 1.5], 1.2), ig.bases.Points(rows(20)), "neighbours", 0.05
    post: Any = ig.condition(*args, A, y, neighbours=8)
    other: Any = ig.condition(*args, A[moved], y[moved], neighbours=8)
    assert_array_equal(other.sets, np.where(post.sets[moved] < 0, -1, np.argsort(moved)[post.sets[moved]]))
    assert_allclose(other.log_evidence, post.log_evidence, rtol=1e-12)
    again = ig.log_evidence_and_gradient(*args, A, y, neighbours=8)
    same(ig.log_evidence_and_gradient(*args, A, y, neighbours=8), again, 0.0)
    same(ig.log_evidence_and_gradient(*args, A, y, neighbours=post.sets), again, 1e-11)
    assert_allclose(other.predict(rows(30)).mean, post.predict(rows(30)).mean, rtol=1e-9)


def test_more_neighbours_come_closer_to_the_exact_gp() -> None:
    A = rows(500)
    y = np.sin(3 * A[:, 0]) + np.cos(2 * A[:, 1] * A[:, 2])
    kernel, basis = ig.kernels.Matern32(1.0, 1.0), ig.bases.Points(rows(10))
    exact: Any = ig.condition(kernel, None, "exact", 0.01, A, y).predict(rows(200)).mean
    errors = [
        np.mean(
            (
                ig.condition(kernel, basis, "neighbours", 0.01, A, y, neighbours=q).predict(rows(200)).mean
                - exact
            )
            ** 2
        )
        for q in (0, 3, 10, 30)
    ]
    assert errors[0] > 3 * errors[1] > 9 * errors[2] > 27 * errors[3]


def test_many_queries_at_once_are_the_queries_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    A = rows(300)
    post: Any = ig.condition(
        ig.kernels.RBF(0.7), ig.bases.Points(rows(12)), "neighbours", 0.1, A, A[:, 0], neighbours=9
    )
    together = post.predict(rows(200))
    monkeypatch.setattr(inference, "UNION_ROWS", 1)
    monkeypatch.setattr(inference, "FEATURE_BYTES", 0)
    alone: Any = ig.condition(
        ig.kernels.RBF(0.7), ig.bases.Points(rows(12)), "neighbours", 0.1, A, A[:, 0], neighbours=9
    )
    for a, b in zip(alone.predict(rows(200)), together, strict=True):
        assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    assert_allclose(np.diag(alone.covariance(rows(20))), alone.predict(rows(20)).variance, rtol=1e-10)


@pytest.mark.parametrize("count", [0, Q])
@pytest.mark.parametrize("kind", ["rbf", "matern", "multiscale"])
def test_compiled_queries_are_those_of_predict(kind: str, count: int) -> None:
    mean = ig.means.Linear([0.3, -0.2], 0.4)
    post: Any = ig.condition(*package(kind, START[kind]), X, Y, neighbours=count, mean=mean)
    compiled, expected = post.compile(), post.predict(XS)
    for got, want in zip(compiled.many(XS), expected, strict=True):
        assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    assert_allclose(compiled(XS[4]), (expected.mean[4], expected.variance[4]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
def test_blocks_are_only_units_of_work(y: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks on several threads, kept or made again, are one block with the same sets."""
    A, repeat = rows(480), np.tile(np.arange(N), 10)
    args = ig.kernels.Matern32([0.7, 0.9, 1.4], 1.3), ig.bases.Points(rows(30)), "neighbours", 0.1
    monkeypatch.setattr(inference, "BLOCK_ROWS", 96)
    post: Any = ig.condition(*args, A, y[repeat], neighbours=np.int64(9))
    found = ig.log_evidence_and_gradient(*args, A, y[repeat], neighbours=9)
    for module in (sums, compiled_passes):
        monkeypatch.setattr(module, "BLOCK_BYTES", 0)
    monkeypatch.setattr(compiled_passes, "PAIR_BYTES", 0)
    monkeypatch.setattr(compiled_passes, "GROUP_ROWS", 1)
    monkeypatch.setattr(compiled_passes, "workers_for", lambda work: 2)
    monkeypatch.setattr(passes, "FEW_FLOPS", 0)
    monkeypatch.setattr(passes, "SMALL", 0)
    same(ig.log_evidence_and_gradient(*args, A, y[repeat], neighbours=9), found, 1e-11)
    monkeypatch.setattr(neighbour_sets, "FEW_ROWS", 1)
    same(ig.log_evidence_and_gradient(*args, A, y[repeat], neighbours=post.sets), found, 1e-11)
    assert_allclose(ig.log_evidence(*args, A, y[repeat], neighbours=post.sets), found[0], rtol=1e-12)


def test_kernels_say_where_rows_are_near() -> None:
    A = rows(50)
    rbf, periodic = ig.kernels.RBF([0.5, 2.0, 1.0]), ig.kernels.Periodic(0.5, 2.0, columns=(0,))
    assert_allclose(inference.coordinates(rbf, A), A / [0.5, 2.0, 1.0])
    assert_allclose(inference.coordinates(rbf + ig.kernels.Linear(1.0), A), A / [0.5, 2.0, 1.0])
    assert_allclose(inference.coordinates(ig.kernels.Linear(1.0), A), A)
    both = inference.coordinates(rbf * periodic, A)
    s = np.sum((both[:, None] - both[None]) ** 2, axis=-1)
    assert_allclose((rbf * periodic)(A, A), np.exp(-0.5 * s), rtol=1e-9, atol=1e-12)
    projected = ig.kernels.Projected(ig.kernels.RBF(0.5), np.eye(3)[:2])
    assert_allclose(inference.coordinates(projected, A), A[:, :2] / 0.5)


# learning ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", [Q, SETS], ids=["found", "given"])
def test_fit_climbs_and_keeps_or_finds_the_neighbours(neighbours: Any) -> None:
    args = package("matern", START["matern"] | {"noise": np.array(0.3)})
    fit = ig.fit(*args, X, Y, neighbours=neighbours, max_iterations=25)
    assert fit.value > ig.log_evidence(*args, X, Y, neighbours=neighbours) + 1.0
    assert fit.n_iterations <= 25
    assert_allclose(fit.posterior.log_evidence, fit.value, rtol=1e-12)
    again = ig.log_evidence(fit.kernel, fit.basis, "neighbours", fit.noise, X, Y, neighbours=neighbours)
    assert_allclose(again, fit.value, rtol=1e-9)
    held = ig.fit(*args, X, Y, neighbours=neighbours, max_iterations=10, held_out=(XS, np.sin(2 * XS[:, 0])))
    assert held.score is not None and np.isfinite(held.score)


# refusals ---------------------------------------------------------------------------------------------------


def test_the_jump_of_the_evidence_is_reported() -> None:
    """After ten iterations neighbours are found anew: the evidence of the new sets less that of the old."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (200, 3))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(200)
    kernel, basis = ig.kernels.Matern32(np.ones(3), 1.0), ig.bases.Points(X[:8])
    options: dict[str, Any] = {"optimize": "hyperparameters"}
    ten, more = (
        ig.fit(kernel, basis, "neighbours", 0.1, X, y, neighbours=4, max_iterations=n, **options)
        for n in (10, 12)
    )
    assert ten.jumps == () and len(more.jumps) == 1
    before: Any = ig.condition(kernel, basis, "neighbours", 0.1, X, y, neighbours=4)
    model = ten.kernel, ten.basis, "neighbours", ten.noise, X, y
    change = ig.log_evidence(*model, neighbours=4) - ig.log_evidence(*model, neighbours=before.sets)
    assert change != 0.0
    assert_allclose(more.jumps[0], change, rtol=1e-8)
    held = ig.fit(
        kernel, basis, "neighbours", 0.1, X, y, neighbours=before.sets, max_iterations=12, **options
    )
    assert held.jumps == ()


def test_next_to_no_noise_is_learned() -> None:
    """A function without noise: its bands follow, where a floor of 1e-6 would be all there is of them."""
    rng = np.random.default_rng(5)
    X, XS = rng.uniform(-1, 1, (300, 1)), rng.uniform(-0.9, 0.9, (100, 1))
    near = ig.fit(
        ig.kernels.Matern52(0.5, 1.0), ig.bases.Points(X[:10]), "neighbours", 0.1, X, np.sin(3 * X[:, 0])
    )
    mean, variance = near.posterior.predict(XS)
    assert near.noise < 1e-8
    errors = (mean - np.sin(3 * XS[:, 0])) ** 2
    assert np.mean(errors) < 1e-8 and np.mean(errors / (variance + near.noise)) < 4.0


def refused(match: str, **options: Any) -> None:
    args = package("rbf", START["rbf"])
    with pytest.raises(ig.errors.InducingError, match=match):
        ig.condition(*args, X, Y, **options)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, basis, name, noise = package("rbf", START["rbf"])
    refused("whole number from 0 on", neighbours=-1)
    refused("whole number from 0 on", neighbours=2.5)
    refused("whole number from 0 on", neighbours=True)
    refused(r"row numbers of shape \(48, q\)", neighbours=SETS[:5])
    refused("row numbers of shape", neighbours=SETS + 0.5)
    refused(
        "from 0 to 47, or -1 for none, but hold -1 to 48", neighbours=np.where(SETS == SETS.max(), 48, SETS)
    )
    refused("row 3 has itself among", neighbours=np.where(np.arange(N)[:, None] == 3, 3, -1))
    twice = np.full((N, 2), -1)
    twice[7] = 2
    refused("row 7 has another row twice", neighbours=twice)
    refused("have a circle", neighbours=np.roll(np.arange(N), 1)[:, None])
    refused("leave it out, or give their number", neighbours=SETS, blocks=np.zeros(N))
    monkeypatch.setattr(inference, "MOST_ROWS", 40)
    monkeypatch.setattr(neighbour_sets, "MOST_ROWS", 40)
    refused("a block has 48 rows, but neighbours are looked for in blocks of at most 40", blocks=np.zeros(N))
    refused("48 rows are linked by their neighbours, but at most 40", neighbours=SETS)
    with pytest.raises(ig.errors.ParameterError, match="power is only for 'pep'"):
        ig.condition(kernel, basis, name, noise, X, Y, power=0.5)
    with pytest.raises(ig.errors.ParameterError, match="needs power 1, not 0.5"):
        ig.approximations.Approximation("half", 0.5, "neighbours", "neighbours")
    with pytest.raises(ig.errors.ParameterError, match="over a source needs a number of neighbours"):
        ig.condition(kernel, basis, name, noise, ig.as_source(X, Y), neighbours=SETS)
    with pytest.raises(ig.errors.ParameterError, match="over a source needs Gaussian noise"):
        ig.condition(kernel, basis, name, ig.likelihoods.StudentT(), ig.as_source(X, Y))
    with pytest.raises(ig.errors.ParameterError, match="needs a basis"):
        ig.condition(kernel, None, name, noise, X, Y)
    for other in ("fitc", "exact", "bcm"):
        with pytest.raises(ig.errors.ParameterError, match=f"only for 'neighbours', not for '{other}'"):
            ig.condition(kernel, basis, other, noise, X, Y, neighbours=3)


@pytest.mark.parametrize("path", ["arrays"], indirect=True)
def test_the_benchmark_runs() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "neighbours.py"
    call = [sys.executable, script, "--quick", "--only", "ratios", "predictions", "regression"]
    done = subprocess.run(
        call, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "| RBF | 400, 10, 3, 5 |" in done.stdout and "| neighbours, m = 10, q = 5 |" in done.stdout
