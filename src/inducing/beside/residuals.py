"""What the basis does not explain between the data and some queries, R_f* = K_f* - ΦᵀΦ_*, summed over chunks
of rows.

The Nyström method and augmentation both correct a row's posterior by it, with v = D⁻¹R_f* and e = y - Φᵀw:

    G = Φv    S = R_*f v    E = vᵀe

O(nm) for each query, once Φ is made again for each call; memory O(chunk (m + t)).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ..model.posterior import Posterior
from ..model.problem import Problem
from ..numerics.arrays import SMALL, Array, is_numpy
from ..numerics.linalg import add_outer, cholesky, from_lower, plus_diagonal, row_squares, solve_lower
from ..numerics.workers import chunk_rows, row_slices, run_over

Sums = TypeVar("Sums")


class Terms(NamedTuple):
    """One chunk of rows, or one block, beside t queries."""

    Phi: Array  # (c, m)
    R: Array  # (c, t)
    V: Array  # (c, t), D⁻¹R with the rows' weights
    E: Array  # (c, p), what the posterior mean leaves of y
    weight: Array | float  # (c,): what the rows count; 1 in a block, whose D has it


def terms(post: Posterior, P: Problem, X: Array, Phi_X: Array, rows: Any) -> Terms:
    """The terms of some rows of P under its row of the table, beside queries X with features Phi_X; `rows` is
    a slice, or one of P's blocks.
    """
    Xr = P.X[rows]
    Phi = post.features(Xr)
    R = P.kernel(Xr, X) - Phi @ Phi_X.T
    E = P.Y[rows] - Phi @ post.w
    weight, noise = P.weight(rows), P.noise[rows]
    if P.blocks is not None:
        L = cholesky(plus_diagonal(from_lower(add_outer(P.kernel(Xr, Xr), Phi, -1.0)), noise / weight))
        return Terms(Phi, R, solve_lower(L, solve_lower(L, R), transposed=True), E, 1.0)
    D = noise if P.row.share == 0 else noise + P.row.share * (P.kernel.diag(Xr) - row_squares(Phi))
    return Terms(Phi, R, R * (weight / D)[:, None], E, weight)


def over_rows(
    post: Posterior, P: Problem, start: Callable[[], Sums], step: Callable[[Sums, Any], None]
) -> list[Sums]:
    """`step` over chunks of rows or over blocks, on all cores, each worker with sums of its own."""
    tasks: list[Any] = P.blocks or row_slices(P.n, chunk_rows(P.n, len(post), P.X))
    _ = post.features(P.X[:1])  # what the threads share is made before they ask
    return run_over(tasks, start, step, parallel=is_numpy(P.X) and P.n * max(len(post), 1) >= SMALL)


def query_chunks(t: int, m: int) -> list[slice]:
    """As many queries at a time as there are basis functions: making Φ again then costs no more than using
    it.
    """
    return row_slices(t, max(256, m))


def add_up(parts: list[list[Any]]) -> list[Any]:
    """The workers' sums in their fixed order."""
    return [sum(rest, first) for first, *rest in zip(*parts, strict=True)]
