"""Calls side by side, and triangles factorised, inverted and squared by halves."""

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from inducing.errors import FactorisationError
from inducing.numerics import blas, workers
from inducing.numerics.linalg import cholesky, inverse_lower, solve_rows


@pytest.fixture(params=[1, 2, 5])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(workers, "_process_cores", lambda: request.param)
    monkeypatch.setattr(workers, "_pool", None)
    return request.param


def test_calls_side_by_side_return_in_their_order(cores: int) -> None:
    seen, meeting = list[int](), threading.Barrier(min(cores, 7), timeout=20.0)

    def call(i: int) -> int:
        seen.append(workers.cores())
        if i < meeting.parties:
            meeting.wait()  # the first are under way at once, one on each core
        return i * i

    calls = [lambda i=i: call(i) for i in range(7)]
    assert workers.side_by_side(calls) == [i * i for i in range(7)]
    assert set(seen) == {1}
    assert workers.cores() == cores
    assert workers.side_by_side([]) == []


def test_an_error_of_a_call_ends_those_that_have_not_begun(cores: int) -> None:
    begun: list[int] = []

    def call(i: int) -> None:
        begun.append(i)
        if i == 0:
            raise IndexError("of the call itself")
        threading.Event().wait(0.05)

    with pytest.raises(IndexError, match="of the call itself"):
        workers.side_by_side([lambda i=i: call(i) for i in range(100)])
    assert len(begun) < 50


def test_one_at_a_time_where_that_is_asked_for(cores: int) -> None:
    threads = workers.side_by_side([threading.get_ident] * 4, parallel=False)
    assert set(threads) == {threading.get_ident()}


@pytest.mark.parametrize("m", [1, 2, 79, 80, 81, 200, 333])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_triangles_are_inverted_in_their_place(m: int, dtype: type) -> None:
    rng = np.random.default_rng(m)
    A = np.full((m + 3, m + 5), 7.0, dtype=dtype)
    L = A[2 : 2 + m, 1 : 1 + m]
    L[...] = np.where(np.tri(m, dtype=bool), rng.normal(size=(m, m)) / m, 7.0)
    L[np.diag_indices(m)] = rng.uniform(1.0, 2.0, m)
    given = np.tril(L).astype(float)
    blas.trtri(L)
    tolerance = 1e-12 if dtype is np.float64 else 1e-4
    assert_allclose(np.tril(L) @ given, np.eye(m), atol=tolerance)
    assert np.all(L[~np.tri(m, dtype=bool)] == 7.0)  # what is above is not touched
    outside = np.ones(A.shape, dtype=bool)
    outside[2 : 2 + m, 1 : 1 + m] = False
    assert np.all(A[outside] == 7.0)


@pytest.mark.parametrize("m", [1, 16, 17, 40, 131])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_factors_and_squares_by_halves(m: int, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the lower triangle of rows that are parts of longer ones; nothing else is read or touched."""
    monkeypatch.setattr(blas, "ONE_THREAD", 16)
    rng, below = np.random.default_rng(m), np.tri(m, dtype=bool)
    tolerance = 1e-12 if dtype is np.float64 else 1e-4
    A = rng.standard_normal((m, m + 5)) / m
    K = A @ A.T + np.eye(m)
    room = np.full((m, m + 3), 7.0, dtype=dtype)
    room[:, :m][below] = K[below]
    assert blas.potrf(room[:, :m])
    L = np.tril(room[:, :m]).astype(float)
    assert_allclose(L @ L.T, K, atol=tolerance)
    blas.lauum(room[:, :m])
    assert_allclose(np.tril(room[:, :m]), np.tril(L.T @ L), atol=tolerance)
    assert np.all(room[:, :m][~below] == 7.0)
    assert np.all(room[:, m:] == 7.0)


@pytest.mark.parametrize("wrong", [0, 9, 20, 130])
def test_halves_of_no_covariance_have_no_factor(wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "ONE_THREAD", 16)
    K = np.eye(131)
    K[wrong, wrong] = -1.0
    assert not blas.potrf(K.copy())
    with pytest.raises(FactorisationError, match="131 x 131 matrix is not positive definite"):
        cholesky(K)


def test_small_factors_never_wait_for_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only products of hundreds of rows are shared out, however large the matrix."""
    called, controller = list[tuple[str, int, bool]](), workers._controller()
    libraries = [library for library in controller.lib_controllers if library.user_api == "blas"]

    def noting(name: str, like: np.ndarray, *arguments: object) -> None:
        called.append((name, len(like), all(library.num_threads == 1 for library in libraries)))

    monkeypatch.setattr(blas, "_call", noting)
    with controller.limit(limits=2, user_api="blas"):
        blas.potrf(np.empty((3000, 3000)))
        blas.lauum(np.empty((3000, 3000)))
        blas.trtri(np.empty((3000, 3000)))
    assert libraries and not all(alone for _, _, alone in called)
    assert {name for name, _, _ in called} == {"potrf", "trsm", "syrk", "lauum", "trmm", "trtri"}
    for name, rows, alone in called:
        assert alone or (rows > 250 and name in ("trsm", "syrk", "trmm"))


def test_inverses_of_factors_are_triangles() -> None:
    L = np.tril(np.random.default_rng(0).normal(size=(130, 130)) / 130) + np.eye(130)
    above = np.where(np.tri(130, dtype=bool), L, 3.0)
    found = inverse_lower(above)
    assert_allclose(found @ L, np.eye(130), atol=1e-12)
    assert_allclose(found, np.tril(found), atol=0.0)
    assert np.all(above[np.triu_indices(130, 1)] == 3.0)  # a copy was inverted
    L[4, 4] = 0.0
    for solve in (inverse_lower, partial(solve_rows, np.ones((3, 130)))):
        with pytest.raises(FactorisationError, match="a zero at position 5"):
            solve(L)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("rows", "order"), [(1, "C"), (300, "C"), (300, "F"), (0, "C")])
def test_rows_are_solved_for(dtype: type, rows: int, order: Any) -> None:
    rng = np.random.default_rng(1)
    L = np.tril(rng.normal(size=(130, 130)) / 130) + np.eye(130)
    A = np.array(rng.normal(size=(rows, 130)), dtype=dtype, order=order)
    above = np.where(np.tri(130, dtype=bool), L, np.nan).astype(dtype)  # what is above is not read
    want = np.linalg.solve(L, A.T).T
    atol = 1e-13 if dtype is np.float64 else 1e-5
    assert_allclose(solve_rows(A.copy(order="K"), above), want, rtol=0, atol=atol)
