"""`distil`: a small sparse GP that imitates a given model or function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import EmptyDataError, ParameterError
from ..files.models import OF_A_HEADER
from .base import generator
from .regressor import SparseGPRegressor

LEAST_QUERIES = 50  # rows that the teacher answers before the first round


@dataclass(frozen=True)
class Fidelity:
    """The agreement of a pupil with its teacher, on rows it was not taught with."""

    queries: int  # how many rows it was taught with
    rmse: float  # of pupil minus teacher
    r2: float  # 1 - rmse² over the variance of the teacher's answers
    coverage: float  # share of the teacher's answers in the pupil's interval of 90 %


def distil(
    teacher: Any,
    X: Any,
    size: int = 100_000,
    queries: int | None = None,
    rounds: int = 3,
    random_state: Any = 0,
) -> SparseGPRegressor:
    """Fit a `SparseGPRegressor` whose file has at most `size` bytes to a teacher's answers at rows of X.

    `teacher` is a function of rows, or a fitted model: its `predict`, or the log odds of two classes by its
    `predict_proba`. Half of the `queries` (by default four fifths of X) are drawn at random, the rest chosen
    in `rounds` where the pupil so far is least sure. All other rows measure its errors (`fidelity_`); half of
    them calibrate predict_interval(X, 0.9, conformal="split"), whose coverage the other half measures.
    """
    X, ask, rng = np.asarray(X, dtype=float), _asking(teacher), generator(random_state)
    most = (4 * len(X)) // 5 if queries is None else int(queries)
    if X.ndim != 2 or len(X) < 2 * LEAST_QUERIES or not LEAST_QUERIES <= most <= len(X) - 10:
        needed = f"{2 * LEAST_QUERIES} rows or more, and 10 beyond its queries"
        raise EmptyDataError(f"a pupil needs {needed}, but there are {len(X)} rows and {most} queries")
    order = rng.permutation(len(X))
    held, pool = order[: max(10, len(X) - most)], order[max(10, len(X) - most) :]
    asked = pool[: max(LEAST_QUERIES, len(pool) // 2)]
    left, y = pool[len(asked) :], np.full(len(X), np.nan)
    y[asked] = ask(X[asked])
    m = min(_basis_size(size - 4 * len(held), X.shape[1]), len(asked))
    seed = int(rng.integers(2**31))
    for step in range(rounds if len(left) else 0):
        pupil = _pupil(m, 30, seed).fit(X[asked], y[asked])
        unsure = np.argsort(-pupil.predict(X[left], return_std=True, latent=True)[1], kind="stable")
        chosen = left[unsure[: -(-len(left) // (rounds - step))]]
        y[chosen] = ask(X[chosen])
        asked, left = np.concatenate([asked, chosen]), np.setdiff1d(left, chosen)
    pupil = _pupil(m, 1000, seed).fit(X[asked], y[asked])
    answers, half = ask(X[held]), len(held) // 2
    pupil.calibrate(X[held[:half]], answers[:half])
    low, high = pupil.predict_interval(X[held[half:]], 0.9, conformal="split").T
    inside = float(np.mean((low <= answers[half:]) & (answers[half:] <= high)))
    rmse = float(np.sqrt(np.mean((pupil.predict(X[held]) - answers) ** 2)))
    spread = float(np.var(answers))
    r2 = 1.0 - rmse**2 / spread if spread > 0.0 else float("nan")
    pupil.fidelity_ = Fidelity(len(asked), rmse, r2, inside)  # type: ignore[attr-defined]
    return pupil


def _basis_size(size: int, d: int) -> int:
    """Return the number m of functions whose file has at most `size` bytes: 4m² + 16md + 12m and a header,
    which has lengthscales and scales of d inputs.
    """
    b = 4.0 * d + 3.0
    return max(1, int((np.sqrt(b * b + max(0, size - OF_A_HEADER - 80 * d)) - b) / 2.0))


def _pupil(m: int, iterations: int, seed: int) -> SparseGPRegressor:
    """Return an unfitted pupil, to which what m functions cannot follow of the teacher is noise."""
    return SparseGPRegressor(approximation="vfe", n_inducing=m, max_iter=iterations, random_state=seed)


def _asking(teacher: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that gives the teacher's answer at each row. (n,)"""

    def answers(X: np.ndarray) -> np.ndarray:
        if hasattr(teacher, "predict_proba"):
            p = np.clip(np.asarray(teacher.predict_proba(X), dtype=float), 1e-6, 1.0 - 1e-6)
            if p.shape != (len(X), 2):
                raise ParameterError(f"a teacher of classes must have two, but answers in shape {p.shape}")
            return np.log(p[:, 1] / p[:, 0])
        y = np.asarray(teacher.predict(X) if hasattr(teacher, "predict") else teacher(X), dtype=float)
        if y.shape != (len(X),):
            raise ParameterError(f"a teacher must give a number for each row, but gives shape {y.shape}")
        return y

    return answers
