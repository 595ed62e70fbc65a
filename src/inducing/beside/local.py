"""Local subsets of data: an exact GP on the rows nearest to each query. [002, Subset of Data]"""

from typing import Any

from ..errors import ParameterError
from ..inference.neighbours import NeighboursPredictor, rows_of
from ..inference.regression import problem_of
from ..model.bases import Points
from ..model.kernels.base import Kernel
from ..model.means import Mean
from ..model.posterior import Posterior
from .nystrom import check_gaussian


def neighbours(
    kernel: Kernel,
    noise: Any,
    X: Any,
    y: Any,
    *,
    size: int = 50,
    mean: Mean | None = None,
    weights: Any = None,
) -> NeighboursPredictor:
    """Make the exact GP on the `size` training rows nearest to each query, in lengthscales if the kernel has
    them: the row "neighbours" of the table on an empty basis, so without a part for rows far away.

    With a screening effect (Matérn kernels of little noise, queries among the data) the other rows add little
    [Stein 2002]. The price: O(size³) for each query, and a mean that jumps where neighbours change. There is
    no evidence, since no two queries share a model.
    """
    P = problem_of(kernel, None, "exact", noise, X, y, mean=mean, weights=weights)
    check_gaussian(P, "local")
    if not 1 <= size <= P.n:
        raise ParameterError(f"size must lie between 1 and the number of rows ({P.n}), but is {size}")
    nothing, basis = P.X[:0, :0], Points(P.X[:0])
    empty = Posterior(P.kernel, basis, nothing, P.Y[:0], nothing, P.mean, one_output=P.one_output)
    return NeighboursPredictor(empty, rows_of(empty, P), size)
