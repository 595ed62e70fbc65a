"""`examine`: versions, BLAS and cores of this machine, and whether its arithmetic is right."""

import os
import platform
import time
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path

import numpy as np

from ..numerics.workers import cores
from .warming import cache_folder

PACKAGES = "inducing numpy scipy numba scikit-learn threadpoolctl pandas pyarrow dask torch cupy".split()
PRODUCT_SIZES = (1, 3, 8, 17, 64, 65, 127, 256, 333, 512)  # rows: full and partial blocks of a BLAS
PRODUCT_SECONDS = 0.5  # for repeated products by each BLAS
ENGINE_AGREES = 1e-9  # largest relative difference of the engine from a dense formula

Multiply = Callable[[np.ndarray, np.ndarray], np.ndarray]


def scipy_product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return A B by SciPy's BLAS, which is not always NumPy's."""
    from scipy.linalg.blas import dgemm

    return dgemm(1.0, A, B)


def examine(*products: Multiply) -> tuple[dict[str, str], list[str]]:
    """Return facts about the installation by name, and its problems, a sentence each, in about two seconds.
    The matrix products checked are NumPy's and SciPy's unless others are given.
    """
    about = {"python": f"{platform.python_version()} on {platform.platform()}"}
    about |= {name: version for name in PACKAGES if (version := _version(name))}
    about |= _blas() | _cores() | {"GPU": _gpu(), "compilation cache": _cache()}
    each = [products_wrong(product) for product in products or (np.matmul, scipy_product)]
    count, wrong = (sum(numbers) for numbers in zip(*each, strict=True))
    about["products"] = f"{count} with known answers, {wrong} wrong"
    difference = engine_difference()
    about["engine"] = f"{difference:.1e} from a dense formula"
    problems = []
    if wrong:
        problems.append(
            f"{wrong} of {count} matrix products are wrong: this BLAS cannot be used on this machine; "
            "install another build of NumPy and SciPy, or set OPENBLAS_CORETYPE to an older kind of processor"
        )
    if not difference < ENGINE_AGREES:
        problems.append(
            f"the evidence differs by {difference:.1e} from a dense formula: "
            "do not trust results of this set-up"
        )
    return about, problems


def products_wrong(product: Multiply) -> tuple[int, int]:
    """Return how many products of matrices of whole numbers were made, and how many were not exact, as all
    must be in double precision. Each size and memory order is tried, repeatedly for PRODUCT_SECONDS.
    """
    rng, cases = np.random.default_rng(0), []
    for n in PRODUCT_SIZES:
        A, B = rng.integers(-99, 100, size=(2, n, n + 2))
        expected = A @ B.T  # whole numbers: no BLAS
        cases += [(A.astype(float, order=o), B.astype(float, order=o).T, expected) for o in ("C", "F")]
    start, count, wrong = time.monotonic(), 0, 0
    while count == 0 or time.monotonic() - start < PRODUCT_SECONDS:
        wrong += sum(not np.array_equal(product(A, B), expected) for A, B, expected in cases)
        count += len(cases)
    return count, wrong


def engine_difference() -> float:
    """Return the relative difference of FITC's log evidence from its dense formula. [001 eq. 9]"""
    from ..inference.regression import log_evidence
    from ..model.bases import Points
    from ..model.kernels import RBF

    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, size=(300, 2))
    y, Z, kernel = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(300), X[:15], RBF(np.ones(2))

    def k(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * np.sum((A[:, None] - B) ** 2, axis=2))

    Q = k(X, Z) @ np.linalg.solve(k(Z, Z) + 1e-8 * np.eye(15), k(Z, X))
    C = Q + np.diag(1.0 - np.diag(Q) + 0.1)
    dense = -0.5 * (np.linalg.slogdet(2.0 * np.pi * C)[1] + y @ np.linalg.solve(C, y))
    return float(abs(log_evidence(kernel, Points(Z), "fitc", 0.1, X, y, jitter=1e-8) / dense - 1.0))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _blas() -> dict[str, str]:
    import scipy.linalg  # noqa: F401  (loads its BLAS)
    from threadpoolctl import threadpool_info

    words = [
        f"{b['internal_api']} {b['version']}, {b.get('architecture', '?')}, {b['num_threads']} threads"
        for b in threadpool_info()
        if b["user_api"] == "blas"
    ]
    return {f"BLAS {i + 1}": text for i, text in enumerate(words)} or {"BLAS": "unknown"}


def _cores() -> dict[str, str]:
    narrowing = ("_NUM_THREADS", "_CORETYPE")  # the latter's kernels may take twice as long as the CPU's own
    limits = [f"{name}={os.environ[name]}" for name in os.environ if name.endswith(narrowing)]
    return {"cores": f"{cores()} used of {os.cpu_count()}", "limits": ", ".join(sorted(limits)) or "none set"}


def _gpu() -> str:
    if util.find_spec("torch") is None:
        return "none (PyTorch is not installed)"
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none that PyTorch can use"


def _cache() -> str:
    folder = cache_folder()
    if not folder:
        return "none: set NUMBA_CACHE_DIR to a folder that can be written"
    above = Path(folder).parents[1 if Path(folder).name == "__pycache__" else 0]
    kept = len(list(above.rglob("*.nbi")))
    return f"{kept} functions in {above}" if kept else f"empty ({folder}); `inducing warm`"
