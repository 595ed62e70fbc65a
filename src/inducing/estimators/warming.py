"""`warm`: compile everything beforehand that Numba compiles, by small problems that call each function."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..progress import Bars

N, M, D = 1400, 100, 2  # rows, basis functions and inputs from which the compiled passes are used


def warm(progress: bool | None = None) -> dict[str, float]:
    """Compile all that this package compiles, or load it from Numba's cache; return the seconds of each part.

    After an installation or an upgrade this takes about a minute, once per machine; first calls are quick
    from then on. progress=True shows a bar on stderr, False none; None shows it on terminals.
    """
    from ..numerics.compiling import expected

    expected()
    seconds = {}
    with Bars(progress) as bars:
        for i, (name, call) in enumerate(PARTS.items()):
            bars.show("parts", f"compiling for {name}", i, len(PARTS))
            start = time.perf_counter()
            call()
            seconds[name] = time.perf_counter() - start
        bars.show("parts", "compiled", len(PARTS), len(PARTS))
    return seconds


def cache_folder() -> str:
    """Return the folder where Numba keeps compiled code, or "" if there is none."""
    from ..numerics.loops import split_scaled

    path = getattr(getattr(split_scaled.ready(), "_cache", None), "cache_path", None)
    return "" if path is None else os.path.abspath(path)


def _rows(n: int = N) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).uniform(-2.0, 2.0, size=(n, D))
    return X, np.sin(2.0 * X[:, 0]) * X[:, 1]


def _kernel(name: str = "RBF") -> Any:
    from ..model import kernels

    return getattr(kernels, name)(np.ones(D))


def _evidence(row: str, kernel: str = "RBF", n: int = N, basis: Any = None, **options: Any) -> None:
    from ..inference.regression import log_evidence_and_gradient
    from ..model.bases import Points

    X, y = _rows(n)
    basis = Points(X[:M]) if basis is None else basis
    log_evidence_and_gradient(_kernel(kernel), basis, row, 0.1, X, y, **options)


def _sparse() -> None:
    from ..model.bases import Multiscale

    for row in ("fitc", "vfe"):
        for kernel in ("RBF", "Matern52"):
            _evidence(row, kernel)
    _evidence("vfe", basis=Multiscale(_rows()[0][:M], np.full((M, D), 1.5)))


def _exact() -> None:
    from ..learning.fitting import fit
    from ..model.bases import Points

    X, y = _rows(400)
    fit(_kernel("Matern32"), Points(X), "exact", 0.1, X, y, max_iterations=1)


def _classes() -> None:
    from .classifier import SparseGPClassifier

    X, y = _rows()
    SparseGPClassifier(max_iter=1, n_inducing=M).fit(X, y > 0)


def _neighbours() -> None:
    from ..inference.regression import condition
    from ..model.bases import Points

    X, y = _rows()
    _evidence("neighbours", "Matern32")
    _evidence("neighbours", "Matern32", n=M)  # so few rows go through arrays, not compiled passes
    near: Any = condition(_kernel("Matern32"), Points(X[:M]), "neighbours", 0.1, X, y)
    near.predict(X[:300])
    near.gradient(X[:2])
    near.compile()


def _streams() -> None:
    from ..inference.online import update
    from ..model.likelihoods import Gaussian
    from ..model.likelihoods.loops import BY_KIND, pointer
    from ..model.posterior import prior
    from .online import OnlineGPRegressor

    for kind in BY_KIND:
        pointer(kind)
    X, y = _rows(120)
    post = update(prior(_kernel()), Gaussian(0.1), X, y, capacity=20)
    update(post, Gaussian(0.1), X, y, capacity=10)
    model = OnlineGPRegressor(_kernel(), 10, half_life="auto", noise=0.1, optimize=None)
    model.fit(X, y).partial_fit(X[:1], y[:1])


def _propagation() -> None:
    from ..inference.propagation import expectation_propagation
    from ..model.likelihoods import Probit

    X, y = _rows(200)
    expectation_propagation(_kernel(), Probit(), X, np.sign(y), capacity=20, sweeps=3)


def _densities() -> None:
    from ..model.likelihoods.custom import Squared

    Squared().tilted(np.ones(3), np.ones(3), np.ones(3))


def _fields() -> None:
    from ..inference import fields
    from ..inference.mixtures import Mixtures
    from ..model.kernels.codes import DivergenceFree

    n, p = 4, 2
    t = Mixtures.of(np.ones((n, 1)), np.ones((n, 1, p)), np.tile(np.eye(p), (n, 1, 1, 1)))
    fields.expectation_propagation(DivergenceFree(2.0, 3.0), t, _rows(n)[0])
    t.tilted(np.zeros((n, p)), np.tile(np.eye(p), (n, 1, 1)))


def _predictors() -> None:
    from ..inference.regression import condition
    from ..model.bases import Points

    X, y = _rows(50)
    post: Any = condition(_kernel(), Points(X[:5]), "fitc", 0.1, X, y)
    post.compile()


PARTS: dict[str, Callable[[], None]] = {
    "sparse regression": _sparse,
    "the exact process": _exact,
    "blocks": lambda: _evidence("pitc", blocks=np.arange(N) // 50),
    "neighbours": _neighbours,
    "classes": _classes,
    "streams": _streams,
    "expectation propagation": _propagation,
    "densities": _densities,
    "vector fields": _fields,
    "predictions of single rows": _predictors,
}
