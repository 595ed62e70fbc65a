"""Products K(Z, X) V without keeping the matrix: in blocks, by a dual tree, by the fast Gauss transform.

Each is a value that knows the kernel and X, and is called with V: `product(V)` is K(X, X) V and `product(V,
Z)` is K(Z, X) V. The tree and the Gauss transform err, by no more than `tolerance` of the prior variance
times Σ|v|, at every row:

    |(K v)_i - product(v)_i| ≤ tolerance · k(0) · Σ_j |v_j|

Blocks cost n² whatever the kernel; a tree pays where lengthscales are short, the Gauss transform where they
are long. [002, Fast approximate solution of linear systems]
"""

from ...model.kernels.base import Kernel
from ...model.kernels.stationary import PROFILES, RBF
from ...numerics.arrays import Array, is_numpy
from .blocked import Blocked
from .gauss import Gauss, truncation
from .tree import Tree

__all__ = ["Blocked", "Gauss", "KernelProduct", "Tree", "choose", "truncation"]

KernelProduct = Blocked | Tree | Gauss


def choose(kernel: Kernel, X: Array, tolerance: float = 0.0) -> KernelProduct:
    """The product of least cost for K(X, X) v within the tolerance; in blocks, and exact, for one of 0.

    Costs are counted, not guessed from the lengthscale: n²/2 entries for blocks; the boxes and points that a
    sample of leaves look at for the tree; the terms and centres of the best plan for the Gauss transform.
    Other kernels and a GPU's arrays go in blocks.
    """
    blocks = Blocked(kernel, X)
    if tolerance == 0.0 or not is_numpy(X) or type(kernel) not in PROFILES:
        return blocks
    rivals: list[KernelProduct] = [blocks, Tree(kernel, X, tolerance)]
    if isinstance(kernel, RBF):
        rivals.append(Gauss(kernel, X, tolerance))
    return min(rivals, key=lambda product: product.cost)
