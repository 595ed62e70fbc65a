"""`Sites`: what each row's likelihood became in a posterior."""

from __future__ import annotations

from dataclasses import dataclass

from ..numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class Sites:
    """Gaussian factors exp(ν g - ½ τ g²) in g = φᵀw, one for each row (each copy of it, where rows have
    weights).
    """

    tau: Array  # (n,), precisions; they may be negative where log p(y|f) is not concave
    nu: Array  # (n,), shifts
    n_sweeps: int = 0
    converged: bool = False
