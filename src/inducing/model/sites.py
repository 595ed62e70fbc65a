"""`Sites`: the Gaussian factors that stand for each row's likelihood in a posterior."""

from dataclasses import dataclass

import numpy as np

from ..numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class Sites:
    """Gaussian factors exp(ν g - ½ τ g²), one for each row (each copy of it, where rows have weights).

    They act on what the basis sees of f(x) above its prior mean, g = φᵀw = pᵀu, or with share = 1 on f(x)
    itself. [004 eqs 4.17, 4.33]
    """

    tau: Array  # (n,), precisions; they may be negative where log p(y|f) is not concave
    nu: Array  # (n,), shifts
    P: np.ndarray | None = None  # (n, m), or None where the rows of P are those of Kfu Kuu⁻¹
    share: float = 0.0  # of R that counts as the site's own noise: 0, or 1
    n_sweeps: int = 0
    converged: bool = False
    changes: tuple[int, ...] = ()  # of the basis, in each sweep
    projected: bool = False  # whether the likelihood is one of g alone, without R

    @property
    def a(self) -> Array:
        """The pseudo-targets ν/τ that the sites pull g to, with noise 1/τ. (n,) [004 eq. 4.18]"""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.nu / self.tau
