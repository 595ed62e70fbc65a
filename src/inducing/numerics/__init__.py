"""Arrays and algebra that know nothing of Gaussian processes: namespaces, worker threads, factorisations,
BLAS by address, compiled loops, quadrature. Imports `errors` and nothing else of this package.
"""

from .arrays import Array, asarray_like, is_foreign, is_numpy, is_torch, namespace, placed, to_numpy
from .workers import blas_for, cores, on_device, single_threaded_blas, using

__all__ = [
    "Array",
    "asarray_like",
    "blas_for",
    "cores",
    "is_foreign",
    "is_numpy",
    "is_torch",
    "namespace",
    "on_device",
    "placed",
    "single_threaded_blas",
    "to_numpy",
    "using",
]
