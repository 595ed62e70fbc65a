"""Corrections of a posterior by R_f* = K_f* - ΦᵀΦ_*, what the basis leaves between the data and some queries.

The Nyström method and augmentation both use them. With v = D⁻¹R_f* and e = y - Φᵀw they are sums over rows,

    G = Φv    S = R_*f v    E = vᵀe

at O(nm) for each query, once Φ is made again for each call; memory O(chunk (m + t)).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ..engine.block_factors import Whole
from ..errors import ParameterError
from ..model.posterior import Posterior
from ..model.problem import Problem
from ..numerics.arrays import SMALL, Array, is_numpy, namespace, zeros_like_rows
from ..numerics.linalg import row_squares
from ..numerics.workers import chunk_rows, row_slices, run_over

Total = TypeVar("Total")


class Terms(NamedTuple):
    """The terms of one chunk of rows, or one block, beside t queries."""

    Phi: Array  # (c, m)
    R: Array  # (c, t)
    V: Array  # (c, t), D⁻¹R with the rows' weights
    E: Array  # (c, p), what the posterior mean leaves of y
    weight: Array | float  # (c,): what the rows count; 1 in a block, whose D has it


def terms(post: Posterior, P: Problem, X: Array, Phi_X: Array, rows: Any) -> Terms:
    """The terms of some rows of P, a slice or one of its blocks, beside queries X with features Phi_X."""
    Xr = P.X[rows]
    Phi = post.features(Xr)
    R = P.kernel(Xr, X) - Phi @ Phi_X.T
    E = P.Y[rows] - Phi @ post.w
    if P.blocks is not None:
        Linv = Whole.of(P, Phi, rows).Linv
        return Terms(Phi, R, Linv.T @ (Linv @ R), E, 1.0)
    weight, D = P.weight(rows), P.noise[rows]
    if P.row.share:
        D = D + P.row.share * (P.kernel.diag(Xr) - row_squares(Phi))
    return Terms(Phi, R, R * (weight / D)[:, None], E, weight)


def corrections(
    post: Posterior, P: Problem, X: Array, Phi: Array, *, joint: bool = False
) -> tuple[Array, Array, Array]:
    """Compute G (m, t), S or its diagonal, (t, t) if `joint` else (t,), and E (t, p)."""
    t, xp = X.shape[0], namespace(X)

    def start() -> list[Array]:
        shapes = ((len(post), t), (t, t) if joint else (t,), (t, P.p))
        return [zeros_like_rows(shape, X) for shape in shapes]

    def step(sums: list[Array], rows: Any) -> None:
        T = terms(post, P, X, Phi, rows)
        sums[0] += T.Phi.T @ T.V
        sums[1] += T.R.T @ T.V if joint else xp.sum(T.R * T.V, axis=0)
        sums[2] += T.V.T @ T.E

    G, S, E = add_up(over_rows(post, P, start, step))
    return G, S, E


def over_rows(
    post: Posterior, P: Problem, start: Callable[[], Total], step: Callable[[Total, Any], None]
) -> list[Total]:
    """Run `step` over chunks of rows, or blocks, on all cores; each worker has sums of its own."""
    tasks: list[Any] = P.blocks or row_slices(P.n, chunk_rows(P.n, len(post), P.X))
    _ = post.features(P.X[:1])  # what the threads share is made before they ask
    return run_over(tasks, start, step, parallel=is_numpy(P.X) and P.n * max(len(post), 1) >= SMALL)


def query_chunks(t: int, m: int) -> list[slice]:
    """Slices of as many queries as there are basis functions: making Φ again costs no more than using it."""
    return row_slices(t, max(256, m))


def add_up(parts: list[list[Any]]) -> list[Any]:
    """Add the workers' sums in their fixed order."""
    return [sum(rest, first) for first, *rest in zip(*parts, strict=True)]


def check_gaussian(P: Problem, name: str) -> None:
    """Raise if a method that knows Gaussian noise alone is given another likelihood."""
    if P.likelihood is not None:
        raise ParameterError(f"{name!r} needs Gaussian noise, not {P.likelihood}; use 'fitc' or 'vfe'")
