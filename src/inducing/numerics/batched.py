"""Cholesky factors and solves of very many small matrices at once; the last axis counts the matrices.

Each step of the loops is one array operation over all matrices: a GPU reads and writes memory in order, waits
for nothing, and needs no routine for small matrices. NumPy, PyTorch and CuPy arrays.
"""

from collections.abc import Callable

from .arrays import Array, is_torch, namespace, zeros_like_rows


def factorise(column: Callable[[int], Array], there: Array, least: Array) -> Array:
    """Return the lower factors L of matrices A given by `column(j)`: A_ij for i ≥ j (k - j, c). (k, k, c)

    Row i of a matrix is that of the identity where there_i = 0; squared pivots are at least `least`.
    there, least (k, c)
    """
    k, c = there.shape
    xp, L = namespace(there), zeros_like_rows((k, k, c), there)
    for j in range(k):
        a = column(j) * (there[j:] * there[j])
        if j:
            a -= xp.sum(L[j:, :j] * L[j, :j], axis=1)
        pivot = xp.sqrt(xp.maximum(a[0], least[j]) * there[j] + (1.0 - there[j]))
        L[j, j] = pivot
        L[j + 1 :, j] = a[1:] / pivot
    return L


def solve(L: Array, B: Array, *, transposed: bool = False) -> Array:
    """Return L⁻¹b, or L⁻ᵀb, of each matrix. L (k, k, c), B (k, c)"""
    k, xp = L.shape[0], namespace(B)
    x = xp.asarray(B, copy=True)
    for j in reversed(range(k)) if transposed else range(k):
        known = xp.sum(L[j + 1 :, j] * x[j + 1 :] if transposed else L[j, :j] * x[:j], axis=0)
        x[j] = (x[j] - known) / L[j, j]
    return x


def add_products(C: Array, A: Array, B: Array, sign: float = 1.0) -> Array:
    """Return C + sign A B of each matrix, in C's memory. (c, k, l)"""
    if is_torch(C):
        return C.baddbmm_(A, B, alpha=sign)
    C += sign * (A @ B)
    return C
