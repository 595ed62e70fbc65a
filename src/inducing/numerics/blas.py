"""SciPy's BLAS and LAPACK routines themselves: as foreign functions, and by address for compiled loops."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np


@cache
def foreign(name: str, n_arguments: int) -> Any:
    """The routine `name` of that many arguments, all pointers; a call releases the interpreter lock."""
    return ctypes.CFUNCTYPE(None, *([ctypes.c_void_p] * n_arguments))(_address(name))


@cache
def addresses() -> np.ndarray:
    """Where the routines of `_routines.NAMES` are. (int64)"""
    from .compiled_blas import NAMES

    return np.array([_address(name) for name in NAMES])


def _address(name: str) -> int:
    from scipy.linalg import cython_blas, cython_lapack

    capsule = (cython_blas if name in cython_blas.__pyx_capi__ else cython_lapack).__pyx_capi__[name]
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get_pointer(capsule, get_name(capsule))
